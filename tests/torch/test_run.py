"""`streamsafe run --simulate` for programs that use PyTorch."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]

PROGRAM = """
import torch
x = torch.zeros(4, device="cuda")
x += 1
print(x.tolist(), torch.cuda.device_count())
"""


@pytest.fixture(autouse=True)
def simulated(torch: Any, request: pytest.FixtureRequest) -> None:
    if request.config.getoption("--gpu"):
        pytest.skip("a CUDA build has no simulated device")


def run(*arguments: str, program: str, folder: Path) -> subprocess.CompletedProcess[str]:
    path = folder / "program.py"
    path.write_text(program)
    command = [sys.executable, "-m", "streamsafe", "run", *arguments, str(path)]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)


def test_a_program_runs_without_a_gpu(tmp_path: Path) -> None:
    ended = run("--simulate", "--devices", "3", program=PROGRAM, folder=tmp_path)
    assert ended.stdout == "[1.0, 1.0, 1.0, 1.0] 3\n", ended.stderr
    assert "simulated CUDA device under PyTorch: " in ended.stderr
    assert "simulated CUDA runtime: " not in ended.stderr  # CuPy's runtime was not used


@pytest.mark.parametrize(("options", "status"), [((), 2), (("--allow-idle",), 0)])
def test_a_program_that_uses_neither_library(tmp_path: Path, options: tuple[str, ...], status: int) -> None:
    ended = run("--simulate", *options, program="print(1)\n", folder=tmp_path)
    assert (ended.returncode, ended.stdout) == (status, "1\n"), ended.stderr
    assert "nothing was watched" in ended.stderr
    assert "under PyTorch" not in ended.stderr


def test_cupy_and_torch_are_simulated_in_one_process(tmp_path: Path) -> None:
    pytest.importorskip("cupy_backends", reason="CuPy is not installed")
    program = "import cupy\ny = cupy.zeros(4)\ny += 1\n" + PROGRAM
    ended = run("--simulate", program=program, folder=tmp_path)
    assert ended.stdout == "[1.0, 1.0, 1.0, 1.0] 1\n", ended.stderr
    assert "simulated CUDA device under PyTorch: " in ended.stderr
    assert "simulated CUDA runtime: " in ended.stderr


RACE = """
import torch
side = torch.cuda.Stream()
x = torch.zeros(4, device="cuda")
with torch.cuda.stream(side):
    x.add_(1)
"""


def test_stacks_end_where_the_program_begins(tmp_path: Path) -> None:
    """No frame of click, and none of the console script."""
    ended = run("--simulate", "--mode", "collect", program=RACE, folder=tmp_path)
    assert (ended.returncode, ended.stderr.count("SS102 unordered-write")) == (1, 1), ended.stderr
    assert "called at" not in ended.stderr
    assert "program.py:6:" in ended.stderr  # torch is imported in the session
    assert "click" not in ended.stderr


IN_A_THREAD = """
import threading
import torch
side = torch.cuda.Stream()
meeting, waited = threading.Barrier(2), threading.Event()
def work(wait):
    if not wait:
        waited.wait()  # else the wait of the other thread may cover this work, too
    x = torch.zeros(4, device="cuda")
    if wait:
        side.wait_stream(torch.cuda.default_stream())
        waited.set()
    with torch.cuda.stream(side):
        x.add_(1)
    x.record_stream(side)
    meeting.wait()
threads = [threading.Thread(target=work, args=(wait,)) for wait in (True, WAIT)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print("ended")
"""


@pytest.mark.parametrize(("wait", "status"), [("False", 1), ("True", 0)])
def test_a_hazard_of_a_thread_does_not_leave_others_waiting_for_it(
    wait: str, status: int, tmp_path: Path
) -> None:
    ended = run("--simulate", program=IN_A_THREAD.replace("WAIT", wait), folder=tmp_path)
    assert (ended.returncode, ended.stdout) == (status, "ended\n"), ended.stderr
    assert ended.stderr.count("SS102 unordered-write") == status


def test_a_cpu_build_says_how_to_go_on_without_a_gpu(tmp_path: Path) -> None:
    assert "streamsafe run --simulate" in run(program=RACE, folder=tmp_path).stderr
    other = run(program='raise RuntimeError("of the program")\n', folder=tmp_path)
    assert "--simulate" not in other.stderr


FORKS = """
import os, threading
import torch
import streamsafe

def work():
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        while not over.is_set():
            torch.zeros(64, device="cuda").add_(1)

with streamsafe.sanitize(threads=True) as session:
    over = threading.Event()
    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    codes = []
    for _ in range(12):
        child = os.fork()
        if child == 0:
            lock = threading.Lock()
            with lock:
                torch.zeros(4).add_(1)
            os._exit(3)
        codes.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    over.set()
    for thread in threads:
        thread.join()
print(codes == [3] * 12, [each.code for each in session.hazards])
"""


def test_children_that_are_forked_while_other_threads_work(tmp_path: Path) -> None:
    path = tmp_path / "program.py"
    path.write_text(
        "from streamsafe.simulate import torch as simulate\nsimulate.install(devices=1)\n" + FORKS
    )
    ended = subprocess.run(
        [sys.executable, "-W", "ignore", str(path)],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
        timeout=240,
    )
    assert ended.stdout == "True []\n", ended.stderr


BROKEN = """
from streamsafe.runtime import judge
def coded(conflict):
    raise KeyError("no rule")
judge.coded = coded
"""


@pytest.mark.parametrize(("before", "status"), [("", 1), (BROKEN, 2)])
def test_a_hazard_that_cannot_be_told_is_no_success(tmp_path: Path, before: str, status: int) -> None:
    ended = run("--simulate", "--allow-idle", "--mode", "collect", program=before + RACE, folder=tmp_path)
    assert ended.returncode == status, ended.stderr
    untold = "a hazard was found that it cannot tell of (KeyError: 'no rule')"
    assert (untold in ended.stderr, "no hazards\n" in ended.stderr) == (bool(before), False)
