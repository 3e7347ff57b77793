"""Method calls, by what the receiver is.

One file: it is one dispatch over the kinds of receivers.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace
from functools import partial

import libcst as cst

from streamsafe.order.edges import Edge
from streamsafe.order.symbolic import HOST, Made
from streamsafe.static import apis, element_keys, parts, sequences
from streamsafe.static.memory import KEPT
from streamsafe.static.state import State
from streamsafe.static.tensor_methods import (
    _TENSOR_METHODS,
    HOOK_REGISTRATIONS,
)
from streamsafe.static.tensors import Call
from streamsafe.static.unknown_objects import PARTS_OF_MODULES, UnknownObjects
from streamsafe.static.values import (
    FUTURE,
    MOST_STACKED,
    NONE,
    PLAIN,
    POINTER,
    STACKED,
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
    Name,
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
    most,
    rows,
    union,
)

_MODULE_ITSELF = frozenset({"cuda", "to", "eval", "train", "half", "float", "requires_grad_", "bfloat16"})
"""Methods of a module that give the module."""
_MOVING = frozenset("appendleft insert extendleft remove reverse sort rotate discard clear".split())
"""Methods of lists and queues after which another element may be the first."""

_OF_NO_NUMBER = _TENSOR_METHODS | apis.SCALAR_METHODS | {"detach"}
"""Whoever is asked for one of these is neither None nor a number: a total that starts at zero is a tensor by then."""


class Methods(UnknownObjects):
    """Method calls, by what the receiver is."""

    # declared here, implemented further down the chain

    def call_api(self, name: str, call: Call, st: State) -> Value: ...

    # -- methods -------------------------------------------------------------------------------------------------

    def call_method(self, receiver: Value, name: str, call: Call, st: State) -> Value:
        """``receiver.name(...)``."""
        receiver = self.one_row(receiver, st, call.node, Instance)
        choices = alternatives(receiver, st.path)
        self.goes_on(choices, st)
        if len(choices) > 1 and name in _OF_NO_NUMBER:
            choices = [(v, g) for v, g in choices if not isinstance(v, Const)] or choices
            if len(choices) > 1:
                receiver = union(choices)
        if len(choices) > 1:
            kinds = {type(v) for v, _ in choices}
            built = all(
                isinstance(v, Opaque) and (v.name, "@built") in st.store for v, _ in choices if v != NONE
            )
            keyed = name in ("get", "set", "copy", "pop", "setdefault") and self.default_library == "torch"
            keyed = keyed or name in apis.KEEPING_METHODS | apis.DISMANTLING_METHODS
            other = any(
                isinstance(v, Opaque) and (self.optimizes(v, st) or _is_maker(v, st)) for v, _ in choices
            )
            # of what no tensor is known to be, only a tensor's own method says that it is one
            other |= name not in _OF_NO_NUMBER and not any(
                isinstance(v, Tensor) or (isinstance(v, Opaque) and self.is_tensor(st, v)) for v, _ in choices
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
                        self._method(work, name, self.copied(call), st)
                return UNKNOWN
            return self.each_way(
                [(v, g, partial(self._method, v, name, self.copied(call))) for v, g in choices if v != NONE],
                st,
            )
        return self._method(choices[0][0] if choices else UNKNOWN, name, call, st)

    @staticmethod
    def copied(call: Call) -> Call:
        """The same call, for another alternative."""
        return Call(call.node, call.site, list(call.args), dict(call.kwargs), call.text, call.starred)

    def _joint_method(self, receiver: Value, first: Value, name: str, call: Call, st: State) -> Value:
        """A method of one of several streams, events or tensors: the verbs take guarded values as they are."""
        if isinstance(first, Stream) and name in apis.STREAM_METHODS:
            call.args.insert(0, receiver)
            return self.verb(apis.STREAM_METHODS[name], call, st)
        if isinstance(first, Event) and name in apis.EVENT_METHODS:
            call.args.insert(0, receiver)
            return self.verb(apis.EVENT_METHODS[name], call, st)
        return self.tensor_method(receiver, name, call, st)

    def _method(self, receiver: Value, name: str, call: Call, st: State) -> Value:
        if isinstance(receiver, Api):
            return self.call_api(apis.canonical(f"{receiver.name}.{name}"), call, st)
        if isinstance(receiver, Stream) and name in apis.STREAM_METHODS:
            call.args.insert(0, receiver)
            return self.verb(apis.STREAM_METHODS[name], call, st)
        if isinstance(receiver, Stream) and name in ("__enter__", "__exit__"):
            receiver = Context("stream", (receiver,))
        if isinstance(receiver, Event) and name in apis.EVENT_METHODS:
            call.args.insert(0, receiver)
            return self.verb(apis.EVENT_METHODS[name], call, st)
        if isinstance(receiver, Graph) and name in apis.GRAPH_METHODS:
            call.args.insert(0, receiver)
            return self.verb(apis.GRAPH_METHODS[name], call, st)
        if isinstance(receiver, Work):
            return self._work_method(receiver, name, call, st)
        if isinstance(receiver, (Tensor, Opaque)) and name in apis.KEEPING_METHODS:
            return NONE
        if isinstance(receiver, (Tensor, Opaque)) and name in apis.DISMANTLING_METHODS:
            return Opaque(receiver.name.child(f"{name}()"), part=receiver.part)
        if isinstance(receiver, Tensor):
            return self.tensor_method(receiver, name, call, st)
        if isinstance(receiver, Partial) and receiver.function == POINTER:
            return self.pointer_method(receiver, name, call, st)
        if isinstance(receiver, Partial) and receiver.function == FUTURE:
            self.threads_done(st)
            return receiver.args[0] if name == "result" else PLAIN
        if isinstance(receiver, (Instance, Class)):
            return self._instance_method(receiver, name, call, st)
        if isinstance(receiver, Container):
            return self._container_method(receiver, name, call, st)
        if isinstance(receiver, Tuple):
            return UNKNOWN
        if isinstance(receiver, Context):
            return self._context_method(receiver, name, call, st)
        if isinstance(receiver, Generator):
            return self._generator_method(receiver, name, call, st)
        begins = name in apis.COLLECTIVES and call.kwargs.get("async_op") == Const(True)
        if begins and type(receiver) in (Opaque, Value):  # a communicator of a library of its own
            return self.do_collective(Call(call.node, call.site, call.args, call.kwargs, name), st)
        if isinstance(receiver, Opaque):
            return self.opaque_method(receiver, name, call, st)
        if isinstance(receiver, Device):
            return self.do_synchronize_device(call, st) if name == "synchronize" else PLAIN
        if isinstance(receiver, Const):
            if name in apis.HANDING_METHODS:  # of a file or a socket
                self.hand_over(name, call, st)
            for value in call.everything() if name in ("format", "join") else ():
                if isinstance(value, Generator):
                    value = self.drained(value, st, call.node)
                self.read_on_host(st, value, call.site, f"{name}()")
            if name == "startswith" and isinstance(receiver.value, str) and len(call.args) == 1:
                begun = call.args[0]
                if isinstance(begun, Const) and isinstance(begun.value, str):
                    return Const(receiver.value.startswith(begun.value))
            return PLAIN
        if isinstance(receiver, Function):
            return self.unmodelled(receiver, call, st)
        if name in HOOK_REGISTRATIONS:  # of a node of the graph, say
            return self.register_hooks(name, call, st, receiver)
        if type(receiver) is Value and name in apis.DRAWING_METHODS | apis.HANDING_METHODS:
            return self.hand_over(name, call, st)
        if type(receiver) is Value and name in ("wait", "synchronize"):
            self.host_learns_everything(st, call.site)  # of an object that is not known
            return UNKNOWN
        if type(receiver) is Value and name in apis.SCALAR_METHODS and not call.everything():
            self.synchronize_stream(st, None, self.default_library, call.site)  # it may be any tensor
            return PLAIN
        return self.unmodelled(receiver, call, st, name)

    def hand_over(self, name: str, call: Call, st: State) -> Value:
        """Somebody on the host is given something; with the event to wait for he may wait."""
        given = [self.drained(v, st, call.node) if isinstance(v, Generator) else v for v in call.everything()]
        if not self.carries_event(given, st):
            self.hand_to_host(st, given, call.site, f"{name}()")
        return UNKNOWN

    def _work_method(self, work: Work, name: str, call: Call, st: State) -> Value:
        if name == "get_future":
            return work  # who waits for it waits for the work, in the same way
        if name.startswith("wait") or name == "synchronize":  # comm -> cur, not the host (TD-02)
            self.wait_event(st, Event(work.name), None, "torch", call.site)
        return UNKNOWN

    def _context_method(self, context: Context, name: str, call: Call, st: State) -> Value:
        if context.kind == "stack" and name in ("callback", "push_async_callback") and call.args:
            later = Partial(call.args[0], tuple(call.args[1:]), tuple(call.kwargs.items()))
            self._stack_up(context, later, st)
            return call.args[0]
        if context.kind == "stack" and name in ("close", "aclose", "__exit__", "__aexit__"):
            self.leave_stack(context, st, call)
            return NONE
        if name in ("enter_context", "enter_async_context", "__enter__", "push"):
            value = self._context(call.args[0]) if call.args else context
            if context.kind == "stack" and call.args:
                if name == "push" and not isinstance(
                    value, (Generator, Context)
                ):  # entered already, or a function
                    self._stack_up(context, value, st)
                    return value
                entered = self._enter_on_stack(context, value, call, st)
                if entered is not None:
                    return entered
                if isinstance(value, Context) and value.kind == "nothing" and value.payload:
                    return value.payload[0]
            if isinstance(value, Context) and value.kind == "stream":
                stream = value.payload[0]
                library = self.stream_library(stream)
                if isinstance(stream, Stream):
                    st.store[(stream.name, "@outside")] = self.current(st, library)
                self.enter_stream(st, stream, library)
            elif isinstance(value, Context) and value.kind == "capture":
                self.enter_capture(value, st, call.site)
            elif isinstance(value, Union):
                self._enter_streams([(self._context(v), g) for v, g in alternatives(value, st.path)], st)
            return UNKNOWN
        if name == "__exit__" and context.kind == "stream":
            stream = context.payload[0]
            library = self.stream_library(stream)
            outside = st.store.get((stream.name, "@outside")) if isinstance(stream, Stream) else None
            if outside is None:
                st.current.pop(library, None)
            else:
                st.current[library] = outside
            return NONE
        if name == "synchronize" and context.kind == "device":
            return self.synchronize_one(context, call, st)
        if name == "use" and context.kind == "device":
            self.enter_device(context, st)
            return context
        return UNKNOWN

    def _generator_method(self, generator: Generator, name: str, call: Call, st: State) -> Value:
        """A generator, or a context manager made of one, is run by hand."""
        if name in ("__next__", "send", "__anext__", "asend", "__enter__", "__aenter__"):
            item = self.advance(generator, st, *call.args[:1])
            st.dead = st.dead or item is None
            return UNKNOWN if item is None else item
        if name in ("__exit__", "__aexit__"):
            self.advance(generator, st)
        return UNKNOWN

    def leave_stack(self, stack: Context, st: State, call: Call) -> None:
        """What an ``ExitStack`` has collected is called, the last first."""
        held = stack.payload[0]
        assert isinstance(held, Container)

        def leave(item: Value, state: State) -> Value:
            if isinstance(item, Generator):
                self.advance(item, state)
            elif isinstance(item, (Instance, Context)):
                arguments: list[Value] = [NONE, NONE, NONE]
                self._method(item, "__exit__", Call(call.node, call.site, arguments), state)
            elif item != NONE:
                self.call_value(item, Call(call.node, call.site), state)
            return NONE

        for position in reversed(range(self._stacked(held, st) or 0)):
            if st.dead:
                return
            ways = alternatives(st.store.get((held.name, position), NONE), st.path)
            if len(ways) == 1:
                leave(ways[0][0], st)
            else:
                self.each_way([(item, guard, partial(leave, item)) for item, guard in ways], st)
        sequences.put(st, held, [NONE] * MOST_STACKED)
        st.store[(held.name, STACKED)] = Const(0)
        for library in ("torch", "cupy"):
            outside = st.store.get((held.name, f"@outside {library}"))
            if outside is not None:
                st.current[library] = outside

    @staticmethod
    def _stacked(held: Container, st: State) -> int | None:
        """How many places of an ``ExitStack`` are taken on some way here; None where that is not known."""
        counts = [most(count) for count in iterate(st.store.get((held.name, STACKED), PLAIN))]
        return None if None in counts else max(c for c in counts if c is not None)

    def _stack_up(self, stack: Context, item: Value, st: State) -> None:
        """An ``ExitStack`` takes something: its place is empty on the paths on which this is not done."""
        held = stack.payload[0]
        assert isinstance(held, Container)
        place = self._stacked(held, st)
        if place is None or place == MOST_STACKED:
            st.store[(held.name, STACKED)] = PLAIN
            return
        st.store[(held.name, place)] = item
        st.store[(held.name, STACKED)] = Const(place + 1)

    def _enter_on_stack(self, stack: Context, given: Value, call: Call, st: State) -> Value | None:
        """A context manager of the file is entered by an ``ExitStack``; None for those of libraries."""
        held = stack.payload[0]
        value: Value | None = None
        if isinstance(held, Container) and self._stacked(held, st) == 0:
            self.remember_current(held, st)
        if isinstance(given, Generator):
            value = self.advance(given, st)
        elif isinstance(given, Instance) and self.own_method(given, "__enter__"):
            value = self._method(given, "__enter__", Call(call.node, call.site), st)
        elif isinstance(given, Stream):
            given = Context("stream", (given,))
        if isinstance(given, (Generator, Instance, Context)):
            self._stack_up(stack, given, st)
        return value

    def _instance_method(self, receiver: Instance | Class, name: str, call: Call, st: State) -> Value:
        if isinstance(receiver, Class):
            if name == "apply":
                forward = self.find_method(receiver.unit, "forward")
                if forward is not None:
                    context = Opaque(self.fresh(call.node, st, "ctx"))
                    self.keep_pass(receiver, context, st)
                    return self.call_function(
                        Function(forward), [context, *call.args], call.kwargs, st, call.node
                    )
            if name == "_make" and call.args and receiver.unit.is_named_tuple:
                known = self.known_items(call.args[0], st)
                made = Call(call.node, call.site, known or [self.any_element(call.args[0], st)])
                made.starred = known is None
                return self.call_value(receiver, made, st)
            attribute = self.class_attribute(receiver.unit, name, st)
            return self.call_value(attribute, call, st)
        held = st.store.get((receiver.name, name))
        if held is not None:
            unset = Opaque(receiver.name.child(name))
            there = [
                (v, g) for v, g in alternatives(held, st.path) if v != unset
            ]  # or it could not be called
            held = element_keys.in_rounds(union(there) if there else held, parts.rounds(receiver.part))
            return self.call_value(held, call, st)
        method = self.find_method(receiver.unit, name)
        if method is not None and method.is_property:
            return self.call_value(self.attribute(receiver, name, st, call.node), call, st)
        if method is not None:
            whole = self.bound_to(receiver)
            bound: Value = Function(method, None, whole)
            if method.decorators:
                plain: Value = Function(method)
                decorated = self.behind(method, plain, st)
                bound = bound if decorated is plain else Partial(decorated, (whole,), ())
            if method.is_static:
                bound = Function(method)
            elif method.is_classmethod:
                bound = Function(method, None, Class(receiver.unit))
            return self.call_value(bound, call, st)
        inner = self.find_inner_class(receiver.unit, name)
        if inner is not None:
            return self.call_value(inner, call, st)
        if name.startswith("register_forward"):
            return self.keep_forward_hook(receiver, name, call, st)
        if name in HOOK_REGISTRATIONS:
            return self.register_hooks(name, call, st, receiver)
        trained = self.of_trainer(receiver, name, call, st)
        if trained is not None:
            return trained
        asked = self.asked_for(receiver, name, st, call.node)
        if asked is not None:
            return self.call_value(asked, call, st)
        container = self.as_container(receiver)
        if isinstance(container, Container):
            return self._container_method(container, name, call, st)
        if name == "_replace":
            return self.do_replace(Call(call.node, call.site, [receiver], call.kwargs), st)
        expression = self.find_class_attribute(receiver.unit, name)
        if expression is not None:
            return self.call_value(self.class_level(expression, st), call, st)
        stream = self.stream_of(receiver)
        if stream is not None:
            return self._method(stream, name, call, st)
        if name in PARTS_OF_MODULES:
            return Opaque(receiver.name.child(f"{name}()"))
        if name == "register_buffer" and len(call.args) >= 2 and isinstance(call.args[0], Const):
            for value in iterate(call.args[1]):
                if isinstance(value, (Tensor, Opaque)):
                    self.goes_with_module(value, st)
            self.set_attribute(receiver, str(call.args[0].value), call.args[1], st, call.node)
            return NONE
        if name in _MODULE_ITSELF or name == "__init__":
            if name in ("cuda", "to"):
                module = any(
                    base.endswith("Module") for u in self.ancestry(receiver.unit) for base in u.bases
                )
                # what is neither a parameter nor a buffer stays where it is
                only_own = module and self.find_method(receiver.unit, "_apply") is None
                for target, _ in self.tensors(st, receiver):
                    along = (target.name, "@goes along") in st.store
                    if along or (not only_own and self.place(st, target) == "pageable"):
                        self.set_place(st, target, "device")
                if call.node is self.alone and module:
                    outcomes = self.flag(call.kwargs.get("non_blocking"), st, call.node)
                    self.move_module(receiver, outcomes, call, st, f"{name}()")
            return receiver
        if name in ("start", "join") and self.is_thread(receiver):
            return self._thread_method(receiver, name, call, st)
        for pattern in _TEMPLATES:  # the method of a base that is not seen calls what its children supply
            method = self.find_method(receiver.unit, pattern.format(name))
            if method is not None and not call.args and not call.kwargs:
                return self.call_value(Function(method, None, receiver), call, st)
        if name in apis.ORDERING_METHODS and name.startswith("sync"):  # of a base that is not seen
            self.host_learns_everything(st, call.site)
            return NONE
        return self.unmodelled(receiver, call, st, name)

    def _container_method(self, receiver: Container, name: str, call: Call, st: State) -> Value:
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
                self.extend_container(st, receiver, Tuple(tuple(call.args[:1])))
                self.hand_on(st)
                alone = receiver.kind == "queue" and not self.carries_event(call.args, st)
                if alone and not self.waits_first(call.args, call, st):
                    self.hand_to_host(st, call.args, call.site, "put()")
                if self.calling is not None:  # who takes it out is ordered after that stream
                    st.order.obey(
                        [Edge(receiver.name, s.name) for s, _ in self.streams(st, "cupy", self.calling)]
                    )
                return NONE
            if name in ("get", "get_nowait"):
                count = sequences.length(st, receiver)
                if count is None and name == "get" and (self.threads or self.beside) and not self.taking:
                    self.blocks(st, call)  # some time it has taken all that there was
                    self.blocked.append(st.copy())
                if count == 0:
                    self.blocks(st, call)
                    if self.threads or self.beside:
                        self.blocked.append(st.copy())  # until somebody brings it
                        st.dead = True
                        return UNKNOWN
                st.order.obey([Edge(HOST, receiver.name)])
                taken = self.take(receiver, 0, st)
                self.produced_next(st, taken)
                return taken
            if name == "join":
                self.blocks(st, call)
                return NONE
            return UNKNOWN
        at_front = name in ("appendleft", "extendleft") or (name == "insert" and call.args[:1] == [Const(0)])
        last = sequences.ends(st, receiver)[sequences.LAST] if at_front else None
        if name in _MOVING:
            sequences.moved(st, receiver)
        if name in ("append", "add", "appendleft", "insert", "put", "push"):
            known = sequences.items(st, receiver)
            if name not in ("append", "put", "push") and not (at_front and known is not None):
                sequences.blur(st, receiver)
            for value in call.args[-1:]:
                if not self.keeps_alive(call.node):
                    self.keep_output(st, receiver, self.held(receiver, st), value, call.site)
                    continue
                for kept, _ in self.tensors(st, value):
                    st.store[(kept.name, KEPT)] = PLAIN
            self.extend_container(st, receiver, Tuple(tuple(map(rows, call.args[-1:]))))
            grown = sequences.items(st, receiver)
            if at_front and grown is not None:
                sequences.put(st, receiver, [*grown[-1:], *grown[:-1]])
            elif (
                name in _MOVING
            ):  # what was last stays so; what is first is known only of one that was put there
                sequences.scatter(st, receiver)
                sequences.set_end(st, receiver, sequences.FRONT, rows(call.args[-1]) if at_front else None)
                sequences.set_end(st, receiver, sequences.LAST, last)
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
                self.rebound_elements(st, receiver, value, call.site, every=True)
                self.add_items(receiver, value, st)
            for key, value in call.kwargs.items():
                self.store_element(receiver, Const(key), value, st)
            return NONE
        if name in ("extend", "update", "extendleft"):
            before = sequences.length(st, receiver) or 0
            for value in call.args:
                self.extend_container(st, receiver, value)
            for key, value in call.kwargs.items():
                self.store_element(receiver, Const(key), value, st)
            grown = sequences.items(st, receiver) if at_front else None
            if grown is not None:
                sequences.put(st, receiver, [*reversed(grown[before:]), *grown[:before]])
            elif at_front:
                sequences.blur(st, receiver)
                sequences.scatter(st, receiver)
                sequences.set_end(st, receiver, sequences.LAST, last)
            return NONE
        if name in ("pop", "popleft", "popitem"):
            st.store[(receiver.name, "@taken from")] = PLAIN
        if name in ("pop", "popleft", "popitem"):
            position = -1 if name == "pop" and not call.args else 0 if name == "popleft" else None
            if call.args and isinstance(call.args[0], Const) and type(call.args[0].value) is int:
                position = call.args[0].value
            if receiver.kind != "dict":
                value = self.take(receiver, position, st)
                self._taken_once(receiver, value, call.node, st)
                self.lose(st, value)
                return value
            index = call.args[0] if call.args else UNKNOWN
            value = self._element(receiver, index, st)
            self.taken_out(st, receiver, value)
            if name == "pop" and receiver.kind == "dict":
                self.drop_element(receiver, index, st)
            self.lose(st, value)
            return Tuple((UNKNOWN, value)) if name == "popitem" else value
        if name in ("clear",):
            for value in self.held(receiver, st):
                self.lose(st, value)
            for held in [k for k in st.store.of(receiver.name) if not str(k).startswith("@")]:
                del st.store[(receiver.name, held)]
            if receiver.kind != "dict":
                st.store[(receiver.name, "@length")] = Const(0)
                sequences.set_some(st, receiver, Const(False))
            return NONE
        if name == "items":
            return Partial(Api("builtins.items"), (replace(receiver, kind="list"),), ())
        if name == "values":
            return replace(receiver, kind="list")
        if name == "copy":
            return self.duplicate(receiver, call.node, st)
        if name == "keys":
            return Opaque(receiver.name.child("keys()"))
        if self.is_row_of_modules(receiver, st):
            itself = name in _MODULE_ITSELF or name in ("children", "modules")
            return receiver if itself else Opaque(receiver.name.child(f"{name}()"))
        if name in ("get", "setdefault") and call.args:
            found = self._element(receiver, call.args[0], st)
            if found == UNKNOWN and len(call.args) < 2 and self.contains(receiver, call.args[0], st) is False:
                return NONE
            if found != UNKNOWN or len(call.args) < 2:
                return found
            if name == "setdefault":
                self.store_element(receiver, call.args[0], call.args[1], st)
            return call.args[1]
        return UNKNOWN

    def keeps_alive(self, node: cst.CSTNode) -> bool:
        """Whether what is appended to is never read."""
        function = node.func if isinstance(node, cst.Call) else None
        filled = function.value if isinstance(function, cst.Attribute) else None
        name = filled.attr if isinstance(filled, cst.Attribute) else filled
        return isinstance(name, cst.Name) and name.value in self.file.unread

    def take(self, container: Container, position: int | None, st: State) -> Value:
        """An element leaves a list or a queue; some element where its position is not known.

        From an empty one none can be taken: of a list that raises, at a queue it waits.
        """
        there = sequences.some(st, container)
        if len(there) == 2 and there[0][0] is not there[1][0]:
            st.assume(next(guard for some, guard in there if some))
        known = sequences.items(st, container)
        first = sequences.at_end(st, container, sequences.FRONT) if position == 0 else None
        last = sequences.at_end(st, container, sequences.LAST)
        sequences.moved(st, container)
        if known is None or position is None or not -len(known) <= position < len(known):
            value = first or (last if position == -1 else None) or self.any_element(container, st)
            sequences.blur(st, container)
            if position == 0:
                sequences.set_end(st, container, sequences.LAST, last)
            self.taken_out(st, container, value)
            return value
        value = known.pop(position)
        sequences.put(st, container, known)
        return value

    def _taken_once(self, container: Container, value: Value, node: cst.CSTNode, st: State) -> None:
        """What is taken out of a list to which nobody adds was not taken before: nothing was done to it since."""
        function = node.func if isinstance(node, cst.Call) else None
        place = function.value if isinstance(function, cst.Attribute) else None
        name = place.attr if isinstance(place, cst.Attribute) else place
        if not isinstance(name, cst.Name) or name.value not in self.file.used_up:
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


_TEMPLATES = ("_{}_impl", "{}_impl", "_do_{}", "_{}")
"""How a class of the file names its own part of a method that an unseen base has."""


_MAKERS = ("@random", "@plan", "@pinned_pool", "@executor", "@thread")


def _is_maker(value: Opaque, st: State) -> bool:
    """Whether an object is known for what it makes or runs: it is no tensor."""
    return any((value.name, key) in st.store for key in _MAKERS)


def _is_unknown(value: Value) -> bool:
    """Whether nothing is known of a value, or of what it is an attribute of."""
    while isinstance(value, Method):
        value = value.receiver
    return type(value) is Value
