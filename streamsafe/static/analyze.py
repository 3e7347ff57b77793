"""From source text to conflicts: the one entry of the static side."""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Literal, cast

from streamsafe.order.hazard import (
    Access,
    Confidence,
    Conflict,
    Facts,
    Memory,
    Missing,
    Mode,
    Note,
    quoted,
)
from streamsafe.static.analysis import Analysis
from streamsafe.static.autograd import GRADIENT_MADE
from streamsafe.static.facts import AGAIN, GRADIENTS, INITIAL, Assumed, Detail, Finding, Site
from streamsafe.static.interpreter import Interpreter
from streamsafe.static.roots import Roots
from streamsafe.static.source import ClassUnit, SourceFile
from streamsafe.static.suggestions import Help
from streamsafe.static.values import Name

if TYPE_CHECKING:
    from streamsafe.project.settings import Models

_RECURSION = 20_000


def analyze(
    source: str,
    filename: str,
    *,
    models: Models | None = None,
    explain: int | None = None,
    own: range | None = None,
) -> Analysis:
    """Interpret a file and say which accesses meet with no edge between them.

    Args:
        source: the text.
        filename: for spans.
        models: the user's own wrappers.
        explain: a line of which to tell the streams, accesses and edges.
        own: the rows whose functions and classes are entries; None for all. Those of other rows are interpreted where
            something calls them.

    Raises:
        SourceError: it does not parse.
    """
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(max(limit, _RECURSION))
    try:
        file = SourceFile(source, filename, own)
        with Name.kept():
            interpreter = _interpret(file, models, explain)
            more = interpreter.run.modules and any(
                f.buffer == GRADIENTS for f in interpreter.run.findings.values()
            )
            if more or interpreter.run.found_pool_sizes:
                # what is called further down tells whose gradients a hook or a pass further up is about, and
                # what is made further down of which numbers it matters what they are
                interpreter = _interpret(file, models, explain, interpreter)
            analysis = Analysis(_conflicts(interpreter))
            if explain is not None:
                analysis.explanation = _explanation(interpreter, explain)
            analysis.notes = [
                f"{entry}: {limit}" for entry, limit in sorted(interpreter.run.cut_short.items())
            ]
            analysis.conflicts += [_conflict(each, interpreter) for each in interpreter.run.advice.values()]
            analysis.conflicts.sort(key=_place)
            analysis.entered = _entered(interpreter)
            _take_apart(interpreter)
            return analysis
    finally:
        sys.setrecursionlimit(limit)


def _interpret(
    file: SourceFile,
    models: Models | None,
    explain: int | None,
    earlier: Interpreter | None = None,
) -> Interpreter:
    """Interpret a file, with what an earlier reading has shown."""
    interpreter = Interpreter(file, models)
    interpreter.run.explained = None if explain is None else []
    if earlier is not None:
        interpreter.run.modules = earlier.run.modules
        interpreter.run.pool_sizes = earlier.run.found_pool_sizes
    _with_room(Roots(interpreter, models or ()).run)
    return interpreter


def _with_room(work: Callable[[], None]) -> None:
    """Do something with room for its frames in one piece.

    CPython takes memory for frames in pieces of 16 KB, and gives one back as soon as the frame that began it is left: a
    loop that calls across the end of a piece asks the system for memory in every round. The frame of this function
    claims so much that it needs a larger piece, half of which is left to what is called from here.
    """
    work()


# in words of 8 bytes; a piece is a power of two, here 1 MB
_with_room.__code__ = _with_room.__code__.replace(co_stacksize=70_000)


def _entered(interpreter: Interpreter) -> list[tuple[int, int]]:
    """The rows of the functions that were followed; a lambda inside one of them has no rows of its own."""
    named = [unit for unit in interpreter.run.entered if unit.node in interpreter.run.file.function_rows]
    slices = {unit.slice for unit in named}
    others = [unit for unit in interpreter.run.entered if unit.node not in interpreter.run.file.function_rows]
    return sorted(
        unit.slice.rows(unit.node) for unit in (*named, *(u for u in others if u.slice not in slices))
    )


def _take_apart(interpreter: Interpreter) -> None:
    """Undo the cycles: what is left of a file is then freed at once, and nobody has to search for it."""
    for unit in (*interpreter.run.units.values(), *interpreter.run.nested.values()):
        if isinstance(unit, ClassUnit):
            unit.methods.clear()
            unit.setters.clear()
    getattr(interpreter.run.file, "__dict__", {}).clear()  # one that is compiled has none
    interpreter.take_apart()


