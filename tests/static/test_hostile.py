"""Source that is hard on an analyzer ends within limits; and what is checked is never run."""

from __future__ import annotations

import resource
import subprocess
import sys
from pathlib import Path

import pytest
from hostile import CASES

from streamsafe.cli import main

SECONDS = 10
"""Of a processor."""
MEGABYTES = 500

LATER = pytest.mark.xfail(strict=False, reason="takes longer, or more memory, than the limit")
LOST = pytest.mark.xfail(strict=True, reason="an expression that is nested too deeply costs the file")
MISSED = pytest.mark.xfail(
    strict=True, reason="the hazard behind 200 conditions is not found, and no note says so"
)
QUICK = {"long_sum_elsewhere", "brackets", "long_sum", "long_chain", "ifs"}
"""The cases that every run of the tests takes; `--hostile` takes all."""

FINDS: dict[str, int] = {
    "functions": 16_700,
    "plain_lines": 1,
    "streams": 499,
    "loops": 1,
    "ifs": 1,
    "methods": 0,
    "long_sum": 1,
    "long_chain": 1,
    "long_sum_elsewhere": 1,
    "brackets": 1,
    "long_list": 1,
    "elifs": 1,
}
"""How many hazards each case has."""
MARKS = {
    "functions": LATER,
    "streams": LATER,
    "loops": LATER,
    "ifs": MISSED,
    "methods": LATER,
    "long_list": LATER,
    "long_sum": LOST,
    "long_chain": LOST,
}
NEXT_MARKS = {"functions": LATER, "streams": LATER}
"""Of the next engine: most of the time of 500 streams goes into 500 repairs of one file."""
NEXT = ["--engine", "next", "--no-cache"]


def _limited() -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS + 1))
    resource.setrlimit(resource.RLIMIT_DATA, (MEGABYTES << 20, MEGABYTES << 20))


@pytest.mark.parametrize(
    ("name", "engine"),
    [
        *(pytest.param(name, [], marks=MARKS.get(name, ()), id=name) for name in CASES),
        *(pytest.param(name, NEXT, marks=NEXT_MARKS.get(name, ()), id=f"{name}-next") for name in CASES),
    ],
)
def test_within_limits(request: pytest.FixtureRequest, tmp_path: Path, name: str, engine: list[str]) -> None:
    """All hazards are found, or a note names what was left out."""
    if name not in QUICK and not request.config.getoption("--hostile"):
        pytest.skip("--hostile runs it")
    path = tmp_path / f"{name}.py"
    path.write_text(CASES[name](), encoding="utf-8")
    command = [sys.executable, "-m", "streamsafe", "check", "--isolated", "-j", "1", "-q"]
    done = subprocess.run(
        [*command, *engine, "--output-format", "concise", str(path)],
        preexec_fn=_limited,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode in (0, 1), done.stderr[-500:]
    assert " SS900 " not in done.stdout, done.stdout
    left_out = f"{name}.py" in done.stderr
    assert done.stdout.count(" SS101 ") == FINDS[name] or left_out, done.stdout[:500]


TRACE = """\
import pathlib

import torch

pathlib.Path("{left}").write_text("it ran")
side = torch.cuda.Stream()


class Meta(type):
    def __new__(cls, *given, **more):
        pathlib.Path("{left}").write_text("it ran")
        return super().__new__(cls, *given, **more)


class Made(metaclass=Meta):
    pass


def f(x, y=pathlib.Path("{left}").write_text("it ran")):
    with torch.cuda.stream(side):
        x.fill_(2)
    return x.sum()
"""


@pytest.mark.parametrize(
    "options", [[], ["--no-prefilter"], ["--diff", "--unsafe-fixes"], ["--output-format", "sarif"]]
)
def test_what_is_checked_is_never_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: list[str]
) -> None:
    """Neither the file, nor what it imports, nor what Python would import from beside it."""
    from click.testing import CliRunner

    left = tmp_path / "left"
    text = TRACE.format(left=left)
    for name in ("bug.py", "torch.py", "conftest.py", "setup.py", "sitecustomize.py", "helper.py", "ast.py"):
        (tmp_path / name).write_text(text + "import helper\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(main, ["check", "--isolated", *options])
    assert result.exit_code == 1
    assert "SS101" in result.output or options[:1] == ["--diff"]
    assert not left.exists()
