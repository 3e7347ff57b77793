"""A stand-in for ``cupy_backends.cuda.libs.nccl``. A collective is an operation on the stream that it is given."""

from __future__ import annotations

import itertools
from types import ModuleType
from typing import Any

from streamsafe.simulate.cuda.libraries import Recorder

_TYPES = ["INT8", "UINT8", "INT32", "UINT32", "INT64", "UINT64", "FLOAT16", "FLOAT32", "FLOAT64", "BFLOAT16"]
_OPERATIONS = ["SUM", "PROD", "MAX", "MIN"]
_VERSION = 22703


class NcclError(RuntimeError):
    """NCCL's error. The stand-in never raises it; programs name it in ``except`` clauses."""


def make_nccl(name: str, recorder: Recorder) -> ModuleType:
    """Return a module that stands in for CuPy's NCCL bindings."""
    numbers = itertools.count(1)

    class NcclConfig:
        """Options of a communicator. They have no effect."""

        def __init__(self, **options: Any) -> None:
            self.__dict__.update(options)

    class NcclCommunicator:
        """One rank's communicator. Method names and arguments are CuPy's."""

        def __init__(self, ndev: int, commId: bytes, rank: int, config: Any = None) -> None:
            self.comm = next(numbers)
            self._size, self._rank = ndev, rank
            self._device = recorder.machine.device

        @staticmethod
        def initAll(devices: Any) -> list[NcclCommunicator]:
            ranks = list(range(devices)) if isinstance(devices, int) else list(devices)
            made = []
            for rank, device in enumerate(ranks):
                communicator = NcclCommunicator(len(ranks), b"", rank)
                communicator._device = device
                made.append(communicator)
            return made

        def commSplit(self, color: int, key: int, config: Any = None) -> NcclCommunicator:
            return NcclCommunicator(self._size, b"", self._rank, config)

        def device_id(self) -> int:
            return self._device

        def rank_id(self) -> int:
            return self._rank

        def size(self) -> int:
            return self._size

        def destroy(self) -> None:
            self.comm = 0

        abort = destroy

        def check_async_error(self) -> None:
            return None

        def allReduce(
            self, sendbuf: int, recvbuf: int, count: int, datatype: int, op: int, stream: int
        ) -> None:
            recorder.call("nccl.allReduce", [sendbuf], [recvbuf], stream=stream, count=count)

        def reduce(
            self, sendbuf: int, recvbuf: int, count: int, datatype: int, op: int, root: int, stream: int
        ) -> None:
            recorder.call("nccl.reduce", [sendbuf], [recvbuf], stream=stream, count=count, root=root)

        def broadcast(
            self, sendbuff: int, recvbuff: int, count: int, datatype: int, root: int, stream: int
        ) -> None:
            recorder.call("nccl.broadcast", [sendbuff], [recvbuff], stream=stream, count=count, root=root)

        def bcast(self, buff: int, count: int, datatype: int, root: int, stream: int) -> None:
            recorder.call("nccl.bcast", [buff], [buff], stream=stream, count=count, root=root)

        def reduceScatter(
            self, sendbuf: int, recvbuf: int, recvcount: int, datatype: int, op: int, stream: int
        ) -> None:
            recorder.call("nccl.reduceScatter", [sendbuf], [recvbuf], stream=stream, count=recvcount)

        def allGather(self, sendbuf: int, recvbuf: int, count: int, datatype: int, stream: int) -> None:
            recorder.call("nccl.allGather", [sendbuf], [recvbuf], stream=stream, count=count)

        def send(self, sendbuf: int, count: int, datatype: int, peer: int, stream: int) -> None:
            recorder.call("nccl.send", [sendbuf], [], stream=stream, count=count, peer=peer)

        def recv(self, recvbuf: int, count: int, datatype: int, peer: int, stream: int) -> None:
            recorder.call("nccl.recv", [], [recvbuf], stream=stream, count=count, peer=peer)

    module = ModuleType(name, "Simulated NCCL: collectives are logged and move nothing.")
    module.__dict__.update({f"NCCL_{kind}": number for number, kind in enumerate(_TYPES)})
    module.__dict__.update({f"NCCL_{kind}": number for number, kind in enumerate(_OPERATIONS)})
    module.__dict__.update(
        available=True,
        NcclError=NcclError,
        NcclConfig=NcclConfig,
        NcclCommunicator=NcclCommunicator,
        get_build_version=lambda: _VERSION,
        get_version=lambda: _VERSION,
        get_unique_id=lambda: bytes(128),
        groupStart=lambda: None,
        groupEnd=lambda: None,
    )
    return module
