"""Containers, elements and views.

One file: lookup, membership and views of an element must agree on the key under which it is kept.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from dataclasses import replace
from typing import Any

import libcst as cst

from streamsafe.order.symbolic import ALWAYS, Guard
from streamsafe.static import element_keys, hints, numbers, parts, sequences
from streamsafe.static.capture import Captures
from streamsafe.static.facts import Assumed, Site
from streamsafe.static.numbers import Form
from streamsafe.static.source import ClassUnit
from streamsafe.static.state import State
from streamsafe.static.values import (
    ANY,
    EACH,
    EVERY,
    NONE,
    PARAMETERS,
    PLAIN,
    UNKNOWN,
    Api,
    Class,
    Const,
    Container,
    Event,
    Function,
    Instance,
    Name,
    Number,
    Object,
    Opaque,
    Partial,
    Stream,
    Tensor,
    Tuple,
    Union,
    Value,
    Work,
    alternatives,
    iterate,
    union,
)

PLACE = ("[]", Name("a place"))
"""What a handle is remembered by at a number that is not known."""

POOL = Const(2)
"""So many streams are in a pool of which the size is not known."""


class Containers(Captures):
    """Containers, elements and views."""

    # declared here, implemented further down the chain
    sure_lookups: int
    counting: int
    counting_down: int
    moved_parameters: bool

    def reach_weights(self, module: Name, element: Name, st: State) -> None: ...

    found_pool_sizes: set[Name]
    lengths: dict[Name, Name]
    pool_sizes: set[Name]

    def eval(self, node: cst.BaseExpression, st: State) -> Value: ...

    def _key_of(self, node: cst.BaseExpression, st: State) -> tuple[Name, Hashable] | None: ...

    def form_in_round(self, value: Value, st: State) -> Form | None: ...

    def bound(self, value: Value, node: cst.BaseExpression, st: State) -> Value: ...

    def ancestry(self, unit: ClassUnit) -> Iterator[ClassUnit]: ...

    def known_items(self, iterable: Value, st: State) -> list[Value] | None: ...

    def add_items(self, mapping: Container, added: Value, st: State) -> None: ...

    def make_default(self, factory: Value, node: cst.CSTNode, st: State) -> Value: ...

    def own_method(self, value: Value, name: str) -> Function | None: ...

    def call_function(
        self,
        function: Function,
        args: list[Value],
        kwargs: dict[str, Value],
        st: State,
        node: cst.CSTNode,
        *,
        starred: bool = False,
    ) -> Value: ...

    def fresh(self, node: cst.CSTNode, st: State, what: Hashable = "") -> Name: ...

    def is_tensor(self, st: State, value: Object) -> bool: ...

    def read_on_host(self, st: State, value: Value, site: Site, text: str) -> None: ...

    def site(self, node: cst.CSTNode) -> Site: ...

    def is_host(self, st: State, value: Value) -> bool: ...

    def library_of(self, st: State, values: Iterable[Value]) -> str: ...

    def read_operands(self, st: State, operands: list[Value], site: Site, text: str) -> None: ...

    def masked(self, st: State, operands: list[Value], node: cst.CSTNode) -> Value: ...

    def operation(
        self,
        st: State,
        operands: list[Value],
        site: Site,
        text: str,
        *,
        library: str = "",
        assumed: Assumed = Assumed.NOTHING,
    ) -> Value: ...

    @staticmethod
    def is_mask(st: State, value: Value) -> bool: ...

    def one_row(
        self, value: Value, st: State, target: cst.CSTNode, kind: type[Tuple] | type[Instance]
    ) -> Value: ...

    def _tuple(self, node: cst.Tuple, st: State) -> Value:
        if any(isinstance(e, cst.StarredElement) for e in node.elements):
            items: list[Value] = []
            for element in node.elements:
                value = self.eval(element.value, st)
                if isinstance(element, cst.StarredElement):
                    if isinstance(value, Tuple):
                        items.extend(value.items)
                        continue
                    return self.container(node, st, "list", [*items, self.any_element(value, st)])
                items.append(value)
            return Tuple(tuple(items))
        return Tuple(tuple(self.eval(e.value, st) for e in node.elements))

    def _list(self, node: cst.List | cst.Set, st: State) -> Value:
        items = []
        exact = True
        given: list[tuple[Value, int]] = []
        for element in node.elements:
            value = self.eval(element.value, st)
            if st.graphs:
                given.append((value, self.replays))
            if isinstance(element, cst.StarredElement):
                exact = False
                value = self.any_element(value, st)
            items.append(value)
        if len(given) > 1:
            self.computed_twice(st, given, self.site(node))
        return self.container(node, st, "list", items, exact=exact)

    def _dict(self, node: cst.Dict, st: State) -> Value:
        name = self.fresh(node, st, "dict")
        self.closed.add(name)
        sequences.set_keys(st, Container(name, "dict"), ())
        for element in node.elements:
            value = self.eval(element.value, st)
            if isinstance(element, cst.DictElement):
                key = self.eval(element.key, st)
                self.store_element(Container(name, "dict"), key, value, st)
            else:
                self.add_items(Container(name, "dict"), value, st)
        return Container(name, "dict")

    def container(
        self, node: cst.CSTNode, st: State, kind: str, items: list[Value], *, exact: bool = True
    ) -> Container:
        """A list with these elements."""
        name = self.fresh(node, st, kind)
        self.closed.add(name)
        if exact:
            for position, value in enumerate(items):
                st.store[(name, position)] = value
            st.store[(name, "@length")] = Const(len(items))
            sequences.set_some(st, Container(name, kind), Const(bool(items)) if kind != "dict" else None)
            if items:
                sequences.set_end(st, Container(name, kind), sequences.FRONT, items[0])
                sequences.set_end(st, Container(name, kind), sequences.LAST, items[-1])
            self.joins(Container(name, kind), items)
        elif items:
            st.store[(name, "*")] = union((v, ALWAYS) for v in items)
        return Container(name, kind)

    # -- elements ------------------------------------------------------------------------------------------------

    def held(self, container: Object, st: State, index: Hashable = None) -> list[Value]:
        """Everything a container is known to hold, or what of it may be held under a key."""
        held = [(k, v) for k, v in st.store.of(container.name).items() if type(k) is not str or k[:1] != "@"]
        return [v for k, v in held if index is None or k == "*" or not element_keys.apart(k, index)]

    def any_element(self, value: Value, st: State) -> Value:
        """Some element."""
        if isinstance(value, Union):
            return union((self.any_element(v, st), g) for v, g in alternatives(value, st.path))
        if isinstance(value, Tuple):
            return union((v, ALWAYS) for v in value.items) if value.items else UNKNOWN
        if isinstance(value, Container) and value.kind == "dict":
            return PLAIN  # one of its keys
        if isinstance(value, Container):
            found = self.held(value, st)
            return union((v, ALWAYS) for v in found) if found else UNKNOWN
        if isinstance(value, Opaque):
            return self.typed_element(value, Opaque(value.name.child(EACH)), st)
        return UNKNOWN

    def any_value(self, value: Value, st: State) -> Value:
        """Some value of a mapping."""
        if isinstance(value, Union):
            return union((self.any_value(v, st), g) for v, g in alternatives(value, st.path))
        return self.any_element(replace(value, kind="list") if isinstance(value, Container) else value, st)

    def each(self, iterable: Object, st: State, node: cst.CSTNode) -> Value:
        """The element of this iteration of a loop over the whole."""
        listed = str(iterable.name.site)
        if isinstance(iterable, Opaque) and listed.startswith("named_") and iterable.name.parent is not None:
            whole = Opaque(iterable.name.parent.child(listed.removeprefix("named_")))
            return Tuple((Opaque(self.fresh(node, st, "key")), self.each(whole, st, node)))
        if listed == PARAMETERS:
            self.moved_parameters = True
        name = iterable.name.child(EACH)
        if not any(name in names for names in self.rounds):
            self.reach_picked(st, name)
        if self.rounds:
            self.rounds[-1].add(name)
        st.store.reach(name)
        self.take_loop_waits(st, name)
        if listed == PARAMETERS and iterable.name.parent is not None:
            self.reach_weights(iterable.name.parent, name, st)
        if isinstance(iterable, Container) and iterable.kind == "dict":
            key = self.tensor_keys(iterable, st)
            if key is None:
                key = Opaque(self.fresh(node, st, "key"))
                st.store[(key.name, "@of")] = iterable
            return key
        if isinstance(iterable, Container):
            found = self.held(iterable, st)
            value = union((v, ALWAYS) for v in found) if found else UNKNOWN
            value = self.one_of_many(self.element_view(iterable, EACH, value, st))
            return element_keys.in_rounds(value, parts.distinguishing(iterable.part))
        if isinstance(iterable, Tensor):
            return Tensor(iterable.name, numpy=iterable.numpy, part=parts.all_of(iterable.part))
        if isinstance(iterable, Instance):
            return UNKNOWN
        return element_keys.in_rounds(
            self._each_element(iterable, st), parts.distinguishing(getattr(iterable, "part", None))
        )

    def _each_element(self, iterable: Object, st: State) -> Value:
        """What stands for each element of an object of unknown kind."""
        held = st.store.get((iterable.name, EACH)) or st.store.get((iterable.name, "*"))
        held = held or element_keys.refilled(st.store.of(iterable.name))
        return held or self.typed_element(iterable, Opaque(iterable.name.child(EACH)), st)

    def tensor_keys(self, mapping: Container, st: State) -> Value | None:
        """The tensors that a dict is keyed by; None where its keys are something else."""
        keys = [k[1] for k in st.store.of(mapping.name) if type(k) is tuple and k[:1] == ("[]",)]
        tensors = [Opaque(k) for k in keys if isinstance(k, Name)]
        alike = len(tensors) == len(keys) > 0 and all(self.is_tensor(st, t) for t in tensors)
        return union((t, ALWAYS) for t in tensors) if alike else None

    def of_round(self, value: Value, node: cst.CSTNode, st: State) -> Value:
        """The element of this iteration is another part of the whole than that of any other iteration."""
        name = self.round_name(node, st)
        return element_keys.in_rounds(value, ((name.base(), name),))

    def round_name(self, node: cst.CSTNode, st: State) -> Name:
        """What stands for the round of a loop that begins here."""
        return self.fresh(node, st, element_keys.ROUND)

    def typed_element(self, container: Object, element: Opaque, st: State) -> Value:
        """An element of a container whose annotation says what it holds."""
        return element

    @staticmethod
    def one_of_many(value: Value) -> Value:
        """Of objects that were made alike one stands for the one that a loop has reached."""
        found = [v for v in iterate(value) if isinstance(v, Instance)]
        if len(found) < 2 or any(type(v) is not Instance for v in iterate(value)):
            return value
        alike = len({v.name.base() for v in found}) == 1
        return min(found, key=lambda v: v.name.age) if alike else value

    def duplicate(self, container: Container, node: cst.CSTNode, st: State) -> Container:
        """Another container with the same elements."""
        made = Container(self.fresh(node, st, "copy"), container.kind)
        for key, value in list(st.store.of(container.name).items()):
            st.store[(made.name, key)] = value
        if container.name in self.closed:
            self.closed.add(made.name)
        if container.name.base() in self.members:
            self.members[made.name.base()] = set(self.members[container.name.base()])
        return made

    def element_view(self, container: Object, key: Hashable, value: Value, st: State) -> Value:
        """An element of which only the container's summary is known: streams and events get a name by their key."""
        kinds = {type(v) for v in iterate(value)}
        if len(kinds) == 1 and isinstance(value, Union):
            first = value.alternatives[0][0]
            name = container.name.child(key)
            if isinstance(first, Stream):
                known = sequences.items(st, container) if isinstance(container, Container) else None
                if key == ANY and known and len(known) <= sequences.FEW:
                    return value  # one of a few that are all seen
                self.table.alike(name, first.name)
                return Stream(name, first.library)
            if isinstance(first, Event) and key != EACH:
                # what was recorded before it was put under a key that is not known
                given = type(key) is int and isinstance(container, Container) and container.kind == "dict"
                given = given and all((v.name, "@recorded") in st.store for v in iterate(value))  # type: ignore[attr-defined]
                given = given or element_keys.is_iterated_key(key)  # another loop reaches it, too
                return Event(container.name.child(ANY) if given else name, first.timing)
        return value

    def contains(self, container: Value, key: Value, st: State) -> bool | None:
        """Whether a dict has a key; None where that is not known."""
        if isinstance(container, Opaque):
            index = element_keys.index_of(key)
            put = st.store.get((container.name, index))
            if put is not None and self._is_awaited([put]):
                return True
            return True if self._made_on_use(container, index, key, st) else None
        if not isinstance(container, Container) or (container.name, "@factory") in st.store:
            return None
        known, index = sequences.keys(st, container), self.index_of(container, key, st)
        if known == frozenset() and isinstance(key, Number):
            return False
        if index == PLACE and all(v != NONE for v in iterate(st.store[(container.name, PLACE)])):
            return True  # what stands for any has been put there
        bare = element_keys.bare(index)
        held = st.store.get((container.name, bare)) if element_keys.is_iterated_key(bare) else None
        if held is not None and all(isinstance(v, Stream) for v in iterate(held)):
            return True  # a loop that is over has given each of its elements one
        if self._made_on_use(container, index, key, st):
            return True
        if known is None or element_keys.is_unsure(index):
            return True if self._is_awaited(self.held(container, st)) else None
        if index in known:
            return True
        # of two objects that are known to differ, neither's identity is the other's
        distinct = isinstance(key, Const) or (isinstance(key, Opaque) and key.name.site == "identity")
        return False if distinct else None

    @staticmethod
    def _is_awaited(held: list[Value]) -> bool:
        """Whether a table holds what is waited for: who finds nothing there under a key, as who finds None, has
        nothing under way.
        """
        found = [v for value in held for v in iterate(value)]
        return bool(found) and all(isinstance(v, (Event, Work)) for v in found)

    @staticmethod
    def _made_on_use(container: Object, index: Hashable, key: Value, st: State) -> bool:
        """Whether a stream stands under a key: where it was made on first use it is there, whoever was the first."""
        put = st.store.get((container.name, index)) if isinstance(key, Opaque) else None
        return (
            put is not None
            and not element_keys.is_unsure(index)
            and all(isinstance(v, Stream) for v in iterate(put))
        )

    def element(self, base: Value, key: Value, st: State) -> Value:
        """``base[key]``."""
        found = [(self._element(inner, key, st), guard) for inner, guard in self.holders_of(base, key, st)]
        return union(found) if found else UNKNOWN

    def holders_of(self, base: Value, key: Value, st: State) -> list[tuple[Value, Guard]]:
        """What may have been subscripted: a dict without that key would have raised."""
        choices = alternatives(base, st.path)
        if len(choices) < 2:
            return choices
        return [(v, g) for v, g in choices if self.contains(v, key, st) is not False] or choices

    def _element(self, base: Value, key: Value, st: State) -> Value:
        if isinstance(base, Tuple):
            if (
                isinstance(key, Const)
                and isinstance(key.value, int)
                and -len(base.items) <= key.value < len(base.items)
            ):
                return base.items[key.value]
            return union((v, ALWAYS) for v in base.items) if base.items else UNKNOWN
        if isinstance(base, Container):
            index = self.index_of(base, key, st)
            rounds = element_keys.rounds_of(key) + parts.rounds(base.part)
            known = element_keys.under(st.store.of(base.name), index) if index is not None else None
            count = sequences.length(st, base)
            place = self.place_of(key, st) if count is None else None
            if place is not None:
                rounds += element_keys.at_place(base, place)
            if known is not None:
                known = self._with_unplaced(base, index, known, st)
                return element_keys.in_rounds(
                    self.one_of_every(known, index) if type(index) is int else known, rounds
                )
            if isinstance(index, int) and index < 0:
                length = st.store.get((base.name, "@length"))
                if isinstance(length, Const) and (base.name, length.value + index) in st.store:
                    return st.store[(base.name, length.value + index)]
                last = sequences.at_end(st, base, sequences.LAST) if index == -1 else None
                if last is not None:
                    return last
            # a count that goes down begins at a number that is not known
            up = self.counting and not self.counting_down
            if up and isinstance(index, int) and count is not None and index >= count > 0:
                st.dead = True  # the count that is not known ends before
                return UNKNOWN
            found = self.held(base, st, index)
            if not found:
                return UNKNOWN
            name = ANY if element_keys.is_unsure(index) else element_keys.bare(index)
            whole = union((v, ALWAYS) for v in found)
            if isinstance(key, Opaque) and st.store.get((key.name, "@of")) == base:
                name = EACH
            else:
                whole = self.one_of_every(whole, name)
            if type(name) is tuple:
                whole = element_keys.picked_by(whole, base, name)
            return element_keys.in_rounds(self.element_view(base, name, whole, st), rounds)
        if type(base) is Instance:
            base = self.as_container(base)
            if isinstance(base, Container):
                return self._element(base, key, st)
        if isinstance(base, Instance) and base.unit.is_named_tuple:
            return self._element(Tuple(tuple(self.known_items(base, st) or ())), key, st)
        if isinstance(base, Opaque):
            index = element_keys.index_of(key)
            table = st.store.of(base.name)
            held = element_keys.under(table, index) or element_keys.refilled(table, index)
            if held is None and isinstance(key, Opaque) and st.store.get((key.name, "@of")) == base:
                held = self._each_element(base, st)  # by the number that a loop gives it
            if held is None:
                held = self.typed_element(base, Opaque(base.name.child(element_keys.bare(index))), st)
            rounds = element_keys.rounds_of(key) + parts.rounds(base.part)
            place = self.place_of(key, st) if index == ANY else None
            if place is not None:
                rounds += element_keys.at_place(base, place)
            return element_keys.in_rounds(held, rounds)
        return UNKNOWN

    def _with_unplaced(self, container: Container, index: Hashable, known: Value, st: State) -> Value:
        """What is at a place, or the handles of works that have been put at one of which the number is not known."""
        if type(index) is not int or container.kind == "dict":
            return known
        table = st.store.of(container.name)
        put = [v for k, v in table.items() if type(k) is tuple and k[:1] == ("[]",) and k != PLACE]
        works = [v for v in put if self._holds_works(v, st)]
        return union([(known, ALWAYS), *((v, ALWAYS) for v in works)]) if works else known

    def _holds_works(self, value: Value, st: State) -> bool:
        """Whether this is the handle of a work, or a list of such."""
        return any(
            isinstance(v, Work)
            or (
                isinstance(v, Container)
                and any(isinstance(w, Work) for h in self.held(v, st) for w in iterate(h))
            )
            for v in iterate(value)
        )

    def place_of(self, key: Value, st: State) -> parts.Picked | None:
        """Where an element of a list or dict stands, as far as two places can be told apart by their keys."""
        if isinstance(key, Const) and isinstance(key.value, str):
            return key.value
        return parts.place(key, lambda value: self.form_in_round(value, st))

    def index_of(self, container: Value, key: Value, st: State, new: Value | None = None) -> Hashable | None:
        """What an element is remembered by.

        Of handles, a number that is not known stands for one place of all: who asks for the one that is there, or for
        none, means what is at that place of the other lists. Not so where one call or round computes several.
        """
        index = element_keys.key_of(key)
        if index is not None or not isinstance(key, Number) or not isinstance(container, Container):
            return index
        held = self.held(container, st)
        given = held if new is None else [*held, new]
        if not given or not all(v == NONE or isinstance(v, (Event, Work)) for h in given for v in iterate(h)):
            return None
        said = st.store.get((container.name, "@place"))
        names = key.form.names()
        if isinstance(said, Number) and said != key and not set(names).isdisjoint(said.form.names()):
            return None
        st.store[(container.name, "@place")] = key
        if (container.name, PLACE) not in st.store:  # what was put at numbers that are known was put there
            there = [(v, g) for h in held for v, g in alternatives(h) if v != NONE]
            st.store[(container.name, PLACE)] = union(there) if there else NONE
        return PLACE

    def store_element(self, base: Value, key: Value, value: Value, st: State) -> None:
        """``base[key] = value`` for containers and objects."""
        few = _one_of_few(key, st)
        if len(few) > 1:
            self._store_one_of(base, few, value, st)
            return
        key = few[0][0] if few else key
        if any(isinstance(v, (Event, Work)) for v in iterate(value)):
            self.takes_turns(key)
        for inner in map(self.as_container, iterate(base)):
            index = self.index_of(inner, key, st, new=value)
            if isinstance(inner, Container):
                sequences.moved(st, inner)
                if inner.kind == "list" and base is inner:
                    self.holds_something(inner, st)
                if index == PLACE:
                    sequences.blur(st, inner)
                elif (inner.name, PLACE) in st.store:  # it may be the same place
                    held = st.store[(inner.name, PLACE)]
                    st.store[(inner.name, PLACE)] = union([(held, ALWAYS), (value, ALWAYS)])
                self.put_back(st, value, inner)
                self.joins(inner, [value])
                known = sequences.keys(st, inner)
                if known is not None:
                    certain = not element_keys.is_unsure(index) and base is inner
                    sequences.set_keys(st, inner, known | {index} if certain else None)
                if index is not None and not element_keys.is_unsure(index):
                    replaced = st.store.get((inner.name, index), NONE)
                    if type(index) is tuple and replaced != value and self._holds_works(replaced, st):
                        # of another call: the number need not be the same
                        several = [st.store.get((inner.name, "*"), replaced), replaced]
                        st.store[(inner.name, "*")] = union((v, ALWAYS) for v in several)
                    self.lose(st, replaced)
                    st.store[(inner.name, index)] = value
                elif index is not None:
                    old = st.store.get((inner.name, index))
                    st.store[(inner.name, index)] = union(
                        [(v, ALWAYS) for v in (old, value) if v is not None]
                    )
                else:
                    sequences.blur(st, inner)
                    self.extend_container(st, inner, Tuple((value,)))
            elif isinstance(inner, Opaque):
                index = element_keys.index_of(key)
                self.lose(st, st.store.get((inner.name, index), NONE))
                st.store[(inner.name, index)] = value
                self.holds(inner.name)

    def _store_one_of(self, base: Value, few: list[tuple[Value, Guard]], value: Value, st: State) -> None:
        """``base[key] = value`` where the key is one of a few numbers: what stood at the others stays there."""
        for key in dict.fromkeys(key for key, _ in few):
            assert isinstance(key, Const)
            kept = [(self.element(base, key, st), guard) for other, guard in few if other != key]
            new = union([*((value, guard) for other, guard in few if other == key), *kept])
            self.store_element(base, key, new, st)

    def joins(self, container: Object, items: list[Value]) -> None:
        """Remember the streams and events that a container has held."""
        for item in items:
            for member in iterate(item):
                if isinstance(member, (Stream, Event)):
                    self.members.setdefault(container.name.base(), set()).add(member.name.base())
                if isinstance(member, Stream):
                    for iterated in self.stack[-1].held:
                        self.fills_pool(iterated, {member.name})

    # -- pools of streams ----------------------------------------------------------------------------------------

    def fills_pool(self, iterated: Value, made: set[Name], st: State | None = None) -> None:
        """What the rounds of ``range(n)`` have made: if these are streams, or what each has an event of its own, n is
        the size of a pool.
        """
        if not (isinstance(iterated, Partial) and iterated.function == Api("builtins.range")):
            return
        count = iterated.args[0] if len(iterated.args) == 1 else None
        handles = any(_is_handle(name, "stream", "event") for name in made)
        tables = [st.store.of(name) for name in made] if st is not None else []
        handles = handles or any(
            isinstance(k, str) and hints.HANDLE.fullmatch(k) is not None for table in tables for k in table
        )
        name = _number_of(count)
        if handles and name is not None:
            self.found_pool_sizes.add(name.base())

    def takes_turns(self, key: Value) -> None:
        """Where a handle is kept under ``i % n``, n is the size of a pool."""
        if (
            isinstance(key, Opaque)
            and type(key.name.site) is tuple
            and key.name.site[:2] == ("Modulo", "right")
        ):
            sizes = [key.name.parent]
        else:
            atoms = key.form.atoms() if isinstance(key, Number) else ()
            turns = [atom for atom in atoms if isinstance(atom, numbers.Derived) and atom.kind == "%"]
            sizes = [_measure_of(Number(..., turn.args[1])) for turn in turns]
        for name in (size.base() for size in sizes if size is not None):
            self.found_pool_sizes.add(self.lengths.get(name, name))

    def gather_streams(self, st: State, made: set[Name]) -> None:
        """A loop is over: of the streams that it has stored, a later loop reaches one in each iteration.

        Whoever iterates over what holds them, or looks each up by its key, reaches all of them.
        """
        streams = {name for name in made if _is_handle(name, "stream") and self._has_worked(name, st)}
        gathered: set[Name] = set()

        def together(name: Name) -> Name:
            stream = name.parent if name.site == EVERY and name.parent is not None else name
            if stream.newest() not in streams or (not name.age and name is stream):
                return name
            gathered.add(stream.newest())
            return stream.newest().child(EVERY)

        for owner, table in list(st.store.objects.items()) if streams else ():
            kind = owner.site[-1] if type(owner.site) is tuple else ""
            if kind not in _KEEPS or owner.base() not in self.closed:
                continue
            for key, value in list(table.items()):
                apart = not isinstance(key, str) or key == "*" or owner.newest() in made
                if apart and not (isinstance(key, str) and key.startswith("@")):
                    new = value.rename(together)
                    if new is not value:
                        st.store[(owner, key)] = new
        for stream in gathered:
            every = stream.child(EVERY)
            for source in (
                *(stream.with_age(age) for age in range(3)),
                *(stream.with_age(a).child(EVERY) for a in (1, 2)),
            ):
                if source in self.carriers:
                    st.order.learn(every, source)
            self.table.alike(every, stream)

    def _has_worked(self, handle: Name, st: State) -> bool:
        """Whether anything is known to a handle, or one that was made there before it, by now."""
        bits = 0
        for age in range(3):
            if (name := handle.with_age(age)) in self.carriers:
                bits |= self.carriers.bit(name)
        return bool(bits) and any(table.summary.some & bits for table in st.order.made.values())

    def one_of_every(self, value: Value, key: Hashable) -> Value:
        """Of the streams that are kept together the one under a key that no loop gives."""

        def one(name: Name) -> Name:
            if name.site != EVERY or name.parent is None:
                return name
            found = name.parent.child(("one", key))
            self.table.alike(found, name.parent)
            return found

        return value.rename(one)

    def sized(self, count: Value, st: State) -> Value:
        """A number: the size of a pool that is not known is taken to be two, from here on.

        Of these it matters which is meant, and how they are used in turn can be followed.
        """
        name = _measure_of(count)
        if name is None or name.base() not in self.pool_sizes:
            return count
        if name.parent is not None:
            st.store[(name.parent, name.site)] = POOL
        for key, held in list(st.store.items()):
            if held == count:
                st.store[key] = POOL
        return POOL

    def extend_container(self, st: State, base: Value, added: Value) -> None:
        """Elements join a container, at its end as long as its length is known."""
        for inner in iterate(base):
            if not isinstance(inner, Container):
                continue
            exact = list(added.items) if isinstance(added, Tuple) else None
            if isinstance(added, Container):
                exact = sequences.items(st, added)
            new = exact if exact is not None else [self.any_value(added, st)]
            for value in new:
                self.put_back(st, value, inner)
            self.joins(inner, new)
            known = sequences.items(st, inner) if base is inner and exact is not None else None
            bounded = (inner.name, sequences.BOUNDED) in st.store
            if known is not None and not bounded and len(known) + len(new) <= sequences.LIMIT:
                sequences.put(st, inner, [*known, *new])
                continue
            held = st.store.get((inner.name, sequences.SOME))
            front = new[0] if known == [] else sequences.ends(st, inner)[sequences.FRONT]
            sequences.blur(st, inner)
            sequences.set_some(st, inner, Const(True) if exact else held if exact == [] else None)
            old = st.store.get((inner.name, "*"))
            st.store[(inner.name, "*")] = union(
                [*([(old, ALWAYS)] if old is not None else []), *((v, ALWAYS) for v in new)]
            )
            sequences.set_end(st, inner, sequences.FRONT, None if bounded else front)
            sequences.set_end(st, inner, sequences.LAST, new[-1] if base is inner and exact else None)

    def lose(self, st: State, value: Value) -> None:
        """These objects may have lost their last name."""
        for inner in iterate(value):
            if isinstance(inner, (Tensor, Opaque)):
                self.candidates.append(inner.name)
                if inner.name.parent is not None:
                    self.candidates.append(inner.name.root())  # a result goes with the last of its rows
            if isinstance(inner, (Tuple, Container, Instance, Opaque)):
                self.candidates.extend(target.name for target, _ in self.tensors(st, inner))

    def holds_something(self, whole: Value, st: State) -> None:
        """Who had, or replaced, an element of it by a number has not raised: there is one."""
        if isinstance(whole, Opaque):
            st.store[(whole.name, "@nonzero")] = PLAIN
        elif isinstance(whole, Container) and sequences.length(st, whole) is None:
            st.store[(whole.name, sequences.SOME)] = Const(True)
            times = st.store.get((whole.name, sequences.TIMES))
            if isinstance(times, Opaque):
                st.store[(times.name, "@nonzero")] = PLAIN

    def _subscript(self, node: cst.Subscript, st: State) -> Value:
        base = self.eval(node.value, st)
        if isinstance(base, Function):  # the grid of a compiled kernel
            return Partial(base, (), (("@grid", Tuple(tuple(self._slice(e.slice, st) for e in node.slice))),))
        if isinstance(base, Api) and base.name.rpartition(".")[2] in ("s_", "index_exp"):
            keys = self.keys_of(node, st)
            return keys[0] if len(keys) == 1 else Tuple(tuple(keys))
        if isinstance(base, (Class, Api)):
            for element in node.slice:
                if isinstance(element.slice, cst.Index):
                    self.eval(element.slice.value, st)
            return base
        keys = self.keys_of(node, st)
        found: list[tuple[Value, Guard]] = []
        key = keys[0] if len(keys) == 1 else Tuple(tuple(keys))
        holders = self.holders_of(base, key, st)
        place = self._key_of(node.value, st) if isinstance(base, Union) and base != union(holders) else None
        if place is not None:
            st.store[place] = union(holders)  # on goes who has not raised
        if isinstance(key, Const) and type(key.value) is int:
            self.holds_something(base, st)
        for inner, guard in holders:
            if len(keys) > 1 and self.is_mapping(inner):  # ``d[a, b]``: the pair is the key
                keys = [Tuple(tuple(keys))]
            own = self.own_method(inner, "__getitem__")
            if own is None:
                inner = self.as_container(inner)
            if own is not None:
                found.append((self.call_function(own, [key], {}, st, node), guard))
            elif isinstance(inner, Tensor) or (
                isinstance(inner, Opaque) and self.is_indexed(st, inner, base, keys)
            ):
                found.append((self.view_of(inner, keys, st, node), guard))
            elif isinstance(inner, Opaque) and any(self.is_mask(st, k) for k in keys):  # a table, a frame
                self.counted_by(keys, st, self.site(node))
                found.append((Opaque(self.fresh(node, st, "rows")), guard))
            elif len(keys) == 1 and isinstance(keys[0], Partial):  # a slice of a sequence
                sliced = _sliced(inner, keys[0], st)
                if sliced is not None:
                    found.append((sliced, guard))
                    continue
                if isinstance(inner, Container):  # what is cut off stands for the whole
                    sequences.moved(st, inner)
                if isinstance(inner, (Container, Opaque)):  # where its elements stand tells them apart
                    inner = replace(inner, part=self.picked(inner.part, keys, st))
                    found.append((inner, guard))
                else:
                    found.append((UNKNOWN, guard))
            elif len(keys) == 1:
                factory = st.store.get((inner.name, "@factory")) if isinstance(inner, Container) else None
                held = union((self._element(inner, key, st), way) for key, way in _one_of_few(keys[0], st))
                if keys[0] == Const(0) and isinstance(inner, Container) and inner.kind != "dict":
                    held = self.front(inner, held, st, node)
                if self.is_mapping(inner) and factory is None and self.stack[-1].tried:
                    there = self.contains(inner, keys[0], st)
                    self.sure_lookups += there is True
                    if there is False:
                        st.dead = True  # a handler goes on
                        return UNKNOWN
                if held == UNKNOWN and factory is not None:
                    held = self.make_default(factory, node, st)
                    for event in iterate(held) if not isinstance(keys[0], Const) else ():
                        if isinstance(event, Event):  # it may be there, and others may have recorded it
                            st.store[(event.name, "@given")] = PLAIN
                    self.store_element(inner, keys[0], held, st)
                found.append((held, guard))
            elif isinstance(inner, Opaque):
                found.append((Tensor(inner.name, part=self.picked(inner.part, keys, st)), guard))
            else:
                found.append((UNKNOWN, guard))
        return union(found) if found else UNKNOWN

    def front(self, container: Container, held: Value, st: State, node: cst.CSTNode) -> Value:
        """The first of a list or queue: until something else is there, it is the same one of those it may be."""
        if not isinstance(held, Union) or sequences.length(st, container) is not None:
            return held
        found = sequences.at_end(st, container, sequences.FRONT)
        if found is None:
            rows = type(held.alternatives[0][0])
            found = self.one_row(held, st, node, Tuple if rows is Tuple else Instance)
            if found is not held:
                sequences.set_end(st, container, sequences.FRONT, found)
        return found

    def is_indexed(self, st: State, value: Object, among: Value, keys: list[Value]) -> bool:
        """Whether what is subscripted is a tensor: what may as well be a list that is made here is another list.

        ``x if isinstance(x, list) else [x]``: the ``x`` that is subscripted is not the one that a kernel was given.
        No tensor takes a string: that is a mapping.
        """
        return (
            not self.is_named(keys)
            and self.is_tensor(st, value)
            and (value.name, "@collection") not in st.store
            and not any(isinstance(v, Container) for v in iterate(among))
        )

    def as_container(self, value: Value) -> Value:
        """An object whose class inherits from a container is one, too."""
        kind = (
            next((u.holds for u in self.ancestry(value.unit) if u.holds), "")
            if type(value) is Instance
            else ""
        )
        return Container(value.name, kind, part=value.part) if kind else value  # type: ignore[attr-defined]

    @staticmethod
    def is_mapping(value: Value) -> bool:
        """Whether it is a dict that is seen made."""
        return isinstance(value, Container) and value.kind == "dict"

    @staticmethod
    def is_named(keys: list[Value]) -> bool:
        """Whether a subscript is a string."""
        return len(keys) == 1 and isinstance(keys[0], Const) and isinstance(keys[0].value, str)

    def keys_of(self, node: cst.Subscript, st: State) -> list[Value]:
        """The indices between the brackets; one that is a tuple of slices (``numpy.s_``) stands for them."""
        keys = [self._slice(e.slice, st) for e in node.slice]
        if (
            len(keys) == 1
            and isinstance(keys[0], Tuple)
            and any(isinstance(k, Partial) for k in keys[0].items)
        ):
            return list(keys[0].items)
        return keys

    def _slice(self, part: cst.BaseSlice, st: State) -> Value:
        if isinstance(part, cst.Index):
            if isinstance(part.value, cst.Ellipsis):
                return parts.ELLIPSIS
            return self.bound(self.eval(part.value, st), part.value, st)
        bounds = []
        assert isinstance(part, cst.Slice)
        for bound in (part.lower, part.upper, part.step):
            value = NONE if bound is None else self.bound(self.eval(bound, st), bound, st)
            if bound is not None and any(isinstance(v, Tensor) for v in iterate(value)):
                self.read_on_host(st, value, self.site(bound), "a slice's bound")
            bounds.append(value)
        return Partial(SLICE, tuple(bounds), ())

    def view_of(self, base: Object, keys: list[Value], st: State, node: cst.CSTNode) -> Value:
        """A view, or a gathered copy, of a tensor."""
        numpy = isinstance(base, Tensor) and base.numpy
        if not numpy:
            self.picks_by_list(st, base, keys, self.site(node))
        gathered = any(
            isinstance(v, Tensor) or (isinstance(v, Opaque) and self.is_tensor(st, v))
            for key in keys
            for v in iterate(key)
        )
        if gathered and not numpy and any(self.is_mask(st, key) for key in keys):
            return self.masked(st, [base, *keys], node)
        if gathered and not numpy:
            indices = [v for key in keys for v in iterate(key) if isinstance(v, Object)]
            if self.place(st, base) == "device" and any(self.place(st, v) == "pageable" for v in indices):
                self.sync_in_capture(st, self.site(node), "indexing from pageable memory")
            if not self.is_host(st, base):  # where the indices lie tells nothing of what they pick
                brought = [v for v in indices if isinstance(v, Tensor) and self.is_host(st, v)]
                self.read_operands(st, list(brought), self.site(node), "indexing")
                keys = [key for key in keys if key not in brought]
            return self.operation(st, [base, *keys], self.site(node), "indexing")
        whole = self.view(st, base)
        return union(
            (
                replace(v, part=self.picked(v.part, picked, st)) if isinstance(v, Tensor) else v,
                guard & way,
            )
            for v, guard in alternatives(whole)
            for picked, way in _ways_to_pick(keys, st)
            if not guard.contradicts(way)
        )

    def counted_by(self, masks: list[Value], st: State, site: Site) -> None:
        """How many rows of whatever it is a mask on the device picks, the host waits for (TM-10)."""
        if any(self.place(st, v) == "device" for mask in masks for v in iterate(mask)):
            library = self.library_of(st, masks)
            self.read_operands(st, masks, site, "mask indexing")
            self.sync_in_capture(st, site, "mask indexing")
            self.synchronize_stream(st, None, library, site)

    def picked(self, part: Hashable | None, keys: list[Value], st: State) -> parts.Part | None:
        """The part of a part that a subscript picks."""
        return parts.pick(part, keys, lambda value: self.form_in_round(value, st))

    def picks_by_list(self, st: State, base: Object, keys: list[Value], site: Site) -> None:
        """A list as an index of a tensor on the device is copied there: from pageable memory, and the host waits."""
        lists = [key for key in keys if all(self._lists_numbers(v, st) for v in iterate(key))]
        if st.capture is not None and lists and self.place(st, base) in ("device", ""):
            assumed = Assumed.NOTHING if self.place(st, base) else Assumed.PLACE
            self.sync_in_capture(st, site, "indexing by a list", assumed)

    def _lists_numbers(self, value: Value, st: State) -> bool:
        """Whether this is a list of numbers; of slices a tuple is made before it is an index."""
        if not isinstance(value, Container) or value.kind != "list":
            return False
        held = [v for part in self.held(value, st) for v in iterate(part)]
        return not any(isinstance(v, Partial) and v.function == SLICE for v in held)


