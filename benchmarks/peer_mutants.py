"""CuPy's own tests made racy: one statement of a test is moved to a stream that nothing waits for. Does each fire?

python benchmarks/peer_mutants.py CUPY [--count N] [--jobs N] [--only FILE ...] [--json FILE]

CUPY is a checkout of CuPy at the tag of the installed version. In each of the files, N statements that work on
the device, spread over its functions, are put under ``with`` a non-blocking stream, one in a test. The mutated tests
run twice: under the sanitizer, and without it with a spin kernel before the statement, on its stream. A mutant that is
silent is

* equivalent, when the spin changes no outcome (what the statement touches is waited for, or nobody else uses it),
* missed, when it does: a race that was not reported.

Needs a GPU. Prints a Markdown table, and every mutant that is silent.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import sys
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any, NamedTuple

from peer_tests import FILES, run

SEVERAL = ("cuda_tests/test_nccl.py",)
"""Files whose tests need several GPUs."""
WORDS = ("assert", "pytest", "skip", "raises", "numpy.testing", "super()")


ROUNDS = 8
"""At most so many runs for one file."""


class Move(NamedTuple):
    """One statement to be moved: where it is, and the tests that come by, as (class, function) pairs."""

    function: str
    tests: frozenset[tuple[str, str]]
    line: int
    end: int
    column: int
    text: str

    def hit(self, test: str) -> bool:
        """Whether a test's id is one of these: classes and functions may have parameters in their names."""
        owner, name = ("", *test.split("::"))[-2:]
        plain = name.split("[", 1)[0].split("_param_")[0]
        return any(plain == function and owner.startswith(kind) for kind, function in self.tests)


def _functions(tree: ast.Module) -> list[tuple[str, ast.FunctionDef]]:
    """The functions of a file and of its classes, each with its class."""
    found = [("", node) for node in tree.body if isinstance(node, ast.FunctionDef)]
    for owner in tree.body:
        if isinstance(owner, ast.ClassDef):
            found += [(owner.name, node) for node in owner.body if isinstance(node, ast.FunctionDef)]
    return found


def _mentions(node: ast.AST) -> set[str]:
    return {
        each.attr if isinstance(each, ast.Attribute) else each.id
        for each in ast.walk(node)
        if isinstance(each, (ast.Attribute, ast.Name))
    }


def moves(path: Path) -> list[list[Move]]:
    """The statements that can be moved, by function: what computes something, and is neither a check nor a context."""
    source = path.read_text(encoding="utf-8")
    lines = source.splitlines()
    functions = _functions(ast.parse(source))
    local = {node.name for _, node in functions}
    mentions = {(owner, node.name): _mentions(node) & local for owner, node in functions}

    def reaches(test: tuple[str, str], name: str) -> bool:
        seen, todo = set(), [test]
        while todo:
            at = todo.pop()
            if at in seen:
                continue
            seen.add(at)
            if name in mentions[at]:
                return True
            todo += [each for each in mentions if each[1] in mentions[at] and each[0] in ("", at[0])]
        return False

    found = []
    for owner, node in functions:
        tests = {(owner, node.name)}
        if not node.name.startswith("test_"):
            tests = {each for each in mentions if each[1].startswith("test_") and owner in ("", each[0])}
            tests = {each for each in tests if reaches(each, node.name)}
        statements = [
            each
            for each in ast.walk(node)
            if isinstance(each, (ast.Assign, ast.AugAssign, ast.Expr, ast.Return))
        ]
        group = []
        for statement in statements if tests else ():
            text = ast.get_source_segment(source, statement) or ""
            computes = any(
                isinstance(part, (ast.Call, ast.BinOp, ast.Subscript)) for part in ast.walk(statement)
            )
            own_line = not lines[statement.lineno - 1][: statement.col_offset].strip()
            if (
                not computes
                or not own_line
                or any(word in text for word in WORDS)
                or _mentions(statement) & local
            ):
                continue
            assert statement.end_lineno is not None
            few = frozenset(sorted(tests)[:4])
            group.append(
                Move(node.name, few, statement.lineno, statement.end_lineno, statement.col_offset, text)
            )
        if group:
            found.append(group)
    return found


def chosen(path: Path, count: int) -> list[Move]:
    """``count`` statements spread over the functions: of each the last first, which uses what exists already."""
    groups = moves(path)
    picked: list[Move] = []
    depth = 0
    while len(picked) < count and any(len(each) > depth for each in groups):
        reached = [each[-1 - depth] for each in groups if len(each) > depth]
        missing = count - len(picked)
        step = max(len(reached) / missing, 1)
        picked += [reached[int(place * step)] for place in range(min(missing, len(reached)))]
        depth += 1
    return picked


