"""Public programs inside the sanitizer: are they silent, and is what they compute unchanged?

python benchmarks/torch_programs.py [--only NAME ...] [--jobs N] [--simulate] [--json FILE]

Each program runs in a process of its own: twice plain, once under `sanitize("collect")`. Where the two plain runs agree
in every bit, the third must too. Prints a Markdown table, and each hazard in full. Models are small and have random
weights.

`--late`: instead, whether what was found shows in the data: each program runs once with the host waiting after each
operator, then with a spin before each operator on other streams than the default one, and on the default one.
"""
# mypy: disable-error-code="no-untyped-call, attr-defined, import-not-found, import-untyped, misc, no-any-return"
# mypy: disable-error-code="arg-type, var-annotated"

from __future__ import annotations

import argparse
import contextlib
import faulthandler
import functools
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

Values = list[float]
PROGRAMS: dict[str, tuple[Callable[[], Values], tuple[str, ...]]] = {}


def program(*needs: str) -> Callable[[Callable[[], Values]], Callable[[], Values]]:
    """Registers a program that returns its losses; ``needs``: modules besides torch."""

    def register(function: Callable[[], Values]) -> Callable[[], Values]:
        PROGRAMS[function.__name__] = function, needs
        return function

    return register


def train(model: Any, batches: Any, loss_of: Callable[..., Any], optimizer: Any = None) -> Values:
    """Losses of a few steps, and a checksum of what the parameters are in the end."""
    import torch

    optimizer = optimizer or torch.optim.SGD(model.parameters(), lr=1e-2)
    losses = []
    for batch in batches:
        optimizer.zero_grad()
        loss = loss_of(model, batch)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    total = sum(parameter.detach().double().abs().sum() for parameter in model.parameters())
    return [float(loss) for loss in losses] + [float(total)]


def images(count: int = 4, size: int = 64) -> list[Any]:
    import torch

    return [torch.randn(8, 3, size, size, device="cuda") for _ in range(count)]


def squared(model: Any, batch: Any) -> Any:
    return model(batch).float().pow(2).mean()


def mlp(depth: int = 4, width: int = 256) -> Any:
    from torch import nn

    return nn.Sequential(*[nn.Sequential(nn.Linear(width, width), nn.GELU()) for _ in range(depth)]).cuda()


def vectors(count: int = 4, width: int = 256, pinned: bool = False) -> list[Any]:
    import torch

    made = [torch.randn(32, width) for _ in range(count)]
    return [each.pin_memory() for each in made] if pinned else [each.cuda() for each in made]


# -- models ---------------------------------------------------------------------------------------------------------


@program("timm")
def timm_resnet() -> Values:
    import timm

    return train(timm.create_model("resnet18", num_classes=10).cuda(), images(), squared)


@program("timm")
def timm_vit() -> Values:
    import timm

    model = timm.create_model("vit_tiny_patch16_224", img_size=64, num_classes=10).cuda()
    return train(model, images(), squared)


@program("timm")
def timm_vit_compiled() -> Values:
    import timm
    import torch

    model = torch.compile(
        timm.create_model("vit_tiny_patch16_224", img_size=64, depth=2, num_classes=10).cuda()
    )
    return train(model, images(), squared)


@program("timm")
def timm_prefetch_loader() -> Values:
    """Its loader copies and normalizes the next batch on a stream of its own."""
    import torch
    from timm.data.loader import PrefetchLoader
    from torch.utils.data import DataLoader, TensorDataset

    data = TensorDataset(
        torch.randint(0, 255, (64, 3, 64, 64), dtype=torch.uint8), torch.zeros(64, dtype=torch.long)
    )
    loader = PrefetchLoader(DataLoader(data, 8, pin_memory=True, num_workers=2), device=torch.device("cuda"))
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.ReLU(), torch.nn.Conv2d(8, 8, 3)).cuda()
    return train(model, (images for images, _ in loader), squared)


