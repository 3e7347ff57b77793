"""Methods of tensors and arrays: the dispatch over their names, views, and what brings values to the host."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import replace

import libcst as cst

from streamsafe.apis import names as apis
from streamsafe.order.symbolic import Guard
from streamsafe.static import fields, hints, parts
from streamsafe.static.concrete import spelled
from streamsafe.static.state import State
from streamsafe.static.transfer import advice
from streamsafe.static.transfer.part import Part
from streamsafe.static.transfer.tensors import Call
from streamsafe.static.values import (
    NONE,
    PLAIN,
    UNKNOWN,
    Api,
    Const,
    Name,
    Object,
    Opaque,
    Partial,
    Tensor,
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


class TensorMethods(Part):
    """Methods of tensors and arrays."""

    special: dict[str, Callable[[Value, Call, State], Value]]
    """By name, the methods of tensors that are more than an operation."""

    # -- tensors -------------------------------------------------------------------------------------------------

    def connected(self) -> None:
        """Builds the table of handlers."""
        self.special = {
            "to": self.placement.tensor_to,
            "cuda": self.placement.tensor_cuda,
            "cpu": self.placement.tensor_cpu,
            "numpy": self.tensor_numpy,
            "get": self.arrays.tensor_get,
            "set": self.arrays.tensor_set,
            "copy_": self.tensor_copy,
            "copy": self.tensor_copy,
            "pin_memory": self.tensor_pin_memory,
            "record_stream": self.tensor_record_stream,
            "backward": self.tensor_backward,
            "resize_": self.tensor_resize,
            "clone": self.tensor_clone,
            "zero_grad": self.tensor_zero_grad,
            "contiguous": self.tensor_contiguous,
            "is_contiguous": self.tensor_is_contiguous,
        }

    def tensor_method(self, receiver: Value, name: str, call: Call, st: State) -> Value:
        """A method of a tensor or an array."""
        first = next((v for v in iterate(receiver) if isinstance(v, Object)), None)
        if first is None:
            return UNKNOWN
        library = self.tensors.library_of(st, [receiver])
        if name in ("get", "set") and library == "torch":
            return UNKNOWN  # no tensor of torch has these: it is a mapping, or a client of a store
        special = self.special.get(name)
        if special is not None:
            return special(receiver, call, st)
        if name in HOOK_REGISTRATIONS:
            return self.hooks.register_hooks(name, call, st, receiver)
        if name == "__dlpack__":
            return self.interop.exported(receiver, call, st)
        operator = name.strip("_")
        if name.startswith("__") and operator.removeprefix("i").removeprefix("r") in apis.OPERATOR_METHODS:
            operands = [receiver, *call.everything()]
            if operator not in apis.OPERATOR_METHODS and operator.startswith("i"):
                self.tensors.in_place(st, receiver, operands, call.site, "in-place arithmetic")
                return receiver
            return self.tensors.operation(st, operands, call.site, "arithmetic", library=library)
        if name == "__setitem__":
            self.tensors.in_place(st, receiver, call.everything()[1:], call.site, "item assignment")
            return NONE
        if name in ("__getitem__", "__len__"):
            return receiver if name == "__getitem__" else PLAIN
        if name in apis.ORDERING_METHODS:  # a promise of one
            self.effects.host_learns_everything(st, call.site)
            return receiver
        if self.arrays.is_array(st, first):
            found = self.arrays.array_method(receiver, first, name, call, st)
            if found is not None:
                return found
        if name in apis.SIZE_METHODS:
            return (
                self.computed.size_of(receiver, call, st)
                if name == "size"
                else self.computed.measure(receiver, name, st)
            )
        if name in apis.METADATA_METHODS:
            return PLAIN
        if name in apis.CONTAINER_METHODS:
            return UNKNOWN
        if name == "requires_grad_":
            self.run.leaf_tensors.update(v.name.base() for v in iterate(receiver) if isinstance(v, Tensor))
        if name in apis.VIEW_METHODS or name in apis.NOT_IN_PLACE:
            if name in ("untyped_storage", "storage", "_typed_storage"):
                return union(
                    (Opaque(v.name.child("storage")), g)
                    for v, g in alternatives(receiver, st.path)
                    if isinstance(v, Object)
                )
            return receiver if name in apis.NOT_IN_PLACE else self.viewed(receiver, name, call, st)
        if name in apis.SCALAR_METHODS:
            self.tensors.read_on_host(st, receiver, call.site, f"{name}()")
            for inner, guard in alternatives(receiver, st.path):
                if (
                    isinstance(inner, Opaque)
                    and not self.tensors.pending_copy(st, inner)
                    and not self.tensors.is_host(st, inner)
                ):
                    self.tensors.mark_tensor(st, inner)
                    self.tensors.blocking_read(st, under(inner, guard), call.site, f"{name}()")
            return PLAIN
        counted = name == "repeat_interleave" and self.counts_repeats(call.get(0, "repeats"), call, st)
        if name in apis.BLOCKING_METHODS | apis.GENERATING_METHODS or counted:
            return self.blocking_operation(receiver, [receiver, *call.everything()], call, st, f"{name}()")
        if name in ("masked_fill", "masked_fill_"):
            for value in iterate(call.get(1, "value") or UNKNOWN):
                if isinstance(value, Tensor) and not self.tensors.is_host(
                    st, value
                ):  # the host asks what to fill in
                    self.captures.sync_in_capture(
                        st, call.site, f"{name}() with a value that is on the device"
                    )
        if name.endswith("_") and not name.startswith("_"):
            self.check_generator(call, st)
            operands = call.everything()
            if name == "fill_":  # with a number, where nothing shows that it is a tensor
                operands = [
                    v for v in operands if not isinstance(v, Opaque) or self.expressions.is_tensor(st, v)
                ]
            self.tensors.rows_are_tensors(st, operands)
            self.tensors.in_place(st, receiver, operands, call.site, f"{name}()")
            return receiver
        if name.startswith("new_"):
            return self.tensors.new_tensor(
                st,
                call.site,
                f"{name}()",
                library=library,
                place=self.memory.place(st, first),
                written=name != "new_empty",
            )
        out = call.kwargs.get("out")
        if isinstance(first, Tensor) and first.numpy:
            if name in apis.MEMORY_VIEW_METHODS:
                return receiver
            self.accesses.host_access(st, receiver, call.site, f"{name}()", writes=False)
            for target, guard in self.memory.tensors_in(st, out) if out is not None else ():
                self.accesses.host_access(st, under(target, guard), call.site, f"{name}()", writes=True)
            return Tensor(self.host_result(call, st), numpy=True)
        operands = [receiver, *call.args, *(v for k, v in call.kwargs.items() if k != "out")]
        if out is not None:
            self.tensors.in_place(st, out, operands, call.site, f"{name}()")
            return out
        tags: frozenset[str] = frozenset({"method"} if spelled(hints.KEEPS_OR_SETS, name) else ())
        result = self.tensors.operation(st, operands, call.site, f"{name}()", library=library, tags=tags)
        return self.arithmetic.mask(st, result) if name in apis.MASKS else result

    def viewed(self, receiver: Value, name: str, call: Call, st: State) -> Value:
        """What a method gives that is a view: a part, pieces, or the same memory with other axes."""
        whole = self.memory.view(st, receiver)
        keys = self.keys_along(name, call, st)
        given = call.everything()
        constants = tuple(v.value for v in given if isinstance(v, Const) and isinstance(v.value, (int, str)))
        shape: Hashable = (name, constants) if len(constants) == len(given) else id(call.node)
        strided = name in apis.STRIDING_METHODS
        found: list[tuple[Value, Guard]] = []
        for value, guard in alternatives(whole, st.path):
            if isinstance(value, Tensor) and value.strided and name in apis.FLATTENING_METHODS:
                library = self.tensors.library_of(st, [value])
                value = self.tensors.operation(
                    st, [under(value, guard)], call.site, f"{name}()", library=library
                )
            elif isinstance(value, Tensor):
                part = value.part
                if keys is not None:
                    part = self.subscripts.picked(part, keys, st)
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
            last = self.computed.numbered(cst.Add(), first, length, PLAIN, st)
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
        answer = Opaque(receiver.name.child("is_contiguous()"))
        self.run.plain.add(answer.name.base())
        return answer

    def tensor_contiguous(self, receiver: Value, call: Call, st: State) -> Value:
        """The tensor itself; a copy where it was asked and is not contiguous, or its axes have changed places."""
        found: list[tuple[Value, Guard]] = []
        for inner, guard in alternatives(receiver, st.path):
            name = inner.name.child("is_contiguous()") if isinstance(inner, Object) else None
            turned = isinstance(inner, Tensor) and inner.strided
            if turned or st.path.false & self.run.conditions.get(("truth", name), 0):
                library = self.tensors.library_of(st, [inner])
                inner = self.tensors.operation(st, [inner], call.site, "contiguous()", library=library)
            found.append((inner, guard))
        return union(found)

    def host_result(self, call: Call, st: State) -> Name:
        """Fresh host memory."""
        name = self.objects.fresh(call.node, st, "host result")
        st.store[(name, fields.PLACE)] = Const("pageable")
        if st.capture is not None:
            st.store[(name, fields.ALLOCATED_IN_CAPTURE)] = Const(st.capture.site)
        return name

    def check_generator(self, call: Call, st: State) -> None:
        """A generator of the program's own must be registered with the graph (GM-gen_unreg)."""
        generator = call.kwargs.get("generator")
        if generator is None or generator == NONE or st.capture is None:
            return
        for inner in iterate(generator):
            if isinstance(inner, Object) and not st.store.marked(inner.name, fields.REGISTERED_GENERATOR):
                self.captures.rng_in_capture(
                    st, call.site, "draws from a generator that is not registered with the graph"
                )

    def blocking_operation(
        self, receiver: Value, operands: list[Value], call: Call, st: State, text: str
    ) -> Value:
        """An operation whose result's shape or truth the host waits for (TM-10)."""
        library = self.tensors.library_of(st, [receiver])
        if any(self.tensors.is_host(st, v) for v in iterate(receiver) if isinstance(v, Object)):
            self.tensors.read_operands(st, operands, call.site, text)
            return Tensor(self.host_result(call, st))
        self.captures.sync_in_capture(st, call.site, text)
        result = self.tensors.operation(st, operands, call.site, text, library=library)
        self.effects.synchronize_stream(st, None, library, call.site)
        return result

    def masked(self, st: State, operands: list[Value], node: cst.CSTNode) -> Value:
        """``x[mask]``: how many elements there are, the host waits for (GM-mask_index)."""
        return self.blocking_operation(
            operands[0], operands, Call(node, self.call_stack.site(node)), st, "mask indexing"
        )

    def counts_repeats(self, repeats: Value | None, call: Call, st: State) -> bool:
        """Whether ``repeat_interleave`` must know how many elements there will be (TM-10)."""
        return "output_size" not in call.kwargs and any(
            isinstance(v, Tensor) or (isinstance(v, Opaque) and self.expressions.is_tensor(st, v))
            for v in iterate(repeats or UNKNOWN)
        )

    def tensor_numpy(self, receiver: Value, call: Call, st: State) -> Value:
        """``x.numpy()`` is the same host memory: of what lies on a device there is none, it would have raised."""
        if self.tensors.library_of(st, [receiver]) == "torch" and not call.args and not call.kwargs:
            for value in iterate(receiver):
                if isinstance(value, (Tensor, Opaque)) and not self.memory.place(st, value):
                    self.memory.set_place(st, value, "host")
        found = []
        for value, guard in alternatives(self.memory.view(st, receiver), st.path):
            if isinstance(value, (Tensor, Opaque)):
                found.append((Tensor(value.name, numpy=True, part=value.part), guard))
        return union(found) if found else UNKNOWN

    def tensor_copy(self, receiver: Value, call: Call, st: State) -> Value:
        """``a.copy_(b, non_blocking=False)``; NumPy's and CuPy's ``copy()`` make a fresh array."""
        source = call.get(0, "src")
        if source is None or isinstance(source, Const) or call.text == "copy":
            return self.tensors.operation(
                st, [receiver], call.site, "copy()", library=self.tensors.library_of(st, [receiver])
            )
        outcomes = self.copies.flag(call.get(1, "non_blocking"), st, call.node)
        target = self.behind_storage(receiver)
        self.copies.copy_into(st, target, self.behind_storage(source), outcomes, call.site, "copy_()")
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
        places = [self.memory.place(st, v) for v in iterate(receiver) if isinstance(v, Object)]
        if "pinned" in places:
            return receiver
        if all(places):
            self.copies.pass_to_host(st, [receiver], call.site, "pin_memory()")
        self.run.waits += bool(
            self.run.threads
        )  # it asks the driver for memory, which breaks another thread's capture
        name = self.objects.fresh(call.node, st, advice.PINNED_COPY)
        st.store[(name, fields.PLACE)] = Const("pinned")
        return Tensor(name)

    def tensor_record_stream(self, receiver: Value, call: Call, st: State) -> Value:
        """``x.record_stream(s)``."""
        stream = call.get(0, "stream")
        if stream is not None:
            for inner in iterate(receiver):
                if isinstance(inner, Object):
                    self.tensors.mark_tensor(st, inner)
            self.memory.record_stream(
                st, receiver, self.effects.as_stream(stream, "torch"), "torch", call.site
            )
        return NONE

    def tensor_backward(self, receiver: Value, call: Call, st: State) -> Value:
        """``loss.backward(gradient=None)``."""
        gradient = call.get(0, "gradient")
        if gradient is None:
            gradient = call.kwargs.get("grad_tensors")
        given, leaves = self.torch_modules.gradient_arguments(gradient, st), call.get(3, "inputs")
        self.gradients.backward(st, [receiver], given, call.site, "backward()", leaves)
        return NONE

    def tensor_resize(self, receiver: Value, call: Call, st: State) -> Value:
        """A storage's ``resize_(0)`` gives the block back, ``resize_(n)`` takes one; what grows takes another."""
        if call.args and call.args[0] == Const(0):
            for inner in iterate(receiver):
                if isinstance(inner, Object):
                    block = self.block_of(inner.name)
                    self.memory.presume_allocated(st, block)
                    self.lifetimes.release(st, block, call.site)
        elif call.args:
            for inner in iterate(receiver):
                if isinstance(inner, Object) and inner.name.site == "storage":
                    self.memory.allocate(
                        st, self.block_of(inner.name), self.tensors.library_of(st, [inner]), call.site
                    )
                elif isinstance(inner, Object):
                    self.graph_memory.moved_input(st, inner.name, call.site)
        return receiver

    @staticmethod
    def block_of(name: Name) -> Name:
        """The tensor whose storage this is."""
        return name.parent if name.site == "storage" and name.parent is not None else name

    def tensor_clone(self, receiver: Value, call: Call, st: State) -> Value:
        """``x.clone()``: a fresh tensor in the same place."""
        return self.tensors.operation(st, [receiver], call.site, "clone()")

    def tensor_zero_grad(self, receiver: Value, call: Call, st: State) -> Value:
        """Gradients are given up, or zeroed where they are."""
        if call.get(0, "set_to_none") == Const(False):
            gradients, tags = self.gradients.gradients_of(st, [receiver]), frozenset({"gradient use"})
            self.tensors.in_place(st, gradients, [], call.site, "zero_grad()", tags)
        else:
            self.gradients.drop_captured(st, self.gradients.gradients_of(st, [receiver]), call.site)
        return NONE

    # -- library functions on tensors ----------------------------------------------------------------------------

    def table_known(self, name: Name) -> None:
        """A stream is reached by this name."""
        self.run.carriers.bit(name)

    def mapping_or_array(self, receiver: Opaque, name: str, call: Call, st: State) -> Value:
        """A method that both mappings and arrays have, of an object that may be either."""
        if call.kwargs.keys() & {"out", "blocking"} and self.tensors.uses("cupy"):
            self.run.libraries.setdefault(receiver.name.base(), "cupy")  # nothing else takes these
        arrays = self.tensors.library_of(st, [receiver]) == "cupy" and (
            call.kwargs.keys() & {"stream", "out", "blocking"}
            or self.expressions.is_tensor(st, receiver)
            or (name == "get" and not call.args)
        )
        if arrays:
            return self.tensor_method(receiver, name, call, st)
        if name == "get" and call.args:
            return self.elements.element_of_one(receiver, call.args[0], st)
        if name == "copy":
            return receiver
        return self.unseen.unmodelled(receiver, call, st, name)
