"""Executes one path of a program on unknown inputs.

`Machine` joins the parts: statements, loops, expressions, calls, containers, objects, conditions and lifetimes
work on one
`State`; `library` knows what torch, CuPy and Python do.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Any

from . import data_model
from .calls import Calls
from .conditions import Conditions
from .containers import Containers
from .expressions import Expressions
from .generators import Generators
from .lifetimes import Lifetimes
from .loops import Loops
from .models.library import Library
from .modules import Project
from .objects import Objects
from .source import Class, Function, Module
from .state import Broke, Continued, Frame, Raised, Returned, Spent, State, StopGenerator
from .statements import Statements
from .values import Func, Gen, Key, Map, Obj, V


class Machine(State):
    """One path.

    Args:
        project: the files.
        flips: by the number of a decision, how it comes out.
    """

    def __init__(self, project: Project, flips: dict[int, bool]) -> None:
        super().__init__(project, flips)
        self.lifetimes = Lifetimes(self)
        self.conditions = Conditions(self)
        self.containers = Containers(self)
        self.objects = Objects(self)
        self.calls = Calls(self)
        self.generators = Generators(self)
        self.loops = Loops(self)
        self.expressions = Expressions(self)
        self.statements = Statements(self)
        self._statements: dict[type[ast.AST], Callable[[Any], None]] = {
            **self.statements.table(),
            **self.loops.table(),
        }
        self._expressions: dict[type[ast.AST], Callable[[Any], V]] = {
            **self.expressions.table(),
            **self.containers.table(),
            **self.calls.table(),
            **self.generators.table(),
        }
        self.library = Library(self)

    def body(self, stmts: Iterable[ast.stmt]) -> None:
        table = self._statements
        for s in stmts:
            self.step()
            run = table.get(s.__class__)
            if run is not None:
                self.at = s
                run(s)

    def eval(self, n: ast.expr) -> V:
        evaluate = self._expressions.get(n.__class__)
        if evaluate is not None:
            return evaluate(n)
        for c in ast.iter_child_nodes(n):
            if isinstance(c, ast.expr):
                self.eval(c)
        return self.fresh("<value>")

    # ------------------------------------------------------------------ what the parts do
    def truth(self, node: ast.expr, default: bool = True, flip: bool = True) -> bool:
        return self.conditions.truth(node, default, flip)

    def truthy(self, v: V, default: bool, flip: bool, node: ast.AST | None = None) -> bool:
        return self.conditions.truthy(v, default, flip, node)

    def compare(self, op: ast.cmpop, a: V, b: V) -> bool | tuple[bool, Key]:
        return self.conditions.compare(op, a, b)

    def as_tensor(self, v: V) -> V:
        return self.conditions.as_tensor(v)

    def assign(self, t: ast.expr, v: V, s: ast.AST, aug: bool = False) -> None:
        self.statements.assign(t, v, s, aug)

    def name(self, id_: str) -> V:
        return self.expressions.name(id_)

    def global_name(self, m: Module, id_: str, full: str | None = None) -> V:
        return self.expressions.global_name(m, id_, full)

    def attribute(self, owner: V, attr: str, n: ast.AST) -> V:
        return self.objects.attribute(owner, attr, n)

    def has_attribute(self, owner: V, name: str) -> bool:
        """Whether the path has set an attribute, or a class defines it."""
        return data_model.has_attribute(self, owner, name)

    def element(self, v: V, index: V) -> V:
        return self.containers.element(v, index)

    def only_entry(self, v: Map, index: V) -> V | None:
        return self.containers.only_entry(v, index)

    def map_key(self, m: Map, k: V) -> Key:
        return self.containers.map_key(m, k)

    def iterate(self, it: V, node: ast.AST, rounds: int = 2) -> Iterator[V]:
        return self.loops.iterate(it, node, rounds)

    def materialised(self, it: V, node: ast.AST, rounds: int = 2) -> list[V]:
        return self.loops.materialised(it, node, rounds)

    def call_value(self, callee: V, args: list[V], kwargs: dict[str, V], n: ast.AST) -> V:
        return self.calls.call_value(callee, args, kwargs, n)

    def call_function(
        self, f: Func, args: list[V], kwargs: dict[str, V], n: ast.AST, force: bool = False
    ) -> V:
        return self.calls.call_function(f, args, kwargs, n, force)

    def run_generator(self, g: Gen, on_yield: Callable[[V], V | None], n: ast.AST) -> V:
        return self.generators.run_generator(g, on_yield, n)

    def next_of(self, g: Gen, n: ast.AST, default: V | None = None) -> V:
        return self.generators.next_of(g, n, default)

    def called_back(self, f: V, args: list[V], n: ast.AST) -> V:
        """Call what a library calls back; where that does not come to its end, nothing is known of what it gives."""
        try:
            return self.call_value(f, args, {}, n)
        except (Returned, Raised, Broke, Continued):
            return self.fresh("<callback>")

    def bind(self, f: Func, args: list[V], kwargs: dict[str, V]) -> dict[str, V]:
        return self.calls.bind(f, args, kwargs)

    def close(self) -> None:
        """End the generators that were not run to their end: what they do then is not shown."""
        count = len(self.hazards)
        for generator in self.suspended:
            with suppress(Raised, Returned, Broke, Continued, StopGenerator, Spent, RecursionError):
                generator.close()
        del self.hazards[count:]

    def instance(self, cls: Class, text: str) -> Obj:
        return self.objects.instance(cls, text)

    def typed(self, fn: Function, arg: ast.arg, text: str) -> V | None:
        return self.objects.typed(fn, arg, text)

    def released(self, s: ast.AST) -> None:
        self.lifetimes.released(s)

    def maybe_released(self, old: V, s: ast.AST, name: bool = False) -> None:
        self.lifetimes.maybe_released(old, s, name)

    def replaced(self, old: V, s: ast.AST, name: bool = False, assumptions: tuple[str, ...] = ()) -> None:
        self.lifetimes.replaced(old, s, name, assumptions)

    def lost(
        self,
        s: ast.AST,
        frame: Frame | None = None,
        more: Iterable[V] = (),
        only: set[int] | None = None,
        given: bool = True,
        assumptions: tuple[str, ...] = (),
    ) -> None:
        self.lifetimes.lost(s, frame, more, only, given, assumptions)

    def held(self, more: Iterable[V] = ()) -> set[int]:
        return self.lifetimes.held(more)
