"""What PyTorch offers no C++ hook for: patches of Python names that report to a :class:`Collector`."""

from __future__ import annotations

from streamsafe.runtime.torch.hooks.interface import Collector, Use

__all__ = ["Collector", "Use"]
