"""The page of outputs: each block of text is what `streamsafe run` shows of the program above it.

``python -m tests.runtime.test_output_page`` writes the page anew.
"""

from __future__ import annotations

import re
import sys
import tempfile
from pathlib import Path

import pytest

from tests.runtime.test_commands import streamsafe

PAGE = Path(__file__).resolve().parents[2] / "docs" / "hazard-output.md"
BLOCK = re.compile(r"```python\n(.*?)```\n\n```text\n(.*?)```\n", re.DOTALL)
PAIRS = BLOCK.findall(PAGE.read_text(encoding="utf-8"))


def shown(source: str, folder: Path) -> str:
    """The hazard that stops a program, with one address for all."""
    (folder / "train.py").write_text(source, encoding="utf-8")
    result = streamsafe("run", "--simulate", "train.py", cwd=folder)
    text, _, rest = result.stderr.partition("\n\nstreamsafe: the program stopped at ")
    assert rest, result.stderr
    return re.sub(r"0x[0-9a-f]+", "0x7f0000000000", text) + "\n"


@pytest.mark.skipif(sys.version_info < (3, 11), reason="Python knows no columns: whole lines are underlined")
@pytest.mark.parametrize(("source", "output"), PAIRS, ids=[str(number) for number in range(len(PAIRS))])
def test_the_page_of_outputs(backend: object, source: str, output: str, tmp_path: Path) -> None:
    assert shown(source, tmp_path) == output
    assert len(PAIRS) == 8


if __name__ == "__main__":
    text = PAGE.read_text(encoding="utf-8")
    for program, output in PAIRS:
        with tempfile.TemporaryDirectory() as where:
            block = f"```python\n{program}```\n\n```text\n"
            text = text.replace(f"{block}{output}```\n", f"{block}{shown(program, Path(where))}```\n")
    PAGE.write_text(text, encoding="utf-8")
