"""What a monitor is asked and decides, seen from programs: each thing that it tells apart, with a silent twin."""

from __future__ import annotations

import threading
from typing import Any

import pytest

import streamsafe
from tests.runtime.helpers import Program, codes

np = pytest.importorskip("numpy")


def pinned(size: int) -> Any:
    import cupyx

    return cupyx.zeros_pinned(size, np.uint8)


@pytest.mark.parametrize(
    ("size", "changed"),
    [(3072, 0), (3072, 1100), (3072, 3071), (8192, 0), (8192, 4096), (8192, 7168), (8192, 8191)],
)
@pytest.mark.parametrize("early", [True, False])
def test_where_a_change_of_a_plain_source_is_seen(
    program: Program, size: int, changed: int, early: bool
) -> None:
    memory = program.cp.cuda.alloc_pinned_memory(size)
    host = np.ndarray((size,), np.uint8, buffer=memory)
    host[:] = 1
    with streamsafe.sanitize("collect") as session:
        program.x.view(np.uint8)[:size].set(host, stream=program.writer)
        if early:
            host[changed] = 2
        program.writer.synchronize()
        host[changed] = 3
    assert codes(session) == (["SS302"] if early else [])


@pytest.mark.parametrize(
    ("start", "part", "found"),
    [
        (32, np.s_[::8], ["SS301"]),
        (32, np.s_[::-8], ["SS301"]),
        (32, np.s_[:32:8], []),
        (32, np.s_[31::-8], []),
        (56, np.s_[::8], ["SS301"]),
        (57, np.s_[::8], []),
    ],
)
def test_how_far_a_strided_part_reaches(program: Program, start: int, part: slice, found: list[str]) -> None:
    with streamsafe.sanitize("collect") as session:
        host = pinned(64)
        program.x.view(np.uint8)[start:64].get(out=host[start:], stream=program.writer, blocking=False)
        host[part].sum()
        program.settle()
    assert codes(session) == found


def test_pinned_arrays_outlive_their_session(program: Program) -> None:
    with streamsafe.sanitize():
        host = pinned(64)
    np.add(host, 1, out=host)
    host.sort()
    np.random.default_rng(0).shuffle(host)
    with streamsafe.sanitize(host=False) as session:
        program.x.view(np.uint8)[:64].get(out=host, stream=program.writer, blocking=False)
        np.add(host, 1, out=host)
        host.sort()
        program.settle()
    assert codes(session) == []


@pytest.mark.parametrize(
    ("times", "text"),
    [
        ((1, 0), "streamsafe: 1 hazard (SS101)"),
        ((2, 0), "streamsafe: 1 hazard (SS101; seen 2 times)"),
        ((1, 1), "streamsafe: 2 hazards (SS101 x2)"),
        ((2, 1), "streamsafe: 2 hazards (SS101 x2; seen 3 times)"),
    ],
)
def test_summary(program: Program, times: tuple[int, int], text: str) -> None:
    def again() -> None:
        program.write()
        with program.reader:
            program.x.sum()

    with streamsafe.sanitize("collect") as session:
        for body, count in zip((program.race, again), times, strict=True):
            for _ in range(count):
                body()
                program.settle()
    assert session.summary() == text


def test_an_inner_session_raises_what_the_outer_one_has_had(program: Program) -> None:
    def once() -> None:
        program.settle()
        program.race()

    with streamsafe.sanitize("collect") as outer:
        once()
        with streamsafe.sanitize() as inner:
            with pytest.raises(streamsafe.StreamHazardError):
                once()
            once()  # it has had it, too
    assert (codes(outer), codes(inner)) == (["SS101"], ["SS101"])
    assert outer.hazards[0].count == 3


def test_the_first_of_two_deferred_hazards_is_raised(program: Program) -> None:
    with streamsafe.sanitize() as session:
        program.write()
        try:
            raise KeyError
        except KeyError:
            program.read()
            program.write()
        with pytest.raises(streamsafe.StreamHazardError) as caught:
            program.settle()
    assert codes(session) == ["SS101", "SS102"]
    assert caught.value.hazard is session.hazards[0]


def test_two_lines_are_one_hazard_whatever_is_missing(program: Program) -> None:
    early = program.writer.record()

    def race(wait: bool) -> None:
        program.settle()
        program.write()
        if wait:
            program.reader.wait_event(early)
        program.read()

    with streamsafe.sanitize("collect") as session:
        race(wait=False)
        early = program.writer.record()
        race(wait=True)
    assert [(hazard.code, hazard.count) for hazard in session.hazards] == [("SS101", 2)]


@pytest.mark.parametrize("ordered", [True, False])
def test_a_host_function_comes_after_the_thread_that_enqueued_it(program: Program, ordered: bool) -> None:
    with streamsafe.sanitize("collect", threads=True) as session:
        host = pinned(64)
        program.x.view(np.uint8)[:64].get(out=host, stream=program.reader, blocking=False)

        def work() -> None:
            if ordered:
                program.reader.synchronize()
            program.writer.launch_host_func(lambda _: host.sum(), None)
            program.writer.synchronize()

        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        program.settle()
    assert codes(session) == ([] if ordered else ["SS301"])


def test_memory_of_the_runtime_is_named_by_its_line(program: Program) -> None:
    runtime = program.cp.cuda.runtime
    stream, other = program.writer.ptr, program.reader.ptr
    with streamsafe.sanitize("collect") as session:
        mine = runtime.malloc(256)
        runtime.memsetAsync(mine, 0, 256, stream)
        runtime.memsetAsync(mine, 1, 256, other)
        program.settle()
        runtime.free(mine)
    (hazard,) = session.hazards
    assert (hazard.code, hazard.memory.name) == ("SS102", "mine")


@pytest.mark.parametrize(("freed", "code"), [(False, "SS501"), (True, "SS101")])
def test_memory_is_another_librarys_until_it_is_handed_out_again(
    program: Program, freed: bool, code: str
) -> None:
    cp = program.cp

    class Exported:
        def __init__(self, array: Any) -> None:
            self.__cuda_array_interface__ = {
                **array.__cuda_array_interface__,
                "version": 3,
                "stream": None,
            }

    with streamsafe.sanitize("collect") as session:
        x = cp.zeros(4096, cp.float32)
        place = x.data.ptr
        program.settle()
        with program.writer:
            x.fill(1)
        taken = cp.asarray(Exported(x))
        others = [cp.zeros(size, cp.float32) for size in (4096, 8192, 64)]  # above it, and below
        if freed:
            program.settle()
            del x, taken
            taken = cp.zeros(4096, cp.float32)
            assert taken.data.ptr == place
            program.settle()
            with program.writer:
                taken.fill(1)
        with program.reader:
            taken.sum()
        program.settle()
        del others
    assert codes(session) == [code]
