"""`[tool.streamsafe]`: which table counts, what it may hold, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from streamsafe.project.settings import ConfigError, Configs, Model, load, parse
from tests.cli.helpers import BUG, BUG_ROW, Cli, places

TABLE = "[tool.streamsafe]\n"


def write(directory: Path, content: str, name: str = "pyproject.toml") -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / name
    path.write_text(content)
    return path


def test_the_nearest_table_counts(cli: Cli, project: Path) -> None:
    write(project, TABLE + 'ignore = ["SS101"]\n')
    write(project / "loud", TABLE)
    write(project / "loud" / "other", "[tool.ruff]\nline-length = 100  # streamsafe\n")
    for directory in ("quiet", "loud", "loud/other"):
        write(project / directory, BUG, "bug.py")
    assert len(places(cli("check", "--output-format", "json"))) == 2
    assert cli("check", "quiet").exit_code == 0
    assert cli("check", "loud/other/bug.py").exit_code == 1
    assert len(places(cli("check", "--output-format", "json", "--isolated"))) == 3


def test_config_option(cli: Cli, project: Path) -> None:
    write(project, TABLE + 'ignore = ["SS101"]\n')
    write(project, TABLE + 'select = ["SS101"]\n', "other.toml")
    write(project, BUG, "bug.py")
    assert cli("check").exit_code == 0
    assert cli("check", "--config", "other.toml").exit_code == 1


@pytest.mark.parametrize(
    ("table", "options", "status"),
    [
        ('select = ["SS2"]', [], 0),
        ('select = ["SS2"]', ["--select", "SS101"], 1),
        ('select = ["SS2"]', ["--extend-select", "SS101"], 1),
        ('select = ["SS2"]\nextend-select = ["SS1"]', [], 1),
        ('ignore = ["SS1"]', [], 0),
        ('ignore = ["SS1"]', ["--select", "SS1"], 1),
        ('ignore = ["unordered-read"]', [], 0),
        ('select = ["SS101"]\nignore = ["SS1"]', [], 1),
        ('confidence = "certain"', [], 1),
        ("[tool.streamsafe.per-file-ignores]\n'*.py' = ['SS1']", [], 0),
        ("[tool.streamsafe.per-file-ignores]\n'src/' = ['SS101']", [], 0),
        ("[tool.streamsafe.per-file-ignores]\n'src/*.py' = ['unordered-read']", [], 0),
        ("[tool.streamsafe.per-file-ignores]\n'tests/' = ['SS101']", [], 1),
        ("[tool.streamsafe.per-file-ignores]\n'src/' = ['SS2']", [], 1),
        ('exclude = ["src/"]', [], 0),
        ('exclude = ["bug.py"]', [], 0),
        ('exclude = ["/bug.py"]', [], 1),
        ('exclude = ["s*", "!src"]', [], 1),
    ],
)
def test_table(cli: Cli, project: Path, table: str, options: list[str], status: int) -> None:
    write(project, TABLE + table + "\n")
    write(project / "src", BUG, "bug.py")
    result = cli("check", *options)
    assert result.exit_code == status, result.output


def test_force_exclude(cli: Cli, project: Path) -> None:
    write(project, TABLE + 'exclude = ["third_party/"]\n')
    write(project / "third_party", BUG, "bug.py")
    write(project, BUG, "bug.py")
    assert places(cli("check", "--output-format", "json")) == [("bug.py", "SS101", BUG_ROW)]
    assert cli("check", "third_party/bug.py").exit_code == 1
    assert cli("check", "third_party/bug.py", "--force-exclude").exit_code == 0


BAD_TABLES = {
    "not TOML": "[tool.streamsafe\n",
    "unknown key": TABLE + "selekt = []\n",
    "select is no list": TABLE + 'select = "SS1"\n',
    "select holds a number": TABLE + "select = [1]\n",
    "confidence": TABLE + 'confidence = "sure"\n',
    "no table": "[tool]\nstreamsafe = 3\n",
    "no such rule": TABLE + 'select = ["SS777"]\n',
    "no such rule in per-file-ignores": TABLE + "per-file-ignores = {'a.py' = ['SS777']}\n",
    "per-file-ignores is no table": TABLE + 'per-file-ignores = ["SS1"]\n',
    "models is no table": TABLE + "models = []\n",
    "a model is no table": TABLE + 'models = {"a.b" = 3}\n',
    "a model's key": TABLE + 'models = {"a.b" = {read = ["x"]}}\n',
    "a model's parameter": TABLE + 'models = {"a.b" = {reads = ["x"]}}\n',
    "a model's result": TABLE + 'models = {"a.b" = {returns = "strem"}}\n',
    "a model's stream": TABLE + 'models = {"a.b" = {stream = "s"}}\n',
    "a model's host": TABLE + 'models = {"a.b" = {host = "yes"}}\n',
    "a model's pool": TABLE + 'models = {"a.b" = {allocates = "heap"}}\n',
    "a model's stream is a list": TABLE + 'models = {"a.b" = {stream = ["s"]}}\n',
}


@pytest.mark.parametrize("kind", BAD_TABLES)
def test_bad_table(cli: Cli, project: Path, kind: str) -> None:
    write(project, BAD_TABLES[kind])
    write(project, BUG, "bug.py")
    result = cli("check")
    assert result.exit_code == 2
    assert result.stdout == ""
    assert "Error: " in result.stderr
    assert "pyproject.toml" in result.stderr


def test_unreadable_table(cli: Cli, project: Path) -> None:
    (project / "pyproject.toml").write_bytes(b"[tool.streamsafe]\n# \xff\n")
    write(project, BUG, "bug.py")
    assert cli("check").exit_code == 2


def test_model() -> None:
    entry = {
        "parameters": ["dst", "src", "stream"],
        "stream": "stream",
        "reads": ["src"],
        "writes": ["dst", "self"],
        "synchronizes": ["device"],
        "allocates": "torch",
        "returns": "dst",
    }
    assert parse({"models": {"lib.copy": entry}}, "pyproject.toml").models == {
        "lib.copy": Model(
            parameters=("dst", "src", "stream"),
            stream="stream",
            reads=("src",),
            writes=("dst", "self"),
            synchronizes=("device",),
            allocates="torch",
            returns="dst",
        )
    }


def test_docs_models_are_valid() -> None:
    docs = Path(__file__).parents[2] / "docs"
    blocks = [
        block.split("```", 1)[0]
        for name in ("models.md", "configuration.md")
        for block in (docs / name).read_text().split("```toml\n")[1:]
    ]
    tables = [block for block in blocks if "tool.streamsafe" in block]
    assert len(tables) == 3
    for table in tables:
        path = Path(__file__).with_name("unused.toml")
        parse(_toml(table), str(path))


def _toml(text: str) -> object:
    import sys

    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    return tomllib.loads(text)["tool"]["streamsafe"]


MODEL = """
[tool.streamsafe.models."fastio.copy_async"]
parameters = ["dst", "src", "stream"]
stream = "stream"
reads = ["src"]
writes = ["dst"]
returns = "none"
"""
WRAPPED = """\
import torch
import fastio

