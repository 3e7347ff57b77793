"""Native code for the installed torch: built at first use, kept in the user's cache, found again by every process.

torch's dispatcher, allocator and trace headers have no stable ABI, so a library fits one build of torch: its path
holds a hash of the torch build, the Python version where it matters, the compiler's options and the sources, and one
of the compiler and of Python's and CUDA's headers. One process builds, under a lock that the system takes from it when
it dies; the others wait. A library appears whole or not at all.
"""

from __future__ import annotations

import importlib
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from streamsafe.toolchain import torch_operators
from streamsafe.toolchain.compiler import (
    CACHE_VARIABLE,
    BuildError,
    built_elsewhere,
    cache_folder,
    digest,
    find_compiler,
    kept,
    locked,
    made_with,
    place,
    python_headers,
    python_tag,
    run,
    say,
    unwritable,
    versions_of_python_headers,
)
from streamsafe.toolchain.torch_installed import NEWEST, OLDEST, Torch, TorchUnavailable, installed

PACKAGE = Path(__file__).resolve().parent.parent

HOOKS = PACKAGE / "runtime" / "torch"
SIMULATED = PACKAGE / "simulate" / "torch"
CUDA_HEADERS = SIMULATED / "headers"
TOOLKIT = "/usr/local/cuda"


@dataclass(frozen=True)
class Library:
    """A library built against torch.

    Attributes:
        name: of the file, and in messages.
        units: the files to compile.
        headers: files that they include, and folders of such files: both count for the hash.
        python: whether it uses Python's headers and ``libtorch_python`` (and so fits one Python version).
        cuda: whether it uses CUDA's headers and ``libc10_cuda`` where torch is built for CUDA; ``WITH_CUDA`` is then
            defined.
        generate: gives further sources by file name from the torch build: they are written beside the objects, where
            ``#include "name"`` finds them.
    """

    name: str
    units: tuple[Path, ...]
    headers: tuple[Path, ...] = ()
    python: bool = False
    cuda: bool = False
    generate: Callable[[Torch], Mapping[str, str]] | None = None


def _operators(torch: Torch) -> Mapping[str, str]:
    """What operators do where their schemas do not say it."""
    return {torch_operators.FILE: torch_operators.text()}


def _forwarder(torch: Torch) -> Mapping[str, str]:
    """Besides, the allocator that passes every call on: its methods differ from release to release."""
    if not torch.cuda:
        return _operators(torch)
    forwarder = importlib.import_module("streamsafe.toolchain.torch_allocator")
    return {**_operators(torch), "forward.inc": forwarder.text(torch.root / "include")}


COLLECTOR = Library(
    "collector",
    units=(HOOKS / "collect.cpp",),
    headers=(HOOKS, PACKAGE / "order" / "native", PACKAGE / "runtime" / "native"),
    python=True,
    cuda=True,
    generate=_forwarder,
)
"""What sees torch's operators, streams, events and memory."""

SIMULATED_DEVICE = Library(
    "simulated_device",
    units=tuple(
        SIMULATED / f"{name}.cpp"
        for name in ("streams", "memory", "generators", "kernels", "special", "collectives")
    ),
    headers=(SIMULATED,),
    generate=_operators,
)
"""The simulated CUDA device of a CPU build of torch."""


def libraries(torch: Torch) -> list[Library]:
    """What is built for this torch."""
    return [COLLECTOR] if torch.cuda or torch.hip else [COLLECTOR, SIMULATED_DEVICE]


# -- where it is kept ------------------------------------------------------------------------------------------------


def target(library: Library, torch: Torch) -> Path:
    """Where the library for this torch is, or will be.

    Raises:
        BuildError: it is nowhere, and there is no compiler.
    """
    folder = cache_folder() / f"torch-{torch.version}-{python_tag() if library.python else 'any'}"
    stem = f"{library.name}-{_key(library, torch)}"
    headers = versions_of_python_headers() if library.python else []
    try:
        if library.cuda and torch.cuda:
            headers.append(_cuda_headers(torch)[0] / "cuda_runtime_api.h")
        return folder / f"{stem}-{made_with(headers)}.so"
    except BuildError:
        known = built_elsewhere(folder, stem)
        if known is None:
            raise
        return known


