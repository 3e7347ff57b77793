"""What is found, and in which words, is the same in every run: whatever strings hash to, and wherever objects lie."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.static.evalfiles import FIXTURES

FILES = ("ss103_*.py", "ss403_*.py")
SEEDS = ("1", "2")

SEVERAL_OF_A_KIND = """\
import torch
from concurrent.futures import ThreadPoolExecutor


def waits_that_miss(x, side, a, b, c, d, e, f):
    with torch.cuda.stream(side):
        x.mul_(2)
    torch.cuda.current_stream().wait_stream(a)
    torch.cuda.current_stream().wait_stream(b)
    torch.cuda.current_stream().wait_stream(c)
    torch.cuda.current_stream().wait_stream(d)
    torch.cuda.current_stream().wait_stream(e)
    torch.cuda.current_stream().wait_stream(f)  # the last one
    return x.sum()


def watch(counter):
    return counter.sum().item()


def threads_at_work(x, counter):
    g = torch.cuda.CUDAGraph()
    with ThreadPoolExecutor(max_workers=5) as pool:
        pool.submit(watch, counter)  # the first one
        pool.submit(watch, counter)
        pool.submit(watch, counter)
        pool.submit(watch, counter)
        pool.submit(watch, counter)
        with torch.cuda.graph(g):
            x.add_(1)
    return g
"""


def check(*arguments: str | Path, seed: str) -> list[dict[str, Any]]:
    command = [sys.executable, "-m", "streamsafe", "check", "--isolated", "--confidence=possible"]
    result = subprocess.run(
        [*command, "--output-format=json", *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONHASHSEED": seed},
    )
    assert result.returncode in (0, 1), result.stderr
    found: list[dict[str, Any]] = json.loads(result.stdout)
    return found


def line_of(text: str) -> int:
    return next(n for n, line in enumerate(SEVERAL_OF_A_KIND.splitlines(), 1) if text in line)


def test_fixtures_are_judged_alike() -> None:
    files = [path for pattern in FILES for path in sorted(FIXTURES.glob(pattern))]
    first, *others = [check(*files, seed=seed) for seed in SEEDS]
    assert first
    assert all(found == first for found in others)


def test_which_of_several_places_is_shown(tmp_path: Path) -> None:
    """Of several waits the last, of several threads the first."""
    path = tmp_path / "several.py"
    path.write_text(SEVERAL_OF_A_KIND)
    for seed in SEEDS:
        found = check(path, seed=seed)
        shown = {f["code"]: json.dumps(f) for f in found}
        assert set(shown) == {"SS103", "SS411"}
        assert f'"row": {line_of("the last one")}' in shown["SS103"]
        assert f'"row": {line_of("the first one")}' in shown["SS411"]
