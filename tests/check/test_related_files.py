"""Which files of a project are run beside the named ones, and which are parsed: no more than may matter."""

from __future__ import annotations

import gc
from pathlib import Path

import pytest
from click.testing import CliRunner

from streamsafe.check import files as checked_files
from streamsafe.check.check import Files
from streamsafe.check.imports import Imports, statements
from streamsafe.check.modules import Project
from streamsafe.check.source import Module
from streamsafe.cli import main
from tests.check.evalfiles import write_tree

PACKAGE = {
    "pyproject.toml": "",
    "pkg/__init__.py": "from .mover import moved as given\nfrom .many import *\n",
    "pkg/many/__init__.py": "".join(f"from .part{at} import *\n" for at in range(20)),
    **{f"pkg/many/part{at}.py": f"def part{at}(x):\n    return x\n" for at in range(20)},
    "pkg/mover.py": "LIMIT = 3\ndef moved(x):\n    return x\n",
    "pkg/tools.py": "from . import given\ndef use(x):\n    return given(x)\n",
}

ENTERED = {
    "a name that the package hands on": ("from pkg import given", {"pkg/mover.py"}),
    "a name among all names of many files": ("from pkg import part7", {"pkg/many/part7.py"}),
    "a variable": ("from pkg.mover import LIMIT", {"pkg/mover.py"}),
    "a module": ("from pkg import mover", {"pkg/mover.py"}),
    "a function that calls another file's": ("from pkg.tools import use", {"pkg/tools.py", "pkg/mover.py"}),
    "the version": ("from pkg import __version__", set()),
    "a name that nothing has": ("from pkg import part99", set()),
}


@pytest.mark.parametrize("name", ENTERED)
def test_files_that_a_file_may_enter(name: str, tmp_path: Path) -> None:
    text, expected = ENTERED[name]
    write_tree(tmp_path, {**PACKAGE, "use.py": text})
    read = Path.read_bytes
    imports = Imports(lambda path: statements(read(Path(path))), lambda path: read(Path(path)))
    found = {str(Path(path).relative_to(tmp_path)) for path in imports.entered(str(tmp_path / "use.py"))}
    assert found == {"use.py", *expected}


def test_one_name_of_a_package_parses_the_file_that_has_it(tmp_path: Path) -> None:
    write_tree(tmp_path, PACKAGE)
    project = Project([])
    found = project.lookup("pkg.part7", str(tmp_path / "use.py"))
    assert found is not None
    assert found.name == "part7"
    parsed = {str(Path(path).relative_to(tmp_path)) for path in project.modules}
    assert parsed == {"pkg/__init__.py", "pkg/many/__init__.py", "pkg/many/part7.py"}


KERNEL = """
import torch
import triton
import triton.language as tl


@triton.jit
def double(x, out, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at) * 2)


class Buffers:
    def __init__(self):
        self.side = torch.cuda.Stream()
        self.slots = [torch.empty(4, device="cuda") for _ in range(2)]

    def step(self, slot, x):
        with torch.cuda.stream(self.side):
            double[(1,)](x, self.slots[slot], 4, BLOCK=4)
        return self.slots[slot] + 1
"""


def test_trees_are_let_go_of_with_the_files(tmp_path: Path) -> None:
    path = tmp_path / "kernel.py"
    path.write_text(KERNEL)
    files = Files([str(path)])
    assert [conflict.shown_at.row for conflict in files.run(str(path)).conflicts if conflict.shown_at]
    assert any(type(each) is Module and each.path == str(path) for each in gc.get_objects())
    del files
    gc.collect()
    assert not any(type(each) is Module and each.path == str(path) for each in gc.get_objects())


MOVER = """
import torch

side = torch.cuda.Stream()


def moved(x):
    with torch.cuda.stream(side):
        return x.to("cuda", non_blocking=True)
"""


PLAIN = {
    "pkg/plain.py": "def double(x):\n    return x * 2\n",
    **{
        f"pkg/streams{at}.py": "import torch\nfrom .plain import double\n\n\ndef use(x):\n"
        "    with torch.cuda.stream(torch.cuda.Stream()):\n        return double(x)\n"
        for at in range(5)
    },
}


def test_many_callers_of_a_named_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    callers = {
        f"pkg/use{at}.py": "from .mover import moved\ndef use(x):\n    return moved(x) + 1\n"
        for at in range(5)
    }
    write_tree(
        tmp_path, {"pyproject.toml": "", "pkg/__init__.py": "", "pkg/mover.py": MOVER, **PLAIN, **callers}
    )
    monkeypatch.chdir(tmp_path)
    told = "3 further files that may call the named ones were not run"

    def said(*files: str) -> str:
        return CliRunner().invoke(main, ["check", "-v", "--no-cache", "-j1", *files]).stderr

    assert "further files" not in said("pkg/mover.py")
    monkeypatch.setattr(checked_files, "MOST_CALLERS", 2)
    assert told in said("pkg/mover.py")
    assert "not run to its end" not in said("pkg")
    assert told in said("pkg/plain.py")  # where nothing of the named file itself is run
