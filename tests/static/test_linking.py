"""Hazards that lie in several files of a project: one makes, another one uses."""

from __future__ import annotations

import json
import textwrap
from functools import lru_cache
from pathlib import Path

import pytest
from click.testing import CliRunner

from streamsafe.cli import main
from streamsafe.static import linking, modules

MOVER = """
    import torch

    class Mover:
        def __init__(self):
            self.side = torch.cuda.Stream()

        def fetch(self, host):
            with torch.cuda.stream(self.side):
                return host.to("cuda", non_blocking=True)

        def join(self, moved):
            torch.cuda.current_stream().wait_stream(self.side)
            moved.record_stream(torch.cuda.current_stream())

    def fetch(mover, host):
        return mover.fetch(host)
"""
FETCH = "moved = mover.fetch(host)"


def _trainer(imports: str, made: str = "mover = Mover()", fetch: str = FETCH) -> str:
    return f"""\
import torch
{imports}

def train(host):
    {made}
    {fetch}
    {{join}}
    return moved.sum()
"""


JOIN, RACES = "mover.join(moved)", "pass"
SUBCLASS = """\
import torch
from .mover import Mover

class Trainer(Mover):
    def run(self, host):
        mover = self
        moved = self.fetch(host)
        {join}
        return moved.sum()
"""
INSIDE = """\
import torch

def train(host):
    from .mover import Mover
    mover = Mover()
    moved = mover.fetch(host)
    {join}
    return moved.sum()
"""
ANNOTATED = """\
from __future__ import annotations
from typing import TYPE_CHECKING
import torch

if TYPE_CHECKING:
    from .mover import Mover

def train(mover: Mover, host):
    moved = mover.fetch(host)
    {join}
    return moved.sum()
"""
WAYS: dict[str, dict[str, str]] = {
    "a class of a module beside": {"trainer": _trainer("from .mover import Mover")},
    "an absolute import": {"trainer": _trainer("from pkg.mover import Mover")},
    "another name": {"trainer": _trainer("from .mover import Mover as M", "mover = M()")},
    "the module": {"trainer": _trainer("from . import mover as m", "mover = m.Mover()")},
    "the module by its own name": {"trainer": _trainer("from pkg import mover as it", "mover = it.Mover()")},
    "the module, by a dotted import": {"trainer": _trainer("import pkg.mover as m", "mover = m.Mover()")},
    "handed on by a third module": {
        "api": "from .mover import Mover\n",
        "trainer": _trainer("from .api import Mover"),
    },
    "handed on by the package": {
        "__init__": "from .mover import Mover\n",
        "trainer": _trainer("from . import Mover"),
    },
    "an import inside the function": {"trainer": INSIDE},
    "several names over several rows": {
        "trainer": _trainer(
            "from .mover import (\n    Mover,\n    fetch as get,\n)", fetch="moved = get(mover, host)"
        )
    },
    "a base class": {"trainer": SUBCLASS},
    "a parameter with an annotation": {"trainer": ANNOTATED},
}
"""How a file comes to what another one makes -> the files beside ``mover.py``."""


def _package(root: Path, files: dict[str, str]) -> Path:
    package = root / "pkg"
    package.mkdir()
    for name, text in {"__init__": "", **files}.items():
        (package / f"{name}.py").write_text(textwrap.dedent(text).lstrip("\n"), encoding="utf-8")
    return package


def _found(*arguments: str | Path) -> list[dict[str, object]]:
    command = ["check", "--isolated", "--output-format", "json", *map(str, arguments)]
    result = CliRunner().invoke(main, command, catch_exceptions=False)
    return list(json.loads(result.stdout))


def _places(*arguments: str | Path) -> list[tuple[str, str, int]]:
    return sorted(
        (str(each["code"]), Path(str(each["filename"])).stem, each["location"]["row"])  # type: ignore[index]
        for each in _found(*arguments)
    )


def _row(text: str, part: str) -> int:
    return 1 + next(row for row, line in enumerate(text.splitlines()) if part in line)


