"""What Python's own functions do."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from streamsafe.apis import names as apis
from streamsafe.static import element_keys, fields, parts, sequences
from streamsafe.static.source import ClassUnit
from streamsafe.static.state import State
from streamsafe.static.transfer.part import Part
from streamsafe.static.transfer.tensors import Call
from streamsafe.static.values import (
    NONE,
    PLAIN,
    UNKNOWN,
    Api,
    Class,
    Const,
    Container,
    Context,
    Event,
    Function,
    Instance,
    Name,
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
    union,
)

if TYPE_CHECKING:
    from streamsafe.static.transfer.run_state import RunState


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


class BuiltinFunctions(Part):
    """Verbs of Python's builtin functions and small library functions."""

    def __init__(self, run: RunState) -> None:
        super().__init__(run)
        self.supers: dict[tuple[ClassUnit, ClassUnit], ClassUnit | None] = {}
        """By class and class of the object, the class that ``super()`` means."""

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
            return self.tensors.operation(st, [source], call.site, "deepcopy()")
        if isinstance(source, Opaque) and not self.memory.is_plain(source.name):
            return Opaque(self.objects.fresh(call.node, st, "copy"))
        return source

    def do_unbound_method(self, call: Call, st: State) -> Value:
        """``torch.Tensor.copy_(x, y)`` is ``x.copy_(y)``."""
        if not call.args:
            return UNKNOWN
        owner, _, name = call.text.rpartition(".")
        for inner in iterate(call.args[0]) if owner.endswith(("Tensor", "ndarray")) else ():
            if isinstance(inner, Opaque):
                self.tensors.mark_tensor(st, inner)
        bound = Call(call.node, call.site, call.args[1:], call.kwargs, name, call.starred)
        return self.methods.call_method(call.args[0], name, bound, st)

    def do_logger(self, call: Call, st: State) -> Value:
        """``logging.getLogger(name)``: what it is given it writes down, as the module's functions do."""
        return Api("logging")

    def do_cast(self, call: Call, st: State) -> Value:
        """``typing.cast``."""
        return call.args[1] if len(call.args) > 1 else UNKNOWN

    def do_environment(self, call: Call, st: State) -> Value:
        """``os.environ.get(name)``: not known, but the same each time."""
        name = call.get(0, "key")
        if not isinstance(name, Const):
            return PLAIN
        variable = Name("an environment variable", (name.value,))
        self.run.plain.add(variable)
        return Opaque(variable)

    def do_lazily(self, call: Call, st: State) -> Value:
        """An iterable for a later loop; how far a range goes is asked now."""
        for value in call.args if call.text.endswith("range") else ():
            if any(isinstance(v, Tensor) for v in iterate(value)):
                self.tensors.read_on_host(st, value, call.site, "range()")
            self.run.plain.update(
                v.name.base()
                for v in iterate(value)
                if isinstance(v, Opaque) and not self.expressions.is_tensor(st, v)
            )
        args = tuple(self.stream_pools.sized(value, st) for value in call.args)
        return Partial(Api(call.text), args, tuple(call.kwargs.items()))

    def do_identity(self, call: Call, st: State) -> Value:
        """``id(x)``: a number that stands for the object, another one in each round that has its own."""
        value = call.args[0] if call.args else UNKNOWN
        if not isinstance(value, Object):
            return PLAIN
        name = value.name.child("identity")
        self.run.plain.add(name.base())
        rounds = parts.rounds(value.part) if isinstance(value, Span) else ()
        made = value.name.root().newest()
        if self.run.rounds and made in self.run.rounds[-1]:
            rounds = (*rounds, (made.base(), made))
        return element_keys.in_rounds(Opaque(name), rounds)

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
        made_by = st.store.one(value.name, fields.CLASS_NAME) if isinstance(value, Object) else None
        if made_by is not None and made_by.value in names:
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
            builtin = st.store.one(value.name, fields.BUILTIN_TYPE)
            if builtin is not None and names:
                return Const(builtin.value in names)
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
            setters = self.run.file.owners.users(call.args[0].unit.qualname, str(name))[1]
            held = st.store.get((owner, name))
            if held is None and name in self.run.late.get(owner, ()):
                return Const(False)
            if any(setter.endswith(".__init__") for setter in setters):
                return PLAIN  # the constructor may have set it, on some condition
            flag = Opaque(owner.child(f"hasattr {name}"))
            if held is None:
                return flag
            # what it is before anything is assigned to it may not be there
            given = Opaque(owner.child(name))
            return union((flag if v == given else Const(True), g) for v, g in alternatives(held, st.path))
        if len(call.args) == 2 and isinstance(call.args[0], Function) and isinstance(call.args[1], Const):
            return Const((self.class_members.function_name(call.args[0]), call.args[1].value) in st.store)
        if len(call.args) == 2 and isinstance(call.args[0], Opaque) and isinstance(call.args[1], Const):
            there = (call.args[0].name, call.args[1].value) in st.store
            if there or call.args[0].name in self.run.closed:
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
                (isinstance(v, Tensor) and not v.numpy)
                or (isinstance(v, Opaque) and self.expressions.is_tensor(st, v))
                for v in iterate(value)
            )
            and self.tensors.library_of(st, [value]) == "torch"
        )

    def do_getattr(self, call: Call, st: State) -> Value:
        """``getattr`` with a constant name: a note on a tensor that nobody makes is not there."""
        if len(call.args) >= 2 and isinstance(call.args[1], Const) and isinstance(call.args[1].value, str):
            name = call.args[1].value
            if len(call.args) == 3 and name.startswith("_") and name not in self.run.file.stored:
                if all(
                    isinstance(v, Object) and self.copies.is_tensor_value(st, v)
                    for v in iterate(call.args[0])
                ):
                    return call.args[2]
            return self.attributes.attribute(call.args[0], name, st, call.node)
        return UNKNOWN

    def do_fields(self, call: Call, st: State) -> Value:
        """``dataclasses.fields(x)``: things with a ``name``."""
        given = call.args[0] if call.args else UNKNOWN
        if not isinstance(given, (Instance, Class)):
            return UNKNOWN
        found = []
        for field in self.instances.fields(given.unit):
            name = self.objects.fresh(call.node, st, ("field", field))
            st.store[(name, "name")] = Const(field)
            found.append(Opaque(name))
        return Tuple(tuple(found)) if found else UNKNOWN

    def do_vars(self, call: Call, st: State) -> Value:
        """``vars(x)``, ``dataclasses.asdict(x)``."""
        given = call.args[0] if call.args else UNKNOWN
        if not isinstance(given, Instance):
            return UNKNOWN
        held = self.namespace(given, st)
        return held if call.text == "builtins.vars" else self.containers.duplicate(held, call.node, st)

    def namespace(self, instance: Instance, st: State) -> Container:
        """The dict of what an object holds now, under the names of its attributes: what is put there it holds."""
        names = [k for k in st.store.of(instance.name) if isinstance(k, str) and k.isidentifier()]
        names += [k for k in self.instances.fields(instance.unit) if k not in names]
        held = Container(instance.name, "dict", part=instance.part)
        for name in names:
            if (instance.name, name) not in st.store:
                st.store[(instance.name, name)] = self.attributes.attribute(
                    instance, name, st, instance.unit.node
                )
        sequences.set_keys(st, held, names)
        return held

    def do_replace(self, call: Call, st: State) -> Value:
        """``dataclasses.replace(x, name=...)``: another object with these fields changed."""
        given = call.args[0] if call.args else UNKNOWN
        if not isinstance(given, Instance):
            return given
        made = Instance(self.objects.fresh(call.node, st, "copy"), given.unit)
        self.run.closed.add(made.name)
        for key, value in [*st.store.of(given.name).items(), *call.kwargs.items()]:
            st.store[(made.name, key)] = value
        return made

    def do_make_namespace(self, call: Call, st: State) -> Value:
        """``SimpleNamespace(name=...)``: an object with these attributes."""
        made = Opaque(self.objects.fresh(call.node, st, "namespace"))
        self.run.closed.add(made.name)
        for key, value in call.kwargs.items():
            st.store[(made.name, key)] = value
        return made

    def do_make_thread_local(self, call: Call, st: State) -> Value:
        """``threading.local()``: what earlier calls of this thread have left there is not seen."""
        return Opaque(self.objects.fresh(call.node, st, "namespace"))

    def converted(self, value: Value, text: str, node: cst.CSTNode, st: State) -> Value | None:
        """What an object of the file makes of itself where it is converted; None where it says nothing of that."""
        for name in _CONVERSIONS.get(text.rpartition(".")[2], ()):
            own = self.class_members.own_method(value, name)
            if own is not None:
                return self.functions.call_function(own, [], {}, st, node)
        return None

    def do_task(self, call: Call, st: State) -> Value:
        """``asyncio.create_task(coroutine)``: awaited, it gives what the coroutine returns, which has run already."""
        return call.args[0] if call.args else UNKNOWN

    def do_make_context_variable(self, call: Call, st: State) -> Value:
        """``ContextVar("name", default=x)``: a place for one object."""
        made = Container(self.objects.fresh(call.node, st, "variable"), "variable")
        self.run.closed.add(made.name)
        if "default" in call.kwargs:
            st.store[(made.name, "value")] = call.kwargs["default"]
        return made

    def do_weak_reference(self, call: Call, st: State) -> Value:
        """``weakref.ref(x)``: called, it gives the object, which it does not keep alive."""
        name = self.objects.fresh(call.node, st, "reference")
        self.run.closed.add(name)
        st.store[(name, fields.REFERENT)] = call.args[0] if call.args else UNKNOWN
        return Opaque(name)

    def do_setattr(self, call: Call, st: State) -> Value:
        """``setattr`` with a constant name."""
        if len(call.args) == 3 and isinstance(call.args[1], Const) and isinstance(call.args[1].value, str):
            self.assignments.set_attribute(call.args[0], call.args[1].value, call.args[2], st, call.node)
        return NONE

    def do_type_of(self, call: Call, st: State) -> Value:
        """``type(x)``."""
        value = call.args[0] if call.args else UNKNOWN
        if isinstance(value, Instance):
            return Class(value.unit)
        if isinstance(value, (Container, Tuple)):
            return Api("builtins.list")
        return UNKNOWN

    def do_super(self, call: Call, st: State) -> Value:
        """``super()``: the bases that are in the file, else an object of unknown kind."""
        activation = self.run.stack[-1]
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
            order = list(self.class_members.ancestry(whole))
            rest = order[order.index(owner) + 1 :] if owner in order else []
            names = [u.name for u in rest if self.definitions.unit(u.name) is u]
            names = names or [
                base for base in owner.bases if isinstance(self.definitions.unit(base), ClassUnit)
            ]
            unseen = [base for base in owner.bases if self.definitions.unit(base) is None]
            made = ClassUnit(owner.name, owner.node, owner.slice, (*names, *unseen)) if names else None
            self.supers[owner, whole] = made
        return self.supers[owner, whole]

    def do_dataclass_field(self, call: Call, st: State) -> Value:
        """A dataclass field's default."""
        factory = call.kwargs.get("default_factory")
        if factory is not None:
            return self.calls.call_value(factory, Call(call.node, call.site), st)
        return call.kwargs.get("default", UNKNOWN)
