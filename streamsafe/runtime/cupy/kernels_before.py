"""Kernels that were compiled before the hooks were in place.

What a program holds is called in Python, through the type: its functions stay the objects that they are. What CuPy
holds is called in C, and is compiled again.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any

import cupy._core.raw as raw
from cupy.cuda.function import Function

from streamsafe.runtime.cupy.kernels import TracedFunction, TracedModule, plain_call, plain_linear
from streamsafe.runtime.cupy.state import state
from streamsafe.runtime.patches import Patches

_described: dict[int, tuple[Function, TracedFunction]] = {}
"""By the identity of a plain function, which is kept: what is known of it."""


def _description(function: Function) -> TracedFunction:
    """What is known of a plain function: of a raw kernel's, what its source says."""
    found = _described.get(id(function))
    if found is None:
        source, name = _source_of(function)
        known = TracedFunction.__new__(TracedFunction)
        known.describe(TracedModule(function.module, source), name)
        found = _described[id(function)] = function, known
    return found[1]


def _source_of(function: Function) -> tuple[str, str]:
    """The source and the name of a function that some raw kernel of the program holds, else nothing."""
    for held in gc.get_referrers(function):
        if type(held) is list:
            for kernel in gc.get_referrers(held):
                if isinstance(kernel, raw.RawKernel):
                    return kernel.code or "", kernel.name
    return "", "a kernel compiled before"


def _call_compiled_before(
    self: Function,
    grid: tuple[int, ...],
    block: tuple[int, ...],
    args: Any,
    shared_mem: int = 0,
    stream: Any = None,
    enable_cooperative_groups: bool = False,
) -> None:
    """What ``Function.__call__`` becomes."""
    monitor = state.monitor
    if monitor is None or isinstance(self, TracedFunction):
        plain_call(self, grid, block, args, shared_mem, stream, enable_cooperative_groups)
        return
    ordered = _description(self).report(monitor, args, stream, grid, block)
    try:
        plain_call(self, grid, block, args, shared_mem, stream, enable_cooperative_groups)
    finally:
        ordered.release()


def _launch_compiled_before(
    self: Function,
    size: int,
    args: Any,
    shared_mem: int = 0,
    block_max_size: int = 128,
    stream: Any = None,
    enable_cooperative_groups: bool = False,
) -> None:
    """What ``Function.linear_launch`` becomes for callers in Python."""
    monitor = state.monitor
    if monitor is None or isinstance(self, TracedFunction):
        plain_linear(self, size, args, shared_mem, block_max_size, stream, enable_cooperative_groups)
        return
    ordered = _description(self).report(monitor, args, stream, size, block_max_size)
    try:
        plain_linear(self, size, args, shared_mem, block_max_size, stream, enable_cooperative_groups)
    finally:
        ordered.release()


def _forget_generated() -> None:
    """Empties CuPy's own caches of the kernels that it generated: C code calls these past the type's dictionary.

    They are fetched again at their next launch, from CuPy's cache on disk. Only caches that are CuPy's are touched:
    those inside its kernel objects, and those of the functions that it memoizes itself.
    """
    modules = [
        module
        for name, module in list(sys.modules.items())
        if name.partition(".")[0] in ("cupy", "cupyx") and isinstance(module, ModuleType)
    ]
    kinds = set()
    for module in modules:
        for value in list(vars(module).values()):
            if isinstance(value, type):
                if value.__module__.startswith(_GENERATORS):
                    kinds.add(value)
            elif type(value).__name__ == _MEMOIZED and hasattr(value, "__wrapped__"):
                for scope in gc.get_referents(value):
                    _drop_functions(gc.get_referents(scope))
    for kernel in gc.get_objects():
        if type(kernel) in kinds:
            _drop_functions([*gc.get_referents(kernel), *getattr(kernel, "__dict__", {}).values()])


_GENERATORS = ("cupy._core", "cupyx.jit")
_MEMOIZED = "cython_function_or_method"
"""The type of what ``cupy.memoize`` makes of a function: in its closure is what it remembers."""


def _drop_functions(caches: Sequence[Any]) -> None:
    """Of those that are dictionaries, the entries that hold a compiled function go."""
    for cache in caches:
        if type(cache) is dict:
            for key, value in list(cache.items()):
                parts = value if type(value) is tuple else (value,)
                if type(key) is tuple and any(type(part) is Function for part in parts):
                    cache.pop(key, None)


def install(patches: Patches) -> None:
    """Traces the kernels that the program holds, and has CuPy fetch its own again."""
    patches.calling(Function, _call_compiled_before)
    patches.attribute(Function, "linear_launch", _launch_compiled_before)
    _forget_generated()
