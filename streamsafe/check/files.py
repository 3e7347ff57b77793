"""Many files: read, prefiltered, run each with what it imports, and their results brought together.

The paths that are named decide what is reported, never what is known: files of the same projects that import a named
one are run as well. The result depends neither on the order of the files nor on the number of processes.
"""

from __future__ import annotations

import gc
import hashlib
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from streamsafe.check import prefilter
from streamsafe.check.cache import Cache, decode, encode, key_of
from streamsafe.check.callers import Callers
from streamsafe.check.imports import Imports, statements
from streamsafe.check.processes import Stopped, check_all, pool, processors
from streamsafe.check.task import Checked, Plan, Task, syntax_error
from streamsafe.order.hazard import Conflict
from streamsafe.project import footprint, suppressions
from streamsafe.project.packages import beside
from streamsafe.project.settings import Models
from streamsafe.project.text import SourceError, read

if TYPE_CHECKING:
    from streamsafe.check.check import Files
    from streamsafe.project.files import File

LOOKS_A_PROCESS = 1000
"""Files to read for which a process is worth starting."""

COLLECT_AFTER = 1_000_000
"""How many new objects call for a search for unreachable cycles: a run leaves few."""

KEPT = 10_000_000
"""Characters of source whose trees a process keeps: about 500 MB of memory."""

MOST_CALLERS = 40
"""Files that are run beside the named ones because they may come to one of them; the nearest ones are."""

DEPTH = 20_000
"""How deep Python may recurse while it parses."""


class Look(NamedTuple):
    """What the bytes of a file say.

    Attributes:
        size: bytes.
        relevant: whether the file has stream code.
        mentions: whether it may hold a suppression of ours.
        problem: why it cannot be read.
        imports: its import statements.
        digest: of its contents.
    """

    size: int = 0
    relevant: bool = False
    mentions: bool = False
    problem: str = ""
    imports: str = ""
    digest: str = ""


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
        result.imports[file.path] = look.imports
        result.digests[file.path] = look.digest
        if look.mentions:
            result.mentions.add(file.path)
        task = Task(
            file.path,
            look.size,
            file.config.models,
            analyse=look.relevant or not use_prefilter,
            report_syntax=look.relevant or file.named,
        )
        if task.analyse or task.report_syntax:
            result.tasks.append(task)
    result.count = len(result.tasks)
    return result


def look_at(path: str, models: Models, data: bytes | None = None) -> Look:
    """What the bytes of a file say."""
    if data is None:
        try:
            with open(path, "rb") as opened:
                data = opened.read()
        except OSError as error:
            return Look(problem=f"cannot be read: {error.strerror or error}")
    return Look(
        len(data),
        prefilter.relevant(data, models),
        suppressions.mentioned(data),
        imports=statements(data if path.endswith(".py") else _code(data, path)),
        digest=hashlib.blake2b(data, digest_size=16).hexdigest(),
    )


def _code(data: bytes, path: str) -> bytes:
    """What is code of a file that is more than that."""
    try:
        return read(data, path).text.encode("utf-8", "replace")
    except SourceError:
        return b""


def _look(file: File) -> Look:
    return look_at(file.path, file.config.models)


