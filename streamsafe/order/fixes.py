"""The line of code that adds a missing edge at run time, in the words of the library that owns the memory."""

from __future__ import annotations

from dataclasses import dataclass, field

from streamsafe.order.clocks import Timeline
from streamsafe.order.hazard import quoted


@dataclass(frozen=True, slots=True)
class Library:
    """How a library's users write an edge.

    Attributes:
        null: the legacy default stream.
        wait: an expression by which ``{target}`` waits for all that ``{source}`` was given so far.
        thread: the per-thread default stream.
    """

    null: str
    wait: str
    thread: str = ""


COMMUNICATION = "the communication stream"
"""The name of a stream on which collectives do their work: the program has no object for it, only their works."""

CUPY = Library("cupy.cuda.Stream.null", "{target}.wait_event({source}.record())", "cupy.cuda.Stream.ptds")
TORCH = Library("torch.cuda.default_stream()", "{target}.wait_stream({source})")
LIBRARIES = {"torch": TORCH}


def other_name(source: Timeline, target: Timeline) -> str:
    """The name of ``source``, distinct from that of ``target``: one variable may have named both in turn."""
    return f"another {quoted(source.name)}" if _alike(source, target) else source.name


def communicates(source: Timeline) -> bool:
    """Whether a stream is one of a process group."""
    return source.name.startswith(COMMUNICATION)


def _alike(source: Timeline, target: Timeline) -> bool:
    return source is not target and source.name == target.name


@dataclass(slots=True)
class Fix:
    """One line of code. A stream that no variable names gets a short name, which the comment explains.

    Args:
        owner: whose the memory is.
    """

    owner: str = ""
    _explained: dict[str, str] = field(default_factory=dict)

    @property
    def _library(self) -> Library:
        return LIBRARIES.get(self.owner, CUPY)

    def wait(self, target: Timeline, source: Timeline, where: str = "") -> str:
        """``target`` waits for what ``source`` was given."""
        if communicates(source):
            return self._line(
                "work.wait()", where or f"the collective's, where {self._stream(target)} is current"
            )
        first = self._stream(source, target)
        return self._line(self._library.wait.format(source=first, target=self._stream(target)), where)

    def synchronize(self, source: Timeline, where: str = "") -> str:
        """The host waits for ``source``."""
        if communicates(source):  # the wait of a work does not block the host
            return self._line("torch.cuda.synchronize()", where)
        return self._line(f"{self._stream(source)}.synchronize()", where)

    def record_stream(self, name: str, source: Timeline) -> str:
        """The allocator learns that ``source`` uses the memory."""
        return self._line(
            f"{name if name and ' ' not in name else 'tensor'}.record_stream({self._stream(source)})"
        )

    def _line(self, code: str, where: str = "") -> str:
        comment = [f"{short} is {name}" for name, short in self._explained.items()]
        comment += [where] if where else []
        return f"{code}  # {', '.join(comment)}" if comment else code

    def _stream(self, timeline: Timeline, beside: Timeline | None = None) -> str:
        if beside is not None and _alike(timeline, beside):
            return self._explained.setdefault(other_name(timeline, beside), f"s{len(self._explained) + 1}")
        if timeline.kind == "legacy":
            return self._library.null
        if timeline.kind == "per-thread" and self._library.thread:
            return self._library.thread
        if " " not in timeline.name:
            return timeline.name
        return self._explained.setdefault(timeline.name, f"s{len(self._explained) + 1}")
