"""``cupy_backends.cuda.api.driver``: contexts, modules, functions, launches."""

from __future__ import annotations

import ctypes
from typing import Any

from streamsafe.simulate.cuda.compute import Launch, extent
from streamsafe.simulate.cuda.errors import INVALID_HANDLE, SYMBOL_NOT_FOUND, CudaError
from streamsafe.simulate.cuda.kernels import Function, Module, Region, Source, argument, function, regions
from streamsafe.simulate.cuda.machine import Machine
from streamsafe.simulate.cuda.memory import Kind
from streamsafe.simulate.cuda.moves import read_move

# cuFuncGetAttribute: MAX_THREADS_PER_BLOCK and BINARY_VERSION have values of their own, the rest is 0.
_FUNCTION_ATTRIBUTES = {0: 1024, 5: 90, 6: 90}
# A symbol's size is unknown: this much is set aside when a kernel module's global is asked for.
_GLOBAL_BYTES = 1 << 20


class DriverCalls:
    """Modules and launches; method names are CuPy's.

    Args:
        machine: the simulated machine.
    """

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._sources: dict[bytes, Source] = {}

    def register(self, image: bytes, source: Source) -> None:
        """Remember the source that a binary image stands for."""
        self._sources[image] = source

    # -- contexts: one per device, handle = device + 1

    def ctxGetCurrent(self) -> int:
        return self._machine.device + 1 if self._machine.has_context else 0

    def ctxSetCurrent(self, ctx: int) -> None:
        self._machine.use(ctx - 1)

    def ctxCreate(self, dev: int) -> int:
        self._machine.use(dev)
        return dev + 1

    def ctxDestroy(self, ctx: int) -> None:
        self._machine.check_device(ctx - 1)

    def ctxGetDevice(self) -> int:
        return self._machine.device

    def devicePrimaryCtxRelease(self, dev: int) -> None:
        self._machine.check_device(dev)

    def streamGetCtx(self, stream: int) -> int:
        with self._machine.lock:
            return self._machine.stream(stream).device + 1

    # -- linking

    def linkCreate(self) -> int:
        return self._machine.handles.take()

    def linkAddData(self, state: int, input_type: int, data: bytes, name: str) -> None:
        return None

    def linkAddFile(self, state: int, input_type: int, path: str) -> None:
        return None

    def linkComplete(self, state: int) -> bytes:
        return b"simulated cubin"

    def linkDestroy(self, state: int) -> None:
        self._machine.handles.give_back(state)

    # -- modules

    def _load(self, source: Source | None) -> int:
        machine = self._machine
        with machine.lock:
            machine.permit()
            machine.captures.unsafe()
            handle = machine.handles.take()
            machine.modules[handle] = Module(source)
            return handle

    def moduleLoad(self, filename: str) -> int:
        try:
            with open(filename, "rb"):
                pass
        except OSError:
            raise CudaError(301) from None  # cudaErrorFileNotFound
        return self._load(None)

    def moduleLoadData(self, image: bytes) -> int:
        return self._load(self._sources.get(image))

    def _module(self, handle: int) -> Module:
        module = self._machine.modules.get(handle)
        if module is None:
            raise CudaError(INVALID_HANDLE)
        return module

    def moduleUnload(self, module: int) -> None:
        machine = self._machine
        with machine.lock:
            loaded = self._module(module)
            for handle in loaded.functions:
                del machine.functions[handle]
            for address in loaded.variables.values():
                machine.memory.free(address, Kind.DEVICE)
            del machine.modules[module]
            machine.handles.give_back(module)

    def moduleGetFunction(self, module: int, funcname: str) -> int:
        machine = self._machine
        with machine.lock:
            loaded = self._module(module)
            kernel = function(loaded.source, funcname)
            missing = (
                kernel.parameters is None and loaded.source is not None and funcname not in loaded.source.text
            )
            if missing and funcname.isidentifier():
                raise CudaError(SYMBOL_NOT_FOUND)
            handle = machine.handles.take()
            machine.functions[handle] = kernel
            loaded.functions.append(handle)
            return handle

    def moduleGetGlobal(self, module: int, varname: str) -> int:
        machine = self._machine
        with machine.lock:
            loaded = self._module(module)
            if loaded.source is not None and varname not in loaded.source.text:
                raise CudaError(SYMBOL_NOT_FOUND)
            found = None
            if machine.computes and loaded.source is not None:
                found = machine.later.compiler.variable(loaded.source, varname)
            if found is not None:
                return machine.memory.adopt(*found, machine.device)
            if varname not in loaded.variables:
                block = machine.memory.allocate(_GLOBAL_BYTES, Kind.DEVICE, machine.device)
                loaded.variables[varname] = block.address
            return loaded.variables[varname]

    # -- functions

    def _function(self, handle: int) -> Function:
        kernel = self._machine.functions.get(handle)
        if kernel is None:
            raise CudaError(INVALID_HANDLE)
        return kernel

    def funcGetAttribute(self, attribute: int, f: int) -> int:
        kernel = self._function(f)
        return kernel.attributes.get(attribute, _FUNCTION_ATTRIBUTES.get(attribute, 0))

    def funcSetAttribute(self, f: int, attribute: int, value: int) -> None:
        self._function(f).attributes[attribute] = value

    def occupancyMaxActiveBlocksPerMultiprocessor(
        self, func: int, blockSize: int, dynamicSMemSize: int
    ) -> int:
        self._function(func)
        return max(1, 2048 // max(1, blockSize))

    def occupancyMaxPotentialBlockSize(
        self, func: int, dynamicSMemSize: int, blockSizeLimit: int
    ) -> tuple[int, int]:
        self._function(func)
        return 264, blockSizeLimit or 1024

    def launchKernel(
        self,
        f: int,
        grid_dim_x: int,
        grid_dim_y: int,
        grid_dim_z: int,
        block_dim_x: int,
        block_dim_y: int,
        block_dim_z: int,
        shared_mem_bytes: int,
        stream: int,
        kernel_params: int,
        extra: int = 0,
    ) -> None:
        self._launch(
            "launchKernel",
            f,
            (grid_dim_x, grid_dim_y, grid_dim_z),
            (block_dim_x, block_dim_y, block_dim_z),
            shared_mem_bytes,
            stream,
            kernel_params,
        )

    def launchCooperativeKernel(self, f: int, *given: int) -> None:
        """The parameters are those of :meth:`launchKernel`, by position, without the last one."""
        x, y, z, block_x, block_y, block_z, shared, stream, kernel_params = given
        grid, block = (x, y, z), (block_x, block_y, block_z)
        self._launch("launchCooperativeKernel", f, grid, block, shared, stream, kernel_params)

    def _launch(
        self,
        name: str,
        handle: int,
        grid: tuple[int, int, int],
        block: tuple[int, int, int],
        shared: int,
        stream: int,
        arguments: int,
    ) -> None:
        machine = self._machine
        with machine.lock:
            machine.permit()
            kernel = self._function(handle)
            if machine.stream(stream).device != machine.device:
                raise CudaError(INVALID_HANDLE)
            touched = regions(kernel, arguments)
            written = [region for region in touched if not region.reads]
            known, device = kernel.parameters is not None, machine.device
            move = read_move(kernel, arguments) if kernel.moves else None
            launch = None
            if move is None and machine.computes:
                launch = self._prepare(kernel, (*grid, *block), shared, arguments, touched)

            def work() -> None:
                if move is not None:
                    move.run(machine.memory)
                elif launch is not None and launch.run(machine.memory, machine.later):
                    pass
                elif known:
                    self._forget(written)
                else:
                    # A binary may have written anything on its device.
                    for owned in machine.memory.blocks(device):
                        machine.memory.forget(owned.address, owned.size)

            def run() -> None:
                seen = kernel.prints or any(machine.memory.seen(region.pointer) for region in touched)
                machine.later.run(work, None if launch is None else kernel, now=seen)

            detail: dict[str, Any] = {
                "kernel": kernel.name,
                "grid": grid,
                "block": block,
                "arguments": arguments,
                "reads": [(region.pointer, region.size) for region in touched if region.reads],
                "writes": [(region.pointer, region.size) for region in written],
            }
            machine.enqueue(name, stream, run, [region.pointer for region in touched], **detail)
            machine.later.report()

    def _prepare(
        self, kernel: Function, shape: tuple[int, ...], shared: int, arguments: int, touched: list[Region]
    ) -> Launch | None:
        sizes = kernel.sizes
        if sizes is None:
            entry = self._machine.later.compiler.entry(kernel)
            if entry is None:
                return None
            sizes = entry.sizes
        values = [ctypes.string_at(argument(arguments, index), size) for index, size in enumerate(sizes)]
        return Launch(kernel, shape, shared, values, touched)

    def _forget(self, written: list[Region]) -> None:
        for region in written:
            self._machine.memory.forget(*extent(self._machine.memory, region))
