"""What a check costs beside ruff: CPU seconds of both tools over the same folders, in turn, in one go.

    python benchmarks/check_cost.py FOLDER...              # three rounds
    python benchmarks/check_cost.py --rounds 1 FOLDER...

Each measurement is a whole process with its children, without a cache, its output sent to the null device; CPU seconds
(user and system) do not depend on what else the machine does as wall time would. `ruff check --select ALL` is the unit:
the ratio is what to compare between machines.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

TOOLS = {
    "ruff": [sys.executable, "-m", "ruff", "check", "--isolated", "--no-cache", "--select", "ALL", "--quiet"],
    "streamsafe": [sys.executable, "-m", "streamsafe", "check", "--isolated", "--no-cache", "--quiet"],
}


@dataclass(frozen=True)
class Cost:
    """What one process and its children took."""

    cpu_s: float
    wall_s: float


def measure(command: list[str]) -> Cost:
    """Run a command and return what it took; exit when it neither passed nor found something."""
    started = time.monotonic()
    with open(os.devnull, "wb") as null:
        process = subprocess.Popen(command, stdout=null, stderr=null)
        _, status, usage = os.wait4(process.pid, 0)
    if os.waitstatus_to_exitcode(status) not in (0, 1):
        sys.exit(f"{' '.join(command)} failed")
    return Cost(usage.ru_utime + usage.ru_stime, time.monotonic() - started)


def size(folders: list[Path]) -> tuple[int, float]:
    """Return how many Python files the folders hold, and how many MB."""
    sizes = [p.stat().st_size for folder in folders for p in folder.rglob("*.py") if p.is_file()]
    return len(sizes), sum(sizes) / 1e6


def main() -> None:
    """Measure both tools in turn and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folders", nargs="+", type=Path, metavar="FOLDER")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    files, megabytes = size(options.folders)
    print(f"{files} files, {megabytes:.0f} MB, {os.cpu_count()} cores, {options.rounds} rounds\n")
    costs: dict[str, list[Cost]] = {tool: [] for tool in TOOLS}
    for _ in range(options.rounds):
        for tool, command in TOOLS.items():
            costs[tool].append(measure([*command, *map(str, options.folders)]))
    unit = statistics.median(c.cpu_s for c in costs["ruff"])
    print("| tool | CPU s, median (least to most) | times ruff | wall s, median |\n|---|---|---|---|")
    for tool, found in costs.items():
        cpu = sorted(c.cpu_s for c in found)
        median = statistics.median(cpu)
        wall = statistics.median(c.wall_s for c in found)
        print(f"| {tool} | {median:.1f} ({cpu[0]:.1f} to {cpu[-1]:.1f}) | {median / unit:.1f} | {wall:.1f} |")


if __name__ == "__main__":
    main()