def _looks(files: Sequence[File], given: Mapping[str, bytes], jobs: int) -> Iterable[Look]:
    """What the bytes of each file say; of many files, found out by several processes."""
    jobs = min(jobs or processors(), len(files) // LOOKS_A_PROCESS)
    if jobs > 1 and not given:
        from concurrent.futures.process import BrokenProcessPool

        try:
            with pool(jobs) as workers:
                return [*workers.map(_look, files, chunksize=len(files) // (4 * jobs) + 1)]
        except BrokenProcessPool:
            pass  # this process can do it alone
    return (look_at(file.path, file.config.models, given.get(file.path)) for file in files)


@dataclass(slots=True)
class Results:
    """What came of a check of files.

    Attributes:
        checked: the named files, in the order given.
        looked: the files and directories that were looked at beside the named ones.
        stopped: whether it was interrupted before all files were run.
    """

    checked: list[Checked] = field(default_factory=list)
    looked: frozenset[str] = frozenset()
    stopped: bool = False


def check(
    planned: Plan,
    *,
    jobs: int = 0,
    done: Callable[[int, int], None] | None = None,
    cache: str = "",
    given: Mapping[str, bytes] = MappingProxyType({}),
    problems: list[str] | None = None,
    explain: tuple[str, int] | None = None,
) -> Results:
    """Run files, each with what it imports.

    Args:
        planned: the files, after they were read once.
        jobs: at most so many processes; 0 for as many as there are processors.
        done: called after each file with how many are done, of how many.
        cache: where what files show is kept; "" for nowhere.
        given: the bytes of files that are not to be read from disk.
        problems: what goes wrong with the cache is added to it, in one sentence each.
        explain: a file and a row of which to tell what is known and why nothing is reported.
    """
    footprint.drain()
    thresholds = gc.get_threshold()
    gc.set_threshold(COLLECT_AFTER)  # trees live long: looking through them for cycles is a tenth of the time
    try:
        project = _Project(planned, given)
        tasks = project.tasks()
        _begin(dict(given), {task.path: task.models for task in tasks if task.models}, explain)
        kept = Cache(cache) if cache and not given and explain is None else None
        states = project.states(tasks) if kept is not None else {}
        results: dict[str, Checked] = {}
        left = []
        for task in tasks:
            known = _known(kept, task, states) if kept is not None else None
            if known is None:
                left.append(task)
            else:
                results[task.path] = known

        def finished(checked: Checked) -> None:
            results[checked.path] = checked
            if kept is not None and not checked.crash:
                kept.store(states[checked.path], _as_json(checked))

        stopped = False
        try:
            check_all(left, run_task, jobs, done, finished, (_begin, _STATE))
        except Stopped:
            stopped = True
        if kept is not None and problems is not None:
            problems += kept.problems
        found = [results[task.path] for task in tasks if task.path in results]
        reported = _reported(planned, found)
        if project.callers_left:
            if not reported:  # nothing of the named files themselves was run
                reported = [Checked(next(iter(planned.looked)))]
            reported[0].notes.append(
                f"{project.callers_left} further files that may call the named ones were not run"
            )
        return Results(reported, footprint.drain() | project.others(), stopped)
    finally:
        gc.set_threshold(*thresholds)
        _begin({}, {}, None)


class _Project:
    """The files that are named, and those of the same projects.

    Attributes:
        callers_left: how many files that may come to a named one are not among the tasks.
    """

    def __init__(self, planned: Plan, given: Mapping[str, bytes]) -> None:
        self._named = planned
        self._given = given
        self._models: Models = planned.tasks[0].models if planned.tasks else {}
        self._looks: dict[str, Look] = {}
        own = [
            path
            for path in planned.looked
            if path.endswith(".py") and (path not in given or os.path.isfile(path))
        ]
        every = {path for paths in beside(own).values() for path in paths} if planned.tasks else set()
        for path in sorted(every - planned.looked.keys()):
            footprint.note(path)
            self._looks[path] = look_at(path, self._models)
        self._imports = Imports(self._statements, self._bytes)
        self._others: set[str] = set()
        self.callers_left = 0

    def tasks(self) -> list[Task]:
        """The files to run: those that are named, and the others that come to one of them."""
        own = {task.path: task for task in self._named.tasks}
        every = self._every()
        relevant = frozenset(path for path in every if self._relevant(path))
        callers = Callers(self._imports, self._bytes, prefilter.names_streams).among(every, relevant)
        named = frozenset(self._named.looked)
        found = {path: replace(task, analyse=task.analyse or path in callers) for path, task in own.items()}
        candidates = sorted((callers | {path for path in self._looks if self._relevant(path)}) - found.keys())
        further = [path for path in candidates if path not in named and self._comes_to(path, named)]
        further.sort(key=lambda path: named.isdisjoint(self._imports.origins(path)))
        self.callers_left = len(further[MOST_CALLERS:])
        for path in (*named.intersection(candidates), *further[:MOST_CALLERS]):
            found[path] = Task(path, self._size(path), self._models, report_syntax=False)
        return [found[path] for path in sorted(found)]

    def _comes_to(self, path: str, named: frozenset[str]) -> bool:
        """Whether a file may enter a function of a named one."""
        return not named.isdisjoint(self._imports.entered(path))

    def states(self, tasks: Sequence[Task]) -> dict[str, str]:
        """The key of each file's result: it stands for the contents of all files that the result depends on."""
        states: dict[str, str] = {}
        keys = {}
        for task in tasks:
            reached = sorted(self._imports.reached(task.path))
            for file in reached:
                if file not in states:
                    states[file] = self._digest(file)
            about = (task.path, repr(task.models), str(task.analyse), str(task.report_syntax))
            keys[task.path] = key_of("file", *about, *(f"{file}\0{states[file]}" for file in reached))
        return keys

    def others(self) -> frozenset[str]:
        """The files that were read beside those of the projects."""
        return frozenset(self._others)

    def _every(self) -> list[str]:
        return [*self._named.looked, *self._looks]

    def _relevant(self, path: str) -> bool:
        return self._named.looked.get(path, False) or (path in self._looks and self._looks[path].relevant)

    def _size(self, path: str) -> int:
        return self._looks[path].size if path in self._looks else len(self._bytes(path))

    def _digest(self, path: str) -> str:
        known = self._named.digests.get(path)
        if known is None and path in self._looks:
            known = self._looks[path].digest
        return known if known is not None else footprint.state(path)

    def _statements(self, path: str) -> str:
        known = self._named.imports.get(path)
        if known is None and path in self._looks:
            known = self._looks[path].imports
        return known if known is not None else statements(self._bytes(path))

    def _bytes(self, path: str) -> bytes:
        if path in self._given:
            return self._given[path]
        self._others.add(path)
        try:
            with open(path, "rb") as opened:
                return opened.read()
        except OSError:
            return b""


# -- one file, in whichever process ----------------------------------------------------------------------------------

_STATE: list[Any] = [{}, {}, None]
"""What every file of a check has in common, in each process: bytes that are given, models, the row to explain."""
_files: Files | None = None


def _begin(given: dict[str, bytes], models: dict[str, Models], explain: tuple[str, int] | None) -> None:
    """A check begins: what an earlier one has parsed may have changed since."""
    global _files
    _files = None
    _STATE[:] = [given, models, explain]


def _runner() -> Files:
    global _files
    if _files is None or _files.parsed > KEPT:
        from streamsafe.check.check import Files

        known = None
        if _files is not None:
            known, _files = _files.defined, None
            gc.collect()  # trees hold each other: those of the old files would stay beside the new ones
        _files = Files([], _STATE[0], _STATE[1], known)
    return _files


@contextmanager
def deep() -> Iterator[None]:
    """Lets Python recurse as deep as code is nested."""
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(max(limit, DEPTH))
    try:
        yield
    finally:
        sys.setrecursionlimit(limit)


def run_task(task: Task) -> Checked:
    """Run a file. Nothing is raised: a fault of ours becomes ``crash``."""
    checked = Checked(task.path)
    try:
        _run_into(checked, task)
    except Exception as error:
        checked.crash = f"{type(error).__name__}: {error}{_raised_at(error)}"
    return checked


def _raised_at(error: BaseException) -> str:
    frame = error.__traceback__
    while frame is not None and frame.tb_next is not None:
        frame = frame.tb_next
    if frame is None:
        return ""
    code = frame.tb_frame.f_code
    return f" ({code.co_filename.rpartition('/')[2]}:{frame.tb_lineno})"


def _run_into(checked: Checked, task: Task) -> None:
    with deep():
        wrong = _run(checked, task) if task.analyse else _only_parsed(task)
    if wrong is not None and task.report_syntax:
        checked.conflicts = [syntax_error(task.path, *wrong)]


def _run(checked: Checked, task: Task) -> tuple[str, int, int] | None:
    """Run a file; why it cannot be parsed, with row and column."""
    asked = _STATE[2]
    row = asked[1] if asked is not None and asked[0] == task.path else None
    run = _runner().run(task.path) if row is None else _runner().run(task.path, row)
    checked.conflicts, checked.notes, checked.explanation = run.conflicts, run.notes, run.explanation
    return run.unreadable


def _only_parsed(task: Task) -> tuple[str, int, int] | None:
    from streamsafe.check.modules import tree_of

    try:
        data = _STATE[0].get(task.path)
        if data is None:
            with open(task.path, "rb") as opened:
                data = opened.read()
        tree_of(read(data, task.path).text)
    except SourceError as error:
        return error.message, error.row, error.column
    except OSError as error:
        return f"cannot be read: {error.strerror or error}", 1, 1
    return None


# -- results ---------------------------------------------------------------------------------------------------------


def _reported(planned: Plan, found: Iterable[Checked]) -> list[Checked]:
    """What concerns the named files: each conflict once, as sure as it is best seen.

    Where the second access lies in another file, such as that of a function that a named one calls, the conflict is
    its first access' file's.
    """
    own: dict[str, list[Conflict]] = {}
    by_path = {each.path: each for each in found}
    for each in by_path.values():
        for conflict in each.conflicts:
            first = conflict.first
            for place in (conflict.shown_at, first.span if first is not None else None):
                if place is not None and place.filename in planned.looked:
                    own.setdefault(place.filename, []).append(conflict)
                    break
    if own:
        from streamsafe.check.check import distinct

        own = {path: distinct(conflicts) for path, conflicts in own.items()}
    results = []
    for path in planned.looked:
        run = by_path.get(path)
        conflicts = own.get(path, [])
        if run is not None or conflicts:
            crash = run.crash if run is not None else None
            results.append(Checked(path, conflicts, crash=crash))
            if run is not None:
                results[-1].notes, results[-1].explanation = run.notes, run.explanation
    return results


def _known(cache: Cache, task: Task, keys: Mapping[str, str]) -> Checked | None:
    entry = cache.load(keys[task.path])
    if entry is None:
        return None
    try:
        return Checked(task.path, [decode(each) for each in entry["conflicts"]], notes=list(entry["notes"]))
    except (ValueError, KeyError, TypeError) as error:
        cache.broken(error)
        return None


def _as_json(checked: Checked) -> dict[str, Any]:
    return {"conflicts": [encode(each) for each in checked.conflicts], "notes": checked.notes}
