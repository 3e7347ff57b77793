"""A pytest plugin that writes each test's outcome, the hazards found and how much was checked, as JSON."""

from __future__ import annotations

import functools
import json
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy
import pytest

_outcomes: dict[str, str] = {}
_hazards: dict[str, list[str]] = {}
_counts: Counter[str] = Counter()
_started = time.monotonic()


_streams: list[Any] = []
SPIN_MS = 5


_moved: Counter[str] = Counter()


@contextmanager
def side(line: int) -> Iterator[None]:
    """A statement of a mutated test: on a stream that nothing waits for; with PEER_SPIN it comes late."""
    import cupy

    stream = cupy.cuda.Stream(non_blocking=True)
    _streams.append(stream)
    if os.environ.get("PEER_SPIN"):
        clock = cupy.cuda.Device().attributes["ClockRate"]
        _spin()((1,), (1,), (numpy.int64(clock * SPIN_MS),), stream=stream)
    before = _operations()
    with stream:
        try:
            yield
        finally:
            _moved[str(line)] += _operations() - before


def _operations() -> int:
    """How many operations the session has seen, in compiled hooks and in Python."""
    from streamsafe.runtime.monitor import current

    return 0 if current.monitor is None else current.monitor.checker.operations


@functools.cache
def _spin() -> Any:
    import cupy

    code = """extern "C" __global__ void spin(long long cycles) {
        long long start = clock64(); while (clock64() - start < cycles) {} }"""
    return cupy.RawKernel(code, "spin")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--streamsafe", default=None) is None:
        return
    from streamsafe.runtime.monitor import Monitor

    finish = Monitor.finish

    def counted(self: Monitor) -> None:
        _counts["operations"] += self.checker.operations
        finish(self)

    Monitor.finish = counted  # type: ignore[method-assign]


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    before = _outcomes.get(report.nodeid)
    if before in (None, "passed"):
        _outcomes[report.nodeid] = "xfailed" if hasattr(report, "wasxfail") else report.outcome
    if report.when == "teardown":
        for name, value in report.user_properties:
            if name == "streamsafe_hazard":
                hazard: Any = value
                row = (hazard.get("location") or {}).get("row")
                _hazards.setdefault(report.nodeid, []).append(
                    f"{hazard['code']} line {row}: {hazard['message']}"
                )


def pytest_runtest_teardown(item: pytest.Item) -> None:
    limit = float(os.environ.get("PEER_STOP", "0"))
    if limit and time.monotonic() - _started > limit:
        item.session.shouldstop = f"{limit:g} s are over"


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """A worker of pytest-xdist has ended: its reports came one by one, its counts come now."""
    _counts.update(getattr(node, "workeroutput", {}).get("peer_counts", {}))


def _of_torch() -> dict[str, int]:
    """What PyTorch's front end has counted in this process; nothing where it was not watched."""
    watch = sys.modules.get("streamsafe.runtime.torch.watch")
    if watch is None or watch._loaded is None:
        return {}
    found: dict[str, int] = watch._loaded[0].counters()
    return {f"torch {name}": found[name] for name in ("operators", "uses", "waits", "allocations")}


def pytest_sessionfinish(session: pytest.Session) -> None:
    _counts.update(_of_torch())
    output = getattr(session.config, "workeroutput", None)
    if output is not None:
        output["peer_counts"] = dict(_counts)
        return
    found = {"outcomes": _outcomes, "hazards": _hazards, "counts": dict(_counts), "moved": _moved}
    Path(os.environ["PEER_OUT"]).write_text(json.dumps(found), encoding="utf-8")
