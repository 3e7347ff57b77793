"""Runs one function as an entry: what it is given, what it leaves behind, what is called back after it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import lru_cache

from .machine import Machine
from .models.hooks import taken_by_autograd
from .relevance import reaches
from .source import Definition, Function, dotted
from .state import Broke, Continued, Frame, Raised, Returned
from .values import NONE, Const, Func, Obj, Seq, Sym, V, Work

_ASYNCHRONOUS = frozenset(
    """Stream ExternalStream stream set_stream non_blocking async_op CUDAGraph graph capture_begin begin_capture
    isend irecv elapsed_time get_elapsed_time get_async set_async wait_stream wait_event record_stream current_stream
    blocking perf_counter time monotonic
    StreamContext pin_memory empty_pinned empty_like_pinned zeros_pinned alloc_pinned_memory
    make_graphed_callables replay
    default_timer perf_counter_ns monotonic_ns time_ns""".split()
)
"""Words of which one stands in a function that is run by itself."""
_LISTS = ("List", "list", "Sequence", "Tuple", "tuple")


def worth_running(fn: Function) -> bool:
    """Whether a function has to do with a second stream, an asynchronous copy, a graph or a clock."""
    return not _ASYNCHRONOUS.isdisjoint(fn.words)


@lru_cache(maxsize=4096)
def picking(function: Definition) -> frozenset[str]:
    """The names by which a method picks elements of what its object holds."""
    return frozenset(
        n.slice.id
        for n in ast.walk(function)
        if isinstance(n, ast.Subscript)
        and isinstance(n.slice, ast.Name)
        and isinstance(n.value, ast.Attribute)
        and isinstance(n.value.value, ast.Name)
        and n.value.value.id == "self"
    )


def params(m: Machine, fn: Function, self_: V | None = None) -> dict[str, V]:
    """What a function is given by who calls it, of whom nothing is known."""
    a = fn.node.args
    env: dict[str, V] = {}
    names = [*a.posonlyargs, *a.args, *a.kwonlyargs]
    later = (m.seq,) if m.graphs else ()  # who replays is given other things each time
    for i, p in enumerate(names):
        if i == 0 and self_ is not None:
            env[p.arg] = self_
            continue
        hint = "index" if p.arg in fn.counters else "param"
        if p.arg in fn.sizes:
            env[p.arg] = Const(2)
            continue
        # who calls the methods of an object gives them the same index
        whose = (
            ("index", fn.cls.name) if fn.cls is not None and p.arg in picking(fn.node) else (fn.qualified,)
        )
        env[p.arg] = (not later and m.typed(fn, p, p.arg)) or m.sym(
            m.vn(("param", *whose, p.arg, *later)), p.arg, hint
        )
        v = env[p.arg]
        kind = p.annotation.value if isinstance(p.annotation, ast.Subscript) else p.annotation
        if isinstance(v, Sym) and kind is not None and dotted(kind).rpartition(".")[2] in _LISTS:
            m.listed.add(v.vn)
    for rest in (a.vararg, a.kwarg):
        if rest is not None:
            env[rest.arg] = m.sym(m.vn(("param", fn.qualified, rest.arg, *later)), rest.arg, "param")
    for name, default in _defaults(a):
        v = env[name]
        if (
            isinstance(default, ast.Constant)
            and isinstance(default.value, (str, bool))
            and isinstance(v, Sym)
        ):
            if not (
                fn.name == "__init__" and default.value == "cpu"
            ):  # an object that is made on the device names the device
                m.defaults[v.vn] = Const(default.value)
    return env


def _defaults(a: ast.arguments) -> Iterator[tuple[str, ast.expr]]:
    """The parameters that have defaults."""
    names = [*a.posonlyargs, *a.args]
    yield from zip((p.arg for p in names[len(names) - len(a.defaults) :]), a.defaults, strict=False)
    yield from ((p.arg, d) for p, d in zip(a.kwonlyargs, a.kw_defaults, strict=False) if d is not None)


def run_function(m: Machine, fn: Function, self_: V | None = None, closure: Frame | None = None) -> None:
    """Call a function as somebody else does of whom nothing is known."""
    frame = Frame(fn.module, fn, params(m, fn, self_), closure)
    given = [v for v in frame.env.values() if isinstance(v, Obj)]
    m.roots.extend(given)  # the caller holds what it gives
    m.library.given_objects = {o.vn for o in given if o is not self_}
    m.last_result = None
    m.orders |= fn.orders
    m.frames.append(frame)
    m.began = m.order.began = m.seq
    m.order.called += 1
    waits = len(m.order.waits)
    result: V | None = None
    node_of_pass = fn.name == "backward" and fn.cls is not None and fn.cls.is_autograd()
    if node_of_pass:
        _autograd_arguments(m, fn)
    try:
        m.body(fn.body)
    except Returned as r:
        result = r.value
        if node_of_pass:
            taken_by_autograd(m.library, result, m.left_at)
        m.library.returned(result, m.left_at)
    except Raised:
        m.settle()  # no caller in sight catches it and goes on with the same objects
    except (Broke, Continued):
        pass
    finally:
        m.frames.pop()
    end = m.left_at if result is not None and m.left_at is not None else fn.body[-1]
    m.trail.add(m.seq, "returns", f"`{fn.name}()` returns", (fn.module, end))
    if result is not None and m.graphs:
        m.returned.append(result)
        m.library.given_out(result)
    if m.captured:
        m.lost(fn.node, frame)
    m.given_back = m.library.blocks_in(result) if result is not None else set()
    m.left(fn.node)
    m.given_back = set()
    if result is not None:
        m.frames.append(frame)
        m.library.may_wait_for(result, end)
        m.frames.pop()
    if node_of_pass:
        m.library.allocated(m.library.cur(), fn.node, ("release",))  # by the next node of the pass
    m.library.views_kept()
    m.frames.append(frame)
    m.library.go_on(fn.node)
    m.frames.pop()
    m.library.lent(result if result is not None else NONE)
    if not m.function_entry:
        m.library.idle_wait(waits)
    m.last_result = result
    _works_given(m, result)
    if not m.quiet and closure is None:
        for f in [result, *m.escaped][:4]:
            if (
                isinstance(f, Func)
                and f.closure is not None
                and f.function not in m.entered
                and f.function.body
                and (worth_running(f.function) or reaches(f.function))
            ):
                run_function(m, f.function, None, f.closure)  # somebody else calls it
        m.escaped.clear()


def _works_given(m: Machine, result: V | None) -> None:
    """A caller that gets the work of a collective waits for it before what comes next."""
    given = result.items if isinstance(result, Seq) else [result]
    for work in given:
        if isinstance(work, Work):
            m.order.learn(m.ambient["torch"], work.snapshot)


def run_hooks(m: Machine) -> None:
    """Run what autograd calls back, where no pass in sight has."""
    m.library.run_hooks()


def _autograd_arguments(m: Machine, fn: Function) -> None:
    """The gradients that ``backward`` of an autograd function is given."""
    frame = m.frames[-1]
    for p in fn.node.args.args[1:]:
        v = frame.env.get(p.arg)
        if isinstance(v, Sym):
            grad = m.library.tensor(v, "cuda")
            grad.block.alloc, grad.block.fresh, grad.block.home = m.library.cur(), True, m.site(p)
            m.library.launch([], [grad], "the backward pass", fn.node, kind="backward")
