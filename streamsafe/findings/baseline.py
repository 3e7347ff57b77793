"""A baseline: the findings that are known and not to be reported again.

A finding is known by its code, its file, the function or class it stands in and its line without spaces, with a count;
so it survives edits elsewhere in the file, and a second finding like it is new.
"""

from __future__ import annotations

import ast
import json
import os
import warnings
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

VERSION = 1


class BaselineError(Exception):
    """A baseline file that cannot be read or written."""


@dataclass(frozen=True, slots=True, order=True)
class Fingerprint:
    """What a finding is known by. ``path`` is relative to the baseline file, with forward slashes."""

    path: str
    symbol: str
    code: str
    line: str


def fingerprint(code: str, filename: str, row: int, source: str, baseline: str) -> Fingerprint:
    """The fingerprint of a finding.

    Args:
        code: its code.
        filename: its file.
        row: its row, from 1.
        source: the file's text.
        baseline: the baseline file.
    """
    lines = _lines(source)
    line = lines[row - 1] if 0 < row <= len(lines) else ""
    path = os.path.relpath(filename, os.path.dirname(os.path.abspath(baseline)))
    return Fingerprint(
        path.replace(os.sep, "/"), symbol(source, row), code, "".join(line.split("#")[0].split())
    )


@lru_cache(maxsize=4)
def _lines(source: str) -> list[str]:
    return source.split("\n")


def symbol(source: str, row: int) -> str:
    """The dotted name of the innermost function or class around a row; empty at the top level."""
    rows, definitions = _definitions(source)
    for first, last, name in reversed(definitions[: bisect_right(rows, row)]):
        if first <= row <= last:
            return name
        if "." not in name:  # what stands before it is beside it
            break
    return ""


@lru_cache(maxsize=4)
def _definitions(source: str) -> tuple[list[int], list[tuple[int, int, str]]]:
    """The functions and classes of a file by their rows: first and last row, and dotted name."""
    found: list[tuple[int, int, str]] = []
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            pending: list[tuple[ast.AST, str]] = [(ast.parse(source), "")]
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return [], []
    while pending:
        node, prefix = pending.pop()
        for child in ast.iter_child_nodes(node):
            if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                found.append((child.lineno, child.end_lineno or child.lineno, f"{prefix}{child.name}"))
                pending.append((child, f"{prefix}{child.name}."))
            elif not isinstance(child, ast.expr):
                pending.append((child, prefix))
    found.sort()
    return [first for first, _, _ in found], found


def write(path: str, found: Iterable[Fingerprint]) -> None:
    """Write a baseline.

    Raises:
        BaselineError: the file cannot be written.
    """
    findings: list[dict[str, Any]] = [
        {"path": item.path, "symbol": item.symbol, "code": item.code, "line": item.line, "count": count}
        for item, count in sorted(Counter(found).items())
    ]
    try:
        with open(path, "w", encoding="utf-8") as file:
            json.dump({"version": VERSION, "findings": findings}, file, indent=2)
            file.write("\n")
    except OSError as error:
        raise BaselineError(f"{path}: cannot be written: {error.strerror or error}") from error


def read(path: str) -> Counter[Fingerprint]:
    """Read a baseline.

    Raises:
        BaselineError: the file cannot be read, or is no baseline of this version.
    """
    try:
        with open(path, encoding="utf-8") as file:
            data = json.load(file)
        if data["version"] != VERSION:
            raise BaselineError(f"{path}: written by another version of streamsafe; write it again")
        known: Counter[Fingerprint] = Counter()
        for item in data["findings"]:
            known[Fingerprint(item["path"], item["symbol"], item["code"], item["line"])] += item["count"]
    except OSError as error:
        raise BaselineError(f"{path}: cannot be read: {error.strerror or error}") from error
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise BaselineError(f"{path}: not a baseline file") from error
    return known
