"""The compiled hooks: that they are used, that they and the hooks in Python agree, and that nothing else changes."""

from __future__ import annotations

import inspect
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import streamsafe
from streamsafe.runtime.monitor import current
from tests.runtime.helpers import Program, codes
from tests.runtime.test_fixtures import PROGRAMS, check

SAMPLE = 10
"""Of how many programs one runs with hooks in Python too, without ``--all``."""


@pytest.fixture
def hooks(cp: Any) -> Any:
    """The compiled hooks; skips where they cannot be built."""
    from streamsafe.runtime.cupy import compiled

    with streamsafe.sanitize("collect"):
        pass
    if compiled.hooks.module is None:
        pytest.skip(compiled.hooks.problem or "STREAMSAFE_COMPILED=0")
    return compiled.hooks


@pytest.fixture
def python_hooks(hooks: Any) -> Iterator[None]:
    """Sessions that begin have their hooks in Python."""
    hooks.enabled = False
    yield
    hooks.enabled = True


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "sampled" in metafunc.fixturenames:
        step = 1 if metafunc.config.getoption("--all") else SAMPLE
        metafunc.parametrize("sampled", PROGRAMS[::step], ids=lambda path: f"{path.parent.name}/{path.stem}")


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_programs_have_the_same_hazards_with_hooks_in_python(
    sampled: Path, cp: Any, python_hooks: None, request: pytest.FixtureRequest
) -> None:
    check(sampled, cp, request.config.getoption("--gpu"))


