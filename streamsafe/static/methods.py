"""Method calls, by what the receiver is."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from streamsafe.order.edges import Edge
from streamsafe.order.symbolic import ALWAYS, HOST
from streamsafe.static import apis, sequences, walks
from streamsafe.static.facts import Assumed, Site
from streamsafe.static.hooks import Hooks
from streamsafe.static.source import ClassUnit, FunctionUnit
from streamsafe.static.state import State
from streamsafe.static.syntax import spelled
from streamsafe.static.tensor_methods import (
    _TENSOR_METHODS,
    HOOK_REGISTRATIONS,
)
from streamsafe.static.tensors import Call
from streamsafe.static.values import (
    EACH,
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
    union,
)

_MODULE_ITSELF = frozenset({"cuda", "to", "eval", "train", "half", "float", "requires_grad_", "bfloat16"})
"""Methods of a module that give the module."""
_PARTS = frozenset(
    "parameters named_parameters buffers named_buffers modules named_modules children named_children state_dict".split()
)


_MOVING = frozenset("appendleft insert extendleft remove reverse sort rotate discard clear".split())
"""Methods of lists and queues after which another element may be the first."""

_OF_NO_NUMBER = _TENSOR_METHODS | apis.SCALAR_METHODS | {"detach"}
"""Whoever is asked for one of these is neither None nor a number: a total that starts at zero is a tensor by then."""


class Methods(Hooks):
    """Method calls, by what the receiver is."""

    if TYPE_CHECKING:  # further down the chain
        host_waits: bool
        waiting: set[FunctionUnit]

        def call_api(self, name: str, call: Call, st: State) -> Value: ...

        @staticmethod
        def threads_done(st: State) -> None: ...

        def behind(
            self, unit: FunctionUnit, value: Value, st: State, *, registering: bool = False
        ) -> Value: ...

        def do_saved_tensors_hooks(self, call: Call, st: State) -> Value: ...

        def do_new_object(self, call: Call, st: State) -> Value: ...

        def class_of_method(self, name: str, call: Call) -> ClassUnit | None: ...

        def materialized(self, value: Opaque, unit: ClassUnit, st: State) -> Value: ...

    # -- methods -------------------------------------------------------------------------------------------------

    def call_method(self, receiver: Value, name: str, call: Call, st: State) -> Value:
        """``receiver.name(...)``."""
        receiver = self.one_row(receiver, st, call.node, Instance)
        choices = alternatives(receiver, st.path)
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
            optimizes = any(isinstance(v, Opaque) and _optimizes(v, st) for v, _ in choices)
            if (
                (kinds <= {Tensor, Opaque} and not built and not keyed and not optimizes)
                or kinds <= {Stream}
                or kinds <= {Event}
            ):
                return self._joint_method(receiver, choices[0][0], name, call, st)
            # of None it would fail; what is not known, out of a pool perhaps, is like the others
            there = [(v, g) for v, g in choices if v != NONE and not _is_unknown(v)]
            if there and all(isinstance(v, Event) for v, _ in there) and name in apis.EVENT_METHODS:
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
            return PLAIN
        if isinstance(receiver, Function):
            return self.unmodelled(receiver, call, st)
        if name in HOOK_REGISTRATIONS:  # of a node of the graph, say
            return self.register_hooks(name, call, st, receiver)
        if type(receiver) is Value and name in ("wait", "synchronize"):
            self.host_learns_everything(st, call.site)  # of an object that is not known
            return UNKNOWN
        return self.unmodelled(receiver, call, st, name)

    def hand_over(self, name: str, call: Call, st: State) -> Value:
        """Somebody on the host is given something; with the event to wait for he may wait."""
        if not self.carries_event(call.args, st):
            self.hand_to_host(st, call.args, call.site, f"{name}()")
        return UNKNOWN

    def _work_method(self, work: Work, name: str, call: Call, st: State) -> Value:
        if name == "wait":
            self.wait_event(
                st, Event(work.name), None, "torch", call.site
            )  # comm -> cur, not the host (TD-02)
        elif name == "synchronize":
            self.wait_event(st, Event(work.name), None, "torch", call.site)
        return UNKNOWN

    def _context_method(self, context: Context, name: str, call: Call, st: State) -> Value:
        if context.kind == "stack" and name in ("callback", "push_async_callback") and call.args:
            later = Partial(call.args[0], tuple(call.args[1:]), tuple(call.kwargs.items()))
            self.extend_container(st, context.payload[0], Tuple((later,)))
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
                    self.extend_container(st, context.payload[0], Tuple((value,)))
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
        held = stack.payload[0] if stack.payload else NONE
        items = (sequences.items(st, held) if isinstance(held, Container) else None) or []
        if isinstance(held, Container):
            sequences.put(st, held, [])
        for item in reversed(items):
            if st.dead:
                return
            if isinstance(item, Generator):
                self.advance(item, st)
            elif isinstance(item, (Instance, Context)):
                arguments: list[Value] = [NONE, NONE, NONE]
                self._method(item, "__exit__", Call(call.node, call.site, arguments), st)
            else:
                self.call_value(item, Call(call.node, call.site), st)
        for library in ("torch", "cupy"):
            outside = (
                st.store.get((held.name, f"@outside {library}")) if isinstance(held, Container) else None
            )
            if outside is not None:
                st.current[library] = outside

    def _enter_on_stack(self, stack: Context, given: Value, call: Call, st: State) -> Value | None:
        """A context manager of the file is entered by an ``ExitStack``; None for those of libraries."""
        held = stack.payload[0] if stack.payload else NONE
        value: Value | None = None
        if isinstance(held, Container) and sequences.items(st, held) == []:
            self.remember_current(held, st)
        if isinstance(given, Generator):
            value = self.advance(given, st)
        elif isinstance(given, Instance) and self.own_method(given, "__enter__"):
            value = self._method(given, "__enter__", Call(call.node, call.site), st)
        elif isinstance(given, Stream):
            given = Context("stream", (given,))
        if isinstance(given, (Generator, Instance, Context)):
            self.extend_container(st, held, Tuple((given,)))
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
        if name in _PARTS:
            return Opaque(receiver.name.child(f"{name}()"))
        if name == "register_buffer" and len(call.args) >= 2 and isinstance(call.args[0], Const):
            for value in iterate(call.args[1]):
                if isinstance(value, (Tensor, Opaque)):
                    self.goes_with_module(value, st)
            self.set_attribute(receiver, str(call.args[0].value), call.args[1], st, call.node)
            return NONE
        if name in _MODULE_ITSELF or name == "__init__":
            if name in ("cuda", "to"):
                for target, _ in self.tensors(st, receiver):
                    if self.place(st, target) == "pageable" or (target.name, "@goes along") in st.store:
                        self.set_place(st, target, "device")
                units = self.ancestry(receiver.unit)
                if call.node is self.alone and any(
                    base.endswith("Module") for u in units for base in u.bases
                ):
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

    def is_thread(self, value: Instance) -> bool:
        """Whether an object is a thread of a class of the file."""
        return any(base.rpartition(".")[2] == "Thread" for u in self.ancestry(value.unit) for base in u.bases)

    def _container_method(self, receiver: Container, name: str, call: Call, st: State) -> Value:
        if receiver.kind == "variable":
            if name == "set" and call.args:
                st.store[(receiver.name, "value")] = call.args[0]
            return (
                st.store.get((receiver.name, "value"), *call.args[:1]) or UNKNOWN
                if name == "get"
                else UNKNOWN
            )
        if receiver.kind == "queue":
            if name in ("put", "put_nowait"):
                if not self.carries_event(call.args, st):
                    self.hand_to_host(st, call.args, call.site, "put()")
                self.extend_container(st, receiver, Tuple(tuple(call.args[:1])))
                if self.calling is not None:  # who takes it out has heard from that stream
                    st.order.obey(
                        [Edge(receiver.name, s.name) for s, _ in self.streams(st, "cupy", self.calling)]
                    )
                return NONE
            if name in ("get", "get_nowait"):
                st.order.obey([Edge(HOST, receiver.name)])
                if sequences.length(st, receiver) == 0:
                    self.host_waits = True
                return self.take(receiver, 0, st)
            return UNKNOWN
        if name in _MOVING:
            sequences.set_front(st, receiver, None)
        if name in ("append", "add", "appendleft", "insert", "put", "push"):
            known = sequences.items(st, receiver)
            at_front = name == "appendleft" or (name == "insert" and call.args[:1] == [Const(0)])
            if name not in ("append", "put", "push") and not (at_front and known is not None):
                sequences.blur(st, receiver)
            for value in call.args[-1:]:
                self.keep_output(st, receiver, self.held(receiver, st), value, call.site)
            self.extend_container(st, receiver, Tuple(tuple(call.args[-1:])))
            grown = sequences.items(st, receiver)
            if at_front and grown is not None:
                sequences.put(st, receiver, [*grown[-1:], *grown[:-1]])
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
                self.add_items(receiver, value, st)
            for key, value in call.kwargs.items():
                self.store_element(receiver, Const(key), value, st)
            return NONE
        if name in ("extend", "update", "extendleft"):
            for value in call.args:
                self.extend_container(st, receiver, value)
            for key, value in call.kwargs.items():
                self.store_element(receiver, Const(key), value, st)
            return NONE
        if name in ("pop", "popleft", "popitem"):
            st.store[(receiver.name, "@taken from")] = PLAIN
        if name in ("pop", "popleft", "popitem"):
            position = -1 if name == "pop" and not call.args else 0 if name == "popleft" else None
            if call.args and isinstance(call.args[0], Const) and type(call.args[0].value) is int:
                position = call.args[0].value
            if receiver.kind != "dict":
                value = self.take(receiver, position, st)
                self.lose(st, value)
                return value
            index = call.args[0] if call.args else UNKNOWN
            value = self._element(receiver, index, st)
            if name == "pop" and receiver.kind == "dict":
                self.drop_element(receiver, index, st)
            self.lose(st, value)
            return value
        if name in ("clear",):
            for value in self.held(receiver, st):
                self.lose(st, value)
            for held in [k for k in st.store.of(receiver.name) if not str(k).startswith("@")]:
                del st.store[(receiver.name, held)]
            if receiver.kind != "dict":
                st.store[(receiver.name, "@length")] = Const(0)
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

    def take(self, container: Container, position: int | None, st: State) -> Value:
        """An element leaves a list or a queue; some element where its position is not known."""
        known = sequences.items(st, container)
        first = sequences.front(st, container) if position == 0 else None
        sequences.set_front(st, container, None)
        if known is None or position is None or not -len(known) <= position < len(known):
            value = first or self.any_element(container, st)
            sequences.blur(st, container)
            return value
        value = known.pop(position)
        sequences.put(st, container, known)
        return value

    @staticmethod
    def carries_event(values: list[Value], st: State) -> bool:
        """Whether something is handed over together with the event or stream to wait for, or what holds the event."""
        flat = [v for value in values for v in iterate(value)]
        flat += [
            v for value in flat if isinstance(value, Tuple) for item in value.items for v in iterate(item)
        ]
        held = [
            v
            for value in flat
            if isinstance(value, Instance)
            for attribute in st.store.of(value.name).values()
            for v in iterate(attribute)
        ]
        return any(isinstance(v, (Event, Stream)) for v in flat) or any(isinstance(v, Event) for v in held)

    def drop_element(self, container: Container, key: Value, st: State) -> None:
        """An element leaves a dict."""
        index = walks.key_of(key)
        if not walks.is_unsure(index):
            st.store.pop((container.name, index), None)

    def step_in_capture(self, st: State, receiver: Opaque, name: str, site: Site) -> None:
        """A step that needs the host, inside a capture."""
        if name == "load_state_dict":
            st.store.pop((receiver.name, "@uncapturable"), None)  # it brings the groups' settings along
        if st.capture is None or name not in ("step", "update"):
            return
        made_at = st.store.get((receiver.name, "@uncapturable"))
        notes = [("capturing since here", st.capture.site)]
        if _scales(receiver, st):
            assumed = Assumed.NOTHING if (receiver.name, "@scaler") in st.store else Assumed.UNMODELLED
            self.violation(st, "uncapturable-step", site, f"{name}() of a gradient scaler", notes, assumed)  # type: ignore[arg-type]
        elif name == "step" and isinstance(made_at, Const):
            notes.append(("made here, without capturable=True", made_at.value))
            self.violation(st, "uncapturable-step", site, "step()", notes)  # type: ignore[arg-type]

    # -- objects of unknown kind ---------------------------------------------------------------------------------

    def opaque_method(self, receiver: Opaque, name: str, call: Call, st: State) -> Value:
        """A method of an object of unknown kind: its name may tell what it is."""
        if name in apis.OPAQUE_STREAM_METHODS:
            if name in ("begin_capture", "end_capture") and self.default_library != "cupy":
                pass
            call.args.insert(0, Stream(receiver.name, self.default_library))
            self.table_known(receiver.name)
            return self.verb(apis.STREAM_METHODS[name], call, st)
        if name in ("capture_begin", "capture_end", "replay"):
            call.args.insert(0, Graph(receiver.name))
            return self.verb(apis.GRAPH_METHODS[name], call, st)
        made = self.array_maker(receiver, name, call, st)
        if made is not None:
            return made
        if _optimizes(receiver, st):
            self.step_in_capture(st, receiver, name, call.site)
            if name == "step" or name in ("unscale_", "clip_grad_norm_"):
                for closure in call.everything() if name == "step" else ():
                    if isinstance(closure, (Function, Partial)):  # it does the backward pass
                        self.call_value(closure, Call(call.node, call.site), st)
                whose = call.everything()[:1] if _scales(receiver, st) else [receiver]
                self.use_of_gradients(st, call.site, f"{name}()", whose)
                return UNKNOWN
            if name == "zero_grad":
                return self.tensor_zero_grad(receiver, call, st)
            if name in ("update", "state_dict", "load_state_dict", "add_param_group"):
                return UNKNOWN
            if name == "scale":
                return call.args[0] if call.args else UNKNOWN
        if (receiver.name, "@thread") in st.store:
            return self._thread_method(receiver, name, call, st)
        if (
            name == "submit"
            and call.args
            and (
                isinstance(call.args[0], (Api, Function, Partial, Method)) or self.is_bound(call.args[0], st)
            )
        ):
            syncs = self.waits
            with self.handed_to_thread(call.args[0], call.args[1:], "submit()", call, st):
                future = Partial(
                    FUTURE, (self.in_thread(call.args[0], call.args[1:], call.kwargs, call, st),), ()
                )
            if self.waits > syncs:
                st.threads = st.threads | {call.site: None}
            return future
        if name == "load_state_dict" and st.graphs and call.kwargs.get("assign") == Const(True):
            self.replaced_memory(st, receiver.name, UNKNOWN, call.site)
        if name in ("shutdown", "result"):
            self.threads_done(st)
        if (receiver.name, "@executor") in st.store and name == "map":
            with self.handed_to_thread(call.get(0, "fn") or UNKNOWN, call.args[1:], "map()", call, st):
                return self.mapped_in_threads(call, st)
        if name == "run_in_executor" and len(call.args) > 1:
            return self.in_thread(call.args[1], call.args[2:], call.kwargs, call, st)
        if (receiver.name, "@executor") in st.store and name == "submit":
            with self.handed_to_thread(call.get(0, "fn") or UNKNOWN, call.args[1:], "submit()", call, st):
                return UNKNOWN
        if name in apis.HANDING_METHODS and (call.args or call.starred):
            if name == "write" and st.capture is None and spelled(apis.FILE_NAME, _called_on(call)):
                self.synchronize_stream(st, None, "torch", call.site)  # by then it is on the host
            return self.hand_over(name, call, st)
        if name in apis.LOGGING_METHODS and spelled(apis.LOGGER, str(receiver.name.site)):
            for value in call.args:
                self.read_on_host(st, value, call.site, f"{name}()")
            return NONE
        if name == "__new__" and receiver.name.site == "super()":
            return self.do_new_object(call, st)
        if name == "__init__" and receiver.name == Name("super()", (apis.PACKS,)):
            return self.do_saved_tensors_hooks(call, st)
        if name in ("copy_from", "copy_to") and self.default_library == "cupy" and call.args:
            return self.texture_copy(receiver, name, call, st)
        if name.startswith("register_forward"):
            return self.keep_forward_hook(receiver, name, call, st)
        if name in HOOK_REGISTRATIONS or name == apis.AFTER_PASS:
            return self.register_hooks(name, call, st, receiver)
        held = st.store.get((receiver.name, name))
        if held is not None:
            return self.call_value(held, call, st)
        if name in apis.DEVICE_MODULE_METHODS and self._is_device_module(receiver, name, call):
            return self.verb(apis.DEVICE_MODULE_METHODS[name], call, st)
        recorded = (receiver.name, "@recorded") in st.store or receiver.name in self.own_events
        if name in apis.EVENT_METHODS and (receiver.name in self.carriers or recorded):
            if recorded:
                call.args.insert(0, Event(receiver.name))
                return self.verb(apis.EVENT_METHODS[name], call, st)
            if name in apis.STREAM_METHODS:
                call.args.insert(0, Stream(receiver.name, self.default_library))
                return self.verb(apis.STREAM_METHODS[name], call, st)
        if name == "record" and _event_like(receiver.name):
            call.args.insert(0, Event(receiver.name))
            return self.verb("event_record", call, st)
        if name in ("wait", "synchronize", "query") and _event_like(receiver.name):
            call.args.insert(0, Event(receiver.name))
            return self.verb(apis.EVENT_METHODS[name], call, st)
        if name in ("synchronize", "query") and _stream_like(receiver.name):
            call.args.insert(0, Stream(receiver.name, self.default_library))
            return self.verb(apis.STREAM_METHODS[name], call, st)
        unit = self.class_of_method(name, call)
        if unit is not None:
            instance = self.materialized(receiver, unit, st)
            return self.call_method(instance, name, call, st)
        if name in ("resize_",) and receiver.name.site == "storage":
            return self.tensor_resize(receiver, call, st)
        if name in apis.SCALAR_METHODS and (receiver.name, "@built") in st.store:
            return PLAIN  # a method of that class, which knows what it waits for
        if name in _TENSOR_METHODS or name in apis.SCALAR_METHODS:
            if name in ("get", "set", "copy"):
                return self._mapping_or_array(receiver, name, call, st)
            return self.tensor_method(receiver, name, call, st)
        if name in _PARTS:
            return Opaque(receiver.name.child(f"{name}()"))
        mapping = name in ("items", "keys", "values") and not call.args  # no tensor has the first two
        keeps = name == "add" and any(
            isinstance(v, (Instance, Class, Function, Stream, Event)) for a in call.args for v in iterate(a)
        )
        if mapping or keeps:
            return self._walked_or_kept(receiver, name, call, st)
        if name in apis.ARITHMETIC_METHODS and not self.is_plain(receiver.name):
            if (
                call.args
                or name not in ("half", "float", "double", "bfloat16", "type", "int", "long", "bool")
                or receiver.name in st.order.made
            ):
                self.tensor_rows.add(receiver.name.base())
                self.mark_tensor(st, receiver)
        foreign = self.is_function(name, call, st) or not (
            name in apis.TENSOR_METHODS
            or name.endswith("_")
            or spelled(apis.METADATA_NAME, name)
            or self.default_library == "cupy"
        )
        if not foreign and call.args and name in apis.VIEW_METHODS:
            base = receiver.name.base()
            foreign = base in self.asked_otherwise and base not in self.tensorish
        if foreign:
            self.asked_otherwise.add(receiver.name.base())
        if name in ("wait", "wait_for"):
            self.host_waits = True
        if name == "barrier" and self.is_tensor(st, receiver):
            return UNKNOWN  # of a handle of memory that several devices share: among these
        if name in apis.ORDERING_METHODS and not _text_method(receiver.name, name):
            self.host_learns_everything(st, call.site)
            return Opaque(self.fresh(call.node, st, name))
        shown = not foreign or receiver.name.base() not in self.presumed
        if (shown and self.is_tensor(st, receiver)) or (
            receiver.name in st.order.made
            and receiver.name.base() in self.results
            and name in apis.TENSOR_METHODS
        ):
            return self.tensor_method(receiver, name, call, st)
        if name == "size":
            return self.size_of(receiver, call, st)
        if name in ("dim", "numel", "is_contiguous", "stride", "element_size", "data_ptr"):
            if call.everything():
                return PLAIN
            # not known, but the same each time
            asked = Opaque(receiver.name.child(f"{name}()"), part=receiver.part)
            self.plain.add(asked.name.base())
            return asked
        if name in apis.VIEW_METHODS and not foreign and name not in ("split", "view", "select", "storage"):
            return self.viewed(receiver, name, call, st)
        if name.endswith("_") and not name.startswith("_") and len(name) > 2:
            self.mark_tensor(st, receiver)
            return self.tensor_method(receiver, name, call, st)
        if (
            name in ("eval", "train", "requires_grad_", "half", "float", "bfloat16", "double")
            and not call.args
        ):
            return receiver
        if name in ("append", "add", "appendleft", "insert"):
            return self._walked_or_kept(receiver, name, call, st)
        if name in ("pop", "popleft", "get", "get_nowait", "recv"):
            held = st.store.get((receiver.name, "*"))
            return held if held is not None else Opaque(self.fresh(call.node, st, name))
        return self.unmodelled(receiver, call, st, name)

    def is_function(self, name: str, call: Call, st: State) -> bool:
        """Whether what is called like a view of a tensor is a function of a module: it is given tensors."""
        return (
            name in apis.VIEW_METHODS
            and not name.endswith("_as")
            and any(
                isinstance(t, Tensor) or self.is_tensor(st, t)
                for a in call.args
                if not isinstance(a, Const)
                for t, _ in self.tensors(st, a)
            )
        )

    def _walked_or_kept(self, receiver: Opaque, name: str, call: Call, st: State) -> Value:
        """What a mapping holds, or something that a list or a set of unknown making keeps."""
        if name == "items":
            return Partial(Api("builtins.items"), (receiver,), ())
        if name == "keys":
            return Opaque(receiver.name.child("keys()"))
        if name == "values":
            return receiver
        for value in call.args[-1:]:
            old = st.store.get((receiver.name, "*"))
            st.store[(receiver.name, "*")] = union([*([(old, ALWAYS)] if old else []), (value, ALWAYS)])
        return NONE

    def _is_device_module(self, receiver: Opaque, name: str, call: Call) -> bool:
        text = str(receiver.name.site).lower()
        if name in (
            "Stream",
            "current_stream",
            "default_stream",
            "set_stream",
            "StreamContext",
            "is_current_stream_capturing",
        ):
            return True
        return any(
            word in text for word in ("device", "accelerator", "platform", "module", "backend", "cuda")
        )

    def _thread_method(self, receiver: Opaque | Instance, name: str, call: Call, st: State) -> Value:
        target, items = self._thread_target(receiver, st)
        if name == "start":
            syncs = self.waits
            result: Value = NONE
            with self.handed_to_thread(target or UNKNOWN, items, "start()", call, st):
                if target is not None and self.would_wait(target, items, call, st):
                    self.waiting.update(v.unit for v in iterate(target) if isinstance(v, Function))
                    st.store[(receiver.name, "@waiting")] = PLAIN
                elif target is not None:
                    result = self.in_thread(target, items, {}, call, st)
            if self.waits > syncs:
                st.threads = st.threads | {call.site: None}
            return result
        if name == "join":
            if st.store.pop((receiver.name, "@waiting"), None) is not None and target is not None:
                self.in_thread(target, items, {}, call, st)
            self.threads_done(st)
        return NONE

    @contextmanager
    def handed_to_thread(
        self, target: Value, values: list[Value], text: str, call: Call, st: State
    ) -> Iterator[None]:
        """Another thread is given something, which it reads; where its function is seen, unless that waits before."""
        bound = [v for v in iterate(target) if isinstance(v, Partial)]
        values = [*values, *(v for given in bound for v in given.args)]
        functions = [v.function if isinstance(v, Partial) else v for v in iterate(target)]
        seen = all(isinstance(v, Function) for v in functions)
        if not seen and not self.carries_event(values, st):
            self.hand_to_host(st, values, call.site, text)
        yield
        if seen and not self.carries_event(values, st):
            self.hand_to_host(st, values, call.site, text)

    def _thread_target(self, thread: Opaque | Instance, st: State) -> tuple[Value | None, list[Value]]:
        """What a thread runs, and with what: the function that it was given, or its class's ``run``."""
        if isinstance(thread, Instance):
            return self.own_method(thread, "run"), []
        arguments = st.store.get((thread.name, "args"), NONE)
        return st.store.get((thread.name, "target")), list(arguments.items) if isinstance(
            arguments, Tuple
        ) else []

    @staticmethod
    def is_bound(value: Value, st: State) -> bool:
        """Whether an attribute of an object of unknown kind is a method, as its name or the object's tells."""
        if not isinstance(value, Opaque) or value.name.parent is None:
            return False
        name = value.name.site
        if (value.name.parent, name) in st.store:
            return False  # something has been assigned to it
        return name in LIBRARY_METHODS or (name == "step" and _optimizes(Opaque(value.name.parent), st))

    def would_wait(self, target: Value, arguments: list[Value], call: Call, st: State) -> bool:
        """Whether a thread that starts here waits for what others do: it goes on when it is joined."""
        before, self.host_waits = self.host_waits, False
        self.silent += 1
        explained, self.explained = self.explained, None
        self.in_thread(target, arguments, {}, call, st.copy())
        self.explained = explained
        self.silent -= 1
        waits, self.host_waits = self.host_waits, before
        return waits


