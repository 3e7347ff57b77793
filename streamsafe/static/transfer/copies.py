"""Copies between host and device, and which of them the host waits for."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import libcst as cst

from streamsafe.order.symbolic import ALWAYS, HOST
from streamsafe.static import fields, hints
from streamsafe.static.facts import Assumed, Site
from streamsafe.static.state import State
from streamsafe.static.transfer.conditions import BOTH, Outcomes
from streamsafe.static.transfer.devices import as_device, placed_on
from streamsafe.static.transfer.part import Part
from streamsafe.static.transfer.tensors import HOST_PLACES
from streamsafe.static.values import (
    Const,
    Device,
    Object,
    Opaque,
    Tensor,
    Value,
    alternatives,
    iterate,
    under,
)

if TYPE_CHECKING:
    from collections.abc import Iterable


_TAKES_ANY = frozenset({"submit()", "put()", "put_nowait()", "send()", "start()"})
"""Ways to hand a tensor to another thread, wherever it lies."""


class Copies(Part):
    """Copies between host and device."""

    def pass_to_host(self, st: State, values: Iterable[Value], site: Site, text: str) -> None:
        """Host libraries, threads and queues read what they are given."""
        for value in values:
            for target, guard in self.memory.tensors_in(st, value):
                if self.tensors.is_host(st, target) or self.tensors.pending_copy(st, target):
                    # what takes device tensors as well is no evidence that this one lies on the host
                    either = Assumed.PLACE | Assumed.POSSIBLE if text in _TAKES_ANY else Assumed.PLACE
                    assumed = Assumed.NOTHING if self.memory.place(st, target) else either
                    self.accesses.host_access(
                        st, under(target, guard), site, text, writes=False, assumed=assumed
                    )

    def flag(self, value: Value | None, st: State, node: cst.CSTNode) -> Outcomes:
        """How a boolean argument may come out; left out it is false."""
        return [(False, ALWAYS)] if value is None else self.predicates.truth(value, st, node)

    def wait_where_blocking(self, st: State, outcomes: Outcomes, library: str, site: Site) -> None:
        """Where a copy is not asynchronous the host waits for the current stream (TM-02, TM-04, TM-08)."""
        for outcome, guard in outcomes:
            if not outcome:
                for s, g in self.effects.possible_streams(st, library):
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
            if value.name.base() in self.run.cuda_devices:
                return "cuda"
            text = str(value.name.site).lower()
            return None if "dtype" in text else ""
        return "" if type(value) is Value else None

    def to_host(self, st: State, source: Value, outcomes: Outcomes, site: Site, text: str) -> Value:
        """``x.to("cpu", non_blocking=...)``: asynchronous it gives a pinned tensor still being written (TM-05)."""
        library = self.tensors.library_of(st, [source])
        if source and all(self.tensors.is_host(st, v) for v in iterate(source) if isinstance(v, Object)):
            return source
        asynchronous = any(outcome for outcome, _ in outcomes)
        where = self.devices.lies_on_device(st, source) if asynchronous else BOTH[:1]
        there = [guard for moves, guard in where if moves]
        if not there:
            return source
        for guard in there:
            one = under(source, guard)
            self.accesses.access(
                st, one, site, text, writes=False, library=library, tags=frozenset({"copy source"})
            )
        name = self.objects.fresh(site.node, st, "host copy")
        st.store.mark(name, fields.COPIED_TO_HOST)
        self.run.libraries[name] = library
        result = Tensor(name)
        self.run.stack[-1].temporaries.append(result)
        if not asynchronous:
            self.captures.sync_in_capture(st, site, text)
            st.store[(name, fields.PLACE)] = Const("pageable")
            self.wait_where_blocking(st, outcomes, library, site)
            return result
        st.store[(name, fields.PLACE)] = Const("pinned")
        for guard in there:
            one = under(result, guard)
            self.accesses.access(st, one, site, text, writes=True, library=library, tags=frozenset({"d2h"}))
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
            self.advice.of_copy(st, source, (), outcomes, site, text)
        library = self.tensors.library_of(st, [source])
        places = {self.memory.place(st, v) for v in iterate(source) if isinstance(v, Object)}
        asynchronous = any(outcome for outcome, _ in outcomes)
        own = self.devices.is_streams_own(st, device, library)
        down = asynchronous and kind != "cuda" and not own and not (places and places <= HOST_PLACES)
        down = down and device != Device("")  # to where another tensor is: not for the host to read
        strided = any(isinstance(v, Tensor) and v.strided for v in iterate(source))
        if (places and places <= ({"pageable", "pinned"} if strided else {"pageable"})) or any(
            isinstance(v, Tensor) and v.numpy for v in iterate(source)
        ):
            self.pass_to_host(st, [source], site, text)  # staged before return (TM-03)
            if st.capture is not None:
                self.captures.sync_in_capture(st, site, f"{text} from pageable memory")
        elif "pinned" in places:
            tags = frozenset({"h2d"})
            if not asynchronous:
                self.captures.sync_in_capture(st, site, text)
            self.accesses.access(st, source, site, text, writes=False, library=library, tags=tags)
        else:
            placed = not asynchronous or any(self.may_be_elsewhere(st, v) for v in iterate(source))
            if own and not any(
                isinstance(v, Object) and self.tensors.pending_copy(st, v) for v in iterate(source)
            ):
                placed = False  # unless it lies on the host, the current stream does not read it
            assumed = Assumed.NOTHING if placed else Assumed.POSSIBLE
            tags = frozenset({"h2d?" if kind == "cuda" else "copy"})
            self.accesses.access(
                st, source, site, text, writes=False, library=library, tags=tags, assumed=assumed
            )
        result = self.tensors.new_tensor(
            st,
            site,
            text,
            library=library,
            place="device" if kind == "cuda" or self.tensors.on_side_stream(st, library) else "",
            written=not down,
            opaque=opaque,
        )
        if not kind and device is not None:
            st.store[(result.name, fields.COPIED_TO)] = as_device(device) or device
        for moves, guard in self.devices.lies_on_device(st, source) if down else ():
            for to_host, g in self.devices.copies_to_host(st, device):
                tags = frozenset({"d2h?"}) if moves and to_host else frozenset()
                if not guard.contradicts(g):
                    one = under(result, guard & g)
                    self.accesses.access(st, one, site, text, writes=True, library=library, tags=tags)
        if asynchronous and self.tensors.on_side_stream(st, library):
            self.tensors.presume_tensor(st, result)  # whoever says all this of a copy makes it for its memory
        if "device" not in places:
            self.wait_where_blocking(st, outcomes, library, site)
        return result

    def may_be_elsewhere(self, st: State, value: Value) -> bool:
        """Whether memory that is moved to a device may well lie on another one.

        Memory of the host, and what is there already, no stream reads; and that is what plain operations on tensors
        make of which nothing tells where they lie.
        """
        if not isinstance(value, Object) or self.memory.place(st, value) or placed_on(st, value):
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
        if len({self.tensors.is_host(st, v) for v, _ in ways if isinstance(v, (Tensor, Opaque))}) > 1:
            for one, way in ways:  # on the host or on the device, it is another copy
                possible = [(outcome, g & way) for outcome, g in outcomes if not g.contradicts(way)]
                self.copy_into(st, under(one, way), source, possible, site, text)
            return
        library = self.tensors.library_of(st, [target, source])
        asynchronous = any(outcome for outcome, _ in outcomes)
        targets = [v for v in iterate(target) if isinstance(v, (Tensor, Opaque))]
        sources = [v for v in iterate(source) if isinstance(v, Object)]
        self.advice.of_copy(st, source, targets, outcomes, site, text)
        host_target = bool(targets) and all(self.tensors.is_host(st, v) for v in targets)
        host_source = bool(sources) and all(self.tensors.is_host(st, v) for v in sources)
        device_source = any(self.memory.place(st, v) == "device" for v in sources)
        filled = (
            host_target and not asynchronous and not device_source
        )  # staging memory is filled from the host
        # one that is asked not to block is no copy within the host
        if (host_target and (host_source or not (sources or asynchronous))) or (
            filled
            and not any(self.is_tensor_value(st, v) and self.tensors.known_on_device(st, v) for v in sources)
        ):
            self.pass_to_host(st, [source], site, text)
            unplaced = not host_source and any(self.is_tensor_value(st, v) for v in sources)
            assumed = Assumed.PLACE if unplaced else Assumed.NOTHING
            self.accesses.host_access(st, target, site, text, writes=True, assumed=assumed)
            return
        for v in targets:
            self.tensors.mark_tensor(st, v)
        if host_target:
            pinned = any(self.memory.place(st, v) == "pinned" for v in targets)
            named = any(hints.names_host(v.name.site) for v in targets)
            assumed = Assumed.NOTHING if pinned else Assumed.PLACE if named else Assumed.POSSIBLE
            if not asynchronous:
                self.captures.sync_in_capture(st, site, text)
            self.accesses.access(
                st, source, site, text, writes=False, library=library, tags=frozenset({"copy source"})
            )
            self.accesses.access(
                st, target, site, text, writes=True, library=library, tags=frozenset({"d2h"}), assumed=assumed
            )
        elif host_source:
            if any(
                self.memory.place(st, v) == "pageable" or (isinstance(v, Tensor) and v.strided)
                for v in sources
            ):
                self.pass_to_host(st, [source], site, text)
                self.captures.sync_in_capture(st, site, f"{text} from pageable memory")
            else:
                if not asynchronous:
                    self.captures.sync_in_capture(st, site, text)
                self.accesses.access(
                    st, source, site, text, writes=False, library=library, tags=frozenset({"h2d"})
                )
            self.accesses.access(st, target, site, text, writes=True, library=library)
        else:
            tags = frozenset({"h2d?"}) if asynchronous and not device_source else frozenset()
            self.accesses.access(st, source, site, text, writes=False, library=library, tags=tags)
            tags = frozenset({"d2h?"}) if asynchronous else frozenset()
            self.accesses.access(st, target, site, text, writes=True, library=library, tags=tags)
        if host_target or host_source:
            self.wait_where_blocking(st, outcomes, library, site)

    def is_tensor_value(self, st: State, value: Object) -> bool:
        """Whether this is known to be a tensor that is not on the host."""
        return isinstance(value, Tensor) and not self.tensors.is_host(st, value)
