"""Context managers: what runs when a ``with`` block is entered and left, or when their methods are called."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import libcst as cst

from streamsafe.order.symbolic import ALWAYS, Guard
from streamsafe.static import fields, sequences
from streamsafe.static.facts import AMBIENT, Site
from streamsafe.static.state import State
from streamsafe.static.transfer.devices import CURRENT
from streamsafe.static.transfer.part import Part
from streamsafe.static.transfer.tensors import Call
from streamsafe.static.values import (
    MOST_STACKED,
    NONE,
    PLAIN,
    UNKNOWN,
    Const,
    Container,
    Context,
    Device,
    Event,
    Function,
    Generator,
    Instance,
    Name,
    Object,
    Opaque,
    Partial,
    Stream,
    Union,
    Value,
    Work,
    alternatives,
    iterate,
    most,
    union,
)


class Contexts(Part):
    """Runs ``with`` blocks, and what enters and leaves a context without one."""

    def within(
        self, manager: Value, st: State, node: cst.CSTNode, body: Callable[[Value, State], None]
    ) -> None:
        """``with manager: body``; in the block autograd packs the tensors that it saves, if the manager says how."""
        with self.hooks.packing(manager, st):
            self._within_manager(manager, st, node, body)

    def _within_manager(
        self, manager: Value, st: State, node: cst.CSTNode, body: Callable[[Value, State], None]
    ) -> None:
        """``with manager: body``."""
        choices = alternatives(manager, st.path)
        kinds = [self.as_context(v) for v, _ in choices]
        if any(isinstance(v, Generator) for v in kinds):
            if len(kinds) == 1:
                generator = kinds[0]
                assert isinstance(generator, Generator)
                self._within_generator(generator, st, node, body)
                return
            self.calls.each_way([(v, g, partial(self._within, v, node, body)) for v, g in choices], st)
            return
        contexts = [(v, g) for v, (_, g) in zip(kinds, choices, strict=True)]
        if len(contexts) == 1 and isinstance(contexts[0][0], Instance):
            self._within_instance(contexts[0][0], st, node, body)
            return
        if any(isinstance(v, Context) and v.kind in ("capture", "raises") for v, _ in contexts):
            if len(contexts) > 1:
                self.calls.each_way([(v, g, partial(self._within, v, node, body)) for v, g in contexts], st)
            elif contexts[0][0].kind == "capture":  # type: ignore[attr-defined]
                self.within_capture(contexts[0][0], st, node, body)  # type: ignore[arg-type]
            else:
                failed = st.copy()
                self.run.silent += 1
                body(UNKNOWN, failed)
                self.run.silent -= 1
                if failed.capture is None:
                    st.leave_capture()
            return
        before, capturing = dict(st.current), st.capture is not None
        stack = any(isinstance(v, Context) and v.kind == "stack" for v, _ in contexts)
        only = contexts[0][0] if len(contexts) == 1 else None
        if isinstance(only, Context) and only.kind == "device":
            self.library.enter_device(only, st)
        self.enter_streams(contexts, st)
        outside = st.store.get((CURRENT, fields.STREAMS_DEVICE))
        device = dict(only.options).get("device") if isinstance(only, Context) else None
        if device is not None:
            st.store[(CURRENT, fields.STREAMS_DEVICE)] = device
        value = self._entered_value(manager, contexts)
        entered = any(isinstance(v, Context) and v.kind in ("stream", "device", "stack") for v, _ in contexts)

        def leave(state: State) -> None:
            call = Call(node, self.call_stack.site(node))
            left: dict[str, Value] = {}
            for context, _ in contexts:
                if isinstance(context, Context) and context.kind == "stack":
                    self.leave_stack(context, state, call)
                    left = {k: v for k, v in state.current.items() if k != "device"}
                elif isinstance(context, Context) and context.kind == "closing" and context.payload:
                    self.methods.call_method(context.payload[0], "close", call, state)
                elif isinstance(context, Opaque) and state.store.marked(context.name, fields.EXECUTOR):
                    self.methods.call_method(context, "shutdown", call, state)
            if stack and not capturing and state.capture is not None:  # a capture was put on the stack
                self.captures.capture_end(state, self.call_stack.site(node))
            if entered:  # what any other context was left with stays: a stream that was set
                state.current = {**before, **left}
            if device is not None:
                state.store[(CURRENT, fields.STREAMS_DEVICE)] = UNKNOWN if outside is None else outside
            for work, _ in contexts:
                if isinstance(work, Work) and (work.name, fields.COALESCED_ON) in state.store:
                    stream = state.store[(work.name, fields.COALESCED_ON)]
                    self.effects.record(state, Event(work.name), stream, "torch", self.call_stack.site(node))

        devices = [v for v, _ in contexts if isinstance(v, Device)]
        self.run.default_devices += devices[:1]
        self.run.inside += 1
        with self.call_stack.exits(leave):
            body(value, st)
        self.run.inside -= 1
        del self.run.default_devices[len(self.run.default_devices) - len(devices[:1]) :]
        leave(st)

    def _within_generator(
        self, generator: Generator, st: State, node: cst.CSTNode, body: Callable[[Value, State], None]
    ) -> None:
        """Where every way through the block returns, what stands behind the ``yield`` runs before anybody goes on."""
        activation = self.run.stack[-1]
        left: list[Value] = []

        def consume(value: Value, state: State) -> Value:
            before, activation.returns = activation.returns, []
            body(value, state)
            returns, activation.returns = activation.returns, before
            if state.dead and returns:
                left.append(self.calls.join_values(returns, state))
                activation.temporaries.append(left[-1])
            else:
                before.extend(returns)
            return UNKNOWN

        self.comprehensions.run_generator(generator, st, node, consume)
        if left and not st.dead:
            activation.returns.append((st.copy(), union((v, ALWAYS) for v in left)))
            st.dead = True

    def _within(
        self, manager: Value, node: cst.CSTNode, body: Callable[[Value, State], None], st: State
    ) -> Value:
        self.within(manager, st, node, body)
        return NONE

    def as_context(self, value: Value) -> Value:
        """A context manager as the context that it makes current."""
        if isinstance(value, Stream):
            return Context("stream", (value,))
        return value

    def _entered_value(self, manager: Value, contexts: list[tuple[Value, Guard]]) -> Value:
        first = contexts[0][0] if contexts else UNKNOWN
        if isinstance(first, Context):
            if first.kind in ("nothing", "closing") and first.payload:
                return first.payload[0]
            if first.kind in ("stack", "device"):
                return first
            if first.kind == "stream" and isinstance(manager, Stream):
                return manager
            return NONE
        return manager if isinstance(manager, Object) else UNKNOWN

    def enter_streams(self, contexts: list[tuple[Value, Guard]], st: State) -> None:
        """Makes the streams of contexts current, each under its guard."""
        for library in ("torch", "cupy"):
            before = self.effects.current(st, library)
            found: list[tuple[Value, Guard]] = []
            touched = False
            for context, guard in contexts:
                streams = (
                    list(alternatives(self.conditions.exclusive(st, context.payload[0]), st.path))
                    if isinstance(context, Context) and context.kind == "stream"
                    else []
                )
                own = [(s, g) for s, g in streams if isinstance(s, Stream) and s.library == library]
                other = [(s, g) for s, g in streams if not (isinstance(s, Stream) and s.library == library)]
                touched = touched or bool(own)
                found.extend((s, guard & g) for s, g in own if not guard.contradicts(g))
                found.extend((before, guard & g) for _, g in other if not guard.contradicts(g))
                if not streams:
                    found.append((before, guard))
            if touched:
                st.current[library] = self.conditions.exclusive(st, union(found))

    def _within_instance(
        self, instance: Instance, st: State, node: cst.CSTNode, body: Callable[[Value, State], None]
    ) -> None:
        enter = self.class_members.find_method(instance.unit, "__enter__") or self.class_members.find_method(
            instance.unit, "__aenter__"
        )
        leave_method = self.class_members.find_method(
            instance.unit, "__exit__"
        ) or self.class_members.find_method(instance.unit, "__aexit__")
        stream = self.kernel_launches.stream_of(instance) if enter is None else None
        if stream is not None:
            self.within(stream, st, node, body)
            return
        value: Value = instance
        if enter is not None:
            value = self.functions.call_function(Function(enter, None, instance), [], {}, st, node)

        def leave(state: State) -> None:
            if leave_method is not None and not state.dead:
                self.functions.call_function(
                    Function(leave_method, None, instance), [NONE, NONE, NONE], {}, state, node
                )

        with self.call_stack.exits(leave):
            if not st.dead:
                body(value, st)
        leave(st)

    def within_capture(
        self, context: Context, st: State, node: cst.CSTNode, body: Callable[[Value, State], None]
    ) -> None:
        """Runs a block in which a graph is captured."""
        site = self.call_stack.site(node)
        before = dict(st.current)
        self.enter_capture(context, st, site)

        def leave(state: State) -> None:
            self.captures.capture_end(state, site)
            state.current = dict(before)

        self.run.inside += 1
        with self.call_stack.exits(leave):
            body(context.payload[0], st)
        self.run.inside -= 1
        if not st.dead:
            leave(st)

    def enter_capture(self, context: Context, st: State, site: Site) -> None:
        """``torch.cuda.graph.__enter__``: on a stream of its own, if none is given."""
        graph, stream = context.payload[0], context.payload[1]
        mode = self.captures.capture_mode(dict(context.options).get("mode"))
        if st.capture is None:
            self.effects.host_learns_everything(st, site)  # it synchronizes the device (GC-18)
        side: Value = Stream(Name("the capture stream", ()))
        if stream != NONE and stream is not None:
            side = self.effects.as_stream(stream, "torch")
            if isinstance(side, Union):  # whichever it is, it is one stream
                side = next((v for v in iterate(side) if isinstance(v, Stream) and v.name != AMBIENT), side)
        self.streams.enter_stream(st, side, "torch")
        self.captures.capture_begin(st, graph, None, mode, "torch", site)

    # -- calls of their methods, and stacks of contexts ----------------------------------------------------------

    def context_method(self, context: Context, name: str, call: Call, st: State) -> Value:
        """A method of a context manager or of a stack of them."""
        if context.kind == "stack" and name in ("callback", "push_async_callback") and call.args:
            later = Partial(call.args[0], tuple(call.args[1:]), tuple(call.kwargs.items()))
            self._stack_up(context, later, st)
            return call.args[0]
        if context.kind == "stack" and name in ("close", "aclose", "__exit__", "__aexit__"):
            self.leave_stack(context, st, call)
            return NONE
        if name in ("enter_context", "enter_async_context", "__enter__", "push"):
            value = self.as_context(call.args[0]) if call.args else context
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
                library = self.streams.stream_library(stream)
                if isinstance(stream, Stream):
                    st.store[(stream.name, fields.STREAM_BEFORE)] = self.effects.current(st, library)
                self.streams.enter_stream(st, stream, library)
            elif isinstance(value, Context) and value.kind == "capture":
                self.enter_capture(value, st, call.site)
            elif isinstance(value, Union):
                self.enter_streams([(self.as_context(v), g) for v, g in alternatives(value, st.path)], st)
            return UNKNOWN
        if name == "__exit__" and context.kind == "stream":
            stream = context.payload[0]
            library = self.streams.stream_library(stream)
            outside = (
                st.store.get((stream.name, fields.STREAM_BEFORE)) if isinstance(stream, Stream) else None
            )
            if outside is None:
                st.current.pop(library, None)
            else:
                st.current[library] = outside
            return NONE
        if name == "synchronize" and context.kind == "device":
            return self.library.synchronize_one(context, call, st)
        if name == "use" and context.kind == "device":
            self.library.enter_device(context, st)
            return context
        return UNKNOWN

    def leave_stack(self, stack: Context, st: State, call: Call) -> None:
        """What an ``ExitStack`` has collected is called, the last first."""
        held = stack.payload[0]
        assert isinstance(held, Container)

        def leave(item: Value, state: State) -> Value:
            if isinstance(item, Generator):
                self.comprehensions.advance(item, state)
            elif isinstance(item, (Instance, Context)):
                arguments: list[Value] = [NONE, NONE, NONE]
                self.methods.method_of(item, "__exit__", Call(call.node, call.site, arguments), state)
            elif item != NONE:
                self.calls.call_value(item, Call(call.node, call.site), state)
            return NONE

        for position in reversed(range(self._stacked(held, st) or 0)):
            if st.dead:
                return
            ways = alternatives(st.store.get((held.name, position), NONE), st.path)
            if len(ways) == 1:
                leave(ways[0][0], st)
            else:
                self.calls.each_way([(item, guard, partial(leave, item)) for item, guard in ways], st)
        sequences.put(st, held, [NONE] * MOST_STACKED)
        st.store[(held.name, fields.STACK_DEPTH)] = Const(0)
        for library in ("torch", "cupy"):
            outside = st.store.get((held.name, fields.STREAM_BEFORE.of(library)))
            if outside is not None:
                st.current[library] = outside

    @staticmethod
    def _stacked(held: Container, st: State) -> int | None:
        """How many places of an ``ExitStack`` are taken on some way here; None where that is not known."""
        counts = [most(count) for count in iterate(st.store.get((held.name, fields.STACK_DEPTH), PLAIN))]
        return None if None in counts else max(c for c in counts if c is not None)

    def _stack_up(self, stack: Context, item: Value, st: State) -> None:
        """An ``ExitStack`` takes something: its place is empty on the paths on which this is not done."""
        held = stack.payload[0]
        assert isinstance(held, Container)
        place = self._stacked(held, st)
        if place is None or place == MOST_STACKED:
            st.store[(held.name, fields.STACK_DEPTH)] = PLAIN
            return
        st.store[(held.name, place)] = item
        st.store[(held.name, fields.STACK_DEPTH)] = Const(place + 1)

    def _enter_on_stack(self, stack: Context, given: Value, call: Call, st: State) -> Value | None:
        """A context manager of the file is entered by an ``ExitStack``; None for those of libraries."""
        held = stack.payload[0]
        value: Value | None = None
        if isinstance(held, Container) and self._stacked(held, st) == 0:
            self.library.remember_current(held, st)
        if isinstance(given, Generator):
            value = self.comprehensions.advance(given, st)
        elif isinstance(given, Instance) and self.class_members.own_method(given, "__enter__"):
            value = self.methods.method_of(given, "__enter__", Call(call.node, call.site), st)
        elif isinstance(given, Stream):
            given = Context("stream", (given,))
        if isinstance(given, (Generator, Instance, Context)):
            self._stack_up(stack, given, st)
        return value
