"""The files without stream code that call what has some, found by their imports and the words in their code.

A path enters what a file imports by name. So a file calls a function of another one only where a name that it imports
leads there, directly or through files that hand the name on, and stands in its code; a method only where its class is
named and so is the method, or a `with` may enter an object of the class. Nothing is parsed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import NamedTuple

from .imports import REEXPORTS, Imports

FARTHEST = 3
"""How many files away from the stream code a caller may be."""

_DEFINITION = re.compile(
    rb"^(?:async[ ]def|def|(class))[ ]+([A-Za-z_]\w*)[^\n]*\n(?:[ \t#)][^\n]*\n|\n)*", re.MULTILINE
)
_METHOD = re.compile(rb"^([ \t]+)(?:async[ ]+)?def[ ]+([A-Za-z_]\w*)", re.MULTILINE)
_WORD = re.compile(rb"\.?[A-Za-z_]\w*")
_NO_CODE = re.compile(
    rb'''"""[^"\\]*(?:(?:\\.|"(?!""))[^"\\]*)*"""|\'{3}[^'\\]*(?:(?:\\.|'(?!''))[^'\\]*)*\'{3}|#[^\n]*'''
    rb"""|"[^"\\\n]*(?:\\.[^"\\\n]*)*"|'[^'\\\n]*(?:\\.[^'\\\n]*)*'""",
    re.DOTALL,
)
"""Comments, texts of several lines, and strings, which are left."""
_LEFT_OUT = (b"#", b'"""', b"'''")
_ENTERED = frozenset((b".__enter__", b".__exit__", b".__aenter__", b".__aexit__"))
"""Methods, as they are offered, that a `with` calls, where only the class is named."""


class Offer(NamedTuple):
    """What a function or a class of a file has to do with streams, for who imports it.

    Attributes:
        alone: whether naming it is enough for a call; else one of the methods is to be named as well.
        methods: of a class the methods that have to do with streams, with the dot before them.
    """

    alone: bool
    methods: frozenset[bytes]


def offers(
    data: bytes, marks: Callable[[bytes], bool], used: Mapping[str, Offer] | None = None
) -> dict[str, Offer]:
    """The functions and classes at the top of a file that have to do with streams.

    Args:
        data: the file.
        marks: whether a text names streams.
        used: what the names that the file imports offer.
    """
    parts = [(owner, name, text, frozenset(_WORD.findall(text))) for owner, name, text in _parts(_code(data))]
    around: dict[bytes, set[bytes]] = {}
    for owner, name, _, words in parts:
        around.setdefault(owner or name, {owner}).update(words)
    hot = {at for at, (_, _, text, _) in enumerate(parts) if marks(text)}
    known = {name.encode(): offer for name, offer in (used or {}).items()}
    while True:
        found = _offered([parts[at][:2] for at in sorted(hot)])
        known |= found
        new = {
            at
            for at, (owner, name, _, words) in enumerate(parts)
            if at not in hot
            and _calls(words, around[owner or name], known, frozenset((owner, name, b"." + name)))
        }
        if not new:
            return {name.decode(): offer for name, offer in found.items()}
        hot |= new


def _code(data: bytes) -> bytes:
    """A text without its comments and docstrings, whose words call nothing."""
    kept = []
    done = 0
    for found in _NO_CODE.finditer(data):
        if found[0].startswith(_LEFT_OUT):
            kept.append(data[done : found.start()])
            done = found.end()
    kept.append(data[done:])
    return b"".join(kept)


def _parts(data: bytes) -> Iterator[tuple[bytes, bytes, bytes]]:
    """The functions at the top of a file and the methods of its classes: class, name, text with the decorators."""
    for found in _DEFINITION.finditer(data):
        name, text = found[2], found[0]
        if not found[1]:
            yield b"", name, text
            continue
        starts = list(_METHOD.finditer(text))
        starts = [each for each in starts if each[1] == starts[0][1]]
        ends = [*(each.start() for each in starts), len(text)]
        yield name, b"__init__", text[: ends[0]]
        for start, end in zip(starts, ends[1:], strict=True):
            yield name, start[2], text[start.start() : end]


def _offered(hot: Iterable[tuple[bytes, bytes]]) -> dict[bytes, Offer]:
    """What the functions and methods that have to do with streams offer to who imports them."""
    methods: dict[bytes, set[bytes]] = {}
    functions = set()
    for owner, name in hot:
        if owner:
            methods.setdefault(owner, set()).add(b"." + name)
        else:
            functions.add(name)
    classes = {name: Offer(not _ENTERED.isdisjoint(own), frozenset(own)) for name, own in methods.items()}
    return {**classes, **dict.fromkeys(functions, Offer(True, frozenset()))}


