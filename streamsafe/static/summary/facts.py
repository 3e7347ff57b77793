"""What is known of access paths: the types, places and aliases of parameters, of fields and of module variables.

A class's ``__init__`` is summarised first; what it leaves in a field names the field's type, its place and its
aliases (``self.np = self.cpu.numpy()`` is the path ``self.cpu``). What other methods store adds types. A module's body
is to its variables what ``__init__`` is to fields.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from streamsafe.static.domain.atoms import (
    CURRENT,
    FALSE,
    NONE,
    NULL_CONTEXT,
    UNKNOWN,
    Array,
    Atom,
    Class,
    Const,
    Context,
    Function,
    Library,
    New,
    Partial,
    Path,
    Value,
    array,
    const,
    context,
    ordered,
    path,
    value,
)
from streamsafe.static.domain.places import is_element
from streamsafe.static.summary.constructed import Constructed
from streamsafe.static.summary.shapes import ELEMENT, Shapes, uses
from streamsafe.static.syntax import cfg, ir
from streamsafe.static.syntax.index import Index
from streamsafe.static.syntax.scopes import dotted

if TYPE_CHECKING:
    from streamsafe.static.summary.model import Exit
    from streamsafe.static.summary.solve import Engine, Given

SELF: Final = "self"
MODULE: Final = "module "
OUTER: Final = "outer "
UNDECORATED: Final = "undecorated"
"""In the closure of a function: it is called as it is written, without its decorators."""


SCALARS: Final = frozenset(f"builtins.{name}" for name in ("bool", "bytes", "complex", "float", "int", "str"))
"""What a function is believed to return when it says so, since it lies on the host."""


class Fact(NamedTuple):
    """What is known of a path, or of a field.

    Attributes:
        aliases: what it is another name for, over the paths of the object that has the field (root ``self``).
        place: where the memory lies, or "".
        type: a dotted name, a class id, or "".
        optional: whether it may be None.
        element: of a container, what its elements are.
        hinted: whether only a name says the type.
        untimed: of an event, whether it was made without timing.
        shared: of an object, what its fields, and those of objects in it, have in common with the fields of the object
            that holds it: field, or ``field.field`` -> the latter's paths, as seen from that object.
        outside: the same of one such field: what it is, as seen from an object around its owner.
        up: how many objects further out that one is.
        parameters: of an optimizer, what its parameters are, as seen from the object that holds it.
        uncapturable: of an optimizer, whether it was made without being capturable.
        keys: of a dict, the constants that it has under constant keys.
        counts: whether it begins at a number, not below zero, and is only counted up.
    """

    aliases: Value = UNKNOWN
    place: str = ""
    type: str = ""
    optional: bool = False
    element: Fact | None = None
    hinted: bool = False
    untimed: bool = False
    parameters: Value = UNKNOWN
    shared: Mapping[str, Value] = {}
    outside: Value = UNKNOWN
    up: int = 1
    uncapturable: bool = False
    keys: tuple[tuple[str, Value], ...] = ()
    counts: bool = False


NOTHING: Final = Fact()
_BACKWARD: Final = Fact(type="torch.autograd.function.FunctionCtx")
"""The context that autograd gives to a ``backward``."""


class Facts:
    """The facts of all classes and modules, computed when they are asked for.

    Attributes:
        incomplete: how often facts were read that are still being computed: what rests on them is not cached.
    """

    def __init__(self, engine: Engine, index: Index) -> None:
        self._engine = engine
        self._index = index
        self._fields: dict[str, dict[str, Fact]] = {}
        self._paths: dict[tuple[str, Atom], Fact] = {}
        self._rebound: dict[str, set[str]] = {}
        self._scalar: dict[str, bool] = {}
        self._computed: dict[str, set[str]] = {}
        self._open: set[str] = set()
        self._constructed = Constructed(engine, self)
        self._shapes = Shapes(engine)
        self._used: dict[str, dict[str, set[str]]] = {}
        self.incomplete = 0

    # -- paths -------------------------------------------------------------------------------------------------------

    def of(self, fn: ir.Function, given: Given, atom: Path) -> Fact:
        """What is known of a path in a function."""
        scope = fn.fid
        if atom.root.startswith((MODULE, OUTER)):
            scope = given.places.get(atom.root, "")
        elif atom.root == SELF and fn.cls is not None and not given:
            scope = fn.cls
        if given.types:
            scope += str(given.types.get(atom.root, ""))
        key = (scope, atom)
        found = self._paths.get(key)
        if found is None:
            before = self.incomplete
            found = self._walk(fn, given, atom)
            if self.incomplete == before:
                self._paths[key] = found
        return found

    def _walk(self, fn: ir.Function, given: Given, atom: Path) -> Fact:
        fact = self._root(fn, given, atom.root)
        above: list[Mapping[str, Value]] = []
        for step in atom.fields:
            if is_element(step):
                fact = fact.element or NOTHING
            elif fact is _BACKWARD and step == "saved_tensors":
                fact = Fact(type="builtins.tuple", element=Fact(type=self._engine.tensor_type))
            elif ":" in fact.type or fact.type.startswith(MODULE):
                bound = step in self.rebound(fact.type)
                above = [] if bound else [fact.shared, *above]
                outside, up = next(
                    ((known[step], up) for up, known in enumerate(above, 1) if step in known), (UNKNOWN, 1)
                )
                fact = self.fields(fact.type).get(step, NOTHING)._replace(outside=outside, up=up)
                above = [_below(known, step) for known in above]
            else:
                fact = NOTHING
        if fact.type or fact.aliases or fact.place or fact.outside:
            return fact
        return self._hint(atom, fact)

    def _hint(self, atom: Path, fact: Fact) -> Fact:
        """What the name of a field or a parameter alone says."""
        name = atom.fields[-1] if atom.fields else atom.root
        if name.startswith(OUTER):
            name = name.rpartition(" ")[2]  # a variable of the scope around has the name that it has there
        if name == SELF or is_element(name) or " " in name:
            return fact
        row = self._engine.models.hint("attribute" if atom.fields else "parameter", name)
        type = HINTED.get(row.role, "") if row is not None else ""
        if not type:
            return fact
        self._engine.hints[name] = self._engine.hints.get(name, 0) + 1
        return fact._replace(type=type, hinted=True)

    def _root(self, fn: ir.Function, given: Given, root: str) -> Fact:
        known = given.types.get(root)
        if known:
            return Fact(type=known, place=given.places.get(root, ""))
        if root.startswith(MODULE):
            return Fact(type=root)
        if root.startswith(OUTER):
            owner, _, name = root[len(OUTER) :].partition(" ")
            outer = self._engine.function(owner)
            if outer is None:
                return NOTHING
            if outer.is_method and outer.params[0].name == name:
                return Fact(type=outer.cls or "")
            return self.annotated(outer, name)
        if root == SELF and fn.is_method:
            return Fact(type=fn.cls or "")
        return self.annotated(fn, root)

    def annotated(self, fn: ir.Function, name: str) -> Fact:
        """What a parameter's annotation says; or autograd, which gives gradients to a ``backward``."""
        for position, parameter in enumerate(fn.params):
            if parameter.name == name:
                if parameter.annotation is None and self._is_backward(fn):
                    return _BACKWARD if position == 0 else Fact(type=self._engine.tensor_type, optional=True)
                fact = self.of_annotation(fn.module, parameter.annotation)
                if not fact.type:
                    fact = self._inferred(fn, name, fact)
                if (parameter.has_default and parameter.default is None) or parameter.annotation is None:
                    fact = fact._replace(optional=True)
                return fact
        return NOTHING

    def _inferred(self, fn: ir.Function, name: str, fact: Fact) -> Fact:
        """What the calls of a class show of a parameter, or what is used of it."""
        type = self._constructed.parameter(fn, name)
        if type or fact.element:
            return fact._replace(type=type)
        shape = self._used.get(fn.fid)
        if shape is None:
            shape = self._used[fn.fid] = uses(fn, {each.name: each.name for each in fn.params})
        return self._of_shape(shape, name, fact)

    def _of_shape(self, shape: Mapping[str, set[str]], name: str, fact: Fact) -> Fact:
        type = self._shapes.matching(shape.get(name, ()))
        element = "" if type else self._shapes.matching(shape.get(name + ELEMENT, ()))
        return fact._replace(type=type, element=Fact(type=element) if element else None)

    def _is_backward(self, fn: ir.Function) -> bool:
        """Whether autograd calls a function: the ``backward`` of a ``torch.autograd.Function``."""
        if fn.name != "backward" or fn.is_method or fn.cls not in self._index.classes:
            return False
        bases = map(self._engine.canonical, self._index.library_bases(fn.cls))
        return "torch.autograd.Function" in bases

    def computed_with(self, cid: str, field: str) -> bool:
        """Whether a method of a class computes with a field, beside counting it up."""
        known = self._computed.get(cid)
        if known is None:
            known = self._computed[cid] = set()
            for each in self._index.mro(cid) if cid in self._index.classes else ():
                for fid in self._index.classes[each].methods.values():
                    fn = self._engine.function(fid)
                    if fn is not None and fn.is_method:
                        known.update(_computed_with(fn))
        return field in known

    def returns_scalar(self, fn: ir.Function) -> bool:
        """Whether a function says that it returns a number or a text of the host: ``-> int``."""
        known = self._scalar.get(fn.fid)
        if known is None:
            known = False
            if fn.returns is not None and not fn.is_async and not fn.is_generator:
                kinds, _ = self._index.alternatives(fn.returns)
                symbols = [self._index.type_symbol(fn.module, kind) for kind in kinds]
                known = bool(symbols) and all(
                    symbol.kind == "library" and self._engine.canonical(symbol.name) in SCALARS
                    for symbol in symbols
                )
            self._scalar[fn.fid] = known
        return known

    def of_annotation(self, module: str, annotation: ir.Type | None, depth: int = 2) -> Fact:
        """What an annotation says."""
        if annotation is None:
            return NOTHING
        kinds, optional = self._index.alternatives(annotation)
        if len(kinds) != 1:
            return Fact(optional=optional)
        symbol = self._index.type_symbol(module, kinds[0])
        if symbol.kind == "class":
            return Fact(type=symbol.name, optional=optional)
        if symbol.kind != "library":
            return Fact(optional=optional)
        name = self._engine.canonical(symbol.name)
        if name in _ANY:
            return Fact(optional=optional)
        element = None
        if kinds[0].args and depth:
            inner = (
                kinds[0].args[-1]
                if kinds[0].name.rpartition(".")[2].lower() in _MAPPINGS
                else kinds[0].args[0]
            )
            element = self.of_annotation(module, inner, depth - 1)
        row = self._engine.types.get(name)
        place = row.place if row is not None and row.role == "tensor" else ""
        return Fact(type=name, place=place, optional=optional, element=element)

    def rebound(self, cid: str) -> set[str]:
        """The fields that other methods than ``__init__`` assign."""
        self.fields(cid)
        return self._rebound.get(cid, set())

    def recover(self) -> None:
        """After an internal error: what was being computed is no longer."""
        self._open.clear()

    # -- fields ------------------------------------------------------------------------------------------------------

    def fields(self, owner: str) -> Mapping[str, Fact]:
        """The fields of a class, or the variables of a module (``module name``)."""
        known = self._fields.get(owner)
        if known is not None:
            self.incomplete += owner in self._open
            return known
        self._fields[owner] = {}
        self._open.add(owner)
        try:
            found = (
                self._of_module(owner[len(MODULE) :]) if owner.startswith(MODULE) else self._of_class(owner)
            )
        finally:
            self._open.discard(owner)
        self._fields[owner] = found
        if not self._open:
            self._engine.settle()
        return found

    def _of_module(self, module: str) -> dict[str, Fact]:
        fid = f"{module}:<module>"
        if not self._engine.has(fid):
            return {}
        found: dict[str, Fact] = {}
        for exit in self._engine.summary(fid).exits:
            self._left(found, exit, path(MODULE + module), set())
        for name, fact in self._stored_by_functions(module).items():
            known = found.get(name)
            found[name] = fact if known is None else _also_stored(known, fact)
        return found

    def _stored_by_functions(self, module: str) -> dict[str, Fact]:
        """What functions store in variables that they declare ``global``, by a look at their instructions."""
        found: dict[str, Fact] = {}
        info = self._index.modules[module]
        if b"global" not in info.source:
            return found
        for fid, definition in sorted(self._index.definitions.items()):
            node = definition.node
            if definition.module == module and b"global" in info.lines(
                node.lineno, node.end_lineno or node.lineno
            ):
                fn = self._engine.function(fid)
                for name, fact in self._stores(fn, None) if fn is not None else ():
                    found[name] = _either(found.get(name, NOTHING), fact)
        return found

    def _of_class(self, cid: str) -> dict[str, Fact]:
        index = self._index
        found: dict[str, Fact] = {}
        if cid not in index.classes:
            return found
        for name, (module, annotation) in index.fields(cid).items():
            found[name] = self.of_annotation(module, annotation)
        elsewhere = self._stored_elsewhere(cid)
        self._rebound[cid] = set(elsewhere)
        fid = index.method(cid, "__init__")
        if fid is not None:
            for exit in self._engine.summary(fid).exits:
                self._left(found, exit, path(SELF), set(elsewhere), fid)
        for name, fact in elsewhere.items():
            known = found.get(name)
            if known is None:
                found[name] = fact
            else:
                found[name] = _also_stored(known, fact)
        for name, fact in self._in_body(cid).items():
            if found.get(name, NOTHING) == NOTHING:
                found[name] = fact
        for name, attributes in self._used_of_fields(cid).items():
            field = name.removesuffix(ELEMENT)
            known = found.get(field, NOTHING)
            if known.element is None and not known.aliases and (name != field or not known.type):
                shown = self._of_shape({name: attributes}, field, known)
                found[field] = shown if name == field else shown._replace(type=known.type)
        return found

    def _used_of_fields(self, cid: str) -> dict[str, set[str]]:
        """The attributes that the methods of a class, and of its bases, use of its fields, and of their elements."""
        found: dict[str, set[str]] = {}
        for each in self._index.mro(cid):
            for fid in self._index.classes[each].methods.values():
                fn = self._engine.function(fid)
                if fn is not None and fn.is_method:
                    for name, attributes in uses(fn, {}, fn.params[0].name).items():
                        found.setdefault(name, set()).update(attributes)
        return found

    def _in_body(self, cid: str) -> dict[str, Fact]:
        """What a class's body, or that of a base, assigns once and for all: constants, and ``torch.device("cpu")``."""
        found: dict[str, Fact] = {}
        for each in reversed(self._index.mro(cid)):
            cls = self._index.classes[each]
            for name, given in cls.assigned.items():
                found.pop(name, None)
                if isinstance(given, ast.Call) and len(given.args) == 1 and not given.keywords:
                    symbol = self._index.resolve(cls.module, dotted(given.func))
                    if symbol.kind == "library" and self._engine.canonical(symbol.name) == "torch.device":
                        given = given.args[0]
                if isinstance(given, ast.Constant) and isinstance(given.value, bool | str):
                    found[name] = Fact(aliases=value(const(given.value)))
        return found

    def _left(self, found: dict[str, Fact], exit: Exit, me: Path, elsewhere: set[str], fid: str = "") -> None:
        """What an exit leaves in the fields of an object."""
        owner: dict[Atom, str] = {}
        stored = [(field, held) for (at, field), held in exit.heap.items() if at is me]
        for field, held in stored:
            for atom in held:
                if isinstance(atom, New):
                    owner.setdefault(atom, field)
        for field, held in stored:
            fact = self._of_value(exit, field, held, me, owner, fid)
            known = found.get(field)
            if known is None:
                found[field] = fact
            else:
                found[field] = Fact(
                    known.aliases | fact.aliases
                    if known.aliases and fact.aliases
                    else known.aliases or fact.aliases,
                    fact.place or known.place,
                    fact.type or known.type,
                    known.optional or fact.optional,
                    fact.element or known.element,
                    parameters=known.parameters & fact.parameters,
                    shared=fact.shared or known.shared,
                )

    def _of_value(
        self,
        exit: Exit,
        field: str,
        held: Value,
        me: Path,
        owner: Mapping[Atom, str],
        fid: str,
        depth: int = 2,
    ) -> Fact:
        aliases: set[Atom] = set()
        place = type = ""
        optional = False
        element = None
        shared: Mapping[str, Value] = {}
        keys: tuple[tuple[str, Value], ...] = ()

        def named(atom: Atom) -> Atom:
            return path(me.root, owner[atom]) if atom in owner else atom

        for atom in ordered(held):
            if atom is NONE:
                optional = True
                aliases.add(atom)
            elif isinstance(atom, New):
                type = type or atom.kind
                place = place or exit.places.get(atom, "")
                if owner.get(atom, field) != field:
                    aliases.add(named(atom))
                inner = [v for (at, f), v in exit.heap.items() if at is atom and is_element(f)]
                keys = tuple(sorted(_constants(exit, atom)))
                if inner and depth and self._engine.role(atom.kind) in ("container", "queue"):
                    some = frozenset().union(*inner)
                    element = self._of_value(exit, "", some, me, owner, fid, depth - 1)
            elif isinstance(atom, Array):
                of = frozenset(named(each) for each in atom.of)
                type = type or atom.type
                if all(_rooted(each, me) for each in of):
                    aliases.add(array(of, atom.type))
            elif isinstance(atom, Context):
                streams = frozenset(named(each) for each in atom.streams)
                if all(_rooted(each, me) for each in streams):
                    aliases.add(context(streams))
            elif isinstance(atom, Const | Function | Library | Class | Partial) or atom in (
                NULL_CONTEXT,
                CURRENT,
            ):
                aliases.add(atom)
            elif isinstance(atom, Path):
                if atom.root == me.root:
                    aliases.add(atom)
                elif fid and not atom.fields:
                    fn = self._engine.function(fid)
                    if fn is not None:
                        given = self.annotated(fn, atom.root)
                        type, place, element = given.type or type, given.place or place, given.element
                        optional = optional or given.optional
        if ":" in type and all(isinstance(atom, New) and atom.kind == type for atom in held):
            shared = _shared_by_all([_shared(exit, atom, me, owner) for atom in ordered(held)])
        untimed = bool(held) and all(exit.heap.get((atom, "timing")) == value(FALSE) for atom in held)
        parameters = _seen_from(exit, held, me)
        return Fact(
            frozenset(aliases),
            place,
            type,
            optional,
            element,
            untimed=untimed,
            parameters=parameters,
            shared=shared,
            uncapturable=bool(held)
            and all(exit.heap.get((atom, "capturable")) == value(FALSE) for atom in held),
            keys=keys if len(held) == 1 else (),
            counts=bool(held) and all(_is_number(atom) for atom in held),
        )

    def _stored_elsewhere(self, cid: str) -> dict[str, Fact]:
        """What methods other than ``__init__`` store in fields, by a look at their instructions, in no order."""
        found: dict[str, Fact] = {}
        for each in reversed(self._index.mro(cid)):
            for name, fid in sorted(self._index.classes[each].methods.items()):
                if name == "__init__":
                    continue
                fn = self._engine.function(fid)
                if fn is not None and fn.is_method:
                    for field, fact in self._stores(fn, fn.params[0].name):
                        known = found.get(field, NOTHING)
                        counts = fact.counts and (known.counts or field not in found)
                        found[field] = _either(known, fact)._replace(counts=counts)
        return found

    def _stores(self, fn: ir.Function, me: str | None) -> Iterable[tuple[str, Fact]]:
        """What a function stores in the fields of ``me``, or in variables of its module."""
        names: dict[ir.Reg, str] = {}
        made: dict[ir.Reg, Fact] = {}
        fields: dict[ir.Reg, str] = {}
        adders: dict[ir.Reg, str] = {}
        counted: dict[ir.Reg, str] = {}
        steps: set[ir.Reg] = set()
        for number in cfg.graph(fn).order:
            for i in fn.blocks[number].instrs:
                if isinstance(i, ir.Global):
                    symbol = self._index.lookup(fn.module, i.name)
                    names[i.dst] = symbol.name if symbol.kind in ("library", "class") else ""
                elif isinstance(i, ir.Attr):
                    names[i.dst] = f"{names[i.obj]}.{i.name}" if names.get(i.obj) else ""
                    fields[i.dst] = i.name if i.obj == me else ""
                    adders[i.dst] = fields.get(i.obj, "") if i.name in _ADDS else ""
                elif isinstance(i, ir.Binary | ir.InPlace):
                    if i.op == "+" and i.right in steps and fields.get(i.left):
                        counted[i.dst] = fields[i.left]
                elif isinstance(i, ir.Const) and type(i.value) is int and i.value > 0:
                    steps.add(i.dst)
                elif isinstance(i, ir.Call):
                    made[i.dst] = self._made(names.get(i.func, ""))
                    added = i.args[-1] if adders.get(i.func) and i.args else None
                    if added is not None and not isinstance(added, ir.Star) and made.get(added, NOTHING).type:
                        yield adders[i.func], Fact(element=made[added])
                elif isinstance(i, ir.SetItem):
                    if fields.get(i.obj) and made.get(i.src, NOTHING).type:
                        yield fields[i.obj], Fact(element=made[i.src])
                elif isinstance(i, ir.Const) and i.value is None:
                    made[i.dst] = Fact(optional=True)
                elif isinstance(i, ir.Move):
                    if i.src in made:
                        made[i.dst] = made[i.src]
                elif isinstance(i, ir.SetAttr) and i.obj == me:
                    fact = made.get(i.src, NOTHING)
                    yield i.name, Fact(counts=True) if counted.get(i.src) == i.name else fact
                elif isinstance(i, ir.SetGlobal) and me is None:
                    yield i.name, made.get(i.src, NOTHING)

    def _made(self, name: str) -> Fact:
        if not name:
            return NOTHING
        if ":" in name:
            return Fact(type=name) if name in self._index.classes else NOTHING
        return Fact(type=self._engine.constructed(name))


