"""GPU tests of public projects on the simulated device: a table of what passes, and of what the sanitizer reports.

    python benchmarks/simulated_suites.py --devices 2 accelerate=../accelerate:tests/test_accelerator.py timm=../timm

Nothing is fetched: each argument is a name, a folder that holds a project, and test files or folders in it (by
default its ``tests``). The project and what its tests need (and pytest-timeout) are installed in the environment
already. Each suite runs in a pytest process of its own, in the mode ``simulate,collect``, in which this file is a
plugin: it writes down each test when it starts and when it ends. When the process dies, the test that was running
counts as crashed, and a new process runs those that are left. A test that fails of nothing but a hazard counts as
passed and as a report.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

HAZARD = re.compile(r"SS\d{3} |in a child process: SS\d{3} ")
TOO_LONG = "cut: more than its seconds"
RECORD = "SIMULATED_SUITES_RECORD"
"""The variable that says where the plugin writes."""


# -- in the process of the tests -------------------------------------------------------------------------------------


def write(**line: Any) -> None:
    with Path(os.environ[RECORD]).open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")


def lines(path: Path) -> Iterator[dict[str, Any]]:
    if path.exists():
        yield from map(json.loads, path.read_text(encoding="utf-8").splitlines())


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leaves out what an earlier process of this suite has run."""
    done = {line["test"] for line in lines(Path(os.environ[RECORD])) if "test" in line}
    items[:] = [item for item in items if item.nodeid not in done]


def pytest_collection_finish(session: pytest.Session) -> None:
    write(collected=[item.nodeid for item in session.items])


def pytest_collectreport(report: pytest.CollectReport) -> None:
    if report.failed:
        write(test=report.nodeid, outcome="failed", message=message_of(report), text=report.longreprtext)
        write(test=report.nodeid, outcome="ended")


def pytest_runtest_logstart(nodeid: str) -> None:
    write(test=nodeid, outcome="started")


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if not report.passed:
        write(
            test=report.nodeid, outcome=report.outcome, message=message_of(report), text=report.longreprtext
        )


def pytest_runtest_logfinish(nodeid: str) -> None:
    write(test=nodeid, outcome="ended")


def message_of(report: pytest.TestReport | pytest.CollectReport) -> str:
    crash = getattr(report.longrepr, "reprcrash", None)
    return str(crash.message if crash is not None else report.longreprtext)


# -- in ours ---------------------------------------------------------------------------------------------------------


@dataclass
class Result:
    """What one suite did.

    Attributes:
        passed, failed, skipped: tests; one with a hazard only is passed.
        crashed: tests in which the process died or was ended, by their names.
        left: tests that did not run.
        reported: tests with hazards.
        codes: their hazards by code.
        causes: first lines of failures, counted.
        ended: why not all tests ran, or nothing.
        seconds: of the wall.
    """

    passed: int = 0
    failed: int = 0
    skipped: int = 0
    crashed: list[str] = field(default_factory=list)
    left: int = 0
    reported: int = 0
    codes: Counter[str] = field(default_factory=Counter)
    causes: Counter[str] = field(default_factory=Counter)
    ended: str = ""
    seconds: float = 0


def read(record: Path) -> Result:
    """Counts what the plugin wrote."""
    made = Result()
    collected: set[str] = set()
    tests: dict[str, list[dict[str, Any]]] = {}
    for line in lines(record):
        collected.update(line.get("collected", ()))
        if "test" in line:
            tests.setdefault(line["test"], []).append(line)
    made.left = len(collected - tests.keys())
    for name, events in tests.items():
        messages = [event["message"] for event in events if event["outcome"] == "failed"]
        hazards = [message for message in messages if HAZARD.search(message)]
        made.reported += bool(hazards)
        made.codes.update(code for message in hazards for code in re.findall(r"SS\d{3}", message)[:1])
        others = [message for message in messages if message not in hazards]
        if events[-1]["outcome"] != "ended":
            made.crashed.append(name)
        elif others:
            made.failed += 1
            made.causes[re.sub(r"0x[0-9a-f]+|\d+", "N", others[0].partition("\n")[0])[:100]] += 1
        elif any(event["outcome"] == "skipped" for event in events):
            made.skipped += 1
        else:
            made.passed += 1
    return made


