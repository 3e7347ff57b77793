"""Reads the tables of the models: TOML files beside this module, checked and turned into rows.

``names`` of a ``[[row]]`` are whitespace-separated, and ``of`` is what stands before each of them. Lists of arguments
are whitespace-separated, too. ``copy`` is written ``src -> dst if flag``, ``src -> dst unless flag``, ``src -> dst
asynchronous`` or ``src -> dst`` (blocking); ``asynchronous`` after a flag says what holds where the flag is not given;
``result`` a kind and its argument: ``fresh like input``.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Collection, Iterable, Mapping
from functools import lru_cache
from typing import Any, Final, get_args

from streamsafe.static.models import rows
from streamsafe.static.models.rows import (
    Calls,
    Capture,
    Copy,
    Library,
    NameRow,
    Order,
    Place,
    Result,
    Row,
    Store,
    TypeRow,
)

FILES = ("torch", "cupy", "numpy", "cuda_bindings", "distributed", "frameworks", "python")
MOST_NAMES = 40
"""Rows of names.toml, at most."""

_LIBRARIES: dict[str, Library] = {
    "torch": "torch",
    "cupy": "cupy",
    "cupyx": "cupy",
    "numpy": "numpy",
    "numba": "cupy",
    "cuda": "cupy",
}
_TENSORS = frozenset("torch torch_npu cupy cupyx numpy numba builtins".split())
_PYTHON = frozenset(
    """builtins collections itertools functools heapq types argparse copy typing dataclasses weakref operator contextlib
    warnings unittest threading concurrent asyncio queue time timeit datetime multiprocessing""".split()
)


class ModelError(Exception):
    """A row that means nothing; the message names the file, the row and the key."""


MODULE: Final = "torch.nn.Module"
"""The base of all modules, those among them that no table names."""


class Models:
    """What library calls do.

    Attributes:
        types: classes of libraries, by canonical name.
        libraries: top-level names that are never looked for in the checked tree.
        tensor_work: prefixes of functions that, unless a row says otherwise, read memory and make new one.
        plain: prefixes of functions that, unless a row says otherwise, touch none; the longest prefix counts.
        host: prefixes of functions that read what they are given on the host.
        modules: prefixes of classes whose instances are modules.
        names: hints that only names give.
        metadata: attributes of memory that are none.
    """

    def __init__(self) -> None:
        self.types: dict[str, TypeRow] = {}
        self.tensor_work: tuple[str, ...] = ()
        self.plain: tuple[str, ...] = ()
        self.host: tuple[str, ...] = ()
        self.modules: tuple[str, ...] = ()
        self.names: tuple[NameRow, ...] = ()
        self.libraries: frozenset[str] = frozenset()
        self.metadata: frozenset[str] = frozenset()
        self._rows: dict[str, Row] = {}
        self._same: dict[str, str] = {}
        self._prefixes: dict[str, str] = {}
        self._attributes: dict[str, Result] = {}
        self._by_method: dict[str, list[Row]] = {}
        self._canonical: dict[str, str] = {}
        self._patterns: list[tuple[re.Pattern[str], NameRow]] = []

    # -- look-ups --------------------------------------------------------------------------------------------------
    def canonical(self, name: str) -> str:
        """The one name of what goes by several."""
        found = self._canonical.get(name)
        if found is None:
            found = self._canonical[name] = self._rename(name)
        return found

    def _rename(self, name: str) -> str:
        for _ in range(4):
            new = self._same.get(name)
            if new is None:
                new = self._by_prefix(name)
            if new is None or new == name:
                return name
            name = new
        return name

    def _by_prefix(self, name: str) -> str | None:
        if name in self._prefixes:
            return self._prefixes[name]
        head = name
        while head:
            head = head.rpartition(".")[0]
            if head + "." in self._prefixes:
                return self._prefixes[head + "."] + name[len(head) + 1 :]
            if head in self._prefixes:
                return self._prefixes[head] + name[len(head) :]
        return None

    def row(self, name: str) -> Row | None:
        """What a function does, by its canonical name; None where no row names it."""
        return self._rows.get(name)

    def known(self, name: str) -> Row:
        """The row of a function that has one.

        Raises:
            KeyError: it has none.
        """
        return self._rows[name]

    def row_names(self) -> Iterable[str]:
        """The names of all rows."""
        return self._rows.keys()

    def method(self, type: str, name: str) -> Row | None:
        """What a method of a class of a library does, its bases included."""
        while type:
            row = self._rows.get(f"{type}.{name}")
            if row is not None:
                return row
            known = self.types.get(type)
            type = known.base if known is not None else MODULE if self.is_module(type) else ""
        return None

    def by_method(self, name: str) -> Row | None:
        """What methods of a name do, of a receiver whose class is not known."""
        found = self._by_method.get(name)
        return found[0] if found else None

    def by_keywords(self, name: str, keywords: Collection[str]) -> Row | None:
        """The one method of a name that takes some keywords and works on a device: ``x.get(out=h, blocking=False)``.

        None where several take them, where a method is modelled without its parameters, or where nothing is ruled out.
        """
        found = self._by_method.get(name, ())
        if not keywords or len(found) < 2 or not all(row.params for row in found):
            return None
        takers = [row for row in found if set(keywords) <= set(row.params)]
        return takers[0] if len(takers) == 1 and (takers[0].copy or takers[0].stream) else None

    def knows(self, name: str) -> bool:
        """Whether a row, a type or another name speaks of what a dotted name stands for, wherever its source lies."""
        if name in self._rows or name in self.types or name in self._same or f"{name}." in self._prefixes:
            return True
        return self._by_prefix(name) is not None

    def attribute(self, name: str) -> Result | None:
        """The value of an attribute of a library: ``cupy.cuda.Stream.null``."""
        return self._attributes.get(name)

    def works(self, name: str) -> str:
        """What a function that no row names does: ``work``, ``host``, ``plain``, or "" where nothing is known."""
        best, found = 0, ""
        for kind, prefixes in (("work", self.tensor_work), ("plain", self.plain), ("host", self.host)):
            for prefix in prefixes:
                if len(prefix) > best and name.startswith(prefix):
                    best, found = len(prefix), kind
        return found

    def is_module(self, name: str) -> bool:
        """Whether a dotted name that no row names is that of a class of modules."""
        return name.startswith(self.modules) and name.rpartition(".")[2][:1].isupper()

    def hint(self, what: str, name: str) -> NameRow | None:
        """What a name alone says of a value whose origin is not seen."""
        for pattern, row in self._patterns:
            if row.what == what and pattern.fullmatch(name):
                return row
        return None

    def order_words(self) -> frozenset[str]:
        """Identifiers without which code neither orders, captures, copies without waiting, nor reads a clock."""
        words: set[str] = {"stream", "async_op"}
        for row in self._rows.values():
            if row.copy is not None and row.copy.flag:
                words.add(row.copy.flag)
            if self._orders(row):
                words.add(row.name.rpartition(".")[2])
        for kind in self.types.values():
            if kind.role in _ORDERING:
                words.add(kind.name.rpartition(".")[2])
        for other, name in self._same.items():
            if name.rpartition(".")[2] in words:
                words.add(other.rpartition(".")[2])
        return frozenset(word for word in words if f"builtins.{word}" not in self._rows)

    def waiting_words(self) -> frozenset[str]:
        """Names of the calls that wait for, or record, what they are given or what they are methods of."""
        return frozenset(
            row.name.rpartition(".")[2]
            for row in self._rows.values()
            if row.records
            or any(
                o.kind == "record" or (o.kind in ("wait", "sync") and o.whom not in ("current", "device"))
                for o in row.order
            )
        )

    def context_words(self) -> frozenset[str]:
        """Names of the calls that make a context under which another stream is current."""
        return frozenset(
            row.name.rpartition(".")[2] for row in self._rows.values() if row.result.kind == "stream_context"
        )

    def clock_words(self) -> frozenset[str]:
        """Identifiers without which code reads no clock of the host."""
        return frozenset(row.name.rpartition(".")[2] for row in self._rows.values() if row.clock)

    def _orders(self, row: Row) -> bool:
        if row.library == "python":
            return row.clock
        made = self.types.get(row.result.type)
        pinned = row.result.place is not None and row.result.place.kind == "pinned"
        return (
            any(o.kind != "query" and (o.kind != "sync" or o.whom != "current") for o in row.order)
            or bool(row.sets_current)
            or row.result.kind in _STREAM_RESULTS
            or (made is not None and made.role in _ORDERING)
            or any(calls.mode in ("stream", "thread") for calls in row.calls)
            or (row.copy is not None and row.copy.default)
            or pinned
            or row.special in _STREAM_SPECIALS
        )

    def method_words(self) -> frozenset[str]:
        """Names of methods of libraries: who calls one of these rarely calls a method of the tree."""
        return frozenset(self._by_method)

    def flag_positions(self) -> dict[str, int]:
        """Methods that copy, and at which position their flag may be given: ``x.copy_(y, True)``."""
        return {
            row.name.rpartition(".")[2]: row.params.index(row.copy.flag)
            for row in self._rows.values()
            if row.copy is not None and row.copy.flag and not row.copy.inverted
        }

    # -- filling ---------------------------------------------------------------------------------------------------
    def add_table(self, table: Mapping[str, Any], where: str) -> None:
        """Add the contents of one TOML file.

        Raises:
            ModelError: a key or a value that means nothing.
        """
        _known(table, ("prefixes", "same", "types", "attributes", "row", "defaults"), where)
        self._prefixes.update(table.get("prefixes", {}))
        self._same.update({k: v for k, v in table.get("same", {}).items() if k != v})
        for name, entry in table.get("types", {}).items():
            self.types[name] = _type(name, entry, f"{where}: types.{name}")
        for name, text in table.get("attributes", {}).items():
            self._attributes[name] = _result(text, f"{where}: attributes.{name}")
        for entry in table.get("row", ()):
            for row in _rows(entry, where):
                self.add(row)
        defaults = table.get("defaults", {})
        _known(defaults, ("work", "plain", "host", "modules"), f"{where}: defaults")
        self.modules += tuple(defaults.get("modules", "").split())
        self.tensor_work += tuple(defaults.get("work", "").split())
        self.plain += tuple(defaults.get("plain", "").split())
        self.host += tuple(defaults.get("host", "").split())

    def add(self, row: Row) -> None:
        """Add a row; it counts before one of the same name that was there."""
        self._rows[row.name] = row

    def add_names(self, table: Mapping[str, Any], where: str) -> None:
        """Add the table of name hints."""
        _known(table, ("name",), where)
        found = []
        for entry in table.get("name", ()):
            _known(entry, NameRow._fields, f"{where}: {entry.get('pattern')}")
            found.append(NameRow(**entry))
        if len(found) > MOST_NAMES:
            raise ModelError(f"{where}: {len(found)} rows, {MOST_NAMES} at most")
        self.names = tuple(found)
        self._patterns = [(re.compile(row.pattern), row) for row in found]

    def finish(self) -> None:
        """Index what the tables hold."""
        tops = {name.partition(".")[0] for name in (*self._rows, *self.types, *self.plain, *self.host)}
        self.libraries = frozenset(top for top in tops if top in _TENSORS or top in sys.stdlib_module_names)
        self.metadata = frozenset(
            name.rpartition(".")[2]
            for name, row in self._rows.items()
            if row.property and row.library == "torch" and row.result.kind == "host"
        )
        for type in _ASKED_FIRST:
            head = f"{type}."
            for name, row in self._rows.items():
                if name.startswith(head) and "." not in name[len(head) :]:
                    self._by_method.setdefault(name[len(head) :], []).append(row)


_ORDERING = frozenset({"stream", "event", "graph", "work"})
_STREAM_RESULTS = frozenset({"stream_context", "current_stream", "default_stream", "capture_context"})
_STREAM_SPECIALS = frozenset(
    "collective p2p capture_begin capture_end replay graphed_callables interop elapsed_time pin_memory".split()
)
_ASKED_FIRST = (
    "torch.Tensor",
    "torch.cuda.Stream",
    "torch.cuda.Event",
    "torch.cuda.CUDAGraph",
    "builtins.dict",
    "builtins.list",
    "cupy.ndarray",
    "cupy.cuda.Stream",
    "cupy.cuda.MemoryPointer",
    "torch.distributed.Work",
    "torch.nn.Module",
    "concurrent.futures.Future",
    "concurrent.futures.ThreadPoolExecutor",
    "asyncio.AbstractEventLoop",
    "logging.Logger",
    "matplotlib.axes.Axes",
    "tqdm.std.tqdm",
    "transformers.PreTrainedTokenizerBase",
    "socket.socket",
    "io.IOBase",
)
"""Whose method is meant where the receiver is not known."""


@lru_cache(maxsize=1)
def library_models() -> Models:
    """The models of this package's own tables; not to be changed."""
    return _read()


