"""Whoever calls a module or a function and is not seen: what is given to it, and what becomes of what it returns."""

from __future__ import annotations

import libcst as cst

from streamsafe.order.symbolic import ALWAYS, Made
from streamsafe.static.concrete import walk
from streamsafe.static.facts import AMBIENT, CALLER, ENTERED, Assumed, Detail
from streamsafe.static.interpreter import Interpreter
from streamsafe.static.source import FunctionUnit
from streamsafe.static.state import State
from streamsafe.static.transfer.call_stack import Activation
from streamsafe.static.values import NONE, UNTIL, Function, Instance, Name, Partial, Stream, Value, under

_JOINS = frozenset({"wait_stream", "wait_event"})


def given(interpreter: Interpreter, unit: FunctionUnit, st: State, *, last: bool = False) -> None:
    """Whoever calls a module has written its inputs on the stream that is current there.

    Args:
        interpreter: what interprets the function.
        unit: the function.
        st: changed in place.
        last: only what comes last was written then: what a module has computed, to the hook that it calls.
    """
    interpreter.run.stack = [Activation(Name("caller"), None, unit.slice)]
    for parameter in unit.head.params.params[-1:] if last else unit.head.params.params[1:]:
        if parameter.default is None:
            word = parameter.name.value
            detail = Detail("the caller", word, Assumed.METHODS, frozenset(), unit.qualname)
            name = Name(word, (id(unit.node),))
            for stream, guard in interpreter.effects.possible_streams(st, "torch"):
                st.order.add(
                    Made(interpreter.call_stack.site(parameter), name, None, True, stream.name, detail), guard
                )
    interpreter.run.stack = []


def begun(interpreter: Interpreter, unit: FunctionUnit, st: State) -> None:
    """Whoever calls a function may have written what it gives on the stream that is current there."""
    if not any(d.calls & _JOINS for d in interpreter.run.file.definitions.get(unit.qualname, ())):
        return
    interpreter.run.stack = [Activation(Name("caller"), None, unit.slice)]
    plain = [parameter for parameter in unit.head.params.params if parameter.default is None]
    interpreter.run.from_caller = {
        Name(p.name.value, (id(unit.node),)): interpreter.call_stack.site(p) for p in plain
    }
    if plain:
        detail = Detail("the caller", "", Assumed.METHODS, frozenset(), unit.qualname)
        st.order.add(Made(interpreter.call_stack.site(unit.node), ENTERED, None, True, CALLER, detail))
        for stream, guard in [(Stream(AMBIENT), ALWAYS), *interpreter.effects.possible_streams(st, "torch")]:
            st.order.learn(stream.name, CALLER, guard=guard)
    interpreter.run.stack = []


def settle(interpreter: Interpreter, entry: str, st: State) -> None:
    """A function that makes the current stream wait for what it runs elsewhere has that wait for the current one.

    One that does not may be meant for callers who order its inputs themselves: what they have written counts
    only where the function itself joins, and where nothing else shows that it does not fork.
    """
    if not interpreter.run.from_caller:
        return
    interpreter.run.from_caller = {}
    st.order.drop(ENTERED)
    bit = interpreter.run.carriers.bit(AMBIENT)
    shown = {f.streams for f in interpreter.run.findings.values() if f.entry == entry}
    for key, finding in list(interpreter.run.findings.items()):
        if finding.entry != entry or finding.streams[0] != CALLER:
            continue
        timeline = finding.streams[1]
        joined = [
            ways
            for made, ways in st.order.accesses(finding.buffer).items()
            if made.site == finding.second and made.timeline == timeline
        ]
        known = joined and all(way.carriers & bit for ways in joined for way in ways)
        # after a hazard it is only supposed that the second timeline has waited
        if not known or not shown.isdisjoint({(AMBIENT, timeline), (timeline, AMBIENT)}):
            del interpreter.run.findings[key]
        else:
            finding.streams = (AMBIENT, timeline)


def iterated(interpreter: Interpreter, instance: Instance, unit: FunctionUnit, st: State) -> None:
    """Whoever iterates over an object reads each element on the current stream, and has it until the next one is there.

    What that stream has not waited for is left to ``taken``: it may come with what to wait for.
    """
    returns = [node for node in walk(unit.node) if isinstance(node, cst.Return)]
    if not returns:
        return
    frame = Name(f"walk of {unit.qualname}")
    interpreter.run.stack = [Activation(frame, None, unit.slice)]
    site = interpreter.call_stack.site(returns[-1])
    bit = interpreter.run.carriers.bit(AMBIENT)

    def consumer(value: Value, current: State) -> None:
        interpreter.containers.lose(current, current.store.get((frame, "element"), NONE))
        current.store[(frame, "element")] = value
        interpreter.lifetimes.release_unreachable(current, site)
        for target, guard in interpreter.memory.tensors_in(current, value):
            ways = [way for found in current.order.accesses(target.name).values() for way in found]
            if (
                ways
                and all(way.carriers & bit for way in ways)
                and not interpreter.tensors.is_host(current, target)
            ):
                read = under(target, guard)
                interpreter.accesses.access(
                    current, read, site, "the caller", writes=False, assumed=Assumed.METHODS
                )

    iterable: Value = instance
    if unit.name != "__next__":
        iterable = Partial(UNTIL, (Function(unit, None, instance), NONE), ())
    interpreter.iteration.iterate_over(iterable, st, unit.node, consumer)
    interpreter.run.stack = []


def taken(
    interpreter: Interpreter, unit: FunctionUnit, result: Value, st: State, *, recorded: bool = False
) -> None:
    """Whoever calls a module, or iterates, reads what it gets on the stream that is current there.

    Where it is ordered before some other stream, an event or the host, that is how it is meant to be waited for.

    Args:
        recorded: only what has been recorded on that stream counts, as something is that will be used there.
    """
    covering = interpreter.lifetimes.covering
    values = [
        (value, guard)
        for value, guard in interpreter.memory.tensors_in(st, result)
        # of several one may have been made before, and waited for
        if not (
            interpreter.tensors.is_host(st, value)
            or value.name.is_older()
            or interpreter.accesses.is_some_element(value.name)
        )
        and (not recorded or AMBIENT in covering(st, value.name))
    ]
    returns = [node for node in walk(unit.node) if isinstance(node, cst.Return)] if values else []
    if not returns:
        return
    held = ~0
    if recorded:  # what nobody has any more nobody can wait for
        names = interpreter.lifetimes.reachable(st, [result]) | {AMBIENT}
        held = sum(interpreter.run.carriers.bit(c) for c in interpreter.run.carriers.known() if c in names)
    interpreter.run.stack = [Activation(Name("caller"), None, unit.slice)]
    site = interpreter.call_stack.site(returns[-1])
    for value, guard in values:
        for made, ways in st.order.accesses(value.name).items():
            others = held & ~interpreter.run.carriers.bit(made.timeline)
            if made.writes and not any(way.carriers & others for way in ways):
                read = under(value, guard)
                interpreter.accesses.access(
                    st, read, site, "the caller", writes=False, assumed=Assumed.METHODS
                )
                break
    interpreter.run.stack = []
