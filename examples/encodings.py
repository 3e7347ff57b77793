"""Shortened from torch_geometric/nn/models/gpse.py (PyTorch Geometric, 5c6461b23)."""

import torch


@torch.no_grad()
def encode(model, loader):
    rows = []
    for batch in loader:
        out = model(batch.to("cuda"))
        rows.append(out.to("cpu", non_blocking=True))
    return torch.vstack(rows)  # on the host, which has not waited for the copies
