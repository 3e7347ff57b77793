"""The dispatch mode: every operator of the threads that it is pushed in comes to the watch before it runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


class Modes:
    """The one mode of the process, on the stacks of threads.

    Args:
        torch: the module.
        operate: called instead of each operator, as ``operate(operator, types, args, kwargs)``; returns its result, or
            NotImplemented when the call will come back with the tensors that a subclass holds.
    """

    def __init__(self, torch: Any, operate: Callable[[Any, Any, Any, Any], Any]) -> None:
        self._stack = torch.utils._python_dispatch
        base = self._stack.TorchDispatchMode

        class Mode(base):  # type: ignore[misc, valid-type]
            supports_higher_order_operators = True

            def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
                return operate(func, types, args, kwargs or {})

            @classmethod
            def is_infra_mode(cls) -> bool:
                return True  # torch.compile compiles as it does without it

        self._mode = Mode()

    def push(self) -> None:
        """The calling thread's operators are seen."""
        self._stack._push_mode(self._mode)

    def pop(self) -> None:
        """They are not; modes that the program has entered since stay."""
        above = []
        while (found := self._stack._get_current_dispatch_mode_stack()) and self._mode in found:
            top = self._stack._pop_mode()
            if top is self._mode:
                break
            above.append(top)
        for each in reversed(above):
            self._stack._push_mode(each)

    def others(self) -> bool:
        """In an operator: whether there is another mode, which has not seen it yet."""
        return bool(self._stack._get_current_dispatch_mode_stack())

    @contextmanager
    def again(self) -> Iterator[None]:
        """In an operator that torch has taken the mode away for: what it calls is seen too."""
        self.push()
        try:
            yield
        finally:
            self._stack._pop_mode()

    @contextmanager
    def without(self) -> Iterator[None]:
        """While something runs that works with no dispatch mode only."""
        present = self._mode in self._stack._get_current_dispatch_mode_stack()
        if present:
            self.pop()
        try:
            yield
        finally:
            if present:
                self.push()


__all__ = ["Modes"]
