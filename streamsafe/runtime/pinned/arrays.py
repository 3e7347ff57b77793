"""Host memory that copies use: a thin ndarray subclass whose reads and writes are the host's.

NumPy cannot be patched, so pinned arrays made while a session is open come back as :class:`PinnedArray`. What others
hold is known by its contents (:mod:`streamsafe.runtime.pinned.contents`); a session with ``host="deep"`` makes watched
arrays of them too (:mod:`streamsafe.runtime.pinned.existing`). What stays unseen: C code that takes the address
(``torch.from_numpy``), and before Python 3.12 C code that takes the buffer (``memoryview``, ``readinto``).
"""

from __future__ import annotations

import ctypes
import operator
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, TypeAlias, TypeVar

import numpy

from streamsafe.order.memory import HOST
from streamsafe.runtime.monitor import current, local
from streamsafe.runtime.pinned.contents import fingerprints

_POINTER = ctypes.c_void_p.from_address
_DATA = object.__basicsize__
"""Where an array has the address of its elements: first behind an object's head (NumPy's ``PyArrayObject_fields``)."""


def _read_pointer(array: numpy.ndarray[Any, Any]) -> int:
    return _POINTER(id(array) + _DATA).value or 0


def _ask_pointer(array: numpy.ndarray[Any, Any]) -> int:
    return int(array.__array_interface__["data"][0])


def _address_reader() -> Callable[[numpy.ndarray[Any, Any]], int]:
    """The quickest way to the address of an array's elements: NumPy's own take as long as the whole check."""
    probe = numpy.zeros((3, 4), numpy.int16)[1:, 1:]
    if sys.implementation.name == "cpython" and _read_pointer(probe) == _ask_pointer(probe):
        return _read_pointer
    return _ask_pointer


address_of = _address_reader()
_dtype_names: dict[Any, str] = {}


def _dtype_name(dtype: Any) -> str:
    """``str(dtype)``, which takes NumPy several microseconds."""
    name = _dtype_names.get(dtype)
    if name is None:
        if len(_dtype_names) >= 256:
            _dtype_names.clear()
        name = _dtype_names[dtype] = str(dtype)
    return name


def _use(array: numpy.ndarray[Any, Any]) -> tuple[Any, ...]:
    pointer = address_of(array)
    dtype = array.dtype
    if array.flags.forc:
        region = (HOST, pointer, pointer + array.nbytes, array.shape, None, dtype.itemsize)
        return (region, "", _dtype_name(dtype), True)
    low = high = pointer
    for extent, stride in zip(array.shape, array.strides, strict=True):
        if extent == 0:
            return ((HOST, pointer, pointer, array.shape, None, 1), "", _dtype_name(dtype), True)
        reach = (extent - 1) * stride
        if reach < 0:
            low += reach
        else:
            high += reach
    kept = [
        (n, abs(stride)) for n, stride in zip(array.shape, array.strides, strict=True) if n > 1 and stride
    ]
    shape, strides = tuple(n for n, _ in kept), tuple(stride for _, stride in kept)
    return (
        (HOST, low, high + dtype.itemsize, shape, strides, dtype.itemsize),
        "",
        _dtype_name(dtype),
        True,
    )


def report(
    reads: Sequence[numpy.ndarray[Any, Any]], writes: Sequence[numpy.ndarray[Any, Any]], operation: str
) -> None:
    """The host is about to read and write the elements of arrays."""
    monitor = current.monitor
    if monitor is None or not monitor.host:
        return
    touched = [_use(a) for a in writes]
    monitor.host_access([_use(a) for a in reads], touched, operation)
    for (_, start, stop, *_rest), *_more in touched:
        _changes(start, stop)


def _report_one(array: numpy.ndarray[Any, Any], writes: bool, operation: str) -> None:
    """:func:`_report` for one array, which is the usual case."""
    monitor = current.monitor
    if monitor is None or not monitor.host:
        return
    use = _use(array)
    if writes:
        monitor.host_access((), (use,), operation)
        _changes(use[0][1], use[0][2])
    else:
        monitor.host_access((use,), (), operation)


def _changes(start: int, stop: int) -> None:
    """The host is about to write memory: that its contents change is no surprise.

    Of a host function's writes one knows only when it has run that they are done: a copy may be enqueued in between.
    """
    if fingerprints.count:
        fingerprints.forget(start, stop)
    if local.callback is not None:
        local.after.append(partial(fingerprints.forget, start, stop))