def load(wrappers: Mapping[str, Any] | None = None) -> Models:
    """The models, and those of the user's own wrappers (``[tool.streamsafe.models]``, checked by the configuration).

    Args:
        wrappers: :class:`streamsafe.config.Model` by the dotted name of what it describes.
    """
    if not wrappers:
        return library_models()
    from streamsafe.static.models.wrappers import as_row

    models = _read()
    for name, model in wrappers.items():
        models.add(as_row(name, model))
    models.finish()
    return models


def _read() -> Models:
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    folder = os.path.dirname(os.path.abspath(__file__))
    models = Models()
    for file in (*FILES, "names"):
        path = os.path.join(folder, f"{file}.toml")
        with open(path, "rb") as opened:
            table = tomllib.load(opened)
        (models.add_names if file == "names" else models.add_table)(table, f"{file}.toml")
    models.finish()
    return models


# -- parsing of rows ---------------------------------------------------------------------------------------------------
_KEYS = (
    "of names params stream reads writes host_reads host_writes pickles result order copy capture frees records"
    " sets_current asks truth property calls stores gradient clock weak special semantics"
).split()
_ROLES = frozenset(get_args(rows.Role))
_RESULTS = frozenset(get_args(rows.ResultKind))
_PLACES = frozenset(get_args(rows.PlaceKind))
_ORDERS = frozenset(get_args(rows.OrderKind))
_MODES = frozenset(get_args(rows.CallMode))
_SPECIALS = frozenset(get_args(rows.Special))
_GRADIENTS = frozenset(get_args(rows.GradientUse))


