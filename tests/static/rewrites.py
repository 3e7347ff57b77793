"""Ways to write a program again that change nothing of what it does: comments, names, modules, blocks and arguments.

Each takes the text of a file and gives the texts of the files that replace it, with a map from new rows to old ones.
"""

from __future__ import annotations

import ast
import builtins
import re
import tokenize
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from io import StringIO
from pathlib import PurePath
from queue import Queue
from threading import Thread

from streamsafe.static.models.load import load

Function = ast.FunctionDef | ast.AsyncFunctionDef

MARK = "qx"
"""What new names begin with; what a name hint says of the old one it says of the new one, too."""


@dataclass
class Rewritten:
    """A program, written again.

    Attributes:
        files: name -> text.
        rows: row of the main file -> row of the original; the others keep their rows.
    """

    files: dict[str, str]
    rows: dict[int, int] = field(default_factory=dict)

    def original(self, row: int) -> int:
        """The row at which something stood before."""
        return self.rows.get(row, row)


# -- lines -------------------------------------------------------------------------------------------------------------


def with_lines(name: str, text: str, before: dict[int, list[str]]) -> Rewritten:
    """Lines inserted before rows (from 1)."""
    out: list[str] = []
    rows: dict[int, int] = {}
    for row, line in enumerate(text.splitlines(), 1):
        out += before.get(row, ())
        out.append(line)
        rows[len(out)] = row
    return Rewritten({name: "\n".join(out) + "\n"}, rows)


def functions(tree: ast.AST) -> Iterator[Function]:
    """All functions, outer ones first."""
    for node in ast.walk(tree):
        if isinstance(node, Function):
            yield node


def bodies(tree: ast.AST) -> Iterator[tuple[Function, list[ast.stmt]]]:
    """Functions that begin on a line of their own, and their statements but for a docstring."""
    for node in functions(tree):
        statements = node.body[1:] if ast.get_docstring(node) is not None else node.body
        if statements and statements[0].lineno > node.lineno:
            yield node, statements


def first_line(statement: ast.stmt) -> int:
    """Where a statement begins, decorators included."""
    decorators: list[ast.expr] = getattr(statement, "decorator_list", [])
    return min([statement.lineno, *(d.lineno for d in decorators)])


def commented(name: str, text: str) -> Rewritten:
    """Sixteen comment lines and a blank one at the beginning of each function."""
    before = {first_line(body[0]): ["# nothing"] * 16 + [""] for _, body in bodies(ast.parse(text))}
    return with_lines(name, text, before)


def spread(name: str, text: str) -> Rewritten:
    """Blank lines between the statements of functions."""
    rows = {first_line(s) for _, body in bodies(ast.parse(text)) for s in body}
    return with_lines(name, text, {row: ["", ""] for row in rows})


# -- blocks ------------------------------------------------------------------------------------------------------------


def in_blocks(name: str, text: str, head: str, imports: str = "") -> Rewritten:
    """The body of each function that lies in no other, in a block."""
    tree = ast.parse(text)
    lines = text.splitlines()
    held = {row for start, end in long_strings(text) for row in range(start, end + 1)}
    inner = {id(n) for node in functions(tree) for n in ast.walk(node) if n is not node}
    before: dict[int, list[str]] = {}
    deeper: set[int] = set()
    for node, body in bodies(tree):
        start, end = first_line(body[0]), node.end_lineno or node.lineno
        if id(node) in inner or held & set(range(start, end + 1)) or any_declares(body):
            continue
        before[start] = [" " * body[0].col_offset + head]
        deeper.update(range(start, end + 1))
    moved = "\n".join(
        f"    {line}" if row in deeper and line.strip() else line for row, line in enumerate(lines, 1)
    )
    if imports:
        before.setdefault(after_imports(tree), []).insert(0, imports)
    return with_lines(name, moved, before)


def any_declares(body: list[ast.stmt]) -> bool:
    """Whether a body declares names: that cannot be put into a block after their use, and need not."""
    return any(isinstance(statement, ast.Global | ast.Nonlocal) for statement in body)


def after_imports(tree: ast.Module) -> int:
    """The row of the first statement that is no docstring and no import from the future."""
    for node in tree.body:
        docstring = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if not docstring and not (isinstance(node, ast.ImportFrom) and node.module == "__future__"):
            return first_line(node)
    return 1


def long_strings(text: str) -> Iterator[tuple[int, int]]:
    """The rows of strings over several lines."""
    for token in tokenize.generate_tokens(StringIO(text).readline):
        if token.start[0] != token.end[0] and token.type not in (tokenize.NEWLINE, tokenize.NL):
            yield token.start[0], token.end[0]


def in_if_true(name: str, text: str) -> Rewritten:
    """``if True:`` around the body of each function."""
    return in_blocks(name, text, "if True:")


def in_null_context(name: str, text: str) -> Rewritten:
    """``with nullcontext():`` around the body of each function."""
    return in_blocks(name, text, "with qx_contextlib.nullcontext():", "import contextlib as qx_contextlib")


