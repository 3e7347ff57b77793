"""Loops: how many rounds are run, and what an iterable gives."""

from __future__ import annotations

import ast
import itertools
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import lru_cache
from typing import Any

from . import data_model
from .source import Module, dotted
from .state import MAX_ITEMS, MAX_ROUNDS, Broke, Continued, Raised, State, StopGenerator
from .values import Const, Event, Func, Gen, Lazy, Map, Obj, Params, Range, Seq, Sym, Tensor, Thread, V

_WAITS = frozenset("synchronize wait wait_event wait_stream join result".split())
_END = Const(None)


class Loops:
    """Runs loops, and goes through iterables."""

    def __init__(self, state: State) -> None:
        self.m = state

    def table(self) -> dict[type[ast.AST], Callable[[Any], None]]:
        """What runs each kind of statement."""
        return {ast.While: self.run_while, ast.For: self.run_for, ast.AsyncFor: self.run_for}

    def run_while(self, s: ast.While) -> None:
        rounds = self._rounds(s.body)
        for i in range(MAX_ROUNDS):
            value = self.m.eval(s.test)
            known = known_truth(value)
            if known is False and (i or not self._filled_elsewhere(s.test)):
                break
            if isinstance(value, Tensor):
                self.m.library.host_value(value, s.test, "while")
            if not known or isinstance(s.test, ast.Constant):
                if i >= rounds:
                    break
                self._suppose(s.test, True)
            try:
                self.m.body(s.body)
            except Continued:
                pass
            except Broke:
                return
        if not isinstance(s.test, ast.Constant):
            self._suppose(s.test, False)
            self.m.body(s.orelse)

    def _suppose(self, test: ast.expr, value: bool) -> None:
        """A loop goes on or ends because a condition has a value, which says nothing of the next round."""
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            self._suppose(test.operand, not value)
        elif isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And if value else ast.Or):
            for part in test.values:
                self._suppose(part, value)
        elif isinstance(test, (ast.Call, ast.Attribute)) and value:
            v = self.m.eval(test)
            if isinstance(v, Sym):
                self.m.learned(("truth", self.m.key(v)), True)

    def _filled_elsewhere(self, test: ast.expr) -> bool:
        """Whether a condition is about a list that nothing has been put into yet."""
        for n in ast.walk(test):
            if isinstance(n, (ast.Name, ast.Attribute)):
                v = self.m.eval(n)
                if isinstance(v, Seq) and not v.items and not v.used:
                    return True
        return False

    def _rounds(self, body: list[ast.stmt]) -> int:
        got = self.m.frame.module.rounds.get(body[0])
        if got is not None:
            return got
        rounds = (
            3
            if self.m.frame.module.strong(*body)
            or self._calls_strong(body)
            or any(isinstance(n, ast.Yield) for st in body for n in ast.walk(st))
            else 2
        )
        for st in body:
            for n in ast.walk(st):
                if isinstance(n, ast.BinOp) and isinstance(n.op, ast.Mod):
                    right = n.right
                    if isinstance(right, ast.Constant) and isinstance(right.value, int) and right.value <= 4:
                        rounds = max(rounds, right.value + 1)
                    else:
                        rounds = max(rounds, 3)
                elif (
                    isinstance(n, ast.Compare)
                    and isinstance(n.left, ast.Call)
                    and dotted(n.left.func) == "len"
                ):
                    right = n.comparators[0]
                    if isinstance(right, ast.Constant) and isinstance(right.value, int) and right.value <= 4:
                        rounds = max(rounds, right.value + 3)  # until a container is as full as that
        self.m.frame.module.rounds[body[0]] = rounds
        return rounds

    def _calls_strong(self, body: list[ast.stmt]) -> bool:
        """Whether a loop calls functions of the file that have to do with streams."""
        module, function = self.m.frame.module, self.m.frame.function
        cls = function.cls if function is not None else None
        words = frozenset[str]().union(*map(module.words, body))
        called = [
            module.functions.get(w) or (cls.method(w) if cls is not None else None) for w in sorted(words)
        ]
        return any(f is not None and f.strong for f in called)

    def run_for(self, s: ast.For | ast.AsyncFor) -> None:
        it = self._iterator(self.m.eval(s.iter))
        if isinstance(it, Sym) and _by_key(s):
            it = Lazy("keys", [it])
        if isinstance(it, Gen) and it.suspended is None:
            try:
                self.m.run_generator(it, lambda v: self._loop_body(s, v), s)
            except Broke:
                return
            self.m.body(s.orelse)
            return
        if self._has_no_round(it, s):
            self.m.body(s.orelse)
            return
        self._as_many_rounds_as_run(it, s)
        self.m.walked.append(it)
        times, self.m.times = self.m.times, self.m.times * self._rounds_for_one(it, s)
        pinning = Thread()
        pinning.running = pinning.unsafe = isinstance(it, Sym) and it.vn in self.m.pinning
        self.m.threads.append(pinning)
        try:
            for v in self.iterate(it, s.iter, self._rounds(s.body)):
                self._loop_body(s, v)
            for v in self._later_rounds(it, s):
                self._loop_body(s, v)
        except Broke:
            return
        except StopGenerator:
            return
        finally:
            self.m.walked.pop()
            self.m.times = times
            pinning.running = False
        if self.m.timing and not isinstance(it, Seq):
            self._recorded_later(s)
        self.m.body(s.orelse)

    def _iterator(self, it: V) -> V:
        """What a loop asks for values: of an object whose `__iter__` is a generator, that."""
        begin = it.cls.method("__iter__") if isinstance(it, Obj) else None
        return Gen(Func(begin, it), [], {}) if begin is not None and begin.generator else it

    def _has_no_round(self, it: V, s: ast.For | ast.AsyncFor) -> bool:
        """Whether a loop of an unknown number of rounds, which waits for something, is taken to have none."""
        counts = isinstance(it, Range) and isinstance(it.start, Const) and it.start.value == 0
        count = it.stop if isinstance(it, Range) and counts else it
        if not isinstance(count, Sym) or count.block is not None:
            return False
        words = frozenset[str]().union(*map(self.m.frame.module.words, s.body))
        named = {n.id for n in ast.walk(s.target) if isinstance(n, ast.Name)}
        by_round = not named.isdisjoint(words)  # what there is one of for each round
        if words & _WAITS and not by_round and self.m.order.ticks:
            return not self.m.truthy(count, True, True)
        if counts:  # a later loop over as many has rounds, too
            self.m.conds.setdefault(("truth", self.m.key(count)), True)
        return False

    def _as_many_rounds_as_run(self, it: V, s: ast.For | ast.AsyncFor) -> None:
        """Of a range with an unknown end: that it ends after the rounds that are run, unless the path knows better."""
        if not (isinstance(it, Range) and isinstance(it.start, Const) and isinstance(it.start.value, int)):
            return
        if isinstance(it.stop, Const) or asked_rounds(self.m.frame.module, s):
            return
        count = self._round_count(it.start.value, it.stop, self._rounds(s.body))
        numbers, stop, end = self.m.numbers, self.m.key(it.stop), self.m.key(Const(it.start.value + count))
        if numbers.less(stop, end) is None and numbers.less(end, stop) is None:
            numbers.learn_less(stop, end, False)
            numbers.learn_less(end, stop, False)

    def _steps(self, it: Range, rounds: int) -> Iterator[V]:
        """The numbers of a range that counts in steps."""
        assert it.step is not None
        if all(isinstance(v, Const) and isinstance(v.value, int) for v in (it.start, it.stop, it.step)):
            numbers = range(it.start.value, it.stop.value, it.step.value or 1)  # type: ignore[attr-defined]
            yield from map(Const, numbers[: rounds + 2])
            return
        number = it.start
        for _ in range(rounds):
            yield number
            number = self.m.library.plus(number, it.step)

    def _another(self, i: int, stop: Any) -> bool:
        """Whether there is a round with a number, which the path knows from then on; not where it knows otherwise."""
        numbers, number = self.m.numbers, self.m.key(Const(i))
        if numbers.less(number, stop) is False:
            return False
        numbers.learn_less(number, stop, True)
        return True

    def _round_count(self, start: int, stop: V, rounds: int) -> int:
        """How many rounds of a range with an unknown end are run: no more than the path knows that there are."""
        key = self.m.key(stop)
        while rounds > 0 and self.m.numbers.less(self.m.key(Const(start + rounds - 1)), key) is False:
            rounds -= 1
        return rounds

    def _recorded_later(self, s: ast.For | ast.AsyncFor) -> None:
        """The events of a container that a round of a loop records which was not run."""
        named = frozenset[str]().union(*map(self.m.frame.module.words, s.body))
        if not named & {"record", "record_event"}:
            return
        for name in named & self.m.frame.env.keys():
            v = self.m.frame.env[name]
            for e in v.items if isinstance(v, Seq) else ():
                if isinstance(e, Event) and e.snapshot is None:
                    e.unknown = True

    def _rounds_for_one(self, it: V, s: ast.For | ast.AsyncFor) -> float:
        """How many rounds of a loop there are for each that is run."""
        if isinstance(it, Seq) and not it.more:
            return 1.0
        if not (
            isinstance(it, Range)
            and isinstance(it.start, Const)
            and isinstance(it.stop, Const)
            and isinstance(it.stop.value, int)
        ):
            return float("inf")
        count: int = max(it.stop.value - it.start.value, 0)
        return max(1.0, count / (self._rounds(s.body) + 2))

    def _later_rounds(self, it: V, s: ast.For | ast.AsyncFor) -> Iterator[V]:
        """The numbers of later rounds that a loop asks for."""
        if not (isinstance(it, Range) and isinstance(it.start, Const)) or (
            isinstance(it.stop, Const) and not isinstance(it.stop.value, int)
        ):
            return
        stop = it.stop.value if isinstance(it.stop, Const) else 1 << 30
        for i in asked_rounds(self.m.frame.module, s):
            if it.start.value + self._rounds(s.body) + 2 <= i < stop:
                yield Const(i)

    def _loop_body(self, s: ast.For | ast.AsyncFor, v: V) -> None:
        self.m.assign(s.target, v, s)
        with suppress(Continued):
            self.m.body(s.body)

    def iterate(self, it: V, node: ast.AST, rounds: int = 2) -> Iterator[V]:
        """The values that an iterable gives, as far as they are followed."""
        if isinstance(it, Seq):
            items = list(it.items)
            if it.more or (
                not items and it.limit == "open" and not it.used
            ):  # as they are before the first round
                items += [self.m.element(it, Const(i)) for i in range(len(items), rounds)]
            yield from items
            return
        if isinstance(it, Map):
            for k in list(it.items):
                yield self._unkey(k, it)
            return
        if isinstance(it, Range):
            start = it.start.value if isinstance(it.start, Const) else None
            stop = it.stop.value if isinstance(it.stop, Const) else None
            if it.step is not None:
                yield from self._steps(it, rounds)
            elif start is not None:
                n = (
                    self._round_count(start, it.stop, rounds)
                    if stop is None
                    else min(stop - start, rounds + 2)
                )
                for i in range(n):
                    if stop is None and not self._another(start + i, self.m.key(it.stop)):
                        return
                    yield Const(start + i)
            else:
                for i in range(rounds):
                    yield self.m.sym(self.m.vn(("range", it.vn, i)), "index")
            return
        if isinstance(it, Lazy):
            if it.kind == "enumerate":
                base = (
                    it.args[1].value
                    if len(it.args) > 1
                    and isinstance(it.args[1], Const)
                    and isinstance(it.args[1].value, int)
                    else 0
                )
                for i, v in enumerate(self.iterate(it.args[0], node, rounds)):
                    yield Seq([Const(base + i), v], "tuple")
            elif it.kind == "zip":
                rounds = max([rounds, *(len(a.items) for a in it.args if isinstance(a, Seq))])
                its = [self.iterate(a, node, rounds) for a in it.args]
                for _ in range(MAX_ITEMS if its else 0):
                    row: list[V] = []
                    for x in its:
                        got = next(x, None)
                        if got is None:
                            return
                        row.append(got)
                    yield Seq(row, "tuple")
            elif it.kind == "reversed":
                yield from reversed(self.materialised(it.args[0], node, rounds))
            elif it.kind in ("items", "values", "keys"):
                m = it.args[0]
                if isinstance(m, Map):
                    for k in list(m.items):
                        key = self._unkey(k, m)
                        yield {"items": Seq([key, m.items[k]], "tuple"), "values": m.items[k], "keys": key}[
                            it.kind
                        ]
                else:
                    for i in range(self.m.lengths.setdefault(self.m.key(m), rounds)):
                        k = self.m.sym(self.m.vn(("key", self.m.key(m), i)), "key")
                        v = self.m.element(m, k)
                        yield {"items": Seq([k, v], "tuple"), "values": v, "keys": k}[it.kind]
            elif it.kind == "iter":
                yield from self.iterate(it.args[0], node, rounds)
            elif it.kind == "cycle":
                for _ in range(MAX_ROUNDS):
                    yield self.m.library.next_in_turn(it)
            elif it.kind == "calls":
                for _ in range(rounds):
                    yield self.m.call_value(it.args[0], [], {}, node)
            return
        if isinstance(it, Const):
            return
        if isinstance(it, Gen):
            while (got := self.m.next_of(it, node, _END)) is not _END:
                yield got
            return
        if isinstance(it, Params):
            for i in range(rounds):
                yield self.m.library.parameter(it, i)
            return
        if isinstance(it, Obj):
            generator = self._iterator(it)
            if generator is not it:
                yield from self.iterate(generator, node, rounds)
                return
            begin = it.cls.method("__iter__")
            n = it.cls.method("__next__") or it.cls.method("next")
            if n is not None:
                if begin is not None:
                    self.m.call_function(Func(begin, it), [], {}, node)
                for _ in range(rounds):
                    try:
                        yield self.m.call_function(Func(n, it), [], {}, node)
                    except Raised:
                        return
                return
            held = data_model.contents(self.m, it)
            if held is not it:
                yield from self.iterate(held, node, rounds)
                return
        if isinstance(it, Tensor):
            for i in range(rounds):
                yield self.m.library.view(it, (("i", i),))
            return
        base = self.m.key(it)
        rounds = self.m.lengths.setdefault(base, rounds)  # as many as the last time
        length = ("v", self.m.vn(("len", base)))
        for i in range(rounds):
            if not self._another(i, length):
                return
            if isinstance(it, Sym) and it.block is not None:
                yield self.m.library.view(self.m.library.tensor(it), (("i", i),))
            else:
                v = (
                    self.m.element(it, Const(i))
                    if isinstance(it, Sym)
                    else self.m.sym(self.m.vn(("iter", base, i)), "element", "element")
                )
                if isinstance(it, Sym) and it.hint == "result" and isinstance(v, Sym):
                    self.m.loaded.add(v.vn)
                yield v

    def materialised(self, it: V, node: ast.AST, rounds: int = 2) -> list[V]:
        """What an iterable gives, as far as it is followed, as a list."""
        return list(itertools.islice(self.iterate(it, node, rounds), MAX_ITEMS))

    def _unkey(self, k: Any, m: Map) -> V:
        if isinstance(k, tuple) and k and k[0] == "c":
            return Const(k[2])
        return self.m.map_keys.get((self.m.uid(m), k)) or self.m.sym(self.m.vn(("mapkey", k)), "key")


