"""Which module imported torch before the simulated device was there."""

from __future__ import annotations

import sys
from types import ModuleType

_OURS = ("streamsafe", "pytest", "_pytest", "pluggy")


def importer_of(name: str) -> str | None:
    """The module that imported a package, by what the process still shows of it.

    Modules stand in ``sys.modules`` in the order in which their imports ended, so the importer is the first one after
    the package that holds something of it; one whose import has not ended stands before.

    Args:
        name: of the package, which is imported.

    Returns:
        the importer's name and file, or None when nothing shows it.
    """
    before = after = None
    passed = False
    for module_name, module in list(sys.modules.items()):
        package = module_name.split(".")[0]
        passed |= module_name == name
        if package in (name, *_OURS, *sys.stdlib_module_names) or not isinstance(module, ModuleType):
            continue
        if any(_comes_from(value, name) for value in list(vars(module).values())):
            if passed:
                after = module
                break
            before = module
    nearest = after or before
    if nearest is None:
        return None
    file = getattr(nearest, "__file__", None)
    return f"{nearest.__name__} ({file})" if file else nearest.__name__


def _comes_from(value: object, package: str) -> bool:
    owner = value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", None)
    return isinstance(owner, str) and owner.split(".")[0] == package
