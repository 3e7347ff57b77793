"""What is computed, and what indices and slices pick."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import Any

from streamsafe.apis import names as apis

from ..program import Block
from ..values import (
    NONE,
    Clock,
    Const,
    Seq,
    Sym,
    Tensor,
    V,
)
from .evidence import NUMBER_OPERATORS, number_names, operands
from .path import Node, Notes, Part
from .state import HOSTS, Made
from .timing import Timing


class Tensors(Timing):
    """What is computed, and what indices and slices pick."""

    def compute(
        self,
        values: list[V],
        node: Node,
        op: str,
        lib: str | None = None,
        strong: bool = True,
        write: Sequence[Tensor] = (),
        fresh: bool = True,
        notes: Notes = frozenset(),
    ) -> V:
        given = [t for v in values for t in self.tensors_in(v)] if self.m.capture is not None else []
        out = self.computed_by(
            self._computed(values, node, op, lib, strong, write, fresh, notes), self.nets_of(*values)
        )
        if given and isinstance(out, Tensor) and fresh and all("possible" in t.block.notes for t in given):
            out.block.notes.add("possible")
        if isinstance(out, Tensor) and fresh:
            first = values[0] if values else None
            out.mask = (
                op == "compare"
                or op in apis.MASKS
                or (
                    op in ("arithmetic", "where", "view", "clone", "to")
                    and isinstance(first, Tensor)
                    and first.mask
                    and not any(isinstance(v, Tensor) and not v.mask for v in values)
                )
            )
        return out

    def _computed(
        self,
        values: list[V],
        node: Node,
        op: str,
        lib: str | None,
        strong: bool,
        write: Sequence[Tensor],
        fresh: bool,
        notes: Notes,
    ) -> V:
        """An operator: on the host where all that it is given is there, else on the current stream."""
        tensors = [t for v in values for t in self.tensors_in(v)]
        if not (tensors and all(t.block.place in HOSTS for t in tensors)):
            tensors += self.captured_arguments(values)
        syms = [
            v
            for v in values
            if isinstance(v, Sym) and v.hint not in ("index", "host") and not self.tensorish(v)
        ]
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
            if any("of_device" in t.block.notes for t in tensors):
                out.block.notes.add("of_device")
            if syms:
                out.block.notes.add("beside unknown")
            return out
        told = lib == "cupy"  # a function of CuPy's takes no other arrays
        lib = lib or self.lib_of(values)
        device = [t for t in tensors if t.block.place not in HOSTS]
        for t in tensors:
            if t.block.place in HOSTS:
                self.host(t, False, op, node)
        at, seq = self.launch(
            device,
            [t for t in write if t.block.place not in HOSTS],
            op,
            node,
            lib,
            strong=strong and bool(all_),
            notes=notes,
        )
        if not fresh:
            return write[0] if write else NONE
        if not all_ and not told:
            return self.unknown_result(node, op, at, seq, lib=lib)
        out = self.new(node, "cuda", lib, op, True, at=at, seq=seq, notes=notes)
        if lib == "torch" and all(t.block.place == "unknown" or "guessed" in t.block.notes for t in all_):
            out.block.notes.add("guessed")
            if any("loaded" in t.block.notes for t in all_):
                out.block.notes.add("loaded")
        return out

    def unsure(self, t: Tensor) -> frozenset[Any]:
        """What has to be assumed for something to lie on the device.

        Nothing where it was made there, or is used on a stream of the program's own.
        """
        b = t.block
        if (b.place == "cuda" and "guessed" not in b.notes) or b.lib == "cupy" or self.off_the_callers():
            return frozenset()
        if any(a.timeline.origin not in ("ambient", "null", "host") for a in b.accesses):
            return frozenset()
        return frozenset({"loaded" if "loaded" in b.notes else "place"})

    def view(self, t: Tensor, part: Part) -> Tensor:
        v = self.view_(t, part)
        v.stamp = t.stamp
        return v

    def view_(self, t: Tensor, part: Part) -> Tensor:
        if any(p == ("s", None, None) or p == ("i", Ellipsis) or p == ("i", None) for p in part):
            if all(p in (("s", None, None), ("i", Ellipsis), ("i", None)) for p in part):
                return t.of(t.part)
        if t.part is None:
            return t.of(part)
        return t.of(t.part if t.part == part else (*t.part, ("sub",), *part))

    def linear(self, v: V) -> tuple[dict[Any, int], int]:
        """A number as a sum of unknowns and a constant."""
        if isinstance(v, Const) and isinstance(v.value, int):
            return {}, v.value
        k = self.m.key(v)
        return self.sums.get(k) or ({k: 1}, 0)

    def plus(self, a: V, b: V) -> V:
        """The sum of two numbers."""
        (x, c), (y, d) = self.linear(a), self.linear(b)
        total = {k: n for k in {*x, *y} if (n := x.get(k, 0) + y.get(k, 0))}
        if not total:
            return Const(c + d)
        return self.m.sym(self.m.vn(self.sum_key(total, c + d)), "<number>", "index")

    def number_key(self, op: ast.operator, a: V, b: V) -> Any:
        """How a number is got that two others give: sums of the same unknowns are the same."""
        (x, c), (y, d) = self.linear(a), self.linear(b)
        if isinstance(op, (ast.Add, ast.Sub)):
            sign = 1 if isinstance(op, ast.Add) else -1
            total = {k: n for k in {*x, *y} if (n := x.get(k, 0) + sign * y.get(k, 0))}
            return self.sum_key(total, c + sign * d)
        if isinstance(op, ast.Mult) and (not x or not y):
            factor, (z, e) = (c, (y, d)) if not x else (d, (x, c))
            return self.sum_key({k: n * factor for k, n in z.items() if factor}, e * factor)
        return ("bin", type(op).__name__, self.m.key(a), self.m.key(b))

    def sum_key(self, total: dict[Any, int], constant: int) -> Any:
        """The key of a sum, of which it is remembered what it is the sum of."""
        key = ("sum", tuple(sorted(total.items(), key=repr)), constant)
        self.sums[("v", self.m.vn(key))] = (total, constant)
        return key

    def bound(self, n: ast.expr | None) -> Any:
        if n is None:
            return None
        v = self.m.eval(n)
        if isinstance(v, Const) and isinstance(v.value, int):
            return v.value
        if isinstance(v, Tensor):
            self.host_value(v, n, "a bound of a slice")
        return self.term(*self.linear(v))

    def term(self, unknowns: dict[Any, int], constant: int) -> Any:
        """A number as a bound of a part."""
        return ("lin", tuple(sorted(unknowns.items(), key=repr)), constant) if unknowns else constant

    def slice_part(self, n: ast.Slice) -> Any:
        low, high = self.bound(n.lower), self.bound(n.upper)
        step = self.m.eval(n.step) if n.step is not None else None
        if not (isinstance(step, Const) and isinstance(step.value, int)) or step.value in (0, 1):
            return ("s", low, high)
        if step.value > 0:
            return ("s", low, high, step.value)
        first = high + 1 if isinstance(high, int) and high >= 0 else None
        last = low + 1 if isinstance(low, int) and low >= 0 else None
        return ("s", first, last)  # backwards

    def part_of(self, node: ast.expr) -> Any:
        def one(n: ast.expr) -> Any:
            if isinstance(n, ast.Slice):
                return self.slice_part(n)
            v = self.m.eval(n)
            if isinstance(v, Const) and (isinstance(v.value, int) or v.value is None or v.value is Ellipsis):
                return ("i", v.value)
            if isinstance(v, Tensor) or self.tensorish(v):
                return ("m", self.tensor(v))
            if self.m.capture is None and (
                (isinstance(v, Seq) and v.kind == "list") or (isinstance(v, Sym) and v.vn in self.m.listed)
            ):
                return ("m", Tensor(Block("pageable")))  # it picks a copy
            unknowns, constant = self.linear(v)
            if len(unknowns) == 1 and list(unknowns.values()) == [1] and not constant:
                return ("i", next(iter(unknowns)))
            return ("i", self.term(unknowns, constant))

        if isinstance(node, ast.Name):
            known = self.m.eval(node)
            if isinstance(known, Sym) and known.vn in self.indices:
                return self.indices[known.vn]
        parts = [one(e) for e in node.elts] if isinstance(node, ast.Tuple) else [one(node)]
        return tuple(parts)

    def index_of(self, node: ast.expr) -> V:
        """An index as a value."""
        part = self.part_of(node)
        s = self.m.sym(self.m.vn(("index", part)), "<index>", "index")
        self.indices[s.vn] = part
        return s

    def index(self, t: Tensor, node: ast.expr, n: Node) -> V:
        part = self.part_of(node)
        masks = [p[1] for p in part if p[0] == "m"]
        if masks:
            device = t.block.place not in HOSTS and not t.numpy
            out = self.compute([t, *(m for m in masks if m.block.place not in HOSTS)], n, "indexing")
            if isinstance(out, Tensor) and t.block.uid in self.vn_of:
                self.vn_of[out.block.uid] = self.vn_of[t.block.uid]  # it lies where that lies
            if device and any(m.mask and m.block.place not in HOSTS for m in masks):
                self.sync_host(self.cur(t.lib), n, "indexing by a mask")  # GM-mask_index
            elif (
                t.block.place == "cuda"
                and self.m.capture is not None
                and any(m.block.place in HOSTS for m in masks)
            ):
                self.violation("SS401", n, "indexing by a tensor of the host")
            return out
        if self.m.capture is not None and isinstance(node, ast.Name):
            v = self.m.eval(node)
            if (
                isinstance(v, Seq)
                and v.kind == "list"
                and t.block.place not in HOSTS
                and v.items
                and not isinstance(v.items[0], Sym)
            ):
                self.violation("SS401", n, "indexing by a list")
        return self.view(t, part)

    def slice_of(self, owner: Sym, node: ast.Slice, n: Node) -> V:
        part = (("s", self.bound(node.lower), self.bound(node.upper)),)
        s = self.m.sym(self.m.vn(("slice", owner.vn, part)), f"{owner.text}[...]", owner.hint)
        if owner.block is not None:
            return self.view(self.tensor(owner), part)
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
                    return (
                        Const(x * y)
                        if not (isinstance(x, str) or isinstance(y, str))
                        else self.m.fresh("<text>", "host")
                    )
                if op is ast.Mod and not isinstance(x, str):
                    return Const(x % y)
                if op is ast.FloorDiv:
                    return Const(x // y)
                if op is ast.BitXor:
                    return Const(x ^ y)
                if op is ast.BitAnd:
                    return Const(x & y)
                if op is ast.BitOr:
                    return Const(x | y)
                if op is ast.LShift and y <= 64:
                    return Const(x << y)
                if op is ast.RShift:
                    return Const(x >> y)
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
            product = isinstance(node.op, ast.MatMult)
            return self.compute([a, b], node, "matmul" if product else "arithmetic")
        if isinstance(node.op, ast.Add) and isinstance(a, Seq) and isinstance(b, Seq):
            return Seq([*a.items, *b.items], a.kind, a.more or b.more)
        s, n = (a, b) if isinstance(a, Seq) else (b, a)
        if isinstance(node.op, ast.Mult) and isinstance(s, Seq):
            if isinstance(n, Const) and isinstance(n.value, int) and n.value <= 8:
                return Seq(list(s.items) * n.value, s.kind)
            return Seq(list(s.items) * 2, s.kind, True)
        captured = self.captured_arithmetic([a, b], node)
        if captured is not None:
            return captured
        if isinstance(node.op, (ast.Mod, ast.FloorDiv, ast.Div)) and isinstance(b, Sym):
            self.m.conds.setdefault(("truth", self.m.key(b)), True)  # it divides, so it is not 0
        key = self.number_key(node.op, a, b)
        if key[0] == "sum" and not key[2] and len(key[1]) == 1 and key[1][0][1] == 1:
            same = self.m.numbers.syms.get(key[1][0][0][1]) if key[1][0][0][0] == "v" else None
            if same is not None and same.hint in ("index", "host", "getter"):
                return same
        unknowns, constant = self.linear(a)
        if isinstance(node.op, ast.Mod) and list(unknowns.values()) == [1] and not constant:
            if self.m.numbers.less(self.m.key(a), self.m.key(b)):
                return a  # a number in a ring: it counts from 0
        if isinstance(node.op, ast.Mod) and isinstance(a, Const) and isinstance(b, Sym):
            self.m.turns[("v", self.m.vn(key))] = (a.value, self.m.key(b))
        hint = (
            "index"
            if any(isinstance(v, Const) or (isinstance(v, Sym) and v.hint == "index") for v in (a, b))
            else ""
        )
        if isinstance(a, Const) and isinstance(a.value, str):
            hint = "host"
        if (
            any(isinstance(v, Sym) and v.hint in ("param", "attr", "element", "result") for v in (a, b))
            and not any(isinstance(v, Sym) and v.hint in ("index", "host", "getter") for v in (a, b))
            and self.m.capture is None
        ):
            if self.used_as_number(node):
                return self.m.sym(self.m.vn(key), "<number>", "index")
            if self.made_current_here() and not isinstance(node.op, NUMBER_OPERATORS):
                return self.compute(
                    [self.tensor(v) if isinstance(v, Sym) else v for v in (a, b)], node, "arithmetic"
                )
            s = self.m.sym(self.m.vn((*key, len(self.m.vns))), "<number>", "result")
            self.m.equal[s.vn] = ("v", self.m.vn(key))
            t = self.cur()
            seq, at = self.tick(), self.order.enqueue(t)
            self.maybe[s.vn] = Made(t, at, self.m.site(node), "arithmetic", seq, "unmodelled", t.last)
            self.allocated(t, node, ("unmodelled",))
            return s
        return self.m.sym(self.m.vn(key), "<number>", hint)

    def used_as_number(self, node: ast.AST) -> bool:
        """Whether the function uses a name of an expression as a number."""
        function = self.m.frame.function
        names = number_names(function.node) if function is not None else frozenset()
        return not names.isdisjoint(operands(node))

    def unary(self, v: V, node: Node) -> V:
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
        if isinstance(target, Tensor) or (isinstance(target, Sym) and target.block is not None):
            t = self.tensor(target)
            self.compute([t, value], s, "arithmetic", write=[t], fresh=False)
            return target
        if self.tensorish(value):
            return self.compute([target, value], s, "arithmetic")
        if self.captured_arithmetic([target, value], s, [target]) is not None:
            return target
        number = self.m.vn(("aug", type(s.op).__name__, self.m.key(target), self.m.key(value)))
        if isinstance(s.op, ast.BitOr):
            self.m.joins["v", number] = (self.m.key(target), self.m.key(value))
        return self.m.sym(
            number,
            "<number>",
            getattr(target, "hint", "") or "index",
        )
