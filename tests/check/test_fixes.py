"""The edit that a finding carries adds the missing edge: what it was found for is not found any more."""

from __future__ import annotations

import ast
import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from streamsafe.cli import main
from streamsafe.findings.edits import apply
from streamsafe.order import lines
from streamsafe.order.hazard import Edge, Facts, Named, Span
from streamsafe.order.lines import current
from streamsafe.repairs.advice import timing
from streamsafe.repairs.edges import handed_out, insertion, visible
from streamsafe.report.record import Record, records
from tests.check.evalfiles import (
    FIXTURES,
    EvalFile,
    report,
    report_of_fixtures,
    report_of_programs,
    write_tree,
)
from tests.conftest import SHARE as PARTS

ROWS = FIXTURES.parent / "runtime" / "rows"


def by_name(found: list[dict[str, Any]], root: Path) -> dict[str, list[Record]]:
    """File name relative to a root -> its findings of a report; of files elsewhere none."""
    by_file: dict[str, list[Record]] = defaultdict(list)
    for record in records(found):
        assert record.place is not None
        path = Path(record.place.filename)
        if path.is_relative_to(root.resolve()):
            by_file[path.relative_to(root.resolve()).as_posix()].append(record)
    return by_file


def static() -> list[dict[str, Any]]:
    return [each for each in report_of_fixtures() if each["confidence"] != "possible"]


def rounds(root: Path, found: dict[str, list[Record]]) -> Iterator[dict[str, list[Record]]]:
    """The findings with an unsafe repair in groups: in each, one in every definition of every file."""
    left = {
        name: [each for each in here if each.fix is not None and each.fix.applicability == "unsafe"]
        for name, here in found.items()
    }
    while any(left.values()):
        chosen: dict[str, list[Record]] = {}
        for name, here in left.items():
            file = EvalFile(root / name, (root / name).read_text(encoding="utf-8"))
            first: dict[str, Record] = {}
            for record in here:
                assert record.place is not None
                first.setdefault(file.definition_at(record.place.row), record)
            chosen[name] = list(first.values())
            left[name] = [each for each in here if not any(each is one for one in chosen[name])]
        yield chosen


def by_definition(file: EvalFile, found: list[Record]) -> Counter[tuple[str, str]]:
    """How many findings of a code each definition has; repairs move rows."""
    return Counter(
        (file.definition_at(each.place.row), each.code) for each in found if each.place is not None
    )


@pytest.mark.parametrize(
    ("root", "asked", "share"),
    [(FIXTURES, static, 0.6), (ROWS, report_of_programs, 0.6)],
    ids=["static", "rows"],
)
def test_a_fix_ends_its_finding(
    tmp_path: Path,
    root: Path,
    asked: Callable[[], list[dict[str, Any]]],
    share: float,
    pytestconfig: pytest.Config,
) -> None:
    """The repairs of the fixtures, one in each definition at a time: each finding is gone, and no other one appears.

    In the usual run these are the first of each definition in every sixth file, at another
    commit in others.

    A hazard may get another code: an initial gradient that is ordered but not recorded was one that was not ordered
    (SS113, SS112), and where there is a wait now, another pair has one that does not cover it (SS103).
    """
    every = pytestconfig.getoption("--all")
    found = by_name(asked(), root)
    fixed = sum(each.fix is not None for here in found.values() for each in here)
    assert fixed >= share * sum(map(len, found.values()))
    if not every:
        found = {name: found[name] for name in sorted(found)[0::PARTS]}
    wrong = {}
    groups = rounds(root, found)
    if not every:
        groups = islice(groups, 1)
    for number, chosen in enumerate(groups):
        files, expected = {}, {}
        for name, here in chosen.items():
            file = EvalFile(root / name, (root / name).read_text(encoding="utf-8"))
            edits = [edit for each in here if each.fix is not None for edit in each.fix.edits]
            files[name] = apply(file.text.encode(), edits).decode()
            ast.parse(files[name])
            expected[name] = left = by_definition(file, found[name])
            left.subtract(by_definition(file, here))
            for definition, code in [*left]:
                renamed = {"SS112": "SS113", "SS101": "SS103", "SS102": "SS103"}.get(code)
                if renamed is not None:
                    repaired = any(
                        file.definition_at(each.place.row) == definition for each in here if each.place
                    )
                    left[definition, renamed] += repaired * (left[definition, code] + (code == "SS112"))
        after = by_name(report(write_tree(tmp_path / str(number), files)), tmp_path / str(number))
        for name, left in expected.items():
            new = EvalFile(tmp_path / name, files[name])
            now = by_definition(new, after.get(name, []))
            if now - +left:
                wrong[name] = now - +left
    assert wrong == {}


