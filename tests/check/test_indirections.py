"""What carries an object, or runs a function, does not change the verdict: the same hazard with each way of Python.

Each indirection is one generated module, with a hazard and a silent twin.
"""

from __future__ import annotations

import textwrap
from dataclasses import dataclass

import pytest

from tests.check import not_shown
from tests.check.evalfiles import check_tree, write_tree


@dataclass(frozen=True)
class Core:
    """A hazard: what is made and carried, what happens, what orders it, and what then is no hazard any more."""

    code: str
    make: str
    first: str
    order: str
    second: str


CORES = {
    "stream": Core(
        "SS111",
        "torch.cuda.Stream()",
        "with torch.cuda.stream({it}):\n    loss.backward()",
        "torch.cuda.current_stream().wait_stream({it})",
        "return w.grad.sum()",
    ),
    "pinned": Core(
        "SS301",
        "torch.empty(8, pin_memory=True)",
        "{it}.copy_(x, non_blocking=True)",
        "torch.cuda.synchronize()",
        "return {it}.sum().item()",
    ),
    "event": Core(
        "SS301",
        "torch.cuda.Event()",
        'host = x.to("cpu", non_blocking=True)\n{it}.record()',
        "{it}.synchronize()",
        "return host.sum().item()",
    ),
}

BOX = "class Box:\n    def __init__(self, held):\n        self.held = held\n"
# name -> (what the module holds, what the function begins with, how the object is spelled then)
OBJECTS = {
    "attribute": (BOX, "box = Box({make})", "box.held"),
    "class_attribute": ("class Box:\n    held = {make}", "", "Box.held"),
    "property": (
        "class Box:\n    def __init__(self):\n        self._held = None\n    @property\n    def held(self):\n"
        "        if self._held is None:\n            self._held = {make}\n        return self._held",
        "box = Box()",
        "box.held",
    ),
    "property_of_method": (
        f"{BOX}    def get(self):\n        return self.held\n    it = property(get)",
        "box = Box({make})",
        "box.it",
    ),
    "cached_property": (
        "import functools\nclass Box:\n    @functools.cached_property\n    def held(self):\n        return {make}",
        "box = Box()",
        "box.held",
    ),
    "dataclass": (
        "import dataclasses\n@dataclasses.dataclass\nclass Box:\n    size: int\n    held: object = None",
        "box = dataclasses.replace(Box(1), held={make})",
        "box.held",
    ),
    "default_factory": (
        "import dataclasses\n@dataclasses.dataclass\nclass Box:\n"
        "    held: object = dataclasses.field(default_factory=lambda: {make})",
        "box = Box()",
        "box.held",
    ),
    "named_tuple": (
        "from typing import NamedTuple\nclass Pair(NamedTuple):\n    size: int\n    held: object",
        "size, held = Pair(1, {make})",
        "held",
    ),
    "namedtuple": (
        "import collections\nPair = collections.namedtuple('Pair', 'size held')",
        "pair = Pair(1, {make})",
        "pair[1]",
    ),
    "namespace": ("import types", "box = types.SimpleNamespace(held={make})", "box.held"),
    "dict": ("", "held = {'a': {'b': {make}}}", "held['a']['b']"),
    "dict_of_pairs": ("", "held = dict([('a', {make})])", "held['a']"),
    "dict_zipped": ("", "held = dict(zip(['a', 'b'], [None, {make}]))", "held['b']"),
    "dict_merged": ("", "held = {'a': 1} | {'b': {make}}", "held['b']"),
    "dict_unpacked": ("", "held = {'a': 1, **{'b': {make}}}", "held['b']"),
    "dict_of_tuples": ("", "held = {('a', 1): {make}}", "held['a', 1]"),
    "dict_get": ("", "held = {'a': {make}}", "held.get('a')"),
    "dict_subclass": ("class Held(dict):\n    pass", "held = Held(a={make})", "held['a']"),
    "list_last": ("", "held = [None]\nheld += [{make}]", "held[-1]"),
    "list_slice": ("", "held = [None]\nheld[:] = [None, {make}]", "held[1:][0]"),
    "list_subclass": ("class Held(list):\n    pass", "held = Held([{make}])", "held[0]"),
    "list_in_place": ("def fill(out):\n    out.append({make})", "held = []\nfill(held)", "held[0]"),
    "starred": ("", "*others, held = [1, 2, {make}]", "held"),
    "unzipped": ("", "numbers, held = zip(*[(1, {make})])", "held[0]"),
    "comprehension": ("", "held, other = [{make} for _ in range(2)]", "held"),
    "generator": ("def gen():\n    yield {make}", "held = next(gen())", "held"),
    "generator_loop": ("def gen():\n    yield {make}", "for held in gen():\n    break", "held"),
    "iterable": (
        f"{BOX}    def __iter__(self):\n        yield self.held\n        yield 1",
        "held, one = Box({make})",
        "held",
    ),
    "filtered": ("", "held = list(filter(None, [None, {make}]))", "held[0]"),
    "closure": (
        "def outer():\n    held = {make}\n    def get():\n        return held\n    return get",
        "get = outer()",
        "get()",
    ),
    "nonlocal": ("", "held = None\ndef fill():\n    nonlocal held\n    held = {make}\nfill()", "held"),
    "global": ("HELD = None\ndef fill():\n    global HELD\n    HELD = {make}", "fill()", "HELD"),
    "module": ("HELD = {}\nHELD['a'] = {make}", "", "HELD['a']"),
    "cache_by_key": (
        "HELD = {}\ndef get(key):\n    try:\n        return HELD[key]\n    except KeyError:\n"
        "        HELD[key] = {make}\n        return HELD[key]",
        "",
        "get(0)",
    ),
    "memoized": (
        "import functools\n@functools.lru_cache(maxsize=None)\ndef get():\n    return {make}",
        "",
        "get()",
    ),
    "default_argument": ("def get(held={make}):\n    return held", "", "get()"),
    "function_attribute": (
        "def get():\n    if not hasattr(get, 'held'):\n        get.held = {make}\n    return get.held",
        "",
        "get()",
    ),
    "partial": (
        "import functools\ndef same(held):\n    return held",
        "get = functools.partial(same, {make})",
        "get()",
    ),
    "arguments": (
        "def pick(*args, **kwargs):\n    return kwargs.get('b', args[0])",
        "held = pick(1, b={make})",
        "held",
    ),
    "match": ("", "match [{make}, 1]:\n    case [held, *_]:\n        pass", "held"),
    "getattr": (BOX, "box = Box({make})", "getattr(box, 'held')"),
    "setattr": ("class Box:\n    pass", "box = Box()\nsetattr(box, 'held', {make})", "box.held"),
    "dict_of_object": (
        "class Box:\n    def __init__(self, **options):\n        self.__dict__.update(options)",
        "box = Box(held={make})",
        "box.held",
    ),
    "proxy": (
        f"{BOX}class Proxy:\n    def __init__(self, inner):\n        self.inner = inner\n"
        "    def __getattr__(self, name):\n        return getattr(self.inner, name)",
        "box = Proxy(Box({make}))",
        "box.held",
    ),
    "super": (
        f"{BOX}class Inner(Box):\n    def __init__(self):\n        super().__init__({{make}})",
        "box = Inner()",
        "box.held",
    ),
    "abstract": (
        "class Box:\n    def __init__(self):\n        self.held = self.made()\n    def made(self):\n"
        "        return None\n"
        "class Inner(Box):\n    def made(self):\n        return {make}",
        "box = Inner()",
        "box.held",
    ),
    "singleton": (
        "class Box:\n    one = None\n    def __new__(cls):\n        if cls.one is None:\n"
        "            cls.one = super().__new__(cls)\n            cls.one.held = {make}\n        return cls.one",
        "",
        "Box().held",
    ),
    "context": (
        "import contextlib\n@contextlib.contextmanager\ndef lent():\n    yield {make}",
        "with contextlib.ExitStack() as stack:\n    held = stack.enter_context(lent())",
        "held",
    ),
    "context_variable": (
        "import contextvars\nHELD = contextvars.ContextVar('held')",
        "HELD.set({make})",
        "HELD.get()",
    ),
    "thread_local": (
        "import threading\nLOCAL = threading.local()\ndef get():\n    if not hasattr(LOCAL, 'held'):\n"
        "        LOCAL.held = {make}\n    return LOCAL.held",
        "",
        "get()",
    ),
    "coroutine": (
        "import asyncio\nasync def made():\n    return {make}",
        "held = asyncio.run(made())",
        "held",
    ),
    "recursion": (
        "def made(n):\n    if n == 0:\n        return {make}\n    return made(n - 1)",
        "held = made(3)",
        "held",
    ),
}

