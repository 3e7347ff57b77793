"""Scalars and shapes asked of a device that did not compute them.

``x.get()`` goes on with a fill value. But a program that *decides* by a value that is not known (``if loss < 1``,
``n = int(mask.sum())``, the shape of ``a[mask]``) would take a path no GPU would: such a question stops.

CuPy asks questions of its own. Where one only checks valid input, or a rejection loop that ends, or a size that
the program has stated itself, the answer is known and the question does not stop.
"""

from __future__ import annotations

import functools
import sys
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from types import FrameType
from typing import Any, Literal

from streamsafe.simulate.cuda.errors import SimulationLimit

Policy = Literal["stop", "fill"]
POLICIES: tuple[Policy, ...] = ("stop", "fill")

# ndarray methods that turn device memory into a Python number, as the user writes them. CuPy's own nonzero, mask
# indexing, unique and the like go through them as well, for the size of their result.
_SCALAR_METHODS = {
    "item": "item()",
    "__float__": "float()",
    "__int__": "int()",
    "__complex__": "complex()",
    "__bool__": "bool()",
}
_OWN_PACKAGES = ("cupy.", "cupyx.", "cupy_backends.", "streamsafe.")

_ANY = "*"

# Questions of CuPy's own Python code with a known answer, by module, function and conversion; from the local variables
# of the function that asks. None: not known after all.
_Answer = Callable[[Mapping[str, Any]], Any]
_KNOWN_ANSWERS: dict[tuple[str, str, str], _Answer] = {
    # A rejection loop: no sample exceeds the limit, every supplement is within it.
    ("cupy.random._generator", "_get_indices", "__int__"): lambda v: v["sample"].size if v["cond"] else 0,
    # Sparse matrices are taken to be canonical: sorted, without duplicates; their indices to be in range.
    ("cupyx.scipy.sparse._compressed", "__get_has_canonical_format", "__bool__"): lambda _: True,
    ("cupyx.scipy.sparse._compressed", "__get_sorted", "__bool__"): lambda _: True,
    ("cupyx.scipy.sparse._coo", "sum_duplicates", "__bool__"): lambda _: True,
    ("cupyx.scipy.sparse._coo", "__init__", "__bool__"): lambda _: False,
    ("cupyx.scipy.sparse._dia", "__init__", "__bool__"): lambda _: False,
    # The matrix is finite, the library reports success.
    ("cupyx.scipy.linalg._decomp_lu", "_lu_factor", "__bool__"): lambda v: "dev_info" not in v,
    # Arguments are in range: "if (x < 0).any(): raise ...", or the other way round.
    ("cupy.random._generator", "choice", "__bool__"): lambda _: True,
    ("cupy.random._generator", _ANY, "__bool__"): lambda _: False,
    ("cupy._statistics.histogram", "_get_bin_edges", "__bool__"): lambda _: False,
    ("cupy._statistics.histogram", "histogramdd", "__bool__"): lambda _: False,
    ("cupy._statistics.histogram", "bincount", "__bool__"): lambda _: False,
    ("cupy._statistics.meanvar", "average", "__bool__"): lambda _: False,
    ("cupy._indexing.generate", _ANY, "__bool__"): lambda _: False,
    ("cupy._manipulation.kind", "asarray_chkfinite", "__bool__"): lambda _: True,
    # CuPy 13 asks whether a quantile is out of range, CuPy 14 (with a local xp) whether it is in range.
    ("cupy._statistics.order", "_quantile_is_valid", "__bool__"): lambda v: "xp" in v,
    # Nothing is not-a-number, and the libraries report success.
    ("cupy._statistics.order", "nanmin", "__bool__"): lambda _: False,
    ("cupy._statistics.order", "nanmax", "__bool__"): lambda _: False,
    ("cupy.linalg._util", _ANY, "__bool__"): lambda _: False,
    ("cupy.linalg._norms", "cond", "__bool__"): lambda _: False,
    # minlength is the number of bins the program expects.
    ("cupy._statistics.histogram", "bincount", "__int__"): lambda v: (
        v["minlength"] - 1 if v["minlength"] else None
    ),
}


