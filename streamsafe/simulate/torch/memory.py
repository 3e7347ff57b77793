"""The allocator as ``torch._C`` shows it: statistics, limits, snapshots, history, pools."""

from __future__ import annotations

import ctypes
import sys
from typing import Any

from streamsafe.simulate.torch.device import Device
from streamsafe.simulate.torch.limits import NotSimulated

_KINDS = (
    "allocation",
    "segment",
    "active",
    "inactive_split",
    "allocated_bytes",
    "reserved_bytes",
    "active_bytes",
)
KINDS = (*_KINDS, "inactive_split_bytes", "requested_bytes")
"""As memory.cpp counts them."""
POOLS = ("all", "small_pool", "large_pool")
VALUES = ("current", "peak", "allocated", "freed")
HOST_KINDS = ("active_requests", "active_bytes", "allocations", "allocated_bytes")
"""As pinned.hpp counts them."""
COUNTS = ("num_alloc_retries", "num_ooms", "num_device_alloc", "num_device_free")
DURATIONS = ("total", "max", "min", "count", "avg")
OVERSIZE = ("oversize_allocations", "oversize_segments")
ACTIONS = ("alloc", "free_requested", "free_completed", "segment_alloc", "segment_free", "oom")
STATES = ("inactive", "active_allocated", "active_pending_free")
FRAMES = 50

_LISTENER = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64)
_OBSERVER = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)


def stats(device: Device, index: int) -> dict[str, Any]:
    """What ``torch.cuda.memory_stats_as_nested_dict`` returns."""
    size = len(KINDS) * len(POOLS) * len(VALUES)
    numbers = (ctypes.c_int64 * (size + len(COUNTS)))()
    device.memory(index, numbers)
    values = iter(numbers)
    found: dict[str, Any] = {
        kind: {pool: {value: next(values) for value in VALUES} for pool in POOLS} for kind in KINDS
    }
    return {
        **found,
        **dict(zip(COUNTS, values, strict=True)),
        **{name: dict.fromkeys(VALUES, 0) for name in OVERSIZE},
        "num_sync_all_streams": 0,
        "max_split_size": -1,
    }


def reserved(device: Device, index: int) -> int:
    """Bytes of a device that the allocator has from the driver."""
    return int(stats(device, index)["reserved_bytes"]["all"]["current"])


def host_stats(device: Device) -> dict[str, Any]:
    """What ``torch.cuda.host_memory_stats_as_nested_dict`` returns; pinned memory is kept, and takes no time."""
    numbers = (ctypes.c_int64 * (len(HOST_KINDS) * len(VALUES)))()
    device.host_memory(numbers)
    values = iter(numbers)
    found: dict[str, Any] = {kind: {value: next(values) for value in VALUES} for kind in HOST_KINDS}
    return {
        **found,
        "num_host_alloc": found["allocations"]["allocated"],
        "num_host_free": found["allocations"]["freed"],
        **{name: dict.fromkeys(DURATIONS, 0) for name in ("host_alloc_time", "host_free_time")},
    }


