"""What earlier runs found, on disk: an entry for each name, used while everything it rests on is unchanged.

An entry is JSON. It names the version and the options it was made with, and the hash of every file that was parsed; it
also names the places where an imported module was looked for and not found. Entries are replaced in one step, so runs
at the same time do not disturb each other. A cache that cannot be read or written costs time and nothing else.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any

from streamsafe import __version__
from streamsafe.order.hazard import Access, Conflict, Facts, Frame, Memory, Missing, Note, Span

FORMAT = 1

_CLASSES: Mapping[str, type] = {
    cls.__name__: cls for cls in (Access, Conflict, Facts, Frame, Memory, Missing, Note, Span)
}
_DEFAULTS: dict[type, tuple[tuple[str, Any], ...]] = {}


@dataclass(slots=True)
class Result:
    """What was found, and what that rests on.

    Attributes:
        conflicts: in the order of their places.
        notes: what a limit cut short.
        parsed: files of which every byte counts.
        looked: files that were only looked through: their sizes and times count.
        absent: places where a module would have been, had it existed.
    """

    conflicts: list[Conflict] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    parsed: list[str] = field(default_factory=list)
    looked: list[str] = field(default_factory=list)
    absent: list[str] = field(default_factory=list)


class Cache:
    """The entries of one directory.

    Args:
        folder: where they lie; made when the first is written.
        options: what else the results depend on.

    Attributes:
        problems: what went wrong, in one sentence each.
    """

    def __init__(self, folder: str, options: Iterable[str] = ()) -> None:
        self._folder = os.path.join(folder, f"{FORMAT}-{__version__}")
        self._top = folder
        self._options = [_own_digest(), sys.version.split()[0], *options]
        self._hashes: dict[str, str] = {}
        self.problems: list[str] = []

    def get(self, name: str) -> Result | None:
        """What was found under a name, if nothing that it rests on has changed."""
        try:
            with open(self._path(name), "rb") as file:
                entry = json.loads(file.read())
            if entry["options"] != self._options:
                return None
            hashes, looked, absent = entry["parsed"], entry["looked"], entry["absent"]
            if any(self.hash(path) != known for path, known in hashes.items()):
                return None
            if any(map(os.path.exists, absent)) or entry["state"] != self._state(looked):
                return None
            conflicts = [decode(one) for one in entry["conflicts"]]
            return Result(conflicts, entry["notes"], list(hashes), looked, absent)
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            self._problem(
                f"an entry of {self._top} cannot be used ({type(error).__name__}) and is made again"
            )
            return None

    def put(self, name: str, result: Result) -> None:
        """Keep what was found under a name."""
        entry = {
            "options": self._options,
            "parsed": {path: self.hash(path) for path in dict.fromkeys(result.parsed)},
            "looked": result.looked,
            "state": self._state(result.looked),
            "absent": result.absent,
            "conflicts": [encode(one) for one in result.conflicts],
            "notes": result.notes,
        }
        temporary = ""
        try:
            self._prepare()
            descriptor, temporary = tempfile.mkstemp(dir=self._folder)
            with open(descriptor, "w", encoding="utf-8") as file:
                json.dump(entry, file, separators=(",", ":"))
            os.replace(temporary, self._path(name))
        except OSError as error:
            self._problem(f"{self._top} cannot be written: {error.strerror or error}")
            if temporary and os.path.exists(temporary):
                os.unlink(temporary)

    def _state(self, paths: Iterable[str]) -> str:
        """The sizes and times of files that were only looked through, as a hash."""
        total = hashlib.blake2b(digest_size=16)
        for path in paths:
            try:
                state = os.stat(path)
            except OSError:
                continue
            total.update(f"{path} {state.st_size} {state.st_mtime_ns}\n".encode())
        return total.hexdigest()

    def hash(self, path: str) -> str:
        """The hash of a file's bytes; "" where it cannot be read."""
        found = self._hashes.get(path)
        if found is None:
            try:
                with open(path, "rb") as file:
                    found = hashlib.blake2b(file.read(), digest_size=16).hexdigest()
            except OSError:
                found = ""
            self._hashes[path] = found
        return found

    def _path(self, name: str) -> str:
        return os.path.join(
            self._folder, hashlib.blake2b(name.encode(), digest_size=16).hexdigest() + ".json"
        )

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


def encode(value: Any) -> Any:
    """A conflict, or a part of one, as JSON: of a class only what differs from its defaults."""
    if is_dataclass(value) and not isinstance(value, type):
        out: list[Any] = [type(value).__name__, {}]
        for name, default in _defaults(type(value)):
            held = getattr(value, name)
            if name != "hindsight" and held != default:
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


def _own_digest() -> str:
    """A hash of the analysis's own files: a cache of another version is none."""
    folder = os.path.dirname(os.path.abspath(__file__))
    total = hashlib.blake2b(digest_size=8)
    for path in sorted(_own_files(folder)):
        state = os.stat(path)
        total.update(f"{path} {state.st_size} {state.st_mtime_ns}\n".encode())
    return total.hexdigest()


def _own_files(folder: str) -> Iterable[str]:
    for where, _, names in os.walk(folder):
        for name in names:
            if name.endswith((".py", ".so", ".pyd")):
                yield os.path.join(where, name)
