"""The compiler: kernels "compile" to an image that only says which source it stands for."""

from __future__ import annotations

import hashlib
import importlib
from collections.abc import Callable
from types import ModuleType
from typing import Any

from streamsafe.simulate.cuda.capsules import Bridge
from streamsafe.simulate.cuda.driver import DriverCalls
from streamsafe.simulate.cuda.errors import SimulationLimit
from streamsafe.simulate.cuda.kernels import Source

# Where headers would be: CuPy only puts the path on a command line that nothing reads.
_HEADERS = "/usr/local/cuda"
_ARCHITECTURES = [75, 80, 86, 89, 90, 100, 120]


def replace_nvrtc(bridge: Bridge, nvrtc: ModuleType, version: int) -> None:
    """Answer what CuPy asks NVRTC before it compiles; refuse the rest. Call before ``import cupy``.

    Args:
        bridge: installs the functions.
        nvrtc: ``cupy_backends.cuda.libs.nvrtc``.
        version: CUDA version of the wheel, such as 12090.
    """
    answers: dict[str, Callable[..., Any]] = {
        "getVersion": lambda: (version // 1000, version % 1000 // 10),
        "getSupportedArchs": lambda: list(_ARCHITECTURES),
    }
    for name in list(nvrtc.__pyx_capi__):
        if name != "check_status":
            function = answers.get(name) or _refuse(f"nvrtc.{name}")
            bridge.replace(nvrtc, name, function)
            bridge.expose(nvrtc, name, function)


def _refuse(name: str) -> Callable[..., Any]:
    def refuse(*_: Any, **__: Any) -> Any:
        raise SimulationLimit(f"{name}() is not simulated: the simulated runtime has no compiler")

    return refuse


def replace_compiler(cupy: ModuleType, driver: DriverCalls) -> None:
    """Replace ``cupy.cuda.compiler._compile_module_with_cache``; callers and wrappers see the same signature."""
    make = cupy.cuda.function.Module

    def _compile_module_with_cache(
        source: str, options: tuple[str, ...] = (), *args: Any, **kwargs: Any
    ) -> Any:
        names = kwargs.get("name_expressions")
        made = Source(source, tuple(options), tuple(names or ()))
        image = b"simulated " + hashlib.sha256(repr(made).encode()).hexdigest().encode()
        driver.register(image, made)
        module = make()
        module.load(image)
        if names is not None:
            module._set_mapping({name: name for name in names})
        return module

    cupy.cuda.compiler._compile_module_with_cache = _compile_module_with_cache
    _provide_headers(cupy)


def _provide_headers(cupy: ModuleType) -> None:
    """Let CuPy find CUDA headers where none are installed."""
    find_path = cupy.cuda.get_cuda_path

    def get_cuda_path() -> str:
        return find_path() or _HEADERS

    cupy.cuda.get_cuda_path = get_cuda_path
    try:
        pathfinder: Any = importlib.import_module("cuda.pathfinder")
    except ImportError:
        return
    find_headers = pathfinder.find_nvidia_header_directory

    def find_nvidia_header_directory(name: str) -> str | None:
        found: str | None = find_headers(name)
        return found or (f"{_HEADERS}/include" if name == "cudart" else None)

    pathfinder.find_nvidia_header_directory = find_nvidia_header_directory
