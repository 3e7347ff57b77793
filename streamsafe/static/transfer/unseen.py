"""Calls whose code is not seen: a careful author wrote them; their names may tell what they do."""

from __future__ import annotations

from collections.abc import Hashable

import libcst as cst

from streamsafe.apis import names as apis
from streamsafe.order.symbolic import Guard
from streamsafe.static import fields, hints
from streamsafe.static.concrete import spelled
from streamsafe.static.facts import Assumed
from streamsafe.static.state import State
from streamsafe.static.transfer.part import Part
from streamsafe.static.transfer.tensors import Call
from streamsafe.static.values import (
    EACH,
    NONE,
    PLAIN,
    Api,
    Const,
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
    Value,
    is_iterated_parameter,
    iterate,
    under,
)


class Unseen(Part):
    """What a call does whose code is not seen."""

    def unmodelled(self, function: Value, call: Call, st: State, name: str = "") -> Value:
        """A call whose code is not seen: a careful author wrote it.

        Told by its name to synchronize it does; given a stream or an event it orders what needs ordering; given
        tensors it reads them on the current stream and returns fresh ones written there; given neither it does
        nothing.
        """
        called = name or callable_text(function, call)
        values = [self.assumed_order.as_used_stream(value, st) for value in call.everything()]
        waits = bool(st.clocks) and self.assumed_order.may_wait(called, values, call, st)
        if waits:
            for clock in st.clocks:
                st.order.drop(("since", clock))
        found = self.assumed_order.ordering_by_name(function, called, call, st, name)
        if found is not None:
            return found
        streams = [v for value in values for v in iterate(value) if isinstance(v, (Stream, Event, Context))]
        self.assumed_order.order_before(values, streams, st)
        if called in apis.KEEPING_METHODS:
            return self.answer(
                function, called, Opaque(self.objects.fresh(call.node, st, "result")), call, st
            )
        found = self._result_by_name(function, called, values, call, st, name)
        if found is not None:
            return found
        words = _named_as_numbers(call)
        touched = [v for v in values if not isinstance(v, Const) and not self._is_number(v, words, st)]
        # of an object that holds tensors among other things the result may be anything
        reached = [(v, self.memory.tensors_in(st, v)) for v in touched]
        sure = any(
            isinstance(t, Tensor) or (isinstance(t, Opaque) and self.expressions.is_tensor(st, t))
            for v, tensors in reached
            for t, _ in tensors
            if t is v or not any(isinstance(inner, (Opaque, Instance)) and inner != t for inner in iterate(v))
        )
        method = name not in ("", "forward", "__call__") or spelled(hints.KEEPS_OR_SETS, called)
        method = method or waits
        # who takes CuPy's arrays by their addresses launches something or copies it while the host waits
        library = self.tensors.library_of(st, [*values, function])
        method = method or (isinstance(function, Api) and library == "cupy")
        tags = frozenset({"method"} if method else ())
        computes = isinstance(function, Opaque) and st.store.marked(function.name, fields.COMPUTES_AT_INPUT)
        for value, tensors in reached:
            # who keeps an object reads nothing that it holds, who is given its streams with it orders what it reads
            whole = name.startswith("set_") or (len(tensors) > 0 and self._has_streams(value))
            self._read_argument(
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
        self.assumed_order.order_after(touched, streams, call, st, library)
        if called in apis.GENERATING_METHODS and any(tensors for _, tensors in reached):
            self.effects.synchronize_stream(st, None, library, call.site)
        if called in apis.FILLING_METHODS:
            return PLAIN
        if not any(tensors for _, tensors in reached):
            return self.answer(
                function, called, Opaque(self.objects.fresh(call.node, st, "result")), call, st
            )
        computed = self._computed_result(function, called, call, st, library, tags, sure=sure)
        if isinstance(computed, Object):
            for key, given in call.kwargs.items():
                if key in apis.RETURNED_ARGUMENTS:
                    st.store[(computed.name, key)] = given
        return computed

    def do_unseen(self, call: Call, st: State) -> Value:
        """A function of a library of which nothing else is known than what its name tells."""
        if call.text.rpartition(".")[2] in apis.HANDING_METHODS:
            return self.methods.pass_to_receiver(call.text.rpartition(".")[2], call, st)
        return self.unmodelled(Api(call.text), call, st)

    def _has_streams(self, value: Value) -> bool:
        """Whether an object that nobody is seen to make has streams among its parts."""
        names = {v.name for v in iterate(value) if isinstance(v, Opaque)}
        return bool(names) and any(
            isinstance(carrier, Name) and carrier not in names and not names.isdisjoint(carrier.chain())
            for carrier in self.run.carriers.known()
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
            and not self.expressions.is_tensor(st, value)
        )

    def _result_by_name(
        self, function: Value, called: str, values: list[Value], call: Call, st: State, name: str
    ) -> Value | None:
        """What a call gives whose name tells that it computes nothing on the device."""
        kept = isinstance(function, Api) and called in apis.CONTAINER_METHODS
        if kept:
            return NONE  # it keeps what it is given
        if _constructs(called) and called not in apis.FILLING_METHODS:
            made_object = self.torch_modules.do_make_module(call, st)  # it stores what it is given
            if isinstance(made_object, Object) and not called.endswith("Tensor"):
                st.store.mark(made_object.name, fields.CONSTRUCTED)
                if isinstance(function, Api):
                    st.store[(made_object.name, fields.CLASS_NAME)] = Const(function.name)
            return made_object
        if called in apis.WRITING_DOWN:
            for value in values:
                self.tensors.read_on_host(st, value, call.site, f"{called}()")
            return NONE
        if name == "empty" and not values:  # as a queue is asked; a tensor has no such method
            return self.answer(
                function, called, Opaque(self.objects.fresh(call.node, st, "result")), call, st
            )
        return None

    def _read_argument(
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
            if self.tensors.is_host(st, target):
                if called in apis.FILLING_METHODS or value is call.kwargs.get("out"):
                    self.accesses.host_access(
                        st, one, call.site, text, writes=True, assumed=Assumed.UNMODELLED
                    )
                elif self.tensors.pending_copy(st, target):
                    # it may as well enqueue a copy from there
                    enqueues = Assumed.NOTHING if computes else Assumed.PLACE | Assumed.POSSIBLE
                    assumed = Assumed.UNMODELLED | enqueues
                    self.accesses.host_access(st, one, call.site, text, writes=False, assumed=assumed)
            elif (
                isinstance(target, Tensor)
                or target.name in st.order.made
                or self.expressions.is_tensor(st, target)
            ):
                self.accesses.access(
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
        if not name or not self.assumed_order.within_standing(receiver, st):
            for target, guard in self.memory.tensors_in(st, receiver):
                if (
                    target is receiver
                    or self.tensors.is_host(st, target)
                    or self.tensors.pending_copy(st, target)
                ):
                    continue
                if target.name in st.order.made and not self._hangs_on_parameter(st, target):
                    self.accesses.access(
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
        weights = self.attributes.parameter_of(receiver.name, st)
        for target, guard in self.memory.tensors_in(st, weights) if weights is not None else ():
            one = under(target, guard)
            if self.tensors.pending_copy(st, target):  # to the host: there it computes
                self.accesses.host_access(st, one, call.site, text, writes=False, assumed=assumed)
            elif self._is_known(st, target) and not self.tensors.is_host(st, target):
                self.accesses.access(st, one, call.site, text, writes=False, library=library, assumed=assumed)

    @staticmethod
    def _is_known(st: State, target: Object) -> bool:
        """Whether something has been done to memory, or it was taken from a pool here."""
        return target.name in st.order.made or (target.name, fields.ALLOCATED_ON) in st.store

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
        if (
            out is not None and there and not self.tensors.is_host(st, out)
        ):  # by custom it is filled, and given back
            text = f"{called}()"
            self.accesses.access(
                st, out, call.site, text, writes=True, library=library, assumed=Assumed.UNMODELLED, tags=tags
            )
            return out
        place = "device" if self.tensors.on_side_stream(st, library) and sure else ""
        made = self.tensors.new_tensor(
            st,
            call.site,
            f"{called}()",
            library=library,
            place=place,
            assumed=Assumed.UNMODELLED,
            opaque=True,
            tags=tags,
            allocated=not (tags and call.node is self.run.alone),  # whoever drops the result was given none
        )
        if place:
            # were it None, the call would have left nothing to wait for
            st.store.mark(made.name, fields.NEVER_NONE)
        if sure:
            self.tensors.presume_tensor(st, made)
            return made
        if st.capture is not None and isinstance(function, Opaque) and not tags:
            # what is called inside a capture computes there
            st.store.mark(made.name, fields.COMPUTED_IN_CAPTURE)
        return self.answer(function, called, made, call, st)

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
            self.query_key(subject, st) if subject is not None else receiver,
            tuple(map(self._argument, call.args, [st] * len(call.args))),
            tuple((k, self._argument(v, st)) for k, v in call.kwargs.items()),
        )
        if call.starred or None in key[2] or any(v is None for _, v in key[3]):
            return result
        for names in self.run.rounds if not group else ():
            names.add(Name(key))
        if setting:
            if not group and not spelled(hints.CONFIGURATION, called):
                self.run.plain.add(Name(key))
            return Opaque(Name(key))
        assert isinstance(result, Object)
        st.store[(result.name, fields.QUERY)] = Const(key)
        return result

    def _argument(self, value: Value, st: State) -> Hashable | None:
        if isinstance(value, Const):
            return None if value.value is ... else ("constant", repr(value.value))
        return self.query_key(value.name, st) if isinstance(value, Opaque) else None

    @staticmethod
    def query_key(name: Name, st: State) -> Hashable:
        """An object, or the question of which it is the answer."""
        query = st.store.one(name, fields.QUERY)
        return query.value if query is not None else name


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
