"""The prefilter loses nothing that the analysis could report, and lets ordinary code go."""

from __future__ import annotations

from pathlib import Path

import pytest

from streamsafe.check.prefilter import relevant
from streamsafe.rule import all_rules

RELEVANT = [
    "import torch\ns = torch.cuda.Stream()",
    "import torch as t\ns = t.Stream()",
    "from torch.cuda import Stream as S\ns = S()",
    "from torch.cuda import (\n    Event,\n    Stream,\n)",
    "from torch.cuda import stream",
    "from torch.cuda import graph as capture",
    "from torch import cuda\nwith cuda.stream(s): pass",
    "import torch\nuse = torch.cuda.stream",
    "import torch.cuda as tc\nwith tc.stream(s): pass",
    "import torch\nmod = torch.get_device_module('cuda')\nwith mod.stream(s): pass",
    "from deepspeed.accelerator import get_accelerator\nget_accelerator().current_stream()",
    "import torch\ntorch.accelerator.current_stream()",
    "import torch\ntorch.cuda.default_stream()",
    "import torch\ntorch.cuda.set_stream(s)",
    "import torch\ntorch.cuda.StreamContext(s)",
    "import torch\ntorch.cuda.ExternalStream(p)",
    "import cupy\ncupy.cuda.Stream.null.use()",
    "import cupy as cp\nx = a.get(out=out, blocking=False)",
    "import cupy as cp\nx = a.get(out=out, blocking = False)",
    "import cupyx\ny = cupyx.empty_pinned(3)",
    "import cupyx\ny = cupyx.zeros_like_pinned(a)",
    "import cupy\nm = cupy.cuda.alloc_pinned_memory(8)",
    "import cupy\np.copy_from_host_async(h, 8)",
    "import cupy\np.copy_to_host_async(h, 8)",
    "import cupy\ncupy.cuda.runtime.memcpyAsync(a, b, n, k, s)",
    "import torch\nx.record_stream(s)",
    "import torch\ns.wait_stream(t)",
    "import torch\ns.wait_event(e)",
    "import torch\nx.to('cpu', non_blocking=True)",
    "import torch\nx.to(device, torch.float32, True)",
    "import torch\ny.copy_(x, True)",
    "import torch\ny.copy_(f(x), True)",
    "import torch\nx.cuda(None, True)",
    "import torch\ng = torch.cuda.CUDAGraph()",
    "import torch\nwith torch.cuda.graph(g): pass",
    "import torch\ntorch.cuda.make_graphed_callables(f, x)",
    "import torch\ng.capture_begin()",
    "import cupy\ns.begin_capture()",
    "import torch\na.elapsed_time(b)",
    "import cupy\ncupy.cuda.get_elapsed_time(a, b)",
    "import torch.distributed as dist\nw = dist.all_reduce(x, async_op=True)",
    "import torch.distributed as dist\nw = dist.all_reduce(x, async_op=overlap)",
    "import time, torch\nt = time.perf_counter()\nx = y.cuda()",
    "from time import monotonic\nimport cupy",
    "import time, torch\nt = time.time()\nx = torch.zeros(3, device=0)",
    "import time, torch\nt = time.time()\nx = y.to(1)",
    "from numba import cuda\ns = cuda.stream()",
]
NOT_RELEVANT = [
    "",
    "import torch\nx = torch.zeros(3)",
    "import io\ns = io.Stream()",
    "import httpx, torch\nwith httpx.stream('GET', url): pass",
    "import torch\nupstream = downstream(x)",
    "import time\nt = time.perf_counter()",
    "import torch\nimport time\ntime.sleep(1)\nx.cuda()",
    "import torch\nx.to(device, torch.float32)",
    "import time, torch\nt = time.time()\nx = y.to(device)",
    "import torch\nx = torch.zeros(3, device=0)",
    "import torch\nx.sum(0, True)",
    "from torch.cuda import amp",
    "import torch\ncaptured = True  # a streaming answer",
    "import torch\nx.pin_memory()",
    "import torch\nif torch.cuda.is_current_stream_capturing(): return",
    "import torch.distributed as dist\ndist.all_reduce(x, async_op=False)",
]


@pytest.mark.parametrize("source", RELEVANT)
def test_relevant(source: str) -> None:
    assert relevant(source.encode())


@pytest.mark.parametrize("source", NOT_RELEVANT)
def test_not_relevant(source: str) -> None:
    assert not relevant(source.encode())


def test_models_are_terms() -> None:
    source = b"from mylib.io import fetch_ahead\n"
    assert not relevant(source)
    assert relevant(source, ["mylib.io.fetch_ahead"])
    assert not relevant(source, ["mylib.io.other"])


def test_every_example_is_relevant() -> None:
    for rule in all_rules().values():
        if not rule.code.startswith("SS9"):
            assert relevant(rule.bad.encode()), rule.code
            plain = rule.code == "SS322"  # a plain copy is what it asks for
            assert relevant(rule.good.encode()) is not plain, rule.code


def test_every_fixture_is_relevant() -> None:
    fixtures = sorted((Path(__file__).parents[2] / "fixtures" / "static").rglob("*.py"))
    assert fixtures
    silent = [
        path.name for path in fixtures if b"# expect" in path.read_bytes() and not relevant(path.read_bytes())
    ]
    assert silent == []
