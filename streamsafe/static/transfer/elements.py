"""Elements of containers: read and stored under a key, of one round of a loop or of all."""

from __future__ import annotations

from collections.abc import Hashable

import libcst as cst

from streamsafe.order.symbolic import ALWAYS, Guard
from streamsafe.static import element_keys, fields, parts, sequences
from streamsafe.static.state import State
from streamsafe.static.transfer.containers import PLACE, _one_of_few
from streamsafe.static.transfer.part import Part
from streamsafe.static.values import (
    ANY,
    EACH,
    NONE,
    PARAMETERS,
    UNKNOWN,
    Const,
    Container,
    Event,
    Instance,
    Name,
    Number,
    Object,
    Opaque,
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


class Elements(Part):
    """Reads and stores elements."""

    def each(self, iterable: Object, st: State, node: cst.CSTNode) -> Value:
        """The element of this iteration of a loop over the whole."""
        listed = str(iterable.name.site)
        if isinstance(iterable, Opaque) and listed.startswith("named_") and iterable.name.parent is not None:
            whole = Opaque(iterable.name.parent.child(listed.removeprefix("named_")))
            return Tuple((Opaque(self.objects.fresh(node, st, "key")), self.each(whole, st, node)))
        if listed == PARAMETERS:
            self.run.moved_parameters = True
        name = iterable.name.child(EACH)
        if not any(name in names for names in self.run.rounds):
            self.accesses.reach_picked(st, name)
        if self.run.rounds:
            self.run.rounds[-1].add(name)
        st.store.reach(name)
        self.effects.take_loop_waits(st, name)
        if listed == PARAMETERS and iterable.name.parent is not None:
            self.attributes.reach_weights(iterable.name.parent, name, st)
        if isinstance(iterable, Container) and iterable.kind == "dict":
            key = self.tensor_keys(iterable, st)
            if key is None:
                key = Opaque(self.objects.fresh(node, st, "key"))
                st.store[(key.name, fields.INDEX_OF)] = iterable
            return key
        if isinstance(iterable, Container):
            found = self.containers.held(iterable, st)
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
        return held or self.instances.typed_element(iterable, Opaque(iterable.name.child(EACH)), st)

    def tensor_keys(self, mapping: Container, st: State) -> Value | None:
        """The tensors that a dict is keyed by; None where its keys are something else."""
        keys = [k[1] for k in st.store.of(mapping.name) if type(k) is tuple and k[:1] == ("[]",)]
        tensors = [Opaque(k) for k in keys if isinstance(k, Name)]
        alike = len(tensors) == len(keys) > 0 and all(self.expressions.is_tensor(st, t) for t in tensors)
        return union((t, ALWAYS) for t in tensors) if alike else None

    def of_round(self, value: Value, node: cst.CSTNode, st: State) -> Value:
        """The element of this iteration is another part of the whole than that of any other iteration."""
        name = self.round_name(node, st)
        return element_keys.in_rounds(value, ((name.base(), name),))

    def round_name(self, node: cst.CSTNode, st: State) -> Name:
        """What stands for the round of a loop that begins here."""
        return self.objects.fresh(node, st, element_keys.ROUND)

    @staticmethod
    def one_of_many(value: Value) -> Value:
        """Of objects that were made alike one stands for the one that a loop has reached."""
        found = [v for v in iterate(value) if isinstance(v, Instance)]
        if len(found) < 2 or any(type(v) is not Instance for v in iterate(value)):
            return value
        alike = len({v.name.base() for v in found}) == 1
        return min(found, key=lambda v: v.name.age) if alike else value

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
                self.run.table.alike(name, first.name)
                return Stream(name, first.library)
            if isinstance(first, Event) and key != EACH:
                # what was recorded before it was put under a key that is not known
                given = type(key) is int and isinstance(container, Container) and container.kind == "dict"
                given = given and all((v.name, fields.RECORDED_ON) in st.store for v in iterate(value))  # type: ignore[attr-defined]
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
        if not isinstance(container, Container) or (container.name, fields.DEFAULT_FACTORY) in st.store:
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
            return True if self._is_awaited(self.containers.held(container, st)) else None
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
        found = [
            (self.element_of_one(inner, key, st), guard) for inner, guard in self.holders_of(base, key, st)
        ]
        return union(found) if found else UNKNOWN

    def holders_of(self, base: Value, key: Value, st: State) -> list[tuple[Value, Guard]]:
        """What may have been subscripted: a dict without that key would have raised."""
        choices = alternatives(base, st.path)
        if len(choices) < 2:
            return choices
        return [(v, g) for v, g in choices if self.contains(v, key, st) is not False] or choices

    def element_of_one(self, base: Value, key: Value, st: State) -> Value:
        """An element of one container or tensor, which is no union."""
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
            place = self.containers.place_of(key, st) if count is None else None
            if place is not None:
                rounds += element_keys.at_place(base, place)
            if known is not None:
                known = self.containers.with_unplaced(base, index, known, st)
                return element_keys.in_rounds(
                    self.stream_pools.one_of_every(known, index) if type(index) is int else known, rounds
                )
            if isinstance(index, int) and index < 0:
                length = st.store.one(base.name, fields.LENGTH)
                if length is not None and (base.name, length.value + index) in st.store:
                    return st.store[(base.name, length.value + index)]
                last = sequences.at_end(st, base, fields.LAST_ITEM) if index == -1 else None
                if last is not None:
                    return last
            # a count that goes down begins at a number that is not known
            up = self.run.counting and not self.run.counting_down
            if up and isinstance(index, int) and count is not None and index >= count > 0:
                st.dead = True  # the count that is not known ends before
                return UNKNOWN
            found = self.containers.held(base, st, index)
            if not found:
                return UNKNOWN
            name = ANY if element_keys.is_unsure(index) else element_keys.bare(index)
            whole = union((v, ALWAYS) for v in found)
            if isinstance(key, Opaque) and st.store.get((key.name, fields.INDEX_OF)) == base:
                name = EACH
            else:
                whole = self.stream_pools.one_of_every(whole, name)
            if type(name) is tuple:
                whole = element_keys.picked_by(whole, base, name)
            return element_keys.in_rounds(self.element_view(base, name, whole, st), rounds)
        if type(base) is Instance:
            base = self.subscripts.as_container(base)
            if isinstance(base, Container):
                return self.element_of_one(base, key, st)
        if isinstance(base, Instance) and base.unit.is_named_tuple:
            return self.element_of_one(Tuple(tuple(self.iterables.known_items(base, st) or ())), key, st)
        if isinstance(base, Opaque):
            index = element_keys.index_of(key)
            table = st.store.of(base.name)
            held = element_keys.under(table, index) or element_keys.refilled(table, index)
            if held is None and isinstance(key, Opaque) and st.store.get((key.name, fields.INDEX_OF)) == base:
                held = self._each_element(base, st)  # by the number that a loop gives it
            if held is None:
                held = self.instances.typed_element(
                    base, Opaque(base.name.child(element_keys.bare(index))), st
                )
            rounds = element_keys.rounds_of(key) + parts.rounds(base.part)
            place = self.containers.place_of(key, st) if index == ANY else None
            if place is not None:
                rounds += element_keys.at_place(base, place)
            return element_keys.in_rounds(held, rounds)
        return UNKNOWN

    def index_of(self, container: Value, key: Value, st: State, new: Value | None = None) -> Hashable | None:
        """What an element is remembered by.

        Of handles, a number that is not known stands for one place of all: who asks for the one that is there, or for
        none, means what is at that place of the other lists. Not so where one call or round computes several.
        """
        index = element_keys.key_of(key)
        if index is not None or not isinstance(key, Number) or not isinstance(container, Container):
            return index
        held = self.containers.held(container, st)
        given = held if new is None else [*held, new]
        if not given or not all(v == NONE or isinstance(v, (Event, Work)) for h in given for v in iterate(h)):
            return None
        said = st.store.one(container.name, fields.UNKNOWN_INDEX)
        names = key.form.names()
        if said is not None and said != key and not set(names).isdisjoint(said.form.names()):
            return None
        st.store[(container.name, fields.UNKNOWN_INDEX)] = key
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
            self.stream_pools.takes_turns(key)
        for inner in map(self.subscripts.as_container, iterate(base)):
            index = self.index_of(inner, key, st, new=value)
            if isinstance(inner, Container):
                sequences.moved(st, inner)
                if inner.kind == "list" and base is inner:
                    self.containers.holds_something(inner, st)
                if index == PLACE:
                    sequences.blur(st, inner)
                elif (inner.name, PLACE) in st.store:  # it may be the same place
                    held = st.store[(inner.name, PLACE)]
                    st.store[(inner.name, PLACE)] = union([(held, ALWAYS), (value, ALWAYS)])
                self.lifetimes.put_back(st, value, inner)
                self.containers.joins(inner, [value])
                known = sequences.keys(st, inner)
                if known is not None:
                    certain = not element_keys.is_unsure(index) and base is inner
                    sequences.set_keys(st, inner, known | {index} if certain else None)
                if index is not None and not element_keys.is_unsure(index):
                    replaced = st.store.get((inner.name, index), NONE)
                    if (
                        type(index) is tuple
                        and replaced != value
                        and self.containers.holds_works(replaced, st)
                    ):
                        # of another call: the number need not be the same
                        several = [st.store.get((inner.name, "*"), replaced), replaced]
                        st.store[(inner.name, "*")] = union((v, ALWAYS) for v in several)
                    self.containers.lose(st, replaced)
                    st.store[(inner.name, index)] = value
                elif index is not None:
                    old = st.store.get((inner.name, index))
                    st.store[(inner.name, index)] = union(
                        [(v, ALWAYS) for v in (old, value) if v is not None]
                    )
                else:
                    sequences.blur(st, inner)
                    self.containers.extend_container(st, inner, Tuple((value,)))
            elif isinstance(inner, Opaque):
                index = element_keys.index_of(key)
                self.containers.lose(st, st.store.get((inner.name, index), NONE))
                st.store[(inner.name, index)] = value
                self.memory.holds(inner.name)

    def _store_one_of(self, base: Value, few: list[tuple[Value, Guard]], value: Value, st: State) -> None:
        """``base[key] = value`` where the key is one of a few numbers: what stood at the others stays there."""
        for key in dict.fromkeys(key for key, _ in few):
            assert isinstance(key, Const)
            kept = [(self.element(base, key, st), guard) for other, guard in few if other != key]
            new = union([*((value, guard) for other, guard in few if other == key), *kept])
            self.store_element(base, key, new, st)
