"""`streamsafe run`, `verify` and `trace`, and STREAMSAFE=1, as processes of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from streamsafe.cli import main
from streamsafe.rule import rule_page

pytest.importorskip("numpy")
ROOT = Path(__file__).resolve().parents[2]

RACY = """
import sys
import cupy as cp

a = cp.cuda.Stream(non_blocking=True)
b = cp.cuda.Stream(non_blocking=True)
x = cp.zeros(4096)
y = cp.zeros(4096)
cp.cuda.Device().synchronize()
with a:
    x.fill(7)
with b:
    cp.copyto(y, x)
print("reached the end", sys.argv[1:], __name__)
cp.cuda.Device().synchronize()
if len(sys.argv) > 1:
    sys.exit(int(sys.argv[1]))
"""
ORDERED = RACY.replace("with b:", "b.wait_event(a.record())\nwith b:")


@pytest.fixture(autouse=True)
def _simulated(request: pytest.FixtureRequest) -> None:
    from importlib.metadata import PackageNotFoundError, version

    from streamsafe.simulate.cuda import TESTED_VERSIONS

    found = None
    for name in ("cupy-cuda12x", "cupy-cuda13x"):
        try:
            found = version(name)
        except PackageNotFoundError:
            continue
    if found is None or not any(found == tested for tested in TESTED_VERSIONS):
        pytest.skip("no CuPy that can be simulated")


LIKE_THE_SCRIPT = """
import sys
sys.path.remove('')
sys.argv[0] = 'streamsafe'
from streamsafe.cli import main
main()
"""


def streamsafe(*arguments: str, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """The command as it is installed: the working directory is not on Python's path."""
    inherited = {name: value for name, value in os.environ.items() if not name.endswith("_COLOR")}
    variables = {**inherited, "PYTHONPATH": str(ROOT), **environment}
    return subprocess.run(
        [sys.executable, "-c", LIKE_THE_SCRIPT, *arguments],
        cwd=cwd,
        env=variables,
        capture_output=True,
        text=True,
        timeout=120,
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "racy.py").write_text(RACY, encoding="utf-8")
    (tmp_path / "ordered.py").write_text(ORDERED, encoding="utf-8")
    return tmp_path


def test_run_raises_by_default(folder: Path) -> None:
    result = streamsafe("run", "--simulate", "racy.py", cwd=folder)
    assert result.returncode == 1
    assert "reached the end" not in result.stdout
    assert "SS101 unordered-read: `copy` on `b` reads `x`" in result.stderr
    assert "13 |     cp.copyto(y, x)\n   |     ^^^^" in result.stderr and "Traceback" not in result.stderr
    assert "b.wait_event(a.record())" in result.stderr


@pytest.mark.parametrize(
    ("variables", "coloured"),
    [({}, False), ({"FORCE_COLOR": "1"}, True), ({"FORCE_COLOR": "1", "NO_COLOR": "1"}, False)],
)
def test_colour(folder: Path, variables: dict[str, str], coloured: bool) -> None:
    result = streamsafe("run", "--simulate", "racy.py", cwd=folder, **variables)
    assert ("\033[31m\033[1mSS101 unordered-read" in result.stderr) is coloured
    assert ("\033[" in result.stderr) is coloured


@pytest.mark.parametrize(
    ("script", "arguments", "status"),
    [("racy.py", [], 1), ("racy.py", ["3"], 3), ("ordered.py", [], 0), ("ordered.py", ["4"], 4)],
)
def test_exit_status(folder: Path, script: str, arguments: list[str], status: int) -> None:
    result = streamsafe("run", "--simulate", "--mode", "collect", script, *arguments, cwd=folder)
    assert result.returncode == status
    assert result.stdout == f"reached the end {arguments} __main__\n"
    assert ("SS101" in result.stderr) == (script == "racy.py")


def test_report_trace_verify_and_timeline(folder: Path) -> None:
    files = ["--report", "run.json", "--trace", "trace.jsonl"]
    result = streamsafe("run", "--simulate", "--mode", "collect", *files, "-m", "racy", cwd=folder)
    assert result.returncode == 1, result.stderr
    verified = streamsafe("verify", "trace.jsonl", "--report", "verify.json", cwd=folder)
    assert verified.returncode == 1
    report = json.loads((folder / "run.json").read_text())
    assert report == json.loads((folder / "verify.json").read_text())
    assert [
        (each["code"], each["location"]["row"], each["related"][0]["location"]["row"]) for each in report
    ] == [("SS101", 13, 11)]
    assert [each["filename"] for each in report] == [str(folder / "racy.py")]
    assert (report[0]["severity"], report[0]["url"]) == ("error", rule_page("unordered-read"))
    assert report[0]["location"]["column"] == 5
    drawn = streamsafe("trace", "trace.jsonl", "-o", "out.json", "--html", "out.html", cwd=folder)
    assert (drawn.returncode, drawn.stderr) == (0, "")
    assert json.loads((folder / "out.json").read_text())["traceEvents"]
    assert "no edge" in (folder / "out.html").read_text()


