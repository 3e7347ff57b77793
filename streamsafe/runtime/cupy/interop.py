"""x"""
from __future__ import annotations
from streamsafe.runtime.patches import Patches


def install(patches: Patches) -> None:
    """x"""
