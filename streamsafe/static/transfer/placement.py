"""``to()``, ``cuda()`` and ``cpu()``: where tensors and modules are, and which copies that takes."""

from __future__ import annotations

import libcst as cst

from streamsafe.order.symbolic import ALWAYS, Guard
from streamsafe.static import fields
from streamsafe.static.state import State
from streamsafe.static.transfer.conditions import Outcomes
from streamsafe.static.transfer.part import Part
from streamsafe.static.transfer.tensors import Call
from streamsafe.static.values import (
    EACH,
    Api,
    Const,
    DeviceTest,
    Instance,
    Name,
    Object,
    Opaque,
    Tensor,
    Value,
    alternatives,
    iterate,
    under,
    union,
)


class Placement(Part):
    """Moves tensors and modules between host and devices."""

    def tensor_to(self, receiver: Value, call: Call, st: State) -> Value:
        """``x.to(...)``."""
        target = call.kwargs.get("device")
        kind = self.copies.device_kind(target) if target is not None else None
        device = target
        if kind is None:
            for argument in call.args[:2]:
                kind, device = self.copies.device_kind(argument), argument
                if kind is not None:
                    break
                if isinstance(argument, Tensor):
                    place = self.memory.place(st, argument)
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
        if kind == "" and isinstance(flag, DeviceTest):  # only on one kind of device it is asynchronous
            kind, flag = ("", Const(True)) if flag.on_host else ("cuda", flag)
        outcomes = self.copies.flag(flag, st, call.node)
        text = "to(non_blocking=True)" if any(o for o, _ in outcomes) else "to()"
        if self.moves_itself(receiver, call, st) or self.is_module(receiver, st):
            return self.move_module(receiver, outcomes, call, st, text, down=kind == "cpu")
        opaque = all(
            isinstance(v, Opaque) and not self.expressions.is_tensor(st, v) for v in iterate(receiver)
        )
        if kind is None and not call.starred:
            if flag is not None:
                return self.copies.to_device(st, receiver, outcomes, call.site, text, "", opaque=opaque)
            if opaque:
                return receiver
            return self.tensors.operation(st, [receiver], call.site, "to()")
        if kind == "cpu":
            loaded = all(isinstance(v, Object) and self._is_loaded(v.name) for v in iterate(receiver))
            if opaque and (loaded or self._moves_where_parameter_says(receiver, call, st)):
                self.memory.set_place(st, receiver, "host")
            return self.copies.to_host(st, receiver, outcomes, call.site, text)
        lying, moved = self._moved_elsewhere(receiver, device, call, st)
        if not moved:
            return receiver
        source = union(moved) if lying else receiver
        copied = self.copies.to_device(
            st, source, outcomes, call.site, text, kind or "", device=device, opaque=opaque
        )
        return union([*((copied, g) for _, g in moved), *lying]) if lying else copied

    def _is_loaded(self, name: Name) -> bool:
        """Whether something is a part of a batch of a loader, made as one or named like one: it is on the host."""
        return any(
            inner.site == EACH and inner.parent is not None and self.iterables.is_loader(Opaque(inner.parent))
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
        lying = [(v, g) for v, g in choices if self.devices.lies_on(st, v, device)]
        return lying, [choice for choice in choices if choice not in lying]

    def _moves_where_parameter_says(self, receiver: Value, call: Call, st: State) -> bool:
        """Whether this brings something to where a parameter says, the host by one caller and a device by another.

        Then it computes there: where nothing shows where it lies, that says that the host is to work on what is
        there, and nothing is copied.
        """
        if (
            not isinstance(receiver, Opaque)
            or self.memory.place(st, receiver)
            or receiver.name in st.order.made
        ):
            return False
        unit = self.run.stack[-1].unit
        if unit is None or not isinstance(call.node, cst.Call) or not isinstance(unit.node, cst.FunctionDef):
            return False
        named = [p.name.value for p in (*unit.node.params.params, *unit.node.params.kwonly_params)]
        targets = {a.value.value for a in call.node.args if isinstance(a.value, cst.Name)}
        return any(
            self.run.file.has_other_argument(unit.name, name, position, "cpu")
            for position, name in enumerate(named)
            if name in targets
        )

    def moves_itself(self, receiver: Value, call: Call, st: State) -> bool:
        """Whether nobody takes the result of a move: then it is a module, which moves in place."""
        return call.node is self.run.alone and all(
            isinstance(v, Opaque) and not self.expressions.is_tensor(st, v) for v in iterate(receiver)
        )

    @staticmethod
    def is_module(receiver: Value, st: State) -> bool:
        """Whether this is a module of torch's that is made here."""
        return all(
            isinstance(v, Opaque) and (v.name, fields.TORCH_MODULE) in st.store for v in iterate(receiver)
        )

    def gives_other_memory(self, name: str, call: Call) -> bool:
        """Whether a method of a module that a device has gives its parameters other memory, in place."""
        if name == "to":
            given = [*call.args[:2], *(call.kwargs.get(k) for k in ("device", "dtype"))]
            return any(_is_type(v) or self.copies.device_kind(v) == "cpu" for v in given if v is not None)
        if name == "load_state_dict":  # else it fills what there is
            return call.kwargs.get("assign") == Const(True)
        return name in _OTHER_MEMORY

    def move_module(
        self, module: Value, outcomes: Outcomes, call: Call, st: State, text: str, *, down: bool = False
    ) -> Value:
        """``module.to(...)``: its parameters are copied on the current stream into other memory, which it has then."""
        tags = frozenset({"d2h"}) if down and any(outcome for outcome, _ in outcomes) else frozenset()
        for inner, guard in alternatives(module, st.path):
            if isinstance(inner, (Opaque, Instance)):
                weights = self.attributes.every_parameter(inner.name)
                one = under(weights, guard)
                self.accesses.access(st, one, call.site, text, writes=False)
                st.order.drop(weights.name)
                self.accesses.access(st, one, call.site, text, writes=True, tags=tags)
        self.copies.wait_where_blocking(st, outcomes, "torch", call.site)
        return module

    def tensor_cuda(self, receiver: Value, call: Call, st: State) -> Value:
        """``x.cuda(device=None, non_blocking=False)``."""
        outcomes = self.copies.flag(call.get(1, "non_blocking"), st, call.node)
        if self.moves_itself(receiver, call, st) or self.is_module(receiver, st):
            return self.move_module(receiver, outcomes, call, st, "cuda()")
        opaque = all(
            isinstance(v, Opaque) and not self.expressions.is_tensor(st, v) for v in iterate(receiver)
        )
        return self.copies.to_device(st, receiver, outcomes, call.site, "cuda()", "cuda", opaque=opaque)

    def tensor_cpu(self, receiver: Value, call: Call, st: State) -> Value:
        """``x.cpu()`` blocks (TM-08)."""
        return self.copies.to_host(st, receiver, [(False, ALWAYS)], call.site, "cpu()")


def _is_type(value: Value) -> bool:
    """Whether a value is a type of elements."""
    return isinstance(value, Api) and value.name.rpartition(".")[2] in _TYPES


_TYPES = frozenset("float16 bfloat16 float32 float64 half double float".split())

_OTHER_MEMORY = frozenset("half bfloat16 double cpu to_empty".split())
"""Methods of a module that has been captured on a device: what asks for the type that it has is seldom called then."""
