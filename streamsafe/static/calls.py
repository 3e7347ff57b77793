"""Calls: functions of the file are followed, library calls are looked up, anything else is taken to be careful."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING

import libcst as cst

from streamsafe.order.edges import Edge
from streamsafe.order.symbolic import Guard
from streamsafe.static import apis
from streamsafe.static.facts import EACH, GRADIENTS, HOOK, Assumed, Site
from streamsafe.static.functions import (
    _LIBRARY_METHODS,
    COMMON_METHODS,
    Functions,
)
from streamsafe.static.source import ClassUnit, FunctionUnit, SourceFile
from streamsafe.static.state import State
from streamsafe.static.tensors import Call
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
    Method,
    Name,
    Object,
    Opaque,
    Partial,
    Stream,
    Tensor,
    Tuple,
    Value,
    alternatives,
    iterate,
    union,
)

if TYPE_CHECKING:
    from streamsafe.config import Model, Models
    from streamsafe.static.interpreter import Activation

STEPS = 600
"""After how many statements of one entry calls are no longer followed."""
FILE_STEPS = 4_000
"""After how many statements of a file its further entries are looked at less deeply."""
LATE_STEPS = 100
"""The share of an entry in a file that has had its own."""


class Calls(Functions):
    """Resolves and follows calls.

    Args:
        file: the source.
        models: the user's own wrappers.
    """

    if TYPE_CHECKING:  # further down the chain

        def iterate_over(
            self,
            iterable: Value,
            st: State,
            node: cst.CSTNode,
            body: Callable[[Value, State], object],
            *,
            at_least_once: bool = False,
        ) -> None:
            """Walk an iterable."""

    def __init__(self, file: SourceFile, models: Models | None) -> None:
        super().__init__(file)
        self.models = models
        self.hooks: list[tuple[Function, State, bool]] = []
        self.own_events: set[Name] = set()
        self.event_sites: dict[Name, Site] = {}
        self.clock_sites: dict[object, Site] = {}
        self.lambdas: dict[int, FunctionUnit] = {}
        self.nested: dict[cst.CSTNode, FunctionUnit | ClassUnit] = {}
        self.entered: set[FunctionUnit] = set()
        self.captured_frames: set[Name] = set()
        self.steps = 0
        self.total_steps = 0
        self.unrolling = 1
        self.host_waits = False  # a thread has waited for another one
        self.followed = 0
        self.concerned: set[str] = set(file.definitions)  # by qualified name
        self.new_parameters = False  # each call of a method is taken to be given other objects
        self.paused: list[list[Activation]] = []
        self._owners: dict[str, list[str]] = {}
        self.element_types: dict[Name, cst.BaseExpression] = {}
        self._method_owners: dict[str, list[ClassUnit]] | None = None

    # -- calls ---------------------------------------------------------------------------------------------------

    def _call(self, node: cst.Call, st: State) -> Value:
        receiver: Value | None = None
        name = ""
        if isinstance(node.func, cst.Attribute):
            receiver = self.eval(node.func.value, st)
            name = node.func.attr.value
        else:
            function = self.eval(node.func, st)
        call = Call(node, self.site(node))
        for argument in node.args:
            value = self.eval(argument.value, st)
            if argument.star == "*":
                if isinstance(value, Tuple):
                    call.args.extend(value.items)
                else:
                    call.starred = True
                    call.args.append(self.any_element(value, st) if isinstance(value, Container) else value)
            elif argument.star == "**":
                call.starred = True
                if isinstance(value, Container):
                    for key, held in list(st.store.of(value.name).items()):
                        if isinstance(key, str) and not key.startswith(("@", "*")):
                            call.kwargs[key] = held
                elif value != UNKNOWN and not isinstance(value, Const):
                    call.args.append(value)
            elif argument.keyword is not None:
                call.kwargs[argument.keyword.value] = value
            else:
                call.args.append(value)
        self.stack[-1].temporaries.extend(call.everything())
        if receiver is not None:
            return self.call_method(receiver, name, call, st)
        if isinstance(node.func, cst.Name):
            call.text = node.func.value
        return self.call_value(function, call, st)

    def call_value(self, function: Value, call: Call, st: State) -> Value:
        """Call anything; of a union each alternative under its guard."""
        choices = alternatives(function, st.path)
        if len(choices) == 1:
            return self._call_one(choices[0][0], call, st)
        return self.each_way([(v, g, partial(self._call_one, v, call)) for v, g in choices], st)

    def each_way(self, ways: list[tuple[Value, Guard, Callable[[State], Value]]], st: State) -> Value:
        """Do different things under different guards, and join."""
        ends: list[tuple[State, Value]] = []
        for _, guard, action in ways:
            branch = st.copy()
            branch.assume(guard)
            if branch.dead:
                continue
            value = action(branch)
            if not branch.dead:
                ends.append((branch, value))
        return self.join_values(ends, st)

    def join_values(self, ends: list[tuple[State, Value]], st: State) -> Value:
        """Paths that end with a value meet; ``st`` becomes the joined state."""
        key = (Name("joined"), "value")
        joined: State | None = None
        for state, value in ends:
            state.store[key] = value
            joined = self.join(joined, state)
        if joined is None:
            st.dead = True
            return UNKNOWN
        if joined is not st:
            st.become(joined)
        return st.store.pop(key, UNKNOWN)

    def _call_one(self, function: Value, call: Call, st: State) -> Value:
        if isinstance(function, Function):
            compiled = self.compiled(function.unit)
            if compiled is not None:
                return self.launch_compiled(function.unit, compiled, call, st)
            call.kwargs.pop("@grid", None)
            return self.call_function(function, call.args, call.kwargs, st, call.node, starred=call.starred)
        if isinstance(function, Partial):
            if function.kwargs[:1] and function.kwargs[0][0] == "@grid":
                call.kwargs["@grid"] = function.kwargs[0][1]
                return self._call_one(function.function, call, st)
            merged = Call(
                call.node,
                call.site,
                [*function.args, *call.args],
                {**dict(function.kwargs), **call.kwargs},
                call.text,
                call.starred,
            )
            return self.call_value(function.function, merged, st)
        if isinstance(function, Class):
            return self.instantiate(function.unit, call, st)
        if isinstance(function, Api):
            return self.call_api(function.name, call, st)
        if isinstance(function, Method):
            return self.call_method(function.receiver, function.name, call, st)
        if isinstance(function, Instance):
            for name in ("__call__", "forward"):
                method = self.find_method(function.unit, name)
                if method is not None:
                    bound = Function(method, None, function)
                    return self.call_function(
                        bound, call.args, call.kwargs, st, call.node, starred=call.starred
                    )
        if (
            isinstance(function, Opaque)
            and function.name.parent is not None
            and function.name.site in _LIBRARY_METHODS
        ):
            return self._method(
                Opaque(function.name.parent), str(function.name.site), call, st
            )  # a bound method
        return self.unmodelled(function, call, st)

    def call_api(self, name: str, call: Call, st: State) -> Value:
        """A library function."""
        call.text = name
        model = self.models.get(name) if self.models else None
        if model is not None:
            return self.user_model(model, call, st)
        if name.startswith(".") or "." not in name:
            local = self.api_verb(name)
            if local is None:
                tail = name.rpartition(".")[2]
                if tail == "current_stream" and not call.args:
                    return self.do_current_stream(call, st)
                if tail in apis.FUNCTIONS or tail == "get_accelerator":
                    return self.verb(apis.FUNCTIONS[tail], call, st)
                return self.unmodelled(Api(name), call, st)
        if name.endswith(".get_accelerator"):
            return Api("torch.cuda")
        verb = self.api_verb(name)
        if verb is None and name.endswith(".current_stream") and not call.args:
            verb = "current_stream"  # of a device module that is not known
        if verb is None:
            return self.unmodelled(Api(name), call, st)
        return self.verb(verb, call, st)

    def api_attribute(self, base: Api, name: str, st: State, node: cst.CSTNode) -> Value:
        """An attribute of a library's module."""
        full = apis.canonical(f"{base.name}.{name}")
        verb = apis.ATTRIBUTES.get(full)
        if verb is not None:
            return self.verb(verb, Call(node, self.site(node), text=full), st)
        return Api(full)

    def hands_over(self, function: Function, args: list[Value], st: State) -> bool:
        """Whether a call is given what it may do anything with: functions, streams, a method's object's streams."""
        if any(isinstance(v, _HANDED) for a in args for v in iterate(a)):
            return True
        if not isinstance(function.receiver, Instance):
            return False
        calls = [d.calls for d in self.file.definitions.get(function.unit.qualname, ())]
        return any(
            isinstance(key, str) and isinstance(v, _HANDED) and any(key in names for names in calls)
            for key, value in st.store.of(function.receiver.name).items()
            for v in iterate(value)
        )

    def is_exhausted(self) -> bool:
        """Whether this entry, or the whole file, has had its share of statements: calls are no longer followed."""
        return self.steps > (STEPS if self.total_steps < FILE_STEPS else LATE_STEPS)

    def unmodelled(self, function: Value, call: Call, st: State, name: str = "") -> Value:
        """A call whose code is not seen: a careful author wrote it.

        Given a stream or an event it orders what needs ordering; given tensors it reads them on the current stream
        and returns fresh ones written there; given neither it does nothing.
        """
        text = f"{name or _callable_text(function)}()"
        values = call.everything()
        if _CURRENT.fullmatch(text[:-2]) is not None:
            return (
                self.do_current_cupy_stream(call, st)
                if self.default_library == "cupy"
                else self.do_current_stream(call, st)
            )
        if apis.RECORDING_HELPER.fullmatch(text[:-2]) is not None:
            return self.do_record_helper(call, st)
        if text[:-2] in apis.LIKE_FACTORIES:
            return self.factory(text[:-2], call, st)
        model = self.kernel_of(function, st)
        if model is not None:
            return self.launch_kernel(function, model, call, st, name)
        streams = [v for value in values for v in iterate(value) if isinstance(v, (Stream, Event, Context))]
        if any(isinstance(v, (Stream, Event)) for v in streams):
            for s, guard in self.streams(st, "torch"):
                st.order.learn_everything(s.name, guard)
            for v in streams:
                if isinstance(v, (Stream, Event)):
                    st.order.learn_everything(v.name)
        for value in values:
            for held_value in self.parts_of(st, value):
                if isinstance(held_value, Event):
                    st.store[(held_value.name, "@given")] = PLAIN
        if name in _STORES:
            return NONE
        if _constructs(name or _callable_text(function)):
            made_object = self.do_make_module(call, st)  # it stores what it is given
            if isinstance(made_object, Object) and not text[:-2].endswith("Tensor"):
                st.store[(made_object.name, "@built")] = PLAIN
            return made_object
        if _describes(name or _callable_text(function)):
            return PLAIN
        if _VIEWS.fullmatch(text[:-2]) is not None and call.args:
            return call.args[0]
        library = self.library_of(st, [*values, function])
        receiver = function.receiver if isinstance(function, Method) else function
        touched = [v for v in values if not isinstance(v, Const)]
        held = [receiver] if isinstance(receiver, (Opaque, Instance)) else []
        # of an object that holds tensors among other things the result may be anything
        sure = any(
            isinstance(t, Tensor) or (isinstance(t, Opaque) and self.is_tensor(st, t))
            for v in touched
            for t, _ in self.tensors(st, v)
            if t is v or not any(isinstance(inner, Opaque) and inner != t for inner in iterate(v))
        )
        some = any(True for v in touched for _ in self.tensors(st, v))
        assumed = Assumed.UNMODELLED
        setter = name.startswith("set_")  # keeps an object, and reads nothing that the object holds
        for value in touched:
            if self.is_receiver(value):  # of all that an object holds, who is given the object needs little
                assumed |= Assumed.POSSIBLE
            for target, guard in self.tensors(st, value):
                one = union([(target, guard)])
                if setter and target not in iterate(value):
                    continue
                if self.is_host(st, target):
                    if self.pending_copy(st, target):
                        self.host_access(
                            st,
                            one,
                            call.site,
                            text,
                            writes=False,
                            # it may as well enqueue a copy from there
                            assumed=Assumed.UNMODELLED | Assumed.PLACE | Assumed.POSSIBLE,
                        )
                elif isinstance(target, Tensor) or target.name in st.order.made or self.is_tensor(st, target):
                    self.access(st, one, call.site, text, writes=False, library=library, assumed=assumed)
            assumed = Assumed.UNMODELLED
        if isinstance(receiver, Instance):
            assumed |= Assumed.POSSIBLE  # so does a method of a base that is not seen
        for value in held:
            for target, guard in self.tensors(st, value):
                moved = (target.name, "@moved") in st.store  # a module: calling it reads its parameters
                if (target is value and not moved) or self.is_host(st, target):
                    continue
                if target.name in st.order.made:
                    self.access(
                        st,
                        union([(target, guard)]),
                        call.site,
                        text,
                        writes=False,
                        library=library,
                        assumed=assumed,
                    )
        for v in streams:
            if isinstance(v, (Stream, Event)):  # what it did with them is ordered, too
                for s, guard in self.streams(st, "torch"):
                    st.order.obey([Edge(v.name, s.name)], guard)
            if isinstance(v, Stream):
                for value in touched:
                    self.recorded_on(st, value, [v, *(s for s, _ in self.streams(st, "torch"))])
        asked = call.kwargs.get("record_stream", NONE)  # the method's name for a flag: it calls it
        if any(not isinstance(v, Const) or v.value for v in iterate(asked)):
            for value in touched:
                self.record_stream(st, value, self.current(st, library), library, call.site)
        if not some:
            return Opaque(self.fresh(call.node, st, "result"))
        if apis.HOST_HELPER.fullmatch(text[:-2]) is not None:
            brought = Tensor(self.fresh(call.node, st, "host copy"))
            st.store[(brought.name, "@place")] = Const("host")
            return brought
        place = "device" if self.on_side_stream(st, library) and sure else ""
        made = self.new_tensor(
            st, call.site, text, library=library, place=place, assumed=assumed, opaque=True
        )
        if sure:
            self.mark_tensor(st, made)
        return made

    def do_record_helper(self, call: Call, st: State) -> Value:
        """A helper that records what it is given on a stream, the current one where it is given none."""
        values = call.everything()
        streams = [v for v in values if any(isinstance(inner, Stream) for inner in iterate(v))]
        if not streams and len(values) > 1 and isinstance(values[-1], Opaque):
            streams = values[-1:]
        on = self.as_stream(streams[0], "torch") if streams else self.current(st, "torch")
        for value in values:
            if value not in streams:
                self.record_stream(st, value, on, "torch", call.site)
        return NONE

    def parts_of(self, st: State, value: Value, depth: int = 0) -> Iterator[Value]:
        """A value and what it holds."""
        for inner in iterate(value):
            yield inner
            held = list(inner.items) if isinstance(inner, Tuple) else []
            if isinstance(inner, (Container, Instance)):
                held = self.held(inner, st)
            for part in held if depth < 3 else ():
                yield from self.parts_of(st, part, depth + 1)

    def user_model(self, model: Model, call: Call, st: State) -> Value:
        """A wrapper that the user's configuration describes."""
        from streamsafe.static.modelled import apply_model

        return apply_model(self, model, call, st)


