"""What PyTorch offers no C++ hook for: patches of Python names that report to a :class:`Collector`."""

from __future__ import annotations

from typing import Any

from streamsafe.runtime.patches import Patches
from streamsafe.runtime.torch.hooks import graphs, interpreted, kernels, steps, streams, threads
from streamsafe.runtime.torch.hooks import host_access as host
from streamsafe.runtime.torch.hooks import saved_tensors as saved
from streamsafe.runtime.torch.hooks.interface import Collector, Use


def install(patches: Patches, collector: Collector) -> None:
    """Puts all hooks in place. torch is imported.

    Args:
        patches: undoes them.
        collector: receives what they see; it is asked whether a session is open, they are not.
    """
    import importlib

    torch: Any = importlib.import_module("torch")
    for part in (threads, streams, kernels, interpreted, graphs, host, saved, steps):
        part.install(torch, patches, collector)


__all__ = ["Collector", "Use", "install"]
