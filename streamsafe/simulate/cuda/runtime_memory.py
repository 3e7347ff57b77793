"""``cupy_backends.cuda.api.runtime``: allocation, copies, pointer attributes, memory pools."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

from streamsafe.simulate.cuda.errors import (
    CAPTURE_UNSUPPORTED,
    INVALID_HANDLE,
    INVALID_VALUE,
    CudaError,
)
from streamsafe.simulate.cuda.machine import Machine
from streamsafe.simulate.cuda.memory import AddressSpace, Block, Kind
from streamsafe.simulate.cuda.queues import LEGACY
from streamsafe.simulate.cuda.values import Values

HOST_TO_HOST, HOST_TO_DEVICE, DEVICE_TO_HOST, DEVICE_TO_DEVICE, DEFAULT = range(5)
INVALID_DEVICE_ID = -2
_DIRECTIONS = ("H2H", "H2D", "D2H", "D2D")


_CPU_DEVICE_ID = -1
_POOL_GRANULARITY = 32 << 20
_RELEASE_THRESHOLD = 4
_RESERVED, _USED = (5, 6), (7, 8)  # cudaMemPoolAttr*MemCurrent and *MemHigh


class Pool:
    """A ``cudaMemPool_t``: what it holds of its device's memory. Its blocks are the machine's.

    Args:
        space: memory of the machine.
        device: device the pool is on.
    """

    def __init__(self, space: AddressSpace, device: int) -> None:
        self._space = space
        self.device = device
        self.used = 0
        self.reserved = 0
        self.attributes: dict[int, int] = {1: 1, 2: 1, 3: 1, _RELEASE_THRESHOLD: 0}

    def take(self, size: int) -> None:
        """Reserve room for a block; the pool grows in steps."""
        wanted = -(-(self.used + size) // _POOL_GRANULARITY) * _POOL_GRANULARITY
        if wanted > self.reserved:
            self._space.charge(self.device, wanted - self.reserved)
            self.reserved = wanted
        self.used += size

    def give_back(self, size: int) -> None:
        """A block was freed; its room stays with the pool."""
        self.used -= size

    def trim(self, keep: int) -> None:
        """Return unused room to the device, down to ``keep`` bytes."""
        wanted = -(-max(self.used, keep) // _POOL_GRANULARITY) * _POOL_GRANULARITY
        if wanted < self.reserved:
            self._space.charge(self.device, wanted - self.reserved)
            self.reserved = wanted


class MemoryCalls:
    """Memory; method names are CuPy's.

    Args:
        machine: the simulated machine.
        attributes: CuPy's ``PointerAttributes`` class.
        values: what to do when the device is asked for a scalar that nothing has computed.
    """

    def __init__(
        self,
        machine: Machine,
        attributes: Callable[[int, int, int, int], Any],
        values: Values,
    ) -> None:
        self._machine = machine
        self._attributes = attributes
        self._values = values
        self._pools: dict[int, Pool] = {}
        self._default_pools: list[int] = []
        self._current_pools: list[int] = []
        for device in range(machine.devices):
            handle = machine.handles.take()
            self._pools[handle] = Pool(machine.memory, device)
            self._default_pools.append(handle)
            self._current_pools.append(handle)

    # -- allocation

    def _allocate(self, name: str, size: int, kind: Kind, flags: int = 0) -> int:
        machine = self._machine
        with machine.lock:
            machine.permit()
            machine.captures.unsafe()
            block = machine.memory.allocate(size, kind, machine.device, flags)
            machine.log.note(name, machine.device, None, (block.address,), size)
            return block.address

    def malloc(self, size: int) -> int:
        return self._allocate("malloc", size, Kind.DEVICE) if size else 0

    def mallocManaged(self, size: int, flags: int = 1) -> int:
        return self._allocate("mallocManaged", size, Kind.MANAGED, flags) if size else 0

    def hostAlloc(self, size: int, flags: int) -> int:
        return self._allocate("hostAlloc", size, Kind.HOST, flags) if size else 0

    def _release(self, name: str, ptr: int, *kinds: Kind) -> None:
        machine = self._machine
        if not ptr:
            return
        with machine.lock:
            machine.permit()
            machine.captures.unsafe()
            # cudaFree waits in practice; here it must, or work kept behind a host function would touch freed memory.
            block = machine.memory.find(ptr)
            machine.scheduler.wait_all(None if block is None or block.kind is Kind.HOST else block.device)
            machine.memory.free(ptr, *kinds)
            machine.log.note(name, machine.device, None, (ptr,))

    def free(self, ptr: int) -> None:
        self._release("free", ptr, Kind.DEVICE, Kind.MANAGED)

    def freeHost(self, ptr: int) -> None:
        self._release("freeHost", ptr, Kind.HOST)

    def hostRegister(self, ptr: int, size: int, flags: int) -> None:
        machine = self._machine
        if not ptr or not size:
            raise CudaError(INVALID_VALUE)
        with machine.lock:
            machine.memory.register(ptr, size, machine.device, flags)
            machine.log.note("hostRegister", machine.device, None, (ptr,), size)

    def hostUnregister(self, ptr: int) -> None:
        machine = self._machine
        with machine.lock:
            machine.memory.unregister(ptr)
            machine.log.note("hostUnregister", machine.device, None, (ptr,))

    def memGetInfo(self) -> tuple[int, int]:
        memory = self._machine.memory
        return memory.capacity - memory.used[self._machine.device], memory.capacity

    # -- stream-ordered allocation

    def mallocAsync(self, size: int, stream: int) -> int:
        return self.mallocFromPoolAsync(size, self._current_pools[self._machine.device], stream)

    def mallocFromPoolAsync(self, size: int, pool: int, stream: int) -> int:
        machine = self._machine
        if not size:
            return 0
        with machine.lock:
            owner = self._pool(pool)
            owner.take(size)
            try:
                block = machine.memory.allocate(size, Kind.DEVICE, machine.device, pool=pool)
                try:
                    machine.enqueue("mallocAsync", stream, lambda: None, (block.address,), size)
                except CudaError:
                    machine.memory.free(block.address, Kind.DEVICE)
                    raise
            except CudaError:
                owner.give_back(size)
                raise
            return block.address

    def freeAsync(self, ptr: int, stream: int) -> None:
        machine = self._machine
        if not ptr:
            return
        with machine.lock:
            block = machine.memory.find(ptr)
            if block is None or block.address != ptr or block.kind is not Kind.DEVICE:
                raise CudaError(INVALID_VALUE)

            def release() -> None:
                if machine.memory.find(ptr) is block:
                    machine.memory.free(ptr, Kind.DEVICE)
                    if block.pool in self._pools:
                        self._pools[block.pool].give_back(block.size)

            captured = machine.stream(stream).capture is not None
            # A graph that frees runs many times on one address: the block stays for it.
            machine.enqueue("freeAsync", stream, (lambda: None) if captured else release, (ptr,))

    def _pool(self, handle: int) -> Pool:
        pool = self._pools.get(handle)
        if pool is None:
            raise CudaError(INVALID_HANDLE)
        return pool

    def deviceGetDefaultMemPool(self, device: int) -> int:
        self._machine.check_device(device)
        return self._default_pools[device]

    def deviceGetMemPool(self, device: int) -> int:
        self._machine.check_device(device)
        return self._current_pools[device]

    def deviceSetMemPool(self, device: int, pool: int) -> None:
        self._machine.check_device(device)
        self._pool(pool)
        self._current_pools[device] = pool

    def memPoolCreate(self, props: Any) -> int:
        machine = self._machine
        with machine.lock:
            handle = machine.handles.take()
            self._pools[handle] = Pool(machine.memory, machine.device)
            return handle

    def memPoolDestroy(self, pool: int) -> None:
        machine = self._machine
        with machine.lock:
            owner = self._pool(pool)
            if pool in self._default_pools:
                raise CudaError(INVALID_VALUE)
            del self._pools[pool]
            owner.trim(0)
            if self._current_pools[owner.device] == pool:
                self._current_pools[owner.device] = self._default_pools[owner.device]
            machine.handles.give_back(pool)

    def memPoolTrimTo(self, pool: int, size: int) -> None:
        with self._machine.lock:
            self._pool(pool).trim(size)

    def memPoolGetAttribute(self, pool: int, attr: int) -> int:
        owner = self._pool(pool)
        if attr in owner.attributes:
            return owner.attributes[attr]
        if attr in _RESERVED:
            return owner.reserved
        if attr in _USED:
            return owner.used
        raise CudaError(INVALID_VALUE)

    def memPoolSetAttribute(self, pool: int, attr: int, value: int) -> None:
        owner = self._pool(pool)
        if attr not in owner.attributes:
            raise CudaError(INVALID_VALUE)
        owner.attributes[attr] = value

    # -- copies

    def _direction(self, dst: Block | None, src: Block | None, kind: int) -> str:
        """Return the direction of a copy from where its ends are.

        Raises:
            CudaError: the declared kind contradicts the pointers.
        """
        to_device = dst is not None and dst.known is not None
        from_device = src is not None and src.known is not None
        if kind not in (HOST_TO_HOST, HOST_TO_DEVICE, DEVICE_TO_HOST, DEVICE_TO_DEVICE, DEFAULT):
            raise CudaError(INVALID_VALUE)
        if (kind == HOST_TO_DEVICE and not to_device) or (kind == DEVICE_TO_HOST and not from_device):
            raise CudaError(INVALID_VALUE)
        return _DIRECTIONS[2 * from_device + to_device]

    def _copy(
        self, name: str, dst: int, src: int, size: int, kind: int, stream: int, *, blocking: bool
    ) -> None:
        machine, memory = self._machine, self._machine.memory
        if not size:
            return
        with machine.lock:
            machine.permit()
            target, source = memory.span(dst, size), memory.span(src, size)
            direction = self._direction(target, source, kind)
            captured = machine.stream(stream).capture is not None
            if direction == "D2H" and not captured:
                machine.later.flush()
                machine.later.report()
            if direction == "D2H" and memory.unknown(src, size):
                self._values.unknown_copied_back()
            pageable = (target is None or source is None) and direction != "D2D"
            if captured and pageable:
                machine.captures.synchronizing(machine.stream(stream))
                raise CudaError(CAPTURE_UNSUPPORTED)
            if blocking:
                machine.captures.unsafe()
            begin = src
            keep: Any = None
            if source is None and not captured:
                # A pageable source is staged before the call returns (row TM-03): later host writes do not matter.
                keep = ctypes.create_string_buffer(ctypes.string_at(src, size), size)
                begin = ctypes.addressof(keep)

            pinned = source is not None and source.kind is Kind.HOST

            def copy(begin: int = begin, keep: Any = keep) -> None:
                if pinned and machine.later.waits:
                    # Now is the time to read it: the program may write it after this.
                    keep = ctypes.create_string_buffer(ctypes.string_at(begin, size), size)
                    begin = ctypes.addressof(keep)

                def move(keep: Any = keep) -> None:
                    memory.copy(dst, begin, size, machine.log.copied_back)

                seen = memory.seen(dst) or (source is not None and not pinned and memory.seen(src))
                machine.later.run(move, size=size if keep is not None else 0, now=seen)

            task = machine.enqueue(
                name, stream, copy, (dst, src), size, direction=direction, pageable=pageable
            )
            if task is not None and (blocking or (pageable and direction == "D2H")):
                machine.scheduler.wait([task])

    def memcpy(self, dst: int, src: int, size: int, kind: int) -> None:
        self._copy("memcpy", dst, src, size, kind, LEGACY, blocking=True)

    def memcpyAsync(self, dst: int, src: int, size: int, kind: int, stream: int) -> None:
        self._copy("memcpyAsync", dst, src, size, kind, stream, blocking=False)

    def memcpyPeer(self, dst: int, dstDevice: int, src: int, srcDevice: int, size: int) -> None:
        self._copy("memcpyPeer", dst, src, size, DEFAULT, LEGACY, blocking=True)

    def memcpyPeerAsync(
        self, dst: int, dstDevice: int, src: int, srcDevice: int, size: int, stream: int
    ) -> None:
        self._copy("memcpyPeerAsync", dst, src, size, DEFAULT, stream, blocking=False)

    def memcpy2D(
        self, dst: int, dpitch: int, src: int, spitch: int, width: int, height: int, kind: int
    ) -> None:
        with self._machine.lock:
            self._machine.captures.unsafe()
            self.memcpy2DAsync(dst, dpitch, src, spitch, width, height, kind, LEGACY)
            self._machine.scheduler.wait_all(self._machine.device)

    def memcpy2DAsync(
        self, dst: int, dpitch: int, src: int, spitch: int, width: int, height: int, kind: int, stream: int
    ) -> None:
        if width > dpitch or width > spitch:
            raise CudaError(INVALID_VALUE)
        for row in range(height):
            self._copy(
                "memcpy2DAsync", dst + row * dpitch, src + row * spitch, width, kind, stream, blocking=False
            )

    def _set(self, name: str, ptr: int, value: int, size: int, stream: int) -> None:
        machine = self._machine
        if not size:
            return
        with machine.lock:
            if machine.memory.span(ptr, size) is None:
                raise CudaError(INVALID_VALUE)

            def fill() -> None:
                machine.later.run(lambda: machine.memory.set(ptr, value, size), now=machine.memory.seen(ptr))

            machine.enqueue(name, stream, fill, (ptr,), size, value=value)

    def memset(self, ptr: int, value: int, size: int) -> None:
        with self._machine.lock:
            self._machine.captures.unsafe()
            self._set("memset", ptr, value, size, LEGACY)

    def memsetAsync(self, ptr: int, value: int, size: int, stream: int) -> None:
        self._set("memsetAsync", ptr, value, size, stream)

    def memPrefetchAsync(self, devPtr: int, count: int, dstDevice: int, stream: int) -> None:
        machine = self._machine
        if dstDevice != _CPU_DEVICE_ID:
            machine.check_device(dstDevice)
        with machine.lock:
            machine.enqueue("memPrefetchAsync", stream, lambda: None, (devPtr,), count, target=dstDevice)

    def memAdvise(self, devPtr: int, count: int, advice: int, device: int) -> None:
        machine = self._machine
        if not 1 <= advice <= 6:
            raise CudaError(INVALID_VALUE)
        machine.log.note("memAdvise", machine.device, None, (devPtr,), count, advice=advice)

    # -- pointers

    def pointerGetAttributes(self, ptr: int) -> Any:
        with self._machine.lock:
            block = self._machine.memory.find(ptr)
        if block is None:
            return self._attributes(INVALID_DEVICE_ID, 0, ptr, int(Kind.UNREGISTERED))
        host = 0 if block.kind is Kind.DEVICE else ptr
        return self._attributes(block.device, ptr, host, int(block.kind))

    def pointerGetMemoryType(self, ptr: int) -> int:
        with self._machine.lock:
            block = self._machine.memory.find(ptr)
        return int(Kind.UNREGISTERED if block is None else block.kind)
