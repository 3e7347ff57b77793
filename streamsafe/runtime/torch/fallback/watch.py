"""torch joined to the session from Python alone: by a dispatch mode and torch's GPU trace."""

from __future__ import annotations

import ctypes
import importlib
import os
import sys
import threading
from collections.abc import Callable, Hashable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from streamsafe.order.fixes import COMMUNICATION
from streamsafe.order.memory import HOST, Region, Use
from streamsafe.runtime import autograd
from streamsafe.runtime import places as sites
from streamsafe.runtime.monitor import PER_THREAD, Monitor
from streamsafe.runtime.patches import Patches
from streamsafe.runtime.torch.captures import Captures
from streamsafe.runtime.torch.fallback.call import Call
from streamsafe.runtime.torch.fallback.calls import Calls
from streamsafe.runtime.torch.fallback.here import Here, Passes, thread_of
from streamsafe.runtime.torch.fallback.memory import Memory
from streamsafe.runtime.torch.fallback.mode import Modes
from streamsafe.runtime.torch.fallback.roles import EXPLICIT, Operator, describe
from streamsafe.runtime.torch.fallback.trace import listen
from streamsafe.runtime.torch.hooks.host_access import span
from streamsafe.runtime.torch.hooks.interface import Use as HookUse

UNSEEN = (
    "PyTorch is watched from Python alone, because its native code is missing ({reason}): this is slower, and it does "
    "not see operators of threads that were there before the session, reuse of memory that was allocated before it, "
    "and reuse after a use by backward() or a collective; an operator whose result takes memory still in use is "
    "reported after it is enqueued. `streamsafe build-torch` builds the native code, or says what it needs"
)
"""What the summary says, once."""


