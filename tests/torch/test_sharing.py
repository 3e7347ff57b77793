"""Tensors that go to other processes: device memory of another one is not simulated, and who sends it is told so."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from multiprocessing import get_context
from typing import Any

import pytest


class Batch:
    def __init__(self, x: Any) -> None:
        self.x = x


WRAPPED: dict[str, Callable[[Any], Any]] = {
    "a tensor": lambda x: x,
    "a view": lambda x: x[1:],
    "in containers": lambda x: {"batch": [(1, x)]},
    "in an object": Batch,
    "a storage": lambda x: x.untyped_storage(),
}


@pytest.mark.parametrize("what", WRAPPED)
def test_a_queue_refuses_device_tensors(torch: Any, what: str) -> None:
    if "simulated" not in torch.cuda.get_device_name():
        pytest.skip("a GPU shares its memory")
    queue = get_context("spawn").Queue()
    with pytest.raises(NotImplementedError, match=r"send a copy on the host \(`tensor.cpu\(\)`\)"):
        queue.put(WRAPPED[what](torch.ones(4, device="cuda")))
    queue.put(WRAPPED[what](torch.ones(4)))
    queue.put({"count": 3})
    assert queue.get(timeout=60) is not None
    assert queue.get(timeout=60) == {"count": 3}


def test_a_pipe_refuses_device_tensors(torch: Any) -> None:
    if "simulated" not in torch.cuda.get_device_name():
        pytest.skip("a GPU shares its memory")
    importlib.import_module("torch.multiprocessing")
    here, there = get_context("spawn").Pipe()
    with here, there:
        with pytest.raises(NotImplementedError, match=r"send a copy on the host \(`tensor.cpu\(\)`\)"):
            here.send(torch.ones(4, device="cuda"))
        here.send(torch.ones(4))
        assert there.recv().sum() == 4
