"""Building native code for the installed torch: where it is kept, who builds, and what is said when it cannot be."""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from streamsafe.simulate import torch as simulate
from streamsafe.toolchain import compiler
from streamsafe.toolchain import torch as build
from streamsafe.toolchain import torch_installed as installed
from streamsafe.toolchain.torch import BuildError, Library

ROOT = Path(__file__).resolve().parents[2]
ANSWER = 'extern "C" __attribute__((visibility("default"))) int answer() { return %d; }\n'


@pytest.fixture
def torch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a torch with a version, the headers that are looked for, and libraries that are empty."""
    root = tmp_path / "site" / "torch"
    header = root / "include/ATen/core/dispatch/Dispatcher.h"
    header.parent.mkdir(parents=True)
    header.touch()
    (root / "__init__.py").touch()
    (root / "lib").mkdir()
    version(root)
    for name in ("c10", "torch_cpu", "torch"):
        subprocess.run(
            [build.find_compiler(), "-shared", "-xc++", "/dev/null", "-o", str(root / f"lib/lib{name}.so")],
            check=True,
        )
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    monkeypatch.syspath_prepend(str(root.parent))
    monkeypatch.setenv(build.CACHE_VARIABLE, str(tmp_path / "cache"))
    monkeypatch.delenv("CXX", raising=False)
    return root


def version(root: Path, text: str = "2.11.0+cu130", cuda: str = '"13.0"') -> None:
    lines = [f"__version__ = {text!r}", f"cuda: Optional[str] = {cuda}", "git_version = 'abc'", "hip = None"]
    (root / "version.py").write_text("\n".join(lines) + "\n")
    installed._read.cache_clear()


def library(folder: Path, answer: int = 42, name: str = "unit.cpp") -> Library:
    unit = folder / name
    unit.write_text(ANSWER % answer)
    return Library("answer", (unit,))


def answer(path: Path) -> int:
    found: int = ctypes.CDLL(str(path)).answer()
    return found


def test_a_library_is_built_once_and_found_again(
    torch: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    what = library(tmp_path)
    path = build.build(what)
    assert answer(path) == 42
    assert "building answer for PyTorch 2.11.0+cu130, once" in capfd.readouterr().err
    before = path.stat().st_mtime_ns
    assert build.build(what) == path
    assert path.stat().st_mtime_ns == before
    assert capfd.readouterr().err == ""
    assert sorted(each.name for each in path.parent.iterdir()) == sorted([path.name, f"{path.stem}.lock"])
    assert build.build(what, force=True, quiet=True) == path
    assert path.stat().st_mtime_ns > before


CHANGES: dict[str, Callable[[Path, Path], object]] = {
    "torch's version": lambda torch, folder: version(torch, "2.12.0"),
    "torch's CUDA": lambda torch, folder: version(torch, cuda='"12.8"'),
    "a source": lambda torch, folder: library(folder, 43),
}


def test_another_compiler_makes_another_library(
    torch: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    what = library(tmp_path)
    path = build.build(what, quiet=True)
    other = tmp_path / "other-c++"
    other.write_text(f'#!/bin/sh\nexec {build.find_compiler()} "$@"\n')
    other.chmod(0o755)
    monkeypatch.setenv("CXX", str(other))
    found = build.build(what, quiet=True)
    assert found != path and answer(found) == 42
    monkeypatch.delenv("CXX")
    assert build.build(what, quiet=True) == path


def test_without_a_compiler_what_was_built_is_found(
    torch: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    what = library(tmp_path)
    path = build.build(what, quiet=True)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert build.build(what, quiet=True) == path
    with pytest.raises(BuildError, match="no C"):
        build.build(library(tmp_path, 43), quiet=True)


@pytest.mark.parametrize("change", CHANGES)
def test_what_decides_the_binary_decides_its_path(torch: Path, tmp_path: Path, change: str) -> None:
    what = library(tmp_path)
    before = build.target(what, installed.installed())
    CHANGES[change](torch, tmp_path)
    assert build.target(what, installed.installed()) != before


def test_where_the_sources_lie_does_not(torch: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    found = installed.installed()
    assert build.target(library(tmp_path), found) == build.target(library(other), found)


REFUSALS: dict[str, tuple[Callable[[Path, Path, pytest.MonkeyPatch], object], str]] = {
    "no torch": (
        lambda torch, folder, monkeypatch: monkeypatch.setattr(sys, "path", []),
        r"PyTorch is not installed: pip install torch --index-url .*/cpu",
    ),
    "an old torch": (
        lambda torch, folder, monkeypatch: version(torch, "2.5.1"),
        r"PyTorch 2\.5\.1 is not supported: .* 2\.6 to 2\.14",
    ),
    "a new torch": (
        lambda torch, folder, monkeypatch: version(torch, "2.15.0a0"),
        r"PyTorch 2\.15\.0a0 is not supported: .* 2\.6 to 2\.14",
    ),
    "no compiler": (
        lambda torch, folder, monkeypatch: monkeypatch.setenv("PATH", str(folder)),
        r"there is no C\+\+ compiler \(c\+\+, g\+\+, clang\+\+\): install one",
    ),
    "a compiler that is not there": (
        lambda torch, folder, monkeypatch: monkeypatch.setenv("CXX", "no-such-compiler"),
        r"there is no C\+\+ compiler no-such-compiler, which the variable CXX names",
    ),
    "no headers": (
        lambda torch, folder, monkeypatch: shutil.rmtree(torch / "include"),
        r"PyTorch's C\+\+ headers are not in .*/torch/include",
    ),
    "an error in the source": (
        lambda torch, folder, monkeypatch: (folder / "unit.cpp").write_text("int f( { }\n"),
        r"answer did not compile for PyTorch 2\.11\.0\+cu130 with .*: .*unit\.cpp:1:.*error.*is in .*\.log",
    ),
    "a cache that is a file": (
        lambda torch, folder, monkeypatch: (folder / "cache").touch(),
        r"cannot write .*cache.*: .*\. Name a folder that can be written in STREAMSAFE_CACHE",
    ),
}


@pytest.mark.parametrize("refusal", REFUSALS)
def test_what_is_missing_is_said(
    torch: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refusal: str
) -> None:
    what = library(tmp_path)
    break_it, message = REFUSALS[refusal]
    break_it(torch, tmp_path, monkeypatch)
    with pytest.raises(BuildError) as caught:
        build.build(what, quiet=True)
    assert re.search(message, str(caught.value)), str(caught.value)
    assert not list((tmp_path).glob("cache/**/*.tmp"))


def test_a_cache_that_cannot_be_written_serves_what_it_has(
    torch: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    what = library(tmp_path)
    path = build.build(what, quiet=True)

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied", str(path.parent))

    monkeypatch.setattr(Path, "mkdir", refuse)
    assert build.build(what, quiet=True) == path
    with pytest.raises(BuildError, match="Permission denied"):
        build.build(what, quiet=True, force=True)


def test_a_library_that_others_may_write_is_built_anew(torch: Path, tmp_path: Path) -> None:
    what = library(tmp_path)
    path = build.build(what, quiet=True)
    path.write_text("of somebody else")
    path.chmod(0o666)
    assert build.build(what, quiet=True) == path
    assert ctypes.CDLL(str(path)).answer() and not path.stat().st_mode & 0o022


def test_a_folder_that_others_may_write_is_closed(torch: Path, tmp_path: Path) -> None:
    what = library(tmp_path)
    path = build.build(what, quiet=True)
    path.parent.chmod(0o777)
    before = path.stat().st_mtime_ns
    assert build.build(what, quiet=True) == path
    assert path.stat().st_mtime_ns == before and not path.parent.stat().st_mode & 0o022


def test_a_folder_of_another_user_is_refused(
    torch: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    what = library(tmp_path)
    path = build.build(what, quiet=True)
    owner = path.stat().st_uid
    monkeypatch.setattr(compiler, "_own", lambda found: found.st_uid == owner + 1)
    with pytest.raises(BuildError, match="belongs to another user"):
        build.build(what, quiet=True)


def test_no_cuda_headers_is_said(torch: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CUDA_HOME", "CUDA_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(build, "TOOLKIT", str(tmp_path / "nowhere"))
    which = shutil.which
    monkeypatch.setattr(shutil, "which", lambda name, *rest: None if name == "nvcc" else which(name, *rest))
    what = Library("answer", library(tmp_path).units, cuda=True)
    with pytest.raises(BuildError, match="pip install nvidia-cuda-runtime, or name the toolkit's folder"):
        build.build(what, quiet=True)
    headers = torch.parent / "nvidia/cu13/include"
    headers.mkdir(parents=True)
    (headers / "cuda_runtime_api.h").touch()
    assert build._include_folders(what, installed.installed())[-2:] == [headers, build.CUDA_HEADERS]


PROCESS = """
import sys
from pathlib import Path
from streamsafe.toolchain import torch as build
print(build.build(build.Library("answer", (Path(sys.argv[1]),)), quiet=True))
"""

SLOW_COMPILER = """#!/bin/sh
echo x >> {log}
case "$*" in *" -c "*) sleep $(cat {seconds});; esac
exec {compiler} "$@"
"""


def slow_compiler(folder: Path, seconds: float) -> Path:
    """A compiler that waits first; the same one each time, for another compiler makes another library."""
    script = folder / "slow-c++"
    (folder / "seconds").write_text(str(seconds))
    if not script.exists():
        places = {"log": folder / "calls", "seconds": folder / "seconds"}
        script.write_text(SLOW_COMPILER.format(**places, compiler=build.find_compiler()))
        script.chmod(0o755)
    return script


def start(torch: Path, unit: Path, compiler: Path) -> subprocess.Popen[str]:
    environment = {**os.environ, "CXX": str(compiler), "PYTHONPATH": f"{torch.parent}{os.pathsep}{ROOT}"}
    command = [sys.executable, "-c", PROCESS, str(unit)]
    return subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, text=True, cwd=ROOT, start_new_session=True
    )


def test_many_processes_build_once(torch: Path, tmp_path: Path) -> None:
    unit = library(tmp_path).units[0]
    compiler = slow_compiler(tmp_path, 0.5)
    running = [start(torch, unit, compiler) for _ in range(4)]
    paths = {each.communicate()[0].strip() for each in running}
    assert [each.returncode for each in running] == [0] * 4
    assert len(paths) == 1
    assert (tmp_path / "calls").read_text().count("x") == 2  # compile and link


def test_a_killed_build_keeps_nobody_waiting(torch: Path, tmp_path: Path) -> None:
    unit = library(tmp_path).units[0]
    killed = start(torch, unit, slow_compiler(tmp_path, 600))
    while not list((tmp_path / "cache").glob("**/*.tmp")):
        assert killed.poll() is None
        time.sleep(0.02)
    os.killpg(killed.pid, signal.SIGKILL)  # with its compiler
    killed.communicate()
    assert list((tmp_path / "cache").glob("**/*.tmp"))
    second = start(torch, unit, slow_compiler(tmp_path, 0))
    assert answer(Path(second.communicate()[0].strip())) == 42
    assert not list((tmp_path / "cache").glob("**/*.tmp"))


@pytest.mark.parametrize(
    ("text", "cuda", "said"),
    [
        ("2.11.0+cu130", "'13.0'", "pip install torch==2.11.0+cpu --index-url"),
        ("2.11.0", "'13.0'", "pip install torch==2.11.0+cpu --index-url"),
        ("2.99.0.dev20261101+cu130", "'13.0'", f'"torch>=2.6,<2.{installed.NEWEST[1] + 1}" --index-url'),
        ("2.11.0+cpu", "None", None),
    ],
)
def test_a_build_for_cuda_is_told_which_one_to_install(
    torch: Path, text: str, cuda: str, said: str | None
) -> None:
    version(torch, text, cuda)
    reason = simulate.unavailable()
    assert reason is None if said is None else said in str(reason)
