"""When the hooks are put in place, what that needs, and what a session leaves: processes of their own."""

from __future__ import annotations

import gc
import sys
from typing import Any

import pytest

import streamsafe
from streamsafe.runtime import opening as lifetime
from tests.runtime.helpers import Program, codes
from tests.runtime.test_bad_input import SIMULATED, python

pytest.importorskip("numpy")

RACE = """
def race():
    first, second = cp.cuda.Stream(non_blocking=True), cp.cuda.Stream(non_blocking=True)
    x, y = cp.zeros(64), cp.zeros(64)
    cp.cuda.Device().synchronize()
    x.data.memset_async(0, 512, first)
    y.data.copy_from_device_async(x.data, 512, second)
    cp.cuda.Device().synchronize()
"""

PROCESSES: dict[str, tuple[str, str]] = {
    "entering imports no library": (
        "import sys, streamsafe\n"
        "with streamsafe.sanitize() as session:\n    pass\n"
        "print('cupy' in sys.modules, 'numpy' in sys.modules, 'nothing was watched' in session.summary())",
        "False False True\n",
    ),
    "a library that is imported in the session": (
        f"import streamsafe\n{RACE}\n"
        "with streamsafe.sanitize('collect') as session:\n"
        "    from streamsafe.simulate import cuda\n    cuda.install()\n    import cupy as cp\n    race()\n"
        "print([hazard.code for hazard in session.hazards], cp.__spec__.loader is cp.__loader__, session.notes)",
        "['SS101'] True []\n",
    ),
    "one that is imported between two": (
        f"import streamsafe\nwith streamsafe.sanitize():\n    pass\n{SIMULATED}{RACE}\n"
        "with streamsafe.sanitize('collect') as session:\n    race()\n"
        "print([hazard.code for hazard in session.hazards])",
        "['SS101']\n",
    ),
    "a version that is not supported stops who imports it": (
        "import streamsafe\n"
        "import streamsafe.runtime.cupy as front\nfront.SUPPORTED = ((98, 0), (99, 0))\n"
        "with streamsafe.sanitize():\n"
        "    try:\n        import cupy\n    except RuntimeError as error:\n        print(type(error).__name__)\n",
        "UnsupportedError\n",
    ),
    "and nobody else": (
        "import streamsafe\n"
        "import streamsafe.runtime.cupy as front\nfront.SUPPORTED = ((98, 0), (99, 0))\n"
        "with streamsafe.sanitize():\n    print('runs')\n",
        "runs\n",
    ),
    "os._exit in a session": (
        SIMULATED + "import os\n"
        "with streamsafe.sanitize():\n    cp.zeros(3)\n    print('last words', flush=True)\n    os._exit(7)",
        "last words\n",
    ),
    "a forked child is not watched": (
        SIMULATED + "import os, queue, warnings, numpy\nfrom streamsafe.runtime.monitor import current\n"
        f"warnings.simplefilter('ignore', DeprecationWarning)  # a fork beside threads: Python 3.12\n{RACE}\n"
        "before = queue.SimpleQueue, id(numpy.array)\n"
        "def ends():\n"
        "    child = os.fork()\n"
        "    if child:\n"
        "        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])\n"
        "with streamsafe.sanitize('collect') as session:\n"
        "    status = ends()\n"
        "    if status is None and current.monitor is not None:\n"
        "        os._exit(1)\n"
        "    if status is not None:\n"
        "        race()\n"
        "if status is None:\n"
        "    assert before == (queue.SimpleQueue, id(numpy.array))\n"
        "    with streamsafe.sanitize():\n        os._exit(5)\n"
        "print(status, [hazard.code for hazard in session.hazards])",
        "5 ['SS101']\n",
    ),
    "CUDA is not started by a session": (
        SIMULATED + "from cupy_backends.cuda.api import runtime\n"
        "asked = []\n"
        "count = runtime.getDeviceCount\n"
        "runtime.getDeviceCount = lambda: asked.append(1) or count()\n"
        "for _ in range(2):\n    with streamsafe.sanitize():\n        pass\n"
        "print(asked)",
        "[]\n",
    ),
}


@pytest.mark.parametrize("name", PROCESSES)
def test_process(backend: Any, name: str) -> None:
    code, expected = PROCESSES[name]
    result = python(code)
    assert (result.stdout, result.stderr) == (expected, "")
    assert result.returncode == (7 if "_exit(7)" in code else 0)


def test_what_was_compiled_before_is_seen(backend: Any, request: pytest.FixtureRequest) -> None:
    """Every kind of kernel, in the first session of a process that has run it before."""
    simulated = "" if request.config.getoption("--gpu") else "--simulate"
    result = python(
        f"import sys\nsys.argv = ['compiled_before', {simulated!r}]\n"
        "import warnings\nwarnings.simplefilter('ignore')\n"
        "from tests.runtime.compiled_before import main\nmain()"
    )
    assert (result.stdout, result.stderr) == ("True\n", "")


def test_a_free_threaded_interpreter_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "_is_gil_enabled", lambda: False, raising=False)
    with pytest.raises(RuntimeError, match="PYTHON_GIL=1"):
        lifetime.refuse_interpreter()
    monkeypatch.setattr(sys, "_is_gil_enabled", lambda: True)
    lifetime.refuse_interpreter()


@pytest.mark.skipif(sys.version_info >= (3, 13), reason="its module for subinterpreters has another name")
def test_a_subinterpreter_is_refused() -> None:
    result = python(
        "import _xxsubinterpreters as interpreters\n"
        "interpreters.run_string(interpreters.create(isolated=False), '''\n"
        "from streamsafe.runtime.opening import refuse_interpreter\n"
        "try:\n    refuse_interpreter()\nexcept RuntimeError as error:\n    print(error, flush=True)\n''')"
    )
    assert (result.stdout, result.returncode) == (f"{lifetime.SUBINTERPRETER}\n", 0), result.stderr


def test_a_session_looks_at_no_objects(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once the hooks are in place, opening and closing one costs the same whatever the number of objects."""
    with streamsafe.sanitize():
        program.ordered()
    program.settle()
    for name in ("get_objects", "get_referrers", "get_referents", "collect"):
        monkeypatch.setattr(gc, name, lambda *_: pytest.fail("the session looks at all objects"))
    with streamsafe.sanitize("collect") as session:
        program.race()
    assert codes(session) == ["SS101"]