def host_reads(array: numpy.ndarray[Any, Any], operation: str) -> None:
    """The host is about to read memory that copies use, in a way that the array itself does not hear of."""
    _report_one(array, False, operation)


def plain(value: Any) -> Any:
    """A watched array as an ordinary one; anything else as it is."""
    return value.view(numpy.ndarray) if isinstance(value, PinnedArray) else value


_LEAVES = frozenset([int, float, bool, complex, str, bytes, type(None), slice, type(Ellipsis), numpy.ndarray])
"""Types of usual arguments that hold no pinned array."""


def found_in(value: Any) -> Iterator[PinnedArray]:
    """The pinned arrays in an argument, also inside lists, tuples and dictionaries."""
    if isinstance(value, PinnedArray):
        yield value
    elif isinstance(value, (list, tuple)):
        for part in value:
            yield from found_in(part)
    elif isinstance(value, dict):
        for part in value.values():
            yield from found_in(part)


def among(values: Iterable[Any]) -> list[PinnedArray]:
    """The pinned arrays in several arguments."""
    found: list[PinnedArray] = []
    for value in values:
        if type(value) not in _LEAVES:
            found.extend(found_in(value))
    return found


_Views: TypeAlias = "dict[int, tuple[numpy.ndarray[Any, Any], Any]]"
"""By its identity: a plain view that stands for a pinned array in a call, and that array."""


def _stripped(value: Any, views: _Views) -> Any:
    """The same argument with plain arrays in place of pinned ones, which ``views`` remembers."""
    if isinstance(value, PinnedArray):
        view = value.view(numpy.ndarray)
        views[id(view)] = view, value
        return view
    if type(value) in (list, tuple):
        return type(value)(_stripped(part, views) for part in value)
    if type(value) is dict:
        return {key: _stripped(part, views) for key, part in value.items()}
    return value


def _restored(result: Any, views: _Views) -> Any:
    """A call's result with the arrays that it was given in place of what stood for them; views of those are watched."""
    if type(result) is numpy.ndarray:
        found = views.get(id(result))
        if found is not None:
            return found[1]
        return watched(result) if id(result.base) in views else result
    if type(result) in (list, tuple):
        parts = [_restored(part, views) for part in result]
        return result if all(map(operator.is_, parts, result)) else type(result)(parts)
    return result


# Functions that write an argument: by its position and name.
_WRITTEN = {
    "copyto": (0, "dst"),
    "put": (0, "a"),
    "place": (0, "arr"),
    "putmask": (0, "a"),
    "fill_diagonal": (0, "a"),
    "put_along_axis": (0, "arr"),
}

# Functions that look at shape and type only, or return a view.
_METADATA = frozenset(
    [
        "shape",
        "ndim",
        "size",
        "may_share_memory",
        "shares_memory",
        "result_type",
        "can_cast",
        "min_scalar_type",
        "iscomplexobj",
        "isrealobj",
        "reshape",
        "ravel",
        "transpose",
        "swapaxes",
        "moveaxis",
        "rollaxis",
        "squeeze",
        "expand_dims",
        "broadcast_to",
        "broadcast_arrays",
        "atleast_1d",
        "atleast_2d",
        "atleast_3d",
        "split",
        "array_split",
        "hsplit",
        "vsplit",
        "dsplit",
        "real",
        "imag",
        "diagonal",
        "flip",
        "fliplr",
        "flipud",
        "rot90",
        "ndim",
    ]
)

_LIKE = frozenset(["empty_like", "zeros_like", "ones_like", "full_like"])
"""Functions that make an array of the same shape and type, which is not pinned."""

_Array = TypeVar("_Array", bound="numpy.ndarray[Any, Any]")

_WRITABLE = 1
"""The buffer protocol's ``PyBUF_WRITABLE``."""


def _single(index: Any) -> Any:
    """A basic index that keeps single elements as slices of one, so that indexing gives a view."""
    parts = index if isinstance(index, tuple) else (index,)
    kept = []
    for part in parts:
        if isinstance(part, (bool, numpy.bool_, list, numpy.ndarray)):
            return None
        if isinstance(part, (int, numpy.integer)):
            number = int(part)
            part = slice(number, number + 1 or None)
        kept.append(part)
    return tuple(kept)


