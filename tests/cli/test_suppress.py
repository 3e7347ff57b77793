"""Suppressions: where they count, what they name, and those that are of no use."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from streamsafe.check.check import Files, Run
from streamsafe.project.suppressions import find, mentioned
from tests.cli.helpers import BUG, Cli, findings

READ = "    return x.sum()"
WRITE = "        x.fill_(2)"

# (line that is replaced, what replaces it, codes that are reported)
CASES: dict[str, tuple[str, str, list[str]]] = {
    "noqa on the second access": (READ, f"{READ}  # noqa: SS101", []),
    "noqa on the first access": (WRITE, f"{WRITE}  # noqa: SS101", []),
    "noqa in capitals": (READ, f"{READ}  # NOQA:ss101", []),
    "bare noqa": (READ, f"{READ}  # noqa", []),
    "noqa with other codes": (READ, f"{READ}  # noqa: E501,SS101", []),
    "noqa with spaces": (READ, f"{READ}  # noqa : E501 SS101", []),
    "noqa after another comment": (READ, f"{READ}  # the caller waits # noqa: SS101", []),
    "noqa of another code": (READ, f"{READ}  # noqa: E501", ["SS101"]),
    "noqa of another of ours": (READ, f"{READ}  # noqa: SS102", ["SS101", "SS901"]),
    "noqa of a code that does not exist": (READ, f"{READ}  # noqa: SS199", ["SS101", "SS902"]),
    "noqa of a family": (READ, f"{READ}  # noqa: SS1", ["SS101", "SS902"]),
    "noqa with words": (READ, f"{READ}  # noqa: because", ["SS101"]),
    "noqa on another line": ("import torch", "import torch  # noqa: SS101", ["SS901", "SS101"]),
    "noqa in a string": (READ, f"{READ}, '# noqa: SS101'", ["SS101"]),
    "noqa in a longer word": (READ, f"{READ}  # noqaSS101", ["SS101"]),
    "ignore by code": (READ, f"{READ}  # streamsafe: ignore[SS101] the caller waits", []),
    "ignore by name": (READ, f"{READ}  # streamsafe: ignore[unordered-read]", []),
    "ignore several": (READ, f"{READ}  # streamsafe: ignore[SS101, SS102]", ["SS901"]),
    "ignore without codes": (READ, f"{READ}  # streamsafe: ignore", ["SS101", "SS902"]),
    "ignore with empty codes": (READ, f"{READ}  # streamsafe: ignore[]", ["SS101", "SS902"]),
    "ignore of what does not exist": (READ, f"{READ}  # streamsafe: ignore[E501]", ["SS101", "SS902"]),
    "ignore on the line above": (READ, f"    # streamsafe: ignore[SS101] the caller waits\n{READ}", []),
    "ignore two lines above": (READ, f"    # streamsafe: ignore[SS101]\n\n    # and more\n{READ}", []),
    "ignore above a with covers its block": (
        "    with torch.cuda.stream(side):",
        "    # streamsafe: ignore[SS101] the caller waits\n    with torch.cuda.stream(side):",
        [],
    ),
    "ignore above a with does not cover what follows": (
        READ,
        f"    # streamsafe: ignore[SS101]\n    with torch.no_grad():\n        pass\n{READ}",
        ["SS901", "SS101"],
    ),
    "noqa on a with covers its line only": (
        "    with torch.cuda.stream(side):",
        "    with torch.cuda.stream(side):  # noqa: SS101",
        ["SS901", "SS101"],
    ),
    "ignore on another line above": (
        WRITE,
        f"        # streamsafe: ignore[SS101]\n        pass\n{WRITE}",
        ["SS901", "SS101"],
    ),
    "noqa on the line above": (READ, f"    # noqa: SS101\n{READ}", ["SS901", "SS101"]),
    "ignore-file": ("import torch", "# streamsafe: ignore-file[SS101] an experiment\nimport torch", []),
    "ignore-file at the end": (READ, f"{READ}\n# streamsafe: ignore-file[SS101]", []),
    "ignore-file of another": (
        "import torch",
        "import torch  # streamsafe: ignore-file[SS201]",
        ["SS901", "SS101"],
    ),
    "ignore-file without codes": (
        "import torch",
        "# streamsafe: ignore-file\nimport torch",
        ["SS902", "SS101"],
    ),
    "on the last row of the access": (READ, "    return x.sum(\n    )  # noqa: SS101", []),
    "on the first row of the access": (READ, "    return x.sum(  # noqa: SS101\n    )", []),
    "twice": (READ, f"{READ}  # noqa: SS101  # streamsafe: ignore[SS101]", []),
    "on both accesses": (f"{WRITE}\n{READ}", f"{WRITE}  # noqa: SS101\n{READ}  # noqa: SS101", []),
    "in a doc string": (
        "import torch",
        '"""Write # noqa: SS101 or # streamsafe: ignore[SS101]."""\nimport torch',
        ["SS101"],
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_suppression(cli: Cli, project: Path, case: str) -> None:
    old, new, codes = CASES[case]
    assert old in BUG
    (project / "bug.py").write_text(BUG.replace(old, new))
    result = cli("check", "--output-format", "json")
    assert [item["code"] for item in findings(result)] == codes, result.stdout
    assert result.exit_code == (1 if codes else 0)


