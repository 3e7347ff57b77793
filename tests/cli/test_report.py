"""How findings look: the blocks of `full`, for places that are hard to draw."""

from __future__ import annotations

import io
from dataclasses import replace
from typing import Any

import pytest

from streamsafe.findings.collect import Finding, Texts
from streamsafe.order.hazard import Access, Conflict, Facts, Frame, Memory, Missing, Note, Span
from streamsafe.report import concise, full, json, run_time
from streamsafe.report.later_round import again
from streamsafe.rule import code_for, find_rule


def plain(text: str, **style: object) -> str:
    return text


def span(row: int, column: int, end_column: int, filename: str = "a.py", end_row: int | None = None) -> Span:
    return Span(filename, row, column, end_row or row, end_column)


def finding(
    first: Span | None,
    second: Span,
    *,
    notes: tuple[Note, ...] = (),
    edges: tuple[Note, ...] = (),
    confidence: Any = "certain",
    **facts: Any,
) -> Finding:
    conflict = Conflict(
        second=Access("sum", "the current stream", "reads", second),
        first=Access("fill_", "side", "writes", first),
        memory=Memory("x", "torch"),
        facts=Facts(**facts),
        missing=Missing("side", "the current stream", "torch.cuda.current_stream().wait_stream(side)"),
        notes=notes,
        edges=edges,
        confidence=confidence,
    )
    hazard = code_for(conflict)
    known = find_rule(hazard.code)
    assert known is not None
    return Finding(hazard, known)


def texts(*sources: str) -> Texts:
    names = ("a.py", "b.py")
    return Texts({name: source.encode() for name, source in zip(names, sources, strict=False)})


def body(found: Finding, given: Texts) -> str:
    """The block without its first line."""
    return full.render(found.hazard, given, plain).split("\n", 1)[1]


def test_far_apart() -> None:
    source = "x.fill_(2)\n" + "pass\n" * 98 + "y = x.sum()\n"
    found = finding(span(1, 1, 11), span(100, 5, 12), notes=(Note("nothing waits here", span(50, 1, 5)),))
    assert full.render(found.hazard, texts(source), plain) == (
        "SS101 unordered-read: `sum` on the current stream reads `x`, which `fill_` on `side` may still be writing: "
        "the current stream does not wait for `side`\n"
        "   --> a.py:100:5\n"
        "    |\n"
        "  1 | x.fill_(2)\n"
        "    | ---------- `side` may still be writing `x`\n"
        "...\n"
        " 50 | pass\n"
        "    | ---- nothing waits here\n"
        "...\n"
        "100 | y = x.sum()\n"
        "    |     ^^^^^^^ the current stream reads `x`\n"
        "    |\n"
        "    = missing edge: `side` -> the current stream\n"
        "    = help: torch.cuda.current_stream().wait_stream(side)"
    )


def test_same_line() -> None:
    assert body(finding(span(1, 1, 5), span(1, 8, 12)), texts("f(x)); g(x)\n")).split("\n")[2:5] == [
        "1 | f(x)); g(x)",
        "  | ---- `side` may still be writing `x`",
        "  |        ^^^^ the current stream reads `x`",
    ]


def test_gap_of_one_line_is_filled() -> None:
    lines = body(finding(span(1, 1, 2), span(3, 1, 2)), texts("a\nb\nc\n")).split("\n")
    assert "2 | b" in lines
    assert "..." not in lines


def test_primary_is_the_use_for_reuse() -> None:
    found = finding(span(1, 1, 2), span(2, 1, 2), reuse="torch")
    lines = body(found, texts("a\nb\n")).split("\n")
    assert lines[0] == " --> a.py:1:1"
    assert lines[3] == "  | ^ `side` may still be writing `x`"
    assert lines[5] == "  | - the current stream reads `x`"
    assert concise.render(found, texts("a\nb\n")).startswith("a.py:1:1: SS201 ")
    assert json.as_dict(found, texts("a\nb\n"), None)["location"] == {"row": 1, "column": 1}


def test_two_files() -> None:
    lines = body(finding(span(2, 1, 2, "b.py"), span(1, 1, 2)), texts("a\n", "b\nc\n")).split("\n")
    assert lines[0] == " --> a.py:1:1"
    assert " ::: b.py:2:1" in lines
    assert "2 | c" in lines


@pytest.mark.parametrize(
    ("line", "column", "end", "shown", "underline"),
    [
        ("\tx.sum()", 2, 9, "    x.sum()", "    ^^^^^^^"),
        ("é = x.sum()", 5, 12, "é = x.sum()", "    ^^^^^^^"),
        ("漢 = x.sum()", 5, 12, "漢 = x.sum()", "     ^^^^^^^"),
        ("x = '漢', y.sum()", 10, 17, "x = '漢', y.sum()", "          ^^^^^^^"),
        ("x\x1b[31m = 1", 1, 2, "x [31m = 1", "^"),
        ("x", 1, 1, "x", "^"),
    ],
)
def test_columns(line: str, column: int, end: int, shown: str, underline: str) -> None:
    lines = body(finding(None, span(1, column, end)), texts(line + "\n")).split("\n")
    assert lines[2] == f"1 | {shown}"
    assert lines[3].startswith(f"  | {underline} ") or lines[3] == f"  | {underline}"


