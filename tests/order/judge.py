"""The judge of programs with branches and loops: every path, one by one, before the brute-force oracle.

A step is ``("read" | "write", stream, buffer)``, ``("host read" | "host write", buffer)``, ``("record", event,
stream)``, ``("wait", stream, event)`` or ``("sync", "stream" | "event" | "device", name)``. Where paths are walked each
step carries its site after its action.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import product
from typing import Any

from tests.order.oracle import Oracle

KINDS = {"A": "non-blocking", "B": "non-blocking", "P": "blocking", "Q": "blocking", "N": "legacy"}
BUFFERS = {"x": 4096, "y": 8192}

Step = tuple[Any, ...]


def number(program: list[Any], sites: Iterator[int] | None = None) -> list[Any]:
    """The program with a site of its own for every step."""
    sites = iter(range(10_000)) if sites is None else sites
    numbered: list[Any] = []
    for statement in program:
        action = statement[0]
        if action == "if":
            numbered.append((action, statement[1], number(statement[2], sites), number(statement[3], sites)))
        elif action == "loop":
            numbered.append((action, number(statement[1], sites)))
        elif action == "choose":
            numbered.append((action, statement[1], *number(list(statement[2:]), sites)))
        else:
            numbered.append((action, next(sites), *statement[1:]))
    return numbered


def paths(statements: list[Any], conditions: tuple[bool, ...], rounds: int) -> Iterator[tuple[Any, ...]]:
    """The steps of every path under these conditions."""
    if not statements:
        yield ()
        return
    first, *rest = statements
    if first[0] == "if":
        heads: Iterable[tuple[Any, ...]] = paths(
            first[2] if conditions[first[1]] else first[3], conditions, rounds
        )
    elif first[0] == "loop":
        body = list(paths(first[1], conditions, rounds))
        heads = [sum(chosen, ()) for times in range(rounds + 1) for chosen in product(body, repeat=times)]
    elif first[0] == "choose":
        heads = [(first[2] if conditions[first[1]] else first[3],)]
    else:
        heads = [(first,)]
    tails = list(paths(rest, conditions, rounds))
    for head in heads:
        for tail in tails:
            yield head + tail


def judge(program: list[Any], conditions: int, rounds: int) -> set[int]:
    """The sites whose access conflicts with an earlier one on some path."""
    found: set[int] = set()
    seen: set[tuple[Any, ...]] = set()
    numbered = number(program)
    for values in product((True, False), repeat=conditions):
        for path in paths(numbered, values, rounds):
            if path not in seen:
                seen.add(path)
                found |= walk(path)
    return found


def walk(path: Iterable[Step]) -> set[int]:
    """The sites whose access conflicts with an earlier one on this path."""
    oracle = Oracle()
    for key, kind in KINDS.items():
        oracle.stream(key, 0, kind)
    found: set[int] = set()
    for action, site, *rest in path:
        if action == "record":
            event, stream = rest
            oracle.record(event, stream, None)
        elif action == "wait":
            stream, event = rest
            oracle.wait(stream, event, None)
        elif action == "sync":
            oracle.synchronize(None, rest[0], rest[1])
        else:
            touched = frozenset([BUFFERS[rest[-1]]])
            stream = None if action.startswith("host") else rest[0]
            _, may = oracle.access(stream, None, [(touched, action.endswith("write"))], str(site))
            if may:
                found.add(site)
    return found
