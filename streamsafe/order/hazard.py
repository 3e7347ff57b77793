"""What the model reports: accesses, the memory they meet in, the missing edge, and the hazard itself.

Both front ends, both engines and every report format speak in these terms. Nothing here knows torch, CuPy, LibCST or a
terminal.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Literal

Confidence = Literal["certain", "likely", "possible"]
Mode = Literal["reads", "writes"]

Severity = Literal["error", "warning", "advice"]

SEVERITIES: tuple[Severity, ...] = ("error", "warning", "advice")

CONFIDENCES: tuple[Confidence, ...] = ("certain", "likely", "possible")


def quoted(name: str) -> str:
    """A name as it stands in a sentence: code in backticks, a description (``the current stream``) as it is."""
    return name if " " in name or not name else f"`{name}`"


@dataclass(frozen=True, slots=True, order=True)
class Span:
    """A place in a source file. Rows and columns count from 1, columns count characters, the end is exclusive."""

    filename: str
    row: int
    column: int
    end_row: int
    end_column: int


@dataclass(frozen=True, slots=True)
class Frame:
    """One line of a Python stack.

    Attributes:
        column, end_line, end_column: the call on that line, as in a :class:`Span`; ``column`` 0 where Python does not
            know it (before 3.11). Two frames on one line are equal.
    """

    filename: str
    line: int
    function: str
    column: int = field(default=0, compare=False)
    end_line: int = field(default=0, compare=False)
    end_column: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Access:
    """One side of a hazard.

    Attributes:
        operation: what the program called, as a user would write it (``sum``, ``copy_``, ``backward()``).
        timeline: the queue it ran on, as a user would name it (``self.side_stream``, ``the current stream``,
            ``the host``).
        reads_or_writes: what it did to the memory.
        span: where it is written (static); None at run time.
        stack: how it was reached, innermost frame first (run time); empty for the static side.
        module: the module of a model whose forward made it (``model.layers.3.mlp``), where one ran (run time).
        given: of what a host function does: where its stream was given it (static).
    """

    operation: str
    timeline: str
    reads_or_writes: Mode
    span: Span | None = None
    stack: tuple[Frame, ...] = ()
    module: str = field(default="", compare=False)
    given: Span | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Memory:
    """The bytes two accesses have in common.

    Attributes:
        name: the array as the user knows it (``grad``, ``self.buffer``), or a description.
        owner: who hands the block out again once it is free.
        shape, dtype: of the array, where known; ``shape`` in elements.
        start, stop: the common byte range, addresses, ``stop`` exclusive; None when only names are known.
    """

    name: str
    owner: Literal["torch", "cupy", "pinned", "host", "unknown"] = "unknown"
    shape: tuple[int, ...] | None = None
    dtype: str | None = None
    start: int | None = None
    stop: int | None = None


Role = Literal["", "allocated", "released", "reused"]


@dataclass(frozen=True, slots=True)
class Note:
    """A further place that explains a hazard: an ineffective wait, an allocation, a release, the capture.

    Attributes:
        role: what the place is in the life of a block that is reused too early; reports number these steps.
    """

    message: str
    span: Span | None = None
    stack: tuple[Frame, ...] = ()
    role: Role = ""


@dataclass(frozen=True, slots=True)
class Assumption:
    """What a finding takes for granted (static side).

    Attributes:
        name: its kind (``stream``, ``place``, ...).
        text: the end of the sentence "assumes that ...".
        span: where it was made.
    """

    name: str
    text: str
    span: Span | None = None


@dataclass(frozen=True, slots=True)
class Named:
    """A stream as the program knows it.

    Attributes:
        name: its name, or a description (``the current stream``).
        code: an expression for it; empty where the program has none.
    """

    name: str
    code: str = ""


@dataclass(frozen=True, slots=True)
class Edge:
    """The edge that would have ordered two accesses, as data; :mod:`streamsafe.order.lines` makes code of it.

    Attributes:
        kind: ``wait``: ``target`` waits for what ``source`` was given so far; ``synchronize``: the host waits for
            ``source``; ``device``: the host waits for the device; ``record``: the allocator learns that ``source`` uses
            ``memory``.
        source, target: the stream that is waited for, and the one that waits.
        memory: the array whose memory is kept, as the program names it; empty where it has no name.
        when: ``released``: after the use, before the last reference to ``memory`` goes; ``current``: before ``target``
            becomes the current stream; empty: before the second access.
        library, module: whose objects the streams are, and what the file calls that library (empty: by its name).
        in_source: for a reader of the source: the same name may mean two streams in two places.
    """

    kind: Literal["wait", "synchronize", "device", "record"]
    source: Named = Named("")
    target: Named = Named("")
    memory: str = ""
    when: Literal["", "released", "current"] = ""
    library: Literal["torch", "cupy"] = "torch"
    module: str = ""
    in_source: bool = False


@dataclass(frozen=True, slots=True)
class Missing:
    """The edge that would have ordered the two accesses.

    Attributes:
        source: timeline of the first access.
        target: timeline of the second access.
        fix: one line of code that adds the edge.
        edge: the edge as data; None where only its text is known (a trace, the report of another process).
    """

    source: str
    target: str
    fix: str = ""
    edge: Edge | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Facts:
    """What a rule may ask of a conflict. Filled by an engine or a front end, never by a rule.

    Attributes:
        host: the host side of the pair: the host "reads" or "writes"; None when both accesses are on device timelines.
        reuse: the second access belongs to the block's next life, handed out by this allocator; ``captured`` for a
            temporary of a capture.
        gradient: the first access is the gradient a backward pass writes ("result"), or fills a gradient handed to a
            backward pass ("initial"), or the memory of such a gradient is reused early ("initial-reuse").
        timing: what is wrong with an event whose time is asked for: it was made without timing, it was never recorded,
            or the host has not waited for it.
        ineffective_wait: the second timeline did wait for something that was meant to cover the first access.
        interop: the array was handed between libraries by a path that exchanges no stream.
        violation: no pair of accesses: the name of the rule for an operation that is illegal where it stands
            (``sync-in-capture``, ``event-timing-misuse``, ...).
        cause: which of several causes of a violation, where its repair depends on that: a ``pageable`` copy in a
            capture, a capture in the ``global`` mode beside another thread, a module that needs ``eleven`` runs before
            its capture.
    """

    host: Mode | None = None
    reuse: Literal["torch", "cupy", "captured"] | None = None
    gradient: Literal["result", "initial", "initial-reuse"] | None = None
    timing: Literal["untimed", "unrecorded", "pending"] | None = None
    ineffective_wait: bool = False
    interop: bool = False
    violation: str | None = None
    cause: Literal["", "pageable", "global", "eleven"] = ""


@dataclass(frozen=True, slots=True)
class Conflict:
    """Two accesses with no edge between them (or one illegal operation), before a rule gives it a code.

    Attributes:
        first: None for a violation.
        notes: in the order in which they are shown.
        recheck_at_end: asked at the end of a run: whether the ineffective wait was for something else.
        methods: the two methods that somebody is taken to call one after the other (static side).
        witness: the path that shows it, in the order of time (static side).
        assumptions: what it takes for granted (static side).
        further: how many more pairs of accesses the same missing edge leaves unordered (static side).
        again: numbers under which the engine knows it when it comes again, by its places and by all that matters; 0: it
            does not.
    """

    second: Access
    first: Access | None
    memory: Memory
    facts: Facts = Facts()
    missing: Missing | None = None
    edges: tuple[Note, ...] = ()
    notes: tuple[Note, ...] = ()
    confidence: Confidence = "certain"
    latent: bool = False
    methods: tuple[str, ...] = field(default=(), compare=False)
    witness: tuple[Note, ...] = field(default=(), compare=False)
    assumptions: tuple[Assumption, ...] = field(default=(), compare=False)
    further: int = field(default=0, compare=False)
    again: tuple[int, int] = field(default=(0, 0), compare=False)
    recheck_at_end: Callable[[], bool] | None = field(default=None, compare=False)

    def refined(self, **facts: object) -> Conflict:
        """The conflict with facts that only a front end knows."""
        return replace(self, facts=replace(self.facts, **facts))  # type: ignore[arg-type]

    @property
    def shown_at(self) -> Span | None:
        """Where it is shown: at the second access; where memory is reused, at the use that the next life ends."""
        first = self.first.span if self.facts.reuse and self.first is not None else None
        return first or self.second.span


@dataclass(slots=True)
class Hazard:
    """A conflict with its code: what users, reports and ``session.hazards`` see.

    Attributes:
        edges: the nearest edges that do exist, which do not order the pair.
        notes: further places, in the order in which they are shown.
        count: how often it happened (run time); 1 for the static side.
        latent: nothing has gone wrong yet in this run: memory was freed while a use was unordered, and not reused.
        witness: the path that shows it, in the order of time (static side).
        assumptions: what it takes for granted (static side).
        further: how many more pairs of accesses the same missing edge leaves unordered (static side).
        facts: what an engine or a front end knows of it; a repair asks these, never the message.
    """

    code: str
    name: str
    message: str
    first: Access | None
    second: Access
    memory: Memory
    missing: Missing | None = None
    edges: tuple[Note, ...] = ()
    notes: tuple[Note, ...] = ()
    confidence: Confidence = "certain"
    latent: bool = False
    count: int = 1
    help: str = field(default="")
    witness: tuple[Note, ...] = ()
    assumptions: tuple[Assumption, ...] = ()
    further: int = 0
    facts: Facts = Facts()
