"""Pinned arrays: every way to read or write one is seen, and gives what a plain array gives."""

from __future__ import annotations

import copy
import io
import pickle
import sys
import weakref
import zlib
from collections.abc import Callable
from typing import Any

import pytest

import streamsafe
from streamsafe.runtime.pinned import arrays as host_module
from streamsafe.runtime.pinned import existing as adopt
from tests.runtime.helpers import Program, codes

np = pytest.importorskip("numpy")


def pinned(size: int, kind: str = "zeros") -> Any:
    import cupyx

    return getattr(cupyx, f"{kind}_pinned")(size, np.float32)


READS: dict[str, Callable[[Any], Any]] = {
    "element": lambda h: h[3],
    "fancy index": lambda h: h[[1, 2]],
    "mask": lambda h: h[np.arange(64) > 60],
    "iteration": lambda h: next(iter(h)),
    "float": lambda h: float(h[:1].reshape(())),
    "bool": lambda h: bool(h[:1]),
    "sum": lambda h: h.sum(),
    "mean": lambda h: h.mean(),
    "operator": lambda h: h + 1,
    "comparison": lambda h: h == 0,
    "ufunc": lambda h: np.sqrt(h),
    "reduction": lambda h: np.add.reduce(h),
    "function": lambda h: np.concatenate([h, h]),
    "copy": lambda h: h.copy(),
    "astype": lambda h: h.astype("f8"),
    "tolist": lambda h: h.tolist(),
    "tobytes": lambda h: h.tobytes(),
    "repr": repr,
    "format": lambda h: f"{h}",
    "pickle": lambda h: pickle.loads(pickle.dumps(h)),
    "deepcopy": lambda h: copy.deepcopy(h),
    "contains": lambda h: 3 in h,
    "view": lambda h: h[8:16].sum(),
    "reshaped": lambda h: h.reshape(8, 8).T[2].sum(),
    "np.array": lambda h: np.array(h),
    "np.asarray": lambda h: np.asarray(h).max(),
    "argmax": lambda h: h.argmax(),
    "dot": lambda h: h.dot(h),
    "matmul": lambda h: h @ h,
    "allclose": lambda h: np.allclose(h, 0),
    "where": lambda h: np.where(h > 0),
    "every other": lambda h: h[::2].sum(),
    "backwards": lambda h: h[::-3].sum(),
    "shuffled": lambda h: np.random.default_rng(1).permuted(h),
}

WRITES: dict[str, Callable[[Any], Any]] = {
    "slice": lambda h: h.__setitem__(slice(None), 5),
    "element": lambda h: h.__setitem__(0, 5),
    "fill": lambda h: h.fill(5),
    "in place": lambda h: h.__iadd__(1),
    "out": lambda h: np.add(1, 2, out=h),
    "copyto": lambda h: np.copyto(h, 5),
    "put": lambda h: h.put([1], [5]),
    "sort": lambda h: h.sort(),
    "view": lambda h: h[:8].fill(5),
    "two dimensions": lambda h: h.reshape(8, 8).__setitem__((slice(None), 1), 5),
    "flat": lambda h: setattr(h, "flat", 5),
    "every other": lambda h: h[::2].fill(5),
    "drawn": lambda h: np.random.default_rng(1).random(None, "f4", h),
    "drawn by name": lambda h: np.random.default_rng(1).standard_normal(dtype="f4", out=h),
    "drawn with a shape": lambda h: np.random.default_rng(1).standard_gamma(2.0, None, "f4", h),
    "shuffled": lambda h: np.random.default_rng(1).shuffle(h),
}

METADATA: dict[str, Callable[[Any], Any]] = {
    "shape": lambda h: h.shape,
    "slice": lambda h: h[3:9],
    "reshape": lambda h: h.reshape(8, 8),
    "dtype": lambda h: h.dtype,
    "len": len,
    "address": lambda h: h.ctypes.data,
    "np.shape": lambda h: np.shape(h),
    "empty_like": lambda h: np.empty_like(h).shape,
}


