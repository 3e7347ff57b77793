"""Modules: what is called itself, and where its parameters are."""

from __future__ import annotations

from streamsafe.apis import names as apis

from ..program import Block
from ..source import Class
from ..values import (
    Const,
    Obj,
    Sym,
    Tensor,
    V,
)
from .path import Args, Kwargs, Node
from .state import HOSTS
from .unknown import Unknown

CALLED = ("forward", "__call__", "generate")
"""Methods of what is called itself."""


class Modules(Unknown):
    """Modules: what is called itself, and where its parameters are."""

    def module_call(self, callee: V, name: str, args: Args, kwargs: Kwargs, node: Node) -> V:
        """Something that is called, a model perhaps."""
        given = self.nets_of(*args, *kwargs.values())
        owner = self.m.owners.get(getattr(callee, "vn", 0))
        mine = self.nets_of(owner[0]) if owner is not None else frozenset()
        return self.computed_by(
            self.called(callee, name, args, kwargs, node), given | (mine or {("net", self.m.key(callee))})
        )

    def called(self, callee: V, name: str, args: Args, kwargs: Kwargs, node: Node) -> V:
        values = [*args, *kwargs.values()]
        self.module_in_capture(callee, node)
        self.module_runs(callee)
        pb = self.module_blocks.get(self.m.key(callee))
        given = [t for v in values for t in self.tensors_in(v)]
        if pb is not None and pb.place in HOSTS and not any(self.known_on_device(t) for t in given):
            for t in (Tensor(pb), *given):
                if t.block.place in HOSTS:
                    self.host(t, False, f"{name}()", node)
            return Tensor(Block("pageable"))  # the host computes it
        if isinstance(callee, Sym) and callee.hint == "module":
            if pb is not None and pb.accesses:
                self.launch([Tensor(pb)], [], f"{name}()", node)
            values = [
                self.tensor(v) if isinstance(v, Sym) and v.hint not in ("index", "host", "getter") else v
                for v in values
            ]
            before = len(self.m.launches)
            out = self.compute(values, node, f"{name}()")
            if self.m.key(callee) in self.moved_modules:
                # it is on the device, and so is what it takes
                self.m.launches[before:] = [x._replace(assumed=()) for x in self.m.launches[before:]]
            if name in apis.GENERATING_METHODS:
                self.sync_quiet()  # it reads what it has made
            return out
        if pb is not None and pb.accesses:
            self.launch([Tensor(pb)], [], f"{name}()", node, notes=frozenset({"model"}))
        kind = self.kind_of_call(callee, name)
        if kind == "model" and self.off_the_callers():
            for v in values:  # what may be a tensor is one
                if isinstance(v, Sym) and v.vn in self.maybe:
                    self.tensor(v)
        return self.unmodelled(name, callee, args, kwargs, node, kind)

    def kind_of_call(self, callee: V, name: str) -> str:
        """What a call of something unknown is: of what is called itself, as models are, or a method of something."""
        m = self.m
        if (
            name in CALLED
            or getattr(callee, "hint", "") == "module"
            or self.m.key(callee) in self.module_blocks
        ):
            return "model"
        owner = m.owners.get(getattr(callee, "vn", 0))
        if owner is None:
            named = isinstance(callee, Sym) and callee.hint not in ("getter", "imported")
            return "model" if named else "helper"
        if isinstance(owner[0], Obj):
            return "model" if self.attribute_of(owner[0].cls, owner[1]) else "helper"
        return (
            "model"
            if getattr(owner[0], "hint", "") == "module" or m.key(owner[0]) in self.module_blocks
            else "helper"
        )

    def attribute_of(self, cls: Class, name: str) -> bool:
        """Whether a name of an object is an attribute: what it does not set and its bases may have may be a method."""
        got = self.attributes.setdefault(cls, {})
        if "" not in got:
            got[""] = cls.is_module() or all(
                c.module.resolve_class(b) or b in ("object", "abc.ABC") for c in cls.mro() for b in c.bases
            )
        if got[""]:
            return True
        if name not in got:
            got[name] = any(name in f.stores for c in cls.mro() for f in c.methods.values())
        return got[name]

    def move_module(self, r: Sym, name: str, args: Args, kwargs: Kwargs, n: Node) -> V:
        """``x.to(...)`` whose value nobody takes: x is a module, whose parameters go elsewhere."""
        known = self.module_blocks
        k = self.m.key(r)
        old = known.get(k)
        w = (
            {
                self.where(v)
                for v in (*args[:2], *(v for kk, v in kwargs.items() if kk in ("device", "dtype")))
            }
            - {""}
            if name == "to"
            else {"cpu" if name == "cpu" else "cuda"}
        )
        non = self.flag(kwargs.get("non_blocking")) or any(
            isinstance(v, Const) and v.value is True for v in args[1:]
        )
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
            self.moved_modules |= {key for _, key in self.nets_under(r)}
            known[k] = new = Block("cuda", "parameters", self.cur(), self.m.site(n))
            if old is not None and old.place in HOSTS:
                self.launch([Tensor(old)] if non else [], [Tensor(new)], "to", n, kind="h2d" if non else "")
            else:
                self.launch([], [Tensor(new)], "to", n)
            if not non:
                self.sync_quiet()
        return r

    def moved(self, o: Obj, depth: int) -> None:
        """A module goes to the device, and with it what it holds."""
        for k, v in list(o.fields.items()):
            if (
                isinstance(v, Tensor)
                and v.block.place in HOSTS
                and not v.numpy
                and "registered" in v.block.notes
            ):
                b = Block("cuda", v.block.text or k, self.cur(), v.block.home, fresh=True)
                o.fields[k] = Tensor(b)
            elif isinstance(v, Obj) and depth < 3:
                self.moved(v, depth + 1)

    def is_test_case(self, cls: Class) -> bool:
        return any(b.endswith("TestCase") for c in cls.mro() for b in c.bases)
