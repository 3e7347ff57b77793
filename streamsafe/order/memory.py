"""Memory as byte ranges: what an operation touches, and the shadow that remembers who touched it last."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Hashable, Iterable, Iterator
from sys import getrefcount
from typing import Literal, NamedTuple

from streamsafe.order.clocks import Clock, ClockHolder, Event, Timeline
from streamsafe.order.hazard import Conflict, Mode
from streamsafe.order.views import FEW_RUNS, View, normalize, overlap, touches

Space = Hashable
"""An address space: a device, or ``"host"``."""

HOST: Space = "host"

Owner = Literal["cupy", "torch", "pinned", "driver"]

PARTIAL_LIMIT = 32
"""How many strided or uncertain accesses of one timeline a cell keeps apart."""


class Region(NamedTuple):
    """Some bytes: a range, or the elements of a strided view inside it. A plain tuple of the same layout will do.

    Attributes:
        space: the device whose memory it is (the same value as the streams' ``device``), or ``"host"``.
        start, stop: lowest byte address, and one past the highest; equal for an empty array, which touches nothing.
        shape: of the view, in elements; only reported when ``strides`` is None.
        strides: in bytes, one for each dimension, or None when the elements fill the whole range.
        itemsize: bytes of one element.
    """

    space: Space
    start: int
    stop: int
    shape: tuple[int, ...] | None = None
    strides: tuple[int, ...] | None = None
    itemsize: int = 1


class Use(NamedTuple):
    """One array an operation reads or writes. A plain tuple of the same layout will do.

    Attributes:
        region: the bytes.
        name: the array as the user knows it, or empty.
        dtype: its element type, for reports.
        certain: False when it is not known that the operation does this (a parameter of unknown direction): conflicts
            are *possible*, and the access hides no earlier one.
    """

    region: Region
    name: str = ""
    dtype: str | None = None
    certain: bool = True


class CapturedAccess:
    """One access of a graph: what it touches, and the captured operation that does."""

    __slots__ = ("block", "mode", "operation", "site", "use")

    def __init__(self, use: Use, mode: Mode, operation: str, site: object, block: Block | None) -> None:
        self.use = use
        self.mode = mode
        self.operation = operation
        self.site = site
        self.block = block


class Graph(ClockHolder):
    """What a capture left: its accesses, each memory once, and the blocks they lie in. A token for ``Checker.replay``.

    As a holder of a clock it knows its previous launch (GC-13).

    Attributes:
        key: a number of its own, for traces.
        conflicts: the missing edges between its branches and the violations, found once, at the end of the capture.
        accesses: everything it reads and writes when launched.
        waits, records: events it waits for and records at each launch (those marked external, GC-21).
        managed: who captured it sees to the order of the launches (GC-07) himself.
        pool: the private pool of its temporaries; None: they are of the arenas that eager work uses too (CuPy).
    """

    __slots__ = ("accesses", "conflicts", "key", "managed", "pool", "records", "reported", "site", "waits")

    def __init__(self, key: int, pool: Hashable, site: object) -> None:
        super().__init__()
        self.key = key
        self.pool = pool
        self.managed = False
        self.site = site
        self.conflicts: list[Conflict] = []
        self.accesses: list[CapturedAccess] = []
        self.waits: list[Event] = []
        self.records: list[Event] = []
        self.reported: set[Block] = set()

    def uses(self, mode: Mode) -> list[Use]:
        """What it reads, or writes, at each launch."""
        return [captured.use for captured in self.accesses if captured.mode == mode]


class Record:
    """One operation, shared by all memory it touched last.

    Attributes:
        timeline, count: its epoch.
        operation, site: as the caller gave them.
        sequence: its place in the program.
        graph: the graph whose launch it is, if any.
    """

    __slots__ = ("count", "graph", "operation", "sequence", "site", "timeline")

    def __init__(self, timeline: Timeline, count: int, operation: str, site: object, sequence: int) -> None:
        self.timeline = timeline
        self.count = count
        self.operation = operation
        self.site = site
        self.sequence = sequence
        self.graph: Graph | None = None

    def precedes(self, timeline: Timeline, host: Clock, sequence: int) -> bool:
        """Whether another timeline comes after it. If so notes there whom it needed, unless ``host`` had waited."""
        own = self.timeline
        name, count = own.id, self.count
        known = timeline.clock
        if known.get(name, 0) < count:
            return False
        if known is host or host.get(name, 0) < count:
            timeline.served[name] = sequence
        return True


class Partial(NamedTuple):
    """An access that does not simply cover its cell: strided, of unknown direction, or by the block's earlier owner.

    Attributes:
        record: the operation. mode: what it did.
        view: the bytes; None: all of the cell.
        certain: whether it is known to have done this, to all of these bytes.
        block: the block it belonged to.
    """

    record: Record
    mode: Mode
    view: View | None
    certain: bool
    block: Block | None


class Found(NamedTuple):
    """An earlier access that the present one is not ordered after, in bytes both touch."""

    first: Record
    first_mode: Mode
    first_block: Block | None
    second_mode: Mode
    use: Use
    start: int
    stop: int
    block: Block | None
    certain: bool


class Lease:
    """Held by the holder of a block: once only the block itself has it, the block is free, and no call is needed."""

    __slots__ = ()


class Block:
    """One life of some memory, from its allocation to its free.

    Attributes:
        timeline: the allocation stream, whose arena it is from; the host for pinned memory.
        owner: whose pool it is.
        ended, freed_site: whether its free was reported to the engine, and where.
        lease: held by its holder, where its end shows by that; see :attr:`freed`.
        cell: the only cell that lies in it, if that is known; ``UNTOUCHED``, or one that was emptied and
            forgotten, when there is none.
        recorded: the streams of ``record_stream``.
        graph: the graph in whose capture it was allocated, if any.
    """

    __slots__ = (
        "cell",
        "ended",
        "freed_site",
        "graph",
        "lease",
        "name",
        "owner",
        "recorded",
        "site",
        "space",
        "start",
        "stop",
        "timeline",
    )

    def __init__(
        self, space: Space, start: int, stop: int, owner: Owner, timeline: Timeline, name: str, site: object
    ) -> None:
        self.space = space
        self.start = start
        self.stop = stop
        self.owner = owner
        self.timeline = timeline
        self.name = name
        self.site = site
        self.ended = False
        self.freed_site: object = None
        self.lease: Lease | None = None
        self.cell: Cell | None = None
        self.recorded: tuple[Timeline, ...] = ()
        self.graph: Graph | None = None

    @property
    def freed(self) -> bool:
        """Whether it went back."""
        return self.ended or (self.lease is not None and getrefcount(self.lease) == _ALONE)

    def replaced(self) -> None:
        """Its addresses are another block's, or the driver's."""
        self.ended = True
        self.cell = None


def _alone() -> int:
    """What ``getrefcount`` says of a lease that only its block has."""
    block = Block(0, 0, 0, "cupy", Timeline(None, 0, "host", ""), "", None)
    block.lease = Lease()
    return getrefcount(block.lease)


_ALONE = _alone()


class Cell:
    """A range of bytes with one history.

    Attributes:
        write, read: the last operations that wrote and read all of it; no read since the write: None.
        readers: further reads, by timeline, that ``read`` is not ordered after; None: there are none.
        partial: what does not cover it simply, and what its earlier owners did; None: there is nothing.
        block: the block it lies in, as far as known.
    """

    __slots__ = ("block", "partial", "read", "readers", "start", "stop", "write")

    def __init__(self, start: int, stop: int, block: Block | None = None) -> None:
        self.start = start
        self.stop = stop
        self.block = block
        self.write: Record | None = None
        self.read: Record | None = None
        self.readers: dict[Timeline, Record] | None = None
        self.partial: list[Partial] | None = None

    def split(self, at: int) -> Cell:
        """Cut; the upper part is returned."""
        upper = Cell(at, self.stop, self.block)
        self.stop = at
        upper.write = self.write
        upper.read = self.read
        upper.readers = dict(self.readers) if self.readers else None
        upper.partial = list(self.partial) if self.partial else None
        return upper

    def history(self) -> Iterator[Partial]:
        """Everything it remembers."""
        if self.write is not None:
            yield Partial(self.write, "writes", None, True, self.block)
        if self.read is not None:
            yield Partial(self.read, "reads", None, True, self.block)
        if self.readers:
            for record in self.readers.values():
                yield Partial(record, "reads", None, True, self.block)
        if self.partial:
            yield from self.partial

    def needs(self, source: Timeline, host: Timeline, mode: Mode, view: View | None) -> bool:
        """Whether an access must come after one of ``source`` that the host did not wait for."""
        return any(
            record.timeline is source
            and not mode == first_mode == "reads"
            and not host.knows(source, record.count)
            and self._common_bytes(view, other) is not False
            for record, first_mode, other, _, _ in self.history()
        )

    def _common_bytes(self, view: View | None, other: View | None) -> bool | None:
        """Whether two accesses touch common bytes of the cell; None: it may be."""
        if view is not None and other is not None:
            return overlap(view, other, self.start, self.stop)
        if view is not None or other is not None:
            return touches(view or other or View(0, 0, ()), self.start, self.stop)
        return True

    def keep(self, wanted: Callable[[Partial], bool]) -> bool:
        """Drop what is not wanted. Whether anything is left."""
        block = self.block
        if self.write is not None and not wanted(Partial(self.write, "writes", None, True, block)):
            self.write = None
        if self.readers:
            self.readers = {
                line: record
                for line, record in self.readers.items()
                if wanted(Partial(record, "reads", None, True, block))
            } or None
        if self.read is not None and not wanted(Partial(self.read, "reads", None, True, block)):
            self.read = None
            if self.readers:
                self.read = self.readers.pop(next(iter(self.readers)))
        if self.partial:
            self.partial = [entry for entry in self.partial if wanted(entry)] or None
        return self.write is not None or self.read is not None or self.partial is not None

    def admits(self, timeline: Timeline, mode: Mode, host: Clock, sequence: int) -> bool:
        """Whether it is plain that an access now conflicts with nothing; if not, :meth:`examine` tells.

        Notes with the timeline whom it needed: a stream, where ``host`` had not waited for them already.
        """
        if self.partial is not None:
            return False
        last = self.write
        if last is not None and last.timeline is not timeline and not last.precedes(timeline, host, sequence):
            return False
        if mode == "reads":
            return True
        last = self.read
        if last is not None and last.timeline is not timeline and not last.precedes(timeline, host, sequence):
            return False
        return self.readers is None or all(
            last.timeline is timeline or last.precedes(timeline, host, sequence)
            for last in self.readers.values()
        )

    def examine(
        self,
        timeline: Timeline,
        use: Use,
        mode: Mode,
        view: View | None,
        found: list[Found],
        host: Clock,
        sequence: int,
    ) -> None:
        """Collect the earlier accesses that conflict with one that ``timeline`` would make now. Notes, as
        :meth:`admits` does, whom it needed.
        """
        for record, first_mode, other, certain, block in self.history():
            if mode == first_mode == "reads":
                continue
            first = record.timeline
            if first is timeline:
                continue
            if timeline.clock.get(first.id, 0) >= record.count:
                if host.get(first.id, 0) < record.count and self._common_bytes(view, other) is not False:
                    record.precedes(timeline, host, sequence)
                continue
            if first.kind == "host" and timeline.kind == "host":
                continue  # two host threads: not a matter of streams
            if timeline.kind == "function" and timeline.id in first.clock:
                continue  # enqueued behind a host function that runs only now
            common = self._common_bytes(view, other)
            if common is False:
                continue
            found.append(
                Found(
                    record,
                    first_mode,
                    block,
                    mode,
                    use,
                    max(self.start, view.start if view else self.start, other.start if other else self.start),
                    min(self.stop, view.stop if view else self.stop, other.stop if other else self.stop),
                    self.block,
                    certain and use[3] and common is True,
                )
            )

    def commit_read(self, record: Record) -> None:
        """All of it was read."""
        timeline = record.timeline
        known = timeline.clock
        last = self.read
        readers = self.readers
        if readers is not None:
            self.readers = readers = {
                line: other
                for line, other in readers.items()
                if line is not timeline and known.get(line.id, 0) < other.count
            } or None
        if last is not None and last.timeline is not timeline and known.get(last.timeline.id, 0) < last.count:
            if readers is None:
                self.readers = readers = {}
            readers[last.timeline] = last
        self.read = record

    def commit_write(self, record: Record) -> None:
        """All of it was written: whatever came before is ordered before this, or was reported."""
        self.write = record
        self.read = None
        self.readers = None
        self.partial = None

    def commit_partial(self, entry: Partial) -> None:
        """Some of it was, or may have been, accessed."""
        record, mode, view, certain, _ = entry
        timeline = record.timeline
        kept: list[Partial] = []
        mine = 0
        for other in self.partial or ():
            same = other.view == view and other.certain == certain and other.block is self.block
            if (
                same
                and timeline.knows(other.record.timeline, other.record.count)
                and (other.mode == mode or (mode == "writes" and certain))
            ):
                continue
            joined = _joined(other, entry)
            if joined is not None:
                entry = joined
                continue
            mine += other.record.timeline is timeline
            kept.append(other)
        if mine >= PARTIAL_LIMIT:
            # too many to tell apart: two that stand for all, of which nothing more is said than that they may meet
            modes = {other.mode for other in kept if other.record.timeline is timeline} | {mode}
            kept = [other for other in kept if other.record.timeline is not timeline]
            kept.extend(Partial(record, each, None, False, self.block) for each in sorted(modes))
            self.partial = kept
            return
        kept.append(entry)
        self.partial = kept


def _joined(first: Partial, second: Partial) -> Partial | None:
    """Two strided accesses of one epoch that lie side by side (a loop over columns), as one; None when they do not."""
    a, b = first.view, second.view
    if a is None or b is None or a.dims != b.dims or first.mode != second.mode:
        return None
    one, two = first.record, second.record
    if one.timeline is not two.timeline or one.count != two.count:
        return None
    if first.certain != second.certain or first.block is not second.block:
        return None
    low, high = (a, b) if a.start <= b.start else (b, a)
    if low.start + low.run < high.start:
        return None
    run = high.start + high.run - low.start
    if run > low.dims[-1][1]:
        return None
    return second._replace(view=View(low.start, max(run, low.run), low.dims))


class Shadow:
    """What is remembered of one address space: cells that do not overlap, found by their start."""

    __slots__ = ("cells", "starts")

    def __init__(self) -> None:
        self.cells: dict[int, Cell] = {}
        self.starts: list[int] = []

    def overlapping(self, start: int, stop: int) -> list[Cell]:
        """The cells with a byte in ``[start, stop)``, lowest first."""
        starts = self.starts
        low = bisect_right(starts, start) - 1
        if low < 0 or self.cells[starts[low]].stop <= start:
            low += 1
        high = bisect_left(starts, stop, low)
        cells = self.cells
        return [cells[begin] for begin in starts[low:high]]

    def cut(self, at: int) -> None:
        """Make ``at`` a border between cells."""
        index = bisect_left(self.starts, at) - 1
        if index >= 0:
            cell = self.cells[self.starts[index]]
            if cell.stop > at:
                self.cells[at] = cell.split(at)
                if cell.block is not None:
                    cell.block.cell = None
                self.starts.insert(index + 1, at)

    def inside(self, start: int, stop: int) -> list[Cell]:
        """The cells in ``[start, stop)``, cut at both ends; gaps stay gaps."""
        cell = self.cells.get(start)
        if cell is not None and cell.stop <= stop:
            after = bisect_right(self.starts, start)
            if after == len(self.starts) or self.starts[after] >= stop:
                return [cell]
        self.cut(start)
        self.cut(stop)
        return self.overlapping(start, stop)

    def cover(self, start: int, stop: int, owner: Callable[[int], tuple[Block | None, int]]) -> list[Cell]:
        """Cells for exactly ``[start, stop)``. ``owner`` gives the block at an address and where that ends."""
        covered: list[Cell] = []
        at = start
        for cell in [*self.inside(start, stop), None]:
            limit = stop if cell is None else cell.start
            while at < limit:
                block, end = owner(at)
                end = min(end, limit)
                fresh = Cell(at, end, block)
                self.cells[at] = fresh
                if block is not None:
                    block.cell = None
                self.starts.insert(bisect_left(self.starts, at), at)
                covered.append(fresh)
                at = end
            if cell is not None:
                covered.append(cell)
                at = cell.stop
        return covered

    def around(self, start: int, stop: int, owner: Callable[[int], tuple[Block | None, int]]) -> list[Cell]:
        """Cells that together hold ``[start, stop)``, for a view, which says itself which of their bytes it means.

        Nothing is cut, and a gap becomes a cell as large as its block allows: views of one array lie in one cell,
        whatever their borders.
        """
        covered: list[Cell] = []
        at = start
        for cell in [*self.overlapping(start, stop), None]:
            limit = stop if cell is None else cell.start
            while at < limit:
                block, end = owner(at)
                index = bisect_left(self.starts, at)
                low = at
                if block is not None:
                    low = max(block.start, self.cells[self.starts[index - 1]].stop if index else 0)
                    if index < len(self.starts):
                        end = min(end, self.starts[index])
                    block.cell = None
                else:
                    end = min(end, limit)
                fresh = self.cells[low] = Cell(low, end, block)
                self.starts.insert(index, low)
                covered.append(fresh)
                at = end
            if cell is not None:
                covered.append(cell)
                at = cell.stop
        return covered

    def merge(self, cells: list[Cell]) -> list[Cell]:
        """Make one cell of neighbours that lie in one block; their histories must be the same from here on."""
        merged = [cells[0]]
        for cell in cells[1:]:
            if cell.block is merged[-1].block:
                merged[-1].stop = cell.stop
                del self.cells[cell.start]
            else:
                merged.append(cell)
        low = bisect_left(self.starts, cells[0].start)
        self.starts[low : low + len(cells)] = [cell.start for cell in merged]
        return merged

    def remove(self, gone: Iterable[Cell]) -> None:
        """Forget cells."""
        starts = {cell.start for cell in gone}
        if starts:
            for start in starts:
                del self.cells[start]
            self.starts = [start for start in self.starts if start not in starts]


def pieces(region: Region) -> list[tuple[int, int, View | None]]:
    """The ranges of a region: (start, stop, view); the view is None where all bytes of the range are touched."""
    _, start, stop, shape, strides, itemsize = region
    if start >= stop:
        return []
    if strides is None or shape is None:
        return [(start, stop, None)]
    if 0 in shape:
        return []
    base = normalize(shape, strides, itemsize)
    view = View(start, base.run, base.dims)
    if view.size() <= FEW_RUNS:
        return [(begin, end, None) for begin, end in sorted(view.runs())]
    return [(start, view.stop, view)]
