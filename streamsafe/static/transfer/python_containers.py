"""Python's containers and iterators: constructors, ``itertools``, ``functools``, queues."""

from __future__ import annotations

from functools import partial

import libcst as cst

from streamsafe.order.symbolic import ALWAYS
from streamsafe.static import fields, numbers, parts, sequences
from streamsafe.static.state import State
from streamsafe.static.transfer.computed import LENGTH
from streamsafe.static.transfer.part import Part
from streamsafe.static.transfer.tensors import Call
from streamsafe.static.values import (
    NONE,
    PLAIN,
    UNKNOWN,
    UNTIL,
    Api,
    Const,
    Container,
    Generator,
    Instance,
    Number,
    Object,
    Opaque,
    Partial,
    Tensor,
    Tuple,
    Value,
    alternatives,
    iterate,
    under,
    union,
)


class PythonContainers(Part):
    """Verbs of Python's containers, iterators and queues."""

    def do_sort(self, call: Call, st: State) -> Value:
        """``sorted(xs, key=f)``: what its elements are compared by is read: of rows the first."""
        if not call.args:
            return UNKNOWN
        by = self.item_of(call.args[0], st, call.node)
        key = call.kwargs.get("key")
        if key is not None and key != NONE:
            by = self.calls.call_value(key, Call(call.node, call.site, [by]), st)
        for inner, guard in alternatives(by, st.path):
            while isinstance(inner, Tuple) and inner.items:
                inner = inner.items[0]
            self.tensors.read_on_host(st, under(inner, guard), call.site, "sorted()")
        return call.args[0]

    def do_iterated(self, call: Call, st: State) -> Value:
        """``tqdm(xs)``: what is shown while it is iterated over."""
        iterable = call.get(0, "iterable") or call.get(0, "sequence") or UNKNOWN
        if all(isinstance(v, (Container, Tuple, Partial, Generator)) for v in iterate(iterable)):
            return iterable
        return self.unseen.unmodelled(Api(call.text), call, st)

    def do_make_slice(self, call: Call, st: State) -> Value:
        """``slice(start, stop, step)``."""
        bounds = call.args if len(call.args) > 1 else [NONE, *call.args]
        return Partial(Api("builtins.slice"), tuple([*bounds, NONE][:3]), ())

    def do_iterator(self, call: Call, st: State) -> Value:
        """``iter(x)``: a copy of what is known; ``iter(f, last)`` calls a function until it gives that."""
        value = call.args[0] if call.args else UNKNOWN
        if len(call.args) == 2:
            return Partial(UNTIL, tuple(call.args), ())
        known = self.iterables.known_items(value, st)
        if known is None or len(known) > sequences.LIMIT:
            return value
        made = Container(self.objects.fresh(call.node, st, "iterator"), "iterator")
        self.run.closed.add(made.name)
        sequences.put(st, made, known)
        return made

    def do_length(self, call: Call, st: State) -> Value:
        """``len(x)``, where it is known."""
        value = call.args[0] if call.args else UNKNOWN
        own = self.class_members.own_method(value, "__len__")
        if own is not None:
            return self.functions.call_function(own, [], {}, st, call.node)
        count = len(value.items) if isinstance(value, Tuple) else None
        if isinstance(value, Container):
            count = sequences.length(st, value)
        if count is None and isinstance(value, (Tensor, Opaque)) and self.expressions.is_tensor(st, value):
            return self.stream_pools.sized(
                self.computed.size_of(value, Call(call.node, call.site, [Const(0)]), st), st
            )
        if count is None and (known := self.computed.length_of(value, st)) != UNKNOWN:
            return self.stream_pools.sized(known, st)
        if count is None and isinstance(value, Container) and value.kind not in ("queue", "channel"):
            counted = st.store.get((value.name, fields.SYMBOLIC_LENGTH))
            if counted is None:
                length = self.objects.fresh(call.node, st, LENGTH)
                self.run.lengths[length.base()] = value.name.base()
                counted = Number(..., numbers.of_atom(length))
                if value.kind == "list":
                    st.store[(value.name, fields.SYMBOLIC_LENGTH)] = counted
            return counted
        return PLAIN if count is None else Const(count)

    def do_truth(self, call: Call, st: State) -> Value:
        """``bool(x)``: of a container whether there is anything in it, whatever that is."""
        value = call.args[0] if call.args else UNKNOWN
        if all(isinstance(v, (Container, Tuple)) for v in iterate(value)):
            return self.do_length(call, st)
        return self.library.do_host_scalar(call, st)

    def do_gather(self, call: Call, st: State) -> Value:
        """``asyncio.gather(*coroutines)``: the list of what they return."""
        return Tuple(tuple(call.args)) if not call.starred else UNKNOWN

    def do_chain(self, call: Call, st: State) -> Value:
        """``itertools.chain(first, second)``."""
        given: list[Value] | None = list(call.args)
        if call.text.endswith("from_iterable"):
            given = self.iterables.known_items(call.args[0], st) if call.args else None
        parts_ = [self.iterables.known_items(value, st) for value in given or ()]
        if given is None or call.starred or any(part is None for part in parts_):
            return call.args[0] if call.args else UNKNOWN
        joined = Tuple(tuple(item for part in parts_ for item in part or ()))
        return self.do_iterator(Call(call.node, call.site, [joined]), st)

    def do_cycle(self, call: Call, st: State) -> Value:
        """``itertools.cycle(xs)``: its elements one after another, and again."""
        known = self.iterables.known_items(call.args[0], st) if call.args else None
        if not known or len(known) > sequences.FEW:
            return call.args[0] if call.args else UNKNOWN
        made = Container(self.objects.fresh(call.node, st, "cycle"), "cycle")
        self.run.closed.add(made.name)
        sequences.put(st, made, known)
        return made

    def turned(self, cycle: Container, st: State) -> Value:
        """The next element of a cycle, which comes last from now on."""
        known = sequences.items(st, cycle)
        if not known:
            return self.containers.any_element(cycle, st)
        sequences.put(st, cycle, [*known[1:], known[0]])
        return known[0]

    def do_reduce(self, call: Call, st: State) -> Value:
        """``functools.reduce(f, xs, first)``."""
        if len(call.args) < 2:
            return UNKNOWN
        items = self.iterables.known_items(call.args[1], st)
        items = [self.item_of(call.args[1], st, call.node)] if items is None else items
        result, *rest = [*call.args[2:3], *items] or [UNKNOWN]
        for item in rest:
            result = self.calls.call_value(call.args[0], Call(call.node, call.site, [result, item]), st)
        return result

    def do_chained(self, call: Call, st: State) -> Value:
        """``ChainMap(first, second)``: of what both hold it gives that of the first."""
        made = Container(self.objects.fresh(call.node, st, "dict"), "dict")
        self.run.closed.add(made.name)
        sequences.set_keys(st, made, ())
        for mapping in reversed(call.args):
            self.add_items(made, mapping, st)
        return made

    def do_from_keys(self, call: Call, st: State) -> Value:
        """``dict.fromkeys(keys, value)``."""
        keys = self.iterables.known_items(call.args[0], st) if call.args else None
        made = Container(self.objects.fresh(call.node, st, "dict"), "dict")
        self.run.closed.add(made.name)
        sequences.set_keys(st, made, ())
        for key in keys if keys is not None else [UNKNOWN]:
            self.elements.store_element(made, key, call.args[1] if len(call.args) > 1 else NONE, st)
        return made

    def do_push(self, call: Call, st: State) -> Value:
        """``heappush(heap, item)``."""
        if len(call.args) > 1:
            for inner in iterate(call.args[0]):
                if isinstance(inner, Container):
                    sequences.blur(st, inner)
            self.containers.extend_container(st, call.args[0], Tuple((call.args[1],)))
        return NONE

    def do_take_any(self, call: Call, st: State) -> Value:
        """``heappop(heap)``: which it is only the order of their keys says."""
        return self.containers.any_element(call.args[0], st) if call.args else UNKNOWN

    def do_make_container(self, call: Call, st: State) -> Value:
        """A list, set or deque."""
        if call.args and isinstance(call.args[0], Opaque) and call.args[0].name.site in ("shape", "size()"):
            return call.args[0]
        name = self.objects.fresh(call.node, st, "container")
        self.run.closed.add(name)
        made = Container(name, "list")
        if call.args:
            value = call.args[0]
            known = self.iterables.known_items(value, st)
            if any(isinstance(v, Tensor) and v.numpy for v in iterate(value)):
                self.tensors.read_on_host(st, value, call.site, f"{call.text.rpartition('.')[2]}()")
            if isinstance(value, Generator) or self.class_members.own_method(value, "__iter__"):
                return self.drained(value, st, call.node)
            if known is None:
                self.containers.extend_container(st, made, Tuple((self.item_of(value, st, call.node),)))
                return made
            sequences.put(st, made, known)
            if len(call.args) > 1 or call.kwargs:
                st.store.mark(made.name, fields.MAXLEN)
            return made
        if not call.kwargs:
            sequences.put(st, made, [])
        return made

    def drained(self, value: Value, st: State, node: cst.CSTNode) -> Container:
        """What a generator, or an object of the file, gives that is iterated to its end now."""
        made = Container(self.objects.fresh(node, st, "drained"), "list")
        self.run.closed.add(made.name)
        sequences.put(st, made, [])
        site = self.call_stack.site(node)

        def keep(item: Value, state: State) -> None:
            if state.graphs:
                self.graph_memory.keep_output(state, made, self.containers.held(made, state), item, site)
            self.containers.extend_container(state, made, Tuple((item,)))

        self.iteration.iterate_over(value, st, node, keep)
        return made

    def item_of(self, value: Value, st: State, node: cst.CSTNode) -> Value:
        """Some element of any iterable."""
        choices = alternatives(value, st.path)
        if len(choices) > 1:
            return union((self.item_of(v, st, node), guard) for v, guard in choices)
        if isinstance(value, Partial):
            return self.iterables.next_of_call(value, st, node)
        if isinstance(value, Tensor):
            return Tensor(value.name, numpy=value.numpy, part=parts.all_of(value.part))
        return self.containers.any_element(value, st)

    def do_make_tuple(self, call: Call, st: State) -> Value:
        """``tuple(x)``."""
        if call.args and isinstance(call.args[0], (Tuple, Container)):
            return call.args[0]
        return self.do_make_container(call, st)

    def do_make_mapping(self, call: Call, st: State) -> Value:
        """A dict."""
        given = call.args[0] if call.args else None
        if isinstance(given, (Opaque, Container)) and not self.gives_pairs(given) and not call.kwargs:
            return given
        made = Container(self.objects.fresh(call.node, st, "dict"), "dict")
        self.run.closed.add(made.name)
        sequences.set_keys(st, made, ())
        if given is not None and self.gives_pairs(given) and self.iterables.known_items(given, st) is None:
            sequences.set_keys(st, made, None)

            def put(pair: Value, state: State) -> None:
                key, value = (self.elements.element(pair, Const(n), state) for n in (0, 1))
                self.elements.store_element(made, key, value, state)

            self.iteration.iterate_over(given, st, call.node, put)
        elif given is not None:
            self.add_items(made, given, st)
        for key, value in call.kwargs.items():
            self.elements.store_element(made, Const(key), value, st)
        return made

    def add_items(self, mapping: Container, added: Value, st: State) -> None:
        """What another mapping, or pairs of keys and values, hold joins a dict."""
        if isinstance(added, Container) and added.kind == "dict":
            new, known = sequences.keys(st, added), sequences.keys(st, mapping)
            held = {key: value for key, value in st.store.of(added.name).items() if key in (new or ())}
            if new is not None and len(held) == len(new):
                for key, value in held.items():
                    self.containers.lose(st, st.store.get((mapping.name, key), NONE))
                    st.store[(mapping.name, key)] = value
                sequences.set_keys(st, mapping, None if known is None else known | new)
                return
        pairs = self.iterables.known_items(added, st)
        if pairs is not None and all(isinstance(p, Tuple) and len(p.items) == 2 for p in pairs):
            for pair in pairs:
                key, value = pair.items  # type: ignore[attr-defined]
                self.elements.store_element(mapping, key, value, st)
            return
        sequences.set_keys(st, mapping, None)
        self.containers.extend_container(st, mapping, added)

    @staticmethod
    def gives_pairs(value: Value) -> bool:
        """Whether what a dict is made of is iterated for its keys and values, and is no mapping."""
        if isinstance(value, Opaque):
            return str(value.name.site).startswith("named_") and value.name.parent is not None
        return isinstance(value, (Partial, Generator)) or (
            isinstance(value, Container) and value.kind != "dict"
        )

    def do_make_defaultdict(self, call: Call, st: State) -> Value:
        """``defaultdict(factory)``: what is asked for and not there is made."""
        made = self.do_make_mapping(Call(call.node, call.site, call.args[1:], call.kwargs), st)
        if isinstance(made, Container) and call.args and call.args[0] != NONE:
            st.store[(made.name, fields.DEFAULT_FACTORY)] = call.args[0]
        return made

    def make_default(self, factory: Value, node: cst.CSTNode, st: State) -> Value:
        """What a ``defaultdict`` makes for a key that is not there."""
        return self.calls.call_value(factory, Call(node, self.call_stack.site(node)), st)

    def do_make_channel(self, call: Call, st: State) -> Value:
        """A queue between tasks, all of one thread."""
        return self.do_make_queue(call, st, "channel")

    def do_make_queue(self, call: Call, st: State, kind: str = "queue") -> Value:
        """A queue hands what it is given to another thread."""
        name = self.objects.fresh(call.node, st, "queue")
        self.run.closed.add(name)
        sequences.put(st, Container(name, kind), [])
        return Container(name, kind)

    def do_next_item(self, call: Call, st: State) -> Value:
        """``next(it)``; of several iterators each gives one of its own."""
        choices = alternatives(call.args[0] if call.args else UNKNOWN, st.path)
        if len(choices) == 1:
            return self._next_of(choices[0][0], call, st)
        return self.calls.each_way([(v, g, partial(self._next_of, v, call)) for v, g in choices], st)

    def _next_of(self, value: Value, call: Call, st: State) -> Value:
        if isinstance(value, Generator):
            item = self.comprehensions.advance(value, st)
            if item is None:
                st.dead = st.dead or len(call.args) < 2
                item = call.args[1] if len(call.args) > 1 else UNKNOWN
            return item
        own = self.class_members.own_method(value, "__next__")
        if own is not None:
            return self.functions.call_function(own, [], {}, st, call.node)
        if isinstance(value, (Opaque, Instance)):  # what gives an object's elements may not be seen
            return self._next_unknown(
                value, Opaque(self.objects.fresh(call.node, st, "next")), call.args[1:], st
            )
        if isinstance(value, Container) and value.kind == "cycle":
            return self.turned(value, st)
        if isinstance(value, Container) and value.kind == "iterator":
            known = sequences.items(st, value)
            if known:
                sequences.put(st, value, known[1:])
                return known[0]
            if known is not None and len(call.args) > 1:
                return call.args[1]
            st.dead = st.dead or known is not None
        found = self.containers.any_element(value, st)
        return union([(found, ALWAYS), (call.args[1], ALWAYS)]) if len(call.args) > 1 else found

    def _next_unknown(self, iterable: Object, item: Opaque, default: list[Value], st: State) -> Value:
        """The next element of what is not known: of the type that is annotated, where it is not the default."""
        typed = self.instances.typed_element(iterable, item, st)
        if typed is item or default != [NONE]:
            return item
        outcomes = self.conditions.condition(("none", item.name), (item.name,), st, True)
        return union((NONE if none else typed, guard) for none, guard in outcomes)
