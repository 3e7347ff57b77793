"""Triton kernels on the simulated device: they compute, graphs replay them, and each element they touch is seen."""

from __future__ import annotations

import importlib
import linecache
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import streamsafe

SOURCE = """
import triton
import triton.language as tl
from triton.language.extra import libdevice


@triton.jit
def curve(x, out, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    value = tl.load(x + i, mask=i < n)
    tl.store(out + i, libdevice.tanh(value) + libdevice.pow(value, 2.0) + libdevice.erf(value), mask=i < n)


@triton.jit
def bessel(x, out, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out + i, libdevice.j0(tl.load(x + i, mask=i < n)), mask=i < n)


@triton.jit
def scale(x, out, n, by, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i < n) * by, mask=i < n)


@triton.jit
def every_second(out, first, n, BLOCK: tl.constexpr):
    i = first + 2 * tl.arange(0, BLOCK)
    tl.store(out + i, 1.0, mask=i < n)


@triton.jit
def total(x, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(out, tl.sum(tl.load(x + i, mask=i < n, other=0.0)))


@triton.jit
def matmul(a, b, c, N: tl.constexpr):
    i = tl.arange(0, N)
    at = i[:, None] * N + i[None, :]
    tl.store(c + at, tl.dot(tl.load(a + at), tl.load(b + at)))


@triton.autotune([triton.Config({"BLOCK": 16}), triton.Config({"BLOCK": 64}, num_warps=8)], key=["n"])
@triton.jit
def tuned(x, out, n, by, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i < n) * by, mask=i < n)
"""


@pytest.fixture(scope="module")
def kernels(backend: Any) -> dict[str, Any]:
    pytest.importorskip("triton")
    found: dict[str, Any] = {"__name__": "kernels"}
    linecache.cache["<kernels>"] = (len(SOURCE), None, SOURCE.splitlines(keepends=True), "<kernels>")
    exec(compile(SOURCE, "<kernels>", "exec"), found)
    return found


@pytest.fixture
def simulated(request: pytest.FixtureRequest) -> None:
    if request.config.getoption("--gpu"):
        pytest.skip("a GPU computes something else")


def test_kernels_compute(torch: Any, kernels: dict[str, Any]) -> None:
    x, out = torch.rand(100, device="cuda"), torch.zeros(100, device="cuda")
    kernels["scale"][(4,)](x, out, 100, 2.0, BLOCK=32)
    assert torch.equal(out, x * 2)
    kernels["curve"][(1,)](x, out, 100, BLOCK=128)
    torch.testing.assert_close(out, x.tanh() + x * x + x.erf())
    whole = torch.zeros((), device="cuda")
    kernels["total"][(4,)](x, whole, 100, BLOCK=32)
    torch.testing.assert_close(whole, x.sum())
    a, b, c = (torch.rand(16, 16, device="cuda") for _ in range(3))
    kernels["matmul"][(1,)](a, b, c, N=16)
    torch.testing.assert_close(c, a @ b, atol=1e-2, rtol=1e-2)


def test_an_autotuner_takes_its_first_configuration(
    torch: Any, kernels: dict[str, Any], simulated: None
) -> None:
    x, out = torch.rand(100, device="cuda"), torch.zeros(100, device="cuda")
    kernels["tuned"][lambda meta: (-(-100 // meta["BLOCK"]),)](x, out, 100, 3.0)
    assert torch.equal(out, x * 3)
    assert kernels["tuned"].best_config.kwargs == {"BLOCK": 16}
    testing = importlib.import_module("triton.testing")
    calls: list[int] = []
    assert testing.do_bench(lambda: calls.append(1), quantiles=[0.5, 0.2]) == [1.0, 1.0]
    assert len(calls) == 1


def test_a_graph_replays_kernels(torch: Any, kernels: dict[str, Any]) -> None:
    x, out = torch.ones(100, device="cuda"), torch.zeros(100, device="cuda")
    kernels["scale"][(4,)](x, out, 100, 1.0, BLOCK=32)
    out.zero_()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        kernels["scale"][(4,)](x, out, 100, 2.0, BLOCK=32)
    assert out.sum() == 0  # the capture runs nothing
    x.fill_(3)
    graph.replay()
    assert out.sum() == 600


@pytest.mark.parametrize(("n", "refused"), [(100, False), (1 << 40, True)])
def test_what_a_gpu_refuses_and_what_is_not_simulated(
    torch: Any, kernels: dict[str, Any], simulated: None, n: int, refused: bool
) -> None:
    x, out = torch.ones(100, device="cuda"), torch.zeros(100, device="cuda")
    launch = kernels["every_second"][(1,)]
    if refused:
        with pytest.raises(Exception, match="illegal memory access"):
            launch(out, 1 << 36, n, BLOCK=32)
    else:
        launch(out, 0, n, BLOCK=64)
        assert out.sum() == 50
    with pytest.raises(Exception, match=r"libdevice\.j0 in a Triton kernel is not simulated"):
        kernels["bessel"][(1,)](x, out, 100, BLOCK=128)
    with pytest.raises(ValueError, match="cannot be accessed from Triton"):
        kernels["scale"][(4,)](x.cpu(), out, 100, 2.0, BLOCK=32)


@pytest.mark.parametrize("waits", [False, True])
@pytest.mark.parametrize("name", ["scale", "tuned"])
def test_a_kernel_on_another_stream(torch: Any, kernels: dict[str, Any], name: str, waits: bool) -> None:
    x, out, side = torch.ones(100, device="cuda"), torch.zeros(100, device="cuda"), torch.cuda.Stream()
    block = {} if name == "tuned" else {"BLOCK": 32}
    kernels[name][(8,)](x, out, 100, 2.0, **block)
    torch.cuda.synchronize()
    with streamsafe.sanitize(mode="collect") as session:
        with torch.cuda.stream(side):
            x.add_(1)
        if waits:
            torch.cuda.current_stream().wait_stream(side)
        kernels[name][(8,)](x, out, 100, 2.0, **block)
        torch.cuda.synchronize()
    assert [(each.code, each.second.operation) for each in session.hazards] == (
        [] if waits else [("SS101", name)]
    )


@pytest.mark.parametrize(("first", "codes"), [(1, []), (0, ["SS102"])])
def test_elements_are_told_apart(
    torch: Any, kernels: dict[str, Any], simulated: None, first: int, codes: list[str]
) -> None:
    out, side = torch.zeros(100, device="cuda"), torch.cuda.Stream()
    torch.cuda.synchronize()
    with streamsafe.sanitize(mode="collect") as session:
        with torch.cuda.stream(side):
            kernels["every_second"][(1,)](out, first, 100, BLOCK=32)
        kernels["every_second"][(1,)](out, 0, 100, BLOCK=32)
        torch.cuda.synchronize()
    assert [hazard.code for hazard in session.hazards] == codes


def test_triton_is_imported_before_torch(kernels: dict[str, Any], simulated: None, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        SOURCE
        + "import torch\nx = torch.ones(8, device='cuda')\nscale[(1,)](x, x, 8, 2.0, BLOCK=8)\nprint(x.sum().item())\n"
    )
    command = [sys.executable, "-m", "streamsafe", "run", "--simulate", str(program)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "16.0" in done.stdout
