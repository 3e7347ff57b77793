"""Arrays, pools, pinned memory and exchange between libraries, as CuPy has them (rows CS and CI)."""

from __future__ import annotations

from streamsafe.apis.effects import (
    CURRENT,
    DEVICE,
    HOST,
    LEGACY,
    NEW,
    PINNED,
    UNWRITTEN,
    VIEW,
    Call,
    each,
)

COPIES: tuple[Call, ...] = (
    Call(
        "cupy.ndarray.get", reads="self", writes="out", result=HOST, on="stream", waits="stream", row="CS-13"
    ),
    Call("cupy.asnumpy", reads="a", writes="out", result=HOST, on="stream", waits="stream", row="CS-13"),
    Call("cupy.ndarray.set", reads="arr", writes="self", on="stream", row="CS-17"),
    *each("cupy", "asarray array", reads="*", result=NEW, row="CS-18"),
    *each("cupy.ndarray", "item tolist", reads="self", result=HOST, waits=CURRENT, row="CS-26"),
)

POINTERS: tuple[Call, ...] = (
    *each(
        "cupy.cuda.MemoryPointer",
        "copy_from_async copy_from_device_async copy_from_host_async",
        parameters="mem size stream",
        reads="mem",
        writes="self",
        on="stream",
        row="CS-17",
    ),
    *each(
        "cupy.cuda.MemoryPointer",
        "copy_from copy_from_device copy_from_host",
        parameters="mem size",
        reads="mem",
        writes="self",
        on=LEGACY,
        row="CS-27",
    ),
    Call(
        "cupy.cuda.MemoryPointer.copy_to_host_async",
        "mem size stream",
        reads="self",
        writes="mem",
        on="stream",
        row="CS-14",
    ),
    Call(
        "cupy.cuda.MemoryPointer.copy_to_host",
        "mem size",
        reads="self",
        writes="mem",
        on=LEGACY,
        waits=LEGACY,
        row="CS-27",
    ),
    Call(
        "cupy.cuda.MemoryPointer.memset_async", "value size stream", writes="self", on="stream", row="CS-27"
    ),
    Call("cupy.cuda.MemoryPointer.memset", "value size", writes="self", on=LEGACY, row="CS-27"),
)

WAITS: tuple[Call, ...] = (
    *each("cupy", "nonzero argwhere flatnonzero unique", reads="*", result=NEW, waits=CURRENT, row="CS-26"),
    *each("cupy", "allclose array_equal", reads="*", result=NEW, row="CS-28"),
)

VIEWS: tuple[Call, ...] = (
    *each(
        "cupy",
        """reshape ravel transpose squeeze expand_dims broadcast_to broadcast_arrays swapaxes moveaxis rollaxis
        atleast_1d atleast_2d atleast_3d diagonal flip fliplr flipud rot90 real imag as_strided sliding_window_view""",
        shape_of="*",
        result=VIEW,
    ),
)

WRITES: tuple[Call, ...] = (
    *each("cupy.ndarray", "fill put itemset setfield", reads="*", writes="self", row="CS-28"),
    *each(
        "cupy.ndarray",
        "sort partition scatter_add scatter_max scatter_min",
        reads="* self",
        writes="self",
        row="CS-28",
    ),
    *each(
        "cupy",
        "copyto put putmask fill_diagonal at scatter_add scatter_max scatter_min put_along_axis shuffle",
        reads="*",
        writes="0",
        row="CS-28",
    ),
    *each("cupyx", "scatter_add scatter_max scatter_min", reads="*", writes="0", row="CS-28"),
    Call("cupy.random.shuffle", reads="*", writes="0", row="CS-28"),
    Call("cupy.place", reads="*", writes="0", waits=CURRENT, row="CS-26"),
)
"""Change their first argument, which is number 0, in place."""

BLAS: tuple[Call, ...] = (
    Call("cupy.cublas.gemv", "transa alpha a x beta y", reads="a x y", writes="y", row="CS-28"),
    Call("cupy.cublas.ger", "alpha x y a", reads="x y a", writes="a", row="CS-28"),
    Call("cupy.cublas.axpy", "a x y", reads="x y", writes="y", row="CS-28"),
    Call("cupy.cublas.scal", "a x", reads="x", writes="x", row="CS-28"),
)
"""CuPy's functions over cuBLAS, which write the operand that the routine writes."""

MEMORY: tuple[Call, ...] = (
    Call("cupy.empty", result=UNWRITTEN, allocates=DEVICE, row="CS-20"),
    *each("cupy", "zeros ones full arange linspace eye", result=NEW, allocates=DEVICE, row="CS-20"),
    *each(
        "cupyx",
        "empty_pinned",
        allocates=PINNED,
        row="CS-19",
    ),
    Call("cupy.cuda.alloc_pinned_memory", allocates=PINNED, row="CS-19"),
    *each("cupy.cuda", "alloc malloc_managed", allocates=DEVICE, result=UNWRITTEN, row="CS-20"),
    *each("cupy.cuda", "malloc_async", allocates=DEVICE, on=CURRENT, result=UNWRITTEN, row="CS-22"),
)

EXCHANGE: tuple[Call, ...] = (
    *each("cupy", "from_dlpack fromDlpack", edge="CURRENT <- producer", result=VIEW, row="CI-03"),
    *each("torch torch.utils.dlpack", "from_dlpack", edge="CURRENT <- producer", result=VIEW, row="CI-04"),
    *each("torch torch.utils.dlpack", "to_dlpack", shape_of="*", result=VIEW, row="CI-03"),
    *each("torch", "as_tensor", shape_of="*", result=VIEW, row="CI-07"),
)

ROWS: tuple[Call, ...] = (*COPIES, *POINTERS, *WAITS, *VIEWS, *WRITES, *BLAS, *MEMORY, *EXCHANGE)
