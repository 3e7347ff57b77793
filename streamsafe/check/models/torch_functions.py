"""Functions of torch: what makes tensors, what moves them, and what computes."""

from __future__ import annotations

from streamsafe.apis import names as apis
from streamsafe.apis import table

from ..program import Block
from ..values import NONE, Const, Ctx, Generator, Lib, Map, Params, Seq, Sym, Tensor, V
from .calls import FUNCTIONS, TORCH_FUNCTIONS, Call, models
from .collectives import distributed
from .modules import Modules
from .state import HOSTS
from .tensor_methods import tensor_method

PLAIN_CONTEXTS = (
    "torch.no_grad torch.enable_grad torch.inference_mode torch.autocast torch.cuda.amp torch.amp torch.profiler "
    "torch.cuda.nvtx torch.set_grad_enabled torch.cuda.device"
).split()
"""Beginnings of the names of contexts that change nothing of the order."""
NO_COMPUTATION = tuple(
    "torch.onnx. torch.export. torch.package. torch.hub. torch.fx. torch.multiprocessing.".split()
)
"""Beginnings of the names of functions that are given models, files and processes."""
PRIVATE_COMPUTATION = tuple(
    "torch._C._nn. torch._C._VariableFunctions. torch._utils. torch._refs. torch._prims.".split()
)
"""Beginnings of the names of functions that compute, though their modules are torch's own."""
SCHEDULERS = ("torch.optim.lr_scheduler.", "torch.optim.swa_utils.SWALR")
"""What sets the options of an optimizer, which are numbers of the host."""
UNWRITTEN = frozenset("empty empty_like empty_strided".split())
MEASURES = ("memory", "max_memory", "get_device", "mem_get")
"""Beginnings of functions of torch.cuda that tell something of a device."""
COMPILED = ("torch.jit.", "torch.compiler.", "torch.utils.")
NOT_DATA = ("dim", "dtype", "device", "size")


def torch_function(lib: Modules, c: Call) -> V:
    """A function of torch: by the tables, else it computes something new of what it is given."""
    name, last = c.name, c.last
    if name.startswith("torch.distributed."):
        return distributed(lib, c)
    if name.startswith(SCHEDULERS):
        return lib.m.fresh(last.lower(), "scheduler")
    if name.startswith("torch.optim.") and last[:1].isupper():
        made: Sym = lib.optimizer(last, c.kwargs, c.node)
        given = c.given("params", 0)
        if isinstance(given, Params):
            lib.trained[made.vn] = lib.nets_under(given.of)
        return made
    if name.startswith("torch.nn.") and last[:1].isupper():
        return nn_class(lib, c)
    if name.startswith(tuple(PLAIN_CONTEXTS)):
        return Ctx("plain")
    known = TORCH_FUNCTIONS.get(last) if not name.startswith("torch.Tensor.") else None
    got = known(lib, c) if known is not None else None
    if got is not None:
        return got
    if last.endswith("Tensor") and last != "Tensor":
        return typed_tensor(lib, c)
    if name.startswith(COMPILED):
        return c.args[0] if c.args else lib.m.fresh(last)
    if last == "synchronize":
        lib.sync_host(None, c.node, "synchronize()")  # of another backend
        return NONE
    if name.startswith("torch.testing."):
        return written_down(lib, c)
    if name.startswith("torch.Tensor.") and c.args:
        method = Call(last, c.args[1:], c.kwargs, c.node)
        return tensor_method(lib, lib.tensor(c.args[0]), method)
    if name.startswith(NO_COMPUTATION) or is_private(name):
        return lib.unmodelled(last, None, c.args, c.kwargs, c.node)
    if name.startswith("torch.cuda."):
        if last.startswith(MEASURES):
            return lib.m.fresh(last, "host")
        return lib.unmodelled(last, None, c.args, c.kwargs, c.node)
    return computed(lib, c)


def is_private(name: str) -> bool:
    """Whether a function is one of a module that torch keeps for itself, where few compute anything."""
    return name.startswith("torch._") and name.count(".") > 1 and not name.startswith(PRIVATE_COMPUTATION)


def computed(lib: Modules, c: Call) -> V:
    """What a function of torch computes, into something new, an argument or ``out``."""
    n, last, values, out = c.node, c.last, c.values("out"), c.kwargs.get("out")
    if out is not None:
        w = lib.tensors_in(out)
        return lib.compute(values, n, last, write=w, fresh=False) if w else lib.compute(values, n, last)
    if last.endswith("_") and not last.startswith("_") and c.args and lib.tensorish(c.args[0]):
        return lib.compute(values, n, last, write=[lib.tensor(c.args[0])], fresh=False)
    if not any(lib.tensorish(v) or isinstance(v, (Sym, Seq)) for v in values):
        return lib.m.fresh(last)
    if last in apis.OF_LISTS and c.args:
        values = [*listed(lib, c.args[0]), *values[1:]]
    for v in values[:2]:
        if isinstance(v, Sym) and v.hint not in ("index", "host", "getter") and v.block is None:
            if not any(word in v.text for word in NOT_DATA):
                lib.tensor(v)
    notes = frozenset({"kernel"}) if c.name.startswith("torch.ops.") else frozenset()
    return lib.compute(values, n, last, notes=notes)


