"""From two accesses that nothing orders to a conflict a person can act on: places, nearest edges, waits that missed."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import Literal, NamedTuple

from streamsafe.order.clocks import Recorded, Timeline, Wait
from streamsafe.order.hazard import (
    Access,
    Conflict,
    Edge,
    Facts,
    Frame,
    Memory,
    Missing,
    Mode,
    Named,
    Note,
    Role,
    quoted,
)
from streamsafe.order.lines import NULL, PER_THREAD, communicates, missing, other_name
from streamsafe.order.memory import HOST, Block, Found, Graph, Partial, Record, Region, Use

Render = Callable[[object], tuple[Frame, ...]]

Naming = Callable[[object], str]
"""What the program calls what is allocated at a site; empty where it gives it no name."""


def no_stack(_: object) -> tuple[Frame, ...]:
    """Sites are not rendered."""
    return ()


def no_name(_: object) -> str:
    """Sites name nothing."""
    return ""


def no_better_name(_: Timeline) -> None:
    """Timelines keep their names."""


class Missed(NamedTuple):
    """A wait that was meant to cover an access and does not: what is to be said of it, and what may be asked later."""

    notes: list[Note]
    recheck_at_end: Callable[[], bool] | None = None


class Explainer:
    """Writes conflicts. ``render`` turns a site into stack frames, innermost first.

    Attributes:
        calling: called with a timeline before its name is used, so that it may find a better one.
        library: whose words a fix is written in where nothing tells whose the memory is; empty: CuPy's.
    """

    def __init__(self, render: Render, naming: Naming = no_name) -> None:
        self.library = ""
        self._render = render
        self._naming = naming
        self.calling: Callable[[Timeline], None] = no_better_name

    def note(self, message: str, site: object, role: Role = "") -> Note:
        """A further place."""
        return Note(message, stack=self._stack(site), role=role)

    def violation(
        self,
        violation: str,
        timeline: str,
        operation: str,
        message: str,
        site: object,
        notes: Iterable[Note] = (),
    ) -> Conflict:
        """An operation that is illegal where it stands."""
        second = Access(operation, timeline, "reads", stack=self._stack(site))
        said = (Note(message),) if message else ()
        return Conflict(second, None, Memory(""), Facts(violation=violation), notes=(*said, *notes))

    def pair(
        self, found: Found, second: Record, host: Timeline, needs: Callable[[Timeline], bool]
    ) -> Conflict:
        """Two accesses with no edge between them.

        ``needs`` tells whether the second operation also uses what a given timeline wrote last: a wait for that one
        was not meant for the first access.
        """
        source, target = found.first.timeline, second.timeline
        self.calling(source)
        self.calling(target)
        use = found.use
        first = self._access(found.first, found.first_mode, of=target)
        last = self._access(second, found.second_mode)
        host_mode: Mode | None = None
        if target.kind == "host":
            host_mode = found.second_mode
        elif source.kind == "host":
            host_mode = found.first_mode
        reuse = _reuse(found.first_block) if found.first_block is not found.block else None
        notes: list[Note] = []
        ineffective = False
        recheck_at_end: Callable[[], bool] | None = None
        memory = self._memory(use, found.block, found.start, found.stop)
        if reuse is not None and found.first_block is not None:
            # the array that somebody may still use is the one that was there before
            memory = self._memory(Use(Region(*use[0][:3])), found.first_block, found.start, found.stop)
            notes = self._lives(found.first_block)
            if found.block is not None:
                notes.append(self._again(found.block))
        else:
            missed = self._missed_wait(found.first, second, host, needs)
            if missed is not None:
                ineffective = True
                recheck_at_end = missed.recheck_at_end
                notes.extend(missed.notes)
        if found.first.graph is not None:
            notes.extend(self._captured(found.first.graph, found.start, found.stop))
        if second.graph is not None:
            notes.extend(self._captured(second.graph, found.start, found.stop))
        return Conflict(
            second=last,
            first=first,
            memory=memory,
            facts=Facts(host=host_mode, reuse=reuse, ineffective_wait=ineffective),
            missing=self._missing(source, target, found.block, found.first_block if reuse else None),
            edges=self._nearest(source, target, host),
            notes=tuple(notes),
            confidence="certain" if found.certain else "possible",
            recheck_at_end=recheck_at_end,
        )

    def latent(self, entry: Partial, block: Block, start: int, stop: int) -> Conflict:
        """A use that the block's allocation stream does not come after, though the block was freed."""
        source, target = entry.record.timeline, block.timeline
        self.calling(source)
        self.calling(target)
        use = Use(Region(block.space, start, stop))
        return Conflict(
            second=Access("the next allocation", target.name, "writes", stack=self._stack(block.freed_site)),
            first=self._access(entry.record, entry.mode, of=target),
            memory=self._memory(use, block, start, stop),
            facts=Facts(host="writes" if target.kind == "host" else None, reuse=_reuse(block)),
            missing=self._missing(source, target, block, block),
            notes=tuple(self._lives(block)),
            latent=True,
        )

    def overwritten(
        self,
        graph: Graph,
        second: Record,
        use: Use,
        mode: Mode,
        dead: Block,
        live: Block,
        last: Partial | None,
    ) -> Conflict:
        """The launch of a graph touches memory that was freed since and now is somebody else's."""
        owner = Access("allocation", live.timeline.name, "writes", stack=self._stack(live.site))
        if last is not None:
            owner = self._access(last.record, last.mode)
        start, stop = max(use[0][1], live.start), min(use[0][2], live.stop)
        notes = [
            *self._captured(graph, start, stop),
            *(replace(note, role="") for note in (*self._lives(dead), self._again(live))),
        ]
        captured = dead.graph is graph
        return Conflict(
            second=self._access(second, mode),
            first=owner if captured else None,
            memory=self._memory(use, live, start, stop),
            facts=Facts(reuse="captured") if captured else Facts(violation="rebound-static-input"),
            notes=tuple(notes),
        )

    def overlaid(self, launch: Record, reading: Record, use: Use, block: Block | None) -> Conflict:
        """What one graph left for the program was overwritten by the launch of another that shares its pool (GC-07)."""
        notes = (
            []
            if block is None
            else [self.note("it was allocated in the capture of another graph", block.site)]
        )
        return Conflict(
            second=self._access(reading, "reads"),
            first=self._access(launch, "writes"),
            memory=self._memory(use, block, use[0][1], use[0][2]),
            facts=Facts(violation="shared-pool-replay-order"),
            notes=tuple(notes),
        )

    def _access(self, record: Record, mode: Mode, of: Timeline | None = None) -> Access:
        name = _beside(record.timeline, of) if of is not None else record.timeline.name
        return Access(record.operation, name, mode, stack=self._stack(record.site))

    def _stack(self, site: object) -> tuple[Frame, ...]:
        return () if site is None else self._render(site)

    def _lives(self, block: Block) -> list[Note]:
        name = quoted(self._name(block)) or "the memory"
        on = quoted(block.timeline.name)
        lives = [self.note(f"{name} is allocated on {on}", block.site, "allocated")]
        if block.freed and block.freed_site is not None:
            lives.append(self.note(f"the last reference to {name} is dropped", block.freed_site, "released"))
        return lives

    def _again(self, block: Block) -> Note:
        return self.note(f"the memory is reused on {quoted(block.timeline.name)}", block.site, "reused")

    def _name(self, block: Block) -> str:
        return block.name or self._naming(block.site)

    def _memory(self, use: Use, block: Block | None, start: int, stop: int) -> Memory:
        region = use[0]
        owner: Literal["torch", "cupy", "pinned", "host", "unknown"] = (
            "host" if region[0] == HOST else "unknown"
        )
        if block is not None and block.owner != "driver":
            owner = block.owner
        name = use[1] or (self._name(block) if block is not None else "")
        return Memory(name, owner, region[3], use[2], start, stop)

    def _missing(
        self, source: Timeline, target: Timeline, block: Block | None, reused: Block | None
    ) -> Missing:
        memory = reused or block
        owner = memory.owner if memory is not None and memory.owner in ("torch", "cupy") else self.library
        library: Literal["torch", "cupy"] = "torch" if owner == "torch" else "cupy"
        waiting = target if reused is None else reused.timeline
        edge = Edge(
            "synchronize" if waiting.kind == "host" else "wait",
            _named(source, library),
            _named(waiting, library),
            library=library,
        )
        if reused is not None:
            edge = replace(edge, memory=self._name(reused), when="released")
            if reused.owner == "torch" and not communicates(source.name):
                edge = replace(edge, kind="record", when="")
        return missing(_beside(source, waiting), waiting.name, edge)

    def _captured(self, graph: Graph, start: int, stop: int) -> list[Note]:
        for captured in graph.accesses:
            region = captured.use[0]
            if region[1] < stop and start < region[2]:
                return [self.note(f"captured here: {captured.operation} {captured.mode} it", captured.site)]
        return []

    def _nearest(self, source: Timeline, target: Timeline, host: Timeline) -> tuple[Note, ...]:
        """The last edge from the first timeline that the second operation does have."""
        for who, wait in _waits(target, host):
            if wait.covers_some_of(source):
                whom = quoted(wait.whom)
                message = f"{quoted(who.name)} last waits for {whom} here: this covers only what came before"
                return (self.note(message, wait.site),)
        return ()

    def _missed_wait(
        self, first: Record, second: Record, host: Timeline, needs: Callable[[Timeline], bool]
    ) -> Missed | None:
        """The wait that was meant to cover the first access and does not."""
        source, target = first.timeline, second.timeline
        if source.kind == "host":
            return None

        def covers(record: Recorded | None) -> bool:
            return record is not None and record.source is source and record.covered >= first.count

        for who, wait in _waits(target, host):
            if wait.sequence < first.sequence:
                break
            now = wait.event.record if wait.event is not None and wait.event.capture is None else None
            if now is not None and covers(now) and now.sequence > wait.sequence:
                message = f"{quoted(who.name)} waits for the event before it is recorded: this orders nothing"
                return Missed(
                    [self.note(message, wait.site), self.note("the event is recorded only here", now.site)]
                )
            record = wait.record
            if record is None:
                if _meant_for_another(wait, source):
                    continue
                message = (
                    f"{quoted(who.name)} waits for an event that was never recorded: this orders nothing"
                )
                return Missed([self.note(message, wait.site)], partial(_meant_for_another, wait, source))
            if record.source is source:
                if not covers(record):
                    before = quoted(first.operation)
                    message = f"{quoted(who.name)} waits for an event that was recorded before {before}"
                    early = self.note("the event is recorded here: too early", record.site)
                    return Missed([self.note(message, wait.site), early])
                continue
            if any(map(covers, wait.replaced)):
                on = quoted(source.name)
                message = f"{quoted(who.name)} waits for an event that was recorded on {on} and then again"
                again = f"the event is recorded again here, on {quoted(record.source.name)}"
                return Missed([self.note(message, wait.site), self.note(again, record.site)])
            used = who.served.get(record.source.id, 0) > wait.sequence or needs(record.source)
            if record.idle_since < first.sequence and not used:
                runs = f"{quoted(first.operation)} runs on {quoted(source.name)}"
                message = f"{quoted(who.name)} waits for {quoted(wait.whom)}, but {runs}"
                notes = [self.note(message, wait.site), *self._recorded(wait)]
                return Missed(notes, partial(_used_later, who, wait))
        for wait in reversed(source.waits()):
            if wait.sequence < first.sequence:
                break
            record = wait.record
            if record is None or record.source is not target:
                continue
            if source.last < wait.sequence or not record.idle_since:
                message = f"{quoted(source.name)} waits for {quoted(target.name)} here: the wait is the wrong way round"
                return Missed([self.note(message, wait.site), *self._recorded(wait)])
        return None

    def _recorded(self, wait: Wait) -> list[Note]:
        if wait.event is None or wait.record is None:
            return []
        return [self.note("the event is recorded here", wait.record.site)]


