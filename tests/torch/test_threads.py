"""Threads of the program: those that are older than the hooks, and forwards of other threads."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from typing import Any

import pytest

import streamsafe

OLDER = """
import threading
from streamsafe.simulate import torch as simulate
simulate.install()
import torch, streamsafe

torch.cuda.init()
side, x = torch.cuda.Stream(), torch.ones(64, device="cuda")
go, done = threading.Event(), threading.Event()

def race():
    y = x + 1
    with torch.cuda.stream(side):
        y.mul_(2)

def worker():
    {wait}
    {session}

thread = threading.Thread(target=worker)
thread.start()
torch.cuda.synchronize()
{main}
go.set()
thread.join()
{end}
"""

WHERE = {
    "another thread's work": {
        "wait": "go.wait()",
        "session": "race()",
        "main": "session = streamsafe.sanitize('collect').__enter__(); threads = [session]",
        "end": "manager = None; from streamsafe.runtime.opening import leave; leave(session)",
    },
    "another thread's session": {
        "wait": "go.wait()",
        "session": "global session\n    with streamsafe.sanitize('collect') as session: race()",
        "main": "with streamsafe.sanitize('collect'): pass",
        "end": "",
    },
}


@pytest.mark.parametrize("where", WHERE)
def test_a_thread_that_is_older_than_the_hooks_is_watched(backend: Any, where: str) -> None:
    if "simulated" not in backend.cuda.get_device_name():
        pytest.skip("a process of its own has the simulated device")
    program = OLDER.format(**WHERE[where])
    program += "print([hazard.code for hazard in session.hazards], *session.notes)\n"
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.startswith("['SS")
    if where == "another thread's work":
        assert "1 thread that ran before the first session began" in ended.stdout


def test_the_forward_is_that_of_its_own_thread(torch: Any) -> None:
    """Each thread numbers the nodes of its forwards from 0 on: the same numbers are other lines."""
    x = torch.ones(8, device="cuda", requires_grad=True)
    losses: list[Any] = []

    def forward() -> None:
        with torch.cuda.stream(side):
            losses.append((x * 2).sum())

    def others() -> None:
        for _ in range(200):
            (x * 3).exp().sum()

    side = torch.cuda.Stream()
    torch.cuda.synchronize()
    with streamsafe.sanitize("collect") as session:
        for work in (forward, others):
            thread = threading.Thread(target=work)
            thread.start()
            thread.join()
        with torch.cuda.stream(side):
            losses[0].backward()
        x.grad.add_(1)
    found = [hazard for hazard in session.hazards if hazard.code == "SS111"]
    assert found, session.hazards
    lines = {
        frame.function.rsplit(".", 1)[-1]
        for hazard in found
        for note in hazard.notes
        for frame in note.stack[:1]
    }
    assert "forward" in lines and "others" not in lines


def test_a_number_for_what_a_mask_chooses_is_no_wait(torch: Any) -> None:
    """Of other values it has to be known how many there are."""
    side = torch.cuda.Stream()
    x, mask = torch.zeros(8, device="cuda"), torch.ones(8, dtype=torch.bool, device="cuda")
    y, values = torch.zeros(8, device="cuda"), torch.ones(8, device="cuda")
    torch.cuda.synchronize()
    found = []
    for value in (3.0, values):
        with streamsafe.sanitize("collect") as session:
            y.add_(1)
            x[mask] = value
            with torch.cuda.stream(side):
                y.mul_(2)
            torch.cuda.synchronize()
        found.append([hazard.code for hazard in session.hazards])
    assert found == [["SS102"], []]


def test_threads_that_allocate_while_hazards_are_judged(torch: Any) -> None:
    """To judge takes the interpreter's lock, which a thread may hold that wants the allocator's."""
    side, x = torch.cuda.Stream(), torch.ones(64, device="cuda")
    torch.cuda.synchronize()

    def release_early() -> None:
        for number in range(60):
            made = compile(f"y = x + {number}\nwith on(side): y.mul_(2)\ndel y", f"<made {number}>", "exec")
            exec(made, {"x": x, "on": torch.cuda.stream, "side": side})

    def allocate() -> None:
        for _ in range(300):
            torch.empty(64, device="cuda")

    with streamsafe.sanitize("collect") as session:
        threads = [threading.Thread(target=work, daemon=True) for work in (release_early, allocate) * 3]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(120)
        assert not any(thread.is_alive() for thread in threads)
    assert "SS201" in {hazard.code for hazard in session.hazards}


@pytest.mark.parametrize("by_the_lock", [True, False])
def test_a_lock_that_another_thread_has_had_in_between(torch: Any, by_the_lock: bool) -> None:
    """What a thread takes again tells it nothing, unless another thread has released it since."""
    x, side = torch.zeros(64, device="cuda"), torch.cuda.Stream()
    torch.cuda.synchronize()
    with streamsafe.sanitize("collect", threads=True) as session:
        lock = threading.Lock()
        with torch.cuda.stream(side):
            x.add_(1)

        def wait() -> None:
            side.synchronize()
            if by_the_lock:
                with lock:
                    pass

        with lock:
            pass
        thread = threading.Thread(target=wait)
        thread.start()
        while thread.is_alive():  # a look that orders nothing
            time.sleep(0.001)
        with lock:
            pass
        x.mul_(2)
        thread.join()
    assert [hazard.code for hazard in session.hazards] == ["SS102"] * (not by_the_lock)
