"""The summaries of all functions, computed when they are asked for: callees first, each once.

A function that is asked for while its own summary is being computed (recursion) is taken to do nothing there.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from streamsafe.order.hazard import Span
from streamsafe.static.domain import guards, limits, places, state, values
from streamsafe.static.domain.atoms import (
    MAYBE,
    UNKNOWN,
    Atom,
    Bound,
    Class,
    Function,
    Library,
    New,
    Partial,
    Path,
    Place,
    Tuple,
    Value,
    bound,
    function,
    ordered,
    partial,
    path,
    rank,
)
from streamsafe.static.domain.timing import CLOCK
from streamsafe.static.summary import analyse, exits
from streamsafe.static.summary.facts import UNDECORATED, Facts
from streamsafe.static.summary.model import NOTHING, Exit, Summary
from streamsafe.static.syntax import ir
from streamsafe.static.syntax.index import Index
from streamsafe.static.syntax.modules import Symbol
from streamsafe.static.syntax.relevance import Relevance

if TYPE_CHECKING:
    from streamsafe.static.domain.state import State
    from streamsafe.static.explanation import Explanation
    from streamsafe.static.models.load import Models
    from streamsafe.static.models.rows import Row
    from streamsafe.static.summary.analyse import Analysis
    from streamsafe.static.transfer.data import WaitingLoops


class Given(NamedTuple):
    """What is known of a function's parameters beside their annotations, and of what it takes from the scope around it.

    Attributes:
        held: parameter -> the functions that it holds.
        types: parameter -> the class of the tree, or the library's type, of the object that it holds.
        places: variable of the scope around -> where its memory lies.
        part: of a generator that is a context manager, what runs when it is entered, or left; ``hook``: autograd
            calls it.
    """

    held: Mapping[str, Value] = {}
    types: Mapping[str, str] = {}
    part: Literal["", "enter", "exit", "hook"] = ""
    places: Mapping[str, str] = {}

    def get(self, name: str) -> Value:
        """The functions that a parameter holds; unknown where that is not known."""
        return self.held.get(name, UNKNOWN)

    def __bool__(self) -> bool:
        return bool(self.held or self.types or self.part)

    def key(self) -> tuple[object, ...]:
        """As a value."""
        held = tuple(sorted((name, tuple(sorted(map(rank, v)))) for name, v in self.held.items()))
        return (held, tuple(sorted(self.types.items())), self.part, tuple(sorted(self.places.items())))


GIVEN: Final = "given "
"""Begins the roots of paths that stand, in a specialised summary, for what belongs to the caller."""

NON_BLOCKING: Final = "/non-blocking"
"""Added to the name of a type of blocking streams, for those of them that are not."""

ANYTHING: Final = Given()


def _bare(atom: Function) -> Function:
    """A function without what it takes from the scopes around it."""
    return function(atom.fid, (each for each in atom.closure if each[0] == UNDECORATED))


class Engine:
    """All summaries.

    Attributes:
        index: the tree.
        models: what library calls do.
        callers: function -> who calls it in what was analysed: what callers do beats any guess.
        names: what the program calls what is made at a place.
        blocks: (use of a pool, its stream) -> the block that was used.
        waiting_words: names of calls that wait for what they are given, or for what they are methods of.
        waiting_loops: function -> the loops in which each element is waited for.
        mattering: the functions of which callers need more than a footprint.
        open: those after which code that is not theirs may race, or whose own hazards an order outside may cover:
            their callers are worth analysing; and the attributes through which methods of their class get at what may
            race. What only orders, or waits, races with nothing.
        hints: what names alone decided, and for how many paths.
        unseen: what a call that is not seen does with memory: a ``possible`` read, ``nothing``, or ``reads``.
        timed: whether a function that is analysed reads a clock of the host.
        moves: whether one that uses streams names parameters of modules: calls of modules then read them.
        visits: blocks interpreted so far.
        explanation: collects what is known at one line, for ``--explain-line``; None without it.
    """

    tensor_type: Final = "torch.Tensor"

    def __init__(self, index: Index, models: Models) -> None:
        self.index = index
        self.models = models
        self.facts = Facts(self, index)
        self.callers: dict[str, set[str]] = {}
        self.names: dict[Place, str] = {}
        self.blocks: dict[tuple[Span, Atom], New] = {}
        self.entries: dict[tuple[str, Literal["", "hook"]], None] = {}
        self.hints: dict[str, int] = {}
        self.unseen = "possible"
        self.timed = False
        self.moves = False
        self.visits = 0
        self.explanation: Explanation | None = None
        self.crashes: list[tuple[str, str]] = []
        self.summaries: dict[tuple[str, tuple[object, ...]], Summary] = {}
        self._active: set[tuple[str, tuple[object, ...]]] = set()
        self._provisional: set[tuple[str, tuple[object, ...]]] = set()
        self._special: dict[str, int] = {}
        self._roles: dict[str, str] = {"": "", MAYBE: ""}
        self._functions: dict[str, ir.Function | None] = {}
        self._wrappers: dict[str, Function | None] = {}
        self.relevance: Relevance | None = None
        self.mattering: set[str] = set()
        self.open: dict[str, set[str]] = {}
        self.waiting_words = models.waiting_words()
        self.waiting_loops: dict[str, WaitingLoops] = {}
        self.types = dict(models.types)
        for row in models.types.values():
            if row.blocking:
                places.BLOCKING.add(row.name)
                other = f"{row.name}{NON_BLOCKING}"
                self.types[other] = row._replace(name=other, base=row.name, blocking=False)
        state.SPLITTING.update(
            row.name for row in self.types.values() if row.role in ("stream", "event", "work")
        )
        state.SPLITTING.add(CLOCK)
        guards.CHANGING.update(row.name for row in self.types.values() if row.role in ("tensor", "container"))
        state.CARRYING.update(
            row.name for row in self.types.values() if row.role in ("stream", "event", "work", "graph")
        )

    # -- summaries ---------------------------------------------------------------------------------------------------

    def summary(self, fid: str, given: Given = ANYTHING) -> Summary:
        """The summary of a function; of one that is being computed, or too deep, that it does nothing."""
        key = (fid, given.key() if given else ())
        found = self.summaries.get(key)
        if found is not None:
            self.facts.incomplete += key in self._provisional
            return found
        if given and not given.part and self._special.get(fid, 0) >= limits.SPECIALISATIONS:
            return self.summary(fid)
        if key in self._active or len(self._active) > limits.DEPTH:
            return NOTHING
        fn = self.function(fid)
        if fn is None:
            return NOTHING
        if fn.is_method and fn.cls is not None:
            self.facts.fields(fn.cls)
        if given:
            self._special[fid] = self._special.get(fid, 0) + 1
        self._active.add(key)
        before = self.facts.incomplete
        try:
            found = None if given.part else analyse.Analysis(self, fn, given, light=True).run()
            if found is None:
                analysis = analyse.Analysis(self, fn, given, light=False)
                found = analysis.run()
                assert found is not None
                if analysis.matters or found.pairs:
                    self.mattering.add(fid)
                if analysis.switches:
                    self._open(fid, ())
        finally:
            self._active.discard(key)
        if any(map(self._concerns_callers, found.exits)):
            self.mattering.add(fid)
        if found.pairs:
            self._open(fid, ())
        for exit in found.exits:
            if exits.is_open(exit) or exit.clocks or exit.late or self._hands_on(exit):
                self._open(fid, exits.open_fields(exit))
        self.summaries[key] = found
        if self.facts.incomplete != before:
            self._provisional.add(key)
        return found

    def _concerns_callers(self, exit: Exit) -> bool:
        """Whether a function without an effect on order leaves what later code must order: times, pinned memory."""
        if exit.clocks or exit.late or exit.elapsed or places.PINNED in exit.places.values():
            return True
        return self._hands_on(exit)

    def _hands_on(self, exit: Exit) -> bool:
        """Whether a function returns one that matters."""
        handed_on = values.reachable((exit.result,))
        return any(isinstance(atom, Function) and atom.fid in self.mattering for atom in handed_on)

    def _open(self, fid: str, fields: Iterable[str]) -> None:
        self.open.setdefault(fid, set()).update(fields)

    def entry(self, fid: str, part: Literal["", "hook"]) -> None:
        """A function that is called by somebody, at some time: a hook has its own current stream."""
        self.entries.setdefault((fid, part))

    def guarded(self, fid: str, given: Given = ANYTHING) -> None:
        """Compute a summary; what goes wrong inside is an internal error of the function's file, and nothing else's."""
        with self.protect(fid):
            self.summary(fid, given)

    @contextmanager
    def protect(self, of: str) -> Iterator[None]:
        """What goes wrong inside is an internal error about a function, a class or a module (its id), and no end."""
        try:
            yield
        except Exception as error:
            self._active.clear()
            self.facts.recover()
            frame = error.__traceback__
            while frame is not None and frame.tb_next is not None:
                frame = frame.tb_next
            where = (
                f" ({frame.tb_frame.f_code.co_filename.rpartition('/')[2]}:{frame.tb_lineno})"
                if frame
                else ""
            )
            module = self.index.modules[of.partition(":")[0]]
            self.crashes.append((module.path, f"{type(error).__name__}: {error}{where} in {of}"))

    def imports(self, filename: str) -> Mapping[str, str]:
        """A file's names for modules and what is in them."""
        for module in self.index.modules.values():
            if module.path == filename:
                return {n: b.target for n, b in module.names.items() if b.kind == "import"}
        return {}

    def text(self, filename: str) -> str:
        """The text of a file; empty where it cannot be read."""
        try:
            with open(filename, encoding="utf-8", errors="replace") as file:
                return file.read()
        except OSError:
            return ""

    def callers_of(self, fid: str) -> set[str]:
        """The functions that call one, and those that call these."""
        near = self.callers.get(fid, set())
        return near.union(*(self.callers.get(each, set()) for each in near))

    def called_inside(self, fid: str, cid: str) -> bool:
        """Whether methods of a class call one of its methods, and nobody else does: it is part of what they do."""
        callers = self.callers.get(fid, ())
        return bool(callers) and all(self._is_of(caller, cid) for caller in callers)

    def _is_of(self, fid: str, cid: str) -> bool:
        """Whether a function is a method of a class, of a base or of a subclass, or lies inside one."""
        definition = self.index.definitions.get(fid)
        while definition is not None and definition.cls is None and definition.around is not None:
            definition = self.index.definitions.get(definition.around.owner)
        if definition is None or definition.cls is None:
            return False
        return definition.cls in self.index.mro(cid) or cid in self.index.mro(definition.cls)

    def settle(self) -> None:
        """All classes asked for are known: what was computed before they were is computed again when asked for."""
        for key in self._provisional:
            self.summaries.pop(key, None)
        self._provisional.clear()

    # -- the tree ----------------------------------------------------------------------------------------------------

    def has(self, fid: str) -> bool:
        """Whether the tree has a function."""
        return fid in self.index.definitions or fid.endswith(":<module>")

    def function(self, fid: str) -> ir.Function | None:
        """A function, lowered; None where there is none."""
        if fid not in self._functions:
            try:
                self._functions[fid] = self.index.function(fid)
            except KeyError:
                self._functions[fid] = None
        return self._functions[fid]

    def filename(self, module: str) -> str:
        """The file of a module."""
        return self.index.modules[module].path

    def atom_of(self, symbol: Symbol) -> Atom | None:
        """What a symbol of the tree is as an atom; None for a variable or what is not known."""
        from streamsafe.static.domain import atoms

        if symbol.kind == "function":
            return atoms.function(symbol.name)
        if symbol.kind == "class":
            return atoms.class_of(symbol.name)
        if symbol.kind == "library":
            return atoms.library(self.canonical(symbol.name))
        if symbol.kind == "module":
            return atoms.path("module " + symbol.name)
        return None

    # -- the models --------------------------------------------------------------------------------------------------

    def canonical(self, name: str) -> str:
        """The name under which the models know a library's function or type."""
        return self.models.canonical(name)

    def role(self, type: str) -> str:
        """The role of a type: ``tensor``, ``stream``, ...; "object" for a class of the tree; "" if not known."""
        found = self._roles.get(type)
        if found is None:
            if ":" in type or type.startswith("module "):
                found = "object"
                if ":" in type:
                    for base in self.index.library_bases(type) if type in self.index.classes else ():
                        row = self.types.get(self.canonical(base))
                        if row is not None and row.role in ("tensor", "stream", "event"):
                            found = row.role
            else:
                row = self.types.get(type)
                found = row.role if row is not None else "module" if self.models.is_module(type) else "other"
            self._roles[type] = found
        return found

    def row(self, name: str) -> Row | None:
        """What a library's function does; None where there is no row."""
        return self.models.row(name)

    def non_blocking(self, type: str) -> str:
        """The type of a stream of this type that takes no part in the legacy default stream's barrier."""
        other = f"{type}{NON_BLOCKING}"
        return other if other in self.types else type

    def stream_type(self, name: str) -> str:
        """The type of a stream that is known as the current or the default one only, by a method of it."""
        for type in ("torch.cuda.Stream", "cupy.cuda.Stream"):
            if self.models.method(type, name) is not None:
                return type
        return "torch.cuda.Stream"

    def method(self, type: str, name: str) -> Row | None:
        """What a method of a library's type does."""
        return self.models.method(type.removesuffix(NON_BLOCKING), name)

    def constructed(self, name: str) -> str:
        """The type of what calling a library's name makes, or ""."""
        name = self.canonical(name)
        if name in self.types:
            return name
        if self.models.is_module(name):
            return "torch.nn.Module"
        row = self.models.row(name)
        if row is not None:
            if row.result.kind == "object":
                return row.result.type
            if row.result.kind == "fresh":
                return "cupy.ndarray" if row.library == "cupy" else self.tensor_type
        return ""

    def is_instance(self, type: str, name: str, sure: bool) -> bool | None:
        """Whether what has a type is an instance of a class, by name; ``sure``: it has that type and no subtype."""
        if not type or not name:
            return None
        if type == name:
            return True
        if ":" in type and type in self.index.classes:
            if name in self.index.mro(type) or name in map(self.canonical, self.index.library_bases(type)):
                return True
            return False if sure and (":" in name or name in self.types) else None
        if ":" in name:
            return False if type in self.types else None
        if type in self.types and name in self.types:
            return self.types[type].base == name or (None if self.role(name) == self.role(type) else False)
        return None

    def class_names(self, cls: Atom) -> tuple[str, ...]:
        """The classes that an ``isinstance`` asks for, by name; empty where one of them is not known."""
        if isinstance(cls, Class):
            return (cls.cid,)
        if isinstance(cls, Library):
            return (self.canonical(cls.name),)
        if isinstance(cls, Tuple):
            found: list[str] = []
            for item in cls.items:
                if len(item) != 1:
                    return ()
                found += self.class_names(next(iter(item)))
            return tuple(found)
        return ()

    def wrapper(self, fn: ir.Function) -> Function | None:
        """The function that a decorator of the tree puts in the place of another one; None where there is none."""
        if fn.fid not in self._wrappers:
            self._wrappers[fn.fid] = None  # as long as it is looked for
            self._wrappers[fn.fid] = self._wrapper(fn)
        return self._wrappers[fn.fid]

    def _wrapper(self, fn: ir.Function) -> Function | None:
        node = self.index.definitions[fn.fid].node
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            return None
        for written, name in zip(node.decorator_list, fn.decorators, strict=False):
            symbol = self.index.resolve(fn.module, name)
            decorator = self.function(symbol.name) if symbol.kind == "function" else None
            if decorator is None or isinstance(written, ast.Call) or not decorator.params:
                continue
            plain = function(fn.fid, ((UNDECORATED, UNKNOWN),))
            given = Given({decorator.params[0].name: frozenset((plain,))})
            found = {atom for exit in self.summary(decorator.fid, given).exits for atom in exit.result}
            if len(found) == 1:
                (atom,) = found
                inner = self.function(atom.fid) if isinstance(atom, Function) else None
                if inner is not None and inner.outer == decorator.fid:
                    return atom  # type: ignore[return-value]
        return None

    def specialise(
        self,
        a: Analysis,
        s: State,
        fn: ir.Function,
        bind: Mapping[str, Value],
        closure: Mapping[str, Value],
    ) -> tuple[Given, dict[str, Value]]:
        """What a call's arguments say of a callee's parameters beside their annotations.

        Returns:
            The functions and the types that parameters hold, in terms of the callee; and the values of the paths that
            stand there for what belongs to the caller (the objects of methods, the arguments of partials).
        """
        held: dict[str, Value] = {}
        types: dict[str, str] = {}
        roots: dict[str, Value] = {}
        for parameter in fn.params:
            value = bind.get(parameter.name)
            if not value or len(value) > 2:
                continue
            value = frozenset(self._as_method(a, atom) for atom in value)
            if all(isinstance(atom, Function | Partial | Class | Bound) for atom in value):
                images = [
                    self._abstract(a, atom, f"{GIVEN}{parameter.name} {number}", types, roots)
                    for number, atom in enumerate(ordered(value))
                ]
                if all(images):
                    held[parameter.name] = frozenset(image for image in images if image is not None)
            elif len(value) == 1 and not self.facts.annotated(fn, parameter.name).type:
                (atom,) = value
                if isinstance(atom, New | Path):
                    type = a.type_of(atom)
                    own = fn.is_method and type == fn.cls and parameter is fn.params[0]
                    if type and not own and self.role(type) not in ("tensor", "other", ""):
                        types[parameter.name] = type
        places: dict[str, str] = {}
        for root, value in closure.items():
            if len(value) != 1:
                continue
            (atom,) = value
            if isinstance(atom, Function):
                held[root] = frozenset((_bare(atom),))
            elif isinstance(atom, New) and self.role(atom.kind) not in ("other", "container", ""):
                types[root] = atom.kind
                if s.places.get(atom):
                    places[root] = s.places[atom]
        return (Given(held, types, places=places) if held or types else ANYTHING), roots

    def _as_method(self, a: Analysis, atom: Atom) -> Atom:
        """What lies at a path, as a method where that is what the name says: ``loss.backward``."""
        if not isinstance(atom, Path) or not atom.fields or a.fact(atom).type:
            return atom
        row = self.models.by_method(atom.fields[-1])
        if row is None or row.property:
            return atom
        return bound(frozenset((path(atom.root, *atom.fields[:-1]),)), atom.fields[-1])

    def _abstract(
        self, a: Analysis, atom: Atom, root: str, types: dict[str, str], roots: dict[str, Value]
    ) -> Atom | None:
        """A function as a callee sees it: what belongs to the caller is behind paths."""
        if isinstance(atom, Class):
            return atom
        if isinstance(atom, Function):
            return _bare(atom)
        if isinstance(atom, Bound):
            if len(atom.owner) != 1:
                return None
            (owner,) = atom.owner
            type = a.type_of(owner)
            if type:
                types[root] = type
            roots[root] = atom.owner
            return bound(frozenset((path(root),)), atom.name)
        if isinstance(atom, Partial) and len(atom.function) == 1:
            (inner,) = atom.function
            image = self._abstract(a, inner, f"{root} f", types, roots)
            if image is None:
                return None
            arguments = [(f"{root} {number}", held) for number, held in enumerate(atom.arguments)]
            keywords = [(f"{root} {name}", name, held) for name, held in atom.keywords]
            roots.update(arguments)
            roots.update((at, held) for at, _, held in keywords)
            return partial(
                frozenset((image,)),
                (frozenset((path(at),)) for at, _ in arguments),
                ((name, frozenset((path(at),))) for at, name, _ in keywords),
            )
        return None

    def all_pairs(self) -> Iterable[tuple[str, Summary]]:
        """Every summary, by function, in an order that is the same in every run."""
        for key in sorted(self.summaries, key=repr):
            yield key[0], self.summaries[key]


def start(span: Span) -> tuple[int, int]:
    """A call site as atoms keep it."""
    return (span.row, span.column)
