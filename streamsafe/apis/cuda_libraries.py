"""What calls of CUDA's libraries read and write: operands are named after the parameters of CuPy's bindings.

An operand is written ``name:rows,columns,leading,transposed,stride,batch/type#size``: a column-major matrix, or a batch
of them. ``rows`` to ``batch`` are numbers or names of parameters; where the parameter ``transposed`` is not 0, rows and
columns change places; ``type`` names a parameter that holds a ``cudaDataType``; ``size`` is the bytes of an element.
What is left out at the end does not matter. ``name:*`` goes to the end of the block. ``name@`` is as long from every
rank; ``name?factor`` is read where the factor is not 0.
"""

from __future__ import annotations

from streamsafe.apis.effects import Call, each

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


CUBLAS: tuple[Call, ...] = (
    Call(
        "cublas.{t}gemm",
        "h transa transb m n k alpha A lda B ldb beta C ldc",
        reads="A:m,k,lda,transa B:k,n,ldb,transb",
        writes="C:m,n,ldc",
    ),
    Call(
        "cublas.{t}gemmStridedBatched",
        "h transa transb m n k alpha A lda strideA B ldb strideB beta C ldc strideC batch",
        reads="A:m,k,lda,transa,strideA,batch B:k,n,ldb,transb,strideB,batch",
        writes="C:m,n,ldc,,strideC,batch",
    ),
    Call(
        "cublas.sgemmEx",
        "h transa transb m n k alpha A Atype lda B Btype ldb beta C Ctype ldc",
        reads="A:m,k,lda,transa/Atype B:k,n,ldb,transb/Btype",
        writes="C:m,n,ldc/Ctype",
    ),
    Call(
        "cublas.gemmEx",
        "h transa transb m n k alpha A Atype lda B Btype ldb beta C Ctype ldc computeType algo",
        reads="A:m,k,lda,transa/Atype B:k,n,ldb,transb/Btype",
        writes="C:m,n,ldc/Ctype",
    ),
    Call(
        "cublas.gemmStridedBatchedEx",
        "h transa transb m n k alpha A Atype lda strideA B Btype ldb strideB beta C Ctype ldc strideC batch type algo",
        reads="A:m,k,lda,transa,strideA,batch/Atype B:k,n,ldb,transb,strideB,batch/Btype",
        writes="C:m,n,ldc,,strideC,batch/Ctype",
    ),
    Call("cublas.{t}gemv", "h trans m n alpha A lda x incx beta y incy", reads="A:m,n,lda x:*", writes="y:*"),
    *each(
        "cublas",
        "{t}ger {t}geru {t}gerc",
        parameters="h m n alpha x incx y incy A lda",
        reads="x:m,1,m y:n,1,n A:m,n,lda",
        writes="A:m,n,lda",
    ),
    *each(
        "cublas",
        "{t}dot {t}dotu {t}dotc",
        parameters="h n x incx y incy result",
        reads="x:n,1,n y:n,1,n",
        writes="result:1,1,1",
    ),
    *each(
        "cublas", "{t}nrm2 {t}asum", parameters="h n x incx result", reads="x:n,1,n", writes="result:1,1,1"
    ),
    *each(
        "cublas", "i{t}amax i{t}amin", parameters="h n x incx result", reads="x:n,1,n", writes="result:1,1,1"
    ),
    Call("cublas.{t}axpy", "h n alpha x incx y incy", reads="x:n,1,n y:n,1,n", writes="y:n,1,n"),
    Call("cublas.{t}scal", "h n alpha x incx", reads="x:n,1,n", writes="x:n,1,n"),
    Call(
        "cublas.{t}sbmv",
        "h uplo n k alpha A lda x incx beta y incy",
        reads="A:n,n,lda x:n,1,n",
        writes="y:n,1,n",
    ),
    Call(
        "cublas.{t}syrk",
        "h uplo trans n k alpha A lda beta C ldc",
        reads="A:n,k,lda,trans",
        writes="C:n,n,ldc",
    ),
    Call(
        "cublas.{t}geam",
        "h transa transb m n alpha A lda beta B ldb C ldc",
        reads="A:m,n,lda,transa B:m,n,ldb,transb",
        writes="C:m,n,ldc",
    ),
    Call("cublas.{t}dgmm", "h mode m n A lda x incx C ldc", reads="A:m,n,lda x:*", writes="C:m,n,ldc"),
    # Arrays of pointers: the matrices behind them are the device's to know.
    Call(
        "cublas.{t}gemmBatched",
        "h transa transb m n k alpha A lda B ldb beta C ldc batch",
        reads="A:* B:* C:*",
    ),
    Call("cublas.{t}getrfBatched", "h n A lda pivots info batch", reads="A:*", writes="pivots:* info:*"),
    Call("cublas.{t}getrsBatched", "h trans n nrhs A lda pivots B ldb info batch", reads="A:* pivots:* B:*"),
    Call(
        "cublas.{t}getriBatched",
        "h n A lda pivots C ldc info batch",
        reads="A:* pivots:* C:*",
        writes="info:*",
    ),
    Call("cublas.{t}trsmBatched", "h side uplo trans diag m n alpha A lda B ldb batch", reads="A:* B:*"),
    Call(
        "cublas.{t}trsm",
        "h side uplo trans diag m n alpha A lda B ldb",
        reads="A:* B:m,n,ldb",
        writes="B:m,n,ldb",
    ),
)

