"""Hazards of which the two places are several files apart: who reads names no stream, and neither does who calls it."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from tests.check import not_shown
from tests.check.evalfiles import check_tree, write_tree

LANE = """
    import torch

    class Lane:
        def __init__(self):
            self.stream = torch.cuda.Stream()

        def put(self, x):
            self.stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(self.stream):
                return x.to("cuda", non_blocking=True)

        def join(self):
            torch.cuda.current_stream().wait_stream(self.stream)
"""
CACHE = """
    from .lane import Lane

    class Cache:
        def __init__(self):
            self.lane = Lane()

        def load(self, rows):
            return self.lane.put(rows)

        def ready(self):
            self.lane.join()
"""
CHAINS: dict[str, tuple[dict[str, str], str, tuple[str, str, str]]] = {
    "the second caller keeps the outputs of a graph": (
        {
            "capture": """
                import torch

                class Graphed:
                    def __init__(self, f, x):
                        self.x = x.clone()
                        self.graph = torch.cuda.CUDAGraph()
                        with torch.cuda.graph(self.graph):
                            self.y = f(self.x)

                    def run(self, x):
                        self.x.copy_(x)
                        self.graph.replay()
                        return self.y
            """,
            "decoder": """
                from .capture import Graphed

                class Decoder:
                    def __init__(self, f, x):
                        self.step = Graphed(f, x)

                    def __call__(self, x):
                        return self.step.run(x)
            """,
            "generate": """
                from .decoder import Decoder

                def generate(f, xs):
                    decoder = Decoder(f, xs[0])
                    outputs = []
                    for x in xs:
                        output = decoder(x)
                        {order}
                        outputs.append(output)
                    return outputs
            """,
        },
        "output = output.clone()",
        ("generate", "SS412", "outputs.append"),
    ),
    "the second caller reads what a stream brings": (
        {
            "lane": LANE,
            "cache": CACHE,
            "model": """
                import torch
                from .cache import Cache

                class Model:
                    def __init__(self):
                        self.cache = Cache()

                    def forward(self, x, rows):
                        loaded = self.cache.load(rows.pin_memory())
                        {order}
                        return torch.matmul(x, loaded)
            """,
        },
        "self.cache.ready()",
        ("model", "SS101", "torch.matmul"),
    ),
    "the third caller reads what a stream brings": (
        {
            "lane": LANE,
            "cache": CACHE,
            "table": """
                from .cache import Cache

                class Table:
                    def __init__(self):
                        self.cache = Cache()

                    def rows(self, rows):
                        return self.cache.load(rows.pin_memory())
            """,
            "model": """
                from .table import Table

                def embed(x, rows):
                    table = Table()
                    found = table.rows(rows)
                    {order}
                    return x + found
            """,
        },
        "table.cache.ready()",
        ("model", "SS101", "return x + found"),
    ),
    "functions that call each other": (
        {
            "copies": """
                import torch

                def to_host(x):
                    return x.to("cpu", non_blocking=True)

                def finish():
                    torch.cuda.synchronize()
            """,
            "collect": """
                from .copies import finish, to_host

                def collected(tensors):
                    return [to_host(t) for t in tensors]

                def done():
                    finish()
            """,
            "report": """
                from .collect import collected, done

                def report(tensors):
                    losses = collected(tensors)
                    {order}
                    return [loss.item() for loss in losses]
            """,
        },
        "done()",
        ("report", "SS301", "loss.item()"),
    ),
    "the second caller fills pinned memory": (
        {
            "staging": """
                import torch

                class Staging:
                    def __init__(self, n):
                        self.host = torch.empty(n, pin_memory=True)
                        self.device = torch.empty(n, device="cuda")
                        self.sent = torch.cuda.Event()

                    def upload(self):
                        self.device.copy_(self.host, non_blocking=True)
                        self.sent.record()

                    def wait(self):
                        self.sent.synchronize()
            """,
            "feed": """
                from .staging import Staging

                class Feed:
                    def __init__(self, n):
                        self.staging = Staging(n)

                    @property
                    def host(self):
                        return self.staging.host

                    def send(self):
                        self.staging.upload()

                    def settle(self):
                        self.staging.wait()
            """,
            "train": """
                from .feed import Feed

                def train(batches):
                    feed = Feed(1024)
                    for batch in batches:
                        {order}
                        feed.host.copy_(batch)
                        feed.send()
            """,
        },
        "feed.settle()",
        ("train", "SS302", "feed.host.copy_"),
    ),
    "a method that forks the stream of a capture two files away": (
        {
            "weights": """
                import torch

                class Weights:
                    def __init__(self, n):
                        self.lane = torch.cuda.Stream()
                        self.main = torch.zeros(n, device="cuda")
                        self.model = torch.zeros(n, device="cuda")

                    def sync(self):
                        self.lane.wait_stream(torch.cuda.current_stream())
                        with torch.cuda.stream(self.lane):
                            self.model.copy_(self.main)

                    def use(self):
                        torch.cuda.current_stream().wait_stream(self.lane)
            """,
            "optimizer": """
                from .weights import Weights

                class Optimizer:
                    def __init__(self, weights: Weights):
                        self.weights = weights

                    def step(self):
                        self.weights.sync()
            """,
            "train": """
                import torch
                from .optimizer import Optimizer

                def captured(optimizer: Optimizer):
                    graph = torch.cuda.CUDAGraph()
                    with torch.cuda.graph(graph):
                        optimizer.step()
                        {order}
                    return graph
            """,
        },
        "optimizer.weights.use()",
        ("weights", "SS402", "self.model.copy_"),
    ),
    "a function that another file calls outside a capture": (
        {
            "lanes": """
                import torch

                SIDE = torch.cuda.Stream()

                def add_on_side(x, y):
                    SIDE.wait_stream(torch.cuda.current_stream())
                    with torch.cuda.stream(SIDE):
                        y.add_(x)

                def join():
                    torch.cuda.current_stream().wait_stream(SIDE)
            """,
            "eager": """
                from .lanes import add_on_side, join

                def step(x, y):
                    add_on_side(x, y)
                    join()
                    return y.sum()
            """,
            "graphs": """
                import torch
                from .lanes import add_on_side, join

                class Runner:
                    def __init__(self, x, y):
                        self.x, self.y = x, y

                    def warm(self):
                        self.graph = torch.cuda.CUDAGraph()
                        with torch.cuda.graph(self.graph):
                            add_on_side(self.x, self.y)
                            {order}
            """,
        },
        "join()",
        ("lanes", "SS402", "y.add_(x)"),
    ),
}
"""Files, of which the last orders or not; what orders there; where a hazard shows: the file, its code, its line."""


@pytest.mark.parametrize("name", CHAINS)
def test_places_that_are_files_apart(name: str, tmp_path: Path) -> None:
    files, order, (stem, code, part) = CHAINS[name]
    *_, last = files

    def shown(ordered: str) -> list[tuple[str, str, int]]:
        texts = {f"pkg/{n}.py": textwrap.dedent(t).lstrip("\n") for n, t in files.items()}
        texts[f"pkg/{last}.py"] = texts[f"pkg/{last}.py"].format(order=ordered)
        found = check_tree(write_tree(tmp_path, {"pkg/__init__.py": "", **texts}))
        return [(Path(path).stem, f.code, f.row) for path, some in found.items() for f in some]

    text = textwrap.dedent(files[stem]).lstrip("\n").format(order="")
    row = 1 + next(number for number, line in enumerate(text.splitlines()) if part in line)
    found = shown("pass")
    if found or not not_shown.known(f"test_chains_of_files.py {name.replace(' ', '-')} {code} missing alarm"):
        assert found == [(stem, code, row)]
    assert shown(order) == []
