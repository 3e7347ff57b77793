"""Method calls: the dispatch over the kinds of receivers."""

from __future__ import annotations

from functools import partial

from streamsafe.apis import names as apis
from streamsafe.static import element_keys, fields, parts
from streamsafe.static.state import State
from streamsafe.static.transfer.part import Part
from streamsafe.static.transfer.tensor_methods import _TENSOR_METHODS, HOOK_REGISTRATIONS
from streamsafe.static.transfer.tensors import Call
from streamsafe.static.transfer.unknown_objects import PARTS_OF_MODULES
from streamsafe.static.values import (
    FUTURE,
    NONE,
    PLAIN,
    POINTER,
    UNKNOWN,
    Api,
    Class,
    Const,
    Container,
    Context,
    Device,
    Event,
    Function,
    Generator,
    Graph,
    Instance,
    Method,
    Opaque,
    Partial,
    Stream,
    Tensor,
    Tuple,
    Value,
    Work,
    alternatives,
    iterate,
    union,
)

_MODULE_ITSELF = frozenset({"cuda", "to", "eval", "train", "half", "float", "requires_grad_", "bfloat16"})
"""Methods of a module that give the module."""

_OF_NO_NUMBER = _TENSOR_METHODS | apis.SCALAR_METHODS | {"detach"}
"""Whoever is asked for one of these is neither None nor a number: a total that starts at zero is a tensor by then."""


