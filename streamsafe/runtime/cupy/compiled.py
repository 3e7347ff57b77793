"""The hooks in C++ (``native/hooks.cpp``): built at first use, in front of the hooks in Python.

A compiled hook records what is as usual in the native core and passes on to CuPy; whatever is not, and every session
that is traced or keeps a clock for each thread, is the Python hook's: the verdicts are the same with and without them.
Where they cannot be built everything works, slower, and the session's summary says so.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import os
from collections.abc import Callable, Hashable, Sequence
from pathlib import Path
from typing import Any

import numpy

from streamsafe.order.decide import Veto
from streamsafe.order.hazard import Conflict
from streamsafe.order.memory import Block, Use
from streamsafe.order.native.checker import NativeChecker
from streamsafe.order.native.library import Library
from streamsafe.runtime import places as sites
from streamsafe.runtime.blocks import device_blocks, pinned_blocks
from streamsafe.runtime.errors import StreamHazardError
from streamsafe.runtime.judge import Verdict
from streamsafe.runtime.monitor import Monitor, current, local, named, rendered
from streamsafe.runtime.patches import Patches
from streamsafe.runtime.pinned import arrays as host
from streamsafe.runtime.pinned.contents import fingerprints, overwritten
from streamsafe.toolchain import compiler as build

VARIABLE = "STREAMSAFE_COMPILED"
"""Set to 0, the hooks in Python do everything."""

HERE = Path(__file__).resolve().parent / "native"
PACKAGE = Path(build.__file__).resolve().parent.parent
SHARED = [PACKAGE / "order" / "native", PACKAGE / "runtime" / "native"]

Wrapped = Callable[..., Any]
Make = Callable[[Any], Any]


def built() -> Path:
    """The extension, with the core; built unless it is there."""
    return build.build_extension("hooks", HERE / "hooks.cpp", [HERE, *SHARED], what="CuPy's hooks")


class Hooks:
    """The extension, once it is there.

    Attributes:
        module: the extension; None: the hooks in Python do everything.
        problem: why it is not there, for the summary.
        enabled: whether sessions that begin from now on use it.
    """

    def __init__(self) -> None:
        self.module: Any = None
        self.problem = ""
        self.enabled = True
        self._library: Library | None = None
        self._noted = False

    def load(self) -> None:
        """Builds and loads the extension, unless the program does not want it."""
        if os.environ.get(VARIABLE) == "0":
            return
        try:
            path = built()
            loader = importlib.machinery.ExtensionFileLoader("hooks", str(path))
            spec = importlib.util.spec_from_file_location("hooks", path, loader=loader)
            assert spec is not None
            module = importlib.util.module_from_spec(spec)
            loader.exec_module(module)
            self._library = Library(str(path))
        except (build.BuildError, ImportError, OSError) as error:
            self.problem = f"CuPy's hooks ran in Python, which is slower: {error}"
            return
        if _reads_arrays(module):
            self.module = module
            os.register_at_fork(after_in_child=module.forked)

    def in_front(self, kind: str, make: Make, operation: str = "") -> Make:
        """``make`` for :meth:`streamsafe.runtime.patches.Patches.wrap`, with a compiled hook in front of what it gives.

        Args:
            kind: which hook, as ``hooks.cpp`` names it.
            operation: what it enqueues, as messages name it.
        """

        def wrap(original: Any) -> Any:
            module = self.module
            hook = make(original)
            if module is None:
                return hook
            if isinstance(hook, property):
                return property(module.hook(kind, original.fget, hook.fget, operation), doc=hook.__doc__)
            return module.hook(kind, original, hook, operation)

        return wrap

    def replace(self, owner: Any, name: str, kind: str, original: Any, operation: str = "") -> None:
        """Puts a compiled hook in front of one of our own functions, or of a method of one of our own classes."""
        if self.module is not None:
            hook = owner.__dict__[name]
            setattr(owner, name, self.module.hook(kind, original, hook, operation))

    def engine(self) -> CuPyChecker | None:
        """The core of a new program, if the compiled hooks are to serve it."""
        if self.module is None or not self.enabled:
            return None
        assert self._library is not None
        return CuPyChecker(self.module, self._library)

    def begin(self, monitor: Monitor, patches: Patches) -> None:
        """A session begins."""
        if self.problem and not self._noted:
            self._noted = True
            monitor.sessions[-1].notes.append(self.problem)
        checker = monitor.checker
        if not isinstance(checker, CuPyChecker):
            return
        self.module.attach(
            monitor,
            checker,
            checker._line_ids,
            monitor.by_handle,
            monitor.capturing,
            monitor.released,
            monitor.lock,
            bool(monitor.host),
            monitor.one_device,
        )
        if monitor.one_device:
            monitor.null_stream(0)  # takes less time here than at the first operation
        fingerprints.hand_over(self)
        patches.call(self.end)

    def end(self) -> None:
        """The session ends."""
        fingerprints.hand_over(None)
        self.module.detach()

    # -- for the fingerprints, while a session lasts -----------------------------------------------------------------

    def watch(self, monitor: Monitor, stream: Hashable, address: int, size: int) -> None:
        """See :meth:`streamsafe.runtime.pinned.contents.Fingerprints.watch`."""
        line = monitor.checker._line_ids.get(stream) if isinstance(monitor.checker, CuPyChecker) else None
        if line is not None:
            self.module.watch(line, address, size)

    def look_again(self) -> None:
        """See :meth:`streamsafe.runtime.pinned.contents.Fingerprints.check`."""
        self.module.look_again()

    def forget(self, start: int, stop: int) -> None:
        """See :meth:`streamsafe.runtime.pinned.contents.Fingerprints.forget`."""
        self.module.forget(start, stop)


hooks = Hooks()


class CuPyChecker(NativeChecker):
    """The core inside the extension, of which a new program begins."""

    def __init__(self, module: Any, library: Library) -> None:
        super().__init__(library, module.begin(), render=rendered, naming=named)
        self._module = module

    @property
    def operations(self) -> int:
        return int(self._module.operations())

    def foreign_operation(self, operation: int) -> str:
        return str(self._module.operation_name(operation))

    def foreign_site(self, site: int) -> object:
        return self._module.site(site) or None

    def _operation(self, name: str) -> int:
        return int(self._module.operation(name))

    def _new_line(self, device: int, kind: int) -> int:
        return int(self._module.stream(device, kind))

    def _site(self, site: object) -> int:
        return int(self._module.site_id(site)) if site else 0

    def sizes(self) -> dict[str, int]:
        return super().sizes() | {"sites": int(self._module.places())}

    def _enqueue(
        self,
        line: int,
        reads: Sequence[Use] = (),
        writes: Sequence[Use] = (),
        operation: str = "",
        host: Hashable = None,
        site: object = None,
        veto: Veto | None = None,
        *,
        how: int = 0,
    ) -> list[Conflict]:
        if how == 0:
            number = self._site(site)
            done = self._module.access(line, reads, writes, self._operation(operation), number)
            if done:
                return []
            if done is False:
                conflicts = self._found([*reads, *writes])
                if veto is None or not veto(conflicts):
                    self._force(line, reads, writes, operation, number)
                return conflicts
        return super()._enqueue(line, reads, writes, operation, host, site, veto, how=how)

    def finish(self) -> list[Conflict]:
        if self._handed:
            return super().finish()
        return [] if self._module.finish() else self._found()

    def settle(
        self,
        stream: Hashable,
        reads: Sequence[Any],
        writes: Sequence[Any],
        operation: str,
        site: int,
        veto: Callable[[list[Conflict]], bool],
    ) -> None:
        """What a compiled hook leaves: the core has found conflicts of an operation, which it has not done yet."""
        conflicts = self._found([*reads, *writes])
        if not veto(conflicts):
            self._force(self._line_ids[stream], reads, writes, operation, site)


def _reads_arrays(module: Any) -> bool:
    """Whether the extension reads NumPy's arrays right."""
    probe = numpy.zeros((3, 4), numpy.int16)[1:, 1:]
    read = module.layout(probe)
    pointer = probe.__array_interface__["data"][0]
    return bool(read == (pointer, probe.shape, probe.strides, 0))


