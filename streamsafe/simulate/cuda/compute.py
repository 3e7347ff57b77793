"""Launches that compute: a kernel runs on the host when all that it reads is known, and what it writes then is."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy

from streamsafe.simulate.cuda.errors import SimulationError
from streamsafe.simulate.cuda.host_code import DONE, FAILED, Entry, Library, library
from streamsafe.simulate.cuda.kernels import Function, Region, Source, View
from streamsafe.simulate.cuda.log import Log
from streamsafe.simulate.cuda.memory import AddressSpace
from streamsafe.toolchain.compiler import BuildError


def extent(memory: AddressSpace, region: Region) -> tuple[int, int]:
    """The first byte and the bytes of a region: one behind a plain pointer ends with its allocation."""
    if region.size is not None:
        return region.pointer, region.size
    block = memory.find(region.pointer)
    return region.pointer, 0 if block is None else block.address + block.size - region.pointer


class Compiler:
    """Compiles kernels for the host.

    Args:
        log: where kernels that do not compute are noted.
    """

    def __init__(self, log: Log) -> None:
        self._log = log
        self._refused: dict[tuple[Source, str | None], str] = {}

    def entry(self, kernel: Function) -> Entry | None:
        """The compiled code of a kernel, or None."""
        source, name = kernel.source, kernel.name
        if source is None:
            self._log.did_not_compute(name, "it came without CUDA C++ source")
            return None
        made = self._library(source, name)
        if made is not None and name not in made.entries:
            made = self._library(source, name, name)
        return None if made is None else made.entries[name]

    def variable(self, source: Source, name: str) -> tuple[int, int] | None:
        """Address and bytes of a global variable of a module."""
        made = self._library(source, name)
        return None if made is None else made.variables.get(name)

    def _library(self, source: Source, name: str, wanted: str | None = None) -> Library | None:
        if (source, wanted) not in self._refused:
            try:
                return library(source, wanted)
            except (BuildError, OSError) as error:
                self._refused[source, wanted] = str(error)
        self._log.did_not_compute(name, self._refused[source, wanted])
        return None

    def prepare(self, kernels: Iterable[Function]) -> None:
        """Compile several at once."""
        different = {(kernel.source, kernel.name): kernel for kernel in kernels if kernel.source is not None}
        first = next(iter(different.values()), None)
        if first is None or self.entry(first) is None or len(different) == 1:
            return  # also where there is no compiler
        with ThreadPoolExecutor(os.cpu_count()) as threads:
            list(threads.map(self.entry, different.values()))


@dataclass(slots=True)
class Launch:
    """One launch of a kernel.

    Attributes:
        kernel: what is launched.
        shape: of the grid and of a block.
        shared: bytes of dynamic shared memory.
        arguments: the value of each, copied at the call.
        regions: memory that they refer to.
    """

    kernel: Function
    shape: Sequence[int]
    shared: int
    arguments: Sequence[bytes]
    regions: Sequence[Region]

    def run(self, memory: AddressSpace, later: Later) -> bool:
        """Run the kernel; return whether what it wrote is right."""
        needed = [region for region in self.regions if not region.overwrites]
        if any(memory.unknown(*extent(memory, region)) for region in needed):
            return False
        entry = later.compiler.entry(self.kernel)
        if entry is None:
            return False
        end, reason = entry.run(self.shape, self.shared, self.arguments)
        if end != DONE:
            later.log.did_not_compute(self.kernel.name, reason)
            if end == FAILED:
                later.fault = f"the kernel {self.kernel.name} stopped: {reason}"
            return False
        for region in self.regions:
            if region.overwrites:
                memory.remember(*extent(memory, region))
        return True


@dataclass(frozen=True, slots=True)
class Computation:
    """What a call of a library computes, by NumPy.

    Attributes:
        function: takes the arrays that are read and those that are written.
        reads: elements that it reads.
        writes: elements that it writes.
    """

    function: Callable[..., object]
    reads: Sequence[View]
    writes: Sequence[View]

    def run(self, memory: AddressSpace, log: Log, name: str) -> bool:
        """Compute; return whether what was written is right."""
        if any(memory.unknown(*view.extent) for view in self.reads):
            return False
        try:
            with numpy.errstate(all="ignore"):
                self.function(*(view.array() for view in (*self.reads, *self.writes)))
        except (ValueError, TypeError, ArithmeticError, numpy.linalg.LinAlgError) as error:
            log.did_not_compute(name, str(error))
            return False
        for view in self.writes:
            memory.remember(*view.extent)
        return True


MOST_WAITING = 5000
MOST_BYTES = 256 << 20


class Later:
    """Work of the devices that waits until the host asks for a value: a program that asks for none compiles nothing.

    All of it runs in the order in which it came here, which is the order of the streams.

    Args:
        log: where kernels that do not compute are noted.

    Attributes:
        compiler: of the kernels.
        eager: nothing waits.
        fault: the error of the program at which a kernel stopped.
    """

    def __init__(self, log: Log) -> None:
        self.log = log
        self.compiler = Compiler(log)
        self.eager = False
        self.fault: str | None = None
        self._work: list[Callable[[], None]] = []
        self._kernels: list[Function] = []
        self._bytes = 0

    @property
    def waits(self) -> bool:
        """Whether there is work that has not run."""
        return bool(self._work)

    def run(
        self, work: Callable[[], None], kernel: Function | None = None, *, size: int = 0, now: bool = False
    ) -> None:
        """Run work now or later.

        Args:
            work: must not raise.
            kernel: what it launches.
            size: bytes of memory that it keeps.
            now: the host sees what it writes, or may change what it reads.
        """
        if not self._work and (kernel is None or now or self.eager):
            work()
            return
        self._work.append(work)
        self._bytes += size
        if kernel is not None:
            self._kernels.append(kernel)
        if now or self.eager or len(self._work) > MOST_WAITING or self._bytes > MOST_BYTES:
            self.flush()

    def flush(self) -> None:
        """Run all work that waits."""
        if not self._work:
            return
        work, kernels = self._work, self._kernels
        self._work, self._kernels, self._bytes = [], [], 0
        self.compiler.prepare(kernels)
        for each in work:
            each()

    def report(self) -> None:
        """Raise the error at which a kernel stopped, once.

        Raises:
            SimulationError: a kernel stopped.
        """
        fault, self.fault = self.fault, None
        if fault is not None:
            raise SimulationError(fault)
