"""The pytest plugin, in pytest processes of their own on the simulated runtime."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("numpy")
ROOT = Path(__file__).resolve().parents[2]

TESTS = """
import cupy as cp
import pytest

SPARE = cp.zeros(4096)


def race():
    a = cp.cuda.Stream(non_blocking=True)
    b = cp.cuda.Stream(non_blocking=True)
    x = cp.zeros(4096)
    y = cp.zeros(4096)
    cp.cuda.Device().synchronize()
    with a:
        x.fill(7)
    with b:
        cp.copyto(y, x)
    cp.cuda.Device().synchronize()


def test_racy():
    race()


def test_ordered():
    cp.ones(3).sum()


def test_leaves_work_behind():
    with cp.cuda.Stream(non_blocking=True) as test_leaves_work_behind.stream:
        SPARE.fill(1)


def test_work_before_is_finished():
    SPARE.sum()


@pytest.mark.no_streamsafe
def test_not_checked():
    race()


@pytest.mark.streamsafe(mode="collect")
def test_collects():
    race()


@pytest.mark.streamsafe(ignore=["SS101"])
def test_ignores():
    race()


@pytest.mark.streamsafe(mode="collect")
def test_latent():
    x = cp.zeros(4096)
    cp.cuda.Device().synchronize()
    with cp.cuda.Stream(non_blocking=True) as test_latent.stream:
        x += 1


@pytest.mark.streamsafe("warn")
def test_warns():
    with pytest.warns(match="SS101"):
        race()


@pytest.fixture
def racy_fixture():
    yield
    race()


def test_fixtures_are_checked_too(racy_fixture):
    pass


def test_the_tests_own_failure_stays():
    assert 1 == 2
"""


@pytest.fixture(autouse=True)
def _simulated(backend: object) -> None:
    """Skips where nothing can be simulated."""


def run(
    folder: Path, *arguments: str, tests: str = TESTS, ini: str = "", **environment: str
) -> tuple[int, str]:
    (folder / "test_streams.py").write_text(tests, encoding="utf-8")
    (folder / "pytest.ini").write_text("[pytest]\n" + ini, encoding="utf-8")
    variables = {**os.environ, "PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", **environment}
    variables.pop("PYTEST_ADDOPTS", None)
    result = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-p",
            "streamsafe.runtime.plugin",
            "-p",
            "no:cacheprovider",
            *arguments,
        ],
        cwd=folder,
        env=variables,
        capture_output=True,
        text=True,
        timeout=120,
    )
    return result.returncode, result.stdout + result.stderr


def test_the_whole_file(tmp_path: Path) -> None:
    status, output = run(tmp_path, "--streamsafe=simulate", "-rfE", "-q")
    assert status == 1
    assert "FAILED test_streams.py::test_racy - SS101 unordered-read" in output
    assert "ERROR test_streams.py::test_fixtures_are_checked_too - SS101" in output
    assert "FAILED test_streams.py::test_collects - SS101" in output
    assert "ERROR test_streams.py::test_latent - SS202" in output
    assert "FAILED test_streams.py::test_the_tests_own_failure_stays - assert 1 == 2" in output
    assert "3 failed, 8 passed, 2 errors" in output
    assert "\ntest_streams.py:17: StreamHazardError" in output
    assert "17 |         cp.copyto(y, x)\n   |         ^^^^" in output
    assert "15 |         x.fill(7)\n   |         ----" in output
    assert "= stream hazards =" in output and "SS101 unordered-read" in output.split("= stream hazards =")[1]
    assert re.search(r"SS202 .* \(latent\) test_streams.py:\d+ in test_streams.py::test_latent", output)
    assert "simulated CUDA runtime" in output


RUNS_PYTEST = f"""
import sys
sys.path.insert(0, {str(ROOT)!r})
import pytest
def main(arguments): return pytest.main(["-p", "streamsafe.runtime.plugin", "-p", "no:cacheprovider", *arguments])
if __name__ == "__main__": sys.exit(main(sys.argv[1:]))
"""
RACE = "import cupy as cp\n" + TESTS[TESTS.index("def race") : TESTS.index("def test_racy")]
NESTED = """
def test_outer():
    import runs
    assert runs.main(["-o", "streamsafe=collect", "test_inner.py"]) == 1
    race()
