"""A stand-in for a compiled extension, which no analyzer can read."""

from fastio_native import copy_async

__all__ = ["copy_async"]
