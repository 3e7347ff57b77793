"""Every command of streamsafe that a page shows, run: each does what it is asked for, on a small project."""

from __future__ import annotations

import glob
import importlib.util
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.test_documents import BLOCK, ROOT

PROGRAM = """\
import torch

side = torch.cuda.Stream()


def predict(batch):
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        scores = torch.softmax(batch, dim=-1)
    best = scores.argmax(dim=-1)
    return best


if __name__ == "__main__":
    predict(torch.zeros(8, 8, device="cuda"))
"""
SUPPRESSIONS = '[[suppress]]\ncode = "SS999"\nreason = "the example of a file"\n'
FILES = {
    **dict.fromkeys(
        ("predict.py", "train.py", "pipeline.py", "src/predict.py", "my/package/__main__.py"), PROGRAM
    ),
    "known.toml": SUPPRESSIONS,
}
ELSEWHERE = ("docs/found.md",)
"""Pages whose commands need the sources of other projects."""


def commands(path: Path) -> Iterator[str]:
    """The commands of streamsafe in the blocks of a page, in their order; also those that torchrun starts."""
    for _, language, text in BLOCK.findall(path.read_text(encoding="utf-8")):
        for line in text.splitlines() if language == "sh" else ():
            line = line.partition("  #")[0].strip().removeprefix("$ ")
            if re.match(r"(torchrun .* -m )?streamsafe (?!server)", line):
                yield line


PAGES = {
    path.relative_to(ROOT).as_posix(): [*commands(path)]
    for path in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
}


@pytest.mark.parametrize("page", [page for page, lines in PAGES.items() if lines and page not in ELSEWHERE])
def test_commands_run(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    for words in (["init", "-q", "-b", "main"], ["add", "."], ["commit", "-q", "-m", "begin"]):
        subprocess.run(["git", "-c", "user.name=n", "-c", "user.email=e", *words], check=True)
    for line in PAGES[page]:
        run(line)


def run(line: str) -> None:
    """Run a command; it may find hazards, and must not fail at anything else."""
    started, _, rest = line.rpartition("streamsafe ")
    words = [each for word in shlex.split(rest) for each in (sorted(glob.glob(word)) or [word])]
    if words[0] == "run":
        if importlib.util.find_spec("torch") is None:
            pytest.skip("PyTorch is not installed")
        words[1:1] = [] if "--simulate" in words else ["--simulate"]  # the test's machine may have no GPU
    ranks = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1"} if "torchrun" in started else {}
    ended = subprocess.run(
        [sys.executable, "-m", "streamsafe", *words],
        capture_output=True,
        text=True,
        env={**os.environ, **ranks, "PYTHONPATH": str(ROOT)},
        check=False,
    )
    assert ended.returncode in (0, 1), f"{line}\n{ended.stdout}{ended.stderr}"
    assert "internal error" not in ended.stderr, line
    assert "Traceback" not in ended.stderr or "StreamHazardError" in ended.stderr, line
    assert ended.returncode == 0 or "hazard" in ended.stdout + ended.stderr, line
