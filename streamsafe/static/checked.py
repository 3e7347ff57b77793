"""One file: parsed, and checked by itself or together with what it uses of other files of its project."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from streamsafe.order.hazard import Access, Confidence, Conflict, Facts, Memory, Span
from streamsafe.project.settings import Models
from streamsafe.static.analysis import Analysis
from streamsafe.static.cache import Cache, decode, encode, key_of

ADVICE = {"SS321": "pageable-non-blocking", "SS322": "pin-memory-then-copy"}
"""Rules that are off unless they are selected, and what they are about."""


@dataclass(slots=True)
class Checked:
    """What came of one file.

    Attributes:
        conflicts: what the analysis found; a file that cannot be parsed has one violation, ``syntax-error``.
        explanation: what is known at the row asked for (`--explain-line`).
        crash: an internal error, in one sentence; the file was not checked.
        notes: where a limit cut the analysis of a function short.
        with_others: what shows together with definitions of other files.
        linked: these definitions: file, first and last row.
        entered: the functions of other files that it calls: file, first and last row.
        caller: whether it was checked only for what it does with the stream code of other files.
        looked: files and directories that were looked at for it, as far as this process had not done so before.
    """

    path: str
    conflicts: list[Conflict] = field(default_factory=list)
    explanation: list[str] = field(default_factory=list)
    crash: str | None = None
    notes: list[str] = field(default_factory=list)
    with_others: list[Conflict] = field(default_factory=list)
    linked: Sequence[tuple[str, int, int]] = ()
    entered: Sequence[tuple[str, int, int]] = ()
    caller: bool = False
    looked: frozenset[str] = frozenset()

    def reaches(self, span: Span) -> bool:
        """Whether a place lies in a function of another file that this one calls, directly or by others."""
        return any(path == span.filename and first <= span.row <= last for path, first, last in self.entered)


@dataclass(frozen=True, slots=True)
class Task:
    """A file to parse.

    Attributes:
        size: bytes.
        analyse: whether the analysis runs; else all that can be found is that the file does not parse.
        report_syntax: whether it is reported that the file does not parse.
        data: the bytes, where they cannot be read again (standard input).
        related: names of what has to do with streams in the project.
        caller: whether it is checked only for what it does with the stream code of other files.
        cache: where what it shows is kept; "" for nowhere.
        advice: whether advice is asked for.
    """

    path: str
    size: int
    models: Models
    analyse: bool = True
    report_syntax: bool = True
    data: bytes | None = None
    related: frozenset[str] = frozenset()
    caller: bool = False
    cache: str = ""
    advice: bool = True


def check_file(task: Task) -> Checked:
    """Check a file together with the definitions of its project that it uses, and by itself where that says more.

    Where nothing shows with the others, nothing shows: what the file alone would show rests on less. Advice counts for
    advice only. What shows in both is as sure as it is in the file alone. Nothing is raised: an internal error becomes
    ``crash``; one of a file with others costs what these would have shown, and nothing else: it is a note.
    """
    from streamsafe.static import footprint

    if not task.analyse or task.data is not None:
        return check_one(task)
    cache = Cache(task.cache) if task.cache else None
    try:
        checked = _linked(task, cache)
    except Exception as error:
        checked = Checked(task.path, caller=task.caller)
        checked.notes = [f"the file with what it imports: {type(error).__name__}: {error}"]
    hazards = not checked.linked or not all(map(_is_advice, checked.with_others))
    if not task.caller and (hazards or (task.advice and checked.with_others)):
        alone = check_one(task, cache=cache)
        if not hazards:
            alone.conflicts = list(filter(_is_advice, alone.conflicts))
        alone.with_others, alone.linked, alone.entered = checked.with_others, checked.linked, checked.entered
        alone.notes += [note for note in checked.notes if note not in alone.notes]
        checked = alone
    checked.looked = footprint.drain()
    return checked


def _linked(task: Task, cache: Cache | None) -> Checked:
    """What a file shows together with the definitions of its project that it uses."""
    from streamsafe.static.linking import link

    checked = Checked(task.path, caller=task.caller)
    linked = link(task.path, task.related)
    if linked is None:
        return checked
    if linked.cut_short:
        checked.notes.append("the file with what it imports: definitions left out")
    if linked.text:
        analysis = _analysed(task, linked.text, cache, own=linked.own)
        checked.with_others = [_weaker(linked.unlink(conflict)) for conflict in analysis.conflicts]
        checked.linked = linked.definitions
        places = [linked.place(*rows) for rows in analysis.entered]
        checked.entered = [place for place in places if place[0] != task.path]
        checked.notes += analysis.notes
    return checked


def _is_advice(conflict: Conflict) -> bool:
    return conflict.facts.violation in ADVICE.values()


def _weaker(conflict: Conflict) -> Conflict:
    """A conflict that rests on one assumption more: that a name means what the imports say, and nobody else calls."""
    weaker: Confidence = "likely" if conflict.confidence == "certain" else "possible"
    return replace(conflict, confidence=weaker)


def _analysed(
    task: Task, text: str, cache: Cache | None, *, own: range | None = None, explain: int | None = None
) -> Analysis:
    """What the analysis of a text shows, which is kept for the next check."""
    key = key_of("text", task.path, text, repr(own), repr(task.models))
    entry = cache.load(key) if cache is not None and explain is None else None
    if cache is not None and entry is not None:
        try:
            return Analysis(
                [decode(each) for each in entry["conflicts"]],
                notes=list(entry["notes"]),
                entered=[(first, last) for first, last in entry["entered"]],
            )
        except (ValueError, KeyError, TypeError) as error:
            cache.broken(error)
    from streamsafe.static.analyze import analyze

    analysis = analyze(text, task.path, models=task.models or None, own=own, explain=explain)
    if cache is not None:
        conflicts = [encode(each) for each in analysis.conflicts]
        cache.store(key, {"conflicts": conflicts, "notes": analysis.notes, "entered": analysis.entered})
    return analysis


def check_one(task: Task, explain: int | None = None, cache: Cache | None = None) -> Checked:
    """Check one file. Nothing is raised: an internal error becomes ``crash``.

    Args:
        task: the file.
        explain: a row to explain.
        cache: where what it shows is kept.
    """
    checked = Checked(task.path)
    try:
        _check_into(checked, task, explain, cache)
    except Exception as error:
        frame = error.__traceback__
        while frame is not None and frame.tb_next is not None:
            frame = frame.tb_next
        where = f" ({os.path.basename(frame.tb_frame.f_code.co_filename)}:{frame.tb_lineno})" if frame else ""
        checked.crash = f"{type(error).__name__}: {error}{where}"
    return checked


def _check_into(checked: Checked, task: Task, explain: int | None, cache: Cache | None) -> None:
    from streamsafe.project.text import NESTED, SourceError, parse, read

    try:
        data = task.data
        if data is None:
            with open(task.path, "rb") as opened:
                data = opened.read()
        text = read(data, task.path)
        if task.analyse:
            analysis = _analysed(task, text.text, cache, explain=explain)
            checked.conflicts = list(analysis.conflicts)
            checked.explanation = list(analysis.explanation)
            checked.notes = list(analysis.notes)
        else:
            parse(text.text)
    except SourceError as error:
        problem = syntax_error(task.path, error.message, error.row, error.column)
    except (RecursionError, MemoryError):
        problem = syntax_error(task.path, NESTED)
    except OSError as error:
        problem = syntax_error(task.path, f"cannot be read: {error.strerror or error}")
    else:
        return
    checked.conflicts = [problem] if task.report_syntax else []


def syntax_error(path: str, message: str, row: int = 1, column: int = 1) -> Conflict:
    """A file that cannot be parsed, as a violation."""
    span = Span(path, row, column, row, column + 1)
    return violation("syntax-error", message, span)


def violation(name: str, operation: str, span: Span) -> Conflict:
    """A finding on the text of a file rather than on what it does."""
    access = Access(operation, timeline="", reads_or_writes="reads", span=span)
    return Conflict(second=access, first=None, memory=Memory(""), facts=Facts(violation=name))
