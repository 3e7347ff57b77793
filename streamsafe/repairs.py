"""Repairs that one line before the finding does not make: an argument, a call around a value, lines around a block.

Each is a function of the place where a finding stands, by its code. It gives no edits where the source is not of the
shape
that it knows; who applies them checks the file again, and takes back what does not end its finding.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache

from streamsafe.edits import Edit
from streamsafe.order.hazard import Span

SIMPLE = (ast.Name, ast.Attribute, ast.Subscript)
"""Expressions that mean the same wherever they stand between two statements."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a finding stands.

    Attributes:
        lines: of the file, from row 1.
        nodes: the syntax tree's nodes around the finding, the module first.
        related: what its notes are about.
        help: the finding's.
    """

    lines: list[str]
    nodes: list[ast.AST]
    related: tuple[Span, ...] = ()
    help: str = ""

    @property
    def statement(self) -> ast.stmt | None:
        """The innermost statement."""
        return next((node for node in reversed(self.nodes) if isinstance(node, ast.stmt)), None)

    def around(self, kind: type[ast.AST]) -> Iterator[ast.AST]:
        """The nodes of a kind around the finding, the innermost first."""
        return (node for node in reversed(self.nodes) if isinstance(node, kind))

    @property
    def scope(self) -> ast.AST:
        """The innermost function, or the module."""
        functions = (ast.FunctionDef, ast.AsyncFunctionDef)
        return next((node for node in reversed(self.nodes) if isinstance(node, functions)), self.nodes[0])

    def text(self, node: ast.AST) -> str:
        """The source of a node."""
        return ast.get_source_segment("\n".join(self.lines), node) or ""

    def column(self, row: int, offset: int) -> int:
        """The column, from 1 and in characters, of an offset in bytes."""
        return len(self.lines[row - 1].encode()[:offset].decode()) + 1

    def before(self, statement: ast.stmt, line: str) -> Edit | None:
        """A line before a statement; None where the statement shares its line."""
        indent = self.lines[statement.lineno - 1][: self.column(statement.lineno, statement.col_offset) - 1]
        return (
            Edit(statement.lineno, 1, statement.lineno, 1, f"{indent}{line}\n")
            if not indent.strip()
            else None
        )

    def after(self, statement: ast.stmt, line: str) -> Edit | None:
        """A line after a statement; None where the statement shares its line."""
        indent = self.lines[statement.lineno - 1][: self.column(statement.lineno, statement.col_offset) - 1]
        row, column = self.end(statement)
        rest = self.lines[row - 1][column - 1 :].strip()
        if indent.strip() or (rest and not rest.startswith("#")):
            return None
        return Edit(row + 1, 1, row + 1, 1, f"{indent}{line}\n")

    def end(self, node: ast.stmt | ast.expr) -> tuple[int, int]:
        """Row and column behind a node."""
        row, offset = node.end_lineno or node.lineno, node.end_col_offset or 0
        return row, self.column(row, offset)

    def around_text(self, node: ast.expr, before: str, behind: str) -> list[Edit]:
        """Text before and behind an expression."""
        row, column = node.lineno, self.column(node.lineno, node.col_offset)
        end_row, end_column = self.end(node)
        edits = [Edit(row, column, row, column, before)] if before else []
        return [*edits, Edit(end_row, end_column, end_row, end_column, behind)]


Repair = Callable[[Place], tuple[str, list[Edit | None]] | None]
"""What is done, in one line, and the edits; None where it is not known how."""


def place(source: str, span: Span, related: tuple[Span, ...] = (), help: str = "") -> Place | None:
    """The place of a finding; None in a file that does not parse."""
    tree = _parse(source)
    if tree is None:
        return None
    lines = source.split("\n")
    first = (span.row, len(lines[span.row - 1][: span.column - 1].encode()))
    last = (span.end_row, len(lines[span.end_row - 1][: span.end_column - 1].encode()))
    nodes: list[ast.AST] = [tree]
    inside: ast.AST | None = tree
    while inside is not None:
        inside = next((node for node in _children(inside) if _holds(node, first, last)), None)
        if inside is not None:
            nodes.append(inside)
    return Place(lines, nodes, related, help)


@lru_cache(maxsize=4)
def _parse(source: str) -> ast.Module | None:
    import warnings

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _children(node: ast.AST) -> Iterator[ast.AST]:
    """Nodes with a position; those without one (arguments, items of a ``with``) stand for what is in them."""
    for child in ast.iter_child_nodes(node):
        if hasattr(child, "lineno"):
            yield child
        else:
            yield from _children(child)


def _holds(node: ast.AST, first: tuple[int, int], last: tuple[int, int]) -> bool:
    begin = (node.lineno, node.col_offset)  # type: ignore[attr-defined]
    end = (node.end_lineno, node.end_col_offset)  # type: ignore[attr-defined]
    return bool(begin <= first and last <= end)


def _call(at: Place) -> ast.Call | None:
    node = at.nodes[-1]
    if isinstance(node, ast.Expr):
        node = node.value
    return node if isinstance(node, ast.Call) else None


def timed_events(at: Place) -> tuple[str, list[Edit | None]] | None:
    """SS312: events are made with ``enable_timing=True``, or the host waits for the last one: as the help says."""
    call = _call(at)
    if call is None or at.statement is None:
        return None
    events = [*call.args]
    if isinstance(call.func, ast.Attribute) and call.func.attr == "elapsed_time":
        events.insert(0, call.func.value)
    names = [event for event in events if isinstance(event, SIMPLE)]
    if len(names) != 2:
        return None
    if "enable_timing" in at.help:
        untimed = [made for name in names for made in _made(at, name) if _untimed(made)]
        edits = [edit for made in untimed for edit in _timed(at, made)]
        return "make the events with enable_timing=True", edits
    if ".synchronize()" not in at.help:
        return None
    line = f"{at.text(names[1])}.synchronize()"
    return line, [at.before(at.statement, line)]


def _made(at: Place, name: ast.expr) -> Iterator[ast.Call]:
    """The calls whose result is assigned to a name in the same function, or to an attribute anywhere in the file."""
    where = at.nodes[0] if isinstance(name, ast.Attribute) else at.scope
    wanted = ast.dump(name).replace("Load()", "Store()")
    for node in ast.walk(where):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
            if any(ast.dump(target) == wanted for target in node.targets):
                yield node.value


_TIMING = {"enable_timing": True, "disable_timing": False}
"""The argument of an event's constructor, and its value in an event with timing: PyTorch's and CuPy's."""


