"""``pytest --streamsafe=simulate`` starts before anything imports torch, or says why not; children have the device."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(find_spec("torch") is None, reason="needs torch")

ROOT = Path(__file__).resolve().parents[2]
RACE = """
import torch
def race():
    s, x = torch.cuda.Stream(), torch.zeros(64, device="cuda")
    torch.cuda.synchronize()
    with torch.cuda.stream(s):
        x.fill_(1)
    return x + 1
"""
USES = "import torch\ndef test(): assert torch.ones(2, device='cuda').sum().item() == 2\n"
SKIPS = "import pytest, torch\n@pytest.mark.skipif(not torch.cuda.is_available(), reason='no GPU')\ndef test(): pass\n"


def run(folder: Path, *arguments: str, files: dict[str, str], **environment: str) -> tuple[int, str]:
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")
    variables = {
        name: text for name, text in os.environ.items() if not name.startswith(("STREAMSAFE", "PYTEST"))
    }
    variables |= {
        "PYTHONPATH": f"{folder}{os.pathsep}{ROOT}",
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        **environment,
    }
    if cache := os.environ.get("STREAMSAFE_CACHE"):
        variables["STREAMSAFE_CACHE"] = cache
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments]
    ended = subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True, timeout=240)
    return ended.returncode, ended.stdout + ended.stderr


PLUGIN = ("-p", "streamsafe.runtime.plugin")
CONFTEST = {"conftest.py": "import torch\n", "test_it.py": USES}


@pytest.mark.parametrize(
    ("arguments", "files", "environment"),
    [
        (("--streamsafe=simulate",), {}, {}),
        ((), {"pytest.ini": "[pytest]\naddopts = --streamsafe=simulate\n"}, {}),
        ((), {"pytest.ini": "[pytest]\nstreamsafe = simulate\n"}, {}),
        ((), {"pyproject.toml": '[tool.pytest.ini_options]\nstreamsafe = "simulate"\n'}, {}),
        ((), {}, {"STREAMSAFE": "simulate"}),
        ((), {}, {"PYTEST_ADDOPTS": "--streamsafe=simulate,collect"}),
        (("-p", "loads_torch", "--streamsafe=simulate"), {"loads_torch.py": "import torch\n"}, {}),
    ],
    ids=[
        "option",
        "addopts",
        "ini",
        "pyproject",
        "variable",
        "variable addopts",
        "a plugin loads torch next",
    ],
)
def test_the_device_is_there_before_a_conftest_imports_torch(
    tmp_path: Path, arguments: tuple[str, ...], files: dict[str, str], environment: dict[str, str]
) -> None:
    status, output = run(tmp_path, *PLUGIN, *arguments, files={**CONFTEST, **files}, **environment)
    assert (status, "1 passed" in output) == (0, True), output


def test_torch_that_is_there_already_is_a_usage_error_that_names_who_imported_it(tmp_path: Path) -> None:
    files = {**CONFTEST, "loads_torch.py": "import torch\n"}
    status, output = run(tmp_path, "-p", "loads_torch", *PLUGIN, "--streamsafe=simulate", files=files)
    assert status == pytest.ExitCode.USAGE_ERROR
    assert "torch is imported already, by loads_torch (" in output
    assert "pytest -p streamsafe " in output


@pytest.mark.parametrize(
    ("text", "arguments", "status"),
    [
        ("import pytest\n@pytest.mark.skip\ndef test(): pass\n", (), 1),
        ("import pytest\n@pytest.mark.skip\ndef test(): pass\n", ("--streamsafe-allow-idle",), 0),
        ("import pytest\npytest.importorskip('no_such')\n", (), 1),
        ("def test(): pass\n", (), 0),  # a test of the host
        ("import pytest\n@pytest.mark.real_gpu\ndef test(): assert False\n", (), 0),
        (USES + "import pytest\n@pytest.mark.skip\ndef test_other(): pass\n", (), 0),
        (SKIPS.replace("pass", "torch.ones(2, device='cuda') + 1"), (), 0),
    ],
)
def test_all_skipped_is_no_success(
    tmp_path: Path, text: str, arguments: tuple[str, ...], status: int
) -> None:
    got, output = run(tmp_path, *PLUGIN, "--streamsafe=simulate", *arguments, files={"test_it.py": text})
    assert got == status, output
    assert ("nothing was simulated" in output) == (status == 1 or bool(arguments))


def test_a_skipped_test_of_a_real_gpu_is_named_by_its_own_line(tmp_path: Path) -> None:
    text = "import pytest\n@pytest.mark.real_gpu\ndef test(): assert False\n"
    _, output = run(tmp_path, *PLUGIN, "--streamsafe=simulate", "-rs", files={"test_it.py": text})
    assert "test_it.py:2: needs a real GPU" in output and "plugin.py" not in output


@pytest.mark.parametrize("mode", ["simulate", "simulate,collect", "simulate,warn"])
def test_a_hazard_fails_its_test_where_hazards_are_reported(tmp_path: Path, mode: str) -> None:
    files = {"races.py": RACE, "test_it.py": "import races\ndef test(): races.race()\ndef test_ok(): pass\n"}
    status, output = run(tmp_path, *PLUGIN, f"--streamsafe={mode}", files=files)
    assert status == (0 if mode.endswith("warn") else 1), output
    assert "SS101 unordered-read" in output
    assert ("1 failed, 1 passed" in output) != mode.endswith("warn")


MACHINE = """
import torch
COUNT = torch.cuda.device_count()  # before CUDA is initialized
def test():
    assert COUNT == 2
    properties = torch.cuda.get_device_properties(1)
    assert torch.cuda.device_count() == 2 and torch.cuda.get_device_capability() == (9, 0)
    assert properties.total_memory == 80 << 30 == torch.cuda.mem_get_info()[1]
    torch.ones(1, device="cuda:1")