def download(program: Program) -> Any:
    """A pinned array that an unfinished copy writes."""
    host = pinned(64)
    with program.writer:
        program.x[:64].get(out=host, blocking=False)
    return host


@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_reads(program: Program, read: Callable[[Any], Any]) -> None:
    with streamsafe.sanitize("collect") as racy:
        read(download(program))
        program.settle()
    with streamsafe.sanitize("collect") as ordered:
        host = download(program)
        program.writer.synchronize()
        read(host)
    assert (set(codes(racy)), codes(ordered)) == ({"SS301"}, [])
    assert {hazard.confidence for hazard in racy.hazards} == {"certain"}


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_writes(program: Program, write: Callable[[Any], Any]) -> None:
    def upload() -> Any:
        host = pinned(64)
        program.x[:64].set(host, stream=program.writer)
        return host

    with streamsafe.sanitize("collect") as racy:
        write(upload())
        program.settle()
    with streamsafe.sanitize("collect") as ordered:
        host = upload()
        program.writer.synchronize()
        write(host)
    assert (set(codes(racy)), codes(ordered)) == ({"SS302"}, [])
    assert {hazard.confidence for hazard in racy.hazards} == {"certain"}


@pytest.mark.parametrize(
    ("half", "found"),
    [
        (lambda rows: rows[:, :4], []),
        (lambda rows: rows[:, 4:], ["SS301"]),
        (lambda rows: rows[:, ::-1][:, 4:], []),
        (lambda rows: rows[::-1, ::-1][:, :4], ["SS301"]),
        (lambda rows: rows[:0, 4:], []),
        (lambda rows: rows[1:], []),
    ],
    ids=["left", "right", "left, turned", "right, turned", "no rows", "other rows"],
)
def test_a_part_of_each_row(program: Program, half: Callable[[Any], Any], found: list[str]) -> None:
    """A copy writes the right half of the first row."""
    with streamsafe.sanitize("collect") as session:
        host = pinned(64)
        with program.writer:
            program.x[:4].get(out=host[4:8], blocking=False)
        half(host.reshape(8, 8)).sum()
        program.settle()
    assert codes(session) == found


@pytest.mark.parametrize("look", METADATA.values(), ids=METADATA)
def test_metadata_is_no_access(program: Program, look: Callable[[Any], Any]) -> None:
    with streamsafe.sanitize("collect") as session:
        look(download(program))
        program.settle()
    assert codes(session) == []


@pytest.mark.parametrize("do", [*READS.values(), *WRITES.values(), *METADATA.values()])
def test_the_same_result_as_a_plain_array(program: Program, do: Callable[[Any], Any]) -> None:
    def make(array: Any) -> Any:
        array[:] = np.arange(64)[::-1]
        return array

    plain = make(np.empty(64, np.float32))
    expected = do(plain)
    with streamsafe.sanitize():
        array = make(pinned(64, "empty"))
        found = do(array)
        values = np.array(array)
        if do is METADATA["address"]:
            return
        np.testing.assert_array_equal(np.asarray(found), np.asarray(expected))
    np.testing.assert_array_equal(values, plain)


def test_other_elements_of_the_array_are_nobodys_business(program: Program) -> None:
    with streamsafe.sanitize() as session:
        host = pinned(128)
        with program.writer:
            program.x[:64].get(out=host[:64], blocking=False)
        host[64:] = 3
        assert float(host[100]) == 3
        program.settle()
    assert codes(session) == []


def test_pinned_memory_by_hand(program: Program) -> None:
    cp = program.cp
    with streamsafe.sanitize("collect") as session:
        memory = cp.cuda.alloc_pinned_memory(256)
        host = np.frombuffer(memory, np.float32, 64)
        with program.writer:
            program.x[:64].get(out=host, blocking=False)
        host.sum()
        program.settle()
    assert codes(session) == ["SS301"]


