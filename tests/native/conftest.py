"""The core, built once for a test run."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

import streamsafe.order.native
from streamsafe.order.native.library import Library

SOURCES = Path(streamsafe.order.native.__file__).parent


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Library:
    """The core's functions; skips where there is no C++ compiler."""
    compiler = shutil.which("g++") or shutil.which("clang++") or shutil.which("c++")
    if compiler is None:
        pytest.skip("no C++ compiler: install g++ to test the native core")
    built = tmp_path_factory.mktemp("core") / "core.so"
    command = [compiler, "-std=c++17", "-O1", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared"]
    command += ["-fvisibility=hidden", "-o", str(built), str(SOURCES / "core.cpp")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return Library(str(built))
