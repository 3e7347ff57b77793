"""Which class of the file a parameter is of that no annotation names: told by its name and by what is asked of it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field

from streamsafe.static import hints, needles
from streamsafe.static.given import OTHER, Given, itself, written_type
from streamsafe.static.needles import last_name
from streamsafe.static.opaques import LIBRARY_METHODS
from streamsafe.static.source import AstFunction, SourceFile

COMMON_METHODS = frozenset(
    """step forward run get put put_nowait wait to start stop close reset update append pop add clear copy items keys
    values join load save read write send recv call apply backward train eval cuda cpu numpy item query record
    synchronize result submit flush size shape view reshape replay capture setup build init process execute next
    state_dict load_state_dict parameters zero_grad scale""".split()
)
"""Methods that many classes have: that one of the file has them, too, says little."""

_CALLED = ("__call__", "forward")
_UNKNOWN = "?"
"""Asked of a name: something that no object of a class of the file stands for."""
SECOND_NAMES = 3
"""So many names on the way are followed from a variable to what it stands for."""
_MARKS = frozenset(("object", "ABC", "Protocol", "Generic", "NamedTuple", "Enum", "Exception"))
_UNNAMED_AFTER = frozenset(
    ("Module", "Function", "Tensor", "Parameter", "TypedDict", "IntEnum", "str", "dict", "list")
)
"""Bases after which nothing is named that is an object of a class of the file."""
_SYNTAX = frozenset({"__call__", "__iter__", "__enter__", "__getitem__"})
_MODULE = frozenset(
    """parameters named_parameters buffers named_buffers modules named_modules children named_children state_dict
    load_state_dict train eval training cuda cpu to half float double bfloat16 requires_grad_ zero_grad apply
    register_forward_hook register_forward_pre_hook register_full_backward_hook""".split()
)
_BASES = {
    "Module": _MODULE,
    "Thread": frozenset({"start", "join", "is_alive", "daemon", "name"}),
    **dict.fromkeys(_MARKS, frozenset()),
}
"""What the classes have that are no classes of a file, by the last name of their base."""
_ROWS = frozenset(("list", "List", "Sequence"))
_COMMON_ATTRIBUTES = frozenset(
    """weight bias device dtype data grad config cfg args name dim stream event graph x y value params state lock
    device_id rank world_size batch_size size length hidden_size thread queue pool buffer cache input output""".split()
)
"""Attributes that many classes have."""


@dataclass
class _Members:
    """What may be asked of an object of a class.

    Attributes:
        methods: each with the class that defines it.
        attributes: set in the class or on ``self``.
        beyond: what it has of bases that are not in the file.
        is_open: there is a base of which nothing is known.
    """

    methods: dict[str, str] = field(default_factory=dict)
    arities: dict[str, range] = field(default_factory=dict)
    attributes: set[str] = field(default_factory=set)
    beyond: set[str] = field(default_factory=set)
    is_open: bool = False

    def method(self, asked: str) -> str | None:
        """The qualified name of the method behind what is asked."""
        names = _CALLED if asked == "__call__" else (asked,)
        if asked == "start" and asked in self.beyond:
            names = ("run",)  # of a thread
        for name in names:
            if name in self.methods:
                return f"{self.methods[name]}.{name}"
        return None

    def has(self, asked: str) -> bool:
        """Whether it can be asked of such an object."""
        return self.method(asked) is not None or asked in self.attributes or asked in self.beyond


@dataclass
class _Uses:
    """What a function asks of its names, and of the attributes of ``self``, which are written ``self.name``."""

    asked: dict[str, set[str]] = field(default_factory=dict)
    arities: dict[str, set[int]] = field(default_factory=dict)
    walked: dict[str, list[str]] = field(default_factory=dict)  # the names that a loop gives its elements
    assigned: dict[str, list[ast.expr | None]] = field(default_factory=dict)

    def elements(self, walked: str) -> list[str]:
        """The names of what loops over something meet, which mean nothing else."""
        names = self.walked.get(walked, [])
        return [n for n in dict.fromkeys(names) if len(self.assigned.get(n, ())) == names.count(n)]

    def ask(self, node: ast.AST, what: str) -> None:
        """Something is asked of what an expression names."""
        key = _key(node)
        if key is not None:
            self.asked.setdefault(key, set()).add(what)


class Roles:
    """Finds the roles of a file.

    Attributes:
        classes: by qualified name of a function and name of its parameter, the class.
        elements: the same of what is walked: the class of its elements.
        asks: by qualified name of a function, the methods that it asks parameters and their like for.
        given: what the calls of the file give its functions.
        streams: what they give those that hold stream code.
        concrete: of classes that are there to be implemented, the one class of the file that does.
    """

    def __init__(self, file: SourceFile) -> None:
        self.classes: dict[tuple[str, str], str] = {}
        self.elements: dict[tuple[str, str], str] = {}
        self.asks: dict[str, set[str]] = {}
        self.given: Given | None = None
        taking = [q for q, ds in file.definitions.items() if any(d.needles for d in ds)]
        self.streams = Given(file, taking) if taking else None
        self._file = file
        self._members: dict[str, _Members] = {}
        self._heirs: dict[str, list[str]] = {}  # by the last name of a base that is not in the file
        for name, statement in file.classes.items():
            for base in {last_name(b) for b in statement.bases} - file.classes.keys() - _MARKS:
                self._heirs.setdefault(base, []).append(name)
        self.concrete = dict(self._concrete())
        silent = {q.rpartition(".")[0] for q, ds in file.definitions.items() if self._unnamed(q, ds[-1].node)}
        concerned = {q.rpartition(".")[0] for q, ds in file.definitions.items() if any(d.needles for d in ds)}
        if not silent or not concerned or not file.classes:
            return
        self._members = {name: self._members_of(node, set()) for name, node in file.classes.items()}
        self._mentions = {name: self._mentioned_by(name) for name in file.classes}
        wanted = [q for q, ds in file.definitions.items() if self._unnamed(q, ds[-1].node)]
        self._given = self.given = Given(file, wanted)
        uses = {
            qualname: (definitions[-1].node, _uses(definitions[-1].node))
            for qualname, definitions in file.definitions.items()
            if (owner := qualname.rpartition(".")[0]) in silent
            if owner in file.classes or (not owner and self._unnamed(qualname, definitions[-1].node))
        }
        for qualname, (node, found) in uses.items():
            self._find(qualname, node, found, uses)
        unnamed = {(q, p.arg) for q in wanted for p in self._unnamed(q, file.definitions[q][-1].node)}
        for _ in range(3):
            for outer, inner in self._given.passed_on():
                if inner in self.classes and outer in unnamed:
                    self.classes.setdefault(outer, self.classes[inner])

    def _unnamed(self, qualname: str, node: AstFunction) -> list[ast.arg]:
        """The parameters that no annotation names, or only by the base of classes of the file."""
        parameters = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
        named = parameters[1 if "." in qualname else 0 :]
        return [
            p
            for p in named
            if p.annotation is None
            or (base := written_type(p.annotation)) in self._heirs
            or base == "Module"
            or _lists_modules(p.annotation)
        ]

    def _base(self, parameter: ast.arg) -> str:
        """The base, not in the file, that a parameter's annotation or its name says it has."""
        if parameter.annotation is not None:
            return written_type(parameter.annotation)
        named = [b for b in self._heirs if b not in _UNNAMED_AFTER and _is_named_after(parameter.arg, b)]
        return named[0] if len(named) == 1 and len(self._heirs[named[0]]) == 1 else ""

    def _concrete(self) -> Iterator[tuple[str, str]]:
        """Abstract classes and protocols that one class of the file implements."""
        classes = self._file.classes
        abstract = {
            name: node
            for name, node in classes.items()
            if any(last_name(base) in ("ABC", "Protocol") for base in node.bases)
            or any(last_name(keyword.value) == "ABCMeta" for keyword in node.keywords)
        }
        for name, node in abstract.items():
            asked = self._members_of(node, set()).methods
            found = [
                other
                for other in classes.keys() - abstract.keys()
                if name in {last_name(base) for base in classes[other].bases}
                or (
                    asked
                    and any(last_name(base) == "Protocol" for base in node.bases)
                    and asked.keys() <= self._members_of(classes[other], set()).methods.keys()
                )
            ]
            if len(found) == 1:
                yield name, found[0]
        for base, heirs in self._heirs.items():  # of a library: its own classes are not told apart
            if len(heirs) == 1 and base not in _UNNAMED_AFTER and base not in classes:
                yield base, heirs[0]

    def _mentioned_by(self, owner: str) -> set[str]:
        """The classes of the file that the methods of a class mention."""
        found: set[str] = set()
        for qualname, definitions in self._file.definitions.items():
            if qualname.partition(".")[0] == owner:
                found |= self._file.classes.keys() & definitions[-1].calls
        return found - {owner}

    def _members_of(self, node: ast.ClassDef, above: set[str]) -> _Members:
        found = _Members()
        for base in node.bases:
            name = last_name(base)
            if name in self._file.classes and name not in above:
                inherited = self._members_of(self._file.classes[name], above | {node.name})
                found.methods |= inherited.methods
                found.arities |= inherited.arities
                found.attributes |= inherited.attributes
                found.beyond |= inherited.beyond
                found.is_open |= inherited.is_open
            elif name in _BASES:
                found.beyond |= _BASES[name]
            else:
                found.is_open = True
        for inner in node.body:
            if isinstance(inner, (ast.FunctionDef, ast.AsyncFunctionDef)):
                found.methods[inner.name] = node.name
                found.arities[inner.name] = _arity(inner)
            elif isinstance(inner, ast.AnnAssign):
                found.attributes |= {inner.target.id} if isinstance(inner.target, ast.Name) else set()
            elif isinstance(inner, ast.Assign):
                found.attributes |= {t.id for t in inner.targets if isinstance(t, ast.Name)}
        for part in needles.walk(node):
            if isinstance(part, ast.Attribute) and isinstance(part.ctx, ast.Store) and _key(part):
                found.attributes.add(part.attr)
        return found

    def _find(
        self, qualname: str, node: AstFunction, found: _Uses, uses: dict[str, tuple[AstFunction, _Uses]]
    ) -> None:
        owner, _, _ = qualname.rpartition(".")
        for parameter in self._unnamed(qualname, node):
            word = parameter.arg
            given = self._given.classes(qualname, word)
            if not all(itself(v) == word for v in found.assigned.get(word, ())):
                continue
            asked = [(qualname, word, found)]
            for attribute in self._kept(owner, word, found, uses):
                asked += [(q, attribute, u) for q, (_, u) in uses.items() if q.rpartition(".")[0] == owner]
            base = self._base(parameter)
            found_in = self.classes
            row = parameter.annotation is not None and _lists_modules(parameter.annotation)
            name = self._role(word, asked, owner, base, given) if not row else None
            if name is None and not given:  # it may be a row of such objects
                found_in = self.elements
                asked = [(q, element, u) for q, w, u in asked for element in u.elements(w)]
                name = self._role(word.removesuffix("s"), asked, owner, "Module" if row else "", given)
            if name is None:
                continue
            found_in[(qualname, word)] = name
            for asker, w, u in asked:
                if w not in u.asked:
                    continue
                # as who writes the name of a class: what was made with the object is there
                methods = {self._members[name].method(a) for a in (*u.asked.get(w, ()), "__init__")}
                self.asks.setdefault(asker, set()).update(m for m in methods if m is not None)

    @staticmethod
    def _kept(
        owner: str, word: str, found: _Uses, uses: dict[str, tuple[AstFunction, _Uses]]
    ) -> Iterator[str]:
        """The attributes of ``self`` that hold a parameter, and nothing else."""
        for attribute, values in found.assigned.items():
            if not attribute.startswith("self.") or not all(itself(v) == word for v in values):
                continue
            others = [
                u for q, (_, u) in uses.items() if q.rpartition(".")[0] == owner and attribute in u.assigned
            ]
            if others == [found]:
                yield attribute

    def _modules(self, word: str, owner: str) -> list[str]:
        """The classes of the file that are modules; for a whole model those that neither are parts nor wrap one."""
        found = self._heirs.get("Module", [])
        if word in hints.WHOLE_MODELS:
            parts = set().union(*(self._mentions[c] for c in self._members if c != owner))
            found = [c for c in found if c not in parts and c != owner and not self._wraps(c)]
        return found

    def _wraps(self, name: str) -> bool:
        """Whether a module is given another one."""
        made = self._file.definitions.get(f"{name}.__init__", ())
        parameters = [p for d in made for p in (*d.node.args.args, *d.node.args.kwonlyargs)]
        return any(
            p.arg in hints.MODULES or (p.annotation is not None and written_type(p.annotation) == "Module")
            for p in parameters
        )

    def _role(
        self, word: str, asked: list[tuple[str, str, _Uses]], owner: str, base: str, given: set[str]
    ) -> str | None:
        """The class of what each of these functions has under a name."""
        everything = set().union(*(u.asked.get(w, set()) for _, w, u in asked))
        arities = set().union(*(u.arities.get(w, set()) for _, w, u in asked))
        if given:
            name = min(given) if len(given) == 1 else OTHER
            return name if name in self._members and self._can(name, everything, arities) else None
        return self._class_for(word, everything, arities, owner, base)

    def _can(self, name: str, asked: set[str], arities: set[int]) -> bool:
        """Whether objects of a class have what is asked of them."""
        members = self._members[name]
        if not all(members.has(a) or members.is_open for a in asked):
            return False
        called = next((members.arities[c] for c in _CALLED if c in members.methods), range(0))
        return "__call__" not in asked or members.is_open or all(n in called for n in arities)

    def _class_for(self, word: str, asked: set[str], arities: set[int], owner: str, base: str) -> str | None:
        if not asked or _UNKNOWN in asked:
            return None
        fitting = []
        for name, members in self._members.items():
            own = {a for a in asked if members.method(a) is not None}
            own |= {a for a in asked if a in members.attributes and a not in _COMMON_ATTRIBUTES}
            if name == owner or not self._can(name, asked, arities) or (members.is_open and not own):
                continue
            if owner in self._mentions[name] or (base and base != "Module" and name not in self._heirs[base]):
                continue  # what makes or holds the one who asks
            fitting.append((name, own))
        names = dict(fitting)
        if base not in ("", "Module"):
            return fitting[0][0] if len(fitting) == len(self._heirs[base]) == 1 else None
        if word in hints.MODULES or base:
            modules = self._modules(word, owner)
            if len(modules) == 1 and names.get(modules[0]):
                return modules[0]
        if len(fitting) > 1:
            fitting = [(name, own) for name, own in fitting if _is_named_after(word, name)]
        if len(fitting) != 1:
            return None
        name, own = fitting[0]
        methods = {a for a in own - _SYNTAX if self._members[name].method(a) is not None}
        rare = {a for a in methods if a not in COMMON_METHODS and a not in LIBRARY_METHODS}
        shown = len(own) > 1 and not own <= methods  # an attribute, and what else the class has
        called = "__call__" in own and min(arities) > 1
        called = called and (word not in hints.MODULES or name in self._heirs.get("Module", ()))
        return name if rare or shown or called or _is_named_after(word, name) else None


