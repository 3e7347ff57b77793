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
QUICK = {"long_sum_elsewhere", "brackets", "long_sum", "ifs"}
"""The cases that every run of the tests takes; `--all` takes all."""

FINDS: dict[str, tuple[int, bool]] = {
    "functions": (16_700, False),
    "plain_lines": (1, False),
    "streams": (500, False),
    "loops": (0, True),
    "ifs": (1, False),
    "methods": (0, False),
    "long_sum": (1, False),
    "long_chain": (1, False),
    "long_sum_elsewhere": (1, False),
    "brackets": (1, False),
    "long_list": (1, False),
    "elifs": (2, False),
}
"""How many hazards of each case are shown, and whether a note says that it was not run to its end."""
MARKS = {"functions": LATER, "long_chain": LATER, "long_list": LATER}


def _limited() -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS + 1))
    resource.setrlimit(resource.RLIMIT_DATA, (MEGABYTES << 20, MEGABYTES << 20))


@pytest.mark.parametrize("name", [pytest.param(name, marks=MARKS.get(name, ()), id=name) for name in CASES])
def test_within_limits(request: pytest.FixtureRequest, tmp_path: Path, name: str) -> None:
    """As many hazards are shown as before, and where some are not, a note names the function."""
    if name not in QUICK and not request.config.getoption("--all"):
        pytest.skip("--all runs it")
    path = tmp_path / f"{name}.py"
    path.write_text(CASES[name](), encoding="utf-8")
    command = [sys.executable, "-m", "streamsafe", "check", "--isolated", "-j", "1", "-q", "-v"]
    done = subprocess.run(
        [*command, "--output-format", "concise", str(path)],
        preexec_fn=_limited,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode in (0, 1), done.stderr[-500:]
    assert " SS900 " not in done.stdout, done.stdout
    cut = f"{name}.py: not run to its end" in done.stderr
    assert (done.stdout.count(" SS101 "), cut) == FINDS[name], done.stdout[:500]


MANY = [("methods", 200), ("ifs", 200), ("calls", 700), ("statements", 700), ("long_sum", 1_000)]
"""What is written, and how often."""


def _many(what: str, count: int) -> str:
    head = "import torch\n\nside = torch.cuda.Stream()\n\n\n"
    write = "    with torch.cuda.stream(side):\n        x.fill_(2)\n"
    if what == "methods":
        bodies = (
            f"    def m{n}(self):\n        with torch.cuda.stream(self.s):\n            self.x.add_({n})\n"
            f"        self.m{n + 1}()\n"
            for n in range(count)
        )
        made = (
            "class A:\n    def __init__(self, x):\n        self.x = x\n        self.s = torch.cuda.Stream()\n"
        )
        return f"{head}{made}{''.join(bodies)}    def m{count}(self):\n        pass\n"
    if what == "ifs":
        body = "".join(f"    if c.flag{n}:\n        x.add_({n})\n" for n in range(count))
        return f"{head}def f(x, c):\n{write}{body}    return x.sum()\n"
    if what == "statements":
        body = "".join(f"    x.add_({n})\n" for n in range(count))
        return f"{head}def f(x):\n{body}{write}    return x.sum()\n"
    if what == "calls":
        body = "".join(f"    g(x, {n})\n" for n in range(count))
        return (
            f"{head}def g(x, n):\n    with torch.cuda.stream(side):\n        x.add_(n)\n\n\ndef f(x):\n{body}"
        )
    body = f"        y = {' + '.join(['x'] * count)}\n"
    return f"{head}def f(x):\n{write}{body}    return x.sum()\n"


@pytest.mark.parametrize(("what", "count"), MANY)
def test_much_of_one_kind_is_run_or_said_not_to_be(tmp_path: Path, what: str, count: int) -> None:
    """In the last line, and with --verbose by file."""
    from click.testing import CliRunner

    path = tmp_path / "many.py"
    path.write_text(_many(what, count), encoding="utf-8")
    command = ["check", "--isolated", "--no-cache", "-v", str(path)]
    result = CliRunner().invoke(main, command, catch_exceptions=False)
    assert result.exit_code in (0, 1), result.output
    cut = "many.py: not run to its end" in result.stderr
    assert ("1 file not run to its end" in result.stdout) == cut
    assert cut or "SS101" in result.stdout or what in ("methods", "calls")


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
