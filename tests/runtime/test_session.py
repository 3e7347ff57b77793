"""Modes, nesting, raising, suppressing: what a session does with what it finds."""

from __future__ import annotations

import asyncio
import pickle
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest

import streamsafe
from streamsafe.runtime import allow as policy
from streamsafe.runtime import places as sites
from tests.runtime.helpers import Program, codes


def test_raises_before_the_operation_happens(program: Program) -> None:
    with pytest.raises(streamsafe.StreamHazardError) as caught, streamsafe.sanitize():
        program.race()
    hazard = caught.value.hazard
    assert hazard.code == "SS101"
    assert hazard.first is not None and hazard.first.stack[0].function.endswith("write")
    assert hazard.second.stack[0].function.endswith("read")
    assert "`x`" not in hazard.message and "SS101" in str(caught.value)


def test_an_ordered_program_runs_unchanged(program: Program) -> None:
    with streamsafe.sanitize() as session:
        program.ordered()
    assert codes(session) == []
    assert session.summary() == "streamsafe: no hazards"


def test_warns_at_the_line_of_the_second_access(program: Program) -> None:
    with pytest.warns(streamsafe.StreamHazardWarning, match="SS101") as caught, streamsafe.sanitize("warn"):
        program.race()
    assert caught[0].filename.endswith("helpers.py")


def test_collects_and_counts(program: Program) -> None:
    with streamsafe.sanitize("collect") as session:
        for _ in range(3):
            program.race()
            program.settle()
    assert codes(session) == ["SS101"]
    assert session.hazards[0].count == 3
    assert "seen 3 times" in session.summary()


def test_a_hazard_is_raised_once(program: Program) -> None:
    with streamsafe.sanitize() as session:
        for expected in (True, False):
            program.write()
            if expected:
                with pytest.raises(streamsafe.StreamHazardError):
                    program.read()
            else:
                program.read()
            program.settle()
    assert session.hazards[0].count == 2


def test_never_replaces_an_exception(program: Program) -> None:
    def body() -> None:
        program.write()
        try:
            raise KeyError("the program's own")
        finally:
            program.read()

    with pytest.raises(KeyError, match="the program's own"), streamsafe.sanitize() as session:
        body()
    assert codes(session) == ["SS101"]


def test_deferred_hazards_are_raised_at_the_next_call(program: Program) -> None:
    with streamsafe.sanitize() as session:
        program.write()
        try:
            raise KeyError
        except KeyError:
            program.read()
        with pytest.raises(streamsafe.StreamHazardError):
            program.x.fill(1)
    assert codes(session) == ["SS101"]


def test_deferred_hazards_are_raised_at_the_latest_on_exit(program: Program) -> None:
    def body() -> None:
        program.write()
        try:
            raise KeyError
        except KeyError:
            program.read()

    with pytest.raises(streamsafe.StreamHazardError), streamsafe.sanitize():
        body()


def test_work_before_the_session_is_finished(program: Program) -> None:
    program.write()
    with streamsafe.sanitize() as session:
        program.read()
    assert codes(session) == []


def test_sessions_are_independent(program: Program) -> None:
    with streamsafe.sanitize("collect") as first:
        program.race()
    with streamsafe.sanitize("collect") as second:
        program.settle()
        program.ordered()
    assert (codes(first), codes(second)) == (["SS101"], [])


def test_nested_sessions_share_one_program(program: Program) -> None:
    with streamsafe.sanitize("collect") as outer:
        program.write()
        with streamsafe.sanitize("collect") as inner:
            program.read()
        program.settle()
    assert (codes(outer), codes(inner)) == (["SS101"], ["SS101"])


def test_the_innermost_mode_decides(program: Program) -> None:
    with streamsafe.sanitize("raise"), streamsafe.sanitize("collect") as inner:
        program.race()
        program.settle()
    assert codes(inner) == ["SS101"]


def test_one_manager_can_be_entered_again(program: Program) -> None:
    manager = streamsafe.sanitize("collect")
    with manager as outer, manager as inner:
        program.race()
        program.settle()
    with manager as later:
        program.ordered()
    assert (codes(outer), codes(inner), codes(later)) == (["SS101"], ["SS101"], [])


