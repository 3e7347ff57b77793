"""Functions of CuPy and NumPy."""

from __future__ import annotations

from streamsafe.apis import names as apis
from streamsafe.apis import table
from streamsafe.apis.effects import CURRENT

from ..program import Block
from ..values import Const, Ctx, Seq, Sym, Tensor, V
from .calls import Call
from .modules import Modules
from .rows import by_row, pointed
from .state import HOSTS

FROM_HOST = frozenset("array asarray ascontiguousarray".split())
FILLS = frozenset("copyto shuffle put place putmask fill_diagonal".split())
"""Functions of NumPy that write their first argument."""
PINNED = frozenset("empty_pinned empty_like_pinned zeros_pinned alloc_pinned_memory".split())
PIECES = frozenset("split array_split hsplit vsplit dsplit".split())
"""Functions that give views of parts which have nothing in common."""
OF_THE_HOST = frozenset("asarray array asanyarray ascontiguousarray frombuffer copyto save savez".split())
"""Functions of NumPy that leave nothing to the arrays that they are given."""
SHARING = frozenset("asarray frombuffer ravel reshape".split())
"""Functions of NumPy whose result is the memory that they are given."""
GENERATORS = frozenset("default_rng Generator RandomState SeedSequence".split())
"""What draws random numbers on the host."""
NUMBERS = apis.ARRAY_TYPES | frozenset("prod ceil int32 int64".split())


def cupy_function(lib: Modules, c: Call) -> V:
    m, last, n = lib.m, c.last, c.node
    if last == "ndarray":
        pointer = c.given("memptr", 2)
        given = [t for t in pointed(lib, pointer) if "result" not in t.block.notes]
        made = given[0] if given else lib.made_by(last, n, False, "cupy")
        made.block.kept |= isinstance(pointer, Sym) and pointer.hint == "unowned"  # of no pool
        return made
    if last == "UnownedMemory" and c.args:
        given = pointed(lib, c.args[0])
        return given[0] if given else m.fresh(last, "unowned")
    if last == "MemoryPointer" and c.args:
        return c.args[0]
    if last in apis.FACTORIES or last in FROM_HOST:
        got = cupy_array(lib, c) if last in FROM_HOST and c.args else None
        return got or lib.made_by(last, n, last not in ("empty", "empty_like"), "cupy")
    if last in ("from_dlpack", "fromDlpack") and c.args:
        given = lib.tensors_in(c.args[0])
        producer = lib.cur(given[0].lib if given else "torch")
        if producer is not lib.cur("cupy"):
            lib.order.wait(lib.cur("cupy"), lib.order.snapshot(producer), m.site(n), producer)
        for known in lib.exchanges:
            lib.order.learn(lib.cur("cupy"), known)
        return as_array(c.args[0])
    if last in apis.ARRAY_TYPES:
        return number(c) or m.fresh(last, "host")
    if last in apis.ARRAY_VIEW_FUNCTIONS and c.args and lib.tensorish(c.args[0]):
        return lib.tensor(c.args[0])
    if last == "asnumpy":
        return lib.to_host(c.args, c.kwargs, n)
    if last in PINNED:
        return Tensor(Block("pinned", "", lib="cupy"), None, True)
    row = table.find(c.name)
    if c.name.startswith("cupy.cuda."):
        done = by_row(lib, row, c) if row is not None else None
        if done is not None:
            return done
        return Ctx("plain") if last == "nvtx" else lib.unmodelled(last, None, c.args, c.kwargs, n)
    if row is not None and row.parameters:
        done = by_row(lib, row, c)
        if done is not None:
            return done
    if last in PIECES and c.args and lib.tensorish(c.args[0]):
        t = lib.tensor(c.args[0])
        return Seq([lib.view(t, (("i", i),)) for i in range(3)], "list", True)
    out = c.kwargs.get("out") or c.kwargs.get("output")
    w = lib.tensors_in(out) if out is not None else []
    a = c.first
    if isinstance(a, Sym) and a.block is None and a.hint not in ("index", "host", "getter"):
        lib.tensor(a).block.lib = "cupy"  # it takes no other arrays
    in_place = row is not None and row.writes == "0"
    if "copy" in c.kwargs and lib.option(c.kwargs["copy"]) is False:
        in_place = True
    if in_place and c.args and not w:
        w = lib.tensors_in(c.args[0])
    computed = lib.compute(
        c.values("output" if "output" in c.kwargs else "out"), n, last, "cupy", write=w, fresh=not w
    )
    if row is not None and row.waits == CURRENT:  # CS-26: the size of the result is a value of the device
        lib.sync_host(lib.cur("cupy"), n, f"cupy.{last}()")
    return computed


def number(c: Call) -> V | None:
    """An integer of a type of NumPy's; None where it is not known."""
    known = (
        c.last.startswith(("int", "uint")) and isinstance(c.first, Const) and isinstance(c.first.value, int)
    )
    return c.first if known else None


def as_array(v: V) -> V:
    """What CuPy sees of a tensor: its memory."""
    return v.viewed_by("cupy") if isinstance(v, Tensor) and not v.numpy else v


def cupy_array(lib: Modules, c: Call) -> V | None:
    """An array of something: of an array on the device, of pinned memory, or of the host's."""
    n, last, src = c.node, c.last, lib.tensors_in(c.args[0])
    if src and src[0].block.lib != "cupy" and src[0].block.place not in HOSTS:
        src[0].block.shared = lib.tick()  # with no exchange of streams
    if src and src[0].block.place in ("cuda", "unknown"):
        return as_array(src[0]) if last != "array" else lib.compute(c.args, n, last, "cupy")
    if src and src[0].block.place == "pinned":
        t = lib.new(n, "cuda", "cupy", last, write=False)
        blocking = lib.option(c.kwargs.get("blocking"))
        lib.launch([src[0]], [t], f"cupy.{last}", n, "cupy", "" if blocking else "h2d")
        if blocking:
            lib.order.wait(lib.order.host, lib.order.snapshot(lib.cur("cupy")))
        return t
    for s in src:
        lib.host(s, False, last, n)
    return None


def numpy_function(lib: Modules, c: Call) -> V:
    """The host's: it reads what it is given, and waits for what is on the device."""
    last, n = c.last, c.node
    if last in GENERATORS:
        return lib.m.fresh(last, "rng")
    what = f"numpy.{last}()"
    view = last in SHARING
    tensors = [t for v in c.values() for t in lib.tensors_in(v)]
    if last not in OF_THE_HOST and any(t.lib == "cupy" and t.block.place == "cuda" for t in tensors):
        return cupy_function(lib, Call(f"cupy.{last}", c.args, c.kwargs, n))  # it asks the arrays to do it
    for t in tensors:
        if not view or t.block.place not in HOSTS:
            lib.host_value(t, n, what)
    if last in FILLS and c.args:
        for t in lib.tensors_in(c.args[0]):
            lib.host(t, True, what, n)
    out = c.kwargs.get("out")
    for t in lib.tensors_in(out) if out is not None else ():
        lib.host(t, True, what, n)
    if view and tensors:
        return Tensor(tensors[0].block, tensors[0].part, True)
    if last in NUMBERS:
        return number(c) or lib.m.fresh(last, "host")
    return Tensor(Block("pageable", ""), None, True)