def _conflicts(interpreter: Interpreter) -> list[Conflict]:
    """Findings in their places; of several pairs that end at one operation for one missing edge, one."""
    groups: dict[tuple[object, ...], list[Finding]] = defaultdict(list)
    # an initial gradient that is not ordered is one hazard; its lifetime is another once it is
    unordered = {
        f.second.node
        for f in interpreter.run.findings.values()
        if f.kind == "pair" and INITIAL in f.tags and f.first
    }
    for finding in interpreter.run.findings.values():
        if interpreter.race_checks.is_no_tensor(finding.buffer, finding.assumed):
            continue
        if finding.kind == "reuse" and INITIAL in finding.tags and finding.second.node in unordered:
            continue
        groups[(finding.second.node, finding.kind, finding.streams)].append(finding)
    found = []
    # the passes that call a hook are seen: that some pass calls it says no more
    passes: dict[object, Confidence] = {}
    for findings in groups.values():
        findings.sort(key=lambda f: (f.assumed & Assumed.POSSIBLE, f.strong, f.assumed.value))
        conflict = _conflict(findings[0], interpreter)
        found.append((findings[0], conflict))
        if conflict.facts.gradient == "result" and not _of_some_pass(findings[0]):
            passes[findings[0].second.node] = min(
                conflict.confidence, passes.get(findings[0].second.node, "possible"), key=_RANK.__getitem__
            )
    unique: dict[tuple[object, ...], Conflict] = {}
    for finding, conflict in found:
        known_pass = passes.get(finding.second.node)
        if known_pass and _of_some_pass(finding) and _RANK[known_pass] <= _RANK[conflict.confidence]:
            continue
        place = conflict.first if conflict.facts.reuse or conflict.facts.gradient == "initial-reuse" else None
        access = place or conflict.second
        key = (access.span, conflict.facts, conflict.first.span if conflict.first else None)
        known = unique.get(key)
        if known is None or _RANK[conflict.confidence] < _RANK[known.confidence]:
            unique[key] = conflict
    return sorted(unique.values(), key=_place)


def _place(conflict: Conflict) -> tuple[object, ...]:
    """Where a conflict is put among the others."""
    second = conflict.second.span
    return second, conflict.first.span if conflict.first else second


def _of_some_pass(finding: Finding) -> bool:
    """Whether what a hook uses is the gradient that it was given by a pass that is not seen."""
    return finding.first is not None and finding.first.detail == GRADIENT_MADE


_RANK = {"certain": 0, "likely": 1, "possible": 2}


def _confidence(finding: Finding, interpreter: Interpreter) -> Confidence:
    """What a finding leans on decides: nothing, ordinary assumptions and one strong, more. A limit is one more."""
    if finding.assumed & Assumed.POSSIBLE:
        return "possible"
    strong = finding.strong
    untyped = finding.buffer is not None and finding.buffer.base() not in interpreter.run.tensorish
    if untyped and finding.assumed & Assumed.BLIND:
        return "possible"  # nothing shows that it is a tensor at all
    if untyped:
        strong += not finding.assumed & Assumed.PLACE
    if strong > 1:
        return "possible"
    cut = _is_cut_short(finding, interpreter)
    if strong or finding.assumed & (Assumed.UNMODELLED | Assumed.METHODS):
        return "possible" if cut else "likely"
    return "likely" if cut else "certain"


def _is_cut_short(finding: Finding, interpreter: Interpreter) -> bool:
    """Whether a limit cut the analysis of what a finding lies in short: what is left out may order it.

    Where a copy's memory lies does not hang on that: advice is as sure as before.
    """
    if interpreter.run.advice.get(finding.key) is finding:
        return False
    detail = finding.first.detail if finding.first is not None else None
    entries = {finding.entry, detail.entry if isinstance(detail, Detail) else finding.entry}
    return not entries.isdisjoint(interpreter.run.cut_short)


def _span(site: Site):  # type: ignore[no-untyped-def]
    return site.slice.span(site.node)


