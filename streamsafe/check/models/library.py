"""All models together: what the machine asks where the code of a call, an attribute or a context is not in sight."""

from __future__ import annotations

import ast
from typing import Any

from streamsafe.apis import names as apis

from ..program import Timeline
from ..source import dotted
from ..values import (
    HELD,
    NONE,
    Bound,
    Clock,
    Const,
    Ctx,
    Event,
    Func,
    Future,
    Gen,
    Generator,
    Graph,
    Graphed,
    Lazy,
    Lib,
    Map,
    Obj,
    Params,
    Partial,
    Range,
    Seq,
    Stream,
    Sym,
    Tensor,
    Thread,
    V,
    Work,
)
from . import autograd_functions, kernels, stream_functions
from .arrays import cupy_function, numpy_function
from .builtins import builtin
from .calls import FUNCTIONS, Call, models
from .captures import Captures
from .modules import Modules
from .path import Args, Kwargs, Node
from .standard_library import other_function, pool_method
from .state import HOSTS
from .tensor_methods import tensor_method
from .torch_functions import torch_function
from .unknown_methods import KEEPING, unknown_method
from .wrappers import wrapped

__all__ = ["Library", "autograd_functions", "stream_functions"]

IDENTITY = frozenset(
    """assertIs assertIsNot assertIsNone assertIsNotNone assertIsInstance assertNotIsInstance assertIn assertNotIn
    assertRaises assertRaisesRegex assertWarns assertLogs""".split()
)
"""What unittest asks of objects, not of their values."""
ASSERTED = frozenset(
    """assert_called assert_called_once assert_called_with assert_called_once_with assert_any_call assert_has_calls
    assert_not_called assert_awaited assert_awaited_once""".split()
)
"""What mocks are asked."""
MOVES = frozenset("to cuda cpu train eval half bfloat16 requires_grad_ float".split())
TRANSPOSED = frozenset("data T mT real imag".split())
VIEWS = apis.VIEW_ATTRIBUTES
TURNED = frozenset("T mT H mH".split())
"""Views whose elements do not lie in order."""
FIELDS = frozenset(("values", "indices"))
"""What several functions of torch give, as fields of one result; of a sparse tensor they are methods."""
METADATA = frozenset("shape dtype ndim is_cuda requires_grad itemsize".split())
TENSOR_METADATA = METADATA | frozenset("device nbytes size layout strides".split())


@models(FUNCTIONS, "torch.cuda.make_graphed_callables")
def graphed_callables(lib: Modules, c: Call) -> V:
    assert isinstance(lib, Library)
    return lib.graphed(c.args, c.kwargs, c.node)


