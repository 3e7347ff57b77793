"""fairscale, OffloadModel: the forward pass uses parameters whose copies to the device are still running."""

import functools
import logging
from typing import Any

import torch
from own import SIZE, show, take
from torch import nn

*_, Model = take(
    "fairscale/fairscale/experimental/nn/offload.py",
    "_conditional_amp_fwd_decorator",
    "_conditional_amp_bwd_decorator",
    "_split",
    "ModelShard",
    "OffloadFunction",
    "ShardSyncLayer",
    "OffloadModel",
    functools=functools,
    logging=logging,
    nn=nn,
    Any=Any,
    List=list,
    Tuple=tuple,
)


def layers():
    torch.manual_seed(0)
    return nn.Sequential(*[nn.Linear(SIZE, SIZE, bias=False) for _ in range(4)])


reference = layers().cuda()
x = torch.ones(8, SIZE, device="cuda", requires_grad=True)


def run():
    model = Model(layers(), torch.device("cuda"), torch.device("cpu"), num_slices=4)
    right = reference(x)
    torch.cuda.synchronize()
    return model(x), right


show(run)
