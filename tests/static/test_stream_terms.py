"""What identifiers say of a piece of syntax, and what comments and strings do not."""

from __future__ import annotations

import ast

import pytest

from streamsafe.static import stream_terms
from streamsafe.static.relevance import Relevance
from streamsafe.static.source import SourceFile

SAYS = {
    "s = torch.cuda.Stream()": stream_terms.STREAM | stream_terms.HANDLE,
    "with torch.cuda.stream(s): pass": stream_terms.STREAM | stream_terms.WORD,
    "with torch.cuda.graph(g): pass": stream_terms.STREAM,
    "e = torch.cuda.Event()": stream_terms.STREAM | stream_terms.HANDLE,
    "e = threading.Event()": 0,
    "x.to('cuda', non_blocking=True)": stream_terms.COPY,
    "x.to('cuda', non_blocking=False)": 0,
    "x.to('cuda', True)": stream_terms.COPY,
    "a.get(out=h, blocking=False)": stream_terms.COPY,
    "a.get(out=h, blocking=True)": 0,
    "x.to('cuda', **{'non_blocking': flag})": stream_terms.COPY,
    "client.chat(stream=True)": 0,
    "client.chat(stream=s)": stream_terms.WORD,
    "with client.stream('GET', url): pass": stream_terms.WORD,
    "with backend.stream(s): pass": stream_terms.STREAM | stream_terms.WORD,
    "with cuda.stream(s): pass": stream_terms.STREAM | stream_terms.WORD,
    "x.record_stream(s)": stream_terms.STREAM | stream_terms.HANDLE,
    "t = time.time()": stream_terms.CLOCK,
    "t = perf_counter()": stream_terms.CLOCK,
    "x.wait()": stream_terms.TOUCH,
    "x = 'wait_event on the stream'  # torch.cuda.stream": 0,
    "with cupy.cuda.Device(1): pass": stream_terms.OTHER,
    "with torch.cuda.device(1): pass": stream_terms.OTHER,
}


@pytest.mark.parametrize("source", SAYS)
def test_what_a_line_says(source: str) -> None:
    assert stream_terms.of_tree(ast.parse(source)) == SAYS[source]


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
    relevance = Relevance(SourceFile(COPIES + more, "f.py"), [])
    assert relevance.one_stream is one
    assert "f" in relevance.functions


ANSWERS = "import torch, time\ndef answer(request):\n    return request.stream\n"


def test_streams_of_answers_are_none_of_cuda() -> None:
    assert not Relevance(SourceFile(ANSWERS, "f.py"), []).functions
    with_cuda = ANSWERS + "side = torch.cuda.Stream()\n"
    assert Relevance(SourceFile(with_cuda, "f.py"), []).functions == {"answer"}


def test_pinned_memory_alone_starts_nothing() -> None:
    alone = "def load(d):\n    return DataLoader(d, pin_memory=True)\n"
    assert not Relevance(SourceFile(alone, "f.py"), []).functions
    assert Relevance(SourceFile(alone + COPIES, "f.py"), []).functions == {"f", "load"}
