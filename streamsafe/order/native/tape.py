"""The verbs that the core in C++ recorded (``core.hpp``, ``Verb``), as lines of a trace."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Iterator, Sequence

from streamsafe.order import operations as program
from streamsafe.order.explain import Render
from streamsafe.order.memory import Region, Use
from streamsafe.order.native.checker import NativeChecker
from streamsafe.order.native.library import answer
from streamsafe.order.native.reports import KINDS, OWNERS
from streamsafe.order.native.spaces import space_of
from streamsafe.order.work import GRADIENT, Backward

EVERY = 0.25
"""Seconds between two looks at the tape; what a run that is killed loses."""

_MODES = ("global", "thread_local", "relaxed")


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
                verb, size = values[at], values[at + 1]
                for operation in self._operations(verb, values[at + 2 : at + 2 + size]):
                    self._write(operation)
                at += 2 + size

    def _operations(self, verb: int, v: Sequence[int]) -> Iterator[program.Operation]:
        if verb == 0:
            name = self._checker.line_name(v[0])
            yield program.Stream(key=_line(v[0]), device=v[1], kind=KINDS[v[2]], name=name)  # type: ignore[arg-type]
        elif verb == 1:
            yield program.DestroyStream(key=_line(v[0]))
        elif verb == 2:
            yield program.HostFunction(stream=_line(v[0]), function=_line(v[1]), host=_host(v[2]))
        elif verb == 3:
            yield program.Event(key=_key(v[0]))
        elif verb == 4:
            yield program.DestroyEvent(key=_key(v[0]))
        elif verb == 5:
            yield program.Record(
                event=_key(v[0]),
                stream=_line(v[1]),
                host=_host(v[2]),
                site=self._site(v[3]),
                external=bool(v[4]),
            )
        elif verb == 6:
            yield program.Wait(
                stream=_line(v[0]),
                event=_key(v[1]),
                host=_host(v[2]),
                site=self._site(v[3]),
                external=bool(v[4]),
                implicit=bool(v[5]),
            )
        elif verb == 7:
            yield program.SynchronizeStream(stream=_line(v[0]), host=_host(v[1]), site=self._site(v[2]))
        elif verb == 8:
            yield program.SynchronizeEvent(event=_key(v[0]), host=_host(v[1]), site=self._site(v[2]))
        elif verb == 9:
            yield program.SynchronizeDevice(device=v[0], host=_host(v[1]), site=self._site(v[2]))
        elif verb == 10:
            yield program.HostEdge(source=_host(v[0]), target=_host(v[1]))
        elif verb == 11:
            yield program.ForgetCarrier(carrier=_host(v[0]))
        elif verb == 12:
            yield self._access(v)
        elif verb == 13:
            yield program.Allocate(
                space=space_of(v[0]),
                start=v[1],
                size=v[2],
                stream=_line(v[3]) if v[3] else None,
                owner=OWNERS[v[4]],  # type: ignore[arg-type]
                site=self._site(v[5]),
                fresh=bool(v[6]),
                host=_host(v[7]),
            )
        elif verb == 14:
            yield program.Free(space=space_of(v[0]), start=v[1], site=self._site(v[2]))
        elif verb == 15:
            yield program.RecordStream(space=space_of(v[0]), start=v[1], stream=_line(v[2]))
        elif verb == 16:
            yield program.ReleaseBlock(space=space_of(v[0]), start=v[1], size=v[2])
        elif verb == 17:
            self._graphs[v[5]] = len(self._graphs) + 1
            yield program.CaptureBegin(
                stream=_line(v[0]),
                mode=_MODES[v[1]],  # type: ignore[arg-type]
                private_pool=bool(v[2]),
                host=_host(v[3]),
                site=self._site(v[4]),
            )
        elif verb == 18:
            yield program.CaptureEnd(stream=_line(v[0]), site=self._site(v[1]))
        elif verb == 20:
            yield program.Mark(name=GRADIENT, data=(space_of(v[0]), v[1], v[2]))
        elif verb == 19 and v[0] in self._graphs:
            name = self._checker.operation_name(v[2])
            yield program.Replay(
                graph=self._graphs[v[0]],
                stream=_line(v[1]),
                operation=name,
                site=self._site(v[3]),
                host=_host(v[4]),
            )

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


def _key(key: int) -> Hashable:
    return key


def _host(key: int) -> Hashable:
    return key or None
