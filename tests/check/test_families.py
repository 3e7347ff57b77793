"""The four families in every spelling: each access crossed with each way to order it, or to order it in vain.

Each combination is one function of a generated module; its verdict is the code expected on its marked line, or none.
"""

from __future__ import annotations

import itertools
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.check.evalfiles import EvalFile, check_tree, write_tree
from tests.conftest import SHARE as PARTS

HEAD = """\
import io
import json
import pickle
import queue
import numpy as np
import torch
import torch.distributed as dist
"""


@dataclass(frozen=True)
class Case:
    """One function: its statements, with `@` before the line of the second access, and the code expected there."""

    body: tuple[str, ...]
    code: str | None = None

    def function(self, name: str) -> str:
        mark = f"  # expect: {self.code}" if self.code else ""
        lines = "\n".join(self.body).split("\n")
        marked = [line.replace("@", "", 1) + mark if "@" in line.lstrip()[:1] else line for line in lines]
        return f"def {name}(model, loss, out, x, weight, optimizer, path):\n" + textwrap.indent(
            "\n".join(marked), "    "
        )


def module(cases: list[Case]) -> str:
    return HEAD + "\n\n" + "\n\n\n".join(case.function(f"case_{i}") for i, case in enumerate(cases)) + "\n"


def indent(*lines: str) -> str:
    return textwrap.indent("\n".join(lines), "    ")


# Gradients, used on another stream than the one that was current at backward()

BACKWARD = {
    "method": "loss.backward()",
    "function": "torch.autograd.backward(loss)",
    "list": "torch.autograd.backward([loss])",
    "retained": "loss.backward(retain_graph=True)",
    "reduced": "(loss * 2).mean().backward()",
}
USES = {
    "read": "@y = weight.grad * 2",
    "write": "@weight.grad.zero_()",
    "step": "@optimizer.step()",
    "clip": "@torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)",
    "clip_value": "@torch.nn.utils.clip_grad_value_(model.parameters(), 1.0)",
    "host": "@y = weight.grad.sum().item()",
    "reduce": "@dist.all_reduce(weight.grad)",
    "loop": "for p in model.parameters():\n    @p.data.sub_(p.grad)",
    "list": "@norms = [p.grad.norm() for p in model.parameters()]",
}
JOINS = {
    "none": ([], False),
    "wait_stream": (["torch.cuda.current_stream().wait_stream(s)"], True),
    "turned_round": (["s.wait_stream(torch.cuda.current_stream())"], False),
    "event": (["done = s.record_event()", "done.wait()"], True),
    "wait_event": (["torch.cuda.current_stream().wait_event(s.record_event())"], True),
    "wrong_event": (["done = torch.cuda.Event()", "done.record()", "done.wait()"], False),
    "unrecorded": (["done = torch.cuda.Event()", "done.wait()"], False),
    "stream_sync": (["s.synchronize()"], True),
    "device_sync": (["torch.cuda.synchronize()"], True),
    "wrong_sync": (["torch.cuda.current_stream().synchronize()"], False),
    "polled": (["while not s.query():", "    pass"], True),
}


def gradients() -> Iterator[Case]:
    for call, use, (join, ordered) in itertools.product(BACKWARD.values(), USES.values(), JOINS.values()):
        fork = ("s = torch.cuda.Stream()", "s.wait_stream(torch.cuda.current_stream())")
        start = (*fork, "with torch.cuda.stream(s):", indent(call))
        yield Case((*start, *join, use), None if ordered else "SS111")
    for call, use in itertools.product(BACKWARD.values(), USES.values()):
        side = ("s = torch.cuda.Stream()", "with torch.cuda.stream(s):")
        yield Case((*side, indent(call, use)))  # the same context
        yield Case((*side, indent(call), "with torch.cuda.stream(s):", indent(use)))  # the same stream again
        yield Case(("s = torch.cuda.Stream()", call, use))  # no context
        yield Case(("s = torch.cuda.Stream()", call, "with torch.cuda.stream(s):", indent(use)), "SS111")


