"""What torch, CuPy and Python do, as far as order and memory are concerned."""

from __future__ import annotations

import ast
from typing import Any

from streamsafe.apis import names as apis

from streamsafe.order.hazard import quoted

from .capture import Captures
from .displaced import MOVES, Displaced
from .legality import Legality
from .order import Access, Block, Hazard, Timeline, distinct, overlap
from .source import SYNCING, dotted
from .values import (NONE, Bound, Clock, Cls, Const, Ctx, Event, Func, Future, Gen, Generator, Graph, Graphed, Lazy, Lib, Map, Obj, Params, Partial,
                     Range, Seq, Stream, Sym, Tensor, Thread, V, Work)
from .warmup import Warmup

ASSUMPTIONS = frozenset("unmodelled model helper body consumer element place loaded pinned caller target kernel".split())
"""What an access may have to assume: that a call (of something like a model, of another package, of a function that is not followed) is
work of the device, what a consumer does, that two elements are one, where something lies, that a loader gives what is on the device, that memory is pinned, that a caller does not wait, that
the host is where something is moved to."""
HOSTS = ("pinned", "pageable", "host")
FILLS = frozenset("copyto shuffle put place putmask fill_diagonal".split())  # functions of numpy that write their first argument
FILLERS = {"readinto": 0, "recv_into": 0, "recvfrom_into": 0, "Recv": 0, "Irecv": 0, "preadv": 1, "readv": 1, "fromfile_into": 0}
"""Which argument of a method is written by the host."""
DTYPES = frozenset("""float32 float16 bfloat16 float64 half float double int8 int16 int32 int64 uint8 long int bool short
    float8_e4m3fn float8_e5m2 complex64 complex128 channels_last contiguous_format preserve_format""".split())
LOGGING = frozenset("debug info warning error critical log exception".split())
"""What loggers write down, which is text: nothing waits for it."""
GETTERS = ("get_", "is_", "has_", "current_", "default_", "use_", "should_", "can_")
GETTER_ENDS = ("_stream", "_rank", "_size", "_group", "_enabled", "_device", "_id", "_ctx", "_context")
NEVER_TENSORS = frozenset("append extend add insert pop popleft update get setdefault clear remove items keys values put get_nowait put_nowait".split())
KEEPING = frozenset("""save_for_backward save_for_forward mark_dirty mark_non_differentiable set_materialize_grads register_module add_module
    register_parameter register_buffer""".split())
"""Methods that keep what they are given and read nothing of it."""
IDENTITY = frozenset("""assertIs assertIsNot assertIsNone assertIsNotNone assertIsInstance assertNotIsInstance assertIn assertNotIn assertRaises
    assertRaisesRegex assertWarns assertLogs""".split())
"""What unittest asks of objects, not of their values."""
CALLED = ("forward", "__call__", "generate")
MOCKS = ("unittest.mock.", "mock.", "pytest_mock.")
ASSERTED = frozenset("""assert_called assert_called_once assert_called_with assert_called_once_with assert_any_call assert_has_calls
    assert_not_called assert_awaited assert_awaited_once""".split())
COMMON = apis.TENSOR_METHODS | NEVER_TENSORS | apis.ORDERING_METHODS | frozenset("""forward step run __call__ reset close start stop write read load save get
    to parameters backward replay record generate submit send recv copy_ zero_grad""".split())
INPLACE = apis.ARITHMETIC_METHODS | apis.OTHER_TENSOR_METHODS | frozenset("copy zero fill normal uniform clamp index_copy index_fill index_add scatter".split())
GRAPH_METHODS = frozenset("replay launch capture_begin capture_end pool register_generator_state".split())
MODULE_METHODS = frozenset("train eval requires_grad_ half float bfloat16 state_dict load_state_dict named_parameters modules children apply".split())


