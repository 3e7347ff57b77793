"""Which files to check: the paths named, and what lies in the directories among them, in a fixed order."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING

from streamsafe.project.settings import Config, Configs

if TYPE_CHECKING:
    from pathspec import GitIgnoreSpec

SUFFIXES = (".py", ".pyw", ".ipynb")
_SKIPPED = (
    ".bzr .direnv .eggs .git .git-rewrite .hg .ipynb_checkpoints .mypy_cache .nox .pants.d .pyenv .pytest_cache "
    ".pytype .ruff_cache .streamsafe_cache .svn .tox .venv .vscode __pycache__ __pypackages__ _build buck-out build "
    "dist node_modules site-packages venv"
)
SKIPPED = frozenset(_SKIPPED.split())
"""Directories that are never entered, unless they are named."""


@dataclass(frozen=True, slots=True)
class File:
    """A file to check; ``named`` when it stands on the command line itself."""

    path: str
    config: Config
    named: bool = False


@dataclass(slots=True)
class Found:
    """What discovery found.

    Attributes:
        files: each once, in the order of their paths.
        problems: paths named that cannot be read: the run fails.
        warnings: things found on the way that cannot be read, such as a directory or a broken link.
    """

    files: list[File] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


def discover(paths: Iterable[str], configs: Configs, *, force_exclude: bool = False) -> Found:
    """Find the files to check.

    Directories are searched for Python files and notebooks; `.gitignore` files (of the directories entered, and of
    those above them in the same repository) and `exclude` are honoured. A file that is named is always taken, unless
    ``force_exclude``. A directory that is reached twice, through links, is searched once.

    Raises:
        ConfigError: a pyproject.toml that counts is unusable.
    """
    found = Found()
    named: dict[str, bool] = {}
    for path in paths:
        full = os.path.abspath(path)
        if os.path.isdir(full):
            for file in _Walk(configs, found, force_exclude).walk(full):
                named.setdefault(file, False)
        elif not os.path.exists(full):
            found.problems.append(
                f"{path}: {'broken link' if os.path.islink(full) else 'no such file or directory'}"
            )
        elif not os.path.isfile(full):
            found.problems.append(f"{path}: not a regular file")
        elif not (force_exclude and _excluded(full, configs)):
            named[full] = True
    for path in sorted(named):
        found.files.append(File(path, configs.of_directory(os.path.dirname(path)), named[path]))
    return found


class _Walk:
    def __init__(self, configs: Configs, found: Found, force_exclude: bool) -> None:
        self.configs = configs
        self.found = found
        self.force_exclude = force_exclude
        self.excludes = True
        self.top = ""
        self.seen: set[tuple[int, int]] = set()

    def walk(self, top: str) -> Iterator[str]:
        """The files below a directory, which is searched although it is ignored or excluded itself: it is named."""
        self.top = top
        above = _ignores_above(top)
        if _gitignored(top, True, above):
            above = ()
        config = self.configs.of_directory(top)
        self.excludes = self.force_exclude or not matches(top, True, config.root, config.exclude)
        yield from self._directory(top, above)

    def _directory(self, directory: str, ignores: tuple[_Ignores, ...]) -> Iterator[str]:
        try:
            status = os.stat(directory)
            if (status.st_dev, status.st_ino) in self.seen:
                return
            self.seen.add((status.st_dev, status.st_ino))
            with os.scandir(directory) as scan:
                entries = sorted(scan, key=lambda entry: entry.name)
        except OSError as error:
            said = self.found.problems if directory == self.top else self.found.warnings
            said.append(f"{directory}: {error.strerror or error}")
            return
        if any(entry.name == ".gitignore" for entry in entries):
            ignores = (*ignores, *_gitignore(directory))
        config = self.configs.of_directory(directory)
        exclude = config.exclude if self.excludes else ()
        for entry in entries:
            name = entry.name
            try:
                is_directory = entry.is_dir()
            except OSError:
                is_directory = False
            if is_directory:
                if name in SKIPPED or _is_ignored(entry.path, True, ignores, config.root, exclude):
                    continue
                yield from self._directory(entry.path, ignores)
            elif _included(entry.path, config) and not _is_ignored(
                entry.path, False, ignores, config.root, exclude
            ):
                if os.path.isfile(entry.path):
                    yield entry.path
                elif entry.is_symlink():
                    self.found.warnings.append(f"{entry.path}: broken link")


def _included(path: str, config: Config) -> bool:
    """Whether a file of a directory is one to check: by `include`, or by its ending."""
    if config.include:
        return matches(path, False, config.root, config.include)
    return path.endswith(SUFFIXES)


@dataclass(frozen=True, slots=True)
class _Ignores:
    root: str
    spec: GitIgnoreSpec


def _is_ignored(
    path: str, is_directory: bool, ignores: tuple[_Ignores, ...], root: str, exclude: tuple[str, ...]
) -> bool:
    if exclude and matches(path, is_directory, root, exclude):
        return True
    return _gitignored(path, is_directory, ignores)


def _gitignored(path: str, is_directory: bool, ignores: tuple[_Ignores, ...]) -> bool:
    for ignore in reversed(ignores):  # the nearest file that says anything decides
        verdict = ignore.spec.check_file(_relative(path, is_directory, ignore.root)).include
        if verdict is not None:
            return verdict
    return False


def matches(path: str, is_directory: bool, root: str, patterns: tuple[str, ...]) -> bool:
    """Whether a path matches one of some patterns, in the syntax of .gitignore, relative to ``root``."""
    relative = _relative(path, is_directory, root)
    return not relative.startswith("../") and _spec(patterns).match_file(relative)


def _relative(path: str, is_directory: bool, root: str) -> str:
    relative = path[len(root) + 1 :] if path.startswith(root + os.sep) else os.path.relpath(path, root)
    return relative.replace(os.sep, "/") + ("/" if is_directory else "")


@lru_cache(maxsize=256)
def _spec(patterns: tuple[str, ...]) -> GitIgnoreSpec:
    from pathspec import GitIgnoreSpec

    return GitIgnoreSpec.from_lines(patterns)


def _gitignore(directory: str) -> tuple[_Ignores, ...]:
    try:
        with open(os.path.join(directory, ".gitignore"), encoding="utf-8", errors="replace") as file:
            lines = tuple(file.read().splitlines())
        return (_Ignores(directory, _spec(lines)),)
    except (OSError, ValueError):  # unreadable, or a pattern that git would not take either
        return ()


def _ignores_above(directory: str) -> tuple[_Ignores, ...]:
    """The .gitignore files above a directory, up to the root of its repository; none outside a repository."""
    chain: list[_Ignores] = []
    while not os.path.exists(os.path.join(directory, ".git")):
        parent = os.path.dirname(directory)
        if parent == directory:
            return ()
        directory = parent
        chain = [*_gitignore(directory), *chain]
    return tuple(chain)


def _excluded(path: str, configs: Configs) -> bool:
    """Whether discovery would have skipped a file that is named."""
    config = configs.of_directory(os.path.dirname(path))
    return bool(config.exclude) and matches(path, False, config.root, config.exclude)
