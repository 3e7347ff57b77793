from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--gpu", action="store_true", help="run the runtime tests on a real GPU, not on the simulated one"
    )
    parser.addoption(
        "--every-program",
        action="store_true",
        help="check all programs of tests/static/test_permutations.py: an hour",
    )