def test_as_a_decorator(program: Program) -> None:
    @streamsafe.sanitize()
    def racy() -> None:
        program.race()

    @streamsafe.sanitize()
    async def racy_coroutine() -> None:
        program.race()

    with pytest.raises(streamsafe.StreamHazardError):
        racy()
    program.settle()
    with pytest.raises(streamsafe.StreamHazardError):
        asyncio.run(racy_coroutine())


@pytest.mark.parametrize(
    ("arguments", "error"),
    [({"mode": "loud"}, ValueError), ({"ignore": ["101"]}, ValueError), ({"mode": len}, TypeError)],
    ids=["mode", "ignore", "no parentheses"],
)
def test_wrong_arguments(arguments: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        streamsafe.sanitize(**arguments)


def test_a_generator_function_is_refused() -> None:
    def generate() -> Any:
        yield

    with pytest.raises(TypeError, match="generator"):
        streamsafe.sanitize()(generate)


@pytest.mark.parametrize(
    ("entry", "silent"),
    [
        ("SS101", True),
        ("SS1", True),
        ("ALL", True),
        ("SS102", False),
        ("SS101:helpers.py", True),
        ("SS101:elsewhere.py", False),
        ("SS101:helpers.py::read", True),
        ("SS101::write", True),
        ("SS101::other", False),
    ],
)
def test_ignoring(program: Program, entry: str, silent: bool) -> None:
    with streamsafe.sanitize("collect", ignore=[entry]) as session:
        program.race()
        program.settle()
    assert codes(session) == ([] if silent else ["SS101"])
    assert session.suppressed == int(silent)


def test_allowing(program: Program) -> None:
    @streamsafe.allow("SS101")
    def allowed() -> None:
        program.race()

    with streamsafe.sanitize() as session:
        allowed()
        program.settle()
        with streamsafe.allow(), streamsafe.allow("SS3"):
            program.race()
        program.settle()
    assert (codes(session), session.suppressed) == ([], 2)


def test_allowing_in_a_coroutine(program: Program) -> None:
    @streamsafe.allow("SS101")
    async def allowed() -> int:
        await asyncio.sleep(0)
        program.race()
        return 3

    with streamsafe.sanitize() as session:
        assert asyncio.run(allowed()) == 3
        program.settle()
    assert (codes(session), session.suppressed) == ([], 1)


def test_what_cannot_be_allowed() -> None:
    with pytest.raises(ValueError, match="'unordered-read' names no code"):
        streamsafe.allow("unordered-read")
    for wrong in ("banana", "SS9999", "SS7"):
        with pytest.raises(ValueError, match=f"'{wrong}' names no code"):
            streamsafe.allow(wrong)
        with pytest.raises(ValueError, match=f"'{wrong}' names no code"):
            streamsafe.sanitize(ignore=[wrong])
    with pytest.raises(TypeError, match="generator function"):

        @streamsafe.allow("SS101")
        def steps() -> Iterator[int]:
            yield 1


@pytest.mark.parametrize(
    ("comment", "silent"),
    [
        ("# noqa: SS101", True),
        ("# streamsafe: ignore[SS101] the last write wins", True),
        ("# streamsafe: ignore[unordered-read]", True),
        ("# noqa: SS102", False),
        ("# a read", False),
    ],
)
def test_comments_on_either_line(program: Program, tmp_path: Any, comment: str, silent: bool) -> None:
    policy._comments.cache_clear()
    source = f"def body(p):\n    with p.writer:\n        p.x.fill(7)  {comment}\n    p.read()\n"
    path = tmp_path / f"commented_{abs(hash(comment))}.py"
    path.write_text(source, encoding="utf-8")
    names: dict[str, Any] = {}
    exec(compile(source, str(path), "exec"), names)
    with streamsafe.sanitize("collect") as session:
        names["body"](program)
        program.settle()
    assert codes(session) == ([] if silent else ["SS101"])


def test_hazards_are_data(program: Program) -> None:
    with streamsafe.sanitize("collect") as session:
        program.race()
        program.settle()
    error = pickle.loads(pickle.dumps(streamsafe.StreamHazardError(session.hazards[0])))
    assert error.hazard == session.hazards[0]
    assert error.hazard.missing.fix == "self.reader.wait_event(self.writer.record())"


MODULE = """
import cupy as cp
upload, load = cp.cuda.Stream(non_blocking=True), cp.cuda.Stream(non_blocking=True)
x, y = cp.zeros(4096), cp.zeros(4096)
cp.cuda.Device().synchronize()
def body():
    inside = cp.cuda.Stream(non_blocking=True)
    with upload:
        x.fill(7)
    with {reader}:
        cp.copyto(y, x)
"""


@pytest.mark.parametrize(
    ("reader", "fix"),
    [
        ("load", "load.wait_event(upload.record())"),
        ("inside", "inside.wait_event(upload.record())"),
        ("cp.cuda.Stream.null", "cupy.cuda.Stream.null.wait_event(upload.record())"),
    ],
)
def test_streams_go_by_the_users_names(program: Program, tmp_path: Path, reader: str, fix: str) -> None:
    path = tmp_path / "module.py"
    path.write_text(MODULE.format(reader=reader), encoding="utf-8")
    names: dict[str, Any] = {}
    exec(compile(path.read_text(encoding="utf-8"), str(path), "exec"), names)
    with streamsafe.sanitize("collect") as session:
        names["body"]()
        program.settle()
    assert [hazard.help for hazard in session.hazards] == [fix]
    assert session.hazards[0].first is not None and session.hazards[0].first.timeline == "upload"


UNNAMED = """
import cupy as cp
def body():
    streams = [cp.cuda.Stream(non_blocking=True) for _ in range(2)]
    x = cp.zeros(4096)
    cp.cuda.Device().synchronize()
    for stream in streams:
        with stream:
            x += 1
"""
ONE_NAME = UNNAMED.replace(
    "[cp.cuda.Stream(non_blocking=True) for _ in range(2)]",
    "[]\n    for _ in range(2):\n        s = cp.cuda.Stream(non_blocking=True)\n        streams.append(s)",
)


IN_AN_OBJECT = """
import cupy as cp
class Pool:
    def __init__(self):
        self.streams = [cp.cuda.Stream(non_blocking=True) for _ in range(2)]
def body():
    pool = Pool()
    x = cp.zeros(4096)
    cp.cuda.Device().synchronize()
    for index in range(2):
        with pool.streams[index]:
            x += 1
"""
NOWHERE = """
import cupy as cp
class Pool:
    __slots__ = ("streams",)
    def __init__(self):
        self.streams = tuple(cp.cuda.Stream(non_blocking=True) for _ in range(2))
def body():
    pool = Pool()
    x = cp.zeros(4096)
    cp.cuda.Device().synchronize()
    for index in range(2):
        with pool.streams[index]:
            x += 1
"""


@pytest.mark.parametrize(
    ("source", "first", "second"),
    [
        (UNNAMED, "streams[0]", "stream"),
        (ONE_NAME, "streams[0]", "s"),
        (IN_AN_OBJECT, "pool.streams[0]", "pool.streams[1]"),
        (NOWHERE, "the stream made at module.py:6", "the 2nd stream made at module.py:6"),
    ],
)
def test_streams_with_no_name_of_their_own(
    program: Program, tmp_path: Path, source: str, first: str, second: str
) -> None:
    path = tmp_path / "module.py"
    path.write_text(source, encoding="utf-8")
    names: dict[str, Any] = {}
    exec(compile(source, str(path), "exec"), names)
    with streamsafe.sanitize("collect") as session:
        names["body"]()
        program.settle()
    [hazard] = [each for each in session.hazards if each.code[:3] == "SS1"]
    assert hazard.first is not None
    assert (hazard.first.timeline, hazard.second.timeline) == (first, second)
    assert "0x" not in hazard.message + hazard.help


REUSED = """
import cupy as cp
def body(rounds, reader):
    for _ in range(rounds):
        with cp.cuda.Stream.null:
            x = cp.zeros(4096)
        cp.cuda.Device().synchronize()
        with reader:
            y = x * 2
        {release}
"""


@pytest.mark.parametrize("release", ["del x", "x = None"])
@pytest.mark.parametrize("rounds", [1, 2])
def test_where_the_block_was_released(program: Program, tmp_path: Path, release: str, rounds: int) -> None:
    path = tmp_path / "module.py"
    source = REUSED.format(release=release)
    path.write_text(source, encoding="utf-8")
    names: dict[str, Any] = {}
    exec(compile(source, str(path), "exec"), names)
    with streamsafe.sanitize("collect") as session:
        names["body"](rounds, program.reader)
    found = [hazard for hazard in session.hazards if hazard.code == "SS202"]
    notes = [
        (note.role, note.stack[0].line) for note in found[0].notes if note.stack[0].filename == str(path)
    ]
    expected = [("allocated", 6), ("released", 10), ("reused", 6)][: 2 if found[0].latent else 3]
    assert notes == expected


def test_one_bug_of_several_kernels_is_one_hazard(program: Program) -> None:
    def fill(value: float) -> None:
        with program.writer:
            program.x.fill(value)  # zero by memset, any other value by a kernel

    with streamsafe.sanitize("collect") as session:
        for value in (0, 1):
            fill(value)
            program.read()
            program.settle()
    assert [(hazard.code, hazard.count) for hazard in session.hazards] == [("SS101", 2)]


def test_a_latent_hazard_is_warned_of_at_the_users_line(program: Program) -> None:
    @streamsafe.sanitize()
    def drop() -> None:
        x = program.cp.zeros(4096)
        program.settle()
        with program.writer:
            x += 1
        del x

    with pytest.warns(streamsafe.StreamHazardWarning, match="SS202") as caught:
        drop()
    assert [Path(each.filename).name for each in caught] == [Path(__file__).name]


def test_a_thread_is_raised_in_itself(program: Program) -> None:
    caught: list[BaseException] = []

    def work() -> None:
        try:
            program.read()
        except streamsafe.StreamHazardError as error:
            caught.append(error)

    with streamsafe.sanitize():
        program.write()
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        program.settle()
    assert len(caught) == 1


class Maker:
    """Remembers what each of its instances is called where it is made."""

    names: ClassVar[list[str]] = []

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.names.append(sites.name_of(sites.capture(2)))


def test_names_of_what_a_line_makes() -> None:
    Maker.names.clear()
    holder: Any = type("Holder", (), {"make": Maker})
    x = Maker()
    up, down = Maker(), holder.make(k=1)
    a, b, c = Maker(), Maker(1), Maker(a=x)
    d, e, f, g = Maker(), Maker(), holder.make(), Maker(a, k=2)
    holder.up, holder.down = Maker(), Maker()
    holder.one = Maker()
    (h, i) = [Maker(), Maker()]
    j, k = 3, Maker()
    z = y = Maker()
    m, n = Maker(), (a, b)
    o, p, q = Maker(), [a, b, c], Maker()
    assert Maker.names == ("x up down a b c d e f g holder.up holder.down holder.one h i k z m o q".split())
    Maker.names.clear()
    inside = id(Maker())
    both, other = id(Maker()), Maker()
    several = [Maker(), Maker()]
    part = Maker().names
    outer = holder.make(a, Maker())
    assert Maker.names == ["", "", "other", "", "", "", "", "outer"]
    del up, down, b, c, d, e, f, g, h, i, j, k, z, y, m, n, o, p, q, inside, both, other, several, part, outer


def test_an_attribute_of_a_variable_that_an_inner_function_reads() -> None:
    Maker.names.clear()
    holder: Any = type("Holder", (), {})
    holder.one = Maker()
    assert (lambda: holder)() is holder
    assert Maker.names == ["holder.one"]


def test_graphs_and_their_launches_are_counted(program: Program) -> None:
    with streamsafe.sanitize("collect") as session:
        with program.writer:
            program.writer.begin_capture()
            program.x += 1
            graph = program.writer.end_capture()
        for _ in range(2):
            graph.launch(program.writer)
        program.writer.synchronize()
    assert codes(session) == []
    assert session.coverage is not None
    assert (session.coverage.captures, session.coverage.replays) == (1, 2)
    assert str(session.coverage).endswith("1 capture, 2 replays")
