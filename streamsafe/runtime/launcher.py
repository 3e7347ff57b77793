"""Running a script or a module under the sanitizer, and the session that ``STREAMSAFE=1`` opens."""

from __future__ import annotations

import atexit
import contextlib
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, ModuleType
from typing import TYPE_CHECKING, TextIO

from streamsafe.order.hazard import Hazard
from streamsafe.runtime.present import as_dict, show
from streamsafe.runtime.session import MODES, Mode, Session, StreamHazardError, sanitize

if TYPE_CHECKING:
    from streamsafe.runtime.simulate import Simulation


NO_DRIVER = (
    "streamsafe: no CUDA driver here: `streamsafe run --simulate` checks the order of the work without one"
)


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
        report: where to write the hazards as JSON.
        trace: where to write the trace.
        simulate: how many devices the simulated CUDA runtime has; 0 to run on the real one.
        perturb: delay one side of each hazard that a first run finds.
        threads: one clock for each host thread.
        ignore: what is not reported.
    """

    target: str
    module: bool = False
    arguments: tuple[str, ...] = ()
    mode: Mode = "raise"
    report: str | None = None
    trace: str | None = None
    simulate: int = 0
    perturb: bool = False
    threads: bool = False
    ignore: tuple[str, ...] = ()
    delays: frozenset[tuple[str, int]] = field(default=frozenset())


def launch(what: Launch) -> int:
    """Runs a program in this process, writes what was found, and returns the exit status.

    Returns:
        the program's own status when it is not 0, else 1 when hazards were found, else 0.

    Raises:
        LaunchError: no such script or module, no CuPy for the simulated runtime, or a file that cannot be written.
    """
    _check(what)
    delays = _suspects(what) if what.perturb else what.delays
    simulation = _simulate(what.simulate) if what.simulate else None
    session: Session | None = None
    program = _Program(what)
    status = 0
    with contextlib.ExitStack() as files:
        trace = files.enter_context(output(what.trace)) if what.trace else None
        report = files.enter_context(output(what.report)) if what.report else None
        manager = sanitize(what.mode, threads=what.threads, ignore=what.ignore, trace=trace)
        try:
            with manager as session:
                if delays:
                    from streamsafe.runtime.cupy.perturb import delay_at

                    delay_at(delays)
                status = program.run()
        except StreamHazardError as error:  # one that could not be raised where it was found
            program.error = program.error or error
            status = status or 1
        except ImportError as error:
            if session is None:
                raise LaunchError(str(error)) from error
            raise
        except RuntimeError as error:
            if session is None:
                raise LaunchError(str(error)) from error
            raise
        assert session is not None
        program.report_error()
        _finish(session)
        if report is not None:
            write_report(session.hazards, report)
    if simulation is not None:
        print(f"streamsafe: {simulation.summary()}", file=sys.stderr)
    return status or (1 if session.hazards else 0)


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


def _simulate(devices: int) -> Simulation:
    try:
        from streamsafe.runtime import simulate
    except ImportError as error:
        raise LaunchError(str(error)) from error

    try:
        return simulate.install(devices)
    except simulate.SimulationUnavailable as error:
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

    def report_error(self) -> None:
        """Prints what ended it, as Python would; a hazard in its own words."""
        error = self.error
        if isinstance(error, StreamHazardError):
            show(error.hazard, sys.stderr)
        elif error is not None and not isinstance(error, (SystemExit, KeyboardInterrupt)):
            trace = error.__traceback__
            while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
                trace = trace.tb_next
            traceback.print_exception(type(error), error, trace)
            if (
                type(error).__name__ == "CUDARuntimeError"
                and "Driver" in str(error)
                and not self._what.simulate
            ):
                print(NO_DRIVER, file=sys.stderr)


def _status(code: object) -> int:
    if code is None:
        return 0
    if isinstance(code, int):
        return code & 0xFF or (1 if code else 0)
    print(code, file=sys.stderr)
    return 1


def _finish(session: Session) -> None:
    for hazard in session.hazards:
        if session.mode == "collect" or hazard.confidence != "certain":
            show(hazard, sys.stderr)
    print(session.summary(), file=sys.stderr)


def write_report(hazards: Sequence[Hazard], file: TextIO) -> None:
    """Writes hazards as a JSON array."""
    json.dump([as_dict(hazard) for hazard in hazards], file, indent=2)
    file.write("\n")


def _suspects(what: Launch) -> frozenset[tuple[str, int]]:
    """The lines of the first accesses that a run without delays reports: the sides to be delayed."""
    with tempfile.TemporaryDirectory() as folder:
        report = os.path.join(folder, "hazards.json")
        command = [sys.executable, "-m", "streamsafe", "run", "--mode", "collect", "--report", report]
        command += ["--simulate", "--devices", str(what.simulate)] if what.simulate else []
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


def from_variable(value: str) -> Mode:
    """The mode that the variable ``STREAMSAFE`` names; ``raise`` where it only says yes, or nothing.

    Raises:
        ValueError: another value.
    """
    if value.lower() in ("", "0", "1", "true"):
        return "raise"
    for mode in MODES:
        if mode == value.lower():
            return mode
    raise ValueError(f"STREAMSAFE is {value!r}: it must be 1, raise, warn or collect")


def from_environment(value: str) -> None:
    """``STREAMSAFE=1`` (or ``raise``, ``warn``, ``collect``): one session until the interpreter ends.

    Raises:
        ValueError: another value.
    """
    manager = sanitize(from_variable(value))
    session = manager.__enter__()

    def close() -> None:
        manager.__exit__(None, None, None)

    def finish() -> None:
        try:
            close()
        except StreamHazardError as error:
            show(error.hazard, sys.stderr)
        if session.hazards:
            print(session.summary(), file=sys.stderr)

    atexit.register(finish)