@pytest.mark.parametrize("name", WAYS)
def test_what_another_file_makes(name: str, tmp_path: Path) -> None:
    files = {"mover": MOVER, **WAYS[name]}
    text = files["trainer"].format(join=RACES)
    package = _package(tmp_path, {**files, "trainer": text})
    lives_on = name in ("a parameter with an annotation", "a base class")  # the mover outlives the call
    codes = ["SS101", "SS201"] if lives_on else ["SS101"]
    assert _places(package) == [(code, "trainer", _row(text, "sum()")) for code in codes]
    (package / "trainer.py").write_text(files["trainer"].format(join=JOIN), encoding="utf-8")
    assert _places(package) == []


def test_both_places_are_in_their_own_files(tmp_path: Path) -> None:
    text = _trainer("from . import mover as m", "mover = m.Mover()", "moved = m.fetch(mover, host)")
    package = _package(tmp_path, {"mover": MOVER, "trainer": text.format(join=RACES)})
    (found,) = _found(package)
    assert found["location"] == {"row": 8, "column": 12}
    shown = CliRunner().invoke(main, ["check", "--isolated", str(package)], catch_exceptions=False).stdout
    assert "mover.py:9:20" in shown
    assert 'return host.to("cuda", non_blocking=True)' in shown


def test_scripts_beside_each_other(tmp_path: Path) -> None:
    text = _trainer("from mover import Mover").format(join=RACES)
    for name, written in {"mover": textwrap.dedent(MOVER), "trainer": text}.items():
        (tmp_path / f"{name}.py").write_text(written, encoding="utf-8")
    assert _places(tmp_path) == [("SS101", "trainer", 8)]


CALLER = """
    import torch
    from .pool import Pool

    class Runner:
        def __init__(self):
            self.pool = Pool(64)

        def step(self, values, table):
            {before}
            self.pool.fill(values)
            return self.pool.upload() @ table
"""
POOL = """
    import torch
    from .buffers import Buffer

    class Pool:
        def __init__(self, rows):
            self.buffer = Buffer(rows)

        def fill(self, values):
            self.buffer.host[: len(values)] = values

        def upload(self):
            return self.buffer.to_device()
"""
BUFFERS = """
    import torch

    class Buffer:
        def __init__(self, rows):
            self.host = torch.zeros(rows, pin_memory=True)
            self.device = torch.zeros(rows, device="cuda")

        def to_device(self):
            return self.device.copy_(self.host, non_blocking=True)
"""


def test_a_caller_in_a_third_file_decides(tmp_path: Path) -> None:
    """Without its callers a pool is refilled while it is copied; the caller that is there waits before."""
    files = {"pool": POOL, "buffers": BUFFERS}
    package = _package(
        tmp_path, {**files, "runner": CALLER.format(before="torch.cuda.current_stream().synchronize()")}
    )
    assert _places(package) == []
    (package / "runner.py").write_text(
        textwrap.dedent(CALLER.format(before="torch.cuda.current_stream()")), encoding="utf-8"
    )
    assert _places(package) == [("SS302", "pool", 9)]
    assert _places(package / "pool.py", package / "runner.py") == [("SS302", "pool", 9)]
    assert _places(package / "runner.py") == []  # shown where it is named only