BODY = """
import torch
s = torch.cuda.Stream()
t = torch.cuda.Stream()
def f(x, n):
{}
"""
HERE = current("torch", "torch")
WAIT = Edge("wait", Named("s", "s"), HERE)
ENTER = Edge("wait", HERE, Named("s", "s"), when="current")


def waits_for(stream: str) -> Edge:
    """The host waits for a stream."""
    return Edge("synchronize", Named(stream, stream))


@pytest.mark.parametrize(
    ("body", "edge", "row"),
    [
        ("with torch.cuda.stream(s):\n    x += 1\ny = x.sum()", WAIT, 3),
        ("with torch.cuda.stream(s):\n    x += 1\nif n:\n    y = x.sum()", WAIT, 4),
        ("with torch.cuda.stream(s):\n    x += 1\nif x.sum():\n    pass", WAIT, 3),
        ("for _ in n:\n    with torch.cuda.stream(s):\n        x += 1\n    y = x.sum()", WAIT, 4),
        ("with torch.cuda.stream(s):\n    x += 1\nwith torch.no_grad():\n    y = x.sum()", WAIT, 4),
        ("x += 1\nwith torch.cuda.stream(s):\n    y = x.sum()", ENTER, 2),
        ("x += 1\nwith torch.no_grad():\n    with torch.cuda.stream(s):\n        y = x.sum()", ENTER, 3),
        ("with torch.cuda.stream(s):\n    x += 1\ny = [x.sum() for _ in n]", WAIT, 3),
        ("with torch.cuda.stream(s):\n    x += 1\ny = sum(x.sum() for _ in n)", WAIT, 3),
        ("with torch.cuda.stream(s):\n    x += 1\ndef g():\n    return x.sum()", WAIT, 4),
        # no place is certain
        ("with torch.cuda.stream(s):\n    x += 1\nwhile x.sum():\n    pass", WAIT, None),
        ("with torch.cuda.stream(s):\n    x += 1\nif n: y = x.sum()", WAIT, None),
        ("with torch.cuda.stream(s):\n    x += 1\nn = 1; y = x.sum()", WAIT, None),
        ("with torch.cuda.stream(s):\n    x += 1\nif n:\n    pass\nelif x.sum():\n    pass", WAIT, None),
        ("with torch.cuda.stream(s):\n    x += 1\ny = lambda: x.sum()", WAIT, None),
        ("with torch.cuda.stream(s):\n    x += 1\ny = (x.sum() for _ in n)", WAIT, None),
        ("with torch.cuda.stream(s):\n    x += 1\nwith torch.cuda.stream(t):\n    y = x.sum()", WAIT, None),
        ("x += 1\ny = x.sum()", ENTER, None),
        # the line's names mean something else there, or nothing
        ("with torch.cuda.stream(s):\n    x += 1\ny = x.sum()", waits_for("u"), None),
        ("for u in n:\n    x += 1\ny = x.sum()", waits_for("u"), None),
        ("u = s\nx += 1\nu = t\ny = x.sum()", waits_for("u"), None),
        ("x += 1\ny = x.sum()\nu = s", waits_for("u"), None),
        ("x += 1\ny = x.sum()", waits_for("self.stream"), None),
        ("x += 1\ny = x.sum()", waits_for("a stream"), None),
        ("stream = s\nx += 1\ny = x.sum()", waits_for("stream"), 3),
        ("stream = s\nx += 1\ny = x.sum()", Edge("synchronize", Named("a stream")), None),
    ],
)
def test_where_it_goes(body: str, edge: Edge, row: int | None) -> None:
    source = BODY.format("".join(f"    {each}\n" for each in body.splitlines()))
    rows = source.splitlines()

    def span(text: str) -> Span:
        at = next(number for number, each in enumerate(rows, 1) if text in each)
        return Span("m.py", at, 1, at, len(rows[at - 1]) + 1)

    found = insertion(source, edge, span("x.sum()"), span("x += 1"))
    assert (found and found.row - 5) == row
    if found is not None:
        assert found.code == lines.code(edge)


def test_the_attributes_of_another_class_are_not_its_own() -> None:
    source = "class A:\n    def f(self, x):\n        x += 1\n        x.sum()\n"
    first, second = Span("m.py", 3, 1, 3, 9), Span("m.py", 4, 1, 4, 9)
    assert insertion(source, waits_for("self.s"), second, first) is None
    source += "    def __init__(self, s):\n        self.s = s\n"
    found = insertion(source, waits_for("self.s"), second, first)
    assert found is not None and found.row == 4


