"""Operators that take functions: they compute what they compute without the sanitizer, and their parts are seen."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import pytest

import streamsafe

pytestmark = pytest.mark.filterwarnings(
    "ignore::UserWarning", "ignore::DeprecationWarning", "ignore::FutureWarning"
)


def cond(torch: Any, x: Any) -> Any:
    return torch.cond(x.sum() > 0, lambda x: x + 1, lambda x: x - 1, (x,))


def while_loop(torch: Any, x: Any) -> Any:
    operators = importlib.import_module("torch._higher_order_ops")
    return operators.while_loop(
        lambda i, x: i < 3, lambda i, x: (i + 1, x * 2), (torch.zeros((), device=x.device), x)
    )[1]


def checkpoint(torch: Any, x: Any) -> Any:
    tools = importlib.import_module("torch.utils.checkpoint")
    function = torch.compile(
        lambda x: tools.checkpoint(lambda x: (x * x).relu(), x, use_reentrant=False), backend="aot_eager"
    )
    return function(x)


def flex_attention(torch: Any, x: Any) -> Any:
    attention = importlib.import_module("torch.nn.attention.flex_attention")
    query = x.reshape(1, 1, 2, -1)
    return attention.flex_attention(query, query, query, score_mod=lambda score, *_: score * 2)


def autograd_of_cond(torch: Any, x: Any) -> Any:
    w = x.clone().requires_grad_()
    cond(torch, w).sum().backward()
    return w.grad


PROGRAMS = (cond, while_loop, checkpoint, flex_attention, autograd_of_cond)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda each: each.__name__)
def test_it_computes_what_it_does_without(torch: Any, program: Callable[[Any, Any], Any]) -> None:
    x = torch.ones(32, device="cuda")
    torch.cuda.synchronize()
    plain = program(torch, x)
    with streamsafe.sanitize(mode="collect") as session:
        watched = program(torch, x)
        torch.cuda.synchronize()
    assert torch.equal(plain.cpu(), watched.cpu())
    assert not session.hazards
    again = program(torch, x)  # when the session is over
    assert torch.equal(plain.cpu(), again.cpu())


@pytest.mark.parametrize("waits", [False, True])
def test_a_part_is_seen(torch: Any, waits: bool) -> None:
    x, side = torch.ones(32, device="cuda"), torch.cuda.Stream()
    always = torch.tensor(True)
    torch.cuda.synchronize()
    with streamsafe.sanitize(mode="collect") as session:
        with torch.cuda.stream(side):
            x.add_(1)
        if waits:
            torch.cuda.current_stream().wait_stream(side)
        torch.cond(always, lambda x: x + 1, lambda x: x - 1, (x,))
        torch.cuda.synchronize()
    assert [hazard.code for hazard in session.hazards] == ([] if waits else ["SS101"])