def _untimed(made: ast.Call) -> bool:
    name = made.func.attr if isinstance(made.func, ast.Attribute) else getattr(made.func, "id", "")
    given = [k.value for k in made.keywords if k.arg in _TIMING]
    return name == "Event" and all(isinstance(value, ast.Constant) for value in given)


def _timed(at: Place, made: ast.Call) -> list[Edit | None]:
    """The event of a constructor's call with timing; nothing where it has that already."""
    for keyword in made.keywords:
        if keyword.arg in _TIMING and isinstance(keyword.value, ast.Constant):
            value, wanted = keyword.value, _TIMING[keyword.arg]
            row, column = value.lineno, at.column(value.lineno, value.col_offset)
            return [] if value.value is wanted else [Edit(row, column, *at.end(value), str(wanted))]
    return _with_argument(at, made, "enable_timing=True")


def _with_argument(at: Place, call: ast.Call, argument: str) -> list[Edit | None]:
    """One more argument of a call."""
    row, column = at.end(call)
    line = at.lines[row - 1]
    inside = line[: column - 2].rstrip()
    if line[column - 2 : column - 1] != ")":
        return []
    comma = "" if inside.endswith(("(", ",")) else ", "
    space = " " if inside.endswith(",") else ""
    return [Edit(row, column - 1, row, column - 1, f"{comma}{space}{argument}")]


def capturable(at: Place) -> tuple[str, list[Edit | None]] | None:
    """SS408: the optimizer is made with ``capturable=True``."""
    for span in at.related:
        made = place("\n".join(at.lines), span)
        call = _call(made) if made is not None else None
        name = call.func.attr if call is not None and isinstance(call.func, ast.Attribute) else ""
        if call is not None and name[:1].isupper() and not any(k.arg == "capturable" for k in call.keywords):
            return "make the optimizer with capturable=True", _with_argument(at, call, "capturable=True")
    return None


def registered_generator(at: Place) -> tuple[str, list[Edit | None]] | None:
    """SS404: the graph knows the generator before the capture begins."""
    call = _call(at)
    given = [k.value for k in call.keywords if k.arg == "generator"] if call is not None else []
    for block in at.around(ast.With):
        assert isinstance(block, ast.With)
        for item in block.items:
            graph = _captured(item.context_expr)
            if graph is not None and given and isinstance(given[0], SIMPLE):
                line = f"{at.text(graph)}.register_generator_state({at.text(given[0])})"
                return line, [at.before(block, line)]
    return None


