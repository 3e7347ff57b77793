"""Tensors of PyTorch: functions and methods, with the operators of the dispatcher by which they come.

An operator's schema says what it reads and writes; a row with ``aten`` says what the schema does not. The collector in
C++ and the simulated device are compiled with these rows (``toolchain/torch_operators.py``).
"""

from __future__ import annotations

from streamsafe.apis.effects import (
    CURRENT,
    HOST,
    NEW,
    PIECES,
    PINNED,
    SAME,
    UNWRITTEN,
    VIEW,
    Call,
    each,
)

COPIES: tuple[Call, ...] = (
    Call("torch.Tensor.copy_", reads="src", writes="self", copy="non_blocking", aten="copy_", row="TM-01"),
    Call("torch.Tensor.to", reads="self", result=NEW, copy="non_blocking", aten="_to_copy", row="TM-05"),
    *each("torch.Tensor", "cuda", reads="self", result=NEW, copy="non_blocking", row="TM-01"),
    Call("torch.Tensor.cpu", reads="self", result=HOST, waits=CURRENT, row="TM-08"),
    Call("torch.Tensor.numpy", shape_of="self", result=VIEW),
    Call(
        "torch._foreach_copy_",
        reads="src",
        writes="self",
        copy="non_blocking",
        aten="_foreach_copy_",
        row="TM-01",
    ),
    Call("torch._copy_from", reads="self", writes="dst", copy="non_blocking", aten="_copy_from", row="TM-01"),
    Call(
        "torch.Tensor.pin_memory", reads="self", result=NEW, allocates=PINNED, aten="_pin_memory", row="TM-13"
    ),
)

WAITS: tuple[Call, ...] = (
    Call(
        "torch.Tensor.item", reads="self", result=HOST, waits=CURRENT, aten="_local_scalar_dense", row="TM-08"
    ),
    *each(
        "torch.Tensor",
        "tolist __float__ __int__ __bool__ is_nonzero",
        reads="self",
        result=HOST,
        waits=CURRENT,
        row="TM-08",
    ),
    *each(
        "torch torch.Tensor",
        "nonzero masked_select",
        reads="*",
        result=NEW,
        waits=CURRENT,
        aten="*",
        row="TM-10",
    ),
    *each("torch torch.Tensor", "argwhere", reads="*", result=NEW, waits=CURRENT, row="TM-10"),
    *each(
        "torch torch.Tensor",
        "unique",
        reads="*",
        result=NEW,
        waits=CURRENT,
        aten="_unique _unique2 unique_dim",
        row="TM-10",
    ),
    *each(
        "torch torch.Tensor",
        "unique_consecutive",
        reads="*",
        result=NEW,
        waits=CURRENT,
        aten="unique_consecutive unique_dim_consecutive",
        row="TM-10",
    ),
    *each("torch torch.Tensor", "equal", reads="*", result=HOST, waits=CURRENT, aten="equal", row="TM-10"),
    *each("torch torch.Tensor", "allclose", reads="*", result=HOST, waits=CURRENT, row="TM-10"),
    *each("torch torch.Tensor", "cov corrcoef inverse", reads="*", result=NEW, waits=CURRENT, row="TM-10"),
    *each("torch torch.Tensor", "cholesky", reads="*", result=NEW, waits=CURRENT, aten="*", row="TM-10"),
    Call("torch.testing.assert_close", reads="*", waits=CURRENT, row="TM-10"),
    Call("torch.testing.assert_allclose", reads="*", waits=CURRENT, row="TM-10"),
    Call("torch.bincount", reads="*", result=NEW, waits=CURRENT, aten="bincount", row="TM-10"),
    Call(
        "torch.nn.functional.one_hot",
        reads="tensor",
        result=NEW,
        waits=CURRENT,
        unless="num_classes",
        row="TM-10",
    ),
    Call(
        "torch.repeat_interleave",
        reads="*",
        result=NEW,
        waits=CURRENT,
        unless="output_size",
        aten="repeat_interleave",
        row="TM-10",
    ),
    Call("torch.where", reads="*", result=NEW, waits=CURRENT, unless="input other", row="TM-10"),
    Call("torch.nonzero_static", reads="*", result=NEW, aten="nonzero_static", row="TM-11"),
    Call("torch.save", reads="*", waits=CURRENT, row="TM-08"),
)
"""What makes the host wait for the current stream: a value or the size of a result is read back."""

