"""The patterns of ``match`` to tests and bindings."""

from __future__ import annotations

import ast

from streamsafe.static.syntax import ir
from streamsafe.static.syntax.builder import Builder
from streamsafe.static.syntax.expressions import expression
from streamsafe.static.syntax.ir import Reg

Bindings = list[tuple[str, Reg, ast.AST]]


def match_pattern(b: Builder, pattern: ast.pattern, subject: Reg, failed: int, bound: Bindings) -> None:
    """Go on where the pattern matches, to ``failed`` where it does not; ``bound`` gains the names it captures."""
    if isinstance(pattern, ast.MatchValue):
        value = expression(b, pattern.value)
        dst = b.temp()
        b.emit(ir.Compare(dst, "==", subject, value, b.at(pattern)))
        b.host(dst, pattern)
        if isinstance(pattern.value, ast.Constant):
            _require(b, "eq", subject, pattern.value.value, failed)
        else:
            _require(b, "true", dst, None, failed)
    elif isinstance(pattern, ast.MatchSingleton):
        if pattern.value is None:
            _require(b, "none", subject, None, failed)
        else:
            _require(b, "is", subject, pattern.value, failed)
    elif isinstance(pattern, ast.MatchSequence):
        _sequence(b, pattern, subject, failed, bound)
    elif isinstance(pattern, ast.MatchMapping):
        _mapping(b, pattern, subject, failed, bound)
    elif isinstance(pattern, ast.MatchClass):
        _class(b, pattern, subject, failed, bound)
    elif isinstance(pattern, ast.MatchStar):
        if pattern.name:
            bound.append((pattern.name, subject, pattern))
    elif isinstance(pattern, ast.MatchAs):
        if pattern.pattern is not None:
            match_pattern(b, pattern.pattern, subject, failed, bound)
        if pattern.name:
            bound.append((pattern.name, subject, pattern))
    elif isinstance(pattern, ast.MatchOr):
        _alternatives(b, pattern, subject, failed, bound)


def _require(b: Builder, kind: ir.AssumeKind, reg: Reg, other: object, failed: int) -> None:
    on = b.block()
    b.choose(kind, reg, other, on, failed)
    b.start(on)


def _sequence(b: Builder, pattern: ast.MatchSequence, subject: Reg, failed: int, bound: Bindings) -> None:
    star = next((i for i, p in enumerate(pattern.patterns) if isinstance(p, ast.MatchStar)), None)
    dst = b.temp()
    size = len(pattern.patterns) - (star is not None)
    b.emit(ir.Shape(dst, subject, "sequence", size, star is not None, b.at(pattern)))
    _require(b, "true", dst, None, failed)
    parts = tuple(b.temp() for _ in pattern.patterns)
    b.emit(ir.Unpack(parts, subject, star, b.at(pattern)))
    for part, register in zip(pattern.patterns, parts, strict=True):
        match_pattern(b, part, register, failed, bound)


def _mapping(b: Builder, pattern: ast.MatchMapping, subject: Reg, failed: int, bound: Bindings) -> None:
    dst = b.temp()
    b.emit(ir.Shape(dst, subject, "mapping", len(pattern.keys), True, b.at(pattern)))
    _require(b, "true", dst, None, failed)
    keys = [expression(b, key) for key in pattern.keys]
    for key, part in zip(keys, pattern.patterns, strict=True):
        _require(b, "in", key, subject, failed)
        value = b.temp()
        b.emit(ir.Item(value, subject, key, b.at(part)))
        match_pattern(b, part, value, failed, bound)
    if pattern.rest:
        rest = b.temp()
        b.emit(ir.Build(rest, "dict", (subject,), (None,), b.at(pattern)))
        for key in keys:
            b.emit(ir.DelItem(rest, key, b.at(pattern)))
        bound.append((pattern.rest, rest, pattern))


def _class(b: Builder, pattern: ast.MatchClass, subject: Reg, failed: int, bound: Bindings) -> None:
    cls = expression(b, pattern.cls)
    _require(b, "isinstance", subject, cls, failed)
    for i, part in enumerate(pattern.patterns):
        value = b.temp()
        b.emit(ir.MatchArg(value, subject, cls, i, b.at(part)))
        match_pattern(b, part, value, failed, bound)
    for name, part in zip(pattern.kwd_attrs, pattern.kwd_patterns, strict=True):
        value = b.temp()
        b.emit(ir.Attr(value, subject, name, b.at(part)))
        match_pattern(b, part, value, failed, bound)


def _alternatives(b: Builder, pattern: ast.MatchOr, subject: Reg, failed: int, bound: Bindings) -> None:
    """Alternatives bind the same names: each moves them to the same registers."""
    matched = b.block()
    shared: dict[str, Reg] = {}
    for i, part in enumerate(pattern.patterns):
        last = i == len(pattern.patterns) - 1
        next_one = failed if last else b.block()
        own: Bindings = []
        match_pattern(b, part, subject, next_one, own)
        for name, register, node in own:
            if name not in shared:
                shared[name] = b.temp()
            b.emit(ir.Move(shared[name], register, b.at(node)))
        b.go(matched)
        if not last:
            b.start(next_one)
    b.start(matched)
    bound.extend((name, register, pattern) for name, register in shared.items())
