"""Names are resolved across files as Python does: packages, relative imports, re-exports, star imports, aliases."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from streamsafe.static.syntax.dump import dump_file
from streamsafe.static.syntax.index import Index
from streamsafe.static.syntax.ir import Type
from streamsafe.static.syntax.modules import Symbol

TREE = {
    "pkg/__init__.py": """
        from .core import Engine, run as start
        from .tools import *
        from . import deep
        VERSION = 1
    """,
    "pkg/core.py": """
        import torch
        import torch.cuda as tc
        from torch.cuda import Stream as S
        from .base import Base, Mixin
        from ..pkg import tools
        try:
            import fast
        except ImportError:
            fast = None
        if torch.cuda.is_available():
            def pick(): return 1
        else:
            def pick(): return 2
        new_stream = tc.Stream
        Alias = Base
        class Engine(Mixin, Base):
            side: S | None = None
            def run(self): return 1
            @property
            def depth(self): return 2
            class Inner:
                def go(self): return 3
        def run(): return Engine()
    """,
    "pkg/base.py": """
        from dataclasses import dataclass
        from typing import NamedTuple
        class Root:
            def close(self): ...
            def run(self): ...
        class Base(Root):
            def run(self): ...
            def base_only(self): ...
        class Mixin(Root):
            def mixed(self): ...
        @dataclass
        class Item:
            one: int
            two: "Base | None" = None
        @dataclass
        class More(Item):
            three: list[Base] = None
        class Pair(NamedTuple):
            left: int
    """,
    "pkg/tools.py": """
        __all__ = ["helper"]
        def helper(): ...
        def hidden(): ...
    """,
    "pkg/deep/__init__.py": "from .leaf import leaf\n",
    "pkg/deep/leaf.py": "from ...pkg.base import Base\ndef leaf(): ...\n",
    "train.py": """
        import pkg
        import pkg.deep.leaf
        from pkg import Engine as E, start, helper, VERSION
        from pkg.deep import leaf
        import beside
        import numpy as np
        def main():
            return E()
    """,
    "beside.py": "def near(): ...\n",
}


@pytest.fixture
def index(tmp_path: Path) -> Index:
    for name, text in TREE.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))
    found = Index({"torch", "numpy"})
    assert found.add(str(tmp_path / "train.py")) is not None
    assert found.add(str(tmp_path / "pkg" / "core.py")) is not None
    return found


@pytest.mark.parametrize(
    ("module", "name", "symbol"),
    [
        ("train", "E", Symbol("class", "pkg.core:Engine")),
        ("train", "E.run", Symbol("function", "pkg.core:Engine.run")),
        ("train", "E.base_only", Symbol("function", "pkg.base:Base.base_only")),
        ("train", "E.Inner.go", Symbol("function", "pkg.core:Engine.Inner.go")),
        ("train", "E.side", Symbol("variable", "pkg.core:Engine.side")),
        ("train", "start", Symbol("function", "pkg.core:run")),
        ("train", "helper", Symbol("function", "pkg.tools:helper")),
        ("train", "pkg.helper", Symbol("function", "pkg.tools:helper")),
        ("train", "pkg.hidden", Symbol("unknown", "")),
        ("train", "pkg.tools.hidden", Symbol("function", "pkg.tools:hidden")),
        ("train", "pkg.deep.leaf", Symbol("function", "pkg.deep.leaf:leaf")),
        ("train", "leaf", Symbol("function", "pkg.deep.leaf:leaf")),
        ("train", "VERSION", Symbol("variable", "pkg:VERSION")),
        ("train", "beside.near", Symbol("function", "beside:near")),
        ("train", "np.random.rand", Symbol("library", "numpy.random.rand")),
        ("train", "print", Symbol("library", "builtins.print")),
        ("pkg.core", "S", Symbol("library", "torch.cuda.Stream")),
        ("pkg.core", "new_stream", Symbol("library", "torch.cuda.Stream")),
        ("pkg.core", "Alias.run", Symbol("function", "pkg.base:Base.run")),
        ("pkg.core", "tools.helper", Symbol("function", "pkg.tools:helper")),
        ("pkg.core", "fast", Symbol("library", "fast")),
        ("pkg.core", "pick", Symbol("function", "pkg.core:pick")),
        ("pkg.core", "torch.cuda.current_stream", Symbol("library", "torch.cuda.current_stream")),
    ],
)
def test_names(index: Index, module: str, name: str, symbol: Symbol) -> None:
    assert index.resolve(module, name) == symbol


def test_the_order_of_bases_is_pythons(index: Index) -> None:
    cid = index.resolve("train", "E").name
    assert index.mro(cid) == ["pkg.core:Engine", "pkg.base:Mixin", "pkg.base:Base", "pkg.base:Root"]
    assert index.method(cid, "close") == "pkg.base:Root.close"
    assert index.method_after(cid, "pkg.core:Engine", "run") == "pkg.base:Base.run"
    assert index.method_after(cid, "pkg.base:Base", "run") == "pkg.base:Root.run"
    assert index.is_property(cid, "depth") and not index.is_property(cid, "run")
    assert index.library_bases(cid) == []


def test_fields_of_dataclasses(index: Index) -> None:
    more = index.resolve("pkg.core", "Base").name.partition(":")[0] + ":More"
    assert index.is_dataclass(more) and index.is_dataclass("pkg.base:Pair")
    assert not index.is_dataclass("pkg.base:Base")
    assert list(index.fields(more)) == ["one", "two", "three"]
    module, annotation = index.fields(more)["two"]
    assert index.alternatives(annotation) == ([Type("Base")], True)
    assert index.type_symbol(module, Type("Base")) == Symbol("class", "pkg.base:Base")


def test_functions_defined_inside_are_found_and_lowered(tmp_path: Path) -> None:
    path = tmp_path / "m.py"
    path.write_text(
        "def f(a):\n    class C:\n        def m(self): return a\n    def g(): return C()\n    return g, lambda: a\n"
    )
    index = Index()
    index.add(str(path))
    index.function("m:f")
    assert sorted(index.definitions) == ["m:f", "m:f.<locals>.<lambda>", "m:f.<locals>.C.m", "m:f.<locals>.g"]
    assert index.function("m:f.<locals>.C.m").outer == "m:f"
    assert index.function("m:f").captured == {"C", "a"}


def test_a_file_that_does_not_parse_is_named(tmp_path: Path) -> None:
    path = tmp_path / "m.py"
    path.write_text("def f(:\n")
    index = Index()
    assert index.add(str(path)) is None
    assert "invalid syntax" in index.broken[str(path)]


def test_imports_in_a_circle_end(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("from b import x\nfrom b import *\n")
    (tmp_path / "b.py").write_text("from a import x\nfrom a import *\n")
    index = Index()
    index.add(str(tmp_path / "a.py"))
    assert index.resolve("a", "x") == Symbol("unknown", "")
    assert index.resolve("a", "y") == Symbol("library", "builtins.y")


def test_what_is_known_does_not_depend_on_what_is_named(tmp_path: Path) -> None:
    """A file of a package is found through an import, whether it was named or not."""
    package = tmp_path / "p"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "one.py").write_text("from p.two import f\n")
    (package / "two.py").write_text("def f(): ...\n")
    alone, both = Index(), Index()
    alone.add(str(package / "one.py"))
    both.add(str(package / "two.py"))
    both.add(str(package / "one.py"))
    assert alone.resolve("p.one", "f") == both.resolve("p.one", "f") == Symbol("function", "p.two:f")


def test_a_file_is_dumped_function_by_function(tmp_path: Path) -> None:
    path = tmp_path / "m.py"
    path.write_text("def f(s):\n    if s is not None:\n        s.wait()\n    return s\n")
    text = "\n".join(dump_file(str(path)))
    assert "function m:<module>() line 1" in text and "function m:f(s) line 1" in text
    assert "-> 2 if not none 's'" in text
    assert "3 Call" in text
