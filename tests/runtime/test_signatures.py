"""What a kernel does with its parameters, by its source."""

from __future__ import annotations

import pytest

from streamsafe.kernels.signatures import base_name, signature

CASES = {
    "const is a read": ("const float* a, float* b", "b[i] = a[i];", "reads writes"),
    "restrict": ("const float* __restrict__ a, float* __restrict__ b", "b[i] = a[i];", "reads writes"),
    "values": ("int n, float v, float* b", "if (i < n) b[i] = v;", "value value writes"),
    "non-const, only read": ("float* a, float* b", "b[i] = a[i + 1] * 2;", "reads writes"),
    "in place": ("float* a", "a[i] += 1;", "updates"),
    "in place, written out": ("float* a", "a[i] = a[i] * 2;", "updates"),
    "increment": ("int* a, int* b", "a[i]++; ++b[i];", "updates updates"),
    "dereferenced": ("float* a, float* b, float* c", "*a = 1; b[0] = *c;", "writes writes reads"),
    "atomics": ("float* a, int* b", "atomicAdd(&a[i], 1.f); atomicMax(b, 3);", "updates updates"),
    "alias written": ("float* a", "float* p = a + 4; p[i] = 1;", "writes"),
    "alias read": ("float* a, float* b", "float* p = a; b[i] = p[i];", "reads writes"),
    "cast": ("float* a, const float* b", "reinterpret_cast<float4*>(a)[i] = x;", "writes reads"),
    "handed on": ("float* a", "helper(a);", "unknown"),
    "null check": ("float* a, float* b", "if (a != nullptr && b) b[i] = 1;", "reads writes"),
    "comparison is no assignment": ("float* a, float* b", "if (a[i] == 1) b[i] = 2;", "reads writes"),
    "a member of another": ("float* a, float* b", "b[i] = s.a[i] + a[i];", "reads writes"),
    "commented out": ("float* a, float* b", "// a[i] = 1;\n /* a[0] = 2; */ b[i] = a[i];", "reads writes"),
    "array syntax": ("float a[], float b[16]", "b[i] = a[i];", "reads writes"),
    "jit": ("CArray<float, 1, true, true> x, CArray<float, 1, true, true> y", "y[i] = x[i];", "reads writes"),
    "stepped": ("float* a, float* b", "float* p = a; for (;;) *p++ = 1; *b++ += 1;", "writes updates"),
    "in place through an address": ("float* a, float* b", "*(a + i) += 1; *(b + i) = 1;", "updates writes"),
    "an address in a number": (
        "long long p, int n",
        "((float*)p)[i] = 1; float q = (float)n;",
        "unknown value",
    ),
    "an address, cast anew": ("size_t p, size_t n", "reinterpret_cast<float *>(p)[n] = 1;", "unknown value"),
    "a wide number": ("long long p, float* a", "a[i] = (a[0]) * p; a[p * (i)] = 2;", "value updates"),
    "nested template": ("const thrust::complex<float>* a, T<int, 3>* b", "b[i] = a[i];", "reads writes"),
}


@pytest.mark.parametrize(("parameters", "body", "expected"), CASES.values(), ids=CASES)
def test_directions(parameters: str, body: str, expected: str) -> None:
    source = f'extern "C" __global__ void k({parameters}) {{ int i = threadIdx.x; {body} }}'
    found = signature(source, "k")
    assert found is not None
    assert [parameter.direction for parameter in found.parameters] == expected.split()


def test_macros_are_put_in() -> None:
    source = r"""
    #define AT(row, x) a[(row) * 32 + \
        (x)]
    #define REAL float
    #define PUT(where, v) where = (v)
    #define LOOP(i) for (int i = 0; i < 4; ++i)
    #define LOOP_OVER(...) LOOP(__VA_ARGS__)
    #ifdef LARGE
    #define N 64
    #else
    #define N 32
    #endif
    __global__ void k(REAL* a, REAL* b, int n) { LOOP(i) PUT(AT(i, n), N) ; LOOP(j) AT(j, 0) += b[j]; }
    __global__ void hidden(float* a, float* b) { LOOP_OVER(i) b[i] = 1; }
    """
    k, hidden = signature(source, "k"), signature(source, "hidden")
    assert k is not None and hidden is not None
    assert [(each.direction, each.itemsize) for each in k.parameters] == [
        ("updates", 4),
        ("reads", 4),
        ("value", 0),
    ]
    assert [each.direction for each in hidden.parameters] == ["unknown", "unknown"]
    assert "AT" not in k.body and not hidden.body


def test_launch_bounds_templates_and_the_right_kernel() -> None:
    source = """
    __device__ void helper(float* a) { a[0] = 1; }
    template <typename T> __global__ void __launch_bounds__(128) scale(T* a, const T* b) { a[0] = b[0]; }
    __global__ void other(float* a) { float x = a[0]; }
    """
    for name in ("scale", "scale<float>", "_Z5scaleIfEvPT_PKS0_"):
        found = signature(source, name)
        assert found is not None
        assert [parameter.direction for parameter in found.parameters] == ["writes", "reads"]
    assert signature(source, "missing") is None
    assert signature("", "k") is None
    assert signature("__global__ void k(float* a", "k") is None


@pytest.mark.parametrize(
    ("name", "base"),
    [
        ("k", "k"),
        ("k<int, 3>", "k"),
        ("ns::k<float>", "k"),
        ("_Z1kPf", "k"),
        ("_ZN2ns5scaleIfEEvPT_", "scale"),
        ("_Z", "_Z"),
    ],
)
def test_base_names(name: str, base: str) -> None:
    assert base_name(name) == base


def test_structs_passed_by_value() -> None:
    source = """
    typedef struct { float *a, *b; const int* c; int n; double w[3]; } Args;
    struct Plain { int n; };
    extern "C" __global__ void k(Args p, Plain q, float* y) {
        p.a[1] = p.b[2]; y[0] = p.c[0] + p.n + q.n;
    }
    """
    found = signature(source, "k")
    assert found is not None
    fields = [(each.name, each.direction) for each in found.parameters[0].fields]
    assert fields == [("a", "writes"), ("b", "reads"), ("c", "reads"), ("n", "value"), ("w", "value")]
    assert found.parameters[1].fields == ()


def test_variables_of_the_module() -> None:
    source = """
    __constant__ float weights[3][4];
    __constant__ Params params;
    __device__ unsigned long long counter;
    __device__ float state[16] = {0};
    static __device__ int flag;
    __device__ double unused;
    __device__ float inner(float x) { return x * weights[0][1]; }
    __device__ float outer(float x) { return inner(x); }
    extern "C" __global__ void k(float* y) {
        y[0] = outer(y[1]); atomicAdd(&counter, 1ULL); if (flag == 2) state[3] += 1; q.unused = 1;
    }
    extern "C" __global__ void other(float* y) { y[0] = params.n + state[2]; hand_on(&flag); }
    """
    found, other = signature(source, "k"), signature(source, "other")
    assert found is not None and other is not None
    assert [tuple(each) for each in found.variables] == [
        ("weights", "reads", 48),
        ("counter", "updates", 8),
        ("state", "updates", 64),
        ("flag", "reads", 4),
    ]
    assert [tuple(each) for each in other.variables] == [
        ("params", "reads", 1),
        ("state", "reads", 64),
        ("flag", "unknown", 4),
    ]
