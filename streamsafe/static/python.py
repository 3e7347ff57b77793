"""What Python's own functions and types do.

One file: it has one short method for each builtin function or type.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import libcst as cst

from streamsafe.order.symbolic import ALWAYS, Guard
from streamsafe.static import apis, element_keys, numbers, parts, sequences
from streamsafe.static.computed import LENGTH
from streamsafe.static.gradients import Gradients
from streamsafe.static.source import ClassUnit
from streamsafe.static.state import State
from streamsafe.static.tensors import Call
from streamsafe.static.values import (
    NONE,
    PLAIN,
    UNKNOWN,
    UNTIL,
    Api,
    Class,
    Const,
    Container,
    Context,
    Event,
    Function,
    Generator,
    Instance,
    Name,
    Number,
    Object,
    Opaque,
    Partial,
    Span,
    Stream,
    Super,
    Tensor,
    Tuple,
    Union,
    Value,
    Work,
    alternatives,
    iterate,
    under,
    union,
)

_CONVERSIONS = {
    "float": ("__float__", "__index__"),
    "int": ("__int__", "__index__"),
    "bool": ("__bool__", "__len__"),
    "str": ("__str__", "__repr__"),
    "print": ("__str__", "__repr__"),
    "format": ("__format__", "__str__", "__repr__"),
    "repr": ("__repr__",),
    "bytes": ("__bytes__",),
    "asarray": ("__array__",),
    "array": ("__array__",),
}
"""The methods of an object that a function calls, of which it takes the first that there is."""


class Builtins(Gradients):
    """What Python's own functions and types do."""

    supers: dict[tuple[ClassUnit, ClassUnit], ClassUnit | None]

    # declared here, implemented further down the chain

    def unmodelled(self, function: Value, call: Call, st: State, name: str = "") -> Value: ...

    def advance(self, generator: Generator, st: State, sent: Value = NONE) -> Value | None: ...

    def do_host_scalar(self, call: Call, st: State) -> Value: ...

    def next_of_call(self, iterable: Partial, st: State, node: cst.CSTNode) -> Value: ...

    def iterate_over(
        self,
        iterable: Value,
        st: State,
        node: cst.CSTNode,
        body: Callable[[Value, State], object],
        *,
        at_least_once: bool = False,
    ) -> None: ...

    def call_value(self, function: Value, call: Call, st: State) -> Value: ...

    def each_way(self, ways: list[tuple[Value, Guard, Callable[[State], Value]]], st: State) -> Value: ...

    def call_method(self, receiver: Value, name: str, call: Call, st: State) -> Value: ...

    # -- plain things --------------------------------------------------------------------------------------------

    def do_nothing(self, call: Call, st: State) -> Value:
        """No stream operation."""
        return NONE

    def do_plain(self, call: Call, st: State) -> Value:
        """A number, a string, a flag."""
        return PLAIN

    def do_yes(self, call: Call, st: State) -> Value:
        """True wherever stream code runs."""
        return Const(True)

    def do_no(self, call: Call, st: State) -> Value:
        """False wherever stream code runs."""
        return Const(False)

    def do_pass_through(self, call: Call, st: State) -> Value:
        """Gives back what it is given, or something that holds it."""
        return call.args[0] if call.args else UNKNOWN

    def do_deep_copy(self, call: Call, st: State) -> Value:
        """``copy.deepcopy(x)``: another object, and of a tensor another memory."""
        source = call.args[0] if call.args else UNKNOWN
        if isinstance(source, Tensor):
            return self.operation(st, [source], call.site, "deepcopy()")
        if isinstance(source, Opaque) and not self.is_plain(source.name):
            return Opaque(self.fresh(call.node, st, "copy"))
        return source

    def do_sort(self, call: Call, st: State) -> Value:
        """``sorted(xs, key=f)``: what its elements are compared by is read: of rows the first."""
        if not call.args:
            return UNKNOWN
        by = self.item_of(call.args[0], st, call.node)
        key = call.kwargs.get("key")
        if key is not None and key != NONE:
            by = self.call_value(key, Call(call.node, call.site, [by]), st)
        for inner, guard in alternatives(by, st.path):
            while isinstance(inner, Tuple) and inner.items:
                inner = inner.items[0]
            self.read_on_host(st, under(inner, guard), call.site, "sorted()")
        return call.args[0]

    def do_unbound_method(self, call: Call, st: State) -> Value:
        """``torch.Tensor.copy_(x, y)`` is ``x.copy_(y)``."""
        if not call.args:
            return UNKNOWN
        owner, _, name = call.text.rpartition(".")
        for inner in iterate(call.args[0]) if owner.endswith(("Tensor", "ndarray")) else ():
            if isinstance(inner, Opaque):
                self.mark_tensor(st, inner)
        bound = Call(call.node, call.site, call.args[1:], call.kwargs, name, call.starred)
        return self.call_method(call.args[0], name, bound, st)

    def do_logger(self, call: Call, st: State) -> Value:
        """``logging.getLogger(name)``: what it is given it writes down, as the module's functions do."""
        return Api("logging")

    def do_cast(self, call: Call, st: State) -> Value:
        """``typing.cast``."""
        return call.args[1] if len(call.args) > 1 else UNKNOWN

    def do_iterated(self, call: Call, st: State) -> Value:
        """``tqdm(xs)``: what is shown while it is iterated over."""
        iterable = call.get(0, "iterable") or call.get(0, "sequence") or UNKNOWN
        if all(isinstance(v, (Container, Tuple, Partial, Generator)) for v in iterate(iterable)):
            return iterable
        return self.unmodelled(Api(call.text), call, st)

    def do_environment(self, call: Call, st: State) -> Value:
        """``os.environ.get(name)``: not known, but the same each time."""
        name = call.get(0, "key")
        if not isinstance(name, Const):
            return PLAIN
        variable = Name("an environment variable", (name.value,))
        self.plain.add(variable)
        return Opaque(variable)

    def do_lazily(self, call: Call, st: State) -> Value:
        """An iterable for a later loop; how far a range goes is asked now."""
        for value in call.args if call.text.endswith("range") else ():
            if any(isinstance(v, Tensor) for v in iterate(value)):
                self.read_on_host(st, value, call.site, "range()")
            self.plain.update(
                v.name.base() for v in iterate(value) if isinstance(v, Opaque) and not self.is_tensor(st, v)
            )
        args = tuple(self.sized(value, st) for value in call.args)
        return Partial(Api(call.text), args, tuple(call.kwargs.items()))

    def do_identity(self, call: Call, st: State) -> Value:
        """``id(x)``: a number that stands for the object, another one in each round that has its own."""
        value = call.args[0] if call.args else UNKNOWN
        if not isinstance(value, Object):
            return PLAIN
        name = value.name.child("identity")
        self.plain.add(name.base())
        rounds = parts.rounds(value.part) if isinstance(value, Span) else ()
        made = value.name.root().newest()
        if self.rounds and made in self.rounds[-1]:
            rounds = (*rounds, (made.base(), made))
        return element_keys.in_rounds(Opaque(name), rounds)

    def do_make_slice(self, call: Call, st: State) -> Value:
        """``slice(start, stop, step)``."""
        bounds = call.args if len(call.args) > 1 else [NONE, *call.args]
        return Partial(Api("builtins.slice"), tuple([*bounds, NONE][:3]), ())

    def do_iterator(self, call: Call, st: State) -> Value:
        """``iter(x)``: a copy of what is known; ``iter(f, last)`` calls a function until it gives that."""
        value = call.args[0] if call.args else UNKNOWN
        if len(call.args) == 2:
            return Partial(UNTIL, tuple(call.args), ())
        known = self.known_items(value, st)
        if known is None or len(known) > sequences.LIMIT:
            return value
        made = Container(self.fresh(call.node, st, "iterator"), "iterator")
        self.closed.add(made.name)
        sequences.put(st, made, known)
        return made

    def do_length(self, call: Call, st: State) -> Value:
        """``len(x)``, where it is known."""
        value = call.args[0] if call.args else UNKNOWN
        own = self.own_method(value, "__len__")
        if own is not None:
            return self.call_function(own, [], {}, st, call.node)
        count = len(value.items) if isinstance(value, Tuple) else None
        if isinstance(value, Container):
            count = sequences.length(st, value)
        if count is None and isinstance(value, (Tensor, Opaque)) and self.is_tensor(st, value):
            return self.sized(self.size_of(value, Call(call.node, call.site, [Const(0)]), st), st)
        if count is None and (known := self.length_of(value, st)) != UNKNOWN:
            return self.sized(known, st)
        if count is None and isinstance(value, Container) and value.kind not in ("queue", "channel"):
            counted = st.store.get((value.name, sequences.COUNTED))
            if counted is None:
                length = self.fresh(call.node, st, LENGTH)
                self.lengths[length.base()] = value.name.base()
                counted = Number(..., numbers.of_atom(length))
                if value.kind == "list":
                    st.store[(value.name, sequences.COUNTED)] = counted
            return counted
        return PLAIN if count is None else Const(count)

    def do_truth(self, call: Call, st: State) -> Value:
        """``bool(x)``: of a container whether there is anything in it, whatever that is."""
        value = call.args[0] if call.args else UNKNOWN
        if all(isinstance(v, (Container, Tuple)) for v in iterate(value)):
            return self.do_length(call, st)
        return self.do_host_scalar(call, st)

    def do_partial(self, call: Call, st: State) -> Value:
        """``functools.partial``."""
        if not call.args:
            return UNKNOWN
        return Partial(call.args[0], tuple(call.args[1:]), tuple(call.kwargs.items()))

    def do_isinstance(self, call: Call, st: State) -> Value:
        """``isinstance(x, kind)``."""
        return self.is_instance(call.args[0], call.args[1], st) if len(call.args) == 2 else PLAIN

    def is_instance(self, value: Value, kind: Value, st: State) -> Value:
        """Whether something is of a kind: known for tensors and for instances of the file's classes."""
        if isinstance(value, Union):
            return union((self.is_instance(v, kind, st), g) for v, g in alternatives(value, st.path))
        names = [k.name for k in (kind.items if isinstance(kind, Tuple) else (kind,)) if isinstance(k, Api)]
        if value == NONE and names:
            return Const(False)
        made_by = st.store.get((value.name, "@class")) if isinstance(value, Object) else None
        if made_by in [Const(n) for n in names]:
            return Const(True)
        if isinstance(value, (Stream, Event, Work, Context)) and names:
            tails = {n.rpartition(".")[2] for n in names}
            own = {Stream: "Stream", Event: "Event", Work: "Work"}.get(type(value))
            return Const(own in tails)
        if isinstance(value, Tensor) and "torch.Tensor" in names:
            return Const(True)
        if isinstance(value, (Container, Tuple)) and names and all(n in ("torch.Tensor",) for n in names):
            return Const(False)
        if isinstance(value, (Container, Tuple)) and names:
            own_kind = value.kind if isinstance(value, Container) else "tuple"
            return Const(any(own_kind in apis.kinds_of(n) for n in names))
        if isinstance(value, Tensor) and names:
            return Const(False)
        if isinstance(value, Instance) and isinstance(kind, Class):
            return Const(value.unit is kind.unit) if value.unit is kind.unit else PLAIN
        if isinstance(value, Opaque):
            if (value.name, "@kind") in st.store and names:
                return Const(st.store[(value.name, "@kind")] in [Const(n) for n in names])
            if names and all(n.endswith(".Stream") for n in names) and self.is_used_as_stream(value, st):
                return Const(True)
            return Opaque(value.name.child(f"isinstance {names}"))
        return PLAIN

    @staticmethod
    def is_used_as_stream(value: Opaque, st: State) -> bool:
        """Whether something has been current, has been worked on, or has been waited for as a stream."""
        current = any(
            isinstance(v, Stream) and v.name == value.name for c in st.current.values() for v in iterate(c)
        )
        return current or any(made.timeline == value.name for made, _ in st.order.iterate())

    def do_hasattr(self, call: Call, st: State) -> Value:
        """Not known, but the same each time; of an object that is set up in stages, known."""
        if len(call.args) == 2 and isinstance(call.args[0], Instance) and isinstance(call.args[1], Const):
            owner, name = call.args[0].name, call.args[1].value
            held = st.store.get((owner, name))
            if held is None and name in self.late.get(owner, ()):
                return Const(False)
            if any(q.endswith(".__init__") for q in self.file.attribute_users.get(name, ((), ()))[1]):
                return PLAIN  # the constructor may have set it, on some condition
            flag = Opaque(owner.child(f"hasattr {name}"))
            if held is None:
                return flag
            # what it is before anything is assigned to it may not be there
            given = Opaque(owner.child(name))
            return union((flag if v == given else Const(True), g) for v, g in alternatives(held, st.path))
        if len(call.args) == 2 and isinstance(call.args[0], Function) and isinstance(call.args[1], Const):
            return Const((self.function_name(call.args[0]), call.args[1].value) in st.store)
        if len(call.args) == 2 and isinstance(call.args[0], Opaque) and isinstance(call.args[1], Const):
            there = (call.args[0].name, call.args[1].value) in st.store
            if there or call.args[0].name in self.closed:
                return Const(there)
            if call.args[1].value in apis.TENSOR_METHODS and self.is_torch_tensor(call.args[0], st):
                return Const(True)
            return Opaque(call.args[0].name.child(f"hasattr {call.args[1].value}"))
        if (
            len(call.args) == 2
            and isinstance(call.args[1], Const)
            and call.args[1].value in apis.TENSOR_METHODS
        ):
            return Const(True) if self.is_torch_tensor(call.args[0], st) else PLAIN
        return PLAIN

    def is_torch_tensor(self, value: Value, st: State) -> bool:
        """Whether all that this may be are tensors of torch."""
        return (
            all(
                (isinstance(v, Tensor) and not v.numpy) or (isinstance(v, Opaque) and self.is_tensor(st, v))
                for v in iterate(value)
            )
            and self.library_of(st, [value]) == "torch"
        )

    def do_getattr(self, call: Call, st: State) -> Value:
        """``getattr`` with a constant name: a note on a tensor that nobody makes is not there."""
        if len(call.args) >= 2 and isinstance(call.args[1], Const) and isinstance(call.args[1].value, str):
            name = call.args[1].value
            if len(call.args) == 3 and name.startswith("_") and name not in self.file.stored:
                if all(isinstance(v, Object) and self.is_tensor_value(st, v) for v in iterate(call.args[0])):
                    return call.args[2]
            return self.attribute(call.args[0], name, st, call.node)
        return UNKNOWN

    def do_fields(self, call: Call, st: State) -> Value:
        """``dataclasses.fields(x)``: things with a ``name``."""
        given = call.args[0] if call.args else UNKNOWN
        if not isinstance(given, (Instance, Class)):
            return UNKNOWN
        found = []
        for field in self.fields(given.unit):
            name = self.fresh(call.node, st, ("field", field))
            st.store[(name, "name")] = Const(field)
            found.append(Opaque(name))
        return Tuple(tuple(found)) if found else UNKNOWN

    def do_vars(self, call: Call, st: State) -> Value:
        """``vars(x)``, ``dataclasses.asdict(x)``."""
        given = call.args[0] if call.args else UNKNOWN
        if not isinstance(given, Instance):
            return UNKNOWN
        held = self.namespace(given, st)
        return held if call.text == "builtins.vars" else self.duplicate(held, call.node, st)

    def namespace(self, instance: Instance, st: State) -> Container:
        """The dict of what an object holds now, under the names of its attributes: what is put there it holds."""
        names = [k for k in st.store.of(instance.name) if isinstance(k, str) and k.isidentifier()]
        names += [k for k in self.fields(instance.unit) if k not in names]
        held = Container(instance.name, "dict", part=instance.part)
        for name in names:
            if (instance.name, name) not in st.store:
                st.store[(instance.name, name)] = self.attribute(instance, name, st, instance.unit.node)
        sequences.set_keys(st, held, names)
        return held

    def do_replace(self, call: Call, st: State) -> Value:
        """``dataclasses.replace(x, name=...)``: another object with these fields changed."""
        given = call.args[0] if call.args else UNKNOWN
        if not isinstance(given, Instance):
            return given
        made = Instance(self.fresh(call.node, st, "copy"), given.unit)
        self.closed.add(made.name)
        for key, value in [*st.store.of(given.name).items(), *call.kwargs.items()]:
            st.store[(made.name, key)] = value
        return made

    def do_make_namespace(self, call: Call, st: State) -> Value:
        """``SimpleNamespace(name=...)``: an object with these attributes."""
        made = Opaque(self.fresh(call.node, st, "namespace"))
        self.closed.add(made.name)
        for key, value in call.kwargs.items():
            st.store[(made.name, key)] = value
        return made

    def do_make_thread_local(self, call: Call, st: State) -> Value:
        """``threading.local()``: what earlier calls of this thread have left there is not seen."""
        return Opaque(self.fresh(call.node, st, "namespace"))

    def converted(self, value: Value, text: str, node: cst.CSTNode, st: State) -> Value | None:
        """What an object of the file makes of itself where it is converted; None where it says nothing of that."""
        for name in _CONVERSIONS.get(text.rpartition(".")[2], ()):
            own = self.own_method(value, name)
            if own is not None:
                return self.call_function(own, [], {}, st, node)
        return None

    def do_task(self, call: Call, st: State) -> Value:
        """``asyncio.create_task(coroutine)``: awaited, it gives what the coroutine returns, which has run already."""
        return call.args[0] if call.args else UNKNOWN

    def do_gather(self, call: Call, st: State) -> Value:
        """``asyncio.gather(*coroutines)``: the list of what they return."""
        return Tuple(tuple(call.args)) if not call.starred else UNKNOWN

    def do_chain(self, call: Call, st: State) -> Value:
        """``itertools.chain(first, second)``."""
        given: list[Value] | None = list(call.args)
        if call.text.endswith("from_iterable"):
            given = self.known_items(call.args[0], st) if call.args else None
        parts_ = [self.known_items(value, st) for value in given or ()]
        if given is None or call.starred or any(part is None for part in parts_):
            return call.args[0] if call.args else UNKNOWN
        joined = Tuple(tuple(item for part in parts_ for item in part or ()))
        return self.do_iterator(Call(call.node, call.site, [joined]), st)

    def do_cycle(self, call: Call, st: State) -> Value:
        """``itertools.cycle(xs)``: its elements one after another, and again."""
        known = self.known_items(call.args[0], st) if call.args else None
        if not known or len(known) > sequences.FEW:
            return call.args[0] if call.args else UNKNOWN
        made = Container(self.fresh(call.node, st, "cycle"), "cycle")
        self.closed.add(made.name)
        sequences.put(st, made, known)
        return made

    def turned(self, cycle: Container, st: State) -> Value:
        """The next element of a cycle, which comes last from now on."""
        known = sequences.items(st, cycle)
        if not known:
            return self.any_element(cycle, st)
        sequences.put(st, cycle, [*known[1:], known[0]])
        return known[0]

    def do_starmap(self, call: Call, st: State) -> Value:
        """``itertools.starmap(f, rows)``: the function runs for each row, now."""
        if len(call.args) < 2:
            return UNKNOWN
        function = call.args[0]
        made = Container(self.fresh(call.node, st, "starmap"), "list")
        self.closed.add(made.name)
        sequences.put(st, made, [])

        def body(item: Value, state: State) -> None:
            row = self.known_items(item, state)
            given = Call(call.node, call.site, [item] if row is None else row, starred=row is None)
            self.extend_container(state, made, Tuple((self.call_value(function, given, state),)))

        self.iterate_over(call.args[1], st, call.node, body)
        return made

    def do_reduce(self, call: Call, st: State) -> Value:
        """``functools.reduce(f, xs, first)``."""
        if len(call.args) < 2:
            return UNKNOWN
        items = self.known_items(call.args[1], st)
        items = [self.item_of(call.args[1], st, call.node)] if items is None else items
        result, *rest = [*call.args[2:3], *items] or [UNKNOWN]
        for item in rest:
            result = self.call_value(call.args[0], Call(call.node, call.site, [result, item]), st)
        return result

    def do_chained(self, call: Call, st: State) -> Value:
        """``ChainMap(first, second)``: of what both hold it gives that of the first."""
        made = Container(self.fresh(call.node, st, "dict"), "dict")
        self.closed.add(made.name)
        sequences.set_keys(st, made, ())
        for mapping in reversed(call.args):
            self.add_items(made, mapping, st)
        return made

    def do_from_keys(self, call: Call, st: State) -> Value:
        """``dict.fromkeys(keys, value)``."""
        keys = self.known_items(call.args[0], st) if call.args else None
        made = Container(self.fresh(call.node, st, "dict"), "dict")
        self.closed.add(made.name)
        sequences.set_keys(st, made, ())
        for key in keys if keys is not None else [UNKNOWN]:
            self.store_element(made, key, call.args[1] if len(call.args) > 1 else NONE, st)
        return made

    def do_make_context_variable(self, call: Call, st: State) -> Value:
        """``ContextVar("name", default=x)``: a place for one object."""
        made = Container(self.fresh(call.node, st, "variable"), "variable")
        self.closed.add(made.name)
        if "default" in call.kwargs:
            st.store[(made.name, "value")] = call.kwargs["default"]
        return made

    def do_weak_reference(self, call: Call, st: State) -> Value:
        """``weakref.ref(x)``: called, it gives the object, which it does not keep alive."""
        name = self.fresh(call.node, st, "reference")
        self.closed.add(name)
        st.store[(name, "@refers to")] = call.args[0] if call.args else UNKNOWN
        return Opaque(name)

    def do_push(self, call: Call, st: State) -> Value:
        """``heappush(heap, item)``."""
        if len(call.args) > 1:
            for inner in iterate(call.args[0]):
                if isinstance(inner, Container):
                    sequences.blur(st, inner)
            self.extend_container(st, call.args[0], Tuple((call.args[1],)))
        return NONE

    def do_take_any(self, call: Call, st: State) -> Value:
        """``heappop(heap)``: which it is only the order of their keys says."""
        return self.any_element(call.args[0], st) if call.args else UNKNOWN

    def do_getter(self, call: Call, st: State) -> Value:
        """``operator.itemgetter(key)`` and its like: functions of an object."""
        made = Api(f"what {call.text.rpartition('.')[2]} gives")
        return Partial(made, tuple(call.args), tuple(call.kwargs.items()))

    def do_got_item(self, call: Call, st: State) -> Value:
        """``itemgetter(key)(x)``."""
        *keys, given = call.args or [UNKNOWN]
        found = [self.element(given, key, st) for key in keys]
        return found[0] if len(found) == 1 else Tuple(tuple(found))

    def do_got_attribute(self, call: Call, st: State) -> Value:
        """``attrgetter(name)(x)``."""
        *names, given = call.args or [UNKNOWN]
        found = []
        for name in names:
            value = given
            for part in name.value.split(".") if isinstance(name, Const) and type(name.value) is str else ():
                value = self.attribute(value, part, st, call.node)
            found.append(value)
        return found[0] if len(found) == 1 else Tuple(tuple(found))

    def do_called_method(self, call: Call, st: State) -> Value:
        """``methodcaller(name, ...)(x)``."""
        if len(call.args) < 2 or not (isinstance(call.args[0], Const) and type(call.args[0].value) is str):
            return UNKNOWN
        name, *args, given = call.args
        bound = Call(call.node, call.site, args, call.kwargs, starred=call.starred)
        return self.call_method(given, name.value, bound, st)  # type: ignore[attr-defined]

    def do_setattr(self, call: Call, st: State) -> Value:
        """``setattr`` with a constant name."""
        if len(call.args) == 3 and isinstance(call.args[1], Const) and isinstance(call.args[1].value, str):
            self.set_attribute(call.args[0], call.args[1].value, call.args[2], st, call.node)
        return NONE

    def do_type_of(self, call: Call, st: State) -> Value:
        """``type(x)``."""
        value = call.args[0] if call.args else UNKNOWN
        if isinstance(value, Instance):
            return Class(value.unit)
        if isinstance(value, (Container, Tuple)):
            return Api("builtins.list")
        if isinstance(value, Opaque):
            return Api("builtins.list") if (value.name, "@sequence") in st.store else UNKNOWN
        return UNKNOWN

    def do_super(self, call: Call, st: State) -> Value:
        """``super()``: the bases that are in the file, else an object of unknown kind."""
        activation = self.stack[-1]
        owner = activation.unit.owner if activation.unit else None
        receiver = st.store.get((activation.frame, "self"))
        if owner is not None and isinstance(receiver, Instance):
            behind = self.behind_class(owner, receiver.unit)
            if behind is not None:
                return Super(receiver.name, behind, receiver.unit, part=receiver.part)
            packs = any(base.rpartition(".")[2] == apis.PACKS for base in owner.bases)
            return Opaque(Name("super()", (apis.PACKS,) if packs else ()))
        return Opaque(Name("super()"))

    def behind_class(self, owner: ClassUnit, whole: ClassUnit) -> ClassUnit | None:
        """A class of what comes after one in the order in which methods of an object are looked for."""
        if (owner, whole) not in self.supers:
            order = list(self.ancestry(whole))
            rest = order[order.index(owner) + 1 :] if owner in order else []
            names = [u.name for u in rest if self.unit(u.name) is u]
            names = names or [base for base in owner.bases if isinstance(self.unit(base), ClassUnit)]
            unseen = [base for base in owner.bases if self.unit(base) is None]
            made = ClassUnit(owner.name, owner.node, owner.slice, (*names, *unseen)) if names else None
            self.supers[owner, whole] = made
        return self.supers[owner, whole]

    def do_make_container(self, call: Call, st: State) -> Value:
        """A list, set or deque."""
        if call.args and isinstance(call.args[0], Opaque) and call.args[0].name.site in ("shape", "size()"):
            return call.args[0]
        name = self.fresh(call.node, st, "container")
        self.closed.add(name)
        made = Container(name, "list")
        if call.args:
            value = call.args[0]
            known = self.known_items(value, st)
            if any(isinstance(v, Tensor) and v.numpy for v in iterate(value)):
                self.read_on_host(st, value, call.site, f"{call.text.rpartition('.')[2]}()")
            if isinstance(value, Generator) or self.own_method(value, "__iter__"):
                return self.drained(value, st, call.node)
            if known is None:
                self.extend_container(st, made, Tuple((self.item_of(value, st, call.node),)))
                return made
            sequences.put(st, made, known)
            if len(call.args) > 1 or call.kwargs:
                st.store[(made.name, sequences.BOUNDED)] = PLAIN
            return made
        if not call.kwargs:
            sequences.put(st, made, [])
        return made

    def drained(self, value: Value, st: State, node: cst.CSTNode) -> Container:
        """What a generator, or an object of the file, gives that is iterated to its end now."""
        made = Container(self.fresh(node, st, "drained"), "list")
        self.closed.add(made.name)
        sequences.put(st, made, [])
        site = self.site(node)

        def keep(item: Value, state: State) -> None:
            if state.graphs:
                self.keep_output(state, made, self.held(made, state), item, site)
            self.extend_container(state, made, Tuple((item,)))

        self.iterate_over(value, st, node, keep)
        return made

    def item_of(self, value: Value, st: State, node: cst.CSTNode) -> Value:
        """Some element of any iterable."""
        if isinstance(value, Partial):
            return self.next_of_call(value, st, node)
        if isinstance(value, Tensor):
            return Tensor(value.name, numpy=value.numpy, part=parts.all_of(value.part))
        return self.any_element(value, st)

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
        made = Container(self.fresh(call.node, st, "dict"), "dict")
        self.closed.add(made.name)
        sequences.set_keys(st, made, ())
        if given is not None and self.gives_pairs(given) and self.known_items(given, st) is None:
            sequences.set_keys(st, made, None)

            def put(pair: Value, state: State) -> None:
                key, value = (self.element(pair, Const(n), state) for n in (0, 1))
                self.store_element(made, key, value, state)

            self.iterate_over(given, st, call.node, put)
        elif given is not None:
            self.add_items(made, given, st)
        for key, value in call.kwargs.items():
            self.store_element(made, Const(key), value, st)
        return made

    def add_items(self, mapping: Container, added: Value, st: State) -> None:
        """What another mapping, or pairs of keys and values, hold joins a dict."""
        if isinstance(added, Container) and added.kind == "dict":
            new, known = sequences.keys(st, added), sequences.keys(st, mapping)
            held = {key: value for key, value in st.store.of(added.name).items() if key in (new or ())}
            if new is not None and len(held) == len(new):
                for key, value in held.items():
                    self.lose(st, st.store.get((mapping.name, key), NONE))
                    st.store[(mapping.name, key)] = value
                sequences.set_keys(st, mapping, None if known is None else known | new)
                return
        pairs = self.known_items(added, st)
        if pairs is not None and all(isinstance(p, Tuple) and len(p.items) == 2 for p in pairs):
            for pair in pairs:
                key, value = pair.items  # type: ignore[attr-defined]
                self.store_element(mapping, key, value, st)
            return
        sequences.set_keys(st, mapping, None)
        self.extend_container(st, mapping, added)

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
            st.store[(made.name, "@factory")] = call.args[0]
        return made

    def make_default(self, factory: Value, node: cst.CSTNode, st: State) -> Value:
        """What a ``defaultdict`` makes for a key that is not there."""
        return self.call_value(factory, Call(node, self.site(node)), st)

    def do_make_channel(self, call: Call, st: State) -> Value:
        """A queue between tasks, all of one thread."""
        return self.do_make_queue(call, st, "channel")

    def do_make_queue(self, call: Call, st: State, kind: str = "queue") -> Value:
        """A queue hands what it is given to another thread."""
        name = self.fresh(call.node, st, "queue")
        self.closed.add(name)
        sequences.put(st, Container(name, kind), [])
        return Container(name, kind)

    def do_next_item(self, call: Call, st: State) -> Value:
        """``next(it)``; of several iterators each gives one of its own."""
        choices = alternatives(call.args[0] if call.args else UNKNOWN, st.path)
        if len(choices) == 1:
            return self._next_of(choices[0][0], call, st)
        return self.each_way([(v, g, partial(self._next_of, v, call)) for v, g in choices], st)

    def _next_of(self, value: Value, call: Call, st: State) -> Value:
        if isinstance(value, Generator):
            item = self.advance(value, st)
            if item is None:
                st.dead = st.dead or len(call.args) < 2
                item = call.args[1] if len(call.args) > 1 else UNKNOWN
            return item
        own = self.own_method(value, "__next__")
        if own is not None:
            return self.call_function(own, [], {}, st, call.node)
        if isinstance(value, (Opaque, Instance)):  # what gives an object's elements may not be seen
            return self._next_unknown(value, Opaque(self.fresh(call.node, st, "next")), call.args[1:], st)
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
        found = self.any_element(value, st)
        return union([(found, ALWAYS), (call.args[1], ALWAYS)]) if len(call.args) > 1 else found

    def _next_unknown(self, iterable: Object, item: Opaque, default: list[Value], st: State) -> Value:
        """The next element of what is not known: of the type that is annotated, where it is not the default."""
        typed = self.typed_element(iterable, item, st)
        if typed is item or default != [NONE]:
            return item
        outcomes = self.condition(("none", item.name), (item.name,), st, True)
        return union((NONE if none else typed, guard) for none, guard in outcomes)

    def do_dataclass_field(self, call: Call, st: State) -> Value:
        """A dataclass field's default."""
        factory = call.kwargs.get("default_factory")
        if factory is not None:
            return self.call_value(factory, Call(call.node, call.site), st)
        return call.kwargs.get("default", UNKNOWN)
