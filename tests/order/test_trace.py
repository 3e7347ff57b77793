"""Traces: what was recorded gives the same conflicts when it is read back, and damage is named."""

from __future__ import annotations

import io
import json
import re
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamsafe.order.hazard import Conflict, Frame
from streamsafe.order.memory import Use
from streamsafe.order.operations import OPERATIONS, Operation, run
from streamsafe.order.trace import Recorder, Trace, TraceError, read, verify
from tests.order.language import translate
from tests.order.test_oracle import access_steps, host_steps, order_steps, pool_steps
from tests.order.test_semantics_table import ROWS


def written(operations: list[Operation]) -> list[str]:
    file = io.StringIO()
    trace = Trace(file, python="3.11")
    for operation in operations:
        trace.write(operation)
    return file.getvalue().splitlines()


@pytest.mark.parametrize("program", sorted({row[1] for row in ROWS}))
def test_a_program_survives_writing_and_reading(program: str) -> None:
    operations = translate(program)
    header, back = read(written(operations))
    assert header["python"] == "3.11"
    assert list(back) == operations
    assert verify(written(operations)) == run(operations)


def site(number: int) -> tuple[int, ...]:
    return (number,)


def render(number: Any) -> tuple[Frame, ...]:
    return (Frame("program.py", number[0], "main"),)


@settings(max_examples=100)
@given(
    st.lists(st.one_of(*order_steps, *access_steps, *host_steps, *pool_steps), max_size=25),
    st.sets(st.integers(1, 40)),
)
def test_a_recorded_run_is_verified_alike(steps: list[tuple[Any, ...]], vetoed: set[int]) -> None:
    file = io.StringIO()
    checker = Recorder(Trace(file).write, render=render)
    found: list[Conflict] = []
    for key, kind in (
        ("A", "non-blocking"),
        ("B", "non-blocking"),
        ("P", "blocking"),
        ("Q", "blocking"),
        ("N", "legacy"),
    ):
        checker.stream((0, key), kind=kind, name=key)  # type: ignore[arg-type]
    checker.allocate(0, 4096, 12, stream=(0, "A"), owner="torch", site=site(1), name="x")
    for number, (action, *rest) in enumerate(steps):
        here = site(number + 10)
        if action == "record":
            checker.record(rest[0], (0, rest[1]), site=here)
        elif action == "wait":
            checker.wait((0, rest[0]), rest[1], site=here)
        elif action == "sync":
            kind, name = rest[0]
            getattr(checker, f"synchronize_{kind}")((0, name) if kind == "stream" else name, site=here)
        elif action == "destroy":
            checker.destroy_stream((0, rest[0]))
            checker.stream((0, rest[0]))
        elif action == "allocate":
            checker.allocate(0, 4096 + 12 * rest[0], 12, stream=(0, rest[1]), owner="torch", site=here)
        elif action == "free":
            checker.free(0, 4096 + 12 * rest[0], site=here)
        elif action == "record_stream":
            checker.record_stream(4096 + 12 * rest[0], (0, rest[1]))
        else:
            uses = rest[-1]
            reads = [Use(region) for (region, _), writes in uses if not writes]
            writes = [Use(region, "y", "float32") for (region, _), writes in uses if writes]
            if action == "access":
                found += checker.access(
                    (0, rest[0]),
                    reads,
                    writes,
                    operation="f",
                    site=here,
                    veto=(lambda _: True) if number in vetoed else (lambda _: False),
                )
            else:
                found += checker.host_access(reads, writes, operation="f", site=here)
    found += checker.finish()
    assert verify(file.getvalue().splitlines()) == found


def test_a_captured_run_is_verified_alike() -> None:
    program = (
        "A: alloc t; A: begin; A: write t; B: wait_stream A; B: write x; A: read x; A: wait_stream B; free t; "
        "A: end g; A: alloc u=t; B: launch g; A: launch g; C: read x"
    )
    assert [c.facts for c in verify(written(translate(program)))] == [
        c.facts for c in run(translate(program))
    ]
    assert run(translate(program))