"""


def test_stacks_end_at_the_test(tmp_path: Path) -> None:
    """Neither what runs pytest is shown, nor is a test hidden that runs pytest itself."""
    (tmp_path / "runs.py").write_text(RUNS_PYTEST, encoding="utf-8")
    (tmp_path / "test_inner.py").write_text(RACE + "def test_inner(): race()\n", encoding="utf-8")
    (tmp_path / "test_outer.py").write_text(RACE + NESTED, encoding="utf-8")
    result = subprocess.run(
        [sys.executable, "runs.py", "--streamsafe=simulate,collect", "-q", "test_outer.py"],
        cwd=tmp_path,
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    ends = set(re.findall(r"access: .* called at (\S+ in \w+)$", result.stdout, re.M))
    assert ends == {"test_inner.py:15 in test_inner", "test_outer.py:19 in test_outer"}, result.stdout


def test_under_xdist(tmp_path: Path) -> None:
    pytest.importorskip("xdist")
    status, output = run(tmp_path, "-p", "xdist.plugin", "-n", "2", "--streamsafe=simulate", "-rfE", "-q")
    assert status == 1
    assert "3 failed, 8 passed, 2 errors" in output
    found, simulated = output.split("= stream hazards =")[1].split("= simulated CUDA runtime =")
    assert found.count("SS101 unordered-read") >= 3
    assert "FAILED test_streams.py::test_racy" in simulated
    launches = [int(count) for count in re.findall(r"^gw\d: .* (\d+) kernel launch", simulated, re.M)]
    assert len(launches) == 2 and sum(launches) > 0


def test_modes(tmp_path: Path) -> None:
    only = ("-k", "test_racy or test_ordered", "-q")
    preset = {"PYTHONSTARTUP": ""}
    simulated = TESTS.replace(
        "import cupy as cp",
        "from streamsafe.simulate import cuda as simulate\nsimulate.install()\nimport cupy as cp",
        1,
    )
    simulator = tmp_path / "conftest.py"
    simulator.write_text(
        "from streamsafe.simulate import cuda as simulate\nsimulate.install()\n", encoding="utf-8"
    )
    assert "2 passed" in run(tmp_path, *only, tests=simulated, **preset)[1]
    assert "1 failed, 1 passed" in run(tmp_path, "--streamsafe", *only)[1]
    assert "1 failed, 1 passed" in run(tmp_path, *only, "--streamsafe", "test_streams.py")[1]
    status, output = run(tmp_path, "--streamsafe=collect", *only)
    assert status == 1 and "= stream hazards =" in output
    status, output = run(tmp_path, "--streamsafe=warn", *only)
    assert status == 0 and "= stream hazards =" in output
    assert "1 failed, 1 passed" in run(tmp_path, *only, ini="streamsafe = true\n")[1]
    assert "2 passed" in run(tmp_path, *only, ini="streamsafe = true\nstreamsafe_ignore = SS101\n")[1]
    assert "1 failed, 1 passed" in run(tmp_path, *only, STREAMSAFE="1")[1]


@pytest.mark.parametrize(
    ("arguments", "ini", "devices"),
    [
        ([], "", 1),
        (["--streamsafe-devices=2"], "", 2),
        ([], "streamsafe_devices = 3\n", 3),
        (["--streamsafe-devices=2"], "streamsafe_devices = 3\n", 2),
    ],
)
def test_simulated_devices(tmp_path: Path, arguments: list[str], ini: str, devices: int) -> None:
    tests = f"import cupy\ndef test(): assert cupy.cuda.runtime.getDeviceCount() == {devices}\n"
    status, output = run(tmp_path, "--streamsafe=simulate", *arguments, ini=ini, tests=tests)
    assert status == 0, output


CAUGHT = """
import threading
import cupy as cp
import streamsafe
from test_streams import race


def test_caught():
    try:
        race()
    except Exception:
        pass


def test_caught_and_failed():
    try:
        race()
    except Exception:
        pass
    assert 1 == 2


def test_expected():
    with streamsafe.sanitize() as session:
        try:
            race()
        except streamsafe.StreamHazardError:
            pass
    assert [hazard.code for hazard in session.hazards] == ["SS101"]


def test_in_a_thread():
    threading.excepthook, before = (lambda _: None), threading.excepthook
    thread = threading.Thread(target=race)
    thread.start()
    thread.join()
    threading.excepthook = before
