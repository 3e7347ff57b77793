"""Library functions that make, copy and read tensors."""

from __future__ import annotations

from dataclasses import replace

import libcst as cst

from streamsafe.apis import names as apis
from streamsafe.order.symbolic import ALWAYS, Guard
from streamsafe.static import fields
from streamsafe.static.concrete import sizes
from streamsafe.static.state import State
from streamsafe.static.transfer.part import Part
from streamsafe.static.transfer.tensors import Call
from streamsafe.static.values import (
    GRAPHED,
    NONE,
    PLAIN,
    UNKNOWN,
    Api,
    Const,
    Container,
    Context,
    Device,
    Graph,
    Number,
    Object,
    Opaque,
    Partial,
    Tensor,
    Tuple,
    Value,
    alternatives,
    iterate,
    under,
    union,
)


class TensorFunctions(Part):
    """Functions of torch and NumPy on tensors, and what makes tensors."""

    # -- tensors -------------------------------------------------------------------------------------------------

    def do_where(self, call: Call, st: State) -> Value:
        """``where(condition)`` is ``nonzero``; with three arguments it selects on the device."""
        if len(call.args) == 1 and not call.kwargs.keys() - {"condition"}:
            return self.do_blocking_operation(call, st)
        return self.tensors.operation(
            st,
            call.everything(),
            call.site,
            "where()",
            library=self.tensors.library_of(st, call.everything()),
        )

    def do_repeat_interleave(self, call: Call, st: State) -> Value:
        """``torch.repeat_interleave(x, repeats)``, or of the numbers of repeats alone."""
        counted = self.tensor_methods.counts_repeats(
            call.get(1, "repeats") or call.get(0, "repeats"), call, st
        )
        return self.do_blocking_operation(call, st) if counted else self.do_torch_function(call, st)

    def do_counted(self, call: Call, st: State) -> Value:
        """Functions whose result's size depends on their values, unless it is given."""
        if "output_size" in call.kwargs or call.get(1, "num_classes") not in (None, Const(-1)):
            return self.do_torch_function(call, st)
        return self.do_blocking_operation(call, st)

    def do_graphed_callables(self, call: Call, st: State) -> Value:
        """``make_graphed_callables(callables, sample_args)``: each is captured, on a stream of its own (GC-25)."""
        callables, samples = call.get(0, "callables") or UNKNOWN, call.get(1, "sample_args") or UNKNOWN
        several = isinstance(callables, (Tuple, Container))
        made: list[Value] = []
        for position, function in enumerate(
            self.tensors.tensor_results(st, callables) if several else [callables]
        ):
            given = self.elements.element(samples, Const(position), st) if several else samples
            arguments = (
                self.tensors.tensor_results(st, given) if isinstance(given, (Tuple, Container)) else [given]
            )
            graph = Graph(self.objects.fresh(call.node, st, ("graph", position)))
            context = Context("capture", (graph, NONE))
            outputs: list[Value] = []
            if isinstance(function, Object):
                st.store.pop(
                    (function.name, fields.GRAPHED_CALLABLE), None
                )  # that was another one: nobody graphs one twice

            def body(
                _: Value,
                state: State,
                f: Value = function,
                args: list[Value] = arguments,
                found: list[Value] = outputs,
            ) -> None:
                found.append(self.calls.call_value(f, Call(call.node, call.site, args), state))

            self.contexts.within_capture(context, st, call.node, body)
            if graph.name in st.graphs:  # the samples it keeps itself, and copies into them what it is given
                kept = {inner.name for value in arguments for inner, _ in self.memory.tensors_in(st, value)}
                st.graphs = {**st.graphs, graph.name: st.graphs[graph.name] - kept}
            captured = Tuple((graph, union((v, ALWAYS) for v in outputs)))
            if isinstance(function, Object):  # a module's own forward is replaced
                st.store[(function.name, fields.GRAPHED_CALLABLE)] = captured
                made.append(function)
            else:
                made.append(Partial(GRAPHED, (captured,), ()))
        return Tuple(tuple(made)) if several else made[0]

    def call_graphed(self, captured: Value, call: Call, st: State) -> Value:
        """A graphed callable copies what it is given into its inputs, replays, and gives its outputs (GC-25)."""
        if not isinstance(captured, Tuple):
            return UNKNOWN
        graph, outputs = captured.items
        self.tensors.read_operands(st, call.everything(), call.site, "the graphed callable")
        self.captures.replay(st, graph, None, "torch", call.site)
        self.clocks.launched(st, call.site, "the graphed callable", device=True)
        return outputs

    def do_blocking_operation(self, call: Call, st: State) -> Value:
        """A function that blocks the host."""
        name = f"{call.text}()"
        return self.tensor_methods.blocking_operation(
            call.args[0] if call.args else UNKNOWN, call.everything(), call, st, name
        )

    def do_pin_memory(self, call: Call, st: State) -> Value:
        """``accelerator.pin_memory(x)``: as the method."""
        source = call.args[0] if call.args else UNKNOWN
        return self.tensor_methods.tensor_pin_memory(source, Call(call.node, call.site), st)

    def do_on_device(self, call: Call, st: State) -> Value:
        """``accelerator.on_accelerator(x)``: as ``x.is_cuda``."""
        source = call.args[0] if call.args else UNKNOWN
        return self.attributes.attribute(source, "is_cuda", st, call.node)

    # -- library functions on tensors ----------------------------------------------------------------------------

    def do_torch_function(self, call: Call, st: State) -> Value:
        """A function of torch: a factory, or an operation on its arguments."""
        name = call.text.rpartition(".")[2]
        path = call.text.split(".")
        if any(part[:1] == "_" for part in path[1:-1]):  # not all that torch has for itself gives tensors
            return self.unseen.unmodelled(Api(call.text), call, st)
        if name in apis.FACTORIES and len(path) == 2 and "out" not in call.kwargs:
            made = self.factory(name, call, st)
            return self.arithmetic.mask(st, made) if call.kwargs.get("dtype") == Api("torch.bool") else made
        if name[:1].isupper() or name in (
            "get_default_dtype",
            "device",
            "Size",
            "typename",
            "finfo",
            "iinfo",
        ):
            return PLAIN if name[:1].islower() else UNKNOWN
        self.tensor_methods.check_generator(call, st)
        if name == "_foreach_copy_" and len(call.args) > 1:
            self.copy_each(call, st)
            return NONE
        if name.startswith("_foreach_") and name.endswith("_"):
            for value in call.args[:1]:
                self.tensors.in_place(
                    st,
                    union((v, ALWAYS) for v in self.tensors.tensor_results(st, value)),
                    call.args[1:],
                    call.site,
                    f"{name}()",
                )
            return NONE
        out = call.kwargs.get("out")
        operands = [*call.args, *(v for k, v in call.kwargs.items() if k != "out")]
        if name in apis.MEASURED_FUNCTIONS:
            operands = operands[:1]
        text = f"{name}()"
        self.tensors.rows_are_tensors(st, operands)
        if out is not None:
            for value in self.tensors.tensor_results(st, out):
                self.tensors.in_place(st, value, operands, call.site, text)
            return out
        if name in apis.VIEW_FUNCTIONS:
            if not call.args or name == "from_dlpack":
                return call.args[0] if call.args else UNKNOWN
            return self.tensor_methods.viewed(
                call.args[0], name, Call(call.node, call.site, call.args[1:], call.kwargs), st
            )
        if name.endswith("_") and call.args:
            self.tensors.in_place(st, call.args[0], call.args[1:], call.site, text)
            return call.args[0]
        if not any(self.memory.tensors_in(st, o) for o in operands):
            return UNKNOWN
        result = self.tensors.operation(st, operands, call.site, text)
        return self.arithmetic.mask(st, result) if name in apis.MASKS else result

    def copy_each(self, call: Call, st: State) -> None:
        """``torch._foreach_copy_(targets, sources, non_blocking=False)``: a copy for each pair."""
        outcomes = self.copies.flag(call.get(2, "non_blocking"), st, call.node)
        columns = [self.iterables.known_items(value, st) for value in call.args[:2]]
        pairs = list(zip(*columns, strict=False)) if None not in columns else []
        for target, source in pairs or [[self.containers.any_element(value, st) for value in call.args[:2]]]:
            self.copies.copy_into(st, target, source, outcomes, call.site, "_foreach_copy_()")

    def do_init_function(self, call: Call, st: State) -> Value:
        """``torch.nn.init``: fills in place."""
        if call.args:
            self.tensors.in_place(st, call.args[0], [], call.site, f"{call.text.rpartition('.')[2]}()")
            return call.args[0]
        return UNKNOWN

    def factory(self, name: str, call: Call, st: State) -> Value:
        """A fresh tensor; where it was made with one number, so many elements it has."""
        made = self._make(name, call, st)
        count = call.args[0] if name in apis.SHAPED_FACTORIES and call.args else NONE
        single = len(call.args) == 1 or name == "full"
        if (
            isinstance(made, Tensor)
            and single
            and (isinstance(count, Number) or (isinstance(count, Const) and type(count.value) is int))
        ):
            st.store[(made.name, fields.ELEMENT_COUNT)] = st.store[(made.name.child("shape"), 0)] = count
        return made

    def _make(self, name: str, call: Call, st: State) -> Value:
        """A fresh tensor: pinned, on a device, or in pageable memory."""
        text = f"{name}()"
        self.tensor_methods.check_generator(call, st)
        self.note_sizes(name, call)
        if name in apis.SIZED_FACTORIES:
            for value in call.args[:1] if name == "full" else call.args:
                for size in self.tensors.tensor_results(st, value):
                    if isinstance(size, Tensor):
                        self.tensors.read_on_host(st, size, call.site, f"the size for {text}")
        pinned = call.kwargs.get("pin_memory")
        device = call.kwargs.get("device")
        like = name.endswith("_like")
        if self.run.default_devices and not like and (device is None or device == NONE):
            device = self.run.default_devices[-1]
        for value in iterate(call.args[0]) if like and call.args else ():
            if isinstance(value, Opaque):
                self.tensors.mark_tensor(st, value)
        if pinned is not None and any(
            not (isinstance(v, Const) and v.value is False) and v != NONE for v in iterate(pinned)
        ):
            result = self.objects.fresh(call.node, st, "pinned")
            st.store[(result, fields.PLACE)] = Const("pinned")
            self.run.sites_of[result.base()] = call.site
            if st.capture is not None:
                st.store[(result, fields.ALLOCATED_IN_CAPTURE)] = Const(st.capture.site)
            if name == "tensor":
                self._read_elements(call, st)
            return Tensor(result)
        place = ""
        if device is not None and device != NONE:
            kind = self.copies.device_kind(device)
            place = {"cpu": "pageable", "cuda": "device"}.get(kind or "", "")
        elif like and call.args:
            place = next(
                (self.memory.place(st, v) for v in iterate(call.args[0]) if isinstance(v, Object)), ""
            )
            if place == "pinned":
                place = "pageable"
        elif not like:
            place = "pageable"
        if place == "pageable":
            if name == "tensor":
                self._read_elements(call, st)
            made_there = self.tensor_methods.host_result(call, st)
            if name == "tensor" and not all(isinstance(v, (Container, Tuple)) for v in call.args[:1]):
                self.run.numbers.add(made_there.base())
            if (device is None or device == NONE) and not like and self.run.builds_module:
                st.store.mark(made_there, fields.DEFAULT_DEVICE)
            return Tensor(made_there)
        if not place and self.tensors.on_side_stream(st, "torch"):
            place = "device"
        if name == "tensor" and device is not None:
            self._read_elements(call, st)
            self.captures.sync_in_capture(st, call.site, "torch.tensor() on a device")
        nothing = self._has_no_elements(name, call, st)
        written = not name.startswith("empty") and not nothing
        tags = frozenset({"fill"}) if written else frozenset()
        made = self.tensors.new_tensor(
            st,
            call.site,
            text,
            library="torch",
            place=place,
            written=written,
            allocated=not nothing,
            tags=tags,
        )
        if isinstance(device, Opaque):
            st.store[(made.name, fields.REQUESTED_DEVICE)] = device
        if name == "tensor" and device is not None:
            self.effects.synchronize_stream(st, None, "torch", call.site)
        if like and name == "tensor":
            self.tensors.read_operands(st, call.args, call.site, text)
        return made

    def note_sizes(self, name: str, call: Call) -> None:
        """Remember what counts the elements of a new tensor: where it is nought, there is no memory to speak of."""
        if name in apis.SHAPED_FACTORIES and isinstance(call.node, cst.Call):
            for size in sizes(call.node):
                self.run.sizes.add((self.run.stack[-1].frame, size))

    def _has_no_elements(self, name: str, call: Call, st: State) -> bool:
        """Whether a size that is written down is 0, as of what is to be grown: there is no memory."""
        if name not in apis.SHAPED_FACTORIES or not call.args:
            return False
        sizes = self.iterables.known_items(call.args[0], st) if not isinstance(call.args[0], Const) else None
        return any(size == Const(0) for size in (call.args if sizes is None else sizes))

    def do_make_tensor(self, call: Call, st: State) -> Value:
        """``torch.tensor(data, device=, pin_memory=)``: on a device it blocks (TM-10)."""
        return self.factory("tensor", call, st)

    def _read_elements(self, call: Call, st: State) -> None:
        """The numbers for a new tensor are read on the host; of tensors in a list each one is asked for (TM-08)."""
        for value in call.args:
            if isinstance(value, (Container, Tuple)):
                self.tensors.read_on_host(st, value, call.site, f"{call.text.rpartition('.')[2]}()")
            else:
                self.copies.pass_to_host(st, [value], call.site, f"{call.text.rpartition('.')[2]}()")

    def do_make_cuda_tensor(self, call: Call, st: State) -> Value:
        """``torch.cuda.FloatTensor(sequence)`` fills it from the host, which blocks; given a size it is empty."""
        given = [v for value in call.args[:1] for v in iterate(value)]
        if not given or all(isinstance(v, Const) for v in given):
            return self.factory("empty", replace(call, kwargs=_ON_DEVICE), st)
        if all(isinstance(v, (Container, Tuple)) for v in given):
            return self.factory("tensor", replace(call, kwargs=_ON_DEVICE), st)
        return UNKNOWN

    def do_load(self, call: Call, st: State) -> Value:
        """``torch.load(file, map_location)``: what is mapped to the host lies in pageable memory."""
        where = call.get(1, "map_location")
        if where is None or self.copies.device_kind(where) != "cpu":
            return UNKNOWN
        loaded = Opaque(self.objects.fresh(call.node, st, "loaded"))
        self.run.loaded.add(loaded.name.base())
        return loaded

    def do_as_tensor(self, call: Call, st: State) -> Value:
        """``torch.as_tensor``: shares, or copies to a device."""
        device = call.get(2, "device")
        source = call.args[0] if call.args else UNKNOWN
        if isinstance(source, Tensor) and self.memory.place(st, source) == "device":
            if (
                self.tensors.library_of(st, [source]) == "cupy"
            ):  # the interface's stream is not looked at (CI-07)
                return self.interop.borrowed(source, "torch", st, exchanged=False)
            return source
        known = device is not None and not any(map(_elsewhere, iterate(device)))
        stays = known and any(
            isinstance(v, Tensor) or (isinstance(v, Opaque) and self.tensors.pending_copy(st, v))
            for v in iterate(source)
        )
        if device is not None and device != NONE and not stays:
            return self.factory("tensor", Call(call.node, call.site, call.args, {"device": device}), st)
        return self.do_share_host(call, st)

    def do_share_host(self, call: Call, st: State) -> Value:
        """``torch.from_numpy``: the same host memory."""
        value = call.args[0] if call.args else UNKNOWN
        numpy = call.text == "builtins.memoryview"
        found: list[tuple[Value, Guard]] = []
        for inner, guard in alternatives(value, st.path):
            if isinstance(inner, Tensor):
                found.append((Tensor(inner.name, numpy=numpy, part=inner.part), guard))
            elif isinstance(inner, Opaque):
                found.append((inner, guard))
                if call.text == "torch.from_numpy":
                    self.run.of_numpy.add(inner.name.base())
        if found:
            return union(found)
        made = self.tensor_methods.host_result(call, st)
        if call.text == "torch.from_numpy":
            self.run.of_numpy.add(made.base())
        elif call.text == "torch.frombuffer" or not all(isinstance(v, _HOST_DATA) for v in iterate(value)):
            self.run.unplaced.add(made.base())  # a buffer may be pinned, and a tensor be shared on any device
        return Tensor(made)

    def do_numpy_function(self, call: Call, st: State) -> Value:
        """NumPy reads its arguments on the host; given arrays of CuPy's it is CuPy's function of that name."""
        name = call.text.rpartition(".")[2]
        operands = [v for value in call.everything() for v in iterate(value) if isinstance(v, Tensor)]
        if any(
            self.memory.place(st, v) == "device" and self.tensors.library_of(st, [v]) == "cupy"
            for v in operands
        ):
            return self.arrays.do_cupy_function(call, st)
        if name == "ndarray":
            laid_over = call.kwargs.get("buffer", call.args[2] if len(call.args) > 2 else NONE)
        elif name in ("frombuffer", "asarray", "ascontiguousarray", "reshape", "squeeze") and call.args:
            laid_over = call.args[0]
        else:
            laid_over = NONE
        if laid_over != NONE:
            shared = [(v, guard) for v, guard in alternatives(laid_over, st.path) if isinstance(v, Tensor)]
            if shared:
                return union((Tensor(v.name, numpy=True, part=v.part), guard) for v, guard in shared)
        out = call.kwargs.get("out")
        fills = name in apis.ARRAY_WRITING_FUNCTIONS
        targets = [out] if out is not None else call.args[:1] if fills else []
        reads = [v for v in call.everything() if not any(v is t for t in targets)]
        self.copies.pass_to_host(st, reads, call.site, f"{name}()")
        for target in targets:
            for inner, guard in self.memory.tensors_in(st, target):
                self.accesses.host_access(st, under(inner, guard), call.site, f"{name}()", writes=True)
        return Tensor(self.tensor_methods.host_result(call, st), numpy=True)


_HOST_DATA = (Container, Tuple, Const, Number)

_ON_DEVICE: dict[str, Value] = {"device": Const("cuda")}


def _elsewhere(device: Value) -> bool:
    """Whether a device may be another one than that of the tensor which is taken there; ``x.device`` may be any."""
    return device != Const("cpu") and not (isinstance(device, Device) and device.kind in ("", "cpu"))
