"""A brute-force judge of stream programs: an explicit graph of everything that happens, and reachability in it.

It shares nothing with the engines: it knows no clocks, keeps every access for ever, and compares each new one with all
of them, byte by byte.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Access:
    node: int
    line: object
    bytes: frozenset[int]
    writes: bool
    life: int
    name: str
    host: bool
    cleared: set[int] = field(default_factory=set)


@dataclass
class Stream:
    key: str
    generation: int
    device: int
    kind: str
    last: int | None = None


class Oracle:
    """The graph. A node is an operation on a stream or a step of a host thread; ``before`` are its ancestors."""

    def __init__(self) -> None:
        self.before: list[int] = []
        self.streams: dict[str, Stream] = {}
        self.everything: list[Stream] = []
        self.hosts: dict[object, int] = {}
        self.events: dict[str, int | None] = {}
        self.accesses: list[Access] = []
        self.owner: dict[int, int] = {}
        self.lives = 0
        self.blocks: dict[int, tuple[int, frozenset[int], Stream, list[Stream], bool]] = {}

    def node(self, *after: int | None) -> int:
        ancestors = 0
        for one in after:
            if one is not None:
                ancestors |= self.before[one] | 1 << one
        self.before.append(ancestors)
        return len(self.before) - 1

    def step(self, host: object, *after: int | None) -> int:
        self.hosts[host] = self.node(self.hosts.get(host), *after)
        return self.hosts[host]

    def stream(self, key: str, device: int, kind: str) -> None:
        if key not in self.streams:
            self.streams[key] = Stream(key, len(self.everything), device, kind)
            self.everything.append(self.streams[key])

    def destroy(self, key: str) -> None:
        self.streams.pop(key, None)

    def implied(self, stream: Stream) -> list[int | None]:
        """What the legacy default stream's barrier puts before the next operation."""
        if stream.kind == "non-blocking":
            return []
        same = [other for other in self.everything if other.device == stream.device]
        if stream.kind == "legacy":
            return [other.last for other in same if other.kind == "blocking"]
        return [other.last for other in same if other.kind == "legacy"]

    def enqueue(self, stream: Stream, host: object, *after: int | None) -> int:
        stream.last = self.node(stream.last, self.step(host), *self.implied(stream), *after)
        return stream.last

    def record(self, event: str, stream: str, host: object) -> None:
        self.events[event] = self.enqueue(self.streams[stream], host)

    def wait(self, stream: str, event: str, host: object) -> None:
        self.enqueue(self.streams[stream], host, self.events.get(event))

    def synchronize(self, host: object, kind: str, name: object) -> None:
        if kind == "event":
            self.step(host, self.events.get(str(name)))
        elif kind == "device":
            self.step(host, *(stream.last for stream in self.everything if stream.device == name))
        else:
            stream = self.streams[str(name)]
            extra = self.implied(stream) if stream.kind == "legacy" else []
            self.step(host, stream.last, *extra)

    def host_edge(self, source: object, target: object) -> None:
        self.step(target, self.hosts.get(source))

    # -- memory ------------------------------------------------------------------------------------------------------

    def reaches(self, first: int, second: int) -> bool:
        return first == second or bool(self.before[second] >> first & 1)

    def clear(self, life: int | None, covered: frozenset[int], tips: list[int | None]) -> None:
        """Old accesses that one of these operations comes after (or is) cannot disturb a later owner."""
        for access in self.accesses:
            if life is not None and access.life != life:
                continue
            if any(tip is not None and self.reaches(access.node, tip) for tip in tips):
                access.cleared |= covered

    def allocate(self, start: int, covered: frozenset[int], stream: str, host: object) -> None:
        self.lives += 1
        owner = self.streams[stream]
        for byte in covered:
            self.owner[byte] = self.lives
        self.clear(None, covered, [owner.last, self.hosts.get(host), *self.implied(owner)])
        self.blocks[start] = (self.lives, covered, owner, [], True)

    def over(self, access: Access, byte: int) -> bool:
        """Whether the block an access was made in is not the live one there."""
        return access.life != self.owner.get(byte, 0) or not any(
            byte in block[1] for block in self.blocks.values()
        )

    def record_stream(self, start: int, stream: str) -> None:
        if start in self.blocks:
            self.blocks[start][3].append(self.streams[stream])

    def free(self, start: int, torch: bool) -> None:
        life, covered, owner, recorded, _ = self.blocks.pop(start)
        if torch:
            self.clear(life, covered, [stream.last for stream in recorded if stream is not owner])

    # -- verdicts ----------------------------------------------------------------------------------------------------

    def access(
        self,
        stream: str | None,
        host: object,
        uses: list[tuple[frozenset[int], bool]],
        name: str,
    ) -> tuple[list[Access], list[Access]]:
        """The earlier accesses that conflict with this one: those that must be reported, and all that may be.

        One must be reported when no other that conflicts in the same byte comes after it.
        """
        if stream is None:
            node = self.step(host)
            line: object = ("host", host)
        else:
            node = self.enqueue(self.streams[stream], host)
            line = self.streams[stream].generation
        may: list[Access] = []
        must: list[Access] = []
        for touched, writes in uses:
            for byte in touched:
                here = [
                    access
                    for access in self.accesses
                    if byte in access.bytes
                    and (writes or access.writes)
                    and access.line != line
                    and not (stream is None and access.host)
                    and not self.reaches(access.node, node)
                    and not (byte in access.cleared and self.over(access, byte))
                ]
                may += here
                must += [
                    one
                    for one in here
                    if not any(o is not one and self.reaches(one.node, o.node) for o in here)
                ]
        for touched, writes in uses:
            life = self.owner.get(min(touched), 0) if touched else 0
            self.accesses.append(Access(node, line, touched, writes, life, name, stream is None))
        return must, may

    def assume(self, lines: set[object]) -> None:
        """Go on as if the last operation had waited for all that these timelines have been given."""
        node = len(self.before) - 1
        for line in lines:
            tip = self.everything[line].last if isinstance(line, int) else self.hosts.get(line[1])  # type: ignore[index]
            if tip is not None and tip != node:
                self.before[node] |= self.before[tip] | 1 << tip
