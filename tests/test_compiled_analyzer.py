"""What `STREAMSAFE_COMPILE=1 pip install .` compiles: `setup.py` names what stays Python."""

from __future__ import annotations

import ast
from pathlib import Path

from streamsafe.check.task import Checked, Task

ROOT = Path(__file__).parents[1]
STATIC = ROOT / "streamsafe" / "static"


def assigned(name: str) -> ast.expr:
    """The value that `setup.py` assigns to a name; to import it would run it."""
    for node in ast.parse((ROOT / "setup.py").read_text()).body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            if node.targets[0].id == name:
                return node.value
    raise LookupError(name)


def stays_python() -> set[str]:
    words = next(n.value for n in ast.walk(assigned("PURE")) if isinstance(n, ast.Constant))
    return set(str(words).split())


def test_what_it_names_exists() -> None:
    assert not [name for name in stays_python() if not (STATIC / f"{name}.py").exists()]
    assert all((ROOT / path).exists() for path in ast.literal_eval(assigned("COMPILED")))


def test_a_file_with_cached_properties_stays_python() -> None:
    """A class that mypyc compiles has none."""
    cached = {path.stem for path in STATIC.rglob("*.py") if "cached_property" in path.read_text()}
    assert cached and cached <= stays_python()


def test_what_processes_send_each_other_stays_python() -> None:
    """A frozen dataclass that mypyc compiles cannot be unpickled."""
    assert {cls.__module__.rpartition(".")[2] for cls in (Task, Checked)} <= stays_python()
