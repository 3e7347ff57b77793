"""Python's own functions."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

from streamsafe.apis import names as apis

from ..values import (
    HELD,
    NONE,
    Cls,
    Const,
    Ctx,
    Event,
    Func,
    Gen,
    Lazy,
    Lib,
    Map,
    Obj,
    Params,
    Range,
    Seq,
    Stream,
    Sym,
    Tensor,
    V,
    Work,
)
from .calls import BUILTINS, Call, models
from .modules import Modules

CONVERSIONS: dict[str, Callable[[Any], Any]] = {"int": int, "float": float, "bool": bool, "str": str}
KINDS = {"sorted": "list", "frozenset": "set"}
"""What a function makes that is not named after it."""
MAPPINGS = frozenset("dict Mapping MutableMapping OrderedDict defaultdict".split())
SEQUENCES = frozenset("Sequence Iterable Collection Sized".split())
CONTAINERS = frozenset("list tuple set deque str int float bool".split())


def builtin(lib: Modules, c: Call) -> V:
    known = BUILTINS.get(c.last)
    got = known(lib, c) if known is not None else None
    return got if got is not None else lib.unmodelled(c.last, None, c.args, c.kwargs, c.node)


# ---------------------------------------------------------------------- questions about objects
def asked(lib: Modules, c: Call) -> V:
    """The same answer for the same objects; nothing of a tensor's data is touched."""
    m = lib.m
    hint = "" if c.last == "isinstance" else "host"
    return m.sym(m.vn((c.last, *(m.key(v) for v in c.args))), f"{c.last}()", hint)


models(BUILTINS, "id callable hash issubclass dir input open")(asked)


@models(BUILTINS, "type")
def class_of(lib: Modules, c: Call) -> V:
    return Cls(c.first.cls) if isinstance(c.first, Obj) else asked(lib, c)


@models(BUILTINS, "vars")
def attributes(lib: Modules, c: Call) -> V:
    return lib.attributes_of(c.first) if isinstance(c.first, Obj) else asked(lib, c)


@models(BUILTINS, "len")
def length(lib: Modules, c: Call) -> V:
    a = c.first
    if isinstance(a, Obj):
        method = a.cls.method("__len__")
        if method is not None:
            return lib.m.call_function(Func(method, a), [], {}, c.node)
        a = a.fields.get(HELD)
    if isinstance(a, Map):  # another number when it has got more entries
        return lib.m.sym(lib.m.vn(("len", lib.m.uid(a), len(a.items))), "len()", "host")
    if not isinstance(a, Seq):
        return asked(lib, c)
    if a.more:  # of which there are as many as before as long as nothing was added
        return lib.m.sym(lib.m.vn(("len", lib.m.key(a), len(a.items))), "len()", "host")
    return Const(len(a.items))


@models(BUILTINS, "hasattr")
def has_attribute(lib: Modules, c: Call) -> V:
    a, name = c.first, c.args[1] if len(c.args) > 1 else None
    if a is not None and isinstance(name, Const) and lib.m.has_attribute(a, name.value):
        return Const(True)
    if isinstance(a, Tensor) and isinstance(name, Const) and name.value in apis.TENSOR_METHODS:
        return Const(True)
    return asked(lib, c)


@models(BUILTINS, "isinstance")
def is_instance(lib: Modules, c: Call) -> V:
    a, kind = c.first, c.args[1] if len(c.args) > 1 else None
    kinds = kind.items if isinstance(kind, Seq) and kind.kind == "tuple" else [kind]
    if a is not None and kinds and all(isinstance(k, Lib) for k in kinds):
        answers = [is_one(a, k.name.rpartition(".")[2]) for k in kinds if isinstance(k, Lib)]
        if None not in answers or True in answers:
            return Const(any(answers))
    return asked(lib, c)


def is_one(v: V, kind: str) -> bool | None:
    """Whether something that the path has made is of a class of a library; None where that is not known."""
    if isinstance(v, Tensor):
        return kind == "ndarray" or (kind.endswith("Tensor") and not v.numpy)
    if isinstance(v, Seq):
        return kind == v.kind or kind in SEQUENCES
    if isinstance(v, Map):
        return kind in MAPPINGS
    if isinstance(v, (Stream, Event, Work, Ctx)):
        own = {Stream: "Stream", Event: "Event", Work: "Work"}.get(type(v), "")
        return True if kind == own else None if own and kind.endswith(own) else False
    if isinstance(v, Sym) and v.block is not None and kind in (CONTAINERS | MAPPINGS | {"Tensor"}):
        return kind == "Tensor"
    return None