def _known(table: Mapping[str, Any], keys: Iterable[str], where: str) -> None:
    others = sorted(set(table) - set(keys))
    if others:
        raise ModelError(f"{where}: unknown key {others[0]!r}")


def _one_of(value: str, known: frozenset[str], where: str) -> Any:
    if value not in known:
        raise ModelError(f"{where}: {value!r} is none of {', '.join(sorted(known))}")
    return value


def library_of(name: str) -> Library:
    """Whose memory and streams a call works with, by its dotted name."""
    top = name.partition(".")[0]
    return _LIBRARIES.get(top, "python" if top in _PYTHON else "other")


def _type(name: str, entry: Mapping[str, Any], where: str) -> TypeRow:
    _known(entry, ("role", "base", "blocking", "place"), where)
    role = _one_of(entry.get("role", ""), _ROLES, where)
    library = library_of(name)
    return TypeRow(
        name, role, library, entry.get("base", ""), entry.get("blocking", False), entry.get("place", "")
    )


def _rows(entry: Mapping[str, Any], where: str) -> list[Row]:
    names = str(entry.get("names", "")).split()
    where = f"{where}: {entry.get('of', '')}{names[0] if names else '?'}"
    _known(entry, _KEYS, where)
    if not names:
        raise ModelError(f"{where}: no names")
    fields: dict[str, Any] = {
        key: tuple(str(entry[key]).split())
        for key in (
            "params",
            "reads",
            "writes",
            "host_reads",
            "host_writes",
            "pickles",
            "frees",
            "semantics",
            "asks",
        )
        if key in entry
    }
    for key in ("stream", "sets_current", "clock", "weak", "truth", "property"):
        if key in entry:
            fields[key] = entry[key]
    if "special" in entry:
        fields["special"] = _one_of(entry["special"], _SPECIALS, where)
    if "gradient" in entry:
        fields["gradient"] = _one_of(entry["gradient"], _GRADIENTS, where)
    if "result" in entry:
        fields["result"] = _result(entry["result"], where)
    if "copy" in entry:
        fields["copy"] = _copy(entry["copy"], where)
    if "capture" in entry:
        kind, _, code = entry["capture"].partition(" ")
        fields["capture"] = Capture(
            _one_of(kind, frozenset(get_args(rows.CaptureKind)), where), code or "SS401"
        )
    fields["order"] = tuple(_order(text, where) for text in entry.get("order", ()))
    fields["calls"] = tuple(_calls(text, where) for text in entry.get("calls", ()))
    fields["stores"] = tuple(_store(text, where) for text in entry.get("stores", ()))
    fields["records"] = tuple(_pair(text, where) for text in entry.get("records", ()))
    prefix = entry.get("of", "")
    return [Row(prefix + name, library_of(prefix + name), **fields) for name in names]


