"""Where a finding stands, as the codemods of the rules ask for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import libcst as cst

from streamsafe.order.hazard import Facts, Hazard, Span
from streamsafe.repairs.tree import Codemod, Line, Tree

SIMPLE = (cst.Name, cst.Attribute, cst.Subscript)
"""Expressions that mean the same wherever they stand between two statements."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a finding stands.

    Attributes:
        tree: the statements that hold it and its notes.
        node: the innermost expression or statement at its place.
        related: what its notes are about.
        hazard: what was found.
        other: the first access, where it is in the same file.
    """

    tree: Tree
    node: cst.CSTNode
    hazard: Hazard
    related: tuple[Span, ...] = ()
    other: Span | None = None

    @property
    def facts(self) -> Facts:
        """What is known of the finding."""
        return self.hazard.facts

    @property
    def line(self) -> Line | None:
        """The statement, where it shares its line with no other."""
        return self.tree.line(self.node)

    @property
    def call(self) -> cst.Call | None:
        """The call at the place."""
        return call_of(self.node)

    def code(self, node: cst.CSTNode) -> str:
        """The source of a node."""
        return self.tree.code(node)

    def free(self, *names: str) -> str:
        """The first of some names that the statements do not use, or one with a number."""
        free = (name for name in names if not self.tree.mentions(name))
        numbered = (name for number in range(2, 100) if not self.tree.mentions(name := f"{names[0]}{number}"))
        return next(free, "") or next(numbered)


Repair = Callable[[Place], tuple[str, Codemod] | None]
"""What is done, in one line, and how; None where no right repair is known."""


def call_of(node: cst.CSTNode) -> cst.Call | None:
    """The call that a node is, or that the statement is made of."""
    if isinstance(node, cst.SimpleStatementLine) and len(node.body) == 1:
        node = node.body[0]
    if isinstance(node, (cst.Expr, cst.Assign)):
        node = node.value
    return node if isinstance(node, cst.Call) else None


def name_of(call: cst.Call) -> str:
    """The last name of what is called."""
    if isinstance(call.func, cst.Attribute):
        return call.func.attr.value
    return call.func.value if isinstance(call.func, cst.Name) else ""


def receiver(call: cst.Call) -> cst.BaseExpression | None:
    """The object whose method is called."""
    return call.func.value if isinstance(call.func, cst.Attribute) else None


def keyword(call: cst.Call, name: str) -> cst.Arg | None:
    """A keyword argument."""
    return next((arg for arg in call.args if arg.keyword is not None and arg.keyword.value == name), None)


def with_argument(call: cst.Call, name: str, value: str) -> cst.Call:
    """A call with a keyword argument: the last one, or with another value where it stands."""
    given = keyword(call, name)
    new = cst.parse_expression(value)
    if given is not None:
        args = [arg.with_changes(value=new) if arg is given else arg for arg in call.args]
        return call.with_changes(args=args)
    equal = cst.AssignEqual(cst.SimpleWhitespace(""), cst.SimpleWhitespace(""))
    added = cst.Arg(new, keyword=cst.Name(name), equal=equal)
    args = list(call.args)
    if args:
        last = args[-1]
        if isinstance(last.comma, cst.Comma):  # a comma behind the last one stays behind the last one
            after = last.comma.whitespace_after
            args[-1] = last.with_changes(comma=cst.Comma(whitespace_after=cst.SimpleWhitespace(" ")))
            if isinstance(after, cst.ParenthesizedWhitespace):
                indent = cst.SimpleWhitespace(_indent(call))
                line = after.with_changes(last_line=indent)
                args[-1] = last.with_changes(comma=cst.Comma(whitespace_after=line))
            added = added.with_changes(comma=cst.Comma(whitespace_after=after))
        else:
            args[-1] = last.with_changes(
                comma=cst.Comma(whitespace_after=cst.SimpleWhitespace(" ")),
                whitespace_after_arg=cst.SimpleWhitespace(""),
            )
            added = added.with_changes(whitespace_after_arg=last.whitespace_after_arg)
    return call.with_changes(args=[*args, added])


def _indent(call: cst.Call) -> str:
    """How arguments of a call over several lines are indented: as the first one is."""
    before = call.whitespace_before_args
    if isinstance(before, cst.ParenthesizedWhitespace):
        return before.last_line.value
    commas = (arg.comma.whitespace_after for arg in call.args[:-1] if isinstance(arg.comma, cst.Comma))
    lines = (white.last_line.value for white in commas if isinstance(white, cst.ParenthesizedWhitespace))
    return next(lines, "")


def without_argument(call: cst.Call, name: str) -> cst.Call:
    """A call without a keyword argument."""
    args = [arg for arg in call.args if arg.keyword is None or arg.keyword.value != name]
    if args and len(args) < len(call.args) and isinstance(call.args[-1].comma, cst.MaybeSentinel):
        args[-1] = args[-1].with_changes(comma=cst.MaybeSentinel.DEFAULT)
    return call.with_changes(args=args)


def made(place: Place, name: cst.BaseExpression) -> Iterator[cst.Call]:
    """The calls whose result is assigned to a name in the same function, or to an attribute anywhere in the tree."""
    where = place.tree.module if isinstance(name, cst.Attribute) else place.tree.scope(place.node)
    wanted = place.code(name)
    for root in dict.fromkeys((where, place.tree.module)):
        found = [
            node.value
            for node in place.tree.walk(root)
            if isinstance(node, cst.Assign) and isinstance(node.value, cst.Call)
            if any(place.code(target.target) == wanted for target in node.targets)
        ]
        if found:
            yield from found
            return


def stored(node: cst.CSTNode) -> set[str]:
    """The names that statements assign."""
    found = set()
    for each in _walk(node):
        if isinstance(each, (cst.AssignTarget, cst.AnnAssign, cst.AugAssign, cst.For, cst.NamedExpr)):
            found |= {name.value for name in _walk(each.target) if isinstance(name, cst.Name)}
        elif isinstance(each, cst.AsName):
            found |= {name.value for name in _walk(each.name) if isinstance(name, cst.Name)}
    return found


def used(node: cst.CSTNode) -> set[str]:
    """All names in a node, without those of attributes and keywords."""
    return {each.value for each in _walk(node) if isinstance(each, cst.Name)}


def changed(node: cst.CSTNode) -> set[str]:
    """The names whose objects a node changes in place, by a method such as ``add_``."""
    found = set()
    for each in _walk(node):
        if (
            isinstance(each, cst.Call)
            and name_of(each).endswith("_")
            and isinstance(each.func, cst.Attribute)
        ):
            found |= used(each.func.value)
    return found


def _walk(node: cst.CSTNode) -> Iterator[cst.CSTNode]:
    yield node
    for child in node.children:
        if isinstance(node, cst.Attribute) and child is node.attr:
            continue
        if isinstance(node, cst.Arg) and child is node.keyword:
            continue
        yield from _walk(child)
