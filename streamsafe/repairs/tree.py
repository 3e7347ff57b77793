"""The LibCST tree at a place of a file, and codemods on it: what they do not change stays as it is written.

Only the outermost statements that a repair is about are parsed: a LibCST tree of a whole file costs ten times as much.
"""

from __future__ import annotations

import ast
import difflib
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import libcst as cst
from libcst.metadata import CodeRange, MetadataWrapper, ParentNodeProvider, PositionProvider

from streamsafe.findings.edits import Edit
from streamsafe.order.hazard import Span
from streamsafe.repairs.names import File

Line = cst.SimpleStatementLine | cst.BaseCompoundStatement
"""A statement with lines of its own."""

Function = cst.FunctionDef


@dataclass(frozen=True, slots=True)
class _Parsed:
    module: cst.Module
    positions: dict[cst.CSTNode, CodeRange]
    parents: dict[cst.CSTNode, cst.CSTNode]


@lru_cache(maxsize=8)
def _parse(text: str) -> _Parsed | None:
    try:
        wrapper = MetadataWrapper(cst.parse_module(text), unsafe_skip_copy=True)
        positions, parents = wrapper.resolve(PositionProvider), wrapper.resolve(ParentNodeProvider)
    except (cst.ParserSyntaxError, cst.CSTValidationError, RecursionError, KeyError):
        return None  # LibCST's positions turn a RecursionError into a KeyError
    return _Parsed(wrapper.module, dict(positions), dict(parents))


