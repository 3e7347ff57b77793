"""Replacing the C functions that CuPy's modules import from one another.

CuPy's compiled modules bind ``cupy_backends.cuda.api.runtime`` and ``.driver`` through the capsules in
``__pyx_capi__`` when they are imported. A capsule replaced before that is a replaced CUDA call, with no compiled
code of ours: the new capsule holds a ctypes callback.

A ctypes callback cannot propagate an exception: whatever its Python function raises is printed and dropped. So a
failing call returns the C function's failure value normally and leaves behind a capsule whose *destructor* is
CuPy's own C function ``check_status``. The capsule hangs on an argument object that ctypes itself made for the
call and drops after the result was converted, the last thing it does; at that moment ``check_status`` runs,
constructs ``CUDARuntimeError``, and what the patched constructor raises is what the C caller sees.
:meth:`Bridge.verify` proves the mechanism on the running interpreter before anything relies on it.
"""

from __future__ import annotations

import ctypes
import re
import sys
import threading
from collections.abc import Callable
from types import ModuleType
from typing import Any

from streamsafe.simulate.cuda.errors import DRIVER_ERRORS, CudaError, SimulationUnavailable

_api = ctypes.pythonapi
_capsule_new = _api.PyCapsule_New
_capsule_new.restype = ctypes.py_object
_capsule_new.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
_capsule_pointer = _api.PyCapsule_GetPointer
_capsule_pointer.restype = ctypes.c_void_p
_capsule_pointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
_capsule_name = _api.PyCapsule_GetName
_capsule_name.restype = ctypes.c_char_p
_capsule_name.argtypes = [ctypes.py_object]
_incref = _api.Py_IncRef
_incref.restype = None
_incref.argtypes = [ctypes.py_object]

# Thunks are called by other modules until the very end of interpreter teardown: one reference too many, for good.
_KEEP: list[object] = []
_incref(_KEEP)


class _ErrorSlot(ctypes.c_int):
    """``__pyx_skip_dispatch``: the argument object that a failing call hangs its exception on."""


class _OptionalInt(ctypes.Structure):
    """Cython's ``__pyx_opt_args`` of the functions with one optional int (all that have any)."""

    _fields_ = [("given", ctypes.c_int), ("value", ctypes.c_int)]


_SCALARS: dict[str, type[Any]] = {
    "int": ctypes.c_int,
    "unsigned int": ctypes.c_uint,
    "intptr_t": ctypes.c_ssize_t,
    "size_t": ctypes.c_size_t,
    "uintmax_t": ctypes.c_uint64,
    "float": ctypes.c_float,
    "cudaMemcpyKind": ctypes.c_int,
    "CUdevice": ctypes.c_int,
    "Py_ssize_t": ctypes.c_ssize_t,
}
_SIGNATURE = re.compile(r"^(?P<result>.*?)\s*\((?P<args>.*)\)\s*$")


def signature(module: ModuleType, name: str) -> str:
    """Return the C signature under which Cython exports ``name``: the name of its capsule."""
    text: bytes = _capsule_name(module.__pyx_capi__[name])
    return text.decode()


def address(module: ModuleType, name: str) -> int:
    """Return the address of the C function (or variable) that ``module`` exports as ``name``."""
    capsule = module.__pyx_capi__[name]
    pointer: int = _capsule_pointer(capsule, _capsule_name(capsule))
    return pointer


def _is_object(ctype: str) -> bool:
    return ctype == "PyObject *" or ctype.startswith("struct __pyx_obj")


class Prototype:
    """A parsed capsule signature: how to build its callback.

    Args:
        text: C signature as Cython writes it.

    Raises:
        ValueError: the text is a variable's, or uses a type by value that ctypes cannot return or receive.
    """

    def __init__(self, text: str) -> None:
        match = _SIGNATURE.match(text)
        if match is None:
            raise ValueError(f"not a function: {text}")
        self.returns_object = _is_object(match["result"])
        # An object result travels as its address: a py_object callback could not return NULL.
        result = ctypes.c_void_p if self.returns_object else self._type(match["result"])
        self.error_slot: int | None = None
        self.optional: int | None = None
        args: list[type[Any]] = []
        for part in match["args"].split(","):
            declared = part.strip()
            if declared == "void":
                continue
            if declared.endswith("__pyx_skip_dispatch"):
                self.error_slot = len(args)
                args.append(_ErrorSlot)
            elif "__pyx_opt_args" in declared:
                self.optional = len(args)
                args.append(ctypes.c_void_p)
            else:
                args.append(ctypes.py_object if _is_object(declared) else self._type(declared))
        self.callback_type = ctypes.PYFUNCTYPE(result, *args)

    @staticmethod
    def _type(declared: str) -> type[Any]:
        try:
            return _SCALARS[declared]
        except KeyError:
            raise ValueError(f"type by value: {declared}") from None


