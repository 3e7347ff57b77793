"""lmdeploy, CacheEngine.swap_in(): the memory of the indices is given out again while a copy still reads it."""

import torch
from own import SIMULATED, show, take

names = ["_as_mem_pools", "_swap", "swap_in"]
methods = take("lmdeploy/lmdeploy/pytorch/engine/cache_engine.py", *[f"CacheEngine.{name}" for name in names])
BLOCKS, SIZE = (8, 64) if SIMULATED else (64, 1 << 22)


class Engine(type("Methods", (), dict(zip(names, methods, strict=True)))):
    def __init__(self):
        self.cache_stream, self.events = torch.cuda.Stream(), torch.cuda.Event()
        self.full_cpu_cache = torch.ones(2, BLOCKS, SIZE, dtype=torch.uint8).pin_memory()
        self.full_gpu_cache = torch.zeros(2, BLOCKS, SIZE, dtype=torch.uint8, device="cuda")


engine = Engine()


def run():
    engine.full_gpu_cache.zero_()
    torch.cuda.synchronize()
    engine.swap_in({0: 0, 1: 1})
    other = torch.full((2,), BLOCKS - 1, device="cuda")  # another index tensor of the same size
    engine.events.synchronize()
    return engine.full_gpu_cache[:, :, 0].clone(), (torch.arange(BLOCKS) < 2).expand(
        2, -1
    ) + 0 * other.cpu().sum()


show(run)
