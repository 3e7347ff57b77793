"""Would the tests notice? Changes one expression of a part at a time (cosmic-ray) and runs its tests.

``python benchmarks/mutation.py order --sample 300`` tries 300 of all mutants, drawn with a fixed seed, each in a copy
of the tree, and prints how many the tests kill and each one that survives as a diff. ``--sample 0`` tries all: hours.
It needs ``pip install cosmic-ray``, but not with ``--load``, which tries what ``--save`` has drawn elsewhere.
"""

from __future__ import annotations

import argparse
import difflib
import json
import os
import queue
import random
import resource
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]

GROUPS = {
    "order": (
        "streamsafe/order",
        "captures checker clocks decide edges memory pools views".split(),
        "tests/order/test_conflicts.py tests/order/test_event_behaviours.py tests/order/test_capture.py "
        "tests/order/test_semantics_table.py tests/order/test_allocate_again.py tests/order/test_views.py "
        "tests/order/test_marks.py tests/order/test_oracle.py tests/order/test_bounded.py",
    ),
    "monitor": (
        "streamsafe/runtime",
        "blocks judge memory_names monitor places repeats session threads".split(),
        "tests/runtime/test_monitor.py tests/runtime/test_session.py tests/runtime/test_host.py "
        "tests/runtime/test_fingerprints.py tests/runtime/test_traces.py tests/runtime/test_interception.py "
        "tests/runtime/test_details.py tests/runtime/test_frontend.py tests/runtime/test_lifetime.py "
        "tests/runtime/test_fixtures.py tests/runtime/test_plugin.py tests/runtime/test_commands.py "
        "tests/runtime/test_bad_input.py",
    ),
}
"""What is changed (folder, modules) and the tests that should notice, quick ones first."""

LEFT_OUT = ("core/ReplaceBinaryOperator_BitOr_", "core/Variable")
"""Operators that here only change annotations, which nothing evaluates, and those that want the names of variables."""


class Mutant(NamedTuple):
    """A module with one expression changed."""

    module: str
    operator: str
    source: str

    def diff(self) -> str:
        lines = ((ROOT / self.module).read_text(encoding="utf-8").splitlines(), self.source.splitlines())
        return "\n".join(difflib.unified_diff(*lines, self.module, self.operator, n=2, lineterm=""))


class Outcome(NamedTuple):
    """``kind``: killed, survived, or limit (of processor time). ``test``: the first that failed."""

    kind: str
    test: str


def mutants(module: str) -> Iterator[Mutant]:
    """Every change of a module."""
    from cosmic_ray.ast import ast_nodes, get_ast
    from cosmic_ray.mutating import mutate_code
    from cosmic_ray.plugins import get_operator, operator_names

    source = (ROOT / module).read_text(encoding="utf-8")
    nodes = list(ast_nodes(get_ast(source)))
    for name in sorted(operator_names()):
        if name.startswith(LEFT_OUT):
            continue
        operator = get_operator(name)()
        places = sum(1 for node in nodes for _ in operator.mutation_positions(node))
        for occurrence in range(places):
            yield Mutant(module, name, mutate_code(source, operator, occurrence))


def draw(group: str, sample: int, seed: int) -> list[Mutant]:
    folder, modules, _ = GROUPS[group]
    every = [each for module in modules for each in mutants(f"{folder}/{module}.py")]
    return random.Random(seed).sample(every, min(sample or len(every), len(every)))


def copy(target: Path) -> None:
    """A copy of the files that git knows; outside of a repository, of all files."""
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    names = [name for name in listed.stdout.decode().split("\0") if name]
    if not names:
        shutil.copytree(ROOT, target, ignore=shutil.ignore_patterns(".*", "__pycache__"))
    for name in names:
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / name).exists():
            shutil.copy2(ROOT / name, target / name)


def run(tree: Path, tests: str, seconds: int) -> Outcome:
    """Runs the tests in a tree until one fails.

    Args:
        seconds: of processor time, for each process.
    """
    path = os.pathsep.join(filter(None, [str(tree), os.environ.get("PYTHONPATH")]))
    environment = {
        **os.environ,
        "PYTHONPATH": path,
        "PYTHONDONTWRITEBYTECODE": "1",
        "STREAMSAFE_COMPILED": "0",
    }
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-x",
        "-p",
        "no:cacheprovider",
        *os.environ.get("PYTEST", "").split(),
    ]
    try:
        ended = subprocess.run(
            [*command, *tests.split()],
            cwd=tree,
            env=environment,
            capture_output=True,
            text=True,
            timeout=20 * seconds,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds)),
        )
    except subprocess.TimeoutExpired:
        return Outcome("limit", "")
    if ended.returncode == 0:
        return Outcome("survived", "")
    failed = [line for line in ended.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
    return Outcome(
        "killed" if ended.returncode > 0 else "limit", failed[0] if failed else ended.stdout[-500:]
    )


def attempt(trees: queue.Queue[Path], mutant: Mutant, tests: str, seconds: int) -> Outcome:
    """Changes a free tree, runs the tests in it and changes it back."""
    tree = trees.get()
    path = tree / mutant.module
    before = path.read_text(encoding="utf-8")
    path.write_text(mutant.source, encoding="utf-8")
    try:
        return run(tree, tests, seconds)
    finally:
        path.write_text(before, encoding="utf-8")
        trees.put(tree)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("group", choices=sorted(GROUPS), nargs="?", default="order")
    parser.add_argument("--sample", type=int, default=300, help="how many mutants; 0: all")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=int, default=120, help="processor time of a run of the tests")
    parser.add_argument("--workers", type=int, default=1, help="how many runs at a time")
    parser.add_argument("--save", type=Path, help="only write the drawn mutants to this file")
    parser.add_argument("--load", type=Path, help="try the mutants of this file")
    options = parser.parse_args()
    tests = GROUPS[options.group][2]
    if options.load is not None:
        chosen = [Mutant(*each) for each in json.loads(options.load.read_text(encoding="utf-8"))]
    else:
        chosen = draw(options.group, options.sample, options.seed)
    if options.save is not None:
        options.save.write_text(json.dumps(chosen), encoding="utf-8")
        return 0
    outcomes: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as name, ThreadPoolExecutor(options.workers) as pool:
        trees: queue.Queue[Path] = queue.Queue()
        for number in range(options.workers):
            copy(Path(name) / str(number))
            trees.put(Path(name) / str(number))
        module = chosen[0].module
        unchanged = Mutant(module, "no change", (ROOT / module).read_text(encoding="utf-8"))
        without = pool.submit(attempt, trees, unchanged, tests, options.seconds)
        running = {pool.submit(attempt, trees, each, tests, options.seconds): each for each in chosen}
        for done in as_completed(running):
            outcome, mutant = done.result(), running[done]
            outcomes[outcome.kind] += 1
            print(
                f"{outcome.kind}: {mutant.module} {mutant.operator} {outcome.test}",
                file=sys.stderr,
                flush=True,
            )
            if outcome.kind == "survived":
                print(mutant.diff(), end="\n\n", flush=True)
        if without.result().kind != "survived":
            print(f"the tests fail without a change: {without.result().test}")
            return 1
    killed = len(chosen) - outcomes["survived"]
    print(f"{killed} of {len(chosen)} mutants killed ({killed / max(len(chosen), 1):.1%}); {dict(outcomes)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
