"""The verbs of library calls: what a row of the tables in ``apis`` means.

One file: a verb is a few lines, and the tables name all of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from typing import TYPE_CHECKING

import libcst as cst

from streamsafe.order.symbolic import ALWAYS, HOST
from streamsafe.static import apis, hints, sequences
from streamsafe.static.concrete import spelled
from streamsafe.static.devices import as_device
from streamsafe.static.facts import AMBIENT, GRADIENTS, INITIAL, LOADER, PASS, Assumed, Site
from streamsafe.static.state import State
from streamsafe.static.streams import Streams
from streamsafe.static.tensors import COMMUNICATION, HOST_PLACES, UNPLACED, Call
from streamsafe.static.values import (
    EACH,
    MOST_STACKED,
    NONE,
    PLAIN,
    STACKED,
    UNKNOWN,
    Api,
    Const,
    Container,
    Context,
    Event,
    Function,
    Generator,
    Graph,
    Instance,
    Name,
    Number,
    Object,
    Opaque,
    Stream,
    Tensor,
    Tuple,
    Value,
    Work,
    iterate,
    under,
    union,
)

if TYPE_CHECKING:
    from streamsafe.config import Models


class Library(Streams):
    """What library functions do."""

    models: Models | None
    hooks: list[tuple[Function, list[Value], State, str]]

    # declared here, implemented further down the chain

    def register_hook(self, value: Value, name: str, st: State) -> None: ...

    def register_hooks(self, name: str, call: Call, st: State, owner: Value = UNKNOWN) -> Value: ...

    def do_record_helper(self, call: Call, st: State) -> Value: ...

    def do_map_call(self, call: Call, st: State) -> Value: ...

    def run_captured_passes(self, st: State, site: Site) -> None: ...

    def do_numpy_function(self, call: Call, st: State) -> Value: ...

    def verb(self, name: str, call: Call, st: State) -> Value:
        """Do what a row of a table says."""
        method: Callable[[Call, State], Value] = getattr(self, f"do_{name}")
        return method(call, st)

    @staticmethod
    @cache
    def api_verb(name: str) -> str | None:
        """The verb of a library function."""
        found = apis.FUNCTIONS.get(name)
        if found is not None:
            return found
        return next((verb for prefix, verb in apis.PREFIXES.items() if name.startswith(prefix)), None)

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
        self.choose_pool(st, self.graph_of(st, graph), call.get(1, "pool"))
        return Context("capture", (self.graph_of(st, graph), stream), options)

    def do_is_capturing(self, call: Call, st: State) -> Value:
        """Known: a capture is seen or there is none."""
        return Const(st.capture is not None)

    def do_stream_is_capturing(self, call: Call, st: State) -> Value:
        """``stream.is_capturing()``: known, where it is known whether the stream takes part in the capture."""
        capture = st.capture
        if capture is None:
            return Const(False)
        streams = self.streams(st, self.stream_library(call.args[0]), call.args[0])
        part = {self.takes_part(capture, s.name) for s, guard in streams if not st.path.contradicts(guard)}
        return Const(True) if part == {True} else self.unknown_flag(call.node, st)

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
        self.choose_pool(st, self.graph_of(st, call.args[0]), call.get(1, "pool"))
        self.capture_begin(st, self.graph_of(st, call.args[0]), None, mode, "torch", call.site)
        capture = st.capture
        if (
            capture is not None
            and not capture.nested
            and AMBIENT in capture.origin
            and not self._under_unseen_streams()
        ):
            st.capture = replace(capture, on_default=True)
        return NONE

    def _under_unseen_streams(self) -> bool:
        """Whether callers who are not seen may set the stream: of a manager, or of what is called in a function's
        place and begins its capture by a manager.
        """
        units = [a.unit for a in self.stack if a.unit]
        managers = [u.name == "__enter__" or u.is_contextmanager for u in units]
        return bool(units) and (managers[0] or (units[0].name == "__call__" and any(managers)))

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

    def do_graph_pool(self, call: Call, st: State) -> Value:
        """``g.pool()``: what other graphs may be captured into."""
        graph = call.args[0]
        return (
            self.do_make_pool(call, st)
            if not isinstance(graph, Object)
            else self.pool_named(graph.name.child("pool()"))
        )

    def do_make_pool(self, call: Call, st: State) -> Value:
        """``torch.cuda.graph_pool_handle()``."""
        return self.pool_named(self.fresh(call.node, st, "pool"))

    def pool_named(self, name: Name) -> Opaque:
        """A pool is no tensor."""
        self.plain.add(name.base())
        return Opaque(name)

    def do_host_random(self, call: Call, st: State) -> Value:
        """A number drawn on the host: a replay does not draw it again (GC-03)."""
        name = call.text.rpartition(".")[2]
        if st.capture is not None and name in apis.HOST_RANDOM:
            notes = [("the capture begins here", st.capture.site)]
            self.violation(st, "host-work-in-capture", call.site, f"{call.text}()", notes)  # type: ignore[arg-type]
        return self.do_numpy_function(call, st) if call.text.startswith("numpy.") else UNKNOWN

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

    # -- contexts ------------------------------------------------------------------------------------------------

    def do_plain_context(self, call: Call, st: State) -> Value:
        """A context that does not concern streams."""
        return Context("nothing")

    def do_import_module(self, call: Call, st: State) -> Value:
        """``importlib.import_module("a.b")``: what ``import a.b`` names."""
        name = call.get(0, "name")
        known = isinstance(name, Const) and type(name.value) is str and not name.value.startswith(".")
        return Api(name.value) if known and len(call.args) == 1 else self.unmodelled(Api(call.text), call, st)  # type: ignore[union-attr]

    def do_cuda_device(self, call: Call, st: State) -> Value:
        """``torch.cuda.device(d)``: whatever is given there is a CUDA device."""
        self.cuda_devices.update(
            v.name.base() for a in call.args for v in iterate(a) if isinstance(v, Opaque)
        )
        return Context("nothing")

    def do_null_context(self, call: Call, st: State) -> Value:
        """``nullcontext(x)``."""
        return Context("nothing", tuple(call.args[:1]))

    def do_raises_context(self, call: Call, st: State) -> Value:
        """``pytest.raises``: what is inside fails, and is meant to."""
        return Context("raises")

    def do_exit_stack(self, call: Call, st: State) -> Value:
        """``ExitStack``: what it entered it leaves at its end."""
        held = self.container(call.node, st, "list", [NONE] * MOST_STACKED)
        st.store[(held.name, STACKED)] = Const(0)
        self.remember_current(held, st)
        return Context("stack", (held,))

    def remember_current(self, held: Container, st: State) -> None:
        """What is current before an ``ExitStack`` enters anything is current again once it has left it all."""
        for library in ("torch", "cupy"):
            st.store[(held.name, f"@outside {library}")] = self.current(st, library)
        # where a path enters no stream this one still is current, also in a loop
        st.current.setdefault(self.default_library, self.current(st, self.default_library))

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
            number = self.device(st)
        if type(number) is not int or (number == 0 and not self.table.devices):
            return self.do_synchronize_device(call, st)
        self.sync_in_capture(st, call.site, "synchronize()")
        self.synchronize_device(st, number, call.site)
        return NONE

    def enter_device(self, device: Context, st: State) -> None:
        """The device's own current stream becomes current (TG-02)."""
        number = device.payload[0].value if device.payload and isinstance(device.payload[0], Const) else None
        if type(number) is not int:
            st.current["device"] = PLAIN  # taken to be the first, but it may be any
        elif number != self.device(st):
            st.current["device"] = Const(number)
            st.current["cupy"] = Stream(self.table.ambient_of(number), "cupy")

    # -- autograd ------------------------------------------------------------------------------------------------

    def do_backward_function(self, call: Call, st: State) -> Value:
        """``torch.autograd.backward(tensors, grad_tensors=None)``."""
        gradients = call.get(1, "grad_tensors")
        roots = self.tensor_results(st, call.get(0, "tensors") or UNKNOWN)
        given, leaves = self._gradients(gradients, st), call.get(5, "inputs")
        self.backward(st, roots, given, call.site, "torch.autograd.backward()", leaves)
        return NONE

    def do_queue_callback(self, call: Call, st: State) -> Value:
        """``Variable._execution_engine.queue_callback(function)``."""
        return self.register_hooks(apis.AFTER_PASS, call, st)

    def do_multi_grad_hook(self, call: Call, st: State) -> Value:
        """``torch.autograd.graph.register_multi_grad_hook(tensors, function)``."""
        return self.register_hooks("register_multi_grad_hook", call, st, call.get(0, "tensors") or UNKNOWN)

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
                tags=frozenset({INITIAL}),
            )
        self.join_leaves(st, self.tensor_results(st, call.get(0, "outputs") or UNKNOWN))
        self.run_captured_passes(st, call.site)

        def gradient(number: int | None) -> Value:
            return self.new_tensor(
                st,
                call.site,
                "torch.autograd.grad()",
                library="torch",
                place="device" if self.on_side_stream(st, "torch") else "",
                tags=PASS,
                what="gradients" if number is None else f"gradient {number}",
            )

        asked = _listed(call.node)
        return gradient(None) if asked is None else Tuple(tuple(gradient(i) for i in range(asked)))

    def _gradients(self, value: Value | None, st: State) -> list[Value]:
        if value is None or value == NONE:
            return []
        return [v for v in self.tensor_results(st, value) if v != NONE]

    def do_use_gradients(self, call: Call, st: State) -> Value:
        """``clip_grad_norm_`` and its like read and write every ``.grad``."""
        self.use_of_gradients(st, call.site, f"{call.text.rpartition('.')[2]}()", call.everything()[:1])
        return self.new_tensor(st, call.site, "clip_grad_norm_()", library="torch")

    def do_make_optimizer(self, call: Call, st: State) -> Value:
        """An optimizer or a gradient scaler."""
        name = self.fresh(call.node, st, "optimizer")
        st.store[(name, "@optimizer")] = PLAIN
        kind = call.text.rpartition(".")[2]
        if kind == "GradScaler":
            st.store[(name, "@scaler")] = PLAIN
        elif kind in apis.CAPTURABLE_OPTIMIZERS and not call.starred:
            given = call.kwargs.get("capturable")
            if given is None or given == Const(False):
                st.store[(name, "@uncapturable")] = Const(call.site)
        if call.kwargs.get("fused") == Const(True):
            st.store[(name, "@fused")] = PLAIN
        if (params := call.get(0, "params")) is not None:
            st.store[(name, "params")] = params
        return Opaque(name)

    def do_make_module(self, call: Call, st: State) -> Value:
        """A module: an object whose parts are not followed."""
        name = self.fresh(call.node, st, "module")
        if call.text.startswith("torch.nn.") and call.text.rpartition(".")[2][:1].isupper():
            st.store[(name, "@module")] = Const(self.entry)
            if call.text.endswith(".DistributedDataParallel"):
                st.store[(name, "@ddp")] = PLAIN
            if not call.text.endswith("DataParallel"):
                st.store[(name, "@computes")] = PLAIN  # where its input lies
        for position, value in enumerate(call.everything()):
            if any(isinstance(v, Object) for v in iterate(value)):
                st.store[(name, f"part {position}")] = value
        return Opaque(name)

    def do_make_modules(self, call: Call, st: State) -> Value:
        """Modules in a row, or under names: followed where some of them are of classes of the file, or are to come."""
        rest = call.kwargs.pop(UNPLACED, None)
        given = [*call.args, *(rest.items if isinstance(rest, Tuple) else ())]
        within = given if call.text.endswith(".Sequential") and not self._is_named_row(given) else given[:1]
        parts = [v for value in within for v in iterate(value)]
        inside = [
            v
            for part in parts
            for v in (self.held(part, st) if isinstance(part, Container) else [self._listed_in(part, st)])
            for v in iterate(v)
        ]
        followed = any(isinstance(v, Instance) or self.is_row_of_modules(v, st) for v in inside)
        if not followed and (given or call.text.endswith(".Sequential")):
            return self.do_make_module(call, st)
        made: Value
        if within is given and call.text.endswith(".Sequential"):
            made = self.container(call.node, st, "list", given, exact=not call.starred and rest is None)
        elif call.text.endswith(".ModuleDict"):
            made = self.do_make_mapping(call, st)
        else:
            made = self.do_make_container(call, st)
        if isinstance(made, Container):
            if call.text.endswith(".Sequential"):
                made = replace(made, kind="list")  # its parts, whatever they are called
            st.store[(made.name, "@module")] = Const(call.text.rpartition(".")[2])
            if call.text.endswith(".ModuleList"):
                st.store[(made.name, sequences.FIXED)] = PLAIN
        return made

    def _listed_in(self, part: Value, st: State) -> Value:
        """What an annotation says that a list holds; anything else as it is."""
        if not isinstance(part, Opaque):
            return part
        element = Opaque(part.name.child(EACH))
        found = self.typed_element(part, element, st)
        return part if found is element else found

    @staticmethod
    def _is_named_row(given: list[Value]) -> bool:
        """Whether a Sequential is given one dict of named modules."""
        return len(given) == 1 and isinstance(given[0], Container) and given[0].kind == "dict"

    @staticmethod
    def is_row_of_modules(value: Value, st: State) -> bool:
        """Whether this is a container of modules, which is a module itself."""
        return isinstance(value, Container) and (value.name, "@module") in st.store

    def do_make_parameter(self, call: Call, st: State) -> Value:
        """``nn.Parameter(x)`` is x."""
        for value in iterate(call.args[0]) if call.args else ():
            if isinstance(value, Object):
                st.store[(value.name, "@parameter")] = PLAIN
                self.goes_with_module(value, st)
        return call.args[0] if call.args else UNKNOWN

    def goes_with_module(self, value: Object, st: State) -> None:
        """What a module is made with in pageable memory lies where the module is moved later."""
        if self.place(st, value) == "pageable":
            st.store[(value.name, "@goes along")] = PLAIN
            if any(a.unit is not None and a.unit.name == "__init__" for a in self.stack):
                st.store[(value.name, "@place")] = Const("")

    def do_make_loader(self, call: Call, st: State) -> Value:
        """A loader that pins memory has a thread of its own (TD-12)."""
        name = self.fresh(call.node, st, LOADER)
        if call.kwargs.get("pin_memory") == Const(True):
            st.store[(name, "@pins")] = Const(call.site)
        return Opaque(name)

    # -- collectives (TD) ----------------------------------------------------------------------------------------

    def do_collective(self, call: Call, st: State) -> Value:
        """A collective: on the current stream, or with ``async_op=True`` on a stream of its own."""
        name = call.text.rpartition(".")[2]
        if spelled(hints.RECORDING_HELPER, name):
            return self.do_record_helper(call, st)
        if name in ("barrier", "monitored_barrier"):
            self.sync_in_capture(st, call.site, call.text, Assumed.UNMODELLED)
            self.host_learns_everything(st, call.site)
            return NONE
        if name.startswith(
            (
                "get_",
                "is_",
                "init_",
                "new_",
                "destroy",
                "Process",
                "_coalescing_manager_",
                "Reduce",
                "split",
                "Device",
            )
        ):
            return UNKNOWN
        if name == "_coalescing_manager":  # one work for all that is enqueued inside, there once they are
            work = self.fresh(call.node, st, "work")
            self.own_events.add(work)
            st.store[(work, "@coalesces on")] = Stream(self._communication(call, name))
            return Work(work)
        flag = call.kwargs.get("async_op")
        if flag is not None and not isinstance(flag, Const):
            outcomes = self.truth(flag, st, call.node)
            if all(guard != ALWAYS for _, guard in outcomes):  # a later test of the flag gives the same

                def chosen(outcome: bool, st: State) -> Value:
                    known = {**call.kwargs, "async_op": Const(outcome)}
                    return self.do_collective(Call(call.node, call.site, call.args, known, call.text), st)

                return self.each_way([(flag, guard, partial(chosen, o)) for o, guard in outcomes], st)
        tensors = [
            a for a in call.args if any(isinstance(v, (Tensor, Opaque, Container)) for v in iterate(a))
        ]
        tensors += [v for k, v in call.kwargs.items() if "tensor" in k or k in ("input", "output")]
        self.rows_are_tensors(st, tensors)
        stream: Stream | None = None
        if call.kwargs.get("async_op") == Const(True) or name in ("isend", "irecv"):
            stream = Stream(self._communication(call, name))
            self._begin_communication(stream, call, st)
        two = name.endswith(("_tensor", "_base", "_single")) or name in (
            "all_gather",
            "all_to_all",
            "reduce_scatter",
        )
        outputs: list[Value] = []
        for position, value in enumerate(tensors[:2]):
            writes = name not in ("send", "isend") and (position == 0 or not two)
            if not two and position > 0:
                continue
            self._communicate(value, name, call, st, stream, writes=writes)
            outputs += [under(t, g) for t, g in self.tensors(st, value)] if writes else []
        if stream is None:
            return NONE
        begun = self._work(stream, call, st)
        if name not in ("isend", "irecv"):  # it holds them as long as it lives, waited for or not (TD-07)
            st.store[(begun.name, "outputs")] = Tuple(tuple(outputs))
        return begun

    def _begin_communication(self, stream: Stream, call: Call, st: State) -> None:
        """What is enqueued asynchronously comes after the current stream's work so far."""
        waits = st.waits  # the library's own wait is meant for nothing else
        self.wait_stream(st, stream, self.current(st, "torch"), "torch", call.site)
        st.waits = waits

    def _communicate(
        self, value: Value, name: str, call: Call, st: State, stream: Stream | None, *, writes: bool
    ) -> None:
        # the work holds what it is given until it is waited for, or has been seen to complete (TD-07)
        tags = frozenset({"kept alive"}) if stream is not None else frozenset[str]()
        for inner, guard in self.tensors(st, value):
            one = under(inner, guard)
            if self.is_host(st, inner):  # a backend for host memory: no stream takes part
                self.host_access(st, one, call.site, f"{name}()", writes=name in ("recv", "irecv"))
            else:
                self.access(st, one, call.site, f"{name}()", writes=writes, stream=stream, tags=tags)

    def _work(self, stream: Stream, call: Call, st: State) -> Work:
        work = self.fresh(call.node, st, "work")
        self.own_events.add(work)
        self.record(st, Event(work), stream, "torch", call.site)
        return Work(work)

    def do_make_p2p(self, call: Call, st: State) -> Value:
        """``P2POp(op, tensor, peer, group=None)``: what ``batch_isend_irecv`` is to do."""
        name = self.fresh(call.node, st, "operation")
        for position, key in enumerate(("op", "tensor", "peer", "group")):
            value = call.get(position, key)
            if value is not None:
                st.store[(name, key)] = value
        return Opaque(name)

    def do_batch_p2p(self, call: Call, st: State) -> Value:
        """``batch_isend_irecv(operations)``: each as ``isend`` or ``irecv`` does it; NCCL gives one work for all."""
        operations = self._operations(call.get(0, "p2p_op_list") or UNKNOWN, st)
        if not operations:
            return UNKNOWN
        groups = (st.store.get((operation.name, "group")) for operation in operations)
        stream = Stream(self._stream_of(next(filter(None, groups), None)))
        self._begin_communication(stream, call, st)
        for operation in operations:
            for kind in iterate(st.store.get((operation.name, "op"), UNKNOWN)):
                name = kind.name.rpartition(".")[2] if isinstance(kind, Api) else "isend"
                tensor = st.store.get((operation.name, "tensor"), UNKNOWN)
                self._communicate(tensor, name, call, st, stream, writes=name == "irecv")
        return self.container(call.node, st, "list", [self._work(stream, call, st)])

    def _operations(self, given: Value, st: State) -> list[Opaque]:
        """The operations in a list; where it is not known exactly, of those that one line has made the newest."""
        known = self.known_items(given, st)
        if known is None:
            lists = [v for v in iterate(given) if isinstance(v, Container)]
            known = [value for inner in lists for value in self.held(inner, st)]
        newest: dict[Name, Opaque] = {}
        for operation in (inner for value in known for inner in iterate(value)):
            if isinstance(operation, Opaque) and (operation.name, "op") in st.store:
                other = newest.setdefault(operation.name.base(), operation)
                if operation.name.age < other.name.age:
                    newest[operation.name.base()] = operation
        return list(newest.values())

    @classmethod
    def _communication(cls, call: Call, name: str) -> Name:
        """The stream of an asynchronous collective: each group has its own."""
        position = {"isend": 2, "irecv": 2, "_coalescing_manager": 0}.get(name, -1)
        return cls._stream_of(call.get(position, "group"))

    @staticmethod
    def _stream_of(group: Value | None) -> Name:
        return Name(COMMUNICATION.site, (group.name.base(),)) if isinstance(group, Opaque) else COMMUNICATION

    # -- Python --------------------------------------------------------------------------------------------------

    def do_clock(self, call: Call, st: State) -> Value:
        """A host clock is read."""
        return self.read_clock(st, call.site)

    def do_host_library(self, call: Call, st: State) -> Value:
        """A library that reads what it is given, on the host; to print, save or pickle a device tensor waits for it."""
        name = call.text.rpartition(".")[2]
        for value in call.everything():
            if self.converted(value, name, call.node, st) is not None:
                continue
            if name in ("print", "save", "dump", "dumps"):
                self.read_on_host(st, value, call.site, f"{name}()")
            else:
                self.hand_to_host(st, [value], call.site, f"{name}()")
        return UNKNOWN

    def do_arithmetic(self, call: Call, st: State) -> Value:
        """``abs(x)`` and its like: of a tensor an operation, else a number."""
        given = [v for value in call.args[:1] for v in iterate(value)]
        if any(isinstance(v, Tensor) or (isinstance(v, Opaque) and self.is_tensor(st, v)) for v in given):
            return self.operation(st, call.args[:1], call.site, f"{call.text.rpartition('.')[2]}()")
        return PLAIN

    def do_host_number(self, call: Call, st: State) -> Value:
        """``math.isnan(x)`` and its like ask a tensor for its number."""
        for value in call.everything():
            for inner in iterate(value):
                if isinstance(inner, Tensor):
                    self.read_on_host(st, inner, call.site, f"{call.text.rpartition('.')[2]}()")
        return PLAIN

    def do_rounded_up(self, call: Call, st: State) -> Value:
        """``math.ceil(n / size)``: so many pieces, of which there is one at least."""
        self.do_host_number(call, st)
        count = self.unknown_flag(call.node, st)
        st.store[(count.name, "@nonzero")] = PLAIN
        return count

    def do_place_on_ring(self, call: Call, st: State) -> Value:
        """``get_rank(group)``, ``get_world_size(group)``: not known, but the same each time."""
        group = call.get(0, "group")
        if group is not None and not isinstance(group, (Const, Opaque)):
            return PLAIN
        name = Name(f"{call.text}()") if not isinstance(group, Opaque) else group.name.child(f"{call.text}()")
        self.plain.add(name.base())
        return Opaque(name, part=group.part if isinstance(group, Opaque) else None)

    def do_host_scalar(self, call: Call, st: State) -> Value:
        """``float(x)`` and its like."""
        for value in call.args:
            if self.converted(value, call.text, call.node, st) is None:
                self.read_on_host(st, value, call.site, f"{call.text.rpartition('.')[2]}()")
        if call.text == "builtins.str" and len(call.args) == 1:
            return as_device(call.args[0]) or PLAIN
        if call.text in apis.INTEGERS and len(call.args) == 1:
            value = call.args[0]
            if isinstance(value, Stream):
                return value  # its handle
            tensor = isinstance(value, Opaque) and self.is_tensor(st, value)
            form = None if tensor else self.form_of(value, st)
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
            least = self.least(call.args[0], call.args[1], st)
            if least is not None:
                return least
        value = call.args[0] if call.args else UNKNOWN
        if isinstance(value, Generator):
            value = self.drained(value, st, call.node)
        item = self.item_of(value, st, call.node) if not isinstance(value, Tensor) else value
        key = call.kwargs.get("key", NONE)
        if chooses is not None and key != NONE:
            item = item if len(call.args) == 1 else union((v, ALWAYS) for v in call.args)
            by = self.call_value(key, Call(call.node, call.site, [item]), st)
            self.read_on_host(st, by, call.site, f"{call.text.rpartition('.')[2]}()")
            return item
        if chooses is not None and all(isinstance(v, (Stream, Event, Instance)) for v in iterate(item)):
            return item
        if any(isinstance(v, Tensor) for v in iterate(item)):
            return self.operation(st, [item], call.site, f"{call.text.rpartition('.')[2]}()")
        if call.text in ("builtins.any", "builtins.all") and (
            self.says_where(item)
            or all(isinstance(v, Const) and type(v.value) is bool for v in iterate(item))
        ):
            return item  # one answer for all of them, or there is one element
        return PLAIN


def _listed(node: cst.CSTNode) -> int | None:
    """How many gradients a call asks for by a list in its place, those of another list at its end counted as one."""
    args = node.args if isinstance(node, cst.Call) else ()
    given = [a.value for n, a in enumerate(args) if (n == 1 and a.keyword is None and not a.star)]
    given += [a.value for a in args if a.keyword is not None and a.keyword.value == "inputs"]
    if len(given) != 1 or not isinstance(given[0], (cst.List, cst.Tuple)):
        return None
    elements = given[0].elements
    if any(isinstance(e, cst.StarredElement) for e in elements[:-1]):
        return None
    return len(elements) if 1 < len(elements) <= sequences.LIMIT else None


__all__ = ["GRADIENTS", "HOST", "HOST_PLACES", "Library"]
