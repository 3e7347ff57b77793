"""``init_process_group("nccl")`` on one machine: gloo runs the collectives on the bytes of device tensors."""

from __future__ import annotations

import datetime
import importlib
import sys
import types
from typing import Any

from streamsafe.simulate.torch.device import Device

NOTE = (
    "streamsafe: gloo stands for nccl on the simulated device: collectives have no stream of their own, so work that "
    "does not wait for them is not reported"
)
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
    said: list[str] = []

    class ProcessGroupNCCL(c10d.ProcessGroupGloo):
        """The backend "nccl"."""

        def __init__(self, store: Any, rank: int, size: int, options: Any = None) -> None:
            if NOTE not in said:
                said.append(NOTE)
                print(NOTE, file=sys.stderr, flush=True)
            timeout = getattr(options, "_timeout", None)
            super().__init__(
                store, rank, size, timeout=timeout if isinstance(timeout, datetime.timedelta) else TIMEOUT
            )

    ProcessGroupNCCL.Options = Options
    c10d.ProcessGroupNCCL = ProcessGroupNCCL
    c10d._DEFAULT_PG_NCCL_TIMEOUT = TIMEOUT
    register = c10d.ProcessGroup._register_backend

    def both(self: Any, device: Any, kind: Any, backend: Any = None) -> None:
        register(self, device, kind, backend)
        if device.type == "cuda" and isinstance(backend, c10d.ProcessGroupGloo):
            simulated.collectives_on_cpu()
        if device.type == "cuda" and kind == c10d.ProcessGroup.BackendType.NCCL:
            register(
                self, torch.device("cpu"), kind, backend
            )  # what the collectives on device tensors run on

    c10d.ProcessGroup._register_backend = both
