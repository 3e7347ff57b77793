"""Something is done with a module as soon as it is imported: at once if it is loaded, else when its code has run."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
import threading
from collections.abc import Callable, Sequence
from functools import partial
from types import ModuleType
from typing import Any

After = Callable[[ModuleType], None]


class _Loader(importlib.abc.Loader):
    """Loads a module as its own loader does, which the module gets to see, and does something with it afterwards."""

    def __init__(self, own: Any, after: Callable[[ModuleType], None]) -> None:
        self.own = own
        self.after = after

    def __getattr__(self, name: str) -> Any:
        return getattr(self.own, name)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        found: ModuleType | None = self.own.create_module(spec)
        return found

    def exec_module(self, module: ModuleType) -> None:
        module.__loader__ = self.own
        if module.__spec__ is not None:
            module.__spec__.loader = self.own
        self.own.exec_module(module)
        self.after(module)


class _Finder(importlib.abc.MetaPathFinder):
    """Finds what the other finders find, for the names that somebody waits for."""

    def __init__(self) -> None:
        self.wanted: dict[str, list[After]] = {}
        self._looking = threading.local()

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname not in self.wanted or getattr(self._looking, "name", "") == fullname:
            return None
        self._looking.name = fullname
        try:
            for finder in sys.meta_path:
                spec = finder.find_spec(fullname, path, target) if finder is not self else None
                if spec is not None:
                    break
            else:
                return None
        finally:
            self._looking.name = ""
        if spec.loader is not None and hasattr(spec.loader, "exec_module"):
            spec.loader = _Loader(spec.loader, partial(self._loaded, fullname))
        return spec

    def _loaded(self, name: str, module: ModuleType) -> None:
        """Do what waits for a module. ``name``: as it was imported; code may give a module another (cuda.core)."""
        for after in self.wanted.pop(name, ()):
            after(module)


_finder = _Finder()


def imported(name: str) -> ModuleType | None:
    """A module that is loaded, all of it."""
    module = sys.modules.get(name)
    loading = getattr(getattr(module, "__spec__", None), "_initializing", False)
    return None if loading else module


def after_import(name: str, after: After, *, first: bool = False) -> None:
    """Calls ``after`` with a module: now if it is loaded, else once, when it is. What it raises, the import raises.

    Args:
        name: of the module.
        after: what is called.
        first: before what others have called, which then see what it did to the module.
    """
    module = imported(name)
    if module is not None:
        after(module)
        return
    waiting = _finder.wanted.setdefault(name, [])
    waiting.insert(0 if first else len(waiting), after)
    if _finder not in sys.meta_path:
        sys.meta_path.insert(0, _finder)