SLICE = Api("builtins.slice")

MOST_WAYS_TO_PICK = 3
"""On how many paths at most the bounds of a slice are kept apart."""
_KEEPS = ("list", "dict", "container", "queue")
"""What holds the same for each round that has put something into it."""


def _is_handle(name: Name, *kinds: str) -> bool:
    return type(name.site) is tuple and name.site[-1] in kinds


def _number_of(count: Value | None) -> Name | None:
    """What holds a number of which nothing else is known, be it made whole on the way; no length of something."""
    name = _measure_of(count)
    if name is None or isinstance(count, Opaque):
        return name
    return name if isinstance(name.site, str) and name.site.isidentifier() else None


def _measure_of(count: Value | None) -> Name | None:
    """What holds a number, or has it for its length, of which nothing else is known."""
    if isinstance(count, Opaque):
        return count.name if count.part is None else None
    atoms = count.form.atoms() if isinstance(count, Number) else set()
    atom = next(iter(atoms)) if len(atoms) == 1 else None
    if not (isinstance(count, Number) and isinstance(atom, Name)) or count.form != numbers.of_atom(atom):
        return None
    return atom


def _one_of_few(key: Value, st: State) -> list[tuple[Value, Guard]]:
    """An index, or each of the numbers that it may be."""
    choices = alternatives(key, st.path)
    if all(isinstance(v, Const) and type(v.value) in (int, bool) for v, _ in choices):
        return choices
    return [(key, ALWAYS)]


