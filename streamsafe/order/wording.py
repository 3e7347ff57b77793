"""The words that rules and reports share, so that one bug reads the same whichever side found it."""

from __future__ import annotations

import os

from streamsafe.order.hazard import Access, Conflict, Hazard
from streamsafe.order.hazard import quoted as quoted


def access_phrase(access: Access) -> str:
    """Who makes an access, and where: ``\\`sum\\` on the current stream``."""
    return f"{quoted(access.operation)} on {quoted(access.timeline)}"


def operation_name(access: Access) -> str:
    """What an operation that is illegal where it stands does: a name in backticks, or a description."""
    return quoted(access.operation)


_ACTIONS = ("begins ", "captures ", "draws ", "launches ")


def statement(access: Access) -> str:
    """What a line does, as the beginning of a sentence: an action gets a subject."""
    words = operation_name(access).replace("captures what", "captures work that")
    return f"this line {words}" if words.startswith(_ACTIONS) else words


def block(conflict: Conflict | Hazard) -> str:
    """The memory the two accesses meet in."""
    return quoted(conflict.memory.name) if conflict.memory.name else "the same memory"


def pending_phrase(access: Access) -> str:
    """What an access that nobody waited for may still be doing."""
    return "may still be reading" if access.reads_or_writes == "reads" else "may still be writing"


def no_wait(conflict: Conflict) -> str:
    """The missing edge: who does not wait for whom."""
    assert conflict.first is not None
    source = conflict.missing.source if conflict.missing else conflict.first.timeline
    target = conflict.missing.target if conflict.missing else conflict.second.timeline
    return f"{quoted(target)} does not wait for {first_stream(source, target)}"


def first_stream(source: str, target: str) -> str:
    """The stream of the first access, beside that of the second one: two streams may have one name."""
    if source != target:
        return quoted(source)
    if source == "the current stream":
        return "the stream that was current before"
    return f"another {quoted(source.removeprefix('a '))}"


def missing_edge(hazard: Hazard) -> tuple[str, str]:
    """From where to where the edge that is missing goes; for a block that is reused, to its next use."""
    assert hazard.missing is not None
    target = quoted(hazard.missing.target)
    if any(note.role for note in hazard.notes):
        target = f"the next use of its memory on {target}"
    return quoted(hazard.missing.source), target


def race(conflict: Conflict, what: str = "which") -> str:
    """The pair: who does what, while who may still be doing what."""
    first, second = conflict.first, conflict.second
    assert first is not None
    one = f"{quoted(first.operation)} on {first_stream(first.timeline, second.timeline)}"
    return f"{access_phrase(second)} {second.reads_or_writes} {block(conflict)}, {what} {one} {pending_phrase(first)}"


def unprotected_use(conflict: Conflict) -> Access:
    """The use of a block that nothing protects from the block's next life."""
    return conflict.first or conflict.second


def reuse_sentence(conflict: Conflict, why: str) -> str:
    """A block that is handed out again too early: who may still use it, who gets it, and why."""
    use = unprotected_use(conflict)
    if conflict.first is None or conflict.latent:
        return f"{access_phrase(use)} {pending_phrase(use)} {block(conflict)} when it is released: {why}"
    again = access_phrase(conflict.second)
    return f"{access_phrase(use)} {pending_phrase(use)} {block(conflict)} when its memory is reused by {again}: {why}"


def shown(path: str) -> str:
    """A file name as a person reads it: relative to the working directory where it lies below it."""
    if not os.path.isabs(path):
        return path
    try:
        relative = os.path.relpath(path)
    except ValueError:  # another drive
        return path
    return path if relative.startswith("..") else relative
