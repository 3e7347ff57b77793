"""What touches memory without an operator: host reads in C, files, exports, storages that change their size."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import wraps
from typing import Any

from streamsafe.runtime.patches import Patches
from streamsafe.runtime.torch.hooks.interface import Collector, Use


def span(tensor: Any) -> tuple[int, int]:
    """Address and number of bytes, from the first to the last one that a strided tensor touches."""
    if tensor.numel() == 0:
        return tensor.data_ptr(), 0
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return tensor.data_ptr(), (last + 1) * tensor.element_size()


def on_host(torch: Any, value: Any) -> bool:
    """Whether the tensor is plain host memory with bytes of its own."""
    return bool(value.device.type == "cpu" and value.layout is torch.strided and type(value) in _plain(torch))


def _exports(value: Any) -> bool:
    """Whether an object gives its memory by the CUDA Array Interface, which names no stream that torch looks at."""
    if isinstance(value, (int, float, complex, list, tuple)):
        return False
    return hasattr(type(value), "__cuda_array_interface__") or "__cuda_array_interface__" in getattr(
        value, "__dict__", ()
    )


def _plain(torch: Any) -> tuple[type, ...]:
    return torch.Tensor, torch.nn.Parameter


def install(torch: Any, patches: Patches, collector: Collector) -> None:
    """Reports ``tolist``, ``numpy``, ``torch.save`` and pickle, storages shared with another process, DLPack and
    array-interface exports, and ``untyped_storage().resize_``.
    """

    def reading(name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        def make(original: Callable[..., Any]) -> Callable[..., Any]:
            @wraps(original)
            def read(self: Any, *args: Any, **kwargs: Any) -> Any:
                if on_host(torch, self):
                    address, size = span(self)
                    if size:
                        collector.host_access(name, [Use(address, size, False, self)])
                return original(self, *args, **kwargs)

            return read

        return make

    def read_storage(name: str, storage: Any) -> None:
        if isinstance(storage, torch.UntypedStorage) and storage.device.type == "cpu" and storage.nbytes():
            collector.host_access(name, [Use(storage.data_ptr(), storage.nbytes(), False)])

    def element(writes: bool) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """One element of a storage, or a slice, which shares its memory."""

        def make(original: Callable[..., Any]) -> Callable[..., Any]:
            @wraps(original)
            def access(self: Any, index: Any, *value: Any) -> Any:
                if self.device.type == "cpu" and (writes or isinstance(index, int)) and self.nbytes():
                    start, size = self.data_ptr(), self.nbytes()
                    if isinstance(index, int) and -size <= index < size:
                        start, size = start + index % size, 1
                    collector.host_access("index", [Use(start, size, writes)])
                return original(self, index, *value)

            return access

        return make

    def reading_storage(name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        def make(original: Callable[..., Any]) -> Callable[..., Any]:
            @wraps(original)
            def read(self: Any, *args: Any, **kwargs: Any) -> Any:
                read_storage(name, self)
                return original(self, *args, **kwargs)

            return read

        return make

    def write_record(original: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(original)
        def write_record(self: Any, name: Any, data: Any, size: Any) -> Any:
            read_storage("save", data)
            return original(self, name, data, size)

        return write_record

    def numpy(original: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(original)
        def exported(self: Any, *args: Any, **kwargs: Any) -> Any:
            if on_host(torch, self):
                collector.exported(self, "numpy", None)
                return collector.numpy_made(self, original(self, *args, **kwargs))
            return original(self, *args, **kwargs)

        return exported

    def dlpack(original: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(original)
        def __dlpack__(self: Any, *args: Any, **kwargs: Any) -> Any:
            if self.is_cuda:
                stream = kwargs.get("stream", args[0] if args else None)
                named = isinstance(stream, int) and stream != -1
                collector.exported(self, "dlpack", stream if named else None)
            return original(self, *args, **kwargs)

        return __dlpack__

    def from_dlpack(original: Callable[..., Any]) -> Callable[..., Any]:
        """NumPy's, which makes an array of a CPU tensor as ``Tensor.numpy`` does."""

        @wraps(original)
        def from_dlpack(x: Any, /, *args: Any, **kwargs: Any) -> Any:
            array = original(x, *args, **kwargs)
            if isinstance(x, torch.Tensor) and on_host(torch, x):
                return collector.numpy_made(x, array)
            return array

        return from_dlpack

    def interface(original: Any) -> Any:
        def __cuda_array_interface__(self: Any) -> Any:
            found = original.__get__(self)
            collector.exported(self, "array_interface", None)
            return found

        return property(__cuda_array_interface__)

    def importing(original: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(original)
        def make(data: Any, *args: Any, **kwargs: Any) -> Any:
            result = original(data, *args, **kwargs)
            if not isinstance(data, torch.Tensor) and result.is_cuda and _exports(data):
                collector.imported(result)
            return result

        return make

    def resize(original: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(original)
        def resize_(self: Any, size: int) -> Any:
            if self.device.type != "cuda":
                return original(self, size)
            before = self.data_ptr(), self.nbytes()
            result = original(self, size)
            collector.storage_resized(*before, self.data_ptr(), self.nbytes())
            return result

        return resize_

    tensor = torch.Tensor
    patches.wrap(tensor, "tolist", reading("tolist"))
    patches.wrap(tensor, "numpy", numpy)
    patches.wrap(tensor, "__array__", numpy)
    patches.wrap(tensor, "__dlpack__", dlpack)
    patches.wrap(tensor, "__cuda_array_interface__", interface)
    patches.wrap(torch.UntypedStorage, "__getitem__", element(False))
    patches.wrap(torch.UntypedStorage, "__setitem__", element(True))
    for name in ("as_tensor", "asarray"):
        patches.wrap(torch, name, importing)
    patches.wrap(torch.UntypedStorage, "resize_", resize)
    patches.wrap(torch.UntypedStorage, "_write_file", reading_storage("save"))
    for share in ("_share_fd_cpu_", "_share_filename_cpu_"):  # what torch.multiprocessing sends
        patches.wrap(torch.UntypedStorage, share, reading_storage("share_memory_"))
    patches.wrap(torch._C.PyTorchFileWriter, "write_record", write_record)
    numpy_module = sys.modules.get("numpy")  # torch imports it where there is one
    if numpy_module is not None:
        patches.wrap(numpy_module, "from_dlpack", from_dlpack)
