"""What identifiers say of a piece of syntax, and what comments and strings do not."""

from __future__ import annotations

import ast

import pytest

from streamsafe.static import needles
from streamsafe.static.concerned import Concerned
from streamsafe.static.source import SourceFile

SAYS = {
    "s = torch.cuda.Stream()": needles.STREAM | needles.HANDLE,
    "with torch.cuda.stream(s): pass": needles.STREAM | needles.WORD,
    "with torch.cuda.graph(g): pass": needles.STREAM,
    "e = torch.cuda.Event()": needles.STREAM | needles.HANDLE,
    "e = threading.Event()": 0,
    "x.to('cuda', non_blocking=True)": needles.COPY,
    "x.to('cuda', non_blocking=False)": 0,
    "x.to('cuda', True)": needles.COPY,
    "a.get(out=h, blocking=False)": needles.COPY,
    "a.get(out=h, blocking=True)": 0,
    "x.to('cuda', **{'non_blocking': flag})": needles.COPY,
    "client.chat(stream=True)": 0,
    "client.chat(stream=s)": needles.WORD,
    "with client.stream('GET', url): pass": needles.WORD,
    "with backend.stream(s): pass": needles.STREAM | needles.WORD,
    "with cuda.stream(s): pass": needles.STREAM | needles.WORD,
    "x.record_stream(s)": needles.STREAM | needles.HANDLE,
    "t = time.time()": needles.CLOCK,
    "t = perf_counter()": needles.CLOCK,
    "x.wait()": needles.TOUCH,
    "x = 'wait_event on the stream'  # torch.cuda.stream": 0,
    "with cupy.cuda.Device(1): pass": needles.OTHER,
    "with torch.cuda.device(1): pass": needles.OTHER,
}


@pytest.mark.parametrize("source", SAYS)
def test_what_a_line_says(source: str) -> None:
    assert needles.of_tree(ast.parse(source)) == SAYS[source]


COPIES = "import torch\ndef f(x):\n    return x.to('cpu', non_blocking=True)\n"


@pytest.mark.parametrize(
    ("more", "one"),
    [
        ("", True),
        ("# torch.cuda.Stream()\n", True),
        ("s = torch.cuda.Stream()\n", False),
        ("def g():\n    with torch.cuda.device(1):\n        pass\n", False),
        ("def g(request):\n    return request.stream\n", True),
        (
            "class C:\n    stream: torch.cuda.Stream\n\n    def g(self):\n        self.stream.synchronize()\n",
            False,
        ),
    ],
)
def test_files_of_one_stream(more: str, one: bool) -> None:
    concerned = Concerned(SourceFile(COPIES + more, "f.py"), [])
    assert concerned.one_stream is one
    assert "f" in concerned.functions


ANSWERS = "import torch, time\ndef answer(request):\n    return request.stream\n"


def test_streams_of_answers_are_none_of_cuda() -> None:
    assert not Concerned(SourceFile(ANSWERS, "f.py"), []).functions
    with_cuda = ANSWERS + "side = torch.cuda.Stream()\n"
    assert Concerned(SourceFile(with_cuda, "f.py"), []).functions == {"answer"}


def test_pinned_memory_alone_starts_nothing() -> None:
    alone = "def load(d):\n    return DataLoader(d, pin_memory=True)\n"
    assert not Concerned(SourceFile(alone, "f.py"), []).functions
    assert Concerned(SourceFile(alone + COPIES, "f.py"), []).functions == {"f", "load"}
