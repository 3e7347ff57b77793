"""Repairs of the rules' bad examples: they parse, end their finding, and change nothing the second time."""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path

import pytest

from streamsafe.findings.checking import Report, Request
from streamsafe.findings.edits import Edit, EditError, apply
from streamsafe.order.hazard import Span
from streamsafe.project.files import File, discover
from streamsafe.project.settings import Configs
from streamsafe.repairs.checking import check
from streamsafe.repairs.repair import Repaired, fix_of, repair
from streamsafe.rule import all_rules

FIXED = {rule.code for rule in all_rules().values() if rule.fix is not None}


ADVICE = {"SS321", "SS322"}
LEFT = {"SS203"}
"""Rules whose bad example the check does not show."""

CHANGED = Counter(SS203=1, SS403=1, SS405=2, SS408=1, SS412=1, SS501=1, SS901=1)
"""How many lines a repair of the bad example changes; of all others, at most the indentation."""


def codes(report: Report) -> Counter[str]:
    return Counter(finding.hazard.code for finding in report.findings)


def run(files: list[File], *, unsafe: bool = True) -> tuple[Report, Repaired]:
    request = Request(Configs(isolated=True), confidence="likely", jobs=1)
    report = check(request, files)
    done = repair(report, files, lambda which, given: check(request, which, given), {}, unsafe=unsafe)
    return report, done


def test_advice(tmp_path: Path) -> None:
    """Rules that are off by default."""
    (tmp_path / "m.py").write_text(
        "import torch\n\n\ndef f(tokens, mask):\n    ids = torch.tensor(tokens)\n"
        '    x = ids.to("cuda", non_blocking=True)  # stays\n'
        '    return x, mask.pin_memory().to("cuda", non_blocking=True)\n'
    )
    request = Request(Configs(isolated=True), layer=(("SS321", "SS322"), (), ()), jobs=1)
    files = discover([str(tmp_path)], Configs(isolated=True)).files
    report = check(request, files)
    assert codes(report) == {"SS321": 1, "SS322": 1}
    done = repair(report, files, lambda which, given: check(request, which, given), {}, unsafe=True)
    (data,) = done.changed.values()
    assert data.decode().splitlines()[5:] == [
        '    x = ids.to("cuda")  # stays',
        '    return x, mask.to("cuda")',
    ]
    assert not done.report.findings


@pytest.fixture
def examples(tmp_path: Path) -> list[File]:
    for rule in all_rules().values():
        (tmp_path / f"{rule.code}.py").write_text(rule.bad, encoding="utf-8")
    return discover([str(tmp_path)], Configs(isolated=True)).files


def test_examples(examples: list[File]) -> None:
    before, done = run(examples)
    found = {code for code in codes(before) if not code.startswith("SS9")}
    assert found - FIXED == set(), "every hazard that `check` finds has a repair"
    assert done.problems == []
    assert {
        code for code in codes(before) if codes(done.report)[code] < codes(before)[code]
    } == FIXED - ADVICE - LEFT
    assert not codes(done.report) - codes(before), "a repair causes no other finding"
    for path, data in done.changed.items():
        ast.parse(data)
        old = [line.strip() for line in Path(path).read_text(encoding="utf-8").splitlines()]
        new = [line.strip() for line in data.decode().splitlines()]
        gone = [line for line in old if line not in new]
        assert len(gone) <= CHANGED[Path(path).stem], "what the repair is not about stays as it is"
        Path(path).write_bytes(data)
    _, again = run(examples)
    assert (again.changed, again.fixed) == ({}, 0)


def test_without_unsafe_ones(examples: list[File]) -> None:
    """Only what changes nothing that the program does."""
    _, done = run(examples, unsafe=False)
    assert [Path(path).name for path in done.changed] == ["SS901.py"]


def test_a_repair_that_does_nothing_is_taken_back(
    examples: list[File], monkeypatch: pytest.MonkeyPatch
) -> None:
    from streamsafe.repairs import repair as fixing
    from streamsafe.repairs.edges import Insertion

    def useless(source: str, line: str, place: Span, other: object) -> Insertion:
        tried.append(place.row)
        return Insertion(place.row, "pass")

    tried: list[int] = []
    monkeypatch.setattr(fixing, "insertion", useless)
    _, done = run([file for file in examples if "SS101" in file.path])
    assert (done.changed, done.fixed) == ({}, 0)
    assert tried


def test_every_fix_is_an_edit_of_the_shown_file(examples: list[File]) -> None:
    report = check(Request(Configs(isolated=True), confidence="likely", jobs=1), examples)
    assert report.texts is not None
    for finding in report.findings:
        fix = fix_of(finding, report.texts)
        if fix is not None:
            assert fix.applicability == ("safe" if finding.hazard.code == "SS901" else "unsafe")
            for edit in fix.edits:
                assert 1 <= edit.row <= edit.end_row <= len(report.texts[finding.span.filename].lines)


@pytest.mark.parametrize(
    ("data", "edits", "after"),
    [
        (b"a\nb\n", [Edit(2, 1, 2, 1, "x\n")], b"a\nx\nb\n"),
        (b"a\r\nb\r\n", [Edit(2, 1, 2, 1, "x\n")], b"a\r\nx\r\nb\r\n"),
        (b"abc", [Edit(1, 2, 1, 3, "")], b"ac"),
        (b"abc", [Edit(1, 4, 1, 4, "d")], b"abcd"),
        (b"a\nb\nc\n", [Edit(1, 1, 3, 1, "")], b"c\n"),
        (b"a\nb\n", [Edit(2, 1, 3, 1, "")], b"a\n"),
        (b"a\nb", [Edit(1, 1, 1, 1, "x\n"), Edit(2, 2, 2, 2, "y")], b"x\na\nby"),
        ("é\nb\n".encode(), [Edit(1, 2, 1, 2, "x")], "éx\nb\n".encode()),
        (b"", [Edit(1, 1, 1, 1, "x\n")], b"x\n"),
    ],
)
def test_apply(data: bytes, edits: list[Edit], after: bytes) -> None:
    assert apply(data, edits) == after


@pytest.mark.parametrize(
    ("data", "content"), [(b"\xff\n", "x"), (b"# coding: latin-1\n", "\N{GREEK SMALL LETTER PI}")]
)
def test_apply_refuses(data: bytes, content: str) -> None:
    with pytest.raises(EditError):
        apply(data, [Edit(1, 1, 1, 1, content)])
