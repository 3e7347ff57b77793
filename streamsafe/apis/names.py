"""What library calls mean, as data: canonical names, and the effect of each call.

The models of the check (`streamsafe/check/models`) read them.

Sources: torch.cuda, torch.Stream and torch.accelerator pages, CuPy's ``cupy.cuda`` reference, CUDA graphs pages of
both, and the rows of docs/semantics.md named beside.

One file: it is one table of data, a row for each call, and the rows are looked up and reviewed together.
"""

from __future__ import annotations

import re
from functools import lru_cache

from streamsafe.apis import cupy, python, torch
from streamsafe.apis.effects import PIECES, named

_DEVICE_MODULES = re.compile(
    r"^(?:torch\.(?:accelerator|xpu|npu|mtia|musa|mlu|hpu|gcu|sdaa|privateuseone)|torch_npu\.npu)(?=\.|$)"
)

_COMMUNICATION = re.compile(r"^deepspeed\.comm(?:\.comm)?(?=\.|$)")
"""Modules that stand for ``torch.distributed``: the same calls, the same order."""

COLLECTIVES = frozenset(
    """all_reduce all_gather all_gather_into_tensor all_gather_single reduce_scatter reduce_scatter_tensor
    reduce_scatter_single all_to_all all_to_all_single broadcast reduce send recv""".split()
)
"""What communicators of other libraries call as ``torch.distributed`` does."""

_RENAMED = {
    "torch.Stream": "torch.cuda.Stream",
    "torch.Event": "torch.cuda.Event",
    "torch.cuda.streams.Stream": "torch.cuda.Stream",
    "torch.cuda.streams.Event": "torch.cuda.Event",
    "torch.cuda.streams.ExternalStream": "torch.cuda.ExternalStream",
    "torch.cuda.StreamContext": "torch.cuda.stream",
    "torch.cuda.graphs.CUDAGraph": "torch.cuda.CUDAGraph",
    "torch.cuda.graphs.graph": "torch.cuda.graph",
    "torch.cuda.graphs.make_graphed_callables": "torch.cuda.make_graphed_callables",
    "torch.cuda.graphs.graph_pool_handle": "torch.cuda.graph_pool_handle",
    "torch.cuda.graphs.is_current_stream_capturing": "torch.cuda.is_current_stream_capturing",
    "torch.cuda.NPUGraph": "torch.cuda.CUDAGraph",
    "torch.cuda.XPUGraph": "torch.cuda.CUDAGraph",
    "torch.cuda.MUSAGraph": "torch.cuda.CUDAGraph",
    "torch.cuda.set_stream_by_id": "torch.cuda.set_stream",
    "torch.get_device_module": "torch.get_device_module",
    "torch.clip_grad_norm_": "torch.nn.utils.clip_grad_norm_",
    "torch.nn.utils.clip_grad.clip_grad_norm_": "torch.nn.utils.clip_grad_norm_",
    "torch.nn.utils.clip_grad.clip_grad_value_": "torch.nn.utils.clip_grad_value_",
    "cupy.cuda.stream.Stream": "cupy.cuda.Stream",
    "cupy.cuda.stream.Event": "cupy.cuda.Event",
    "cupy.cuda.stream.ExternalStream": "cupy.cuda.ExternalStream",
    "cupy.cuda.stream.get_current_stream": "cupy.cuda.get_current_stream",
    "cupy.cuda.stream.get_elapsed_time": "cupy.cuda.get_elapsed_time",
    "cupyx.zeros_pinned": "cupyx.empty_pinned",
    "cupyx.empty_like_pinned": "cupyx.empty_pinned",
    "cupyx.zeros_like_pinned": "cupyx.empty_pinned",
    "cupy.ascontiguousarray": "cupy.asarray",
    "cupy.asanyarray": "cupy.asarray",
    "deepspeed.accelerator.get_accelerator": "get_accelerator",
    "deepspeed.get_accelerator": "get_accelerator",
    "accelerator.get_accelerator": "get_accelerator",
}


@lru_cache(maxsize=4096)
def canonical(name: str) -> str:
    """The one name of a library function that goes by several."""
    name = _COMMUNICATION.sub("torch.distributed", _DEVICE_MODULES.sub("torch.cuda", name))
    if name.startswith("torch.cuda.current_accelerator"):
        return name
    return _RENAMED.get(name, name)


