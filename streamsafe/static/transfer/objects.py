"""Attributes, elements and names: what is loaded from where, and what a store changes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamsafe.static.domain import limits, values
from streamsafe.static.domain.atoms import (
    ANYTHING,
    DEFAULT,
    GRADIENTS,
    MADE,
    NONE,
    UNKNOWN,
    Array,
    Atom,
    Bound,
    Class,
    Const,
    Library,
    New,
    Path,
    Tuple,
    Value,
    bound,
    class_of,
    function,
    library,
    ordered,
    path,
    value,
)
from streamsafe.static.domain.counts import is_above
from streamsafe.static.domain.guards import without
from streamsafe.static.domain.places import EACH, SOME, is_element
from streamsafe.static.domain.state import State, splits
from streamsafe.static.summary.facts import MODULE, OUTER, rebased
from streamsafe.static.syntax import ir
from streamsafe.static.transfer import extents, outputs, replays
from streamsafe.static.transfer import memory as mem
from streamsafe.static.transfer.registry import CallSite, transfer

if TYPE_CHECKING:
    from streamsafe.order.hazard import Span
    from streamsafe.static.models.rows import Row
    from streamsafe.static.summary.analyse import Analysis

SAME_MEMORY = frozenset("data T mT H mH real imag ctypes".split())
"""Attributes that are other views of the same memory."""

PARTS = frozenset(("values", "indices", "ptr"))
"""Attributes of what an operation has computed (``x.topk(k).values``), and of a pointer: its memory."""

ANY = "[]"
"""The field of a container's elements."""

FIRST = "first"
"""The field of the first number of ``enumerate``."""

GROUPS = "param_groups"
"""The field of an optimizer that holds the groups of its parameters."""

COUNT = "count"
"""The field of how many elements a range has."""


# -- attributes -------------------------------------------------------------------------------------------------------


def load(a: Analysis, s: State, atom: Atom, name: str) -> Value:
    """What an attribute of an atom is."""
    if atom is ANYTHING:
        return value(bound(UNKNOWN, name))
    held = s.heap.get((atom, name))
    if held is not None:
        return held
    if isinstance(atom, Path):
        return _of_path(a, s, atom, name)
    if isinstance(atom, New):
        if (atom, mem.STRUCTURE) in s.heap and name != "grad" and a.engine.method(atom.kind, name) is None:
            return value(atom)  # a part of it, or all there is
        return _of_new(a, atom, name)
    if isinstance(atom, Library):
        whole = a.engine.canonical(f"{atom.name}.{name}")
        result = a.engine.models.attribute(whole)
        if result is not None and result.kind == "default_stream":
            return value(DEFAULT)
        return value(library(result.type if result is not None and result.type else whole))
    if isinstance(atom, Class):
        return _of_class(a, atom, name)
    if isinstance(atom, Array) and name in SAME_MEMORY:
        return value(atom)
    return value(bound(value(atom), name))


def _of_path(a: Analysis, s: State, atom: Path, name: str) -> Value:
    if not atom.fields and atom.root.startswith(MODULE):
        return _of_module(a, atom, name)
    fact = a.fact(atom)
    index = a.engine.index
    if ":" in fact.type:
        fid = index.method(fact.type, name)
        if fid is not None:
            return value(bound(value(atom), name))
    elif a.engine.role(fact.type) == "tensor":
        if name in SAME_MEMORY:
            return value(atom)
        row = a.engine.method(fact.type, name) if name != "grad" else None
        if row is not None and not row.property:
            return value(bound(value(atom), name))
    elif fact.type and a.engine.role(fact.type) not in ("other", "module", "container"):
        if name != GROUPS or len(atom.fields) >= limits.FIELDS:
            return value(bound(value(atom), name))
    if name in SAME_MEMORY and not fact.type:
        return value(atom)
    if len(atom.fields) >= limits.FIELDS:
        return value(bound(value(atom), name))  # what it is is lost, but for a method
    return aliased(a, path(atom.root, *atom.fields, name), atom)


