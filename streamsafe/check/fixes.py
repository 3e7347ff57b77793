"""The line of code that adds a missing edge, in the words of the library and under the names that the file uses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

CURRENT = "the current stream"
COMMUNICATION = "the communication stream"
HOST = "the host"


@dataclass(frozen=True, slots=True)
class Fixes:
    """How one file says it.

    Args:
        imports: the file's names for modules and what is in them, with what they stand for.
        cupy: whether the streams are CuPy's.
    """

    imports: Mapping[str, str]
    cupy: bool

    def edge(self, source: str, target: str) -> str:
        """How ``target`` is made to come after ``source``."""
        if target == HOST:
            return self._line("{0}.synchronize()", source)
        if source.startswith(COMMUNICATION):
            return "work.wait()  # work is what the collective returned"
        where = f"{target} becomes current" if source == CURRENT and self._stream(target) else ""
        return self._line(self._wait, source, target, where=where)

    def before_release(self, user: str, allocating: str, memory: str) -> str:
        """How a pool with no ``record_stream`` is kept from giving memory out while a use of it runs."""
        line = self._line(self._wait, user, allocating)
        where = f"after this use, before {memory or 'the array'} is released"
        return f"{line}, {where}" if "  # " in line else f"{line}  # {where}"

    def record(self, memory: str, timeline: str) -> str:
        """How memory of torch's allocator is kept until a stream is done with it."""
        name = memory if memory and " " not in memory else "tensor"
        return self._line(name + ".record_stream({0})", timeline)

    def finished(self) -> str:
        """How the host waits for the device before it reads a clock."""
        if self.cupy:
            return f"{self._module('cupy')}.cuda.Device().synchronize()"
        return f"{self._module('torch')}.cuda.synchronize()"

    @property
    def _wait(self) -> str:
        return "{1}.wait_event({0}.record())" if self.cupy else "{1}.wait_stream({0})"

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
        return f"{line}  # before {where}" if where else line

    def _stream(self, timeline: str) -> str:
        """A timeline as code; nothing for one that has only a description."""
        if timeline == CURRENT:
            if self.cupy:
                return f"{self._module('cupy')}.cuda.get_current_stream()"
            return f"{self._module('torch')}.cuda.current_stream()"
        return "" if " " in timeline or "[..." in timeline else timeline

    def _module(self, library: str) -> str:
        """What the file calls a library."""
        return next((name for name, dotted in self.imports.items() if dotted == library), library)
