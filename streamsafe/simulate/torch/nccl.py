"""``init_process_group("nccl")`` on one machine: gloo runs the collectives on the bytes of device tensors.

``collectives.cpp`` has the streams on which they are.
"""

from __future__ import annotations

import datetime
import importlib
import types
from typing import Any

from streamsafe.simulate.torch.device import Device

TIMEOUT = datetime.timedelta(minutes=10)


class Options:
    """``ProcessGroupNCCL.Options``: kept, and without effect."""

    def __init__(self, is_high_priority_stream: bool = False) -> None:
        self.is_high_priority_stream = is_high_priority_stream
        self.config = types.SimpleNamespace()
        self._timeout = TIMEOUT
        self.global_ranks_in_group: list[int] = []
        self.group_name = ""
        self.split_from: Any = None
        self.split_color = 0


def process_groups(core: Any, device: Device) -> None:
    """Adds the backend when torch.distributed is loaded."""
    plain = getattr(core, "_c10d_init", None)
    if plain is None:
        return

    def begin() -> bool:
        done = bool(plain())
        _complete(importlib.import_module("torch._C._distributed_c10d"), device)
        return done

    core._c10d_init = begin


def _complete(c10d: Any, simulated: Device) -> None:
    if not hasattr(c10d, "ProcessGroupGloo"):
        return
    torch = importlib.import_module("torch")
    kept: list[Any] = []  # as long as torch has the group, Python has the object of this class

    class ProcessGroupNCCL(c10d.ProcessGroupGloo):
        """The backend "nccl"."""

        supports_coalescing = True

        def __init__(self, store: Any, rank: int, size: int, options: Any = None) -> None:
            timeout = getattr(options, "_timeout", None)
            super().__init__(
                store, rank, size, timeout=timeout if isinstance(timeout, datetime.timedelta) else TIMEOUT
            )

    ProcessGroupNCCL.Options = Options
    c10d.ProcessGroupNCCL = ProcessGroupNCCL
    c10d._DEFAULT_PG_NCCL_TIMEOUT = TIMEOUT
    group = c10d.ProcessGroup
    register, start, end = group._register_backend, group._start_coalescing, group._end_coalescing

    def register_backend(self: Any, device: Any, kind: Any, backend: Any = None) -> None:
        register(self, device, kind, backend)
        if device.type != "cuda":
            return
        simulated.collectives_on_cpu()
        if kind == group.BackendType.NCCL:
            kept.append(backend)
            torch.ops.streamsafe_simulated.nccl_group(self.boxed())

    def is_nccl(self: Any, device: Any) -> bool:
        return device.type == "cuda" and bool(torch.ops.streamsafe_simulated.is_nccl(self.boxed()))

    def start_coalescing(self: Any, device: Any) -> None:
        if not is_nccl(self, device):
            start(self, device)
            return
        torch.ops.streamsafe_simulated.start_coalescing(self.boxed())

    def end_coalescing(self: Any, device: Any) -> Any:
        if not is_nccl(self, device):
            return end(self, device)
        work = torch.ops.streamsafe_simulated.end_coalescing(self.boxed())
        return c10d.Work.unbox(work) if work is not None else None

    group._register_backend = register_backend
    group._start_coalescing, group._end_coalescing = start_coalescing, end_coalescing
