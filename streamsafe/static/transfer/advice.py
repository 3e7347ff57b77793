"""Advice on speed (SS321, SS322): copies that are asked not to block, and block all the same.

Nothing here changes what is analysed or what else is found: the interpreter asks at each copy, and what comes of it is
kept apart from the hazards.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import libcst as cst

from streamsafe.static import fields
from streamsafe.static.facts import Assumed, Finding, Site
from streamsafe.static.transfer.part import Part
from streamsafe.static.values import Object, Tensor, Value, iterate

if TYPE_CHECKING:
    from streamsafe.static.state import State
    from streamsafe.static.transfer.conditions import Outcomes


PAGEABLE_COPY = "pageable-non-blocking"

PINNED_FOR_COPY = "pin-memory-then-copy"

PINNED_COPY = "pinned copy"
"""What ``x.pin_memory()`` makes, in its name."""


class Advice(Part):
    """Keeps advice on copies."""

    def of_copy(
        self,
        st: State,
        source: Value,
        targets: Sequence[Value],
        outcomes: Outcomes,
        site: Site,
        text: str,
    ) -> None:
        """Keep the advice on a copy between the host and a device, if there is any.

        Args:
            st: the state before the copy.
            source: what is copied.
            targets: the memory that is written; empty where the copy makes it, on a device.
            outcomes: how ``non_blocking`` comes out.
            site: the call.
            text: what the call is named in messages.
        """
        if not outcomes or not all(outcome for outcome, _ in outcomes):
            return
        sources = list(iterate(source))
        if self._are_pageable(st, sources):
            kind = PAGEABLE_COPY if not any(self._is_on_host(st, each) for each in targets) else ""
        elif self._are_pageable(st, targets):
            kind = PAGEABLE_COPY if not any(self._is_on_host(st, each) for each in sources) else ""
        else:
            pinned_here = sources and all(_is_pinned_in(site.node, each) for each in sources)
            kind = PINNED_FOR_COPY if pinned_here else ""
        if kind:
            copied = [*sources, *targets]
            assumed = Assumed.PLACE if any(self._is_assumed(st, each) for each in copied) else Assumed.NOTHING
            name = text.partition("(")[0]  # that it does not block, the message says
            found = Finding(kind, site, f"{name}()", False, "", assumed=assumed, entry=self.run.entry)
            known = self.run.advice.get(found.key)
            if known is None or assumed < known.assumed:
                self.run.advice[found.key] = found

    def _are_pageable(self, st: State, values: Sequence[Value]) -> bool:
        """Whether there is memory, and all of it is pageable, whatever path was taken."""
        return bool(values) and all(
            isinstance(value, Object)
            and (self.memory.place(st, value) == "pageable" or self._is_of_numpy(value))
            and value.name.base() not in self.run.unplaced
            for value in values
        )

    def _is_assumed(self, st: State, value: Value) -> bool:
        """Whether the place of memory is an assumption: nobody sets a default device, or has pinned a NumPy array."""
        return isinstance(value, Object) and (
            st.store.marked(value.name, fields.DEFAULT_DEVICE) or self._is_of_numpy(value)
        )

    def _is_of_numpy(self, value: Object) -> bool:
        """Whether ``torch.from_numpy`` has made this of an array that is not seen made."""
        return any(name.base() in self.run.of_numpy for name in value.name.chain())

    def _is_on_host(self, st: State, value: Value) -> bool:
        return isinstance(value, Object) and self.tensors.is_host(st, value)


def _is_pinned_in(copy: cst.CSTNode, value: Value) -> bool:
    """Whether a value was pinned in the expression that copies it, which leaves it without a name."""
    if not isinstance(value, Tensor) or not isinstance(value.name.site, tuple):
        return False
    made_by, what = value.name.site
    return what == PINNED_COPY and any(id(node) == made_by for node in _operands(copy))


def _operands(copy: cst.CSTNode) -> list[cst.CSTNode]:
    """The calls whose results a call copies: ``x.f()`` and ``x`` of ``x.f().g().to(device)`` and ``y.copy_(x.f())``."""
    found: list[cst.CSTNode] = []
    pending = [copy]
    if isinstance(copy, cst.Call):
        pending += [argument.value for argument in copy.args]
    while pending:
        node: cst.CSTNode = pending.pop()
        while isinstance(node, (cst.Call, cst.Attribute, cst.Subscript)):
            found.append(node)
            node = node.func if isinstance(node, cst.Call) else node.value
    return found
