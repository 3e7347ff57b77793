"""One name for each library function, and the methods that the check knows by their last name alone.

The models of the check (``streamsafe/check/models``) read them. Sources: the pages of torch.cuda, torch.Stream and
torch.accelerator, CuPy's ``cupy.cuda`` reference, and the pages of both on CUDA graphs.
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
    return _RENAMED.get(name, name)


GRADIENT_METHODS = frozenset(
    """unscale_ unscale_gradients clip_grad_norm_ clip_grad_norm clip_grad_value_ clip_gradients
    configure_gradient_clipping""".split()
)
"""Of an optimizer, or what trains: they read and change the gradients."""


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


DEVICE_QUERIES = frozenset({"done"})
"""Attributes that ask the device each time they are read."""


CAPTURABLE_OPTIMIZERS = frozenset("ASGD Adadelta Adam AdamW Adamax NAdam RAdam RMSprop Rprop".split())
"""Optimizers that keep their step counts on the host unless they are made with ``capturable=True``."""


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
