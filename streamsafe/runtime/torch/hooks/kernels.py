"""Kernels that no dispatcher operator covers: a program's own Triton kernels, those that torch.compile makes, and those
into which TorchScript fuses operators.
"""

from __future__ import annotations

import importlib
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import wraps
from typing import Any

from streamsafe.runtime.patches import Patches
from streamsafe.runtime.torch.hooks.arguments import analysable, memory, uses
from streamsafe.runtime.torch.hooks.host_access import span
from streamsafe.runtime.torch.hooks.interface import Collector, Use
from streamsafe.toolchain.imports import after_import

UNKNOWN = "which arguments a Triton kernel writes could not be found out: its accesses make at most possible hazards"


def install(torch: Any, patches: Patches, collector: Collector) -> None:
    """Reports launches of ``triton.JITFunction`` and of inductor's ``CachingAutotuner``, when these are imported, and
    calls of scripted functions and modules.
    """
    written = Written(torch)

    def user(original: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(original)
        def run(self: Any, *args: Any, **kwargs: Any) -> Any:
            if not kwargs.get("warmup", False):
                names = list(self.arg_names)
                bound = dict(zip(names, args, strict=False)) | {k: v for k, v in kwargs.items() if k in names}
                touched = memory(torch, bound, collector.block)
                if touched:
                    names_written = written.by(self, bound)
                    if names_written is None:
                        collector.note("triton", UNKNOWN)
                    operation = getattr(self, "__name__", None) or "a Triton kernel"
                    device = touched[0].device
                    stream = torch.cuda.current_stream(device).cuda_stream
                    collector.launch(operation, uses(touched, names_written), device, stream)
            return original(self, *args, **kwargs)

        return run

    def compiled(original: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(original)
        def run(self: Any, *args: Any, **kwargs: Any) -> Any:
            given = dict(zip(self.fn.arg_names, args, strict=False))
            touched = memory(torch, given, lambda _: None)  # its numbers are no addresses
            if touched:
                marked = {name for name in given if name.startswith(("out_ptr", "in_out_ptr"))}
                names_written = marked | set(getattr(self, "mutated_arg_names", ()) or ())
                meta = getattr(self, "inductor_meta", None) or {}
                operation = meta.get("kernel_name") or "a kernel of torch.compile"
                device = touched[0].device
                stream = kwargs.get("stream")
                if not isinstance(stream, int):
                    stream = torch.cuda.current_stream(device).cuda_stream
                collector.launch(operation, uses(touched, names_written), device, stream)
            return original(self, *args, **kwargs)

        return run

    def scripted(results: bool) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """The operators that are fused come to no hook: the call reads its arguments and writes its new results.

        A module may return a buffer of its own, which it has not written: its results are left out.
        """

        def make(original: Callable[..., Any]) -> Callable[..., Any]:
            @wraps(original)
            def __call__(self: Any, *args: Any, **kwargs: Any) -> Any:
                given = list(_tensors(torch, (args, kwargs))) if torch._C._jit_texpr_fuser_enabled() else []
                if not given:
                    return original(self, *args, **kwargs)
                launch(self.name, given, write=False)
                result = original(self, *args, **kwargs)
                if results:
                    bases = {base for base, _ in given}
                    launch(
                        self.name,
                        [made for made in _tensors(torch, result) if made[0] not in bases],
                        write=True,
                    )
                return result

            return __call__

        return make

    def launch(name: str, tensors: Iterable[tuple[int, Any]], *, write: bool) -> None:
        touched: dict[int, list[Use]] = {}
        for _, tensor in tensors:
            address, size = span(tensor)
            if size:
                touched.setdefault(tensor.device.index, []).append(Use(address, size, write, tensor))
        for device, its in touched.items():
            collector.launch(name, its, device, torch.cuda.current_stream(device).cuda_stream)

    patches.wrap(torch._C.ScriptFunction, "__call__", scripted(results=True))
    patches.wrap(torch._C.ScriptMethod, "__call__", scripted(results=False))
    after_import("triton.runtime.jit", lambda module: _wrap(patches, module, "JITFunction", user))
    after_import(
        "torch._inductor.runtime.triton_heuristics",
        lambda module: _wrap(patches, module, "CachingAutotuner", compiled),
    )


def _wrap(patches: Patches, module: Any, name: str, make: Callable[[Any], Any]) -> None:
    kind = getattr(module, name, None)
    if kind is not None:
        patches.wrap(kind, "run", make)


def _tensors(torch: Any, value: Any) -> Iterator[tuple[int, Any]]:
    """The device tensors in a value, with memory of their own, and the addresses of their storages."""
    if isinstance(value, (list, tuple)):
        for each in value:
            yield from _tensors(torch, each)
    elif isinstance(value, dict):
        yield from _tensors(torch, tuple(value.values()))
    elif (
        type(value) in (torch.Tensor, torch.nn.Parameter) and value.is_cuda and value.layout is torch.strided
    ):
        try:
            yield value.untyped_storage().data_ptr(), value
        except (RuntimeError, NotImplementedError):
            return  # it stands for others (vmap, grad)


class Written:
    """Which arguments a Triton kernel writes, by torch's analysis of its code: once for a kernel and types.

    What is known of a kernel is kept on it, for its address is used again.
    """

    LIMIT = 256
    """So many analyses of one kernel are kept."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch

    def by(self, kernel: Any, bound: Mapping[str, Any]) -> frozenset[str] | None:
        """Names of the arguments that ``kernel`` writes when called with ``bound``; None when it cannot be told."""
        known: dict[tuple[Any, ...], frozenset[str] | None] = kernel.__dict__.setdefault(
            "_streamsafe_written", {}
        )
        constant = _constants(kernel)
        key = tuple(sorted((name, self._kind(value, name in constant)) for name, value in bound.items()))
        if key not in known:
            if len(known) >= self.LIMIT:
                known.clear()
            known[key] = self._analyze(kernel, bound)
        return known[key]

    def _kind(self, value: Any, constant: bool) -> str:
        """What the code that is made depends on: of a number that is no constant, whether it is 1."""
        if isinstance(value, self._torch.Tensor):
            return str(value.dtype)
        base = getattr(value, "base", None)
        if isinstance(base, self._torch.Tensor):
            return f"{type(value).__name__} {base.dtype} {getattr(value, 'block_shape', '')}"
        if not isinstance(value, (int, str)):
            return repr(type(value))
        if constant or isinstance(value, (bool, str)):
            return f"{type(value).__name__} {value!r}"
        return f"int {value == 1}"

    def _analyze(self, kernel: Any, bound: Mapping[str, Any]) -> frozenset[str] | None:
        arguments = {name: value for name, value in bound.items() if name in kernel.arg_names}
        failure = _Failure()
        try:
            module: Any = importlib.import_module("torch._higher_order_ops.triton_kernel_wrap")
            module.log.addFilter(failure)
            try:
                found = _analysis(module, kernel, *analysable(self._torch, arguments))
            finally:
                module.log.removeFilter(failure)
        except Exception:  # it reads compiler internals, which change
            return None
        return None if failure.seen else frozenset(found)


def _constants(kernel: Any) -> frozenset[str]:
    """The parameters whose values are part of the code; where the kernel does not say which, all."""
    parameters = getattr(kernel, "params", None)
    if not isinstance(parameters, (list, tuple)):
        return frozenset(kernel.arg_names)
    return frozenset(each.name for each in parameters if getattr(each, "is_constexpr", True))


class _Failure(logging.Filter):
    """torch takes every tensor to be written when its analysis fails, and says so in its log only."""

    def __init__(self) -> None:
        super().__init__()
        self.seen = False

    def filter(self, record: logging.LogRecord) -> bool:
        if "assuming every input is mutated" not in record.getMessage():
            return True
        self.seen = True
        return False


def _analysis(
    module: Any, kernel: Any, arguments: Mapping[str, Any], descriptors: Mapping[str, Any]
) -> Iterable[str]:
    """The written arguments as the installed torch finds them: its function has had three forms from 2.6 to 2.13."""
    if hasattr(module, "identify_accessed_tensors"):
        accesses = module.identify_accessed_tensors(kernel, arguments, descriptors)
        return [each.name for each in accesses.read_writes.writes]
    try:
        found: Iterable[str] = module.identify_mutated_tensors(kernel, arguments, descriptors)
    except TypeError:
        found = module.identify_mutated_tensors(kernel, arguments)
    return found
