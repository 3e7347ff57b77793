"""What runs elsewhere: the GitHub action, the GitLab job, the pre-commit hooks, the image, the editors' patterns."""

from __future__ import annotations

import json
import os
import re
import shlex
import stat
import subprocess
from importlib.resources import files
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from click.testing import CliRunner

from streamsafe import __version__
from streamsafe.cli import main
from tests.cli.helpers import BUG, BUG_ROW

ROOT = Path(__file__).parents[1]
SCHEMAS = files("check_jsonschema") / "builtin_schemas" / "vendor"


def schema(name: str) -> Any:
    return json.loads((SCHEMAS / name).read_text(encoding="utf-8"))


def test_the_extension_for_vs_code() -> None:
    """What it declares is what its code uses, and what the server takes."""
    folder = ROOT / "examples" / "vscode"
    package = json.loads((folder / "package.json").read_text(encoding="utf-8"))
    code = (folder / package["main"]).read_text(encoding="utf-8")
    assert package["version"] == __version__
    settings = {
        name.removeprefix("streamsafe.") for name in package["contributes"]["configuration"]["properties"]
    }
    assert settings == set(re.findall(r'settings\.get\("(\w+)"\)', code))
    modules = set(re.findall(r'require\("([\w-]+)', code)) - {"vscode"}
    assert modules == set(package["dependencies"])
    (arguments,) = re.findall(r"args: (\[.*?\])", code)
    assert CliRunner().invoke(main, [*json.loads(arguments), "--help"]).exit_code == 0
    assert f"streamsafe-{__version__}.vsix" in (folder / "README.md").read_text(encoding="utf-8")


def test_action() -> None:
    action = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
    jsonschema.validate(action, schema("github-actions.json"))
    used = set(re.findall(r"inputs\.([\w-]+)", (ROOT / "action.yml").read_text(encoding="utf-8")))
    assert used == set(action["inputs"])


@pytest.mark.parametrize("sarif", ["", "out.sarif"])
def test_the_script_of_the_action(tmp_path: Path, sarif: str) -> None:
    """The step that checks, as bash runs it on a runner."""
    action = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
    script = action["runs"]["steps"][-1]["run"]
    command = tmp_path / "streamsafe" / "bin" / "streamsafe"
    command.parent.mkdir(parents=True)
    command.write_text(
        '#!/bin/sh\necho "$@" >> "$RUNNER_TEMP/calls"\ncase "$*" in *--exit-zero*) exit 0;; esac; exit 1\n'
    )
    command.chmod(command.stat().st_mode | stat.S_IXUSR)
    variables = {"PATHS": "src lib", "ARGS": "--ignore SS3", "FORMAT": "github", "SARIF": sarif}
    done = subprocess.run(
        ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script],
        env={**os.environ, "RUNNER_TEMP": str(tmp_path), **variables},
        check=False,
    )
    assert done.returncode == 1, "hazards fail the step"
    calls = (tmp_path / "calls").read_text().splitlines()
    expected = ["check src lib --ignore SS3 --output-format github"]
    if sarif:
        expected.insert(
            0, "check src lib --ignore SS3 --exit-zero --output-format sarif --output-file out.sarif"
        )
    assert calls == expected


def test_gitlab() -> None:
    pipeline = yaml.safe_load((ROOT / "ci" / "streamsafe.gitlab-ci.yml").read_text(encoding="utf-8"))
    jsonschema.Draft7Validator(schema("gitlab-ci.json")).validate(pipeline)
    assert (
        pipeline["streamsafe"]["artifacts"]["reports"]["codequality"] in pipeline["streamsafe"]["script"][1]
    )


def hooks() -> list[dict[str, Any]]:
    manifest = ROOT / ".pre-commit-hooks.yaml"
    from pre_commit.clientlib import load_manifest

    loaded: list[dict[str, Any]] = load_manifest(str(manifest))
    return loaded


def test_hooks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each hook as pre-commit calls it: its entry, its arguments, the files."""
    monkeypatch.chdir(tmp_path)
    assert [hook["id"] for hook in hooks()] == ["streamsafe", "streamsafe-fix"]
    for hook in hooks():
        (tmp_path / "bug.py").write_text(BUG)
        command = [*shlex.split(hook["entry"]), *hook["args"], "bug.py"]
        assert command.pop(0) == "streamsafe"
        result = CliRunner().invoke(main, command)
        assert (result.exit_code, "SS101" in result.stdout) == (1, True)
    fixed = CliRunner().invoke(main, [*command, "--unsafe-fixes"])
    assert (fixed.exit_code, "Fixed 1 hazard." in fixed.stdout) == (1, True), (
        "a commit that was repaired stops"
    )
    assert CliRunner().invoke(main, command).exit_code == 0


def commands() -> list[list[str]]:
    """Every `streamsafe check` that the files run, with its variables as they are by default."""
    pipeline = yaml.safe_load((ROOT / "ci" / "streamsafe.gitlab-ci.yml").read_text(encoding="utf-8"))[
        "streamsafe"
    ]
    lines = [line for line in pipeline["script"] if line.startswith("streamsafe ")]
    for name, value in pipeline["variables"].items():
        lines = [line.replace(f"${name}", value) for line in lines]
    return [shlex.split(line)[1:] for line in lines]


def test_the_job_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bug.py").write_text(BUG)
    assert [CliRunner().invoke(main, command).exit_code for command in commands()] == [0, 1]
    assert json.loads((tmp_path / "gl-code-quality-report.json").read_text())[0]["check_name"] == "SS101"


def test_image() -> None:
    """What can be seen without a container engine: it installs an extra that exists, and runs the command."""
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    assert 'ENTRYPOINT ["streamsafe"]' in text
    assert re.search(r"/tmp/streamsafe\[(\w+)\]", text)[1] in (ROOT / "pyproject.toml").read_text()  # type: ignore[index]


def test_what_editors_match(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The problem matcher of VS Code, and what Vim's errorformat is made for."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bug.py").write_text(BUG)
    line = CliRunner().invoke(main, ["check", "-q", "--output-format", "concise"]).stdout.rstrip("\n")
    page = (ROOT / "docs" / "editors.md").read_text(encoding="utf-8")
    pattern = json.loads(re.search(r'"regexp": (".*")', page)[1])  # type: ignore[index]
    match = re.fullmatch(pattern, line)
    assert match is not None
    assert match.groups()[:4] == ("bug.py", str(BUG_ROW), "12", "SS101")
    assert r"errorformat=%f:%l:%c:\ %m" in page
