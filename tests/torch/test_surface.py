"""What a CUDA build of torch has and a CPU build lacks: names, limits, errors, and what graphs replay."""

from __future__ import annotations

import importlib
import os
import re
import socket
import subprocess
import sys
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

D = "cuda"


def test_every_cuda_name_of_torchs_own_stub_is_there(torch: Any) -> None:
    text = Path(torch._C.__file__).with_name("_C").joinpath("__init__.pyi").read_text(encoding="utf-8")
    names = set(re.findall(r"^(?:def|class) (_(?:cuda|cudnn|nccl|Cuda|gds)_?\w+)", text, re.M))
    names |= {
        "_broadcast",
        "_broadcast_coalesced",
        "_broadcast_out",
        "_scatter",
        "_scatter_out",
        "_gather",
        "_gather_out",
    }
    assert len(names) > 90
    assert sorted(name for name in names if not hasattr(torch._C, name)) == []


def test_what_is_not_simulated_names_the_call(torch: Any) -> None:
    with pytest.raises(NotImplementedError, match="jiterator is not simulated"):
        torch._C._cuda_jiterator_compile_and_launch_kernel("", "", False, 1, (), {})


def test_what_is_asked_before_a_test_is_skipped(torch: Any) -> None:
    properties = torch.cuda.get_device_properties(0)
    assert (
        torch.version.cuda and torch.backends.cudnn.is_available() and torch.backends.cudnn.version() > 90000
    )
    assert f"sm_{properties.major}{properties.minor}" in torch.cuda.get_arch_list()
    assert properties.total_memory == torch.cuda.mem_get_info()[1]
    assert str(torch.cuda.get_device_properties(1).uuid) != str(properties.uuid)
    assert len(properties.uuid.bytes) == 16 and "total_memory=" in repr(properties)
    assert torch.cuda.is_bf16_supported()
    assert 0 <= torch.cuda.utilization() <= 100 and torch.cuda.temperature() > 0
    pynvml = importlib.import_module("pynvml")
    assert pynvml.nvmlDeviceGetCount() == torch.cuda.device_count()
    assert pynvml.nvmlDeviceGetMemoryInfo(0).total == properties.total_memory
    near = sum(word << 64 * index for index, word in enumerate(pynvml.nvmlDeviceGetCpuAffinity(0, 4)))
    assert near.bit_count() == os.cpu_count()
    with pytest.raises(pynvml.NVMLError_NotSupported) as caught:  # the class of its number
        pynvml.nvmlDeviceGetFanSpeed(0)
    assert caught.value.value == pynvml.NVML_ERROR_NOT_SUPPORTED


