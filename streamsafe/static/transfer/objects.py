"""The objects of the program: one name for each allocation site, call path and age, and what users call them."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING

import libcst as cst

from streamsafe.static import concrete, element_keys, fields
from streamsafe.static.state import State, leans
from streamsafe.static.suggestions import COMMUNICATION
from streamsafe.static.transfer.expressions import _HANDLES, _ORDERING, MODULE
from streamsafe.static.transfer.part import Part
from streamsafe.static.values import (
    EACH,
    EVERY,
    NONE,
    Class,
    Name,
    Object,
    Renaming,
    Stream,
    Value,
    aging,
    aging_loops,
    alternatives,
)

if TYPE_CHECKING:
    from streamsafe.static.transfer.run_state import RunState


UNNAMED = "a tensor"
"""What a tensor is called as long as nothing has been bound to it."""


class Objects(Part):
    """Names objects by where they are made, and ages them: the newest of a site, the one before, older ones."""

    def __init__(self, run: RunState) -> None:
        super().__init__(run)
        self.made_in: dict[Name, Hashable] = {}
        """By object, the innermost loop whose rounds make it, and the calls that lead there."""

    def fresh(self, node: cst.CSTNode, st: State, what: Hashable = "") -> Name:
        """The name of an object made here; an object made here before has aged."""
        name = Name((id(node), what), self.run.stack[-1].path if self.run.stack else ())
        lazily = self.run.lazily and what == "stream"
        if (
            what == "stream"
            and self.run.kept_under is not None
            and self.run.kept_under[0] is self.run.stack[-1]
        ):
            name, self.run.kept_under, lazily = self.run.kept_under[1], None, True
        if lazily:  # where there is one already none is made
            st.store.mark(name, fields.CREATED)
            self.run.made_here.add(name)
            return name
        if st.store.marked(name, fields.CREATED):
            self.age(st, {name})
        st.store.mark(name, fields.CREATED)
        self.run.made_here.add(name)
        for names in self.run.rounds:
            names.add(name)
        if what in _HANDLES and self.run.rounds:
            self.run.handles.add(name)
        return name

    def filled_by(self, target: cst.BaseExpression, st: State) -> Name | None:
        """The name of an attribute, or of the module's, that is filled where it is found empty.

        Whoever finds it so makes that object, which goes by this name.
        """
        activation = self.run.stack[-1]
        word = ""
        if isinstance(target, cst.Attribute):
            word = target.attr.value
        elif isinstance(target, cst.Name) and target.value in activation.outer:
            word = target.value
        if not word or activation.unit is None or word not in concrete.looked_for(activation.unit.node):
            return None
        owner: Name | None = None
        if isinstance(target, cst.Attribute):
            base = self.expressions.eval(target.value, st)
            if isinstance(base, Class):
                owner = Name(f"class {base.unit.name}")
            elif isinstance(base, Object):
                owner = base.name
        elif self.statements.scope_of(word, st) == MODULE:
            owner = MODULE
        if owner is None:
            return None
        held, name = st.store.get((owner, word)), Name(word) if owner == MODULE else owner.child(word)
        empty = held is None or all(v == NONE for v, _ in alternatives(held, st.path))
        return name if empty else None

    def conditions_about(self, names: set[Name]) -> int:
        """The conditions that are about the newest objects of these names."""
        bits = 0
        for bit, mentioned in self.run.mentions.items():
            for name in mentioned:
                if not names.isdisjoint(name.family()):
                    bits |= bit
                    break
        return bits

    def age_round(self, st: State, loop: cst.CSTNode | None) -> None:
        """A round of a loop is over: what it has made is of the round before."""
        here = (loop, self.run.stack[-1].path)
        for name in self.run.rounds[-1]:
            self.made_in.setdefault(name, here)
        self._age_made(st, self.run.rounds[-1], here)

    def age_call(self, st: State, made: set[Name]) -> None:
        """A call is over: what it has made is of the call before."""
        self._age_made(st, made, None)

    def _age_made(self, st: State, made: set[Name], here: Hashable) -> None:
        """Keep memory that an inner loop has made distinct from what it makes when it runs again, whatever its rounds.

        Events and works stay together: whoever waits for the older ones waits for all of them.
        """
        inner = {
            name
            for name in made
            if self.made_in.get(name, here) != here
            and not element_keys.is_of_loop(name)
            and not _is_handle(name)
        }
        self.age(st, made - inner)
        self.age(st, inner, aging_loops)

    def age(self, st: State, names: set[Name], renaming_of: Callable[[set[Name]], Renaming] = aging) -> None:
        """The newest objects of these names become those of the round before."""
        if not names:
            return
        bits = self.conditions_about(names)
        renaming = renaming_of(names)
        if any(leans(value, bits) for value in st.current.values()):
            self.conditions.track_current([st], bits, renaming)
        st.forget(bits)
        st.rename(renaming, names)
        self.run.candidates = [renaming(name) for name in self.run.candidates]
        self.run.ended = {renaming(name) for name in self.run.ended}
        for name in list(names):
            st.store.pop((name, fields.CREATED), None)

    def is_opaque(self, name: Name) -> bool:
        """Whether attributes of this object exist although nothing was seen assigned to them."""
        if name == self.run.constructed:  # what a constructor assigns under a condition is this, or not there
            return False
        return name.base() not in self.run.closed and name not in self.run.late

    def describe(self, value: Value) -> str:
        """How a user would name an object."""
        if isinstance(value, Object):
            return self.name_text(value.name, "stream" if isinstance(value, Stream) else "")
        return "a value"

    def name_text(self, name: Name, kind: str = "") -> str:
        """How a user would write a name."""
        base = name.newest()
        if base in self.run.texts:
            return self.run.texts[base]
        if name.parent is not None:
            if name.site == EVERY:
                return self.name_text(name.parent, kind)
            parent = self.name_text(name.parent)
            if name.site == EACH:
                return f"an element of {parent}"
            if isinstance(name.site, str):
                return f"{parent}.{name.site}"
            return f"{parent}[...]"
        if name.site == "ambient":
            return "the current stream" if kind else "ambient"
        if name.site == COMMUNICATION and name.path:
            group = name.path[0]
            return f"{COMMUNICATION} of {self.name_text(group)}" if isinstance(group, Name) else COMMUNICATION
        if isinstance(name.site, str):
            return name.site.removeprefix("class ")
        return "a stream" if kind else UNNAMED

    def named_since(self, value: Value, before: str) -> str:
        """How a user would name what was described before it had a name."""
        return before if before and before != UNNAMED else self.describe(value)

    def call_it(self, name: Name, text: str) -> None:
        """Remember how a user names an object: its first name wins."""
        base = name.newest()
        if base.parent is None and not isinstance(base.site, str):
            self.run.texts.setdefault(base, text)


def _is_handle(name: Name) -> bool:
    return type(name.site) is tuple and name.site[-1] in _ORDERING
