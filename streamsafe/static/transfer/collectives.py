"""Collectives and point-to-point calls of ``torch.distributed`` (TD rows)."""

from __future__ import annotations

from functools import partial

from streamsafe.order.symbolic import ALWAYS
from streamsafe.static import fields, hints
from streamsafe.static.concrete import spelled
from streamsafe.static.facts import Assumed
from streamsafe.static.state import State
from streamsafe.static.transfer.part import Part
from streamsafe.static.transfer.tensors import COMMUNICATION, Call
from streamsafe.static.values import (
    NONE,
    UNKNOWN,
    Api,
    Const,
    Container,
    Event,
    Name,
    Opaque,
    Stream,
    Tensor,
    Tuple,
    Value,
    Work,
    iterate,
    under,
)


class Collectives(Part):
    """Verbs of distributed communication."""

    def do_collective(self, call: Call, st: State) -> Value:
        """A collective: on the current stream, or with ``async_op=True`` on a stream of its own."""
        name = call.text.rpartition(".")[2]
        if spelled(hints.RECORDING_HELPER, name):
            return self.assumed_order.do_record_helper(call, st)
        if name in ("barrier", "monitored_barrier"):
            self.captures.sync_in_capture(st, call.site, call.text, Assumed.UNMODELLED)
            self.effects.host_learns_everything(st, call.site)
            return NONE
        if name.startswith(
            (
                "get_",
                "is_",
                "init_",
                "new_",
                "destroy",
                "Process",
                "_coalescing_manager_",
                "Reduce",
                "split",
                "Device",
            )
        ):
            return UNKNOWN
        if name == "_coalescing_manager":  # one work for all that is enqueued inside, there once they are
            work = self.objects.fresh(call.node, st, "work")
            self.run.own_events.add(work)
            st.store[(work, fields.COALESCED_ON)] = Stream(self._communication(call, name))
            return Work(work)
        flag = call.kwargs.get("async_op")
        if flag is not None and not isinstance(flag, Const):
            outcomes = self.predicates.truth(flag, st, call.node)
            if all(guard != ALWAYS for _, guard in outcomes):  # a later test of the flag gives the same

                def chosen(outcome: bool, st: State) -> Value:
                    known = {**call.kwargs, "async_op": Const(outcome)}
                    return self.do_collective(Call(call.node, call.site, call.args, known, call.text), st)

                return self.calls.each_way([(flag, guard, partial(chosen, o)) for o, guard in outcomes], st)
        tensors = [
            a for a in call.args if any(isinstance(v, (Tensor, Opaque, Container)) for v in iterate(a))
        ]
        tensors += [v for k, v in call.kwargs.items() if "tensor" in k or k in ("input", "output")]
        self.tensors.rows_are_tensors(st, tensors)
        stream: Stream | None = None
        if call.kwargs.get("async_op") == Const(True) or name in ("isend", "irecv"):
            stream = Stream(self._communication(call, name))
            self._begin_communication(stream, call, st)
        two = name.endswith(("_tensor", "_base", "_single")) or name in (
            "all_gather",
            "all_to_all",
            "reduce_scatter",
        )
        outputs: list[Value] = []
        for position, value in enumerate(tensors[:2]):
            writes = name not in ("send", "isend") and (position == 0 or not two)
            if not two and position > 0:
                continue
            self._communicate(value, name, call, st, stream, writes=writes)
            outputs += [under(t, g) for t, g in self.memory.tensors_in(st, value)] if writes else []
        if stream is None:
            return NONE
        begun = self._work(stream, call, st)
        if name not in ("isend", "irecv"):  # it holds them as long as it lives, waited for or not (TD-07)
            st.store[(begun.name, "outputs")] = Tuple(tuple(outputs))
        return begun

    def _begin_communication(self, stream: Stream, call: Call, st: State) -> None:
        """What is enqueued asynchronously comes after the current stream's work so far."""
        waits = st.waits  # the library's own wait is meant for nothing else
        self.effects.wait_stream(st, stream, self.effects.current(st, "torch"), "torch", call.site)
        st.waits = waits

    def _communicate(
        self, value: Value, name: str, call: Call, st: State, stream: Stream | None, *, writes: bool
    ) -> None:
        # the work holds what it is given until it is waited for, or has been seen to complete (TD-07)
        tags = frozenset({"kept alive"}) if stream is not None else frozenset[str]()
        for inner, guard in self.memory.tensors_in(st, value):
            one = under(inner, guard)
            if self.tensors.is_host(st, inner):  # a backend for host memory: no stream takes part
                self.accesses.host_access(st, one, call.site, f"{name}()", writes=name in ("recv", "irecv"))
            else:
                self.accesses.access(st, one, call.site, f"{name}()", writes=writes, stream=stream, tags=tags)

    def _work(self, stream: Stream, call: Call, st: State) -> Work:
        work = self.objects.fresh(call.node, st, "work")
        self.run.own_events.add(work)
        self.effects.record(st, Event(work), stream, "torch", call.site)
        return Work(work)

    def do_make_p2p(self, call: Call, st: State) -> Value:
        """``P2POp(op, tensor, peer, group=None)``: what ``batch_isend_irecv`` is to do."""
        name = self.objects.fresh(call.node, st, "operation")
        for position, key in enumerate(("op", "tensor", "peer", "group")):
            value = call.get(position, key)
            if value is not None:
                st.store[(name, key)] = value
        return Opaque(name)

    def do_batch_p2p(self, call: Call, st: State) -> Value:
        """``batch_isend_irecv(operations)``: each as ``isend`` or ``irecv`` does it; NCCL gives one work for all."""
        operations = self._operations(call.get(0, "p2p_op_list") or UNKNOWN, st)
        if not operations:
            return UNKNOWN
        groups = (st.store.get((operation.name, "group")) for operation in operations)
        stream = Stream(self._stream_of(next(filter(None, groups), None)))
        self._begin_communication(stream, call, st)
        for operation in operations:
            for kind in iterate(st.store.get((operation.name, "op"), UNKNOWN)):
                name = kind.name.rpartition(".")[2] if isinstance(kind, Api) else "isend"
                tensor = st.store.get((operation.name, "tensor"), UNKNOWN)
                self._communicate(tensor, name, call, st, stream, writes=name == "irecv")
        return self.containers.container(call.node, st, "list", [self._work(stream, call, st)])

    def _operations(self, given: Value, st: State) -> list[Opaque]:
        """The operations in a list; where it is not known exactly, of those that one line has made the newest."""
        known = self.iterables.known_items(given, st)
        if known is None:
            lists = [v for v in iterate(given) if isinstance(v, Container)]
            known = [value for inner in lists for value in self.containers.held(inner, st)]
        newest: dict[Name, Opaque] = {}
        for operation in (inner for value in known for inner in iterate(value)):
            if isinstance(operation, Opaque) and (operation.name, "op") in st.store:
                other = newest.setdefault(operation.name.base(), operation)
                if operation.name.age < other.name.age:
                    newest[operation.name.base()] = operation
        return list(newest.values())

    @classmethod
    def _communication(cls, call: Call, name: str) -> Name:
        """The stream of an asynchronous collective: each group has its own."""
        position = {"isend": 2, "irecv": 2, "_coalescing_manager": 0}.get(name, -1)
        return cls._stream_of(call.get(position, "group"))

    @staticmethod
    def _stream_of(group: Value | None) -> Name:
        return Name(COMMUNICATION.site, (group.name.base(),)) if isinstance(group, Opaque) else COMMUNICATION