CATCHES = RACY.replace(
    "with b:\n    cp.copyto(y, x)",
    """\
for _ in range(2):
    try:
        with b:
            cp.copyto(y, x)
    except Exception as error:
        print("caught", type(error).__name__)""",
)


def test_a_caught_hazard_is_shown_and_is_the_exit_status(folder: Path) -> None:
    (folder / "catches.py").write_text(CATCHES, encoding="utf-8")
    result = streamsafe("run", "--simulate", "--report", "out.json", "catches.py", cwd=folder)
    assert result.returncode == 1
    assert "caught StreamHazardError" in result.stdout and "reached the end" in result.stdout
    assert result.stderr.count("SS101 unordered-read: `copy` on `b` reads `x`") == 1
    assert "   |             ^^^^^^^^^^^^^^^ `b` reads `x`" in result.stderr
    assert [each["code"] for each in json.loads((folder / "out.json").read_text())] == ["SS101"]


ENDS = {
    "sys.exit": ("sys.exit(3)", 3, True),
    "exception": ("raise KeyError('mine')", 1, True),
    "os._exit": ("import os; os._exit(0)", 1, True),
    "os._exit of its own": ("import os; os._exit(5)", 5, True),
    "SIGINT": (  # a job in the background of a shell starts with this signal ignored
        "import os, signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
        "os.kill(os.getpid(), signal.SIGINT); time.sleep(9)",
        130,
        True,
    ),
    "SIGTERM": ("import os, signal; os.kill(os.getpid(), signal.SIGTERM); time.sleep(9)", -15, False),
    "SIGKILL": ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", -9, False),
    "a forked child": ("import os; pid = os.fork(); os.waitpid(pid, 0) if pid else sys.exit(7)", 1, True),
}


@pytest.mark.parametrize("end", ENDS)
def test_nothing_is_lost_however_the_program_ends(folder: Path, end: str) -> None:
    statement, status, summary = ENDS[end]
    source = "import time\n" + RACY.replace("print(", f"{statement}\nprint(")
    (folder / "ends.py").write_text(source, encoding="utf-8")
    files = ["--report", "out.json", "--trace", "trace.jsonl"]
    result = streamsafe("run", "--simulate", "--mode", "collect", *files, "ends.py", cwd=folder)
    assert result.returncode == status, result.stderr
    assert result.stderr.count("SS101 unordered-read: `copy` on `b` reads `x`") == 1
    assert [each["code"] for each in json.loads((folder / "out.json").read_text())] == ["SS101"]
    assert result.stderr.count("streamsafe: 1 hazard (SS101)") == summary
    assert not list(folder.glob(".streamsafe-*"))
    verified = streamsafe("verify", "trace.jsonl", cwd=folder)
    assert ("the trace breaks off" in verified.stderr) is not summary
    assert verified.returncode == (1 if summary else 2)


def test_a_torn_trace_is_said_to_be_torn(folder: Path) -> None:
    streamsafe("run", "--simulate", "--trace", "whole.jsonl", "ordered.py", cwd=folder)
    lines = (folder / "whole.jsonl").read_text().splitlines(keepends=True)
    whole = streamsafe("verify", "whole.jsonl", cwd=folder)
    assert (whole.returncode, whole.stderr) == (0, "streamsafe: no hazards\n")
    for torn in (lines[:-2], [*lines[:-2], lines[-2][:9]]):
        (folder / "torn.jsonl").write_text("".join(torn))
        verified = streamsafe("verify", "torn.jsonl", cwd=folder)
        assert verified.returncode == 2
        assert "no hazards in the part of the trace that is there" in verified.stderr
        assert "the trace breaks off: it has no end mark" in verified.stderr
        drawn = streamsafe("trace", "torn.jsonl", "-o", "out.json", cwd=folder)
        assert drawn.returncode == 0 and "the trace breaks off" in drawn.stderr


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("print(1)\n", "nothing was watched: the program enqueued no work through CuPy"),
        ("import cupy\n", "nothing was watched: the program enqueued no work through CuPy"),
        ("import cupy\ncupy.zeros(3)\n", "no hazards"),
    ],
)
def test_what_was_watched(folder: Path, source: str, said: str) -> None:
    (folder / "quiet.py").write_text(source, encoding="utf-8")
    options = ["--simulate"] if "cupy" in source else []
    result = streamsafe("run", *options, "quiet.py", cwd=folder)
    assert result.returncode == (2 if "nothing" in said else 0)
    assert f"streamsafe: {said}" in result.stderr
    assert streamsafe("run", *options, "--allow-idle", "quiet.py", cwd=folder).returncode == 0


def test_perturbation_delays_the_first_side(folder: Path) -> None:
    result = streamsafe("run", "--simulate", "--mode", "collect", "--perturb", "racy.py", cwd=folder)
    assert result.returncode == 1
    assert "2 kernel launches" in result.stderr  # the fill, and the delay before it
    result = streamsafe("run", "--simulate", "--perturb", "ordered.py", cwd=folder)
    assert result.returncode == 0
    assert "runtime: 1 kernel launch\n" in result.stderr


