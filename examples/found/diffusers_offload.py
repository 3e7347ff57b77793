"""diffusers, ModuleGroup._offload_to_disk(): weights are freed while the forward pass still reads them."""

import hashlib
import os
import tempfile
from contextlib import contextmanager, nullcontext

import safetensors.torch
import torch
from own import SIZE, show, take

PATH = "diffusers/src/diffusers/hooks/group_offloading.py"
*_, Group = take(
    PATH,
    "_is_torchao_tensor",
    "_compute_group_hash",
    "ModuleGroup",
    os=os,
    hashlib=hashlib,
    safetensors=safetensors,
    contextmanager=contextmanager,
    nullcontext=nullcontext,
    is_torchao_available=lambda: False,
)
folder = tempfile.TemporaryDirectory()
stream = torch.cuda.Stream()


def group(number):
    """A layer whose weights are all the same, in a file when nothing runs it."""
    layer = torch.nn.Linear(SIZE, SIZE, bias=False)
    torch.nn.init.constant_(layer.weight, number / SIZE)
    made = Group(
        [layer],
        torch.device("cpu"),
        torch.device("cuda"),
        layer,
        stream=stream,
        offload_to_disk_path=folder.name,
        group_id=str(number),
    )
    made.offload_()
    return made


groups = [group(1), group(2)]


def run():
    """What the hooks do before and after each layer."""
    with torch.no_grad():
        x = torch.ones(4 * SIZE, SIZE, device="cuda")
        results = []
        for each in groups:
            each.onload_()
            stream.synchronize()
            (layer,) = each.modules
            results.append(layer(x))
            each.offload_()
        torch.cuda.synchronize()
        return torch.stack([each.mean() for each in results]), torch.tensor([1.0, 2.0])


show(run)
