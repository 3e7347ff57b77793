"""The pytest plugin: every test is a stream program of its own; a hazard fails it with both lines of code."""

from __future__ import annotations

import os
import shlex
from collections import Counter
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from _pytest._code.code import ReprFileLocation, TerminalRepr

from streamsafe.runtime.children import Reports
from streamsafe.runtime.options import asked
from streamsafe.toolchain import compiler

if TYPE_CHECKING:
    from _pytest._io import TerminalWriter

    from streamsafe.order.hazard import Hazard

MARKER = "streamsafe(mode='raise', threads=False, host=True, ignore=()): check this test for stream hazards."
OPT_OUT = "no_streamsafe: do not check this test for stream hazards."
CONFIDENCES = (
    "certain",
    "likely",
    "possible",
)  # as order.hazard.CONFIDENCES; a run without sessions does not load it
NEEDS_REAL = "needs a real GPU: this one is simulated"
REAL = "real_gpu: this test needs a real GPU; it is skipped on a simulated one."

_on = pytest.StashKey[bool]()
_mode = pytest.StashKey[str]()
_simulation = pytest.StashKey[Any]()
_workers = pytest.StashKey[dict[str, Any]]()
_children = pytest.StashKey[Reports]()
_sessions = pytest.StashKey[list[Any]]()
_failed = pytest.StashKey[list[Any]]()
_raised = pytest.StashKey[list[Any]]()
_suppressions = pytest.StashKey[str]()
_fail_on = pytest.StashKey[int]()
_suppressed = pytest.StashKey[Counter[str]]()
_PROPERTY = "streamsafe_hazard"
CAUGHT = (
    "The exception did not reach pytest: it was caught, or raised in another thread. A test that expects a hazard "
    "opens a session of its own: with streamsafe.sanitize() as session: ..."
)


def pytest_addoption(parser: pytest.Parser, pluginmanager: pytest.PytestPluginManager) -> None:
    group = parser.getgroup("streamsafe", "CUDA stream hazards")
    group.addoption(
        "--streamsafe",
        nargs="?",
        const="raise",
        default=None,
        metavar="MODE",
        help="check tests for stream hazards: raise (the default), warn or collect; simulate: without a GPU; "
        "simulate,collect: both",
    )
    for word, metavar, text in (
        ("devices", "N", "how many devices --streamsafe=simulate has [default: 1]"),
        ("memory", "SIZE", "how much memory each of them has, such as 80GiB [default: 8GiB]"),
        ("capability", "X.Y", "their compute capability [default: 8.0]"),
    ):
        group.addoption(f"--streamsafe-{word}", default=None, metavar=metavar, help=text)
    group.addoption(
        "--streamsafe-allow-idle",
        action="store_true",
        help="let a simulated run pass in which tests were skipped and nothing was simulated",
    )
    parser.addini("streamsafe", "check tests for CUDA stream hazards: true, or a mode", default="")
    parser.addini(
        "streamsafe_ignore", "hazards that are not reported (CODE[:FILE[::FUNCTION]])", type="linelist"
    )
    parser.addini("streamsafe_suppressions", "a suppression file, from the root folder", default="")
    parser.addini(
        "streamsafe_fail_on", "the least confidence of a hazard that fails its test", default="likely"
    )
    parser.addini("streamsafe_devices", "how many devices --streamsafe=simulate has", default="")
    _start_early(parser, pluginmanager.get_plugin("pytestconfig"))


def _start_early(parser: pytest.Parser, config: Any) -> None:
    """Puts the simulated device in place while plugins are still being loaded: the next one may import torch."""
    if getattr(config, "known_args_namespace", None) is None:
        return  # pytest.main(plugins=...): the hook below is early enough
    words = [*config.getini("addopts"), *shlex.split(os.environ.get("PYTEST_ADDOPTS", ""))]
    words = _with_values([*words, *config.invocation_params.args])
    known = parser.parse_known_args(words, namespace=type(config.option)(**vars(config.option)))
    _start(config, known)


