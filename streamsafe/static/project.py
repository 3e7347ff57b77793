"""Many files: read, prefiltered, analysed in one process or several, each file by itself.

The result does not depend on the order of the files or on the number of processes.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from streamsafe import suppressions
from streamsafe.config import Models
from streamsafe.order.hazard import Access, Conflict, Facts, Memory, Span
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
    """

    path: str
    conflicts: list[Conflict] = field(default_factory=list)
    explanation: list[str] = field(default_factory=list)
    crash: str | None = None
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Task:
    """A file to parse.

    Attributes:
        size: bytes.
        analyse: whether the analysis runs; else all that can be found is that the file does not parse.
        report_syntax: whether it is reported that the file does not parse.
        data: the bytes, where they cannot be read again (standard input).
    """

    path: str
    size: int
    models: Models
    analyse: bool = True
    report_syntax: bool = True
    data: bytes | None = None


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


def check(tasks: list[Task], jobs: int = 0, done: Callable[[int, int], None] | None = None) -> list[Checked]:
    """Check files, in the order given.

    Args:
        tasks: the files.
        jobs: at most so many processes; 0 for as many as there are processors.
        done: called after each file with how many are done, of how many.
    """
    from streamsafe.static import elsewhere

    elsewhere.forget()  # files may have changed since an earlier run in this process
    jobs = min(jobs or processors(), len(tasks))
    # trees and tables are many and live long: looking through them for cycles would be a tenth of the time
    thresholds = gc.get_threshold()
    gc.set_threshold(COLLECT_AFTER)
    try:
        if jobs > 1 and sum(task.size for task in tasks) >= PARALLEL_FROM:
            return _in_parallel(tasks, jobs, done)
        results = []
        for task in tasks:
            results.append(check_one(task))
            if done is not None:
                done(len(results), len(tasks))
        return results
    finally:
        gc.set_threshold(*thresholds)


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
    tasks: list[Task], jobs: int, done: Callable[[int, int], None] | None = None
) -> list[Checked]:
    from concurrent.futures.process import BrokenProcessPool
    from contextlib import suppress as suppressing
    from importlib import import_module

    with suppressing(Exception):  # before the fork, so that it is paid once; a failure shows in each file
        import_module("streamsafe.static.analyze")

    results: dict[str, Checked] = {}
    with pool(jobs) as workers:
        largest_first = sorted(tasks, key=lambda task: (-task.size, task.path))
        futures = {task.path: workers.submit(check_one, task) for task in largest_first}
        for path, future in futures.items():
            try:
                results[path] = future.result()
                if done is not None:
                    done(len(results), len(tasks))
            except BrokenProcessPool:
                break
            except KeyboardInterrupt:
                workers.shutdown(wait=False, cancel_futures=True)
                raise
    for task in tasks:  # only after a process died: each file that is left has one for itself
        if task.path not in results:
            results[task.path] = _alone(task)
    return [results[task.path] for task in tasks]


def _alone(task: Task) -> Checked:
    from concurrent.futures.process import BrokenProcessPool

    with pool(1) as workers:
        future: Future[Checked] = workers.submit(check_one, task)
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
