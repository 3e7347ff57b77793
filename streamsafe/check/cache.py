"""What earlier checks found, on disk.

An entry is JSON under the hash of what it depends on; the directory of the entries is one for each version of the
tool and of Python. Entries are replaced in one step, so checks at the same time do not disturb each other. A cache that
cannot be read or written costs time and nothing else.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass
from functools import lru_cache
from typing import Any, Final

from streamsafe.order.hazard import (
    Access,
    Assumption,
    Conflict,
    Edge,
    Facts,
    Frame,
    Memory,
    Missing,
    Named,
    Note,
    Span,
)
from streamsafe.project.version import __version__

FORMAT: Final = 2
DAYS: Final = 30
"""How long an entry is kept that no check uses."""

_CLASSES: Final[Mapping[str, type]] = {
    cls.__name__: cls
    for cls in (Access, Assumption, Conflict, Edge, Facts, Frame, Memory, Missing, Named, Note, Span)
}
_DEFAULTS: Final[dict[type, tuple[tuple[str, Any], ...]]] = {}


class Cache:
    """The entries of one directory.

    Args:
        folder: where they lie; made when the first is written.

    Attributes:
        problems: what went wrong, in one sentence each.
    """

    def __init__(self, folder: str) -> None:
        self._top = folder
        python = ".".join(map(str, sys.version_info[:2]))
        self._folder = os.path.join(folder, f"{FORMAT}-{__version__}-{python}-{_own_digest()}")
        self.problems: list[str] = []

    def load(self, key: str) -> dict[str, Any] | None:
        """The entry under a key; None where there is none that can be used."""
        path = self._path(key)
        try:
            with open(path, "rb") as file:
                entry = json.loads(file.read())
            if not isinstance(entry, dict):
                raise ValueError("not an object")
            self._touch(path)
            return entry
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (OSError, ValueError) as error:
            self.broken(error)
            return None

    def store(self, key: str, entry: Mapping[str, Any]) -> None:
        """Keep an entry under a key."""
        temporary = ""
        try:
            self._prepare()
            descriptor, temporary = tempfile.mkstemp(dir=self._folder)
            with open(descriptor, "w", encoding="utf-8") as file:
                json.dump(entry, file, separators=(",", ":"))
            os.replace(temporary, self._path(key))
        except OSError as error:
            self._problem(f"{self._top} cannot be written: {error.strerror or error}")
            if temporary and os.path.exists(temporary):
                os.unlink(temporary)

    def broken(self, error: Exception) -> None:
        """An entry says nothing that can be understood."""
        self._problem(f"an entry of {self._top} cannot be used ({type(error).__name__}) and is made again")

    def prune(self) -> None:
        """Remove the entries that no check has used for a while."""
        oldest = time.time() - DAYS * 86_400
        try:
            for name in os.listdir(self._top):
                folder = os.path.join(self._top, name)
                if not os.path.isdir(folder):
                    continue
                for path in (os.path.join(folder, each) for each in os.listdir(folder)):
                    if os.stat(path).st_mtime < oldest:
                        os.unlink(path)
                if folder != self._folder and not os.listdir(folder):
                    os.rmdir(folder)
        except OSError:
            return  # another check is at it, or nothing may be removed here

    def _touch(self, path: str) -> None:
        try:
            os.utime(path)
        except OSError:
            return  # it may be read only

    def _path(self, key: str) -> str:
        return os.path.join(self._folder, f"{key}.json")

    def _prepare(self) -> None:
        if os.path.isdir(self._folder):
            return
        os.makedirs(self._folder, exist_ok=True)
        for name, text in (
            (".gitignore", "*\n"),
            ("CACHEDIR.TAG", "Signature: 8a477f597d28d172789f06886806bc55\n"),
        ):
            with open(os.path.join(self._top, name), "w", encoding="utf-8") as file:
                file.write(text)

    def _problem(self, text: str) -> None:
        if text not in self.problems:
            self.problems.append(text)


def key_of(*parts: str) -> str:
    """A key that stands for some texts."""
    total = hashlib.blake2b(digest_size=16)
    for part in parts:
        data = part.encode(errors="surrogateescape")
        total.update(f"{len(data)}:".encode() + data)
    return total.hexdigest()


def encode(value: Any) -> Any:
    """A conflict, or a part of one, as JSON: of a class only what differs from its defaults."""
    if is_dataclass(value) and not isinstance(value, type):
        out: list[Any] = [type(value).__name__, {}]
        for name, default in _defaults(type(value)):
            held = getattr(value, name)
            if name != "recheck_at_end" and held != default:
                out[1][name] = encode(held)
        return out
    if isinstance(value, tuple):
        return {"tuple": [encode(part) for part in value]}
    return value


def decode(value: Any) -> Any:
    """The opposite of :func:`encode`."""
    if isinstance(value, dict):
        return tuple(decode(part) for part in value["tuple"])
    if isinstance(value, list):
        name, parts = value
        return _CLASSES[name](**{key: decode(part) for key, part in parts.items()})
    return value


def _defaults(cls: type) -> tuple[tuple[str, Any], ...]:
    found = _DEFAULTS.get(cls)
    if found is None:
        assert is_dataclass(cls)
        found = _DEFAULTS[cls] = tuple((f.name, f.default) for f in fields(cls))
    return found


@lru_cache(maxsize=1)
def _own_digest() -> str:
    """A hash of the analysis and the repairs: what another version found is nothing to this one.

    Of their contents: an installation that is made anew, as in CI, uses the cache of the last one.
    """
    folder = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    total = hashlib.blake2b(digest_size=8)
    for path in sorted(_own_files(folder)):
        with open(path, "rb") as file:
            total.update(os.path.relpath(path, folder).encode() + b"\0" + file.read())
    return total.hexdigest()


def _own_files(folder: str) -> Iterable[str]:
    for part in ("order", "repairs", "project", "kernels", "findings", "apis", "check"):
        for where, _, names in os.walk(os.path.join(folder, part)):
            yield from (os.path.join(where, name) for name in names if name.endswith((".py", ".so", ".pyd")))
