"""Stream programs as text, for tables of tests.

Statements are separated by ``;`` and read ``WHO: VERB ARGUMENTS``. ``WHO`` is a stream or ``host``. A to E are
non-blocking streams, N is the legacy default stream, P Q R are blocking, T U are per-thread default streams; ``A1``,
``N1``, ... are streams of device 1. Memory is named by small letters: x has 64 bytes of its own, ``x[0:8]``, ``x[::2]``
(bytes) are parts of it, ``y=x`` where it is allocated means that y is at x's address; names that begin with h are host
memory. ``?`` after a name: it is not certain that it is touched.

    A: read x; A: write x y; A: copy x y (reads x, writes y); A: add x y (reads both, writes x)
    A: record e; B: wait e; B: wait_stream A; host: sync A, e, device, device1; host: query A, e
    A: alloc x (CuPy); A: talloc x (torch); A: new x (fresh from the driver); host: alloc h (pinned pool); free x
    release x; x recorded B; destroy A (the handle); destroy e
    A: begin [MODE]; A: end G; B: launch G
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import cast

from streamsafe.order.captures import CaptureMode
from streamsafe.order.checker import Kind
from streamsafe.order.hazard import Conflict
from streamsafe.order.memory import HOST, Owner, Region, Use
from streamsafe.order.operations import (
    Access,
    Allocate,
    CaptureBegin,
    CaptureEnd,
    CompletedEvent,
    CompletedStream,
    DestroyEvent,
    DestroyStream,
    Finish,
    Free,
    HostAccess,
    Operation,
    Record,
    RecordStream,
    ReleaseBlock,
    Replay,
    Stream,
    SynchronizeDevice,
    SynchronizeEvent,
    SynchronizeStream,
    Wait,
    run,
)

SIZE = 64
KINDS: dict[str, Kind] = {
    "N": "legacy",
    "P": "blocking",
    "Q": "blocking",
    "R": "blocking",
    "T": "per-thread",
    "U": "per-thread",
}
STREAM = re.compile(r"[A-EN-RTU]1?")
MEMORY = re.compile(r"(?P<name>[a-z]\w*)(\[(?P<start>\d*):(?P<stop>\d*)(:(?P<step>\d+))?\])?(?P<maybe>\?)?")


class Translator:
    """From text to operations."""

    def __init__(self) -> None:
        self.addresses: dict[str, int] = {}
        self.graphs: dict[str, int] = {}
        self.streams: set[str] = set()
        self.hidden = 0

    def address(self, name: str) -> int:
        return self.addresses.setdefault(name, 4096 + 1024 * len(self.addresses))

    def use(self, text: str) -> Use:
        match = MEMORY.fullmatch(text)
        assert match, text
        name = match["name"]
        space = HOST if name.startswith("h") else 0
        base = self.address(name)
        start, stop = int(match["start"] or 0), int(match["stop"] or SIZE)
        region = Region(space, base + start, base + stop)
        if match["step"]:
            step = int(match["step"])
            count = (stop - start + step - 1) // step
            region = Region(space, base + start, base + start + (count - 1) * step + 1, (count,), (step,))
        return Use(region, name, "uint8", not match["maybe"])

    def known(self, stream: str) -> Iterator[Operation]:
        assert STREAM.fullmatch(stream), stream
        if stream not in self.streams:
            self.streams.add(stream)
            device = 1 if stream.endswith("1") else 0
            yield Stream(key=stream, device=device, kind=KINDS.get(stream[0], "non-blocking"), name=stream)

    def statement(self, text: str) -> Iterator[Operation]:
        words = text.replace(":", "", 1).split() if ":" in text.split()[0] else text.split()
        who, action, *rest = words
        if who in ("free", "release", "destroy"):
            yield from self.end_of(who, action)
        elif action == "recorded":
            yield from self.known(rest[0])
            yield RecordStream(start=self.address(who), stream=rest[0], space=0)
        elif who == "host":
            yield from self.host(action, rest)
        else:
            yield from self.known(who)
            yield from self.enqueue(who, action, rest)

    def end_of(self, action: str, name: str) -> Iterator[Operation]:
        space = HOST if name.startswith("h") else 0
        if action == "free":
            yield Free(space=space, start=self.address(name))
        elif action == "release":
            yield ReleaseBlock(space=space, start=self.address(name), size=SIZE)
        elif STREAM.fullmatch(name):
            self.streams.discard(name)
            yield DestroyStream(key=name)
        else:
            yield DestroyEvent(key=name)

    def host(self, action: str, rest: list[str]) -> Iterator[Operation]:
        uses = tuple(self.use(name) for name in rest) if action in ("read", "write") else ()
        if action == "read":
            yield HostAccess(operation="read", reads=uses)
        elif action == "write":
            yield HostAccess(operation="write", writes=uses)
        elif action == "alloc":
            yield self.allocation(rest[0], None, "pinned", fresh=False)
        else:
            (target,) = rest
            if target.startswith("device"):
                yield SynchronizeDevice(device=int(target[6:] or 0))
            elif STREAM.fullmatch(target):
                yield from self.known(target)
                yield (SynchronizeStream if action == "sync" else CompletedStream)(stream=target)
            else:
                yield (SynchronizeEvent if action == "sync" else CompletedEvent)(event=target)

    def allocation(self, text: str, stream: str | None, owner: Owner, fresh: bool) -> Operation:
        name, _, place = text.partition("=")
        if place:
            self.addresses[name] = self.address(place)
        space = HOST if name.startswith("h") else 0
        return Allocate(
            space=space,
            start=self.address(name),
            size=SIZE,
            stream=stream,
            owner=owner,
            name=name,
            fresh=fresh,
        )

    def enqueue(self, who: str, action: str, rest: list[str]) -> Iterator[Operation]:
        if action in ("read", "write", "copy", "add"):
            uses = tuple(self.use(name) for name in rest)
            reads = {"read": uses, "copy": uses[:1], "add": uses}.get(action, ())
            writes = {"write": uses, "copy": uses[1:], "add": uses[:1]}.get(action, ())
            yield Access(stream=who, operation=action, reads=reads, writes=writes)
        elif action in ("alloc", "talloc", "new"):
            yield self.allocation(rest[0], who, "torch" if action == "talloc" else "cupy", action == "new")
        elif action == "record":
            yield Record(event=rest[0], stream=who)
        elif action == "wait":
            yield Wait(stream=who, event=rest[0])
        elif action == "wait_stream":
            yield from self.known(rest[0])
            self.hidden += 1
            yield Record(event=f"hidden {self.hidden}", stream=rest[0])
            yield Wait(stream=who, event=f"hidden {self.hidden}")
        elif action == "begin":
            yield CaptureBegin(stream=who, mode=cast(CaptureMode, rest[0]) if rest else "relaxed")
        elif action == "end":
            self.graphs[rest[0]] = len(self.graphs) + 1
            yield CaptureEnd(stream=who)
        elif action == "launch":
            yield Replay(stream=who, graph=self.graphs[rest[0]])
        else:
            raise AssertionError(action)

    def program(self, text: str) -> list[Operation]:
        operations = [
            operation
            for part in text.split(";")
            if part.strip()
            for operation in self.statement(part.strip())
        ]
        return [*operations, Finish()]


def translate(text: str) -> list[Operation]:
    """The operations of a program, with ``Finish`` at the end."""
    return Translator().program(text)


def verdict(conflict: Conflict) -> str:
    """A conflict in a word. ``!`` after it: with an ineffective wait; ``?``: only possible."""
    facts = conflict.facts
    word = ""
    if facts.violation:
        word = facts.violation
    elif facts.reuse == "captured":
        word = "captured"
    elif facts.reuse:
        word = "reuse"
    elif facts.host:
        word = f"host-{facts.host}"
    else:
        assert conflict.first is not None
        pair = (conflict.first.reads_or_writes, conflict.second.reads_or_writes)
        word = {("writes", "reads"): "RAW", ("reads", "writes"): "WAR", ("writes", "writes"): "WAW"}[pair]
    if conflict.latent:
        word = f"latent {word}"
    if facts.ineffective_wait:
        word += "!"
    if conflict.confidence != "certain":
        word += "?"
    return word


def check(text: str) -> list[str]:
    """The verdicts on a program."""
    return [verdict(conflict) for conflict in run(translate(text))]
