// What operators do where their schemas say nothing or something wrong: one table for the collector in C++ (operators.hpp) and the
// one in Python (fallback/roles.py). A line is MACRO("operator") or MACRO("operator", "more"); those not defined are nothing.

// Look at shape and type only.
#ifdef METADATA
METADATA("aten::empty_like")
METADATA("aten::new_empty")
METADATA("aten::new_empty_strided")
METADATA("aten::new_zeros")
METADATA("aten::new_ones")
METADATA("aten::new_full")
METADATA("aten::zeros_like")
METADATA("aten::ones_like")
METADATA("aten::full_like")
METADATA("aten::rand_like")
METADATA("aten::randn_like")
METADATA("aten::randint_like")
METADATA("aten::is_pinned")
METADATA("aten::size")
METADATA("aten::stride")
METADATA("aten::detach")
METADATA("aten::_version")
METADATA("aten::is_same_size")
METADATA("aten::_has_compatible_shallow_copy_type")
METADATA("aten::set_")
METADATA("aten::resize_")
METADATA("aten::resize_as_")
METADATA("aten::sym_size")
METADATA("aten::sym_numel")
METADATA("aten::sym_stride")
METADATA("aten::sym_storage_offset")
METADATA("aten::is_contiguous")
METADATA("aten::sym_is_contiguous")
METADATA("aten::_reshape_alias")
METADATA("aten::requires_grad_")
METADATA("aten::set_data")
METADATA("aten::_fw_primal")
METADATA("aten::is_complex")
METADATA("aten::is_floating_point")
METADATA("aten::is_signed")
METADATA("aten::is_inference")
METADATA("aten::is_leaf")
METADATA("aten::output_nr")
METADATA("aten::is_conj")
METADATA("aten::is_neg")
METADATA("aten::_is_zerotensor")
METADATA("aten::result_type")
METADATA("aten::can_cast")
METADATA("aten::retain_grad")
METADATA("aten::retains_grad")
METADATA("aten::_nested_tensor_size")
METADATA("aten::_nested_tensor_strides")
METADATA("aten::_shape_as_tensor")
METADATA("aten::dim")
METADATA("aten::numel")
METADATA("aten::_debug_has_internal_overlap")
METADATA("aten::_backward")
METADATA("aten::lift_fresh")
METADATA("aten::_unsafe_view")
METADATA("aten::record_stream")
METADATA("aten::is_set_to")
METADATA("aten::storage_offset")
METADATA("aten::data")
#undef METADATA
#endif

// Their results hold whatever was there.
#ifdef FRESH
FRESH("aten::empty")
FRESH("aten::empty_strided")
FRESH("aten::empty_like")
FRESH("aten::new_empty")
FRESH("aten::new_empty_strided")
FRESH("aten::resize_")
FRESH("aten::resize_as_")
FRESH("aten::set_")
FRESH("aten::empty_permuted")
FRESH("aten::_empty_affine_quantized")
FRESH("aten::empty_quantized")
FRESH("aten::_resize_output_")
FRESH("aten::_efficientzerotensor")
#undef FRESH
#endif

// Written though the schema says that it is read: the operator and its argument.
#ifdef WRITTEN
WRITTEN("aten::native_batch_norm", "running_mean")
WRITTEN("aten::native_batch_norm", "running_var")
WRITTEN("aten::cudnn_batch_norm", "running_mean")
WRITTEN("aten::cudnn_batch_norm", "running_var")
WRITTEN("aten::miopen_batch_norm", "running_mean")
WRITTEN("aten::miopen_batch_norm", "running_var")
WRITTEN("aten::_batch_norm_impl_index", "running_mean")
WRITTEN("aten::_batch_norm_impl_index", "running_var")
WRITTEN("aten::batch_norm_gather_stats", "running_mean")
WRITTEN("aten::batch_norm_gather_stats", "running_var")
WRITTEN("aten::batch_norm_gather_stats_with_counts", "running_mean")
WRITTEN("aten::batch_norm_gather_stats_with_counts", "running_var")
#undef WRITTEN
#endif

// The host waits inside (TM-08, TM-10).
#ifdef SYNCHRONIZING
SYNCHRONIZING("aten::_local_scalar_dense")
SYNCHRONIZING("aten::nonzero")
SYNCHRONIZING("aten::masked_select")
SYNCHRONIZING("aten::equal")
SYNCHRONIZING("aten::_unique")
SYNCHRONIZING("aten::_unique2")
SYNCHRONIZING("aten::unique_dim")
SYNCHRONIZING("aten::unique_consecutive")
SYNCHRONIZING("aten::repeat_interleave")
#undef SYNCHRONIZING
#endif

// What users call it.
#ifdef CALLED
CALLED("aten::_to_copy", "to")
CALLED("aten::_local_scalar_dense", "item")
CALLED("aten::_pin_memory", "pin_memory")
CALLED("aten::_index_put_impl_", "index_put_")
CALLED("aten::_softmax", "softmax")
CALLED("aten::_log_softmax", "log_softmax")
CALLED("c10d::allreduce_", "all_reduce")
CALLED("c10d::allreduce_coalesced_", "all_reduce")
CALLED("c10d::allgather_", "all_gather")
CALLED("c10d::allgather_coalesced_", "all_gather")
CALLED("c10d::_allgather_base_", "all_gather_into_tensor")
CALLED("c10d::allgather_into_tensor_coalesced_", "all_gather_into_tensor")
CALLED("c10d::reduce_scatter_", "reduce_scatter")
CALLED("c10d::_reduce_scatter_base_", "reduce_scatter_tensor")
CALLED("c10d::reduce_scatter_tensor_coalesced_", "reduce_scatter_tensor")
CALLED("c10d::alltoall_", "all_to_all")
CALLED("c10d::alltoall_base_", "all_to_all_single")
CALLED("c10d::broadcast_", "broadcast")
CALLED("c10d::reduce_", "reduce")
CALLED("c10d::scatter_", "scatter")
CALLED("c10d::gather_", "gather")
CALLED("c10d::send", "send")
CALLED("c10d::recv_", "recv")
CALLED("c10d::recv_any_source_", "recv")
CALLED("c10d::barrier", "barrier")
#undef CALLED
#endif

// Libraries of PyTorch's own kernels. An operator of another one may be written in Python, and what it calls is seen.
#ifdef OWN
OWN("aten")
OWN("c10d")
OWN("_c10d_functional")
OWN("_c10d_functional_autograd")
OWN("c10d_functional")
OWN("symm_mem")
OWN("_dtensor")
OWN("_native")
OWN("mkl")
OWN("onednn")
OWN("quantization")
OWN("static_runtime")
OWN("inductor")
OWN("quantized")
OWN("_quantized")
OWN("sparse")
OWN("mkldnn")
OWN("mkldnn_prepacked")
OWN("prepacked")
OWN("xnnpack")
OWN("metal_prepack")
OWN("cuda")
OWN("prim")
OWN("profiler")
#undef OWN
#endif

// May copy between host and device.
#ifdef COPIES
COPIES("aten::copy_")
COPIES("aten::_to_copy")
COPIES("aten::_foreach_copy_")
COPIES("aten::_copy_from")
#undef COPIES
#endif
