"""Devices: of which kind one is that is not known, and what the program asks of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from streamsafe.order.symbolic import ALWAYS, Guard
from streamsafe.static import fields, hints
from streamsafe.static.concrete import spelled
from streamsafe.static.facts import IS_CUDA
from streamsafe.static.state import State
from streamsafe.static.transfer.part import Part
from streamsafe.static.values import (
    Const,
    Device,
    DeviceTest,
    Name,
    Object,
    Opaque,
    Tensor,
    Value,
    alternatives,
    iterate,
    union,
)

if TYPE_CHECKING:
    from streamsafe.static.transfer.conditions import Outcomes

CURRENT = Name("current device")
"""What keeps the device that the program has made current."""

_KINDS = frozenset("cuda cpu npu xpu mps hpu mlu meta".split())


def as_device(value: Value) -> Device | None:
    """A value as a device, where it is one: ``device``, ``device.type``, ``x.device``."""
    if isinstance(value, Device):
        return value
    if not isinstance(value, Opaque):
        return None
    name, parent = value.name.site, value.name.parent
    if name == "type" and parent is not None:
        return Device("", parent)
    return Device("", value.name) if isinstance(name, str) and spelled(hints.DEVICE, name) else None


def _kind(value: Value) -> str:
    """The kind of device that a constant names."""
    if isinstance(value, Device):
        return value.kind
    if isinstance(value, Const) and isinstance(value.value, str):
        kind = value.value.partition(":")[0]
        return kind if kind in _KINDS else ""
    return ""


def _same(one: Value, other: Value) -> bool:
    """Whether two values name one device."""
    return one == other or (as_device(one) or one) == (as_device(other) or other)


def placed_on(st: State, value: Object) -> list[Value]:
    """The device that a tensor was made on, or copied to, where it is named, whichever that is."""
    placed = (st.store.get((value.name, note)) for note in (fields.REQUESTED_DEVICE, fields.COPIED_TO))
    return [device for device in placed if device is not None]


class Devices(Part):
    """Devices of unknown kind: where streams matter one is a CUDA device, unless the program asks for the host."""

    def is_of_kind(self, left: Value, right: Value) -> DeviceTest | None:
        """What ``device.type == "cpu"`` and ``device.startswith("cpu")`` come to; None for any other question."""
        device, kind = as_device(left), _kind(right)
        if device is None or device.kind or not kind:
            return None
        return DeviceTest(kind == "cuda", device.name, kind == "cpu")

    @staticmethod
    def says_where(value: Value) -> bool:
        """Whether this is the answer to nothing but the question whether tensors are on the device."""
        return isinstance(value, DeviceTest) or (isinstance(value, Opaque) and value.name is IS_CUDA)

    def how_placed(self, test: DeviceTest, st: State, track: bool) -> Outcomes:
        """How a question for the kind of a device comes out.

        Whoever asks for the host after a copy that does not block has both cases in mind: the copy waits to be waited
        for in this one only.
        """
        on_host = test.device is not None and self.placed_on_host(test.device, st, track and test.on_host)
        if not on_host:
            return [(test.value, ALWAYS)]
        return [(test.on_host if outcome else test.value, guard) for outcome, guard in on_host]

    def placed_on_host(self, device: Name, st: State, track: bool) -> Outcomes:
        """Whether a device that was copied to is the host, where conditions or a test before say so; else nothing."""
        if not st.store.marked(device, fields.COPY_TARGET):
            return []
        outcomes = self.conditions.condition(("host", device), (device,), st, track)
        return outcomes if track or len(outcomes) == 1 else []

    @staticmethod
    def says_device(value: Opaque) -> bool | None:
        """Whether a flag that is named for a device is set: where streams matter a CUDA device is in use."""
        name = value.name.site
        if not isinstance(name, str):
            return None
        return True if spelled(hints.DEVICE_FLAG, name) else False if spelled(hints.CPU_FLAG, name) else None

    # -- tensors -------------------------------------------------------------------------------------------------

    def device_of(self, base: Object, st: State) -> Value:
        """``x.device``."""
        placed = st.store.get((base.name, fields.COPIED_TO))
        if placed is not None:
            return placed
        data = st.store.get((base.name, "data"))
        if data is not None:  # it lies where what was assigned to its ``.data`` does
            return union(
                (self.device_of(v, st) if isinstance(v, Object) and v != base else Device(""), g)
                for v, g in alternatives(data, st.path)
            )
        kind = {"device": "cuda", "pinned": "cpu", "pageable": "cpu"}.get(self.memory.place(st, base), "")
        return Device(kind)

    @staticmethod
    def lies_on(st: State, value: Value, device: Value | None) -> bool:
        """Whether a tensor was made on, or copied to, this device of unknown kind: a copy to there is the tensor."""
        if (
            not isinstance(value, (Tensor, Opaque))
            or not isinstance(device, Opaque)
            or device.name.is_older()
        ):
            return False
        return any(there in (device, as_device(device)) for there in placed_on(st, value))

    def is_cuda(self, base: Object, st: State) -> Value:
        """Whether a tensor is on the device: where that is not known, one answer for the tensors of a program."""
        place = self.memory.place(st, base)
        if place:
            return Const(place == "device")
        placed = st.store.get((base.name, fields.COPIED_TO))
        if isinstance(placed, Device) and placed.name is not None:
            answers = self.placed_on_host(placed.name, st, True)
            if answers:
                return union((Const(not on_host), guard) for on_host, guard in answers)
        return self.on_cuda()

    def is_cuda_of_some(self, choices: Sequence[tuple[Value, Guard]], st: State) -> bool:
        """Whether one of several tensors may lie anywhere: then that is the answer for all of them."""
        return any(isinstance(v, (Tensor, Opaque)) and not self.memory.place(st, v) for v, _ in choices)

    def on_cuda(self) -> Opaque:
        """Whether a program's tensors are on the device."""
        self.run.plain.add(IS_CUDA)
        return Opaque(IS_CUDA)

    # -- copies --------------------------------------------------------------------------------------------------

    def is_streams_own(self, st: State, device: Value | None, library: str) -> bool:
        """Whether a device that is copied to is the one of the current stream, on some path.

        What the device has already is not copied then; and memory of another device is copied on the current stream of
        that device, with edges from and to this one (TG-02). So the current stream reads no memory of a device.
        """
        if device is None or library != "torch":
            return False
        current = st.store.get((CURRENT, fields.STREAMS_DEVICE))
        owns = [
            st.store.get((stream.name, fields.STREAMS_DEVICE)) or current
            for stream, _ in self.effects.possible_streams(st, library)
        ]
        return any(_same(one, device) for own in owns if own is not None for one in iterate(own))

    def lies_on_device(self, st: State, source: Value) -> Outcomes:
        """Whether what is copied lies on the device: both answers, where the program asks for that."""
        unsure = self.run.file.tests_device and any(
            isinstance(v, Object) and not self.memory.place(st, v) for v in iterate(source)
        )
        return (
            self.conditions.condition(("truth", IS_CUDA), (IS_CUDA,), st, True)
            if unsure
            else [(True, ALWAYS)]
        )

    def copies_to_host(self, st: State, device: Value | None) -> Outcomes:
        """Whether what is copied goes to the host: both answers, where the program asks for that."""
        target = as_device(device) if device is not None and self.run.file.tests_device_kind else None
        if target is None or target.name is None:
            return [(True, ALWAYS)]
        st.store.mark(target.name, fields.COPY_TARGET)
        return self.conditions.condition(("host", target.name), (target.name,), st, True)
