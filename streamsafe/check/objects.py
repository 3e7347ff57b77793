"""Objects of the tree: their attributes, and those that somebody else has made."""

from __future__ import annotations

import ast

from . import data_model
from .expressions import LIBRARIES
from .source import Class, Function, dotted
from .state import Frame, Raised, Returned, State
from .values import Bound, Cls, Const, Event, Func, Lib, Obj, Partial, Seq, Sym, V

_CACHED = frozenset(("cached_property", "functools.cached_property"))
_PROPERTIES = _CACHED | {"property"}
_OF_MODULES = frozenset(
    """to cuda cpu train eval half bfloat16 requires_grad_ float parameters named_parameters register_buffer modules
    children buffers state_dict load_state_dict""".split()
)
"""Methods that modules of torch have."""
_MAX_INSIDE = 3
"""Objects inside each other that others have made."""
_TENSORS = ("torch.Tensor", "cp.ndarray")


class Objects:
    """Makes objects and reads their attributes."""

    def __init__(self, state: State) -> None:
        self.m = state
        self._making: list[Class] = []

    def typed(self, fn: Function, arg: ast.arg, text: str) -> V | None:
        """The object that a parameter is by its annotation, made with unknown arguments."""
        a = arg.annotation
        if isinstance(a, ast.Constant) and isinstance(a.value, str):
            name = a.value
        elif isinstance(a, ast.Subscript) and dotted(a.value).endswith("Optional"):
            name = dotted(a.slice)
        elif isinstance(a, ast.BinOp):
            name = dotted(a.left)
        else:
            name = dotted(a) if a is not None else ""
        if not name:
            return None
        m = fn.module
        cls = m.classes.get(name)
        if cls is None:
            full = m.canonical(name)
            found = self.m.project.lookup(full, m.path) if full != name or "." in name else None
            cls = found if isinstance(found, Class) else None
        if cls is not None:
            return self.instance(cls, text)
        full = m.canonical(name)
        if full.endswith(_TENSORS) or full == "cupy.ndarray":
            s = self.m.sym(self.m.vn(("param", fn.qualified, text)), text, "param")
            t = self.m.library.tensor(s, "unknown")
            t.block.notes.add("declared")
            if "cupy" in full:
                t.block.lib, t.block.place = "cupy", "cuda"
            return s
        if (
            full.startswith("torch.nn.")
            and full.rpartition(".")[2][:1].isupper()
            and not full.endswith("Parameter")
        ):
            return self.m.sym(self.m.vn(("param", fn.qualified, text)), text, "module")
        if full.startswith("torch.optim."):
            return self.m.sym(self.m.vn(("param", fn.qualified, text)), text, "optimizer")
        if full in ("torch.cuda.Stream", "torch.Stream", "cupy.cuda.Stream"):
            s = self.m.sym(self.m.vn(("param", fn.qualified, text)), text, "param")
            self.m.library.stream(s, "cupy" if "cupy" in full else "torch")
            return s
        return None

    def instance(self, cls: Class, text: str) -> Obj:
        """An object of a class that somebody else has made, some time ago."""
        o = Obj(cls, self.m.vn(("object", cls.name, text)), text)
        init = cls.method("__init__")
        if init is None or cls in self._making or len(self._making) >= _MAX_INSIDE:
            return o
        self._making.append(cls)
        try:
            if self.m.depth < 4 and not cls.is_autograd() and init.strong:
                self._construct(o, init)
            elif self.m.depth < 3:
                self._keep_arguments(o, init)
        finally:
            self._making.pop()
        return o

    def _keep_arguments(self, o: Obj, init: Function) -> None:
        """Give an object the fields that its constructor sets to parameters whose class is known."""
        args = {p.arg: p for p in init.node.args.args}
        for st in init.assignments:
            if len(st.targets) == 1 and isinstance(st.value, ast.Name):
                target, arg = st.targets[0], args.get(st.value.id)
                if isinstance(target, ast.Attribute) and arg is not None and arg.annotation is not None:
                    v = self.typed(init, arg, f"{o.text}.{target.attr}")
                    if v is not None:
                        o.fields[target.attr] = v

    def _construct(self, o: Obj, init: Function) -> None:
        """Run the constructor of an object with unknown arguments: what it enqueues is long done."""
        env: dict[str, V] = {}
        a = init.node.args

        def unknown(p: ast.arg) -> Sym:
            return self.m.sym(self.m.vn(("param", init.qualified, p.arg, o.text)), p.arg, "param")

        for i, p in enumerate([*a.posonlyargs, *a.args, *a.kwonlyargs]):
            env[p.arg] = o if i == 0 else self.typed(init, p, p.arg) or unknown(p)
        for rest in (a.vararg, a.kwarg):
            if rest is not None:
                env[rest.arg] = unknown(rest)
        self.m.frames.append(Frame(init.module, init, env))
        self.m.depth += 1
        count = len(self.m.hazards)
        quiet, self.m.quiet = self.m.quiet, True
        try:
            self.m.body(init.body)
        except (Returned, Raised):
            pass
        finally:
            self.m.quiet = quiet
            self.m.depth -= 1
            self.m.frames.pop()
        del self.m.hazards[count:]
        self.m.settle()
        for v in o.fields.values():
            for e in v.items if isinstance(v, Seq) else (v,):
                if isinstance(e, Event):
                    e.born = -1  # the maker of the object may have recorded it

    def attribute(self, owner: V, attr: str, n: ast.AST) -> V:
        """An attribute of a value."""
        if isinstance(owner, Obj):
            return self._of_object(owner, attr, n)
        if isinstance(owner, Cls):
            return self._of_class(owner.cls, attr)
        if isinstance(owner, Lib):
            return self._of_library(owner.name, attr)
        known = data_model.function_attribute(self.m, owner, attr)
        if known is not None:
            return known
        return self.m.library.attribute(owner, attr, n)

    def _of_library(self, owner: str, attr: str) -> V:
        near = self.m.frame.module.path
        found = self.m.project.lookup(f"{owner}.{attr}", near)
        if isinstance(found, Function):
            return Func(found)
        if isinstance(found, Class):
            return Cls(found)
        path = None if owner.startswith(LIBRARIES) else self.m.project.find_file(owner, near)
        target = self.m.project.module(path) if path else None
        if target is not None and isinstance(
            target.globals.get(attr), (ast.Call, ast.Constant, ast.Name, ast.Attribute)
        ):
            v = self.m.global_name(target, attr)
            if not isinstance(v, Sym):
                return v
        return self.m.library.lib_attribute(f"{owner}.{attr}")

    def _of_object(self, owner: Obj, attr: str, n: ast.AST) -> V:
        v = owner.fields.get(attr)
        if v is not None:
            return v
        cls = owner.cls
        getter = _getter(cls, attr)
        if getter is not None:
            got = self.m.call_function(Func(getter, owner), [], {}, n)
            if not _CACHED.isdisjoint(getter.decorators):
                owner.fields[attr] = got
            return got
        method = cls.method(attr)
        if method is not None:
            if "staticmethod" in method.decorators:
                return Func(method, None)
            return Func(method, Cls(cls) if "classmethod" in method.decorators else owner)
        v = self._class_attribute(cls, attr, none=False)
        if v is not None:
            return v
        if attr == "__dict__" or (attr in _OF_MODULES and cls.is_module()):
            return Bound(owner, attr)
        fallback = cls.method("__getattr__")
        if fallback is not None and not attr.startswith("__"):
            return self.m.call_function(Func(fallback, owner), [Const(attr)], {}, n)
        s = self.m.sym(self.m.vn(("attr", self.m.key(owner), attr)), f"{owner.text}.{attr}", "attr")
        owner.fields[attr] = s
        self.m.owners[s.vn] = (owner, attr)
        for c in cls.mro():
            annotation = c.annotation(attr)
            if "Tensor" in annotation:
                block = self.m.library.tensor(s).block
                if annotation in ("torch.Tensor", "Tensor"):
                    block.notes.add("declared")
                break
            if annotation.endswith("cuda.Stream"):
                self.m.library.stream(s)
                break
        return s

    def _of_class(self, cls: Class, attr: str) -> V:
        forward = cls.method("forward") if attr == "apply" and cls.is_autograd() else None
        if forward is not None:
            return Partial(Func(forward), [self.m.sym(self.m.vn(("ctx", cls.name)), "ctx")], {})
        known = self.m.globals.get((cls.module.path, f"{cls.name}.{attr}"))
        if known is not None:
            return known
        method = cls.method(attr)
        if method is not None:
            return Func(method, Cls(cls) if "classmethod" in method.decorators else None, owner=cls)
        v = self._class_attribute(cls, attr)
        if v is not None:
            return v
        if cls.is_record and attr == "_make":
            return Bound(Cls(cls), attr)
        return self.m.sym(self.m.vn(("attr", self.m.key(Cls(cls)), attr)), f"{cls.name}.{attr}", "attr")

    def _class_attribute(self, cls: Class, attr: str, none: bool = True) -> V | None:
        """What the body of a class or of a base sets.

        Args:
            none: whether None is an answer, and not what others set.
        """
        inner = next((c.inner[attr] for c in cls.mro() if attr in c.inner), None)
        if inner is not None:
            return Cls(inner)
        c = next((c for c in cls.mro() if attr in c.attrs), None)
        if c is None:
            return None
        key = (c.module.path, f"{c.name}.{attr}")
        if key not in self.m.globals:
            v = self.m.eval_in(c.module, c.attrs[attr])
            if not none and isinstance(v, Const) and v.value is None:
                return None
            self.m.globals[key] = v
        return self.m.globals[key]


def _getter(cls: Class, attr: str) -> Function | None:
    """The method that a property calls: decorated, or given to ``property()`` in the body of the class."""
    method = cls.method(attr)
    if method is not None:
        return method if not _PROPERTIES.isdisjoint(method.decorators) else None
    value = next((c.attrs[attr] for c in cls.mro() if attr in c.attrs), None)
    if isinstance(value, ast.Call) and dotted(value.func) == "property" and value.args:
        return cls.method(dotted(value.args[0]))
    return None
