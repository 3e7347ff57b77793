"""Paths: how states join, and which state goes on where a test came out in one way."""

from __future__ import annotations

from collections.abc import Sequence

import libcst as cst

from streamsafe.order.symbolic import Guard
from streamsafe.static.state import State, distinguished
from streamsafe.static.transfer.part import Part
from streamsafe.static.values import Stream, iterate


class Paths(Part):
    """Joins states where paths meet, and takes one way of a branch."""

    def join(self, first: State | None, second: State | None) -> State | None:
        """Two paths meet."""
        if first is not None and second is not None and not (first.dead or second.dead):
            if first.current != second.current:
                first, second = first.copy(), second.copy()
                # where none was set the one at entry still is current; few rounds stand for many, of which one sets it
                again = self.run.fixpoints or self.run.counting
                unset = ({*first.current} ^ {*second.current}) - {"device"}
                for st, other in ((first, second), (second, first)):
                    for library in unset - {*st.current}:
                        if not again:
                            st.current[library] = self.effects.current(st, library)
                        elif isinstance(before := self.effects.current(st, library), Stream):
                            # the one that is set stands for the one at entry, too
                            for later in iterate(other.current[library]):
                                if isinstance(later, Stream):
                                    st.order.learn(later.name, before.name)
                if not distinguished(first, second):
                    self.current_streams.track_current([first, second])
        return State.join(first, second, self.objects.is_opaque)

    def joined(self, states: Sequence[State | None]) -> State | None:
        """Many paths meet."""
        result: State | None = None
        for state in states:
            result = self.join(result, state)
        return result

    @staticmethod
    def settle(st: State, result: State | None) -> None:
        """``st`` becomes the joined state, or ends here."""
        if result is None:
            st.dead = True
        elif result is not st:
            st.become(result)

    def enter_branch(
        self, test: cst.BaseExpression, outcomes: list[tuple[bool, Guard]], wanted: bool, st: State
    ) -> None:
        """Go where a test came out as ``wanted``."""
        guards = [guard for outcome, guard in outcomes if outcome is wanted]
        if not guards:
            st.dead = True
            return
        st.assume(*guards)
        if not st.dead:
            self.narrowing.narrow(test, st, wanted)
