"""What an operator does to its arguments and results, from its schema and ``operators.h``."""

from __future__ import annotations

from collections import defaultdict
from enum import Enum
from functools import lru_cache
from typing import Any, NamedTuple

from streamsafe.toolchain import torch_operators

IMPLICIT, EXPLICIT = "CompositeImplicitAutograd", "CompositeExplicitAutograd"


class Role(Enum):
    """What an operator does to the bytes of a tensor."""

    READ = "read"
    WRITE = "write"
    BOTH = "both"
    METADATA = "metadata"


class Argument(NamedTuple):
    """An argument or a result that can hold tensors; ``place`` counts from 0."""

    place: int
    name: str
    role: Role


class Operator(NamedTuple):
    """An operator as the sanitizer sees it.

    Attributes:
        name: as users write it.
        arguments, results: those that can hold tensors, without results that are views of arguments.
        positions: every argument's index, by name.
        composite: the dispatch key of its body where it is no operation of its own: what it calls is seen; else empty.
        skip: it touches no memory.
        copy: it may copy between host and device.
        makes_copy: its result is the copy.
        fresh: it gives memory that it does not write.
        collective: its work is on a communication stream.
        synchronizes: the host waits for the device inside.
        records: it is ``record_stream``.
        own: it is PyTorch's own: its kernel is no Python that calls operators.
    """

    name: str
    arguments: tuple[Argument, ...]
    results: tuple[Argument, ...]
    positions: dict[str, int]
    composite: str
    skip: bool
    copy: bool
    makes_copy: bool
    fresh: bool
    collective: bool
    synchronizes: bool
    records: bool
    own: bool

    def value(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The value that a call gives an argument; None where it gives none."""
        index = self.positions.get(name)
        if index is not None and index < len(args):
            return args[index]
        return kwargs.get(name)


@lru_cache(maxsize=1)
def tables() -> dict[str, dict[str, list[str]]]:
    """The lines of ``operators.h``: by macro, then by operator, what else they say."""
    found: dict[str, dict[str, list[str]]] = defaultdict(dict)
    for macro, operator, *more in torch_operators.lines():
        found[macro].setdefault(operator, []).extend(more)
    return found


def describe(torch: Any, operator: Any) -> Operator:
    """What ``operator``, a ``torch._ops.OpOverload``, does."""
    schema = operator._schema
    name: str = schema.name
    known = tables()
    fresh, metadata, collective = name in known["FRESH"], name in known["METADATA"], name.startswith("c10d::")
    arguments = []
    for index, argument in enumerate(schema.arguments):
        if not _holds_tensor(argument.type):
            continue
        alias = argument.alias_info
        if alias is not None and alias.is_write:
            role = Role.METADATA if fresh else Role.WRITE
        else:
            role = Role.METADATA if metadata or alias is not None else Role.READ
        if argument.name in known["WRITTEN"].get(name, ()):
            role = Role.WRITE
        if collective:
            role = _of_collective(name, argument.name)
        arguments.append(Argument(index, argument.name, role))
    results = [
        Argument(index, "", Role.METADATA if fresh else Role.WRITE)
        for index, result in enumerate(schema.returns)
        if _holds_tensor(result.type)
        and result.alias_info is None
        and not collective
        and name != "aten::_unsafe_view"
    ]
    return Operator(
        name=_called(name),
        arguments=tuple(arguments),
        results=tuple(results),
        positions={argument.name: index for index, argument in enumerate(schema.arguments)},
        composite=_composite(torch, operator, name),
        skip=name.startswith(("profiler::", "prim::")),
        copy=name in known["COPIES"],
        makes_copy=name == "aten::_to_copy",
        fresh=fresh,
        collective=collective,
        synchronizes=name in known["SYNCHRONIZING"],
        records=name == "aten::record_stream",
        own=name.partition("::")[0] in known["OWN"]
        or not torch._C._dispatch_has_computed_kernel_for_dispatch_key(operator.name(), "CUDA"),
    )


def _called(name: str) -> str:
    called = tables()["CALLED"].get(name)
    if called:
        return called[0]
    library, _, plain = name.partition("::")
    return plain if library == "aten" else f"{library}.{plain}"


def _holds_tensor(kind: Any) -> bool:
    text = str(kind)
    return "Tensor" in text or text == "Any"


def _of_collective(name: str, argument: str) -> Role:
    """A collective's schema names no argument that it writes: inputs are read, everything else is written."""
    if name.startswith("c10d::send"):
        return Role.READ
    if name.startswith("c10d::allreduce_") or name == "c10d::reduce_":
        return Role.BOTH
    return Role.READ if "input" in argument else Role.WRITE


def _composite(torch: Any, operator: Any, name: str) -> str:
    has = torch._C._dispatch_has_kernel_for_dispatch_key
    full = operator.name()
    if name.startswith("_c10d_functional"):  # a new tensor, and a call of c10d's operator
        return EXPLICIT if has(full, EXPLICIT) else IMPLICIT
    own = has(full, "CUDA") or has(full, "AutogradCUDA")
    return IMPLICIT if has(full, IMPLICIT) and not own else ""


__all__ = ["EXPLICIT", "Argument", "Operator", "Role", "describe", "tables"]
