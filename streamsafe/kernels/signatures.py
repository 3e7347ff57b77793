"""What a kernel in CUDA C++ does with its parameters: const is a read, the body of the kernel decides about the rest.

Kernels that CuPy generates (ufunc, elementwise, reduction, CUB block) state it exactly: ``const`` for inputs, non-const
for outputs. ``fuse`` and ``jit`` kernels and users' own have non-const parameters that are only read, so their body is
scanned. Where the body does not decide (the pointer is handed on, copied, cast) the direction is unknown.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Literal, NamedTuple

from streamsafe.kernels.macros import replaced

Direction = Literal["reads", "writes", "updates", "unknown", "value"]
"""``updates``: reads and writes."""


class Parameter(NamedTuple):
    """One parameter of a kernel: its name, what the kernel does with the memory it stands for, and if it is const.

    Attributes:
        fields: of a struct that is passed by value, when one of them is a pointer.
        itemsize: bytes from one element of a plain pointer or array to the next, 0 when that is not known.
        array: whether it is CuPy's array class, which knows its strides.
    """

    name: str
    direction: Direction
    const: bool = True
    fields: tuple[Parameter, ...] = ()
    itemsize: int = 0
    array: bool = False


class Variable(NamedTuple):
    """A ``__constant__`` or ``__device__`` variable that a kernel uses: its name, what is done with it, its bytes."""

    name: str
    direction: Direction
    size: int


class Signature(NamedTuple):
    """The parameters of a kernel, in order, the variables of its module that it uses, and its body without comments.

    A macro that hides what it does leaves no body.
    """

    parameters: tuple[Parameter, ...]
    variables: tuple[Variable, ...] = ()
    body: str = ""


_KERNEL = re.compile(r"__global__\b")
_NAME = re.compile(r"([A-Za-z_]\w*)\s*\(")
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/|\"(?:\\.|[^\"\\\n])*\"", re.S)
_QUALIFIERS = re.compile(r"\b(__restrict__|__restrict|restrict|volatile|__grid_constant__)\b")


def base_name(name: str) -> str:
    """The function's own name in a lowered C++ name (``_Z5scaleIfEvPT_``) or a name expression (``scale<float>``)."""
    if name.startswith("_Z"):
        parts = []
        rest = name[2:].removeprefix("N").removeprefix("K")
        while match := re.match(r"\d+", rest):
            length = int(match.group())
            parts.append(rest[match.end() : match.end() + length])
            rest = rest[match.end() + length :]
        return parts[-1] if parts else name
    return name.split("<", 1)[0].rsplit("::", 1)[-1].strip(" &")


@lru_cache(maxsize=4096)
def signature(source: str, name: str) -> Signature | None:
    """The signature of kernel ``name`` (plain, lowered or a name expression) in CUDA C++ ``source``, or None.

    None means that the source does not hold the kernel (an include, a cubin): nothing is known of its parameters.
    """
    wanted = base_name(name)
    return next((found for declared, found in kernels(source) if declared == wanted), None)


@lru_cache(maxsize=1024)
def kernels(source: str) -> tuple[tuple[str, Signature], ...]:
    """The kernels that CUDA C++ ``source`` defines, by their own names."""
    text, hiding = replaced(_strip(source))
    structs, variables = _structs(text), _variables(text)
    helpers = _helpers(text) if variables else {}
    found = []
    for match in _KERNEL.finditer(text):
        declaration = _declaration(text, match.end())
        body = _body(text, declaration[2]) if declaration is not None else None
        if declaration is not None and body is not None:
            hides = bool(hiding) and any(word in hiding for word in re.findall(r"[A-Za-z_]\w*", body))
            parameters = tuple(_parameter(part, body, structs, hides) for part in _split(declaration[1]))
            used = _used(variables, body, helpers) if variables else ()
            found.append((declaration[0], Signature(parameters, used, "" if hides else body)))
    return tuple(found)


def _strip(source: str) -> str:
    return _COMMENT.sub(lambda match: " " if match.group().startswith("/") else '""', source)


def _declaration(text: str, at: int) -> tuple[str, str, int] | None:
    """(name, parameter list, position after it) of the function declared from ``at``."""
    while match := _NAME.search(text, at):
        close = _closing(text, match.end() - 1, "(", ")")
        if close is None:
            return None
        if match.group(1) in ("__launch_bounds__", "__cluster_dims__", "__attribute__", "alignas"):
            at = close + 1
            continue
        return match.group(1), text[match.end() : close], close + 1
    return None


