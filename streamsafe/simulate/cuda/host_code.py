"""Kernels on the host: their CUDA C++, compiled by the host's C++ compiler with headers of ours.

A module becomes one library, kept in the cache folder by its source, its options and the headers. What everything
includes is compiled once, ahead. The library of ``native/threads.cpp`` runs the threads of a launch.
"""

from __future__ import annotations

import ctypes
import functools
import importlib.util
import platform
import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from streamsafe.simulate.cuda.kernels import Source, global_functions, global_variables
from streamsafe.toolchain.compiler import (
    BuildError,
    cache_folder,
    compile_to,
    digest,
    kept,
    made_with,
    say,
    unwritable,
)

NATIVE = Path(__file__).parent / "native"
_OPTIONS = (
    "-std=gnu++17",
    "-O1",
    "-U_FORTIFY_SOURCE",
    "-fPIC",
    "-w",
    "-fno-threadsafe-statics",
    "-fno-strict-aliasing",
)
_HIDDEN = "-fvisibility=hidden"
# What every kernel that CuPy writes includes.
_INCLUDED = """#include "device.hpp"
#include <cupy/complex.cuh>
#include <cupy/carray.cuh>
#include <cupy/atomics.cuh>
#include <cupy/math_constants.h>
"""
# Headers of libcu++ that are those of the C++ library under another name.
_STANDARD = "array cassert cmath complex cstddef cstdint cstring limits tuple type_traits utility".split()
_DYNAMIC = re.compile(
    r"\bextern\s+(?:__align__\s*\([^)]*\)\s*)?__shared__\s+(?:__align__\s*\([^)]*\)\s*)?"
    r"(?P<type>[\w:<>,\s]+?)\s*\b(?P<name>\w+)\s*\[\s*\]\s*;"
)
_STATIC_SHARED = re.compile(r"\bstatic\s+__shared__\b|\b__shared__\s+static\b")
# CuPy's partition relies on the threads of a warp running in step.
_IN_STEP = re.compile(r"(\bvoid bitonic_sort_step\([^)]*\)\s*\{)")
_LONGEST_REASON = 512
_ALIGNED = 16
DONE, FAILED, GAVE_UP = range(3)


