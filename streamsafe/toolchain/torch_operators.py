"""Writes ``operators.h`` from the rows of ``streamsafe.apis``: what operators do where their schemas do not say it.

A line is ``MACRO("operator")`` or ``MACRO("operator", "more")``; a macro that is not defined is nothing. The collector
and the simulated device include the file once for each list that they make.

==============  =====================================================================================================
METADATA        looks at shape and type only
FRESH           its results hold whatever was there
WRITTEN         writes this argument, though the schema says that it reads it
SYNCHRONIZING   the host waits inside; not where the named argument is given
CALLED          what users call it
COPIES          may copy between host and device
COLLECTIVE      of a collective, an argument: ``READ``, ``WRITE`` or ``BOTH``
OWN             a library of PyTorch's own kernels
==============  =====================================================================================================
"""

from __future__ import annotations

from collections.abc import Iterator

from streamsafe.apis import distributed, torch
from streamsafe.apis.effects import UNWRITTEN, Call, operators

FILE = "operators.h"


def _lines(call: Call) -> Iterator[tuple[str, ...]]:
    for operator in operators(call):
        if call.shape_of == "*":
            yield "METADATA", operator
        if call.result == UNWRITTEN:
            yield "FRESH", operator
        if not call.schema:
            for argument in call.writes.split():
                yield "WRITTEN", operator, argument
        if call.waits:
            yield "SYNCHRONIZING", operator, call.unless
        library, _, name = operator.partition("::")
        if call.owner != "aten" and (library != "aten" or call.last != name):
            yield "CALLED", operator, call.last
        if call.copy:
            yield "COPIES", operator
        if library == "c10d":
            reads, writes = call.reads.split(), call.writes.split()
            for argument in dict.fromkeys((*reads, *writes)):
                does = "READ" if argument not in writes else "BOTH" if argument in reads else "WRITE"
                yield "COLLECTIVE", operator, argument, does


def lines() -> list[tuple[str, ...]]:
    """Macro, operator and what else there is to say, in the order of the rows; each once."""
    rows = (*torch.ROWS, *distributed.ROWS)
    said = [line for call in rows for line in _lines(call)]
    said += [("OWN", library) for library in torch.LIBRARIES.split()]
    return list(dict.fromkeys(said))


def text() -> str:
    """The text of ``operators.h``."""
    by_macro: dict[str, list[str]] = {}
    for macro, *arguments in lines():
        quoted = ", ".join(each if each in ("READ", "WRITE", "BOTH") else f'"{each}"' for each in arguments)
        by_macro.setdefault(macro, []).append(f"{macro}({quoted})")
    parts = ["// Written by streamsafe.toolchain.torch_operators from the rows of streamsafe.apis."]
    for macro, written in by_macro.items():
        parts += [f"#ifdef {macro}", *written, f"#undef {macro}", "#endif"]
    return "\n".join(parts) + "\n"
