"""The operations that the core in C++ recorded, as lines of a trace."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any

from streamsafe.order import operations as program
from streamsafe.order.backward import GRADIENT, Backward
from streamsafe.order.explain import Render
from streamsafe.order.memory import Region, Use
from streamsafe.order.native.checker import NativeChecker
from streamsafe.order.native.library import answer
from streamsafe.order.native.reports import KINDS, OWNERS
from streamsafe.order.native.spaces import space_of

EVERY = 0.25
"""Seconds between two looks at the tape; what a run that is killed loses."""

_OPERATIONS = tuple((name, columns.split()) for name, columns in program.TAPE.items())
"""By the numbers of the core."""

_NAMES: dict[str, tuple[str, ...]] = {
    "kind": KINDS,
    "owner": OWNERS,
    "mode": ("global", "thread_local", "relaxed"),
}
"""What the core's numbers stand for in these fields."""


class Tape:
    """Writes what a core does to a trace while it lasts.

    Args:
        checker: over the core.
        write: takes an operation.
        render: turns a site into stack frames.
        backward: what the autograd engine has to do with an operation, and the site of the call of backward() where
            that is not the operation's own, or 0.
    """

    def __init__(
        self,
        checker: NativeChecker,
        write: Callable[[program.Operation], None],
        render: Render,
        backward: Callable[[int], tuple[Backward | None, int]],
    ) -> None:
        self._checker = checker
        self._write = write
        self._render = render
        self._backward = backward
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._graphs: dict[int, int] = {}  # a trace numbers them from 1
        self._sites: dict[int, program.Site] = {}
        self._thread = threading.Thread(target=self._run, name="streamsafe-trace", daemon=True)
        checker._library.tape(checker._core, 1)

    def start(self) -> None:
        """Look at the tape now and then."""
        self._thread.start()

    def stop(self) -> None:
        """Write what is left, and the end mark."""
        if not self._stopped.is_set():
            self._stopped.set()
            self.drain()
            self._checker._library.tape(self._checker._core, 0)
            self._write(program.Finish())

    def _run(self) -> None:
        while not self._stopped.wait(EVERY):
            self.drain()

    def drain(self) -> None:
        """Write what was recorded since the last time."""
        with self._lock:
            values = answer(self._checker._library.take_tape, self._checker._core)
            at = 0
            while at < len(values):
                number, size = values[at], values[at + 1]
                for operation in self._operations(number, values[at + 2 : at + 2 + size]):
                    self._write(operation)
                at += 2 + size

    def _operations(self, number: int, values: Sequence[int]) -> Iterator[program.Operation]:
        """What one record of the tape says, by :data:`streamsafe.order.operations.TAPE`."""
        name, columns = _OPERATIONS[number]
        if name == "access":
            yield self._access(values)
            return
        raw = dict(zip(columns, values, strict=True))
        if name == "gradient":
            yield program.Mark(name=GRADIENT, data=(space_of(raw["space"]), raw["start"], raw["stop"]))
            return
        if name == "capture_begin":
            self._graphs[raw.pop("graph")] = len(self._graphs) + 1
        if name == "replay" and raw["graph"] not in self._graphs:
            return
        fields = {column: self._field(name, column, value) for column, value in raw.items()}
        if name == "stream":
            fields["name"] = self._checker.line_name(raw["key"])
        yield program.OPERATIONS[name](**fields)

    def _field(self, name: str, column: str, value: int) -> Any:
        """A field of an operation from its integer."""
        if column in ("stream", "function") or (column == "key" and name.endswith("stream")):
            return _line(value) if value else None
        if column in ("host", "source", "target"):
            return _host(value)
        if column in ("external", "implicit", "fresh", "private_pool"):
            return bool(value)
        if column in _NAMES:
            return _NAMES[column][value]
        if column == "site":
            return self._site(value)
        if column == "space":
            return space_of(value)
        if column == "graph":
            return self._graphs[value]
        if column == "operation":
            return self._checker.operation_name(value)
        return value

    def _access(self, v: Sequence[int]) -> program.Operation:
        uses: tuple[list[Use], list[Use]] = ([], [])
        at = 4
        while at < len(v):
            space, start, stop, mode, certain, itemsize, dims = v[at : at + 7]
            at += 7
            shape = tuple(v[at : at + dims]) if dims else None
            strides = tuple(v[at + dims : at + 2 * dims]) if dims else None
            at += 2 * dims
            region = Region(space_of(space), start, stop, shape, strides, itemsize)
            uses[mode].append(Use(region, "", None, bool(certain)))
        reads, writes = map(tuple, uses)
        name, host = self._checker.operation_name(v[1]), _host(v[3])
        backward, caller = self._backward(v[1])
        if caller:  # a line of a Function's own backward: what the program calls is backward()
            name = "backward()"
        site = self._site(caller or v[2])
        if v[0]:
            return program.Access(
                stream=_line(v[0]),
                reads=reads,
                writes=writes,
                operation=name,
                site=site,
                host=host,
                backward=backward,
            )
        return program.HostAccess(
            reads=reads, writes=writes, operation=name, site=site, host=host, backward=backward
        )

    def _site(self, site: int) -> program.Site:
        if not site:
            return ()
        known = self._sites.get(site)
        if known is None:
            known = self._sites[site] = tuple(self._render(self._checker.site_of(site)))
        return known


def _line(line: int) -> Hashable:
    return ("native", line)


def _host(key: int) -> Hashable:
    return key or None