METHOD = "class Run:\n    def __init__(self, do):\n        self.do = do\n"
# name -> (what the module holds, how a function `{f}` of `loss` and `side` is run)
RUNS = {
    "lambda": ("", "(lambda: {f}(loss, side))()"),
    "starred": ("", "{f}(*(loss, side))"),
    "partial": ("import functools", "functools.partial({f}, loss)(side)"),
    "table": ("", "{'a': {f}}['a'](loss, side)"),
    "callbacks": ("", "for callback in [{f}]:\n    callback(loss, side)"),
    "map": ("", "list(map({f}, [loss], [side]))"),
    "reduce": ("import functools", "functools.reduce(lambda n, _: {f}(loss, side), [0], None)"),
    "wrapped": (
        "import functools\ndef wrap(f):\n    @functools.wraps(f)\n    def inner(*args, **kwargs):\n"
        "        return f(*args, **kwargs)\n    return inner",
        "wrap(wrap({f}))(loss, side=side)",
    ),
    "retried": (
        "def retry(f, *args):\n    for attempt in range(3):\n        try:\n            return f(*args)\n"
        "        except RuntimeError:\n            if attempt == 2:\n                raise",
        "retry({f}, loss, side)",
    ),
    "attribute": (METHOD, "Run({f}).do(loss, side)"),
    "called": (f"{METHOD}    def __call__(self, *args):\n        self.do(*args)", "Run({f})(loss, side)"),
    "operator": (
        f"{METHOD}    def __add__(self, other):\n        self.do(*other)",
        "Run({f}) + (loss, side)",
    ),
    "length": (
        f"{METHOD}    def __len__(self):\n        self.do(*self.given)\n        return 1",
        "run = Run({f})\nrun.given = loss, side\nlen(run)",
    ),
    "setter": (
        f"{METHOD}    @property\n    def given(self):\n        return 1\n    @given.setter\n"
        "    def given(self, value):\n"
        "        self.do(*value)",
        "Run({f}).given = (loss, side)",
    ),
    "entered": (
        f"{METHOD}    def __enter__(self):\n        self.do(*self.given)\n    def __exit__(self, *exc):\n"
        "        return False",
        "run = Run({f})\nrun.given = loss, side\nwith run:\n    pass",
    ),
    "delegated": (
        f"{METHOD}class Outer:\n    def __init__(self, inner):\n        self.inner = inner\n"
        "    def __getattr__(self, name):\n        return getattr(self.inner, name)",
        "Outer(Run({f})).do(loss, side)",
    ),
    "generator": (
        "def gen(f, loss, side):\n    yield 1\n    f(loss, side)\n    yield 2",
        "steps = gen({f}, loss, side)\nnext(steps)\nnext(steps)",
    ),
    "sent": (
        "def gen(f):\n    loss, side = yield\n    f(loss, side)\n    yield 1",
        "steps = gen({f})\nnext(steps)\nsteps.send((loss, side))",
    ),
    "context_left": (
        "import contextlib\n@contextlib.contextmanager\ndef around(f, loss, side):\n    try:\n        yield\n"
        "    finally:\n"
        "        f(loss, side)",
        "with around({f}, loss, side):\n    pass",
    ),
    "stack": (
        "import contextlib",
        "with contextlib.ExitStack() as stack:\n    stack.callback({f}, loss, side)",
    ),
    "coroutine": (
        "import asyncio\nasync def later(f, loss, side):\n    f(loss, side)\nasync def both(f, loss, side):\n"
        "    await asyncio.gather(later(f, loss, side))",
        "asyncio.run(both({f}, loss, side))",
    ),
    "case": ("", "match 'a':\n    case 'b':\n        pass\n    case 'a' | 'c':\n        {f}(loss, side)"),
    "recursion": (
        "def down(n, f, *args):\n    if n:\n        return down(n - 1, f, *args)\n    return f(*args)",
        "down(2, {f}, loss, side)",
    ),
    "finally": ("", "try:\n    pass\nfinally:\n    {f}(loss, side)"),
    "broken_loop": ("", "while True:\n    {f}(loss, side)\n    break"),
}


