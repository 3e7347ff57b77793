from __future__ import annotations

import subprocess
import zlib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

PARTS = 6
"""Of so many parts of the exhaustive tests the usual run takes one."""

SLOW = (
    "tests/static/test_fixtures.py",
    "tests/static/test_metamorphic.py",
    "tests/static/test_variants.py",
    "tests/static/test_fixes.py",
    "tests/static/test_runtime_fixtures.py",
    "tests/torch/",
    "tests/static/test_permutations.py",
    "tests/static/test_rewrites.py",
    "tests/cli/test_check_with_a_trace.py",
    "tests/runtime/",
)
"""What takes longest, and so begins first when several processes share the tests."""

TOGETHER = dict.fromkeys(SLOW[:5], "tests/static: findings in fixtures")
"""Modules of which one process runs all, because they read the same findings (tests/static/evalfiles.py)."""

# how fast the machine is that runs the tests is not what they are about
settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("exhaustive", settings.get_profile("untimed"), max_examples=1000)
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
    parser.addoption("--exhaustive", action="store_true", help="run all of every test: more than an hour")
    parser.addoption(
        "--part",
        type=int,
        metavar="N",
        help=f"which of {PARTS} parts of the tests marked exhaustive to run; the commit chooses one without it",
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
        help="check all programs of tests/static/test_permutations.py and test_rewrites.py: an hour",
    )
    parser.addoption(
        "--both-hooks",
        action="store_true",
        help="run all programs of fixtures/runtime with CuPy's hooks in Python too, not a tenth of them",
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", f"exhaustive: of many like it; one in {PARTS} is run, another one at another commit"
    )
    if config.option.exhaustive:
        settings.load_profile("exhaustive")
        for name in ("hostile", "every_repair", "every_program", "both_hooks"):
            setattr(config.option, name, True)
    if config.option.part is None:  # a worker is given that of the process that started it
        config.option.part = part_of_commit(config.rootpath)


def part_of_commit(root: Path) -> int:
    """The part that a commit chooses: the same one for everybody, and another one for the next commit."""
    try:
        found = subprocess.run(
            ["git", "rev-parse", "HEAD"], cwd=root, capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return 0  # no checkout
    return int(found.stdout[:8], 16) % PARTS


def pytest_report_header(config: pytest.Config) -> str:
    if config.option.exhaustive:
        return "exhaustive tests: all"
    return f"exhaustive tests: part {config.option.part} of 0 to {PARTS - 1}"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves out most exhaustive tests, but those that are named on the command line; begins with slow modules."""
    named = tuple(argument for argument in config.args if "::" in argument)

    def is_run(item: pytest.Item) -> bool:
        if config.option.exhaustive or item.get_closest_marker("exhaustive") is None:
            return True
        return zlib.crc32(item.nodeid.encode()) % PARTS == config.option.part or (
            bool(named) and item.nodeid.startswith(named)
        )

    left_out = [item for item in items if not is_run(item)]
    if left_out:
        items[:] = [item for item in items if is_run(item)]
        config.hook.pytest_deselected(items=left_out)

    def rank(item: pytest.Item) -> int:
        return next((rank for rank, name in enumerate(SLOW) if item.nodeid.startswith(name)), len(SLOW))

    items.sort(key=rank)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """``--dist loadscope``, with slow modules first, and in one process what shares what it is about."""
    if config.option.dist != "loadscope":
        return None
    from xdist.scheduler import LoadScopeScheduling

    class Scheduling(LoadScopeScheduling):  # type: ignore[misc] # xdist has no types
        def _split_scope(self, nodeid: str) -> str:
            module = nodeid.partition("::")[0]
            return TOGETHER.get(module, module)

    config.option.loadscopereorder = False
    return Scheduling(config, log)
