"""Installing: refusals, a clean exit, and what a fresh process sees."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from streamsafe.simulate import cuda as simulate

TIMEOUT_S = 60


def run(source: str, *, path: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run Python source in a fresh process, warnings being errors in what it says of streamsafe."""
    prefix = "" if path is None else f"import sys; sys.path.insert(0, {str(path)!r})\n"
    return subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", prefix + source],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )


def refusal(source: str, *, path: Path | None = None) -> str:
    """Return the message of the refusal that the source must meet."""
    result = run(
        source
        + """
from streamsafe.simulate import cuda as simulate
try:
    simulate.install()
except simulate.SimulationUnavailable as error:
    assert not simulate.is_active()
    print(error)
""",
        path=path,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout.strip()


def stand_in(root: Path, version: str) -> Path:
    """Make a package that calls itself CuPy."""
    package = root / "cupy"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "_version.py").write_text(f"__version__ = '{version}'\n")
    return root


@pytest.mark.parametrize("version", ["12.3.0", "13.5.1", "15.0.0a1"])
def test_untested_versions_are_refused(tmp_path: Path, version: str) -> None:
    message = refusal("", path=stand_in(tmp_path, version))
    assert message.startswith(f"CuPy {version} is not among the versions")
    assert all(tested in message for tested in simulate.TESTED_VERSIONS)


def test_an_earlier_import_is_refused(tmp_path: Path) -> None:
    message = refusal("import cupy", path=stand_in(tmp_path, simulate.TESTED_VERSIONS[-1]))
    assert message == "cupy was imported before the simulated CUDA runtime: it must be installed first"


def test_no_cupy_is_said(tmp_path: Path) -> None:
    message = refusal("import importlib.util\nimportlib.util.find_spec = lambda name: None\n")
    assert message == "CuPy is not installed: pip install cupy-cuda12x (no GPU is needed)"


def test_no_numpy_is_said(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text("pass\n")
    result = run(
        "import sys\nsys.modules['numpy'] = None\nfrom streamsafe.cli import main\n"
        f"main(['run', '--simulate', {str(tmp_path / 'program.py')!r}])"
    )
    assert result.returncode == 2
    assert result.stderr == (
        "Error: the simulated runtime runs the real CuPy, which is not installed: pip install cupy-cuda12x\n"
    )


def test_importing_the_package_imports_nothing_heavy() -> None:
    result = run(
        "import sys, streamsafe.simulate.cuda\nprint('cupy' in sys.modules, 'cupy_backends' in sys.modules)"
    )
    assert result.stdout.split() == ["False", "False"], result.stderr


def test_a_second_install_is_the_first(simulation: Any) -> None:
    assert simulate.is_active()
    assert simulate.install() is simulation
    assert simulate.install(2) is simulation
    with pytest.raises(ValueError, match="2 device"):
        simulate.install(3)


# One process with live objects of every kind when it ends: modules, graphs, handles, arrays, a pending callback.
EXIT = """
from streamsafe.simulate import cuda as simulate
simulation = simulate.install(devices=2)
import atexit, sys, threading
import cupy, cupyx, numpy
stream = cupy.cuda.Stream(non_blocking=True)
a = cupy.asarray(numpy.eye(4))
b = a @ a
c = cupy.fft.fft(a)
d = cupy.random.rand(4)
e = cupy.random.default_rng(0).random(4)
f = cupy.linalg.svd(a)
pinned = cupyx.empty_pinned(8)
managed = cupy.cuda.malloc_managed(64)
with stream:
    stream.begin_capture()
    cupy.add(a, a, out=b)
    graph = stream.end_capture()
    graph.launch()
event = stream.record()
stream.launch_host_func(sys.stdout.write, "called back\\n")
with cupy.cuda.Device(1):
    other = cupy.cuda.Stream()
    g = cupy.ones(4)
thread = threading.Thread(target=lambda: cupy.ones(3) + 1)
thread.start()
thread.join()
kernel = cupy.RawKernel('extern "C" __global__ void f(float* y) {}', "f")
kernel((1,), (1,), (a,))
cycle = [a, stream, event, graph]
cycle.append(cycle)
atexit.register(lambda ones=cupy.ones: ones(2))
sys.stdout.write("end\\n")
"""


@pytest.mark.parametrize("ending", ["", "del cupy, cupyx; stream.begin_capture()"])
def test_a_clean_exit(simulation: Any, ending: str) -> None:
    result = run(EXIT + ending)
    assert result.returncode == 0, result.stderr
    assert result.stderr == ""
    assert sorted(result.stdout.split("\n")) == ["", "called back", "end"]


def test_a_failing_script_keeps_its_own_error(simulation: Any) -> None:
    result = run(EXIT + "1 / 0")
    assert result.returncode == 1
    assert result.stderr.count("Traceback") == 1
    assert "ZeroDivisionError" in result.stderr


def test_a_forked_child_is_told(simulation: Any) -> None:
    """CUDA cannot be used in a child forked from a process that has used it."""
    result = run(
        """
from streamsafe.simulate import cuda as simulate
simulate.install()
import os, warnings
import cupy
cupy.ones(3)
warnings.simplefilter("ignore")
child = os.fork()
if not child:
    try:
        cupy.cuda.Device().synchronize()
    except cupy.cuda.runtime.CUDARuntimeError as error:
        os.write(1, str(error).encode())
    os._exit(0)
os.waitpid(child, 0)
"""
    )
    assert result.stdout.startswith("cudaErrorInitializationError"), result.stderr


def test_a_gpu_of_the_machine_is_out_of_reach() -> None:
    pytest.importorskip("cupy")
    result = run(
        "from streamsafe.simulate import cuda as simulate\n"
        "simulate.install()\n"
        "import os, cupy\n"
        "cupy.random.default_rng(1).random(8)\n"
        "print(repr(os.environ['CUDA_VISIBLE_DEVICES']))"
    )
    assert result.stdout.strip() == "''", result.stderr


def test_neither_library_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    from streamsafe.simulate import install as simulations

    monkeypatch.setattr(simulations, "_is_installed", lambda name: False)
    with pytest.raises(simulations.SimulationUnavailable, match="neither CuPy nor PyTorch is installed"):
        simulations.install(1)


LATE = """
import streamsafe
with streamsafe.sanitize():
    pass
from streamsafe.simulate import cuda as simulate
simulate.install()
import cupy
x, side = cupy.ones(4), cupy.cuda.Stream(non_blocking=True)
cupy.cuda.Device().synchronize()
with streamsafe.sanitize("collect") as session:
    with side:
        x += 1
    {wait}
    cupy.asnumpy(x)
print([hazard.code for hazard in session.hazards])
"""


@pytest.mark.parametrize(("wait", "codes"), [("pass", "['SS101']"), ("side.synchronize()", "[]")])
def test_a_session_before_the_simulation_does_not_end_it(wait: str, codes: str) -> None:
    assert run(LATE.format(wait=wait)).stdout.strip() == codes