@models(BUILTINS, "getattr")
def get_attribute(lib: Modules, c: Call) -> V | None:
    m, a, name = lib.m, c.first, c.args[1] if len(c.args) > 1 else None
    if a is None or not isinstance(name, Const) or not isinstance(name.value, str):
        return None
    missing = isinstance(a, Obj) and name.value not in a.fields and a.cls.method(name.value) is None
    if isinstance(a, Obj) and missing and len(c.args) > 2:
        return m.sym(m.vn(("attr", m.key(a), name.value)), f"{a.text}.{name.value}", "attr")
    return m.attribute(a, name.value, c.node)


@models(BUILTINS, "setattr")
def set_attribute(lib: Modules, c: Call) -> V | None:
    if len(c.args) < 3 or not isinstance(c.args[1], Const):
        return None
    a, name, v = c.args[0], c.args[1].value, c.args[2]
    if isinstance(a, Obj):
        a.fields[name] = v
    elif isinstance(a, Sym):
        lib.m.fields[(a.vn, name)] = v
    return NONE


# ---------------------------------------------------------------------- iteration
@models(BUILTINS, "range")
def number_range(lib: Modules, c: Call) -> V:
    m = lib.m
    for v in c.args:
        if isinstance(v, Tensor):
            lib.host_value(v, c.node, "range()")
    start = c.args[0] if len(c.args) > 1 else Const(0)
    stop = c.args[1] if len(c.args) > 1 else c.first
    stop = stop if stop is not None else NONE
    step = c.args[2] if len(c.args) > 2 else None
    return Range(start, stop, m.vn(("range", m.key(start), m.key(stop), id(c.node))), step)


@models(BUILTINS, "enumerate zip reversed")
def lazy(lib: Modules, c: Call) -> V:
    return Lazy(c.last, c.args)


@models(BUILTINS, "iter")
def iterator(lib: Modules, c: Call) -> V:
    if len(c.args) > 1:
        return Lazy("calls", c.args)
    a = c.first
    if isinstance(a, Obj):
        method = a.cls.method("__iter__")
        if method is not None and not method.generator:
            return lib.m.call_function(Func(method, a), [], {}, c.node)
    return Lazy("iter", c.args)


@models(BUILTINS, "next")
def next_item(lib: Modules, c: Call) -> V:
    a, n = c.first, c.node
    if isinstance(a, Gen):
        return lib.m.next_of(a, n, c.args[1] if len(c.args) > 1 else None)
    if isinstance(a, Lazy) and a.kind == "cycle":
        return lib.next_in_turn(a)
    if isinstance(a, Obj):
        method = a.cls.method("__next__")
        if method is not None:
            return lib.m.call_function(Func(method, a), [], {}, n)
    if isinstance(a, Lazy) and isinstance(n, ast.Call) and n.args and isinstance(n.args[0], ast.Call):
        for v in lib.m.iterate(a, n):  # next(iter(...))
            return v
    return lib.m.fresh("<next>", "element")


@models(BUILTINS, "map filter")
def mapped(lib: Modules, c: Call) -> V | None:
    if len(c.args) < 2:
        return None
    f, source, got = c.args[0], c.args[1], []
    for v in lib.m.materialised(source, c.node):
        result = lib.m.call_value(f, [v], {}, c.node) if not isinstance(f, Const) else v
        if c.last == "filter" and isinstance(result, Const) and not result.value:
            continue
        got.append(result if c.last == "map" else v)
    return Seq(got, "list", True)


