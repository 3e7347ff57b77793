"""Public programs inside the sanitizer: are they silent, and is what they compute unchanged?

python benchmarks/torch_programs.py [--only NAME ...] [--jobs N] [--simulate] [--json FILE]

Each program runs in a process of its own: twice plain, once under `sanitize("collect")`. Where the two plain runs agree
in every bit, the third must too. Prints a Markdown table, and each hazard in full. Models are small and have random
weights.

`--late`: instead, whether what was found shows in the data: each program runs once with the host waiting after each
operator, then with a spin before each operator on other streams than the default one, and on the default one.
"""
# mypy: disable-error-code="no-untyped-call, attr-defined, import-not-found, import-untyped, misc, no-any-return"
# mypy: disable-error-code="arg-type, var-annotated"

from __future__ import annotations

import argparse
import faulthandler
import importlib.util
import json
import os
import subprocess
import sys
import time
import traceback
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

from public import PROGRAMS, Values


def fatal(text: str) -> str:
    """What a process said when it died, without the list of its extension modules."""
    begin = max(text.find("Fatal Python error"), 0)
    end = text.find("Extension modules:", begin)
    return text[begin:end][-4000:] + ("\n(plain runs were done)" if "plain runs done" in text else "")


def seeded(function: Callable[[], Values]) -> list[str]:
    import torch

    torch.backends.cudnn.deterministic = True
    torch.manual_seed(0)
    values = [value.hex() for value in function()]
    torch.cuda.synchronize()
    return values


def late(function: Callable[[], Values]) -> dict[str, list[str]]:
    """What a program computes when the work of some streams comes late, by the streams."""
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    class Perturbed(TorchDispatchMode):
        def __init__(self, way: str) -> None:
            super().__init__()
            self.way = way

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if torch.utils.data.get_worker_info() is not None or torch.cuda.is_current_stream_capturing():
                return func(*args, **(kwargs or {}))
            on_default = torch.cuda.current_stream() == torch.cuda.default_stream()
            if self.way != "none" and on_default == (self.way == "default"):
                torch.cuda._sleep(3_000_000)
            result = func(*args, **(kwargs or {}))
            if self.way == "none":
                torch.cuda.synchronize()
            return result

    found = {}
    for way in ("none", "default", "others"):
        with Perturbed(way):
            found[way] = seeded(function)
    return found


def one(name: str, perturb: bool = False) -> dict[str, Any]:
    """Twice plain, once checked."""
    import streamsafe

    function, needs = PROGRAMS[name]
    missing = [need for need in needs if importlib.util.find_spec(need) is None]
    if missing:
        return {"program": name, "skipped": f"needs {missing[0]}"}
    if perturb:
        found = late(function)
        wrong = [way for way, values in found.items() if values != found["none"]]
        return {"program": name, "late": found, "wrong": wrong}
    plain = [seeded(function), seeded(function)]
    print("plain runs done", file=sys.stderr, flush=True)
    with streamsafe.sanitize("collect") as session:
        checked = seeded(function)
    from streamsafe.runtime.torch.watch import extension

    counts = extension()[0].counters()
    equal = plain[0] == plain[1]
    return {
        "program": name,
        "values": len(plain[0]),
        "deterministic": equal,
        "unchanged": checked == plain[0] if equal else None,
        "differs": [plain[0][:4], checked[:4]] if equal and checked != plain[0] else None,
        "operators": counts["operators"],
        "waits": counts["waits"],
        "hazards": [str(streamsafe.StreamHazardError(hazard)) for hazard in session.hazards],
        "notes": [str(note) for note in session.notes] if hasattr(session, "notes") else [],
    }


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="*", default=None)
    parser.add_argument("--jobs", type=int, default=4)
    parser.add_argument("--seconds", type=int, default=240, help="at most so long for one program")
    parser.add_argument("--simulate", action="store_true", help="on the simulated device of a CPU build")
    parser.add_argument("--late", action="store_true")
    parser.add_argument("--run", help=argparse.SUPPRESS)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if options.run:
        faulthandler.enable()
        if options.simulate:
            from streamsafe.simulate import torch as simulate

            simulate.install()
        warnings.simplefilter("ignore")
        try:
            row = one(options.run, options.late)
        except BaseException as error:
            row = {"program": options.run, "error": f"{error!r}", "trace": traceback.format_exc()[-2500:]}
        print("\nROW " + json.dumps(row), flush=True)
        os._exit(0)  # threads of the libraries do not keep the process

    def start(name: str) -> dict[str, Any]:
        command = [sys.executable, __file__, "--run", name, *(["--simulate"] if options.simulate else [])]
        command += ["--late"] if options.late else []
        begun = time.monotonic()
        try:
            ended = subprocess.run(command, capture_output=True, text=True, timeout=options.seconds)
        except subprocess.TimeoutExpired:
            return {"program": name, "error": "timed out"}
        lines = [line for line in ended.stdout.splitlines() if line.startswith("ROW ")]
        if not lines:
            return {
                "program": name,
                "error": f"exit status {ended.returncode}",
                "trace": fatal(ended.stderr),
            }
        row: dict[str, Any] = json.loads(lines[-1][4:])
        return {**row, "seconds": round(time.monotonic() - begun, 1)}

    names = [name for name in PROGRAMS if options.only is None or any(part in name for part in options.only)]
    rows = []
    print("| program | losses | equal bit by bit | operators | waits | hazards |\n|---|---|---|---|---|---|")
    with ThreadPoolExecutor(options.jobs) as pool:
        for done in as_completed([pool.submit(start, name) for name in names]):
            row = done.result()
            rows.append(row)
            if "error" in row or "skipped" in row:
                print(
                    f"| {row['program']} | {row.get('error', row.get('skipped', ''))[:150]} | | | | |",
                    flush=True,
                )
            elif options.late:
                wrong = ", ".join(row["wrong"]) or "none"
                print(f"| {row['program']} | wrong when these come late: {wrong} | | | | |", flush=True)
            else:
                equal = {True: "yes", False: "NO", None: "two plain runs differ"}[row["unchanged"]]
                print(
                    f"| {row['program']} | {row['values']} | {equal} | {row['operators']:,} | {row['waits']:,} | "
                    f"{len(row['hazards'])} |",
                    flush=True,
                )
            if options.json:
                options.json.write_text(json.dumps(rows, indent=1), encoding="utf-8")
    for row in rows:
        for hazard in row.get("hazards", []):
            print(f"\n{row['program']}:\n{hazard}")
        if "error" in row:
            print(f"\n{row['program']}: {row['error']}\n{row.get('trace', '')}")
    return (
        1
        if any(row.get("hazards") or row.get("error") or row.get("unchanged") is False for row in rows)
        else 0
    )


if __name__ == "__main__":
    sys.exit(main())