def _pair(text: str, where: str) -> tuple[str, str]:
    parts = text.split()
    if len(parts) != 2:
        raise ModelError(f"{where}: {text!r} is no pair")
    return parts[0], parts[1]


def _result(text: str, where: str) -> Result:
    kind, *rest = text.split()
    _one_of(kind, _RESULTS, where)
    if kind == "fresh":
        place = _one_of(rest[0] if rest else "unknown", _PLACES, where)
        return Result("fresh", "", "", Place(place, rest[1] if len(rest) > 1 else ""))
    if kind in ("object", "pair", "library_module"):
        return Result(kind, "", rest[0])  # type: ignore[arg-type]
    if kind == "mapped":
        return Result("mapped", "", rest[0] if rest else "builtins.list")
    return Result(kind, rest[0] if rest else "")  # type: ignore[arg-type]


def _order(text: str, where: str) -> Order:
    parts = text.split()
    if len(parts) != 3:
        raise ModelError(f"{where}: {text!r} is no order")
    return Order(_one_of(parts[0], _ORDERS, where), parts[1], parts[2])


_COPY = re.compile(r"(\w+) -> (\w+)(?: (if|unless) (\w+))?( asynchronous)?")


def _copy(text: str, where: str) -> Copy:
    match = _COPY.fullmatch(text)
    if match is None:
        raise ModelError(f"{where}: {text!r} is no copy")
    source, destination, word, flag, asynchronous = match.groups()
    return Copy(source, destination, flag or "", asynchronous is not None, word == "unless")


def _calls(text: str, where: str) -> Calls:
    mode, function, *args = text.split()
    return Calls(_one_of(mode, _MODES, where), function, tuple(args))


def _store(text: str, where: str) -> Store:
    container, value, *key = text.split()
    return Store(container, value.removeprefix("*"), value.startswith("*"), key[0] if key else "")