# ---------------------------------------------------------------------- containers
@models(BUILTINS, "list tuple set sorted frozenset")
def sequence(lib: Modules, c: Call) -> V:
    m, a, kind = lib.m, c.first, KINDS.get(c.last, c.last)
    if a is None:
        return Seq([], kind)
    if c.last == "sorted" and isinstance(a, (Seq, Lazy)):
        compared(lib, lib.m.materialised(a, c.node), c)
    if isinstance(a, Seq):
        return Seq(list(a.items), kind, a.more)
    if isinstance(a, Gen):
        got: list[V] = []
        m.run_generator(a, got.append, c.node)
        return Seq(got, kind, True)
    if isinstance(a, Params):
        return a
    if isinstance(a, (Range, Lazy, Map)):
        return Seq(m.materialised(a, c.node), kind, not (isinstance(a, Range) and isinstance(a.stop, Const)))
    s = m.sym(m.vn(("list", m.key(a))), getattr(a, "text", "list"), "element")
    if isinstance(a, Sym) and a.block is not None and "private" in a.block.notes:
        s.block = a.block
    return s


def compared(lib: Modules, items: list[V], c: Call) -> None:
    """Elements are compared with each other, by what a key gives of them: of rows, the first fields."""
    key = c.kwargs.get("key")
    for v in items if len(items) > 1 or key is not None else ():
        by = lib.m.call_value(key, [v], {}, c.node) if key is not None else v
        while isinstance(by, Seq) and by.items:
            by = by.items[0]
        if isinstance(by, Tensor):
            lib.host_value(by, c.node, f"{c.last}()")


@models(BUILTINS, "dict")
def mapping(lib: Modules, c: Call) -> V:
    made = Map({}, lib.m.vn(("dict", len(lib.m.vns))))
    a = c.first.fields.get(HELD) if isinstance(c.first, Obj) else c.first
    if isinstance(a, Map):
        made.items.update(a.items)
    elif isinstance(a, (Seq, Lazy)):
        for pair in lib.m.materialised(a, c.node):
            if isinstance(pair, Seq) and len(pair.items) == 2:
                made.items[lib.m.map_key(made, pair.items[0])] = pair.items[1]
    for k, v in c.kwargs.items():
        made.items[("c", "str", k)] = v
    return made


@models(BUILTINS, "slice")
def slice_object(lib: Modules, c: Call) -> V:
    return lib.m.fresh("slice", "index")


@models(BUILTINS, "memoryview")
def memory_view(lib: Modules, c: Call) -> V:
    return c.first if c.first is not None else NONE


# ---------------------------------------------------------------------- numbers and text
def converted_by_class(lib: Modules, v: Obj, c: Call) -> V | None:
    """What the class of an object says of its value as a number or a text; None where it says nothing."""
    text = ("__str__", "__repr__")
    for name in text if c.last in ("print", "str", "format") else (f"__{c.last}__",):
        method = v.cls.method(name)
        if method is not None:
            return lib.m.call_function(Func(method, v), [], {}, c.node)
    return None


@models(BUILTINS, "float int bool str repr format print sum max min any all abs round")
def of_values(lib: Modules, c: Call) -> V:
    """The host wants the value of what it is given; sums of tensors, and what a tensor defines, are computed."""
    m, n, last, a = lib.m, c.node, c.last, c.first
    if last in ("min", "max") and len(c.args) == 1 and not c.kwargs and isinstance(a, Seq):
        if not a.items and not a.more and not a.limit:
            raise lib.m.Raised  # of nothing
    if last in ("min", "max") and "key" in c.kwargs and a is not None:
        compared(lib, m.materialised(a, n), c)
    for v in c.args:
        if isinstance(v, Obj) and (converted := converted_by_class(lib, v, c)) is not None:
            return converted
        if isinstance(v, Seq) and last == "sum" and lib.tensors_in(v):
            return lib.compute([v], n, "sum")
        if isinstance(v, Seq) and last in ("print", "str", "repr", "format"):
            lib.host_value(v, n, f"{last}()")
        if isinstance(v, Gen):
            continue
        if isinstance(v, Tensor) or (isinstance(v, Sym) and v.block is not None):
            if last in ("abs", "round"):
                return lib.compute([v], n, last)
            lib.host_value(v, n, f"{last}()")
    if isinstance(a, Const) and last in CONVERSIONS:
        try:
            return Const(CONVERSIONS[last](a.value))
        except (TypeError, ValueError, OverflowError):
            pass
    got = m.sym(m.vn((last, *(m.key(v) for v in c.args))), f"{last}()", "host")
    if last == "int" and isinstance(a, (Stream, Event)):
        return a  # its handle
    if last == "int" and isinstance(a, Sym):
        lib.numbers[got.vn] = a
    if last == "all" and isinstance(a, Seq):
        lib.all_queried(got, a)
    return got
