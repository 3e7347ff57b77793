"""Coalesced sends and receives, as NCCL enqueues them: each only waits, one event is recorded at their end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import streamsafe
from streamsafe.runtime.traces import replay


class Ring:
    """A process group's stream and event, and stand-ins for its operators: the real ones need NCCL."""

    def __init__(self, torch: Any) -> None:
        self.torch = torch
        self.stream = torch.cuda.Stream()
        self.start, self.end = torch.cuda.Event(), torch.cuda.Event()
        self.library = torch.library.Library("c10d", "FRAGMENT")
        for name in ("send_coalesced_test", "recv_coalesced_test_"):
            self.library.define(f"{name}(Tensor[] tensors) -> ()")
            self.library.impl(name, self.enqueue, "CUDA")
        self.library.define("allgather_test_(Tensor[] outputs, Tensor[] inputs) -> ()")
        self.library.impl("allgather_test_", self.gather, "CUDA")
        self.library.define("allreduce_test_(Tensor[] tensors) -> ()")
        self.library.impl("allreduce_test_", self.reduce, "CUDA")

    def enqueue(self, tensors: list[Any]) -> None:
        self.start.record()
        self.stream.wait_event(self.start)

    def gather(self, outputs: list[Any], inputs: list[Any]) -> None:
        """As gloo: a stream for what is read, one for what is written, and then a thread."""
        self.start.record()
        self.torch.cuda.Stream().wait_event(self.start)
        self.stream.wait_event(self.start)

    def reduce(self, tensors: list[Any]) -> None:
        """A collective by itself: it waits, and records its end."""
        self.enqueue(tensors)
        self.end.record(self.stream)

    def exchange(self, out: Any, into: Any, *, coalesced: bool = True) -> None:
        """What ``batch_isend_irecv`` does; its work's ``wait`` is a wait for ``end``."""
        group = self.torch.distributed.distributed_c10d._get_default_group()
        device = self.torch.device("cuda", 0)
        if coalesced:
            group._start_coalescing(device)
        self.torch.ops.c10d.send_coalesced_test([out])
        self.torch.ops.c10d.recv_coalesced_test_([into])
        if coalesced:
            group._end_coalescing(device)
        self.end.record(self.stream)

    def wait(self) -> None:
        self.end.wait()


@pytest.fixture(scope="module")
def ring(backend: Any, request: pytest.FixtureRequest) -> Iterator[Ring]:
    if request.config.getoption("--gpu"):
        pytest.skip("fixtures/distributed has the real operators, for two GPUs")
    distributed = backend.distributed
    if not distributed.is_available() or distributed.is_initialized():
        pytest.skip("no process group can be made")
    fake = pytest.importorskip("torch.testing._internal.distributed.fake_pg")
    distributed.init_process_group("fake", rank=0, world_size=2, store=fake.FakeStore())
    yield Ring(backend)
    distributed.destroy_process_group()


def received_is_read(ring: Ring, wait: Callable[[], None]) -> None:
    out, into = (ring.torch.ones(8, device="cuda") for _ in range(2))
    ring.exchange(out, into)
    wait()
    into.sum()


def sent_is_written(ring: Ring, wait: Callable[[], None]) -> None:
    out, into = (ring.torch.ones(8, device="cuda") for _ in range(2))
    ring.exchange(out, into)
    wait()
    out.add_(1)


def sent_is_read(ring: Ring, wait: Callable[[], None]) -> None:
    out, into = (ring.torch.ones(8, device="cuda") for _ in range(2))
    ring.exchange(out, into)
    out.sum()
    ring.wait()


CASES = [(received_is_read, "SS101"), (sent_is_written, "SS102"), (sent_is_read, "")]


@pytest.mark.parametrize(("program", "code"), CASES, ids=lambda each: getattr(each, "__name__", each))
@pytest.mark.parametrize("waited", [False, True])
def test_coalesced(torch: Any, ring: Ring, program: Any, code: str, waited: bool) -> None:
    with streamsafe.sanitize(mode="collect") as session:
        program(ring, ring.wait if waited else lambda: None)
    assert [each.code for each in session.hazards] == ([] if waited or not code else [code])
    torch.cuda.synchronize()


def test_what_was_written_before_is_ordered(torch: Any, ring: Ring) -> None:
    """The communication stream waits for the one that issues the exchange, and for no other."""
    side = torch.cuda.Stream()
    with streamsafe.sanitize(mode="collect") as session:
        out, into = (torch.ones(8, device="cuda") for _ in range(2))
        with torch.cuda.stream(side):
            side.wait_stream(torch.cuda.default_stream())
            out.add_(1)
        ring.exchange(out, into)
        ring.wait()
    assert [each.code for each in session.hazards] == ["SS101"]
    torch.cuda.synchronize()


@pytest.mark.parametrize(("waited", "codes"), [(True, []), (False, ["SS101"])], ids=["waited", "at once"])
def test_an_operator_that_only_waits(torch: Any, ring: Ring, waited: bool, codes: list[str]) -> None:
    """Gloo's collectives (TD-14): a thread goes on with the work after the operator, and records the event."""
    with streamsafe.sanitize(mode="collect") as session:
        out, into = (torch.ones(8, device="cuda") for _ in range(2))
        ring.exchange(out, into, coalesced=False)
        if waited:
            ring.wait()
        into.sum()
    assert [each.code for each in session.hazards] == codes
    torch.cuda.synchronize()


@pytest.mark.parametrize(("waited", "codes"), [(True, []), (False, ["SS101"])], ids=["waited", "at once"])
def test_a_trace_has_a_collective_before_its_end(
    torch: Any, ring: Ring, tmp_path: Path, waited: bool, codes: list[str]
) -> None:
    """The event is recorded inside the operator, and what waits for it comes after the operator's accesses."""
    path = tmp_path / "run.jsonl"
    with path.open("w") as file, streamsafe.sanitize(mode="collect", trace=file) as session:
        x = torch.ones(8, device="cuda")
        torch.ops.c10d.allreduce_test_([x])
        if waited:
            ring.wait()
        x.sum()
    torch.cuda.synchronize()
    assert [each.code for each in session.hazards] == codes
    assert [each.code for each in replay(str(path)).hazards] == codes


@pytest.mark.parametrize("used", ["output", "input"])
@pytest.mark.parametrize("waited", [False, True])
def test_an_operator_with_two_streams(
    torch: Any, ring: Ring, tmp_path: Path, used: str, waited: bool
) -> None:
    path = tmp_path / "run.jsonl"
    with path.open("w") as file, streamsafe.sanitize(mode="collect", trace=file) as session:
        out, into = (torch.ones(8, device="cuda") for _ in range(2))
        torch.ops.c10d.allgather_test_([into], [out])
        ring.end.record(ring.stream)
        if waited:
            ring.wait()
        (into if used == "output" else out).add_(1)
    codes = [] if waited else ["SS102"]
    assert [each.code for each in session.hazards] == codes
    assert [each.code for each in replay(str(path)).hazards] == codes
    torch.cuda.synchronize()