class _Spec(ctypes.Structure):
    """CPython's ``PyType_Spec``."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("basicsize", ctypes.c_int),
        ("itemsize", ctypes.c_int),
        ("flags", ctypes.c_uint),
        ("slots", ctypes.c_void_p),
    )


HEAP, BASE, COLLECTED, DEFAULT = 1 << 9, 1 << 10, 1 << 14, 1 << 18
"""CPython's ``Py_TPFLAGS``: HEAPTYPE, BASETYPE, HAVE_GC and (HAVE_VERSION_TAG, all there is of) DEFAULT."""
_names: list[Any] = []


def _like_its_base(cls: type[_Array]) -> type[_Array]:
    """The same class with instances that are laid out as those of its base are, without a head for the collector.

    The class statement gives every instance such a head. Without it an array that exists can become one of the class.
    """
    if sys.implementation.name != "cpython":
        return cls
    name = f"{cls.__module__}.{cls.__name__}".encode()
    end = (ctypes.c_void_p * 2)(0, 0)
    _names.append((name, end))  # a type may point to its name
    spec = _Spec(name, 0, 0, HEAP | BASE | DEFAULT, ctypes.cast(end, ctypes.c_void_p))
    make = ctypes.pythonapi.PyType_FromSpecWithBases
    make.restype, make.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.py_object)
    made: type[_Array] = make(ctypes.addressof(spec), cls.__bases__)
    if made.__flags__ & COLLECTED or made.__basicsize__ != cls.__bases__[0].__basicsize__:
        return cls
    for each, value in vars(cls).items():
        if each not in ("__slots__", "__module__", "__dict__", "__weakref__"):
            setattr(made, each, value)
    return made


@_like_its_base
class PinnedArray(numpy.ndarray):
    """A pinned array whose elements cannot be read or written behind the session's back. Views of it are too."""

    __slots__ = ()

    def _element(self, index: Any) -> numpy.ndarray[Any, Any]:
        basic = _single(index)
        plain = self.view(numpy.ndarray)
        if basic is None:
            return plain
        try:
            found = plain[basic]
        except IndexError:
            return plain
        return found if isinstance(found, numpy.ndarray) else plain

    def __getitem__(self, index: Any) -> Any:
        found = numpy.ndarray.__getitem__(self, index)
        if type(found) is PinnedArray and (found.base is not None and numpy.may_share_memory(found, self)):
            return found
        _report_one(self._element(index), False, "index")
        return numpy.ndarray.__getitem__(self.view(numpy.ndarray), index)

    def __setitem__(self, index: Any, value: Any) -> None:
        report(among((value,)), [self._element(index)], "assign")
        numpy.ndarray.__setitem__(self, index, plain(value))

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        out = kwargs.get("out", ())
        written = [a for a in (out if isinstance(out, tuple) else (out,)) if isinstance(a, PinnedArray)]
        if method == "at" and inputs and isinstance(inputs[0], PinnedArray):
            written.append(inputs[0])
        report(among(inputs), written, ufunc.__name__)
        views: _Views = {}
        for name in ("out", "where"):
            if name in kwargs:
                kwargs[name] = _stripped(kwargs[name], views)
        return _restored(getattr(ufunc, method)(*(plain(value) for value in inputs), **kwargs), views)

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        name = function.__name__
        views: _Views = {}
        if name in _LIKE:
            return function(*_stripped(tuple(args), views), **_stripped(dict(kwargs), views))
        if name in _METADATA:
            return _views_only(
                numpy.ndarray.__array_function__(self, function, types, args, kwargs), self, name
            )
        written = list(found_in(kwargs.get("out")))
        if name in _WRITTEN:
            position, keyword = _WRITTEN[name]
            target = args[position] if len(args) > position else kwargs.get(keyword)
            written.extend(found_in(target))
        ids = {id(array) for array in written}
        reads = [a for a in found_in([list(args), kwargs]) if id(a) not in ids]
        report(reads, written, name)
        return _restored(function(*_stripped(tuple(args), views), **_stripped(dict(kwargs), views)), views)

    def reshape(self, *args: Any, **kwargs: Any) -> Any:
        return _views_only(numpy.ndarray.reshape(self, *args, **kwargs), self, "reshape")

    def ravel(self, *args: Any, **kwargs: Any) -> Any:
        return _views_only(numpy.ndarray.ravel(self, *args, **kwargs), self, "ravel")

    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        report([self], [], "array")
        return numpy.ndarray.__array__(self, *args, **kwargs)

    def __dlpack__(self, **kwargs: Any) -> Any:
        report([self], [], "dlpack")
        return numpy.ndarray.__dlpack__(self, **kwargs)

    def __reduce_ex__(self, protocol: Any) -> Any:
        report([self], [], "pickle")
        return self.view(numpy.ndarray).__reduce_ex__(protocol)

    def __deepcopy__(self, memo: Any) -> Any:
        report([self], [], "copy")
        return self.view(numpy.ndarray).__deepcopy__(memo)

    def __format__(self, spec: str) -> str:
        report([self], [], "format")
        return format(self.view(numpy.ndarray), spec)

    if sys.version_info >= (3, 12):

        def __buffer__(self, flags: int) -> memoryview:
            """The memory, for C code: to write when it asks for memory that it can write, else to read."""
            writes = flags & _WRITABLE
            report([] if writes else [self], [self] if writes else [], "buffer")
            return numpy.ndarray.__buffer__(self, flags)

    @property
    def data(self) -> memoryview:
        """The buffer, which is the host's to read from here on."""
        report([self], [], "data")
        return self.view(numpy.ndarray).data

    @property
    def flat(self) -> Any:
        """An iterator over the elements."""
        report([self], [], "flat")
        return self.view(numpy.ndarray).flat

    @flat.setter
    def flat(self, value: Any) -> None:
        report(among((value,)), [self], "flat")
        self.view(numpy.ndarray).flat = plain(value)  # type: ignore[misc]