# -- edits of lines that keep their rows -------------------------------------------------------------------------------


def edited(text: str, edits: Iterable[tuple[int, int, int, str]]) -> str:
    """A text with (row, column, end column, new text) replaced; columns count bytes."""
    lines = [line.encode() for line in text.splitlines()]
    for row, start, end, new in sorted(edits, reverse=True):
        line = lines[row - 1]
        lines[row - 1] = line[:start] + new.encode() + line[end:]
    return b"\n".join(lines).decode() + "\n"


def with_second_names(name: str, text: str) -> Rewritten:
    """``x = e`` becomes ``y = e; x = y; del y``, where it is a statement of one line in a function."""
    edits = []
    for _, body in bodies(ast.parse(text)):
        for node in (n for statement in body for n in ast.walk(statement)):
            if not isinstance(node, ast.Assign) or node.lineno != node.end_lineno or len(node.targets) != 1:
                continue
            target = node.targets[0]
            if isinstance(target, ast.Name) and node.end_col_offset is not None:
                other = f"{MARK}_{target.id}"
                edits.append((node.lineno, target.col_offset, target.end_col_offset or 0, other))
                edits.append(
                    (
                        node.lineno,
                        node.end_col_offset,
                        node.end_col_offset,
                        f"; {target.id} = {other}; del {other}",
                    )
                )
    return Rewritten({name: edited(text, set(edits))})


def with_keywords(name: str, text: str) -> Rewritten:
    """Arguments of the file's own functions are given by name."""
    tree = ast.parse(text)
    known: dict[str, Function | None] = {}
    for node in tree.body:
        if isinstance(node, Function):
            known[node.name] = None if node.name in known or node.decorator_list else node
    assigned = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    edits = []
    for call in ast.walk(tree):
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name) or call.func.id in assigned:
            continue
        callee = known.get(call.func.id)
        if callee is None or callee.args.posonlyargs or callee.args.vararg:
            continue
        if any(isinstance(a, ast.Starred) for a in call.args) or len(call.args) > len(callee.args.args):
            continue
        for given, parameter in zip(call.args, callee.args.args, strict=False):
            if not isinstance(given, ast.GeneratorExp):
                edits.append((given.lineno, given.col_offset, given.col_offset, f"{parameter.arg}="))
            else:
                break
    lines = text.splitlines()
    whole = [e for e in edits if not lines[e[0] - 1].encode()[: e[1]].rstrip().endswith(b"((")]
    return Rewritten({name: edited(text, whole)})


# -- names -------------------------------------------------------------------------------------------------------------


def vocabulary() -> frozenset[str]:
    """Names that libraries, Python or the models give a meaning to."""
    models = load()
    words = {part for row in models._rows for part in row.split(".")}
    words |= {part for name in models.types for part in name.split(".")}
    for kind in (object, list, dict, set, str, bytes, int, float, tuple, deque, Queue, Thread, Exception):
        words.update(dir(kind))
    words.update(dir(builtins))
    words.update(
        "forward backward setup_context apply run main grad data requires_grad shape dtype device size setup".split()
    )
    try:
        import torch

        for owner in (torch, torch.Tensor, torch.nn.Module, torch.nn, torch.cuda, torch.optim.Optimizer):
            words.update(dir(owner))
    except ImportError:
        pass
    return frozenset(words)


_VOCABULARY: list[frozenset[str]] = []


def fixed_names() -> frozenset[str]:
    """The vocabulary, collected once."""
    if not _VOCABULARY:
        _VOCABULARY.append(vocabulary())
    return _VOCABULARY[0]


def new_name(old: str) -> str:
    """Another name, of which a hint says the same."""
    bare = old.lstrip("_")
    return old[: len(old) - len(bare)] + f"{MARK}_{bare}"


def renamed(name: str, text: str, wanted: Callable[[ast.Module], set[str]]) -> Rewritten:
    """Names of the file's own replaced everywhere in it."""
    tree = ast.parse(text)
    spoken = {
        w
        for n in ast.walk(tree)
        if isinstance(n, ast.Constant) and isinstance(n.value, str)
        for w in re.findall(r"\w+", n.value)
    }
    for formatted in (n for n in ast.walk(tree) if isinstance(n, ast.JoinedStr)):
        spoken |= {
            n.id for n in ast.walk(formatted) if isinstance(n, ast.Name)
        }  # one token before Python 3.12
        spoken |= {n.attr for n in ast.walk(formatted) if isinstance(n, ast.Attribute)}
    imported = {
        part
        for n in ast.walk(tree)
        if isinstance(n, ast.Import | ast.ImportFrom)
        for alias in n.names
        for part in (*alias.name.split("."), alias.asname or "")
    }
    names = {n for n in wanted(tree) - imported - spoken - fixed_names() if not n.startswith("__")}
    edits = []
    for token in tokenize.generate_tokens(StringIO(text).readline):
        if token.type == tokenize.NAME and token.string in names:
            start = len(token.line[: token.start[1]].encode())
            row = token.start[0]
            edits.append((row, start, start + len(token.string.encode()), new_name(token.string)))
    if any(row_is_long(text, row) for row, *_ in edits):
        return Rewritten({name: text})
    return Rewritten({name: edited(text, edits)})


