"""Containers as pools of streams: elements that are used in turn."""

from __future__ import annotations

from collections.abc import Hashable

from streamsafe.static import fields, hints, numbers
from streamsafe.static.state import State
from streamsafe.static.transfer.part import Part
from streamsafe.static.values import EVERY, Api, Const, Name, Number, Opaque, Partial, Value

POOL = Const(2)
"""So many streams are in a pool of which the size is not known."""


class StreamPools(Part):
    """Knows pools of streams, and which of their elements is used next."""

    def fills_pool(self, iterated: Value, made: set[Name], st: State | None = None) -> None:
        """What the rounds of ``range(n)`` have made: if these are streams, or what each has an event of its own, n is
        the size of a pool.
        """
        if not (isinstance(iterated, Partial) and iterated.function == Api("builtins.range")):
            return
        count = iterated.args[0] if len(iterated.args) == 1 else None
        handles = any(_is_handle(name, "stream", "event") for name in made)
        tables = [st.store.of(name) for name in made] if st is not None else []
        handles = handles or any(
            isinstance(k, str) and hints.HANDLE.fullmatch(k) is not None for table in tables for k in table
        )
        name = _number_of(count)
        if handles and name is not None:
            self.run.found_pool_sizes.add(name.base())

    def takes_turns(self, key: Value) -> None:
        """Where a handle is kept under ``i % n``, n is the size of a pool."""
        if (
            isinstance(key, Opaque)
            and type(key.name.site) is tuple
            and key.name.site[:2] == ("Modulo", "right")
        ):
            sizes = [key.name.parent]
        else:
            atoms = key.form.atoms() if isinstance(key, Number) else ()
            turns = [atom for atom in atoms if isinstance(atom, numbers.Derived) and atom.kind == "%"]
            sizes = [_measure_of(Number(..., turn.args[1])) for turn in turns]
        for name in (size.base() for size in sizes if size is not None):
            self.run.found_pool_sizes.add(self.run.lengths.get(name, name))

    def gather_streams(self, st: State, made: set[Name]) -> None:
        """A loop is over: of the streams that it has stored, a later loop reaches one in each iteration.

        Whoever iterates over what holds them, or looks each up by its key, reaches all of them.
        """
        streams = {name for name in made if _is_handle(name, "stream") and self._has_worked(name, st)}
        gathered: set[Name] = set()

        def together(name: Name) -> Name:
            stream = name.parent if name.site == EVERY and name.parent is not None else name
            if stream.newest() not in streams or (not name.age and name is stream):
                return name
            gathered.add(stream.newest())
            return stream.newest().child(EVERY)

        for owner, table in list(st.store.objects.items()) if streams else ():
            kind = owner.site[-1] if type(owner.site) is tuple else ""
            if kind not in _KEEPS or owner.base() not in self.run.closed:
                continue
            for key, value in list(table.items()):
                apart = not isinstance(key, str) or key == "*" or owner.newest() in made
                if apart and type(key) is not fields.Field:
                    new = value.rename(together)
                    if new is not value:
                        st.store[(owner, key)] = new
        for stream in gathered:
            every = stream.child(EVERY)
            for source in (
                *(stream.with_age(age) for age in range(3)),
                *(stream.with_age(a).child(EVERY) for a in (1, 2)),
            ):
                if source in self.run.carriers:
                    st.order.learn(every, source)
            self.run.table.alike(every, stream)

    def _has_worked(self, handle: Name, st: State) -> bool:
        """Whether anything is known to a handle, or one that was made there before it, by now."""
        bits = 0
        for age in range(3):
            if (name := handle.with_age(age)) in self.run.carriers:
                bits |= self.run.carriers.bit(name)
        return bool(bits) and any(table.summary.some & bits for table in st.order.made.values())

    def one_of_every(self, value: Value, key: Hashable) -> Value:
        """Of the streams that are kept together the one under a key that no loop gives."""

        def one(name: Name) -> Name:
            if name.site != EVERY or name.parent is None:
                return name
            found = name.parent.child(("one", key))
            self.run.table.alike(found, name.parent)
            return found

        return value.rename(one)

    def sized(self, count: Value, st: State) -> Value:
        """A number: the size of a pool that is not known is taken to be two, from here on.

        Of these it matters which is meant, and how they are used in turn can be followed.
        """
        name = _measure_of(count)
        if name is None or name.base() not in self.run.pool_sizes:
            return count
        if name.parent is not None:
            st.store[(name.parent, name.site)] = POOL
        for key, held in list(st.store.items()):
            if held == count:
                st.store[key] = POOL
        return POOL


_KEEPS = ("list", "dict", "container", "queue")
"""What holds the same for each round that has put something into it."""


def _is_handle(name: Name, *kinds: str) -> bool:
    return type(name.site) is tuple and name.site[-1] in kinds


def _number_of(count: Value | None) -> Name | None:
    """What holds a number of which nothing else is known, be it made whole on the way; no length of something."""
    name = _measure_of(count)
    if name is None or isinstance(count, Opaque):
        return name
    return name if isinstance(name.site, str) and name.site.isidentifier() else None


def _measure_of(count: Value | None) -> Name | None:
    """What holds a number, or has it for its length, of which nothing else is known."""
    if isinstance(count, Opaque):
        return count.name if count.part is None else None
    atoms = count.form.atoms() if isinstance(count, Number) else set()
    atom = next(iter(atoms)) if len(atoms) == 1 else None
    if not (isinstance(count, Number) and isinstance(atom, Name)) or count.form != numbers.of_atom(atom):
        return None
    return atom
