"""What library calls read and write, as data. Operands are named after the parameters of CuPy's bindings.

An operand is written ``name:rows,columns,leading,transposed,stride,batch/type#size``: a column-major matrix, or a batch
of them. ``rows`` to ``batch`` are numbers or names of parameters; where the parameter ``transposed`` is not 0, rows and
columns change places; ``type`` names a parameter that holds a ``cudaDataType``; ``size`` is the bytes of an element.
What is left out at the end does not matter. ``name:*`` goes to the end of the block.
"""

from __future__ import annotations

from typing import NamedTuple

NAMES: dict[str, str] = {
    "handle": "h",
    "generator": "g",
    "batchCount": "batch",
    "outputPtr": "output",
    "stddev": "deviation",
    "sendbuf": "send",
    "sendbuff": "send",
    "recvbuf": "recv",
    "recvbuff": "recv",
    "buff": "buffer",
    "recvcount": "count",
    "sendcount": "count",
    "datatype": "type",
}
"""What CuPy calls a parameter that has a shorter name here."""


class Call(NamedTuple):
    """One family of functions.

    Attributes:
        names: of the functions; ``{t}`` stands for each of the type letters s, d, c and z.
        parameters: the names of its parameters.
        reads, writes: operands.
    """

    names: str
    parameters: str
    reads: str
    writes: str


CUBLAS: tuple[Call, ...] = (
    Call(
        "{t}gemm",
        "h transa transb m n k alpha A lda B ldb beta C ldc",
        "A:m,k,lda,transa B:k,n,ldb,transb",
        "C:m,n,ldc",
    ),
    Call(
        "{t}gemmStridedBatched",
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
        "h transa transb m n k alpha A Atype lda strideA B Btype ldb strideB beta C Ctype ldc strideC batch type algo",
        "A:m,k,lda,transa,strideA,batch/Atype B:k,n,ldb,transb,strideB,batch/Btype",
        "C:m,n,ldc,,strideC,batch/Ctype",
    ),
    Call("{t}gemv", "h trans m n alpha A lda x incx beta y incy", "A:m,n,lda x:*", "y:*"),
    Call(
        "{t}ger {t}geru {t}gerc", "h m n alpha x incx y incy A lda", "x:m,1,m y:n,1,n A:m,n,lda", "A:m,n,lda"
    ),
    Call("{t}dot {t}dotu {t}dotc", "h n x incx y incy result", "x:n,1,n y:n,1,n", "result:1,1,1"),
    Call("{t}nrm2 {t}asum", "h n x incx result", "x:n,1,n", "result:1,1,1"),
    Call("i{t}amax i{t}amin", "h n x incx result", "x:n,1,n", "result:1,1,1"),
    Call("{t}axpy", "h n alpha x incx y incy", "x:n,1,n y:n,1,n", "y:n,1,n"),
    Call("{t}scal", "h n alpha x incx", "x:n,1,n", "x:n,1,n"),
    Call("{t}sbmv", "h uplo n k alpha A lda x incx beta y incy", "A:n,n,lda x:n,1,n", "y:n,1,n"),
    Call("{t}syrk", "h uplo trans n k alpha A lda beta C ldc", "A:n,k,lda,trans", "C:n,n,ldc"),
    Call(
        "{t}geam",
        "h transa transb m n alpha A lda beta B ldb C ldc",
        "A:m,n,lda,transa B:m,n,ldb,transb",
        "C:m,n,ldc",
    ),
    Call("{t}dgmm", "h mode m n A lda x incx C ldc", "A:m,n,lda x:*", "C:m,n,ldc"),
    # Arrays of pointers: the matrices behind them are the device's to know.
    Call("{t}gemmBatched", "h transa transb m n k alpha A lda B ldb beta C ldc batch", "A:* B:* C:*", ""),
    Call("{t}getrfBatched", "h n A lda pivots info batch", "A:*", "pivots:* info:*"),
    Call("{t}getrsBatched", "h trans n nrhs A lda pivots B ldb info batch", "A:* pivots:* B:*", ""),
    Call("{t}getriBatched", "h n A lda pivots C ldc info batch", "A:* pivots:* C:*", "info:*"),
    Call("{t}trsmBatched", "h side uplo trans diag m n alpha A lda B ldb batch", "A:* B:*", ""),
    Call("{t}trsm", "h side uplo trans diag m n alpha A lda B ldb", "A:* B:m,n,ldb", "B:m,n,ldb"),
)

CURAND: tuple[Call, ...] = (
    Call("generate generateUniform generatePoisson", "g output n *", "", "output:n,1,n#4"),
    Call("generateUniformDouble generateLongLong", "g output n *", "", "output:n,1,n#8"),
    Call("generateNormal generateLogNormal", "g output n mean deviation", "", "output:n,1,n#4"),
    Call("generateNormalDouble generateLogNormalDouble", "g output n mean deviation", "", "output:n,1,n#8"),
)

# cuSOLVER works in place on arrays that CuPy made for it: every pointer is written, but for these operands.
CUSOLVER: dict[str, tuple[str, str]] = {
    "getrs": ("h trans n nrhs A lda devIpiv B ldb devInfo", "A devIpiv"),
    "potrs": ("h uplo n nrhs A lda B ldb devInfo", "A"),
    "ormqr": ("h side trans m n k A lda tau C ldc work lwork devInfo", "A tau"),
    "unmqr": ("h side trans m n k A lda tau C ldc work lwork devInfo", "A tau"),
    **dict.fromkeys(
        [
            "potrf",
            "getrf",
            "geqrf",
            "orgqr",
            "ungqr",
            "gesvd",
            "gebrd",
            "syevd",
            "heevd",
            "syevj",
            "heevj",
            "gesvdj",
            "sytrf",
            "potrfBatched",
            "potrsBatched",
        ],
        ("h", ""),
    ),
}

# The functions that compute; CuPy keeps `destroy` for handles that go when the interpreter ends.
CUSOLVER_COMPUTES = r"(?!.*(?:_bufferSize$|[cC]reate|[dD]estroy|Set))[sdczx][a-z]{4}"

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
    "cupyx.cusolver": "gesvdj|gesvda|syevj|csrlsvqr|gesv|gels|_gesvdj_batched|_geqrf_orgqr_batched",
}

# cuTENSOR, on arrays: parameters, what is written, and the factor that tells whether that is read before. CuPy comes by
# the functions that begin with `_try` where the accelerator is on.
CUTENSOR: dict[str, tuple[str, str, str]] = {
    "contraction": ("alpha A mode_A B mode_B beta C mode_C", "C", "beta"),
    "reduction": ("alpha A mode_A beta C mode_C", "C", "beta"),
    "elementwise_binary": ("alpha A mode_A gamma C mode_C out", "out", ""),
    "elementwise_trinary": ("alpha A mode_A beta B mode_B gamma C mode_C out", "out", ""),
    "_try_reduction_routine": ("x axis dtype out keepdims reduce_op alpha beta", "out", "beta"),
    "_try_elementwise_binary_routine": ("a c dtype out op alpha gamma", "out", ""),
    "copyMg": ("dst mode_Dst src mode_Src", "dst", ""),
    "contractionMg": ("alpha A modeA B modeB beta C modeC", "C", "beta"),
}

# cuRAND's device generators, in cupy.random._generator_api: methods on arrays, by class.
GENERATORS: dict[str, str] = {"Generator": "(?!_|bit_generator)[a-z]\\w+"}
