"""Methods of context managers and of ``ExitStack``."""

from __future__ import annotations

from functools import partial

from streamsafe.static import sequences
from streamsafe.static.state import State
from streamsafe.static.transfer.part import Part
from streamsafe.static.transfer.tensors import Call
from streamsafe.static.values import (
    MOST_STACKED,
    NONE,
    PLAIN,
    STACKED,
    UNKNOWN,
    Const,
    Container,
    Context,
    Generator,
    Instance,
    Partial,
    Stream,
    Union,
    Value,
    alternatives,
    iterate,
    most,
)


class ContextMethods(Part):
    """Methods of context managers."""

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
            value = self.contexts.as_context(call.args[0]) if call.args else context
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
                    st.store[(stream.name, "@outside")] = self.effects.current(st, library)
                self.streams.enter_stream(st, stream, library)
            elif isinstance(value, Context) and value.kind == "capture":
                self.contexts.enter_capture(value, st, call.site)
            elif isinstance(value, Union):
                self.contexts.enter_streams(
                    [(self.contexts.as_context(v), g) for v, g in alternatives(value, st.path)], st
                )
            return UNKNOWN
        if name == "__exit__" and context.kind == "stream":
            stream = context.payload[0]
            library = self.streams.stream_library(stream)
            outside = st.store.get((stream.name, "@outside")) if isinstance(stream, Stream) else None
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
                self.generators.advance(item, state)
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
            self.library.remember_current(held, st)
        if isinstance(given, Generator):
            value = self.generators.advance(given, st)
        elif isinstance(given, Instance) and self.class_members.own_method(given, "__enter__"):
            value = self.methods.method_of(given, "__enter__", Call(call.node, call.site), st)
        elif isinstance(given, Stream):
            given = Context("stream", (given,))
        if isinstance(given, (Generator, Instance, Context)):
            self._stack_up(stack, given, st)
        return value
