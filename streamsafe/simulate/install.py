"""The simulated runtimes of a process: CuPy's, and PyTorch's device, each where its library is installed."""

from __future__ import annotations

import importlib.abc
import importlib.util
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import TYPE_CHECKING, Protocol

from streamsafe.simulate.hardware import Hardware
from streamsafe.simulate.importer import importer_of

if TYPE_CHECKING:
    from streamsafe.simulate.torch import Device


class SimulationUnavailable(RuntimeError):
    """Nothing can be simulated here; the message says why."""


class Simulated(Protocol):
    """A simulated runtime."""

    def summary(self) -> object:
        """What it did and what it could not, as text."""

    def used(self) -> bool:
        """Whether the program had work for it."""


class Simulations:
    """All simulated runtimes of this process.

    Args:
        hardware: the machine that each simulates.
    """

    def __init__(self, hardware: Hardware) -> None:
        self.hardware = hardware
        self._parts: list[Simulated] = []
        self._notes: list[str] = []

    def summary(self) -> str:
        """What they did and what they could not."""
        used = [part for part in self._parts if part.used()] or self._parts
        return "\n".join([*(str(part.summary()) for part in used), *self._notes])

    def used(self) -> bool:
        """Whether the program had work for any."""
        return any(part.used() for part in self._parts)

    def add(self, part: Simulated) -> None:
        """One more simulated runtime."""
        self._parts.append(part)

    def share(self, device: Device) -> None:
        """CuPy's runtime knows the memory and the streams of PyTorch's device."""
        for part in self._parts:
            if not isinstance(part, type(device)):
                part.share(device.memory_of, device.stream_flags)  # type: ignore[attr-defined]
        self._parts.append(device)

    def note(self, text: str) -> None:
        """Something that is not simulated, and why."""
        self._notes.append(text)
        print(f"streamsafe: {text}", file=sys.stderr, flush=True)


def install(devices: int | Hardware = 1, *, strict: bool = False) -> Simulations:
    """Puts a simulated runtime under CuPy, at once, and under PyTorch, when the program imports it.

    Args:
        devices: how many devices the machine has, or all of the machine.
        strict: an error instead of a note where torch is there already without the device, or cannot be simulated.

    Raises:
        SimulationUnavailable: neither library is installed, or the one that is cannot be simulated.
        ValueError: arguments out of range, or a second call that asks for another number of devices.
    """
    hardware = devices if isinstance(devices, Hardware) else Hardware(devices=devices)
    if hardware.devices < 1:
        raise ValueError("a simulated machine has at least one device")
    simulations = Simulations(hardware)
    torch, cupy = _is_installed("torch"), _is_installed("cupy")
    if not torch and not cupy:
        raise SimulationUnavailable(
            "neither CuPy nor PyTorch is installed here: pip install cupy-cuda12x, or a CPU build of torch "
            "(no GPU is needed)"
        )
    if strict and torch:
        _refuse_torch(alone=not cupy)
    if cupy:
        _install_cupy(simulations)
    if torch:
        _install_torch(simulations)
    return simulations


def _is_installed(name: str) -> bool:
    if name in sys.modules:
        return True
    found = importlib.util.find_spec(name)
    return found is not None and found.origin is not None  # a folder of that name on the path has no origin


def _refuse_torch(alone: bool) -> None:
    """Says why torch cannot be simulated, where it is too late or the wrong build."""
    from streamsafe.simulate import torch as simulate

    if simulate.is_active():
        return
    if "torch" in sys.modules:
        importer = importer_of("torch")
        raise SimulationUnavailable(
            f"torch is imported already{f', by {importer}' if importer else ''}: the simulated device must be there "
            "before. Load streamsafe first (`pytest -p streamsafe ...`), or import torch later there"
        )
    reason = simulate.unavailable()
    if reason is not None and alone:
        raise SimulationUnavailable(reason)


def _install_cupy(simulations: Simulations) -> None:
    try:
        from streamsafe.simulate import cuda as simulate
    except ImportError as error:
        raise SimulationUnavailable(str(error)) from error
    try:
        simulations.add(simulate.install(simulations.hardware.devices))
    except simulate.SimulationUnavailable as error:
        raise SimulationUnavailable(str(error)) from error


def _install_torch(simulations: Simulations) -> None:
    from streamsafe.simulate import torch as simulate

    if simulate.is_active():
        simulations.add(simulate.install(simulations.hardware))
    elif "torch" in sys.modules:
        simulations.note("torch is not simulated: it was imported before")
    else:
        sys.meta_path.insert(0, _BeforeTorch(simulations))


class _BeforeTorch(importlib.abc.MetaPathFinder):
    """Puts the simulated device in place when ``import torch``, or of Triton, begins, and finds nothing."""

    def __init__(self, simulations: Simulations) -> None:
        self._simulations = simulations

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name not in ("torch", "triton"):
            return None
        sys.meta_path.remove(self)
        from streamsafe.simulate import torch as simulate

        try:
            self._simulations.share(simulate.install(self._simulations.hardware))
        except simulate.SimulationUnavailable as error:
            self._simulations.note(f"torch is not simulated: {error}")
        return None
