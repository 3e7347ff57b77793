"""Calls of CuPy's public functions: found by name, with the first arguments that fit; and those that need their own.

Each call makes its result anew from the same inputs, so that two runs can be compared bit by bit.
"""

from __future__ import annotations

import importlib
import inspect
import re
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

Call = Callable[[Any, Any], Any]
"""Takes cupy and the inputs."""

MODULES = (
    "cupy",
    "cupy.linalg",
    "cupy.fft",
    "cupy.random",
    "cupyx",
    "cupyx.scipy.fft",
    "cupyx.scipy.linalg",
    "cupyx.scipy.ndimage",
    "cupyx.scipy.stats",
    "cupyx.scipy.signal",
    "cupyx.scipy.special",
)

# Functions that enqueue nothing, that change settings, read files, or whose results are not defined.
_OUT = re.compile(
    r"set_|get_|save|load|fromfile|genfromtxt|show_|print|clear_|memoize|fuse$|vectorize|is_available|enable|disable"
    r"|seed$|allow_synchronize|empty|may_share|shares_memory|using_allocator|array_equal|optimize|jit|profiler"
    r"|sosfilt|sosfilt_zi|errstate|geterr|seterr|DeviceSynchronized|abc$|from_dlpack|fromDlpack|byte_bounds|issubdtype|finfo|iinfo"
)
# These take seconds to compile, and launch as their neighbours do.
_SLOW = {"hyp2f1", "btdtri", "elliprj", "elliprg", "spherical_yn"}


class Inputs:
    """Arrays of usual shapes and types, the same each time."""

    def __init__(self, cp: Any) -> None:
        make = np.random.RandomState(7)
        self.v = cp.asarray(make.rand(64) + 0.1)
        self.w = cp.asarray(make.rand(64) + 0.1)
        self.f = cp.asarray((make.rand(64) + 0.1).astype("f4"))
        self.m = cp.asarray(make.rand(16, 16) + 0.1)
        self.n = cp.asarray(make.rand(16, 16) + 0.1)
        self.h = cp.asarray((make.rand(16, 16) + 0.1).astype("f2"))
        self.spd = self.m @ self.m.T + 16 * cp.eye(16)
        self.c = cp.asarray(make.rand(64) + 1j * make.rand(64))
        self.i = cp.asarray(make.randint(0, 16, 64))
        self.k = cp.asarray(make.randint(0, 16, (16, 16)))
        self.b = cp.asarray(make.rand(64) > 0.5)
        self.t = cp.asarray(make.rand(4, 8, 8))
        self.batch = cp.asarray(make.rand(4, 16, 16) + 4 * np.eye(16))
        self.sections = cp.asarray([[0.2, 0.4, 0.2, 1.0, -0.3, 0.1], [0.5, 0.1, 0.2, 1.0, 0.2, 0.1]])
        self.host = make.rand(64)
        cp.cuda.Device().synchronize()

    def candidates(self) -> Iterator[tuple[Any, ...]]:
        """Arguments to try, in this order."""
        v, w, m, n, i = self.v, self.w, self.m, self.n, self.i
        yield from (
            (v,),
            (self.spd,),
            (v, w),
            (m, n),
            (i,),
            (i, i),
            (self.b,),
            (self.b, self.b),
            (self.c,),
            ([v, w],),
            ([m, n],),
            (v, 1),
            (m, 2),
            (v, i),
            (v, i, i),
            (i, 2),
            (v, (8, 8)),
            (64,),
            (8, 8),
            ((8, 8),),
            ((8, 8), 2.0),
            (1, 9),
            (v, w, v),
            (v, w, w, v),
            (m, (1, 0)),
            (v, 0, 1),
            (m, 0, 1),
            (m, [1.0, 1.0]),
            (m, v[:16]),
            (self.t,),
            (1.0, 2.0, 64),
            (2.0, 64),
            (8, 0.5, 64),
            (3, 0.5),
            (1, v),
            (1, v, v),
            (1, 1, v),
            (1, 2, v, v),
            (self.i, 16),
            ([0.5, 0.5], self.v),
            (5, 1.0),
        )


def _functions(module: Any) -> Iterator[str]:
    for name in sorted(vars(module)):
        found = getattr(module, name)
        if (
            name.startswith("_")
            or _OUT.match(name)
            or name in _SLOW
            or inspect.isclass(found)
            or inspect.ismodule(found)
            or not callable(found)
        ):
            continue
        home = str(getattr(found, "__module__", None) or module.__name__)
        if home.startswith(("cupy", "cupyx")):
            yield name


