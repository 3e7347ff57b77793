"""The names of graphs and of the allocator that only a CUDA build has in ``torch._C``."""

from __future__ import annotations

import ctypes
from typing import Any

from streamsafe.simulate.torch.device import Device
from streamsafe.simulate.torch.limits import MEMORY, NotSimulated, numbers, refuse

# -- graphs ----------------------------------------------------------------------------------------------------------

_MODES = {"global": 0, "thread_local": 1, "relaxed": 2}


def graphs(core: Any, device: Device) -> None:
    class _CUDAGraph:
        _graph: int  # of the library; 0: none
        _pool: tuple[int, int]
        _capturing: bool
        _generators: list[Any]
        _device: int

        def __new__(cls, keep_graph: bool = False) -> Any:
            made = super().__new__(cls)
            made._graph = 0
            made._pool = (0, 0)
            made._capturing = False
            made._generators = []
            made._device = 0
            return made

        def register_generator_state(self, generator: Any) -> None:
            self._generators.append(generator)

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
            device.hold_pool(self._device, *self._pool, 1)
            for generator in self._generators:
                device.register_generator(self._graph, generator._cdata)

        def capture_end(self) -> None:
            if not self._capturing:
                raise RuntimeError("capture_end() called without a capture under way")
            device.attempt("capture_end", self._graph)
            self._capturing = False

        def instantiate(self) -> None: ...

        def replay(self) -> None:
            if not self._graph or self._capturing:
                raise RuntimeError("Called CUDAGraph::replay without a preceding successful capture.")
            device.attempt("replay", self._graph)

        def reset(self) -> None:
            if self._graph:
                device.forget_graph(self._graph)
                device.hold_pool(self._device, *self._pool, -1)
            self._graph, self._capturing = 0, False

        def pool(self) -> tuple[int, int]:
            if not self._graph:
                raise RuntimeError("Called CUDAGraph::pool() without a preceding successful capture.")
            return self._pool

        def enable_debug_mode(self) -> None: ...

        def debug_dump(self, path: str) -> None: ...

        raw_cuda_graph = refuse("CUDAGraph.raw_cuda_graph")
        raw_cuda_graph_exec = refuse("CUDAGraph.raw_cuda_graph_exec")

        def __del__(self) -> None:
            self.reset()

    core._CUDAGraph = _CUDAGraph
    core._graph_pool_handle = lambda: (0, device.new_pool())


# -- memory ----------------------------------------------------------------------------------------------------------


OVERSIZE = ("oversize_allocations", "oversize_segments")


def memory(core: Any, device: Device) -> None:
    def stats(index: int) -> dict[str, Any]:
        allocated, most, reserved, most_reserved, allocations, frees = numbers(device, index)

        def of(current: int, peak: int) -> dict[str, dict[str, int]]:
            entry = {"current": current, "peak": peak, "allocated": peak, "freed": peak - current}
            return {"all": entry} | {pool: dict.fromkeys(entry, 0) for pool in ("small_pool", "large_pool")}

        return {
            **{f"{name}_bytes": of(allocated, most) for name in ("allocated", "active", "requested")},
            "reserved_bytes": of(reserved, most_reserved),
            "inactive_split_bytes": of(0, 0),
            **{name: of(allocations - frees, allocations) for name in ("allocation", "active")},
            **{name: of(0, 0) for name in ("segment", "inactive_split")},
            **{name: dict.fromkeys(("current", "peak", "allocated", "freed"), 0) for name in OVERSIZE},
            **dict.fromkeys(("num_alloc_retries", "num_ooms", "num_sync_all_streams"), 0),
            **dict.fromkeys(("num_device_alloc", "num_device_free"), 0),
            "max_split_size": -1,
        }

    def allocate(size: int, stream: int) -> int:
        return int(device.allocate(size, core._accelerator_getDeviceIndex()) or 0)

    class _MemPool:
        def __init__(self, allocator: Any = None, *_: Any, **__: Any) -> None:
            self._id = (0, device.new_pool())
            self._device = core._accelerator_getDeviceIndex()
            if allocator is not None:
                raise NotSimulated("a MemPool with an allocator of its own is not simulated")
            device.hold_pool(self._device, *self._id, 1)

        @property
        def id(self) -> tuple[int, int]:
            return self._id

        @property
        def device(self) -> Any:
            return self._device

        @property
        def allocator(self) -> None:
            return None

        def use_count(self) -> int:
            return 1

        def __del__(self) -> None:
            device.hold_pool(self._device, *self._id, -1)

    values = {
        "_cuda_emptyCache": lambda: device.empty_cache(),  # torch.compile hashes these: no ctypes functions
        "_accelerator_emptyCache": lambda: device.empty_cache(),
        "_accelerator_emptyHostCache": lambda: None,
        "_accelerator_isAllocatorInitialized": lambda: True,
        "_cuda_memoryStats": stats,
        "_accelerator_getDeviceStats": stats,
        "_cuda_resetPeakMemoryStats": lambda index: device.reset_peak(index),
        "_accelerator_resetPeakStats": lambda index: device.reset_peak(index),
        "_cuda_resetAccumulatedMemoryStats": lambda index: None,
        "_accelerator_getMemoryInfo": lambda index: (MEMORY - numbers(device, index)[2], MEMORY),
        "_cuda_hostMemoryStats": dict,
        "_cuda_resetPeakHostMemoryStats": lambda: None,
        "_cuda_resetAccumulatedHostMemoryStats": lambda: None,
        "_host_emptyCache": lambda: None,
        "_cuda_setMemoryFraction": lambda fraction, index: None,
        "_cuda_getMemoryFraction": lambda index: 1.0,
        "_cuda_getAllocatorBackend": lambda: "native",
        "_cuda_cudaCachingAllocator_raw_alloc": allocate,
        "_cuda_cudaCachingAllocator_raw_delete": lambda address: device.free(address),
        "_cuda_cudaCachingAllocator_is_enabled": lambda: True,
        "_cuda_cudaCachingAllocator_enable": lambda on: None,
        "_cuda_memorySnapshot": refuse("torch.cuda.memory_snapshot"),
        "_cuda_record_memory_history": refuse("the memory history"),
        "_cuda_customAllocator": refuse("an allocator of the program's own"),
        "_cuda_changeCurrentAllocator": refuse("an allocator of the program's own"),
        "_cuda_CUDAAllocator": type("_cuda_CUDAAllocator", (), {}),
        "_MemPool": _MemPool,
        "_cuda_beginAllocateToPool": lambda index, pool: device.route_to_pool(index, *pool, 0),
        "_cuda_beginAllocateCurrentThreadToPool": lambda index, pool: device.route_to_pool(index, *pool, 1),
        "_cuda_endAllocateToPool": lambda index, pool: device.end_route(index, *pool),
        "_cuda_releasePool": lambda index, pool: None,
    }
    for name, value in values.items():
        setattr(core, name, value)