side = torch.cuda.Stream()


def load(host):
    out = torch.empty(1024, device="cuda")
    side.wait_stream(torch.cuda.current_stream())
    fastio.copy_async(out, host, side)
    return out.sum()
"""


def test_model_changes_what_is_found(cli: Cli, project: Path) -> None:
    write(project, WRAPPED, "load.py")
    assert cli("check").exit_code == 0
    write(project, MODEL)
    assert places(cli("check", "--output-format", "json")) == [("load.py", "SS101", 11)]
    fixed = WRAPPED.replace("    return", "    torch.cuda.current_stream().wait_stream(side)\n    return")
    write(project, fixed, "load.py")
    assert cli("check").exit_code == 0


def test_defaults(project: Path) -> None:
    config = Configs().of_directory(str(project))
    assert config.select is None
    assert config.confidence == "certain"
    assert load(str(project / "pyproject.toml"), missing_ok=True) is None
    with pytest.raises(ConfigError, match="No such file"):
        load(str(project / "pyproject.toml"))


@pytest.mark.parametrize(
    ("table", "options", "status"),
    [
        ('extend-exclude = ["src/"]', [], 0),
        ('exclude = ["other/"]\nextend-exclude = ["src/"]', [], 0),
        ("", ["--exclude", "src/"], 0),
        ('exclude = ["src/"]', ["--exclude", "other/"], 1),
        ('exclude = ["src/"]', ["--extend-exclude", "other/"], 0),
        ('exclude = ["other/"]', ["--extend-exclude", "src/,more/"], 0),
        ('severity = "error"', [], 1),
        ('severity = "error"\nrule-severity = {SS101 = "warning"}', [], 0),
        ('rule-severity = {SS1 = "warning"}', ["--severity", "error"], 0),
        ('rule-severity = {SS1 = "warning", SS101 = "error"}', ["--severity", "error"], 1),
        ('rule-severity = {SS101 = "error", SS1 = "warning"}', ["--severity", "error"], 1),
    ],
)
def test_exclude_and_severity(cli: Cli, project: Path, table: str, options: list[str], status: int) -> None:
    write(project, TABLE + table + "\n")
    write(project / "src", BUG, "bug.py")
    result = cli("check", *options)
    assert result.exit_code == status, result.output


def test_per_file_confidence(cli: Cli, project: Path) -> None:
    """Of several patterns that match, the last counts; the command line is stronger."""
    likely = (
        "import torch\n\n\ndef total(n, side, model):\n"
        '    x = torch.zeros(n, device="cuda")\n    side.wait_stream(torch.cuda.current_stream())\n'
        "    with torch.cuda.stream(side):\n        model(x)\n    return x.sum()\n"
    )
    write(project / "src", likely, "bug.py")
    found = places(cli("check", "--output-format", "json", "--confidence", "possible"))
    assert [code for _, code, _ in found] == ["SS201"]
    assert cli("check", "--confidence", "certain").exit_code == 0
    table = TABLE + 'confidence = "certain"\n[tool.streamsafe.per-file-confidence]\n'
    write(project, table + '"src/" = "possible"\n')
    assert cli("check").exit_code == 1
    assert cli("check", "--confidence", "certain").exit_code == 0
    write(project, table + '"src/" = "possible"\n"bug.py" = "certain"\n')
    assert cli("check").exit_code == 0


EXTENDED = """
[tool.streamsafe]
select = ["SS1"]
extend-select = ["SS311"]
exclude = ["generated/"]
[tool.streamsafe.per-file-ignores]
"tests/" = ["SS1"]
"tools/" = ["SS1"]
[tool.streamsafe.models."lib.copy"]
parameters = ["x"]
reads = ["x"]
"""


def test_extend(project: Path) -> None:
    """Values are replaced, lists that begin with `extend-` add up, tables are merged."""
    write(project / "shared", EXTENDED)
    path = write(
        project / "mine",
        'tool.streamsafe.extend = "../shared/pyproject.toml"\n'
        '[tool.streamsafe]\nselect = ["SS2"]\nextend-select = ["SS4"]\n'
        '[tool.streamsafe.per-file-ignores]\n"tests/" = ["SS2"]\n'.replace(
            'tool.streamsafe.extend = "../shared/pyproject.toml"\n[tool.streamsafe]\n',
            '[tool.streamsafe]\nextend = "../shared/pyproject.toml"\n',
        ),
    )
    config = load(str(path))
    assert config is not None
    assert (config.root, config.select) == (str(project / "mine"), ("SS2",))
    assert config.extend_select == ("SS311", "SS4")
    assert config.exclude == ("generated/",)
    assert dict(config.per_file_ignores) == {"tests/": ("SS2",), "tools/": ("SS1",)}
    assert list(config.models) == ["lib.copy"]


@pytest.mark.parametrize(
    ("other", "words"),
    [
        (None, "No such file"),
        ("[tool.ruff]\n", "has no [tool.streamsafe] table"),
        ("[tool", "not valid TOML"),
        (TABLE + "selct = []\n", "unknown key 'selct'"),
        (TABLE + 'extend = "pyproject.toml"\n', "extends this file again"),
        (TABLE + "extend = 3\n", "must be a string"),
    ],
)
def test_extend_is_refused(cli: Cli, project: Path, other: str | None, words: str) -> None:
    write(project, TABLE + 'extend = "other.toml"\n')
    if other is not None:
        write(project, other, "other.toml")
    result = cli("check")
    assert (result.exit_code, words in result.stderr) == (2, True), result.stderr


def test_a_malformed_file_is_an_error_for_every_tool(cli: Cli, project: Path) -> None:
    write(project, "[tool.ruff\n")
    write(project, BUG, "bug.py")
    result = cli("check")
    assert result.exit_code == 2
    assert "pyproject.toml: not valid TOML" in result.stderr
    assert cli("check", "--isolated").exit_code == 1


def test_explain_line_of_a_line_that_does_not_exist(cli: Cli, project: Path) -> None:
    write(project, BUG, "bug.py")
    assert cli("check", "--explain-line", f"bug.py:{BUG_ROW}").exit_code == 0
    result = cli("check", "--explain-line", f"bug.py:{BUG_ROW + 1}")
    assert result.exit_code == 2
    assert f"bug.py has {BUG_ROW} lines, there is no line {BUG_ROW + 1}" in result.stderr
