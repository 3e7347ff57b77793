"""Methods of something of which nothing is known: the first model that recognizes the call answers."""

from __future__ import annotations

from collections.abc import Callable

from streamsafe.apis import names as apis

from ..values import NONE, Const, Func, Params, Partial, Seq, Sym, Tensor, V
from .calls import Call
from .collectives import COLLECTIVES, collective
from .kernels import kernel_method
from .modules import Modules
from .replaced_memory import MOVES
from .state import HOSTS
from .tensor_methods import tensor_method
from .unknown import named_for_order

KEEPING = frozenset(
    """save_for_backward save_for_forward mark_dirty mark_non_differentiable set_materialize_grads register_module
    add_module register_parameter register_buffer""".split()
)
"""Methods that keep what they are given and read nothing of it."""
TEXT = frozenset("index count format split strip startswith endswith lower upper".split())
"""Methods of text and of lists that give no tensor."""
NEVER_TENSORS = frozenset(
    """append extend add insert pop popleft update get setdefault clear remove items keys values put get_nowait
    put_nowait""".split()
)
PUTTING = frozenset("append add setdefault".split())
"""Of those: after which something has the first argument, as an element or a key."""
COMMON = (
    apis.TENSOR_METHODS
    | NEVER_TENSORS
    | apis.ORDERING_METHODS
    | frozenset(
        """forward step run __call__ reset close start stop write read load save get to parameters backward replay
        record generate submit send recv copy_ zero_grad""".split()
    )
)
"""Names of methods by which no class is known."""
INPLACE = (
    apis.ARITHMETIC_METHODS
    | apis.OTHER_TENSOR_METHODS
    | frozenset("copy zero fill normal uniform clamp index_copy index_fill index_add scatter".split())
)
GRAPH_METHODS = frozenset("replay launch capture_begin capture_end pool register_generator_state".split())
STREAM_METHODS = frozenset("wait_stream wait_event record_event record synchronize query".split())
READ_BACK = frozenset("asscalar asnumpy block_until_ready".split())
"""Methods of arrays of other frameworks that wait for their values."""
_ORDERING = apis.ORDERING_METHODS | apis.SIGNAL_WAITS | READ_BACK
CASTS = frozenset("to cuda cpu half float bfloat16 double".split())
ALWAYS_TENSORS = frozenset(
    """to cuda cpu copy_ record_stream pin_memory numpy detach clone chunk permute transpose view reshape unsqueeze
    squeeze expand contiguous flatten narrow index_select masked_fill""".split()
)
"""Methods that only tensors have."""
OFTEN_OTHERS = frozenset("add all any index sort type float half eval where".split())
"""Methods of tensors that other things have as well."""
CHANGING = frozenset("add sort".split())
"""Of those: what gives None where it is no method of a tensor."""
OF_ITSELF = frozenset("exp log log2 log10 sqrt rsqrt sin cos tan tanh sigmoid relu floor ceil square".split())
"""Methods of tensors that are given nothing: what is given something is a method of another thing."""

HOST_METHODS = frozenset(
    """named_buffers named_modules named_children modules children state_dict get_submodule get_parameter eval no_sync
    train""".split()
)
"""Methods of modules that do nothing with data: they list what there is, or set a mode."""

Model = Callable[[Modules, Sym, Call, "Sym | None"], "V | None"]


def unknown_method(lib: Modules, r: Sym, c: Call, callee: Sym | None) -> V:
    """A method of something unknown.

    Args:
        callee: the method as a value, where it is one.
    """
    for model in MODELS:
        got = model(lib, r, c, callee)
        if got is not None:
            return got
    if callee is not None and c.name not in NEVER_TENSORS:
        return lib.module_call(callee, c.name, c.args, c.kwargs, c.node)
    if c.name in NEVER_TENSORS:
        lib.m.roots.extend(c.args)
        if c.name in PUTTING and c.args:
            lib.m.conds[("in", lib.m.key(c.args[0]), lib.m.key(r))] = True
        got = lib.m.fresh(f"<{c.name}>", "element")
        lib.parents[got.vn] = r
        return got
    return lib.unmodelled(c.name, r, c.args, c.kwargs, c.node)


def keeps(lib: Modules, r: Sym, c: Call, callee: Sym | None) -> V | None:
    if c.name in KEEPING:
        lib.m.roots.extend(c.args)
        return NONE
    return lib.exchanged(r, c.node) if c.name in ("__dlpack__", "dlpack") else None


