"""What each file of a project says of streams: whether it has stream code, what it defines of it, what it imports."""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from streamsafe.check import prefilter
from streamsafe.check.cache import Cache, key_of
from streamsafe.project import footprint
from streamsafe.project.packages import beside
from streamsafe.project.settings import Models
from streamsafe.static.modules import Module, Statement, imports_in, module_of


class Entry(NamedTuple):
    """One file.

    Attributes:
        relevant: whether it has stream code.
        exported: its definitions that name streams, or that use such a definition of the file.
        imports: the words in its import statements.
        clocks: its definitions that may read a host clock.
    """

    relevant: bool
    exported: frozenset[str]
    imports: frozenset[str]
    clocks: frozenset[str] = frozenset()


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
    if not any(new.values()) and not any(entry.relevant for entry in found.values()) and not _times(paths):
        return {}
    for path, relevant in new.items():
        data = _bytes(path)
        digests[path] = _digest(data)
        imports = imports_in(data.decode("utf-8", "replace"))
        clocks = _reading_clocks(path) if prefilter.reads_clocks(data) else frozenset()
        exported = _exported(path) if relevant else frozenset()
        found[path] = Entry(relevant, exported, frozenset(imports), clocks)
    if cache is not None and (new or len(kept) != len(found)):
        cache.store(
            key,
            {path: [digests[path], each.relevant, *map(sorted, each[1:])] for path, each in found.items()},
        )
    return found


def _times(paths: Iterable[str]) -> bool:
    """Whether a project without stream code times a device: one file may read the clock, another one launch."""
    devices = clocks = False
    for path in paths:
        data = _bytes(path)
        devices = devices or prefilter.names_devices(data)
        clocks = clocks or prefilter.reads_clocks(data)
        if devices and clocks:
            return True
    return False


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
    if not isinstance(kept, list) or len(kept) != 5 or kept[0] != digest:
        return None
    return Entry(bool(kept[1]), *map(frozenset, kept[2:]))


def _definitions(path: str) -> dict[str, Statement]:
    module = module_of(path)
    statements = module.statements if module is not None else ()
    return {each.names[0]: each for each in statements if each.is_definition and each.names}


def _reading_clocks(path: str) -> frozenset[str]:
    """The definitions of a file that measure time by a host clock: there is a difference in them."""
    return frozenset(
        name
        for name, each in _definitions(path).items()
        if prefilter.reads_clocks(each.text.encode())
        and each.node is not None
        and any(isinstance(inner, ast.Sub) for inner in ast.walk(each.node))
    )


def _exported(path: str) -> frozenset[str]:
    module = module_of(path)
    definitions = _definitions(path)
    own = {name for name, each in definitions.items() if each.names_streams}
    return _with_users(own, definitions, module) if module is not None else frozenset(own)


def using(path: str, names: frozenset[str]) -> frozenset[str]:
    """The definitions of a file that use what it imports by some names, or use such a definition of the file."""
    module = module_of(path)
    definitions = _definitions(path)
    own = {name for name, each in definitions.items() if each.words & names}
    return _with_users(own, definitions, module) if module is not None else frozenset(own)


def _with_users(own: set[str], definitions: dict[str, Statement], module: Module) -> frozenset[str]:
    """Some definitions of a file, and those that use one of them."""
    if not own:
        return frozenset()
    # who asks a table of classes by a name gets one that he does not name
    tables = {name: _listed(each) for name, each in module.bound.items() if name not in definitions}
    for name, filling in module.filled.items():
        found = {n for each in filling if isinstance(each.node, ast.ClassDef) for n in each.names}
        tables[name] = tables.get(name, set()) | found
    while (
        more := {name for name, each in definitions.items() if each.words & own}
        | {name for name, classes in tables.items() if classes & own}
    ) - own:
        own |= more
    return frozenset(own)


def _listed(statement: Statement) -> set[str]:
    """The classes and functions that a dict or list is made with."""
    value = getattr(statement.node, "value", None) if not statement.is_definition else None
    if isinstance(value, ast.Dict):
        return {each.id for each in value.values if isinstance(each, ast.Name)}
    if isinstance(value, (ast.List, ast.Tuple)):
        return {each.id for each in value.elts if isinstance(each, ast.Name)}
    return set()
