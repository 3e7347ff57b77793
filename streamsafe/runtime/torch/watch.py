"""torch joined to the session: the extension's conflicts become hazards, what Python hooks see becomes operations."""

from __future__ import annotations

import importlib
import importlib.machinery
import importlib.util
import os
import sys
import threading
from collections.abc import Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, NamedTuple

from streamsafe.native.library import Library
from streamsafe.native.reports import Details
from streamsafe.native.tape import Tape
from streamsafe.order.capture import CaptureMode, Graph
from streamsafe.order.hazard import Conflict, Note
from streamsafe.order.memory import HOST, Region, Use
from streamsafe.order.trace import Recorder
from streamsafe.runtime import sites
from streamsafe.runtime.monitor import Monitor, current, local, rendered
from streamsafe.runtime.patches import Patches
from streamsafe.runtime.replay import FOUND, written
from streamsafe.runtime.session import StreamHazardError, refined
from streamsafe.runtime.torch import build, order
from streamsafe.runtime.torch.checker import TorchChecker
from streamsafe.runtime.torch.hooks.interface import Use as HookUse

INITIAL_GRADIENT = 1
"""A block's flag in the extension: it is a gradient that was given to a backward pass."""

_loaded: tuple[Any, Library] | None = None


def extension() -> tuple[Any, Library]:
    """The extension and its C functions, built at the first use; torch must be imported.

    Raises:
        streamsafe.runtime.torch.build.BuildError: it cannot be built.
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
        _loaded = module, Library(str(path))
    return _loaded


def _simulated(module: Any) -> None:
    """A simulated device calls the extension for its memory."""
    simulate = sys.modules.get("streamsafe.runtime.torch.simulate")
    if simulate is not None and simulate.is_active():
        simulate._active.observe(module.block_callback())


class _Capture(NamedTuple):
    """A capture in progress: the stream that it began on, and the thread that began it."""

    stream: Hashable
    mode: CaptureMode
    thread: int


class Watch:
    """What is in place for torch while the hooks are.

    Args:
        patches: takes the hooks away.
    """

    def __init__(self, patches: Patches) -> None:
        self._patches = patches
        self._extension: Any = None
        self._library: Library | None = None
        self._checker: TorchChecker | None = None
        self._monitor: Monitor | None = None
        self._problem = ""
        self._tape: Tape | None = None
        self._attached = False
        self._streams: dict[tuple[int, int], sites.Site] = {}
        self._graphs: dict[Hashable, Graph] = {}
        self._capturing: dict[Hashable, _Capture] = {}
        self._noted: set[str] = set()

    # -- the hooks ---------------------------------------------------------------------------------------------------

    def install(self) -> None:
        """Put the hooks in place, as far as this torch has a device."""
        torch = sys.modules["torch"]
        if self._extension is not None or not _has_device(torch):
            return
        try:
            self._extension, self._library = extension()
        except (build.BuildError, ImportError, OSError) as error:
            self._problem = f"PyTorch was not watched: {error}"
            return
        module = self._extension
        module.include_thread(True)  # for good: dynamo compiles anew for each change
        self._problem = module.self_test()
        os.register_at_fork(after_in_child=self._forget)
        self._install_names(torch)
        order.install(torch, self._patches, self, module.site_now)
        self._install_backward()
        _install_hooks(self._patches, self)
        torch.cuda._lazy_call(self._attach)

    def _attach(self) -> None:
        """CUDA is initialized."""
        if self._attached or self._extension is None:
            return
        self._attached = True
        problem = self._extension.attach(sites.internal)
        if problem:
            self.note("allocator", problem)

    def _install_names(self, torch: Any) -> None:
        """Streams are called what the line that makes them calls them."""

        def wrap(original: Any) -> Any:
            def __new__(cls: Any, *args: Any, **kwargs: Any) -> Any:
                stream = original(cls, *args, **kwargs)
                if current.monitor is not None:
                    handle = getattr(stream, "cuda_stream", 0)
                    if handle:
                        self._streams[stream.device.index, handle] = sites.capture(2)
                return stream

            return __new__

        kind = torch.cuda.Stream
        original = kind.__dict__.get("__new__")
        if original is not None:
            function = getattr(original, "__func__", original)
            self._patches.attribute(kind, "__new__", staticmethod(wrap(function)))

    def _install_backward(self) -> None:
        """A backward pass is called by a line, and given gradients."""
        graph = sys.modules.get("torch.autograd.graph")
        if graph is None or not hasattr(graph, "_engine_run_backward"):
            return
        torch = sys.modules["torch"]
        extension = self._extension

        def wrap(original: Any) -> Any:
            def _engine_run_backward(
                t_outputs: Any, grad_tensors: Any = (), *args: Any, **kwargs: Any
            ) -> Any:
                if current.monitor is None:
                    return original(t_outputs, grad_tensors, *args, **kwargs)
                given = [place for each in grad_tensors for place in _storage(torch, each)]
                extension.backward_begins(given)
                try:
                    return original(t_outputs, grad_tensors, *args, **kwargs)
                finally:
                    extension.backward_ends()

            return _engine_run_backward

        for module in (graph, sys.modules.get("torch.autograd")):
            if module is not None and hasattr(module, "_engine_run_backward"):
                self._patches.wrap(module, "_engine_run_backward", wrap)

    # -- sessions ----------------------------------------------------------------------------------------------------

    def refuse(self) -> None:
        torch = sys.modules.get("torch")
        if self._extension is None or torch is None or not torch.cuda.is_initialized():
            return
        if torch.cuda.is_current_stream_capturing():
            raise RuntimeError("a session cannot begin while the current stream is being captured")

    def begin(self, monitor: Monitor, patches: Patches) -> None:
        self._noted.clear()
        self._graphs.clear()
        self._capturing.clear()
        if self._extension is None:
            if self._problem:
                monitor.sessions[-1].notes.append(self._problem)
            return
        assert self._library is not None
        self._monitor = monitor
        patches.call(self.end)
        if monitor.host and "numpy" in sys.modules:
            importlib.import_module("streamsafe.runtime.numpy_functions").begin(patches)
        if self._problem:
            self.note("self test", self._problem)
        torch = sys.modules["torch"]
        if torch.cuda.is_initialized():
            self._attach()
        self._extension.start(self.judge, True, monitor.threads, monitor.host)
        self._extension.set_thread(local.queue, True)
        self._test(torch)
        self._checker = TorchChecker(
            self._extension, self._library, threads=monitor.threads, name_of=self.name_of
        )
        if isinstance(monitor.checker, Recorder):
            self._tape = Tape(self._checker, monitor.checker._write, rendered, self._caller)
        monitor.use(self._checker)
        if self._tape is not None:
            self._tape.start()

    def _forget(self) -> None:
        """In a forked child nobody listens."""
        self._monitor = self._checker = None

    def _test(self, torch: Any) -> None:
        """Whether operators are really seen: another tool may have the place in torch's dispatcher."""
        before = self._extension.counters()["operators"]
        torch.empty(1).fill_(0)
        if self._extension.counters()["operators"] == before:
            self.note("self test", "PyTorch was not watched: its dispatcher passes no operator on")

    def end(self) -> None:
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
        """Called by the extension about the conflicts of an operation; returns what is to be raised instead of it."""
        monitor, checker = self._monitor, self._checker
        if monitor is None or checker is None:
            return None
        with monitor.lock:
            self._extension.set_pending(False)
            if not reports:
                session = monitor.sessions[-1] if monitor.sessions else None
                due = session.due() if session is not None else None
                monitor.deferred = any(each.waiting for each in monitor.sessions)
                self._extension.set_pending(monitor.deferred)
                return StreamHazardError(due) if due is not None else None
            known = [_use(*each) for each in uses]
            conflicts = [self._refined(checker.reader.read(report, known)) for report in reports]
            hazard = monitor.judge(conflicts, may_raise)
            if monitor.deferred:
                self._extension.set_pending(True)
        return StreamHazardError(hazard) if hazard is not None else None

    def _refined(self, conflict: Conflict) -> Conflict:
        """With what is known of autograd."""
        checker = self._checker
        assert checker is not None
        details = checker.reader.details
        _, by_backward, node, forward, caller = checker.operation(details.first_operation)
        _, then_backward, later_node, later_forward, later_caller = checker.operation(
            details.second_operation
        )
        notes = list(conflict.notes)
        for which, name, site in (("first", node, forward), ("second", later_node, later_forward)):
            if name:
                place = sites.frames(self._extension.site(site)) if site else ()
                text = f"the {which} access is done by {name}"
                notes.append(Note(f"{text}, the backward of this line" if place else text, stack=place))
        conflict = replace(conflict, notes=tuple(notes))
        facts = conflict.facts
        if conflict.first is None or facts.host is not None:
            return conflict
        wrote = conflict.first.reads_or_writes == "writes"
        if facts.reuse is not None:
            if by_backward and details.first_flags & INITIAL_GRADIENT:
                return refined(conflict, gradient="initial-reuse")
        elif by_backward and wrote and (not then_backward or self._passes(details, caller, later_caller)):
            if caller:  # a line of a Function's own backward: what the program calls is backward()
                stack = sites.frames(self._extension.site(caller))
                conflict = replace(
                    conflict, first=replace(conflict.first, operation="backward()", stack=stack)
                )
            return refined(conflict, gradient="result")
        elif then_backward and not by_backward and wrote and details.flags & INITIAL_GRADIENT:
            return refined(conflict, gradient="initial")
        return conflict

    def _passes(self, details: Details, first: int, second: int) -> bool:
        """Whether two operations of backward passes are of passes that different lines call."""
        assert details.first is not None and details.second is not None
        one = self._extension.site(first) if first else details.first.site
        two = self._extension.site(second) if second else details.second.site
        return bool(one != two)

    def _caller(self, operation: int) -> int:
        """The site of the call of backward() that did an operation, where it is not the operation's own; or 0."""
        return self._checker.operation(operation)[4] if self._checker is not None else 0

    def name_of(self, device: int, handle: int) -> str:
        """What the program calls a stream."""
        site = self._streams.get((device, handle))
        return sites.name_of(site) if site else ""

    @property
    def capturing(self) -> bool:
        """Whether a capture is in progress."""
        return bool(self._capturing)

    def refuse_wait(self, stream: Any, event: Any) -> None:
        """In a capture: a captured stream may wait for captured work only, another one for none of it."""
        monitor = self._monitor
        handle = getattr(event, "cuda_event", 0)
        if monitor is None or not handle:
            return
        key = self._key(stream.device_index, stream.cuda_stream)
        checker = monitor.checker
        if checker.capturing(key) and checker.recorded(handle) and not checker.captured(handle):
            self._violation(
                key, "unjoined-capture-stream", "wait", "the event was recorded by work that is not captured"
            )

    @contextmanager
    def synchronizing(self, what: Any) -> Iterator[None]:
        """While the host waits for a stream, an event or a device (None). What a capture forbids is reported once.

        Raises:
            StreamHazardError: before CUDA loses the capture.
        """
        reported = bool(self._capturing) and self._refuses(what)
        if not reported:
            yield
            return
        self._extension.set_refused(True)
        try:
            yield
        finally:
            self._extension.set_refused(False)

    def _refuses(self, what: Any) -> bool:
        """In a capture nothing of it may be waited for, and no device; in the global mode nothing by other threads."""
        monitor = self._monitor
        if monitor is None:
            return False
        checker = monitor.checker
        capture = next(iter(self._capturing.values()), None)
        if capture is None:  # another thread has just ended it
            return False
        key, message = capture.stream, ""
        other = capture.thread != threading.get_ident()
        if what is None:
            message = "no device can be waited for meanwhile"
        elif hasattr(what, "cuda_stream") and checker.capturing(
            stream := self._key(what.device_index, what.cuda_stream)
        ):
            key = stream
        elif not hasattr(what, "cuda_stream") and what.cuda_event and checker.captured(what.cuda_event):
            message = "the event was recorded in the capture"
        elif not other or capture.mode != "global":
            return False
        if other:
            message = "another thread captures meanwhile"
        self._violation(key, "concurrent-capture" if other else "sync-in-capture", "synchronize", message)
        return True

    def _violation(self, key: Hashable, rule: str, operation: str, message: str) -> None:
        monitor = self._monitor
        assert monitor is not None
        site = sites.capture()
        with monitor.lock:
            conflict = monitor.checker.capture_violation(
                rule, key, operation=operation, message=message, site=site
            )
        if monitor.mark is not None:
            monitor.mark(FOUND, written(conflict))
        monitor.report([conflict])

    # -- what the Python hooks see (streamsafe.runtime.torch.hooks.interface.Collector) -----------------------------

    def thread_begins(self) -> None:
        self._extension.include_thread(True)
        self._extension.set_thread(local.queue, False)

    def thread_ends(self) -> None:
        pass

    def launch(self, operation: str, uses: Sequence[HookUse], device: int, stream: int) -> None:
        self._extension.launch(operation, [_raw(use) for use in uses], device, stream)

    def host_access(self, operation: str, uses: Sequence[HookUse]) -> None:
        self._extension.host_access(operation, [_raw(use) for use in uses])

    def exported(self, tensor: Any, interface: str, stream: int | None) -> None:
        pass

    def numpy_made(self, tensor: Any, array: Any) -> Any:
        """The NumPy view of a CPU tensor: of pinned memory one whose reads and writes are seen."""
        monitor = self._monitor
        if monitor is None or not monitor.host or not tensor.is_pinned():
            return array
        return importlib.import_module("streamsafe.runtime.host").watched(array)

    def coalescing(self, begins: bool) -> None:
        self._extension.set_coalescing(begins)

    def event_done(self, event: int) -> None:
        monitor = self._monitor
        if monitor is not None:
            monitor.order(monitor.checker.completed_event, event or "never recorded", above=1)

    def stream_done(self, device: int, stream: int) -> None:
        monitor = self._monitor
        if monitor is not None:
            monitor.order(monitor.checker.completed_stream, self._key(device, stream), above=1)

    def waits_for_nothing(self, device: int, stream: int) -> None:
        monitor = self._monitor
        if monitor is not None:
            monitor.order(monitor.checker.wait, self._key(device, stream), object(), above=1)

    def host_waits_for_nothing(self) -> None:
        monitor = self._monitor
        if monitor is not None:
            monitor.order(monitor.checker.synchronize_event, object(), above=1)

    def elapsed_time(self, start: int, end: int, timed: tuple[bool, bool]) -> None:
        monitor = self._monitor
        if monitor is None:
            return
        if not all(timed):
            monitor.violation("event-timing-misuse", "elapsed_time", "an event was made without timing")
            return
        for event in (start, end):
            if not event or not monitor.checker.recorded(event):
                monitor.violation("event-timing-misuse", "elapsed_time", "an event was never recorded")
                return
            if not monitor.checker.waited(event, monitor.thread):
                message = "the host has not waited for an event"
                monitor.violation("event-timing-misuse", "elapsed_time", message)
                return

    def capture_on_default(self, device: int, stream: int) -> None:
        if self._monitor is not None:
            self._violation(self._key(device, stream), "capture-on-default-stream", "capture_begin", "")

    def capture_begins(
        self, graph: Hashable, pool: tuple[int, int] | None, mode: str, device: int, stream: int
    ) -> None:
        monitor = self._monitor
        if monitor is None:
            return
        key = self._key(device, stream)
        capture_mode: CaptureMode = mode if mode in ("thread_local", "relaxed") else "global"  # type: ignore[assignment]
        with monitor.lock:
            conflicts = monitor.checker.capture_begin(
                key,
                capture_mode,
                pool=pool or ("graph", id(graph)),
                host=monitor.thread,
                site=sites.capture(2),
            )
        self._capturing[graph] = _Capture(key, capture_mode, threading.get_ident())
        self._extension.set_capturing(True)
        if conflicts:
            monitor.report(conflicts)

    def capture_ends(self, graph: Hashable, pool: tuple[int, int] | None, failed: bool) -> None:
        monitor = self._monitor
        capture = self._capturing.pop(graph, None)
        self._extension.set_capturing(bool(self._capturing))
        if monitor is None or capture is None:
            return
        with monitor.lock:
            ended = monitor.checker.capture_end(capture.stream, host=monitor.thread, site=sites.capture(2))
        if not failed:
            self._graphs[graph] = ended
        if ended.conflicts:
            monitor.report(ended.conflicts, may_raise=not failed)

    def replay(self, graph: Hashable, device: int, stream: int) -> None:
        monitor = self._monitor
        if monitor is None:
            return
        known = self._graphs.get(graph)
        if known is None:
            self.note(
                "graph", "a graph that was captured before the session was launched: its accesses are unknown"
            )
            return
        monitor.replay(known, self._key(device, stream))

    def graph_reset(self, graph: Hashable) -> None:
        self._graphs.pop(graph, None)

    def storage_resized(self, address: int, size: int, new_address: int, new_size: int) -> None:
        pass

    def note(self, key: str, text: str) -> None:
        """One sentence for the session's summary, once for each key."""
        if self._monitor is not None and key not in self._noted:
            self._noted.add(key)
            self._monitor.sessions[0].notes.append(text)

    def _key(self, device: int, stream: int) -> Hashable:
        assert self._monitor is not None
        if stream in (0, 1):
            return self._monitor.null_stream(device)
        return self._monitor.stream(device, stream, "non-blocking", self.name_of(device, stream))


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


def _storage(torch: Any, tensor: Any) -> list[tuple[int, int]]:
    """Device and address of a device tensor's memory; nothing for what stands for other tensors (vmap, grad)."""
    if type(tensor) is not torch.Tensor or not tensor.is_cuda:
        return []
    try:
        return [(tensor.device.index, tensor.untyped_storage().data_ptr())]
    except (NotImplementedError, RuntimeError):
        return []


def _has_device(torch: Any) -> bool:
    """Whether there is something to watch: a CUDA build with a device, or a simulated one."""
    simulate = sys.modules.get("streamsafe.runtime.torch.simulate")
    if simulate is not None and simulate.is_active():
        return True
    return torch.version.cuda is not None and bool(torch.cuda.is_available())


def _install_hooks(patches: Patches, watch: Watch) -> None:
    """The Python hooks, where they are there."""
    package = importlib.import_module("streamsafe.runtime.torch.hooks")
    install = getattr(package, "install", None)
    if install is not None:
        install(patches, watch)


__all__ = ["Watch", "extension"]
