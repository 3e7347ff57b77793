"""Operations of streams and of the host: what they touch, allocate and wait for."""

from __future__ import annotations

import ast
from typing import Any

from ..overlap import overlap
from ..program import Access, Block, Hazard, Launch, Timeline, distinct, order_code
from ..values import (
    Event,
    Seq,
    Sym,
    Tensor,
    V,
    Work,
    contents,
)
from .callers import Callers
from .path import Node, Notes, Part
from .state import ASSUMPTIONS, HOSTS, Made

_OF_PROGRAM = frozenset(("new", "elem", "comm"))
"""Origins of streams that the program makes for itself: what is made or used there is on the device."""


class Accesses(Callers):
    """Operations of streams and of the host: what they touch, allocate and wait for."""

    def touch(
        self,
        block: Block,
        part: Part,
        write: bool,
        op: str,
        node: Node,
        lib: str = "torch",
        kind: str = "",
        at: int | None = None,
        seq: int | None = None,
        notes: Notes = frozenset(),
        t: Timeline | None = None,
    ) -> None:
        t = t or self.cur(lib)
        cap = self.capturing(t)
        if cap is not None:
            cap.touch(block, part, write, node, notes)
            inside = cap.inside(block)  # at each launch, branches that nothing joins run at once (GC-14)
            self.order.access(inside, t, write, part, self.m.site(node), op, kind, notes, self.m.seq, at, lib)
            return
        self.order.access(
            block,
            t,
            write,
            part,
            self.m.site(node),
            op,
            kind,
            notes,
            seq if seq is not None else self.m.seq,
            at,
            lib,
        )
        if (
            t in self.only_default
            and block.place in ("cuda", "unknown")
            and kind != "h2d"
            and (block.alloc is self.m.ambient["torch"] or (block.given and write))
        ):
            self.waited_for_default(block, block.accesses[-1])
        if block.given:
            self.unordered_with_caller(block, block.accesses[-1])
            if (
                not write
                and t.lib == "torch"
                and t.origin == "new"
                and (t.born > self.order.began or "moved" in notes)
                and (kind == "d2h" or (op == "copy_" and kind != "h2d"))
            ):
                self.copied.append((block, block.accesses[-1]))
        if block.fresh and block.alloc is not None and t is not block.alloc and t is not self.order.host:
            self.m.candidates[block.uid] = block
        elif block.owner is not None and t.origin not in ("ambient", "null", "host"):
            self.lent_uses.append((block, block.accesses[-1]))

    def known_on_device(self, t: Tensor) -> bool:
        """Whether there is evidence that a tensor is on the device."""
        sure = t.block.place == "cuda" and t.block.notes.isdisjoint(("guessed", "unplaced"))
        return sure or t.block.lib == "cupy" or self.is_on_device(t.block) is True

    def launch(
        self,
        reads: list[Tensor],
        writes: list[Tensor],
        op: str,
        node: Node,
        lib: str = "torch",
        kind: str = "",
        strong: bool = True,
        notes: Notes = frozenset(),
        t: Timeline | None = None,
    ) -> tuple[int, int]:
        """One operation of a stream."""
        t = t or self.cur(lib)
        seq = self.tick()
        at = self.order.enqueue(t)
        if kind == "h2d":
            self.uploads.append((t, at))
        if strong:
            supposed = set(notes & ASSUMPTIONS)
            if (reads or writes) and not any(self.known_on_device(x) for x in (*reads, *writes)):
                supposed.add("place")  # what computes on memory of the host launches nothing
            memory = next((x.block.text for x in (*reads, *writes) if x.block.text), "")
            self.m.launches.append(Launch(seq, t, at, self.m.site(node), op, memory, tuple(sorted(supposed))))
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

    def host(self, x: Tensor, write: bool, op: str, node: Node, notes: Notes = frozenset()) -> None:
        self.tick()
        if x.block.place == "cuda":
            return
        self.host_in_capture(x.block, write, node)
        self.order.access(
            x.block, self.order.host, write, x.part, self.m.site(node), op, "", notes, self.m.seq
        )

    def sync_host(self, t: Timeline | None, node: Node, op: str = "synchronize") -> None:
        """The host waits for a stream, or for all of them."""
        self.beside()
        cap = self.m.capture
        if cap is not None:
            self.violation("SS401", node, op)
            return
        self.tick()
        if t is None:
            self.order.device_wait(self.m.site(node))
        else:
            self.order.wait(self.order.host, self.order.snapshot(t), self.m.site(node), t)

    def sync_quiet(self) -> None:
        if self.m.capture is None:
            self.order.wait(self.order.host, self.order.snapshot(self.cur()))

    def everything(self, node: Node) -> None:
        """Somebody may have waited for everything."""
        self.order.all_known(self.order.host)
        for t in list(self.order.ticks):
            if t is not self.order.host:
                self.order.all_known(t)

    def everything_host(self) -> None:
        self.order.all_known(self.order.host)

    def conflict(self, block: Block, first: Access, second: Access) -> None:
        host = self.order.host
        assumed = list(self.assumed(first, second))
        if "root" in (first.kind, second.kind):
            return
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
        if (
            "helper" in second.notes
            and first.timeline.origin == "new"
            and first.timeline.name.startswith("<")
        ):
            assumed = [
                "unnamed" if a == "helper" else a for a in assumed
            ]  # nobody can wait for a stream that has no name
        calls = [access for access in (first, second) if "helper" in access.notes]
        if len(calls) == 1 and "entered" in calls[0].notes:
            assumed = ["entered" if a == "helper" else a for a in assumed]
        if first.timeline is host:
            return
        if second.timeline is host and first.kind == "d2h":
            source = self.copied_from.get(block.uid)
            if source is not None and self.is_on_device(source) is False:
                return  # it lies on the host, and was not copied
        if second.timeline is host:
            if block.place == "unknown" and first.kind not in ("d2h", "h2d"):
                return
            if first.kind not in ("d2h", "h2d"):
                return
            if block.place not in HOSTS:
                assumed.append("place")
            code = "SS302" if second.write else "SS301"
            if second.write and self.is_read_as_well(first, second):
                return
        elif first.call <= block.shared and (first.library != second.library or "exported" in block.notes):
            code = "SS501"
        elif (
            second.kind == "backward"
            and first.kind != "backward"
            and first.part is not None
            and len(first.part[0]) == 3
        ):
            return  # the gradient of what one pass has made: the next pass has another one
        elif first.kind == second.kind == "backward" and not first.notes & second.notes:
            return  # of other models, as far as can be seen
        elif first.kind == "backward" and self.of_other_models(first, second):
            return
        elif second.kind == "initial":
            code = "SS112"
        elif first.kind == "backward":
            code = "SS111"
        else:
            code = order_code(second)
        missed = self.order.missed(block, first, second) if code in ("SS101", "SS102") else None
        if missed is not None:
            code = "SS103"
        self.m.hazards.append(Hazard(code, first, second, block, tuple(assumed), missed=missed))

    def is_read_as_well(self, first: Access, write: Access) -> bool:
        """Whether what the host writes is shown as read, by the same operation."""
        return any(
            h.code == "SS301" and h.first is first and h.second.site == write.site
            for h in self.m.hazards[-4:]
        )

    def of_other_models(self, backward: Access, use: Access) -> bool:
        """Whether gradients are used that are not those that a backward pass has written."""
        written = {n for n in backward.notes if isinstance(n, tuple)}
        for net in list(written):
            written |= self.wraps.get(net, frozenset())
        used: set[Any] = {n for n in use.notes if isinstance(n, tuple)}
        for index in use.part or ():
            used |= self.gradients_of.get(index[1], frozenset()) if index[0] == "i" else set()
        return bool(written and used) and written.isdisjoint(used)

    def allocated(self, t: Timeline, node: Node, assumed: tuple[str, ...] = ()) -> None:
        """Memory is taken from the pool of a stream: what was released there too early may be what is given out.

        Args:
            assumed: what has to be assumed for that.
        """
        if not self.freed:
            return
        self.order.come_after_barrier(t)
        left = []
        for block, use, site in self.freed:
            if block.alloc is not t:
                left.append((block, use, site))
                continue
            if self.order.covers(t, use) or self.order.covers(self.order.host, use):
                continue
            if t is not self.order.host and distinct(t, use.timeline) not in ("yes", "likely"):
                continue
            if block.text == "gradients" and use.part is None:
                continue
            code = "SS202" if block.lib == "cupy" else "SS113" if use.kind == "initial" else "SS201"
            told = {t.origin, use.timeline.origin} & _OF_PROGRAM  # who works there takes it for the device's
            place = ("place",) if block.place == "unknown" and not told else ()
            if "saved" in block.notes:
                place = ("release",)
            h = Hazard(
                code,
                Access(t, 0, True, None, block.home, "allocation"),
                use,
                block,
                (*self.assumed(use), *place, *assumed),
            )
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
            if a.timeline is block.alloc or a.timeline is self.order.host:
                continue
            if any(r is not block.alloc and self.order.covers(r, a) for r in block.recorded):
                continue  # the streams it is recorded on keep it until what they wait for is done (TL-03)
            if (
                a.kind == "collective"
                or "watched" in a.notes
                or (block.uid in self.m.given_back and "consumer" not in a.notes)
            ):
                continue
            if self.order.covers(block.alloc, a) or self.order.covers(self.order.host, a):
                continue
            self.freed.append((block, a, self.m.site(s)))
            return

    def new(
        self,
        node: Node,
        place: str = "cuda",
        lib: str = "torch",
        op: str = "",
        write: bool = True,
        text: str = "",
        seq: int | None = None,
        at: int | None = None,
        notes: Notes = frozenset(),
    ) -> Tensor:
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

    def new_gradients(self) -> Block:
        return Block("cuda", "gradients", fresh=True)

    def drop_gradients(self, node: Node) -> None:
        """The gradients are set to None: the next pass makes new ones."""
        old, self.grads = self.grads, self.new_gradients()
        self.assigned.clear()
        old.freed = self.m.site(node)
        self.gradients_lost(old, node)
        if old.accesses and old.alloc is not None:
            self.m.candidates[old.uid] = old
            self.m.released(node)

    def made_by(self, op: str, n: Node, write: bool = True, lib: str = "torch") -> Tensor:
        cap = self.m.capture
        t = self.cur(lib)
        seq = self.tick()
        at = self.order.enqueue(t) if write and not (cap and t in cap.streams) else None
        if write:
            self.m.launches.append(Launch(seq, t, at or 0, self.m.site(n), op))
        return self.new(n, "cuda", lib, op, write, at=at, seq=seq)

    def made_somewhere(self, op: str, n: Node, write: bool = True) -> Tensor:
        """A fresh tensor where another one is that is not known."""
        t = self.made_by(op, n, write)
        t.block.place = "unknown"
        return t

    def unknown_result(
        self,
        node: Node,
        op: str,
        at: int | None = None,
        seq: int | None = None,
        computes: bool = False,
        kind: str = "unmodelled",
        lib: str = "torch",
    ) -> Sym:
        """What a call gives that is not followed.

        Args:
            computes: it may be a model, which makes a tensor of whatever it is given.
            lib: the library on whose current stream it works.
        """
        launched = at is not None
        t = self.cur(lib)
        cap = self.capturing(t)
        if at is None:
            seq = self.tick()
            at = self.order.enqueue(t) if cap is None else 0
        s = self.m.fresh(f"<{op}>", "result")
        if cap is not None:
            if launched:
                cap.result(s, node, frozenset({kind}))
            return s
        when = seq if seq is not None else self.m.seq
        what = Made(t, at, self.m.site(node), op, when, kind, t.last)
        if launched or t.origin not in ("ambient", "null"):
            self.made[s.vn] = what
            self.allocated(t, node, (kind,))
        elif computes:
            self.maybe[s.vn] = what
            self.allocated(t, node, (kind,))
        return s

    def host_value(self, v: V, node: Node, op: str) -> None:
        """The host wants the value of a tensor."""
        for t in self.tensors_in(v):
            if "possible" in t.block.notes and self.m.capture is not None:
                continue
            if (
                t.block.place in HOSTS
                or t.numpy
                or (t.block.place == "unknown" and any(a.kind == "d2h" for a in t.block.accesses))
            ):
                self.host(t, False, op, node)
            else:
                self.launch([t], [], op, node, t.lib)
                self.sync_host(self.cur(t.lib), node, op)

    def returned(self, v: V, node: Node) -> None:
        """An entry gives its caller a tensor of a stream of its own, who uses it on the current stream.

        That is so where it is recorded there, or where the current stream has waited for it.
        """
        given = self.blocks_in(v)
        for block, _, reading in self.views:
            if block.uid in given:
                reading.notes |= {"caller"}  # who reads it is not in sight
        caller = self.m.ambient["torch"]
        for t in self.tensors_in(v):
            b = t.block
            if (
                b.place != "cuda"
                or b.alloc is None
                or b.alloc.origin != "new"
                or b.lib != "torch"
                or self.cur() is not caller
            ):
                continue
            ready = all(self.order.covers(caller, a) for a in b.accesses)
            elsewhere = b.recorded - {b.alloc}  # on its own stream it says nothing (TL-03)
            if (ready and not elsewhere) or (caller in b.recorded and not self.recorded_since(b)):
                self.launch([t], [], "use by the caller", node, strong=False, notes=frozenset({"consumer"}))
        self.passed_on(v, node)

    def passed_on(self, v: V, node: Node) -> bool:
        """Somebody is given what a stream has made and an event to wait for: who waits, uses it, and lets go of it.

        Not where the file has a function that records what it is given on streams: that is to be called then.

        Returns:
            Whether something is used.
        """
        user = self.m.ambient["torch"]
        reaches = [e.snapshot for e in self.events_in(v) if e.snapshot is not None and e.of is not user]
        if not reaches or self.m.in_thread or self.m.capture is not None:
            return False
        here = self.m.frame.function
        if any(f.records_given for f in self.m.frame.module.all_functions if f is not here):
            return False
        used = False
        for t in self.tensors_in(v):
            b = t.block
            if b.place != "cuda" or not b.fresh or b.alloc is None or b.alloc is user:
                continue
            if b.recorded - {b.alloc}:
                continue
            ready = next((r for r in reaches if all(map(r.covers, b.accesses))), None)
            if ready is None or b.alloc.origin not in ("new", "sym", "elem"):
                continue
            self.order.learn(user, ready)
            self.launch(
                [t], [], "use by the consumer", node, strong=False, notes=frozenset({"consumer"}), t=user
            )
            used = True
        return used

    def events_in(self, v: V, depth: int = 0) -> list[Event]:
        """The events that a value holds."""
        if isinstance(v, Event):
            return [v]
        return [e for x in (contents(v) if depth < 3 else ()) for e in self.events_in(x, depth + 1)]

    def may_wait_for(self, v: V, node: Node) -> None:
        """The caller of an entry may wait for the events and works that it is given, before it calls again.

        What it allocates until then takes what the entry has let go of.
        """
        if self.freed and not self.m.quiet and any(e.snapshot is not None for e in self.events_in(v)):
            self.allocated(self.m.ambient["torch"], node, ("later",))
        for x in v.items if isinstance(v, Seq) else (v,):
            known = x.snapshot if isinstance(x, (Event, Work)) else None
            if known is not None:
                self.order.learn(self.order.host, known)

    def handed_out(self, v: V, node: Node) -> None:
        """A generator gives a value to an unseen consumer, which uses it on the current stream."""
        for t in self.tensors_in(v):
            if t.block.place not in HOSTS:
                self.launch(
                    [t],
                    [],
                    "use by the consumer",
                    node,
                    t.lib,
                    strong=False,
                    notes=frozenset({"consumer"}),
                )
