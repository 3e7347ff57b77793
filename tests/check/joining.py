"""Two fixtures as one file: whatever stands in the one says nothing of the other, so each keeps its findings."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from tests.check.evalfiles import Definition, EvalFile, Found

FUTURE = "from __future__ import annotations"


@dataclass(frozen=True)
class Joined:
    """Two files in one, the second below the first; its names at the top that the first has, too, are spelled anew."""

    first: EvalFile
    second: EvalFile
    text: str
    rows: int
    """How many rows stand above the second file."""

    @property
    def name(self) -> str:
        return f"{self.first.name}--{self.second.name}.py"

    def apart(self, found: list[Found]) -> dict[str, set[tuple[int, str]]]:
        """By the name of each of the two, what was found in it: rows, as they are there, and codes."""
        apart: dict[str, set[tuple[int, str]]] = {self.first.name: set(), self.second.name: set()}
        for f in found:
            below = f.row > self.rows
            apart[(self.second if below else self.first).name].add((f.row - self.rows * below, f.code))
        return apart


def joined(first: EvalFile, second: EvalFile) -> Joined | None:
    """Both files in one; None where a name means something else in each that cannot be spelled anew."""
    above, below = ast.parse(first.text), ast.parse(second.text)
    imported, other = _imported(above), _imported(below)
    if any(imported[name] != other[name] for name in imported.keys() & other.keys()):
        return None
    if _tops(above) & other.keys() or _tops(below) & imported.keys():
        return None
    if (FUTURE in first.text) is not (FUTURE in second.text):
        return None
    renamed = _renamed(second.text, below, _tops(above) & _tops(below))
    if renamed is None:
        return None
    head = _without_head(first.text, above).rstrip("\n").splitlines()
    if FUTURE in first.text:
        head[_head(above)[-1].lineno - 1] = FUTURE
    rows = [*head, "", ""]
    return Joined(first, second, "\n".join(rows) + "\n" + _without_head(renamed, below), len(rows))


def _head(tree: ast.Module) -> list[ast.stmt]:
    """The docstring, and what is imported from the future."""
    return [
        s
        for n, s in enumerate(tree.body)
        if (n == 0 and isinstance(s, ast.Expr) and isinstance(s.value, ast.Constant))
        or (isinstance(s, ast.ImportFrom) and s.module == "__future__")
    ]


def _without_head(text: str, tree: ast.Module) -> str:
    """The text without its head, in the same rows."""
    rows = text.splitlines()
    for statement in _head(tree):
        for row in range(statement.lineno - 1, statement.end_lineno or statement.lineno):
            rows[row] = ""
    return "\n".join(rows) + "\n"


def _imported(tree: ast.Module) -> dict[str, tuple[str, str]]:
    return {
        alias.asname or alias.name.partition(".")[0]: (
            getattr(node, "module", None) or "",
            alias.name if alias.asname or isinstance(node, ast.ImportFrom) else "",
        )
        for node in ast.walk(tree)
        if isinstance(node, (ast.Import, ast.ImportFrom))
        for alias in node.names
    }


def _tops(tree: ast.Module) -> set[str]:
    """The names of the module that it does not import."""
    found: set[str] = set()
    for statement in tree.body:
        if isinstance(statement, Definition):
            found.add(statement.name)
        else:
            stored = (n for n in ast.walk(statement) if isinstance(n, ast.Name))
            found |= {n.id for n in stored if isinstance(n.ctx, ast.Store)}
    return found


def _renamed(text: str, tree: ast.Module, names: set[str]) -> str | None:
    """These names of the module spelled anew; None where a function says ``global``, or uses one for something else."""
    rows = [line.encode() for line in text.splitlines()]
    edits: set[tuple[int, int, str]] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id in names:
            edits.add((node.lineno, node.col_offset, node.id))
        elif isinstance(node, Definition) and node in tree.body and node.name in names:
            at = rows[node.lineno - 1].index(node.name.encode(), node.col_offset + 4)
            edits.add((node.lineno, at, node.name))
        elif not names.isdisjoint(_words(node)):
            return None
    for row, column, name in sorted(edits, reverse=True):
        end = column + len(name.encode())
        rows[row - 1] = rows[row - 1][:end] + b"_2" + rows[row - 1][end:]
    return "\n".join(row.decode() for row in rows) + "\n"


def _words(node: ast.AST) -> list[str]:
    """The names that a piece of syntax writes otherwise than as a variable or a definition at the top."""
    if isinstance(node, (ast.Global, ast.Nonlocal)):
        return node.names
    if isinstance(node, ast.arg):
        return [node.arg]
    return [node.value] if isinstance(node, ast.Constant) and isinstance(node.value, str) else []
