"""Methods and functions that make, copy and read tensors.

One file: it has one short method for each function or method of a tensor.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import replace

import libcst as cst

from streamsafe.order.symbolic import ALWAYS, Guard
from streamsafe.static import advice, apis, hints, parts
from streamsafe.static.arrays import Arrays
from streamsafe.static.computed import COUNT
from streamsafe.static.concrete import sizes, spelled
from streamsafe.static.conditions import Outcomes
from streamsafe.static.devices import MADE_ON
from streamsafe.static.state import State
from streamsafe.static.tensors import Call
from streamsafe.static.values import (
    EACH,
    GRAPHED,
    NONE,
    PLAIN,
    UNKNOWN,
    Api,
    Asked,
    Const,
    Container,
    Context,
    Device,
    Graph,
    Instance,
    Name,
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

HOOK_REGISTRATIONS = frozenset(
    """register_hook register_post_accumulate_grad_hook register_full_backward_hook register_backward_hook
    register_full_backward_pre_hook register_multi_grad_hook register_comm_hook""".split()
)

_TENSOR_METHODS = frozenset(
    """to cuda cpu numpy get set copy_ copy pin_memory record_stream backward resize_ clone zero_grad contiguous
    is_contiguous""".split()
)


class TensorMethods(Arrays):
    """Methods and functions that make, copy and read tensors."""

    # declared here, implemented further down the chain

    def _within_capture(
        self, context: Context, st: State, node: cst.CSTNode, body: Callable[[Value, State], None]
    ) -> None: ...

    @staticmethod
    def is_loader(iterable: Value) -> bool:
        """Whether something is made as a loader or named like one."""

    # -- tensors -------------------------------------------------------------------------------------------------

    def tensor_method(self, receiver: Value, name: str, call: Call, st: State) -> Value:
        """A method of a tensor or an array."""
        first = next((v for v in iterate(receiver) if isinstance(v, Object)), None)
        if first is None:
            return UNKNOWN
        library = self.library_of(st, [receiver])
        if name in ("get", "set") and library == "torch":
            return UNKNOWN  # no tensor of torch has these: it is a mapping, or a client of a store
        special = getattr(self, f"tensor_{name.strip('_')}", None) if name in _TENSOR_METHODS else None
        if special is not None:
            return special(receiver, call, st)  # type: ignore[no-any-return]
        if name in HOOK_REGISTRATIONS:
            return self.register_hooks(name, call, st, receiver)
        if name == "__dlpack__":
            return self.exported(receiver, call, st)
        operator = name.strip("_")
        if name.startswith("__") and operator.removeprefix("i").removeprefix("r") in apis.OPERATOR_METHODS:
            operands = [receiver, *call.everything()]
            if operator not in apis.OPERATOR_METHODS and operator.startswith("i"):
                self.in_place(st, receiver, operands, call.site, "in-place arithmetic")
                return receiver
            return self.operation(st, operands, call.site, "arithmetic", library=library)
        if name == "__setitem__":
            self.in_place(st, receiver, call.everything()[1:], call.site, "item assignment")
            return NONE
        if name in ("__getitem__", "__len__"):
            return receiver if name == "__getitem__" else PLAIN
        if name in apis.ORDERING_METHODS:  # a promise of one
            self.host_learns_everything(st, call.site)
            return receiver
        if self.is_array(st, first):
            found = self.array_method(receiver, first, name, call, st)
            if found is not None:
                return found
        if name in apis.SIZE_METHODS:
            return self.size_of(receiver, call, st) if name == "size" else self.measure(receiver, name, st)
        if name in apis.METADATA_METHODS:
            return PLAIN
        if name in apis.CONTAINER_METHODS:
            return UNKNOWN
        if name == "requires_grad_":
            self.leaf_tensors.update(v.name.base() for v in iterate(receiver) if isinstance(v, Tensor))
        if name in apis.VIEW_METHODS or name in apis.NOT_IN_PLACE:
            if name in ("untyped_storage", "storage", "_typed_storage"):
                return union(
                    (Opaque(v.name.child("storage")), g)
                    for v, g in alternatives(receiver, st.path)
                    if isinstance(v, Object)
                )
            return receiver if name in apis.NOT_IN_PLACE else self.viewed(receiver, name, call, st)
        if name in apis.SCALAR_METHODS:
            self.read_on_host(st, receiver, call.site, f"{name}()")
            for inner, guard in alternatives(receiver, st.path):
                if (
                    isinstance(inner, Opaque)
                    and not self.pending_copy(st, inner)
                    and not self.is_host(st, inner)
                ):
                    self.mark_tensor(st, inner)
                    self.blocking_read(st, under(inner, guard), call.site, f"{name}()")
            return PLAIN
        counted = name == "repeat_interleave" and self.counts_repeats(call.get(0, "repeats"), call, st)
        if name in apis.BLOCKING_METHODS | apis.GENERATING_METHODS or counted:
            return self.blocking_operation(receiver, [receiver, *call.everything()], call, st, f"{name}()")
        if name in ("masked_fill", "masked_fill_"):
            for value in iterate(call.get(1, "value") or UNKNOWN):
                if isinstance(value, Tensor) and not self.is_host(st, value):  # the host asks what to fill in
                    self.sync_in_capture(st, call.site, f"{name}() with a value that is on the device")
        if name.endswith("_") and not name.startswith("_"):
            self.check_generator(call, st)
            operands = call.everything()
            if name == "fill_":  # with a number, where nothing shows that it is a tensor
                operands = [v for v in operands if not isinstance(v, Opaque) or self.is_tensor(st, v)]
            self.rows_are_tensors(st, operands)
            self.in_place(st, receiver, operands, call.site, f"{name}()")
            return receiver
        if name.startswith("new_"):
            return self.new_tensor(
                st,
                call.site,
                f"{name}()",
                library=library,
                place=self.place(st, first),
                written=name != "new_empty",
            )
        out = call.kwargs.get("out")
        if isinstance(first, Tensor) and first.numpy:
            if name in apis.MEMORY_VIEW_METHODS:
                return receiver
            self.host_access(st, receiver, call.site, f"{name}()", writes=False)
            for target, guard in self.tensors(st, out) if out is not None else ():
                self.host_access(st, under(target, guard), call.site, f"{name}()", writes=True)
            return Tensor(self.host_result(call, st), numpy=True)
        operands = [receiver, *call.args, *(v for k, v in call.kwargs.items() if k != "out")]
        if out is not None:
            self.in_place(st, out, operands, call.site, f"{name}()")
            return out
        tags: frozenset[str] = frozenset({"method"} if spelled(hints.KEEPS_OR_SETS, name) else ())
        result = self.operation(st, operands, call.site, f"{name}()", library=library, tags=tags)
        return self.mask(st, result) if name in apis.MASKS else result

    def viewed(self, receiver: Value, name: str, call: Call, st: State) -> Value:
        """What a method gives that is a view: a part, pieces, or the same memory with other axes."""
        whole = self.view(st, receiver)
        keys = self.keys_along(name, call, st)
        given = call.everything()
        constants = tuple(v.value for v in given if isinstance(v, Const) and isinstance(v.value, (int, str)))
        shape: Hashable = (name, constants) if len(constants) == len(given) else id(call.node)
        strided = name in apis.STRIDING_METHODS
        found: list[tuple[Value, Guard]] = []
        for value, guard in alternatives(whole, st.path):
            if isinstance(value, Tensor) and value.strided and name in apis.FLATTENING_METHODS:
                library = self.library_of(st, [value])
                value = self.operation(st, [under(value, guard)], call.site, f"{name}()", library=library)
            elif isinstance(value, Tensor):
                part = value.part
                if keys is not None:
                    part = self.picked(part, keys, st)
                elif name in apis.OVERLAPPING_METHODS:
                    part = parts.reshaped(part, parts.OVERLAPPING)
                elif name in apis.RESHAPING_METHODS or name in apis.PIECE_METHODS:
                    part = parts.reshaped(part, shape)
                value = replace(value, part=part, strided=value.strided or strided)
            found.append((value, guard))
        return union(found)

    def keys_along(self, name: str, call: Call, st: State) -> list[Value] | None:
        """The subscript that ``narrow(dim, start, length)`` or ``select(dim, index)`` stands for."""
        dim, first = call.get(0, "dim"), call.get(1, "start" if name == "narrow" else "index")
        if name not in ("narrow", "select") or first is None:
            return None
        if not isinstance(dim, Const) or type(dim.value) is not int:
            return []
        if name == "narrow":
            length = call.get(2, "length") or PLAIN
            last = self.numbered(cst.Add(), first, length, PLAIN, st)
            first = Partial(Api("builtins.slice"), (first, last, NONE), ())
        if dim.value < 0:
            return [parts.ELLIPSIS, first, *[parts.ALL] * (-1 - dim.value)]
        return [*[parts.ALL] * dim.value, first]

    def tensor_is_contiguous(self, receiver: Value, call: Call, st: State) -> Value:
        """Not known, but the same for the same tensor each time."""
        if call.everything() or not isinstance(receiver, Object):
            return PLAIN
        if isinstance(receiver, Tensor) and receiver.part is not None:
            return PLAIN
        asked = Opaque(receiver.name.child("is_contiguous()"))
        self.plain.add(asked.name.base())
        return asked

    def tensor_contiguous(self, receiver: Value, call: Call, st: State) -> Value:
        """The tensor itself; a copy where it was asked and is not contiguous, or its axes have changed places."""
        found: list[tuple[Value, Guard]] = []
        for inner, guard in alternatives(receiver, st.path):
            name = inner.name.child("is_contiguous()") if isinstance(inner, Object) else None
            turned = isinstance(inner, Tensor) and inner.strided
            if turned or st.path.false & self.conditions.get(("truth", name), 0):
                library = self.library_of(st, [inner])
                inner = self.operation(st, [inner], call.site, "contiguous()", library=library)
            found.append((inner, guard))
        return union(found)

    def host_result(self, call: Call, st: State) -> Name:
        """Fresh host memory."""
        name = self.fresh(call.node, st, "host result")
        st.store[(name, "@place")] = Const("pageable")
        if st.capture is not None:
            st.store[(name, "@captured")] = Const(st.capture.site)
        return name

    def check_generator(self, call: Call, st: State) -> None:
        """A generator of the program's own must be registered with the graph (GM-gen_unreg)."""
        generator = call.kwargs.get("generator")
        if generator is None or generator == NONE or st.capture is None:
            return
        for inner in iterate(generator):
            if isinstance(inner, Object) and (inner.name, "@registered") not in st.store:
                self.rng_in_capture(
                    st, call.site, "draws from a generator that is not registered with the graph"
                )

    def blocking_operation(
        self, receiver: Value, operands: list[Value], call: Call, st: State, text: str
    ) -> Value:
        """An operation whose result's shape or truth the host waits for (TM-10)."""
        library = self.library_of(st, [receiver])
        if any(self.is_host(st, v) for v in iterate(receiver) if isinstance(v, Object)):
            self.read_operands(st, operands, call.site, text)
            return Tensor(self.host_result(call, st))
        self.sync_in_capture(st, call.site, text)
        result = self.operation(st, operands, call.site, text, library=library)
        self.synchronize_stream(st, None, library, call.site)
        return result

    def masked(self, st: State, operands: list[Value], node: cst.CSTNode) -> Value:
        """``x[mask]``: how many elements there are, the host waits for (GM-mask_index)."""
        return self.blocking_operation(
            operands[0], operands, Call(node, self.site(node)), st, "mask indexing"
        )

    def do_where(self, call: Call, st: State) -> Value:
        """``where(condition)`` is ``nonzero``; with three arguments it selects on the device."""
        if len(call.args) == 1 and not call.kwargs.keys() - {"condition"}:
            return self.do_blocking_operation(call, st)
        return self.operation(
            st, call.everything(), call.site, "where()", library=self.library_of(st, call.everything())
        )

    def counts_repeats(self, repeats: Value | None, call: Call, st: State) -> bool:
        """Whether ``repeat_interleave`` must know how many elements there will be (TM-10)."""
        return "output_size" not in call.kwargs and any(
            isinstance(v, Tensor) or (isinstance(v, Opaque) and self.is_tensor(st, v))
            for v in iterate(repeats or UNKNOWN)
        )

    def do_repeat_interleave(self, call: Call, st: State) -> Value:
        """``torch.repeat_interleave(x, repeats)``, or of the numbers of repeats alone."""
        counted = self.counts_repeats(call.get(1, "repeats") or call.get(0, "repeats"), call, st)
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
        for position, function in enumerate(self.tensor_results(st, callables) if several else [callables]):
            given = self.element(samples, Const(position), st) if several else samples
            arguments = self.tensor_results(st, given) if isinstance(given, (Tuple, Container)) else [given]
            graph = Graph(self.fresh(call.node, st, ("graph", position)))
            context = Context("capture", (graph, NONE))
            outputs: list[Value] = []
            if isinstance(function, Object):
                st.store.pop(
                    (function.name, "@graphed"), None
                )  # that was another one: nobody graphs one twice

            def body(
                _: Value,
                state: State,
                f: Value = function,
                args: list[Value] = arguments,
                found: list[Value] = outputs,
            ) -> None:
                found.append(self.call_value(f, Call(call.node, call.site, args), state))

            self._within_capture(context, st, call.node, body)
            if graph.name in st.graphs:  # the samples it keeps itself, and copies into them what it is given
                kept = {inner.name for value in arguments for inner, _ in self.tensors(st, value)}
                st.graphs = {**st.graphs, graph.name: st.graphs[graph.name] - kept}
            captured = Tuple((graph, union((v, ALWAYS) for v in outputs)))
            if isinstance(function, Object):  # a module's own forward is replaced
                st.store[(function.name, "@graphed")] = captured
                made.append(function)
            else:
                made.append(Partial(GRAPHED, (captured,), ()))
        return Tuple(tuple(made)) if several else made[0]

    def call_graphed(self, captured: Value, call: Call, st: State) -> Value:
        """A graphed callable copies what it is given into its inputs, replays, and gives its outputs (GC-25)."""
        if not isinstance(captured, Tuple):
            return UNKNOWN
        graph, outputs = captured.items
        self.read_operands(st, call.everything(), call.site, "the graphed callable")
        self.replay(st, graph, None, "torch", call.site)
        self.launched(st, call.site, "the graphed callable", device=True)
        return outputs

    def do_blocking_operation(self, call: Call, st: State) -> Value:
        """A function that blocks the host."""
        name = f"{call.text}()"
        return self.blocking_operation(
            call.args[0] if call.args else UNKNOWN, call.everything(), call, st, name
        )

    def tensor_to(self, receiver: Value, call: Call, st: State) -> Value:
        """``x.to(...)``."""
        target = call.kwargs.get("device")
        kind = self.device_kind(target) if target is not None else None
        device = target
        if kind is None:
            for argument in call.args[:2]:
                kind, device = self.device_kind(argument), argument
                if kind is not None:
                    break
                if isinstance(argument, Tensor):
                    place = self.place(st, argument)
                    kind = {"device": "cuda", "pinned": "cpu", "pageable": "cpu"}.get(place, "")
                    break
        flag = call.kwargs.get("non_blocking")
        if flag is None and len(call.args) > 2:
            flag = call.args[2]
        if (
            flag is None
            and len(call.args) == 2
            and isinstance(call.args[1], Const)
            and call.args[1].value in (True, False)
        ):
            flag = call.args[1]
        if kind == "" and isinstance(flag, Asked):  # only on one kind of device it is asynchronous
            kind, flag = ("", Const(True)) if flag.on_host else ("cuda", flag)
        outcomes = self.flag(flag, st, call.node)
        text = "to(non_blocking=True)" if any(o for o, _ in outcomes) else "to()"
        if self.moves_itself(receiver, call, st) or self.is_module(receiver, st):
            return self.move_module(receiver, outcomes, call, st, text, down=kind == "cpu")
        opaque = all(isinstance(v, Opaque) and not self.is_tensor(st, v) for v in iterate(receiver))
        if kind is None and not call.starred:
            if flag is not None:
                return self.to_device(st, receiver, outcomes, call.site, text, "", opaque=opaque)
            if opaque:
                return receiver
            return self.operation(st, [receiver], call.site, "to()")
        if kind == "cpu":
            loaded = all(isinstance(v, Object) and self._is_loaded(v.name) for v in iterate(receiver))
            if opaque and (loaded or self._computes_where_given(receiver, call, st)):
                self.set_place(st, receiver, "host")
            return self.to_host(st, receiver, outcomes, call.site, text)
        lying, moved = self._moved_elsewhere(receiver, device, call, st)
        if not moved:
            return receiver
        source = union(moved) if lying else receiver
        copied = self.to_device(
            st, source, outcomes, call.site, text, kind or "", device=device, opaque=opaque
        )
        return union([*((copied, g) for _, g in moved), *lying]) if lying else copied

    def _is_loaded(self, name: Name) -> bool:
        """Whether something is a part of a batch of a loader, made as one or named like one: it is on the host."""
        return any(
            inner.site == EACH and inner.parent is not None and self.is_loader(Opaque(inner.parent))
            for inner in name.chain()
        )

    def _moved_elsewhere(
        self, receiver: Value, device: Value | None, call: Call, st: State
    ) -> tuple[list[tuple[Value, Guard]], list[tuple[Value, Guard]]]:
        """Of what is moved to a device what lies there, if nothing but that is asked for; and what is copied."""
        choices = alternatives(receiver, st.path)
        flags = [v for v in call.args if v is not device]
        plain = all(isinstance(v, Const) and type(v.value) is bool for v in flags)
        if call.starred or not plain or not call.kwargs.keys() <= {"device", "non_blocking"}:
            return [], choices
        lying = [(v, g) for v, g in choices if self.lies_on(st, v, device)]
        return lying, [choice for choice in choices if choice not in lying]

    def _computes_where_given(self, receiver: Value, call: Call, st: State) -> bool:
        """Whether this brings something to where a parameter says, the host by one caller and a device by another.

        Then it computes there: where nothing shows where it lies, that says that the host is to work on what is
        there, and nothing is copied.
        """
        if not isinstance(receiver, Opaque) or self.place(st, receiver) or receiver.name in st.order.made:
            return False
        unit = self.stack[-1].unit
        if unit is None or not isinstance(call.node, cst.Call) or not isinstance(unit.node, cst.FunctionDef):
            return False
        named = [p.name.value for p in (*unit.node.params.params, *unit.node.params.kwonly_params)]
        targets = {a.value.value for a in call.node.args if isinstance(a.value, cst.Name)}
        return any(
            self.file.given_otherwise(unit.name, name, position, "cpu")
            for position, name in enumerate(named)
            if name in targets
        )

    def moves_itself(self, receiver: Value, call: Call, st: State) -> bool:
        """Whether nobody takes the result of a move: then it is a module, which moves in place."""
        return call.node is self.alone and all(
            isinstance(v, Opaque) and not self.is_tensor(st, v) for v in iterate(receiver)
        )

    @staticmethod
    def is_module(receiver: Value, st: State) -> bool:
        """Whether this is a module of torch's that is made here."""
        return all(isinstance(v, Opaque) and (v.name, "@module") in st.store for v in iterate(receiver))

    def move_module(
        self, module: Value, outcomes: Outcomes, call: Call, st: State, text: str, *, down: bool = False
    ) -> Value:
        """``module.to(...)``: its parameters are copied on the current stream into other memory, which it has then."""
        tags = frozenset({"d2h"}) if down and any(outcome for outcome, _ in outcomes) else frozenset()
        for inner, guard in alternatives(module, st.path):
            if isinstance(inner, (Opaque, Instance)):
                weights = self.every_parameter(inner.name)
                one = under(weights, guard)
                self.access(st, one, call.site, text, writes=False)
                st.order.drop(weights.name)
                self.access(st, one, call.site, text, writes=True, tags=tags)
        self.wait_where_blocking(st, outcomes, "torch", call.site)
        return module

    def tensor_cuda(self, receiver: Value, call: Call, st: State) -> Value:
        """``x.cuda(device=None, non_blocking=False)``."""
        outcomes = self.flag(call.get(1, "non_blocking"), st, call.node)
        if self.moves_itself(receiver, call, st) or self.is_module(receiver, st):
            return self.move_module(receiver, outcomes, call, st, "cuda()")
        opaque = all(isinstance(v, Opaque) and not self.is_tensor(st, v) for v in iterate(receiver))
        return self.to_device(st, receiver, outcomes, call.site, "cuda()", "cuda", opaque=opaque)

    def tensor_cpu(self, receiver: Value, call: Call, st: State) -> Value:
        """``x.cpu()`` blocks (TM-08)."""
        return self.to_host(st, receiver, [(False, ALWAYS)], call.site, "cpu()")

    def tensor_numpy(self, receiver: Value, call: Call, st: State) -> Value:
        """``x.numpy()`` is the same host memory: of what lies on a device there is none, it would have raised."""
        if self.library_of(st, [receiver]) == "torch" and not call.args and not call.kwargs:
            for value in iterate(receiver):
                if isinstance(value, (Tensor, Opaque)) and not self.place(st, value):
                    self.set_place(st, value, "host")
        found = []
        for value, guard in alternatives(self.view(st, receiver), st.path):
            if isinstance(value, (Tensor, Opaque)):
                found.append((Tensor(value.name, numpy=True, part=value.part), guard))
        return union(found) if found else UNKNOWN

    def tensor_copy(self, receiver: Value, call: Call, st: State) -> Value:
        """``a.copy_(b, non_blocking=False)``; NumPy's and CuPy's ``copy()`` make a fresh array."""
        source = call.get(0, "src")
        if source is None or isinstance(source, Const) or call.text == "copy":
            return self.operation(
                st, [receiver], call.site, "copy()", library=self.library_of(st, [receiver])
            )
        outcomes = self.flag(call.get(1, "non_blocking"), st, call.node)
        target = self.behind_storage(receiver)
        self.copy_into(st, target, self.behind_storage(source), outcomes, call.site, "copy_()")
        return receiver

    def behind_storage(self, value: Value) -> Value:
        """Of a storage the tensor whose memory it is."""
        return union(
            (Tensor(self.block_of(v.name)) if isinstance(v, Opaque) and v.name.site == "storage" else v, g)
            for v, g in alternatives(value)
        )

    def tensor_pin_memory(self, receiver: Value, call: Call, st: State) -> Value:
        """``x.pin_memory()``: a fresh pinned copy, made by the host.

        What is pinned already is returned as it is, and a copy to pageable memory is complete when it returns (TM-07):
        only of what is known to be the host's is this a read.
        """
        places = [self.place(st, v) for v in iterate(receiver) if isinstance(v, Object)]
        if "pinned" in places:
            return receiver
        if all(places):
            self.hand_to_host(st, [receiver], call.site, "pin_memory()")
        self.waits += bool(
            self.threads
        )  # it asks the driver for memory, which breaks another thread's capture
        name = self.fresh(call.node, st, advice.PINNED_COPY)
        st.store[(name, "@place")] = Const("pinned")
        return Tensor(name)

    def do_pin_memory(self, call: Call, st: State) -> Value:
        """``accelerator.pin_memory(x)``: as the method."""
        source = call.args[0] if call.args else UNKNOWN
        return self.tensor_pin_memory(source, Call(call.node, call.site), st)

    def do_on_device(self, call: Call, st: State) -> Value:
        """``accelerator.on_accelerator(x)``: as ``x.is_cuda``."""
        source = call.args[0] if call.args else UNKNOWN
        return self.attribute(source, "is_cuda", st, call.node)

    def tensor_record_stream(self, receiver: Value, call: Call, st: State) -> Value:
        """``x.record_stream(s)``."""
        stream = call.get(0, "stream")
        if stream is not None:
            for inner in iterate(receiver):
                if isinstance(inner, Object):
                    self.mark_tensor(st, inner)
            self.record_stream(st, receiver, self.as_stream(stream, "torch"), "torch", call.site)
        return NONE

    def tensor_backward(self, receiver: Value, call: Call, st: State) -> Value:
        """``loss.backward(gradient=None)``."""
        gradient = call.get(0, "gradient")
        if gradient is None:
            gradient = call.kwargs.get("grad_tensors")
        given, leaves = self._gradients(gradient, st), call.get(3, "inputs")
        self.backward(st, [receiver], given, call.site, "backward()", leaves)
        return NONE

    def tensor_resize(self, receiver: Value, call: Call, st: State) -> Value:
        """A storage's ``resize_(0)`` gives the block back, ``resize_(n)`` takes one; what grows takes another."""
        if call.args and call.args[0] == Const(0):
            for inner in iterate(receiver):
                if isinstance(inner, Object):
                    block = self.block_of(inner.name)
                    self.presume_allocated(st, block)
                    self.release(st, block, call.site)
        elif call.args:
            for inner in iterate(receiver):
                if isinstance(inner, Object) and inner.name.site == "storage":
                    self.allocate(st, self.block_of(inner.name), self.library_of(st, [inner]), call.site)
                elif isinstance(inner, Object):
                    self.moved_input(st, inner.name, call.site)
        return receiver

    @staticmethod
    def block_of(name: Name) -> Name:
        """The tensor whose storage this is."""
        return name.parent if name.site == "storage" and name.parent is not None else name

    def tensor_clone(self, receiver: Value, call: Call, st: State) -> Value:
        """``x.clone()``: a fresh tensor in the same place."""
        return self.operation(st, [receiver], call.site, "clone()")

    def tensor_zero_grad(self, receiver: Value, call: Call, st: State) -> Value:
        """Gradients are given up, or zeroed where they are."""
        if call.get(0, "set_to_none") == Const(False):
            gradients, tags = self.gradients_of(st, [receiver]), frozenset({"gradient use"})
            self.in_place(st, gradients, [], call.site, "zero_grad()", tags)
        else:
            self.drop_captured(st, self.gradients_of(st, [receiver]), call.site)
        return NONE

    # -- library functions on tensors ----------------------------------------------------------------------------

    def do_torch_function(self, call: Call, st: State) -> Value:
        """A function of torch: a factory, or an operation on its arguments."""
        name = call.text.rpartition(".")[2]
        path = call.text.split(".")
        if any(part[:1] == "_" for part in path[1:-1]):  # not all that torch has for itself gives tensors
            return self.unmodelled(Api(call.text), call, st)
        if name in apis.FACTORIES and len(path) == 2 and "out" not in call.kwargs:
            made = self.factory(name, call, st)
            return self.mask(st, made) if call.kwargs.get("dtype") == Api("torch.bool") else made
        if name[:1].isupper() or name in (
            "get_default_dtype",
            "device",
            "Size",
            "typename",
            "finfo",
            "iinfo",
        ):
            return PLAIN if name[:1].islower() else UNKNOWN
        self.check_generator(call, st)
        if name == "_foreach_copy_" and len(call.args) > 1:
            self.copy_each(call, st)
            return NONE
        if name.startswith("_foreach_") and name.endswith("_"):
            for value in call.args[:1]:
                self.in_place(
                    st,
                    union((v, ALWAYS) for v in self.tensor_results(st, value)),
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
        self.rows_are_tensors(st, operands)
        if out is not None:
            for value in self.tensor_results(st, out):
                self.in_place(st, value, operands, call.site, text)
            return out
        if name in apis.VIEW_FUNCTIONS:
            if not call.args or name == "from_dlpack":
                return call.args[0] if call.args else UNKNOWN
            return self.viewed(call.args[0], name, Call(call.node, call.site, call.args[1:], call.kwargs), st)
        if name.endswith("_") and call.args:
            self.in_place(st, call.args[0], call.args[1:], call.site, text)
            return call.args[0]
        if not any(self.tensors(st, o) for o in operands):
            return UNKNOWN
        result = self.operation(st, operands, call.site, text)
        return self.mask(st, result) if name in apis.MASKS else result

    def copy_each(self, call: Call, st: State) -> None:
        """``torch._foreach_copy_(targets, sources, non_blocking=False)``: a copy for each pair."""
        outcomes = self.flag(call.get(2, "non_blocking"), st, call.node)
        columns = [self.known_items(value, st) for value in call.args[:2]]
        pairs = list(zip(*columns, strict=False)) if None not in columns else []
        for target, source in pairs or [[self.any_element(value, st) for value in call.args[:2]]]:
            self.copy_into(st, target, source, outcomes, call.site, "_foreach_copy_()")

    def do_init_function(self, call: Call, st: State) -> Value:
        """``torch.nn.init``: fills in place."""
        if call.args:
            self.in_place(st, call.args[0], [], call.site, f"{call.text.rpartition('.')[2]}()")
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
            st.store[(made.name, COUNT)] = st.store[(made.name.child("shape"), 0)] = count
        return made

    def _make(self, name: str, call: Call, st: State) -> Value:
        """A fresh tensor: pinned, on a device, or in pageable memory."""
        text = f"{name}()"
        self.check_generator(call, st)
        self.note_sizes(name, call)
        if name in apis.SIZED_FACTORIES:
            for value in call.args[:1] if name == "full" else call.args:
                for size in self.tensor_results(st, value):
                    if isinstance(size, Tensor):
                        self.read_on_host(st, size, call.site, f"the size for {text}")
        pinned = call.kwargs.get("pin_memory")
        device = call.kwargs.get("device")
        like = name.endswith("_like")
        if self.default_devices and not like and (device is None or device == NONE):
            device = self.default_devices[-1]
        for value in iterate(call.args[0]) if like and call.args else ():
            if isinstance(value, Opaque):
                self.mark_tensor(st, value)
        if pinned is not None and any(
            not (isinstance(v, Const) and v.value is False) and v != NONE for v in iterate(pinned)
        ):
            result = self.fresh(call.node, st, "pinned")
            st.store[(result, "@place")] = Const("pinned")
            self.sites_of[result.base()] = call.site
            if st.capture is not None:
                st.store[(result, "@captured")] = Const(st.capture.site)
            if name == "tensor":
                self._read_elements(call, st)
            return Tensor(result)
        place = ""
        if device is not None and device != NONE:
            kind = self.device_kind(device)
            place = {"cpu": "pageable", "cuda": "device"}.get(kind or "", "")
        elif like and call.args:
            place = next((self.place(st, v) for v in iterate(call.args[0]) if isinstance(v, Object)), "")
            if place == "pinned":
                place = "pageable"
        elif not like:
            place = "pageable"
        if place == "pageable":
            if name == "tensor":
                self._read_elements(call, st)
            made_there = self.host_result(call, st)
            if name == "tensor" and not all(isinstance(v, (Container, Tuple)) for v in call.args[:1]):
                self.numbers.add(made_there.base())
            if (device is None or device == NONE) and not like and self.builds_module:
                st.store[(made_there, "@by default")] = PLAIN
            return Tensor(made_there)
        if not place and self.on_side_stream(st, "torch"):
            place = "device"
        if name == "tensor" and device is not None:
            self._read_elements(call, st)
            self.sync_in_capture(st, call.site, "torch.tensor() on a device")
        nothing = self._has_no_elements(name, call, st)
        written = not name.startswith("empty") and not nothing
        tags = frozenset({"fill"}) if written else frozenset()
        made = self.new_tensor(
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
            st.store[(made.name, MADE_ON)] = device
        if name == "tensor" and device is not None:
            self.synchronize_stream(st, None, "torch", call.site)
        if like and name == "tensor":
            self.read_operands(st, call.args, call.site, text)
        return made

    def note_sizes(self, name: str, call: Call) -> None:
        """Remember what counts the elements of a new tensor: where it is nought, there is no memory to speak of."""
        if name in apis.SHAPED_FACTORIES and isinstance(call.node, cst.Call):
            for size in sizes(call.node):
                self.sizes.add((self.stack[-1].frame, size))

    def _has_no_elements(self, name: str, call: Call, st: State) -> bool:
        """Whether a size that is written down is 0, as of what is to be grown: there is no memory."""
        if name not in apis.SHAPED_FACTORIES or not call.args:
            return False
        sizes = self.known_items(call.args[0], st) if not isinstance(call.args[0], Const) else None
        return any(size == Const(0) for size in (call.args if sizes is None else sizes))

    def do_make_tensor(self, call: Call, st: State) -> Value:
        """``torch.tensor(data, device=, pin_memory=)``: on a device it blocks (TM-10)."""
        return self.factory("tensor", call, st)

    def _read_elements(self, call: Call, st: State) -> None:
        """The numbers for a new tensor are read on the host; of tensors in a list each one is asked for (TM-08)."""
        for value in call.args:
            if isinstance(value, (Container, Tuple)):
                self.read_on_host(st, value, call.site, f"{call.text.rpartition('.')[2]}()")
            else:
                self.hand_to_host(st, [value], call.site, f"{call.text.rpartition('.')[2]}()")

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
        if where is None or self.device_kind(where) != "cpu":
            return UNKNOWN
        loaded = Opaque(self.fresh(call.node, st, "loaded"))
        self.loaded.add(loaded.name.base())
        return loaded

    def do_as_tensor(self, call: Call, st: State) -> Value:
        """``torch.as_tensor``: shares, or copies to a device."""
        device = call.get(2, "device")
        source = call.args[0] if call.args else UNKNOWN
        if isinstance(source, Tensor) and self.place(st, source) == "device":
            if self.library_of(st, [source]) == "cupy":  # the interface's stream is not looked at (CI-07)
                return self.borrowed(source, "torch", st, exchanged=False)
            return source
        known = device is not None and not any(map(_elsewhere, iterate(device)))
        stays = known and any(
            isinstance(v, Tensor) or (isinstance(v, Opaque) and self.pending_copy(st, v))
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
                    self.of_numpy.add(inner.name.base())
        if found:
            return union(found)
        made = self.host_result(call, st)
        if call.text == "torch.from_numpy":
            self.of_numpy.add(made.base())
        elif call.text == "torch.frombuffer" or not all(isinstance(v, _HOST_DATA) for v in iterate(value)):
            self.unplaced.add(made.base())  # a buffer may be pinned, and a tensor be shared on any device
        return Tensor(made)

    def do_numpy_function(self, call: Call, st: State) -> Value:
        """NumPy reads its arguments on the host; given arrays of CuPy's it is CuPy's function of that name."""
        name = call.text.rpartition(".")[2]
        operands = [v for value in call.everything() for v in iterate(value) if isinstance(v, Tensor)]
        if any(self.place(st, v) == "device" and self.library_of(st, [v]) == "cupy" for v in operands):
            return self.do_cupy_function(call, st)
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
        self.hand_to_host(st, reads, call.site, f"{name}()")
        for target in targets:
            for inner, guard in self.tensors(st, target):
                self.host_access(st, under(inner, guard), call.site, f"{name}()", writes=True)
        return Tensor(self.host_result(call, st), numpy=True)

    def table_known(self, name: Name) -> None:
        """A stream is reached by this name."""
        self.carriers.bit(name)

    def _mapping_or_array(self, receiver: Opaque, name: str, call: Call, st: State) -> Value:
        arrays = self.default_library == "cupy" and (
            call.kwargs.keys() & {"stream", "out", "blocking"}
            or self.is_tensor(st, receiver)
            or (name == "get" and not call.args)
        )
        if arrays:
            return self.tensor_method(receiver, name, call, st)
        if name == "get" and call.args:
            return self._element(receiver, call.args[0], st)
        if name == "copy":
            return receiver
        return self.unmodelled(receiver, call, st, name)


_HOST_DATA = (Container, Tuple, Const, Number)
_ON_DEVICE: dict[str, Value] = {"device": Const("cuda")}


def _elsewhere(device: Value) -> bool:
    """Whether a device may be another one than that of the tensor which is taken there; ``x.device`` may be any."""
    return device != Const("cpu") and not (isinstance(device, Device) and device.kind in ("", "cpu"))
