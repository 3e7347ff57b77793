"""Activations and weights that are kept elsewhere: checkpoints, torch, TRL, diffusers, accelerate."""
# mypy: disable-error-code="no-untyped-call, attr-defined, import-not-found, import-untyped, misc, no-any-return"
# mypy: disable-error-code="arg-type, var-annotated"

from __future__ import annotations

import importlib.util
import tempfile
from pathlib import Path
from typing import Any

from .kit import Values, mlp, program, squared, train, vectors


@program()
def checkpointed() -> Values:
    from torch.utils.checkpoint import checkpoint_sequential

    model = mlp()
    return train(
        model, vectors(), lambda model, x: checkpoint_sequential(model, 2, x, use_reentrant=False).mean()
    )


@program()
def saved_on_cpu_pinned() -> Values:
    import torch

    def loss(model: Any, batch: Any) -> Any:
        with torch.autograd.graph.save_on_cpu(pin_memory=True):
            return squared(model, batch)

    return train(mlp(), vectors(), loss)


@program()
def offload_wrapper() -> Values:
    from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import offload_wrapper

    return train(offload_wrapper(mlp()), vectors(), squared)


@program("trl", "accelerate", "transformers")
def trl_activation_offloading() -> Values:
    """Saved tensors go to pinned memory and come back on a stream of their own (torchtune's code)."""
    import torch

    found = importlib.util.find_spec("trl")
    assert found is not None and found.submodule_search_locations
    path = Path(found.submodule_search_locations[0]) / "models" / "activation_offloading.py"
    spec = importlib.util.spec_from_file_location("activation_offloading", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    manager = module.OffloadActivations(use_pin_memory=True, use_streams=True, min_offload_size=1)
    model = mlp(8, 512)

    def loss(model: Any, batch: Any) -> Any:
        with manager:
            return squared(model, batch)

    return train(model, [torch.randn(64, 512, device="cuda") for _ in range(5)], loss)


class Blocks:
    """A model of blocks in a list, as diffusers and accelerate offload them."""

    def __new__(cls) -> Any:
        import torch
        from torch import nn

        class Model(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.first = nn.Linear(64, 256)
                self.blocks = nn.ModuleList([nn.Sequential(nn.Linear(256, 256), nn.ReLU()) for _ in range(6)])
                self.last = nn.Linear(256, 64)

            def forward(self, x: torch.Tensor) -> torch.Tensor:
                x = self.first(x)
                for block in self.blocks:
                    x = x + block(x)
                return self.last(x)

        return Model()


def forwards(model: Any, count: int = 4) -> Values:
    import torch

    with torch.no_grad():
        sums = [model(torch.randn(16, 64, device="cuda")).double().sum() for _ in range(count)]
    return [float(each) for each in sums]


def grouped(**options: Any) -> Values:
    import torch
    from diffusers.hooks import apply_group_offloading

    model = Blocks()
    apply_group_offloading(
        model,
        onload_device=torch.device("cuda"),
        offload_device=torch.device("cpu"),
        non_blocking=True,
        **options,
    )
    return forwards(model)


@program("diffusers")
def diffusers_groups_of_blocks() -> Values:
    return grouped(offload_type="block_level", num_blocks_per_group=1, use_stream=True)


@program("diffusers")
def diffusers_groups_of_leaves() -> Values:
    return grouped(offload_type="leaf_level", use_stream=True)


@program("diffusers")
def diffusers_groups_recorded() -> Values:
    return grouped(offload_type="leaf_level", use_stream=True, record_stream=True)


@program("diffusers")
def diffusers_groups_pinned_late() -> Values:
    return grouped(offload_type="leaf_level", use_stream=True, low_cpu_mem_usage=True)


_used: dict[str, Any] = {}


@program("diffusers")
def diffusers_groups_from_the_second_pass_on() -> Values:
    """The model of the first run: in the first pass of all, its hooks have not learned the order of its modules."""
    import torch
    from diffusers.hooks import apply_group_offloading

    if "model" not in _used:
        model = _used["model"] = Blocks()
        places = {"onload_device": torch.device("cuda"), "offload_device": torch.device("cpu")}
        apply_group_offloading(model, offload_type="leaf_level", use_stream=True, **places)
        forwards(model, 2)
    torch.manual_seed(1)
    return forwards(_used["model"])


@program("diffusers")
def diffusers_groups_without_stream() -> Values:
    return grouped(offload_type="block_level", num_blocks_per_group=2)


@program("diffusers")
def diffusers_unet_groups() -> Values:
    import torch
    from diffusers import UNet2DModel

    model = UNet2DModel(
        sample_size=16,
        block_out_channels=(16, 32),
        norm_num_groups=8,
        down_block_types=("DownBlock2D", "AttnDownBlock2D"),
        up_block_types=("AttnUpBlock2D", "UpBlock2D"),
    ).eval()
    model.enable_group_offload(
        torch.device("cuda"),
        torch.device("cpu"),
        offload_type="leaf_level",
        use_stream=True,
        non_blocking=True,
    )
    sums = []
    with torch.no_grad():
        for step in range(3):
            image = torch.randn(2, 3, 16, 16, device="cuda")
            sums.append(float(model(image, timestep=step).sample.double().sum()))
    return sums


@program("accelerate")
def accelerate_cpu_offload() -> Values:
    from accelerate import cpu_offload

    return forwards(cpu_offload(Blocks(), execution_device=0))


@program("accelerate")
def accelerate_disk_offload() -> Values:
    from accelerate import disk_offload

    with tempfile.TemporaryDirectory() as folder:
        return forwards(disk_offload(Blocks(), folder, execution_device=0))


@program("accelerate")
def accelerate_dispatched() -> Values:
    from accelerate import dispatch_model

    model = Blocks()
    places: dict[str, Any] = {
        "first": 0,
        "last": 0,
        **{f"blocks.{i}": "cpu" if i % 2 else 0 for i in range(6)},
    }
    return forwards(dispatch_model(model, places, main_device=0))


@program("accelerate")
def accelerate_hook_chain() -> Values:
    from accelerate import cpu_offload_with_hook

    model, hook = cpu_offload_with_hook(Blocks(), 0)
    sums = forwards(model, 2)
    hook.offload()
    return sums + forwards(model, 2)


@program("accelerate")
def accelerate_prepared() -> Values:
    import torch
    from accelerate import Accelerator
    from torch.utils.data import DataLoader, TensorDataset

    accelerator = Accelerator()
    loader = DataLoader(TensorDataset(torch.randn(64, 256)), 16, pin_memory=True)
    model, loader = accelerator.prepare(mlp(), loader)
    optimizer = accelerator.prepare(torch.optim.AdamW(model.parameters()))
    losses = []
    for (batch,) in loader:
        optimizer.zero_grad()
        loss = squared(model, batch)
        accelerator.backward(loss)
        optimizer.step()
        losses.append(float(loss))
    return losses
