"""Building native code at its first use, for all front ends: the cache, its locks, the compiler.

A library's path holds a hash of all that decides what the compiler makes, and one of the compiler and the headers
themselves. One process builds, under a lock that the system takes from it when it dies; the others wait. A library
appears whole or not at all.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
import shutil
import stat
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

CACHE_VARIABLE = "STREAMSAFE_CACHE"


class BuildError(Exception):
    """The native code cannot be built or kept; the message says why, and what to do."""


def cache_folder() -> Path:
    """The folder of everything built: ``$STREAMSAFE_CACHE``, or ``streamsafe`` in the user's cache folder."""
    chosen = os.environ.get(CACHE_VARIABLE)
    if chosen:
        return Path(chosen).expanduser().absolute()
    if sys.platform == "darwin":
        base = Path("~/Library/Caches").expanduser()
    else:
        base = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
    return base.absolute() / "streamsafe"


def python_tag() -> str:
    return sysconfig.get_config_var("SOABI") or f"{sys.implementation.cache_tag}"


def digest(parts: Iterable[object]) -> str:
    """Stands for everything that decides what the compiler makes.

    Args:
        parts: of any kind; a path stands for its name and its contents.
    """
    made = hashlib.sha256()
    for part in parts:
        for each in (part.name, part.read_bytes()) if isinstance(part, Path) else (part,):
            data = each if isinstance(each, bytes) else str(each).encode()
            made.update(len(data).to_bytes(8, "little") + data)
    return made.hexdigest()[:16]


def find_compiler() -> str:
    """The C++ compiler: ``$CXX``, or the first of ``c++``, ``g++``, ``clang++`` on the path.

    Raises:
        BuildError: there is none.
    """
    chosen = os.environ.get("CXX")
    for name in [chosen] if chosen else ["c++", "g++", "clang++"]:
        found = shutil.which(name)
        if found is not None:
            return found
    if chosen:
        raise BuildError(f"there is no C++ compiler {chosen}, which the variable CXX names")
    raise BuildError(
        "there is no C++ compiler (c++, g++, clang++): install one (`apt install g++`), or name it in CXX"
    )


def made_with(headers: Iterable[Path]) -> str:
    """Stands for the compiler and for headers that are not of the package that the key names.

    Args:
        headers: files whose contents say which headers they are; those that are missing are left out.

    Raises:
        BuildError: there is no compiler.
    """
    compiler = os.path.realpath(find_compiler())
    found = os.stat(compiler)
    parts: list[object] = [compiler, found.st_size, found.st_mtime_ns]
    parts += [path for path in headers if path.exists()]
    return digest(parts)[:8]


def versions_of_python_headers() -> list[Path]:
    """The headers that tell one Python's from another's."""
    folder = Path(sysconfig.get_path("include"))
    return [folder / "patchlevel.h", folder / "pyconfig.h"]


def built_elsewhere(folder: Path, stem: str) -> Path | None:
    """Where nothing can be built: the library that was last built from the same sources, with whatever compiler."""
    found = [path for path in folder.glob(f"{stem}-*.so") if kept(path)]
    return max(found, key=lambda path: path.stat().st_mtime_ns, default=None)


_WRITABLE_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH


def kept(path: Path) -> bool:
    """Whether a library is there that nobody but its user can have put there: it is loaded into the process.

    A folder of the user's own that others may write is closed to them; a library that they may write is built anew.

    Raises:
        BuildError: a folder of it belongs to another user, or root lets others write it.
    """
    for folder in (path.parent.parent, path.parent):
        _close(folder)
    try:
        found = path.lstat()
    except OSError:
        return False
    return stat.S_ISREG(found.st_mode) and _own(found) and not found.st_mode & _WRITABLE_BY_OTHERS


def _close(folder: Path) -> None:
    try:
        found = folder.stat()
    except OSError:
        return
    remedy = f"name a folder of your own in {CACHE_VARIABLE}"
    if not _own(found):
        raise BuildError(f"{folder} belongs to another user, who could change the code in it: {remedy}")
    if not found.st_mode & _WRITABLE_BY_OTHERS or found.st_mode & stat.S_ISVTX:
        return
    try:
        folder.chmod(stat.S_IMODE(found.st_mode) & ~_WRITABLE_BY_OTHERS)
    except OSError as error:
        raise BuildError(f"other users may write {folder}, and change the code in it: {remedy}") from error


def _own(found: os.stat_result) -> bool:
    return found.st_uid in (os.getuid(), 0)


