"""Many files: read, prefiltered, checked each with what it uses, and their results brought together.

The result does not depend on the order of the files or on the number of processes.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING

from streamsafe.check.cache import Cache
from streamsafe.check.files import COLLECT_AFTER
from streamsafe.check.processes import check_all, pool, processors
from streamsafe.check.task import Checked, Plan, Task, syntax_error, violation
from streamsafe.project.settings import Models
from streamsafe.static.checked import check_file, check_one
from streamsafe.static.merging import merged
from streamsafe.static.tree_uses import TreeUses

if TYPE_CHECKING:
    from streamsafe.static.index import Entry


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
    "pool",
    "processors",
    "syntax_error",
    "violation",
]
