from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

TOTALS: Counter[str] = Counter()
UNATTRIBUTED: dict[str, list[str]] = {}


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not config.getoption("--gpu"):
        for item in items:
            if "tests/gpu/" in item.path.as_posix():
                item.add_marker(pytest.mark.skip(reason="needs a GPU"))


def pytest_terminal_summary(terminalreporter: Any) -> None:
    if TOTALS:
        terminalreporter.section("audit of what the driver was asked to do")
        terminalreporter.line(", ".join(f"{count} {name}" for name, count in sorted(TOTALS.items())))
        for name, operations in UNATTRIBUTED.items():
            terminalreporter.line(f"unattributed in {name}: {', '.join(operations)}")
