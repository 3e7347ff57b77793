"""The file of `--report` and `--output-file`: whole at every moment, so that a program that is killed loses nothing."""

from __future__ import annotations

import contextlib
import json
import os
import stat
import tempfile
from collections.abc import Sequence

from streamsafe.order.hazard import Hazard
from streamsafe.report.formats import MACHINE, render
from streamsafe.report.run_time import as_dict, describe, place_of


def written(hazards: Sequence[Hazard], output_format: str) -> str:
    """Hazards in one of the output formats, without the last line end."""
    if output_format in MACHINE:
        return render(output_format, [as_dict(hazard) for hazard in hazards])
    if output_format == "concise":
        return "\n".join(map(_line, hazards))
    return "\n\n".join(describe(hazard) for hazard in hazards)


def _line(hazard: Hazard) -> str:
    place = place_of(hazard)
    return f"{place}: {hazard.code} {hazard.message}" if place else f"{hazard.code} {hazard.message}"


class ReportError(Exception):
    """The file cannot be written; the message says why."""


class ReportFile:
    """Hazards in one of the output formats, written as they are found.

    In JSON each hazard is one write that ends in the closing bracket; in another format the file is written anew.
    :meth:`finish` replaces the file in one step. A path that is no plain file (a pipe, a terminal) is only written at
    the end.

    Args:
        path: where to.
        output_format: one of `streamsafe.report.formats.FORMATS`.

    Raises:
        ReportError: it cannot be written.
    """

    def __init__(self, path: str, output_format: str = "json") -> None:
        self._path = os.path.realpath(path)
        self._format = output_format
        self._hazards: list[Hazard] = []
        try:
            self._file = open(path, "wb", buffering=0)  # noqa: SIM115 - open as long as the program runs
            self._plain = stat.S_ISREG(os.fstat(self._file.fileno()).st_mode)
            if self._plain:
                self._file.write(b"[\n]\n" if output_format == "json" else self._data([]))
        except OSError as error:
            raise ReportError(f"cannot write {path}: {error.strerror}") from error
        self._end = len("[")
        self._pid = os.getpid()

    def add(self, hazard: Hazard) -> None:
        """One more hazard."""
        if not self._plain or os.getpid() != self._pid or self._file.closed:
            return
        with contextlib.suppress(OSError):  # a full disk must not end the program
            if self._format == "json":
                text = json.dumps(as_dict(hazard), indent=2).replace("\n", "\n  ")
                entry = f"{',' if self._hazards else ''}\n  {text}".encode()
                self._file.seek(self._end)
                self._file.write(entry + b"\n]\n")
                self._end += len(entry)
            else:
                data = self._data([*self._hazards, hazard])
                self._file.seek(0)
                self._file.write(data)
                self._file.truncate()
            self._hazards.append(hazard)

    def _data(self, hazards: Sequence[Hazard]) -> bytes:
        text = written(hazards, self._format)
        return f"{text}\n".encode() if text else b""

    def finish(self, hazards: Sequence[Hazard]) -> None:
        """The last word: all hazards as they are at the end.

        Raises:
            ReportError: it cannot be written.
        """
        if os.getpid() != self._pid or self._file.closed:
            return
        data = self._data(hazards)
        try:
            with self._file:
                if not self._plain:
                    self._file.write(data)
                    return
            _replace(self._path, data)
        except OSError as error:
            raise ReportError(f"cannot write {self._path}: {error.strerror}") from error


def _replace(path: str, data: bytes) -> None:
    """Replaces a file in one step where its folder can be written, else in place."""
    mode = stat.S_IMODE(os.stat(path).st_mode)
    try:
        handle, temporary = tempfile.mkstemp(dir=os.path.dirname(path), prefix=".streamsafe-")
    except OSError:
        with open(path, "wb") as file:
            file.write(data)
        return
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            os.fchmod(file.fileno(), mode)
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