"""


@pytest.mark.parametrize(
    ("arguments", "files", "environment"),
    [
        (("--streamsafe-devices=2", "--streamsafe-memory=80GiB", "--streamsafe-capability=9.0"), {}, {}),
        (
            (),
            {"pyproject.toml": '[tool.streamsafe]\ndevices = 2\nmemory = "80 GiB"\ncapability = "9.0"\n'},
            {},
        ),
        (
            (),
            {},
            {"STREAMSAFE_DEVICES": "2", "STREAMSAFE_MEMORY": "85899345920", "STREAMSAFE_CAPABILITY": "9.0"},
        ),
    ],
    ids=["options", "table", "environment"],
)
def test_the_machine_is_what_is_asked_for(
    tmp_path: Path, arguments: tuple[str, ...], files: dict[str, str], environment: dict[str, str]
) -> None:
    files = {"test_it.py": MACHINE, **files}
    status, output = run(tmp_path, *PLUGIN, "--streamsafe=simulate", *arguments, files=files, **environment)
    assert status == 0, output


CHILDREN = """
import os, subprocess, sys
import multiprocessing as mp
import pytest, races, torch

CODE = "import torch; assert torch.cuda.is_available(); "
def works(): assert torch.ones(2, device="cuda").sum().item() == 2
def start(method, target):
    child = mp.get_context(method).Process(target=target)
    child.start(); child.join()
    return child.exitcode

def test_subprocess(): subprocess.run([sys.executable, "-c", CODE], check=True)
def test_own_environment(): subprocess.run([sys.executable, "-c", CODE], check=True, env={"PATH": os.environ["PATH"]})
def test_script(tmp_path):
    path = tmp_path / "child.py"
    path.write_text("import sys\\n" + CODE + "print(sys.argv[1], __file__, sys.path[0])")
    said = subprocess.run([sys.executable, str(path), "a"], check=True, capture_output=True, text=True).stdout
    assert said.split() == ["a", str(path), str(tmp_path)]
@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_multiprocessing(method): assert start(method, works) == 0
def test_race_subprocess(): subprocess.run([sys.executable, "-c", "import races; races.race()"])
def test_race_spawn(): start("spawn", races.race)
def test_silent(): subprocess.run([sys.executable, "-c", "import races"], check=True)
def test_fork():
    works()
    read, write = os.pipe()
    if os.fork() == 0:
        try: torch.ones(1, device="cuda"); said = "no error"
        except RuntimeError as error: said = str(error)
        os.write(write, said.encode()); os._exit(0)
    os.wait()
    assert "Cannot re-initialize CUDA in forked subprocess" in os.read(read, 1000).decode()
"""


@pytest.mark.parametrize("workers", [0, 2])
def test_children_have_the_device_and_tell_what_they_find(tmp_path: Path, workers: int) -> None:
    files = {"races.py": RACE, "test_it.py": CHILDREN}
    xdist = ("-p", "xdist.plugin", "-n", str(workers)) if workers else ()
    status, output = run(tmp_path, *PLUGIN, *xdist, "--streamsafe=simulate", "-rfE", files=files)
    assert status == 1
    failed = sorted(
        line.split("::")[1].split()[0]
        for line in output.splitlines()
        if line.startswith(("FAILED", "ERROR "))
    )
    assert failed == ["test_race_spawn", "test_race_subprocess"], output
    assert output.count("SS101 unordered-read") >= 2
