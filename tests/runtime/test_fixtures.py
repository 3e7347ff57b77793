"""Every program in fixtures/runtime has the hazards its header says, exactly."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import streamsafe
from fixtures.runtime import variants
from streamsafe.order.hazard import Access
from streamsafe.runtime.session import Host

ROOT = variants.written()
HEADER = re.compile(r"^# (expect|needs|host): (.*)$", re.M)
HAZARD = re.compile(r"^# hazard: (SS\d+) (\d+|none) -> (\d+|exit)$", re.M)
PROGRAMS = sorted(
    (path for folder in variants.FOLDERS for path in (ROOT / folder).glob("*.py")),
    key=lambda path: str(path),
)


def header(path: Path) -> dict[str, list[str]]:
    return {name: value.split() for name, value in HEADER.findall(path.read_text(encoding="utf-8"))}


def pinned(path: Path) -> list[tuple[str, int | None, int | None]]:
    """Each hazard of a program: its code and the lines of its accesses; None where there is none, or at the exit."""
    found = HAZARD.findall(path.read_text(encoding="utf-8"))
    return [(code, *(int(at) if at.isdigit() else None for at in places)) for code, *places in found]


def line(path: Path, access: Access | None) -> int | None:
    """Where in the program an access is made."""
    frames = access.stack if access is not None else ()
    return next((frame.line for frame in frames if frame.filename == str(path)), None)


def load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def missing(needs: list[str], cp: Any, gpu: bool) -> str:
    if "gpu" in needs and not gpu:
        return "needs a GPU"
    if "torch" in needs:
        return "needs the torch front end"
    if "devices" in needs and cp.cuda.runtime.getDeviceCount() < 2:
        return "needs two devices"
    if "cupy>=14" in needs and int(cp.__version__.split(".")[0]) < 14:
        return "needs CuPy 14"
    return ""


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_program(path: Path, cp: Any, request: pytest.FixtureRequest) -> None:
    check(path, cp, request.config.getoption("--gpu"))


def check(path: Path, cp: Any, gpu: bool) -> None:
    """A program has the hazards that its header says."""
    facts = header(path)
    reason = missing(facts.get("needs", []), cp, gpu)
    if reason:
        pytest.skip(reason)
    host: Host = "deep" if facts.get("host") == ["deep"] else True
    expected = {word for word in facts["expect"] if word not in ("none", "latent")}
    with contextlib.redirect_stdout(io.StringIO()), streamsafe.sanitize(mode="collect", host=host) as session:
        load(path).main()
    found = {hazard.code for hazard in session.hazards}
    assert found == expected, "\n".join(hazard.message for hazard in session.hazards)
    if "latent" in facts["expect"]:
        assert all(hazard.latent for hazard in session.hazards)
    places = [
        (hazard.code, line(path, hazard.first), line(path, hazard.second)) for hazard in session.hazards
    ]
    if "latent" in facts["expect"]:
        places = [(code, first, None) for code, first, _ in places]
    assert sorted(places, key=str) == sorted(pinned(path), key=str)


def test_every_hazard_is_pinned() -> None:
    assert len(PROGRAMS) > 100
    for path in PROGRAMS:
        facts = header(path)
        expected = {word for word in facts["expect"] if word not in ("none", "latent")}
        if not facts.get("needs"):
            assert {code for code, _, _ in pinned(path)} == expected, path.name