PREFETCHER = """
import torch


class Prefetcher:
    def __init__(self, loader):
        self.stream = torch.cuda.Stream()
        self.loader = iter(loader)
        self.preload()

    def preload(self):
        with torch.cuda.stream(self.stream):
            self.batch = next(self.loader).cuda(non_blocking=True)

    def {name}(self):
        batch = self.batch
        self.preload()
        return batch


def train(model, loader):
    prefetcher = Prefetcher(loader)
    batch = {taken}
    return model(batch)
"""
TAKEN = Edge("wait", Named("self.stream", "self.stream"), HERE)
LINE = lines.line(TAKEN)


@pytest.mark.parametrize(
    ("name", "taken", "row"),
    [
        ("take", "prefetcher.take()", 16),
        ("__next__", "next(prefetcher)", 16),
        ("take", "prefetcher.other()", None),  # not what hands it over here
    ],
)
def test_a_wait_of_another_class_goes_where_the_data_is_handed_over(
    name: str, taken: str, row: int | None
) -> None:
    source = PREFETCHER.format(name=name, taken=taken)
    first, second = Span("m.py", 13, 26, 13, 67), Span("m.py", 24, 12, 24, 24)
    found = handed_out(source, TAKEN, second, first)
    assert (found and found.row) == row
    assert insertion(source, TAKEN, second, first) is None
    shown = visible(source, LINE, second, first)
    assert shown.startswith(
        "torch.cuda.current_stream().wait_stream(stream)  # stream is self.stream in Prefetcher.preload()"
    )
    assert visible(source, LINE, Span("m.py", 16, 9, 16, 27), first) == LINE


GENERATOR = """
import torch


class Loader:
    def __init__(self, batches):
        self.batches = iter(batches)
        self.stream = torch.cuda.Stream()
        self.fetch()

    def fetch(self):
        batch = next(self.batches, None)
        with torch.cuda.stream(self.stream):
            self.ready = None if batch is None else batch.cuda(non_blocking=True)

    def __iter__(self):
        while self.ready is not None:
            {}batch = self.ready
            self.fetch()
            yield batch


def evaluate(model, batches):
    for batch in Loader(batches):
        print(model(batch))
"""


def test_the_wait_of_a_generator_goes_behind_the_question_whether_there_is_a_batch(tmp_path: Path) -> None:
    path = tmp_path / "m.py"
    path.write_text(GENERATOR.format(""), encoding="utf-8")
    arguments = [
        "check",
        "--isolated",
        "--confidence",
        "possible",
        "--select",
        "SS101",
        "--fix",
        "--unsafe-fixes",
        str(path),
    ]
    CliRunner().invoke(main, arguments, catch_exceptions=False)
    assert path.read_text(encoding="utf-8") == GENERATOR.format(f"{LINE}\n            ")


def test_memory_that_another_method_allocates_is_recorded_where_it_is_used(tmp_path: Path) -> None:
    path = tmp_path / "m.py"
    waits = GENERATOR.format(f"{LINE}\n            ")
    path.write_text(waits, encoding="utf-8")
    arguments = ["check", "--isolated", "--confidence", "possible", "--fix", "--unsafe-fixes", str(path)]
    assert CliRunner().invoke(main, arguments, catch_exceptions=False).exit_code == 0
    use = "        print(model(batch))\n"
    record = "        batch.record_stream(torch.cuda.current_stream())\n"
    assert path.read_text(encoding="utf-8") == waits.replace(use, record + use)


def test_check_says_where_the_wait_of_a_prefetcher_goes(tmp_path: Path) -> None:
    path = tmp_path / "m.py"
    path.write_text(PREFETCHER.format(name="take", taken="prefetcher.take()"), encoding="utf-8")
    shown = (
        CliRunner()
        .invoke(main, ["check", "--isolated", "--confidence", "possible", str(path)], catch_exceptions=False)
        .stdout
    )
    assert f"help: {LINE}  # in Prefetcher.take(), before line 16" in shown
    CliRunner().invoke(
        main, ["check", "--isolated", "--confidence", "possible", "--fix", "--unsafe-fixes", str(path)]
    )
    assert f"        {LINE}\n        batch = self.batch\n" in path.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("call", "wrong", "line"),
    [
        ("start.elapsed_time(end)", "pending", "end.synchronize()"),
        ("cupy.cuda.get_elapsed_time(a[0], a[1])", "pending", "a[1].synchronize()"),
        (
            "cupy.cuda.get_elapsed_time(start, end)",
            "untimed",
            "start, end = cupy.cuda.Event(), cupy.cuda.Event()",
        ),
        ("pairs().elapsed_time(end)", "pending", ""),
    ],
)
def test_the_help_of_an_elapsed_time_has_the_names_of_its_events(call: str, wrong: Any, line: str) -> None:
    source = f"def f(start, end, a):\n    return {call}\n"
    assert timing(source, Facts(timing=wrong), Span("m.py", 2, 12, 2, 12 + len(call))) == line


