"""What child processes find, told to the process that runs the tests or the program.

Each process writes a file of JSON lines into a folder that the environment names, a hazard as soon as it is found: a
child that is killed has said what it found.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from streamsafe.runtime.coverage import Coverage, total
from streamsafe.runtime.options import REPORTS


@dataclass
class Process:
    """A child process, as far as it has told.

    Attributes:
        name: its command.
        coverage: what it has watched; None until it ends.
        unwatched: why it could not be watched; "" where it was.
    """

    name: str
    coverage: Coverage | None = None
    unwatched: str = ""


class Reports:
    """The folder, as the parent reads it.

    Attributes:
        used: whether a simulated device of a child had work.
        processes: the children that have begun, by their file's name.
        own: what this process has watched.
    """

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="streamsafe-")
        self._read: dict[Path, int] = {}
        self.used = False
        self.processes: dict[str, Process] = {}
        self.own: Coverage | None = None

    def variables(self) -> dict[str, str]:
        """What a child needs in its environment to report here."""
        return {REPORTS: self._folder.name}

    def new(self) -> Iterator[dict[str, Any]]:
        """Hazards that have come since it was last asked."""
        for path in sorted(Path(self._folder.name).glob("*.jsonl")):
            with open(path, encoding="utf-8") as file:
                file.seek(self._read.get(path, 0))
                text = file.read()
                whole = text.rfind("\n") + 1  # a line may be half written
                self._read[path] = self._read.get(path, 0) + len(text[:whole].encode())
            for line in text[:whole].splitlines():
                said = json.loads(line)
                if "hazard" in said:
                    yield said["hazard"]
                else:
                    self._hear(path.stem, said)

    def _hear(self, process: str, said: Mapping[str, Any]) -> None:
        self.used |= bool(said.get("used"))
        if "begun" in said:
            self.processes[process] = Process(said["begun"])
        elif process in self.processes and "coverage" in said:
            self.processes[process].coverage = Coverage(**said["coverage"])
        elif process in self.processes and "unwatched" in said:
            self.processes[process].unwatched = said["unwatched"]

    def covered(self) -> Coverage:
        """What all processes together have watched."""
        every = [self.own, *(each.coverage for each in self.processes.values())]
        return total(each for each in every if each is not None)

    def complete(self) -> bool:
        """Whether something was watched, and all processes could be."""
        return self.covered().operations > 0 and not any(each.unwatched for each in self.processes.values())

    def summary(self) -> Iterator[str]:
        """How much was watched, in one line, and a line for each process that could not be."""
        covered = self.covered()
        if covered.operations:
            every = [self.own, *(each.coverage for each in self.processes.values())]
            number = sum(each is not None and each.operations > 0 for each in every)
            yield f"watched {covered}" + (f" in {number} processes" if number > 1 else "")
        for each in self.processes.values():
            if each.unwatched:
                yield f"could not watch the process `{each.name}`: {each.unwatched}"
        broken = [
            each.name for each in self.processes.values() if not each.unwatched and each.coverage is None
        ]
        if broken:
            many = f", and {len(broken) - 1} more," if len(broken) > 1 else ""
            yield f"`{broken[0]}`{many} did not end by itself: what it found until then is shown"


class Reporter:
    """Writes what this process finds where its parent looks.

    Args:
        folder: the parent's.
    """

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def begun(self, name: str) -> None:
        """This process has begun.

        Args:
            name: its command, for the parent's summary.
        """
        self._write({"begun": name})

    def hazard(self, hazard: Mapping[str, Any]) -> None:
        """One more, as ``report.run_time.portable`` makes it; ``data`` is its JSON object."""
        self._write({"hazard": hazard})

    def used(self) -> None:
        """The simulated device had work."""
        self._write({"used": True})

    def watched(self, coverage: Coverage) -> None:
        """The process ends; what it has watched."""
        self._write({"coverage": coverage.as_dict()})

    def unwatched(self, reason: str) -> None:
        """Nothing can be watched in this process."""
        self._write({"unwatched": reason})

    def _write(self, line: Mapping[str, Any]) -> None:
        path = os.path.join(self._folder, f"{os.getpid()}.jsonl")
        try:
            with open(path, "a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")
        except OSError:
            return  # the parent has ended


def reporter(environment: Mapping[str, str]) -> Reporter | None:
    """Where to report, for a process that a watched run has started."""
    folder = environment.get(REPORTS)
    return Reporter(folder) if folder and os.path.isdir(folder) else None
