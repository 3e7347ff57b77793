"""Methods of containers: elements are added, taken out and looked up."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace
from functools import partial

import libcst as cst

from streamsafe.order.edges import Edge
from streamsafe.order.symbolic import HOST, Made
from streamsafe.static import element_keys, fields, sequences
from streamsafe.static.owners import Place
from streamsafe.static.state import State
from streamsafe.static.transfer.methods import _MODULE_ITSELF
from streamsafe.static.transfer.part import Part
from streamsafe.static.transfer.tensors import Call
from streamsafe.static.values import (
    NONE,
    UNKNOWN,
    Api,
    Const,
    Container,
    Instance,
    Name,
    Opaque,
    Partial,
    Tensor,
    Tuple,
    Value,
    alternatives,
    iterate,
    rows,
    union,
)

_MOVING = frozenset("appendleft insert extendleft remove reverse sort rotate discard clear".split())
"""Methods of lists and queues after which another element may be the first."""


class ContainerMethods(Part):
    """Methods of containers."""

    def container_method(self, receiver: Container, name: str, call: Call, st: State) -> Value:
        """A method of a list, a dict, a set or a queue."""
        if receiver.kind == "variable":
            if name == "set" and call.args:
                st.store[(receiver.name, "value")] = call.args[0]
            return (
                st.store.get((receiver.name, "value"), *call.args[:1]) or UNKNOWN
                if name == "get"
                else UNKNOWN
            )
        if receiver.kind in ("queue", "channel"):
            if name in ("put", "put_nowait"):
                self.containers.extend_container(st, receiver, Tuple(tuple(call.args[:1])))
                self.threads.signal_others(st)
                alone = receiver.kind == "queue" and not self.threads.carries_event(call.args, st)
                if alone and not self.threads.waits_first(call.args, call, st):
                    self.copies.pass_to_host(st, call.args, call.site, "put()")
                if self.run.calling is not None:  # who takes it out is ordered after that stream
                    st.order.obey(
                        [
                            Edge(receiver.name, s.name)
                            for s, _ in self.effects.possible_streams(st, "cupy", self.run.calling)
                        ]
                    )
                return NONE
            if name in ("get", "get_nowait"):
                count = sequences.length(st, receiver)
                if (
                    count is None
                    and name == "get"
                    and (self.run.threads or self.run.beside)
                    and not self.run.taking
                ):
                    self.threads.blocks(st, call)  # some time it has taken all that there was
                    self.run.blocked.append(st.copy())
                if count == 0:
                    self.threads.blocks(st, call)
                    if self.run.threads or self.run.beside:
                        self.run.blocked.append(st.copy())  # until somebody brings it
                        st.dead = True
                        return UNKNOWN
                st.order.obey([Edge(HOST, receiver.name)])
                taken = self.take(receiver, 0, st)
                if count is None:
                    taken = self._not_taken_before(taken, call, st)
                self.threads.produced_next(st, taken)
                return taken
            if name == "join":
                self.threads.blocks(st, call)
                self.threads.learn_from_threads(st)
                return NONE
            return UNKNOWN
        at_front = name in ("appendleft", "extendleft") or (name == "insert" and call.args[:1] == [Const(0)])
        last = sequences.ends(st, receiver)[fields.LAST_ITEM] if at_front else None
        if name in _MOVING:
            sequences.moved(st, receiver)
        if name in ("append", "add", "appendleft", "insert", "put", "push"):
            known = sequences.items(st, receiver)
            if name not in ("append", "put", "push") and not (at_front and known is not None):
                sequences.blur(st, receiver)
            for value in call.args[-1:]:
                if not self.keeps_alive(call.node, st):
                    self.graph_memory.keep_output(
                        st, receiver, self.containers.held(receiver, st), value, call.site
                    )
                    continue
                for kept, _ in self.memory.tensors_in(st, value):
                    st.store.mark(kept.name, fields.KEPT_IN_CONTAINER)
            self.containers.extend_container(st, receiver, Tuple(tuple(map(rows, call.args[-1:]))))
            grown = sequences.items(st, receiver)
            if at_front and grown is not None:
                sequences.put(st, receiver, [*grown[-1:], *grown[:-1]])
            elif (
                name in _MOVING
            ):  # what was last stays so; what is first is known only of one that was put there
                sequences.scatter(st, receiver)
                sequences.set_end(st, receiver, fields.FIRST_ITEM, rows(call.args[-1]) if at_front else None)
                sequences.set_end(st, receiver, fields.LAST_ITEM, last)
            return NONE
        if (
            name == "rotate"
            and call.args
            and isinstance(call.args[0], Const)
            and type(call.args[0].value) is int
        ):
            turned = sequences.items(st, receiver)
            if turned:
                by = -call.args[0].value % len(turned)
                sequences.put(st, receiver, [*turned[by:], *turned[:by]])
                return NONE
        if name in ("remove", "reverse", "sort", "rotate", "discard"):
            sequences.blur(st, receiver)
            return NONE
        if name in ("setdefault", "pop", "popitem", "clear"):
            sequences.set_keys(st, receiver, () if name == "clear" and receiver.kind == "dict" else None)
        if name == "update" and receiver.kind == "dict":
            for value in call.args:
                self.graph_memory.rebound_elements(st, receiver, value, call.site, every=True)
                self.python_containers.add_items(receiver, value, st)
            for key, value in call.kwargs.items():
                self.elements.store_element(receiver, Const(key), value, st)
            return NONE
        if name in ("extend", "update", "extendleft"):
            before = sequences.length(st, receiver) or 0
            for value in call.args:
                self.containers.extend_container(st, receiver, value)
            for key, value in call.kwargs.items():
                self.elements.store_element(receiver, Const(key), value, st)
            grown = sequences.items(st, receiver) if at_front else None
            if grown is not None:
                sequences.put(st, receiver, [*reversed(grown[before:]), *grown[:before]])
            elif at_front:
                sequences.blur(st, receiver)
                sequences.scatter(st, receiver)
                sequences.set_end(st, receiver, fields.LAST_ITEM, last)
            return NONE
        if name in ("pop", "popleft", "popitem"):
            st.store.mark(receiver.name, fields.ITEMS_REMOVED)
        if name in ("pop", "popleft", "popitem"):
            position = -1 if name == "pop" and not call.args else 0 if name == "popleft" else None
            if call.args and isinstance(call.args[0], Const) and type(call.args[0].value) is int:
                position = call.args[0].value
            if receiver.kind != "dict":
                value = self.take(receiver, position, st)
                self._taken_once(receiver, value, call.node, st)
                self.containers.lose(st, value)
                return value
            index = call.args[0] if call.args else UNKNOWN
            value = self.elements.element_of_one(receiver, index, st)
            self.lifetimes.taken_out(st, receiver, value)
            if name == "pop" and receiver.kind == "dict":
                self.drop_element(receiver, index, st)
            self.containers.lose(st, value)
            return Tuple((UNKNOWN, value)) if name == "popitem" else value
        if name in ("clear",):
            for value in self.containers.held(receiver, st):
                self.containers.lose(st, value)
            for held in [k for k in st.store.of(receiver.name) if type(k) is not fields.Field]:
                del st.store[(receiver.name, held)]
            if receiver.kind != "dict":
                st.store[(receiver.name, fields.LENGTH)] = Const(0)
                sequences.set_some(st, receiver, Const(False))
            return NONE
        if name == "items":
            return Partial(Api("builtins.items"), (replace(receiver, kind="list"),), ())
        if name == "values":
            return replace(receiver, kind="list")
        if name == "copy":
            return self.containers.duplicate(receiver, call.node, st)
        if name == "keys":
            return Opaque(receiver.name.child("keys()"))
        if self.torch_modules.is_row_of_modules(receiver, st):
            itself = name in _MODULE_ITSELF or name in ("children", "modules")
            return receiver if itself else Opaque(receiver.name.child(f"{name}()"))
        if name in ("get", "setdefault") and call.args:
            found = self.elements.element_of_one(receiver, call.args[0], st)
            if (
                found == UNKNOWN
                and len(call.args) < 2
                and self.elements.contains(receiver, call.args[0], st) is False
            ):
                return NONE
            if found != UNKNOWN or len(call.args) < 2:
                return found
            if name == "setdefault":
                self.elements.store_element(receiver, call.args[0], call.args[1], st)
            return call.args[1]
        return UNKNOWN

    def keeps_alive(self, node: cst.CSTNode, st: State) -> bool:
        """Whether what is appended to is never read."""
        place = self._place(node, st)
        return place is not None and self.run.file.owners.is_unread(place)

    def _place(self, node: cst.CSTNode, st: State) -> Place | None:
        """What the object whose method is called is kept in."""
        function = node.func if isinstance(node, cst.Call) else None
        written = function.value if isinstance(function, cst.Attribute) else None
        activation = self.call_stack.activation
        qualname = activation.unit.qualname if activation.unit is not None else ""
        own = st.store.get((activation.frame, "self"))
        owner = own.unit.qualname if isinstance(own, Instance) else self._class_around(qualname)
        if isinstance(written, cst.Name):
            return self.run.file.owners.place(written.value, None, owner, qualname)
        if isinstance(written, cst.Attribute):
            base = written.value.value if isinstance(written.value, cst.Name) else ""
            return self.run.file.owners.place(written.attr.value, base, owner, qualname)
        return None

    def _class_around(self, qualname: str) -> str:
        top = qualname.partition(".")[0]
        return top if top in self.run.file.classes else ""

    def take(self, container: Container, position: int | None, st: State) -> Value:
        """An element leaves a list or a queue; some element where its position is not known.

        From an empty one none can be taken: of a list that raises, at a queue it waits.
        """
        there = sequences.some(st, container)
        if len(there) == 2 and there[0][0] is not there[1][0]:
            st.assume(next(guard for some, guard in there if some))
        known = sequences.items(st, container)
        first = sequences.at_end(st, container, fields.FIRST_ITEM) if position == 0 else None
        last = sequences.at_end(st, container, fields.LAST_ITEM)
        sequences.moved(st, container)
        if known is None or position is None or not -len(known) <= position < len(known):
            value = first or (last if position == -1 else None) or self.containers.any_element(container, st)
            sequences.blur(st, container)
            if position == 0:
                sequences.set_end(st, container, fields.LAST_ITEM, last)
            self.lifetimes.taken_out(st, container, value)
            return value
        value = known.pop(position)
        sequences.put(st, container, known)
        return value

    def _not_taken_before(self, taken: Value, call: Call, st: State) -> Value:
        """What a queue of any length gives: an object of which nothing is known is another one each time."""

        def is_untouched(value: Value) -> bool:
            if type(value) is not Opaque or any(True for _ in st.store.of(value.name)):
                return False
            return not any(isinstance(b, Name) and value.name in b.chain() for b in st.order.made)

        if not any(map(is_untouched, iterate(taken))):
            return taken
        another = Opaque(self.objects.fresh(call.node, st, "taken"))
        return union((another if is_untouched(v) else v, g) for v, g in alternatives(taken, st.path))

    def _taken_once(self, container: Container, value: Value, node: cst.CSTNode, st: State) -> None:
        """What is taken out of a list to which nobody adds was not taken before: nothing was done to it since."""
        place = self._place(node, st)
        if place is None or not self.run.file.owners.is_used_up(place):
            return
        for target in (v for v in iterate(value) if isinstance(v, Tensor)):
            begun = st.store.get((container.name, ("begun", target.name)))
            accesses = st.order.accesses(target.name)
            if begun is None:
                sites = frozenset(made.site for made in accesses)
                st.store[(container.name, ("begun", target.name))] = Const(sites)
            elif isinstance(begun, Const):
                st.order.retain(partial(_is_begun, target.name, begun.value))

    def drop_element(self, container: Container, key: Value, st: State) -> None:
        """An element leaves a dict."""
        index = element_keys.key_of(key)
        if not element_keys.is_unsure(index):
            st.store.pop((container.name, index), None)


def _is_begun(buffer: Name, sites: frozenset[Hashable], made: Made, _: object) -> bool:
    """Whether an access is to other memory than this, or stands where this was begun with."""
    return made.buffer != buffer or made.site in sites