def _either(one: Fact, other: Fact) -> Fact:
    """What is known of a field in which two places store."""
    return Fact(
        place=one.place or other.place,
        type=one.type or other.type,
        optional=one.optional or other.optional,
        element=one.element or other.element,
    )


def _also_stored(known: Fact, fact: Fact) -> Fact:
    """What is known of a field that was first one thing and in which others store, too."""
    moves = known.place == "pageable" and not fact.place and not fact.optional
    return known._replace(
        type=known.type or fact.type,
        place="" if moves else known.place or (fact.place if not known.type else ""),
        element=known.element or fact.element,
        counts=known.counts and fact.counts,
        shared={},
        aliases=frozenset(atom for atom in known.aliases if not isinstance(atom, Const)),
    )


HINTED: Final = {
    "stream": "torch.cuda.Stream",
    "event": "torch.cuda.Event",
    "graph": "torch.cuda.CUDAGraph",
    "module": "torch.nn.Module",
    "optimizer": "torch.optim.Optimizer",
}
"""The type that a hint's role stands for."""

_ADDS: Final = frozenset("add append appendleft insert put put_nowait setdefault".split())
"""Methods of containers that keep their last argument."""

_ANY: Final = frozenset(("typing.Any", "builtins.object", "typing.TypeVar", "typing.Union"))
_MAPPINGS: Final = frozenset("dict mapping mutablemapping defaultdict ordereddict".split())


