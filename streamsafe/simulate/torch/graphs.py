"""The names of graphs that only a CUDA build has in ``torch._C``."""

from __future__ import annotations

import ctypes
import warnings
import weakref
from typing import Any

from streamsafe.simulate.torch.device import Device
from streamsafe.simulate.torch.limits import refuse

_MODES = {"global": 0, "thread_local": 1, "relaxed": 2}
_EMPTY = (
    "The CUDA Graph is empty. This usually means that the graph was attempted to be captured on wrong device or "
    "stream."
)


def graphs(core: Any, device: Device) -> None:
    made_here: weakref.WeakSet[Any] = weakref.WeakSet()

    class _CUDAGraph:
        _graph: int  # of the library; 0: none
        _pool: tuple[int, int]
        _held: list[tuple[int, int]]
        _capturing: bool
        _generators: list[Any]
        _device: int

        def __new__(cls, keep_graph: bool = False) -> Any:
            made = super().__new__(cls)
            made._graph = 0
            made._pool = (0, 0)
            made._held = []
            made._capturing = False
            made._generators = []
            made._device = 0
            made_here.add(made)
            return made

        def register_generator_state(self, generator: Any) -> None:
            self._generators.append(generator)

        @staticmethod
        def get_currently_capturing_graph() -> Any:
            here = core._accelerator_getDeviceIndex()
            found = [each for each in made_here if each._capturing and each._device == here]
            if not found or not device.is_capturing(here):
                raise RuntimeError("There is no graph that the current stream is capturing into.")
            return found[0]

        def capture_begin(
            self, pool: tuple[int, int] | None = None, capture_error_mode: str = "global"
        ) -> None:
            if capture_error_mode not in _MODES:
                raise RuntimeError(
                    'Unknown capture error mode. Expected `global`, `thread_local`, or `relaxed`, got "'
                    f'{capture_error_mode}"'
                )
            if self._graph:
                raise RuntimeError("This CUDAGraph instance already owns a captured graph")
            chosen = pool if pool is not None and tuple(pool) != (0, 0) else (device.new_pool(), 0)
            graph = ctypes.c_uint64()
            device.attempt("capture_begin", *chosen, _MODES[capture_error_mode], ctypes.byref(graph))
            self._pool, self._graph, self._capturing = (chosen[0], chosen[1]), graph.value, True
            self._device = core._accelerator_getDeviceIndex()
            _CUDAGraph._retain_pool(self, self._pool)
            for generator in self._generators:
                device.register_generator(self._graph, generator._cdata)

        def capture_end(self) -> None:
            if not self._capturing:
                raise RuntimeError("capture_end() called without a capture under way")
            device.attempt("capture_end", self._graph)
            self._capturing = False
            if not device.graph_size(self._graph):
                warnings.warn(_EMPTY, stacklevel=2)

        def capture_end_pre(self) -> None:  # torch 2.14 ends a capture in two steps
            _CUDAGraph.capture_end(self)

        def capture_end_post(self) -> None: ...

        def instantiate(self) -> None: ...

        @property
        def _has_graph_exec(self) -> bool:
            return bool(self._graph) and not self._capturing

        def replay(self) -> None:
            if not self._graph or self._capturing:
                raise RuntimeError("Called CUDAGraph::replay without a preceding successful capture.")
            device.attempt("replay", self._graph)

        def reset(self) -> None:
            if self._graph:
                device.forget_graph(self._graph)
                for pool in self._held:
                    device.hold_pool(self._device, *pool, -1)
            self._graph, self._capturing, self._held = 0, False, []

        def pool(self) -> tuple[int, int]:
            if not self._graph:
                raise RuntimeError("Called CUDAGraph::pool() without a preceding successful capture.")
            return self._pool

        def pools(self) -> list[tuple[int, int]]:
            return list(self._held)

        def _retain_pool(self, pool: tuple[int, int]) -> None:
            self._held.append((pool[0], pool[1]))
            device.hold_pool(self._device, *pool, 1)

        def enable_debug_mode(self) -> None: ...

        def debug_dump(self, path: str) -> None: ...

        raw_cuda_graph = refuse("CUDAGraph.raw_cuda_graph")
        raw_cuda_graph_exec = refuse("CUDAGraph.raw_cuda_graph_exec")

        def __del__(self) -> None:
            self.reset()

    core._CUDAGraph = _CUDAGraph
    core._graph_pool_handle = lambda: (0, device.new_pool())
