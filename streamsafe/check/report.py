"""From what a path shows to a conflict that rules, reports and repairs read: names, places, the repair, the witness."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

from streamsafe.check import assumptions
from streamsafe.check.assumptions import Words, named
from streamsafe.check.program import Access as Use
from streamsafe.check.program import Block, Timeline
from streamsafe.check.program import Hazard as Shown
from streamsafe.check.trail import Passed
from streamsafe.check.wording import operation_name
from streamsafe.order.hazard import (
    Access,
    Assumption,
    Conflict,
    Edge,
    Facts,
    Memory,
    Missing,
    Named,
    Note,
    Span,
    quoted,
)
from streamsafe.order.lines import CURRENT, DEFAULT, current, default, missing

HOST = "the host"

VIOLATIONS: Final[Mapping[str, str]] = {
    "SS311": "unsynchronized-timing",
    "SS312": "event-timing-misuse",
    "SS321": "pageable-non-blocking",
    "SS322": "pin-memory-then-copy",
    "SS401": "sync-in-capture",
    "SS402": "unjoined-capture-stream",
    "SS403": "rebound-static-input",
    "SS404": "capture-rng",
    "SS405": "capture-on-default-stream",
    "SS406": "missing-capture-warmup",
    "SS408": "uncapturable-step",
    "SS409": "shared-pool-replay-order",
    "SS410": "host-work-in-capture",
    "SS411": "concurrent-capture",
    "SS412": "stale-replay-output",
}
"""The names of the rules for what is illegal where it stands, by the code that the models give."""

CAUSES: Final[Mapping[str, Literal["pageable", "global", "eleven"]]] = {
    "a copy from pageable memory": "pageable",
    "a capture": "global",
    "a capture with less than eleven runs before": "eleven",
}
"""What the models call a violation whose repair depends on its cause."""

TIMING: Final[Mapping[str, Literal["untimed", "unrecorded", "pending"]]] = {
    "made": "untimed",
    "never recorded": "unrecorded",
    "recorded": "pending",
}
NOTES: Final[Mapping[str, str]] = {
    "made": "it is made here",
    "never recorded": "it is made here, and never recorded",
    "recorded": "it is recorded here",
    "end": "the capture ends without waiting for it",
    "replay": "the graph is replayed here",
    "the stream": "the stream is made here, and waits for nothing",
    "used": "it is used here",
    "also": "this is not finished either",
}
"""What the further places of a finding are, by the models' names for them."""
LONGEST_PATH: Final = 6


def conflict_of(shown: Shown, tags: Iterable[str]) -> Conflict | None:
    """A finding of a path as a conflict; None where it has no place in a file.

    Args:
        shown: what the machine has found.
        tags: what has to be assumed for it.
    """
    if shown.second.site is None:
        return None
    return _Report(shown, tuple(tags)).conflict()


