"""Collectives of DTensor and functional ones (TD-13)."""

from __future__ import annotations

import importlib
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import streamsafe
from tests.torch.dtensors import PROGRAMS, Ranks
from tests.torch.test_programs import FOLDER, has_collectives


@pytest.fixture(scope="module")
def ranks(backend: Any, request: pytest.FixtureRequest) -> Iterator[Ranks]:
    if request.config.getoption("--gpu"):
        pytest.skip("fixtures/distributed has such programs, for two GPUs")
    if not has_collectives(backend) or backend.distributed.is_initialized():
        pytest.skip("no process group can be made")
    sys.path.insert(0, str(FOLDER))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            importlib.import_module("stand_in").begin(ranks=2)
            yield Ranks(backend)
    finally:
        sys.path.remove(str(FOLDER))
        backend.distributed.destroy_process_group()


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning", "ignore::DeprecationWarning")
@pytest.mark.parametrize(("program", "codes"), PROGRAMS, ids=lambda each: getattr(each, "__name__", ""))
def test_dtensors(torch: Any, ranks: Ranks, program: Callable[[Ranks], None], codes: list[str]) -> None:
    with streamsafe.sanitize(mode="collect") as session:
        program(ranks)
    assert [each.code for each in session.hazards] == codes
    ranks.join()


def test_a_communication_stream_is_called_so(torch: Any, ranks: Ranks) -> None:
    """The program has no object for it: the edge to insert is the wait of the collective's work."""
    with streamsafe.sanitize(mode="collect") as session:
        x = torch.ones(8, device="cuda")
        work = torch.distributed.all_reduce(x, async_op=True)
        x.sum()
        work.wait()
    (hazard,) = session.hazards
    assert "`all_reduce` on the communication stream may still be writing" in hazard.message
    assert hazard.missing is not None
    assert hazard.missing.fix == (
        "work.wait()  # the collective's, where torch.cuda.default_stream() is current"
    )
    torch.cuda.synchronize()
