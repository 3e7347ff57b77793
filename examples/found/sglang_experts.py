"""SGLang, _RoutedExpertsHostCache.set_experts_buffer(): the host stores expert ids whose copy is still running."""

import torch
from own import SIZE, busy, fresh, show, take

Cache = take(
    "sglang/sglang/srt/layers/moe/routed_experts_capturer.py",
    "_RoutedExpertsHostCache",
    get_tensor_size_bytes=lambda tensor: tensor.nbytes,
    _GB=1 << 30,
)
tokens = torch.arange(SIZE)
experts = torch.arange(8, device="cuda", dtype=torch.int32).expand(SIZE, 8)


def run():
    right = experts + fresh()
    cache = Cache(num_tokens=1, num_hidden_layers=SIZE, num_experts_per_tok=8)
    chosen = right + (busy()[:, :8] * 0).int()  # the router's answer
    cache.set_experts_buffer(0, tokens, chosen)
    return cache.buffer[0].clone(), right


show(run)
