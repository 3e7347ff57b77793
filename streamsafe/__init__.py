"""Finds CUDA stream bugs in Python: before the program runs, and while it runs."""

from __future__ import annotations

__version__ = "0.1.0"
