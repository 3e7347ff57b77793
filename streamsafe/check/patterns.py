"""``match``: which case a path takes, and what its pattern binds."""

from __future__ import annotations

import ast

from . import data_model
from .state import State
from .values import NONE, Cls, Const, Key, Map, Obj, Range, Seq, V

_TOLD = (Const, Seq, Map, Obj, Range)
"""What has a form that patterns ask for."""
Answer = bool | tuple[bool, Key]
"""Whether a pattern fits; where that is not known, what has to be decided: (negated, key)."""


def run_match(m: State, s: ast.Match) -> None:
    """Run the first case whose pattern fits; of those that may fit, the first that uses streams."""
    subject = m.eval(s.subject)
    answers = [(c, _fits(m, c.pattern, subject)) for c in s.cases]
    open_ = [c for c, answer in answers if answer is not False]
    strong = [c for c in open_ if m.frame.module.strong(*c.body)]
    chosen = next(iter(strong or open_), None)
    for c, answer in answers:
        if isinstance(answer, tuple):
            negated, key = answer
            answer = m.decide(key, (c is chosen) != negated, bool(strong), c.pattern) != negated
        if not answer:
            continue
        _bind(m, c.pattern, subject, s)
        if c.guard is None or m.truth(c.guard, c is chosen, flip=bool(strong)):
            m.body(c.body)
            return


def _fits(m: State, p: ast.pattern, v: V) -> Answer:
    if isinstance(p, ast.MatchValue):
        return m.compare(ast.Eq(), v, m.eval(p.value))
    if isinstance(p, ast.MatchSingleton):
        return m.compare(ast.Is(), v, Const(p.value))
    if isinstance(p, ast.MatchAs):
        return _fits(m, p.pattern, v) if p.pattern is not None else True
    if isinstance(p, ast.MatchOr):
        answers = [_fits(m, each, v) for each in p.patterns]
        return True in answers or next((a for a in answers if isinstance(a, tuple)), False)
    parts = _parts(m, p, v)
    if isinstance(parts, list):
        answers = [_fits(m, each, part) for each, part in parts]
        return False not in answers and next((a for a in answers if isinstance(a, tuple)), True)
    return parts if isinstance(parts, bool) else (False, ("fits", m.key(v), ast.dump(p)))


def _parts(m: State, p: ast.pattern, v: V) -> list[tuple[ast.pattern, V]] | bool | None:
    """What the patterns in a pattern stand for; False where it does not fit, None where that is not known."""
    if isinstance(p, ast.MatchSequence):
        v = data_model.contents(m, v)
        if not isinstance(v, Seq) or v.more:
            return False if isinstance(v, _TOLD) and not isinstance(v, Seq) else None
        star = next((i for i, each in enumerate(p.patterns) if isinstance(each, ast.MatchStar)), None)
        rest = len(v.items) - len(p.patterns) + (star is not None)
        if rest < 0 or (star is None and rest):
            return False
        items: list[V] = list(v.items)
        if star is not None:
            items[star : star + rest] = [Seq(items[star : star + rest])]
        return list(zip(p.patterns, items, strict=True))
    if isinstance(p, ast.MatchMapping):
        v = data_model.contents(m, v)
        if not isinstance(v, Map):
            return False if isinstance(v, _TOLD) else None
        keys = [m.key(m.eval(k)) for k in p.keys]
        if not v.items.keys() >= {*keys}:
            return False if all(k[0] == "c" for k in v.items) else None
        return [(each, v.items[k]) for each, k in zip(p.patterns, keys, strict=True)]
    if isinstance(p, ast.MatchClass):
        return _parts_of_object(m, p, v)
    return True if isinstance(p, ast.MatchStar) else None


def _parts_of_object(m: State, p: ast.MatchClass, v: V) -> list[tuple[ast.pattern, V]] | bool | None:
    cls = m.eval(p.cls)
    if not (isinstance(cls, Cls) and isinstance(v, Obj)):
        told = m.library.call("builtins.isinstance", [v, cls], {}, p)
        if not isinstance(told, Const) or not told.value:
            return False if isinstance(told, Const) else None
    elif cls.cls not in v.cls.mro():
        return False
    names = [*(v.cls.declared if isinstance(v, Obj) else ())][: len(p.patterns)]
    named = [*zip(p.patterns, names, strict=False), *zip(p.kwd_patterns, p.kwd_attrs, strict=True)]
    return [(each, m.attribute(v, name, p)) for each, name in named]


def _bind(m: State, p: ast.pattern, v: V, s: ast.stmt) -> None:
    """Bind the names of a pattern to what they stand for."""
    if isinstance(p, ast.MatchAs):
        if p.pattern is not None:
            _bind(m, p.pattern, v, s)
        if p.name is not None:
            m.assign(ast.Name(p.name, ast.Store()), v, s)
    elif isinstance(p, ast.MatchStar):
        if p.name is not None:
            m.assign(ast.Name(p.name, ast.Store()), v, s)
    elif isinstance(p, ast.MatchOr):
        fitting = [each for each in p.patterns if _fits(m, each, v) is not False]
        _bind(m, fitting[0] if fitting else p.patterns[0], v, s)
    elif isinstance(p, ast.MatchSequence | ast.MatchMapping | ast.MatchClass):
        parts = _parts(m, p, v)
        if not isinstance(parts, list):
            inner = [*p.patterns, *(p.kwd_patterns if isinstance(p, ast.MatchClass) else ())]
            parts = [(each, m.element(v, Const(i))) for i, each in enumerate(inner)]
        for each, part in parts:
            _bind(m, each, part, s)
        if isinstance(p, ast.MatchMapping) and p.rest is not None:
            m.assign(ast.Name(p.rest, ast.Store()), v if isinstance(v, Map) else NONE, s)
