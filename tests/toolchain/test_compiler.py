"""Which compiler builds native code, into which file, and what is trusted; a script stands for a compiler."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from streamsafe.toolchain import compiler
from streamsafe.toolchain.compiler import BuildError

COPIES = """#!/bin/sh
while [ $# -gt 1 ]; do case "$1" in -o) out="$2"; shift;; *) in="$1";; esac; shift; done
grep -q broken "$in" && { echo "$in: note" >&2; echo "$in:1: error: broken" >&2; exit 1; }
cp "$in" "${out:-$1}"
"""


@pytest.fixture
def compilers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder that is put before the system's, without its compilers."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for tool in ("sh", "grep", "cp"):
        (folder / tool).symlink_to(f"/bin/{tool}")
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.delenv("CXX", raising=False)
    return folder


def made(folder: Path, name: str) -> str:
    path = folder / name
    path.write_text(COPIES, encoding="utf-8")
    path.chmod(0o755)
    return str(path)


def test_the_compiler_is_the_first_of_three_or_the_users(
    compilers: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(BuildError, match=r"no C\+\+ compiler \(c\+\+, g\+\+, clang\+\+\): install one"):
        compiler.find_compiler()
    clang = made(compilers, "clang++")
    assert compiler.find_compiler() == clang
    gnu = made(compilers, "g++")
    assert compiler.find_compiler() == gnu
    monkeypatch.setenv("CXX", "clang++")
    assert compiler.find_compiler() == clang
    monkeypatch.setenv("CXX", "icpx")
    with pytest.raises(BuildError, match="no C\\+\\+ compiler icpx, which the variable CXX names"):
        compiler.find_compiler()


def test_a_digest_stands_for_all_its_parts(tmp_path: Path) -> None:
    header, twin = tmp_path / "a.h", tmp_path / "b.h"
    header.write_text("1", encoding="utf-8")
    twin.write_text("1", encoding="utf-8")
    digests = [
        compiler.digest(parts) for parts in (["ab", "c"], ["a", "bc"], [header], [twin], [header, 1], [])
    ]
    header.write_text("2", encoding="utf-8")
    digests.append(compiler.digest([header]))
    assert len(set(digests)) == len(digests) and {len(each) for each in digests} == {16}


def test_a_file_appears_whole_or_not_at_all(compilers: Path, tmp_path: Path) -> None:
    made(compilers, "c++")
    cache = tmp_path / "cache"
    cache.mkdir()
    compiler.compile_to(cache / "right.so", ["-O2"], "the core", text="int right;")
    with pytest.raises(BuildError, match=r"the core did not compile with .*/c\+\+: .*1: error: broken"):
        compiler.compile_to(cache / "wrong.so", ["-O2"], "the core", text="broken")
    assert [path.name for path in cache.iterdir()] == ["right.so"]
    assert (cache / "right.so").read_text(encoding="utf-8") == "int right;"


def test_a_library_that_others_may_write_is_not_kept(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    cache.mkdir()
    path = cache / "core-1.so"
    assert not compiler.kept(path) and compiler.built_elsewhere(cache, "core") is None
    path.write_bytes(b"")
    path.chmod(0o755)
    cache.chmod(0o777)
    assert compiler.kept(path) and cache.stat().st_mode & 0o022 == 0
    assert compiler.built_elsewhere(cache, "core") == path
    path.chmod(0o775)
    assert not compiler.kept(path)


@pytest.mark.parametrize("quiet", [False, True])
def test_a_process_that_waits_for_a_build_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], quiet: bool
) -> None:
    waits, order = threading.Event(), []

    def other() -> None:
        waits.set()
        with compiler.locked(tmp_path / "lock", "the core", quiet):
            order.append("second")

    with compiler.locked(tmp_path / "lock", "the core", quiet):
        thread = threading.Thread(target=other)
        thread.start()
        waits.wait()
        thread.join(0.2)
        order.append("first")
    thread.join()
    said = "" if quiet else "streamsafe: waiting for another process that builds the core\n"
    assert order == ["first", "second"] and capsys.readouterr().err == said


def test_where_everything_is_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(compiler.CACHE_VARIABLE, str(tmp_path / "mine"))
    assert compiler.cache_folder() == tmp_path / "mine"
    monkeypatch.delenv(compiler.CACHE_VARIABLE)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    monkeypatch.setattr("sys.platform", "linux")
    assert compiler.cache_folder() == tmp_path / "xdg" / "streamsafe"
