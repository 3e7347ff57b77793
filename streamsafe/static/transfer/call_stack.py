"""The call stack of the interpretation: calls under way, their scopes, and the values that they still hold."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import libcst as cst

from streamsafe.static.facts import Site
from streamsafe.static.source import FunctionUnit, Slice
from streamsafe.static.state import State
from streamsafe.static.transfer.loops import Loop
from streamsafe.static.transfer.part import Part
from streamsafe.static.values import Name, Value

if TYPE_CHECKING:
    from streamsafe.static.transfer.run_state import RunState


MODULE = Name("module")


@dataclass(eq=False)
class Activation:
    """A call that is being interpreted.

    Attributes:
        frame: the scope of its names.
        path: the call sites that lead here.
        returns: the states and values with which it ends.
        temporaries: values of the statement under way that have no name yet.
        held: what enclosing statements hold on to: iterables, context managers.
        on_yield: what the consumer does with a yielded value, None when nobody is seen to consume.
        consumer: the loop or call that consumes.
    """

    frame: Name
    unit: FunctionUnit | None
    slice: Slice
    path: tuple[Hashable, ...] = ()
    returns: list[tuple[State, Value]] = field(default_factory=list)
    loops: list[Loop] = field(default_factory=list)
    tried: int = 0
    """How many ``try`` statements stand around."""
    on_yield: Callable[[Value, State], Value] | None = None
    consumer: cst.CSTNode | None = None
    outer: set[str] = field(default_factory=set)
    temporaries: list[Value] = field(default_factory=list)
    held: list[Value] = field(default_factory=list)


class CallStack(Part):
    """The calls under way, from the entry to the innermost one."""

    def __init__(self, run: RunState) -> None:
        super().__init__(run)
        self.sites: dict[int, Site] = {}
        """By node, its place."""

    @property
    def activation(self) -> Activation:
        """The call being interpreted."""
        return self.run.stack[-1]

    def site(self, node: cst.CSTNode) -> Site:
        """A node of the current slice, as a place."""
        return self.site_in(self.run.stack[-1].slice, node)

    def site_in(self, slice_: Slice, node: cst.CSTNode) -> Site:
        """A node of a slice, as a place."""
        found = self.sites.get(id(node))
        if found is None:
            found = self.sites[id(node)] = Site(slice_, node)
        return found

    def frames(self) -> Iterator[Name]:
        """The scopes that are alive, and the objects that callers hold."""
        yield MODULE
        yield from self.run.protocol_roots
        for activation in self.live_activations():
            frame: Name | None = activation.frame
            while frame is not None:
                yield frame
                frame = self.run.closures.get(frame)

    def suspended(self) -> Iterator[Value]:
        """Values that callers, and statements under way, still hold."""
        for activation in self.live_activations():
            yield from activation.temporaries
            yield from activation.held

    def callers_hold(self) -> Iterator[Value]:
        """Values that nobody but callers and enclosing statements holds."""
        for activation in self.live_activations():
            yield from activation.held
            if activation is not self.activation:
                yield from activation.temporaries

    def live_activations(self) -> Iterator[Activation]:
        """Calls under way, generators that wait for their consumer among them."""
        yield from self.run.stack
        for paused in self.run.paused:
            yield from paused

    @contextmanager
    def exits(self, on_exit: Callable[[State], None]) -> Iterator[None]:
        """Run ``on_exit`` on every state that leaves a block early."""
        activation = self.activation
        returns, activation.returns = activation.returns, []
        loop = activation.loops[-1] if activation.loops else None
        marks = (len(loop.breaks), len(loop.continues)) if loop else (0, 0)
        try:
            yield
        finally:
            left, activation.returns = activation.returns, returns
            for state, value in left:
                activation.temporaries.append(value)
                on_exit(state)
                if not state.dead:
                    activation.returns.append((state, value))
            if loop is not None:
                for states, mark in ((loop.breaks, marks[0]), (loop.continues, marks[1])):
                    for state in states[mark:]:
                        on_exit(state)
