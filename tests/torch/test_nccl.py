"""Process groups of NCCL on simulated devices: what the collectives compute, and the order that they have."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "fixtures" / "distributed"
PROGRAMS = sorted(path.stem for path in FOLDER.glob("*.py") if path.stem not in ("common", "rank"))
RANKS = 2


def torchrun(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        f"--nproc-per-node={RANKS}",
        *arguments,
    ]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("STREAMSAFE")}
    return subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=500,
        env={**environment, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
    )


@pytest.fixture(scope="module")
def seen(backend: Any, request: pytest.FixtureRequest) -> dict[str, list[dict[str, Any]]]:
    """What each rank saw of each program, in one start."""
    if request.config.getoption("--gpu"):
        pytest.skip("benchmarks/distributed.py does this on GPUs")
    done = torchrun(str(FOLDER / "rank.py"), *PROGRAMS, "--simulate", "--sanitize", "--repeat=1")
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in PROGRAMS}
    for start in re.finditer(r"RANK (?=\{)", done.stdout):
        one, _ = json.JSONDecoder().raw_decode(done.stdout, start.end())
        found[one["program"]].append(one)
    assert all(found.values()), done.stdout[-2000:] + done.stderr[-4000:]
    return found


@pytest.mark.parametrize("program", PROGRAMS)
def test_programs_of_two_ranks(seen: dict[str, list[dict[str, Any]]], program: str) -> None:
    lines = (FOLDER / f"{program}.py").read_text(encoding="utf-8").splitlines()
    expected = next(line.split()[-1] for line in lines if line.startswith("# expect:"))
    marked = {at for at, line in enumerate(lines, 1) if line.endswith("# HAZARD")}
    assert len(seen[program]) == RANKS
    for rank in seen[program]:
        assert rank.get("error") is None
        assert rank["backend"] == "nccl"
        assert {code for code, _, _ in rank["hazards"]} == ({expected} - {"none"})
        assert all(second in marked for _, _, second in rank["hazards"])


VALUES = """
import os, sys
from streamsafe.simulate import torch as simulate
simulate.install(devices=2)
import torch, torch.distributed as dist
from torch.distributed import ReduceOp
rank = int(os.environ["RANK"]); other = 1 - rank
torch.cuda.set_device(rank)
dist.init_process_group("nccl", device_id=torch.device("cuda", rank))
full = lambda value, n=4, dtype=torch.float32: torch.full((n,), value, device="cuda", dtype=dtype)

def check(name, tensor, value):
    assert tensor.tolist() == (value if isinstance(value, list) else [value] * tensor.numel()), (name, tensor)

for op, value in ((ReduceOp.SUM, 3), (ReduceOp.AVG, 1.5), (ReduceOp.MAX, 2), (ReduceOp.PRODUCT, 2)):
    x = full(rank + 1.0); dist.all_reduce(x, op); check(op, x, value)
x = full(rank + 1.0); dist.all_reduce(x, dist._make_nccl_premul_sum(0.5)); check("premul", x, 1.5)
x = full(rank + 1.0, dtype=torch.bfloat16); dist.all_reduce(x, ReduceOp.AVG); check("bfloat16", x, 1.5)
x = full(3 + 2 * rank, dtype=torch.int64); dist.all_reduce(x, ReduceOp.AVG); check("int", x, 4)
x = full(rank == 0, dtype=torch.bool); dist.all_reduce(x); check("bool", x, True)
x = torch.full((2,), 1j * (rank + 1), device="cuda"); dist.all_reduce(x); check("complex", x, 3j)
x = full(float(rank)).to(torch.float8_e4m3fn); dist.broadcast(x, 1); check("float8", x.float(), 1.0)
x = full(rank, dtype=torch.int16); dist.broadcast(x, 1); check("int16", x, 1)
x = full(rank + 1.0); dist.reduce(x, 0, ReduceOp.AVG)
if rank == 0: check("reduce", x, 1.5)
out = full(0.0, 8); dist.all_gather_into_tensor(out, full(rank + 1.0)); check("gather", out, [1.0] * 4 + [2.0] * 4)
for shape in ((2, 4), (4, 2), (8,), (1, 2, 4)):
    out = torch.zeros(shape, device="cuda"); dist.all_gather_into_tensor(out, full(rank + 1.0))
    check("gather of shapes", out.flatten(), [1.0] * 4 + [2.0] * 4)
    out = torch.zeros(shape, device="cuda", dtype=torch.int16)
    dist.all_gather_into_tensor(out, full(rank + 1, dtype=torch.int16).view(2, 2))
    check("gather of bytes", out.flatten(), [1] * 4 + [2] * 4)
    out = full(0.0); dist.reduce_scatter_tensor(out, torch.full(shape, rank + 1.0, device="cuda"))
    check("scatter of shapes", out, 3.0)
