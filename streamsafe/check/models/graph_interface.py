"""What a capture and the replays of graphs ask of each operation; the models of graphs fill it in."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import Any

from ..program import Block, Timeline
from ..values import Graph, Sym, Tensor, V
from .path import Args, Kwargs, Node, Path


class GraphInterface:
    """The questions that the other models ask where a graph is captured or replayed."""

    m: Path

    def capturing(self, t: Timeline | None = None) -> Any:
        """The capture that a stream is part of, if any."""
        raise NotImplementedError

    def eager_inside(self, t: Timeline, tensors: list[Tensor], node: Node, lib: str) -> None:
        """Work of a stream that is no part of the capture under way."""
        raise NotImplementedError

    def host_in_capture(self, block: Block, write: bool, node: Node) -> None:
        """The host touches memory during a capture."""
        raise NotImplementedError

    def captured_arguments(self, values: Args) -> list[Tensor]:
        """What a capture gives to an unknown call and may be a tensor."""
        raise NotImplementedError

    def captured_arithmetic(
        self, values: Args, node: ast.BinOp | ast.AugAssign, write: Args = ...
    ) -> V | None:
        """An operator during a capture, of what may be tensors."""
        raise NotImplementedError

    def overlaid(self, t: Tensor) -> None:
        """A result of a replay is read."""
        raise NotImplementedError

    def enter(self, ctx: V, node: Node) -> Any:
        """Enter a context; give what `leave` needs."""
        raise NotImplementedError

    def leave(self, opened: Any, node: Node) -> None:
        """Leave a context that `enter` has opened."""
        raise NotImplementedError

    def several_replays(self, held: Sequence[V], node: Node, op: str) -> None:
        """Things are used together that may be results of several replays."""
        raise NotImplementedError

    def kept_beside(self, others: Args, v: V, node: Node, op: str) -> None:
        """A container takes something more."""
        raise NotImplementedError

    def unknown_keys(self, owner: Any, new: V, node: Node) -> None:
        """Entries with unknown keys replace what a mapping holds."""
        raise NotImplementedError

    def stamp(self, v: V) -> V:
        """A reference that is taken now means what the last replay has computed."""
        raise NotImplementedError

    def beside(self) -> None:
        """This thread does what no thread may do during a capture in the global mode."""
        raise NotImplementedError

    def query(self, what: str, t: Timeline | None, n: Node) -> None:
        """The state of a stream or an event is asked for."""
        raise NotImplementedError

    def begin_capture(
        self,
        graph: V | None,
        stream: V | None,
        node: Node,
        lib: str = ...,
        explicit: bool = ...,
        options: Kwargs | None = ...,
    ) -> Any:
        raise NotImplementedError

    def end_capture(self, node: Node) -> None:
        raise NotImplementedError

    def host_function(self, t: Timeline, f: V, args: Args, kwargs: Kwargs, n: Node) -> None:
        """A stream is given a function of the host to call."""
        raise NotImplementedError

    def graph_of(self, v: V | None) -> Graph:
        raise NotImplementedError

    def pool_of(self, g: Graph) -> V:
        raise NotImplementedError

    def replay(self, g: Graph, node: Node, lib: str = ..., t: Timeline | None = ...) -> None:
        raise NotImplementedError

    def gradients_lost(self, old: Block, node: Node) -> None:
        """The gradients are let go of."""
        raise NotImplementedError

    def parameter_data(self, owner: Sym, v: V, node: Node) -> None:
        """A parameter gets other memory."""
        raise NotImplementedError

    def resized(self, t: Tensor, node: Node) -> None:
        """A tensor gets another size."""
        raise NotImplementedError

    def displace(self, module: V, node: Node) -> None:
        """A module gets other memory for what it holds."""
        raise NotImplementedError

    def gives_other_memory(self, name: str, args: Args, kwargs: Kwargs) -> bool:
        """Whether a method of a module gives its parameters other memory."""
        raise NotImplementedError

    def module_in_capture(self, module: V, node: Node) -> None:
        """A capture calls a module."""
        raise NotImplementedError

    def module_runs(self, module: V) -> None:
        """A module, or what may be one, is called."""
        raise NotImplementedError

    def optimizer(self, kind: str, kwargs: Kwargs, n: Node) -> Sym:
        """An optimizer of torch is made."""
        raise NotImplementedError

    def option(self, v: V | None) -> bool | None:
        """An option that is a flag: None where it is not known."""
        raise NotImplementedError

    def scaler_in_capture(self, name: str, args: Args, n: Node) -> None:
        raise NotImplementedError

    def step_in_capture(self, r: Sym, n: Node) -> None:
        raise NotImplementedError

    def step_reads(self, node: Node) -> None:
        """An optimizer steps with the gradients that there are."""
        raise NotImplementedError
