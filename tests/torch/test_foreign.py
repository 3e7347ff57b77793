"""Launches of libraries without a front end, and what arguments of kernels stand for: descriptors, tuples and so on."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import streamsafe
from streamsafe.runtime.monitor import current
from streamsafe.runtime.torch.hooks.arguments import Argument, analysable, memory, uses

ROOT = Path(__file__).resolve().parents[2]

NUMBA = """
class _Kernel:
    def __init__(self, py_func):
        self.py_func = py_func
    def launch(self, args, griddim, blockdim, stream=0, sharedmem=0):
        from cuda.core import launch
        launch(stream, None, self, *args)
"""
CUDA_CORE = """
__name__ = "cuda.core.cu13"  # what the real one does
class Buffer:
    def __init__(self, handle, size):
        self.handle, self.size = handle, size
def launch(stream, config, kernel, *kernel_args):
    pass
"""
BEGIN = """
import torch
from numba.cuda.dispatcher import _Kernel
import cuda.core
from cuda.core import Buffer
class Stream:  # of another library
    def __init__(self, stream):
        self.stream = stream
    def __cuda_stream__(self):
        return 0, self.stream.cuda_stream
def scale(x):
    pass
x, y = torch.zeros(1024, device="cuda"), torch.zeros(1024, device="cuda")
side = torch.cuda.Stream()
torch.cuda.synchronize()
"""
PROGRAMS = {
    "Numba": ("_Kernel(scale).launch((x,), 1, 1, Stream(side))\ny.copy_(x)\n", "`scale` on `side`"),
    "Numba, a wait": (
        "_Kernel(scale).launch((x,), 1, 1, Stream(side))\n"
        "torch.cuda.current_stream().wait_stream(side)\ny.copy_(x)\n",
        "",
    ),
    "Numba, the default stream": ("_Kernel(scale).launch((x,), 1, 1)\ny.copy_(x)\n", ""),
    "Numba, another tensor": ("_Kernel(scale).launch(((3, y),), 1, 1, Stream(side))\nx.add_(1)\n", ""),
    "cuda.core, an address": (
        "cuda.core.launch(Stream(side), None, None, x.data_ptr(), 7)\ny.copy_(x)\n",
        "a kernel of cuda.core on `side`",
    ),
    "cuda.core, a buffer": (
        "cuda.core.launch(Stream(side), None, None, Buffer(x.data_ptr() + 64, 64))\ny.copy_(x)\n",
        "a kernel of cuda.core on `side`",
    ),
    "cuda.core, memory of its own": (
        "cuda.core.launch(Stream(side), None, None, Buffer(1 << 60, 64))\ny.copy_(x)\n",
        "",
    ),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_launch_of_another_library(
    torch: Any, request: pytest.FixtureRequest, name: str, tmp_path: Path
) -> None:
    if request.config.getoption("--gpu"):
        pytest.skip("the launches are of stand-ins for the libraries, on the simulated device")
    body, said = PROGRAMS[name]
    for module, text in {"numba/cuda/dispatcher": NUMBA, "cuda/core/__init__": CUDA_CORE}.items():
        path = tmp_path / f"{module}.py"
        path.parent.mkdir(parents=True)
        path.write_text(text)
    for package in ("numba", "numba/cuda"):
        (tmp_path / package / "__init__.py").touch()  # else an installed Numba comes first
    (tmp_path / "program.py").write_text(BEGIN + body)
    command = [sys.executable, "-m", "streamsafe", "run", "--simulate", str(tmp_path / "program.py")]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ended.returncode == bool(said), ended.stderr
    assert ended.stderr.count("which " + said if said else "SS1") == bool(said), ended.stderr


def found(torch: Any, **given: Any) -> list[Argument]:
    monitor = current.monitor
    assert monitor is not None
    from streamsafe.runtime import torch as front_end

    return memory(torch, given, front_end.block)


def test_what_arguments_stand_for(torch: Any) -> None:
    with streamsafe.sanitize("collect"):
        x, y = torch.zeros(8, 16, device="cuda"), torch.zeros(64, device="cuda")
        descriptor = SimpleNamespace(base=x, shape=[4, 16], strides=[16, 1], block_shape=[4, 16])
        other_type = SimpleNamespace(base=y, dtype="int32", shape=y.shape, data_ptr=y.data_ptr)
        assert found(torch, d=descriptor)[0][:4] == ("d", 0, x.data_ptr(), 256)
        assert found(torch, w=other_type)[0][:4] == ("w", 0, y.data_ptr(), 256)
        assert [each[:4] for each in found(torch, pair=(x, 3, (y,)))] == [
            ("pair", 0, x.data_ptr(), 512),
            ("pair", 0, y.data_ptr(), 256),
        ]
        (address,) = found(torch, at=y.data_ptr() + 128, n=1024, far=1 << 60)
        assert address.address == y.data_ptr() + 128 and not address.plain and address.size >= 128
        (pointer,) = found(torch, p=SimpleNamespace(data_ptr=lambda: y.data_ptr()))
        assert pointer.address == y.data_ptr()
        made = uses(found(torch, d=descriptor, w=other_type, pair=(x,)), {"d"})
        assert [(use.write, use.certain) for use in made] == [(True, True), (False, True), (True, False)]
        assert all(use.write and not use.certain for use in uses(found(torch, d=descriptor), None))
        plain, descriptors = analysable(torch, {"d": descriptor, "w": other_type, "n": 3})
        assert plain["d"] is x and plain["w"] is y and plain["n"] == 3
        assert descriptors == {"d": ("stable", ([4, 16],))}