GRADIENT_METHODS = frozenset(
    """unscale_ unscale_gradients clip_grad_norm_ clip_grad_norm clip_grad_value_ clip_gradients
    configure_gradient_clipping""".split()
)
"""Of an optimizer, or what trains: they read and change the gradients."""


BUILTINS = frozenset(
    """abs all any bool bytearray bytes callable dict enumerate filter float format frozenset getattr hasattr hash id
    input int isinstance issubclass iter len list map max memoryview min next object open ord pow print property range
    repr reversed round set setattr slice sorted staticmethod str sum super tuple type vars zip""".split()
)

_KINDS = frozenset("dict list tuple set deque".split())


INTEGERS = frozenset(
    ["builtins.int"]
    + [
        f"{library}.{kind}"
        for library in ("numpy", "cupy")
        for kind in "int8 int16 int32 int64 uint8 uint16 uint32 uint64 intp intc uintc".split()
    ]
)
"""Make whole numbers of numbers."""

_ELEMENTS = "BFloat16 Bool Byte Char Double Float Half Int Long Short".split()
"""The types of tensors have constructors of their own: ``torch.FloatTensor``, ``torch.cuda.LongTensor``."""

FUNCTIONS: dict[str, str] = {
    **dict.fromkeys(("math.ceil", "triton.cdiv"), "rounded_up"),
    **dict.fromkeys(INTEGERS, "host_scalar"),
    # streams and events (TS)
    "torch.cuda.Stream": "make_stream",
    "torch.cuda.ExternalStream": "make_external_stream",
    "torch.cuda.stream": "stream_context",
    "torch.cuda.current_stream": "current_stream",
    "torch.cuda.default_stream": "default_stream",
    "torch.cuda.set_stream": "set_stream",
    "torch.cuda.synchronize": "synchronize_device",
    "torch.cuda.Event": "make_event",
    "torch.cuda.Event.from_ipc_handle": "share_event",
    "torch.cuda.device": "cuda_device",
    "torch.cuda.set_device": "cuda_device",
    "torch.cuda.device_of": "plain_context",
    "torch.cuda.is_available": "yes",
    "torch.cuda.is_initialized": "yes",
    "torch.get_device_module": "device_module",
    "get_accelerator": "device_module",
    "torch.cuda.empty_cache": "nothing",
    "torch.cuda.pin_memory": "pin_memory",  # of an accelerator object
    "torch.cuda.unpin_memory": "nothing",
    "torch.cuda.on_accelerator": "on_device",
    "torch.cuda.resolves_data_dependency": "no",  # what an accelerator object says where it is CUDA
    "torch.cuda.handles_memory_backpressure": "no",
    "torch.cuda.is_synchronized_device": "no",
    "torch.compiler.is_compiling": "no",  # while it is traced nothing runs
    "torch.compiler.is_dynamo_compiling": "no",
    "torch.distributed._functional_collectives.is_torchdynamo_compiling": "no",
    "torch.distributed._functional_collectives_impl._register_tensor_work": "nothing",
    "torch.distributed._functional_collectives._maybe_wrap_tensor": "pass_through",
    "torch.jit.is_scripting": "no",
    "torch.cuda.is_current_stream_capturing": "is_capturing",
    "torch.cuda.graph": "capture_context",
    "torch.cuda.CUDAGraph": "make_graph",
    "torch.cuda.graph_pool_handle": "make_pool",
    "torch.cuda.make_graphed_callables": "graphed_callables",
    "torch.cuda.get_rng_state": "read_rng_state",
    "torch.cuda.set_rng_state": "read_rng_state",
    "torch.random.fork_rng": "read_rng_state",
    "torch.cuda.get_rng_state_all": "read_rng_state",
    "torch.cuda.set_rng_state_all": "read_rng_state",
    **dict.fromkeys(
        "torch.manual_seed torch.seed torch.cuda.manual_seed torch.cuda.manual_seed_all torch.cuda.seed"
        " torch.cuda.seed_all torch.cuda.initial_seed".split(),
        "read_rng_state",
    ),
    **{
        f"torch.cuda.default_generators.{name}": "read_rng_state"
        for name in "clone_state get_state set_state get_offset set_offset initial_seed seed manual_seed".split()
    },
    "torch.Generator": "make_generator",
    "torch.device": "make_device",
    # copies (TM)
    "torch.from_numpy": "share_host",
    "torch.as_tensor": "as_tensor",
    "torch.asarray": "as_tensor",
    "torch.tensor": "make_tensor",
    "torch.frombuffer": "share_host",
    **{
        f"torch.{kind}Tensor": "make_tensor"  # of the host, whatever the default device is
        for kind in _ELEMENTS
    },
    **{f"torch.cuda.{kind}Tensor": "make_cuda_tensor" for kind in _ELEMENTS},
    "torch.load": "load",
    "torch._utils._unflatten_dense_tensors": "pass_through",  # views of it
    # autograd (TA)
    "torch.autograd.backward": "backward_function",
    "torch.autograd.grad": "grad_function",
    "torch.autograd.graph.saved_tensors_hooks": "saved_tensors_hooks",
    "torch.autograd.Variable._execution_engine.queue_callback": "queue_callback",
    "torch.autograd.graph.register_multi_grad_hook": "multi_grad_hook",
    "torch.autograd.variable.Variable._execution_engine.queue_callback": "queue_callback",
    "torch.nn.utils.clip_grad_norm_": "use_gradients",
    "torch.nn.utils.clip_grad_value_": "use_gradients",
    "torch.nn.utils.get_total_norm": "use_gradients",
    # host-blocking torch functions (TM-10)
    "torch.nonzero": "blocking_operation",
    "torch.masked_select": "blocking_operation",
    "torch.unique": "blocking_operation",
    "torch.unique_consecutive": "blocking_operation",
    "torch.equal": "blocking_operation",
    "torch.allclose": "blocking_operation",
    "torch.argwhere": "blocking_operation",
    "torch.testing.assert_close": "blocking_operation",
    "torch.testing.assert_allclose": "blocking_operation",
    "triton.testing.do_bench": "benchmark",
    "triton.testing.do_bench_cudagraph": "benchmark",
    "torch.bincount": "blocking_operation",
    "torch.nn.functional.one_hot": "counted",
    "torch.repeat_interleave": "repeat_interleave",
    "torch.where": "where",
    "torch.compile": "pass_through",
    "torch.is_tensor": "plain",
    "torch._dynamo.mark_static_address": "plain",
    "torch._dynamo.mark_static": "plain",
    "torch._dynamo.mark_dynamic": "plain",
    "torch._dynamo.maybe_mark_dynamic": "plain",
    "torch.onnx.export": "plain",
    "torch.numel": "plain",
    "torch.is_grad_enabled": "plain",
    "torch.save": "host_library",
    "torch.utils._pytree.tree_map": "tree_map",
    "torch.utils._pytree.tree_map_": "tree_map",
    "torch.utils._pytree.tree_map_only": "tree_map_only",
    "torch.utils._pytree.tree_map_only_": "tree_map_only",
    "optree.tree_map": "tree_map",
    "torch.utils.data.DataLoader": "make_loader",
    # CuPy (CS)
    "cupy.cuda.Stream": "make_cupy_stream",
    "cupy.cuda.ExternalStream": "make_external_stream",
    "cupy.cuda.Stream.from_external": "make_external_stream",
    "cupy.cuda.get_current_stream": "current_cupy_stream",
    "cupy.cuda.Event": "make_cupy_event",
    "cupy.cuda.get_elapsed_time": "elapsed_time_function",
    "cupy.cuda.runtime.streamCreate": "make_cupy_stream",
    "cupy.cuda.runtime.streamCreateWithFlags": "make_raw_stream",
    "cupy.cuda.runtime.deviceSynchronize": "synchronize_device",
    "cupy.cuda.runtime.streamSynchronize": "synchronize_raw_stream",
    "cupy.cuda.Device": "cupy_device",
    "cupy.asnumpy": "asnumpy",
    "cupy.asarray": "cupy_asarray",
    "cupy.array": "cupy_asarray",
    "cupy.ndarray": "pointed_array",
    "cupy.from_dlpack": "from_dlpack",
    "cupy.fromDlpack": "from_dlpack",
    "torch.from_dlpack": "from_dlpack",
    "torch.utils.dlpack.from_dlpack": "from_dlpack",
    "torch.utils.dlpack.to_dlpack": "to_dlpack",
    "torch.to_dlpack": "to_dlpack",
    "cupy.cuda.texture.CUDAarray": "make_texture",
    "cupy.cuda.texture.ResourceDescriptor": "texture_resource",
    "cupy.cuda.texture.TextureObject": "pointer_to",
    "cupy.cuda.texture.SurfaceObject": "pointer_to",
    "cupy.cuda.cufft.Plan1d": "make_plan",
    "cupy.cuda.cufft.PlanNd": "make_plan",
    "cupyx.scipy.fft.get_fft_plan": "make_plan",
    "cupyx.scipy.fftpack.get_fft_plan": "make_plan",
    "cupyx.scipy.sparse.csr_matrix": "make_sparse",
    "cupyx.scipy.sparse.csc_matrix": "make_sparse",
    "cupyx.scipy.sparse.coo_matrix": "make_sparse",
    "cupyx.scipy.sparse.dia_matrix": "make_sparse",
    "cupy.random.RandomState": "make_random",
    "cupy.random.Generator": "make_random",
    "cupy.random.default_rng": "make_random",
    "numpy.random.RandomState": "make_random",
    "numpy.random.Generator": "make_random",
    "numpy.random.default_rng": "make_random",
    "cupy.cuda.UnownedMemory": "pointer_to",
    "cupy.cuda.MemoryPointer": "pointer_to",
    "ctypes.c_void_p": "pointer_to",
    "cupy.cuda.runtime.memcpyAsync": "raw_copy",
    "cupy.cuda.runtime.memcpy": "raw_copy",
    "cupy.cuda.runtime.memsetAsync": "raw_fill",
    "cupy.cuda.runtime.memset": "raw_fill",
    "cupy.cuda.runtime.eventCreate": "make_cupy_event",
    "cupy.cuda.runtime.eventCreateWithFlags": "make_cupy_event",
    "cupy.cuda.runtime.eventSynchronize": "event_synchronize",
    "cupy.cuda.runtime.streamWaitEvent": "raw_wait",
    "cupy.cuda.runtime.eventRecord": "raw_record",
    "cupy.empty": "cupy_factory",
    "cupyx.empty_pinned": "cupy_pinned",
    "cupy.cuda.alloc_pinned_memory": "cupy_pinned",
    "cupy.cuda.PinnedMemoryPool": "make_pinned_pool",
    "cupy.get_default_pinned_memory_pool": "make_pinned_pool",
    "cupy.RawKernel": "make_kernel",
    "cupy.ElementwiseKernel": "make_kernel",
    "cupy.ReductionKernel": "make_kernel",
    "cupy.RawModule": "make_kernel",
    "cupy.nonzero": "blocking_operation",
    "cupy.where": "where",
    "cupy.unique": "blocking_operation",
    "cupy.fuse": "make_kernel",
    # numba
    "numba.cuda.stream": "make_cupy_stream",
    "numba.cuda.synchronize": "synchronize_device",
    "logging.getLogger": "logger",
    # clocks
    "time.time": "clock",
    "time.perf_counter": "clock",
    "time.perf_counter_ns": "clock",
    "time.monotonic": "clock",
    "time.monotonic_ns": "clock",
    "time.time_ns": "clock",
    "time.process_time": "plain",
    "timeit.default_timer": "clock",
    "datetime.datetime.now": "clock",
    # Python
    "contextlib.nullcontext": "null_context",
    "contextlib.suppress": "null_context",
    "pytest.raises": "raises_context",
    "contextlib.ExitStack": "exit_stack",
    "contextlib.AsyncExitStack": "exit_stack",
    "contextlib.closing": "closing",
    "contextlib.aclosing": "closing",
    "functools.partial": "partial",
    "threading.Thread": "make_thread",
    **dict.fromkeys(
        (
            f"{module}.{kind}"
            for module in ("threading", "asyncio")
            for kind in ("Event", "Semaphore", "BoundedSemaphore", "Condition", "Barrier")
        ),
        "make_signal",
    ),
    "collections.deque": "make_container",
    "collections.defaultdict": "make_defaultdict",
    "collections.OrderedDict": "make_mapping",
    "weakref.WeakKeyDictionary": "make_mapping",
    "weakref.WeakValueDictionary": "make_mapping",
    "torch.utils.weak.WeakTensorKeyDictionary": "make_mapping",
    "torch.utils.weak.WeakIdKeyDictionary": "make_mapping",
    "queue.Queue": "make_queue",
    "queue.SimpleQueue": "make_queue",
    "concurrent.futures.ThreadPoolExecutor": "make_executor",
    "concurrent.futures.as_completed": "as_completed",
    "concurrent.futures.wait": "wait_futures",
    "asyncio.Queue": "make_channel",
    "asyncio.to_thread": "thread_call",
    "asyncio.run": "pass_through",
    "asyncio.wait_for": "pass_through",
    "asyncio.shield": "pass_through",
    "asyncio.create_task": "task",
    "asyncio.ensure_future": "task",
    "asyncio.gather": "gather",
    "anyio.to_thread.run_sync": "thread_call",
    "itertools.cycle": "cycle",
    "itertools.islice": "iterator",
    "itertools.chain": "chain",
    "itertools.chain.from_iterable": "chain",
    "functools.reduce": "reduce",
    **dict.fromkeys(("os.environ.get", "os.getenv"), "environment"),
    "os.readv": "unseen",
    "os.preadv": "unseen",
    **dict.fromkeys(("os.write", "os.writev", "os.pwrite", "os.pwritev"), "host_library"),
    "builtins.print": "host_library",
    "builtins.str": "host_scalar",
    "builtins.repr": "host_scalar",
    "builtins.format": "host_scalar",
    "builtins.abs": "arithmetic",
    "builtins.round": "arithmetic",
    "builtins.bytes": "host_library",
    "builtins.bytearray": "host_library",
    "builtins.memoryview": "share_host",
    "builtins.float": "host_scalar",
    "builtins.bool": "truth",
    "builtins.sum": "host_sum",
    "builtins.max": "host_sum",
    "builtins.min": "host_sum",
    "builtins.any": "host_sum",
    "builtins.all": "host_sum",
    "builtins.list": "make_container",
    "builtins.tuple": "make_tuple",
    "builtins.set": "make_container",
    "builtins.dict": "make_mapping",
    "builtins.sorted": "sort",
    "builtins.iter": "iterator",
    "builtins.next": "next_item",
    "builtins.reversed": "lazily",
    "builtins.enumerate": "lazily",
    "builtins.zip": "lazily",
    "builtins.range": "lazily",
    "builtins.map": "map_call",
    "builtins.filter": "map_call",
    "builtins.len": "length",
    "importlib.import_module": "import_module",
    "torch.distributed.P2POp": "make_p2p",
    "torch.distributed.batch_isend_irecv": "batch_p2p",
    "torch.distributed.get_rank": "place_on_ring",
    "torch.distributed.get_world_size": "place_on_ring",
    "builtins.slice": "make_slice",
    "builtins.isinstance": "isinstance",
    "builtins.callable": "plain",
    "builtins.hasattr": "hasattr",
    "builtins.getattr": "getattr",
    "builtins.setattr": "setattr",
    "builtins.type": "type_of",
    "builtins.id": "identity",
    "builtins.hash": "plain",
    "builtins.super": "super",
    "copy.copy": "pass_through",
    "numba.cuda.as_cuda_array": "pass_through",
    "numba.cuda.from_cuda_array_interface": "pass_through",
    "warp.to_torch": "pass_through",
    "warp.from_torch": "pass_through",
    "warp.stream_from_torch": "pass_through",
    "warp.capture_begin": "warp_begin_capture",
    "warp.capture_end": "stream_end_capture",
    "warp.capture_launch": "graph_replay",
    "copy.deepcopy": "deep_copy",
    "builtins.vars": "vars",
    "dataclasses.asdict": "vars",
    "dataclasses.field": "dataclass_field",
    "dataclasses.replace": "replace",
    "attr.evolve": "replace",
    "attrs.evolve": "replace",
    "attr.ib": "dataclass_field",
    "attrs.field": "dataclass_field",
    "collections.namedtuple": "make_named_tuple",
    "types.SimpleNamespace": "make_namespace",
    "argparse.Namespace": "make_namespace",
    "types.MappingProxyType": "pass_through",
    "collections.ChainMap": "chained",
    "collections.UserDict": "make_mapping",
    "collections.Counter": "make_mapping",
    "collections.UserList": "make_container",
    "builtins.dict.fromkeys": "from_keys",
    "builtins.object.__new__": "new_object",
    "threading.local": "make_thread_local",
    "contextvars.ContextVar": "make_context_variable",
    "weakref.ref": "weak_reference",
    "weakref.proxy": "pass_through",
    "heapq.heappush": "push",
    "heapq.heappop": "take_any",
    "dataclasses.fields": "fields",
    "typing.cast": "cast",
    "tqdm.tqdm": "iterated",
    "tqdm.auto.tqdm": "iterated",
    "tqdm.autonotebook.tqdm": "iterated",
    "tqdm.notebook.tqdm": "iterated",
    "rich.progress.track": "iterated",
}


