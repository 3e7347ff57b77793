"""The concrete engine in C++: the same conflicts as :mod:`streamsafe.order`, for hot paths.

``core.hpp`` knows no torch, no Python and no CUDA. :class:`~streamsafe.order.native.checker.NativeChecker` is the
engine's interface over it. What happens once for each hazard (notes, codes, wording, policy) stays in Python.
"""