RING = """
    import cupy as cp
    import cupyx

    class Ring:
        def __init__(self, rows):
            self.lane = cp.cuda.Stream(non_blocking=True)
            self.done = cp.cuda.Event(disable_timing=True)
            self.host = cupyx.zeros_pinned(rows, dtype="f4")
            self.device = cp.zeros(rows, dtype="f4")
            cp.cuda.get_current_stream().synchronize()

        def put(self, values):
            self.host[:] = values

        def push(self):
            self.device.set(self.host, stream=self.lane)

        def mark(self, stream):
            self.done.record(stream)

        def free(self):
            self.done.synchronize()
"""
FEED = """
    from .ring import Ring

    class Feed:
        def __init__(self, rows):
            self.ring = Ring(rows)

        def step(self, values):
            self.ring.put(values)
            self.ring.push()
            {order}
"""
OUTBOX = """
    import torch

    class Outbox:
        def __init__(self, rows):
            self.side = torch.cuda.Stream()
            self.host = torch.empty(rows, pin_memory=True)

        def send(self, x):
            self.side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(self.side):
                self.host.copy_(x, non_blocking=True)
                x.record_stream(self.side)

        def read(self):
            return self.host.tolist()
"""
STEP = """
    from . import Outbox

    def step(x, outbox: Outbox):
        outbox.send(x)
        {order}
        return outbox.read()
"""
STAGES = """
    import torch

    class Stages:
        def __init__(self, rows):
            self.first = torch.cuda.Stream()
            self.second = torch.cuda.Stream()
            self.between = torch.zeros(rows, device="cuda")
            self.out = torch.zeros(rows, device="cuda")
            torch.cuda.synchronize()

        def fill(self, value):
            with torch.cuda.stream(self.first):
                self.between.fill_(value)

        def drain(self):
            with torch.cuda.stream(self.second):
                self.out.copy_(self.between)
"""
QUEUED = """
    from collections import deque

    class Requests:
        def __init__(self):
            self.waiting = deque()

        def add(self, request):
            self.waiting.append(request)

        def next(self):
            return self.waiting.popleft() if self.waiting else None
"""
LOOP = """
    from .requests import Requests
    from .stages import Stages

    class Loop:
        def __init__(self, rows):
            self.stages = Stages(rows)
            self.requests = Requests()

        def run(self):
            while True:
                request = self.requests.next()
                if request is None:
                    return
                self.stages.fill(request)
                {order}
                self.stages.drain()
                self.stages.first.wait_stream(self.stages.second)
                self.requests.add(request)
"""
SAVER = """
    import torch

    class Saver:
        def __init__(self, pages: list[torch.Tensor], event: torch.cuda.Event):
            self.pages = pages
            self.event = event
            self.side = torch.cuda.Stream()
            self.host = [torch.empty(page.shape, pin_memory=True) for page in pages]

        def save(self):
            self.side.wait_event(self.event)
            with torch.cuda.stream(self.side):
                for host, page in zip(self.host, self.pages):
                    host.copy_(page, non_blocking=True)
            self.side.synchronize()
"""
PAGES = """
    import torch
    from .saver import Saver

    class Pages:
        def __init__(self, count, rows):
            self.pages = [torch.zeros(rows, device="cuda") for _ in range(count)]
            self.written = torch.cuda.Event()
            self.saver = Saver(self.pages, self.written)

        def step(self, x: torch.Tensor):
            for page in self.pages:
                page.copy_(x)
            {order}
            self.saver.save()
"""
LOGGED = """
    import cupy as cp

    class Log:
        def __init__(self, total: cp.ndarray):
            self.total = total
            self.lane = cp.cuda.Stream(non_blocking=True)

        def note(self):
            with self.lane:
                line = self.total.sum()
            self.lane.synchronize()
            return line
"""
RUNS = """
    import cupy as cp
    from .log import Log as Journal

    class Run:
        def __init__(self, rows):
            self.total = cp.zeros(rows)
            self.log = Journal(self.total)

        def step(self, x: cp.ndarray):
            cp.add(self.total, x, out=self.total)
            {order}
            return self.log.note()
"""
TIMING = """
    import time
    from contextlib import contextmanager

    class Timer:
        def __enter__(self):
            self.begin = time.perf_counter()
            return self

        def __exit__(self, *exception):
            self.seconds = time.perf_counter() - self.begin

    @contextmanager
    def timed(label, log):
        begin = time.perf_counter()
        yield
        log[label] = time.perf_counter() - begin

    def measured(function):
        def call(*args):
            begin = time.perf_counter()
            result = function(*args)
            print(time.perf_counter() - begin)
            return result

        return call
"""
TIMED = """
    import torch
    from .timing import Timer

    def bench(n):
        a = torch.randn(n, n, device="cuda")
        with Timer() as timer:
            a = a @ a
            {order}
        return timer.seconds, a
"""
TIMED_BY_A_GENERATOR = """
    import torch
    from .timing import timed

    def bench(n, log):
        a = torch.randn(n, n, device="cuda")
        with timed("product", log):
            a = a @ a
            {order}
        return a
"""
TIMED_BY_A_DECORATOR = """
    import torch
    from .timing import measured

    @measured
    def product(a, b):
        c = a @ b
        {order}
        return c

    def bench(n):
        a = torch.randn(n, n, device="cuda")
        return product(a, a)
"""
REGISTERED = """
    import torch

    KINDS = dict()

    def register(name):
        def wrap(cls):
            KINDS[name] = cls
            return cls

        return wrap

    def kind(name):
        if name not in KINDS:
            raise KeyError(name)
        return KINDS[name]

    @register("ahead")
    class Ahead:
        def __init__(self):
            self.copies = torch.cuda.Stream()

        def fetch(self, block):
            with torch.cuda.stream(self.copies):
                return block.to("cuda", non_blocking=True)

        def join(self, moved):
            torch.cuda.current_stream().wait_stream(self.copies)
            moved.record_stream(torch.cuda.current_stream())

    @register("plain")
    class Plain:
        def fetch(self, block):
            return block.to("cuda")

        def join(self, moved):
            pass
"""
ASKED_BY_NAME = """
    from .kinds import kind

    class Runner:
        def __init__(self, name, weight):
            self.backend = kind(name)()
            self.weight = weight
            self.kept = []

        def step(self, block):
            moved = self.backend.fetch(block)
            {order}
            self.kept.append(moved)
            return moved @ self.weight
"""