def test_marks_are_kept_and_order_nothing() -> None:
    file = io.StringIO()
    trace = Trace(file)
    trace.mark("suppression", ["SS101", "program.py"])
    (mark,) = read(file.getvalue().splitlines())[1]
    assert mark.arguments() == {"name": "suppression", "data": ("SS101", "program.py")}
    assert verify(file.getvalue().splitlines()) == []


HEADER = json.dumps({"streamsafe": "trace", "version": 1, "threads": False})


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([], "line 1: this is not a streamsafe trace"),
        (["import cupy"], "line 1: this is not a streamsafe trace"),
        (["{}"], "line 1: this is not a streamsafe trace"),
        (["[1]"], "line 1: this is not a streamsafe trace"),
        ([HEADER, "[1]"], "line 2: not a JSON object"),
        ([json.dumps({"streamsafe": "trace", "version": 99})], "line 1: trace version 99"),
        ([HEADER, "{"], "line 2: not JSON"),
        ([HEADER, '{"do":"fly"}'], "line 2: unknown operation 'fly'"),
        ([HEADER, '{"do":["fly"]}'], "line 2: unknown operation"),
        ([HEADER, '{"do":"stream"}'], "line 2: .*key"),
        ([HEADER, '{"do":"finish","more":1}'], "line 2: .*more"),
        ([HEADER, '{"do":"access","stream":1,"operation":"f","reads":[1]}'], "line 2: "),
        ([HEADER, '{"do":"record","event":1,"stream":7}'], "line 2: .*7, which nothing introduced"),
        (
            [HEADER, '{"do":"stream","key":1}', '{"do":"replay","graph":3,"stream":1}'],
            "line 3: .*3, which nothing",
        ),
        ([HEADER, '{"do":"allocate","space":0,"start":"a","size":8,"owner":"cupy"}'], "line 2: "),
        ([HEADER, '{"do":"stream","key":{"a":1}}'], "line 2: "),
    ],
)
def test_damage_is_named(lines: list[str], message: str) -> None:
    with pytest.raises(TraceError, match=message):
        verify(lines)


@pytest.mark.parametrize(
    ("last", "message"),
    [("", None), ('{"do":"fin', None), ('{"do":"finish"}', None), ('{"do":"fin\n', "line 3: not JSON")],
)
def test_the_trace_of_a_run_that_died(tmp_path: Path, last: str, message: str | None) -> None:
    path = tmp_path / "trace.jsonl"
    path.write_text(HEADER + '\n{"do":"stream","key":1}\n' + last, encoding="utf-8")
    if message is None:
        assert verify(path) == []
    else:
        with pytest.raises(TraceError, match=message):
            verify(path)


def test_a_file_that_is_not_text(tmp_path: Any) -> None:
    path = tmp_path / "trace"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(TraceError, match="not text"):
        verify(path)


def test_the_documented_schema_is_the_schema() -> None:
    """Every operation and field is in the tables, with its default, and the example does what the text says."""
    text = (Path(__file__).parents[2] / "docs" / "trace-schema.md").read_text(encoding="utf-8")
    table = text.partition("## Lines")[2]
    rows = dict(re.findall(r"^\| `(\w+)` \| (.*?) \| .* \|$", table, re.MULTILINE))
    del rows["do"]
    assert set(rows) == set(OPERATIONS)
    for action, operation in OPERATIONS.items():
        said = {
            name: default.strip("`")
            for name, default in re.findall(r"`(\w+)`(?: = (\S+?))?(?:,|$)", rows[action] or "")
        }
        for each in fields(operation):
            default = "" if each.default is MISSING or each.name == "site" else json.dumps(each.default)
            assert said.pop(each.name) == default, (action, each.name)
        assert not said
    example, fix = re.findall(r"```json\n(.*?)```", text.partition("## Example")[2], re.DOTALL)
    lines = example.splitlines()
    (conflict,) = verify(lines)
    assert conflict.second.stack == (Frame("train.py", 20, "main"),)
    assert verify([*lines[:4], *fix.splitlines(), *lines[4:]]) == []