def listed(lib: Modules, v: V) -> list[V]:
    """The tensors of a list, which are what a function is given that joins them."""
    if isinstance(v, Sym) and v.block is None and v.hint not in ("index", "host", "getter"):
        count = lib.m.lengths.get(lib.m.key(v), 2)
        v = Seq([lib.m.element(v, Const(i)) for i in range(count)])
    if not isinstance(v, Seq):
        return [v]
    return [lib.tensor(x) if isinstance(x, Sym) and x.hint not in ("index", "host") else x for x in v.items]


# ---------------------------------------------------------------------- classes
@models(
    FUNCTIONS,
    "torch.amp.GradScaler torch.cuda.amp.GradScaler torch.GradScaler torch.amp.grad_scaler.GradScaler",
)
def grad_scaler(lib: Modules, c: Call) -> V:
    return lib.m.fresh("scaler", "scaler")


@models(FUNCTIONS, "torch.Generator")
def generator(lib: Modules, c: Call) -> V:
    return Generator(True)


def nn_class(lib: Modules, c: Call) -> V:
    """A module, or a tensor that belongs to one."""
    if c.last in ("Parameter", "Buffer"):
        t = lib.tensor(c.args[0]) if c.args else Tensor(Block("pageable"))
        t.block.notes.add("registered")
        return t
    s = lib.m.fresh(c.last.lower(), "module")
    lib.modules[s.vn] = c.last
    wrapped = frozenset(n for v in c.args for n in lib.nets_under(v))
    lib.wraps[("net", lib.m.key(s))] = wrapped
    ids = c.kwargs.get("device_ids", NONE)
    named = lib.place(c.kwargs) == "cuda" or not (isinstance(ids, Const) and ids.value is None)
    if named or any(key in lib.moved_modules for _, key in wrapped):
        lib.moved_modules.add(lib.m.key(s))
    return s


def typed_tensor(lib: Modules, c: Call) -> V:
    """torch.cuda.FloatTensor(...) and its like."""
    for v in c.args:
        if isinstance(v, Seq):
            lib.host_value(v, c.node, f"{c.last}()")
    if c.name.startswith("torch.cuda."):
        t = lib.made_by(c.last, c.node)
        if any(isinstance(v, Seq) for v in c.args):
            lib.sync_quiet()  # the host's data are there when it returns
        return t
    return Tensor(Block("pageable", "", home=lib.m.site(c.node)))


@models(
    FUNCTIONS,
    "torch._C._distributed_c10d._SymmetricMemory.stream_write_value32 "
    "torch._C._distributed_c10d._SymmetricMemory.memset32",
)
def write_signal(lib: Modules, c: Call) -> V:
    """A signal of symmetric memory is set on the current stream."""
    return lib.compute([], c.node, c.last, write=lib.tensors_in(c.args[0]) if c.args else (), fresh=False)


# ---------------------------------------------------------------------- what makes tensors
@models(TORCH_FUNCTIONS, apis.FACTORIES)
def factory(lib: Modules, c: Call) -> V | None:
    """A fresh tensor, on the host unless a device is named."""
    if c.name.count(".") != 1:
        return None
    n, last, kwargs = c.node, c.last, c.kwargs
    place, base = place_of(lib, c)
    if kwargs.get("out") is not None and lib.tensors_in(kwargs["out"]):
        return lib.compute([], n, last, write=lib.tensors_in(kwargs["out"]), fresh=False)
    if last == "tensor" and place == "cuda" and lib.m.capture is not None:
        lib.violation("SS401", n, "torch.tensor() on the device")
    for v in c.args[:2]:
        given = isinstance(v, Tensor) and (last != "tensor" or v.block.place in HOSTS or v.numpy)
        if not last.endswith("_like") and (isinstance(v, Seq) or given):
            lib.host_value(v, n, f"torch.{last}()")
    dtype = kwargs.get("dtype")
    if isinstance(dtype, Lib) and dtype.name == "torch.bool" and place == "cuda":
        t = lib.made_by(last, n)
        t.mask = True
        if last == "tensor":
            lib.sync_quiet()
        return t
    if place == "unknown" and "device" in kwargs:
        place = "cuda"
    if place == "cuda" and last == "tensor":
        t = lib.on_device(lib.made_by(last, n), kwargs)
        lib.sync_quiet()  # the host's data are there when it returns
        return t
    if place == "cuda":
        return made_on_device(lib, c, base)
    if place == "unknown":
        return lib.made_somewhere(last, n, write=last not in UNWRITTEN)
    return Tensor(Block(place, "", home=lib.m.site(n)), None)


