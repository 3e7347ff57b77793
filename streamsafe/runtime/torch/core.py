"""The engine of a program that uses torch: the core inside the extension, which sees torch's own work directly."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, TypeGuard

from streamsafe.order.checker import Kind
from streamsafe.order.hazard import Conflict
from streamsafe.order.memory import Block, Owner, Space
from streamsafe.order.native.checker import NativeChecker
from streamsafe.order.native.library import Library
from streamsafe.order.native.reports import KINDS
from streamsafe.runtime import stream_names
from streamsafe.runtime.monitor import named, rendered
from streamsafe.runtime.places import Site


class TorchChecker(NativeChecker):
    """The core of the extension, for the other front ends and for reports.

    Args:
        extension: the module.
        library: its C functions.
        threads: as for :class:`streamsafe.order.checker.Checker`.
        name_of: what the program calls a stream, by device and handle; empty where that is not known.
        made_at: where the program made a stream, by device and handle, if that is known.
    """

    def __init__(
        self,
        extension: Any,
        library: Library,
        *,
        threads: bool,
        name_of: Callable[[int, int], str],
        made_at: Callable[[int, int], Site | None],
    ) -> None:
        super().__init__(library, extension.core(), threads=threads, render=rendered, naming=named)
        self.reader.explain.library = "torch"
        self._extension = extension
        self._name_of, self._made_at = name_of, made_at

    def operation(self, operation: int) -> tuple[str, bool, str, int, int]:
        """An operation's name, whether the autograd engine does it, its node, and the sites of that
        node's forward and, where it is not the operation's own, of the call of backward().
        """
        found = self._extension.operation_of(operation)
        return ("", False, "", 0, 0) if found is None else found

    def line_key(self, label: int) -> Hashable:
        found: tuple[int, int] | None = self._extension.line_of(label)
        return super().line_key(label) if found is None else found

    def name_stream(self, key: Hashable, name: str) -> None:
        if _is_queue(key):
            self.name_line(self._extension.line(key[0], key[1], -1), name)
        super().name_stream(key, name)

    def stream(
        self, key: Hashable, *, device: Space = 0, kind: Kind = "non-blocking", name: str = ""
    ) -> None:
        if _is_queue(key):
            line = self._extension.line(key[0], key[1], KINDS.index(kind))
            self._line_ids[key] = line
            self._spaces[key] = device
            self._kinds[key] = kind
            if name and not name.startswith("stream 0x"):
                self.name_line(line, name)
        else:
            super().stream(key, device=device, kind=kind, name=name)

    def destroy_stream(self, key: Hashable) -> None:
        if _is_queue(key):
            for known in (self._line_ids, self._spaces, self._kinds):
                known.pop(key, None)
            self._extension.forget_line(*key)
        else:
            super().destroy_stream(key)

    def allocate(self, space: Space, start: int, size: int, *, owner: Owner, **given: Any) -> Block:
        if owner == "cupy" and self._is_torch_block(space, start):  # CuPy's allocator is one that asks torch
            name, site = given.get("name", ""), given.get("site")
            return Block(space, start, start + size, "torch", self._host, name, site)
        return super().allocate(space, start, size, owner=owner, **given)

    def free(self, space: Space, start: int, *, site: object = None) -> None:
        if (space, start) in self._handed or not self._is_torch_block(space, start):
            super().free(space, start, site=site)

    def _is_torch_block(self, space: Space, start: int) -> bool:
        """Whether torch has handed out the block: torch says when it ends, and by whose rule it is reused."""
        return isinstance(space, int) and bool(self._extension.owns(space, start))

    def finish(self) -> list[Conflict]:
        stashed = [self.reader.read(report) for report in self._extension.take_stashed()]
        return stashed + super().finish()

    def foreign_operation(self, operation: int) -> str:
        return self.operation(operation)[0]

    def foreign_site(self, site: int) -> object:
        return self._extension.site(site) or None

    def _site(self, site: object) -> int:
        return int(self._extension.site_id(site)) if site else 0

    def sizes(self) -> dict[str, int]:
        counted = self._extension.counters()
        return super().sizes() | {"sites": counted["sites"], "operations": counted["operations"]}

    def foreign_line(self, label: int) -> str:
        found = self._extension.line_of(label)
        if found is None:
            return "a stream that is gone"
        device, handle = found
        if handle == 0:
            return "the default stream"
        return self._name_of(device, handle) or stream_names.of_stream(handle, self._made_at(device, handle))


def _is_queue(key: Hashable) -> TypeGuard[tuple[int, int]]:
    """Whether it is a device and a raw handle: the timeline of a host function has a key of another kind."""
    return isinstance(key, tuple) and len(key) == 2 and isinstance(key[0], int)
