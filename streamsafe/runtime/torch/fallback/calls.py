"""One operator: what it reads and writes is given to the engine before it runs, its new results after it."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Any

from streamsafe.order.memory import HOST, Use
from streamsafe.runtime.monitor import Monitor
from streamsafe.runtime.places import Site
from streamsafe.runtime.torch.fallback.call import Call, Seen, Uses
from streamsafe.runtime.torch.fallback.captured import Captured
from streamsafe.runtime.torch.fallback.memory import Memory, use_of
from streamsafe.runtime.torch.fallback.roles import Role

if TYPE_CHECKING:
    from streamsafe.runtime.torch.fallback.watch import Fallback


BETWEEN_STREAMS = ("between streams",)
"""The key of an event of nobody's, by which one stream of a collective comes after another."""


class Calls:
    """Makes calls of one session."""

    def __init__(self, watch: Fallback, monitor: Monitor, memory: Memory) -> None:
        self._watch = watch
        self._monitor = monitor
        self._memory = memory
        self._torch = watch._torch

    def make(self, call: Call, run: Callable[[], Any]) -> Any:
        """Check it, run it, check its results.

        Raises:
            StreamHazardError: it completes a hazard. Its results' reuse of memory is found after it has run.
        """
        operator, here = call.operator, self._watch.here
        name, site = operator.name, call.site
        if call.backward is not None:
            name, site = self._watch.passes.work(name, site, call.backward)
        seen = Seen()
        for argument in operator.arguments:
            self._see(seen, operator.value(argument.name, call.args, call.kwargs), argument.role)
        by_host, by_stream = self._host_sides(call, seen, site)
        index = next(iter(seen.devices), None)
        if self._watch.capturing:
            Captured(self._watch, self._monitor).check(call, index, by_stream, name, site)
        if by_host and self._monitor.host:
            self._monitor.host_access(by_host.reads, by_host.writes, name, site=site)
        if by_stream:
            seen.devices[0 if index is None else index].reads += by_stream.reads
            seen.devices[0 if index is None else index].writes += by_stream.writes
        if operator.collective and seen.devices:
            self._check(seen, name, site)
        else:
            self._enqueue(seen.devices, name, site, call)
        before = here.site, here.collective, here.within
        here.inside += 1
        within: list[Use] = []
        here.site, here.collective, here.within = site, None, within
        try:
            if operator.collective and seen.devices:
                result = self._collective(seen, name, site, run)
            else:
                result = run()
        finally:
            here.inside -= 1
            here.site, here.collective, here.within = before
            if here.within is not None:
                here.within += within
        if call.backward is None and self._torch.is_grad_enabled():
            self._watch.passes.remember(site)
        if operator.results:
            self._results(call, seen, by_host, result, name, site, within)
        return result

    # -- arguments ---------------------------------------------------------------------------------------------------

    def _see(self, seen: Seen, value: Any, role: Role, made: Site | None = None) -> None:
        """Notes the tensors of a value.

        Args:
            made: the line that has just made them, where they are results.
        """
        if isinstance(value, self._torch.Tensor):
            if (role is not Role.METADATA or made is not None) and not self._watch.is_wrapper(type(value)):
                self._see_tensor(seen, value, role, made)
        elif isinstance(value, (list, tuple)):
            for each in value:
                self._see(seen, each, role, made)
        elif isinstance(value, dict):
            for each in value.values():
                self._see(seen, each, role, made)

    def _see_tensor(self, seen: Seen, tensor: Any, role: Role, made: Site | None) -> None:
        torch = self._torch
        if tensor.layout is not torch.strided:
            for part in _parts(torch, tensor):
                self._see_tensor(seen, part, role, made)
            return
        if tensor.device.type not in ("cuda", "cpu") or not tensor.numel():
            return
        try:
            storage = tensor.untyped_storage()
            base = storage.data_ptr()
        except (RuntimeError, NotImplementedError):
            return  # it has no memory: zeros of forward-mode differentiation, tensors of a tracer
        if not base:
            return
        if tensor.device.type == "cpu":
            seen.cpu.append((tensor, role))
            return
        device = tensor.device.index
        if made is None:
            self._memory.know(device, storage, base)
        else:
            self._memory.know(device, storage, base, self._watch.queue(device)[0], made)
        if role is not Role.METADATA:
            seen.devices[device].add(use_of(tensor, device, base), role, base)

    # -- host memory -------------------------------------------------------------------------------------------------

    def _host_sides(self, call: Call, seen: Seen, site: Site) -> tuple[Uses, Uses]:
        """What the host touches of pinned memory in use, and what a stream does."""
        by_host, by_stream = Uses(), Uses()
        if not self._monitor.host or not (seen.cpu or call.operator.copy):
            return by_host, by_stream
        copying = call.operator.copy and self._crosses(call, seen)
        non_blocking = bool(call.operator.value("non_blocking", call.args, call.kwargs))
        for tensor, role in seen.cpu:
            storage = tensor.untyped_storage()
            base = storage.data_ptr()
            known = self._memory.holds_host(base, base + storage.nbytes())
            if copying and not known and non_blocking and tensor.is_pinned():
                self._memory.know_host(storage, base, ())
                known = True
            if not known:
                continue
            # what is not contiguous goes through a temporary of the host's (TM-16, TM-17)
            side = by_stream if copying and tensor.is_contiguous() else by_host
            side.add(use_of(tensor, HOST, base), role, base)
        return by_host, by_stream

    def _crosses(self, call: Call, seen: Seen) -> bool:
        """Whether a copy is between host and device."""
        target = call.operator.value("device", call.args, call.kwargs)
        return bool(seen.devices) or (target is not None and self._torch.device(target).type == "cuda")

    # -- the engine --------------------------------------------------------------------------------------------------

    def _enqueue(self, devices: dict[int, Uses], name: str, site: Site, call: Call) -> None:
        """On the current stream of each device that takes part."""
        for device, uses in devices.items():
            key, _ = self._watch.queue(device)
            if self._watch.here.within is not None:
                self._watch.here.within += uses.writes
            self._monitor.access(key, uses.reads, uses.writes, name, site=site)
            if call.backward is not None:
                for base in uses.bases:
                    self._memory.cover(base, key)

    def _check(self, seen: Seen, name: str, site: Site) -> None:
        """Before a collective: what the current stream does not come after, its own stream does not either."""
        monitor = self._monitor
        for device, uses in seen.devices.items():
            key, _ = self._watch.queue(device)
            with monitor.lock:
                monitor.drain()
                conflicts = monitor.checker.check_access(
                    key, uses.reads, uses.writes, operation=name, host=monitor.thread, site=site
                )
            if conflicts:
                monitor.report(conflicts)

    def _collective(self, seen: Seen, name: str, site: Site, run: Callable[[], Any]) -> Any:
        """Its work is on the stream that first waits in it, other than the current one, and comes right after that.

        NCCL's events are recorded after it, and gloo's work is done by a thread of its own, on one stream for what it
        reads and then on one for what it writes. Where no stream waits, the work is on the current one.
        """
        watch = self._watch
        left = dict(seen.devices)

        def begin(device: int, key: Hashable) -> None:
            uses, line = left.pop(device), self._monitor.checker.timeline(key)
            shown, line.shown = (
                line.shown,
                False,
            )  # an event that was recorded in the operator covers the work
            try:
                self._monitor.access(key, uses.reads, uses.writes, name, may_raise=False, site=site)
            finally:
                line.shown = shown
            for base in uses.bases:
                self._memory.cover(base, key)

        on: dict[int, Hashable] = {}

        def waited(stream: int) -> None:
            device = self._torch.cuda.current_device()
            if device not in seen.devices or stream == watch.queue(device)[1]:
                return
            key = watch.communication(device, stream)
            if device in left:
                begin(device, key)
            elif key != on[device]:
                checker, host = self._monitor.checker, self._monitor.thread
                with self._monitor.lock:
                    checker.record(BETWEEN_STREAMS, on[device], host=host, site=site)
                    checker.wait(key, BETWEEN_STREAMS, host=host, site=site, implicit=True)
            on[device] = key

        watch.here.collective = waited
        result = run()
        for device in list(left):
            begin(device, watch.queue(device)[0])
        return result

    # -- results -----------------------------------------------------------------------------------------------------

    def _results(
        self, call: Call, seen: Seen, by_host: Uses, result: Any, name: str, site: Site, within: list[Use]
    ) -> None:
        operator = call.operator
        results = result if len(operator.results) > 1 and isinstance(result, (list, tuple)) else (result,)
        made = Seen()
        for argument in operator.results:
            if argument.place < len(results):
                self._see(made, results[argument.place], argument.role, site)
        for device, uses in list(made.devices.items()):
            given = {
                (use[0][1], use[0][2]) for use in (*seen.devices[device].reads, *seen.devices[device].writes)
            }
            kept = [
                (use, base)
                for use, base in zip(uses.writes, uses.bases, strict=True)
                if (use[0][1], use[0][2]) not in given
                and not any(  # written inside, on the stream of what wrote it
                    each[0][0] == device and each[0][1] < use[0][2] and use[0][1] < each[0][2]
                    for each in within
                )
            ]
            uses.writes, uses.bases = [use for use, _ in kept], [base for _, base in kept]
            if not kept:
                del made.devices[device]
        self._enqueue(made.devices, name, site, call)
        if self._monitor.host:
            self._host_results(call, seen, results, name, site)

    def _host_results(self, call: Call, seen: Seen, results: Any, name: str, site: Site) -> None:
        operator = call.operator
        if operator.makes_copy and seen.devices:
            copy = results[0]
            if (
                operator.value("non_blocking", call.args, call.kwargs)
                and copy.device.type == "cpu"
                and copy.numel()
                and copy.is_pinned()
            ):  # the copy of a device tensor (TM-05)
                storage = copy.untyped_storage()
                self._memory.know_host(storage, storage.data_ptr(), site, again=True)
                key, _ = self._watch.queue(next(iter(seen.devices)))
                use = use_of(copy, HOST, storage.data_ptr())
                self._monitor.access(key, (), (use,), name, site=site)
            return
        if self._memory.any_host:
            arguments = {tensor.untyped_storage().data_ptr() for tensor, _ in seen.cpu}
            for value in results:
                self._forget(value, arguments)

    def _forget(self, value: Any, arguments: set[int]) -> None:
        """New host memory where copies once used some."""
        if isinstance(value, (list, tuple)):
            for each in value:
                self._forget(each, arguments)
        elif isinstance(value, self._torch.Tensor) and value.device.type == "cpu":
            if value.layout is not self._torch.strided:
                return
            base = value.untyped_storage().data_ptr()
            known = self._memory.host_at(base) if base and base not in arguments else None
            if known is not None:
                self._memory.forget_host(known)


def _parts(torch: Any, tensor: Any) -> tuple[Any, ...]:
    """The dense tensors that a sparse one consists of."""
    if tensor.layout is torch.sparse_coo:
        return tensor._indices(), tensor._values()
    if tensor.layout is torch.sparse_csr:
        return tensor.crow_indices(), tensor.col_indices(), tensor.values()
    return ()


__all__ = ["Calls"]
