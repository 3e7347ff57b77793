"""CuPy's own tests with and without the sanitizer: do outcomes change, are there hazards, and does a removed wait fire?

python benchmarks/peer_tests.py CUPY [--jobs N] [--workers N] [--stop SECONDS] [--only FILE ...] [--mutants N]
    [--json FILE]

CUPY is a checkout of CuPy at the tag of the installed version. A mutant is a test file with one synchronize or wait
removed; it fires when the sanitizer reports a hazard in a test of it. Prints Markdown tables.
"""

from __future__ import annotations

import argparse
import ast
import importlib.metadata
import json
import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor, as_completed
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).resolve().parent
FILES = (
    "cuda_tests/test_stream.py",
    "cuda_tests/test_graph.py",
    "cuda_tests/test_memory.py",
    "cuda_tests/test_pinned_memory.py",
    "cuda_tests/test_texture.py",
    "cuda_tests/test_runtime.py",
    "cuda_tests/test_nccl.py",
    "cuda_tests/test_device.py",
    "core_tests/test_dlpack.py",
    "core_tests/test_ndarray_cuda_array_interface.py",
    "core_tests/test_ndarray_get.py",
    "core_tests/test_ndarray.py",
    "core_tests/test_ndarray_copy_and_view.py",
    "core_tests/test_elementwise.py",
    "core_tests/test_ndarray_elementwise_op.py",
    "core_tests/test_ndarray_reduction.py",
    "core_tests/test_reduction.py",
    "core_tests/test_ndarray_indexing.py",
    "core_tests/test_ndarray_adv_indexing.py",
    "core_tests/test_ndarray_scatter.py",
    "core_tests/test_scan.py",
    "core_tests/test_userkernel.py",
    "core_tests/test_raw.py",
)
EXAMPLES = "examples/stream"
WAITS = (
    "synchronize",
    "wait_event",
    "deviceSynchronize",
    "streamSynchronize",
    "eventSynchronize",
    "streamWaitEvent",
)


class Mutant(NamedTuple):
    """One wait that is gone. ``test``: the function it stood in."""

    line: int
    text: str
    test: str
    source: str


def mutants(path: Path) -> list[Mutant]:
    """Every statement that is nothing but a synchronize or a wait, each removed in a copy of its own."""
    source = path.read_text(encoding="utf-8")
    tree = ast.parse(source)
    lines = source.splitlines()
    found = []
    for function in [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]:
        for node in ast.walk(function):
            if (
                isinstance(node, ast.Expr)
                and isinstance(node.value, ast.Call)
                and isinstance(node.value.func, ast.Attribute)
                and node.value.func.attr in WAITS
                and node.end_lineno == node.lineno
            ):
                changed = list(lines)
                text = changed[node.lineno - 1]
                changed[node.lineno - 1] = text[: node.col_offset] + "pass"
                found.append(Mutant(node.lineno, text.strip(), function.name, "\n".join(changed) + "\n"))
    return found


def run(
    tests: Path,
    root: Path,
    *,
    mode: str | None,
    extra: tuple[str, ...] = (),
    seconds: int = 540,
    stop: int = 0,
    workers: int = 0,
    environment: dict[str, str] | None = None,
    settings: tuple[str, ...] | None = None,
) -> dict[str, Any]:
    """One file under pytest, in a process of its own or several; the outcomes are empty when it died.

    Args:
        settings: options of pytest instead of those for CuPy's tests.
    """
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out.json"
        path = os.pathsep.join([str(HERE.parent), str(HERE), os.environ.get("PYTHONPATH", "")])
        variables = {**os.environ, "PYTHONPATH": path, "PEER_OUT": str(out), "PEER_STOP": str(stop)}
        variables.setdefault(
            "CUPY_TEST_GPU_LIMIT", devices()
        )  # else `test_thread_safe` waits for a 2nd for ever
        variables.update(environment or {})
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "peer_plugin"]
        command += settings or ("-c", str(root / "pyproject.toml"), "-m", "not slow")
        command += ["-W", "ignore", str(tests), *extra]
        entries = importlib.metadata.entry_points(group="pytest11")
        if not any(entry.value == "streamsafe.runtime.plugin" for entry in entries):
            command += ["-p", "streamsafe.runtime.plugin"]
        if mode is not None:
            command.append(f"--streamsafe={mode}")
        if workers:
            command += ["-n", str(workers)]
        try:
            ended = subprocess.run(
                command, env=variables, cwd=root, capture_output=True, text=True, timeout=seconds
            )
            tail = ended.stdout[-1500:] + ended.stderr[-500:]
        except subprocess.TimeoutExpired:
            tail = "timed out"
        if not out.exists():
            return {"outcomes": {}, "hazards": {}, "counts": {}, "error": tail}
        found: dict[str, Any] = json.loads(out.read_text(encoding="utf-8"))
        return found


@cache
def devices() -> str:
    """How many devices there are, asked in a process of its own."""
    command = "import cupy; print(cupy.cuda.runtime.getDeviceCount())"
    return subprocess.run([sys.executable, "-c", command], capture_output=True, text=True).stdout.strip()