def test_several_rows_are_underlined_to_the_end_of_the_first() -> None:
    lines = body(finding(None, span(1, 5, 2, end_row=3)), texts("y = x.sum(\n    0\n)\n")).split("\n")
    assert lines[3].startswith("  |     ^^^^^^ ")


def test_long_line_is_cut() -> None:
    lines = body(finding(None, span(1, 1, 3000)), texts("x" * 5000 + "\n")).split("\n")
    assert len(lines[2]) < 250
    assert len(lines[3]) < 300


def test_source_that_is_gone() -> None:
    assert " --> gone.py:5:1" in full.render(finding(None, span(5, 1, 2, "gone.py")).hazard, Texts(), plain)


def test_notes_without_a_place() -> None:
    found = finding(
        span(1, 1, 2), span(2, 1, 2), notes=(Note("allocated elsewhere"),), edges=(Note("an edge"),)
    )
    lines = body(found, texts("a\nb\n")).split("\n")
    assert "  = note: allocated elsewhere" in lines
    assert "  = note: an edge" in lines


def test_confidence() -> None:
    found = finding(span(1, 1, 2), span(2, 1, 2), confidence="likely")
    assert full.render(found.hazard, texts("a\nb\n"), plain).startswith("SS101 unordered-read (likely): ")
    assert ": SS101 [likely] " in concise.render(found, texts("a\nb\n"))
    assert json.as_dict(found, texts("a\nb\n"), None)["confidence"] == "likely"


def test_related() -> None:
    found = finding(span(1, 1, 2), span(3, 1, 2), notes=(Note("the wait", span(2, 1, 2)),))
    related = json.as_dict(found, texts("a\nb\nc\n"), None)["related"]
    assert [(item["location"]["row"], item["message"]) for item in related] == [
        (1, "`fill_` on `side` writes `x` here"),
        (2, "the wait"),
    ]


LOOP = """\
for step in range(3):
    staging[:] = step
    send(staging)
"""
CALLED = """\
def fill(step):
    staging[:] = step
    send(staging)
"""
PARTS = """\
for step in range(3):
    def fill():
        staging[:] = step
    send(staging)
"""


@pytest.mark.parametrize(
    ("source", "first", "second", "said"),
    [
        (LOOP, 3, 2, "in the next iteration"),
        (LOOP, 2, 3, ""),
        (LOOP, 2, 2, "in the next iteration"),
        (CALLED, 3, 2, "in the next call"),
        (CALLED, 2, 3, ""),
        (PARTS, 4, 3, ""),
        ("staging[:] = 1\nsend(staging)\n", 2, 1, ""),
        ("while (\n", 1, 1, ""),
    ],
)
def test_a_second_access_that_stands_first(source: str, first: int, second: int, said: str) -> None:
    assert again(source, span(first, 5, 12), span(second, 5, 12)) == said


@pytest.mark.parametrize("colour", ["1", ""])
def test_a_run_time_hazard_looks_like_a_static_one(monkeypatch: pytest.MonkeyPatch, colour: str) -> None:
    source = "x.fill_(2)\ny = x.sum()\n"
    static = finding(span(1, 1, 11), span(2, 5, 12)).hazard
    first, second = static.first, static.second
    assert first is not None
    seen = replace(
        static,
        first=replace(first, span=None, stack=(Frame("a.py", 1, "<module>"),)),
        second=replace(second, span=None, stack=(Frame("a.py", 2, "<module>", 5, 2, 12),)),
    )
    assert full.render(seen, texts(source)) == full.render(static, texts(source))
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("FORCE_COLOR", colour)
    file = io.StringIO()
    run_time.show(seen, file)
    assert ("\x1b[" in file.getvalue()) == bool(colour)


def test_the_steps_of_a_reuse_are_in_the_order_of_time() -> None:
    notes = (
        Note("`x` is allocated on `side`", span(1, 1, 2), role="allocated"),
        Note("the last reference to `x` is dropped", span(3, 1, 2), role="released"),
        Note("its memory is given out again", span(4, 1, 2), role="reused"),
    )
    found = finding(span(2, 1, 2), span(4, 1, 2), notes=notes, reuse="torch")
    lines = body(found, texts("a\nb\nc\nd\n")).split("\n")
    assert [line.split("-- ")[-1].split("- ")[-1].split("^ ")[-1] for line in lines[3:10:2]] == [
        "1. `x` is allocated on `side`",
        "2. `side` may still be writing `x`",
        "3. the last reference to `x` is dropped",
        "4. its memory is given out again",
    ]
    assert "  = missing edge: `side` -> the next use of its memory on the current stream" in lines
