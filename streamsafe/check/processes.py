"""Work on many files, in one process or in several, with the results in the order of the files."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from streamsafe.check.task import Checked, Task

if TYPE_CHECKING:
    from concurrent.futures import Future, ProcessPoolExecutor

PARALLEL_FROM = 200_000
"""Bytes of source to analyse from which processes are worth starting."""


def processors() -> int:
    """How many processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def check_all(
    tasks: Sequence[Task],
    check: Callable[[Task], Checked],
    jobs: int = 0,
    done: Callable[[int, int], None] | None = None,
) -> list[Checked]:
    """Check files, in the order given.

    Args:
        tasks: the files.
        check: checks one.
        jobs: at most so many processes; 0 for as many as there are processors.
        done: called after each file with how many are done, of how many.
    """
    jobs = min(jobs or processors(), len(tasks))

    def tell(count: int) -> None:
        if done is not None:
            done(count, len(tasks))

    if jobs > 1 and sum(task.size for task in tasks) >= PARALLEL_FROM:
        return _in_parallel(tasks, jobs, check, tell)
    results = []
    for task in tasks:
        results.append(check(task))
        tell(len(results))
    return results


def _in_parallel(
    tasks: Sequence[Task], jobs: int, check: Callable[[Task], Checked], tell: Callable[[int], None]
) -> list[Checked]:
    from concurrent.futures.process import BrokenProcessPool
    from contextlib import suppress as suppressing
    from importlib import import_module

    with suppressing(Exception):  # before the fork, so that it is paid once; a failure shows in each file
        import_module("streamsafe.static.analyze")

    results: dict[int, Checked] = {}
    with pool(jobs) as workers:
        largest_first = sorted(range(len(tasks)), key=lambda at: (-tasks[at].size, tasks[at].path))
        futures = {at: workers.submit(check, tasks[at]) for at in largest_first}
        for at, future in futures.items():
            try:
                results[at] = future.result()
                tell(len(results))
            except BrokenProcessPool:
                break
            except KeyboardInterrupt:
                workers.shutdown(wait=False, cancel_futures=True)
                raise
    for at, task in enumerate(tasks):  # only after a process died: each file that is left has one for itself
        if at not in results:
            results[at] = _alone(task, check)
    return [results[at] for at in range(len(tasks))]


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
