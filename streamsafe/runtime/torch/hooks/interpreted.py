"""Triton kernels that Triton's interpreter runs on device memory: the elements that each of them reads and writes.

The interpreter touches device memory where the device is simulated. On a GPU it works on copies, which torch makes.
"""

from __future__ import annotations

import importlib
import threading
from collections.abc import Callable, Iterable
from functools import wraps
from typing import Any

from streamsafe.runtime.patches import Patches
from streamsafe.runtime.torch.hooks.interface import Collector, Use
from streamsafe.toolchain.imports import after_import

Run = tuple[int, int]
"""Bytes: the first one, and the one after the last."""


def install(torch: Any, patches: Patches, collector: Collector) -> None:
    """Reports launches of ``InterpretedFunction``, when it is imported: after the kernel has run, when its accesses are
    known.
    """
    thread = _Thread()

    def launch(original: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(original)
        def run(self: Any, *args: Any, **kwargs: Any) -> Any:
            storages = [
                tensor.untyped_storage()
                for tensor in _tensors(torch, (*args, *kwargs.values()))
                if tensor.is_cuda
            ]
            if not storages or kwargs.get("warmup", False):
                return original(self, *args, **kwargs)
            accesses = _Accesses()
            before, thread.accesses = thread.accesses, accesses
            try:
                result = original(self, *args, **kwargs)
            finally:
                thread.accesses = before
            uses = accesses.uses()
            arguments = [(each.data_ptr(), each.data_ptr() + each.nbytes()) for each in storages]
            if any(_within(use, arguments) for use in uses):
                device = storages[0].device.index
                collector.launch(
                    self.fn.__name__, uses, device, torch.cuda.current_stream(device).cuda_stream
                )
            return result

        return run

    def watch(module: Any) -> None:
        patches.wrap(module, "_interpreter", lambda plain: _Recorded(plain, thread))
        patches.wrap(module.InterpretedFunction, "run", launch)

    after_import("triton.runtime.interpreter", watch)


def _within(use: Use, runs: Iterable[Run]) -> bool:
    return any(start <= use.address < end for start, end in runs)


def _tensors(torch: Any, values: Iterable[Any]) -> Iterable[Any]:
    """Tensors among the arguments of a kernel, in tuples, descriptors and what gives them another type."""
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, tuple):
            yield from _tensors(torch, value)
        elif isinstance(getattr(value, "base", None), torch.Tensor):
            yield value.base


class _Accesses:
    def __init__(self) -> None:
        self.read: set[Run] = set()
        self.written: set[Run] = set()

    def uses(self) -> list[Use]:
        return [
            Use(start, end - start, write)
            for write in (False, True)
            for start, end in _merged(self.written if write else self.read)
        ]


def _merged(runs: Iterable[Run]) -> list[Run]:
    """In order of addresses; runs that meet are one."""
    merged: list[Run] = []
    for start, end in sorted(runs):
        if merged and start <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(end, merged[-1][1])
        else:
            merged.append((start, end))
    return merged


class _Thread(threading.local):
    accesses: _Accesses | None = None  # of the launch at hand


class _Recorded:
    """The functions with which the interpreter touches memory."""

    def __init__(self, plain: Any, thread: _Thread) -> None:
        self._plain = plain
        self._thread = thread
        self._numpy: Any = importlib.import_module("numpy")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._plain, name)

    def load(self, addresses: Any, mask: Any, other: Any, dtype: Any) -> Any:
        self._add(addresses, mask, self._numpy.dtype(dtype).itemsize, write=False)
        return self._plain.load(addresses, mask, other, dtype)

    def store(self, addresses: Any, value: Any, mask: Any) -> Any:
        self._add(addresses, mask, value.dtype.itemsize, write=True)
        return self._plain.store(addresses, value, mask)

    def atomic_rmw(self, operation: Any, addresses: Any, value: Any, mask: Any, order: Any) -> Any:
        self._add(addresses, mask, value.dtype.itemsize, write=True)
        return self._plain.atomic_rmw(operation, addresses, value, mask, order)

    def atomic_cas(self, addresses: Any, compared: Any, value: Any, order: Any) -> Any:
        self._add(addresses, True, value.dtype.itemsize, write=True)
        return self._plain.atomic_cas(addresses, compared, value, order)

    def _add(self, addresses: Any, mask: Any, size: int, *, write: bool) -> None:
        accesses, numpy = self._thread.accesses, self._numpy
        if accesses is None:
            return
        touched = numpy.unique(addresses[numpy.broadcast_to(mask, addresses.shape)])
        if not touched.size:
            return
        ends = numpy.flatnonzero(numpy.diff(touched) > size)  # of runs, without the last one
        starts = numpy.concatenate((touched[:1], touched[ends + 1])).tolist()
        stops = (numpy.concatenate((touched[ends], touched[-1:])) + numpy.uint64(size)).tolist()
        (accesses.written if write else accesses.read).update(zip(starts, stops, strict=True))
