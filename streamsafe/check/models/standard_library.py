"""Python's standard library and other packages of the host."""

from __future__ import annotations

import ast
from collections.abc import Collection

from streamsafe.apis import table

from ..source import Class, Module
from ..values import NONE, Cls, Const, Ctx, Func, Gen, Lazy, Lib, Map, Obj, Partial, Range, Seq, Thread, V
from .calls import FUNCTIONS, Call, models
from .effects import by_row
from .modules import Modules
from .threads import puts

HOST_MODULES = tuple(
    "math. os. re. typing. logging. dataclasses. warnings. psutil. sys. platform. socket. shutil. datetime.".split()
)
"""Beginnings of the names of functions that look at values on the host and give what is no tensor."""
ENCODERS = tuple("json. pickle. PIL. cv2. soundfile. imageio.".split())
"""They read all that they are given."""
MOCKS = ("unittest.mock.", "mock.", "pytest_mock.")


def record_class(module: Module, name: str, fields: Collection[str]) -> Class:
    """The class that ``collections.namedtuple`` makes; without fields, one whose objects have any."""
    lines = [f"class {name}:", *(f"    {field}: object" for field in fields), "    pass"]
    node = ast.parse("\n".join(lines)).body[0]
    assert isinstance(node, ast.ClassDef)
    return Class(name, node, module, ["typing.NamedTuple"] if fields else [])


def other_function(lib: Modules, c: Call) -> V:
    """A function of a package of the host, or of one of which nothing is known."""
    name, last, n = c.name, c.last, c.node
    row = table.find(name) if name.startswith("cuda.") else None
    if row is not None:  # NVIDIA's bindings: each gives an error, and what it makes
        made = by_row(lib, row, c)
        if made is not None:
            return Seq([Const(0)] if made is NONE else [Const(0), made], "tuple")
    if name.startswith(MOCKS):
        return lib.m.fresh("a mock", "mock")
    if last == "getLogger":
        return lib.m.fresh("a logger", "logger")
    if name.startswith(HOST_MODULES):
        for v in c.args:
            if lib.tensorish(v) and not name.startswith("typing."):
                lib.host_value(v, n, f"{last}()")
        if name == "typing.cast" and len(c.args) > 1:
            return c.args[-1]
        got = lib.m.fresh(f"<{last}>", "host")
        if name == "math.ceil":
            lib.m.conds[("truth", lib.m.key(got))] = True  # a number of pieces of something
        return got
    saves = name.startswith("safetensors.") and last.startswith("save")
    if saves or name.startswith(ENCODERS):
        for v in c.args:
            lib.host_value(v, n, f"{last}()")
        return NONE if saves else lib.m.fresh(f"<{last}>", "host")
    if last == "Thread":
        for v in c.args:
            lib.host_value(v, n, f"{last}()")
    return lib.unmodelled(last, None, c.args, c.kwargs, n)


@models(FUNCTIONS, "ctypes.c_void_p ctypes.cast")
def pointer(lib: Modules, c: Call) -> V | None:
    return c.first


@models(FUNCTIONS, "os.readv os.preadv")
def read_into(lib: Modules, c: Call) -> V:
    """The host writes what it reads into the buffers of a list."""
    for t in lib.tensors_in(c.args[1]) if len(c.args) > 1 else ():
        lib.host(t, True, f"{c.last}()", c.node)
    return lib.m.fresh(c.last, "host")


@models(FUNCTIONS, "importlib.import_module builtins.__import__")
def imported(lib: Modules, c: Call) -> V | None:
    a = c.first
    return Lib(a.value) if isinstance(a, Const) and isinstance(a.value, str) else None


@models(FUNCTIONS, "ctypes.c_void_p")
def address(lib: Modules, c: Call) -> V | None:
    return c.first


@models(FUNCTIONS, "os.environ.get os.getenv")
def environment(lib: Modules, c: Call) -> V:
    """The same text each time."""
    return lib.m.sym(lib.m.vn((c.name, *(lib.m.key(v) for v in c.args))), f"{c.last}()", "host")


# ---------------------------------------------------------------------- contexts
@models(FUNCTIONS, "contextlib.nullcontext contextlib.suppress")
def plain_context(lib: Modules, c: Call) -> V:
    return Ctx("plain", c.first if c.last == "nullcontext" else None)


