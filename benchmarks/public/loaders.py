"""Loaders and pipelines that fetch the next batch on a stream of their own."""
# mypy: disable-error-code="no-untyped-call, attr-defined, import-not-found, import-untyped, misc, no-any-return"
# mypy: disable-error-code="arg-type, var-annotated"

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from typing import Any

from .kit import Values, mlp, program, squared, train, vectors


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
