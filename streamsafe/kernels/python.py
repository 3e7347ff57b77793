"""Kernels that are written in Python: which of their arguments they write."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import libcst as cst

from streamsafe.static import concrete

_STORES = ("store", "atomic")
"""How the functions of Triton's language that write through a pointer begin."""


_LOADS = ("load", "ld", "atomic")
"""How the functions begin that read through a pointer."""


def assigned_elements(node: cst.CSTNode) -> set[str]:
    """The names whose elements a function's body assigns, or hands to an atomic operation."""
    found: set[str] = set()

    def target(expression: cst.BaseExpression) -> None:
        if isinstance(expression, cst.Subscript) and isinstance(expression.value, cst.Name):
            found.add(expression.value.value)

    for inner in concrete.walk(node):
        if isinstance(inner, (cst.AssignTarget, cst.AugAssign)):
            target(inner.target)
        elif isinstance(inner, cst.Call):
            function = inner.func
            atomic = isinstance(function, cst.Attribute) and (
                function.attr.value.startswith("atomic")
                or (isinstance(function.value, cst.Attribute) and function.value.attr.value == "atomic")
            )
            if atomic and inner.args and isinstance(inner.args[0].value, cst.Name):
                found.add(inner.args[0].value.value)
    return found


def has_constants(node: cst.FunctionDef | cst.Lambda) -> bool:
    """Whether a function takes compile-time constants (``BLOCK: tl.constexpr``): it is a kernel, not host code."""
    parameters = node.params
    for parameter in (*parameters.posonly_params, *parameters.params, *parameters.kwonly_params):
        annotation = parameter.annotation.annotation if parameter.annotation is not None else None
        if isinstance(annotation, cst.Attribute):
            annotation = annotation.attr
        if isinstance(annotation, cst.Name) and annotation.value == "constexpr":
            return True
    return False


def stored_through(node: cst.CSTNode, flags: Mapping[str, bool]) -> set[str]:
    """The names that take part in the pointers through which a Triton kernel's body stores.

    Args:
        node: the function.
        flags: compile-time constants of the launch: what stands under one that is false is not compiled.

    Pointers are computed (``out = base + row * stride``), so what a stored-through name was computed from counts too;
    offsets are among them, and are no tensors.
    """
    computed: dict[str, set[str]] = {}
    found: set[str] = set()

    def computes(target: cst.BaseExpression, value: cst.BaseExpression) -> None:
        if isinstance(target, cst.Name):
            computed.setdefault(target.value, set()).update(_names(value))

    for inner in _compiled(node, flags):
        if isinstance(inner, cst.Assign):
            for target in inner.targets:
                computes(target.target, inner.value)
        elif isinstance(inner, cst.AugAssign):
            computes(inner.target, inner.value)
        elif isinstance(inner, cst.Call):
            function = inner.func
            if isinstance(function, cst.Attribute) and function.attr.value.startswith(_STORES) and inner.args:
                found.update(_names(inner.args[0].value))
    pending = list(found)
    while pending:
        for name in computed.get(pending.pop(), set()) - found:
            found.add(name)
            pending.append(name)
    return found


def _compiled(node: cst.CSTNode, flags: Mapping[str, bool]) -> Iterator[cst.CSTNode]:
    """What a launch compiles of a kernel's body, in order."""
    for inner in concrete.walk(node, (cst.If,)):
        if not isinstance(inner, cst.If):
            yield inner
            continue
        chosen = flags.get(inner.test.value) if isinstance(inner.test, cst.Name) else None
        if chosen is not False:
            yield from _compiled(inner.body, flags)
        if not chosen and inner.orelse is not None:
            yield from _compiled(inner.orelse, flags)


def waits(node: cst.FunctionDef | cst.Lambda, flags: Mapping[str, bool]) -> bool:
    """Whether a kernel waits for a signal that another one sets: in memory that it is given, loaded by a loop's test.

    Such a kernel comes after whatever sets the signal, on any stream, and reads it meanwhile. The languages of kernels
    that speak with other devices have a call for it: ``wait(ptr, ...)``, ``signal_wait_until(ptr, ...)``.

    Args:
        node: the function.
        flags: compile-time constants of the launch.
    """
    given = {p.name.value for p in (*node.params.posonly_params, *node.params.params)}
    compiled = list(_compiled(node, flags))
    for inner in compiled:  # pointers into it, and into what other devices were given there
        if isinstance(inner, cst.Assign) and (_names(inner.value) | _moved(inner.value)) & given:
            given |= {t.target.value for t in inner.targets if isinstance(t.target, cst.Name)}

    def asks(call: cst.CSTNode) -> bool:
        return isinstance(call, cst.Call) and any(
            _names(argument.value) & given for argument in call.args[:1]
        )

    def spins(node: cst.CSTNode) -> bool:
        if isinstance(node, cst.While):
            return any(map(asks, concrete.walk(node.test)))
        called = _called(node) if isinstance(node, cst.Call) else None
        return called is not None and (called == "wait" or "wait_until" in called) and asks(node)

    return any(map(spins, compiled))


def _moved(node: cst.BaseExpression) -> set[str]:
    """The pointer from which a call makes another one: ``symm_at(ptr, rank)``; what is loaded is none."""
    if not isinstance(node, cst.Call) or not node.args or (_called(node) or "").startswith(_LOADS):
        return set()
    return _names(node.args[0].value)


def _called(call: cst.Call) -> str | None:
    """What a call calls, without the module that it stands in."""
    function = call.func.attr if isinstance(call.func, cst.Attribute) else call.func
    return function.value if isinstance(function, cst.Name) else None


def _names(node: cst.BaseExpression) -> set[str]:
    """The names an expression adds up: a pointer and its offsets. What is multiplied or loaded is a number."""
    if isinstance(node, cst.Name):
        return {node.value}
    if isinstance(node, cst.BinaryOperation) and isinstance(node.operator, (cst.Add, cst.Subtract)):
        return _names(node.left) | _names(node.right)
    if isinstance(node, cst.Subscript):
        return _names(node.value)
    if isinstance(node, cst.IfExp):
        return _names(node.body) | _names(node.orelse)
    if isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute):
        cast = node.func.attr.value in ("to", "cast", "multiple_of", "max_contiguous", "broadcast_to")
        return _names(node.func.value) if cast else set()
    return set()