def returned_gradients() -> Iterator[Case]:
    calls = {
        "(g,) = torch.autograd.grad(loss, weight)": "@y = g * 2",
        "g = torch.autograd.grad(loss, [weight])[0]": "@y = g.norm()",
        "grads = torch.autograd.grad(loss, list(model.parameters()))": "@y = [g.norm() for g in grads]",
        "grads = torch.autograd.grad(outputs=loss, inputs=[weight])": "for g in grads:\n    @weight.data.sub_(g)",
    }
    for (call, use), (join, ordered) in itertools.product(calls.items(), JOINS.values()):
        start = ("s = torch.cuda.Stream()", "with torch.cuda.stream(s):", indent(call))
        yield Case((*start, *join, use), None if ordered else "SS111")


# Initial gradients, filled on another stream, or never recorded on that of backward()

FILLS = {
    "ones_like": ["g = torch.ones_like(out)"],
    "full_like": ["g = torch.full_like(out, 0.5)"],
    "zeros": ["g = torch.zeros(out.shape, device='cuda')"],
    "filled": ["g = torch.empty_like(out)", "g.fill_(2.0)"],
    "scaled": ["g = torch.ones_like(out) * 3"],
}
SEEDED = {
    "keyword": "@out.backward(gradient=g)",
    "positional": "@out.backward(g)",
    "grad_tensors": "@torch.autograd.backward(out, grad_tensors=g)",
    "grad_tensors list": "@torch.autograd.backward([out], [g])",
    "grad_outputs": "@torch.autograd.grad(out, weight, grad_outputs=g)",
    "grad_outputs list": "@torch.autograd.grad([out], [weight], [g])",
}
FORKS = {
    "none": ([], False),
    "wait_stream": (["s.wait_stream(torch.cuda.current_stream())"], True),
    "turned_round": (["torch.cuda.current_stream().wait_stream(s)"], False),
    "event": (["s.wait_event(torch.cuda.current_stream().record_event())"], True),
    "host": (["torch.cuda.current_stream().synchronize()"], True),
    "device": (["torch.cuda.synchronize()"], True),
    "wrong_host": (["s.synchronize()"], False),
}
KEPT = {
    "none": ([], [], False),
    "recorded": (["g.record_stream(s)"], [], True),
    "wrongly recorded": (["g.record_stream(torch.cuda.current_stream())"], [], False),
    "recorded after": ([], ["g.record_stream(s)"], True),
    "waited for": ([], ["torch.cuda.current_stream().wait_stream(s)"], True),
    "synchronized": ([], ["s.synchronize()"], True),
    "waited for the wrong way": ([], ["s.wait_stream(torch.cuda.current_stream())"], False),
}


def initial_gradients() -> Iterator[Case]:
    for (f, fill), (c, call) in itertools.product(FILLS.items(), SEEDED.items()):
        every = (
            f == "ones_like" or c == "keyword"
        )  # the others with the first few ways only: they differ in spelling
        forks = list(FORKS.values())[: None if every else 2]
        kepts = list(KEPT.values())[: None if every else 2]
        for (fork, ordered), (before, after, kept) in itertools.product(forks, kepts):
            start = ("s = torch.cuda.Stream()", *fill, *fork, *before)
            code = None if ordered and kept else "SS113" if ordered else "SS112"
            yield Case((*start, "with torch.cuda.stream(s):", indent(call), *after), code)
        yield Case(("s = torch.cuda.Stream()", "with torch.cuda.stream(s):", indent(*fill, call)))
        yield Case((*fill, call))


# Copies to the host that return before they are done, and every way for the host to look

