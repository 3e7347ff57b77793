"""Executes one path of a function on unknown inputs."""

from __future__ import annotations

import ast
import itertools
from typing import Any

from streamsafe.apis import names as apis

from .capture import Loss
from .order import HOST, Access, Block, Hazard, Order, Timeline, distinct, overlap
from .source import STRONG, SYNCING, Class, Function, Module, Project, dotted, words_of
from .values import (NONE, Bound, Clock, Cls, Const, Ctx, Event, Func, Future, Gen, Graph, Graphed, Lazy, Lib, Map, Obj, Params, Partial,
                     Range, Seq, Stream, Sym, Tensor, Thread, V, Work)

MAX_STEPS = 6000
MAX_DEPTH = 7
MAX_ROUNDS = 5
MAX_ITEMS = 64
EXITS = (ast.Return, ast.Continue, ast.Break)


def turns_off(body: list[ast.stmt]) -> bool:
    """Whether something is turned off, with a warning perhaps, and nothing else is done."""
    off = [isinstance(s, ast.Assign) and isinstance(s.value, ast.Constant) and s.value.value is False for s in body]
    return any(off) and all(x or isinstance(s, ast.Expr) for x, s in zip(off, body))


LIBRARIES = tuple("""torch numpy cupy time contextlib functools threading queue collections concurrent itertools asyncio copy random os math typing
    dataclasses cv2 PIL triton numba builtins""".split())


class Returned(Exception):
    def __init__(self, value: V) -> None:
        self.value = value


class Broke(Exception):
    pass


class Continued(Exception):
    pass


class Raised(Exception):
    pass


class Blocked(Raised):
    """A thread waits for another one."""


class Spent(Exception):
    """The path is as long as a path may be."""


class StopGenerator(Exception):
    pass


class Frame:
    __slots__ = ("call", "closure", "env", "function", "imports", "module", "on_yield", "sites", "stash")

    def __init__(self, module: Module, function: Function | None, env: dict, closure: "Frame | None" = None) -> None:
        self.module, self.function, self.env, self.closure = module, function, env, closure
        self.on_yield = None
        self.imports: dict[str, str] = {}
        self.call = None
        self.stash = None
        self.sites: dict[str, ast.AST] = {}


KERNELS = frozenset("RawKernel ElementwiseKernel ReductionKernel RawModule".split())
LOGGERS = frozenset(("getLogger",))
GRAPH_WORDS = frozenset("CUDAGraph capture_begin begin_capture make_graphed_callables replay".split())
"""Words of which one stands in what has to do with graphs."""
WAITING_FOR_A_TIME = frozenset(("time.sleep", "builtins.max", "builtins.min", "asyncio.sleep", "builtins.round", "builtins.int", "builtins.float"))
"""Calls that a measured time does not leave the program by."""
_relevant: dict[ast.AST, bool] = {}
_rounds: dict[ast.AST, int] = {}
_words: dict[ast.AST, frozenset[str]] = {}


def words(node: ast.AST) -> frozenset[str]:
    got = _words.get(node)
    if got is None:
        got = _words[node] = words_of(node)
    return got


def relevant(body: list[ast.stmt]) -> bool:
    return any(not STRONG.isdisjoint(words(s)) for s in body)


_asked: dict[ast.For, list[int]] = {}


def asked_rounds(s: ast.For) -> list[int]:
    """The numbers that the body of a loop compares with, and those of the rounds that a remainder picks."""
    got = _asked.get(s)
    if got is None:
        found: set[int] = set()
        for n in (x for st in s.body for x in ast.walk(st)):
            if isinstance(n, ast.Compare):
                found |= {x.value + k for x in (n.left, *n.comparators) if isinstance(x, ast.Constant) and type(x.value) is int for k in (0, 1)}
            elif isinstance(n, ast.BinOp) and isinstance(n.op, ast.Mod) and isinstance(n.right, ast.Constant) and type(n.right.value) is int:
                found |= {n.right.value - 1, n.right.value}
        got = _asked[s] = sorted(found)[:6]
    return got


def decision_text(s: ast.AST, value: bool) -> str:
    """What a path has taken for true or false, in words."""
    test = getattr(s, "test", None)
    text = ast.unparse(test) if test is not None else ""
    if not text or len(text) > 60:
        return "the other branch is taken"
    return f"`{text}` is taken" if value else f"`{text}` is not taken"


def exits(body: list[ast.stmt]) -> type | None:
    last = body[-1] if body else None
    if isinstance(last, EXITS) or isinstance(last, ast.Raise):
        return type(last)
    if isinstance(last, ast.Expr) and isinstance(last.value, ast.Call) and dotted(last.value.func) in ("sys.exit", "exit"):
        return ast.Raise
    return None


