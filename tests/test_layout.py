"""Who imports whom, and how long a file may be: imports in functions and under TYPE_CHECKING count like all others."""

from __future__ import annotations

import ast
from collections import defaultdict
from functools import lru_cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "streamsafe"

MAY_IMPORT = {
    "order": "",
    "apis": "",
    "kernels": "",
    "project": "order",
    "rule": "order",
    "rules": "order rule",
    "toolchain": "apis",
    "check": "order apis kernels project",
    "simulate": "apis toolchain",
    "findings": "check order rule project",
    "repairs": "findings order project",
    "report": "findings order project rule",
    "runtime": "order apis kernels rule toolchain project",
    "view": "runtime order report",
    "server": "findings order project rule repairs report",
    "cli": "check findings order project rule repairs report runtime server simulate toolchain view",
}
"""Each folder, and each module of the root, from the ground up."""

ONLY_IN = {
    ("runtime", "report"): {"runtime.errors", "runtime.launch", "runtime.plugin", "runtime.program"},
    ("runtime", "simulate"): {"runtime.launch", "runtime.plugin", "runtime.program"},
}
"""Pairs of folders of which some modules may import the other one."""

LONGEST = 650
LONG = {"streamsafe/order/native/core.hpp"}


def module_of(path: Path) -> str:
    """``order.checker`` for a file of the package, ``rules.ss101_...`` for a rule."""
    base = ROOT if path.is_relative_to(ROOT / "rules") else PACKAGE
    parts = list(path.relative_to(base).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def sources() -> list[Path]:
    return [*PACKAGE.rglob("*.py"), *(ROOT / "rules").glob("*.py")]


def named(module: str, path: Path, node: ast.ImportFrom) -> list[str]:
    """The modules of ours from which a statement imports."""
    base = node.module or ""
    if node.level:
        parts = module.split(".") if path.stem == "__init__" else module.split(".")[:-1]
        base = ".".join(["streamsafe", *parts[: len(parts) - node.level + 1], *([base] if base else [])])
    if base != "streamsafe" and not base.startswith("streamsafe."):
        return []
    return [f"{base}.{alias.name}" for alias in node.names]


@lru_cache(maxsize=1)
def imports() -> dict[str, set[str]]:
    """For each module, those of ours that it imports anywhere."""
    known = {module_of(path) for path in sources()}
    found: dict[str, set[str]] = {}
    for path in sources():
        module = module_of(path)
        targets = []
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom):
                targets += named(module, path, node)
            elif isinstance(node, ast.Import):
                targets += [alias.name for alias in node.names if alias.name.startswith("streamsafe.")]
        plain = (target.removeprefix("streamsafe.") for target in targets if target != "streamsafe")
        found[module] = {each if each in known else each.rpartition(".")[0] for each in plain} - {module}
    return found


def folder(module: str) -> str:
    return module.partition(".")[0]


def pairs() -> dict[tuple[str, str], set[str]]:
    """Which modules of a folder import another folder."""
    found: dict[tuple[str, str], set[str]] = defaultdict(set)
    for module, targets in imports().items():
        for target in targets:
            if folder(target) != folder(module) and target:
                found[folder(module), folder(target)].add(module)
    return found


def forbidden() -> dict[tuple[str, str], set[str]]:
    found = {}
    for (source, target), modules in pairs().items():
        if source in ("", "__main__") or target in MAY_IMPORT.get(source, "").split():
            continue
        left = modules - ONLY_IN.get((source, target), set())
        if left:
            found[source, target] = left
    return found


def test_every_folder_has_its_place() -> None:
    assert {folder(module) for module in imports()} - set(MAY_IMPORT) == {"", "__main__"}


def test_folders_import_what_lies_below_them() -> None:
    assert forbidden() == {}


def test_the_table_has_no_circle() -> None:
    below = {name: set(text.split()) for name, text in MAY_IMPORT.items()}
    while ready := {name for name, others in below.items() if not others & set(below)}:
        below = {name: others for name, others in below.items() if name not in ready}
    assert below == {}


@pytest.mark.parametrize("name", sorted(MAY_IMPORT))
def test_modules_of_a_folder_import_each_other_in_one_direction(name: str) -> None:
    below = {
        module: {target for target in targets if folder(target) == name}
        for module, targets in imports().items()
        if folder(module) == name
    }
    while ready := {module for module, others in below.items() if not others & set(below)}:
        below = {module: others for module, others in below.items() if module not in ready}
    assert below == {}


def test_runtime_names_a_library_only_in_its_own_folder() -> None:
    libraries = {"torch", "cupy"}
    found = set()
    for path in (PACKAGE / "runtime").rglob("*.py"):
        if set(path.relative_to(PACKAGE).parts[:-1]) & libraries:
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.level == 0:
                names = [node.module or ""]
            elif isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            else:
                continue
            found |= {(module_of(path), name) for name in names if name.partition(".")[0] in libraries}
    assert found == set()


def test_no_file_is_too_long() -> None:
    files = [*PACKAGE.rglob("*.py"), *PACKAGE.rglob("*.hpp"), *PACKAGE.rglob("*.cpp"), *PACKAGE.rglob("*.h")]
    files += (ROOT / "rules").glob("*.py")
    long = {
        path.relative_to(ROOT).as_posix()
        for path in files
        if len(path.read_text(encoding="utf-8").splitlines()) > LONGEST
    }
    assert long == LONG


def test_the_root_of_the_package() -> None:
    found = {path.stem for path in PACKAGE.glob("*.py")}
    assert found == {"__init__", "__main__", "server", "rule"}
