"""The pytest plugin: every test is a stream program of its own; a hazard fails it with both lines of code."""

from __future__ import annotations

import os
from collections.abc import Generator, Iterable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from _pytest._code.code import ReprFileLocation, TerminalRepr

if TYPE_CHECKING:
    from _pytest._io import TerminalWriter

    from streamsafe.order.hazard import Hazard

MODES = ("raise", "warn", "collect", "simulate")
MARKER = "streamsafe(mode='raise', threads=False, host=True, ignore=()): check this test for stream hazards."
OPT_OUT = "no_streamsafe: do not check this test for stream hazards."

_on = pytest.StashKey[bool]()
_mode = pytest.StashKey[str]()
_simulation = pytest.StashKey[Any]()
_workers = pytest.StashKey[dict[str, str]]()
_sessions = pytest.StashKey[list[Any]]()
_failed = pytest.StashKey[list[Any]]()
_PROPERTY = "streamsafe_hazard"
CAUGHT = (
    "The exception did not reach pytest: it was caught, or raised in another thread. A test that expects a hazard "
    "opens a session of its own: with streamsafe.sanitize() as session: ..."
)


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("streamsafe", "CUDA stream hazards")
    group.addoption(
        "--streamsafe",
        nargs="?",
        const="raise",
        default=None,
        metavar="MODE",
        help="check tests for stream hazards: raise (the default), warn or collect; simulate: without a GPU",
    )
    group.addoption(
        "--streamsafe-devices",
        type=int,
        default=None,
        metavar="N",
        help="how many devices --streamsafe=simulate has (the default is that of the ini option, or 1)",
    )
    parser.addini("streamsafe", "check tests for CUDA stream hazards", type="bool", default=False)
    parser.addini(
        "streamsafe_ignore", "hazards that are not reported (CODE[:FILE[::FUNCTION]])", type="linelist"
    )
    parser.addini("streamsafe_devices", "how many devices --streamsafe=simulate has", default="1")


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(
    early_config: pytest.Config, parser: pytest.Parser, args: list[str]
) -> None:
    """In ``pytest --streamsafe tests/`` what follows is a path: a mode stands after an equals sign."""
    if "--streamsafe" in args:
        args[:] = ["--streamsafe=raise" if arg == "--streamsafe" else arg for arg in args]
        paths = parser.parse_known_args(args).file_or_dir
        early_config.known_args_namespace.file_or_dir = paths


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", MARKER)
    config.addinivalue_line("markers", OPT_OUT)
    option, said = config.getoption("--streamsafe"), "--streamsafe"
    variable = os.environ.get("STREAMSAFE", "").lower()
    if option is None and variable not in ("", "0"):
        option, said = "raise" if variable in ("1", "true") else variable, "STREAMSAFE"
    if option is not None and option not in MODES:
        raise pytest.UsageError(f"{said} is {option!r}: it must be one of {', '.join(MODES)}")
    config.stash[_on] = option is not None or bool(config.getini("streamsafe"))
    config.stash[_mode] = "raise" if option in (None, "simulate") else option
    if option == "simulate":
        from streamsafe.simulate import install as simulations

        try:
            config.stash[_simulation] = simulations.install(_devices(config))
        except (simulations.SimulationUnavailable, ValueError) as error:
            raise pytest.UsageError(f"--streamsafe=simulate: {error}") from error


def _devices(config: pytest.Config) -> int:
    asked: int | None = config.getoption("--streamsafe-devices")
    if asked is not None:
        return asked
    text = str(config.getini("streamsafe_devices")).strip()
    if not text.isdecimal():
        raise pytest.UsageError(f"streamsafe_devices is {text!r}: it must be a number")
    return int(text)


def pytest_sessionstart(session: pytest.Session) -> None:
    """The hooks stay in place for the whole run: only what listens changes from test to test."""
    config = session.config
    if not config.stash[_on]:
        return
    from streamsafe.runtime import opening as lifetime

    try:
        lifetime.hold()
    except RuntimeError as error:
        raise pytest.UsageError(str(error)) from error
    config.add_cleanup(lifetime.release)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    item.stash[_sessions] = []
    item.stash[_failed] = []
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
        _fail(item, session.raised)
    return result


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, object, object]:
    try:
        result = yield
    except BaseException:
        _close(item)
        raise
    _fail(item, _close(item))
    return result


def _fail(item: pytest.Item, raised: list[Hazard]) -> None:
    """Raises a hazard of the test that no phase of it has failed of yet; the summary lists the others."""
    from streamsafe.runtime.session import StreamHazardError

    if raised and not item.stash[_failed]:
        raise StreamHazardError(raised[0])


def _open(item: pytest.Item) -> None:
    marker = item.get_closest_marker("streamsafe")
    if item.get_closest_marker("no_streamsafe") or not (item.config.stash[_on] or marker):
        return
    from streamsafe.runtime.session import sanitize

    options: dict[str, Any] = {"mode": item.config.stash[_mode]}
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
        item.stash[_sessions].append((manager, manager.__enter__()))
    except (TypeError, ValueError) as error:
        raise pytest.UsageError(f"{item.nodeid}: @pytest.mark.streamsafe: {error}") from error


def _close(item: pytest.Item) -> list[Hazard]:
    """Ends the test's session; returns the hazards that it raised, or was to raise."""
    from streamsafe.runtime.session import StreamHazardError

    raised: list[Hazard] = []
    while item.stash[_sessions]:
        manager, session = item.stash[_sessions].pop()
        with suppress(StreamHazardError):  # it is one of those that were raised
            manager.__exit__(None, None, None)
        raised += session.raised
        shown = item.stash[_failed] or raised[:1]
        for hazard in session.hazards:
            known = any(hazard is each for each in shown)
            item.user_properties.append((_PROPERTY, _portable(hazard, known)))
    return raised


def _portable(hazard: Hazard, failed: bool) -> dict[str, Any]:
    """A hazard as data for the summary: one that failed a phase of the test is shown there."""
    from streamsafe.report.run_time import describe, place_of

    known = {"code": hazard.code, "name": hazard.name, "message": hazard.message, "latent": hazard.latent}
    return {**known, "place": place_of(hazard), "text": "" if failed else describe(hazard)}


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
    simulation = config.stash.get(_simulation, None)
    if simulation is not None:
        terminalreporter.section("simulated CUDA runtime")
        summaries = config.stash.get(_workers, None) or {"": str(simulation.summary())}
        for worker, summary in sorted(summaries.items()):
            terminalreporter.line(f"{worker}: {summary}" if worker else summary)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """A worker of pytest-xdist hands on what its simulation counted."""
    simulation = session.config.stash.get(_simulation, None)
    if simulation is not None and hasattr(session.config, "workeroutput"):
        session.config.workeroutput[_PROPERTY] = str(simulation.summary())


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object) -> None:
    summary = getattr(node, "workeroutput", {}).get(_PROPERTY)
    if summary is not None:
        node.config.stash.setdefault(_workers, {})[node.gateway.id] = summary


def _hazards(groups: Iterable[list[Any]]) -> Iterable[tuple[str, dict[str, Any]]]:
    """The hazards that tests found, also those that came from workers."""
    for reports in groups:
        for report in reports:
            if getattr(report, "when", "") == "teardown":
                for name, value in getattr(report, "user_properties", ()):
                    if name == _PROPERTY:
                        yield report.nodeid, value
