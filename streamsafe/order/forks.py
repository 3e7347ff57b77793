"""Tables that fork at branches and meet again: what neither side has changed since need not be looked at."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

K = TypeVar("K")
V = TypeVar("V")


class Epoch:
    """What has changed since a fork, after the epoch before it.

    Attributes:
        parent: the epoch that ended with that fork.
        changed: the keys, in the order of their first change.
        depth: how many forks lie before.
    """

    __slots__ = ("changed", "depth", "parent")

    def __init__(self, parent: Epoch | None) -> None:
        self.parent = parent
        self.changed: dict[object, None] = {}
        self.depth: int = parent.depth + 1 if parent is not None else 0


class Forked(dict[K, V]):
    """A dict that knows which of its keys have changed since it was forked.

    The values are shared by all forks: whoever changes one replaces it. Keys are set and deleted one by one
    (``table[key] = value``, ``del``, :meth:`discard`, :meth:`retain`); dict's other ways of changing are not noticed.
    """

    __slots__ = ("epoch",)

    def __init__(self) -> None:
        super().__init__()
        self.epoch = Epoch(None)

    def fork(self) -> Forked[K, V]:
        """An independent copy."""
        twin: Forked[K, V] = Forked.__new__(Forked)  # it gets its epoch below
        dict.update(twin, self)
        epoch = self.epoch
        if epoch.changed or epoch.parent is None:
            self.epoch = Epoch(epoch)
        else:
            epoch = epoch.parent  # nothing has changed since that fork
        twin.epoch = Epoch(epoch)
        return twin

    def __setitem__(self, key: K, value: V) -> None:
        dict.__setitem__(self, key, value)
        self.epoch.changed[key] = None

    def __delitem__(self, key: K) -> None:
        dict.__delitem__(self, key)
        self.epoch.changed[key] = None

    def discard(self, key: K) -> None:
        """Remove a key if it is there."""
        if key in self:
            del self[key]

    def retain(self, keys: Iterable[K]) -> None:
        """Remove every other key."""
        kept = set(keys)
        for key in [key for key in self if key not in kept]:
            del self[key]


def differing(first: Forked[K, V], second: Forked[K, V]) -> Iterable[K]:
    """The keys under which two tables may differ: all others have the same value in both."""
    changed, epoch = _since(first, second)
    return dict.fromkeys((*first, *second)) if epoch is None else changed


def meeting(first: Forked[K, V], second: Forked[K, V]) -> tuple[Forked[K, V], Iterable[K]]:
    """A table to put the common values of two in, and the keys under which these may differ.

    Returns:
        The first one's content, as a fork of where the two parted; its keys that may differ are to be set anew.
    """
    changed, epoch = _since(first, second)
    joined: Forked[K, V] = Forked.__new__(Forked)
    dict.update(joined, first)
    if epoch is None:
        changed = dict.fromkeys((*first, *second))
    for side in (first, second):
        if side.epoch is epoch:  # it goes on changing: what the new table starts from ends here
            side.epoch = Epoch(epoch)
    joined.epoch = Epoch(epoch)
    joined.epoch.changed = dict.fromkeys(changed)
    return joined, changed


def _since(first: Forked[K, V], second: Forked[K, V]) -> tuple[dict[K, None], Epoch | None]:
    """What either has changed since they parted, and the epoch in which they were one."""
    changed: dict[K, None] = {}
    one: Epoch | None = first.epoch
    other: Epoch | None = second.epoch
    while one is not other:
        if one is None or other is None:
            return changed, None
        if one.depth >= other.depth:
            changed |= one.changed  # type: ignore[arg-type]
            one = one.parent
        else:
            changed |= other.changed  # type: ignore[arg-type]
            other = other.parent
    return changed, one