@dataclass(slots=True)
class _Report:
    """One finding that is being written down."""

    shown: Shown
    tags: tuple[str, ...]

    def conflict(self) -> Conflict:
        code = self.shown.code
        if code in assumptions.REUSE:
            found = self._reuse()
        elif code in VIOLATIONS:
            found = self._violation()
        else:
            found = self._pair()
        return replace(
            found,
            confidence=assumptions.confidence(code, self.tags),
            assumptions=self._assumptions(),
            witness=tuple(self._witness()),
            further=self.shown.further,
        )

    # -- the three kinds ---------------------------------------------------------------------------------------------

    def _pair(self) -> Conflict:
        """Two accesses that nothing orders."""
        shown = self.shown
        first, second = self._first(), self._access(shown.second)
        source, target = first.timeline, second.timeline
        notes = [*self._notes()]
        if shown.missed is not None:
            notes = [*map(_placed, shown.missed.notes), *notes]
        elif shown.wait is not None:
            message = f"{quoted(target)} waits here, which does not cover {quoted(first.operation)}"
            notes.insert(0, Note(message, span_of(shown.wait)))
        host = None if shown.second.timeline.origin != "host" else second.reads_or_writes
        if second.given is not None:
            notes.append(Note(f"{quoted(target)} is given the host function here", second.given))
        gradient: Literal["result", "initial"] | None = None
        if shown.code in ("SS111", "SS112"):
            gradient = "result" if shown.code == "SS111" else "initial"
        facts = Facts(
            host=host,
            gradient=gradient,
            ineffective_wait=shown.code == "SS103",
            interop=shown.code == "SS501",
        )
        return Conflict(
            second, first, self._memory(), facts, self._missing(source, target), notes=tuple(notes)
        )

    def _reuse(self) -> Conflict:
        """Memory that is handed out again while a stream may still use it: the use comes first."""
        shown = self.shown
        block, use = shown.block, shown.second
        where = dict(shown.notes)
        memory = self._memory()
        allocating = timeline_name(shown.first.timeline) if shown.first is not None else CURRENT
        reused, released = where.get("reused"), where.get("released")
        next_life = reused or released or use.site
        second = Access("the next allocation", allocating, "writes", span_of(next_life))
        first = self._access(use)
        notes = []
        home = block.home if block is not None else None
        name = quoted(memory.name) or "the memory"
        if home is not None:
            notes.append(
                Note(f"{name} is allocated on {quoted(allocating)}", span_of(home), role="allocated")
            )
        if released is not None:
            notes.append(Note(f"the last reference to {name} is dropped", span_of(released), role="released"))
        if reused is not None:
            notes.append(
                Note(f"the memory is reused on {quoted(allocating)}", span_of(reused), role="reused")
            )
        notes += [note for note in self._notes() if note.message not in ("released", "reused")]
        cupy = shown.code == "SS202"
        facts = Facts(
            reuse="cupy" if cupy else "torch", gradient="initial-reuse" if shown.code == "SS113" else None
        )
        edge = self._edge("wait" if cupy else "record", first.timeline, allocating)
        edge = replace(edge, memory=memory.name, when="released" if cupy else "")
        return Conflict(
            second,
            first,
            memory,
            facts,
            missing(first.timeline, allocating, edge),
            notes=tuple(notes),
            latent=reused is None,
        )

    def _violation(self) -> Conflict:
        """Something that is illegal, or wrong, where it stands."""
        shown = self.shown
        second = self._access(shown.second)
        notes = self._notes()
        facts = Facts(violation=VIOLATIONS[shown.code], cause=CAUSES.get(shown.second.op, ""))
        wait: Missing | None = None
        if shown.code == "SS312":
            facts = replace(
                facts, timing=next((TIMING[text] for text, _ in shown.notes if text in TIMING), None)
            )
        elif shown.code == "SS311" and shown.first is not None:
            pending = timeline_name(shown.first.timeline)
            wait = missing(pending, HOST, self._edge("device", pending, HOST))
            notes.insert(0, Note("this is not finished", span_of(shown.first.site)))
        elif shown.code == "SS403":
            second = replace(second, operation=_letting_go(shown.second))
            if shown.first is not None and shown.first.site is not None:
                notes.insert(0, Note("the capture uses it here", span_of(shown.first.site)))
        elif shown.code == "SS411" and shown.first is not None:
            notes.insert(0, Note("another thread uses CUDA", span_of(shown.second.site)))
        return Conflict(second, None, self._memory(), facts, wait, notes=tuple(notes))

    # -- its parts ---------------------------------------------------------------------------------------------------

    def _first(self) -> Access:
        """The first access; where the caller has made it, it has no place but that of the stream."""
        first = self.shown.first
        assert first is not None
        access = self._access(first)
        if access.span is None:
            made = next((site for text, site in self.shown.notes if text == "the stream"), None)
            access = replace(access, span=span_of(made or self.shown.second.site))
        return access

    def _access(self, use: Use) -> Access:
        return Access(
            operation_name(use.op),
            timeline_name(runs_on(use)),
            "writes" if use.write else "reads",
            span_of(use.site),
            given=span_of(use.given[1]) if use.given is not None else None,
        )

    def _memory(self) -> Memory:
        block: Block | None = self.shown.block
        if block is None:
            return Memory("")
        owner: Literal["torch", "cupy", "pinned", "host", "unknown"] = "torch"
        if block.place == "pinned":
            owner = "pinned"
        elif block.place in ("pageable", "host"):
            owner = "host"
        elif block.lib == "cupy":
            owner = "cupy"
        return Memory(memory_name(block), owner)

    def _notes(self) -> list[Note]:
        return [
            Note(NOTES.get(text, text), span_of(site))
            for text, site in self.shown.notes
            if site is not None and text not in ("released", "reused")
        ]

    def _missing(self, source: str, target: str) -> Missing:
        """The edge by which ``target`` comes after ``source``."""
        edge = self._edge("synchronize" if target == HOST else "wait", source, target)
        if edge.source.name == CURRENT and edge.target.code and edge.kind == "wait":
            edge = replace(edge, when="current")
        return missing(source, target, edge)

    def _edge(
        self, kind: Literal["wait", "synchronize", "device", "record"], source: str, target: str
    ) -> Edge:
        """An edge in the words of the file of the second access."""
        last = self.shown.second
        site = last.site if last.given is None else last.given[1]
        assert site is not None  # else there is no conflict
        imports: Mapping[str, str] = site[0].imports
        waiting = runs_on(last)
        used = waiting.lib
        if self.shown.first is not None and waiting.origin == "host":
            used = self.shown.first.timeline.lib
        library: Literal["torch", "cupy"] = "cupy" if used == "cupy" else "torch"
        module = next((name for name, dotted in imports.items() if dotted == library), library)

        # beside CuPy, PyTorch's name for the default stream is not known to be CuPy's
        alone = (library == "cupy" and kind != "record") or not any(
            each.partition(".")[0] == "cupy" for each in imports.values()
        )

        def known(name: str) -> Named:
            if name == CURRENT:
                return current(library, module)
            if name == DEFAULT and alone:
                return default(library, module)
            return Named(name, "" if " " in name or "[..." in name else name)

        return Edge(kind, known(source), known(target), library=library, module=module, in_source=True)

    def _assumptions(self) -> tuple[Assumption, ...]:
        shown = self.shown
        memory = named(self._memory().name, "the memory")
        uses = [use for use in (shown.second, shown.first) if use is not None]
        one, other = timeline_name(uses[-1].timeline), timeline_name(uses[0].timeline)
        common = Words(
            memory=memory,
            first=quoted(one),
            second=quoted(other) if one != other else f"another {quoted(other)}",
            operation=quoted(operation_name(uses[0].op)),
            stream=quoted(other),
            earlier=named(function_at(uses[-1].site), "the function"),
            later=named(function_at(uses[0].site), "the function"),
        )
        words = {"": common}
        spans: dict[str, Span | None] = {"": span_of(shown.second.site)}
        for use in uses:
            for tag in use.notes:
                said = replace(
                    common,
                    operation=quoted(operation_name(use.op)),
                    stream=quoted(timeline_name(use.timeline)),
                )
                words.setdefault(tag, said)
                spans.setdefault(tag, span_of(use.site))
        return assumptions.assumed(shown.code, self.tags, words, spans)

    # -- the witness -------------------------------------------------------------------------------------------------

    def _witness(self) -> list[Note]:
        """The path from the first access to the second: three to six lines, in the order of time."""
        shown = self.shown
        first, second = shown.first, shown.second
        if shown.code in VIOLATIONS and shown.code not in ("SS311", "SS403"):
            first = None
        if shown.code in assumptions.REUSE:
            return self._witness_of_reuse()
        begin = first.call if first is not None and first.site is not None else second.call
        steps: list[Note] = []
        if first is not None and first.site is not None:
            steps += self._entering(first)
            steps.append(self._did(first))
        between = self._between(begin, second.call, (second.timeline,))
        last = [*self._entering(second, begin), self._did(second)]
        room = LONGEST_PATH - len(steps) - len(last)
        return [*steps, *_notes_of(between)[-room:], *last] if room > 0 else [*steps, *last][:LONGEST_PATH]

    def _witness_of_reuse(self) -> list[Note]:
        use = self.shown.second
        where = dict(self.shown.notes)
        memory = named(self._memory().name, "the memory")
        home = self.shown.block.home if self.shown.block is not None else None
        steps = [Note(f"{memory} is allocated", span_of(home))] if home is not None else []
        steps += [*self._entering(use), self._did(use)]
        if where.get("released") is not None:
            steps.append(Note(f"{memory} is released", span_of(where["released"])))
        if where.get("reused") is not None:
            steps.append(Note("its memory is handed out again", span_of(where["reused"])))
        return steps

    def _entering(self, use: Use, after: int = -1) -> list[Note]:
        """Where the stream of an access became the current one."""
        trail = self.shown.trail
        step = trail.entered(runs_on(use), use.call) if trail is not None else None
        return _notes_of([step]) if step is not None and step.at >= after else []

    def _between(self, begin: int, end: int, waiters: tuple[Timeline, ...]) -> list[Passed]:
        """What the path does between two times that a reader has to know."""
        trail = self.shown.trail
        steps: list[Passed] = trail.between(begin, end) if trail is not None else []
        shown = [
            s
            for s in steps
            if s.what in ("returns", "decides") or (s.what == "waits" and s.stream in waiters)
        ]
        return shown

    def _did(self, use: Use) -> Note:
        memory = named(self._memory().name, "")
        what = quoted(operation_name(use.op))
        if not memory:
            return Note(what, span_of(use.site))
        does = "writes" if use.write else "reads"
        return Note(f"{what} {does} {memory} on {quoted(timeline_name(runs_on(use)))}", span_of(use.site))


