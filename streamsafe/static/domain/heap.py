"""What the fields of objects hold. Copies of a heap share the fields of each object until one of them changes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TypeVar, overload

from streamsafe.static.domain import values
from streamsafe.static.domain.atoms import Atom, Value

Field = tuple[Atom, str]
"""An object and the name of one of its fields; ``[]`` is any element, ``[k]`` the element of a constant key."""

D = TypeVar("D")

_NO_FIELDS: Mapping[str, Value] = {}


class Heap:
    """(object, field) -> value."""

    __slots__ = ("_objects", "_owned")

    def __init__(self) -> None:
        self._objects: dict[Atom, dict[str, Value]] = {}
        self._owned: set[Atom] = set()

    def fork(self) -> Heap:
        """An independent copy."""
        twin = Heap.__new__(Heap)
        twin._objects = dict(self._objects)
        twin._owned = set()
        self._owned = set()
        return twin

    # -- one field ---------------------------------------------------------------------------------------------------

    def __contains__(self, key: Field) -> bool:
        fields = self._objects.get(key[0])
        return fields is not None and key[1] in fields

    def __getitem__(self, key: Field) -> Value:
        return values.read(self._objects[key[0]][key[1]])

    @overload
    def get(self, key: Field) -> Value | None: ...

    @overload
    def get(self, key: Field, default: Value) -> Value: ...

    def get(self, key: Field, default: Value | None = None) -> Value | None:
        """What a field holds; ``default`` where nothing is known of it."""
        fields = self._objects.get(key[0])
        found = None if fields is None else fields.get(key[1])
        return default if found is None else values.read(found)

    def __setitem__(self, key: Field, value: Value) -> None:
        self._to_change(key[0])[key[1]] = value

    def pop(self, key: Field, default: D) -> Value | D:
        """Forget a field."""
        if key not in self:
            return default
        owner, field = key
        fields = self._to_change(owner)
        found = fields.pop(field)
        if not fields:
            del self._objects[owner]
            self._owned.discard(owner)
        return found

    def _to_change(self, owner: Atom) -> dict[str, Value]:
        if owner in self._owned:
            return self._objects[owner]
        self._owned.add(owner)
        fields = self._objects[owner] = dict(self._objects.get(owner, _NO_FIELDS))
        return fields

    # -- all of them -------------------------------------------------------------------------------------------------

    def fields(self, owner: Atom) -> Mapping[str, Value]:
        """What is known of the fields of one object."""
        return self._objects.get(owner, _NO_FIELDS)

    def objects(self) -> Iterator[tuple[Atom, Mapping[str, Value]]]:
        """Each object and its fields."""
        return iter(self._objects.items())

    def __iter__(self) -> Iterator[Field]:
        for owner, fields in self._objects.items():
            for field in fields:
                yield owner, field

    def __len__(self) -> int:
        return sum(map(len, self._objects.values()))

    def items(self) -> Iterator[tuple[Field, Value]]:
        """Each field and what it holds."""
        for owner, fields in self._objects.items():
            for field, value in fields.items():
                yield (owner, field), value

    def values(self) -> Iterator[Value]:
        """What the fields hold."""
        for fields in self._objects.values():
            yield from fields.values()

    # -- lattice -----------------------------------------------------------------------------------------------------

    def join(self, other: Heap) -> bool:
        """Take in the paths of another partition; whether anything changed. What both share is not looked at."""
        changed = False
        objects = self._objects
        for owner, theirs in other._objects.items():
            mine = objects.get(owner)
            if mine is theirs:
                continue
            if mine is None:
                changed = True
            elif mine != theirs:
                changed |= join_values(self._to_change(owner), theirs)
                continue
            objects[owner] = theirs  # from here on both share it
            self._owned.discard(owner)
            other._owned.discard(owner)
        return changed

    def rename(self, names: Mapping[Atom, Atom], many: Callable[[Value], Value]) -> None:
        """Give objects other names; two that get one name are joined.

        Args:
            names: object -> its other name.
            many: a value under the other names.
        """
        objects: dict[Atom, dict[str, Value]] = {}
        owned: set[Atom] = set()
        for owner, fields in self._objects.items():
            image = names.get(owner, owner)
            renamed = {field: many(value) for field, value in fields.items()}
            if image in objects:
                if image not in owned:
                    owned.add(image)
                    objects[image] = dict(objects[image])
                join_values(objects[image], renamed)
            elif renamed == fields:
                objects[image] = fields
            else:
                owned.add(image)
                objects[image] = renamed
        self._objects, self._owned = objects, owned


K = TypeVar("K")


def join_values(mine: dict[K, Value], theirs: Mapping[K, Value]) -> bool:
    """Join maps of values in place; whether anything changed. What only one side knows is kept."""
    if mine == theirs:
        return False
    changed = False
    for key, value in theirs.items():
        known = mine.get(key)
        if known is value:
            continue
        if known is None:
            mine[key] = value
            changed = True
        elif known != value:
            both = values.joined(known, value)
            if both != known:
                mine[key] = both
                changed = True
    return changed