MIXED = """
import cupy as cp
import torch

UPDATE = cp.ElementwiseKernel("float32 g, float32 lr", "float32 w", "w -= lr * g;", "update")
stream = cp.cuda.Stream(non_blocking=True)
side = torch.cuda.Stream()


def torch_to_cupy(x):
    with torch.cuda.stream(side):
        t = torch.relu(x)
        {}
    return t, total


def cupy_to_torch(n):
    with stream:
        a = cp.ones(n)
        t = torch.as_tensor(a, device="cuda")
        total = t.sum()
    return a, total


def shared_before(x):
    out = torch.empty_like(x)
    torch.cuda.ExternalStream(stream.ptr).wait_stream(torch.cuda.current_stream())
    with stream:
        UPDATE(cp.asarray(x), 0.1, cp.asarray(out))
    return out * 2
"""


@pytest.mark.parametrize(
    ("lines", "repaired"),
    [
        ("a = cp.asarray(t)\n        total = a.sum()", "a = cp.from_dlpack(t)\n        total = a.sum()"),
        ("total = cp.asarray(t).sum()", "total = cp.from_dlpack(t).sum()"),
        ("total = cp.asarray(t, dtype=float).sum()", None),  # converts, too
    ],
)
@pytest.mark.xfail(reason="no model knows that `cupy.asarray` exchanges no stream (SS501)", strict=True)
def test_an_array_of_another_library(tmp_path: Path, lines: str, repaired: str | None) -> None:
    """SS501 is repaired by `from_dlpack`, and a wait of PyTorch for a CuPy stream names an external stream."""
    path = tmp_path / "m.py"
    path.write_text(MIXED.format(lines), encoding="utf-8")
    found = json.loads(
        CliRunner()
        .invoke(
            main, ["check", "--isolated", "--confidence", "possible", "--output-format", "json", str(path)]
        )
        .stdout
    )
    assert [each["code"] for each in found] == ["SS501", "SS501", "SS101"]
    assert "on the consumer's current stream reads `t`" in found[0]["message"]
    assert found[0]["help"].startswith(
        "cp.from_dlpack(t)" if repaired else "array = cupy.from_dlpack(tensor)"
    )
    CliRunner().invoke(
        main, ["check", "--isolated", "--confidence", "possible", "--fix", "--unsafe-fixes", str(path)]
    )
    after = path.read_text(encoding="utf-8")
    expected = MIXED.format(repaired or lines).replace(
        'torch.as_tensor(a, device="cuda")', "torch.from_dlpack(a)"
    )
    wait = "torch.cuda.current_stream().wait_stream(torch.cuda.ExternalStream(stream.ptr))"
    assert after == expected.replace("    return out * 2", f"    {wait}\n    return out * 2")


CAPTURE = """
import torch


def scaled(x):
    return {}


def capture(x, host):
    torch.cuda.synchronize()
    x = torch.zeros(64, 64, device="cuda")
    host = torch.arange(64, dtype=torch.float32)
    pinned = torch.zeros(64, pin_memory=True)
    g = torch.cuda.CUDAGraph()
    {}
    return g, y, pinned
"""
BLOCK = "with torch.cuda.graph(g):\n        y = "
NOTHING = (None, None)


