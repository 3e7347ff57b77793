"""Functions that a function makes and returns: whoever gets one calls it, again and again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from streamsafe.static.domain.atoms import Function, Value, ordered, path, value
from streamsafe.static.domain.state import State
from streamsafe.static.domain.values import reachable
from streamsafe.static.transfer.registry import CallSite

if TYPE_CHECKING:
    from streamsafe.static.summary.analyse import Analysis

_MOST: Final = 4
_CALLS: Final = 2
"""The second call of a function meets what the first one has left."""


def calls_again(a: Analysis, s: State, result: Value, at: int) -> None:
    """Call what is returned, in a state of its own, for the hazards between two calls."""
    from streamsafe.static.transfer.calls import call_atom

    made = [atom for atom in reachable((result,)) if isinstance(atom, Function) and _is_made_here(a, atom)]
    if not made or len(made) > _MOST or s.capture is not None:
        return
    for atom in ordered(made):
        assert isinstance(atom, Function)
        fn = a.engine.function(atom.fid)
        states = [s.fork()]
        for _ in range(_CALLS if fn is not None and not fn.is_generator else 0):
            assert fn is not None
            given = {
                each.name: value(path(f"given {each.name}"))
                for each in fn.params
                if each.kind not in ("vararg", "kwarg")
            }
            states = [u for t in states for u in call_atom(a, t, CallSite(at, "called", [], given), atom)]


def _is_made_here(a: Analysis, atom: Function) -> bool:
    fn = a.engine.function(atom.fid)
    return fn is not None and fn.outer == a.fn.fid and bool(atom.closure)
