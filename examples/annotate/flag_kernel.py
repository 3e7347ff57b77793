"""Two Triton kernels that meet through a flag in memory: no event is involved, and no hook can see the order.

    streamsafe run examples/annotate/flag_kernel.py               # no hazard
    streamsafe run examples/annotate/flag_kernel.py --say-nothing # SS101: the order is there, and nobody has said so

Needs a GPU (the second kernel spins until the first one is done) and Triton.
"""

import sys

import torch
import triton
import triton.language as tl

import streamsafe

BLOCK = 1024


@triton.jit
def fill(x, flag, value, BLOCK: tl.constexpr):
    """Writes ``x``, then sets the flag."""
    tl.store(x + tl.arange(0, BLOCK), value)
    tl.debug_barrier()
    tl.atomic_xchg(flag, 1, sem="release")


@triton.jit
def use(out, x, flag, BLOCK: tl.constexpr):
    """Spins until the flag is set, then reads ``x``."""
    while tl.atomic_cas(flag, 1, 1, sem="acquire") != 1:
        pass
    tl.debug_barrier()
    tl.store(out + tl.arange(0, BLOCK), tl.load(x + tl.arange(0, BLOCK), volatile=True) * 2)


def main(said):
    producer, consumer = torch.cuda.Stream(), torch.cuda.Stream()
    x, out = torch.zeros(BLOCK, device="cuda"), torch.zeros(BLOCK, device="cuda")
    torch.cuda.synchronize()
    for step in range(4):
        flag = torch.zeros(1, dtype=torch.int32, device="cuda")
        torch.cuda.synchronize()
        with torch.cuda.stream(producer):
            fill[(1,)](x, flag, float(step), BLOCK=BLOCK)
            if said:
                streamsafe.annotate.release(("x", step))
        with torch.cuda.stream(consumer), streamsafe.annotate.racy(flag):  # both kernels use the flag, by atomics
            if said:
                streamsafe.annotate.acquire(("x", step))
            use[(1,)](out, x, flag, BLOCK=BLOCK)
        torch.cuda.synchronize()
        print(bool((out == 2 * step).all()))


if __name__ == "__main__":
    main("--say-nothing" not in sys.argv)