def _conflict(finding: Finding, interpreter: Interpreter) -> Conflict:
    confidence = _confidence(finding, interpreter)
    notes = [Note(text, _span(site)) for text, site in finding.notes]
    if finding.kind == "captured":
        return Conflict(
            second=Access(finding.operation, finding.timeline, "writes", _span(finding.second)),
            first=Access(
                "the allocation",
                finding.timeline,
                "writes",
                notes[0].span if notes else _span(finding.second),
            ),
            memory=Memory(finding.memory, "cupy"),
            facts=Facts(reuse="captured"),
            notes=tuple(notes),
            confidence=confidence,
        )
    if finding.kind not in ("pair", "reuse"):
        return Conflict(
            second=Access(finding.operation, finding.timeline, "reads", _span(finding.second)),
            first=None,
            memory=Memory(finding.memory),
            facts=Facts(violation=finding.kind, timing=_timing(finding)),
            missing=_synchronize(finding),
            notes=tuple(notes),
            confidence=confidence,
            methods=_methods(finding, finding.first.detail, interpreter)
            if finding.first is not None and isinstance(finding.first.detail, Detail)
            else (),
        )
    made = finding.first
    assert made is not None
    detail = cast("Detail", made.detail)
    writes: Mode = "writes"
    reads: Mode = "reads"
    apart = detail.entry != finding.entry or AGAIN in finding.tags
    if finding.kind == "reuse":
        return replace(
            _reuse(finding, detail, notes, confidence),
            between_calls=apart,
            methods=_methods(finding, detail, interpreter),
        )
    first = Access(
        detail.operation,
        finding.first_timeline,
        writes if made.writes else reads,
        _span(cast("Site", made.site)),
    )
    second = Access(
        finding.operation, finding.timeline, writes if finding.writes else reads, _span(finding.second)
    )
    host: Mode | None = None
    if "host" in finding.tags:
        host = second.reads_or_writes
    gradient = None
    if INITIAL in finding.tags and made.writes:
        gradient = "initial"
    elif "backward" in detail.tags:
        gradient, host = "result", None
    if finding.ineffective is not None and isinstance(finding.ineffective.site, Site):
        notes.append(Note("this wait does not cover it", _span(finding.ineffective.site)))
        if isinstance(finding.ineffective.recorded, Site):
            notes.append(Note("the event is recorded here", _span(finding.ineffective.recorded)))
        if confidence == "certain" and host is None and gradient is None and interpreter.run.file.own is None:
            confidence = "likely"  # who waits for the stream thought of the order: the wait may be misread
    return Conflict(
        second=second,
        first=first,
        memory=Memory(finding.memory or detail.memory),
        facts=Facts(
            host=host,
            gradient=gradient,  # type: ignore[arg-type]
            ineffective_wait=finding.ineffective is not None,
            interop=("unexchanged" in finding.tags) != ("first:unexchanged" in finding.tags),
        ),
        missing=Missing(first.timeline, second.timeline, _help(finding).edge(first, second, host)),
        notes=tuple(notes),
        confidence=confidence,
        between_calls=apart,
        methods=_methods(finding, detail, interpreter),
    )


def _methods(finding: Finding, detail: Detail, interpreter: Interpreter) -> tuple[str, ...]:
    """Two methods of a class that nothing calls, and of which nothing fixes the order, else none.

    A constructor comes first, a thread runs beside the others; autograd calls hooks and the methods of its functions.
    """
    entries = detail.entry, finding.entry
    if len({*entries}) < 2 or finding.buffer == GRADIENTS:
        return ()
    for entry in entries:
        owner, _, name = entry.rpartition(".")
        unit = (
            interpreter.definitions.unit(owner)
            if owner and entry in interpreter.run.file.definitions
            else None
        )
        if not isinstance(unit, ClassUnit) or name == "__init__" or any("Function" in b for b in unit.bases):
            return ()
        if unit.methods.get(name) in interpreter.run.waiting:
            return ()
    return entries


def _reuse(finding: Finding, detail: Detail, notes: list[Note], confidence: Confidence) -> Conflict:
    """The use that nothing covers is the place; the block's next life is the second access."""
    made = finding.first
    assert made is not None
    initial = INITIAL in finding.tags
    use = Access(detail.operation, finding.timeline, "reads", _span(finding.second))
    owner = "cupy" if "library:cupy" in finding.tags else "torch"
    if owner == "torch":
        fix = _help(finding).record(detail.memory, use.timeline)
    else:
        fix = _help(finding).before_release(use, finding.first_timeline, detail.memory)
    after = Access(
        "the next allocation", finding.first_timeline, "writes", notes[-1].span if notes else use.span
    )
    return Conflict(
        second=after,
        first=use,
        memory=Memory(detail.memory, owner),  # type: ignore[arg-type]
        facts=Facts(gradient="initial-reuse") if initial else Facts(reuse=owner),  # type: ignore[arg-type]
        missing=Missing(use.timeline, after.timeline, fix),
        notes=tuple(_step(note, detail.memory, after.timeline) for note in notes),
        confidence=confidence,
    )


def _step(note: Note, memory: str, allocating: str) -> Note:
    """A note about a block that is reused too early, as a step of its life."""
    name = quoted(memory) or "the memory"
    if note.message.startswith("allocated on "):
        on = quoted(note.message.removeprefix("allocated on "))
        return replace(note, message=f"{name} is allocated on {on}", role="allocated")
    if note.message.startswith("released here"):
        return replace(note, message=f"the last reference to {name} is dropped", role="released")
    if note.message.startswith("the next allocation"):
        message = f"the memory is reused on {quoted(allocating)}"
        return replace(note, message=message, role="reused")
    return note


def _timing(finding: Finding) -> Literal["untimed", "unrecorded", "pending"] | None:
    if "no timing" in finding.tags:
        return "untimed"
    if "not recorded" in finding.tags:
        return "unrecorded"
    return "pending" if "not complete" in finding.tags else None


def _synchronize(finding: Finding) -> Missing | None:
    """For a clock that is read too early: what to do before."""
    if finding.kind != "unsynchronized-timing":
        return None
    return Missing("the device", "the host", _help(finding).finished())


def _help(finding: Finding) -> Help:
    return Help(finding.second.slice.file.imports)


def _explanation(interpreter: Interpreter, line: int) -> list[str]:
    lines: dict[str, None] = {}
    for site, text in interpreter.run.explained or ():
        first, last = site.slice.rows(site.node)
        if first <= line <= last:
            lines[text] = None
    return list(lines)