@dataclass(frozen=True, slots=True)
class Entry:
    """One kernel of a library.

    Attributes:
        call: address of the function that calls it with an array of pointers to its arguments.
        sizes: bytes of each of its arguments.
    """

    call: int
    sizes: tuple[int, ...]

    def run(self, shape: Sequence[int], shared: int, arguments: Sequence[bytes]) -> tuple[int, str]:
        """Run all threads.

        Args:
            shape: of the grid and of a block, six numbers.
            shared: bytes of dynamic shared memory.
            arguments: the value of each.

        Returns:
            how it ended, and why if not well.
        """
        rooms = [-(-size // _ALIGNED) * _ALIGNED for size in self.sizes]
        memory = ctypes.create_string_buffer(sum(rooms) + _ALIGNED)
        at = -(-ctypes.addressof(memory) // _ALIGNED) * _ALIGNED
        pointers = (ctypes.c_void_p * max(len(rooms), 1))()
        for index, (value, size, room) in enumerate(zip(arguments, self.sizes, rooms, strict=True)):
            ctypes.memmove(at, value, min(size, len(value)))
            pointers[index] = at
            at += room
        message = ctypes.create_string_buffer(_LONGEST_REASON)
        end: int = _threads().streamsafe_launch(
            ctypes.c_void_p(self.call),
            pointers,
            (ctypes.c_uint * 6)(*shape),
            ctypes.c_size_t(shared),
            message,
            ctypes.c_size_t(_LONGEST_REASON),
        )
        return end, message.value.decode(errors="replace")


class Library:
    """The compiled kernels of one module.

    Args:
        path: of the library.
        kernels: their names, in the order of their numbers.
        variables: names of the global variables, likewise.
    """

    def __init__(self, path: Path, kernels: Sequence[str], variables: Sequence[str]) -> None:
        self._library = ctypes.CDLL(str(path))
        self.entries = {name: self._entry(number) for number, name in enumerate(kernels)}
        self.variables = {name: self._variable(number) for number, name in enumerate(variables)}

    def _entry(self, number: int) -> Entry:
        size = self._library[f"streamsafe_size_{number}"]
        size.restype, size.argtypes = ctypes.c_size_t, [ctypes.c_size_t]
        sizes: list[int] = []
        while found := size(len(sizes)):
            sizes.append(found)
        call = ctypes.cast(self._library[f"streamsafe_kernel_{number}"], ctypes.c_void_p).value
        return Entry(call or 0, tuple(sizes))

    def _variable(self, number: int) -> tuple[int, int]:
        """Address and bytes."""
        address = self._library[f"streamsafe_variable_{number}"]
        size = self._library[f"streamsafe_variable_size_{number}"]
        address.restype, size.restype = ctypes.c_void_p, ctypes.c_size_t
        return address(), size()


@functools.cache
def library(source: Source, wanted: str | None = None) -> Library:
    """The compiled kernels of a source.

    Args:
        source: the module.
        wanted: a kernel that is not among those that its text declares outside of templates and namespaces.

    Raises:
        BuildError: no compiler, or what it says; a cache that cannot be written or trusted.
    """
    kernels = [wanted] if wanted is not None else list(source.names or global_functions(source.text))
    variables = [] if wanted is not None else global_variables(source.text)
    text = _for_the_host(source.text, kernels, variables)
    options = [*_OPTIONS, *_asked(source.options)]
    folder, headers = _headers()
    path = folder / f"{digest([text, *options])}.so"
    if not kept(path):
        flags = [*options, _HIDDEN, "-shared", *headers, "-include", str(folder / "all.hpp")]
        try:
            compile_to(path, flags, "it", text=text)
        except OSError as error:
            raise unwritable(error, folder) from error
    _threads()
    return Library(path, kernels, variables)


def _for_the_host(text: str, kernels: Iterable[str], variables: Iterable[str]) -> str:
    text = _STATIC_SHARED.sub("__shared__", text)
    text = _IN_STEP.sub(r"\1 streamsafe_in_step step;", text)
    text = _DYNAMIC.sub(r"\g<type>* \g<name> = reinterpret_cast<\g<type>*>(streamsafe_shared);", text)
    ends = [f"STREAMSAFE_KERNEL({number}, {name})" for number, name in enumerate(kernels)]
    ends += [f"STREAMSAFE_VARIABLE({number}, {name})" for number, name in enumerate(variables)]
    return "\n".join(['#line 1 "kernel.cu"', text, '#line 1 "its entries"', *ends, ""])


def _asked(options: Iterable[str]) -> list[str]:
    """Those of the options for NVRTC that the host's compiler is to see: macros, and folders that are not CUDA's."""
    found = []
    for option in options:
        if option.startswith(("-D", "-U")):
            found.append(option)
        elif option.startswith(("--define-macro=", "--undefine-macro=")):
            found.append(("-D" if option.startswith("--define") else "-U") + option.split("=", 1)[1])
        elif option.startswith("-I") and "_cccl" not in option:
            folder = Path(option[2:])
            if not (folder / "cuda_runtime.h").exists() and folder.is_dir():
                found.append(option)
        elif re.fullmatch(r"-?-std=c\+\+2\w", option):
            found.append(f"-std=gnu++{option[-2:]}")
    return found


@functools.lru_cache(maxsize=1)
def _headers() -> tuple[Path, list[str]]:
    """The folder of what is compiled, with the headers compiled ahead, and the options that name the headers' folders.

    Raises:
        BuildError: as for :func:`library`.
    """
    if sys.platform != "linux":
        raise BuildError(f"kernels are compiled on Linux only, not on {sys.platform}")
    spec = importlib.util.find_spec("cupy")
    assert spec is not None and spec.origin is not None
    cupy = Path(spec.origin).parent
    files = sorted(path for path in NATIVE.rglob("*") if path.is_file())
    key = digest(
        [platform.machine(), *_OPTIONS, *_STANDARD, str(cupy), (cupy / "_version.py").read_bytes(), *files]
    )
    folder = cache_folder() / f"kernels-{key}-{made_with([])}"
    folders = [f"-I{NATIVE}", f"-I{folder}", f"-I{cupy / '_core' / 'include'}"]
    header = folder / "all.hpp"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        ahead, threads = folder / "all.hpp.gch", folder / "threads.so"
        if not (kept(ahead) and kept(threads)):
            say("preparing to run CuPy's kernels on the host, once (some seconds)")
            header.write_text(_INCLUDED, encoding="utf-8")
            (folder / "cuda" / "std").mkdir(parents=True, exist_ok=True)
            for name in _STANDARD:
                (folder / "cuda" / "std" / name).write_text(f"#include <{name}>\n", encoding="utf-8")
            compile_to(
                ahead, [*_OPTIONS, *folders, "-x", "c++-header", str(header)], "the headers of kernels"
            )
            units = [*_OPTIONS, "-O2", "-shared", str(NATIVE / "threads.cpp")]
            compile_to(threads, units, "what runs kernels")
    except OSError as error:
        raise unwritable(error, folder) from error
    return folder, folders


@functools.lru_cache(maxsize=1)
def _threads() -> Any:
    return ctypes.CDLL(str(_headers()[0] / "threads.so"), mode=ctypes.RTLD_GLOBAL)