def aliased(a: Analysis, at: Path, owner: Path) -> Value:
    """What lies at a path: itself, or what it is another name for."""
    fact = a.fact(at)
    around: Path | None = owner
    for _ in range(fact.up):
        around = _holder(around) if around is not None else None
    if fact.outside and around is not None:
        seen: set[Atom] = set()
        for each in fact.outside:
            for image in rebased(each, around):
                seen |= aliased(a, image, around) if isinstance(image, Path) and image.fields else {image}
        if seen:
            return frozenset(seen)
    if not fact.aliases or (fact.type and NONE in fact.aliases):
        return value(at)
    images: set[Atom] = set()
    for alias in fact.aliases:
        images |= rebased(alias, owner)
    if not images:
        return value(at)
    if all(image is NONE for image in images):
        return value(NONE) if not fact.type and not fact.place else value(at)
    if any(isinstance(image, Const) for image in images) and len(images) > 1:
        return value(at)
    return frozenset(images) if len(images) <= limits.ATOMS else value(at)


def _holder(owner: Path) -> Path | None:
    """The object whose field an object is, or in whose field's containers it lies."""
    fields = owner.fields
    while fields and is_element(fields[-1]):
        fields = fields[:-1]
    return path(owner.root, *fields[:-1]) if fields else None


def _of_module(a: Analysis, atom: Path, name: str) -> Value:
    module = atom.root[len(MODULE) :]
    return global_name(a, module, name)


def global_name(a: Analysis, module: str, name: str) -> Value:
    """What a name of a module stands for."""
    symbol = a.engine.index.lookup(module, name)
    if symbol.kind == "variable":
        home, _, variable = symbol.name.partition(":")
        root = path(MODULE + home)
        return aliased(a, path(MODULE + home, variable), root) if home in a.engine.index.modules else UNKNOWN
    atom = a.engine.atom_of(symbol)
    return value(atom) if atom is not None else UNKNOWN


def _of_new(a: Analysis, atom: New, name: str) -> Value:
    if ":" in atom.kind:
        index = a.engine.index
        if index.method(atom.kind, name) is not None:
            return value(bound(value(atom), name))
        cls = index.classes.get(atom.kind)
        if cls is not None and (a.engine.role(atom.kind) != "object" or _inherits(a, atom.kind, name)):
            return value(bound(value(atom), name))
        return UNKNOWN
    if (name in SAME_MEMORY or name in PARTS) and a.role(atom) == "tensor":
        return value(atom)
    if name == "grad" and a.role(atom) == "tensor":
        return value(GRADIENTS)
    return value(bound(value(atom), name))


def _inherits(a: Analysis, cid: str, name: str) -> bool:
    """Whether a class of the tree has a method from a library that the models know."""
    bases = map(a.engine.canonical, a.engine.index.library_bases(cid))
    return any(a.engine.method(base, name) is not None for base in bases)


def is_container(a: Analysis, atom: New) -> bool:
    """Whether an object of a class of the tree is a container too: ``class Batch(dict)``."""
    if atom.kind not in a.engine.index.classes:
        return False
    bases = map(a.engine.canonical, a.engine.index.library_bases(atom.kind))
    return any(a.engine.role(base) == "container" for base in bases)


def _of_class(a: Analysis, atom: Class, name: str) -> Value:
    index = a.engine.index
    fid = index.method(atom.cid, name)
    if fid is not None:
        return value(function(fid))
    for cid in index.mro(atom.cid):
        inner = index.classes[cid].inner.get(name)
        if inner is not None:
            return value(class_of(inner))
    constants = a.engine.facts.fields(atom.cid).get(name)
    if (
        constants is not None
        and constants.aliases
        and all(isinstance(each, Const) for each in constants.aliases)
    ):
        return constants.aliases
    return value(bound(value(atom), name)) if name == "apply" else UNKNOWN


