"""CUDA's libraries: importable without being installed, and logged.

``pip install cupy-cuda12x`` brings no cuBLAS, cuFFT, cuRAND, cuSOLVER, cuSPARSE; CuPy's modules for them cannot
even be loaded. A :class:`Library` takes such a module's place: its constants are numbers, its handles are handles,
and a function that would compute is an operation on the current stream. Some compute by NumPy; after the others the
memory that they write is no longer known.
"""

from __future__ import annotations

import ctypes
import functools
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import ModuleType
from typing import Any

from streamsafe.simulate.cuda.capsules import Bridge
from streamsafe.simulate.cuda.compute import Computation
from streamsafe.simulate.cuda.errors import CudaError, SimulationLimit
from streamsafe.simulate.cuda.library_blas import BLAS
from streamsafe.simulate.cuda.library_lapack import BATCHED, LAPACK, LOWER, UPPER
from streamsafe.simulate.cuda.library_random import CURAND, seed
from streamsafe.simulate.cuda.machine import Machine

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
        statuses: Sequence[int] = (),
        status_bytes: int = 0,
        computation: Computation | None = None,
        **detail: Any,
    ) -> None:
        """Enqueue one library call.

        Args:
            name: library and function.
            reads: device addresses it reads.
            writes: device addresses it writes, each up to the end of its allocation.
            stream: raw handle; the current stream by default.
            synchronizes: the host waits for the stream before the call returns.
            statuses: addresses of status arrays, set to success.
            status_bytes: their size.
            computation: what it computes; without one, its results are unknown.
            detail: further facts for the log.

        Raises:
            CUDARuntimeError: the stream or its capture refuses the work.
        """
        machine = self.machine
        handle = self.current_stream() if stream is None else stream

        def run() -> None:
            for pointer in statuses:
                machine.memory.set(pointer, 0, status_bytes)
            computed = False
            if computation is not None and machine.computes:
                computed = computation.run(machine.memory, machine.log, name)
            elif writes and machine.computes:
                machine.log.did_not_compute(name, "its library is simulated without its results")
            for pointer in () if computed else set(writes) - set(statuses):
                block = machine.memory.find(pointer)
                if block is not None:
                    machine.memory.forget(pointer, block.address + block.size - pointer)
                    for status in statuses:
                        machine.memory.remember(status, status_bytes)

        try:
            with machine.lock:
                machine.enqueue(
                    name,
                    handle,
                    lambda: machine.later.run(run, now=any(machine.memory.seen(each) for each in writes)),
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
_CREATE = re.compile(r"^(create|spCreate|spGEMM_create|spSM_create|spSV_create)")
_DESTROY = re.compile(r"^(destroy|spDestroy|spGEMM_destroy|spSM_destroy|spSV_destroy)")
_SHAPE = re.compile(r"nnz|GetSize$", re.IGNORECASE)
_BUFFER = re.compile(r"bufferSize|workEstimation|estimateMemory", re.IGNORECASE)
_ATTRIBUTE = re.compile(r"^(set|get|_)|(SetAttribute|GetAttribute|setPointers)$", re.IGNORECASE)
_HOST_STATUS = re.compile(r"(getrs|geqrf|gels)Batched$")
_INT_BYTES = 4


class _Calls:
    """What the functions of one library do. Apart from the module, whose attributes go before its handles do.

    Args:
        kind: short name, such as cublas.
        title: name in messages, such as cuBLAS.
        recorder: where calls go.
        version: what version queries answer.
        outputs: pattern of functions whose last device pointer is their only output; the others may write all.
        reports: pattern of functions whose last device pointer is a status array: simulated calls succeed.
        computations: functions that compute, by name; each takes the memory, its name and the call's arguments.
    """

    def __init__(
        self,
        kind: str,
        title: str,
        recorder: Recorder,
        version: int,
        outputs: str,
        reports: str,
        computations: Mapping[str, Callable[..., Computation | None]],
    ) -> None:
        self._computations = computations
        self._kind = kind
        self._title = title
        self._recorder = recorder
        self._version = version
        self._outputs = re.compile(outputs)
        self._reports = re.compile(reports)
        self._handles: dict[int, list[int]] = {}
        self._numbers = 0
        # CuPy's handles are destroyed while the interpreter takes modules apart: nothing is looked up then.
        self._is_finalizing = sys.is_finalizing

    def make(self, name: str) -> Any:
        """Return what the attribute ``name`` of the library's module is."""
        if name.endswith("Error"):
            return type(name, (RuntimeError,), {})
        if _CONSTANT.match(name):
            self._numbers += 1
            return self._numbers
        if "ersion" in name:
            # cuSOLVER's is a (major, minor, patch) triple in CuPy.
            triple = (self._version // 1000, self._version % 1000 // 10, 0)
            return functools.partial(_constant, triple if name == "_getVersion" else self._version)
        if _CREATE.match(name):
            return self._create
        if _DESTROY.match(name):
            return self._destroy
        if _BUFFER.search(name):
            # The 64-bit cuSOLVER interface has a workspace on either side.
            both = self._kind == "cusolver" and name.startswith("x")
            return self._named(name, (WORKSPACE_BYTES, WORKSPACE_BYTES) if both else WORKSPACE_BYTES)
        if name == "setPseudoRandomGeneratorSeed":
            return seed
        if _ATTRIBUTE.search(name):
            return functools.partial(_constant, 0)
        if _SHAPE.search(name):
            return functools.partial(self._refuse, name)
        return self._named(name, None)

    def _named(self, name: str, answer: Any) -> Callable[..., Any]:
        """Return a function with a name, which CuPy puts into its own messages."""

        def call(*arguments: Any, **keywords: Any) -> Any:
            if answer is None:
                return self._compute(name, (*arguments, *keywords.values()))
            self._check_capture()
            return answer

        call.__name__ = call.__qualname__ = name
        return call

    def _create(self, *arguments: Any) -> int:
        """Make a handle or a descriptor; a descriptor remembers the memory it describes."""
        machine = self._recorder.machine
        with machine.lock:
            handle = machine.handles.take()
            self._handles[handle] = self._recorder.pointers(arguments)
            return handle

    def _destroy(self, handle: int, *_: Any) -> None:
        if self._is_finalizing():
            return
        machine = self._recorder.machine
        with machine.lock:
            if self._handles.pop(handle, None) is not None:
                machine.handles.give_back(handle)

    def _refuse(self, name: str, *_: Any, **__: Any) -> Any:
        raise SimulationLimit(
            f"{self._kind}.{name}() tells the size of a result, and the simulated device does not compute it"
        )

    def _check_capture(self) -> None:
        """CuPy's wrappers set the handle's stream first, and refuse a capturing one in these words."""
        if self._recorder.capturing():
            raise NotImplementedError(
                f"calling {self._title} API during stream capture is currently unsupported"
            )

    def _compute(self, name: str, arguments: Sequence[Any]) -> int:
        """Log one computing call. Returns 0, which every wrapper takes for success."""
        self._check_capture()
        recorder = self._recorder
        found = self._computations.get(name)
        computation = found(recorder.machine.memory, name, *arguments) if found is not None else None
        pointers: list[int] = []
        for argument in arguments:
            described = self._handles.get(argument) if type(argument) is int else None
            pointers.extend(described if described is not None else recorder.pointers((argument,)))
        if _HOST_STATUS.search(name):
            # (..., int* info on the host, batch size)
            ctypes.c_int.from_address(arguments[-2]).value = 0
        if self._outputs.match(name):
            recorder.call(f"{self._kind}.{name}", pointers[:-1], pointers[-1:], computation=computation)
            return 0
        status = pointers[-1:] if self._reports.search(name) else []
        batch = arguments[-1] if "atched" in name and type(arguments[-1]) is int else 1
        recorder.call(
            f"{self._kind}.{name}",
            (),
            pointers,
            statuses=status,
            status_bytes=batch * _INT_BYTES,
            computation=computation,
        )
        return 0


def _constant(value: Any, *_: Any, **__: Any) -> Any:
    return value


class Library(ModuleType):
    """Stands in for one module of ``cupy_backends.cuda.libs``.

    Args:
        name: full module name.
        calls: makes its attributes when they are first looked up.
        constants: values that matter because callers compute with them.
    """

    def __init__(self, name: str, calls: _Calls, constants: dict[str, Any]) -> None:
        super().__init__(name, "Simulated library.")
        self.__dict__.update(constants, _calls=calls, available=True)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        value = self.__dict__["_calls"].make(name)
        setattr(self, name, value)
        return value


# cuBLAS: one output, the last pointer, except where a matrix is factorized or rotated in place.
_BLAS_OUTPUTS = r"(?!.*(getrf|getri|getrs|rot|swap|geqrf|matinv))"
_BLAS_REPORTS = r"getrfBatched|getriBatched|matinvBatched"
# cuSPARSE: a product with a dense vector or matrix writes that; the rest makes sparse structures.
_SPARSE_OUTPUTS = (
    r"spMV|spMM$|spSM_solve|[sdcz](csrmv|csrmm2?|csrmvEx|gthr|csr2dense|csc2dense)$|sparseToDense"
)
_COMPUTATIONS: dict[str, Mapping[str, Callable[..., Computation | None]]] = {
    "cublas": {**BLAS, **BATCHED},
    "cusolver": LAPACK,
    "curand": CURAND,
}
_NEVER = r"(?!)"
_ALWAYS = r""
_LIBRARIES: tuple[tuple[str, str, str, str, dict[str, Any]], ...] = (
    (
        "cublas",
        "cuBLAS",
        _BLAS_OUTPUTS,
        _BLAS_REPORTS,
        {
            "CUBLAS_OP_N": 0,
            "CUBLAS_OP_T": 1,
            "CUBLAS_OP_C": 2,
            "CUBLAS_FILL_MODE_LOWER": LOWER,
            "CUBLAS_FILL_MODE_UPPER": UPPER,
        },
    ),
    (
        "cusolver",
        "cuSOLVER",
        _NEVER,
        _ALWAYS,
        {"CUSOLVER_EIG_MODE_NOVECTOR": 0, "CUSOLVER_EIG_MODE_VECTOR": 1},
    ),
    ("cusparse", "cuSPARSE", _SPARSE_OUTPUTS, _NEVER, {}),
    ("curand", "cuRAND", _NEVER, _NEVER, {}),
)


def install_libraries(recorder: Recorder, version: int) -> None:
    """Put the stand-ins where CuPy imports the libraries from. Call before anything imports them."""
    package = sys.modules["cupy_backends.cuda.libs"]
    for name, title, outputs, reports, constants in _LIBRARIES:
        calls = _Calls(name, title, recorder, version, outputs, reports, _COMPUTATIONS.get(name, {}))
        place(Library(f"{package.__name__}.{name}", calls, constants), package)


def place(module: ModuleType, package: ModuleType) -> None:
    """Make ``module`` what both ``import package.name`` and ``package.name`` find."""
    sys.modules[module.__name__] = module
    setattr(package, module.__name__.rsplit(".", 1)[-1], module)