class _History:
    """Who allocated and freed: the library's entries, and where Python was."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self.frames: dict[int, list[dict[str, Any]]] = {}
        self.on: str | None = None
        self._listener = _LISTENER(self._heard)
        self._stacks = False
        self._most = sys.maxsize
        device.kept.append(self._listener)

    def record(
        self,
        enabled: Any = "all",
        context: Any = "all",
        stacks: Any = "all",
        max_entries: int = sys.maxsize,
        clear_history: bool = False,
        *_: Any,
        **__: Any,
    ) -> None:
        """``torch.cuda.memory._record_memory_history``."""
        if enabled not in (None, "state", "all", True, False):
            raise RuntimeError("expected state to be 'state', 'all', or None")
        if clear_history or not enabled:
            self._device.clear_history()
            self.frames.clear()
        self.on = None if not enabled else "all" if enabled is True else enabled
        self._stacks, self._most = bool(context), max_entries
        most = min(max_entries, 1 << 20) if self.on == "all" else 1 << 20
        self._device.record_history(int(self.on is not None), most, self._listener)

    def _heard(self, first: int, last: int) -> None:
        if not self._stacks:
            return
        frames: list[dict[str, Any]] = []
        frame: Any = sys._getframe(1)
        while frame is not None and len(frames) < FRAMES:
            code = frame.f_code
            frames.append({"name": code.co_name, "filename": code.co_filename, "line": frame.f_lineno})
            frame = frame.f_back
        for number in range(first, last + 1):
            self.frames[number] = frames
        while len(self.frames) > min(self._most, 1 << 16):
            self.frames.pop(next(iter(self.frames)))

    def snapshot(self, of: Any = None) -> dict[str, Any]:
        """``torch.cuda.memory._snapshot``, of all pools or of one."""
        wanted = None if of is None or tuple(of[:2]) == (0, 0) else tuple(of[:2])
        segments: dict[int, dict[str, Any]] = {}
        for row in self._device.rows("blocks", 11):
            start, index, stream, first, second, small, address, size, requested, state, number = row
            if wanted is not None and (first, second) != wanted:
                continue
            segment = segments.setdefault(start, _segment(index, start, stream, (first, second), small))
            segment["total_size"] += size
            if state:
                segment["active_size"] += size
                segment["requested_size"] += requested
                segment["allocated_size"] += size if state == 1 else 0
            frames = self.frames.get(number, []) if number else []
            segment["blocks"].append(
                {
                    "address": address,
                    "size": size,
                    "requested_size": requested if state else 0,
                    "state": STATES[state],
                    "frames": frames,
                }
            )
        traces: list[list[dict[str, Any]]] = [[] for _ in range(self._device.device_count())]
        for number, action, index, address, size, stream, time in (
            self._device.rows("history", 7) if self.on == "all" else ()
        ):
            entry = {
                "action": ACTIONS[action],
                "size": size,
                "stream": stream,
                "time_us": time,
                "compile_context": "N/A",
                "user_metadata": "",
            }
            entry["device_free" if ACTIONS[action] == "oom" else "addr"] = address
            entry["frames"] = self.frames.get(number, [])
            traces[index].append(entry)
        ordered = sorted(segments.values(), key=lambda segment: (segment["device"], segment["address"]))
        return {
            "segments": ordered,
            "device_traces": traces,
            "external_annotations": [],
            "allocator_settings": _SETTINGS,
        }

    def of(self, address: int) -> list[dict[str, Any]] | None:
        """Where a live block was allocated."""
        for row in self._device.rows("blocks", 11):
            if row[6] == address and row[9] == 1:
                return self.frames.get(row[10])
        return None


_SETTINGS = {
    "PYTORCH_CUDA_ALLOC_CONF": "",
    "max_split_size": -1,
    "garbage_collection_threshold": 0.0,
    "expandable_segments": False,
    "pinned_num_register_threads": 1,
    "release_lock_on_cudamalloc": False,
    "pinned_use_cuda_host_register": False,
    "roundup_power2_divisions": {},
}


def _segment(index: int, start: int, stream: int, pool: tuple[int, int], small: int) -> dict[str, Any]:
    sizes = dict.fromkeys(("total_size", "allocated_size", "active_size", "requested_size"), 0)
    kind = "small" if small else "large"
    return {
        "device": index,
        "address": start,
        "stream": stream,
        "segment_type": kind,
        "segment_pool_id": pool,
        "is_expandable": False,
        "frames": [],
        "blocks": [],
        **sizes,
    }


def memory(core: Any, device: Device) -> None:
    """Adds the names to ``torch._C``."""
    history = _History(device)
    total = device.hardware.memory
    metadata = [""]

    def allocate(size: int, stream: int) -> int:
        address = ctypes.c_void_p()
        device.attempt("allocate", size, core._accelerator_getDeviceIndex(), ctypes.byref(address))
        return address.value or 0

    def set_fraction(fraction: float, index: int) -> None:
        device.set_fraction(index, fraction)

    def observe(observer: Any) -> None:
        kept = _OBSERVER(observer)
        device.kept.append(kept)
        device.observe_out_of_memory(kept)

    def live(index: int, pool: tuple[int, int], expected: set[int]) -> bool:
        there = {
            row[6]
            for row in device.rows("blocks", 11)
            if row[1] == index and (row[3], row[4]) == tuple(pool) and row[9] == 1
        }
        return there == set(expected)

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

    def numbers(index: int) -> dict[str, Any]:
        return stats(device, index)

    values = {
        "_cuda_emptyCache": lambda: device.empty_cache(),  # torch.compile hashes these: no ctypes functions
        "_accelerator_emptyCache": lambda: device.empty_cache(),
        "_accelerator_emptyHostCache": lambda: None,
        "_accelerator_isAllocatorInitialized": lambda: True,
        "_cuda_memoryStats": numbers,
        "_accelerator_getDeviceStats": numbers,
        "_cuda_resetPeakMemoryStats": lambda index: device.reset_peak(index),
        "_accelerator_resetPeakStats": lambda index: device.reset_peak(index),
        "_cuda_resetAccumulatedMemoryStats": lambda index: device.reset_accumulated(index),
        "_accelerator_resetAccumulatedStats": lambda index: device.reset_accumulated(index),
        "_accelerator_getMemoryInfo": lambda index: (total - reserved(device, index), total),
        "_cuda_hostMemoryStats": lambda: host_stats(device),
        "_cuda_resetPeakHostMemoryStats": lambda: device.reset_host_peak(),
        "_cuda_resetAccumulatedHostMemoryStats": lambda: device.reset_host_accumulated(),
        "_host_emptyCache": lambda: None,
        "_cuda_setMemoryFraction": set_fraction,
        "_cuda_getMemoryFraction": lambda index: float(device.fraction(index)),
        "_cuda_getAllocatorBackend": lambda: "native",
        "_cuda_cudaCachingAllocator_raw_alloc": allocate,
        "_cuda_cudaCachingAllocator_raw_delete": lambda address: device.free(address),
        "_cuda_cudaCachingAllocator_is_enabled": lambda: True,
        "_cuda_cudaCachingAllocator_enable": lambda on: None,
        "_cuda_cudaCachingAllocator_set_allocator_settings": lambda text: None,
        "_accelerator_setAllocatorSettings": lambda text: None,
        "_cuda_memorySnapshot": history.snapshot,
        "_cuda_record_memory_history": history.record,
        "_cuda_record_memory_history_legacy": lambda enabled, context=True, *_, **__: history.record(
            enabled, context
        ),
        "_cuda_isHistoryEnabled": lambda: history.on is not None,
        "_cuda_allocationTraceback": history.of,
        "_cuda_setMemoryMetadata": lambda text: metadata.__setitem__(0, text),
        "_cuda_getMemoryMetadata": lambda: metadata[0],
        "_cuda_attach_out_of_memory_observer": observe,
        "_cuda_checkPoolLiveAllocations": live,
        "_MemPool": _MemPool,
        "_cuda_beginAllocateToPool": lambda index, pool: device.route_to_pool(index, *pool, 0),
        "_cuda_beginAllocateCurrentThreadToPool": lambda index, pool: device.route_to_pool(index, *pool, 1),
        "_cuda_endAllocateToPool": lambda index, pool: device.end_route(index, *pool),
        "_cuda_releasePool": lambda index, pool: None,
    }
    for name, value in values.items():
        setattr(core, name, value)