@lru_cache(maxsize=4096)
def _by_key(s: ast.For | ast.AsyncFor) -> bool:
    """Whether a loop picks elements of what it goes through by what it is given: these are keys."""
    if not isinstance(s.target, ast.Name) or not isinstance(s.iter, (ast.Name, ast.Attribute)):
        return False
    name, whole = s.target.id, ast.unparse(s.iter)
    return any(
        isinstance(n, ast.Subscript)
        and isinstance(n.slice, ast.Name)
        and n.slice.id == name
        and ast.unparse(n.value) == whole
        for x in s.body
        for n in ast.walk(x)
    )


def asked_rounds(module: Module, s: ast.For | ast.AsyncFor) -> list[int]:
    """The numbers that the body of a loop compares with, and those of the rounds that a remainder picks."""
    got = module.asked_rounds.get(s)
    if got is None:
        found: set[int] = set()
        for n in (x for st in s.body for x in ast.walk(st)):
            if isinstance(n, ast.Compare):
                constants = [
                    x.value
                    for x in (n.left, *n.comparators)
                    if isinstance(x, ast.Constant) and type(x.value) is int
                ]
                found |= {c + k for c in constants for k in (0, 1)}
            elif (
                isinstance(n, ast.BinOp)
                and isinstance(n.op, ast.Mod)
                and isinstance(n.right, ast.Constant)
                and type(n.right.value) is int
            ):
                found |= {n.right.value - 1, n.right.value}
        got = module.asked_rounds[s] = sorted(found)[:6]
    return got


def known_truth(v: V) -> bool | None:
    """Whether something is true, where that is known."""
    if isinstance(v, Const):
        return bool(v.value)
    if isinstance(v, Seq) and not v.more and (v.items or v.limit != "open"):
        return bool(v.items)
    if isinstance(v, Map) and v.items:
        return True
    return None
