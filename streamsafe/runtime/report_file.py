"""The file of `--report`: valid JSON at every moment, so that a program that is killed loses nothing it had found."""

from __future__ import annotations

import contextlib
import json
import os
import stat
import tempfile
from collections.abc import Sequence

from streamsafe.order.hazard import Hazard
from streamsafe.runtime.present import as_dict


class ReportError(Exception):
    """The file cannot be written; the message says why."""


class ReportFile:
    """A JSON array of hazards that is written as they are found.

    Each hazard is one write that ends in the closing bracket. :meth:`finish` replaces the file in one step. A path that
    is no plain file (a pipe, a terminal) is only written at the end.

    Args:
        path: where to.

    Raises:
        ReportError: it cannot be written.
    """

    def __init__(self, path: str) -> None:
        self._path = os.path.realpath(path)
        self._count = 0
        try:
            self._file = open(path, "wb", buffering=0)  # noqa: SIM115 - open as long as the program runs
            self._plain = stat.S_ISREG(os.fstat(self._file.fileno()).st_mode)
            if self._plain:
                self._file.write(b"[\n]\n")
        except OSError as error:
            raise ReportError(f"cannot write {path}: {error.strerror}") from error
        self._end = len("[")
        self._pid = os.getpid()

    def add(self, hazard: Hazard) -> None:
        """One more hazard."""
        if not self._plain or os.getpid() != self._pid or self._file.closed:
            return
        text = json.dumps(as_dict(hazard), indent=2).replace("\n", "\n  ")
        entry = f"{',' if self._count else ''}\n  {text}".encode()
        with contextlib.suppress(OSError):  # a full disk must not end the program
            self._file.seek(self._end)
            self._file.write(entry + b"\n]\n")
            self._end += len(entry)
            self._count += 1

    def finish(self, hazards: Sequence[Hazard]) -> None:
        """The last word: all hazards as they are at the end.

        Raises:
            ReportError: it cannot be written.
        """
        if os.getpid() != self._pid or self._file.closed:
            return
        data = (json.dumps([as_dict(hazard) for hazard in hazards], indent=2) + "\n").encode()
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
