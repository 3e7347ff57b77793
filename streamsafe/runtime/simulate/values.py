"""Scalars and shapes asked of a device that does not compute.

``x.get()`` goes on with a fill value. But a program that *decides* by a value of the device (``if loss < 1``,
``n = int(mask.sum())``, the shape of ``a[mask]``) would take a path no GPU would: such a question stops, unless the
program only asks for what it had copied there itself.
"""

from __future__ import annotations

import functools
import sys
import threading
from collections import Counter
from collections.abc import Callable
from types import FrameType
from typing import Any, Literal

from streamsafe.runtime.simulate.errors import SimulationLimit

Policy = Literal["stop", "fill"]

# ndarray methods that turn device memory into a Python number. CuPy's own nonzero, mask indexing, unique and the
# like go through them as well, for the size of their result.
_SCALAR_METHODS = ("item", "__float__", "__int__", "__complex__", "__bool__", "__index__")
_OWN_PACKAGES = ("cupy.", "cupyx.", "cupy_backends.", "streamsafe.runtime.")


class Values:
    """The policy for values that no kernel has computed.

    Attributes:
        policy: ``"stop"`` raises :class:`SimulationLimit` where a scalar is asked for, ``"fill"`` returns zero.
        filled: scalars answered with the fill value, by "file:line call".
    """

    def __init__(self, policy: Policy) -> None:
        self.policy: Policy = policy
        self.filled: Counter[str] = Counter()
        self._asking = threading.local()

    def unknown_copied_back(self) -> None:
        """A copy to the host takes bytes that nothing has computed.

        Raises:
            SimulationLimit: the calling thread asked for a scalar, and the policy is to stop.
        """
        method = getattr(self._asking, "method", None)
        if method is None:
            return
        call, line = _where(method)
        if self.policy == "fill":
            self.filled[f"{line} {call}"] += 1
            return
        raise SimulationLimit(
            f"{line}: {call} asks the device for a value, and the simulated device does not compute: "
            "no kernel has run. Guard this step, pass the value from the host, or allow zeros with "
            'values="fill"'
        )

    def patch(self, array: type) -> None:
        """Make the scalar conversions of CuPy's ndarray class say that they are ones."""
        for name in _SCALAR_METHODS:
            original = getattr(array, name, None)
            if original is not None:
                setattr(array, name, self._asks(name, original))

    def _asks(self, name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        asking = self._asking

        @functools.wraps(original)
        def ask(*args: Any, **kwargs: Any) -> Any:
            before = getattr(asking, "method", None)
            if before is not None:
                return original(*args, **kwargs)
            asking.method = name
            try:
                return original(*args, **kwargs)
            finally:
                asking.method = before

        return ask


def _where(method: str) -> tuple[str, str]:
    """Return the call the user made, and its "file:line"."""
    frame: FrameType | None = sys._getframe(1)
    call = {"item": "item()", "__float__": "float()", "__int__": "int()", "__complex__": "complex()"}.get(
        method
    )
    call = call or {"__bool__": "bool()", "__index__": "an index"}[method]
    entry = None
    while frame is not None:
        module = frame.f_globals.get("__name__", "")
        if not (module + ".").startswith(_OWN_PACKAGES):
            # CuPy's public function, if one stood between the user and the conversion, says more than int().
            name = f"{entry}()" if entry else call
            return name, f"{frame.f_code.co_filename}:{frame.f_lineno}"
        if (module + ".").startswith(("cupy.", "cupyx.")):
            entry = f"{module.split('.')[0]}.{frame.f_code.co_name}"
        frame = frame.f_back
    return call, "<unknown>"