@models(FUNCTIONS, "contextlib.ExitStack")
def exit_stack(lib: Modules, c: Call) -> V:
    return Ctx("stack", [])


@models(FUNCTIONS, "pytest.raises")
def expecting(lib: Modules, c: Call) -> V:
    """What is done within is meant to fail."""
    return Ctx("expecting")


# ---------------------------------------------------------------------- functions and containers
@models(FUNCTIONS, "functools.partial")
def partial(lib: Modules, c: Call) -> V:
    return Partial(c.args[0], c.args[1:], c.kwargs) if c.args else NONE


@models(FUNCTIONS, "functools.reduce")
def reduced(lib: Modules, c: Call) -> V | None:
    if len(c.args) < 2:
        return None
    items = lib.m.materialised(c.args[1], c.node)
    got = c.args[2] if len(c.args) > 2 else items.pop(0) if items else NONE
    for v in items:
        got = lib.m.call_value(c.args[0], [got, v], {}, c.node)
    return got


@models(FUNCTIONS, "types.SimpleNamespace argparse.Namespace")
def namespace(lib: Modules, c: Call) -> V:
    m = lib.m
    made = Obj(record_class(m.frame.module, c.last, ()), m.vn(("new", len(m.vns))), c.last.lower())
    made.fields.update(c.kwargs)
    return made


@models(FUNCTIONS, "dataclasses.fields")
def fields(lib: Modules, c: Call) -> V | None:
    cls = c.first.cls if isinstance(c.first, (Obj, Cls)) else None
    if cls is None:
        return None
    kind = record_class(cls.module, "Field", ())
    found: list[V] = []
    for name in (name for k in reversed(cls.mro()) for name in k.declared):
        field = Obj(kind, lib.m.vn(("new", len(lib.m.vns))), "field")
        field.fields["name"] = Const(name)
        found.append(field)
    return Seq(found, "tuple")


@models(FUNCTIONS, "dataclasses.replace")
def replaced(lib: Modules, c: Call) -> V | None:
    return lib.with_changes(c.first, c.kwargs) if isinstance(c.first, Obj) else None


@models(FUNCTIONS, "collections.namedtuple")
def named_tuple(lib: Modules, c: Call) -> V | None:
    name, fields = c.first, c.args[1] if len(c.args) > 1 else None
    if isinstance(fields, Const):
        names = str(fields.value).replace(",", " ").split()
    else:
        names = (
            [str(v.value) for v in fields.items if isinstance(v, Const)] if isinstance(fields, Seq) else []
        )
    if not isinstance(name, Const) or not all(x.isidentifier() for x in (str(name.value), *names)):
        return None
    return Cls(record_class(lib.m.frame.module, str(name.value), names))


@models(FUNCTIONS, "contextvars.ContextVar")
def context_variable(lib: Modules, c: Call) -> V:
    s = lib.m.fresh("a context variable", "context variable")
    default = c.kwargs.get("default")
    if default is not None:
        lib.given[(s.vn, "")] = default
    return s


@models(FUNCTIONS, "asyncio.run asyncio.wait_for asyncio.shield asyncio.create_task asyncio.ensure_future")
def coroutine(lib: Modules, c: Call) -> V | None:
    """What a coroutine gives: it was run where it was called."""
    return c.first


@models(FUNCTIONS, "asyncio.gather")
def gathered(lib: Modules, c: Call) -> V:
    return Seq(list(c.args), "list")


@models(FUNCTIONS, "collections.deque")
def deque(lib: Modules, c: Call) -> V:
    a, longest = c.first, c.given("maxlen", 1)
    if isinstance(a, (Gen, Lazy, Range)):
        a = Seq(lib.m.materialised(a, c.node))
    made = Seq(list(a.items), "list", a.more) if isinstance(a, Seq) else Seq([], "list")
    if isinstance(longest, Const) and isinstance(longest.value, int):
        made.limit = longest.value
        del made.items[: -longest.value]
    return made


@models(FUNCTIONS, "collections.OrderedDict")
def mapping(lib: Modules, c: Call) -> V:
    return Map({}, lib.m.vn(("dict", len(lib.m.vns))))


