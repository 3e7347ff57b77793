"""One name for each function: aliases, modules of other devices, re-exports."""

from __future__ import annotations

import pytest

from streamsafe.apis.names import canonical

ALIASES = {
    "torch.cuda.streams.Stream": "torch.cuda.Stream",
    "torch.cuda.StreamContext": "torch.cuda.stream",
    "torch.xpu.Stream": "torch.cuda.Stream",
    "torch.cuda.graphs.CUDAGraph": "torch.cuda.CUDAGraph",
    "torch.npu.NPUGraph": "torch.cuda.CUDAGraph",
    "torch.nn.utils.clip_grad.clip_grad_norm_": "torch.nn.utils.clip_grad_norm_",
    "cupy.cuda.stream.get_current_stream": "cupy.cuda.get_current_stream",
    "cupyx.zeros_pinned": "cupyx.empty_pinned",
    "deepspeed.comm.all_reduce": "torch.distributed.all_reduce",
    "torch.accelerator.current_stream": "torch.cuda.current_stream",
    "torch.accelerator.current_accelerator": "torch.cuda.current_accelerator",
    "torch.add": "torch.add",
}


@pytest.mark.parametrize("name", ALIASES)
def test_the_name_of_a_function(name: str) -> None:
    assert canonical(name) == ALIASES[name]