class Bridge:
    """Installs Python functions as the C functions (and Python attributes) of CuPy's API modules.

    Args:
        runtime: the module ``cupy_backends.cuda.api.runtime``.
        driver: the module ``cupy_backends.cuda.api.driver``.
    """

    def __init__(self, runtime: ModuleType, driver: ModuleType) -> None:
        self._runtime = runtime
        self._driver = driver
        self._check_status = address(runtime, "check_status")
        self._pending = threading.local()
        self._patch_errors()

    def _patch_errors(self) -> None:
        make_runtime_error = self._runtime.CUDARuntimeError.__init__
        pending = self._pending

        def runtime_init(self: BaseException, status: int) -> None:
            waiting = getattr(pending, "error", None)
            if waiting is not None:
                pending.error = None
                raise waiting
            make_runtime_error(self, status)

        def driver_init(self: Any, status: int) -> None:
            self.status = status
            name, text = DRIVER_ERRORS.get(status, (f"CUDA_ERROR_{status}", "simulated driver error"))
            RuntimeError.__init__(self, f"{name}: {text}")

        self._runtime.CUDARuntimeError.__init__ = runtime_init
        self._driver.CUDADriverError.__init__ = driver_init

    def translate(self, module: ModuleType, error: CudaError) -> BaseException:
        """Return CuPy's own exception for a CUDA status."""
        kind = self._driver.CUDADriverError if module is self._driver else self._runtime.CUDARuntimeError
        translated: BaseException = kind(error.status)
        return translated

    def _thunk(
        self, module: ModuleType, prototype: Prototype, function: Callable[..., Any], failure: int
    ) -> Any:
        slot_at, optional_at = prototype.error_slot, prototype.optional
        boxed, pending, check_status = prototype.returns_object, self._pending, self._check_status
        # CuPy's objects die, and call, until the interpreter has taken its last module apart: nothing here may be
        # looked up in one, and an exception that escaped would leave C with an uninitialized result.
        translate, cuda_error, is_finalizing = self.translate, CudaError, sys.is_finalizing
        capsule_new, incref, address_of = _capsule_new, _incref, id

        def call(*args: Any) -> Any:
            if is_finalizing():
                if boxed:
                    incref(None)
                    return address_of(None)
                return 0
            try:
                if optional_at is not None:
                    given = args[:slot_at]
                    if args[optional_at]:
                        extra = _OptionalInt.from_address(args[optional_at])
                        if extra.given:
                            given += (extra.value,)
                    result = function(*given)
                else:
                    result = function(*args[:slot_at])
            except BaseException as error:
                raised = translate(module, error) if isinstance(error, cuda_error) else error
                if slot_at is not None:
                    pending.error = raised
                    slot = args[slot_at]
                    slot.failed = capsule_new(1, None, check_status)
                    # The traceback keeps this frame: it must not keep the slot, or its end would not come.
                    del args, slot
                return 0 if boxed else failure
            if boxed:
                incref(result)
                return address_of(result)
            return result

        return prototype.callback_type(call)

    def replace(self, module: ModuleType, name: str, function: Callable[..., Any], failure: int = 0) -> None:
        """Make ``function`` the C function ``name`` of ``module`` for every importer to come.

        Args:
            module: runtime or driver API module.
            name: exported name.
            function: takes the C arguments as Python values; may raise :class:`CudaError` or anything else.
            failure: value returned to C when it raises (``except? -1`` or ``except? 0`` in CuPy's declaration).

        Raises:
            ValueError: the signature cannot be expressed as a ctypes callback.
        """
        text = signature(module, name)
        thunk = self._thunk(module, Prototype(text), function, failure)
        encoded = text.encode()
        _KEEP.extend((thunk, encoded, module.__pyx_capi__[name]))
        module.__pyx_capi__[name] = _capsule_new(ctypes.cast(thunk, ctypes.c_void_p).value, encoded, None)

    def expose(self, module: ModuleType, name: str, function: Callable[..., Any]) -> None:
        """Make ``function`` the Python attribute ``name`` of ``module``, errors translated."""

        def call(*args: Any, **kwargs: Any) -> Any:
            try:
                return function(*args, **kwargs)
            except CudaError as error:
                raise self.translate(module, error) from None

        call.__name__ = call.__qualname__ = name
        call.__doc__ = function.__doc__
        call.__module__ = module.__name__
        setattr(module, name, call)

    def verify(self) -> None:
        """Check on this interpreter that an error raised in a callback reaches a C caller as an exception.

        Raises:
            SimulationUnavailable: it does not.
        """

        def probe(value: int) -> None:
            if value == 1:
                raise CudaError(value)
            if value:
                raise ArithmeticError(value)

        prototype = Prototype("PyObject *(int, int __pyx_skip_dispatch)")
        thunk = self._thunk(self._runtime, prototype, probe, 0)
        call = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_int, ctypes.c_int)(
            ctypes.cast(thunk, ctypes.c_void_p).value or 0
        )
        try:
            if call(0, 0) is not None:
                raise SimulationUnavailable(
                    "the simulated CUDA runtime returns a wrong value on this interpreter"
                )
            for value, expected in ((1, self._runtime.CUDARuntimeError), (2, ArithmeticError)):
                try:
                    call(value, 0)
                except expected:
                    continue
                break
            else:
                return
        except SystemError:
            pass
        raise SimulationUnavailable(
            "the simulated CUDA runtime cannot raise errors on this Python interpreter"
        )
