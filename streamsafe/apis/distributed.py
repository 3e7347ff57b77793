"""Collectives of ``torch.distributed``: what is read, what is written, and on which stream (rows TD)."""

from __future__ import annotations

from streamsafe.apis.effects import COMMUNICATION, CURRENT, HOST, WORK, Call, each


def _call(name: str, c10d: str, *, reads: str = "", writes: str = "") -> Call:
    """A collective: :data:`WORK` with ``async_op=True``; without it an operation of the current stream (TD-04)."""
    return Call(
        f"torch.distributed.{name}",
        c10d=c10d,
        reads=reads,
        writes=writes,
        on=COMMUNICATION,
        edge="COMMUNICATION <- CURRENT",
        result=WORK,
        row="TD-01",
    )


COLLECTIVES: tuple[Call, ...] = (
    _call("all_reduce", "allreduce_ allreduce_coalesced_", reads="tensors sparse_indices", writes="tensors"),
    _call(
        "all_gather",
        "allgather_ allgather_coalesced_",
        reads="input_tensors input_list",
        writes="output_tensors output_lists",
    ),
    _call(
        "all_gather_into_tensor",
        "_allgather_base_ allgather_into_tensor_coalesced_",
        reads="input_tensor inputs",
        writes="output_tensor outputs",
    ),
    _call("reduce_scatter", "reduce_scatter_", reads="input_tensors", writes="output_tensors"),
    _call(
        "reduce_scatter_tensor",
        "_reduce_scatter_base_ reduce_scatter_tensor_coalesced_",
        reads="input_tensor inputs",
        writes="output_tensor outputs",
    ),
    _call("all_to_all", "alltoall_", reads="input_tensors", writes="output_tensors"),
    _call("all_to_all_single", "alltoall_base_", reads="input", writes="output"),
    _call("broadcast", "broadcast_", writes="tensors"),
    _call("reduce", "reduce_", reads="tensors", writes="tensors"),
    _call("scatter", "scatter_", reads="input_tensors", writes="output_tensors"),
    _call("gather", "gather_", reads="input_tensors", writes="output_tensors"),
    _call("send", "send", reads="tensors"),
    _call("recv", "recv_ recv_any_source_", writes="tensors"),
    _call("barrier", "barrier", writes="tensor"),
)
"""With the parameters of the operators, which are those of the functions in other words."""

ROWS: tuple[Call, ...] = (
    *COLLECTIVES,
    *each("torch.distributed", "isend", reads="tensor", on=COMMUNICATION, result=WORK, row="TD-01"),
    *each("torch.distributed", "irecv", writes="tensor", on=COMMUNICATION, result=WORK, row="TD-01"),
    Call("torch.distributed.Work.wait", edge="CURRENT <- COMMUNICATION", row="TD-02"),
    *each(
        "torch.distributed",
        "all_gather_object broadcast_object_list",
        waits=CURRENT,
        result=HOST,
        row="TM-08",
    ),
)
