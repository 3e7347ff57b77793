"""`streamsafe.annotate`: what the program's own kernels do, where no hook sees them.

A kernel that a C++ extension or another library launches touches memory unseen, and two kernels that meet through a
flag in memory are ordered unseen. Here the program says so, and the sanitizer takes it for a fact. Outside a session
every call does nothing.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias

from streamsafe.order.memory import Region, Use
from streamsafe.runtime import allow
from streamsafe.runtime.annotations import annotate_kernel
from streamsafe.runtime.library import FrontEnd, known, loaded
from streamsafe.runtime.monitor import Monitor, current

Memory: TypeAlias = Any
"""A tensor, an array, or an address (an ``int``) of which ``bytes`` says how much is meant."""

Stream: TypeAlias = Any
"""A stream object of PyTorch or CuPy, or a raw handle; None for the current stream."""


class Annotate:
    """``streamsafe.annotate``.

    Called with a kernel it says what that kernel does with its parameters::

        streamsafe.annotate(kernel, reads=["x"], writes=["y"])

    Its methods say what one launch does::

        extension.scale(y, x)  # a kernel that no hook sees
        streamsafe.annotate.access("scale", reads=[x], writes=[y])
    """

    def __call__(self, kernel: Any, reads: Iterable[str | int] = (), writes: Iterable[str | int] = ()) -> Any:
        """Says what a kernel does with its parameters, where its source does not.

        Args:
            kernel: a ``RawKernel``, a function of a ``RawModule``, or a kernel's name.
            reads, writes: names or positions (from 0) of parameters; a string is one name.

        Returns:
            the kernel, so that this can wrap its definition.

        Raises:
            TypeError: ``kernel`` has no name, or a parameter is neither a name nor a position.
            ValueError: the kernel's source has no such parameter. Where only a name is given, its first launch warns.
        """
        return annotate_kernel(kernel, reads, writes)

    def access(
        self,
        operation: str,
        reads: Iterable[Memory] = (),
        writes: Iterable[Memory] = (),
        *,
        bytes: int | None = None,
        stream: Stream = None,
    ) -> None:
        """An operation that no hook sees is enqueued on a stream. Call it where the operation is enqueued, before it.

        Args:
            operation: what reports call it.
            reads, writes: what it touches: tensors, arrays, or addresses.
            bytes: how many bytes from each address.
            stream: a stream object or a raw handle; the current stream by default.

        Raises:
            TypeError: memory is neither an array nor an address with ``bytes``, or ``stream`` is no stream.
            StreamHazardError: it completes a hazard, and the session raises.
        """
        monitor = current.monitor
        if monitor is None:
            return
        sources = [_extent(each, bytes) for each in reads]
        targets = [_extent(each, bytes) for each in writes]
        library, device = _library([*sources, *targets])
        queue = _timeline(monitor, library, device, stream)
        default = queue[0] if device is None and isinstance(queue, tuple) else device
        monitor.access(
            queue,
            [_use(each, default) for each in sources],
            [_use(each, default) for each in targets],
            operation,
            above=2,
        )

    def reads(
        self, memory: Memory, bytes: int | None = None, stream: Stream = None, operation: str = "a kernel"
    ) -> None:
        """A kernel that no hook sees reads memory; see :meth:`access`."""
        if current.monitor is not None:
            self.access(operation, reads=[memory], bytes=bytes, stream=stream)

    def writes(
        self, memory: Memory, bytes: int | None = None, stream: Stream = None, operation: str = "a kernel"
    ) -> None:
        """A kernel that no hook sees writes memory; see :meth:`access`."""
        if current.monitor is not None:
            self.access(operation, writes=[memory], bytes=bytes, stream=stream)

    def release(self, key: Hashable, stream: Stream = None) -> None:
        """What a stream has been given so far is done when the other side has passed :meth:`acquire` of the same key.

        As an event that is recorded: a kernel on the stream sets a flag in memory as the last thing it does.

        Args:
            key: any hashable object that both sides have; kept until the session ends.
            stream: a stream object or a raw handle; the current stream by default.

        Raises:
            TypeError: ``stream`` is no stream.
        """
        monitor = current.monitor
        if monitor is not None:
            queue = _timeline(monitor, None, None, stream)
            monitor.order(monitor.checker.record, ("annotated", key), queue, above=2)

    def acquire(self, key: Hashable, stream: Stream = None) -> None:
        """What a stream is given from here on begins after what was enqueued before :meth:`release` of the same key.

        As a wait for an event: a kernel on the stream spins until a flag in memory is set.

        Args:
            key: any hashable object that both sides have.
            stream: a stream object or a raw handle; the current stream by default.

        Raises:
            TypeError: ``stream`` is no stream.
        """
        monitor = current.monitor
        if monitor is not None:
            queue = _timeline(monitor, None, None, stream)
            monitor.order(monitor.checker.wait, queue, ("annotated", key), above=2)

    def edge(self, source: Stream, target: Stream) -> None:
        """What ``target`` is given from here on begins after all that ``source`` has been given so far.

        Raises:
            TypeError: one of them is no stream.
        """
        monitor = current.monitor
        if monitor is None:
            return
        key = object()
        first, second = (_timeline(monitor, None, None, each) for each in (source, target))
        monitor.order(monitor.checker.record, ("annotated", key), first, above=2)
        monitor.order(monitor.checker.wait, second, ("annotated", key), above=2)
        monitor.checker.destroy_event(("annotated", key))

    @contextmanager
    def racy(self, memory: Memory, bytes: int | None = None) -> Iterator[None]:
        """Hazards over this memory that are found while the block runs are meant, and not reported.

        Args:
            memory: a tensor, an array, or an address.
            bytes: how many bytes from an address.

        Raises:
            TypeError: ``memory`` is neither an array nor an address with ``bytes``.
        """
        _, (_, start, size) = _extent(memory, bytes)
        with allow.racing(start, start + size):
            yield


_Found: TypeAlias = tuple[FrontEnd | None, tuple[int | None, int, int]]


def _extent(memory: Memory, size: int | None) -> _Found:
    """Whose memory it is, if anybody's, and its device, address and bytes."""
    if isinstance(memory, int) and not isinstance(memory, bool):
        if size is None:
            raise TypeError(
                f"streamsafe.annotate: of the address {memory:#x} `bytes` must say how much is meant"
            )
        return None, (None, memory, size)
    for library in known():
        found = library.extent(memory)
        if found is not None and found[0] is None:
            raise TypeError("streamsafe.annotate: memory of the host is none that a kernel was seen to touch")
        if found is not None:
            return library, found
    raise TypeError(f"streamsafe.annotate: {type(memory).__name__} is no tensor, no array and no address")


