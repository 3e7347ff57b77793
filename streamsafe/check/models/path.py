"""What the models need of the machine that executes a path."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from typing import Any, Protocol, TypeAlias

from ..numbers import Numbers
from ..program import Block, Hazard, Launch, Program, Reach, Timeline
from ..source import Class, Project
from ..values import Event, Func, Gen, Graph, Map, Obj, Sym, Thread, V

Node: TypeAlias = ast.AST
"""A place in the source."""
Args: TypeAlias = list[V]
Kwargs: TypeAlias = dict[str, V]
Notes: TypeAlias = frozenset[str]
"""What an access has to assume."""
Part: TypeAlias = Any
"""The part of a block that an access touches: None for all of it, else one entry an index."""
Site: TypeAlias = Any
"""A module and a node of it."""
Known: TypeAlias = Reach
"""How far somebody knows each timeline to be done."""


class Path(Protocol):
    """One path, as far as models see it: its names and numbers, its decisions, and what it has done so far."""

    order: Program
    ambient: dict[str, Timeline]
    null: Timeline
    current: dict[str, list[Timeline]]
    frames: list[Any]
    fields: dict[tuple[int, str], V]
    numbers: Numbers
    vns: dict[Any, int]
    equal: dict[int, Any]
    lengths: dict[Any, int]
    conds: dict[Any, bool]
    joins: dict[Any, tuple[Any, Any]]
    hazards: list[Hazard]
    launches: list[Launch]
    uncertain: list[int]
    boundaries: list[int]
    seq: int
    began: int
    built_at: int
    function_entry: bool
    capture: Any
    captures: int
    replays: int
    times: float
    captured: dict[int, Block]
    candidates: dict[int, Block]
    graphs: list[Graph]
    threads: list[Thread]
    in_thread: list[Thread]
    suspended: list[Any]
    paused: list[Any]
    walked: list[V]
    depth: int
    pinning: set[int]
    loaded: set[int]
    listed: set[int]
    defaults: dict[int, Any]
    turns: dict[Any, tuple[Any, Any]]
    queries: dict[Any, Known]
    measured: dict[V, Hazard]
    owners: dict[int, tuple[V, str]]
    likes: dict[Any, V]
    like_of: dict[Any, V]
    roots: list[V]
    hooks: list[tuple[str, V]]
    escaped: list[V]
    among_others: dict[int, list[Event]]
    last_result: V | None
    given_back: set[int]
    dropped: Node | None
    at: Any
    expecting: int
    trail: Any
    quiet: bool
    timing: bool
    Blocked: type[Exception]
    Raised: type[Exception]

    @property
    def project(self) -> Project: ...

    @property
    def frame(self) -> Any: ...

    def vn(self, key: Any) -> int: ...

    def sym(self, vn: int, text: str, hint: str = "") -> Sym: ...

    def fresh(self, text: str, hint: str = "") -> Sym: ...

    def key(self, v: V) -> Any: ...

    def uid(self, v: V) -> int: ...

    def site(self, node: Node) -> Site: ...

    def truthy(self, v: V, default: bool, flip: bool) -> bool: ...

    def eval(self, n: ast.expr) -> V: ...

    def attribute(self, owner: V, attr: str, n: Node) -> V: ...

    def element(self, v: V, index: V) -> V: ...

    def has_attribute(self, owner: V, name: str) -> bool: ...

    def iterate(self, it: V, node: Node) -> Iterable[V]: ...

    def materialised(self, it: V, node: Node) -> list[V]: ...

    def next_of(self, g: Gen, n: Node, default: V | None = None) -> V: ...

    def run_generator(self, g: Gen, on_yield: Any, n: Node) -> V: ...

    def instance(self, cls: Class, text: str) -> Obj: ...

    def call_value(self, callee: V, args: Args, kwargs: Kwargs, n: Node) -> V: ...

    def called_back(self, f: V, args: Args, n: Node) -> V: ...

    def call_function(self, f: Func, args: Args, kwargs: Kwargs, n: Node, force: bool = False) -> V: ...

    def map_key(self, m: Map, k: V) -> Any: ...

    def only_entry(self, v: Map, index: V) -> V | None: ...

    def may_be_recorded(self, ev: Event) -> None: ...

    def maybe_released(self, old: V, s: Node) -> None: ...

    def replaced(self, old: V, s: Node, name: bool = ..., assumptions: tuple[str, ...] = ...) -> None: ...

    def lost(
        self, s: Node, frame: Any = ..., more: Iterable[V] = ..., only: set[int] | None = ...
    ) -> None: ...

    def released(self, s: Node) -> None: ...

    def held(self, more: list[V] = ...) -> set[int]: ...
