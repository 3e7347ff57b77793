"""The intermediate representation as text: ``streamsafe check --dump-ir``."""

from __future__ import annotations

from collections.abc import Iterator

from streamsafe.static.syntax import ir
from streamsafe.static.syntax.index import Index
from streamsafe.static.syntax.lower import MODULE_BODY


def dump_file(path: str) -> Iterator[str]:
    """The lines for each function of a file, its module's body first.

    Raises:
        ValueError: the file cannot be parsed.
    """
    index = Index()
    module = index.add(path)
    if module is None:
        raise ValueError(f"{path}: {index.broken.get(path, 'cannot be parsed')}")
    done: set[str] = set()
    todo = [f"{module.name}:{MODULE_BODY}"]
    while todo:
        for fid in todo:
            yield from dump_function(index.function(fid))
            done.add(fid)
        todo = [fid for fid in index.definitions if fid not in done]


def dump_function(fn: ir.Function) -> Iterator[str]:
    """A function: its signature, then each block with its instructions, edges and handler."""
    yield f"function {fn.fid}({', '.join(p.name for p in fn.params)}) line {fn.span.line}"
    for number, block in enumerate(fn.blocks):
        handler = "" if block.handler is None else f" raises to {block.handler}"
        yield f"  block {number}{handler}"
        for instr in block.instrs:
            parts = instr._asdict()
            line = fn.spans[parts.pop("at")].line
            shown = ", ".join(f"{name}={value!r}" for name, value in parts.items())
            yield f"    {line:5} {type(instr).__name__:9} {shown}"
        for edge in block.edges:
            yield f"          -> {edge.target}{' back' if edge.back else ''}{_condition(edge.assume)}"
    yield ""


def _condition(assume: ir.Assume | None) -> str:
    if assume is None:
        return ""
    other = "" if assume.other is None else f" {assume.other!r}"
    return f" if {'' if assume.truth else 'not '}{assume.kind} {assume.reg!r}{other}"
