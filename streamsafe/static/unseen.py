"""Calls whose code is not seen: a careful author wrote them; their names may tell what they do.

One file: it is the one place that says what the analysis assumes of a call without visible code.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence

import libcst as cst

from streamsafe.order.edges import Edge
from streamsafe.order.symbolic import Guard
from streamsafe.static import apis, hints
from streamsafe.static.concrete import spelled
from streamsafe.static.facts import Assumed
from streamsafe.static.functions import Functions
from streamsafe.static.state import State
from streamsafe.static.tensors import Call
from streamsafe.static.values import (
    EACH,
    NONE,
    PLAIN,
    Api,
    Const,
    Container,
    Context,
    Event,
    Function,
    Instance,
    Method,
    Name,
    Object,
    Opaque,
    Stream,
    Tensor,
    Tuple,
    Union,
    Value,
    Work,
    is_iterated_parameter,
    iterate,
    under,
)


class Unseen(Functions):
    """What a call does whose code is not seen."""

    def unmodelled(self, function: Value, call: Call, st: State, name: str = "") -> Value:
        """A call whose code is not seen: a careful author wrote it.

        Told by its name to synchronize it does; given a stream or an event it orders what needs ordering; given
        tensors it reads them on the current stream and returns fresh ones written there; given neither it does
        nothing.
        """
        called = name or callable_text(function, call)
        values = [self.as_used_stream(value, st) for value in call.everything()]
        waits = bool(st.clocks) and self._may_wait(called, values, call, st)
        if waits:
            for clock in st.clocks:
                st.order.drop(("since", clock))
        found = self._ordering_by_name(function, called, call, st, name)
        if found is not None:
            return found
        streams = [v for value in values for v in iterate(value) if isinstance(v, (Stream, Event, Context))]
        self._order_before(values, streams, st)
        if called in apis.KEEPING_METHODS:
            return self.answer(function, called, Opaque(self.fresh(call.node, st, "result")), call, st)
        found = self._result_by_name(function, called, values, call, st, name)
        if found is not None:
            return found
        words = _named_as_numbers(call)
        touched = [v for v in values if not isinstance(v, Const) and not self._is_number(v, words, st)]
        # of an object that holds tensors among other things the result may be anything
        reached = [(v, self.tensors(st, v)) for v in touched]
        sure = any(
            isinstance(t, Tensor) or (isinstance(t, Opaque) and self.is_tensor(st, t))
            for v, tensors in reached
            for t, _ in tensors
            if t is v or not any(isinstance(inner, (Opaque, Instance)) and inner != t for inner in iterate(v))
        )
        method = name not in ("", "forward", "__call__") or spelled(hints.KEEPS_OR_SETS, called)
        method = method or waits
        # who takes CuPy's arrays by their addresses launches something or copies it while the host waits
        method = method or (isinstance(function, Api) and self.default_library == "cupy")
        tags = frozenset({"method"} if method else ())
        library = self.library_of(st, [*values, function])
        computes = isinstance(function, Opaque) and (function.name, "@computes") in st.store
        for value, tensors in reached:
            # who keeps an object reads nothing that it holds, who is given its streams with it orders what it reads
            whole = name.startswith("set_") or (len(tensors) > 0 and self._has_streams(value))
            self._read_given(
                value,
                [t for t in tensors if not whole or t[0] in iterate(value)],
                called,
                call,
                st,
                library,
                tags,
                computes=computes,
            )
        receiver = function.receiver if isinstance(function, Method) else function
        if isinstance(receiver, (Opaque, Instance)):
            self._read_held(receiver, called, call, st, name, library, tags)
        self._order_after(touched, streams, call, st, library)
        if called in apis.GENERATING_METHODS and any(tensors for _, tensors in reached):
            self.synchronize_stream(st, None, library, call.site)
        if called in apis.FILLING_METHODS:
            return PLAIN
        if not any(tensors for _, tensors in reached):
            return self.answer(function, called, Opaque(self.fresh(call.node, st, "result")), call, st)
        computed = self._computed_result(function, called, call, st, library, tags, sure=sure)
        if isinstance(computed, Object):
            for key, given in call.kwargs.items():
                if key in apis.RETURNED_ARGUMENTS:
                    st.store[(computed.name, key)] = given
        return computed

    def do_unseen(self, call: Call, st: State) -> Value:
        """A function of a library of which nothing else is known than what its name tells."""
        if call.text.rpartition(".")[2] in apis.HANDING_METHODS:
            return self.hand_over(call.text.rpartition(".")[2], call, st)
        return self.unmodelled(Api(call.text), call, st)

    def _has_streams(self, value: Value) -> bool:
        """Whether an object that nobody is seen to make has streams among its parts."""
        names = {v.name for v in iterate(value) if isinstance(v, Opaque)}
        return bool(names) and any(
            isinstance(carrier, Name) and carrier not in names and not names.isdisjoint(carrier.chain())
            for carrier in self.carriers.known()
        )

    def _is_number(self, value: Value, named: list[Value], st: State) -> bool:
        """Whether an argument nothing is known of is a rank, a count or words by its name."""
        return (
            isinstance(value, Opaque)
            and (
                value in named
                or (isinstance(value.name.site, str) and spelled(hints.NUMBER, value.name.site))
            )
            and value.name not in st.order.made
            and not self.is_tensor(st, value)
        )

    def _ordering_by_name(
        self, function: Value, called: str, call: Call, st: State, name: str
    ) -> Value | None:
        """What a call does whose name, or kernel, tells all of it."""
        if called in apis.SERIALIZERS:
            for value in call.everything():
                self.read_on_host(st, value, call.site, f"{called}()")
            return PLAIN
        if called in apis.EXPECTING_METHODS:
            return self.do_raises_context(call, st)
        if spelled(hints.CURRENT_STREAM, called):
            return (
                self.do_current_cupy_stream(call, st)
                if self.default_library == "cupy"
                else self.do_current_stream(call, st)
            )
        if called in apis.HOST_FUNCTIONS:
            return self.do_host_function(call, st)
        if spelled(hints.RECORDING_HELPER, called):
            return self.do_record_helper(call, st)
        if called in ("wait_stream", "wait_event") and isinstance(function, Api):
            for value in call.everything():  # of these one is the stream that waits
                if isinstance(value, (Stream, Opaque)):
                    st.order.learn_everything(value.name)
        if spelled(hints.SYNCHRONIZES, called):
            self.host_learns_everything(st, call.site)
            return NONE
        if called in apis.LIKE_FACTORIES:
            return self.factory(called, call, st)
        model = self.kernel_of(function, st)
        return self.launch_kernel(function, model, call, st, name) if model is not None else None

    def _may_wait(self, called: str, values: Sequence[Value], call: Call, st: State) -> bool:
        """Whether a call may return only when the device has done its work: nobody who reads a clock doubts that.

        It is asked to by a flag, or it is named for it and given a handle or nothing.
        """
        if any(call.kwargs.get(flag) == Const(True) for flag in _WAITING_FLAGS):
            return True
        return spelled(hints.MAY_WAIT, called) and not any(
            isinstance(t, Tensor) or (self.is_tensor(st, t) and t.name.base() not in self.presumed)
            for value in values
            for t, _ in self.tensors(st, value)
        )

    def _order_before(self, values: list[Value], streams: Sequence[Value], st: State) -> None:
        """Given streams, events or works it waits where that is needed."""
        if any(isinstance(v, (Stream, Event)) for v in streams):
            for s, guard in self.streams(st, "torch"):
                st.order.learn_everything(s.name, guard)
            for v in streams:
                if isinstance(v, (Stream, Event)):
                    st.order.learn_everything(v.name)
        for value in values:
            self.given_away(value, st)

    def given_away(self, value: Value, st: State) -> None:
        """Whoever is given an event records it where that is needed; given a work with its tensors it waits for it."""
        for held_value in self.parts_of(st, value):
            if isinstance(held_value, Event):
                st.store[(held_value.name, "@given")] = PLAIN
            elif isinstance(held_value, Work):
                for s, guard in self.streams(st, "torch"):
                    st.order.learn(s.name, held_value.name, guard=guard)

    def _result_by_name(
        self, function: Value, called: str, values: list[Value], call: Call, st: State, name: str
    ) -> Value | None:
        """What a call gives whose name tells that it computes nothing on the device."""
        kept = isinstance(function, Api) and called in apis.CONTAINER_METHODS
        if kept:
            return NONE  # it keeps what it is given
        if _constructs(called) and called not in apis.FILLING_METHODS:
            made_object = self.do_make_module(call, st)  # it stores what it is given
            if isinstance(made_object, Object) and not called.endswith("Tensor"):
                st.store[(made_object.name, "@built")] = PLAIN
                if isinstance(function, Api):
                    st.store[(made_object.name, "@class")] = Const(function.name)
            return made_object
        if called in apis.WRITING_DOWN:
            for value in values:
                self.read_on_host(st, value, call.site, f"{called}()")
            return NONE
        if name == "empty" and not values:  # as a queue is asked; a tensor has no such method
            return self.answer(function, called, Opaque(self.fresh(call.node, st, "result")), call, st)
        return None

    def _read_given(
        self,
        value: Value,
        tensors: list[tuple[Object, Guard]],
        called: str,
        call: Call,
        st: State,
        library: str,
        tags: frozenset[str],
        *,
        computes: bool,
    ) -> None:
        """It reads the tensors that an argument is, or leads to."""
        text = f"{called}()"
        for target, guard in tensors:
            one = under(target, guard)
            if self.is_host(st, target):
                if called in apis.FILLING_METHODS or value is call.kwargs.get("out"):
                    self.host_access(st, one, call.site, text, writes=True, assumed=Assumed.UNMODELLED)
                elif self.pending_copy(st, target):
                    # it may as well enqueue a copy from there
                    enqueues = Assumed.NOTHING if computes else Assumed.PLACE | Assumed.POSSIBLE
                    assumed = Assumed.UNMODELLED | enqueues
                    self.host_access(st, one, call.site, text, writes=False, assumed=assumed)
            elif isinstance(target, Tensor) or target.name in st.order.made or self.is_tensor(st, target):
                self.access(
                    st,
                    one,
                    call.site,
                    text,
                    writes=False,
                    library=library,
                    assumed=Assumed.UNMODELLED,
                    tags=tags,
                )

    def _read_held(
        self,
        receiver: Object,
        called: str,
        call: Call,
        st: State,
        name: str,
        library: str,
        tags: frozenset[str],
    ) -> None:
        """A module that is called needs its parameters, a method little of what its object holds."""
        text, assumed = f"{called}()", Assumed.UNMODELLED
        if not name or not self.within_standing(receiver, st):
            for target, guard in self.tensors(st, receiver):
                if target is receiver or self.is_host(st, target) or self.pending_copy(st, target):
                    continue
                if target.name in st.order.made and not self._hangs_on_parameter(st, target):
                    self.access(
                        st,
                        under(target, guard),
                        call.site,
                        text,
                        writes=False,
                        library=library,
                        assumed=assumed,
                        tags=tags,
                    )
        if name not in ("", "forward", "__call__"):
            return
        weights = self.parameter_of(receiver.name, st)
        for target, guard in self.tensors(st, weights) if weights is not None else ():
            one = under(target, guard)
            if self.pending_copy(st, target):  # to the host: there it computes
                self.host_access(st, one, call.site, text, writes=False, assumed=assumed)
            elif self._is_known(st, target) and not self.is_host(st, target):
                self.access(st, one, call.site, text, writes=False, library=library, assumed=assumed)

    @staticmethod
    def _is_known(st: State, target: Object) -> bool:
        """Whether something has been done to memory, or it was taken from a pool here."""
        return target.name in st.order.made or (target.name, "@allocated") in st.store

    @staticmethod
    def _hangs_on_parameter(st: State, target: Object) -> bool:
        """Whether a tensor is what the program has given the parameters as an attribute: no module knows of that."""
        if target.name.parent is not None and is_iterated_parameter(target.name.parent):
            return True
        return any(
            isinstance(key, str) and key != "data" and target in iterate(value)
            for owner, table in st.store.objects.items()
            if is_iterated_parameter(owner)
            for key, value in table.items()
        )

    def _order_after(
        self, touched: list[Value], streams: Sequence[Value], call: Call, st: State, library: str
    ) -> None:
        """What it did with the streams and events it was given is ordered, too, and what it used is recorded there."""
        for v in streams:
            if isinstance(v, (Stream, Event)):
                for s, guard in self.streams(st, "torch"):
                    st.order.obey([Edge(v.name, s.name)], guard)
            if isinstance(v, Stream):
                for value in touched:
                    self.recorded_on(st, value, [v, *(s for s, _ in self.streams(st, "torch"))])
        asked = call.kwargs.get("record_stream", NONE)  # the method's name for a flag: it calls it
        if any(not isinstance(v, Const) or v.value for v in iterate(asked)):
            for value in touched:
                self.record_stream(st, value, self.current(st, library), library, call.site)

    def _computed_result(
        self,
        function: Value,
        called: str,
        call: Call,
        st: State,
        library: str,
        tags: frozenset[str],
        *,
        sure: bool,
    ) -> Value:
        """What it makes of the tensors it was given, one of which is ``sure`` to be one."""
        out = call.kwargs.get("out")
        there = isinstance(out, Tensor) or (isinstance(out, Opaque) and out.name in st.order.made)
        if out is not None and there and not self.is_host(st, out):  # by custom it is filled, and given back
            text = f"{called}()"
            self.access(
                st, out, call.site, text, writes=True, library=library, assumed=Assumed.UNMODELLED, tags=tags
            )
            return out
        place = "device" if self.on_side_stream(st, library) and sure else ""
        made = self.new_tensor(
            st,
            call.site,
            f"{called}()",
            library=library,
            place=place,
            assumed=Assumed.UNMODELLED,
            opaque=True,
            tags=tags,
            allocated=not (tags and call.node is self.alone),  # whoever drops the result was given none
        )
        if place:
            st.store[(made.name, "@there")] = (
                PLAIN  # were it None, the call would have left nothing to wait for
            )
        if sure:
            self.presume_tensor(st, made)
            return made
        if st.capture is not None and isinstance(function, Opaque) and not tags:
            st.store[(made.name, "@computed")] = PLAIN  # what is called inside a capture computes there
        return self.answer(function, called, made, call, st)

    def as_used_stream(self, value: Value, st: State) -> Value:
        """Something of unknown kind that has been used as a stream is one."""
        if isinstance(value, Opaque) and value.name in self.carriers and self.is_used_as_stream(value, st):
            return self.as_stream(value, self.default_library)
        return value

    def within_standing(self, value: Value, st: State) -> bool:
        """Whether an object lives on beside a call of its method: ``self``, or a part of one.

        Of all that such an object holds, a method that is not seen needs little.
        """
        holders = [v for v in iterate(value) if isinstance(v, (Opaque, Instance))]
        if any(
            isinstance(v, Instance)
            or (isinstance(v, Opaque) and v.name.parent is not None and str(v.name.site).isidentifier())
            for v in holders
        ):
            return True
        names = {v.name for v in holders}
        for root in self.protocol_roots:
            if names.isdisjoint(st.store.leads(root)):
                continue
            for value in st.store.of(root).values():
                for inner in iterate(value) if type(value) is Union else (value,):
                    if isinstance(inner, Object) and inner.name in names and inner in holders:
                        return True
        return False

    def answer(self, function: Value, called: str, result: Value, call: Call, st: State) -> Value:
        """What a call that asks something gives: asked again with the same arguments it comes out alike.

        Until the call or the round of a loop that it stands in ends: then things may have changed. A setting, as the
        name calls it, is one object however often it is asked for; of another answer only what it says is the same.
        """
        # given something, only a getter tells of it what there is: others, ``degree(nodes)``, compute
        gets = called.lstrip("_").startswith("get_") or called.endswith("world_size")
        bare = all(isinstance(v, Const) for v in call.everything())
        group = bare and spelled(hints.GROUP, called)
        setting = (
            group
            or spelled(hints.CONFIGURATION, called)
            or ((bare or gets) and spelled(hints.SETTING, called))
        )
        receiver = function.receiver if isinstance(function, Method) else function
        subject = receiver.name if isinstance(receiver, Object) else None
        words = [subject.site] if subject is not None else []
        if isinstance(function, Api):
            words = list(function.name.split(".")[-2:-1])
        constant = any(isinstance(word, str) and word.isupper() for word in words)
        if not setting and not (isinstance(result, Object) and constant):
            return result
        key = (
            called,
            self.asked_of(subject, st) if subject is not None else receiver,
            tuple(map(self._argument, call.args, [st] * len(call.args))),
            tuple((k, self._argument(v, st)) for k, v in call.kwargs.items()),
        )
        if call.starred or None in key[2] or any(v is None for _, v in key[3]):
            return result
        for names in self.rounds if not group else ():
            names.add(Name(key))
        if setting:
            if not group and not spelled(hints.CONFIGURATION, called):
                self.plain.add(Name(key))
            return Opaque(Name(key))
        assert isinstance(result, Object)
        st.store[(result.name, "@asked")] = Const(key)
        return result

    def _argument(self, value: Value, st: State) -> Hashable | None:
        if isinstance(value, Const):
            return None if value.value is ... else ("constant", repr(value.value))
        return self.asked_of(value.name, st) if isinstance(value, Opaque) else None

    @staticmethod
    def asked_of(name: Name, st: State) -> Hashable:
        """An object, or the question of which it is the answer."""
        asked = st.store.get((name, "@asked"))
        return asked.value if isinstance(asked, Const) else name

    def do_record_helper(self, call: Call, st: State) -> Value:
        """A helper that records what it is given on a stream, the current one where it is given none."""
        values = call.everything()
        streams = [v for v in values if any(isinstance(inner, Stream) for inner in iterate(v))]
        if not streams and len(values) > 1 and isinstance(values[-1], Opaque):
            streams = values[-1:]
        on = self.as_stream(streams[0], "torch") if streams else self.current(st, "torch")
        for value in values:
            if value not in streams:
                self.record_stream(st, value, on, "torch", call.site)
        return NONE

    def parts_of(self, st: State, value: Value, depth: int = 0) -> Iterator[Value]:
        """A value and what it holds."""
        for inner in iterate(value):
            yield inner
            held = list(inner.items) if isinstance(inner, Tuple) else []
            if isinstance(inner, (Container, Instance, Opaque)):
                held = self.held(inner, st)
            for part in held if depth < 3 else ():
                yield from self.parts_of(st, part, depth + 1)


def callable_text(function: Value, call: Call) -> str:
    """What a callable is called."""
    if isinstance(function, Api):
        return function.name.rpartition(".")[2]
    if isinstance(function, Function):
        return function.unit.name
    if isinstance(function, Object) and isinstance(function.name.site, str):
        return "element" if function.name.site == EACH else function.name.site
    return call.text.rpartition(".")[2] or "call"


def _named_as_numbers(call: Call) -> list[Value]:
    """The arguments that are written as names of numbers or of words."""
    if call.starred or not isinstance(call.node, cst.Call):
        return []
    nodes = sorted(call.node.args, key=lambda a: a.keyword is not None)
    return [
        v
        for a, v in zip(nodes, call.everything(), strict=False)
        if isinstance(a.value, cst.Attribute) and spelled(hints.NUMBER, a.value.attr.value)
    ]


def _constructs(name: str) -> bool:
    """Whether a callable is a class, by its name."""
    bare = name.lstrip("_")
    return (bare[:1].isupper() and bare.upper() != bare) or bare == "cls" or bare.endswith(("_class", "_cls"))


_WAITING_FLAGS = ("sync", "synchronize", "blocking", "block", "wait")
"""Parameters by which a call is asked to return when its work is done."""
