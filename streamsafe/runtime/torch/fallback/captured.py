"""What a capture forbids, or would not repeat when its graph is launched. As ``captured.hpp`` has it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from streamsafe.order.hazard import quoted
from streamsafe.order.native.reports import AT_ONCE
from streamsafe.runtime.monitor import Monitor
from streamsafe.runtime.places import Site
from streamsafe.runtime.torch.fallback.call import Call, Uses
from streamsafe.runtime.torch.fallback.roles import Role

if TYPE_CHECKING:
    from streamsafe.runtime.torch.fallback.watch import Fallback


class Captured:
    """Looks at the calls that are made while a capture is in progress."""

    def __init__(self, watch: Fallback, monitor: Monitor) -> None:
        self._watch = watch
        self._monitor = monitor

    def check(self, call: Call, device: int | None, by_stream: Uses, name: str, site: Site) -> None:
        """An operator is about to run.

        Args:
            device: the first device whose memory it uses; None: it uses none.
            by_stream: what a stream reads and writes of pinned memory for it.
            name: what the program called.

        Raises:
            StreamHazardError: the capture does not allow it, and the session raises.
        """
        if device is not None:
            self._refuse_beside(call, device, name, site)
            self._refuse_wait(call, device, name, site)
        self._refuse_unrepeated(call, device, by_stream, name, site)

    def _refuse_wait(self, call: Call, device: int, name: str, site: Site) -> None:
        """Inside a capture the host must not wait: said before CUDA loses the capture."""
        operator = call.operator
        waits = operator.synchronizes
        if operator.copy and not waits:
            target = operator.value("device", call.args, call.kwargs)
            host = target is not None and self._watch._torch.device(target).type == "cpu"
            for argument in operator.arguments:
                value = operator.value(argument.name, call.args, call.kwargs)
                host = host or (
                    isinstance(value, self._watch._torch.Tensor)
                    and value.device.type == "cpu"
                    and value.dim() > 0
                )
            waits = host and not operator.value("non_blocking", call.args, call.kwargs)
        key, _ = self._watch.queue(device)
        if waits and self._monitor.checker.capturing(key):
            self._watch.violation(key, "sync-in-capture", name, "", site)

    def _refuse_beside(self, call: Call, device: int, name: str, site: Site) -> None:
        """Work on a stream that was not forked from the capturing one, once for each stream (GM-side_launch)."""
        watch = self._watch
        key, _ = watch.queue(device)
        if call.backward is not None or key in watch.beside or not watch.captures_here:
            return
        checker = self._monitor.checker
        if not checker.capturing(key):
            watch.beside.add(key)
            message = f"{quoted(checker.timeline(key).name)} takes no part in the capture: {AT_ONCE}"
            watch.violation(key, "unjoined-capture-stream", name, message, site)

    def _refuse_unrepeated(
        self, call: Call, device: int | None, by_stream: Uses, name: str, site: Site
    ) -> None:
        """What a launch of the graph would not do again: numbers of a generator, what the host has written."""
        watch, operator = self._watch, call.operator
        generator = operator.value("generator", call.args, call.kwargs)
        if isinstance(generator, self._watch._torch.Generator) and generator.device.type == "cuda":
            index = generator.device.index  # one of "cuda" has none
            key, _ = watch.queue(watch._torch.cuda.current_device() if index is None else index)
            if generator._cdata not in watch.generators and self._monitor.checker.capturing(key):
                message = "the generator is not registered with the graph"
                watch.violation(key, "capture-rng", name, message, site)
        if device is None:
            for argument in operator.arguments:
                tensor = operator.value(argument.name, call.args, call.kwargs)
                if argument.role is Role.WRITE and self._is_pinned(tensor):
                    start = tensor.data_ptr()
                    storage = tensor.untyped_storage()
                    watch.written.append((start, storage.data_ptr() + storage.nbytes(), name, site))
            return
        key, _ = watch.queue(device)
        if not self._monitor.checker.capturing(key):
            return
        for use in by_stream.reads:
            for start, stop, by, where in reversed(watch.written):
                if start < use[0][2] and use[0][1] < stop:
                    message = "the graph copies this memory to the device at each replay"
                    watch.violation(key, "host-work-in-capture", by, message, where)
                    break

    def _is_pinned(self, value: Any) -> bool:
        return (
            isinstance(value, self._watch._torch.Tensor)
            and value.device.type == "cpu"
            and value.layout is self._watch._torch.strided
            and value.numel() > 0
            and value.is_pinned()
        )


__all__ = ["Captured"]
