"""Repairs of timing events and optimizers: arguments of the call that makes them."""

from __future__ import annotations

import libcst as cst

from streamsafe.repairs.place import SIMPLE, Place, call_of, keyword, made, name_of, receiver, with_argument
from streamsafe.repairs.tree import Codemod

_TIMING = {"enable_timing": "True", "disable_timing": "False"}
"""The argument of an event's constructor, and its value in an event with timing: PyTorch's and CuPy's."""


def timed_events(place: Place) -> tuple[str, Codemod] | None:
    """SS312: events are made with timing, or the host waits for the last one: as the finding says."""
    call, line = place.call, place.line
    if call is None or line is None:
        return None
    events = [arg.value for arg in call.args]
    owner = receiver(call)
    if name_of(call) == "elapsed_time" and owner is not None:
        events.insert(0, owner)
    names = [event for event in events if isinstance(event, SIMPLE)]
    if len(names) != 2:
        return None
    mod = Codemod()
    if place.facts.timing == "untimed":
        for each in {id(each): each for name in names for each in made(place, name)}.values():
            if _untimed(each):
                mod.replace(each, _timed)
        return "make the events with timing", mod
    if place.facts.timing != "pending":
        return None
    code = f"{place.code(names[1])}.synchronize()"
    mod.before(line, code)
    return code, mod


def _untimed(call: cst.Call) -> bool:
    """Whether a call makes an event, and says by a constant at most whether it keeps the time."""
    given = [arg.value for name in _TIMING if (arg := keyword(call, name)) is not None]
    if name_of(call) != "Event" or not all(isinstance(value, cst.Name) for value in given):
        return False
    spelled = {arg.keyword.value: arg.value for arg in call.args if arg.keyword is not None}
    wrong = {name for name, value in _TIMING.items() if name in spelled and spelled[name].value != value}  # type: ignore[attr-defined]
    return bool(wrong) or not given


def _timed(node: cst.CSTNode) -> cst.CSTNode:
    assert isinstance(node, cst.Call)
    if keyword(node, "disable_timing") is not None:
        return with_argument(node, "disable_timing", "False")
    return with_argument(node, "enable_timing", "True")


def capturable(place: Place) -> tuple[str, Codemod] | None:
    """SS408: the optimizer is made capturable, and fused where a gradient scaler steps it."""
    mod = Codemod()
    for span in place.related:
        call = call_of(place.tree.at(span))
        if call is not None and name_of(call)[:1].isupper() and keyword(call, "capturable") is None:
            mod.replace(call, lambda node: with_argument(node, "capturable", "True"))  # type: ignore[arg-type]
            return "make the optimizer with capturable=True", mod
    call = place.call
    stepped = receiver(call) if call is not None and name_of(call) == "step" and not call.args else None
    if isinstance(stepped, SIMPLE):
        optimizers = [each for each in made(place, stepped) if name_of(each)[:1].isupper()]
        if len(optimizers) == 1 and keyword(optimizers[0], "capturable") is None:
            mod.replace(optimizers[0], lambda node: with_argument(node, "capturable", "True"))  # type: ignore[arg-type]
            return "make the optimizer with capturable=True", mod
    if (
        call is None
        or name_of(call) != "step"
        or len(call.args) != 1
        or not isinstance(call.args[0].value, SIMPLE)
    ):
        return None
    makers = [each for each in made(place, call.args[0].value) if name_of(each) in ("Adam", "AdamW")]
    if len(makers) != 1:
        return None

    def change(node: cst.CSTNode) -> cst.CSTNode:
        assert isinstance(node, cst.Call)
        return with_argument(with_argument(node, "fused", "True"), "capturable", "True")

    mod.replace(makers[0], change)
    return "make the optimizer with fused=True and capturable=True", mod