def _views_only(result: Any, given: PinnedArray, name: str) -> Any:
    """The result of a function that gives a view, or where it cannot a copy, which is a plain array."""
    if isinstance(result, PinnedArray) and result is not given and not numpy.may_share_memory(result, given):
        report([given], [], name)
        return result.view(numpy.ndarray)
    return result


def _method(name: str, *, writes: bool) -> Callable[..., Any]:
    plain = getattr(numpy.ndarray, name)

    def method(self: PinnedArray, *args: Any, **kwargs: Any) -> Any:
        others = among((*args, *kwargs.values())) if args or kwargs else []
        views: _Views = {}
        if not others:
            _report_one(self, writes, name)
            return _restored(plain(_stripped(self, views), *args, **kwargs), views)
        out = kwargs.get("out")
        written = [self] if writes else [out] if isinstance(out, PinnedArray) else []
        report([each for each in (self, *others) if not any(each is w for w in written)], written, name)
        return _restored(
            plain(_stripped(self, views), *_stripped(args, views), **_stripped(kwargs, views)), views
        )

    method.__name__ = name
    method.__doc__ = plain.__doc__
    return method


_READERS = [
    "__bool__",
    "__int__",
    "__float__",
    "__complex__",
    "__index__",
    "__contains__",
    "__repr__",
    "__str__",
    "__copy__",
    "all",
    "any",
    "argmax",
    "argmin",
    "argpartition",
    "argsort",
    "astype",
    "byteswap",
    "choose",
    "compress",
    "conj",
    "copy",
    "cumprod",
    "cumsum",
    "dot",
    "dump",
    "dumps",
    "flatten",
    "item",
    "max",
    "mean",
    "min",
    "nonzero",
    "prod",
    "ptp",
    "repeat",
    "round",
    "searchsorted",
    "std",
    "sum",
    "take",
    "tobytes",
    "tofile",
    "tolist",
    "tostring",
    "trace",
    "var",
]
_WRITERS = ["fill", "itemset", "partition", "put", "resize", "setfield", "sort"]

for _name in _READERS + _WRITERS:
    if hasattr(numpy.ndarray, _name):
        setattr(PinnedArray, _name, _method(_name, writes=_name in _WRITERS))


def watched(array: numpy.ndarray[Any, Any]) -> numpy.ndarray[Any, Any]:
    """The array as one whose host accesses are seen."""
    return array if isinstance(array, PinnedArray) else array.view(PinnedArray)