def _lists_modules(annotation: ast.expr) -> bool:
    """Whether an annotation says that something is a list of modules."""
    if isinstance(annotation, ast.Subscript):
        return last_name(annotation) in _ROWS and last_name(annotation.slice) == "Module"
    return last_name(annotation) == "ModuleList"


def _is_named_after(word: str, name: str) -> bool:
    """Whether a parameter's name says of what class it is: ``fetcher`` of FeatureFetcher, ``stop`` of Stopper."""
    plain = word.lower().replace("_", "")
    words = [w.lower() for w in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z0-9]+", name)]
    if not words or len(plain) < 2:
        return False
    whole = "".join(words)
    return (
        any(plain == "".join(words[n:]) for n in range(len(words)))
        or word.lower().rpartition("_")[2] == words[-1]
        or whole.startswith(plain)
    )


def _uses(function: AstFunction) -> _Uses:
    found = _Uses()
    for node in needles.walk(function):
        kind = type(node)
        if kind is ast.Attribute:
            found.ask(node.value, node.attr)  # type: ignore[attr-defined]
            if not isinstance(node.ctx, ast.Load) and (key := _key(node)):  # type: ignore[attr-defined]
                found.assigned.setdefault(key, []).append(None)
        elif kind is ast.Call:
            found.ask(node.func, "__call__")  # type: ignore[attr-defined]
            if key := _key(node.func):  # type: ignore[attr-defined]
                found.arities.setdefault(key, set()).add(_given(node))  # type: ignore[arg-type]
            if isinstance(node.func, ast.Name):  # type: ignore[attr-defined]
                for argument in node.args[:2]:  # type: ignore[attr-defined]
                    if node.func.id in ("enumerate", "iter", "list", "tuple"):  # type: ignore[attr-defined]
                        found.ask(argument, "__iter__")
                    elif node.func.id == "isinstance":  # type: ignore[attr-defined]
                        found.ask(argument, _UNKNOWN)
        elif kind is ast.Subscript:
            found.ask(node.value, "__getitem__")  # type: ignore[attr-defined]
        elif kind is ast.For or kind is ast.comprehension:
            found.ask(node.iter, "__iter__")  # type: ignore[attr-defined]
            for walked, element in _walked(node.iter, node.target):  # type: ignore[attr-defined]
                found.walked.setdefault(walked, []).append(element)
        elif kind is ast.withitem:
            found.ask(node.context_expr, "__enter__")  # type: ignore[attr-defined]
        elif kind is ast.BinOp:
            found.ask(node.left, _UNKNOWN)  # type: ignore[attr-defined]
            found.ask(node.right, _UNKNOWN)  # type: ignore[attr-defined]
        elif kind is ast.Name and isinstance(node.ctx, ast.Store):  # type: ignore[attr-defined]
            found.assigned.setdefault(node.id, []).append(None)  # type: ignore[attr-defined]
        elif kind is ast.Assign:
            for target, value in needles.pairs(node):  # type: ignore[arg-type]
                if key := _key(target):
                    found.assigned.setdefault(key, []).append(value)
    for key, values in found.assigned.items():  # each is met as a target, too
        known: list[ast.expr | None] = [v for v in values if v is not None]
        found.assigned[key] = known if 2 * len(known) == len(values) else values
    given = {a.arg for a in (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)}
    for held in found.assigned.values():
        held[:] = [_copied(value, found.assigned, given) for value in held]
    return found


