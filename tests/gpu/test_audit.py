"""On a GPU: nothing that the driver is asked to do escapes the sanitizer, and no result changes by a bit.

Over every public function of CuPy and cupyx.scipy that some usual arguments fit, and a list of calls of their own.
``docs/runtime-coverage.md`` says what remains.
"""

from __future__ import annotations

import gc
import warnings
from collections.abc import Iterator
from typing import Any

import pytest

import streamsafe
from streamsafe.runtime import opening as lifetime
from tests.gpu import cupti, families
from tests.gpu.conftest import TOTALS, UNATTRIBUTED
from tests.gpu.ledger import Ledger

pytestmark = pytest.mark.filterwarnings("ignore")

DOCUMENTED = ("own: sparse solve",)
"""Calls with operations that are not seen (see the document)."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "family" in metafunc.fixturenames:
        names = families.names() if metafunc.config.getoption("--gpu") else ["without a GPU"]
        metafunc.parametrize("family", names)


class Runs:
    """Every call, found and made once with no hook in place: what fits, and the bits of its result."""

    def __init__(self, cp: Any, names: list[str]) -> None:
        self.cp = cp
        self.inputs = families.Inputs(cp)
        self.calls: dict[str, Any] = {}
        self.plain: dict[str, Any] = {}
        self.varies: set[str] = set()
        for name in names:
            self._seed()
            try:
                call = families.call_of(name, cp, self.inputs)
                if call is None:
                    continue
                self._seed()
                self.plain[name] = families.bits(call(), cp)
                self._seed()
                if families.bits(call(), cp) != self.plain[name]:
                    self.varies.add(name)
            except Exception as error:
                self.plain[name] = error
                continue
            self.calls[name] = call

    def _seed(self) -> None:
        self.cp.random.seed(11)

    def again(self, name: str) -> list[Any]:
        self._seed()
        return families.bits(self.calls[name](), self.cp)


@pytest.fixture(scope="module")
def runs(request: pytest.FixtureRequest) -> Iterator[Runs]:
    import cupy

    names = [
        str(item.callspec.params["family"])
        for item in request.session.items
        if isinstance(item, pytest.Function)
        and hasattr(item, "callspec")
        and item.path == request.path
        and "family" in item.callspec.params
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = Runs(cupy, names)
    lifetime.hold()
    yield found
    lifetime.release()
    gc.collect()


@pytest.fixture(scope="module")
def ledger(runs: Runs) -> Iterator[Ledger]:
    with pytest.MonkeyPatch.context() as patch:
        book = Ledger(patch)
        try:
            listener = cupti.Listener(book.heard)
        except RuntimeError as error:
            pytest.skip(str(error))
        yield book
        listener.close()
        assert not listener.errors


def test_nothing_escapes_and_no_bit_changes(family: str, runs: Runs, ledger: Ledger) -> None:
    if family not in runs.calls:
        error = runs.plain.get(family)
        pytest.skip(f"none of the arguments fits: {error!r}"[:200])
    runs.cp.cuda.Device().synchronize()
    with streamsafe.sanitize("collect") as session:
        runs.again(family)  # handles, plans and kernels are made
        ledger.seen.clear()
        ledger.missed.clear()
        ledger.open = True
        try:
            checked = runs.again(family)
            runs.cp.cuda.Device().synchronize()
        finally:
            ledger.open = False
    TOTALS["calls"] += 1
    for kind, count in ledger.seen.items():
        TOTALS[
            {"copy": "copies", "launch": "launches", "memset": "memsets", "graph": "graphs"}.get(kind, kind)
        ] += count
    TOTALS["unattributed"] += len(ledger.missed)
    if ledger.missed:
        UNATTRIBUTED[family] = list(ledger.missed)
    missed = [each for each in ledger.missed if family not in DOCUMENTED]
    if family in runs.varies:
        TOTALS["calls whose results vary by themselves"] += 1
    else:
        assert checked == runs.plain[family]
    assert [f"{hazard.code} {hazard.message}" for hazard in session.hazards] == []
    assert missed == []


def test_enough_is_called(runs: Runs) -> None:
    assert len(runs.calls) > 500
