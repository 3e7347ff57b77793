"""Methods of tensors and arrays."""

from __future__ import annotations

from typing import Any

from streamsafe.apis import names as apis
from streamsafe.apis import table

from ..program import Block
from ..values import NONE, Const, Lazy, Seq, Sym, Tensor, V
from .calls import TENSOR_METHODS, Call, models
from .effects import by_row
from .modules import Modules
from .path import Node
from .state import HOSTS
from .unknown import GETTER_ENDS, GETTERS

MODULE_METHODS = frozenset(
    """train eval requires_grad_ half float bfloat16 state_dict load_state_dict parameters named_parameters buffers
    named_buffers modules named_modules children named_children apply""".split()
)
SIZES = frozenset(
    """size dim numel stride is_contiguous data_ptr element_size get_device is_pinned nelement storage_offset
    register_hook is_floating_point requires_grad_ retain_grad register_post_accumulate_grad_hook is_conj is_neg
    is_signed is_complex is_inference is_coalesced is_distributed is_set_to is_shared is_same_size dim_order sparse_dim
    dense_dim ndimension qscheme q_scale q_zero_point has_names const_data_ptr
    _size _nbytes nbytes __dlpack_device__""".split()
)
"""What asks for the shape of a tensor, or sets what is no data."""
RARE = frozenset(
    """absolute acosh adjoint arccos arccosh arcsin arcsinh arctan arctan2 arctanh as_strided_scatter as_subclass
    asinh atanh bernoulli bincount bitwise_left_shift bitwise_right_shift broadcast_to byte cdouble cfloat
    chalf char cholesky_inverse cholesky_solve clamp_max clip coalesce conj_physical deg2rad diagflat
    diagonal_scatter digamma fliplr flipud float_power floor_divide heaviside histogram igamma igammac
    index_reduce indices int_repr istft logaddexp2 lu lu_solve mvlgamma new new_empty_strided nonzero_static
    ormqr polygamma put qr rad2deg reshape_as resolve_neg scatter_reduce select_scatter short slice_scatter
    sparse_mask split_with_sizes sum_to_size to_padded_tensor to_sparse_bsc to_sparse_bsr to_sparse_coo
    to_sparse_csc to_sparse_csr triangular_solve unsafe_chunk unsafe_split values""".split()
)
"""Methods of tensors that the tables of the models do not name: they compute something new."""
TURNING = frozenset("t transpose permute swapaxes swapdims movedim moveaxis".split())
"""Views in which the elements come in another order than they lie in."""
RESHAPES = frozenset("contiguous reshape flatten".split())
"""A view where the memory allows it, else a copy."""


def is_host(t: Tensor) -> bool:
    return t.block.place in HOSTS or t.numpy


def tensor_method(lib: Modules, t: Tensor, c: Call) -> V:
    """A method of a tensor: by the tables, else it computes something new."""
    name, n = c.name, c.node
    if name.startswith("register_") and name.endswith("hook"):
        lib.m.hooks.append((name, c.args[0] if c.args else NONE))
        return lib.m.fresh("hook")
    known = TENSOR_METHODS.get(name)
    got = known(lib, t, c) if known is not None else None
    if got is not None:
        return got
    if t.lib == "cupy":
        pointer = table.find(f"cupy.cuda.MemoryPointer.{name}")
        got = by_row(lib, pointer, c, t) if pointer is not None else None
        if got is not None:
            return got
    if name in apis.BLOCKING_METHODS and not is_host(t):
        out = lib.compute([t, *c.args], n, name, t.lib)
        lib.sync_host(lib.cur(t.lib), n, f"{name}()")
        return out
    if name in apis.VIEW_METHODS and name not in RESHAPES:
        return view_method(lib, t, c)
    if name.endswith("_") and not name.endswith("__") and name not in apis.NOT_IN_PLACE:
        return in_place(lib, t, c)
    if name in MODULE_METHODS and name not in apis.TENSOR_METHODS:
        return t  # it is a module
    if t.lib == "torch" and not is_host(t) and name in apis.GENERATING_METHODS:
        return lib.unmodelled(name, t, c.args, c.kwargs, n)
    if t.lib == "torch" and not t.numpy and not of_tensors(name):
        return method_of_more(lib, t, c)
    return lib.compute([t, *operands(lib, c)], n, name, t.lib)