@program("torchvision")
def torchvision_mobilenet_amp() -> Values:
    import torch
    import torchvision

    model = torchvision.models.mobilenet_v3_small(num_classes=10).cuda().to(memory_format=torch.channels_last)
    scaler, optimizer = torch.amp.GradScaler("cuda"), torch.optim.SGD(model.parameters(), lr=1e-3)
    losses = []
    for batch in images():
        optimizer.zero_grad()
        with torch.autocast("cuda", torch.float16):
            loss = squared(model, batch.to(memory_format=torch.channels_last))
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        losses.append(float(loss))
    return losses


def causal() -> Any:
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=128,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=None,
    )
    return LlamaForCausalLM(config).cuda()


@program("transformers")
def transformers_llama() -> Values:
    import torch

    tokens = [torch.randint(2, 128, (4, 32), device="cuda") for _ in range(4)]
    return train(causal(), tokens, lambda model, batch: model(batch, labels=batch).loss)


@program("transformers")
def transformers_llama_compiled() -> Values:
    import torch

    model = torch.compile(causal())
    tokens = [torch.randint(2, 128, (4, 32), device="cuda") for _ in range(4)]
    return train(model, tokens, lambda model, batch: model(batch, labels=batch).loss)


@program("transformers")
def transformers_bert_fused() -> Values:
    import torch
    from transformers import BertConfig, BertForMaskedLM

    config = BertConfig(
        vocab_size=128, hidden_size=64, num_hidden_layers=2, num_attention_heads=4, intermediate_size=128
    )
    model = BertForMaskedLM(config).cuda()
    tokens = [torch.randint(2, 128, (4, 32), device="cuda") for _ in range(4)]
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    return train(model, tokens, lambda model, batch: model(batch, labels=batch).loss, optimizer)


def generated(**options: Any) -> Values:
    import torch

    model = causal().eval()
    tokens = torch.randint(2, 128, (2, 16), device="cuda")
    out = model.generate(tokens, max_new_tokens=12, do_sample=False, **options)
    return [float(each) for each in out.flatten().cpu()]


@program("transformers")
def transformers_generate() -> Values:
    return generated()


@program("transformers")
def transformers_offloaded_cache() -> Values:
    """The cache of each layer is copied to the host, and the next one's is fetched on a stream of its own."""
    return generated(cache_implementation="offloaded")


@program("transformers")
def transformers_offloaded_static_cache() -> Values:
    return generated(cache_implementation="offloaded_static")


@program("peft", "transformers")
def peft_lora() -> Values:
    import torch
    from peft import LoraConfig, get_peft_model

    model = get_peft_model(causal(), LoraConfig(r=4, target_modules=["q_proj", "v_proj"]))
    tokens = [torch.randint(2, 128, (4, 32), device="cuda") for _ in range(4)]
    return train(model, tokens, lambda model, batch: model(batch, labels=batch).loss)


def encoder(**options: Any) -> Values:
    import torch

    layer = torch.nn.TransformerEncoderLayer(64, 4, 128, batch_first=True)
    model = torch.nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).cuda()
    batches = [torch.randn(4, 32, 64, device="cuda") for _ in range(4)]
    return train(model, batches, squared, torch.optim.AdamW(model.parameters(), lr=1e-3, **options))


@program()
def encoder_adamw_foreach() -> Values:
    return encoder(foreach=True)


@program()
def encoder_adamw_fused() -> Values:
    return encoder(fused=True)


# -- memory kept elsewhere ------------------------------------------------------------------------------------------


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


# -- loaders --------------------------------------------------------------------------------------------------------


@program()
def loader_pinned() -> Values:
    import torch
    from torch.utils.data import DataLoader, TensorDataset

    loader = DataLoader(TensorDataset(torch.randn(128, 256)), 16, pin_memory=True, num_workers=2)
    return train(mlp(), (batch.cuda(non_blocking=True) for (batch,) in loader), squared)


