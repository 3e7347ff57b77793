"""Names of ``torch._C`` that few use: settings that are kept and change nothing, and what is not simulated."""

from __future__ import annotations

from typing import Any

from streamsafe.simulate.torch.limits import refuse

_SETTINGS: dict[str, tuple[str | None, str | None, Any]] = {
    "workspace": ("_cuda_getCublasWorkspaceSize", "_cuda_setCublasWorkspaceSize", 32 << 20),
    "lt_workspace": ("_cuda_getCublasLtWorkspaceSize", "_cuda_setCublasLtWorkspaceSize", 32 << 20),
    "benchmark_limit": ("_cuda_get_cudnn_benchmark_limit", "_cuda_set_cudnn_benchmark_limit", 10),
    "benchmark_cache": (
        "_cuda_get_conv_benchmark_empty_cache",
        "_cudnn_set_conv_benchmark_empty_cache",
        True,
    ),
    "tunable": ("_cuda_tunableop_is_enabled", "_cuda_tunableop_enable", False),
    "tuning": ("_cuda_tunableop_tuning_is_enabled", "_cuda_tunableop_tuning_enable", True),
    "duration": ("_cuda_tunableop_get_max_tuning_duration", "_cuda_tunableop_set_max_tuning_duration", 30),
    "iterations": (
        "_cuda_tunableop_get_max_tuning_iterations",
        "_cuda_tunableop_set_max_tuning_iterations",
        100,
    ),
    "rotating": ("_cuda_tunableop_get_rotation_buffer_size", "_cuda_tunableop_set_rotating_buffer_size", -1),
    "algorithms": (
        "_cuda_tunableop_get_cublaslt_requested_algo_count",
        "_cuda_tunableop_set_cublaslt_requested_algo_count",
        -1,
    ),
    "untuned": ("_cuda_record_untuned_is_enabled", "_cuda_record_untuned_enable", False),
}
"""Getter, setter and first value."""

_REFUSED = {
    "_cuda_jiterator_compile_and_launch_kernel": "torch.cuda.jiterator",
    "_cuda_getCurrentBlasHandle": "the cuBLAS handle",
    "_cuda_getCurrentSolverHandle": "the cuSOLVER handle",
    "_cuda_cudaHostAllocator": "the address of the host allocator",
    "_cuda_getAllocator": "torch.cuda.memory._get_current_allocator",
    "_cuda_customAllocator": "an allocator of the program's own",
    "_cuda_changeCurrentAllocator": "an allocator of the program's own",
    "_cuda_getCheckpointState": "the state of a graph pool (cudagraph trees)",
    "_cuda_setCheckpointPoolState": "the state of a graph pool (cudagraph trees)",
    "_nccl_unique_id": "torch.cuda.nccl.unique_id",
    "_nccl_init_rank": "torch.cuda.nccl.init_rank",
    "_cuda_beginAllocateCurrentStreamToPool": "a pool for one stream",
    "_gds_register_buffer": "GPUDirect Storage",
    "_gds_deregister_buffer": "GPUDirect Storage",
    "_gds_register_handle": "GPUDirect Storage",
    "_gds_deregister_handle": "GPUDirect Storage",
    "_gds_load_storage": "GPUDirect Storage",
    "_gds_save_storage": "GPUDirect Storage",
}


class _StaticCudaLauncher:
    """Starts kernels that Triton has compiled: there are none."""

    _load_kernel = staticmethod(refuse("a compiled Triton kernel"))
    _launch_kernel = staticmethod(refuse("a compiled Triton kernel"))


def surface(core: Any) -> None:
    """Adds the names."""
    for name, what in _REFUSED.items():
        setattr(core, name, refuse(what))
    first = {key: value for key, (_, _, value) in _SETTINGS.items()}
    values = dict(first)
    for key, (getter, setter, _) in _SETTINGS.items():
        if getter is not None:
            setattr(core, getter, lambda key=key: values[key])
        if setter is not None:
            setattr(core, setter, lambda value, key=key: values.__setitem__(key, value))
    tolerances: list[Any] = []
    names = ["tunableop_results0.csv"]
    others = {
        "_StaticCudaLauncher": _StaticCudaLauncher,
        "_cuda_CUDAAllocator": type("_cuda_CUDAAllocator", (), {}),
        "_cuda_CUDAAllocator_AllocatorState": type("_cuda_CUDAAllocator_AllocatorState", (), {}),
        "_cuda_clearCublasWorkspaces": lambda: None,
        "_cudnn_clear_dropout_state": lambda: None,
        "_cuda_memoryMetadataSupported": lambda: True,
        "_cuda_annotateMemory": lambda address, metadata: None,
        "_cuda_resetCublasWorkspaceSize": lambda: values.update(workspace=first["workspace"]),
        "_cuda_resetCublasLtWorkspaceSize": lambda: values.update(lt_workspace=first["lt_workspace"]),
        "_cuda_tunableop_set_filename": lambda name, ordinal=False: names.__setitem__(0, name),
        "_cuda_tunableop_get_filename": lambda: names[0],
        "_cuda_tunableop_read_file": lambda name=None: False,
        "_cuda_tunableop_write_file": lambda name=None: True,
        "_cuda_tunableop_write_file_on_exit": lambda on: None,
        "_cuda_tunableop_get_results": tuple,
        "_cuda_tunableop_get_validators": tuple,
        "_cuda_tunableop_set_numerical_check_tolerances": lambda *given: tolerances.append(given),
        "_nccl_version": lambda: 2 << 32 | 27 << 16 | 3,
        "_nccl_version_suffix": lambda: b"",
    }
    for name, value in others.items():
        setattr(core, name, value)
