"""``python -m streamsafe.runtime.child PROGRAM``: a program that a watched process starts, as Python would run it.

The import of streamsafe has opened the session, and has put the simulated device in place where there is one: the
environment says so.
"""

from __future__ import annotations

import os
import runpy
import sys
from importlib.machinery import SourceFileLoader
from types import ModuleType


def main(arguments: list[str]) -> None:
    """Runs ``-c CODE``, ``-m MODULE`` or a script.

    Args:
        arguments: what stands after Python's own options.
    """
    module = ModuleType("__main__")
    module.__dict__["__builtins__"] = __builtins__
    sys.modules["__main__"] = module
    safe = getattr(sys.flags, "safe_path", False)
    kind = arguments[0] if arguments[0] in ("-c", "-m") else ""
    if kind == "-m":
        sys.argv[:] = ["-m", *arguments[2:]]
        runpy._run_module_as_main(arguments[1])  # type: ignore[attr-defined]
        return
    if kind == "-c":
        sys.argv[:] = ["-c", *arguments[2:]]
        if not safe:
            sys.path[0] = ""
        exec(compile(arguments[1], "<string>", "exec"), vars(module))
        return
    sys.argv[:] = arguments
    path = arguments[0]
    if os.path.isdir(path) or path.endswith((".zip", ".pyz")):
        sys.path[0] = path
        runpy.run_path(path, run_name="__main__")
        return
    if not safe:
        sys.path[0] = os.path.dirname(os.path.realpath(path))
    module.__file__ = path
    module.__loader__ = SourceFileLoader("__main__", path)
    with open(path, "rb") as file:
        code = compile(file.read(), path, "exec")
    exec(code, vars(module))


if __name__ == "__main__":
    main(sys.argv[1:])