@program("torch_geometric")
def geometric_prefetch_loader() -> Values:
    import torch
    from torch.utils.data import DataLoader
    from torch_geometric.loader import PrefetchLoader

    data = DataLoader([torch.randn(32, 256) for _ in range(6)], batch_size=None)
    return train(mlp(), PrefetchLoader(data, device=torch.device("cuda")), squared)


@program()
def scattered() -> Values:
    """torch copies inputs of the host on a stream in the background, and joins it."""
    from torch.nn.parallel import scatter

    batches = [scatter(batch, [0])[0] for batch in vectors(6, pinned=True)]
    return train(mlp(), batches, squared)


@functools.cache
def batch_class() -> Any:
    """What torchrec's pipelines take: a batch that moves and records itself."""
    import torch
    from torchrec.streamable import Pipelineable

    class Batch(Pipelineable):
        def __init__(self, x: Any) -> None:
            self.x = x

        def to(self, device: Any, non_blocking: bool = False, data_copy_stream: Any = None) -> Batch:
            if data_copy_stream is None:
                return Batch(self.x.to(device, non_blocking=non_blocking))
            made = torch.empty_like(self.x, device=device)
            data_copy_stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(data_copy_stream):
                made.copy_(self.x, non_blocking=non_blocking)
            return Batch(made)

        def record_stream(self, stream: Any) -> None:
            self.x.record_stream(stream)

        def pin_memory(self) -> Batch:
            return Batch(self.x.pin_memory())

    return Batch


def pipelined(name: str, **options: Any) -> Values:
    import torch
    from torchrec.distributed.train_pipeline import train_pipelines

    Batch = batch_class()

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = mlp()

        def forward(self, batch: Any) -> tuple[Any, Any]:
            out = self.inner(batch.x)
            return out.pow(2).mean(), out.sum()

    model = Model()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    pipeline = getattr(train_pipelines, name)(model, optimizer, torch.device("cuda"), **options)
    batches = iter([Batch(each) for each in vectors(8, pinned=True)])
    outputs = []
    with contextlib.suppress(StopIteration):
        while True:
            outputs.append(pipeline.progress(batches).detach())
    return [float(each) for each in outputs]


@program("torchrec")
def torchrec_base() -> Values:
    return pipelined("TrainPipelineBase")


@program("torchrec")
def torchrec_base_copied_in_place() -> Values:
    return pipelined("TrainPipelineBase", enable_inplace_copy_batch=True)


@program("torchrec")
def torchrec_sparse_dist() -> Values:
    return pipelined("TrainPipelineSparseDist")


@program("torchrec")
def torchrec_sparse_dist_late() -> Values:
    return pipelined("TrainPipelineSparseDist", enqueue_batch_after_forward=True)


@program("torchrec")
def torchrec_prefetch() -> Values:
    return pipelined("PrefetchTrainPipelineSparseDist")


@program("torchrec")
def torchrec_semi_sync() -> Values:
    return pipelined("TrainPipelineSemiSync")


@program("torchrec")
def torchrec_staged() -> Values:
    """Three stages, each on a stream of its own, with events between them."""
    import torch
    from torchrec.distributed.train_pipeline.pipeline_stage import PipelineStage
    from torchrec.distributed.train_pipeline.train_pipelines import StagedTrainPipeline
    from torchrec.distributed.train_pipeline.utils import get_h2d_func

    Batch = batch_class()
    device = torch.device("cuda")
    stages = [
        PipelineStage("copy", lambda batch: get_h2d_func(batch, device), torch.cuda.Stream()),
        PipelineStage("scale", lambda batch: Batch(batch.x * 2), torch.cuda.Stream()),
        PipelineStage("shift", lambda batch: Batch(batch.x + 1), torch.cuda.Stream()),
    ]
    pipeline = StagedTrainPipeline(stages)
    batches = iter([Batch(each) for each in vectors(8, pinned=True)])

    def staged() -> Iterator[Any]:
        while (batch := pipeline.progress(batches)) is not None:
            yield batch.x

    return train(mlp(), staged(), squared)


# -- graphs ---------------------------------------------------------------------------------------------------------


