"""Which package a folder belongs to, as Python's import has it, and which files lie beside others in it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator

from streamsafe.project import footprint

PROJECT_MARKS = ("pyproject.toml", "setup.py", ".git")
"""What lies at the root of a project: nothing above it is a package of the project."""


def packages(folder: str) -> tuple[str, tuple[str, ...]]:
    """The folder around the top package that a folder belongs to, and the packages from there down to the folder.

    A folder without ``__init__.py`` that lies in a package is a part of it (PEP 420) where its name can be imported.
    Without a package: the folder itself, and nothing.
    """
    top: str | None = None
    at = folder
    while True:
        if not is_part(at):
            break
        if os.path.isfile(os.path.join(at, "__init__.py")):
            top = at
        parent = os.path.dirname(at)
        if parent == at or any(os.path.exists(os.path.join(at, mark)) for mark in PROJECT_MARKS):
            break
        at = parent
    if top is None:
        return folder, ()
    above = os.path.dirname(top)
    return above, tuple(os.path.relpath(folder, above).split(os.sep))


def is_part(folder: str) -> bool:
    """Whether a folder in a package is a part of the package: its name can be imported, or it has ``__init__.py``."""
    name = os.path.basename(folder)
    if name == "__pycache__" or name.startswith("."):
        return False
    return name.isidentifier() or os.path.isfile(os.path.join(folder, "__init__.py"))


def package_of(folder: str) -> str | None:
    """The directory of the outermost package that a folder belongs to; None of a folder of scripts."""
    above, names = packages(folder)
    return os.path.join(above, names[0]) if names else None


def beside(paths: Iterable[str]) -> dict[str, set[str]]:
    """The Python files of the packages that some files belong to; of scripts, those of their directories.

    Returns:
        Them and the given files, by the directory of the package or of the scripts.
    """
    found: dict[str, set[str]] = {}
    tops: dict[str, str] = {}
    for path in paths:
        folder = os.path.dirname(path)
        if folder not in tops:
            tops[folder] = package_of(folder) or folder
        if tops[folder] not in found:
            found[tops[folder]] = set(_files(tops[folder], tops[folder] != folder or _is_package(folder)))
        found[tops[folder]].add(path)
    return found


def _is_package(folder: str) -> bool:
    return package_of(folder) is not None


def _files(top: str, deep: bool) -> Iterator[str]:
    for folder, folders, files in os.walk(top):
        footprint.note(folder)
        folders[:] = [name for name in folders if deep and is_part(os.path.join(folder, name))]
        yield from (os.path.join(folder, name) for name in files if name.endswith(".py"))