class Library(Captures, Legality, Displaced, Warmup):
    def __init__(self, machine) -> None:
        self.m = machine
        self.order = machine.order
        self.made: dict[int, tuple] = {}
        self.timelines: dict[int, Timeline] = {}
        self.comm = Timeline("the communication stream", "comm")
        self.freed: list = []
        self.last_unknown = 0
        self.grads = self.new_gradients()
        self.events: dict[int, Event] = {}
        self.instances: dict[int, Obj] = {}
        self.maybe: dict[int, tuple] = {}
        self.optimizers: dict[int, tuple] = {}
        self.sums: dict[Any, tuple] = {}  # by the key of a number: what it is the sum of
        self.nets: dict[Any, frozenset] = {}  # by block or unknown: the models it was computed by
        self.uploads: list[tuple] = []  # copies from the host: stream and place
        self.snapshots: list[dict] = []  # of the events that were recorded
        self.sent: dict[int, dict] = {}  # by what is in a queue: what its sender knew
        self.waiting: list[tuple] = []  # threads that take from queues: function, arguments, how often they may still go on
        self.numbers: dict[int, V] = {}  # by number: of what it is int()
        self.devices_named: dict[int, Any] = {}  # by the number of a text "cuda:N": the key of N
        self.devices: list[V] = []  # with torch.device(...)
        self.opened = 0  # how deep the frame is that has made a stream the current one
        self.given: dict[tuple[int, str], V] = {}
        self.modules: dict[int, str] = {}  # the classes of modules that were made
        self.went_to: dict[int, set] = {}  # by unknown: the devices that it, or a part of it, was copied to
        self.defaults: list[Stream] = []  # what default_stream() gave
        self.only_default: dict[Timeline, tuple] = {}  # the streams that have waited for nothing but the default stream: where
        self.steps: list[tuple] = []  # where and when optimizers have changed the parameters
        self.pointers: dict[int, Tensor] = {}  # what data_ptr() gave
        self.parents: dict[int, Sym] = {}  # of what unknowns are parts
        self.views: list[tuple] = []  # arrays of numpy that share memory with what copies fill: block, copy, and the access that reading is
        self.exchanges: list[dict] = []  # what was known where memory was handed over
        self.moved_to: dict[int, V] = {}  # by block: the device that is not known

        self.siblings: set[tuple[Any, Timeline]] = set()  # objects and streams: something that the object holds is recorded on the stream
        self.own: list[Block] = []  # what is recorded on the stream that it is allocated on
        self.copied: list[tuple[Block, Access]] = []  # what the caller has given and a stream of the entry copies
        self.lent_uses: list[tuple[Block, Access]] = []  # uses, on other streams, of what objects hold
        self.known_parameters: dict[int, Sym] = {}
        self.module_blocks: dict[Any, Block] = {}  # by the key of a module: its parameters
        self.started: dict[int, Thread] = {}  # by object: its thread
        self.graphs_of: dict[int, Graph] = {}  # by unknown
        self.pools: dict[Any, Block] = {}  # of graphs, by key
        self.runs: dict[Any, Any] = {}  # of modules, by key
        self.attributes: dict[Any, dict[str, bool]] = {}  # by class: whether a name is an attribute of its objects
        self.abandoned: Any = None  # the loss of gradients that a replay has written

    def new_gradients(self) -> Block:
        return Block("cuda", "gradients", fresh=True)

    def drop_gradients(self, node) -> None:
        """The gradients are set to None: the next pass makes new ones."""
        old, self.grads = self.grads, self.new_gradients()
        old.freed = self.m.site(node)
        self.gradients_lost(old, node)
        if old.accesses and old.alloc is not None:
            self.m.candidates[old.uid] = old
            self.m.released(node)

    # ------------------------------------------------------------------ small helpers
    canonical = staticmethod(apis.canonical)

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
                v.block = Block(place, v.text)
                v.block.given = v.vn if self.of_caller(v) else 0
                if v.vn in self.m.loaded:
                    v.block.notes.add("loaded")
                owner = self.m.owners.get(v.vn)
                if owner is not None:
                    v.block.owner = self.m.key(owner[0])
                made = self.made.get(v.vn) or self.maybe.get(v.vn)
                if made is not None:
                    t, at, site, op, seq, kind = made
                    v.block.accesses.append(Access(t, at, True, None, site, op, "", frozenset({kind}), seq))
                    v.block.alloc, v.block.fresh, v.block.home = t, True, site
                    v.block.notes.add("result")
                if ("v", v.vn) in self.nets:
                    self.nets[v.block.uid] = self.nets[("v", v.vn)]
            t = Tensor(v.block, None, text=v.text)
            t.stamp = v.stamp
            return t
        return Tensor(Block("unknown", ""), None)

    def tensorish(self, v: V) -> bool:
        return isinstance(v, Tensor) or isinstance(v, Sym) and (v.block is not None or v.vn in self.made)

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
        if isinstance(v, Seq):
            inner = v.items
        elif isinstance(v, Map):
            inner = v.items.values()
        elif isinstance(v, Obj):
            inner = v.fields.values()
        else:
            return set()
        return {b for i in list(inner) for b in self.blocks_in(i, depth + 1)}

    def stream(self, v: V | None, lib: str = "torch") -> Timeline | None:
        if v is None or isinstance(v, Const) and v.value is None:
            return self.cur(lib)
        if isinstance(v, Stream):
            return v.timeline
        if isinstance(v, Sym):
            t = self.timelines.get(v.vn)
            if t is None:
                t = self.timelines[v.vn] = Timeline(v.text or "a stream", "sym", lib=lib)
            return t
        if isinstance(v, Tensor):
            return None
        return None

    def new(self, node, place: str = "cuda", lib: str = "torch", op: str = "", write: bool = True, text: str = "", seq: int | None = None,
            at: int | None = None, notes: frozenset = frozenset()) -> Tensor:
        """A fresh tensor of the current stream."""
        b = Block(place, text, self.cur(lib) if place == "cuda" else None, self.m.site(node), lib, fresh=True)
        if place == "cuda":
            if self.capturing(self.cur(lib)):
                b.notes.add("private")
                b.kept = True
            else:
                self.allocated(self.cur(lib), node)
            if write:
                self.touch(b, None, True, op, node, lib, at=at, seq=seq, notes=notes)
        return Tensor(b, None)

    def allocated(self, t: Timeline, node, assumed: tuple[str, ...] = ()) -> None:
        """Memory is taken from the pool of a stream: what was released there too early may be what is given out.

        Args:
            assumed: what has to be assumed for that.
        """
        if not self.freed:
            return
        left = []
        for block, use, site in self.freed:
            if block.alloc is not t:
                left.append((block, use, site))
                continue
            if self.order.covers(t, use) or self.order.covers(self.order.host, use):
                continue
            if distinct(t, use.timeline) not in ("yes", "likely"):
                continue
            if block.text == "gradients" and use.part is None:
                continue
            code = "SS202" if block.lib == "cupy" else "SS113" if use.kind == "initial" else "SS201"
            place = ("place",) if block.place == "unknown" else ()
            h = Hazard(code, Access(t, 0, True, None, block.home, "allocation"), use, block, (*self.assumed(use), *place, *assumed))
            if assumed:
                left.append((block, use, site))
            h.seq = self.m.seq
            h.notes = [("released", site), ("reused", self.m.site(node))]
            self.m.hazards.append(h)
        self.freed = left

    def free(self, block: Block, s: ast.AST) -> None:
        block.freed = self.m.site(s)
        if not block.fresh or block.alloc is None or block.kept:
            return
        for a in reversed(block.accesses):
            if a.timeline is block.alloc or a.timeline is self.order.host or a.timeline in block.recorded:
                continue
            if a.kind == "collective":
                continue
            if self.order.covers(block.alloc, a) or self.order.covers(self.order.host, a):
                continue
            self.freed.append((block, a, self.m.site(s)))
            return

    def of_caller(self, v: Sym) -> bool:
        """Whether an unknown is a parameter of the entry, or a part of one."""
        for _ in range(6):
            if v.hint == "param":
                return True
            if v.vn not in self.parents:
                return False
            v = self.parents[v.vn]
        return False

    def said_on_device(self, block: Block) -> bool:
        """Whether the path says of something unknown that it is on the device."""
        if block.place != "unknown":
            return block.place == "cuda"
        vns, conds = self.m.vns, self.m.conds
        kind = vns.get(("attr", vns.get(("attr", block.given, "device")), "type"))
        return bool(conds.get(("eq", ("v", kind), ("c", "str", "cuda"))) or conds.get(("truth", ("v", vns.get(("attr", block.given, "is_cuda"))))))

    def unordered_with_caller(self, block: Block, a: Access) -> None:
        """A stream uses what the caller has given, and nothing can have made it wait for what the caller did to it."""
        if not self.free_of_waits(a.timeline):
            return
        if a.kind == "h2d" or a.kind != "d2h" and a.op in ("to", "copy_", "assignment", "arithmetic") and not (self.said_on_device(block) or "declared" in block.notes):
            return
        self.m.hazards.append(self.caller_hazard(a, block))

    def waited_for_default(self, block: Block, a: Access) -> None:
        """A stream has waited for the default stream, where what it uses is of the current one."""
        site, count = self.only_default.pop(a.timeline)
        current = self.m.ambient["torch"]
        if any(w is a.timeline and of is current for w, of, _, _ in self.order.waits[count:]) or site[0] is not self.m.frame.module \
                and not any(f.module is site[0] for f in self.m.frames):
            return
        first = Access(current, 0, True, None, block.home, "work of the current stream")
        self.m.hazards.append(Hazard("SS103", first, a, block, ("default",), wait=site))

    def free_of_waits(self, t: Timeline) -> bool:
        """Whether a stream of the program knows nothing of what the caller has done."""
        order = self.order
        if t.origin != "new" or t.blocking or t.lib != "torch" or self.m.quiet or not order.called or order.known(t).get(order.caller, 0) >= order.called:
            return False
        order.learn(t, order.known(order.host))
        if order.known(t).get(order.caller, 0) >= order.called or self.capturing(t) is not None:
            return False
        return t.born > order.began or not any(w is t for w, *_ in order.waits)

    def caller_hazard(self, a: Access, block: Block | None) -> Hazard:
        first = Access(self.m.ambient["torch"], 0, True, None, None, "work of the caller")
        assumed = [x for x in self.assumed(a) if x != "model"]  # what is called under a stream of its own works there
        h = Hazard("SS102" if a.write else "SS101", first, a, block, (*assumed, "caller"))
        h.notes = [("the stream", a.timeline.site)]
        if a.timeline.born <= self.order.began:
            h.never = a.timeline.site
        return h

    def lent(self, result: V = NONE) -> None:
        """At the end of an entry: what an object holds was used on a stream that others of the object are recorded on, and it is not."""
        siblings = self.siblings
        own, self.own = self.own, []
        for block in own:
            alloc = self.m.ambient["torch"]
            for a in block.accesses:
                t = a.timeline
                if t is alloc or t is self.order.host or t in block.recorded or a.kind == "collective" or distinct(t, alloc) not in ("yes", "likely") \
                        or self.order.covers(alloc, a) or self.order.covers(self.order.host, a):
                    continue
                at = Access(t, a.at, a.write, a.part, block.own, "record_stream() of its own stream", call=a.call)
                h = Hazard("SS201", Access(alloc, 0, True, None, block.home, "allocation"), at, block, self.assumed(a) or ("release",))
                h.notes = [("used", a.site)]
                self.m.hazards.append(h)
                break
        copied, self.copied = self.copied, []
        for block, a in copied:
            amb = self.m.ambient["torch"]
            if a.timeline in block.recorded or self.order.covers(amb, a) or self.order.covers(self.order.host, a) or block.uid in self.m.held([result]):
                continue
            if a.part is None and (a.kind == "d2h" or self.said_on_device(block)):
                h = Hazard("SS201", Access(amb, 0, True, None, None, "allocation"), a, block, ("release", *self.assumed(a)))
                self.m.hazards.append(h)
        for block, a in self.lent_uses:
            if (block.owner, a.timeline) in siblings and a.timeline not in block.recorded:
                amb = self.m.ambient["torch"]
                if not self.order.covers(amb, a) and not self.order.covers(self.order.host, a):
                    h = Hazard("SS201", Access(amb, 0, True, None, None, "allocation"), a, block, ("release", *self.assumed(a)))
                    self.m.hazards.append(h)

    def idle_wait(self, since: int) -> None:
        """A method ends by a wait for a stream that has nothing to do, while its other stream has: it waits for the wrong one."""
        waits = self.order.waits[since:]
        if not waits or self.order.idle != len(self.order.waits) - 1:
            return
        caller = self.m.ambient["torch"]
        waiter, idle, site, _ = waits[-1]
        if waiter is not caller or idle.origin != "new":
            return
        mine = [x for x in self.m.launches if x[0] > self.m.began]
        busy = mine[-1][1] if mine else None
        if busy is None or busy.origin != "new" or busy is idle or self.order.known(caller).get(busy, 0) >= mine[-1][2]:
            return
        _, t, at, first = mine[-1]
        self.m.hazards.append(Hazard("SS103", Access(t, at, True, None, first, "launch"), Access(caller, 0, False, None, site, "wait"), None, ("intended",)))

    # ------------------------------------------------------------------ accesses
    def touch(self, block: Block, part, write: bool, op: str, node, lib="torch", kind: str = "", at: int | None = None, seq: int | None = None,
              notes: frozenset = frozenset(), t: Timeline | None = None) -> None:
        t = t or self.cur(lib)
        cap = self.capturing(t)
        if cap is not None:
            cap.touch(block, part, write, node, notes)
            return
        self.order.access(block, t, write, part, self.m.site(node), op, kind, notes, seq if seq is not None else self.m.seq, at, lib)
        if t in self.only_default and block.place in ("cuda", "unknown") and kind != "h2d" and (block.alloc is self.m.ambient["torch"] or block.given and write):
            self.waited_for_default(block, block.accesses[-1])
        if block.given:
            self.unordered_with_caller(block, block.accesses[-1])
            if not write and t.lib == "torch" and t.origin == "new" and t.born > self.order.began and (kind == "d2h" or op == "copy_" and kind != "h2d"):
                self.copied.append((block, block.accesses[-1]))
        if block.fresh and block.alloc is not None and t is not block.alloc and t is not self.order.host:
            self.m.candidates[block.uid] = block
        elif block.owner is not None and t.origin not in ("ambient", "null", "host"):
            self.lent_uses.append((block, block.accesses[-1]))

    def launch(self, reads: list[Tensor], writes: list[Tensor], op: str, node, lib: str = "torch", kind: str = "", strong: bool = True,
               notes: frozenset = frozenset(), t: Timeline | None = None) -> tuple[int, int]:
        """One operation of a stream."""
        t = t or self.cur(lib)
        seq = self.tick()
        at = self.order.enqueue(t)
        if kind == "h2d":
            self.uploads.append((t, at))
        if strong:
            self.m.launches.append((seq, t, at, self.m.site(node)))
        if self.m.capture is not None:
            if t in self.m.capture.streams:
                self.m.capture.worked(t, at, node)
            else:
                self.eager_inside(t, [*reads, *writes], node, lib)
        for x in reads:
            if x.block.writer is not None:
                self.overlaid(x)
        if len(reads) > 1:
            self.several_replays(reads, node, op)
        for x in reads:
            self.touch(x.block, x.part, False, op, node, lib, kind, at, seq, notes, t)
        for x in writes:
            self.touch(x.block, x.part, True, op, node, lib, kind, at, seq, notes, t)
        return at, seq

    def host(self, x: Tensor, write: bool, op: str, node, notes: frozenset = frozenset()) -> None:
        self.tick()
        if x.block.place == "cuda":
            return
        self.host_in_capture(x.block, write, node)
        self.order.access(x.block, self.order.host, write, x.part, self.m.site(node), op, "", notes, self.m.seq)

    def sync_host(self, t: Timeline | None, node, op: str = "synchronize") -> None:
        """The host waits for a stream, or for all of them."""
        self.beside()
        cap = self.m.capture
        if cap is not None:
            self.violation("SS401", node, op)
            return
        self.tick()
        if t is None:
            self.order.all_known(self.order.host)
        else:
            self.order.wait(self.order.host, self.order.snapshot(t), self.m.site(node), t)
        self.order.waits and self.order.waits[-1:]

    def everything(self, node) -> None:
        """Somebody may have waited for everything."""
        self.order.all_known(self.order.host)
        for t in list(self.order.ticks):
            if t is not self.order.host:
                self.order.all_known(t)

    def violation(self, code: str, node, op: str, notes=(), assumptions=()) -> None:
        self.violation_at(code, self.m.site(node), op, notes, assumptions)

    def violation_at(self, code: str, site, op: str, notes=(), assumptions=()) -> None:
        if self.m.expecting:
            return
        second = Access(self.cur(), 0, False, None, site, op)
        if self.m.capture is not None and self.m.boundaries and self.m.capture.graph.at <= self.m.boundaries[-1]:
            assumptions = (*assumptions, "open")  # a capture that another method has begun
        h = Hazard(code, None, second, None, tuple(assumptions))
        h.notes = list(notes)
        self.m.hazards.append(h)

    def assumed(self, *accesses: Access) -> tuple[str, ...]:
        return tuple(n for a in accesses for n in a.notes if n in ASSUMPTIONS)

    def conflict(self, block: Block, first: Access, second: Access) -> None:
        host = self.order.host
        assumed = list(self.assumed(first, second))
        if block.place == "pool":
            if distinct(first.timeline, second.timeline) in ("yes", "likely"):
                self.violation_at("SS409", second.site, "replay")
            return
        if first.timeline is not host and second.timeline is not host:
            d = distinct(first.timeline, second.timeline)
            if d in ("no", "unknown"):
                return
            if d == "likely" and not self.order.told_apart(first.timeline, second.timeline):
                assumed.append("stream")
        o = overlap(first.part, second.part)
        if o != "yes":
            return
        if "helper" in second.notes and first.timeline.origin == "new" and first.timeline.name.startswith("<"):
            assumed = ["unnamed" if a == "helper" else a for a in assumed]  # nobody can wait for a stream that has no name
        if first.timeline is host:
            return
        if second.timeline is host:
            if block.place == "unknown" and first.kind not in ("d2h", "h2d"):
                return
            if first.kind not in ("d2h", "h2d"):
                return
            if block.place not in HOSTS:
                assumed.append("place")
            code = "SS302" if second.write else "SS301"
        elif first.library != second.library and first.call <= block.shared:
            code = "SS501"
        elif second.kind == "backward" and first.kind != "backward" and first.part is not None and len(first.part[0]) == 3:
            return  # the gradient of what one pass has made: the next pass has another one
        elif first.kind == second.kind == "backward" and not first.notes & second.notes:
            return  # of other models, as far as can be seen
        elif first.kind == second.kind == "backward":
            code = "SS111"
        elif first.kind == "backward" and second.kind != "backward":
            code = "SS111"
        elif second.kind == "initial":
            code = "SS112"
        else:
            code = "SS102" if second.write else "SS101"
        wait = None
        if code in ("SS101", "SS102"):
            for waiter, of, site, snap in reversed(self.order.waits):
                if (waiter is second.timeline or waiter is host) and of is first.timeline and first.timeline in snap:
                    if snap[first.timeline] < first.at:
                        wait = site
                    break
            if wait is not None:
                code = "SS103"
        self.m.hazards.append(Hazard(code, first, second, block, tuple(assumed), wait=wait))

    # ------------------------------------------------------------------ computing
    def lib_of(self, values: list[V]) -> str:
        for v in values:
            for t in self.tensors_in(v):
                if t.block.lib == "cupy":
                    return "cupy"
        return "torch"

    def compute(self, values: list[V], node, op: str, lib: str | None = None, strong: bool = True, write: list[Tensor] = (), fresh: bool = True,
                notes: frozenset = frozenset()) -> V:
        given = [t for v in values for t in self.tensors_in(v)] if self.m.capture is not None else []
        out = self.computed_by(self.compute_(values, node, op, lib, strong, write, fresh, notes), self.nets_of(*values))
        if given and isinstance(out, Tensor) and fresh and all("possible" in t.block.notes for t in given):
            out.block.notes.add("possible")
        if isinstance(out, Tensor) and fresh:
            first = values[0] if values else None
            out.mask = op == "compare" or op in apis.MASKS or op in ("arithmetic", "where", "view", "clone", "to") and isinstance(first, Tensor) and first.mask \
                and not any(isinstance(v, Tensor) and not v.mask for v in values)
        return out

    def compute_(self, values: list[V], node, op: str, lib: str | None = None, strong: bool = True, write: list[Tensor] = (), fresh: bool = True,
                notes: frozenset = frozenset()) -> V:
        """An operator: on the host where all that it is given is there, else on the current stream."""
        tensors = [t for v in values for t in self.tensors_in(v)]
        if not (tensors and all(t.block.place in HOSTS for t in tensors)):
            tensors += self.captured_arguments(values)
        syms = [v for v in values if isinstance(v, Sym) and v.hint not in ("index", "host") and not self.tensorish(v)]
        if not tensors and not write and not syms:
            return self.m.fresh(f"<{op}>")
        all_ = [*tensors, *write]
        if all_ and all(t.block.place in HOSTS or t.numpy for t in all_):
            for t in tensors:
                self.host(t, False, op, node)
            for t in write:
                self.host(t, True, op, node)
            if not fresh:
                return write[0] if write else NONE
            out = Tensor(Block("pageable", ""), None, any(t.numpy for t in all_))
            return out
        lib = lib or self.lib_of(values)
        device = [t for t in tensors if t.block.place not in HOSTS]
        for t in tensors:
            if t.block.place in HOSTS:
                self.host(t, False, op, node)
        at, seq = self.launch(device, [t for t in write if t.block.place not in HOSTS], op, node, lib, strong=strong and bool(all_), notes=notes)
        if not fresh:
            return write[0] if write else NONE
        if not all_:
            return self.unknown_result(node, op, at, seq)
        out = self.new(node, "cuda", lib, op, True, at=at, seq=seq, notes=notes)
        if lib == "torch" and all(t.block.place == "unknown" or "guessed" in t.block.notes for t in all_):
            out.block.notes.add("guessed")
            if any("loaded" in t.block.notes for t in all_):
                out.block.notes.add("loaded")
        return out

    def unsure(self, t: Tensor) -> frozenset:
        """What has to be assumed for something to lie on the device: nothing where it was made there, or is used by a stream of its own."""
        b = t.block
        if b.place == "cuda" and "guessed" not in b.notes or b.lib == "cupy" or self.off_the_callers():
            return frozenset()
        if any(a.timeline.origin not in ("ambient", "null", "host") for a in b.accesses):
            return frozenset()
        return frozenset({"loaded" if "loaded" in b.notes else "place"})

    def unknown_result(self, node, op: str, at: int | None = None, seq: int | None = None, computes: bool = False, kind: str = "unmodelled") -> Sym:
        """What a call gives that is not followed; ``computes``: it is given something that may be a tensor."""
        launched = at is not None
        cap = self.capturing(self.cur())
        if at is None:
            seq = self.tick()
            at = self.order.enqueue(self.cur()) if cap is None else 0
        s = self.m.fresh(f"<{op}>", "result")
        if cap is not None:
            if launched:
                cap.result(s, node, frozenset({kind}))
            return s
        what = (self.cur(), at, self.m.site(node), op, seq, kind)
        if launched or self.cur().origin not in ("ambient", "null"):
            self.made[s.vn] = what
            self.allocated(self.cur(), node, (kind,))
        elif computes:
            self.maybe[s.vn] = what
            self.allocated(self.cur(), node, (kind,))
        return s

    def binary(self, a: V, b: V, node: ast.BinOp) -> V:
        if isinstance(a, Const) and isinstance(b, Const):
            try:
                op = type(node.op)
                x, y = a.value, b.value
                if op is ast.Add:
                    return Const(x + y)
                if op is ast.Sub:
                    return Const(x - y)
                if op is ast.Mult and not isinstance(x, (list, tuple)):
                    return Const(x * y) if not (isinstance(x, str) or isinstance(y, str)) else self.m.fresh("<text>", "host")
                if op is ast.Mod and not isinstance(x, str):
                    return Const(x % y)
                if op is ast.FloorDiv:
                    return Const(x // y)
                if op is ast.BitXor:
                    return Const(x ^ y)
                if op is ast.BitAnd:
                    return Const(x & y)
            except Exception:
                pass
        if isinstance(a, Clock) or isinstance(b, Clock):
            if isinstance(a, Clock) and isinstance(b, Clock) and isinstance(node.op, ast.Sub):
                return self.timed(b, a, node)
            return self.m.fresh("<seconds>", "host")
        for one, other in ((a, b), (b, a)):
            if one in self.m.measured and not self.tensorish(other):
                return self.measured_from(one)
        if isinstance(node.op, ast.Mod) and isinstance(a, Const) and isinstance(a.value, str):
            self.host_value(b, node, "formatting")
        if self.tensorish(a) or self.tensorish(b):
            return self.compute([a, b], node, "arithmetic")
        if isinstance(node.op, ast.Add) and isinstance(a, Seq) and isinstance(b, Seq):
            return Seq([*a.items, *b.items], a.kind, a.more or b.more)
        if isinstance(node.op, ast.Mult) and (isinstance(a, Seq) or isinstance(b, Seq)):
            s, n = (a, b) if isinstance(a, Seq) else (b, a)
            if isinstance(n, Const) and isinstance(n.value, int) and n.value <= 8:
                return Seq(list(s.items) * n.value, s.kind)
            return Seq(list(s.items) * 2, s.kind, True)
        captured = self.captured_arithmetic([a, b], node)
        if captured is not None:
            return captured
        key = ("bin", type(node.op).__name__, self.m.key(a), self.m.key(b))
        if isinstance(node.op, ast.Mod) and isinstance(a, Const) and isinstance(b, Sym):
            self.m.turns[("v", self.m.vn(key))] = (a.value, self.m.key(b))
        self.note_sum(node.op, a, b, ("v", self.m.vn(key)))
        hint = "index" if any(isinstance(v, Const) or isinstance(v, Sym) and v.hint == "index" for v in (a, b)) else ""
        if isinstance(a, Const) and isinstance(a.value, str):
            hint = "host"
        if any(isinstance(v, Sym) and v.hint in ("param", "attr", "element", "result") for v in (a, b)) and not any(
                isinstance(v, Sym) and v.hint in ("index", "host", "getter") for v in (a, b)) and self.m.capture is None:
            if self.off_the_callers() and len(self.m.frames) == self.opened and not isinstance(node.op, (ast.Mod, ast.FloorDiv)):
                return self.compute([self.tensor(v) if isinstance(v, Sym) else v for v in (a, b)], node, "arithmetic")
            s = self.m.sym(self.m.vn((*key, len(self.m.vns))), "<number>", "result")
            self.m.equal[s.vn] = ("v", self.m.vn(key))
            seq = self.tick()
            self.maybe[s.vn] = (self.cur(), self.order.enqueue(self.cur()), self.m.site(node), "arithmetic", seq, "unmodelled")
            self.allocated(self.cur(), node, ("unmodelled",))
            return s
        return self.m.sym(self.m.vn(key), "<number>", hint)

    def off_the_callers(self) -> bool:
        """Whether a stream other than the caller's is the current one: what is computed there is computed by the device."""
        return self.cur().origin not in ("ambient", "null")

    def unary(self, v: V, node) -> V:
        if self.tensorish(v):
            return self.compute([v], node, "arithmetic")
        return self.m.sym(self.m.vn(("neg", self.m.key(v))), "<number>", getattr(v, "hint", ""))

    def inplace(self, target: V, value: V, s: ast.AugAssign) -> V:
        if isinstance(target, Const) and isinstance(value, Const):
            node = ast.BinOp(s.target, s.op, s.value)
            return self.binary(target, value, node)
        if isinstance(target, Clock) or isinstance(value, Clock):
            if isinstance(target, Clock) and isinstance(value, Clock) and isinstance(s.op, ast.Sub):
                return self.timed(value, target, s)
            return self.m.fresh("<seconds>", "host")
        self.reported(value)
        if isinstance(target, Seq) and isinstance(value, Seq):
            target.items += value.items
            target.more |= value.more
            return target
        if isinstance(target, Tensor) or isinstance(target, Sym) and target.block is not None:
            t = self.tensor(target)
            self.compute([t, value], s, "arithmetic", write=[t], fresh=False)
            return target
        if self.tensorish(value):
            return self.compute([target, value], s, "arithmetic")
        if self.captured_arithmetic([target, value], s, [target]) is not None:
            return target
        return self.m.sym(self.m.vn(("aug", type(s.op).__name__, self.m.key(target), self.m.key(value))), "<number>", getattr(target, "hint", "") or "index")

    def timed(self, begin: Clock, end: Clock, node) -> Sym:
        """The time between two readings: a finding where it is more than compared or slept for."""
        seconds = self.m.fresh("<seconds>", "host")
        last = next((x for x in reversed(self.m.launches) if begin.seq < x[0] < end.seq), None)
        if last is None or self.last_unknown_between(last[0], end.seq):
            return seconds
        seq, t, at, site = last
        if self.clock_known.get(id(end), {}).get(t, 0) < at:
            h = Hazard("SS311", Access(t, at, True, None, site, "launch"), Access(self.order.host, 0, False, None, end.site, "clock"), None)
            self.m.measured[seconds] = h
        return seconds

    def measured_from(self, v: V) -> Sym:
        """What is computed from a measured time."""
        s = self.m.fresh("<seconds>", "host")
        self.m.measured[s] = self.m.measured[v]
        return s

    def reported(self, v: V, depth: int = 0) -> None:
        """A measured time is told to somebody, or kept."""
        h = self.m.measured.get(v)
        if h is not None and h not in self.m.hazards:
            self.m.hazards.append(h)
        if isinstance(v, (Seq, Map)) and depth < 2 and self.m.measured:
            for i in v.items if isinstance(v, Seq) else list(v.items.values()):
                self.reported(i, depth + 1)

    clock_known: dict[int, dict] = {}

    def last_unknown_between(self, a: int, b: int) -> bool:
        return any(a < s < b for s in self.m.uncertain)

    # ------------------------------------------------------------------ subscripts and views
    def part_of(self, node: ast.expr) -> Any:
        def one(n):
            if isinstance(n, ast.Slice):
                lo = self.bound(n.lower)
                hi = self.bound(n.upper)
                if n.step is not None:
                    self.m.eval(n.step)
                return ("s", lo, hi)
            v = self.m.eval(n)
            if isinstance(v, Const) and (isinstance(v.value, int) or v.value is None or v.value is Ellipsis):
                return ("i", v.value)
            if isinstance(v, Tensor) or self.tensorish(v):
                return ("m", self.tensor(v))
            if self.m.capture is None and (isinstance(v, Seq) and v.kind == "list" or isinstance(v, Sym) and v.vn in self.m.listed):
                return ("m", Tensor(Block("pageable")))  # it picks a copy
            return ("i", self.m.key(v))

        parts = [one(e) for e in node.elts] if isinstance(node, ast.Tuple) else [one(node)]
        return tuple(parts)

    def bound(self, n: ast.expr | None):
        if n is None:
            return None
        v = self.m.eval(n)
        if isinstance(v, Const) and isinstance(v.value, int):
            return v.value
        if isinstance(v, Tensor):
            self.host_value(v, n, "a bound of a slice")
        form = self.linear(v)
        return ("lin", tuple(sorted(form[0].items(), key=repr)), form[1])

    def linear(self, v: V) -> tuple[dict, int]:
        """A number as a sum of unknowns and a constant."""
        if isinstance(v, Const) and isinstance(v.value, int):
            return {}, v.value
        k = self.m.key(v)
        return self.sums.get(k) or ({k: 1}, 0)

    def note_sum(self, op: ast.operator, a: V, b: V, key: Any) -> None:
        """Remember what a number is the sum of."""
        (x, c), (y, d) = self.linear(a), self.linear(b)
        if isinstance(op, (ast.Add, ast.Sub)):
            sign = 1 if isinstance(op, ast.Add) else -1
            total = {k: n for k in {*x, *y} if (n := x.get(k, 0) + sign * y.get(k, 0))}
            self.sums[key] = (total, c + sign * d)
        elif isinstance(op, ast.Mult) and (not x or not y):
            factor, (z, e) = (c, (y, d)) if not x else (d, (x, c))
            self.sums[key] = ({k: n * factor for k, n in z.items() if factor}, e * factor)

    def index(self, t: Tensor, node: ast.expr, n) -> V:
        part = self.part_of(node)
        masks = [p[1] for p in part if p[0] == "m"]
        if masks:
            device = t.block.place not in HOSTS and not t.numpy
            out = self.compute([t, *(m for m in masks if m.block.place not in HOSTS)], n, "indexing")
            if device and any(m.mask and m.block.place not in HOSTS for m in masks):
                self.sync_host(self.cur(t.block.lib), n, "indexing by a mask")
            elif t.block.place == "cuda" and self.m.capture is not None and any(m.block.place in HOSTS for m in masks):
                self.violation("SS401", n, "indexing by a tensor of the host")
            return out
        if self.m.capture is not None and isinstance(node, ast.Name):
            v = self.m.eval(node)
            if isinstance(v, Seq) and v.kind == "list" and t.block.place not in HOSTS and v.items and not isinstance(v.items[0], Sym):
                self.violation("SS401", n, "indexing by a list")
        return self.view(t, part)

    def view(self, t: Tensor, part) -> Tensor:
        v = self.view_(t, part)
        v.stamp = t.stamp
        return v

    def view_(self, t: Tensor, part) -> Tensor:
        if any(p == ("s", None, None) or p == ("i", Ellipsis) or p == ("i", None) for p in part):
            if all(p in (("s", None, None), ("i", Ellipsis), ("i", None)) for p in part):
                return Tensor(t.block, t.part, t.numpy)
        if t.part is None:
            return Tensor(t.block, part, t.numpy)
        return Tensor(t.block, t.part, t.numpy) if t.part == part else Tensor(t.block, (*t.part, ("sub",), *part), t.numpy)

    def slice_of(self, owner: Sym, node, n) -> V:
        part = (("s", self.bound(node.lower), self.bound(node.upper)),)
        s = self.m.sym(self.m.vn(("slice", owner.vn, part)), f"{owner.text}[...]", owner.hint)
        if owner.block is not None:
            return self.view(self.tensor(owner), part)
        return s

    def set_item(self, owner: V, target: ast.Subscript, v: V, s, aug: bool) -> None:
        if isinstance(owner, Seq):
            index = self.m.eval(target.slice) if not isinstance(target.slice, ast.Slice) else None
            if isinstance(index, Const) and isinstance(index.value, int) and -len(owner.items) <= index.value < len(owner.items):
                old = owner.items[index.value]
                owner.items[index.value] = v
                self.m.maybe_released(old, s)
            elif index is not None and owner.items:
                memo = self.m.likes
                memo[("elem", id(owner), self.m.key(index))] = v
            return
        if isinstance(owner, Obj):
            setter = owner.cls.method("__setitem__")
            if setter is not None:
                index = self.m.eval(target.slice) if not isinstance(target.slice, ast.Slice) else self.m.fresh("slice", "index")
                self.m.call_function(Func(setter, owner), [index, v], {}, s)
            return
        if isinstance(owner, Map):
            index = self.m.eval(target.slice) if not isinstance(target.slice, ast.Slice) else NONE
            k = self.m.map_key(owner, index)
            old = owner.items.get(k)
            if self.m.graphs:
                if k[0] != "c" and all(key[0] == "c" for key in owner.items):
                    self.unknown_keys(owner, v, s)
                self.kept_beside([x for key, x in owner.items.items() if key != k], v, s, "an entry")
                v = self.stamp(v)
            owner.items[k] = v
            if old is not None:
                self.m.maybe_released(old, s)
            return
        named = isinstance(target.slice, ast.JoinedStr) or isinstance(target.slice, ast.Constant) and isinstance(target.slice.value, str)
        if not isinstance(owner, Tensor) and isinstance(v, Sym | Tensor) and not named and isinstance(target.slice, ast.Name):
            named = isinstance(self.m.eval(target.slice), Const) and isinstance(self.m.eval(target.slice).value, str)
        if isinstance(owner, Tensor) and named:
            self.m.fields[(self.m.vn(("e", self.m.key(owner))), repr(self.m.key(self.m.eval(target.slice))))] = v
            return
        if isinstance(owner, Tensor) or isinstance(owner, Sym) and not named and not isinstance(v, Seq | Map | Obj) and (
                owner.block is not None or self.tensorish(owner) or self.tensorish(v)):
            t = self.tensor(owner)
            if aug:
                return
            part = self.part_of(target.slice)
            masks = [p[1] for p in part if p[0] == "m"]
            dest = t if masks else self.view(t, part)
            if masks and t.part is None:
                dest = Tensor(t.block, (("i", ("mask", masks[0].block.uid)),), t.numpy)
            self.copy(dest, v, False, s, masks)
            return
        if isinstance(owner, Sym):
            if not isinstance(target.slice, ast.Slice):
                index = self.m.eval(target.slice)
                self.m.fields[(self.m.vn(("e", self.m.key(owner))), repr(self.m.key(index)))] = v
                if isinstance(v, Sym):
                    self.parents.setdefault(v.vn, owner)
            else:
                self.bound(target.slice.lower), self.bound(target.slice.upper)

    def copy(self, dest: Tensor, source: V, non_blocking: bool, node, more: list = (), sure: bool = False) -> None:
        """dest.copy_(source)"""
        lib = dest.block.lib
        src = self.tensors_in(source)
        if not src and sure and (non_blocking or dest.block.place not in HOSTS) and isinstance(source, Sym) and source.hint not in ("index", "host"):
            src = [self.tensor(source)]
        dp = "host" if dest.numpy else dest.block.place
        if not src:
            if dp in HOSTS:
                self.host(dest, True, "assignment", node)
            elif dp == "cuda" or dest.block.accesses or self.cur().origin != "ambient":
                reads = []
                self.launch(list(more), [dest], "assignment", node, lib)
            return
        s = src[0]
        sp = "host" if s.numpy and s.block.place != "pinned" else s.block.place
        if dp in HOSTS and (sp in HOSTS):
            self.host(s, False, "copy", node)
            self.host(dest, True, "copy", node)
        elif dp in HOSTS:
            self.d2h(s, dest, non_blocking and dp != "pageable", node, lib)
        elif sp == dp == "unknown" and any(a.kind == "d2h" and a.write for a in s.block.accesses) and not non_blocking:
            self.host(s, False, "copy", node)
        elif sp in HOSTS:
            if non_blocking and sp == "host" and not s.numpy and any(a.kind == "d2h" for a in s.block.accesses):
                self.launch(list(more), [dest], "copy_", node, lib, "h2d")  # pinned or not: both copies are of one stream, or both are waited for
            elif not non_blocking or sp in ("pageable", "host"):
                self.host(s, False, "copy", node)
                self.launch(list(more), [dest], "copy_", node, lib)
                if not non_blocking:
                    self.sync_host(self.cur(lib), node, "copy")
            else:
                self.launch([s], [dest], "copy_", node, lib, "h2d")
        elif self.peers(s.block, dest.block):
            self.peer_copy(s, dest, node, lib)
        else:
            self.launch([s, *more], [dest], "copy_", node, lib, "h2d" if non_blocking and sp == "unknown" and dp == "cuda" else
                        "d2h" if non_blocking and dp == "unknown" and sp == "cuda" else "")

    def peers(self, a: Block, b: Block) -> bool:
        """Whether two tensors are on two devices, as far as the path says it."""
        return a.device is not None and b.device is not None and a.device != b.device

    def peer_copy(self, s: Tensor, dest: Tensor, node, lib: str) -> None:
        """A copy between two devices: it is done by the current stream of the source's device, and both devices' streams wait for each other."""
        cur = self.cur(lib)
        t = cur if cur.device in (None, s.block.device) else self.m.ambient[lib]
        for other in {cur, self.m.ambient[lib]} - {t}:
            self.order.learn(t, self.order.snapshot(other))
        self.launch([s], [dest], "copy_", node, lib, t=t)
        for other in {cur, self.m.ambient[lib]} - {t}:
            self.order.learn(other, self.order.snapshot(t))

    def d2h(self, s: Tensor, dest: Tensor, non_blocking: bool, node, lib: str = "torch", made: bool = False) -> None:
        if self.m.capture is not None and not non_blocking:
            self.violation("SS401", node, "a copy to the host")
            return
        unsure = self.unsure(s) if made or dest.block.place != "pinned" else frozenset()
        if dest.block.place == "host" and not dest.numpy:
            unsure |= {"pinned"}
        self.launch([s], [dest], "copy to the host", node, lib, "d2h", notes=unsure)
        if not non_blocking:
            self.sync_host(self.cur(lib), node, "a copy to the host")

    def set_data(self, owner: V, v: V, s) -> None:
        if isinstance(owner, Sym):
            if self.m.graphs:
                self.parameter_data(owner, v, s)
            t = self.tensor(v)
            old = owner.block
            if owner.hint == "parameter" and old is not None:
                old.accesses += [a for a in t.block.accesses if a.write]
                return
            owner.block = t.block
            self.m.fields[(owner.vn, "data")] = v
            if old is not None:
                self.m.released(s)
        elif isinstance(owner, Tensor):
            t = self.tensor(v)
            owner.block, owner.part = t.block, t.part
            self.m.released(s)

    def set_grad(self, owner: Tensor, v: V, s) -> None:
        if isinstance(v, Const) and v.value is None:
            self.m.fields.pop((-owner.block.uid, "grad"), None)
            self.drop_gradients(s)
        else:
            self.m.fields[(-owner.block.uid, "grad")] = v

    # ------------------------------------------------------------------ attributes
    def lib_attribute(self, name: str) -> V:
        name = self.canonical(name)
        if name in ("cupy.cuda.Stream.null",):
            return Stream(self.m.null)
        if name == "math.inf":
            return Const(float("inf"))
        return Lib(name)

    def attribute(self, owner: V, attr: str, n) -> V:
        m = self.m
        if isinstance(owner, Sym) and owner.hint == "mock":
            return m.sym(m.vn(("attr", owner.vn, attr)), f"{owner.text}.{attr}", "mock")
        if isinstance(owner, Sym):
            v = m.fields.get((owner.vn, attr)) or self.given.get((owner.vn, attr))
            if v is not None:
                return v
            if attr in ("data", "T", "mT", "real", "imag") and owner.block is not None:
                return self.tensor(owner)
            if attr == "data" and owner.hint == "parameter":
                return self.tensor(owner, "cuda")
            if attr == "grad":
                return self.gradient_of(owner)
            if attr in ("shape", "dtype", "ndim", "is_cuda", "requires_grad", "itemsize"):
                return m.sym(m.vn(("attr", owner.vn, attr)), f"{owner.text}.{attr}", "host")
            if owner.hint in ("super",):
                return Bound(owner, attr)
            if attr == "param_groups" and owner.vn in self.optimizers:
                self.optimizers[owner.vn] = ("", {})  # its options may be set there
            s = m.sym(m.vn(("attr", owner.vn, attr)), f"{owner.text}.{attr}", "attr")
            self.parents.setdefault(s.vn, owner)
            if attr not in apis.TENSOR_METHODS:
                if owner.vn in self.made:
                    self.made.setdefault(s.vn, self.made[owner.vn])
                if owner.block is not None and "private" in owner.block.notes:
                    s.block = owner.block
                    if owner.stamp is not None:
                        s = s.copy()
                        s.stamp = owner.stamp
            m.owners[s.vn] = (owner, attr)
            return s
        if isinstance(owner, Tensor):
            if attr in ("data", "T", "mT", "H", "real", "imag", "flat", "base"):
                return owner
            if attr == "grad":
                return m.fields.get((-owner.block.uid, "grad")) or self.gradient_of(owner)
            if attr == "device" and owner.block.uid in self.moved_to:
                return self.moved_to[owner.block.uid]
            if attr in ("shape", "dtype", "ndim", "is_cuda", "requires_grad", "device", "nbytes", "size", "itemsize", "layout", "strides"):
                if attr != "size" or owner.block.lib == "cupy" or owner.numpy:
                    return m.sym(m.vn(("meta", owner.block.uid, attr)), attr, "host")
            return Bound(owner, attr)
        if isinstance(owner, Const) and isinstance(owner.value, str) and attr == "type":
            return Const(owner.value.partition(":")[0])  # of a device
        if isinstance(owner, Seq) and attr == "maxlen":
            return Const(None)
        if attr == "done" and isinstance(owner, (Stream, Event)):
            return self.method(owner, "query", [], {}, n)
        return Bound(owner, attr)

    def gradient_of(self, owner: V) -> Tensor:
        kept = isinstance(owner, Sym) and owner.hint in ("parameter", "param", "attr")
        return Tensor(self.grads, (("i", self.m.key(owner)) if kept else ("i", self.m.key(owner), "of one pass"),), text="grad")

    def parameter(self, p: Params, i: int) -> V:
        s = self.m.sym(self.m.vn(("parameter", self.m.key(p.of), i)), "parameter", "parameter")
        if s.block is None:
            known = self.known_parameters
            s = known.setdefault(s.vn, s)
            if s.block is None:
                s.block = self.params_block(p.of)
        return s

    def move_module(self, r: Sym, name: str, args, kwargs, n) -> V:
        """``x.to(...)`` whose value nobody takes: x is a module, whose parameters go elsewhere."""
        known = self.module_blocks
        k = self.m.key(r)
        old = known.get(k)
        w = {self.where(v) for v in (*args[:2], *(v for kk, v in kwargs.items() if kk in ("device", "dtype")))} - {""} if name == "to" else \
            {"cpu" if name == "cpu" else "cuda"}
        non = self.flag(kwargs.get("non_blocking")) or any(isinstance(v, Const) and v.value is True for v in args[1:])
        if w == {"dtype"}:
            if old is not None and old.place in HOSTS:
                self.host(Tensor(old), False, "to", n)
                known[k] = Block("pageable", "parameters")
            elif old is not None:
                self.launch([Tensor(old)], [Tensor(old)], "to", n)
        elif "cpu" in w:
            known[k] = Block("pinned" if non else "pageable", "parameters")
            self.d2h(Tensor(old or Block("cuda", "parameters")), Tensor(known[k]), non, n)
        elif w & {"cuda", "cuda?"}:
            known[k] = new = Block("cuda", "parameters", self.cur(), self.m.site(n))
            if old is not None and old.place in HOSTS:
                self.launch([Tensor(old)] if non else [], [Tensor(new)], "to", n, kind="h2d" if non else "")
            else:
                self.launch([], [Tensor(new)], "to", n)
            if not non:
                self.sync_quiet()
        return r

    def params_block(self, of: V) -> Block:
        known = self.module_blocks
        k = self.m.key(of)
        b = known.get(k)
        if b is None:
            b = known[k] = Block("cuda", "parameters")
        return b

    # ------------------------------------------------------------------ contexts
    def enters(self, t: Timeline, node) -> None:
        """A stream becomes the current one."""
        self.m.trail.add(self.m.seq, "enters", f"enters {quoted(t.name)}", self.m.site(node), t)

    def enter(self, ctx: V, node) -> Any:
        if isinstance(ctx, Ctx):
            if ctx.kind == "stream":
                lib, t = ctx.payload
                self.enters(t, node)
                self.m.current[lib].append(t)
                self.opened = len(self.m.frames)
                return ("stream", lib)
            if ctx.kind == "expecting":
                self.m.expecting += 1
                return ("expecting",)
            if ctx.kind in ("stack", "pool"):
                return (ctx.kind, ctx.payload)
            if ctx.kind == "capture":
                g, st, options = ctx.payload
                return self.begin_capture(g, st, node, options=options)
            return None
        if isinstance(ctx, Stream):
            lib = ctx.timeline.lib
            self.enters(ctx.timeline, node)
            self.m.current[lib].append(ctx.timeline)
            return ("stream", lib)
        if isinstance(ctx, Const) and isinstance(ctx.value, str) or isinstance(ctx, Sym) and ctx.hint == "device":
            self.devices.append(ctx)
            return ("device",)
        if isinstance(ctx, Sym):
            t = self.timelines.get(ctx.vn)
            if t is not None:
                self.enters(t, node)
                self.m.current[t.lib].append(t)
                return ("stream", t.lib)
        return None

    def leave(self, opened, node) -> None:
        if opened is None:
            return
        if opened[0] == "device":
            self.devices.pop()
        elif opened[0] == "expecting":
            self.m.expecting -= 1
        elif opened[0] == "stack":
            while opened[1]:
                self.leave(opened[1].pop(), node)
        elif opened[0] == "pool":
            for th in opened[1]:
                th.running = False
        elif opened[0] == "stream":
            self.m.current[opened[1]].pop()
        elif opened[0] == "capture":
            self.end_capture(node)
            if opened[1]:
                self.m.current["torch"].pop()

    # ------------------------------------------------------------------ the host looks
    def host_value(self, v: V, node, op: str) -> None:
        """The host wants the value of a tensor."""
        for t in self.tensors_in(v):
            if "possible" in t.block.notes and self.m.capture is not None:
                continue
            if t.block.place in HOSTS or t.numpy:
                self.host(t, False, op, node)
            elif t.block.place == "unknown" and any(a.kind == "d2h" for a in t.block.accesses):
                self.host(t, False, op, node)
            else:
                self.launch([t], [], op, node, t.block.lib)
                self.sync_host(self.cur(t.block.lib), node, op)

    def part_of_result(self, whole: Sym, part: Sym) -> None:
        """What a call has given is made of what it has made."""
        made = self.made.get(whole.vn) or self.maybe.get(whole.vn)
        if made is not None and part.vn not in self.made:
            self.maybe.setdefault(part.vn, made)

    def uploading(self) -> bool:
        """Whether a copy from the host is under way that the host has not waited for."""
        known = self.order.known(self.order.host)
        return any(known.get(t, 0) < at for t, at in self.uploads)

    def returned(self, v: V, node) -> None:
        """An entry gives its caller a tensor of a stream of its own, who uses it on the current stream.

        That is so where it is recorded there, or where the current stream has waited for it.
        """
        caller = self.m.ambient["torch"]
        for t in self.tensors_in(v):
            b = t.block
            if b.place != "cuda" or b.alloc is None or b.alloc.origin != "new" or b.lib != "torch" or self.cur() is not caller:
                continue
            ready = all(self.order.covers(caller, a) for a in b.accesses)
            ahead = any(a.call <= self.m.began for a in b.accesses)  # made by an earlier call
            if ahead and ready or caller in b.recorded and not self.recorded_since(b):
                self.launch([t], [], "use by the caller", node, strong=False, notes=frozenset({"consumer"}))

    def recorded_since(self, b: Block) -> bool:
        """Whether somebody can wait for an event for what was done to a block."""
        return any(all(known.get(a.timeline, 0) >= a.at for a in b.accesses if a.timeline is b.alloc) for known in self.snapshots)

    def handed_out(self, v: V, node) -> None:
        """A generator gives a value to somebody who is not seen, who uses it on the current stream."""
        for t in self.tensors_in(v):
            if t.block.place not in HOSTS:
                self.launch([t], [], "use by the consumer", node, t.block.lib, strong=False, notes=frozenset({"consumer"}))

    # ------------------------------------------------------------------ calls that are not followed
    def opaque(self, f: Func, args, kwargs, node, unseen: bool = False) -> V:
        """A function of the tree that has nothing to do with streams, or one too deep to follow."""
        fn = f.function
        if unseen:
            self.everything(node)
            return self.unknown_result(node, fn.name)
        result = self.unmodelled(fn.name, None, args, kwargs, node, "body", harmless=self.m.timing and self.harmless(fn))
        if fn.words & SYNCING:
            self.m.uncertain.append(self.tick())
            if self.m.capture is None:
                self.order.wait(self.order.host, self.order.snapshot(self.cur()))
        return result

    def harmless(self, fn, depth: int = 0) -> bool:
        """Whether a function of the tree can wait for nothing, as far as what it names is in sight."""
        if not fn.words.isdisjoint(SYNCING) or depth > 3:
            return False
        called = [fn.module.functions[w] for w in fn.calls()[2] if w in fn.module.functions]
        return all(f is fn or self.harmless(f, depth + 1) for f in called)

    def unmodelled(self, name: str, receiver: V | None, args, kwargs, node, kind: str = "helper", harmless: bool = False) -> V:
        """A call whose code is not followed: it reads what it is given on the current stream, and gives something new."""
        values = [*args, *kwargs.values()]
        m = self.m
        given = [v for v in values if isinstance(v, (Stream, Event, Work, Graph)) or isinstance(v, Sym) and v.vn in self.timelines]
        inner = [x for v in values if isinstance(v, (Seq, Map)) for x in (v.items if isinstance(v, Seq) else v.items.values())]
        given += [v for v in inner if isinstance(v, (Stream, Event, Work))]
        if given:
            self.everything(node)
            for v in given:
                if isinstance(v, Event):
                    self.m.may_be_recorded(v)  # by who is given it
        tensors = [t for v in values for t in self.tensors_in(v)]
        pointed = [self.pointers[v.vn] for v in values if isinstance(v, Sym) and v.vn in self.pointers]
        if m.captured and m.capture is None:
            m.roots.extend(values)  # it may keep what it is given
        if name in ("print", "save", "dump", "dumps", *apis.WRITING_DOWN):
            for v in values:
                self.host_value(v, node, f"{name}()")
            return NONE
        tensors += self.captured_arguments(values)
        host = [t for t in tensors if t.block.place in HOSTS or t.numpy]
        device = [t for t in tensors if t not in host]
        filled = kwargs.get("out") if "out" in kwargs else args[FILLERS[name]] if name in FILLERS and len(args) > FILLERS[name] else None
        for t in self.tensors_in(filled) if filled is not None else ():
            if t.block.place in HOSTS or t.numpy:
                self.host(t, True, f"{name}()", node)
        for t in host:
            if any(a.kind == "d2h" for a in t.block.accesses):
                self.host(t, False, f"{name}()", node, frozenset({"unmodelled"}))
        if device:
            cuda = any(t.block.place == "cuda" for t in device)
            model = name in ("forward", "__call__", "generate") or any(w in name.lower() for w in ("model", "module", "net", "layer", "block", "encoder", "decoder"))
            at, seq = self.launch(device, [], f"{name}()", node, self.lib_of(values), strong=cuda and (model or receiver is None or isinstance(receiver, Obj)),
                                  notes=frozenset({kind}))
        else:
            at = seq = None
        pointed = [t for t in pointed if t.block.place not in HOSTS]
        if pointed:
            at, seq = self.launch(pointed, [], f"{name}()", node, self.lib_of(values), strong=False, notes=frozenset({"kernel"}))
        pure = name.startswith(GETTERS) or name.endswith(GETTER_ENDS)
        if pure and not tensors and not pointed:
            key = ("call", m.key(receiver) if receiver is not None else None, name, tuple(m.key(v) for v in args), tuple(sorted(kwargs)))
            return m.sym(m.vn(key), f"{name}()", "getter")
        logged = name in LOGGING and all(not isinstance(v, Sym) or v.hint in ("host", "getter", "index") for v in values)
        whose = m.owners.get(receiver.vn, (receiver,))[0] if isinstance(receiver, Sym) else None
        harmless |= logged or isinstance(whose, Sym) and whose.hint == "host"
        if not device and not harmless:
            m.uncertain.append(self.tick())
        if name in apis.GENERATING_METHODS:
            self.sync_quiet()  # it reads what it has made
        result = self.unknown_result(node, name, at, seq, kind=kind)
        if m.capture is not None and result.block is not None and kind == "helper" and all("possible" in t.block.notes for t in device):
            result.block.notes.add("possible")
        for k, v in kwargs.items():
            if isinstance(v, (Sym, Tensor)):
                self.given[(result.vn, k)] = v  # what is given back under the name that it was given under
        return result

    def kernel(self, f: Func, args, kwargs, node) -> V:
        tensors = [t for v in args for t in self.tensors_in(v)]
        self.launch(tensors, [], f.function.name, node, notes=frozenset({"kernel"}))
        return NONE

    def call_unknown(self, callee: V, args: list[V], kwargs: dict[str, V], node) -> V:
        m = self.m
        name, receiver = "call", None
        if isinstance(callee, Bound):
            return self.method(callee.receiver, callee.name, args, kwargs, node)
        if isinstance(callee, Sym) and callee.hint == "kernel":
            values = [v for a in args for v in (a.items if isinstance(a, Seq) else [a])]
            self.launch([t for v in values for t in self.tensors_in(v)], [], "kernel()", node, "cupy", notes=frozenset({"kernel"}))
            return NONE
        if isinstance(callee, Sym) and callee.hint == "mock":
            return m.fresh("a mock", "mock")
        if isinstance(callee, Sym) and callee.hint == "weak":
            return self.given[(callee.vn, "")]
        if isinstance(callee, Sym):
            owner = m.owners.get(callee.vn)
            if owner is not None and self._is_attr(callee):
                return self.method(owner[0], owner[1], args, kwargs, node, callee)
            name = callee.text.rpartition(".")[2] or "call"
            if isinstance(getattr(node, "func", None), ast.Subscript):
                tensors = [t for v in (*args, *kwargs.values()) for t in self.tensors_in(v)]
                if tensors:
                    self.launch(tensors, [], f"{dotted(node.func.value)}[...]()", node, self.lib_of(args), notes=frozenset({"kernel"}))
                return NONE
            return self.module_call(callee, name, args, kwargs, node)
        if isinstance(callee, Ctx):
            return callee
        if isinstance(callee, Graphed):
            return self.call_graphed(callee, args, node)
        return self.unmodelled(name, receiver, args, kwargs, node)

    def _is_attr(self, s: Sym) -> bool:
        return s.hint == "attr"

    def module_call(self, callee: V, name: str, args, kwargs, node) -> V:
        """Something that is called, a model perhaps."""
        given = self.nets_of(*args, *kwargs.values())
        owner = self.m.owners.get(getattr(callee, "vn", None))
        mine = self.nets_of(owner[0]) if owner is not None else frozenset()
        return self.computed_by(self.called(callee, name, args, kwargs, node), given | (mine or {("net", self.m.key(callee))}))

    def called(self, callee: V, name: str, args, kwargs, node) -> V:
        values = [*args, *kwargs.values()]
        self.module_in_capture(callee, node)
        self.module_runs(callee)
        pb = self.module_blocks.get(self.m.key(callee))
        if isinstance(callee, Sym) and callee.hint == "module":
            if pb is not None and pb.accesses:
                self.launch([Tensor(pb)], [], f"{name}()", node)
            values = [self.tensor(v) if isinstance(v, Sym) and v.hint not in ("index", "host", "getter") else v for v in values]
            return self.compute(values, node, f"{name}()")
        if pb is not None and pb.accesses:
            self.launch([Tensor(pb)], [], f"{name}()", node, notes=frozenset({"model"}))
        return self.unmodelled(name, callee, args, kwargs, node, self.kind_of_call(callee, name))

    def kind_of_call(self, callee: V, name: str) -> str:
        """What a call of something unknown is: of something that is called itself, as models are, or a method of something."""
        m = self.m
        if name in CALLED or getattr(callee, "hint", "") == "module" or pblock(self, callee):
            return "model"
        owner = m.owners.get(getattr(callee, "vn", None))
        if owner is None:
            return "model" if isinstance(callee, Sym) and callee.hint != "getter" else "helper"
        if isinstance(owner[0], Obj):
            return "model" if self.attribute_of(owner[0].cls, owner[1]) else "helper"
        return "model" if getattr(owner[0], "hint", "") == "module" or pblock(self, owner[0]) else "helper"

    def attribute_of(self, cls, name: str) -> bool:
        """Whether something of an object is an attribute: what it does not set, and bases outside the tree have, may be a method."""
        got = self.attributes.setdefault(cls, {})
        if "" not in got:
            got[""] = cls.is_module() or all(c.module.resolve_class(b) or b in ("object", "abc.ABC") for c in cls.mro() for b in c.bases)
        if got[""]:
            return True
        if name not in got:
            got[name] = any(isinstance(n, ast.Attribute) and isinstance(n.ctx, ast.Store) and n.attr == name
                            for c in cls.mro() for f in c.methods.values() if name in f.words for n in ast.walk(f.node))
        return got[name]

    # ------------------------------------------------------------------ library calls
    def call(self, full: str, args: list[V], kwargs: dict[str, V], n) -> V:
        name = self.canonical(full)
        last = name.rpartition(".")[2]
        if self.m.capture is not None:
            self.forbidden(name, last, args, kwargs, n)
        handler = CALLS.get(name)
        if handler is not None:
            return handler(self, args, kwargs, n)
        if name.startswith(("torch.cuda.", "torch.distributed.", "torch.nn.", "torch.optim.", "torch.")):
            return self.torch_call(name, last, args, kwargs, n)
        if name.startswith(("cupy.", "cupyx.")):
            return self.cupy_call(name, last, args, kwargs, n)
        if name.startswith("numpy."):
            return self.numpy_call(last, args, kwargs, n)
        if name.startswith("builtins."):
            return self.builtin(last, args, kwargs, n)
        if name.startswith(MOCKS):
            return self.m.fresh("a mock", "mock")
        if name in ("importlib.import_module", "builtins.__import__") and args and isinstance(args[0], Const) and isinstance(args[0].value, str):
            return Lib(args[0].value)
        if last == "getLogger":
            return self.m.fresh("a logger", "logger")
        if name.startswith(("math.", "os.", "re.", "typing.", "logging.", "dataclasses.", "warnings.", "psutil.", "sys.", "platform.", "socket.", "shutil.", "datetime.")):
            for v in args:
                if self.tensorish(v) and not name.startswith("typing."):
                    self.host_value(v, n, f"{last}()")
            return args[-1] if name == "typing.cast" and len(args) > 1 else self.m.fresh(f"<{last}>", "host")
        if name.startswith("safetensors.") and last.startswith("save"):
            for v in args:
                self.host_value(v, n, f"{last}()")
            return NONE
        if last in ("Thread",) or name.startswith(("json.", "pickle.", "PIL.", "cv2.", "soundfile.", "imageio.")):
            for v in args:
                self.host_value(v, n, f"{last}()")
            if last != "Thread":
                return self.m.fresh(f"<{last}>", "host")
        return self.unmodelled(last, None, args, kwargs, n)

    def where(self, v: V | None) -> str:
        """cuda, cpu, dtype or unknown: what ``.to(v)`` means."""
        if v is None:
            return ""
        if isinstance(v, Const):
            if isinstance(v.value, str):
                return "cpu" if v.value == "cpu" else "cuda" if v.value.startswith(("cuda", "xpu", "npu", "hpu")) else "unknown"
            if isinstance(v.value, int):
                return "cuda"
            return ""
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

    def place(self, kwargs, args=()) -> str:
        pin = kwargs.get("pin_memory")
        if isinstance(pin, Const) and pin.value is True:
            return "pinned"
        d = kwargs.get("device") or (self.devices[-1] if self.devices else None)
        if d is None:
            return "pageable" if pin is None or isinstance(pin, Const) else "host"
        w = self.where(d)
        if w == "cpu":
            return "pinned" if isinstance(pin, Const) and pin.value else "pageable" if pin is None or isinstance(pin, Const) else "host"
        return "cuda" if w in ("cuda", "cuda?") else "unknown"

    def flag(self, v: V | None) -> bool:
        if v is None:
            return False
        if isinstance(v, Const):
            return bool(v.value)
        if isinstance(v, Sym):
            default = self.m.defaults.get(v.vn)
            return self.m.truthy(v, bool(default.value) if default is not None else v.hint != "param", v.hint == "param")
        return False

    def torch_call(self, name, last, args, kwargs, n) -> V:
        m = self.m
        if name.startswith("torch.distributed.") and last in apis.COLLECTIVES | {"isend", "irecv", "all_gather_coalesced"} or last in (
                "all_gather_into_tensor", "reduce_scatter_tensor", "all_reduce") and name.startswith("torch.distributed"):
            return self.collective(last, args, kwargs, n)
        if last == "P2POp" and len(args) > 1:
            return Seq(list(args), "tuple")
        if last == "batch_isend_irecv" and args and isinstance(args[0], Seq):
            works = []
            for op in args[0].items:
                if isinstance(op, Seq) and len(op.items) > 1 and isinstance(op.items[0], Lib):
                    works.append(self.collective(op.items[0].name.rpartition(".")[2], [op.items[1]], {}, n))
            return Seq(works, "list", args[0].more)
        if name.startswith("torch.distributed."):
            if last == "barrier":
                self.everything(n)
                return NONE
            return self.unmodelled(last, None, args, kwargs, n)
        if name.startswith("torch.optim.") and last[:1].isupper():
            return self.optimizer(last, kwargs, n)
        if last == "GradScaler":
            return m.fresh("scaler", "scaler")
        if last == "Generator":
            return Generator(True)
        if last in ("Parameter", "Buffer") and name.startswith("torch.nn."):
            t = self.tensor(args[0]) if args else Tensor(Block("pageable"))
            t.block.notes.add("registered")
            return t
        if name.startswith("torch.nn.") and last[:1].isupper():
            s = m.fresh(last.lower(), "module")
            self.modules[s.vn] = last
            return s
        if name.startswith(("torch.no_grad", "torch.enable_grad", "torch.inference_mode", "torch.autocast", "torch.cuda.amp", "torch.amp",
                            "torch.profiler", "torch.cuda.nvtx", "torch.set_grad_enabled", "torch.cuda.device")):
            return Ctx("plain")
        if last in apis.FACTORIES and name.count(".") == 1:
            place = self.place(kwargs)
            if last.endswith("_like"):
                base = self.tensors_in(args[0]) if args else []
                place = place if "device" in kwargs or kwargs.get("pin_memory") is not None else base[0].block.place if base else "cuda"
                if place == "pinned" and "pin_memory" not in kwargs:
                    place = "pageable"
                if not base and place == "pageable" and "device" not in kwargs:
                    place = "unknown"
            if kwargs.get("out") is not None and self.tensors_in(kwargs["out"]):
                return self.compute([], n, last, write=self.tensors_in(kwargs["out"]), fresh=False)
            if last == "tensor" and place == "cuda" and self.m.capture is not None:
                self.violation("SS401", n, "torch.tensor() on the device")
            for v in args[:2]:
                if not last.endswith("_like") and (isinstance(v, Seq) or isinstance(v, Tensor) and last != "tensor"):
                    self.host_value(v, n, f"torch.{last}()")
            dtype = kwargs.get("dtype")
            if isinstance(dtype, Lib) and dtype.name in ("torch.bool",) and place == "cuda":
                t = self.made_by(last, n)
                t.mask = True
                if last == "tensor":
                    self.sync_quiet()
                return t
            if place == "unknown" and "device" in kwargs:
                place = "cuda"
            if place == "cuda" and last == "tensor":
                t = self.on_device(self.made_by(last, n), kwargs)
                self.sync_quiet()  # the host's data are there when it returns
                return t
            if place == "cuda":
                t = self.on_device(self.made_by(last, n, write=last not in ("empty", "empty_like", "empty_strided")), kwargs)
                if last.endswith("_like") and base and "device" not in kwargs:
                    t.block.device = base[0].block.device
                sizes = args[0].items if args and isinstance(args[0], Seq) else args
                if last in ("empty", "zeros", "ones") and any(isinstance(v, Const) and v.value == 0 and type(v.value) is int for v in sizes):
                    t.block.kept = True  # it has no memory
                return t
            if place == "unknown":
                return self.made_somewhere(last, n, write=last not in ("empty", "empty_like", "empty_strided"))
            return Tensor(Block(place, "", home=m.site(n)), None)
        if last in ("from_numpy", "frombuffer", "as_tensor", "asarray"):
            src = self.tensors_in(args[0]) if args else []
            w = self.where(kwargs.get("device"))
            if w in ("cuda", "cuda?"):
                for s in src:
                    if s.numpy or s.block.place in HOSTS:
                        self.host(s, False, last, n)
                    elif s.block.place == "cuda":
                        return s
                t = self.made_by(last, n)
                self.sync_quiet()
                return t
            return Tensor(src[0].block, src[0].part) if src else Tensor(Block("pageable", ""), None)
        if last in ("is_tensor", "numel", "get_default_dtype", "finfo", "iinfo", "is_available", "device_count", "current_device", "dtype", "Size"):
            return Const(True) if last == "is_available" else m.fresh(last, "host")
        if last in ("manual_seed", "set_device", "empty_cache", "set_default_dtype", "reset_peak_memory_stats"):
            return NONE
        if last in ("nonzero", "masked_select", "unique", "unique_consecutive", "equal", "allclose", "argwhere", "bincount"):
            out = self.compute(args, n, last)
            dev = [t for v in args for t in self.tensors_in(v) if t.block.place not in HOSTS]
            if dev:
                self.sync_host(self.cur(), n, f"torch.{last}()")
            return out
        if last in apis.VIEW_FUNCTIONS and args and self.tensorish(args[0]):
            t = self.tensor(args[0])
            return t if last not in apis.PIECE_METHODS else Seq([Tensor(t.block, (("i", i),)) for i in range(2)], "tuple", True)
        if last.endswith("Tensor") and last != "Tensor" and name.startswith(("torch.cuda.", "torch.")):
            for v in args:
                if isinstance(v, Seq):
                    self.host_value(v, n, f"{last}()")
            return self.made_by(last, n) if name.startswith("torch.cuda.") else Tensor(Block("pageable", "", home=m.site(n)))
        if last == "compile" or name.startswith(("torch.jit.", "torch.compiler.", "torch.utils.")):
            return args[0] if args else m.fresh(last)
        if last == "save" or name.startswith("torch.testing."):
            for v in args:
                self.host_value(v, n, f"{last}()")
            return NONE
        if last == "load":
            m.uncertain.append(self.tick())
            if self.where(kwargs.get("map_location")) == "cpu":
                return Tensor(Block("pageable", "", home=m.site(n)))
        if name.startswith("torch.cuda."):
            return m.fresh(last, "host") if last.startswith(("memory", "max_memory", "get_device", "mem_get")) else self.unmodelled(last, None, args, kwargs, n)
        values = [*args, *(v for k, v in kwargs.items() if k != "out")]
        out = kwargs.get("out")
        if last in ("_foreach_copy_",):
            a, b = (self.tensors_in(x) for x in args[:2])
            for d, s in zip(a, b):
                self.copy(d, s, self.flag(kwargs.get("non_blocking")) or len(args) > 2 and self.flag(args[2]), n)
            return NONE
        if out is not None:
            w = self.tensors_in(out)
            return self.compute(values, n, last, write=w, fresh=False) if w else self.compute(values, n, last)
        if last.endswith("_") and not last.startswith("_") and args and self.tensorish(args[0]):
            t = self.tensor(args[0])
            return self.compute(values, n, last, write=[t], fresh=False)
        if not any(self.tensorish(v) or isinstance(v, (Sym, Seq)) for v in values):
            return m.fresh(last)
        for v in values[:2]:
            if isinstance(v, Sym) and v.hint not in ("index", "host", "getter") and v.block is None and not isinstance(v, Const):
                if "dim" not in v.text and "dtype" not in v.text and "device" not in v.text and "size" not in v.text:
                    self.tensor(v)
        return self.compute(values, n, last, notes=frozenset({"kernel"}) if name.startswith("torch.ops.") else frozenset())

    def made_by(self, op: str, n, write: bool = True, lib: str = "torch") -> Tensor:
        cap = self.m.capture
        t = self.cur(lib)
        seq = self.tick()
        at = self.order.enqueue(t) if write and not (cap and t in cap.streams) else None
        if write:
            self.m.launches.append((seq, t, at or 0, self.m.site(n)))
        return self.new(n, "cuda", lib, op, write, at=at, seq=seq)

    def on_device(self, t: Tensor, kwargs) -> Tensor:
        """Which device something was made on, where one is named."""
        d = kwargs.get("device")
        if isinstance(d, (Const, Sym)) and not (isinstance(d, Const) and d.value in (None, "cuda")):
            t.block.device = self.device_key(d)
        return t

    def device_key(self, d: V):
        """One key for the number of a device, its name, and a text that is made of the number."""
        if isinstance(d, Const):
            return ("c", str(d.value).rpartition(":")[2])
        key = self.devices_named.get(d.vn) or self.m.key(d)
        return ("c", str(key[2])) if key[0] == "c" else key

    def made_somewhere(self, op: str, n, write: bool = True) -> Tensor:
        """A fresh tensor where another one is that is not known."""
        t = self.made_by(op, n, write)
        t.block.place = "unknown"
        return t

    def sync_quiet(self) -> None:
        if self.m.capture is None:
            self.order.wait(self.order.host, self.order.snapshot(self.cur()))

    def collective(self, last, args, kwargs, n) -> V:
        tensors = [t for v in (*args[:2], *(v for k, v in kwargs.items() if "tensor" in k or k in ("input", "output"))) for t in self.tensors_in(v)]
        for v in args[:2]:
            if isinstance(v, Sym) and not self.tensorish(v) and v.hint not in ("index", "host", "getter") and "group" not in v.text:
                tensors.append(self.tensor(v))
        first = tensors[:1]
        writes = tensors if last in ("all_reduce", "broadcast", "irecv", "recv", "reduce") else first
        reads = tensors[1:] if writes is first else []
        if last in ("isend", "send"):
            reads, writes = tensors, []
        if last in ("reduce_scatter_tensor", "all_gather_into_tensor", "all_gather", "reduce_scatter", "all_to_all_single", "all_to_all"):
            writes, reads = first, tensors[1:]
        if not (self.flag(kwargs.get("async_op")) or last in ("isend", "irecv")):
            self.launch(reads, writes, last, n)
            return NONE
        self.order.learn(self.comm, self.order.snapshot(self.cur()))
        self.launch(reads, writes, last, n, t=self.comm, kind="collective")
        return Work(self.order.snapshot(self.comm), self.comm, Seq(list(tensors)))

    def cupy_call(self, name, last, args, kwargs, n) -> V:
        m = self.m
        if last in apis.FACTORIES or last in ("array", "asarray", "ascontiguousarray"):
            if last in ("array", "asarray", "ascontiguousarray") and args:
                src = self.tensors_in(args[0])
                if src and src[0].block.lib != "cupy" and src[0].block.place not in HOSTS:
                    src[0].block.shared = self.tick()  # with no exchange of streams
                if src and src[0].block.place == "cuda":
                    return src[0] if last != "array" else self.compute(args, n, last, "cupy")
                if src and src[0].block.place == "pinned":
                    t = self.new(n, "cuda", "cupy", last, write=False)
                    self.launch([src[0]], [t], f"cupy.{last}", n, "cupy", "h2d")
                    return t
                for s in src:
                    self.host(s, False, last, n)
            return self.made_by(last, n, last not in ("empty", "empty_like"), "cupy")
        if last in ("from_dlpack", "fromDlpack") and args:
            self.order.learn(self.cur("cupy"), self.order.snapshot(self.cur("torch")))
            for known in self.exchanges:
                self.order.learn(self.cur("cupy"), known)
            return args[0]
        if last in apis.ARRAY_TYPES:
            return m.fresh(last, "host")
        if last in apis.ARRAY_VIEW_FUNCTIONS and args and self.tensorish(args[0]):
            return self.tensor(args[0])
        if last == "asnumpy":
            return self.to_host(args, kwargs, n)
        if last in ("empty_pinned", "empty_like_pinned", "zeros_pinned", "alloc_pinned_memory"):
            return Tensor(Block("pinned", "", lib="cupy"), None, True)
        if last in ("RawKernel", "ElementwiseKernel", "ReductionKernel", "RawModule"):
            return m.sym(m.vn(("kernel", len(m.vns))), "kernel", "kernel")
        if name.startswith("cupy.cuda.runtime.") or name.startswith("cupy.cuda."):
            if last in ("nvtx",):
                return Ctx("plain")
            return self.unmodelled(last, None, args, kwargs, n)
        values = [*args, *(v for k, v in kwargs.items() if k != "out")]
        w = self.tensors_in(kwargs["out"]) if "out" in kwargs else []
        return self.compute(values, n, last, "cupy", write=w, fresh=not w)

    def to_host(self, args, kwargs, n) -> V:
        """cupy.asnumpy, x.get()"""
        src = self.tensors_in(args[0]) if args else []
        if not src:
            return Tensor(Block("pageable", ""), None, True)
        st = kwargs.get("stream") or (args[1] if len(args) > 1 else None)
        out = kwargs.get("out")
        blocking = kwargs.get("blocking")
        t = self.stream(st, "cupy") or self.cur("cupy")
        dest = self.tensors_in(out)[0] if out is not None and self.tensors_in(out) else Tensor(Block("pinned" if blocking is not None else "pageable", "", lib="cupy"), None, True)
        non = isinstance(blocking, Const) and blocking.value is False
        saved = self.m.current["cupy"]
        self.m.current["cupy"] = [*saved, t]
        try:
            self.d2h(src[0], dest, non, n, "cupy")
        finally:
            self.m.current["cupy"] = saved
        return Tensor(dest.block, dest.part, True)

    def numpy_call(self, last, args, kwargs, n) -> V:
        values = [*args, *kwargs.values()]
        view = last in ("asarray", "frombuffer", "ravel", "reshape", "array") and last != "array"
        ts = [t for v in values for t in self.tensors_in(v)]
        for t in ts:
            if not view or t.block.place not in HOSTS:
                self.host_value(t, n, f"numpy.{last}()")
        if last in FILLS and args:
            for t in self.tensors_in(args[0]):
                self.host(t, True, f"numpy.{last}()", n)
        out = kwargs.get("out")
        if out is not None:
            for t in self.tensors_in(out):
                self.host(t, True, f"numpy.{last}()", n)
        if view and ts:
            return Tensor(ts[0].block, ts[0].part, True)
        if last in apis.ARRAY_TYPES or last in ("prod", "ceil", "int32", "int64"):
            return self.m.fresh(last, "host")
        return Tensor(Block("pageable", ""), None, True)

    def builtin(self, last, args, kwargs, n) -> V:
        m = self.m
        a = args[0] if args else None
        if last in ("len", "isinstance", "id", "type", "callable", "hash", "issubclass", "dir", "vars", "input", "open", "hasattr"):
            if last == "len" and isinstance(a, Seq) and not a.more:
                return Const(len(a.items))
            if last == "hasattr" and isinstance(a, Obj) and len(args) > 1 and isinstance(args[1], Const):
                if args[1].value in a.fields or a.cls.method(args[1].value):
                    return Const(True)
            if last == "isinstance" and isinstance(a, (Tensor,)) and len(args) > 1 and isinstance(args[1], Lib):
                return Const(args[1].name.endswith("Tensor") or args[1].name.endswith("ndarray"))
            if last == "isinstance" and isinstance(a, Seq) and len(args) > 1 and isinstance(args[1], Lib):
                return Const(args[1].name.endswith(a.kind))
            return m.sym(m.vn((last, *(m.key(v) for v in args))), f"{last}()", "host" if last != "isinstance" else "")
        if last == "range":
            for v in args:
                if isinstance(v, Tensor):
                    self.host_value(v, n, "range()")
            start = args[0] if len(args) > 1 else Const(0)
            stop = args[1] if len(args) > 1 else a
            return Range(start, stop, m.vn(("range", m.key(start), m.key(stop), id(n))))
        if last in ("enumerate", "zip", "reversed"):
            return Lazy(last, args)
        if last == "iter" and len(args) > 1:
            return Lazy("calls", args)
        if last in ("iter",):
            if isinstance(a, Obj):
                it = a.cls.method("__iter__")
                if it is not None and not it.generator:
                    return m.call_function(Func(it, a), [], {}, n)
            return Lazy("iter", args)
        if last == "next":
            if isinstance(a, Lazy) and a.kind == "cycle":
                return self.next_in_turn(a)
            if isinstance(a, Obj):
                nx = a.cls.method("__next__")
                if nx is not None:
                    return m.call_function(Func(nx, a), [], {}, n)
            if isinstance(a, Lazy) and isinstance(n, ast.Call) and n.args and isinstance(n.args[0], ast.Call):  # next(iter(...))
                for v in m.iterate(a, n):
                    return v
            return m.fresh("<next>", "element")
        if last in ("list", "tuple", "set", "sorted", "frozenset"):
            kind = {"sorted": "list", "frozenset": "set"}.get(last, last)
            if a is None:
                return Seq([], kind)
            if isinstance(a, Seq):
                return Seq(list(a.items), kind, a.more)
            if isinstance(a, Gen):
                got: list[V] = []
                m.run_generator(a, got.append, n)
                return Seq(got, kind, True)
            if isinstance(a, Params):
                return a
            if isinstance(a, (Range, Lazy, Map)):
                return Seq(m.materialised(a, n), kind, not (isinstance(a, Range) and isinstance(a.stop, Const)))
            s = m.sym(m.vn(("list", m.key(a))), getattr(a, "text", "list"), "element")
            if isinstance(a, Sym) and a.block is not None and "private" in a.block.notes:
                s.block = a.block
            return s
        if last == "dict":
            mp = Map({}, m.vn(("dict", len(m.vns))))
            if isinstance(a, Map):
                mp.items.update(a.items)
            for k, v in kwargs.items():
                mp.items[("c", "str", k)] = v
            return mp
        if last in ("float", "int", "bool", "str", "repr", "format", "print", "sum", "max", "min", "any", "all", "abs", "round"):
            for v in args:
                if isinstance(v, Seq) and last in ("sum", "max", "min", "abs"):
                    ts = self.tensors_in(v)
                    if ts and last == "sum":
                        return self.compute([v], n, "sum")
                if isinstance(v, Gen):
                    continue
                if self.tensorish(v) and (isinstance(v, Tensor) or v.block is not None):
                    if last in ("abs", "round"):
                        return self.compute([v], n, last)
                    self.host_value(v, n, f"{last}()")
            if isinstance(a, Const) and last in ("int", "float", "bool", "str"):
                try:
                    return Const({"int": int, "float": float, "bool": bool, "str": str}[last](a.value))
                except Exception:
                    pass
            got = m.sym(m.vn((last, *(m.key(v) for v in args))), f"{last}()", "host")
            if last == "int" and isinstance(a, Sym):
                self.numbers[got.vn] = a
            if last == "all" and isinstance(a, Seq):
                self.all_queried(got, a)
            return got
        if last == "getattr" and len(args) > 1 and isinstance(args[1], Const) and isinstance(args[1].value, str):
            if isinstance(a, Obj) and args[1].value not in a.fields and a.cls.method(args[1].value) is None and len(args) > 2:
                return m.sym(m.vn(("attr", m.key(a), args[1].value)), f"{a.text}.{args[1].value}", "attr")
            return m.attribute(a, args[1].value, n)
        if last == "setattr" and len(args) > 2 and isinstance(args[1], Const):
            if isinstance(a, Obj):
                a.fields[args[1].value] = args[2]
            elif isinstance(a, Sym):
                m.fields[(a.vn, args[1].value)] = args[2]
            return NONE
        if last in ("map", "filter") and len(args) > 1:
            got = []
            for v in m.materialised(args[1], n) if not isinstance(args[1], Gen) else []:
                result = m.call_value(a, [v], {}, n) if not isinstance(a, Const) else v
                got.append(result if last == "map" else v)
            return Seq(got, "list", True)
        if last == "slice":
            return m.fresh("slice", "index")
        if last == "memoryview":
            return a if a is not None else NONE
        return self.unmodelled(last, None, args, kwargs, n)

    # ------------------------------------------------------------------ methods
    def method(self, r: V, name: str, args, kwargs, n, callee: Sym | None = None) -> V:
        m = self.m
        if m.capture is not None:
            self.forbidden_method(r, name, args, kwargs, n)
        if isinstance(r, Generator):
            return self.generator_method(r, name, n)
        if isinstance(r, Thread):
            return self.thread_method(r, name, args, kwargs, n)
        if isinstance(r, Tensor):
            return self.tensor_method(r, name, args, kwargs, n)
        if isinstance(r, Stream):
            return self.stream_method(r.timeline, name, args, kwargs, n, r)
        if isinstance(r, Event):
            return self.event_method(r, name, args, kwargs, n)
        if isinstance(r, Work):
            if name in ("wait", "synchronize", "result"):
                self.tick()
                self.order.wait(self.cur(), r.snapshot, m.site(n), r.timeline)
                return NONE
            return m.fresh(name)
        if isinstance(r, Graph):
            return self.graph_method(r, name, args, kwargs, n)
        if isinstance(r, Seq):
            return self.seq_method(r, name, args, kwargs, n)
        if isinstance(r, Map):
            return self.map_method(r, name, args, kwargs, n)
        if isinstance(r, Future):
            if name in apis.THREAD_WAITS and r.thread is not None:
                r.thread.running = False
            if name in ("result", "exception"):
                if r.snapshot is not None:
                    self.order.learn(self.order.host, r.snapshot)
                return r.value
            return m.fresh(name)
        if isinstance(r, Params):
            return r
        if isinstance(r, (Const, Clock, Range, Lazy)):
            return m.fresh(name, "host")
        if isinstance(r, Gen):
            return m.fresh(name)
        if isinstance(r, Ctx):
            if r.kind == "stack" and name == "enter_context" and args:
                r.payload.append(self.enter(args[0], n))
                return args[0]
            if r.kind == "pool":
                return self.pool_method(r, name, args, kwargs, n)
            if name == "__enter__":
                self.enter(r, n)
            elif name == "__exit__" and r.kind == "stream" and len(m.current[r.payload[0]]) > 1:
                m.current[r.payload[0]].pop()
            return r
        if isinstance(r, Sym):
            return self.sym_method(r, name, args, kwargs, n, callee)
        if name in apis.EXPECTING_METHODS and isinstance(r, (Obj, Sym)):
            return Ctx("expecting")
        if name in KEEPING and name != "register_buffer" or name in IDENTITY or name in ASSERTED:
            m.roots.extend(args)
            return m.fresh(name, "host")
        if isinstance(r, Obj) and name.startswith(("assert", "fail")) and self.is_test_case(r.cls):
            for v in args:
                if isinstance(v, Tensor):
                    self.host_value(v, n, f"{name}()")
            return NONE
        if isinstance(r, Obj):
            if name in ("start", *apis.THREAD_WAITS) and any(b.endswith("Thread") for c in r.cls.mro() for b in c.bases):
                return self.thread_object(r, name, args, kwargs, n)
            if name in ("parameters", "buffers"):
                return Params(r)
            if name == "register_buffer" and len(args) > 1 and isinstance(args[0], Const):
                r.fields[args[0].value] = args[1]
                for t in self.tensors_in(args[1]):
                    t.block.notes.add("registered")
                return NONE
            if name in ("to", "cuda", "cpu", "train", "eval", "half", "bfloat16", "requires_grad_", "float"):
                if name == "cuda" or name == "to" and args and self.where(args[0]) in ("cuda", "cuda?"):
                    self.moved(r, 0)
                elif m.captured and self.gives_other_memory(name, args, kwargs):
                    self.displace(r, n)
                return r
            if name == "load_state_dict" and m.captured and self.gives_other_memory(name, args, kwargs):
                self.displace(r, n)
        return self.unmodelled(name, r, args, kwargs, n, self.kind_of_call(callee, name) if callee is not None else "helper")

    def is_test_case(self, cls) -> bool:
        return any(b.endswith("TestCase") for c in cls.mro() for b in c.bases)

    def moved(self, o: Obj, depth: int) -> None:
        """A module goes to the device, and with it what it holds."""
        for k, v in list(o.fields.items()):
            if isinstance(v, Tensor) and v.block.place in HOSTS and not v.numpy and "registered" in v.block.notes:
                b = Block("cuda", v.block.text or k, self.cur(), v.block.home, fresh=True)
                o.fields[k] = Tensor(b)
            elif isinstance(v, Obj) and depth < 3:
                self.moved(v, depth + 1)

    def sym_method(self, r: Sym, name: str, args, kwargs, n, callee: Sym | None) -> V:
        m = self.m
        low = r.text.lower()
        if name in KEEPING:
            m.roots.extend(args)
            return NONE
        if name in ("__dlpack__", "dlpack"):
            return self.exchanged(r, n)
        if r.hint == "logger":
            for v in args:
                if isinstance(v, Tensor) and (v.block.place in HOSTS or v.numpy):
                    self.host(v, False, f"{name}()", n)
            return m.sym(m.vn(("method", r.vn, name, *(m.key(v) for v in args))), f"{name}()", "host")
        if name.startswith("register_") and name.endswith("hook"):
            if "grad" in name or "backward" in name or name == "register_hook":
                m.hooks.append((name, args[0] if args else NONE))
            elif args:
                m.escaped.append(args[0])
            return m.fresh("hook")
        if name == "get" and {"out", "blocking", "stream"} & set(kwargs) and not args:
            t = self.tensor(r, "cuda")
            t.block.lib = "cupy"
            return self.to_host([t], kwargs, n)
        if name in apis.METADATA_METHODS or name in ("index", "count", "format", "split", "strip", "startswith", "endswith", "lower", "upper"):
            return m.sym(m.vn(("meta", r.vn, name, *(m.key(v) for v in args))), name, "host")
        if m.capture is not None and r.hint == "scaler":
            self.scaler_in_capture(name, args, n)
        if r.hint in ("optimizer", "scaler") or "optim" in low or low.rpartition(".")[2] in ("opt", "scaler", "grad_scaler"):
            if name in ("step", "unscale_") or name in apis.GRADIENT_METHODS:
                if name == "step" and m.capture is None:
                    self.step_reads(n)
                at, _ = self.launch([Tensor(self.grads)], [], f"{name}()", n, strong=bool(self.grads.accesses))
                if name == "step":
                    self.steps.append((self.cur(), at))
                if name == "step":
                    for b in self.module_blocks.values():
                        self.launch([], [Tensor(b)], f"{name}()", n)
                if name == "step" and m.capture is not None:
                    self.step_in_capture(r, n)
                return NONE
            if name == "zero_grad":
                return self.zero_grad(args, kwargs, n)
            if name == "scale":
                return args[0] if args else NONE
            if name == "update":
                return NONE
        if name.startswith("register_") and name.endswith("hook"):
            if "grad" in name or "backward" in name or name == "register_hook":
                m.hooks.append((name, args[0] if args else NONE))
            return m.fresh("hook")
        if name in ("parameters", "named_parameters", "buffers"):
            return Params(r) if name != "named_parameters" else Seq([Seq([m.sym(m.vn(("pn", r.vn, i)), "name", "host"), self.parameter(Params(r), i)], "tuple") for i in range(2)], "list", True)
        if name == "backward":
            return self.backward([r, *args], kwargs, n)
        if name in apis.OPAQUE_STREAM_METHODS or name in ("record", "wait", "synchronize", "query") and ("stream" in low or r.vn in self.timelines):
            t = self.stream(r)
            if name in ("wait_stream", "wait_event", "record_event", "record", "synchronize", "query"):
                return self.stream_method(t, name, args, kwargs, n, r)
        if name in ("record",) and ("event" in low or "evt" in low or "start" in low or "end" in low):
            ev = self.event_of(r)
            return self.event_method(ev, name, args, kwargs, n)
        if name in ("wait", "synchronize", "elapsed_time", "query") and r.vn in self.events:
            return self.event_method(self.events[r.vn], name, args, kwargs, n)
        known = self.graphs_of.get(r.vn)
        if known is None and name in ("capture_begin", "replay", "register_generator_state") and r.vn not in self.instances:
            known = self.graph_of(r) if name != "replay" or "graph" in low else None
        if known is not None and name in GRAPH_METHODS:
            return self.graph_method(known, name, args, kwargs, n)
        if name in ("query", "synchronize"):
            self.beside()
        if name in apis.ORDERING_METHODS or "sync" in name or "wait" in name or "barrier" in name or "join" in name or "flush" in name:
            if m.capture is None:
                self.everything(n)
            elif name == "synchronize":
                self.sync_host(None, n, f"{name}()")
            return m.fresh(name)
        if name in ("item", "tolist"):
            self.tensor(r)
            return self.tensor_method(self.tensor(r), name, args, kwargs, n)
        if name in ("to", "cuda", "cpu") and n is m.dropped and r.block is None and r.vn not in self.made and m.capture is None and not m.captured:
            return self.move_module(r, name, args, kwargs, n)
        if name in ("to", "cuda", "cpu", "half", "float", "bfloat16", "double") and (r.hint == "module" or m.key(r) in self.module_blocks):
            if self.gives_other_memory(name, args, kwargs):
                self.displace(r, n)
            return r
        if name in MOVES and m.captured and m.key(r) in self.module_blocks:
            if self.gives_other_memory(name, args, kwargs):
                self.displace(r, n)
            return r
        if name == "to" and isinstance(kwargs.get("device") or (args[0] if args else None), Sym):
            for x in (r, self.parents.get(r.vn)):
                if x is not None:
                    self.went_to.setdefault(x.vn, set()).add(m.key(kwargs.get("device") or args[0]))
        if name in ("to", "cuda", "cpu", "copy_", "record_stream", "pin_memory", "numpy", "detach", "clone", "chunk", "permute", "transpose", "view",
                    "reshape", "unsqueeze", "squeeze", "expand", "contiguous", "flatten", "narrow", "index_select", "masked_fill") or (
                name in apis.TENSOR_METHODS and (self.tensorish(r) or name in apis.ARITHMETIC_METHODS and name not in ("add", "all", "any", "index", "sort", "type", "float", "half", "eval", "where"))):
            if name in ("copy", "update"):
                return self.unmodelled(name, r, args, kwargs, n)
            return self.tensor_method(self.tensor(r), name, args, kwargs, n)
        if name.endswith("_") and not name.endswith("__") and name not in apis.NOT_IN_PLACE and (self.tensorish(r) or name[:-1] in INPLACE):
            return self.tensor_method(self.tensor(r), name, args, kwargs, n)
        if r.hint == "kernel":
            return self.unmodelled(name, r, args, kwargs, n)
        known = self.instances.get(r.vn)
        if known is None and not name.startswith("__") and name not in COMMON:
            owners = [c for c in m.frame.module.classes.values() if name in c.methods]
            if len(owners) == 1:
                known = self.instances[r.vn] = m.instance(owners[0], r.text)
        if known is not None:
            f = known.cls.method(name)
            if f is not None:
                return m.call_function(Func(f, known), args, kwargs, n)
        if name in ("submit", "run_in_executor") and args:
            f = args[0] if name == "submit" else args[1] if len(args) > 1 else NONE
            rest = args[1:] if name == "submit" else args[2:]
            return self.in_thread(f, rest, kwargs, n)
        if name == "get_stream" or name.endswith("_stream"):
            key = ("call", m.key(r), name, tuple(m.key(v) for v in args))
            return m.sym(m.vn(key), f"{r.text}.{name}()", "getter")
        if name == "append" and args:
            m.roots.append(args[0])
            return NONE
        if name in ("put", "put_nowait", "send", "set_result"):
            for v in args:
                self.handed_over(v, name, n)
            m.roots.extend(args)
            return NONE
        if callee is not None and name not in NEVER_TENSORS:
            return self.module_call(callee, name, args, kwargs, n)
        if name in NEVER_TENSORS:
            m.roots.extend(args)
            got = m.fresh(f"<{name}>", "element")
            self.parents[got.vn] = r
            return got
        return self.unmodelled(name, r, args, kwargs, n)

    def pool_method(self, r: Ctx, name: str, args, kwargs, n) -> V:
        """An executor."""
        if name == "submit" and args:
            future = self.in_thread(args[0], args[1:], kwargs, n)
            r.payload.append(future.thread)
            return future
        if name in ("shutdown", "map"):
            for th in r.payload:
                th.running = False
        if name == "map" and len(args) > 1 and not isinstance(args[0], (Func, Partial, Obj, Cls)):
            return self.unmodelled(name, None, args[1:], {}, n)
        if name == "map" and len(args) > 1:
            value = self.m.element(args[1], Const(0)) if not isinstance(args[1], Gen) else self.m.fresh("item")
            return Seq([self.in_thread(args[0], [value], {}, n).value], "list", True)
        return self.m.fresh(name)

    def thread_object(self, r: Obj, name: str, args, kwargs, n) -> V:
        """A method of an object whose class is a thread."""
        threads = self.started
        if name == "start" and r.vn not in threads:
            run = r.cls.method("run")
            if run is not None:
                threads[r.vn] = self.in_thread(Func(run, r), [], {}, n).thread
        elif name in apis.THREAD_WAITS and r.vn in threads:
            threads[r.vn].running = False
            self.everything(n)
        return NONE

    def outside_its_capture(self, ev: Event, n) -> None:
        """An event that was recorded in a capture is used where the capture is over."""
        if ev.captured is not None and not ev.external and (self.m.capture is None or self.m.capture.graph is not ev.captured):
            self.violation("SS402", n, "an event of a capture")

    def in_thread(self, f: V, args, kwargs, n) -> V:
        m = self.m
        saved, capture = dict(m.current), m.capture
        m.current, m.capture = {"torch": [m.ambient["torch"]], "cupy": [m.null]}, None
        known = dict(self.order.known(self.order.host))
        thread = Thread()
        views = len(self.views)
        m.in_thread.append(thread)
        try:
            if isinstance(f, Func):
                value = m.call_function(f, list(args), dict(kwargs), n, force=True)
            else:
                value = m.call_value(f, list(args), dict(kwargs), n) if isinstance(f, (Partial, Obj, Cls)) else m.fresh("<result>")
        except (Raised_, m.Blocked):
            value = NONE
        finally:
            self.views_waited_for(views)
            m.in_thread.pop()
            m.current, m.capture = saved, capture
            after = self.order.knows[self.order.host]
            self.order.knows[self.order.host] = known
        thread.running, thread.at = True, m.seq
        m.threads.append(thread)
        return Future(value, after, thread)

    def event_of(self, r: Sym) -> Event:
        e = self.events.get(r.vn)
        if e is None:
            e = self.events[r.vn] = Event(r.text, None)
        return e

    def zero_grad(self, args, kwargs, n) -> V:
        to_none = kwargs.get("set_to_none") or (args[0] if args else None)
        if isinstance(to_none, Const) and to_none.value is False:
            self.launch([], [Tensor(self.grads)], "zero_grad()", n)
        else:
            self.drop_gradients(n)
        return NONE

    def nets_of(self, *values: V) -> frozenset:
        """The models that values were computed by."""
        found: set = set()
        for v in values:
            found |= self.nets.get(v.block.uid if isinstance(v, Tensor) else ("v", v.vn) if isinstance(v, Sym) else None, set())
        return frozenset(found)

    def computed_by(self, out: V, nets: frozenset) -> V:
        if nets and isinstance(out, (Tensor, Sym)):
            self.nets[out.block.uid if isinstance(out, Tensor) else ("v", out.vn)] = nets
            if isinstance(out, Sym) and out.block is not None:
                self.nets[out.block.uid] = nets
        return out

    def backward(self, args, kwargs, n) -> V:
        loss = args[0]
        if self.m.capture is not None:
            self.m.capture.backward = True
        initial = kwargs.get("gradient") or (args[1] if len(args) > 1 else None)
        if self.tensorish(loss):
            self.launch([self.tensor(loss)], [], "backward()", n)
        if initial is not None:
            ts = self.tensors_in(initial) or ([self.tensor(initial)] if isinstance(initial, Sym) else [])
            if ts:
                self.launch(ts, [], "backward()", n, kind="initial")
        made = self.made.get(loss.vn) if isinstance(loss, Sym) else None
        own = made is not None and made[0] is self.cur() or self.tensorish(loss) and any(a.write and a.timeline is self.cur() for a in self.tensor(loss).block.accesses)
        if own and self.free_of_waits(self.cur()) and any(t is not self.cur() and self.order.known(self.cur()).get(t, 0) < at for t, at in self.steps):
            h = self.caller_hazard(Access(self.cur(), 0, False, None, self.m.site(n), "backward()", "backward"), None)
            if getattr(self.m, "function_entry", False):
                h.assumptions += ("calls",)  # of two calls, which may be given two models
            self.m.hazards.append(h)
        if self.grads.alloc is None:
            self.grads.alloc, self.grads.home = self.cur(), self.m.site(n)
            if self.m.capture is None:
                self.allocated(self.cur(), n)
        self.launch([], [Tensor(self.grads)], "backward()", n, kind="backward", notes=self.nets_of(loss))
        return NONE

    def stream_method(self, t: Timeline, name: str, args, kwargs, n, r: V) -> V:
        m = self.m
        a = args[0] if args else next(iter(kwargs.values()), None)
        if name == "wait_stream":
            other = self.stream(a) if a is not None else None
            cap = m.capture
            self.tick()
            if cap is not None and other is not None:
                cap.waited(t, other, n)
            if other is None or other.origin == "sym" and other not in self.order.ticks:
                self.order.all_known(t)
                return NONE
            snap = self.order.snapshot(other)
            self.order.wait(t, snap, m.site(n), other)
            if any(a is s for s in self.defaults) and t is not other:
                self.only_default[t] = (m.site(n), len(self.order.waits))
            if other.origin == "sym":
                self.alias_wait(t, other)
            return NONE
        if name == "wait_event":
            if isinstance(a, Event):
                self.outside_its_capture(a, n)
            return self.event_wait(t, a, n)
        if name in ("record_event", "record"):
            ev = a if isinstance(a, Event) else self.event_of(a) if isinstance(a, Sym) else Event("", None, m.site(n))
            self.record(ev, t, n)
            return ev if not isinstance(a, Sym) else a
        if name == "synchronize":
            self.sync_host(t, n, "synchronize()")
            if t.origin in ("sym", "elem"):
                self.everything_host()
            return NONE
        if name == "is_capturing":
            return Const(self.capturing(t) is not None)
        if name == "query":
            self.query("query()", t, n)
            return self.queried(self.order.snapshot(t))
        if name == "__enter__":
            m.current[t.lib].append(t)
            return r
        if name == "__exit__":
            if len(m.current[t.lib]) > 1:
                m.current[t.lib].pop()
            return NONE
        if name == "use":
            m.current[t.lib][-1] = t
            return r
        if name == "begin_capture":
            self.begin_capture(None, r, n, "cupy", explicit=True, options=kwargs)
            return NONE
        if name == "end_capture":
            g = m.capture.graph if m.capture else Graph("graph")
            self.end_capture(n)
            return g
        return m.fresh(name)

    def everything_host(self) -> None:
        self.order.all_known(self.order.host)

    def alias_wait(self, t: Timeline, other: Timeline) -> None:
        """A stream of which nothing is known may be any other."""
        for u in list(self.order.ticks):
            if u is not t and distinct(u, other) in ("unknown",):
                self.order.learn(t, self.order.snapshot(u))

    def record(self, ev: Event, t: Timeline, n) -> None:
        self.tick()
        for e in self.m.among_others.pop(id(ev), ()):
            e.unknown = True
        if ev.timing:
            self.order.enqueue(t)
        ev.snapshot = self.order.snapshot(t)
        self.snapshots.append(ev.snapshot)
        ev.recorded = self.m.site(n)
        ev.of, ev.when = t, self.m.seq
        ev.unknown, ev.captured = False, None
        cap = self.m.capture
        if cap is not None:
            cap.recorded(ev, t)

    def event_wait(self, t: Timeline, ev: V | None, n) -> V:
        self.tick()
        if isinstance(ev, Sym):
            ev = self.events.get(ev.vn) or ev
        if not isinstance(ev, Event) or ev.unknown:
            self.order.all_known(t)
            return NONE
        cap = self.m.capture
        if cap is not None:
            cap.waited_event(t, ev, n)
        if ev.snapshot is not None:
            self.order.wait(t, ev.snapshot, self.m.site(n), ev.of)
        return NONE

    def next_in_turn(self, cycle: Lazy) -> V:
        items, turn = cycle.args[0].items, cycle.args[1]
        cycle.args[1] = turn + 1
        return items[turn % len(items)]

    def all_queried(self, result: Sym, values: Seq) -> None:
        """``all(e.query() for e in events)``"""
        known: dict = {}
        for v in values.items:
            for t, at in self.m.queries.get(("truth", self.m.key(v)), {}).items():
                known[t] = max(at, known.get(t, 0))
        if known:
            self.m.queries[("truth", self.m.key(result))] = known

    def queried(self, snapshot: dict) -> V:
        """Whether something is done: where that is true, the host knows it."""
        v = self.m.fresh("query()", "host")
        self.m.queries[("truth", self.m.key(v))] = snapshot
        return v

    def event_method(self, ev: Event, name: str, args, kwargs, n) -> V:
        m = self.m
        a = args[0] if args else kwargs.get("stream")
        if name in ("synchronize", "query", "wait"):
            self.outside_its_capture(ev, n)
        if name == "record":
            self.record(ev, self.stream(a, ev.lib) or self.cur(ev.lib), n)
            return NONE
        if name == "wait":
            return self.event_wait(self.stream(a, ev.lib) or self.cur(ev.lib), ev, n)
        if name == "synchronize":
            if m.capture is not None:
                self.violation("SS401", n, "synchronize()")
                return NONE
            self.tick()
            if ev.unknown or ev.snapshot is None and ev.timing is None:
                self.order.all_known(self.order.host)
            elif ev.snapshot is not None:
                self.order.wait(self.order.host, ev.snapshot, m.site(n), ev.of)
            return NONE
        if name == "query":
            self.query("query()", ev.of, n)
            if ev.unknown:
                self.order.all_known(self.order.host)
                return m.fresh("query()")
            return self.queried(ev.snapshot or {})
        if name == "elapsed_time":
            other = a if isinstance(a, Event) else self.events.get(a.vn) if isinstance(a, Sym) else None
            self.elapsed(ev, other, n)
            return m.fresh("<ms>", "host")
        return m.fresh(name)

    def elapsed(self, begin: V, end: V, n) -> None:
        for e in (begin, end):
            if not isinstance(e, Event):
                continue
            if e.timing is False:
                self.violation("SS312", n, "elapsed_time()", [("made", e.site)])
                return
            if not e.unknown and e.snapshot is None and e.timing is True and e.born > getattr(self.m, "built_at", -1):
                self.violation("SS312", n, "elapsed_time()", [("never recorded", e.site)])
                return
        e = end
        if isinstance(e, Event) and not e.unknown and e.of is not None:
            if self.order.known(self.order.host).get(e.of, 0) < e.snapshot.get(e.of, 0) or (
                    e.snapshot.get(e.of, 0) == 0):
                if e.snapshot.get(e.of, 0) > 0 and not self.waited_event(e):
                    between = self.m.boundaries and e.when <= self.m.boundaries[-1]  # its caller may wait
                    waits = ("waits",) if between and any(t is self.order.host and of is e.of for t, of, _, _ in self.order.waits) else ()
                    self.violation("SS312", n, "elapsed_time()", [("recorded", e.recorded)], ("methods", *waits) if between else ())
                    self.order.wait(self.order.host, e.snapshot)  # or it has raised

    def waited_event(self, e: Event) -> bool:
        return self.order.known(self.order.host).get(e.of, 0) >= e.snapshot.get(e.of, 0)

    def graph_method(self, g: Graph, name: str, args, kwargs, n) -> V:
        if name in ("replay", "launch"):
            lib = "torch" if name == "replay" else "cupy"
            self.replay(g, n, lib, self.stream(args[0], lib) if args else None)
        elif name == "capture_begin":
            options = dict(kwargs)
            if args:
                options.setdefault("pool", args[0])
            self.begin_capture(g, None, n, explicit=True, options=options)
        elif name == "capture_end":
            self.end_capture(n)
        elif name == "pool":
            return self.pool_of(g)
        elif name == "register_generator_state" and args:
            g.generators.add(self.m.key(args[0]))
        else:
            return self.m.fresh(name)
        return NONE

    def seq_method(self, r: Seq, name: str, args, kwargs, n) -> V:
        m = self.m
        r.used = True
        if r.kind == "queue":
            return self.queue_method(r, name, args, n)
        if name in ("append", "add"):
            if args:
                self.kept_beside(r.items, args[0], n, name)
                r.items.append(self.stamp(args[0]) if m.graphs else args[0])
            if len(r.items) > 12:
                del r.items[0]
                r.more = True
            return NONE
        if name == "appendleft" and args:
            r.items.insert(0, args[0])
            return NONE
        if name == "extend" and args:
            if isinstance(args[0], Seq):
                r.items += args[0].items
                r.more |= args[0].more
            return NONE
        if name == "insert" and len(args) > 1:
            r.items.insert(0, args[1])
            return NONE
        if name in ("pop", "popleft"):
            if r.items:
                if name == "popleft" or args and isinstance(args[0], Const) and args[0].value == 0:
                    v = r.items.pop(0)
                else:
                    v = r.items.pop()
                return v
            return m.fresh("<popped>", "element")
        if name == "clear":
            r.items.clear()
            m.released(n)
            return NONE
        if name == "copy":
            return Seq(list(r.items), r.kind, r.more)
        if name in ("index", "count"):
            return m.fresh(name, "index")
        return m.fresh(name)

    def queue_method(self, r: Seq, name: str, args, n) -> V:
        """A queue between threads: whoever waits for what is in it lets the others go on."""
        m = self.m
        if name in ("put", "put_nowait") and args:
            if not self.taken_from(n):
                self.handed_over(args[0], name, n)
            if len(r.items) < 12:
                r.items.append(args[0])
                self.sent[id(args[0])] = dict(self.order.known(self.order.host))
            return NONE
        if name in ("get", "get_nowait"):
            if not r.items:
                self.go_on(n)
            if r.items:
                v = r.items.pop(0)
                self.order.learn(self.order.host, self.sent.pop(id(v), {}))  # who put it there had waited for that
                return v
            if m.in_thread:
                raise self.m.Blocked
            return m.fresh("<got>", "element")
        if name == "join":
            self.go_on(n)
            return NONE
        return m.fresh(name, "host")

    def taken_from(self, n) -> bool:
        """Whether the file has somebody who takes something from queues."""
        return any(not {"get", "get_nowait"}.isdisjoint(f.words) for f in self.m.frame.module.all_functions)

    def handed_over(self, v: V, name: str, n) -> None:
        """Somebody who is not in sight is given what a copy still fills, and nothing to wait for."""
        if self.waitable(v, 0):
            return
        for t in self.tensors_in(v):
            if (t.block.place in HOSTS or t.numpy) and any(a.kind == "d2h" for a in t.block.accesses):
                self.host(t, False, f"{name}()", n)

    def waitable(self, v: V, depth: int) -> bool:
        if isinstance(v, (Event, Work, Stream, Func)):
            return True
        inner = v.items if isinstance(v, Seq) else v.items.values() if isinstance(v, Map) else v.fields.values() if isinstance(v, Obj) else ()
        return depth < 3 and any(self.waitable(x, depth + 1) for x in inner)

    def go_on(self, n) -> None:
        """The threads that wait for something go on, from the beginning of what they do."""
        if self.m.in_thread:
            return
        waiting, self.waiting = self.waiting, []
        for f, args, rounds in waiting:
            self.in_thread(f, args, {}, n)
            if rounds:
                self.waiting.append((f, args, rounds - 1))

    def map_method(self, r: Map, name: str, args, kwargs, n) -> V:
        m = self.m
        if name in ("items", "values", "keys"):
            return Lazy(name, [r])
        if name in ("get", "setdefault", "pop"):
            if args:
                k = m.key(args[0])
                if k in r.items:
                    v = r.items[k]
                    if name == "pop":
                        del r.items[k]
                    return v
                if name == "setdefault" and len(args) > 1:
                    r.items[m.map_key(r, args[0])] = args[1]
                    return args[1]
                if name == "pop" and m.only_entry(r, args[0]) is not None:
                    return r.items.popitem()[1]
            if name == "get" and not r.items:
                return m.sym(m.vn(("get", id(r), m.key(args[0]) if args else None)), "<got>", "element")
            return m.element(r, args[0]) if args else m.fresh("<got>")
        if name == "update":
            old = Seq(list(r.items.values()))
            if args and not (isinstance(args[0], Map) and all(k[0] == "c" or k in r.items for k in args[0].items)):
                self.unknown_keys(r, args[0], n)
            if args and isinstance(args[0], Map):
                r.items.update(args[0].items)
            m.maybe_released(old, n)
            return NONE
        if name == "clear":
            r.items.clear()
            m.released(n)
            return NONE
        if name == "copy":
            return Map(dict(r.items), m.vn(("dict", len(m.vns))))
        return m.fresh(name)

    def tensor_method(self, t: Tensor, name: str, args, kwargs, n) -> V:
        m = self.m
        host = t.block.place in HOSTS or t.numpy
        lib = t.block.lib
        a = args[0] if args else None
        if name.startswith("register_") and name.endswith("hook"):
            m.hooks.append((name, a))
            return m.fresh("hook")
        if name in ("size", "dim", "numel", "stride", "is_contiguous", "data_ptr", "element_size", "get_device", "is_pinned", "nelement", "storage_offset",
                    "register_hook", "is_floating_point", "requires_grad_", "retain_grad", "register_post_accumulate_grad_hook"):
            got = Const(True) if name == "is_pinned" and t.block.place == "pinned" else t if name == "requires_grad_" else \
                m.sym(m.vn(("meta", t.block.uid, name, *(m.key(v) for v in args))), name, "host")
            if name == "data_ptr":
                self.pointers[got.vn] = t
            return got
        if name in ("keys", "is_empty", "batch_dims"):
            return Lazy("keys", [m.sym(m.vn(("names", t.block.uid)), "names", "host")])
        if name == "__dlpack__":
            return self.exchanged(t, n)
        if name == "record_stream":
            s = self.stream(a)
            if s is not None:
                t.block.recorded.add(s)
                if t.block.given and t.block.alloc is None and s is m.ambient["torch"]:
                    t.block.own = m.site(n)
                    self.own.append(t.block)
                if t.block.owner is not None:
                    self.siblings.add((t.block.owner, s))
                if s.origin == "sym":
                    t.block.kept = True
            return NONE
        if name in ("item", "tolist", "__float__", "__int__", "is_nonzero"):
            self.host_value(t, n, f"{name}()")
            return m.fresh(f"<{name}>", "host")
        if name == "numpy":
            if t.block.uid in self.moved_to and self.may_be_host(t.block):
                self.is_on_host(t.block)
            self.viewed(t, n)
            t.block.place = "host" if t.block.place == "unknown" else t.block.place
            return Tensor(t.block, t.part, True)
        if name == "cpu" or name == "to" and self.to_cpu(args, kwargs):
            non = name == "to" and self.flag(kwargs.get("non_blocking") or (args[2] if len(args) > 2 else args[1] if len(args) > 1 and isinstance(args[1], Const) and isinstance(args[1].value, bool) else None))
            if name == "cpu":
                non = self.flag(kwargs.get("non_blocking"))
            if host:
                return t
            dest = Tensor(Block("pinned" if non else "pageable", ""), None)
            self.d2h(t, dest, non, n, lib, made=True)
            return dest
        if name in ("to", "cuda", "type_as"):
            w = {self.where(v) for v in (*args, *(v for k, v in kwargs.items() if k in ("device", "dtype")))} if name == "to" else {"cuda"}
            w.discard("")
            non = self.flag(kwargs.get("non_blocking")) or any(isinstance(v, Const) and v.value is True for v in args[1:])
            if w <= {"dtype"}:
                return self.compute([t], n, "to", lib)
            if host:
                if t.block.place == "pinned" and non:
                    out = self.new(n, "cuda", lib, "to", write=False)
                    self.launch([t], [out], "to", n, lib, "h2d")
                    return out
                if m.capture is not None and not non and "registered" not in t.block.notes:
                    self.violation("SS401", n, "a copy from pageable memory")
                self.host(t, False, "to", n)
                out = self.made_by("to", n, True, lib)
                if not non:
                    self.sync_quiet()
                return out
            to = kwargs.get("device") or (args[0] if args else None)
            if name == "to" and t.block.place == "cuda" and non and self.back_again(to):
                dest = Tensor(Block("unknown", ""), None)
                self.d2h(t, dest, True, n, lib)
                return dest
            if t.block.place == "cuda":
                if w & {"cuda", "cuda?"}:
                    return t  # already there
                return self.compute([t], n, "to", lib)
            out = self.new(n, "cuda", lib, "to", write=False)
            if not non and m.capture is None and name != "type_as" and w & {"cuda", "cuda?"} and not any(x.timeline is not self.order.host for x in t.block.accesses):
                self.tick()
                return out  # from the host, and waited for, or there already
            if non and name == "to" and "cuda" not in w:
                self.moved_to[out.block.uid] = kwargs.get("device") or (args[0] if args else NONE)
            self.launch([t], [out], "to", n, lib, "h2d" if non else "")
            if not non and w and w <= {"cuda", "cuda?"}:
                out.block.accesses.clear()  # it was there, or the copy is waited for
            return out
        if name == "pin_memory":
            self.beside()
            if t.block.place == "pinned":
                return t
            self.host(t, False, "pin_memory()", n)
            return Tensor(Block("pinned", ""), None)
        if name == "get" and lib == "cupy":
            return self.to_host([t, *args], kwargs, n)
        if name == "set" and lib == "cupy":
            src = self.tensors_in(a) if a is not None else []
            self.m.current["cupy"].append(self.stream(kwargs.get("stream") or (args[1] if len(args) > 1 else None), "cupy") or self.cur("cupy"))
            self.copy(t, a if src else NONE, bool(src and src[0].block.place == "pinned"), n)
            self.m.current["cupy"].pop()
            return NONE
        if name == "copy_":
            non = self.flag(kwargs.get("non_blocking")) or len(args) > 1 and self.flag(args[1])
            self.copy(t, a if a is not None else NONE, non, n, sure=True)
            return t
        if name == "backward":
            return self.backward([t, *args], kwargs, n)
        if name in ("resize_", "set_") or name == "untyped_storage" or name == "storage":
            if name == "resize_" and not (isinstance(a, Const) and a.value == 0):
                self.resized(t, n)
            if name == "resize_" and isinstance(a, Const) and a.value == 0 and t.block.fresh:
                self.m.candidates.pop(t.block.uid, None)
                self.free(t.block, n)
            return t
        if name in apis.BLOCKING_METHODS and not host:
            out = self.compute([t, *args], n, name, lib)
            self.sync_host(self.cur(lib), n, f"{name}()")
            return out
        if name in apis.VIEW_METHODS and name not in ("contiguous", "reshape", "flatten"):
            if name in apis.PIECE_METHODS or name in ("unbind",):
                return Seq([self.view(t, (("i", i),)) for i in range(2)], "tuple", True)
            if name in ("narrow", "select"):
                return self.view(t, tuple(("i", m.key(v)) for v in args))
            for v in args:
                pass
            return t
        if name in ("contiguous", "reshape", "flatten"):
            return t
        if name.endswith("_") and not name.endswith("__") and name not in apis.NOT_IN_PLACE:
            w = t
            if name in ("zero_", "fill_"):
                return self.compute([*args], n, name, lib, write=[w], fresh=False)
            given = [self.tensor(v) if isinstance(v, Sym) and v.vn in self.maybe else v for v in (*args, *kwargs.values())]
            return self.compute([t, *given], n, name, lib, write=[w], fresh=False)
        if name in ("fill", "sort", "partition", "put", "itemset") and (t.numpy or lib == "cupy"):
            return self.compute([*args], n, name, lib, write=[t], fresh=False)
        if name in ("new_empty", "new_zeros", "new_ones", "new_full", "new_tensor"):
            return self.made_by(name, n, name != "new_empty", lib) if not host else Tensor(Block("pageable", ""))
        if name in ("astype", "copy") and lib == "cupy" or name in ("clone",):
            return self.compute([t], n, name, lib)
        if name in ("__enter__", "__exit__", "__getitem__"):
            return t
        if name == "wait":
            self.everything(n)
            return t
        if name in MODULE_METHODS and name not in apis.TENSOR_METHODS:
            return t  # it is a module
        if lib == "torch" and not host and name in apis.GENERATING_METHODS:
            return self.unmodelled(name, t, args, kwargs, n)
        return self.compute([t, *(self.tensor(v) if isinstance(v, Sym) and v.vn in self.maybe else v for v in (*args, *kwargs.values()))], n, name, lib)

    def back_again(self, device: V | None) -> bool:
        """Whether a device is that of something that was copied to another one: one of the two is the host perhaps."""
        owner = self.m.owners.get(device.vn) if isinstance(device, Sym) else None
        if owner is None or owner[1] != "device" or not isinstance(owner[0], Sym):
            return False
        names = {self.m.key(device), ("v", self.m.vns.get(("attr", device.vn, "type"))), ("v", self.m.vns.get(("str", self.m.key(device))))}
        if any(k[0] == "eq" and k[1] in names and (k[2] == ("c", "str", "cpu")) != value for k, value in self.m.conds.items()):
            return False
        return bool(self.went_to.get(owner[0].vn, set()) - {self.m.key(device)})
    def viewed(self, t: Tensor, n) -> None:
        """An array of numpy is made of what a copy may still fill: who reads it must have waited, and nothing is read here."""
        for a in t.block.accesses:
            if a.kind == "d2h" and overlap(a.part, t.part) == "yes" and not self.order.covers(self.order.host, a):
                self.views.append((t.block, a, Access(self.order.host, 0, False, t.part, self.m.site(n), "numpy()", "", frozenset(), self.tick())))

    def views_waited_for(self, count: int = 0) -> None:
        """Forget the arrays whose copies the host has waited for by now."""
        self.views[count:] = [v for v in self.views[count:] if not self.order.covers(self.order.host, v[1])]

    def views_kept(self) -> None:
        """After a call: what an object keeps may be waited for by other calls before it is read."""
        self.views_waited_for()
        if self.views:
            held = self.m.held()
            self.views = [v for v in self.views if v[0].uid not in held]

    def views_left(self) -> None:
        """At the end of an entry: the arrays whose copies nobody has waited for and that no object keeps."""
        self.views_waited_for()
        if not self.views:
            return
        held = self.m.held()
        result = self.m.last_result
        given = self.blocks_in(result) if result is not None else set()
        for block, first, second in self.views:
            if block.uid not in held:
                if block.uid in given:
                    second.notes = frozenset({"caller"})
                self.conflict(block, first, second)

    def exchanged(self, v: V, n) -> V:
        """DLPack: the stream that is named there waits for the current one; which one it is says the path, or nobody."""
        if self.m.capture is None:
            known = self.order.snapshot(self.cur(self.lib_of([v])))
            for t in list(self.order.ticks):
                if t is not self.order.host:
                    self.order.learn(t, known)
            self.exchanges.append(known)
        return v

    def may_be_host(self, block: Block) -> bool:
        """Whether the path says nothing against it that the place something was moved to is the host."""
        m, device = self.m, self.moved_to[block.uid]
        if not isinstance(device, Sym):
            return False
        names = {m.key(device), ("v", m.vn(("attr", device.vn, "type"))), ("v", m.vn(("str", m.key(device))))}
        if m.conds.get(("truth", ("v", m.vn(("meta", block.uid, "is_cuda"))))):
            return False
        for key, value in m.conds.items():
            if key[0] == "eq" and key[1] in names and (key[2] == ("c", "str", "cpu")) != value:
                return False
        return True

    def is_on_host(self, block: Block) -> None:
        """What has been moved to a device that is not known was moved to the host: only there it can be read like this."""
        block.place, block.alloc = "unknown", None
        for a in block.accesses:
            if a.write:
                a.kind = "d2h"
                a.notes |= {"target"}

    def to_cpu(self, args, kwargs) -> bool:
        d = kwargs.get("device") or (args[0] if args else None)
        return self.where(d) == "cpu"


def pblock(self: Library, v: V) -> bool:
    """Whether the parameters of something have been asked for."""
    return self.m.key(v) in self.module_blocks


class Raised_(Exception):
    pass


# ---------------------------------------------------------------------- table of calls
def _make_stream(lib):
    def call(self: Library, args, kwargs, n) -> V:
        nb = kwargs.get("non_blocking")
        blocking = lib == "cupy" and not (isinstance(nb, Const) and nb.value)
        t = Timeline(f"<stream {getattr(n, 'lineno', 0)}>", "new", self.m.site(n), lib, blocking)
        t.born = self.tick()
        d = kwargs.get("device") or (args[0] if args and lib == "torch" else None)
        if isinstance(d, (Const, Sym)) and not (isinstance(d, Const) and d.value in (None, "cuda")):
            t.device = self.device_key(d)
        return Stream(t)
    return call


def _current(lib):
    def call(self: Library, args, kwargs, n) -> V:
        return Stream(self.cur(lib))
    return call


def _default(self: Library, args, kwargs, n) -> V:
    s = Stream(self.m.ambient["torch"])
    if not self.m.quiet:
        self.defaults.append(s)  # that it is the current one is supposed
    return s


def _stream_context(self: Library, args, kwargs, n) -> V:
    v = args[0] if args else kwargs.get("stream")
    if v is None or isinstance(v, Const):
        return Ctx("plain")
    if isinstance(v, Sym):
        if self.m.conds.setdefault(("truth", self.m.key(v)), True) is False:
            return Ctx("plain")  # it is None
        t = self.stream(v)
        return Ctx("stream", ("torch", t))
    if isinstance(v, Stream):
        return Ctx("stream", ("torch", v.timeline))
    return Ctx("plain")


def _set_stream(self: Library, args, kwargs, n) -> V:
    t = self.stream(args[0]) if args else None
    if t is not None:
        self.m.current["torch"][-1] = t
    return NONE


def _synchronize(self: Library, args, kwargs, n) -> V:
    self.sync_host(None, n, "synchronize()")
    return NONE


def _event(lib):
    def call(self: Library, args, kwargs, n) -> V:
        t = kwargs.get("enable_timing") or (args[0] if args and lib == "torch" else None)
        timing = None
        if lib == "torch":
            timing = False if t is None else bool(t.value) if isinstance(t, Const) else None
        else:
            d = kwargs.get("disable_timing") or (args[1] if len(args) > 1 else None)
            timing = not (isinstance(d, Const) and d.value) if not isinstance(d, Sym) else None
        e = Event("", timing, self.m.site(n), lib)
        self.m.timing |= bool(timing)
        e.born = self.tick()
        e.external = self.option(kwargs.get("external")) is not False or any(k.arg is None for k in getattr(n, "keywords", ()))
        return e
    return call


def _clock(self: Library, args, kwargs, n) -> V:
    c = Clock(self.tick(), self.m.site(n))
    self.clock_known = {**self.clock_known, id(c): dict(self.order.known(self.order.host))}
    self.m.timing = True
    return c


def _graph(self: Library, args, kwargs, n) -> V:
    return Graph("")


def _capture(self: Library, args, kwargs, n) -> V:
    given = {**dict(zip(("cuda_graph", "pool", "stream", "capture_error_mode"), args)), **kwargs}
    return Ctx("capture", (given.pop("cuda_graph", None), given.pop("stream", None), given))


def _null(self: Library, args, kwargs, n) -> V:
    return Ctx("plain")


def _partial(self: Library, args, kwargs, n) -> V:
    return Partial(args[0], args[1:], kwargs) if args else NONE


def _container(kind):
    def call(self: Library, args, kwargs, n) -> V:
        if args and isinstance(args[0], Seq):
            return Seq(list(args[0].items), kind, args[0].more)
        return Seq([], kind)
    return call


def _cycle(self: Library, args, kwargs, n) -> V:
    if args and isinstance(args[0], Seq) and args[0].items:
        return Lazy("cycle", [args[0], 0])
    return self.m.fresh("<cycle>")


def _queue(self: Library, args, kwargs, n) -> V:
    return Seq([], "queue")


def _mapping(self: Library, args, kwargs, n) -> V:
    return Map({}, self.m.vn(("dict", len(self.m.vns))))


def _device(self: Library, args, kwargs, n) -> V:
    a = args[0] if args else None
    if isinstance(a, Const) and isinstance(a.value, str):
        return a
    if isinstance(a, Sym) and "device" not in a.text:
        return self.m.sym(self.m.vn(("device", self.m.key(a))), "device " + a.text, "device")
    return a if a is not None else Const("cuda")


def _elapsed(self: Library, args, kwargs, n) -> V:
    if len(args) > 1:
        self.elapsed(args[0], args[1], n)
    return self.m.fresh("<ms>", "host")


def _external(self: Library, args, kwargs, n) -> V:
    v = args[0] if args else NONE
    if isinstance(v, Bound) and isinstance(v.receiver, Stream):
        return Stream(v.receiver.timeline)  # the handle of a stream is the stream
    t = self.timelines.get(v.vn) if isinstance(v, Sym) else None
    t = t or Timeline("an external stream", "sym", self.m.site(n))
    while isinstance(v, Sym):  # who is given the handle is given the stream
        self.timelines[v.vn] = t
        v = self.numbers.get(v.vn)
    return Stream(t)


def _thread(self: Library, args, kwargs, n) -> V:
    f = kwargs.get("target")
    extra = kwargs.get("args")
    if f is not None:
        given = list(extra.items) if isinstance(extra, Seq) else []
        if isinstance(f, Func) and not {"get", "get_nowait"}.isdisjoint(f.function.words):
            self.waiting.append((f, given, 3))
            thread = Thread()
            self.m.threads.append(thread)
            return thread
        thread = self.in_thread(f, given, {}, n).thread
        thread.running = False  # until it is started
        return thread
    return self.m.fresh("thread")


def _multi_hook(self: Library, args, kwargs, n) -> V:
    self.m.hooks.append(("register_multi_grad_hook", args[1] if len(args) > 1 else NONE))
    return self.m.fresh("hook")


def _autograd_backward(self: Library, args, kwargs, n) -> V:
    grads = kwargs.get("grad_tensors") or (args[1] if len(args) > 1 else None)
    return self.backward([args[0] if args else NONE] + ([grads] if grads is not None else []), {}, n)


def _grad(self: Library, args, kwargs, n) -> V:
    g = kwargs.get("grad_outputs")
    if g is not None:
        for t in self.tensors_in(g):
            self.launch([t], [], "grad()", n, kind="initial")
    out = self.new(n, "cuda", "torch", "grad", write=False)
    self.launch([], [out], "grad()", n, kind="backward")
    return Seq([out], "tuple", True)


def _clip(self: Library, args, kwargs, n) -> V:
    self.launch([Tensor(self.grads)], [Tensor(self.grads)], "clip_grad_norm_()", n, kind="clip")
    return self.new(n, "cuda", "torch", "clip_grad_norm_")


def _graphed(self: Library, args, kwargs, n) -> V:
    return self.graphed(args, kwargs, n)


def _weak(self: Library, args, kwargs, n) -> V:
    s = self.m.fresh("a weak reference", "weak")
    self.given[(s.vn, "")] = args[0] if args else NONE
    return s


def _stack(self: Library, args, kwargs, n) -> V:
    return Ctx("stack", [])


def _expecting(self: Library, args, kwargs, n) -> V:
    return Ctx("expecting")


def _pool(self: Library, args, kwargs, n) -> V:
    return Ctx("pool", [])


def _waited(self: Library, args, kwargs, n) -> V:
    self.threads_done()
    return Seq([args[0] if args else NONE, Seq([], "set")], "tuple")


def _loader(self: Library, args, kwargs, n) -> V:
    s = self.m.fresh("loader")
    workers = kwargs.get("num_workers")
    if self.option(kwargs.get("pin_memory")) and workers is not None and not (isinstance(workers, Const) and not workers.value):
        self.m.pinning.add(s.vn)
    return s


def _capturing(self: Library, args, kwargs, n) -> V:
    return Const(self.m.capture is not None)


CALLS = {
    "torch.cuda.Stream": _make_stream("torch"), "cupy.cuda.Stream": _make_stream("cupy"), "numba.cuda.stream": _make_stream("cupy"),
    "torch.cuda.current_stream": _current("torch"), "cupy.cuda.get_current_stream": _current("cupy"),
    "torch.cuda.default_stream": _default, "torch.cuda.stream": _stream_context, "torch.cuda.set_stream": _set_stream,
    "torch.cuda.synchronize": _synchronize, "cupy.cuda.runtime.deviceSynchronize": _synchronize, "numba.cuda.synchronize": _synchronize,
    "torch.cuda.Event": _event("torch"), "cupy.cuda.Event": _event("cupy"), "cupy.cuda.get_elapsed_time": _elapsed,
    "torch.cuda.CUDAGraph": _graph, "torch.cuda.graph": _capture, "contextlib.nullcontext": _null, "contextlib.suppress": _null,
    **dict.fromkeys("queue.Queue queue.SimpleQueue queue.LifoQueue asyncio.Queue multiprocessing.Queue".split(), _queue),
    "itertools.cycle": _cycle, "functools.partial": _partial, "collections.deque": _container("list"), "collections.defaultdict": _mapping,
    "collections.OrderedDict": _mapping, "torch.device": _device, "torch.cuda.ExternalStream": _external,
    "cupy.cuda.ExternalStream": _external, "threading.Thread": _thread, "torch.autograd.backward": _autograd_backward,
    "torch.autograd.graph.register_multi_grad_hook": _multi_hook, "torch.autograd.grad": _grad, "torch.nn.utils.clip_grad_norm_": _clip, "torch.nn.utils.clip_grad_value_": _clip,
    "torch.cuda.is_current_stream_capturing": _capturing, "torch.cuda.make_graphed_callables": _graphed, "contextlib.ExitStack": _stack,
    "weakref.ref": _weak, "pytest.raises": _expecting, "concurrent.futures.ThreadPoolExecutor": _pool, "concurrent.futures.wait": _waited,
    "concurrent.futures.as_completed": _waited, "torch.utils.data.DataLoader": _loader,
    **dict.fromkeys("time.time time.perf_counter time.perf_counter_ns time.monotonic time.monotonic_ns time.time_ns timeit.default_timer".split(), _clock),
}
