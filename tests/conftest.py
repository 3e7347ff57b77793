from __future__ import annotations

import zlib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers
from hypothesis.internal.constants_ast import Constants

SHORT = (
    "tests/order",
    "tests/rules/test_fixes.py",
    "tests/rules/test_rules.py",
    "tests/rules/test_third_party.py::test_found",
    "tests/apis",
    "tests/native/test_core.py::test_random_programs[12-",
    "tests/check/test_graphs_in_small_programs.py",
    "tests/check/test_python_in_small_programs.py",
    "tests/check/test_waits_in_small_programs.py",
    "tests/check/test_callers.py",
    "tests/check/test_idioms.py",
    "tests/check/test_lowering.py",
    "tests/check/test_paths.py",
    "tests/check/test_projects.py",
    "tests/check/test_reports_of_paths.py",
    "tests/check/test_rounds_threads_graphs.py",
    "tests/check/test_some_fixtures.py",
    "tests/cli/test_baseline.py",
    "tests/cli/test_check.py",
    "tests/cli/test_check_with_a_trace.py::test_the_same_program",
    "tests/cli/test_config.py",
    "tests/cli/test_discovery.py",
    "tests/cli/test_fix.py",
    "tests/cli/test_formats.py",
    "tests/cli/test_prefilter.py",
    "tests/cli/test_report.py",
    *(
        f"tests/cli/test_report_merge.py::test_{each}"
        for each in ("each_hazard", "each_format", "what_", "no_")
    ),
    "tests/cli/test_settings.py",
    "tests/cli/test_suppress.py",
    "tests/cli/test_terminal.py",
    "tests/runtime/test_commands.py::test_report_trace_verify_and_timeline",
    "tests/runtime/test_fingerprints.py",
    "tests/runtime/test_frontend.py",
    "tests/runtime/test_host.py",
    "tests/runtime/test_details.py",
    "tests/runtime/test_library_calls.py",
    "tests/runtime/test_signatures.py",
    "tests/runtime/test_monitor.py",
    "tests/runtime/test_places.py",
    "tests/runtime/test_session.py",
    *(
        f"tests/runtime/test_traces.py::test_{each}"
        for each in ("a", "both", "lanes", "suppressions", "the", "what")
    ),
    "tests/server/test_server.py::test_a_session",
    "tests/simulate/test_capture.py",
    "tests/simulate/test_kernels.py",
    "tests/simulate/test_libraries.py",
    "tests/simulate/test_memory.py",
    "tests/simulate/test_streams.py",
    "tests/simulate/test_values.py",
    "tests/test_layout.py",
    "tests/toolchain",
)
"""Folders, files and tests that plain ``pytest`` runs: a minute at the most."""

SAMPLED = (
    "tests/check/test_cache.py",
    "tests/runtime/test_fixtures.py",
    "tests/runtime/test_indexing.py",
    "tests/runtime/test_interception.py",
    "tests/runtime/test_unchanged.py",
)
"""Files of which plain ``pytest`` runs one test in ``SHARE``."""

SHARE = 10
"""Of tests marked exhaustive one in so many is run without ``--all``, always the same ones."""

PROCESSES = 2
"""In how many processes plain ``pytest`` runs its tests, where pytest-xdist is installed."""

_short = pytest.StashKey[bool]()

SLOW = (
    "tests/native/",
    "tests/check/test_fixtures.py",
    "tests/check/test_metamorphic.py",
    "tests/check/test_variants.py",
    "tests/check/test_fixes.py",
    "tests/check/test_runtime_fixtures.py",
    "tests/torch/",
    "tests/check/test_permutations.py",
    "tests/check/test_rewrites.py",
    "tests/cli/test_check_with_a_trace.py",
    "tests/check/test_some_fixtures.py",
    "tests/rules/test_fixes.py",
    "tests/rules/test_rules.py",
    "tests/runtime/",
    "tests/apis/",
)
"""What takes longest, and so begins first when several processes share the tests: before all others what builds the
native core, for which the tests of the runtime wait."""

TOGETHER = dict.fromkeys(SLOW[1:6], "tests/check: findings in fixtures")
"""Modules of which one process runs all, because they read the same findings (tests/check/evalfiles.py)."""

