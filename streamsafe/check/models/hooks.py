"""What autograd calls back: hooks of gradients, and the functions that saved tensors are packed and unpacked by."""

from __future__ import annotations

from typing import Any

from ..program import Block, Timeline
from ..state import Frame
from ..values import Func, Obj, Partial, Seq, Sym, Tensor, V, Work
from .path import Node

SAVED = "saved_tensors_hooks"
"""Under this name the two functions of a context are kept that a forward pass saves tensors by."""
_MOST = 3
"""Hooks that are run."""


def gradient(lib: Any, node: Node) -> Tensor:
    """What the backward pass has just written on the current stream."""
    grad = Tensor(Block("cuda", "gradient", lib.cur(), lib.m.site(node), fresh=True))
    lib.launch([], [grad], "the backward pass", node, kind="backward")
    return grad


def arguments(lib: Any, name: str, node: Node) -> list[V]:
    """What autograd calls a hook with."""
    m = lib.m
    if name == "register_hook":
        return [gradient(lib, node)]
    if name == "register_multi_grad_hook":
        return [Seq([gradient(lib, node), gradient(lib, node)], "tuple")]
    if name.endswith("backward_hook"):
        given = [Seq([gradient(lib, node)], "tuple"), Seq([gradient(lib, node)], "tuple")]
        return [m.fresh("module", "module"), *given]
    if name.endswith("backward_pre_hook"):
        return [m.fresh("module", "module"), Seq([gradient(lib, node)], "tuple")]
    p: Sym = m.fresh("param", "param")
    p.block = Block("cuda", "param")
    m.fields[(p.vn, "grad")] = gradient(lib, node)
    return [p]


def run(lib: Any, node: Node | None = None) -> None:
    """What is registered with tensors runs on the stream of a node of the backward pass (TA-06).

    Args:
        node: where the pass is run; None where the caller runs it.
    """
    m = lib.m
    hooks, m.hooks = m.hooks, []
    for name, h in hooks[:_MOST]:
        if name == SAVED:
            saved(lib, h, node)
            continue
        inner = h.func if isinstance(h, Partial) else h
        if not isinstance(inner, Func):
            continue
        at = inner.function.node
        stream = Timeline("the hook's stream", "hook")
        lib.order.learn(stream, lib.order.snapshot(m.ambient["torch"]))  # the forward pass came after that
        m.current["torch"].append(stream)
        m.frames.append(Frame(inner.function.module, None, {}))
        given = arguments(lib, name, at)
        m.walked.append(Seq(given))
        try:
            result = m.called_back(h, given, at)
            if name == "register_hook" and isinstance(result, Tensor):
                taken_by_autograd(lib, result, m.left_at or at)  # it takes the place of the gradient
                m.roots.append(result)
            else:
                m.roots += given  # autograd and the parameters hold it
            m.walked.pop()
            m.left(at)
            others = ("release",) if name == "register_hook" else ()  # a sum gives one gradient to both
            lib.allocated(stream, at, others)  # by the next node of the pass
        finally:
            m.frames.pop()
            m.current["torch"].pop()


def taken_by_autograd(lib: Any, result: V, node: Node | None) -> None:
    """Autograd uses what ``backward`` or a hook gives on the stream of the node."""
    if any(isinstance(v, Work) for v in lib.m.fields.values()):
        return  # kept for who waits for it
    for t in lib.tensors_in(result):
        if not lib.recorded_since(t.block):
            lib.launch([t], [], "autograd", node, strong=False)


def saved(lib: Any, pair: V, node: Node | None) -> None:
    """A forward pass saves tensors that it made, of which it keeps what `pack` gives; the pass back unpacks them."""
    m = lib.m
    pack, unpack = pair.items if isinstance(pair, Seq) else (pair, pair)
    if not isinstance(pack, Func) or not isinstance(unpack, Func):
        return
    packed: list[V] = []
    m.walked.append(Seq(packed))
    for _ in range(2):
        at = pack.function.node
        t = lib.new(at, "cuda", "torch", "the forward pass", text="a saved tensor")
        t.block.notes.add("saved")
        packed.append(m.called_back(pack, [t], at))
        del t
        m.released(at)
    lib.new(pack.function.node, "cuda", "torch", "the forward pass")
    for v in packed if node is not None else ():
        got = m.called_back(unpack, [v], unpack.function.node)
        lib.launch(lib.tensors_in(got), [], "backward()", node)
        m.released(node)
    m.walked.pop()


def registered(lib: Any, o: Obj, args: list[V]) -> None:
    """The constructor of a class of such contexts is given the two functions."""
    o.fields[f"<{SAVED}>"] = Seq(list(args[:2]), "tuple")
    lib.m.hooks.append((SAVED, o.fields[f"<{SAVED}>"]))
