"""Functions given to library calls: called here, for each element, on a thread, by autograd, or at some time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamsafe.static.domain.atoms import (
    CURRENT,
    DEFAULT,
    LOST,
    UNKNOWN,
    Bound,
    Function,
    Library,
    Partial,
    Value,
    partial,
    value,
)
from streamsafe.static.domain.places import EACH
from streamsafe.static.domain.state import State
from streamsafe.static.models.rows import Row
from streamsafe.static.transfer import captures, gradients, handing, library, objects
from streamsafe.static.transfer import memory as mem
from streamsafe.static.transfer.registry import CallSite

if TYPE_CHECKING:
    from streamsafe.static.summary.analyse import Analysis


def run(a: Analysis, s: State, c: CallSite, row: Row) -> list[State]:
    """What a row's ``calls`` say."""
    from streamsafe.static.transfer.calls import call_value

    states = [s]
    for calls in row.calls:
        function = library.argument(a, s, c, calls.function)
        if not function:
            continue
        args = [library.argument(a, s, c, name) for name in calls.args if name != "*"]
        if "*" in calls.args:
            args += c.args[1:]
        if calls.mode == "bound":
            keywords = {name: held for name, held in c.keywords.items() if name not in row.params}
            s.env[c.dst] = value(partial(function, c.args[1:], keywords.items()))
            continue
        if calls.mode in ("backward", "later"):
            for fid in gradients.functions_of(a, function):
                a.engine.entry(fid, "hook" if calls.mode == "backward" else "")
            continue
        if calls.mode == "each":
            args = [objects.step_into(a, s, held, EACH) for held in args]
        out: list[State] = []
        for t in states:
            site = CallSite(c.at, c.dst, list(args))
            before = t.current
            if calls.mode == "thread":
                if not gradients.functions_of(a, function):
                    handing.hand_over(a, t, c.at, c.operation, [function, *args])
                    if not _is_known(a, function):
                        out.append(t)
                        continue
                t.current = DEFAULT
            elif calls.mode == "stream":
                t.current = LOST
            after = call_value(a, t, site, function)
            for u in after:
                if calls.mode != "now":
                    u.current = before
            out += after
        states = out
        if calls.mode == "thread" and row.result.kind == "object":
            for t in states:
                future = mem.allocate(a, t, a.span(c.at), row.result.type)
                captures.submitted(a, t, function, value(future), a.span(c.at))
                t.env[c.dst] = value(future)
            continue
        if row.result.kind == "mapped":
            for t in states:
                container = mem.allocate(a, t, a.span(c.at), "builtins.list", discriminator=3)
                t.heap[container, objects.ANY] = t.get(c.dst)
                t.env[c.dst] = value(container)
        elif row.result.kind != "called":
            for t in states:
                t.env[c.dst] = UNKNOWN
    return states


def _is_known(a: Analysis, function: Value) -> bool:
    """Whether what is called is a function of a library, or a method of an object whose type is known."""
    return bool(function) and all(
        isinstance(atom, Function | Library | Partial)
        or (isinstance(atom, Bound) and any(a.role(owner) for owner in atom.owner))
        for atom in function
    )


__all__ = ["CURRENT", "Partial", "Value"]