class Library(Captures):
    """The models of one path."""

    canonical = staticmethod(apis.canonical)

    # ------------------------------------------------------------------ functions
    def call(self, full: str, args: Args, kwargs: Kwargs, n: Node) -> V:
        """A function of a library.

        Args:
            full: its name, as the file imports it.
        """
        name = self.canonical(full)
        c = Call(name, args, kwargs, n)
        model = self.m.project.wrappers.get(full)
        if model is not None:
            return wrapped(self, model, c)
        if self.m.capture is not None:
            self.forbidden(name, c.last, args, kwargs, n)
        handler = FUNCTIONS.get(name)
        got = handler(self, c) if handler is not None else None
        if got is not None:
            return got
        if name.startswith("torch."):
            return torch_function(self, c)
        if name.startswith(("cupy.", "cupyx.")):
            return cupy_function(self, c)
        if name.startswith("numpy."):
            return numpy_function(self, c)
        if name.startswith("builtins."):
            return builtin(self, c)
        return other_function(self, c)

    def call_unknown(self, callee: V, args: Args, kwargs: Kwargs, node: Node) -> V:
        """Something is called whose code is not in sight."""
        if isinstance(callee, Bound):
            return self.method(callee.receiver, callee.name, args, kwargs, node)
        if isinstance(callee, Sym):
            return self.call_sym(callee, args, kwargs, node)
        if isinstance(callee, Ctx):  # as a decorator
            return args[0] if args and isinstance(args[0], (Func, Partial)) else callee
        if isinstance(callee, Graphed):
            return self.call_graphed(callee, args, node)
        if isinstance(callee, Tensor) and callee.text in FIELDS:
            return callee  # of a sparse tensor
        kind = (
            "model" if isinstance(callee, Tensor) else "helper"
        )  # what was moved as a tensor is, was a module
        nets = frozenset({("net", self.m.key(callee))}) if isinstance(callee, Tensor) else frozenset()
        return self.computed_by(self.unmodelled("call", None, args, kwargs, node, kind), nets)

    def call_sym(self, callee: Sym, args: Args, kwargs: Kwargs, node: Node) -> V:
        m = self.m
        if callee.hint == "kernel":
            return kernels.launched(self, callee, Call("kernel", args, kwargs, node))
        if callee.hint == "mock":
            return m.fresh("a mock", "mock")
        if callee.hint == "weak":
            return self.given[(callee.vn, "")]
        owner = m.owners.get(callee.vn)
        if owner is not None and callee.hint == "attr":
            return self.method(owner[0], owner[1], args, kwargs, node, callee)
        called = getattr(node, "func", None)
        if isinstance(called, ast.Subscript):
            f = m.eval(called.value) if isinstance(called.value, (ast.Name, ast.Attribute)) else None
            if isinstance(f, Func) and f.function.kernel:
                return kernels.compiled(self, f.function, Call("kernel", args, kwargs, node))
            given = [t for v in (*args, *kwargs.values()) for t in self.tensors_in(v)]
            if given:
                op = f"{dotted(called.value)}[...]()"
                self.launch(given, [], op, node, self.lib_of(args), notes=frozenset({"kernel"}))
            return NONE
        return self.module_call(callee, callee.text.rpartition(".")[2] or "call", args, kwargs, node)

    def kernel(self, f: Func, args: Args, kwargs: Kwargs, node: Node) -> V:
        return kernels.compiled(self, f.function, Call("kernel", args, kwargs, node))

    # ------------------------------------------------------------------ methods
    def method(self, r: V, name: str, args: Args, kwargs: Kwargs, n: Node, callee: Sym | None = None) -> V:
        """A method of what is not an object of the tree, or has no such method."""
        m = self.m
        c = Call(name, args, kwargs, n)
        if m.capture is not None:
            self.forbidden_method(r, name, args, kwargs, n)
        if isinstance(r, Tensor):
            return tensor_method(self, r, c)
        if isinstance(r, Sym):
            return unknown_method(self, r, c, callee)
        if isinstance(r, (Stream, Event, Graph, Generator, Thread, Work, Future)):
            return self.handle_method(r, c)
        if isinstance(r, Seq):
            return self.seq_method(r, name, args, kwargs, n)
        if isinstance(r, Map):
            return self.map_method(r, name, args, kwargs, n)
        if isinstance(r, Params):
            return r
        if isinstance(r, (Const, Clock, Range, Lazy)):
            return m.fresh(name, "host")
        if isinstance(r, Bound) and r.name == "__dict__" and isinstance(r.receiver, Obj):
            if name != "update":
                return self.map_method(self.attributes_of(r.receiver), name, args, kwargs, n)
            given = args[0].items if args and isinstance(args[0], Map) else {}
            self.set_attributes(r.receiver, {**given, **{("c", "str", k): v for k, v in kwargs.items()}})
            return NONE
        if isinstance(r, Gen):
            return m.next_of(r, n) if name in ("__next__", "send") else m.fresh(name)
        if isinstance(r, Ctx):
            return self.context_method(r, c)
        return self.object_method(r, c, callee)

    def handle_method(self, r: V, c: Call) -> V:
        """A method of a stream, an event, a graph, a thread or something to wait for."""
        m, name, n = self.m, c.name, c.node
        if isinstance(r, Stream):
            return self.stream_method(r.timeline, name, c.args, c.kwargs, n, r)
        if isinstance(r, Event):
            return self.event_method(r, name, c.args, c.kwargs, n)
        if isinstance(r, Graph):
            return self.graph_method(r, name, c.args, c.kwargs, n)
        if isinstance(r, Generator):
            return self.generator_method(r, name, n)
        if isinstance(r, Thread):
            return self.thread_method(r, name, c.args, c.kwargs, n)
        if isinstance(r, Work):
            if "wait" in name or name in ("synchronize", "result"):
                self.tick()
                self.order.wait(self.cur(), r.snapshot, m.site(n), r.timeline)
                return NONE
            return m.fresh(name)
        assert isinstance(r, Future)
        if name in ("result", "exception"):
            self.joined(r)
            return r.value
        if name in apis.THREAD_WAITS and r.thread is not None:
            r.thread.running = False
        return m.fresh(name)

    def context_method(self, r: Ctx, c: Call) -> V:
        current = self.m.current
        if r.kind == "stack" and c.name == "enter_context" and c.args:
            return self.enter_until_left(r, c.args[0], c.node)
        if r.kind == "stack" and c.name == "callback" and c.args:
            r.payload.append(Partial(c.args[0], c.args[1:], c.kwargs))
            return c.args[0]
        if r.kind == "pool":
            return pool_method(self, r, c)
        if c.name == "__enter__":
            self.enter(r, c.node)
        elif c.name == "__exit__" and r.kind == "stream" and len(current[r.payload[0]]) > 1:
            current[r.payload[0]].pop()
        return r

    def enter_until_left(self, stack: Ctx, v: V, n: Node) -> V:
        """Enter a context that is left with a stack.

        Returns:
            What it gives.
        """
        if isinstance(v, Gen):
            stack.payload.append(v)
            return self.m.next_of(v, n)
        if isinstance(v, Obj):
            enter, leave = v.cls.method("__enter__"), v.cls.method("__exit__")
            if leave is not None:
                stack.payload.append(Partial(Func(leave, v), [NONE, NONE, NONE], {}))
            return self.m.call_function(Func(enter, v), [], {}, n) if enter is not None else v
        stack.payload.append(self.enter(v, n))
        return v.payload if isinstance(v, Ctx) and v.kind == "plain" and v.payload is not None else v

    def object_method(self, r: V, c: Call, callee: Sym | None) -> V:
        """A method that an object has of a base that is not in sight."""
        m, name, args, kwargs, n = self.m, c.name, c.args, c.kwargs, c.node
        if name in apis.EXPECTING_METHODS and isinstance(r, Obj):
            return Ctx("expecting")
        if (name in KEEPING and name != "register_buffer") or name in IDENTITY or name in ASSERTED:
            m.roots.extend(args)
            return m.fresh(name, "host")
        if isinstance(r, Obj):
            got = self.inherited(r, c)
            if got is not None:
                return got
        kind = self.kind_of_call(callee, name) if callee is not None else "helper"
        return self.unmodelled(name, r, args, kwargs, n, kind)

    def inherited(self, r: Obj, c: Call) -> V | None:
        """What test cases, threads and modules have of their base class."""
        name, args, kwargs, n = c.name, c.args, c.kwargs, c.node
        held = r.fields.get(HELD)
        if isinstance(held, (Seq, Map)) and not name.startswith("__"):
            return self.method(held, name, args, kwargs, n)
        if name in apis.GRADIENT_METHODS:
            self.gradients_read(name, n, r)
            return NONE
        if self.passes(name) and args:
            return self.backward(args, kwargs, n)
        if r.cls.is_record and name == "_replace":
            return self.with_changes(r, kwargs)
        if name.startswith(("assert", "fail")) and self.is_test_case(r.cls):
            for v in args:
                if isinstance(v, Tensor):
                    self.host_value(v, n, f"{name}()")
            return NONE
        if name in ("start", *apis.THREAD_WAITS) and any(
            b.endswith("Thread") for k in r.cls.mro() for b in k.bases
        ):
            return self.thread_object(r, name, args, kwargs, n)
        if name in ("parameters", "buffers"):
            return Params(r)
        if name == "register_buffer" and len(args) > 1 and isinstance(args[0], Const):
            r.fields[args[0].value] = args[1]
            for t in self.tensors_in(args[1]):
                t.block.notes.add("registered")
            return NONE
        displaces = self.m.captured and self.gives_other_memory(name, args, kwargs)
        if name in MOVES:
            device = kwargs.get("device") or (args[0] if args else None)
            if name == "cuda" or (name == "to" and self.where(device) in ("cuda", "cuda?")):
                self.moved_modules |= {key for _, key in self.nets_under(r)}
                self.moved(r, 0)
            elif displaces:
                self.displace(r, n)
            return r
        if name == "load_state_dict" and displaces:
            self.displace(r, n)
        return None

    # ------------------------------------------------------------------ attributes
    def lib_attribute(self, full: str) -> V:
        """Something of a library that is not called."""
        name = self.canonical(full)
        if name == "cupy.cuda.Stream.null":
            return Stream(self.m.null)
        if name == "cupy.cuda.Stream.ptds":
            return Stream(self.per_thread)
        return Const(float("inf")) if name == "math.inf" else Lib(name)

    def attribute(self, owner: V, attr: str, n: Node) -> V:
        """An attribute of what is not an object of the tree."""
        if isinstance(owner, Sym):
            return self.sym_attribute(owner, attr)
        if isinstance(owner, Tensor):
            return self.tensor_attribute(owner, attr)
        if isinstance(owner, Const) and isinstance(owner.value, str) and attr == "type":
            return Const(owner.value.partition(":")[0])  # of a device
        if isinstance(owner, Seq) and attr == "maxlen":
            return Const(None)
        if attr in apis.DEVICE_QUERIES and isinstance(owner, (Stream, Event)):
            return self.method(owner, "query", [], {}, n)
        return Bound(owner, attr)

    def tensor_attribute(self, owner: Tensor, attr: str) -> V:
        m, block = self.m, owner.block
        if attr == "data":
            return self.view(owner, ())  # its own: where it lies may be set
        if (owner.numpy and attr == "ctypes") or (attr == "ptr" and owner.lib == "cupy"):
            address = m.sym(m.vn(("pointer", block.uid, owner.part)), "ptr", "host")
            self.pointers[address.vn] = owner
            return address
        if attr in FIELDS and owner.lib == "torch" and not owner.numpy:
            field = owner.of(owner.part)
            field.text = attr
            return field
        if attr in ("real", "imag"):
            return self.view(owner, (("i", attr),))
        if attr in VIEWS:
            return owner.turned() if attr in TURNED else owner
        if attr in ("ptr", "ctypes"):
            address = m.sym(m.vn(("meta", block.uid, "ptr", owner.part)), "address", "host")
            self.pointers[address.vn] = owner
            m.fields[(address.vn, "data")] = address
            return address
        if attr == "grad":
            return m.fields.get((-block.uid, "grad")) or self.gradient_of(owner)
        if attr == "device" and block.uid in self.moved_to:
            return self.moved_to[block.uid]
        sure = block.uid not in self.moved_to and "guessed" not in block.notes
        if attr == "device" and sure and block.place in HOSTS and "registered" not in block.notes:
            return Const("cpu")
        if attr == "is_cuda" and sure and block.place in ("cuda", "pinned", "pageable"):
            return Const(block.place == "cuda")
        if attr in TENSOR_METADATA and (attr != "size" or block.lib == "cupy" or owner.numpy):
            return m.sym(m.vn(("meta", block.uid, attr)), attr, "host")
        return Bound(owner, attr)

    def sym_attribute(self, owner: Sym, attr: str) -> V:
        m = self.m
        number = ("attr", owner.vn, attr)
        if owner.hint == "mock":
            return m.sym(m.vn(number), f"{owner.text}.{attr}", "mock")
        v = m.fields.get((owner.vn, attr)) or self.given.get((owner.vn, attr))
        if v is not None:
            return v
        if attr in TRANSPOSED and owner.block is not None:
            return self.tensor(owner)
        if attr == "data" and owner.hint == "parameter":
            return self.tensor(owner, "cuda")
        if attr == "grad":
            return self.gradient_of(owner)
        if attr in METADATA:
            return m.sym(m.vn(number), f"{owner.text}.{attr}", "host")
        if owner.vn in self.pointers:
            return owner  # an address, however it is asked for
        if owner.hint == "super":
            return Bound(owner, attr)
        if attr == "param_groups" and owner.vn in self.optimizers:
            self.optimizers[owner.vn] = ("", {})  # its options may be set there
        s = m.sym(m.vn(number), f"{owner.text}.{attr}", "attr")
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

    # ------------------------------------------------------------------ contexts
    def enters(self, t: Timeline, node: Node) -> None:
        """A stream becomes the current one: the path that a finding prints tells it."""
        self.m.trail.add(self.m.seq, "enters", "enters {}", self.m.site(node), t, (t,))

    def enter(self, ctx: V, node: Node) -> Any:
        """Enter a context; give what `leave` needs."""
        current = self.m.current
        if isinstance(ctx, Ctx):
            if ctx.kind == "stream":
                kind, t = ctx.payload
                self.enters(t, node)
                current[kind].append(t)
                self.opened = len(self.m.frames)
                return ("stream", kind)
            if ctx.kind == "expecting":
                self.m.expecting += 1
                return ("expecting",)
            if ctx.kind in ("stack", "pool", "joining"):
                return (ctx.kind, ctx.payload)
            if ctx.kind == "capture":
                g, stream, options = ctx.payload
                return self.begin_capture(g, stream, node, options=options)
            return None
        if isinstance(ctx, Stream):
            self.enters(ctx.timeline, node)
            current[ctx.lib].append(ctx.timeline)
            return ("stream", ctx.lib)
        if (isinstance(ctx, Const) and isinstance(ctx.value, str)) or (
            isinstance(ctx, Sym) and (ctx.hint == "device" or ctx.vn in self.device_values)
        ):
            self.devices.append(ctx)
            return ("device",)
        t = self.timelines.get(ctx.vn) if isinstance(ctx, Sym) else None
        if t is not None:
            self.enters(t, node)
            current[t.lib].append(t)
            return ("stream", t.lib)
        return None

    def leave(self, opened: Any, node: Node) -> None:
        """Leave a context that `enter` has opened."""
        if opened is None:
            return
        if opened[0] == "device":
            self.devices.pop()
        elif opened[0] == "expecting":
            self.m.expecting -= 1
        elif opened[0] == "joining":
            self.order.device_wait(self.m.site(node))
        elif opened[0] == "stack":
            while opened[1]:
                last = opened[1].pop()
                if isinstance(last, Gen):
                    self.m.next_of(last, node, NONE)
                elif isinstance(last, Partial):
                    self.m.call_value(last.func, last.args, last.kwargs, node)
                else:
                    self.leave(last, node)
        elif opened[0] == "pool":
            for future in opened[1]:
                self.joined(future)
        elif opened[0] == "stream":
            self.m.current[opened[1]].pop()
        elif opened[0] == "capture":
            self.end_capture(node)
            if opened[1]:
                self.m.current["torch"].pop()
