"""Streams and events that are picked by a key: whether two keys are the same one, as far as that is known."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from typing import TYPE_CHECKING

from streamsafe.static import element_keys, fields, numbers
from streamsafe.static.numbers import Bounds, Form
from streamsafe.static.values import ANY, EACH, EVERY, ITERATED, Name, Number, Object, iterate

if TYPE_CHECKING:
    from streamsafe.static.state import State


_SEVERAL = (ANY, EACH, EVERY, ITERATED)


def relation(first: Hashable, second: Hashable, st: State) -> bool | None:
    """Whether two keys are the same; None where that is not known.

    Args:
        first: a key, as :func:`streamsafe.static.element_keys.key_of` gives it.
        second: another one.
        st: what is known of the numbers that they are.
    """
    if element_keys.is_unsure(first) or element_keys.is_unsure(second):
        return False if element_keys.apart(first, second) else None
    if first == second:
        return True
    if element_keys.apart(first, second) or _of_two_rounds(first, second):
        return False
    if _are_two_elements(_name(first), _name(second), st):
        return False
    one, other = _form(first, st), _form(second, st)
    if one is None or other is None:
        return None
    if one == other:
        return True
    return False if numbers.apart(_at(one), _at(other)) else None


def may_be_one(first: Name, second: Name, st: State) -> bool:
    """Whether two handles, which one container gives for two keys, may be one: nothing says that the keys differ."""
    held = list(_places(first, st))
    unlike: bool | None = False
    for owner, key in _places(second, st) if held else ():
        for other, at in held:
            if owner is other and key != at:
                same = relation(at, key, st)
                if same is False:
                    return False
                unlike = True
    return bool(unlike)


def keys_in(buffer: Name) -> Iterator[Hashable]:
    """The keys that a buffer is named by."""
    return (each.site for each in buffer.chain() if type(each.site) is tuple and is_key(each.site))


def any_relation(first: Iterable[Hashable], second: Hashable, st: State) -> bool | None:
    """Whether a key is one of several; None where that is not known."""
    found = [relation(key, second, st) for key in first]
    return True if True in found else None if None in found or not found else False


def is_key(site: Hashable) -> bool:
    """Whether an element is named by a key that it was picked by, and does not stand for several."""
    if isinstance(site, (int, str)):
        return site not in _SEVERAL
    return type(site) is tuple and site[:1] in (("[]",), ("text",))


def _places(handle: Name, st: State) -> Iterator[tuple[Name, Hashable]]:
    """The containers that give a handle, and the keys for which they do."""
    if handle.parent is not None and is_key(handle.site):
        yield handle.parent.base(), handle.site
    for owner, table in st.store.objects.items():
        for key, value in table.items():
            if type(key) is fields.Field or (type(key) is str and key[:1] in "*"):
                continue
            if any(isinstance(v, Object) and v.name == handle for v in iterate(value)):
                yield owner.base(), key


def _of_two_rounds(first: Hashable, second: Hashable) -> bool:
    """Whether two keys are what one expression gave in two rounds of a loop: a loop goes on."""
    one, other = _name(first), _name(second)
    return one is not None and other is not None and one != other and one.base() == other.base()


def _are_two_elements(first: Name | None, second: Name | None, st: State) -> bool:
    """Whether two keys are elements of one collection at different places: it is taken to hold none twice."""
    if first is None or second is None or first.parent is None or first.parent is not second.parent:
        return False
    return is_key(first.site) and is_key(second.site) and relation(first.site, second.site, st) is False


def _name(key: Hashable) -> Name | None:
    named = type(key) is tuple and key[:1] == ("[]",) and isinstance(key[1], Name)
    return key[1] if named else None  # type: ignore[index]


def _form(key: Hashable, st: State) -> Form | None:
    if type(key) is int:
        return numbers.number(key)
    name = _name(key)
    if name is None:
        return None
    known = st.store.get((name, fields.NUMBER))
    return known.form if isinstance(known, Number) else numbers.of_atom(name)


def _at(form: Form) -> Bounds:
    return Bounds(form, form + numbers.ONE, 0)
