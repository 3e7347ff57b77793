"""Repairs in files that use CuPy and PyTorch: arrays that are passed without an exchange of streams."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from streamsafe.order.hazard import Hazard, Span
from streamsafe.order.lines import CURRENT
from streamsafe.repairs.place import Place, name_of, receiver, used
from streamsafe.repairs.tree import Codemod, Tree

_SHARING = ("asarray", "as_tensor")
"""Functions that take the memory of another library's array as it is, and look at no stream."""


def exchanged(place: Place) -> tuple[str, Codemod] | None:
    """SS501: `from_dlpack` takes the array, where the stream that writes it is current for its library."""
    found = _conversion(place)
    argument = found.args[0].value if found is not None else None
    module = receiver(found) if found is not None else None
    if (
        found is None
        or argument is None
        or module is None
        or not _written_on_the_current_stream(place, found)
    ):
        return None

    def exchange(node: cst.CSTNode) -> cst.CSTNode:
        assert isinstance(node, cst.Call)
        array = node.args[0].with_changes(comma=cst.MaybeSentinel.DEFAULT)
        return node.with_changes(func=cst.Attribute(module, cst.Name("from_dlpack")), args=[array])

    mod = Codemod()
    mod.replace(found, exchange)
    return f"{place.code(module)}.from_dlpack({place.code(argument)})", mod


def taken_by(source: str, hazard: Hazard, span: Span, first: Span | None) -> str:
    """The call that exchanges the streams, as code; empty where none is right."""
    tree = Tree.around(source, span)
    other = first if first is not None and first.filename == span.filename else None
    found = exchanged(Place(tree, tree.at(span), hazard, other=other)) if tree is not None else None
    return found[0] if found is not None else ""


def _conversion(place: Place) -> cst.Call | None:
    """The call that took the array: in the statement itself, or the one that made a name which it uses."""
    name, line = place.hazard.memory.name, place.line
    if line is None:
        return None
    here = [call for call in _conversions(place, line) if _is_of(place, call, name)]
    if not here:
        names = used(line)
        here = [
            call
            for node in place.tree.walk(place.tree.scope(line))
            if isinstance(node, cst.Assign) and any(used(each.target) & names for each in node.targets)
            for call in _conversions(place, node)
            if _is_of(place, call, name)
        ]
    return here[0] if len(here) == 1 else None


def _conversions(place: Place, root: cst.CSTNode) -> Iterator[cst.Call]:
    """The calls in a node that share an array, and change nothing of it but its library."""
    for node in place.tree.walk(root):
        if isinstance(node, cst.Call) and name_of(node) in _SHARING and isinstance(receiver(node), cst.Name):
            keywords = {arg.keyword.value for arg in node.args[1:] if arg.keyword is not None}
            if node.args and node.args[0].keyword is None and not node.args[0].star:
                if len(keywords) == len(node.args) - 1 and keywords <= {"device"}:
                    yield node


def _is_of(place: Place, call: cst.Call, memory: str) -> bool:
    """Whether a call takes the memory that a finding names."""
    code = place.code(call.args[0].value)
    return code == memory or (memory == "gradients" and code.endswith(".grad"))


def _written_on_the_current_stream(place: Place, call: cst.Call) -> bool:
    """Whether the stream of the first access is current, for the library of the array, where it is taken.

    `from_dlpack` orders that stream, and no other one: the blocks around both are the same ones, or a block of the
    consumer's library was entered meanwhile, which changes nothing for the other library.
    """
    missing = place.hazard.missing
    if missing is not None and missing.edge is not None and missing.edge.source.name == CURRENT:
        return True
    if place.other is None:
        return False
    first = place.tree.at(place.other)
    before, here = (list(place.tree.around_node(node, cst.With)) for node in (first, call))
    outer = here[len(here) - len(before) :] if len(before) <= len(here) else None
    entered = here[: len(here) - len(before)]
    if outer != before or place.tree.scope(first) is not place.tree.scope(call):
        return False
    return all(_of_consumer(place, block, call) for block in entered if isinstance(block, cst.With))


def _of_consumer(place: Place, block: cst.With, call: cst.Call) -> bool:
    """Whether a block makes a stream of the consumer's library current, which the producer's does not notice."""
    module = receiver(call)
    consumer = place.code(module) if module is not None else ""
    contexts = [each.item for each in block.items]
    of_torch = [isinstance(each, cst.Call) and name_of(each) == "stream" for each in contexts]
    return all(of_torch) if name_of(call) == "as_tensor" or consumer == "torch" else not any(of_torch)
