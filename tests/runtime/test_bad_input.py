"""What must not hang, crash or change a result: missing parts, forks, ends of the interpreter, other tracers."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import streamsafe
from streamsafe.runtime import cupy as front
from tests.runtime.helpers import Program, codes

pytest.importorskip("numpy")
ROOT = Path(__file__).resolve().parents[2]
SIMULATED = (
    "from streamsafe.simulate import cuda as simulate\nsimulate.install()\nimport cupy as cp, streamsafe\n"
)


def python(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    variables = {**os.environ, "PYTHONPATH": str(ROOT), **environment}
    return subprocess.run(
        [sys.executable, "-c", code], env=variables, capture_output=True, text=True, timeout=60
    )


@pytest.mark.parametrize("version", ["12.3.0", "13.5.1", "15.0.0", "garbage"])
def test_an_unsupported_cupy(backend: Any, monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    monkeypatch.setattr(backend, "__version__", version)
    with pytest.raises(front.UnsupportedError, match=r"supports 13\.6 and 14"):
        front.check_version(backend)


def test_no_driver() -> None:
    result = python(
        "import cupy, streamsafe\n"
        "with streamsafe.sanitize() as session:\n"
        "    try:\n        cupy.zeros(3)\n"
        "    except Exception as error:\n        print(type(error).__name__)\n"
        "    try:\n        cupy.cuda.Stream(non_blocking=True)\n"
        "    except Exception as error:\n        del error\n"
        "print(session.summary())\n",
        CUDA_VISIBLE_DEVICES="",
    )
    if "No module named" in result.stderr:
        pytest.skip("no CuPy")
    said = [
        line for line in result.stderr.splitlines() if "building CuPy's hooks" not in line
    ]  # the first use
    assert (result.returncode, said) == (0, [])
    assert result.stdout.splitlines()[-1].startswith("streamsafe: nothing was watched")
    assert "Error" in result.stdout.splitlines()[0]


def test_a_capture_cannot_be_entered(program: Program) -> None:
    with program.writer:
        program.writer.begin_capture()
        with pytest.raises(RuntimeError, match="being captured"), streamsafe.sanitize():
            pass
        program.writer.end_capture()
    with streamsafe.sanitize() as session:
        program.ordered()
    assert codes(session) == []


def test_kernel_arguments_that_raise(program: Program) -> None:
    class Loud:
        @property
        def __cuda_array_interface__(self) -> Any:
            raise KeyError("mine")

    with streamsafe.sanitize("collect") as session:
        with pytest.raises((KeyError, TypeError)):
            program.cp.add(Loud(), 1)
        with pytest.raises(ValueError, match="broadcast"):
            program.cp.add(program.x, program.cp.zeros(3))
        program.ordered()
        program.settle()
    assert codes(session) == []


def test_an_allocator_that_fails(program: Program) -> None:
    cp = program.cp

    def refuse(size: int) -> Any:
        raise MemoryError("none left")

    with streamsafe.sanitize() as session:
        with cp.cuda.using_allocator(refuse), pytest.raises(MemoryError, match="none left"):
            cp.zeros(3)
        program.ordered()
        program.settle()
    assert codes(session) == []


def test_another_tracer_is_left_in_place(cp: Any) -> None:
    import cupy.cuda.compiler as compiler

    original = compiler._compile_module_with_cache
    seen: list[str] = []

    def tracer(source: str, *args: Any, **kwargs: Any) -> Any:
        seen.append(source)
        return inner(source, *args, **kwargs)

    program = Program(cp)
    with streamsafe.sanitize("collect") as session:
        inner = compiler._compile_module_with_cache
        compiler._compile_module_with_cache = tracer
        cp.ElementwiseKernel("T a", "T b", "b = a + 41", "traced_by_two")(program.x, program.y)
        program.settle()
    try:
        assert seen and codes(session) == []
        assert compiler._compile_module_with_cache is tracer
        cp.ElementwiseKernel("T a", "T b", "b = a + 42", "after")(program.x, program.y)
    finally:
        compiler._compile_module_with_cache = original
    program.settle()


def test_a_fork_inherits_no_session(cp: Any) -> None:
    result = python(
        SIMULATED + "import os, threading\n"
        "with streamsafe.sanitize() as session:\n"
        "    x = cp.zeros(3)\n"
        "    from streamsafe.runtime.monitor import current\n"
        "    lock = current.monitor.lock\n"
        "    threading.Thread(target=lambda: (lock.acquire(), threading.Event().wait(5)), daemon=True).start()\n"
        "    import time; time.sleep(0.2)\n"
        "    child = os.fork()\n"
        "    if child == 0:\n"
        "        print('monitor in the child:', current.monitor, flush=True)\n"
        "        os._exit(0)\n"
        "    print(os.waitpid(child, 0)[1], flush=True)\n"
        "    os._exit(0)\n"
    )
    assert result.stdout == "monitor in the child: None\n0\n", result.stderr


def test_the_interpreter_ends_inside_a_session(cp: Any) -> None:
    result = python(
        SIMULATED + "manager = streamsafe.sanitize()\nmanager.__enter__()\n"
        "x = cp.zeros(3)\nevent = cp.cuda.Event()\nstream = cp.cuda.Stream()\nprint('end')\n"
    )
    assert (result.returncode, result.stdout, result.stderr) == (0, "end\n", "")


def test_host_functions_run(program: Program) -> None:
    seen: list[int] = []
    with streamsafe.sanitize() as session:
        program.writer.launch_host_func(lambda value: seen.append(value), 3)
        program.writer.synchronize()
    assert (seen, codes(session)) == ([3], [])


AWAITED = """
import asyncio, gc
async def main():
    future = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().call_soon(future.set_result, 1)
    await future
asyncio.run(main())
"""


@pytest.mark.parametrize(
    "work",
    ["block = cupyx.zeros_pinned(8)", "runtime.hostRegister(block.ctypes.data, block.nbytes, 0)"],
    ids=["pinned before", "registered"],
)
def test_futures_were_awaited_before(work: str) -> None:
    """CPython 3.12 keeps iterators of futures for use again, and its collector does not end when they are touched."""
    result = python(
        SIMULATED + AWAITED + "import _asyncio, cupyx, numpy as np\nfrom cupy.cuda import runtime\n"
        "def work(module=_asyncio):\n"
        "    block = np.zeros(8192, np.uint8)\n"
        f"    {work}\n"
        "    return block\n"
        "block = work()\n"
        "with streamsafe.sanitize() as session:\n    second = work()\n"
        "gc.collect()\nprint(session.hazards)"
    )
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.splitlines()[-1] == "[]"
