"""Python's calls that record, wait and synchronize: the GPU trace has them too, but after the fact and without the GIL.

Here the line that calls is made known, so that the trace can name it, and in a capture what CUDA refuses is said before
CUDA loses the capture.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any

from streamsafe.runtime.monitor import current
from streamsafe.runtime.patches import Patches

if TYPE_CHECKING:
    from streamsafe.runtime.torch.watch import Watch

_RECORDING = (("Stream", "record_event"), ("Stream", "wait_stream"), ("Event", "record"))
_WAITING = (("Stream", "wait_event"), ("Event", "wait"))
_SYNCHRONIZING = (("Stream", "synchronize"), ("Event", "synchronize"))


def install(torch: Any, patches: Patches, watch: Watch, learn: Callable[[], object]) -> None:
    """Wraps the methods of ``torch.cuda.Stream`` and ``torch.cuda.Event``, and what ``torch.cuda.synchronize`` calls.

    Args:
        learn: makes the calling lines known to the extension.
    """

    def learning(original: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(original)
        def call(self: Any, *args: Any, **kwargs: Any) -> Any:
            if current.monitor is not None:
                learn()
            return original(self, *args, **kwargs)

        return call

    def waiting(original: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(original)
        def call(self: Any, *args: Any, **kwargs: Any) -> Any:
            if current.monitor is not None:
                learn()
                other = args[0] if args else kwargs.get("event", kwargs.get("stream"))
                stream, event = (other, self) if isinstance(self, torch.cuda.Event) else (self, other)
                if watch.capturing:
                    watch.refuse_wait(stream or torch.cuda.current_stream(), event)
            return original(self, *args, **kwargs)

        return call

    def synchronizing(original: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(original)
        def call(self: Any) -> Any:
            if current.monitor is None:
                return original(self)
            learn()
            with watch.synchronizing(self):
                return original(self)

        return call

    def device(original: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(original)
        def synchronize() -> Any:
            if current.monitor is None:
                return original()
            learn()
            with watch.synchronizing(None):
                return original()

        return synchronize

    for names, make in ((_RECORDING, learning), (_WAITING, waiting), (_SYNCHRONIZING, synchronizing)):
        for owner, name in names:
            patches.wrap(getattr(torch.cuda, owner), name, make)
    patches.wrap(
        torch._C, "_cuda_synchronize", device
    )  # whatever name a program has for torch.cuda.synchronize
