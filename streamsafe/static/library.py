"""The verbs of library calls: what a row of the tables in ``apis`` means."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import libcst as cst

from streamsafe.order.symbolic import ALWAYS, HOST
from streamsafe.static import apis, sequences
from streamsafe.static.effects import AMBIENT, GRADIENTS, Assumed, Site
from streamsafe.static.source import ClassUnit
from streamsafe.static.state import State
from streamsafe.static.tensors import COMMUNICATION, HOST_PLACES, Call, Tensors
from streamsafe.static.values import (
    NONE,
    PLAIN,
    UNKNOWN,
    Api,
    Class,
    Const,
    Container,
    Context,
    Device,
    Event,
    Function,
    Graph,
    Instance,
    Method,
    Name,
    Object,
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

if TYPE_CHECKING:
    from streamsafe.config import Models

Verb = Callable[["Library", Call, State], Value]


class Library(Tensors):
    """What library functions do."""

    models: Models | None
    hooks: list[tuple[Function, State, bool]]

    def verb(self, name: str, call: Call, st: State) -> Value:
        """Do what a row of a table says."""
        method: Callable[[Call, State], Value] = getattr(self, f"do_{name}")
        return method(call, st)

    def api_verb(self, name: str) -> str | None:
        """The verb of a library function."""
        found = apis.FUNCTIONS.get(name)
        if found is not None:
            return found
        for prefix, verb in apis.PREFIXES.items():
            if name.startswith(prefix):
                return verb
        return None

    # -- plain things --------------------------------------------------------------------------------------------

    def do_nothing(self, call: Call, st: State) -> Value:
        """No stream operation."""
        return NONE

    def do_plain(self, call: Call, st: State) -> Value:
        """A number, a string, a flag."""
        return PLAIN

    do_plain_method = do_plain

    def do_yes(self, call: Call, st: State) -> Value:
        """True wherever stream code runs."""
        return Const(True)

    def do_pass_through(self, call: Call, st: State) -> Value:
        """Gives back what it is given, or something that holds it."""
        return call.args[0] if call.args else UNKNOWN

    def do_cast(self, call: Call, st: State) -> Value:
        """``typing.cast``."""
        return call.args[1] if len(call.args) > 1 else UNKNOWN

    def do_lazily(self, call: Call, st: State) -> Value:
        """An iterable that is walked later; how far a range goes is asked now."""
        for value in call.args if call.text.endswith("range") else ():
            if any(isinstance(v, Tensor) for v in iterate(value)):
                self.read_on_host(st, value, call.site, "range()")
        return Partial(Api(call.text), tuple(call.args), tuple(call.kwargs.items()))

    def do_identity(self, call: Call, st: State) -> Value:
        """``id(x)``: a number that stands for the object."""
        value = call.args[0] if call.args else UNKNOWN
        if not isinstance(value, Object):
            return PLAIN
        name = value.name.child("identity")
        self.plain.add(name.base())
        return Opaque(name)

    def do_make_slice(self, call: Call, st: State) -> Value:
        """``slice(start, stop, step)``."""
        bounds = call.args if len(call.args) > 1 else [NONE, *call.args]
        return Partial(Api("builtins.slice"), tuple([*bounds, NONE][:3]), ())

    def do_iterator(self, call: Call, st: State) -> Value:
        """``iter(x)``: walks a copy of what is known."""
        value = call.args[0] if call.args else UNKNOWN
        known = self.known_items(value, st)
        if known is None or len(known) > sequences.LIMIT:
            return value
        made = Container(self.fresh(call.node, st, "iterator"), "iterator")
        self.closed.add(made.name)
        sequences.put(st, made, known)
        return made

    def known_items(self, iterable: Value, st: State) -> list[Value] | None:
        """The elements of something whose length is known."""
        raise AssertionError

    def do_length(self, call: Call, st: State) -> Value:
        """``len(x)``, where it is known."""
        value = call.args[0] if call.args else UNKNOWN
        count = len(value.items) if isinstance(value, Tuple) else None
        if isinstance(value, Container):
            count = sequences.length(st, value)
        return PLAIN if count is None else Const(count)

    def do_partial(self, call: Call, st: State) -> Value:
        """``functools.partial``."""
        if not call.args:
            return UNKNOWN
        return Partial(call.args[0], tuple(call.args[1:]), tuple(call.kwargs.items()))

    def do_isinstance(self, call: Call, st: State) -> Value:
        """Known for tensors and for instances of the file's classes."""
        if len(call.args) == 2:
            value, kind = call.args
            if isinstance(value, Union):
                return union(
                    (self.do_isinstance(Call(call.node, call.site, [v, kind]), st), g)
                    for v, g in alternatives(value, st.path)
                )
            names = [k.name for k in (kind.items if isinstance(kind, Tuple) else (kind,)) if isinstance(k, Api)]
            if isinstance(value, (Stream, Event, Context)) and names:
                tails = {n.rpartition(".")[2] for n in names}
                own = {Stream: "Stream", Event: "Event"}.get(type(value))  # type: ignore[call-overload]
                return Const(own in tails)
            if isinstance(value, Tensor) and "torch.Tensor" in names:
                return Const(True)
            if isinstance(value, (Container, Tuple)) and names and all(n in ("torch.Tensor",) for n in names):
                return Const(False)
            if isinstance(value, Container) and names:
                return Const(any(n == f"builtins.{value.kind}" for n in names))
            if isinstance(value, Tuple) and names:
                return Const("builtins.tuple" in names)
            if isinstance(value, Tensor) and names:
                return Const(False)
            if isinstance(value, Instance) and isinstance(kind, Class):
                return Const(value.unit is kind.unit) if value.unit is kind.unit else PLAIN
            if isinstance(value, Opaque):
                return Opaque(value.name.child(f"isinstance {names}"))
        return PLAIN

    def do_hasattr(self, call: Call, st: State) -> Value:
        """Not known, but the same each time."""
        if len(call.args) == 2 and isinstance(call.args[0], Opaque) and isinstance(call.args[1], Const):
            return Opaque(call.args[0].name.child(f"hasattr {call.args[1].value}"))
        return PLAIN

    def do_getattr(self, call: Call, st: State) -> Value:
        """``getattr`` with a constant name."""
        if len(call.args) >= 2 and isinstance(call.args[1], Const) and isinstance(call.args[1].value, str):
            return self.attribute(call.args[0], call.args[1].value, st, call.node)
        return UNKNOWN

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
            for base in owner.bases:
                parent = self.unit(base)
                if isinstance(parent, ClassUnit):
                    return Instance(receiver.name, parent)
        return Opaque(Name("super()"))

    def do_make_container(self, call: Call, st: State) -> Value:
        """A list, set or deque."""
        name = self.fresh(call.node, st, "container")
        self.closed.add(name)
        made = Container(name, "list")
        if call.args:
            value = call.args[0]
            known = list(value.items) if isinstance(value, Tuple) else None
            if isinstance(value, Container):
                known = sequences.items(st, value)
            if known is None:
                self.extend_container(st, made, Tuple((self.item_of(value, st, call.node),)))
                return made
            sequences.put(st, made, known)
            return made
        if not call.kwargs:
            sequences.put(st, made, [])
        return made

    def item_of(self, value: Value, st: State, node: cst.CSTNode) -> Value:
        """Some element of any iterable."""
        if isinstance(value, Partial):
            return self.next_of_call(value, st, node)
        return self.any_element(value, st)

    def do_make_tuple(self, call: Call, st: State) -> Value:
        """``tuple(x)``."""
        if call.args and isinstance(call.args[0], (Tuple, Container)):
            return call.args[0]
        return self.do_make_container(call, st)

    def do_make_mapping(self, call: Call, st: State) -> Value:
        """A dict."""
        if call.args and isinstance(call.args[0], Container):
            return call.args[0]
        name = self.fresh(call.node, st, "dict")
        self.closed.add(name)
        for key, value in call.kwargs.items():
            st.store[(name, key)] = value
        return Container(name, "dict")

    def do_make_queue(self, call: Call, st: State) -> Value:
        """A queue hands what it is given to another thread."""
        name = self.fresh(call.node, st, "queue")
        self.closed.add(name)
        sequences.put(st, Container(name, "queue"), [])
        return Container(name, "queue")

    def do_next_item(self, call: Call, st: State) -> Value:
        """``next(it)``."""
        value = call.args[0] if call.args else UNKNOWN
        if isinstance(value, Opaque):
            return Opaque(self.fresh(call.node, st, "next"))
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

    def do_dataclass_field(self, call: Call, st: State) -> Value:
        """A dataclass field's default."""
        factory = call.kwargs.get("default_factory")
        if factory is not None:
            return self.call_value(factory, Call(call.node, call.site), st)
        return call.kwargs.get("default", UNKNOWN)

    def do_make_device(self, call: Call, st: State) -> Value:
        """``torch.device``."""
        value = call.get(0, "type")
        if isinstance(value, Const) and isinstance(value.value, str):
            return Device(value.value.partition(":")[0])
        if isinstance(value, (Device, Union)):
            return value
        return Device("cuda" if isinstance(value, Const) and isinstance(value.value, int) else "")

    def do_device_module(self, call: Call, st: State) -> Value:
        """The device module under another name."""
        return Api("torch.cuda")

    def do_make_generator(self, call: Call, st: State) -> Value:
        """``torch.Generator``: graphs must be told of it."""
        name = self.fresh(call.node, st, "generator")
        st.store[(name, "@generator")] = PLAIN
        return Opaque(name)

    # -- streams -------------------------------------------------------------------------------------------------

    def do_make_stream(self, call: Call, st: State) -> Value:
        """A pool stream: non-blocking (TS-01)."""
        return Stream(self.fresh(call.node, st, "stream"))

    def do_make_cupy_stream(self, call: Call, st: State) -> Value:
        """``cupy.cuda.Stream()``: blocking unless asked otherwise (CS-01)."""
        if call.kwargs.get("null") == Const(True) or (call.args and call.args[0] == Const(True)):
            return Stream(self.table.ambient_of(self.device(st)), "cupy")
        name = self.fresh(call.node, st, "stream")
        if self.device(st):
            self.table.devices[name.base()] = self.device(st)
        non_blocking = call.get(1, "non_blocking")
        if non_blocking is None or non_blocking == Const(False):
            self.table.blocking.update(name._replace(age=age) for age in range(3))
        return Stream(name, "cupy")

    @staticmethod
    def device(st: State) -> int:
        """The current device of CuPy; the first where none is named."""
        current = st.current.get("device")
        return current.value if isinstance(current, Const) and type(current.value) is int else 0

    def do_make_external_stream(self, call: Call, st: State) -> Value:
        """A stream of another library, by its handle: the same queue (TS-27, CI-11)."""
        library = "cupy" if call.text.startswith("cupy") else "torch"
        value = call.args[0] if call.args else UNKNOWN
        for inner in iterate(value):
            if isinstance(inner, Stream):
                return Stream(inner.name, library)
            name: Name | None = None
            if isinstance(inner, Opaque):
                if inner.name.site in ("ptr", "cuda_stream") and inner.name.parent is not None:
                    return Stream(inner.name.parent, library)
                name = inner.name.base()  # the same handle is the same stream, made again or not
            elif isinstance(inner, Method) and isinstance(inner.receiver, Object):
                name = inner.receiver.name.child(inner.name)
            elif isinstance(inner, Const) and inner.value is not ...:
                name = Name(("handle", inner.value))
            if name is not None:
                if library == "cupy":
                    self.table.unknown.add(name.base())
                return Stream(name, library)
        return Stream(self.fresh(call.node, st, "stream"), library)

    def do_stream_context(self, call: Call, st: State) -> Value:
        """``torch.cuda.stream(s)``."""
        stream = call.get(0, "stream")
        return Context("stream", (self.as_stream(stream, "torch") if stream is not None else NONE,))

    def do_current_stream(self, call: Call, st: State) -> Value:
        """The calling thread's current stream, now."""
        return self.current(st, "torch")

    def do_current_cupy_stream(self, call: Call, st: State) -> Value:
        """CuPy's current stream."""
        return self.current(st, "cupy")

    def do_default_stream(self, call: Call, st: State) -> Value:
        """The default stream; outside hooks and contexts the ambient stream is taken to be it."""
        if call.text.startswith("cupy"):
            return Stream(self.table.ambient_of(self.device(st)), "cupy")
        return Stream(AMBIENT, "torch")

    def do_per_thread_stream(self, call: Call, st: State) -> Value:
        """The per-thread default stream: blocking (CS-08)."""
        name = Name("the per-thread default stream")
        self.table.blocking.add(name)
        return Stream(name, "cupy")

    def do_set_stream(self, call: Call, st: State) -> Value:
        """``set_stream``: current until changed; None changes nothing (TS-24)."""
        stream = call.get(0, "stream")
        if stream is not None and stream != NONE:
            self.enter_stream(st, self.as_stream(stream, "torch"), "torch")
        return NONE

    def enter_stream(self, st: State, stream: Value, library: str) -> None:
        """A stream becomes current; where it is None nothing changes."""
        before = self.current(st, library)
        found = []
        for value, guard in alternatives(stream, st.path):
            found.append((before if value == NONE else value, guard))
        chosen = union(found)
        if all(isinstance(v, Stream) for v in iterate(chosen)):
            st.current[library] = self.exclusive(st, chosen)

    def do_synchronize_device(self, call: Call, st: State) -> Value:
        """The host waits for every stream of the device (TS-21)."""
        self.sync_in_capture(st, call.site, f"{call.text or 'synchronize'}()")
        self.host_learns_everything(st, call.site)
        return NONE

    def do_synchronize_raw_stream(self, call: Call, st: State) -> Value:
        """``runtime.streamSynchronize(ptr)``."""
        stream = call.args[0] if call.args else UNKNOWN
        if isinstance(stream, (Stream, Opaque)):
            self.synchronize_stream(st, self.as_stream(stream, "cupy"), "cupy", call.site)
        else:
            self.host_learns_everything(st, call.site)
        return NONE

    def do_stream_wait_stream(self, call: Call, st: State) -> Value:
        """``a.wait_stream(b)`` (TS-06)."""
        receiver, other = call.args[0], call.get(1, "stream")
        library = self.stream_library(receiver)
        if other is not None and other != NONE:
            self.wait_stream(st, self.as_stream(receiver, library), self.as_stream(other, library), library, call.site)
        return NONE

    @staticmethod
    def stream_library(value: Value) -> str:
        """Whose current stream a stream may become."""
        return next((v.library for v in iterate(value) if isinstance(v, Stream)), "torch")

    def event_of(self, value: Value | None) -> list[Event]:
        """The events a value stands for."""
        found = []
        for inner in iterate(value) if value is not None else ():
            if isinstance(inner, Event):
                found.append(inner)
            elif isinstance(inner, Opaque):
                found.append(Event(inner.name))
        return found

    def do_stream_wait_event(self, call: Call, st: State) -> Value:
        """``s.wait_event(e)`` (TS-09, CS-11)."""
        receiver = call.args[0]
        library = self.stream_library(receiver)
        for event in self.event_of(call.get(1, "event")):
            self.wait_for(st, event, self.as_stream(receiver, library), library, call.site)
        return NONE

    def wait_for(self, st: State, event: Event, stream: Value | None, library: str, site: Site) -> None:
        """A wait; an event of which no record and no making is seen is taken to cover everything."""
        if self.is_foreign(st, event):
            for s, guard in self.streams(st, library, stream):
                st.order.learn_everything(s.name, guard)
                self.capture_wait(st, event.name, s.name, site, is_stream=False)
            return
        self.wait_event(st, event, stream, library, site)

    def is_foreign(self, st: State, event: Event) -> bool:
        """Whether an event comes from code that is not seen."""
        if (event.name, "@recorded") in st.store or (event.name, "@made") in st.store:
            return False
        return not any((n, "@made") in st.store for n in event.name.chain()) and event.name not in self.own_events

    own_events: set[Name]

    def do_stream_record_event(self, call: Call, st: State) -> Value:
        """``s.record_event(e=None)`` gives the event."""
        receiver = call.args[0]
        library = self.stream_library(receiver)
        events = self.event_of(call.get(1, "event")) if call.get(1, "event") not in (None, NONE) else []
        if not events:
            events = [Event(self.fresh(call.node, st, "event"))]
        for event in events:
            self.own_events.add(event.name)
            self.record(st, event, self.as_stream(receiver, library), library, call.site)
        return union((e, ALWAYS) for e in events)

    def do_stream_synchronize(self, call: Call, st: State) -> Value:
        """``s.synchronize()`` (TS-19)."""
        receiver = call.args[0]
        library = self.stream_library(receiver)
        names = [s.name for s, _ in self.streams(st, library, self.as_stream(receiver, library))]
        self.wait_in_capture(st, call.site, "synchronize()", names)
        self.synchronize_stream(st, self.as_stream(receiver, library), library, call.site)
        return NONE

    def do_stream_query(self, call: Call, st: State) -> Value:
        """``s.query()``: true is an edge to the host (TS-20)."""
        receiver = call.args[0]
        found = [self.query_stream(st, v, call.site) for v in iterate(receiver) if isinstance(v, Stream)]
        return found[0] if found else PLAIN

    def do_stream_use(self, call: Call, st: State) -> Value:
        """``s.use()``: current until changed (CS-12)."""
        receiver = call.args[0]
        library = self.stream_library(receiver)
        self.enter_stream(st, self.as_stream(receiver, library), library)
        return receiver

    def do_stream_callback(self, call: Call, st: State) -> Value:
        """A host function runs in the stream's order (CS-23): what it touches is the stream's access."""
        receiver = call.args[0]
        library = self.stream_library(receiver)
        callback = call.args[1] if len(call.args) > 1 else UNKNOWN
        arguments = call.args[2:]
        for value in arguments:
            self.access(
                st,
                value,
                call.site,
                "host function",
                writes=False,
                library=library,
                stream=self.as_stream(receiver, library),
            )
        del callback
        return NONE

    # -- events --------------------------------------------------------------------------------------------------

    def do_make_event(self, call: Call, st: State) -> Value:
        """``torch.cuda.Event``: cannot time unless asked to."""
        timing = call.get(0, "enable_timing")
        known = bool(timing.value) if isinstance(timing, Const) and timing.value is not ... else None
        name = self.fresh(call.node, st, "event")
        self.own_events.add(name)
        self.event_sites[name] = call.site
        return Event(name, False if timing is None else known)

    def do_make_cupy_event(self, call: Call, st: State) -> Value:
        """``cupy.cuda.Event``: times unless told not to."""
        disabled = call.get(1, "disable_timing")
        known = not disabled.value if isinstance(disabled, Const) and disabled.value is not ... else None
        name = self.fresh(call.node, st, "event")
        self.own_events.add(name)
        return Event(name, True if disabled is None else known)

    def do_event_record(self, call: Call, st: State) -> Value:
        """``e.record(stream=None)``: left out it is the current stream (TS-11, CS-10)."""
        stream = call.get(1, "stream")
        for event in self.event_of(call.args[0]):
            self.own_events.add(event.name)
            library = self.stream_library(stream) if stream not in (None, NONE) else self.default_library
            value = self.as_stream(stream, library) if stream is not None and stream != NONE else None
            self.record(st, event, value, library, call.site)
        return NONE

    def do_event_wait(self, call: Call, st: State) -> Value:
        """``e.wait(stream=None)`` makes a stream wait, not the host."""
        stream = call.get(1, "stream")
        for event in self.event_of(call.args[0]):
            value = self.as_stream(stream, "torch") if stream is not None and stream != NONE else None
            self.wait_for(st, event, value, "torch", call.site)
        return NONE

    def do_event_synchronize(self, call: Call, st: State) -> Value:
        """``e.synchronize()`` (TS-18)."""
        self.wait_in_capture(st, call.site, "synchronize()", [e.name for e in self.event_of(call.args[0])])
        for event in self.event_of(call.args[0]):
            if self.is_foreign(st, event):
                self.host_learns_everything(st, call.site)
            else:
                self.synchronize_event(st, event, call.site)
        return NONE

    def do_event_query(self, call: Call, st: State) -> Value:
        """``e.query()``: true is an edge to the host (TS-16)."""
        events = self.event_of(call.args[0])
        return self.query_event(st, events[0], call.site, *events[1:]) if events else PLAIN

    def do_event_elapsed_time(self, call: Call, st: State) -> Value:
        """``a.elapsed_time(b)`` needs timing and completion, and is no sync (TX-01)."""
        other = call.get(1, "end_event")
        self.check_elapsed(st, [*self.event_of(call.args[0]), *self.event_of(other)], call.site)
        return PLAIN

    def do_elapsed_time_function(self, call: Call, st: State) -> Value:
        """``cupy.cuda.get_elapsed_time(a, b)``."""
        self.check_elapsed(st, [e for a in call.args[:2] for e in self.event_of(a)], call.site)
        return PLAIN

    def check_elapsed(self, st: State, events: list[Event], site: Site) -> None:
        """SS312: made without timing, never recorded, or not known to be complete."""
        for event in events:
            if event.timing is False:
                made = self.event_sites.get(event.name.base())
                notes = [("made without enable_timing", made)] if made is not None else []
                self.violation(
                    st, "event-timing-misuse", site, "elapsed_time", notes, tags=frozenset({"no timing"})
                )
                return
        for event in events:
            if self.never_recorded(st, event):
                made = self.event_sites.get(event.name.base())
                notes = [("made here, and never recorded", made)] if made is not None else []
                self.violation(
                    st, "event-timing-misuse", site, "elapsed_time", notes, tags=frozenset({"not recorded"})
                )
                return
        for event in events[-1:]:
            recorded = st.store.get((event.name, "@recorded"))
            if recorded is None:
                continue
            if st.order.accesses(("timing", event.name)):
                self.violation(
                    st,
                    "event-timing-misuse",
                    site,
                    "elapsed_time",
                    [],
                    assumed=Assumed.UNMODELLED,
                    tags=frozenset({"not complete"}),
                )
                return

    def never_recorded(self, st: State, event: Event) -> bool:
        """Whether an event was made by this entry into the file, and neither recorded nor given to anybody since."""
        here = bool(self.rounds) and event.name in self.rounds[0] and (event.name, "@made") in st.store
        return here and not {"@recorded", "@given"} & st.store.of(event.name).keys()

    event_sites: dict[Name, Site]

    # -- captures ------------------------------------------------------------------------------------------------

    def do_make_graph(self, call: Call, st: State) -> Value:
        """``torch.cuda.CUDAGraph()``."""
        return Graph(self.fresh(call.node, st, "graph"))

    def do_capture_context(self, call: Call, st: State) -> Value:
        """``torch.cuda.graph(g, pool=, stream=, capture_error_mode=)``."""
        graph = call.get(0, "cuda_graph") or UNKNOWN
        stream = call.get(2, "stream") or NONE
        mode = call.get(3, "capture_error_mode")
        options = (("mode", mode),) if mode is not None else ()
        return Context("capture", (self.graph_of(st, graph), stream), options)

    def do_is_capturing(self, call: Call, st: State) -> Value:
        """Known: a capture is seen or there is none."""
        return Const(st.capture is not None)

    def do_stream_begin_capture(self, call: Call, st: State) -> Value:
        """CuPy's ``stream.begin_capture(mode)``: relaxed by default."""
        receiver = self.as_stream(call.args[0], "cupy")
        if not self.check_capture_stream(st, receiver, "cupy", call.site):
            return NONE
        mode = call.get(1, "mode")
        self.capture_begin(st, None, receiver, "relaxed" if mode is None else "unknown", "cupy", call.site)
        return NONE

    def do_stream_end_capture(self, call: Call, st: State) -> Value:
        """``stream.end_capture()`` gives the graph."""
        graph = Graph(self.fresh(call.node, st, "graph"))
        if st.capture is not None:
            st.capture = replace(st.capture, graph=graph.name)
        self.capture_end(st, call.site)
        return graph

    def do_graph_capture_begin(self, call: Call, st: State) -> Value:
        """``g.capture_begin(pool=None, capture_error_mode="global")``: not on the default stream (GC-01)."""
        mode = self.capture_mode(call.get(2, "capture_error_mode"))
        self.capture_begin(st, self.graph_of(st, call.args[0]), None, mode, "torch", call.site)
        managed = any(a.unit and (a.unit.name == "__enter__" or a.unit.is_contextmanager) for a in self.stack)
        if st.capture is not None and not st.capture.nested and AMBIENT in st.capture.origin and not managed:
            st.capture = replace(st.capture, on_default=True)  # unless a caller who is not seen sets the stream
        return NONE

    def do_graph_capture_end(self, call: Call, st: State) -> Value:
        """``g.capture_end()``."""
        self.capture_end(st, call.site)
        return NONE

    def do_graph_replay(self, call: Call, st: State) -> Value:
        """One operation on the current stream, of all that was captured (GC-08)."""
        graph = call.args[0]
        stream = call.get(1, "stream")
        library = self.default_library
        target = self.as_stream(stream, library) if stream is not None and stream != NONE else None
        self.replay(st, graph, target, library, call.site)
        self.launched(st, call.site, "replay()", device=True, library=library, stream=target)
        return NONE

    def do_graph_reset(self, call: Call, st: State) -> Value:
        """``g.reset()``."""
        for graph in iterate(call.args[0]):
            if isinstance(graph, Object):
                self.graph_reset(st, graph.name)
        return NONE

    def do_graph_register_generator(self, call: Call, st: State) -> Value:
        """``g.register_generator_state(gen)``."""
        for value in iterate(call.get(1, "generator") or UNKNOWN):
            if isinstance(value, Object):
                st.store[(value.name, "@registered")] = PLAIN
        return NONE

    def do_read_rng_state(self, call: Call, st: State) -> Value:
        """Reading or setting the random state is illegal in a capture."""
        self.rng_in_capture(st, call.site, f"{call.text}()")
        return UNKNOWN

    do_seed = do_read_rng_state

    # -- contexts ------------------------------------------------------------------------------------------------

    def do_plain_context(self, call: Call, st: State) -> Value:
        """A context that does not concern streams."""
        return Context("nothing")

    def do_null_context(self, call: Call, st: State) -> Value:
        """``nullcontext(x)``."""
        return Context("nothing", tuple(call.args[:1]))

    def do_raises_context(self, call: Call, st: State) -> Value:
        """``pytest.raises``: what is inside fails, and is meant to."""
        return Context("raises")

    def do_exit_stack(self, call: Call, st: State) -> Value:
        """``ExitStack``: what it entered it leaves at its end."""
        return Context("stack")

    def do_cupy_device(self, call: Call, st: State) -> Value:
        """``cupy.cuda.Device``: a context, and it synchronizes."""
        return Context("device", tuple(call.args[:1]))

    def synchronize_one(self, device: Context, call: Call, st: State) -> Value:
        """``Device(n).synchronize()``: every stream of that device (CS-25); where there is but one, every stream."""
        number = device.payload[0].value if device.payload and isinstance(device.payload[0], Const) else None
        if not device.payload:
            number = self.device(st)
        if type(number) is not int or (number == 0 and not self.table.devices):
            return self.do_synchronize_device(call, st)
        self.sync_in_capture(st, call.site, "synchronize()")
        self.synchronize_device(st, number, call.site)
        return NONE

    def enter_device(self, device: Context, st: State) -> None:
        """The device's own current stream becomes current (TG-02)."""
        number = device.payload[0].value if device.payload and isinstance(device.payload[0], Const) else None
        if type(number) is int and number != self.device(st):
            st.current["device"] = Const(number)
            st.current["cupy"] = Stream(self.table.ambient_of(number), "cupy")

    # -- autograd ------------------------------------------------------------------------------------------------

    def do_backward_function(self, call: Call, st: State) -> Value:
        """``torch.autograd.backward(tensors, grad_tensors=None)``."""
        gradients = call.get(1, "grad_tensors")
        self.backward(st, self._gradients(gradients, st), call.site, "torch.autograd.backward()")
        return NONE

    def do_grad_function(self, call: Call, st: State) -> Value:
        """``torch.autograd.grad(outputs, inputs, grad_outputs=None)`` returns the gradients (TA-09)."""
        gradients = call.get(2, "grad_outputs")
        for value in self._gradients(gradients, st):
            self.access(
                st,
                value,
                call.site,
                "torch.autograd.grad()",
                writes=False,
                tags=frozenset({"consumes initial gradient"}),
            )
        return self.new_tensor(
            st,
            call.site,
            "torch.autograd.grad()",
            library="torch",
            place="device" if self.on_side_stream(st, "torch") else "",
            tags=frozenset({"backward"}),
            what="gradients",
        )

    def _gradients(self, value: Value | None, st: State) -> list[Value]:
        if value is None or value == NONE:
            return []
        return [v for v in self.tensor_results(st, value) if v != NONE]

    def do_use_gradients(self, call: Call, st: State) -> Value:
        """``clip_grad_norm_`` and its like read and write every ``.grad``."""
        self.use_of_gradients(st, call.site, f"{call.text.rpartition('.')[2]}()")
        return self.new_tensor(st, call.site, "clip_grad_norm_()", library="torch")

    def do_make_optimizer(self, call: Call, st: State) -> Value:
        """An optimizer or a gradient scaler."""
        name = self.fresh(call.node, st, "optimizer")
        st.store[(name, "@optimizer")] = PLAIN
        if call.args:
            st.store[(name, "params")] = call.args[0]
        return Opaque(name)

    def do_make_module(self, call: Call, st: State) -> Value:
        """A module: an object whose parts are not followed."""
        name = self.fresh(call.node, st, "module")
        for position, value in enumerate(call.everything()):
            if isinstance(value, Object):
                st.store[(name, f"part {position}")] = value
        return Opaque(name)

    def do_make_parameter(self, call: Call, st: State) -> Value:
        """``nn.Parameter(x)`` is x."""
        return call.args[0] if call.args else UNKNOWN

    def do_make_loader(self, call: Call, st: State) -> Value:
        """A loader that pins memory has a thread of its own (TD-12)."""
        name = self.fresh(call.node, st, "loader")
        if call.kwargs.get("pin_memory") == Const(True):
            st.store[(name, "@pins")] = Const(call.site)
        return Opaque(name)

    # -- collectives (TD) ----------------------------------------------------------------------------------------

    def do_collective(self, call: Call, st: State) -> Value:
        """A collective: on the current stream, or with ``async_op=True`` on a stream of its own."""
        name = call.text.rpartition(".")[2]
        if name in ("barrier", "monitored_barrier"):
            self.host_learns_everything(st, call.site)
            return NONE
        if name.startswith(("get_", "is_", "init_", "new_", "destroy", "Process", "Reduce", "split", "Device")):
            return UNKNOWN
        tensors = [a for a in call.args if any(isinstance(v, (Tensor, Opaque, Container)) for v in iterate(a))]
        tensors += [v for k, v in call.kwargs.items() if "tensor" in k or k in ("input", "output")]
        stream: Value | None = None
        asynchronous = call.kwargs.get("async_op") == Const(True) or name in ("isend", "irecv")
        if asynchronous:
            stream = Stream(COMMUNICATION)
            self.wait_stream(st, stream, self.current(st, "torch"), "torch", call.site)
        two = name.endswith(("_tensor", "_base", "_single")) or name in ("all_gather", "all_to_all", "reduce_scatter")
        for position, value in enumerate(tensors[:2]):
            writes = name not in ("send", "isend") and (position == 0 or not two)
            if not two and position > 0:
                continue
            # the work holds what it is given until it is waited for, or has been seen to complete (TD-07)
            tags = frozenset({"kept alive"}) if asynchronous else frozenset()
            self.access(st, value, call.site, f"{name}()", writes=writes, stream=stream, tags=tags)
        if not asynchronous:
            return NONE
        work = self.fresh(call.node, st, "work")
        self.own_events.add(work)
        self.record(st, Event(work), stream, "torch", call.site)
        return Work(work)

    # -- Python --------------------------------------------------------------------------------------------------

    def do_clock(self, call: Call, st: State) -> Value:
        """A host clock is read."""
        return self.read_clock(st, call.site)

    def do_host_library(self, call: Call, st: State) -> Value:
        """A library that reads what it is given, on the host; of a device tensor after its stream (``print``)."""
        name = call.text.rpartition(".")[2]
        for value in call.everything():
            if name == "print":
                self.read_on_host(st, value, call.site, "print()")
            else:
                self.hand_to_host(st, [value], call.site, f"{name}()")
        return UNKNOWN

    def do_host_scalar(self, call: Call, st: State) -> Value:
        """``float(x)`` and its like."""
        for value in call.args:
            self.read_on_host(st, value, call.site, f"{call.text.rpartition('.')[2]}()")
        return PLAIN

    def do_host_sum(self, call: Call, st: State) -> Value:
        """``sum(xs)``: an operation where the elements are tensors, else a number."""
        value = call.args[0] if call.args else UNKNOWN
        item = self.item_of(value, st, call.node) if not isinstance(value, Tensor) else value
        if any(isinstance(v, Tensor) for v in iterate(item)):
            return self.operation(st, [item], call.site, f"{call.text.rpartition('.')[2]}()")
        return PLAIN

    def do_make_thread(self, call: Call, st: State) -> Value:
        """A thread: its function runs when it is started."""
        name = self.fresh(call.node, st, "thread")
        target = call.get(1, "target")
        if target is not None:
            st.store[(name, "target")] = target
        arguments = call.get(3, "args")
        if arguments is not None:
            st.store[(name, "args")] = arguments
        st.store[(name, "@thread")] = PLAIN
        return Opaque(name)

    def do_make_executor(self, call: Call, st: State) -> Value:
        """A thread pool."""
        name = self.fresh(call.node, st, "executor")
        st.store[(name, "@executor")] = PLAIN
        return Opaque(name)

    def in_thread(self, function: Value, arguments: list[Value], kwargs: dict[str, Value], call: Call, st: State) -> Value:
        """A function runs in another thread: it starts on the default stream (TS-22)."""
        current, st.current = st.current, {}
        self.threads += 1
        result = self.call_value(function, Call(call.node, call.site, arguments, kwargs), st)
        self.threads -= 1
        st.current = current
        return result

    threads = 0
    """How many threads deep the interpretation is."""

    # -- supplied by the calls -----------------------------------------------------------------------------------

    def call_value(self, function: Value, call: Call, st: State) -> Value:
        """Call anything."""
        raise AssertionError

    def next_of_call(self, iterable: Partial, st: State, node: cst.CSTNode) -> Value:
        """The next element of ``zip``, ``enumerate`` and their like."""
        raise AssertionError


__all__ = ["GRADIENTS", "HOST", "HOST_PLACES", "Library"]
