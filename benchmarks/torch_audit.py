"""Are there kernels that the sanitizer does not know of? Launches that the driver reports, against those claimed.

python benchmarks/torch_audit.py [--only NAME ...] [--jobs N] [--json FILE]

CUPTI calls back at each launch, copy and memset, in the thread that makes it. It is claimed when the thread is inside
an operator that the sanitizer has recorded, or when a hook has just announced a kernel or a graph. The programs are
those of `torch_programs.py`. Prints a Markdown table, and each unclaimed kernel with the line that launched it.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import subprocess
import sys
import threading
import traceback
import warnings
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import torch_programs
from public import PROGRAMS

DRIVER = 1  # CUPTI_CB_DOMAIN_DRIVER_API
ENTER = 0
WORK = ("cuLaunch", "cuGraphLaunch", "cuMemcpy", "cuMemset")
HERE = str(Path(__file__).resolve())


class Data(ctypes.Structure):
    """CUpti_CallbackData, as far as it is read here."""

    _fields_ = (
        ("site", ctypes.c_int),
        ("function", ctypes.c_char_p),
        ("parameters", ctypes.c_void_p),
        ("result", ctypes.c_void_p),
        ("symbol", ctypes.c_char_p),
    )


class Audit:
    """Counts work by who claims it, while it is on."""

    def __init__(self) -> None:
        self.claimed: Counter[str] = Counter()
        self.announced: Counter[str] = Counter()
        self.unclaimed: Counter[str] = Counter()
        self.lines: dict[str, list[str]] = {}
        self.on = False
        self._credit = threading.local()
        self._inside: Callable[[], str] = str
        function = ctypes.CFUNCTYPE(
            None, ctypes.c_void_p, ctypes.c_int, ctypes.c_uint32, ctypes.POINTER(Data)
        )
        self._callback = function(self._called)
        self._cupti = ctypes.CDLL(_cupti())
        self._subscriber = ctypes.c_void_p()

    def begin(self, extension: Any, watch: Any) -> None:
        """Listens; ``extension`` and ``watch`` are the sanitizer's."""
        self._inside = extension.inside
        launch, replay = extension.launch, watch.replay

        def launched(operation: str, *rest: Any) -> Any:
            self._credit.name = operation
            return launch(operation, *rest)

        def replayed(this: Any, *rest: Any) -> Any:
            self._credit.name = "a graph"
            return replay(this, *rest)

        extension.launch, watch.replay = launched, replayed
        self._check(self._cupti.cuptiSubscribe(ctypes.byref(self._subscriber), self._callback, None))
        name = ctypes.c_char_p()
        for number in range(1, 2000):
            if self._cupti.cuptiGetCallbackName(DRIVER, number, ctypes.byref(name)) != 0:
                continue
            if name.value is not None and name.value.decode().startswith(WORK):
                self._check(self._cupti.cuptiEnableCallback(1, self._subscriber, DRIVER, number))

    def end(self) -> None:
        self._cupti.cuptiUnsubscribe(self._subscriber)

    def _called(self, _user: Any, _domain: int, _number: int, data: Any) -> None:
        found = data.contents
        if not self.on or found.site != ENTER:
            return
        function = (found.function or b"").decode()
        operator = self._inside()
        if operator:
            self.claimed[operator] += 1
            return
        announced = getattr(self._credit, "name", "")
        if announced:
            self._credit.name = ""
            self.announced[announced] += 1
            return
        symbol = (found.symbol or b"").decode() if function.startswith("cuLaunch") else ""
        key = f"{function} {symbol[:80]}".strip()
        self.unclaimed[key] += 1
        if key not in self.lines:
            stack = [frame for frame in traceback.extract_stack() if frame.filename != HERE]
            self.lines[key] = [f"{frame.filename}:{frame.lineno} {frame.line}" for frame in stack[-8:]]

    @staticmethod
    def _check(status: int) -> None:
        if status:
            raise RuntimeError(f"CUPTI: error {status}")


def _cupti() -> str:
    """The library that torch has loaded, or the one on the path."""
    with open("/proc/self/maps", encoding="utf-8") as maps:
        for line in maps:
            if "libcupti.so" in line:
                return line.split()[-1]
    return "libcupti.so"


def one(name: str) -> dict[str, Any]:
    """One program under the sanitizer and the audit."""
    import importlib.util

    import torch

    import streamsafe

    function, needs = PROGRAMS[name]
    missing = [need for need in needs if importlib.util.find_spec(need) is None]
    if missing:
        return {"program": name, "skipped": f"needs {missing[0]}"}
    torch.ones(1, device="cuda").add_(1)
    with streamsafe.sanitize("collect"):
        torch.ones(1, device="cuda").add_(1)
    from streamsafe.runtime.torch.watch import Watch, extension

    audit = Audit()
    audit.begin(extension()[0], Watch)
    with streamsafe.sanitize("collect"):
        audit.on = True
        torch_programs.seeded(function)
        audit.on = False
    audit.end()
    return {
        "program": name,
        "operators": sum(audit.claimed.values()),
        "hooks": sum(audit.announced.values()),
        "unclaimed": dict(audit.unclaimed.most_common()),
        "lines": audit.lines,
    }


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="*", default=None)
    parser.add_argument("--jobs", type=int, default=4)
    parser.add_argument("--seconds", type=int, default=240)
    parser.add_argument("--run", help=argparse.SUPPRESS)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if options.run:
        warnings.simplefilter("ignore")
        try:
            row = one(options.run)
        except BaseException as error:
            row = {"program": options.run, "error": f"{error!r}", "trace": traceback.format_exc()[-1500:]}
        print("\nROW " + json.dumps(row), flush=True)
        os._exit(0)  # threads of the libraries do not keep the process

    def start(name: str) -> dict[str, Any]:
        try:
            command = [sys.executable, __file__, "--run", name]
            ended = subprocess.run(command, capture_output=True, text=True, timeout=options.seconds)
        except subprocess.TimeoutExpired:
            return {"program": name, "error": "timed out"}
        lines = [line for line in ended.stdout.splitlines() if line.startswith("ROW ")]
        if not lines:
            return {"program": name, "error": f"exit status {ended.returncode} {ended.stderr[-600:]}"}
        row: dict[str, Any] = json.loads(lines[-1][4:])
        return row

    names = [name for name in PROGRAMS if options.only is None or any(part in name for part in options.only)]
    rows = []
    print("| program | launches in operators | announced by hooks | claimed by nobody |\n|---|---|---|---|")
    with ThreadPoolExecutor(options.jobs) as pool:
        for done in as_completed([pool.submit(start, name) for name in names]):
            row = done.result()
            rows.append(row)
            if "error" in row or "skipped" in row:
                print(
                    f"| {row['program']} | {row.get('error', row.get('skipped', ''))[:200]} | | |", flush=True
                )
            else:
                count = sum(row["unclaimed"].values())
                print(f"| {row['program']} | {row['operators']:,} | {row['hooks']:,} | {count} |", flush=True)
            if options.json:
                options.json.write_text(json.dumps(rows, indent=1), encoding="utf-8")
    for row in rows:
        for key, count in row.get("unclaimed", {}).items():
            print(f"{row['program']}: {count} x {key}\n    " + "\n    ".join(row["lines"].get(key, [])))
    return 0


if __name__ == "__main__":
    sys.exit(main())