def method_of_more(lib: Modules, t: Tensor, c: Call) -> V:
    """A method that no tensor has: what was taken for a tensor is something else, a model perhaps."""
    if c.name.startswith(GETTERS) or c.name.endswith(GETTER_ENDS):
        number = ("asked", t.block.uid, c.name, *(lib.m.key(v) for v in c.values()))
        return lib.m.sym(lib.m.vn(number), f"{c.name}()", "getter")
    return lib.compute([t, *operands(lib, c)], c.node, c.name, t.lib, notes=frozenset({"model"}))


def of_tensors(name: str) -> bool:
    """Whether tensors of torch have a method."""
    return name in TENSOR_METHODS or name in apis.TENSOR_METHODS or name in RARE or name.startswith("__")


def operands(lib: Modules, c: Call) -> list[V]:
    """What a method is given; what may be a tensor is one."""
    return [lib.tensor(v) if isinstance(v, Sym) and v.vn in lib.maybe else v for v in c.values()]


def view_method(lib: Modules, t: Tensor, c: Call) -> V:
    if c.name in apis.PIECE_METHODS or c.name == "unbind":
        return Seq([lib.view(t, (("i", i),)) for i in range(2)], "tuple", True)
    if c.name in ("narrow", "select"):
        return lib.view(t, picked(lib, c))
    return t.turned() if c.name in TURNING else t


def picked(lib: Modules, c: Call) -> tuple[Any, ...]:
    """The part that ``select(dim, index)`` or ``narrow(dim, start, length)`` gives, as a subscript writes it."""
    dim, start, length = (
        c.given("dim", 0),
        c.given("index" if c.name == "select" else "start", 1),
        c.given("length", 2),
    )
    if not (isinstance(dim, Const) and isinstance(dim.value, int) and 0 <= dim.value < 8) or start is None:
        return tuple(("i", lib.m.key(v)) for v in c.args)
    at = start.value if isinstance(start, Const) else lib.m.key(start)
    last: Any = ("i", at)
    if length is not None:
        (x, a), (y, b) = lib.linear(start), lib.linear(length)
        last = ("s", lib.term(x, a), lib.term({k: x.get(k, 0) + y.get(k, 0) for k in {*x, *y}}, a + b))
    return (*(("s", None, None) for _ in range(dim.value)), last)


def in_place(lib: Modules, t: Tensor, c: Call) -> V:
    if c.name in ("zero_", "fill_"):
        return lib.compute([*c.args], c.node, c.name, t.lib, write=[t], fresh=False)
    return lib.compute([t, *operands(lib, c)], c.node, c.name, t.lib, write=[t], fresh=False)


# ---------------------------------------------------------------------- what touches nothing
@models(TENSOR_METHODS, SIZES)
def metadata(lib: Modules, t: Tensor, c: Call) -> V:
    m = lib.m
    if c.name == "is_pinned" and t.block.place == "pinned":
        return Const(True)
    if c.name == "requires_grad_":
        return t
    got = m.sym(m.vn(("meta", t.block.uid, c.name, *(m.key(v) for v in c.args))), c.name, "host")
    if c.name == "data_ptr":
        lib.pointers[got.vn] = t
    return got


@models(TENSOR_METHODS, "keys is_empty batch_dims")
def names(lib: Modules, t: Tensor, c: Call) -> V:
    """It is a mapping of tensors, as far as it is asked for its names."""
    return Lazy("keys", [lib.m.sym(lib.m.vn(("names", t.block.uid)), "names", "host")])


@models(TENSOR_METHODS, "contiguous")
def contiguous(lib: Modules, t: Tensor, c: Call) -> V:
    return lib.compute([t], c.node, "contiguous", t.lib) if t.strided else t