BINDINGS: dict[str, str] = {
    "cudaStreamCreate": "make_cupy_stream",
    **dict.fromkeys(
        "cudaStreamCreateWithFlags cudaStreamCreateWithPriority cuStreamCreate cuStreamCreateWithPriority".split(),
        "make_raw_stream",
    ),
    **dict.fromkeys(("cudaStreamSynchronize", "cuStreamSynchronize"), "synchronize_raw_stream"),
    **dict.fromkeys(("cudaDeviceSynchronize", "cuCtxSynchronize"), "synchronize_device"),
    **dict.fromkeys("cudaEventCreate cudaEventCreateWithFlags cuEventCreate".split(), "make_event_handle"),
    **dict.fromkeys(("cudaEventRecord", "cuEventRecord"), "raw_record"),
    **dict.fromkeys(("cudaEventSynchronize", "cuEventSynchronize"), "event_synchronize"),
    **dict.fromkeys(("cudaStreamWaitEvent", "cuStreamWaitEvent"), "raw_wait"),
    **dict.fromkeys(("cudaStreamBeginCaptureToGraph", "cuStreamBeginCaptureToGraph"), "begin_body_capture"),
    **dict.fromkeys(("cudaStreamEndCapture", "cuStreamEndCapture"), "end_body_capture"),
}
"""What NVIDIA's own bindings do: each call gives a tuple of an error and what it makes."""