def _notes_of(steps: Iterable[Passed]) -> list[Note]:
    """Steps of a path, each place once."""
    found: dict[tuple[str, Span | None], Note] = {}
    for step in steps:
        named = [quoted(timeline_name(stream)) for stream in step.streams]
        note = Note(step.text.format(*named) if named else step.text, span_of(step.site))
        found.setdefault((note.message, note.span), note)
    return list(found.values())


def _letting_go(use: Use) -> str:
    """How memory that a graph uses is let go of."""
    node = use.site[1] if use.site is not None else None
    if isinstance(node, (ast.Assign, ast.AugAssign, ast.AnnAssign)):
        return "replaced"
    return "released"


# -- names and places ------------------------------------------------------------------------------------------------


def timeline_name(timeline: Timeline) -> str:
    """A stream as a user would write it, or a description of it."""
    if timeline.origin == "host":
        return HOST
    name: str = timeline.name
    return "a stream" if not name or name.startswith("<") else name


def runs_on(use: Use) -> Timeline:
    """The stream of an access; of what a host function does, the stream that calls it."""
    return use.timeline if use.given is None else use.given[0]


def memory_name(block: Block) -> str:
    """What the program calls a block; empty where it has no name."""
    text: str = block.text
    if text == "gradients":
        return "the gradient of a parameter"
    return "" if text.startswith("<") else text