def listed(lib: Modules, r: Sym, c: Call, callee: Sym | None) -> V | None:
    """What modules, optimizers and loaders are asked for or told on the host."""
    m = lib.m
    if c.name not in HOST_METHODS or lib.tensorish(r):
        return None
    return m.sym(m.vn(("listed", r.vn, c.name)), f"{r.text}.{c.name}()", "element")


def context_variable(lib: Modules, r: Sym, c: Call, callee: Sym | None) -> V | None:
    """A variable of the context: this thread's, or this task's."""
    if r.hint != "context variable":
        return None
    if c.name == "set" and c.args:
        lib.given[(r.vn, "")] = c.args[0]
    return lib.given.get((r.vn, "")) if c.name == "get" else lib.m.fresh(c.name, "host")


def logs(lib: Modules, r: Sym, c: Call, callee: Sym | None) -> V | None:
    m = lib.m
    if r.hint != "logger":
        return None
    for v in c.args:
        if isinstance(v, Tensor) and (v.block.place in HOSTS or v.numpy):
            lib.host(v, False, f"{c.name}()", c.node)
    return m.sym(m.vn(("method", r.vn, c.name, *(m.key(v) for v in c.args))), f"{c.name}()", "host")


def hooks(lib: Modules, r: Sym, c: Call, callee: Sym | None) -> V | None:
    if not (c.name.startswith("register_") and c.name.endswith("hook")):
        return None
    if "grad" in c.name or "backward" in c.name or c.name == "register_hook":
        lib.m.hooks.append((c.name, c.first or NONE))
    elif c.args:
        lib.m.escaped.append(c.args[0])
    return lib.m.fresh("hook")


def array_to_host(lib: Modules, r: Sym, c: Call, callee: Sym | None) -> V | None:
    if c.name != "get" or c.args or c.kwargs.keys().isdisjoint(("out", "blocking", "stream")):
        return None
    t = lib.tensor(r, "cuda")
    t.block.lib = "cupy"
    return lib.to_host([t], c.kwargs, c.node)


def metadata(lib: Modules, r: Sym, c: Call, callee: Sym | None) -> V | None:
    m = lib.m
    if c.name in apis.METADATA_METHODS or c.name in TEXT:
        told = m.sym(m.vn(("meta", r.vn, c.name, *(m.key(v) for v in c.args))), c.name, "host")
        if c.name == "size" and not c.args:
            m.numbers.learn_less(m.key(Const(0)), m.key(told), True)  # of a process group, or no number
        return told
    return None


def scheduler(lib: Modules, r: Sym, c: Call, callee: Sym | None) -> V | None:
    """What sets the options of an optimizer: the host computes them, of numbers that it reads."""
    if r.hint != "scheduler":
        return None
    for v in c.values():
        lib.host_value(v, c.node, f"{c.name}()")
    return lib.m.fresh(c.name, "host")


def optimizer(lib: Modules, r: Sym, c: Call, callee: Sym | None) -> V | None:
    """Optimizers and scalers: a step reads the gradients and writes the parameters."""
    name, n, capture, low = c.name, c.node, lib.m.capture, r.text.lower()
    if capture is not None and r.hint == "scaler":
        lib.scaler_in_capture(name, c.args, n)
    known = r.hint in ("optimizer", "scaler") or "optim" in low or r.vn in lib.engines
    if not known and low.rpartition(".")[2] not in ("opt", "scaler", "grad_scaler"):
        if name not in apis.GRADIENT_METHODS:
            return None
    if name in ("step", "unscale_") or name in apis.GRADIENT_METHODS:
        if name == "step" and isinstance(c.first, (Func, Partial)):
            lib.m.call_value(c.first, [], {}, n)  # it computes the loss and its gradients
        if name == "step" and capture is None:
            lib.step_reads(n)
        models = lib.trained.get(r.vn, frozenset())
        at = lib.gradients_read(name, n, r, models)
        if name == "step" and r.hint == "scaler":
            lib.sync_quiet()  # it asks whether a gradient is infinite
        if name == "step":
            lib.steps.append((lib.cur(), at))
            models = models or frozenset(
                net
                for a in lib.grads.accesses
                if a.kind == "backward"
                for net in a.notes
                if isinstance(net, tuple)
            )  # of what was trained, where it is not known what it was given
            for k, b in lib.module_blocks.items():
                if not models or ("net", k) in models:
                    lib.launch([], [Tensor(b)], f"{name}()", n)
            if capture is not None:
                lib.step_in_capture(r, n)
        return NONE
    if name == "zero_grad":
        return lib.zero_grad(c.args, c.kwargs, n)
    if name == "scale":
        return c.first or NONE
    return NONE if name == "update" else None