def names() -> list[str]:
    """``module.function`` for every public function, and the names of the calls in :data:`OWN`."""
    found = []
    for name in MODULES:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                module = importlib.import_module(name)
        except ImportError:
            continue
        found += [f"{name}.{function}" for function in _functions(module)]
    return found + [f"own: {name}" for name in OWN]


def call_of(name: str, cp: Any, inputs: Inputs) -> Callable[[], Any] | None:
    """The call of that name, with the first arguments that it accepts; None when none fit."""
    if name.startswith("own: "):
        own = OWN[name.removeprefix("own: ")]
        own(cp, inputs)
        return lambda: own(cp, inputs)
    module, _, function = name.rpartition(".")
    target = getattr(importlib.import_module(module), function)
    for arguments in inputs.candidates():
        copies = tuple(_copied(each) for each in arguments)
        try:
            target(*copies)
        except (MemoryError, AssertionError):
            raise
        except Exception:
            continue

        def call(arguments: Any = arguments) -> Any:
            return target(*(_copied(each) for each in arguments))

        return call
    return None


def _copied(value: Any) -> Any:
    """Functions may write their arguments: they get copies."""
    if hasattr(value, "__cuda_array_interface__"):
        return value.copy()
    return [_copied(each) for each in value] if isinstance(value, list) else value


def bits(result: Any, cp: Any) -> list[Any]:
    """All values in a result, as type, shape and bytes."""
    if isinstance(result, cp.ndarray):
        host = cp.asnumpy(result)
        return [(str(host.dtype), host.shape, np.ascontiguousarray(host).tobytes())]
    if isinstance(result, (list, tuple)):
        return [value for each in result for value in bits(each, cp)]
    if hasattr(result, "nnz") and hasattr(result, "tocoo"):
        matrix = result.tocoo()
        return bits([matrix.data, matrix.row, matrix.col], cp)
    if isinstance(result, (np.ndarray, np.generic)):
        return [(str(result.dtype), result.shape, result.tobytes())]
    if isinstance(result, (int, float, complex, str, bool)):
        return [repr(result)]
    return []


RAW = r"""
extern "C" __global__ void twice(const float* a, float* b, int n) {
    int i = blockDim.x * blockIdx.x + threadIdx.x;
    if (i < n) b[i] = 2 * a[i];
}
"""


def _raw(cp: Any, x: Inputs) -> Any:
    out = cp.zeros_like(x.f)
    cp.RawKernel(RAW, "twice")((1,), (64,), (x.f, out, np.int32(64)))
    return out


def _raw_module(cp: Any, x: Inputs) -> Any:
    out = cp.zeros_like(x.f)
    cp.RawModule(code=RAW).get_function("twice")((1,), (64,), (x.f, out, np.int32(64)))
    return out


def _jit(cp: Any, x: Inputs) -> Any:
    from cupyx import jit

    @jit.rawkernel()  # type: ignore[untyped-decorator]
    def kernel(a: Any, b: Any, n: Any) -> None:
        i = jit.blockIdx.x * jit.blockDim.x + jit.threadIdx.x
        if i < n:
            b[i] = a[i] + a[i]

    out = cp.zeros_like(x.f)
    kernel[1, 64](x.f, out, np.int32(64))
    return out


def _fused(cp: Any, x: Inputs) -> Any:
    return cp.fuse()(lambda a, b: a * b + a)(x.v, x.w)


def _graph(cp: Any, x: Inputs) -> Any:
    stream = cp.cuda.Stream(non_blocking=True)
    out = cp.zeros_like(x.f)
    cp.add(x.f, 1, out=out)
    stream.wait_event(cp.cuda.get_current_stream().record())
    with stream:
        stream.begin_capture()
        cp.add(x.f, 1, out=out)
        graph = stream.end_capture()
        graph.launch()
    stream.synchronize()
    return out


def _in_place(cp: Any, x: Inputs) -> Any:
    a = x.v.copy()
    a += 1
    a *= x.w
    a[3:9] = 2
    a[::2] = x.w[::2]
    a[x.i] = 5
    a[x.b] = 7
    a.fill(3) if a.size == 0 else None
    a.sort()
    return a


def _copies(cp: Any, x: Inputs) -> Any:
    a = cp.empty_like(x.v)
    a.set(x.host)
    b = cp.asarray(x.host)
    c = cp.empty_like(a)
    cp.copyto(c, a)
    c.data.copy_from_device_async(b.data, 64)
    c.data.memset_async(0, 8)
    return [c, a.get(), cp.asnumpy(b), float(a[3]), a.astype("f4"), a.copy(), x.m.T.copy()]


def _pinned(cp: Any, x: Inputs) -> Any:
    import cupyx

    source, target = cupyx.zeros_pinned(64), cupyx.zeros_pinned(64)
    source[...] = x.host
    stream = cp.cuda.Stream(non_blocking=True)
    a = cp.empty_like(x.v)
    a.set(source, stream=stream)
    a.get(stream=stream, out=target, blocking=False)
    stream.synchronize()
    return np.array(target)


