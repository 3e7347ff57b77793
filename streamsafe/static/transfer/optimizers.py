"""Optimizers and trainers, known by their type or only by their name."""

from __future__ import annotations

from typing import Any

from streamsafe.static import apis, hints
from streamsafe.static.concrete import spelled
from streamsafe.static.facts import Assumed
from streamsafe.static.state import State
from streamsafe.static.transfer.part import Part
from streamsafe.static.transfer.tensors import Call
from streamsafe.static.transfer.unknown_objects import _called_on, _last_word
from streamsafe.static.values import (
    EACH,
    NONE,
    PLAIN,
    STATE,
    UNKNOWN,
    Const,
    Function,
    Instance,
    Object,
    Opaque,
    Partial,
    Value,
)


class Optimizers(Part):
    """Methods of optimizers and trainers."""

    def step_in_capture(self, st: State, receiver: Opaque, call: Call, name: str) -> None:
        """A step that needs the host, inside a capture (GradScaler: proved on an H200, torch 2.11).

        A scaler's own work is the device's, ``update()`` and ``unscale_()`` too. ``step()`` asks whether a gradient is
        infinite, except for fused optimizers, which ask on the device.
        """
        if name == "load_state_dict":
            st.store.pop((receiver.name, "@uncapturable"), None)  # it brings the groups' settings along
        if st.capture is None or name != "step":
            return
        stepped: Value | None = receiver
        notes: list[tuple[str, Any]] = [("the capture begins here", st.capture.site)]
        if _scales(receiver, st):
            stepped = call.get(0, "optimizer")
            if not self.is_fused(stepped, st):
                assumed = Assumed.NOTHING if (receiver.name, "@scaler") in st.store else Assumed.UNMODELLED
                if self._may_scale(stepped):
                    assumed = Assumed.POSSIBLE
                self.accesses.violation(
                    st, "uncapturable-step", call.site, "step() of a gradient scaler", notes, assumed
                )
                return
        made_at = st.store.get((stepped.name, "@uncapturable")) if isinstance(stepped, Opaque) else None
        if isinstance(made_at, Const):
            notes.append(("made here, without capturable=True", made_at.value))
            self.accesses.violation(st, "uncapturable-step", call.site, "step()", notes)

    @staticmethod
    def _may_scale(optimizer: Value | None) -> bool:
        """Whether a class that is not seen made an optimizer: such may take the scale, and ask on the device."""
        site = optimizer.name.site if isinstance(optimizer, Opaque) else None
        return type(site) is tuple and site[-1] != "optimizer"

    def is_fused(self, optimizer: Value | None, st: State) -> bool:
        """Whether an optimizer was made to step in one kernel: that one is given what a scaler has found."""
        return isinstance(optimizer, Opaque) and (optimizer.name, "@fused") in st.store

    def of_trainer(self, receiver: Opaque | Instance, name: str, call: Call, st: State) -> Value | None:
        """Of what runs backward passes and looks after gradients: an engine, an accelerator, a module of a trainer."""
        if name in apis.PASS_METHODS and call.args and self._trains(receiver, name, st):
            st.store[(receiver.name, "@optimizer")] = PLAIN  # it steps as well
            self.gradients.backward(st, call.args[:1], [], call.site, f"{name}()")
            return NONE
        if name in apis.GRADIENT_METHODS:
            whose = call.args[:1] if call.args and isinstance(call.args[0], Object) else [receiver]
            self.gradients.use_of_gradients(st, call.site, f"{name}()", whose)
            return self.tensors.new_tensor(st, call.site, f"{name}()", library="torch")
        return None

    def _trains(self, receiver: Opaque | Instance, name: str, st: State) -> bool:
        """Whether an object with a method that is called ``backward`` is no tensor."""
        if isinstance(receiver, Instance) or name != "backward":
            return True
        if self.expressions.is_tensor(st, receiver):
            return False
        base = receiver.name.base()
        return self.optimizes(receiver, st) or base in self.run.modules or base in self.run.asked_otherwise

    def optimizes(self, value: Opaque, st: State) -> bool:
        """Whether an object is an optimizer, or a scaler of gradients: as it was made or used, or by its name."""
        text = _last_word(value.name)
        return self.is_optimizer(value, st) or text in hints.SCALERS or _names_optimizer(text)

    def is_optimizer(self, value: Opaque, st: State) -> bool:
        """The same, without its name."""
        if (value.name, "@optimizer") in st.store:
            return True
        words = (part.site for part in value.name.chain() if isinstance(part.site, str) and part.site != EACH)
        return next(words, "") in self.run.file.optimizers

    def of_optimizer(self, receiver: Opaque, name: str, call: Call, st: State) -> Value | None:
        """Of an optimizer or a scaler of gradients."""
        stepped = name in ("step", "zero_grad") and _names_optimizer(_called_on(call).lower())
        known = self.optimizes(receiver, st)
        assumed = Assumed.NOTHING if self.is_optimizer(receiver, st) else Assumed.UNMODELLED
        if stepped or known:
            self.step_in_capture(st, receiver, call, name)
            if name == "step":
                for closure in call.everything():
                    if isinstance(closure, (Function, Partial)):  # it does the backward pass
                        self.calls.call_value(closure, Call(call.node, call.site), st)
                whose = call.everything()[:1] if _scales(receiver, st) else [receiver]
                if (
                    _scales(receiver, st)
                    and st.capture is None
                    and not self.is_fused(whose[0] if whose else None, st)
                ):
                    # it asks whether a gradient is infinite
                    self.effects.synchronize_stream(st, None, "torch", call.site)
                self.gradients.use_of_gradients(
                    st, call.site, f"{name}()", whose, assigned=known, assumed=assumed
                )
                self.gradients.parameters_change(st, whose, call.site, f"{name}()")
                return UNKNOWN
            if name == "zero_grad":
                return self.tensor_methods.tensor_zero_grad(receiver, call, st)
            if name == "state_dict":
                return Opaque(receiver.name.child(STATE))
            if name in ("update", "load_state_dict", "add_param_group"):
                return UNKNOWN
            if name == "get_scale" and _scales(receiver, st):
                self.captures.sync_in_capture(st, call.site, "get_scale()")
                self.effects.synchronize_stream(st, None, "torch", call.site)
                return UNKNOWN
            if name == "scale":
                return call.args[0] if call.args else UNKNOWN
        return None


def _names_optimizer(text: str) -> bool:
    """Whether this is what an optimizer is called."""
    return spelled(hints.OPTIMIZER, text)


def _scales(value: Opaque, st: State) -> bool:
    """Whether an optimizer is a scaler of gradients, as it was made or by its name."""
    named = _last_word(value.name) in hints.SCALERS and (value.name, "@optimizer") not in st.store
    return named or (value.name, "@scaler") in st.store
