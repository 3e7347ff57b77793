"""What an analysis may cost: accesses count, and so do edges that are tried on very many ways of standing."""

from __future__ import annotations

import pytest

from streamsafe.static import analyze, facts
from streamsafe.static.interpreter import Interpreter
from streamsafe.static.roots import Roots
from streamsafe.static.source import SourceFile
from streamsafe.static.transfer import accesses, calls
from streamsafe.static.values import Name

# a stream of its own for the device of each layer, made on first use: accesses may stand in many ways;
# what the stream before it does is not waited for
SOURCE = """
import torch


class Layers:
    def forward(self, x):
        first = torch.cuda.current_stream()
        for i, layer in enumerate(self.layers):
            if i in self.placed:
                device = self.placed[i]
                if device not in self.streams:
                    self.streams[device] = torch.cuda.Stream(device)
                self.streams[device].wait_stream(first)
                torch.cuda.set_stream(self.streams[device])
                x = x.to(device, non_blocking=True)
            x = layer.norm(layer.mix(x))
        return x
"""


def interpreted() -> Interpreter:
    with Name.kept():
        interpreter = Interpreter(SourceFile(SOURCE, "layers.py"), None)
        Roots(interpreter, ()).run()
    return interpreter


def test_edges_on_many_ways_count_as_accesses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accesses, "WAYS_AN_ACCESS", 1 << 60)
    cost = interpreted().run.total_effort
    monkeypatch.undo()
    assert interpreted().run.total_effort > cost + 10


def test_an_entry_that_costs_too_much_is_left_as_it_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = interpreted()
    assert whole.run.findings
    monkeypatch.setattr(accesses, "WAYS_AN_ACCESS", 1)  # the first edges use up what there is
    left = interpreted()
    assert left.run.total_effort > facts.EFFORT
    assert left.run.total_steps < whole.run.total_steps


CUT_SHORT = """
import torch


def bad(a):
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        b = a * 2
    c = b + 1
    for _ in range(8):
        c = c * 2
    return c
"""


@pytest.mark.parametrize(("effort", "confidence"), [(facts.EFFORT, "certain"), (3, "likely")])
def test_a_finding_in_what_a_limit_cut_short_assumes_one_thing_more(
    monkeypatch: pytest.MonkeyPatch, effort: int, confidence: str
) -> None:
    monkeypatch.setattr(accesses, "EFFORT", effort)
    found = analyze.analyze(CUT_SHORT, "cut.py")
    assert bool(found.notes) == (confidence == "likely")
    assert {c.confidence for c in found.conflicts} == {confidence}


CUT_SHORT_COPY = """
import numpy
import torch


def bad(n):
    b = torch.from_numpy(numpy.zeros(n)).to("cuda", non_blocking=True)
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        c = torch.zeros(8, device="cuda") * 2
    for _ in range(8):
        c = c * 2
    return b
"""


@pytest.mark.parametrize("effort", [facts.EFFORT, 3])
def test_advice_is_as_sure_where_a_limit_cut_the_rest_short(
    monkeypatch: pytest.MonkeyPatch, effort: int
) -> None:
    monkeypatch.setattr(accesses, "EFFORT", effort)
    found = analyze.analyze(CUT_SHORT_COPY, "cut.py")
    assert bool(found.notes) == (effort == 3)
    advice = [c.confidence for c in found.conflicts if c.facts.violation == "pageable-non-blocking"]
    assert advice == ["certain"]


CUT_SHORT_CAPTURE = """
import torch


def add(x):
    return x + 1


def bad(model, batches):
    x = torch.zeros(8, device="cuda")
    graph = torch.cuda.CUDAGraph()
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        y = add(x)
    torch.cuda.current_stream().wait_stream(side)
    with torch.cuda.graph(graph):
        y = add(x) * x
    for batch in batches:
        x = batch.cuda()
        graph.replay()
    return y
"""


@pytest.mark.parametrize(("steps", "confidences"), [(calls.STEPS, {"certain"}), (8, {"possible"})])
def test_a_capture_that_a_limit_cut_short_tells_no_more_than_what_is_possible(
    monkeypatch: pytest.MonkeyPatch, steps: int, confidences: set[str]
) -> None:
    monkeypatch.setattr(calls, "STEPS", steps)
    found = analyze.analyze(CUT_SHORT_CAPTURE, "cut.py")
    replaced = [c for c in found.conflicts if c.facts.violation == "rebound-static-input"]
    assert {c.confidence for c in replaced} == confidences
