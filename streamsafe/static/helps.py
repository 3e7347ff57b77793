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
        source, target = self._stream(first.timeline), self._stream(second.timeline)
        if host is not None:
            return f"{source}.synchronize()" if source else f"let the host wait for {first.timeline} first"
        if source and target and source != target:
            waits = f"wait_event({source}.record())" if self._cupy else f"wait_stream({source})"
            where = f"{BEFORE}{target} becomes current" if first.timeline == CURRENT else ""
            return f"{target}.{waits}{where}"
        if first.timeline.startswith(COMMUNICATION):
            return "call wait() on the collective's work first"
        if first.timeline == second.timeline:
            return "let the stream that is current here wait for the one that was current there"
        return f"let {second.timeline} wait for {first.timeline} first"

    def record(self, memory: str, timeline: str) -> str:
        """How memory of torch's allocator is kept until a stream is done with it."""
        stream = self._stream(timeline)
        if stream and memory and " " not in memory:
            return f"{memory}.record_stream({stream})"
        return f"call record_stream on {memory or 'the tensor'}, for {timeline}"

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
            library, function = ("cupy", "get_current_stream") if self._cupy else ("torch", "current_stream")
            names = (name for name, dotted in self.imports.items() if dotted == library)
            return f"{next(names, library)}.cuda.{function}()"
        return "" if " " in timeline else timeline
