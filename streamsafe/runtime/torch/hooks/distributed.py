"""Coalesced collectives: one event is recorded after all of them, by a call that no operator stands for."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from streamsafe.runtime.patches import Patches
from streamsafe.runtime.torch.hooks.interface import Collector


def install(torch: Any, patches: Patches, collector: Collector) -> None:
    """Reports where a process group begins and ends to coalesce, as ``batch_isend_irecv`` has it do."""
    group = getattr(getattr(torch._C, "_distributed_c10d", None), "ProcessGroup", None)
    if group is None:
        return

    def start(original: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(original)
        def _start_coalescing(self: Any, *args: Any, **kwargs: Any) -> Any:
            result = original(self, *args, **kwargs)
            collector.coalescing(True)
            return result

        return _start_coalescing

    def end(original: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(original)
        def _end_coalescing(self: Any, *args: Any, **kwargs: Any) -> Any:
            collector.coalescing(False)
            return original(self, *args, **kwargs)

        return _end_coalescing

    patches.wrap(group, "_start_coalescing", start)
    patches.wrap(group, "_end_coalescing", end)