def test_a_plain_array_over_pinned_memory_is_known_by_its_contents(program: Program) -> None:
    cp = program.cp

    def upload(early: bool) -> None:
        memory = cp.cuda.alloc_pinned_memory(256)
        host = np.ndarray((64,), np.float32, buffer=memory)
        view = host[:]  # made before the copy: it stays plain
        view[:] = 1
        program.x[:64].set(host, stream=program.writer)
        if early:
            view[:] = 2
        program.writer.synchronize()
        view[:] = 3

    with streamsafe.sanitize() as racy:
        upload(early=True)
    with streamsafe.sanitize() as ordered:
        upload(early=False)
    assert codes(racy) == ["SS302"]
    assert racy.hazards[0].confidence == "likely"
    assert codes(ordered) == []


class Holder:
    """An object with a pinned array."""


def _made(kind: str, cp: Any) -> tuple[Any, Any]:
    """(what holds it, the array): pinned memory made with no session open."""
    if kind == "empty_pinned":
        host = pinned(64)
        return host, host
    if kind == "attribute":
        holder: Any = Holder()
        holder.host = pinned(64)
        return holder, holder.host
    memory = cp.cuda.alloc_pinned_memory(256)
    if kind == "frombuffer":
        host = np.frombuffer(memory, np.float32, 64)
    else:
        host = np.ndarray((64,), np.float32, memory)
    return memory, host


KINDS = ("empty_pinned", "attribute", "frombuffer", "ndarray")


@pytest.mark.parametrize("kind", KINDS)
def test_arrays_of_before_the_session(program: Program, kind: str) -> None:
    held, host = _made(kind, program.cp)
    with streamsafe.sanitize("collect", host="deep") as racy:
        with program.writer:
            program.x[:64].get(out=host, blocking=False)
        host.sum()
        program.settle()
    assert codes(racy) == ["SS301"]
    with streamsafe.sanitize("collect", host="deep") as ordered:
        with program.writer:
            program.x[:64].get(out=host, blocking=False)
        program.writer.synchronize()
        host.sum()
    assert codes(ordered) == []
    assert type(host) is np.ndarray
    del held


@pytest.mark.parametrize("kind", KINDS)
def test_sources_of_before_the_session(program: Program, kind: str) -> None:
    held, host = _made(kind, program.cp)
    address = host.ctypes.data
    with streamsafe.sanitize("collect", host="deep") as racy:
        program.x.data.copy_from_host_async(address, 256, program.writer)
        host[:] = 2
        program.settle()
    assert codes(racy) == ["SS302"]
    del held


def test_looking_for_arrays_leaves_what_locals_gave(program: Program) -> None:
    """Until Python 3.12 a frame's variables, looked at from outside, are the dict that ``locals()`` gave out."""
    held, host = _made("ndarray", program.cp)
    names = locals()
    assert names["host"] is host
    with streamsafe.sanitize("collect", host="deep"), program.writer:
        program.x[:64].get(out=host, blocking=False)
    assert names["host"] is host and names["held"] is held


def test_an_array_of_a_session_is_known_in_the_next(program: Program) -> None:
    with streamsafe.sanitize("collect", host="deep"):
        host = pinned(64)
    with streamsafe.sanitize("collect", host="deep") as session:
        with program.writer:
            program.x[:64].get(out=host, blocking=False)
        host.sum()
        program.settle()
    assert codes(session) == ["SS301"]


def test_adopted_arrays_come_and_go(program: Program) -> None:
    """Their type changes twice, and neither they nor the type are kept alive or lost."""
    adopt.release()
    kind = type(host_module.watched(np.zeros(1)))
    before = sys.getrefcount(kind)
    memory = program.cp.cuda.alloc_pinned_memory(256)
    for kept in (False, True):
        for _ in range(200):
            array = np.ndarray((64,), np.float32, memory)
            adopt.adopt(array)
            assert type(array) is kind and float(array[:4].sum()) == float(np.asarray(array)[:4].sum())
            if kept:
                adopt.release()
                assert type(array) is np.ndarray
            gone = weakref.ref(array)
            del array
            assert gone() is None
    assert sys.getrefcount(kind) == before