COPIES = {
    "to": ["h = y.to('cpu', non_blocking=True)"],
    "to device object": ["h = y.to(torch.device('cpu'), non_blocking=True)"],
    "to keyword": ["h = y.to(device='cpu', non_blocking=True)"],
    "detached": ["h = y.detach().to('cpu', non_blocking=True)"],
    "pinned": ["h = torch.empty(64, pin_memory=True)", "h.copy_(y, non_blocking=True)"],
    "pinned by method": ["h = torch.empty(64).pin_memory()", "h.copy_(y, non_blocking=True)"],
    "pinned like": [
        "h = torch.empty_like(y, device='cpu', pin_memory=True)",
        "h.copy_(y, non_blocking=True)",
    ],
}
BLOCKING = {
    "cpu": ["h = y.cpu()"],
    "to": ["h = y.to('cpu')"],
    "explicit": ["h = y.to('cpu', non_blocking=False)"],
    "copy": ["h = torch.empty(64, pin_memory=True)", "h.copy_(y)"],
}
LOOKS = {
    "numpy": "@z = h.numpy().sum()",
    "numpy index": "a = h.numpy()\n@z = a[0] + 1",
    "numpy arithmetic": "a = h.numpy()\n@z = a * 2",
    "numpy function": "@z = np.argmax(h.numpy())",
    "item": "@z = h[0].item()",
    "tolist": "@z = h.tolist()",
    "print": "@print(h)",
    "format": "@z = f'{h}'",
    "float": "@z = float(h[0])",
    "truth": "@if h[0]:\n    z = 1",
    "arithmetic": "@z = h + 1",
    "reduction": "@z = h.max()",
    "torch function": "@z = torch.softmax(h, -1)",
    "clone": "@z = h.clone()",
    "save": "@torch.save(h, path)",
    "numpy save": "@np.save(path, h.numpy())",
    "pickle": "@z = pickle.dumps(h)",
    "json": "@z = json.dumps(h.tolist())",
    "bytes": "@z = io.BytesIO(h.numpy().tobytes())",
    "queue": "q = queue.Queue()\n@q.put(h)",
    "view": "@z = h.view(8, 8)[0].sum()",
}
HOST_WAITS = {
    "none": ([], False),
    "device": (["torch.cuda.synchronize()"], True),
    "stream": (["torch.cuda.current_stream().synchronize()"], True),
    "event": (["e = torch.cuda.Event()", "e.record()", "e.synchronize()"], True),
    "unrecorded event": (["e = torch.cuda.Event()", "e.synchronize()"], False),
    "other stream": (["torch.cuda.Stream().synchronize()"], False),
    "item": (["n = y.sum().item()"], True),
    "device wait": (["torch.cuda.Stream().wait_stream(torch.cuda.current_stream())"], False),
}


def copies_to_the_host() -> Iterator[Case]:
    for copy, look, (wait, ordered) in itertools.product(
        COPIES.values(), LOOKS.values(), HOST_WAITS.values()
    ):
        yield Case(("y = x.cuda() * 2", *copy, *wait, look), None if ordered else "SS301")
    for copy, look in itertools.product(BLOCKING.values(), LOOKS.values()):
        yield Case(("y = x.cuda() * 2", *copy, look))
    for copy in COPIES.values():
        yield Case(("y = x.cuda() * 2", *copy, "return h"))
        yield Case(("y = x.cuda() * 2", *copy, "return h.shape, h.dtype, h.device"))


# Captures: what synchronizes, at each depth below each way to capture

SYNCHRONIZING = {
    "item": "z = y.sum().item()",
    "tolist": "z = y.tolist()",
    "cpu": "z = y.cpu()",
    "to": "z = y.to('cpu')",
    "float": "z = float(y.sum())",
    "int": "z = int(y.argmax())",
    "truth": "if y.any():\n    y.zero_()",
    "print": "print(y)",
    "nonzero": "z = y.nonzero()",
    "where": "z = torch.where(y)",
    "mask": "z = y[y > 0]",
    "masked_select": "z = torch.masked_select(y, y > 0)",
    "unique": "z = torch.unique(y)",
    "equal": "z = torch.equal(y, y)",
    "device": "torch.cuda.synchronize()",
    "stream": "torch.cuda.current_stream().synchronize()",
    "event": "e = torch.cuda.Event()\ne.record()\n@e.synchronize()",
    "tensor": "z = torch.tensor([1.0, 2.0], device='cuda')",
    "pageable": "z = torch.arange(4).to('cuda')",
}
HARMLESS = {
    "arithmetic": "z = y * 2 + y.sum()",
    "device copy": "z = y.clone()",
    "where": "z = torch.where(y > 0, y, 0.0)",
    "factory": "z = torch.zeros(4, device='cuda')",
    "metadata": "z = y.shape[0] + y.numel()",
    "fill": "y.fill_(1.0)",
    "random": "z = torch.rand(4, device='cuda')",
}
CAPTURES = {
    "graph": ["g = torch.cuda.CUDAGraph()", "with torch.cuda.graph(g):", "    @"],
    "pool": [
        "g = torch.cuda.CUDAGraph()",
        "with torch.cuda.graph(g, pool=torch.cuda.graph_pool_handle()):",
        "    @",
    ],
    "stream": [
        "g, s = torch.cuda.CUDAGraph(), torch.cuda.Stream()",
        "with torch.cuda.graph(g, stream=s):",
        "    @",
    ],
    "raw": [
        "g, s = torch.cuda.CUDAGraph(), torch.cuda.Stream()",
        "with torch.cuda.stream(s):",
        "    g.capture_begin()",
        "    @",
        "    g.capture_end()",
    ],
}


