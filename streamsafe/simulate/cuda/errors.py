"""Exceptions of the simulated CUDA runtime, and the CUDA error codes it returns.

Two families must not be confused. :class:`SimulationError` and its children are ours and reach the user as they
are. :class:`CudaError` is internal: a simulated call raises it to say "CUDA returned this code", and the capsule
layer turns it into CuPy's own ``CUDARuntimeError`` or ``CUDADriverError``.
"""

from __future__ import annotations


class SimulationError(RuntimeError):
    """Base class of what the simulated runtime itself refuses."""


class SimulationUnavailable(SimulationError, ImportError):
    """The simulation cannot be installed: no CuPy, an untested version, or CuPy was imported before."""


class SimulationLimit(SimulationError):
    """The program needs a result that only a real kernel could have computed, or a call that is not simulated."""


class CudaError(Exception):
    """A CUDA status other than success, raised inside a simulated call.

    Args:
        status: numeric code; runtime and driver API agree on every code used here except where noted.
    """

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status


SUCCESS = 0
INVALID_VALUE = 1
MEMORY_ALLOCATION = 2
INITIALIZATION_ERROR = 3
INVALID_DEVICE = 101
INVALID_HANDLE = 400
ILLEGAL_STATE = 401
SYMBOL_NOT_FOUND = 500
NOT_READY = 600
PEER_ACCESS_ALREADY_ENABLED = 704
PEER_ACCESS_NOT_ENABLED = 705
HOST_MEMORY_ALREADY_REGISTERED = 712
HOST_MEMORY_NOT_REGISTERED = 713
NOT_PERMITTED = 800
CAPTURE_UNSUPPORTED = 900
CAPTURE_INVALIDATED = 901
CAPTURE_MERGE = 902
CAPTURE_UNMATCHED = 903
CAPTURE_UNJOINED = 904
CAPTURE_ISOLATION = 905
CAPTURE_IMPLICIT = 906
CAPTURED_EVENT = 907
CAPTURE_WRONG_THREAD = 908

# CuPy asks the driver library for these texts, and there is no driver library here.
DRIVER_ERRORS: dict[int, tuple[str, str]] = {
    INVALID_VALUE: ("CUDA_ERROR_INVALID_VALUE", "invalid argument"),
    MEMORY_ALLOCATION: ("CUDA_ERROR_OUT_OF_MEMORY", "out of memory"),
    INITIALIZATION_ERROR: ("CUDA_ERROR_NOT_INITIALIZED", "initialization error"),
    INVALID_DEVICE: ("CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"),
    INVALID_HANDLE: ("CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"),
    ILLEGAL_STATE: (
        "CUDA_ERROR_ILLEGAL_STATE",
        "the operation cannot be performed in the present state",
    ),
    SYMBOL_NOT_FOUND: ("CUDA_ERROR_NOT_FOUND", "named symbol not found"),
    NOT_PERMITTED: ("CUDA_ERROR_NOT_PERMITTED", "operation not permitted"),
    CAPTURE_UNSUPPORTED: (
        "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED",
        "operation not permitted when stream is capturing",
    ),
    CAPTURE_INVALIDATED: (
        "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED",
        "operation failed due to a previous error during capture",
    ),
    CAPTURE_IMPLICIT: (
        "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT",
        "operation would make the legacy stream depend on a capturing blocking stream",
    ),
}