@program()
def graphed_step() -> Values:
    import torch

    model = mlp()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, capturable=True)
    static = torch.randn(32, 256, device="cuda")
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            optimizer.zero_grad(set_to_none=True)
            squared(model, static).backward()
            optimizer.step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    optimizer.zero_grad(set_to_none=True)
    with torch.cuda.graph(graph):
        loss = squared(model, static)
        loss.backward()
        optimizer.step()
    losses = []
    for batch in vectors(6):
        static.copy_(batch)
        graph.replay()
        losses.append(loss.clone())
    return [float(each) for each in losses]


@program()
def graphed_callables() -> Values:
    import torch

    first, second = mlp(2), mlp(2)
    sample = torch.randn(32, 256, device="cuda", requires_grad=True)
    first, second = torch.cuda.make_graphed_callables(
        (first, second), ((sample,), (sample.clone().detach(),))
    )
    model = torch.nn.Sequential(first, second)
    return train(model, vectors(6), squared)


def reduced(model: Any, batches: Any) -> Values:
    import torch

    compiled = torch.compile(model, mode="reduce-overhead")
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    losses = []
    for batch in batches:
        torch.compiler.cudagraph_mark_step_begin()
        optimizer.zero_grad()
        loss = squared(compiled, batch)
        loss.backward()
        optimizer.step()
        losses.append(float(loss))
    return losses


@program("triton")
def graph_trees_training() -> Values:
    return reduced(mlp(), vectors(8))


@program("triton")
def graph_trees_inference() -> Values:
    import torch

    compiled = torch.compile(mlp().eval(), mode="reduce-overhead")
    sums = []
    with torch.no_grad():
        for batch in vectors(8):
            torch.compiler.cudagraph_mark_step_begin()
            sums.append(float(compiled(batch).double().sum()))
    return sums


@program("triton")
def compiled_mlp() -> Values:
    import torch

    return train(torch.compile(mlp()), vectors(6), squared)


# -- one rank of several --------------------------------------------------------------------------------------------


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


# -- one program in this process, and all of them in others ----------------------------------------------------------


def fatal(text: str) -> str:
    """What a process said when it died, without the list of its extension modules."""
    begin = max(text.find("Fatal Python error"), 0)
    end = text.find("Extension modules:", begin)
    return text[begin:end][-4000:] + ("\n(plain runs were done)" if "plain runs done" in text else "")


def seeded(function: Callable[[], Values]) -> list[str]:
    import torch

    torch.backends.cudnn.deterministic = True
    torch.manual_seed(0)
    values = [value.hex() for value in function()]
    torch.cuda.synchronize()
    return values


def late(function: Callable[[], Values]) -> dict[str, list[str]]:
    """What a program computes when the work of some streams comes late, by the streams."""
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    class Perturbed(TorchDispatchMode):
        def __init__(self, way: str) -> None:
            super().__init__()
            self.way = way

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if torch.utils.data.get_worker_info() is not None or torch.cuda.is_current_stream_capturing():
                return func(*args, **(kwargs or {}))
            on_default = torch.cuda.current_stream() == torch.cuda.default_stream()
            if self.way != "none" and on_default == (self.way == "default"):
                torch.cuda._sleep(3_000_000)
            result = func(*args, **(kwargs or {}))
            if self.way == "none":
                torch.cuda.synchronize()
            return result

    found = {}
    for way in ("none", "default", "others"):
        with Perturbed(way):
            found[way] = seeded(function)
    return found


