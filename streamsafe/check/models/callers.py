"""What the caller of an entry has done to what it gives, and does with what it gets."""

from __future__ import annotations

from ..program import Access, Block, Hazard, Timeline, distinct
from ..values import (
    NONE,
    V,
)
from .state import State


class Callers(State):
    """What the caller of an entry has done to what it gives, and does with what it gets."""

    def is_on_device(self, block: Block) -> bool | None:
        """What the conditions of the path say of where something lies; None: nothing."""
        vns, conds = self.m.vns, self.m.conds
        of = self.vn_of.get(block.uid, 0)
        for number in (("attr", of, "is_cuda"), ("meta", block.uid, "is_cuda")):
            told = conds.get(("truth", ("v", vns.get(number))))
            if told is not None:
                return bool(told)
        kind = vns.get(("attr", vns.get(("attr", of, "device")), "type"))
        for name in ("cuda", "cpu"):
            told = conds.get(("eq", ("v", kind), ("c", "str", name)))
            if told is not None:
                return bool(told) == (name == "cuda")
        return None

    def said_on_device(self, block: Block) -> bool:
        """Whether the path says of something unknown that it is on the device."""
        if block.place != "unknown":
            return bool(block.place == "cuda")
        vns, conds = self.m.vns, self.m.conds
        kind = vns.get(("attr", vns.get(("attr", block.given, "device")), "type"))
        return bool(
            conds.get(("eq", ("v", kind), ("c", "str", "cuda")))
            or conds.get(("truth", ("v", vns.get(("attr", block.given, "is_cuda")))))
        )

    def unordered_with_caller(self, block: Block, a: Access) -> None:
        """A stream uses what the caller has given, and nothing can have made it wait for what the caller did to it."""
        if not self.free_of_waits(a.timeline):
            return
        if a.kind == "h2d" or (
            a.kind != "d2h"
            and a.op in ("to", "copy_", "assignment", "arithmetic")
            and not (self.said_on_device(block) or "declared" in block.notes)
        ):
            return
        self.m.hazards.append(self.caller_hazard(a, block))

    def waited_for_default(self, block: Block, a: Access) -> None:
        """A stream has waited for the default stream, where what it uses is of the current one."""
        site, count = self.only_default.pop(a.timeline)
        current = self.m.ambient["torch"]
        if any(w is a.timeline and of is current for w, of, *_ in self.order.waits[count:]) or (
            site[0] is not self.m.frame.module and not any(f.module is site[0] for f in self.m.frames)
        ):
            return
        first = Access(current, 0, True, None, block.home, "work of the current stream")
        self.m.hazards.append(Hazard("SS103", first, a, block, ("default",), wait=site))

    def free_of_waits(self, t: Timeline) -> bool:
        """Whether a stream of the program knows nothing of what the caller has done."""
        order = self.order
        if (
            t.origin != "new"
            or t.blocking
            or t.lib != "torch"
            or self.m.quiet
            or not order.called
            or order.known(t).get(order.caller, 0) >= order.called
        ):
            return False
        order.learn(t, order.known(order.host))
        if order.known(t).get(order.caller, 0) >= order.called or self.capturing(t) is not None:
            return False
        return t.born > order.began or not any(w is t for w, *_ in order.waits)

    def caller_hazard(self, a: Access, block: Block | None) -> Hazard:
        first = Access(self.m.ambient["torch"], 0, True, None, None, "work of the caller")
        assumed = [
            x for x in self.assumed(a) if x != "model"
        ]  # what is called under a stream of its own works there
        h = Hazard("SS102" if a.write else "SS101", first, a, block, (*assumed, "caller"))
        h.notes = [("the stream", a.timeline.site)]
        if a.timeline.born <= self.order.began:
            h.never = a.timeline.site
        return h

    def lent(self, result: V = NONE) -> None:
        """At the end of an entry: memory that it was lent was used on a stream on which it is not recorded.

        An object holds it, and others that the object holds are recorded there; or what was made of it is, on its own
        stream, which says nothing.
        """
        siblings = self.siblings
        own, self.own = self.own, []
        for block in own:
            alloc = self.m.ambient["torch"]
            for a in block.accesses:
                t = a.timeline
                if (
                    t is alloc
                    or t is self.order.host
                    or t in block.recorded
                    or a.kind == "collective"
                    or distinct(t, alloc) not in ("yes", "likely")
                    or self.order.covers(alloc, a)
                    or self.order.covers(self.order.host, a)
                ):
                    continue
                at = Access(
                    t, a.at, a.write, a.part, block.own, "record_stream() of its own stream", call=a.call
                )
                h = Hazard(
                    "SS201",
                    Access(alloc, 0, True, None, block.home, "allocation"),
                    at,
                    block,
                    self.assumed(a) or ("release",),
                )
                h.notes = [("used", a.site)]
                self.m.hazards.append(h)
                break
        copied, self.copied = self.copied, []
        for block, a in copied:
            amb = self.m.ambient["torch"]
            if (
                a.timeline in block.recorded
                or self.order.covers(amb, a)
                or self.order.covers(self.order.host, a)
                or block.uid in self.m.held([result])
            ):
                continue
            if a.part is None and (a.kind == "d2h" or self.said_on_device(block)):
                self._given_again(block, a)
        for block, a in self.lent_uses:
            meant = (block.owner, a.timeline) in siblings or (
                (a.site, a.timeline) in self.in_vain and a.kind != "h2d"
            )
            if meant and a.timeline not in block.recorded:
                amb = self.m.ambient["torch"]
                if not self.order.covers(amb, a) and not self.order.covers(self.order.host, a):
                    self._given_again(block, a)

    def _given_again(self, block: Block, a: Access) -> None:
        """The caller lets go of memory, which the stream of an access may still use."""
        taken = Access(self.m.ambient["torch"], 0, True, None, None, "allocation")
        self.m.hazards.append(Hazard("SS201", taken, a, block, ("release", *self.assumed(a))))

    def idle_wait(self, since: int) -> None:
        """A method ends by a wait for a stream with nothing to do, while its other stream has work: the wrong one."""
        waits = self.order.waits[since:]
        if not waits or self.order.idle != len(self.order.waits) - 1:
            return
        caller = self.m.ambient["torch"]
        waiter, idle, site, *_ = waits[-1]
        if waiter is not caller or idle is None or idle.origin != "new":
            return
        mine = [x for x in self.m.launches if x.seq > self.m.began]
        busy = mine[-1].timeline if mine else None
        if (
            busy is None
            or busy.origin != "new"
            or busy is idle
            or self.order.known(caller).get(busy, 0) >= mine[-1].at
        ):
            return
        last = mine[-1]
        self.m.hazards.append(
            Hazard(
                "SS103",
                Access(last.timeline, last.at, True, None, last.site, "launch"),
                Access(caller, 0, False, None, site, "wait"),
                None,
                ("intended",),
            )
        )
