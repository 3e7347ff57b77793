"""What launches of kernels read and write: by CUDA C++ source, by the parameters of a generated one, by a body."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from streamsafe.kernels.bodies import read
from streamsafe.kernels.elements import Span, spans
from streamsafe.kernels.signatures import Parameter, signature

from ..source import Definition, Function
from ..values import NONE, Const, Seq, Sym, Tensor, V
from .calls import FUNCTIONS, Call, models
from .effects import pointed
from .modules import Modules
from .path import Notes

Directions = Mapping[str, frozenset[str]]
"""By parameter: whether it ``reads`` or ``writes``."""
_READS, _WRITES = frozenset(("reads",)), frozenset(("writes",))
_BOTH = _READS | _WRITES
_OF_C = {"reads": _READS, "writes": _WRITES, "updates": _BOTH, "unknown": _READS}
_UNSURE: Notes = frozenset({"kernel"})
_LOADS = frozenset("load descriptor_load".split())
_STORES = frozenset("store descriptor_store".split())


@dataclass(slots=True)
class Kernel:
    """A kernel as an object of CuPy's.

    Attributes:
        parameters, body: of a kernel in CUDA C++.
        reads, writes: how many of the first arguments of a generated kernel are read, and how many of the next written.
        source: of a module of kernels.
    """

    parameters: Sequence[Parameter] = ()
    body: str = ""
    reads: int = -1
    writes: int = 0
    source: str = ""


def text_of(v: V | None) -> str:
    return v.value if isinstance(v, Const) and isinstance(v.value, str) else ""


def made(lib: Modules, kernel: Kernel) -> V:
    s = lib.m.sym(lib.m.vn(("kernel", len(lib.m.vns))), "kernel", "kernel")
    lib.kernels[s.vn] = kernel
    return s


@models(FUNCTIONS, "cupy.RawKernel")
def raw_kernel(lib: Modules, c: Call) -> V:
    return made(lib, _of_source(text_of(c.given("code", 0)), text_of(c.given("name", 1))))


def _of_source(source: str, name: str) -> Kernel:
    found = signature(source, name) if source and name else None
    return Kernel(found.parameters, found.body) if found is not None else Kernel()


@models(FUNCTIONS, "cupy.RawModule")
def raw_module(lib: Modules, c: Call) -> V:
    return made(lib, Kernel(source=text_of(c.given("code", 0))))


@models(FUNCTIONS, "cupy.ElementwiseKernel cupy.ReductionKernel")
def generated_kernel(lib: Modules, c: Call) -> V:
    read_, written = (text_of(c.given(name, i)) for i, name in enumerate(("in_params", "out_params")))
    if not written:
        return made(lib, Kernel())
    return made(lib, Kernel(reads=len(_listed(read_)), writes=len(_listed(written))))


def _listed(parameters: str) -> list[str]:
    return [part for part in parameters.split(",") if part.strip()]


def kernel_method(lib: Modules, r: Sym, c: Call) -> V | None:
    """What a module of kernels gives."""
    known = lib.kernels.get(r.vn)
    if known is None or c.name != "get_function":
        return None
    return made(lib, _of_source(known.source, text_of(c.first)))


# ---------------------------------------------------------------------- launches of CuPy's
def launched(lib: Modules, callee: Sym, c: Call) -> V:
    """A kernel of CuPy's is called."""
    kernel = lib.kernels.get(callee.vn, Kernel())
    lib.m.current["cupy"].append(lib.stream(c.kwargs.get("stream"), "cupy") or lib.cur("cupy"))
    try:
        if kernel.reads >= 0:
            return _generated(lib, kernel, c)
        arguments = c.args[2].items if len(c.args) > 2 and isinstance(c.args[2], Seq) else []
        if kernel.parameters and len(arguments) == len(kernel.parameters):
            _raw(lib, kernel, arguments, c)
            return NONE
        values = [v for a in c.args for v in (a.items if isinstance(a, Seq) else [a])]
        given = [t for v in values for t in lib.tensors_in(v)]
        lib.launch(given, [], "kernel()", c.node, "cupy", notes=_UNSURE)
        return NONE
    finally:
        lib.m.current["cupy"].pop()


