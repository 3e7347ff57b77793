"""torch joined to the session: the extension's conflicts become hazards, what Python hooks see becomes operations."""

from __future__ import annotations

import importlib
import importlib.machinery
import importlib.util
import os
import sys
from collections.abc import Sequence
from functools import wraps
from typing import Any

from streamsafe.order.backward import Backward
from streamsafe.order.hazard import Conflict, Frame
from streamsafe.order.lines import COMMUNICATION
from streamsafe.order.memory import HOST, Region, Use
from streamsafe.order.native.library import Library
from streamsafe.order.native.tape import Tape
from streamsafe.order.trace import Recorder
from streamsafe.runtime import autograd
from streamsafe.runtime import places as sites
from streamsafe.runtime.errors import StreamHazardError
from streamsafe.runtime.monitor import Monitor, local, rendered
from streamsafe.runtime.patches import Patches
from streamsafe.runtime.torch import hooks
from streamsafe.runtime.torch.captures import Captures
from streamsafe.runtime.torch.core import TorchChecker
from streamsafe.runtime.torch.hooks.interface import Use as HookUse
from streamsafe.toolchain import torch as build

INITIAL_GRADIENT = 1
"""A block's flag in the extension: it is a gradient that was given to a backward pass."""

LATE = "{} thread{} that ran before the first session began: watched from the first allocation, record or wait on"

_loaded: tuple[Any, Library] | None = None


def extension() -> tuple[Any, Library]:
    """The extension and its C functions, built at the first use; torch must be imported.

    Raises:
        streamsafe.toolchain.torch.BuildError: it cannot be built.
        ImportError: it cannot be loaded.
    """
    global _loaded
    if _loaded is None:
        path = build.build(build.COLLECTOR)
        loader = importlib.machinery.ExtensionFileLoader(build.COLLECTOR.name, str(path))
        spec = importlib.util.spec_from_file_location(build.COLLECTOR.name, path, loader=loader)
        assert spec is not None
        module = importlib.util.module_from_spec(spec)
        loader.exec_module(module)
        _simulated(module)
        _pass_over(sys.modules["torch"], module.key())
        _loaded = module, Library(str(path))
    return _loaded


def _pass_over(torch: Any, number: int) -> None:
    """Has operators that take functions (``torch.cond``, flex attention) pass over the extension's dispatch key.

    They are written in Python, ask their tensors and the thread for a key, and fail for one that they do not know. The
    extension's stays in the thread for good. The operators of their functions are seen.
    """
    key = torch._C.DispatchKey(number)
    original = getattr(torch._ops, "_compute_keyset", None)
    if original is None:
        return

    @wraps(original)
    def _compute_keyset(args: Any, kwargs: Any, non_fallthrough_keys: Any) -> Any:
        return original(args, kwargs, non_fallthrough_keys.remove(key))

    torch._ops._compute_keyset = _compute_keyset


def _simulated(module: Any) -> None:
    """A simulated device calls the extension for its memory."""
    simulate = sys.modules.get("streamsafe.simulate.torch")
    if simulate is not None and simulate.is_active():
        simulate._active.observe(module.block_callback())


