"""Megatron-LM, NVSHMEMCopyService.run(): a stream copies weights that another one is still writing."""

from types import SimpleNamespace

import torch
from own import SIZE, Layers, fresh, show, take

Service = take(
    "Megatron-LM/megatron/core/resharding/copy_services/nvshmem_copy_service.py",
    "NVSHMEMCopyService",
    CopyService=object,
)


class Local(Service):
    """On one rank nothing is sent: all copies are local ones."""

    def __init__(self):
        nothing = lambda: None  # noqa: E731
        self.rank = 0
        self._initialized = True
        self._remote = SimpleNamespace(schedule=nothing, run=nothing, clear_requests=nothing)
        self._local_send_ops, self._local_recv_ops = {}, {}
        self._local_copy_stream = torch.cuda.Stream()

    def _ensure_initialized(self):
        pass


service = Local()
step = Layers(20)


def run():
    with torch.no_grad():
        start = fresh() * torch.eye(SIZE, device="cuda")
        target = torch.zeros(SIZE, SIZE, device="cuda")
        torch.cuda.synchronize()
        weights = step(start)  # the update that is to be resharded
        service.submit_send(weights, 0, task_id=1)
        service.submit_recv(target, 0, task_id=1)
        service.run()
        return target, weights


show(run)
