"""Which files without stream code call what has some: by their imports and the words in their code."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from streamsafe.check import prefilter
from streamsafe.check.callers import Callers, offers
from streamsafe.check.imports import Imports, statements
from tests.check.evalfiles import write_tree

MOVER = """
    import torch

    class Mover:
        def __init__(self):
            self.side = torch.cuda.Stream()

        def fetch(self, host):
            with torch.cuda.stream(self.side):
                return host.to("cuda", non_blocking=True)

        def fetch_all(self, hosts):
            return [self.fetch(host) for host in hosts]

        def describe(self):
            \"\"\"How current_stream() and fetch() are used.\"\"\"
            return "a mover"

    def moved(host):
        return Mover().fetch(host)

    def plain(x):
        return x + 1  # not on current_stream()

    class Lane:
        def __enter__(self):
            self.kept = torch.cuda.current_stream()

        def size(self):
            return 1
"""
BASE = {
    "pkg/__init__.py": "from .mover import Mover as Given, moved",
    "pkg/all.py": "from .mover import *",
    "pkg/mover.py": MOVER,
}

CALLERS = {
    "a function": "from .mover import moved\ndef use(x):\n    return moved(x)",
    "under another name": "from .mover import moved as get\ndef use(x):\n    return get(x)",
    "an absolute name": "from pkg.mover import moved\ndef use(x):\n    return moved(x)",
    "a name that the package hands on": "from pkg import moved\ndef use(x):\n    return moved(x)",
    "under a name of the package's own": "from . import Given\ndef use(x):\n    return Given().fetch(x)",
    "all names of a module": "from .mover import *\ndef use(x):\n    return moved(x)",
    "all names of a package that hands all names on": "from .all import moved\ndef use(x):\n    return moved(x)",
    "a module": "from . import mover\ndef use(x):\n    return mover.moved(x)",
    "an import in a function": "def use(x):\n    from .mover import moved\n    return moved(x)",
    "a list in brackets": "from .mover import (  # both\n    plain,\n    moved,\n)\ndef use(x):\n    return moved(x)",
    "a method": "from .mover import Mover\ndef use(x):\n    return Mover().fetch(x)",
    "a method that calls another": "from .mover import Mover\ndef use(x):\n    return Mover().fetch_all([x])",
    "an object of a declared class": "from .mover import Mover\ndef use(m: Mover, x):\n    return m.fetch(x)",
    "a field": """
        from .mover import Mover
        class Trainer:
            def __init__(self):
                self.mover = Mover()
            def step(self, x):
                return self.mover.fetch(x)
    """,
    "a with": "from .mover import Lane\ndef use(x):\n    with Lane():\n        return x + 1",
    "a subclass": "from .mover import Mover\nclass Own(Mover):\n    def go(self, x):\n        return self.fetch(x)",
}
OTHERS = {
    "another function of the file": "from .mover import plain\ndef use(x):\n    return plain(x)",
    "another method": "from .mover import Mover\ndef use(x):\n    return Mover().describe()",
    "an import and no more": "from .mover import moved\ndef use(x):\n    return x",
    "the same name from elsewhere": "from elsewhere import moved\ndef use(x):\n    return moved(x)",
    "a method of that name of another object": "from .mover import plain\ndef use(m, x):\n    return m.fetch(x)",
    "a comment": "from .mover import moved\ndef use(x):\n    return x  # as moved(x) does",
    "a docstring": 'from .mover import moved\ndef use(x):\n    """Like moved(x)."""\n    return x',
    "a class that is only named": "from .mover import Mover\ndef use(m):\n    return isinstance(m, Mover)",
}


def callers(tmp_path: Path, files: dict[str, str]) -> set[str]:
    write_tree(tmp_path, {name: textwrap.dedent(text).lstrip("\n") + "\n" for name, text in files.items()})
    texts = {str(tmp_path / name): (tmp_path / name).read_bytes() for name in files}
    relevant = {path for path, data in texts.items() if prefilter.relevant(data)}
    imports = Imports(lambda path: statements(texts[path]), texts.__getitem__)
    found = Callers(imports, texts.__getitem__, prefilter.names_streams).among(texts, relevant)
    return {str(Path(path).relative_to(tmp_path)) for path in found}


@pytest.mark.parametrize("name", CALLERS)
def test_a_caller(name: str, tmp_path: Path) -> None:
    assert callers(tmp_path, {**BASE, "pkg/use.py": CALLERS[name]}) == {"pkg/use.py"}


@pytest.mark.parametrize("name", OTHERS)
def test_no_caller(name: str, tmp_path: Path) -> None:
    assert callers(tmp_path, {**BASE, "pkg/use.py": OTHERS[name]}) == set()


def test_callers_of_callers(tmp_path: Path) -> None:
    chain = {
        "pkg/one.py": CALLERS["a field"],
        "pkg/two.py": "from .one import Trainer\ndef use(t: Trainer, x):\n    return t.step(x)",
        "pkg/three.py": "from .two import use\ndef main(x):\n    return use(None, x)",
        "pkg/four.py": "from .three import main\ndef run(x):\n    return main(x)",
    }
    assert callers(tmp_path, {**BASE, **chain}) == {"pkg/one.py", "pkg/two.py", "pkg/three.py"}


def test_what_a_file_offers() -> None:
    found = offers(textwrap.dedent(MOVER).encode(), prefilter.names_streams)
    assert found.keys() == {"Mover", "moved", "Lane"}
    assert found["Mover"].methods == {b".__init__", b".fetch", b".fetch_all"} and not found["Mover"].alone
    assert found["moved"].alone and found["Lane"].alone