# what is drawn does not depend on the constants in the source, for which all of it is read in each process
providers._get_local_constants = Constants

# how fast the machine is that runs the tests is not what they are about
settings.register_profile(
    "few", deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=25, derandomize=True
)
settings.register_profile(
    "all", deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=200
)
settings.load_profile("few")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--all", action="store_true", help="run every test: a quarter of an hour on two cores")
    parser.addoption("--short", action="store_true", help="of what is named, what plain `pytest` runs")
    parser.addoption(
        "--gpu", action="store_true", help="run the runtime tests on a real GPU, not on the simulated one"
    )
    parser.addoption(
        "--release",
        action="store_true",
        help="build, install and use what is released: two minutes, and a network",
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", f"exhaustive: of many like it; one in {SHARE} is run without --all")
    given = getattr(config, "workerinput", None)
    if given is None:
        config.stash[_short] = _is_short(config)
    else:
        config.stash[_short] = given["short"]
    if config.option.all:
        settings.load_profile("all")


def _is_short(config: pytest.Config) -> bool:
    """Whether neither ``--all`` nor, without ``--short``, a file, a folder or a test is named."""
    named = config.args_source is not pytest.Config.ArgsSource.TESTPATHS and not config.option.short
    return not (config.option.all or named)


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> None:
    """Spreads the short run over two processes, before pytest-xdist reads how many are asked for."""
    option = config.option
    if getattr(option, "numprocesses", 0) is None and _is_short(config):
        if not (option.usepdb or option.collectonly or hasattr(config, "workerinput")):
            option.numprocesses, option.dist = PROCESSES, "loadscope"


def _torch_code_is_built() -> bool:
    from streamsafe.toolchain.compiler import BuildError, kept
    from streamsafe.toolchain.torch import libraries, target
    from streamsafe.toolchain.torch_installed import TorchUnavailable, installed

    try:
        torch = installed()
        return all(kept(target(library, torch)) for library in libraries(torch))
    except (BuildError, TorchUnavailable):
        return False


def _skip_what_builds(items: list[pytest.Item]) -> None:
    """The short run does not wait minutes for a compiler."""
    watched = [item for item in items if "torch" in getattr(item, "fixturenames", ())]
    if watched and not _torch_code_is_built():
        reason = "the native code for PyTorch is not built: `streamsafe build-torch` builds it in two minutes"
        for item in watched:
            item.add_marker(pytest.mark.skip(reason=reason))


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """A worker of pytest-xdist is told what the process that starts it was asked for."""
    node.workerinput["short"] = node.config.stash[_short]


def pytest_report_header(config: pytest.Config) -> str:
    if config.option.all:
        return "all tests: about a quarter of an hour on two cores (-n 2 --dist loadscope)"
    if config.stash[_short]:
        return "the short run, about a minute on two cores; `pytest FOLDER` runs a folder, `pytest --all` everything"
    return f"of tests marked exhaustive, one in {SHARE}; all of them with --all"


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Plain ``pytest`` collects what it runs: to import all tests takes longer than a minute."""
    if not config.stash[_short] or not collection_path.is_relative_to(config.rootpath / "tests"):
        return None
    name = collection_path.relative_to(config.rootpath).as_posix()
    paths = {each.partition("::")[0] for each in (*SHORT, *SAMPLED)}
    leads_to = name == "tests" or any(each.startswith(f"{name}/") for each in paths)
    return None if leads_to or any(f"{name}/".startswith(f"{each}/") for each in paths) else True


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves out most exhaustive tests, but those that are named on the command line; begins with slow modules."""
    named = tuple(argument for argument in config.args if "::" in argument)

    def is_run(item: pytest.Item) -> bool:
        drawn = zlib.crc32(item.nodeid.encode()) % SHARE == 0
        if config.stash[_short] and not item.nodeid.startswith(SHORT):
            return drawn and item.nodeid.startswith(SAMPLED)
        if config.option.all or item.get_closest_marker("exhaustive") is None:
            return True
        return drawn or (bool(named) and item.nodeid.startswith(named))

    left_out = [item for item in items if not is_run(item)]
    if left_out:
        items[:] = [item for item in items if is_run(item)]
        config.hook.pytest_deselected(items=left_out)

    if config.stash[_short]:
        _skip_what_builds(items)

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