def test_summary_counts_suppressed(cli: Cli, project: Path) -> None:
    (project / "bug.py").write_text(BUG.replace(READ, f"{READ}  # noqa: SS101"))
    assert cli("check").stdout == "No hazards found in 1 file (1 suppressed).\n"


@pytest.mark.parametrize(
    ("options", "codes"),
    [
        ([], ["SS901"]),
        (["--ignore", "SS102"], []),
        (["--select", "SS1,SS9"], ["SS901"]),
        (["--select", "SS2,SS9"], []),
        (["--select", "SS1"], []),
        (["--ignore", "SS901"], []),
    ],
)
def test_only_rules_that_are_on_are_unused(
    cli: Cli, project: Path, options: list[str], codes: list[str]
) -> None:
    (project / "plain.py").write_text("x = 1  # noqa: SS102\n")
    result = cli("check", "--output-format", "json", *options)
    assert [item["code"] for item in findings(result)] == codes


def test_place_of_an_unused_suppression(cli: Cli, project: Path) -> None:
    (project / "plain.py").write_text("x = 'é'  # why # noqa: SS102, E501 more\n")
    (finding,) = findings(cli("check", "--output-format", "json"))
    assert finding["location"] == {"row": 1, "column": 16}
    assert finding["end_location"] == {"row": 1, "column": 35}
    assert finding["message"] == "`noqa: SS102` suppresses nothing here"
    assert finding["severity"] == "warning"


def test_a_suppression_of_a_hidden_finding_is_used(
    cli: Cli, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Files.run

    def unsure(self: Files, path: str, explain: int | None = None) -> Run:
        run = real(self, path, explain)
        run.conflicts = [dataclasses.replace(conflict, confidence="possible") for conflict in run.conflicts]
        return run

    monkeypatch.setattr(Files, "run", unsure)
    (project / "bug.py").write_text(BUG)
    assert (
        cli("check").stdout
        == "No hazards found in 1 file (1 possible hidden: --confidence possible shows it).\n"
    )
    assert cli("check", "--confidence", "possible").exit_code == 1
    (project / "bug.py").write_text(BUG.replace(READ, f"{READ}  # noqa: SS101"))
    assert cli("check").stdout == "No hazards found in 1 file (1 suppressed).\n"


def test_find() -> None:
    source = 'x = "# noqa: SS101"\n# streamsafe: ignore[SS101] why\ny = f"{x}"  # noqa\n'
    own, bare = find(source)
    assert (own.kind, own.row, own.target, own.codes) == ("ignore", 2, 3, ("SS101",))
    assert (bare.kind, bare.row, bare.target, bare.codes) == ("noqa", 3, 3, None)
    assert find("x = (  # noqa: SS101\n")[0].codes == ("SS101",)
    assert find("x = 1\n") == []


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (b"x = 1  # noqa: SS101", True),
        (b"x = 1  # NOQA : E1, SS101", True),
        (b"x = 1  # streamsafe: ignore[unordered-read]", True),
        (b"#streamsafe:ignore-file[SS1]", True),
        (b"x = 1  # noqa", False),
        (b"x = 1  # noqa: E501", False),
        (b"CLASS101 = 1", False),
    ],
)
def test_mentioned(source: bytes, expected: bool) -> None:
    assert mentioned(source) is expected
