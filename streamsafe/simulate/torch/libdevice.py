"""The functions of CUDA's libdevice in Triton's interpreter, which has none: NumPy and the math module compute them."""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable
from typing import Any

from streamsafe.simulate.torch.limits import refuse

_AS_NUMPY = """abs floor ceil trunc exp2 sqrt rint isnan signbit copysign isinf nextafter sin cos tan log2 exp cosh sinh
    tanh log log10 log1p expm1 hypot cbrt fmod remainder ldexp""".split()
_NUMPY = {
    "acos": "arccos",
    "acosh": "arccosh",
    "asin": "arcsin",
    "asinh": "arcsinh",
    "atan": "arctan",
    "atan2": "arctan2",
    "atanh": "arctanh",
    "pow": "power",
    "nearbyint": "rint",
    "isfinited": "isfinite",
    "finitef": "isfinite",
    "add_rn": "add",
    "sub_rn": "subtract",
    "mul_rn": "multiply",
    "div_rn": "true_divide",
    "sqrt_rn": "sqrt",
    "fast_sinf": "sin",
    "fast_cosf": "cos",
    "fast_tanf": "tan",
    "fast_tanhf": "tanh",
    "fast_expf": "exp",
    "fast_logf": "log",
    "fast_log2f": "log2",
    "fast_log10f": "log10",
    "fast_powf": "power",
    "fast_dividef": "true_divide",
}
_MATH: dict[str, Callable[..., float]] = {
    "erf": math.erf,
    "erfc": math.erfc,
    "lgamma": math.lgamma,
    "tgamma": math.gamma,
}


def compute(interpreter: Any) -> None:
    """Gives ``triton.language.extra.libdevice`` functions that compute; what is left refuses.

    Args:
        interpreter: the module ``triton.runtime.interpreter``.
    """
    numpy: Any = importlib.import_module("numpy")
    module: Any = importlib.import_module("triton.language.extra.libdevice")
    plain: dict[str, Callable[..., Any]] = {name: getattr(numpy, name) for name in _AS_NUMPY}
    plain |= {name: getattr(numpy, other) for name, other in _NUMPY.items()}
    plain |= {name: numpy.vectorize(function, otypes=[float]) for name, function in _MATH.items()}
    plain |= {
        "rsqrt": lambda x: 1 / numpy.sqrt(x),
        "rsqrt_rn": lambda x: 1 / numpy.sqrt(x),
        "rcp_rn": lambda x: 1 / x,
        "rcbrt": lambda x: 1 / numpy.cbrt(x),
        "exp10": lambda x: numpy.power(10.0, x),
        "fast_exp10f": lambda x: numpy.power(10.0, x),
        "round": lambda x: numpy.copysign(numpy.floor(numpy.abs(x) + 0.5), x),
        "fma": lambda x, y, z: x * y + z,
        "fma_rn": lambda x, y, z: x * y + z,
        "saturatef": lambda x: numpy.clip(x, 0, 1),
        "fdim": lambda x, y: numpy.maximum(x - y, 0),
    }
    for name, value in list(vars(module).items()):
        if callable(value) and getattr(value, "__module__", "") == module.__name__:
            found = plain.get(name)
            made = (
                _elementwise(interpreter, found) if found else refuse(f"libdevice.{name} in a Triton kernel")
            )
            setattr(module, name, made)


def _elementwise(interpreter: Any, function: Callable[..., Any]) -> Callable[..., Any]:
    language = interpreter.tl

    def call(*values: Any) -> Any:
        given = [value for value in values if isinstance(value, language.tensor)]
        shaped = max(given, key=lambda value: value.handle.data.ndim)
        if shaped.type.scalar in (language.float16, language.bfloat16):
            raise ValueError(f"libdevice has no functions of {shaped.type.scalar}")
        numbers = [value.handle.data if isinstance(value, language.tensor) else value for value in values]
        found = function(*numbers)
        kind = language.int32 if found.dtype == bool else shaped.type.scalar
        data = found.astype("int32" if found.dtype == bool else shaped.handle.data.dtype)
        return language.tensor(
            interpreter.TensorHandle(data, kind),
            language.block_type(kind, shaped.shape) if shaped.type.is_block() else kind,
        )

    return call
