"""One function -> its summary: a forward analysis over the control-flow graph, with bounded trace partitioning."""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from streamsafe.order.hazard import Span
from streamsafe.static.domain import access as tag
from streamsafe.static.domain import guards, limits
from streamsafe.static.domain.access import Access
from streamsafe.static.domain.atoms import (
    CURRENT,
    DEFAULT,
    HOST,
    MAYBE,
    TRUE,
    UNKNOWN,
    Array,
    Atom,
    Bound,
    New,
    Path,
    Symbol,
    Value,
    bound,
    ordered,
    path,
    value,
)
from streamsafe.static.domain.guards import Guard, Literal
from streamsafe.static.domain.places import EACH, PAGEABLE, PINNED
from streamsafe.static.domain.state import HostWork, Reg, State, Wait
from streamsafe.static.summary import exits
from streamsafe.static.summary.model import Pair, Reason, Summary
from streamsafe.static.syntax import cfg, ir
from streamsafe.static.transfer import asks, extents, gradients, memory, objects, rounds
from streamsafe.static.transfer.registry import TRANSFERS

if TYPE_CHECKING:
    from streamsafe.static.summary.facts import Fact
    from streamsafe.static.summary.solve import Engine, Given

SELF: Final = "self"
"""The root of what a method's first parameter holds, whatever its name."""


