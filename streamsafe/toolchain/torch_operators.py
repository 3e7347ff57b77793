"""Writes ``operators.h`` from the rows of ``streamsafe.apis``: what PyTorch's operators do beyond their schemas.

A line is ``MACRO("operator")`` or ``MACRO("operator", "more")``. A line counts only where its macro is defined: the
collector and the simulated device define one macro, include the file, and so get one list.

==============  =====================================================================================================
METADATA        looks at shape and type only
FRESH           its results are not initialized
WRITTEN         writes this argument, though its schema says that it only reads it
SYNCHRONIZING   makes the host wait, unless the named argument is given
CALLED          the name that users know it by
COPIES          may copy between host and device
COLLECTIVE      a collective's argument: ``READ``, ``WRITE`` or ``BOTH``
OWN             a library of operators that is PyTorch's own
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
    """The lines, each once, in the order of the rows: macro, operator, further arguments."""
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
