"""The life of memory: which blocks something in sight still holds."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from .models.capture_state import Loss
from .source import Site
from .state import Frame, State
from .values import (
    Bound,
    Func,
    Future,
    Gen,
    Graphed,
    Lazy,
    Map,
    Obj,
    Partial,
    Seq,
    Sym,
    Tensor,
    V,
    Work,
    contents,
)


class Lifetimes:
    """What the path holds, and what it has let go of."""

    def __init__(self, state: State) -> None:
        self.m = state

    def maybe_released(self, old: V, s: ast.AST, name: bool = False) -> None:
        """Something means another thing than before: what it meant may be released."""
        if self.m.captured:
            self.replaced(old, s, name)
        if self.m.candidates and (
            isinstance(old, (Tensor, Seq, Map, Obj)) or (isinstance(old, Sym) and old.block is not None)
        ):
            self.released(s)

    def released(self, s: ast.AST) -> None:
        """Release the blocks that another stream has used and that nothing holds any more."""
        if not self.m.candidates:
            return
        held = self.held()
        for uid, block in list(self.m.candidates.items()):
            if uid not in held:
                del self.m.candidates[uid]
                self.m.library.free(block, s)

    def replaced(self, old: V, s: ast.AST, name: bool = False, assumptions: tuple[str, ...] = ()) -> None:
        """A name, an attribute or an element means something else: is the memory of a graph lost with what it meant?"""
        mine: set[int] = self.m.library.blocks_in(old)
        if not self.m.captured.keys().isdisjoint(mine):
            given = name and not (isinstance(old, Sym) and old.hint == "param" and self.m.capture is None)
            self.lost(s, only=mine, given=given, assumptions=assumptions)

    def lost(
        self,
        s: ast.AST,
        frame: Frame | None = None,
        more: Iterable[V] = (),
        only: set[int] | None = None,
        given: bool = True,
        assumptions: tuple[str, ...] = (),
    ) -> None:
        """Which memory of graphs the program holds no more, since something was replaced, or a function has returned.

        Args:
            frame: that of the function.
            more: values that are held by an expression.
            only: what was replaced.
            given: whether somebody else holds what this code has not made.
        """
        held = self.held([*more, *self.m.returned])
        for uid, block in list(self.m.captured.items()):
            if uid in held or (not block.seen and (given or uid not in (only or ()))):
                continue
            del self.m.captured[uid]
            site = self._bound_at(frame, uid) or block.home if frame is not None else self.m.site(s)
            theirs = not block.seen and isinstance(s, ast.Assign) and isinstance(s.targets[0], ast.Name)
            block.lost = Loss(site, self.m.seq, (*assumptions, "given") if theirs else assumptions)

    def _bound_at(self, frame: Frame, uid: int) -> Site | None:
        """Where the name was bound by which a function held a block."""
        for name, v in frame.env.items():
            if uid in self.m.library.blocks_in(v) and name in frame.sites:
                return (frame.module, frame.sites[name])
        return None

    def held(self, more: Iterable[V] = ()) -> set[int]:
        """The numbers of the blocks that something in sight holds."""
        m = self.m
        seen: set[V] = set()
        blocks: set[int] = {m.library.grads.uid, *(b.uid for b in m.library.module_blocks.values())}
        todo: list[V] = [
            *more,
            *m.walked,
            *m.globals.values(),
            *m.fields.values(),
            *m.memo.values(),
            *m.roots,
        ]
        for thread in m.paused:
            todo += thread.walked
        for f in (*m.frames, *(f for thread in m.paused for f in thread.frames)):
            todo += f.env.values()
            for c in f.enclosing():
                todo += c.env.values()
        while todo:
            while todo:
                v = todo.pop()
                if v in seen:
                    continue
                seen.add(v)
                if isinstance(v, (Tensor, Sym)):
                    if v.block is not None:
                        blocks.add(v.block.uid)
                else:
                    todo += _inside(v)
            todo = [v for k, v in m.likes.items() if v not in seen and m.like_of[k] in seen]
        return blocks


def _inside(v: V) -> Iterable[V]:
    """What a value holds."""
    if isinstance(v, (Seq, Map, Obj)):
        return contents(v)
    if isinstance(v, (Lazy, Partial)):
        return [a for a in v.args if isinstance(a, V)]
    if isinstance(v, Graphed):
        return [*v.inputs, v.result]
    if isinstance(v, Gen):
        return [*v.args, *v.frame.env.values()] if v.frame is not None else v.args
    if isinstance(v, Func):
        return [
            *([v.self_] if v.self_ is not None else ()),
            *(v.closure.env.values() if v.closure is not None else ()),
            *v.defaults.values(),
        ]
    if isinstance(v, Work):
        return [v.tensor] if v.tensor is not None else []
    if isinstance(v, Future):
        return [v.value]
    if isinstance(v, Bound):
        return [v.receiver]
    return ()
