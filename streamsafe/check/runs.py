"""A whole check that was done before: its result is used again while nothing that it looked at has changed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from streamsafe.check.cache import Cache, decode, encode, key_of
from streamsafe.check.task import Checked, Plan
from streamsafe.project import footprint

if TYPE_CHECKING:
    from streamsafe.project.files import File


class Run:
    """A check of some files.

    Args:
        cache: where results are kept.
        files: the files.
        prefilter: whether those without stream code are skipped.
    """

    def __init__(self, cache: Cache, files: Sequence[File], prefilter: bool) -> None:
        self._cache = cache
        self._files = [file.path for file in files]
        what = (f"{file.path}\0{file.named}\0{file.config.models!r}" for file in files)
        self._key = key_of("run", str(prefilter), *what)

    def known(self) -> tuple[Plan, list[Checked]] | None:
        """What was planned and found, if nothing has changed; the plan without its tasks."""
        entry = self._cache.load(self._key)
        if entry is None:
            return None
        try:
            if footprint.digest([*self._files, *entry["looked"]]) != entry["digest"]:
                return None
            plan = Plan(mentions=set(entry["mentions"]), count=entry["count"])
            return plan, [_checked(each) for each in entry["checked"]]
        except (ValueError, KeyError, TypeError) as error:
            self._cache.broken(error)
            return None

    def keep(self, plan: Plan, checked: Iterable[Checked], looked: frozenset[str]) -> None:
        """Keep what was found.

        Args:
            plan: what was planned.
            checked: what was found.
            looked: files and directories that were looked at beside those of the run.
        """
        found = list(checked)
        if plan.count == 0 or any(each.crash for each in found):
            return
        others = sorted(looked.difference(self._files))
        self._cache.store(
            self._key,
            {
                "looked": others,
                "digest": footprint.digest([*self._files, *others]),
                "mentions": sorted(plan.mentions),
                "count": plan.count,
                "checked": [as_json(each) for each in found if each.conflicts or each.notes],
            },
        )
        self._cache.prune()


def as_json(checked: Checked) -> dict[str, Any]:
    """What came of a file."""
    return {
        "path": checked.path,
        "conflicts": [encode(each) for each in checked.conflicts],
        "notes": checked.notes,
    }


def _checked(entry: dict[str, Any]) -> Checked:
    return Checked(entry["path"], [decode(each) for each in entry["conflicts"]], notes=list(entry["notes"]))