def _body(text: str, at: int) -> str | None:
    match = re.compile(r"\s*\{").match(text, at)
    if match is None:
        return None
    close = _closing(text, match.end() - 1, "{", "}")
    return text[match.end() : close] if close is not None else None


def _closing(text: str, at: int, opening: str, closing: str) -> int | None:
    depth = 0
    for index in range(at, len(text)):
        if text[index] == opening:
            depth += 1
        elif text[index] == closing:
            depth -= 1
            if depth == 0:
                return index
    return None


def _split(parameters: str) -> list[str]:
    parts: list[str] = []
    depth = start = 0
    for index, character in enumerate(parameters):
        if character in "<([":
            depth += 1
        elif character in ">)]":
            depth -= 1
        elif character == "," and depth == 0:
            parts.append(parameters[start:index])
            start = index + 1
    parts.append(parameters[start:])
    return [" ".join(part.split()) for part in parts if part.strip() and part.strip() != "void"]


_STRUCT = re.compile(r"\bstruct\b(?:\s+__align__\s*\(\s*\d+\s*\))?\s*(\w*)\s*\{([^{}]*)\}\s*(\w*)")
_VARIABLE = re.compile(
    r"\b(__constant__|__device__|__managed__)\s+(?:(?:__\w+__|static|volatile|const)\s+)*"
    r"((?:unsigned\s+|signed\s+|long\s+)*\w+)\s*(\**)\s*\b([A-Za-z_]\w*)\s*((?:\[[^\[\]]*\]\s*)*)(?:=(?!=)|;|\{)"
)
_BYTES = {"char": 1, "bool": 1, "short": 2, "int": 4, "unsigned": 4, "float": 4, "double": 8, "long": 8}
_BYTES |= {
    "uchar": 1,
    "ushort": 2,
    "uint": 4,
    "size_t": 8,
    "half": 2,
    "__half": 2,
    "uchar4": 4,
    "int2": 8,
    "int4": 16,
}
_BYTES |= {"float2": 8, "float3": 12, "float4": 16, "double2": 16}


def _structs(text: str) -> dict[str, tuple[tuple[str, str], ...]]:
    """The structs with a pointer among their members: (type, member) pairs by the struct's name."""
    found = {}
    for before, inside, after in _STRUCT.findall(text):
        members: list[tuple[str, str]] = []
        for line in inside.split(";"):
            first, *more = (" ".join(part.split()) for part in line.split(","))
            match = re.fullmatch(r"(.*?[\w*&>\s])\b([A-Za-z_]\w*)\s*(?:\[[^\]]*\])?", first)
            if match is None:
                continue
            kind = match.group(1)
            members.append((kind, match.group(2)))
            members += [(kind.rstrip(" *") + "*" * part.count("*"), part.strip(" *")) for part in more]
        if any("*" in kind for kind, _ in members):
            found.update({name: tuple(members) for name in (before, after) if name})
    return found


def _variables(text: str) -> dict[str, tuple[bool, int]]:
    """Whether a variable of the module is constant, and its bytes (1 when they are not known), by its name."""
    found = {}
    for space, kind, pointer, name, extents in _VARIABLE.findall(text):
        size = 8 if pointer else _BYTES.get(kind.split()[-1], 0)
        for extent in re.findall(r"\[([^\]]*)\]", extents):
            size *= int(extent) if extent.strip().isdigit() else 0
        found[name] = space == "__constant__", max(size, 1)
    return found


def _helpers(text: str) -> dict[str, str]:
    """The bodies of ``__device__`` functions, by name."""
    found = {}
    for match in re.finditer(r"__device__\b", text):
        declaration = _declaration(text, match.end())
        body = _body(text, declaration[2]) if declaration is not None else None
        if declaration is not None and body is not None:
            found[declaration[0]] = body
    return found


