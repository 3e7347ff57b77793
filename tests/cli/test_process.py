"""What only a process of its own shows: lazy imports, the entry points, pipes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.helpers import BUG

HEAVY = (
    "libcst",
    "streamsafe.rules",
    "multiprocessing",
    "concurrent.futures",
    "streamsafe.runtime",
    "numpy",
    "cupy",
)


def run(
    *args: str, cwd: Path, stdin: bytes = b"", env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, *args],
        cwd=cwd,
        input=stdin,
        capture_output=True,
        env={**os.environ, **(env or {})},
        check=False,
    )


def imported(cwd: Path, *arguments: str) -> set[str]:
    code = (
        "import sys; from streamsafe.cli import main\n"
        f"try: main({list(arguments)!r})\n"
        "except SystemExit: pass\n"
        "print(*sys.modules, file=sys.stderr)"
    )
    result = run("-c", code, cwd=cwd)
    return set(result.stderr.decode().split())


@pytest.mark.parametrize("arguments", [["check"], ["--help"], ["--version"]])
def test_a_project_without_stream_code_pays_for_nothing(project: Path, arguments: list[str]) -> None:
    (project / "plain.py").write_text("import torch\nx = torch.zeros(3)\n")
    modules = imported(project, *arguments)
    assert "streamsafe.cli" in modules
    assert modules.isdisjoint(HEAVY)
    assert "streamsafe.check.machine" not in modules


def test_rules_are_imported_for_a_finding(project: Path) -> None:
    (project / "bug.py").write_text(BUG)
    assert "streamsafe.rules" in imported(project, "check")


def test_python_m(project: Path) -> None:
    (project / "bug.py").write_text(BUG)
    result = run("-m", "streamsafe", "check", "--output-format", "concise", cwd=project)
    assert result.returncode == 1
    assert result.stdout.startswith(b"bug.py:11:12: SS101")
    assert result.stderr == b""


@pytest.mark.parametrize("process", ["its own", "another's"])
def test_memory_is_left_to_the_end_of_a_process_of_its_own(project: Path, process: str) -> None:
    call = "main()" if process == "its own" else "main.main(standalone_mode=False)"
    code = (
        "import atexit, gc; before = gc.get_threshold()\n"
        "from streamsafe.cli import main\n"
        "atexit.register(lambda: print(gc.get_freeze_count() > 0, gc.get_threshold() == before))\n"
        f"try: {call}\nexcept SystemExit: pass"
    )
    result = run("-c", code, "check", "--isolated", "--no-cache", ".", cwd=project)
    told = b"True False" if process == "its own" else b"False True"
    assert result.stdout.strip().endswith(told), result.stderr


def test_closed_pipe(project: Path) -> None:
    for number in range(60):
        (project / f"bug{number}.py").write_text(BUG)
    process = subprocess.Popen(
        [sys.executable, "-m", "streamsafe", "check"],
        cwd=project,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    with process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.read(1)
        process.stdout.close()
        assert process.stderr.read() == b""


def test_ascii_terminal(project: Path) -> None:
    (project / "bug.py").write_text(BUG.replace("x", "größe"), encoding="utf-8")
    result = run("-m", "streamsafe", "check", cwd=project, env={"PYTHONIOENCODING": "ascii"})
    assert result.returncode == 1, result.stderr.decode()
    assert b"Traceback" not in result.stderr


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shell_completion(project: Path, shell: str) -> None:
    result = run("-m", "streamsafe", cwd=project, env={"_STREAMSAFE_COMPLETE": f"{shell}_source"})
    assert result.returncode == 0
    assert b"_STREAMSAFE_COMPLETE" in result.stdout


@pytest.mark.parametrize(
    ("word", "hint"),
    [("chek", "check"), ("src", "check src"), ("bug.py", "check bug.py"), ("nothing-like-it", "")],
)
def test_a_word_that_is_no_command(tmp_path: Path, word: str, hint: str) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "bug.py").write_text(BUG, encoding="utf-8")
    done = run("-m", "streamsafe", word, cwd=tmp_path)
    assert done.returncode == 2
    last = done.stderr.decode().splitlines()[-1]
    end = f" Did you mean `streamsafe {hint}`?" if hint else ""
    assert last == f"Error: No such command '{word}'.{end}"
