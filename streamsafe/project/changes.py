"""Which lines of which files have changed since a revision, by git."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from streamsafe.order.hazard import Span

_HUNK = re.compile(r"@@ -\d+(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")


class ChangesError(Exception):
    """git is missing, or does not know the repository or the revision."""


@dataclass(slots=True)
class Lines:
    """The changed lines of one file.

    Attributes:
        changed: rows that are new or other than before.
        removed: rows behind which lines were removed; 0 for before the first.
        whole: the file is new.
    """

    changed: set[int] = field(default_factory=set)
    removed: set[int] = field(default_factory=set)
    whole: bool = False


@dataclass(slots=True)
class Changes:
    """What has changed in a working tree, by absolute file name."""

    files: dict[str, Lines] = field(default_factory=dict)

    def concern(self, main: Span, places: Sequence[Span]) -> bool:
        """Whether a finding may come of the changes.

        It does when a row of one of its accesses, or of a wait, an allocation or a release that explains it, has
        changed, or when lines were removed between its accesses: a wait that is gone has no row.

        Args:
            main: where it is shown.
            places: all of these rows.
        """
        for span in places:
            lines = self.files.get(os.path.realpath(span.filename))
            if lines is None:
                continue
            if lines.whole or not lines.changed.isdisjoint(range(span.row, span.end_row + 1)):
                return True
        lines = self.files.get(os.path.realpath(main.filename))
        rows = [span.row for span in places if span.filename == main.filename]
        return lines is not None and any(min(rows) - 1 <= row < max(rows) for row in lines.removed)


def since(revision: str, paths: Iterable[str]) -> Changes:
    """What has changed between a revision (where the current branch left it) and the files as they are now.

    Raises:
        ChangesError: it cannot be found out.
    """
    changes = Changes()
    for root in sorted({_root(os.path.dirname(os.path.abspath(path))) for path in paths}):
        base = _git(root, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}")
        if base is None:
            raise ChangesError(f"git knows no revision {revision!r} in {root}")
        fork = _git(root, "merge-base", base.strip(), "HEAD")
        diff = _git(
            root,
            *("-c", "core.quotePath=false", "-c", "diff.noprefix=false", "-c", "diff.mnemonicPrefix=false"),
            *("diff", "--unified=0", "--no-color", "--no-ext-diff", "--no-renames", "--relative"),
            *((fork or base).strip(), "--", "."),
        )
        untracked = _git(root, "ls-files", "--others", "--exclude-standard", "-z")
        if diff is None or untracked is None:
            raise ChangesError(f"git cannot compare {root} with {revision!r}")
        _read(diff, root, changes)
        for name in filter(None, untracked.split("\0")):
            changes.files[os.path.realpath(os.path.join(root, name))] = Lines(whole=True)
    return changes


def _read(diff: str, root: str, changes: Changes) -> None:
    lines = Lines()
    for line in diff.split("\n"):
        if line.startswith("+++ "):
            name = line[4:].split("\t")[0].strip('"').removeprefix("b/")
            lines = changes.files.setdefault(os.path.realpath(os.path.join(root, name)), Lines())
        elif hunk := _HUNK.match(line):
            start, number = int(hunk[2]), int(hunk[3] or 1)
            lines.changed.update(range(start, start + number))
            if number == 0:
                lines.removed.add(start)


def _root(directory: str) -> str:
    found = _git(directory, "rev-parse", "--show-toplevel")
    if found is None:
        raise ChangesError(f"{directory} is in no git repository")
    return found.strip()


def _git(directory: str, *arguments: str) -> str | None:
    """What git prints; None when it fails."""
    try:
        done = subprocess.run(
            ["git", *arguments],
            cwd=directory,
            capture_output=True,
            check=False,
            encoding="utf-8",
            errors="surrogateescape",
        )
    except FileNotFoundError as error:
        raise ChangesError("--diff-base needs git, which is not installed") from error
    return done.stdout if done.returncode == 0 else None
