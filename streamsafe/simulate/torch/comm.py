"""Copies between devices that a CUDA build makes in C++: ``torch.nn.parallel.comm`` and ``torch.cuda.nccl``."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Sequence
from typing import Any

_OPERATIONS = ("add", "mul", "maximum", "minimum")
"""``ncclRedOp_t``: sum, product, max, min; 4 is the mean."""


def comm(core: Any) -> None:
    """Adds the functions to ``torch._C``."""
    for function in (
        _broadcast,
        _broadcast_out,
        _broadcast_coalesced,
        _scatter,
        _scatter_out,
        _gather,
        _gather_out,
        _nccl_reduce,
        _nccl_all_reduce,
        _nccl_broadcast,
        _nccl_all_gather,
        _nccl_reduce_scatter,
    ):
        setattr(core, function.__name__, function)


def _torch() -> Any:
    return importlib.import_module("torch")


def _device(index: int | None) -> Any:
    torch = _torch()
    return torch.device("cpu") if index is not None and index < 0 else torch.device("cuda", index)


def _on(tensor: Any, device: Any) -> Any:
    return tensor if tensor.device == device else tensor.to(device, non_blocking=True)


def _broadcast(tensor: Any, devices: Sequence[int]) -> list[Any]:
    return [_on(tensor, _device(index)) for index in devices]


def _broadcast_out(tensor: Any, out_tensors: Sequence[Any]) -> Sequence[Any]:
    for place, out in enumerate(out_tensors):
        if not out.is_cuda:
            raise RuntimeError(
                f"Expected all output tensors to be CUDA tensors, but output tensor at index {place} is not"
            )
        if out.shape != tensor.shape:
            raise RuntimeError(
                f"Expected all output tensors to have same shape as the source {list(tensor.shape)}, but output tensor "
                f"at index {place} has shape {list(out.shape)}"
            )
        out.copy_(tensor, non_blocking=True)
    return out_tensors


def _broadcast_coalesced(tensors: Sequence[Any], devices: Sequence[int], buffer_size: int) -> list[list[Any]]:
    del buffer_size  # how many bytes a copy has
    wrong = [tensor for tensor in tensors if tensor.get_device() != devices[0]]
    if wrong:
        raise RuntimeError("all tensors must be on devices[0]: " + str(devices[0]))
    return [[_on(tensor, _device(index)) for tensor in tensors] for index in devices]


def _parts(tensor: Any, count: int, sizes: Sequence[int] | None, dim: int) -> list[Any]:
    if sizes is None:
        return list(tensor.chunk(count, dim))
    if len(sizes) != count:
        raise RuntimeError(
            f"Expected devices and chunk_sizes to be of same length, but got len(devices) = {count} and "
            f"len(chunk_sizes) = {len(sizes)}"
        )
    if sum(sizes) != tensor.shape[dim]:
        raise RuntimeError(
            "given chunk sizes don't sum up to the tensor's size (sum(chunk_sizes) == "
            f"{sum(sizes)}, but expected {tensor.shape[dim]})"
        )
    if any(size <= 0 for size in sizes):
        raise RuntimeError("Expected all chunk sizes to be positive")
    return list(tensor.split(list(sizes), dim))


def _scatter(
    tensor: Any,
    devices: Sequence[int],
    chunk_sizes: Sequence[int] | None,
    dim: int,
    streams: Sequence[Any] | None,
) -> list[Any]:
    torch = _torch()
    if not devices:
        raise RuntimeError("Expected at least one device to scatter to")
    made = []
    for place, part in enumerate(_parts(tensor, len(devices), chunk_sizes, dim)):
        stream = streams[place] if streams is not None else None
        with torch.cuda.device(devices[place]), torch.cuda.stream(stream):
            made.append(_on(part.contiguous(), _device(devices[place])))
    return made


def _scatter_out(
    tensor: Any, out_tensors: Sequence[Any], dim: int, streams: Sequence[Any] | None
) -> Sequence[Any]:
    torch = _torch()
    sizes = [out.shape[dim] for out in out_tensors]
    if sum(sizes) != tensor.shape[dim]:
        raise RuntimeError(
            f"Total size for output tensors along scatter dim {dim} does not match, expected {tensor.shape[dim]}, "
            f"but got {sum(sizes)}"
        )
    for place, part in enumerate(tensor.split(sizes, dim)):
        stream = streams[place] if streams is not None else None
        with torch.cuda.device(out_tensors[place].device), torch.cuda.stream(stream):
            out_tensors[place].copy_(part, non_blocking=True)
    return out_tensors


def _gather(tensors: Sequence[Any], dim: int, destination_index: int | None) -> Any:
    shape = list(tensors[0].shape)
    shape[dim] = sum(tensor.shape[dim] for tensor in tensors)
    out = tensors[0].new_empty(shape, device=_device(destination_index))
    return _gather_out(tensors, out, dim)


def _gather_out(tensors: Sequence[Any], out_tensor: Any, dim: int) -> Any:
    if not tensors:
        raise RuntimeError("Expected at least one tensor to gather from")
    sizes = [tensor.shape[dim] for tensor in tensors]
    if out_tensor.shape[dim] != sum(sizes):
        raise RuntimeError(f"Expected out tensor to have shape with size {sum(sizes)} in dimension {dim}")
    for part, tensor in zip(out_tensor.split(sizes, dim), tensors, strict=True):
        if not tensor.is_cuda:
            raise RuntimeError("Expected all input tensors to be CUDA tensors")
        part.copy_(tensor, non_blocking=out_tensor.is_cuda)
    return out_tensor


def _sum(tensors: Sequence[Any], op: int, device: Any) -> Any:
    torch = _torch()
    parts = [_on(tensor, device) for tensor in tensors]
    if op == len(_OPERATIONS):
        return functools.reduce(torch.add, parts) / len(parts)
    return functools.reduce(getattr(torch, _OPERATIONS[op]), parts)


def _nccl_reduce(inputs: Sequence[Any], output: Any, root: int, op: int, streams: Any, comms: Any) -> None:
    output.copy_(_sum(inputs, op, output.device), non_blocking=True)


def _nccl_all_reduce(
    inputs: Sequence[Any], outputs: Sequence[Any], op: int, streams: Any, comms: Any
) -> None:
    made = _sum(inputs, op, outputs[0].device)
    for out in outputs:
        out.copy_(made, non_blocking=True)


def _nccl_broadcast(inputs: Sequence[Any], root: int, streams: Any, comms: Any) -> None:
    for tensor in inputs:
        if tensor is not inputs[root]:
            tensor.copy_(inputs[root], non_blocking=True)


def _nccl_all_gather(inputs: Sequence[Any], outputs: Sequence[Any], streams: Any, comms: Any) -> None:
    for out in outputs:
        flat, at = out.view(-1), 0
        for tensor in inputs:
            flat[at : at + tensor.numel()].copy_(tensor.reshape(-1), non_blocking=True)
            at += tensor.numel()


def _nccl_reduce_scatter(
    inputs: Sequence[Any], outputs: Sequence[Any], op: int, streams: Any, comms: Any
) -> None:
    made = _sum(inputs, op, outputs[0].device).reshape(-1).chunk(len(outputs))
    for out, part in zip(outputs, made, strict=True):
        out.view(-1).copy_(part, non_blocking=True)
