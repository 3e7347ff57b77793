"""Lists, tuples, sets and mappings: displays, comprehensions, elements."""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from . import data_model
from .overlap import overlap
from .program import Access, Block, Timeline
from .state import Raised, State
from .values import (
    Cls,
    Const,
    Event,
    Func,
    Gen,
    Graph,
    Graphed,
    Key,
    Lib,
    Map,
    Obj,
    Range,
    Seq,
    Stream,
    Sym,
    Tensor,
    V,
)

_MAX_ROWS = 4


def _of_part(v: Tensor) -> list[Access]:
    """What was done to a tensor, as to all of a block: of a part, what is known to have touched it."""
    part = v.part
    if part is None:
        return list(v.block.accesses)
    touched = [a for a in v.block.accesses if overlap(a.part, part) == "yes"]
    return [replace(a, part=a.part[len(part) :] or None if a.part is not None else None) for a in touched]


class Containers:
    """Makes containers and picks their elements."""

    def __init__(self, state: State) -> None:
        self.m = state

    def table(self) -> dict[type[ast.AST], Callable[[Any], V]]:
        """What evaluates each kind of expression."""
        return {
            ast.Tuple: self.eval_seq,
            ast.List: self.eval_seq,
            ast.Set: self.eval_seq,
            ast.Dict: self.eval_dict,
            ast.ListComp: self.eval_comp,
            ast.SetComp: self.eval_comp,
            ast.GeneratorExp: self.eval_comp,
            ast.DictComp: self.eval_comp,
        }

    def element(self, v: V, index: V) -> V:
        """What a subscript gives of something that is no tensor."""
        if isinstance(v, Seq):
            if (
                isinstance(index, Const)
                and isinstance(index.value, int)
                and not isinstance(index.value, bool)
            ):
                i = index.value
                if -len(v.items) <= i < len(v.items) and not (v.more and i < 0):
                    return v.items[i]
                if v.items and (v.more or i < 0):
                    return self.like(v.items[-1], ("elem", self.m.uid(v), i), v)
                if v.items and not v.more:
                    raise Raised
                return self.m.sym(self.m.vn(("elem", self.m.uid(v), i)), "element")
            if v.items:
                k = self.m.key(index)
                if len(v.items) == 1 and not v.more:
                    return v.items[0]
                if not v.more and len(v.items) <= _MAX_ROWS and all(isinstance(i, Seq) for i in v.items):
                    return self._row(v, index)
                return self.like(v.items[0], ("elem", self.m.uid(v), k), v)
            return self.m.sym(self.m.vn(("elem", self.m.uid(v), self.m.key(index))), "element")
        if isinstance(v, Map):
            k = self.m.key(index)
            if k in v.items:
                return v.items[k]
            only = self.only_entry(v, index)
            if only is not None:
                return only
            if v.items and (isinstance(index, Sym) or any(kk[0] != "c" for kk in v.items)):
                first = next(iter(v.items.values()))
                got = self.like(first, ("elem", self.m.uid(v), k), v)
                return got
            if v.factory is not None:
                return self._made_for(v, index, v.factory)
            if self.m.catching:
                raise Raised  # there is code for the key that is missing
            got = self.m.sym(self.m.vn(("elem", self.m.uid(v), k)), "element")
            return got
        k = self.m.key(index)
        over = self.m.fields.get((self.m.vn(("e", self.m.key(v))), repr(k)))
        if over is not None:
            return over
        if isinstance(v, Obj):
            m = v.cls.method("__getitem__")
            if m is not None:
                return self.m.call_function(Func(m, v), [index], {}, self.m.frame.module.tree)
            held = data_model.contents(self.m, v)
            if held is not v:
                return self.element(held, index)
        hint = "host" if isinstance(v, Sym) and v.hint == "host" else "element"
        got = self.m.sym(self.m.vn(("item", self.m.key(v), k)), f"{getattr(v, 'text', '')}[...]", hint)
        if isinstance(v, Sym):
            self.m.library.parents.setdefault(got.vn, v)
            self.m.library.part_of_result(v, got)
            if v.vn in self.m.loaded:
                self.m.loaded.add(got.vn)
        return got

    def _made_for(self, m: Map, index: V, factory: V) -> V:
        """The value that a mapping makes for a key that it does not have."""
        made = self.m.call_value(factory, [], {}, self.m.at or self.m.frame.module.tree)
        if isinstance(made, Seq) and not made.items:
            made.limit = "open"  # others may have filled it
        elif isinstance(made, Event):
            made.unknown = True  # or recorded it
        m.items[self.map_key(m, index)] = made
        return made

    def _row(self, v: Seq, index: V) -> V:
        """One of some rows by an unknown number, the same on one path: the parts of a row belong together."""
        key = self.m.key(index)
        for i, row in enumerate(v.items[:-1]):
            if self.m.decide(("eq", key, ("c", "int", i)), True):
                return row
        return v.items[-1]

    def only_entry(self, v: Map, index: V) -> V | None:
        """What a mapping with one entry gives under any key that it knows."""
        if isinstance(index, Sym) and len(v.items) == 1 and next(iter(v.items))[0] != "c":
            return next(iter(v.items.values()))
        return None

    def _of_another_index(self, key: Key, v: Event) -> bool:
        """Whether the path has recorded elements of a list like an event, and all of them at other indices."""
        recorded = [
            k
            for k, e in self.m.likes.items()
            if isinstance(e, Event) and e.snapshot is not None and k[:2] == key[:2] and k[0] == "elem"
        ]
        numbers = self.m.numbers
        return (
            v.born > 0
            and v.snapshot is None
            and bool(recorded)
            and all(
                not isinstance(k[2], int) and numbers.distance(k[2], key[2]) not in (None, 0)
                for k in recorded
            )
        )

    def like(self, v: V, key: Key, owner: V) -> V:
        """An element of a container of which one like it is known: of the same kind, perhaps another one."""
        memo = self.m.likes
        got = memo.get(key)
        if got is not None:
            return got
        self.m.like_of[key] = owner
        if self.m.graphs and self._with_graph(v):
            memo[key] = got = self._picked(v, key, owner)
            return got
        if isinstance(v, Stream):
            got = self._like_stream(v, key, owner)
        elif isinstance(v, Event):
            got = Event(v.text, v.timing, v.site, v.lib)
            got.unknown = not self._of_another_index(key, v)
            got.born = 0 if got.unknown else v.born
            others = (
                owner.items
                if isinstance(owner, Seq)
                else owner.items.values()
                if isinstance(owner, Map)
                else ()
            )
            self.m.among_others[self.m.uid(got)] = [e for e in others if isinstance(e, Event)]
        elif isinstance(v, Tensor):
            whole = v.part is None
            b = Block(
                v.block.place, v.block.text, v.block.alloc, v.block.home, v.block.lib, v.block.fresh and whole
            )
            b.accesses = _of_part(v)
            b.recorded = set(v.block.recorded)
            v.block.likes.append(b)
            got = Tensor(b, None, v.numpy)
        elif isinstance(v, Seq):
            got = Seq(
                [self.like(i, (key, n), v) for n, i in enumerate(v.items)],
                v.kind,
                v.more,
                self.m.vn(("like", key)),
            )
            rows = [x.items for x in owner.items if isinstance(x, Seq)] if isinstance(owner, Seq) else []
            for n, e in enumerate(got.items):
                if isinstance(e, Event):
                    column = [row[n] for row in rows if len(row) > n]
                    self.m.among_others.setdefault(self.m.uid(e), []).extend(
                        x for x in column if isinstance(x, Event)
                    )
        elif isinstance(v, (Const, Func, Cls, Lib)):
            got = v if not isinstance(v, Const) else self.m.sym(self.m.vn(("like", key)), "element")
        elif isinstance(v, Obj):
            got = Obj(v.cls, self.m.vn(("like", key)), v.text)
            for name, val in v.fields.items():
                got.fields[name] = self.like(val, (key, name), v)
        else:
            got = self.m.sym(self.m.vn(("like", key)), getattr(v, "text", "element"))
        memo[key] = got
        return got

    def _like_stream(self, v: Stream, key: Key, owner: V) -> Stream:
        t = v.timeline
        if t.origin not in ("new", "elem"):
            return v
        name = t.name if "[" in t.name else t.name + "[...]"
        got = Timeline(name, "elem", t.site, t.lib, t.blocking, group=self.m.uid(owner))
        streams = (
            owner.items if isinstance(owner, Seq) else owner.items.values() if isinstance(owner, Map) else ()
        )
        got.members = frozenset(v.timeline for v in streams if isinstance(v, Stream))
        got.place = self.m.turns.get(key[2]) if isinstance(key, tuple) and len(key) > 2 else None
        return Stream(got)

    def _with_graph(self, v: V) -> bool:
        """Whether a value is a graph, or something that goes with one."""
        inner = v.items if isinstance(v, Seq) else v.fields.values() if isinstance(v, Obj) else [v]
        return any(isinstance(i, (Graph, Graphed)) for i in inner)

    def _picked(self, v: V, key: Key, owner: V) -> V:
        """The graph that a key picks: for each key that is not the same another one, as long as there are others."""
        taken = self.m.picked_graphs.setdefault(self.m.uid(owner), {})
        values = (
            list(owner.items.values())
            if isinstance(owner, Map)
            else owner.items
            if isinstance(owner, Seq)
            else [v]
        )
        i = taken.setdefault(key, len(taken))
        return values[i] if i < len(values) else v

    def map_key(self, m: Map, k: V) -> Key:
        key = self.m.key(k)
        self.m.map_keys[(self.m.uid(m), key)] = k
        return key

    def _kept(self, v: V, others: list[V], n: ast.AST) -> V:
        """What a display or a comprehension takes, beside what it has."""
        if not self.m.graphs:
            return v
        self.m.library.kept_beside(others, v, n, "a container")
        return self.m.library.stamp(v)

    def eval_seq(self, n: ast.Tuple | ast.List | ast.Set) -> V:
        items: list[V] = []
        self.m.walked.append(Seq(items))
        try:
            return self._display(n, items)
        finally:
            self.m.walked.pop()

    def _display(self, n: ast.Tuple | ast.List | ast.Set, items: list[V]) -> V:
        more = False
        for e in n.elts:
            if isinstance(e, ast.Starred):
                v = data_model.unpacked(self.m, self.m.eval(e.value), e)
                if isinstance(v, Seq):
                    items += v.items
                    more |= v.more
                else:
                    more = True
            else:
                items.append(self.m.eval(e))
        return Seq(
            items, "tuple" if isinstance(n, ast.Tuple) else "list" if isinstance(n, ast.List) else "set", more
        )

    def eval_dict(self, n: ast.Dict) -> V:
        m = Map({}, self.m.vn(("dict", len(self.m.vns))))
        for k, v in zip(n.keys, n.values, strict=False):
            value = self.m.eval(v)
            if k is None:
                value = data_model.contents(self.m, value)
                if isinstance(value, Map):
                    m.items.update(value.items)
                continue
            m.items[self.map_key(m, self.m.eval(k))] = value
        return m

    def eval_comp(self, n: ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp) -> V:
        out: list[V] = []
        m = Map({}, self.m.vn(("dict", len(self.m.vns))))
        saved = dict(self.m.frame.env)

        def take() -> None:
            if isinstance(n, ast.DictComp):
                k = self.m.eval(n.key)
                m.items[self.map_key(m, k)] = self._kept(self.m.eval(n.value), list(m.items.values()), n)
            else:
                out.append(self._kept(self.m.eval(n.elt), out, n))

        known = self._each(n.generators, 0, take, n)
        env = self.m.frame.env
        for k in [k for k in env if k not in saved]:
            del env[k]
        env.update(saved)
        return (
            m
            if isinstance(n, ast.DictComp)
            else Seq(out, "set" if isinstance(n, ast.SetComp) else "list", not known)
        )

    def _each(
        self, generators: list[ast.comprehension], i: int, take: Callable[[], None], n: ast.expr
    ) -> bool:
        """Go through what the clauses of a comprehension from the i-th on give.

        Args:
            take: called for each combination.

        Returns:
            Whether all are known that they give.
        """
        if i == len(generators):
            take()
            return True
        clause = generators[i]
        it = self.m.eval(clause.iter)
        known = (isinstance(it, Seq) and not it.more) or (
            isinstance(it, Range) and isinstance(it.stop, Const)
        )

        def given(v: V) -> None:
            nonlocal known
            self.m.assign(clause.target, v, n)
            if all(self.m.truth(c, True, flip=False) for c in clause.ifs):
                known &= self._each(generators, i + 1, take, n)

        if isinstance(it, Gen):
            self.m.run_generator(it, given, n)  # it is suspended where it yields: in its contexts, too
        else:
            for v in self.m.iterate(it, clause.iter):
                given(v)
        return known