class Watch(Captures):
    """What is in place for torch while the hooks are: an extension in C++ sees operators, streams and memory."""

    def __init__(self, patches: Patches) -> None:
        super().__init__(patches)
        self._extension: Any = None
        self._library: Library | None = None
        self._checker: TorchChecker | None = None
        self._problem = ""
        self._tape: Tape | None = None
        self._attached = False
        self._late = 0

    # -- the hooks ---------------------------------------------------------------------------------------------------

    def install(self) -> None:
        """Put the hooks in place.

        Raises:
            streamsafe.toolchain.torch.BuildError: the extension cannot be built.
            ImportError: it cannot be loaded.
            OSError: likewise.
        """
        torch = sys.modules["torch"]
        self._extension, self._library = extension()
        module = self._extension
        module.include_thread(True)  # for good: dynamo compiles anew for each change
        self._problem = module.self_test()
        os.register_at_fork(after_in_child=self._forget)
        self._install_names(torch)
        self._install_backward(torch)
        hooks.install(self._patches, self)
        torch.cuda._lazy_call(self._attach)

    def _attach(self) -> None:
        """CUDA is initialized."""
        if self._attached or self._extension is None:
            return
        self._attached = True
        problem = self._extension.attach(sites.internal)
        if problem:
            self.note("allocator", problem)

    # -- sessions ----------------------------------------------------------------------------------------------------

    def begin(self, monitor: Monitor, patches: Patches) -> None:
        self._forget_program()
        assert self._library is not None
        self._monitor = monitor
        patches.call(self.end)
        if monitor.host and "numpy" in sys.modules:
            importlib.import_module("streamsafe.runtime.pinned.functions").begin(patches)
        if self._problem:
            self.note("self test", self._problem)
        torch = sys.modules["torch"]
        if torch.cuda.is_initialized():
            self._attach()
        self._extension.start(self.judge, True, monitor.threads, monitor.host)
        self._extension.set_thread(local.queue, True)
        self._extension.include_thread(True)  # also where another thread has put the hooks in place
        self._late = self._extension.counters()["late"]
        monitor.ending.append(self._count_late)
        self._test(torch)
        self._checker = TorchChecker(
            self._extension,
            self._library,
            threads=monitor.threads,
            name_of=self.name_of,
            made_at=self.made_at,
        )
        if isinstance(monitor.checker, Recorder):
            self._tape = Tape(self._checker, monitor.checker._write, rendered, self._called)
        monitor.use(self._checker)
        monitor.quick_edge = self._extension.host_edge
        if self._tape is not None:
            self._tape.start()

    def _count_late(self) -> None:
        late = self._extension.counters()["late"] - self._late
        if late:
            self.note("late", LATE.format(late, "" if late == 1 else "s"))

    def name_of(self, device: int, handle: int) -> str:
        return super().name_of(device, handle) or (
            COMMUNICATION if self._extension.communicates(device, handle) else ""
        )

    def _forget(self) -> None:
        """In a forked child nobody listens."""
        self._collection.hold(False)
        self._monitor = self._checker = None

    def _test(self, torch: Any) -> None:
        """Whether operators are really seen: another tool may have the place in torch's dispatcher."""
        before = self._extension.counters()["operators"]
        torch.empty(1).fill_(0)
        if self._extension.counters()["operators"] == before:
            self.note("self test", "PyTorch was not watched: its dispatcher passes no operator on")

    def end(self) -> None:
        self._collection.hold(False)
        if self._tape is not None:
            self._tape.stop()
            self._tape = None
        if self._extension is not None and self._monitor is not None:
            self._extension.stop()
            self._monitor = self._checker = None

    # -- verdicts ----------------------------------------------------------------------------------------------------

    def judge(
        self, reports: list[list[int]], operation: int, uses: list[tuple[Any, ...]], may_raise: bool
    ) -> StreamHazardError | None:
        """Called by the extension about the conflicts of an operation; returns what is to be raised instead of it.

        The extension cannot hand on what goes wrong here: it prints it, and the sessions say that they are not whole.
        """
        monitor, checker = self._monitor, self._checker
        if monitor is None or checker is None:
            return None
        try:
            return self._judged(monitor, checker, reports, uses, may_raise)
        except Exception as error:
            for session in monitor.sessions:
                session.fault = f"{type(error).__name__}: {error}"
            raise

    def _judged(
        self,
        monitor: Monitor,
        checker: TorchChecker,
        reports: list[list[int]],
        uses: list[tuple[Any, ...]],
        may_raise: bool,
    ) -> StreamHazardError | None:
        with monitor.lock:
            self._extension.set_pending(False)
            if not reports:
                due = monitor.due()
                self._extension.set_pending(monitor.deferred)
                return due
            known = [_use(*each) for each in uses]
            conflicts = [self._refined(checker.reader.read(report, known)) for report in reports]
            self._explained |= any(conflict.facts.violation is not None for conflict in conflicts)
            error = monitor.error(conflicts, may_raise)
            if monitor.deferred:
                self._extension.set_pending(True)
        return error

    def _refined(self, conflict: Conflict) -> Conflict:
        """With what is known of autograd."""
        checker = self._checker
        assert checker is not None
        details = checker.reader.details
        first, second = self._backward(details.first_operation), self._backward(details.second_operation)
        if first is None and second is None:
            return conflict
        flags = details.flags if conflict.facts.reuse is None else details.first_flags
        return autograd.explained(conflict, first, second, initial=bool(flags & INITIAL_GRADIENT))

    def _backward(self, operation: int) -> Backward | None:
        """What the autograd engine has to do with an operation."""
        assert self._checker is not None
        _, by_backward, node, forward, caller = self._checker.operation(operation)
        if not by_backward:
            return None
        return Backward(node, self._frames(forward), self._frames(caller))

    def _frames(self, site: int) -> tuple[Frame, ...]:
        return sites.frames(self._extension.site(site)) if site else ()

    def _called(self, operation: int) -> tuple[Backward | None, int]:
        """As :class:`streamsafe.order.native.tape.Tape` asks; the call's own place is the operation's there."""
        backward = self._backward(operation) if self._checker is not None else None
        if backward is None or self._checker is None:
            return None, 0
        return backward._replace(caller=()), self._checker.operation(operation)[4]

    # -- what the Python hooks see (streamsafe.runtime.torch.hooks.interface.Collector) -----------------------------

    def learn(self) -> None:
        self._extension.site_now()

    def set_capturing(self, capturing: bool, generators: list[int]) -> None:
        self._extension.set_capturing(capturing, generators, self.captures_here)

    def include(self, on: bool) -> None:
        self._extension.include_thread(on)

    def external(self, on: bool) -> None:
        self._extension.set_external(on)

    def trace_replaced(self) -> None:
        if self._monitor is not None:
            self._extension.listen()

    def set_refused(self, refused: bool) -> None:
        self._extension.set_refused(refused)

    def pack_begins(self, tensor: Any) -> bool:
        return self._monitor is not None and bool(self._extension.pack_begins(tensor))

    def pack_ends(self) -> None:
        self._extension.pack_ends()

    def backward_begins(self, gradients: list[Any]) -> None:
        self._extension.backward_begins([(each.device.index, _base(each)) for each in gradients])

    def backward_ends(self) -> None:
        self._extension.backward_ends()

    def thread_begins(self) -> None:
        self._extension.include_thread(True)
        self._extension.set_thread(local.queue, False)

    def thread_ends(self) -> None:
        pass

    def launch(self, operation: str, uses: Sequence[HookUse], device: int, stream: int) -> None:
        self._extension.launch(operation, [_raw(use) for use in uses], device, stream)

    def block(self, address: int) -> tuple[int, int, int] | None:
        if self._monitor is None:
            return None
        found: tuple[int, int, int] | None = self._extension.block_of(address)
        return found

    def place(self) -> int:
        return int(self._extension.site_now())

    def graph_of(self, address: int) -> int:
        return int(self._extension.graph_of(address))

    def host_access(self, operation: str, uses: Sequence[HookUse]) -> None:
        self._extension.host_access(operation, [_raw(use) for use in uses])


def _base(tensor: Any) -> int:
    return int(tensor.untyped_storage().data_ptr())


def _raw(use: HookUse) -> tuple[int, int, bool, bool]:
    return (use.address, use.size, use.write, use.certain)


def _use(
    space: int,
    start: int,
    stop: int,
    write: bool,
    certain: bool,
    shape: tuple[int, ...] | None,
    dtype: str | None,
) -> Use:
    where = HOST if space < 0 else space
    return Use(Region(where, start, stop, shape), "", _DTYPES.get(dtype or "", dtype), certain)


_DTYPES = {
    "float": "float32",
    "double": "float64",
    "c10::Half": "float16",
    "c10::BFloat16": "bfloat16",
    "long": "int64",
    "long int": "int64",
    "int": "int32",
    "short": "int16",
    "short int": "int16",
    "signed char": "int8",
    "unsigned char": "uint8",
    "bool": "bool",
}
"""C++ names of element types, as torch writes them in Python."""


__all__ = ["Watch", "extension"]