FACTORIES: tuple[Call, ...] = (
    *each(
        "torch", "zeros ones full rand randn randint arange linspace eye randperm normal tensor", result=NEW
    ),
    Call("torch.empty", result=UNWRITTEN, aten="empty empty_permuted"),
    Call("torch.empty_strided", result=UNWRITTEN, aten="empty_strided"),
    *each(
        "torch",
        "zeros_like ones_like full_like rand_like randn_like randint_like",
        shape_of="*",
        result=NEW,
        aten="*",
    ),
    *each("torch", "empty_like", shape_of="*", result=UNWRITTEN, aten="*"),
    *each("torch.Tensor", "new_zeros new_ones new_full", shape_of="*", result=NEW, aten="*"),
    *each("torch.Tensor", "new_tensor", result=NEW, waits=CURRENT, row="TM-10"),
    Call("torch.Tensor.new_empty", shape_of="*", result=UNWRITTEN, aten="new_empty"),
    *each("torch.Tensor", "new_empty_strided", shape_of="*", result=UNWRITTEN, aten="*"),
    *each("torch.Tensor", "resize_ resize_as_ set_", shape_of="*", result=UNWRITTEN, aten="*", row="TL-12"),
    *each(
        "torch",
        "_empty_affine_quantized empty_quantized _resize_output_ _efficientzerotensor",
        result=UNWRITTEN,
        aten="*",
    ),
    *each(
        "aten",
        """lift _sparse_coo_tensor_with_dims_and_tensors _sparse_coo_tensor_unsafe _sparse_compressed_tensor_unsafe
        _sparse_compressed_tensor_with_dims""",
        shape_of="*",
        result=UNWRITTEN,
        aten="*",
    ),
)
"""Make a tensor; the ``_like`` ones look at the shape of their argument."""

MEMORY: tuple[Call, ...] = (
    Call("torch.Tensor.record_stream", shape_of="*", keeps="self", on="s", aten="record_stream", row="TL-03"),
)

METADATA: tuple[Call, ...] = (
    Call("torch.Tensor.size", shape_of="*", result=HOST, aten="size sym_size"),
    Call("torch.Tensor.numel", shape_of="*", result=HOST, aten="numel sym_numel"),
    Call("torch.Tensor.stride", shape_of="*", result=HOST, aten="stride sym_stride"),
    Call(
        "torch.Tensor.storage_offset",
        shape_of="*",
        result=HOST,
        aten="storage_offset sym_storage_offset",
    ),
    Call("torch.Tensor.is_contiguous", shape_of="*", result=HOST, aten="is_contiguous sym_is_contiguous"),
    *each(
        "torch.Tensor",
        "dim is_pinned is_floating_point is_complex is_same_size",
        shape_of="*",
        result=HOST,
        aten="*",
    ),
    *each(
        "torch.Tensor",
        """element_size data_ptr nelement get_device ndimension is_shared register_hook nbytes __len__ names
        register_post_accumulate_grad_hook has_names storage_type __dlpack_device__""",
        shape_of="*",
        result=HOST,
    ),
    *each(
        "aten",
        """_version _has_compatible_shallow_copy_type set_data _fw_primal is_signed is_inference is_leaf output_nr
        is_conj is_neg _is_zerotensor result_type can_cast retains_grad _nested_tensor_size _nested_tensor_strides
        _shape_as_tensor _debug_has_internal_overlap _backward is_set_to""",
        shape_of="*",
        aten="*",
    ),
)
"""Look at shape and type only."""

VIEWS: tuple[Call, ...] = (
    *each(
        "torch.Tensor",
        """view reshape t transpose permute squeeze unsqueeze narrow expand expand_as view_as flatten unflatten
        diagonal select unfold as_strided swapaxes swapdims movedim ravel alias unbind contiguous share_memory_
        conj moveaxis untyped_storage storage _typed_storage untyped get_local detach_ type_as _local_tensor
        view_as_real view_as_complex""",
        shape_of="*",
        result=VIEW,
    ),
    *each("torch.Tensor", "chunk split tensor_split hsplit vsplit dsplit", shape_of="*", result=PIECES),
    *each("torch.Tensor", "positive resolve_conj", shape_of="*", result=SAME),
    *each("torch.Tensor", "detach requires_grad_ retain_grad", shape_of="*", result=SAME, aten="*"),
    *each("aten", "_reshape_alias lift_fresh _unsafe_view data", shape_of="*", result=VIEW, aten="*"),
    *each(
        "torch",
        """view_as_real view_as_complex unsqueeze squeeze transpose permute reshape flatten narrow select
        unbind movedim diagonal t""",
        shape_of="*",
        result=VIEW,
    ),
    *each("torch", "chunk split tensor_split", shape_of="*", result=PIECES),
)

IN_PLACE_VIEWS: tuple[Call, ...] = (
    *each(
        "torch.Tensor",
        "unsqueeze_ squeeze_ transpose_ t_ swapaxes_ swapdims_ as_strided_ rename_",
        shape_of="*",
        result=SAME,
    ),
)
"""Change how the values are seen, not the values."""