class Methods(Part):
    """Calls methods, by what the receiver is."""

    def call_method(self, receiver: Value, name: str, call: Call, st: State) -> Value:
        """``receiver.name(...)``."""
        receiver = self.unpacking.one_row(receiver, st, call.node, Instance)
        choices = alternatives(receiver, st.path)
        self.expressions.assume_not_none(choices, st)
        if len(choices) > 1 and name in _OF_NO_NUMBER:
            choices = [(v, g) for v, g in choices if not isinstance(v, Const)] or choices
            if len(choices) > 1:
                receiver = union(choices)
        if len(choices) > 1:
            kinds = {type(v) for v, _ in choices}
            built = all(
                isinstance(v, Opaque) and st.store.marked(v.name, fields.CONSTRUCTED)
                for v, _ in choices
                if v != NONE
            )
            keyed = (
                name in ("get", "set", "copy", "pop", "setdefault")
                and self.tensors.library_of(st, [v for v, _ in choices]) == "torch"
            )
            keyed = keyed or name in apis.KEEPING_METHODS | apis.DISMANTLING_METHODS
            other = any(
                isinstance(v, Opaque) and (self.torch_modules.optimizes(v, st) or _is_maker(v, st))
                for v, _ in choices
            )
            # of what no tensor is known to be, only a tensor's own method says that it is one
            other |= name not in _OF_NO_NUMBER and not any(
                isinstance(v, Tensor) or (isinstance(v, Opaque) and self.expressions.is_tensor(st, v))
                for v, _ in choices
            )
            if (
                (kinds <= {Tensor, Opaque} and not built and not keyed and not other)
                or kinds <= {Stream}
                or kinds <= {Event}
            ):
                return self._joint_method(receiver, choices[0][0], name, call, st)
            # of None it would fail; what is not known, out of a pool perhaps, is like the others
            there = [(v, g) for v, g in choices if v != NONE and not _is_unknown(v)]
            for kind, methods in ((Event, apis.EVENT_METHODS), (Stream, apis.STREAM_METHODS)):
                if there and name in methods and all(isinstance(v, kind) for v, _ in there):
                    return self._joint_method(union(there), there[0][0], name, call, st)
            if Work in kinds and name in (
                "wait",
                "synchronize",
            ):  # whichever it is, it is the one that was meant
                for work, _ in choices:
                    if work != NONE:
                        self.method_of(work, name, self.copied(call), st)
                return UNKNOWN
            return self.calls.each_way(
                [
                    (v, g, partial(self.method_of, v, name, self.copied(call)))
                    for v, g in choices
                    if v != NONE
                ],
                st,
            )
        return self.method_of(choices[0][0] if choices else UNKNOWN, name, call, st)

    @staticmethod
    def copied(call: Call) -> Call:
        """The same call, for another alternative."""
        return Call(call.node, call.site, list(call.args), dict(call.kwargs), call.text, call.starred)

    def _joint_method(self, receiver: Value, first: Value, name: str, call: Call, st: State) -> Value:
        """A method of one of several streams, events or tensors: the verbs take guarded values as they are."""
        verb = _verb_of(first, name)
        if verb is not None:
            call.args.insert(0, receiver)
            return self.library.verb(verb, call, st)
        return self.tensor_methods.tensor_method(receiver, name, call, st)

    def method_of(self, receiver: Value, name: str, call: Call, st: State) -> Value:
        """A method of one receiver, which is no union."""
        if name in apis.THREAD_WAITS and type(receiver) in (Value, Opaque, Partial, Container):
            self.threads.learn_from_threads(st)
        if isinstance(receiver, Api):
            return self.calls.call_api(apis.canonical(f"{receiver.name}.{name}"), call, st)
        verb = _verb_of(receiver, name)
        if verb is not None:
            call.args.insert(0, receiver)
            return self.library.verb(verb, call, st)
        if isinstance(receiver, Stream) and name in ("__enter__", "__exit__"):
            receiver = Context("stream", (receiver,))
        if isinstance(receiver, Work):
            return self._work_method(receiver, name, call, st)
        if isinstance(receiver, (Tensor, Opaque)) and name in apis.KEEPING_METHODS:
            if name == "save_for_backward" and not call.starred:
                self.assignments.set_attribute(
                    receiver, "saved_tensors", Tuple(tuple(call.args)), st, call.node
                )
            return NONE
        if isinstance(receiver, (Tensor, Opaque)) and name in apis.DISMANTLING_METHODS:
            return Opaque(receiver.name.child(f"{name}()"), part=receiver.part)
        if isinstance(receiver, Tensor):
            return self.tensor_methods.tensor_method(receiver, name, call, st)
        if isinstance(receiver, Partial) and receiver.function == POINTER:
            return self.interop.pointer_method(receiver, name, call, st)
        if isinstance(receiver, Partial) and receiver.function == FUTURE:
            if name in apis.THREAD_WAITS:
                self.threads.threads_done(st)
            return receiver.args[0] if name == "result" else PLAIN
        if isinstance(receiver, (Instance, Class)):
            return self._instance_method(receiver, name, call, st)
        if isinstance(receiver, Container):
            return self.container_methods.container_method(receiver, name, call, st)
        if isinstance(receiver, Tuple):
            return UNKNOWN
        if isinstance(receiver, Context):
            return self.contexts.context_method(receiver, name, call, st)
        if isinstance(receiver, Generator):
            return self._generator_method(receiver, name, call, st)
        begins = name in apis.COLLECTIVES and call.kwargs.get("async_op") == Const(True)
        if begins and type(receiver) in (Opaque, Value):  # a communicator of a library of its own
            return self.collectives.do_collective(
                Call(call.node, call.site, call.args, call.kwargs, name), st
            )
        if isinstance(receiver, Opaque):
            return self.unknown_objects.opaque_method(receiver, name, call, st)
        if isinstance(receiver, Device):
            return self.streams.do_synchronize_device(call, st) if name == "synchronize" else PLAIN
        if isinstance(receiver, Const):
            if name in apis.HANDING_METHODS:  # of a file or a socket
                self.pass_to_receiver(name, call, st)
            for value in call.everything() if name in ("format", "join") else ():
                if isinstance(value, Generator):
                    value = self.python_containers.drained(value, st, call.node)
                self.tensors.read_on_host(st, value, call.site, f"{name}()")
            if name == "startswith" and isinstance(receiver.value, str) and len(call.args) == 1:
                begun = call.args[0]
                if isinstance(begun, Const) and isinstance(begun.value, str):
                    return Const(receiver.value.startswith(begun.value))
            return PLAIN
        if isinstance(receiver, Function):
            return self.unseen.unmodelled(receiver, call, st)
        if name in HOOK_REGISTRATIONS:  # of a node of the graph, say
            return self.hooks.register_hooks(name, call, st, receiver)
        if type(receiver) is Value and name in apis.DRAWING_METHODS | apis.HANDING_METHODS:
            return self.pass_to_receiver(name, call, st)
        if type(receiver) is Value and name in ("wait", "synchronize"):
            self.effects.host_learns_everything(st, call.site)  # of an object that is not known
            return UNKNOWN
        if type(receiver) is Value and name in apis.SCALAR_METHODS and not call.everything():
            self.effects.synchronize_stream(
                st, None, self.tensors.default_library, call.site
            )  # it may be any tensor
            return PLAIN
        return self.unseen.unmodelled(receiver, call, st, name)

    def pass_to_receiver(self, name: str, call: Call, st: State) -> Value:
        """Somebody on the host is given something; with the event to wait for he may wait."""
        given = [
            self.python_containers.drained(v, st, call.node) if isinstance(v, Generator) else v
            for v in call.everything()
        ]
        if not self.threads.carries_event(given, st):
            self.copies.pass_to_host(st, given, call.site, f"{name}()")
        return UNKNOWN

    def _work_method(self, work: Work, name: str, call: Call, st: State) -> Value:
        if name == "get_future":
            return work  # who waits for it waits for the work, in the same way
        if name.startswith("wait") or name == "synchronize":  # comm -> cur, not the host (TD-02)
            self.effects.wait_event(st, Event(work.name), None, "torch", call.site)
        return UNKNOWN

    def _generator_method(self, generator: Generator, name: str, call: Call, st: State) -> Value:
        """A generator, or a context manager made of one, is run by hand."""
        if name in ("__next__", "send", "__anext__", "asend", "__enter__", "__aenter__"):
            item = self.comprehensions.advance(generator, st, *call.args[:1])
            st.dead = st.dead or item is None
            return UNKNOWN if item is None else item
        if name in ("__exit__", "__aexit__"):
            self.comprehensions.advance(generator, st)
        return UNKNOWN

    def _instance_method(self, receiver: Instance | Class, name: str, call: Call, st: State) -> Value:
        if isinstance(receiver, Class):
            if name == "apply":
                forward = self.class_members.find_method(receiver.unit, "forward")
                if forward is not None:
                    context = Opaque(self.objects.fresh(call.node, st, "ctx"))
                    self.hooks.keep_pass(receiver, context, st)
                    return self.functions.call_function(
                        Function(forward), [context, *call.args], call.kwargs, st, call.node
                    )
            if name == "_make" and call.args and receiver.unit.is_named_tuple:
                known = self.iterables.known_items(call.args[0], st)
                made = Call(call.node, call.site, known or [self.containers.any_element(call.args[0], st)])
                made.starred = known is None
                return self.calls.call_value(receiver, made, st)
            attribute = self.class_members.class_attribute(receiver.unit, name, st)
            return self.calls.call_value(attribute, call, st)
        held = st.store.get((receiver.name, name))
        if held is not None:
            unset = Opaque(receiver.name.child(name))
            there = [
                (v, g) for v, g in alternatives(held, st.path) if v != unset
            ]  # or it could not be called
            held = element_keys.in_rounds(union(there) if there else held, parts.rounds(receiver.part))
            return self.calls.call_value(held, call, st)
        method = self.class_members.find_method(receiver.unit, name)
        if method is not None and method.is_property:
            return self.calls.call_value(self.attributes.attribute(receiver, name, st, call.node), call, st)
        if method is not None:
            whole = self.class_members.bound_to(receiver)
            bound: Value = Function(method, None, whole)
            if method.decorators:
                plain: Value = Function(method)
                decorated = self.definitions.behind(method, plain, st)
                bound = bound if decorated is plain else Partial(decorated, (whole,), ())
            if method.is_static:
                bound = Function(method)
            elif method.is_classmethod:
                bound = Function(method, None, Class(receiver.unit))
            return self.calls.call_value(bound, call, st)
        inner = self.class_members.find_inner_class(receiver.unit, name)
        if inner is not None:
            return self.calls.call_value(inner, call, st)
        if name.startswith("register_forward"):
            return self.hooks.keep_forward_hook(receiver, name, call, st)
        if name in HOOK_REGISTRATIONS:
            return self.hooks.register_hooks(name, call, st, receiver)
        trained = self.torch_modules.of_trainer(receiver, name, call, st)
        if trained is not None:
            return trained
        found = self.attributes.from_getattr(receiver, name, st, call.node)
        if found is not None:
            return self.calls.call_value(found, call, st)
        container = self.subscripts.as_container(receiver)
        if isinstance(container, Container):
            return self.container_methods.container_method(container, name, call, st)
        if name == "_replace":
            return self.builtin_functions.do_replace(Call(call.node, call.site, [receiver], call.kwargs), st)
        expression = self.class_members.find_class_attribute(receiver.unit, name)
        if expression is not None:
            return self.calls.call_value(self.definitions.class_level(expression, st), call, st)
        stream = self.kernel_launches.stream_of(receiver)
        if stream is not None:
            return self.method_of(stream, name, call, st)
        if name in PARTS_OF_MODULES:
            return Opaque(receiver.name.child(f"{name}()"))
        if name == "register_buffer" and len(call.args) >= 2 and isinstance(call.args[0], Const):
            for value in iterate(call.args[1]):
                if isinstance(value, (Tensor, Opaque)):
                    st.store.mark(value.name, fields.MODULE_BUFFER)
                    self.torch_modules.moves_with_module(value, st)
            self.assignments.set_attribute(receiver, str(call.args[0].value), call.args[1], st, call.node)
            return NONE
        if self.placement.gives_other_memory(name, call):
            self.graph_memory.moved_module(st, receiver, call.site)
        if name in _MODULE_ITSELF or name == "__init__":
            if name in ("cuda", "to"):
                module = any(
                    base.endswith("Module")
                    for u in self.class_members.ancestry(receiver.unit)
                    for base in u.bases
                )
                # what is neither a parameter nor a buffer stays where it is
                only_own = module and self.class_members.find_method(receiver.unit, "_apply") is None
                for target, _ in self.memory.tensors_in(st, receiver):
                    along = st.store.marked(target.name, fields.MOVES_WITH_MODULE)
                    if along or (not only_own and self.memory.place(st, target) == "pageable"):
                        self.memory.set_place(st, target, "device")
                if call.node is self.run.alone and module:
                    outcomes = self.copies.flag(call.kwargs.get("non_blocking"), st, call.node)
                    self.placement.move_module(receiver, outcomes, call, st, f"{name}()")
            return receiver
        if name in ("start", "join") and self.threads.is_thread(receiver):
            return self.threads.thread_method(receiver, name, call, st)
        for pattern in _TEMPLATES:  # the method of a base that is not seen calls what its children supply
            method = self.class_members.find_method(receiver.unit, pattern.format(name))
            if method is not None and not call.args and not call.kwargs:
                return self.calls.call_value(Function(method, None, receiver), call, st)
        if name in apis.ORDERING_METHODS and name.startswith("sync"):  # of a base that is not seen
            self.effects.host_learns_everything(st, call.site)
            return NONE
        return self.unseen.unmodelled(receiver, call, st, name)


_TEMPLATES = ("_{}_impl", "{}_impl", "_do_{}", "_{}")
"""How a class of the file names its own part of a method that an unseen base has."""

_MAKERS = (fields.RANDOM_GENERATOR, fields.FFT_PLAN, fields.PINNED_POOL, fields.EXECUTOR, fields.THREAD)


def _is_maker(value: Opaque, st: State) -> bool:
    """Whether an object is known for what it makes or runs: it is no tensor."""
    return any((value.name, key) in st.store for key in _MAKERS)


def _is_unknown(value: Value) -> bool:
    """Whether nothing is known of a value, or of what it is an attribute of."""
    while isinstance(value, Method):
        value = value.receiver
    return type(value) is Value


def _verb_of(receiver: Value, name: str) -> str | None:
    """What a method of a stream, an event or a graph does."""
    tables = ((Stream, apis.STREAM_METHODS), (Event, apis.EVENT_METHODS), (Graph, apis.GRAPH_METHODS))
    return next((verbs[name] for kind, verbs in tables if isinstance(receiver, kind) and name in verbs), None)