def _seen_from(exit: Exit, held: Value, me: Path) -> Value:
    """The parameters of optimizers that a field holds, as paths of the object's own fields."""
    if not any((atom, "params") in exit.heap for atom in held):
        return UNKNOWN
    fields = {
        atom: field
        for (at, field), value in exit.heap.items()
        if at is me and len(value) == 1
        for atom in value
        if isinstance(atom, Path) and not atom.fields
    }
    found: set[Atom] = set()
    for optimizer in held:
        parameters = exit.heap.get((optimizer, "params"), UNKNOWN)
        for atom in parameters:
            if not isinstance(atom, Path):
                return UNKNOWN
            if atom.root == me.root:
                found.add(atom)
            elif path(atom.root) in fields:
                found.add(path(me.root, fields[path(atom.root)], *atom.fields))
            else:
                return UNKNOWN
        if not parameters:
            return UNKNOWN
    return frozenset(found)


def _shared(exit: Exit, inner: Atom, me: Path, owner: Mapping[Atom, str], depth: int = 2) -> dict[str, Value]:
    """What the fields of an object that a field holds have in common with the fields of the object that holds it."""
    found: dict[str, Value] = {}
    for (at, field), held in exit.heap.items():
        if at is not inner or len(held) != 1 or is_element(field):
            continue
        (atom,) = held
        if isinstance(atom, New) and atom in owner:
            found[field] = value(path(me.root, owner[atom]))
        elif isinstance(atom, New) and ":" in atom.kind and depth:
            below = _shared(exit, atom, me, owner, depth - 1)
            found.update((f"{field}.{name}", same) for name, same in below.items())
        elif isinstance(atom, Path) and atom.root == me.root:
            found[field] = held
    return found


