"""Device memory of another process, which is not simulated: who sends a tensor of it is told so."""

from __future__ import annotations

import contextlib
import multiprocessing.queues
import pickle
import sys
from functools import wraps
from typing import Any, NoReturn

from streamsafe.simulate.torch.limits import NotSimulated

REFUSED = "device memory of another process is not simulated: send a copy on the host (`tensor.cpu()`)"


def refuse_sharing(*_: Any) -> NoReturn:
    """Instead of what gives other processes a handle of device memory (a pipe, the arguments of a process)."""
    raise NotSimulated(REFUSED)


class _Sink:
    """Drops what is pickled."""

    def write(self, data: Any) -> int:
        return len(data)


class _Looking(pickle.Pickler):
    """Looks for device tensors in what a queue is given."""

    found = False

    def persistent_id(self, value: Any) -> Any:
        torch = sys.modules["torch"]
        if not isinstance(value, (torch.Tensor, torch.UntypedStorage)):
            return None
        self.found |= value.is_cuda
        return True


def adapt(reductions: Any) -> None:
    """Has queues between processes refuse device tensors where they are put.

    A queue pickles in a thread of its own, which can only print what goes wrong: the receiver would wait for ever.

    Args:
        reductions: ``torch.multiprocessing.reductions``, which makes tensors something to be sent.
    """
    original = multiprocessing.queues.Queue.put

    @wraps(original)
    def put(self: Any, obj: Any, *args: Any, **kwargs: Any) -> None:
        looking = _Looking(_Sink())
        with contextlib.suppress(Exception):  # what cannot be pickled in this way the queue can, or says so
            looking.dump(obj)
        if looking.found:
            refuse_sharing()
        original(self, obj, *args, **kwargs)

    multiprocessing.queues.Queue.put = put  # type: ignore[method-assign]
