"""The line of code that adds a missing edge: the one place that writes an :class:`Edge` in a library's words."""

from __future__ import annotations

from streamsafe.order.hazard import Edge, Missing, Named, quoted

COMMUNICATION = "the communication stream"
"""The name of a stream on which collectives do their work: the program has no object for it, only their works."""

CURRENT = "the current stream"

DEFAULT = "the default stream"

NULL = {"torch": "torch.cuda.default_stream()", "cupy": "cupy.cuda.Stream.null"}
"""The legacy default stream, by library."""

PER_THREAD = {"cupy": "cupy.cuda.Stream.ptds"}
"""The per-thread default stream, where a library has an object for it."""

_CURRENT = {"torch": "{}.cuda.current_stream()", "cupy": "{}.cuda.get_current_stream()"}
_DEVICE = {"torch": "{}.cuda.synchronize()", "cupy": "{}.cuda.Device().synchronize()"}
_WAIT = {"torch": "{target}.wait_stream({source})", "cupy": "{target}.wait_event({source}.record())"}


def missing(source: str, target: str, edge: Edge) -> Missing:
    """The missing edge between two timelines, by their names, as data and as a line of code."""
    return Missing(source, target, line(edge), edge)


def current(library: str, module: str) -> Named:
    """The current stream, in a file in which the library is called ``module``."""
    return Named(CURRENT, _CURRENT[library].format(module))


def default(library: str, module: str) -> Named:
    """The legacy default stream, in a file in which the library is called ``module``."""
    return Named(DEFAULT, module + NULL[library].removeprefix(library))


def communicates(stream: str) -> bool:
    """Whether the name of a stream is that of one of a process group."""
    return stream.startswith(COMMUNICATION)


def other_name(source: str, target: str) -> str:
    """The name of ``source`` beside another timeline of that name: one variable may have named both in turn."""
    return f"another {quoted(source)}" if source == target else source


def code(edge: Edge) -> str:
    """The line without its comment."""
    return line(edge).partition("  # ")[0]


def invented(edge: Edge) -> set[str]:
    """The names that the line gives to streams for which the program has no expression."""
    explained: dict[str, str] = {}
    _written(edge, explained)
    return set(explained.values())


def line(edge: Edge) -> str:
    """One line of code. A stream that nothing names in the program gets one that the comment explains."""
    explained: dict[str, str] = {}  # a description of a stream: the name that the line gives it
    written = _written(edge, explained)
    comment = [f"{short} is {name}" for name, short in explained.items()]
    if edge.when == "released":
        comment.append(f"after this use, before {edge.memory or 'the array'} is released")
    elif edge.when == "current":
        comment.append(f"before {edge.target.code} becomes current")
    elif edge.kind == "wait" and communicates(edge.source.name):
        ours = _stream(edge.target, explained, short=_THIS) if not edge.in_source else ""
        comment = [f"{short} is {name}" for name, short in explained.items()]
        comment.append(
            f"the collective's, where {ours} is current" if ours else "work is what the collective returned"
        )
    return f"{written}  # {', '.join(comment)}" if comment else written


def _written(edge: Edge, explained: dict[str, str]) -> str:
    source, target = edge.source, edge.target
    if edge.kind == "device":
        return _DEVICE[edge.library].format(edge.module or edge.library)
    if edge.kind == "record":
        named = edge.memory and " " not in edge.memory and "[..." not in edge.memory
        memory = edge.memory if named else "tensor"
        return f"{memory}.record_stream({_stream(source, explained)})"
    if edge.kind == "synchronize":
        if communicates(source.name):  # the wait of a work does not block the host
            return "torch.cuda.synchronize()"
        return f"{_stream(source, explained)}.synchronize()"
    if communicates(source.name):
        return "work.wait()"
    here, there = (" here", " at the first access") if edge.in_source else ("", "")
    if source.name == target.name or (source.code and source.code == target.code):
        said = f"{source.name}{there}" if there else other_name(source.name, source.name)
        first = explained.setdefault(said, _FIRST)
    else:
        first = _stream(source, explained, there, _FIRST)
    return _WAIT[edge.library].format(source=first, target=_stream(target, explained, here, _THIS))


def _stream(stream: Named, explained: dict[str, str], where: str = "", short: str = "stream") -> str:
    """A stream as code, or a name that the comment explains."""
    return stream.code or explained.setdefault(f"{stream.name}{where}", short)


_FIRST, _THIS = "first_stream", "this_stream"
"""The streams of the first access and of the one where the line goes, where the program has no name for them."""