CALLED: dict[str, tuple[dict[str, str], str, tuple[str, str, str]]] = {
    "an event that the caller has recorded": (
        {"ring": RING, "feed": FEED},
        "self.ring.mark(self.ring.lane); self.ring.free()",
        ("SS302", "ring", "self.host[:] = values"),
    ),
    "a function that waits between two calls": (
        {"__init__": "from .outbox import Outbox\n", "outbox": OUTBOX, "step": STEP},
        "outbox.side.synchronize()",
        ("SS301", "outbox", "tolist"),
    ),
    "an event of the caller that what it calls waits for": (
        {"saver": SAVER, "pages": PAGES},
        "self.written.record()",
        ("SS103", "saver", "host.copy_"),
    ),
    "a write of the same call, under another name of the class": (
        {"log": LOGGED, "runs": RUNS},
        "self.log.lane.wait_event(cp.cuda.get_current_stream().record())",
        ("SS101", "log", "self.total.sum()"),
    ),
    "a loop over what others put into a queue": (
        {"stages": STAGES, "requests": QUEUED, "loop": LOOP},
        "self.stages.second.wait_stream(self.stages.first)",
        ("SS101", "stages", "self.out.copy_"),
    ),
    "a clock that a class reads": (
        {"timing": TIMING, "bench": TIMED},
        "torch.cuda.synchronize()",
        ("SS311", "timing", "self.seconds ="),
    ),
    "a clock that a context manager reads": (
        {"timing": TIMING, "bench": TIMED_BY_A_GENERATOR},
        "a.sum().item()",
        ("SS311", "timing", "log[label] ="),
    ),
    "a clock that a decorator reads": (
        {"timing": TIMING, "bench": TIMED_BY_A_DECORATOR},
        "torch.cuda.synchronize()",
        ("SS311", "timing", "print("),
    ),
    "a class that is registered and asked for by its name": (
        {"kinds": REGISTERED, "runner": ASKED_BY_NAME},
        "self.backend.join(moved)",
        ("SS101", "runner", "return moved"),
    ),
}
"""Files of which one calls another's methods, what orders them, and what is shown where nothing does."""