def property_of(a: Analysis, atom: Atom, name: str) -> str | None:
    """The getter that reading an attribute calls, if it is a property of a class of the tree."""
    type = a.type_of(atom)
    if ":" in type and type in a.engine.index.classes and a.engine.index.is_property(type, name):
        return a.engine.index.method(type, name)
    return None


def _asked(a: Analysis, atom: Atom, name: str) -> Row | None:
    """The row of an attribute that is a call: ``stream.done`` asks the device."""
    if a.role(atom) not in ("stream", "event"):
        return None
    row = a.engine.method(a.type_of(atom) or a.engine.stream_type(name), name)
    return row if row is not None and row.property else None


@transfer(ir.Attr)
def load_attribute(a: Analysis, s: State, i: ir.Attr) -> list[State] | None:
    """dst = obj.name; reading a property calls its getter."""
    held = s.get(i.obj)
    if not held:
        s.env[i.dst] = value(bound(UNKNOWN, i.name))
        return None
    if len(held) == 1:
        (atom,) = held
        if (atom, i.name) not in s.heap:
            getter = property_of(a, atom, i.name)
            if getter is not None:
                from streamsafe.static.summary.instantiate import instantiate

                return instantiate(a, s, i.at, i.dst, getter, [held], {})
            row = _asked(a, atom, i.name)
            if row is not None:
                from streamsafe.static.transfer import library as libraries

                site = CallSite(i.at, i.dst, [], receiver=held, operation=i.name)
                return libraries.apply(a, s, site, row)
    found = values.union(load(a, s, atom, i.name) for atom in held)
    if len(found) > 1 and all(isinstance(atom, Bound) and atom.name == i.name for atom in found):
        found = value(bound(held, i.name))  # one method, of any of them
    s.env[i.dst] = found
    extents.attribute(s, i, held, found)
    if s.capturing.taken:
        outputs.moved(a, s, i.dst, i.obj, found)
    return None


@transfer(ir.SetAttr)
def store_attribute(a: Analysis, s: State, i: ir.SetAttr) -> list[State] | None:
    """obj.name = src"""
    held = s.get(i.src)
    owners = s.get(i.obj)
    for atom in ordered(owners):
        if isinstance(atom, Path | New):
            if i.name == "data" and a.role(atom) in ("tensor", ""):
                _rebind_data(a, s, a.span(i.at), atom, held)
                continue
            old = s.heap.get((atom, i.name), UNKNOWN)
            replays.stores(a, s, a.span(i.at), atom, i.name, old, held)
            replays.note_store(s, atom, i.name, a.span(i.at))
            store(a, s, atom, i.name, held, strong=len(owners) == 1)
            if old and old != held:
                mem.unbind(a, s, old)
    a.engine_names(held, i.name, owners)
    return None


def _rebind_data(a: Analysis, s: State, span: Span, atom: Atom, held: Value) -> None:
    """``p.data = x``: from now on what is read at p is the memory of x."""
    if atom in held:
        replays.is_back(a, s, atom)
    else:
        replays.lets_go(a, s, span, value(atom), held, parameters=True)
    s.heap[atom, "data"] = held
    for buffer in mem.buffers(a, s, held):
        for one in list(s.order.near(buffer)):
            if one.buffer is buffer:
                s.order.put(one.replace(buffer=atom), s.order.ways_of(one))


def store(a: Analysis, s: State, owner: Atom, field: str, held: Value, *, strong: bool) -> None:
    """A store to a field of an object."""
    known = s.heap.get((owner, field))
    if strong and not (isinstance(owner, New) and owner.age):
        s.set_field(owner, field, held)
    else:
        s.heap[owner, field] = values.joined(known, held) if known is not None else held
    if isinstance(owner, Path) and not any(is_above(atom) for atom in held):
        s.guard = without(s.guard, path(owner.root, *owner.fields, field))