def _with_values(args: list[str]) -> list[str]:
    """In ``pytest --streamsafe tests/`` what follows is a path: a mode stands after an equals sign."""
    return ["--streamsafe=raise" if arg == "--streamsafe" else arg for arg in args]


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(
    early_config: pytest.Config, parser: pytest.Parser, args: list[str]
) -> None:
    if "--streamsafe" in args:
        args[:] = _with_values(args)
        known = parser.parse_known_args(args)
        early_config.known_args_namespace.file_or_dir = known.file_or_dir
        early_config.known_args_namespace.streamsafe = known.streamsafe
    _start(early_config, early_config.known_args_namespace)


@contextmanager
def _uncaptured(config: pytest.Config) -> Iterator[None]:
    """While something is written that pytest is not to capture; it begins to capture after the options are read."""
    capture = config.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled() if capture is not None else nullcontext():
        yield


def _start(config: pytest.Config, options: Any) -> None:
    """Reads what is asked for, and puts the simulated device in place, once.

    Raises:
        pytest.UsageError: it means nothing, or nothing can be simulated here.
    """
    if _mode in config.stash:
        return
    text, said = options.streamsafe, "--streamsafe"
    if text is None and os.environ.get("STREAMSAFE", "").lower() not in ("", "0"):
        text, said = os.environ["STREAMSAFE"], "STREAMSAFE"
    ini = str(config.getini("streamsafe")).strip()
    if text is None and ini.lower() not in ("", "0", "false", "no", "off"):
        text, said = ini, "the ini option streamsafe"
    try:
        mode, simulate = asked(text or "", said)
    except ValueError as error:
        raise pytest.UsageError(str(error)) from error
    config.stash[_on], config.stash[_mode] = text is not None, mode
    if config.stash[_on]:
        compiler.around_messages = partial(_uncaptured, config)
        config.add_cleanup(partial(setattr, compiler, "around_messages", nullcontext))
    _read_settings(config)
    if not simulate:
        return
    from streamsafe.simulate import install as simulations

    try:
        hardware = _hardware(config, options)
        config.stash[_simulation] = simulations.install(hardware, strict=True)
    except (simulations.SimulationUnavailable, ValueError) as error:
        raise pytest.UsageError(f"{said}={text}: {error}") from error
    before = dict(os.environ)
    os.environ["STREAMSAFE"] = f"simulate,{mode}"  # workers of pytest-xdist, and child processes
    hardware.announce(os.environ)

    config.add_cleanup(partial(_restore, before))


def _read_settings(config: pytest.Config) -> None:
    """What does not fail a test: a suppression file, of pytest's configuration or of the project's, and a confidence.

    Raises:
        pytest.UsageError: there is no such file, or no such confidence.
    """
    asked_for = str(config.getini("streamsafe_fail_on")).strip()
    if asked_for not in CONFIDENCES:
        raise pytest.UsageError(
            f"streamsafe_fail_on is {asked_for!r}: it must be one of {', '.join(CONFIDENCES)}"
        )
    config.stash[_fail_on] = CONFIDENCES.index(asked_for)
    config.stash[_suppressed] = Counter()
    config.stash[_suppressions] = ""
    if not config.stash[_on]:
        return
    from streamsafe.project.settings import ConfigError, Configs
    from streamsafe.runtime.suppressions import SuppressionError, load

    try:
        named = str(config.getini("streamsafe_suppressions")).strip()
        file = (
            str(config.rootpath / named)
            if named
            else Configs().of_directory(str(config.rootpath)).run.suppressions
        )
        config.stash[_suppressed].update({each.source: 0 for each in (load(file) if file else ())})
    except (ConfigError, SuppressionError) as error:
        raise pytest.UsageError(str(error)) from error
    config.stash[_suppressions] = file


