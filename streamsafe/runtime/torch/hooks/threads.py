"""Python threads: what selects the dispatcher's hook is of one thread, and a new one begins without it."""

from __future__ import annotations

import _thread
import threading
from collections.abc import Callable
from functools import wraps
from typing import Any

from streamsafe.runtime.patches import Patches
from streamsafe.runtime.torch.hooks.interface import Collector


def install(torch: Any, patches: Patches, collector: Collector) -> None:
    """Reports the first and the last line of threads made by ``threading`` and by ``_thread``."""

    def bootstrap(original: Callable[[Any], None]) -> Callable[[Any], None]:
        @wraps(original)
        def _bootstrap_inner(self: Any) -> None:
            collector.thread_begins()
            try:
                original(self)
            finally:
                collector.thread_ends()

        return _bootstrap_inner

    def start(original: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(original)
        def start_new_thread(function: Any, *rest: Any) -> Any:
            def body(*args: Any, **kwargs: Any) -> Any:
                collector.thread_begins()
                try:
                    return function(*args, **kwargs)
                finally:
                    collector.thread_ends()

            return original(body if callable(function) else function, *rest)

        return start_new_thread

    patches.wrap(threading.Thread, "_bootstrap_inner", bootstrap)
    for name in ("start_new_thread", "start_new"):
        patches.wrap(_thread, name, start)