class Tree:
    """Some neighbouring statements of a module.

    Args:
        text: their lines.
        above: how many lines of the file come before them.
    """

    def __init__(self, parsed: _Parsed, text: str, above: int) -> None:
        self.module = parsed.module
        self._text = text
        self._above = above
        self._positions = parsed.positions
        self._parents = parsed.parents

    @staticmethod
    def around(source: str, *spans: Span) -> Tree | None:
        """The outermost statements that hold some spans, and those between them; None where they do not parse."""
        file = File.of(source)
        if file is None:
            return None
        held = [range_ for span in spans if (range_ := _outermost(file.tree, span)) is not None]
        if len(held) < len(spans) or not held:
            return None
        first, last = min(start for start, _ in held), max(end for _, end in held)
        text = "\n".join(file.lines[first - 1 : last]) + "\n"
        parsed = _parse(text)
        return Tree(parsed, text, first - 1) if parsed is not None else None

    @staticmethod
    def of(source: str) -> Tree | None:
        """A whole file; None where it does not parse."""
        text = source if source.endswith("\n") else f"{source}\n"
        parsed = _parse(text)
        return Tree(parsed, text, 0) if parsed is not None else None

    # -- questions ---------------------------------------------------------------------------------------------------

    def at(self, span: Span) -> cst.CSTNode:
        """The innermost expression or statement that holds a span; the module where none does."""
        first = (span.row - self._above, span.column - 1)
        last = (span.end_row - self._above, span.end_column - 1)
        found: cst.CSTNode = self.module
        size = None
        for node, range_ in self._positions.items():
            begin, end = (range_.start.line, range_.start.column), (range_.end.line, range_.end.column)
            if (
                begin <= first
                and last <= end
                and isinstance(node, (cst.BaseExpression, Line, cst.BaseSmallStatement))
            ):
                here = (range_.end.line - range_.start.line, end[1] - begin[1])
                if size is None or here < size:
                    found, size = node, here
        return found

    def row(self, node: cst.CSTNode) -> int:
        """Where a node begins in the file."""
        return self._positions[node].start.line + self._above

    def outward(self, node: cst.CSTNode) -> Iterator[cst.CSTNode]:
        """A node and what it is in, up to the module."""
        here: cst.CSTNode | None = node
        while here is not None:
            yield here
            here = self._parents.get(here)

    def around_node(self, node: cst.CSTNode, kind: type[cst.CSTNode]) -> Iterator[cst.CSTNode]:
        """The nodes of a kind around a node, the innermost first, up to its function."""
        for each in self.outward(node):
            if isinstance(each, kind):
                yield each
            if isinstance(each, (cst.FunctionDef, cst.ClassDef, cst.Lambda)) and each is not node:
                return

    def line(self, node: cst.CSTNode) -> Line | None:
        """The statement of a node, where others can be put beside it: it shares its line with none."""
        for each in self.outward(node):
            if isinstance(each, (cst.SimpleStatementLine, cst.BaseCompoundStatement)):
                alone = isinstance(self._parents.get(each), (cst.IndentedBlock, cst.Module))
                many = isinstance(each, cst.SimpleStatementLine) and len(each.body) > 1
                return each if alone and not many else None
        return None

    def line_at(self, row: int) -> Line | None:
        """The statement that begins in a row of the file."""
        for node in self._positions:
            if (
                isinstance(node, (cst.SimpleStatementLine, cst.BaseCompoundStatement))
                and self.row(node) == row
            ):
                return self.line(node)
        return None

    def siblings(self, line: Line) -> Sequence[cst.BaseStatement]:
        """The statements of the block that a statement is in."""
        block = self._parents[line]
        return block.body if isinstance(block, (cst.IndentedBlock, cst.Module)) else ()

    def scope(self, node: cst.CSTNode) -> cst.CSTNode:
        """The innermost function, or the module."""
        return next((each for each in self.outward(node) if isinstance(each, cst.FunctionDef)), self.module)

    def code(self, node: cst.CSTNode) -> str:
        """The source of a node."""
        return self.module.code_for_node(node).strip()

    def mentions(self, name: str) -> bool:
        """Whether a name stands anywhere in these statements."""
        return any(isinstance(node, cst.Name) and node.value == name for node in self._positions)

    def walk(self, node: cst.CSTNode) -> Iterator[cst.CSTNode]:
        """A node and all nodes in it, in the order of the source."""
        yield node
        for child in node.children:
            yield from self.walk(child)

    # -- changes -----------------------------------------------------------------------------------------------------

    def edits(self, mod: Codemod) -> tuple[Edit, ...]:
        """What a codemod changes in the file.

        Only the statements that it changes are written out, where they stand in lines of their own.
        """
        mod.around = {above for node in mod.targets() for above in self.outward(node)}
        changed = {self._own_line(node) for node in mod.targets()}
        lines = [line for line in changed if line is not None]
        inside = {
            line for line in lines for above in self.outward(line) if above in changed and above != line
        }
        found: list[Edit] = []
        for line in sorted(set(lines) - inside, key=self.row):
            here = self._local(line, mod) if None not in changed else None
            if here is None:
                return tuple(_differences(self._text, self.module.visit(mod).code, self._above))
            found += here
        return tuple(found)

    def _own_line(self, node: cst.CSTNode) -> Line | None:
        """The innermost statement around a node that is one of a block."""
        for each in self.outward(node):
            if isinstance(each, (cst.SimpleStatementLine, cst.BaseCompoundStatement)) and isinstance(
                self._parents.get(each), (cst.IndentedBlock, cst.Module)
            ):
                return each
        return None

    def _local(self, line: Line, mod: Codemod) -> list[Edit] | None:
        """The edits in one statement; None where it does not stand in the text as it is written out."""
        old = self._written([line], line)
        start = self.row(line) - self._above - 1 - len(line.leading_lines)
        after = line.visit(mod)
        body = (
            [*after]
            if isinstance(after, cst.FlattenSentinel)
            else [after]
            if isinstance(after, cst.CSTNode)
            else []
        )
        if (
            start < 0
            or not body
            or self._text.split("\n")[start : start + old.count("\n")] != old.split("\n")[:-1]
        ):
            return None
        return list(_differences(old, self._written(body, line), self._above + start))

    def _written(self, body: Sequence[cst.BaseStatement], line: Line) -> str:
        """The source of statements in the place of one."""
        indent = self._text.split("\n")[self.row(line) - self._above - 1][
            : self._positions[line].start.column
        ]
        if not indent:
            return self.module.with_changes(header=(), footer=(), body=body).code
        block = cst.If(cst.Name("_"), cst.IndentedBlock(body, indent=indent))
        return self.module.with_changes(header=(), footer=(), body=[block]).code.partition("\n")[2]