def parameters(lib: Modules, r: Sym, c: Call, callee: Sym | None) -> V | None:
    m = lib.m
    if c.name == "named_parameters":
        pairs: list[V] = [
            Seq([m.sym(m.vn(("pn", r.vn, i)), "name", "host"), lib.parameter(Params(r), i)], "tuple")
            for i in range(2)
        ]
        return Seq(pairs, "list", True)
    if c.name in ("parameters", "buffers"):
        return Params(r)
    if not lib.passes(c.name):
        return None
    loss = c.args[0] if c.args and ("net", lib.m.key(r)) in lib.nets_of(c.args[0]) else None
    if loss is not None:
        lib.engines.add(r.vn)
    if loss is not None or (c.name != "backward" and c.args):
        return lib.backward(c.args, c.kwargs, c.node)  # an engine is given the loss that it has computed
    return lib.backward([r, *c.args], c.kwargs, c.node)


def stream_or_event(lib: Modules, r: Sym, c: Call, callee: Sym | None) -> V | None:
    name, low = c.name, r.text.lower()
    asked = name in ("record", "wait", "synchronize", "query") and ("stream" in low or r.vn in lib.timelines)
    if name in apis.OPAQUE_STREAM_METHODS or asked:
        t = lib.stream(r)
        if t is not None and name in STREAM_METHODS:
            return lib.stream_method(t, name, c.args, c.kwargs, c.node, r)
    if name == "record" and any(word in low for word in ("event", "evt", "start", "end")):
        return lib.event_method(lib.event_of(r), name, c.args, c.kwargs, c.node)
    if name in ("wait", "synchronize", "elapsed_time", "query") and r.vn in lib.events:
        return lib.event_method(lib.events[r.vn], name, c.args, c.kwargs, c.node)
    return None


def graph(lib: Modules, r: Sym, c: Call, callee: Sym | None) -> V | None:
    known = lib.graphs_of.get(r.vn)
    begins = c.name in ("capture_begin", "replay", "register_generator_state")
    if known is None and begins and r.vn not in lib.instances:
        if c.name != "replay" or "graph" in r.text.lower():
            known = lib.graph_of(r)
    if known is not None and c.name in GRAPH_METHODS:
        return lib.graph_method(known, c.name, c.args, c.kwargs, c.node)
    return None


def orders(lib: Modules, r: Sym, c: Call, callee: Sym | None) -> V | None:
    """Something is waited for: it may be everything."""
    name = c.name
    if r.hint == "signal" and name in ("set", "clear", "is_set"):
        if name == "set":
            lib.signals[r.vn] = lib.order.known(lib.order.host)
        return lib.m.fresh(name, "host")
    if name == "release" and not lib.m.in_thread:
        lib.signals[r.vn] = lib.order.known(lib.order.host)  # who acquires it next need not know more
    if name in ("query", "synchronize"):
        lib.beside()
    if name not in _ORDERING and not named_for_order(name):
        return None
    if name == "acquire" and not _of_a_lock(c):
        return None
    if (name == "acquire" or r.hint == "signal") and r.vn in lib.signals:
        lib.order.learn(lib.order.host, lib.signals[r.vn])
    elif lib.m.capture is None:
        lib.everything(c.node)
    elif name == "synchronize":
        lib.sync_host(None, c.node, f"{name}()")
    return lib.m.fresh(name)


def _of_a_lock(c: Call) -> bool:
    """Whether ``acquire`` is given what a lock takes; a pool is told what is wanted of it, and orders nothing."""
    return all(isinstance(v, Const) for v in c.args) and c.kwargs.keys() <= {"blocking", "timeout", "block"}


def scalar(lib: Modules, r: Sym, c: Call, callee: Sym | None) -> V | None:
    return tensor_method(lib, lib.tensor(r), c) if c.name in ("item", "tolist") else None


