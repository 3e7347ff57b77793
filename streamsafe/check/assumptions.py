"""What a finding takes for granted: the names, the sentences that say so, and how much each counts.

The machine resolves every unknown in the program's favour. Where a report needs an unknown to be otherwise, it
carries a tag; this table says under which name and in which words a tag is shown. A finding with none is *certain*,
with one *likely*, with more *possible*; weights say how much one counts, and come from findings that people have
labelled.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from streamsafe.order.hazard import Assumption, Confidence, Span, quoted


@dataclass(frozen=True, slots=True)
class Kind:
    """One row of the table.

    Attributes:
        name: what users, reports and measurements call it.
        text: the end of "assumes that ...", with the fields of :class:`Words` in braces.
        weight: how many it counts for.
    """

    name: str
    text: str
    weight: int = 1


@dataclass(frozen=True, slots=True)
class Words:
    """What the sentences are filled with: expressions of the user's, quoted.

    Attributes:
        memory: the tensor.
        first, second: the streams of the two accesses.
        operation, stream: the operation of the access that needs the assumption, and its stream.
        earlier, later: the functions of the two accesses.
    """

    memory: str = "the tensor"
    first: str = "the first stream"
    second: str = "the second stream"
    operation: str = "the call"
    stream: str = "its stream"
    earlier: str = "one method"
    later: str = "the other"


KINDS: Final[Mapping[str, Kind]] = {
    "model": Kind("module", "calling {operation} launches work on {stream}"),
    "unmodelled": Kind("unmodelled", "{operation}, which is not in sight, works on the device"),
    "unnamed": Kind("unmodelled", "{operation}, which is not in sight, uses {memory} on {stream}"),
    "helper": Kind("unmodelled", "{operation}, which is not in sight, uses {memory} on {stream}", 2),
    "entered": Kind("unmodelled", "{operation}, called in the context of {stream}, works there"),
    "body": Kind("unmodelled", "what {operation} calls works on the device", 2),
    "kernel": Kind("kernel", "{operation} touches {memory}"),
    "stream": Kind("stream", "{first} and {second} are two streams"),
    "ambient": Kind("stream", "the caller has made no other stream the current one"),
    "default": Kind("stream", "the current stream is another one than the default stream"),
    "place": Kind("place", "{memory} is on the device"),
    "pinned": Kind("place", "{memory} is in pinned memory"),
    "target": Kind("place", "{operation} copies to the host"),
    "copied": Kind("place", "{memory} is not yet where {operation} puts it"),
    "loaded": Kind("place", "{memory}, which a loop takes from elsewhere, is on the device", 2),
    "element": Kind("element", "the two parts of {memory} have bytes in common"),
    "consumer": Kind("consumer", "the code that is given {memory} uses it on the current stream"),
    "caller": Kind("caller", "the caller's work on {memory} is not finished"),
    "reader": Kind("caller", "the caller, who is given {memory}, does not wait before the host reads it"),
    "from": Kind("place", "the copy to {memory} comes from the device, and returns before it is done"),
    "to": Kind("place", "the copy from {memory} goes to the device, and returns before it is done"),
    "init": Kind("init", "the object is used soon after it is made"),
    "calls": Kind("calls", "{later} is called again with no synchronization between"),
    "later": Kind("calls", "the caller allocates memory before it waits for the event that it is given"),
    "local": Kind("calls", "the memory is handed out again before the stream is done"),
    "methods": Kind("methods", "{later} runs right after {earlier}"),
    "waits": Kind("methods", "no method that waits is called between {earlier} and {later}"),
    "records": Kind("methods", "no method that records the event is called before {later}"),
    "object": Kind("methods", "the method is called as the object is made here"),
    "open": Kind("methods", "the capture that another method begins is still open", 2),
    "capture": Kind("methods", "nobody captures the graph again before it is replayed"),
    "release": Kind("release", "nothing else keeps {memory}"),
    "given": Kind("release", "nothing but this name keeps {memory}"),
    "tail": Kind("tail", "what is launched after the host's last wait takes time", 2),
    "optimizer": Kind("flag", "the optimizer is not capturable"),
    "intended": Kind("intended", "the wait is meant for {first}"),
}
"""By the tag that the machine and its models use."""

OTHER: Final = Kind("unmodelled", "{operation} does what its name says")
"""Of a tag that has no row yet."""

SHOWN_BY_DEFAULT: Final[frozenset[str]] = frozenset({"consumer"})
"""The names of assumptions whose findings are shown by default: those measured to be right four times in five."""

REUSE: Final = frozenset(("SS201", "SS202", "SS113"))
"""Codes of memory that is handed out again: that there is a next call is what they are about."""
ACROSS_CALLS: Final = frozenset(("SS302", "SS403", "SS412"))
"""Codes that a second call shows as a rule: a buffer that is filled again, an input or a result that is replaced."""
OF_THE_HOST: Final[Mapping[tuple[str, str], str]] = {
    ("SS301", "place"): "from",
    ("SS302", "place"): "to",
    ("SS301", "caller"): "reader",
}
"""Which sentence a tag has in a finding about memory of the host."""


def counted(code: str, tags: Iterable[str]) -> dict[str, int]:
    """How much each tag of a finding counts."""
    found = set(tags)
    weights = {tag: KINDS.get(tag, OTHER).weight for tag in sorted(found - {"calls", "methods", "local"})}
    if "local" in found and code not in REUSE:
        weights["local"] = 1
    if code in REUSE:
        if {"calls", "local"} <= found:  # that a function that makes its own objects is called again
            weights["local"] = 2
    elif "calls" in found:  # that nobody waits between two calls of one function
        weights["calls"] = 1 if code in ACROSS_CALLS else 2
    elif "methods" in found:  # that nobody waits between two methods of one object
        weights["methods"] = 1
    return weights


def confidence(code: str, tags: Iterable[str]) -> Confidence:
    """How sure a finding is, by what has to be assumed for it."""
    total = sum(counted(code, tags).values())
    return "certain" if total == 0 else "likely" if total == 1 else "possible"


def assumed(
    code: str, tags: Iterable[str], words: Mapping[str, Words], spans: Mapping[str, Span | None]
) -> tuple[Assumption, ...]:
    """The assumptions of a finding, each name and sentence once.

    Args:
        words: what a tag's sentence is filled with; "" for the other tags.
        spans: where a tag's assumption is made; "" for the other tags.
    """
    found: dict[tuple[str, str], Assumption] = {}
    for tag in counted(code, tags):
        kind = KINDS.get(OF_THE_HOST.get((code, tag), tag), OTHER)
        said = words.get(tag, words[""])
        text = kind.text.format(**{field: getattr(said, field) for field in Words.__slots__})
        span = spans[tag] if tag in spans else spans.get("")
        found.setdefault((kind.name, text), Assumption(kind.name, text, span))
    return tuple(found.values())


def named(name: str, otherwise: str) -> str:
    """An expression as it stands in a sentence."""
    return quoted(name) or otherwise
