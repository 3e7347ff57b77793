"""Work on many files, in one process or in several, with the results in the order of the files."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from streamsafe.check.task import Checked, Task

if TYPE_CHECKING:
    from concurrent.futures import Future, ProcessPoolExecutor

PARALLEL_FROM = 200_000
"""Bytes of source to analyse from which processes are worth starting."""


SHARES = 16
"""Shares of the files for each process. What several files of a share import is parsed once."""


def processors() -> int:
    """How many processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Stopped(Exception):
    """The user has stopped the check (Ctrl-C). What is done is done."""


def check_all(
    tasks: Sequence[Task],
    check: Callable[[Task], Checked],
    jobs: int = 0,
    done: Callable[[int, int], None] | None = None,
    finished: Callable[[Checked], None] | None = None,
    begin: tuple[Callable[..., None], Sequence[Any]] | None = None,
) -> list[Checked]:
    """Check files, in the order given.

    Args:
        tasks: the files.
        check: checks one.
        jobs: at most so many processes; 0 for as many as there are processors.
        done: called after each file with how many are done, of how many.
        finished: called with each result as it comes.
        begin: a function and its arguments that every process calls first.

    Raises:
        Stopped: the user has stopped the check.
    """
    jobs = min(jobs or processors(), len(tasks))
    results: dict[int, Checked] = {}

    def keep(at: int, checked: Checked) -> None:
        results[at] = checked
        if finished is not None:
            finished(checked)
        if done is not None:
            done(len(results), len(tasks))

    try:
        if jobs > 1 and sum(task.size for task in tasks) >= PARALLEL_FROM:
            _in_parallel(tasks, jobs, check, keep, begin)
        for at, task in enumerate(tasks):
            if at not in results:
                keep(at, check(task))
    except KeyboardInterrupt:
        raise Stopped from None
    return [results[at] for at in range(len(tasks))]


def _in_parallel(
    tasks: Sequence[Task],
    jobs: int,
    check: Callable[[Task], Checked],
    keep: Callable[[int, Checked], None],
    begin: tuple[Callable[..., None], Sequence[Any]] | None,
) -> None:
    from concurrent.futures import as_completed
    from concurrent.futures.process import BrokenProcessPool
    from contextlib import suppress as suppressing
    from importlib import import_module

    with suppressing(Exception):  # before the fork, so that it is paid once; a failure shows in each file
        import_module("streamsafe.check.check")

    left = dict.fromkeys(range(len(tasks)))
    with pool(jobs, begin) as workers:
        futures = {
            workers.submit(_check_some, check, [tasks[at] for at in some]): some
            for some in _shares(tasks, jobs * SHARES)
        }
        try:
            for future in as_completed(futures):
                for at, checked in zip(futures[future], future.result(), strict=True):
                    keep(at, checked)
                    del left[at]
        except BrokenProcessPool:
            pass
        except KeyboardInterrupt:
            workers.shutdown(wait=False, cancel_futures=True)
            raise
    for at in left:  # only after a process died: each file that is left has one for itself
        keep(at, _alone(tasks[at], check, begin))


def _shares(tasks: Sequence[Task], count: int) -> list[list[int]]:
    """The numbers of the tasks in about so many shares of the same size, each of files that lie beside each other."""
    most = sum(task.size for task in tasks) / count
    shares: list[list[int]] = []
    size = most
    for at in sorted(range(len(tasks)), key=lambda at: tasks[at].path):
        if size >= most:
            shares.append([])
            size = 0
        shares[-1].append(at)
        size += tasks[at].size
    return shares


def _check_some(check: Callable[[Task], Checked], tasks: Sequence[Task]) -> list[Checked]:
    return [check(task) for task in tasks]


def _alone(
    task: Task, check: Callable[[Task], Checked], begin: tuple[Callable[..., None], Sequence[Any]] | None
) -> Checked:
    from concurrent.futures.process import BrokenProcessPool

    with pool(1, begin) as workers:
        future: Future[Checked] = workers.submit(check, task)
        try:
            return future.result()
        except BrokenProcessPool:
            return Checked(task.path, crash="the process that analysed it died")


def _start(begin: tuple[Callable[..., None], Sequence[Any]] | None) -> None:
    """What a process does first. Ctrl-C ends it without a word: the process that started it has the word."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    if begin is not None:
        begin[0](*begin[1])


def pool(jobs: int, begin: tuple[Callable[..., None], Sequence[Any]] | None = None) -> ProcessPoolExecutor:
    """So many processes, which Ctrl-C ends without a word."""
    import multiprocessing
    from concurrent.futures import ProcessPoolExecutor

    method = "fork" if sys.platform == "linux" else None  # elsewhere a fork is not safe
    context = multiprocessing.get_context(method)
    return ProcessPoolExecutor(jobs, mp_context=context, initializer=_start, initargs=(begin,))
