"""Programs with DTensor's collectives, on two ranks of which this process is one, and the codes of their hazards."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any


class Ranks:
    """The mesh of a process group, and torch."""

    def __init__(self, torch: Any) -> None:
        self.torch = torch
        self.tensor = importlib.import_module("torch.distributed.tensor")
        self.mesh = importlib.import_module("torch.distributed.device_mesh").init_device_mesh("cuda", (2,))
        self.side = torch.cuda.Stream()

    def local(self) -> Any:
        return self.torch.ones(8, 8, device="cuda")

    def shard(self, local: Any, dim: int = 0) -> Any:
        return self.tensor.DTensor.from_local(local, self.mesh, [self.tensor.Shard(dim)])

    def gathered(self, shard: Any) -> Any:
        """All of it on each rank; the collective is waited for when it is used."""
        return shard.redistribute(self.mesh, [self.tensor.Replicate()], async_op=True)

    def on_side(self) -> Any:
        return self.torch.cuda.stream(self.side)

    def join(self) -> None:
        self.torch.cuda.synchronize()


def shard_written_while_it_is_gathered(ranks: Ranks) -> None:
    local = ranks.local()
    whole = ranks.gathered(ranks.shard(local))
    local.add_(1)
    whole + 1


def shard_written_after_the_gathered_one_is_used(ranks: Ranks) -> None:
    local = ranks.local()
    whole = ranks.gathered(ranks.shard(local))
    whole + 1
    local.add_(1)


def gathered_used_on_two_streams(ranks: Ranks) -> None:
    whole = ranks.gathered(ranks.shard(ranks.local()))
    whole + 1
    with ranks.on_side():
        whole + 2
    ranks.join()


def gathered_used_on_two_ordered_streams(ranks: Ranks) -> None:
    whole = ranks.gathered(ranks.shard(ranks.local()))
    whole + 1
    ranks.side.wait_stream(ranks.torch.cuda.current_stream())
    with ranks.on_side():
        whole + 2
    ranks.join()


def gathered_used_on_a_side_stream(ranks: Ranks) -> None:
    """It waits where it is used first."""
    whole = ranks.gathered(ranks.shard(ranks.local()))
    with ranks.on_side():
        whole + 2
    ranks.join()


def product_that_gathers(ranks: Ranks) -> None:
    """An operator that redistributes inside waits inside too."""
    left, right = ranks.shard(ranks.local()), ranks.shard(ranks.local(), 1)
    local = left.to_local()
    product = ranks.torch.mm(left, right)
    local.add_(1)
    product.to_local() + 1


def product_of_a_shard_that_another_stream_writes(ranks: Ranks) -> None:
    local = ranks.local()
    left, right = ranks.shard(local), ranks.shard(ranks.local(), 1)
    ranks.join()
    with ranks.on_side():
        local.add_(1)
    ranks.torch.mm(left, right)
    ranks.join()


def product_of_a_shard_that_another_stream_has_written(ranks: Ranks) -> None:
    local = ranks.local()
    left, right = ranks.shard(local), ranks.shard(ranks.local(), 1)
    ranks.join()
    with ranks.on_side():
        local.add_(1)
    ranks.torch.cuda.current_stream().wait_stream(ranks.side)
    ranks.torch.mm(left, right)
    ranks.join()


PROGRAMS: list[tuple[Callable[[Ranks], None], list[str]]] = [
    (shard_written_while_it_is_gathered, ["SS102"]),
    (shard_written_after_the_gathered_one_is_used, []),
    (gathered_used_on_two_streams, ["SS101"]),
    (gathered_used_on_two_ordered_streams, []),
    (gathered_used_on_a_side_stream, []),
    (product_that_gathers, []),
    (product_of_a_shard_that_another_stream_writes, ["SS101"]),
    (product_of_a_shard_that_another_stream_has_written, []),
]
