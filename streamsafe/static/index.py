"""What each file of a project says of streams: whether it has stream code, what it defines of it, what it imports."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from streamsafe.config import Models
from streamsafe.static import footprint, prefilter
from streamsafe.static.cache import Cache, key_of
from streamsafe.static.modules import imports_in, module_of
from streamsafe.static.packages import beside


class Entry(NamedTuple):
    """One file.

    Attributes:
        relevant: whether it has stream code.
        exported: its definitions that name streams, or that use such a definition of the file.
        imports: the words in its import statements.
    """

    relevant: bool
    exported: frozenset[str]
    imports: frozenset[str]


def index(looked: Mapping[str, bool], models: Models, cache: Cache | None) -> list[dict[str, Entry]]:
    """The projects that some files belong to, each with all its files by path; without those that have no stream code.

    Args:
        looked: the files, and whether they have stream code.
        models: of the user's own wrappers.
        cache: where this is kept between runs, by the contents of the files.
    """
    projects = sorted(beside(looked).items())
    found = (_of_project(top, sorted(paths), looked, models, cache) for top, paths in projects)
    return [each for each in found if each]


def _of_project(
    top: str, paths: Iterable[str], looked: Mapping[str, bool], models: Models, cache: Cache | None
) -> dict[str, Entry]:
    key = key_of("index", top, repr(models))
    kept = (cache.load(key) or {}) if cache is not None else {}
    found: dict[str, Entry] = {}
    digests: dict[str, str] = {}
    new: dict[str, bool] = {}
    for path in paths:
        if not kept and path in looked:  # nothing to compare with, and what it says of streams is known
            new[path] = looked[path]
            continue
        data = _bytes(path)
        digests[path] = _digest(data)
        try:
            entry = _known(kept.get(path), digests[path])
        except TypeError:  # it holds something else
            entry = None
        if entry is not None:
            found[path] = entry
        else:
            new[path] = looked[path] if path in looked else prefilter.relevant(data, models)
    if not any(new.values()) and not any(entry.relevant for entry in found.values()):
        return {}
    for path, relevant in new.items():
        data = _bytes(path)
        digests[path] = _digest(data)
        imports = imports_in(data.decode("utf-8", "replace"))
        found[path] = Entry(relevant, _exported(path) if relevant else frozenset(), frozenset(imports))
    if cache is not None and (new or len(kept) != len(found)):
        cache.store(
            key,
            {
                path: [digests[path], each.relevant, sorted(each.exported), sorted(each.imports)]
                for path, each in found.items()
            },
        )
    return found


def _bytes(path: str) -> bytes:
    footprint.note(path)
    try:
        with open(path, "rb") as opened:
            return opened.read()
    except OSError:
        return b""


def _digest(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def _known(kept: Any, digest: str) -> Entry | None:
    """What is kept of a file, if it is of these contents."""
    if not isinstance(kept, list) or len(kept) != 4 or kept[0] != digest:
        return None
    return Entry(bool(kept[1]), frozenset(kept[2]), frozenset(kept[3]))


def _exported(path: str) -> frozenset[str]:
    module = module_of(path)
    if module is None:
        return frozenset()
    definitions = {each.names[0]: each for each in module.statements if each.is_definition and each.names}
    own = {name for name, each in definitions.items() if each.names_streams}
    while more := {name for name, each in definitions.items() if each.words & own} - own:
        own |= more
    return frozenset(own)
