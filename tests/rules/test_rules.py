"""Every rule: its documentation, its words, its place in the order, and its examples under the real command."""

from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from streamsafe.cli import main
from streamsafe.order.hazard import Access, Conflict, Facts, Memory, Missing
from streamsafe.rule import RegistryError, Rule, all_rules, code_for, find_rule, select

ROOT = Path(__file__).parents[2]
RULES = list(all_rules().values())
PAIRS = [
    "SS203",
    "SS202",
    "SS201",
    "SS301",
    "SS302",
    "SS501",
    "SS113",
    "SS112",
    "SS111",
    "SS103",
    "SS101",
    "SS102",
]
EXPECT = re.compile(r"\s*# expect: (\S+)")


def by_code(rules: list[Rule]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("rule", rules, ids=lambda rule: rule.code)


def check(source: str, path: Path, rule: Rule) -> list[tuple[str, int]]:
    """What `streamsafe check` finds in a review: codes and rows."""
    path.write_text(source)
    options = [] if rule.default else ["--select", rule.code]
    result = CliRunner().invoke(
        main,
        ["check", str(path), "--isolated", "--confidence", "likely", "--output-format", "json", *options],
    )
    assert result.exit_code in (0, 1), result.output
    return [(item["code"], item["location"]["row"]) for item in json.loads(result.stdout)]


def expected(source: str) -> list[tuple[str, int]]:
    return [(code, row) for row, line in enumerate(source.split("\n"), 1) for code in EXPECT.findall(line)]


LEFT = {
    "SS203": "no model knows the temporaries of CuPy's captures",
}
"""Rules whose bad example the check does not show; runs do."""


@by_code(RULES)
def test_bad_example(rule: Rule, tmp_path: Path) -> None:
    marked = expected(rule.bad)
    assert {code for code, _ in marked} == {rule.code}
    found = check(EXPECT.sub("", rule.bad), tmp_path / "bad.py", rule)
    if rule.code in LEFT:
        assert found != marked, f"it is shown now; before: {LEFT[rule.code]}"
    else:
        assert found == (marked if "check" in rule.sides else [])


@by_code(RULES)
def test_good_example(rule: Rule, tmp_path: Path) -> None:
    assert expected(rule.good) == []
    assert check(rule.good, tmp_path / "good.py", rule) == []


@by_code(RULES)
def test_documentation(rule: Rule) -> None:
    text = rule.documentation()
    headings = ["## What it does", "## Why is this bad?", "## Example", "Use instead:", "## References"]
    assert text.startswith(f"{rule.code} {rule.name}\n")
    assert [line for line in text.split("\n") if line in headings] == headings
    assert text.count("```python\n") == 2
    assert type(rule).__module__ == f"streamsafe.rules.{rule.code.lower()}_{rule.name.replace('-', '_')}"


@by_code(RULES)
def test_words(rule: Rule) -> None:
    message = rule.message(CONFLICT)
    assert message
    assert "\n" not in message
    assert not message.endswith(".")
    assert rule.help(CONFLICT) or rule.code == "SS900"


def test_names_and_codes_are_unique() -> None:
    assert len({rule.name for rule in RULES}) == len(RULES)
    assert [rule.code for rule in RULES] == sorted({rule.code for rule in RULES})


def test_severities() -> None:
    warnings = {rule.code for rule in RULES if rule.severity == "warning"}
    assert warnings == {"SS311", "SS312", "SS901", "SS902"}
    assert {rule.code for rule in RULES if rule.severity == "advice"} == {
        rule.code for rule in RULES if not rule.default
    }


def test_docs_are_up_to_date() -> None:
    spec = importlib.util.spec_from_file_location("generate", ROOT / "docs" / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    generate = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(generate)
    pages = generate.pages()
    stale = [path.name for path, text in pages.items() if not path.exists() or path.read_text() != text]
    assert stale == [], "run python docs/generate.py"
    assert {path.name for path in (ROOT / "docs" / "rules").iterdir()} == {
        path.name for path in pages if path.parent.name == "rules"
    }


def test_changelog_names_every_code() -> None:
    text = (ROOT / "CHANGELOG.md").read_text()
    assert set(re.findall(r"SS\d{3}", text)) == {rule.code for rule in RULES}


WRITE = Access("fill_", "side", "writes")
READ = Access("sum", "the current stream", "reads")
HOST = Access("numpy", "the host", "reads")
CONFLICT = Conflict(
    second=READ,
    first=WRITE,
    memory=Memory("x", "torch"),
    missing=Missing("side", "the current stream", "torch.cuda.current_stream().wait_stream(side)"),
)


def conflict(second: Access = READ, first: Access | None = WRITE, **facts: Any) -> Conflict:
    return Conflict(
        second=second, first=first, memory=Memory("x"), facts=Facts(**facts), missing=CONFLICT.missing
    )


@pytest.mark.parametrize(
    ("given", "code"),
    [
        (conflict(), "SS101"),
        (conflict(WRITE, READ), "SS102"),
        (conflict(WRITE, WRITE), "SS102"),
        (conflict(ineffective_wait=True), "SS103"),
        (conflict(WRITE, READ, ineffective_wait=True), "SS103"),
        (conflict(gradient="result"), "SS111"),
        (conflict(gradient="result", ineffective_wait=True), "SS111"),
        (conflict(gradient="initial"), "SS112"),
        (conflict(gradient="initial-reuse"), "SS113"),
        (conflict(gradient="initial-reuse", reuse="torch"), "SS113"),
        (conflict(gradient="initial-reuse", first=None), "SS113"),
        (conflict(reuse="torch"), "SS201"),
        (conflict(reuse="torch", ineffective_wait=True), "SS201"),
        (conflict(reuse="cupy"), "SS202"),
        (conflict(reuse="captured"), "SS203"),
        (conflict(host="reads"), "SS301"),
        (conflict(host="reads", ineffective_wait=True), "SS301"),
        (conflict(host="writes"), "SS302"),
        (conflict(interop=True), "SS501"),
        (conflict(interop=True, ineffective_wait=True), "SS501"),
        (conflict(interop=True, reuse="cupy"), "SS202"),
        (conflict(interop=True, host="reads"), "SS301"),
        *((conflict(violation=rule.name), rule.code) for rule in RULES if rule.code not in PAIRS),
        *((conflict(violation=rule.name, first=None), rule.code) for rule in RULES if rule.code not in PAIRS),
    ],
    ids=str,
)
def test_code(given: Conflict, code: str) -> None:
    assert code_for(given).code == code


def test_order() -> None:
    ranked = sorted((rule for rule in RULES if rule.code in PAIRS), key=lambda rule: rule.rank)
    assert [rule.code for rule in ranked] == PAIRS
    assert len({rule.rank for rule in ranked}) == len(PAIRS)


def test_no_rule() -> None:
    with pytest.raises(RegistryError, match="no rule matches"):
        code_for(conflict(first=None, violation="unheard-of"))


MESSAGES = {
    "SS101": "`sum` on the current stream reads `x`, which `fill_` on `side` may still be writing: "
    "the current stream does not wait for `side`",
    "SS103": "`sum` on the current stream reads `x`, which `fill_` on `side` may still be writing: "
    "there is a wait, but it does not cover `fill_`",
    "SS111": "`sum` on the current stream reads `x`, a gradient that `fill_` on `side` may still be writing: "
    "the current stream does not wait for `side`",
    "SS201": "`fill_` on `side` may still be writing `x` when its memory is reused by `sum` on the current stream: "
    "it is not recorded on `side`",
}


@pytest.mark.parametrize("code", MESSAGES)
def test_message(code: str) -> None:
    known = find_rule(code)
    assert known is not None
    assert known.message(CONFLICT) == MESSAGES[code]


def test_hazard_keeps_the_facts() -> None:
    hazard = code_for(CONFLICT)
    assert (hazard.code, hazard.name) == ("SS101", "unordered-read")
    assert (hazard.first, hazard.second, hazard.memory) == (CONFLICT.first, CONFLICT.second, CONFLICT.memory)
    assert hazard.help == "torch.cuda.current_stream().wait_stream(side)"
    assert hazard.count == 1


ALL = set(all_rules())
ON = {code for code, rule in all_rules().items() if rule.default}
SS1 = {code for code in ALL if code.startswith("SS1")}


@pytest.mark.parametrize(
    ("layers", "codes"),
    [
        ([], ON),
        ([(None, (), ("SS1",))], ON - SS1),
        ([(("SS1",), (), ())], SS1),
        ([(("ALL",), (), ("SS1",))], ALL - SS1),
        ([(("SS1",), (), ("SS101",))], SS1 - {"SS101"}),
        ([(("SS101",), (), ("SS1",))], {"SS101"}),
        ([(("ss101",), (), ())], {"SS101"}),
        ([(("unordered-read",), (), ())], {"SS101"}),
        ([(("SS1",), ("SS201",), ())], SS1 | {"SS201"}),
        ([(("SS1",), (), ()), (None, ("SS201",), ())], SS1 | {"SS201"}),
        ([(("SS1",), (), ()), (None, (), ("SS101",))], SS1 - {"SS101"}),
        ([(None, (), ("SS1",)), (("SS101",), (), ())], {"SS101"}),
        ([((), (), ())], set()),
    ],
)
def test_select(layers: Any, codes: set[str]) -> None:
    assert select(layers) == codes


@pytest.mark.parametrize("selector", ["", "SS7", "SS1012", "unordered", "E501", "X"])
def test_select_refuses(selector: str) -> None:
    with pytest.raises(RegistryError, match="no rule has"):
        select([((selector,), (), ())])
