"""`--explain-line`: what is known at one line, in sentences: accesses, streams, edges and called summaries."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamsafe.static.domain import access as tag
from streamsafe.static.domain import guards
from streamsafe.static.domain.access import Access
from streamsafe.static.domain.atoms import ALL, CAPTURING, CURRENT, HOST, Atom, Pool, rank
from streamsafe.static.domain.guards import Literal
from streamsafe.static.domain.order import Carriers, memory
from streamsafe.static.domain.places import overlap
from streamsafe.static.domain.state import State
from streamsafe.static.summary.exits import MARKERS

if TYPE_CHECKING:
    from streamsafe.static.findings import Findings
    from streamsafe.static.summary.analyse import Analysis
    from streamsafe.static.summary.model import Summary
    from streamsafe.static.syntax import ir

MOST_PENDING = 12
"""Earlier accesses that are listed for one line."""

ASSUMPTIONS = {
    tag.MODULE_CALL: "a module that is called is taken to read it",
    tag.UNSEEN_CALL: "a function that is not seen may read it",
    tag.METHOD_CALL: "a method that is not seen may read it",
    tag.PUT_THERE: "it is called under this stream for the work that it enqueues",
    tag.WEAK: "nothing shows that it is a tensor",
    tag.NAME_HINT: "a name says what it is",
    tag.HANDED_OUT: "by the consumer of the generator",
    tag.PLACE_UNKNOWN: "where it lies is not known",
    tag.UNKNOWN_SOURCE: "where the other side of the copy lies is not known",
    tag.D2H: "the host does not wait for this copy",
    tag.H2D: "the host does not wait for this copy",
    tag.LEAVES: "it leaves the function",
    tag.CAPTURED: "it is captured",
    tag.RECORDED: "the block is recorded on that stream",
    tag.BUDGET: "a limit was reached",
}


class Explanation:
    """Listens to an analysis at one line of one file.

    Args:
        filename: the file.
        row: the line, from 1.
    """

    def __init__(self, filename: str, row: int) -> None:
        self._filename = filename
        self._row = row
        self._found: dict[str, dict[str, None]] = {}
        self._functions: dict[str, tuple[int, str]] = {}
        self._names: Findings | None = None

    def lines(self) -> list[str]:
        """What is known, function by function."""
        out: list[str] = []
        for fid, texts in sorted(self._found.items(), key=lambda item: self._functions[item[0]]):
            if texts:
                out += [f"in {self._functions[fid][1]}:", *(f"  {text}" for text in texts)]
        return out

    # -- what the analysis calls -------------------------------------------------------------------------------------

    def step(self, a: Analysis, instruction: ir.Instr, states: list[State]) -> list[State]:
        """Interpret one instruction, and say what it did if it stands on the line."""
        span = a.span(instruction.at)
        if span.filename != self._filename or not span.row <= self._row <= span.end_row:
            return a.step(instruction, states)
        out: list[State] = []
        for s in states:
            before = s.fork()
            after = a.step(instruction, [s])
            for t in after:
                self._changes(a, before, t)
            out += after
        few: list[State] = []
        a.merge(few, out, owned=True)
        return few

    def called(self, a: Analysis, at: int, summary: Summary) -> None:
        """A summary is instantiated."""
        span = a.span(at)
        if span.filename != self._filename or not span.row <= self._row <= span.end_row or not summary.fid:
            return
        name = summary.fid.partition(":")[2]
        number = len(summary.exits)
        what = [] if number == 1 else [f"returns in {number} ways" if number else "never returns"]
        accesses = {one: None for exit in summary.exits for one in exit.accesses if _shown(one)}
        waits = {wait: None for exit in summary.exits for wait in exit.waits}
        what += [f"{self._does(a, one)} (line {one.span.row})" for one in sorted(accesses, key=_sort_key)[:8]]
        if len(accesses) > 8:
            what.append(f"{len(accesses) - 8} more accesses")
        what += [
            f"{self._timeline(a, wait.who)} waits for {self._timeline(a, wait.whom)} (line {wait.span.row})"
            for wait in sorted(waits, key=lambda wait: wait.span)[:8]
        ]
        what += [f"limit reached: {note}" for note in summary.notes]
        self._say(a, f"calls {name}: {'; '.join(what) or 'it touches no memory and orders nothing'}")

    # -- sentences ---------------------------------------------------------------------------------------------------

    def _changes(self, a: Analysis, before: State, after: State) -> None:
        """What one instruction did to a state."""
        under = self._under(a, after)
        if before.current is not after.current:
            now = "again that of the entry" if after.current is CURRENT else self._timeline(a, after.current)
            self._say(a, f"from here on the current stream is {now}{under}")
        for wait in sorted(after.waits - before.waits, key=lambda wait: wait.span):
            covers = ", which covers nothing: nothing was enqueued there" if wait.idle else ""
            self._say(
                a, f"{self._timeline(a, wait.who)} waits for {self._timeline(a, wait.whom)}{covers}{under}"
            )
        for event, cell in sorted(after.cells.items(), key=lambda item: rank(item[0])):
            if before.cells.get(event) != cell:
                stream = self._timeline(a, cell.stream)
                self._say(a, f"{self._memory(a, event) or 'an event'} is recorded on {stream}{under}")
        old = set(before.order.accesses())
        made = [one for one in after.order.accesses() if one not in old and _shown(one)]
        for one in sorted(made, key=_sort_key):
            place = f" (in {one.span.row})" if one.span.row != self._row else ""
            self._say(a, f"{self._does(a, one)}{place}{self._assumes(one)}{under}")
        if made:
            self._pending(a, before, made)
        if made or after.waits != before.waits or before.current is not after.current:
            self._edges(a, after, under)

    def _pending(self, a: Analysis, before: State, made: list[Access]) -> None:
        """The earlier accesses to the same memory that the host does not know to be done."""
        said = 0
        for one in sorted({each.buffer for each in made}, key=rank):
            for earlier in before.order.made.get(memory(one), ()):
                if not overlap(earlier.buffer, one) or not _shown(earlier):
                    continue
                ways = before.order.ways_of(earlier)
                if not ways or said >= MOST_PENDING:
                    continue
                said += 1
                known = " or ".join(sorted(self._all(a, way) for way in ways))
                self._say(
                    a,
                    f"earlier, line {earlier.span.row}: {self._does(a, earlier)}; "
                    f"what comes after it: {known}",
                )

    def _edges(self, a: Analysis, after: State, under: str) -> None:
        for carrier in sorted(after.order.knows, key=rank):
            known = after.order.knows[carrier] - {carrier}
            if known:
                self._say(a, f"{self._timeline(a, carrier)} comes after {self._all(a, known)}{under}")

    def _does(self, a: Analysis, one: Access) -> str:
        verb = "writes" if one.writes else "reads"
        buffer = self._memory(a, one.buffer) or "a tensor"
        who = "the host" if one.stream is HOST else f"on {self._timeline(a, one.stream)}"
        if one.stream is HOST:
            return f"{who} {verb} {buffer} ({one.operation})"
        return f"{one.operation or 'an operation'} {verb} {buffer} {who}"

    def _assumes(self, one: Access) -> str:
        texts = [text for bit, text in ASSUMPTIONS.items() if one.tags & bit]
        return f" [{'; '.join(dict.fromkeys(texts))}]" if texts else ""

    def _under(self, a: Analysis, s: State) -> str:
        """The condition of a partition."""
        texts = sorted(self._literal(a, literal) for literal in s.guard)
        return f", where {' and '.join(texts)}" if texts else ""

    def _literal(self, a: Analysis, literal: Literal) -> str:
        if literal.atom is CAPTURING:
            return "a capture is under way" if literal.truth else "no capture is under way"
        name = self._memory(a, literal.atom) or "a value"
        is_ = "is" if literal.truth else "is not"
        if literal.kind == guards.IS_NONE:
            return f"{name} {is_} None"
        if literal.kind == guards.IS_CPU:
            return f"{name} {is_} the CPU"
        if literal.kind == guards.IS_INSTANCE:
            types = literal.other if isinstance(literal.other, tuple) else (literal.other,)
            return f"{name} {is_} a {' or '.join(str(each).rpartition('.')[2] for each in types)}"
        if literal.kind == guards.EQUALS:
            return f"{name} {is_} {literal.other!r}"
        return f"{name} {is_} true"

    def _all(self, a: Analysis, carriers: Carriers) -> str:
        if ALL in carriers:
            return "everything"
        return ", ".join(sorted(self._timeline(a, carrier) for carrier in carriers)) or "nothing"

    def _timeline(self, a: Analysis, atom: Atom) -> str:
        return self._namer(a).timeline(atom)

    def _memory(self, a: Analysis, atom: Atom) -> str:
        return self._namer(a).memory(atom)

    def _namer(self, a: Analysis) -> Findings:
        if self._names is None:
            from streamsafe.static.findings import Findings

            self._names = Findings(a.engine)
        return self._names

    def _say(self, a: Analysis, text: str) -> None:
        fid = a.fn.fid
        self._functions.setdefault(fid, (a.fn.span.line, fid.partition(":")[2]))
        self._found.setdefault(fid, {}).setdefault(text)


def _shown(one: Access) -> bool:
    """Whether an access is one of the program's, not a mark of the analysis."""
    if one.buffer in MARKERS and not one.tags & tag.GRADIENT:
        return False
    return not isinstance(one.buffer, Pool) and not one.tags & (tag.RECORD | tag.ELAPSED | tag.STORED)


def _sort_key(one: Access) -> tuple[object, ...]:
    return one.sort_key()