def mutated(path: Path, round_: list[Move]) -> str:
    """The file with these statements under a stream of their own."""
    lines = path.read_text(encoding="utf-8").splitlines()
    for move in sorted(round_, key=lambda each: -each.line):
        block = lines[move.line - 1 : move.end]
        indent = block[0][: move.column]
        lines[move.line - 1 : move.end] = [
            f'{indent}with __import__("peer_plugin").side({move.line}):',
            *(f"    {line}" for line in block),
        ]
    return "\n".join(lines) + "\n"


def judge(root: Path, name: str, count: int, seconds: int) -> list[dict[str, Any]]:
    """The mutants of one file, in as few runs as there are mutants of one test."""
    original = root / "tests" / "cupy_tests" / name
    rounds: list[list[Move]] = []
    for move in chosen(original, 4 * count):
        for each in rounds:
            if not any(other.tests & move.tests for other in each):
                each.append(move)
                break
        else:
            rounds.append([move])
    results: list[dict[str, Any]] = []
    for number, round_ in enumerate(rounds):
        if len(results) >= count or number == ROUNDS:
            break
        path = original.with_name(f"{original.stem}_moved{number}.py")
        path.write_text(mutated(original, round_), encoding="utf-8")
        names = ("-k", " or ".join(sorted({name for move in round_ for _, name in move.tests})))
        half, late = seconds // 2, {"PEER_SPIN": "1"}
        try:
            checked = run(path, root, mode="collect", extra=names, seconds=seconds, stop=half)
            delayed = run(path, root, mode=None, extra=names, seconds=seconds, stop=half, environment=late)
        finally:
            path.unlink()
        for move in round_:
            if not checked.get("moved", {}).get(str(move.line)):
                continue  # nothing on the device
            ran = {test: outcome for test, outcome in checked["outcomes"].items() if move.hit(test)}
            fired = {message.split(" ", 1)[0] for test in ran for message in checked["hazards"].get(test, [])}
            wrong = [test for test in ran if delayed["outcomes"].get(test, ran[test]) != ran[test]]
            results.append(
                {
                    "file": name,
                    "line": move.line,
                    "test": move.function,
                    "text": " ".join(move.text.split())[:100],
                    "tests": sum(outcome != "skipped" for outcome in ran.values()),
                    "fires": sorted(fired),
                    "wrong": len(wrong),
                    "error": checked.get("error", ""),
                }
            )
    return results[:count]


def verdict(row: dict[str, Any]) -> str:
    if row["fires"]:
        return "fires"
    if not row["tests"]:
        return "not run"
    return "MISSED" if row["wrong"] else "equivalent"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("cupy", type=Path)
    parser.add_argument("--count", type=int, default=10)
    parser.add_argument("--jobs", type=int, default=max((os.cpu_count() or 2) - 2, 1))
    parser.add_argument("--seconds", type=int, default=60, help="at most so long for one run of a file")
    parser.add_argument("--only", nargs="*", default=None)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    root: Path = options.cupy.resolve()
    names = [
        name for name in FILES if (root / "tests" / "cupy_tests" / name).exists() and name not in SEVERAL
    ]
    if options.only is not None:
        names = [name for name in names if any(part in name for part in options.only)]
    rows: list[dict[str, Any]] = []
    print(
        "| file | mutants | fire | wrong data too | equivalent | missed | not run |\n|---|---|---|---|---|---|---|"
    )
    with ThreadPoolExecutor(options.jobs) as pool:
        jobs = {pool.submit(judge, root, name, options.count, options.seconds): name for name in names}
        for job in as_completed(jobs):
            found = job.result()
            rows += found
            verdicts = [verdict(row) for row in found]
            shown = sum(bool(row["fires"]) and row["wrong"] > 0 for row in found)
            print(
                f"| {jobs[job]} | {len(found)} | {verdicts.count('fires')} | {shown} | "
                f"{verdicts.count('equivalent')} | {verdicts.count('MISSED')} | {verdicts.count('not run')} |",
                flush=True,
            )
            if options.json:
                options.json.write_text(json.dumps(rows, indent=1), encoding="utf-8")
    for row in rows:
        if not row["fires"]:
            print(
                f"{verdict(row):10} {row['file']}:{row['line']} {row['test']}: {row['text']}",
                row["error"][-200:],
            )
    return 1 if any(verdict(row) == "MISSED" for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
