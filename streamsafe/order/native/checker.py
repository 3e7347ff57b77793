"""The concrete engine's interface over the core in C++."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import fields
from functools import cached_property
from types import CodeType
from typing import TYPE_CHECKING, Any

from streamsafe.order.captures import CaptureMode, Graph
from streamsafe.order.checker import Checker, Epoch, Kind
from streamsafe.order.clocks import Timeline
from streamsafe.order.decide import Veto
from streamsafe.order.explain import Naming, Render, no_better_name, no_name, no_stack
from streamsafe.order.hazard import Conflict
from streamsafe.order.memory import HOST, Block, Owner, Region, Space, Use
from streamsafe.order.native.library import Library, answer, columns_of, integers, keys
from streamsafe.order.native.reports import KINDS, OWNERS, Reader
from streamsafe.order.native.spaces import number, space_of
from streamsafe.order.operations import OPERATIONS

OURS = 1 << 31
"""Ids of names and sites that this side gave, not a front end in C++."""

_ALL_BITS = (1 << 64) - 1

_SIZES = {"cells": 0, "blocks": 1, "timelines": 4, "hosts_and_locks": 5, "events": 6, "graphs": 7}

_ACCESS, _FORCED, _TRIAL = range(3)
_MODES: dict[str, int] = {"global": 0, "thread_local": 1, "relaxed": 2}


_HOST = Timeline(None, HOST, "host", "the host")
"""Stands for the timeline of a block: a front end asks a block for its addresses and its end only."""


class _Keys:
    """Numbers for arbitrary keys; integers from ``least`` on that fit stand for themselves."""

    def __init__(self, least: int) -> None:
        self._least = least
        self._known: dict[Hashable, int] = {}
        self._keys: dict[int, Hashable] = {}
        self._last = 1 << 62

    def __call__(self, key: Hashable) -> int:
        if key is None:
            return 0
        if type(key) is int and self._least <= key < 1 << 62:
            return key
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = self._last = self._last + 1
            self._keys[found] = key
        return found

    def __len__(self) -> int:
        return len(self._known)

    def forget(self, key: Hashable) -> None:
        """The key is not used any more, or for something else."""
        number = self._known.pop(key, None)
        if number is not None:
            del self._keys[number]

    def of(self, number: int) -> Hashable:
        """The key that a number stands for."""
        return self._keys.get(number, number or None)


if TYPE_CHECKING:
    Interface = Checker  # its signatures, which the methods below are held to
else:
    Interface = object  # and nothing of its state: the core has its own


def _as_it_is(name: str) -> Any:
    """The method that hands an operation to the core: its fields as the integers of the operations' table."""
    fields_ = [each.name for each in fields(OPERATIONS[name])]

    def method(self: NativeChecker, *given: Any, **named: Any) -> list[Conflict]:
        done = self._call(name, dict(zip(fields_, given, strict=False), **named))
        return self._found() if done == 0 else []

    return method


