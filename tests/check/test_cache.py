"""Results kept between runs: the same cold and warm; nothing stale; a broken cache costs time only."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from streamsafe.check.cache import DAYS
from streamsafe.check.check import Files, Run
from streamsafe.cli import main

FILES = {
    "pkg/__init__.py": "",
    "pkg/mover.py": """
        import torch

        class Mover:
            def __init__(self):
                self.side = torch.cuda.Stream()

            def fetch(self, host):
                with torch.cuda.stream(self.side):
                    return host.to("cuda", non_blocking=True)

            def join(self):
                torch.cuda.current_stream().wait_stream(self.side)
        """,
    "pkg/trainer.py": """
        import torch
        from .mover import Mover

        def train(host):
            mover = Mover()
            moved = mover.fetch(host)
            total = moved.sum()
            mover.join()
            return total
        """,
    "pkg/plain.py": """
        import torch

        def quiet(x):
            side = torch.cuda.Stream()
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                x.mul_(2)
            torch.cuda.current_stream().wait_stream(side)
        """,
    "main.py": """
        import torch

        def read(x):
            host = x.cuda().to("cpu", non_blocking=True)
            return host.tolist()
        """,
}
JOINED = "moved = mover.fetch(host); mover.join(); moved.record_stream(torch.cuda.current_stream())"
Check = Callable[..., list[dict[str, Any]]]


def write(root: Path, name: str, text: str) -> None:
    path = root / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(textwrap.dedent(text).lstrip("\n"), encoding="utf-8")


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, text in FILES.items():
        write(tmp_path, name, text)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def check(*arguments: str) -> tuple[list[dict[str, Any]], str]:
    """What is found, and what is said on standard error."""
    command = ["check", "--isolated", "--output-format=json", *(arguments or (".",))]
    result = CliRunner().invoke(main, command, catch_exceptions=False)
    assert result.exit_code in (0, 1), result.stderr
    return json.loads(result.stdout), result.stderr


def places(found: list[dict[str, Any]]) -> set[tuple[str, str]]:
    return {(Path(each["filename"]).name, each["code"]) for each in found}


@pytest.fixture
def analysed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The files whose texts are analysed, in order."""
    names: list[str] = []
    plain = Files.run

    def noted(self: Files, path: str, explain: int | None = None) -> Run:
        names.append(Path(path).name)
        return plain(self, path, explain)

    monkeypatch.setattr(Files, "run", noted)
    return names


COLD = {("main.py", "SS301"), ("trainer.py", "SS101")}


def test_a_warm_run_says_the_same_and_analyses_nothing(tree: Path, analysed: list[str]) -> None:
    cold = check()
    assert places(cold[0]) == COLD and set(analysed) == {"main.py", "mover.py", "plain.py", "trainer.py"}
    analysed.clear()
    assert check() == cold
    assert not analysed
    assert check("--no-cache", ".") == cold
    assert (tree / ".streamsafe_cache" / ".gitignore").read_text() == "*\n"
    assert check("--no-cache", ".")[1] == ""


def test_a_warm_run_shows_the_same_text_without_libcst(tree: Path) -> None:
    code = """
import sys
from streamsafe.cli import main
try:
    main()
except SystemExit:
    print("libcst" in sys.modules)
"""
    runs = [
        subprocess.run(
            [sys.executable, "-c", code, "check", "--isolated", "."],
            capture_output=True,
            text=True,
            check=True,
        ).stdout.rpartition("True" if number == 0 else "False")
        for number in range(2)
    ]
    assert runs[0][0] == runs[1][0] and runs[0][0].count("SS") >= len(COLD)
    assert [run[1] for run in runs] == ["True", "False"]


CHANGES: dict[str, tuple[str, str, set[tuple[str, str]]]] = {
    "the file": (
        "main.py",
        FILES["main.py"].replace(", non_blocking=True", ""),
        COLD - {("main.py", "SS301")},
    ),
    "a file that it uses": (
        "pkg/mover.py",
        FILES["pkg/mover.py"].replace(", non_blocking=True", "").replace("torch.cuda.Stream()", "None"),
        {("main.py", "SS301")},
    ),
    "its caller": (
        "pkg/trainer.py",
        FILES["pkg/trainer.py"].replace("moved = mover.fetch(host)", JOINED),
        {("main.py", "SS301")},
    ),
    "a new caller": (
        "pkg/other.py",
        FILES["pkg/trainer.py"],
        COLD | {("other.py", "SS101")},
    ),
    "a suppression": (
        "main.py",
        FILES["main.py"].replace("tolist()", "tolist()  # streamsafe: ignore[SS301]"),
        COLD - {("main.py", "SS301")},
    ),
}
"""What changes between two runs -> the file, its new text, what is found then."""