class Fallback(Captures):
    """What is in place for torch while the hooks are, where the native code cannot be had.

    Args:
        reason: why it cannot.
    """

    def __init__(self, patches: Patches, reason: str) -> None:
        super().__init__(patches)
        torch: Any = sys.modules["torch"]
        self._torch = torch
        self._reason = reason
        self.here = Here()
        self.passes = Passes(torch)
        self.modes = Modes(torch, self._operate)
        self._kernels = torch._C.DispatchKeySet(torch._C.DispatchKey.CUDA)
        self._operators: dict[Any, Operator] = {}
        self._external: set[int] = set()
        self._communicating: set[tuple[int, int]] = set()
        self.memory: Memory | None = None
        self.generators: set[int] = set()
        """Addresses of the generators that the graphs being captured keep."""
        self.written: list[tuple[int, int, str, sites.Site]] = []
        """What the host has written of pinned memory since the capture began: from, to, by what, where."""
        self.beside: set[Hashable] = set()
        """Streams that take no part in the capture, and are reported."""
        self._trace: Callable[[bool], None] = lambda on: None

    # -- the hooks ---------------------------------------------------------------------------------------------------

    def install(self) -> None:
        """Put the hooks in place.

        Raises:
            streamsafe.runtime.torch.fallback.trace.NoTrace: this torch cannot be watched from Python.
        """
        torch = self._torch
        os.register_at_fork(after_in_child=self._forget)
        self._trace = listen(torch, Path(torch.__file__).parent, self._callbacks())
        self._install_names(torch)
        self._install_backward(torch)
        self._install_external(torch)
        importlib.import_module("streamsafe.runtime.torch.hooks").install(self._patches, self)
        self._patches.wrap(torch._ops.HigherOrderOperator, "__call__", self._higher_order)
        self._patches.wrap(importlib.import_module("torch._tensor_str"), "_str", self._printed)

    def _callbacks(self) -> dict[str, Any]:
        return {
            "event_record": self._event_recorded,
            "event_wait": self._event_waited,
            "event_synchronization": self._event_synchronized,
            "stream_synchronization": self._stream_synchronized,
            "device_synchronization": self._device_synchronized,
        }

    def _printed(self, original: Any) -> Any:
        """``repr`` takes all dispatch modes away: a device tensor is read on its current stream."""

        def _str(tensor: Any, *args: Any, **kwargs: Any) -> Any:
            if self._monitor is not None and type(tensor) is self._torch.Tensor and tensor.is_cuda:
                if tensor.layout is self._torch.strided and tensor.numel():
                    start, size = span(tensor)
                    stream = self._torch._C._cuda_getCurrentRawStream(tensor.device.index)
                    self.launch("repr", [HookUse(start, size, False, tensor)], tensor.device.index, stream)
            return original(tensor, *args, **kwargs)

        return _str

    def _higher_order(self, original: Any) -> Any:
        """Operators that take functions know the modes that torch has, and no other."""

        def __call__(operator: Any, *args: Any, **kwargs: Any) -> Any:
            if self._monitor is None or not self.here.pushed:
                return original(operator, *args, **kwargs)
            with self.modes.without():
                return original(operator, *args, **kwargs)

        return __call__

    def _install_external(self, torch: Any) -> None:
        """A stream that torch did not make may wait for the default stream; those of its pool do not."""
        kind = torch.cuda.ExternalStream

        def wrap(original: Any) -> Any:
            def __new__(cls: Any, *args: Any, **kwargs: Any) -> Any:
                stream = original(cls, *args, **kwargs)
                self._external.add(stream.cuda_stream)
                return stream

            return __new__

        function = kind.__dict__.get("__new__")
        if function is not None:
            self._patches.attribute(
                kind, "__new__", staticmethod(wrap(getattr(function, "__func__", function)))
            )

    # -- sessions ----------------------------------------------------------------------------------------------------

    def begin(self, monitor: Monitor, patches: Patches) -> None:
        self._forget_program()
        self._communicating.clear()
        self._monitor = monitor
        self.memory = Memory(monitor, lambda: self.here.site or sites.capture(3))
        gradients = self.memory.gradients
        monitor.refine = lambda conflict: autograd.recorded(conflict, gradients)
        patches.call(self.end)
        if monitor.host and "numpy" in sys.modules:
            importlib.import_module("streamsafe.runtime.pinned.functions").begin(patches)
        monitor.sessions[0].notes.append(UNSEEN.format(reason=self._reason))
        self._push()
        self._trace(True)

    def end(self) -> None:
        self._collection.hold(False)
        self._monitor = self.memory = None
        self._trace(False)
        if self.here.pushed:
            self.here.pushed = False
            self.modes.pop()

    def _forget(self) -> None:
        """In a forked child nobody listens."""
        self._collection.hold(False)
        self._monitor = self.memory = None
        self.passes = Passes(self._torch)  # another thread may have held its lock
        self._trace(False)

    def _push(self) -> None:
        if not self.here.pushed:
            self.here.pushed = True
            self.modes.push()

    # -- operators ---------------------------------------------------------------------------------------------------

    def _operate(self, function: Any, types: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Called by the dispatch mode instead of each operator."""
        monitor, memory = self._monitor, self.memory
        if monitor is None or memory is None or not hasattr(function, "_schema"):
            return function(*args, **kwargs)
        if types and any(map(self.is_wrapper, types)):
            if self.modes.others():  # fake tensors are for the mode that made them
                return function(*args, **kwargs)
            return NotImplemented  # the call comes back with what the subclass holds
        operator = self._operators.get(function)
        if operator is None:
            operator = self._operators[function] = describe(self._torch, function)
        if operator.records:
            self._record_stream(memory, args)
        if operator.skip or operator.records:
            return function(*args, **kwargs)
        if operator.composite:
            with self.modes.again():
                if operator.composite == EXPLICIT:
                    return function._op_dk(
                        self._torch._C.DispatchKey.CompositeExplicitAutograd, *args, **kwargs
                    )
                result = function.decompose(*args, **kwargs)
            if result is not NotImplemented:
                return result
        backward = self.passes.now()
        run = partial(function, *args, **kwargs)
        if not operator.own and self._on_device(operator, args, kwargs):
            run = partial(self._open, function, args, kwargs)
        with thread_of(backward):
            call = Call(operator, args, kwargs, sites.capture(3), backward)
            return Calls(self, monitor, memory).make(call, run)

    def _open(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Calls the kernel of an operator that may be written in Python: what it calls is seen."""
        with self.modes.again():
            return function.redispatch(self._kernels, *args, **kwargs)

    def _on_device(self, operator: Operator, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        for argument in operator.arguments:
            value = operator.value(argument.name, args, kwargs)
            for each in value if isinstance(value, (list, tuple)) else (value,):
                if isinstance(each, self._torch.Tensor):
                    return bool(each.is_cuda)
        return False

    def is_wrapper(self, kind: Any) -> bool:
        """Whether a type of tensor stands for others, or for none."""
        return kind.__torch_dispatch__ is not self._torch.Tensor.__torch_dispatch__

    def _record_stream(self, memory: Memory, args: tuple[Any, ...]) -> None:
        tensor, stream = args[0], args[1]
        if tensor.is_cuda and tensor.layout is self._torch.strided:
            handle = int(
                self._torch.cuda.Stream(
                    stream_id=stream.stream_id,
                    device_index=stream.device_index,
                    device_type=stream.device_type,
                ).cuda_stream
            )
            storage = tensor.untyped_storage()
            memory.know(tensor.device.index, storage, storage.data_ptr())
            memory.record_stream(storage.data_ptr(), self._key(stream.device_index, handle))

    def queue(self, device: int) -> tuple[Hashable, int]:
        """The calling thread's current stream on a device, and its raw handle."""
        handle = int(self._torch._C._cuda_getCurrentRawStream(device))
        return self._key(device, handle), handle

    def key(self, device: int, handle: int) -> Hashable:
        """The timeline of a raw handle."""
        return self._key(device, handle)

    def communication(self, device: int, handle: int) -> Hashable:
        """The timeline of a stream on which a collective does its work."""
        key = self._key(device, handle)
        if (device, handle) not in self._communicating:
            self._communicating.add((device, handle))
            if not self.name_of(device, handle):
                assert self._monitor is not None
                self._monitor.checker.name_stream(key, COMMUNICATION)
        return key

    def _key(self, device: int, stream: int) -> Hashable:
        assert self._monitor is not None
        if stream == PER_THREAD:
            return self._monitor.thread_stream(device)
        if stream in self._external and not self._monitor.known(device, stream):
            kind = "blocking" if self._blocks(stream) else "non-blocking"
            return self._monitor.stream(device, stream, kind, self.name_of(device, stream))  # type: ignore[arg-type]
        return super()._key(device, stream)

    def _blocks(self, stream: int) -> bool:
        """Whether a stream waits for the default stream; where that is not known, it is taken to."""
        simulate = sys.modules.get("streamsafe.simulate.torch")
        if simulate is not None and simulate.is_active():
            return int(simulate._active.stream_flags(stream)) != 1
        major = str(self._torch.version.cuda).partition(".")[0]
        flags = ctypes.c_uint(0)
        try:
            runtime = ctypes.CDLL(f"libcudart.so.{major}")
            failed = runtime.cudaStreamGetFlags(ctypes.c_void_p(stream), ctypes.byref(flags))
        except (OSError, AttributeError):
            return True
        return bool(failed) or not flags.value & 1

    # -- torch's GPU trace: what it calls may not raise ----------------------------------------------------------------

    def _order(self, verb: str, *subjects: Hashable, **more: Any) -> None:
        monitor = self._monitor
        if monitor is None:
            return
        backward = self.passes.now()
        with thread_of(backward):
            site = self._place()
            if verb == "wait":
                more["implicit"] = bool(self.here.inside or backward is not None or not site)
            with monitor.lock:
                monitor.drain()
                conflicts = getattr(monitor.checker, verb)(
                    *subjects, host=monitor.thread, site=site or None, **more
                )
            if conflicts:
                monitor.report(conflicts, may_raise=False)

    def _place(self) -> sites.Site:
        if self.here.site:
            return self.here.site
        site = sites.capture(3) if self._capturing else sites.line(3)
        if site:
            return site
        backward = self.passes.now()
        return backward.site if backward is not None else ()

    def _device(self) -> int:
        return int(self._torch._C._cuda_getDevice())

    def _event_recorded(self, event: int, stream: int) -> None:
        if self._monitor is not None:
            self._order("record", event, self._key(self._device(), stream))

    def _event_waited(self, event: int, stream: int) -> None:
        if self._monitor is not None:
            self._order("wait", self._key(self._device(), stream), event)
            if self.here.collective is not None:
                self.here.collective(stream)

    def _event_synchronized(self, event: int) -> None:
        if not self.here.refused:
            self._order("synchronize_event", event)

    def _stream_synchronized(self, stream: int) -> None:
        if (self._device(), stream) in self._communicating and not self._is_program():
            return  # a thread that does a process group's work: the program hears of it by an event
        if self._monitor is not None and not self.here.refused:
            self._order("synchronize_stream", self._key(self._device(), stream))

    def _is_program(self) -> bool:
        """Whether the calling thread is one of Python's, or does the work of a backward pass."""
        own = threading.get_ident()
        return self.passes.now() is not None or any(each.ident == own for each in threading.enumerate())

    def _device_synchronized(self, *device: int) -> None:
        if self._monitor is not None and not self.here.refused:
            self._order("synchronize_device", self._device())

    # -- what the Python hooks see (streamsafe.runtime.torch.hooks.interface.Collector) -----------------------------

    def thread_begins(self) -> None:
        if self._monitor is not None:
            self._push()

    def thread_ends(self) -> None:
        pass

    def set_capturing(self, capturing: bool, generators: list[int]) -> None:
        self.generators = set(generators)
        self.beside.clear()
        if not capturing:
            self.written.clear()

    def include(self, on: bool) -> None:
        if on:
            self._push()
        elif self.here.pushed:
            self.here.pushed = False
            self.modes.pop()

    def set_refused(self, refused: bool) -> None:
        self.here.refused = refused

    def backward_begins(self, gradients: list[Any]) -> None:
        self.passes.begin(sites.capture(2))
        if self.memory is not None:
            for each in gradients:
                self.memory.give_gradient(each)

    def backward_ends(self) -> None:
        self.passes.end()

    def storage_resized(self, address: int, size: int, new_address: int, new_size: int) -> None:
        if self.memory is not None and address != new_address:
            self.memory.moved(address)

    def launch(self, operation: str, uses: Sequence[HookUse], device: int, stream: int) -> None:
        monitor, memory = self._monitor, self.memory
        if monitor is None or memory is None:
            return
        for use in uses:
            if use.tensor is not None:
                storage = use.tensor.untyped_storage()
                memory.know(device, storage, storage.data_ptr())
        reads, writes = _parts(uses, device)
        monitor.access(self._key(device, stream), reads, writes, operation)

    def host_access(self, operation: str, uses: Sequence[HookUse]) -> None:
        monitor, memory = self._monitor, self.memory
        if monitor is None or memory is None or not monitor.host:
            return
        known = [use for use in uses if memory.holds_host(use.address, use.address + use.size)]
        if known:
            reads, writes = _parts(known, HOST)
            monitor.host_access(reads, writes, operation)


def _parts(uses: Sequence[HookUse], space: Hashable) -> tuple[list[Use], list[Use]]:
    """What is read, and what is written."""
    parts: tuple[list[Use], list[Use]] = ([], [])
    for use in uses:
        region = Region(space, use.address, use.address + use.size)
        parts[use.write].append(Use(region, "", None, use.certain))
    return parts


__all__ = ["UNSEEN", "Fallback"]
