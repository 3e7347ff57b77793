"""Which elements a kernel's subscripts reach: never fewer than its threads do, and where they are plain no more."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from contextlib import suppress
from random import Random
from typing import Any, NamedTuple

import pytest

from streamsafe.kernels.bodies import read
from streamsafe.kernels.elements import Spans, spans
from streamsafe.kernels.signatures import signature

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
    "a macro that is an index": (f"{TID} AT(2, t) = 1;", lambda t, all, n, off: [32 + t]),
    "a choice that the arguments decide": (
        f"{TID} int from = off >= 0 ? off : n; a[from + t] = 1;",
        lambda t, all, n, off: [off + t],
    ),
    "a branch that the arguments decide": (
        f"{TID} if (off < 0 && n) a[t] = 1; else a[off + t] = 1;",
        lambda t, all, n, off: [off + t],
    ),
    "a difference in the guard": (
        f"{TID} if (t - 1 < n && 4 - t <= 2) a[t] = 1;",
        lambda t, all, n, off: [t] if t - 1 < n and t >= 2 else [],
    ),
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
    "one of two ranges": (
        f"{TID} if (t < n / 2 || t == 3) a[t] = 1;",
        lambda t, all, n, off: [t] if t < n // 2 or t == 3 else [],
    ),
    "every fourth from the end, below a bound": (
        f"{TID} int i = 4 * t; if (i < n) a[100 - i] = 1;",
        lambda t, all, n, off: [100 - 4 * t] if 4 * t < n else [],
    ),
    "a pointer that has walked": (
        f"{TID} a[0] = 1; float* p = a; for (int i = 0; i < 3; ++i) p += off; *p = 1;",
        lambda t, all, n, off: [0, 3 * off],
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
    macros = "#define WIDTH 16\n#define AT(row, x) a[(row) * WIDTH + (x)]\n"
    source = f"{macros}__global__ void k(float* a, int n, int off) {{ {body} }}"
    known = signature(source, "k")
    assert known is not None
    statements = read(known.body)
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


_NAMES = ("i", "j", "k")


def _expression(random: Random, depth: int = 2) -> str:
    """Arithmetic on small numbers, of what a kernel may name."""
    if depth == 0 or random.random() < 0.3:
        names = ["threadIdx.x", "blockIdx.x", "blockDim.x", "n", "off", *_NAMES]
        return random.choice([*names, str(random.randrange(6))])
    one, two = _expression(random, depth - 1), _expression(random, depth - 1)
    kind = random.randrange(10)
    if kind == 0:
        return f"({_condition(random, 0)} ? {one} : {two})"
    if kind == 1:
        return f"{random.choice(['min', 'max'])}({one}, {two})"
    if kind == 2:
        return f"({one} {random.choice('/%')} {random.randrange(1, 6)})"
    return f"({one} {random.choice('++--*')} {two})"


def _condition(random: Random, depth: int = 1) -> str:
    kind = random.randrange(6)
    if depth and kind < 2:
        joined = f" {random.choice(['&&', '||'])} ".join(_condition(random, 0) for _ in range(2))
        return f"({joined})" if kind else f"!({joined})"
    operator = random.choice(["<", "<=", ">", ">=", "==", "!="])
    return f"{_expression(random, 1)} {operator} {_expression(random, 1)}"


def _with_pointer(random: Random) -> str:
    p, q = random.choice([("p", "q"), ("q", "p")])
    index = _expression(random, 1)
    return random.choice(
        [
            f"{p}[{index}] = 1;",
            f"*{p} = 1;",
            f"*{p}++ = 1;",
            f"{p} += {index};",
            f"{p} = {q};",
            f"{p} = b + {index};",
        ]
    )


def _statement(random: Random, depth: int) -> str:
    if random.randrange(6) == 0:
        return _with_pointer(random)
    kind = random.randrange(8 if depth else 4)
    if kind < 2:
        return f"a[{_expression(random)}] = 1;"
    if kind < 4:
        return f"{random.choice(_NAMES)} {random.choice(['=', '=', '+=', '-='])} {_expression(random)};"
    inside = " ".join(_statement(random, depth - 1) for _ in range(2))
    if kind == 4:
        leave = random.choice(["", "", "return;"])
        return f"if ({_condition(random)}) {{ {inside} {leave} }}"
    if kind == 5:
        return f"if ({_condition(random)}) {{ {inside} }} else {{ {_statement(random, depth - 1)} }}"
    if kind == 6 and random.randrange(3) == 0:
        return f"{{ float* p = q + {_expression(random, 1)}; {inside} }}"
    if kind == 6:
        return f"{{ int {random.choice(_NAMES)} = {_expression(random)}; {inside} }}"
    name, step = random.choice("xy"), random.choice(["++", " += blockDim.x", " += 3"])
    leave = random.choice(["", f"if ({_condition(random)}) break;", f"if ({_condition(random)}) continue;"])
    first = f"for (int {name} = {_expression(random, 1)}; {name} < {_expression(random, 1)}; {name}{step})"
    return f"{first} {{ {leave} {inside} a[{name} + {_expression(random, 1)}] = 1; }}"


class _Place(NamedTuple):
    """An address."""

    array: str
    element: int

    def __add__(self, by: int) -> _Place:  # type: ignore[override]
        return _Place(self.array, self.element + by)


class _Left(Exception):
    pass


class _Thread:
    """What one thread does with a body: the elements that it touches."""

    def __init__(self, names: dict[str, Any]) -> None:
        self.scopes = [names]
        self.touched: set[_Place] = set()
        self.steps = 0

    def scope(self, name: str) -> dict[str, Any]:
        return next(each for each in reversed(self.scopes) if name in each)

    def value(self, node: Any) -> Any:
        self.steps += 1
        if self.steps > 20_000:
            raise TimeoutError
        match node:
            case ("number", number):
                return int(number)
            case ("name", name):
                return self.scope(name)[name]
            case ("index", base, index):
                self.touched.add(self.value(base) + self.value(index))
                return 0
            case ("unary", "*", inner):
                self.touched.add(self.value(inner))
                return 0
            case ("assign", operator, ("name", name), expression):
                value = self.value(
                    expression if operator == "=" else (operator[:-1], ("name", name), expression)
                )
                self.scope(name)[name] = value
                return value
            case ("assign", _, target, expression):
                self.value(expression)
                return self.value(target)
            case ("choose", condition, one, other):
                return self.value(one if self.value(condition) else other)
            case ("after", change):
                before = self.value(change[2])
                self.value(change)
                return before
            case ("unary", sign, inner):
                return {"!": int(not (value := self.value(inner))), "-": -value, "+": value}[sign]
            case ("&&", one, two):
                return int(bool(self.value(one) and self.value(two)))
            case ("||", one, two):
                return int(bool(self.value(one) or self.value(two)))
            case ("call", name, [one, two]):
                return {"min": min, "max": max}[name](self.value(one), self.value(two))
            case (sign, one, two):
                result = _OPERATORS[sign](self.value(one), self.value(two))
                if isinstance(result, int) and abs(result) > 1 << 40:
                    raise TimeoutError  # no integer of a kernel's
                return result
        raise NotImplementedError(node)

    def run(self, node: Any) -> None:
        match node:
            case ("block", parts):
                self.scopes.append({})
                for each in parts:
                    self.run(each)
                self.scopes.pop()
            case ("several", parts):
                for each in parts:
                    self.run(each)
            case ("declare", name, _, value):
                self.scopes[-1][name] = 0 if value is None else self.value(value)
            case ("expression", expression):
                self.value(expression)
            case ("if", condition, then, other):
                self.run(then if self.value(condition) else other)
            case ("for", first, condition, last, body):
                self.scopes.append({})
                self.run(first)
                depth = len(self.scopes)
                while self.value(condition):
                    try:
                        self.run(body)
                    except _Left as left:
                        del self.scopes[depth:]
                        if left.args[0] == "return":
                            raise
                        if left.args[0] == "break":
                            break
                    for each in last:
                        self.value(each)
                self.scopes.pop()
            case ("leave", how, _):
                raise _Left(how)
            case _:
                raise NotImplementedError(node)


_OPERATORS: dict[str, Callable[[int, int], int]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": lambda a, b: abs(a) // b * (1 if a >= 0 else -1),
    "%": lambda a, b: abs(a) % b * (1 if a >= 0 else -1),
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
}


@pytest.mark.parametrize("seed", range(400))
def test_no_fewer_than_the_threads_of_any_body_touch(seed: int) -> None:
    random = Random(seed)
    start = (
        "int i = threadIdx.x; int j = off + 2 * threadIdx.x; int k = 4 * i; float* p = a; float* q = b + 1;"
    )
    body = f"{start} {' '.join(_statement(random, 2) for _ in range(4))}"
    statements = read(body)
    assert statements is not None
    for grid, block, n, off in ((2, 3, 7, 5), (1, 4, 2, 0)):
        found = spans(statements, {"n": n, "off": off}, ("a", "b"), (grid,), (block,))
        for thread in range(grid * block):
            names = {"threadIdx.x": thread % block, "blockIdx.x": thread // block, "blockDim.x": block}
            one = _Thread({**names, "n": n, "off": off, "a": _Place("a", 0), "b": _Place("b", 0)})
            with suppress(_Left, TimeoutError):
                one.run(statements)
            missed = {place for place in one.touched if not _told(found[place.array], place.element)}
            assert not missed, (body, found)


def _told(found: Spans, index: int) -> bool:
    return found is None or any(
        low <= index <= high and (index - low) % (step or 1) == 0 for low, high, step in found
    )


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