"""


def test_a_hazard_that_the_test_catches_fails_it(tmp_path: Path) -> None:
    (tmp_path / "test_caught.py").write_text(CAUGHT, encoding="utf-8")
    status, output = run(tmp_path, "--streamsafe=simulate", "-rfE", "-q", "test_caught.py")
    assert status == 1
    assert "FAILED test_caught.py::test_caught - SS101 unordered-read" in output
    assert "FAILED test_caught.py::test_in_a_thread - SS101 unordered-read" in output
    assert "FAILED test_caught.py::test_caught_and_failed - assert 1 == 2" in output
    assert "ERROR test_caught.py::test_caught_and_failed - SS101 unordered-read" in output
    assert "3 failed, 1 passed" in output and "1 error" in output
    assert output.count("The exception did not reach pytest") == 3
    assert output.count("17 |         cp.copyto(y, x)") == 4  # the expected one is listed in the summary


def test_suppressions_and_the_least_confidence(tmp_path: Path) -> None:
    """As for `streamsafe run`: the file of pytest's configuration, else of the project's; unused ones are named."""
    (tmp_path / "known.toml").write_text(
        '[[suppress]]\ncode = "SS101"\nfunction = "race"\n\n[[suppress]]\ncode = "SS301"\n', encoding="utf-8"
    )
    only = ("--streamsafe=simulate", "-q", "-k", "test_racy or test_latent")
    status, output = run(tmp_path, *only, ini="streamsafe_suppressions = known.toml\n")
    assert status == 1 and "2 passed, 9 deselected, 1 error" in output
    assert "known.toml, suppression 1 suppressed 1" in output
    assert "known.toml, suppression 2 is unused" in output
    (tmp_path / "pyproject.toml").write_text(
        '[tool.streamsafe.run]\nsuppressions = "known.toml"\n', encoding="utf-8"
    )
    assert "1 passed" in run(tmp_path, "--streamsafe=simulate", "-q", "-k", "test_racy")[1]


@pytest.mark.parametrize(
    ("arguments", "tests", "environment", "message"),
    [
        (["--streamsafe=loud"], TESTS, {}, "--streamsafe is 'loud': it must be one of raise"),
        (["--streamsafe=simulate", "--streamsafe-devices=0"], TESTS, {}, "at least one device"),
        (["--streamsafe=simulate", "-o", "streamsafe_devices=two"], TESTS, {}, "it must be a number"),
        ([], TESTS, {"STREAMSAFE": "loud"}, "STREAMSAFE is 'loud'"),
        (
            ["-o", "streamsafe_fail_on=sure"],
            TESTS,
            {},
            "streamsafe_fail_on is 'sure': it must be one of certain",
        ),
        (["--streamsafe", "-o", "streamsafe_suppressions=no.toml"], TESTS, {}, "no.toml: No such file"),
        (
            ["--streamsafe=simulate"],
            "import pytest\n@pytest.mark.streamsafe(mode='x')\ndef test(): pass\n",
            {},
            "mode is 'x'",
        ),
        (
            ["--streamsafe=simulate"],
            "import pytest\n@pytest.mark.streamsafe(speed=3)\ndef test(): pass\n",
            {},
            "speed",
        ),
    ],
)
def test_misuse(
    tmp_path: Path, arguments: list[str], tests: str, environment: dict[str, str], message: str
) -> None:
    status, output = run(tmp_path, *arguments, tests=tests, **environment)
    assert status != 0 and message in output and "INTERNALERROR" not in output


def test_a_build_is_told_though_pytest_captures(tmp_path: Path) -> None:
    """Native code is built where a module of tests imports torch, or later."""
    tests = """
from streamsafe.toolchain.compiler import say

say("building one")


def test_of_something():
    say("building another")
"""
    status, output = run(tmp_path, "--streamsafe=simulate", tests=tests)
    assert status == 0
    assert "streamsafe: building one\n" in output
    assert "streamsafe: building another\n" in output


def test_what_is_found_at_the_end_of_a_test(tmp_path: Path) -> None:
    """Memory is released where no exception is raised, and where no code of the program runs; its stream has a name."""
    tests = """
import cupy as cp

side = cp.cuda.Stream(non_blocking=True)


def test_released():
    x = cp.zeros(4096)
    cp.cuda.Device().synchronize()
    with side:
        x += 1
"""
    status, output = run(tmp_path, "--streamsafe=simulate", tests=tests)
    assert status == 1
    assert "on `side` may still be writing `x`" in output or "on `side` may still be reading `x`" in output
    assert "of unknown origin" not in output
    assert "did not reach pytest" not in output
    assert output.count("   = missing edge") == 1  # the warning is one line