@pytest.mark.parametrize("name", CALLED)
def test_who_calls_the_methods_of_an_object_orders_them(name: str, tmp_path: Path) -> None:
    """A file alone shows what its methods do in any order; a caller that is in sight decides."""
    files, order, (code, stem, part) = CALLED[name]
    *_, caller = files
    shown = [(code, stem, _row(textwrap.dedent(files[stem]).lstrip("\n"), part))]
    package = _package(tmp_path, {**files, caller: files[caller].format(order="pass")})
    assert _places(package) == shown
    (package / f"{caller}.py").write_text(
        textwrap.dedent(files[caller]).lstrip("\n").format(order=order), encoding="utf-8"
    )
    assert _places(package) == []


def test_rows_of_a_linked_text_are_those_of_their_files(tmp_path: Path) -> None:
    text = _trainer("from .mover import Mover").format(join=RACES)
    mover = '"""Moves."""\n\nRATE = 3\n\n' + textwrap.dedent(MOVER)
    package = _package(tmp_path, {"mover": mover, "trainer": text})
    linked = linking.link(str(package / "trainer.py"), frozenset({"Mover"}))
    assert linked is not None
    for stem, part in {"mover": "return host.to", "trainer": "return moved.sum"}.items():
        row = _row(linked.text, part)
        there = _row((package / f"{stem}.py").read_text(encoding="utf-8"), part)
        assert linked.place(row, row) == (str(package / f"{stem}.py"), there, there)


def test_who_makes_an_object_without_calling_its_methods_orders_nothing(tmp_path: Path) -> None:
    """The hazard is only possible: whoever makes the object decides what is done with it."""
    feed = FEED.replace("self.ring.put(values)", "self.ring.lane.synchronize()")
    feed = feed.replace("self.ring.push()", "return").format(order="")
    package = _package(tmp_path, {"ring": RING, "feed": feed})
    assert _places(package) == []
    assert "SS302" in {code for code, *_ in _places(package, "--confidence", "possible")}


def _race(imports: str = "from .mover import Mover") -> dict[str, str]:
    return {"mover": MOVER, "trainer": _trainer(imports).format(join=RACES)}


def test_a_name_that_means_something_else_is_not_linked(tmp_path: Path) -> None:
    """Two files have a class of one name: what is used of the one is not taken for the other."""
    own = "\n\nclass Mover:\n    def fetch(self, host):\n        return host.cuda()\n"
    files = _race("from .mover import fetch")
    files["trainer"] = files["trainer"] + own
    assert _places(_package(tmp_path, files)) == []


@pytest.mark.parametrize("broken", ["def f(:\n", "\0", "from .trainer import train\n"])
def test_a_module_that_cannot_be_linked_costs_nothing_else(tmp_path: Path, broken: str) -> None:
    files = _race("from .other import x\nfrom .mover import Mover")
    places = _places(_package(tmp_path, {**files, "other": broken}))
    assert [place for place in places if place[0] != "SS900"] == [("SS101", "trainer", 9)]


