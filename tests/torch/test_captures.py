"""What a capture is left with: exceptions of the program, and Python's collection of cycles."""

from __future__ import annotations

import contextlib
import gc
import json
import subprocess
import sys
import weakref
from pathlib import Path
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


ERRORS = {
    "cuBLAS": "CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`",
    "cuSOLVER": "cusolver error: CUSOLVER_STATUS_INTERNAL_ERROR, when calling `cusolverDnCreate(handle)`. If you keep",
    "cuSPARSE": "CUDA error: initialization error when calling `cusparseCreate(handle)`",
    "cuFFT": "cuFFT error: CUFFT_INTERNAL_ERROR",
}
"""What torch 2.11 raises for a first use in a capture."""

OTHERS = {
    "a program's own": "of the program",
    "used before": "CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasSgemm(handle, ...)`",
    "no capture": "CUDA error: an illegal memory access was encountered",
}


def captured(torch: Any, error: Exception, before: Any = None) -> list[str]:
    """The messages of a capture that ends with an error."""
    with streamsafe.sanitize(mode="collect") as session:
        try:
            with torch.cuda.graph(torch.cuda.CUDAGraph()):
                x = torch.ones(8, device="cuda")
                if before is not None:
                    before(x)
                raise error
        except type(error):
            torch.cuda.set_stream(torch.cuda.default_stream())
    return [f"{hazard.code} {hazard.message}" for hazard in session.hazards]


@pytest.fixture
def losing(torch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The end of each capture fails, as when CUDA has given it up."""
    base = torch.cuda.CUDAGraph.__mro__[1]
    end = base.capture_end

    def capture_end(graph: Any) -> None:
        end(graph)
        raise RuntimeError("CUDA error: operation failed due to a previous error during capture")

    monkeypatch.setattr(base, "capture_end", capture_end)


@pytest.mark.parametrize("library", ERRORS)
def test_a_library_that_is_first_used_in_a_capture(torch: Any, losing: None, library: str) -> None:
    found = captured(torch, RuntimeError(ERRORS[library]))
    assert found == [f"SS406 the first use of {library}: it needs a warm-up on a side stream first"]


@pytest.mark.parametrize("error", OTHERS)
def test_a_capture_that_is_lost_for_another_reason(torch: Any, losing: None, error: str) -> None:
    assert captured(torch, RuntimeError(OTHERS[error])) == []


def test_a_library_that_fails_because_the_capture_is_lost_already(torch: Any, losing: None) -> None:
    """What lost the capture is reported, and nothing of what followed."""

    def waits(x: Any) -> None:
        with contextlib.suppress(RuntimeError):
            x.sum().item()

    (found,) = captured(torch, RuntimeError(ERRORS["cuBLAS"]), waits)
    assert found.startswith("SS401 `item`")


PROGRAM = """
import torch

x = torch.ones(64, 64, device="cuda")
torch.cuda.synchronize()
with torch.cuda.graph(torch.cuda.CUDAGraph()):
    x @ x
"""

WARM = PROGRAM.replace("torch.cuda.synchronize()", "x @ x\ntorch.cuda.synchronize()")


@pytest.mark.parametrize(("program", "codes"), [(PROGRAM, ["SS406"]), (WARM, [])], ids=["cold", "warm"])
def test_a_first_product_on_a_gpu(
    torch: Any, request: pytest.FixtureRequest, tmp_path: Path, program: str, codes: list[str]
) -> None:
    """In a process of its own, where nothing has used cuBLAS."""
    if not request.config.getoption("--gpu"):
        pytest.skip("needs a GPU: run with --gpu")
    path, report = tmp_path / "program.py", tmp_path / "report.json"
    path.write_text(program, encoding="utf-8")
    command = [sys.executable, "-m", "streamsafe", "run", "--mode", "collect"]
    subprocess.run([*command, "--report", str(report), str(path)], capture_output=True, check=False)
    hazards = json.loads(report.read_text(encoding="utf-8"))
    found = [(hazard["code"], hazard["location"]["row"]) for hazard in hazards]
    assert found == [(code, 7) for code in codes]
