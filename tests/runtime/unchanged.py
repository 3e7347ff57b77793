"""What a program can find out about its own objects, as JSON: with no sanitizer, in a session, and after one.

``python -m tests.runtime.unchanged plain|inside|after [--simulate]``
"""

from __future__ import annotations

import contextlib
import copy
import json
import pickle
import queue
import sys
import threading
from collections.abc import Callable
from typing import Any

RAW = 'extern "C" __global__ void k(const float* a, float* b) { b[threadIdx.x] = a[threadIdx.x]; }'

Probe = Callable[["Before"], Any]
PROBES: dict[str, Probe] = {}


def probe(function: Probe) -> Probe:
    PROBES[function.__name__] = function
    return function


class Before:
    """What the program has before a session begins."""

    def __init__(self, cp: Any) -> None:
        import cupyx
        import numpy as np

        self.cp, self.np, self.cupyx = cp, np, cupyx
        self.kernel = cp.RawKernel(RAW, "k")
        self.x, self.y = cp.arange(64, dtype="f4"), cp.zeros(64, "f4")
        self.kernel((1,), (64,), (self.x, self.y))
        self.functions = [self.kernel.kernel, None]
        self.by_key = {(0, "k"): self.kernel.kernel}
        self.calls = 0

        @cp.memoize()  # type: ignore[untyped-decorator]
        def made(name: str) -> Any:
            self.calls += 1
            return cp.RawKernel(RAW, name).kernel

        self.made = made
        self.memoized = made("k")
        self.plain = np.arange(64, dtype="f4")
        self.pinned = cupyx.empty_like_pinned(self.plain)
        self.pinned[:] = self.plain
        memory = cp.cuda.alloc_pinned_memory(256)
        self.laid = np.ndarray((64,), "f4", memory)
        self.laid[:] = 1
        self.stream = cp.cuda.Stream(non_blocking=True)
        self.event = cp.cuda.Event()
        self.queue: Any = queue.SimpleQueue()
        self.fifo: Any = queue.Queue()
        self.numpy = {name: getattr(np, name) for name in ("array", "asarray", "frombuffer", "copyto")}
        self.pointer = self.x.data
        self.allocator = cp.cuda.get_allocator()
        self.modules = (cp.cuda.runtime, cp.cuda.memory)
        self.trace = sys.gettrace()
        self.pool = cp.get_default_memory_pool()
        cp.cuda.Device().synchronize()


def kind(value: Any) -> str:
    """A value's type. A session's pinned arrays are of a documented subclass of numpy.ndarray."""
    name = f"{type(value).__module__}.{type(value).__qualname__}"
    return "numpy.ndarray" if type(value).__name__ == "PinnedArray" else name


def facts(value: Any, *, new: bool = True) -> list[Any]:
    """An array's type, layout and values; with ``new`` also that its type is the exact one."""
    exact = f"{type(value).__module__}.{type(value).__qualname__}" if new else kind(value)
    return [exact, str(value.dtype), list(value.shape), list(value.strides), value.tolist()]


# -- kernels, and where programs keep them ----------------------------------------------------------------------------


@probe
def kernels_in_containers(b: Before) -> Any:
    kept = list(b.functions)
    b.kernel((1,), (64,), (b.x, b.y))
    b.functions[0]((1,), (64,), (b.x, b.y))
    return [
        [each is other for each, other in zip(b.functions, kept, strict=True)],
        list(b.by_key),
        b.by_key[0, "k"] is b.functions[0] is b.kernel.kernel,
        [type(each) is b.cp.cuda.Function for each in kept],
        isinstance(b.cp.RawKernel(RAW, "k").kernel, b.cp.cuda.Function),
    ]


@probe
def memoized_functions(b: Before) -> Any:
    again = b.made("k")
    return [again is b.memoized, b.calls]


@probe
def kernel_attributes(b: Before) -> Any:
    fresh = pickle.loads(pickle.dumps(b.kernel))
    return [
        fresh.name,
        fresh.code == b.kernel.code,
        b.kernel.kernel.ptr == b.functions[0].ptr,
        repr(type(fresh)),
    ]


@probe
def wrong_calls_fail_as_before(b: Before) -> Any:
    found = []
    for wrong in (
        lambda: b.functions[0](),
        lambda: b.functions[0](1, 2, 3),
        lambda: b.functions[0]((1,), (1,), (object(),)),
        lambda: b.kernel((1,), (1,)),
        lambda: b.cp.add(b.x, "text"),
        lambda: b.x.set(b.np.zeros(3)),
        lambda: b.event.record("stream"),
        lambda: b.stream.wait_event(None),
        lambda: hash(b.x),
    ):
        try:
            wrong()
            found.append("nothing")
        except Exception as error:
            found.append(type(error).__name__)
    return found


