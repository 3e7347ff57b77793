"""What a thread is doing, and the backward passes that are under way."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from streamsafe.order.memory import Use
from streamsafe.order.work import Backward, Work
from streamsafe.runtime import places as sites
from streamsafe.runtime.monitor import local
from streamsafe.runtime.places import Site


class Here(threading.local):
    """Of one thread.

    Attributes:
        pushed: whether the dispatch mode is on its stack.
        inside: how many operators are running.
        site: where the outermost of them was called.
        collective: called when a stream waits in a collective's operator, with its raw handle.
        within: what has been written inside the operator that is running by operators that it calls; None: none runs.
        refused: what the host waits for is forbidden in a capture, and is reported already.
    """

    pushed = False
    inside = 0
    site: Site | None = None
    collective: Callable[[int], None] | None = None
    within: list[Use] | None = None
    refused = False


class Pass:
    """One call of the autograd engine: where, and the thread that calls, as the engine of order knows it."""

    __slots__ = ("queue", "site", "task")

    def __init__(self, site: Site) -> None:
        self.site = site
        self.queue = local.queue
        self.task: int | None = None


class Passes:
    """The backward passes that are under way, and where the forward of their nodes was."""

    REMEMBERED = 1 << 16

    def __init__(self, torch: Any) -> None:
        self._task = torch._C._current_graph_task_id
        self._node = torch._C._current_autograd_node
        self._number = torch._C._autograd._get_sequence_nr
        self._function = torch._C._FunctionBase
        self._open: list[Pass] = []
        self._lock = threading.Lock()
        self._forward: OrderedDict[int, Site] = OrderedDict()
        self._works: dict[tuple[Any, ...], tuple[Work, tuple[Any, ...]]] = {}

    def begin(self, site: Site) -> None:
        with self._lock:
            self._open.append(Pass(site))

    def end(self) -> None:
        """The pass that the calling thread began last."""
        with self._lock:
            own = [each for each in self._open if each.queue == local.queue]
            if own:
                self._open.remove(own[-1])

    def now(self) -> Pass | None:
        """The pass whose work the calling thread does."""
        task = self._task()
        if task < 0:
            return None
        with self._lock:
            for each in self._open:
                if each.task == task:
                    return each
            for each in reversed(self._open):
                if each.task is None:  # it has just begun, and is seen for the first time
                    each.task = task
                    return each
        return None

    def remember(self, site: Site) -> None:
        """An operator of the program has run: the node that it made last is of this line."""
        number = self._number() - 1
        if number in self._forward:
            return  # of an earlier operator: this one made none
        self._forward[number] = site
        if len(self._forward) > self.REMEMBERED:
            self._forward.popitem(last=False)

    def work(self, name: str, site: Site, backward: Pass) -> tuple[str, Site]:
        """What an operation is called that a pass does, and where it is.

        Args:
            name: the operator's.
            site: of the program's line that calls it; empty in a thread of the engine.
        """
        node = self._node()
        by_hook = bool(site) and site != backward.site  # a line of a hook, or of a Function's own backward
        if by_hook and not isinstance(node, self._function):
            return name, site
        forward = self._forward.get(node._sequence_nr()) if node is not None else None
        called = name if by_hook else "backward()"
        caller = backward.site if by_hook else ()
        title = node.name() if node is not None else ""
        key = (called, title, _key(forward), _key(caller))
        known = self._works.get(key)
        if known is None:
            if len(self._works) > self.REMEMBERED:
                self._works.clear()
            made = Work(called, Backward(title, sites.frames(forward), sites.frames(caller)))
            known = self._works[key] = made, (forward, caller)  # the key holds addresses of what these hold
        return known[0], site if by_hook else backward.site


def _key(site: Site | None) -> tuple[int, ...]:
    return tuple(each if isinstance(each, int) else id(each) for each in site or ())


@contextmanager
def thread_of(backward: Pass | None) -> Iterator[None]:
    """What a thread of the autograd engine does is done by the thread that called backward()."""
    if backward is None or backward.queue == local.queue:
        yield
        return
    before = local.queue
    local.queue = backward.queue
    try:
        yield
    finally:
        local.queue = before


__all__ = ["Here", "Pass", "Passes", "thread_of"]
