"""The tables of the models: every row means something, and what they say of the calls that matter most."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from streamsafe.config import Model
from streamsafe.static.models.load import MOST_NAMES, ModelError, Models, library_models, load
from streamsafe.static.models.rows import Copy, Order, Place, Result

ROOT = Path(__file__).parents[3]
STATIC = ROOT / "streamsafe" / "static"
MODELS = library_models()


def test_every_semantics_row_that_is_cited_exists() -> None:
    text = (ROOT / "docs" / "semantics.md").read_text()
    known = set(re.findall(r"^\| ([A-Z]{2}-\w+) \|", text, re.MULTILINE))
    cited = {row for name in MODELS.row_names() for row in MODELS.known(name).semantics}
    assert cited <= known
    assert len(cited) >= 80


def test_every_argument_of_a_row_is_a_parameter() -> None:
    for name in MODELS.row_names():
        row = MODELS.known(name)
        parameters = {*row.params, "self", "*", "current", "default", "result", "host", "device"}
        named = {row.stream, *row.reads, *row.writes, *row.host_reads, *row.host_writes, *row.frees}
        named |= {arg for order in row.order for arg in (order.who, order.whom)}
        named |= {arg for calls in row.calls for arg in (calls.function, *calls.args)}
        named |= {arg for store in row.stores for arg in (store.container, store.value, store.key or "self")}
        named |= {arg for pair in row.records for arg in pair}
        named |= {row.result.arg or "self", row.sets_current or "self"}
        if row.copy is not None:
            named |= {row.copy.source, row.copy.destination, row.copy.flag or "self"}
        assert named <= parameters, (name, named - parameters)


def test_every_type_that_a_row_makes_is_known() -> None:
    for name in MODELS.row_names():
        result = MODELS.known(name).result
        if result.kind in ("object", "pair"):
            assert result.type in MODELS.types, name
    for type in MODELS.types.values():
        assert not type.base or type.base in MODELS.types, type


def test_there_are_few_name_hints() -> None:
    assert 0 < len(MODELS.names) <= MOST_NAMES
    assert all(row.why for row in MODELS.names)


@pytest.mark.parametrize(
    ("name", "canonical"),
    [
        ("torch.Stream", "torch.cuda.Stream"),
        ("torch.accelerator.current_stream", "torch.cuda.current_stream"),
        ("torch_npu.npu.streams.Event", "torch.cuda.Event"),
        ("torch.cuda.StreamContext", "torch.cuda.stream"),
        ("cupy.cuda.stream.Stream", "cupy.cuda.Stream"),
        ("cuda.bindings.runtime.cudaStreamCreate", "cuda.bindings.cudaStreamCreate"),
        ("deepspeed.comm.all_reduce", "torch.distributed.all_reduce"),
        ("collections.OrderedDict", "builtins.dict"),
        ("torch.nn.functional.relu", "torch.nn.functional.relu"),
        ("mylib.Stream", "mylib.Stream"),
    ],
)
def test_names_that_stand_for_others(name: str, canonical: str) -> None:
    assert MODELS.canonical(name) == canonical


@pytest.mark.parametrize(
    ("name", "works"),
    [
        ("torch.sigmoid", "work"),
        ("torch.nn.functional.relu", "work"),
        ("torch.cuda.memory_stats_as_nested_dict", "plain"),
        ("torch.is_nonzero_soon", "plain"),
        ("cupy.exp", "work"),
        ("numpy.exp", "host"),
        ("json.dumps", "host"),
        ("mylib.go", ""),
    ],
)
def test_what_no_row_names(name: str, works: str) -> None:
    assert MODELS.works(name) == works


def test_rows_of_the_calls_that_matter_most() -> None:
    copy = MODELS.known("torch.Tensor.copy_")
    assert copy.copy == Copy("src", "self", "non_blocking")
    assert copy.result == Result("same", "self")
    assert MODELS.known("torch.cuda.Stream.wait_stream").order == (Order("wait", "self", "stream"),)
    assert MODELS.known("torch.cuda.Event.record").order == (Order("record", "self", "stream"),)
    assert MODELS.known("torch.Tensor.to").result.place == Place("target", "device")
    item = MODELS.known("torch.Tensor.item")
    assert item.capture is not None and item.capture.code == "SS401"
    assert MODELS.known("cupy.ndarray.get").copy == Copy("self", "out", "blocking", inverted=True)


def test_a_method_is_found_in_the_base() -> None:
    assert MODELS.method("torch.nn.Parameter", "record_stream") is MODELS.row("torch.Tensor.record_stream")
    assert MODELS.method("cupy.cuda.ExternalStream", "use") is MODELS.row("cupy.cuda.Stream.use")
    assert MODELS.method("torch.Tensor", "wait_stream") is None


def test_a_wrapper_of_the_user_is_a_row() -> None:
    models = load(
        {"fastio.copy_async": Model(("dst", "src", "stream"), "stream", ("src",), ("dst",), waits=("src",))}
    )
    row = models.known("fastio.copy_async")
    assert (row.params, row.stream, row.reads, row.writes) == (
        ("dst", "src", "stream"),
        "stream",
        ("src",),
        ("dst",),
    )
    assert row.order == (Order("wait", "stream", "src"),)
    assert MODELS.row("fastio.copy_async") is None


@pytest.mark.parametrize(
    "table",
    [
        {"row": [{"names": "f", "result": "magic"}]},
        {"row": [{"names": "f", "copy": "a to b"}]},
        {"row": [{"names": "f", "order": ["wait self"]}]},
        {"row": [{"names": "f", "speed": "high"}]},
        {"row": [{"result": "none"}]},
        {"types": {"T": {"role": "thing"}}},
    ],
)
def test_a_row_that_means_nothing_is_refused(table: dict[str, object]) -> None:
    with pytest.raises(ModelError):
        Models().add_table(table, "test.toml")


def test_only_the_models_name_library_calls() -> None:
    """Strings such as "torch.cuda.current_stream" stand in the tables and nowhere else in the engine."""
    found = [
        f"{path.name}: {match}"
        for folder in ("syntax",)
        for path in sorted((STATIC / folder).glob("*.py"))
        for match in re.findall(r'"(?:torch|cupy|cupyx|numpy|numba)\.[\w.]+"', path.read_text())
    ]
    assert found == []
