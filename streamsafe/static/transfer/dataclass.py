"""Dataclasses: what their fields hold where a call does not say, and ``__post_init__``."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from streamsafe.static.domain.atoms import Atom, New, Value, const, value
from streamsafe.static.domain.state import State
from streamsafe.static.syntax.scopes import dotted
from streamsafe.static.transfer import memory as mem
from streamsafe.static.transfer.registry import CallSite

if TYPE_CHECKING:
    from streamsafe.static.summary.analyse import Analysis

_DISCRIMINATOR = 1000


def construct(a: Analysis, s: State, c: CallSite, cid: str, made: New) -> list[State]:
    """Fill the fields of a new object: with what the call gives, else with what the class says."""
    fields = list(a.engine.index.fields(cid))
    for name, held in [*zip(fields, c.args, strict=False), *c.keywords.items()]:
        s.heap[made, name] = held
    for number, name in enumerate(fields):
        if (made, name) not in s.heap:
            default = _default(a, s, c, cid, name, number)
            if default is not None:
                s.heap[made, name] = default
    fid = a.engine.index.method(cid, "__post_init__")
    if fid is None or not a.engine.index.is_dataclass(cid):
        return [s]
    from streamsafe.static.summary.instantiate import instantiate

    return instantiate(a, s, c.at, -1, fid, [value(made)], {}) or [s]


def _default(a: Analysis, s: State, c: CallSite, cid: str, name: str, number: int) -> Value | None:
    """What a field holds that is not given: None, a truth, or what its factory makes; None where that is not known."""
    module, given = _in_body(a, cid, name)
    if isinstance(given, ast.Call) and dotted(given.func).rpartition(".")[2] in ("field", "Factory", "Field"):
        options = {keyword.arg: keyword.value for keyword in given.keywords}
        factory = options.get("default_factory", options.get("factory"))
        if factory is not None:
            return _made(a, s, c, module, factory, number)
        given = options.get("default")
    if isinstance(given, ast.Constant) and (given.value is None or isinstance(given.value, bool)):
        return value(const(given.value))
    if given is not None:
        return None
    home, annotation = a.engine.index.fields(cid)[name]
    fact = a.engine.facts.of_annotation(home, annotation)
    if a.engine.role(fact.type) in ("stream", "event") and not fact.optional:
        return value(_allocate(a, s, c, fact.type, number))
    return None


def _in_body(a: Analysis, cid: str, name: str) -> tuple[str, ast.expr | None]:
    """The module and the value that the nearest class assigns to a field."""
    for each in a.engine.index.mro(cid):
        cls = a.engine.index.classes[each]
        if name in cls.assigned:
            return cls.module, cls.assigned[name]
    return "", None


def _made(a: Analysis, s: State, c: CallSite, module: str, factory: ast.expr, number: int) -> Value | None:
    """``default_factory=list``, ``default_factory=lambda: torch.cuda.Stream()``: a new object of that type."""
    if isinstance(factory, ast.Lambda) and isinstance(factory.body, ast.Call):
        factory = factory.body.func
    symbol = a.engine.index.resolve(module, dotted(factory))
    type = ""
    if symbol.kind == "class":
        type = symbol.name
    elif symbol.kind == "library":
        type = a.engine.constructed(symbol.name)
    if not type or a.engine.role(type) not in ("stream", "event", "container", "object", "graph"):
        return None
    made: Atom = _allocate(a, s, c, type, number)
    if symbol.kind == "class" and a.engine.index.is_dataclass(type):
        assert isinstance(made, New)
        construct(a, s, CallSite(c.at, -1, []), type, made)
    return value(made)


def _allocate(a: Analysis, s: State, c: CallSite, type: str, number: int) -> New:
    return mem.allocate(a, s, a.span(c.at), type, discriminator=_DISCRIMINATOR + number)


__all__ = ["construct"]
