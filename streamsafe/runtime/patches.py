"""Replacing attributes of other people's modules and classes, so that each can be put back."""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Callable, Mapping
from functools import partial
from types import ModuleType
from typing import Any

_ABSENT: Any = object()


def _type_dict(cls: type) -> dict[str, Any]:
    """The dictionary behind a type's read-only ``__dict__`` (extension types refuse ``setattr``)."""
    found = [entry for entry in gc.get_referents(cls.__dict__) if isinstance(entry, dict)]
    if not found:
        raise TypeError(f"{cls.__name__} keeps no dictionary that can be reached")
    return found[0]


def _put_back(variables: dict[str, Any], ours: Mapping[str, Any], before: dict[str, Any]) -> None:
    for name, value in ours.items():
        if variables.get(name) is value:
            variables[name] = before[name]


class StandIn(type):
    """The type of a class that takes the place of its base: what is of the base is of the class."""

    def __instancecheck__(cls, value: Any) -> bool:
        return isinstance(value, _stood_for(cls)) or super().__instancecheck__(value)

    def __subclasscheck__(cls, other: type) -> bool:
        return issubclass(other, _stood_for(cls)) or super().__subclasscheck__(other)


def _stood_for(cls: type) -> tuple[type, ...]:
    """The bases of a stand-in; of a class made from one, nothing."""
    return () if any(isinstance(base, StandIn) for base in cls.__bases__) else cls.__bases__


def _call_slot() -> int:
    """Where a type has what calling an instance of it does, in words from its beginning."""

    class Calls:
        def __call__(self) -> None: ...

    class Plain: ...

    with_call, without = (_words(cls) for cls in (Calls, Plain))
    return next(place for place in range(_WORDS) if with_call[place] and not without[place])


_WORDS = 24
"""How many words of a type are looked at: those before its flags and its documentation."""


def _words(cls: type) -> Any:
    return (ctypes.c_void_p * _WORDS).from_address(id(cls))


class Patches:
    """A journal of replaced attributes; :meth:`restore` undoes it, last first."""

    def __init__(self) -> None:
        self._undo: list[Callable[[], None]] = []

    def attribute(self, owner: Any, name: str, value: Any) -> Any:
        """Replaces ``owner.name``, which may be missing; returns what was there, or None.

        ``owner`` is a module, a class or an extension type (whose dictionary is written directly: callers in Python see
        the replacement, on objects that exist already too; callers in C do not).
        """
        if isinstance(owner, type):
            before = owner.__dict__.get(name, _ABSENT)
        else:
            before = getattr(owner, name, _ABSENT)
        try:
            setattr(owner, name, value)
        except (TypeError, AttributeError):
            if not isinstance(owner, type):
                raise
            self._write(owner, name, value)
            self._undo.append(lambda: self._write(owner, name, before))
        else:
            self._undo.append(lambda: self._reset(owner, name, value, before))
        return None if before is _ABSENT else before

    def variables(self, module: ModuleType, values: Mapping[str, Any]) -> None:
        """Replaces variables of a module for a short time: the quick way of :meth:`attribute`."""
        variables = module.__dict__
        before = {name: variables[name] for name in values}
        variables.update(values)
        self._undo.append(partial(_put_back, variables, values, before))

    def wrap(self, owner: Any, name: str, make: Callable[[Any], Any]) -> bool:
        """Replaces ``owner.name``, or what it inherits, by ``make(original)``; False when there is none."""
        original = owner.__dict__.get(name, _ABSENT) if isinstance(owner, type) else _ABSENT
        if original is _ABSENT:
            original = getattr(owner, name, _ABSENT)
        if original is _ABSENT:
            return False
        self.attribute(owner, name, make(original))
        return True

    def calling(self, cls: type, function: Callable[..., Any]) -> None:
        """Replaces what calling an instance of an extension class does, for callers in C too."""

        class Called:
            __call__ = function

        slot = _call_slot()
        before = _words(cls)[slot]
        self.attribute(cls, "__call__", function)
        _words(cls)[slot] = _words(Called)[slot]
        self._undo.append(lambda: _words(cls).__setitem__(slot, before))

    def call(self, undo: Callable[[], None]) -> None:
        """Remembers something else to be undone."""
        self._undo.append(undo)

    def restore(self) -> None:
        """Puts everything back, the last replacement first."""
        while self._undo:
            self._undo.pop()()

    @staticmethod
    def _reset(owner: Any, name: str, ours: Any, before: Any) -> None:
        present = owner.__dict__.get(name) if isinstance(owner, type) else getattr(owner, name, None)
        if present is not ours:
            return  # somebody replaced it after us and holds on to ours, which only passes on from now on
        if before is _ABSENT:
            delattr(owner, name)
        else:
            setattr(owner, name, before)

    @staticmethod
    def _write(cls: type, name: str, value: Any) -> None:
        entries = _type_dict(cls)
        if value is _ABSENT:
            entries.pop(name, None)
        else:
            entries[name] = value
        ctypes.pythonapi.PyType_Modified(ctypes.py_object(cls))
