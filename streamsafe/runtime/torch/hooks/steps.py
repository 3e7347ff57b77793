"""Calls that a capture does not allow, or that its graph would not repeat: optimizer steps, states of generators."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from streamsafe.runtime.patches import Patches
from streamsafe.runtime.torch.hooks.interface import Collector

STATE = ("get_state", "set_state", "manual_seed", "seed", "initial_seed", "get_offset", "set_offset")
"""Methods of a generator that raise in a capture, or whose result a replay does not repeat (row GC-16)."""

CHECKS = ("_accelerator_graph_capture_health_check", "_cuda_graph_capture_health_check")
"""What the step of an optimizer with a ``capturable`` option calls first; its name from torch 2.13 on, and before."""


def install(torch: Any, patches: Patches, collector: Collector) -> None:
    """Reports steps of optimizers that are not capturable, of gradient scalers, and uses of a generator's state."""

    def check(original: Callable[[Any], None]) -> Callable[[Any], None]:
        @wraps(original)
        def health_check(self: Any) -> None:
            if not all(group.get("capturable", True) for group in self.param_groups):
                collector.unrepeatable("host_steps")
            original(self)

        return health_check

    def scaled(original: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(original)
        def step(self: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
            if self._enabled and not getattr(optimizer, "_step_supports_amp_scaling", False):
                collector.unrepeatable("scaler_steps")
            return original(self, optimizer, *args, **kwargs)

        return step

    def stateful(name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        def make(original: Callable[..., Any]) -> Callable[..., Any]:
            @wraps(original)
            def call(self: Any, *args: Any, **kwargs: Any) -> Any:
                if self.device.type == "cuda":
                    collector.unrepeatable("generator_state", name)
                return original(self, *args, **kwargs)

            return call

        return make

    for name in CHECKS:
        if name in torch.optim.Optimizer.__dict__:
            patches.wrap(torch.optim.Optimizer, name, check)
            break
    patches.wrap(torch.amp.GradScaler, "step", scaled)
    for name in STATE:
        patches.wrap(torch._C.Generator, name, stateful(name))
