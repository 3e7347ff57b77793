"""What a capture is left with: exceptions of the program, and Python's collection of cycles."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest

import streamsafe


def fork(torch: Any, side: Any) -> None:
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        torch.ones(8, device="cuda").add_(1)


def fails(torch: Any, side: Any) -> None:
    with torch.cuda.graph(torch.cuda.CUDAGraph()):
        fork(torch, side)
        raise ValueError("of the program")


def test_an_exception_between_fork_and_join(torch: Any) -> None:
    """The join was not reached: nobody forgot it."""
    side = torch.cuda.Stream()
    with streamsafe.sanitize(mode="collect") as session:
        with pytest.raises(RuntimeError) as raised:
            fails(torch, side)
        torch.cuda.set_stream(torch.cuda.default_stream())
    error: BaseException | None = raised.value
    while error is not None and not isinstance(error, ValueError):
        error = error.__context__
    assert str(error) == "of the program"
    assert not session.hazards


def test_a_missing_join_while_another_exception_is_handled(torch: Any) -> None:
    side = torch.cuda.Stream()
    with streamsafe.sanitize(mode="collect") as session:
        try:
            raise ValueError("of the program")
        except ValueError:
            with pytest.raises(RuntimeError), torch.cuda.graph(torch.cuda.CUDAGraph()):
                fork(torch, side)
            torch.cuda.set_stream(torch.cuda.default_stream())
    assert [hazard.code for hazard in session.hazards] == ["SS402"]


def test_no_cycle_is_collected_in_a_capture(torch: Any) -> None:
    """A graph that is destroyed in a capture makes CUDA lose it."""
    assert gc.isenabled()
    x = torch.ones(8, device="cuda")
    with streamsafe.sanitize(mode="collect") as session:
        old = torch.cuda.CUDAGraph()
        with torch.cuda.graph(old):
            x.add_(1)
        there = weakref.ref(old)
        cycle: list[Any] = [old]
        cycle.append(cycle)
        with torch.cuda.graph(torch.cuda.CUDAGraph()):
            del old, cycle
            for _ in range(2000):
                again: list[Any] = []
                again.append(again)
            assert there() is not None
            x.add_(1)
        assert gc.isenabled()
        gc.collect()
        assert there() is None
    assert not session.hazards


def test_cycles_are_collected_again_after_a_session_that_ends_in_a_capture(torch: Any) -> None:
    session = streamsafe.sanitize(mode="collect")
    session.__enter__()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        assert not gc.isenabled()
        torch.ones(8, device="cuda")
        session.__exit__(None, None, None)
        assert gc.isenabled()


def test_a_program_that_collects_no_cycles(torch: Any) -> None:
    gc.disable()
    try:
        with streamsafe.sanitize(mode="collect"), torch.cuda.graph(torch.cuda.CUDAGraph()):
            torch.ones(8, device="cuda")
        assert not gc.isenabled()
    finally:
        gc.enable()