def test_files_that_are_forgotten_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Parsed files are kept for a while only: what is linked does not depend on it."""
    monkeypatch.setattr(modules, "module_of", lru_cache(maxsize=1)(modules.module_of.__wrapped__))
    package = _package(
        tmp_path,
        {
            **_race("from . import mover as m\nfrom .mover import Mover"),
            "__init__": "from .mover import Mover\n",
        },
    )
    assert _places(package, "--jobs", "1") == [("SS101", "trainer", 9)]


def test_a_variable_that_functions_assign_has_no_known_value(tmp_path: Path) -> None:
    """It is None only until it is set up: what comes after a check that it is set is not dead code."""
    files = _race("from .other import group\nfrom .mover import Mover")
    files["trainer"] = files["trainer"].replace("mover = Mover()", "mover = Mover(); group()")
    other = """\
        _GROUP = None

        def set_up(group):
            global _GROUP
            _GROUP = group

        def group():
            assert _GROUP is not None
            return _GROUP
        """
    assert _places(_package(tmp_path, {**files, "other": other})) == [("SS101", "trainer", 9)]


def test_an_attribute_that_functions_assign_has_no_known_value(tmp_path: Path) -> None:
    """So it is with what an object of the module holds until somebody sets it up."""
    files = _race("from .other import group\nfrom .mover import Mover")
    files["trainer"] = files["trainer"].replace("mover = Mover()", "mover = Mover(); group()")
    other = """\
        class Groups:
            def __init__(self):
                self.ring = None

        GROUPS = Groups()

        def set_up(group):
            GROUPS.ring = group

        def group():
            assert GROUPS.ring is not None
            return GROUPS.ring
        """
    assert _places(_package(tmp_path, {**files, "other": other})) == [("SS101", "trainer", 9)]


def test_all_names_of_a_module_handed_on(tmp_path: Path) -> None:
    files = _race("from .all import Mover")
    hub = {"all": "from .mover import *\nfrom .trainer import *\n"}
    assert _places(_package(tmp_path, {**files, **hub})) == [("SS101", "trainer", 8)]


def test_imports_in_a_circle(tmp_path: Path) -> None:
    files = _race()
    files["mover"] += "\n    from .trainer import train\n"
    assert _places(_package(tmp_path, files)) == [("SS101", "trainer", 8)]


def test_a_limit_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = _package(tmp_path, _race())
    (package / "trainer.py").write_text("s = torch.cuda.Stream()\n" + _race()["trainer"], encoding="utf-8")
    monkeypatch.setattr(linking, "STATEMENTS", 3)
    command = ["check", "--isolated", "--jobs", "1", "-v", str(package)]
    result = CliRunner().invoke(main, command, catch_exceptions=False)
    assert "the file with what it imports" in result.output
    assert "No hazards" in result.output


def test_neither_order_nor_processes_matter(tmp_path: Path) -> None:
    package = _package(tmp_path, _race())
    padding = "import torch\nx = torch.cuda.Stream()\n" + "# x\n" * 70_000
    (package / "padding.py").write_text(padding, encoding="utf-8")
    both = [package / "trainer.py", package / "mover.py", package / "padding.py"]
    assert _found(*both, "--jobs", "1") == _found(*reversed(both), "--jobs", "2") != []


def test_a_suppression_where_the_hazard_is_shown(tmp_path: Path) -> None:
    files = _race()
    files["trainer"] = files["trainer"].replace("moved.sum()", "moved.sum()  # noqa: SS101")
    assert _places(_package(tmp_path, files)) == []


SPLIT: dict[str, tuple[str, str]] = {
    "lines that end as on Windows": ("\n", "\r\n"),
    "a form feed in a class": ("\n\n        def fetch", "\n\f\n        def fetch"),
    "a row of a header that begins at the margin": ("(self, host):", "(self,\nhost):"),
    "quotes in a string": ("import torch\n", "import torch\nQUOTES = \"'''\"\n"),
    "a string that holds code": ("import torch\n", 'import torch\nCODE = """\nclass Mover:\n    pass\n"""\n'),
}
"""How a module is written that a text does not show its statements plainly -> what is replaced, and by what."""


@pytest.mark.parametrize("case", SPLIT)
def test_a_module_is_split_as_python_reads_it(tmp_path: Path, case: str) -> None:
    old, new = SPLIT[case]
    package = _package(tmp_path, _race())
    text = (package / "mover.py").read_text(encoding="utf-8")
    changed = text.replace(old.replace("\n        ", "\n    "), new.replace("\n        ", "\n    "))
    assert changed != text
    (package / "mover.py").write_text(changed, encoding="utf-8", newline="")
    assert _places(package) == [("SS101", "trainer", 8)]


CIRCLES = {
    "names of all modules": ("from .trainer import *\nfrom .mover import *\n", ""),
    "a name that none has": (
        "from .trainer import *\nfrom .mover import *\n",
        "from . import nowhere\nnowhere()\n",
    ),
}
"""How a package imports from a module that imports from it -> its text, and what the module has beside."""


@pytest.mark.parametrize("case", CIRCLES)
def test_all_names_in_a_circle(tmp_path: Path, case: str) -> None:
    text, more = CIRCLES[case]
    files = _race("from . import Mover")
    files["trainer"] += more
    assert _places(_package(tmp_path, {**files, "__init__": text})) == [("SS101", "trainer", 8)]


WHAT_IT_DOES = """\
import torch
from pkg.{module} import Store, put_aside