FACTORIES = named(torch.FACTORIES, "torch") - {
    "_empty_affine_quantized",
    "empty_quantized",
    "_resize_output_",
    "_efficientzerotensor",
}
"""Make a fresh tensor; the ``_like`` ones read only the shape of their argument."""


ARRAY_TYPES = frozenset(
    """dtype bool_ int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64 complex64 complex128 intp
    result_type can_cast promote_types finfo iinfo shape ndim size get_array_module issubdtype isscalar index_exp s_
    get_default_memory_pool get_default_pinned_memory_pool""".split()
)
"""Functions of CuPy that make no array and touch none."""

ARRAY_WRITING_METHODS = named(cupy.WRITES, "cupy.ndarray")
"""Change an array of NumPy's or CuPy's in place."""


OF_LISTS = frozenset(
    "cat concat concatenate stack hstack vstack dstack column_stack row_stack block_diag pad_sequence".split()
)
"""Functions that read the elements of the list that they are given."""
ARRAY_VIEW_FUNCTIONS = named(cupy.VIEWS, "cupy")


VIEW_ATTRIBUTES = frozenset("data T mT H mH real imag base flat".split())

VIEW_METHODS = named(torch.VIEWS, "torch.Tensor")

VIEW_FUNCTIONS = named(torch.VIEWS, "torch")

