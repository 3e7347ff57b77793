"""Tensors and arrays: operations, views, copies between host and device, gradients, host values.

One file: operations and copies share how the place, the stream and the host's wait are found.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import libcst as cst

from streamsafe.order import edges
from streamsafe.order.symbolic import ALWAYS, HOST, Guard
from streamsafe.static import advice, apis, concrete, hints, suggestions
from streamsafe.static.conditions import BOTH, Outcomes
from streamsafe.static.devices import MADE_ON, PLACED, as_device, placed_on
from streamsafe.static.expressions import Expressions
from streamsafe.static.facts import AMBIENT, GRADIENTS, IS_CUDA, Assumed, Detail, Site
from streamsafe.static.state import State
from streamsafe.static.values import (
    NONE,
    PARAMETERS,
    PLAIN,
    UNKNOWN,
    Clock,
    Const,
    Container,
    Device,
    Event,
    Generator,
    Instance,
    Name,
    Object,
    Opaque,
    Partial,
    Stream,
    Tensor,
    Tuple,
    Union,
    Value,
    alternatives,
    iterate,
    under,
    union,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

HOST_PLACES = frozenset({"pinned", "pageable", "host"})
COMMUNICATION = Name(suggestions.COMMUNICATION)
_TAKES_ANY = frozenset({"submit()", "put()", "put_nowait()", "send()", "start()"})
"""Ways to hand a tensor to another thread, wherever it lies."""


LAST = "last launch"
"""The streams on which the last work was enqueued since a clock was read."""

UNNAMED_REST = "**"
"""The keyword of a mapping of unknown keys that is given as keyword arguments."""

UNPLACED = "*"
"""The keyword of the positional arguments that come after a star of unknown length, in a tuple."""


@dataclass(slots=True)
class Call:
    """A call with its arguments evaluated."""

    node: cst.CSTNode
    site: Site
    args: list[Value] = field(default_factory=list)
    kwargs: dict[str, Value] = field(default_factory=dict)
    text: str = ""
    starred: bool = False

    def get(self, position: int, name: str) -> Value | None:
        """An argument by position or name."""
        if name in self.kwargs:
            return self.kwargs[name]
        return self.args[position] if 0 <= position < len(self.args) else None

    def everything(self) -> list[Value]:
        """All arguments."""
        return [*self.args, *self.kwargs.values()]


class Tensors(Expressions):
    """What happens to tensors."""

    # -- which library, which place ------------------------------------------------------------------------------

    def library_of(self, st: State, values: Iterable[Value]) -> str:
        """Whose current stream an operation on these runs on."""
        for value in values:
            for inner in iterate(value):
                if isinstance(inner, Tensor) and inner.library:
                    return inner.library
                if isinstance(inner, Object):
                    found = self.libraries.get(inner.name.base())
                    if found is not None:
                        return found
        return self.default_library

    @property
    def default_library(self) -> str:
        """The library of a file that uses only one."""
        return self.file.library

    def on_side_stream(self, st: State, library: str) -> bool:
        """Whether the current stream is one that was entered explicitly."""
        return any(s.name != AMBIENT for s, _ in self.streams(st, library))

    def is_host(self, st: State, value: Value) -> bool:
        """Whether this is memory that only the host touches directly."""
        return (isinstance(value, Tensor) and value.numpy) or self.place(st, value) in HOST_PLACES

    def pending_copy(self, st: State, value: Object) -> bool:
        """Whether an asynchronous copy to the host may still write this."""
        return any(
            isinstance(made.detail, Detail) and made.detail.tags & {"d2h", "d2h?"}
            for made in st.order.accesses(value.name)
        )

    # -- operations ----------------------------------------------------------------------------------------------

    def new_tensor(
        self,
        st: State,
        site: Site,
        text: str,
        *,
        library: str,
        place: str = "",
        what: str = "",
        written: bool = True,
        allocated: bool = True,
        assumed: Assumed = Assumed.NOTHING,
        tags: frozenset[str] = frozenset(),
        opaque: bool = False,
        stream: Value | None = None,
    ) -> Object:
        """A fresh tensor: memory of the current stream's pool, written there."""
        name = self.fresh(site.node, st, what or "result")
        if place:
            st.store[(name, "@place")] = Const(place)
        self.libraries[name] = library
        self.results.add(name)
        if st.capture is not None:
            st.store[(name, "@captured")] = Const(st.capture.site)
        value: Object = Opaque(name) if opaque else Tensor(name)
        self.stack[-1].temporaries.append(value)
        if allocated and place not in HOST_PLACES:
            self.allocate(st, name, library, site)
        if written:
            self.access(
                st,
                value,
                site,
                text,
                writes=True,
                library=library,
                assumed=assumed,
                tags=tags,
                stream=stream,
            )
        return value

    def operation(
        self,
        st: State,
        operands: list[Value],
        site: Site,
        text: str,
        *,
        library: str = "",
        assumed: Assumed = Assumed.NOTHING,
        tags: frozenset[str] = frozenset(),
    ) -> Value:
        """A device operation: reads its operands, returns a fresh tensor. On host memory the host does it."""
        library = library or self.library_of(st, operands)
        flat = [t for operand in operands for t, _ in self.tensors(st, operand)]
        known = [self.place(st, t) for t in flat]
        numpy = any(isinstance(t, Tensor) and t.numpy for t in flat)
        self.read_operands(st, operands, site, text, library=library, assumed=assumed, tags=tags)
        if numpy or (any(p in HOST_PLACES for p in known) and "device" not in known):
            name = self.fresh(site.node, st, "result")
            st.store[(name, "@place")] = Const("pageable")
            if any((t.name, "@brought") in st.store for t in flat):
                st.store[(name, "@brought")] = PLAIN
            if not numpy:
                self._without_dimension(name, flat, known)
            return Tensor(name, numpy=numpy)
        place = "device" if "device" in known or self.on_side_stream(st, library) else ""
        result = self.new_tensor(st, site, text, library=library, place=place, assumed=assumed, tags=tags)
        if not place and (placed := [device for t in flat for device in placed_on(st, t)]):
            st.store[(result.name, MADE_ON)] = placed[0]
        return result

    def _without_dimension(self, result: Name, operands: list[Object], places: list[str]) -> None:
        """A tensor without a dimension goes to the device of what it is combined with, so the result may lie there."""
        names = {t.name.base() for t, place in zip(operands, places, strict=True) if place in HOST_PLACES}
        if names <= self.numbers:
            (self.numbers if all(places) else self.unplaced).add(result.base())
        elif not names.isdisjoint(self.unplaced):
            self.unplaced.add(result.base())

    def unsure_operation(self, st: State, operands: list[Value], site: Site, text: str) -> Value:
        """An operation on objects of unknown kind: under an explicit stream they are tensors."""
        library = self.library_of(st, operands)
        side = self.on_side_stream(st, library)
        if side:
            for operand in operands:
                for inner in iterate(operand):
                    if isinstance(inner, Opaque):
                        self.mark_tensor(st, inner)
        self.read_operands(st, operands, site, text, library=library)
        # where nothing shows that it is a tensor, it is as little seen as the result of a call that is not seen
        assumed = Assumed.NOTHING if side else Assumed.UNMODELLED
        made = self.new_tensor(st, site, text, library=library, opaque=True, assumed=assumed)
        if side:
            self.mark_tensor(st, made)
        else:
            self.tensorish.discard(made.name.base())
        return made

    def read_operands(
        self,
        st: State,
        operands: list[Value],
        site: Site,
        text: str,
        *,
        library: str = "",
        assumed: Assumed = Assumed.NOTHING,
        tags: frozenset[str] = frozenset(),
    ) -> None:
        """Operands are read: device memory on the current stream, host memory by the host."""
        library = library or self.library_of(st, operands)
        for operand in operands:
            if isinstance(operand, Const):
                continue
            for target, guard in self.tensors(st, operand):
                value = under(target, guard)
                if self.is_host(st, target):
                    self.host_access(st, value, site, text, writes=False, assumed=assumed, tags=tags)
                else:
                    self.access(
                        st, value, site, text, writes=False, library=library, assumed=assumed, tags=tags
                    )

    def in_place(
        self,
        st: State,
        target: Value,
        operands: list[Value],
        site: Site,
        text: str,
        tags: frozenset[str] = frozenset(),
        library: str = "",
    ) -> None:
        """A write into a tensor, by the current stream or, in host memory, by the host."""
        library = library or self.library_of(st, [target, *operands])
        self.read_operands(st, operands, site, text, library=library)
        for inner, guard in alternatives(target, st.path):
            if not isinstance(inner, (Tensor, Opaque)):
                continue
            value = under(inner, guard)
            if self.is_host(st, inner):
                self.host_access(st, value, site, text, writes=True, tags=tags)
            else:
                self.mark_tensor(st, inner)
                self.access(st, value, site, text, writes=True, library=library, tags=tags)

    def mark_tensor(self, st: State, value: Object) -> None:
        """This object has been used as a tensor."""
        self.tensorish.add(value.name.base())
        self.presumed.discard(value.name.base())

    def rows_are_tensors(self, st: State, values: Iterable[Value]) -> None:
        """Something that only tensors are given to was given rows of a result."""
        for row in (v for value in values for v in iterate(value) if isinstance(v, Opaque)):
            if type(row.name.site) is int and row.name.root().base() in self.results:
                self.tensor_rows.add(row.name.base())
                self.mark_tensor(st, row)

    def presume_tensor(self, st: State, value: Object) -> None:
        """Nothing but what a call was given tells that its result is a tensor."""
        base = value.name.base()
        if base not in self.tensorish:
            self.tensorish.add(base)
            self.presumed.add(base)

    # -- host values ---------------------------------------------------------------------------------------------

    def read_on_host(self, st: State, value: Value, site: Site, text: str) -> None:
        """The host needs values: of host memory at once, of device memory after the current stream (TM-08)."""
        for target, guard in self.tensors(st, value):
            one = under(target, guard)
            if self.is_host(st, target) or self.pending_copy(st, target):
                assumed = Assumed.NOTHING if self.place(st, target) else Assumed.PLACE
                self.host_access(st, one, site, text, writes=False, assumed=assumed)
            elif isinstance(target, Tensor) or self.place(st, target) == "device":
                self.blocking_read(st, one, site, text)
            elif self.is_tensor(st, target) or (target.name, "@computed") in st.store:
                # of a capture's inputs and results hardly any lies on the host
                self.sync_in_capture(st, site, text, Assumed.PLACE)
                self.untimed(st)  # nor of what is computed: then the host has waited

    def blocking_read(self, st: State, value: Value, site: Site, text: str) -> None:
        """A read on the current stream that the host waits for."""
        library = self.library_of(st, [value])
        self.sync_in_capture(st, site, text)
        self.access(st, value, site, text, writes=False, library=library)
        self.synchronize_stream(st, None, library, site)

    def hand_to_host(self, st: State, values: Iterable[Value], site: Site, text: str) -> None:
        """Host libraries, threads and queues read what they are given."""
        for value in values:
            for target, guard in self.tensors(st, value):
                if self.is_host(st, target) or self.pending_copy(st, target):
                    # what takes device tensors as well is no evidence that this one lies on the host
                    either = Assumed.PLACE | Assumed.POSSIBLE if text in _TAKES_ANY else Assumed.PLACE
                    assumed = Assumed.NOTHING if self.place(st, target) else either
                    self.host_access(st, under(target, guard), site, text, writes=False, assumed=assumed)

    # -- copies --------------------------------------------------------------------------------------------------

    def flag(self, value: Value | None, st: State, node: cst.CSTNode) -> Outcomes:
        """How a boolean argument may come out; left out it is false."""
        return [(False, ALWAYS)] if value is None else self.truth(value, st, node)

    def wait_where_blocking(self, st: State, outcomes: Outcomes, library: str, site: Site) -> None:
        """Where a copy is not asynchronous the host waits for the current stream (TM-02, TM-04, TM-08)."""
        for outcome, guard in outcomes:
            if not outcome:
                for s, g in self.streams(st, library):
                    if not guard.contradicts(g):
                        st.order.learn(HOST, s.name, guard=guard & g)

    def device_kind(self, value: Value | None) -> str | None:
        """``cpu``, ``cuda``, nothing where it is not known, None where the value is no device."""
        if isinstance(value, Device):
            return value.kind
        if isinstance(value, Const):
            if isinstance(value.value, str):
                kind = value.value.partition(":")[0]
                return "cpu" if kind == "cpu" else "cuda" if kind else ""
            if isinstance(value.value, int) and not isinstance(value.value, bool):
                return "cuda"
            return None
        if isinstance(value, Opaque):
            if value.name.base() in self.cuda_devices:
                return "cuda"
            text = str(value.name.site).lower()
            return None if "dtype" in text else ""
        return "" if type(value) is Value else None

    def to_host(self, st: State, source: Value, outcomes: Outcomes, site: Site, text: str) -> Value:
        """``x.to("cpu", non_blocking=...)``: asynchronous it gives a pinned tensor still being written (TM-05)."""
        library = self.library_of(st, [source])
        if source and all(self.is_host(st, v) for v in iterate(source) if isinstance(v, Object)):
            return source
        asynchronous = any(outcome for outcome, _ in outcomes)
        where = self.lies_on_device(st, source) if asynchronous else BOTH[:1]
        there = [guard for moves, guard in where if moves]
        if not there:
            return source
        for guard in there:
            one = under(source, guard)
            self.access(st, one, site, text, writes=False, library=library, tags=frozenset({"copy source"}))
        name = self.fresh(site.node, st, "host copy")
        st.store[(name, "@brought")] = PLAIN
        self.libraries[name] = library
        result = Tensor(name)
        self.stack[-1].temporaries.append(result)
        if not asynchronous:
            self.sync_in_capture(st, site, text)
            st.store[(name, "@place")] = Const("pageable")
            self.wait_where_blocking(st, outcomes, library, site)
            return result
        st.store[(name, "@place")] = Const("pinned")
        for guard in there:
            one = under(result, guard)
            self.access(st, one, site, text, writes=True, library=library, tags=frozenset({"d2h"}))
        self.wait_where_blocking(st, outcomes, library, site)
        return result

    def to_device(
        self,
        st: State,
        source: Value,
        outcomes: Outcomes,
        site: Site,
        text: str,
        kind: str,
        *,
        device: Value | None = None,
        opaque: bool = False,
    ) -> Value:
        """``x.to("cuda", non_blocking=...)``: reads the source, gives a tensor written on the current stream."""
        if kind or device is not None:
            advice.of_copy(self, st, source, (), outcomes, site, text)
        library = self.library_of(st, [source])
        places = {self.place(st, v) for v in iterate(source) if isinstance(v, Object)}
        asynchronous = any(outcome for outcome, _ in outcomes)
        down = asynchronous and kind != "cuda" and not (places and places <= HOST_PLACES)
        down = down and device != Device("")  # to where another tensor is: not for the host to read
        strided = any(isinstance(v, Tensor) and v.strided for v in iterate(source))
        if (places and places <= ({"pageable", "pinned"} if strided else {"pageable"})) or any(
            isinstance(v, Tensor) and v.numpy for v in iterate(source)
        ):
            self.hand_to_host(st, [source], site, text)  # staged before return (TM-03)
            if st.capture is not None:
                self.sync_in_capture(st, site, f"{text} from pageable memory")
        elif "pinned" in places:
            tags = frozenset({"h2d"})
            if not asynchronous:
                self.sync_in_capture(st, site, text)
            self.access(st, source, site, text, writes=False, library=library, tags=tags)
        else:
            placed = not asynchronous or any(self.may_be_elsewhere(st, v) for v in iterate(source))
            assumed = Assumed.NOTHING if placed else Assumed.POSSIBLE
            tags = frozenset({"h2d?" if kind == "cuda" else "copy"})
            self.access(st, source, site, text, writes=False, library=library, tags=tags, assumed=assumed)
        result = self.new_tensor(
            st,
            site,
            text,
            library=library,
            place="device" if kind == "cuda" or self.on_side_stream(st, library) else "",
            written=not down,
            opaque=opaque,
        )
        if not kind and device is not None:
            st.store[(result.name, PLACED)] = as_device(device) or device
        for moves, guard in self.lies_on_device(st, source) if down else ():
            for to_host, g in self.goes_to_host(st, device):
                tags = frozenset({"d2h?"}) if moves and to_host else frozenset()
                if not guard.contradicts(g):
                    one = under(result, guard & g)
                    self.access(st, one, site, text, writes=True, library=library, tags=tags)
        if asynchronous and self.on_side_stream(st, library):
            self.presume_tensor(st, result)  # whoever says all this of a copy makes it for its memory
        if "device" not in places:
            self.wait_where_blocking(st, outcomes, library, site)
        return result

    def may_be_elsewhere(self, st: State, value: Value) -> bool:
        """Whether memory that is moved to a device may well lie on another one.

        Memory of the host, and what is there already, no stream reads; and that is what plain operations on tensors
        make of which nothing tells where they lie.
        """
        if not isinstance(value, Object) or self.place(st, value) or placed_on(st, value):
            return True
        made = [made for made in st.order.accesses(value.name) if made.writes]
        return not made or any(
            made.detail.assumed & Assumed.UNMODELLED or made.detail.tags  # type: ignore[attr-defined]
            for made in made
        )

    def copy_into(
        self, st: State, target: Value, source: Value, outcomes: Outcomes, site: Site, text: str
    ) -> None:
        """``target.copy_(source, non_blocking=...)`` (TM-06, TM-07, TM-01, TM-03)."""
        ways = alternatives(target, st.path)
        if len({self.is_host(st, v) for v, _ in ways if isinstance(v, (Tensor, Opaque))}) > 1:
            for one, way in ways:  # on the host or on the device, it is another copy
                possible = [(outcome, g & way) for outcome, g in outcomes if not g.contradicts(way)]
                self.copy_into(st, under(one, way), source, possible, site, text)
            return
        library = self.library_of(st, [target, source])
        asynchronous = any(outcome for outcome, _ in outcomes)
        targets = [v for v in iterate(target) if isinstance(v, (Tensor, Opaque))]
        sources = [v for v in iterate(source) if isinstance(v, Object)]
        advice.of_copy(self, st, source, targets, outcomes, site, text)
        host_target = bool(targets) and all(self.is_host(st, v) for v in targets)
        host_source = bool(sources) and all(self.is_host(st, v) for v in sources)
        device_source = any(self.place(st, v) == "device" for v in sources)
        filled = (
            host_target and not asynchronous and not device_source
        )  # staging memory is filled from the host
        # one that is asked not to block is no copy within the host
        if (host_target and (host_source or not (sources or asynchronous))) or (
            filled and not any(self.is_tensor_value(st, v) and self.tells_device(st, v) for v in sources)
        ):
            self.hand_to_host(st, [source], site, text)
            unplaced = not host_source and any(self.is_tensor_value(st, v) for v in sources)
            assumed = Assumed.PLACE if unplaced else Assumed.NOTHING
            self.host_access(st, target, site, text, writes=True, assumed=assumed)
            return
        for v in targets:
            self.mark_tensor(st, v)
        if host_target:
            pinned = any(self.place(st, v) == "pinned" for v in targets)
            named = any(hints.names_host(v.name.site) for v in targets)
            assumed = Assumed.NOTHING if pinned else Assumed.PLACE if named else Assumed.POSSIBLE
            if not asynchronous:
                self.sync_in_capture(st, site, text)
            self.access(
                st, source, site, text, writes=False, library=library, tags=frozenset({"copy source"})
            )
            self.access(
                st, target, site, text, writes=True, library=library, tags=frozenset({"d2h"}), assumed=assumed
            )
        elif host_source:
            if any(self.place(st, v) == "pageable" or (isinstance(v, Tensor) and v.strided) for v in sources):
                self.hand_to_host(st, [source], site, text)
                self.sync_in_capture(st, site, f"{text} from pageable memory")
            else:
                if not asynchronous:
                    self.sync_in_capture(st, site, text)
                self.access(st, source, site, text, writes=False, library=library, tags=frozenset({"h2d"}))
            self.access(st, target, site, text, writes=True, library=library)
        else:
            tags = frozenset({"h2d?"}) if asynchronous and not device_source else frozenset()
            self.access(st, source, site, text, writes=False, library=library, tags=tags)
            tags = frozenset({"d2h?"}) if asynchronous else frozenset()
            self.access(st, target, site, text, writes=True, library=library, tags=tags)
        if host_target or host_source:
            self.wait_where_blocking(st, outcomes, library, site)

    def tells_device(self, st: State, value: Object) -> bool:
        """Whether anything tells that a tensor is on a device: who made it, or what it is part of."""
        if self.place(st, value) == "device" or placed_on(st, value) or self.is_parameter(value, st):
            return True
        if any(name.site == PARAMETERS or name == GRADIENTS for name in value.name.chain()):
            return True
        return any(
            made.writes and (made.detail.assumed & Assumed.UNMODELLED or made.detail.tags)  # type: ignore[attr-defined]
            for made in st.order.accesses(value.name)
        )

    def is_tensor_value(self, st: State, value: Object) -> bool:
        """Whether this is known to be a tensor that is not on the host."""
        return isinstance(value, Tensor) and not self.is_host(st, value)

    # -- clocks --------------------------------------------------------------------------------------------------

    def access(
        self,
        st: State,
        value: Value,
        site: Site,
        operation: str,
        *,
        writes: bool,
        library: str = "torch",
        stream: Value | None = None,
        assumed: Assumed = Assumed.NOTHING,
        tags: frozenset[str] = frozenset(),
    ) -> None:
        """A device operation touches memory; a clock that is running sees it as a launch."""
        super().access(
            st,
            value,
            site,
            operation,
            writes=writes,
            library=library,
            stream=stream,
            assumed=assumed,
            tags=tags,
        )
        if (
            st.clocks and "method" not in tags
        ):  # what some object does with a tensor is no launch that is seen
            device = any(self.place(st, t) == "device" for t, _ in self.tensors(st, value))
            self.launched(st, site, operation, device=device, library=library, stream=stream)

    def launched(
        self,
        st: State,
        site: Site,
        text: str,
        *,
        device: bool,
        library: str = "torch",
        stream: Value | None = None,
    ) -> None:
        """Work is enqueued while clocks run (SS311)."""
        if not device:
            return
        streams = self.streams(st, library, stream)
        for clock in st.clocks:
            st.store[(Name(clock), LAST)] = union((s, ALWAYS) for s, _ in streams)
            for s, guard in streams:
                detail = Detail(text, "", Assumed.NOTHING, frozenset({"launch"}), self.entry)
                made = self.made_launch(site, clock, s.name, detail)
                st.order.add(made, guard, covers=False)

    @staticmethod
    def made_launch(site: Site, clock: object, stream: Name, detail: Detail):  # type: ignore[no-untyped-def]
        """The access that stands for a launch since a clock was read."""
        from streamsafe.order.symbolic import Made

        return Made(site, ("since", clock), None, True, stream, detail)

    def read_clock(self, st: State, site: Site) -> Value:
        """A host clock is read: what was launched since each earlier reading and is not waited for."""
        key = (id(site.node), self.stack[-1].path)
        clock = Clock(frozenset((key,)))
        elsewhere = self.conditions.get(("truth", IS_CUDA), 0)  # without a device nothing is launched
        for other in st.clocks:
            # who waits for what was launched last has let what other streams do meanwhile run in the background
            last = {
                v.name for v in iterate(st.store.get((Name(other), LAST), UNKNOWN)) if isinstance(v, Stream)
            }
            pending = tuple(
                made
                for made, ways in st.order.accesses(("since", other)).items()
                if made.timeline in last and not all(way.guard.false & elsewhere for way in ways)
            )
            st.store[(Name(clock), ("since", other))] = Const(pending) if pending else NONE
        st.order.drop(("since", clock))
        st.clocks |= {clock}
        self.clock_sites[key] = site
        return clock

    clock_sites: dict[object, Site]

    @staticmethod
    def untimed(st: State) -> None:
        """On this path nobody measures: what was launched on it so far is of no concern to the clocks that run."""
        for clock in st.clocks:
            st.order.drop(("since", clock))

    @staticmethod
    def forget_clocks(st: State) -> None:
        """Readings that nothing holds any more are over: nothing will be subtracted from them."""
        if not st.clocks:
            return
        held = {clock for _, value in st.store.items() for clock in _clocks(value)}
        over = st.clocks - held
        st.clocks &= held
        for clock in over:
            st.order.drop(("since", clock))
            st.store.drop(Name(clock))
        for clock in st.clocks:
            for start in over:
                st.store.pop((Name(clock), ("since", start)), None)

    def duration(self, st: State, left: Value, right: Value, site: Site) -> None:
        """Two readings of a clock are subtracted: the work between them should have been waited for.

        A difference that is only held against a limit measures nothing: it says whether it is time to go on. Nor need
        anything be waited for where the time that the host takes is measured.
        """
        unit = self.stack[-1].unit
        for end in iterate(left):
            for start in iterate(right):
                if not (isinstance(end, Clock) and isinstance(start, Clock)):
                    continue
                if unit is not None and site.node in concrete.limits(unit.node):
                    return
                pending = st.store.get((Name(end), ("since", start)))
                if not isinstance(pending, Const) or not pending.value:
                    for inner in iterate(pending) if pending is not None else ():
                        if isinstance(inner, Const) and inner.value:
                            pending = inner
                            break
                    else:
                        continue
                made = pending.value[-1]
                detail: Detail = made.detail
                self.violation(
                    st,
                    "unsynchronized-timing",
                    min(
                        (read for key, read in self.clock_sites.items() if key in end.readings),
                        key=lambda read: read.slice.rows(read.node),
                    ),
                    "reads the clock",
                    [(f"{detail.operation} may still be running", made.site)],
                    assumed=detail.assumed,
                )

    # -- words for the capture of streams and events -------------------------------------------------------------

    def query_stream(self, st: State, stream: Stream, site: Site) -> Value:
        """A query that is true is an edge to the host (TS-20); where it is false nothing is known."""
        self.wait_in_capture(st, site, "query()", (stream.name,))
        outcomes = self.asked(st, site)
        for outcome, guard in outcomes:
            if outcome:
                st.order.obey(edges.synchronize_stream(HOST, stream.name, self.table), guard)
        return self.guarded(outcomes)

    def query_event(self, st: State, choices: Sequence[tuple[Event, Guard]], site: Site) -> Value:
        """A query that is true is an edge to the host (TS-16), from that of several events which is asked."""
        self.wait_in_capture(st, site, "query()", [event.name for event, _ in choices])
        outcomes = self.asked(st, site)
        recorded_on, at = self.recorders(st, choices[0][0])
        for outcome, guard in outcomes:
            if outcome:
                before = self.lacking(st, HOST, guard)
                for event, way in choices:
                    for source in self.spread(event.name):
                        st.order.learn(HOST, source, guard=guard & way)
                self._waited(st, HOST, site, at, recorded_on, before, guard)
        return self.guarded(outcomes)

    def asked(self, st: State, site: Site) -> Outcomes:
        """How a question to the device comes out this time: asked again it is another question."""
        flag = self.fresh(site.node, st, "asked")
        return self.condition(("truth", flag), (flag,), st, True)

    @staticmethod
    def guarded(outcomes: list[tuple[bool, Guard]]) -> Value:
        """A boolean that is what its condition says."""
        return union((Const(outcome), guard) for outcome, guard in outcomes)

    def tensor_results(self, st: State, value: Value) -> list[Value]:
        """The elements of a container that are tensors."""
        if isinstance(value, Tuple):
            return list(value.items)
        if isinstance(value, (Container, Instance)):
            return self.held(value, st)
        return [value]


def _clocks(value: Value) -> Iterator[Clock]:
    """The readings of clocks that a value holds."""
    if isinstance(value, Clock):
        yield value
    elif isinstance(value, Union):
        for inner, _ in value.alternatives:
            yield from _clocks(inner)
    elif isinstance(value, Tuple):
        for inner in value.items:
            yield from _clocks(inner)
    elif isinstance(value, (Partial, Generator)):
        for inner in (*value.args, *(v for _, v in value.kwargs)):
            yield from _clocks(inner)


__all__ = ["ALWAYS", "HOST_PLACES", "NONE", "UNKNOWN", "Call", "Tensors", "apis"]
