"""What a model holds, by name, and which of its modules runs; nothing of the program is called."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import FrameType
from typing import Any

from streamsafe.runtime.pinned.variables import variable_of

TENSORS = 10_000
"""Tensors of one model that are looked at."""


def parts(value: object) -> Iterator[tuple[str, object]] | None:
    """A module's parameters, gradients, buffers and attributes; a tensor's gradient; None for other objects."""
    torch = sys.modules.get("torch")
    if torch is None:
        return None
    if isinstance(value, torch.nn.Module):
        return _of_module(value, torch)
    if isinstance(value, torch.Tensor):
        return _gradient(value, torch)
    return None


def _gradient(tensor: Any, torch: Any) -> Iterator[tuple[str, object]]:
    with torch._C.DisableTorchFunctionSubclass():
        gradient = tensor.grad if tensor.is_leaf and tensor.requires_grad else None
    if gradient is not None:
        yield ".grad", gradient


def _of_module(module: Any, torch: Any) -> Iterator[tuple[str, object]]:
    count = 0
    for path, each in _modules(module, ""):
        for kind in ("_parameters", "_buffers"):
            for name, tensor in list(_held(each, kind).items()):
                count += 1
                if count > TENSORS:
                    return
                if tensor is None:
                    continue
                yield f"{path}.{name}", tensor
                for end, gradient in _gradient(tensor, torch):
                    yield f"{path}.{name}{end}", gradient
        for name, other in list(vars(each).items()):
            if not name.startswith("_") and name != "training":
                yield f"{path}.{name}", other


def _modules(module: Any, path: str) -> Iterator[tuple[str, Any]]:
    """A module and all below it, each with the expression that leads to it."""
    seen: set[int] = set()
    pending = [(path, module)]
    while pending:
        path, each = pending.pop()
        if id(each) in seen:
            continue
        seen.add(id(each))
        yield path, each
        below = [(name, child) for name, child in _held(each, "_modules").items() if child is not None]
        steps = (f"[{name}]" if name.isdigit() else f".{name}" for name, _ in below)
        pending.extend(
            reversed([(path + step, child) for step, (_, child) in zip(steps, below, strict=True)])
        )


def _held(module: Any, kind: str) -> dict[str, Any]:
    found = vars(module).get(kind)
    return found if isinstance(found, dict) else {}


def forward(frame: FrameType | None) -> tuple[object, str, FrameType | None] | None:
    """The model whose forward runs in a frame or its callers, the path of the innermost module in torch's words, and
    the frame that calls the model.
    """
    torch = sys.modules.get("torch")
    if torch is None:
        return None
    call = getattr(torch.nn.Module._call_impl, "__code__", None)
    running: list[tuple[Any, FrameType | None]] = []
    while frame is not None:
        if frame.f_code is call:
            running.append((variable_of(frame, "self"), frame.f_back))
        frame = frame.f_back
    for model, caller in reversed(running):
        path = _path(model, running[0][0])
        if path is not None:
            return model, path, caller
    return None


def _path(model: Any, wanted: Any) -> str | None:
    seen: set[int] = set()
    pending = [("", model)]
    while pending:
        path, each = pending.pop()
        if each is wanted:
            return path
        if id(each) not in seen:
            seen.add(id(each))
            pending.extend((f"{path}.{name}", child) for name, child in _held(each, "_modules").items())
    return None
