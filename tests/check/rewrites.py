"""Ways to write a program again that change nothing of what it does: comments, names, modules, blocks and arguments.

Each takes the text of a file and gives the texts of the files that replace it, with a map from new rows to old ones.
"""

from __future__ import annotations

import ast
import asyncio
import builtins
import contextlib
import multiprocessing
import re
import threading
import tokenize
import unittest
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import cache
from io import StringIO
from pathlib import PurePath
from queue import Queue
from threading import Thread

import numpy

from streamsafe.apis import names as apis

Function = ast.FunctionDef | ast.AsyncFunctionDef

MARK = "zk"
"""What new names begin with: nothing that a reader could take for a hint."""

COMMENT = "# global x; set_stream(s); s.wait_event(e); getattr(x, 'is_cuda') or x.is_cuda; t[i % 2].backward() == 'cpu'"
"""A comment that speaks of what matters in code."""


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
    before = {first_line(body[0]): [COMMENT] * 16 + [""] for _, body in bodies(ast.parse(text))}
    return with_lines(name, text, before)


def commented_once(name: str, text: str) -> Rewritten:
    """A comment line at the beginning of each function."""
    return with_lines(name, text, {first_line(body[0]): [COMMENT] for _, body in bodies(ast.parse(text))})


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
    return in_blocks(name, text, "with zk_contextlib.nullcontext():", "import contextlib as zk_contextlib")


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
    tree = ast.parse(text)
    shared = {n for node in ast.walk(tree) if isinstance(node, ast.Global | ast.Nonlocal) for n in node.names}
    for _, body in bodies(tree):
        for node in (n for statement in body for n in ast.walk(statement)):
            if not isinstance(node, ast.Assign):
                continue
            target = simple_target(node)
            if target is not None and target.id not in shared:
                end, other = node.end_col_offset or 0, f"{MARK}_{target.id}"
                edits.append((node.lineno, target.col_offset, target.end_col_offset or 0, other))
                edits.append((node.lineno, end, end, f"; {target.id} = {other}; del {other}"))
    return Rewritten({name: edited(text, set(edits))})


def simple_target(node: ast.Assign) -> ast.Name | None:
    """The variable that a statement of one line assigns."""
    target = node.targets[0]
    one = len(node.targets) == 1 and node.lineno == node.end_lineno
    return target if one and isinstance(target, ast.Name) else None


def with_aliases(name: str, text: str) -> Rewritten:
    """``x = e`` becomes ``x = e; y = x``, and later ``x`` becomes ``y``: variables of which that is the only
    assignment, and no other function knows.
    """
    edits = []
    for function, body in bodies(ast.parse(text)):
        nodes = [n for statement in function.body for n in ast.walk(statement)]
        if any(
            isinstance(n, Function | ast.Lambda | ast.ClassDef | ast.Global | ast.Nonlocal) for n in nodes
        ):
            continue
        uses = [n for n in nodes if isinstance(n, ast.Name)]
        bound = Counter(n.id for n in uses if not isinstance(n.ctx, ast.Load))
        bound.update(a.arg for a in ast.walk(function.args) if isinstance(a, ast.arg))
        held = {
            n.id
            for s in nodes
            if isinstance(s, ast.JoinedStr)
            for n in ast.walk(s)
            if isinstance(n, ast.Name)
        }
        for statement in body:
            target = simple_target(statement) if isinstance(statement, ast.Assign) else None
            if target is None or bound[target.id] != 1 or target.id in held:
                continue
            end, other = statement.end_col_offset or 0, f"{MARK}_{target.id}"
            edits.append((statement.lineno, end, end, f"; {other} = {target.id}"))
            edits += [
                (n.lineno, n.col_offset, n.end_col_offset or 0, other)
                for n in uses
                if n.id == target.id and n.lineno > statement.lineno
            ]
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


def strings_in(value: object) -> Iterator[str]:
    """The words of a table: of its keys, its values and its elements."""
    if isinstance(value, str):
        yield from re.findall(r"\w+", value)
    elif isinstance(value, Mapping):
        for key, held in value.items():
            yield from strings_in(key)
            yield from strings_in(held)
    elif isinstance(value, frozenset | set | tuple | list):
        for each in value:
            yield from strings_in(each)


