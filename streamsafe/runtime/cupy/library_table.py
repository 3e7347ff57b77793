"""What library calls read and write, as data. Operands are named after the parameters of CuPy's bindings.

An operand is written ``name:shape``, with the shape as ``rows,columns,leading dimension`` of a column-major matrix,
``n*increment`` of a vector, or ``batch@stride:rows,columns,leading dimension``. ``?`` after a dimension name swaps rows and
columns when that operation argument transposes. ``*`` alone means: to the end of the block.
"""

from __future__ import annotations

from typing import NamedTuple


class Call(NamedTuple):
    """One family of functions.

    Attributes:
        pattern: regular expression for the function's name; group ``t`` is the type letter.
        parameters: the names of its parameters.
        reads, writes: operands.
    """

    pattern: str
    parameters: str
    reads: str
    writes: str


_T = r"(?P<t>[sdcz])"

CUBLAS: tuple[Call, ...] = (
    Call(_T + "gemm", "h transa transb m n k alpha A lda B ldb beta C ldc", "A:m,k,lda,transa B:k,n,ldb,transb", "C:m,n,ldc"),
    Call(
        _T + "gemmStridedBatched",
        "h transa transb m n k alpha A lda strideA B ldb strideB beta C ldc strideC batch",
        "A:m,k,lda,transa,strideA,batch B:k,n,ldb,transb,strideB,batch",
        "C:m,n,ldc,,strideC,batch",
    ),
    Call(
        "sgemmEx",
        "h transa transb m n k alpha A Atype lda B Btype ldb beta C Ctype ldc",
        "A:m,k,lda,transa/Atype B:k,n,ldb,transb/Btype",
        "C:m,n,ldc/Ctype",
    ),
    Call(
        "gemmEx",
        "h transa transb m n k alpha A Atype lda B Btype ldb beta C Ctype ldc computeType algo",
        "A:m,k,lda,transa/Atype B:k,n,ldb,transb/Btype",
        "C:m,n,ldc/Ctype",
    ),
    Call(
        "gemmStridedBatchedEx",
        "h transa transb m n k alpha A Atype lda strideA B Btype ldb strideB beta C Ctype ldc strideC batch computeType algo",
        "A:m,k,lda,transa,strideA,batch/Atype B:k,n,ldb,transb,strideB,batch/Btype",
        "C:m,n,ldc,,strideC,batch/Ctype",
    ),
    Call(_T + "gemv", "h trans m n alpha A lda x incx beta y incy", "A:m,n,lda x:*", "y:*"),
    Call(_T + "ger[uc]?", "h m n alpha x incx y incy A lda", "x:m,1,m y:n,1,n A:m,n,lda", "A:m,n,lda"),
    Call(_T + "dot[uc]?", "h n x incx y incy result", "x:n,1,n y:n,1,n", "result:1,1,1"),
    Call(_T + "(?:nrm2|asum)", "h n x incx result", "x:n,1,n", "result:1,1,1"),
    Call("i" + _T + "am(?:ax|in)", "h n x incx result", "x:n,1,n", "result:1,1,1"),
    Call(_T + "axpy", "h n alpha x incx y incy", "x:n,1,n y:n,1,n", "y:n,1,n"),
    Call(_T + "scal", "h n alpha x incx", "x:n,1,n", "x:n,1,n"),
    Call(_T + "sbmv", "h uplo n k alpha A lda x incx beta y incy", "A:n,n,lda x:n,1,n", "y:n,1,n"),
    Call(_T + "syrk", "h uplo trans n k alpha A lda beta C ldc", "A:n,k,lda,trans", "C:n,n,ldc"),
    Call(
        _T + "geam",
        "h transa transb m n alpha A lda beta B ldb C ldc",
        "A:m,n,lda,transa B:m,n,ldb,transb",
        "C:m,n,ldc",
    ),
    Call(_T + "dgmm", "h mode m n A lda x incx C ldc", "A:m,n,lda x:*", "C:m,n,ldc"),
    Call(_T + "trsm", "h side uplo trans diag m n alpha A lda B ldb", "A:* B:m,n,ldb", "B:m,n,ldb"),
)

CURAND: tuple[Call, ...] = (
    Call("generate(?:Uniform|Poisson)?", "g output n *", "", "output:n,1,n#4"),
    Call("generate(?:UniformDouble|LongLong)", "g output n *", "", "output:n,1,n#8"),
    Call("generate(?:Log)?Normal", "g output n mean deviation", "", "output:n,1,n#4"),
    Call("generate(?:Log)?NormalDouble", "g output n mean deviation", "", "output:n,1,n#8"),
)

# cuSOLVER works in place on arrays that CuPy made for it; what follows is only read.
CUSOLVER_READ: dict[str, str] = {
    r"\w?getrs": "A devIpiv",
    r"\w?potrs": "A",
    r"\w?(?:or|un)mqr": "A tau",
}
CUSOLVER_PARAMETERS: dict[str, str] = {
    r"\w?getrs": "h trans n nrhs A lda devIpiv B ldb devInfo",
    r"\w?potrs": "h uplo n nrhs A lda B ldb devInfo",
    r"\w?(?:or|un)mqr": "h side trans m n k A lda tau C ldc work lwork devInfo",
}

# NCCL: sizes are counts of elements; allGather receives, and reduceScatter sends, a count from every rank.
NCCL: dict[str, tuple[str, str, str]] = {
    "allReduce": ("send recv count type op stream", "send", "recv"),
    "reduce": ("send recv count type op root stream", "send", "recv"),
    "broadcast": ("send recv count type root stream", "send", "recv"),
    "bcast": ("buffer count type root stream", "buffer", "buffer"),
    "reduceScatter": ("send recv count type op stream", "send@", "recv"),
    "allGather": ("send recv count type stream", "send", "recv@"),
    "send": ("send count type peer stream", "send", ""),
    "recv": ("recv count type peer stream", "", "recv"),
}

# Functions on arrays: all array arguments are read, results (and out=) are written.
ARRAY_FUNCTIONS: dict[str, str] = {
    "cupy.cuda.cub": "cub_reduction|cub_scan|cub_histogram|device_\\w+",
    "cupyx.cusparse": "(?!create|destroy|check|get|set|is)[a-z]\\w+",
    "cupyx.cusolver": "gesvdj|gesvda|syevj|csrlsvqr|gesv|gels|_gesvdj_batched",
    "cupyx.cutensor": "(?!create|get|_)[a-z]\\w+",
}

# Methods on arrays, by class.
ARRAY_METHODS: dict[str, dict[str, str]] = {
    "cupy.random._generator_api": {"Generator": "(?!_|bit_generator)[a-z]\\w+"},
}