def _hardware(config: pytest.Config, options: Any) -> Any:
    """The machine: options first, then the environment, then the ini file, then pyproject.toml."""
    from streamsafe.simulate import hardware

    table = hardware.from_table(config.rootpath / "pyproject.toml")
    found = table.changed({"devices": str(config.getini("streamsafe_devices")).strip() or None})
    found = hardware.from_environment(os.environ, found)
    words = ("devices", "memory", "capability")
    return found.changed({word: getattr(options, f"streamsafe_{word}") for word in words})


def pytest_configure(config: pytest.Config) -> None:
    for marker in (MARKER, OPT_OUT, REAL):
        config.addinivalue_line("markers", marker)
    _start(config, config.option)


def pytest_sessionstart(session: pytest.Session) -> None:
    """The hooks stay in place for the whole run: only what listens changes from test to test."""
    config = session.config
    if (config.stash[_on] or _simulation in config.stash) and not config.pluginmanager.hasplugin("dsession"):
        _watch_children(config)
    if not config.stash[_on]:
        return
    from streamsafe.runtime import opening as lifetime

    try:
        lifetime.hold()
    except RuntimeError as error:
        raise pytest.UsageError(str(error)) from error
    config.add_cleanup(lifetime.release)


def _watch_children(config: pytest.Config) -> None:
    """Processes that tests start are watched, and say here what they find; they have the simulated device, too."""
    from streamsafe.runtime import processes
    from streamsafe.runtime.program import Inherited, watch_children

    reports = config.stash[_children] = Reports()
    ignored = tuple(config.getini("streamsafe_ignore"))
    mode: Any = config.stash[_mode]
    inherited = Inherited(mode, _simulation in config.stash, ignore=ignored)
    before = dict(os.environ)
    os.environ.update(inherited.variables() | reports.variables())
    config.add_cleanup(partial(_restore, before))
    watch_children()
    config.add_cleanup(processes.end)


def _restore(before: dict[str, str]) -> None:
    """Our variables of the environment are as they were."""
    for name in [name for name in os.environ if name.startswith("STREAMSAFE")]:
        if name in before:
            os.environ[name] = before[name]
        else:
            del os.environ[name]


def pytest_itemcollected(item: pytest.Item) -> None:
    if _simulation in item.config.stash and item.get_closest_marker("real_gpu"):
        item.add_marker(pytest.mark.skip(reason=NEEDS_REAL))  # a mark: pytest then names the test's own line


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    item.stash[_sessions] = []
    item.stash[_failed], item.stash[_raised] = [], []
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, object, object]:
    _open(item)
    try:
        return (yield)
    except BaseException:
        _close(item)
        raise


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """A test fails of a hazard that it caught, too, or that was raised in another thread."""
    result = yield
    for _, session in item.stash[_sessions]:
        session.last_due()
        _fail(item, _failing(session, item))
    _fail_of_children(item)
    return result


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, object, object]:
    try:
        result = yield
    except BaseException:
        _close(item)
        raise
    _fail(item, _close(item))
    _fail_of_children(item)
    return result


def _failing(session: Any, item: pytest.Item) -> list[Hazard]:
    """The hazards of which a test fails: all that are likely, or as sure as the settings say.

    A test that opens a session of its own judges what that one finds.
    """
    if session.mode == "warn":
        return []
    item.stash[_raised] += session.raised
    others = [] if session.inner else session.hazards
    return [*session.raised, *(hazard for hazard in others if _fails(hazard.confidence, item.config))]


def _fails(confidence: str, config: pytest.Config) -> bool:
    """Whether a hazard of this confidence fails its test."""
    return CONFIDENCES.index(confidence) <= config.stash[_fail_on]


def _fail(item: pytest.Item, hazards: list[Hazard]) -> None:
    """Raises a hazard of the test that no phase of it has failed of yet; the summary lists the others."""
    from streamsafe.runtime.errors import StreamHazardError

    if hazards and not item.stash[_failed]:
        raise StreamHazardError(hazards[0])


