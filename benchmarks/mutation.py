"""Would plain ``pytest`` notice? Changes one place at a time, in each folder, and runs the tests nearest to it.

``python benchmarks/mutation.py --seed 1`` draws five small changes in each folder (a comparison turned, a condition
negated, a constant changed, a result replaced, a statement left out), tries each in a copy of the tree, and prints how
many the tests notice and every change that none notices: some of those change nothing that the program does.

The tests run as plain ``pytest`` runs them (``--short``). ``--map FILE``, the data of coverage.py for a run of
``pytest -p no:xdist`` with ``dynamic_context = test_function``, says which tests run the changed line and so come first
(what a module does when it is imported is counted for the test that happens to import it); then those of the folder's
row in ``NEAR``. ``--whole`` runs all of plain ``pytest`` over what is left.
"""

from __future__ import annotations

import argparse
import ast
import difflib
import os
import queue
import random
import re
import resource
import shutil
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]

NEAR = {
    "rules": "tests/rules/test_rules.py tests/rules/test_fixes.py",
    "streamsafe/apis": "tests/apis/test_table.py tests/apis tests/check/test_idioms.py",
    "streamsafe/check": "tests/check",
    "streamsafe/check/models": "tests/check",
    "streamsafe/cli": "tests/cli tests/rules/test_rules.py tests/runtime/test_commands.py tests/runtime/test_traces.py",
    "streamsafe/findings": "tests/cli tests/rules tests/server",
    "streamsafe/kernels": "tests/runtime tests/check",
    "streamsafe/order": "tests/order tests/native",
    "streamsafe/order/native": "tests/native tests/runtime tests/apis/test_cupy_rows.py",
    "streamsafe/project": "tests/cli tests/check/test_projects.py",
    "streamsafe/repairs": "tests/rules/test_fixes.py tests/cli tests/rules",
    "streamsafe/report": "tests/cli/test_formats.py tests/rules tests/runtime tests/cli",
    "streamsafe/runtime": "tests/runtime",
    "streamsafe/runtime/cupy": "tests/runtime tests/apis/test_cupy_rows.py",
    "streamsafe/runtime/cupy/native": "tests/runtime tests/apis/test_cupy_rows.py",
    "streamsafe/runtime/pinned": "tests/runtime/test_host.py tests/runtime",
    "streamsafe/runtime/torch": "tests/apis/test_torch_rows.py tests/apis",
    "streamsafe/runtime/torch/hooks": "tests/apis/test_torch_rows.py tests/apis",
    "streamsafe/simulate/cuda": "tests/simulate tests/apis/test_cupy_rows.py",
    "streamsafe/simulate/torch": "tests/apis/test_torch_rows.py tests/simulate",
    "streamsafe/toolchain": "tests/toolchain tests/apis tests/runtime",
    "streamsafe/view": "tests/runtime/test_traces.py tests/runtime/test_commands.py",
}
"""Folders, and the tests that should notice, quick ones first."""

TURNED = {
    ast.Eq: "!=",
    ast.NotEq: "==",
    ast.Lt: ">=",
    ast.GtE: "<",
    ast.Gt: "<=",
    ast.LtE: ">",
    ast.Is: "is not",
    ast.IsNot: "is",
    ast.In: "not in",
    ast.NotIn: "in",
}
CPP = [
    (re.compile(r"==|!=|&&|\|\||(?<= )(?:<=|>=|<|>)(?= )|\btrue\b|\bfalse\b"), ""),
    (re.compile(r"(?<=\breturn )[^;{}]+(?=;)"), "{}"),
    (re.compile(r"(?<=if \()[^;{}]+(?=\) (?:\{|return|continue|break)|\)$)"), "!({})"),
    (re.compile(r"^\s+[\w.>-]+\([^;{}]*\);$"), ""),
    (re.compile(r"(?<=[=+(,] )\d+\b"), "1{}"),
]
OPPOSITE = dict(
    pair
    for a, b in (("==", "!="), ("&&", "||"), ("<", ">="), (">", "<="), ("true", "false"))
    for pair in ((a, b), (b, a))
)


class Mutant(NamedTuple):
    """A file with one place changed."""

    file: str
    row: int
    kind: str
    source: str

    def diff(self) -> str:
        lines = ((ROOT / self.file).read_text(encoding="utf-8").splitlines(), self.source.splitlines())
        return "\n".join(difflib.unified_diff(*lines, self.file, self.kind, n=2, lineterm=""))


