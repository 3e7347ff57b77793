"""Elements that an index scatters or gathers: on the simulated device it is known which they are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import streamsafe


@pytest.fixture(autouse=True)
def simulated(request: pytest.FixtureRequest) -> None:
    if request.config.getoption("--gpu"):
        pytest.skip("a GPU's index cannot be read without a wait")


Use = Callable[[Any, Any], Any]
READS: dict[str, Use] = {
    "gather": lambda x, index: x.gather(1, index.expand(4, 2)),
    "index_select": lambda x, index: x.index_select(0, index[0]),
}


@pytest.mark.parametrize(
    ("read", "columns", "racy"),
    [("gather", (1, 2), False), ("gather", (1, 6), True), ("index_select", (0, 1), True)],
)
def test_elements_that_are_written_and_read(
    torch: Any, read: str, columns: tuple[int, int], racy: bool
) -> None:
    x = torch.zeros(4, 8, device="cuda")
    written, index = torch.tensor([[5, 6]], device="cuda"), torch.tensor([columns], device="cuda")
    torch.cuda.synchronize()
    with streamsafe.sanitize("collect") as session:
        side = torch.cuda.Stream()
        with torch.cuda.stream(side):
            x.scatter_(1, written.expand(4, 2), 1.0)
        READS[read](x, index)
        torch.cuda.synchronize()
    assert [(hazard.code, hazard.confidence) for hazard in session.hazards] == [("SS101", "certain")] * racy


def test_rows_of_columns(torch: Any) -> None:
    """Rows of a tensor that does not lie together are parts of it still."""
    x = torch.zeros(8, 8, device="cuda")[:, :4]
    values = torch.ones(1, 4, device="cuda")
    rows = [torch.tensor([row], device="cuda") for row in (3, 5)]
    torch.cuda.synchronize()
    with streamsafe.sanitize("collect") as session:
        side = torch.cuda.Stream()
        with torch.cuda.stream(side):
            x.index_copy_(0, rows[0], values)
        x.index_select(0, rows[1])
        torch.cuda.synchronize()
        with torch.cuda.stream(side):
            x.index_copy_(0, rows[0], values)
        x.index_select(0, rows[0])
        torch.cuda.synchronize()
    assert [(hazard.code, hazard.confidence) for hazard in session.hazards] == [("SS101", "certain")]
