"""The graph of one function while it is being lowered: the current block, its handler, and what a jump has to leave."""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from streamsafe.static.syntax.ir import (
    Assume,
    AssumeKind,
    Block,
    Const,
    Edge,
    Function,
    Host,
    Instr,
    Opaque,
    Reg,
    Span,
)
from streamsafe.static.syntax.scopes import Definition, Scope


class Definitions(Protocol):
    """Who names the functions and classes that are defined inside what is lowered, and lowers them when asked for."""

    def define_function(self, node: Definition, around: Builder) -> str:
        """The id of a function or a lambda."""

    def define_class(self, node: ast.ClassDef, around: Builder) -> str:
        """The id of a class."""


@dataclass(slots=True)
class Loop:
    """A loop around the current block, and where its ``continue`` and ``break`` go."""

    head: int
    end: int


@dataclass(slots=True)
class Cleanup:
    """What runs on the way out: the exit of a context, or a ``finally``; ``handler`` is that outside of it."""

    run: Callable[[Builder], None]
    handler: int | None


@dataclass(slots=True)
class Builder:
    """A function being lowered.

    Attributes:
        fn: what comes out.
        package: the package that relative imports start from.
        scopes: innermost last: the function's own, then those of comprehensions and class bodies around the position.
        around: loops and cleanups around the position, innermost last.
        at_module: whether this is the body of a module: its names are globals.
        here: the current block; None where control does not reach.
        handler: where an exception goes from here.
        caught: registers of the exceptions being handled, innermost last.
        classes: names of the classes around the position, innermost last.
        rebound: names that an operand must not be read from late (:func:`~.scopes.rebound_names`).
        depth: how deep the expression is nested that is being lowered.
    """

    fn: Function
    definitions: Definitions
    package: str
    scopes: list[Scope]
    at_module: bool = False
    here: int | None = 0
    handler: int | None = None
    around: list[Loop | Cleanup] = field(default_factory=list)
    caught: list[Reg] = field(default_factory=list)
    classes: list[str] = field(default_factory=list)
    rebound: frozenset[str] | set[str] = frozenset()
    depth: int = 0
    _temporaries: int = 0
    _names: int = 0
    _last: tuple[ast.AST | None, int] = (None, -1)
    _reached: set[int] = field(default_factory=set)

    def temp(self) -> int:
        """A new temporary."""
        self._temporaries += 1
        return self._temporaries

    def rename(self, name: str) -> str:
        """A register for a name of a comprehension or of a class body."""
        self._names += 1
        return f"{name}'{self._names}"

    def at(self, node: ast.AST) -> int:
        """The index of a node's span."""
        if self._last[0] is node:
            return self._last[1]
        line = getattr(node, "lineno", 0)
        column = getattr(node, "col_offset", 0)
        spans = self.fn.spans
        spans.append(
            Span(
                line,
                column,
                getattr(node, "end_lineno", line) or line,
                getattr(node, "end_col_offset", column) or 0,
            )
        )
        self._last = (node, len(spans) - 1)
        return len(spans) - 1

    def emit(self, instr: Instr) -> None:
        """Append to the current block; nothing where control does not reach."""
        if self.here is not None:
            self.fn.blocks[self.here].instrs.append(instr)

    def const(self, value: object, node: ast.AST) -> Reg:
        """A register that holds a constant."""
        dst = self.temp()
        self.emit(Const(dst, value, self.at(node)))
        return dst

    def opaque(self, node: ast.AST) -> Reg:
        """A register of which nothing is known."""
        dst = self.temp()
        self.emit(Opaque(dst, self.at(node)))
        return dst

    def host(self, src: Reg, node: ast.AST) -> None:
        """The host looks at a value."""
        self.emit(Host(src, self.at(node)))

    # -- blocks ----------------------------------------------------------------------------------------------------
    def block(self) -> int:
        """A new block."""
        self.fn.blocks.append(Block())
        return len(self.fn.blocks) - 1

    def edge(self, target: int, assume: Assume | None = None, back: bool = False) -> None:
        """An edge from the current block."""
        if self.here is not None:
            self.fn.blocks[self.here].edges.append(Edge(target, assume, back))
            self._reached.add(target)

    def go(self, target: int, back: bool = False) -> None:
        """End the current block with a jump."""
        self.edge(target, None, back)
        self.here = None

    def start(self, block: int, anyway: bool = False) -> None:
        """Go on at a block, if an edge leads to it (or ``anyway``); exceptions in it go to the present handler."""
        self.here = block if anyway or block in self._reached else None
        self.fn.blocks[block].handler = self.handler

    def split(self) -> None:
        """Go on in a new block, since the handler has changed."""
        if self.here is not None:
            block = self.block()
            self.go(block)
            self.start(block)

    def choose(
        self, kind: AssumeKind, reg: Reg, other: object, yes: int, no: int, swap: bool = False
    ) -> None:
        """End the current block with two edges."""
        self.edge(yes, Assume(kind, reg, other, not swap))
        self.edge(no, Assume(kind, reg, other, swap))
        self.here = None

    def leave(self, depth: int) -> None:
        """Run the cleanups above ``depth``, innermost first, as a jump out of them does."""
        around, handler = self.around, self.handler
        for i in range(len(around) - 1, depth - 1, -1):
            frame = around[i]
            if isinstance(frame, Cleanup) and self.here is not None:
                self.around = around[:i]
                self.handler = frame.handler
                self.split()
                frame.run(self)
        self.around = around
        self.handler = handler
