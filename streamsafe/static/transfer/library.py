"""Library calls: what a row of the tables in ``apis``, or of the user's own models, means."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from streamsafe.apis import names as apis
from streamsafe.order.symbolic import ALWAYS
from streamsafe.static import fields
from streamsafe.static.facts import Assumed
from streamsafe.static.state import State
from streamsafe.static.transfer.devices import CURRENT, as_device
from streamsafe.static.transfer.part import Part
from streamsafe.static.transfer.tensors import Call
from streamsafe.static.values import (
    MOST_STACKED,
    NONE,
    PLAIN,
    UNKNOWN,
    Api,
    Const,
    Container,
    Context,
    Event,
    Generator,
    Instance,
    Name,
    Number,
    Object,
    Opaque,
    Stream,
    Tensor,
    Value,
    iterate,
    union,
)

if TYPE_CHECKING:
    from streamsafe.project.settings import Model
    from streamsafe.static.state import State


class Library(Part):
    """Verbs of library calls: contexts, devices and host values, and the user's own wrappers."""

    def verb(self, name: str, call: Call, st: State) -> Value:
        """Do what a row of a table says."""
        return self.run.verbs[name](call, st)

    @staticmethod
    @cache
    def api_verb(name: str) -> str | None:
        """The verb of a library function."""
        found = apis.FUNCTIONS.get(name)
        if found is not None:
            return found
        return next((verb for prefix, verb in apis.PREFIXES.items() if name.startswith(prefix)), None)

    # -- contexts ------------------------------------------------------------------------------------------------

    def do_plain_context(self, call: Call, st: State) -> Value:
        """A context that does not concern streams."""
        return Context("nothing")

    def do_import_module(self, call: Call, st: State) -> Value:
        """``importlib.import_module("a.b")``: what ``import a.b`` names."""
        name = call.get(0, "name")
        if isinstance(name, Const) and type(name.value) is str and len(call.args) == 1:
            if not name.value.startswith("."):
                return Api(name.value)
        return self.unseen.unmodelled(Api(call.text), call, st)

    def do_cuda_device(self, call: Call, st: State) -> Value:
        """``torch.cuda.device(d)``: whatever is given there is a CUDA device."""
        self.run.cuda_devices.update(
            v.name.base() for a in call.args for v in iterate(a) if isinstance(v, Opaque)
        )
        if call.args and call.text.endswith("set_device"):
            st.store[(CURRENT, fields.STREAMS_DEVICE)] = call.args[0]
        return Context("nothing", (), tuple(("device", a) for a in call.args[:1]))

    def do_null_context(self, call: Call, st: State) -> Value:
        """``nullcontext(x)``."""
        return Context("nothing", tuple(call.args[:1]))

    def do_raises_context(self, call: Call, st: State) -> Value:
        """``pytest.raises``: what is inside fails, and is meant to."""
        return Context("raises")

    def do_exit_stack(self, call: Call, st: State) -> Value:
        """``ExitStack``: what it entered it leaves at its end."""
        held = self.containers.container(call.node, st, "list", [NONE] * MOST_STACKED)
        st.store[(held.name, fields.STACK_DEPTH)] = Const(0)
        self.remember_current(held, st)
        return Context("stack", (held,))

    def remember_current(self, held: Container, st: State) -> None:
        """What is current before an ``ExitStack`` enters anything is current again once it has left it all."""
        for library in ("torch", "cupy"):
            st.store[(held.name, fields.STREAM_BEFORE.of(library))] = self.effects.current(st, library)
        # where a path enters no stream this one still is current, also in a loop
        st.current.setdefault(
            self.tensors.default_library, self.effects.current(st, self.tensors.default_library)
        )

    def do_closing(self, call: Call, st: State) -> Value:
        """``contextlib.closing(x)``: closes it at its end."""
        return Context("closing", tuple(call.args[:1]))

    def do_cupy_device(self, call: Call, st: State) -> Value:
        """``cupy.cuda.Device``: a context, and it synchronizes."""
        return Context("device", tuple(call.args[:1]))

    def synchronize_one(self, device: Context, call: Call, st: State) -> Value:
        """``Device(n).synchronize()``: every stream of that device (CS-25); where there is but one, every stream."""
        number = device.payload[0].value if device.payload and isinstance(device.payload[0], Const) else None
        if not device.payload:
            number = self.streams.device(st)
        if type(number) is not int or (number == 0 and not self.run.table.devices):
            return self.streams.do_synchronize_device(call, st)
        self.captures.sync_in_capture(st, call.site, "synchronize()")
        self.effects.synchronize_device(st, number, call.site)
        return NONE

    def enter_device(self, device: Context, st: State) -> None:
        """The device's own current stream becomes current (TG-02)."""
        number = device.payload[0].value if device.payload and isinstance(device.payload[0], Const) else None
        if type(number) is not int:
            st.current["device"] = PLAIN  # taken to be the first, but it may be any
        elif number != self.streams.device(st):
            st.current["device"] = Const(number)
            st.current["cupy"] = Stream(self.run.table.ambient_of(number), "cupy")

    # -- Python --------------------------------------------------------------------------------------------------

    def do_clock(self, call: Call, st: State) -> Value:
        """A host clock is read."""
        return self.clocks.read_clock(st, call.site)

    def do_host_library(self, call: Call, st: State) -> Value:
        """A library that reads what it is given, on the host; to print, save or pickle a device tensor waits for it."""
        name = call.text.rpartition(".")[2]
        for value in call.everything():
            if self.builtin_functions.converted(value, name, call.node, st) is not None:
                continue
            if name in ("print", "save", "dump", "dumps"):
                self.tensors.read_on_host(st, value, call.site, f"{name}()")
            else:
                self.copies.pass_to_host(st, [value], call.site, f"{name}()")
        return UNKNOWN

    def do_arithmetic(self, call: Call, st: State) -> Value:
        """``abs(x)`` and its like: of a tensor an operation, else a number."""
        given = [v for value in call.args[:1] for v in iterate(value)]
        if any(
            isinstance(v, Tensor) or (isinstance(v, Opaque) and self.expressions.is_tensor(st, v))
            for v in given
        ):
            return self.tensors.operation(st, call.args[:1], call.site, f"{call.text.rpartition('.')[2]}()")
        return PLAIN

    def do_host_number(self, call: Call, st: State) -> Value:
        """``math.isnan(x)`` and its like ask a tensor for its number."""
        for value in call.everything():
            for inner in iterate(value):
                if isinstance(inner, Tensor):
                    self.tensors.read_on_host(st, inner, call.site, f"{call.text.rpartition('.')[2]}()")
        return PLAIN

    def do_rounded_up(self, call: Call, st: State) -> Value:
        """``math.ceil(n / size)``: so many pieces, of which there is one at least."""
        self.do_host_number(call, st)
        count = self.conditions.unknown_flag(call.node, st)
        st.store.mark(count.name, fields.NONZERO)
        return count

    def do_place_on_ring(self, call: Call, st: State) -> Value:
        """``get_rank(group)``, ``get_world_size(group)``: not known, but the same each time."""
        group = call.get(0, "group")
        if group is not None and not isinstance(group, (Const, Opaque)):
            return PLAIN
        name = Name(f"{call.text}()") if not isinstance(group, Opaque) else group.name.child(f"{call.text}()")
        self.run.plain.add(name.base())
        return Opaque(name, part=group.part if isinstance(group, Opaque) else None)

    def do_host_scalar(self, call: Call, st: State) -> Value:
        """``float(x)`` and its like."""
        for value in call.args:
            if self.builtin_functions.converted(value, call.text, call.node, st) is None:
                self.tensors.read_on_host(st, value, call.site, f"{call.text.rpartition('.')[2]}()")
        if call.text == "builtins.str" and len(call.args) == 1:
            return as_device(call.args[0]) or PLAIN
        if call.text in apis.INTEGERS and len(call.args) == 1:
            value = call.args[0]
            if isinstance(value, Stream):
                return value  # its handle
            tensor = isinstance(value, Opaque) and self.expressions.is_tensor(st, value)
            form = None if tensor else self.computed.form_of(value, st)
            if form is not None:
                return value if isinstance(value, Const) else Number(..., form)
        return PLAIN

    def do_host_sum(self, call: Call, st: State) -> Value:
        """``sum(xs)``: an operation where the elements are tensors, else a number."""
        chooses = {"builtins.max": max, "builtins.min": min}.get(call.text)
        numbers = [a.value for a in call.args if isinstance(a, Const) and type(a.value) is int]
        if chooses is not None and not call.kwargs and len(numbers) == len(call.args) > 1:
            return Const(chooses(numbers))
        if chooses is min and len(call.args) == 2:
            least = self.computed.least(call.args[0], call.args[1], st)
            if least is not None:
                return least
        value = call.args[0] if call.args else UNKNOWN
        if isinstance(value, Generator):
            value = self.python_containers.drained(value, st, call.node)
        item = (
            self.python_containers.item_of(value, st, call.node) if not isinstance(value, Tensor) else value
        )
        key = call.kwargs.get("key", NONE)
        if chooses is not None and key != NONE:
            item = item if len(call.args) == 1 else union((v, ALWAYS) for v in call.args)
            by = self.calls.call_value(key, Call(call.node, call.site, [item]), st)
            self.tensors.read_on_host(st, by, call.site, f"{call.text.rpartition('.')[2]}()")
            return item
        if chooses is not None and all(isinstance(v, (Stream, Event, Instance)) for v in iterate(item)):
            return item
        if any(isinstance(v, Tensor) for v in iterate(item)):
            return self.tensors.operation(st, [item], call.site, f"{call.text.rpartition('.')[2]}()")
        if call.text in ("builtins.any", "builtins.all") and (
            self.devices.says_where(item)
            or all(isinstance(v, Const) and type(v.value) is bool for v in iterate(item))
        ):
            return item  # one answer for all of them, or there is one element
        return PLAIN

    # -- the user's own models -----------------------------------------------------------------------------------

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
            st.store[(name, fields.PLACE)] = Const("pinned")
            return Tensor(name)
        if kind == "tensor" or model.allocates is not None:
            made: Object = self.tensors.new_tensor(st, call.site, text, library=library, stream=stream)
            return made
        return Opaque(self.objects.fresh(call.node, st, "result")) if Assumed.UNMODELLED else UNKNOWN
