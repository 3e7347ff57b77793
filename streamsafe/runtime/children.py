"""What child processes of a simulated run find, told to the process that runs the tests or the program.

Each process writes a file of JSON lines into a folder that the environment names, a hazard as soon as it is found: a
child that is killed has said what it found.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

REPORTS = "STREAMSAFE_REPORTS"
"""The variable that names the folder."""


class Reports:
    """The folder, as the parent reads it."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="streamsafe-")
        self._read: dict[Path, int] = {}
        self.used = False

    def variables(self) -> dict[str, str]:
        """What a child needs in its environment to report here."""
        return {REPORTS: self._folder.name}

    def new(self) -> Iterator[dict[str, Any]]:
        """Hazards that have come since it was last asked."""
        for path in sorted(Path(self._folder.name).glob("*.jsonl")):
            with open(path, encoding="utf-8") as file:
                file.seek(self._read.get(path, 0))
                text = file.read()
                self._read[path] = file.tell()
            for line in text.splitlines():
                said = json.loads(line)
                self.used |= bool(said.get("used"))
                if "hazard" in said:
                    yield said["hazard"]


class Reporter:
    """Writes what this process finds where its parent looks.

    Args:
        folder: the parent's.
    """

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def hazard(self, hazard: Mapping[str, Any]) -> None:
        """One more, as ``report.run_time.portable`` makes it."""
        self._write({"hazard": hazard})

    def used(self) -> None:
        """The device had work."""
        self._write({"used": True})

    def _write(self, line: Mapping[str, Any]) -> None:
        path = os.path.join(self._folder, f"{os.getpid()}.jsonl")
        try:
            with open(path, "a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")
        except OSError:
            return  # the parent has ended


def reporter(environment: Mapping[str, str]) -> Reporter | None:
    """Where to report, for a process that a simulated run has started."""
    folder = environment.get(REPORTS)
    return Reporter(folder) if folder and os.path.isdir(folder) else None
