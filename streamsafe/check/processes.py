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
        largest_first = sorted(left, key=lambda at: (-tasks[at].size, tasks[at].path))
        futures = {workers.submit(check, tasks[at]): at for at in largest_first}
        try:
            for future in as_completed(futures):
                keep(futures[future], future.result())
                del left[futures[future]]
        except BrokenProcessPool:
            pass
        except KeyboardInterrupt:
            workers.shutdown(wait=False, cancel_futures=True)
            raise
    for at in left:  # only after a process died: each file that is left has one for itself
        keep(at, _alone(tasks[at], check, begin))


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
