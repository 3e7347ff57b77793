"""Megatron-LM, RouterTracer: the host writes routing indices whose copies are still running."""

import json
import tempfile
from pathlib import Path

import torch
from own import SIZE, busy, fresh, show, take

PATH = "Megatron-LM/megatron/core/transformer/moe/router_trace.py"
record, make, flush = take(
    PATH,
    "RouterTracer.record_indices",
    "RouterTracer._make_index_record",
    "RouterTracer._flush_records_to_disk",
    json=json,
)
expected = torch.arange(SIZE, device="cuda").reshape(-1, 1, 1)


class Tracer:
    record_indices, _make_index_record, _flush_records_to_disk = record, make, flush
    _stopped, step_id, rank, _hs_file, _logits_file = False, 0, 0, None, None

    def __init__(self, path):
        self.output_path, self.records = path, []


def run():
    with tempfile.TemporaryDirectory() as folder:
        tracer = Tracer(Path(folder) / "trace.jsonl")
        right = expected + fresh()
        indices = right + (busy()[:, :1, None] * 0).long()  # the router's answer
        tracer.record_indices(indices)
        tracer._flush_records_to_disk()
        (line,) = tracer.output_path.read_text().splitlines()
        return json.loads(line)["top_indices"], right[:, 0]


show(run)
