"""What the tests of the command line share."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

from click.testing import Result

Cli = Callable[..., Result]

BUG = textwrap.dedent(
    """\
    import torch

    side = torch.cuda.Stream()


    def total(n):
        x = torch.zeros(n, device="cuda")
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            x.fill_(2)
        return x.sum()
    """
)
BUG_ROW = 11
CLEAN = BUG.replace("    return", "    torch.cuda.current_stream().wait_stream(side)\n    return")


def findings(result: Result) -> list[dict[str, Any]]:
    """The findings of a run with `--output-format json`."""
    parsed = json.loads(result.stdout)
    assert isinstance(parsed, list)
    return parsed


def places(result: Result) -> list[tuple[str, str, int]]:
    """(file, code, row) of each finding."""
    return [(Path(item["filename"]).name, item["code"], item["location"]["row"]) for item in findings(result)]