def place_of(lib: Modules, c: Call) -> tuple[str, list[Tensor]]:
    """Where a factory puts its tensor, and the tensor whose shape it takes."""
    place = lib.place(c.kwargs)
    if not c.last.endswith("_like"):
        return place, []
    base = lib.tensors_in(c.args[0]) if c.args else []
    if "device" not in c.kwargs and c.kwargs.get("pin_memory") is None:
        place = base[0].block.place if base else "cuda"
    if place == "pinned" and "pin_memory" not in c.kwargs:
        place = "pageable"
    if not base and place == "pageable" and "device" not in c.kwargs:
        place = "unknown"
    return place, base


def made_on_device(lib: Modules, c: Call, base: list[Tensor]) -> Tensor:
    t = lib.on_device(lib.made_by(c.last, c.node, write=c.last not in UNWRITTEN), c.kwargs)
    if base and "device" not in c.kwargs:
        t.block.device = base[0].block.device
    sizes = c.args[0].items if c.args and isinstance(c.args[0], Seq) else c.args
    if c.last in ("empty", "zeros", "ones") and any(
        isinstance(v, Const) and v.value == 0 and type(v.value) is int for v in sizes
    ):
        t.block.kept = True  # it has no memory
    return t


@models(TORCH_FUNCTIONS, "from_numpy frombuffer as_tensor asarray")
def from_host(lib: Modules, c: Call) -> V:
    src = lib.tensors_in(c.args[0]) if c.args else []
    if lib.where(c.kwargs.get("device")) in ("cuda", "cuda?"):
        for s in src:
            if s.numpy or s.block.place in HOSTS:
                lib.host(s, False, c.last, c.node)
            elif s.block.place == "cuda":
                if s.block.lib == "cupy":
                    s.block.shared = lib.tick()
                return s.viewed_by("torch")  # CI-07: with no exchange of streams
        t = lib.made_by(c.last, c.node)
        lib.sync_quiet()
        return t
    if src:
        return src[0].viewed_by("torch")
    made = Tensor(Block("pageable", ""), None)
    if c.last != "from_numpy" and not isinstance(c.first, (Seq, Const)):
        made.block.notes.add("beside unknown")
    return made


@models(TORCH_FUNCTIONS, "load")
def load(lib: Modules, c: Call) -> V | None:
    if c.name != "torch.load":
        return None
    lib.m.uncertain.append(lib.tick())
    if lib.where(c.kwargs.get("map_location")) == "cpu":
        return Tensor(Block("pageable", "", home=lib.m.site(c.node)))
    return None


# ---------------------------------------------------------------------- what touches no tensor
@models(
    TORCH_FUNCTIONS,
    """is_tensor is_storage is_floating_point is_complex is_quantized is_conj is_neg is_signed is_inference
    is_distributed is_same_size has_torch_function has_torch_function_unary has_torch_function_variadic is_tensor_like
    numel get_default_dtype finfo iinfo is_available device_count current_device dtype Size""",
)
def told(lib: Modules, c: Call) -> V:
    return Const(True) if c.last == "is_available" else lib.m.fresh(c.last, "host")


@models(FUNCTIONS, "torch.set_default_device torch.set_default_tensor_type")
def default_device(lib: Modules, c: Call) -> V:
    """Where factories and modules put what they make from here on."""
    device = c.first or NONE
    if c.last == "set_default_tensor_type":
        kind = device.name if isinstance(device, Lib) else getattr(device, "value", "")
        device = Const("cuda" if str(kind).startswith("torch.cuda.") else "cpu")
    lib.default_device = None if isinstance(device, Const) and device.value is None else device
    return NONE


@models(TORCH_FUNCTIONS, "manual_seed set_device empty_cache set_default_dtype reset_peak_memory_stats")
def setting(lib: Modules, c: Call) -> V:
    return NONE


@models(TORCH_FUNCTIONS, "compile")
def compiled(lib: Modules, c: Call) -> V:
    return c.args[0] if c.args else lib.m.fresh(c.last)


@models(TORCH_FUNCTIONS, "save")
def save(lib: Modules, c: Call) -> V | None:
    return None if c.name.startswith(COMPILED) else written_down(lib, c)


def written_down(lib: Modules, c: Call) -> V:
    for v in c.args:
        lib.host_value(v, c.node, f"{c.last}()")
    return NONE


