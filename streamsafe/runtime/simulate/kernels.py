"""Modules, functions and kernel parameters.

A simulated module keeps the source it was "compiled" from. A launch reads its own argument block with it: which
parameters are device memory, and which of them the kernel may write. Memory that a kernel may write is not known
afterwards.
"""

from __future__ import annotations

import ctypes
import re
from dataclasses import dataclass, field

_GLOBAL = re.compile(
    r"__global__\s+(?:__launch_bounds__\s*\([^)]*\)\s*)?void\s+(?:__launch_bounds__\s*\([^)]*\)\s*)?(?P<name>\w+)\s*\("
)
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_CARRAY = re.compile(r"\bCArray\s*<\s*(?P<dtype>[\w:\s]+(?:<\w+>)?)\s*,\s*(?P<ndim>\d+)\s*(?:,[^<>]*)?>")
_WIDTHS = {
    "bool": 1,
    "char": 1,
    "signed char": 1,
    "unsigned char": 1,
    "short": 2,
    "unsigned short": 2,
    "float16": 2,
    "int": 4,
    "unsigned int": 4,
    "float": 4,
    "long long": 8,
    "unsigned long long": 8,
    "double": 8,
    "complex<float>": 8,
    "complex<double>": 16,
}
_WIDEST = 16
_POINTER_BYTES = ctypes.sizeof(ctypes.c_void_p)


@dataclass(frozen=True, slots=True)
class Parameter:
    """One kernel parameter that refers to memory.

    Attributes:
        index: position in the parameter list.
        ndim: dimensions of a CuPy ``CArray``, or None for a plain pointer.
        width: bytes of one element of a ``CArray``; the widest dtype's where it is not told.
        reads: declared const: the kernel only reads it.
    """

    index: int
    ndim: int | None
    width: int
    reads: bool


def parameters(source: str, name: str) -> tuple[Parameter, ...] | None:
    """Return the memory parameters of ``__global__ void name(...)`` in CUDA source, or None if it is not there."""
    # A template is asked for as "name<float>", a namespace member as "space::name".
    wanted = name.split("<", 1)[0].rsplit("::", 1)[-1].strip()
    text = _COMMENT.sub(" ", source)
    for match in _GLOBAL.finditer(text):
        if match["name"] == wanted:
            return tuple(_memory(_split(text, match.end())))
    return None


def _split(text: str, start: int) -> list[str]:
    """Return the parameters of the list that opens just before ``start``."""
    parts, depth, begin = [], 0, start
    for at in range(start, len(text)):
        character = text[at]
        if character in "(<[":
            depth += 1
        elif character in ">]" or (character == ")" and depth):
            depth -= 1
        elif character in ",)" and not depth:
            parts.append(text[begin:at].strip())
            begin = at + 1
            if character == ")":
                break
    return [part for part in parts if part and part != "void"]


def _memory(declared: list[str]) -> list[Parameter]:
    found = []
    for index, text in enumerate(declared):
        array = _CARRAY.search(text)
        if array is not None:
            width = _WIDTHS.get(" ".join(array["dtype"].split()), _WIDEST)
            found.append(Parameter(index, int(array["ndim"]), width, text.startswith("const ")))
        elif "*" in text:
            before = text[: text.index("*")]
            found.append(Parameter(index, None, 0, "const" in before.split()))
    return found


@dataclass(slots=True)
class Module:
    """One loaded module.

    Attributes:
        source: CUDA source when it was compiled here, None for a binary.
        variables: device addresses of its global variables by name.
        functions: handles of the functions taken from it.
    """

    source: str | None
    variables: dict[str, int] = field(default_factory=dict)
    functions: list[int] = field(default_factory=list)


@dataclass(slots=True)
class Function:
    """One kernel: name, its module's source parameters (None: unknown) and settable attributes."""

    name: str
    parameters: tuple[Parameter, ...] | None
    attributes: dict[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Region:
    """Memory that a kernel argument refers to: first byte, and bytes or None when only its start is known."""

    pointer: int
    size: int | None
    reads: bool


def regions(function: Function, arguments: int) -> list[Region]:
    """Read the memory arguments of a launch.

    Args:
        function: the kernel.
        arguments: address of the array of pointers to argument values (``kernelParams``).
    """
    found: list[Region] = []
    if not function.parameters or not arguments:
        return found
    for parameter in function.parameters:
        value = ctypes.c_void_p.from_address(arguments + parameter.index * _POINTER_BYTES).value
        if not value:
            continue
        pointer = ctypes.c_void_p.from_address(value).value or 0
        if not pointer:
            continue
        if parameter.ndim is None:
            found.append(Region(pointer, None, parameter.reads))
        else:
            found.append(_array(pointer, value, parameter))
    return found


def _array(pointer: int, value: int, parameter: Parameter) -> Region:
    """Return the bytes a ``CArray`` spans: {data, size, shape[ndim], strides[ndim]}."""
    ndim = parameter.ndim or 0
    numbers = (ctypes.c_ssize_t * (1 + 2 * ndim)).from_address(value + _POINTER_BYTES)
    size, shape, strides = numbers[0], numbers[1 : 1 + ndim], numbers[1 + ndim :]
    if not size:
        return Region(pointer, 0, parameter.reads)
    steps = [(extent - 1) * stride for extent, stride in zip(shape, strides, strict=True)]
    first = pointer + sum(step for step in steps if step < 0)
    last = pointer + sum(step for step in steps if step > 0)
    return Region(first, last - first + parameter.width, parameter.reads)
