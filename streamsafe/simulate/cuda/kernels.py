"""Modules, functions and kernel parameters.

A simulated module keeps the source it was "compiled" from. A launch reads its own argument block with it: which
parameters are device memory, and which of them the kernel may write.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy

_GLOBAL = re.compile(
    r"__global__\s+(?:__launch_bounds__\s*\([^)]*\)\s*)?void\s+(?:__launch_bounds__\s*\([^)]*\)\s*)?(?P<name>\w+|<lambda>)\s*\("
)
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_CARRAY = re.compile(r"\bCArray\s*<\s*(?P<dtype>[\w:\s]+(?:<\w+>)?)\s*,\s*(?P<ndim>\d+)\s*(?:,[^<>]*)?>")
# What CuPy's generated sources call the dtypes.
DTYPES: dict[str, numpy.dtype[Any]] = {
    name: numpy.dtype(code)
    for name, code in {
        "bool": "?",
        "char": "i1",
        "signed char": "i1",
        "unsigned char": "u1",
        "short": "i2",
        "unsigned short": "u2",
        "int": "i4",
        "unsigned int": "u4",
        "long": "i8",
        "unsigned long": "u8",
        "long long": "i8",
        "unsigned long long": "u8",
        "float16": "f2",
        "float": "f4",
        "double": "f8",
        "complex<float>": "c8",
        "complex<double>": "c16",
        "thrust::complex<float>": "c8",
        "thrust::complex<double>": "c16",
    }.items()
}
_WIDEST = 16
_POINTER_BYTES = ctypes.sizeof(ctypes.c_void_p)


@dataclass(frozen=True, slots=True)
class Parameter:
    """One kernel parameter that refers to memory.

    Attributes:
        index: position in the parameter list.
        ndim: dimensions of a CuPy ``CArray``, or None for a plain pointer.
        dtype: element type of a ``CArray``; None where it is not one of CuPy's.
        reads: declared const: the kernel only reads it.
        overwrites: the kernel assigns each element of it and reads none.
    """

    index: int
    ndim: int | None
    dtype: numpy.dtype[Any] | None
    reads: bool
    overwrites: bool = False


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


_ASSIGNED = r"_raw_{0}\[_(?:out_)?ind\.get\(\)\](?: = {0}\b|;\s*{0} = |;\s*POST_MAP\()"


def _memory(declared: list[str], source: str) -> list[Parameter]:
    found = []
    for index, text in enumerate(declared):
        array = _CARRAY.search(text)
        if array is not None:
            dtype = DTYPES.get(" ".join(array["dtype"].split()))
            reads, name = text.startswith("const "), text.rsplit(" ", 1)[-1]
            overwrites = not reads and name.startswith("_raw_") and _assigns(source, name[len("_raw_") :])
            found.append(Parameter(index, int(array["ndim"]), dtype, reads, overwrites))
        elif "*" in text:
            before = text[: text.index("*")]
            found.append(Parameter(index, None, None, "const" in before.split()))
    return found


_INDEXER = re.compile(r"\bCIndexer\s*<\s*(?P<ndim>\d+)\s*(?:,[^<>]*)?>")
_WORD = 8


def _size(declared: str) -> int | None:
    """Bytes of a parameter; None for a type that only the compiler knows."""
    if "*" in declared:
        return _WORD
    array = _CARRAY.search(declared) or _INDEXER.search(declared)
    if array is not None:
        words = 2 if "CArray" in array[0] else 1
        return _WORD * (words + 2 * int(array["ndim"]))
    words_of_type = [word for word in declared.split()[:-1] if word != "const"]
    dtype = DTYPES.get(" ".join(words_of_type))
    return dtype.itemsize if dtype is not None else _SIZES.get(" ".join(words_of_type))


_SIZES = {"ptrdiff_t": 8, "size_t": 8}


def _assigns(source: str, name: str) -> bool:
    """Whether a kernel that CuPy wrote begins with an assignment to each element of its output."""
    return re.search(_ASSIGNED.format(re.escape(name)), source) is not None


@dataclass(frozen=True, slots=True)
class Source:
    """What a module was "compiled" from.

    Attributes:
        text: CUDA C++.
        options: for the compiler.
        names: expressions that name its kernels, where the program gave some.
    """

    text: str
    options: tuple[str, ...] = ()
    names: tuple[str, ...] = ()


@dataclass(slots=True)
class Module:
    """One loaded module.

    Attributes:
        source: what it was compiled from, None for a binary.
        variables: device addresses of its global variables by name.
        functions: handles of the functions taken from it.
    """

    source: Source | None
    variables: dict[str, int] = field(default_factory=dict)
    functions: list[int] = field(default_factory=list)


@dataclass(slots=True)
class Function:
    """One kernel.

    Attributes:
        name: as it was asked for.
        parameters: its memory parameters; None when there is no source to tell.
        scalar: dtype of its first parameter if that is a number.
        moves: one of CuPy's own copy and fill kernels.
        sizes: bytes of each parameter; None where only the compiler knows.
        prints: it may print, which the host sees.
        source: of its module; None for a binary.
        attributes: set by ``cuFuncSetAttribute``.
    """

    name: str
    parameters: tuple[Parameter, ...] | None
    scalar: numpy.dtype[Any] | None = None
    moves: bool = False
    sizes: tuple[int, ...] | None = None
    prints: bool = False
    source: Source | None = None
    attributes: dict[int, int] = field(default_factory=dict)


# The whole work of CuPy's copy and fill kernels, as it generates them.
_MOVES = re.compile(
    r"out0 = in0\s*;\s*_raw_out0\[_ind\.get\(\)\] = out0|T &y = _raw_y\[_ind\.get\(\)\];\s*y = x;"
)


def function(source: Source | None, name: str) -> Function:
    """Return what CUDA source says of ``__global__ void name(...)``; no source says nothing."""
    declared = None if source is None else _declaration(source.text, name)
    if declared is None or source is None:
        return Function(name, None, source=source)
    text = source.text
    sizes = [_size(parameter) for parameter in declared]
    scalar = re.fullmatch(r"const ([\w:<> ]+) \w+", declared[0]) if declared else None
    return Function(
        name,
        tuple(_memory(declared, text)),
        scalar=DTYPES.get(scalar[1]) if scalar else None,
        moves=name.startswith(("cupy_copy__", "cupy_fill")) and _MOVES.search(text) is not None,
        sizes=None if None in sizes else tuple(size for size in sizes if size is not None),
        prints="printf" in text,
        source=source,
    )


_TEMPLATE = re.compile(r"template\s*<[^{};]*>\s*(?:extern\s+\"C\"\s*)?(?:static\s+|inline\s+)*$")
_VARIABLE = re.compile(
    r"^[ \t]*(?:extern\s+\"C\"\s*\{?\s*)?__(?:constant|device|managed)__\s+[\w:<>\s]+?"
    r"\b(?P<name>\w+)\s*(?:\[[^\]]*\]\s*)*[;={]",
    re.MULTILINE,
)


def global_functions(text: str) -> list[str]:
    """The kernels that a source declares outside of templates and namespaces."""
    text = _COMMENT.sub(" ", text)
    if re.search(r"\bnamespace\s+\w+\s*\{", text):
        text = "".join(re.findall(r'extern\s+"C"[^{;]*', text))
    found = [
        match["name"]
        for match in _GLOBAL.finditer(text)
        if match["name"].isidentifier() and _TEMPLATE.search(text[: match.start()]) is None
    ]
    return list(dict.fromkeys(found))


def global_variables(text: str) -> list[str]:
    """The variables in device memory that a source declares."""
    return list(dict.fromkeys(match["name"] for match in _VARIABLE.finditer(_COMMENT.sub(" ", text))))


def _declaration(source: str, name: str) -> list[str] | None:
    # A template is asked for as "name<float>", a namespace member as "space::name"; a fused lambda is "<lambda>".
    head = re.match(r"[\w:]+", name)
    wanted = head[0].rsplit("::", 1)[-1] if head else name
    text = _COMMENT.sub(" ", source)
    for match in _GLOBAL.finditer(text):
        if match["name"] == wanted:
            return _split(text, match.end())
    return None


@dataclass(frozen=True, slots=True)
class Region:
    """Memory that a kernel argument refers to: first byte, and bytes or None when only its start is known."""

    pointer: int
    size: int | None
    reads: bool
    overwrites: bool = False


@dataclass(frozen=True, slots=True)
class View:
    """A ``CArray`` argument: {data, size, shape[ndim], strides[ndim]}, strides in bytes."""

    pointer: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: numpy.dtype[Any] | None

    @property
    def size(self) -> int:
        """Number of elements."""
        return prod(self.shape)

    @property
    def extent(self) -> tuple[int, int]:
        """First byte, and number of bytes up to the end of the last element."""
        if not self.size:
            return self.pointer, 0
        steps = [(extent - 1) * stride for extent, stride in zip(self.shape, self.strides, strict=True)]
        first = self.pointer + sum(step for step in steps if step < 0)
        last = self.pointer + sum(step for step in steps if step > 0)
        return first, last - first + (self.dtype.itemsize if self.dtype is not None else _WIDEST)

    def array(self) -> numpy.ndarray[Any, Any]:
        """The elements as a NumPy array on their memory."""
        if not self.size:
            return numpy.empty(self.shape, self.dtype)
        first, size = self.extent
        buffer: Any = (ctypes.c_char * size).from_address(first)
        array: numpy.ndarray[Any, Any] = numpy.ndarray(
            self.shape, self.dtype, buffer, self.pointer - first, self.strides
        )
        return array


def view_of(array: Any) -> View:
    """The elements of an array of CuPy."""
    return View(array.data.ptr, array.shape, array.strides, array.dtype)


def view_at(pointer: int, shape: Sequence[int], dtype: Any, order: str = "C") -> View:
    """Elements that follow one another in memory."""
    dtype = numpy.dtype(dtype)
    strides, step = [0] * len(shape), dtype.itemsize
    axes = range(len(shape))
    for axis in reversed(axes) if order == "C" else axes:
        strides[axis] = step
        step *= shape[axis]
    return View(pointer, tuple(shape), tuple(strides), dtype)


def argument(arguments: int, index: int) -> int:
    """Return the address of one argument's value, from the array of pointers to them (``kernelParams``)."""
    return ctypes.c_void_p.from_address(arguments + index * _POINTER_BYTES).value or 0


def view(arguments: int, parameter: Parameter) -> View:
    """Read a ``CArray`` argument."""
    value, ndim = argument(arguments, parameter.index), parameter.ndim or 0
    pointer = ctypes.c_void_p.from_address(value).value or 0
    numbers = (ctypes.c_ssize_t * (1 + 2 * ndim)).from_address(value + _POINTER_BYTES)
    return View(pointer, tuple(numbers[1 : 1 + ndim]), tuple(numbers[1 + ndim :]), parameter.dtype)


def regions(function: Function, arguments: int) -> list[Region]:
    """Read the memory arguments of a launch.

    Args:
        function: the kernel.
        arguments: address of the array of pointers to argument values.
    """
    found: list[Region] = []
    if not function.parameters or not arguments:
        return found
    for parameter in function.parameters:
        value = argument(arguments, parameter.index)
        pointer = ctypes.c_void_p.from_address(value).value if value else None
        if not pointer:
            continue
        if parameter.ndim is None:
            found.append(Region(pointer, None, parameter.reads))
        else:
            first, size = view(arguments, parameter).extent
            found.append(Region(first, size, parameter.reads, parameter.overwrites))
    return found
