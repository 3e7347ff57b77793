"""Whether a module of a file runs a part of itself on another stream: what a backward pass does of it runs there."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping

Functions = Mapping[str, ast.FunctionDef | ast.AsyncFunctionDef]


def runs_parts(methods: Functions, enters_stream: Callable[[ast.withitem], bool]) -> bool:
    """Whether ``forward``, or a method that it calls, calls a part of the object under a stream that it enters.

    A part is what an attribute holds that is no method: asked for there, met by a loop, or given to the method.

    Args:
        methods: those of one class.
        enters_stream: whether an item of a ``with`` makes a stream current.
    """
    reached = ["forward"]
    for name in reached:
        reached += dict.fromkeys(m for m in _called_methods(methods[name], methods) if m not in reached)
    for name in reached:
        blocks = [
            block
            for block in ast.walk(methods[name])
            if isinstance(block, ast.With) and any(map(enters_stream, block.items))
        ]
        if blocks:
            called = [c.func for block in blocks for c in ast.walk(block) if isinstance(c, ast.Call)]
            named = _named_parts(name, methods, reached)
            if any(_is_part(f, methods) or (isinstance(f, ast.Name) and f.id in named) for f in called):
                return True
    return False


def _is_part(node: ast.AST, methods: Functions) -> bool:
    """``self.part``, or an element of it."""
    while isinstance(node, ast.Subscript):
        node = node.value
    return _own(node) not in {"", *methods}


def _own(node: ast.AST) -> str:
    """Which attribute of the object this is; nothing if it is none."""
    own = isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self"
    return node.attr if own else ""  # type: ignore[attr-defined]


def _calls_of_methods(node: ast.AST, methods: Functions) -> Iterator[tuple[str, ast.Call]]:
    for call in ast.walk(node):
        if isinstance(call, ast.Call) and (name := _own(call.func)) in methods:
            yield name, call


def _called_methods(node: ast.AST, methods: Functions) -> list[str]:
    return [name for name, _ in _calls_of_methods(node, methods)]


def _named_parts(name: str, methods: Functions, callers: list[str]) -> set[str]:
    """The names that stand for parts of the object in one of its methods."""
    found: set[str] = set()
    for node in ast.walk(methods[name]):
        if isinstance(node, ast.For) and any(_is_part(n, methods) for n in ast.walk(node.iter)):
            found |= {n.id for n in ast.walk(node.target) if isinstance(n, ast.Name)}
        elif isinstance(node, ast.Assign) and _is_part(node.value, methods):
            found |= {t.id for t in node.targets if isinstance(t, ast.Name)}
    taken = [argument.arg for argument in methods[name].args.args[1:]]
    for caller in callers:
        for method, call in _calls_of_methods(methods[caller], methods):
            if method == name:
                given = [*zip(taken, call.args, strict=False), *((k.arg, k.value) for k in call.keywords)]
                found |= {word for word, value in given if word and _is_part(value, methods)}
    return found
