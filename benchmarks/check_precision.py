"""What a finding of the check is worth: the table of the findings that were read.

benchmarks/data/check_readings.jsonl holds one finding a line: the public project and commit it was shown for, its
place and code, the assumptions it needs, and what a reader of the file and its callers says: `true` (the two accesses
can meet unordered in that program), `arguable` (it takes use or timing that the project does not show), `false`
(something orders them, or they touch nothing in common).

    python benchmarks/check_precision.py                       # every table
    python benchmarks/check_precision.py --confidence certain  # of what is shown by default
    python benchmarks/check_precision.py --batch C
"""

from __future__ import annotations

import argparse
import collections
import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypedDict

DATA = Path(__file__).resolve().parent / "data" / "check_readings.jsonl"
LABELS = ("true", "arguable", "false")


class Reading(TypedDict):
    """One finding that was read."""

    tree: str
    commit: str
    file: str
    line: int
    code: str
    confidence: str
    assumptions: list[str]
    label: str
    reason: str
    batch: str
    date: str
    test: bool


def readings(path: Path) -> list[Reading]:
    """Return the findings read, in the order of the file."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def table(title: str, rows: Iterable[Reading], keys: Callable[[Reading], Iterable[str]]) -> str:
    """Return a Markdown table of labels by the keys of each row; a row counts once under each of its keys."""
    counts: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    for row in rows:
        for key in keys(row):
            counts[key][row["label"]] += 1
    lines = [f"| {title} | true | arguable | false |", "|---|---|---|---|"]
    lines += [f"| {key} | {' | '.join(str(counts[key][x]) for x in LABELS)} |" for key in sorted(counts)]
    return "\n".join(lines)


def share(rows: list[Reading]) -> str:
    """Return the share of true among what is not arguable, and of not false among all."""
    count = collections.Counter(row["label"] for row in rows)
    decided = count["true"] + count["false"]
    if not decided:
        return "nothing was read"
    return (
        f"{len(rows)} read: {count['true']} true, {count['arguable']} arguable, {count['false']} false; "
        f"{100 * (len(rows) - count['false']) / len(rows):.0f} % not false, "
        f"{100 * count['true'] / decided:.0f} % true of those decided"
    )


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--confidence", choices=("certain", "likely", "possible"))
    parser.add_argument("--batch")
    options = parser.parse_args()
    rows = [
        row
        for row in readings(options.data)
        if options.confidence in (None, row["confidence"]) and options.batch in (None, row["batch"])
    ]
    print(share(rows), end="\n\n")
    by: list[tuple[str, Callable[[Reading], Iterable[str]]]] = [
        ("batch and confidence", lambda row: [f"{row['batch']} {row['confidence']}"]),
        ("code", lambda row: [row["code"]]),
        ("assumption", lambda row: row["assumptions"] or ["none"]),
        ("where", lambda row: ["tests, examples, benchmarks" if row["test"] else "product code"]),
    ]
    print("\n\n".join(table(title, rows, keys) for title, keys in by))


if __name__ == "__main__":
    main()