def _generated(lib: Modules, kernel: Kernel, c: Call) -> V:
    """An elementwise kernel or a reduction: it gives what it writes, unless it is given that."""
    end = kernel.reads + kernel.writes
    out = c.kwargs.get("out")
    written = [*c.args[kernel.reads : end], *([out] if out is not None else [])]
    reads = [t for v in c.args[: kernel.reads] for t in lib.tensors_in(v)]
    writes = [t for v in written for t in lib.tensors_in(v)]
    if writes:
        lib.launch([*reads, *writes], writes, "kernel()", c.node, "cupy")
        return written[0]
    return lib.compute(list(c.args), c.node, "kernel()", "cupy")


def _raw(lib: Modules, kernel: Kernel, arguments: Sequence[V], c: Call) -> None:
    touched = _elements(kernel, arguments, c)
    known = all(map(_told, kernel.parameters, arguments))
    reads: list[Tensor] = []
    writes: list[Tensor] = []
    sure = True
    for parameter, argument in zip(kernel.parameters, arguments, strict=True):
        direction = _OF_C.get(parameter.direction, frozenset())
        for t in pointed(lib, argument) if direction else ():
            found = touched.get(parameter.name)
            each = [t]
            if found and t.part is None:
                each = [t.of((("f", span.low, span.high + 1, span.step),)) for span in found]
            else:
                sure = False
                # which part it is depends on numbers that are not known
                each = [t] if known else [t.of((*(t.part or ()), ("u", lib.tick())))]
            reads += each if "reads" in direction else []
            writes += each if "writes" in direction else []
    lib.launch(reads, writes, "kernel()", c.node, "cupy", notes=frozenset() if sure else _UNSURE)


def _told(parameter: Parameter, v: V) -> bool:
    """Whether an argument says where a kernel begins, or has nothing to do with that: a known number, a float."""
    return (
        parameter.direction != "value" or isinstance(v, Const) or getattr(v, "text", "").startswith("float")
    )


def _elements(kernel: Kernel, arguments: Sequence[V], c: Call) -> Mapping[str, tuple[Span, ...] | None]:
    """The elements that a launch with known numbers touches, by parameter."""
    numbers = {
        p.name: v.value
        for p, v in zip(kernel.parameters, arguments, strict=True)
        if p.direction == "value" and isinstance(v, Const) and type(v.value) is int
    }
    grid, block = (_numbers(v) for v in c.args[:2])
    body = read(kernel.body) if kernel.body and grid and block else None
    if body is None:
        return {}
    return spans(body, numbers, [p.name for p in kernel.parameters if p.itemsize], grid, block)


def _numbers(v: V) -> tuple[int, ...]:
    """A grid or a block; empty where it is not known."""
    values = [x.value for x in v.items if isinstance(x, Const)] if isinstance(v, Seq) else []
    known = isinstance(v, Seq) and len(values) == len(v.items) and all(type(x) is int for x in values)
    return tuple(values) if known else ()


# ---------------------------------------------------------------------- kernels in Python
def compiled(lib: Modules, f: Function, c: Call) -> V:
    """A kernel that is written in Python: Triton's, Numba's or CuPy's."""
    a = f.node.args
    names = [p.arg for p in (*a.posonlyargs, *a.args, *a.kwonlyargs)]
    given = {**dict(zip(names, c.args, strict=False)), **c.kwargs}
    stream = lib.stream(given.pop("stream"), lib.lib_of(c.args)) if "stream" in given else None
    known = tuple(
        sorted((k, v.value) for k, v in given.items() if isinstance(v, Const) and type(v.value) is bool)
    )
    directions = directions_of(f.node, known)
    reads: list[Tensor] = []
    writes: list[Tensor] = []
    for name, v in given.items():
        direction = directions.get(name, frozenset())
        tensors = pointed(lib, v)
        reads += tensors if "reads" in direction else []
        writes += tensors if "writes" in direction else []
    if _waits_in_memory(f.node):
        lib.order.all_known(stream or lib.cur(lib.lib_of(c.args)))
    lib.launch(reads, writes, f"{f.name}[...]()", c.node, lib.lib_of(c.args), notes=_UNSURE, t=stream)
    return NONE


@lru_cache(maxsize=1024)
def _waits_in_memory(kernel: Definition) -> bool:
    """Whether a kernel goes round until something in memory has changed: what sets that comes before what follows."""
    for n in ast.walk(kernel):
        if isinstance(n, ast.While) and any(isinstance(x, ast.Call) for x in ast.walk(n.test)):
            return True
        if (
            isinstance(n, ast.Call)
            and _called(n) == "wait"
            and any(not isinstance(x, ast.Constant) for x in n.args)
        ):
            return True
    return False


