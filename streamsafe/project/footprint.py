"""The files and directories that a check looked at beside those it was given: what its result depends on.

Readers of files of a project note them here. Each process collects its own.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable

_looked: set[str] = set()


def note(*paths: str) -> None:
    """Files that were read or looked for, directories whose names were."""
    _looked.update(paths)


def drain() -> frozenset[str]:
    """What was noted in this process since the last time."""
    found = frozenset(_looked)
    _looked.clear()
    return found


def state(path: str) -> str:
    """What a result depends on of a path: the bytes of a file, the names in a directory; "" where there is nothing.

    Of a module that was looked for by its name, without the end of a file's name, whether there is one.
    """
    try:
        with open(path, "rb") as file:
            return hashlib.blake2b(file.read(), digest_size=16).hexdigest()
    except IsADirectoryError:
        return _names(path)
    except OSError:
        if os.path.isdir(path):
            return _names(path)
        return "py" if os.path.exists(path + ".py") else ""


def digest(paths: Iterable[str]) -> str:
    """The state of all paths together, in their order."""
    total = hashlib.blake2b(digest_size=16)
    for path in paths:
        total.update(f"{path}\0{state(path)}\n".encode(errors="surrogateescape"))
    return total.hexdigest()


def _names(folder: str) -> str:
    """The names in a directory that may matter to imports: not those of caches."""
    try:
        with os.scandir(folder) as entries:
            names = sorted(
                entry.name
                for entry in entries
                if entry.name[:1] != "." and (entry.name.endswith(".py") or entry.is_dir())
            )
    except OSError:
        return ""
    text = "\n".join(name for name in names if name != "__pycache__")
    return hashlib.blake2b(text.encode(errors="surrogateescape"), digest_size=16).hexdigest()