class Machine:
    """One path.

    Args:
        project: the files.
        flips: by the number of a decision, that it comes out the other way.
    """

    Blocked = Blocked

    def __init__(self, project: Project, flips: dict[int, bool]) -> None:
        from .models.library import Library

        self.project, self.flips = project, flips
        self.order = Order(self.conflict)
        self.order.now = lambda: self.seq
        self.trail = self.order.trail
        self.at: ast.AST | None = None  # the statement that is run
        self.ambient = {lib: Timeline("the current stream", "ambient", lib=lib) for lib in ("torch",)}
        self.ambient["cupy"] = self.ambient["torch"]
        null = Timeline("the default stream", "null", lib="cupy")
        self.null = null
        self.current = {"torch": [self.ambient["torch"]], "cupy": [null]}
        self.frames: list[Frame] = []
        self.fields: dict[tuple[int, str], V] = {}
        self.vns: dict[Any, int] = {}
        self.syms: dict[int, Sym] = {}
        self.aliases: dict[int, tuple] = {}
        self.equal: dict[int, tuple] = {}  # unknowns that have the same value wherever they have the same key
        self.conds: dict[Any, bool] = {}
        self.decisions: list[tuple[Any, bool]] = []
        self.globals: dict[tuple[str, str], V] = {}
        self.hazards: list[Hazard] = []
        self.steps = 0
        self.seq = 0
        self.launches: list = []
        self.capture = None
        self.call = 0
        self.cut = False
        self.grads: dict[str, Block] = {}
        self.candidates: dict[int, Block] = {}
        self.graphs: list[Graph] = []
        self.walked: list[V] = []  # what loops go through
        self.dropped = None  # the expression whose value nobody takes
        self.escaped: list[V] = []  # functions that somebody else is given to call
        self.returned: list[V] = []  # what the caller of an entry has
        self.captured: dict[int, Block] = {}  # what graphs use and the program still holds
        self.threads: list = []
        self.in_thread: list = []
        self.pinning: set[int] = set()  # the loaders with a thread that pins memory
        self.expecting = 0
        self.times = 1.0  # for how many rounds of loops the round that is run stands
        self.timing = False  # whether a clock was read or an event with timing was made
        self.measured: dict[V, Hazard] = {}  # times that do not include the work that they were to measure
        self.defaults: dict[int, Const] = {}  # of parameters
        self.captures = self.replays = 0  # how many there were
        self.depth = 0
        self.owners: dict[int, tuple[V, str]] = {}  # by unknown: of what it is an attribute, and which
        self.likes: dict[tuple, V] = {}  # elements of containers that are known by others
        self.roots: list[V] = []  # what somebody outside the path may hold
        self.hooks: list[tuple[str, V]] = []
        self.last_result: V | None = None
        self.library = Library(self)
        self.quiet = False
        self.entered: set = set()
        self.uncertain: list = []
        self.among: dict[Any, set] = {}  # which constants a value may be
        self.never: dict[Any, set] = {}  # and which it is not
        self.turns: dict[Any, tuple] = {}  # by number: of what round modulo what it is
        self.boundaries: list[int] = []  # where the calls of an entry end, of which there are
        self.methods = 0
        self.lengths: dict[Any, int] = {}
        self.queries: dict[Any, dict] = {}  # what the host knows where a query is true
        self.memo: dict[Any, V] = {}
        self.bounds: dict[Any, tuple] = {}  # by unknown number: the least and the most that it is
        self.listed: set[int] = set()  # parameters that are lists
        self.loaded: set[int] = set()  # what loops over the results of calls give
        self.among_others: dict[int, list] = {}  # by an event that a number picks: those that it may be

    # ------------------------------------------------------------------ names and numbers
    def vn(self, key: Any) -> int:
        n = self.vns.get(key)
        if n is None:
            n = self.vns[key] = len(self.vns) + 1
        return n

    def sym(self, vn: int, text: str, hint: str = "") -> Sym:
        """The unknown with a number: one object on one path."""
        s = self.syms.get(vn)
        if s is None:
            s = self.syms[vn] = Sym(vn, text, hint)
        return s

    def fresh(self, text: str, hint: str = "") -> Sym:
        return self.sym(self.vn(("fresh", len(self.vns))), text, hint)

    def key(self, v: V) -> Any:
        if isinstance(v, Const):
            return ("c", type(v.value).__name__, v.value if isinstance(v.value, (int, str, float, bool, type(None), bytes)) else str(v.value))
        if isinstance(v, Sym):
            return self.equal.get(v.vn) or ("v", v.vn)
        if isinstance(v, (Obj, Range)):
            return ("o", v.vn)
        if isinstance(v, Tensor):
            return ("t", v.block.uid, v.part)
        if isinstance(v, Stream):
            return ("s", v.timeline.uid)
        if isinstance(v, Lib):
            return ("l", v.name)
        if isinstance(v, Cls):
            return ("k", v.cls.name)
        if isinstance(v, Func):
            return ("f", v.function.qualified, self.key(v.self_) if v.self_ else None)
        if isinstance(v, Bound):
            return ("b", self.key(v.receiver), v.name)
        if isinstance(v, Seq) and len(v.items) < 8:
            return ("q", tuple(self.key(i) for i in v.items)) if v.kind == "tuple" else ("i", id(v))
        return ("i", id(v))

    @property
    def frame(self) -> Frame:
        return self.frames[-1]

    def site(self, node: ast.AST):
        f = self.frame
        return (f.module, node)

    # ------------------------------------------------------------------ decisions
    def decide(self, key: Any, default: bool, flip: bool = True) -> bool:
        """How a condition comes out of which nothing is known: the same way each time on one path."""
        got = self.conds.get(key)
        if got is None and key[0] == "cmp" and key[1] == "Lt":
            got = self.bounded(key)
        if got is not None:
            return got
        if flip and not self.quiet:
            n = len(self.decisions)
            value = self.flips.get(n, default)
            self.decisions.append((key, value))
            if n in self.flips and self.at is not None and self.frames:
                self.trail.add(self.seq, "decides", decision_text(self.at, value), self.site(self.at))
        else:
            value = default
        self.conds[key] = value
        self.learned(key, value)
        return value

    def bounded(self, key: Any) -> bool | None:
        """Whether something is less than a number, as far as it was compared with other numbers."""
        _, _, a, b = key
        if (a[0] == "c") == (b[0] == "c"):
            return None
        v, c, below = (b, a, False) if a[0] == "c" else (a, b, True)
        if c[1] != "int":
            return None
        lo, hi = self.bounds.get(v, (None, None))  # lo <= v <= hi
        n = c[2]
        if below:  # v < n
            return True if hi is not None and hi < n else False if lo is not None and lo >= n else None
        return True if lo is not None and lo > n else False if hi is not None and hi <= n else None

    def bound(self, key: Any, value: bool) -> None:
        _, _, a, b = key
        if (a[0] == "c") == (b[0] == "c"):
            return
        v, c, below = (b, a, False) if a[0] == "c" else (a, b, True)
        if c[1] != "int":
            return
        lo, hi = self.bounds.get(v, (None, None))
        n = c[2]
        if below == value:  # v <= n - 1, or not n < v
            top = n - 1 if below else n
            hi = top if hi is None else min(hi, top)
        else:
            bottom = n if below else n + 1
            lo = bottom if lo is None else max(lo, bottom)
        self.bounds[v] = (lo, hi)

    def learned(self, key, value) -> None:
        if key[0] == "cmp" and key[1] == "Lt":
            self.bound(key, value)
            return
        if key[0] == "eq" and value:
            self.conds[("is", key[1])] = key[2]
        elif key[0] == "eq":
            self.never.setdefault(key[1], set()).add(key[2])
        elif key[0] == "in" and key[2][0] == "q":
            if value:
                self.among[key[1]] = set(key[2][1])
            else:
                self.never.setdefault(key[1], set()).update(key[2][1])
        elif value and key in self.queries:
            self.order.wait(self.order.host, self.queries[key])

    def truth(self, node: ast.expr, default: bool = True, flip: bool = True) -> bool:
        """Evaluate a condition."""
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            return not self.truth(node.operand, not default, flip)
        if isinstance(node, ast.BoolOp):
            if isinstance(node.op, ast.And):
                for v in node.values:
                    if not self.truth(v, default, flip):
                        return False
                return True
            for v in node.values:
                if self.truth(v, default, flip):
                    return True
            return False
        if isinstance(node, ast.NamedExpr):
            value = self.eval(node)
            return self.truthy(value, default, flip, node)
        if isinstance(node, ast.Compare) and len(node.ops) == 1:
            a, b = (self.as_tensor(self.eval(x)) for x in (node.left, node.comparators[0]))
            if (isinstance(a, Tensor) or isinstance(b, Tensor)) and not isinstance(node.ops[0], (ast.Is, ast.IsNot, ast.In, ast.NotIn)):
                return self.truthy(self.library.compute([a, b], node, "compare"), default, flip, node)
            got = self.compare(node.ops[0], a, b, node)
            if isinstance(got, bool):
                return got
            neg, key = got
            value = self.decide(key, default != neg, flip)
            return value != neg
        return self.truthy(self.eval(node), default, flip, node)

    def truthy(self, v: V, default: bool, flip: bool, node=None) -> bool:
        if isinstance(v, Const):
            return bool(v.value)
        if isinstance(v, (Stream, Event, Graph, Func, Cls, Obj, Lib, Work, Ctx, Clock, Partial, Gen, Bound)):
            return True
        if isinstance(v, Seq) and not v.more and (v.items or v.limit != "open"):
            return bool(v.items)
        if isinstance(v, Map) and v.items:
            return True
        if isinstance(v, Tensor):
            self.library.host_value(v, node, "if")
            return self.decide(("truth", self.key(v), len(self.decisions)), default, flip)
        if isinstance(v, Sym) and v.vn in self.aliases:
            neg, key = self.aliases[v.vn]
            return self.decide(key, default != neg, flip) != neg
        return self.decide(("truth", self.key(v)), default, flip)

    def compare(self, op: ast.cmpop, a: V, b: V, node):
        neg = isinstance(op, (ast.IsNot, ast.NotEq, ast.NotIn))
        if isinstance(op, (ast.Is, ast.IsNot, ast.Eq, ast.NotEq)):
            if isinstance(op, (ast.Is, ast.IsNot)) or isinstance(b, Const) and b.value is None:
                for x, y in ((a, b), (b, a)):
                    if isinstance(y, Const) and y.value is None:
                        if isinstance(x, Const):
                            return (x.value is None) != neg
                        if not isinstance(x, Sym):
                            return neg
                        # None is what is falsy
                        return (not neg, ("truth", self.key(x)))
            if isinstance(a, Const) and isinstance(b, Const):
                try:
                    return (a.value == b.value) != neg
                except Exception:
                    return neg
            if isinstance(a, Const):
                a, b = b, a
            if isinstance(b, Const):
                known = self.conds.get(("is", self.key(a)))
                if known is not None:
                    return (known == self.key(b)) != neg
                if self.key(b) in self.never.get(self.key(a), ()) or self.key(b) not in self.among.get(self.key(a), (self.key(b),)):
                    return neg
                if isinstance(b.value, bool) and isinstance(a, Sym):
                    return (neg == b.value, ("truth", self.key(a)))
            if self.key(a) == self.key(b) and not isinstance(a, Tensor):
                return not neg
            if isinstance(a, Stream) and isinstance(b, Stream):
                d = distinct(a.timeline, b.timeline)
                if d != "unknown":
                    return (d == "no") != neg
            if isinstance(a, Tensor) or isinstance(b, Tensor):
                return (neg, ("eq", self.key(a), self.key(b), len(self.decisions)))
            return (neg, ("eq", self.key(a), self.key(b)))
        if isinstance(op, (ast.In, ast.NotIn)):
            if isinstance(b, Map) and self.key(a) in b.items:
                return not neg
            if isinstance(b, Seq) and isinstance(a, Const) and not b.more and all(isinstance(i, Const) for i in b.items):
                return (a.value in [i.value for i in b.items]) != neg
            if isinstance(b, Seq) and not b.more and all(isinstance(i, Const) for i in b.items):
                found = self.is_among(self.key(a), {self.key(i) for i in b.items})
                if found is not None:
                    return found != neg
            return (neg, ("in", self.key(a), self.key(b)))
        if isinstance(a, Const) and isinstance(b, Const):
            try:
                return {ast.Lt: lambda: a.value < b.value, ast.LtE: lambda: a.value <= b.value, ast.Gt: lambda: a.value > b.value,
                        ast.GtE: lambda: a.value >= b.value}[type(op)]()
            except Exception:
                return (False, ("cmp", type(op).__name__, self.key(a), self.key(b)))
        if isinstance(a, Tensor) or isinstance(b, Tensor):
            return (False, ("cmp", type(op).__name__, self.key(a), self.key(b), len(self.decisions)))
        name = {ast.Lt: ("Lt", False, 0), ast.LtE: ("Lt", True, 1), ast.Gt: ("Lt", False, 1), ast.GtE: ("Lt", True, 0)}[type(op)]
        x, y = (a, b) if not name[2] else (b, a)
        return (name[1], ("cmp", "Lt", self.key(x), self.key(y)))

    def is_among(self, a: Any, constants: set) -> bool | None:
        """Whether a value is one of some constants, as far as the path says it."""
        if ("is", a) in self.conds:
            return self.conds[("is", a)] in constants
        may = self.among.get(a)
        if may is not None:
            may = may - self.never.get(a, set())
            return True if may <= constants else False if may.isdisjoint(constants) else None
        return False if constants <= self.never.get(a, set()) else None

    def typed(self, fn: Function, arg: ast.arg, text: str) -> V | None:
        """The object that a parameter is by its annotation, made with unknown arguments."""
        a = arg.annotation
        if isinstance(a, ast.Constant) and isinstance(a.value, str):
            name = a.value
        elif isinstance(a, ast.Subscript) and dotted(a.value).endswith("Optional"):
            name = dotted(a.slice)
        elif isinstance(a, ast.BinOp):
            name = dotted(a.left)
        else:
            name = dotted(a) if a is not None else ""
        if not name:
            return None
        m = fn.module
        cls = m.classes.get(name)
        if cls is None:
            full = m.canonical(name)
            found = self.project.lookup(full, m.path) if full != name or "." in name else None
            cls = found if isinstance(found, Class) else None
        if cls is not None:
            return self.instance(cls, text)
        full = m.canonical(name)
        if full.endswith("torch.Tensor") or full == "torch.Tensor" or full.endswith("cp.ndarray") or full == "cupy.ndarray":
            s = self.sym(self.vn(("param", fn.qualified, text)), text, "param")
            t = self.library.tensor(s, "unknown")
            t.block.notes.add("declared")
            if "cupy" in full:
                t.block.lib, t.block.place = "cupy", "cuda"
            return s
        if full.startswith("torch.nn.") and full.rpartition(".")[2][:1].isupper() and not full.endswith("Parameter"):
            return self.sym(self.vn(("param", fn.qualified, text)), text, "module")
        if full.startswith("torch.optim."):
            return self.sym(self.vn(("param", fn.qualified, text)), text, "optimizer")
        if full in ("torch.cuda.Stream", "torch.Stream", "cupy.cuda.Stream"):
            s = self.sym(self.vn(("param", fn.qualified, text)), text, "param")
            self.library.stream(s, "cupy" if "cupy" in full else "torch")
            return s
        return None

    def instance(self, cls: Class, text: str) -> Obj:
        """An object of a class that somebody else has made, some time ago."""
        o = Obj(cls, self.vn(("object", cls.name, text)), text)
        init = cls.method("__init__")
        if init is not None and self.depth < 4 and not cls.is_autograd() and not STRONG.isdisjoint(init.words):
            env = {}
            a = init.node.args
            for i, p in enumerate([*a.posonlyargs, *a.args, *a.kwonlyargs]):
                env[p.arg] = o if i == 0 else (self.typed(init, p, p.arg) or self.sym(self.vn(("param", init.qualified, p.arg, text)), p.arg, "param"))
            for p in (a.vararg, a.kwarg):
                if p is not None:
                    env[p.arg] = self.sym(self.vn(("param", init.qualified, p.arg, text)), p.arg, "param")
            frame = Frame(init.module, init, env)
            frame.stash = self.declared(init)
            self.frames.append(frame)
            self.depth += 1
            count = len(self.hazards)
            quiet, self.quiet = self.quiet, True
            try:
                self.body(init.node.body)
            except (Returned, Raised):
                pass
            finally:
                self.quiet = quiet
                self.depth -= 1
                self.frames.pop()
            del self.hazards[count:]
            self.settle()
            for v in o.fields.values():
                for e in v.items if isinstance(v, Seq) else (v,):
                    if isinstance(e, Event):
                        e.born = -1  # whoever has made the object may have recorded it
        elif init is not None:
            for st in ast.walk(init.node):
                if isinstance(st, ast.Assign) and len(st.targets) == 1 and isinstance(st.targets[0], ast.Attribute) and isinstance(st.value, ast.Name):
                    arg = next((p for p in init.node.args.args if p.arg == st.value.id), None)
                    if arg is not None and arg.annotation is not None and self.depth < 3:
                        v = self.typed(init, arg, f"{text}.{st.targets[0].attr}")
                        if v is not None:
                            o.fields[st.targets[0].attr] = v
        return o

    def settle(self) -> None:
        """What was done so far is long done."""
        self.order.all_known(self.order.host)
        for t in list(self.order.ticks):
            self.order.all_known(t)

    # ------------------------------------------------------------------ statements
    def body(self, stmts: list[ast.stmt]) -> None:
        for s in stmts:
            self.stmt(s)

    def stmt(self, s: ast.stmt) -> None:
        self.steps += 1
        if self.steps > MAX_STEPS:
            self.cut = True
            raise Spent
        handler = _STATEMENTS.get(type(s))
        if handler is not None:
            self.at = s
            handler(self, s)

    def s_expr(self, s: ast.Expr) -> None:
        if not isinstance(s.value, ast.Constant):
            self.dropped = s.value
            self.eval(s.value)

    def s_assign(self, s: ast.Assign) -> None:
        value = self.eval(s.value)
        for t in s.targets:
            self.assign(t, value, s)

    def s_annassign(self, s: ast.AnnAssign) -> None:
        if s.value is not None:
            self.assign(s.target, self.eval(s.value), s)

    def s_augassign(self, s: ast.AugAssign) -> None:
        target = s.target
        load = self.eval_target(target)
        value = self.eval(s.value)
        self.assign(target, self.library.inplace(load, value, s), s, aug=True)

    def eval_target(self, t: ast.expr) -> V:
        return self.eval(t)

    def s_return(self, s: ast.Return) -> None:
        self.left_at = s
        value = self.eval(s.value) if s.value is not None else NONE
        if self.measured and len(self.frames) < 3:
            self.library.reported(value)
        raise Returned(value)

    def s_raise(self, s: ast.Raise) -> None:
        raise Raised

    def s_break(self, s) -> None:
        raise Broke

    def s_continue(self, s) -> None:
        raise Continued

    def s_if(self, s: ast.If) -> None:
        out, other = exits(s.body), exits(s.orelse)
        a, b = relevant(s.body), relevant(s.orelse)
        if _is_tensor_test(s.test):
            self.body(s.body if self.truth(s.test, True, flip=a or b) else s.orelse)
            return
        busy = len(self.order.ticks) > 1
        if self.timing and not self.about_devices(s.test):
            a, b = a or any("synchronize" in words(x) for x in s.body), b or any("synchronize" in words(x) for x in s.orelse)
        if out is ast.Raise:
            taken = self.truth(s.test, False, flip=False)
        elif other is ast.Raise:
            taken = self.truth(s.test, True, flip=False)
        elif out in EXITS and not a:
            taken = self.truth(s.test, False, flip=busy)
        elif a or b:
            taken = self.truth(s.test, a, flip=True)
        else:
            off = not s.orelse and turns_off(s.body)
            parts = s.test.values if off and isinstance(s.test, ast.BoolOp) and isinstance(s.test.op, ast.And) else [s.test]
            taken = all([self.truth(t, not off or t is not parts[-1], flip=False) for t in parts])
        self.body(s.body if taken else s.orelse)

    def about_devices(self, test: ast.expr) -> bool:
        """Whether a condition asks on what device things are: it is as they are."""
        asks = {"is_cuda", "is_available", "device"}
        for n in ast.walk(test):
            if isinstance(n, ast.Constant) and isinstance(n.value, str) and self.library.where(Const(n.value)) != "unknown":
                return True
            if isinstance(n, ast.Attribute) and n.attr in asks:
                return True
            if isinstance(n, ast.Name):
                v = self.name(n.id)
                if isinstance(v, Lib) and v.name.startswith(("numpy", "cupy")) or isinstance(v, Func) and v.function.words & asks:
                    return True
        return False

    def waits_if_given(self, s: ast.If) -> bool:
        """``if event is not None: event.wait()`` of an event that somebody else gives: where it is None, somebody else has waited."""
        test = s.test
        if isinstance(test, ast.Compare) and isinstance(test.ops[0], ast.IsNot):
            test = test.left
        if not isinstance(test, ast.Attribute) or len(s.body) != 1 or not isinstance(s.body[0], ast.Expr) or not isinstance(s.body[0].value, ast.Call):
            return False
        call = s.body[0].value
        if not isinstance(call.func, ast.Attribute) or call.func.attr not in ("wait", "wait_event", "synchronize"):
            return False
        return dotted(test) in [dotted(call.func.value), *map(dotted, call.args)] and isinstance(self.eval(test), Sym)

    def s_while(self, s: ast.While) -> None:
        rounds = self.rounds(s.body)
        for i in range(MAX_ROUNDS):
            value = self.eval(s.test)
            known = self.known_truth(value)
            if known is False and (i or not self.filled_elsewhere(s.test)):
                break
            if isinstance(value, Tensor):
                self.library.host_value(value, s.test, "while")
            if not known or isinstance(s.test, ast.Constant):
                if i >= rounds:
                    break
                self.suppose(s.test, True)
            try:
                self.body(s.body)
            except Continued:
                pass
            except Broke:
                return
        if not isinstance(s.test, ast.Constant):
            self.suppose(s.test, False)
            self.body(s.orelse)

    def known_truth(self, v: V) -> bool | None:
        """Whether something is true, where that is known."""
        if isinstance(v, Const):
            return bool(v.value)
        if isinstance(v, Seq) and not v.more and (v.items or v.limit != "open"):
            return bool(v.items)
        if isinstance(v, Map) and v.items:
            return True
        return None

    def suppose(self, test: ast.expr, value: bool) -> None:
        """A loop goes on or ends because a condition has a value: it had it then, and says nothing of the next round."""
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            self.suppose(test.operand, not value)
        elif isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And if value else ast.Or):
            for part in test.values:
                self.suppose(part, value)
        elif isinstance(test, ast.Call) and value:
            v = self.eval(test)
            if isinstance(v, Sym):
                self.learned(("truth", self.key(v)), True)

    def filled_elsewhere(self, test: ast.expr) -> bool:
        """Whether a condition is about a list that nothing has been put into yet."""
        for n in ast.walk(test):
            if isinstance(n, (ast.Name, ast.Attribute)):
                v = self.eval(n)
                if isinstance(v, Seq) and not v.items and not v.used:
                    return True
        return False

    def rounds(self, body: list[ast.stmt]) -> int:
        got = _rounds.get(body[0])
        if got is not None:
            return got
        rounds = 3 if relevant(body) or any(isinstance(n, ast.Yield) for st in body for n in ast.walk(st)) else 2
        for st in body:
            for n in ast.walk(st):
                if isinstance(n, ast.BinOp) and isinstance(n.op, ast.Mod):
                    right = n.right
                    if isinstance(right, ast.Constant) and isinstance(right.value, int) and right.value <= 4:
                        rounds = max(rounds, right.value + 1)
                    else:
                        rounds = max(rounds, 3)
                elif isinstance(n, ast.Compare) and isinstance(n.left, ast.Call) and dotted(n.left.func) == "len":
                    right = n.comparators[0]
                    if isinstance(right, ast.Constant) and isinstance(right.value, int) and right.value <= 4:
                        rounds = max(rounds, right.value + 3)  # until a container is as full as that
        _rounds[body[0]] = rounds
        return rounds

    def s_for(self, s: ast.For) -> None:
        it = self.eval(s.iter)
        if isinstance(it, Gen):
            self.run_generator(it, lambda v: self.loop_body(s, v), s)
            return
        self.walked.append(it)
        times, self.times = self.times, self.times * self.rounds_for_one(it, s)
        pinning = Thread()
        pinning.running = pinning.unsafe = isinstance(it, Sym) and it.vn in self.pinning
        self.threads.append(pinning)
        try:
            for v in self.iterate(it, s.iter, self.rounds(s.body)):
                self.loop_body(s, v)
            for v in self.later_rounds(it, s):
                self.loop_body(s, v)
        except Broke:
            return
        except StopGenerator:
            return
        finally:
            self.walked.pop()
            self.times = times
            pinning.running = False
        if self.timing and not isinstance(it, Seq):
            self.recorded_later(s)
        self.body(s.orelse)

    def may_be_recorded(self, ev: Event) -> None:
        """Somebody who is not seen is given an event."""
        for e in (ev, *self.among_others.get(id(ev), ())):
            if e.snapshot is None:
                e.unknown = True

    def recorded_later(self, s: ast.For) -> None:
        """The events of a container that a round of a loop records which was not run."""
        named = frozenset().union(*map(words, s.body))
        if not named & {"record", "record_event"}:
            return
        for name in named & self.frame.env.keys():
            v = self.frame.env[name]
            for e in v.items if isinstance(v, Seq) else ():
                if isinstance(e, Event) and e.snapshot is None:
                    e.unknown = True

    def rounds_for_one(self, it: V, s: ast.For) -> float:
        """How many rounds of a loop there are for each that is run."""
        if isinstance(it, Seq) and not it.more:
            return 1.0
        if not (isinstance(it, Range) and isinstance(it.start, Const) and isinstance(it.stop, Const) and isinstance(it.stop.value, int)):
            return float("inf")
        count = max(it.stop.value - it.start.value, 0)
        return max(1.0, count / (self.rounds(s.body) + 2))

    def later_rounds(self, it: V, s: ast.For):
        """The numbers of later rounds that a loop asks for."""
        if not (isinstance(it, Range) and isinstance(it.start, Const)) or isinstance(it.stop, Const) and not isinstance(it.stop.value, int):
            return
        stop = it.stop.value if isinstance(it.stop, Const) else 1 << 30
        for i in asked_rounds(s):
            if it.start.value + self.rounds(s.body) + 2 <= i < stop:
                yield Const(i)

    def loop_body(self, s: ast.For, v: V) -> None:
        self.assign(s.target, v, s)
        try:
            self.body(s.body)
        except Continued:
            pass

    def iterate(self, it: V, node: ast.AST, rounds: int = 2):
        """The values that an iterable gives, as far as they are followed."""
        if isinstance(it, Seq):
            items = list(it.items)
            yield from items
            if (it.more or not items and it.limit == "open" and not it.used) and len(items) < rounds:
                for i in range(len(items), rounds):
                    yield self.element(it, Const(i))
            return
        if isinstance(it, Map):
            for k in list(it.items):
                yield self.unkey(k, it)
            return
        if isinstance(it, Range):
            start = it.start.value if isinstance(it.start, Const) else None
            stop = it.stop.value if isinstance(it.stop, Const) else None
            if start is not None:
                n = rounds if stop is None else max(0, min(stop - start, rounds + 2))
                for i in range(n):
                    yield Const(start + i)
            else:
                for i in range(rounds):
                    yield self.sym(self.vn(("range", it.vn, i)), "index")
            return
        if isinstance(it, Lazy):
            if it.kind == "enumerate":
                base = it.args[1].value if len(it.args) > 1 and isinstance(it.args[1], Const) and isinstance(it.args[1].value, int) else 0
                for i, v in enumerate(self.iterate(it.args[0], node, rounds)):
                    yield Seq([Const(base + i), v], "tuple")
            elif it.kind == "zip":
                rounds = max([rounds, *(len(a.items) for a in it.args if isinstance(a, Seq))])
                its = [self.iterate(a, node, rounds) for a in it.args]
                for _ in range(MAX_ITEMS if its else 0):
                    row = []
                    for x in its:
                        v = next(x, None)
                        if v is None:
                            return
                        row.append(v)
                    yield Seq(row, "tuple")
            elif it.kind == "reversed":
                yield from reversed(self.materialised(it.args[0], node, rounds))
            elif it.kind in ("items", "values", "keys"):
                m = it.args[0]
                if isinstance(m, Map):
                    for k in list(m.items):
                        key = self.unkey(k, m)
                        yield {"items": Seq([key, m.items[k]], "tuple"), "values": m.items[k], "keys": key}[it.kind]
                else:
                    for i in range(self.lengths.setdefault(self.key(m), rounds)):
                        k = self.sym(self.vn(("key", self.key(m), i)), "key")
                        v = self.element(m, k)
                        yield {"items": Seq([k, v], "tuple"), "values": v, "keys": k}[it.kind]
            elif it.kind == "iter":
                yield from self.iterate(it.args[0], node, rounds)
            elif it.kind == "cycle":
                for _ in range(MAX_ROUNDS):
                    yield self.library.next_in_turn(it)
            elif it.kind == "calls":
                for _ in range(rounds):
                    yield self.call_value(it.args[0], [], {}, node)
            return
        if isinstance(it, Const):
            return
        if isinstance(it, Params):
            for i in range(rounds):
                yield self.library.parameter(it, i)
            return
        if isinstance(it, Obj):
            m = it.cls.method("__iter__")
            if m is not None and m.generator:
                got: list[V] = []
                self.run_generator(Gen(Func(m, it), [], {}), got.append, node)
                yield from got
                return
            n = it.cls.method("__next__") or it.cls.method("next")
            if n is not None:
                if m is not None:
                    self.call_function(Func(m, it), [], {}, node)
                for _ in range(rounds):
                    try:
                        yield self.call_function(Func(n, it), [], {}, node)
                    except Raised:
                        return
                return
        if isinstance(it, Tensor):
            for i in range(rounds):
                yield self.library.view(it, (("i", i),))
            return
        base = self.key(it)
        rounds = self.lengths.setdefault(base, rounds)  # as many as the last time
        for i in range(rounds):
            if isinstance(it, Sym) and it.block is not None:
                yield self.library.view(self.library.tensor(it), (("i", i),))
            else:
                v = self.element(it, Const(i)) if isinstance(it, Sym) else self.sym(self.vn(("iter", base, i)), "element", "element")
                if isinstance(it, Sym) and it.hint == "result" and isinstance(v, Sym):
                    self.loaded.add(v.vn)
                yield v

    def materialised(self, it: V, node: ast.AST, rounds: int = 2) -> list[V]:
        """What an iterable gives, as far as it is followed, as a list."""
        return list(itertools.islice(self.iterate(it, node, rounds), MAX_ITEMS))

    def unkey(self, k: Any, m: Map) -> V:
        if isinstance(k, tuple) and k and k[0] == "c":
            return Const(k[2])
        keys = getattr(self, "_mapkeys", {})
        return keys.get((id(m), k)) or self.sym(self.vn(("mapkey", k)), "key")

    def s_with(self, s: ast.With) -> None:
        self.with_items(s.items, s.body, s)

    def with_items(self, items: list[ast.withitem], body: list[ast.stmt], s: ast.stmt) -> None:
        if not items:
            self.body(body)
            return
        item = items[0]
        ctx = self.eval(item.context_expr)
        self.within(ctx, item.optional_vars, s, item.context_expr, lambda: self.with_items(items[1:], body, s))

    def within(self, ctx: V, target: ast.expr | None, s: ast.stmt, node: ast.AST, inner) -> None:
        if isinstance(ctx, Gen):
            done = []

            def at_yield(v: V) -> None:
                if done:
                    raise StopGenerator
                done.append(1)
                if target is not None:
                    self.assign(target, v, s)
                inner()

            self.run_generator(ctx, at_yield, s)
            return
        if isinstance(ctx, Obj):
            enter, leave = ctx.cls.method("__enter__"), ctx.cls.method("__exit__")
            value: V = ctx
            if enter is not None:
                value = self.call_function(Func(enter, ctx), [], {}, node)
            if target is not None:
                self.assign(target, value, s)
            try:
                inner()
            finally:
                if leave is not None and not self.cut:
                    self.call_function(Func(leave, ctx), [NONE, NONE, NONE], {}, node)
            return
        opened = self.library.enter(ctx, node)
        if target is not None:
            self.assign(target, ctx, s)
        try:
            inner()
        finally:
            self.library.leave(opened, node)

    def s_try(self, s: ast.Try) -> None:
        try:
            try:
                self.body(s.body)
            except Raised:
                if not s.handlers:
                    raise
                self.body(s.handlers[0].body)
            else:
                self.body(s.orelse)
        finally:
            if s.finalbody and not self.cut:
                self.body(s.finalbody)

    def s_delete(self, s: ast.Delete) -> None:
        for t in s.targets:
            if isinstance(t, ast.Name):
                self.frame.env.pop(t.id, None)
            elif isinstance(t, ast.Attribute):
                owner = self.eval(t.value)
                if isinstance(owner, Obj):
                    owner.fields.pop(t.attr, None)
                elif isinstance(owner, Sym):
                    self.fields[(owner.vn, t.attr)] = NONE
            elif isinstance(t, ast.Subscript):
                owner, index = self.eval(t.value), self.eval(t.slice)
                if isinstance(owner, Map):
                    owner.items.pop(self.key(index), None)
                elif isinstance(owner, Seq) and isinstance(index, Const) and isinstance(index.value, int) and owner.items:
                    try:
                        del owner.items[index.value]
                    except IndexError:
                        pass
        self.released(s)
        if self.captured:
            self.lost(s)

    def s_function(self, s) -> None:
        f = self.frame.module.function(s, None) if s not in _nested else _nested[s]
        _nested[s] = f
        value: V = Func(f, None, self.frame)
        self.frame.env[s.name] = value

    def s_import(self, s) -> None:
        self.frame.module.add_import(s, self.frame.imports)

    def s_assert(self, s: ast.Assert) -> None:
        holds = self.truth(s.test, True, flip=False)
        if isinstance(s.test, ast.Compare) and self.measured:
            self.asserted(s.test)
        if not holds:
            raise Raised  # what the path has supposed is excluded

    def asserted(self, test: ast.Compare) -> None:
        """What was measured last is claimed to be less than something."""
        clocks = [h for h in self.measured.values() if h.second.site[1] in list(ast.walk(test))]
        for h in clocks:
            if h not in self.hazards:
                self.hazards.append(h)

    def s_match(self, s) -> None:
        self.eval(s.subject)
        chosen = next((c for c in s.cases if relevant(c.body)), s.cases[0])
        self.body(chosen.body)

    # ------------------------------------------------------------------ assignment
    def assign(self, t: ast.expr, v: V, s: ast.stmt, aug: bool = False) -> None:
        if isinstance(t, ast.Name):
            f = self.frame
            old = f.env.get(t.id)
            if self.graphs:
                v = self.library.stamp(v)
            f.sites[t.id] = s
            outer = self.outer(f, t.id)
            if outer is not None:
                f, old = outer, outer.env.get(t.id)
            if f.stash and t.id in f.stash:
                self.globals[(f.module.path, t.id)] = v
            else:
                f.env[t.id] = v
            if isinstance(v, Stream) and v.timeline.name.startswith("<"):
                v.timeline.name = t.id
            elif isinstance(v, (Event, Graph)) and not v.text:
                v.text = t.id
            elif isinstance(v, Tensor) and not v.block.text:
                v.block.text = t.id
            elif isinstance(v, Sym) and v.text.startswith("<"):
                v.text = t.id
            if old is not None and old is not v:
                self.maybe_released(old, s, name=True)
        elif isinstance(t, ast.Attribute):
            self.library.reported(v)
            owner = self.eval(t.value)
            text = f"{getattr(owner, 'text', '')}.{t.attr}" if not isinstance(t.value, ast.Name) else f"{t.value.id}.{t.attr}"
            if isinstance(v, Stream) and v.timeline.name.startswith("<"):
                v.timeline.name = text
            elif isinstance(v, (Event, Graph)) and not v.text:
                v.text = text
            elif isinstance(v, Tensor) and not v.block.text:
                v.block.text = text
            elif isinstance(v, Sym) and v.text.startswith("<"):
                v.text = text
            if isinstance(owner, Obj):
                old = owner.fields.get(t.attr)
                setter = None
                owner.fields[t.attr] = v
                if old is not None and old is not v:
                    self.maybe_released(old, s)
            elif isinstance(owner, Sym):
                if t.attr == "data" and isinstance(v, (Tensor, Sym)):
                    self.library.set_data(owner, v, s)
                    return
                if t.attr == "grad" and isinstance(v, Const) and v.value is None:
                    self.fields.pop((owner.vn, t.attr), None)
                    self.library.drop_gradients(s)
                    return
                old = self.fields.get((owner.vn, t.attr))
                self.fields[(owner.vn, t.attr)] = v
                if isinstance(v, Event):
                    self.may_be_recorded(v)  # by whose it is now
                if old is not None and old is not v:
                    self.maybe_released(old, s)
            elif isinstance(owner, Tensor) and t.attr == "data":
                self.library.set_data(owner, v, s)
            elif isinstance(owner, Tensor) and t.attr == "grad":
                self.library.set_grad(owner, v, s)
        elif isinstance(t, ast.Subscript):
            self.library.reported(v)
            owner = self.eval(t.value)
            self.library.set_item(owner, t, v, s, aug)
        elif isinstance(t, (ast.Tuple, ast.List)):
            self.unpack(t, v, s)
        elif isinstance(t, ast.Starred):
            self.assign(t.value, v, s)

    def outer(self, f: Frame, name: str) -> Frame | None:
        """The frame whose name it is that a function declares nonlocal."""
        if f.function is None or name not in self.nonlocals(f.function):
            return None
        c = f.closure
        while c is not None and name not in c.env:
            c = c.closure
        return c

    def nonlocals(self, fn: Function) -> frozenset[str]:
        if "_nonlocals" not in fn.__dict__:
            found = () if isinstance(fn.node, ast.Lambda) else (x for s in ast.walk(fn.node) if isinstance(s, ast.Nonlocal) for x in s.names)
            fn.__dict__["_nonlocals"] = frozenset(found)
        return fn.__dict__["_nonlocals"]

    def unpack(self, t, v: V, s: ast.stmt) -> None:
        elts = t.elts
        star = next((i for i, e in enumerate(elts) if isinstance(e, ast.Starred)), None)
        if isinstance(v, Seq) and star is None and len(v.items) == len(elts):
            items = list(v.items)
        elif isinstance(v, Seq) and star is not None and len(v.items) >= len(elts) - 1:
            tail = len(elts) - 1 - star
            items = [*v.items[:star], Seq(v.items[star: len(v.items) - tail]), *(v.items[len(v.items) - tail:] if tail else [])]
        elif isinstance(v, (Lazy, Range, Gen)):
            items = self.materialised(v, s) if not isinstance(v, Gen) else []
            items = (items + [self.fresh("item") for _ in elts])[: len(elts)]
        elif isinstance(v, Sym) and v.block is not None and "private" in v.block.notes:
            items = [self.piece(v, i) for i in range(len(elts))]
        else:
            items = [self.element(v, Const(i)) for i in range(len(elts))]
        for e, i in zip(elts, items):
            self.assign(e.value if isinstance(e, ast.Starred) else e, i, s)

    def piece(self, v: Sym, i: int) -> Sym:
        """One of the things that a captured call gives: it lies in the same memory of the graph."""
        s = self.sym(self.vn(("item", self.key(v), i)), f"{v.text}[{i}]", "element")
        s.block = v.block
        if v.stamp is not None:
            s = s.copy()
            s.stamp = v.stamp
        return s

    # ------------------------------------------------------------------ elements
    def element(self, v: V, index: V) -> V:
        """What a subscript gives of something that is no tensor."""
        if isinstance(v, Seq):
            if isinstance(index, Const) and isinstance(index.value, int) and not isinstance(index.value, bool):
                i = index.value
                if -len(v.items) <= i < len(v.items) and not (v.more and i < 0):
                    return v.items[i]
                if v.items and (v.more or i < 0):
                    return self.like(v.items[-1], ("elem", id(v), i), v)
                if v.items and not v.more:
                    raise Raised
                return self.sym(self.vn(("elem", id(v), i)), "element")
            if v.items:
                k = self.key(index)
                if len(v.items) == 1 and not v.more:
                    return v.items[0]
                return self.like(v.items[0], ("elem", id(v), k), v)
            return self.sym(self.vn(("elem", id(v), self.key(index))), "element")
        if isinstance(v, Map):
            k = self.key(index)
            if k in v.items:
                return v.items[k]
            only = self.only_entry(v, index)
            if only is not None:
                return only
            if v.items and (isinstance(index, Sym) or any(kk[0] != "c" for kk in v.items)):
                first = next(iter(v.items.values()))
                got = self.like(first, ("elem", id(v), k), v)
                return got
            got = self.sym(self.vn(("elem", id(v), k)), "element")
            return got
        k = self.key(index)
        over = self.fields.get((self.vn(("e", self.key(v))), repr(k)))
        if over is not None:
            return over
        if isinstance(v, Obj):
            m = v.cls.method("__getitem__")
            if m is not None:
                return self.call_function(Func(m, v), [index], {}, self.frame.module.tree)
        hint = "host" if isinstance(v, Sym) and v.hint == "host" else "element"
        got = self.sym(self.vn(("item", self.key(v), k)), f"{getattr(v, 'text', '')}[...]", hint)
        if isinstance(v, Sym):
            self.library.parents.setdefault(got.vn, v)
            self.library.part_of_result(v, got)
            if v.vn in self.loaded:
                self.loaded.add(got.vn)
        return got

    def only_entry(self, v: Map, index: V) -> V | None:
        """What a mapping with one entry gives under any key that it knows."""
        if isinstance(index, Sym) and len(v.items) == 1 and next(iter(v.items))[0] != "c":
            return next(iter(v.items.values()))
        return None

    def like(self, v: V, key: Any, owner) -> V:
        """An element of a container of which one like it is known: of the same kind, perhaps another one."""
        memo = self.likes
        got = memo.get(key)
        if got is not None:
            return got
        if self.graphs and self.with_graph(v):
            memo[key] = got = self.picked(v, key, owner)
            return got
        if isinstance(v, Stream):
            t = v.timeline
            if t.origin in ("new", "elem"):
                got = Stream(Timeline(t.name + "[...]" if "[" not in t.name else t.name, "elem", t.site, t.lib, t.blocking, group=id(owner)))
                got.timeline.place = self.turns.get(key[2]) if isinstance(key, tuple) and len(key) > 2 else None
            else:
                got = v
        elif isinstance(v, Event):
            got = Event(v.text, v.timing, v.site, v.lib)
            got.unknown = True
            for e in owner.items if isinstance(owner, Seq) else owner.items.values() if isinstance(owner, Map) else ():
                if isinstance(e, Event):
                    self.among_others.setdefault(id(got), []).append(e)
        elif isinstance(v, Tensor):
            b = Block(v.block.place, v.block.text, v.block.alloc, v.block.home, v.block.lib)
            b.accesses = list(v.block.accesses)
            b.recorded = set(v.block.recorded)
            got = Tensor(b, None, v.numpy)
        elif isinstance(v, Seq):
            got = Seq([self.like(i, (key, n), v) for n, i in enumerate(v.items)], v.kind, v.more, self.vn(("like", key)))
            for n, e in enumerate(got.items):
                if isinstance(e, Event):
                    self.among_others.setdefault(id(e), []).extend(
                        x.items[n] for x in getattr(owner, "items", ()) if isinstance(x, Seq) and len(x.items) > n and isinstance(x.items[n], Event))
        elif isinstance(v, (Const, Func, Cls, Lib)):
            got = v if not isinstance(v, Const) else self.sym(self.vn(("like", key)), "element")
        elif isinstance(v, Obj):
            got = Obj(v.cls, self.vn(("like", key)), v.text)
            for name, val in v.fields.items():
                got.fields[name] = self.like(val, (key, name), v)
        else:
            got = self.sym(self.vn(("like", key)), getattr(v, "text", "element"))
        memo[key] = got
        return got

    def with_graph(self, v: V) -> bool:
        """Whether a value is a graph, or something that goes with one."""
        inner = v.items if isinstance(v, Seq) else v.fields.values() if isinstance(v, Obj) else [v]
        return any(isinstance(i, (Graph, Graphed)) for i in inner)

    def picked(self, v: V, key: Any, owner) -> V:
        """The graph that a key picks: for each key that is not the same another one, as long as there are others."""
        taken = self.__dict__.setdefault("_picked", {}).setdefault(id(owner), {})
        values = list(owner.items.values() if isinstance(owner, Map) else owner.items) if isinstance(owner, (Map, Seq)) else [v]
        i = taken.setdefault(key, len(taken))
        return values[i] if i < len(values) else v

    # ------------------------------------------------------------------ expressions
    def eval(self, n: ast.expr) -> V:
        handler = _EXPRESSIONS.get(type(n))
        if handler is None:
            for c in ast.iter_child_nodes(n):
                if isinstance(c, ast.expr):
                    self.eval(c)
            return self.fresh("<value>")
        return handler(self, n)

    def e_constant(self, n: ast.Constant) -> V:
        return Const(n.value)

    def e_name(self, n: ast.Name) -> V:
        return self.name(n.id)

    def name(self, id_: str) -> V:
        f: Frame | None = self.frame
        v = f.env.get(id_)
        if v is not None:
            return v
        c = f.closure
        while c is not None:
            v = c.env.get(id_)
            if v is not None:
                return v
            c = c.closure
        full = f.imports.get(id_)
        if full is None and f.closure is not None:
            full = f.closure.imports.get(id_)
        return self.global_name(f.module, id_, full)

    def global_name(self, m: Module, id_: str, full: str | None = None) -> V:
        k = (m.path, id_)
        v = self.globals.get(k)
        if v is not None:
            return v
        full = full or m.imports.get(id_)
        if full is not None:
            v = self.imported(full, m)
        elif id_ in m.functions:
            v = Func(m.functions[id_])
        elif id_ in m.classes:
            v = Cls(m.classes[id_])
        elif id_ in m.globals:
            self.globals[k] = self.sym(self.vn(("global", k)), id_)
            node = m.globals[id_]
            if not (STRONG | KERNELS | LOGGERS).isdisjoint(words(node)) or isinstance(node, ast.Call) and dotted(node.func) in ("torch.device", "device") or isinstance(node, (ast.Constant, ast.Tuple, ast.List, ast.Dict, ast.Name, ast.Attribute)):
                self.frames.append(Frame(m, None, {}))
                try:
                    v = self.eval(node)
                except (Raised, Returned):
                    v = None
                finally:
                    self.frames.pop()
                if isinstance(v, Stream) and v.timeline.name.startswith("<"):
                    v.timeline.name = id_
                if isinstance(v, Const) and v.value is None:
                    v = None  # set elsewhere
                if isinstance(v, Seq) and not v.items and v.kind != "tuple":
                    v.limit = "open"  # others may have filled it
            v = v or self.sym(self.vn(("global", k)), id_)
        else:
            v = Lib("builtins." + id_) if id_ in _BUILTINS else self.sym(self.vn(("global", k)), id_)
        self.globals[k] = v
        return v

    def imported(self, full: str, m: Module) -> V:
        if full.startswith(LIBRARIES):
            return Lib(self.library.canonical(full))
        found = self.project.lookup(full, m.path)
        if isinstance(found, Function):
            return Func(found)
        if isinstance(found, Class):
            return Cls(found)
        mod, _, last = full.rpartition(".")
        if mod:
            path = self.project.find_file(mod, m.path)
            if path:
                target = self.project.module(path)
                if target is not None and last in target.globals:
                    return self.global_name(target, last)
        return Lib(full)

    def e_attribute(self, n: ast.Attribute) -> V:
        owner = self.eval(n.value)
        return self.attribute(owner, n.attr, n)

    def attribute(self, owner: V, attr: str, n: ast.AST) -> V:
        if isinstance(owner, Lib):
            name = f"{owner.name}.{attr}"
            found = self.project.lookup(name, self.frame.module.path)
            if isinstance(found, Function):
                return Func(found)
            if isinstance(found, Class):
                return Cls(found)
            path = None if owner.name.startswith(LIBRARIES) else self.project.find_file(owner.name, self.frame.module.path)
            target = self.project.module(path) if path else None
            if target is not None and attr in target.globals and isinstance(target.globals[attr], (ast.Call, ast.Constant, ast.Name, ast.Attribute)):
                v = self.global_name(target, attr)
                if not isinstance(v, Sym):
                    return v
            return self.library.lib_attribute(name)
        if isinstance(owner, Obj):
            v = owner.fields.get(attr)
            if v is not None:
                return v
            m = owner.cls.method(attr)
            if m is not None:
                if any(d in ("property", "cached_property", "functools.cached_property") for d in m.decorators):
                    return self.call_function(Func(m, owner), [], {}, n)
                if "staticmethod" in m.decorators:
                    return Func(m, None)
                if "classmethod" in m.decorators:
                    return Func(m, Cls(owner.cls))
                return Func(m, owner)
            for c in owner.cls.mro():
                if attr in c.attrs:
                    k = (c.module.path, c.name + "." + attr)
                    if k in self.globals:
                        return self.globals[k]
                    self.frames.append(Frame(c.module, None, {}))
                    try:
                        v = self.eval(c.attrs[attr])
                    finally:
                        self.frames.pop()
                    if isinstance(v, Const) and v.value is None:
                        break
                    self.globals[k] = v
                    return v
            if attr in ("to", "cuda", "cpu", "train", "eval", "half", "bfloat16", "requires_grad_", "float") and owner.cls.is_module():
                return Bound(owner, attr)
            if attr in ("parameters", "named_parameters", "register_buffer", "modules", "children", "buffers", "state_dict", "load_state_dict") \
                    and owner.cls.is_module():
                return Bound(owner, attr)
            v = self.sym(self.vn(("attr", self.key(owner), attr)), f"{owner.text}.{attr}", "attr")
            owner.fields[attr] = v
            self.owners[v.vn] = (owner, attr)
            for c in owner.cls.mro():
                a = c.annotation(attr)
                if "Tensor" in a:
                    self.library.tensor(v)
                    break
                if a.endswith("cuda.Stream"):
                    self.library.stream(v)
                    break
            return v
        if isinstance(owner, Cls):
            if attr == "apply" and owner.cls.is_autograd() and owner.cls.method("forward"):
                return Partial(Func(owner.cls.method("forward")), [self.sym(self.vn(("ctx", owner.cls.name)), "ctx")], {})
            k = (owner.cls.module.path, owner.cls.name + "." + attr)
            if k in self.globals:
                return self.globals[k]
            m = owner.cls.method(attr)
            if m is not None:
                return Func(m, Cls(owner.cls) if "classmethod" in m.decorators else None, owner=owner.cls)
            for c in owner.cls.mro():
                if attr in c.attrs:
                    self.frames.append(Frame(c.module, None, {}))
                    try:
                        v = self.eval(c.attrs[attr])
                    finally:
                        self.frames.pop()
                    self.globals[k] = v
                    return v
            return self.sym(self.vn(("attr", self.key(owner), attr)), f"{owner.cls.name}.{attr}", "attr")
        return self.library.attribute(owner, attr, n)

    def e_subscript(self, n: ast.Subscript) -> V:
        owner = self.eval(n.value)
        if isinstance(owner, Tensor) or isinstance(owner, Sym) and owner.block is not None:
            return self.library.index(self.library.tensor(owner), n.slice, n)
        if isinstance(n.slice, ast.Slice):
            bounds = [self.eval(b) if b is not None else NONE for b in (n.slice.lower, n.slice.upper, n.slice.step)]
            if isinstance(owner, Seq):
                if all(isinstance(b, Const) and isinstance(b.value, int | None) for b in bounds[:2]):
                    return Seq(owner.items[bounds[0].value: bounds[1].value], owner.kind, owner.more)
                return owner
            if isinstance(owner, Sym):
                return self.library.slice_of(owner, n.slice, n)
            return self.fresh("<slice>")
        index = self.eval(n.slice)
        if isinstance(owner, (Lib, Cls)):
            return owner
        if isinstance(index, Tensor) and index.mask and index.block.place == "cuda":
            self.library.sync_quiet()  # the size of the result is a value of the mask
        return self.element(owner, index)

    def e_call(self, n: ast.Call) -> V:
        self.steps += 1
        if self.steps > MAX_STEPS:
            self.cut = True
            raise Spent
        if isinstance(n.func, ast.Name) and n.func.id == "super":
            return self.fresh("super", "super")
        if isinstance(n.func, ast.Attribute) and isinstance(n.func.value, ast.Call) and isinstance(n.func.value.func, ast.Name) \
                and n.func.value.func.id == "super":
            return self.super_call(n)
        callee = self.eval(n.func)
        args: list[V] = []
        self.walked.append(Seq(args))
        try:
            kwargs = self.arguments(n, args)
            if self.measured and not (isinstance(callee, Lib) and callee.name in WAITING_FOR_A_TIME):
                for v in (*args, *kwargs.values()):
                    self.library.reported(v)
            return self.call_value(callee, args, kwargs, n)
        finally:
            self.walked.pop()

    def arguments(self, n: ast.Call, args: list[V]) -> dict[str, V]:
        """Evaluate the arguments of a call: those by place are put into ``args``."""
        for a in n.args:
            if isinstance(a, ast.Starred):
                v = self.eval(a.value)
                if isinstance(v, Seq):
                    args += v.items
                else:
                    args.append(self.sym(self.vn(("star", self.key(v))), getattr(v, "text", "args")) if not isinstance(v, Tensor) else v)
            else:
                args.append(self.eval(a))
        kwargs = {}
        for k in n.keywords:
            v = self.eval(k.value)
            if k.arg is not None:
                kwargs[k.arg] = v
            elif isinstance(v, Map):
                for kk, vv in v.items.items():
                    if kk[0] == "c" and isinstance(kk[2], str):
                        kwargs[kk[2]] = vv
        return kwargs

    def super_call(self, n: ast.Call) -> V:
        f = self.frame.function
        args = [self.eval(a) for a in n.args if not isinstance(a, ast.Starred)]
        kwargs = {k.arg: self.eval(k.value) for k in n.keywords if k.arg}
        self_ = self.frame.env.get("self")
        if f is not None and f.cls is not None and isinstance(self_, Obj):
            for c in f.cls.mro()[1:]:
                m = c.methods.get(n.func.attr)
                if m is not None:
                    return self.call_function(Func(m, self_), args, kwargs, n)
        return self.fresh("super()." + n.func.attr)

    def call_value(self, callee: V, args: list[V], kwargs: dict[str, V], n: ast.AST) -> V:
        if isinstance(callee, Func):
            return self.call_function(callee, args, kwargs, n)
        if isinstance(callee, Cls):
            return self.construct(callee.cls, args, kwargs, n)
        if isinstance(callee, Partial):
            return self.call_value(callee.func, [*callee.args, *args], {**callee.kwargs, **kwargs}, n)
        if isinstance(callee, Lib):
            return self.library.call(callee.name, args, kwargs, n)
        if isinstance(callee, Obj):
            m = callee.cls.method("forward") if callee.cls.is_module() else callee.cls.method("__call__")
            m = m or callee.cls.method("__call__") or callee.cls.method("forward")
            if m is not None:
                self.library.module_runs(callee)
                return self.call_function(Func(m, callee), args, kwargs, n)
        return self.library.call_unknown(callee, args, kwargs, n)

    def construct(self, c: Class, args, kwargs, n) -> V:
        if any(b.endswith(("NamedTuple", "Enum", "IntEnum", "TypedDict", "Exception", "Error")) for b in c.bases):
            o = Obj(c, self.vn(("new", len(self.vns))), c.name)
            names = [s.target.id for s in c.node.body if isinstance(s, ast.AnnAssign) and isinstance(s.target, ast.Name)]
            for name, v in [*zip(names, args), *kwargs.items()]:
                o.fields[name] = v
            return o
        o = Obj(c, self.vn(("new", len(self.vns))), c.name[:1].lower() + c.name[1:])
        init = c.method("__init__")
        if init is not None:
            if not STRONG.isdisjoint(init.words) or self.depth < 3:
                self.call_function(Func(init, o), args, kwargs, n, force=True)
        else:
            names = []
            for k in reversed(c.mro()):
                names += [s.target.id for s in k.node.body if isinstance(s, ast.AnnAssign) and isinstance(s.target, ast.Name)]
            for name, v in zip(names, args):
                o.fields[name] = v
            for name, v in kwargs.items():
                o.fields[name] = v
            post = c.method("__post_init__")
            if post is not None:
                self.call_function(Func(post, o), [], {}, n, force=True)
        return o

    def call_function(self, f: Func, args: list[V], kwargs: dict[str, V], n: ast.AST, force: bool = False) -> V:
        fn = f.function
        if fn.cls is not None and fn.cls.is_autograd() and fn.name == "apply":
            return self.library.opaque(f, args, kwargs, n)
        if any(d.endswith(("triton.jit", "cuda.jit", "jit.rawkernel", "cute.jit", "cute.kernel")) or d == "jit" for d in fn.decorators):
            return self.library.kernel(f, args, kwargs, n)
        if fn.generator:
            return Gen(f, args, kwargs)
        deep = self.depth >= MAX_DEPTH or sum(1 for fr in self.frames if fr.function is fn) >= 2
        if isinstance(fn.node, ast.Lambda):
            force = True
        strong = force or self.matters(fn, args, kwargs)
        if deep or not strong:
            return self.library.opaque(f, args, kwargs, n, unseen=deep and strong)
        key = self.memo_key(f, args, kwargs)
        if key in self.memo:
            return self.memo[key]
        env = self.bind(f, args, kwargs)
        self.entered.add(fn)
        frame = Frame(fn.module, fn, env, f.closure)
        frame.call = n
        frame.stash = self.declared(fn)
        self.frames.append(frame)
        self.depth += 1
        try:
            if isinstance(fn.node, ast.Lambda):
                raise Returned(self.eval(fn.node.body))
            self.body(fn.node.body)
            result: V = NONE
        except Returned as r:
            result = r.value
        finally:
            self.depth -= 1
            self.frames.pop()
        self.trail.add(self.seq, "returns", f"`{fn.name}()` returns", self.site(n))
        if self.captured:
            self.lost(n, frame, [result, *args, *kwargs.values(), *([f.self_] if f.self_ is not None else [])])
        self.left(frame, result, n)
        if key is not None:
            self.memo[key] = result
        return self.library.stamp(result) if self.graphs else result

    def memo_key(self, f: Func, args: list[V], kwargs: dict[str, V]) -> Any:
        """What a memoized function knows a call by."""
        if not any(d.rpartition(".")[2] in ("lru_cache", "cache") for d in f.function.decorators):
            return None
        return (f.function, *(self.key(v) for v in args), *((k, self.key(v)) for k, v in sorted(kwargs.items())))

    def declared(self, fn: Function) -> frozenset[str] | None:
        if "_globals" not in fn.__dict__:
            names = {x for s in ast.walk(fn.node) if isinstance(s, ast.Global) for x in s.names} if not isinstance(fn.node, ast.Lambda) else set()
            fn.__dict__["_globals"] = frozenset(names) or None
        return fn.__dict__["_globals"]

    def matters(self, fn: Function, args, kwargs) -> bool:
        """Whether a function is worth following: it has to do with streams, or is given a stream, an event or a pending copy."""
        if not STRONG.isdisjoint(fn.words) or self.size(fn) <= 5:
            return True
        got = fn.__dict__.get("_deep")
        if got is None:
            got = fn.__dict__["_deep"] = self.reaches(fn, 0, set())
        if got:
            return True
        for v in (*args, *kwargs.values()):
            if isinstance(v, (Stream, Event, Work, Graph)):
                return True
            if isinstance(v, Func) and v.function is not fn and not STRONG.isdisjoint(v.function.words):
                return True
            if any(a.kind == "d2h" for t in self.library.tensors_in(v) for a in t.block.accesses):
                return True
        if self.capture is not None or self.makes_tensors(fn):
            return True
        return self.busy() and self.size(fn) <= 60

    def makes_tensors(self, fn: Function) -> bool:
        """Whether a function is small and may give a new tensor."""
        return not fn.words.isdisjoint(apis.FACTORIES) and self.size(fn) <= 8

    def busy(self) -> bool:
        """Whether another stream than the caller's has work."""
        return any(t.origin not in ("ambient", "null", "host") for t in self.order.ticks) or self.current["torch"][-1].origin != "ambient" \
            or self.current["cupy"][-1].origin != "null"

    def size(self, fn: Function) -> int:
        got = fn.__dict__.get("_size")
        if got is None:
            got = fn.__dict__["_size"] = sum(isinstance(n, ast.stmt) for n in ast.walk(fn.node))
        return got

    def reaches(self, fn: Function, depth: int, seen: set) -> bool:
        """Whether what a function calls, by name and as far as it is in sight, has to do with streams."""
        if depth == 0 and "_reach" in fn.__dict__:
            return fn.__dict__["_reach"]
        if depth > 3 or fn in seen:
            return False
        if depth == 0:
            fn.__dict__["_reach"] = False
            fn.__dict__["_reach"] = self._reaches(fn, 0, seen)
            return fn.__dict__["_reach"]
        return self._reaches(fn, depth, seen)

    def _reaches(self, fn: Function, depth: int, seen: set) -> bool:
        seen.add(fn)
        m = fn.module
        for w in fn.words:
            made = m.globals.get(w)
            if made is not None and not STRONG.isdisjoint(words(made)):
                return True
            for cand in (m.functions.get(w), fn.cls.method(w) if fn.cls else None, self.unique(m, w)):
                if cand is not None and cand is not fn:
                    if not STRONG.isdisjoint(cand.words) or self.reaches(cand, depth + 1, seen):
                        return True
            cls = m.classes.get(w)
            if cls is not None and (self.made_with_graphs(cls) or any(f is not None and not STRONG.isdisjoint(f.words) for f in map(cls.method, ("__enter__", "__exit__")))):
                return True
            full = m.imports.get(w)
            if full is not None and "." in full and not full.startswith(("torch", "numpy", "cupy")):
                found = self.project.lookup(full, m.path)
                if isinstance(found, Function) and (not STRONG.isdisjoint(found.words) or self.reaches(found, depth + 1, seen)):
                    return True
        return False

    def made_with_graphs(self, cls: Class) -> bool:
        """Whether objects of a class have to do with captures."""
        got = cls.__dict__.get("_graphs")
        if got is None:
            got = cls.__dict__["_graphs"] = any(not GRAPH_WORDS.isdisjoint(f.words) for c in cls.mro() for f in c.methods.values())
        return got

    def unique(self, m: Module, name: str) -> Function | None:
        """The one method of the file that has a name."""
        got = m.__dict__.get("_methods")
        if got is None:
            got = m.__dict__["_methods"] = {}
            for c in m.classes.values():
                for k, f in c.methods.items():
                    got[k] = None if k in got else f
        from .models.unknown_methods import COMMON
        return got.get(name) if name not in COMMON else None

    def bind(self, f: Func, args: list[V], kwargs: dict[str, V]) -> dict[str, V]:
        a = f.function.node.args
        env: dict[str, V] = {}
        values = list(args)
        if f.self_ is not None:
            values.insert(0, f.self_)
        names = [*a.posonlyargs, *a.args]
        defaults = [None] * (len(names) - len(a.defaults)) + list(a.defaults)
        for i, (p, d) in enumerate(zip(names, defaults)):
            if i < len(values):
                env[p.arg] = values[i]
            elif p.arg in kwargs:
                env[p.arg] = kwargs[p.arg]
            elif d is not None:
                self.frames.append(Frame(f.function.module, None, {}))
                try:
                    env[p.arg] = self.eval(d)
                finally:
                    self.frames.pop()
            else:
                env[p.arg] = self.fresh(p.arg, "param")
        if a.vararg is not None:
            env[a.vararg.arg] = Seq(values[len(names):], "tuple", False)
        for p, d in zip(a.kwonlyargs, a.kw_defaults):
            if p.arg in kwargs:
                env[p.arg] = kwargs[p.arg]
            elif d is not None:
                self.frames.append(Frame(f.function.module, None, {}))
                try:
                    env[p.arg] = self.eval(d)
                finally:
                    self.frames.pop()
            else:
                env[p.arg] = self.fresh(p.arg, "param")
        if a.kwarg is not None:
            known = {p.arg for p in (*names, *a.kwonlyargs)}
            env[a.kwarg.arg] = Map({("c", "str", k): v for k, v in kwargs.items() if k not in known}, self.vn(("kw", len(self.vns))))
        return env

    def run_generator(self, g: Gen, on_yield, n: ast.AST) -> V:
        """Run the body of a generator; what it yields goes to its consumer at once."""
        fn = g.func.function
        if self.depth >= MAX_DEPTH:
            on_yield(self.fresh("yielded"))
            return NONE
        frame = Frame(fn.module, fn, self.bind(g.func, g.args, g.kwargs), g.func.closure)
        frame.stash = self.declared(fn)
        outer = list(self.frames)
        count = [0]

        def at_yield(v: V) -> V:
            count[0] += 1
            if count[0] > 4:
                raise StopGenerator
            saved, self.frames = self.frames, list(outer)
            depth, self.depth = self.depth, self.depth - 1
            try:
                got = on_yield(v)
            finally:
                self.frames, self.depth = saved, depth
            return got if isinstance(got, V) else NONE

        frame.on_yield = at_yield
        self.frames.append(frame)
        self.depth += 1
        result: V = NONE
        try:
            self.body(fn.node.body)
        except Returned as r:
            result = r.value
        except StopGenerator:
            pass
        finally:
            self.depth -= 1
            self.frames = outer
        self.left(frame, result, n)
        return result

    def e_yield(self, n: ast.Yield) -> V:
        v = self.eval(n.value) if n.value is not None else NONE
        hook = self.frame.on_yield
        if hook is not None:
            return hook(v)
        self.library.handed_out(v, n)
        return self.fresh("<sent>")

    def e_yieldfrom(self, n: ast.YieldFrom) -> V:
        v = self.eval(n.value)
        hook = self.frame.on_yield
        if isinstance(v, Gen):
            return self.run_generator(v, hook or (lambda x: self.library.handed_out(x, n)), n)
        for x in self.iterate(v, n):
            if hook is not None:
                hook(x)
            else:
                self.library.handed_out(x, n)
        return self.fresh("<sent>")

    def e_await(self, n: ast.Await) -> V:
        v = self.eval(n.value)
        if isinstance(v, Future):
            return v.value
        return v

    def e_binop(self, n: ast.BinOp) -> V:
        a, b = self.eval(n.left), self.eval(n.right)
        return self.library.binary(a, b, n)

    def e_unaryop(self, n: ast.UnaryOp) -> V:
        if isinstance(n.op, ast.Not):
            v = self.eval(n.operand)
            if isinstance(v, Const):
                return Const(not v.value)
            if isinstance(v, Tensor):
                self.library.host_value(v, n, "not")
            got = self.sym(self.vn(("not", self.key(v))), "<not>", "host")
            neg, key = self.aliases.get(getattr(v, "vn", -1), (False, ("truth", self.key(v))))
            self.aliases[got.vn] = (not neg, key)
            return got
        v = self.eval(n.operand)
        if isinstance(v, Const) and isinstance(v.value, (int, float)):
            try:
                return Const(-v.value if isinstance(n.op, ast.USub) else ~v.value if isinstance(n.op, ast.Invert) else v.value)
            except TypeError:
                pass
        return self.library.unary(v, n)

    def e_boolop(self, n: ast.BoolOp) -> V:
        last: V = NONE
        for i, x in enumerate(n.values):
            last = self.eval(x)
            if i == len(n.values) - 1:
                return last
            if isinstance(last, Const):
                if bool(last.value) == isinstance(n.op, ast.Or):
                    return last
                continue
            if isinstance(n.op, ast.Or):
                if isinstance(last, Sym):
                    strong = not STRONG.isdisjoint(words(n.values[i + 1]))
                    if self.decide(("truth", self.key(last)), not strong, flip=strong):
                        return last
                else:
                    return last
            elif isinstance(last, Sym):
                if not self.decide(("truth", self.key(last)), True, flip=False):
                    return last
        return last

    def as_tensor(self, v: V) -> V:
        """In a capture: a parameter that is known for a tensor, as one."""
        known = self.capture is not None and isinstance(v, Sym) and v.block is not None and "declared" in v.block.notes
        return self.library.tensor(v) if known else v

    def e_compare(self, n: ast.Compare) -> V:
        a = self.as_tensor(self.eval(n.left))
        keys = [self.key(a)]
        values = [a]
        for c in n.comparators:
            v = self.as_tensor(self.eval(c))
            values.append(v)
            keys.append(self.key(v))
        if any(isinstance(v, Tensor) for v in values) and not isinstance(n.ops[0], (ast.Is, ast.IsNot, ast.In, ast.NotIn)):
            return self.library.compute([v for v in values], n, "compare")
        if len(n.ops) == 1:
            got = self.compare(n.ops[0], values[0], values[1], n)
            if isinstance(got, bool):
                return Const(got)
            neg, key = got
            if key in self.conds:
                return Const(self.conds[key] != neg)
            got = self.sym(self.vn(("cmp", neg, key)), "<comparison>", "host")
            self.aliases[got.vn] = (neg, key)
            return got
        return self.sym(self.vn(("cmp", tuple(type(o).__name__ for o in n.ops), tuple(keys))), "<comparison>")

    def e_ifexp(self, n: ast.IfExp) -> V:
        strong = not STRONG.isdisjoint(words(n.body)), not STRONG.isdisjoint(words(n.orelse))
        default = strong[0] or not strong[1]
        if isinstance(n.body, ast.Constant) and n.body.value is None:
            default = False
        taken = self.truth(n.test, default, flip=any(strong))
        return self.eval(n.body if taken else n.orelse)

    def e_lambda(self, n: ast.Lambda) -> V:
        f = _nested.get(n)
        if f is None:
            f = _nested[n] = self.frame.module.function(n, None)
        return Func(f, None, self.frame)

    def e_seq(self, n) -> V:
        items: list[V] = []
        self.walked.append(Seq(items))
        try:
            return self.display(n, items)
        finally:
            self.walked.pop()

    def display(self, n, items: list[V]) -> V:
        more = False
        for e in n.elts:
            if isinstance(e, ast.Starred):
                v = self.eval(e.value)
                if isinstance(v, Seq):
                    items += v.items
                    more |= v.more
                else:
                    more = True
            else:
                items.append(self.eval(e))
        return Seq(items, {ast.Tuple: "tuple", ast.List: "list", ast.Set: "set"}[type(n)], more)

    def e_dict(self, n: ast.Dict) -> V:
        m = Map({}, self.vn(("dict", len(self.vns))))
        for k, v in zip(n.keys, n.values):
            value = self.eval(v)
            if k is None:
                if isinstance(value, Map):
                    m.items.update(value.items)
                continue
            m.items[self.map_key(m, self.eval(k))] = value
        return m

    def map_key(self, m: Map, k: V) -> Any:
        key = self.key(k)
        self.__dict__.setdefault("_mapkeys", {})[(id(m), key)] = k
        return key

    def e_comp(self, n) -> V:
        gen = n.generators
        out: list[V] = []
        known = [True]
        m = Map({}, self.vn(("dict", len(self.vns)))) if isinstance(n, ast.DictComp) else None
        saved = dict(self.frame.env)

        def go(i: int) -> None:
            if i == len(gen):
                if m is not None:
                    k = self.eval(n.key)
                    m.items[self.map_key(m, k)] = self.kept(self.eval(n.value), list(m.items.values()), n)
                else:
                    out.append(self.kept(self.eval(n.elt), out, n))
                return
            it = self.eval(gen[i].iter)
            if not (isinstance(it, Seq) and not it.more or isinstance(it, Range) and isinstance(it.stop, Const)):
                known[0] = False
            if isinstance(it, Gen):
                got: list[V] = []
                self.run_generator(it, got.append, n)
                it = Seq(got)
            for v in self.iterate(it, gen[i].iter):
                self.assign(gen[i].target, v, n)
                if all(self.truth(c, True, flip=False) for c in gen[i].ifs):
                    go(i + 1)

        go(0)
        env = self.frame.env
        for k in list(env):
            if k not in saved:
                del env[k]
        env.update({k: v for k, v in saved.items()})
        if m is not None:
            return m
        return Seq(out, "set" if isinstance(n, ast.SetComp) else "list", not known[0])

    def kept(self, v: V, others: list[V], n: ast.AST) -> V:
        """What a display or a comprehension takes, beside what it has."""
        if not self.graphs:
            return v
        self.library.kept_beside(others, v, n, "a container")
        return self.library.stamp(v)

    def e_joined(self, n: ast.JoinedStr) -> V:
        parts: list = []
        for v in n.values:
            if isinstance(v, ast.Constant):
                parts.append(v.value)
            if isinstance(v, ast.FormattedValue):
                x = self.eval(v.value)
                parts.append(self.key(x))
                self.library.reported(x)
                if isinstance(x, Tensor):
                    self.library.host_value(x, v.value, "formatting")
                elif isinstance(x, Sym) and self.library.tensorish(x):
                    self.uncertain.append(self.library.tick())  # its text may be its value
        got = self.sym(self.vn(("str", *parts)), "<text>", "host")
        if len(parts) == 2 and parts[0] == "cuda:":
            self.library.devices_named[got.vn] = parts[1]
        return got

    def e_named(self, n: ast.NamedExpr) -> V:
        v = self.eval(n.value)
        self.assign(n.target, v, n)
        return v

    def e_starred(self, n: ast.Starred) -> V:
        return self.eval(n.value)

    # ------------------------------------------------------------------ the life of memory
    def left(self, frame: Frame, result: V, n: ast.AST) -> None:
        """A function has returned: what only its names held is released."""
        if self.candidates:
            self.released(n)

    def maybe_released(self, old: V, s: ast.AST, name: bool = False) -> None:
        if self.captured:
            self.replaced(old, s, name)
        if self.candidates and (isinstance(old, (Tensor, Seq, Map, Obj)) or isinstance(old, Sym) and old.block is not None):
            self.released(s)

    def released(self, s: ast.AST) -> None:
        """Which of the blocks that another stream has used are held by nothing any more."""
        if not self.candidates:
            return
        held = self.held()
        for uid, block in list(self.candidates.items()):
            if uid not in held:
                del self.candidates[uid]
                self.library.free(block, s)

    def replaced(self, old: V, s: ast.AST, name: bool = False, assumptions: tuple[str, ...] = ()) -> None:
        """A name, an attribute or an element means something else: is the memory of a graph lost with what it meant?"""
        mine = self.library.blocks_in(old)
        if not self.captured.keys().isdisjoint(mine):
            given = name and not (isinstance(old, Sym) and old.hint == "param" and self.capture is None)
            self.lost(s, only=mine, given=given, assumptions=assumptions)

    def lost(self, s: ast.AST, frame: Frame | None = None, more: list = (), only: set[int] | None = None, given: bool = True,
             assumptions: tuple[str, ...] = ()) -> None:
        """Which memory of graphs the program holds no more, since something was replaced, or a function has returned.

        Args:
            frame: that of the function.
            more: values that are held by an expression.
            only: what was replaced.
            given: whether somebody else holds what this code has not made.
        """
        held = self.held([*more, *self.returned])
        for uid, block in list(self.captured.items()):
            if uid in held or not block.seen and (given or uid not in (only or ())):
                continue
            del self.captured[uid]
            site = self.bound_at(frame, uid) or block.home if frame is not None else self.site(s)
            theirs = not block.seen and isinstance(s, ast.Assign) and isinstance(s.targets[0], ast.Name)
            block.lost = Loss(site, self.seq, (*assumptions, "given") if theirs else assumptions)

    def bound_at(self, frame: Frame, uid: int):
        """Where the name was bound by which a function held a block."""
        for name, v in frame.env.items():
            if uid in self.library.blocks_in(v) and name in frame.sites:
                return (frame.module, frame.sites[name])
        return None

    def held(self, more: list = ()) -> set[int]:
        """The blocks that something in sight holds."""
        seen: set[int] = set()
        blocks: set[int] = {self.library.grads.uid}
        todo: list = [*more, *self.walked]
        for f in self.frames:
            todo += f.env.values()
            c = f.closure
            while c is not None:
                todo += c.env.values()
                c = c.closure
        todo += self.globals.values()
        todo += self.fields.values()
        todo += self.memo.values()
        todo += self.likes.values()  # elements of containers that are known by others
        todo += self.roots
        while todo:
            v = todo.pop()
            if id(v) in seen:
                continue
            seen.add(id(v))
            if isinstance(v, Tensor):
                blocks.add(v.block.uid)
            elif isinstance(v, Sym):
                if v.block is not None:
                    blocks.add(v.block.uid)
            elif isinstance(v, Seq):
                todo += v.items
            elif isinstance(v, Map):
                todo += v.items.values()
            elif isinstance(v, Obj):
                todo += v.fields.values()
            elif isinstance(v, (Lazy, Partial)):
                todo += [a for a in v.args if isinstance(a, V)]
            elif isinstance(v, Graphed):
                todo += [*v.inputs, v.result]
            elif isinstance(v, Gen):
                todo += v.args
            elif isinstance(v, Func):
                if v.self_ is not None:
                    todo.append(v.self_)
                if v.closure is not None:
                    todo += v.closure.env.values()
            elif isinstance(v, (Work, Future)):
                t = getattr(v, "tensor", None) or getattr(v, "value", None)
                if t is not None:
                    todo.append(t)
            elif isinstance(v, Bound):
                todo.append(v.receiver)
        return blocks

    # ------------------------------------------------------------------ conflicts
    def conflict(self, block: Block, first: Access, second: Access) -> None:
        self.library.conflict(block, first, second)


