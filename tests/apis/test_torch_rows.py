"""Rows of torch, called on the simulated device: what the sanitizer saw is what the row says.

A call is made under a stream ``main`` three times. Its operand has been written on another stream: that is a hazard
where the call touches it. The operand has been read on another stream: that is one where the call writes it. ``main``
has copied to pinned memory before, which the host reads afterwards: that is one unless the host waited in the call.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest

import streamsafe
from streamsafe.apis import torch as rows
from streamsafe.apis.effects import CURRENT, Call

WORDS: dict[str, Callable[[Any, Any], Any]] = {
    "none": lambda torch, x: (),
    "shape": lambda torch, x: (4, 4),
    "size": lambda torch, x: ((4, 4),),
    "dimension": lambda torch, x: (0,),
    "one": lambda torch, x: (1,),
    "number": lambda torch, x: (2.0,),
    "tensor": lambda torch, x: (torch.ones_like(x),),
    "mask": lambda torch, x: (torch.ones_like(x).bool(),),
    "tensors": lambda torch, x: (torch.ones_like(x), torch.ones_like(x)),
    "dimensions": lambda torch, x: (0, 1),
    "piece": lambda torch, x: (0, 0, 1),
    "index": lambda torch, x: (0, torch.zeros((4, 4), dtype=torch.int64, device=x.device)),
    "indices": lambda torch, x: (0, torch.zeros(4, dtype=torch.int64, device=x.device)),
    "put": lambda torch, x: (0, torch.zeros((4, 4), dtype=torch.int64, device=x.device), torch.ones_like(x)),
    "fill": lambda torch, x: (torch.ones_like(x).bool(), 1.0),
    "type": lambda torch, x: (torch.float64,),
    "whole": lambda torch, x: ((4, 4), (4, 1)),
    "filled": lambda torch, x: ((4, 4), 1.0),
    "parts": lambda torch, x: (0, (2, 2)),
    "order": lambda torch, x: ((1, 0),),
    "order of axes": lambda torch, x: (0, 1),
    "stream": lambda torch, x: (torch.cuda.current_stream(),),
    "vector": lambda torch, x: (torch.ones(4, device=x.device),),
    "batches": lambda torch, x: (torch.ones(2, 4, 4, device=x.device),),
    "two batches": lambda torch, x: (
        torch.ones(2, 4, 4, device=x.device),
        torch.ones(2, 4, 4, device=x.device),
    ),
    "matrix and vector": lambda torch, x: (torch.eye(4, device=x.device), torch.ones(4, device=x.device)),
    "columns": lambda torch, x: (torch.ones(4, device=x.device),),
    "reduce": lambda torch, x: (*WORDS["put"](torch, x), "sum"),
    "elements": lambda torch, x: (
        (torch.zeros(4, dtype=torch.int64, device=x.device),),
        torch.ones(4, 4, device=x.device),
    ),
    "one value": lambda torch, x: (*WORDS["indices"](torch, x), 1.0),
    "rows": lambda torch, x: (*WORDS["indices"](torch, x), torch.ones_like(x)),
    "norm": lambda torch, x: (2, 0, 0.5),
    "count": lambda torch, x: (2,),
    "static": lambda torch, x: {"size": 4},
}
"""What is given beside the operand, by position or by name: the first that the call takes is used."""

OPERANDS = ("float", "number", "integer", "line", "complex", "boolean")


def operand(torch: Any, kind: str) -> Any:
    if kind == "number":
        return torch.ones(1, device="cuda")
    if kind == "integer":
        return torch.ones((4, 4), dtype=torch.int64, device="cuda")
    if kind == "line":
        return torch.ones(4, dtype=torch.int64, device="cuda")
    if kind == "complex":
        return torch.ones((4, 4), dtype=torch.complex64, device="cuda")
    if kind == "boolean":
        return torch.ones((4, 4), dtype=torch.bool, device="cuda")
    if kind == "vector":
        return torch.ones(4, device="cuda")
    if kind == "batches":
        return torch.ones((2, 4, 4), device="cuda")
    if kind == "triples":
        return torch.ones((4, 3), device="cuda")
    if kind == "pairs":
        return torch.ones((4, 2), device="cuda")
    if kind == "large":
        return torch.full((4, 4), 9.0, device="cuda")
    return torch.eye(4, device="cuda")


CALLS = [
    call
    for call in rows.ROWS
    if call.owner in ("torch.Tensor", "torch") and not call.last.startswith("_") and call not in rows.AUTOGRAD
]

NOT_CALLED = frozenset(
    """resize_ resize_as_ set_ share_memory_ register_post_accumulate_grad_hook get_local new_empty_strided
    requires_grad_ retain_grad register_hook names numpy cuda has_names save tensor normal pin_memory
    empty empty_strided zeros ones full rand randn randint arange linspace eye randperm
    native_batch_norm cudnn_batch_norm miopen_batch_norm batch_norm_gather_stats
    batch_norm_gather_stats_with_counts empty_quantized""".split()
)
"""No tensor is given, or none that another stream may use, or the call has tests of its own."""


def plain(torch: Any, call: Call) -> Callable[..., Any] | None:
    """The function; a method is called by its class."""
    found = getattr(torch.Tensor if call.owner == "torch.Tensor" else torch, call.last, None)
    return found if callable(found) else None


CHOSEN = {
    "copy_": ("float", "tensor"),
    "to": ("float", "type"),
    "torch.repeat_interleave": ("line", "none"),
    "repeat_interleave": ("float", "count"),
    "nonzero_static": ("float", "static"),
    "record_stream": ("float", "stream"),
    "new_full": ("float", "filled"),
    "new_tensor": ("float", "size"),
    "unflatten": ("float", "parts"),
    "as_strided": ("float", "whole"),
    "as_strided_": ("float", "whole"),
    "chunk": ("float", "count"),
    "split": ("float", "count"),
    "permute": ("float", "order"),
    "bmm": ("batches", "batches"),
    "addbmm": ("float", "two batches"),
    "baddbmm": ("batches", "two batches"),
    "float": ("integer", "none"),
    "type": ("float", "type"),
    "dsplit": ("batches", "count"),
    "hsplit": ("float", "count"),
    "vsplit": ("float", "count"),
    "index_add": ("float", "rows"),
    "index_copy": ("float", "rows"),
    "index_fill": ("float", "one value"),
    "index_put": ("float", "elements"),
    "index_put_": ("float", "elements"),
    "mv": ("float", "vector"),
    "addmv": ("vector", "matrix and vector"),
    "renorm": ("float", "norm"),
    "scatter_reduce": ("float", "reduce"),
    "moveaxis": ("float", "order of axes"),
    "cross": ("triples", "tensor"),
    "kthvalue": ("float", "one"),
    "mvlgamma": ("large", "one"),
    "orgqr": ("float", "vector"),
    "view_as_complex": ("pairs", "none"),
    "isreal": ("complex", "none"),
    "to_dense": ("float", "type"),
}
"""Operand and arguments of calls of which the first that works is not what the row is about."""


def given(function: Callable[..., Any], x: Any, more: Any) -> Any:
    return function(x, **more) if isinstance(more, dict) else function(x, *more)


def way(torch: Any, call: Call, function: Callable[..., Any]) -> tuple[str, str] | None:
    """An operand and other arguments with which the call can be made."""
    for name in (call.name, call.last):
        if name in CHOSEN:
            return CHOSEN[name]
    for kind in OPERANDS:
        for word, make in WORDS.items():
            x = operand(torch, kind)
            try:
                given(function, x, make(torch, x))
            except Exception:
                continue
            return kind, word
    return None


def hazards(
    torch: Any, prepare: Callable[[Any, Any], Any], call: Callable[[Any], Any], kind: str
) -> list[str]:
    """The codes of what is found where ``prepare`` is followed by the call on another stream."""
    x = operand(torch, kind)
    side, main = torch.cuda.Stream(), torch.cuda.Stream()
    torch.cuda.synchronize()
    with streamsafe.sanitize(mode="collect") as session:
        finish = prepare(x, (side, main))
        with torch.cuda.stream(main):
            kept = call(x)
        if finish is not None:
            finish()
        torch.cuda.synchronize()
        del kept
    return [
        hazard.code
        for hazard in session.hazards
        if hazard.code in ("SS101", "SS102", "SS103", "SS301", "SS302")
    ]


def others(call: Call) -> bool:
    """Whether the call reads or writes its first operand."""
    return bool(call.reads or call.writes)


@pytest.mark.parametrize(
    "call", [call for call in CALLS if call.last not in NOT_CALLED], ids=lambda call: call.name
)
def test_row(torch: Any, call: Call) -> None:
    function = plain(torch, call)
    if function is None:
        pytest.skip("not in this release of torch")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = way(torch, call, function)
        assert found is not None, "no operands with which it can be called"
        kind, word = found
        extra = WORDS[word](torch, operand(torch, kind))

        def made(x: Any) -> Any:
            return given(function, x, extra)

        def written(x: Any, streams: Any) -> None:
            with torch.cuda.stream(streams[0]):
                x.mul_(True)

        def read(x: Any, streams: Any) -> None:
            with torch.cuda.stream(streams[0]):
                x.clone()

        def copied(x: Any, streams: Any) -> Callable[[], Any]:
            pinned = torch.empty(1024, pin_memory=True)
            source = torch.ones(1024, device="cuda")
            streams[1].wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(streams[1]):
                pinned.copy_(source, non_blocking=True)
            return lambda: pinned.sum()

        saw = {
            "touches": bool(hazards(torch, written, made, kind)),
            "writes": bool(hazards(torch, read, made, kind)),
            "waits": not hazards(torch, copied, made, kind),
        }
    assert saw == {"touches": others(call), "writes": bool(call.writes), "waits": call.waits == CURRENT}


def test_a_wait_that_an_argument_spares(torch: Any) -> None:
    """In a capture a call that waits is refused, and not where its size is given (TM-10)."""
    counts = torch.ones(4, dtype=torch.int64, device="cuda")
    torch.cuda.synchronize()
    for more, codes in (({"output_size": 4}, []), ({}, ["SS401"])):
        graph = torch.cuda.CUDAGraph()
        with streamsafe.sanitize(mode="collect") as session:
            try:
                with torch.cuda.graph(graph):
                    kept = torch.repeat_interleave(counts, **more)
            except RuntimeError:
                kept = None
        del kept
        assert [hazard.code for hazard in session.hazards if hazard.code == "SS401"] == codes