def _beside(source: Timeline, target: Timeline) -> str:
    """The name of a timeline, told from that of another one."""
    return source.name if source is target else other_name(source.name, target.name)


def _named(timeline: Timeline, library: str) -> Named:
    """A stream in the words of a library."""
    if timeline.kind == "legacy":
        return Named(timeline.name, NULL[library])
    if timeline.kind == "per-thread" and library in PER_THREAD:
        return Named(timeline.name, PER_THREAD[library])
    return Named(timeline.name, "" if " " in timeline.name else timeline.name)


def _used_later(who: Timeline, wait: Wait) -> bool:
    """Whether a wait for another timeline has since been needed: what was used first was not what it was for.

    In a loop one statement waits again and again: what any of its rounds is for, it is for.
    """
    record = wait.record
    used = who.served.get(record.source.id, 0) if record is not None else 0
    if record is None or used < wait.sequence:
        return False
    between = [other for other in who.waits() if wait.sequence < other.sequence < used]
    return all(other.site == wait.site for other in between if other.covers_some_of(record.source))


def _meant_for_another(wait: Wait, source: Timeline) -> bool:
    """Whether a wait for an event not yet recorded is for other work than ``source``'s: in a ring of buffers the first
    round waits for events that are recorded only later, each by the stream that it is always recorded on.
    """
    now = wait.event.record if wait.event is not None else None
    return now is not None and now.source is not source


def _waits(target: Timeline, host: Timeline) -> list[tuple[Timeline, Wait]]:
    """What the second timeline, or the host before the enqueue, waited for; the latest first."""
    waits = [(target, wait) for wait in target.waits()]
    if host is not target:
        waits.extend((host, wait) for wait in host.waits())
    return sorted(waits, key=lambda each: each[1].sequence, reverse=True)


def _reuse(block: Block | None) -> Literal["torch", "cupy"]:
    return "torch" if block is not None and block.owner == "torch" else "cupy"