def _used(variables: dict[str, tuple[bool, int]], body: str, helpers: dict[str, str]) -> tuple[Variable, ...]:
    """The variables that a body uses, itself or through functions that it calls."""
    called = {name for name in helpers if re.search(rf"\b{name}\s*\(", body)}
    while True:
        more = {
            name
            for name, inside in helpers.items()
            if name not in called and any(re.search(rf"\b{name}\s*\(", helpers[known]) for known in called)
        }
        if not more:
            break
        called |= more
    whole = "\n".join([body, *(helpers[name] for name in sorted(called))])
    found = []
    for name, (constant, size) in variables.items():
        word = rf"(?<![\w.]){re.escape(name)}\b"
        if not re.search(word, whole):
            continue
        direction: Direction = "reads"
        if not constant:
            place = rf"{word}(?:\s*\[[^;]*?\])*(?:\s*\.\s*\w+)*"
            if re.search(
                rf"{place}{_ASSIGN}|(?:\+\+|--)\s*{word}|\batomic\w*\s*\(\s*&?\s*\(?\s*{word}", whole
            ):
                direction = "updates"
            elif re.search(rf"(?<!&)&\s*{word}", whole):
                direction = "unknown"
        found.append(Variable(name, direction, size))
    return tuple(found)


_WIDE = re.compile(r"\blong\b|\b(?:size|ssize|u?intptr|u?int64|ptrdiff)_t\b|\bCUdeviceptr\b")
"""Integer types that hold an address."""
_CAST = r"\(\s*[A-Za-z_][\w\s:<>,]*\*+\s*(?:const\s*)?\)\s*\(?\s*{0}\b|_cast\s*<[^<>;]*\*\s*>\s*\(\s*{0}\b"
"""A number that a kernel takes as an address."""


def _parameter(
    text: str, body: str, structs: Mapping[str, tuple[tuple[str, str], ...]], hides: bool
) -> Parameter:
    text = _QUALIFIERS.sub(" ", text.split("=", 1)[0])
    match = re.search(r"([A-Za-z_]\w*)\s*(\[\s*\w*\s*\])?\s*$", text)
    name = match.group(1) if match else ""
    kind = text[: match.start()].strip() if match else text
    pointer = "*" in kind or (match is not None and match.group(2) is not None)
    array = "CArray<" in kind
    if "cudaTextureObject_t" in kind:
        return Parameter(name, "reads")
    if "cudaSurfaceObject_t" in kind:
        return Parameter(name, "updates", const=False)
    if not pointer and not array:
        if _WIDE.search(kind) and re.search(_CAST.format(re.escape(name)), body):
            return Parameter(name, "unknown", const=False)
        members = structs.get(kind.split()[-1], ()) if kind else ()
        return Parameter(name, "value", fields=tuple(_field(name, *member, body) for member in members))
    itemsize = _itemsize(kind, match.group(2) if match else None)
    if re.search(r"\bconst\b", kind.split("*", 1)[0]):
        return Parameter(name, "reads", itemsize=itemsize, array=array)
    direction: Direction = "unknown" if hides else _scan(name, body)
    return Parameter(name, direction, const=False, itemsize=itemsize, array=array)


def _itemsize(kind: str, brackets: str | None) -> int:
    """The bytes of what ``float*``, ``float x[]`` or ``CArray<float, ...>`` holds, 0 for anything else."""
    kind = re.sub(r"(?:thrust::)?complex<\s*(float|double)\s*>", r"\g<1>2", kind)
    match = re.fullmatch(r"(?:const\s+)?CArray<\s*([\w ]+?)\s*,.*>(?:\s+const)?", kind)
    if match is None:
        stars = "" if brackets is not None else r"\*"
        match = re.fullmatch(rf"((?:\w+\s+)*?\w+)\s*{stars}(?:\s*const)?", kind)
    words = [] if match is None else [word for word in match.group(1).split() if word != "const"]
    if words[-2:] == ["long", "long"] or words[-1:] == ["long"]:
        return 8
    fixed = re.fullmatch(r"u?int(\d+)_t", words[-1]) if len(words) == 1 else None
    if fixed is not None:
        return int(fixed.group(1)) // 8
    return _BYTES.get(words[-1], 0) if words else 0


def _field(owner: str, kind: str, name: str, body: str) -> Parameter:
    if "*" not in kind:
        return Parameter(name, "value")
    if re.search(r"\bconst\b", kind.split("*", 1)[0]):
        return Parameter(name, "reads")
    return Parameter(name, _scan(f"{owner}.{name}", body), const=False)


