"""PyTorch Geometric, gpse_process(): the host stacks encodings whose copies are still running."""

from types import SimpleNamespace

import numpy as np
import torch
from own import SIZE, Layers, fresh, show, take


class Graph(SimpleNamespace):
    """Nodes with features, which go to the device as those of a Data object do."""

    def to(self, device):
        return Graph(num_nodes=self.num_nodes, batch_size=self.num_nodes, x=self.x.to(device))


class Loader:
    """Gives the nodes in four parts, as NeighborLoader gives batches."""

    def __init__(self, data, **options):
        self.parts = torch.chunk(data.x, 4)

    def __iter__(self):
        return (Graph(num_nodes=len(x), batch_size=len(x), x=x) for x in self.parts)


class Encoder(Layers):
    def forward(self, batch):
        return super().forward(batch.x), None


process = take(
    "pytorch_geometric/torch_geometric/nn/models/gpse.py",
    "gpse_process",
    np=np,
    NeighborLoader=Loader,
    trange=lambda *args, **options: SimpleNamespace(update=lambda count: None),
)
model = Encoder()


def run():
    results, seed = [], fresh()
    for by_parts in (True, False):
        np.random.seed(seed)
        graph = Graph(num_nodes=SIZE, x=None)
        results.append(process(model, graph, "NormalSE", neighbor_loader=by_parts, layers_mp=3))
        torch.cuda.synchronize()
    return results


show(run)
