"""Memory as the tensors of operators show it: blocks of device memory, and pinned memory in use.

A block begins with the operator whose result lies in it, and ends with its storage, which a weak reference tells. What
torch itself tells the allocator (``record_stream`` by the autograd engine, by collectives) is not seen; see
:meth:`Memory.cover`.
"""

from __future__ import annotations

import weakref
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Hashable
from functools import partial
from typing import Any, NamedTuple

from streamsafe.order.memory import HOST, Region, Use
from streamsafe.order.pools import Block
from streamsafe.runtime.autograd import GRADIENT, Gradients
from streamsafe.runtime.monitor import Monitor, named
from streamsafe.runtime.places import Site


class Known(NamedTuple):
    """A storage that was seen.

    Attributes:
        storage: a weak reference to it.
        space: its device, or the host.
        start, size: its bytes.
        block: the engine's; None for memory that was handed out before the session, or unseen.
    """

    storage: Callable[[], Any]
    space: Hashable
    start: int
    size: int
    block: Block | None


class Memory:
    """The memory of one session.

    Args:
        place: where the program is now.
    """

    def __init__(self, monitor: Monitor, place: Callable[[], Site]) -> None:
        self._monitor = monitor
        self._place = place
        self._known: dict[int, Known] = {}
        self._host: dict[int, Known] = {}
        self._host_starts: list[int] = []
        self.gradients = Gradients()

    # -- device memory -----------------------------------------------------------------------------------------------

    def know(self, device: int, storage: Any, base: int, made_on: Hashable = None, site: Site = ()) -> None:
        """A tensor of a storage is about to be used.

        Args:
            made_on: the stream whose memory it is, where an operator has just made it; else nothing is known of it.
            site: the line that made it.
        """
        known = self._known.get(base)
        if known is not None:
            owner = known.storage()
            if owner is storage or owner is not None:
                return  # or it shares the memory of one that is there
            self._end(known, ())
        size = storage.nbytes()
        monitor = self._monitor
        block = None
        if made_on is not None:
            with monitor.lock:
                monitor.drain()
                block = monitor.checker.allocate(
                    device,
                    base,
                    size,
                    stream=made_on,
                    owner="torch",
                    host=monitor.thread,
                    site=site,
                    name=named(site) if monitor.mark is not None else "",
                )
                self.gradients.handed_out(device, base, base + size)
        else:
            self._forget_freed(device, base, base + size)
        made: list[Known] = []
        reference = weakref.ref(storage, lambda _: self._gone(made))
        known = self._known[base] = Known(reference, device, base, size, block)
        made.append(known)

    def _forget_freed(self, device: int, start: int, stop: int) -> None:
        """Memory comes from an allocation that was not seen: what its former owners did is nobody's business now."""
        monitor = self._monitor
        with monitor.lock:
            monitor.drain()
            for old in monitor.checker.freed_blocks():
                if old.space == device and old.owner == "torch" and old.start < stop and start < old.stop:
                    monitor.checker.release_block(device, old.start, old.stop - old.start)

    def _gone(self, made: list[Known]) -> None:
        """A storage is destroyed, in whatever thread, maybe while an exception is on its way."""
        for known in made:
            if self._known.get(known.start) is known:
                self._end(known, self._place())

    def moved(self, base: int) -> None:
        """A storage has left its memory."""
        known = self._known.get(base)
        if known is not None:
            self._end(known, self._place())

    def _end(self, known: Known, site: Site) -> None:
        del self._known[known.start]
        self._monitor.later(partial(self._free, known, site))

    def _free(self, known: Known, site: Site) -> None:
        checker = self._monitor.checker
        if known.block is None:  # nobody knows on which stream it may be reused
            checker.release_block(known.space, known.start, known.size)
        else:
            checker.free(known.space, known.start, site=site)

    def record_stream(self, base: int, stream: Hashable) -> None:
        """The program has recorded a stream on the block of a storage."""
        known = self._known.get(base)
        if known is not None and known.block is not None:
            self._monitor.record_stream(stream, known.block)

    def cover(self, base: int, stream: Hashable) -> None:
        """Work that torch does by itself uses a block on a stream, and may have recorded it there, which is not seen.

        Reuse of the block after this use is then never reported.
        """
        known = self._known.get(base)
        if known is None or known.block is None:
            return
        line = self._monitor.checker.timeline(stream)
        if line is not known.block.timeline and line not in known.block.recorded:
            self._monitor.record_stream(stream, known.block)

    def give_gradient(self, tensor: Any) -> None:
        """A backward pass is given a gradient."""
        storage = tensor.untyped_storage()
        space, start, size = tensor.device.index, storage.data_ptr(), storage.nbytes()
        self.gradients.given(space, start, start + size)
        if self._monitor.mark is not None:
            self._monitor.mark(GRADIENT, (space, start, start + size))

    # -- pinned memory: it takes part from its first asynchronous copy on ----------------------------------------------

    def host_at(self, address: int) -> Known | None:
        """The pinned memory in use that holds an address."""
        index = bisect_right(self._host_starts, address) - 1
        if index < 0:
            return None
        known = self._host[self._host_starts[index]]
        return known if address < known.start + known.size else None

    def holds_host(self, start: int, stop: int) -> bool:
        """Whether some of this memory is pinned memory in use."""
        index = bisect_left(self._host_starts, stop) - 1
        if index < 0:
            return False
        known = self._host[self._host_starts[index]]
        return start < known.start + known.size

    @property
    def any_host(self) -> bool:
        """Whether any pinned memory is in use."""
        return bool(self._host)

    def know_host(self, storage: Any, base: int, site: Site, *, again: bool = False) -> None:
        """A copy uses pinned memory; ``again``: it is new memory, whatever was there before."""
        known = self.host_at(base)
        if known is not None and not again:
            return
        if known is not None:
            self.forget_host(known)
        size = storage.nbytes()
        monitor = self._monitor
        with monitor.lock:
            monitor.drain()
            if again:
                monitor.checker.release_block(HOST, base, size)
            block = monitor.checker.allocate(
                HOST, base, size, owner="pinned", host=monitor.thread, site=site, name=""
            )
        self._host[base] = Known(lambda: None, HOST, base, size, block)
        self._host_starts = sorted(self._host)

    def forget_host(self, known: Known) -> None:
        """There is new memory; torch's pinned pool has waited for the copies of the old one (TM-13)."""
        self._host.pop(known.start, None)
        self._host_starts = sorted(self._host)
        monitor = self._monitor
        with monitor.lock:
            monitor.drain()
            monitor.checker.release_block(HOST, known.start, known.size)


def use_of(tensor: Any, space: Hashable, base: int) -> Use:
    """The bytes of a strided tensor.

    Args:
        tensor: it has elements.
        base: address of its storage.
    """
    item = tensor.element_size()
    start = base + tensor.storage_offset() * item
    shape = tuple(tensor.shape)
    dtype = str(tensor.dtype).rpartition(".")[2]
    if tensor.is_contiguous():
        return Use(Region(space, start, start + tensor.numel() * item, shape), "", dtype)
    strides = tuple(tensor.stride())
    last = sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))
    if last + 1 == tensor.numel() and _dense(shape, strides):
        return Use(Region(space, start, start + (last + 1) * item, shape), "", dtype)
    bytes_ = tuple(stride * item for stride in strides)
    return Use(Region(space, start, start + (last + 1) * item, shape, bytes_, item), "", dtype)


def _dense(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    """Whether a permuted tensor's elements fill its range, each place once."""
    expected = 1
    for stride, size in sorted(
        (stride, size) for stride, size in zip(strides, shape, strict=True) if size > 1
    ):
        if stride != expected:
            return False
        expected *= size
    return True


__all__ = ["Known", "Memory", "use_of"]