TELLING = """abs add sub mul div matmul mm bmm dot addmm sum mean std var max min amax amin argmax argmin round floor
    ceil exp log sqrt rsqrt sin cos tanh sigmoid relu softmax log_softmax norm clamp clamp_min float half
    bfloat16 double long int bool cumsum prod gather scatter index_select masked_fill where eq ne lt le gt ge square
    pow any all sort topk argsort flip roll repeat tril triu type clone new_zeros new_empty new_ones new_full new_tensor
    contiguous nonzero repeat_interleave"""
"""Methods that tensors have and little else: what is asked for one is a tensor."""

COMPUTING = """acos addbmm addcdiv addcmul addmv addr aminmax angle asin atan atan2 baddbmm bitwise_and
    bitwise_not bitwise_or bitwise_xor bucketize cdist cholesky clip conj copysign corrcoef cosh count_nonzero cov cross
    cummax cummin cumprod dequantize det diag diag_embed diff digamma dist divide dsplit erf erfc erfinv exp2 expm1 fix
    float_power fmax fmin fmod frac frexp gcd greater greater_equal hardshrink histc hsplit hypot index_add index_copy
    index_fill index_put inner inverse isclose isfinite isinf isnan isneginf isposinf isreal kron kthvalue lcm ldexp
    lerp less less_equal lgamma log10 log1p log2 logaddexp logcumsumexp logdet logical_and logical_not logical_or
    logical_xor logit logsumexp masked_scatter matrix_exp matrix_power maximum median minimum mode moveaxis msort
    multinomial multiply mv mvlgamma nan_to_num nanmean nanmedian nanquantile nansum narrow_copy neg negative nextafter
    not_equal orgqr outer pinverse positive prelu put quantile rad2deg reciprocal remainder renorm resolve_conj rot90
    scatter_add scatter_reduce sgn sign signbit sinc sinh slice_scatter slogdet stft subtract svd take
    take_along_dim tan tile to_dense to_sparse trace trunc true_divide vdot vsplit xlogy"""
"""More of them, that other objects may have as well."""

_SAID = {call.last for call in (*WAITS, *FACTORIES, *VIEWS) if call.owner == "torch.Tensor"}

ARITHMETIC: tuple[Call, ...] = (
    *each(
        "torch.Tensor",
        " ".join(name for name in (*TELLING.split(), *COMPUTING.split()) if name not in _SAID),
        reads="*",
        result=NEW,
        row="TM-11",
    ),
    *each(
        "torch",
        "native_batch_norm cudnn_batch_norm miopen_batch_norm batch_norm_gather_stats"
        " batch_norm_gather_stats_with_counts _batch_norm_impl_index",
        reads="*",
        writes="running_mean running_var",
        schema=False,
        result=NEW,
        aten="*",
        row="TM-11",
    ),
    Call("torch.Tensor.index_put_", reads="*", writes="self", aten="_index_put_impl_", row="TM-11"),
    Call("torch.softmax", reads="*", result=NEW, aten="_softmax", row="TM-11"),
    Call("torch.log_softmax", reads="*", result=NEW, aten="_log_softmax", row="TM-11"),
)
"""Operations of the current stream."""

AUTOGRAD: tuple[Call, ...] = (
    Call("torch.Tensor.backward", reads="*", writes="self.grad", edge="CURRENT <- leaves", row="TA-02"),
    Call("torch.autograd.backward", reads="*", writes="tensors.grad", edge="CURRENT <- leaves", row="TA-02"),
    Call("torch.autograd.grad", reads="*", result=NEW, edge="CURRENT <- leaves", row="TA-09"),
    *each(
        "torch.nn.utils",
        "clip_grad_norm_ clip_grad_value_",
        reads="parameters.grad",
        writes="parameters.grad",
        row="TM-11",
    ),
    Call("torch.nn.utils.get_total_norm", reads="*", result=NEW, row="TM-11"),
)

LIBRARIES = """aten c10d _c10d_functional _c10d_functional_autograd c10d_functional symm_mem _dtensor _native mkl onednn
    static_runtime inductor quantization quantized _quantized sparse mkldnn mkldnn_prepacked prepacked xnnpack
    metal_prepack cuda prim profiler"""
"""Libraries of PyTorch's own kernels. An operator of another one may be Python, and what it calls is seen."""

ROWS: tuple[Call, ...] = (
    *COPIES,
    *WAITS,
    *FACTORIES,
    *MEMORY,
    *METADATA,
    *VIEWS,
    *IN_PLACE_VIEWS,
    *ARITHMETIC,
    *AUTOGRAD,
)