def place(made: Path, path: Path) -> None:
    """Puts a library that was built where it is kept, whole or not at all."""
    made.chmod(0o755)
    os.replace(made, path)


@contextlib.contextmanager
def locked(path: Path, name: str, quiet: bool) -> Iterator[None]:
    """Holds the lock of one library; a process that dies gives it back."""
    import fcntl

    with open(path, "a", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if not quiet:
                say(f"waiting for another process that builds {name}")
            fcntl.flock(file, fcntl.LOCK_EX)
        except OSError:
            pass  # a file system without locks: two may build, and the last one's equal file stays
        yield


around_messages: Callable[[], AbstractContextManager[None]] = nullcontext
"""What a message is written under: pytest, which captures what is written, sets that it does not."""


def say(text: str) -> None:
    """Tell the user of a build, which takes a while."""
    with around_messages():
        print(f"streamsafe: {text}", file=sys.stderr, flush=True)


def run(command: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)


def unwritable(error: OSError, folder: Path, remedy: str = "") -> BuildError:
    """The error of a cache that cannot be written."""
    return BuildError(
        f"cannot write {error.filename or folder}: {error.strerror or error}. Name a folder that can be written in "
        f"{CACHE_VARIABLE}{remedy}"
    )


def python_headers() -> Path:
    """The folder of Python's headers.

    Raises:
        BuildError: they are not installed.
    """
    folder = Path(sysconfig.get_path("include"))
    if not (folder / "Python.h").exists():
        raise BuildError(f"Python's headers are not in {folder}: install them (`apt install python3-dev`)")
    return folder


def compile_to(path: Path, arguments: Sequence[str], what: str, text: str | None = None) -> None:
    """Has the compiler make one file, which appears whole or not at all.

    Args:
        path: of the file; its folder exists.
        arguments: of the compiler, without the output.
        what: what is said not to compile.
        text: C++ that is compiled, where the arguments name no file.

    Raises:
        BuildError: there is no compiler, or its first error.
        OSError: the folder cannot be written.
    """
    compiler = find_compiler()
    work = Path(tempfile.mkdtemp(prefix=f"{path.stem}.", suffix=".tmp", dir=path.parent))
    try:
        made = work / path.name
        if text is not None:
            unit = work / "unit.cpp"
            unit.write_text(text, encoding="utf-8")
            arguments = [*arguments, str(unit)]
        ended = run([compiler, *arguments, "-o", str(made)])
        if ended.returncode != 0:
            lines = ended.stderr.splitlines()
            first = next((line for line in lines if "error" in line), lines[-1] if lines else "no message")
            raise BuildError(f"{what} did not compile with {compiler}: {first.strip()}")
        place(made, path)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def build_extension(
    name: str, unit: Path, headers: Sequence[Path], *, what: str, quiet: bool = False
) -> Path:
    """An extension module of one C++ file for this Python, built unless it is there.

    Args:
        name: of the module.
        unit: the file to compile.
        headers: folders of files that it includes.
        what: what is said to be built.
        quiet: say nothing on standard error while it is built.

    Raises:
        BuildError: no compiler, no headers, the compiler's error, or a cache that cannot be written or trusted.
    """
    options = ["-std=c++17", "-O2", "-DNDEBUG", "-fPIC", "-shared", "-fvisibility=hidden", "-w"]
    files = [unit, *(path for folder in headers for path in sorted(folder.glob("*.h*")))]
    key = digest([name, platform.machine(), python_tag(), *options, *files])
    stem, folder = f"{name}-{key}", cache_folder() / f"python-{python_tag()}"
    try:
        path = folder / f"{stem}-{made_with(versions_of_python_headers())}.so"
    except BuildError:
        known = built_elsewhere(folder, stem)
        if known is None:
            raise
        return known
    if kept(path):
        return path
    if sys.platform != "linux":
        raise BuildError(f"native code is built on Linux only, not on {sys.platform}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with locked(path.with_suffix(".lock"), what, quiet):
            if kept(path):
                return path
            if not quiet:
                say(f"building {what}, once (some ten seconds)")
            prefix = f"{path.stem}."
            for left in path.parent.glob(f"{prefix}*.tmp"):  # of builds that were killed: the lock is ours
                shutil.rmtree(left, ignore_errors=True)
            folders = [f"-I{each}" for each in [*headers, python_headers()]]
            compile_to(path, [*options, *folders, str(unit)], what)
    except OSError as error:
        raise unwritable(error, path.parent) from error
    return path