def _key(library: Library, torch: Torch) -> str:
    """Stands for everything that decides what the compiler makes."""
    parts: list[object] = [
        library.name,
        torch.version,
        torch.git,
        torch.abi,
        torch.cuda,
        torch.hip,
        torch.standard,
    ]
    parts += [platform.machine(), python_tag() if library.python else "", *_options(library, torch)]
    parts += _link(library, torch)  # where torch's own libraries are found: another environment has others
    parts += _sources(library)
    if library.generate is not None:
        for name, text in sorted(library.generate(torch).items()):
            parts += [name, text]
    return digest(parts)


def _sources(library: Library) -> list[Path]:
    """Every file that the library is made of, in an order that does not depend on where they lie."""
    files = list(library.units)
    for path in library.headers:
        files += sorted(path.glob("*.h*")) if path.is_dir() else [path]
    return files


# -- building --------------------------------------------------------------------------------------------------------


def build(library: Library, *, force: bool = False, quiet: bool = False) -> Path:
    """The library for the installed torch, built unless it is there.

    Args:
        library: what to build.
        force: build it again.
        quiet: say nothing on standard error while it is built.

    Raises:
        BuildError: torch is missing or not supported, no compiler, no headers, the compiler's error, or a cache that
            cannot be written or trusted.
    """
    try:
        torch = installed()
    except TorchUnavailable as error:
        raise BuildError(str(error)) from error
    if not torch.supported:
        raise BuildError(
            f"PyTorch {torch.version} is not supported: the sanitizer's native code is written for {OLDEST[0]}."
            f"{OLDEST[1]} to {NEWEST[0]}.{NEWEST[1]}"
        )
    path = target(library, torch)
    if kept(path) and not force:
        return path
    if sys.platform != "linux":
        raise BuildError(f"native code for PyTorch is built on Linux only, not on {sys.platform}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with locked(path.with_suffix(".lock"), library.name, quiet):
            if kept(path) and not force:
                return path
            _build(library, torch, path, quiet)
    except OSError as error:
        remedy = ", or run `streamsafe build-torch` where it can be (an image's build)"
        raise unwritable(error, path.parent, remedy) from error
    return path


def _build(library: Library, torch: Torch, path: Path, quiet: bool) -> None:
    compiler = find_compiler()
    include = _include_folders(library, torch)
    if not quiet:
        say(f"building {library.name} for PyTorch {torch.version}, once: about a minute on one processor")
    prefix = f"{path.stem}."
    for left in path.parent.glob(f"{prefix}*.tmp"):  # of builds that were killed: the lock is ours
        shutil.rmtree(left, ignore_errors=True)
    folder = Path(tempfile.mkdtemp(prefix=prefix, suffix=".tmp", dir=path.parent))
    try:
        if library.generate is not None:
            for name, text in library.generate(torch).items():
                (folder / name).write_text(text, encoding="utf-8")
        common = [compiler, *_options(library, torch), f"-DTORCH_EXTENSION_NAME={library.name}"]
        common += [f"-I{each}" for each in [folder, *include]]
        objects = [folder / f"{unit.stem}.o" for unit in library.units]
        commands = [
            [*common, "-c", str(unit), "-o", str(made)]
            for unit, made in zip(library.units, objects, strict=True)
        ]
        log = path.with_suffix(".log")
        with ThreadPoolExecutor(min(len(commands), os.cpu_count() or 1)) as pool:
            for number, ended in enumerate(pool.map(run, commands), 1):
                _check(ended, library, torch, log)
                if not quiet and len(commands) > 1:
                    say(f"compiled {library.units[number - 1].name}, {number} of {len(commands)}")
        made = folder / path.name
        _check(
            run([*common, *map(str, objects), "-o", str(made), *_link(library, torch)]), library, torch, log
        )
        place(made, path)
        log.unlink(missing_ok=True)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _check(ended: subprocess.CompletedProcess[str], library: Library, torch: Torch, log: Path) -> None:
    if ended.returncode == 0:
        return
    text = f"{' '.join(ended.args)}\n{ended.stdout}{ended.stderr}"
    log.write_text(text, encoding="utf-8")
    lines = ended.stderr.splitlines()
    first = next((line for line in lines if "error" in line), lines[-1] if lines else "no message")
    raise BuildError(
        f"{library.name} did not compile for PyTorch {torch.version} with {ended.args[0]}: {first.strip()} (all of it "
        f"is in {log})"
    )


def _options(library: Library, torch: Torch) -> list[str]:
    options = [torch.standard, "-O2", "-DNDEBUG", "-fPIC", "-shared", "-fvisibility=hidden", "-w"]
    options.append("-DAT_PER_OPERATOR_HEADERS")  # or else torch's headers declare all of its operators
    options.append(f"-D_GLIBCXX_USE_CXX11_ABI={torch.abi}")
    if library.cuda and torch.cuda:
        options.append("-DWITH_CUDA")
    return options


def _link(library: Library, torch: Torch) -> list[str]:
    names = ["c10", "torch_cpu", "torch"]
    names += ["torch_python"] if library.python else []
    names += ["c10_cuda", "torch_cuda"] if library.cuda and torch.cuda else []
    return [f"-L{torch.libraries}", f"-Wl,-rpath,{torch.libraries}", *(f"-l{name}" for name in names)]


def _include_folders(library: Library, torch: Torch) -> list[Path]:
    if not (torch.root / "include/ATen/core/dispatch/Dispatcher.h").exists():
        raise BuildError(f"PyTorch's C++ headers are not in {torch.root / 'include'}: its wheels have them")
    own = [path for path in library.headers if path.is_dir()]
    folders = [*own, *torch.includes]
    if library.python:
        folders.append(python_headers())
    if library.cuda and torch.cuda:
        folders += _cuda_headers(torch)
    return folders


def _cuda_headers(torch: Torch) -> list[Path]:
    """The folders with ``cuda_runtime_api.h``: of the toolkit, or of the wheels that torch brings along."""
    site = torch.root.parent / "nvidia"
    major = (torch.cuda or "").partition(".")[0]
    roots = [os.environ.get(name) for name in ("CUDA_HOME", "CUDA_PATH")]
    nvcc = shutil.which("nvcc")
    if nvcc is not None:
        roots.append(str(Path(os.path.realpath(nvcc)).parent.parent))
    roots += [TOOLKIT, f"{TOOLKIT}-{torch.cuda}"]
    folders = [site / f"cu{major}/include", site / "cuda_runtime/include"]
    folders += [Path(root) / "include" for root in roots if root]
    for folder in folders:
        if (folder / "cuda_runtime_api.h").exists():
            # the wheel leaves out crt/, which is the compiler's; ours stand in, and a toolkit's own come first
            return [folder, CUDA_HEADERS]
    raise BuildError(
        f"CUDA's headers (cuda_runtime_api.h) are not found: pip install {_runtime_wheel(major)}, or name the "
        "toolkit's folder in CUDA_HOME"
    )


def _runtime_wheel(major: str) -> str:
    return f"nvidia-cuda-runtime-cu{major}" if major in ("11", "12") else "nvidia-cuda-runtime"


__all__ = [
    "CACHE_VARIABLE",
    "COLLECTOR",
    "SIMULATED_DEVICE",
    "BuildError",
    "Library",
    "build",
    "cache_folder",
    "find_compiler",
    "libraries",
    "target",
]
