"""Builtins and standard library calls whose meaning is more than a row can say."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamsafe.static.domain import values
from streamsafe.static.domain.atoms import (
    FALSE,
    NULL_CONTEXT,
    TRUE,
    UNKNOWN,
    Const,
    Library,
    New,
    Path,
    Tuple,
    Value,
    bound,
    const,
    library,
    ordered,
    value,
)
from streamsafe.static.domain.places import EACH
from streamsafe.static.domain.state import State
from streamsafe.static.summary.analyse import SELF
from streamsafe.static.summary.facts import MODULE
from streamsafe.static.summary.instantiate import instantiate
from streamsafe.static.transfer import asks, contexts, data, objects
from streamsafe.static.transfer import library as libraries
from streamsafe.static.transfer import memory as mem
from streamsafe.static.transfer.registry import CallSite, special

if TYPE_CHECKING:
    from streamsafe.static.summary.analyse import Analysis


def text_of(held: Value) -> str | None:
    """The text that a value is, if it is one."""
    if len(held) == 1:
        (atom,) = held
        if isinstance(atom, Const) and isinstance(atom.value, str):
            return atom.value
    return None


@special("getattr")
def get_attribute(a: Analysis, s: State, c: CallSite) -> Value | list[State]:
    """``getattr(obj, "name")``; of a library's module under a name that is not known, its device module."""
    owner = c.args[0] if c.args else UNKNOWN
    name = text_of(c.args[1]) if len(c.args) > 1 else None
    if name is None:
        for atom in owner:
            if isinstance(atom, Library) and atom.name == "torch":
                return value(library("torch.cuda"))
        return UNKNOWN
    found = values.union(objects.load(a, s, atom, name) for atom in owner)
    if found or len(c.args) < 3:
        return found
    return c.args[2]


@special("setattr")
def set_attribute(a: Analysis, s: State, c: CallSite) -> Value | list[State]:
    """``setattr(obj, "name", value)``"""
    name = text_of(c.args[1]) if len(c.args) > 2 else None
    if name is not None:
        for atom in ordered(c.args[0]):
            if isinstance(atom, Path | New):
                objects.store(a, s, atom, name, c.args[2], strong=len(c.args[0]) == 1)
    return UNKNOWN


@special("super")
def super_object(a: Analysis, s: State, c: CallSite) -> Value | list[State]:
    """``super()``: its methods are looked up behind the class of the function."""
    return value(bound(UNKNOWN, "super()"))


@special("range")
def make_range(a: Analysis, s: State, c: CallSite) -> Value | list[State]:
    """``range(n)``; of a positive constant it certainly has an element."""
    container = mem.allocate(a, s, a.span(c.at), "builtins.list")
    numbers = [
        next(iter(held)).value if len(held) == 1 and isinstance(next(iter(held)), Const) else None  # type: ignore[attr-defined]
        for held in c.args
    ]
    if len(numbers) == 1 and isinstance(numbers[0], int) and numbers[0] > 0:
        s.heap[container, "[0]"] = value(const(0))
    elif len(c.args) == 1 and len(c.args[0]) == 1 and isinstance(next(iter(c.args[0])), Path):
        s.heap[container, objects.COUNT] = c.args[0]
    return value(container)


@special("exit_stack")
def enter_context(a: Analysis, s: State, c: CallSite) -> Value | list[State]:
    """``stack.enter_context(cm)``: what was current is current again when the stack's own context is left."""
    from streamsafe.static.syntax import ir

    held = (c.args or [UNKNOWN])[0]
    out: list[State] = []
    for atom in ordered(held)[:3]:
        step = ir.Enter(c.dst, "stack", False, c.at)
        t = s.fork()
        t.env["stack"] = value(atom)
        t.env[c.dst] = value(atom)
        out += contexts.enter_one(a, t, step, atom)
    return out or UNKNOWN


@special("hasattr", "isinstance", "type", "vars", "len", "set_device", "attrgetter", "methodcaller")
def look_only(a: Analysis, s: State, c: CallSite) -> Value | list[State]:
    """Calls that touch no memory."""
    return UNKNOWN


@special("nullcontext")
def null_context(a: Analysis, s: State, c: CallSite) -> Value | list[State]:
    """``nullcontext()``"""
    return value(NULL_CONTEXT)


