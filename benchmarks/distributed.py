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
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parents[1] / "fixtures" / "distributed"
SHARED = {"common", "rank"}


def expected(path: Path) -> str:
    """The code in a program's header, or ``none``."""
    found = re.search(r"^# expect: (\w+)$", path.read_text(encoding="utf-8"), re.M)
    assert found is not None, path
    return found.group(1)


def launch(program: str, ranks: int, sanitize: bool, timeout: float) -> list[dict[str, Any]] | str:
    """What each rank saw; text when it failed."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
    command += [str(FOLDER / "rank.py"), program, *(["--sanitize"] if sanitize else [])]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout)
    except subprocess.TimeoutExpired:
        return "timeout"
    seen = [json.loads(text) for text in re.findall(r"RANK (\{.*\})", done.stdout)]
    if len(seen) != ranks:
        return f"exit {done.returncode}: {done.stderr.strip()[-1500:]}"
    return sorted(seen, key=lambda one: int(one["rank"]))


def codes(runs: list[dict[str, Any]]) -> list[str]:
    return sorted({code for one in runs for code, _, _ in one["hazards"]})


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("programs", nargs="*", help="names; all when none is given")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--plain", action="store_true", help="only without the sanitizer")
    parser.add_argument("--timeout", type=float, default=180.0, help="seconds for one start of one program")
    parser.add_argument("--json", type=Path, help="where everything is written")
    options = parser.parse_args()
    names = options.programs or sorted(p.stem for p in FOLDER.glob("*.py") if p.stem not in SHARED)
    everything: dict[str, Any] = {}
    wrong = 0
    print(f"{'program':34} {'expected':9} {'found':12} {'stale':8} {'same bits':10} {'cost':6}")
    for name in names:
        expect = expected(FOLDER / f"{name}.py")
        plain = launch(name, options.ranks, False, options.timeout)
        checked = None if options.plain else launch(name, options.ranks, True, options.timeout)
        everything[name] = {"expect": expect, "plain": plain, "sanitized": checked}
        if isinstance(plain, str) or isinstance(checked, str):
            wrong += 1
            print(f"{name:34} {expect:9} FAILED {plain if isinstance(plain, str) else checked}", flush=True)
            continue
        stale = f"{sum(one['stale'] for one in plain)}" if expect != "none" else ""
        found, same, cost = "-", "-", "-"
        if checked is not None:
            found = " ".join(codes(checked)) or "none"
            wrong += found != expect
            if expect == "none":
                pairs = list(zip(plain, checked, strict=True))
                steady = all(len(one["digests"]) == 1 for one in plain)
                equal = all(one["digests"] == two["digests"] for one, two in pairs)
                same = ("yes" if equal else "NO") if steady else "not steady"
                wrong += same == "NO"
                cost = f"{max(two['seconds'] / one['seconds'] for one, two in pairs):.2f}"
        print(f"{name:34} {expect:9} {found:12} {stale:8} {same:10} {cost:6}", flush=True)
    if options.json:
        options.json.write_text(json.dumps(everything, indent=1), encoding="utf-8")
    print(f"{len(names)} programs, {wrong} not as expected")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