@models(TENSOR_METHODS, "reshape flatten __enter__ __exit__ __getitem__")
def itself(lib: Modules, t: Tensor, c: Call) -> V:
    return t


@models(TENSOR_METHODS, "__dlpack__")
def dlpack(lib: Modules, t: Tensor, c: Call) -> V:
    asked = c.kwargs.get("stream")
    if isinstance(asked, Const) and asked.value == -1:
        return lib.capsule(t)
    return lib.exchanged(t, c.node)


@models(TENSOR_METHODS, "record_stream")
def record_stream(lib: Modules, t: Tensor, c: Call) -> V:
    """TL-03: the allocator waits for the stream before it gives the memory out again."""
    s = lib.stream(c.first)
    if s is None:
        return NONE
    block = t.block
    if block.lib == "cupy":
        return NONE  # CI-13b: its pool knows nothing of that
    for b in (block, *block.likes):
        b.recorded.add(s)
    if block.given and block.alloc is None and s is lib.m.ambient["torch"]:
        block.own = lib.m.site(c.node)
        lib.own.append(block)
    if block.owner is not None:
        lib.siblings.add((block.owner, s))
    if block.fresh and block.alloc is s and s.origin not in ("ambient", "null"):
        lib.in_vain.add((block.home, s))
    if s.origin == "sym":
        block.kept = True
    return NONE


@models(TENSOR_METHODS, "reset_parameters")
def initialized(lib: Modules, t: Tensor, c: Call) -> V:
    """It is a module, whose parameters are drawn where they lie."""
    lib.compute([], c.node, c.name, t.lib, write=[t], fresh=False)
    return NONE


# ---------------------------------------------------------------------- the host reads
@models(TENSOR_METHODS, "item tolist __float__ __int__ is_nonzero")
def scalar(lib: Modules, t: Tensor, c: Call) -> V:
    """TM-08: the host waits for the current stream and reads the value."""
    lib.host_value(t, c.node, f"{c.name}()")
    return lib.m.fresh(f"<{c.name}>", "host")


@models(TENSOR_METHODS, "numpy")
def numpy(lib: Modules, t: Tensor, c: Call) -> V:
    block = t.block
    if block.uid in lib.moved_to and lib.is_on_device(block):
        raise lib.m.Raised  # NumPy has no arrays on a device
    if block.uid in lib.moved_to and lib.may_be_host(block):
        lib.is_on_host(block)
    lib.viewed(t, c.node)
    if block.place == "unknown":
        block.place = "host"
    return Tensor(block, t.part, True)


# ---------------------------------------------------------------------- copies
@models(TENSOR_METHODS, "cpu")
def cpu(lib: Modules, t: Tensor, c: Call) -> V:
    return to_the_host(lib, t, lib.flag(c.kwargs.get("non_blocking")), c)


def to_the_host(lib: Modules, t: Tensor, non_blocking: bool, c: Call) -> V:
    """TM-01: into fresh memory, which is pinned where nobody waits."""
    if is_host(t):
        return t
    dest = Tensor(Block("pinned" if non_blocking else "pageable", ""), None)
    lib.d2h(t, dest, non_blocking, c.node, t.lib, made=True)
    return dest


def is_flag(v: V) -> bool:
    return isinstance(v, Const) and isinstance(v.value, bool)


@models(TENSOR_METHODS, "to cuda type_as")
def to(lib: Modules, t: Tensor, c: Call) -> V:
    if c.name == "to" and lib.to_cpu(c.args, c.kwargs):
        placed = (
            c.args[2] if len(c.args) > 2 else c.args[1] if len(c.args) > 1 and is_flag(c.args[1]) else None
        )
        return to_the_host(lib, t, lib.flag(c.kwargs.get("non_blocking") or placed), c)
    where = {"cuda"}
    if c.name == "to":
        named = (v for k, v in c.kwargs.items() if k in ("device", "dtype"))
        where = {lib.where(v) for v in (*c.args, *named)} - {""}
    non_blocking = lib.flag(c.kwargs.get("non_blocking")) or any(
        isinstance(v, Const) and v.value is True for v in c.args[1:]
    )
    device = c.given("device", 0)
    if isinstance(device, Sym) and t.block.uid in lib.vn_of:
        lib.went_to.setdefault(lib.vn_of[t.block.uid], set()).add(lib.m.key(device))
    if non_blocking and "dtype" not in where and not isinstance(c.kwargs.get("non_blocking"), Sym):
        lib.advise(t, c.node, "to")
    if where <= {"dtype"}:
        return lib.of_type(lib.compute([t], c.node, "to", t.lib), c.given("dtype", 0))
    if is_host(t):
        return upload(lib, t, non_blocking, c)
    return to_the_device(lib, t, where, non_blocking, c)


