"""Other packages that enqueue, wait or hand memory over."""

from __future__ import annotations

from streamsafe.apis.effects import BEGINS, CURRENT, DEVICE, ENDS, HOST, REPLAYS, SAME, STREAM, Call, each

ROWS: tuple[Call, ...] = (
    *each("triton.testing", "do_bench do_bench_cudagraph", waits=DEVICE, result=HOST, row="TS-21"),
    Call("numba.cuda.stream", result=STREAM, row="CS-01"),
    Call("numba.cuda.synchronize", waits=DEVICE, row="TS-21"),
    *each("numba.cuda", "as_cuda_array from_cuda_array_interface", shape_of="*", result=SAME, row="CI-08"),
    *each("warp", "to_torch from_torch stream_from_torch", shape_of="*", result=SAME, row="CI-07"),
    Call("warp.capture_begin", captures=BEGINS, on="stream", row="GC-02"),
    Call("warp.capture_end", captures=ENDS, on="stream", row="GC-24"),
    Call("warp.capture_launch", captures=REPLAYS, on="stream", row="GC-08"),
    *each(
        "torch.utils.tensorboard.SummaryWriter",
        """add_scalar add_scalars add_histogram add_image add_images add_video add_audio add_figure add_embedding
        add_pr_curve add_mesh""",
        reads="*",
        waits=CURRENT,
        row="TM-08",
    ),
    *each("tqdm.tqdm", "set_postfix set_postfix_str", reads="*", waits=CURRENT, row="TM-08"),
    *each(
        "mpi4py.MPI.Comm",
        """Send Bsend Ssend Rsend Isend Ibsend Issend Irsend Sendrecv Bcast Ibcast Gather Gatherv Igather Scatter
        Scatterv Iscatter Allgather Allgatherv Iallgather Alltoall Alltoallv Ialltoall Reduce
        Ireduce Allreduce Iallreduce""",
        reads="*",
        row="TM-06",
    ),
    *each("mpi4py.MPI.Comm", "Recv Irecv", writes="0", row="TM-01"),
    Call("lightning.LightningModule.manual_backward", reads="*", edge="CURRENT <- leaves", row="TA-02"),
)
