"""Functions of CuPy and NumPy."""

from __future__ import annotations

import ast

from streamsafe.apis import names as apis
from streamsafe.apis import table
from streamsafe.apis.effects import CURRENT

from ..program import Block
from ..source import dotted
from ..values import NONE, Const, Ctx, Func, Map, Obj, Seq, Sym, Tensor, V
from .calls import Call
from .copies import CAPSULE
from .effects import by_row, pointed
from .modules import Modules
from .path import Node
from .state import HOSTS

FROM_HOST = frozenset("array asarray ascontiguousarray".split())
FILLS = frozenset("copyto shuffle put place putmask fill_diagonal".split())
"""Functions of NumPy that write their first argument."""
INTERFACE = "__cuda_array_interface__"
PINNED = frozenset("empty_pinned empty_like_pinned zeros_pinned alloc_pinned_memory".split())
PIECES = frozenset("split array_split hsplit vsplit dsplit".split())
"""Functions that give views of parts which have nothing in common."""
OF_THE_HOST = frozenset("asarray array asanyarray ascontiguousarray frombuffer copyto save savez".split())
"""Functions of NumPy that leave nothing to the arrays that they are given."""
SHARING = frozenset("asarray frombuffer ravel reshape ndarray".split())
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
        source = exported(lib, c.args[0], "__dlpack__", n) or c.args[0]
        if isinstance(source, Tensor) and source.text == CAPSULE:
            return as_array(source)
        found = lib.tensors_in(source)
        producer = lib.cur(found[0].lib if found else "torch")
        if producer is not lib.cur("cupy"):
            lib.order.wait(lib.cur("cupy"), lib.order.snapshot(producer), m.site(n), producer)
        for known in lib.exchanges:
            lib.order.learn(lib.cur("cupy"), known)
        return as_array(source)
    if last in apis.ARRAY_TYPES:
        return number(c) or m.fresh(last, "host")
    if last in apis.ARRAY_VIEW_FUNCTIONS and c.args and lib.tensorish(c.args[0]):
        return lib.tensor(c.args[0])
    if last == "asnumpy":
        return lib.to_host(c.args, c.kwargs, n)
    if last in PINNED:
        lib.allocated(lib.order.host, n)
        return Tensor(Block("pinned", "", lib.order.host, m.site(n), "cupy", fresh=True), None, True)
    row = table.find(c.name)
    if c.name.startswith("cupy.cuda."):
        done = by_row(lib, row, c) if row is not None else None
        if done is not None:
            return done
        return Ctx("plain") if last == "nvtx" else lib.unmodelled(last, None, c.args, c.kwargs, n)
    c.args = [exported(lib, v, INTERFACE, n) or v for v in c.args]
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
    n, last = c.node, c.last
    src = lib.tensors_in(exported(lib, c.args[0], INTERFACE, n) or c.args[0])
    if not src and isinstance(c.first, Sym) and is_declared_tensor(lib, n):
        src = [lib.tensor(c.first)]
    if src and src[0].block.lib != "cupy" and src[0].block.place not in HOSTS:
        src[0].block.shared = lib.tick()  # with no exchange of streams
    if src and src[0].block.place in ("cuda", "unknown"):
        return as_array(src[0]) if last != "array" else lib.compute(c.args, n, last, "cupy")
    if src and src[0].block.place == "pinned":
        t = lib.new(n, "cuda", "cupy", last, write=False)
        blocking = lib.option(c.kwargs.get("blocking"))
        lib.refused_in_capture(n)
        watched = frozenset({"watched"})  # CuPy keeps what it copies from until it has (CS-18)
        lib.launch([src[0]], [t], f"cupy.{last}", n, "cupy", "" if blocking else "h2d", notes=watched)
        if blocking:
            lib.order.wait(lib.order.host, lib.order.snapshot(lib.cur("cupy")))
        return t
    for s in src:
        lib.refused_in_capture(n)
        lib.host(s, False, last, n)
    return None


def is_declared_tensor(lib: Modules, n: Node) -> bool:
    """Whether what a call is given first is a parameter that is annotated as a tensor of torch."""
    given = n.args[0] if isinstance(n, ast.Call) and n.args else None
    function = lib.m.frame.function
    if not isinstance(given, ast.Name) or function is None:
        return False
    return any(
        p.arg == given.id and dotted(p.annotation).rpartition(".")[2] == "Tensor"
        for p in function.node.args.args
    )


def exported(lib: Modules, v: V, by: str, n: Node) -> V | None:
    """The memory that an object of the tree exports, by what its class gives; None where it is no such object."""
    method = v.cls.method(by) if isinstance(v, Obj) else None
    if method is None:
        return None
    if by == "__dlpack__":
        return lib.m.call_function(Func(method, v), [], {}, n)
    interface = lib.m.attribute(v, by, n)
    data = interface.items.get(("c", "str", "data")) if isinstance(interface, Map) else None
    pointer = data.items[0] if isinstance(data, Seq) and data.items else data
    t = lib.pointers.get(pointer.vn) if isinstance(pointer, Sym) else None
    if t is None or not isinstance(interface, Map):
        return None
    stream = interface.items.get(("c", "str", "stream"), NONE)
    if isinstance(stream, Const) and stream.value is None:
        t.block.shared = lib.tick()  # CI-02: no stream is exchanged
        t.block.notes.add("exported")
    else:
        lib.everything_host()  # CI-08: the host waits for the stream
    return t


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