def upload(lib: Modules, t: Tensor, non_blocking: bool, c: Call) -> V:
    """TM-02, TM-03: from the host; only from pinned memory, and if asked, the host goes on."""
    n, kind = c.node, t.lib
    if t.block.place == "pinned" and non_blocking and not t.strided:  # TM-16: else from a copy made at once
        out = lib.new(n, "cuda", kind, "to", write=False)
        lib.launch([t], [out], "to", n, kind, "h2d")
        return out
    if lib.m.capture is not None and not non_blocking and "registered" not in t.block.notes:
        lib.violation("SS401", n, "a copy from pageable memory")
    if t.block.place == "pinned" and not t.strided:
        out = lib.new(n, "cuda", kind, "to", write=False)
        lib.launch([t], [out], "to", n, kind)
    else:
        lib.host(t, False, "to", n)
        out = lib.made_by("to", n, True, kind)
    if not non_blocking:
        lib.sync_quiet()
    return out


def to_the_device(lib: Modules, t: Tensor, where: set[str], non_blocking: bool, c: Call) -> V:
    """Of what is on a device, or where nobody knows."""
    n, kind, device = c.node, t.lib, c.given("device", 0)
    on_device = t.block.place == "cuda"
    if c.name == "to" and on_device and non_blocking and lib.back_again(device):
        dest = Tensor(Block("unknown", ""), None)
        lib.d2h(t, dest, True, n, kind)
        return dest
    if on_device:
        if isinstance(device, (Const, Sym)) and lib.cur(kind).device == lib.device_key(device):
            return on_its_device(lib, t, device, n)
        if where & {"cuda", "cuda?"}:
            return other_device(lib, t, device, n) or t
        return lib.compute([t], n, "to", kind, notes=frozenset({"copied"}))  # it may be there already
    out = lib.new(n, "cuda", kind, "to", write=False)
    named = bool(where & {"cuda", "cuda?"})
    untouched = not any(x.timeline is not lib.order.host for x in t.block.accesses)
    if not non_blocking and lib.m.capture is None and c.name != "type_as" and named and untouched:
        lib.tick()
        return out  # from the host, and waited for, or there already
    if non_blocking and c.name == "to" and "cuda" not in where:
        lib.moved_to[out.block.uid] = device if device is not None else NONE
        lib.copied_from[out.block.uid] = t.block
    blocking = not non_blocking and lib.m.capture is None and c.name != "type_as"
    # what a call has made that nobody sees lies on a device, perhaps on this one
    unsure = frozenset({"copied"}) if t.block.alloc is not None else frozenset()
    lib.launch([t], [out], "to", n, kind, "h2d" if non_blocking else "", strong=not blocking, notes=unsure)
    if blocking:
        lib.sync_quiet()  # TM-04: from the host it waits, and on the device there is nothing to copy
    if not non_blocking and where and where <= {"cuda", "cuda?"}:
        out.block.accesses.clear()  # it was there, or the copy is waited for
    return out


def other_device(lib: Modules, t: Tensor, device: V | None, n: Node) -> Tensor | None:
    """A copy on another device than the one where the path says that a tensor is; None where it says no such thing."""
    plain = isinstance(device, Const) and device.value in (None, "cuda")
    if not isinstance(device, (Const, Sym)) or plain or t.block.device in (None, lib.device_key(device)):
        return None
    return on_its_device(lib, t, device, n)