# -- CuPy's arrays, memory and streams --------------------------------------------------------------------------------


@probe
def cupy_identities(b: Before) -> Any:
    cp, x, y = b.cp, b.x, b.y
    host = b.np.empty(64, "f4")
    return [
        cp.asarray(x) is x,
        cp.ascontiguousarray(x) is x,
        x.astype("f4", copy=False) is x,
        cp.add(x, x, out=y) is y,
        x.get(out=host) is host,
        cp.asnumpy(x, out=host) is host,
        x.reshape(8, 8).base is x,
        x[3:].T.base is x,
        cp.get_array_module(x) is cp,
        x.device == y.device,
        kind(x.sum()),
        kind(x[0]),
        kind(x.get()),
        type(x.get()) is b.np.ndarray,
        type(cp.asnumpy(x)) is b.np.ndarray,
    ]


@probe
def cupy_values(b: Before) -> Any:
    x = b.cp.arange(12, dtype="f4").reshape(3, 4)
    made = [
        x + 1,
        x.sum(axis=0),
        x @ x.T,
        x.T.copy(),
        x.astype("i2"),
        b.cp.concatenate([x, x]),
        x[::2],
        x > 3,
    ]
    return [
        [kind(each), str(each.dtype), list(each.shape), list(each.strides), each.get().tolist()]
        for each in made
    ]


@probe
def copies_and_pickles(b: Before) -> Any:
    return [
        [kind(each), each.get().tolist()]
        for each in (copy.copy(b.x), copy.deepcopy(b.x), pickle.loads(pickle.dumps(b.x)))
    ]


@probe
def pointers(b: Before) -> Any:
    cp = b.cp
    pointer = b.x.data
    mine = cp.cuda.MemoryPointer(pointer.mem, 4)
    laid = cp.ndarray((3,), "f4", memptr=mine)
    return [
        isinstance(pointer, cp.cuda.MemoryPointer),
        isinstance(cp.zeros(3).data, cp.cuda.MemoryPointer),
        isinstance(mine, type(b.pointer)),
        isinstance(3, cp.cuda.MemoryPointer),
        issubclass(int, cp.cuda.MemoryPointer),
        pointer.ptr == b.pointer.ptr,
        pointer.mem is b.pointer.mem,
        (pointer + 8).ptr - pointer.ptr,
        (pointer - 0).ptr - pointer.ptr,
        laid.data.ptr - pointer.ptr,
        laid.data is mine,
        kind(pointer.mem),
        pointer.device_id,
    ]


@probe
def pools(b: Before) -> Any:
    cp, pool = b.cp, b.pool
    pool.free_all_blocks()
    used = pool.used_bytes()
    held = [cp.zeros(1000, "f4") for _ in range(3)]
    inside = [pool.used_bytes() - used, pool.n_free_blocks()]
    del held
    freed = [pool.used_bytes() - used, pool.n_free_blocks()]
    own = cp.cuda.MemoryPool()
    with cp.cuda.using_allocator(own.malloc):
        cp.zeros(8)
        same = cp.cuda.get_allocator() == own.malloc
    return [inside, freed, same, own.n_free_blocks(), cp.cuda.get_allocator() == b.allocator]


@probe
def streams_and_events(b: Before) -> Any:
    cp = b.cp
    before = cp.cuda.get_current_stream()
    with b.stream as entered:
        current = cp.cuda.get_current_stream() == b.stream
    event = b.stream.record()
    given = b.stream.record(b.event)
    b.stream.wait_event(event)
    b.stream.synchronize()
    made = cp.cuda.Stream(non_blocking=True)
    return [
        entered is b.stream,
        current,
        cp.cuda.get_current_stream() == before,
        kind(event),
        given is b.event,
        sorted(vars(b.stream)),
        sorted(vars(b.event)),
        kind(made),
        made == b.stream,
        hash(b.stream) == hash(b.stream),
        b.stream.done,
        event.done,
    ]


@probe
def modules(b: Before) -> Any:
    cp = b.cp
    return [
        (cp.cuda.runtime is b.modules[0], cp.cuda.memory is b.modules[1]),
        sorted(name for name in vars(cp) if not name.startswith("_")),
        sorted(name for name in vars(cp.cuda) if not name.startswith("_")),
        cp.zeros.__name__,
        cp.ndarray.__name__,
        cp.cuda.alloc_pinned_memory.__name__,
    ]


# -- NumPy, plain and pinned ------------------------------------------------------------------------------------------