@pytest.mark.parametrize(("options", "devices"), [([], "1"), (["--devices", "3"], "3")])
def test_simulated_devices(folder: Path, options: list[str], devices: str) -> None:
    (folder / "count.py").write_text("import cupy\nprint(cupy.cuda.runtime.getDeviceCount())\n")
    result = streamsafe("run", "--simulate", "--allow-idle", *options, "count.py", cwd=folder)
    assert (result.returncode, result.stdout) == (0, f"{devices}\n"), result.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "--devices", "2", "ordered.py"], "needs --simulate"),
        (["run", "--simulate", "--devices", "0", "ordered.py"], "--devices"),
        (["run", "missing.py"], "there is no file missing.py"),
        (["run", "-m", "no_such_module_anywhere"], "there is no module no_such_module_anywhere"),
        (["run"], "name a script"),
        (["run", "--trace", "no/such/folder/t", "ordered.py"], "cannot write no/such/folder/t"),
        (["run", "--report", "no/such/folder/r", "ordered.py"], "cannot write no/such/folder/r"),
        (["verify", "--report", "no/such/folder/r", "empty.jsonl"], "cannot write no/such/folder/r"),
        (["run", "--ignore", "101", "ordered.py"], "names no code"),
        (["run", "--ignore", "banana", "ordered.py"], "'banana' names no code"),
        (["verify", "missing.jsonl"], "cannot read missing.jsonl"),
        (["verify", "racy.py"], "racy.py"),
        (["trace", "racy.py"], "name an output"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_errors_are_sentences(folder: Path, arguments: list[str], message: str) -> None:
    (folder / "empty.jsonl").write_text('{"streamsafe":"trace","version":1,"threads":false}\n')
    result = streamsafe(*arguments, cwd=folder)
    assert (result.returncode, result.stdout) == (2, "")
    assert message in result.stderr and "Traceback" not in result.stderr


def test_a_variable_that_names_no_mode(folder: Path) -> None:
    result = streamsafe("run", "--simulate", "ordered.py", cwd=folder, STREAMSAFE="loud")
    assert (result.returncode, result.stdout) == (2, ""), result.stderr
    assert "Error: STREAMSAFE is 'loud': it must be one of raise, warn, collect, simulate" in result.stderr


def test_the_programs_own_exception(folder: Path) -> None:
    (folder / "fails.py").write_text(
        "import cupy\n\ndef f():\n    raise KeyError('mine')\n\nf()\n", encoding="utf-8"
    )
    result = streamsafe("run", "--simulate", "fails.py", cwd=folder)
    assert result.returncode == 1
    assert "KeyError: 'mine'" in result.stderr and "launcher.py" not in result.stderr


@pytest.mark.parametrize(("value", "mode"), [("1", "raise"), ("collect", "collect")])
def test_the_environment_variable(folder: Path, value: str, mode: str) -> None:
    launcher = folder / "main.py"
    launcher.write_text(
        "import os\nvalue = os.environ.pop('STREAMSAFE')\n"
        "from streamsafe.simulate import cuda as simulate\nsimulate.install()\n"
        "from streamsafe.runtime.program import from_environment\nfrom_environment(value)\nimport racy\n",
        encoding="utf-8",
    )
    variables = {**os.environ, "PYTHONPATH": str(ROOT), "STREAMSAFE": value}
    result = subprocess.run(
        [sys.executable, "main.py"], cwd=folder, env=variables, capture_output=True, text=True, timeout=120
    )
    assert ("reached the end" in result.stdout) == (mode == "collect")
    assert "1 hazard (SS101" in result.stderr


def test_importing_is_light(folder: Path) -> None:
    code = (
        "import sys, streamsafe; streamsafe.__version__; dir(streamsafe); "
        "print(sorted({'numpy', 'cupy', 'libcst', 'click', 'torch'} & set(sys.modules)))"
    )
    result = subprocess.run(
        [sys.executable, "-c", code],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert (result.stdout, result.returncode) == ("[]\n", 0)


def test_output_formats(folder: Path) -> None:
    """A run's hazards in the formats of `check`, in a file or on standard error; `verify` writes the same."""
    files = ["--output-format", "sarif", "--output-file", "run.sarif", "--trace", "trace.jsonl"]
    result = streamsafe("run", "--simulate", "--mode", "collect", *files, "-m", "racy", cwd=folder)
    assert result.returncode == 1, result.stderr
    (found,) = json.loads((folder / "run.sarif").read_text())["runs"][0]["results"]
    assert (found["ruleId"], found["locations"][0]["physicalLocation"]["region"]["startLine"]) == (
        "SS101",
        13,
    )
    runner = CliRunner()
    text = runner.invoke(main, ["verify", str(folder / "trace.jsonl"), "--output-format", "github"]).stdout
    assert text.startswith("::error title=streamsafe (SS101 unordered-read),")
    assert text.count("\n") == 1
    run = streamsafe("run", "--simulate", "--output-format", "concise", "racy.py", cwd=folder)
    assert "racy.py:13: SS101 " in run.stderr
    both = runner.invoke(main, ["verify", "x", "--report", "a", "--output-format", "json"])
    assert (both.exit_code, "name one of them" in both.stderr) == (2, True)
