from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings

# how fast the machine is that runs the tests is not what they are about
settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--gpu", action="store_true", help="run the runtime tests on a real GPU, not on the simulated one"
    )
    parser.addoption(
        "--release",
        action="store_true",
        help="build, install and use what is released: two minutes, and a network",
    )
    parser.addoption(
        "--hostile", action="store_true", help="run all cases of tests/static/test_hostile.py: minutes"
    )
    parser.addoption(
        "--every-repair",
        action="store_true",
        help="make all repairs of the fixtures, not one in each definition: minutes",
    )
    parser.addoption(
        "--every-program",
        action="store_true",
        help="check all programs of tests/static/test_permutations.py, and of next/test_rewrites.py: an hour",
    )
    parser.addoption(
        "--both-hooks",
        action="store_true",
        help="run all programs of fixtures/runtime with CuPy's hooks in Python too, not a tenth of them",
    )
