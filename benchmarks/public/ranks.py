"""One rank of several: DDP, FSDP, checkpoints, Lightning."""
# mypy: disable-error-code="no-untyped-call, attr-defined, import-not-found, import-untyped, misc, no-any-return"
# mypy: disable-error-code="arg-type, var-annotated"

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from typing import Any

from .kit import Values, mlp, program, squared, train, vectors


@contextlib.contextmanager
def one_rank() -> Iterator[None]:
    import torch.distributed as dist

    with tempfile.TemporaryDirectory() as folder:
        dist.init_process_group("nccl", init_method=f"file://{folder}/store", rank=0, world_size=1)
        try:
            yield
        finally:
            dist.destroy_process_group()


@program()
def ddp() -> Values:
    from torch.nn.parallel import DistributedDataParallel

    with one_rank():
        return train(
            DistributedDataParallel(mlp(), device_ids=[0], gradient_as_bucket_view=True), vectors(), squared
        )


@program()
def ddp_hook_bf16() -> Values:
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
    from torch.nn.parallel import DistributedDataParallel

    with one_rank():
        model = DistributedDataParallel(mlp(), device_ids=[0])
        model.register_comm_hook(None, default_hooks.bf16_compress_hook)
        return train(model, vectors(), squared)


def sharded(**options: Any) -> Values:
    import torch
    from torch.distributed.fsdp import fully_shard

    with one_rank():
        model = mlp()
        for layer in model:
            fully_shard(layer, **options)
        fully_shard(model, **options)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        losses = []
        for batch in vectors(5):
            optimizer.zero_grad()
            loss = squared(model, batch)
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
        return [float(each) for each in losses]


@program()
def fsdp2() -> Values:
    return sharded()


@program()
def fsdp2_cpu_offload() -> Values:
    from torch.distributed.fsdp import CPUOffloadPolicy

    return sharded(offload_policy=CPUOffloadPolicy(pin_memory=True))


@program()
def fsdp1_cpu_offload() -> Values:
    import torch
    from torch.distributed.fsdp import CPUOffload, FullyShardedDataParallel

    with one_rank():
        model = FullyShardedDataParallel(
            mlp(), cpu_offload=CPUOffload(offload_params=True), device_id=torch.device("cuda", 0)
        )
        return train(model, vectors(), squared)


@program()
def checkpoint_saved_asynchronously() -> Values:
    import torch.distributed.checkpoint as dcp

    with one_rank(), tempfile.TemporaryDirectory() as folder:
        import torch.distributed as dist

        model = mlp()
        values = train(model, vectors(2), squared)
        group = dist.new_group(backend="gloo")
        future = dcp.async_save({"model": model.state_dict()}, checkpoint_id=folder, process_group=group)
        values += train(model, vectors(2), squared)
        getattr(future, "result", lambda: None)()
        return values


@program("pytorch_lightning")
def lightning_fit() -> Values:
    import pytorch_lightning as lightning
    import torch
    from torch.utils.data import DataLoader, TensorDataset

    class Module(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.inner = mlp()
            self.losses: Values = []

        def training_step(self, batch: Any, _: int) -> Any:
            loss = squared(self.inner, batch[0])
            self.losses.append(float(loss))
            return loss

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=1e-2)

    module = Module()
    loader = DataLoader(TensorDataset(torch.randn(64, 256)), 16, pin_memory=True)
    with tempfile.TemporaryDirectory() as folder:
        trainer = lightning.Trainer(
            max_epochs=1,
            accelerator="gpu",
            devices=1,
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            default_root_dir=folder,
        )
        trainer.fit(module, loader)
    return module.losses
