"""Where the line that adds a missing edge goes, where one place is certain."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

from streamsafe.order.hazard import Edge, Span
from streamsafe.order.lines import CURRENT, invented
from streamsafe.order.lines import code as code_of
from streamsafe.repairs.may_be_none import guard
from streamsafe.repairs.names import (
    File,
    Scope,
    attributes_of,
    dotted,
    holds,
    inside,
    names_of,
    of_self,
    path,
    statements,
)

_STREAMS = ("device", "use", "graph")
"""Calls in a ``with`` that make a stream current, beside those whose name says "stream"."""


@dataclass(frozen=True, slots=True)
class Insertion:
    """A line of code to put before the statement that begins in a row (from 1).

    Attributes:
        unless: the condition under which the line is run; empty for always.
    """

    row: int
    code: str
    unless: str = ""

    @property
    def statement(self) -> str:
        """The line as a statement."""
        return f"if {self.unless}:\n    {self.code}" if self.unless else self.code

    @property
    def line(self) -> str:
        """The same in one line."""
        return f"if {self.unless}: {self.code}" if self.unless else self.code


def insertion(source: str, edge: Edge, place: Span, other: Span | None) -> Insertion | None:
    """Where a line of code goes that orders two accesses, or None where no place is certain.

    It goes before the statement of ``place``; a line that has to run before a stream becomes current goes before the
    ``with`` that makes it so. Every name of the line must mean one thing there, and the same at both accesses.

    Args:
        source: the file.
        edge: the edge.
        place: where the finding stands.
        other: its other access; None for an operation that is wrong by itself.
    """
    code, before = code_of(edge), edge.when == "current"
    names = _names(edge)
    file = File.of(source)
    if names is None or file is None:
        return None
    scope = file.scope(place)
    if other is None:
        other = Span(place.filename, 0, 0, 0, 0)  # a place that no node holds
    around = list(path(scope, place))
    if edge.kind == "record" and around:
        tensor = code.partition(".record_stream(")[0]
        used = tensor if tensor in _loaded(around[-1]) else _only_tensor(around[-1], place)
        if not used:
            return None  # under another name it may be another tensor by now
        code = used + code.removeprefix(tensor)
        names = (names_of(code) or set()) - {used}  # the one that the statement uses
    if other.row and (
        place.filename != other.filename
        or (file.scope(other) is not scope and not _shared(file, names, place, other))
    ):
        return None
    if not around or (holds(around[-1], other) and not hasattr(around[-1], "body")):
        return None
    if event_of_another_device(source, edge, place, other):
        return None
    statement = around[-1]
    if file.scope(other) is not scope and other.row and file.calls_its_own(statement):
        return None  # what it calls may make the first access
    entered = [node for node in around if isinstance(node, ast.With) and any(map(_of_a_stream, node.items))]
    if before:
        entered = [node for node in entered if not holds(node, other)]
        if not entered:
            return None
        statement = entered[0]
    elif entered and _of_the_current_stream(edge):  # another one is current there than the finding means
        return None
    elif edge.kind == "wait":
        statement = _where_taken(around, other) or statement
    start = file.lines[statement.lineno - 1]
    indent = start[: len(start) - len(start.lstrip())]
    alone = len(indent.encode()) == statement.col_offset and not start.lstrip().startswith("elif")
    if not alone or isinstance(statement, (ast.While, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        return None
    above = file.lines[statement.lineno - 2].strip() if statement.lineno > 1 else ""
    if above == code or (before and above.startswith(code.partition("(")[0] + "(")):
        return None  # it stands there already, or a wait of this stream for another one does
    inner = [node for node in _later(statement) if holds(node, place)]
    if any(not holds(node, other) for node in inner):
        return None
    if not file.knows(names, scope, statement) or not attributes_of(code) <= file.assigned(place):
        return None
    return Insertion(statement.lineno, code, guard(file, statement, code))


def _names(edge: Edge) -> set[str] | None:
    """The names that the line of an edge needs; None where a stream has none: what the file calls so is another one."""
    return None if invented(edge) else names_of(code_of(edge))


def event_of_another_device(source: str, edge: Edge, place: Span, other: Span) -> bool:
    """Whether the line makes an event of one device and records it on a stream of another, which fails (TG-07).

    CuPy makes the event on the device that is current where the line stands.
    """
    file = File.of(source)
    if file is None or edge.kind != "wait" or edge.library != "cupy" or not other.row:
        return False
    here, there = (
        [
            ast.unparse(item.context_expr)
            for node in path(file.scope(each), each)
            if isinstance(node, ast.With)
            for item in node.items
            if isinstance(item.context_expr, ast.Call)
            and dotted(item.context_expr.func).rpartition(".")[2] == "Device"
        ]
        for each in (place, other)
    )
    return here != there


def handed_out(source: str, edge: Edge, place: Span, other: Span) -> Insertion | None:
    """Where a wait goes whose stream only another class knows: where its method takes out what it hands over.

    A prefetcher copies a batch on a stream of its own and hands it out by a method; the caller's stream has to wait in
    that method, before the batch is taken out.

    Args:
        source: the file.
        edge: the edge, whose streams are attributes of ``self``.
        place: the second access, outside the class.
        other: the first access, in a method of the class.
    """
    code = code_of(edge)
    names, file = _names(edge), File.of(source)
    if edge.when == "current" or names is None or file is None or place.filename != other.filename:
        return None
    owner = file.owner(other)
    if owner is None or file.owner(place) is owner or not attributes_of(code) <= file.assigned(other):
        return None
    if "self" not in names or not all(file.is_global(name) for name in names - {"self"}):
        return None
    kept = _kept(file, other)
    found = [
        taken
        for method in owner.body
        if isinstance(method, ast.FunctionDef) and _is_called(method.name, file.scope(place))
        if (taken := _taken(method, kept, other)) is not None
    ]
    return Insertion(found[0].lineno, code, guard(file, found[0], code)) if len(found) == 1 else None


def after_use(source: str, edge: Edge, place: Span) -> int | None:
    """SS202: the row of the statement after which the allocating stream waits for a use; None where none is certain."""
    code = code_of(edge)
    names, file = _names(edge), File.of(source)
    if names is None or file is None or not attributes_of(code) <= file.assigned(place):
        return None
    scope = file.scope(place)
    around = list(path(scope, place))
    if not around or not file.knows(names, scope, around[-1]):
        return None
    statement = around[-1]
    if _of_the_current_stream(edge):  # inside a `with` of a stream another one is current
        entered = (
            node for node in around if isinstance(node, ast.With) and any(map(_of_a_stream, node.items))
        )
        statement = next(entered, statement)
    return None if isinstance(statement, (ast.Return, ast.Raise)) else statement.lineno


def _of_the_current_stream(edge: Edge) -> bool:
    """Whether an edge names the current stream, which another one may be elsewhere."""
    named = (edge.source, edge.target) if edge.kind == "wait" else (edge.source,)
    return edge.kind != "device" and any(stream.name == CURRENT for stream in named)


def visible(source: str, line: str, place: Span, other: Span) -> str:
    """A line of code without names that do not exist where it is shown: a comment says what they are.

    Args:
        source: the file.
        line: the line of code, as in a finding's help.
        place: where the finding stands.
        other: its other access, whose function knows the names.
    """
    code, _, comment = line.partition("  # ")
    names, file = names_of(code), File.of(source)
    if names is None or file is None:
        return line
    unknown = sorted(
        name for name in names if name != "self" and not file.sees(name, place) and file.sees(name, other)
    )
    paths = [(name, name) for name in unknown if f"{name} is " not in comment]
    if not file.sees("self", place) or file.owner(place) is not file.owner(other):
        missing = attributes_of(code) & file.assigned(other) - file.assigned(place)
        paths += [(f"self.{name}", f"self.{name}") for name in sorted(missing)]
    if not paths:
        return line
    function = inside(source, other.row)
    notes = [comment] if comment else []
    for path_, shown in paths:
        new = path_.rpartition(".")[2]
        while file.sees(new, place):
            new += "_"  # it is something else here
        code = re.sub(rf"(?<![\w.]){re.escape(path_)}\b", new, code)
        there = f" in {function}" if function else ""
        notes.append(f"{new} is {'that' if new == shown else shown}{there}")
    return f"{code}  # {', '.join(notes)}"


_AT_ONCE = {"all", "any", "dict", "list", "max", "min", "set", "sorted", "sum", "tuple"}


def _later(statement: ast.stmt) -> Iterator[ast.AST]:
    """The parts of a statement that may run after it: lambdas, and generators that no call consumes at once."""
    consumed = {
        id(arg)
        for node in ast.walk(statement)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _AT_ONCE
        for arg in node.args
    }
    for node in ast.walk(statement):
        if isinstance(node, ast.Lambda) or (isinstance(node, ast.GeneratorExp) and id(node) not in consumed):
            yield node


def _loaded(statement: ast.stmt) -> set[str]:
    """The names and the attributes of ``self`` that a statement reads."""
    names = (node for node in ast.walk(statement) if isinstance(node, (ast.Name, ast.Attribute)))
    return {ast.unparse(node) for node in names if isinstance(node.ctx, ast.Load)}


def _only_tensor(statement: ast.stmt, place: Span) -> str:
    """The name that a statement returns or gives to the call at a place, where that is the only one."""
    if isinstance(statement, ast.Return):
        return ast.unparse(statement.value) if isinstance(statement.value, _NAMES) else ""
    calls = [
        node
        for node in ast.walk(statement)
        if isinstance(node, ast.Call) and (node.lineno, node.col_offset + 1) == (place.row, place.column)
    ]
    arguments = [*calls[0].args, *(each.value for each in calls[0].keywords)] if calls else []
    return ast.unparse(arguments[0]) if len(arguments) == 1 and isinstance(arguments[0], _NAMES) else ""


_NAMES = (ast.Name, ast.Attribute)


def _where_taken(around: list[ast.stmt], other: Span) -> ast.stmt | None:
    """Where what a statement hands out is taken from an attribute, in the same block.

    A wait there is early enough, and does not wait for what is begun in between.
    """
    last = around[-1]
    value = last.value if isinstance(last, (ast.Return, ast.Expr)) else None
    handed = value.value if isinstance(value, ast.Yield) else value
    if not _hands(last) or not isinstance(handed, ast.Name) or len(around) < 2:
        return None
    block = next((body for body in _blocks(around[-2]) if last in body), [])
    before = block[: block.index(last)] if block else []
    taken = [node for node in before if handed.id in {*_targets(node)}]
    if len(taken) != 1 or holds(taken[0], other) or taken[0].lineno < other.row <= last.lineno:
        return None
    source = taken[0].value if isinstance(taken[0], ast.Assign) else None
    return taken[0] if isinstance(source, ast.Attribute) else None


def _blocks(node: ast.stmt) -> Iterator[list[ast.stmt]]:
    """The lists of statements in a statement."""
    for name in ("body", "orelse", "finalbody"):
        yield getattr(node, name, [])


def _targets(node: ast.stmt) -> Iterator[str]:
    """The names that a statement assigns by itself."""
    for target in node.targets if isinstance(node, ast.Assign) else ():
        if isinstance(target, ast.Name):
            yield target.id


def _shared(file: File, names: set[str], place: Span, other: Span) -> bool:
    """Whether names mean the same in the functions of two places: the module's, and ``self`` of one class."""
    if file.scope(place) is file.scope(other):
        return True
    same = file.owner(place) is file.owner(other) is not None
    return all(file.is_global(name) or (name == "self" and same) for name in names)