def _is_tensor_test(n: ast.expr) -> bool:
    return isinstance(n, ast.Call) and isinstance(n.func, ast.Name) and n.func.id == "isinstance" and len(n.args) == 2 \
        and dotted(n.args[1]).endswith(("Tensor", "ndarray"))


_nested: dict[ast.AST, Function] = {}
_BUILTINS = frozenset(dir(__builtins__) if not isinstance(__builtins__, dict) else __builtins__)

_STATEMENTS = {
    ast.Expr: Machine.s_expr, ast.Assign: Machine.s_assign, ast.AnnAssign: Machine.s_annassign, ast.AugAssign: Machine.s_augassign,
    ast.Return: Machine.s_return, ast.Raise: Machine.s_raise, ast.Break: Machine.s_break, ast.Continue: Machine.s_continue,
    ast.If: Machine.s_if, ast.While: Machine.s_while, ast.For: Machine.s_for, ast.AsyncFor: Machine.s_for, ast.With: Machine.s_with,
    ast.AsyncWith: Machine.s_with, ast.Try: Machine.s_try, ast.Delete: Machine.s_delete, ast.FunctionDef: Machine.s_function,
    ast.AsyncFunctionDef: Machine.s_function, ast.Import: Machine.s_import, ast.ImportFrom: Machine.s_import, ast.Assert: Machine.s_assert,
    ast.Match: Machine.s_match,
}
_EXPRESSIONS = {
    ast.Constant: Machine.e_constant, ast.Name: Machine.e_name, ast.Attribute: Machine.e_attribute, ast.Subscript: Machine.e_subscript,
    ast.Call: Machine.e_call, ast.BinOp: Machine.e_binop, ast.UnaryOp: Machine.e_unaryop, ast.BoolOp: Machine.e_boolop,
    ast.Compare: Machine.e_compare, ast.IfExp: Machine.e_ifexp, ast.Lambda: Machine.e_lambda, ast.Tuple: Machine.e_seq, ast.List: Machine.e_seq,
    ast.Set: Machine.e_seq, ast.Dict: Machine.e_dict, ast.ListComp: Machine.e_comp, ast.SetComp: Machine.e_comp,
    ast.GeneratorExp: Machine.e_comp, ast.DictComp: Machine.e_comp, ast.JoinedStr: Machine.e_joined, ast.NamedExpr: Machine.e_named,
    ast.Yield: Machine.e_yield, ast.YieldFrom: Machine.e_yieldfrom, ast.Await: Machine.e_await, ast.Starred: Machine.e_starred,
}