CURAND: tuple[Call, ...] = (
    *each(
        "curand",
        "generate generateUniform generatePoisson",
        parameters="g output n *",
        writes="output:n,1,n#4",
    ),
    *each(
        "curand", "generateUniformDouble generateLongLong", parameters="g output n *", writes="output:n,1,n#8"
    ),
    *each(
        "curand",
        "generateNormal generateLogNormal",
        parameters="g output n mean deviation",
        writes="output:n,1,n#4",
    ),
    *each(
        "curand",
        "generateNormalDouble generateLogNormalDouble",
        parameters="g output n mean deviation",
        writes="output:n,1,n#8",
    ),
)

CUSOLVER: tuple[Call, ...] = (
    Call("cusolver.{t}getrs", "h trans n nrhs A lda devIpiv B ldb devInfo", reads="A devIpiv", writes="*"),
    Call("cusolver.{t}potrs", "h uplo n nrhs A lda B ldb devInfo", reads="A", writes="*"),
    Call(
        "cusolver.{t}ormqr",
        "h side trans m n k A lda tau C ldc work lwork devInfo",
        reads="A tau",
        writes="*",
    ),
    Call(
        "cusolver.{t}unmqr",
        "h side trans m n k A lda tau C ldc work lwork devInfo",
        reads="A tau",
        writes="*",
    ),
    *each(
        "cusolver",
        "{t}potrf {t}getrf {t}geqrf {t}orgqr {t}ungqr {t}gesvd {t}gebrd {t}syevd"
        " {t}heevd {t}syevj {t}heevj {t}gesvdj {t}sytrf {t}potrfBatched {t}potrsBatched",
        parameters="h",
        writes="*",
    ),
)
"""cuSOLVER works in place on arrays that CuPy made for it: every pointer is written, but for those that are read."""

CUSOLVER_COMPUTES = r"(?!.*(?:_bufferSize$|[cC]reate|[dD]estroy|Set))[sdczx][a-z]{4}"
"""The functions that compute; CuPy keeps `destroy` for handles that go when the interpreter ends."""

NCCL: tuple[Call, ...] = (
    Call("nccl.allReduce", "send recv count type op stream", reads="send", writes="recv", on="stream"),
    Call("nccl.reduce", "send recv count type op root stream", reads="send", writes="recv", on="stream"),
    Call("nccl.broadcast", "send recv count type root stream", reads="send", writes="recv", on="stream"),
    Call("nccl.bcast", "buffer count type root stream", reads="buffer", writes="buffer", on="stream"),
    Call("nccl.reduceScatter", "send recv count type op stream", reads="send@", writes="recv", on="stream"),
    Call("nccl.allGather", "send recv count type stream", reads="send", writes="recv@", on="stream"),
    Call("nccl.send", "send count type peer stream", reads="send", on="stream"),
    Call("nccl.recv", "recv count type peer stream", writes="recv", on="stream"),
)
"""Sizes are counts of elements; allGather receives, and reduceScatter sends, a count from every rank."""

CUTENSOR: tuple[Call, ...] = (
    Call("cutensor.contraction", "alpha A mode_A B mode_B beta C mode_C", reads="A B C?beta", writes="C"),
    Call("cutensor.reduction", "alpha A mode_A beta C mode_C", reads="A C?beta", writes="C"),
    Call("cutensor.elementwise_binary", "alpha A mode_A gamma C mode_C out", reads="A C", writes="out"),
    Call(
        "cutensor.elementwise_trinary",
        "alpha A mode_A beta B mode_B gamma C mode_C out",
        reads="A B C",
        writes="out",
    ),
    Call(
        "cutensor._try_reduction_routine",
        "x axis dtype out keepdims reduce_op alpha beta",
        reads="x out?beta",
        writes="out",
    ),
    Call(
        "cutensor._try_elementwise_binary_routine", "a c dtype out op alpha gamma", reads="a c", writes="out"
    ),
    Call("cutensor.copyMg", "dst mode_Dst src mode_Src", reads="src", writes="dst"),
    Call("cutensor.contractionMg", "alpha A modeA B modeB beta C modeC", reads="A B C?beta", writes="C"),
)
"""On arrays. CuPy comes by the functions that begin with ``_try`` where the accelerator is on."""

ARRAY_FUNCTIONS: dict[str, str] = {
    "cupy.cuda.cub": "cub_reduction|cub_scan|cub_histogram|device_\\w+",
    "cupyx.cusparse": "(?!create|destroy|check|get|set|is)[a-z]\\w+",
    "cupyx.cusolver": "gesvdj|gesvda|syevj|csrlsvqr|gesv|gels|_gesvdj_batched|_geqrf_orgqr_batched",
}
"""Functions on arrays, by module: all array arguments are read, results (and ``out=``) are written."""

GENERATORS: dict[str, str] = {"Generator": "(?!_|bit_generator)[a-z]\\w+"}
"""cuRAND's device generators, in ``cupy.random._generator_api``: methods on arrays, by class."""

ROWS: tuple[Call, ...] = (*CUBLAS, *CURAND, *CUSOLVER, *NCCL, *CUTENSOR)