def _placed(note: Note) -> Note:
    """A note of the order engine, with its place as a span."""
    if not note.stack:
        return note
    at = note.stack[0]
    return Note(
        note.message, Span(at.filename, at.line, at.column, at.end_line, at.end_column), role=note.role
    )


def span_of(site: tuple[Any, ast.AST] | None) -> Span | None:
    """The place of a node; columns count characters."""
    if site is None or getattr(site[1], "lineno", None) is None:
        return None
    module, node = site
    row, end_row = node.lineno, node.end_lineno or node.lineno  # type: ignore[attr-defined]
    lines = _lines(module)
    if isinstance(
        node,
        (
            ast.FunctionDef,
            ast.AsyncFunctionDef,
            ast.ClassDef,
            ast.With,
            ast.AsyncWith,
            ast.For,
            ast.If,
            ast.While,
            ast.Try,
        ),
    ):
        end_row = row
        end = len(lines[row - 1]) if row <= len(lines) else 0
    else:
        end = _characters(lines, end_row, node.end_col_offset or 0)  # type: ignore[attr-defined]
    begin = _characters(lines, row, node.col_offset)  # type: ignore[attr-defined]
    return Span(module.path, row, begin + 1, end_row, max(end + 1, begin + 2) if end_row == row else end + 1)


def _lines(module: Any) -> list[str]:
    known: list[str] | None = module.__dict__.get("lines")
    if known is None:
        known = module.lines = module.text.split("\n")
    return known


def _characters(lines: list[str], row: int, offset: int) -> int:
    """How many characters so many bytes of a line are."""
    if row > len(lines):
        return offset
    line = lines[row - 1]
    return offset if line.isascii() else len(line.encode()[:offset].decode(errors="replace"))


def function_at(site: tuple[Any, ast.AST] | None) -> str:
    """The innermost function that a place lies in, as it is called; empty at the top of a file."""
    if site is None or getattr(site[1], "lineno", None) is None:
        return ""
    module, node = site
    found, size = "", 1 << 30
    for function in module.all_functions:
        begin, end = function.node.lineno, function.node.end_lineno
        if begin <= node.lineno <= end and end - begin < size and function.name != "<lambda>":  # type: ignore[attr-defined]
            found, size = f"{function.name}()", end - begin
    return found