# -- memory ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1 << 33, 20 << 30, 1 << 50])
def test_memory_ends_before_the_hosts_is_touched(torch: Any, size: int) -> None:
    torch.cuda.empty_cache()
    total = torch.cuda.mem_get_info()[1]
    with pytest.raises(
        torch.OutOfMemoryError, match=r"CUDA out of memory. Tried to allocate .* GiB. GPU 0 has a total"
    ):
        torch.empty(max(size, total + 1), dtype=torch.uint8, device=D)
    assert torch.empty(total // 2, dtype=torch.uint8, device=D).is_cuda  # the silent twin


def test_memory_of_a_fraction(torch: Any) -> None:
    torch.cuda.empty_cache()
    torch.cuda.set_per_process_memory_fraction(0.1)
    try:
        with pytest.raises(torch.OutOfMemoryError, match="allowed"):
            torch.empty(4 << 30, dtype=torch.uint8, device=D)
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    torch.empty(4 << 30, dtype=torch.uint8, device=D)
    torch.cuda.empty_cache()


def test_statistics_count_as_the_caching_allocator_does(torch: Any) -> None:
    torch.cuda.empty_cache()
    before = torch.cuda.memory_stats()
    small = torch.empty(100, dtype=torch.uint8, device=D)
    large = torch.empty(3 << 20, dtype=torch.uint8, device=D)
    now = torch.cuda.memory_stats()

    def more(name: str) -> int:
        return int(now[name] - before[name])

    assert (more("allocation.small_pool.current"), more("allocation.large_pool.current")) == (1, 1)
    assert (more("allocated_bytes.small_pool.current"), more("requested_bytes.small_pool.current")) == (
        512,
        100,
    )
    assert more("segment.large_pool.current") == 1 and more("reserved_bytes.large_pool.current") == 20 << 20
    assert more("inactive_split_bytes.large_pool.current") == 17 << 20
    del small, large
    after = torch.cuda.memory_stats()
    assert after["allocation.all.current"] == before["allocation.all.current"]
    assert after["active_bytes.all.current"] == before["active_bytes.all.current"]
    assert "Allocated memory" in torch.cuda.memory_summary()


def test_statistics_of_pinned_memory(torch: Any) -> None:
    size = 40 << 20  # a block of 64 MiB: no other test leaves one behind
    before = torch.cuda.host_memory_stats()
    held = torch.empty(size, dtype=torch.uint8, pin_memory=True)
    now = torch.cuda.host_memory_stats()
    del held
    after = torch.cuda.host_memory_stats()
    counted = [
        tuple(stats[name + ".current"] - before[name + ".current"] for stats in (now, after))
        for name in ("active_requests", "active_bytes", "allocations", "allocated_bytes")
    ]
    assert counted == [(1, 0), (64 << 20, 0), (1, 1), (64 << 20, 64 << 20)]
    assert now["num_host_alloc"] == before["num_host_alloc"] + 1 and now["host_alloc_time.count"] >= 0
    torch.cuda.reset_peak_host_memory_stats()
    again = torch.cuda.host_memory_stats()
    assert again["active_bytes.peak"] == again["active_bytes.current"]


@pytest.mark.parametrize("empty", [True, False])
def test_an_empty_graph_warns(torch: Any, empty: bool) -> None:
    value, graph = torch.ones(2, device=D), torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with torch.cuda.graph(graph):
            if not empty:
                value.add_(1)
    assert ["The CUDA Graph is empty" in str(each.message) for each in caught] == [True] * empty


TYPES_FIRST = """
from streamsafe.simulate import torch as simulate
simulate.install()
import torch
made = {made}
assert made.is_cuda if isinstance(made, torch.Tensor) else made.device.type == "cuda", made
"""


@pytest.mark.parametrize(
    "made",
    [
        "torch.cuda.FloatTensor([1])",
        "torch.ones(2).type(torch.cuda.HalfTensor)",
        "torch.UntypedStorage(4, device='cuda')",
    ],
)
def test_a_type_makes_device_memory_as_the_first_call_of_cuda(torch: Any, made: str) -> None:
    subprocess.run([sys.executable, "-c", TYPES_FIRST.format(made=made)], check=True)


def test_snapshots_and_history(torch: Any) -> None:
    torch.cuda.memory._record_memory_history(max_entries=100)
    try:
        held = torch.empty(5000, device=D)
        snapshot = torch.cuda.memory._snapshot()
    finally:
        torch.cuda.memory._record_memory_history(enabled=None)
    address = held.untyped_storage().data_ptr()
    blocks = [block for segment in snapshot["segments"] for block in segment["blocks"]]
    (block,) = [block for block in blocks if block["address"] == address]
    assert (block["state"], block["requested_size"]) == ("active_allocated", 20000)
    assert block["frames"][0]["name"] == "test_snapshots_and_history"
    entries = [entry for entry in snapshot["device_traces"][0] if entry.get("addr") == address]
    assert entries[-1]["action"] == "alloc"
    for segment in snapshot["segments"]:
        assert sum(each["size"] for each in segment["blocks"]) == segment["total_size"]


def test_an_observer_hears_that_memory_is_out(torch: Any) -> None:
    heard: list[tuple[int, ...]] = []
    torch._C._cuda_attach_out_of_memory_observer(lambda *numbers: heard.append(numbers))
    with pytest.raises(torch.OutOfMemoryError):
        torch.empty(1 << 50, dtype=torch.uint8, device=D)
    assert heard[0][:2] == (0, 1 << 50)


# -- devices ---------------------------------------------------------------------------------------------------------

MIXED: dict[str, Callable[..., Any]] = {
    "mm": lambda torch, a, b, i: a @ b,
    "add": lambda torch, a, b, i: a + b,
    "linear": lambda torch, a, b, i: torch.nn.functional.linear(a, b),
    "cat": lambda torch, a, b, i: torch.cat([a, b]),
    "conv2d": lambda torch, a, b, i: torch.nn.functional.conv2d(a[None, None], b[None, None]),
    "layer_norm": lambda torch, a, b, i: torch.nn.functional.layer_norm(a, (4,), b[0]),
    "gather": lambda torch, a, b, i: a.gather(0, i),
    "embedding": lambda torch, a, b, i: torch.nn.functional.embedding(i.view(-1), a),
    "mse": lambda torch, a, b, i: torch.nn.functional.mse_loss(a, b),
    "index_select": lambda torch, a, b, i: a.index_select(0, i.view(-1)[:1]),
}


@pytest.mark.parametrize("other", ["cuda:1", "cpu"])
@pytest.mark.parametrize("name", MIXED)
def test_tensors_of_two_devices_are_refused(torch: Any, name: str, other: str) -> None:
    a, b = torch.ones(4, 4, device="cuda:0"), torch.ones(4, 4)
    zeros = torch.zeros(4, 4, device="cuda:0")
    MIXED[name](torch, a, zeros if "e" in name else a, zeros.long())  # the silent twin
    b = b.zero_().to(other)
    i = b.long()  # freed inside, while the error is on its way, it would break torch's own GPU trace
    with pytest.raises(RuntimeError, match=r"Expected all tensors to be on the same device|should be on"):
        MIXED[name](torch, a, b, i)


def test_what_may_be_of_two_devices(torch: Any) -> None:
    a = torch.ones(4, device=D)
    assert (a + torch.tensor(1.0)).sum().item() == 8
    assert a[torch.tensor([0, 1])].shape == (2,)
    a[torch.tensor([0])] = 5
    torch._foreach_add_([a, torch.ones(2, device="cuda:1")], 1)
    torch.where(a > 2, a, torch.tensor(0.0))


def test_types_as_cuda_takes_them(torch: Any) -> None:
    half = torch.ones(2, device=D, dtype=torch.half)
    assert half.clamp(max=9e9).tolist() == [1, 1]
    assert half.clamp(min=9e9).tolist() == [float("inf")] * 2
    ints = torch.ones(2, 2, device=D, dtype=torch.int32)
    with pytest.raises(NotImplementedError, match="\"addmm_cuda\" not implemented for 'Int'"):
        ints @ ints
    narrow = torch.ones(16, 24, device=D).to(torch.float8_e4m3fn)
    scale = torch.ones((), device=D)
    with pytest.raises(RuntimeError, match=r"divisible by 16 but got mat1 shape: \(16x24\)"):
        torch._scaled_mm(narrow, narrow.t(), scale, scale, out_dtype=torch.bfloat16)
    eight = torch.ones(16, 16, device=D).to(torch.float8_e4m3fn)
    assert torch._scaled_mm(eight, eight.t(), scale, scale, out_dtype=torch.bfloat16)[0, 0].item() == 16
    assert isinstance(half, torch.cuda.HalfTensor) and not isinstance(half, torch.cuda.FloatTensor)
    assert torch.cuda.FloatTensor([1, 2]).sum().item() == 3
    assert torch.cuda.FloatTensor(2, 3).shape == (2, 3)


# -- time and synchronization ----------------------------------------------------------------------------------------


def test_work_takes_time(torch: Any) -> None:
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        start.record()
        torch.cuda._sleep(2_000_000_000)
        end.record()
    assert not end.query() and not side.query() and torch.cuda.default_stream().query()
    with pytest.raises(RuntimeError, match="device not ready"):
        start.elapsed_time(end)
    torch.cuda.default_stream().wait_event(end)
    assert not torch.cuda.default_stream().query()
    end.synchronize()
    assert end.query() and side.query() and torch.cuda.default_stream().query()
    assert start.elapsed_time(end) > 1000


def test_a_program_that_polls_ends(torch: Any) -> None:
    torch.cuda._sleep(1_000_000)
    event = torch.cuda.current_stream().record_event()
    while not event.query():
        pass


def test_calls_that_block_the_host_are_told_when_asked(torch: Any) -> None:
    x = torch.ones((), device=D)
    torch.cuda.set_sync_debug_mode("error")
    try:
        with pytest.raises(RuntimeError, match="called a synchronizing CUDA operation"):
            x.item()
        x.add_(1)  # the silent twin
        torch.cuda.set_sync_debug_mode("warn")
        with pytest.warns(UserWarning, match="called a synchronizing CUDA operation"):
            x.item()
    finally:
        torch.cuda.set_sync_debug_mode(0)


# -- generators ------------------------------------------------------------------------------------------------------


def test_a_generator_is_a_seed_and_an_offset(torch: Any) -> None:
    generator = torch.cuda.default_generators[0]
    torch.cuda.manual_seed(7)
    assert (torch.cuda.initial_seed(), generator.get_offset(), torch.cuda.get_rng_state().numel()) == (
        7,
        0,
        16,
    )
    first = torch.rand(4, device=D)
    state = torch.cuda.get_rng_state()
    second = torch.rand(4, device=D)
    assert generator.get_offset() == 8 and not torch.equal(first, second)
    torch.cuda.set_rng_state(state)
    assert torch.equal(torch.rand(4, device=D), second)
    generator.set_offset(4)
    assert torch.equal(torch.rand(4, device=D), second)
    copied = generator.clone_state()
    assert torch.equal(torch.rand(4, device=D, generator=copied), torch.rand(4, device=D))


def test_a_graph_draws_what_eager_work_draws(torch: Any) -> None:
    x = torch.ones(64, device=D)

    def step() -> Any:
        return torch.nn.functional.dropout(torch.nn.functional.dropout(x)) + torch.rand(64, device=D)

    torch.manual_seed(5)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = step()
    graph.replay()
    first = out.clone()
    graph.replay()
    torch.manual_seed(5)
    assert torch.equal(first, step()) and torch.equal(out, step())


# -- graphs ----------------------------------------------------------------------------------------------------------


def test_the_graph_that_is_captured_into(torch: Any) -> None:
    graph = torch.cuda.CUDAGraph()
    with pytest.raises(RuntimeError, match="no graph"):
        torch._C._CUDAGraph.get_currently_capturing_graph()
    with torch.cuda.graph(graph):
        torch.ones(1, device=D)
        assert torch._C._CUDAGraph.get_currently_capturing_graph() is graph
    with pytest.raises(RuntimeError, match="no graph"):
        torch._C._CUDAGraph.get_currently_capturing_graph()


def test_a_capture_that_ends_in_two_steps(torch: Any) -> None:
    """As torch 2.14 ends it, which keeps the pools that a graph holds, too."""
    x, graph = torch.zeros(2, device=D), torch._C._CUDAGraph()
    pool = torch.cuda.graph_pool_handle()
    with torch.cuda.stream(torch.cuda.Stream()):
        graph.capture_begin(pool=pool)
        y = x + 1
        graph._retain_pool((0, 99))
        assert not graph._has_graph_exec
        graph.capture_end_pre()
        graph.instantiate()
        graph.capture_end_post()
    assert graph._has_graph_exec and graph.pools() == [tuple(pool), (0, 99)]
    x.fill_(4)
    graph.replay()
    assert y.tolist() == [5, 5]
    graph.reset()
    assert graph.pools() == [] and not graph._has_graph_exec


UNARY = (
    "abs acos angle asin atan ceil cos cosh deg2rad digamma erf erfc erfinv exp exp2 expm1 floor frac lgamma log log1p "
    "neg positive reciprocal relu round rsqrt selu sigmoid sign sgn signbit sin sinh sqrt square tan tanh trunc isnan "
    "logical_not real conj t clone contiguous triu tril"
).split()
BINARY = (
    "add sub mul div pow fmod remainder maximum minimum atan2 hypot logaddexp xlogy eq lt ge mm matmul dist cdist "
    "copysign nextafter heaviside float_power floor_divide polar complex"
).split()
OTHERS: dict[str, Callable[[Any, Any], Any]] = {
    "arange": lambda torch, x: x + torch.arange(4.0, device=D),
    "linspace": lambda torch, x: x + torch.linspace(0, 1, 4, device=D),
    "eye": lambda torch, x: x + torch.eye(4, device=D),
    "full": lambda torch, x: x + torch.full((4, 4), 2.0, device=D),
    "out of another size": lambda torch, x: torch.add(x, 1, out=torch.empty(0, device=D)),
    "sort": lambda torch, x: x.sort(0)[0],
    "topk": lambda torch, x: x.topk(2)[0].sum() + x,
    "split": lambda torch, x: torch.cat(list(x.split(2)), 0),
    "var_mean": lambda torch, x: torch.var_mean(x, 0)[0] + x,
    "unbind": lambda torch, x: torch.stack(x.unbind(0)),
    "one_hot": lambda torch, x: x + torch.nn.functional.one_hot(torch.arange(4, device=D), 4),
    "layer_norm": lambda torch, x: torch.nn.functional.layer_norm(x, (4,)),
    "sdpa": lambda torch, x: torch.nn.functional.scaled_dot_product_attention(x[None], x[None], x[None])[0],
    "svd": lambda torch, x: torch.linalg.svd(x)[1] + x,
    "foreach": lambda torch, x: torch._foreach_add([x, x], 1)[1],
}


def _cases(torch: Any) -> dict[str, Callable[[Any], Any]]:
    def of_two(name: str) -> Callable[[Any], Any]:
        return lambda x: getattr(torch, name)(x, x * 0.5 + 0.1)

    def of_one(name: str) -> Callable[[Any], Any]:
        found: Callable[[Any], Any] = getattr(torch, name, None) or getattr(torch.Tensor, name)
        return found

    cases = {name: of_one(name) for name in UNARY} | {f"{name} of two": of_two(name) for name in BINARY}
    return cases | {name: partial(function, torch) for name, function in OTHERS.items()}


def test_a_replay_computes_what_was_captured(torch: Any) -> None:
    wrong = []
    for name, function in _cases(torch).items():
        first, second = (torch.rand(4, 4, device=D) * 0.4 + shift for shift in (0.1, 0.55))
        x, graph = first.clone(), torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            made = function(x)
            torch.zeros(1, device=D)  # a view alone leaves the graph empty
        x.copy_(second)
        graph.replay()
        expected = function(second)
        if made.shape != expected.shape or not torch.allclose(made, expected, equal_nan=True):
            wrong.append(name)
    assert wrong == []


# -- several devices -------------------------------------------------------------------------------------------------


def test_copies_between_devices(torch: Any) -> None:
    comm = torch.nn.parallel.comm
    x = torch.arange(8.0, device="cuda:0")
    one, other = comm.broadcast(x, [0, 1])
    assert (one.device.index, other.device.index) == (0, 1) and torch.equal(other.cpu(), x.cpu())
    parts = comm.scatter(x, [0, 1], chunk_sizes=[2, 6])
    assert [part.shape[0] for part in parts] == [2, 6] and parts[1].device.index == 1
    assert torch.equal(comm.gather(parts, destination=0), x)
    assert comm.reduce_add([one, other], 0).tolist() == (x * 2).tolist()
    assert comm.broadcast_coalesced([x, x], [0, 1])[1][0].device.index == 1


def test_data_parallel(torch: Any) -> None:
    plain = torch.nn.Linear(4, 2).cuda()
    x = torch.ones(6, 4, device=D)
    parallel = torch.nn.DataParallel(plain, device_ids=[0, 1])
    assert torch.allclose(parallel(x), plain(x))
    parallel(x).sum().backward()
    assert plain.weight.grad.abs().sum().item() > 0


def test_a_batch_norm_that_processes_share(torch: Any) -> None:
    x = torch.randn(8, 3, 5, device=D)
    norm = torch.nn.BatchNorm1d(3).cuda()
    mean, invstd = torch.batch_norm_stats(x, norm.eps)
    counts = torch.full((1,), 40.0, device=D)
    running = norm.running_mean.clone(), norm.running_var.clone()
    mean, invstd = torch.batch_norm_gather_stats_with_counts(
        x, mean[None], invstd[None], *running, 0.1, norm.eps, counts
    )
    made = torch.batch_norm_elemt(x, norm.weight, norm.bias, mean, invstd, norm.eps)
    assert torch.allclose(made, norm(x), atol=1e-5)
    assert torch.allclose(running[0], norm.running_mean) and torch.allclose(running[1], norm.running_var)


# -- torch.compile and torch.distributed -----------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_what_inductor_would_compile_runs(torch: Any, capfd: pytest.CaptureFixture[str]) -> None:
    linear = torch.nn.Linear(4, 4).cuda()
    x = torch.ones(2, 4, device=D)
    assert torch.allclose(torch.compile(linear)(x), linear(x))
    assert torch.allclose(torch.compile(lambda y: y * 2 + 1, mode="reduce-overhead")(x), x * 2 + 1)
    torch._dynamo.reset()


DISTRIBUTED = """
import os, sys
from streamsafe.simulate import torch as simulate
simulate.install(2)
import torch, torch.distributed as dist, torch.multiprocessing as mp

def work(rank, backend, port):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.cuda.set_device(rank)
    dist.init_process_group(backend, rank=rank, world_size=2)
    x = torch.full((4,), rank + 1.0, device="cuda")
    dist.all_reduce(x)
    assert x.tolist() == [3.0] * 4 and x.is_cuda
    parts = [torch.empty(4, device="cuda") for _ in range(2)]
    dist.all_gather(parts, x + rank)
    assert [part[0].item() for part in parts] == [3.0, 4.0]
    handle = dist.broadcast(x.mul_(rank), src=1, async_op=True)
    handle.wait()
    assert x.tolist() == [3.0] * 4
    if rank == 0:
        dist.send(x + 1, 1)
    else:
        dist.recv(x, 0)
        assert x.tolist() == [4.0] * 4
    dist.barrier()
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 2).cuda(), device_ids=[rank])
    model(torch.full((1, 4), rank + 1.0, device="cuda")).sum().backward()
    assert model.module.weight.grad[0, 0].item() == 1.5
    dist.destroy_process_group()
    print("done", rank, flush=True)

if __name__ == "__main__":
    work(int(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
"""


@pytest.mark.parametrize("group", ["gloo", "nccl"])
def test_collectives_between_processes(torch: Any, tmp_path: Path, group: str) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    (tmp_path / "work.py").write_text(DISTRIBUTED, encoding="utf-8")
    root = Path(__file__).resolve().parents[2]
    command = [sys.executable, str(tmp_path / "work.py")]
    started = [
        subprocess.Popen(
            [*command, str(rank), group, str(port)],
            env={**os.environ, "PYTHONPATH": str(root)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(2)
    ]
    said = [process.communicate(timeout=120)[0] for process in started]
    assert all("done" in text for text in said), said