class Change(NamedTuple):
    """The text from one (row, byte of the line) to another, and what takes its place."""

    start: tuple[int, int]
    stop: tuple[int, int]
    kind: str
    text: str


def replaced(node: ast.AST, kind: str, text: str) -> Change:
    where: Any = node
    return Change((where.lineno, where.col_offset), (where.end_lineno, where.end_col_offset), kind, text)


def of_python(source: str) -> Iterator[Change]:
    """Every change of a module but of annotations, docstrings and imports, which nothing evaluates."""
    todo: list[ast.AST] = [ast.parse(source)]
    while todo:
        node = todo.pop()
        if isinstance(node, ast.Compare) and len(node.ops) == 1:
            left, right = (ast.get_source_segment(source, each) for each in (node.left, node.comparators[0]))
            if "\n" not in f"{left}{right}" and not isinstance(node.left, ast.NamedExpr):
                yield replaced(node, "comparison", f"({left} {TURNED[type(node.ops[0])]} {right})")
        elif isinstance(node, (ast.If, ast.While, ast.IfExp)):
            test = ast.get_source_segment(source, node.test)
            if test != "TYPE_CHECKING":
                yield replaced(node.test, "condition", f"(not ({test}))")
        elif isinstance(node, ast.Constant) and isinstance(node.value, int):
            changed = not node.value if isinstance(node.value, bool) else node.value + 1
            yield replaced(node, "constant", repr(changed))
        elif isinstance(node, ast.Return) and ast.unparse(node) not in ("return", "return None"):
            yield replaced(node, "result", "return None")
        elif isinstance(node, ast.AugAssign) or (
            isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)
        ):
            yield replaced(node, "statement", "pass")
        for name, value in ast.iter_fields(node):
            if name not in ("annotation", "returns", "decorator_list", "bases"):
                todo += [each for each in (value if isinstance(value, list) else [value]) if _evaluated(each)]


def _evaluated(node: object) -> bool:
    docstring = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    return isinstance(node, ast.AST) and not docstring and not isinstance(node, (ast.JoinedStr, ast.Assert))


def of_cpp(source: str) -> Iterator[Change]:
    for row, line in enumerate(source.splitlines(), 1):
        if line.lstrip().startswith(("//", "#", "*", "/*")) or "static_assert" in line:
            continue
        for pattern, form in CPP:
            for found in pattern.finditer(line.split(" //")[0]):
                text = OPPOSITE.get(found[0], form.format(found[0]))
                start, stop = (len(line[:place].encode()) for place in found.span())
                yield Change((row, start), (row, stop), "text", text)


def mutant(file: str, change: Change) -> Mutant:
    lines = (ROOT / file).read_bytes().splitlines(keepends=True)
    (row, column), (end_row, end) = change.start, change.stop
    after = lines[end_row - 1][end:]
    lines[row - 1 : end_row] = [lines[row - 1][:column] + change.text.encode() + after]
    return Mutant(file, row, change.kind, b"".join(lines).decode())


def draw(folder: str, sample: int, random: random.Random) -> list[Mutant]:
    every = []
    for path in sorted((ROOT / folder).glob("*")):
        if path.suffix in (".py", ".cpp", ".hpp", ".h"):
            kinds = of_python if path.suffix == ".py" else of_cpp
            file = path.relative_to(ROOT).as_posix()
            every += [(file, change) for change in kinds(path.read_text(encoding="utf-8"))]
    return [mutant(*each) for each in random.sample(every, min(sample, len(every)))]


class Coverage:
    """Which tests run a line: names of test functions by file and row."""

    def __init__(self, path: Path | None) -> None:
        self.data: Any = None
        if path is not None:
            from coverage import CoverageData

            self.data = CoverageData(str(path))
            self.data.read()

    def tests(self, file: str, row: int) -> list[str]:
        if self.data is None or not file.endswith(".py"):
            return []
        contexts = self.data.contexts_by_lineno(str(ROOT / file)).get(row, [])
        found: dict[str, list[str]] = defaultdict(list)
        for name in filter(None, contexts):
            first, *modules, function = name.split(".")
            if first == "tests":  # Hypothesis has functions of such names, too
                found["/".join([first, *modules]) + ".py"].append(function)
        return [f"{path}::{each}" for path, names in found.items() for each in names]