def test_what_is_usual_does_not_reach_python(
    hooks: Any, program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A loop of launches, copies, records and waits: no access, edge or host access is the Python monitor's."""
    import cupyx

    cp = program.cp
    with streamsafe.sanitize("collect") as session:
        host = cupyx.zeros_pinned(4096, cp.float32)
        event = cp.cuda.Event()

        def once() -> None:
            event.synchronize()
            host.fill(1)
            program.x.set(host, stream=program.writer)
            event.record(program.writer)
            program.reader.wait_event(event)
            with program.reader:
                cp.multiply(program.x, 2, out=program.y)
                fresh = program.y + 1
                fresh[:1].get()
            program.writer.wait_event(program.reader.record())

        for _ in range(2):
            once()
        monitor = current.monitor
        assert monitor is not None
        for name in ("access", "order", "host_access", "allocate"):
            monkeypatch.setattr(monitor, name, None)
        before = monitor.checker.operations
        for _ in range(3):
            once()
        assert monitor.checker.operations > before + 3 * 8
        monkeypatch.undo()
    assert codes(session) == []


def test_places_in_code_that_is_gone_are_not_kept(hooks: Any, program: Program) -> None:
    with streamsafe.sanitize("collect") as session:
        kept = []
        for number in range(6000):
            text = "def work():\n    event.record(stream)\nwork()"
            given = {"event": program.cp.cuda.Event(), "stream": program.writer}
            exec(compile(text, f"<made {number}>", "exec"), given)
            if number in (2000, 5999):
                kept.append(hooks.module.places())
    assert codes(session) == [] and kept[1] < kept[0] + 4500


def test_a_session_counts_its_own_operations(hooks: Any, program: Program) -> None:
    with streamsafe.sanitize("collect") as busy:
        program.ordered()
    with streamsafe.sanitize("collect") as idle:
        pass
    assert busy.coverage is not None and busy.coverage.operations == 4 and idle.idle


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_fork_leaves_the_session(hooks: Any, program: Program) -> None:
    """In a child what a session watched ends unseen, and a session of the child's own may begin."""
    with streamsafe.sanitize("collect"):
        held = [program.x + 1 for _ in range(3)]
        child = os.fork()
        if child == 0:
            try:
                held.clear()
                with streamsafe.sanitize("collect") as session:
                    pass
                os._exit(1 if session.idle else 8)
            finally:
                os._exit(9)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1


def test_threads_enqueue_in_the_order_in_which_the_core_is_told(
    hooks: Any, program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While an operation is being enqueued, no other operation reaches the core on its stream."""
    from streamsafe.runtime.cupy import kernels

    cp = program.cp
    apart: list[bool] = []

    def launch(*args: Any) -> None:
        monitor = current.monitor
        assert monitor is not None
        before = monitor.checker.operations
        time.sleep(0.001)  # where another thread goes on
        apart.append(monitor.checker.operations == before)
        kernels.plain_linear(*args)

    hook = hooks.module.hook("linear_launch", launch, launch, "")
    with streamsafe.sanitize("collect") as session:
        with program.writer:
            cp.add(program.x, 1, out=program.x)
        monkeypatch.setattr(kernels.TracedFunction, "linear_launch", hook)

        def work() -> None:
            with program.writer:
                for _ in range(10):
                    cp.add(program.x, 1, out=program.x)

        threads = [threading.Thread(target=work) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        monkeypatch.undo()
        program.settle()
    assert apart == [True] * 30
    assert codes(session) == []


def test_an_exception_of_cupy_passes(hooks: Any, program: Program) -> None:
    with streamsafe.sanitize("collect") as session:
        event = program.cp.cuda.Event()
        with pytest.raises(AttributeError):
            event.record("no stream")
        with pytest.raises(TypeError):
            program.writer.wait_event()
        with pytest.raises(TypeError):
            program.writer.synchronize(1, 2, 3)
        with pytest.raises((TypeError, AttributeError)):
            program.writer.wait_event(None)
    assert codes(session) == []


def test_a_hazard_is_raised_before_the_operation_is_enqueued(hooks: Any, program: Program) -> None:
    program.y.fill(3)
    program.settle()
    with streamsafe.sanitize() as session:
        program.write()
        with pytest.raises(streamsafe.StreamHazardError, match="SS101"):
            program.read()
        program.settle()
        program.ordered()
        program.settle()
    assert codes(session) == ["SS101"]


@pytest.mark.parametrize("name", ["record", "synchronize"])
def test_a_hook_is_as_the_method_was(hooks: Any, cp: Any, name: str) -> None:
    method = getattr(cp.cuda.Event, name)
    assert method.__name__ == name and callable(method)
    bound = getattr(cp.cuda.Event(), name)
    assert bound.__self__ is not None and bound.__name__ == name
    assert "self" in inspect.signature(method).parameters


NOTE = "CuPy's hooks ran in Python, which is slower"
PROGRAM = """
from streamsafe.simulate import cuda as simulate
simulate.install()
import cupy, streamsafe
for _ in range(2):
    with streamsafe.sanitize("collect") as session:
        a, b = (cupy.cuda.Stream(non_blocking=True) for _ in "ab")
        x = cupy.zeros(100)
        with a:
            x.fill(7)
        with b:
            x.copy()
    print([hazard.code for hazard in session.hazards], *session.notes, sep="|")
"""


@pytest.mark.parametrize(
    ("variables", "noted"),
    [({"CXX": "no-such-compiler"}, True), ({"STREAMSAFE_COMPILED": "0", "CXX": "no-such-compiler"}, False)],
)
def test_without_a_compiler_the_summary_says_so_once(
    tmp_path: Path, cp: Any, request: pytest.FixtureRequest, variables: dict[str, str], noted: bool
) -> None:
    if request.config.getoption("--gpu"):
        pytest.skip("runs on the simulated runtime")
    import os

    environment = {**os.environ, **variables, "STREAMSAFE_CACHE": str(tmp_path)}
    command = [sys.executable, "-W", "error", "-c", PROGRAM]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    first, second = ended.stdout.splitlines()
    assert first.startswith("['SS102', 'SS101']") and second == "['SS102', 'SS101']"
    assert (NOTE in first) is noted, ended.stdout
    assert ended.stderr == ""
