"""Source transformations that the metamorphic tests apply to fixtures. Each is a LibCST transformer or a text edit."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence

import libcst as cst
import libcst.matchers as m

# Calls that make the context of a stream, a stream, or the default stream, by the last names of the callee.
STREAM_CONTEXT = m.Call(
    func=m.Attribute(attr=m.Name("stream") | m.Name("StreamContext")), args=[m.AtLeastN(n=1)]
)
NEW_STREAM = m.Call(
    func=m.Attribute(attr=m.Name("Stream") | m.Name("ExternalStream") | m.Name("default_stream"))
)
NULL_STREAM = m.Attribute(value=m.Attribute(attr=m.Name("Stream")), attr=m.Name("null") | m.Name("ptds"))
FACTORY = m.Attribute(attr=m.Name("Stream"))
SET_STREAM = m.Expr(value=m.Call(func=m.Attribute(attr=m.Name("set_stream") | m.Name("use"))))
CUPY = re.compile(r"^\s*import cupy\b", re.MULTILINE)
ORDERING = ("wait_stream", "wait_event", "wait", "synchronize", "record_stream")


class OneStream(cst.CSTTransformer):
    """Every stream becomes the current one: contexts vanish, `stream=`, `set_stream` and `async_op=` are dropped."""

    def __init__(self, cupy: bool) -> None:
        super().__init__()
        self._current = cst.parse_expression(
            "cp.cuda.get_current_stream()" if cupy else "torch.cuda.current_stream()"
        )
        self._factory = cst.parse_expression(
            "cp.cuda.get_current_stream" if cupy else "torch.cuda.current_stream"
        )

    def leave_With(
        self, original_node: cst.With, updated_node: cst.With
    ) -> cst.With | cst.FlattenSentinel[cst.BaseStatement]:
        kept = [item for item in updated_node.items if not m.matches(item.item, STREAM_CONTEXT)]
        if len(kept) == len(updated_node.items):
            return updated_node
        if kept:
            kept[-1] = kept[-1].with_changes(comma=cst.MaybeSentinel.DEFAULT)
            return updated_node.with_changes(items=kept)
        if not isinstance(updated_node.body, cst.IndentedBlock):
            return updated_node
        return cst.FlattenSentinel([s for s in updated_node.body.body if isinstance(s, cst.BaseStatement)])

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.BaseExpression:
        if m.matches(original_node, STREAM_CONTEXT):  # stored, chosen by a condition, entered by an ExitStack
            return cst.parse_expression("contextlib.nullcontext()")
        if m.matches(original_node, NEW_STREAM):
            return self._current
        kept = [
            a for a in updated_node.args if a.keyword is None or a.keyword.value not in ("stream", "async_op")
        ]
        if len(kept) == len(updated_node.args):
            return updated_node
        if kept:
            kept[-1] = kept[-1].with_changes(comma=cst.MaybeSentinel.DEFAULT)
        return updated_node.with_changes(args=kept)

    def leave_Attribute(
        self, original_node: cst.Attribute, updated_node: cst.Attribute
    ) -> cst.BaseExpression:
        return self._current if m.matches(original_node, NULL_STREAM) else updated_node

    def leave_Arg(self, original_node: cst.Arg, updated_node: cst.Arg) -> cst.Arg:
        # default_factory=torch.cuda.Stream
        return (
            updated_node.with_changes(value=self._factory)
            if m.matches(original_node.value, FACTORY)
            else updated_node
        )

    def leave_Expr(self, original_node: cst.Expr, updated_node: cst.Expr) -> cst.Expr | cst.Pass:
        return cst.Pass() if m.matches(original_node, SET_STREAM) else updated_node


def one_stream(text: str) -> str:
    """The program in which all streams are the current one."""
    changed = cst.parse_module(text).visit(OneStream(bool(CUPY.search(text))))
    return with_import(changed.code, "import contextlib")


class SynchronizeEverywhere(cst.CSTTransformer):
    """A device synchronize after every statement of a function, and at the head of every block."""

    LEAVING = (cst.Return, cst.Raise, cst.Break, cst.Continue)

    def __init__(self, cupy: bool) -> None:
        super().__init__()
        call = "cp.cuda.Device().synchronize()" if cupy else "torch.cuda.synchronize()"
        self._synchronize = cst.parse_statement(call)
        self._depth = 0

    def visit_FunctionDef(self, node: cst.FunctionDef) -> None:
        self._depth += 1

    def leave_FunctionDef(
        self, original_node: cst.FunctionDef, updated_node: cst.FunctionDef
    ) -> cst.FunctionDef:
        self._depth -= 1
        return updated_node

    def leave_IndentedBlock(
        self, original_node: cst.IndentedBlock, updated_node: cst.IndentedBlock
    ) -> cst.IndentedBlock:
        if not self._depth:
            return updated_node
        body: list[cst.BaseStatement] = []
        if not is_docstring(updated_node.body[0]):
            body.append(self._synchronize)
        for statement in updated_node.body:
            body.append(statement)
            leaves = isinstance(statement, cst.SimpleStatementLine) and isinstance(
                statement.body[-1], self.LEAVING
            )
            if not leaves:
                body.append(self._synchronize)
        return updated_node.with_changes(body=body)


def is_docstring(statement: cst.BaseStatement) -> bool:
    """Whether a statement is a string alone."""
    return m.matches(statement, m.SimpleStatementLine(body=[m.Expr(value=m.SimpleString())]))


def synchronized(text: str) -> str:
    """The program that waits for the device after each of its statements."""
    return cst.parse_module(text).visit(SynchronizeEverywhere(bool(CUPY.search(text)))).code


def with_import(text: str, line: str) -> str:
    """The text with an import beside its first one, unless it is there; rows stay as they are."""
    if re.search(rf"^{re.escape(line)}\b", text, re.MULTILINE):
        return text
    return re.sub(r"(?m)^(import \S+(?: as \w+)?)$", rf"\1; {line}", text, count=1)


# Slices and deletions


def slice_of(text: str, name: str) -> str:
    """A definition with the imports, constants and other definitions that it needs, at the rows where they were."""
    body = ast.parse(text).body
    defined = {
        n.name: n for n in body if isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))
    }
    wanted, todo = set[str](), [name]
    while todo:
        current = todo.pop()
        if current in wanted:
            continue
        wanted.add(current)
        todo += [n.id for n in ast.walk(defined[current]) if isinstance(n, ast.Name) and n.id in defined]
    kept: set[int] = set()
    for node in body:
        if getattr(node, "name", None) in wanted or not hasattr(node, "name"):
            start = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", []))])
            kept.update(range(start, (node.end_lineno or node.lineno) + 1))
    return "".join(
        line if row in kept else "\n" for row, line in enumerate(text.splitlines(keepends=True), 1)
    )


def ordering_statements(node: ast.AST) -> Iterator[ast.Expr]:
    """Statements that are one wait, synchronize or record_stream."""
    for statement in ast.walk(node):
        if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
            callee = statement.value.func
            if isinstance(callee, ast.Attribute) and callee.attr in ORDERING:
                yield statement


def without(text: str, statement: ast.stmt) -> str:
    """The text with one statement replaced by `pass`."""
    lines = text.splitlines(keepends=True)
    first, last = statement.lineno - 1, (statement.end_lineno or statement.lineno) - 1
    lines[first : last + 1] = [" " * statement.col_offset + "pass\n", *["\n"] * (last - first)]
    return "".join(lines)


# Spellings of the library


def balanced(text: str, start: int) -> int:
    """The index after the parenthesis that closes the one at `start`."""
    depth = 0
    for index in range(start, len(text)):
        depth += {"(": 1, ")": -1}.get(text[index], 0)
        if not depth:
            return index + 1
    raise ValueError(f"parenthesis never closed: {text[start : start + 40]!r}")


def accelerator(text: str) -> str:
    """torch.Stream, torch.Event and torch.accelerator; a stream is its own context."""
    opening = "torch.cuda.stream("
    while (start := text.find(opening)) >= 0:
        end = balanced(text, start + len(opening) - 1)
        text = text[:start] + "(" + text[start + len(opening) : end] + text[end:]
    text = re.sub(r"torch\.cuda\.(Stream|Event)\b", r"torch.\1", text)
    return re.sub(r"torch\.cuda\.(current_stream|set_stream|synchronize)\b", r"torch.accelerator.\1", text)


def import_as(text: str) -> str:
    """`import torch as t`, or as another name where the file has that one already."""
    alias = next(name for name in ("t", "th", "pt") if not re.search(rf"(?<![\w.]){name}\b", text))
    lines = text.splitlines(keepends=True)
    for index, line in enumerate(lines):
        if line == "import torch\n":
            lines[index] = f"import torch as {alias}\n"
        elif not line.startswith(("import ", "from ")):
            lines[index] = re.sub(r"(?<![\w.])torch\.", f"{alias}.", line)
    return "".join(lines)


def from_import(text: str) -> str:
    """`from torch.cuda import stream`, renamed only where the file has that name already."""
    names = sorted(set(re.findall(r"torch\.cuda\.(\w+)", text)))
    spelled = {name: name for name in names}
    for name in names:
        if re.search(rf"(?<![\w.\"']){name}\b(?!=)", re.sub(r"#.*", "", text)):
            spelled[name] = f"cuda_{name}"
    clause = ", ".join(name if name == alias else f"{name} as {alias}" for name, alias in spelled.items())
    text = re.sub(r"torch\.cuda\.(\w+)", lambda match: spelled[match[1]], text)
    return re.sub(r"(?m)^import torch$", f"import torch; from torch.cuda import {clause}", text, count=1)


def device_module(text: str) -> str:
    """`torch.get_device_module("cuda")` under a name of its own."""
    text = text.replace("torch.cuda.", "device_module.")
    line = 'import torch; device_module = torch.get_device_module("cuda")'
    return re.sub(r"(?m)^import torch$", line, text, count=1)


SPELLINGS = {
    "accelerator": accelerator,
    "import-as": import_as,
    "from-import": from_import,
    "device-module": device_module,
}


def suppressed(text: str, rows: Sequence[tuple[int, str]]) -> str:
    """The text with `# noqa: CODE` on each of the rows, instead of what stood in comments there."""
    lines = text.splitlines()
    codes: dict[int, list[str]] = {}
    for row, code in rows:
        codes.setdefault(row, []).append(code)
    for row, here in codes.items():
        lines[row - 1] = f"{lines[row - 1].split('  #')[0]}  # noqa: {', '.join(here)}"
    return "\n".join(lines) + "\n"