def compare(root: Path, name: str, seconds: int, stop: int, workers: int) -> dict[str, Any]:
    tests = root / "tests" / "cupy_tests" / name
    plain, checked = (
        run(tests, root, mode=mode, seconds=seconds, stop=stop, workers=workers) for mode in (None, "collect")
    )
    before, after = plain["outcomes"], checked["outcomes"]
    if stop:
        before = {test: outcome for test, outcome in before.items() if test in after}
        after = {test: outcome for test, outcome in after.items() if test in before}
    changed = {
        test: [before.get(test, "missing"), after.get(test, "missing")]
        for test in sorted(before.keys() | after.keys())
        if before.get(test) != after.get(test)
    }
    return {
        "file": name,
        "tests": len(before),
        "passed": sum(outcome == "passed" for outcome in before.values()),
        "operations": checked["counts"].get("operations", 0),
        "changed": changed,
        "hazards": checked["hazards"],
        "error": plain.get("error") or checked.get("error"),
    }


def kill(root: Path, name: str, mutant: Mutant, number: int, known: dict[str, list[str]]) -> dict[str, Any]:
    """Runs one mutant's function, or the whole file when it is a helper's."""
    original = root / "tests" / "cupy_tests" / name
    path = original.with_name(f"{original.stem}_mutant{number}.py")
    path.write_text(mutant.source, encoding="utf-8")
    try:
        extra = ("-k", mutant.test) if mutant.test.startswith("test_") else ()
        found = run(path, root, mode="collect", extra=extra, seconds=120)
    finally:
        path.unlink()
    expected = {message for messages in known.values() for message in messages}
    new = [m for messages in found["hazards"].values() for m in messages if m not in expected]
    return {
        "line": mutant.line,
        "text": mutant.text,
        "test": mutant.test,
        "fires": sorted(set(new)),
        "tests": len(found["outcomes"]),
    }


def example(path: Path, root: Path) -> dict[str, Any]:
    """One example as a program of its own."""
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(HERE.parent), os.environ.get("PYTHONPATH", "")]),
    }
    codes = []
    for command in ([sys.executable], [sys.executable, "-m", "streamsafe", "run"]):
        ended = subprocess.run(
            [*command, str(path)], env=environment, cwd=root, capture_output=True, text=True, timeout=240
        )
        codes.append(ended.returncode)
    return {"example": path.name, "status": codes, "end": ended.stderr.strip().splitlines()[-1:]}


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("cupy", type=Path)
    parser.add_argument("--jobs", type=int, default=4)
    parser.add_argument("--workers", type=int, default=0, help="processes for each file, by pytest-xdist")
    parser.add_argument(
        "--stop", type=int, default=0, help="end each run of a file after so long, compare those run"
    )
    parser.add_argument("--only", nargs="*", default=None)
    parser.add_argument("--mutants", type=int, default=0, help="at most so many for each file")
    parser.add_argument("--seconds", type=int, default=540, help="at most so long for one run of a file")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    root: Path = options.cupy.resolve()
    names = [name for name in FILES if (root / "tests" / "cupy_tests" / name).exists()]
    if options.only is not None:
        names = [name for name in names if any(part in name for part in options.only)]
    figures: dict[str, Any] = {}

    def save() -> None:
        if options.json:
            options.json.write_text(json.dumps(figures, indent=1), encoding="utf-8")

    with ThreadPoolExecutor(options.jobs) as pool:
        figures["files"] = []
        print(
            "| file | tests | passed | operations | outcomes changed | hazards |\n|---|---|---|---|---|---|"
        )
        for done in as_completed(
            [
                pool.submit(compare, root, name, options.seconds, options.stop, options.workers)
                for name in names
            ]
        ):
            row = done.result()
            figures["files"].append(row)
            save()
            hazards = sum(len(messages) for messages in row["hazards"].values())
            print(
                f"| {row['file']} | {row['tests']} | {row['passed']} | {row['operations']:,} | "
                f"{len(row['changed'])} | {hazards} |{' ERROR' if row['error'] else ''}",
                flush=True,
            )
        examples = sorted((root / EXAMPLES).glob("*.py"))
        if options.only is not None and "examples" not in options.only:
            examples = []
        figures["examples"] = list(pool.map(lambda path: example(path, root), examples))
        for row in figures["examples"]:
            print(row["example"], "exit status without and with:", row["status"], *row["end"])
        save()
        jobs = []
        for row in figures["files"] if options.mutants else []:
            path = root / "tests" / "cupy_tests" / row["file"]
            chosen = mutants(path)[: options.mutants]
            jobs += [(row["file"], mutant, number, row["hazards"]) for number, mutant in enumerate(chosen)]
        results = pool.map(lambda job: (job[0], kill(root, job[0], job[1], job[2], job[3])), jobs)
        figures["mutants"] = [{"file": name, **result} for name, result in results]
        save()
        for row in figures["mutants"]:
            verdict = "fires" if row["fires"] else "silent"
            print(f"{verdict:7} {row['file']}:{row['line']} {row['test']}: {row['text']}")
    bad = [row for row in figures["files"] if row["changed"] or row["hazards"] or row["error"]]
    for row in bad:
        print(
            row["file"],
            json.dumps({key: row[key] for key in ("changed", "hazards", "error")}, indent=1)[:3000],
        )
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
