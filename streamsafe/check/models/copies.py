"""Copies between host and device, between devices, and into parts of tensors."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from ..overlap import overlap
from ..program import Access, Block
from ..values import (
    HELD,
    NONE,
    Bound,
    Const,
    Func,
    Key,
    Map,
    Obj,
    Seq,
    Sym,
    Tensor,
    V,
)
from .path import Args, Kwargs, Node
from .state import HOSTS
from .tensors import Tensors

NOT_SURE = frozenset(("registered", "beside unknown"))
"""Marks of memory of the host that may be elsewhere: of a module that is moved, or computed with what is not known."""
CAPSULE = "a capsule"
"""What a tensor is called that was exported without a stream: who takes it waits for nothing."""


def picks_part(index: ast.expr) -> bool:
    """Whether an index is one that only tensors and arrays have, or lists for a range."""
    parts = index.elts if isinstance(index, ast.Tuple) else [index]
    return any(
        isinstance(p, ast.Slice) or (isinstance(p, ast.Constant) and p.value in (..., None)) for p in parts
    )


class Copies(Tensors):
    """Copies between host and device, between devices, and into parts of tensors."""

    def copy(
        self,
        dest: Tensor,
        source: V,
        non_blocking: bool,
        node: Node,
        more: Sequence[Tensor] = (),
        sure: bool = False,
    ) -> None:
        """dest.copy_(source)"""
        src = self.tensors_in(source)
        lib = self.lib_of((dest, source))
        if (
            not src
            and sure
            and (non_blocking or dest.block.place not in HOSTS)
            and isinstance(source, Sym)
            and source.hint not in ("index", "host")
        ):
            src = [self.tensor(source)]
        dp = "host" if dest.numpy else dest.block.place
        if not src:
            if dp in HOSTS:
                self.host(dest, True, "assignment", node)
            elif dp == "cuda" or dest.block.accesses or self.cur().origin != "ambient":
                self.launch(list(more), [dest], "assignment", node, lib)
            return
        s = src[0]
        if non_blocking and "cuda" in (s.block.place, dp):
            self.advise(dest if dp in HOSTS else s, node, "copy_")
        elif non_blocking and dp == "unknown" and s.block.place in HOSTS:
            self.advise(s, node, "copy_", ("place",))
        sp = "host" if s.numpy and s.block.place != "pinned" else s.block.place
        if dp in HOSTS and (sp in HOSTS):
            self.host(s, False, "copy", node)
            self.host(dest, True, "copy", node)
        elif dp in HOSTS:
            self.d2h(s, dest, non_blocking and dp != "pageable", node, lib)
        elif (
            sp == dp == "unknown"
            and any(a.kind == "d2h" and a.write for a in s.block.accesses)
            and not non_blocking
        ):
            self.host(s, False, "copy", node)
        elif sp in HOSTS:
            if (
                non_blocking
                and sp == "host"
                and not s.numpy
                and any(a.kind == "d2h" for a in s.block.accesses)
            ):
                self.launch(
                    list(more), [dest], "copy_", node, lib, "h2d"
                )  # pinned or not: both copies are of one stream, or both are waited for
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
            self.launch(
                [s, *more],
                [dest],
                "copy_",
                node,
                lib,
                "h2d"
                if non_blocking and sp == "unknown" and dp == "cuda"
                else "d2h"
                if non_blocking and dp == "unknown" and sp == "cuda"
                else "",
            )

    def advise(self, host: Tensor, node: Node, op: str, assumed: tuple[str, ...] = ()) -> None:
        """Advice on a copy that is asked not to block: with pageable memory it does (TM-03), and pinning costs."""
        block = host.block
        if block.place == "pinned" and block.pinned_by == (self.m.frame, self.m.at):
            self.violation("SS322", node, op, assumptions=assumed)
        elif block.place == "pageable" and not host.numpy and block.notes.isdisjoint(NOT_SURE):
            self.violation("SS321", node, op, assumptions=assumed)

    def peers(self, a: Block, b: Block) -> bool:
        """Whether two tensors are on two devices, as far as the path says it."""
        return a.device is not None and b.device is not None and a.device != b.device

    def peer_copy(self, s: Tensor, dest: Tensor, node: Node, lib: str) -> None:
        """A copy between two devices, on the source's current stream; the streams of both wait for each other."""
        cur = self.cur(lib)
        t = cur if cur.device in (None, s.block.device) else s.block.alloc or self.m.ambient[lib]
        for other in {cur, self.m.ambient[lib]} - {t}:
            self.order.learn(t, self.order.snapshot(other))
        self.launch([s], [dest], "copy_", node, lib, t=t)
        for other in {cur, self.m.ambient[lib]} - {t}:
            self.order.learn(other, self.order.snapshot(t))

    def d2h(
        self, s: Tensor, dest: Tensor, non_blocking: bool, node: Node, lib: str = "torch", made: bool = False
    ) -> None:
        """A copy to the host; a destination that is not contiguous, which waits (TM-17), is not told apart."""
        if self.m.capture is not None and not non_blocking:
            self.violation("SS401", node, "a copy to the host")
            return
        unsure = self.unsure(s) if made or dest.block.place != "pinned" else frozenset()
        if dest.block.place == "host" and not dest.numpy:
            unsure |= {"pinned"}
        if made:
            unsure |= {"moved"}  # into memory of its own: it is to be let go of where it lies
        self.copied_from[dest.block.uid] = s.block
        dest.block.notes.add("of_device")
        self.launch([s], [dest], "copy to the host", node, lib, "d2h", notes=unsure)
        if not non_blocking:
            self.sync_host(self.cur(lib), node, "a copy to the host")

    def to_host(self, args: Args, kwargs: Kwargs, n: Node) -> V:
        """cupy.asnumpy, x.get()"""
        src = self.tensors_in(args[0]) if args else []
        if not src:
            return Tensor(Block("pageable", ""), None, True)
        st = kwargs.get("stream") or (args[1] if len(args) > 1 else None)
        out = kwargs.get("out")
        blocking = kwargs.get("blocking")
        t = self.stream(st, "cupy") or self.cur("cupy")
        dest = (
            self.tensors_in(out)[0]
            if out is not None and self.tensors_in(out)
            else Tensor(Block("pageable", "", lib="cupy"), None, True)
        )
        # CS-14b, CS-14c: into memory that is not pinned it waits
        non = isinstance(blocking, Const) and blocking.value is False and dest.block.place != "pageable"
        if self.refused_in_capture(n):
            return Tensor(dest.block, dest.part, True)
        saved = self.m.current["cupy"]
        self.m.current["cupy"] = [*saved, t]
        try:
            self.d2h(src[0], dest, non, n, "cupy")
        finally:
            self.m.current["cupy"] = saved
        return Tensor(dest.block, dest.part, True)

    def refused_in_capture(self, n: Node) -> bool:
        """CuPy copies nothing between host and device while its current stream is captured (GP-05 to GP-07).

        Returns:
            Whether it is.
        """
        refused = self.capturing(self.cur("cupy")) is not None
        if refused:
            self.violation("SS401", n, "a copy between host and device")
        return refused

    def viewed(self, t: Tensor, n: Node) -> None:
        """An array of numpy shares what a copy may still fill: nothing is read here; who reads it must have waited."""
        for a in t.block.accesses:
            if (
                a.kind == "d2h"
                and overlap(a.part, t.part) == "yes"
                and not self.order.covers(self.order.host, a)
            ):
                self.views.append(
                    (
                        t.block,
                        a,
                        Access(
                            self.order.host,
                            0,
                            False,
                            t.part,
                            self.m.site(n),
                            "numpy()",
                            "",
                            frozenset(),
                            self.tick(),
                        ),
                    )
                )

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
            told = any(h.first is first and h.second.timeline is self.order.host for h in self.m.hazards)
            if block.uid not in held and not told:
                if block.uid in given:
                    second.notes = frozenset({"caller"})
                self.conflict(block, first, second)

    def capsule(self, t: Tensor) -> Tensor:
        """What is exported with no exchange of streams (CI-03d)."""
        t.block.shared = self.tick()
        t.block.notes.add("exported")
        given = t.of(t.part)
        given.text = CAPSULE
        return given

    def exchanged(self, v: V, n: Node) -> V:
        """DLPack: the stream that is named there waits for the current one; which one it is may not be known."""
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
        """What was moved to a device that is not known is on the host: only there it can be read like this."""
        block.place, block.alloc = "unknown", None
        for a in block.accesses:
            if a.write:
                a.kind = "d2h"
                a.notes |= {"target"}

    def to_cpu(self, args: Args, kwargs: Kwargs) -> bool:
        d = kwargs.get("device") or (args[0] if args else None)
        return self.where(d) == "cpu"

    def back_again(self, device: V | None) -> bool:
        """Whether a device is that of something that was copied to another one: one of the two is the host perhaps."""
        if not isinstance(device, Sym):
            return False
        owner = self.m.owners.get(device.vn)
        if owner is None or owner[1] != "device" or not isinstance(owner[0], Sym):
            return False
        if self.m.conds.get(("truth", ("v", self.m.vns.get(("attr", owner[0].vn, "is_cuda"))))):
            return False
        names = {
            self.m.key(device),
            ("v", self.m.vns.get(("attr", device.vn, "type"))),
            ("v", self.m.vns.get(("str", self.m.key(device)))),
        }
        if any(
            k[0] == "eq" and k[1] in names and (k[2] == ("c", "str", "cpu")) != value
            for k, value in self.m.conds.items()
        ):
            return False
        return bool(self.went_to.get(owner[0].vn, set()) - {self.m.key(device)})

    def set_data(self, owner: V, v: V, s: Node) -> None:
        if isinstance(owner, Sym):
            if self.m.graphs:
                self.parameter_data(owner, v, s)
            t = self.tensor(v)
            if t.block.place in (*HOSTS, "cuda"):
                where = Const("cuda" if t.block.place == "cuda" else "cpu")
                self.m.fields[(owner.vn, "device")] = where
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

    def attributes_of(self, o: Obj) -> Map:
        """The ``__dict__`` of an object, as it is now."""
        made = Map({}, self.m.vn(("dict", len(self.m.vns))))
        made.items.update({("c", "str", name): v for name, v in o.fields.items() if name != HELD})
        return made

    def set_attributes(self, owner: V, entries: dict[Key, V]) -> None:
        """The attributes of an object are set by their names, in its ``__dict__``."""
        for key, v in entries.items():
            if isinstance(owner, Obj) and key[0] == "c":
                owner.fields[str(key[2])] = v

    def set_item(self, owner: V, target: ast.Subscript, v: V, s: Node, aug: bool) -> None:
        if isinstance(owner, Seq):
            whole = isinstance(target.slice, ast.Slice) and target.slice.lower is target.slice.upper is None
            if whole and isinstance(v, Seq):
                replaced, owner.items = Seq(owner.items), list(v.items)
                self.m.maybe_released(replaced, s)
                return
            index = self.m.eval(target.slice) if not isinstance(target.slice, ast.Slice) else None
            if (
                isinstance(index, Const)
                and isinstance(index.value, int)
                and -len(owner.items) <= index.value < len(owner.items)
            ):
                former = owner.items[index.value]
                owner.items[index.value] = v
                self.m.maybe_released(former, s)
            elif index is not None and owner.items:
                number = index.value if isinstance(index, Const) and type(index.value) is int else None
                place = ("elem", self.m.uid(owner), self.m.key(index) if number is None else number)
                self.m.likes[place], self.m.like_of[place] = v, owner
            return
        if isinstance(owner, Obj):
            setter = owner.cls.method("__setitem__")
            if setter is not None:
                index = (
                    self.m.eval(target.slice)
                    if not isinstance(target.slice, ast.Slice)
                    else self.m.fresh("slice", "index")
                )
                self.m.call_function(Func(setter, owner), [index, v], {}, s)
            elif HELD in owner.fields:
                self.set_item(owner.fields[HELD], target, v, s, aug)
            return
        if isinstance(owner, Bound) and owner.name == "__dict__":
            self.set_attributes(owner.receiver, {self.m.key(self.m.eval(target.slice)): v})
            return
        if isinstance(owner, Map):
            index = self.m.eval(target.slice) if not isinstance(target.slice, ast.Slice) else NONE
            k = self.m.map_key(owner, index)
            before = owner.items.get(k)
            if self.m.graphs:
                if k[0] != "c" and all(key[0] == "c" for key in owner.items):
                    self.unknown_keys(owner, v, s)
                self.kept_beside([x for key, x in owner.items.items() if key != k], v, s, "an entry")
                v = self.stamp(v)
            owner.items[k] = v
            if before is not None:
                self.m.maybe_released(before, s)
            return
        named = isinstance(target.slice, ast.JoinedStr) or (
            isinstance(target.slice, ast.Constant) and isinstance(target.slice.value, str)
        )
        by_tensor = False  # only tensors and arrays are
        if (
            not isinstance(owner, Tensor)
            and isinstance(v, Sym | Tensor)
            and not named
            and isinstance(target.slice, ast.Name)
        ):
            key = self.m.eval(target.slice)
            named = isinstance(key, Const) and isinstance(key.value, str)
            by_tensor = isinstance(key, Tensor)
        if isinstance(owner, Tensor) and named:
            self.m.fields[
                (self.m.vn(("e", self.m.key(owner))), repr(self.m.key(self.m.eval(target.slice))))
            ] = v
            return
        if isinstance(owner, Tensor) or (
            isinstance(owner, Sym)
            and not named
            and not isinstance(v, Seq | Map | Obj)
            and (
                owner.block is not None
                or by_tensor
                or self.tensorish(owner)
                or (self.tensorish(v) and picks_part(target.slice))
            )
        ):
            t = self.tensor(owner)
            if aug:
                return
            part = self.part_of(target.slice)
            masks = [p[1] for p in part if p[0] == "m"]
            dest = t if masks else self.view(t, part)
            if masks and t.part is None:
                dest = t.of((("i", ("mask", masks[0].block.uid)),))
            self.copy(dest, v, False, s, masks)
            return
        if isinstance(owner, Sym):
            if not isinstance(target.slice, ast.Slice):
                index = self.m.eval(target.slice)
                self.m.conds[("in", self.m.key(index), self.m.key(owner))] = True
                self.m.fields[(self.m.vn(("e", self.m.key(owner))), repr(self.m.key(index)))] = v
                if isinstance(v, Sym):
                    self.parents.setdefault(v.vn, owner)
            else:
                self.bound(target.slice.lower), self.bound(target.slice.upper)