try:
    dist.all_gather_into_tensor(full(0.0, 6), full(1.0))
except (RuntimeError, ValueError):
    pass
else:
    raise AssertionError("an output that is too small is refused")
outs = [torch.zeros(4, 2, device="cuda"), torch.zeros(2, 4, device="cuda")]
with dist._coalescing_manager(device=torch.device("cuda", rank)):
    for out in outs: dist.all_gather_into_tensor(out, full(rank + 1.0))
check("coalesced gather of shapes", outs[0].flatten(), [1.0] * 4 + [2.0] * 4)
outs = [full(0.0), full(0.0).view(2, 2)]
with dist._coalescing_manager(device=torch.device("cuda", rank)):
    for out in outs: dist.reduce_scatter_tensor(out, torch.full((2, 4), rank + 1.0, device="cuda"))
check("coalesced scatter of shapes", outs[1].flatten(), 3.0)
outs = [full(0.0, 4), full(0.0, 4)]; dist.all_gather(outs, full(rank + 1.0)); check("all_gather", outs[1], 2.0)
out = full(0.0); dist.reduce_scatter_tensor(out, full(rank + 1.0, 8), ReduceOp.AVG); check("scatter", out, 1.5)
out = full(0.0); dist.reduce_scatter(out, [full(1.0 + rank), full(2.0 + rank)]); check("list", out, 3.0 + 2 * rank)
out = full(0.0); dist.all_to_all_single(out, full(float(rank))); check("to_all", out, [0.0, 0.0, 1.0, 1.0])
outs = [full(9.0), full(9.0)]; dist.all_to_all(outs, [full(rank * 10.0), full(rank * 10.0 + 1)])
check("all_to_all", outs[1], 10.0 + rank)
out = full(0.0); dist.scatter(out, [full(5.0), full(6.0)] if rank == 0 else None, 0); check("scatter", out, 5.0 + rank)
outs = [full(0.0), full(0.0)] if rank == 0 else None; dist.gather(full(rank + 1.0), outs, 0)
if rank == 0: check("gather", outs[1], 2.0)
work = dist.isend(full(rank + 1.0), other); x = full(0.0); dist.recv(x, other); work.wait()
check("send", x, other + 1.0)
x = full(0.0)
for work in dist.batch_isend_irecv([dist.P2POp(dist.isend, full(rank + 7.0), other), dist.P2POp(dist.irecv, x, other)]):
    work.wait()
check("batch", x, other + 7.0)
pair = [full(rank + 1.0), full(rank + 2.0)]
with dist._coalescing_manager(device=torch.device("cuda", rank), async_ops=True) as manager:
    for each in pair: dist.all_reduce(each)
manager.wait(); check("coalesced", pair[1], 5.0)
outs = [full(0.0, 8), full(0.0, 8)]
with dist._coalescing_manager(device=torch.device("cuda", rank)):
    for out in outs: dist.all_gather_into_tensor(out, full(rank + 1.0))
check("coalesced gather", outs[1], [1.0] * 4 + [2.0] * 4)
x = full(rank + 1.0); work = dist.all_reduce(x, async_op=True); torch.cuda.synchronize(); check("synchronize", x, 3)
x = full(rank + 1.0); future = dist.all_reduce(x, async_op=True).get_future(); check("future", future.wait()[0], 3)
said = [None, None]; dist.all_gather_object(said, {"rank": rank}); assert said[1] == {"rank": 1}
try:
    dist.all_reduce(torch.ones(1))
except RuntimeError as error:
    assert "No backend type associated with device type cpu" in str(error)
else:
    raise AssertionError("a CPU tensor is refused")
group = dist.new_group([0, 1]); x = full(1.0); dist.all_reduce(x, group=group); check("new_group", x, 2.0)
side, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
x, y = full(rank + 1.0), full(0.0)
torch.cuda.synchronize()
with torch.cuda.graph(graph, stream=side):
    y.copy_(x); work = dist.all_reduce(y, async_op=True); work.wait(); y.add_(1)
check("captured", y, 0.0)
graph.replay(); check("replayed", y, 4.0)
x.fill_(rank + 2.0); graph.replay(); check("replayed again", y, 6.0)
dist.barrier(); dist.destroy_process_group()
os.write(1, f"done {rank}\\n".encode())
"""


def test_what_collectives_compute(torch: Any, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    if request.config.getoption("--gpu"):
        pytest.skip("one process has one GPU")
    (tmp_path / "values.py").write_text(VALUES, encoding="utf-8")
    done = torchrun(str(tmp_path / "values.py"))
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-6000:]
    assert sorted(done.stdout.split("\n"))[-2:] == ["done 0", "done 1"]