class NativeChecker(Interface):
    """:class:`streamsafe.order.checker.Checker` with the same methods and conflicts, in C++.

    Args:
        library: the core's functions.
        core: an existing core's address; by default one is made.
        threads, render, naming: as for :class:`Checker`. ``threads`` must be the existing core's.
    """

    def __init__(
        self,
        library: Library,
        core: int | None = None,
        *,
        threads: bool = False,
        render: Render = no_stack,
        naming: Naming = no_name,
    ) -> None:
        self._threads = threads
        self._host = _HOST
        self._library = library
        self._owned = core is None
        self._core: Any = library.new(int(threads)) if core is None else core
        self._render, self._naming = render, naming
        self._calling: Callable[[Timeline], None] = no_better_name
        self._line_ids: dict[Hashable, int] = {}
        self._line_names: dict[int, str] = {}
        self._spaces: dict[Hashable, Space] = {}
        self._kinds: dict[Hashable, Kind] = {}
        self._key = _Keys(2)
        self._thread = _Keys(1)
        self._operations: dict[str, int] = {}
        self._operation_names: list[str] = []
        self._site_ids: dict[Hashable, int] = {}
        self._site_objects: list[object] = []
        self._memory_ids: dict[Use, int] = {}
        self._memories: list[Use] = []
        self._handed: dict[tuple[Space, int], Block] = {}

    def __del__(self) -> None:
        if getattr(self, "_owned", False):
            self._library.delete(self._core)

    @cached_property
    def reader(self) -> Reader:
        """Reads what the core reports; made when it first does."""
        reader = Reader(self, self._render, self._naming)
        reader.explain.calling = self._calling
        return reader

    def ask_for_names(self, calling: Callable[[Timeline], None]) -> None:
        self._calling = calling
        if "reader" in self.__dict__:
            self.reader.explain.calling = calling

    # -- conflicts that come again -----------------------------------------------------------------------------------

    @property
    def library(self) -> Library:
        """The core's functions."""
        return self._library

    def judged(self, number: int) -> bool:
        """From now on the core only counts the conflicts of a number (``Conflict.again``), and does their operations.

        Returns:
            False where there are too many such numbers already.
        """
        return bool(self._library.judged(self._core, number & _ALL_BITS))

    def forget_judged(self) -> None:
        """Report all conflicts again."""
        self._library.forget_judged(self._core)

    def repeats(self) -> list[tuple[int, int]]:
        """The numbers of which conflicts came since the last time, and how often."""
        found = answer(self._library.repeats, self._core)
        return list(zip(found[::2], found[1::2], strict=True))

    # -- what ids stand for ------------------------------------------------------------------------------------------

    def foreign_line(self, label: int) -> str:
        """What the front end calls a timeline that it made in C++."""
        return f"timeline {label}"

    def foreign_operation(self, operation: int) -> str:
        """An operation that the front end gave in C++, as a user would write it."""
        return ""

    def foreign_site(self, site: int) -> object:
        """A site that the front end gave in C++."""
        return None

    def line_name(self, label: int) -> str:
        name = self._line_names.get(label)
        return self.foreign_line(label) if name is None else name

    def line_key(self, label: int) -> Hashable:
        return next((key for key, line in self._line_ids.items() if line == label), None)

    def host_name(self, key: int) -> str:
        return f"the host (thread {self._thread.of(key)})" if self._threads else "the host"

    def operation_name(self, operation: int) -> str:
        if operation >= OURS:
            return self._operation_names[operation - OURS]
        return self.foreign_operation(operation) if operation else ""

    def site_of(self, site: int) -> object:
        if site >= OURS:
            return self._site_objects[site - OURS]
        return self.foreign_site(site) if site else None

    def memory_of(self, name: int) -> Use | None:
        return self._memories[name - OURS] if name >= OURS else None

    def state(self, serials: Sequence[int]) -> list[int]:
        return answer(self._library.state, self._core, keys(serials), len(serials))

    def name_line(self, line: int, name: str) -> None:
        """What a timeline of the core is called from now on."""
        self._line_names[line] = name

    @property
    def operations(self) -> int:
        return int(self._library.size(self._core, 2))

    @property
    def busy_streams(self) -> int:
        return int(self._library.size(self._core, 3))

    # -- streams and events ------------------------------------------------------------------------------------------

    def stream(
        self, key: Hashable, *, device: Space = 0, kind: Kind = "non-blocking", name: str = ""
    ) -> None:
        line = self._line_ids.get(key)
        if line is None:
            line = self._line_ids[key] = self._new_line(number(device), KINDS.index(kind))
            self._spaces[key] = device
            self._kinds[key] = kind
            if kind != "legacy" or line not in self._line_names:
                self._line_names[line] = "the default stream" if kind == "legacy" else f"stream {key}"
        if name:
            self._line_names[line] = name

    def timeline(self, key: Hashable) -> Timeline:
        """A stream's device, kind and name; its clock is the core's."""
        name = self._line_names.get(self._line_ids[key], "")
        return Timeline(key, self._spaces[key], self._kinds[key], name)

    def _new_line(self, device: int, kind: int) -> int:
        return int(self._library.stream(self._core, device, kind))

    def name_stream(self, key: Hashable, name: str) -> None:
        line = self._line_ids.get(key)
        if line is not None:
            self.name_line(line, name)
        if "reader" in self.__dict__:
            self.reader.rename(key, name)

    def destroy_stream(self, key: Hashable) -> None:
        line = self._line_ids.pop(key, None)
        if line is not None:
            self._spaces.pop(key, None)
            self._kinds.pop(key, None)
            self._library.destroy_stream(self._core, line)

    def host_function(
        self, stream: Hashable, function: Hashable, *, host: Hashable = None, site: object = None
    ) -> None:
        line = self._line_ids[stream]
        made = self._call("host_function", {"stream": stream, "host": host})
        self._line_ids[function] = made
        self._line_names[made] = self.line_name(line)

    event = _as_it_is("event")
    record = _as_it_is("record")
    wait = _as_it_is("wait")
    synchronize_stream = completed_stream = _as_it_is("synchronize_stream")
    synchronize_event = completed_event = _as_it_is("synchronize_event")
    synchronize_device = _as_it_is("synchronize_device")

    def destroy_event(self, key: Hashable) -> None:
        self._call("destroy_event", {"key": key})
        self._key.forget(key)

    def host_edge(self, source: Hashable, target: Hashable) -> None:
        if type(source) is not int or type(target) is not int:
            source, target = self._thread(source), self._thread(target)
        self._library.host_edge(self._core, source, target)

    def forget_host(self, host: Hashable) -> None:
        number = host if type(host) is int else self._thread(host)
        self._library.forget_host(self._core, number)
        self._thread.forget(host)

    # -- accesses ----------------------------------------------------------------------------------------------------

    def access(self, stream: Hashable, *given: Any, **named: Any) -> list[Conflict]:
        return self._enqueue(self._line_ids[stream], *given, **named)

    def check_access(self, stream: Hashable, *given: Any, **named: Any) -> list[Conflict]:
        return self._enqueue(self._line_ids[stream], *given, how=_TRIAL, **named)

    def host_access(self, *given: Any, **named: Any) -> list[Conflict]:
        return self._enqueue(0, *given, **named)

    def host_in_order(self, reads: Sequence[Use] = (), writes: Sequence[Use] = ()) -> bool:
        return False

    # -- memory ------------------------------------------------------------------------------------------------------

    def allocate(self, space: Space, start: int, size: int, *, owner: Owner, **given: Any) -> Block:
        name, site = given.get("name", ""), given.get("site")
        block = Block(space, start, start + size, owner, _HOST, name, site)
        if size <= 0:
            block.ended = True
            return block
        named = self._memory(Use(Region(space, start, start + size), name)) if name else 0
        self._call("allocate", dict(given, space=space, start=start, size=size, owner=owner, name=named))
        before = self._handed.get((space, start))
        if before is not None:
            before.replaced()
        self._handed[space, start] = block
        return block

    def allocate_again(self, block: Block, size: int, stream: Hashable) -> bool:
        return False

    def free(self, space: Space, start: int, *, site: object = None) -> None:
        block = self._handed.pop((space, start), None)
        if block is not None:
            block.ended = True
        self._call("free", {"space": space, "start": start, "site": site})

    def record_stream(self, start: int, stream: Hashable, *, space: Space | None = None) -> None:
        where = self._spaces[stream] if space is None else space
        self._call("record_stream", {"space": where, "start": start, "stream": stream})

    release_block = _as_it_is("release_block")

    def freed_blocks(self) -> list[Block]:
        self._free_abandoned()
        found = answer(self._library.freed_blocks, self._core)
        blocks = []
        for at in range(0, len(found), 3):
            block = Block(space_of(found[at]), found[at + 1], found[at + 2], "cupy", self._host, "", None)
            block.ended = True
            blocks.append(block)
        return blocks

    def _free_abandoned(self) -> None:
        """Tell the core of the blocks whose end shows only by their lease."""
        for space, start in [place for place, block in self._handed.items() if block.freed]:
            self.free(space, start)

    # -- captures ----------------------------------------------------------------------------------------------------

    def capture_begin(
        self,
        stream: Hashable,
        mode: CaptureMode = "relaxed",
        *,
        private_pool: bool = False,
        pool: Hashable = None,
        host: Hashable = None,
        site: object = None,
    ) -> list[Conflict]:
        private = private_pool or pool is not None
        given = {"stream": stream, "mode": mode, "private_pool": private, "host": host, "site": site}
        done = self._call("capture_begin", given)
        return [] if done else self._found()

    def manage_graph(self) -> None:
        self._library.manage_graph(self._core)

    def capture_end(self, stream: Hashable, *, host: Hashable = None, site: object = None) -> Graph:
        key = self._call("capture_end", {"stream": stream, "site": site})
        graph = self.reader.graph(key)
        graph.conflicts = self._found(graph=key)
        return graph

    def drop_graph(self, graph: Graph) -> None:
        self._library.drop_graph(self._core, graph.key)
        self.reader.forget(graph.key)

    def capturing(self, stream: Hashable) -> bool:
        return bool(self._library.capturing(self._core, self._line_ids[stream]))

    def recorded(self, event: Hashable) -> bool:
        return bool(self._library.recorded(self._core, self._key(event)))

    def captured(self, event: Hashable) -> bool:
        return bool(self._library.captured(self._core, self._key(event)))

    def waited(self, event: Hashable, host: Hashable = None) -> bool:
        return bool(self._library.waited(self._core, self._key(event), self._thread(host)))

    def epoch(self, stream: Hashable) -> Epoch:
        line = self._line_ids[stream]
        return Timeline(line, 0, "non-blocking", ""), int(self._library.epoch(self._core, line))

    def passed(self, epoch: Epoch, host: Hashable = None) -> bool:
        timeline, count = epoch
        return bool(self._library.passed(self._core, timeline.key, count, self._thread(host)))

    def capture_violation(
        self, violation: str, stream: Hashable, *, operation: str, message: str = "", site: object = None
    ) -> Conflict:
        begun = [
            self.reader.explain.note("the capture begins here", self.site_of(each))
            for each in answer(self._library.capture_sites, self._core)
        ]
        name = self.line_name(self._line_ids[stream])
        return self.reader.explain.violation(violation, name, operation, message, site, begun)

    def replay(
        self,
        graph: Graph,
        stream: Hashable,
        *,
        operation: str = "launch",
        host: Hashable = None,
        site: object = None,
        veto: Veto | None = None,
    ) -> list[Conflict]:
        self._free_abandoned()
        given: dict[str, Any] = {"graph": graph.key, "stream": stream, "operation": operation}
        given.update(site=site, host=host)
        if self._call("replay", given):
            return []
        conflicts = self._found()
        if veto is None or not veto(conflicts):
            self._call("replay", given | {"force": True})
        return conflicts

    def finish(self) -> list[Conflict]:
        self._free_abandoned()
        self._library.finish(self._core)
        return self._found()

    def remembered(self) -> int:
        """How many cells there are."""
        return int(self._library.size(self._core, 0))

    def sizes(self) -> dict[str, int]:
        """How much the engine keeps, of what a program makes and drops."""
        kept = {name: int(self._library.size(self._core, what)) for name, what in _SIZES.items()}
        return kept | {"keys": len(self._key) + len(self._thread), "sites": len(self._site_objects)}

    def _call(self, name: str, given: Mapping[str, Any]) -> Any:
        """Hand an operation to the core."""
        integers_ = (_INTEGERS[column](self, given.get(column)) for column in columns_of(name))
        return getattr(self._library, name)(self._core, *integers_)

    # -- inside ------------------------------------------------------------------------------------------------------

    def _enqueue(
        self,
        line: int,
        reads: Sequence[Use] = (),
        writes: Sequence[Use] = (),
        operation: str = "",
        host: Hashable = None,
        site: object = None,
        veto: Veto | None = None,
        *,
        how: int = _ACCESS,
    ) -> list[Conflict]:
        """Hand an access to the core, with the parameters of :meth:`Checker.access`; ``line`` 0 is the host's."""
        uses = [*reads, *writes]
        arguments = self._arguments(line, uses, len(reads), operation, self._site(site), host)
        if self._library.access(*arguments, how):
            return []
        conflicts = self._found(uses)
        if how == _ACCESS and (veto is None or not veto(conflicts)):
            self._library.access(*arguments, _FORCED)
        return conflicts

    def _force(
        self, line: int, reads: Sequence[Use], writes: Sequence[Use], operation: str, site: int
    ) -> None:
        """Do an operation that has conflicts."""
        arguments = self._arguments(line, [*reads, *writes], len(reads), operation, site, None)
        self._library.access(*arguments, _FORCED)

    def _arguments(
        self, line: int, uses: Sequence[Use], reads: int, operation: str, site: int, host: Hashable
    ) -> tuple[Any, ...]:
        """What the core's ``access`` takes."""
        data: list[int] = []
        capturing = bool(line) and self._library.capturing(self._core, line)
        for index, use in enumerate(uses):
            (space, start, stop, shape, strides, itemsize), _, _, certain = use
            named = self._memory(use) if capturing else 0
            mode = int(index >= reads)
            dims = 0 if strides is None or shape is None else len(shape)
            data += (number(space), start, stop, mode, int(certain), named, itemsize, dims)
            if dims:
                data += (*shape, *strides)  # type: ignore[misc]
        operation_id = self._operation(operation)
        return self._core, line, integers(data), len(uses), operation_id, site, self._thread(host)

    def _found(self, uses: Sequence[Use] = (), graph: int = 0) -> list[Conflict]:
        data = answer(self._library.reports, self._core, graph)
        conflicts = []
        at = 1
        for _ in range(data[0]):
            conflicts.append(self.reader.read(data[at + 1 : at + 1 + data[at]], uses))
            at += 1 + data[at]
        return conflicts

    def _operation(self, name: str) -> int:
        found = self._operations.get(name)
        if found is None:
            found = self._operations[name] = OURS + len(self._operation_names)
            self._operation_names.append(name)
        return found

    def _site(self, site: object) -> int:
        if site is None:
            return 0
        key: Hashable = site
        if isinstance(site, tuple) and site and isinstance(site[0], CodeType):
            key = tuple(id(each) if isinstance(each, CodeType) else each for each in site)
        found = self._site_ids.get(key)
        if found is None:
            found = self._site_ids[key] = OURS + len(self._site_objects)
            self._site_objects.append(site)
        return found

    def _memory(self, use: Use) -> int:
        use = Use(*use)
        found = self._memory_ids.get(use)
        if found is None:
            found = self._memory_ids[use] = OURS + len(self._memories)
            self._memories.append(use)
        return found


_INTEGERS: dict[str, Callable[[NativeChecker, Any], int]] = {
    "stream": lambda self, key: 0 if key is None else self._line_ids[key],
    **dict.fromkeys(("event", "key"), lambda self, key: self._key(key)),
    **dict.fromkeys(("host", "source", "target"), lambda self, key: self._thread(key)),
    **dict.fromkeys(("space", "device"), lambda _, space: number(space)),
    "site": lambda self, site: self._site(site),
    "operation": lambda self, name: self._operation(name),
    "mode": lambda _, mode: _MODES[mode],
    "owner": lambda _, owner: OWNERS.index(owner),
    **dict.fromkeys(("start", "size", "graph", "name"), lambda _, given: int(given)),
    **dict.fromkeys(
        ("external", "implicit", "fresh", "private_pool", "force"), lambda _, given: int(bool(given))
    ),
}
"""A field of an operation as the core's integer, by its column in the operations' table."""