@transfer(ir.DelAttr)
def delete_attribute(a: Analysis, s: State, i: ir.DelAttr) -> list[State] | None:
    """del obj.name"""
    for atom in ordered(s.get(i.obj)):
        if isinstance(atom, Path | New):
            old = s.heap.get((atom, i.name), UNKNOWN)
            store(a, s, atom, i.name, value(NONE), strong=True)
            if old:
                mem.unbind(a, s, old)
    return None


# -- elements ---------------------------------------------------------------------------------------------------------


def step_of(key: Value) -> str | None:
    """The field of an element with a constant key; None where the key is not a constant."""
    if len(key) == 1:
        (atom,) = key
        if isinstance(atom, Const) and isinstance(atom.value, str | int) and not isinstance(atom.value, bool):
            return f"[{atom.value}]"
    return None


def step_into(a: Analysis, s: State, held: Value, step: str) -> Value:
    """The element of a value under a step: ``[0]``, ``[name]``, or ``[each]``."""
    return values.union(_element(a, s, atom, step) for atom in held)


def _element(a: Analysis, s: State, atom: Atom, step: str) -> Value:
    if isinstance(atom, Tuple):
        text = step[1:-1]
        if text.lstrip("-").isdigit():
            number = int(text)
            if -len(atom.items) <= number < len(atom.items):
                return atom.items[number]
            return UNKNOWN
        return values.union(atom.items)
    if isinstance(atom, New | Path) and ":" in (type := a.type_of(atom)):
        named = a.engine.index.tuple_fields(type) if type in a.engine.index.classes else []
        if named:
            return _of_named_tuple(a, s, atom, named, step)
    if isinstance(atom, Library):
        return value(atom) if atom.name.endswith(MADE) or atom.name in a.engine.types else UNKNOWN
    if isinstance(atom, New):
        role = a.role(atom)
        if role == "container" or is_container(a, atom):
            return elements(s, atom, step)
        return value(atom) if role == "tensor" else UNKNOWN
    if isinstance(atom, Path):
        stored = s.heap.get((atom, step))
        if stored is not None:
            return stored
        if step in (EACH, ANY) and (atom, ANY) in s.heap:
            added = s.heap[atom, ANY]
            if added and len(atom.fields) < limits.FIELDS and all(splits(each) for each in added):
                return added | {path(atom.root, *atom.fields, EACH)}  # beside those that were there before
            return added
        if a.role(atom) == "tensor":
            return value(atom)
        if len(atom.fields) >= limits.FIELDS:
            return value(atom)
        return value(path(atom.root, *atom.fields, EACH if step == ANY else step))
    return UNKNOWN


def _of_named_tuple(a: Analysis, s: State, atom: Atom, named: list[str], step: str) -> Value:
    text = step[1:-1]
    if not text.lstrip("-").isdigit():
        return values.union(load(a, s, atom, name) for name in named)
    number = int(text)
    return load(a, s, atom, named[number]) if -len(named) <= number < len(named) else UNKNOWN


def elements(s: State, container: Atom, step: str = ANY) -> Value:
    """What a container of this function holds: under a constant key, or at all."""
    if step not in (ANY, EACH, SOME):
        found = s.heap.get((container, step))
        if found is not None:
            return found
        return s.heap.get((container, ANY), UNKNOWN)
    held = [v for field, v in s.heap.fields(container).items() if field.startswith("[")]
    return values.union(held)


def items_of(s: State, held: Value) -> tuple[Value, ...]:
    """All elements of a tuple, or of a list that is written down, one by one; none where they are not known."""
    if len(held) != 1:
        return ()
    (atom,) = held
    if isinstance(atom, Tuple):
        return atom.items
    if not isinstance(atom, New) or atom.kind != "builtins.list" or atom.age:
        return ()
    fields = s.heap.fields(atom)
    steps = [f"[{number}]" for number in range(len(fields))]
    return tuple(fields[step] for step in steps) if fields.keys() == set(steps) else ()


