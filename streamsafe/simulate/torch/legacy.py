"""``torch.cuda.FloatTensor`` and its sisters: types that a CPU build has and refuses to use."""

from __future__ import annotations

from typing import Any

_TYPES = {
    "Float": "float32",
    "Double": "float64",
    "Half": "float16",
    "BFloat16": "bfloat16",
    "Byte": "uint8",
    "Char": "int8",
    "Short": "int16",
    "Int": "int32",
    "Long": "int64",
    "Bool": "bool",
}


class _Type(type):
    """The type of a legacy type: its instances are tensors of one element type on a CUDA device."""

    dtype: Any
    torch: Any

    def __call__(cls, *given: Any, **named: Any) -> Any:
        torch, device = cls.torch, named.pop("device", "cuda")
        if len(given) == 1 and isinstance(given[0], torch.Tensor):
            return given[0].to(device, cls.dtype)
        if len(given) == 1 and not isinstance(given[0], (int, torch.Size)):
            return torch.tensor(given[0], dtype=cls.dtype, device=device)
        sizes = given[0] if given and isinstance(given[0], torch.Size) else given
        return torch.empty(*(sizes or (0,)), dtype=cls.dtype, device=device)

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, cls.torch.Tensor) and instance.is_cuda and instance.dtype == cls.dtype


def legacy_types(torch: Any) -> None:
    """Puts types in place that make tensors of the simulated device."""
    for name, dtype in _TYPES.items():
        members = {
            "dtype": getattr(torch, dtype),
            "torch": torch,
            "layout": torch.strided,
            "is_cuda": True,
            "is_sparse": False,
            "__module__": "torch.cuda",
        }
        setattr(torch.cuda, f"{name}Tensor", _Type(f"torch.cuda.{name}Tensor", (), members))