def _kept(file: File, span: Span) -> set[str]:
    """The attributes of ``self`` that the statement of an access assigns."""
    around = list(path(file.scope(span), span))
    return {node.attr for node in of_self(around[-1]) if isinstance(node.ctx, ast.Store)} if around else set()


def _is_called(method: str, scope: Scope) -> bool:
    """Whether a scope calls a method of this name, by a loop or ``next`` too."""
    for node in ast.walk(scope):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == method:
            return True
        if method == "__next__" and isinstance(node, ast.Call) and getattr(node.func, "id", "") == "next":
            return True
        if method in ("__next__", "__iter__") and isinstance(node, (ast.For, ast.comprehension)):
            return True
    return False


def _taken(method: ast.FunctionDef, kept: set[str], other: Span) -> ast.stmt | None:
    """The statement of a method that takes an attribute to hand it out; the `return` or `yield` behind the access."""
    handing = [node for node in statements(method) if _hands(node)]
    if not handing:
        return None
    if holds(method, other):
        behind = [node for node in handing if node.lineno > other.end_row]
        return (
            behind[0] if len(behind) == 1 == len(handing) and not _under_a_stream(method, behind[0]) else None
        )
    for node in statements(method):
        loads = (
            each
            for part in _own(node)
            for each in of_self(part)
            if isinstance(each.ctx, ast.Load) and each.attr in kept and id(each) not in _compared(node)
        )
        if next(loads, None) is not None:
            return None if _under_a_stream(method, node) or isinstance(node, ast.While) else node
    return None


