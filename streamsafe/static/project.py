"""Many files: read, prefiltered, checked each with what it uses, and their results brought together.

The result does not depend on the order of the files or on the number of processes.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from streamsafe.check import prefilter
from streamsafe.check.cache import Cache
from streamsafe.check.processes import check_all, pool, processors
from streamsafe.check.task import Checked, Plan, Task, syntax_error, violation
from streamsafe.project import suppressions
from streamsafe.project.settings import Models
from streamsafe.static.checked import check_file, check_one
from streamsafe.static.merging import merged
from streamsafe.static.tree_uses import TreeUses

if TYPE_CHECKING:
    from streamsafe.project.files import File
    from streamsafe.static.index import Entry

LOOKS_A_PROCESS = 1000
"""Files to read for which a process is worth starting."""

COLLECT_AFTER = 1_000_000
"""How many new objects call for a search for unreachable cycles: an analysis leaves few."""


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
        result.looked[file.path] = look.relevant
        if look.mentions:
            result.mentions.add(file.path)
        task = Task(
            file.path,
            look.size,
            file.config.models,
            analyse=look.relevant or not use_prefilter,
            report_syntax=look.relevant or file.named,
            data=given.get(file.path),
        )
        if task.analyse or task.report_syntax:
            result.tasks.append(task)
    result.count = len(result.tasks)
    return result


class _Look(NamedTuple):
    """What the bytes of a file say."""

    size: int = 0
    relevant: bool = False
    mentions: bool = False
    problem: str = ""


def _look(file: File, data: bytes | None = None) -> _Look:
    if data is None:
        try:
            with open(file.path, "rb") as opened:
                data = opened.read()
        except OSError as error:
            return _Look(problem=f"cannot be read: {error.strerror or error}")
    return _Look(len(data), prefilter.relevant(data, file.config.models), suppressions.mentioned(data))


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
    looked: Mapping[str, bool] = MappingProxyType({}),
    cache: str = "",
    *,
    advice: bool = True,
) -> tuple[list[Checked], frozenset[str]]:
    """Check files, each with what it uses of other files of its project.

    Args:
        tasks: the files.
        jobs: at most so many processes; 0 for as many as there are processors.
        done: called after each file with how many are done, of how many.
        looked: all files that were read, and whether they have stream code.
        cache: where what single files show is kept; "" for nowhere.
        advice: whether advice is asked for.

    Returns:
        What came of the files, in the order given; and the files and directories that were looked at.
    """
    from streamsafe.project import footprint
    from streamsafe.static import modules

    modules.forget()  # files may have changed since an earlier run in this process
    footprint.drain()
    # trees and tables are many and live long: looking through them for cycles would be a tenth of the time
    thresholds = gc.get_threshold()
    gc.set_threshold(COLLECT_AFTER)
    try:
        kept = Cache(cache) if cache else None
        tasks, projects = _with_callers(tasks, looked, kept)
        every = [replace(task, cache=cache, advice=advice) for task in tasks]
        own = footprint.drain()
        checked = check_all(every, check_file, jobs, done)
        results = merged(checked, looked, TreeUses(projects))
        return results, own.union(footprint.drain(), *(each.looked for each in checked))
    finally:
        gc.set_threshold(*thresholds)


def _with_callers(
    tasks: list[Task], looked: Mapping[str, bool], cache: Cache | None
) -> tuple[list[Task], list[dict[str, Entry]]]:
    """The files, and those that call stream code of their projects; and these projects.

    All files of a project are looked through, named or not: the paths that are named decide what is reported, not what
    is known.
    """
    from streamsafe.static.index import index
    from streamsafe.static.linking import callers

    given = {task.path for task in tasks if task.data is not None}
    named = {path: relevant for path, relevant in looked.items() if path not in given}
    models: Models = tasks[0].models if tasks else {}
    own = {task.path: task for task in tasks}
    more: list[Task] = []
    projects = index(named, models, cache)
    for project in projects:
        found = callers(named.keys(), project)
        own.update((path, replace(own[path], related=found.related)) for path in own.keys() & project.keys())
        related = found.related | found.clocks
        more += [
            Task(path, os.path.getsize(path), models, related=related, caller=True) for path in found.files
        ]
    return [*own.values(), *more], projects


__all__ = [
    "Checked",
    "Plan",
    "Task",
    "check",
    "check_one",
    "plan",
    "pool",
    "processors",
    "syntax_error",
    "violation",
]