def one(name: str, perturb: bool = False) -> dict[str, Any]:
    """Twice plain, once checked."""
    import streamsafe

    function, needs = PROGRAMS[name]
    missing = [need for need in needs if importlib.util.find_spec(need) is None]
    if missing:
        return {"program": name, "skipped": f"needs {missing[0]}"}
    if perturb:
        found = late(function)
        wrong = [way for way, values in found.items() if values != found["none"]]
        return {"program": name, "late": found, "wrong": wrong}
    plain = [seeded(function), seeded(function)]
    print("plain runs done", file=sys.stderr, flush=True)
    with streamsafe.sanitize("collect") as session:
        checked = seeded(function)
    from streamsafe.runtime.torch.watch import extension

    counts = extension()[0].counters()
    equal = plain[0] == plain[1]
    return {
        "program": name,
        "values": len(plain[0]),
        "deterministic": equal,
        "unchanged": checked == plain[0] if equal else None,
        "differs": [plain[0][:4], checked[:4]] if equal and checked != plain[0] else None,
        "operators": counts["operators"],
        "waits": counts["waits"],
        "hazards": [str(streamsafe.StreamHazardError(hazard)) for hazard in session.hazards],
        "notes": [str(note) for note in session.notes] if hasattr(session, "notes") else [],
    }


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="*", default=None)
    parser.add_argument("--jobs", type=int, default=4)
    parser.add_argument("--seconds", type=int, default=240, help="at most so long for one program")
    parser.add_argument("--simulate", action="store_true", help="on the simulated device of a CPU build")
    parser.add_argument("--late", action="store_true")
    parser.add_argument("--run", help=argparse.SUPPRESS)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if options.run:
        faulthandler.enable()
        if options.simulate:
            from streamsafe.runtime.torch import simulate

            simulate.install()
        warnings.simplefilter("ignore")
        try:
            row = one(options.run, options.late)
        except BaseException as error:
            row = {"program": options.run, "error": f"{error!r}", "trace": traceback.format_exc()[-2500:]}
        print("\nROW " + json.dumps(row), flush=True)
        os._exit(0)  # threads of the libraries do not keep the process

    def start(name: str) -> dict[str, Any]:
        command = [sys.executable, __file__, "--run", name, *(["--simulate"] if options.simulate else [])]
        command += ["--late"] if options.late else []
        begun = time.monotonic()
        try:
            ended = subprocess.run(command, capture_output=True, text=True, timeout=options.seconds)
        except subprocess.TimeoutExpired:
            return {"program": name, "error": "timed out"}
        lines = [line for line in ended.stdout.splitlines() if line.startswith("ROW ")]
        if not lines:
            return {
                "program": name,
                "error": f"exit status {ended.returncode}",
                "trace": fatal(ended.stderr),
            }
        row: dict[str, Any] = json.loads(lines[-1][4:])
        return {**row, "seconds": round(time.monotonic() - begun, 1)}

    names = [name for name in PROGRAMS if options.only is None or any(part in name for part in options.only)]
    rows = []
    print("| program | losses | equal bit by bit | operators | waits | hazards |\n|---|---|---|---|---|---|")
    with ThreadPoolExecutor(options.jobs) as pool:
        for done in as_completed([pool.submit(start, name) for name in names]):
            row = done.result()
            rows.append(row)
            if "error" in row or "skipped" in row:
                print(
                    f"| {row['program']} | {row.get('error', row.get('skipped', ''))[:150]} | | | | |",
                    flush=True,
                )
            elif options.late:
                wrong = ", ".join(row["wrong"]) or "none"
                print(f"| {row['program']} | wrong when these come late: {wrong} | | | | |", flush=True)
            else:
                equal = {True: "yes", False: "NO", None: "two plain runs differ"}[row["unchanged"]]
                print(
                    f"| {row['program']} | {row['values']} | {equal} | {row['operators']:,} | {row['waits']:,} | "
                    f"{len(row['hazards'])} |",
                    flush=True,
                )
            if options.json:
                options.json.write_text(json.dumps(rows, indent=1), encoding="utf-8")
    for row in rows:
        for hazard in row.get("hazards", []):
            print(f"\n{row['program']}:\n{hazard}")
        if "error" in row:
            print(f"\n{row['program']}: {row['error']}\n{row.get('trace', '')}")
    return (
        1
        if any(row.get("hazards") or row.get("error") or row.get("unchanged") is False for row in rows)
        else 0
    )


if __name__ == "__main__":
    sys.exit(main())
