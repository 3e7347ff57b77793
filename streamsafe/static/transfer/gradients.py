"""Backward passes, gradients, and the hooks that autograd calls.

``backward()`` writes all gradients on the stream that is current at the call (TA-02); a gradient is the path ``x.grad``
where the program names one, and all of them together where it does not.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from streamsafe.static.domain import access as tag
from streamsafe.static.domain import limits
from streamsafe.static.domain.access import access
from streamsafe.static.domain.atoms import (
    CURRENT,
    FALSE,
    GRADIENTS,
    NONE,
    UNKNOWN,
    Atom,
    Bound,
    Function,
    New,
    Partial,
    Path,
    Value,
    ordered,
    path,
    rank,
    value,
)
from streamsafe.static.domain.places import DEVICE, EACH, is_gradient, module_of
from streamsafe.static.domain.state import State
from streamsafe.static.summary.facts import rebased
from streamsafe.static.transfer import captures, replays
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
    _by_trainer(a, s, c)
    initial = next(
        (c.given[n] for n in ("gradient", "grad_tensors", "grad_outputs") if n in c.given), UNKNOWN
    )
    for buffer in mem.buffers(a, s, initial):
        if buffer is not NONE:
            mem.touch(a, s, span, buffer, False, s.current, "backward()", tag.INITIAL | tag.BACKWARD)
    roots = _roots(a, s, c)
    _runs_functions(a, s, roots)
    captures.backward_in_capture(a, s)
    if row.name.endswith(".grad"):
        return mem.result(a, s, span, "grad()", DEVICE, tag.GRADIENT)
    for gradient in _written_by(a, s, c):
        mem.touch(a, s, span, gradient, True, s.current, "backward()", tag.GRADIENT | tag.BACKWARD)
    return UNKNOWN


ALL: Final[list[Atom]] = [GRADIENTS]

OF = "params"
"""The field of an optimizer that holds its parameters."""

PARAMETERS: Final = replays.PARAMETERS


def of_module(gradient: Atom) -> bool:
    """Whether a gradient is named by the one module whose parameters' it is: not by each of a list."""
    if not isinstance(gradient, Path) or not is_gradient(gradient):
        return False
    module = module_of(gradient)
    return module is not None and EACH not in module


def _by_trainer(a: Analysis, s: State, c: CallSite) -> None:
    """``engine.backward(loss)``, of an object that the loss was computed with: the pass starts from the loss."""
    given = c.given.get("gradient", UNKNOWN)
    if not given or not c.args or any(a.role(atom) == "tensor" for atom in c.receiver):
        return
    through = UNKNOWN.union(*(s.heap.get((root, mem.THROUGH), UNKNOWN) for root in mem.buffers(a, s, given)))
    if through & c.receiver:
        c.given = {**{name: held for name, held in c.given.items() if name != "gradient"}, "loss": given}
        for atom in c.receiver:
            s.heap[atom, TRAINS] = value(atom)


TRAINS: Final = "trains"
"""The field of an object that runs the passes of a module, and its steps."""


def _roots(a: Analysis, s: State, c: CallSite) -> list[Atom]:
    """The tensors that a pass starts from."""
    given = next((c.given[name] for name in ("loss", "tensors", "outputs") if name in c.given), UNKNOWN)
    return mem.buffers(a, s, given or c.receiver)


def _runs_functions(a: Analysis, s: State, roots: list[Atom]) -> None:
    """A pass runs the ``backward`` of functions of the tree: what they do is illegal in a capture here, too."""
    from streamsafe.static.summary.solve import Given

    for root in roots:
        for function in ordered(s.heap.get((root, mem.GRAD_FN), UNKNOWN)):
            if not isinstance(function, Function):
                continue
            for exit in a.engine.summary(function.fid, Given(part="hook")).exits:
                for work in sorted(exit.work, key=lambda each: each.span):
                    if work.code:
                        a.host_work(s, work.span, work.what, work.code)


