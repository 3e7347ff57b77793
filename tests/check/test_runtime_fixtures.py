"""One bug, one code: the source of each runtime fixture, given to `streamsafe check`, has the code its header names."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

from fixtures.runtime import variants
from tests.check import not_shown
from tests.check.evalfiles import Found, by_file, report_of_programs

ROOT = variants.written()
PROGRAMS = sorted(path for folder in variants.FOLDERS for path in (ROOT / folder).glob("*.py"))
HEADER = re.compile(r"^# (expect|static): (.*)$", re.MULTILINE)
CODE = re.compile(r"SS\d{3}")


@cache
def found() -> dict[str, list[Found]]:
    return by_file(report_of_programs(), ROOT)


def expected(path: Path) -> set[str]:
    """The codes of a program's source: those of the run, or what the header says with its reason."""
    header = dict(HEADER.findall(path.read_text(encoding="utf-8")))
    label, _, reason = header["static"].partition(" - ")
    if label == "same":
        return set(CODE.findall(header["expect"]))
    assert reason, "say why the source does not show what the run does"
    assert label == "silent" or CODE.fullmatch(label), label
    return set(CODE.findall(label))


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_source_and_run_agree(path: Path) -> None:
    name = path.relative_to(ROOT).as_posix()
    shown = {each.code for each in found().get(name, [])}
    missing, more = ",".join(sorted(expected(path) - shown)), ",".join(sorted(shown - expected(path)))
    for codes, what in ((missing, "missing alarm"), (more, "false alarm")):
        assert not codes or not_shown.known(f"{name} main {codes} {what}"), what
    header = dict(HEADER.findall(path.read_text(encoding="utf-8")))
    if header["static"] != "same":
        assert expected(path) != set(CODE.findall(header["expect"])), "the source shows the same: say so"
