"""Whose the attributes and variables of a file are: of which class, or of which function.

Two classes, or two functions, may use one name for different things: what is done to one says nothing of the other.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from streamsafe.static.stream_terms import last_name

_FILLING = frozenset(
    "append appendleft extend extendleft insert put put_nowait add setdefault update".split()
)


_OF_A_PASS = frozenset("forward setup_context backward vjp jvp".split())
"""The methods of a function of autograd that are given a context first."""


class Place(NamedTuple):
    """Where something is kept: an attribute, or a variable.

    Attributes:
        name: its name.
        attribute: whether it is an attribute.
        owner: the class, or for a variable the outermost function, "" for one of the module; None where that is not
            known: then it may be any of this name.
    """

    name: str
    attribute: bool
    owner: str | None


class _Context(NamedTuple):
    """What stands around a piece of syntax."""

    owner: str
    """The class whose methods may call their object ``self`` here."""
    function: str
    """The innermost function."""
    scope: str
    """The outermost function."""
    prefix: str
    """What the qualified names of definitions here begin with."""


class Owners:
    """What the functions of a file do to the attributes of each class and to the variables of each function.

    An attribute of ``self``, or of a variable whose class is seen, belongs to that class, its bases and the classes
    that inherit from it. One of an object of unknown class may belong to any.

    Args:
        tree: the file.
        classes: its classes by qualified name.
    """

    def __init__(self, tree: ast.Module, classes: Mapping[str, ast.ClassDef]) -> None:
        self._classes = classes
        self._kin = _kin(classes)
        self._functions_of_autograd = {
            name
            for name, node in classes.items()
            if any(last_name(base) == "Function" for base in node.bases)
        }
        self._bound: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
        self._given: dict[str, set[str]] = defaultdict(set)
        self._values: dict[tuple[str, str], tuple[ast.expr, _Context]] = {}
        self._kinds: dict[tuple[str, str], str] = {}
        self._named: dict[str, set[Place]] = defaultdict(set)
        self._taken: set[Place] = set()
        self._added: set[Place] = set()
        self._kept: dict[Place, int] = defaultdict(int)
        self._read: dict[Place, int] = defaultdict(int)
        self._filled: set[Place] = set()
        self._counted: set[Place] = set()
        self._readers: dict[Place, set[str]] = defaultdict(set)
        self._setters: dict[Place, set[str]] = defaultdict(set)
        nodes = self._nodes(tree)
        left_out = _left_out(nodes)
        for node, context in nodes:
            self._note(node, context, node in left_out)

    # -- questions -----------------------------------------------------------------------------------------------

    def place(self, name: str, base: str | None, owner: str, function: str) -> Place:
        """Whose something is that a function mentions.

        Args:
            name: the name of the attribute or variable.
            base: the variable whose attribute it is, "" for that of another expression; None for a variable.
            owner: the class of ``self``, if any.
            function: the function.
        """
        parts = function.split(".")
        tops = [".".join(parts[:n]) for n in range(1, len(parts) + 1)]
        scope = next((top for top in tops if top in self._bound or top in self._given), "")
        context = _Context(owner, function, scope, "")
        return self._variable(name, context) if base is None else self._attribute(name, base, context)

    def may_be_of(self, place: Place, classes: Collection[str]) -> bool:
        """Whether it may be an attribute of an object that is of all these classes."""
        return place.owner is None or any(place.owner in self._kin.get(name, {name}) for name in classes)

    def is_used_up(self, place: Place) -> bool:
        """Whether elements are taken from a list, and none is ever added."""
        same = self._same(place)
        return not self._taken.isdisjoint(same) and self._added.isdisjoint(same)

    def is_unread(self, place: Place) -> bool:
        """Whether it is a private list that is filled, and emptied, and never read: it keeps things alive."""
        if not place.name.startswith("_"):
            return False
        same = self._same(place)
        kept = sum(self._kept[p] for p in same if p in self._kept)
        return kept > 0 and kept == sum(self._read[p] for p in same if p in self._read)

    def is_filled(self, owner: str, name: str) -> bool:
        """Whether some function puts something into the container that an attribute of a class holds."""
        return not self._filled.isdisjoint(self._same(Place(name, True, owner)))

    def is_counted(self, owner: str, name: str) -> bool:
        """Whether something is added to an attribute of a class."""
        return not self._counted.isdisjoint(self._same(Place(name, True, owner)))

    def users(self, owner: str, name: str) -> tuple[set[str], set[str]]:
        """The functions that read an attribute of a class, and those that set it: ``+=`` does neither.

        What only goes into a message or an error, nothing is computed with.
        """
        same = self._same(Place(name, True, owner))
        readers = (self._readers[p] for p in same if p in self._readers)
        setters = (self._setters[p] for p in same if p in self._setters)
        return set().union(*readers), set().union(*setters)

    def _same(self, place: Place) -> set[Place]:
        """The places that this one may be."""
        named = self._named.get(place.name, set())
        if place.owner is None:
            return named
        kin = self._kin.get(place.owner, {place.owner}) if place.attribute else {place.owner}
        return {p for p in named if p.owner is None or (p.attribute == place.attribute and p.owner in kin)}

    # -- the text ------------------------------------------------------------------------------------------------

    def _nodes(self, tree: ast.Module) -> list[tuple[ast.AST, _Context]]:
        """All that there is in the file, what holds something before what it holds."""
        found: list[tuple[ast.AST, _Context]] = []
        todo: list[tuple[ast.AST, _Context]] = [(tree, _Context("", "", "", ""))]
        while todo:
            node, context = todo.pop()
            found.append((node, context))
            if isinstance(node, ast.ClassDef):
                name = f"{context.prefix}{node.name}"
                context = context._replace(owner=name, prefix=f"{name}.")
            elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                name = f"{context.prefix}{node.name}"
                context = context._replace(function=name, scope=context.scope or name, prefix=f"{name}.")
                self._parameters(node.args, context.scope)
                if node.name in _OF_A_PASS and context.owner in self._functions_of_autograd:
                    for given in node.args.args[:1]:  # of a kind of its own
                        self._kinds[name, given.arg] = f"{context.owner}.ctx"
            elif isinstance(node, ast.Lambda) and context.scope:
                self._parameters(node.args, context.scope)
            elif isinstance(node, ast.Name) and context.scope and not isinstance(node.ctx, ast.Load):
                self._bound[context.scope][node.id] += 1
            elif isinstance(node, ast.Assign) and context.scope and isinstance(node.targets[0], ast.Name):
                self._values[context.scope, node.targets[0].id] = (node.value, context)
            elif isinstance(node, ast.Global):
                self._given[context.scope].update(node.names)  # they may be whatever the module has
            todo += [(child, context) for child in ast.iter_child_nodes(node)]
        return found

    def _parameters(self, arguments: ast.arguments, scope: str) -> None:
        every = (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)
        self._given[scope].update(a.arg for a in every)
        for argument in every:
            if isinstance(argument.annotation, ast.Name) and argument.annotation.id in self._classes:
                self._kinds[scope, argument.arg] = argument.annotation.id

    def _note(self, node: ast.AST, context: _Context, left_out: bool) -> None:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            owner = self._place_of(node.func.value, context)
            if owner is not None:
                (self._taken if node.func.attr in ("pop", "popleft") else self._added).add(owner)
                if node.func.attr in _FILLING and owner.attribute and context.function:
                    self._filled.add(owner)
        elif isinstance(node, ast.Subscript) and not isinstance(node.ctx, ast.Load):
            self._add(node.value, context, filled=isinstance(node.ctx, ast.Store))
        elif isinstance(node, ast.AugAssign):
            self._add(node.target, context, filled=isinstance(node.target, ast.Attribute))
            counted = self._place_of(node.target, context)
            if counted is not None and isinstance(node.target, ast.Attribute):
                if isinstance(node.op, (ast.Add, ast.Sub)):
                    self._counted.add(counted)
        elif isinstance(node, (ast.Assign, ast.AnnAssign)) and not isinstance(node.value, ast.ListComp):
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                self._add(target, context, filled=False)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            function = node.value.func
            if isinstance(function, ast.Attribute) and function.attr in ("append", "extend", "clear"):
                kept = self._place_of(function.value, context)
                if kept is not None:
                    self._kept[kept] += 1
        if isinstance(node, (ast.Name, ast.Attribute)):
            self._use(node, context, left_out)

    def _use(self, node: ast.Name | ast.Attribute, context: _Context, left_out: bool) -> None:
        place = self._place_of(node, context)
        if place is None:
            return
        if isinstance(node.ctx, ast.Load):
            self._read[place] += 1
        if isinstance(node, ast.Attribute) and context.function and not left_out:
            users = self._readers if isinstance(node.ctx, ast.Load) else self._setters
            users[place].add(context.function)

    def _add(self, target: ast.expr, context: _Context, *, filled: bool) -> None:
        place = self._place_of(target, context)
        if place is not None:
            self._added.add(place)
            if filled and place.attribute and context.function:
                self._filled.add(place)

    def _place_of(self, node: ast.expr, context: _Context) -> Place | None:
        while isinstance(node, ast.Subscript):
            node = node.value
        place: Place | None = None
        if isinstance(node, ast.Name):
            place = self._variable(node.id, context)
        elif isinstance(node, ast.Attribute):
            place = self._attribute(
                node.attr, node.value.id if isinstance(node.value, ast.Name) else "", context
            )
        if place is not None:
            self._named[place.name].add(place)
        return place

    def _attribute(self, name: str, base: str, context: _Context) -> Place:
        if base in ("self", "cls") and context.owner:
            return Place(name, True, context.owner)
        if base in self._classes:
            return Place(name, True, base)
        return Place(name, True, self._kind(base, context) if base else None)

    def _kind(self, name: str, context: _Context) -> str | None:
        """The class of the object that a variable of a function holds, where it is seen."""
        if self._bound[context.scope][name] == 0:
            return self._kinds.get((context.scope, name))
        value = self._value(name, context)
        made = last_name(value[0].func) if value is not None and isinstance(value[0], ast.Call) else ""
        return made if made in self._classes else None

    def _value(self, name: str, context: _Context) -> tuple[ast.expr, _Context] | None:
        """What a variable that is bound once is bound to."""
        once = self._bound[context.scope][name] == 1 and name not in self._given[context.scope]
        return self._values.get((context.scope, name)) if once else None

    def _variable(self, name: str, context: _Context) -> Place:
        if name in self._given[context.scope]:
            return Place(name, False, None)  # the caller has it under some name
        value = self._value(name, context)
        if value is not None and isinstance(value[0], ast.Attribute):
            inner = value[0]
            return self._attribute(
                inner.attr, inner.value.id if isinstance(inner.value, ast.Name) else "", value[1]
            )
        return Place(name, False, context.scope if name in self._bound[context.scope] else "")


def _kin(classes: Mapping[str, ast.ClassDef]) -> dict[str, set[str]]:
    """By class, itself, its bases in the file, and the classes that inherit from it."""
    by_name: dict[str, list[str]] = defaultdict(list)
    for qualname in classes:
        by_name[qualname.rpartition(".")[2]].append(qualname)
    above = {
        qualname: [base for written in node.bases for base in by_name.get(last_name(written), ())]
        for qualname, node in classes.items()
    }
    bases = {qualname: _reached(qualname, above) for qualname in classes}
    return {
        qualname: bases[qualname] | {other for other in classes if qualname in bases[other]}
        for qualname in classes
    }


def _reached(start: str, leads: Mapping[str, Iterable[str]]) -> set[str]:
    found, todo = {start}, [start]
    while todo:
        added = set(leads.get(todo.pop(), ())) - found
        found |= added
        todo += added
    return found


def _left_out(nodes: list[tuple[ast.AST, _Context]]) -> set[ast.AST]:
    """What something is added to, and what only goes into a message or an error."""
    found: set[ast.AST] = {node.target for node, _ in nodes if isinstance(node, ast.AugAssign)}
    for node, _ in nodes:
        if isinstance(node, (ast.JoinedStr, ast.Raise)):
            found.update(ast.walk(node))
    return found
