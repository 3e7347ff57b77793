"""Triton kernels: Triton's own interpreter runs them, on the bytes of device tensors."""

from __future__ import annotations

import copy
import importlib
import threading
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

from streamsafe.simulate.torch import libdevice
from streamsafe.simulate.torch.device import Device
from streamsafe.simulate.torch.limits import NotSimulated, refuse

LATE = (
    "Triton was imported with its interpreter off: its kernels are not simulated (TRITON_INTERPRET must not be 0, "
    "and the simulated device must be there before Triton is imported)"
)
OPERATOR = "triton_kernel"
ILLEGAL = "CUDA error: an illegal memory access was encountered: the Triton kernel {} touches {:#x}"


class _Thread(threading.local):
    kernel = ""
    allowed: tuple[tuple[int, int], ...] = ()  # memory of the launch at hand, as far as it has been asked for


_thread = _Thread()


def adapt(triton: Any, device: Device) -> None:
    """Has the interpreter run what Triton compiles on a GPU, and answers for the driver.

    Args:
        triton: the module, just imported.
        device: which the process has.
    """
    torch = importlib.import_module("torch")
    interpreter: Any = importlib.import_module("triton.runtime.interpreter")
    jit: Any = importlib.import_module("triton.runtime.jit")
    testing: Any = importlib.import_module("triton.testing")
    interpreter._interpreter = _Memory(interpreter._interpreter, device)
    executor = interpreter.GridExecutor
    if not hasattr(interpreter.InterpretedFunction, "run"):
        executor.__call__ = refuse(f"Triton {triton.__version__} (3.6 is the first that is)")
        return
    executor._init_args_hst = lambda self, args, kwargs: (args, kwargs)  # the device's memory is the host's
    executor._restore_args_dev = lambda *_: None
    executor.__call__ = _Launches(torch, device).enqueued(executor.__call__)
    libdevice.compute(interpreter)

    def compile_it(self: Any, *_: Any, warmup: bool = False, **__: Any) -> Any:
        raise NotSimulated(LATE)

    jit.JITFunction.run = compile_it
    testing.do_bench = testing.do_bench_cudagraph = benchmark
    triton.runtime.driver.set_active(_Driver(torch, device))


def benchmark(
    call: Callable[[], Any],
    *_: Any,
    quantiles: Sequence[float] | None = None,
    return_mode: str = "mean",
    **__: Any,
) -> Any:
    """``triton.testing.do_bench``: one call, which takes a millisecond."""
    call()
    if quantiles is None:
        return [1.0] if return_mode == "all" else 1.0
    return 1.0 if len(quantiles) == 1 else [1.0] * len(quantiles)


class _Memory:
    """The interpreter's loads, stores and atomics: none touches anything but the device's memory."""

    def __init__(self, plain: Any, device: Device) -> None:
        self._plain = plain
        self._device = device
        self._numpy = importlib.import_module("numpy")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._plain, name)

    def load(self, addresses: Any, mask: Any, other: Any, dtype: Any) -> Any:
        self._check(addresses, mask, self._numpy.dtype(dtype).itemsize)
        return self._plain.load(addresses, mask, other, dtype)

    def store(self, addresses: Any, value: Any, mask: Any) -> Any:
        self._check(addresses, mask, value.dtype.itemsize)
        return self._plain.store(addresses, value, mask)

    def atomic_rmw(self, operation: Any, addresses: Any, value: Any, mask: Any, order: Any) -> Any:
        self._check(addresses, mask, value.dtype.itemsize)
        return self._plain.atomic_rmw(operation, addresses, value, mask, order)

    def atomic_cas(self, addresses: Any, compared: Any, value: Any, order: Any) -> Any:
        self._check(addresses, True, value.dtype.itemsize)
        return self._plain.atomic_cas(addresses, compared, value, order)

    def _check(self, addresses: Any, mask: Any, size: int) -> None:
        flat = addresses[self._numpy.broadcast_to(mask, addresses.shape)]
        for low, high in _thread.allowed:
            flat = flat[(flat < low) | (flat + size > high)]
        while flat.size:
            first = int(flat[0])
            found = self._device.memory_of(first)
            if found is None or first + size > found[0] + found[1]:
                raise RuntimeError(ILLEGAL.format(_thread.kernel, first))
            low, high = found[0], found[0] + found[1]
            _thread.allowed += ((low, high),)
            flat = flat[(flat < low) | (flat + size > high)]


