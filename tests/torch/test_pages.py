"""What the page about pytest shows is what pytest prints."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "guides" / "pytest.md"


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

    def comparable(output: str) -> list[str]:
        return re.sub(r"at 0x[0-9a-f]+", "at ADDRESS", output).splitlines()

    assert comparable(printed) == comparable(shown.partition("\n")[2].rstrip("\n"))
