"""What a function does with its variables after a call, read off its bytecode once for each place of a call."""

from __future__ import annotations

import dis
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import CodeType
from typing import NamedTuple

LONGEST = 4096
"""Instructions of a function at most; a longer one is taken to do nothing."""
PLACES = 1024

_END = frozenset(["RETURN_VALUE", "RETURN_CONST", "RAISE_VARARGS", "RERAISE"])
_ALWAYS = frozenset(["JUMP_FORWARD", "JUMP_BACKWARD", "JUMP_BACKWARD_NO_INTERRUPT", "JUMP_ABSOLUTE"])
_IDLE = frozenset(["CACHE", "NOP", "EXTENDED_ARG", "PRECALL", "PUSH_NULL", "KW_NAMES", "RESUME", "NOT_TAKEN"])
_ATTRIBUTE = frozenset(["LOAD_ATTR", "LOAD_METHOD"])
_ASK = frozenset(["len", "type", "id", "isinstance", "hasattr"])
METADATA = frozenset(
    "shape dtype device layout ndim size dim ndimension numel nelement nbytes itemsize element_size stride is_cuda "
    "storage_offset requires_grad grad_fn is_leaf is_contiguous data_ptr untyped_storage storage names".split()
)
"""Attributes of a tensor that touch no data."""


class Reference(NamedTuple):
    """What a function reads: a variable, or an attribute of one."""

    name: str
    attribute: str = ""

    def __str__(self) -> str:
        return f"{self.name}.{self.attribute}" if self.attribute else self.name


class Append(NamedTuple):
    """A list takes an element; ``element``: which, where that is a variable or an attribute of one."""

    list: Reference
    element: Reference | None
    offset: int


@dataclass
class Later:
    """What happens after a call.

    Attributes:
        reads: variables whose data is read before they are assigned again, and not in each round of a loop in which
            the call is; each with the offset of such a read.
        live: variables that are loaded before they are assigned again.
        others: what is read beside them or gets another name; whether as a whole.
        result: the name that the call's result is given; result_read: whether that is read.
        appends: the lists of the function that are appended to; ``element`` only where that comes after the call.
    """

    reads: dict[str, int] = field(default_factory=dict)
    live: set[str] = field(default_factory=set)
    others: dict[Reference, bool] = field(default_factory=dict)
    result: str = ""
    result_read: bool = False
    appends: list[Append] = field(default_factory=list)


class _Step(NamedTuple):
    """An instruction: what it assigns, then what it loads, and where it goes on."""

    offset: int
    name: str
    attribute: str
    stores: tuple[str, ...]
    loads: tuple[str, ...]
    follow: tuple[int, ...]


_known: dict[tuple[int, int], tuple[CodeType, Later]] = {}


def after(code: CodeType, offset: int) -> Later:
    """What a function does after the call at an offset."""
    found = _known.get((id(code), offset))
    if found is not None and found[0] is code:
        return found[1]
    if len(_known) >= PLACES:
        _known.clear()
    later = _Reading(code, offset).later()
    _known[id(code), offset] = (code, later)
    return later


def _steps(code: CodeType) -> list[_Step]:
    found = [each for each in dis.get_instructions(code) if each.opname not in _IDLE]
    offsets = [each.offset for each in found]
    index = {offset: i for i, offset in enumerate(offsets)}

    def at(offset: int) -> int:
        return next((index[each] for each in offsets if each >= offset), len(found))

    steps = []
    for i, each in enumerate(found):
        name, value = each.opname, each.argval
        if name == "BINARY_OP" and each.argrepr == "[]":  # since Python 3.14
            name = "BINARY_SUBSCR"
        follow = [] if name in _END else [i + 1]
        if each.opcode in dis.hasjrel or each.opcode in dis.hasjabs:
            follow = [at(value)] if name in _ALWAYS else [i + 1, at(value)]
        stores: tuple[str, ...] = ()
        loads: tuple[str, ...] = ()
        words = value if isinstance(value, tuple) else (value,)
        if name == "STORE_FAST_LOAD_FAST":
            stores, loads = words[:1], words[1:]
        elif name in ("STORE_SUBSCR", "STORE_SLICE", "STORE_ATTR", "DELETE_SUBSCR", "DELETE_ATTR"):
            pass
        elif name.startswith(("STORE_", "DELETE_")):
            stores = words
        elif name.startswith(("LOAD_FAST", "LOAD_DEREF", "LOAD_NAME", "LOAD_GLOBAL")):
            loads = words
        attribute = str(value) if name in _ATTRIBUTE else ""
        steps.append(_Step(each.offset, name, attribute, stores, loads, tuple(follow)))
    return steps