class _Launches:
    """Launches as operators of torch: a capture keeps them, and a replay runs them again."""

    def __init__(self, torch: Any, device: Device) -> None:
        self._torch = torch
        self._device = device
        self._kept: dict[int, Callable[[list[Any]], None]] = {}  # by number; those of captures stay
        self._count = 0
        self._library = torch.library.Library("streamsafe_simulated", "FRAGMENT")
        self._library.define(f"{OPERATOR}(Tensor(a!)[] tensors, int launch) -> ()")
        self._library.impl(OPERATOR, lambda tensors, launch: self._kept[launch](tensors), "CPU")
        self._operator = getattr(torch.ops.streamsafe_simulated, OPERATOR).default
        self._keys = torch._C.DispatchKeySet(torch._C.DispatchKey.CUDA)

    def enqueued(self, plain: Callable[..., Any]) -> Callable[..., None]:
        """A call of a kernel's grid that goes through torch."""

        def launch(executor: Any, *args: Any, **kwargs: Any) -> None:
            tensors: list[Any] = []

            def take(tensor: Any) -> _Place:
                if not tensor.is_cuda and not tensor.is_pinned():
                    raise ValueError("Pointer argument cannot be accessed from Triton (cpu tensor?)")
                tensors.append(tensor.detach())
                return _Place(len(tensors) - 1)

            places = [self._changed(value, take) for value in args]
            named = {key: self._changed(value, take) for key, value in kwargs.items()}

            def run(given: list[Any]) -> None:
                storages = [tensor.untyped_storage() for tensor in given]
                _thread.kernel = executor.fn.__name__
                _thread.allowed = tuple(
                    (each.data_ptr(), each.data_ptr() + each.nbytes()) for each in storages
                )

                def put(place: _Place) -> Any:
                    return given[place.index]

                plain(
                    executor,
                    *(self._changed(value, put) for value in places),
                    **{key: self._changed(value, put) for key, value in named.items()},
                )

            self._run(tensors, run)

        return launch

    def _changed(self, value: Any, each: Callable[[Any], Any]) -> Any:
        """An argument with other tensors: they stand in tuples, in descriptors and in what gives them another type."""
        kinds = (self._torch.Tensor, _Place)
        if isinstance(value, kinds):
            return each(value)
        if isinstance(value, tuple):
            parts = [self._changed(part, each) for part in value]
            return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
        if not isinstance(getattr(value, "base", None), kinds):
            return value
        made = copy.copy(value)
        made.base = each(value.base)
        if hasattr(made, "data"):  # of a TensorWrapper: no tensor is to stay
            made.data = getattr(made.base, "data", None)
        return made

    def _run(self, tensors: list[Any], run: Callable[[list[Any]], None]) -> None:
        if not any(tensor.is_cuda for tensor in tensors):
            run(tensors)
            return
        self._count += 1
        number = self._count
        self._kept[number] = run
        try:
            self._operator.redispatch(self._keys, tensors, number)
        finally:
            device = next(tensor.device.index for tensor in tensors if tensor.is_cuda)
            if not self._device.is_capturing(device):
                del self._kept[number]


class _Place:
    """Stands for a tensor among the arguments of a launch that a graph may keep: the graph holds no tensors."""

    def __init__(self, index: int) -> None:
        self.index = index


class _Driver:
    """What programs ask Triton's driver."""

    def __init__(self, torch: Any, device: Device) -> None:
        major, minor = device.hardware.capability
        compiler = importlib.import_module("triton.backends.compiler")
        self.get_current_target = lambda: compiler.GPUTarget("cuda", 10 * major + minor, 32)
        self.get_device_interface = lambda: torch.cuda
        self.get_active_torch_device = lambda: torch.device("cuda", torch.cuda.current_device())
        self.get_device_capability = torch.cuda.get_device_capability
        self.get_current_device = torch.cuda.current_device
        self.set_current_device = torch.cuda.set_device
        self.get_current_stream = lambda index=None: torch.cuda.current_stream(index).cuda_stream
        self.get_empty_cache_for_benchmark = lambda: torch.empty(1, dtype=torch.int, device="cuda")
        self.clear_cache = lambda cache: cache.zero_()
        # the autotuner takes the first configuration: no other would be better
        self.get_benchmarker = lambda: lambda call, quantiles=(0.5,), **_: [1.0] * len(quantiles)

        def properties(index: int) -> dict[str, int]:
            known = torch.cuda.get_device_properties(index)
            return {
                "max_shared_mem": known.shared_memory_per_block_optin,
                "max_num_regs": known.regs_per_multiprocessor,
                "multiprocessor_count": known.multi_processor_count,
                "warpSize": known.warp_size,
                "sm_clock_rate": known.clock_rate,
                "mem_clock_rate": known.memory_clock_rate,
                "mem_bus_width": known.memory_bus_width,
            }

        self.utils = SimpleNamespace(get_device_properties=properties)
