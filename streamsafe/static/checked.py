"""One file: parsed, and checked by itself or together with what it uses of other files of its project."""

from __future__ import annotations

import os
from dataclasses import replace

from streamsafe.check.cache import Cache, decode, encode, key_of
from streamsafe.check.task import ADVICE, Checked, Task, syntax_error
from streamsafe.order.hazard import Confidence, Conflict
from streamsafe.static.analysis import Analysis


def check_file(task: Task) -> Checked:
    """Check a file together with the definitions of its project that it uses, and by itself where that says more.

    Where nothing shows with the others, nothing shows: what the file alone would show rests on less. Advice counts for
    advice only. What shows in both is as sure as it is in the file alone. Nothing is raised: an internal error becomes
    ``crash``; one of a file with others costs what these would have shown, and nothing else: it is a note.
    """
    from streamsafe.project import footprint

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