def _library(found: Iterable[_Found]) -> tuple[FrontEnd | None, int | None]:
    """The library and the device of the first array that is on a device."""
    for library, (device, _, _) in found:
        if device is not None:
            return library, device
    return None, None


def _use(found: _Found, default: object) -> Use:
    _, (device, start, size) = found
    space: Any = default if device is None else device
    return Use(Region(space, start, start + size))


def _timeline(monitor: Monitor, library: FrontEnd | None, device: int | None, stream: Stream) -> Hashable:
    """The timeline of a stream as the program gives it.

    Args:
        library: whose current stream counts where none is given, and whose a raw handle is.
    """
    handle: int | None = None
    if isinstance(stream, int) and not isinstance(stream, bool):
        handle = stream
    elif stream is not None:
        for each in known():
            handle = each.stream_handle(stream)
            if handle is not None:
                library = each
                break
        else:
            raise TypeError(f"streamsafe.annotate: {type(stream).__name__} is no stream")
        device = _device(stream, device)
    if library is None:
        library = next((each for each in loaded() if "torch" in each.PACKAGES), None) or next(loaded(), None)
    if library is None:
        raise TypeError("streamsafe.annotate: no library whose current stream is meant is imported")
    return library.timeline(monitor, device, handle)


def _device(stream: Any, default: int | None) -> int | None:
    """The device of a stream object."""
    index = getattr(stream, "device_index", getattr(stream, "device_id", default))
    return index if isinstance(index, int) and index >= 0 else default


annotate = Annotate()

__all__ = ["Annotate", "annotate"]
