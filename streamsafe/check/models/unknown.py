"""Calls whose code is not followed."""

from __future__ import annotations

from functools import lru_cache

from streamsafe.apis import names as apis

from ..source import SYNCING, Function
from ..values import (
    NONE,
    Event,
    Func,
    Graph,
    Map,
    Seq,
    Stream,
    Sym,
    Tensor,
    V,
    Work,
)
from .containers import Containers
from .path import Args, Kwargs, Node
from .state import HOSTS

FILLERS = {
    "readinto": 0,
    "recv_into": 0,
    "recvfrom_into": 0,
    "Recv": 0,
    "Irecv": 0,
    "preadv": 1,
    "readv": 1,
    "fromfile_into": 0,
}
"""The position of the argument that the host writes, by method."""
LOGGING = frozenset("debug info warning error critical log exception".split())
"""Methods of loggers. They are given text: nothing waits."""
ORDERING_WORDS = ("sync", "wait", "barrier", "join", "flush")
"""A call whose name has one of these words may wait for everything."""
GETTERS = ("get_", "is_", "has_", "current_", "default_", "use_", "should_", "can_")
GETTER_ENDS = ("_stream", "_rank", "_size", "_group", "_enabled", "_device", "_id", "_ctx", "_context")


@lru_cache(maxsize=4096)
def named_for_order(name: str) -> bool:
    """Whether a function's name says that it waits."""
    return any(word in name for word in ORDERING_WORDS)


class Unknown(Containers):
    """Calls whose code is not followed."""

    def opaque(self, f: Func, args: Args, kwargs: Kwargs, node: Node, unseen: bool = False) -> V:
        """Call a function of the tree that uses no streams, or that is too deep to follow."""
        fn = f.function
        if unseen:
            self.everything(node)
            given = self.unknown_result(node, fn.name)
            self.m.roots.append(given)  # it may keep or record its result
            return given
        result = self.unmodelled(
            fn.name, None, args, kwargs, node, "body", harmless=self.m.timing and self.harmless(fn)
        )
        if fn.words & SYNCING:
            self.m.uncertain.append(self.tick())
            if self.m.capture is None:
                self.order.wait(self.order.host, self.order.snapshot(self.cur()))
        return result

    def harmless(self, fn: Function, depth: int = 0) -> bool:
        """Whether a function of the tree never waits, as far as the functions that it calls are known."""
        if not fn.words.isdisjoint(SYNCING) or depth > 3 or fn.abstract:
            return False
        own, _, plain = fn.calls()
        called = [fn.module.functions[w] for w in plain if w in fn.module.functions]
        if fn.cls is not None:
            called += [f for f in (fn.cls.method(w) for w in own) if f is not None]
        return all(f is fn or self.harmless(f, depth + 1) for f in called)

    def unmodelled(
        self,
        name: str,
        receiver: V | None,
        args: Args,
        kwargs: Kwargs,
        node: Node,
        kind: str = "helper",
        harmless: bool = False,
    ) -> V:
        """Call what is not followed: it reads its arguments on the current stream, and returns a new value."""
        if self.gives_host_function(name, args, kwargs, node):
            return NONE
        values = [*args, *kwargs.values()]
        m = self.m
        if kind == "model":
            self.called_models.append(self.tick())
        given: list[V] = [
            v
            for v in values
            if isinstance(v, (Stream, Event, Work, Graph)) or (isinstance(v, Sym) and v.vn in self.timelines)
        ]
        inner = [
            x
            for v in values
            if isinstance(v, (Seq, Map))
            for x in (v.items if isinstance(v, Seq) else v.items.values())
        ]
        given += [v for v in inner if isinstance(v, (Stream, Event, Work))]
        if given:
            self.everything(node)
            for v in given:
                if isinstance(v, Event):
                    self.m.may_be_recorded(v)  # by the callee
        for v in values:
            if isinstance(v, Sym):
                self.signals.pop(v.vn, None)  # the callee may set it, too
        tensors = [t for v in values for t in self.tensors_in(v)]
        pointed = [self.pointers[v.vn] for v in values if isinstance(v, Sym) and v.vn in self.pointers]
        if m.captured and m.capture is None:
            m.roots.extend(values)  # the callee may keep its arguments
        if name in ("print", "save", "dump", "dumps", *apis.WRITING_DOWN):
            for v in values:
                self.host_value(v, node, f"{name}()")
            return NONE
        tensors += self.captured_arguments(values)
        if named_for_order(name) and "async" not in name and m.capture is None:
            self.everything(node)
        host = [t for t in tensors if t.block.place in HOSTS or t.numpy]
        device = [t for t in tensors if t not in host]
        lib = self.lib_of(values)
        filled = (
            kwargs.get("out")
            if "out" in kwargs
            else args[FILLERS[name]]
            if name in FILLERS and len(args) > FILLERS[name]
            else None
        )
        for t in self.tensors_in(filled) if filled is not None else ():
            if t.block.place in HOSTS or t.numpy:
                self.host(t, True, f"{name}()", node)
        for t in host:
            if any(a.kind == "d2h" for a in t.block.accesses):
                self.host(t, False, f"{name}()", node, frozenset({"unmodelled"}))
        if device:
            cuda = any(t.block.place == "cuda" for t in device)
            at, seq = self.launch(
                device,
                [],
                f"{name}()",
                node,
                lib,
                strong=cuda,
                notes=frozenset({kind, "entered"} if self.made_current_here() else {kind}),
            )
        else:
            at, seq = None, None
        pointed = [t for t in pointed if t.block.place not in HOSTS]
        if pointed:
            at, seq = self.launch(
                pointed, [], f"{name}()", node, lib, strong=False, notes=frozenset({"kernel"})
            )
        pure = name.startswith(GETTERS) or name.endswith(GETTER_ENDS)
        if pure and not tensors and not pointed:
            key = (
                "call",
                m.key(receiver) if receiver is not None else None,
                name,
                tuple(m.key(v) for v in args),
                tuple(sorted(kwargs)),
            )
            return m.sym(m.vn(key), f"{name}()", "getter")
        logged = name in LOGGING and all(
            not isinstance(v, Sym) or v.hint in ("host", "getter", "index") for v in values
        )
        whose = m.owners.get(receiver.vn, (receiver,))[0] if isinstance(receiver, Sym) else None
        harmless |= logged or (isinstance(whose, Sym) and whose.hint == "host")
        if not device and not harmless:
            m.uncertain.append(self.tick())
        if name in apis.GENERATING_METHODS:
            self.sync_quiet()  # generating reads each token on the host
        result = self.unknown_result(node, name, at, seq, computes=kind == "model", kind=kind, lib=lib)
        if any(self.known_on_device(t) for t in device):
            self.given_device.add(result.vn)
            if kind == "model":
                self.on_the_device.add(result.vn)
        if (
            m.capture is not None
            and result.block is not None
            and kind == "helper"
            and all("possible" in t.block.notes for t in device)
        ):
            result.block.notes.add("possible")
        for k, v in kwargs.items():
            if isinstance(v, (Sym, Tensor)):
                self.given[(result.vn, k)] = v  # `result.k` is the argument `k`
        return result
