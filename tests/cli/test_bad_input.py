"""Files and options that make no sense: a clear sentence, the right exit status, and the other files still checked."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from streamsafe.check.check import Files, Run
from streamsafe.check.files import run_task
from streamsafe.check.processes import Stopped, check_all
from streamsafe.check.task import Checked, Task
from tests.cli.helpers import BUG, BUG_ROW, CLEAN, Cli, findings, places

STREAMS = "import torch\nside = torch.cuda.Stream()\n"
BROKEN: dict[str, bytes] = {
    "does not parse": (STREAMS + "with torch.cuda.stream(side:\n    pass\n").encode(),
    "indentation": (STREAMS + "if side:\npass\n").encode(),
    "null byte": (STREAMS + "x = '\0'\n").encode(),
    "not UTF-8": (STREAMS + "x = 'é'\n").encode("latin-1"),
    "unknown encoding": ("# coding: klingon\n" + STREAMS).encode(),
    "other encoding declared": ("# -*- coding: ascii -*-\n" + STREAMS + "x = 'é'\n").encode(),
    "5,000 parentheses": (STREAMS + "x = " + "(" * 5000 + ")" * 5000 + "\n").encode(),
    "5,000 brackets": (STREAMS + "x = " + "[" * 5000 + "]" * 5000 + "\n").encode(),
    "unclosed string": (STREAMS + "x = '''\n").encode(),
    "UTF-16": (STREAMS).encode("utf-16"),
    "no Python at all": b"\x7fELF\x02 torch.cuda.Stream( \xff\xfe\n",
    "huge": (STREAMS + "x = 1\n" * 2_000_000).encode(),
}


@pytest.mark.parametrize("kind", BROKEN)
def test_broken_source(cli: Cli, project: Path, kind: str) -> None:
    (project / "a_broken.py").write_bytes(BROKEN[kind])
    (project / "bug.py").write_text(BUG)
    result = cli("check", ".", "a_broken.py", "--output-format", "json")
    assert result.exit_code == 1, result.stderr
    assert result.stderr == ""
    assert [place[:2] for place in places(result)] == [("a_broken.py", "SS900"), ("bug.py", "SS101")]
    assert findings(result)[0]["message"]


DEEP = {
    "minus": "x = " + "-" * 5000 + "1\n",
    "not": "x = " + "not " * 5000 + "1\n",
    "sum": "x = " + "+".join(["1"] * 5000) + "\n",
    "attributes": "x = side" + ".a" * 5000 + "\n",
    "calls": "x = side" + "()" * 5000 + "\n",
    "ifs": "".join(" " * depth + "if side:\n" for depth in range(99)) + " " * 99 + "pass\n",
    "elifs": "if side: pass\n" + "elif side: pass\n" * 3000,
    "lambda": "x = " + "lambda: " * 3000 + "1\n",
    "list": "x = [" + "1, " * 50_000 + "]\n",
    "strings": "x = (" + "'a'\n" * 20_000 + ")\n",
}


@pytest.mark.parametrize("kind", DEEP)
def test_deep_source_never_kills_the_run(cli: Cli, project: Path, kind: str) -> None:
    (project / "deep.py").write_text(STREAMS + DEEP[kind])
    (project / "bug.py").write_text(BUG)
    result = cli("check", "--output-format", "json")
    assert result.exit_code == 1, result.stderr
    assert result.stderr == ""
    assert ("bug.py", "SS101", BUG_ROW) in places(result)
    assert {place[1] for place in places(result)} <= {"SS101", "SS900"}


@pytest.mark.parametrize(
    ("content", "status"),
    [
        (b"", 0),
        (b"\n\n# nothing\n", 0),
        (b"\xef\xbb\xbf" + BUG.encode(), 1),
        (BUG.replace("\n", "\r\n").encode(), 1),
        (("# -*- coding: latin-1 -*-\n# é\n" + BUG).encode("latin-1"), 1),
        (("#!/usr/bin/env python\n# vim: set fileencoding=cp1252 :\nx = 'é'\n" + BUG).encode("cp1252"), 1),
        (BUG.rstrip("\n").encode(), 1),
        (b"x = 1\x0c\n" + BUG.encode(), 1),
        ("x = '\u2028'\n".encode() + BUG.encode(), 1),
    ],
)
def test_unusual_source(cli: Cli, project: Path, content: bytes, status: int) -> None:
    (project / "file.py").write_bytes(content)
    result = cli("check", "file.py", "--output-format", "json")
    assert result.exit_code == status
    offset = content.count(b"\n") - BUG.count("\n") + (not content.endswith(b"\n")) if status else 0
    assert [place[1:] for place in places(result)] == [("SS101", BUG_ROW + offset)] * status


def test_a_file_without_stream_code_is_parsed_only_when_named(cli: Cli, project: Path) -> None:
    (project / "template.py").write_text("print 'python 2'\n")
    assert cli("check").exit_code == 0
    assert cli("check", "--no-prefilter").exit_code == 0
    for option in ("--prefilter", "--no-prefilter"):
        result = cli("check", "template.py", option, "--output-format", "concise")
        assert result.exit_code == 1
        assert result.stdout.startswith("template.py:1:1: SS900 ")
        assert f"(parsed as Python {sys.version_info[0]}.{sys.version_info[1]})" in result.stdout


def test_missing_path(cli: Cli, project: Path) -> None:
    (project / "bug.py").write_text(BUG)
    result = cli("check", "nope.py", "bug.py", "--output-format", "json")
    assert result.exit_code == 2
    assert result.stderr == "streamsafe: error: nope.py: no such file or directory\n"
    assert places(result) == [("bug.py", "SS101", BUG_ROW)]


def test_broken_link(cli: Cli, project: Path) -> None:
    (project / "link.py").symlink_to("gone.py")
    (project / "bug.py").write_text(BUG)
    found = cli("check", "--output-format", "json")
    assert found.exit_code == 1
    assert "link.py: broken link" in found.stderr
    assert places(found) == [("bug.py", "SS101", BUG_ROW)]
    named = cli("check", "link.py")
    assert named.exit_code == 2
    assert "link.py: broken link" in named.stderr


def test_directory_loop_and_links(cli: Cli, project: Path) -> None:
    inner = project / "pkg" / "inner"
    inner.mkdir(parents=True)
    (inner / "bug.py").write_text(BUG)
    (inner / "up").symlink_to(project / "pkg", target_is_directory=True)
    (inner / "self").symlink_to(inner, target_is_directory=True)
    (project / "loop.py").symlink_to(project / "loop.py")
    result = cli("check", "--output-format", "json")
    assert places(result) == [("bug.py", "SS101", BUG_ROW)]
    assert "loop.py" in result.stderr


@pytest.mark.skipif(sys.platform != "linux", reason="needs mkfifo")
def test_special_files(cli: Cli, project: Path) -> None:
    os.mkfifo(project / "pipe.py")
    (project / "dir.py").mkdir()
    (project / "dir.py" / "bug.py").write_text(BUG)
    assert places(cli("check", "--output-format", "json")) == [("bug.py", "SS101", BUG_ROW)]
    named = cli("check", "pipe.py")
    assert named.exit_code == 2
    assert "not a regular file" in named.stderr


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_unreadable(cli: Cli, project: Path) -> None:
    (project / "secret.py").write_text(BUG)
    (project / "secret.py").chmod(0)
    assert places(cli("check", "--output-format", "json")) == [("secret.py", "SS900", 1)]


def test_read_error(cli: Cli, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (project / "secret.py").write_text(BUG)
    (project / "bug.py").write_text(BUG)

    def refuse(path: str, mode: str = "r", **options: object) -> object:
        if str(path).endswith("secret.py"):
            raise PermissionError(13, "Permission denied", path)
        return open(path, mode, **options)  # type: ignore[call-overload]

    monkeypatch.setattr("streamsafe.check.files.open", refuse, raising=False)
    result = cli("check", "--output-format", "json")
    assert places(result) == [("bug.py", "SS101", BUG_ROW), ("secret.py", "SS900", 1)]
    assert findings(result)[1]["message"] == "cannot be read: Permission denied"


def test_unreadable_directory(cli: Cli, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (project / "closed").mkdir()
    (project / "bug.py").write_text(BUG)
    scandir = os.scandir

    def refuse(path: str) -> object:
        if path.endswith("closed"):
            raise PermissionError(13, "Permission denied", path)
        return scandir(path)

    monkeypatch.setattr("streamsafe.project.files.os.scandir", refuse)
    result = cli("check", "--output-format", "json")
    assert result.exit_code == 1
    assert "warning" in result.stderr and "closed: Permission denied" in result.stderr
    assert places(result) == [("bug.py", "SS101", BUG_ROW)]
    result = cli("check", "--output-format", "json", "closed", "bug.py")
    assert result.exit_code == 2
    assert "error" in result.stderr and "closed: Permission denied" in result.stderr
    assert places(result) == [("bug.py", "SS101", BUG_ROW)]


@pytest.mark.parametrize(
    "error", [KeyError("lost"), RecursionError("too deep"), SyntaxError("not of the user's")]
)
def test_internal_error(cli: Cli, project: Path, monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    """A fault of the tool is told as one, never as a syntax error; the other files are checked."""
    real = Files.run

    def broken(self: Files, path: str, explain: int | None = None) -> Run:
        if path.endswith("a.py"):
            raise error
        return real(self, path, explain)

    monkeypatch.setattr(Files, "run", broken)
    (project / "a.py").write_text(BUG)
    (project / "b.py").write_text(BUG)
    result = cli("check", "--output-format", "json")
    assert result.exit_code == 2
    assert places(result) == [("b.py", "SS101", BUG_ROW)]
    assert result.stderr.startswith(
        f"streamsafe: error: internal error, a.py was not checked: {type(error).__name__}: {error}"
    )
    assert "Traceback" not in result.stderr
    assert cli("check", "--explain-line", "a.py:3").exit_code == 2


def test_a_process_that_dies(cli: Cli, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = Files.run

    def die(self: Files, path: str, explain: int | None = None) -> Run:
        if path.endswith("b.py"):
            os._exit(139)
        return real(self, path, explain)

    monkeypatch.setattr(Files, "run", die)
    monkeypatch.setattr("streamsafe.check.processes.PARALLEL_FROM", 0)
    for name in ("a.py", "b.py", "c.py"):
        (project / name).write_text(BUG)
    result = cli("check", "--output-format", "json", "--jobs", "2")
    assert result.exit_code == 2
    assert [place[0] for place in places(result)] == ["a.py", "c.py"]
    assert "b.py was not checked: the process that analysed it died" in result.stderr


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_an_interrupted_check_shows_what_is_known_and_keeps_it(
    cli: Cli, project: Path, monkeypatch: pytest.MonkeyPatch, jobs: str
) -> None:
    for name in ("a.py", "b.py", "c.py"):
        (project / name).write_text(BUG)
    ran: list[str] = []
    real = check_all

    def stop(*given: Any) -> list[Checked]:
        tasks, check, _, done, finished, begin = given
        real(tasks[:2], check, int(jobs), done, finished, begin)
        ran.extend(Path(task.path).name for task in tasks)
        raise Stopped

    monkeypatch.setattr("streamsafe.check.files.check_all", stop)
    result = cli("check", "--output-format", "json")
    assert result.exit_code == 130
    assert [place[0] for place in places(result)] == ["a.py", "b.py"]
    assert "interrupted" in result.stderr
    monkeypatch.undo()
    monkeypatch.chdir(project)
    ran.clear()

    def noted(task: Task) -> Checked:
        ran.append(Path(task.path).name)
        return run_task(task)

    monkeypatch.setattr("streamsafe.check.files.run_task", noted)
    assert [place[0] for place in places(cli("check", "--output-format", "json"))] == ["a.py", "b.py", "c.py"]
    assert ran == ["c.py"]


@pytest.mark.parametrize(
    "content",
    [
        b"not json",
        b"[]",
        b"{}",
        b'{"cells": 3}',
        b'{"cells": [{"cell_type": "code"}]}',
        b"\xff\xfe",
        b"[" * 100_000,
    ],
)
def test_broken_notebook(cli: Cli, project: Path, content: bytes) -> None:
    (project / "broken.ipynb").write_bytes(content)
    result = cli("check", "broken.ipynb", "--output-format", "concise")
    assert result.exit_code == 1
    assert "SS900 not a Jupyter notebook" in result.stdout


@pytest.mark.parametrize(
    ("source", "code"),
    [
        ("%%bash\npip install numpy==1.19 scipy==1.5.2\n", 0),
        ("%%capture\n%%bash\npip install numpy==1.19 scipy==1.5.2\n", 0),
        ("%%capture\nx = 1\n", 0),
        ("%%capture\nx = = 1\n", 1),
    ],
)
def test_cell_magics(cli: Cli, project: Path, source: str, code: int) -> None:
    cell = {"cell_type": "code", "source": source}
    notebook = {"cells": [cell], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
    (project / "cells.ipynb").write_text(json.dumps(notebook))
    assert cli("check", "cells.ipynb").exit_code == code


def test_notebook_in_another_language(cli: Cli, project: Path) -> None:
    cells = '[{"cell_type": "code", "source": "torch = (Stream("}]'
    metadata = '{"language_info": {"name": "julia"}}'
    (project / "julia.ipynb").write_text(f'{{"cells": {cells}, "metadata": {metadata}}}')
    assert cli("check", "julia.ipynb").exit_code == 0


@pytest.mark.parametrize(
    "arguments",
    [
        ["--select", "SS9999"],
        ["--select", "nonsense"],
        ["--ignore", "QQ"],
        ["--extend-select", "unordered"],
        ["--confidence", "sure"],
        ["--output-format", "xml"],
        ["--jobs", "-1"],
        ["--jobs", "many"],
        ["--config", "nope.toml"],
        ["--config", "empty.toml"],
        ["--no-such-option"],
        ["--write-baseline"],
        ["--baseline", "nope.json"],
        ["--baseline", "empty.toml"],
        ["-", "bug.py"],
    ],
)
def test_bad_option(cli: Cli, project: Path, arguments: list[str]) -> None:
    (project / "bug.py").write_text(BUG)
    (project / "empty.toml").write_text("")
    result = cli("check", *arguments, stdin=CLEAN)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert "Error: " in result.stderr
    assert "Traceback" not in result.stderr
