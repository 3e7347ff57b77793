"""What a recorded run says of a hazard that was found in the source: confirmed, ordered in this run, or not reached."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from streamsafe.findings.verdict import Verdict
from streamsafe.order.hazard import Conflict, Frame, Hazard, Span
from streamsafe.order.operations import Finish, Operation
from streamsafe.order.pairs import MOST_PAIRS, Pair, PairTable, Stack
from streamsafe.order.trace import TraceError
from streamsafe.order.wording import shown

REUSE = ("SS201", "SS202", "SS203")
"""Hazards of memory that is handed out again: the run shows them where the next life of the block is used."""


Replay = Callable[[str], tuple[Mapping[str, Any], Iterable[tuple[Operation, list[tuple[Conflict, str]]]]]]
"""Reads a trace: its first line, and each operation with the conflicts it completes and their codes."""


class Runs:
    """The pairs of lines of one or several runs of a program.

    Args:
        traces: paths of traces. Those of several ranks of one program count together.
        replay: reads one.

    Attributes:
        torn: the traces that break off.
        left_out: how many accesses the tables did not take.

    Raises:
        streamsafe.order.trace.TraceError: no trace that this version reads; the message names the file.
        OSError: a file cannot be read.
    """

    def __init__(self, traces: Iterable[str], replay: Replay) -> None:
        self.torn: list[str] = []
        self.left_out = 0
        self._paths: dict[tuple[str, str], str] = {}
        self._pairs: defaultdict[tuple[str, int], list[tuple[Pair, str]]] = defaultdict(list)
        self._conflicts: defaultdict[tuple[str, int], list[tuple[Conflict, str, str]]] = defaultdict(list)
        self._ran: set[tuple[str, int]] = set()
        self._traces = tuple(traces)
        for path in self._traces:
            self._read(path, replay)

    def _read(self, path: str, replay: Replay) -> None:
        try:
            about, steps = replay(path)
            directory = str(about.get("directory") or "")
            table = PairTable(threads=bool(about.get("threads")))
            complete = False
            for operation, conflicts in steps:
                complete |= isinstance(operation, Finish)
                table.feed(operation)
                for conflict, code in conflicts:
                    for place in self._places(conflict.second.stack, directory):
                        self._conflicts[place].append((conflict, code, directory))
                    if conflict.first is not None:
                        for place in self._places(conflict.first.stack, directory):
                            self._conflicts[place].append((conflict, code, directory))
                            self._ran.add(place)
        except TraceError as error:
            raise TraceError(f"{path}: {error}") from error
        if not complete:
            self.torn.append(path)
        self.left_out += table.left_out
        self._ran.update((self._real(name, directory), line) for name, line in table.ran)
        for pair in table.pairs.values():
            for place in set(self._places(pair.first, directory)):
                self._pairs[place].append((pair, directory))

    def warnings(self, files: Iterable[str]) -> Iterator[str]:
        """What makes the verdicts doubtful, in sentences. ``files``: those with findings."""
        for path in self.torn:
            yield f"{path} breaks off: what came after its last line is not known"
        if self.left_out:
            yield f"{self.left_out} accesses are of pairs of lines beyond the first {MOST_PAIRS}: they are not counted"
        recorded = min((os.path.getmtime(path) for path in self._traces), default=0.0)
        for name in sorted(files):
            if os.path.exists(name) and os.path.getmtime(name) > recorded:
                yield f"{shown(name)} is newer than the trace: its lines may have moved since"

    def verdict(self, hazard: Hazard) -> Verdict | None:
        """What the runs say of a hazard of the static analysis; None for one that is not about what a run does."""
        second = hazard.second.span
        if second is None or hazard.code.startswith("SS9"):
            return None
        first = hazard.first.span if hazard.first is not None else None
        if first is None:
            return self._violation(hazard, second)
        reuse = hazard.code in REUSE
        found = dict(self._between(first, None if reuse else second, reuse))
        if not reuse:
            found |= dict(self._between(second, first, reuse))
        pairs = [pair for pair, _ in found.values()]
        unordered = sum(pair.unordered for pair in pairs)
        reported = self._reported(hazard, first, None if reuse else second)
        if unordered or reported:
            times = max(unordered, reported)
            return Verdict(
                "confirmed", times, f"confirmed: no edge ordered the accesses in this run{_times(times)}"
            )
        ordered = sum(pair.ordered for pair in pairs)
        if ordered:
            edges = {
                (pair.reason.what, self._place(pair.reason.site, directory)): None
                for pair, directory in found.values()
                if pair.reason is not None
            }
            edge = next((place for _, place in edges if place is not None), None)
            return Verdict("ordered", ordered, _by(list(edges), ordered), edge)
        return Verdict("not-reached", 0, f"not reached: {self._missing(first, second, reuse)}")

    def _violation(self, hazard: Hazard, place: Span) -> Verdict:
        """An operation that is illegal where it stands has no pair."""
        times = self._reported(hazard, place, None)
        if times:
            return Verdict("confirmed", times, f"confirmed: it happened in this run{_times(times)}")
        return Verdict("not-reached", 0, "not reached: it did not happen in this run")

    def _between(
        self, first: Span, second: Span | None, reuse: bool
    ) -> Iterator[tuple[int, tuple[Pair, str]]]:
        """The pairs whose first access is reached through one place and the second through another: by identity, with
        the directory of their trace.
        """
        seen: set[int] = set()
        for place in _rows(first):
            for pair, directory in self._pairs.get(place, ()):
                if id(pair) in seen or (reuse and not pair.reuse):
                    continue
                if second is None or self._through(pair.second, second, directory):
                    seen.add(id(pair))
                    yield id(pair), (pair, directory)

    def _reported(self, hazard: Hazard, first: Span, second: Span | None) -> int:
        """How many conflicts of the runs are this hazard."""
        seen: set[int] = set()
        for place in _rows(first):
            for conflict, code, directory in self._conflicts.get(place, ()):
                if code[:3] != hazard.code[:3] or (hazard.first is None and code != hazard.code):
                    continue
                stacks = [conflict.second.stack, *([conflict.first.stack] if conflict.first else [])]
                if second is None or any(self._through(stack, second, directory) for stack in stacks):
                    seen.add(id(conflict))
        return len(seen)

    def _through(self, stack: Stack, span: Span, directory: str) -> bool:
        rows = _rows(span)
        return any(place in rows for place in self._places(stack, directory))

    def _missing(self, first: Span, second: Span, reuse: bool) -> str:
        """What did not happen."""
        for span in (first,) if reuse else (first, second):
            if not any(place in self._ran for place in _rows(span)):
                return f"line {span.row} of {shown(span.filename)} did no work on a device in this run"
        if reuse:
            return "the memory was not handed out again in this run"
        return "both lines ran, and touched no memory in common"

    def _place(self, stack: Stack, directory: str) -> tuple[str, int] | None:
        return next(self._places(stack, directory), None)

    def _places(self, stack: Iterable[Frame], directory: str) -> Iterator[tuple[str, int]]:
        return ((self._real(frame.filename, directory), frame.line) for frame in stack)

    def _real(self, filename: str, directory: str) -> str:
        """The file of a trace on this machine: where it is, or where it lies under this working directory."""
        key = (filename, directory)
        known = self._paths.get(key)
        if known is None:
            path = os.path.join(directory, filename)
            if directory and not os.path.exists(
                path
            ):  # recorded elsewhere, in a container or another checkout
                moved = os.path.join(os.getcwd(), os.path.relpath(path, directory))
                path = moved if os.path.exists(moved) else path
            known = self._paths[key] = os.path.realpath(path)
        return known


def _rows(span: Span) -> list[tuple[str, int]]:
    path = os.path.realpath(span.filename)
    return [(path, row) for row in range(span.row, span.end_row + 1)]


def _by(edges: Sequence[tuple[str, tuple[str, int] | None]], times: int) -> str:
    """What ordered two accesses, in words: the first few of several edges."""
    words = [f"{what} at {shown(place[0])}:{place[1]}" if place else what for what, place in edges[:3]]
    more = f" and {len(edges) - 3} more" if len(edges) > 3 else ""
    return f"ordered in this run by {', '.join(words)}{more}{_times(times)}"


def _times(count: int) -> str:
    return f" ({count} times)" if count > 1 else ""
