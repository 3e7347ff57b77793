"""The version of streamsafe: a project may ask for one, the cache and the reports name it."""

from __future__ import annotations

__version__ = "0.1.0"