@probe
def numpy_functions(b: Before) -> Any:
    np = b.np
    return [
        [getattr(np, name) == value for name, value in b.numpy.items()],
        [hash(getattr(np, name)) == hash(value) for name, value in b.numpy.items()],
        [pickle.loads(pickle.dumps(getattr(np, name))) == value for name, value in b.numpy.items()],
        [repr(getattr(np, name)).partition(" at ")[0] for name in b.numpy],
        [getattr(np, name).__doc__ == value.__doc__ for name, value in b.numpy.items()],
        {value: name for name, value in b.numpy.items()}[np.array],
    ]


@probe
def plain_arrays_stay_plain(b: Before) -> Any:
    np = b.np
    found = []
    for array in (b.plain, b.pinned, b.laid):
        b.x.set(array)
        b.x.get(out=array)
        b.cp.asarray(array)
        found.append(
            [
                type(array) is np.ndarray,
                np.asarray(array) is array,
                np.asanyarray(array) is array,
                np.ascontiguousarray(array) is array,
                type(np.array(array)) is np.ndarray,
                type(array[3:9]) is np.ndarray,
                array.dtype is np.dtype("f4"),
                array.flags.writeable,
                array.tolist(),
            ]
        )
    return found


PINNED: dict[str, Callable[[Any, Any], Any]] = {
    "cumsum out": lambda np, p: p.cumsum(out=p) is p,
    "round out": lambda np, p: p.round(out=p) is p,
    "clip out": lambda np, p: p.clip(0, 9, out=p) is p,
    "add out": lambda np, p: np.add(p, 1, out=p) is p,
    "add out, in a tuple": lambda np, p: np.add(p, 1, out=(p,)) is p,
    "divmod out": lambda np, p: [each is p for each in np.divmod(p, 3, out=(p, None))],
    "np.cumsum out": lambda np, p: np.cumsum(p, out=p) is p,
    "np.clip out": lambda np, p: np.clip(p, 0, 9, out=p) is p,
    "np.take out": lambda np, p: np.take(p, np.arange(64), out=p, mode="clip") is p,
    "np.dot out": lambda np, p: np.dot(np.eye(64, dtype="f4"), p.copy(), out=p) is p,
    "sum out": lambda np, p: p.sum(out=p[:1].reshape(())).shape,
    "in place": lambda np, p: p.__iadd__(1) is p,
    "asarray": lambda np, p: np.asarray(p) is p,
    "asarray by keyword": lambda np, p: np.asarray(a=p) is p,
    "asanyarray": lambda np, p: np.asanyarray(p) is p,
    "ascontiguousarray": lambda np, p: np.ascontiguousarray(p) is p,
    "array without a copy": lambda np, p: np.array(p, copy=None) is p,
    "astype without a copy": lambda np, p: p.astype("f4", copy=False) is p,
    "atleast_1d": lambda np, p: np.atleast_1d(p) is p,
    "array": lambda np, p: facts(np.array(p)),
    "array of another type": lambda np, p: facts(np.asarray(p, "f8")),
    "array of two": lambda np, p: facts(np.array([p, p])),
    "copy": lambda np, p: facts(p.copy()),
    "copy.copy": lambda np, p: facts(copy.copy(p)),
    "deepcopy": lambda np, p: facts(copy.deepcopy(p)),
    "pickle": lambda np, p: facts(pickle.loads(pickle.dumps(p))),
    "plus": lambda np, p: facts(p + 1),
    "sqrt": lambda np, p: facts(np.sqrt(p)),
    "compare": lambda np, p: facts(p > 3),
    "matmul": lambda np, p: facts(p.reshape(8, 8) @ p.reshape(8, 8)),
    "empty_like": lambda np, p: [*facts(np.empty_like(p))[:-1]],
    "zeros_like": lambda np, p: facts(np.zeros_like(p)),
    "full_like": lambda np, p: facts(np.full_like(p, 3)),
    "astype": lambda np, p: facts(p.astype("i4")),
    "byteswap": lambda np, p: facts(p.byteswap()),
    "flatten": lambda np, p: facts(p.flatten()),
    "ravel of a transposed": lambda np, p: facts(p.reshape(8, 8).T.ravel()),
    "reshape of a transposed": lambda np, p: facts(p.reshape(8, 8).T.reshape(64)),
    "np.ravel of a transposed": lambda np, p: facts(np.ravel(p.reshape(8, 8).T)),
    "fancy": lambda np, p: facts(p[[1, 2, 3]]),
    "mask": lambda np, p: facts(p[p > 60]),
    "concatenate": lambda np, p: facts(np.concatenate([p, p])),
    "stack": lambda np, p: facts(np.stack([p, p])),
    "where": lambda np, p: facts(np.where(p > 3, p, 0)),
    "unique": lambda np, p: facts(np.unique(p)),
    "sort": lambda np, p: facts(np.sort(p)),
    "cumsum": lambda np, p: facts(p.cumsum()),
    "sum": lambda np, p: [kind(p.sum()), float(p.sum())],
    "element": lambda np, p: [kind(p[3]), float(p[3])],
    "iterated": lambda np, p: [kind(each) for each in p[:2]],
    "nonzero": lambda np, p: [facts(each) for each in p.nonzero()],
    "split": lambda np, p: [facts(each, new=False) for each in np.split(p, 4)],
    "slice": lambda np, p: facts(p[3:9], new=False),
    "transposed": lambda np, p: facts(p.reshape(8, 8).T, new=False),
    "view": lambda np, p: facts(p.view("i4"), new=False),
    "view as ndarray": lambda np, p: facts(p.view(np.ndarray)),
    "trim_zeros": lambda np, p: facts(np.trim_zeros(p), new=False),
    "memoryview": lambda np, p: [memoryview(p).format, memoryview(p).nbytes, memoryview(p).readonly],
    "bytes": lambda np, p: p.tobytes().hex(),
    "repr": lambda np, p: str(p),
    "isinstance": lambda np, p: isinstance(p, np.ndarray),
    "flags": lambda np, p: [p.flags.c_contiguous, p.flags.owndata, p.flags.writeable, p.flags.aligned],
    "random": lambda np, p: [np.random.default_rng(3).random(out=p, dtype="f4") is p, p.tolist()],
    "normal": lambda np, p: [np.random.default_rng(3).standard_normal(dtype="f4", out=p) is p, p.tolist()],
    "shuffle": lambda np, p: [np.random.default_rng(3).shuffle(p), p.tolist()],
    "shuffle, the old way": lambda np, p: [np.random.RandomState(3).shuffle(p), p.tolist()],
    "permutation": lambda np, p: facts(np.random.default_rng(3).permutation(p)),
    "choice": lambda np, p: facts(np.random.default_rng(3).choice(p, 4)),
    "save": lambda np, p: saved(np, p),
    "copyto": lambda np, p: [np.copyto(p, 3), p.tolist()],
    "put": lambda np, p: [p.put([1], [9]), p.tolist()],
    "partition": lambda np, p: [p.partition(3), sorted(p.tolist())],
    "fill": lambda np, p: [p.fill(2), p.tolist()],
    "swap": lambda np, p: [p.__setitem__(slice(2), p[1::-1].copy()), p.tolist()],
    "not resizable": lambda np, p: failure(lambda: p.resize(3)),
    "not hashable": lambda np, p: failure(lambda: hash(p))[:28],
    "wrong index": lambda np, p: failure(lambda: p[99]),
    "wrong shape": lambda np, p: failure(lambda: p + np.zeros(3)),
}