def configure(*, kernels: Any, memory: Any, pinned: Any, streams: Any, **_: Any) -> None:
    """Gives the extension what it asks and calls, by the names of ``state.hpp``.

    Args:
        kernels, memory, pinned, streams: the modules of this package.
    """
    if hooks.module is None:
        return
    import cupy_backends.cuda.stream as backend

    state, uses = kernels.state, kernels.uses
    given = {
        "array_type": uses.array_type,
        "blocks": device_blocks._blocks._blocks,
        "current": current,
        "holding": pinned_blocks.holding,
        "internal": sites.internal,
        "internal_events": pinned.internal_events,
        "is_pinned": memory.is_memory_pinned,
        "local": local,
        "new_block": _new_block,
        "new_events": streams._new,
        "numpy_array": numpy.ndarray,
        "order_lock": kernels.order_lock,
        "overwritten": overwritten,
        "pinned_array": host.PinnedArray,
        "pinned_sizes": pinned_blocks.sizes,
        "plain_pointer": memory.MemoryPointer,
        "plain_pointers": kernels.plain_pointer,
        "pooled_memory": memory.PooledMemory,
        "restored": host._restored,
        "revision": kernels.revision,
        "settle": _settle,
        "settle_edge": _settle_edge,
        "timeline": kernels.timeline,
        "touch_array": uses.of_array,
        "touch_copied": uses.of_copied,
        "touch_hosted": uses.of_hosted,
        "touch_pointer": uses.of_pointer,
        "traced_pointer": memory.TracedMemoryPointer,
        "track": memory._track,
        "untimed_events": streams._untimed,
        "watched": host.watched,
    }
    assert state is current
    hooks.module.configure(
        given,
        kernels.TracedFunction,
        kernels.TracedFunction.plan,
        memory.TracedMemoryPointer.notifier,
        getattr(backend, "__pyx_capi__", {}).get("get_current_stream_ptr"),
    )
    pinned_blocks.changed.append(hooks.module.pinned_changed)
    install_host()


