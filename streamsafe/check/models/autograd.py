"""Backward passes, gradients and parameters."""

from __future__ import annotations

from ..program import Access, Block, Timeline
from ..values import (
    NONE,
    Const,
    Key,
    Obj,
    Params,
    Sym,
    Tensor,
    V,
)
from . import hooks
from .path import Args, Kwargs, Node, Notes
from .state import HOSTS
from .streams import Streams

PASSES = frozenset(("backward", "manual_backward"))
"""Methods of losses, engines and trainers that run a backward pass."""


class Autograd(Streams):
    """Backward passes, gradients and parameters."""

    def backward(self, args: Args, kwargs: Kwargs, n: Node) -> V:
        loss = args[0]
        if isinstance(loss, Tensor) and loss.block.place in HOSTS and "of_device" not in loss.block.notes:
            return NONE  # the host computes it
        if self.m.capture is not None:
            self.m.capture.backward = True
        initial = kwargs.get("gradient") or (args[1] if len(args) > 1 else None)
        if self.tensorish(
            loss
        ):  # its nodes run where they were made (TA-01); of its value only the shape counts
            self.launch([self.tensor(loss)], [], "backward()", n, kind="root")
        if initial is not None:
            ts = self.tensors_in(initial) or ([self.tensor(initial)] if isinstance(initial, Sym) else [])
            if ts:
                self.launch(ts, [], "backward()", n, kind="initial")
        made = self.made.get(loss.vn) if isinstance(loss, Sym) else None
        own = (made is not None and made.timeline is self.cur()) or (
            self.tensorish(loss)
            and any(a.write and a.timeline is self.cur() for a in self.tensor(loss).block.accesses)
        )
        if (
            own
            and self.free_of_waits(self.cur())
            and any(
                t is not self.cur() and self.order.known(self.cur()).get(t, 0) < at for t, at in self.steps
            )
        ):
            h = self.caller_hazard(
                Access(self.cur(), 0, False, None, self.m.site(n), "backward()", "backward"), None
            )
            if getattr(self.m, "function_entry", False):
                h.assumptions += ("calls",)  # of two calls, which may be given two models
            self.m.hazards.append(h)
        if not self.placed(loss):
            self.grads.notes.add("unplaced")
        if self.grads.alloc is None:
            self.grads.alloc, self.grads.home = self.cur(), self.m.site(n)
            if self.m.capture is None:
                self.allocated(self.cur(), n)
        for t in self.forward_streams(
            loss
        ):  # the gradients are written there, and the current stream waits (TA-02)
            self.order.learn(self.cur(), self.order.snapshot(t))
        self.launch([], [Tensor(self.grads)], "backward()", n, kind="backward", notes=self.nets_of(loss))
        if self.m.capture is None:
            self.run_hooks(n)
        return NONE

    def run_hooks(self, node: Node | None = None) -> None:
        """Run what is registered with tensors, in a backward pass."""
        if self.m.hooks:
            hooks.run(self, node)

    def registered(self, o: Obj, args: Args) -> None:
        """The constructor of a class that is a context of saved tensors is given its two functions."""
        hooks.registered(self, o, args)

    def forward_streams(self, loss: V) -> set[Timeline]:
        """The streams of this path on which a loss was computed: the nodes of its pass run there (TA-01)."""
        if not self.tensorish(loss):
            return set()
        return {a.timeline for a in self.tensor(loss).block.accesses if a.write} - {
            self.cur(),
            self.order.host,
        }

    def gradients_read(self, name: str, n: Node, r: V, models: Notes = frozenset()) -> int:
        """An optimizer, or what trains, reads the gradients.

        Args:
            r: the optimizer, which reads the gradients of its own parameters.
            models: those whose parameters the optimizer has.

        Returns:
            The epoch of that operation.
        """
        grads = [Tensor(self.grads), *(t for k, t in self.assigned.items() if self.has_parameter(r, k))]
        pending = any(a.kind == "backward" for t in grads for a in t.block.accesses)
        at, _ = self.launch(grads, [], f"{name}()", n, notes=models, strong=pending)
        return at

    def has_parameter(self, r: V, parameter: Key) -> bool:
        """Whether a parameter is an optimizer's: taken out of its groups, or out of nobody's that is known.

        Of the latter it is not known which one of several optimizers has them.
        """
        owner = self.m.numbers.taken_from(parameter, "param_groups")
        if not isinstance(owner, int):
            return not self.m.numbers.is_element(r)
        return isinstance(r, Sym) and owner == r.vn

    def passes(self, name: str) -> bool:
        """Whether a method of what trains runs a backward pass."""
        return name in PASSES

    def zero_grad(self, args: Args, kwargs: Kwargs, n: Node) -> V:
        to_none = kwargs.get("set_to_none") or (args[0] if args else None)
        if isinstance(to_none, Const) and to_none.value is False:
            self.launch([], [Tensor(self.grads)], "zero_grad()", n)
        else:
            self.drop_gradients(n)
        return NONE

    def gradient_of(self, owner: V) -> Tensor:
        if isinstance(owner, Sym) and owner.vn in self.parameter_of:
            self.gradients_of[self.m.key(owner)] = frozenset({("net", self.parameter_of[owner.vn])})
        kept = isinstance(owner, Sym) and owner.hint in ("parameter", "param", "attr")
        return Tensor(
            self.grads,
            (("i", self.m.key(owner)) if kept else ("i", self.m.key(owner), "of one pass"),),
            text="grad",
        )

    def set_grad(self, owner: Tensor, v: V, s: Node) -> None:
        if isinstance(v, Const) and v.value is None:
            self.m.fields.pop((-owner.block.uid, "grad"), None)
            self.drop_gradients(s)
        else:
            self.m.fields[(-owner.block.uid, "grad")] = v
            self.gradient_assigned(owner, v)

    def gradient_assigned(self, owner: V, v: V) -> None:
        """A tensor becomes the gradient of a parameter: optimizers read it."""
        given = self.tensors_in(v)
        if given and given[0].block is not self.grads:
            self.assigned[self.m.key(owner)] = given[0]

    def parameter(self, p: Params, i: int) -> V:
        s = self.m.sym(self.m.vn(("parameter", self.m.key(p.of), i)), "parameter", "parameter")
        self.parameter_of[s.vn] = self.m.key(p.of)
        if s.block is None:
            known = self.known_parameters
            s = known.setdefault(s.vn, s)
            if s.block is None:
                s.block = self.params_block(p.of)
        return s

    def params_block(self, of: V) -> Block:
        known = self.module_blocks
        k = self.m.key(of)
        b = known.get(k)
        if b is None:
            b = known[k] = Block("cuda", "parameters")
            if k not in self.moved_modules:
                b.notes.add("unplaced")
        return b

    def placed(self, loss: V) -> bool:
        """Whether there is evidence that what a loss was computed of is on the device."""
        if isinstance(loss, Sym) and loss.vn in self.given_device:
            return True  # it has a gradient, so it was computed of what the call was given
        if self.tensorish(loss):
            t = self.tensor(loss)
            if self.known_on_device(t) or "of_device" in t.block.notes:
                return True
        return any(net[1] in self.moved_modules for net in self.nets_of(loss))
