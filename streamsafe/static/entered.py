"""Streams that are the current one, or of which nothing in a file shows that they are not."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable, Mapping

from streamsafe.static import needles
from streamsafe.static.needles import last_name

AstFunction = ast.FunctionDef | ast.AsyncFunctionDef

_ENTERS = frozenset({"stream", "StreamContext", "set_stream"})
"""Calls that make a stream current, by their names."""


def only_entered(statements: Iterable[ast.stmt]) -> frozenset[str]:
    """The attributes, and the parameters they come from, that a file does nothing with but run work under them.

    Whoever makes a stream to have another one orders it with the current one somewhere; where a constructor hands on
    what it was given, and methods enter it, it may as well be the one that was current when the object was made.
    """
    ordered: set[str] = set()
    entered: set[str] = set()
    same: dict[str, set[str]] = defaultdict(set)
    harmless: set[int] = set()
    statements = list(statements)
    entering = _ENTERS | _kept_enters(statements)
    for statement in statements:
        for node in needles.walk(statement):
            if isinstance(node, ast.FunctionDef) and node.name == "__init__":
                _handed_on(node, same, harmless)
            elif isinstance(node, ast.Call) and last_name(node.func) in entering and len(node.args) == 1:
                word = _attribute(node.args[0])
                if word is not None:
                    entered.add(word)
                    harmless.add(id(node.args[0]))
            elif isinstance(node, (ast.If, ast.IfExp)):
                harmless.add(id(node.test))  # whether there is one
    if not entered:
        return frozenset()
    for statement in statements:
        for node in needles.walk(statement):
            if isinstance(node, (ast.Name, ast.Attribute)) and id(node) not in harmless:
                ordered.add(node.id if isinstance(node, ast.Name) else node.attr)
    found = [{word, *same.get(word, ())} for word in entered]
    return frozenset(word for words in found if words.isdisjoint(ordered) for word in words)


def _kept_enters(statements: Iterable[ast.stmt]) -> set[str]:
    """The attributes that hold what makes a stream current, or what stands for it where there is none."""
    return {
        word
        for statement in statements
        for node in needles.walk(statement)
        if isinstance(node, ast.Assign) and len(node.targets) == 1
        if isinstance(node.value, ast.Attribute) and node.value.attr in _ENTERS
        if (word := _attribute(node.targets[0])) is not None
    }


def _handed_on(constructor: ast.FunctionDef, same: dict[str, set[str]], harmless: set[int]) -> None:
    """What a constructor keeps as it was given, and what it passes on to another one under the same name."""
    parameters = {a.arg for a in (*constructor.args.args, *constructor.args.kwonlyargs)}
    for node in needles.walk(constructor):
        if isinstance(node, (ast.Assign, ast.AnnAssign)):
            given = list(needles.pairs(node)) if isinstance(node, ast.Assign) else [(node.target, node.value)]
            if isinstance(node, ast.Assign) and len(node.targets) > 1:
                continue
            for target, value in given:
                word = _attribute(target)
                if word is not None and isinstance(value, ast.Name) and value.id in parameters:
                    same[word].add(value.id)
                    harmless |= {id(target), id(value)}
        elif isinstance(node, ast.Call) and last_name(node.func) == "__init__":
            harmless |= {
                id(k.value) for k in node.keywords if isinstance(k.value, ast.Name) and k.value.id == k.arg
            }


def _attribute(node: ast.expr) -> str | None:
    """The attribute of ``self`` that is meant."""
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self":
        return node.attr
    return None


def made_current(statements: Iterable[ast.stmt]) -> frozenset[str]:
    """The names and attributes under which a file keeps the stream that its getter makes current, once and for good.

    Who finds it there was preceded by who made it current. None where another stream is made current, too, or kept.
    """
    kept: set[str] = set()
    others: set[str] = set()
    functions = (n for s in statements for n in needles.walk(s) if isinstance(n, ast.FunctionDef))
    for function in functions:
        nodes = list(needles.walk(function))
        given = {_word(n.args[0]) for n in nodes if isinstance(n, ast.Call) and _is_for_good(n)}
        returned = {_word(n.value) for n in nodes if isinstance(n, ast.Return) and n.value is not None}
        own: set[str | None] = set(given)
        for node in nodes:
            if not isinstance(node, ast.Assign) or _is_none(node.value):
                continue
            words = {word for target in node.targets if (word := _word(target)) is not None}
            if _word(node.value) in given or not words.isdisjoint(given):
                own |= words
                kept |= words
            elif not given:
                others |= words
        if given and (len(given) > 1 or None in given or own.isdisjoint(returned)):
            return frozenset()
    return frozenset(kept - others)


def kept_current(statements: Iterable[ast.stmt]) -> frozenset[str]:
    """The attributes that some object is given the stream that is current, and never another value."""
    kept: set[str] = set()
    others: set[str] = set()
    given: list[tuple[str, ast.expr]] = []
    names: set[str] = set()
    for statement in statements:
        for node in needles.walk(statement):
            if isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value is not None:
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                given += [(t.attr, node.value) for t in targets if isinstance(t, ast.Attribute)]
                if _asks_for_current(node.value):
                    names |= {t.id for t in targets if isinstance(t, ast.Name)}
            elif isinstance(node, ast.Call):
                given += [(k.arg, k.value) for k in node.keywords if k.arg is not None]
    for word, value in given:
        if _asks_for_current(value) or (isinstance(value, ast.Name) and value.id in names):
            kept.add(word)
        elif not _is_none(value):
            others.add(word)
    return frozenset(kept - others)


def consumers(
    statements: Iterable[ast.stmt], functions: Mapping[str, AstFunction]
) -> frozenset[tuple[str, str]]:
    """The parameters that are the current stream where none is given, and that do nothing but wait.

    Whoever makes such a stream wait for what it is about to use, and records it there, uses it on that stream: who
    gives one gives the stream that is current then.

    Args:
        statements: a file.
        functions: its functions by qualified name.

    Returns:
        Qualified names of functions with names of their parameters.
    """
    harmless: set[int] = set()
    used: dict[str, set[int]] = defaultdict(set)
    for statement in statements:
        for node in needles.walk(statement):
            harmless |= set(map(id, _only_waits(node)))
            if isinstance(node, ast.Attribute):
                used[node.attr].add(id(node))
    found = set()
    for qualname, function in functions.items():
        names: dict[str, set[int]] = defaultdict(set)
        defaults: set[str] = set()
        kept: dict[str, set[str]] = defaultdict(set)
        others: set[str] = set()
        for node in needles.walk(function):
            if isinstance(node, ast.Name):
                names[node.id].add(id(node))
            elif isinstance(node, ast.Assign) and len(node.targets) == 1:
                target, value = node.targets[0], node.value
                value = value.values[-1] if isinstance(value, ast.BoolOp) else value
                if isinstance(target, ast.Name):
                    (defaults if _asks_for_current(value) else others).add(target.id)
                elif isinstance(target, ast.Attribute) and isinstance(value, ast.Name):
                    kept[value.id].add(target.attr)
        for name in defaults - others:
            if names[name] <= harmless and all(used[attribute] <= harmless for attribute in kept[name]):
                found.add((qualname, name))
    return frozenset(found)


def _only_waits(node: ast.AST) -> Iterable[ast.AST]:
    """The streams that are given a default here, kept, asked for, made to wait, or have memory recorded on them."""
    if isinstance(node, ast.Assign) and len(node.targets) == 1:
        yield node.targets[0]
        yield node.value
        parts = node.value.values if isinstance(node.value, ast.BoolOp) else [node.value]
        yield from parts
        for part in parts:
            if _asks_for_current(part):
                yield from ast.iter_child_nodes(part)
    elif isinstance(node, ast.Call):
        yield from _waiting(node)
    elif isinstance(node, ast.Compare) and _is_none(node.comparators[-1]):
        yield node.left
    elif isinstance(node, (ast.If, ast.IfExp)):
        yield node.test


def _waiting(call: ast.Call) -> Iterable[ast.expr]:
    """The streams that a call makes wait, or waits for, or on which it records memory."""
    name = last_name(call.func)
    if name in ("wait_stream", "wait_event") and isinstance(call.func, ast.Attribute):
        yield call.func.value
        yield from call.args
    elif name == "record_stream" or (name == "wait" and len(call.args) == 1):
        yield from call.args


def _asks_for_current(node: ast.expr) -> bool:
    """Whether a value is the stream that is current now, if any."""
    if isinstance(node, ast.IfExp):
        return _asks_for_current(node.body) or _asks_for_current(node.orelse)
    return isinstance(node, ast.Call) and last_name(node.func) == "current_stream"


def _is_for_good(call: ast.Call) -> bool:
    return last_name(call.func) == "set_stream" and len(call.args) == 1


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _word(node: ast.expr) -> str | None:
    """A name or an attribute, by its last word."""
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else None