def _scan(name: str, body: str) -> Direction:
    """What a body does with a non-const pointer or array, following plain aliases of it."""
    names = {name}
    for _ in range(4):
        before = len(names)
        for known in tuple(names):
            kind = r"(?:\*|&|auto|CArray<[^;{}]*?>)\s*(?:__restrict__\s*)?"
            pattern = rf"{kind}([A-Za-z_]\w*)\s*=\s*&?\s*{known}\b(?!\s*\()"
            names.update(match.group(1) for match in re.finditer(pattern, body))
            names.update(
                match.group(1) for match in re.finditer(rf"&\s*([A-Za-z_]\w*)\s*=\s*{known}\s*\[", body)
            )
            names.update(
                match.group(1)
                for match in re.finditer(rf"\*\s*([A-Za-z_]\w*)\s*=\s*\([^()]*\*\s*\)\s*&?\s*{known}\b", body)
            )
        if len(names) == before:
            break
    directions = {_uses(known, body) for known in names}
    if "updates" in directions or {"writes", "reads"} <= directions:
        return "updates"
    if "writes" in directions:
        return "writes"
    return "unknown" if "unknown" in directions else "reads"


_ASSIGN = r"\s*(?:=(?!=)|\+=|-=|\*=|/=|%=|&=|\|=|\^=|<<=|>>=|\+\+|--)"


def _uses(name: str, body: str) -> Direction | None:
    """What is done through one name, other than giving it another name; None when nothing is."""
    body = ";" + body
    word = rf"(?<![\w.]){re.escape(name)}\b"
    updated = (
        rf"(?:\+\+|--)\s*{word}\s*\[",
        rf"\batomic\w*\s*\(\s*&?\s*\(?\s*{word}",
    )
    if any(re.search(pattern, body) for pattern in updated):
        return "updates"
    written = (
        rf"\b(?:__st\w*|store\w*)\s*\(\s*&?\s*{word}",
        rf"(?:[;{{}}():,]|\belse)\s*\*\s*\(?\s*{word}[^;=()]*\)?{_ASSIGN}",
        rf"\breinterpret_cast\s*<[^<>]*\*\s*>\s*\(\s*{word}[^;=]*?\)\s*\[[^\];]*\]{_ASSIGN}",
        rf"\(\s*\([^()]*\*\s*\)\s*{word}\s*\)\s*\[[^;]*?\]{_ASSIGN}",
    )
    stores = [store for pattern in written for store in re.finditer(pattern, body)]
    writes = bool(stores)
    reads = any(re.search(r"(?:[-+*/%&|^<>]=|\+\+|--)$", store.group()) for store in stores)
    unknown = False
    for match in re.finditer(word, body):
        rest = body[match.end() :].lstrip()
        before = body[: match.start()].rstrip()
        if rest.startswith("["):
            after = rest
            while after.startswith("["):
                close = _closing(after, 0, "[", "]")
                after = after[close + 1 :].lstrip() if close is not None else ""
            after = re.sub(r"^\.\s*\w+", "", after)
            assigned = re.match(_ASSIGN, after)
            if assigned is not None:
                writes = True
                reads = reads or assigned.group().strip() != "="
            elif before.endswith("&") and not before.endswith("&&"):
                unknown = unknown or not re.search(r"[\w>]\s*&\s*$|=\s*&$", before)
                reads = True
            else:
                reads = True
        elif rest.startswith("->"):
            if re.match(rf"->\s*\w+{_ASSIGN}", rest):
                writes = True
            else:
                reads = True
        elif rest.startswith((".size", ".ndim", ".shape", ".strides")):
            continue
        elif before.endswith("*") and (stepped := re.match(rf"(?:\+\+|--)({_ASSIGN})", rest)) is not None:
            writes = True
            reads = reads or stepped.group(1).strip() != "="
        elif before.endswith("*") and re.match(r"[;,)+\-*/<>]", rest or ";"):
            reads = True
        elif re.match(r"(?:[!=]=|&&|\|\||\?)", rest) or before.endswith("!"):
            continue
        elif re.search(r"(?:\*|\bauto)\s*\w+\s*=\s*(?:\([^()]*\)\s*)?$", before):
            continue  # an alias: what is done through it is looked at under its own name
        elif before.endswith("*") or (writes and re.match(_ASSIGN, rest)):
            continue
        else:
            unknown = True
    if writes:
        return "updates" if reads else "writes"
    if unknown:
        return "unknown"
    return "reads" if reads else None