def _on_streams(cp: Any, x: Inputs) -> Any:
    first, second = cp.cuda.Stream(non_blocking=True), cp.cuda.Stream()
    results = []
    for stream in (first, second, cp.cuda.Stream.ptds):
        stream.synchronize()
        cp.cuda.Device().synchronize()
        with stream:
            results += [
                x.m @ x.n,
                cp.fft.fft(x.v),
                x.v.sum(),
                cp.sort(x.v),
                cp.cumsum(x.v),
                cp.linalg.inv(x.spd),
            ]
            results += [cp.random.RandomState(3).rand(32), x.v.get()]
        stream.synchronize()
    return results


def _runtime(cp: Any, x: Inputs) -> Any:
    runtime = cp.cuda.runtime
    a = cp.empty_like(x.v)
    runtime.memcpyAsync(a.data.ptr, x.v.data.ptr, a.nbytes, runtime.memcpyDeviceToDevice, 0)
    runtime.memcpy(a.data.ptr, x.v.data.ptr, 64, runtime.memcpyDeviceToDevice)
    runtime.memsetAsync(a.data.ptr, 0, 16, 0)
    runtime.memset(a.data.ptr + 16, 0, 16)
    return a


def _sparse(cp: Any, x: Inputs) -> Any:
    from cupyx.scipy import sparse

    matrix = sparse.csr_matrix(cp.where(x.m > 0.6, x.m, 0))
    return [
        matrix @ x.v[:16],
        matrix @ x.n,
        (matrix @ matrix).todense(),
        (matrix + matrix).todense(),
        matrix.T.tocsr().todense(),
        matrix.tocsc().todense(),
        matrix.tocoo().todense(),
        matrix.sum(),
        matrix.multiply(2).todense(),
        matrix.diagonal(),
        matrix[2:5].todense(),
    ]


def _sparse_solve(cp: Any, x: Inputs) -> Any:
    from cupyx.scipy import sparse
    from cupyx.scipy.sparse import linalg

    matrix = sparse.csr_matrix(x.spd)
    return [linalg.spsolve(matrix, x.v[:16]), linalg.cg(matrix, x.v[:16])[0]]


def _texture(cp: Any, x: Inputs) -> Any:
    texture = cp.cuda.texture
    kind = texture.ChannelFormatDescriptor(32, 0, 0, 0, cp.cuda.runtime.cudaChannelFormatKindFloat)
    array = texture.CUDAarray(kind, 64)
    array.copy_from(x.f)
    out = cp.empty_like(x.f)
    array.copy_to(out)
    return out


def _generator(name: str, *arguments: Any) -> Call:
    def call(cp: Any, x: Inputs) -> Any:
        return getattr(cp.random.default_rng(5), name)(*arguments, size=256)

    return call


def _random_state(name: str, *arguments: Any) -> Call:
    def call(cp: Any, x: Inputs) -> Any:
        return getattr(cp.random.RandomState(5), name)(*arguments, size=256)

    return call


