"""``cupy_backends.cuda.api.runtime``: CUDA arrays, textures, surfaces. Copies are real; fetching is the kernels'."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass

from streamsafe.simulate.cuda.errors import CAPTURE_UNSUPPORTED, INVALID_VALUE, CudaError
from streamsafe.simulate.cuda.machine import Machine
from streamsafe.simulate.cuda.memory import Kind
from streamsafe.simulate.cuda.queues import LEGACY


class _ChannelDesc(ctypes.Structure):
    _fields_ = [(name, ctypes.c_int) for name in ("x", "y", "z", "w", "f")]


class _Sizes(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in ("x", "y", "z")]


class _Pitched(ctypes.Structure):
    _fields_ = [
        ("pointer", ctypes.c_void_p),
        ("pitch", ctypes.c_size_t),
        ("width", ctypes.c_size_t),
        ("height", ctypes.c_size_t),
    ]


class _Copy(ctypes.Structure):
    """``cudaMemcpy3DParms``."""

    _fields_ = [
        ("src_array", ctypes.c_void_p),
        ("src_at", _Sizes),
        ("src", _Pitched),
        ("dst_array", ctypes.c_void_p),
        ("dst_at", _Sizes),
        ("dst", _Pitched),
        ("extent", _Sizes),
        ("kind", ctypes.c_int),
    ]


@dataclass(frozen=True, slots=True)
class _Array:
    """A ``cudaArray_t``: extents in elements, bytes of one element; the handle is the address of its memory."""

    width: int
    height: int
    depth: int
    element: int


@dataclass(frozen=True, slots=True)
class _Side:
    """One side of a 3D copy: where its first row starts, and the distances of rows and slices, in bytes."""

    start: int
    row: int
    plane: int

    def at(self, y: int, z: int) -> int:
        return self.start + y * self.row + z * self.plane


class ArrayCalls:
    """Arrays, textures and surfaces; method names are CuPy's.

    Args:
        machine: the simulated machine.
    """

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._arrays: dict[int, _Array] = {}

    def mallocArray(self, descPtr: int, width: int, height: int, flags: int = 0) -> int:
        return self.malloc3DArray(descPtr, width, height, 0, flags)

    def malloc3DArray(self, descPtr: int, width: int, height: int, depth: int, flags: int = 0) -> int:
        machine = self._machine
        desc = _ChannelDesc.from_address(descPtr)
        array = _Array(width, max(1, height), max(1, depth), (desc.x + desc.y + desc.z + desc.w) // 8)
        size = array.width * array.height * array.depth * array.element
        if not size:
            raise CudaError(INVALID_VALUE)
        with machine.lock:
            machine.permit()
            machine.captures.unsafe()
            block = machine.memory.allocate(size, Kind.DEVICE, machine.device, flags)
            self._arrays[block.address] = array
            machine.log.note("malloc3DArray", machine.device, None, (block.address,), size)
            return block.address

    def freeArray(self, ptr: int) -> None:
        machine = self._machine
        with machine.lock:
            self._array(ptr)
            machine.scheduler.wait_all(machine.device)
            del self._arrays[ptr]
            machine.memory.free(ptr, Kind.DEVICE)
            machine.log.note("freeArray", machine.device, None, (ptr,))

    def _array(self, handle: int) -> _Array:
        array = self._arrays.get(handle)
        if array is None:
            raise CudaError(INVALID_VALUE)
        return array

    # -- copies

    def memcpy3D(self, Memcpy3DParmsPtr: int) -> None:
        with self._machine.lock:
            self._machine.captures.unsafe()
            self._copy("memcpy3D", Memcpy3DParmsPtr, LEGACY)
            self._machine.scheduler.wait_all(self._machine.device)

    def memcpy3DAsync(self, Memcpy3DParmsPtr: int, stream: int) -> None:
        with self._machine.lock:
            self._copy("memcpy3DAsync", Memcpy3DParmsPtr, stream)

    def _copy(self, name: str, address: int, stream: int) -> None:
        given = _Copy.from_address(address)
        array = given.src_array or given.dst_array
        # Extents count elements when an array takes part, bytes otherwise.
        element = self._array(array).element if array else 1
        source = self._side(given.src_array, given.src, given.src_at)
        target = self._side(given.dst_array, given.dst, given.dst_at)
        rows = [(y, z) for z in range(max(1, given.extent.z)) for y in range(max(1, given.extent.y))]
        self._enqueue(name, target, source, given.extent.x * element, rows, stream)

    def _side(self, handle: int | None, pitched: _Pitched, at: _Sizes) -> _Side:
        if handle:
            array = self._array(handle)
            row = array.width * array.element
            plane = row * array.height
            return _Side(handle + at.x * array.element + at.y * row + at.z * plane, row, plane)
        plane = pitched.pitch * max(1, pitched.height)
        return _Side(
            (pitched.pointer or 0) + at.x + at.y * pitched.pitch + at.z * plane, pitched.pitch, plane
        )

    def memcpy2DToArray(
        self, dst: int, wOffset: int, hOffset: int, src: int, spitch: int, width: int, height: int, kind: int
    ) -> None:
        with self._machine.lock:
            self._machine.captures.unsafe()
            self.memcpy2DToArrayAsync(dst, wOffset, hOffset, src, spitch, width, height, kind, LEGACY)
            self._machine.scheduler.wait_all(self._machine.device)

    def memcpy2DToArrayAsync(
        self,
        dst: int,
        wOffset: int,
        hOffset: int,
        src: int,
        spitch: int,
        width: int,
        height: int,
        kind: int,
        stream: int,
    ) -> None:
        with self._machine.lock:
            target = self._part(dst, wOffset, hOffset)
            self._enqueue("memcpy2DToArrayAsync", target, _Side(src, spitch, 0), width, _rows(height), stream)

    def memcpy2DFromArray(
        self, dst: int, dpitch: int, src: int, wOffset: int, hOffset: int, width: int, height: int, kind: int
    ) -> None:
        with self._machine.lock:
            self._machine.captures.unsafe()
            self.memcpy2DFromArrayAsync(dst, dpitch, src, wOffset, hOffset, width, height, kind, LEGACY)
            self._machine.scheduler.wait_all(self._machine.device)

    def memcpy2DFromArrayAsync(
        self,
        dst: int,
        dpitch: int,
        src: int,
        wOffset: int,
        hOffset: int,
        width: int,
        height: int,
        kind: int,
        stream: int,
    ) -> None:
        with self._machine.lock:
            source = self._part(src, wOffset, hOffset)
            self._enqueue(
                "memcpy2DFromArrayAsync", _Side(dst, dpitch, 0), source, width, _rows(height), stream
            )

    def _part(self, handle: int, offset: int, row: int) -> _Side:
        array = self._array(handle)
        pitch = array.width * array.element
        return _Side(handle + offset + row * pitch, pitch, 0)

    def _enqueue(
        self, name: str, target: _Side, source: _Side, width: int, rows: list[tuple[int, int]], stream: int
    ) -> None:
        machine, memory = self._machine, self._machine.memory
        pageable = memory.find(source.start) is None or memory.find(target.start) is None
        if pageable and machine.stream(stream).capture is not None:
            machine.captures.synchronizing(machine.stream(stream))
            raise CudaError(CAPTURE_UNSUPPORTED)

        def copy() -> None:
            machine.later.flush()
            for y, z in rows:
                memory.copy(target.at(y, z), source.at(y, z), width, machine.log.copied_back)

        size = width * len(rows)
        task = machine.enqueue(name, stream, copy, (target.start, source.start), size, pageable=pageable)
        if task is not None and pageable:
            machine.scheduler.wait([task])

    # -- textures and surfaces: handles that a kernel would fetch through

    def createTextureObject(self, ResDescPtr: int, TexDescPtr: int) -> int:
        return self._handle("createTextureObject")

    def createSurfaceObject(self, ResDescPtr: int) -> int:
        return self._handle("createSurfaceObject")

    def _handle(self, name: str) -> int:
        machine = self._machine
        with machine.lock:
            handle = machine.handles.take()
            machine.log.note(name, machine.device, object=handle)
            return handle

    def destroyTextureObject(self, texObject: int) -> None:
        self._machine.handles.give_back(texObject)

    def destroySurfaceObject(self, surfObject: int) -> None:
        self._machine.handles.give_back(surfObject)


def _rows(height: int) -> list[tuple[int, int]]:
    return [(y, 0) for y in range(height)]