def install_host() -> None:
    """Puts compiled hooks in front of the host's accesses to pinned arrays."""
    hooks.replace(host, "_report_one", "report_one", None)
    for names, kind in ((host._READERS, "array_reads"), (host._WRITERS, "array_writes")):
        for name in names:
            if name in host.PinnedArray.__dict__ and not name.startswith("__"):
                hooks.replace(host.PinnedArray, name, kind, getattr(numpy.ndarray, name), name)
    for name, kind in (("__getitem__", "array_item"), ("__setitem__", "array_set_item")):
        hooks.replace(host.PinnedArray, name, kind, getattr(numpy.ndarray, name))


def _new_block(space: int, start: int, size: int) -> Block:
    """A block that was not handed out before, or not as large."""
    block = Block(space, start, start + size, "cupy", _NOBODY, "", None)
    device_blocks.add(block)
    return block


_NOBODY: Any = None
"""Whose a block is in the native core: the core knows."""


def _settle(
    monitor: Monitor,
    stream: Hashable,
    reads: list[Any],
    writes: list[Any],
    operation: str,
    site: int,
    may_raise: bool,
) -> None:
    """An operation has conflicts: they are judged, and it is done unless the session raises.

    Raises:
        StreamHazardError: the innermost session raises.
    """
    checker = monitor.checker
    assert isinstance(checker, CuPyChecker)
    with monitor.lock:
        verdict = Verdict(monitor, may_raise)
        checker.settle(stream, reads, writes, operation, site, verdict)
        hazard = verdict.take()
    if hazard is not None:
        raise StreamHazardError(hazard)


def _settle_edge(monitor: Monitor) -> None:
    """A record, wait or synchronize is refused by a capture.

    Raises:
        StreamHazardError: the innermost session raises.
    """
    checker = monitor.checker
    assert isinstance(checker, CuPyChecker)
    with monitor.lock:
        conflicts = checker._found()
    monitor.report(conflicts)
