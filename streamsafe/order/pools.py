"""Blocks of memory and the pools that hand them out again: reuse before a use is over, and what is left at the end.

A pool orders a block's next life against its allocation stream only (TL-02, CS-20). So when a block is handed out,
every earlier use that this stream comes after is over; what remains is kept beside the new owner's accesses and
conflicts with the first of them that is not ordered after it. ``record_stream`` delays the reuse until what that
stream had been given by the time of the free is done (TL-03). Memory new from the driver is clean.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable

from streamsafe.order.memory import Block, Cell, Partial, Shadow

UNTOUCHED = Cell(0, 0)
"""Stands for the cell of a block that has none. Nothing is ever remembered in it."""


class Blocks:
    """The blocks of one address space: the live ones, and of the freed ones those that nothing replaced."""

    __slots__ = ("_blocks", "_starts")

    def __init__(self) -> None:
        self._blocks: dict[int, Block] = {}
        self._starts: list[int] = []

    def __len__(self) -> int:
        return len(self._blocks)

    def at(self, start: int) -> Block | None:
        """The block that begins there."""
        return self._blocks.get(start)

    def overlapping(self, start: int, stop: int) -> list[Block]:
        """The blocks with a byte in ``[start, stop)``."""
        low = max(bisect_right(self._starts, start) - 1, 0)
        high = bisect_left(self._starts, stop, low)
        found = (self._blocks[begin] for begin in self._starts[low:high])
        return [block for block in found if block.stop > start]

    def owner(self, address: int) -> tuple[Block | None, int]:
        """The block that holds an address, and where it ends; without one, where the next begins."""
        index = bisect_right(self._starts, address)
        if index:
            block = self._blocks[self._starts[index - 1]]
            if block.stop > address:
                return block, block.stop
        return None, self._starts[index] if index < len(self._starts) else 1 << 128

    def freed(self) -> list[Block]:
        """The blocks that went back and whose addresses nobody has been given since."""
        return [block for block in self._blocks.values() if block.freed]

    def add(self, block: Block) -> None:
        """A block begins its life; whatever it overlaps has ended."""
        before = self._blocks.get(block.start)
        if before is not None and before.stop == block.stop:
            before.replaced()
            self._blocks[block.start] = block
            return
        self.remove(block.start, block.stop)
        self._blocks[block.start] = block
        insort(self._starts, block.start)

    def discard(self, block: Block) -> None:
        """Forget a block, if it is still known."""
        if self._blocks.get(block.start) is block:
            del self._blocks[block.start]
            del self._starts[bisect_left(self._starts, block.start)]

    def remove(self, start: int, stop: int) -> None:
        """Forget the blocks with a byte in ``[start, stop)``."""
        for block in self.overlapping(start, stop):
            block.replaced()
            self.discard(block)


def hand_out_again(shadow: Shadow, block: Block) -> bool:
    """The usual :func:`hand_out`: the block's one cell was last used by the stream that is given it. False: it is not
    so, and nothing was done.
    """
    cell = shadow.cells.get(block.start)
    if cell is None or cell.stop > block.stop or cell.partial is not None or cell.readers is not None:
        return False
    own = block.timeline
    write, read = cell.write, cell.read
    if (write is not None and write.timeline is not own) or (read is not None and read.timeline is not own):
        return False
    starts = shadow.starts
    after = bisect_right(starts, block.start)
    if after < len(starts) and starts[after] < block.stop:
        return False
    cell.write = cell.read = None
    cell.block = block
    block.cell = cell
    return True


def hand_out(shadow: Shadow, block: Block, ordering: Callable[[], Callable[[Partial], bool]]) -> Cell | None:
    """The block is handed out: keep, as its earlier owners' doing, what its stream is not ordered after.

    ``ordering`` makes the question whether it is; what the stream did itself needs none. Returns the block's cell, as
    far as that is plain.
    """
    own = block.timeline
    ordered: Callable[[Partial], bool] | None = None
    empty = []
    cells = shadow.inside(block.start, block.stop)
    for cell in cells:
        left: list[Partial] = []
        if (
            cell.partial is not None
            or cell.readers is not None
            or (cell.write is not None and cell.write.timeline is not own)
            or (cell.read is not None and cell.read.timeline is not own)
        ):
            if ordered is None:
                ordered = ordering()
            left = [entry for entry in cell.history() if not ordered(entry)]
        cell.write = cell.read = cell.readers = None
        cell.partial = left or None
        cell.block = block
        if not left:
            empty.append(cell)
    if len(empty) > 1:  # one is kept: in a loop the next array is as large as the last
        shadow.remove(empty)
        return None
    return UNTOUCHED if not cells else cells[0] if len(cells) == 1 else None


def take_back(shadow: Shadow, block: Block) -> None:
    """The block is freed: the streams it was recorded on keep it until what they have been given by now is done."""
    covering = [stream for stream in block.recorded if stream is not block.timeline]
    if not covering or block.owner not in ("torch", "pinned"):
        return

    def uncovered(entry: Partial) -> bool:
        record = entry.record
        return not any(stream.knows(record.timeline, record.count) for stream in covering)

    shadow.remove([cell for cell in shadow.inside(block.start, block.stop) if not cell.keep(uncovered)])
