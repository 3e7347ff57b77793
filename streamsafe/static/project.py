"""Many files: read, prefiltered, analysed in one process or several, each file by itself.

The result does not depend on the order of the files or on the number of processes.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

from streamsafe import suppressions
from streamsafe.config import Models
from streamsafe.order.hazard import CONFIDENCES, Access, Confidence, Conflict, Facts, Memory, Span
from streamsafe.static import prefilter

if TYPE_CHECKING:
    from concurrent.futures import Future, ProcessPoolExecutor

    from streamsafe.static.discovery import File

PARALLEL_FROM = 200_000
"""Bytes of source to analyse from which processes are worth starting."""


@dataclass(slots=True)
class Checked:
    """What came of one file.

    Attributes:
        conflicts: what the analysis found; a file that cannot be parsed has one violation, ``syntax-error``.
        explanation: what is known at the row asked for (`--explain-line`).
        crash: an internal error, in one sentence; the file was not checked.
        notes: where a limit cut the analysis of a function short.
        linked: the definitions of other files that it was checked with: file, first and last row.
    """

    path: str
    conflicts: list[Conflict] = field(default_factory=list)
    explanation: list[str] = field(default_factory=list)
    crash: str | None = None
    notes: list[str] = field(default_factory=list)
    linked: Sequence[tuple[str, int, int]] = ()

    def uses(self, span: Span) -> bool:
        """Whether a place lies in a definition of another file that this one was checked with."""
        return any(path == span.filename and first <= span.row <= last for path, first, last in self.linked)


@dataclass(frozen=True, slots=True)
class Task:
    """A file to parse.

    Attributes:
        size: bytes.
        analyse: whether the analysis runs; else all that can be found is that the file does not parse.
        report_syntax: whether it is reported that the file does not parse.
        data: the bytes, where they cannot be read again (standard input).
        related: names of what has to do with streams in the project.
    """

    path: str
    size: int
    models: Models
    analyse: bool = True
    report_syntax: bool = True
    data: bytes | None = None
    related: frozenset[bytes] = frozenset()


LOOKS_A_PROCESS = 1000
"""Files to read for which a process is worth starting."""

COLLECT_AFTER = 1_000_000
"""How many new objects call for a search for unreachable cycles: an analysis leaves few."""


@dataclass(slots=True)
class Plan:
    """What is to be done, after every file was read once.

    Attributes:
        tasks: files to parse.
        mentions: files that may hold a suppression of ours.
        unread: files that cannot be read, with the reason.
        looked: all files that were read, and whether they have stream code.
    """

    tasks: list[Task] = field(default_factory=list)
    mentions: set[str] = field(default_factory=set)
    unread: list[Checked] = field(default_factory=list)
    looked: dict[str, bool] = field(default_factory=dict)


def plan(
    files: Sequence[File], given: Mapping[str, bytes], *, use_prefilter: bool = True, jobs: int = 0
) -> Plan:
    """Read the files and keep those worth parsing.

    That a file does not parse is reported when it has stream code or is named, with and without the prefilter: a
    Python 2 file or a template somewhere in a tree is nobody's business here.

    Args:
        files: the files to check.
        given: the bytes of files that are not to be read from disk.
        use_prefilter: when false, every file is analysed.
        jobs: at most so many processes; 0 for as many as there are processors.
    """
    result = Plan()
    for file, look in zip(files, _looks(files, given, jobs), strict=True):
        if look.problem:
            result.unread.append(Checked(file.path, [syntax_error(file.path, look.problem)]))
            continue
        result.looked[file.path] = look.concerned
        if look.mentions:
            result.mentions.add(file.path)
        task = Task(
            file.path,
            look.size,
            file.config.models,
            analyse=look.concerned or not use_prefilter,
            report_syntax=look.concerned or file.named,
            data=given.get(file.path),
        )
        if task.analyse or task.report_syntax:
            result.tasks.append(task)
    return result


class _Look(NamedTuple):
    """What the bytes of a file say."""

    size: int = 0
    concerned: bool = False
    mentions: bool = False
    problem: str = ""


def _look(file: File, data: bytes | None = None) -> _Look:
    if data is None:
        try:
            with open(file.path, "rb") as opened:
                data = opened.read()
        except OSError as error:
            return _Look(problem=f"cannot be read: {error.strerror or error}")
    return _Look(len(data), prefilter.concerned(data, file.config.models), suppressions.mentioned(data))


def _looks(files: Sequence[File], given: Mapping[str, bytes], jobs: int) -> Iterable[_Look]:
    """What the bytes of each file say; of many files, found out by several processes."""
    jobs = min(jobs or processors(), len(files) // LOOKS_A_PROCESS)
    if jobs > 1 and not given:
        from concurrent.futures.process import BrokenProcessPool

        try:
            with pool(jobs) as workers:
                return [*workers.map(_look, files, chunksize=len(files) // (4 * jobs) + 1)]
        except BrokenProcessPool:
            pass  # this process can do it alone
    return (_look(file, given.get(file.path)) for file in files)


def check(
    tasks: list[Task],
    jobs: int = 0,
    done: Callable[[int, int], None] | None = None,
    looked: Mapping[str, bool] | None = None,
) -> list[Checked]:
    """Check files, in the order given: each by itself, then with what it uses of other files of its project.

    Args:
        tasks: the files.
        jobs: at most so many processes; 0 for as many as there are processors.
        done: called after each file with how many are done, of how many.
        looked: all files that were read, and whether they have stream code.
    """
    from streamsafe.static import elsewhere, linking

    elsewhere.forget()  # files may have changed since an earlier run in this process
    linking.forget()
    # trees and tables are many and live long: looking through them for cycles would be a tenth of the time
    thresholds = gc.get_threshold()
    gc.set_threshold(COLLECT_AFTER)
    try:
        linked = _to_link(tasks)
        total = len(tasks) + len(linked)
        results = _all(tasks, jobs, check_one, done, 0, total)
        more = _all(linked, jobs, check_linked, done, len(tasks), total)
        return _merged(results, more, looked or {})
    finally:
        gc.set_threshold(*thresholds)


def _to_link(tasks: Sequence[Task]) -> list[Task]:
    """The files that are checked once more, with what they use: those with stream code, and who calls these.

    Who calls them is looked for in their packages, named or not: the paths that are named decide what is reported, not
    what is known.
    """
    from streamsafe.static import linking
    from streamsafe.static.units import beside

    own = [task for task in tasks if task.analyse and task.data is None]
    if not own:
        return []
    paths = [task.path for task in own]
    callers, related = linking.callers(paths, sorted(beside(paths) - set(paths)))
    more = [Task(path, os.path.getsize(path), own[0].models) for path in callers]
    return [replace(task, related=related) for task in (*own, *more)]


def _merged(results: list[Checked], linked: Sequence[Checked], looked: Mapping[str, bool]) -> list[Checked]:
    """What files show by themselves, and what they show with others where that is more."""
    found = {each.path: each for each in results}
    shown: dict[object, Conflict] = {}
    for each in results:
        shown.update((_shown_as(conflict), conflict) for conflict in each.conflicts)
    for each in linked:
        for conflict in each.conflicts:
            span = conflict.shown_at
            if span is None or _is_refuted(conflict, each, linked):
                continue
            known = shown.get(_shown_as(conflict))
            if known is not None and _strength(known) >= _strength(conflict):
                continue
            shown[_shown_as(conflict)] = conflict
            if span.filename not in found and span.filename in looked:
                found[span.filename] = Checked(span.filename)
                results.append(found[span.filename])
            if span.filename in found:
                own = found[span.filename].conflicts
                own[:] = [other for other in own if other is not known]
                own.append(conflict)
                _replaced(conflict, each, found)
        if each.notes and each.path in found:
            known_notes = found[each.path].notes
            known_notes += [note for note in each.notes if note not in known_notes]
    return results


def _replaced(conflict: Conflict, linked: Checked, found: Mapping[str, Checked]) -> None:
    """Take away what a file shows of the same first access by itself, where with others it shows another second one.

    By itself it shows the call; with others it shows what the callee does.
    """
    alone = found.get(linked.path)
    if alone is None or conflict.first is None or conflict.confidence == "possible":
        return
    exact = {_shown_as(each) for each in linked.conflicts}
    alone.conflicts[:] = [
        other
        for other in alone.conflicts
        if other is conflict
        or other.first is None
        or other.first.span != conflict.first.span
        or _shown_as(other) in exact
    ]


def _shown_as(conflict: Conflict) -> object:
    """What two conflicts have in common that are one to a user."""
    facts = conflict.facts
    return conflict.shown_at, facts.violation, facts.reuse, facts.host, facts.gradient is not None


def _strength(conflict: Conflict) -> int:
    return -CONFIDENCES.index(conflict.confidence)


def _is_refuted(conflict: Conflict, of: Checked, linked: Sequence[Checked]) -> bool:
    """Whether who calls the definitions that a conflict is about is in sight elsewhere, and shows no such conflict.

    A file is seen without its callers; a file that uses both places is one of them.
    """
    spans = [
        access.span for access in (conflict.first, conflict.second) if access is not None and access.span
    ]
    refuted = False
    for other in linked:
        if other is of or not all(other.uses(span) for span in spans):
            continue
        if any(_shown_as(each) == _shown_as(conflict) for each in other.conflicts):
            return False
        refuted = True
    return refuted


def _all(
    tasks: list[Task],
    jobs: int,
    check: Callable[[Task], Checked],
    done: Callable[[int, int], None] | None,
    before: int,
    total: int,
) -> list[Checked]:
    """Check files in the order given, in one process or in several."""
    jobs = min(jobs or processors(), len(tasks))

    def tell(count: int) -> None:
        if done is not None:
            done(before + count, total)

    if jobs > 1 and sum(task.size for task in tasks) >= PARALLEL_FROM:
        return _in_parallel(tasks, jobs, check, tell)
    results = []
    for task in tasks:
        results.append(check(task))
        tell(len(results))
    return results


def _weaker(conflict: Conflict) -> Conflict:
    """A conflict that rests on one assumption more: that a name means what the imports say, and nobody else calls."""
    weaker: Confidence = "likely" if conflict.confidence == "certain" else "possible"
    return replace(conflict, confidence=weaker)


def check_linked(task: Task) -> Checked:
    """Check a file together with the definitions of its project that it uses. Nothing is raised.

    An internal error costs what other files would have shown, and nothing else: it is a note.
    """
    from streamsafe.static.analyze import analyze
    from streamsafe.static.linking import link

    checked = Checked(task.path)
    try:
        linked = link(task.path, task.related)
        if linked is not None:
            if linked.text:
                analysis = analyze(linked.text, task.path, models=task.models or None)
                checked.conflicts = [_weaker(linked.unlink(conflict)) for conflict in analysis.conflicts]
                checked.linked = linked.definitions
            if linked.cut_short:
                checked.notes = ["the file with what it imports: definitions left out"]
    except Exception as error:
        checked.notes = [f"the file with what it imports: {type(error).__name__}: {error}"]
    return checked


def check_one(task: Task, explain: int | None = None) -> Checked:
    """Check one file. Nothing is raised: an internal error becomes ``crash``.

    Args:
        task: the file.
        explain: a row to explain.
    """
    checked = Checked(task.path)
    try:
        _check_into(checked, task, explain)
    except Exception as error:
        frame = error.__traceback__
        while frame is not None and frame.tb_next is not None:
            frame = frame.tb_next
        where = f" ({os.path.basename(frame.tb_frame.f_code.co_filename)}:{frame.tb_lineno})" if frame else ""
        checked.crash = f"{type(error).__name__}: {error}{where}"
    return checked


def _check_into(checked: Checked, task: Task, explain: int | None) -> None:
    from streamsafe.static.reading import NESTED, SourceError, parse, read

    try:
        data = task.data
        if data is None:
            with open(task.path, "rb") as opened:
                data = opened.read()
        text = read(data, task.path)
        if task.analyse:
            from streamsafe.static.analyze import analyze

            analysis = analyze(text.text, task.path, models=task.models or None, explain=explain)
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


def processors() -> int:
    """How many processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _in_parallel(
    tasks: list[Task], jobs: int, check: Callable[[Task], Checked], tell: Callable[[int], None]
) -> list[Checked]:
    from concurrent.futures.process import BrokenProcessPool
    from contextlib import suppress as suppressing
    from importlib import import_module

    with suppressing(Exception):  # before the fork, so that it is paid once; a failure shows in each file
        import_module("streamsafe.static.analyze")

    results: dict[str, Checked] = {}
    with pool(jobs) as workers:
        largest_first = sorted(tasks, key=lambda task: (-task.size, task.path))
        futures = {task.path: workers.submit(check, task) for task in largest_first}
        for path, future in futures.items():
            try:
                results[path] = future.result()
                tell(len(results))
            except BrokenProcessPool:
                break
            except KeyboardInterrupt:
                workers.shutdown(wait=False, cancel_futures=True)
                raise
    for task in tasks:  # only after a process died: each file that is left has one for itself
        if task.path not in results:
            results[task.path] = _alone(task, check)
    return [results[task.path] for task in tasks]


def _alone(task: Task, check: Callable[[Task], Checked]) -> Checked:
    from concurrent.futures.process import BrokenProcessPool

    with pool(1) as workers:
        future: Future[Checked] = workers.submit(check, task)
        try:
            return future.result()
        except BrokenProcessPool:
            return Checked(task.path, crash="the process that analysed it died")


def pool(jobs: int) -> ProcessPoolExecutor:
    """So many processes, which Ctrl-C ends without a word."""
    import multiprocessing
    import signal
    from concurrent.futures import ProcessPoolExecutor

    method = "fork" if sys.platform == "linux" else None  # elsewhere a fork is not safe
    # Ctrl-C ends a worker without a word: the process that started it has the word
    return ProcessPoolExecutor(
        jobs,
        mp_context=multiprocessing.get_context(method),
        initializer=signal.signal,
        initargs=(signal.SIGINT, signal.SIG_DFL),
    )
