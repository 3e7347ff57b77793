"""TorchRec, _compute_total_norm(): the host combines a gradient norm whose copy is still running."""

import torch
import torch.distributed as dist
from own import SIZE, busy, show, take

total_norm, _, _ = take(
    "torchrec/torchrec/optim/clipping.py",
    "_compute_total_norm",
    "_batch_cal_norm",
    "use_64bit_grad_norm",
    dist=dist,
)
gradient = torch.full((SIZE, SIZE), 2.0, device="cuda")


def run():
    busy()  # the backward pass
    norm = total_norm([gradient], {})
    return norm, gradient.norm()


show(run)
