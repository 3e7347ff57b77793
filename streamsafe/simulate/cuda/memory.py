"""Simulated memory: host blocks that play device, managed and pinned memory, and which bytes are truthful.

A byte of device memory is *known* or not. What a kernel or a library call writes that does not compute stops being
known, and so does what is computed from it; a copy between devices carries knowledge along; a copy to the host takes
the known bytes as they are and zeros for the rest. Zero is the fill value because it is a valid value of every dtype.
New memory is known where kernels compute (any content of it is right), else not. Every block keeps its known bytes as
sorted, disjoint ranges.
"""

from __future__ import annotations

import ctypes
import mmap
import sys
from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable
from enum import IntEnum
from typing import Any

import numpy

from streamsafe.simulate.cuda.errors import (
    HOST_MEMORY_ALREADY_REGISTERED,
    HOST_MEMORY_NOT_REGISTERED,
    INVALID_VALUE,
    MEMORY_ALLOCATION,
    CudaError,
)

ALIGNMENT = 512  # cudaMalloc aligns to at least 256 bytes, CuPy's pool splits at 512


_NO_RESERVE = 0x4000  # MAP_NORESERVE, which the mmap module does not name on every Python
_GUARD = 1 << 20
_PAGE = mmap.PAGESIZE


def _zeros(size: int) -> Any:
    """Return host memory of zeros that costs nothing until it is written, aligned as a device's.

    What lies before and behind it cannot be accessed: a kernel that runs over its end stops.

    Raises:
        CudaError: the host has no such address range left.
    """
    try:
        return _guarded(size) if sys.platform == "linux" else _unguarded(size)
    except (MemoryError, ValueError, OSError, OverflowError):
        pass
    try:
        return _unguarded(size)  # a process has a limit of mappings
    except (MemoryError, ValueError, OverflowError):
        raise CudaError(MEMORY_ALLOCATION) from None