def _written_by(a: Analysis, s: State, c: CallSite) -> list[Atom]:
    """The gradients that a pass writes: of its ``inputs``, or of the modules that its roots were computed with."""
    if c.given.get("inputs"):
        return of_parameters(a, s, c.given["inputs"])
    found: set[Atom] = set()
    for root in _roots(a, s, c):
        through = s.heap.get((root, mem.THROUGH))
        if not through:
            return ALL
        found |= through
    return (
        _of_paths(path(atom.root, *atom.fields, PARAMETERS) for atom in found if isinstance(atom, Path))
        if (found and all(isinstance(atom, Path) for atom in found))
        else ALL
    )


def of_parameters(a: Analysis, s: State, parameters: Value) -> list[Atom]:
    """The gradients of parameters; all of them together where a parameter is not named by a path."""
    found = mem.buffers(a, s, parameters)
    paths = [atom for atom in found if isinstance(atom, Path)]
    return _of_paths(paths) if len(paths) == len(found) else ALL


def _of_paths(parameters: Iterable[Path]) -> list[Atom]:
    found: list[Atom] = []
    for atom in sorted(parameters, key=rank):
        fields = atom.fields if atom.fields[-1:] != (PARAMETERS,) else (*atom.fields, EACH)
        if len(fields) >= limits.FIELDS:
            return ALL
        found.append(path(atom.root, *fields, "grad"))
    return found or ALL


def _of_field(a: Analysis, optimizer: Path) -> Value:
    """The parameters of an optimizer that a field holds, as its class shows them."""
    owner = path(optimizer.root, *optimizer.fields[:-1])
    return frozenset().union(*(rebased(atom, owner) for atom in a.fact(optimizer).parameters))


def use(a: Analysis, s: State, c: CallSite, span: Span, stream: Atom, writes: bool) -> None:
    """An optimizer, a scaler or a clip function uses the gradients of its parameters."""
    for gradient in _used(a, s, c):
        mem.touch(a, s, span, gradient, writes, stream, c.operation, tag.GRADIENT)


def release(a: Analysis, s: State, c: CallSite, span: Span, stream: Atom) -> None:
    """``zero_grad()``: the gradients are given back, or written where they are to be kept."""
    if c.given.get("set_to_none") == value(FALSE):
        use(a, s, c, span, stream, True)
    else:
        given = _used(a, s, c)
        replays.gives_back(a, s, span, given)
        replays.settles(s, given)


def _used(a: Analysis, s: State, c: CallSite) -> list[Atom]:
    """The gradients of the parameters that a call is about."""
    if c.given.get("parameters"):
        used = of_parameters(a, s, c.given["parameters"])
    else:
        used = []
        for owner in ordered(c.given.get("optimizer") or c.receiver):
            if a.role(owner) == "module" and isinstance(owner, Path):
                used += _of_paths([path(owner.root, *owner.fields, PARAMETERS)])
                continue
            parameters = s.heap.get((owner, OF)) or (
                _of_field(a, owner) if isinstance(owner, Path) else UNKNOWN
            )
            used += of_parameters(a, s, parameters) if parameters else ALL
    return list(dict.fromkeys(used or ALL))


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
    if not fn.spans:
        return
    span = a.span(0)
    for parameter in fn.params[1:] if fn.is_method else fn.params:
        root = path(parameter.name)
        _written(a, s, span, root)
        _written(a, s, span, path(parameter.name, "grad"))


def hook_returns(a: Analysis, s: State, span: Span, held: Value) -> None:
    """Autograd goes on with what is returned, on the stream that is current in the hook (TA-06)."""
    cls = a.fn.cls
    bases = (
        map(a.engine.canonical, a.engine.index.library_bases(cls)) if cls in a.engine.index.classes else ()
    )
    if cls is None or "torch.autograd.Function" not in bases:
        return
    for buffer in mem.buffers(a, s, held):
        if isinstance(buffer, New):
            mem.touch(a, s, span, buffer, False, CURRENT, "autograd")


def _written(a: Analysis, s: State, span: Span, buffer: Path) -> None:
    one = access(
        buffer, True, CURRENT, span, frozenset((CURRENT,)), tag.GRADIENT | tag.BACKWARD, s.guard, "backward()"
    )
    s.order.add(one)


__all__ = ["functions_of", "hook_entry", "value"]
