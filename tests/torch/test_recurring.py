"""Hazards that come again and again: after the first time the engine counts them, and the counts are the same."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

import streamsafe
from streamsafe.runtime.monitor import current
from streamsafe.runtime.session import Session

TIMES = 40


class Program:
    """Two streams that write one tensor in turn, and how often Python was asked about it."""

    def __init__(self, torch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        self.torch = torch
        self.side = torch.cuda.Stream()
        self.x = torch.ones(64, device="cuda")
        self.asked = 0
        take = Session.take

        def counted(session: Session, *given: Any, **named: Any) -> Any:
            self.asked += 1
            return take(session, *given, **named)

        monkeypatch.setattr(Session, "take", counted)
        torch.cuda.synchronize()

    def race(self) -> None:
        self.x.add_(1)
        with self.torch.cuda.stream(self.side):
            self.x.mul_(1)

    def commented(self) -> None:
        self.x.add_(1)  # streamsafe: ignore[SS102]
        with self.torch.cuda.stream(self.side):
            self.x.mul_(1)  # streamsafe: ignore[SS102]

    def allowed(self) -> None:
        with streamsafe.allow("SS102"):
            self.race()

    def meant(self) -> None:
        with streamsafe.annotate.racy(self.x):
            self.race()


@pytest.fixture
def program(torch: Any, monkeypatch: pytest.MonkeyPatch) -> Program:
    return Program(torch, monkeypatch)


def test_a_reported_hazard(program: Program) -> None:
    with streamsafe.sanitize("collect") as session:
        for _ in range(TIMES):
            program.race()
        assert [hazard.count for hazard in session.hazards] == [TIMES, TIMES - 1]  # up to date in between
        program.race()
    assert [hazard.count for hazard in session.hazards] == [TIMES + 1, TIMES]
    assert f"seen {2 * TIMES + 1} times" in session.summary()
    assert program.asked == 4  # two hazards, each by two ways to it


@pytest.mark.parametrize("how", ["commented", "allowed", "meant"])
def test_a_suppressed_hazard(program: Program, how: str) -> None:
    with streamsafe.sanitize("collect") as session:
        for _ in range(TIMES):
            getattr(program, how)()
    assert not session.hazards
    assert session.suppressed == 2 * TIMES - 1
    assert program.asked < 12


def test_a_suppression_that_ends(program: Program) -> None:
    """What a block allows is reported after it; the operations are the same ones."""
    with streamsafe.sanitize("collect") as session:
        for _ in range(TIMES):
            with streamsafe.allow("SS102"):
                program.race()
        for _ in range(TIMES):
            program.race()
        with streamsafe.annotate.racy(program.x):
            program.race()
    assert session.suppressed == 2 * TIMES - 1
    assert [hazard.count for hazard in session.hazards] == [TIMES + 1, TIMES + 1]


def test_a_suppression_file_counts_its_own(program: Program, tmp_path: Any) -> None:
    file = tmp_path / "suppressions.toml"
    file.write_text('[[suppress]]\nfunction = "Program.race"\n')
    with streamsafe.sanitize("collect", suppressions=str(file)) as session:
        for _ in range(TIMES):
            program.race()
    assert not session.hazards
    assert list(session.uses().values()) == [2 * TIMES - 1]


def test_the_limit_counts_what_is_beyond(program: Program) -> None:
    with streamsafe.sanitize("collect", limit=1) as session:
        for _ in range(TIMES):
            program.race()
    assert [hazard.count for hazard in session.hazards] == [TIMES]
    assert session.beyond == TIMES - 1


def test_sessions_inside_one_another(program: Program) -> None:
    with streamsafe.sanitize("collect") as outer:
        for _ in range(3):
            program.race()
        with streamsafe.sanitize("collect") as inner:
            for _ in range(TIMES):
                program.race()
        program.race()
    assert [hazard.count for hazard in inner.hazards] == [TIMES, TIMES]
    assert [hazard.count for hazard in outer.hazards] == [TIMES + 4, TIMES + 3]


def test_the_same_lines_with_another_kind_of_bug(program: Program) -> None:
    """An ineffective wait has a code of its own: it is told from what was suppressed before."""

    @contextmanager
    def too_early() -> Iterator[None]:
        program.x.add_(1)
        yield

    def step(wait: Callable[[], None]) -> None:
        with too_early():
            wait()
            with streamsafe.allow("SS102"), program.torch.cuda.stream(program.side):
                program.x.mul_(1)
        program.torch.cuda.synchronize()

    event = program.torch.cuda.Event()
    event.record()
    with streamsafe.sanitize("collect") as session:
        for _ in range(TIMES):
            step(lambda: None)
        event.record()
        for _ in range(3):
            step(lambda: program.side.wait_event(program.torch.cuda.Event()))
    assert session.suppressed == TIMES
    assert [(hazard.code, hazard.count) for hazard in session.hazards] == [("SS103", 3)]


def test_in_the_raising_mode_it_is_raised_once(program: Program) -> None:
    raised = 0
    with streamsafe.sanitize() as session:
        for _ in range(TIMES):
            try:
                program.race()
            except streamsafe.StreamHazardError:
                raised += 1
    assert raised == len(session.hazards) == 2
    assert current.monitor is None
