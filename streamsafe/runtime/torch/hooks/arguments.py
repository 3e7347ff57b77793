"""The memory that the arguments of a kernel stand for, also in tuples, descriptors and wrappers, and of addresses."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from streamsafe.runtime.torch.hooks.host_access import span
from streamsafe.runtime.torch.hooks.interface import Use

FIRST = 1 << 32
"""A smaller number is no address."""

Block = Callable[[int], tuple[int, int, int] | None]
"""Device, first and last byte (exclusive) of the block that holds an address; None: there is none."""


class Argument(NamedTuple):
    """Memory that an argument stands for.

    Attributes:
        name: of the parameter.
        tensor: None where there is only an address.
        plain: whether the compiler's analysis of the parameter tells what is done to it.
    """

    name: str
    device: int
    address: int
    size: int
    tensor: Any = None
    plain: bool = True


def memory(torch: Any, given: Mapping[str, Any], block: Block) -> list[Argument]:
    """All memory of a launch's arguments.

    Args:
        given: the arguments by the names of their parameters.
        block: finds the block of an address.
    """
    return [each for name, value in given.items() for each in _of(torch, name, value, block, plain=True)]


def _of(torch: Any, name: str, value: Any, block: Block, *, plain: bool) -> Iterator[Argument]:
    if isinstance(value, torch.Tensor):
        if value.is_cuda and value.layout is torch.strided:
            address, size = span(value)
            yield Argument(name, value.device.index, address, size, value, plain)
    elif isinstance(value, tuple):
        for each in value:
            yield from _of(torch, name, each, block, plain=False)
    elif isinstance(
        getattr(value, "base", None), torch.Tensor
    ):  # a TensorDescriptor, or another type for its elements
        for found in _of(torch, name, value.base, block, plain=plain):
            yield found._replace(size=_described(value, found.size))
    else:
        address = _address(value)
        held = block(address) if address >= FIRST else None
        if held is not None:
            device, _, stop = held
            yield Argument(name, device, address, stop - address, None, False)


def _described(value: Any, size: int) -> int:
    """How many bytes a descriptor reaches: its shape and strides need not be those of its tensor."""
    shape, strides = getattr(value, "shape", None), getattr(value, "strides", None)
    if not isinstance(strides, (list, tuple)) or shape is None:
        return size
    last = sum((length - 1) * stride for length, stride in zip(shape, strides, strict=True))
    return int((last + 1) * value.base.element_size())


def _address(value: Any) -> int:
    """The address of a number, or of an object that has one, as Triton takes them."""
    if type(value) is int:
        return value
    pointer = getattr(value, "data_ptr", None)
    found = pointer() if callable(pointer) else 0
    return found if isinstance(found, int) else 0


def uses(arguments: list[Argument], written: frozenset[str] | set[str] | None) -> list[Use]:
    """One use for each: a kernel may read what it writes, which changes no verdict. None: all may be written."""
    found = []
    for each in arguments:
        if each.size:
            known = written is not None and each.plain
            write = not known or each.name in (written or ())
            found.append(Use(each.address, each.size, write, each.tensor, certain=known))
    return found


def analysable(torch: Any, given: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """A kernel's arguments for PyTorch's analysis: tensors in place of their descriptors, and the block shapes."""
    plain, descriptors = {}, {}
    for name, value in given.items():
        base = getattr(value, "base", None)
        if isinstance(value, torch.Tensor) or not isinstance(base, torch.Tensor):
            plain[name] = value
            continue
        plain[name] = base
        shape = getattr(value, "block_shape", None)
        if shape is not None:
            descriptors[name] = ("stable", (list(shape),))
    return plain, descriptors
