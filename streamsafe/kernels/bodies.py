"""The body of a kernel in CUDA C++ as nested tuples, as far as :mod:`streamsafe.kernels.elements` has to understand it.

A statement or an expression is a tuple: its kind, or its operator, and its parts. What is not understood (``switch``, a
lambda, a macro that may hide anything) refuses the whole body.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, TypeAlias

Node: TypeAlias = "tuple[Any, ...]"

SIZE = "_ind.size"
"""What a generated kernel asks for the number of its elements."""
_LONGEST = 20_000
"""Of longer bodies nothing is worked out."""

_INTEGERS = frozenset(
    "int unsigned signed long short char bool auto size_t ptrdiff_t ssize_t uint const int8_t uint8_t int16_t uint16_t"
    " int32_t uint32_t int64_t uint64_t".split()
)
_NARROW = frozenset("char short bool int8_t uint8_t int16_t uint16_t".split())
"""Integers that larger numbers do not fit into."""
_NUMBERS = frozenset("float double half".split())
_PRECEDENCE = {
    operator: level
    for level, operators in enumerate(
        ("||", "&&", "|", "^", "&", "== !=", "< > <= >=", "<< >>", "+ -", "* / %"), start=3
    )
    for operator in operators.split()
}
_ASSIGNMENTS = frozenset("= += -= *= /= %= &= |= ^= <<= >>=".split())
_REFUSED = frozenset("goto switch do asm case template operator".split())
_TOKEN = re.compile(
    r"\s*(?:(\d[\w.]*|\.\d\w*)|([A-Za-z_]\w*(?:\s*::\s*\w+)*)|(<<=|>>=|\|\||&&|[-+*/%&|^=!<>]=|<<|>>|\+\+|--|->|\"\"|\S))"
)


class _Refused(Exception):
    """The body holds something that is not understood."""


def _whole(kinds: list[str]) -> bool:
    """Whether a type holds any number that an index may be."""
    return all(kind in _INTEGERS and kind not in _NARROW for kind in kinds)


class _Reader:
    """Statements and expressions as nested tuples."""

    def __init__(self, text: str) -> None:
        self.tokens = [match.group().strip() for match in _TOKEN.finditer(text)] + [""]
        self.at = 0

    def next(self, wanted: str = "") -> str:
        token = self.tokens[self.at]
        if (wanted and token != wanted) or not token:
            raise _Refused
        self.at += 1
        return token

    def take(self, wanted: str) -> bool:
        if self.tokens[self.at] != wanted:
            return False
        self.at += 1
        return True

    def statements(self, end: str) -> Node:
        found = []
        while self.tokens[self.at] != end:
            found.append(self.statement())
        return ("block", found)

    def statement(self) -> Node:
        token = self.tokens[self.at]
        if token in _REFUSED:
            raise _Refused
        if self.take(";"):
            return ("block", [])
        if self.take("{"):
            body = self.statements("}")
            self.next("}")
            return body
        if self.take("if"):
            condition = self.parenthesis()
            then = self.statement()
            return ("if", condition, then, self.statement() if self.take("else") else ("block", []))
        if self.take("while"):
            return ("while", self.parenthesis(), self.statement())
        if self.take("for"):
            self.next("(")
            first = self.simple()
            self.next(";")
            condition = ("number", 1) if self.tokens[self.at] == ";" else self.expression()
            self.next(";")
            last = [] if self.tokens[self.at] == ")" else self.commas()
            self.next(")")
            return ("for", first, condition, last, self.statement())
        if token == "CUPY_FOR":
            self.at += 1
            self.next("(")
            name = self.next()
            self.next(",")
            size = self.expression()
            self.next(")")
            thread = ("*", ("name", "blockIdx.x"), ("name", "blockDim.x"))
            total = ("*", ("name", "gridDim.x"), ("name", "blockDim.x"))
            first = ("declare", name, True, ("+", thread, ("name", "threadIdx.x")))
            return (
                "for",
                first,
                ("<", ("name", name), size),
                [("assign", "+=", ("name", name), total)],
                self.statement(),
            )
        if token in ("return", "continue", "break"):
            self.at += 1
            value = None if self.tokens[self.at] == ";" else self.expression()
            self.next(";")
            return ("leave", token, value)
        found = self.simple()
        self.next(";")
        return found

    def simple(self) -> Node:
        """A declaration, or expressions."""
        if self.tokens[self.at] == ";":
            return ("block", [])
        start = self.at
        kinds = []
        while re.match(r"[A-Za-z_]", self.tokens[self.at]):
            kinds.append(self.next())
            if kinds[-1] in ("__align__", "__attribute__"):
                raise _Refused
            if self.tokens[self.at] == "<" and kinds[-1] not in _INTEGERS and self._template():
                kinds.append("<>")
        stars = 0
        while self.tokens[self.at] in ("*", "&", "__restrict__", "const"):
            stars += self.next() == "*"
        if stars and re.match(r"[A-Za-z_]", self.tokens[self.at]) and len(kinds) == 1:
            return self.declarations(kinds, stars)
        if stars == 0 and len(kinds) >= 2 and self.tokens[self.at - 1] not in ("*", "&", ">"):
            self.at -= 1
            return self.declarations(kinds[:-1], 0)
        if kinds and self.tokens[self.at - 1] in ("*", "&", ">", "const", "__restrict__"):
            if re.match(r"[A-Za-z_]", self.tokens[self.at]):
                return self.declarations(kinds, stars)
        self.at = start
        return ("several", [("expression", each) for each in self.commas()])

    def _template(self) -> bool:
        """Steps over ``<...>`` of a type's name, when it is one."""
        at = self.at + 1
        while re.match(r"[\w,\s:]+$", self.tokens[at] or "?"):
            at += 1
        if self.tokens[at] != ">" or not re.match(r"[A-Za-z_]|[*&]", self.tokens[at + 1] or "?"):
            return False
        self.at = at + 1
        return True

    def declarations(self, kinds: list[str], stars: int) -> Node:
        integer = _whole(kinds) or stars > 0
        found: list[Node] = []
        while True:
            while self.tokens[self.at] in ("*", "&", "__restrict__", "const"):
                self.at += 1
            name = self.next()
            array = False
            while self.take("["):
                array = True
                if not self.take("]"):
                    found.append(("expression", self.expression()))
                    self.next("]")
            value: Node | None = None
            if self.take("="):
                value = self.braces() if self.tokens[self.at] == "{" else self.expression()
            elif self.take("("):
                arguments = [] if self.tokens[self.at] == ")" else self.commas()
                self.next(")")
                value = ("call", "", arguments)
            found.append(("declare", name, integer and not array, value))
            if not self.take(","):
                return ("several", found)

    def braces(self) -> Node:
        self.next("{")
        values: list[Node] = []
        while not self.take("}"):
            values.append(self.braces() if self.tokens[self.at] == "{" else self.expression())
            self.take(",")
        return ("call", "", values)

    def parenthesis(self) -> Node:
        self.next("(")
        found = self.expression()
        self.next(")")
        return found

    def commas(self) -> list[Node]:
        found = [self.expression()]
        while self.take(","):
            found.append(self.expression())
        return found

    def expression(self) -> Node:
        left = self.binary(3)
        token = self.tokens[self.at]
        if token in _ASSIGNMENTS:
            self.at += 1
            return ("assign", token, left, self.expression())
        if self.take("?"):
            then = self.expression()
            self.next(":")
            return ("choose", left, then, self.expression())
        return left

    def binary(self, lowest: int) -> Node:
        left = self.unary()
        while _PRECEDENCE.get(self.tokens[self.at], 0) >= lowest:
            operator = self.next()
            left = (operator, left, self.binary(_PRECEDENCE[operator] + 1))
        return left

    def unary(self) -> Node:
        token = self.tokens[self.at]
        if token in ("+", "-", "!", "~", "*", "&", "++", "--"):
            self.at += 1
            inner = self.unary()
            if token in ("++", "--"):
                return ("assign", token[0] + "=", inner, ("number", 1))
            return ("unary", token, inner)
        if token == "(":
            end = self.at + 1
            while self.tokens[end] in _INTEGERS | _NUMBERS or self.tokens[end] in ("*", "void"):
                end += 1
            if end > self.at + 1 and self.tokens[end] == ")":
                kinds = self.tokens[self.at + 1 : end]
                self.at = end + 1
                inner = self.unary()
                return inner if _whole(kinds) else ("call", "", [inner])
        return self.postfix()

    def postfix(self) -> Node:
        token = self.next()
        if token == "(":
            node = self.expression()
            self.next(")")
        elif token[0].isdigit() or token[0] == ".":
            match = re.fullmatch(r"(0[xX][0-9a-fA-F]+|\d+)[uUlL]*", token)
            node = ("number", int(match.group(1), 0) if match and not re.match(r"0\d", token) else None)
        elif token in ("static_cast", "reinterpret_cast", "const_cast"):
            self.next("<")
            kinds = []
            while not self.take(">"):
                kinds.append(self.next())
            inner = self.parenthesis()
            node = inner if _whole(kinds) else ("call", "", [inner])
        elif token == '""':
            node = ("number", None)
        elif re.match(r"[A-Za-z_]", token) and token not in _REFUSED:
            node = ("name", token)
        else:
            raise _Refused
        while True:
            if self.take("["):
                node = ("index", node, self.expression())
                self.next("]")
            elif self.take("("):
                arguments = [] if self.tokens[self.at] == ")" else self.commas()
                self.next(")")
                if node[0] != "name":
                    raise _Refused
                name = node[1]
                if _whole([name]) and len(arguments) == 1:
                    node = arguments[0]
                    continue
                if name.isupper():
                    raise _Refused  # a macro: it may hide anything
                node = node if name == SIZE else ("call", name, arguments)
            elif self.tokens[self.at] in (".", "->"):
                arrow = self.next() == "->"
                member = self.next()
                dotted = node[0] == "name" and not arrow
                node = ("name", f"{node[1]}.{member}") if dotted else ("member", node)
            elif self.tokens[self.at] in ("++", "--"):
                node = ("after", ("assign", self.next()[0] + "=", node, ("number", 1)))
            else:
                return node


def assigned(node: Any) -> Iterator[str]:
    """The names that are given a value in a statement, once for each time."""
    if isinstance(node, tuple):
        if node and node[0] == "assign" and node[2][0] == "name":
            yield node[2][1]
        elif node and node[0] == "declare" and node[3] is not None:
            yield node[1]
        for part in node:
            yield from assigned(part)
    elif isinstance(node, list):
        for part in node:
            yield from assigned(part)


def names(node: Any) -> Iterator[str]:
    if isinstance(node, (tuple, list)):
        if len(node) == 2 and node[0] == "name":
            yield node[1]
        elif node and node[0] in ("index", "call", "assign"):
            yield ""  # more than arithmetic
        for part in node:
            yield from names(part)


@lru_cache(maxsize=1024)
def read(body: str) -> Node | None:
    """The statements of a kernel's body, its macros in place, or None when they are not understood."""
    if len(body) > _LONGEST:
        return None
    try:
        return _Reader(re.sub(r"#\s*pragma[^\n]*", " ", body)).statements("")
    except (_Refused, IndexError, RecursionError):
        return None