def has_more(s: State, iterator: ir.Reg) -> bool | None:
    """Whether a loop that is run through one by one has another round; None of other loops."""
    at = s.choices.get(("at", iterator))  # type: ignore[call-overload]
    if not at:
        return None
    (number,) = at
    items = items_of(s, s.get(iterator))
    return isinstance(number, Const) and number.value < len(items)


def put_element(s: State, container: Atom, held: Value, step: str | None = None) -> None:
    """A container gains an element; one under a constant key replaces what was there."""
    if step is not None and not (isinstance(container, New) and container.age):
        s.heap[container, step] = held
        return
    known = s.heap.get((container, ANY))
    both = held if known is None else known | held
    s.heap[container, ANY] = both if len(both) <= limits.ATOMS else UNKNOWN


@transfer(ir.DelItem)
def delete_item(a: Analysis, s: State, i: ir.DelItem) -> list[State] | None:
    """del obj[key]"""
    step = step_of(s.get(i.key))
    if step is not None:
        for atom in s.get(i.obj):
            s.heap.pop((atom, step), None)
    return None


# -- names ------------------------------------------------------------------------------------------------------------


@transfer(ir.Global)
def load_global(a: Analysis, s: State, i: ir.Global) -> list[State] | None:
    """dst = a name of the module, or a builtin."""
    held = s.heap.get((path(MODULE + a.fn.module), i.name))
    s.env[i.dst] = held if held is not None else global_name(a, a.fn.module, i.name)
    return None


@transfer(ir.SetGlobal)
def store_global(a: Analysis, s: State, i: ir.SetGlobal) -> list[State] | None:
    """A name of the module = src."""
    held = s.get(i.src)
    s.set_field(path(MODULE + a.fn.module), i.name, held)
    a.engine_names(held, i.name, UNKNOWN)
    return None


@transfer(ir.DelGlobal)
def delete_global(a: Analysis, s: State, i: ir.DelGlobal) -> list[State] | None:
    """A name of the module is unbound."""
    s.heap.pop((path(MODULE + a.fn.module), i.name), None)
    return None


@transfer(ir.Outer)
def load_outer(a: Analysis, s: State, i: ir.Outer) -> list[State] | None:
    """dst = a variable of an enclosing function."""
    name = f"{OUTER}{i.owner} {i.name}"
    root = path(name)
    held = s.heap.get((root, "="))
    s.env[i.dst] = held if held is not None else a.given.get(name) or value(root)
    return None


@transfer(ir.SetOuter)
def store_outer(a: Analysis, s: State, i: ir.SetOuter) -> list[State] | None:
    """A variable of an enclosing function = src."""
    s.heap[path(f"{OUTER}{i.owner} {i.name}"), "="] = s.get(i.src)
    return None


@transfer(ir.Import)
def load_import(a: Analysis, s: State, i: ir.Import) -> list[State] | None:
    """dst = an imported module or name."""
    dotted = i.module if i.name in (None, "*") else f"{i.module}.{i.name}"
    atom = a.engine.atom_of(a.engine.index.imported(a.fn.module, dotted))
    if i.name == "*":
        return None
    s.set_local(i.dst, value(atom) if atom is not None else UNKNOWN)
    return None


@transfer(ir.Closure)
def make_closure(a: Analysis, s: State, i: ir.Closure) -> list[State] | None:
    """dst = a function, with the values of what it takes from here."""
    held = [(f"{OUTER}{a.fn.fid} {name}", s.env[name]) for name in sorted(i.captured) if name in s.env]
    s.set_local(i.dst, value(function(i.function, held)))
    return None


@transfer(ir.Decorate)
def decorate(a: Analysis, s: State, i: ir.Decorate) -> list[State] | None:
    """dst = decorator(target); a decorator is taken to keep what the function does."""
    s.set_local(i.dst, s.get(i.target))
    return None


@transfer(ir.MakeClass)
def make_class(a: Analysis, s: State, i: ir.MakeClass) -> list[State] | None:
    """dst = a class."""
    s.set_local(i.dst, value(class_of(i.cls)))
    return None