def _compared(node: ast.stmt) -> set[int]:
    """What a statement only compares with None: that takes nothing out."""
    return {
        id(each.left)
        for part in _own(node)
        for each in ast.walk(part)
        if isinstance(each, ast.Compare)
        if isinstance(each.ops[0], (ast.Is, ast.IsNot))
        and isinstance(each.comparators[0], ast.Constant)
        and each.comparators[0].value is None
    }


def _hands(node: ast.stmt) -> bool:
    """Whether a statement gives a value to the caller."""
    if isinstance(node, ast.Return):
        return node.value is not None and not isinstance(node.value, ast.Constant)
    value = getattr(node, "value", None)
    return isinstance(node, (ast.Expr, ast.Assign)) and isinstance(value, ast.Yield)


def _own(node: ast.stmt) -> Iterator[ast.AST]:
    """The expressions of a statement, without the statements inside it."""
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, (ast.stmt, ast.excepthandler)):
            yield child


def _under_a_stream(method: ast.FunctionDef, node: ast.stmt) -> bool:
    around = path(method, Span("", node.lineno, 0, node.end_lineno or node.lineno, 0))
    return any(isinstance(each, ast.With) and any(map(_of_a_stream, each.items)) for each in around)


def _of_a_stream(item: ast.withitem) -> bool:
    """Whether a context may make a stream current: an object, or a call that says so."""
    entered = item.context_expr
    if not isinstance(entered, ast.Call):
        return True
    name = entered.func.attr if isinstance(entered.func, ast.Attribute) else getattr(entered.func, "id", "")
    return "stream" in name.lower() or name.lower() in _STREAMS