def _ways_to_pick(keys: list[Value], st: State) -> list[tuple[list[Value], Guard]]:
    """A subscript on each of the paths on which its numbers are known, where these are few."""
    found: list[tuple[list[Value], Guard]] = [([], ALWAYS)]
    for key in keys:
        ways: list[tuple[Value, Guard]] = [(key, ALWAYS)]
        if isinstance(key, Partial):
            bounds: list[tuple[tuple[Value, ...], Guard]] = [((), ALWAYS)]
            for bound in key.args:
                bounds = [
                    ((*b, v), g & h)
                    for b, g in bounds
                    for v, h in alternatives(bound, st.path)
                    if not g.contradicts(h)
                ]
            ways = [(replace(key, args=b), g) for b, g in bounds]
        found = [([*k, v], g & h) for k, g in found for v, h in ways if not g.contradicts(h)]
        if not 0 < len(found) <= MOST_WAYS_TO_PICK:
            return [(keys, ALWAYS)]
    exclusive = all(a.contradicts(b) for n, (_, a) in enumerate(found) for _, b in found[:n])
    return found if exclusive else [(keys, ALWAYS)]


def _sliced(base: Value, key: Partial, st: State) -> Tuple | None:
    """A slice of a list or tuple whose elements are known."""
    items = list(base.items) if isinstance(base, Tuple) else None
    if isinstance(base, Container):
        items = sequences.items(st, base)
    bounds: list[Any] = [b.value if isinstance(b, Const) else ... for b in key.args]
    if items is None or not all(b is None or type(b) is int for b in bounds) or 0 in bounds[2:]:
        return None
    return Tuple(tuple(items[slice(*bounds)]))
