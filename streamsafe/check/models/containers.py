"""Lists, tuples, deques and mappings."""

from __future__ import annotations

from ..values import (
    NONE,
    Const,
    Lazy,
    Map,
    Seq,
    V,
)
from .path import Args, Kwargs, Node
from .threads import Threads


class Containers(Threads):
    """Lists, tuples, deques and mappings."""

    def seq_method(self, r: Seq, name: str, args: Args, kwargs: Kwargs, n: Node) -> V:
        m = self.m
        r.used = True
        if r.kind == "queue":
            return self.queue_method(r, name, args, n)
        if name in ("append", "add"):
            if args:
                self.kept_beside(r.items, args[0], n, name)
                r.items.append(self.stamp(args[0]) if m.graphs else args[0])
            if isinstance(r.limit, int) and len(r.items) > r.limit:
                del r.items[0]
            elif len(r.items) > 12:
                del r.items[0]
                r.more = True
            return NONE
        if name in ("appendleft", "extendleft") and args:
            more = args[0].items if name == "extendleft" and isinstance(args[0], Seq) else args
            r.items[:0] = reversed(more)
            if isinstance(r.limit, int):
                del r.items[r.limit :]
            return NONE
        if name == "extend" and args:
            if isinstance(args[0], Seq):
                r.items += args[0].items
                r.more |= args[0].more
            return NONE
        if name == "insert" and len(args) > 1:
            r.items.insert(0, args[1])
            return NONE
        if name in ("pop", "popleft"):
            if r.items:
                if name == "popleft" or (args and isinstance(args[0], Const) and args[0].value == 0):
                    v = r.items.pop(0)
                else:
                    v = r.items.pop()
                return v
            return m.fresh("<popped>", "element")
        if name == "rotate" and r.items:
            by = args[0].value if args and isinstance(args[0], Const) else 1
            r.items[:] = [*r.items[-by % len(r.items) :], *r.items[: -by % len(r.items)]]
            return NONE
        if name == "clear":
            r.items.clear()
            m.released(n)
            return NONE
        if name == "copy":
            return Seq(list(r.items), r.kind, r.more)
        if name in ("index", "count"):
            return m.fresh(name, "index")
        return m.fresh(name)

    def map_method(self, r: Map, name: str, args: Args, kwargs: Kwargs, n: Node) -> V:
        m = self.m
        if name in ("items", "values", "keys"):
            return Lazy(name, [r])
        if name in ("get", "setdefault", "pop"):
            if args:
                k = m.key(args[0])
                if k in r.items:
                    v = r.items[k]
                    if name == "pop":
                        del r.items[k]
                    return v
                if name == "setdefault" and len(args) > 1:
                    r.items[m.map_key(r, args[0])] = args[1]
                    return args[1]
                if name == "pop" and m.only_entry(r, args[0]) is not None:
                    return r.items.popitem()[1]
            if name == "get" and not r.items:
                return m.sym(m.vn(("get", id(r), m.key(args[0]) if args else None)), "<got>", "element")
            return m.element(r, args[0]) if args else m.fresh("<got>")
        if name == "update":
            old = Seq(list(r.items.values()))
            if args and not (
                isinstance(args[0], Map) and all(k[0] == "c" or k in r.items for k in args[0].items)
            ):
                self.unknown_keys(r, args[0], n)
            if args and isinstance(args[0], Map):
                r.items.update(args[0].items)
            m.maybe_released(old, n)
            return NONE
        if name == "clear":
            r.items.clear()
            m.released(n)
            return NONE
        if name == "copy":
            return Map(dict(r.items), m.vn(("dict", len(m.vns))))
        return m.fresh(name)

    def next_in_turn(self, cycle: Lazy) -> V:
        of, turn = cycle.args
        assert isinstance(of, Seq) and isinstance(turn, Const)
        cycle.args[1] = Const(turn.value + 1)
        number: int = turn.value
        return of.items[number % len(of.items)]
