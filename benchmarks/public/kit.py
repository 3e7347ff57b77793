"""What the programs are made of."""
# mypy: disable-error-code="no-untyped-call, attr-defined, import-not-found, import-untyped, misc, no-any-return"
# mypy: disable-error-code="arg-type, var-annotated"

from __future__ import annotations

from collections.abc import Callable
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