@models(FUNCTIONS, "collections.defaultdict")
def default_mapping(lib: Modules, c: Call) -> V:
    factory = c.first if isinstance(c.first, (Lib, Cls, Func, Partial)) else None
    return Map({}, lib.m.vn(("dict", len(lib.m.vns))), factory)


@models(FUNCTIONS, "itertools.chain itertools.chain.from_iterable")
def chain(lib: Modules, c: Call) -> V:
    sources: list[V] = list(c.args)
    if c.last == "from_iterable":
        sources = lib.m.materialised(c.args[0], c.node) if c.args else []
    items = [v for s in sources if not isinstance(s, Gen) for v in lib.m.materialised(s, c.node)]
    return Seq(items, "list", True)


@models(FUNCTIONS, "itertools.cycle")
def cycle(lib: Modules, c: Call) -> V:
    a = c.first
    return Lazy("cycle", [a, Const(0)]) if isinstance(a, Seq) and a.items else lib.m.fresh("<cycle>")


@models(FUNCTIONS, "weakref.ref")
def weak_reference(lib: Modules, c: Call) -> V:
    s = lib.m.fresh("a weak reference", "weak")
    lib.given[(s.vn, "")] = c.first or NONE
    return s


# ---------------------------------------------------------------------- threads
@models(FUNCTIONS, "queue.Queue queue.SimpleQueue queue.LifoQueue asyncio.Queue multiprocessing.Queue")
def queue(lib: Modules, c: Call) -> V:
    return Seq([], "queue")


@models(FUNCTIONS, "threading.Thread")
def thread(lib: Modules, c: Call) -> V:
    """Its target runs where it is made, on the default stream; one that takes from queues, where it is waited for."""
    f, extra = c.kwargs.get("target"), c.kwargs.get("args")
    if f is None:
        return lib.m.fresh("thread")
    given = list(extra.items) if isinstance(extra, Seq) else []
    if isinstance(f, Func) and not f.function.words.isdisjoint(("get", "get_nowait", "wait_for")):
        lib.waiting.append((f, given, 3))
        waiting = Thread()
        lib.m.threads.append(waiting)
        return waiting
    if isinstance(f, Func) and puts(f.function):
        return lib.producer(f, given, c.node)
    lib.in_thread(f, given, {}, c.node)
    started = lib.m.threads[-1]
    started.running = False  # until it is started
    return started


@models(FUNCTIONS, "threading.Event")
def signal(lib: Modules, c: Call) -> V:
    """What waits for it knows what the thread knew that has set it last."""
    return lib.m.fresh("a signal", "signal")


@models(FUNCTIONS, "concurrent.futures.ThreadPoolExecutor")
def thread_pool(lib: Modules, c: Call) -> V:
    return Ctx("pool", [])


@models(FUNCTIONS, "concurrent.futures.wait concurrent.futures.as_completed")
def waited_for(lib: Modules, c: Call) -> V:
    """The host knows what the threads knew when they were done."""
    for th in lib.m.threads:
        th.running = False
    futures = c.first.items if isinstance(c.first, Seq) else ()
    for future in futures:
        lib.joined(future)
    if c.last == "as_completed":
        return c.first or NONE
    return Seq([c.first or NONE, Seq([], "set")], "tuple")


def pool_method(lib: Modules, pool: Ctx, c: Call) -> V:
    """An executor."""
    if c.name == "submit" and c.args:
        future = lib.in_thread(c.args[0], c.args[1:], c.kwargs, c.node)
        pool.payload.append(future)
        return future
    if c.name in ("shutdown", "map"):
        for future in pool.payload:
            lib.joined(future)
    if c.name == "map" and len(c.args) > 1:
        f, source = c.args[0], c.args[1]
        if not isinstance(f, (Func, Partial, Obj, Cls)):
            return lib.unmodelled(c.name, None, c.args[1:], {}, c.node)
        value = lib.m.element(source, Const(0)) if not isinstance(source, Gen) else lib.m.fresh("item")
        return Seq([lib.in_thread(f, [value], {}, c.node).value], "list", True)
    return lib.m.fresh(c.name)
