"""Does ``streamsafe check`` survive any Python there is?

    python benchmarks/nocrash.py [PATHS...]     default: the standard library and site-packages

Each path is checked twice: as a user would, and with every file interpreted and every finding shown
(``--no-prefilter --confidence possible``). Printed for each: exit code, findings by code, tracebacks, seconds and
peak memory. Exit code 1 when a run crashed, printed a traceback, exceeded ``--timeout``, or wrote no valid JSON.
Files that Python cannot parse either (SS900) are listed and are no failure.
"""

from __future__ import annotations

import argparse
import collections
import json
import sys
import sysconfig
from pathlib import Path
from typing import Any

from measure import Run, machine, run, streamsafe_command

MODES = {"default": [], "everything": ["--no-prefilter", "--confidence=possible"]}


def problems_of(result: Run) -> tuple[list[dict[str, Any]], list[str]]:
    """The findings of a run, and what is wrong with the run itself."""
    problems: list[str] = []
    findings: list[dict[str, Any]] = []
    if result.timed_out:
        problems.append("timed out")
    elif result.returncode not in (0, 1):
        problems.append(f"exit code {result.returncode}")
    if b"Traceback (most recent call last)" in result.stderr + result.stdout:
        problems.append("traceback")
    if crashes := result.stderr.count(b"internal error"):
        problems.append(f"{crashes} files with an internal error")
    try:
        findings = json.loads(result.stdout)
    except ValueError as error:
        problems.append(f"standard output is not JSON: {error}")
    return findings, problems


def searched(path: Path) -> list[Path]:
    """The files that a path stands for: what streamsafe itself would check."""
    result = run([*streamsafe_command(), "check", "--isolated", "--show-files", str(path)], timeout=600)
    return [Path(line) for line in result.stdout.decode().splitlines()]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("paths", nargs="*", type=Path, metavar="PATHS")
    parser.add_argument("--timeout", type=float, default=3600, help="seconds a run may take")
    parser.add_argument("--mode", choices=MODES, nargs="+", default=list(MODES))
    args = parser.parse_args()
    paths = args.paths or [Path(sysconfig.get_path("stdlib")), Path(sysconfig.get_path("purelib"))]
    print(machine())
    failed = False
    for path in paths:
        files = searched(path)
        size = sum(file.stat().st_size for file in files)
        print(f"{path}: {len(files):,} files, {size / 1e6:.1f} MB")
        for mode in args.mode:
            command = [*streamsafe_command(), "check", "--isolated", "--no-cache", "--output-format=json"]
            result = run([*command, *MODES[mode], str(path)], timeout=args.timeout)
            findings, problems = problems_of(result)
            failed = failed or bool(problems)
            codes = collections.Counter(finding["code"] for finding in findings)
            print(
                f"  {mode}: {', '.join(problems) or 'no crash'}; {result.seconds:.1f} s, "
                f"peak {result.peak_bytes / 1e6:.0f} MB; "
                + (", ".join(f"{code} {count}" for code, count in sorted(codes.items())) or "no findings"),
                flush=True,
            )
            for finding in findings:
                if finding["code"] == "SS900":
                    row = finding["location"]["row"]
                    print(f"    SS900 {finding['filename']}:{row} {finding['message']}")
            if problems:
                print(result.stderr.decode(errors="replace")[-4000:])
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