def _copied(
    value: ast.expr | None, assigned: Mapping[str, Sequence[ast.expr | None]], given: Set[str]
) -> ast.expr | None:
    """What a second name stands for: the one value of a variable that is no parameter."""
    for _ in range(SECOND_NAMES):
        if not isinstance(value, ast.Name) or value.id in given:
            break
        values = assigned.get(value.id, ())
        if len(values) != 1 or values[0] is None:
            break
        value = values[0]
    return value


def _walked(iterable: ast.expr, target: ast.expr) -> Iterator[tuple[str, str]]:
    """What a loop walks, and the name it gives the elements: also beside their numbers, or beside others."""
    if isinstance(iterable, ast.Call) and isinstance(iterable.func, ast.Name) and iterable.args:
        several = target.elts if isinstance(target, ast.Tuple) else []
        if iterable.func.id == "enumerate" and len(several) == 2:
            yield from _walked(iterable.args[0], several[1])
        elif iterable.func.id == "zip" and len(several) == len(iterable.args):
            for inner, name in zip(iterable.args, several, strict=True):
                yield from _walked(inner, name)
        elif iterable.func.id in ("reversed", "list", "tuple"):
            yield from _walked(iterable.args[0], target)
    elif (key := _key(iterable)) and isinstance(target, ast.Name):
        yield key, target.id


def _key(node: ast.AST) -> str | None:
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self":
        return f"self.{node.attr}"
    return None


def _arity(function: AstFunction) -> range:
    """How many arguments a method takes."""
    arguments = function.args
    named = len(arguments.posonlyargs) + len(arguments.args) - 1
    most = 99 if arguments.vararg or arguments.kwarg else named + len(arguments.kwonlyargs)
    return range(max(0, named - len(arguments.defaults)), most + 1)


def _given(call: ast.Call) -> int:
    """How many arguments a call gives; 1 where that is not known."""
    if any(isinstance(a, ast.Starred) for a in call.args) or any(k.arg is None for k in call.keywords):
        return 1
    return len(call.args) + len(call.keywords)
