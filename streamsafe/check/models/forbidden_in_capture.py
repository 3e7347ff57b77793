"""What a capture does not allow (GM-gen_unreg), as data; the optimizers, generators and threads it depends on."""

from __future__ import annotations

from streamsafe.apis import names as apis

from ..program import Timeline
from ..values import NONE, Const, Ctx, Generator, Graph, Graphed, Seq, Sym, Tensor, Thread, V
from .path import Args, Kwargs, Node
from .replaced_memory import ReplacedMemory

SEEDS = frozenset(
    "manual_seed manual_seed_all seed seed_all get_rng_state set_rng_state get_rng_state_all set_rng_state_all".split()
)
RANDOM_STATE = frozenset(
    [
        *(f"torch.cuda.{s}" for s in SEEDS),
        *(f"torch.cuda.random.{s}" for s in SEEDS),
        "torch.manual_seed",
        "torch.cuda.initial_seed",
        "torch.cuda.random.initial_seed",
    ]
)
"""Functions that read or write the state of the device's generator."""
GENERATOR_STATE = frozenset(
    "get_state set_state clone_state manual_seed initial_seed seed get_offset set_offset".split()
)
SIZED_BY_VALUES = {
    "repeat_interleave": ("repeats", "output_size", 1),
    "one_hot": ("tensor", "num_classes", 0),
}
"""By the function: the argument that holds the counts, the one that makes them needless, and the place of the first."""
NUMBER_ARGUMENTS = {"masked_fill": 1, "masked_fill_": 1}
"""By the method: the argument that is read on the host where it is a tensor."""
SCALER_QUERIES = frozenset("get_scale state_dict get_growth_tracker".split())


