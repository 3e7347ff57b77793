"""CUDA graphs: a launch of one fires no callback, and a capture is known to the Python class only."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import wraps
from typing import Any

from streamsafe.runtime.patches import Patches
from streamsafe.runtime.torch.hooks.interface import Collector


class Identity:
    """Stands for one ``CUDAGraph`` and lives as long as it.

    Attributes:
        handled: the exception that was being handled when its capture began.
    """

    __slots__ = ("__weakref__", "handled")

    def __init__(self) -> None:
        self.handled: BaseException | None = None


def identity(graph: Any) -> Identity:
    """What stands for a graph: kept on it, since a graph's address is used again."""
    found = graph.__dict__.get("_streamsafe_identity")
    if found is None:
        found = graph.__dict__["_streamsafe_identity"] = Identity()
    return found  # type: ignore[no-any-return]


def pools_of_trees() -> set[tuple[int, int]]:
    """Pools of ``torch.compile``'s graph trees: they launch in the right order and refuse overwritten outputs."""
    trees = sys.modules.get("torch._inductor.cudagraph_trees")
    if trees is None:
        return set()
    try:
        containers = trees.get_obj(trees.local, "tree_manager_containers")
        managers = [each.tree_manager for each in containers.values()]
        return {tuple(each.cuda_graphs_thread_pool) for each in managers if each is not None}
    except (AttributeError, RuntimeError):  # another release's names, or a thread that has no trees
        return set()


def install(torch: Any, patches: Patches, collector: Collector) -> None:
    """Reports captures, launches and resets of ``torch.cuda.CUDAGraph``, which graph trees and callables use too.

    A capture begins with setting the state of torch's generators, which is nobody's access. So does each launch, and
    there it matters: of two graphs that draw random numbers, launched on two streams at once, one may draw wrong ones.
    """
    cuda = torch.cuda

    def queue() -> tuple[int, int]:
        stream = cuda.current_stream()
        return stream.device_index, stream.cuda_stream

    def pool_of(graph: Any) -> tuple[int, int] | None:
        try:
            first, second = graph.pool()
        except (RuntimeError, TypeError, ValueError):
            return None
        return int(first), int(second)

    def begin(original: Callable[..., None]) -> Callable[..., None]:
        @wraps(original)
        def capture_begin(self: Any, *args: Any, **kwargs: Any) -> None:
            identity(self).handled = sys.exc_info()[1]
            device, stream = queue()
            if not stream:
                collector.capture_on_default(device, stream)
            collector.capture_nears()
            try:
                with collector.own_work():  # it fills the seeds of generators
                    original(self, *args, **kwargs)
            except BaseException:
                collector.capture_fails()
                raise
            pool = kwargs.get("pool", args[0] if args else None)
            mode = kwargs.get("capture_error_mode", args[1] if len(args) > 1 else "global")
            collector.capture_begins(identity(self), None if pool is None else tuple(pool), mode, *queue())
            if pool is not None and tuple(pool) in pools_of_trees():
                collector.capture_managed()

        return capture_begin

    def end(original: Callable[..., None]) -> Callable[..., None]:
        @wraps(original)
        def capture_end(self: Any) -> None:
            error = sys.exc_info()[1]  # the one with which a `with torch.cuda.graph(...)` is left
            if error is identity(self).handled:
                error = None
            identity(self).handled = None
            try:
                original(self)
            except BaseException:
                collector.capture_ends(identity(self), None, True, error)
                raise
            collector.capture_ends(identity(self), pool_of(self), False)

        return capture_end

    def launch(original: Callable[..., None]) -> Callable[..., None]:
        @wraps(original)
        def replay(self: Any) -> None:
            collector.replay(identity(self), *queue())
            original(self)

        return replay

    def forget(original: Callable[..., None]) -> Callable[..., None]:
        @wraps(original)
        def reset(self: Any) -> None:
            original(self)
            collector.graph_reset(identity(self))

        return reset

    def register(original: Callable[..., None]) -> Callable[..., None]:
        @wraps(original)
        def register_generator_state(self: Any, generator: Any) -> None:
            original(self, generator)
            collector.generator_registered(identity(self), generator)

        return register_generator_state

    patches.wrap(cuda.CUDAGraph, "register_generator_state", register)
    hooks = {"capture_begin": begin, "capture_end": end, "replay": launch, "reset": forget}
    for name, make in hooks.items():
        patches.wrap(cuda.CUDAGraph, name, make)