class _Reading:
    """One call of one function."""

    def __init__(self, code: CodeType, offset: int) -> None:
        self._steps = _steps(code)
        if len(self._steps) > LONGEST:
            self._steps = []
        # a frame's offset may be inside what the interpreter keeps beside an instruction
        self._call = sum(each.offset <= offset for each in self._steps) - 1

    def later(self) -> Later:
        later = Later()
        if self._call < 0:
            return later
        start = self._call + 1
        stored = {name for each in self._steps for name in each.stores}
        names = {name for each in self._steps for name in each.loads}
        reached = {name: self._reached(name, start) for name in names}
        later.live = {
            name for name in stored & names if any(name in self._steps[i].loads for i in reached[name])
        }
        for name in sorted(names):
            reads = [i for i in reached[name] if self._reads(name, i)]
            once = [i for i in reads if self._call not in self._reached(name, i + 1)]
            if once and name in stored:
                later.reads[name] = self._steps[min(once)].offset
            for i in reached[name]:
                for other, end in self._read_or_named(name, i, later.live):
                    later.others[other] = later.others.get(other, False) or not self._taken_apart(end)
        if self._begins(start) and self._steps[start].stores:
            later.result = self._steps[start].stores[0]
            following = self._reached(later.result, start + 1)
            later.result_read = any(self._reads(later.result, i) for i in following)
        for found, index in self._appends():
            live = index in reached[found.list.name]
            later.appends.append(found if live else found._replace(element=None))
        return later

    # -- paths -------------------------------------------------------------------------------------------------------

    def _begins(self, index: int) -> bool:
        return 0 <= index < len(self._steps)

    def _reached(self, name: str, start: int) -> set[int]:
        """Instructions that load a variable or come before it is assigned again, from one on; the call ends a path."""
        seen: set[int] = set()
        waiting = [start]
        while waiting:
            i = waiting.pop()
            if i in seen or not self._begins(i):
                continue
            step = self._steps[i]
            if name in step.stores:
                continue
            seen.add(i)
            if i != self._call:
                waiting.extend(step.follow)
        return seen

    def _reads(self, name: str, index: int) -> bool:
        """Whether an instruction loads a variable, and what comes next needs its data."""
        step = self._steps[index]
        return name in step.loads and self._needs_data(index, last=step.loads[-1] == name)

    def _needs_data(self, index: int, last: bool = True) -> bool:
        """Whether what an instruction has loaded is more than asked for, compared by identity, or given a name."""
        if not last or not self._begins(index + 1):
            return True
        following = self._steps[index + 1]
        if following.attribute in METADATA or following.stores or following.name.endswith("NONE"):
            return False
        if self._begins(index + 2) and self._steps[index + 2].name == "IS_OP":
            return False
        before = self._steps[index - 1] if index else None
        return following.name != "IS_OP" and not (before is not None and _ASK & set(before.loads))

    def _read_or_named(self, name: str, index: int, live: set[str]) -> Iterator[tuple[Reference, int]]:
        """A variable that an instruction loads, or an attribute of it, whose data is read or that gets a new name.

        With the instruction that has loaded it.
        """
        step = self._steps[index]
        if name not in step.loads:
            return
        reference, end, read = Reference(name), index, self._reads(name, index)
        if step.loads[-1] == name and self._begins(index + 1) and self._steps[index + 1].attribute:
            if read:
                yield reference, index
            reference, end = Reference(name, self._steps[index + 1].attribute), index + 1
            read = reference.attribute not in METADATA and self._needs_data(end)
        new = self._steps[end + 1].stores[:1] if self._begins(end + 1) else ()
        if read or (new and not live.issuperset(new)):
            yield reference, end

    def _taken_apart(self, index: int) -> bool:
        """Whether a part or an attribute is taken of what an instruction has loaded."""
        for step in self._steps[index + 1 :]:
            if step.attribute or step.name in ("BINARY_SUBSCR", "BINARY_SLICE"):
                return True
            if not step.name.startswith(("LOAD_", "BUILD_SLICE", "BUILD_TUPLE", "UNARY_")):
                return False
        return False

    def _appends(self) -> Iterator[tuple[Append, int]]:
        for i, step in enumerate(self._steps):
            if step.attribute != "append" or not i:
                continue
            before = self._steps[i - 1]
            if before.loads:
                held, at = Reference(before.loads[-1]), i - 1
            elif before.attribute and i > 1 and self._steps[i - 2].loads:
                held, at = Reference(self._steps[i - 2].loads[-1], before.attribute), i - 2
            else:
                continue
            yield Append(held, self._element(i + 1), step.offset), at

    def _element(self, index: int) -> Reference | None:
        """What a call takes that has one argument, a variable or an attribute of one."""
        if not self._begins(index + 2) or len(self._steps[index].loads) != 1:
            return None
        name, following = self._steps[index].loads[0], self._steps[index + 1]
        if following.name.startswith("CALL"):
            return Reference(name)
        if following.attribute and self._steps[index + 2].name.startswith("CALL"):
            return Reference(name, following.attribute)
        return None


__all__ = ["Append", "Later", "Reference", "after"]