class Values:
    """The policy for values that no kernel has computed.

    Args:
        uncomputed: kernels and library calls that did not compute, and why.

    Attributes:
        policy: ``"stop"`` raises :class:`SimulationLimit` where a scalar is asked for, ``"fill"`` answers zero.
        filled: scalars answered with zero, by "file:line call".
        arrays: arrays copied back that hold the fill value somewhere, by "file:line".
    """

    def __init__(self, policy: Policy, uncomputed: Mapping[str, str]) -> None:
        self.policy: Policy = policy
        self._uncomputed = uncomputed
        self.filled: Counter[str] = Counter()
        self.arrays: Counter[str] = Counter()
        self._asking = threading.local()

    def unknown_copied_back(self) -> None:
        """A copy to the host takes bytes that nothing has computed.

        Raises:
            SimulationLimit: the calling thread asked for a scalar, and the policy is to stop.
        """
        asking = self._asking
        method = getattr(asking, "method", None)
        if method is None:
            self.arrays[_origin("")[0]] += 1
            return
        size = getattr(asking, "size", None)
        if size is not None:
            asking.answer = size
            return
        line, entry, answer = _origin(method)
        if answer is not None:
            asking.answer = answer
            return
        # CuPy's public function, if one stands between the user and the conversion, says more than int().
        mask = getattr(asking, "mask", False)
        call = entry or ("indexing with a mask" if mask else f"{_SCALAR_METHODS[method]} of a device array")
        if self.policy == "fill":
            self.filled[f"{line} {call}"] += 1
            return
        raise SimulationLimit(
            f"{line}: {call} asks the device for a value that is not known: {self._why()}. Guard this step, pass the "
            'value from the host, or accept zeros with values="fill"'
        )

    def _why(self) -> str:
        shown = [f"{name} did not compute ({reason})" for name, reason in self._uncomputed.items()]
        if not shown:
            return "kernels do not compute here"
        return "; ".join(reversed(shown[-3:])) + ("; and others" if len(shown) > 3 else "")

    def patch(self, array: Any) -> None:
        """Make the scalar conversions of CuPy's ndarray class say that they are ones."""
        for name in _SCALAR_METHODS:
            original = getattr(array, name, None)
            if original is not None:
                setattr(array, name, self._asks(name, original))
        array.__setitem__ = self._sets(array, array.__setitem__)
        array.__getitem__ = self._gets(array, array.__getitem__)

    def _asks(self, name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        asking = self._asking

        @functools.wraps(original)
        def ask(*args: Any, **kwargs: Any) -> Any:
            if getattr(asking, "method", None) is not None:
                return original(*args, **kwargs)
            asking.method = name
            asking.answer = None
            try:
                result = original(*args, **kwargs)
                return result if asking.answer is None else asking.answer
            finally:
                asking.method = None

        return ask

    def _gets(self, array: Any, original: Callable[..., Any]) -> Callable[..., Any]:
        """``a[mask]`` counts the mask's true elements for its shape: the message says so."""
        asking = self._asking

        @functools.wraps(original)
        def getitem(self: Any, key: Any) -> Any:
            if not isinstance(key, array) or key.dtype.char != "?":
                return original(self, key)
            asking.mask = True
            try:
                return original(self, key)
            finally:
                asking.mask = False

        return getitem

    def _sets(self, array: Any, original: Callable[..., None]) -> Callable[..., None]:
        """``a[mask] = v`` counts the mask's true elements; the result does not depend on how many they are."""
        asking = self._asking

        @functools.wraps(original)
        def setitem(self: Any, key: Any, value: Any) -> None:
            masks: list[Any] = [
                k for k in (key if isinstance(key, tuple) else (key,)) if isinstance(k, array)
            ]
            if len(masks) != 1 or masks[0].dtype.char != "?":
                original(self, key, value)
                return
            size = masks[0].size
            if isinstance(value, array) and value.ndim:
                # The values' length is the number the program expects.
                behind = 0 if isinstance(key, tuple) else self.ndim - masks[0].ndim
                if value.ndim > behind and value.shape[-1 - behind] != 1:
                    size = value.shape[-1 - behind]
            asking.size = size
            try:
                original(self, key, value)
            finally:
                asking.size = None

        return setitem


def _origin(method: str) -> tuple[str, str | None, Any]:
    """Return who asks: the user's "file:line", CuPy's public function in between, and a known answer."""
    frame: FrameType | None = sys._getframe(1)
    entry = None
    while frame is not None:
        module = frame.f_globals.get("__name__", "")
        if not f"{module}.".startswith(_OWN_PACKAGES):
            return f"{frame.f_code.co_filename}:{frame.f_lineno}", entry, None
        if module.startswith("cupy"):
            name = frame.f_code.co_name
            known = _KNOWN_ANSWERS.get((module, name, method)) or _KNOWN_ANSWERS.get((module, _ANY, method))
            # Only the function that asks knows what the question is about, not its callers.
            if entry is None and known is not None:
                answer = known(frame.f_locals)
                if answer is not None:
                    return "", None, answer
            entry = f"{module.split('.')[0]}.{name}()"
        frame = frame.f_back
    return "<unknown>", entry, None
