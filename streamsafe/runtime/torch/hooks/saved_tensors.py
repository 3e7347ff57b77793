"""Hooks of saved tensors: autograd calls them inside the operator that saves, where nothing is seen by itself."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from streamsafe.runtime.patches import Patches
from streamsafe.runtime.torch.hooks.interface import Collector


def install(torch: Any, patches: Patches, collector: Collector) -> None:
    """Reports the pack hooks of ``saved_tensors_hooks`` and ``save_on_cpu``, of checkpoints and of offloaders."""

    def push(original: Callable[[Any, Any], None]) -> Callable[[Any, Any], None]:
        @wraps(original)
        def _push_saved_tensors_default_hooks(pack: Any, unpack: Any) -> None:
            if not isinstance(pack, torch.nn.Module):  # the compiler takes a graph's hooks apart
                pack = packing(pack)
            original(pack, unpack)

        return _push_saved_tensors_default_hooks

    def packing(hook: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def pack(tensor: Any) -> Any:
            if not collector.pack_begins(tensor):
                return hook(tensor)
            try:
                return hook(tensor)
            finally:
                collector.pack_ends()

        return pack

    patches.wrap(torch._C._autograd, "_push_saved_tensors_default_hooks", push)
