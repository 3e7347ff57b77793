"""The twenty behaviours that PyTorch's CUDA sanitizer tests its event handler for, by the names of its tests.

One differs on purpose: a missing edge is reported once, so one unordered operation on ten arrays is one conflict
(``multiple_errors``); ten missing edges are ten.
"""

from __future__ import annotations

import pytest

from tests.order.language import check

TEN = [f"x{n}" for n in range(10)]
CHAIN = "".join(
    f"; A: read x; A: record e{n}; B: wait e{n}; B: read x; B: record f{n}; A: wait f{n}" for n in range(5)
)

BEHAVIOURS = [
    ("empty_kernel_launch", "A: read; B: write", ""),
    ("simple_passing", "A: read x; B: read x", ""),
    ("simple_error", "A: read x; B: write x", "WAR"),
    ("simple_sync", "A: read x; A: record e; B: wait e; B: write x", ""),
    ("reads_check_last_write", "A: write x; B: wait_stream A; B: read x; C: read x", "RAW"),
    ("branch_sync", "A: write x; A: record e; B: wait e; C: wait e; B: read x; C: read x; B: write x", "WAR"),
    ("chain_sync", f"A: write x{CHAIN}; A: write x", ""),
    ("expired_record", "A: read x; A: record e; A: read x; B: wait e; B: write x", "WAR!"),
    ("deleted_record: deleted", "A: read x; A: record e; destroy e; B: wait e; B: write x", "WAR!"),
    (
        "deleted_record: created again",
        "A: read x; A: record e; destroy e; B: wait e; A: record e; B: write x",
        "WAR!",
    ),
    (
        "deleted_record: recorded again",
        "A: read x; A: record e; destroy e; A: record e; B: wait e; B: write x",
        "",
    ),
    (
        "all_reads_checked_failing",
        "A: read x; B: read x; C: read x; D: read x; E: wait_stream A; E: wait_stream B; E: wait_stream C; E: write x",
        "WAR",
    ),
    (
        "all_reads_checked_passing",
        "A: read x; B: read x; C: read x; E: wait_stream A; E: wait_stream B; E: wait_stream C; E: write x",
        "",
    ),
    ("multiple_errors: one edge", f"A: write {' '.join(TEN)}; B: write {' '.join(TEN)}", "WAW"),
    (
        "multiple_errors: four edges",
        "A: write x0; B: write x1; C: write x2; D: write x3; E: write x0 x1 x2 x3",
        "WAW WAW WAW WAW",
    ),
    (
        "correct_state_merging",
        "A: write x; B: write y; A: record e; B: record f; A: wait f; B: wait e; A: write x y; A: record e; B: wait e; "
        "B: write x y",
        "",
    ),
    ("record_override", "A: write x; A: record e; B: record e; C: wait e; C: write x", "WAW!"),
    ("multiple_wait", "A: write x; A: record e; B: wait e; C: wait e; B: read x; C: read x", ""),
    (
        "device_synchronize",
        "A: write x; B: write y; P: write z; host: sync device; N: write x y z; C: write x y z",
        "WAW",
    ),
    ("device_synchronize", "A: write x; B: write y; P: write z; host: sync device; C: write x y z", ""),
    ("device_synchronization_expired", "A: write x; host: sync device; A: write x; B: write x", "WAW"),
    ("new_stream_is_synchronized", "A: write x; host: sync device; C: write x", ""),
    ("stream_synchronize: that one", "A: write x; B: write y; host: sync A; C: read x", ""),
    ("stream_synchronize: another", "A: write x; B: write y; host: sync A; C: read y", "RAW!"),
    ("event_synchronize: before", "A: write x; A: record e; A: write y; host: sync e; B: write x", ""),
    ("event_synchronize: after", "A: write x; A: record e; A: write y; host: sync e; B: write y", "WAW!"),
]


@pytest.mark.parametrize(("name", "program", "expected"), BEHAVIOURS, ids=[row[0] for row in BEHAVIOURS])
def test_behaviour(name: str, program: str, expected: str) -> None:
    assert " ".join(check(program)) == expected