@lru_cache(maxsize=1024)
def directions_of(kernel: Definition, constants: tuple[tuple[str, bool], ...]) -> Directions:
    """What the body of a kernel does with its parameters.

    Args:
        constants: the parameters of which it is known whether they are true: branches on them are compiled or not.
    """
    a = kernel.args
    names = frozenset(p.arg for p in (*a.posonlyargs, *a.args, *a.kwonlyargs))
    body = _Body(names, dict(constants))
    body.run([] if isinstance(kernel, ast.Lambda) else kernel.body)
    return {name: frozenset(found) for name, found in body.found.items()}


@dataclass(slots=True)
class _Body:
    """The body of a kernel.

    Attributes:
        parameters, constants: of the kernel. means: by name: the parameters that it is computed from.
        found: by parameter: what is done with it.
    """

    parameters: frozenset[str]
    constants: Mapping[str, bool]
    means: dict[str, frozenset[str]] = field(default_factory=dict)
    found: dict[str, set[str]] = field(default_factory=dict)

    def run(self, statements: Sequence[ast.stmt]) -> None:
        for s in statements:
            if isinstance(s, ast.If) and isinstance(s.test, ast.Name) and s.test.id in self.constants:
                self.run(s.body if self.constants[s.test.id] else s.orelse)
            elif isinstance(s, (ast.If, ast.For, ast.While, ast.With)):
                for n in (getattr(s, "test", None), getattr(s, "iter", None)):
                    if n is not None:
                        self.expression(n)
                self.run(s.body)
                self.run(getattr(s, "orelse", []))
            else:
                self.statement(s)

    def statement(self, s: ast.stmt) -> None:
        targets: list[ast.expr] = []
        if isinstance(s, ast.Assign):
            targets = s.targets
        elif isinstance(s, (ast.AugAssign, ast.AnnAssign)):
            targets = [s.target]
        self.expression(s)
        value = getattr(s, "value", None)
        for t in targets:
            if isinstance(t, ast.Subscript):
                self.touch(t.value, "writes")
                if isinstance(s, ast.AugAssign):
                    self.touch(t.value, "reads")
            elif isinstance(t, ast.Name) and value is not None:
                more = self.means.get(t.id, frozenset()) if isinstance(s, ast.AugAssign) else frozenset()
                loaded = isinstance(value, ast.Call) and _called(value) in _LOADS
                self.means[t.id] = more | (frozenset() if loaded else self.of(value))
                if isinstance(s, ast.AugAssign) and t.id in self.parameters:
                    self.means[t.id] |= {t.id}

    def expression(self, node: ast.AST) -> None:
        for n in ast.walk(node):
            if isinstance(n, ast.Call):
                name = _called(n)
                pointers = [*n.args[:1], *(k.value for k in n.keywords if k.arg == "pointer")]
                for p in pointers:
                    if name in _LOADS:
                        self.touch(p, "reads")
                    elif name in _STORES:
                        self.touch(p, "writes")
                    elif name.startswith("atomic"):
                        self.touch(p, "reads")
                        self.touch(p, "writes")
                if name not in _LOADS | _STORES and not name.startswith("atomic"):
                    for argument in (*n.args, *(k.value for k in n.keywords)):
                        self.touch(argument, "reads")  # a function of the device is given it
            elif isinstance(n, ast.Subscript) and isinstance(n.ctx, ast.Load):
                self.touch(n.value, "reads")

    def touch(self, pointer: ast.expr, how: str) -> None:
        for name in self.of(pointer):
            self.found.setdefault(name, set()).add(how)

    def of(self, node: ast.AST) -> frozenset[str]:
        """The parameters that an expression is computed from, beside what it loads."""
        return frozenset(self._of(node))

    def _of(self, node: ast.AST) -> Iterator[str]:
        if isinstance(node, ast.Name):
            yield from self.means.get(node.id, {node.id} & self.parameters)
        elif not (isinstance(node, ast.Call) and _called(node) in _LOADS):
            for child in ast.iter_child_nodes(node):
                yield from self._of(child)


def _called(n: ast.Call) -> str:
    f = n.func
    return f.attr if isinstance(f, ast.Attribute) else f.id if isinstance(f, ast.Name) else ""