class Analysis:
    """The analysis of one function.

    Attributes:
        engine: the summaries of all functions.
        fn: the function.
        given: what is known of its parameters beside their annotations.
        cold: captures of a backward pass that has not run before, and the guards.
        keyed: an element of a container -> the elements of others that are looked up under it.
        tested: the locals that conditions ask for.
        passes: whether a backward pass outside captures has been seen, on any path.
        light: one partition is kept, and loops are run through a few times: enough for the footprint of a function that
            has to do with one stream only.
        block: the block that is interpreted.
        matters: a footprint is not enough: something orders, captures, copies asynchronously or names a stream.
        switches: whether some code runs while another stream is current, or in a capture.
    """

    __slots__ = (
        "_allocations",
        "_facts",
        "_filename",
        "_first_waits",
        "_graph",
        "_spans",
        "_taken",
        "block",
        "cold",
        "engine",
        "fn",
        "given",
        "keyed",
        "light",
        "matters",
        "notes",
        "pairs",
        "passes",
        "return_span",
        "returned",
        "switches",
        "tested",
        "yielded",
    )

    def __init__(self, engine: Engine, fn: ir.Function, given: Given, light: bool) -> None:
        self.engine = engine
        self.fn = fn
        self.given = given
        self.light = light
        self.matters = False
        self.switches = False
        self.pairs: dict[tuple[object, ...], Pair] = {}
        self.notes: set[str] = set()
        self.passes = False
        self.keyed: dict[Atom, set[Path]] = {}
        self.tested = _tested(fn)
        self.cold: dict[Span, Guard] = {}
        self.returned: list[tuple[State, Value, int]] = []
        self.return_span = Span("", 1, 1, 1, 1)
        self.yielded: Value = UNKNOWN
        self._facts: dict[Atom, Fact] = {}
        self._filename = engine.filename(fn.module)
        self._first_waits: dict[Access, frozenset[Wait]] = {}
        self._allocations: dict[tuple[Atom, frozenset[Atom], Guard], Span] = {}
        self._spans: list[Span | None] = [None] * len(fn.spans)
        self._graph = cfg.graph(fn)
        self._taken: dict[int, set[int]] = {}
        self.block = 0

    @property
    def self_root(self) -> str:
        """The root of the instance's paths; "" in a function."""
        return SELF if self.fn.is_method else ""

    # -- the fixpoint ------------------------------------------------------------------------------------------------

    def run(self) -> Summary | None:
        """Analyse the function; None of a light analysis that finds that it matters."""
        entry: dict[int, list[State]] = {}
        pending: dict[int, list[State]] = {}
        visits: dict[int, int] = {}
        queue: list[tuple[int, int]] = []
        most = limits.FOOTPRINT_VISITS if self.light else limits.VISITS

        position = self._graph.position

        def arrive(target: int, more: list[State], owned: bool) -> None:
            if target not in position:
                return
            changed = self.merge(entry.setdefault(target, []), more, owned)
            if not changed:
                return
            waiting = pending.get(target)
            if waiting is None:
                pending[target] = changed
                heapq.heappush(queue, (position[target], target))
            else:
                known = set(map(id, waiting))
                waiting.extend(state for state in changed if id(state) not in known)

        for target, more, owned in self._starts():
            arrive(target, more, owned)
        while queue:
            _, number = heapq.heappop(queue)
            states = pending.pop(number)
            visits[number] = visits.get(number, 0) + 1
            if visits[number] > most:
                if not self.light:
                    self.notes.add("loop not finished")
                continue
            self.engine.visits += 1
            for target, more, owned in self._block(number, [state.fork() for state in states]):
                arrive(target, more, owned)
            if self.light and self.matters:
                return None
        found = exits.summarise(self)
        return None if self.light and (self.matters or self.pairs) else found

    def _entry(self) -> State:
        first = State()
        for position, parameter in enumerate(self.fn.params):
            root = SELF if position == 0 and self.fn.is_method else parameter.name
            held = self.given.get(root)
            first.set_local(parameter.name, held if held else value(path(root)))
        if self.given.part == "hook":
            gradients.hook_entry(self, first)
        return first

    def _starts(self) -> Iterable[tuple[int, list[State], bool]]:
        """Where the analysis begins: at the entry, or behind each ``yield`` of a context manager that is left."""
        if self.given.part != "exit":
            yield 0, [self._entry()], True
            return
        for number in self._graph.order:
            for position, instruction in enumerate(self.fn.blocks[number].instrs):
                if isinstance(instruction, ir.Yield):
                    first = State()
                    for reg in self.registers():
                        first.env[reg] = value(path(f"resume {reg}"))
                        first.entered[reg] = (path(f"resume current {reg}"), None)
                    yield from self._block(number, [first], position + 1)

    def registers(self) -> list[Reg]:
        """The registers that live across a ``yield``."""
        return registers(self.fn)

    def _block(
        self, number: int, states: list[State], start: int = 0
    ) -> Iterable[tuple[int, list[State], bool]]:
        """The states that leave a block, by the block that they go to; and whether nobody else goes on with them."""
        block = self.fn.blocks[number]
        self.block = number
        live = self._graph.live.get(number, frozenset())
        handler = block.handler if block.handler in self._graph.position else None
        seen: list[object] = []
        listener = self.engine.explanation
        step = self.step if listener is None else partial(listener.step, self)
        for instruction in block.instrs[start:]:
            if handler is not None and not isinstance(instruction, _NEVER_RAISE):
                now = [(s.order.relation, len(s.order.made), s.current) for s in states]
                if now != seen:
                    seen = list(now)
                    yield handler, [s for s in states if not s.dead], False
            states = step(instruction, states)
            if not states:
                return
        states = [s for s in states if not s.dead]
        for s in states:
            self.matters = self.matters or not s.is_plain()
            self.switches = self.switches or s.current is not CURRENT or s.capture is not None
            _drop_temporaries(s, live)
        taken = self._taken.setdefault(number, set())
        for position, edge in enumerate(block.edges, 1):
            more = []
            for s in states:
                out = s if position == len(block.edges) else s.fork()
                if edge.assume is None or self.assume(out, edge.assume):
                    more.append(out)
            if more:
                taken.add(edge.target)
                yield edge.target, more, True

    def is_conditional(self, block: int) -> bool:
        """Whether the function may return without having come through a block. Loops are taken to have a round."""
        return cfg.avoidable(self.fn, self._graph, self._taken, block)

    def step(self, instruction: ir.Instr, states: list[State]) -> list[State]:
        """The states after an instruction."""
        function = TRANSFERS.get(type(instruction))
        if function is None:
            return states
        out: list[State] = []
        starts = instruction.__class__ in extents.STARTS
        for s in states:
            if s.views or starts:
                s.parts = extents.touched(self, s, instruction)
            after = function(self, s, instruction)
            left = (s,) if after is None else after
            for t in left:
                if t.views or starts:
                    extents.settle(self, t, instruction)
            out.extend(left)
        if len(out) > limits.PARTITIONS:
            few: list[State] = []
            self.merge(few, out, owned=True)
            out = few
        return [s for s in out if not s.dead]

    def merge(self, kept: list[State], more: list[State], owned: bool = False) -> list[State]:
        """Add partitions to those of a block, and say which of these changed.

        Equal signatures join; over the budget a partition is joined into one with the same current stream.
        Partitions that nobody else has (``owned``) are kept without a copy.
        """
        changed: list[State] = []
        most = 1 if self.light else limits.PARTITIONS
        if len(kept) * 4 >= most > 1 and len(kept[0].heap) > limits.LARGE:
            most //= 4
        for state in more:
            signature = state.signature()
            home = next((known for known in kept if known.settled_signature() == signature), None)
            if home is None and len(kept) >= most:
                if not self.light:
                    self.notes.add("partitions joined")
                home = min(kept, key=state.distance)
                if self.light and (HOST in home.order.knows) is not (HOST in state.order.knows):
                    self.matters = True  # the host has waited on some paths only: callers may decide on which
            if home is None:
                home = state if owned else state.fork()
                home.unsettle()
                kept.append(home)
            elif not home.join(state):
                continue
            if all(one is not home for one in changed):
                changed.append(home)
        return changed

    # -- conditions --------------------------------------------------------------------------------------------------

    def assume(self, s: State, assume: ir.Assume) -> bool:
        """Refine a partition by the condition of an edge; False when it cannot hold."""
        kind, reg, _, truth = assume
        if kind == "more":
            more = objects.has_more(s, reg)
            if more is not None:
                if more is truth and not truth:
                    del s.choices["at", reg]  # type: ignore[arg-type]
                return more is truth
            first = s.choices.pop(("more", reg), None)  # type: ignore[call-overload]
            if not truth:
                for atom in s.env.get(reg, UNKNOWN):
                    s.capturing.threads.pop(atom, None)  # a loader that is done has no thread at work
                rounds.are_over(self, s, objects.step_into(self, s, s.get(reg), EACH))
            return first is None or self._assume_round(s, first, truth)
        held = s.get(reg)
        if kind == "swallow":
            return truth is (TRUE in held)
        if kind == "true" and isinstance(reg, str) and not any(isinstance(atom, Path | New) for atom in held):
            known = s.tested.get(reg)
            if known is not None:
                return known is truth
            if not self._assume(s, assume, held):
                return False
            s.tested[reg] = truth
            return True
        return self._assume(s, assume, held)

    def _assume(self, s: State, assume: ir.Assume, held: Value) -> bool:
        """Refine a partition by a condition on a value; False when it cannot hold."""
        kind, reg, other, truth = assume
        if not held:
            return True
        if kind == "same":
            return self._assume_same(s, held, s.get(other), truth)
        if kind == "isinstance":
            return self._assume_instance(s, held, s.get(other), truth)
        if kind == "in":
            test, held = guards.IS_TRUE, asks.names_device(held, s.get(other))
        else:
            test = _TESTS.get(kind, "")
        if not test or not held:
            return True
        if test == guards.IS_TRUE and truth:
            asks.answered(self, s, held)
        asked = [guards.asks_for_host(test, atom, other) for atom in _one_by_one(held)]
        if asked and None not in asked:
            some = [self._assume_on_host(s, *each, truth, len(asked) == 1) for each in asked if each]
            return any(some)
        left = frozenset(a for a in held if guards.decided(test, other, a) in (None, truth))
        if not left:
            return False
        if left is not held and len(left) != len(held):
            s.set_local(reg, left)
        if len(left) == 1:
            (atom,) = left
            literal = guards.literal_of(test, atom, other, truth)
            if literal is not None:
                return self.suppose(s, literal)
        return True

    def _assume_on_host(self, s: State, atom: Atom, host: bool, truth: bool, alone: bool) -> bool:
        """Whether memory, or a device, may be the host's where ``host`` is ``truth``, and not where it is not."""
        known = guards.decided(guards.IS_CPU, None, atom)
        if known is not None:
            return known is (host is truth)
        place = memory.place_of(self, s, atom)
        if place:
            return (place in (PINNED, PAGEABLE)) is (host is truth)
        if not alone or not isinstance(atom, Path):
            return True
        return self.suppose(s, Literal(guards.IS_CPU, atom, None, host is truth))

    def _assume_round(self, s: State, count: Value, truth: bool) -> bool:
        """Whether a loop may, or may not, have a first round; ``count``: of how many, or that it has one."""
        if TRUE in count:
            return truth
        (atom,) = count
        literal = guards.literal_of(guards.IS_TRUE, atom, None, truth)
        return literal is None or self.suppose(s, literal)

    def suppose(self, s: State, literal: Literal) -> bool:
        """Add a literal to a partition; False when it contradicts what holds."""
        if literal in s.guard:
            return True
        if guards.contradicts(frozenset((literal,)), s.guard):
            return False
        s.guard = s.guard | {literal}
        return True

    def _assume_same(self, s: State, one: Value, other: Value, truth: bool) -> bool:
        if len(one) != 1 or len(other) != 1:
            return True
        (first,), (second,) = one, other
        fixed = isinstance(first, Symbol) and isinstance(second, Symbol)
        return not fixed or (first is second) is truth

    def _assume_instance(self, s: State, held: Value, classes: Value, truth: bool) -> bool:
        if len(held) != 1 or len(classes) != 1:
            return True
        (atom,), (cls,) = held, classes
        names = self.engine.class_names(cls)
        verdict = self.is_instance(atom, names)
        if verdict is not None:
            return verdict is truth
        if isinstance(atom, Path) and names:
            return self.suppose(s, Literal(guards.IS_INSTANCE, atom, names, truth))
        return True

    def is_instance(self, atom: Atom, names: object) -> bool | None:
        """Whether an atom is an instance of one of some classes, where that can be told."""
        assert isinstance(names, tuple)
        sure = isinstance(atom, New | Array)
        verdicts = [self.engine.is_instance(self.type_of(atom), name, sure) for name in names]
        if True in verdicts:
            return True
        return None if None in verdicts or not verdicts else False

    # -- what is known of atoms --------------------------------------------------------------------------------------

    def span(self, at: int) -> Span:
        """Where an instruction stands; columns count characters from 1 as far as the line is ASCII."""
        found = self._spans[at]
        if found is None:
            line, column, end_line, end_column = self.fn.spans[at]
            found = Span(self._filename, line, column + 1, end_line, end_column + 1)
            self._spans[at] = found
        return found

    def fact(self, atom: Path) -> Fact:
        """What is known of an access path: its aliases, its place and its type."""
        found = self._facts.get(atom)
        if found is None:
            facts = self.engine.facts
            before = facts.incomplete
            found = facts.of(self.fn, self.given, atom)
            if facts.incomplete == before:
                self._facts[atom] = found
        return found

    def type_of(self, atom: Atom) -> str:
        """The type's dotted name, a class id of the tree, or "" where it is not known."""
        if isinstance(atom, New):
            return atom.kind if atom.kind is not MAYBE else ""
        if isinstance(atom, Path):
            return self.fact(atom).type
        return atom.type if isinstance(atom, Array) else ""

    def role(self, atom: Atom) -> str:
        """The role of an atom's type: ``tensor``, ``stream``, ...; "object" for one of the tree; "" if not known."""
        if isinstance(atom, New):
            return self.engine.role(atom.kind)
        if isinstance(atom, Path):
            return self.engine.role(self.fact(atom).type)
        if isinstance(atom, Symbol):
            return "stream" if atom.name in STREAMS else ""
        return "tensor" if isinstance(atom, Array) else ""

    # -- findings ----------------------------------------------------------------------------------------------------

    def pair(self, first: Access, second: Access, waits: frozenset[Wait], tags: int = 0) -> None:
        """Two accesses with no edge between them."""
        if first.tags & second.tags & tag.BACKWARD and first.writes and second.writes:
            if not (gradients.of_module(first.buffer) and gradients.of_module(second.buffer)):
                return  # nothing shows that two passes are about the same parameters
        if second.tags & tag.ELAPSED:
            self.misuse(second.span, second.operation, "pending", second.guard, first.span, tag.ON_SOME_PATH)
            return
        places = (first.span, second.span, first.writes, second.writes, first.stream, second.stream)
        key = ("pair", *places, first.guard, second.guard)
        if key not in self.pairs:
            before = self.waits_before(first)
            guard = first.guard | second.guard
            self.pairs[key] = Pair(
                "pair", first, second, second.span, waits - before, guard, tags, before=before
            )

    def reuse(self, use: Access, after: Access, s: State, tags: int = 0) -> None:
        """A block's next life does not come after a use of the block; both accesses are to its allocator's pool.

        A program that makes the default stream wait takes it for the current one: the block is handed out to that one.
        """
        if after.stream is CURRENT and use in s.order.made.get(use.buffer, ()):
            exposed = [way for way in s.order.ways_of(use) if CURRENT not in way]
            if exposed and all(DEFAULT in way for way in exposed):
                return
        key = ("reuse", use.span, use.guard)
        if key not in self.pairs:
            self.pairs[key] = Pair("reuse", use, after, use.span, frozenset(), use.guard | s.guard, tags)

    def unordered_at(self, use: Access) -> bool:
        """Whether a use was reported as not ordered: its lifetime is another hazard once it is."""
        return any(pair.kind == "pair" and pair.second is use for pair in self.pairs.values())

    def remember_release(self, use: Access, block: Atom) -> None:
        """The block that a use of a pool was a use of, for messages."""
        if isinstance(block, New):
            self.engine.blocks.setdefault((use.span, use.stream), block)

    def first_allocation(self, blocks: Atom, before: frozenset[Atom], guard: Guard, span: Span) -> Span:
        """One place for all allocations that come after the same: a summary need not know them apart."""
        return self._allocations.setdefault((blocks, before, guard), span)

    def violation(
        self,
        name: str,
        span: Span,
        what: str,
        guard: Guard = guards.ALWAYS,
        notes: tuple[tuple[str, Span], ...] = (),
        tags: int = 0,
        reason: Reason | None = None,
    ) -> None:
        """An operation that is illegal where it stands."""
        key = ("violation", name, span)
        if key not in self.pairs:
            self.pairs[key] = Pair(
                "violation",
                None,
                None,
                span,
                guard=guard,
                tags=tags,
                violation=name,
                what=what,
                notes=notes,
                reason=reason,
            )

    def misuse(
        self, span: Span, what: str, reason: Reason, guard: Guard, recorded: Span | None = None, tags: int = 0
    ) -> None:
        """An event's time is asked for that has none: ``untimed``, ``unrecorded``, or ``pending``."""
        notes = (("recorded here", recorded),) if recorded is not None else ()
        self.violation("event-timing-misuse", span, what, guard, notes, tags, reason)

    def host_work(
        self,
        s: State,
        span: Span,
        what: str,
        code: str = "sync-in-capture",
        guard: Guard = guards.ALWAYS,
    ) -> None:
        """Something that is illegal while the current stream captures: a violation here, or in a caller's capture.

        Args:
            guard: what must hold for it, beside what holds here.
        """
        if guards.contradicts(guard, s.guard) or self.expects_failure(s):
            return
        guard = guard | s.guard
        s.work = s.work | {HostWork(code, what, span, guard, self.block)}
        if s.capture is not None:
            self.violation(code, span, what, guard, (("the capture begins here", s.capture.span),))

    def expects_failure(self, s: State) -> bool:
        """Whether what runs now is expected to raise: ``with pytest.raises(...)``."""
        return any(
            isinstance(atom, New) and self.role(atom) == "failure"
            for context in s.entered
            for atom in s.get(context)
        )

    def remember_waits(self, access: Access, waits: frozenset[Wait]) -> None:
        """Which waits were made before an access: the others may have been meant for it."""
        self.matters = self.matters or tag.concerns(access)
        known = self._first_waits.get(access)
        self._first_waits[access] = waits if known is None else known & waits

    def waits_before(self, access: Access) -> frozenset[Wait]:
        """The waits made before an access on every path."""
        return self._first_waits.get(access, frozenset())

    def engine_names(self, held: Value, name: str, owners: Value) -> None:
        """What a store calls an object, for messages: the first name counts, a field's before a local's."""
        for atom in held:
            if isinstance(atom, New) and not atom.age:
                whole = name
                for owner in ordered(owners):
                    if isinstance(owner, Path) and owner.root == SELF:
                        whole = ".".join((SELF, *owner.fields, name))
                self.engine.names.setdefault(atom.place, whole)

    def budget(self) -> int:
        """The tag of what rests on a budget that was hit and that keeps paths apart: the order on a path is lost."""
        return 0 if self.notes.isdisjoint(limits.PATHS) else tag.BUDGET


