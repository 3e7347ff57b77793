"""Installing the simulated CUDA runtime under the real CuPy."""

from __future__ import annotations

import atexit
import importlib
import importlib.util
import os
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from streamsafe.simulate.cuda.capsules import Bridge, signature
from streamsafe.simulate.cuda.compiler import replace_compiler, replace_nvrtc
from streamsafe.simulate.cuda.driver import DriverCalls
from streamsafe.simulate.cuda.errors import SimulationLimit, SimulationUnavailable
from streamsafe.simulate.cuda.libraries import Recorder, install_libraries
from streamsafe.simulate.cuda.library_modules import complete_libraries
from streamsafe.simulate.cuda.log import Operation
from streamsafe.simulate.cuda.machine import Machine
from streamsafe.simulate.cuda.runtime_array import ArrayCalls
from streamsafe.simulate.cuda.runtime_device import DeviceCalls
from streamsafe.simulate.cuda.runtime_memory import MemoryCalls
from streamsafe.simulate.cuda.runtime_stream import StreamCalls
from streamsafe.simulate.cuda.values import POLICIES, Policy, Values
from streamsafe.toolchain.imports import after_import

TESTED_VERSIONS = ("13.6.0", "14.0.0", "14.0.1", "14.1.0", "14.1.1", "14.2.0")

# C functions that compute without a device, and error constants: they stay CuPy's own.
_NATIVE = {"check_status", "runtimeGetVersion", "_getCUDAMajorVersion", "get_build_version"}
# What a failing function returns to C where it is not -1 for an int and 0 for the rest (runtime.pxd, driver.pyx).
_FAILURES = {"streamGetPriority": 0, "funcGetAttribute": -2, "deviceGetLimit": -1}
_EXIT_WAIT_S = 2.0


@dataclass(frozen=True, slots=True)
class Summary:
    """What a simulated run did, and what it could not.

    Attributes:
        counts: calls by name.
        kernels: launches by kernel name.
        uncomputed: kernels and library calls that did not compute, and why; None where none does.
        arrays_copied_back: device-to-host copies.
        arrays_filled: how many of them held bytes that no kernel had computed, returned as zeros.
        bytes_filled: those bytes.
        filled_at: where the program copied such arrays back, by "file:line".
        scalars_filled: scalars answered with zero (policy ``"fill"``), by "file:line call".
    """

    counts: dict[str, int]
    kernels: dict[str, int]
    uncomputed: dict[str, str] | None
    arrays_copied_back: int
    arrays_filled: int
    bytes_filled: int
    filled_at: dict[str, int]
    scalars_filled: dict[str, int]

    def __str__(self) -> str:
        launches = sum(self.kernels.values())
        plural = "" if launches == 1 else "es"
        lines = [f"simulated CUDA runtime: {launches} kernel launch{plural}"]
        if self.uncomputed is None:
            lines[0] += "; kernels do not compute"
        elif self.uncomputed:
            lines.append("the results of these are not known:")
            for reason in sorted(set(self.uncomputed.values())):
                names = sorted(name for name, why in self.uncomputed.items() if why == reason)
                others = f" and {len(names) - 5} others" if len(names) > 5 else ""
                lines.append(f"  {', '.join(names[:5])}{others}: {reason}")
        if self.arrays_filled or (self.uncomputed is None and self.arrays_copied_back):
            lines.append(
                f"{self.arrays_filled} of {self.arrays_copied_back} arrays copied back hold 0 where a kernel would "
                "have written"
            )
        lines += [f"  {place}: {count}" for place, count in sorted(self.filled_at.items())]
        if self.scalars_filled:
            lines.append(
                f"{sum(self.scalars_filled.values())} scalars asked of the device were answered with 0"
            )
            lines += [f"  {place}: {count}" for place, count in sorted(self.scalars_filled.items())]
        return "\n".join(lines)


class Simulation:
    """The simulated runtime of this process.

    Args:
        machine: devices and what they own.
        values: policy for values that nothing computed.
    """

    def __init__(self, machine: Machine, values: Values) -> None:
        self._machine = machine
        self._values = values

    @property
    def devices(self) -> int:
        """Number of simulated devices."""
        return self._machine.devices

    @property
    def log(self) -> list[Operation]:
        """Operations so far, oldest first: the live list, bounded (the oldest half goes at 200,000)."""
        return self._machine.log.operations

    @property
    def computes(self) -> bool:
        """Whether kernels and library calls compute. Settable, for the memory that is allocated from then on."""
        return self._machine.computes

    @computes.setter
    def computes(self, whether: bool) -> None:
        self._machine.computes = self._machine.memory.knows = whether

    @property
    def values(self) -> Policy:
        """What happens when the program asks the device for a scalar: ``"stop"`` or ``"fill"``. Settable."""
        return self._values.policy

    @values.setter
    def values(self, policy: Policy) -> None:
        if policy not in POLICIES:
            raise ValueError(f'values must be "stop" or "fill", not {policy!r}')
        self._values.policy = policy

    def share(
        self, memory: Callable[[int], tuple[int, int, int] | None], stream_flags: Callable[[int], int]
    ) -> None:
        """Know another runtime's memory (start, bytes and device of what holds a pointer) and streams (flags or -1)."""
        self._machine.later.eager = True  # the other runtime reads the memory unseen
        self._machine.later.flush()
        self._machine.memory.foreign = memory
        self._machine.scheduler.foreign = stream_flags

    def used(self) -> bool:
        """Return whether the program launched or copied anything."""
        return bool(self._machine.log.kernels or self._machine.log.arrays_copied_back)

    def summary(self) -> Summary:
        """Return the counts of the run so far."""
        log = self._machine.log
        with self._machine.lock:
            return Summary(
                counts=dict(log.counts),
                kernels=dict(log.kernels),
                uncomputed=dict(log.uncomputed) if self._machine.computes else None,
                arrays_copied_back=log.arrays_copied_back,
                arrays_filled=log.arrays_filled,
                bytes_filled=log.bytes_filled,
                filled_at=dict(self._values.arrays),
                scalars_filled=dict(self._values.filled),
            )


