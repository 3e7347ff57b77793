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
    New,
    Partial,
    Value,
    bound,
    ordered,
    partial,
    value,
)
from streamsafe.static.domain.places import EACH, is_element
from streamsafe.static.domain.state import State
from streamsafe.static.models.rows import Row
from streamsafe.static.transfer import data, gradients, handing, library, objects, threads
from streamsafe.static.transfer import memory as mem
from streamsafe.static.transfer.registry import CallSite, special

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
            args += c.args[len(row.params) :]
        if calls.mode == "bound":
            keywords = {name: held for name, held in c.keywords.items() if name not in row.params}
            s.env[c.dst] = value(partial(function, c.args[1:], keywords.items()))
            continue
        if calls.mode in ("backward", "later"):
            for fid in gradients.functions_of(a, function):
                a.engine.entry(fid, "hook" if calls.mode == "backward" else "")
            continue
        if calls.mode == "thread":
            states = [out for t in states for out in _on_thread(a, t, c, row, function, args)]
            continue
        if calls.mode == "each":
            args = [objects.step_into(a, s, held, EACH) for held in args]
        out: list[State] = []
        for t in states:
            site = CallSite(c.at, c.dst, list(args))
            before = t.current
            if calls.mode == "stream":
                t.current = LOST
            after = call_value(a, t, site, function)
            for u in after:
                if calls.mode != "now":
                    u.current = before
            out += after
        states = out
        if row.result.kind == "mapped":
            for t in states:
                _mapped(a, t, c)
        elif row.result.kind != "called":
            for t in states:
                t.env[c.dst] = UNKNOWN
    return states


@special("thread_start")
def start_thread(a: Analysis, s: State, c: CallSite) -> Value | list[State] | None:
    """``thread.start()``: its target is run at once; what it does is in order with nothing but its start."""
    states = [s]
    for atom in ordered(c.receiver):
        if not isinstance(atom, New):
            continue
        if any(threads.synchronizes(a, fid) for fid in threads.targets(a, s, atom)):
            s.capturing.threads[atom] = a.span(c.at)
        target, args, keywords = (s.heap.get((atom, name), UNKNOWN) for name in threads.GIVEN)
        if ":" in a.type_of(atom):
            target = value(bound(value(atom), "run"))
        states = [out for t in states for out in _start(a, t, c, target, args, keywords)]
    for t in states:
        t.env[c.dst] = UNKNOWN
    return states


def _start(a: Analysis, s: State, c: CallSite, target: Value, args: Value, keywords: Value) -> list[State]:
    given = [each for atom in ordered(args) for each in data.spread(a, s, value(atom))]
    named = {
        field[1:-1]: s.heap[atom, field]
        for atom in ordered(keywords)
        if isinstance(atom, New)
        for field in mem.s_fields(s, atom)
        if is_element(field) and field != objects.ANY
    }
    return on_thread(a, s, CallSite(c.at, c.dst, given, named, operation="start"), target)


def on_thread(a: Analysis, s: State, c: CallSite, function: Value) -> list[State]:
    """A function runs on another thread, whose current stream is the default one.

    Where nothing shows that the starter's current stream is another one, it is taken to be the default one, too.
    """
    from streamsafe.static.transfer.calls import call_value

    s.env[c.dst] = UNKNOWN
    if not gradients.functions_of(a, function):
        arguments = [
            held for atom in ordered(function) if isinstance(atom, Partial) for held in atom.arguments
        ]
        handing.hand_over(a, s, c.at, c.operation, [function, *arguments, *c.values()])
        if not _is_known(a, function):
            return [s]
    if s.capture is not None:
        return [s]  # it takes no part in the capture
    targets = gradients.functions_of(a, function)
    called = [fid for fid in targets if a.fn.fid in a.engine.callers.get(fid, ())]
    before, work = s.current, s.work
    s.current = before if before is CURRENT else DEFAULT
    out = call_value(a, s, CallSite(c.at, c.dst, list(c.args), dict(c.keywords)), function)
    for t in out:
        t.current, t.work = before, work
    for fid in targets:  # it goes on while its starter does: it is an entry, not a part of what that does
        if fid not in called and fid in a.engine.callers:
            a.engine.callers[fid].discard(a.fn.fid)
    return out


def _is_known(a: Analysis, function: Value) -> bool:
    """Whether what is called is a function of a library, or a method of an object whose type is known."""
    return bool(function) and all(
        isinstance(atom, Function | Library)
        or (isinstance(atom, Partial) and _is_known(a, atom.function))
        or (isinstance(atom, Bound) and any(a.role(owner) for owner in atom.owner))
        for atom in function
    )


def _mapped(a: Analysis, s: State, c: CallSite) -> None:
    """A container of what a function has returned for each element."""
    type = c.row.result.type if c.row is not None else "builtins.list"
    container = mem.allocate(a, s, a.span(c.at), type, discriminator=3)
    s.heap[container, objects.ANY] = s.get(c.dst)
    s.env[c.dst] = value(container)


def _on_thread(
    a: Analysis, s: State, c: CallSite, row: Row, function: Value, args: list[Value]
) -> list[State]:
    """A function runs on a thread of a pool; a future holds what it returns."""
    if row.result.kind == "mapped":
        args = [objects.step_into(a, s, held, EACH) for held in args]
    states = on_thread(a, s, CallSite(c.at, c.dst, args, operation=c.operation), function)
    for t in states:
        if row.result.kind == "mapped":
            _mapped(a, t, c)
        elif row.result.kind == "object":
            held = t.get(c.dst)
            future = mem.allocate(a, t, a.span(c.at), row.result.type)
            if gradients.functions_of(a, function):
                t.heap[future, threads.RESULT] = held
            threads.submitted(a, t, function, value(future), a.span(c.at))
            t.env[c.dst] = value(future)
        elif row.result.kind != "called":
            t.env[c.dst] = UNKNOWN
    return states