def moved(lib: Modules, r: Sym, c: Call, callee: Sym | None) -> V | None:
    """A module, or what may be one, goes elsewhere."""
    m, name, args, kwargs, n = lib.m, c.name, c.args, c.kwargs, c.node
    known = m.key(r) in lib.module_blocks
    untouched = r.block is None and r.vn not in lib.made
    if (
        name in ("to", "cuda", "cpu")
        and n is m.dropped
        and untouched
        and m.capture is None
        and not m.captured
    ):
        return lib.move_module(r, name, args, kwargs, n)
    if (name in CASTS and (r.hint == "module" or known)) or (name in MOVES and m.captured and known):
        if lib.gives_other_memory(name, args, kwargs):
            lib.displace(r, n)
        if name == "cuda" or (name == "to" and lib.where(c.given("device", 0)) in ("cuda", "cuda?")):
            lib.moved_modules |= {key for _, key in lib.nets_under(r)}
        return r
    device = kwargs.get("device") or c.first
    if name == "to" and isinstance(device, Sym):
        for x in (r, lib.parents.get(r.vn)):
            if x is not None:
                lib.went_to.setdefault(x.vn, set()).add(m.key(device))
    return None


def tensor(lib: Modules, r: Sym, c: Call, callee: Sym | None) -> V | None:
    """Something that only tensors have, or what a tensor is asked for."""
    name = c.name
    gives = name in CHANGING and c.node is not lib.m.dropped
    waits = name in apis.BLOCKING_METHODS and r.hint not in ("host", "getter")
    evident = (
        waits or gives or lib.tensorish(r) or (name in apis.ARITHMETIC_METHODS and name not in OFTEN_OTHERS)
    )
    if name in OF_ITSELF and c.args:
        return None
    if name in ALWAYS_TENSORS or (name in apis.TENSOR_METHODS and evident):
        return tensor_method(lib, lib.tensor(r), c)
    if name.endswith("_") and not name.endswith("__") and name not in apis.NOT_IN_PLACE:
        if lib.tensorish(r) or name[:-1] in INPLACE:
            return tensor_method(lib, lib.tensor(r), c)
    return None


def kernel(lib: Modules, r: Sym, c: Call, callee: Sym | None) -> V | None:
    if r.hint != "kernel":
        return None
    return kernel_method(lib, r, c) or lib.unmodelled(c.name, r, c.args, c.kwargs, c.node)


def instance(lib: Modules, r: Sym, c: Call, callee: Sym | None) -> V | None:
    """The only class of the file that has such a method."""
    m, name = lib.m, c.name
    known = lib.instances.get(r.vn)
    if known is None and not name.startswith("__") and name not in COMMON:
        owners = [k for k in m.frame.module.classes.values() if name in k.methods]
        # a method that calls one of its own name hands on what it was asked: to something else than its like
        if len(owners) == 1 and owners[0].methods[name] is not m.frame.function:
            known = lib.instances[r.vn] = m.instance(owners[0], r.text)
    f = known.cls.method(name) if known is not None else None
    return m.call_function(Func(f, known), c.args, c.kwargs, c.node) if f is not None else None


def communicator(lib: Modules, r: Sym, c: Call, callee: Sym | None) -> V | None:
    """A collective that something like a process group is asked for, without waiting for it."""
    return collective(lib, c.name, c) if "async_op" in c.kwargs and c.name in COLLECTIVES else None


def executor(lib: Modules, r: Sym, c: Call, callee: Sym | None) -> V | None:
    if c.name == "submit" and c.args:
        return lib.in_thread(c.args[0], c.args[1:], c.kwargs, c.node)
    if c.name == "run_in_executor" and c.args:
        return lib.in_thread(c.args[1] if len(c.args) > 1 else NONE, c.args[2:], c.kwargs, c.node)
    return None


def getter(lib: Modules, r: Sym, c: Call, callee: Sym | None) -> V | None:
    m = lib.m
    if c.name != "get_stream" and not c.name.endswith("_stream"):
        return None
    key = ("call", m.key(r), c.name, tuple(m.key(v) for v in c.args))
    return m.sym(m.vn(key), f"{r.text}.{c.name}()", "getter")


def keeper(lib: Modules, r: Sym, c: Call, callee: Sym | None) -> V | None:
    """A list, a queue or a pipe that is not seen."""
    if c.name == "append" and c.args:
        lib.m.roots.append(c.args[0])
        return NONE
    if c.name in ("put", "put_nowait", "send", "set_result"):
        for v in c.args:
            lib.handed_over(v, c.name, c.node)
            if not lib.passed_on(v, c.node):
                lib.m.roots.append(v)
        return NONE
    return None


MODELS: tuple[Model, ...] = (
    keeps,
    context_variable,
    logs,
    hooks,
    array_to_host,
    metadata,
    listed,
    scheduler,
    optimizer,
    parameters,
    stream_or_event,
    graph,
    orders,
    scalar,
    moved,
    tensor,
    kernel,
    communicator,
    instance,
    executor,
    getter,
    keeper,
)
"""In this order: what is recognized for certain comes before what only looks like it."""
