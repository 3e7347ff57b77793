"""The memory of a CUDA graph: static inputs that replays read, outputs that the next replay overwrites."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from dataclasses import replace

from streamsafe.order.symbolic import ALWAYS
from streamsafe.static import fields
from streamsafe.static.facts import GRADIENTS, Assumed, Finding, Site
from streamsafe.static.state import Capture, Rebound, State
from streamsafe.static.transfer.part import Part
from streamsafe.static.values import (
    NONE,
    Const,
    Container,
    Graph,
    Name,
    Object,
    Opaque,
    Tensor,
    Tuple,
    Value,
    alternatives,
    iterate,
    union,
)

MOVED = frozenset({fields.MODULE_PARAMETER, fields.MODULE_BUFFER})
"""Notes of tensors that go where their module goes."""

MOST_LEVELS = 4
"""How many attributes deep the parts of a module are looked for."""


class GraphMemory(Part):
    """What graphs read and write, from capture to replay."""

    def freed_in_capture(self, st: State, capture: Capture) -> None:
        """CuPy's pool has the blocks back that a capture used in between: its graph goes on writing them (GP-13)."""
        if capture.graph is None or capture.library != "cupy":
            return
        alive = self.lifetimes.reachable(st)
        freed = [
            (stream, ALWAYS)
            for owner, table in st.store.objects.items()
            if table.get(fields.ALLOCATED_IN_CAPTURE) == Const(capture.site) and owner not in alive
            for stream in st.store.every(owner, fields.ALLOCATED_ON)
        ]
        if freed:
            st.store[(capture.graph, fields.FREED_MEMORY)] = union(freed)

    def reuses_captured(self, st: State, buffer: Name, library: str) -> None:
        """An array is made where a graph's temporaries were: it may get their memory."""
        if library != "cupy" or st.capture is not None:
            return
        own = {s.name for s in st.store.every(buffer, fields.ALLOCATED_ON)}
        for graph in [g for g, table in st.store.objects.items() if fields.FREED_MEMORY in table]:
            if any(s.name in own for s in st.store.every(graph, fields.FREED_MEMORY)):
                st.store.add(graph, fields.REUSED_MEMORY, Tensor(buffer))

    def overwrites_taken(self, st: State, graph: Name, site: Site) -> None:
        """A graph is launched while an array lives that was made where its temporaries were (GP-13)."""
        taken = st.store.pop((graph, fields.REUSED_MEMORY), None)
        if taken is None:
            return
        alive = self.lifetimes.reachable(st)
        for array in iterate(taken):
            if isinstance(array, Tensor) and array.name in alive:
                made_at = self.run.sites_of.get(array.name.base())
                self.accesses.report(
                    st,
                    Finding(
                        kind="captured",
                        second=site,
                        operation="the launch",
                        writes=True,
                        timeline="the graph",
                        memory=self.objects.describe(array),
                        assumed=Assumed.UNMODELLED,
                        notes=[("made here, after the capture gave back what it used", made_at)]
                        if made_at
                        else [],
                        entry=self.run.entry,
                    ),
                )
                return

    def inputs(self, st: State) -> frozenset[Name]:
        """The memory from before that the capture under way uses: a replay uses the same addresses."""
        return frozenset(b for b in st.order.made if isinstance(b, Name) and self.is_input(st, b))

    def is_input(self, st: State, buffer: Name) -> bool:
        """Whether the capture under way has used memory from before."""
        return (
            buffer in st.order.made
            and buffer != GRADIENTS
            and buffer.base() in self.run.tensorish
            and not any((name, fields.ALLOCATED_IN_CAPTURE) in st.store for name in buffer.chain())
        )

    def keep_output(
        self, st: State, container: Object, held: Iterable[Value], value: Value, site: Site
    ) -> None:
        """What a graph computes is kept; its next replay overwrites it: kept twice, it is one tensor twice (GC-05)."""
        if st.capture is not None or st.store.marked(container.name, fields.ITEMS_REMOVED):
            return
        kept = list(self.leaves(value, st))
        if any(isinstance(v, Graph) for v in kept):
            return  # beside its graph it is where that writes, not what it has computed
        names = {inner.name for v in held for inner in self.leaves(v, st)}
        for inner in kept:
            made: Name | None = inner.name
            while made is not None and (made, fields.ALLOCATED_IN_CAPTURE) not in st.store:
                made = None if str(made.site).isidentifier() else made.parent  # an attribute may be a number
            if made is None:
                continue
            if inner.name in names and st.store.marked(made, fields.OVERWRITTEN_BY_REPLAY):
                self.replays.stale_output(st, inner, site)
            st.store.mark(made, fields.KEPT_IN_CONTAINER)

    def leaves(self, value: Value, st: State, depth: int = 0) -> Iterator[Object]:
        """The objects that a value is or, as a row or a container, holds."""
        for inner, _ in alternatives(value, st.path):
            rows = inner.items if isinstance(inner, Tuple) else ()
            if isinstance(inner, Container):
                rows = tuple(self.containers.held(inner, st))
            elif isinstance(inner, Object):
                yield inner
            for row in rows if depth < 3 else ():
                yield from self.leaves(row, st, depth + 1)

    def rebound_elements(
        self, st: State, container: Container, value: Value, site: Site, *, every: bool = False
    ) -> None:
        """Some elements of a container become others, or all do: where each is a static input one was replaced.

        A container whose keys are not known may be given one more, unless ``every`` element is given anew.
        """
        if not st.graphs or st.capture is not None:
            return
        held = {key: v for key, v in st.store.of(container.name).items() if type(key) is not fields.Field}
        inputs = frozenset[Name]().union(*st.graphs.values())
        known = every or all(isinstance(key, (str, int)) and key != "*" for key in held)
        if known and all(
            v.name in inputs for old in held.values() for v in iterate(old) if isinstance(v, Tensor)
        ):
            for key in held:
                word = f"{self.objects.describe(container)}[...]"
                self.rebound_input(st, (container.name, key), value, site, word)

    def rebound_input(
        self, st: State, key: tuple[Name, Hashable], value: Value, site: Site, word: str = ""
    ) -> None:
        """An assignment takes the last name of a static input away from every graph that uses it (GC-04, GC-06)."""
        if st.capture is None and not st.graphs:
            return
        before = st.store.get(key)
        old = (
            before
            if before is not None
            else Opaque(key[0].child(key[1]))
            if self.objects.is_opaque(key[0])
            else NONE
        )
        graphs = {v.name for v in iterate(old) if isinstance(v, Object)} & st.graphs.keys()
        there = union((v, g) for v, g in alternatives(old, st.path) if not self.known_missing(st, v))
        if st.capture is not None:  # whether another name is left is known when it ends
            if any(key[0] == called.frame for called in self.run.stack[st.capture.depth :]):
                return  # a name of a call of the capture would be gone at its end anyway
            moved = [t.name for t, _ in self.memory.tensors_in(st, there) if self.is_input(st, t.name)]
            known = dict.fromkeys((*st.capture.displaced, *((name, _word(key[1]), site) for name in moved)))
            st.capture = replace(st.capture, displaced=tuple(known))
            return
        inputs = frozenset[Name]().union(*st.graphs.values())
        lost = {target.name: None for target, _ in self.memory.tensors_in(st, there) if target.name in inputs}
        if not graphs and not lost:
            return
        st.store[key] = value
        alive = self.lifetimes.reachable(st, self.call_stack.callers_hold())
        alive -= {name for name in lost if self.held_by_a_former_caller(st, name)}
        alive |= {name for name in lost if name.root() in alive and self.memory.belongs(st, name)}
        if before is None:
            del st.store[key]
        else:
            st.store[key] = before
        st.graphs = {g: inputs for g, inputs in st.graphs.items() if g in alive or g not in graphs}
        st.rebound = {r: None for r in st.rebound if r.graph in st.graphs}
        made_again = {target.name.base() for target, _ in self.memory.tensors_in(st, value)}
        for graph, used in st.graphs.items():
            if graph not in alive:  # nobody has it any more who could replay it
                continue
            gone = [
                n
                for n in lost
                if n in used and n not in alive and not st.store.marked(n, fields.KEPT_IN_CONTAINER)
            ]
            again = [name for name in gone if name.base() in made_again]
            if st.store.get((graph, fields.CAPTURED_BY)) == Const(self.run.entry):
                again = []
            elif value == NONE or not all(isinstance(name.root().site, str) for name in again):
                # a method that sets up what is captured later is not called again without another capture,
                # and one that lets go of it leaves nothing that the replaying method could fill
                for name in again:  # nor is it lost then, whoever holds the graph meanwhile
                    st.store.mark(name, fields.INPUT_REPLACED)
                continue
            for name in gone:
                st.store.mark(name, fields.INPUT_REPLACED)
            if gone:  # what a method is given each time is set up for the replay of the same call at most
                st.rebound = st.rebound | {
                    Rebound(word or _word(key[1]), site, graph, passing=bool(again)): None
                }

    def displaced_inputs(self, st: State, graph: Name, capture: Capture) -> None:
        """What a captured step read lost its last name to what the step made: no replay goes on from there (GC-04)."""
        alive = self.lifetimes.reachable(st, self.call_stack.callers_hold()) if capture.displaced else set()
        for name, word, site in capture.displaced:
            if name not in alive and not (name.root() in alive and self.memory.belongs(st, name)):
                st.store.mark(name, fields.INPUT_REPLACED)
                st.rebound = st.rebound | {Rebound(word, site, graph): None}

    def replaced_memory(self, st: State, owner: Name, value: Value, site: Site) -> None:
        """A tensor, or what a module holds, gets other memory: a graph reads what was there at its capture (GC-04).

        What another method does may come before the capture, unless an object has its graph from the start.
        """
        if st.capture is not None:
            return
        for graph, inputs in st.graphs.items():
            here = st.store.get((graph, fields.CAPTURED_BY)) == Const(self.run.entry)
            if not here and not st.store.marked(graph, fields.CAPTURED_IN_INIT):
                continue
            modules = self.called_modules(st, graph)
            if owner in inputs or any(m in owner.chain() or owner in m.chain() for m in modules):
                memory = self.objects.describe(Opaque(owner))
                if isinstance(value, Object) and value.name == owner:  # it is given back what it had
                    st.rebound = {r: None for r in st.rebound if (r.graph, r.memory) != (graph, memory)}
                else:
                    st.rebound = st.rebound | {Rebound(memory, site, graph): None}

    @staticmethod
    def called_modules(st: State, graph: Name) -> list[Name]:
        """The modules that the capture of a graph has called without being seen inside."""
        called = st.store.one(graph, fields.CALLED_MODULES)
        return [m.name for m in called.items if isinstance(m, Opaque)] if called is not None else []

    def moved_module(self, st: State, module: Value, site: Site) -> None:
        """The parameters and buffers of a module get other memory: it goes to another device, or to another type."""
        if not st.graphs or st.capture is not None:
            return
        for inner in iterate(module):
            if not isinstance(inner, Object):
                continue
            found = border = {inner.name}
            for _ in range(MOST_LEVELS):
                border = {name for held in border for name in st.store.leads(held)} - found
                found = found | border
            for graph, inputs in st.graphs.items():
                here = st.store.get((graph, fields.CAPTURED_BY)) == Const(self.run.entry)
                if not here and not st.store.marked(graph, fields.CAPTURED_IN_INIT):
                    continue
                if not found.isdisjoint(self.called_modules(st, graph)) or any(
                    name in inputs and not MOVED.isdisjoint(st.store.of(name)) for name in found
                ):
                    st.rebound = st.rebound | {Rebound(self.objects.describe(inner), site, graph): None}

    def held_by_a_former_caller(self, st: State, name: Name) -> bool:
        """Whether a tensor is an argument of a call that is over, which nothing that is seen holds any more."""
        if name.parent is not None or not isinstance(name.site, str) or not name.path:
            return False
        return not any(frame.path == name.path for frame in self.call_stack.frames()) and not any(
            isinstance(inner, Object) and inner.name == name
            for table in st.store.objects.values()
            for key, value in table.items()
            if type(key) is not fields.Field
            for inner in iterate(value)
        )

    def lost_input(self, st: State, name: Name, site: Site, alive: set[Name]) -> None:
        """The last name of a static input is gone: every graph that lives on goes on using its memory (GC-06)."""
        # where the function that drops it has it from
        made_at = self.run.returned_at.get(name.base()) or self.run.sites_of.get(name.base(), site)
        for graph, used in st.graphs.items():
            if (
                name in used
                and graph in alive
                and not (
                    st.store.marked(name, fields.INPUT_REPLACED)
                    or st.store.marked(name, fields.KEPT_IN_CONTAINER)
                )
            ):
                gone = Rebound(self.objects.describe(Tensor(name)), made_at, graph, released=site)
                st.rebound = st.rebound | {gone: None}

    def moved_input(self, st: State, name: Name, site: Site) -> None:
        """A tensor has other memory from here on: graphs that were captured before use what it had."""
        for graph, used in st.graphs.items():
            if name in used and (st.capture is None or st.capture.graph != graph):
                st.rebound = st.rebound | {Rebound(self.objects.describe(Tensor(name)), site, graph): None}

    def known_missing(self, st: State, value: Value) -> bool:
        """Whether an object of unknown kind was found to be None, or false, on this path."""
        if not isinstance(value, Opaque):
            return False
        none, truth = (
            self.run.conditions.get(("none", value.name), 0),
            self.run.conditions.get(("truth", value.name), 0),
        )
        return bool(st.path.true & none or st.path.false & truth)


def _word(key: Hashable) -> str:
    """What an attribute, a name or an element of a container is called."""
    return key if isinstance(key, str) else f"element {key}" if isinstance(key, int) else "an element"