def _below(shared: Mapping[str, Value], step: str) -> Mapping[str, Value]:
    """What is shared by the fields of what lies one step further in."""
    return {name[len(step) + 1 :]: held for name, held in shared.items() if name.startswith(f"{step}.")}


def _constants(exit: Exit, container: Atom) -> Iterable[tuple[str, Value]]:
    """The constants that a dict has under the names that are its keys."""
    for (at, field), held in exit.heap.items():
        if at is container and field[1:-1].isidentifier() and len(held) == 1:
            (atom,) = held
            if isinstance(atom, Const):
                yield field[1:-1], held


def _shared_by_all(each: list[dict[str, Value]]) -> dict[str, Value]:
    """What several objects have in common with the object that holds them."""
    first, *others = each
    return {field: held for field, held in first.items() if all(one.get(field) == held for one in others)}


def _computed_with(fn: ir.Function) -> Iterable[str]:
    """The fields of its object that a method computes with, and does not assign."""
    me = fn.params[0].name
    read: dict[ir.Reg, str] = {}
    used: set[str] = set()
    assigned: set[str] = set()
    for block in fn.blocks:
        for i in block.instrs:
            if isinstance(i, ir.Attr) and i.obj == me:
                read[i.dst] = i.name
            elif isinstance(i, ir.Binary):
                used.update(read[side] for side in (i.left, i.right) if side in read)
            elif isinstance(i, ir.SetAttr) and i.obj == me:
                assigned.add(i.name)
    return used - assigned


def _is_number(atom: Atom) -> bool:
    """Whether an atom is a whole number, not below zero."""
    return isinstance(atom, Const) and type(atom.value) is int and atom.value >= 0


def _rooted(atom: Atom, me: Path) -> bool:
    return not isinstance(atom, New) and (not isinstance(atom, Path) or atom.root == me.root)


def rebased(atom: Atom, owner: Path) -> Value:
    """An alias over an object's own paths, seen through an instance at another path."""
    if isinstance(atom, Path):
        if atom.root == SELF or atom.root.startswith(MODULE):
            if atom.root.startswith(MODULE):
                return value(atom)
            return value(path(owner.root, *owner.fields, *atom.fields))
        return UNKNOWN
    if isinstance(atom, Array):
        return value(array(frozenset(x for each in atom.of for x in rebased(each, owner)), atom.type))
    if isinstance(atom, Context):
        return value(context(frozenset(x for each in atom.streams for x in rebased(each, owner))))
    return value(atom)
