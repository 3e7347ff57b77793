"""Would the tests notice? Changes one expression of the model of order at a time (cosmic-ray) and runs its tests.

``python benchmarks/mutation.py --sample 300`` tries 300 of all mutants, drawn with a fixed seed, in a copy of the tree,
and prints how many the tests kill and each one that survives as a diff. ``--sample 0`` tries all: hours. It needs
``pip install cosmic-ray``.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

GROUPS = {
    "order": (
        "streamsafe/order",
        "capture checker clocks edges engine memory pools views".split(),
        "tests/order/test_conflicts.py tests/order/test_event_behaviours.py tests/order/test_capture.py "
        "tests/order/test_semantics_table.py tests/order/test_allocate_again.py tests/order/test_views.py "
        "tests/order/test_marks.py tests/order/test_oracle.py tests/order/test_bounded.py",
    ),
    "monitor": (
        "streamsafe/runtime",
        ["monitor"],
        "tests/runtime/test_session.py tests/runtime/test_host.py tests/runtime/test_traces.py "
        "tests/runtime/test_fixtures.py",
    ),
}
"""What is changed (folder, modules) and the tests that should notice, quick ones first."""

NO_EFFECT = ("core/ReplaceBinaryOperator_BitOr_",)
"""Operators that here only change annotations, which nothing evaluates."""

CONFIG = """[cosmic-ray]
module-path = [{modules}]
timeout = {timeout:.1f}
excluded-modules = []
test-command = "{python} -m pytest -q -x -p no:cacheprovider -p no:randomly {tests}"

[cosmic-ray.distributor]
name = "local"
"""


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


def draw(session: Path, sample: int, seed: int) -> int:
    """Marks all mutants but a sample as skipped; returns how many are left."""
    from cosmic_ray.work_db import WorkDB, use_db
    from cosmic_ray.work_item import WorkerOutcome, WorkResult

    with use_db(str(session), WorkDB.Mode.open) as database:
        items = sorted(database.work_items, key=lambda item: str(item.mutations))
        useful = [item for item in items if not item.mutations[0].operator_name.startswith(NO_EFFECT)]
        chosen = random.Random(seed).sample(useful, min(sample or len(useful), len(useful)))
        kept = {item.job_id for item in chosen}
        for item in items:
            if item.job_id not in kept:
                database.set_result(item.job_id, WorkResult(worker_outcome=WorkerOutcome.SKIPPED))
    return len(kept)


def report(session: Path) -> None:
    """Prints the share that was killed, and the diffs of those that survive."""
    from cosmic_ray.work_db import WorkDB, use_db
    from cosmic_ray.work_item import TestOutcome, WorkerOutcome

    outcomes: Counter[str] = Counter()
    with use_db(str(session), WorkDB.Mode.open) as database:
        for _, result in database.results:
            if result.worker_outcome is WorkerOutcome.SKIPPED:
                continue
            outcomes[str(result.test_outcome.value if result.test_outcome else "no outcome")] += 1
            if result.test_outcome is TestOutcome.SURVIVED:
                print(result.diff, end="\n\n")
    total = sum(outcomes.values())
    killed = total - outcomes["survived"]
    print(f"{killed} of {total} mutants killed ({killed / max(total, 1):.1%}); {dict(outcomes)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("group", choices=sorted(GROUPS), nargs="?", default="order")
    parser.add_argument("--sample", type=int, default=300, help="how many mutants; 0: all")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--timeout", type=float, default=120.0, help="seconds for one run of the tests")
    options = parser.parse_args()
    folder, modules, tests = GROUPS[options.group]
    os.environ["STREAMSAFE_COMPILED"] = "0"  # the hooks in Python use the monitor for everything
    with tempfile.TemporaryDirectory() as name:
        tree = Path(name) / "tree"
        copy(tree)
        config, session = Path(name) / "config.toml", Path(name) / "session.sqlite"
        files = ", ".join(f'"{folder}/{module}.py"' for module in modules)
        config.write_text(
            CONFIG.format(modules=files, timeout=options.timeout, python=sys.executable, tests=tests),
            encoding="utf-8",
        )
        paths = filter(None, [str(tree), os.environ.get("PYTHONPATH")])
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "PYTHONDONTWRITEBYTECODE": "1"}
        tool = [sys.executable, "-m", "cosmic_ray.cli"]

        def run(*arguments: str) -> None:
            subprocess.run([*tool, *arguments], cwd=tree, env=environment, check=True)

        run("baseline", str(config))
        run("init", str(config), str(session))
        print(f"{draw(session, options.sample, options.seed)} mutants", file=sys.stderr)
        run("exec", str(config), str(session))
        report(session)


if __name__ == "__main__":
    main()
