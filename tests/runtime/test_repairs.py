"""CuPy programs with their repairs made: each fails at nothing and has no hazard more."""

from __future__ import annotations

import contextlib
import io
from pathlib import Path
from typing import Any

import pytest

import streamsafe
from streamsafe.runtime.session import Host
from tests.check.repaired import repaired
from tests.runtime.helpers import settle
from tests.runtime.test_fixtures import PROGRAMS, header, load, missing

LEFT = {"module_globals_racy": {"SS101"}}
"""Hazards that the check does not show, and so does not repair."""

RACY = [path for path in PROGRAMS if header(path)["expect"] != ["none"]]


@pytest.mark.exhaustive
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
@pytest.mark.parametrize("path", RACY, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_repaired_programs_run(path: Path, cp: Any, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    facts = header(path)
    reason = missing(facts.get("needs", []), cp, request.config.getoption("--gpu"))
    text = repaired(path)
    if reason or text is None:
        pytest.skip(reason or "nothing is repaired")
    (tmp_path / path.name).write_text(text, encoding="utf-8")
    settle(cp)
    host: Host = "deep" if facts.get("host") == ["deep"] else True
    with contextlib.redirect_stdout(io.StringIO()), streamsafe.sanitize(mode="collect", host=host) as session:
        load(tmp_path / path.name).main()
    assert {hazard.code for hazard in session.hazards} == LEFT.get(path.stem, set())
