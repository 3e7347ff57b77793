"""The state of one path, and what the parts of the machine do for each other."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Protocol

from .decisions import Decisions
from .modules import Project
from .numbers import Numbers
from .program import Block, Hazard, Launch, Program, Timeline
from .source import Function, Module, Site
from .trail import Trail, decision_text
from .values import Const, Event, Func, Gen, Graph, Key, Lazy, Obj, Params, Sym, Tensor, Thread, V

MAX_STEPS = 6000
"""Statements and calls of a path."""
MAX_DEPTH = 7
"""Calls inside each other that are followed."""
MAX_ROUNDS = 5
"""Rounds of a loop that nothing ends."""
MAX_ITEMS = 64
"""Elements that an iterator without an end is asked for."""


class Returned(Exception):
    """A function has returned."""

    def __init__(self, value: V) -> None:
        self.value = value


class Broke(Exception):
    """A loop is left."""


class Continued(Exception):
    """A round of a loop is left."""


class Raised(Exception):
    """The program raises."""


class Blocked(Raised):
    """A thread waits for another one."""


class Spent(Exception):
    """The path is as long as a path may be."""


class StopGenerator(Exception):
    """Nobody asks a generator for more."""


class Frame:
    """A call of a function, or the body of a file.

    Attributes:
        env: what its names mean.
        closure: the frame that the function was defined in.
        call: where it was called.
        sites: where its names were bound.
        stash: the names that it declares global.
        on_yield: who is given what it yields.
        imports: what it has imported itself.
    """

    __slots__ = ("call", "closure", "env", "function", "imports", "module", "on_yield", "sites", "stash")

    def __init__(
        self, module: Module, function: Function | None, env: dict[str, V], closure: Frame | None = None
    ) -> None:
        self.module, self.function, self.env, self.closure = module, function, env, closure
        self.on_yield: Callable[[V], V] | None = None
        self.imports: dict[str, str] = {}
        self.call: ast.AST | None = None
        self.stash: frozenset[str] = function.global_names if function is not None else frozenset()
        self.sites: dict[str, ast.AST] = {}

    def enclosing(self) -> Iterator[Frame]:
        """The frames that its function was defined in, nearest first."""
        c = self.closure
        while c is not None:
            yield c
            c = c.closure


class Models(Protocol):
    """What the machine asks of the models of libraries.

    Attributes:
        grads: the gradients that there are.
        freed: blocks that were released too early: block, use and place.
        devices_named: by the number of a text "cuda:N": the key of N.
        parents: of what unknowns are parts. given_objects: the objects that the caller has given to the entry.
        module_blocks: by the key of a module: its parameters.
        recorded_later: where events are made that another call than the one that makes them records.
    """

    grads: Block
    recorded_later: set[Site]
    module_blocks: dict[Any, Block]
    freed: list[Any]
    devices_named: dict[int, Any]
    parents: dict[int, Sym]
    given_objects: set[int]

    # calls
    def call(self, full: str, args: list[V], kwargs: dict[str, V], n: Any) -> V: ...
    def method(self, r: V, name: str, args: list[V], kwargs: dict[str, V], n: Any) -> V: ...
    def call_unknown(self, callee: V, args: list[V], kwargs: dict[str, V], node: Any) -> V: ...
    def opaque(self, f: Func, args: list[V], kwargs: dict[str, V], node: Any, unseen: bool = False) -> V: ...
    def kernel(self, f: Func, args: list[V], kwargs: dict[str, V], node: Any) -> V: ...
    def decorated_for_streams(self, f: Func, args: list[V], kwargs: dict[str, V], n: Any) -> bool: ...
    def module_runs(self, module: V) -> None: ...
    def enter(self, ctx: V, node: Any) -> Any: ...
    def leave(self, opened: Any, node: Any) -> None: ...
    def canonical(self, name: str) -> str: ...
    def lib_attribute(self, name: str) -> V: ...
    def attribute(self, owner: V, attr: str, n: Any) -> V: ...
    def where(self, v: V | None) -> str: ...
    def next_in_turn(self, cycle: Lazy) -> V: ...

    # tensors
    def tensor(self, v: V, place: str = "unknown") -> Tensor: ...
    def tensorish(self, v: V) -> bool: ...
    def tensors_in(self, v: V) -> list[Tensor]: ...
    def blocks_in(self, v: V) -> set[int]: ...
    def stream(self, v: V | None, lib: str = "torch") -> Timeline | None: ...
    def cur(self, lib: str = "torch") -> Timeline: ...
    def allocated(self, t: Timeline, node: Any, assumed: tuple[str, ...] = ()) -> None: ...
    def compute(self, values: list[V], node: Any, op: str) -> V: ...
    def binary(self, a: V, b: V, node: ast.BinOp) -> V: ...
    def plus(self, a: V, b: V) -> V: ...
    def unary(self, v: V, node: Any) -> V: ...
    def inplace(self, target: V, value: V, s: ast.AugAssign) -> V: ...
    def index_of(self, node: ast.expr) -> V: ...
    def index(self, t: Tensor, node: ast.expr, n: Any) -> V: ...
    def view(self, t: Tensor, part: Any) -> Tensor: ...
    def slice_of(self, owner: Sym, node: Any, n: Any) -> V: ...
    def set_item(self, owner: V, target: ast.Subscript, v: V, s: Any, aug: bool) -> None: ...
    def set_data(self, owner: V, v: V, s: Any) -> None: ...
    def gradient_assigned(self, owner: V, v: V) -> None: ...
    def set_grad(self, owner: Tensor, v: V, s: Any) -> None: ...
    def drop_gradients(self, node: Any) -> None: ...
    def parameter(self, p: Params, i: int) -> V: ...
    def part_of_result(self, whole: Sym, part: Sym) -> None: ...
    def host_value(self, v: V, node: Any, op: str) -> None: ...

    # what is done, and what leaves the code that is run
    def tick(self) -> int: ...
    def joined(self, v: V) -> None: ...
    def run_hooks(self, node: Any = None) -> None: ...
    def registered(self, o: Obj, args: list[V]) -> None: ...
    def launch(
        self,
        reads: list[Tensor],
        writes: list[Tensor],
        op: str,
        node: Any,
        *,
        kind: str = "",
        strong: bool = True,
    ) -> Any: ...
    def free(self, block: Block, s: Any) -> None: ...
    def sync_quiet(self) -> None: ...
    def conflict(self, block: Block, first: Any, second: Any) -> None: ...
    def recorded_since(self, b: Block) -> bool: ...
    def reported(self, v: V) -> None: ...
    def returned(self, v: V, node: Any) -> None: ...
    def handed_out(self, v: V, node: Any) -> None: ...
    def may_wait_for(self, v: V, node: Any) -> None: ...
    def given_out(self, v: V) -> None: ...
    def stamp(self, v: V) -> V: ...
    def kept_beside(self, others: list[V], v: V, node: Any, op: str) -> None: ...
    def abandon_capture(self) -> None: ...
    def uploading(self) -> bool: ...
    def lent(self, result: V) -> None: ...
    def idle_wait(self, since: int) -> None: ...
    def go_on(self, n: Any) -> None: ...
    def produce(self) -> None: ...
    def views_kept(self) -> None: ...
    def views_left(self) -> None: ...


class State:
    """One path that is being run.

    What the parts do for each other is declared at the end; `Machine` joins them.

    Args:
        project: the files.
        flips: by the number of a decision, how it comes out.

    Attributes:
        seq: counts what is done, `steps` the statements. trail: what was done beside accesses.
        at: the statement that is run.
        ambient, null: the current streams of who calls the entries, the default stream.
        current: the streams that are the current ones, innermost last, by the library.
        fields: the attributes that were set of unknowns, by their number and name.
        aliases: the conditions that unknown truth values stand for: (negated, key).
        globals: the module-level names that were asked for, by file and name.
        memo: what memoized functions have given.
        walked: what expressions under evaluation hold; `roots`: what somebody outside the path holds.
        candidates: blocks that another stream has used and that may be released; `captured`: those that graphs use.
        times: for how many rounds of loops the round that is run stands.
        timing: whether a clock was read, or an event with timing was made.
        measured: times that do not include the work that they were to measure.
        boundaries: where the calls of an entry end, of which there are `methods`.
        listed: parameters that are lists. loaded: what loops over the results of calls give.
        among_others: by the number of an event that an index picks: those that it may be.
        owners: by the number of an attribute's unknown: whose attribute it is.
        likes: the elements of containers that others stand for. like_of: of which containers.
        catching: how many statements that are run go on where a mapping does not have a key.
    """

    def __init__(self, project: Project, flips: dict[int, bool]) -> None:
        self.project = project
        self.Blocked: type[Exception] = Blocked
        self.Raised: type[Exception] = Raised
        self.order = Program(self.conflict, self._now)
        self.trail: Trail = self.order.trail
        torch = Timeline("the current stream", "ambient", lib="torch")
        self.ambient = {"torch": torch, "cupy": torch}
        self.null = Timeline("the default stream", "null", lib="cupy")
        self.current = {"torch": [torch], "cupy": [self.null]}

        self.numbers = Numbers()
        self.vn, self.sym, self.fresh = self.numbers.vn, self.numbers.sym, self.numbers.fresh
        self.key, self.uid = self.numbers.key, self.numbers.uid
        self.vns, self.equal = self.numbers.vns, self.numbers.equal
        self.path = Decisions(self.numbers, self.order, flips, self._turned, self._guards, self._statement)
        self.decide, self.learned = self.path.decide, self.path.learned
        self.conds, self.queries, self.decisions = self.path.conds, self.path.queries, self.path.taken
        self.joins = self.path.joins
        self.turns: dict[Key, tuple[Any, ...]] = {}

        self.frames: list[Frame] = []
        self.depth = self.steps = self.seq = self.began = 0
        self.cut = False
        self.fields: dict[tuple[int, str], V] = {}
        self.aliases: dict[int, tuple[bool, Key]] = {}
        self.globals: dict[tuple[str, str], V] = {}
        self.memo: dict[Key, V] = {}
        self.likes: dict[Key, V] = {}
        self.like_of: dict[Key, V] = {}
        self.picked_graphs: dict[int, dict[Key, int]] = {}
        self.map_keys: dict[tuple[int, Key], V] = {}
        self.owners: dict[int, tuple[V, str]] = {}
        self.lengths: dict[Key, int] = {}
        self.defaults: dict[int, Const] = {}
        self.listed: set[int] = set()
        self.loaded: set[int] = set()
        self.among_others: dict[int, list[Event]] = {}
        self.walked: list[V] = []
        self.roots: list[V] = []
        self.suspended: list[Any] = []  # generators, and threads that put things into queues
        self.paused: list[Any] = []  # such threads: what they hold
        self.returned: list[V] = []
        self.escaped: list[V] = []
        self.at: ast.stmt | None = None
        self.dropped: ast.AST | None = None
        self.left_at: ast.AST | None = None
        self.last_result: V | None = None
        self.given_back: set[int] = set()  # blocks that the entry which ends gives its caller, who keeps them

        self.hazards: list[Hazard] = []
        self.launches: list[Launch] = []
        self.uncertain: list[int] = []
        self.candidates: dict[int, Block] = {}
        self.captured: dict[int, Block] = {}
        self.capture: Any = None
        self.captures = self.replays = 0
        self.graphs: list[Graph] = []
        self.threads: list[Thread] = []
        self.in_thread: list[Thread] = []
        self.pinning: set[int] = set()
        self.expecting = self.catching = 0
        self.times = 1.0
        self.timing = False
        self.measured: dict[V, Hazard] = {}
        self.hooks: list[tuple[str, V]] = []
        self.entered: set[Function] = set()
        self.orders = False
        self.boundaries: list[int] = []
        self.methods = 0
        self.function_entry = False
        self.second_call_at: int | None = None
        self.built_at = -1
        self.library: Models

    @property
    def quiet(self) -> bool:
        """Whether decisions are not to be turned round."""
        return self.path.quiet

    @quiet.setter
    def quiet(self, quiet: bool) -> None:
        self.path.quiet = quiet

    @property
    def at_stake(self) -> bool:
        """Whether the order of anything matters that was done, or may be where the path did not come to.

        That is concurrent work, captures, replays, measured times; and functions in which streams stand.
        """
        return bool(
            self.orders
            or self.order.concurrent
            or self.captures
            or self.replays
            or self.graphs
            or self.timing
            or self.hazards
        )

    def _now(self) -> int:
        return self.seq

    def _turned(self, value: bool) -> None:
        """A decision comes out another way than on the first path."""
        if self.at is not None and self.frames:
            self.trail.add(self.seq, "decides", decision_text(self.at, value), self.site(self.at))

    def _statement(self) -> ast.stmt | None:
        """The statement that is run."""
        return self.at

    def _guards(self) -> bool:
        """Whether the statement that is run guards something that waits."""
        return bool(self.at is not None and self.frames and self.frame.module.waits(self.at))

    @property
    def frame(self) -> Frame:
        return self.frames[-1]

    def site(self, node: ast.AST) -> Site:
        """A place in the file that is run."""
        return (self.frames[-1].module, node)

    def step(self) -> None:
        """Count a statement or a call.

        Raises:
            Spent: there were too many.
        """
        self.steps += 1
        if self.steps > MAX_STEPS:
            self.cut = True
            raise Spent

    def settle(self) -> None:
        """What was done so far is long done."""
        self.order.all_known(self.order.host)
        for t in list(self.order.ticks):
            self.order.all_known(t)

    def conflict(self, block: Block, first: Any, second: Any) -> None:
        self.library.conflict(block, first, second)

    # ------------------------------------------------------------------ what the parts do for each other
    def body(self, stmts: Iterable[ast.stmt]) -> None:
        """Run statements."""
        raise NotImplementedError

    def eval(self, n: ast.expr) -> V:
        """The value of an expression."""
        raise NotImplementedError

    def eval_in(self, module: Module, n: ast.expr) -> V:
        """The value of an expression of a file, outside its functions."""
        self.frames.append(Frame(module, None, {}))
        try:
            return self.eval(n)
        finally:
            self.frames.pop()

    def truth(self, node: ast.expr, default: bool = True, flip: bool = True) -> bool:
        """How a condition comes out."""
        raise NotImplementedError

    def truthy(self, v: V, default: bool, flip: bool, node: ast.AST | None = None) -> bool:
        """Whether a value counts as true."""
        raise NotImplementedError

    def compare(self, op: ast.cmpop, a: V, b: V) -> bool | tuple[bool, Key]:
        """How a comparison comes out, or (negated, key) of what has to be decided."""
        raise NotImplementedError

    def as_tensor(self, v: V) -> V:
        """In a capture: a parameter that is known for a tensor, as one."""
        raise NotImplementedError

    def assign(self, t: ast.expr, v: V, s: ast.AST, aug: bool = False) -> None:
        """Bind a target to a value."""
        raise NotImplementedError

    def name(self, id_: str) -> V:
        """What a name means."""
        raise NotImplementedError

    def global_name(self, m: Module, id_: str, full: str | None = None) -> V:
        """What a module-level name means."""
        raise NotImplementedError

    def attribute(self, owner: V, attr: str, n: ast.AST) -> V:
        """An attribute of a value."""
        raise NotImplementedError

    def element(self, v: V, index: V) -> V:
        """What a subscript gives of something that is no tensor."""
        raise NotImplementedError

    def iterate(self, it: V, node: ast.AST, rounds: int = 2) -> Iterator[V]:
        """The values that an iterable gives, as far as they are followed."""
        raise NotImplementedError

    def materialised(self, it: V, node: ast.AST, rounds: int = 2) -> list[V]:
        """What an iterable gives, as far as it is followed, as a list."""
        raise NotImplementedError

    def call_value(self, callee: V, args: list[V], kwargs: dict[str, V], n: ast.AST) -> V:
        """Call something."""
        raise NotImplementedError

    def call_function(
        self, f: Func, args: list[V], kwargs: dict[str, V], n: ast.AST, force: bool = False
    ) -> V:
        """Call a function of the tree.

        Args:
            force: whether its body is run even if it has nothing to do with streams.
        """
        raise NotImplementedError

    def run_generator(self, g: Gen, on_yield: Callable[[V], V | None], n: ast.AST) -> V:
        """Run the body of a generator."""
        raise NotImplementedError

    def next_of(self, g: Gen, n: ast.AST, default: V | None = None) -> V:
        """What a generator yields next; the default, if there is one, where it has come to its end."""
        raise NotImplementedError

    def bind(self, f: Func, args: list[V], kwargs: dict[str, V]) -> dict[str, V]:
        """What the parameters of a function mean in a call."""
        raise NotImplementedError

    def defaults_of(self, a: ast.arguments) -> dict[str, V]:
        """What the parameters of a function are by default, where its definition is run."""
        names = [*a.posonlyargs, *a.args]
        pairs = [*zip(names[len(names) - len(a.defaults) :], a.defaults, strict=True)]
        pairs += [(p, d) for p, d in zip(a.kwonlyargs, a.kw_defaults, strict=True) if d is not None]
        return {p.arg: self.eval(d) for p, d in pairs}

    def left(self, n: ast.AST) -> None:
        """A function has returned: what only its names held is released."""
        if self.candidates:
            self.released(n)

    def released(self, s: ast.AST) -> None:
        """Release the blocks that another stream has used and that nothing holds any more."""
        raise NotImplementedError

    def maybe_released(self, old: V, s: ast.AST, name: bool = False) -> None:
        """Something means another thing than before: what it meant may be released."""
        raise NotImplementedError

    def lost(
        self,
        s: ast.AST,
        frame: Frame | None = None,
        more: Iterable[V] = (),
        only: set[int] | None = None,
        given: bool = True,
        assumptions: tuple[str, ...] = (),
    ) -> None:
        """Which memory of graphs the program holds no more."""
        raise NotImplementedError

    def may_be_recorded(self, ev: Event) -> None:
        """Somebody who is not seen is given an event."""
        for e in (ev, *self.among_others.get(self.uid(ev), ())):
            if e.snapshot is None:
                e.unknown = True
