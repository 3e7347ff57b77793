"""Functions of torch.autograd, of gradients, and loaders of data (TD-12)."""

from __future__ import annotations

from ..values import NONE, Const, Ctx, Seq, Tensor, V
from . import hooks
from .calls import FUNCTIONS, Call, models
from .modules import Modules


@models(FUNCTIONS, "torch.autograd.backward")
def backward(lib: Modules, c: Call) -> V:
    grads = c.given("grad_tensors", 1)
    return lib.backward([c.first or NONE, *([grads] if grads is not None else [])], {}, c.node)


@models(FUNCTIONS, "torch.autograd.grad")
def grad(lib: Modules, c: Call) -> V:
    initial = c.given("grad_outputs", 2)
    for t in lib.tensors_in(initial) if initial is not None else ():
        lib.launch([t], [], "grad()", c.node, kind="initial")
    out = lib.new(c.node, "cuda", "torch", "grad", write=False)
    lib.launch([], [out], "grad()", c.node, kind="backward")
    return Seq([out], "tuple", True)


@models(FUNCTIONS, "torch.autograd.graph.register_multi_grad_hook")
def multi_grad_hook(lib: Modules, c: Call) -> V:
    lib.m.hooks.append(("register_multi_grad_hook", c.args[1] if len(c.args) > 1 else NONE))
    return lib.m.fresh("hook")


@models(FUNCTIONS, "torch.autograd.graph.saved_tensors_hooks")
def saved_tensors(lib: Modules, c: Call) -> V:
    if len(c.args) > 1:
        lib.m.hooks.append((hooks.SAVED, Seq(list(c.args[:2]), "tuple")))
    return Ctx("plain")


@models(FUNCTIONS, "torch.nn.utils.clip_grad_norm_ torch.nn.utils.clip_grad_value_")
def clip_gradients(lib: Modules, c: Call) -> V:
    lib.launch([Tensor(lib.grads)], [Tensor(lib.grads)], "clip_grad_norm_()", c.node, kind="clip")
    return lib.new(c.node, "cuda", "torch", "clip_grad_norm_")


@models(FUNCTIONS, "torch.utils.data.DataLoader")
def data_loader(lib: Modules, c: Call) -> V:
    s = lib.m.fresh("loader")
    workers = c.kwargs.get("num_workers")
    if lib.option(c.kwargs.get("pin_memory")) and workers is not None:
        if not (isinstance(workers, Const) and not workers.value):
            lib.m.pinning.add(s.vn)
    return s


@models(FUNCTIONS, "torch.distributed.algorithms.join.Join torch.distributed.algorithms.Join")
def join_context(lib: Modules, c: Call) -> V:
    """Training with uneven inputs: its exit asks the other ranks until all are done, and reads the answer (TM-08)."""
    return Ctx("joining")