@cache
def fixed_names() -> frozenset[str]:
    """Names that Python, a library or a table of library calls gives a meaning to."""
    words = {word for table in vars(apis).values() for word in strings_in(table)}
    for kind in (
        object,
        list,
        dict,
        set,
        str,
        bytes,
        int,
        float,
        tuple,
        deque,
        Queue,
        Thread,
        Future,
        Exception,
    ):
        words.update(dir(kind))
    for module in (builtins, threading, contextlib, unittest.TestCase, multiprocessing, asyncio):
        words.update(dir(module))
    words.update("setup_context apply run main step setup teardown setup_method acquire release".split())
    words.update(dir(numpy))
    words.update(dir(numpy.ndarray))
    try:
        import torch
    except ImportError:
        return frozenset(words)
    for owner in (
        torch,
        torch.Tensor,
        torch.nn.Module,
        torch.nn,
        torch.nn.functional,
        torch.cuda,
        torch.optim.Optimizer,
    ):
        words.update(dir(owner))
    for layer in vars(torch.nn).values():
        words.update(getattr(layer, "__annotations__", ()))
    return frozenset(words)


def new_name(old: str, number: int) -> str:
    """A name without a meaning, as private as the old one and in the same case."""
    bare = old.lstrip("_")
    case = "ZK" if bare.isupper() else "Zk" if bare[:1].isupper() else MARK
    return f"{old[: len(old) - len(bare)]}{case}{number}"


def renamed(name: str, text: str, wanted: Callable[[ast.Module], set[str]], roles: set[str]) -> Rewritten:
    """Names of the file's own replaced in it.

    Args:
        wanted: names that the file gives.
        roles: where they are replaced: ``"name"`` for variables and parameters, ``"keyword"`` for arguments by name,
            ``"attribute"`` for what follows a dot, ``"definition"`` for functions.
    """
    tree = ast.parse(text)
    names = wanted(tree) - imported_names(tree) - spoken_names(tree) - fixed_names() - given_elsewhere(tree)
    numbers = {old: number for number, old in enumerate(sorted(n for n in names if not n.startswith("__")))}
    given_by_name = {
        (k.lineno, k.col_offset)
        for n in ast.walk(tree)
        if isinstance(n, ast.Call)
        for k in n.keywords
        if k.arg
    }
    edits: list[tuple[int, int, int, str]] = []
    before = ""
    for token in tokenize.generate_tokens(StringIO(text).readline):
        if token.type == tokenize.NAME and token.string in numbers:
            row, start = token.start[0], len(token.line[: token.start[1]].encode())
            role = "attribute" if before == "." else "definition" if before == "def" else "name"
            if (row, start) in given_by_name:
                role = "keyword"
            if role in roles:
                new = new_name(token.string, numbers[token.string])
                edits.append((row, start, start + len(token.string.encode()), new))
        if token.type not in (tokenize.NL, tokenize.COMMENT):
            before = token.string
    # a token in a string over several lines has no line of its own
    inside = {row for start, end in long_strings(text) for row in range(start + 1, end + 1)}
    if any(row in inside for row, *_ in edits):
        return Rewritten({name: text})
    return Rewritten({name: edited(text, edits)})


def imported_names(tree: ast.Module) -> set[str]:
    """Names of modules and of what is taken from them."""
    return {
        part
        for n in ast.walk(tree)
        if isinstance(n, ast.Import | ast.ImportFrom)
        for alias in n.names
        for part in (*alias.name.split("."), *(getattr(n, "module", "") or "").split("."), alias.asname or "")
    }