def on_its_device(lib: Modules, t: Tensor, device: Const | Sym, n: Node) -> Tensor:
    """A copy on the device of the current stream: from another one on its stream, and on the same one there is none."""
    key = lib.device_key(device)
    if key is not None and key == t.block.device:
        return t
    out = lib.new(n, "cuda", t.lib, "to", write=False)
    out.block.device = key
    lib.peer_copy(t, out, n, t.lib)
    return out


@models(TENSOR_METHODS, "pin_memory")
def pin_memory(lib: Modules, t: Tensor, c: Call) -> V:
    lib.beside()
    if t.block.place == "pinned":
        return t
    lib.host(t, False, "pin_memory()", c.node)
    pinned = Tensor(Block("pinned", ""), None)
    pinned.block.pinned_by = (lib.m.frame, lib.m.at)
    return pinned


@models(TENSOR_METHODS, "get")
def get(lib: Modules, t: Tensor, c: Call) -> V | None:
    return lib.to_host([t, *c.args], c.kwargs, c.node) if t.lib == "cupy" else None


@models(TENSOR_METHODS, "set")
def set_array(lib: Modules, t: Tensor, c: Call) -> V | None:
    if t.lib != "cupy":
        return None
    src = lib.tensors_in(c.args[0]) if c.args else []
    if lib.refused_in_capture(c.node):
        return NONE
    current = lib.m.current["cupy"]
    current.append(lib.stream(c.given("stream", 1), "cupy") or lib.cur("cupy"))
    lib.copy(t, c.args[0] if src else NONE, bool(src and src[0].block.place == "pinned"), c.node)
    current.pop()
    return NONE


@models(TENSOR_METHODS, "cast")
def cast(lib: Modules, t: Tensor, c: Call) -> V | None:
    """A view of memory, in other units."""
    return t if t.numpy else None


@models(TENSOR_METHODS, "copy_")
def copy_(lib: Modules, t: Tensor, c: Call) -> V:
    non_blocking = lib.flag(c.kwargs.get("non_blocking")) or (len(c.args) > 1 and lib.flag(c.args[1]))
    lib.copy(t, c.args[0] if c.args else NONE, non_blocking, c.node, sure=True)
    return t


# ---------------------------------------------------------------------- the rest
@models(TENSOR_METHODS, "backward")
def backward(lib: Modules, t: Tensor, c: Call) -> V:
    return lib.backward([t, *c.args], c.kwargs, c.node)


@models(TENSOR_METHODS, "resize_ set_ untyped_storage storage _typed_storage")
def resize(lib: Modules, t: Tensor, c: Call) -> V:
    empty = isinstance(c.first, Const) and c.first.value == 0
    if c.name == "resize_" and not empty:
        lib.resized(t, c.node)
    if c.name == "resize_" and empty and t.block.fresh:
        lib.m.candidates.pop(t.block.uid, None)
        lib.free(t.block, c.node)
    return t


@models(TENSOR_METHODS, apis.ARRAY_WRITING_METHODS & frozenset("fill sort partition put itemset".split()))
def written(lib: Modules, t: Tensor, c: Call) -> V | None:
    if not (t.numpy or t.lib == "cupy"):
        return None
    return lib.compute([*c.args], c.node, c.name, t.lib, write=[t], fresh=False)


@models(TENSOR_METHODS, "new_empty new_zeros new_ones new_full new_tensor")
def new(lib: Modules, t: Tensor, c: Call) -> V:
    if is_host(t):
        return Tensor(Block("pageable", ""))
    return lib.made_by(c.name, c.node, c.name != "new_empty", t.lib)


@models(TENSOR_METHODS, "astype copy clone")
def copied(lib: Modules, t: Tensor, c: Call) -> V | None:
    if c.name != "clone" and t.lib != "cupy":
        return None
    return lib.compute([t], c.node, c.name, t.lib)


@models(TENSOR_METHODS, "wait")
def wait(lib: Modules, t: Tensor, c: Call) -> V:
    """A tensor of a collective that is under way."""
    lib.everything(c.node)
    return t
