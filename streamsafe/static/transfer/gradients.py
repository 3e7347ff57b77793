"""Gradients: what a backward pass writes, whose they are, and what uses them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from streamsafe.order.symbolic import ALWAYS
from streamsafe.static import fields, parts
from streamsafe.static.facts import AMBIENT, GRADIENTS, INITIAL, PARAMETER, PASS, Assumed, Site
from streamsafe.static.state import Ordered, Rebound, State
from streamsafe.static.transfer.part import Part
from streamsafe.static.values import (
    ANY,
    EACH,
    NONE,
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
    is_iterated_parameter,
    iterate,
    under,
)

if TYPE_CHECKING:
    from streamsafe.static.transfer.run_state import RunState


_MOST = 400
"""Objects that are looked at for the modules that something was computed with."""


class Gradients(Part):
    """Backward passes.

    Where a file has several, it matters whose gradients each writes: the modules that were called on the way to its
    roots. A pass and a use have nothing in common where modules are known for both, and none is of both.
    """

    def __init__(self, run: RunState) -> None:
        super().__init__(run)
        self.origins: dict[Name, Ordered[Name]] = {}
        """By result, what it was computed with."""
        self.losses: set[Name] = set()
        """What is called and has no parameters."""

    def backward(
        self,
        st: State,
        roots: Iterable[Value],
        gradients: list[Value],
        site: Site,
        text: str,
        leaves: Value | None = None,
    ) -> None:
        """A backward pass: roots wait for the caller's stream, the caller's stream for the leaves (TA-02, TA-04).

        Args:
            st: changed in place.
            roots: what it begins from.
            gradients: their gradients, where some are given.
            site: where it is.
            text: what the call is called.
            leaves: the tensors whose gradients are asked for, where not all are.
        """
        roots = list(roots)
        if self.stays_on_host(st, roots):
            self.hooks.run_gradient_hooks(st, site)
            return
        for gradient in gradients:
            for target, guard in self.memory.tensors_in(st, gradient):
                if self.tensors.is_host(st, target):
                    continue
                self.accesses.access(
                    st,
                    under(target, guard),
                    site,
                    text,
                    writes=False,
                    tags=frozenset({INITIAL}),
                )
        self.hooks.unpack_saved(st, site, text)
        self.join_leaves(st, roots)
        modules = self.modules_behind(st, roots if leaves in (None, NONE) else [leaves])
        if (GRADIENTS, fields.ALLOCATED_ON) not in st.store:
            self.memory.allocate(st, GRADIENTS, "torch", site)
            for owner in [o for o, table in st.store.objects.items() if table.get("grad") == NONE]:
                del st.store[(owner, "grad")]  # set to None, and there again
        written = Tensor(GRADIENTS, part=parts.of_modules(None, modules))
        self.accesses.access(st, written, site, text, writes=True, tags=PASS)
        self.replays.pass_done(st, site)
        if st.capture is None:
            st.store[(GRADIENTS, fields.STALE_GRADIENTS)] = NONE  # there are others
        self.hooks.run_gradient_hooks(st, site, modules)
        self.clocks.launched(st, site, text, device=True)

    def stays_on_host(self, st: State, roots: list[Value]) -> bool:
        """Whether a backward pass enqueues nothing: its roots are the host's, and no device had a part in them."""
        reached = [t for root in roots for t, _ in self.memory.tensors_in(st, root)]
        return bool(reached) and all(
            self.tensors.is_host(st, t) and not st.store.marked(t.name, fields.COPIED_TO_HOST)
            for t in reached
        )

    def join_leaves(self, st: State, roots: Iterable[Value]) -> None:
        """What a backward pass enqueues runs where the forward pass ran; the caller's stream waits for that (TA-02).

        So it comes after all that was enqueued there before, an optimizer's step for one. Where the forward pass is
        not seen it is taken to have run on the stream that was current at entry.
        """
        for root in roots:
            for target, guard in self.memory.tensors_in(st, root):
                forward = [
                    (made.timeline, way.guard)
                    for made, ways in st.order.accesses(target.name).items()
                    if made.writes
                    for way in ways
                ]
                for s, stream_guard in self.effects.possible_streams(st, "torch"):
                    for timeline, written in dict.fromkeys(forward) or ((AMBIENT, ALWAYS),):
                        if not guard.contradicts(stream_guard) and not written.contradicts(stream_guard):
                            st.order.learn(s.name, timeline, guard=guard & stream_guard & written)

    def use_of_gradients(
        self,
        st: State,
        site: Site,
        text: str,
        whose: Iterable[Value] = (),
        *,
        assigned: bool = True,
        assumed: Assumed = Assumed.NOTHING,
    ) -> None:
        """Something that reads or changes ``.grad``, of all parameters or of some.

        Args:
            st: changed in place.
            site: where it is.
            text: what the call is called.
            whose: the tensors it is asked for, or given.
            assigned: whether these may be the parameters to which the program has assigned a gradient.
            assumed: what it leans on that this reads or changes gradients at all.
        """
        tags = frozenset({"gradient use"})
        self._use_of_dropped(st, site, text)
        self.accesses.access(
            st, self.gradients_of(st, whose), site, text, writes=False, assumed=assumed, tags=tags
        )
        if self.run.assigns_gradients and assigned:
            tables = [table for _, table in st.store.objects.items() if "grad" in table]
            given = [v for table in tables for v in iterate(table["grad"]) if isinstance(v, Tensor)]
            self.tensors.read_operands(st, [v for v in given if v.name != GRADIENTS], site, text, tags=tags)
        # where the backward pass ran, what is done with gradients runs
        self.clocks.launched(st, site, text, device=(GRADIENTS, fields.BACKWARD_RUN) in st.store)

    def parameters_change(self, st: State, optimizers: Iterable[Value], site: Site, text: str) -> None:
        """Optimizers step: they write the parameters that they were given.

        Of one that is not seen made these are what its groups hold, and the parameters of the module that is trained.
        """
        aside = any(
            not self.captures.is_default(stream.name)
            for stream, _ in self.effects.possible_streams(st, "torch")
        )
        for optimizer in (v for value in optimizers for v in iterate(value) if isinstance(v, Opaque)):
            params = st.store.get((optimizer.name, "params"))
            if params is None:
                given = {optimizer.name.child("param_groups"), *self._trained_parameters(st)}
            else:
                given = {v.name for v in self.assumed_order.parts_of(st, params) if isinstance(v, Object)}
            for whole in given if aside else ():
                if whole.site == PARAMETERS and whole.parent is not None:
                    self.accesses.access(
                        st, self.attributes.every_parameter(whole.parent), site, text, writes=True
                    )
            for buffer in list(st.order.made):
                if (
                    isinstance(buffer, Name)
                    and buffer.parent is not None
                    and not given.isdisjoint(buffer.chain())
                ):
                    self.accesses.access(st, Opaque(buffer), site, text, writes=True)

    def _trained_parameters(self, st: State) -> set[Name]:
        """The parameters of the module that is trained: one that is called, or what goes by its name elsewhere."""
        buffers = (name for name in st.order.made if isinstance(name, Name))
        iterated = {
            w
            for name in buffers
            for link in name.chain()
            if is_iterated_parameter(link) and (w := link.parent)
        }
        if not self.run.modules:
            return iterated if len(iterated) == 1 else set()
        called = {module.site for module in self.run.modules}
        known = {name for name in iterated if name.parent is not None and name.parent.site in called}
        if known or len(self.run.modules) > 1:
            return known
        return {module.child(PARAMETERS) for module in self.run.modules}

    def drop_captured(self, st: State, gradients: Tensor, site: Site) -> None:
        """Gradients are set to None: what a captured pass writes is nobody's gradient any more (GC-06).

        A captured step without its pass reads those that there were, whatever the next pass makes (GC-04).
        """
        for graph in st.graphs if st.capture is None else ():
            uses = [use for use in self.replays.used_by(st, graph) if use.target.name == GRADIENTS]
            own = [use for use in uses if not parts.disjoint(use.target.part, gradients.part)]
            if any(PASS & use.tags for use in own):
                st.store[(graph, fields.GRADIENTS_DROPPED)] = Const(site)
            elif own and not any(PASS & use.tags for use in uses):
                st.rebound = st.rebound | {Rebound("the gradient of a parameter", site, graph): None}

    def _use_of_dropped(self, st: State, site: Site, text: str) -> None:
        """Gradients are used: those that a replay was to write were dropped before it."""
        found = st.store.every(GRADIENTS, fields.STALE_GRADIENTS)
        if st.capture is not None or not found or NONE in found:
            return  # a pass may have made others
        st.store[(GRADIENTS, fields.STALE_GRADIENTS)] = NONE
        for places in found:
            dropped, replayed = places.value
            notes = [("the replay writes those that were captured", replayed), (f"{text} finds none", site)]
            self.accesses.violation(
                st,
                "rebound-static-input",
                dropped,
                "released",
                notes,
                memory="the gradient of a parameter",
            )

    def gradients_of(self, st: State, values: Iterable[Value]) -> Tensor:
        """The gradients of the modules that were called for some values, or that these belong to."""
        return Tensor(GRADIENTS, part=parts.of_modules(None, self.modules_behind(st, values)))

    def gradient(self, owner: Object, st: State) -> Tensor:
        """The gradient of a parameter, as of the modules that it is a parameter of."""
        found = self.attributes.stored_gradient(owner, st)
        if found.name != GRADIENTS:
            return found
        modules = self.run.hook_modules if owner.name == PARAMETER else self.modules_behind(st, [owner])
        return Tensor(GRADIENTS, part=parts.of_modules(found.part, modules))

    def derive(self, st: State, result: Value, sources: Iterable[Value]) -> None:
        """A result was computed with these."""
        if not self.run.file.has_passes:
            return
        made = {name.base() for name in self.names_in(st, result)}
        given = {name.base(): None for value in sources for name in self.names_in(st, value)}
        for name in made:
            self.origins.setdefault(name, {}).update((g, None) for g in given if g is not name)

    def called_for(self, st: State, module: Object, result: Value, given: Iterable[Value]) -> None:
        """A module has made a result: a backward pass from there writes gradients of its parameters."""
        if not self.run.file.has_passes:
            return
        name = module.name.base()
        while name.site in (EACH, ANY) and name.parent is not None:  # any of them may be meant
            name = name.parent
        if name not in self.losses:
            self.run.modules.add(name)
        self.derive(st, result, [module, *given])

    def modules_behind(self, st: State, values: Iterable[Value]) -> frozenset[Name]:
        """The modules that were called on the way to some values, or that hold them; none where that is not known."""
        if not self.run.modules:
            return frozenset()
        todo = [name.base() for value in values for name in self.names_in(st, value)]
        seen: set[Name] = set()
        while todo and len(seen) < _MOST:
            name = todo.pop()
            if name in seen:
                continue
            seen.add(name)
            for holder in name.chain():
                todo += self.origins.get(holder, ())
                asked = str(holder.site).endswith("()")  # `parameters()` is all it has
                if asked and holder.parent is not None:
                    todo.append(holder.parent)
            todo += (inner.name.base() for inner in _held(st, name))
        return frozenset(holder for name in seen for holder in name.chain() if holder in self.run.modules)

    def names_in(self, st: State, value: Value) -> Iterator[Name]:
        """The objects that a value is, and what stands in its rows."""
        for inner in iterate(value):
            if isinstance(inner, Tuple):
                for item in inner.items:
                    yield from self.names_in(st, item)
            elif isinstance(inner, Object):
                yield inner.name
                if isinstance(inner, Container):
                    yield from (part.name for part in _held(st, inner.name))


def _held(st: State, holder: Name) -> Iterator[Object]:
    """The objects that another one holds."""
    for key, value in st.store.of(holder).items():
        if type(key) is not fields.Field:
            yield from (v for v in iterate(value) if isinstance(v, (Tensor, Opaque, Instance, Container)))
