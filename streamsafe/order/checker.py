"""The checker's methods, one for each thing that happens; :mod:`streamsafe.order.decide` is its inside."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Literal

from streamsafe.order.captures import Capture, CaptureMode, Graph, Subject
from streamsafe.order.clocks import ENDLESS, Event, Timeline
from streamsafe.order.decide import FEW_CELLS, Engine, Epoch, State, Veto
from streamsafe.order.hazard import Conflict, Mode
from streamsafe.order.memory import Block, Cell, Owner, Record, Space, Use
from streamsafe.order.pools import hand_out, hand_out_again, take_back

Kind = Literal["legacy", "blocking", "non-blocking", "per-thread"]


class Checker(Engine):
    """A running stream program, checked as it comes.

    Keys of streams, events and threads are any hashable values the caller likes (for a trace: ints, strings, None and
    tuples of these). ``host`` is the calling thread's ident; without ``threads`` it only tells captures apart.
    ``site`` is anything; it is given to ``render`` only when a conflict is reported.

    After a conflict the checker goes on as if the missing edge had been there: one missing edge, one conflict. A
    conflict that is only possible adds no edge; the same one is reported once.

    Args:
        threads: one clock for each host thread, ordered by :meth:`host_edge`; else one clock for all.
        render: turns a site into stack frames, innermost first.
        naming: what the program calls what is allocated at a site; asked when a conflict is reported.
    """

    # -- streams and events ------------------------------------------------------------------------------------------

    def stream(
        self, key: Hashable, *, device: Space = 0, kind: Kind = "non-blocking", name: str = ""
    ) -> None:
        """Register a queue.

        Args:
            key: the raw handle, not the Python object (TS-25); for the per-thread default stream with the thread.
            device: the address space of its device.
            kind: ``legacy`` for the default stream (all keys of one device mean the same queue), ``blocking`` and
                ``per-thread`` for those it synchronizes with (CS-01 to CS-08), else ``non-blocking``.
            name: as a user would say it. A known key only gets the name; after :meth:`destroy_stream` it is a new
                generation, which the old one's accesses are not ordered before.
        """
        timeline = self._streams.get(key)
        if timeline is None:
            if kind == "legacy":
                timeline = self._devices[device].legacy
            else:
                timeline = Timeline(key, device, kind, f"stream {key}")
                self._devices[device].add(timeline)
            self._streams[key] = timeline
        if name:
            timeline.name = name

    def name_stream(self, key: Hashable, name: str) -> None:
        """A better name is known for a queue. Also while an operation is being checked."""
        self._streams[key].name = name

    def destroy_stream(self, key: Hashable) -> None:
        """The handle is gone; what was enqueued stays unordered until something orders it."""
        timeline = self._streams.pop(key, None)
        if timeline is not None and timeline.kind != "legacy":
            timeline.gone = True
            self._gone.append(timeline)
            self._debt += 16
            if self._debt > self._sweep_at:
                self._sweep()

    def host_function(
        self, stream: Hashable, function: Hashable, *, host: Hashable = None, site: object = None
    ) -> None:
        """A host function is enqueued (CS-23). ``function`` is from now on the key of a queue of its own: what is
        enqueued there comes after what the stream was given before, and before whatever it is given from now on.
        """
        timeline = self._streams[stream]
        self._sequence += 1
        timeline.launch(self._host_of(host))
        line = self._streams[function] = Timeline(function, timeline.device, "function", timeline.name)
        self._devices[timeline.device].add(line)
        line.learn(timeline.snapshot())
        timeline.learn((line.id, ENDLESS, {}))

    def event(self, key: Hashable) -> None:
        """Register an event, unrecorded. Optional: an unknown event is unrecorded. A known one starts anew."""
        self._events[key] = Event(key)

    def destroy_event(self, key: Hashable) -> None:
        """Forget an event. Waits that were enqueued keep what they saw."""
        self._events.pop(key, None)

    def record(
        self,
        event: Hashable,
        stream: Hashable,
        *,
        host: Hashable = None,
        site: object = None,
        external: bool = False,
    ) -> list[Conflict]:
        """An event is overwritten with what the stream knows now (TS-09, TS-10, TS-14, TS-15); a legacy action (CS-09).
        ``external``: in a capture, it is recorded at each launch instead (GC-21).
        """
        timeline = self._streams[stream]
        cell = self._events.get(event)
        if cell is None:
            cell = self._events[event] = Event(event)
        self._sequence += 1
        capture = timeline.capture
        if capture is None:
            line = self._host_of(host) if self._threads else self._host
            if timeline.peers or timeline.clock.get(line.id, 0) < line.count:
                timeline.launch(line)
            timeline.shown = True
            cell.clock = timeline.clock
            cell.stamp(timeline, self._sequence, site)
        elif external:
            capture.graph.records.append(cell)
        else:
            capture.program.record(event, stream, site=site)
            cell.stamp(timeline, self._sequence, site, capture)
        return []

    def wait(
        self,
        stream: Hashable,
        event: Hashable,
        *,
        host: Hashable = None,
        site: object = None,
        external: bool = False,
        implicit: bool = False,
    ) -> list[Conflict]:
        """A stream waits for an event's last record; later ones do not matter (TS-12, TS-13, TS-14). ``external``: in a
        capture, at each launch instead. ``implicit``: it is CUDA's doing and not the program's, which can have meant
        nothing by it.

        An event of a capture brings the stream into it (fork); waiting in a capture for anything else is illegal
        (GM-wait_outside, GM-wait_precapture), as is bringing in the default stream (GM-default_waits_cap).
        """
        timeline = self._streams[stream]
        cell = self._events.get(event)
        if cell is None:
            cell = self._events[event] = Event(event)
        self._sequence += 1
        capture = timeline.capture
        captured = cell.capture if cell.capture is not None and cell.capture in self._captures else None
        if capture is None and captured is None:
            if cell.capture is None:
                line = self._host_of(host) if self._threads else self._host
                if timeline.peers or timeline.clock.get(line.id, 0) < line.count:
                    timeline.launch(line)
                last = cell.record
                if last is not None:
                    timeline.learn((last.source.id, last.covered, cell.clock))
                if not implicit:
                    self._log(timeline, cell, site)
            return []
        if capture is not None and external:
            capture.graph.waits.append(cell)
            return []
        if captured is None:
            if cell.record is None:
                return []
            return [self._illegal("wait_outside", timeline, site)]
        if timeline.kind == "legacy":
            return [self._illegal("legacy_joins", timeline, site)]
        if capture is None:
            captured.join(timeline)
        elif capture is not captured:
            return [self._illegal("other_capture", timeline, site)]
        captured.program.wait(stream, event, site=site)
        return []

    def synchronize_stream(
        self, stream: Hashable, host: Hashable = None, *, site: object = None
    ) -> list[Conflict]:
        """The host waits for a stream, and with the legacy one for all blocking ones (TS-19, TS-28e, CS-09c). Returns a
        violation, and has no effect, where a capture forbids it.
        """
        timeline = self._streams[stream]
        if self._captures:
            forbidden = self._forbidden("captured" if timeline.capture else "eager", timeline, host, site)
            if forbidden:
                return forbidden
        self._sequence += 1
        line = self._host_of(host)
        self._log_stream(line, timeline, site)
        timeline.shown = True
        line.learn((timeline.id, timeline.count, timeline.clock))
        if timeline.kind == "legacy":
            for peer in timeline.peers:
                peer.shown = True
                line.learn((peer.id, peer.count, peer.clock))
        return []

    def synchronize_event(
        self, event: Hashable, host: Hashable = None, *, site: object = None
    ) -> list[Conflict]:
        """The host waits for an event's last record (TS-16 to TS-18). As :meth:`synchronize_stream` in a capture."""
        cell = self._events.get(event) or Event(event)
        line = self._host_of(host)
        if self._captures:
            subject: Subject = "captured" if cell.capture else "eager"
            forbidden = self._forbidden(subject, line, host, site)
            if forbidden:
                return forbidden
        if cell.capture is None:
            self._sequence += 1
            self._log(line, cell, site)
            last = cell.record
            if last is not None:
                line.learn((last.source.id, last.covered, cell.clock))
        return []

    def synchronize_device(
        self, device: Space, host: Hashable = None, *, site: object = None
    ) -> list[Conflict]:
        """The host waits for all streams of a device (TS-21, CS-25). As :meth:`synchronize_stream` in a capture."""
        line = self._host_of(host)
        forbidden = self._forbidden("device", line, host, site)
        if not forbidden:
            self._sequence += 1
            self._log_device(line, device, site)
            for stream in self._devices[device].streams:
                line.learn(stream.snapshot())
            self._devices[device].drop_finished(self._hosts.values())
        return forbidden

    def completed_event(
        self, event: Hashable, host: Hashable = None, *, site: object = None
    ) -> list[Conflict]:
        """A query of the event returned true (TS-16, CS-24)."""
        return self.synchronize_event(event, host, site=site)

    def completed_stream(
        self, stream: Hashable, host: Hashable = None, *, site: object = None
    ) -> list[Conflict]:
        """A query of the stream returned true (TS-20, CS-24)."""
        return self.synchronize_stream(stream, host, site=site)

    def host_edge(self, source: Hashable, target: Hashable) -> None:
        """``target`` learns what ``source`` knows. Each is a thread's ident or any other hashable (a lock, an item).

        Thread start: ``host_edge(parent, child)``; join: ``host_edge(child, parent)``; lock release:
        ``host_edge(thread, lock)``; acquire: ``host_edge(lock, thread)``. Nothing unless ``threads`` is true.
        """
        if self._threads:
            self._holder(target).learn(self._holder(source).snapshot())

    def forget_host(self, host: Hashable) -> None:
        """A thread that has ended, or a lock or item that is gone: it is not mentioned again."""
        self._objects.pop(host, None)
        if host is not None:
            self._hosts.pop(host, None)

    # -- accesses ----------------------------------------------------------------------------------------------------

    def access(
        self,
        stream: Hashable,
        reads: Sequence[Use] = (),
        writes: Sequence[Use] = (),
        operation: str = "",
        host: Hashable = None,
        site: object = None,
        veto: Veto | None = None,
    ) -> list[Conflict]:
        """One operation is enqueued. Returns the conflicts it completes; usually none.

        Args:
            stream: where; a registered key.
            reads, writes: what it touches, as far as known; the same memory may stand in both.
            operation: what the program called, as a user would write it.
            veto: called with the conflicts when there are any. When it returns true the operation did not happen (the
                caller raises instead of enqueueing it) and leaves no access; the missing edges count all the same.
                So one call just before the enqueue both checks and commits.
        """
        timeline = self._streams[stream]
        line = self._host_of(host) if self._threads else self._host
        if timeline.capture is not None:
            return self._capture(timeline, timeline.capture, reads, writes, operation, site)
        # The usual case in one pass: whole cells, and in order. Whatever is not (new memory, a part of a cell, an
        # unordered access) goes to :meth:`_access`, from the start.
        before: State | None = None
        if timeline.clock.get(line.id, 0) < line.count or (timeline.peers and not timeline.settled()):
            if timeline.kind == "legacy" and self._captures:
                return self._access(timeline, line, reads, writes, operation, site, veto)
            if timeline.kind != "function":
                before = (timeline.clock, timeline.count, timeline.shown)
                timeline.launch(line)
        sequence = self._sequence + 1
        shadows = self._shadows
        reading: list[Cell] = []
        for use in reads:
            (space, start, stop, _, strides, _), _, _, certain = use
            cells = shadows[space].cells
            while start < stop:
                cell = cells.get(start)
                if (
                    cell is None
                    or strides is not None
                    or cell.stop > stop
                    or cell.partial is not None
                    or not certain
                ):
                    return self._access(timeline, line, reads, writes, operation, site, veto, before)
                last = cell.write
                if last is not None:
                    if last.timeline is not timeline and not last.precedes(timeline, line.clock, sequence):
                        return self._access(timeline, line, reads, writes, operation, site, veto, before)
                    if last.graph is not None:  # what a graph left is looked at (GC-07)
                        return self._access(timeline, line, reads, writes, operation, site, veto, before)
                reading.append(cell)
                start = cell.stop
        writing: list[Cell] = []
        for use in writes:
            (space, start, stop, _, strides, _), _, _, certain = use
            cells = shadows[space].cells
            before_it = len(writing)
            while start < stop:
                cell = cells.get(start)
                if cell is None or strides is not None or cell.stop > stop or not certain:
                    return self._access(timeline, line, reads, writes, operation, site, veto, before)
                last, read = cell.write, cell.read
                if (
                    (last is not None and last.timeline is not timeline)
                    or (read is not None and read.timeline is not timeline)
                    or cell.readers is not None
                    or cell.partial is not None
                ) and not cell.admits(timeline, "writes", line.clock, sequence):
                    return self._access(timeline, line, reads, writes, operation, site, veto, before)
                writing.append(cell)
                start = cell.stop
            if len(writing) - before_it > FEW_CELLS:  # to be merged
                return self._access(timeline, line, reads, writes, operation, site, veto, before)
        self._sequence = timeline.last = sequence
        if timeline.shown:
            timeline.count += 1
            timeline.shown = False
        record = Record(timeline, timeline.count, operation, site, sequence)
        for cell in reading:
            last = cell.read
            if last is None or last.timeline is timeline:
                cell.read = record
            else:
                cell.commit_read(record)
        for cell in writing:
            cell.write = record
            cell.read = cell.readers = None
        return []

    def check_access(
        self,
        stream: Hashable,
        reads: Sequence[Use] = (),
        writes: Sequence[Use] = (),
        *,
        operation: str,
        host: Hashable = None,
        site: object = None,
    ) -> list[Conflict]:
        """The conflicts that :meth:`access` would return, with no effect at all."""
        timeline = self._streams[stream]
        if timeline.capture is not None:
            return []
        line = self._host_of(host)
        return self._access(timeline, line, reads, writes, operation, site, None, trial=True)

    def host_access(
        self,
        reads: Sequence[Use] = (),
        writes: Sequence[Use] = (),
        *,
        operation: str,
        host: Hashable = None,
        site: object = None,
        veto: Veto | None = None,
    ) -> list[Conflict]:
        """The host reads or writes memory now. As :meth:`access`."""
        line = self._host_of(host)
        if self.host_in_order(reads, writes):
            return []
        return self._access(line, line, reads, writes, operation, site, veto)

    def host_in_order(self, reads: Sequence[Use] = (), writes: Sequence[Use] = ()) -> bool:
        """:meth:`host_access` in the usual case: with one host clock the host's accesses leave nothing to remember,
        and this one has no conflict. False: it is not that simple, and nothing was done.
        """
        if self._threads:
            return False
        host = self._host
        sequence = self._sequence + 1
        mode: Mode = "reads"
        for uses in (reads, writes):
            for use in uses:
                space, start, stop, _, strides, _ = use[0]
                shadow = self._shadows[space]
                cell = shadow.cells.get(start)
                if cell is not None and cell.stop == stop:
                    if not cell.admits(host, mode, host.clock, sequence) or _left_by_graph(cell):
                        return False
                elif strides is not None:
                    return False
                elif start < stop:
                    for cell in shadow.overlapping(start, stop):
                        if not cell.admits(host, mode, host.clock, sequence) or _left_by_graph(cell):
                            return False
            mode = "writes"
        self._sequence = host.last = sequence
        return True

    # -- memory ------------------------------------------------------------------------------------------------------

    def allocate(
        self,
        space: Space,
        start: int,
        size: int,
        *,
        stream: Hashable = None,
        owner: Owner,
        host: Hashable = None,
        site: object = None,
        name: str = "",
        fresh: bool = False,
    ) -> Block:
        """A block is handed out, and returned. This touches nothing; what its earlier owners left unordered is kept
        for the first access that is not ordered after it.

        Args:
            space, start, size: where; size in bytes.
            stream: the stream whose arena it is from (for CuPy the current stream, not that of ``stream=``); None
                for pinned memory, whose pool the host runs.
            owner: whose pool.
            fresh: new from the driver (owner ``driver`` always is): earlier uses of the addresses are forgotten.
        """
        timeline = self._host_of(host) if stream is None else self._streams[stream]
        if owner in ("cupy", "torch") and not self._graphs and not fresh:
            # A loop's next array: nothing is left of the block's last life, and no graph remembers it.
            again = self._blocks[space].at(start)
            if (
                again is not None
                and again.freed
                and again.stop == start + size
                and again.timeline is timeline
                and again.owner == owner
                and hand_out_again(self._shadows[space], again)
            ):
                again.ended, again.freed_site, again.name, again.site = False, None, name, site
                again.recorded = ()
                return again
        block = Block(space, start, start + size, owner, timeline, name, site)
        if size <= 0:
            block.ended = True
            return block
        if fresh or owner == "driver":
            self.release_block(space, start, size)
        self._blocks[space].add(block)
        shadow = self._shadows[space]
        if not hand_out_again(shadow, block):
            block.cell = hand_out(shadow, block, lambda: self._ordered(timeline, self._host_of(host)))
        if self._captures:
            self._hand_out_in_captures(block, stream)
        return block

    def allocate_again(self, block: Block, size: int, stream: Hashable) -> bool:
        """:meth:`allocate` for a block of a CuPy pool that is handed out as it was the last time, in the usual case:
        its one cell was last used by the stream that is given it. Otherwise nothing is done, and it is false.
        """
        cell = block.cell
        own = block.timeline
        if (
            cell is None
            or own is not self._streams[stream]
            or block.stop - block.start != size
            or self._graphs
            or cell.partial is not None
            or cell.readers is not None
        ):
            return False
        write, read = cell.write, cell.read
        if (write is not None and write.timeline is not own) or (
            read is not None and read.timeline is not own
        ):
            return False
        cell.write = cell.read = None
        return True

    def _hand_out_in_captures(self, block: Block, stream: Hashable) -> None:
        if block.timeline.capture is not None:
            block.graph = block.timeline.capture.graph
        for capture in self._captures:
            capture.program.handed_out(block, stream)

    def free(self, space: Space, start: int, *, site: object = None) -> None:
        """The block that begins at ``start`` goes back to its arena (owner ``driver``: to the driver)."""
        block = self._blocks[space].at(start)
        if block is None or block.freed:
            return
        block.ended = True
        block.freed_site = site
        if block.owner == "driver":
            self.release_block(space, start, block.stop - start)
        elif block.recorded:
            take_back(self._shadows[space], block)

    def record_stream(self, start: int, stream: Hashable, *, space: Space | None = None) -> None:
        """torch's ``Tensor.record_stream`` for the live block that holds ``start``; TL-03 says what it covers."""
        timeline = self._streams[stream]
        block, _ = self._blocks[timeline.device if space is None else space].owner(start)
        if block is not None and not block.freed and timeline not in block.recorded:
            block.recorded = (*block.recorded, timeline)

    def release_block(self, space: Space, start: int, size: int) -> None:
        """The pool returned the addresses to the driver: whatever was unordered there is clean."""
        self._blocks[space].remove(start, start + size)
        shadow = self._shadows[space]
        shadow.remove(shadow.inside(start, start + size))

    # -- captures ----------------------------------------------------------------------------------------------------

    def capture_begin(
        self,
        stream: Hashable,
        mode: CaptureMode = "relaxed",
        *,
        private_pool: bool = False,
        pool: Hashable = None,
        host: Hashable = None,
        site: object = None,
    ) -> list[Conflict]:
        """A capture begins on a stream.

        Args:
            mode: as given to ``cudaStreamBeginCapture``.
            private_pool: its temporaries are from a pool of its own (torch); nobody else is given them.
            pool: the id of that pool, where several graphs may share one. Alone it makes the pool private too.
        """
        timeline = self._streams[stream]
        if timeline.kind == "legacy":
            return [self._illegal("begin_on_legacy", timeline, site)]
        if timeline.capture is not None:
            return [self._illegal("begin_twice", timeline, site)]
        self._graphs += 1
        program = Checker()
        program._explain = self._explain
        program._blocks = self._blocks
        if pool is None and private_pool:
            pool = "graph", self._graphs
        graph = Graph(self._graphs, pool, site)
        self._captures.append(Capture(graph, program, timeline, mode, host))
        return []

    def manage_graph(self) -> None:
        """The graph whose capture began last is of somebody who sees to the order of the launches (GC-07) himself."""
        if self._captures:
            self._captures[-1].graph.managed = True

    def capture_end(self, stream: Hashable, *, host: Hashable = None, site: object = None) -> Graph:
        """The capture that began on ``stream`` ends; its conflicts and violations are in the result."""
        timeline = self._streams[stream]
        capture: Capture | None = timeline.capture
        if capture is None:
            self._graphs += 1
            return Graph(self._graphs, None, site)
        graph = capture.graph
        if timeline is not capture.origin:
            graph.conflicts.append(self._illegal("end_elsewhere", timeline, site, other=capture.origin))
        for member in capture.unjoined():
            graph.conflicts.append(self._illegal("unjoined", member, site, other=capture.origin))
        self._captures.remove(capture)
        return capture.end()

    def capture_violation(
        self, violation: str, stream: Hashable, *, operation: str, message: str = "", site: object = None
    ) -> Conflict:
        """The conflict for an operation that is illegal in a capture and that only the caller can recognize.

        ``violation`` is the name of the rule (``sync-in-capture``, ``host-work-in-capture``, ...).
        """
        return self._violation(violation, self._streams[stream], operation, message, site)

    def replay(
        self,
        graph: Graph,
        stream: Hashable,
        *,
        operation: str = "launch",
        host: Hashable = None,
        site: object = None,
        veto: Veto | None = None,
    ) -> list[Conflict]:
        """A graph is launched: one operation that makes all its accesses (GC-08). As :meth:`access`."""
        timeline = self._streams[stream]
        reads, writes = graph.uses("reads"), graph.uses("writes")
        if timeline.capture is not None:
            return self._capture(timeline, timeline.capture, reads, writes, operation, site)
        line = self._host_of(host)
        return self._access(timeline, line, reads, writes, operation, site, veto, graph=graph)

    # -- the end -----------------------------------------------------------------------------------------------------

    def finish(self) -> list[Conflict]:
        """The session ends: what was freed while a use of it was ordered before neither its allocation stream nor the
        host, and nothing made safe since. One conflict for each missing edge.
        """
        conflicts: list[Conflict] = []
        reported: set[tuple[Timeline, Timeline]] = set()
        for shadow in self._shadows.values():
            for start in shadow.starts:
                cell = shadow.cells[start]
                for entry in cell.history():
                    block, record = entry.block, entry.record
                    if block is None or not block.freed or not entry.certain or record.graph is not None:
                        continue
                    if block.graph is not None and block.graph.pool is not None:
                        continue  # captures of its pool reuse it, and nobody else (GC-23)
                    pair = (record.timeline, block.timeline)
                    if pair in reported or self._ordered(block.timeline, *self._hosts.values())(entry):
                        continue
                    reported.add(pair)
                    low, high = cell.start, cell.stop
                    if entry.view is not None:
                        low, high = max(low, entry.view.start), min(high, entry.view.stop)
                    conflicts.append(self._explain.latent(entry, block, low, high))
        return conflicts


def _left_by_graph(cell: Cell) -> bool:
    """Whether a graph's launch wrote it last: its reader is looked at (GC-07)."""
    return cell.write is not None and cell.write.graph is not None


__all__ = ["CaptureMode", "Checker", "Epoch", "Graph", "Kind", "Owner", "Veto"]