def captured(capture: list[str], statement: str) -> str:
    """The statement in the place that a capture has for it."""
    lines = [textwrap.indent(statement, "    ") if line.strip() == "@" else line for line in capture]
    return "\n".join(lines)


def captures() -> Iterator[Case]:
    start = "y = torch.ones(64, device='cuda')"
    for capture in CAPTURES.values():
        for statement in SYNCHRONIZING.values():
            marked = statement if "@" in statement else "@" + statement
            plain = statement.replace("@", "")
            yield Case((start, captured(capture, marked)), "SS401")
            for depth in (1, 2, 3):
                helpers = [f"def f0(y):\n{indent(marked)}"]
                helpers += [f"def f{i}(y):\n    f{i - 1}(y)" for i in range(1, depth)]
                yield Case((start, *helpers, captured(capture, f"f{depth - 1}(y)")), "SS401")
            guarded = f"if not torch.cuda.is_current_stream_capturing():\n{indent(plain)}"
            yield Case((start, captured(capture, "y.mul_(2)\n" + guarded)))
            yield Case((start, plain, captured(capture, "y.mul_(2)"), plain))  # before and after
        for statement in HARMLESS.values():
            yield Case((start, captured(capture, statement)))


MANY = 400
"""A family with more cases is run in parts."""
FAMILIES = {
    "gradients": list(gradients()),
    "returned_gradients": list(returned_gradients()),
    "initial_gradients": list(initial_gradients()),
    "copies_to_the_host": list(copies_to_the_host()),
    "captures": list(captures()),
}


@pytest.mark.parametrize("family", FAMILIES)
def test_family(family: str, tmp_path: Path, pytestconfig: pytest.Config) -> None:
    """All cases of the family, or of a large one those of one part (``--part``)."""
    cases = FAMILIES[family]
    if len(cases) > MANY and not pytestconfig.getoption("--all"):
        cases = cases[0::PARTS]
    file = EvalFile(tmp_path / f"{family}.py", module(cases))
    found = check_tree(write_tree(tmp_path, {file.path.name: file.text}))
    wrong = file.disagreements(found.get(file.path.name, []))
    assert not wrong, f"\n{len(wrong)} of {len(cases)} cases\n" + "\n".join(wrong[:40])


FLAG = """\
def case_{i}(x, flag):
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        y = x.cuda() * 2
    if {test}:
        torch.cuda.current_stream().wait_stream(side)
    if flag:
        return y.sum(){mark}
    return None
"""


def test_the_hundredth_condition_is_tracked(tmp_path: Path) -> None:
    """What a function's flag decides it decides in any place of a file, whatever other functions test."""
    cases = [
        FLAG.format(i=i, test="not flag" if i % 2 else "flag", mark="  # expect: SS101" if i % 2 else "")
        for i in range(100)
    ]
    file = EvalFile(tmp_path / "flags.py", HEAD + "\n\n" + "\n\n".join(cases))
    found = check_tree(write_tree(tmp_path, {file.path.name: file.text}))
    wrong = file.disagreements(found.get(file.path.name, []))
    assert not wrong, "\n".join(wrong[:10])