def saved(np: Any, array: Any) -> Any:
    import io

    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue().hex()


def failure(call: Callable[[], Any]) -> str:
    try:
        call()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "none"


@probe
def pinned_arrays(b: Before) -> Any:
    found = {}
    for name, use in PINNED.items():
        pinned = b.cupyx.zeros_pinned(64, "f4")
        pinned[:] = b.np.arange(64)[::-1]
        found[name] = use(b.np, pinned)
    return found


# -- Python -----------------------------------------------------------------------------------------------------------


@probe
def threads_and_queues(b: Before) -> Any:
    made: Any = queue.SimpleQueue()
    for each in (b.queue, made, b.fifo):
        each.put(3)
    return [
        isinstance(b.queue, queue.SimpleQueue),
        isinstance(made, queue.SimpleQueue),
        isinstance(b.fifo, queue.SimpleQueue),
        [each.get() for each in (b.queue, made, b.fifo)],
        sorted(vars(b.fifo)),
        kind(threading.Lock()),
        kind(threading.RLock()),
        sorted(vars(threading.Thread())),
    ]


@probe
def the_interpreter(b: Before) -> Any:
    monitoring = getattr(sys, "monitoring", None)
    return [
        sys.gettrace() is b.trace,
        sys.getprofile(),
        [monitoring.get_tool(each) for each in range(6)] if monitoring else [],
        len(b.modules),
    ]


def main() -> None:
    mode = sys.argv[1]
    if "--simulate" in sys.argv:
        from streamsafe.simulate import cuda as simulate

        simulate.install()
    import cupy as cp

    before = Before(cp)
    found = {}
    manager: Any = contextlib.nullcontext()
    if mode != "plain":
        import streamsafe

        if mode == "inside":
            manager = streamsafe.sanitize("collect")
        else:
            other = Before(cp)
            with streamsafe.sanitize("collect"):
                for each in PROBES.values():
                    each(other)
    with manager as session:
        for name, each in PROBES.items():
            found[name] = each(before)
        cp.cuda.Device().synchronize()
    if session is not None:
        found["hazards"] = [hazard.message for hazard in session.hazards]
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()
