"""What a path knows of tensors, streams and models, and how it is asked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from ..program import Access, Block, Hazard, Timeline
from ..values import (
    Bound,
    Const,
    Event,
    Func,
    Graph,
    Lazy,
    Lib,
    Map,
    Obj,
    Seq,
    Stream,
    Sym,
    Tensor,
    Thread,
    V,
    contents,
)
from .graph_interface import GraphInterface
from .path import Args, Known, Kwargs, Node, Path, Site

HOSTS = ("pinned", "pageable", "host")
"""Places of memory that the host touches."""
HANDLES = frozenset("ptr cuda_stream cuda_event".split())
"""Attributes that are the handle of a stream or an event."""
ASSUMPTIONS = frozenset(
    "unmodelled model helper body consumer element place loaded pinned caller target copied kernel".split()
)
"""What an access may have to assume: that a call (of something like a model, of another package, of a function that is
not followed) is work of the device, what a consumer does, that two elements are one, where something lies, that a
loader gives what is on the device, that memory is pinned, that a caller does not wait, that the host is where something
is moved to, that it is not there already."""
DTYPES = frozenset(
    """float32 float16 bfloat16 float64 half float double int8 int16 int32 int64 uint8 long int bool short float8_e4m3fn
    float8_e5m2 complex64 complex128 channels_last contiguous_format preserve_format""".split()
)


class Made(NamedTuple):
    """The operation that made something unknown.

    Attributes:
        timeline, at: its stream and place in it. site: its place in the source. op: its name.
        call, sequence: when it was, in the time of the run and in the order of operations.
        kind: what has to be assumed for it.
    """

    timeline: Timeline
    at: int
    site: Site
    op: str
    call: int
    kind: str
    sequence: int

    def access(self) -> Access:
        """That it writes what it makes."""
        notes = frozenset({self.kind})
        return Access(
            self.timeline,
            self.at,
            True,
            None,
            self.site,
            self.op,
            notes=notes,
            call=self.call,
            sequence=self.sequence,
        )


def handled(v: V | None) -> V | None:
    """The stream or event that a value is, or whose handle it is."""
    return v.receiver if isinstance(v, Bound) and v.name in HANDLES else v


class State(GraphInterface):
    """What a path knows of tensors, streams and models, and how it is asked."""

    def __init__(self, machine: Path) -> None:
        self.m: Path = machine
        self.order = machine.order
        self.made: dict[int, Made] = {}  # by unknown: the operation that made it
        self.timelines: dict[int, Timeline] = {}
        self.comm = Timeline("the communication stream", "comm")
        # CuPy's default stream of the one thread, a blocking one (CS-08)
        self.per_thread = Timeline("the per-thread default stream", "new", None, "cupy", True)
        self.indices: dict[int, Any] = {}  # by unknown: the part that it picks
        self.kernels: dict[int, Any] = {}  # by unknown: the kernel of CuPy's that it is
        self.groups: dict[Any, Timeline] = {}  # of process groups: by key, their streams
        self.freed: list[tuple[Block, Access, Site]] = []
        self.grads = Block("cuda", "gradients", fresh=True)
        self.events: dict[int, Event] = {}
        self.instances: dict[int, Obj] = {}
        self.maybe: dict[int, Made] = {}  # the same of what may be a number
        self.optimizers: dict[int, tuple[str, dict[str, bool | None]]] = {}
        self.sums = machine.numbers.sums
        self.nets: dict[Any, frozenset[Any]] = {}  # by block or unknown: the models it was computed by
        self.uploads: list[tuple[Timeline, int]] = []  # copies from the host: stream and place
        self.snapshots: list[Known] = []  # of the events that were recorded
        self.sent: dict[int, Known] = {}  # by what is in a queue: what its sender knew
        # threads that take from queues: function, arguments, how often they may still go on
        self.waiting: list[tuple[Func, Args, int]] = []
        self.producers: list[Any] = []  # threads that put things into queues
        self.numbers: dict[int, V] = {}  # by number: of what it is int()
        self.devices_named: dict[int, Any] = {}  # by the number of a text "cuda:N": the key of N
        self.devices: list[V] = []  # with torch.device(...)
        self.default_device: V | None = None  # where factories put what they make
        self.opened = 0  # how deep the frame is that has made a stream the current one
        self.given: dict[tuple[int, str], V] = {}
        self.modules: dict[int, str] = {}  # the classes of modules that were made
        self.went_to: dict[
            int, set[Any]
        ] = {}  # by unknown: the devices that it, or a part of it, was copied to
        self.defaults: list[Stream] = []  # what default_stream() gave
        # the streams that have waited for nothing but the default stream: where
        self.only_default: dict[Timeline, tuple[Site, int]] = {}
        self.called_models: list[int] = []  # when something like a model was called
        self.steps: list[tuple[Timeline, int]] = []  # where and when optimizers have changed the parameters
        self.pointers: dict[int, Tensor] = {}  # what data_ptr() gave
        self.parents: dict[int, Sym] = {}  # of what unknowns are parts
        self.given_objects: set[int] = set()  # objects that the caller has given to the entry
        # arrays of numpy that share memory with what copies fill: block, copy, and the access that reading is
        self.views: list[tuple[Block, Access, Access]] = []
        self.clock_known: dict[int, Known] = {}  # by reading of a clock: what the host knew
        self.signals: dict[int, Known] = {}  # by semaphore: what this thread knew as it released it
        self.copied_from: dict[int, Block] = {}  # by block of the host: of what it is a copy
        self.vn_of: dict[int, int] = {}  # by block: the number of the unknown that it is, or was picked of
        self.device_values: set[int] = set()  # unknowns that are devices
        self.parameter_of: dict[int, Any] = {}  # by parameter: the key of its module
        self.gradients_of: dict[
            Any, frozenset[Any]
        ] = {}  # by the key of a parameter: the model of its gradient
        self.trained: dict[int, frozenset[Any]] = {}  # by optimizer: the models whose parameters it was given
        self.wraps: dict[Any, frozenset[Any]] = {}  # by module: the modules that it was made of
        self.on_the_device: set[int] = set()  # unknowns that models have made of what is on the device
        self.given_device: set[int] = (
            set()
        )  # unknowns that calls have made that were given what is on the device
        self.moved_modules: set[Any] = set()  # keys of modules that were moved to the device
        self.exchanges: list[Known] = []  # what was known where memory was handed over
        self.moved_to: dict[int, V] = {}  # by block: the device that is not known

        # objects and streams: something that the object holds is recorded on the stream
        self.siblings: set[tuple[Any, Timeline]] = set()
        # operations and streams: what they have made is recorded on the stream itself, what they have read is not
        self.in_vain: set[tuple[Site, Timeline]] = set()
        self.own: list[Block] = []  # what is recorded on the stream that it is allocated on
        # what the caller has given and a stream of the entry copies
        self.copied: list[tuple[Block, Access]] = []
        self.lent_uses: list[tuple[Block, Access]] = []  # uses, on other streams, of what objects hold
        self.known_parameters: dict[int, Sym] = {}
        self.recorded_later: set[Site] = set()  # where events are made that another call records
        self.assigned: dict[Any, Tensor] = {}  # by the key of a parameter: what was set as its gradient
        self.engines: set[int] = set()  # unknowns that have run a backward pass of a loss of theirs
        self.module_blocks: dict[Any, Block] = {}  # by the key of a module: its parameters
        self.started: dict[int, Thread] = {}  # by object: its thread
        self.graphs_of: dict[int, Graph] = {}  # by unknown
        self.pools: dict[Any, Block] = {}  # of graphs, by key
        self.runs: dict[Any, Any] = {}  # of modules, by key
        # by class: whether a name is an attribute of its objects
        self.attributes: dict[Any, dict[str, bool]] = {}
        self.abandoned: Any = None  # the loss of gradients that a replay has written

    def with_changes(self, o: Obj, changes: Kwargs) -> Obj:
        """``dataclasses.replace``, ``_replace`` of a named tuple: another object with the same fields but for some."""
        other = Obj(o.cls, self.m.vn(("new", len(self.m.vns))), o.text)
        other.fields.update({**o.fields, **changes})
        return other

    def cur(self, lib: str = "torch") -> Timeline:
        return self.m.current[lib][-1]

    def tick(self) -> int:
        self.m.seq += 1
        return self.m.seq

    def tensor(self, v: V, place: str = "unknown") -> Tensor:
        if isinstance(v, Tensor):
            return v
        if isinstance(v, Sym):
            if v.block is None:
                v.block = Block("cuda" if v.vn in self.on_the_device else place, v.text, lib=self.lib_of(()))
                self.vn_of[v.block.uid] = v.vn
                v.block.given = v.vn if self.of_caller(v) else 0
                if v.vn in self.m.loaded:
                    v.block.notes.add("loaded")
                owner = self.m.owners.get(v.vn)
                if owner is not None:
                    v.block.owner = self.m.key(owner[0])
                made = self.made.get(v.vn) or self.maybe.get(v.vn)
                if made is not None:
                    v.block.accesses.append(made.access())
                    v.block.alloc, v.block.fresh, v.block.home = made.timeline, True, made.site
                    v.block.lib = made.timeline.lib
                    v.block.notes.add("result")
                if ("v", v.vn) in self.nets:
                    self.nets[v.block.uid] = self.nets[("v", v.vn)]
            tensor = Tensor(v.block, None, text=v.text)
            tensor.stamp = v.stamp
            return tensor
        return Tensor(Block("unknown", ""), None)

    def tensorish(self, v: V) -> bool:
        return isinstance(v, Tensor) or (isinstance(v, Sym) and (v.block is not None or v.vn in self.made))

    def tensors_in(self, v: V, depth: int = 0) -> list[Tensor]:
        if isinstance(v, Tensor):
            return [v]
        if isinstance(v, Sym):
            return [self.tensor(v)] if self.tensorish(v) else []
        if depth > 2:
            return []
        if isinstance(v, Seq):
            return [t for i in v.items[:6] for t in self.tensors_in(i, depth + 1)]
        if isinstance(v, Map):
            return [t for i in list(v.items.values())[:8] for t in self.tensors_in(i, depth + 1)]
        if isinstance(v, Lazy) and v.kind in ("values", "items"):
            return [t for i in v.args for t in self.tensors_in(i, depth + 1)]
        return []

    def blocks_in(self, v: V, depth: int = 0) -> set[int]:
        """The numbers of the blocks that a value holds, as deep as values are looked at."""
        if isinstance(v, (Tensor, Sym)):
            return {v.block.uid} if v.block is not None else set()
        if depth > 4:
            return set()
        return {b for i in contents(v) for b in self.blocks_in(i, depth + 1)}

    def stream(self, v: V | None, lib: str = "torch") -> Timeline | None:
        if v is None or (isinstance(v, Const) and v.value is None):
            return self.cur(lib)
        if isinstance(v, Stream):
            return v.timeline
        if isinstance(v, Sym):
            t = self.timelines.get(v.vn)
            if t is None:
                # CS-01: one of CuPy waits for the default stream unless it was asked not to
                t = Timeline(v.text or "a stream", "sym", lib=lib, blocking=lib == "cupy")
                self.timelines[v.vn] = t
            return t
        if isinstance(v, Tensor):
            return None
        return None

    def lib_of(self, values: Sequence[V]) -> str:
        """Whose arrays these are; where nothing is known, CuPy's in a file that imports CuPy and not torch."""
        tensors = [t for v in values for t in self.tensors_in(v)]
        if any(t.lib == "cupy" for t in tensors):
            return "cupy"
        return "torch" if tensors or not self.m.frames else self.m.frame.module.arrays

    def of_caller(self, v: Sym) -> bool:
        """Whether an unknown is a parameter of the entry, or a part of one."""
        for _ in range(6):
            if v.hint == "param":
                return True
            owner, _ = self.m.owners.get(v.vn, (None, ""))
            if isinstance(owner, Obj) and owner.vn in self.given_objects:
                return True
            if v.vn not in self.parents:
                return False
            v = self.parents[v.vn]
        return False

    def flag(self, v: V | None) -> bool:
        if v is None:
            return False
        if isinstance(v, Const):
            return bool(v.value)
        if isinstance(v, Sym):
            default = self.m.defaults.get(v.vn)
            return self.m.truthy(
                v, bool(default.value) if default is not None else v.hint != "param", v.hint == "param"
            )
        return False

    def where(self, v: V | None) -> str:
        """cuda, cpu, dtype or unknown: what ``.to(v)`` means."""
        if v is None:
            return ""
        if isinstance(v, Const):
            if isinstance(v.value, str):
                return (
                    "cpu"
                    if v.value == "cpu"
                    else "cuda"
                    if v.value.startswith(("cuda", "xpu", "npu", "hpu"))
                    else "unknown"
                )
            if isinstance(v.value, int):
                return "cuda"
            return ""
        if isinstance(v, Bound):
            return "cuda" if v.name == "device" and isinstance(v.receiver, Stream) else "unknown"
        if isinstance(v, Lib):
            return "dtype" if v.name.rpartition(".")[2] in DTYPES else "unknown"
        if isinstance(v, Sym):
            default = self.m.defaults.get(v.vn)
            if default is not None:
                return self.where(default)
            low = v.text.lower()
            if "cpu" in low or "host" in low:
                return "cpu" if "device" in low else "unknown"
            if "device" in low or "gpu" in low or "cuda" in low:
                return "cuda?"
            if "dtype" in low:
                return "dtype"
        if isinstance(v, Tensor):
            return "cuda" if v.block.place == "cuda" else "unknown"
        return "unknown"

    def place(self, kwargs: Kwargs) -> str:
        pin = kwargs.get("pin_memory")
        if isinstance(pin, Const) and pin.value is True:
            return "pinned"
        d = kwargs.get("device") or (self.devices[-1] if self.devices else self.default_device)
        if d is None:
            return "pageable" if pin is None or isinstance(pin, Const) else "host"
        w = self.where(d)
        if w == "cpu":
            return "pageable" if pin is None or isinstance(pin, Const) else "host"
        return "cuda" if w in ("cuda", "cuda?") else "unknown"

    def device_key(self, d: Const | Sym) -> Any:
        """One key for the number of a device, its name, and a text that is made of the number."""
        if isinstance(d, Const):
            return ("c", str(d.value).rpartition(":")[2])
        key = self.devices_named.get(d.vn) or self.m.key(d)
        return ("c", str(key[2])) if key[0] == "c" else key

    def of_type(self, made: V, dtype: V | None) -> V:
        """What a cast has made: asked for its type it tells the one that it was cast to."""
        if isinstance(made, Tensor) and isinstance(dtype, Sym):
            self.m.vns[("meta", made.block.uid, "dtype")] = dtype.vn
        return made

    def on_device(self, t: Tensor, kwargs: Kwargs) -> Tensor:
        """Which device something was made on, where one is named."""
        d = kwargs.get("device")
        if isinstance(d, (Const, Sym)) and not (isinstance(d, Const) and d.value in (None, "cuda")):
            t.block.device = self.device_key(d)
        return t

    def nets_of(self, *values: V) -> frozenset[Any]:
        """The models that values were computed by."""
        found: set[Any] = set()
        for v in values:
            found |= self.nets.get(
                v.block.uid if isinstance(v, Tensor) else ("v", v.vn) if isinstance(v, Sym) else None, set()
            )
        return frozenset(found)

    def nets_under(self, v: V, depth: int = 0) -> frozenset[Any]:
        """A module and those that it holds, as nets."""
        found = {("net", self.m.key(v))} if isinstance(v, (Sym, Obj)) else set()
        inner = v.fields.values() if isinstance(v, Obj) else v.items if isinstance(v, Seq) else ()
        for x in list(inner) if depth < 3 else ():
            if isinstance(x, (Obj, Seq)) or (isinstance(x, Sym) and x.hint in ("module", "attr", "")):
                found |= self.nets_under(x, depth + 1)
        return frozenset(found)

    def computed_by(self, out: V, nets: frozenset[Any]) -> V:
        if nets and isinstance(out, (Tensor, Sym)):
            self.nets[out.block.uid if isinstance(out, Tensor) else ("v", out.vn)] = nets
            if isinstance(out, Sym) and out.block is not None:
                self.nets[out.block.uid] = nets
        return out

    def violation(
        self, code: str, node: Node, op: str, notes: Sequence[Any] = (), assumptions: Sequence[str] = ()
    ) -> None:
        self.violation_at(code, self.m.site(node), op, notes, assumptions)

    def violation_at(
        self, code: str, site: Site, op: str, notes: Sequence[Any] = (), assumptions: Sequence[str] = ()
    ) -> None:
        if self.m.expecting:
            return
        second = Access(self.cur(), 0, False, None, site, op)
        if (
            self.m.capture is not None
            and self.m.boundaries
            and self.m.capture.graph.at <= self.m.boundaries[-1]
        ):
            assumptions = (*assumptions, "open")  # a capture that another method has begun
        h = Hazard(code, None, second, None, tuple(assumptions))
        h.notes = list(notes)
        self.m.hazards.append(h)

    def assumed(self, *accesses: Access) -> tuple[str, ...]:
        return tuple(n for a in accesses for n in a.notes if n in ASSUMPTIONS)

    def off_the_callers(self) -> bool:
        """Whether a stream other than the caller's is the current one: what is computed there is the device's work."""
        return self.cur().origin not in ("ambient", "null")

    def made_current_here(self) -> bool:
        """Whether the function that is run has made a stream of its own the current one: what it calls works there."""
        return self.off_the_callers() and len(self.m.frames) == self.opened

    def part_of_result(self, whole: Sym, part: Sym) -> None:
        """What a call has given is made of what it has made."""
        made = self.made.get(whole.vn) or self.maybe.get(whole.vn)
        if made is not None and part.vn not in self.made:
            self.maybe.setdefault(part.vn, made)

    def uploading(self) -> bool:
        """Whether a copy from the host is under way that the host has not waited for."""
        known = self.order.known(self.order.host)
        return any(known.get(t, 0) < at for t, at in self.uploads)

    def recorded_since(self, b: Block) -> bool:
        """Whether somebody can wait for an event for what was done to a block."""
        return any(
            all(known.get(a.timeline, 0) >= a.at for a in b.accesses if a.timeline is b.alloc)
            for known in self.snapshots
        )
