"""Values: bounded sets of atoms, joined by union; the empty set is unknown, and :data:`atoms.TOP` is too many."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from streamsafe.static.domain import limits
from streamsafe.static.domain.atoms import (
    ANYTHING,
    LOST,
    MANY,
    TOP,
    UNKNOWN,
    Array,
    Atom,
    Bound,
    Capture,
    Class,
    Const,
    Context,
    Function,
    Generator,
    Library,
    New,
    Partial,
    Path,
    Pool,
    Symbol,
    Test,
    Tuple,
    Value,
    array,
    bound,
    capture,
    compared,
    context,
    function,
    generator,
    ordered,
    partial,
    pool,
    tuple_of,
)

LEAVES: Final = frozenset({Path, New, Symbol, Const, Class, Library})
"""Atoms that hold no values."""


def joined(first: Value, second: Value) -> Value:
    """What may be either. What is unknown on one path is still what it is on the other; too many are the top."""
    if first is second or first == second:
        return first
    if MANY in first or MANY in second:
        return TOP
    both = (first | second) if first and second else (first | second | {ANYTHING})
    return both if len(both) <= limits.ATOMS else TOP


def read(value: Value) -> Value:
    """A value as who uses it sees it: the top is unknown."""
    return UNKNOWN if MANY in value else value


def union(values: Iterable[Value]) -> Value:
    """The atoms of all values, unknown ones left out; unknown when there are too many."""
    found: set[Atom] = set()
    for value in values:
        found |= value
    found.discard(MANY)
    return frozenset(found) if len(found) <= limits.ATOMS else UNKNOWN


def mapped(value: Value, rename: Callable[[Atom], Value]) -> Value:
    """The images of the atoms of a value."""
    if len(value) == 1:
        (atom,) = value
        return rename(atom)
    found: set[Atom] = set()
    for atom in ordered(value):  # an image may be computed on the way, and what is computed first can matter
        found |= rename(atom)
    return frozenset(found) if len(found) <= limits.ATOMS else TOP


def inside(atom: Atom, rename: Callable[[Value], Value]) -> Atom:
    """An atom that holds values, with each of them renamed; any other atom itself."""
    if type(atom) in LEAVES:
        return atom
    if isinstance(atom, Tuple):
        return tuple_of(*(rename(item) for item in atom.items))
    if isinstance(atom, Context):
        return context(rename(atom.streams))
    if isinstance(atom, Bound):
        return bound(rename(atom.owner), atom.name)
    if isinstance(atom, Function):
        if not atom.closure:
            return atom
        return function(atom.fid, ((name, rename(value)) for name, value in atom.closure))
    if isinstance(atom, Partial):
        return partial(
            rename(atom.function),
            (rename(value) for value in atom.arguments),
            ((name, rename(value)) for name, value in atom.keywords),
        )
    if isinstance(atom, Array):
        return array(rename(atom.of), atom.type)
    if isinstance(atom, Test):
        return compared(atom.op, rename(atom.left), rename(atom.right))
    if isinstance(atom, Pool):
        (stream,) = rename(atom.stream) or (LOST,)
        return pool(stream)
    if isinstance(atom, Generator):
        return generator(
            atom.fid,
            ((name, rename(value)) for name, value in atom.roots),
            ((name, rename(value)) for name, value in atom.resumed),
        )
    if isinstance(atom, Capture):
        return capture(rename(atom.streams), rename(atom.graph), rename(atom.mode))
    return atom


def parts(atom: Atom) -> Iterable[Value]:
    """The values that an atom holds."""
    if isinstance(atom, Tuple):
        return atom.items
    if isinstance(atom, Context):
        return (atom.streams,)
    if isinstance(atom, Bound):
        return (atom.owner,)
    if isinstance(atom, Function):
        return (value for _, value in atom.closure)
    if isinstance(atom, Partial):
        return (atom.function, *atom.arguments, *(value for _, value in atom.keywords))
    if isinstance(atom, Array):
        return (atom.of,)
    if isinstance(atom, Test):
        return (atom.left, atom.right)
    if isinstance(atom, Generator):
        return (value for _, value in (*atom.roots, *atom.resumed))
    if isinstance(atom, Capture):
        return (atom.streams, atom.graph)
    return ()


def reachable(values: Iterable[Value]) -> set[Atom]:
    """The atoms of values and of what they hold."""
    found: set[Atom] = set()
    todo = list(values)
    while todo:
        for atom in todo.pop():
            if atom not in found:
                found.add(atom)
                if type(atom) not in LEAVES:
                    todo.extend(parts(atom))
    return found
