"""The macros that CUDA C++ source defines for itself, put in where its kernels use them."""

from __future__ import annotations

import re

_DEFINE = re.compile(r"^[ \t]*#[ \t]*define[ \t]+(\w+)(\([^()\n]*\))?[ \t]*((?:\\\n|[^\n])*)$(?!\\)", re.M)
_WORD = re.compile(r"[A-Za-z_]\w*")
_CONSTANT = re.compile(r"[\d.\sxXa-fA-FuUlL()+*/-]*")
_LONGEST = 500_000
"""No text grows beyond."""


class _Macro:
    """A macro, what it takes (None: it is no call), and what stands for it; None when that is not plain."""

    __slots__ = ("parameters", "text")

    def __init__(self, parameters: tuple[str, ...] | None, text: str | None) -> None:
        self.parameters = parameters
        self.text = text


def replaced(text: str) -> tuple[str, frozenset[str]]:
    """The text with its macros in place, and the names of those that are left: pasted, variadic, defined twice.

    Of those it returns only the names that may hide more than a number.

    Args:
        text: without comments.
    """
    if not re.search(r"#[ \t]*define\b", text):
        return text, frozenset()
    macros: dict[str, _Macro] = {}
    hiding: set[str] = set()
    for name, call, body in _DEFINE.findall(text):
        parameters = tuple(part.strip() for part in call[1:-1].split(",") if part.strip()) if call else None
        plain: str | None = body.replace("\\\n", " ").strip()
        if "#" in body or "..." in call or (name in macros and macros[name].text != plain):
            plain = None
        if call or not _CONSTANT.fullmatch(body):
            hiding.add(name)
        macros[name] = _Macro(parameters, plain)
    left = frozenset(name for name in hiding if macros[name].text is None)
    try:
        return _put_in(_DEFINE.sub("", text), macros, frozenset()), left
    except _TooLong:
        return text, frozenset(macros)


class _TooLong(Exception):
    """The macros make more of the text than is worth reading."""


def _put_in(text: str, macros: dict[str, _Macro], inside: frozenset[str]) -> str:
    out: list[str] = []
    at = size = 0
    while match := _WORD.search(text, at):
        before, name = text[at : match.start()], match.group()
        at = match.end()
        macro = macros.get(name) if name not in inside else None
        stands = name
        if macro is not None and macro.text is not None:
            if macro.parameters is None:
                stands = _put_in(macro.text, macros, inside | {name})
            elif (found := _arguments(text, at)) is not None and len(found[0]) == len(macro.parameters):
                given = [_put_in(argument, macros, inside) for argument in found[0]]
                values = dict(zip(macro.parameters, given, strict=True))
                body = _WORD.sub(lambda word, values=values: values.get(word[0], word[0]), macro.text)  # type: ignore[misc]
                stands, at = _put_in(body, macros, inside | {name}), found[1]
        out += before, stands
        size += len(before) + len(stands)
        if size > _LONGEST:
            raise _TooLong
    return "".join([*out, text[at:]])


def _arguments(text: str, at: int) -> tuple[list[str], int] | None:
    """The arguments of a call from ``at`` on, and where it ends."""
    opening = re.compile(r"\s*\(").match(text, at)
    if opening is None:
        return None
    parts, depth, start = [], 0, opening.end()
    for index in range(opening.end() - 1, len(text)):
        character = text[index]
        if character in "([{":
            depth += 1
        elif character in ")]}":
            depth -= 1
        if depth == 0 or (depth == 1 and character == ","):
            parts.append(text[start:index].strip())
            start = index + 1
        if depth == 0:
            return ([] if parts == [""] else parts), index + 1
    return None