@special("closing")
def closing(a: Analysis, s: State, c: CallSite) -> Value | list[State]:
    """``closing(thing)``: entering it gives the thing."""
    return c.args[0] if c.args else UNKNOWN


@special("names_device")
def starts_with(a: Analysis, s: State, c: CallSite) -> Value | list[State]:
    """``device.startswith("cuda")``"""
    return asks.names_device(c.given.get("prefix", UNKNOWN), c.receiver)


@special("namespace")
def namespace(a: Analysis, s: State, c: CallSite) -> Value | list[State]:
    """``SimpleNamespace(name=value)``: an object with these fields."""
    made = mem.allocate(a, s, a.span(c.at), "types.SimpleNamespace")
    for name, held in c.keywords.items():
        s.heap[made, name] = held
    return value(made)


@special("replace")
def replace(a: Analysis, s: State, c: CallSite) -> Value | list[State]:
    """``dataclasses.replace(obj, name=value)``: another object, with the fields of the first but for these."""
    given = c.args[0] if c.args else UNKNOWN
    if len(given) != 1:
        return UNKNOWN
    (old,) = given
    type = a.type_of(old)
    if ":" not in type or type not in a.engine.index.classes:
        return UNKNOWN
    made = mem.allocate(a, s, a.span(c.at), type)
    for name in a.engine.index.fields(type):
        s.heap[made, name] = c.keywords.get(name) or objects.load(a, s, old, name)
    return value(made)


@special("defaultdict")
def default_dict(a: Analysis, s: State, c: CallSite) -> Value | list[State]:
    """``defaultdict(list)``: each element that is asked for is there."""
    made = mem.allocate(a, s, a.span(c.at), "builtins.dict")
    for atom in ordered(c.args[0]) if c.args else UNKNOWN:
        type = a.engine.canonical(atom.name) if isinstance(atom, Library) else ""
        if a.engine.role(type) in ("container", "stream", "event"):
            element = mem.allocate(a, s, a.span(c.at), type, discriminator=4)
            s.heap[made, objects.ANY] = value(element)
    return value(made)


@special("available")
def available(a: Analysis, s: State, c: CallSite) -> Value | list[State]:
    """There is a device: code without one is nobody's business."""
    return value(TRUE)


@special("aggregate")
def aggregate(a: Analysis, s: State, c: CallSite) -> Value | list[State] | None:
    """``sorted``, ``min``, ``max``, ``any``, ``all`` compare elements, or what a key gives; ``sum`` adds them."""
    from streamsafe.static.transfer.calls import call_value

    row = c.row
    assert row is not None
    span = a.span(c.at)
    elements = [objects.step_into(a, s, c.args[0], EACH)] if len(c.args) == 1 else c.args
    held = values.union(elements)
    questions = frozenset(atom for atom in held if asks.is_question(atom))
    if questions and c.operation == "all":
        return questions
    key = c.keywords.get("key")
    if key:
        states = call_value(a, s, CallSite(c.at, c.dst, [held]), key)
        for t in states:
            t.env[c.dst] = libraries.effects(a, t, c, row) if row.result.kind == "elements" else UNKNOWN
        return states
    if c.operation == "sum":
        data.compute(a, s, c.at, c.dst, "+", held)
        return s.get(c.dst)
    for one in elements:
        for atom in ordered(one):  # tuples are compared by their first items, as long as these differ
            first = atom.items[0] if isinstance(atom, Tuple) and atom.items else value(atom)
            asks.ask(a, s, span, first, c.operation)
    return libraries.effects(a, s, c, row) if row.result.kind == "elements" else UNKNOWN


@special("cast")
def cast(a: Analysis, s: State, c: CallSite) -> Value | list[State]:
    """``typing.cast(T, x)``"""
    return c.args[1] if len(c.args) > 1 else UNKNOWN


def call_super(a: Analysis, s: State, c: CallSite, name: str) -> list[State] | None:
    """``super().name(...)``; None where the tree has no such method."""
    cls = a.fn.cls
    if cls is None:
        return None
    own = a.given.types.get(SELF, cls)
    fid = a.engine.index.method_after(own, cls, name) if cls in a.engine.index.classes else None
    if fid is None or not a.fn.params:
        return None
    me = s.get(a.fn.params[0].name)
    return instantiate(a, s, c.at, c.dst, fid, [me, *c.args], c.keywords)


__all__ = ["FALSE", "MODULE"]
