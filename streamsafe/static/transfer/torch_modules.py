"""Library calls of ``torch.autograd``, ``torch.nn`` and ``torch.optim``."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import libcst as cst

from streamsafe.apis import names as apis
from streamsafe.static import fields, hints, sequences
from streamsafe.static.concrete import spelled
from streamsafe.static.facts import INITIAL, LOADER, PASS, Assumed
from streamsafe.static.state import State
from streamsafe.static.transfer.part import Part
from streamsafe.static.transfer.tensors import UNPLACED, Call
from streamsafe.static.transfer.unknown_objects import _called_on, _last_word
from streamsafe.static.values import (
    EACH,
    NONE,
    STATE,
    UNKNOWN,
    Const,
    Container,
    Function,
    Instance,
    Object,
    Opaque,
    Partial,
    Tuple,
    Value,
    iterate,
)


class TorchModules(Part):
    """Verbs of modules, parameters, optimizers and backward passes."""

    def do_backward_function(self, call: Call, st: State) -> Value:
        """``torch.autograd.backward(tensors, grad_tensors=None)``."""
        gradients = call.get(1, "grad_tensors")
        roots = self.tensors.tensor_results(st, call.get(0, "tensors") or UNKNOWN)
        given, leaves = self.gradient_arguments(gradients, st), call.get(5, "inputs")
        self.gradients.backward(st, roots, given, call.site, "torch.autograd.backward()", leaves)
        return NONE

    def do_queue_callback(self, call: Call, st: State) -> Value:
        """``Variable._execution_engine.queue_callback(function)``."""
        return self.hooks.register_hooks(apis.AFTER_PASS, call, st)

    def do_multi_grad_hook(self, call: Call, st: State) -> Value:
        """``torch.autograd.graph.register_multi_grad_hook(tensors, function)``."""
        return self.hooks.register_hooks(
            "register_multi_grad_hook", call, st, call.get(0, "tensors") or UNKNOWN
        )

    def do_grad_function(self, call: Call, st: State) -> Value:
        """``torch.autograd.grad(outputs, inputs, grad_outputs=None)`` returns the gradients (TA-09)."""
        gradients = call.get(2, "grad_outputs")
        for value in self.gradient_arguments(gradients, st):
            self.accesses.access(
                st,
                value,
                call.site,
                "torch.autograd.grad()",
                writes=False,
                tags=frozenset({INITIAL}),
            )
        self.gradients.join_leaves(st, self.tensors.tensor_results(st, call.get(0, "outputs") or UNKNOWN))
        self.hooks.run_captured_passes(st, call.site)

        def gradient(number: int | None) -> Value:
            return self.tensors.new_tensor(
                st,
                call.site,
                "torch.autograd.grad()",
                library="torch",
                place="device" if self.tensors.on_side_stream(st, "torch") else "",
                tags=PASS,
                what="gradients" if number is None else f"gradient {number}",
            )

        count = _listed(call.node)
        return gradient(None) if count is None else Tuple(tuple(gradient(i) for i in range(count)))

    def gradient_arguments(self, value: Value | None, st: State) -> list[Value]:
        """The gradients that a call of autograd is given, None left out."""
        if value is None or value == NONE:
            return []
        return [v for v in self.tensors.tensor_results(st, value) if v != NONE]

    def do_use_gradients(self, call: Call, st: State) -> Value:
        """``clip_grad_norm_`` and its like read and write every ``.grad``."""
        self.gradients.use_of_gradients(
            st, call.site, f"{call.text.rpartition('.')[2]}()", call.everything()[:1]
        )
        return self.tensors.new_tensor(st, call.site, "clip_grad_norm_()", library="torch")

    def do_make_optimizer(self, call: Call, st: State) -> Value:
        """An optimizer or a gradient scaler."""
        name = self.objects.fresh(call.node, st, "optimizer")
        st.store.mark(name, fields.OPTIMIZER)
        kind = call.text.rpartition(".")[2]
        if kind == "GradScaler":
            st.store.mark(name, fields.GRAD_SCALER)
        elif kind in apis.CAPTURABLE_OPTIMIZERS and not call.starred:
            given = call.kwargs.get("capturable")
            if given is None or given == Const(False):
                st.store[(name, fields.NOT_CAPTURABLE)] = Const(call.site)
        if call.kwargs.get("fused") == Const(True):
            st.store.mark(name, fields.FUSED)
        if (params := call.get(0, "params")) is not None:
            st.store[(name, "params")] = params
        return Opaque(name)

    def do_make_module(self, call: Call, st: State) -> Value:
        """A module: an object whose parts are not followed."""
        name = self.objects.fresh(call.node, st, "module")
        if call.text.startswith("torch.nn.") and call.text.rpartition(".")[2][:1].isupper():
            st.store[(name, fields.TORCH_MODULE)] = Const(self.run.entry)
            if call.text.endswith(".DistributedDataParallel"):
                st.store.mark(name, fields.DISTRIBUTED)
            if not call.text.endswith("DataParallel"):
                st.store.mark(name, fields.COMPUTES_AT_INPUT)  # where its input lies
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
            for v in (
                self.containers.held(part, st) if isinstance(part, Container) else [self._listed_in(part, st)]
            )
            for v in iterate(v)
        ]
        followed = any(isinstance(v, Instance) or self.is_row_of_modules(v, st) for v in inside)
        if not followed and (given or call.text.endswith(".Sequential")):
            return self.do_make_module(call, st)
        made: Value
        if within is given and call.text.endswith(".Sequential"):
            made = self.containers.container(
                call.node, st, "list", given, exact=not call.starred and rest is None
            )
        elif call.text.endswith(".ModuleDict"):
            made = self.python_containers.do_make_mapping(call, st)
        else:
            made = self.python_containers.do_make_container(call, st)
        if isinstance(made, Container):
            if call.text.endswith(".Sequential"):
                made = replace(made, kind="list")  # its parts, whatever they are called
            st.store[(made.name, fields.TORCH_MODULE)] = Const(call.text.rpartition(".")[2])
            if call.text.endswith(".ModuleList"):
                st.store.mark(made.name, fields.LENGTH_UNCHANGED)
        return made

    def _listed_in(self, part: Value, st: State) -> Value:
        """What an annotation says that a list holds; anything else as it is."""
        if not isinstance(part, Opaque):
            return part
        element = Opaque(part.name.child(EACH))
        found = self.instances.typed_element(part, element, st)
        return part if found is element else found

    @staticmethod
    def _is_named_row(given: list[Value]) -> bool:
        """Whether a Sequential is given one dict of named modules."""
        return len(given) == 1 and isinstance(given[0], Container) and given[0].kind == "dict"

    @staticmethod
    def is_row_of_modules(value: Value, st: State) -> bool:
        """Whether this is a container of modules, which is a module itself."""
        return isinstance(value, Container) and (value.name, fields.TORCH_MODULE) in st.store

    def do_make_parameter(self, call: Call, st: State) -> Value:
        """``nn.Parameter(x)`` is x."""
        for value in iterate(call.args[0]) if call.args else ():
            if isinstance(value, Object):
                st.store.mark(value.name, fields.MODULE_PARAMETER)
                self.moves_with_module(value, st)
        return call.args[0] if call.args else UNKNOWN

    def moves_with_module(self, value: Object, st: State) -> None:
        """What a module is made with in pageable memory lies where the module is moved later."""
        if self.memory.place(st, value) == "pageable":
            st.store.mark(value.name, fields.MOVES_WITH_MODULE)
            if any(a.unit is not None and a.unit.name == "__init__" for a in self.run.stack):
                st.store[(value.name, fields.PLACE)] = Const("")

    def do_make_loader(self, call: Call, st: State) -> Value:
        """A loader that pins memory has a thread of its own (TD-12)."""
        name = self.objects.fresh(call.node, st, LOADER)
        if call.kwargs.get("pin_memory") == Const(True):
            st.store[(name, fields.PIN_MEMORY)] = Const(call.site)
        return Opaque(name)

    # -- methods of optimizers and trainers ----------------------------------------------------------------------

    def step_in_capture(self, st: State, receiver: Opaque, call: Call, name: str) -> None:
        """A step that needs the host, inside a capture (GradScaler: proved on an H200, torch 2.11).

        A scaler's own work is the device's, ``update()`` and ``unscale_()`` too. ``step()`` asks whether a gradient is
        infinite, except for fused optimizers, which ask on the device.
        """
        if name == "load_state_dict":
            st.store.pop((receiver.name, fields.NOT_CAPTURABLE), None)  # it brings the groups' settings along
        if st.capture is None or name != "step":
            return
        stepped: Value | None = receiver
        notes: list[tuple[str, Any]] = [("the capture begins here", st.capture.site)]
        if _scales(receiver, st):
            stepped = call.get(0, "optimizer")
            if not self.is_fused(stepped, st):
                assumed = (
                    Assumed.NOTHING
                    if st.store.marked(receiver.name, fields.GRAD_SCALER)
                    else Assumed.UNMODELLED
                )
                if self._may_scale(stepped):
                    assumed = Assumed.POSSIBLE
                self.accesses.violation(
                    st, "uncapturable-step", call.site, "step() of a gradient scaler", notes, assumed
                )
                return
        made_at = st.store.one(stepped.name, fields.NOT_CAPTURABLE) if isinstance(stepped, Opaque) else None
        if made_at is not None:
            notes.append(("made here, without capturable=True", made_at.value))
            self.accesses.violation(st, "uncapturable-step", call.site, "step()", notes)

    @staticmethod
    def _may_scale(optimizer: Value | None) -> bool:
        """Whether a class that is not seen made an optimizer: such may take the scale, and ask on the device."""
        site = optimizer.name.site if isinstance(optimizer, Opaque) else None
        return type(site) is tuple and site[-1] != "optimizer"

    def is_fused(self, optimizer: Value | None, st: State) -> bool:
        """Whether an optimizer was made to step in one kernel: that one is given what a scaler has found."""
        return isinstance(optimizer, Opaque) and st.store.marked(optimizer.name, fields.FUSED)

    def of_trainer(self, receiver: Opaque | Instance, name: str, call: Call, st: State) -> Value | None:
        """Of what runs backward passes and looks after gradients: an engine, an accelerator, a module of a trainer."""
        if name in apis.PASS_METHODS and call.args and self._trains(receiver, name, st):
            st.store.mark(receiver.name, fields.OPTIMIZER)  # it steps as well
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
        return self.optimizes(receiver, st) or base in self.run.modules or base in self.run.non_tensors

    def optimizes(self, value: Opaque, st: State) -> bool:
        """Whether an object is an optimizer, or a scaler of gradients: as it was made or used, or by its name."""
        text = _last_word(value.name)
        return self.is_optimizer(value, st) or text in hints.SCALERS or _names_optimizer(text)

    def is_optimizer(self, value: Opaque, st: State) -> bool:
        """The same, without its name."""
        if st.store.marked(value.name, fields.OPTIMIZER):
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


def _names_optimizer(text: str) -> bool:
    """Whether this is what an optimizer is called."""
    return spelled(hints.OPTIMIZER, text)


def _scales(value: Opaque, st: State) -> bool:
    """Whether an optimizer is a scaler of gradients, as it was made or by its name."""
    named = _last_word(value.name) in hints.SCALERS and not st.store.marked(value.name, fields.OPTIMIZER)
    return named or st.store.marked(value.name, fields.GRAD_SCALER)