def run(
    folder: Path, tests: list[str], options: list[str], limits: tuple[float, float], record: Path
) -> Result:
    """Runs one suite.

    Args:
        folder: of the project.
        tests: files and folders in it.
        options: for pytest.
        limits: seconds that the suite and that a test may take.
        record: the file that the plugin writes.
    """
    record.unlink(missing_ok=True)
    here = Path(__file__).resolve()
    paths = [str(here.parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = os.environ | {RECORD: str(record), "PYTHONPATH": os.pathsep.join(paths)}
    command = [sys.executable, "-m", "pytest", "-p", "streamsafe", "-p", here.stem, "-q", "--tb=short"]
    command += ["-p", "no:cacheprovider", "--continue-on-collection-errors", f"--timeout={limits[1]:.0f}"]
    command += ["--streamsafe=simulate,collect", "--streamsafe-allow-idle", *options, *tests]
    begun = time.monotonic()
    made = Result()
    with record.with_suffix(".log").open("w", encoding="utf-8") as output:
        while not made.ended:
            crashes = len(made.crashed)
            suite = subprocess.Popen(
                command, cwd=folder, env=environment, stdout=output, stderr=output, start_new_session=True
            )
            ended = watch(suite, begun + limits[0], limits[1] + 60, record)
            made = read(record)
            if len(made.crashed) > crashes and ended != TOO_LONG:
                continue
            if suite.returncode not in (0, 1) and (made.left or not made.passed):
                made.ended = ended or f"status {suite.returncode}"
            break
    made.seconds = time.monotonic() - begun
    return made


def watch(suite: subprocess.Popen[bytes], until: float, silent: float, record: Path) -> str:
    """Waits for a suite's process, and ends it, and all that it started, when it takes too long or says nothing."""
    ended, size, heard = "", -1, time.monotonic()
    while suite.poll() is None and not ended:
        time.sleep(0.5)
        now = time.monotonic()
        if record.exists() and record.stat().st_size != size:
            size, heard = record.stat().st_size, now
        hangs = size >= 0 and now > heard + silent  # nothing is written yet while the device is being built
        ended = TOO_LONG if now > until else f"nothing for {silent:.0f} s" if hangs else ""
    with suppress(ProcessLookupError):
        os.killpg(suite.pid, signal.SIGKILL)
    suite.wait()
    return ended


def table(results: dict[str, Result]) -> str:
    """The results as Markdown."""
    rows = ["| suite | pass | fail | crash | skip | not run | tests with reports | seconds |"]
    rows.append("|---" * 8 + "|")
    for name, each in results.items():
        codes = ", ".join(f"{code} x{count}" for code, count in sorted(each.codes.items()))
        reports = f"{each.reported} ({codes})" if codes else str(each.reported)
        note = f" ({each.ended})" if each.ended else ""
        rows.append(
            f"| {name}{note} | {each.passed} | {each.failed} | {len(each.crashed)} | {each.skipped} "
            f"| {each.left} | {reports} | {each.seconds:.0f} |"
        )
    return "\n".join(rows)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("suites", nargs="+", metavar="NAME=FOLDER[:TESTS,...]")
    parser.add_argument("--devices", default="1")
    parser.add_argument("--memory", default="8GiB")
    parser.add_argument("--capability", default="8.0")
    parser.add_argument("--limit", type=float, default=1800, help="seconds a suite may take")
    parser.add_argument("--each", type=float, default=120, help="seconds a test may take")
    parser.add_argument(
        "--keep", type=Path, metavar="FOLDER", help="keep there what each suite's tests did, and its output"
    )
    parser.add_argument("-k", dest="only", default="", help="as pytest's -k")
    chosen = parser.parse_args()
    words = ("devices", "memory", "capability")
    options = [f"--streamsafe-{word}={getattr(chosen, word)}" for word in words]
    options += ["-k", chosen.only] if chosen.only else []
    results = {}
    with tempfile.TemporaryDirectory() as temporary:
        kept = (chosen.keep or Path(temporary)).resolve()
        kept.mkdir(parents=True, exist_ok=True)
        for suite in chosen.suites:
            name, _, rest = suite.partition("=")
            folder, _, tests = rest.partition(":")
            files = tests.split(",") if tests else ["tests"]
            limits = chosen.limit, chosen.each
            made = results[name] = run(Path(folder), files, options, limits, kept / f"{name}.jsonl")
            told = dict(made.causes.most_common(8))
            print(f"{name}: {told}, crashed {made.crashed}", file=sys.stderr, flush=True)
    print(table(results))


if __name__ == "__main__":
    main()