STREAMS: Final = frozenset(("current", "default", "lost", "communication"))
"""The symbols that are streams."""


def _one_by_one(held: Value) -> list[Atom]:
    """The atoms of a value; a method, or an attribute, of any of some objects is one for each of them."""
    found: list[Atom] = []
    for atom in ordered(held):
        if isinstance(atom, Bound) and len(atom.owner) > 1:
            found += [bound(frozenset((owner,)), atom.name) for owner in ordered(atom.owner)]
        else:
            found.append(atom)
    return found


_NEVER_RAISE: Final = (ir.Const, ir.Move, ir.Global, ir.Return, ir.Closure)

_TESTS: Final = {"true": guards.IS_TRUE, "none": guards.IS_NONE, "eq": guards.EQUALS}


def _tested(fn: ir.Function) -> frozenset[Reg]:
    """The locals of which conditions, or comparisons, ask."""
    found: set[Reg] = set()
    for block in fn.blocks:
        found.update(edge.assume.reg for edge in block.edges if edge.assume is not None)
        found.update(i.left for i in block.instrs if isinstance(i, ir.Compare))
    return frozenset(reg for reg in found if isinstance(reg, str))


def _drop_temporaries(s: State, live: frozenset[int]) -> None:
    """Temporaries that no other block reads die at the end of their block."""
    s.env = {r: v for r, v in s.env.items() if r.__class__ is not int or r in live}
    for reg in [r for r in s.choices if r.__class__ is int and r not in live]:
        del s.choices[reg]
    if s.views:
        s.views = {r: view for r, view in s.views.items() if r in s.env}
    if s.capturing.taken:
        s.capturing.taken = frozenset(each for each in s.capturing.taken if each.reg in s.env)


def registers(fn: ir.Function) -> list[Reg]:
    """The registers that may live across a ``yield``."""
    found: set[Reg] = locals_of(fn)
    for live in cfg.graph(fn).live.values():
        found |= live
    return sorted(found, key=str)


def locals_of(fn: ir.Function) -> set[Reg]:
    """The names of a function's local variables."""
    found: set[Reg] = {parameter.name for parameter in fn.params}
    for block in fn.blocks:
        for instruction in block.instrs:
            for position in _targets(instruction.__class__):
                target: object = instruction[position]
                found.update(
                    t for t in (target if isinstance(target, tuple) else (target,)) if isinstance(t, str)
                )
    return found


def _targets(kind: Any) -> tuple[int, ...]:
    """The positions of an instruction's targets."""
    found: tuple[int, ...] | None = _TARGETS.get(kind)
    if found is None:
        found = tuple(n for n, name in enumerate(kind._fields) if name in ("dst", "dsts"))
        _TARGETS[kind] = found
    return found


_TARGETS: dict[Any, tuple[int, ...]] = {}