HANDSHAKES = named(cupy.EXCHANGE, "torch", edge="*")
"""They make the current stream wait for that of the library whose memory they view."""


PIECE_METHODS = named(torch.VIEWS, "torch.Tensor", result=PIECES)
"""Views that have no element in common, in a tuple."""


ARITHMETIC_METHODS = frozenset(torch.TELLING.split())
"""Methods that tensors have and little else: who is asked for one is a tensor."""


EXPECTING_METHODS = frozenset({"assertRaises", "assertRaisesRegex"})
"""Of a test: what is done within is meant to fail."""


WRITING_DOWN = frozenset(
    """add_scalar add_scalars add_histogram add_image add_images add_video add_audio add_figure add_embedding
    add_pr_curve add_mesh set_postfix set_postfix_str""".split()
)
"""Methods of TensorBoard's writer of summaries and of tqdm's line of progress: they bring what they are given to the
host, and wait.
"""

METADATA_METHODS = named(torch.METADATA, "torch.Tensor")


OTHER_TENSOR_METHODS = frozenset((*torch.COMPUTING.split(), "allclose", "argwhere"))
"""More of them, that other objects may have as well."""

MATRIX_PRODUCTS = frozenset(
    """matmul mm bmm mv dot vdot tensordot einsum addmm addbmm baddbmm addmv addr chain_matmul multi_dot matrix_power
    kron linear bilinear conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d
    scaled_dot_product_attention fft ifft fft2 ifft2 fftn ifftn rfft irfft rfft2 irfft2 rfftn irfftn convolve
    correlate svd eig eigh qr cholesky inv pinv solve lstsq det slogdet""".split()
)
"""Functions whose work grows faster than what they are given: products of matrices, convolutions and their like."""