def _guarded(size: int) -> Any:
    room = -(-size // _PAGE) * _PAGE
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NO_RESERVE
    whole = numpy.frombuffer(mmap.mmap(-1, room + 2 * _GUARD, flags=flags, prot=0), numpy.uint8)
    begin = ctypes.c_void_p(whole.ctypes.data + _GUARD)
    if _mprotect(begin, ctypes.c_size_t(room), mmap.PROT_READ | mmap.PROT_WRITE):
        raise MemoryError
    return whole[_GUARD + room - _aligned(size) :][:size]


def _unguarded(size: int) -> Any:
    whole = numpy.zeros(size + ALIGNMENT, numpy.uint8)
    start: int = whole.ctypes.data
    return whole[_aligned(start) - start :][:size]


def _aligned(number: int) -> int:
    return -(-number // ALIGNMENT) * ALIGNMENT


_mprotect: Any = ctypes.CDLL(None).mprotect if sys.platform == "linux" else None


class Kind(IntEnum):
    """``cudaMemoryType``."""

    UNREGISTERED = 0
    HOST = 1
    DEVICE = 2
    MANAGED = 3


class Known:
    """Byte ranges with truthful contents, relative to the start of a block."""

    __slots__ = ("_ends", "_starts")

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []

    def _cut(self, start: int, end: int) -> int:
        """Remove ``[start, end)`` and return the position where a range could be inserted."""
        starts, ends = self._starts, self._ends
        low = bisect_right(ends, start)
        high = bisect_left(starts, end)
        if low >= high:
            return low
        left, right = starts[low], ends[high - 1]
        pieces = [(left, start)] if left < start else []
        position = low + len(pieces)
        if right > end:
            pieces.append((end, right))
        starts[low:high] = [piece[0] for piece in pieces]
        ends[low:high] = [piece[1] for piece in pieces]
        return position

    def add(self, start: int, end: int) -> None:
        """Make ``[start, end)`` known."""
        if start >= end:
            return
        at = self._cut(start, end)
        starts, ends = self._starts, self._ends
        if at and ends[at - 1] == start:
            at -= 1
            start = starts.pop(at)
            ends.pop(at)
        if at < len(starts) and starts[at] == end:
            starts.pop(at)
            end = ends.pop(at)
        starts.insert(at, start)
        ends.insert(at, end)

    def remove(self, start: int, end: int) -> None:
        """Make ``[start, end)`` unknown."""
        if start < end:
            self._cut(start, end)

    def ranges(self, start: int, end: int) -> list[tuple[int, int]]:
        """Return the known parts of ``[start, end)``."""
        low = bisect_right(self._ends, start)
        high = bisect_left(self._starts, end)
        return [(max(self._starts[i], start), min(self._ends[i], end)) for i in range(low, high)]


MOST_IDLE = 4
"""Blocks of one size that a pool keeps."""


class Block:
    """One allocation or registration.

    Attributes:
        address: first byte.
        size: bytes.
        kind: memory type that ``cudaPointerGetAttributes`` reports.
        device: owning device.
        flags: flags given to the allocating call.
        known: truthful bytes of device and managed memory; None for host memory, which the program writes
            itself.
    """

    __slots__ = ("_owner", "address", "device", "flags", "kind", "known", "pool", "size")

    def __init__(
        self, address: int, size: int, kind: Kind, device: int, flags: int, owner: Any, pool: int
    ) -> None:
        self.address = address
        self.size = size
        self.kind = kind
        self.device = device
        self.flags = flags
        self.pool = pool
        self._owner = owner
        self.known: Known | None = Known() if kind in (Kind.DEVICE, Kind.MANAGED) else None
        if kind is Kind.MANAGED and self.known is not None:
            # The host writes managed memory unseen: only what kernels write there is unknown.
            self.known.add(0, size)


class AddressSpace:
    """Every block of the process, by address.

    Args:
        devices: number of devices.
        capacity: bytes of memory each device claims to have.
        knows: whether new device memory is known.
    """

    def __init__(self, devices: int, capacity: int, knows: bool = False) -> None:
        self.capacity = capacity
        self.knows = knows
        self.used = [0] * devices
        self._addresses: list[int] = []
        self._blocks: dict[int, Block] = {}
        self._idle: dict[tuple[int, int], list[Any]] = {}
        self.before_free: Callable[[], None] = lambda: None
        """Runs the work that still needs the memory."""
        self.foreign: Callable[[int], tuple[int, int, int] | None] | None = None
        """Device memory of another simulated runtime: address, size and device of what holds a pointer."""

    def allocate(self, size: int, kind: Kind, device: int, flags: int = 0, pool: int = 0) -> Block:
        """Allocate host memory that plays memory of ``kind``.

        A block of a ``pool`` (its handle) is not counted as used: the pool's reservation is. The block of this size
        that the pool got back last is handed out first, as the driver's pools do.

        Raises:
            CudaError: out of memory: more than the device claims to have, or than the host gives.
        """
        counted = 0 if kind is Kind.HOST or pool else size
        self.charge(device, counted)
        idle = self._idle.get((pool, size))
        try:
            buffer = idle.pop() if idle else _zeros(size)
        except CudaError:
            self.charge(device, -counted)
            raise
        block = Block(buffer.ctypes.data, size, kind, device, flags, buffer, pool)
        if self.knows and block.known is not None:
            block.known.add(0, size)
        self._insert(block)
        return block

    def adopt(self, address: int, size: int, device: int) -> int:
        """Take memory of a compiled kernel's library for memory of a device; return its address."""
        if address not in self._blocks:
            block = Block(address, size, Kind.DEVICE, device, 0, self, 0)
            assert block.known is not None
            block.known.add(0, size)
            self._insert(block)
        return address

    def charge(self, device: int, size: int) -> None:
        """Count ``size`` bytes more (or fewer) as used on a device.

        Raises:
            CudaError: more than the device claims to have.
        """
        if size > 0 and self.used[device] + size > self.capacity:
            raise CudaError(MEMORY_ALLOCATION)
        self.used[device] += size

    def register(self, address: int, size: int, device: int, flags: int) -> None:
        """``cudaHostRegister``: page-lock memory of the program.

        Raises:
            CudaError: a part of it is registered already.
        """
        if self.find(address) is not None or self.find(address + size - 1) is not None:
            raise CudaError(HOST_MEMORY_ALREADY_REGISTERED)
        self._insert(Block(address, size, Kind.HOST, device, flags, None, 0))

    def unregister(self, address: int) -> None:
        """``cudaHostUnregister``.

        Raises:
            CudaError: the address was not registered.
        """
        block = self._blocks.get(address)
        if block is None or block.kind is not Kind.HOST or block._owner is not None:
            raise CudaError(HOST_MEMORY_NOT_REGISTERED)
        self._remove(block)

    def free(self, address: int, *kinds: Kind) -> Block:
        """Release the block that starts at ``address``.

        Raises:
            CudaError: no block of these kinds starts there.
        """
        block = self._blocks.get(address)
        if block is None or block.kind not in kinds or block._owner is None:
            raise CudaError(INVALID_VALUE)
        if block.known is not None:
            self.before_free()
        self._remove(block)
        if block.pool:
            idle = self._idle.setdefault((block.pool, block.size), [])
            if len(idle) < MOST_IDLE:
                idle.append(block._owner)
        elif block.kind is not Kind.HOST:
            self.charge(block.device, -block.size)
        return block

    def _insert(self, block: Block) -> None:
        insort(self._addresses, block.address)
        self._blocks[block.address] = block

    def _remove(self, block: Block) -> None:
        del self._addresses[bisect_left(self._addresses, block.address)]
        del self._blocks[block.address]

    def find(self, pointer: int) -> Block | None:
        """Return the block that contains ``pointer``, or None for pageable host memory."""
        at = bisect_right(self._addresses, pointer) - 1
        block = self._blocks[self._addresses[at]] if at >= 0 else None
        if block is not None and pointer < block.address + max(block.size, 1):
            return block
        return self._of_another(pointer) if self.foreign is not None else None

    def _of_another(self, pointer: int) -> Block | None:
        found = self.foreign(pointer) if self.foreign is not None else None
        if found is None:
            return None
        address, size, device = found
        block = Block(address, size, Kind.DEVICE, device, 0, None, 0)
        assert block.known is not None
        block.known.add(0, size)  # it computes what it writes
        self._insert(block)
        return block

    def seen(self, pointer: int) -> bool:
        """Whether others than the simulated device's work may read and write there: the host, another runtime."""
        block = self.find(pointer)
        return block is None or block.kind is not Kind.DEVICE or block._owner is None

    def span(self, pointer: int, size: int) -> Block | None:
        """Return the block that holds ``[pointer, pointer + size)``.

        Raises:
            CudaError: the range starts inside a block and runs past its end.
        """
        block = self.find(pointer)
        if block is not None and pointer + size > block.address + block.size:
            raise CudaError(INVALID_VALUE)
        return block

    def blocks(self, device: int) -> list[Block]:
        """Return every block of device and managed memory that ``device`` owns."""
        return [b for b in self._blocks.values() if b.device == device and b.known is not None]

    def forget(self, pointer: int, size: int) -> None:
        """Make ``[pointer, pointer + size)`` unknown: something wrote it that does not compute here."""
        block = self.find(pointer)
        if block is not None and block.known is not None:
            start = max(pointer - block.address, 0)
            block.known.remove(start, min(start + size, block.size))

    def remember(self, pointer: int, size: int) -> None:
        """Make ``[pointer, pointer + size)`` known: its bytes are truthful."""
        block = self.find(pointer)
        if block is not None and block.known is not None:
            start = pointer - block.address
            block.known.add(start, start + size)

    def unknown(self, pointer: int, size: int) -> int:
        """Return how many of the bytes ``[pointer, pointer + size)`` are not truthful."""
        block = self.find(pointer)
        if block is None or block.known is None:
            return 0
        start = pointer - block.address
        return size - sum(b - a for a, b in block.known.ranges(start, start + size))

    def copy(self, target: int, source: int, size: int, on_fill: Callable[[int, int], None]) -> None:
        """Copy bytes, and what is known about them.

        Args:
            target: address of the destination.
            source: address of the source.
            size: bytes.
            on_fill: called with (bytes copied, bytes replaced by the fill value) of a copy to the host.
        """
        if not size:
            return
        source_block, target_block = self.find(source), self.find(target)
        source_known = source_block.known if source_block is not None else None
        target_known = target_block.known if target_block is not None else None
        base = source_block.address if source_block is not None else 0
        if source_known is None:
            ctypes.memmove(target, source, size)
            if target_known is not None and target_block is not None:
                target_known.add(target - target_block.address, target - target_block.address + size)
            return
        ranges = source_known.ranges(source - base, source - base + size)
        if target_known is not None and target_block is not None:
            ctypes.memmove(target, source, size)
            shift = target - target_block.address - (source - base)
            target_known.remove(target - target_block.address, target - target_block.address + size)
            for start, end in ranges:
                target_known.add(start + shift, end + shift)
            return
        filled = size - sum(end - start for start, end in ranges)
        if filled:
            ctypes.memset(target, 0, size)
            for start, end in ranges:
                ctypes.memmove(target + start - (source - base), base + start, end - start)
        else:
            ctypes.memmove(target, source, size)
        on_fill(size, filled)

    def set(self, target: int, value: int, size: int) -> None:
        """``cudaMemset``: the low byte of ``value``, ``size`` times."""
        if not size:
            return
        ctypes.memset(target, value & 0xFF, size)
        block = self.find(target)
        if block is not None and block.known is not None:
            block.known.add(target - block.address, target - block.address + size)
