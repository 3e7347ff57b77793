"""What is analysed together: the files of one package, or scripts that import each other.

A unit holds all files of its package that have stream code, named or not: the paths that are named decide what is
reported, never what is known. What a unit finds depends on nothing outside it but the modules that it imports, so
units are analysed in any order, in any process, and their results are cached one by one.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from streamsafe.order.hazard import Conflict
from streamsafe.static.syntax.packages import is_part, packages

MOST_IMPORTERS = 8
"""What more files of a package import is one of its common tools, and its callers are not followed."""

_FROM = re.compile(rb"^[ \t]*from[ \t]+[\w.]+[ \t]+import[ \t]+(\([^)]*\)|[^\n]*)", re.MULTILINE)
_WORD = re.compile(rb"\w+")
_IMPORTS = re.compile(rb"^[ \t]*(?:from|import)[ \t]+([\w.]+(?:[ \t]*,[ \t]*[\w.]+)*)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Unit:
    """Files that are analysed together.

    Attributes:
        name: the directory of the package, or the first of the scripts.
        files: those with stream code, sorted.
        others: the other files of the package, or scripts beside: those that call functions of ``files`` join them.
        size: bytes of source.
    """

    name: str
    files: tuple[str, ...]
    others: tuple[str, ...]
    size: int


@dataclass(slots=True)
class Outcome:
    """What the analysis of a unit found.

    Attributes:
        conflicts: in the order of their places.
        broken: files that have no syntax tree, and why.
        crashes: files in which an internal error happened, and what it was.
        loaded: all files that were parsed, those outside the unit included.
        notes: files, and what cut the analysis of one of their functions short.
        absent: directories that would have held an imported package, had they existed.
    """

    conflicts: list[Conflict] = field(default_factory=list)
    broken: dict[str, str] = field(default_factory=dict)
    crashes: list[tuple[str, str]] = field(default_factory=list)
    loaded: list[str] = field(default_factory=list)
    absent: list[str] = field(default_factory=list)
    notes: list[tuple[str, str]] = field(default_factory=list)


def package_of(folder: str) -> str | None:
    """The directory of the outermost package that a folder belongs to; None of a folder of scripts."""
    above, names = packages(folder)
    return os.path.join(above, names[0]) if names else None


def group(known: Mapping[str, bool], concerned: Callable[[bytes], bool]) -> list[Unit]:
    """The units of the named files, in the order of their names.

    Args:
        known: the named files: whether they have stream code.
        concerned: whether the bytes of another file are stream code.
    """

    packages: dict[str, set[str]] = {}
    scripts: dict[str, set[str]] = {}
    above: dict[str, str | None] = {}
    for path in known:
        folder = os.path.dirname(path)
        if folder not in above:
            above[folder] = package_of(folder)
        package = above[folder]
        if package is not None:
            packages.setdefault(package, set()).add(path)
        else:
            scripts.setdefault(folder, set()).add(path)
    units = [_package(package, known, files, concerned) for package, files in packages.items()]
    for folder, files in scripts.items():
        units += _scripts(folder, known, files, concerned)
    return sorted((unit for unit in units if unit.files), key=lambda unit: unit.name)


def _package(
    package: str, known: Mapping[str, bool], named: set[str], concerned: Callable[[bytes], bool]
) -> Unit:
    found, others = {path for path in named if known[path]}, []
    for folder, folders, files in os.walk(package):
        folders[:] = sorted(name for name in folders if is_part(os.path.join(folder, name)))
        for name in files:
            path = os.path.join(folder, name)
            if name.endswith(".py") and path not in found:
                if _has_streams(path, known, concerned):
                    found.add(path)
                else:
                    others.append(path)
    return Unit(package, tuple(sorted(found)), tuple(sorted(others)), sum(map(_size, found)))


def _scripts(
    folder: str, known: Mapping[str, bool], named: set[str], concerned: Callable[[bytes], bool]
) -> list[Unit]:
    """Scripts of a directory; those that import each other are one unit."""
    try:
        siblings = {os.path.join(folder, name) for name in os.listdir(folder) if name.endswith(".py")}
    except OSError:
        siblings = set()
    files = {path for path in named | siblings if _has_streams(path, known, concerned)}
    stems = {os.path.splitext(os.path.basename(path))[0]: path for path in files}
    leader = {path: path for path in files}

    def find(path: str) -> str:
        while leader[path] != path:
            path = leader[path]
        return path

    for path in sorted(files):
        for match in _IMPORTS.finditer(_read(path)):
            for part in match[1].split(b","):
                other = stems.get(part.strip().split(b".")[0].decode(errors="replace"))
                if other is not None and other != path:
                    one, two = sorted((find(path), find(other)))
                    leader[two] = one
    groups: dict[str, list[str]] = {}
    for path in sorted(files):
        groups.setdefault(find(path), []).append(path)
    others = tuple(sorted((siblings | named) - files))
    return [
        Unit(first, tuple(members), others, sum(map(_size, members)))
        for first, members in groups.items()
        if not named.isdisjoint((*members, *others))
    ]


def beside(paths: Iterable[str]) -> set[str]:
    """The Python files of the packages that some files belong to; of scripts, those of their directories."""
    found: set[str] = set()
    roots: set[str] = set()
    for folder in {os.path.dirname(path) for path in paths}:
        package = package_of(folder)
        if package is None:
            try:
                found.update(
                    os.path.join(folder, name) for name in os.listdir(folder) if name.endswith(".py")
                )
            except OSError:
                continue
        elif package not in roots:
            roots.add(package)
            for inner, folders, files in os.walk(package):
                folders[:] = [name for name in folders if is_part(os.path.join(inner, name))]
                found.update(os.path.join(inner, name) for name in files if name.endswith(".py"))
    return found


def importers(others: Iterable[str], names: Iterable[str]) -> list[str]:
    """The files that import one of some names and call it, or a method of it.

    Args:
        others: files to look through.
        names: of functions and classes of the unit that order, copy or capture.
    """
    wanted = {name.encode() for name in names}
    by_name: dict[bytes, list[str]] = {}
    for path in others if wanted else ():
        data = _read(path)
        for match in _FROM.finditer(data):
            for name in wanted.intersection(_WORD.findall(match[1])):
                if any(data.find(name + after, match.end()) >= 0 for after in (b"(", b".")):
                    by_name.setdefault(name, []).append(path)
    return sorted({path for paths in by_name.values() if len(paths) <= MOST_IMPORTERS for path in paths})


def _has_streams(path: str, known: Mapping[str, bool], concerned: Callable[[bytes], bool]) -> bool:
    found = known.get(path)
    return concerned(_read(path)) if found is None else found


def _read(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return b""


def _size(path: str) -> int:
    try:
        return os.path.getsize(path)
    except OSError:
        return 0
