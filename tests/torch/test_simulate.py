"""The simulated CUDA device: programs compute what they compute on a GPU, and its API answers as a GPU's does."""

from __future__ import annotations

from typing import Any


def test_streams_of_a_pool_come_round(torch: Any) -> None:
    streams = [torch.cuda.Stream() for _ in range(33)]
    handles = [stream.cuda_stream for stream in streams]
    assert len(set(handles)) == 32
    assert handles[32] == handles[0]
    assert torch.cuda.default_stream().cuda_stream == 0


def test_operators_compute(torch: Any) -> None:
    side = torch.cuda.Stream()
    x = torch.zeros(4, device="cuda")
    torch.cuda.synchronize()
    with torch.cuda.stream(side):
        x += 1
    side.synchronize()
    assert x.tolist() == [1.0] * 4
