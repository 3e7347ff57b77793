"""SGLang, fuse_scale_shift_kernel(): the host tests a condition whose copy is still running."""

from types import SimpleNamespace

import torch
from own import SIMULATED, SIZE, busy, show, take

PATH = "sglang/sglang/jit_kernel/diffusion/triton/scale_shift.py"
if SIMULATED:  # it has no Triton: a kernel that does the same

    class Kernel:
        def __getitem__(self, grid):
            return lambda x, shift, scale, one, out, *rest, **options: out.copy_(x * (one + scale) + shift)

    triton = SimpleNamespace(cdiv=lambda a, b: -(-a // b))
    fused = take(PATH, "fuse_scale_shift_kernel", triton=triton, fuse_scale_shift_kernel_blc_opt=Kernel())
else:
    import triton
    import triton.language as tl

    _, fused = take(PATH, "fuse_scale_shift_kernel_blc_opt", "fuse_scale_shift_kernel", triton=triton, tl=tl)

x = torch.ones(1, SIZE, SIZE, device="cuda")


def run():
    for number in (0.0, 3.0):  # what the model says for two layers
        zero = busy()[0, 0] * 0
        out = fused(x, zero + number, zero)
    return out, 4 * x


show(run)
