"""Rows of CuPy, called on the simulated device: what the sanitizer saw is what the row says.

As in :mod:`tests.apis.test_torch_rows`, a call is made under a stream ``main`` three times: with an operand that
another stream has written, with one that another stream has read, and after a copy to pinned memory that the host then
reads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

import streamsafe
from streamsafe.apis import cupy as rows
from streamsafe.apis.effects import CURRENT, HOST, Call
from tests.simulate.conftest import cupy, simulation

__all__ = ["cupy", "simulation"]

OWNERS = ("cupy", "cupy.ndarray", "cupy.cuda.MemoryPointer")
MAKES = ("allocates", "edge")
"""Rows without an operand, or with one of another library, have tests of their own."""

ARGUMENTS: dict[str, Callable[[Any, Any], tuple[Any, ...]]] = {
    "set": lambda cp, x: (pytest.importorskip("numpy").ones((4, 4), "f4"),),
    "fill": lambda cp, x: (2,),
    "put": lambda cp, x: (cp.zeros(1, "i8"), cp.zeros(1, "f4")),
    "partition": lambda cp, x: (1,),
    "copyto": lambda cp, x: (cp.zeros((4, 4), "f4"),),
    "putmask": lambda cp, x: (cp.zeros((4, 4), "?"), cp.zeros(2, "f4")),
    "place": lambda cp, x: (cp.zeros((4, 4), "?"), cp.zeros(2, "f4")),
    "fill_diagonal": lambda cp, x: (1.0,),
    "put_along_axis": lambda cp, x: (cp.zeros((1, 4), "i8"), 1.0, 0),
    "reshape": lambda cp, x: ((2, 8),),
    "expand_dims": lambda cp, x: (0,),
    "broadcast_to": lambda cp, x: ((2, 4, 4),),
    "swapaxes": lambda cp, x: (0, 1),
    "moveaxis": lambda cp, x: (0, 1),
    "rollaxis": lambda cp, x: (1,),
    "flip": lambda cp, x: (0,),
    "sliding_window_view": lambda cp, x: ((2, 2),),
    "allclose": lambda cp, x: (cp.ones((4, 4), "f4"),),
    "array_equal": lambda cp, x: (cp.ones((4, 4), "f4"),),
    "copy_from": lambda cp, x: (cp.ones((4, 4), "f4").data, 64),
    "copy_from_device": lambda cp, x: (cp.ones((4, 4), "f4").data, 64),
    "copy_from_async": lambda cp, x: (cp.ones((4, 4), "f4").data, 64),
    "copy_from_device_async": lambda cp, x: (cp.ones((4, 4), "f4").data, 64),
    "copy_from_host": lambda cp, x: (pinned(cp).ctypes.data, 64),
    "copy_from_host_async": lambda cp, x: (pinned(cp).ctypes.data, 64),
    "copy_to_host": lambda cp, x: (pinned(cp).ctypes.data, 64),
    "copy_to_host_async": lambda cp, x: (pinned(cp).ctypes.data, 64),
    **dict.fromkeys(("scatter_add", "scatter_max", "scatter_min"), lambda cp, x: ((slice(0, 1),), 1.0)),
    "memset": lambda cp, x: (0, 64),
    "memset_async": lambda cp, x: (0, 64),
}
"""What is given beside the operand; nothing for the others."""

NOT_CALLED = {
    "cupy.asarray": "gives an array of CuPy back as it is",
    "cupy.ndarray.itemset": "not in this release of CuPy",
    "cupy.ndarray.setfield": "not in this release of CuPy",
    "cupy.place": "the simulated device counts no elements to be replaced",
}


def pinned(cp: Any) -> Any:
    import cupyx

    return cupyx.zeros_pinned(16, "f4")


def plain(cp: Any, call: Call) -> Callable[[Any], Any] | None:
    """The call on an array, or on its pointer."""
    extra = ARGUMENTS.get(call.last, lambda cp, x: ())
    if call.owner == "cupy":
        function = getattr(cp, call.last, None)
        return None if function is None else lambda x: function(x, *extra(cp, x))
    owner = cp.ndarray if call.owner == "cupy.ndarray" else cp.cuda.MemoryPointer
    if not hasattr(owner, call.last):
        return None
    if call.last == "item":
        return lambda x: x[0, 0].item()
    return lambda x: getattr(x if owner is cp.ndarray else x.data, call.last)(*extra(cp, x))


def hazards(cp: Any, prepare: Callable[[Any, Any, Any], Any], call: Callable[[Any], Any]) -> list[str]:
    """The codes of what is found where ``prepare`` is followed by the call on another stream."""
    x = cp.ones((4, 4), "f4")
    side, main = cp.cuda.Stream(non_blocking=True), cp.cuda.Stream(non_blocking=True)
    cp.cuda.Device().synchronize()
    with streamsafe.sanitize(mode="collect") as session:
        finish = prepare(x, side, main)
        with main:
            kept = call(x)
        if finish is not None:
            finish()
        cp.cuda.Device().synchronize()
        del kept
    return [hazard.code for hazard in session.hazards if hazard.code[:3] in ("SS1", "SS3")]


def written(x: Any, side: Any, main: Any) -> None:
    with side:
        x += 1


def read(x: Any, side: Any, main: Any) -> None:
    with side:
        x.copy()


def copied(x: Any, side: Any, main: Any) -> Callable[[], Any]:
    import cupyx

    host, source = cupyx.zeros_pinned(1024, "f4"), type(x)((1024,), "f4")
    with main:
        source.get(out=host, blocking=False)
    return lambda: host.sum()


@pytest.fixture(autouse=True)
def _filled(simulation: Any) -> Iterator[None]:
    """The device does not compute: a size that a call waits for is 0."""
    simulation.values = "fill"
    yield
    simulation.values = "stop"


CALLS = [call for call in rows.ROWS if call.owner in OWNERS and not any(getattr(call, key) for key in MAKES)]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("call", CALLS, ids=lambda call: call.name)
def test_row(cupy: Any, call: Call) -> None:
    if call.name in NOT_CALLED:
        pytest.skip(NOT_CALLED[call.name])
    function = plain(cupy, call)
    if function is None:
        pytest.skip("not in this release of CuPy")
    saw = {
        "touches": bool(hazards(cupy, written, function)),
        "writes": bool(hazards(cupy, read, function)),
        "waits": not hazards(cupy, copied, function),
    }
    assert saw == {
        "touches": bool(call.reads or call.writes),
        "writes": bool(set(call.writes.split()) & {"self", "0"}),
        "waits": call.waits in (CURRENT, "stream") and call.result in (HOST, "NEW"),
    }