_HANDED = (Function, Partial, Class, Stream, Event, Context)
"""With one of these a plain function may start something."""


def _callable_text(function: Value) -> str:
    if isinstance(function, Api):
        return function.name.rpartition(".")[2]
    if isinstance(function, Function):
        return function.unit.name
    if isinstance(function, Object) and isinstance(function.name.site, str):
        return "element" if function.name.site == EACH else function.name.site
    return "call"


def _constructs(name: str) -> bool:
    """Whether a callable is a class, by its name."""
    bare = name.lstrip("_")
    return (bare[:1].isupper() and bare.upper() != bare) or bare == "cls" or bare.endswith(("_class", "_cls"))


_CURRENT = re.compile(r"_*(?:get_)?current_(?:\w+_)?stream(?:_\w+)?")
"""A helper that gives the current stream, by its name."""
_VIEWS = re.compile(r"_*(?:\w+_)?(?:view_(?:of|from|as)_\w+|as_view)")
"""A helper that gives a view of its argument, by its name: it touches no memory."""
_STORES = frozenset("append appendleft extend insert add setdefault".split())
"""Methods that keep what they are given, whatever they belong to."""
_METADATA = re.compile(
    r"_*(?:get|is|has|check|infer|compute)_(?:\w+_)?(?:dtypes?|shapes?|sizes?|numel|counts?|devices?|ranks?|strides?|names?|keys?|world_size)"
    r"|(?:\w+_)?(?:numel|nbytes|batch_size|dtype)"
)


def _describes(name: str) -> bool:
    """Whether a function asks for metadata only, by its name."""
    return _METADATA.fullmatch(name) is not None


__all__ = ["COMMON_METHODS", "GRADIENTS", "HOOK", "Calls"]
