"""Suppression files of runs: which hazards a project has looked at and does not want to hear of.

A file is TOML, a table for each suppression::

    [[suppress]]
    code = "SS101"               # or a beginning, such as SS1
    function = "Counter.update"  # a function on the stack of either access
    module = "mylib.metrics"     # the module of that function
    file = "src/metrics/*.py"    # its file
    operator = "add_*"           # what either access calls
    memory = "self.total"        # the memory that both touch
    reason = "a count may be one step old"
    expires = 2027-06-30

Every key but ``code`` and ``reason`` is a pattern as of :mod:`fnmatch`. All that an entry names must fit; ``function``,
``module`` and ``file`` must fit one frame.
"""

from __future__ import annotations

import datetime
import json
import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from streamsafe.order.hazard import Hazard
from streamsafe.runtime.allow import Allowance, accesses, names_rules

KEYS = ("code", "function", "module", "file", "operator", "memory", "reason", "expires")


class SuppressionError(Exception):
    """A suppression file that cannot be read or written, or an entry that means nothing; the message names both."""


def load(path: str) -> tuple[Allowance, ...]:
    """The suppressions of a file.

    Raises:
        SuppressionError: the file cannot be read, is not TOML, or has an entry that means nothing.
    """
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    try:
        table = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise SuppressionError(f"{path}: {error.strerror or error}") from error
    except ValueError as error:
        raise SuppressionError(f"{path}: not valid TOML: {error}") from error
    others = sorted(set(table) - {"suppress"})
    if others:
        raise SuppressionError(f"{path}: unknown key {others[0]!r}: write [[suppress]]")
    entries = table.get("suppress", [])
    if not isinstance(entries, list):
        raise SuppressionError(f"{path}: write [[suppress]], in two brackets, for each suppression")
    return tuple(_entry(entry, f"{path}, suppression {n}") for n, entry in enumerate(entries, 1))


def _entry(entry: Any, where: str) -> Allowance:
    if not isinstance(entry, dict):
        raise SuppressionError(f"{where}: must be a table")
    for key, value in entry.items():
        if key not in KEYS:
            raise SuppressionError(f"{where}: unknown key {key!r}; known are {', '.join(KEYS)}")
        if key == "expires":
            if not isinstance(value, datetime.date) or isinstance(value, datetime.datetime):
                raise SuppressionError(f"{where}: expires must be a date, such as 2027-06-30")
        elif not isinstance(value, str):
            raise SuppressionError(f"{where}: {key} must be a string")
    if not set(entry) - {"reason", "expires"}:
        raise SuppressionError(f"{where}: says nothing of what it suppresses: name a code, a function, ...")
    code = entry.get("code", "").upper()
    if code and code != "ALL" and not names_rules(code):
        raise SuppressionError(f"{where}: no rule has the code {entry['code']!r}")
    return Allowance(
        codes=(code,) if code not in ("", "ALL") else (),
        file=entry.get("file"),
        function=entry.get("function"),
        module=entry.get("module"),
        operation=entry.get("operator"),
        memory=entry.get("memory"),
        reason=entry.get("reason", ""),
        expires=entry.get("expires"),
        source=where,
    )


def write(path: str, hazards: Iterable[Hazard]) -> int:
    """Write a file that suppresses these hazards, and return how many entries it has.

    An entry names the code, the file and the function of the second access, and what it calls: it fits the same bug
    after lines have moved.

    Raises:
        SuppressionError: the file cannot be written.
    """
    entries = dict.fromkeys(filter(None, (_entry_for(hazard) for hazard in hazards)))
    text = "\n".join(entries)
    try:
        Path(path).write_text(text, encoding="utf-8")
    except OSError as error:
        raise SuppressionError(f"{path}: {error.strerror or error}") from error
    return len(entries)


def _entry_for(hazard: Hazard) -> str:
    access = next((each for each in reversed(accesses(hazard)) if each.stack), hazard.second)
    values = {"code": hazard.code}
    if access.stack:
        frame = access.stack[0]
        path = os.path.abspath(frame.filename)
        here = os.getcwd() + os.sep
        values["file"] = path.removeprefix(here).replace(os.sep, "/")
        values["function"] = frame.function
    values["operator"] = access.operation
    values["reason"] = "found before the sanitizer was introduced"
    lines = [f"{key} = {_quoted(_literal(key, value))}" for key, value in values.items()]
    return "\n".join(["[[suppress]]", *lines, ""])


def _literal(key: str, value: str) -> str:
    """A pattern that fits just this text."""
    if key in ("code", "reason"):
        return value
    return "".join(f"[{each}]" if each in "*?[" else each for each in value)


def _quoted(text: str) -> str:
    """A TOML string: JSON's escapes are TOML's."""
    return json.dumps(text, ensure_ascii=False)
