"""Outputs of a graph that keep a name over its next replay, which overwrites them (GC-05)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from streamsafe.order.hazard import Span
from streamsafe.static.domain.atoms import Bound, Value
from streamsafe.static.domain.capturing import Taken
from streamsafe.static.domain.state import Reg, State
from streamsafe.static.transfer import memory as mem

if TYPE_CHECKING:
    from streamsafe.static.summary.analyse import Analysis
    from streamsafe.static.summary.model import Exit


def moved(a: Analysis, s: State, dst: Reg, src: Reg, held: Value) -> None:
    """A register gets what another holds; a name that gets an output after a replay has that replay's."""
    if not s.capturing.replays:
        return
    marks = {each for each in s.capturing.taken if each.reg == src}
    if marks and not any(isinstance(atom, Bound) for atom in held):
        there = mem.buffers(
            a, s, held
        )  # of a part that is no memory, such as a shape, nothing is overwritten
        marks = {each for each in marks if each.output in there}
    if not marks and isinstance(dst, str):
        taken(a, s, dst, held)
    else:
        _set(s, dst, {each._replace(reg=dst) for each in marks})


def taken(a: Analysis, s: State, dst: Reg, held: Value) -> None:
    """A register gets the outputs of graphs that have been replayed, as the last replay has left them."""
    replayed = {graph for graph, _ in s.capturing.replays}
    outputs = {
        output
        for graph, one in s.capturing.graphs.items()
        if graph in replayed and one.outputs
        for output in one.outputs.intersection(mem.buffers(a, s, held))
    }
    _set(s, dst, {Taken(dst, output, False) for output in outputs})


def returned(a: Analysis, s: State, dst: Reg, exit: Exit, held: Value) -> None:
    """A call that has replayed a graph gives an output back."""
    if exit.replays:
        taken(a, s, dst, held)


def combined(a: Analysis, s: State, span: Span, regs: Iterable[Reg]) -> bool:
    """One operation is given outputs of several replays: all but the last have been overwritten. Whether it is so."""
    if not s.capturing.taken:
        return False
    given = set(regs)
    marks = {each for each in s.capturing.taken if each.reg in given}
    old = {(each.reg, each.output) for each in marks if each.stale}
    new = {(each.reg, each.output) for each in marks if not each.stale}
    # a register that is both, by different paths, shows nothing
    found = not {output for _, output in old - new}.isdisjoint(output for _, output in new - old)
    if found:
        a.violation("stale-replay-output", span, "reads it", s.guard)
    return found


def held_together(a: Analysis, s: State, span: Span, dst: Reg, regs: Iterable[Reg]) -> None:
    """A container that is built of outputs is one of all these."""
    if not s.capturing.taken:
        return
    given = set(regs)
    marks = {each._replace(reg=dst) for each in s.capturing.taken if each.reg in given}
    if combined(a, s, span, given):
        marks = {each for each in marks if not each.stale}
    _set(s, dst, marks)


def _set(s: State, dst: Reg, marks: set[Taken]) -> None:
    others = {each for each in s.capturing.taken if each.reg != dst}
    if marks or len(others) != len(s.capturing.taken):
        s.capturing.taken = frozenset(others | marks)
