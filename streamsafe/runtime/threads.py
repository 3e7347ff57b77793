"""Host threads as timelines of their own: what the ``threading``, ``queue`` and ``concurrent`` modules order."""

from __future__ import annotations

import asyncio
import concurrent.futures
import concurrent.futures.thread as futures
import itertools
import queue
import threading
import time
from collections import deque
from collections.abc import Callable
from functools import partial, wraps
from types import TracebackType
from typing import Any
from weakref import WeakKeyDictionary

from streamsafe.order.checker import Checker
from streamsafe.runtime.monitor import Monitor, current, local
from streamsafe.runtime.patches import Patches, StandIn

_keys = itertools.count(1 << 40)
"""Unlike the numbers of threads; an integer is the native engine's key as it is."""
TOGETHER = 64
"""Keys that are forgotten at once."""
_real_lock = threading.Lock
_real_rlock = threading.RLock


def _learn(source: int, target: int) -> None:
    monitor = current.monitor
    if monitor is not None and monitor.threads:
        edge = monitor.quick_edge if not monitor.released else None
        (edge or monitor.host_edge)(source, target)


def _published(key: int) -> None:
    _learn(local.queue, key)


def _received(key: int) -> None:
    _learn(key, local.queue)


class _Key:
    """What hands on to a thread what another knew: a key of the engine's, which is forgotten with this."""

    __slots__ = ("key",)

    def __init__(self) -> None:
        self.key = next(_keys)

    def __del__(self) -> None:
        _forget(self.key)


def _forget(key: int) -> None:
    """Safe in a finalizer. No key comes again: there is no hurry."""
    monitor = current.monitor
    if monitor is not None and monitor.threads:
        forgotten = monitor.forgotten
        forgotten.append(key)
        if len(forgotten) >= TOGETHER:
            monitor.forgotten = []
            monitor.later(partial(_forget_all, monitor.checker, forgotten))


def _forget_all(checker: Checker, keys: list[int]) -> None:
    for key in keys:
        checker.forget_host(key)


class TracedLock:
    """A lock whose release is ordered before its next acquisition. Conditions, events, semaphores, barriers and queues
    made while a session is open are built on it.

    What a thread has released last and takes again tells it nothing: most locks are taken by one thread many times.
    """

    __slots__ = ("__weakref__", "_kept", "_key", "_last", "_lock")

    def __init__(self, make: Callable[[], Any] = _real_lock) -> None:
        self._lock = make()
        self._kept = _Key()
        self._key = self._kept.key
        self._last = 0  # the thread that has released it last

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        if not self._lock.acquire(blocking, timeout):
            return False
        self._taken()
        return True

    def _taken(self) -> None:
        monitor = current.monitor  # not by a function: locks are taken often
        if monitor is not None and monitor.threads and self._last != local.queue:
            _learn(self._key, local.queue)

    def release(self) -> None:
        monitor = current.monitor
        if monitor is not None and monitor.threads:
            mine = self._last = local.queue
            edge = monitor.quick_edge if not monitor.released else None
            (edge or monitor.host_edge)(mine, self._key)
        self._lock.release()

    def locked(self) -> bool:
        return bool(self._lock.locked())

    def __enter__(self) -> bool:
        self._lock.acquire()
        self._taken()
        return True

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()

    def _at_fork_reinit(self) -> None:
        self._lock._at_fork_reinit()

    def __repr__(self) -> str:
        return repr(self._lock)


