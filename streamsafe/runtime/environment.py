"""``STREAMSAFE=1``: a session for a whole program that imports streamsafe, opened by that import."""

from __future__ import annotations

import importlib.abc
import importlib.util
import os
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType

from streamsafe.runtime.options import REPORTS

VARIABLE = "STREAMSAFE"
LIBRARIES = ("torch", "cupy")
"""What a child process imports before it has work for a device."""


def open_session() -> None:
    """Opens the session, unless this process is ``streamsafe`` itself or pytest, which look at the variable themselves.

    A process that a watched one has started opens it when it imports torch or CuPy: most never do.

    Raises:
        ValueError: the variable holds something else than 1, raise, warn or collect.
    """
    program = os.path.basename(sys.argv[0]) if sys.argv else ""
    if "pytest" in sys.modules or program.startswith(("streamsafe", "pytest", "py.test")):
        return
    if program == "-m" and "streamsafe" in sys.orig_argv:
        return
    if os.environ.get(REPORTS):
        from streamsafe.runtime import processes

        processes.begin({name: text for name, text in os.environ.items() if name.startswith(VARIABLE)})
        sys.meta_path.insert(0, _AtImport())
        return
    _open()


def _open() -> None:
    from streamsafe.runtime.program import from_environment

    from_environment(os.environ[VARIABLE])


class _AtImport(importlib.abc.MetaPathFinder):
    """Opens the session when the import of a library begins, and finds what would have been found."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name not in LIBRARIES or self not in sys.meta_path:
            return None
        sys.meta_path.remove(self)
        _open()
        loaded = sys.modules.get(name)  # the simulated runtime imports CuPy
        return importlib.util.find_spec(name) if loaded is None else ModuleSpec(name, _Loaded(loaded))


class _Loaded(importlib.abc.Loader):
    """Gives a module that is there already."""

    def __init__(self, module: ModuleType) -> None:
        self._module = module
        self._spec = module.__spec__

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return self._module

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__ = self._spec
