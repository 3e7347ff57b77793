"""What several files show together: each conflict once, where and as sure as it is best seen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from streamsafe.check.task import Checked
from streamsafe.order.hazard import CONFIDENCES, Conflict
from streamsafe.static.tree_uses import TreeUses


def merged(
    checked: Sequence[Checked], looked: Mapping[str, bool], tree: TreeUses | None = None
) -> list[Checked]:
    """What files show by themselves, and what they show with others where that is more.

    Args:
        checked: the files; of callers (files without stream code of their own) only what they show with others counts.
        looked: all files that were named: what shows in others is not reported.
        tree: knows who calls a method in the projects of the files; None: nobody.
    """
    if tree is not None:
        for each in checked:
            for conflicts in (each.conflicts, each.with_others):
                conflicts[:] = [_unless_used(conflict, each.path, tree) for conflict in conflicts]
    results = [each for each in checked if not each.caller]
    linked = [each for each in checked if each.linked]
    found = {each.path: each for each in results}
    shown: dict[object, Conflict] = {}
    for each in results:
        each.conflicts[:] = [
            replace(conflict, confidence="possible")
            if conflict.between_calls and _is_refuted(conflict, each, linked)
            else conflict
            for conflict in each.conflicts
        ]
        shown.update((_shown_as(conflict), conflict) for conflict in each.conflicts)
    for each in linked:
        for conflict in each.with_others:
            span = conflict.shown_at
            if span is None or _is_refuted(conflict, each, linked):
                continue
            known = shown.get(_shown_as(conflict))
            if known is not None and _strength(known) >= _strength(conflict):
                continue
            shown[_shown_as(conflict)] = conflict
            if span.filename not in found and span.filename in looked:
                found[span.filename] = Checked(span.filename)
                results.append(found[span.filename])
            if span.filename in found:
                own = found[span.filename].conflicts
                own[:] = [other for other in own if other is not known]
                own.append(conflict)
                _replaced(conflict, each, found)
    return results


def _replaced(conflict: Conflict, linked: Checked, found: Mapping[str, Checked]) -> None:
    """Take away what a file shows of the same first access by itself, where with others it shows another second one.

    By itself it shows the call; with others it shows what the callee does.
    """
    alone = found.get(linked.path)
    if alone is None or conflict.first is None or conflict.confidence == "possible":
        return
    exact = {_shown_as(each) for each in linked.with_others}
    alone.conflicts[:] = [
        other
        for other in alone.conflicts
        if other is conflict
        or other.first is None
        or other.first.span != conflict.first.span
        or _shown_as(other) in exact
    ]


def _unless_used(conflict: Conflict, path: str, tree: TreeUses) -> Conflict:
    """A conflict of two methods is only possible where the tree uses their classes: its calls say in which order."""
    owners = {method.rpartition(".")[0].rpartition(".")[2] for method in conflict.methods}
    if owners and all(tree.is_used(path, owner) for owner in owners):
        return replace(conflict, confidence="possible")
    return conflict


def _shown_as(conflict: Conflict) -> object:
    """What two conflicts have in common that are one to a user."""
    facts = conflict.facts
    return conflict.shown_at, facts.violation, facts.reuse, facts.host, facts.gradient is not None


def _strength(conflict: Conflict) -> int:
    return -CONFIDENCES.index(conflict.confidence)


def _is_refuted(conflict: Conflict, of: Checked, linked: Sequence[Checked]) -> bool:
    """Whether who calls the definitions that a conflict is about is in sight elsewhere, and shows no such conflict.

    A file is seen without its callers; a file that reaches both places is one of them. What is wrong where it stands
    only because of a place elsewhere, as in a capture, has the note of that place in place of a first access.
    """
    parts = (conflict.second, conflict.first, *(() if conflict.first is not None else conflict.notes))
    spans = [part.span for part in parts if part is not None and part.span]
    refuted = False
    for other in linked:
        if other is of or not all(other.reaches(span) for span in spans):
            continue
        if any(_shown_as(each) == _shown_as(conflict) for each in other.with_others):
            return False
        refuted = True
    return refuted
