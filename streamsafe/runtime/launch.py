"""Running a script or a module under the sanitizer, and the session that ``STREAMSAFE=1`` opens."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any, NoReturn, TextIO
from weakref import ref

from streamsafe.order.hazard import CONFIDENCES, Confidence, Hazard
from streamsafe.report.file import ReportError, ReportFile, written
from streamsafe.report.formats import MACHINE
from streamsafe.report.ranks import hazard_of, identity
from streamsafe.report.run_time import place_of, show
from streamsafe.runtime import places as sites
from streamsafe.runtime.children import Reports
from streamsafe.runtime.errors import StreamHazardError
from streamsafe.runtime.program import Inherited, watch_children
from streamsafe.runtime.sanitize import sanitize
from streamsafe.runtime.session import Mode, Session
from streamsafe.runtime.suppressions import SuppressionError, write
from streamsafe.simulate import install as simulations
from streamsafe.simulate.hardware import Hardware
from streamsafe.simulate.install import Simulations

NO_DRIVER = (
    "streamsafe: no CUDA driver here: `streamsafe run --simulate` checks the order of the work without one"
)
_NO_CUDA = (
    "requires CUDA support",
    "Torch not compiled with CUDA enabled",
    "Found no NVIDIA driver",
    "Tried to instantiate dummy base class",
)
"""What PyTorch says without a GPU; the last one up to 2.12, of a stream, an event or a graph."""

INCOMPLETE = 2
"""The exit status when nothing was watched, or a process could not be watched."""

MOST = 20
"""Lines at most about hazards that happened again."""


class LaunchError(Exception):
    """The program cannot be run as asked; the message says why."""


@dataclass(frozen=True)
class Launch:
    """What to run, and how.

    Attributes:
        target: a script's path, or a module's name.
        module: whether ``target`` is a module.
        arguments: the program's own.
        mode: of the session.
        report: where to write the hazards; ``-`` for standard error.
        report_format: one of the output formats.
        trace: where to write the trace.
        simulate: the machine that is simulated; None to run on the real one.
        perturb: delay one side of each hazard that a first run finds.
        threads: one clock for each host thread.
        ignore: what is not reported.
        suppressions: a suppression file; "" for none.
        write_suppressions: where to write a file that suppresses what is found; "" for nowhere.
        fail_on: the least confidence of a hazard that makes the run fail.
        limit: show so many hazards; 0 for all.
        allow_idle: a run in which nothing, or not all, could be watched is no failure.
    """

    target: str
    module: bool = False
    arguments: tuple[str, ...] = ()
    mode: Mode = "raise"
    report: str | None = None
    report_format: str = "json"
    trace: str | None = None
    simulate: Hardware | None = None
    perturb: bool = False
    threads: bool = False
    ignore: tuple[str, ...] = ()
    suppressions: str = ""
    write_suppressions: str = ""
    fail_on: Confidence = "possible"
    limit: int = 0
    allow_idle: bool = False
    delays: frozenset[tuple[str, int]] = field(default=frozenset())


def launch(what: Launch) -> int:
    """Runs a program in this process, shows each hazard when it is found, and returns the exit status.

    Returns:
        the program's own status when it is not 0, else 1 when hazards were found, also when it caught them, else 2 when
        nothing was watched, or a process could not be, else 0.
        Where suppressions are written for what is found, its own.

    Raises:
        LaunchError: no such script or module, no CuPy for the simulated runtime, or a file that cannot be written.
    """
    _check(what)
    delays = _suspects(what) if what.perturb else what.delays
    simulation = _simulate(what.simulate) if what.simulate is not None else None
    reports = _watch_children(what)
    program = _Program(what)
    with contextlib.ExitStack() as files:
        trace = files.enter_context(output(what.trace)) if what.trace else None
        if trace is not None:
            os.register_at_fork(before=partial(_flush, ref(trace)))
        report = _report_file(what) if what.report and what.report != "-" else None
        try:
            manager = sanitize(
                what.mode,
                threads=what.threads,
                ignore=what.ignore,
                suppressions=what.suppressions,
                limit=what.limit,
                trace=trace,
            )
            session = manager.__enter__()
        except (ImportError, RuntimeError, SuppressionError) as error:
            raise LaunchError(str(error)) from error
        verdict = _Verdict(manager, session, report, trace, simulation, reports)
        verdict.fail_on, verdict.allow_idle = what.fail_on, what.allow_idle
        verdict.suppressions = what.write_suppressions
        verdict.format = what.report_format if what.report == "-" else "full"
        with verdict.at_os_exit():
            if delays:
                from streamsafe.runtime.cupy.delay import delay_at

                delay_at(delays)
            try:
                status = program.run()
            except BaseException:  # it could not be run
                verdict.close()
                raise
            if not verdict.here():  # a child that the program forked: the parent has the results
                return status
            verdict.close()
            program.report_error(session)
            return verdict.say(status)


def _watch_children(what: Launch) -> Reports:
    """Processes that the program starts are watched, too, and say here what they find."""
    reports = Reports()
    if what.simulate is not None:
        what.simulate.announce(os.environ)
    inherited = Inherited(what.mode, what.simulate is not None, what.threads, what.ignore, what.suppressions)
    os.environ.update(inherited.variables() | reports.variables())
    watch_children()
    return reports


class _Verdict:
    """What a run has found, and the one place where it is said: at the end of the program, or at ``os._exit``."""

    def __init__(
        self,
        manager: sanitize,
        session: Session,
        report: ReportFile | None,
        trace: TextIO | None,
        simulation: Simulations | None,
        reports: Reports,
    ) -> None:
        self._reports = reports
        self._manager = manager
        self._session = session
        self._report = report
        self._trace = trace
        self._simulation = simulation
        self._pid = os.getpid()
        self._errors = sys.stderr
        self.format = "full"
        self.fail_on: Confidence = "possible"
        self.allow_idle = False
        self.suppressions = ""
        self._shown: list[tuple[Hazard, str]] = []
        session.found = self._found
        session.spares_threads = True

    def here(self) -> bool:
        """Whether this is the process that was launched, not one that it forked."""
        return os.getpid() == self._pid

    def _found(self, hazard: Hazard) -> None:
        """Shows a hazard at once: whatever ends the program, it has been said."""
        if self.here():
            self._shown.append((hazard, hazard.code))
            if self.format == "full":
                self._print(lambda: show(hazard, self._errors))
            elif self.format == "concise":
                self._print(lambda: print(written([hazard], self.format), file=self._errors))
            if self._report is not None:
                self._report.add(hazard)

    def _print(self, write: Callable[[], None]) -> None:
        with contextlib.suppress(OSError, ValueError):  # standard error is closed
            write()

    def close(self) -> None:
        """Ends the session: what is latent is found now."""
        # one hazard could not be raised where it was found: it is shown; so is what the sanitizer failed of
        with contextlib.suppress(StreamHazardError, RuntimeError):
            self._manager.__exit__(None, None, None)
        if self._trace is not None:
            self._trace.flush()

    def say(self, status: int) -> int:
        """Prints the summary, completes the report, and returns the exit status."""
        session = self._session
        of_children = self._of_children()
        hazards = [*session.hazards, *(hazard for hazard, _ in of_children)]
        if self.format in MACHINE:  # such a report is one whole
            text = written(hazards, self.format)
            self._print(lambda: print(text, end="\n" if text else "", file=self._errors))
        for line in self._since():
            self._print(lambda line=line: print(f"streamsafe: {line}", file=self._errors))  # type: ignore[misc]
        for _, text in of_children:
            self._print(lambda text=text: print(f"{text}\n", file=self._errors))  # type: ignore[misc]
        self._reports.own = session.coverage
        session.coverage = self._reports.covered()  # a program whose children work is not idle
        self._print(lambda: print(session.summary(len(of_children)), file=self._errors))
        for line in self._reports.summary():
            self._print(lambda line=line: print(f"streamsafe: {line}", file=self._errors))  # type: ignore[misc]
        if self._simulation is not None:
            summary = self._simulation.summary()
            self._print(lambda: print(f"streamsafe: {summary}", file=self._errors))
        if self._report is not None:
            try:
                self._report.finish(hazards)
            except ReportError as error:
                raise LaunchError(str(error)) from error
        if self.suppressions:
            self._write_suppressions(hazards)
            return status
        least = CONFIDENCES.index(self.fail_on)
        failing = any(CONFIDENCES.index(hazard.confidence) <= least for hazard in hazards)
        if status or failing:
            return status or 1
        whole = self.allow_idle or self._reports.complete()
        return 0 if whole and not session.fault else INCOMPLETE

    def _of_children(self) -> list[tuple[Hazard, str]]:
        """What child processes have told of, each once, with the text that says so."""
        told: dict[object, list[dict[str, Any]]] = {}
        for found in self._reports.new():
            told.setdefault(identity(found["data"]), []).append(found)
        many = {key: f"{len(each)} child processes" for key, each in told.items() if len(each) > 1}
        return [
            (hazard_of(each[0]["data"]), f"in {many.get(key, 'a child process')}: {each[0]['text']}")
            for key, each in told.items()
        ]

    def _write_suppressions(self, hazards: Sequence[Hazard]) -> None:
        try:
            count = write(self.suppressions, hazards)
        except SuppressionError as error:
            raise LaunchError(str(error)) from error
        plural = "" if count == 1 else "s"
        self._print(
            lambda: print(
                f"streamsafe: wrote {count} suppression{plural} to {self.suppressions}", file=self._errors
            )
        )

    def _since(self) -> Iterator[str]:
        """What was not known yet when a hazard was shown."""
        repeated = [hazard for hazard, _ in self._shown if hazard.count > 1]
        for hazard in repeated[:MOST]:
            yield f"{hazard.code} at {place_of(hazard)} was seen {hazard.count} times"
        if len(repeated) > MOST:
            yield f"{len(repeated) - MOST} more were seen several times"
        for hazard, code in self._shown:
            if hazard.code != code:
                yield f"{code} at {place_of(hazard)} is {hazard.code}: the wait that is shown was for other work"

    @contextlib.contextmanager
    def at_os_exit(self) -> Iterator[None]:
        """While the program runs, ``os._exit`` says what was found before it ends the process."""
        original = os._exit

        def _exit(status: int) -> NoReturn:
            if self.here():
                with contextlib.suppress(LaunchError):
                    self.close()
                    status = self.say(status)
            original(status)

        os._exit = _exit
        try:
            yield
        finally:
            os._exit = original


def _flush(file: ref[TextIO]) -> None:
    """Before a fork: what is in the buffer would be written twice."""
    trace = file()
    if trace is not None and not trace.closed:
        trace.flush()


def _report_file(what: Launch) -> ReportFile:
    try:
        return ReportFile(what.report or "", what.report_format)
    except ReportError as error:
        raise LaunchError(str(error)) from error


def _check(what: Launch) -> None:
    if what.module:
        return
    path = Path(what.target)
    if not path.exists():
        raise LaunchError(f"there is no file {what.target}")
    if path.is_dir() and not (path / "__main__.py").exists():
        raise LaunchError(f"{what.target} is a directory without a __main__.py")


@contextlib.contextmanager
def output(path: str) -> Iterator[TextIO]:
    """A file to write to.

    Raises:
        LaunchError: it cannot be written.
    """
    try:
        file = open(path, "w", encoding="utf-8")  # noqa: SIM115 - handed on to the caller's with
    except OSError as error:
        raise LaunchError(f"cannot write {path}: {error.strerror}") from error
    with file:
        yield file


def _simulate(machine: Hardware) -> Simulations:
    try:
        return simulations.install(machine)
    except simulations.SimulationUnavailable as error:
        raise LaunchError(str(error)) from error


class _Program:
    """A script or module, run as Python would. What it leaves alive stays alive: only the program frees memory."""

    def __init__(self, what: Launch) -> None:
        self._what = what
        self.module = ModuleType("__main__")
        self.error: BaseException | None = None

    def run(self) -> int:
        """Runs it, and returns its exit status."""
        what = self._what
        sys.path.insert(0, os.getcwd() if what.module else str(Path(what.target).resolve().parent))
        try:
            code = self._module_code() if what.module else self._script_code()
        except (OSError, ImportError, SyntaxError, ValueError) as error:
            raise LaunchError(f"cannot run {what.target}: {error}") from error
        sys.argv[:] = (
            [self.module.__file__ or what.target, *what.arguments]
            if what.module
            else [what.target, *what.arguments]
        )
        sys.modules["__main__"] = self.module
        try:
            sites.begin_program()
            exec(code, vars(self.module))
        except SystemExit as exit_:
            self.error = exit_
            return _status(exit_.code)
        except KeyboardInterrupt as interrupt:
            self.error = interrupt
            return 130
        except BaseException as error:
            self.error = error
            return 1
        return 0

    def _script_code(self) -> CodeType:
        path = Path(self._what.target)
        if path.is_dir():
            path = path / "__main__.py"
        self.module.__file__ = str(path)
        return compile(path.read_bytes(), str(path), "exec")

    def _module_code(self) -> CodeType:
        name = self._what.target
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.submodule_search_locations is not None:
            name = f"{name}.__main__"
            spec = importlib.util.find_spec(name)
        if spec is None or spec.loader is None:
            raise ImportError(f"there is no module {name}")
        code = spec.loader.get_code(name)  # type: ignore[attr-defined]
        if not isinstance(code, CodeType):
            raise ImportError(f"{name} has no code")
        self.module.__file__ = spec.origin
        self.module.__spec__ = spec
        self.module.__package__ = spec.parent
        self.module.__loader__ = spec.loader
        return code

    def report_error(self, session: Session) -> None:
        """Prints what ended it, as Python would; where that is a hazard, which one."""
        error = self.error
        if isinstance(error, StreamHazardError):
            if not any(error.hazard is hazard for hazard in session.hazards):
                show(error.hazard, sys.stderr)
            place = place_of(error.hazard)
            print(f"streamsafe: the program stopped at {error.hazard.code}, {place}", file=sys.stderr)
        elif error is not None and not isinstance(error, (SystemExit, KeyboardInterrupt)):
            trace = error.__traceback__
            while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
                trace = trace.tb_next
            traceback.print_exception(type(error), error, trace)
            if _lacks_cuda(error) and not self._what.simulate:
                print(NO_DRIVER, file=sys.stderr)


def _lacks_cuda(error: BaseException) -> bool:
    """Whether a library of the program has failed because there is no CUDA driver, or no CUDA build of it."""
    text = str(error)
    if type(error).__name__ == "CUDARuntimeError":  # CuPy's
        return "Driver" in text
    return isinstance(error, (RuntimeError, AssertionError)) and any(each in text for each in _NO_CUDA)


def _status(code: object) -> int:
    if code is None:
        return 0
    if isinstance(code, int):
        return code & 0xFF or (1 if code else 0)
    print(code, file=sys.stderr)
    return 1


def _options(machine: Hardware) -> list[str]:
    """What asks for a machine on the command line."""
    major, minor = machine.capability
    words = ["--devices", str(machine.devices), "--memory", str(machine.memory)]
    return ["--simulate", *words, "--capability", f"{major}.{minor}"]


def _suspects(what: Launch) -> frozenset[tuple[str, int]]:
    """The lines of the first accesses that a run without delays reports: the sides to be delayed."""
    with tempfile.TemporaryDirectory() as folder:
        report = os.path.join(folder, "hazards.json")
        command = [sys.executable, "-m", "streamsafe", "run", "--mode", "collect", "--report", report]
        command += _options(what.simulate) if what.simulate is not None else []
        command += ["--threads"] if what.threads else []
        command += [text for entry in what.ignore for text in ("--ignore", entry)]
        command += ["-m", what.target] if what.module else ["--", what.target]
        subprocess.run(
            [*command, *what.arguments], check=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            hazards = json.loads(Path(report).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise LaunchError("the first run, which looks for what to delay, did not end") from error
    places = [
        hazard["first"]["stack"][0] for hazard in hazards if hazard["first"] and hazard["first"]["stack"]
    ]
    return frozenset((place["filename"], place["line"]) for place in places)