Change = Callable[[cst.CSTNode], cst.CSTNode]


@dataclass
class Codemod(cst.CSTTransformer):
    """Statements put beside others, taken away, and nodes replaced; all at once.

    Attributes:
        around: what is changed, and all that it is in: only this is visited.
    """

    around: set[cst.CSTNode] = field(default_factory=set)
    _before: dict[cst.CSTNode, list[cst.BaseStatement]] = field(default_factory=lambda: defaultdict(list))
    _after: dict[cst.CSTNode, list[cst.BaseStatement]] = field(default_factory=lambda: defaultdict(list))
    _gone: set[cst.CSTNode] = field(default_factory=set)
    _new: dict[cst.CSTNode, Change] = field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__init__()

    def before(self, line: Line, *statements: str | cst.BaseStatement) -> None:
        """Put statements before one."""
        self._before[line] += map(_statement, statements)

    def after(self, line: Line, *statements: str | cst.BaseStatement) -> None:
        """Put statements after one."""
        self._after[line] += map(_statement, statements)

    def remove(self, line: Line) -> None:
        """Take a statement away, with the comments above it."""
        self._gone.add(line)

    def replace(self, node: cst.CSTNode, change: Change) -> None:
        """Replace a node by what a function makes of it, when what is in it has been changed."""
        self._new[node] = change

    def targets(self) -> Iterator[cst.CSTNode]:
        """The nodes that are changed, and those that get neighbours."""
        for some in (self._before, self._after, self._gone, self._new):
            yield from some

    def on_visit(self, node: cst.CSTNode) -> bool:
        """Whether there is something to change in a node."""
        return node in self.around

    def on_leave(  # type: ignore[override]
        self, original_node: cst.CSTNode, updated_node: cst.CSTNode
    ) -> cst.CSTNode | cst.FlattenSentinel[cst.CSTNode] | cst.RemovalSentinel:
        """Make the changes of one node."""
        change = self._new.get(original_node)
        new = change(updated_node) if change is not None else updated_node
        before, after = self._before.get(original_node, []), self._after.get(original_node, [])
        gone = original_node in self._gone
        if not before and not after:
            return cst.RemoveFromParent() if gone else new
        if before and not gone:  # comments above a statement stay above what is put before it
            assert isinstance(new, (cst.SimpleStatementLine, cst.BaseCompoundStatement))
            before = [before[0].with_changes(leading_lines=new.leading_lines), *before[1:]]
            new = new.with_changes(leading_lines=())
        return cst.FlattenSentinel([*before, *([] if gone else [new]), *after])


def _statement(code: str | cst.BaseStatement) -> cst.BaseStatement:
    return cst.parse_statement(code) if isinstance(code, str) else code


def _outermost(tree: ast.Module, span: Span) -> tuple[int, int] | None:
    """The rows of the outermost statement that holds a span, with its decorators."""
    for node in tree.body:
        if node.lineno <= span.row and span.end_row <= (node.end_lineno or node.lineno):
            decorators = getattr(node, "decorator_list", [])
            return min([node.lineno, *(each.lineno for each in decorators)]), node.end_lineno or node.lineno
    return None


def _differences(old: str, new: str, above: int) -> Iterator[Edit]:
    """The edits that make one text of another: whole lines, and within a line what differs."""
    before, after = old.split("\n"), new.split("\n")
    for tag, a, b, c, d in difflib.SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        if tag == "equal":
            continue
        if tag == "replace" and b - a == d - c:
            for row, (one, other) in enumerate(zip(before[a:b], after[c:d], strict=True), a + above + 1):
                yield _within(row, one, other)
            continue
        content = "".join(f"{line}\n" for line in after[c:d])
        yield Edit(a + above + 1, 1, b + above + 1, 1, content)


def _within(row: int, old: str, new: str) -> Edit:
    """The edit of one line, without what is the same at both ends."""
    start = 0
    while start < min(len(old), len(new)) and old[start] == new[start]:
        start += 1
    end = 0
    while end < min(len(old), len(new)) - start and old[-1 - end] == new[-1 - end]:
        end += 1
    return Edit(row, start + 1, row, len(old) - end + 1, new[start : len(new) - end])