def step(x, side: torch.cuda.Stream):
    store = Store()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        y = x * 2
    {call}
    torch.cuda.current_stream().wait_stream(side)
    return y
"""
STORE = """\
KEPT = []

def put_aside(value):
    KEPT.append(value{more})

class Store:
    def __init__(self):
        self.kept = []

    def put(self, value):
        self.kept.append(value{more})
"""


@pytest.mark.parametrize("call", ["put_aside(y)", "store.put(y)"])
@pytest.mark.parametrize("module", ["store", "handed_on"])
def test_what_another_file_keeps(module: str, call: str, tmp_path: Path) -> None:
    """A function that only stores a tensor does not use it; one that computes with it does."""
    handed_on = "from .store import Store, put_aside\n"
    files = {"step": WHAT_IT_DOES.format(module=module, call=call), "handed_on": handed_on}
    package = _package(tmp_path, {**files, "store": STORE.format(more="")})
    assert _places(package) == []
    (package / "store.py").write_text(STORE.format(more=" + 1"), encoding="utf-8")
    assert [code for code, _, _ in _places(package)] == ["SS101"]


BUFFER = """
    import torch

    class Buffer:
        def __init__(self, rows):
            self.side = torch.cuda.Stream()
            self.rows = torch.zeros(rows, device="cuda")

        def fill(self, batch: torch.Tensor):
            self.side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(self.side):
                self.rows.copy_(batch, non_blocking=True)

        def forward(self, weight: torch.Tensor):
            torch.matmul(weight, self.rows)

        def total(self):
            return self.rows.sum()
"""
USERS: dict[str, tuple[str, set[str]]] = {
    "nobody": ("", {"forward", "total"}),
    "calls of something else": (
        "def use(b, x):\n    b.fill(x)\n    return b.total()\n",
        {"forward", "total"},
    ),
    "an object of unknown kind": ("KIND = {'buffer': Buffer}\n", set()),
    "only in words": ("def use(b):\n    '''b = Buffer(3)'''\n    # b = Buffer(3)\n", {"forward", "total"}),
    "a class that derives from it, and is not used": (
        "class Other(Buffer):\n    pass\n",
        {"forward", "total"},
    ),
    "a class that derives from it, and is used": (
        "class Other(Buffer):\n    pass\nKIND = {'buffer': Other}\n",
        set(),
    ),
    "a class that derives from it, and is registered": (
        "@register('other')\nclass Other(Buffer):\n    pass\n",
        set(),
    ),
    "a class that derives from it, with fields": (
        "@dataclass\nclass Other(Buffer):\n    pass\n",
        {"forward", "total"},
    ),
    "itself": (
        "class Other(Buffer):\n    def another(self):\n        return Other(3)\n",
        {"forward", "total"},
    ),
    "another class of the name": (
        "class Buffer:\n    pass\nKIND = {'buffer': Buffer}\n",
        {"forward", "total"},
    ),
}
"""What another file of the tree does, and the methods that show a hazard with ``fill``."""


@pytest.mark.parametrize("name", USERS)
def test_two_methods_of_a_class_that_the_tree_uses_are_left_to_its_calls(name: str, tmp_path: Path) -> None:
    """Where the class is used its users decide which methods are called, and in which order: nothing is guessed."""
    text, methods = USERS[name]
    package = _package(
        tmp_path,
        {"buffer": BUFFER, "users": f"from .buffer import Buffer\n{text}"},
    )
    lines = textwrap.dedent(BUFFER).lstrip("\n")
    rows = {"forward": _row(lines, "torch.matmul"), "total": _row(lines, "self.rows.sum")}
    assert {row for _, _, row in _places(package)} == {rows[method] for method in methods}
