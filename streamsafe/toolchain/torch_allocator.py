"""Writes the methods of an allocator that passes every call on, from the headers of the installed torch.

The interface of torch's caching allocator differs from release to release, and a class must implement all of it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

OURS = ("allocate", "recordStream")
"""Written by hand in ``allocator.hpp``."""

_CLASSES = (
    ("c10/cuda/CUDACachingAllocator.h", "CUDAAllocator"),
    ("c10/core/CachingDeviceAllocator.h", "DeviceAllocator"),
    ("c10/core/Allocator.h", "Allocator"),
)
_METHOD = re.compile(r"virtual\s+((?:[\w:<>,\s*&]|\(\*\))+?)\s*\b(\w+)\s*\(")
_NAMED = re.compile(r"(.*[\s*&>])(\w+)$", re.DOTALL)
_TYPE_WORDS = ("int", "bool", "size_t", "CUDAStream")


def text(include: Path) -> str:
    """The C++ text of the methods, for a class with a member ``inner``.

    Args:
        include: torch's include directory.
    """
    lines = []
    seen = set()
    for header, name in _CLASSES:
        path = include / header
        if not path.exists():
            continue
        for result, method, arguments, const in _methods(_body(path.read_text(encoding="utf-8"), name)):
            types = [_type(argument) for argument in _split(arguments)]
            key = (method, tuple(re.sub(r"\s+", "", each) for each in types))
            if key in seen:
                continue
            seen.add(key)
            parameters = ", ".join(f"{each} a{i}" for i, each in enumerate(types))
            passed = ", ".join(
                f"a{i}" if "*" in each or "&" in each else f"std::move(a{i})" for i, each in enumerate(types)
            )
            lines.append(
                f"  {result} {method}({parameters}) {const} override {{ return inner->{method}({passed}); }}"
            )
    return "\n".join(lines) + "\n"


def _body(header: str, name: str) -> str:
    """What stands between the braces of a class; empty when the header has none of that name."""
    start = re.search(rf"(?:class|struct)\s+(?:C10_\w+\s+)?{name}\b[^;{{]*\{{", header)
    if start is None:
        return ""
    at, depth = start.end(), 1
    while depth:
        depth += {"{": 1, "}": -1}.get(header[at], 0)
        at += 1
    return header[start.end() : at - 1]


def _methods(body: str) -> Iterator[tuple[str, str, str, str]]:
    """Result type, name, arguments and constness of each virtual method that is not ours."""
    body = re.sub(r"//[^\n]*", "", body)
    for match in _METHOD.finditer(body):
        at, depth = match.end(), 1
        while depth:
            depth += {"(": 1, ")": -1}.get(body[at], 0)
            at += 1
        if "~" in match.group(0) or match.group(2) in OURS:
            continue
        const = re.match(r"\s*(const)?", body[at:])
        yield (
            match.group(1).strip(),
            match.group(2),
            body[match.end() : at - 1],
            (const.group(1) if const else "") or "",
        )


def _split(arguments: str) -> list[str]:
    parts, depth, word = [], 0, ""
    for character in arguments:
        depth += {"<": 1, "(": 1, "{": 1, ">": -1, ")": -1, "}": -1}.get(character, 0)
        if character == "," and not depth:
            parts.append(word)
            word = ""
        else:
            word += character
    return [part.strip() for part in [*parts, word] if part.strip()]


def _type(argument: str) -> str:
    """An argument's type, without its name and default."""
    argument = re.sub(r"/\*.*?\*/", "", argument, flags=re.DOTALL)
    argument = re.sub(r"=.*$", "", argument, flags=re.DOTALL).strip()
    named = _NAMED.match(argument)
    if named is None or named.group(2) in _TYPE_WORDS or named.group(1).strip() in ("", "const"):
        return argument
    return named.group(1).strip()