class ForbiddenInCapture(ReplacedMemory):
    """The part of the library that knows what a capture forbids."""

    def forbidden(self, name: str, last: str, args: Args, kwargs: Kwargs, n: Node) -> None:
        """A function of a library is called inside a capture."""
        if name in RANDOM_STATE or (
            name.startswith("torch.cuda.default_generators") and last in GENERATOR_STATE
        ):
            self.violation("SS404", n, f"{last}()")
        if name.startswith(("random.", "numpy.random.")) and last in apis.HOST_RANDOM:
            self.violation("SS410", n, f"{last}()")
        if name.startswith("torch.distributed.") and last in ("barrier", "monitored_barrier"):
            self.violation("SS401", n, f"{last}()")
        self.foreign_generator(kwargs, n)
        self.sized_by_values(last, args, kwargs, n)

    def forbidden_method(self, r: V, name: str, args: Args, kwargs: Kwargs, n: Node) -> None:
        """A method is called inside a capture."""
        self.foreign_generator(kwargs, n)
        if isinstance(r, Tensor) and r.block.place not in ("pinned", "pageable", "host"):
            self.sized_by_values(name, [r, *args], kwargs, n)
            i = NUMBER_ARGUMENTS.get(name)
            number = args[i] if i is not None and i < len(args) else None
            if isinstance(number, Tensor) and number.block.place == "cuda":
                self.violation("SS401", n, f"{name}() by a value of the device")

    def foreign_generator(self, kwargs: Kwargs, n: Node) -> None:
        """A generator of the program's that the graph does not have is an error in a capture (GM-gen_unreg)."""
        g = kwargs.get("generator")
        if isinstance(g, Generator) and g.own and self.m.key(g) not in self.m.capture.graph.generators:
            self.violation("SS404", n, "a generator that the graph does not have")

    def sized_by_values(self, name: str, args: Args, kwargs: Kwargs, n: Node) -> None:
        """The size of a result is a value of the device."""
        if name not in SIZED_BY_VALUES:
            return
        counts, size, place = SIZED_BY_VALUES[name]
        v = args[place] if place < len(args) else kwargs.get(counts)
        if size in kwargs or (name == "one_hot" and len(args) > 1):
            return
        if isinstance(v, Tensor) or (
            isinstance(v, Sym)
            and ((v.block is not None and "declared" in v.block.notes) or name == "one_hot")
        ):
            if "possible" not in self.tensor(v).block.notes and self.tensor(v).block.place not in (
                "pinned",
                "pageable",
                "host",
            ):
                self.violation("SS401", n, f"{name}() of unknown size")

    def query(self, what: str, t: Timeline | None, n: Node) -> None:
        """The state of a stream or an event is asked for."""
        self.beside()
        cap = self.m.capture
        if cap is not None and (t in cap.streams or cap.mode != "relaxed"):
            self.violation("SS401", n, what)

    # ------------------------------------------------------------------ generators
    def generator_method(self, g: Generator, name: str, n: Node) -> V:
        if self.m.capture is not None and name in GENERATOR_STATE:
            self.violation("SS404", n, f"{name}()")
        return g if name in ("manual_seed", "set_state") else self.m.fresh(name, "host")

    # ------------------------------------------------------------------ optimizers
    def optimizer(self, kind: str, kwargs: Kwargs, n: Node) -> Sym:
        s = self.m.sym(self.m.vn(("optimizer", len(self.m.vns))), "optimizer", "optimizer")
        unknown = any(k.arg is None for k in getattr(n, "keywords", ()))
        options = {
            k: self.option(kwargs.get(k)) if k in kwargs or not unknown else None
            for k in ("capturable", "fused")
        }
        self.optimizers[s.vn] = (kind, options)
        return s

    def option(self, v: V | None) -> bool | None:
        """An option that is a flag: None where it is not known."""
        return False if v is None else bool(v.value) if isinstance(v, Const) else None

    def step_in_capture(self, r: Sym, n: Node) -> None:
        kind, options = self.optimizers.get(r.vn, ("", {}))
        if kind in apis.CAPTURABLE_OPTIMIZERS and options["capturable"] is False:
            self.violation("SS408", n, "step()")

    def scaler_in_capture(self, name: str, args: Args, n: Node) -> None:
        if name in SCALER_QUERIES:
            self.violation("SS401", n, f"{name}()")
        if name != "step" or not args or not isinstance(args[0], Sym):
            return
        known = self.optimizers.get(args[0].vn)
        if known is not None:
            if not all(v is None or v for v in known[1].values()):
                self.violation("SS408", n, "a scaler's step()")
        elif args[0].hint == "param":
            self.violation("SS408", n, "a scaler's step()", assumptions=("optimizer",))

    # ------------------------------------------------------------------ threads
    def beside(self) -> None:
        """This thread does what no thread may do during a capture in the global mode."""
        if self.m.in_thread:
            self.m.in_thread[-1].unsafe = True

    def thread_method(self, th: Thread, name: str, args: Args, kwargs: Kwargs, n: Node) -> V:
        if name == "start":
            th.running, th.at = True, self.m.seq
            if th not in self.m.threads:
                self.m.threads.append(th)
        elif name in apis.THREAD_WAITS:
            th.running = False
            if name == "join":
                self.produce()
            if name == "join" and th.knew is not None:
                self.order.learn(self.order.host, th.knew)
            elif name == "join":
                self.everything(n)
        return NONE

    # ------------------------------------------------------------------ callables that are graphs
    def graphed(self, args: Args, kwargs: Kwargs, n: Node) -> V:
        """make_graphed_callables(callables, sample_args)"""
        given = {**dict(zip(("callables", "sample_args"), args, strict=False)), **kwargs}
        f, samples = given.get("callables", NONE), given.get("sample_args", NONE)
        if isinstance(f, Seq):
            each = (
                samples.items
                if isinstance(samples, Seq) and len(samples.items) == len(f.items)
                else [samples] * len(f.items)
            )
            return Seq(
                [self.graphed_one(x, s, n) for x, s in zip(f.items, each, strict=True)], f.kind, f.more
            )
        return self.graphed_one(f, samples, n)

    def graphed_one(self, f: V, samples: V, n: Node) -> Graphed:
        graph = Graph("the graphed callable")
        inputs = list(samples.items) if isinstance(samples, Seq) else [samples]
        opened = self.enter(Ctx("capture", (graph, None, {"capture_error_mode": Const("thread_local")})), n)
        result: V = NONE
        try:
            result = self.m.call_value(f, inputs, {}, n)
        finally:
            self.leave(opened, n)
        return Graphed(graph, inputs, result)

    def call_graphed(self, g: Graphed, args: Args, n: Node) -> V:
        if self.m.capture is None:
            for a, s in zip(args, g.inputs, strict=False):
                given, static = self.tensors_in(a), self.tensors_in(s)
                if static:
                    self.launch(given, static[:1], "the copy into a static input", n)
        self.replay(g.graph, n)
        return self.stamp(g.result)