_active: Simulation | None = None


def is_active() -> bool:
    """Return whether CuPy runs on the simulated runtime in this process."""
    return _active is not None


def install(devices: int = 1, *, values: Policy = "stop", compute: bool = True) -> Simulation:
    """Put a simulated CUDA runtime under CuPy and import it. A second call returns the first one's simulation.

    Streams, events, memory, copies, captures and their errors behave as the semantics rows say.

    Args:
        devices: how many devices the machine has.
        values: ``"stop"`` raises :class:`SimulationLimit` where the program asks the device for a scalar or a
            shape that no kernel computed, ``"fill"`` answers zero.
        compute: whether kernels and library calls compute. Without, they are logged only, and nothing is compiled.

    Raises:
        SimulationUnavailable: CuPy is missing, of a version that was not tested, or was imported before.
        ValueError: arguments out of range, or a second call that asks for another number of devices.
    """
    global _active
    if _active is not None:
        if devices > _active.devices:
            raise ValueError(
                f"the simulated runtime was installed with {_active.devices} device(s), not {devices}"
            )
        return _active
    if devices < 1:
        raise ValueError("a simulated machine has at least one device")
    _refuse_unsupported()
    os.environ["CUDA_VISIBLE_DEVICES"] = ""  # kernels that nothing here stands in for fail, as without a GPU
    runtime = importlib.import_module("cupy_backends.cuda.api.runtime")
    driver = importlib.import_module("cupy_backends.cuda.api.driver")
    machine = Machine(devices, compute)
    policy = Values(values, machine.log.uncomputed)
    simulation = Simulation(machine, policy)
    simulation.values = values
    bridge = Bridge(runtime, driver)
    bridge.verify()
    version: int = runtime.runtimeGetVersion()
    launches = DriverCalls(machine)
    _replace(
        bridge,
        runtime,
        [
            DeviceCalls(machine, version),
            MemoryCalls(machine, runtime.PointerAttributes, policy),
            ArrayCalls(machine),
            StreamCalls(machine),
        ],
    )
    _replace(bridge, driver, [launches])
    replace_nvrtc(bridge, importlib.import_module("cupy_backends.cuda.libs.nvrtc"), version)
    recorder = Recorder(machine, bridge, runtime, _current_stream)
    install_libraries(recorder, version)
    _active = simulation

    def complete(cupy: ModuleType) -> None:
        replace_compiler(cupy, launches)
        complete_libraries(cupy, recorder, version)
        policy.patch(cupy.ndarray)

    # a sanitizer that waits for the import too keeps what it finds: it has to find the simulated calls
    after_import("cupy", complete, first=True)
    importlib.import_module("cupy")
    atexit.register(_drain, machine)
    return simulation


def _current_stream() -> int:
    pointer: int = sys.modules["cupy"].cuda.get_current_stream().ptr
    return pointer


def _drain(machine: Machine) -> None:
    """Give host functions under way a moment: a daemon thread that runs Python code while it ends may crash."""
    with machine.lock:
        machine.scheduler.wait_all(timeout=_EXIT_WAIT_S)


def _refuse_unsupported() -> None:
    before = [name for name in ("cupy", "cupy_backends.cuda.api.runtime") if name in sys.modules]
    if before:
        raise SimulationUnavailable(
            f"{before[0]} was imported before the simulated CUDA runtime: it must be installed first"
        )
    spec = importlib.util.find_spec("cupy")
    if spec is None or spec.origin is None:
        raise SimulationUnavailable("CuPy is not installed: pip install cupy-cuda12x (no GPU is needed)")
    text = (Path(spec.origin).parent / "_version.py").read_text(encoding="utf-8")
    match = re.search(r"__version__\s*=\s*['\"]([^'\"]+)", text)
    version = match[1] if match else "unknown"
    if version not in TESTED_VERSIONS:
        raise SimulationUnavailable(
            f"CuPy {version} is not among the versions the simulated CUDA runtime was tested with: "
            + ", ".join(TESTED_VERSIONS)
        )


def _replace(bridge: Bridge, module: ModuleType, groups: list[object]) -> None:
    """Replace every function of an API module: by a simulated one, or by one that says it is not simulated."""
    calls: dict[str, Any] = {}
    for group in groups:
        calls.update({name: getattr(group, name) for name in vars(type(group)) if not name.startswith("__")})
    kept = set(module.__pyx_capi__)
    for name in sorted(kept):
        text = signature(module, name)
        if name in _NATIVE or "(" not in text:
            continue
        function = calls.get(name) or _not_simulated(module, name)
        try:
            bridge.replace(module, name, function, _FAILURES.get(name, -1 if text.startswith("int ") else 0))
        except ValueError:
            continue  # a struct by value (textures): CuPy's own helper stays
        if hasattr(module, name):
            bridge.expose(module, name, function)
    # Functions that only Python code calls, and those that this CuPy has no C function for.
    for name in sorted(set(calls) - kept):
        bridge.expose(module, name, calls[name])


def _not_simulated(module: ModuleType, name: str) -> Any:
    def refuse(*_: Any, **__: Any) -> Any:
        raise SimulationLimit(f"{module.__name__.rsplit('.', 1)[-1]}.{name}() is not simulated")

    return refuse
