"""CUDA's libraries: importable without being installed, logged, and computing nothing.

``pip install cupy-cuda12x`` brings no cuBLAS, cuFFT, cuRAND, cuSOLVER, cuSPARSE; CuPy's modules for them cannot
even be loaded. A :class:`Library` takes such a module's place: its constants are numbers, its handles are handles,
and a function that would compute is an operation on the current stream, after which the memory it writes is no
longer known.
"""

from __future__ import annotations

import functools
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from types import ModuleType
from typing import Any

from streamsafe.runtime.simulate.capsules import Bridge
from streamsafe.runtime.simulate.errors import CudaError, SimulationLimit
from streamsafe.runtime.simulate.machine import Machine

WORKSPACE_BYTES = 64


class Recorder:
    """Logs library calls as operations of the simulated machine.

    Args:
        machine: the simulated machine.
        bridge: translates CUDA errors for Python callers.
        runtime: CuPy's runtime API module.
        current_stream: returns the raw handle of the calling thread's current stream.
    """

    def __init__(
        self, machine: Machine, bridge: Bridge, runtime: ModuleType, current_stream: Callable[[], int]
    ) -> None:
        self.machine = machine
        self.current_stream = current_stream
        self._bridge = bridge
        self._runtime = runtime

    def call(
        self,
        name: str,
        reads: Sequence[int] = (),
        writes: Sequence[int] = (),
        *,
        stream: int | None = None,
        synchronizes: bool = False,
        **detail: Any,
    ) -> None:
        """Enqueue one library call.

        Args:
            name: library and function.
            reads: device addresses it reads.
            writes: device addresses it writes, each up to the end of its allocation.
            stream: raw handle; the current stream by default.
            synchronizes: the host waits for the stream before the call returns.
            detail: further facts for the log.

        Raises:
            CUDARuntimeError: the stream or its capture refuses the work.
        """
        machine = self.machine
        handle = self.current_stream() if stream is None else stream

        def forget() -> None:
            for pointer in writes:
                block = machine.memory.find(pointer)
                if block is not None:
                    machine.memory.forget(pointer, block.address + block.size - pointer)

        try:
            with machine.lock:
                machine.enqueue(
                    name,
                    handle,
                    forget,
                    (*reads, *writes),
                    reads=tuple(reads),
                    writes=tuple(writes),
                    **detail,
                )
                if synchronizes:
                    queue = machine.stream(handle)
                    machine.captures.synchronizing(queue)
                    machine.scheduler.wait(machine.scheduler.pending(queue))
        except CudaError as error:
            raise self._bridge.translate(self._runtime, error) from None

    def capturing(self) -> bool:
        """Whether the current stream takes part in a capture."""
        machine = self.machine
        with machine.lock:
            return machine.stream(self.current_stream()).capture is not None

    def pointers(self, arguments: Iterable[Any]) -> list[int]:
        """Return the arguments that are addresses of simulated memory, in order."""
        find = self.machine.memory.find
        return [a for a in arguments if type(a) is int and a > WORKSPACE_BYTES and find(a) is not None]


_CONSTANT = re.compile(r"^[A-Z][A-Z0-9_]+$")
_SHAPE = re.compile(r"nnz|GetSize$|GetNnz", re.IGNORECASE)
_BUFFER = re.compile(r"buffersize|worksize|work_estimation|workEstimation", re.IGNORECASE)
_SETTER = re.compile(
    r"^(set|get|destroy|_)|^xcsr.*_?(Info|Descr)$|.*_?(SetAttribute|GetAttribute|setPointers)$", re.IGNORECASE
)


