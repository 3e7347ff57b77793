"""What is known of an iterable: its elements, how many there are, whether there is one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import libcst as cst

from streamsafe.order.symbolic import Guard
from streamsafe.static import concrete, element_keys, fields, hints, numbers, sequences
from streamsafe.static.facts import LOADER, Site
from streamsafe.static.state import Ordered, State
from streamsafe.static.transfer.computed import LENGTH
from streamsafe.static.transfer.part import Part
from streamsafe.static.transfer.tensors import Call
from streamsafe.static.values import (
    EACH,
    ITERATED,
    NONE,
    UNKNOWN,
    UNTIL,
    Api,
    Const,
    Container,
    Instance,
    Name,
    Number,
    Opaque,
    Partial,
    Stream,
    Tensor,
    Tuple,
    Value,
    alternatives,
    deeper,
    iterate,
    least,
    union,
)

UNROLLED = 16
"""Rounds of a loop that are interpreted one by one, where their number is known."""

MOST_ROUNDS = 32
"""The same for loops in loops."""


class Iterables(Part):
    """Tells what an iterable gives."""

    def leave_rounds(self, st: State, *, again: bool = True) -> None:
        """A loop is over; what its rounds have made is made by the round that it stands in.

        Args:
            st: what is known after it; changed in place.
            again: another loop reaches the elements of this one; not where each iteration has a number.
        """
        made = self.run.rounds.pop()
        if again:
            self.stream_pools.gather_streams(st, made)
        iterated = {name for name in made if name.site == EACH} if again else set()
        if iterated:
            for value in st.store.gather(iterated):
                self.containers.lose(st, value)
        element_keys.leave(st, made, iterated)
        self.effects.keep_loop_waits(st, iterated)
        if self.run.rounds:
            self.run.rounds[-1] |= made - iterated

    def literal_items(self, iterable: Value, st: State) -> list[Value] | None:
        """The elements of something short whose length is known."""
        found = self.known_items(iterable, st)
        if found is None and isinstance(iterable, Container) and iterable.kind not in ("cycle", "dict"):
            found = self._words_held(iterable, st)
        if found is None or len(found) > UNROLLED or len(found) * self.run.unrolling > MOST_ROUNDS:
            return None
        return found

    def _words_held(self, container: Container, st: State) -> list[Value] | None:
        """The strings that a list holds, each of which may have been put in or not; None where it holds other things.

        As a rule they name devices or ways to go about something: each makes another round.
        """
        found = list(dict.fromkeys(v for held in self.containers.held(container, st) for v in iterate(held)))
        words = all(isinstance(v, Const) and type(v.value) is str for v in found)
        return found if words and found else None

    def known_items(self, iterable: Value, st: State) -> list[Value] | None:
        """The elements of a tuple, a list, a range, or an enumeration of one; None where they are not known."""
        if isinstance(iterable, Tuple):
            return list(iterable.items)
        iterable = self.subscripts.as_container(iterable)
        if isinstance(iterable, Container):
            if iterable.kind == "cycle":
                return None  # it has no end
            return sequences.items(st, iterable)
        if isinstance(iterable, Instance) and iterable.unit.is_named_tuple:
            names = self.instances.fields(iterable.unit)
            return [self.attributes.attribute(iterable, name, st, iterable.unit.node) for name in names]
        if not (isinstance(iterable, Partial) and isinstance(iterable.function, Api) and iterable.args):
            return None
        name, args, options = iterable.function.name, iterable.args, dict(iterable.kwargs)
        if name == "builtins.range":
            bounds = [a.value if isinstance(a, Const) and type(a.value) is int else None for a in args]
            if None in bounds or 0 in bounds[2:] or len(range(*bounds)) > UNROLLED:  # type: ignore[arg-type]
                return None
            return [Const(number) for number in range(*bounds)]  # type: ignore[arg-type]
        if name == "builtins.items" and isinstance(args[0], Container):
            keys = sequences.keys(st, args[0])
            if keys is None or any((args[0].name, key) not in st.store for key in keys):
                return None
            held = [
                key for key in st.store.of(args[0].name) if key in keys
            ]  # in the order they were put there
            return [Tuple((element_keys.value_of(key), st.store[(args[0].name, key)])) for key in held]
        if name == "builtins.enumerate":
            start = options.get("start", args[1] if len(args) > 1 else Const(0))
            inner = self.known_items(args[0], st)
            if inner is None or not isinstance(start, Const) or type(start.value) is not int:
                return None
            return [Tuple((Const(number), item)) for number, item in enumerate(inner, start.value)]
        if name == "builtins.zip":
            shortest = min(
                (len(known) for a in args if (known := self.known_items(a, st)) is not None), default=0
            )
            columns = [self.column(a, shortest, st) for a in args]
            if None in columns:
                columns = self._beside_streams(args, columns, st)
            if None in columns:
                return None
            return [Tuple(row) for row in zip(*(c for c in columns if c is not None), strict=False)]
        if name == "builtins.reversed":
            inner = self.known_items(args[0], st)
            return None if inner is None else inner[::-1]
        return None

    def _beside_streams(
        self, iterated: Sequence[Value], columns: list[list[Value] | None], st: State
    ) -> list[list[Value] | None]:
        """What is iterated beside a few streams has an element for each of them."""
        known = [c for c in columns if c and any(isinstance(v, Stream) for v in c)]
        if not known:
            return columns
        found: list[list[Value] | None] = []
        for value, column in zip(iterated, columns, strict=True):
            numbers_ = [Const(number) for number in range(len(known[0]))]
            if column is None and isinstance(value, Tensor):
                column = [replace(value, part=self.subscripts.picked(value.part, [n], st)) for n in numbers_]
            elif column is None and (
                isinstance(value, Opaque) or (isinstance(value, Container) and value.kind != "dict")
            ):
                column = [self.elements.element(value, n, st) for n in numbers_]
            found.append(column)
        return found

    def column(self, iterable: Value, length: int, st: State) -> list[Value] | None:
        """The elements of one that is iterated beside others; of a cycle as many as these have."""
        if isinstance(iterable, Container) and iterable.kind == "cycle":
            known = sequences.items(st, iterable) or []
            return [known[n % len(known)] for n in range(length)] if known and length else None
        return self.known_items(iterable, st)

    @contextmanager
    def round_apart(self, node: cst.CSTNode, number: int, count: int) -> Iterator[None]:
        """What one of a few known rounds makes is not what another makes."""
        activation = self.run.stack[-1]
        outer, before = activation.path, self.run.unrolling
        activation.path = deeper(outer, (id(node), number))
        self.run.unrolling = before * max(count, 1)
        try:
            yield
        finally:
            activation.path, self.run.unrolling = outer, before

    def next_until(self, iterable: Partial, st: State, node: cst.CSTNode) -> Value | None:
        """What ``iter(f, last)`` gives next; None where it is the last."""
        function, last = iterable.args
        result = self.calls.call_value(function, Call(node, self.call_stack.site(node)), st)
        going_on = [(v, g) for v, g in alternatives(result, st.path) if v != last]
        return union(going_on) if going_on else None

    def next_of_call(self, iterable: Partial, st: State, node: cst.CSTNode) -> Value:
        """The next element of ``zip``, ``enumerate`` and their like."""
        name = iterable.function.name if isinstance(iterable.function, Api) else ""
        if iterable.function == UNTIL:
            return self.next_until(iterable, st, node) or UNKNOWN
        items = [self.statements.next_item(a, st, node) for a in iterable.args]
        if name == "builtins.enumerate":
            index = Opaque(self.objects.fresh(node, st, "index"))
            if len(iterable.args) == 1 and not iterable.kwargs and isinstance(iterable.args[0], Opaque):
                st.store[(index.name, fields.INDEX_OF)] = iterable.args[0]
            return Tuple((index, items[0] if items else UNKNOWN))
        if name == "builtins.zip":
            return Tuple(tuple(items))
        if name == "builtins.range":
            index = Opaque(self.objects.fresh(node, st, "index"))
            length = self._length_of(iterable)
            if length is not None and length.parent is not None:
                st.store[(index.name, fields.INDEX_OF)] = Opaque(length.parent)
            return index
        if name == "builtins.items":
            mapping = iterable.args[0] if iterable.args else UNKNOWN
            key = self.elements.tensor_keys(mapping, st) if isinstance(mapping, Container) else None
            return Tuple((key or Opaque(self.objects.fresh(node, st, "key")), items[0] if items else UNKNOWN))
        if name == "builtins.map":
            result = (
                self.statements.next_item(iterable.args[1], st, node) if len(iterable.args) > 1 else UNKNOWN
            )
            return self.calls.call_value(
                iterable.args[0], Call(node, self.call_stack.site(node), [result]), st
            )
        return items[0] if items else UNKNOWN

    def never_empty(self, node: cst.BaseExpression, iterable: Value, st: State) -> bool:
        """Whether a loop surely has an iteration, or one over the same before must have had one, too."""
        if isinstance(iterable, Partial) and iterable.function == Api("builtins.range"):
            bounds = [a.value if isinstance(a, Const) else None for a in iterable.args]
            if len(bounds) == 1 and (least(iterable.args[0]) or 0) > 0:
                return True
            if len(bounds) >= 2 and isinstance(bounds[0], int) and isinstance(bounds[1], int):
                return bounds[1] > bounds[0]
            length = self._length_of(iterable)
            if length is not None:
                # what was put into a container is there
                return length.parent is None or self.has_known_elements(Opaque(length.parent), st)
            # a loop over a count that is a parameter is written for the case that it runs
            frame = self.run.stack[-1].frame
            return len(bounds) == 1 and any((frame, size) in self.run.sizes for size in concrete.sizes(node))
        counted = isinstance(iterable, Partial) and iterable.function in (_ENUMERATE, _ITEMS)
        whole = iterable.args[0] if counted and iterable.args else iterable  # type: ignore[attr-defined]
        iterated = [v for v in iterate(whole) if v != NONE]  # nobody iterates over None
        if iterated and all(isinstance(v, Container) and v.kind != "queue" for v in iterated):
            return True  # what was put into it is there
        if self.is_loader(iterable) or self.has_known_elements(iterable, st):
            return True
        return isinstance(node, (cst.List, cst.Tuple)) and bool(node.elements)

    @staticmethod
    def has_known_elements(iterable: Value, st: State) -> bool:
        """Whether something is known of the elements, or they are a module's parts: then there are some."""
        iterated = [
            v
            for v in (iterable.args if isinstance(iterable, Partial) else (iterable,))
            if isinstance(v, Opaque)
        ]
        if any((v.name, fields.TORCH_MODULE) in st.store for v in iterated):
            return True
        elements = [v.name.child(EACH) for v in iterated]
        known = [e for e in elements if st.store.of(e) or e in st.order.made]
        return bool(known) or any(st.store.of(e.parent.child(ITERATED)) for e in elements if e.parent)

    @staticmethod
    def is_loader(iterable: Value) -> bool:
        """Whether something is made as a loader or named like one: none without a batch is ever iterated over."""
        while isinstance(iterable, Partial) and iterable.args:
            iterable = iterable.args[0]
        site = iterable.name.site if isinstance(iterable, Opaque) else None
        if isinstance(site, tuple):
            return bool(site[-1] == LOADER)
        return isinstance(site, str) and hints.names_loader(site)

    @staticmethod
    def _length_of(iterable: Partial) -> Name | None:
        """What stands for the length in ``range(len(x))``: a part of what is not seen made, or by itself."""
        bound = iterable.args[0] if len(iterable.args) == 1 else None
        if not isinstance(bound, Number) or len(atoms := bound.form.atoms()) != 1:
            return None
        whole = atoms.pop()
        atom = whole.args[0] if isinstance(whole, numbers.Derived) and whole.kind == "in rounds" else whole
        named = atom.site if isinstance(atom, Name) else None
        is_length = named == f"{LENGTH}()" or (isinstance(named, tuple) and named[-1] == LENGTH)
        return atom if is_length and bound.form == numbers.of_atom(whole) else None

    def counts_of(self, iterable: Value) -> Iterator[Opaque]:
        """The objects whose truth says whether a loop has a round."""
        if isinstance(iterable, Partial) and isinstance(iterable.function, Api):
            if iterable.function.name == "builtins.range":
                bounds, length = iterable.args, self._length_of(iterable)
                if length is not None and length.parent is not None:
                    yield from self.counts_of(Opaque(length.parent))
                elif len(bounds) == 1 and isinstance(bounds[0], Opaque):
                    yield bounds[0]
                return
            for each in iterable.args if iterable.function.name == "builtins.zip" else iterable.args[:1]:
                yield from self.counts_of(each)
        elif isinstance(iterable, Opaque) and not isinstance(iterable.name.root().site, tuple):
            yield iterable

    def holds_some(self, iterable: Value, st: State) -> list[tuple[bool, Guard]]:
        """Whether a loop over a list of the file's own has a round, on the paths on which it has one or has none."""
        if isinstance(iterable, Container):
            found = sequences.some(st, iterable)
            return found if {some for some, _ in found} == {True, False} else []
        if isinstance(iterable, Partial) and isinstance(iterable.function, Api):
            iterated = iterable.args if iterable.function.name == "builtins.zip" else iterable.args[:1]
            return next((found for each in iterated if (found := self.holds_some(each, st))), [])
        return []

    def is_empty_on_some_paths(self, iterable: Value, st: State) -> bool:
        """Whether a list holds something on some paths and nothing on others, and conditions tell these apart."""
        found = self.holds_some(iterable, st)
        filled = [guard for some, guard in found if some]
        return bool(found) and all(
            guard.contradicts(other) for some, guard in found if not some for other in filled
        )

    def iteration_starts(self, iterable: Value, st: State, site: Site) -> Ordered[object]:
        """A loader that pins memory is at work while a loop iterates over it."""
        added: Ordered[object] = dict.fromkeys(
            site
            for v in iterate(self._loader(iterable))
            if isinstance(v, Opaque)
            for site in st.store.constants(v.name, fields.PIN_MEMORY)
        )
        st.threads = st.threads | added
        return added

    def _loader(self, iterable: Value) -> Value:
        while isinstance(iterable, Partial) and iterable.args:
            iterable = iterable.args[0]
        return iterable


_ENUMERATE, _ITEMS = Api("builtins.enumerate"), Api("builtins.items")
