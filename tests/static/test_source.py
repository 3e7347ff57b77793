"""Methods are parsed when they are interpreted: what is reported stands where the file has it."""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Iterator

import libcst as cst
import pytest

from streamsafe.project.text import SourceError
from streamsafe.static import concrete
from streamsafe.static.analyze import analyze
from streamsafe.static.source import SourceFile

CLASSES = {
    "plain": """
        class C:
            def f(self):
                return 1
        """,
    "head over lines, comment before the body": """
        class C(Base):
            \"\"\"What it is.\"\"\"

            @property
            # why
            def f(
                self, a=(1,
                         2),
            ) -> int:
                # how
                \"\"\"Doc
            string.\"\"\"
                @wraps(a)
                def inner():
                    return 2
                return inner

            x: int = 3

            async def g(self): return 4
        """,
    "same name twice, tabs": """
        class C:
        \t@property
        \tdef f(self):
        \t\treturn 1

        \t@f.setter
        \tdef f(self, value):
        \t\tself.x = value
        """,
    "under a condition": """
        class C:
            if True:
                def f(self):
                    return 1
            else:
                def f(self):
                    return 2
        """,
    "string with less indentation": """
        class C:
            def f(self):
                x = \'\'\'
        at the edge
        \'\'\'
                return x

            def g(self): return (
                5
            )
        """,
}


@pytest.mark.parametrize("text", CLASSES.values(), ids=CLASSES.keys())
def test_a_class_without_its_methods_bodies_keeps_its_lines(text: str) -> None:
    text = textwrap.dedent(text).lstrip("\n")
    file = SourceFile("import a\n\n" + text, "f.py")
    slice_ = file.slice(file.statements[-1])
    assert slice_.text.count("\n") == text.count("\n")
    heads = {
        (slice_.span(n).row, n.name.value)
        for n in concrete.walk(slice_.module)
        if isinstance(n, cst.FunctionDef) and n.name.value != "inner"
    }
    defined = {(node.lineno, node.name) for node in _functions(file.tree) if node.name != "inner"}
    assert {name for _, name in heads} == {name for _, name in defined}
    for name, methods in slice_.methods.items():
        for method in methods:
            assert method.function.name.value == name
            last = method.function.body.body[-1]
            node = next(n for n in _functions(file.tree) if method.first <= n.lineno <= method.last)
            assert method.span(last).row == node.body[-1].lineno
            assert method.span(last).end_row == node.end_lineno


def _functions(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    return (n for n in ast.walk(tree) if isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef)))


FINDING = """
import torch


class C:
    limit = 3

    def f(self, x):
        s = torch.cuda.Stream()
        with torch.cuda.stream(s):
            y = x.cuda() * 2.0
        return y.sum()
"""


def test_what_is_found_in_a_method_stands_where_the_file_has_it() -> None:
    (found,) = analyze(FINDING, "f.py").conflicts
    assert found.first is not None
    assert found.first.span is not None
    assert found.second.span is not None
    assert (found.second.span.row, found.second.span.column) == (12, 16)
    assert (found.first.span.row, found.first.span.end_row) == (11, 11)


CLASS_IN_A_METHOD = """
import torch


class C:
    def f(self, x):
        class D:
            def g(self):
                return 1

        s = torch.cuda.Stream()
        with torch.cuda.stream(s):
            y = x.cuda() * D().g()
        return y.sum()
"""


def test_the_rows_of_functions_are_those_that_libcst_gives() -> None:
    text = textwrap.dedent(
        """
        import functools

        @functools.cache
        def outer(
            x,
        ):
            \"\"\"Text.\"\"\"
            def inner(): return [
                x,
            ]
            return inner  # here

        if outer:
            async def other(x): pass
        """
    )
    file = SourceFile(text, "f.py")
    found = []
    for statement in file.statements:
        slice_ = file.slice(statement)
        for node in concrete.walk(slice_.module):
            if isinstance(node, cst.FunctionDef):
                row, _, end_row, _ = slice_._positions[node]
                assert slice_.rows(node) == (row + slice_.base, end_row + slice_.base)
                found.append((node.name.value, *slice_.rows(node)))
    assert sorted(found) == [("inner", 9, 11), ("other", 15, 15), ("outer", 5, 12)]


def test_a_class_may_stand_in_a_method() -> None:
    (found,) = analyze(CLASS_IN_A_METHOD, "f.py").conflicts
    assert found.second.span is not None
    assert found.second.span.row == 14


IMPORTS = """
class C:
    import one

    def f(self):
        import two.three
        def g():
            from four import five as six
        if self:
            import seven as eight
"""


def test_imports_are_known_wherever_they_stand() -> None:
    assert SourceFile(IMPORTS, "f.py").imports == {
        "one": "one",
        "two": "two",
        "six": "four.five",
        "eight": "seven",
    }


def test_a_file_that_does_not_parse_says_where() -> None:
    with pytest.raises(SourceError) as raised:
        SourceFile("class C:\n    def f(self):\n        return (\n", "f.py")
    assert raised.value.row == 3


def test_nodes_are_checked_as_before_once_a_file_is_parsed() -> None:
    """Also after one that does not parse."""
    check = cst.CSTNode.__post_init__
    broken = SourceFile("x = 1\n", "f.py").slice(ast.parse("x = 1").body[0])
    broken.__dict__["text"] = "x = (\n"
    with pytest.raises(SourceError):
        broken.span(broken.module)
    assert cst.CSTNode.__post_init__ is check
    with pytest.raises(cst.CSTValidationError):
        cst.Name("")
