"""Small programs in tables: what must fire is marked on its line, and its twins are silent."""

from __future__ import annotations

from pathlib import Path

from tests.check.evalfiles import EvalFile, check_tree, write_tree

HEAD = """\
import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import cupy as cp
import cupyx
import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch import nn

"""


def check_program(folder: Path, program: str, head: str = HEAD) -> None:
    """Compare the findings in a program, but for *possible* ones, with the marks on its lines."""
    text = head + program
    write_tree(folder, {"module.py": text})
    found = check_tree(folder).get("module.py", [])
    shown = [each for each in found if each.confidence != "possible"]
    assert not EvalFile(folder / "module.py", text).disagreements(shown)
