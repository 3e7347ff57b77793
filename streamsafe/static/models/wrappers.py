"""Models of the user's own wrappers, from ``[tool.streamsafe.models]``, as rows like those of the libraries."""

from __future__ import annotations

from streamsafe.config import Model
from streamsafe.static.models.rows import Library, Order, Place, Result, Row


def as_row(name: str, model: Model) -> Row:
    """What a configured model says, as a row.

    Args:
        name: the dotted name of what it describes.
        model: the entry, checked by the configuration.
    """
    library: Library = (
        "cupy" if model.allocates == "cupy" else "torch" if model.allocates == "torch" else "other"
    )
    order = [Order("wait", model.stream, waited) for waited in model.waits]
    # what a configured model records is an event or a tensor: the transfer function sees which
    order += [Order("record", recorded, model.stream) for recorded in model.records]
    order += [Order("sync", "host", waited) for waited in model.synchronizes]
    reads, writes = model.reads, model.writes
    return Row(
        name,
        library,
        model.parameters,
        stream=model.stream,
        reads=() if model.host else reads,
        writes=() if model.host else writes,
        host_reads=reads if model.host else (),
        host_writes=writes if model.host else (),
        result=_result(model),
        order=tuple(order),
        records=tuple((recorded, model.stream) for recorded in model.records),
    )


def _result(model: Model) -> Result:
    returns = model.returns
    if returns == "tensor" or (returns == "unknown" and model.allocates in ("torch", "cupy")):
        return Result("fresh", place=Place("device"))
    if returns == "pinned" or (returns == "unknown" and model.allocates == "pinned"):
        return Result("fresh", place=Place("pinned"))
    if returns == "stream":
        return Result("object", type="cupy.cuda.Stream" if model.allocates == "cupy" else "torch.cuda.Stream")
    if returns == "event":
        return Result("object", type="torch.cuda.Event")
    if returns == "current-stream":
        return Result("current_stream")
    if returns == "context":
        return Result("stream_context", model.stream)
    if returns == "none":
        return Result("none")
    return Result("unknown") if returns == "unknown" else Result("view", returns)
