"""PyTorch's own tests with and without the sanitizer: do outcomes change, are there hazards?

python benchmarks/torch_own_tests.py PYTORCH [--jobs N] [--workers N] [--only FILE ...] [--seconds N] [--json FILE]

PYTORCH is a checkout (or the folder `test` of one) near the installed release; its tests need `expecttest`. A test
whose outcome differs is run twice more alone, without and with the sanitizer. Prints a Markdown table and each hazard.
"""

from __future__ import annotations

import argparse
import json
import sys
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import peer_tests

FILES = {
    "test_cuda.py": "",
    "test_autograd.py": "stream or cuda or thread or hook or checkpoint or saved or graph_task or reentrant",
    "test_cuda_sanitizer.py": "",
    "test_cuda_trace.py": "",
    "test_cuda_expandable_segments.py": "stream or event or graph or alloc or pin or record or sync",
}
"""The files, and which of their tests by name (of pytest's option -k); empty: all."""

PICKED = {
    "test_cuda.py": "stream or event or graph or alloc or pin or cach or record or sync or wait or thread or host"
}
"""With --short: fewer of a file."""


def run(
    root: Path, name: str, mode: str | None, extra: tuple[str, ...], seconds: int, workers: int
) -> dict[str, Any]:
    settings = ("--noconftest", "-c", "/dev/null", "--rootdir", str(root))
    environment = {"PYTORCH_TEST_WITH_SLOW": "0", "CI": ""}
    return peer_tests.run(
        root / name,
        root,
        mode=mode,
        extra=extra,
        seconds=seconds,
        workers=workers,
        settings=settings,
        environment=environment,
    )


def changed(before: dict[str, str], after: dict[str, str]) -> dict[str, list[str]]:
    """Tests whose outcomes differ, with both."""
    return {
        test: [before.get(test, "missing"), after.get(test, "missing")]
        for test in sorted(before.keys() | after.keys())
        if before.get(test) != after.get(test)
    }


def compare(root: Path, name: str, names: str, seconds: int, workers: int) -> dict[str, Any]:
    """Both runs of one file, and those tests alone whose outcomes differ."""
    extra = ("-k", names) if names else ()
    plain, checked = (run(root, name, mode, extra, seconds, workers) for mode in (None, "collect"))
    before, after = plain["outcomes"], checked["outcomes"]
    differ = changed(before, after)
    still = {}
    for test in list(differ)[:20] if after else ():
        function = test.rpartition("::")[2]
        again = ("-k", f"{function} and not {function}_")
        pair = [
            run(root, name, mode, again, 120, 0)["outcomes"].get(test, "missing")
            for mode in (None, "collect")
        ]
        if pair[0] != pair[1]:
            still[test] = pair
    counts = checked.get("counts", {})
    return {
        "file": name,
        "tests": len(before),
        "passed": sum(outcome == "passed" for outcome in before.values()),
        "failed": sum(outcome == "failed" for outcome in before.values()),
        "operators": counts.get("torch operators", 0),
        "waits": counts.get("torch waits", 0),
        "differ": differ,
        "changed": still,
        "hazards": checked["hazards"],
        "error": plain.get("error") or checked.get("error"),
    }


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("pytorch", type=Path)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--workers", type=int, default=0, help="processes for each file, by pytest-xdist")
    parser.add_argument("--only", nargs="*", default=None)
    parser.add_argument("--names", help="the tests by name instead (pytest's option -k)")
    parser.add_argument(
        "--short", action="store_true", help="of test_cuda.py the tests of streams and memory only"
    )
    parser.add_argument("--seconds", type=int, default=540, help="at most so long for one run of a file")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    root: Path = options.pytorch.resolve()
    if not (root / "test_cuda.py").exists():
        root = root / "test"
    names = {name: picked for name, picked in FILES.items() if (root / name).exists()}
    if options.short:
        names |= {name: picked for name, picked in PICKED.items() if name in names}
    if options.only is not None:
        names = {name: picked for name, picked in names.items() if any(part in name for part in options.only)}
    if options.names:
        names = dict.fromkeys(names, options.names)
    rows = []
    print("| file | tests | passed | failed without too | operators | waits | outcomes changed | hazards |")
    print("|---|---|---|---|---|---|---|---|")
    with ThreadPoolExecutor(options.jobs) as pool:
        jobs = [
            pool.submit(compare, root, name, picked, options.seconds, options.workers)
            for name, picked in names.items()
        ]
        for done in as_completed(jobs):
            row = done.result()
            rows.append(row)
            hazards = sum(len(messages) for messages in row["hazards"].values())
            print(
                f"| {row['file']} | {row['tests']} | {row['passed']} | {row['failed']} | {row['operators']:,} | "
                f"{row['waits']:,} | {len(row['changed'])} | {hazards} |{' ERROR' if row['error'] else ''}",
                flush=True,
            )
            if options.json:
                options.json.write_text(json.dumps(rows, indent=1), encoding="utf-8")
    bad = [row for row in rows if row["differ"] or row["hazards"] or row["error"]]
    for row in bad:
        shown = {key: row[key] for key in ("differ", "changed", "hazards", "error")}
        print(row["file"], json.dumps(shown, indent=1)[:6000])
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
