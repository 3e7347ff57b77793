"""Programs of several processes: one report a rank, and all of them as one.

``torchrun`` gives each process ``RANK`` and ``WORLD_SIZE``:
https://docs.pytorch.org/docs/stable/elastic/run.html#environment-variables
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping
from typing import Any

from streamsafe.order.hazard import Access, Frame, Hazard, Memory, Missing, Note, Span

_RANK = re.compile(r"\.rank(\d+)(?=\.|$)")


class MergeError(Exception):
    """A file is no report; the message says which and why."""


def own(path: str, environment: Mapping[str, str] = os.environ) -> str:
    """The file of this process: ``out.json`` is ``out.rank0.json`` and so on where several processes were started by
    torchrun or by something like it. A path that is no plain file (``-``, a device) stays.
    """
    rank, size = environment.get("RANK", ""), environment.get("WORLD_SIZE", "")
    if not (rank.isdecimal() and size.isdecimal()) or path == "-" or _special(path):
        return path
    stem, suffix = os.path.splitext(path)
    return f"{stem}.rank{int(rank)}{suffix}"


def rank_of(path: str, otherwise: int) -> int:
    """The rank whose report a file is, by its name."""
    found = _RANK.findall(os.path.basename(path))
    return int(found[-1]) if found else otherwise


def merge(paths: Iterable[str]) -> list[dict[str, Any]]:
    """The hazards of several JSON reports, each once.

    A hazard is the same on two ranks when its code and the lines of both accesses are. What is shown is the first
    report's; ``ranks`` lists who has it and ``count`` is the sum.

    Raises:
        MergeError: a file cannot be read, or is no report in JSON or JSON lines.
    """
    merged: dict[Any, dict[str, Any]] = {}
    for number, path in enumerate(paths):
        rank = rank_of(path, number)
        for hazard in _read(path):
            known = merged.setdefault(identity(hazard), {**hazard, "count": 0, "ranks": []})
            known["count"] += hazard.get("count", 1)
            for each in hazard.get("ranks") or [rank]:
                if each not in known["ranks"]:
                    known["ranks"].append(each)
    for hazard in merged.values():
        hazard["ranks"].sort()
    return list(merged.values())


def hazard_of(data: Mapping[str, Any]) -> Hazard:
    """The hazard of a JSON object, as far as it is shown."""
    related = list(data["related"])
    first, second = data.get("first"), data.get("second") or {}
    has_place = first is not None and bool(first.get("stack")) and bool(related)
    place = _span(related.pop(0)) if has_place else None
    missing, memory = data.get("missing"), data.get("memory") or {}
    shape = memory.get("shape")
    return Hazard(
        code=data["code"],
        name=data["name"],
        message=data["message"],
        first=None if first is None else _access(first, place),
        second=_access(second, _span(data)),
        memory=Memory(
            memory.get("name", ""),
            memory.get("owner", "unknown"),
            None if shape is None else tuple(shape),
            memory.get("dtype"),
            memory.get("start"),
            memory.get("stop"),
        ),
        missing=None if missing is None else Missing(missing["source"], missing["target"], missing["fix"]),
        notes=tuple(Note(each["message"], _span(each)) for each in related),
        confidence=data["confidence"],
        latent=bool(data.get("latent")),
        count=int(data.get("count", 1)),
        help=data.get("help") or "",
    )


def _access(data: Mapping[str, Any], span: Span | None) -> Access:
    stack = tuple(Frame(each["filename"], each["line"], each["function"]) for each in data.get("stack", ()))
    mode = data.get("reads_or_writes", "writes")
    return Access(
        data.get("operation", ""), data.get("timeline", ""), mode, span, stack, data.get("module", "")
    )


def _span(data: Mapping[str, Any]) -> Span | None:
    start, end = data.get("location"), data.get("end_location")
    if not data.get("filename") or not start or not end:
        return None
    return Span(data["filename"], start["row"], start["column"], end["row"], end["column"])


def identity(hazard: Mapping[str, Any]) -> Any:
    """What two processes' reports of one hazard have in common."""
    accesses = [hazard.get("first"), hazard.get("second")]
    if any(accesses):
        places = [_innermost(access) for access in accesses]
    else:  # of the static check
        places = [json.dumps([hazard.get("location"), [each.get("location") for each in hazard["related"]]])]
    return (hazard["code"], hazard.get("filename"), bool(hazard.get("latent")), *places)


def _innermost(access: Mapping[str, Any] | None) -> Any:
    if access is None:
        return None
    stack = access.get("stack") or []
    return (stack[0]["filename"], stack[0]["line"]) if stack else access.get("operation")


def _read(path: str) -> list[dict[str, Any]]:
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read()
    except (OSError, UnicodeDecodeError) as error:
        raise MergeError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from error
    try:
        hazards = json.loads(text)
    except ValueError:
        try:
            hazards = [json.loads(line) for line in text.splitlines() if line.strip()]
        except ValueError:
            hazards = None
    if isinstance(hazards, dict):
        hazards = [hazards]
    if not isinstance(hazards, list) or not all(_is_hazard(each) for each in hazards):
        raise MergeError(f"{path} is no report: write it with --report FILE, or --output-format json")
    return hazards


def _is_hazard(value: object) -> bool:
    needed = ("code", "name", "message", "severity", "confidence", "related")
    return isinstance(value, dict) and all(key in value for key in needed)


def _special(path: str) -> bool:
    return os.path.exists(path) and not os.path.isfile(path)
