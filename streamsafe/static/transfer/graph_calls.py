"""Library calls that capture, replay and reset CUDA graphs."""

from __future__ import annotations

from dataclasses import replace

from streamsafe.apis import names as apis
from streamsafe.static import fields
from streamsafe.static.facts import AMBIENT
from streamsafe.static.state import State
from streamsafe.static.transfer.part import Part
from streamsafe.static.transfer.tensors import Call
from streamsafe.static.values import (
    NONE,
    UNKNOWN,
    Const,
    Context,
    Graph,
    Instance,
    Name,
    Object,
    Opaque,
    Value,
    iterate,
)


class GraphCalls(Part):
    """Verbs of CUDA graphs."""

    def do_make_graph(self, call: Call, st: State) -> Value:
        """``torch.cuda.CUDAGraph()``."""
        return Graph(self.objects.fresh(call.node, st, "graph"))

    def do_capture_context(self, call: Call, st: State) -> Value:
        """``torch.cuda.graph(g, pool=, stream=, capture_error_mode=)``."""
        graph = call.get(0, "cuda_graph") or UNKNOWN
        stream = call.get(2, "stream") or NONE
        mode = call.get(3, "capture_error_mode")
        options = (("mode", mode),) if mode is not None else ()
        self.replays.choose_pool(st, self.captures.graph_of(st, graph), call.get(1, "pool"))
        return Context("capture", (self.captures.graph_of(st, graph), stream), options)

    def do_is_capturing(self, call: Call, st: State) -> Value:
        """Known: a capture is seen or there is none."""
        return Const(st.capture is not None)

    def do_stream_is_capturing(self, call: Call, st: State) -> Value:
        """``stream.is_capturing()``: known, where it is known whether the stream takes part in the capture."""
        capture = st.capture
        if capture is None:
            return Const(False)
        streams = self.effects.possible_streams(st, self.streams.stream_library(call.args[0]), call.args[0])
        part = {
            self.captures.takes_part(capture, s.name)
            for s, guard in streams
            if not st.path.contradicts(guard)
        }
        return Const(True) if part == {True} else self.conditions.unknown_flag(call.node, st)

    def do_stream_begin_capture(self, call: Call, st: State) -> Value:
        """CuPy's ``stream.begin_capture(mode)``: relaxed by default."""
        receiver = self.effects.as_stream(call.args[0], "cupy")
        if not self.captures.check_capture_stream(st, receiver, "cupy", call.site):
            return NONE
        mode = call.get(1, "mode")
        self.captures.capture_begin(
            st, None, receiver, "relaxed" if mode is None else "unknown", "cupy", call.site
        )
        return NONE

    def do_warp_begin_capture(self, call: Call, st: State) -> Value:
        """``warp.capture_begin()`` captures Warp's stream: PyTorch's work, too, where that stream is current for it.

        The default stream of PyTorch is none of Warp's. Inside another capture it takes part in that one
        (``external=True``).
        """
        given = call.get(1, "stream")
        if st.capture is not None:
            st.capture = replace(st.capture, nested=st.capture.nested + 1)
        elif isinstance(given, Instance):
            pass  # of a class that is seen, whose waits and records are not those of a library
        elif given is not None and given != NONE:
            stream = self.effects.as_stream(given, "torch")
            self.captures.capture_begin(st, None, stream, "relaxed", "torch", call.site)
        elif self.tensors.on_side_stream(st, "torch"):
            self.captures.capture_begin(st, None, None, "relaxed", "torch", call.site)
        return NONE

    def do_stream_end_capture(self, call: Call, st: State) -> Value:
        """``stream.end_capture()`` gives the graph."""
        graph = Graph(self.objects.fresh(call.node, st, "graph"))
        if st.capture is not None:
            self.run.libraries[graph.name.base()] = st.capture.library
            st.capture = replace(st.capture, graph=graph.name)
        self.captures.capture_end(st, call.site)
        return graph

    def do_graph_capture_begin(self, call: Call, st: State) -> Value:
        """``g.capture_begin(pool=None, capture_error_mode="global")``: not on the default stream (GC-01)."""
        mode = self.captures.capture_mode(call.get(2, "capture_error_mode"))
        self.replays.choose_pool(st, self.captures.graph_of(st, call.args[0]), call.get(1, "pool"))
        self.captures.capture_begin(
            st, self.captures.graph_of(st, call.args[0]), None, mode, "torch", call.site
        )
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
        units = [a.unit for a in self.run.stack if a.unit]
        managers = [u.name == "__enter__" or u.is_contextmanager for u in units]
        return bool(units) and (managers[0] or (units[0].name == "__call__" and any(managers)))

    def do_graph_capture_end(self, call: Call, st: State) -> Value:
        """``g.capture_end()``."""
        self.captures.capture_end(st, call.site)
        return NONE

    def do_graph_replay(self, call: Call, st: State) -> Value:
        """One operation on the current stream, of all that was captured (GC-08)."""
        graph = call.args[0]
        stream = call.get(1, "stream")
        library = self.tensors.library_of(st, [graph])
        target = self.effects.as_stream(stream, library) if stream is not None and stream != NONE else None
        self.captures.replay(st, graph, target, library, call.site)
        self.clocks.launched(st, call.site, "replay()", device=True, library=library, stream=target)
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
        return self.pool_named(self.objects.fresh(call.node, st, "pool"))

    def pool_named(self, name: Name) -> Opaque:
        """A pool is no tensor."""
        self.run.plain.add(name.base())
        return Opaque(name)

    def do_host_random(self, call: Call, st: State) -> Value:
        """A number drawn on the host: a replay does not draw it again (GC-03)."""
        name = call.text.rpartition(".")[2]
        if st.capture is not None and name in apis.HOST_RANDOM:
            self.captures.forbidden(st, "host-work-in-capture", call.site, f"{call.text}()")
        return (
            self.tensor_functions.do_numpy_function(call, st) if call.text.startswith("numpy.") else UNKNOWN
        )

    def do_graph_reset(self, call: Call, st: State) -> Value:
        """``g.reset()``."""
        for graph in iterate(call.args[0]):
            if isinstance(graph, Object):
                self.captures.graph_reset(st, graph.name)
        return NONE

    def do_graph_register_generator(self, call: Call, st: State) -> Value:
        """``g.register_generator_state(gen)``."""
        for value in iterate(call.get(1, "generator") or UNKNOWN):
            if isinstance(value, Object):
                st.store.mark(value.name, fields.REGISTERED_GENERATOR)
        return NONE

    def do_read_rng_state(self, call: Call, st: State) -> Value:
        """Reading or setting the random state is illegal in a capture."""
        self.captures.rng_in_capture(st, call.site, f"{call.text}()")
        return UNKNOWN
