"""A finding as every machine-readable format needs it, from its JSON object.

The JSON object of a static finding and that of a hazard at run time share their keys, so a format that is a function of
records serves both.
"""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from streamsafe.findings.edits import Edit, Fix
from streamsafe.findings.verdict import MARKS
from streamsafe.order.wording import shown


@dataclass(frozen=True, slots=True)
class Place:
    """A place in a source file. Rows and columns count from 1, columns count characters, the end is exclusive.

    Attributes:
        filename: as the JSON object has it: absolute, or the name that standard input was given.
        message: what happens there.
        cell: in a notebook, the cell from which the rows count.
    """

    filename: str
    row: int
    column: int
    end_row: int
    end_column: int
    message: str = ""
    cell: int | None = None

    @property
    def path(self) -> str:
        """The file as a person reads it, with forward slashes."""
        return shown(self.filename).replace(os.sep, "/")

    def __str__(self) -> str:
        where = f"cell {self.cell}:{self.row}" if self.cell is not None else str(self.row)
        return f"{self.path}:{where}:{self.column}"


@dataclass(frozen=True, slots=True)
class Record:
    """One finding.

    Attributes:
        place: where it stands; None for a hazard at run time whose access has no frame in a file.
        related: the other access first, then waits, allocations, releases, captures.
        count: how often it happened; 1 for a static finding.
        witness: the path that shows a static finding, in the order of time.
        assumptions: what it takes for granted, the ends of sentences that begin with "assumes that".
        run: what recorded runs say of a static finding (``confirmed``, ``ordered``, ``not-reached``), or nothing.
        ranks: the processes of one run that have it, in a merged report.
        fingerprint: the same for the same finding in the next version of the file, another for each finding of a run.
        data: the JSON object.
    """

    code: str
    name: str
    message: str
    severity: str
    confidence: str
    place: Place | None
    related: tuple[Place, ...]
    witness: tuple[Place, ...]
    assumptions: tuple[str, ...]
    help: str
    fix: Fix | None
    url: str
    latent: bool
    count: int
    run: str
    ranks: tuple[int, ...]
    fingerprint: str
    data: Mapping[str, Any]

    @property
    def sentence(self) -> str:
        """The message with what qualifies it: its confidence where it is not certain, whether it is latent, what
        recorded runs say of it, and which ranks have it.
        """
        words = [self.confidence] if self.confidence != "certain" else []
        words += ["latent"] if self.latent else []
        words += [MARKS[self.run]] if self.run else []
        words += [f"rank{'s' if len(self.ranks) > 1 else ''} {listed(self.ranks)}"] if self.ranks else []
        return f"[{', '.join(words)}] {self.message}" if words else self.message


def listed(ranks: Sequence[int]) -> str:
    """Ranks in rising order, neighbours as a range: ``0-3, 6``."""
    groups: list[list[int]] = []
    for rank in sorted(ranks):
        if groups and rank == groups[-1][-1] + 1:
            groups[-1].append(rank)
        else:
            groups.append([rank])
    return ", ".join(str(group[0]) if len(group) == 1 else f"{group[0]}-{group[-1]}" for group in groups)


def records(objects: Iterable[Mapping[str, Any]]) -> list[Record]:
    """Records of findings' JSON objects, in their order."""
    taken: Counter[str] = Counter()
    return [_record(each, taken) for each in objects]


def _record(data: Mapping[str, Any], taken: Counter[str]) -> Record:
    fix = data.get("fix")
    place = _place(data, "")
    return Record(
        code=data["code"],
        name=data["name"],
        message=data["message"],
        severity=data["severity"],
        confidence=data["confidence"],
        place=place,
        related=tuple(
            found for item in data["related"] if (found := _place(item, item["message"])) is not None
        ),
        witness=tuple(
            found
            for item in data.get("witness") or ()
            if (found := _place(item, item["message"])) is not None
        ),
        assumptions=tuple(each["message"] for each in data.get("assumptions") or ()),
        help=data.get("help") or "",
        fix=None if fix is None else Fix(fix["applicability"], fix["message"], _edits(fix["edits"])),
        url=data.get("url") or "",
        latent=bool(data.get("latent", False)),
        count=int(data.get("count", 1)),
        run=str((data.get("run") or {}).get("outcome", "")),
        ranks=tuple(data.get("ranks") or ()),
        fingerprint=_fingerprint(data, place, taken),
        data=data,
    )


def _place(data: Mapping[str, Any], message: str) -> Place | None:
    if data.get("filename") is None or data.get("location") is None:
        return None
    start, end = data["location"], data["end_location"]
    return Place(
        data["filename"],
        start["row"],
        start["column"],
        end["row"],
        end["column"],
        message,
        data.get("cell"),
    )


def _edits(items: Iterable[Mapping[str, Any]]) -> tuple[Edit, ...]:
    return tuple(
        Edit(
            item["location"]["row"],
            item["location"]["column"],
            item["end_location"]["row"],
            item["end_location"]["column"],
            item["content"],
        )
        for item in items
    )


def _fingerprint(data: Mapping[str, Any], place: Place | None, taken: Counter[str]) -> str:
    """A digest of the code, the file and the message, which name operations and streams but no line."""
    path = place.path if place is not None else ""
    text = "\0".join((data["code"], path, data["message"]))
    taken[text] += 1
    return hashlib.sha256(f"{text}\0{taken[text]}".encode()).hexdigest()[:32]
