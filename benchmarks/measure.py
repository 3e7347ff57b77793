"""Run one program to its end and say how long it took and how much memory it held."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Run:
    """One finished program."""

    returncode: int
    seconds: float  # wall clock, from before the program starts to after it has been waited for
    peak_bytes: int  # largest resident set of the program or of any one child it waited for
    stdout: bytes
    stderr: bytes
    timed_out: bool


def run(
    command: Sequence[str], *, timeout: float, keep_output: bool = True, folder: Path | None = None
) -> Run:
    """Run ``command``, in ``folder`` where one is given, and measure it.

    The output goes to temporary files, so no pipe slows the program down; ``keep_output=False`` sends
    standard output to the null device. The peak is ``ru_maxrss`` of wait4(2).

    Raises OSError when the program cannot be started.
    """
    with tempfile.TemporaryFile() as err, tempfile.TemporaryFile() as out:
        start = time.perf_counter()
        child = subprocess.Popen(
            list(command),
            stdin=subprocess.DEVNULL,
            stdout=out if keep_output else subprocess.DEVNULL,
            stderr=err,
            cwd=folder,
        )
        timed_out = False
        # wait4 has no timeout of its own: poll until the limit is near, in steps far below what is measured.
        while True:
            pid, status, usage = os.wait4(child.pid, os.WNOHANG)
            if pid:
                break
            elapsed = time.perf_counter() - start
            if elapsed > timeout and not timed_out:
                timed_out = True
                child.kill()
            time.sleep(0.0005 if elapsed < 1 else 0.005)
        seconds = time.perf_counter() - start
        child.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        err.seek(0)
        scale = 1 if sys.platform == "darwin" else 1024
        return Run(child.returncode, seconds, usage.ru_maxrss * scale, out.read(), err.read(), timed_out)


def machine() -> str:
    """One line about the computer: processor, processors usable, memory, system, Python."""
    cpu = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        names = [
            line.partition(":")[2].strip()
            for line in info.read_text().splitlines()
            if line.startswith("model name")
        ]
        cpu = names[0] if names else cpu
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return (
        f"{cpu}, {usable} processors usable, {memory:.0f} GiB memory, {platform.system()} "
        f"{platform.release()}, Python {platform.python_version()}"
    )


def streamsafe_command() -> list[str]:
    """The installed console script beside this interpreter, or the module when there is none."""
    script = Path(sys.executable).with_name("streamsafe")
    return [str(script)] if script.exists() else [sys.executable, "-m", "streamsafe"]


def python_files(root: Path) -> list[Path]:
    """Every ``*.py`` below ``root`` (or ``root`` itself), sorted."""
    if root.is_file():
        return [root]
    return sorted(path for path in root.rglob("*.py") if path.is_file())
