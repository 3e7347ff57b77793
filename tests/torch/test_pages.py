"""What the pages show of runs is what they print; `python -m tests.torch.test_pages` writes it anew."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

DOCS = Path(__file__).parents[2] / "docs"
PAGE = DOCS / "guides" / "pytest.md"
PROGRAM = re.compile(r"<!-- program: (\S+) -->\n```python\n(.*?)```", re.DOTALL)
PRINTED = re.compile(r"(<!-- printed: ([^\n]+) -->\n```text\n)(.*?)(```)", re.DOTALL)
PAGES = [path for path in sorted(DOCS.rglob("*.md")) if PRINTED.search(path.read_text(encoding="utf-8"))]

SCRIPT = Path(sys.executable).with_name("pytest")


@pytest.mark.parametrize(
    "command",
    [
        pytest.param([sys.executable, "-m", "pytest"], id="module"),
        pytest.param(
            [str(SCRIPT)],
            id="script",
            marks=pytest.mark.skipif(not SCRIPT.exists(), reason=f"there is no {SCRIPT}"),
        ),
    ],
)
def test_the_page_shows_what_pytest_prints(backend: Any, command: list[str], tmp_path: Path) -> None:
    text = PAGE.read_text(encoding="utf-8")
    program = text.split("```python\n", 1)[1].split("```", 1)[0]
    shown = text.split("```text\n", 1)[1].split("```", 1)[0]
    (tmp_path / "test_predict.py").write_text(program, encoding="utf-8")
    environment = {name: value for name, value in os.environ.items() if name not in ("CI", "PYTEST_ADDOPTS")}
    ran = subprocess.run(
        [*command, "--streamsafe=simulate", "test_predict.py", "-p", "no:cacheprovider"],
        cwd=tmp_path,
        env={**environment, "COLUMNS": "80"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert ran.returncode == 1, ran.stdout + ran.stderr
    printed = ran.stdout[ran.stdout.index("=== FAILURES") :].partition("\n")[2].rpartition("\n=")[0]

    assert comparable(printed) == comparable(shown.partition("\n")[2].rstrip("\n"))


def comparable(output: str) -> list[str]:
    """Without what differs from run to run: addresses, and how long it took."""
    return re.sub(r" in [0-9.]+s\b", "", re.sub(r"at 0x[0-9a-f]+", "at ADDRESS", output)).splitlines()


def printed(page: str, folder: Path) -> dict[str, str]:
    """What the commands of a page print where its programs are."""
    for name, program in PROGRAM.findall(page):
        (folder / name).write_text(program, encoding="utf-8")
    environment = {name: value for name, value in os.environ.items() if name not in ("CI", "PYTEST_ADDOPTS")}
    found = {}
    for _, command, _, _ in PRINTED.findall(page):
        words = [sys.executable, "-m", *command.split()]
        words += ["-p", "no:cacheprovider", "-p", "no:warnings"] if words[2] == "pytest" else []
        ran = subprocess.run(
            words,
            cwd=folder,
            env={**environment, "COLUMNS": "80"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=300,
        )
        found[command] = re.sub(r"^streamsafe: (building|compiled) .*\n", "", ran.stdout, flags=re.MULTILINE)
    return found


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_a_page_shows_what_its_commands_print(backend: Any, tmp_path: Path, path: Path) -> None:
    page = path.read_text(encoding="utf-8")
    shown = {command: text for _, command, text, _ in PRINTED.findall(page)}
    for command, text in printed(page, tmp_path).items():
        assert comparable(text) == comparable(shown[command])


def main() -> None:
    for path in PAGES:
        text = path.read_text(encoding="utf-8")
        with tempfile.TemporaryDirectory() as folder:
            for command, now in printed(text, Path(folder)).items():
                shown = re.compile(rf"(<!-- printed: {re.escape(command)} -->\n```text\n).*?```", re.DOTALL)
                text = shown.sub(lambda match, now=now: f"{match[1]}{now}```", text)  # type: ignore[misc]
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
