"""What `not_shown.txt` lists: lines that the check does not show, or shows though it should not, each with the reason.

A line names the file, the definition, the distance to its first row, the code and what is wrong; of a program that
stands in a test, also what its text comes to. A line that is listed is no failure; any other disagreement is one, so
that a finding that is lost is noticed, and a false one that is new.

`NOT_SHOWN=FILE pytest tests/check` appends what it disagrees with to a file, `python -m tests.check.not_shown FILE`
makes the list of it; reasons that are known stay.
"""

from __future__ import annotations

import os
import sys
from collections import defaultdict
from functools import cache
from pathlib import Path

TABLE = Path(__file__).with_suffix(".txt")
UNREAD = "not read yet"


@cache
def listed() -> dict[str, str]:
    """Each line of the list, with its reason."""
    found: dict[str, str] = {}
    reason = UNREAD
    for line in TABLE.read_text(encoding="utf-8").splitlines() if TABLE.exists() else ():
        if line.startswith("## "):
            reason = line.removeprefix("## ")
        elif line:
            found[line] = reason
    return found


def known(line: str) -> bool:
    """Whether a disagreement is listed; where the list is made anew, all are."""
    out = os.environ.get("NOT_SHOWN")
    if not out:
        return line in listed()
    with open(out, "a", encoding="utf-8") as file:
        file.write(line + "\n")
    return True


def main(path: str) -> None:
    reasons: dict[str, list[str]] = defaultdict(list)
    for line in sorted({*Path(path).read_text(encoding="utf-8").splitlines()}):
        reasons[listed().get(line) or reason_of(line)].append(line)
    sections = ("\n".join([f"## {reason}", *reasons[reason]]) for reason in sorted(reasons))
    TABLE.write_text("\n\n".join(sections) + "\n", encoding="utf-8")


def reason_of(line: str) -> str:
    """The kind of a disagreement, until somebody has read it."""
    _, _, code, what = line.split(" ", 3)
    family = next((text for prefix, text in KINDS.items() if code.startswith(prefix)), UNREAD)
    return f"{family}: {what}"


KINDS = {
    "SS10": "order of streams",
    "SS11": "gradients",
    "SS2": "lifetimes",
    "SS30": "the host's memory",
    "SS31": "timing",
    "SS32": "advice",
    "SS4": "captures and replays",
    "SS5": "libraries that share memory",
    "SS9": "suppressions",
}


if __name__ == "__main__":
    main(sys.argv[1])
