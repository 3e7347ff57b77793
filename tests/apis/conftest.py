from __future__ import annotations

from tests.torch.conftest import backend, torch

__all__ = ["backend", "torch"]
