"""The check of files: each is run along single paths, and what the paths show comes out as conflicts.

    files = Files(paths, {"editor.py": b"..."})
    for path in paths:
        for conflict in files.run(path).conflicts:
            hazard = rules.code_for(conflict)

Nothing here knows of processes, caches or what is shown: a process makes one :class:`Files` and asks it for some files.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from streamsafe.check import prefilter
from streamsafe.check.entries import check_module
from streamsafe.check.modules import Names, Project
from streamsafe.check.report import conflict_of
from streamsafe.check.source import Function
from streamsafe.order.hazard import CONFIDENCES, Conflict, Span
from streamsafe.project.settings import Models
from streamsafe.project.text import SourceError, read

DEPTH = 20_000
"""How deep the interpreter may recurse: a path of the source is run by functions that call each other."""


@dataclass(slots=True)
class Run:
    """What came of one file.

    Attributes:
        conflicts: what its paths show, in the order of places. A conflict may lie in another file that they entered.
        notes: where a limit cut the run short, in sentences.
        entered: the functions of other files that its paths entered: file, first and last row.
        paths: how many paths were run.
        explanation: what is known of the row that was asked about, in sentences.
        unreadable: why the file cannot be read or parsed: a sentence, row and column; None where it can.
    """

    path: str
    conflicts: list[Conflict] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    entered: list[tuple[str, int, int]] = field(default_factory=list)
    paths: int = 0
    explanation: list[str] = field(default_factory=list)
    unreadable: tuple[str, int, int] | None = None


class Files:
    """The files of one check. What several of them import is parsed once.

    Args:
        paths: the files that are checked; others are found from the imports of these.
        texts: the bytes of files that are not to be read from disk.
        models: what the user's configuration says of functions of theirs, by file.
        defined: what the files of an earlier check have found out of the names of files.
    """

    def __init__(
        self,
        paths: Sequence[str],
        texts: Mapping[str, bytes] = MappingProxyType({}),
        models: Mapping[str, Models] = MappingProxyType({}),
        defined: Names | None = None,
    ) -> None:
        self._project = Project(list(paths), defined)
        self._texts = texts
        for _, some in sorted(models.items()):
            self._project.wrappers.update(some)
        for path, data in texts.items():
            try:
                self._project.load(path, read(data, path).text)
            except SourceError:
                continue  # told where the file itself is asked for

    @property
    def parsed(self) -> int:
        """How many characters of source are parsed."""
        return self._project.parsed

    @property
    def defined(self) -> Names:
        """What is known of the names of files."""
        return self._project.defined

    @staticmethod
    def relevant(data: bytes) -> bool:
        """Whether a file with these bytes can show anything: a second stream or a clock, and a device."""
        return prefilter.relevant(data)

    def run(self, path: str, explain: int | None = None) -> Run:
        """Run one file. Raises what a fault of the machine raises; a file that is no Python is told in the result.

        Args:
            path: the file.
            explain: a row of which to tell what the paths come to.
        """
        result = Run(path)
        try:
            data = self._texts.get(path)
            if data is None:
                with open(path, "rb") as opened:
                    data = opened.read()
            text = read(data, path).text
            module = self._project.load(path, text)
        except SourceError as error:
            result.unreadable = (error.message, error.row, error.column)
            return result
        except OSError as error:
            result.unreadable = (f"cannot be read: {error.strerror or error}", 1, 1)
            return result
        limit = sys.getrecursionlimit()
        sys.setrecursionlimit(max(limit, DEPTH))
        try:
            found = check_module(self._project, module)
            conflicts = (conflict_of(shown, tags) for shown, tags in found.hazards.values())
            result.conflicts = distinct(conflict for conflict in conflicts if conflict is not None)
        finally:
            sys.setrecursionlimit(limit)
        result.paths = found.paths
        if explain is not None:
            result.explanation = _explained(explain, module.all_functions, found.entered)
        if found.cut:
            result.notes.append(f"{found.cut} of {found.paths} paths were not run to their end")
        result.entered = sorted(
            {
                (function.module.path, function.node.lineno, function.node.end_lineno or function.node.lineno)
                for function in found.entered
                if function.module.path != path
            }
        )
        return result


def _explained(row: int, functions: Iterable[Function], entered: Iterable[Function]) -> list[str]:
    """Whether a path comes to a row."""
    around = [each for each in functions if each.node.lineno <= row <= (each.node.end_lineno or 0)]
    if not around:
        return []
    inner = max(around, key=lambda each: each.node.lineno)
    return [f"`{inner.qualified}()` is run inside its callers"] if inner in entered else []


def distinct(conflicts: Iterable[Conflict]) -> list[Conflict]:
    """One conflict for each place and kind, the surest; in the order of places. Also across files."""
    best: dict[tuple[object, ...], Conflict] = {}
    for conflict in conflicts:
        place, facts = conflict.shown_at, conflict.facts
        at = place and (place.filename, place.row, place.column)
        key = (at, facts.violation, facts.reuse, facts.host, facts.gradient, facts.interop)
        known = best.get(key)
        if known is None or _rank(conflict) < _rank(known):
            best[key] = conflict
    ordered = sorted(best.values(), key=lambda conflict: (_place(conflict), conflict.second.operation))
    return _once_a_line(ordered)


def _once_a_line(conflicts: Iterable[Conflict]) -> list[Conflict]:
    """Of the pairs of one line that one missing edge leaves unordered the surest, with the number of the others."""
    found: dict[object, Conflict] = {}
    for number, conflict in enumerate(conflicts):
        place, first = _place(conflict), conflict.first
        alone = first is None or conflict.missing is None or conflict.facts.reuse is not None
        about = (conflict.missing, conflict.facts) if not alone else number
        key = (place.filename, place.row, about, first.span if first is not None else None)
        known = found.get(key)
        if known is None:
            found[key] = conflict
        else:
            best = min(known, conflict, key=_rank)
            found[key] = replace(best, further=known.further + conflict.further + 1)
    return list(found.values())


def _rank(conflict: Conflict) -> tuple[int, int]:
    return CONFIDENCES.index(conflict.confidence), len(conflict.assumptions)


def _place(conflict: Conflict) -> Span:
    place = conflict.shown_at
    assert place is not None
    return place
