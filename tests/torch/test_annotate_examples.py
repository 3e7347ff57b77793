"""The programs of `examples/annotate`: silent as they are, and reported without the wait, or without what is said."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "examples" / "annotate"
PROGRAMS = {"cuda_extension": "--no-wait", "flag_kernel": "--say-nothing", "all_reduce": "--no-wait"}


@pytest.mark.parametrize("racy", [False, True])
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program(torch: Any, name: str, racy: bool, request: pytest.FixtureRequest) -> None:
    on_gpu = request.config.getoption("--gpu")
    if name == "flag_kernel":
        if importlib.util.find_spec("triton") is None:
            pytest.skip("Triton is not installed")
    elif not on_gpu or shutil.which("nvcc") is None:
        pytest.skip("needs a GPU and CUDA's compiler")
    options = ["--mode", "collect", *([] if on_gpu else ["--simulate"])]
    command = [sys.executable, "-m", "streamsafe", "run", *options, str(FOLDER / f"{name}.py")]
    ended = subprocess.run(
        [*command, *([PROGRAMS[name]] if racy else [])], capture_output=True, text=True, check=False
    )
    assert ended.returncode == int(racy), ended.stderr
    assert "False" not in ended.stdout or racy, ended.stdout
    assert ("SS101" in ended.stderr) == racy, ended.stderr
