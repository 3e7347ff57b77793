"""Tensors and arrays: operations, what makes a value a tensor, reads on the host."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import libcst as cst

from streamsafe.static import fields, suggestions
from streamsafe.static.facts import AMBIENT, GRADIENTS, Assumed, Detail, Site
from streamsafe.static.libraries import Libraries
from streamsafe.static.state import State
from streamsafe.static.transfer.devices import placed_on
from streamsafe.static.transfer.part import Part
from streamsafe.static.values import (
    PARAMETERS,
    Const,
    Container,
    Instance,
    Name,
    Object,
    Opaque,
    Tensor,
    Tuple,
    Value,
    alternatives,
    iterate,
    under,
)

if TYPE_CHECKING:
    from streamsafe.static.transfer.run_state import RunState


HOST_PLACES = frozenset({"pinned", "pageable", "host"})

COMMUNICATION = Name(suggestions.COMMUNICATION)

UNNAMED_REST = "**"
"""The keyword of a mapping of unknown keys that is given as keyword arguments."""

UNPLACED = "*"
"""The keyword of the positional arguments that come after a star of unknown length, in a tuple."""


@dataclass(slots=True)
class Call:
    """A call with its arguments evaluated; of a kernel that is written in Python, with the grid that it is given."""

    node: cst.CSTNode
    site: Site
    args: list[Value] = field(default_factory=list)
    kwargs: dict[str, Value] = field(default_factory=dict)
    text: str = ""
    starred: bool = False
    grid: Value | None = None

    def get(self, position: int, name: str) -> Value | None:
        """An argument by position or name."""
        if name in self.kwargs:
            return self.kwargs[name]
        return self.args[position] if 0 <= position < len(self.args) else None

    def everything(self) -> list[Value]:
        """All arguments."""
        return [*self.args, *self.kwargs.values()]


class Tensors(Part):
    """Operations on tensors."""

    def __init__(self, run: RunState) -> None:
        super().__init__(run)
        self._libraries = Libraries(run.file)

    # -- which library, which place ------------------------------------------------------------------------------

    def library_of(self, st: State, values: Iterable[Value]) -> str:
        """Whose current stream an operation on these runs on."""
        for value in values:
            for inner in iterate(value):
                if isinstance(inner, Tensor) and inner.library:
                    return inner.library
                if isinstance(inner, Object):
                    found = self.run.libraries.get(inner.name.base())
                    if found is not None:
                        return found
        return self.default_library

    @property
    def default_library(self) -> str:
        """The library of a file that uses only one; where it uses both, of the function that is interpreted.

        A function that names neither goes by its caller.
        """
        if len(self._libraries.imported) > 1:
            for activation in reversed(self.run.stack):
                named = self._libraries.around(activation.unit.qualname) if activation.unit else frozenset()
                if named:
                    return "cupy" if "torch" not in named else "torch"
        return self.run.file.library

    def uses(self, library: str) -> bool:
        """Whether the file imports a library."""
        return library in self._libraries.imported

    def on_side_stream(self, st: State, library: str) -> bool:
        """Whether the current stream is one that was entered explicitly."""
        return any(s.name != AMBIENT for s, _ in self.effects.possible_streams(st, library))

    def is_host(self, st: State, value: Value) -> bool:
        """Whether this is memory that only the host touches directly."""
        return (isinstance(value, Tensor) and value.numpy) or self.memory.place(st, value) in HOST_PLACES

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
        name = self.objects.fresh(site.node, st, what or "result")
        if place:
            st.store[(name, fields.PLACE)] = Const(place)
        self.run.libraries[name] = library
        self.run.results.add(name)
        if st.capture is not None:
            st.store[(name, fields.ALLOCATED_IN_CAPTURE)] = Const(st.capture.site)
        value: Object = Opaque(name) if opaque else Tensor(name)
        self.run.stack[-1].temporaries.append(value)
        if allocated and place not in HOST_PLACES:
            self.memory.allocate(st, name, library, site)
        if written:
            self.accesses.access(
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
        """A device operation: reads its operands, returns a fresh tensor. On host memory the host does it.

        A backward pass may go through it, and what autograd saves may be packed.
        """
        library = library or self.library_of(st, operands)
        flat = [t for operand in operands for t, _ in self.memory.tensors_in(st, operand)]
        known = [self.memory.place(st, t) for t in flat]
        numpy = any(isinstance(t, Tensor) and t.numpy for t in flat)
        self.read_operands(st, operands, site, text, library=library, assumed=assumed, tags=tags)
        if numpy or (any(p in HOST_PLACES for p in known) and "device" not in known):
            name = self.objects.fresh(site.node, st, "result")
            st.store[(name, fields.PLACE)] = Const("pageable")
            if any(st.store.marked(t.name, fields.COPIED_TO_HOST) for t in flat):
                st.store.mark(name, fields.COPIED_TO_HOST)
            if not numpy:
                self._without_dimension(name, flat, known)
            result: Object = Tensor(name, numpy=numpy)
        else:
            place = "device" if "device" in known or self.on_side_stream(st, library) else ""
            result = self.new_tensor(st, site, text, library=library, place=place, assumed=assumed, tags=tags)
            if not place and (placed := [device for t in flat for device in placed_on(st, t)]):
                st.store[(result.name, fields.REQUESTED_DEVICE)] = placed[0]
        self.gradients.derive(st, result, operands)
        self.hooks.save_for_backward(st, site, text)
        return result

    def _without_dimension(self, result: Name, operands: list[Object], places: list[str]) -> None:
        """A tensor without a dimension goes to the device of what it is combined with, so the result may lie there."""
        names = {t.name.base() for t, place in zip(operands, places, strict=True) if place in HOST_PLACES}
        if names <= self.run.numbers:
            (self.run.numbers if all(places) else self.run.unplaced).add(result.base())
        elif not names.isdisjoint(self.run.unplaced):
            self.run.unplaced.add(result.base())

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
            self.run.tensorish.discard(made.name.base())
        self.gradients.derive(st, made, operands)  # a backward pass may go through it
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
            for target, guard in self.memory.tensors_in(st, operand):
                value = under(target, guard)
                if self.is_host(st, target):
                    self.accesses.host_access(st, value, site, text, writes=False, assumed=assumed, tags=tags)
                else:
                    self.accesses.access(
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
                self.accesses.host_access(st, value, site, text, writes=True, tags=tags)
            else:
                self.mark_tensor(st, inner)
                self.accesses.access(st, value, site, text, writes=True, library=library, tags=tags)
        self.gradients.derive(st, target, operands)

    def mark_tensor(self, st: State, value: Object) -> None:
        """This object has been used as a tensor."""
        self.run.tensorish.add(value.name.base())
        self.run.presumed.discard(value.name.base())

    def rows_are_tensors(self, st: State, values: Iterable[Value]) -> None:
        """Something that only tensors are given to was given rows of a result."""
        for row in (v for value in values for v in iterate(value) if isinstance(v, Opaque)):
            if type(row.name.site) is int and row.name.root().base() in self.run.results:
                self.run.tensor_rows.add(row.name.base())
                self.mark_tensor(st, row)

    def presume_tensor(self, st: State, value: Object) -> None:
        """Nothing but what a call was given tells that its result is a tensor."""
        base = value.name.base()
        if base not in self.run.tensorish:
            self.run.tensorish.add(base)
            self.run.presumed.add(base)

    # -- host values ---------------------------------------------------------------------------------------------

    def read_on_host(self, st: State, value: Value, site: Site, text: str) -> None:
        """The host needs values: of host memory at once, of device memory after the current stream (TM-08)."""
        for target, guard in self.memory.tensors_in(st, value):
            one = under(target, guard)
            if self.is_host(st, target) or self.pending_copy(st, target):
                assumed = Assumed.NOTHING if self.memory.place(st, target) else Assumed.PLACE
                self.accesses.host_access(st, one, site, text, writes=False, assumed=assumed)
            elif isinstance(target, Tensor) or self.memory.place(st, target) == "device":
                self.blocking_read(st, one, site, text)
            elif self.expressions.is_tensor(st, target) or st.store.marked(
                target.name, fields.COMPUTED_IN_CAPTURE
            ):
                # of a capture's inputs and results hardly any lies on the host
                self.captures.sync_in_capture(st, site, text, Assumed.PLACE)
                self.clocks.untimed(st)  # nor of what is computed: then the host has waited

    def blocking_read(self, st: State, value: Value, site: Site, text: str) -> None:
        """A read on the current stream that the host waits for."""
        library = self.library_of(st, [value])
        self.captures.sync_in_capture(st, site, text)
        self.accesses.access(st, value, site, text, writes=False, library=library)
        self.effects.synchronize_stream(st, None, library, site)

    # -- copies --------------------------------------------------------------------------------------------------

    def known_on_device(self, st: State, value: Object) -> bool:
        """Whether anything tells that a tensor is on a device: who made it, or what it is part of."""
        if (
            self.memory.place(st, value) == "device"
            or placed_on(st, value)
            or self.attributes.is_parameter(value, st)
        ):
            return True
        if any(name.site == PARAMETERS or name == GRADIENTS for name in value.name.chain()):
            return True
        return any(
            made.writes and (made.detail.assumed & Assumed.UNMODELLED or made.detail.tags)  # type: ignore[attr-defined]
            for made in st.order.accesses(value.name)
        )

    # -- words for the capture of streams and events -------------------------------------------------------------

    def tensor_results(self, st: State, value: Value) -> list[Value]:
        """The elements of a container that are tensors."""
        if isinstance(value, Tuple):
            return list(value.items)
        if isinstance(value, (Container, Instance)):
            return self.containers.held(value, st)
        return [value]