# ---------------------------------------------------------------------- what waits, and what only looks
def blocking(lib: Modules, c: Call) -> V:
    """TM-10: the size of the result, or the answer, is a value of the device."""
    out = lib.compute(c.args, c.node, c.last)
    tensors = [t for v in c.args for t in lib.tensors_in(v)]
    if not tensors or any(t.block.place not in HOSTS for t in tensors):
        lib.sync_host(lib.cur(), c.node, f"torch.{c.last}()")
    return out


models(TORCH_FUNCTIONS, apis.BLOCKING_METHODS | {"bincount"})(blocking)


@models(TORCH_FUNCTIONS, "repeat_interleave one_hot where")
def sized_by_values(lib: Modules, c: Call) -> V | None:
    """TM-10: the host asks for the size of the result, unless an argument gives it."""
    row = table.find(c.name if c.last != "one_hot" else "torch.nn.functional.one_hot")
    spared = row is not None and any(k in c.kwargs for k in row.unless.split())
    if spared or (
        len(c.args) > (2 if c.last == "repeat_interleave" else 1) and c.last != "repeat_interleave"
    ):
        return None
    if c.last == "repeat_interleave" and any(isinstance(v, Const) for v in c.args[1:2]):
        return None  # each as often as the others
    return blocking(lib, c) if lib.m.capture is None or c.last == "where" else None


@models(TORCH_FUNCTIONS, apis.VIEW_FUNCTIONS)
def view(lib: Modules, c: Call) -> V | None:
    if not c.args or not lib.tensorish(c.args[0]):
        return None
    t = lib.tensor(c.args[0])
    if c.last not in apis.PIECE_METHODS:
        return t
    return Seq([t.of((("i", i),)) for i in range(2)], "tuple", True)


@models(TORCH_FUNCTIONS, "to_dlpack")
def to_dlpack(lib: Modules, c: Call) -> V | None:
    """CI-03d: a capsule, by which no stream is exchanged."""
    given = lib.tensors_in(c.first) if c.first is not None else []
    return lib.capsule(given[0]) if given else None


@models(TORCH_FUNCTIONS, apis.HANDSHAKES)
def from_dlpack(lib: Modules, c: Call) -> V | None:
    """CI-04: the current stream waits for that of the library that gives the memory."""
    given = lib.tensors_in(c.first) if c.first is not None else []
    if not given:
        return None
    if given[0].lib != "torch":
        producer = lib.cur(given[0].lib)
        if producer is not lib.cur():
            lib.order.wait(lib.cur(), lib.order.snapshot(producer), lib.m.site(c.node), producer)
    for known in lib.exchanges:
        lib.order.learn(lib.cur(), known)
    return given[0].viewed_by("torch")


@models(TORCH_FUNCTIONS, "_foreach_copy_")
def foreach_copy(lib: Modules, c: Call) -> V:
    into = lib.tensors_in(c.args[0])
    sources: list[V] = list(lib.tensors_in(c.args[1]))
    if not sources and isinstance(c.args[1], Sym):
        sources = [lib.m.element(c.args[1], Const(i)) for i in range(len(into))]
    non_blocking = lib.flag(c.given("non_blocking", 2))
    for d, s in zip(into, sources, strict=False):
        lib.copy(d, s, non_blocking, c.node, sure=True)
    return NONE


@models(TORCH_FUNCTIONS, "_unflatten_dense_tensors unflatten_dense_tensors")
def unflattened(lib: Modules, c: Call) -> V | None:
    """Views of one flat tensor."""
    if not c.args or not lib.tensorish(c.args[0]):
        return None
    t = lib.tensor(c.args[0])
    return Seq([lib.view(t, (("i", i),)) for i in range(2)], "tuple", True)


@models(TORCH_FUNCTIONS, "tree_map tree_map_only")
def tree_map(lib: Modules, c: Call) -> V | None:
    """A function of each leaf of nested containers."""
    args = c.args[1:] if c.last == "tree_map_only" else c.args
    return mapped(lib, args[0], args[1], c, 0) if len(args) > 1 else None


def mapped(lib: Modules, f: V, tree: V, c: Call, depth: int) -> V:
    if isinstance(tree, Seq) and depth < 4:
        return Seq([mapped(lib, f, v, c, depth + 1) for v in tree.items], tree.kind, tree.more)
    if isinstance(tree, Map) and depth < 4:
        made = Map({}, lib.m.vn(("dict", len(lib.m.vns))))
        made.items.update({k: mapped(lib, f, v, c, depth + 1) for k, v in tree.items.items()})
        return made
    if isinstance(tree, Sym) and not depth and not lib.tensorish(tree):  # one leaf of it, under any key
        leaf = lib.m.element(tree, lib.m.fresh("key", "host"))
        made = Map({}, lib.m.vn(("dict", len(lib.m.vns))))
        made.items[lib.m.map_key(made, lib.m.fresh("key", "host"))] = lib.m.call_value(f, [leaf], {}, c.node)
        return made
    return lib.m.call_value(f, [tree], {}, c.node)