@pytest.mark.parametrize("change", CHANGES)
def test_nothing_stale_is_shown(tree: Path, change: str) -> None:
    name, text, expected = CHANGES[change]
    check()
    write(tree, name, text)
    after = check()
    assert places(after[0]) == expected
    assert check("--no-cache", ".")[0] == after[0]


def test_a_file_beside_the_one_named_matters(tree: Path) -> None:
    assert places(check("pkg/trainer.py")[0]) == COLD - {("main.py", "SS301")}
    write(tree, "pkg/mover.py", CHANGES["a file that it uses"][1])
    assert not check("pkg/trainer.py")[0]


def test_a_module_that_was_absent_is_found(tree: Path) -> None:
    (tree / "pkg" / "mover.py").rename(tree / "mover.aside")
    assert not check("pkg/trainer.py")[0]
    (tree / "mover.aside").rename(tree / "pkg" / "mover.py")
    assert places(check("pkg/trainer.py")[0]) == COLD - {("main.py", "SS301")}


def test_only_what_changed_is_analysed_again(tree: Path, analysed: list[str]) -> None:
    cold = check()
    analysed.clear()
    write(tree, "main.py", FILES["main.py"] + "\n")
    assert check() == cold
    assert "plain.py" not in analysed and "main.py" in analysed


def test_options_of_a_report_need_no_new_analysis(tree: Path, analysed: list[str]) -> None:
    check()
    analysed.clear()
    assert places(check("--select=SS301", ".")[0]) == {("main.py", "SS301")}
    assert not analysed


def test_no_cache_writes_none(tree: Path) -> None:
    check("--no-cache", ".")
    assert not (tree / ".streamsafe_cache").exists()


def test_without_stream_code_there_is_nothing_to_keep(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path, "main.py", "print(1)\n")
    assert check() == ([], "")
    assert not (tmp_path / ".streamsafe_cache").exists()


@pytest.mark.parametrize(
    "damage", ["not JSON", "{}", "[]", '{"looked": 3, "digest": 1}', '{"conflicts": [1]}']
)
def test_a_broken_entry_is_made_again(tree: Path, damage: str) -> None:
    cold = check()
    for entry in tree.glob(".streamsafe_cache/*/*.json"):
        entry.write_text(damage)
    again, said = check()
    assert again == cold[0]
    assert "is made again" in said
    assert check() == cold


def test_a_cache_that_cannot_be_written_is_a_warning(tree: Path) -> None:
    (tree / ".streamsafe_cache").write_text("a file, not a directory")
    found, said = check()
    assert places(found) == COLD
    assert said.count("streamsafe: warning: ") == 1 and "cannot be" in said


def test_what_no_run_uses_is_removed(tree: Path) -> None:
    check()
    entries = set(tree.glob(".streamsafe_cache/*/*.json"))
    old = time.time() - (DAYS + 1) * 86_400
    for entry in entries:
        os.utime(entry, (old, old))
    write(tree, "pkg/plain.py", FILES["pkg/plain.py"] + "\n")
    check()  # uses those of the files that did not change
    left = set(tree.glob(".streamsafe_cache/*/*.json"))
    assert entries - left and entries & left


def test_runs_at_the_same_time_agree(tree: Path) -> None:
    command = [sys.executable, "-m", "streamsafe", "check", "--isolated", "--output-format=json", "."]
    running = [
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(3)
    ]
    results = [process.communicate() for process in running]
    assert len({out for out, _ in results}) == 1
    assert all(not err for _, err in results)


def test_what_can_be_repaired_is_counted_once(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command = ["check", "--isolated", "--output-format=concise", "."]
    cold = CliRunner().invoke(main, command).stdout
    assert "fixable: " in cold
    monkeypatch.setattr("streamsafe.repairs.repair.fix_of", None)  # would raise
    assert CliRunner().invoke(main, command, catch_exceptions=False).stdout == cold


def test_an_index_that_holds_something_else_is_made_again(tree: Path) -> None:
    cold = check()
    for entry in tree.glob(".streamsafe_cache/*/*.json"):
        held = json.loads(entry.read_text())
        if "looked" in held:
            entry.unlink()
        elif all(isinstance(value, list) for value in held.values()) and "conflicts" not in held:
            entry.write_text(json.dumps({path: [value[0], True, 3, None] for path, value in held.items()}))
    assert check() == cold