def copy(target: Path) -> None:
    """A copy of the files that git knows, whose rules lie where an installed package has them."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, stdout=subprocess.PIPE, check=True)
    for name in filter(None, listed.stdout.decode().split("\0")):
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / name).exists():
            shutil.copy2(ROOT / name, target / name)
    (target / "streamsafe" / "rules").symlink_to(target / "rules")


def run(tree: Path, tests: list[str], seconds: int) -> str | None:
    """Runs tests in a tree until one fails, and says which; None: all pass.

    Args:
        seconds: of processor time, for each process.
    """
    path = os.pathsep.join(filter(None, [str(tree), os.environ.get("PYTHONPATH")]))
    environment = {**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-m", "pytest", "-qx", "--short", "-p", "no:cacheprovider", "-p", "no:xdist"]
    try:
        ended = subprocess.run(
            [*command, *tests],
            cwd=tree,
            env=environment,
            capture_output=True,
            text=True,
            timeout=20 * seconds,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds)),
        )
    except subprocess.TimeoutExpired:
        return "no end"
    if ended.returncode in (0, 5):  # 5: no tests
        return None
    failed = [line for line in ended.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
    return failed[0].partition(" - ")[0] if failed else (ended.stdout + ended.stderr)[-300:]


class Trees:
    """Copies of the tree, of which each serves one mutant at a time."""

    def __init__(self, folder: Path, count: int, options: argparse.Namespace) -> None:
        self.free: queue.Queue[Path] = queue.Queue()
        self.coverage = Coverage(options.map)
        self.options = options
        for number in range(count):
            copy(folder / str(number))
            self.free.put(folder / str(number))

    def attempt(self, folder: str, mutant: Mutant) -> str | None:
        """The test that notices."""
        tree = self.free.get()
        path = tree / mutant.file
        before = path.read_text(encoding="utf-8")
        path.write_text(mutant.source, encoding="utf-8")
        try:
            return self._notices(tree, folder, mutant)
        finally:
            path.write_text(before, encoding="utf-8")
            self.free.put(tree)

    def _notices(self, tree: Path, folder: str, mutant: Mutant) -> str | None:
        if folder.startswith(("streamsafe/runtime/torch", "streamsafe/simulate/torch")):
            built = [sys.executable, "-m", "streamsafe", "build-torch"]
            if mutant.file.endswith((".cpp", ".hpp", ".h")):
                environment = {**os.environ, "PYTHONPATH": str(tree)}
                done = subprocess.run(built, cwd=tree, env=environment, capture_output=True, check=False)
                if done.returncode != 0:
                    return "does not compile"
        runs = [self.coverage.tests(mutant.file, mutant.row), NEAR[folder].split()]
        if self.options.whole:
            runs.append(["tests"])
        for tests in filter(None, runs):
            failed = run(tree, tests, self.options.seconds)
            if failed is not None:
                return failed
        return None


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folders", nargs="*", help="folders of the package; without any, all of them")
    parser.add_argument("--sample", type=int, default=5, help="how many changes of a folder")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=int, default=200, help="processor time of a run of the tests")
    parser.add_argument("--workers", type=int, default=1, help="how many runs at a time")
    parser.add_argument("--map", type=Path, help="data of coverage.py: which tests run which lines")
    parser.add_argument("--whole", action="store_true", help="run all of plain pytest over what is left")
    options = parser.parse_args()
    folders = options.folders or list(NEAR)
    with tempfile.TemporaryDirectory() as name, ThreadPoolExecutor(options.workers) as pool:
        trees = Trees(Path(name), options.workers, options)
        for folder in folders:
            tree = trees.free.get()
            failed = run(tree, NEAR[folder].split(), options.seconds)
            trees.free.put(tree)
            if failed is not None:
                print(f"{folder}: the tests fail without a change: {failed}")
                return 1
        running = {
            (folder, mutant): pool.submit(trees.attempt, folder, mutant)
            for folder in folders
            for mutant in draw(folder, options.sample, random.Random(f"{options.seed} {folder}"))
        }
        caught: dict[str, list[bool]] = defaultdict(list)
        for (folder, mutant), job in running.items():
            test = job.result()
            caught[folder].append(test is not None)
            print(
                f"{mutant.file}:{mutant.row} {mutant.kind}: {test or 'NOT NOTICED'}",
                file=sys.stderr,
                flush=True,
            )
            if test is None:
                print(mutant.diff(), end="\n\n", flush=True)
    print("| folder | changes | noticed |\n|---|---|---|")
    for folder, noticed in caught.items():
        print(f"| {folder} | {len(noticed)} | {sum(noticed)} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
