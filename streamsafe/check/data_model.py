"""Python's data model: what operators, subscripts, loops and conversions call or give where an object has a class."""

from __future__ import annotations

import ast

from .source import Class, Module, dotted
from .state import Frame, Raised, Returned, State
from .values import HELD, Cls, Const, Func, Lazy, Map, Obj, Range, Seq, Sym, V

_OPERATORS: dict[type[ast.operator], str] = {
    ast.Add: "add",
    ast.Sub: "sub",
    ast.Mult: "mul",
    ast.MatMult: "matmul",
    ast.Div: "truediv",
    ast.FloorDiv: "floordiv",
    ast.Mod: "mod",
    ast.Pow: "pow",
    ast.LShift: "lshift",
    ast.RShift: "rshift",
    ast.BitAnd: "and",
    ast.BitOr: "or",
    ast.BitXor: "xor",
}


def operated(m: State, op: ast.operator, a: V, b: V, n: ast.AST, inplace: bool = False) -> V | None:
    """What the class of an operand says that an operator does; None where it says nothing."""
    name = _OPERATORS[type(op)]
    for owner, other, prefixes in ((a, b, ("i", "") if inplace else ("",)), (b, a, ("r",))):
        for prefix in prefixes if isinstance(owner, Obj) else ():
            got = called(m, owner, f"__{prefix}{name}__", [other], n)
            if got is not None:
                return got
    if isinstance(op, ast.BitOr) and isinstance(a, Map) and isinstance(b, Map):
        if inplace:
            a.items.update(b.items)
            return a
        return Map({**a.items, **b.items}, m.vn(("dict", len(m.vns))))
    return None


def called(m: State, owner: V, name: str, args: list[V], n: ast.AST) -> V | None:
    """Call a special method of an object, if its class has it."""
    method = owner.cls.method(name) if isinstance(owner, Obj) else None
    return m.call_function(Func(method, owner), args, {}, n) if method is not None else None


def written(m: State, v: V, n: ast.AST) -> V | None:
    """The text of an object, as its class makes it."""
    got = called(m, v, "__str__", [], n)
    return got if got is not None else called(m, v, "__repr__", [], n)


def contents(m: State, o: V) -> V:
    """The container that an object is by its class; the object itself where it is none."""
    if isinstance(o, Obj):
        if o.cls.is_record:
            at = m.at or o.cls.node
            return Seq([m.attribute(o, name, at) for name in o.cls.declared], "tuple")
        return o.fields.get(HELD, o)
    return o


def unpacked(m: State, v: V, n: ast.AST) -> V:
    """What ``*v`` and a list of targets take: of an iterator, what it gives."""
    v = contents(m, v)
    if isinstance(v, Obj) and v.cls.method("__iter__") is not None:
        return Seq(m.materialised(v, n), "tuple")
    if isinstance(v, (Lazy, Map)) or (isinstance(v, Range) and isinstance(v.stop, Const)):
        return Seq(m.materialised(v, n), "tuple")
    return v


def saves_tensors(cls: Class) -> bool:
    """Whether its objects are contexts in which a forward pass saves its tensors by functions of theirs."""
    return any(b.rpartition(".")[2] == "saved_tensors_hooks" for c in cls.mro() for b in c.bases)


# ---------------------------------------------------------------------- objects that are made
def made(m: State, cls: Class, args: list[V], kwargs: dict[str, V], n: ast.AST) -> Obj:
    """The object that a class makes, before its constructor is called."""
    new = cls.method("__new__")
    o = m.call_function(Func(new, Cls(cls)), args, kwargs, n, force=True) if new is not None else None
    if not isinstance(o, Obj):
        name = cls.name if cls.is_record else cls.name[:1].lower() + cls.name[1:]
        o = Obj(cls, m.vn(("new", len(m.vns))), name)
    if cls.container and HELD not in o.fields:
        own = cls.method("__init__") is not None  # which says what it holds
        o.fields[HELD] = container(m, cls.container, [] if own else args, {} if own else kwargs, n)
    return o


def container(m: State, kind: str, args: list[V], kwargs: dict[str, V], n: ast.AST) -> V:
    """What ``dict(...)`` or ``list(...)`` makes."""
    got = m.library.call(f"builtins.{kind}", args, kwargs, n)
    return got if isinstance(got, (Seq, Map)) else Seq([], kind) if kind == "list" else Map({}, m.uid(got))


def set_fields(m: State, o: Obj, args: list[V], kwargs: dict[str, V], n: ast.AST) -> None:
    """What the constructor of a dataclass or a named tuple does: arguments, then defaults, then ``__post_init__``."""
    cls = o.cls
    names = [name for k in reversed(cls.mro()) for name in k.declared]
    given = {**dict(zip(names, args, strict=False)), **kwargs}
    for c in reversed(cls.mro()):
        for name, value in c.attrs.items():
            if name in c.declared and name not in given:
                default = _default(m, c, value, n)
                if default is not None:
                    o.fields[name] = default
    o.fields.update(given)


def _default(m: State, c: Class, value: ast.expr, n: ast.AST) -> V | None:
    """What a field is that nothing is given for: a constant, or what ``dataclasses.field`` says; None: not known."""
    if isinstance(value, ast.Constant):
        return m.eval(value)
    if not (isinstance(value, ast.Call) and dotted(value.func).rpartition(".")[2] == "field"):
        return None
    for k in value.keywords:
        if k.arg == "default_factory":
            factory = m.eval_in(c.module, k.value)
            return m.call_value(factory, [], {}, n)
        if k.arg == "default":
            return m.eval_in(c.module, k.value)
    return None


# ---------------------------------------------------------------------- attributes
def set_attribute(m: State, owner: V, attr: str, v: V, n: ast.AST) -> bool:
    """Set an attribute by what the class says, or that of a class or a function.

    Returns:
        Whether that was done.
    """
    if isinstance(owner, Obj):
        setter = owner.cls.setter(attr)
        if setter is not None:
            m.call_function(Func(setter, owner), [v], {}, n)
        return setter is not None
    if isinstance(owner, Cls):
        m.globals[(owner.cls.module.path, f"{owner.cls.name}.{attr}")] = v
        return True
    if isinstance(owner, Func):
        m.fields[(_number(m, owner), attr)] = v
        return True
    return False


def function_attribute(m: State, owner: V, attr: str) -> V | None:
    """An attribute that was set of a function."""
    return m.fields.get((_number(m, owner), attr)) if isinstance(owner, Func) else None


def has_attribute(m: State, owner: V, attr: str) -> bool:
    """Whether the path has set an attribute, or a class defines it."""
    if isinstance(owner, Obj):
        return attr in owner.fields or owner.cls.method(attr) is not None
    if isinstance(owner, Sym):
        return (owner.vn, attr) in m.fields
    return function_attribute(m, owner, attr) is not None


def _number(m: State, function: V) -> int:
    return m.vn(("function", m.key(function)))


# ---------------------------------------------------------------------- modules
def fill(m: State, module: Module, name: str) -> None:
    """Run what a file does to a container that it has just bound to a name: entries that it sets, elements it adds."""
    at = m.at
    for s in module.fillers.get(name, ()):
        m.frames.append(Frame(module, None, {}))
        try:
            m.body([s])
        except (Raised, Returned):
            pass
        finally:
            m.frames.pop()
            m.at = at