def _fail_of_children(item: pytest.Item) -> None:
    """A test fails of a hazard in a process that it started."""
    reports = item.config.stash.get(_children, None)
    found = list(reports.new()) if reports is not None else []
    item.user_properties.extend((_PROPERTY, hazard) for hazard in found)
    sure = [hazard for hazard in found if _fails(hazard["confidence"], item.config)]
    if sure and item.config.stash[_mode] != "warn" and not item.stash[_failed]:
        pytest.fail(f"in a child process: {sure[0]['text']}", pytrace=False)


def _open(item: pytest.Item) -> None:
    marker = item.get_closest_marker("streamsafe")
    if item.get_closest_marker("no_streamsafe") or not (item.config.stash[_on] or marker):
        return
    from streamsafe.runtime import places
    from streamsafe.runtime.sanitize import sanitize

    places.begin_tests()
    options: dict[str, Any] = {"mode": item.config.stash[_mode]}
    options["suppressions"] = item.config.stash[_suppressions]
    ignored: list[str] = list(item.config.getini("streamsafe_ignore"))
    if marker is not None:
        if marker.args:
            options["mode"] = marker.args[0]
        given = dict(marker.kwargs)
        extra = given.pop("ignore", ())
        ignored += [extra] if isinstance(extra, str) else list(extra)
        options |= given
    try:
        manager = sanitize(**options, ignore=ignored)
        session = manager.__enter__()
        item.stash[_sessions].append((manager, session))
        if session.mode == "raise":
            session.found = session.found or (lambda _: None)  # the test that fails of it shows it in full
    except (TypeError, ValueError) as error:
        raise pytest.UsageError(f"{item.nodeid}: @pytest.mark.streamsafe: {error}") from error


def _close(item: pytest.Item) -> list[Hazard]:
    """Ends the test's session; returns the hazards of which it fails."""
    from streamsafe.report.run_time import portable
    from streamsafe.runtime.errors import StreamHazardError

    failing: list[Hazard] = []
    while item.stash[_sessions]:
        manager, session = item.stash[_sessions].pop()
        with suppress(StreamHazardError):  # it is one of those that were raised
            manager.__exit__(None, None, None)
        item.config.stash[_suppressed].update(session.uses())
        failing += _failing(session, item)
        shown = item.stash[_failed] or failing[:1]
        for hazard in session.hazards:  # one that failed a phase of the test is shown there
            known = any(hazard is each for each in shown)
            item.user_properties.append((_PROPERTY, portable(hazard, shown=known)))
    return failing


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if call.excinfo is not None and report.failed:
        error = call.excinfo.value
        hazard = getattr(error, "hazard", None)
        if hazard is not None and type(error).__name__ == "StreamHazardError":
            caught = not call.excinfo.traceback or call.excinfo.traceback[-1].path == Path(__file__)
            item.stash[_failed].append(hazard)
            caught = caught and any(hazard is each for each in item.stash[_raised])
            report.longrepr = _HazardRepr(hazard, CAUGHT if caught else "")
    return report


