"""NVIDIA recsys-examples, ShardedEmbedding.forward(): a side stream looks up tokens that are still being written."""

from types import SimpleNamespace

import torch
from own import SIZE, Layers, show, take

forward = take(
    "recsys-examples/examples/commons/modules/embedding.py",
    "ShardedEmbedding.forward",
    output_nvtx_hook=lambda **options: lambda function: function,
    Dict=dict,
)
table = torch.nn.Embedding(SIZE, 64, device="cuda")
work = Layers(20)


class Collection:
    """Looks tokens up, as the data-parallel collection does, without asking the device for lengths."""

    def compute_dp_length_per_key(self, tokens):
        return None

    def __call__(self, tokens, _length_per_key=None):
        return {"item": table(tokens)}


module = SimpleNamespace(
    _model_parallel_embedding_collection=None,
    _data_parallel_embedding_collection=Collection(),
    _overlap_dp_mp=True,
    _side_stream=torch.cuda.Stream(),
)


def run():
    with torch.no_grad():
        tokens = torch.zeros(SIZE, dtype=torch.long, device="cuda")
        torch.cuda.synchronize()
        tokens += (work(torch.ones(SIZE, SIZE, device="cuda"))[:, 0] * 0).long() + 7  # the preprocessing
        found = forward(module, tokens)["item"]
        return found, table(torch.full((SIZE,), 7, device="cuda"))


show(run)