HOST_RANDOM = frozenset(python.RANDOM.split())
"""Functions of ``random`` and ``numpy.random`` that draw."""

SCALAR_METHODS = named(torch.WAITS, "torch.Tensor", reads="self")
"""Give Python values: block the host on the current stream (TM-08, CS-26)."""


GENERATING_METHODS = frozenset({"generate"})
"""Of a model that is not seen: whether there is another token the host decides when it has the last one."""

BLOCKING_METHODS = named(torch.WAITS, "torch.Tensor") - SCALAR_METHODS
"""Block the host on the current stream and give tensors or booleans (TM-10)."""

MASKS = frozenset(
    """bool eq ne lt le gt ge less less_equal greater greater_equal not_equal isnan isinf isfinite isneginf isposinf
    isclose isin signbit logical_and logical_or logical_not logical_xor""".split()
)
"""Functions and methods of tensors that give booleans, one for each element."""

TENSOR_METHODS = (
    VIEW_METHODS
    | ARITHMETIC_METHODS
    | OTHER_TENSOR_METHODS
    | METADATA_METHODS
    | SCALAR_METHODS
    | BLOCKING_METHODS
    | frozenset(
        "to cuda cpu numpy copy_ pin_memory record_stream backward resize_ clone element_size".split()
    )
)
"""Methods of tensors: an object that is asked for anything else is none."""