class TracedRLock(TracedLock):
    """The same for a lock that its owner may take again."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__(_real_rlock)

    def _is_owned(self) -> bool:
        return bool(self._lock._is_owned())

    def _release_save(self) -> Any:
        self._last = local.queue
        _published(self._key)
        return self._lock._release_save()

    def _acquire_restore(self, saved: Any) -> None:
        self._lock._acquire_restore(saved)
        _received(self._key)


class _Getting(threading.local):
    """Whether this thread is inside ``queue.Queue.get``, and what the item that it got there says."""

    now = False
    until: int | None = None


_getting = _Getting()
_notes: WeakKeyDictionary[Any, deque[int | None]] = WeakKeyDictionary()
"""Of a queue: for each item what :func:`_begun` was when it was put; None where that is not known."""


def _begun() -> int | None:
    """What another thread may know by now; an item that is put says no more, whenever it is taken out."""
    monitor = current.monitor
    return None if monitor is None else monitor.begun


def _heard(until: int | None = None) -> None:
    """Another thread has signalled this one."""
    monitor = current.monitor
    if monitor is not None and not _getting.now:
        monitor.answered(until=until)


class HeardQueue(queue.SimpleQueue, metaclass=StandIn):  # type: ignore[type-arg]
    """A queue by whose items a host function may signal."""

    def put(self, item: Any, block: bool = True, timeout: float | None = None) -> None:
        super().put((_begun(), item), block, timeout)

    def put_nowait(self, item: Any) -> None:
        self.put(item)

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        until, item = super().get(block, timeout)
        _heard(until)
        return item

    def get_nowait(self) -> Any:
        return self.get(False)


_QUEUE = {"SimpleQueue": HeardQueue}
_answering = False


def begin(monitor: Monitor, patches: Patches) -> None:
    """A session begins.

    Args:
        patches: what lasts as long as the session.
    """
    global _answering
    if monitor.threads:
        install(patches)
        return
    if not _answering:
        _answering = True
        install_answers(Patches())
    patches.variables(queue, _QUEUE)


def install_answers(patches: Patches) -> None:
    """With one clock for all threads: hearing from another thread may be hearing from a host function on a stream."""

    def answer(original: Callable[..., Any], *, always: bool) -> Callable[..., Any]:
        @wraps(original)
        def heard(*args: Any, **kwargs: Any) -> Any:
            result = original(*args, **kwargs)
            if always or result:
                _heard()
            return result

        return heard

    def call_soon(original: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(original)
        def call_soon_threadsafe(loop: Any, callback: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
            until = _begun()

            def run(*given: Any) -> Any:
                _heard(until)
                return callback(*given)

            return original(loop, run, *args, **kwargs)

        return call_soon_threadsafe

    def put(original: Callable[..., None]) -> Callable[..., None]:
        @wraps(original)
        def _put(self: Any, item: Any) -> None:
            if current.monitor is None:
                original(self, item)
                return
            notes = _notes.setdefault(self, deque())
            if len(notes) != len(self.queue):  # from before the session, or taken out by hand
                notes.clear()
                notes.extend([None] * len(self.queue))
            original(self, item)
            notes.append(_begun())

        return _put

    def taken(original: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(original)
        def _get(self: Any) -> Any:
            notes = _notes.get(self) if current.monitor is not None else None
            if notes is not None and len(notes) == len(self.queue):
                _getting.until = notes.popleft()
            return original(self)

        return _get

    def get(original: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(original)
        def get(self: Any, *args: Any, **kwargs: Any) -> Any:
            if current.monitor is None:
                return original(self, *args, **kwargs)
            _getting.now, _getting.until = True, None
            try:
                item = original(self, *args, **kwargs)
            finally:
                _getting.now = False
            _heard(_getting.until)
            return item

        return get

    for name, wrapper in (("_put", put), ("_get", taken), ("get", get)):
        patches.wrap(queue.Queue, name, wrapper)
    for owner, name, always in (
        (threading.Event, "wait", False),
        (threading.Event, "is_set", False),
        (threading.Condition, "wait", False),
        (threading.Semaphore, "acquire", False),
        (threading.Barrier, "wait", True),
        (concurrent.futures.Future, "result", True),
        (time, "sleep", True),  # between two looks at what a host function sets
    ):
        patches.wrap(owner, name, partial(answer, always=always))
    patches.wrap(asyncio.BaseEventLoop, "call_soon_threadsafe", call_soon)


def install(patches: Patches) -> None:
    """Makes thread starts and joins, locks made from now on, and executors' work edges between host threads."""

    def start(original: Callable[[Any], None]) -> Callable[[Any], None]:
        def start(self: Any) -> None:
            self._streamsafe = _Key(), _Key()
            _published(self._streamsafe[0].key)
            original(self)

        return start

    def bootstrap(original: Callable[[Any], None]) -> Callable[[Any], None]:
        def _bootstrap_inner(self: Any) -> None:
            begun, ended = getattr(self, "_streamsafe", (None, None))
            if begun is not None:
                _received(begun.key)
            try:
                original(self)
            finally:
                if ended is not None:
                    _published(ended.key)
                _forget(local.queue)

        return _bootstrap_inner

    def join(original: Callable[..., None]) -> Callable[..., None]:
        def join(self: Any, timeout: float | None = None) -> None:
            original(self, timeout)
            _, ended = getattr(self, "_streamsafe", (None, None))
            if ended is not None and not self.is_alive():
                _received(ended.key)

        return join

    def item_init(original: Callable[..., None]) -> Callable[..., None]:
        def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
            original(self, *args, **kwargs)
            self._streamsafe = _Key()
            _published(self._streamsafe.key)

        return __init__

    def item_run(original: Callable[..., None]) -> Callable[..., None]:
        def run(self: Any, *args: Any, **kwargs: Any) -> None:
            handed = getattr(self, "_streamsafe", None)  # none of an item from before the session
            if handed is not None:
                _received(handed.key)
            original(self, *args, **kwargs)

        return run

    patches.wrap(threading.Thread, "start", start)
    patches.wrap(threading.Thread, "_bootstrap_inner", bootstrap)
    patches.wrap(threading.Thread, "join", join)
    patches.attribute(threading, "Lock", TracedLock)
    patches.attribute(threading, "RLock", TracedRLock)
    if hasattr(threading, "_allocate_lock"):
        patches.attribute(threading, "_allocate_lock", TracedLock)
    python_queue = getattr(queue, "_PySimpleQueue", None)
    if python_queue is not None:
        patches.attribute(queue, "SimpleQueue", python_queue)
    patches.wrap(futures._WorkItem, "__init__", item_init)
    patches.wrap(futures._WorkItem, "run", item_run)