def _calls(
    words: frozenset[bytes], around: Collection[bytes], known: Mapping[bytes, Offer], own: frozenset[bytes]
) -> bool:
    """Whether a text calls what has to do with streams: a function by its name, a method where its class is named.

    Args:
        words: those of a function or method. around: those of the class around it too.
        known: what names offer. own: the names of the function or method itself.
    """
    return any(
        (known[name].alone and name in words) or not (known[name].methods - own).isdisjoint(words)
        for name in known.keys() & around
        if name not in own or not known[name].alone
    )


def _may_call(data: bytes, imports: str, used: Mapping[str, Offer]) -> bool:
    """Whether a file may call what it uses: outside its imports stands the name, or somewhere that of a method."""
    return any(
        (offer.alone and data.count(name.encode()) > imports.count(name))
        or any(method in data for method in offer.methods)
        for name, offer in used.items()
    )


class Callers:
    """Finds the callers of stream code among files.

    Args:
        imports: the files that files import.
        data: the bytes of a file.
        marks: whether a text names streams.
    """

    def __init__(
        self, imports: Imports, data: Callable[[str], bytes], marks: Callable[[bytes], bool]
    ) -> None:
        self._imports, self._data, self._marks = imports, data, marks
        self._offers: dict[str, dict[str, Offer]] = {}
        self._found: dict[tuple[str, str], Offer | None] = {}

    def among(self, files: Iterable[str], relevant: Collection[str]) -> set[str]:
        """The files that call what has to do with streams, directly or by others.

        Args:
            files: those to look at.
            relevant: those that have stream code of their own.
        """
        for path in sorted(relevant):
            self._offers[path] = offers(self._data(path), self._marks)
        found: set[str] = set()
        rest = sorted(path for path in files if path not in relevant)
        renamed = {
            (local, name)
            for path in rest
            for local, (_, _, name) in self._imports.bound(path).items()
            if local != name
        }
        looked: dict[str, dict[str, Offer]] = {}
        for _ in range(FARTHEST):
            names = frozenset().union(*self._offers.values())
            names |= {local for local, name in renamed if name in names}
            self._found.clear()
            stems = {path.rpartition("/")[2].removesuffix(".py") for path, own in self._offers.items() if own}
            new = {}
            for path in rest:
                used = self._used(path, names, stems) if path not in found else {}
                if not used or used == looked.get(path):
                    continue
                looked[path] = used
                data = self._data(path)
                may = _may_call(data, self._imports.text(path), used)
                own = offers(data, lambda _: False, used) if may else {}
                if own:
                    new[path] = own
            if not new:
                break
            found |= new.keys()
            self._offers |= new
        return found

    def _used(self, path: str, names: frozenset[str], stems: Collection[str]) -> dict[str, Offer]:
        """By the names of a file that stand for functions or classes that have to do with streams: what they offer."""
        bound: dict[str, Offer] = {}
        for local, (level, module, name) in self._imports.bound(path).items():
            if name == "*":
                bound |= self._all_names(path, level, module)
            elif name in names:
                offer = self._lookup(path, level, module, name, 0)
                if offer is not None:
                    bound[local] = offer
            if (name or module).rpartition(".")[2] in stems:
                file = self._imports.file(path, level, f"{module}.{name}".strip("."))
                offered = self._offers.get(file) if file is not None else None
                if offered:
                    bound[local] = _as_module(offered)
        return bound

    def _lookup(self, path: str, level: int, module: str, name: str, depth: int) -> Offer | None:
        """What a name offers that a file imports, through files that hand it on."""
        file = self._imports.file(path, level, module)
        if file is None or depth > REEXPORTS:
            return None
        key = (file, name)
        if key not in self._found:
            self._found[key] = None
            self._found[key] = self._offers.get(file, {}).get(name) or self._handed_on(file, name, depth)
        return self._found[key]

    def _handed_on(self, file: str, name: str, depth: int) -> Offer | None:
        """What a name offers that a file imports and does not define."""
        bound = self._imports.bound(file)
        if name in bound:
            return self._lookup(file, *bound[name], depth + 1)
        stars = [] if name.startswith("_") else [each for each in bound.values() if each[2] == "*"]
        offers_ = (self._lookup(file, level, module, name, depth + 1) for level, module, _ in reversed(stars))
        return next((offer for offer in offers_ if offer is not None), None)

    def _all_names(self, path: str, level: int, module: str) -> dict[str, Offer]:
        """What a file imports with all names of the module that defines them."""
        file = self._imports.file(path, level, module)
        offered = self._offers.get(file, {}) if file is not None else {}
        return {name: offer for name, offer in offered.items() if name[:1] != "_"}


def _as_module(offered: Mapping[str, Offer]) -> Offer:
    """What a file offers to who names it, as a module."""
    dotted = {b"." + name.encode() for name, offer in offered.items() if offer.alone}
    return Offer(False, frozenset(dotted).union(*(offer.methods for offer in offered.values())))
