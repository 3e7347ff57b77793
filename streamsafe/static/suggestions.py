"""The line of code that adds a missing edge, in the words of the library and under the names that the file uses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from streamsafe.order.hazard import Access, Mode

CURRENT = "the current stream"
COMMUNICATION = "the communication stream"
BEFORE = "  # before "
"""Parts the code from where it has to stand."""


@dataclass(frozen=True, slots=True)
class Help:
    """How one file says it.

    Args:
        imports: the file's names for modules and what is in them, with what they stand for.
    """

    imports: Mapping[str, str]

    def edge(self, first: Access, second: Access, host: Mode | None) -> str:
        """How the second access is made to come after the first: code where both streams have names."""
        if host is not None:
            return self._line("{0}.synchronize()", first.timeline)
        if first.timeline.startswith(COMMUNICATION):
            return "work.wait()  # work is what the collective returned"
        where = ""
        if first.timeline == CURRENT and self._stream(second.timeline):
            where = f"{second.timeline} becomes current"
        return self._line(self._wait, first.timeline, second.timeline, where=where)

    def before_release(self, use: Access, allocating: str, memory: str) -> str:
        """How a pool with no ``record_stream`` is kept from giving memory out while a use of it runs."""
        line = self._line(self._wait, use.timeline, allocating)
        where = f"after this use, before {memory or 'the array'} is released"
        return f"{line}, {where}" if "  # " in line else f"{line}  # {where}"

    def finished(self) -> str:
        """How the host waits for the device before it reads a clock."""
        if self._cupy:
            return f"{self._module('cupy')}.cuda.Device().synchronize()"
        return f"{self._module('torch')}.cuda.synchronize()"

    def record(self, memory: str, timeline: str) -> str:
        """How memory of torch's allocator is kept until a stream is done with it."""
        name = memory if memory and " " not in memory else "tensor"
        return self._line(name + ".record_stream({0})", timeline)

    @property
    def _wait(self) -> str:
        return "{1}.wait_event({0}.record())" if self._cupy else "{1}.wait_stream({0})"

    def _line(self, code: str, *timelines: str, where: str = "") -> str:
        """Code about timelines; one that has no name gets a short one, which the comment explains."""
        names: list[str] = []
        comment = []
        for number, timeline in enumerate(timelines, 1):
            known = self._stream(timeline)
            if not known or known in names:
                known = f"s{number}"
                first = " here" if len(timelines) > 1 and number == 2 else ""
                other = " at the first access" if len(timelines) > 1 and number == 1 else ""
                comment.append(f"{known} is {timeline}{first}{other}")
            names.append(known)
        line = code.format(*names)
        if comment:
            return f"{line}  # {', '.join(comment)}"
        return f"{line}{BEFORE}{where}" if where else line

    @property
    def _cupy(self) -> bool:
        """Whether streams are CuPy's, which has no ``wait_stream``; torch's where the file does not tell."""
        return "cupy" in self._libraries and "torch" not in self._libraries

    @property
    def _libraries(self) -> set[str]:
        return {dotted.split(".")[0] for dotted in self.imports.values()}

    def _stream(self, timeline: str) -> str:
        """A timeline as code; nothing for one that has only a description."""
        if timeline == CURRENT:
            if self._cupy:
                return f"{self._module('cupy')}.cuda.get_current_stream()"
            return f"{self._module('torch')}.cuda.current_stream()"
        return "" if " " in timeline else timeline

    def _module(self, library: str) -> str:
        """What the file calls a library."""
        return next((name for name, dotted in self.imports.items() if dotted == library), library)
