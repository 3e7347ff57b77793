"""Which elements a kernel's subscripts reach: never fewer than its threads do, and where they are plain no more."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest

from streamsafe.cuda import signature
from streamsafe.indexing import spans
from streamsafe.kernel_source import read

TID = "int t = blockIdx.x * blockDim.x + threadIdx.x;"

# body, what one thread touches of ``a`` (t, the number of threads, n, off), and whether the spans are exactly that
EXACT: dict[str, tuple[str, Callable[[int, int, int, int], Iterable[int]]]] = {
    "offset": (f"{TID} a[off + t] = 1;", lambda t, all, n, off: [off + t]),
    "offset in the index": (
        "int i = off + threadIdx.x + blockIdx.x * blockDim.x; a[i] = a[i] + 1.0f;",
        lambda t, all, n, off: [off + t],
    ),
    "guard": (f"{TID} if (t < n) a[off + t] = 1;", lambda t, all, n, off: [off + t] if t < n else []),
    "guard of what the index is made of": (
        f"{TID} const int i = off + t; if (t < n) {{ a[i] *= 2; }}",
        lambda t, all, n, off: [off + t] if t < n else [],
    ),
    "guard that returns": (
        f"{TID} if (t >= n) return; a[t + off] = 1;",
        lambda t, all, n, off: [off + t] if t < n else [],
    ),
    "guard with two sides": (
        f"{TID} if (t > 0 && t < n - 1) a[t] = 0.5f * x;",
        lambda t, all, n, off: [t] if 0 < t < n - 1 else [],
    ),
    "grid-stride loop": (
        "for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x) a[off + i] = 0;",
        lambda t, all, n, off: range(off + t, off + n, all),
    ),
    "while loop": (
        f"{TID} int i = t + off; while (i < off + n) {{ a[i] = 0; i += blockDim.x * gridDim.x; }}",
        lambda t, all, n, off: range(off + t, off + n, all),
    ),
    "the loop of cupyx.jit": (
        "int i; unsigned int t = threadIdx.x + blockIdx.x * blockDim.x; for (int it = t, stop = n, step = blockDim.x * "
        "gridDim.x; step >= 0 ? it < stop : it > stop; it += step) { i = it; a[(off + i)] = 2.0f; }",
        lambda t, all, n, off: range(off + t, off + n, all),
    ),
    "stride": (f"{TID} a[2 * t + 1] = 1;", lambda t, all, n, off: [2 * t + 1]),
    "shift": (f"{TID} a[(t << 2) + 3] = 1;", lambda t, all, n, off: [4 * t + 3]),
    "alias": (f"{TID} float* p = a + off; p[t] = 1;", lambda t, all, n, off: [off + t]),
    "the parameter itself moved": (f"{TID} a += off; a[t] = 1;", lambda t, all, n, off: [off + t]),
    "dereferenced": (f"{TID} *(a + off + t) = 1;", lambda t, all, n, off: [off + t]),
    "atomic": ("atomicAdd(&a[off], 1.f);", lambda t, all, n, off: [off]),
    "pragma": (
        f"{TID} #pragma unroll 4\n for (int k = 0; k < 4; ++k) a[k * gridDim.x * blockDim.x + t] = k;",
        lambda t, all, n, off: [k * all + t for k in range(4)],
    ),
    "size_t and casts": (
        f"{TID} a[(size_t)off + static_cast<size_t>(t)] = 1;",
        lambda t, all, n, off: [off + t],
    ),
    "a macro that is a number": (f"{TID} a[WIDTH * t] = 1;", lambda t, all, n, off: [16 * t]),
    "two places": (f"{TID} a[t] = a[t + 4096];", lambda t, all, n, off: [t, t + 4096]),
}
WIDE: dict[str, tuple[str, Callable[[int, int, int, int], Iterable[int]]]] = {
    "descending": (
        f"{TID} for (int i = n - 1; i >= 0; --i) a[i] = t;",
        lambda t, all, n, off: range(n),
    ),
    "rows and columns": (
        f"{TID} int row = t / 16, column = t % 16; a[row * 16 + column] = 1;",
        lambda t, all, n, off: [t],
    ),
    "either": (f"{TID} int i = flag ? t : t + off; a[i] = 1;", lambda t, all, n, off: [t, t + off]),
    "changed on one branch": (
        f"{TID} int i = t; if (flag) i += off; a[i] = 1;",
        lambda t, all, n, off: [t, t + off],
    ),
    "clamped": (f"{TID} a[min(t, n - 1)] = 1;", lambda t, all, n, off: [min(t, n - 1)]),
    "an inner name hides an outer one": (
        f"{TID} int i = t; if (flag) {{ int i = 3; a[i] = 0; }} a[i + off] = 1;",
        lambda t, all, n, off: [3, t + off],
    ),
    "increment after use": (f"{TID} int i = t; a[i++] = 1; a[i++] = 2;", lambda t, all, n, off: [t, t + 1]),
    "pointer that walks": (
        f"{TID} for (int k = 0; k < 3; ++k) {{ *a = 1; a += off; }}",
        lambda t, all, n, off: [k * off for k in range(3)],
    ),
    "narrow integers wrap": (
        f"{TID} unsigned char i = t + 250; a[i] = 1;",
        lambda t, all, n, off: [(t + 250) % 256],
    ),
}
WHOLE = {
    "handed on": "helper(a, 3);",
    "cast": "reinterpret_cast<float4*>(a)[threadIdx.x] = v;",
    "index from memory": "a[index[threadIdx.x]] = 1;",
    "a macro": "STORE(a, threadIdx.x);",
    "a lambda": "auto f = [&](int i) { a[i] = 1; }; f(threadIdx.x);",
    "do": "int i = 0; do { a[i] = 1; i *= 2; } while (i < n);",
    "computed with floats": "int i = (int)(0.5f * threadIdx.x); a[i] = 1;",
    "stored elsewhere": "table[0] = a;",
}


def touched(body: str, grid: int, block: int, n: int, off: int) -> set[int] | None:
    source = f"#define WIDTH 16\n__global__ void k(float* a, int n, int off) {{ {body} }}"
    known = signature(source, "k")
    assert known is not None
    statements = read(source, known.body)
    if statements is None:
        return None
    found = spans(statements, {"n": n, "off": off}, ("a",), (grid,), (block,))["a"]
    if found is None:
        return None
    return {value for low, high, step in found for value in range(low, high + 1, step or 1)}


@pytest.mark.parametrize("case", EXACT.values(), ids=EXACT)
@pytest.mark.parametrize(("grid", "block", "n", "off"), [(2, 32, 50, 100), (1, 64, 64, 0), (3, 1, 2, 7)])
def test_exactly_these_elements(case: Any, grid: int, block: int, n: int, off: int) -> None:
    body, by_thread = case
    all = grid * block
    assert touched(body, grid, block, n, off) == {i for t in range(all) for i in by_thread(t, all, n, off)}


@pytest.mark.parametrize("case", WIDE.values(), ids=WIDE)
@pytest.mark.parametrize(("grid", "block", "n", "off"), [(2, 32, 50, 100), (1, 64, 64, 0), (3, 1, 2, 7)])
def test_no_fewer_than_these_elements(case: Any, grid: int, block: int, n: int, off: int) -> None:
    body, by_thread = case
    all = grid * block
    found = touched(body, grid, block, n, off)
    assert found is None or found >= {i for t in range(all) for i in by_thread(t, all, n, off)}


@pytest.mark.parametrize("body", WHOLE.values(), ids=WHOLE)
def test_what_is_not_understood_is_the_whole_array(body: str) -> None:
    assert touched(body, 2, 32, 50, 100) is None


@pytest.mark.parametrize(
    ("kind", "itemsize"),
    [
        ("float* a", 4),
        ("const double* __restrict__ a", 8),
        ("unsigned char a[]", 1),
        ("float4* a", 16),
        ("complex<float>* a", 8),
        ("CArray<int, 1, 1, 1> a", 4),
        ("unsigned long long* a", 8),
        ("uint16_t* a", 2),
        ("T* a", 0),
        ("float** a", 0),
        ("float a[][16]", 0),
        ("int a", 0),
    ],
)
def test_bytes_of_an_element(kind: str, itemsize: int) -> None:
    found = signature(f"__global__ void k({kind}) {{ }}", "k")
    assert found is not None
    assert found.parameters[0].itemsize == itemsize