LIBRARY_METHODS = frozenset(
    {*_TENSOR_METHODS, *apis.STREAM_METHODS, *apis.EVENT_METHODS, *apis.GRAPH_METHODS, *apis.VIEW_METHODS}
    | apis.METADATA_METHODS
    | apis.SCALAR_METHODS
    | apis.BLOCKING_METHODS
    | apis.ARITHMETIC_METHODS
)
"""Methods of streams, events, graphs and tensors."""

_TEMPLATES = ("_{}_impl", "{}_impl", "_do_{}", "_{}")
"""How a class of the file names its own part of a method that an unseen base has."""


def _last_word(name: Name) -> str:
    for part in name.chain():
        if isinstance(part.site, str) and part.site != EACH:
            return part.site.lower()
    return ""


def _optimizes(value: Opaque, st: State) -> bool:
    """Whether an object is an optimizer, or a scaler of gradients, as it was made or by its name."""
    text = _last_word(value.name)
    return (value.name, "@optimizer") in st.store or (
        (
            "optim" in text
            or text in ("scaler", "scalers", "grad_scaler")
            or spelled(apis.OPTIMIZER_NAME, text)
        )
        and "scheduler" not in text
    )


def _scales(value: Opaque, st: State) -> bool:
    """Whether an optimizer is a scaler of gradients, as it was made or by its name."""
    named = "scaler" in _last_word(value.name) and (value.name, "@optimizer") not in st.store
    return named or (value.name, "@scaler") in st.store


def _event_like(name: Name) -> bool:
    text = _last_word(name)
    return (
        "event" in text
        or text.endswith(("_evt", "_done", "_ready"))
        or text in ("evt", "ev", "done", "ready")
    )


def _stream_like(name: Name) -> bool:
    return "stream" in _last_word(name)


def _text_method(name: Name, method: str) -> bool:
    """``", ".join(...)`` and its like are no waits."""
    return (
        method in ("join", "flush") and "thread" not in _last_word(name) and "process" not in _last_word(name)
    )


def _is_unknown(value: Value) -> bool:
    """Whether nothing is known of a value, or of what it is an attribute of."""
    while isinstance(value, Method):
        value = value.receiver
    return type(value) is Value


def _called_on(call: Call) -> str:
    """The name by which a method's object goes at its call."""
    base = getattr(getattr(call.node, "func", None), "value", None)
    word = getattr(getattr(base, "attr", base), "value", "")
    return word if isinstance(word, str) else ""
