"""What a piece of syntax has to do with streams, by its identifiers: whether it is worth interpreting at all.

Comments, docstrings and other strings do not count; what counts is a name, an attribute, a keyword or the shape of a
call.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from functools import cache

STREAM = 1
"""Streams, events, graphs, timings and asynchronous collectives."""
COPY = 2
"""Copies that do not wait."""
CLOCK = 4
"""Readings of a host clock."""
PINNED = 8
"""Pinned memory, which matters beside streams or copies only."""
TOUCH = 16
"""Worth following where something of the above is under way."""
HANDLE = 32
"""A stream, an event or a graph is made."""
OTHER = 64
"""Work that another stream than the current one may do although no stream is mentioned: other devices, messages."""
REPLAY = 128
"""A graph is launched, where there are graphs."""
WORD = 256
"""A name such as ``stream`` or ``upstream``: of CUDA where the file has streams of CUDA, else of files or answers."""
UNMARKED_COPY = 512
"""Memory from which CuPy copies without waiting, and with no word for it."""
BEGINNING = STREAM | COPY | HANDLE | OTHER | UNMARKED_COPY
"""What may leave something under way."""

_STREAM = ("wait_event", "record_event", "CUDAGraph", "make_graphed", "elapsed_time", "async_op")
_EXACTLY = {
    "begin_capture": STREAM,
    "register_generator_state": STREAM,
    "capture_begin": STREAM,
    "isend": STREAM,
    "irecv": STREAM,
    "batch_isend_irecv": STREAM,
    "Device": OTHER,
    "done": TOUCH,
    # what another thread does with what it is handed
    **dict.fromkeys(("Thread", "ThreadPoolExecutor", "Queue", "SimpleQueue"), TOUCH),
    # CuPy copies from its own pinned memory without waiting, and with no word for it (CS-13)
    **dict.fromkeys(
        (
            *("empty_pinned", "zeros_pinned", "empty_like_pinned", "zeros_like_pinned"),
            *("alloc_pinned_memory", "PinnedMemoryPool", "get_default_pinned_memory_pool"),
        ),
        COPY | UNMARKED_COPY,
    ),
}
_OF_STREAMS = ("current_stream", "default_stream", "set_stream", "wait_stream", "record_stream")
_CLOCK = ("perf_counter", "monotonic", "default_timer")
_PINNED = ("pinned", "pin_memory")
_CALLED = dict.fromkeys(("record", "wait", "synchronize", "query", "backward"), TOUCH) | {
    "graph": STREAM,
    "replay": TOUCH | REPLAY,
}
_NO_CUDA_EVENT = frozenset({"threading", "asyncio", "multiprocessing", "mp", "trio", "anyio", "gevent"})
_POSITIONAL = frozenset({"to", "cuda", "copy_"})


KINDS = frozenset(
    {
        ast.Name,
        ast.Attribute,
        ast.keyword,
        ast.Call,
        ast.arg,
        ast.Dict,
        ast.FunctionDef,
        ast.AsyncFunctionDef,
        ast.ClassDef,
    }
)
"""The kinds of nodes that may say something."""


COMMON_METHODS = frozenset(
    """step forward run get put put_nowait wait to start stop close reset update append pop add clear copy items keys
    values join load save read write send recv call apply backward train eval cuda cpu numpy item query record
    synchronize result submit flush size shape view reshape replay capture setup build init process execute next
    state_dict load_state_dict parameters zero_grad scale""".split()
)
"""Methods that many classes have: that one of the file has them, too, says little."""


@cache
def of_word(word: str) -> int:
    """What an identifier says by itself."""
    found = _EXACTLY.get(word, 0)
    if word.endswith("Stream") or any(part in word for part in _STREAM):
        found |= STREAM
    elif word.endswith("stream"):
        found |= STREAM if word.endswith(_OF_STREAMS) else WORD
    if any(part in word for part in _CLOCK):
        found |= CLOCK
    if any(part in word for part in _PINNED):
        found |= PINNED
    if word.endswith("Stream") or "CUDAGraph" in word:
        found |= HANDLE
    return found


def of_node(node: ast.AST) -> int:
    """What one node says, without its children."""
    kind = type(node)
    if kind is ast.Name:
        return of_word(node.id)  # type: ignore[attr-defined]
    if kind is ast.Attribute:
        return _of_attribute(node)  # type: ignore[arg-type]
    if kind is ast.keyword:
        return _of_keyword(node.arg, node.value)  # type: ignore[attr-defined]
    if kind is ast.Call:
        return _of_call(node)  # type: ignore[arg-type]
    if kind is ast.arg:
        return of_word(node.arg)  # type: ignore[attr-defined]
    if kind is ast.Dict:
        found = 0
        for key, value in zip(node.keys, node.values, strict=True):  # type: ignore[attr-defined]
            if isinstance(key, ast.Constant) and key.value == "non_blocking":
                found |= _of_keyword("non_blocking", value)
        return found
    if kind in (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef):
        return of_word(node.name)  # type: ignore[attr-defined]
    return 0


def inside(node: object, stack: list[object]) -> None:
    """Put what a node holds on a stack: nodes, and a few strings and Nones, which hold nothing."""
    for name in _FIELDS.get(type(node)) or _fields(type(node)):
        value = getattr(node, name, None)
        if type(value) is list:
            stack += value
        elif value is not None:
            stack.append(value)


def _fields(kind: type) -> tuple[str, ...]:
    """The fields of a kind of node that may hold others; none for what is no node."""
    found = _FIELDS.get(kind)
    if found is None:
        found = tuple(f for f in getattr(kind, "_fields", ()) if f not in _LEAVES)
        _FIELDS[kind] = found
    return found


_FIELDS: dict[type, tuple[str, ...]] = {ast.Constant: (), ast.Name: ()}
_LEAVES = frozenset(
    {"ctx", "op", "ops", "id", "attr", "arg", "name", "names", "kind", "type_comment", "conversion"}
)


def last_name(node: ast.expr) -> str:
    """The last name that an expression writes: ``b`` for ``a.b`` and ``a.b[c]``; empty where it is none."""
    while isinstance(node, ast.Subscript):
        node = node.value
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def walk(node: ast.AST) -> Iterator[ast.AST]:
    """A node and all that it holds, but for contexts, operators and the names of what is imported."""
    stack: list[object] = [node]
    pop = stack.pop
    while stack:
        found = pop()
        fields = _FIELDS.get(type(found))
        if fields is None:
            fields = _fields(type(found))
        if not fields and not isinstance(found, ast.AST):
            continue
        yield found  # type: ignore[misc]
        for name in fields:
            value = getattr(found, name, None)
            if type(value) is list:
                stack += value
            elif value is not None:
                stack.append(value)


def of_tree(node: ast.AST) -> int:
    """What a piece of syntax says."""
    found = 0
    for inner in walk(node):
        if type(inner) in KINDS:
            found |= of_node(inner)
    return found


@cache
def of_imported(dotted: str) -> int:
    """What a call of something by its full name says."""
    first, *rest = dotted.split(".")
    node: ast.expr = ast.Name(first)
    for name in rest:
        node = ast.Attribute(node, name)
    return of_node(node) | of_node(ast.Call(node, [], []))


def _of_attribute(node: ast.Attribute) -> int:
    found = of_word(node.attr)
    inner = node.value
    if node.attr in ("graph", "stream", "device") and isinstance(inner, (ast.Name, ast.Attribute)):
        named = inner.id if isinstance(inner, ast.Name) else inner.attr
        if named == "cuda":
            found |= OTHER if node.attr == "device" else STREAM
    elif node.attr == "time" and isinstance(inner, ast.Name) and inner.id == "time":
        found |= CLOCK
    return found


def _of_keyword(name: str | None, value: ast.expr) -> int:
    constant = value.value if isinstance(value, ast.Constant) else ...
    if name == "non_blocking":
        return 0 if constant is False else COPY
    if name == "blocking":
        return COPY if constant is False else 0
    if name is None or (isinstance(constant, bool) and name == "stream"):
        return 0
    return of_word(name)


def _of_call(node: ast.Call) -> int:
    function = node.func
    if isinstance(function, ast.Attribute):
        name = function.attr
        found = _CALLED.get(name, 0)
        if name in _POSITIONAL and any(
            isinstance(a, ast.Constant) and a.value is True for a in node.args[1:]
        ):
            found |= COPY
        if name == "Event" and not (
            isinstance(function.value, ast.Name) and function.value.id in _NO_CUDA_EVENT
        ):
            found |= STREAM | HANDLE
    elif isinstance(function, ast.Name):
        name = function.id
        found = STREAM | HANDLE if name == "Event" else 0
    else:
        return 0
    if name == "stream" and node.args and not isinstance(node.args[0], ast.Constant):
        found |= STREAM  # the module may have any name
    return found | (HANDLE if name.endswith("_stream") else 0)


def gathers(function: ast.AST) -> bool:
    """Whether a function returns a list that it began empty, alone or with other things."""
    nodes = list(walk(function))
    begun = {
        target.id
        for node in nodes
        if isinstance(node, ast.Assign)
        and isinstance(node.value, ast.List)
        and all(isinstance(e, ast.List) and not e.elts for e in node.value.elts)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    returned = (node.value for node in nodes if isinstance(node, ast.Return))
    parts = (
        part for value in returned for part in (value.elts if isinstance(value, ast.Tuple) else (value,))
    )
    return any(isinstance(part, ast.Name) and part.id in begun for part in parts)


def pairs(node: ast.Assign) -> Iterator[tuple[ast.expr, ast.expr]]:
    """What an assignment gives to which target; ``a, b = x, y`` is two."""
    for target in node.targets:
        value = node.value
        if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
            if len(target.elts) == len(value.elts):
                yield from zip(target.elts, value.elts, strict=True)
        else:
            yield target, value


_OF_DEVICES = re.compile("cuda|cupy|device|autograd")
_BRINGS = frozenset({"to", "cuda", "backward", "manual_backward"})
_SPELLED = _BRINGS | {"device", "non_blocking"}
"""Names of methods and keywords that a program may write as strings."""
_TAKING_DATA = frozenset({"tensor", "as_tensor", "asarray"})
"""Functions of which the third argument is a device."""


def may_launch(nodes: Iterable[ast.AST], imported: Iterable[str]) -> bool:
    """Whether anything may put memory on a device, or run a backward pass: without streams, a clock times only these.

    Args:
        nodes: all that there is in a text.
        imported: what it imports, by full names.
    """
    return any(map(_OF_DEVICES.search, imported)) or any(map(_launches, nodes))


def _launches(node: ast.AST) -> bool:
    kind = type(node)
    if kind is ast.Attribute:
        name, owner = node.attr, last_name(node.value)  # type: ignore[attr-defined]
        return (
            name in _BRINGS
            or "hook" in name  # it may be given gradients
            or (name == "grad" and owner == "autograd")
            or (name == "device" and owner == "torch")
            or (name.endswith("Tensor") and owner == "cuda")
        )
    if kind is ast.Name:
        return "hook" in node.id  # type: ignore[attr-defined]
    if kind is ast.keyword:
        return bool(node.arg == "device")  # type: ignore[attr-defined]
    if kind is ast.Constant:
        return node.value in _SPELLED  # type: ignore[attr-defined]
    if kind in (ast.FunctionDef, ast.AsyncFunctionDef):
        return node.name in _BRINGS  # type: ignore[attr-defined]
    if kind is ast.Call:
        given = node.args  # type: ignore[attr-defined]
        several = len(given) > 2 or any(type(each) is ast.Starred for each in given)
        return several and last_name(node.func) in _TAKING_DATA  # type: ignore[attr-defined]
    return False