def carried(core: Core, way: tuple[str, str, str]) -> str:
    """A module in which an object reaches a hazard by an indirection."""
    module, begin, spelled = (text.replace("{make}", core.make) for text in way)
    functions = []
    for name, order in (("bad", ""), ("good", core.order)):
        body = "\n".join(part for part in (begin, core.first, order, core.second) if part)
        functions.append(f"def {name}(loss, w, x):\n{textwrap.indent(body.replace('{it}', spelled), '    ')}")
    return "\n\n\n".join(["import torch", module, *functions]) + "\n"


def run(way: tuple[str, str]) -> str:
    """A module in which something else runs a backward pass, and what joins its stream."""
    module, call = way
    core = CORES["stream"]
    acts = [
        f"def {name}(loss, side):\n{textwrap.indent(text.replace('{it}', 'side'), '    ')}"
        for name, text in (("act", core.first), ("join", core.order))
    ]
    functions = []
    for name, steps in (("bad", ("act",)), ("good", ("act", "join"))):
        body = "\n".join(
            ["side = torch.cuda.Stream()", *(call.replace("{f}", f) for f in steps), core.second]
        )
        functions.append(f"def {name}(loss, w):\n{textwrap.indent(body, '    ')}")
    return "\n\n\n".join(["import torch", module, *acts, *functions]) + "\n"


FILES = {
    **{
        f"{kind}/{name}": (core.code, carried(core, c))
        for kind, core in CORES.items()
        for name, c in OBJECTS.items()
    },
    **{f"run/{name}": (CORES["stream"].code, run(way)) for name, way in RUNS.items()},
}


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[tuple[str, str]]]:
    """File -> the codes found in it, each with the function in which it is found."""
    files = {f"{name}.py": text for name, (_, text) in FILES.items()}
    results = check_tree(write_tree(tmp_path_factory.mktemp("indirections"), files))
    placed: dict[str, list[tuple[str, str]]] = {}
    for name, findings in results.items():
        good = files[name].split("def good(")[0].count("\n") + 1
        placed[name.removesuffix(".py")] = [(f.code, "good" if f.row >= good else "bad") for f in findings]
    return placed


@pytest.mark.parametrize("name", FILES)
def test_indirection(name: str, found: dict[str, list[tuple[str, str]]]) -> None:
    shown, code = set(found.get(name, [])), FILES[name][0]
    if shown != {(code, "bad")}:
        what = "other alarms" if shown else "missing alarm"
        assert not_shown.known(f"test_indirections.py {name} {code} {what}"), FILES[name][1]