def row_is_long(text: str, row: int) -> bool:
    """Whether a row lies in a string over several lines, whose tokens have no line of their own."""
    return any(start < row <= end for start, end in long_strings(text))


def locals_of(tree: ast.Module) -> set[str]:
    """Local variables and parameters that are nothing else anywhere in the file."""
    found: set[str] = set()
    for node in functions(tree):
        found |= {a.arg for a in ast.walk(node) if isinstance(a, ast.arg)}
        found |= {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    other = {n.attr for n in ast.walk(tree) if isinstance(n, ast.Attribute)}
    other |= {n.name for n in ast.walk(tree) if isinstance(n, Function | ast.ClassDef)}
    other |= keywords(tree) | {"self", "cls"}
    for statement in tree.body:
        if not isinstance(statement, Function | ast.ClassDef):
            other |= {n.id for n in ast.walk(statement) if isinstance(n, ast.Name)}
    return found - other - class_names(tree)


def class_names(tree: ast.Module) -> set[str]:
    """What class bodies bind."""
    return {
        n.id
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
        for statement in node.body
        if isinstance(statement, ast.Assign | ast.AnnAssign)
        for n in ast.walk(statement)
        if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
    }


def keywords(tree: ast.Module) -> set[str]:
    """Names of keyword arguments."""
    return {k.arg for n in ast.walk(tree) if isinstance(n, ast.Call) for k in n.keywords if k.arg}


def attributes_of(tree: ast.Module) -> set[str]:
    """Attributes that the file stores."""
    found = {n.attr for n in ast.walk(tree) if isinstance(n, ast.Attribute) and isinstance(n.ctx, ast.Store)}
    other = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name)} | {
        a.arg for a in ast.walk(tree) if isinstance(a, ast.arg)
    }
    return found - other - keywords(tree) - {n.name for n in functions(tree)}


def functions_of(tree: ast.Module) -> set[str]:
    """Functions and methods that the file defines."""
    found = {n.name for n in functions(tree)}
    stored = {n.attr for n in ast.walk(tree) if isinstance(n, ast.Attribute) and isinstance(n.ctx, ast.Store)}
    bound = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    return found - stored - bound - keywords(tree) - {a.arg for a in ast.walk(tree) if isinstance(a, ast.arg)}


def with_renamed_locals(name: str, text: str) -> Rewritten:
    """Other names for local variables and parameters."""
    return renamed(name, text, locals_of)


def with_renamed_attributes(name: str, text: str) -> Rewritten:
    """Other names for attributes."""
    return renamed(name, text, attributes_of)


def with_renamed_functions(name: str, text: str) -> Rewritten:
    """Other names for functions and methods."""
    return renamed(name, text, functions_of)


# -- modules -----------------------------------------------------------------------------------------------------------


def with_a_helper_elsewhere(name: str, text: str) -> Rewritten:
    """Functions that others of the file call, and that name nothing but imports, in a module of their own."""
    tree = ast.parse(text)
    imports = [n for n in tree.body if isinstance(n, ast.Import | ast.ImportFrom)]
    bound = {(a.asname or a.name).split(".")[0] for n in imports for a in n.names}
    called = {n.func.id for n in ast.walk(tree) if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)}
    moved: list[Function] = []
    for node in tree.body:
        if not isinstance(node, Function) or node.decorator_list or node.name not in called:
            continue
        own = {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
        own |= {a.arg for a in ast.walk(node) if isinstance(a, ast.arg)} | {n.name for n in functions(node)}
        used = {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}
        if used <= own | bound | set(dir(builtins)) and not any(
            isinstance(n, ast.Global) for n in ast.walk(node)
        ):
            moved.append(node)
    if not moved:
        return Rewritten({name: text})
    lines = text.splitlines()
    here, there = list(lines), [""] * len(lines)
    for statement in imports:
        for row in range(statement.lineno, (statement.end_lineno or 0) + 1):
            there[row - 1] = lines[row - 1]
    other = f"{MARK}_{PurePath(name).stem}"
    for helper in moved:
        for row in range(helper.lineno, (helper.end_lineno or 0) + 1):
            there[row - 1], here[row - 1] = lines[row - 1], ""
        here[helper.lineno - 1] = f"from {other} import {helper.name}"
    folder = PurePath(name).parent
    return Rewritten({name: "\n".join(here) + "\n", str(folder / f"{other}.py"): "\n".join(there) + "\n"})


REWRITES: dict[str, Callable[[str, str], Rewritten]] = {
    "comments": commented,
    "blank lines": spread,
    "if True": in_if_true,
    "nullcontext": in_null_context,
    "second names": with_second_names,
    "keywords": with_keywords,
    "renamed locals": with_renamed_locals,
    "renamed attributes": with_renamed_attributes,
    "renamed functions": with_renamed_functions,
    "helpers elsewhere": with_a_helper_elsewhere,
}