NOT_IN_PLACE = named(torch.IN_PLACE_VIEWS, "torch.Tensor") | {
    "requires_grad_",
    "retain_grad_",
    "share_memory_",
    "detach_",
    "set_",
}
"""Change how the values are seen, not the values."""

HOST_FUNCTION = re.compile(r"_*(?:cuda)?_*(?:launch)?_*host_?func(?:tion)?", re.IGNORECASE)
"""As CUDA calls a function of the host that a stream calls: who is called so is given one, and what is decorated so
is given to the current stream where it is called."""


STREAM_METHODS: dict[str, str] = {
    "wait_stream": "stream_wait_stream",
    "wait_event": "stream_wait_event",
    "record_event": "stream_record_event",
    "record": "stream_record_event",
    "synchronize": "stream_synchronize",
    "query": "stream_query",
    "use": "stream_use",
    "begin_capture": "stream_begin_capture",
    "end_capture": "stream_end_capture",
    "is_capturing": "stream_is_capturing",
    "launch_host_func": "stream_callback",
    "add_callback": "stream_add_callback",
    "priority_range": "plain",
}


DEVICE_QUERIES = frozenset({"done"})
"""Attributes that ask the device each time they are read."""


CAPTURABLE_OPTIMIZERS = frozenset("ASGD Adadelta Adam AdamW Adamax NAdam RAdam RMSprop Rprop".split())
"""Optimizers that keep their step counts on the host unless they are made with ``capturable=True``."""


GRAPH_METHODS: dict[str, str] = {
    "capture_begin": "graph_capture_begin",
    "capture_end": "graph_capture_end",
    "replay": "graph_replay",
    "launch": "graph_replay",
    "upload": "plain",
    "reset": "graph_reset",
    "pool": "graph_pool",
    "register_generator_state": "graph_register_generator",
    "enable_debug_mode": "plain",
    "debug_dump": "plain",
    "instantiate": "plain",
    "keep_graph": "plain",
}

OPAQUE_STREAM_METHODS = frozenset(
    {"wait_stream", "wait_event", "record_event", "begin_capture", "end_capture"}
)
"""Only streams have these: who is asked for one is a stream."""


ORDERING_METHODS = frozenset(
    "synchronize synchronize_all wait sync sync_all join flush result wait_all barrier wait_until_finished".split()
)
"""On an object that is not modelled: taken to order everything on the host."""


SIGNAL_WAITS = frozenset("wait wait_for acquire".split())
"""What threads tell one another, of ``threading.Event`` and its like: nothing of it concerns a device."""

THREAD_WAITS = frozenset("shutdown result exception join wait get done is_alive is_set".split())
"""Methods of threads, futures, pools, queues and signals that return, or are true, once another thread has got on."""

ATTRIBUTES: dict[str, str] = {
    "cupy.cuda.Stream.null": "default_stream",
    "cupy.cuda.stream.Stream.null": "default_stream",
    "cupy.cuda.Stream.ptds": "per_thread_stream",
}
"""Library attributes that are values."""