def _captured(entered: ast.expr) -> ast.expr | None:
    """The graph of ``torch.cuda.graph(graph)``."""
    if (
        isinstance(entered, ast.Call)
        and isinstance(entered.func, ast.Attribute)
        and entered.func.attr == "graph"
    ):
        graph = entered.args[0] if entered.args else None
        return graph if isinstance(graph, SIMPLE) else None
    return None


def kept_output(at: Place) -> tuple[str, list[Edit | None]] | None:
    """SS412: a clone is kept, not the tensor that the next replay overwrites."""
    call = _call(at)
    if (
        call is None
        or not isinstance(call.func, ast.Attribute)
        or call.func.attr not in ("append", "put", "add")
    ):
        return None
    if len(call.args) != 1 or not isinstance(call.args[0], SIMPLE):
        return None
    kept = call.args[0]
    return f"keep {at.text(kept)}.clone()", list(at.around_text(kept, "", ".clone()"))


def filled_input(at: Place) -> tuple[str, list[Edit | None]] | None:
    """SS403: the captured tensor is filled, not replaced."""
    statement = at.statement
    if not isinstance(statement, ast.Assign) or len(statement.targets) != 1:
        return None
    target, value = statement.targets[0], statement.value
    if not isinstance(target, SIMPLE) or isinstance(value, (ast.Tuple, ast.Await, ast.Yield)):
        return None
    row, column = statement.lineno, at.column(statement.lineno, statement.col_offset)
    to_row, to_column = value.lineno, at.column(value.lineno, value.col_offset)
    end_row, end_column = at.end(value)
    if (end_row, end_column) != at.end(statement) or row != to_row:  # in brackets, or over several lines
        return None
    name = at.text(target)
    return f"fill it in place: {name}.copy_(...)", [
        Edit(row, column, to_row, to_column, f"{name}.copy_("),
        Edit(end_row, end_column, end_row, end_column, ")"),
    ]


_WAITS = ("wait", "wait_event", "wait_stream")


def joined_stream(at: Place) -> tuple[str, list[Edit | None]] | None:
    """SS402: the side stream waits for the capturing one, and the capturing one for it."""
    call = _call(at)
    if call is not None and isinstance(call.func, ast.Attribute) and call.func.attr in _WAITS:
        return None  # on work that the capture does not have
    for block in at.around(ast.With):
        assert isinstance(block, ast.With)
        if len(block.items) != 1:
            continue
        entered = block.items[0].context_expr
        name = (
            entered.func.attr
            if isinstance(entered, ast.Call) and isinstance(entered.func, ast.Attribute)
            else ""
        )
        if name != "stream" or not isinstance(entered, ast.Call) or len(entered.args) != 1:
            continue
        module = at.text(entered.func.value) if isinstance(entered.func, ast.Attribute) else ""
        stream = entered.args[0]
        if not isinstance(stream, SIMPLE):
            return None
        side, current = at.text(stream), f"{module}.current_stream()"
        fork, join = f"{side}.wait_stream({current})", f"{current}.wait_stream({side})"
        return f"{fork}, and {join} at the end", [at.before(block, fork), at.after(block, join)]
    return None


REPAIRS: dict[str, Repair] = {
    "SS312": timed_events,
    "SS402": joined_stream,
    "SS403": filled_input,
    "SS404": registered_generator,
    "SS408": capturable,
    "SS412": kept_output,
}
"""By the rule's code."""


def _of_a_stream(item: ast.withitem) -> bool:
    """Whether a context may make a stream current: an object, or a call that says so."""
    entered = item.context_expr
    if not isinstance(entered, ast.Call):
        return True
    name = entered.func.attr if isinstance(entered.func, ast.Attribute) else getattr(entered.func, "id", "")
    return "stream" in name.lower()


def after_use(at: Place, line: str) -> tuple[str, list[Edit | None]] | None:
    """SS202: the allocating stream waits for the use, behind it and before the memory goes."""
    statement = at.statement
    if statement is None:
        return None
    if "current_stream()" in line:  # inside a `with` of a stream another one is current
        inside = at.nodes[at.nodes.index(at.scope) :]
        entered = (
            node for node in inside if isinstance(node, ast.With) and any(map(_of_a_stream, node.items))
        )
        statement = next(entered, statement)
    return line, [at.after(statement, line)]
