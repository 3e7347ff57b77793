"""Programs of several ranks, plain and under the sanitizer: the same results, the hazards they should have, the cost.

``python benchmarks/distributed.py --ranks 2`` starts each program of ``fixtures/distributed`` by torchrun, with NCCL
where there are as many GPUs as ranks and with gloo elsewhere, and prints a table. Racy programs are run plain too:
how often their data was stale is the proof that the edge is missing (rows TD of docs/semantics.md).
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parents[1] / "fixtures" / "distributed"
SHARED = {"common", "rank"}


def expected(path: Path) -> str:
    """The code in a program's header, or ``none``."""
    found = re.search(r"^# expect: (\w+)$", path.read_text(encoding="utf-8"), re.M)
    assert found is not None, path
    return found.group(1)


def launch(
    programs: list[str], ranks: int, options: list[str], timeout: float
) -> tuple[dict[str, list[dict[str, Any]]], str]:
    """What each rank saw of each program, and what went wrong: all run one after the other in one start."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
    command += [str(FOLDER / "rank.py"), *programs, *options]
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        try:
            code: int | str = subprocess.run(command, stdout=out, stderr=err, timeout=timeout).returncode
        except subprocess.TimeoutExpired:
            code = "timeout"
        out.seek(0)
        err.seek(0)
        text, errors = out.read(), err.read()
    seen: dict[str, list[dict[str, Any]]] = {name: [] for name in programs}
    for start in re.finditer(r"RANK (?=\{)", text):
        one, _ = json.JSONDecoder().raw_decode(text, start.end())
        seen[one["program"]].append(one)
    for runs in seen.values():
        runs.sort(key=lambda one: int(one["rank"]))
    return seen, "" if code == 0 else f"exit {code}: {errors.strip()[-3000:]}"


def failure(runs: list[dict[str, Any]], ranks: int) -> str:
    """Why a program gave no result; empty when every rank gave one."""
    if len(runs) < ranks:
        return "no result"
    return next((str(one["error"]) for one in runs if "error" in one), "")


def codes(runs: list[dict[str, Any]]) -> list[str]:
    return sorted({code for one in runs for code, _, _ in one["hazards"]})


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("programs", nargs="*", help="names; all when none is given")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--plain", action="store_true", help="only without the sanitizer")
    parser.add_argument(
        "--simulate", action="store_true", help="NCCL on simulated devices, one for each rank"
    )
    parser.add_argument("--timeout", type=float, default=600.0, help="seconds for one start of all")
    parser.add_argument("--json", type=Path, help="where everything is written")
    options = parser.parse_args()
    names = options.programs or sorted(p.stem for p in FOLDER.glob("*.py") if p.stem not in SHARED)
    where = ["--simulate"] if options.simulate else []
    plain, trouble = launch(names, options.ranks, where, options.timeout)
    checked, more = (
        ({}, "") if options.plain else launch(names, options.ranks, [*where, "--sanitize"], options.timeout)
    )
    wrong = 0
    print(f"{'program':34} {'expected':9} {'found':12} {'stale':8} {'same bits':10} {'cost':6}")
    for name in names:
        expect = expected(FOLDER / f"{name}.py")
        bad = failure(plain[name], options.ranks)
        if not options.plain:
            bad = bad or failure(checked[name], options.ranks)
        if bad:
            wrong += 1
            print(f"{name:34} {expect:9} FAILED {bad}")
            continue
        stale = f"{sum(one['stale'] for one in plain[name])}" if expect != "none" else ""
        found, same, cost = "-", "-", "-"
        if not options.plain:
            found = " ".join(codes(checked[name])) or "none"
            wrong += found != expect
            if expect == "none":
                pairs = list(zip(plain[name], checked[name], strict=True))
                steady = all(len(one["digests"]) == 1 for one in plain[name])
                equal = all(one["digests"] == two["digests"] for one, two in pairs)
                same = ("yes" if equal else "NO") if steady else "not steady"
                wrong += same == "NO"
                cost = f"{max(two['seconds'] / one['seconds'] for one, two in pairs):.2f}"
        print(f"{name:34} {expect:9} {found:12} {stale:8} {same:10} {cost:6}")
    for text in filter(None, (trouble, more)):
        print(text)
    if options.json:
        everything = {"plain": plain, "sanitized": checked, "trouble": [trouble, more]}
        options.json.write_text(json.dumps(everything, indent=1), encoding="utf-8")
    print(f"{len(names)} programs, {wrong} not as expected")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
