"""The user's own wrappers: what ``[tool.streamsafe.models]`` says of a call, done to the state."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamsafe.static.facts import Assumed
from streamsafe.static.transfer.part import Part
from streamsafe.static.transfer.tensors import Call
from streamsafe.static.values import (
    NONE,
    UNKNOWN,
    Const,
    Context,
    Event,
    Object,
    Opaque,
    Stream,
    Tensor,
    Value,
    iterate,
)

if TYPE_CHECKING:
    from streamsafe.config import Model
    from streamsafe.static.state import State


class UserModels(Part):
    """Does what the user's models say."""

    def apply_model(self, model: Model, call: Call, st: State) -> Value:
        """Do what a model says.

        Args:
            model: what the configuration says of the callee.
            call: the call, its receiver first where ``self`` is meant.
            st: changed in place.
        """

        def argument(name: str) -> Value | None:
            if name in call.kwargs:
                return call.kwargs[name]
            if name in model.parameters:
                position = model.parameters.index(name)
                return call.args[position] if position < len(call.args) else None
            return None

        text = f"{call.text.rpartition('.')[2]}()"
        library = "cupy" if model.allocates == "cupy" else self.tensors.default_library
        given = argument(model.stream) if model.stream != "current" else None
        stream = self.effects.as_stream(given, library) if given is not None and given != NONE else None

        for name in model.waits:
            for value in iterate(argument(name) or UNKNOWN):
                if isinstance(value, Event):
                    self.effects.wait_event(st, value, stream, library, call.site)
                elif isinstance(value, (Stream, Opaque)):
                    waiter = stream if stream is not None else self.effects.current(st, library)
                    self.effects.wait_stream(
                        st, waiter, self.effects.as_stream(value, library), library, call.site
                    )
        for names, writes in ((model.reads, False), (model.writes, True)):
            for name in names:
                given_here = argument(name)
                if given_here is None:
                    continue
                if model.host:
                    self.accesses.host_access(st, given_here, call.site, text, writes=writes)
                else:
                    self.accesses.access(
                        st, given_here, call.site, text, writes=writes, library=library, stream=stream
                    )
        for name in model.records:
            for value in iterate(argument(name) or UNKNOWN):
                if isinstance(value, Event):
                    self.effects.record(st, value, stream, library, call.site)
                elif isinstance(value, (Tensor, Opaque)):
                    target = stream if stream is not None else self.effects.current(st, library)
                    self.memory.record_stream(st, value, target, library, call.site)
        for name in model.synchronizes:
            if name == "device":
                self.effects.host_learns_everything(st, call.site)
                continue
            for value in iterate(argument(name) or UNKNOWN):
                if isinstance(value, Event):
                    self.effects.synchronize_event(st, value, call.site)
                elif isinstance(value, (Stream, Opaque)):
                    self.effects.synchronize_stream(
                        st, self.effects.as_stream(value, library), library, call.site
                    )
        return self._returned(model, call, st, text, library, stream, argument(model.returns))

    def _returned(
        self,
        model: Model,
        call: Call,
        st: State,
        text: str,
        library: str,
        stream: Value | None,
        named: Value | None,
    ) -> Value:
        """What the call gives back."""
        kind = model.returns
        if named is not None:
            return named
        if kind == "none":
            return NONE
        if kind == "stream":
            return Stream(self.objects.fresh(call.node, st, "stream"), library)
        if kind == "current-stream":
            return self.effects.current(st, library)
        if kind == "event":
            name = self.objects.fresh(call.node, st, "event")
            self.run.own_events.add(name)
            return Event(name)
        if kind == "context":
            return Context("stream", (stream,)) if stream is not None else Context("nothing")
        if kind == "pinned":
            name = self.objects.fresh(call.node, st, "pinned")
            st.store[(name, "@place")] = Const("pinned")
            return Tensor(name)
        if kind == "tensor" or model.allocates is not None:
            made: Object = self.tensors.new_tensor(st, call.site, text, library=library, stream=stream)
            return made
        return Opaque(self.objects.fresh(call.node, st, "result")) if Assumed.UNMODELLED else UNKNOWN
