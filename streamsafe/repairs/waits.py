"""Repairs of what makes the host wait inside a graph capture (SS401), beside those that move a statement out of it.

Most keep the value on the device: they are right in a function that the capture calls, too.
"""

from __future__ import annotations

from collections.abc import Callable

import libcst as cst

from streamsafe.repairs.captures import capture_of, moved_out, replayed
from streamsafe.repairs.place import SIMPLE, Place, keyword, name_of, receiver, stored, used, with_argument
from streamsafe.repairs.tree import Codemod

_READS = ("item", "cpu", "tolist", "numpy")
_FACTORIES = ("arange", "empty", "eye", "full", "linspace", "logspace", "ones", "zeros")
"""Functions that can make a tensor on the device; the random ones draw other numbers there."""
_ARITHMETIC = (cst.Add, cst.Subtract, cst.Multiply, cst.Divide)


def without_a_wait(place: Place) -> tuple[str, Codemod] | None:
    """SS401: the first repair that fits."""
    for repair in _ALL:
        found = repair(place)
        if found is not None:
            return found
    return None


def _asynchronous(place: Place) -> tuple[str, Codemod] | None:
    """A copy from or to pinned memory does not block."""
    call = place.call
    if call is None or name_of(call) != "copy_" or place.facts.cause == "pageable" or len(call.args) != 1:
        return None
    mod = Codemod()
    mod.replace(call, lambda node: with_argument(node, "non_blocking", "True"))  # type: ignore[arg-type]
    return "copy with non_blocking=True", mod


def _number(place: Place) -> tuple[str, Codemod] | None:
    """`x / x.max().item()` is `x / x.max()`: the other operand is the tensor that the number comes from."""
    call = place.call
    value = receiver(call) if call is not None and name_of(call) == "item" and not call.args else None
    if call is None or value is None:
        return None
    for node in place.tree.outward(call):
        if isinstance(node, cst.BinaryOperation) and isinstance(node.operator, _ARITHMETIC):
            other = node.right if node.left is call else node.left
            if call not in (node.left, node.right) or place.code(other) != place.code(_root(value)):
                return None
            mod = Codemod()
            mod.replace(call, lambda node: node.func.value)  # type: ignore[attr-defined]
            return f"keep {place.code(value)} on the device", mod
        if node is not call:
            return None
    return None


def _root(value: cst.BaseExpression) -> cst.BaseExpression:
    """The object at the beginning of a chain of method calls."""
    while isinstance(value, cst.Call) and isinstance(value.func, cst.Attribute):
        value = value.func.value
    return value


def _masked_sum(place: Place) -> tuple[str, Codemod] | None:
    """`x[x > 0].sum()` is `x.where(x > 0, 0).sum()`: the same sum, and its shape does not depend on values."""
    picked = place.node
    if not isinstance(picked, cst.Subscript) or len(picked.slice) != 1:
        return None
    index, outer = (
        picked.slice[0].slice,
        next((n for n in place.tree.outward(picked) if n is not picked), None),
    )
    call = next(place.tree.around_node(picked, cst.Call), None)
    mask = index.value if isinstance(index, cst.Index) else None
    if not isinstance(mask, cst.Comparison) or not isinstance(picked.value, cst.Name):
        return None
    number = mask.comparisons[0].comparator
    if len(mask.comparisons) != 1 or not isinstance(number, (cst.Integer, cst.Float)):
        return None
    if place.code(mask.left) != picked.value.value or not isinstance(call, cst.Call) or call.args:
        return None
    if name_of(call) != "sum" or call.func is not outer:
        return None
    code = f"{picked.value.value}.where({place.code(mask)}, 0)"
    mod = Codemod()
    mod.replace(picked, lambda _: cst.parse_expression(code))
    return f"sum {code}, whose shape is known", mod


def _made_on_the_device(place: Place) -> tuple[str, Codemod] | None:
    """`torch.arange(n).to(x.device)` is `torch.arange(n, device=x.device)`."""
    call = place.call
    maker = receiver(call) if call is not None else None
    if call is None or not isinstance(maker, cst.Call) or name_of(maker) not in _FACTORIES:
        return None
    if keyword(maker, "device") is not None or keyword(maker, "pin_memory") is not None:
        return None
    device = _device(place, call)
    if not device:
        return None
    mod = Codemod()
    mod.replace(call, lambda node: with_argument(node.func.value, "device", device))  # type: ignore[attr-defined]
    return f"make it on the device: device={device}", mod


def _device(place: Place, call: cst.Call) -> str:
    """The device that `.to(...)` or `.cuda()` names, as code; empty where another argument is given."""
    if name_of(call) == "cuda" and not call.args:
        return '"cuda"'
    if name_of(call) != "to" or len(call.args) != 1:
        return ""
    arg = call.args[0]
    if arg.keyword is not None and arg.keyword.value != "device":
        return ""
    value = arg.value
    named = isinstance(value, cst.Attribute) and value.attr.value == "device"
    literal = isinstance(value, cst.SimpleString) and str(value.evaluated_value).startswith("cuda")
    return place.code(value) if named or literal or arg.keyword is not None else ""


def _read_afterwards(place: Place) -> tuple[str, Codemod] | None:
    """`y = x.sum().item()` becomes `y = x.sum()` in the capture, and `y = y.item()` after it and a replay."""
    capture, line, call = capture_of(place), place.line, place.call
    value = receiver(call) if call is not None and name_of(call) in _READS and not call.args else None
    if capture is None or call is None or not isinstance(line, cst.SimpleStatementLine):
        return None
    statement = line.body[0]
    if not isinstance(value, cst.Call) or not capture.replay or not isinstance(statement, cst.Assign):
        return None
    if statement.value is not call or len(statement.targets) != 1:
        return None
    target = statement.targets[0].target
    here = list(capture.body).index(line)
    if not isinstance(target, cst.Name) or any(
        stored(line) & (used(each) | stored(each)) for each in capture.body[here + 1 :]
    ):
        return None
    name = target.value
    read = f"{name} = {name}.{name_of(call)}()"
    mod = Codemod()
    mod.replace(call, lambda node: node.func.value)  # type: ignore[attr-defined]
    replayed(place, capture, mod, read)
    return f"read it after {capture.replay}", mod


def _copied_before(place: Place) -> tuple[str, Codemod] | None:
    """A copy from the host in an expression is made before the capture, under a name."""
    capture, line, call = capture_of(place), place.line, place.call
    if capture is None or line is None or call is None or place.facts.cause != "pageable":
        return None
    source = receiver(call)
    if name_of(call) not in ("to", "cuda") or not isinstance(source, SIMPLE):
        return None
    here = list(capture.body).index(line)
    if any(used(call) & stored(each) for each in capture.body[:here]):
        return None
    name = place.free(f"{place.code(source).rpartition('.')[2].partition('[')[0]}_on_device")
    mod = Codemod()
    mod.before(capture.first, f"{name} = {place.code(call)}")
    mod.replace(call, lambda _: cst.Name(name))
    return f"copy it before the capture: {name}", mod


_ALL: tuple[Callable[[Place], tuple[str, Codemod] | None], ...] = (
    _asynchronous,
    _number,
    _masked_sum,
    _made_on_the_device,
    _read_afterwards,
    moved_out,
    _copied_before,
)