class _HazardRepr(TerminalRepr):
    """A hazard as a failure: the block that `check` and `run` show, and the place at the end."""

    def __init__(self, hazard: Hazard, hint: str) -> None:
        from streamsafe.report.run_time import place_of

        self._hazard = hazard
        self._hint = hint
        self._place = place_of(hazard)

    def toterminal(self, tw: TerminalWriter) -> None:
        from streamsafe.report.run_time import describe

        def style(text: str, fg: str = "", bold: bool = False) -> str:
            markup = {name: True for name in (fg, "bold" if bold else "") if name}
            return tw.markup(text, **markup)

        for line in describe(self._hazard, style).splitlines():
            tw.line(line)
        tw.line()
        if self._hint:
            tw.line(self._hint)
        tw.write(self._place, red=True, bold=True)
        tw.line(": StreamHazardError")

    @property
    def reprcrash(self) -> ReprFileLocation:
        """What the short summary shows."""
        path, _, line = self._place.rpartition(":")
        hazard = self._hazard
        message = f"{hazard.code} {hazard.name}: {hazard.message}"
        return ReprFileLocation(path or self._place, int(line) if line.isdigit() else 0, message)


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    found = list(_hazards(terminalreporter.stats.values()))
    if found:
        terminalreporter.section("stream hazards")
        for nodeid, hazard in found:
            latent = " (latent)" if hazard["latent"] else ""
            where = f" {hazard['place']}" if hazard["place"] else ""
            terminalreporter.line(f"{hazard['code']} {hazard['name']}{latent}{where} in {nodeid}")
            terminalreporter.line(f"    {hazard['message']}")
            for line in hazard["text"].splitlines()[1:]:
                terminalreporter.line(line)
    for source, count in sorted(config.stash[_suppressed].items()):
        text = f"suppressed {count}" if count else "is unused: nothing that was found fits it"
        terminalreporter.line(f"streamsafe: {source} {text}")
    simulation = config.stash.get(_simulation, None)
    if simulation is not None:
        terminalreporter.section("simulated CUDA runtime")
        workers = config.stash.get(_workers, None) or {"": _told(config)}
        for worker, told in sorted(workers.items()):
            terminalreporter.line(f"{worker}: {told['summary']}" if worker else told["summary"])
        skipped = _idle(config, terminalreporter)
        if skipped:
            allowed = config.getoption("--streamsafe-allow-idle")
            terminalreporter.line(
                f"nothing was simulated, and {skipped} test{'' if skipped == 1 else 's'} or modules were skipped"
                + (
                    ""
                    if allowed
                    else ": the run fails (--streamsafe-allow-idle lets it pass). `pytest -rs` says why"
                ),
                red=not allowed,
            )


def _told(config: pytest.Config) -> dict[str, Any]:
    """What the simulation of this process says of itself."""
    simulation, children = config.stash[_simulation], config.stash.get(_children, None)
    used = simulation.used() or (children is not None and children.used)
    return {"summary": simulation.summary(), "used": used}


def _idle(config: pytest.Config, terminalreporter: Any) -> int:
    """How many skipped tests a run has in which nothing was simulated; 0 for any other run."""
    workers = config.stash.get(_workers, None) or {"": _told(config)}
    if any(told["used"] for told in workers.values()):
        return 0
    reports = terminalreporter.stats.get("skipped", ())
    return sum(NEEDS_REAL not in str(report.longrepr) for report in reports)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """A worker of pytest-xdist hands on what its simulation did; a run that simulated nothing is no success."""
    config = session.config
    if hasattr(config, "workeroutput"):
        suppressed: Counter[str] = config.stash[_suppressed]
        config.workeroutput[_PROPERTY + "_suppressed"] = dict(suppressed)
    if config.stash.get(_simulation, None) is None:
        return
    if hasattr(config, "workeroutput"):
        config.workeroutput[_PROPERTY] = _told(config)
        return
    terminalreporter = config.pluginmanager.get_plugin("terminalreporter")
    if terminalreporter is None or config.getoption("--streamsafe-allow-idle"):
        return
    idle = session.exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED)
    if idle and _idle(config, terminalreporter):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object) -> None:
    output: dict[str, Any] = getattr(node, "workeroutput", {})
    node.config.stash[_suppressed].update(output.get(_PROPERTY + "_suppressed", {}))
    told = output.get(_PROPERTY)
    if told is not None:
        node.config.stash.setdefault(_workers, {})[node.gateway.id] = told


def _hazards(groups: Iterable[list[Any]]) -> Iterable[tuple[str, dict[str, Any]]]:
    """The hazards that tests found, also those that came from workers."""
    for reports in groups:
        for report in reports:
            if getattr(report, "when", "") == "teardown":
                for name, value in getattr(report, "user_properties", ()):
                    if name == _PROPERTY:
                        yield report.nodeid, value
