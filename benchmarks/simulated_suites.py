"""GPU tests of public projects on the simulated device: a table of what passes, and of what the sanitizer reports.

    python benchmarks/simulated_suites.py --devices 2 accelerate=../accelerate:tests/test_accelerator.py timm=../timm

Nothing is fetched: each argument is a name, a folder that holds a project, and test files or folders in it (by
default its ``tests``). The project and what its tests need are installed in the environment already. Each suite runs in
a pytest process of its own, in the mode ``simulate,collect``; a test that fails of nothing but a hazard counts as
passed and as a report.
"""

from __future__ import annotations

import argparse
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from xml.etree import ElementTree

HAZARD = re.compile(r"SS\d{3} |in a child process: SS\d{3} ")


@dataclass
class Result:
    """What one suite did.

    Attributes:
        passed, failed, skipped: tests; one with a hazard only is passed.
        reported: tests with hazards.
        codes: their hazards by code.
        causes: first lines of failures, counted.
        ended: why the process ended early, or nothing.
        seconds: of the wall.
    """

    passed: int = 0
    failed: int = 0
    skipped: int = 0
    reported: int = 0
    codes: Counter[str] = field(default_factory=Counter)
    causes: Counter[str] = field(default_factory=Counter)
    ended: str = ""
    seconds: float = 0


def read(path: Path) -> Result:
    """Counts what a JUnit file of pytest says."""
    made = Result()
    tests: dict[tuple[str, str], list[ElementTree.Element]] = {}
    for case in ElementTree.parse(path).iter("testcase"):
        if case.get("name"):  # a test that was interrupted has none
            tests.setdefault((case.get("classname", ""), case.get("name", "")), []).append(case)
    for cases in tests.values():
        children = [child for case in cases for child in case]
        problems = [child for child in children if child.tag in ("failure", "error")]
        messages = [problem.get("message", "") for problem in problems]
        hazards = [message for message in messages if HAZARD.search(message)]
        made.reported += bool(hazards)
        made.codes.update(code for message in hazards for code in re.findall(r"SS\d{3}", message)[:1])
        others = [message for message in messages if message not in hazards]
        if others:
            made.failed += 1
            made.causes[
                re.sub(r"0x[0-9a-f]+|\d+", "N", others[0].splitlines()[0] if others[0] else "")[:100]
            ] += 1
        elif any(child.tag == "skipped" for child in children):
            made.skipped += 1
        else:
            made.passed += 1
    return made


def run(folder: Path, tests: list[str], options: list[str], limit: float, report: Path) -> Result:
    """Runs one suite.

    Args:
        folder: of the project.
        tests: files and folders in it.
        options: for pytest.
        limit: seconds it may take.
        report: the JUnit file to write.
    """
    report.unlink(missing_ok=True)
    command = [sys.executable, "-m", "pytest", "-p", "streamsafe", "-q", "-p", "no:cacheprovider"]
    command += ["--streamsafe=simulate,collect", "--streamsafe-allow-idle", "--tb=short"]
    command += [f"--junitxml={report}", *options, *tests]
    begun = time.monotonic()
    ended = ""
    log = report.with_suffix(".log")
    with log.open("w", encoding="utf-8") as output:
        suite = subprocess.Popen(command, cwd=folder, stdout=output, stderr=subprocess.STDOUT)
        try:
            status = suite.wait(limit)
        except subprocess.TimeoutExpired:
            ended, status = f"more than {limit:.0f} s", 0
            suite.send_signal(signal.SIGINT)  # pytest writes its report of the tests that have run
            try:
                suite.wait(60)
            except subprocess.TimeoutExpired:
                suite.kill()
                suite.wait()
    if status not in (0, 1):
        lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        ended = f"status {status}: {lines[-1] if lines else ''}"[:120]
    made = read(report) if report.exists() else Result()
    made.ended, made.seconds = ended, time.monotonic() - begun
    return made


def table(results: dict[str, Result]) -> str:
    """The results as Markdown."""
    lines = ["| suite | pass | fail | skip | tests with reports | seconds |", "|---|---|---|---|---|---|"]
    for name, each in results.items():
        codes = ", ".join(f"{code} x{count}" for code, count in sorted(each.codes.items()))
        reports = f"{each.reported} ({codes})" if codes else str(each.reported)
        note = f" ({each.ended})" if each.ended else ""
        lines.append(
            f"| {name}{note} | {each.passed} | {each.failed} | {each.skipped} | {reports} | {each.seconds:.0f} |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("suites", nargs="+", metavar="NAME=FOLDER[:TESTS,...]")
    parser.add_argument("--devices", default="1")
    parser.add_argument("--memory", default="8GiB")
    parser.add_argument("--capability", default="8.0")
    parser.add_argument("--limit", type=float, default=1800, help="seconds a suite may take")
    parser.add_argument(
        "--keep", type=Path, metavar="FOLDER", help="keep each suite's JUnit file and its output there"
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
            results[name] = run(Path(folder), files, options, chosen.limit, kept / f"{name}.xml")
            print(f"{name}: {dict(results[name].causes.most_common(8))}", file=sys.stderr, flush=True)
    print(table(results))


if __name__ == "__main__":
    main()
