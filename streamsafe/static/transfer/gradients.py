"""Backward passes, gradients, and the hooks that autograd calls.

``backward()`` writes all gradients on the stream that is current at the call (TA-02); a gradient is the path ``x.grad``
where the program names one, and all of them together where it does not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamsafe.static.domain import access as tag
from streamsafe.static.domain.access import access
from streamsafe.static.domain.atoms import (
    CURRENT,
    GRADIENTS,
    NONE,
    UNKNOWN,
    Bound,
    Function,
    Partial,
    Path,
    Value,
    ordered,
    path,
    value,
)
from streamsafe.static.domain.places import DEVICE
from streamsafe.static.domain.state import State
from streamsafe.static.transfer import captures
from streamsafe.static.transfer import memory as mem
from streamsafe.static.transfer.registry import CallSite, special

if TYPE_CHECKING:
    from streamsafe.order.hazard import Span
    from streamsafe.static.summary.analyse import Analysis


@special("backward")
def backward(a: Analysis, s: State, c: CallSite) -> Value | list[State]:
    """``loss.backward(gradient)``, ``autograd.backward(tensors, grad_tensors)``, ``autograd.grad(...)``."""
    span = a.span(c.at)
    row = c.row
    assert row is not None
    initial = next(
        (c.given[n] for n in ("gradient", "grad_tensors", "grad_outputs") if n in c.given), UNKNOWN
    )
    for buffer in mem.buffers(a, s, initial):
        if buffer is not GRADIENTS and buffer is not NONE:
            mem.touch(a, s, span, buffer, False, s.current, "backward()", tag.INITIAL | tag.BACKWARD)
    captures.backward_in_capture(a, s)
    if row.name.endswith(".grad"):
        return mem.result(a, s, span, "grad()", DEVICE, tag.GRADIENT)
    mem.touch(a, s, span, GRADIENTS, True, s.current, "backward()", tag.GRADIENT | tag.BACKWARD)
    return UNKNOWN


def functions_of(a: Analysis, held: Value) -> list[str]:
    """The functions of the tree that a value may call."""
    found: list[str] = []
    for atom in ordered(held):
        if isinstance(atom, Function):
            found.append(atom.fid)
        elif isinstance(atom, Partial):
            found += functions_of(a, atom.function)
        elif isinstance(atom, Bound):
            for owner in ordered(atom.owner):
                type = a.type_of(owner)
                if ":" in type:
                    fid = a.engine.index.method(type, atom.name)
                    if fid is not None:
                        found.append(fid)
    return found


def hook_entry(a: Analysis, s: State) -> None:
    """A hook begins: autograd has just written the gradient, on the stream that is current in the hook (TA-06)."""
    fn = a.fn
    span = a.span(fn.blocks[0].instrs[0].at) if fn.blocks[0].instrs else None
    if span is None:
        return
    for parameter in fn.params[1:] if fn.is_method else fn.params:
        root = path(parameter.name)
        _written(a, s, span, root)
        _written(a, s, span, path(parameter.name, "grad"))


def _written(a: Analysis, s: State, span: Span, buffer: Path) -> None:
    one = access(
        buffer, True, CURRENT, span, frozenset((CURRENT,)), tag.GRADIENT | tag.BACKWARD, s.guard, "backward()"
    )
    s.order.add(one)


__all__ = ["functions_of", "hook_entry", "value"]
