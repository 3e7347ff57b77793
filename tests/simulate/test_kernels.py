"""Reading kernel signatures: what is memory, what is only read, how wide its elements are."""

from __future__ import annotations

import pytest

from streamsafe.simulate.cuda.kernels import Source, function

# source -> (kernel asked for, its memory parameters as (index, dimensions or None, dtype or None, read only))
SOURCES: dict[str, tuple[str, str, list[tuple[int, int | None, str | None, bool]] | None]] = {
    "ufunc": (
        'extern "C" __global__ void add(const CArray<float, 1, 1, 1> _raw_in0, const float in1,'
        " CArray<double, 2, 0, 1> _raw_out0, CIndexer<1, 1> _ind) { }",
        "add",
        [(0, 1, "f4", True), (2, 2, "f8", False)],
    ),
    "complex": (
        "__global__ void f(CArray<thrust::complex<double>, 0, 1, 1> y) {}",
        "f",
        [(0, 0, "c16", False)],
    ),
    "pointers": (
        "__global__ void f(const float* __restrict__ x, float * y, int n, float const *z, void *w) {}",
        "f",
        [(0, None, None, True), (1, None, None, False), (3, None, None, True), (4, None, None, False)],
    ),
    "launch bounds": (
        "__global__ __launch_bounds__(256, 2) void f(int *y) {}",
        "f",
        [(0, None, None, False)],
    ),
    "bounds after": ("__global__ void __launch_bounds__(256) f(int *y) {}", "f", [(0, None, None, False)]),
    "comments": (
        "__global__ void /* f( */ f(int *y, // the output, int *fake\n const int *x) {}",
        "f",
        [(0, None, None, False), (1, None, None, True)],
    ),
    "second of two": (
        "__global__ void a(int *x) {}\n__global__ void b(const int *x) {}",
        "b",
        [(0, None, None, True)],
    ),
    "template": (
        "template<typename T, int N>\n__global__ void t(T *y) {}",
        "t<float, 3>",
        [(0, None, None, False)],
    ),
    "namespace": ("namespace s { __global__ void k(const int *y) {} }", "s::k", [(0, None, None, True)]),
    "function pointer type": (
        "__global__ void f(Pair<int, int> p, int *y) {}",
        "f",
        [(1, None, None, False)],
    ),
    "nothing": ("__global__ void f() {}", "f", []),
    "void": ("__global__ void f(void) {}", "f", []),
    "absent": ("__global__ void g(int *y) {}", "f", None),
    "device function": ("__device__ void f(int *y) {}", "f", None),
}


@pytest.mark.parametrize("name", SOURCES)
def test_signatures(name: str) -> None:
    source, kernel, expected = SOURCES[name]
    found = function(Source(source), kernel).parameters
    told = found and [(p.index, p.ndim, p.dtype.str[1:] if p.dtype else None, p.reads) for p in found]
    assert (None if found is None else list(told or [])) == expected


def test_no_source_says_nothing() -> None:
    assert function(None, "f").parameters is None