class Library(ModuleType):
    """Stands in for one module of ``cupy_backends.cuda.libs``.

    Args:
        name: full module name.
        title: name in messages, such as cuBLAS.
        recorder: where calls go.
        version: what version queries answer.
        outputs: names of functions whose last device pointer is their only output; the others may write all.
        constants: values that matter because callers compute with them.
    """

    def __init__(
        self,
        name: str,
        title: str,
        recorder: Recorder,
        version: int,
        outputs: str = "",
        constants: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(name, f"Simulated {title}: calls are logged and compute nothing.")
        self._title = title
        self._recorder = recorder
        self._version = version
        self._outputs = re.compile(outputs) if outputs else None
        self._handles: dict[int, list[int]] = {}
        self._numbers = 0
        self._kind = name.rsplit(".", 1)[-1]
        self.available = True
        self.__dict__.update(constants or {})

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        value = self._make(name)
        setattr(self, name, value)
        return value

    def _make(self, name: str) -> Any:
        if name.endswith("Error"):
            return type(name, (RuntimeError,), {"__module__": self.__name__})
        if _CONSTANT.match(name):
            self._numbers += 1
            return self._numbers
        return self._function(name)

    def _function(self, name: str) -> Callable[..., Any]:
        if "ersion" in name:
            # cuSOLVER's is a (major, minor, patch) triple in CuPy.
            triple = (self._version // 1000, self._version % 1000 // 10, 0)
            answer: Any = triple if name == "_getVersion" else self._version
            return lambda *_: answer
        if name.startswith("create"):
            return self._create
        if name.startswith("destroy"):
            return self._destroy
        if _BUFFER.search(name):
            # The 64-bit cuSOLVER interface has a workspace on either side.
            size: Any = WORKSPACE_BYTES
            if self._kind == "cusolver" and name.startswith("x"):
                size = (WORKSPACE_BYTES, WORKSPACE_BYTES)
            return lambda *_, **__: size
        if _SHAPE.search(name):
            return functools.partial(self._refuse, name)
        if _SETTER.match(name):
            return lambda *_, **__: 0

        def compute(*arguments: Any, **keywords: Any) -> int:
            return self._compute(name, *arguments, **keywords)

        compute.__name__ = compute.__qualname__ = name
        return compute

    def _create(self, *arguments: Any) -> int:
        """Make a handle or a descriptor; a descriptor remembers the memory it describes."""
        machine = self._recorder.machine
        with machine.lock:
            handle = machine.handles.take()
            self._handles[handle] = self._recorder.pointers(arguments)
            return handle

    def _destroy(self, handle: int, *_: Any) -> None:
        machine = self._recorder.machine
        with machine.lock:
            if self._handles.pop(handle, None) is not None:
                machine.handles.give_back(handle)

    def _refuse(self, name: str, *_: Any, **__: Any) -> Any:
        raise SimulationLimit(
            f"{self._kind}.{name}() tells the size of a result, and the simulated device does not compute it"
        )

    def _compute(self, name: str, *arguments: Any, **keywords: Any) -> int:
        """Log one computing call. Returns 0, which every wrapper takes for success."""
        recorder = self._recorder
        if recorder.capturing():
            # CuPy's wrappers refuse it in these words when they set the handle's stream.
            raise NotImplementedError(
                f"calling {self._title} API during stream capture is currently unsupported"
            )
        pointers: list[int] = []
        for argument in (*arguments, *keywords.values()):
            described = self._handles.get(argument) if type(argument) is int else None
            pointers.extend(described if described is not None else recorder.pointers((argument,)))
        if self._outputs is not None and self._outputs.match(name):
            recorder.call(f"{self._kind}.{name}", pointers[:-1], pointers[-1:])
        else:
            recorder.call(f"{self._kind}.{name}", (), pointers)
        return 0


# cuBLAS: one output, the last pointer, except where a matrix is factorized or rotated in place.
_BLAS_OUTPUTS = r"(?!.*(getrf|getri|getrs|rot|swap|geqrf|matinv))"
# cuSPARSE: a product with a dense vector or matrix writes that; the rest makes sparse structures.
_SPARSE_OUTPUTS = (
    r"spMV|spMM$|spSM_solve|[sdcz](csrmv|csrmm2?|csrmvEx|gthr|csr2dense|csc2dense)$|sparseToDense"
)


def install_libraries(recorder: Recorder, version: int) -> None:
    """Put the stand-ins where CuPy imports the libraries from. Call before anything imports them."""
    package = sys.modules["cupy_backends.cuda.libs"]
    blas = {"CUBLAS_OP_N": 0, "CUBLAS_OP_T": 1, "CUBLAS_OP_C": 2}
    for name, title, outputs, constants in (
        ("cublas", "cuBLAS", _BLAS_OUTPUTS, blas),
        ("cusolver", "cuSOLVER", "", {}),
        ("cusparse", "cuSPARSE", _SPARSE_OUTPUTS, {}),
        ("curand", "cuRAND", "", {}),
    ):
        full = f"{package.__name__}.{name}"
        place(Library(full, title, recorder, version, outputs, constants), package)


def place(module: ModuleType, package: ModuleType) -> None:
    """Make ``module`` what both ``import package.name`` and ``package.name`` find."""
    sys.modules[module.__name__] = module
    setattr(package, module.__name__.rsplit(".", 1)[-1], module)