@pytest.mark.skipif(sys.version_info < (3, 12), reason="a class cannot hear of it before Python 3.12")
@pytest.mark.parametrize("writes", [False, True], ids=["read", "write"])
def test_buffers_taken_by_c_code(program: Program, writes: bool) -> None:
    def use(host: Any) -> None:
        if writes:
            io.BytesIO(bytes(256)).readinto(host)
        else:
            zlib.crc32(memoryview(host))

    with streamsafe.sanitize("collect") as racy:
        use(download(program))
        program.settle()
    with streamsafe.sanitize("collect") as ordered:
        host = download(program)
        program.writer.synchronize()
        use(host)
    assert (codes(racy), codes(ordered)) == (["SS302" if writes else "SS301"], [])


def test_host_accesses_can_be_left_out(program: Program) -> None:
    with streamsafe.sanitize("collect", host=False) as session:
        host = download(program)
        assert type(host) is np.ndarray
        host.sum()
        program.settle()
    assert codes(session) == []


class Shelf:
    """Where programs keep their pinned arrays."""

    def __init__(self, program: Program) -> None:
        self.one = download(program)
        self.many = {"rows": [self.one.reshape(4, 16)]}
        self.program = program
        self.kept: Any = None

    @property
    def settled(self) -> Any:
        self.program.settle()
        return self.one


def into_a_plain_array(shelf: Shelf, out: Any) -> None:
    host = shelf.one
    out[:] = host


def into_a_part(shelf: Shelf, out: Any) -> None:
    i = 1
    out[i * 16 : (i + 1) * 16] = shelf.many["rows"][0][i - 1]


def by_a_property(shelf: Shelf, out: Any) -> None:
    out[:] = shelf.settled


def kept_unread(shelf: Shelf, out: Any) -> None:
    found = {}
    found[0] = shelf.one
    shelf.kept = found


def other_memory(shelf: Shelf, out: Any) -> None:
    out[:] = np.ones(64)


ASSIGNMENTS = {
    into_a_plain_array: ["SS301"],
    into_a_part: ["SS301"],
    by_a_property: [],
    kept_unread: [],
    other_memory: [],
}


@pytest.mark.skipif(sys.version_info < (3, 12), reason="the interpreter does not tell of its lines")
@pytest.mark.parametrize(
    ("assign", "expected"), ASSIGNMENTS.items(), ids=lambda value: getattr(value, "__name__", "")
)
def test_assignments_of_pinned_memory_to_plain_arrays(
    program: Program, assign: Any, expected: list[str]
) -> None:
    with streamsafe.sanitize("collect", host="deep") as session:
        assign(Shelf(program), np.zeros(64, np.float32))
        program.settle()
    assert codes(session) == expected
    with streamsafe.sanitize("collect", host="deep") as session:
        shelf = Shelf(program)
        program.settle()
        assign(shelf, np.zeros(64, np.float32))
    assert codes(session) == []


@pytest.mark.skipif(sys.version_info < (3, 12), reason="the interpreter does not tell of its lines")
def test_an_assignment_is_refused_before_it_happens(program: Program) -> None:
    out = np.full(64, -1, np.float32)
    with streamsafe.sanitize("raise", host="deep"):
        with pytest.raises(streamsafe.StreamHazardError):
            into_a_plain_array(Shelf(program), out)
        program.settle()
    assert out[0] == -1


@pytest.mark.skipif(sys.version_info < (3, 12), reason="the interpreter does not tell of its lines")
def test_looking_at_an_assignment_keeps_nothing_and_changes_nothing(program: Program) -> None:
    def asked(out: Any) -> Any:
        host = pinned(64)
        kept = locals()
        kept["mark"] = 1
        out[:] = host
        return kept

    def unasked(out: Any) -> Any:
        host = pinned(64)
        alive = weakref.ref(host)
        out[:] = host
        del host
        return alive()

    with streamsafe.sanitize("collect", host="deep") as session:
        assert asked(np.zeros(64, np.float32))["mark"] == 1
        assert unasked(np.zeros(64, np.float32)) is None
    assert codes(session) == []
