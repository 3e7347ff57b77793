"""What earlier runs found, on disk: one entry for each unit, used while everything it rests on is unchanged.

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
from dataclasses import fields, is_dataclass
from typing import Any

from streamsafe import __version__
from streamsafe.order.hazard import Access, Conflict, Facts, Frame, Memory, Missing, Note, Span
from streamsafe.static.units import Outcome, Unit

FORMAT = 1

_CLASSES: Mapping[str, type] = {
    cls.__name__: cls for cls in (Access, Conflict, Facts, Frame, Memory, Missing, Note, Span)
}
_DEFAULTS: dict[type, tuple[tuple[str, Any], ...]] = {}


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
        self._options = [_engine_digest(), sys.version.split()[0], *options]
        self._hashes: dict[str, str] = {}
        self.problems: list[str] = []

    def get(self, unit: Unit) -> Outcome | None:
        """What was found in a unit, if nothing that it rests on has changed."""
        path = self._path(unit)
        try:
            with open(path, "rb") as file:
                entry = json.loads(file.read())
            if entry["options"] != self._options or entry["files"] != list(unit.files):
                return None
            if any(self.hash(name) != known for name, known in entry["hashes"].items()):
                return None
            if any(map(os.path.exists, entry["absent"])) or entry["others"] != self._state(unit.others):
                return None
            conflicts = [decode(one) for one in entry["conflicts"]]
            notes = [(path, text) for path, text in entry["notes"]]
            return Outcome(conflicts, entry["broken"], notes=notes)
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError) as error:
            self._problem(
                f"an entry of {self._top} cannot be used ({type(error).__name__}) and is made again"
            )
            return None

    def put(self, unit: Unit, outcome: Outcome) -> None:
        """Keep what was found in a unit."""
        if outcome.crashes:
            return
        files = dict.fromkeys([*unit.files, *outcome.loaded])
        entry = {
            "options": self._options,
            "files": list(unit.files),
            "hashes": {name: self.hash(name) for name in files},
            "absent": outcome.absent,
            "others": self._state(unit.others),
            "conflicts": [encode(one) for one in outcome.conflicts],
            "broken": outcome.broken,
            "notes": outcome.notes,
        }
        temporary = ""
        try:
            self._prepare()
            descriptor, temporary = tempfile.mkstemp(dir=self._folder)
            with open(descriptor, "w", encoding="utf-8") as file:
                json.dump(entry, file, separators=(",", ":"))
            os.replace(temporary, self._path(unit))
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

    def _path(self, unit: Unit) -> str:
        return os.path.join(
            self._folder, hashlib.blake2b(unit.name.encode(), digest_size=16).hexdigest() + ".json"
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


def _engine_digest() -> str:
    """A hash of the engine's own files and tables: a cache of another engine is none."""
    folder = os.path.dirname(os.path.abspath(__file__))
    total = hashlib.blake2b(digest_size=8)
    for path in sorted(_own_files(folder)):
        state = os.stat(path)
        total.update(f"{path} {state.st_size} {state.st_mtime_ns}\n".encode())
    return total.hexdigest()


def _own_files(folder: str) -> Iterable[str]:
    for where, _, names in os.walk(folder):
        for name in names:
            if name.endswith((".py", ".toml", ".so", ".pyd")):
                yield os.path.join(where, name)
