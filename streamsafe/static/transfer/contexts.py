"""Context managers: of streams and captures, of classes of the tree, and of generators (``contextmanager``)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from streamsafe.static.domain import limits
from streamsafe.static.domain.atoms import (
    FALSE,
    LOST,
    NONE,
    NULL_CONTEXT,
    UNKNOWN,
    Atom,
    Capture,
    Context,
    Generator,
    New,
    Path,
    Symbol,
    Tuple,
    generator,
    ordered,
    value,
)
from streamsafe.static.domain.guards import IS_NONE, Literal
from streamsafe.static.domain.state import State
from streamsafe.static.syntax import ir
from streamsafe.static.transfer import captures, threads
from streamsafe.static.transfer import memory as mem
from streamsafe.static.transfer.registry import transfer

if TYPE_CHECKING:
    from streamsafe.static.summary.analyse import Analysis


def is_stream(a: Analysis, atom: Atom) -> bool:
    """Whether an atom is a stream, or may be one."""
    if isinstance(atom, Symbol):
        return a.role(atom) == "stream"
    return isinstance(atom, New | Path) and a.role(atom) in ("stream", "")


@transfer(ir.Enter)
def enter(a: Analysis, s: State, i: ir.Enter) -> list[State] | None:
    """dst = the value that entering a context manager gives; a state for each context that it may be."""
    held = s.get(i.context)
    if not held:
        s.entered[i.context] = (s.current, s.capture)
        s.set_local(i.dst, UNKNOWN)
        return None
    out: list[State] = []
    atoms = ordered(held)[: limits.STREAMS]
    for atom in atoms:
        t = s if len(atoms) == 1 else s.fork()
        t.entered[i.context] = (t.current, t.capture)
        t.env[i.context] = value(atom)
        t.set_local(i.dst, value(atom))
        out += enter_one(a, t, i, atom)
    return out


def enter_one(a: Analysis, s: State, i: ir.Enter | Any, atom: Atom) -> list[State]:
    """Enter one context."""
    if isinstance(atom, Context):
        streams = [each for each in ordered(atom.streams) if is_stream(a, each)]
        if not streams:
            if not atom.streams:
                s.current = LOST
            return [s]
        out = []
        for each in streams:
            t = s if len(streams) == 1 else s.fork()
            out += switch(a, t, each, NONE in atom.streams)
        return out
    if isinstance(atom, Capture):
        return begin_capture(a, s, a.span(i.at), atom)
    if isinstance(atom, New | Path) and a.role(atom) == "stream":
        return switch(a, s, atom, False)
    if isinstance(atom, Generator):
        return _enter_generator(a, s, i, atom)
    type = a.type_of(atom)
    if ":" in type:
        fid = a.engine.index.method(type, "__enter__")
        if fid is not None:
            from streamsafe.static.summary.instantiate import instantiate

            return instantiate(a, s, i.at, i.dst, fid, [value(atom)], {}) or [s]
    return [s]


def switch(a: Analysis, s: State, stream: Atom, may_be_none: bool) -> list[State]:
    """Make a stream current that may be None: a partition for either, unless the guard says which."""
    literal = Literal(IS_NONE, stream, None, True)
    if literal in s.guard:
        return [s]
    out: list[State] = []
    if isinstance(stream, Path):
        may_be_none = may_be_none or a.fact(stream).optional
        if may_be_none and literal.negated() not in s.guard:
            other = s.fork()
            other.guard = other.guard | {literal}
            out.append(other)
            s.guard = s.guard | {literal.negated()}
    elif may_be_none:
        out.append(s.fork())
    s.current = stream
    out.append(s)
    return out


def begin_capture(a: Analysis, s: State, span: Any, atom: Capture) -> list[State]:
    """A capture begins; entering the context synchronizes the device (GC-18)."""
    mem.host_waits(a, s, span, None)
    streams = [each for each in ordered(atom.streams) if is_stream(a, each)]
    if streams:
        s.current = streams[0]
    captures.begin_region(a, s, span, s.current, atom.graph, atom.mode)
    return [s]


@transfer(ir.Exit)
def leave(a: Analysis, s: State, i: ir.Exit) -> list[State] | None:
    """The context is left: what was current before is current again. It joins nothing (TS-04)."""
    saved = s.entered.pop(i.context, None)
    if i.dst is not None:
        s.env[i.dst] = value(FALSE)
    held = ordered(s.get(i.context))
    atom = held[0] if held else None
    if isinstance(atom, Generator):
        out = _leave_generator(a, s, i, atom)
        for t in out or [s]:
            if saved is not None and saved[1] is None:
                captures.end_region(a, t)
        return out
    type = a.type_of(atom) if atom is not None else ""
    if ":" in type and a.role(atom or NONE) != "stream":
        fid = a.engine.index.method(type, "__exit__")
        if fid is not None:
            from streamsafe.static.summary.instantiate import instantiate

            out = instantiate(a, s, i.at, i.dst if i.dst is not None else -1, fid, [value(atom or NONE)], {})
            for t in out or []:
                if saved is not None:
                    if saved[1] is None:
                        captures.end_region(a, t)
                    t.current, t.capture = saved
            return out
    if a.role(atom or NONE) == "executor":
        threads.pool_done(a, s)
    if isinstance(atom, Capture) and saved is not None and saved[1] is None:
        captures.end_region(a, s)
    if saved is not None and atom is not NULL_CONTEXT:
        s.current, s.capture = saved
    return None


# -- generators that are context managers ------------------------------------------------------------------------------


def _enter_generator(a: Analysis, s: State, i: ir.Enter, atom: Generator) -> list[State]:
    """Run a generator to its ``yield``."""
    from streamsafe.static.summary.analyse import registers
    from streamsafe.static.summary.instantiate import play
    from streamsafe.static.summary.solve import Given

    fn = a.engine.function(atom.fid)
    if fn is None:
        return [s]
    summary = a.engine.summary(atom.fid, Given(part="enter"))
    regs = registers(fn)
    out = play(a, s, i.at, i.dst, fn, summary, dict(atom.roots), {})
    for t in out:
        given = ordered(t.get(i.dst))
        first = given[0] if len(given) == 1 else None
        if isinstance(first, Tuple) and len(first.items) == 2 * len(regs) + 1:
            resumed = [(f"resume {reg}", first.items[1 + n]) for n, reg in enumerate(regs)]
            resumed += [
                (f"resume current {reg}", first.items[1 + len(regs) + n]) for n, reg in enumerate(regs)
            ]
            t.env[i.context] = value(generator(atom.fid, atom.roots, resumed))
            t.set_local(i.dst, first.items[0])
        else:
            t.set_local(i.dst, UNKNOWN)
    return out


def _leave_generator(a: Analysis, s: State, i: ir.Exit, atom: Generator) -> list[State] | None:
    """Run a generator from its ``yield`` to its end."""
    from streamsafe.static.summary.instantiate import play
    from streamsafe.static.summary.solve import Given

    fn = a.engine.function(atom.fid)
    if fn is None or not atom.resumed:
        return None
    summary = a.engine.summary(atom.fid, Given(part="exit"))
    return play(a, s, i.at, -1, fn, summary, dict((*atom.roots, *atom.resumed)), {})
