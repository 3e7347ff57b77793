"""Which module imported torch before the simulated device was there."""

from __future__ import annotations

import sys
from types import ModuleType

_OURS = ("streamsafe", "pytest", "_pytest", "pluggy")


def importer_of(name: str) -> str | None:
    """The module that imported a package, by what the process still shows of it.

    Modules stand in ``sys.modules`` in the order in which their imports began, so the importer stands before the
    package; of those that hold something of it, the last one is the nearest.

    Args:
        name: of the package, which is imported.

    Returns:
        the importer's name and file, or None when nothing shows it.
    """
    nearest = None
    for module_name, module in list(sys.modules.items()):
        if module_name.split(".")[0] == name:
            break
        if module_name.split(".")[0] in _OURS or not isinstance(module, ModuleType):
            continue
        if any(_comes_from(value, name) for value in list(vars(module).values())):
            nearest = module
    if nearest is None:
        return None
    file = getattr(nearest, "__file__", None)
    return f"{nearest.__name__} ({file})" if file else nearest.__name__


def _comes_from(value: object, package: str) -> bool:
    owner = value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", None)
    return isinstance(owner, str) and owner.split(".")[0] == package
