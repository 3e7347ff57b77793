"""``torch.compile`` with inductor: it generates Triton kernels for CUDA, which nothing here runs."""

from __future__ import annotations

import importlib
import sys
from typing import Any

NOTE = (
    "streamsafe: torch.compile runs what is on the simulated device with the backend aot_eager: inductor would "
    "generate Triton kernels"
)


def without_inductor(torch: Any) -> None:
    """Has the backend ``aot_eager`` compile what is given to inductor for the device, and says so once."""
    wrapper = getattr(torch, "_TorchCompileInductorWrapper", None)
    if wrapper is None:
        return
    plain = wrapper.__call__
    said: list[bool] = []

    def call(self: Any, model: Any, inputs: Any, **named: Any) -> Any:
        tensors = [*inputs, *model.parameters(), *model.buffers()]
        if not any(getattr(getattr(each, "device", None), "type", "") == "cuda" for each in tensors):
            return plain(self, model, inputs, **named)
        if not said:
            said.append(True)
            print(NOTE, file=sys.stderr, flush=True)
        backends = importlib.import_module("torch._dynamo.backends.debugging")
        return backends.aot_eager(model, inputs)

    wrapper.__call__ = call