@pytest.mark.parametrize(
    ("below", "inside", "after"),
    [
        # in a function that the capture calls: the value stays on the device
        (
            "x / x.max().item()",
            "scaled(x)",
            ("x / x.max()", "with torch.cuda.graph(g):\n        y = scaled(x)"),
        ),
        (
            "x[x > 0].sum()",
            "scaled(x)",
            ("x.where(x > 0, 0).sum()", "with torch.cuda.graph(g):\n        y = scaled(x)"),
        ),
        (
            "x * torch.arange(64).to(x.device)",
            "scaled(x)",
            ("x * torch.arange(64, device=x.device)", "with torch.cuda.graph(g):\n        y = scaled(x)"),
        ),
        ("x[x > 0].mean()", "scaled(x)", NOTHING),  # `where` changes the mean
        ("x[x > 0]", "scaled(x)", NOTHING),
        ("x * int(x.max())", "scaled(x)", NOTHING),  # rounds
        ("2 * x.max().item()", "scaled(x)", NOTHING),  # a number for others
        ("x if x.sum() > 0 else -x", "scaled(x)", NOTHING),
        # in the block of the capture
        (
            "x",
            "x.sum().item()",
            ("x", "with torch.cuda.graph(g):\n        y = x.sum()\n    g.replay()\n    y = y.item()"),
        ),
        ("x", "x.sum().item()\n        z = x * y", NOTHING),
        (
            "x",
            'x + host.to("cuda")',
            (
                "x",
                'host_on_device = host.to("cuda")\n    with torch.cuda.graph(g):\n        y = x + host_on_device',
            ),
        ),
        (
            "x",
            "x[0].copy_(pinned)",
            ("x", "with torch.cuda.graph(g):\n        y = x[0].copy_(pinned, non_blocking=True)"),
        ),
    ],
)
def test_a_wait_in_a_capture(
    tmp_path: Path, below: str, inside: str, after: tuple[str | None, str | None]
) -> None:
    path = tmp_path / "m.py"
    before = CAPTURE.format(below, BLOCK + inside)
    path.write_text(before, encoding="utf-8")
    arguments = ["check", "--isolated", "--confidence", "possible", "--output-format", "json", str(path)]
    found = json.loads(CliRunner().invoke(main, arguments).stdout)
    assert [each["code"] for each in found] == ["SS401"]
    CliRunner().invoke(
        main, ["check", "--isolated", "--confidence", "possible", "--fix", "--unsafe-fixes", str(path)]
    )
    assert path.read_text(encoding="utf-8") == (before if after == NOTHING else CAPTURE.format(*after))
    left = json.loads(CliRunner().invoke(main, arguments).stdout)
    assert len(left) == (after == NOTHING)


GRAPHED = """
import torch


class Graphed:
    def __init__(self, f, x):
        self.x = x
        f(x)
        torch.cuda.synchronize()
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.y = f(self.x)

    def __call__(self, value):
        self.x.copy_(value)
        self.graph.replay()
        return self.y


def run(f, a, b, batches):
    graphed = Graphed(f, a.clone())
    {}
"""


UNSEEN = pytest.mark.xfail(reason="two outputs of one graph are not told apart there (SS412)", strict=True)


@pytest.mark.parametrize(
    ("body", "after"),
    [
        ("return graphed(a) - graphed(b)", "return graphed(a).clone() - graphed(b)"),
        pytest.param(
            "return torch.stack([graphed(a), graphed(b)])",
            "return torch.stack([graphed(a).clone(), graphed(b)])",
            marks=UNSEEN,
        ),
        (
            "return torch.stack([graphed(each) for each in batches])",
            "return torch.stack([graphed(each).clone() for each in batches])",
        ),
        pytest.param(
            "first = graphed(a)\n    second = graphed(b)\n    return first - second",
            "first = graphed(a).clone()\n    second = graphed(b)\n    return first - second",
            marks=UNSEEN,
        ),
    ],
)
def test_an_output_that_is_used_after_the_next_replay(tmp_path: Path, body: str, after: str) -> None:
    path = tmp_path / "m.py"
    path.write_text(GRAPHED.format(body), encoding="utf-8")
    CliRunner().invoke(
        main, ["check", "--isolated", "--confidence", "possible", "--fix", "--unsafe-fixes", str(path)]
    )
    assert path.read_text(encoding="utf-8") == GRAPHED.format(after)
    found = (
        CliRunner()
        .invoke(
            main, ["check", "--isolated", "--confidence", "possible", "--output-format", "json", str(path)]
        )
        .stdout
    )
    assert json.loads(found) == []


def test_a_distributed_module_runs_eleven_times_before_its_capture(tmp_path: Path) -> None:
    path = tmp_path / "m.py"
    path.write_text(
        """\
import torch
from torch.nn.parallel import DistributedDataParallel


def step(x):
    model = DistributedDataParallel(torch.nn.Linear(8, 8).cuda())
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            model(x).sum().backward()
    torch.cuda.current_stream().wait_stream(side)
    g = torch.cuda.CUDAGraph()
    with torch.cuda.graph(g):
        model(x).sum().backward()
    g.replay()
    return model
""",
        encoding="utf-8",
    )
    options = ["check", "--isolated", "--no-cache", "--fix", "--unsafe-fixes", str(path)]
    result = CliRunner().invoke(main, options)
    assert result.exit_code == 0, result.output
    assert path.read_text(encoding="utf-8").count("for _ in range(11):") == 1
