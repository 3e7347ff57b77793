"""Random stream programs for two engines: every action, over few memories, so that much of it conflicts."""

from __future__ import annotations

import random
from collections.abc import Iterator

from streamsafe.order.hazard import Frame
from streamsafe.order.memory import HOST, Region, Space, Use
from streamsafe.order.operations import (
    Access,
    Allocate,
    CaptureBegin,
    CaptureEnd,
    CompletedEvent,
    DestroyEvent,
    DestroyStream,
    Finish,
    ForgetHost,
    Free,
    HostAccess,
    HostEdge,
    HostFunction,
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
)

KINDS = {
    "A": (0, "non-blocking"),
    "B": (0, "non-blocking"),
    "C": (0, "non-blocking"),
    "P": (0, "blocking"),
    "Q": (0, "blocking"),
    "N": (0, "legacy"),
    "T": (0, "per-thread"),
    "D": (1, "non-blocking"),
    "M": (1, "legacy"),
}
SIZE = 64
BASES = {0: (4096, 4096 + SIZE), 1: (4096,), HOST: (4096, 8192)}
EVENTS = ("e", "f", "g")


class Writer:
    """Writes one program. ``weights``: how often each action comes."""

    def __init__(self, seed: int, *, threads: bool = False, captures: bool = True) -> None:
        self.random = random.Random(seed)
        self.threads = threads
        self.captures = captures
        self.line = 0
        self.graphs = 0
        self.capturing: str | None = None
        self.functions = 0
        self.streams: list[str] = []

    def site(self) -> tuple[Frame, ...]:
        self.line += 1
        return (Frame("program.py", self.line, "f"),)

    def host(self) -> int | None:
        return self.random.choice((11, 12, 13)) if self.threads else None

    def space(self) -> Space:
        return self.random.choice((0, 0, 0, 1, HOST))

    def use(self) -> Use:
        space = self.space()
        base = self.random.choice(BASES[space])
        shape = self.random.choice(("all", "all", "all", "range", "strided", "rows", "over"))
        sure = self.random.random() > 0.08
        if shape == "all":
            return Use(Region(space, base, base + SIZE), "", None, sure)
        if shape == "range":
            low, high = sorted(self.random.sample(range(0, SIZE + 1, 8), 2))
            return Use(Region(space, base + low, base + high), "", None, sure)
        if shape == "over":  # beyond the block
            return Use(Region(space, base + SIZE // 2, base + SIZE + SIZE // 2), "", None, sure)
        if shape == "rows":
            width, start = self.random.choice((1, 2, 4)), self.random.choice((0, 1, 2, 4))
            count = (SIZE - start - width) // 8 + 1
            region = Region(
                space, base + start, base + start + (count - 1) * 8 + width, (count, width), (8, 1)
            )
            return Use(region, "", None, sure)
        step, start = self.random.choice((2, 3, 4)), self.random.choice((0, 1, 2))
        count = (SIZE - start + step - 1) // step
        region = Region(space, base + start, base + start + (count - 1) * step + 1, (count,), (step,))
        return Use(region, "", None, sure)

    def uses(self) -> tuple[Use, ...]:
        return tuple(self.use() for _ in range(self.random.choice((0, 1, 1, 1, 2))))

    def stream(self) -> str:
        return self.random.choice(self.streams)

    def open(self, key: str) -> Operation:
        device, kind = KINDS[key]
        self.streams.append(key)
        return Stream(key=key, device=device, kind=kind, name=key)  # type: ignore[arg-type]

    def steps(self, length: int) -> Iterator[Operation]:
        for key in KINDS:
            yield self.open(key)
        for _ in range(length):
            yield from self.step()
        if self.capturing:
            yield CaptureEnd(stream=self.capturing, site=self.site())
        yield Finish()

    def step(self) -> Iterator[Operation]:
        action = self.random.choices(
            (
                "access",
                "host_access",
                "record",
                "wait",
                "sync",
                "allocate",
                "free",
                "record_stream",
                "release",
                "destroy",
                "function",
                "edge",
                "capture",
                "replay",
            ),
            (30, 4, 9, 10, 5, 8, 6, 3, 1, 1, 1, 4 if self.threads else 0, 3, 4),
        )[0]
        host, site = self.host(), self.site()
        if action == "access":
            yield Access(
                stream=self.stream(),
                reads=self.uses(),
                writes=self.uses(),
                operation=self.random.choice(("add", "copy", "sum")),
                host=host,
                site=site,
                happened=self.random.random() > 0.2,
            )
        elif action == "host_access":
            yield HostAccess(
                reads=self.uses(),
                writes=self.uses(),
                operation="index",
                host=host,
                site=site,
                happened=self.random.random() > 0.2,
            )
        elif action == "record":
            external = self.random.random() < 0.1
            yield Record(
                event=self.random.choice(EVENTS),
                stream=self.stream(),
                host=host,
                site=site,
                external=external,
            )
        elif action == "wait":
            yield Wait(
                stream=self.stream(),
                event=self.random.choice(EVENTS),
                host=host,
                site=site,
                external=self.random.random() < 0.1,
                implicit=self.random.random() < 0.1,
            )
        elif action == "sync":
            yield self.random.choice(
                (
                    SynchronizeStream(stream=self.stream(), host=host, site=site),
                    SynchronizeEvent(event=self.random.choice(EVENTS), host=host, site=site),
                    CompletedEvent(event=self.random.choice(EVENTS), host=host, site=site),
                    SynchronizeDevice(device=self.random.choice((0, 1)), host=host, site=site),
                )
            )
        elif action == "allocate":
            yield self.allocation(host, site)
        elif action == "free":
            space = self.space()
            yield Free(space=space, start=self.random.choice(BASES[space]), site=site)
        elif action == "record_stream":
            space = self.space()
            yield RecordStream(start=self.random.choice(BASES[space]) + 4, stream=self.stream(), space=space)
        elif action == "release":
            space = self.space()
            yield ReleaseBlock(space=space, start=self.random.choice(BASES[space]), size=SIZE)
        elif action == "destroy":
            yield from self.destroy()
        elif action == "function":
            self.functions += 1
            yield HostFunction(stream=self.stream(), function=f"function {self.functions}", host=host)
            self.streams.append(f"function {self.functions}")
        elif action == "edge":
            keys = (11, 12, 13, "lock", "item")
            yield HostEdge(source=self.random.choice(keys), target=self.random.choice(keys))
            if self.random.random() < 0.1:
                yield ForgetHost(host="item")
        elif action == "capture" and self.captures:
            yield self.capture(host, site)
        elif action == "replay" and self.graphs:
            graph = self.random.randint(1, self.graphs)
            yield Replay(
                graph=graph,
                stream=self.stream(),
                host=host,
                site=site,
                happened=self.random.random() > 0.2,
            )

    def allocation(self, host: int | None, site: tuple[Frame, ...]) -> Operation:
        space = self.space()
        whose = [each for each in self.streams if KINDS.get(each, (None, ""))[0] == space]
        stream = None if space == HOST or not whose else self.random.choice(whose)
        size = self.random.choice((SIZE, SIZE, SIZE // 2, SIZE * 3 // 2))
        return Allocate(
            space=space,
            start=self.random.choice(BASES[space]),
            size=size,
            stream=stream,
            owner="pinned" if stream is None else self.random.choice(("cupy", "torch", "torch", "driver")),
            host=host,
            site=site,
            name=self.random.choice(("", "x")),
            fresh=self.random.random() < 0.1,
        )

    def destroy(self) -> Iterator[Operation]:
        if self.random.random() < 0.5:
            yield DestroyEvent(key=self.random.choice(EVENTS))
            return
        key = self.random.choice(("B", "P", "T"))
        if key in self.streams and self.capturing is None:
            self.streams.remove(key)
            yield DestroyStream(key=key)
            yield self.open(key)

    def capture(self, host: int | None, site: tuple[Frame, ...]) -> Operation:
        if self.capturing is not None:
            key, self.capturing = self.capturing, None
            self.graphs += 1
            return CaptureEnd(stream=key, site=site)
        self.capturing = self.random.choice(("A", "B"))
        return CaptureBegin(
            stream=self.capturing,
            mode=self.random.choice(("relaxed", "global", "thread_local")),
            private_pool=self.random.random() < 0.5,
            host=host,
            site=site,
        )


def program(seed: int, length: int, *, threads: bool = False, captures: bool = True) -> list[Operation]:
    """The operations of a random program, the same for each seed."""
    return list(Writer(seed, threads=threads, captures=captures).steps(length))
