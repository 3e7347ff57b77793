"""No Python there is makes `streamsafe check` crash: the standard library, and stream code in every kind of statement.

`benchmarks/nocrash.py` does the same for whole trees.
"""

from __future__ import annotations

import json
import subprocess
import sys
import sysconfig
import textwrap
from pathlib import Path
from typing import Any

import pytest

STDLIB = Path(sysconfig.get_path("stdlib"))
STDLIB_FILES = 120
LARGEST = 20_000  # bytes: many different files rather than a few large ones


def check(*arguments: str) -> tuple[int, list[dict[str, Any]]]:
    command = [sys.executable, "-m", "streamsafe", "check", "--isolated", "--no-prefilter"]
    command += ["--confidence=possible", "--output-format=json"]
    result = subprocess.run([*command, *arguments], capture_output=True, text=True, check=False)
    assert "Traceback" not in result.stderr, result.stderr
    assert "internal error" not in result.stderr, result.stderr
    assert result.returncode in (0, 1), result.stderr
    findings: list[dict[str, Any]] = json.loads(result.stdout)
    return result.returncode, findings


def test_standard_library_is_silent() -> None:
    """A hundred files and more, evenly spread, each interpreted: no crash, nothing unparsable, and no finding."""
    files = [
        path
        for path in sorted(STDLIB.rglob("*.py"))
        if not {"test", "tests", "site-packages", "lib2to3"} & set(path.parts)
        and path.stat().st_size <= LARGEST
    ]
    step = max(1, len(files) // STDLIB_FILES)
    sample = files[::step]
    assert len(sample) >= STDLIB_FILES // 2
    code, findings = check(*map(str, sample))
    assert findings == []
    assert code == 0


PRELUDE = """
import contextlib, asyncio, functools
import torch
import cupy as cp
s = torch.cuda.Stream()
e = torch.cuda.Event()
x = torch.zeros(4, device="cuda")
"""

ODD = {
    "walrus": """
        with torch.cuda.stream(t := torch.cuda.Stream()):
            y = (z := x + 1)
        print(z.item(), y)""",
    "walrus in comprehension": "ys = [w for i in range(3) if (w := x + i) is not None]\nprint(ys)",
    "star assignment": """
        a, *b, (c, *d) = x, s, e, (x, s, e)
        with torch.cuda.stream(d[0]):
            b[0] = a + c""",
    "starred call": "f = lambda *a, **k: a\nf(*[x, s], **{'stream': s}, **dict(e=e))",
    "augmented everything": "x += 1; x @= x; x[0] -= 1; x[1:2].data *= 2; s.foo = 1; s.foo += x",
    "chained assignment": "a = b = c = x[0] = torch.cuda.Stream()\na.wait_stream(b)",
    "annotated, no value": "t: torch.cuda.Stream\nt: torch.cuda.Stream = s\nt.wait_stream(s)",
    "delete": "del x, s\nd = {1: e}\ndel d[1], d",
    "global and nonlocal": """
        def outer():
            t = None
            def inner():
                nonlocal t
                global s
                t = s = torch.cuda.Stream()
            inner()
            with torch.cuda.stream(t):
                return x + 1
        outer()""",
    "match": """
        def f(v):
            match v:
                case torch.Tensor(shape=[n, *_], device=d) if n: v.record_stream(s)
                case {"stream": t, **rest}: t.wait_stream(s)
                case [torch.cuda.Stream() as t, *others] | (t, *others): t.synchronize()
                case 1 | "a" | None | True | -1.5 + 2j: pass
                case str() | bytes(): return
                case _ as whatever: print(whatever)
        f(x)""",
    "try in loop in try": """
        try:
            for i in range(3):
                try:
                    with torch.cuda.stream(s):
                        y = x + i
                        if i: continue
                    break
                except (ValueError, *()) as error:
                    raise RuntimeError from error
                except:
                    pass
                else:
                    e.record(s)
                finally:
                    s.synchronize()
            else:
                torch.cuda.current_stream().wait_stream(s)
        finally:
            del e""",
    "while else": """
        while x.item() > 0:
            x = x - 1
            if x.sum(): break
        else:
            s.wait_event(e)""",
    "while true without exit": """
        def f():
            while True:
                with torch.cuda.stream(s):
                    y = x + 1
        f()""",
    "async": """
        async def f(it, lock):
            async with lock as l, contextlib.AsyncExitStack() as st:
                async for t in it:
                    with torch.cuda.stream(s):
                        y = await t
            return [v async for v in it if await v], {k: v async for k, v in it}
        asyncio.run(f(x, s))""",
    "generators": """
        def g():
            with torch.cuda.stream(s):
                got = yield x + 1
                yield from (v + 1 for v in [got, x])
            return x
        for v in g(): v.sum().item()
        next(g()); g().send(x); list(g())""",
    "lambda and closures": """
        fs = [lambda t=s, *a, k=x, **kw: t.wait_stream(k) for s in (s, s)]
        (lambda: (lambda: fs[0]())())()
        functools.reduce(lambda a, b: a + b, [x, x])""",
    "comprehensions": """
        a = {k: v for k, v in zip([s], [x])}
        b = {torch.cuda.Stream() for _ in range(3)}
        c = [[t.wait_stream(u) for t in b if t] for u in b for _ in [0]]
        d = sum(v.sum() for v in a.values())""",
    "recursion": """
        def f(n, t): return f(n - 1, t) if n else g(t)
        def g(t):
            with torch.cuda.stream(t): return f(1, t)
        f(3, s)
        def h(): return h
        h()()()""",
    "class oddities": """
        class Meta(type):
            def __call__(cls, *a): return super().__call__(*a)
        class A(metaclass=Meta):
            s = torch.cuda.Stream(); x: torch.Tensor = torch.zeros(1)
            if s:
                def f(self): return self.s
            else:
                f = None
            class B(A if False else object): t = s
            def __init_subclass__(cls, **kw): pass
            @property
            def p(self): return self._p
            @p.setter
            def p(self, v): self._p = v
            @staticmethod
            def st(t): t.synchronize()
            @classmethod
            def make(cls): return cls()
            def __enter__(self): self.c = torch.cuda.stream(self.s); self.c.__enter__(); return self
            def __exit__(self, *a): return self.c.__exit__(*a)
            def __getattr__(self, n): return getattr(self.s, n)
            def __del__(self): self.s.synchronize()
        class C(A, key=1): f = A.f; __slots__ = ("q",)
        with A() as a, C.make() as c: a.p = x + 1; a.B.t.wait_stream(a.s); c.q = a.p; c.nothing()""",
    "class that inherits from itself": """
        class A(A): pass
        class B(C): pass
        class C(B): pass
        B().s.wait_stream(C().t)""",
    "self without class": """
        def f(self):
            self.s = torch.cuda.Stream()
            self.s.wait_stream(self)
            self = s""",
    "method without self": """
        class A:
            def f(): torch.cuda.stream(s)
            def g(*self): self.s = s
            def h(*, a): a""",
    "decorators": """
        @torch.no_grad()
        @functools.wraps(s.wait_stream)
        @(lambda f: f)
        @contextlib.contextmanager
        def ctx(t):
            try:
                with torch.cuda.stream(t) as u: yield u
            finally: t.synchronize()
        with ctx(s) as a, ctx(a): y = x + 1""",
    "context managers": """
        with contextlib.ExitStack() as st, contextlib.nullcontext() if e else torch.cuda.stream(s):
            st.enter_context(torch.cuda.stream(s)); st.callback(s.synchronize); st.pop_all().close()
        with (torch.cuda.stream(s), open("f") as f, torch.cuda.device(0),): x.cpu()
        with torch.cuda.stream(None): x + 1
        with torch.cuda.stream(): pass
        with torch.cuda.stream(s, s, unknown=1): pass
        with s: pass""",
    "wrong arguments": """
        torch.cuda.Stream(1, 2, 3, 4, a=1); s.wait_stream(); s.wait_event(1, 2); e.record(None); e.wait("x")
        x.record_stream(); x.to(); x.copy_(); x.to("cpu", "cuda", True, True, 5, non_blocking=s)
        torch.cuda.current_stream("nowhere").wait_stream(torch.cuda.default_stream(s)); torch.cuda.set_stream()
        cp.cuda.Stream(null=True, ptds=1).use().use(); cp.asnumpy(); x.get(blocking=0, out=None, stream=())""",
    "subscripts": """
        d = {}
        d[s] = d.get(e, [])[0:1, ..., None, ::2, s] = x
        d[d][d](d)[0]().wait_stream(d[-1][+1][~1][not 1])""",
    "rebound modules": """
        torch = s
        torch.cuda.Stream = lambda: None
        import torch.cuda as torch
        torch.Stream()
        from torch import *""",
    "relative and star imports": """
        from . import a
        from .. import *
        from .b.c import d as torch
        torch.cuda.stream(d)""",
    "captures": """
        g = torch.cuda.CUDAGraph()
        with torch.cuda.graph(g, pool=g.pool(), stream=s):
            y = x + 1
            with torch.cuda.graph(g): pass
            if y.item(): return_ = y
        g.replay(); g.reset(); g.replay(); g.capture_end(); g.capture_begin(); g.capture_begin()
        s2 = cp.cuda.Stream(); s2.begin_capture(); s2.end_capture().launch(); s2.end_capture()""",
    "autograd function": """
        class F(torch.autograd.Function):
            @staticmethod
            def forward(ctx, a, *b): ctx.s = s; ctx.save_for_backward(a); return a + 1
            @staticmethod
            def backward(ctx, g): (a,) = ctx.saved_tensors; ctx.s.wait_stream(s); return g * a, None
        y = F.apply(x.requires_grad_()); y.backward(gradient=torch.ones_like(y)); x.grad.sum().item()
        y.register_hook(lambda g: g + 1); torch.autograd.grad([y], [x], grad_outputs=[y], retain_graph=True)""",
    "strings and numbers": """
        f'{x!r:>{s}} {(lambda: s)()} {{}}' f'{e}' 'a' "b"
        1_000j, 0xFF, 1e3, ..., b'x' rb'y', None
        print(f'{x.sum().item():.3f}', __file__, __name__)""",
    "boolean tangle": """
        y = x and s or e if not s else (s is None) is not (x in [s] not in [e]) < 1 < x <= 2 != 3
        assert s, x
        assert (y := x) is s""",
    "statements that do nothing": """
        pass
        ...
        'docstring'
        if 1: pass
        elif 2: pass
        else: pass""",
    "deep attribute chain": "x" + ".a" * 200 + "\nx" + "[0]" * 200 + "\nx" + "()" * 100,
    "deep if": "\n".join("    " * i + f"if x[{i}]:" for i in range(60))
    + "\n"
    + "    " * 60
    + "s.wait_stream(s)",
    "long elif chain": "if x == 0: pass\n" + "\n".join(f"elif x == {i}: e.record(s)" for i in range(150)),
    "many branches on streams": """
        if c0: s.wait_stream(t0)
        if c1: s.wait_stream(t1)
        if c2: s.wait_stream(t2)
        if c3: s.wait_stream(t3)
        if c4: s.wait_stream(t4)
        if c5: s.wait_stream(t5)
        if c6: s.wait_stream(t6)
        if c7: s.wait_stream(t7)
        if c8: s.wait_stream(t8)
        if c9: s.wait_stream(t9)
        if c10: s.wait_stream(t10)
        if c11: s.wait_stream(t11)
        if c12: s.wait_stream(t12)
        if c13: s.wait_stream(t13)
        if c14: s.wait_stream(t14)
        if c15: s.wait_stream(t15)
        if c16: s.wait_stream(t16)
        if c17: s.wait_stream(t17)
        if c18: s.wait_stream(t18)
        if c19: s.wait_stream(t19)
        if c20: s.wait_stream(t20)
        if c21: s.wait_stream(t21)
        if c22: s.wait_stream(t22)
        if c23: s.wait_stream(t23)
        if c24: s.wait_stream(t24)
        if c25: s.wait_stream(t25)
        if c26: s.wait_stream(t26)
        if c27: s.wait_stream(t27)
        if c28: s.wait_stream(t28)
        if c29: s.wait_stream(t29)
        if c30: s.wait_stream(t30)
        if c31: s.wait_stream(t31)
        if c32: s.wait_stream(t32)
        if c33: s.wait_stream(t33)
        if c34: s.wait_stream(t34)
        if c35: s.wait_stream(t35)
        if c36: s.wait_stream(t36)
        if c37: s.wait_stream(t37)
        if c38: s.wait_stream(t38)
        if c39: s.wait_stream(t39)
        x + 1""",
    "many loops in each other": "\n".join("    " * i + f"for i{i} in x:" for i in range(15))
    + "\n"
    + "    " * 15
    + "with torch.cuda.stream(s): x = x + 1",
    "long sum": "y = " + " + ".join(["x"] * 400),
    "threads": """
        import threading, concurrent.futures
        def work(q):
            with torch.cuda.stream(s): q.put(x + 1)
        t = threading.Thread(target=work, args=(x,), daemon=True); t.start(); t.join()
        with concurrent.futures.ThreadPoolExecutor() as pool: pool.submit(work, x).result(); pool.map(work, [x])""",
    "tabs, continuation, semicolons": "if s:\n\twith torch.cuda.stream(s): \\\n\t\ty = x + \\\n1; z = y; del z\n",
    "unicode names": """
        ström = torch.cuda.Stream()
        with torch.cuda.stream(ström): µ = x + 1  # ünïcödé
        print(µ.item())""",
    "type parameters in comments and casts": """
        y = x  # type: torch.Tensor
        from typing import cast
        t = cast('torch.cuda.Stream', s)
        t.wait_stream(s)""",
    "eval, exec, getattr, setattr": """
        exec("s.wait_stream(s)"); eval("x"); getattr(torch.cuda, "Stream")(); setattr(x, "s", s); vars()["s"]
        globals()["x"] + 1
        locals().update(s=e); getattr(s, "wait_" + "stream")(s); __import__("torch").cuda.Stream()""",
}


def variants(body: str) -> dict[str, str]:
    """A snippet at module level, in a function and in a method: those of the three that are valid Python."""
    text = textwrap.dedent(body).strip("\n")
    texts = {
        "module": f"{PRELUDE}{text}\n",
        "function": f"{PRELUDE}def function(*args):\n{textwrap.indent(text, '    ')}\n",
        "method": f"{PRELUDE}class K:\n    def __init__(self):\n        self.s = s\n"
        f"    def method(self, *args):\n{textwrap.indent(text, '        ')}\n",
    }
    return {kind: text for kind, text in texts.items() if is_python(text)}


def is_python(text: str) -> bool:
    try:
        compile(text, "snippet", "exec", dont_inherit=True)
    except SyntaxError:
        return False
    return True


@pytest.mark.filterwarnings("ignore::SyntaxWarning")
def test_stream_code_in_every_kind_of_statement(tmp_path: Path) -> None:
    """Each snippet stands at module level, in a function and in a method; none crashes, and all parse."""
    for number, (name, body) in enumerate(ODD.items()):
        texts = variants(body)
        assert texts, f"{name} is not Python"
        for kind, text in texts.items():
            (tmp_path / f"{kind}_{number}.py").write_text(text, encoding="utf-8")
    _, findings = check(str(tmp_path))
    assert [finding for finding in findings if finding["code"] == "SS900"] == []


ONCE_CRASHED = {
    "a key without a letter": """
        def named(x, flag):
            with torch.cuda.stream(side):
                y = x.cuda(non_blocking=True)
            groups = {}
            if flag:
                groups[""] = y
                groups["a"] = x
            else:
                groups["b"] = x
            torch.cuda.current_stream().wait_stream(side)
            return groups
    """,
    "threads of a dict, by several keys": """
        class Worker:
            def __init__(self, names):
                self.requests = queue.Queue()
                self.threads = {name: threading.Thread(target=self.main) for name in names}

            def start(self, names, again):
                for name in names:
                    self.threads[name].start()
                if again:
                    for name, thread in self.threads.items():
                        thread.start()

            def main(self):
                while True:
                    work = self.requests.get()
                    with torch.cuda.stream(side):
                        work.copy_(work, non_blocking=True)

            def put(self, x, name):
                if name:
                    thread = self.threads[name]
                else:
                    thread = self.threads[name] = threading.Thread(target=self.main)
                thread.start()
                self.requests.put(x)
                self.requests.join()
                return x.sum()
    """,
}


@pytest.mark.parametrize("name", ONCE_CRASHED)
def test_what_once_crashed(name: str, tmp_path: Path) -> None:
    head = "import queue\nimport threading\n\nimport torch\n\nside = torch.cuda.Stream()\n\n"
    path = tmp_path / "case.py"
    path.write_text(head + textwrap.dedent(ONCE_CRASHED[name]), encoding="utf-8")
    check(str(path))
