"""What the programs of this folder share: a project's own code out of its file, and work for the device.

The sources are those of README.md, in the folder that the variable SOURCES names (by default this one). A function is
taken out of its file as it stands, with the line numbers of the file, so its package need not be installed.
"""

import __future__

import ast
import itertools
import logging
import os
from pathlib import Path

import torch

SOURCES = Path(os.environ.get("SOURCES", Path(__file__).parent))
SIMULATED = "simulated" in torch.cuda.get_device_name()
SIZE = 64 if SIMULATED else 4096
"""Rows and columns of matrices: on a GPU their product takes as long as a layer of a model."""


_numbers = itertools.count(1)


def fresh():
    """A number that no run before has had: memory that was not written still holds that of an earlier one."""
    return next(_numbers)


def take(path, *names, **known):
    """Functions and classes of a file.

    Args:
        path: the file, below SOURCES.
        names: of functions, classes and constants at the top of the file, or ``Class.method``.
        known: what other names of the file stand for.

    Returns:
        What was taken, in the order of the names; the thing itself where it is one.
    """
    file = SOURCES / path
    body = ast.parse(file.read_text(encoding="utf-8")).body
    found = [node for name in names for node in _named(body, *name.split("."))]
    space = {"torch": torch, "logger": logging.getLogger(file.stem), "__name__": file.stem, **known}
    flags = __future__.annotations.compiler_flag
    exec(compile(ast.Module(found, []), str(file), "exec", flags, dont_inherit=True), space)
    taken = [space[name.rpartition(".")[2]] for name in names]
    return taken if len(taken) > 1 else taken[0]


def _named(body, name, *inside):
    for node in body:
        targets = [*getattr(node, "targets", []), getattr(node, "target", None)]
        if getattr(node, "name", None) == name or name in [getattr(each, "id", None) for each in targets]:
            return _named(node.body, *inside) if inside else [node]
    raise LookupError(name)


def same(call):
    """A decorator that changes nothing, for one whose package is not needed."""
    return call


class Layers(torch.nn.Module):
    """A model that keeps the device busy for some milliseconds."""

    def __init__(self, count=8):
        super().__init__()
        torch.manual_seed(0)
        self.weight = torch.nn.Parameter(torch.randn(SIZE, SIZE, device="cuda") / SIZE**0.5)
        self.count = count

    def forward(self, x):
        for _ in range(self.count):
            x = x @ self.weight
        return x


def busy():
    """Work of the current stream that another part of the program has begun."""
    with torch.no_grad():
        return Layers(20)(torch.ones(SIZE, SIZE, device="cuda"))


def show(run, times=1 if SIMULATED else 20):
    """Run it and say how often its result is what the same operations give in order.

    Args:
        run: gives the result and the right one.
    """
    torch.cuda.synchronize()
    wrong = 0
    for _ in range(times):
        got, right = run()
        torch.cuda.synchronize()
        got, right = torch.as_tensor(got).cpu().float(), torch.as_tensor(right).cpu().float()
        wrong += not torch.allclose(got, right, rtol=1e-2, atol=1e-2, equal_nan=True)
    print(f"wrong in {wrong} of {times} runs")