OWN: dict[str, Call] = {
    "raw kernel": _raw,
    "raw module": _raw_module,
    "jit": _jit,
    "fuse": _fused,
    "graph": _graph,
    "in place": _in_place,
    "copies": _copies,
    "pinned": _pinned,
    "streams": _on_streams,
    "runtime": _runtime,
    "sparse": _sparse,
    "sparse solve": _sparse_solve,
    "texture": _texture,
    "elementwise": lambda cp, x: cp.ElementwiseKernel("T a, T b", "T c", "c = a - b", "audit_minus")(
        x.v, x.w
    ),
    "reduction": lambda cp, x: cp.ReductionKernel("T a", "T b", "a", "a + b", "b = a", "0", "audit_sum")(x.v),
    "dlpack": lambda cp, x: cp.from_dlpack(x.v.copy()) + 1,
    "interface": lambda cp, x: cp.asarray(_Foreign(x.v)) + 1,
    "indexing": lambda cp, x: [x.v[x.i], x.v[x.b], x.v[::-2].copy(), x.m[3].copy(), x.m[x.i % 16, x.i % 16]],
    "add.at": lambda cp, x: _at(cp, x),
    "half matmul": lambda cp, x: x.h @ x.h,
    "whole matmul": lambda cp, x: x.k @ x.k,
    "batched matmul": lambda cp, x: cp.matmul(x.batch, x.batch),
    "complex matmul": lambda cp, x: cp.outer(x.c, x.c)[:8, :8] @ cp.outer(x.c, x.c)[:8, :8],
    "vector products": lambda cp, x: [x.v @ x.w, x.m @ x.v[:16], cp.vdot(x.c, x.c), cp.inner(x.v, x.w)],
    "einsum": lambda cp, x: cp.einsum("ij,jk->ik", x.m, x.n),
    "tensordot": lambda cp, x: cp.tensordot(x.t, x.t, axes=([1, 2], [1, 2])),
    "batched linalg": lambda cp, x: [
        cp.linalg.inv(x.batch),
        cp.linalg.det(x.batch),
        cp.linalg.solve(x.batch, x.batch),
        cp.linalg.svd(x.batch)[1],
        cp.linalg.qr(x.batch)[1],
    ],
    "plans": lambda cp, x: [
        cp.fft.fft2(x.m),
        cp.fft.fftn(x.t),
        cp.fft.irfft(cp.fft.rfft(x.v)),
        cp.fft.fft(x.m, axis=0),
        cp.fft.rfftn(x.t),
    ],
    "sorts": lambda cp, x: [
        cp.sort(x.m, axis=0),
        cp.argsort(x.m),
        cp.lexsort(x.m),
        cp.partition(x.v, 3),
        cp.unique(x.i),
    ],
    "reductions": lambda cp, x: [
        x.m.sum(0),
        x.m.max(1),
        x.t.mean((0, 2)),
        x.m.var(),
        x.m.argmin(0),
        x.b.any(),
    ],
    "scans": lambda cp, x: [cp.cumsum(x.m, axis=0), cp.cumprod(x.v), cp.nonzero(x.b), cp.cumsum(x.i)],
    "histograms": lambda cp, x: [
        cp.histogram(x.v, 8),
        cp.bincount(x.i),
        cp.histogram(x.i, 16),
        cp.digitize(x.v, x.w[:4]),
    ],
    "filters": lambda cp, x: _filters(x),
    "convolutions": lambda cp, x: _convolutions(x),
    **{
        f"Generator.{name}": _generator(name, *arguments)
        for name, arguments in {
            "random": (),
            "standard_normal": (),
            "standard_exponential": (),
            "integers": (0, 9),
            "exponential": (2.0,),
            "poisson": (4.0,),
            "beta": (2.0, 3.0),
            "gamma": (2.0, 1.0),
            "standard_gamma": (2.0,),
            "uniform": (0.0, 1.0),
            "binomial": (9, 0.5),
            "geometric": (0.5,),
            "hypergeometric": (5, 6, 7),
            "chisquare": (3.0,),
            "power": (2.0,),
            "logseries": (0.5,),
            "f": (3.0, 4.0),
        }.items()
    },
    **{
        f"RandomState.{name}": _random_state(name, *arguments)
        for name, arguments in {
            "random_sample": (),
            "normal": (),
            "uniform": (),
            "lognormal": (),
            "standard_normal": (),
            "randint": (0, 9),
            "choice": (9,),
            "exponential": (),
            "beta": (2.0, 3.0),
            "gamma": (2.0,),
            "binomial": (9, 0.5),
            "poisson": (3.0,),
            "laplace": (),
            "gumbel": (),
            "zipf": (2.0,),
            "dirichlet": ([1.0, 2.0],),
            "standard_t": (3.0,),
            "vonmises": (0.0, 1.0),
            "wald": (1.0, 1.0),
            "weibull": (2.0,),
            "rayleigh": (),
            "pareto": (2.0,),
        }.items()
    },
}


class _Foreign:
    """An array that offers nothing but its interface."""

    def __init__(self, array: Any) -> None:
        self.__cuda_array_interface__ = array.__cuda_array_interface__
        self.array = array


def _at(cp: Any, x: Inputs) -> Any:
    a = cp.zeros(16, "i8")
    cp.add.at(a, x.i, 1)
    return a


def _filters(x: Inputs) -> Any:
    from cupyx.scipy import ndimage

    return [
        ndimage.gaussian_filter(x.m, 1.0),
        ndimage.median_filter(x.m, 3),
        ndimage.label(x.m > 0.5)[0],
        ndimage.zoom(x.m, 2),
        ndimage.affine_transform(x.m, x.m[:2, :2]),
        ndimage.distance_transform_edt(x.m > 0.5),
    ]


def _convolutions(x: Inputs) -> Any:
    from cupyx.scipy import signal

    return [
        signal.convolve(x.v, x.w),
        signal.fftconvolve(x.v, x.w),
        signal.convolve2d(x.m, x.n),
        signal.lfilter(x.v[:3], x.w[:3], x.v),
        signal.medfilt(x.v, 3),
        signal.resample(x.v, 32),
        signal.sosfilt(x.sections, x.v),
    ]