def spoken_names(tree: ast.Module) -> set[str]:
    """Words of strings, which may name attributes; before Python 3.12 a formatted string is one token."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            found.update(re.findall(r"\w+", node.value))
        elif isinstance(node, ast.JoinedStr):
            found |= {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}
            found |= {n.attr for n in ast.walk(node) if isinstance(n, ast.Attribute)}
    return found


def given_elsewhere(tree: ast.Module) -> set[str]:
    """Names that belong to others: arguments of functions of other files, and attributes of what is imported."""
    own, imported = defined(tree), imported_names(tree)
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            called = getattr(node.func, "id", None) or getattr(node.func, "attr", None)
            if called not in own:
                found |= {k.arg for k in node.keywords if k.arg}
        elif isinstance(node, ast.ClassDef):
            found |= {k.arg for k in node.keywords if k.arg}
        elif isinstance(node, ast.Attribute) and root_of(node) in imported:
            found.add(node.attr)
    return found


def root_of(node: ast.expr) -> str:
    """The name that a chain of attributes begins with."""
    while isinstance(node, ast.Attribute):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def keywords(tree: ast.Module) -> set[str]:
    """Names of arguments that are given by name."""
    return {k.arg for n in ast.walk(tree) if isinstance(n, ast.Call) for k in n.keywords if k.arg}


def class_names(tree: ast.Module) -> set[str]:
    """What the bodies of classes bind but for methods."""
    return {
        n.id
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
        for statement in node.body
        if isinstance(statement, ast.Assign | ast.AnnAssign)
        for n in ast.walk(statement)
        if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
    }


def defined(tree: ast.Module) -> set[str]:
    """Names of functions, methods and classes."""
    return {n.name for n in ast.walk(tree) if isinstance(n, Function | ast.ClassDef)}


def locals_of(tree: ast.Module) -> set[str]:
    """Local variables and parameters that are nothing else at the top of the file or of a class."""
    found: set[str] = set()
    for node in functions(tree):
        found |= {a.arg for a in ast.walk(node) if isinstance(a, ast.arg)}
        found |= {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    other = defined(tree) | class_names(tree) | {"self", "cls"}
    for statement in tree.body:
        if not isinstance(statement, Function | ast.ClassDef):
            other |= {n.id for n in ast.walk(statement) if isinstance(n, ast.Name)}
    return found - other


def attributes_of(tree: ast.Module) -> set[str]:
    """Attributes that the file stores; those that a class body binds may be given by name, and are left."""
    found = {n.attr for n in ast.walk(tree) if isinstance(n, ast.Attribute) and isinstance(n.ctx, ast.Store)}
    return found - class_names(tree) - defined(tree)


def fields_of(tree: ast.Module) -> set[str]:
    """What class bodies bind, and nobody else."""
    stored = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    inner = {a.arg for a in ast.walk(tree) if isinstance(a, ast.arg)}
    return (class_names(tree) & stored) - inner - defined(tree)


def functions_of(tree: ast.Module) -> set[str]:
    """Functions and methods that the file defines, but for tests, which unittest and pytest know by their names."""
    found = {n.name for n in functions(tree) if not n.name.startswith("test")}
    stored = {n.attr for n in ast.walk(tree) if isinstance(n, ast.Attribute) and isinstance(n.ctx, ast.Store)}
    bound = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    return found - stored - bound - keywords(tree) - {a.arg for a in ast.walk(tree) if isinstance(a, ast.arg)}


def with_renamed_locals(name: str, text: str) -> Rewritten:
    """Other names for local variables and parameters."""
    return renamed(name, text, locals_of, {"name", "keyword"})


def with_renamed_attributes(name: str, text: str) -> Rewritten:
    """Other names for attributes."""
    return renamed(name, text, attributes_of, {"attribute"})


def with_renamed_fields(name: str, text: str) -> Rewritten:
    """Other names for what class bodies bind: fields of data classes, attributes of classes."""
    return renamed(name, text, fields_of, {"name", "keyword", "attribute"})


def with_renamed_functions(name: str, text: str) -> Rewritten:
    """Other names for functions and methods."""
    return renamed(name, text, functions_of, {"name", "attribute", "definition"})


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
    "a comment": commented_once,
    "blank lines": spread,
    "if True": in_if_true,
    "nullcontext": in_null_context,
    "second names": with_second_names,
    "aliases": with_aliases,
    "keywords": with_keywords,
    "renamed locals": with_renamed_locals,
    "renamed attributes": with_renamed_attributes,
    "renamed fields": with_renamed_fields,
    "renamed functions": with_renamed_functions,
    "helpers elsewhere": with_a_helper_elsewhere,
}
