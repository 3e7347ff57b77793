"""Lightning, DDP of Fabric: the first forward pass uses weights that the broadcast from rank 0 is still writing.

Under ``torchrun --nproc-per-node 2`` each rank begins with weights of its own, so a wrong result shows.
"""

import os
from contextlib import nullcontext
from types import SimpleNamespace

import torch
from own import SIZE, fresh, same, show, take
from torch import distributed, nn

setup_module = take(
    "lightning/fabric/strategies/ddp.py",
    "DDPStrategy.setup_module",
    nullcontext=nullcontext,
    override=same,
    DistributedDataParallel=nn.parallel.DistributedDataParallel,
    Module=nn.Module,
)
rank = int(os.environ.get("LOCAL_RANK", "0"))
torch.cuda.set_device(rank)
if "LOCAL_RANK" in os.environ:
    distributed.init_process_group("nccl")
else:
    distributed.init_process_group("nccl", store=distributed.HashStore(), rank=0, world_size=1)
strategy = SimpleNamespace(_determine_ddp_device_ids=lambda: [rank], _ddp_kwargs={})
x = torch.ones(8, SIZE, device="cuda")


@torch.no_grad()
def run():
    torch.manual_seed(1000 * fresh() + rank)
    with torch.device("cuda"):
        model = nn.Sequential(*[nn.Linear(SIZE, SIZE, bias=False) for _ in range(8)])
    torch.cuda.synchronize()
    model = setup_module(strategy, model).module
    got = model(x)
    torch.cuda.synchronize()
    return got, model(x)


show(run)
distributed.destroy_process_group()
