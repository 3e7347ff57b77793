"""Which functions of a file have to do with streams: those that hold stream terms, and those that call them."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Set
from functools import cached_property, reduce
from operator import or_

from streamsafe.static import stream_terms
from streamsafe.static.source import Definition, SourceFile
from streamsafe.static.stream_terms import COMMON_METHODS

LEVELS = ((stream_terms.STREAM | stream_terms.COPY, 3), (stream_terms.CLOCK, 3))
"""What makes a function relevant, and how many calls up its callers are too."""
WORD = re.compile(
    r"[Ss]tream|[Ee]vent|[Gg]raph|blocking|capture|elapsed_time|async_op|pin_memory|pinned|perf_counter|^time$|monotonic"
    r"|default_timer|^(?:record|wait|synchronize|replay|query|done)$"
)
"""Identifiers that make a loop worth more than one round."""


_CAPTURES = frozenset({"graph", "begin_capture", "capture_begin"})


class Relevance:
    """What of a file is to be interpreted.

    Args:
        file: the file.
        models: last names of the user's wrappers: a function that uses one is relevant.

    Attributes:
        functions: by qualified name, those that hold stream code and those that call them, three calls up.
        followed: those and what is worth following where something is under way.
        beside: methods that meet on ``self`` what stream code of their class leaves there, or that call such methods.
        quiet: nothing mentions a stream, or copies beside pinned memory: calls that leave no copy under way leave
            nothing to meet.
        one_stream: nothing mentions a stream: all there is to meet is copies that do not wait, and clocks.
        idle: nothing is begun that anybody could wait for: there are clocks at most, and nothing for them to time.
    """

    def __init__(self, file: SourceFile, models: Iterable[str]) -> None:
        self.file = file
        bound: dict[str, int] = defaultdict(int)
        for name, statements in file.bindings.items():
            for s in statements:
                bound[name] |= stream_terms.of_tree(s) if isinstance(s, (ast.Assign, ast.AnnAssign)) else 0
        wrappers = set(models)
        self._words = {name for name, found in bound.items() if found & stream_terms.HANDLE} | wrappers
        # ``from time import perf_counter as clock``
        imported = {
            n: stream_terms.of_imported(d) for n, d in file.imports.items() if not stream_terms.of_imported(n)
        }
        everything = reduce(or_, imported.values(), 0)
        for definitions in file.definitions.values():
            for definition in definitions:
                everything |= definition.stream_terms
        for statement in file.statements:
            everything |= stream_terms.of_tree(statement) if not isinstance(statement, DEFINITIONS) else 0
        named = reduce(or_, map(stream_terms.of_tree, _class_level(file)), everything)
        # pinned memory and what is called a replay alone start nothing
        self._beside = (
            stream_terms.PINNED | stream_terms.REPLAY
            if named & (stream_terms.STREAM | stream_terms.COPY)
            else 0
        )
        if named & stream_terms.STREAM:
            self._beside |= stream_terms.WORD
            everything |= stream_terms.STREAM if everything & stream_terms.WORD else 0
        self.one_stream = not everything & (stream_terms.STREAM | stream_terms.OTHER) and not self._words
        # functions and options of the module that copy without waiting: who names one does so too
        self._words |= {name for name, found in bound.items() if found & stream_terms.COPY}
        self._words |= {name for name, found in imported.items() if found}
        for name, fills in file.fills.items():
            for statement in fills:
                bound[name] |= stream_terms.of_tree(statement)
        self._words |= {
            name for name in file.fills if bound[name] & (stream_terms.COPY | stream_terms.HANDLE)
        }
        begun = reduce(or_, bound.values(), named) & stream_terms.BEGINNING
        self.idle = not (begun or wrappers or stream_terms.may_launch(file.nodes, file.imports.values()))
        # functions and classes, and what of the module they, or objects of them, are kept in
        self._tables: dict[str, set[str]] = defaultdict(set)
        for name, functions in file.registered.items():
            for function in functions:
                self._tables[function].add(name)
        for name, statements in [*file.fills.items(), *file.bindings.items()]:
            for statement in statements:
                if isinstance(statement, (ast.Assign, ast.AnnAssign, ast.Expr)):
                    for made in _names(statement) & (file.functions.keys() | file.classes.keys()):
                        self._tables[made].add(name)
        self._heirs = _heirs(file)
        self._bases = {name: {b for b, heirs in self._heirs.items() if name in heirs} for name in self._heirs}
        self.quiet = self.one_stream and not (
            everything & stream_terms.PINNED and everything & stream_terms.COPY
        )
        self.functions: set[str] = set()
        for kind, levels in LEVELS:
            self.functions |= self._with_callers(self._holding(kind), levels)
        self.functions |= self._taking_what_was_saved()
        self.functions |= self._running_backward()
        self.followed = self.functions | self._with_callers(self._holding(stream_terms.TOUCH), 1)
        self._shared = {
            name: self._shared_attributes(name, self.functions | self._captured(name))
            for name in (*file.classes, *file.nested)
        }
        self.beside = self._beside_stream_code()
        self._names = self._words | {
            part for q in self.followed for part in (q.rpartition(".")[2], q.partition(".")[0])
        }
        if everything & stream_terms.UNMARKED_COPY:
            self._names |= {q.rpartition(".")[2] for q in self.beside} - COMMON_METHODS

    def _taking_what_was_saved(self) -> set[str]:
        """What uses what the ``forward`` of a function of autograd keeps, where that has stream code."""
        return {
            f"{name}.backward"
            for name in self.file.classes
            if f"{name}.forward" in self.functions and f"{name}.backward" in self.file.definitions
        }

    def _running_backward(self) -> set[str]:
        """Where functions of autograd are stream code and keep gradients: what runs backward passes runs them."""
        if not any(f"{name}.backward" in self.functions for name in self.file.functions_that_keep_gradients):
            return set()
        return {q for q, ds in self.file.definitions.items() if any("backward" in d.calls for d in ds)}

    def holds(self, statement: ast.AST) -> bool:
        """Whether a statement of the module holds stream code."""
        found = stream_terms.of_tree(statement)
        return self._matches(
            found, _names(statement), stream_terms.STREAM | stream_terms.COPY | stream_terms.CLOCK
        )

    def speaks(self, names: Set[str]) -> bool:
        """Whether identifiers mention streams, or functions of the file that have to do with them."""
        return not self._names.isdisjoint(names) or any(map(WORD.search, names))

    @cached_property
    def speaking(self) -> set[str]:
        """Functions that hold stream code themselves, or what matters beside it."""
        beside = stream_terms.CLOCK | stream_terms.TOUCH | stream_terms.PINNED
        return self._holding(stream_terms.STREAM | stream_terms.COPY | beside)

    def reach(self, qualname: str) -> set[str]:
        """A function, what it may call of the file by its name, and so on."""
        own = qualname.partition(".")[0]
        found, added = {qualname}, {qualname}
        while added:
            names = set().union(*(d.calls for q in added for d in self.file.definitions.get(q, ())))
            added = {
                q
                for name in names & self._named.keys()
                for q in self._named[name]
                if name not in COMMON_METHODS or q.partition(".")[0] == own
            } - found
            found |= added
        return found

    @cached_property
    def _named(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for qualname in self.file.definitions:
            found.setdefault(qualname.rpartition(".")[2], []).append(qualname)
        return found

    def shared_by(self, name: str, among: Set[str] | None = None) -> set[str]:
        """Attributes that stream code of a class, or these functions of it, assign, wait for, fill or hand on.

        Where no stream is mentioned all there is to share is what is copied without waiting, and clocks: attributes
        that are assigned, and those that stand beside a copy or a clock.
        """
        return self._shared.get(name, set()) if among is None else self._shared_attributes(name, among)

    def _shared_attributes(self, class_name: str, among: Set[str]) -> set[str]:
        found: set[str] = set()
        methods = set()
        for qualname, definitions in self.file.definitions.items():
            owner, _, name = qualname.rpartition(".")
            if owner != class_name:
                continue
            methods.add(name)
            if qualname not in among:
                continue
            for definition in definitions:
                pieces: Iterable[ast.AST] = [definition.node]
                if self.one_stream:
                    pieces = _moving(definition.node)
                for piece in pieces:
                    found |= {inner.attr for inner in stream_terms.walk(piece) if _is_own(inner)}  # type: ignore[attr-defined]
        return found - methods

    def _captured(self, class_name: str) -> set[str]:
        """What a class's captures call of their own object: what it reads there, replays read."""
        own = {q: ds for q, ds in self.file.definitions.items() if q.rpartition(".")[0] == class_name}
        added = {q for q, ds in own.items() if any(d.calls & _CAPTURES for d in ds)} & self.functions
        found = set(added)
        while added:
            names = frozenset().union(*(d.called_on_self for q in added for d in own[q]))
            added = {q for q in own if q.rpartition(".")[2] in names} - found
            found |= added
        return found

    def _beside_stream_code(self) -> set[str]:
        everything = set().union(*self._shared.values())
        if not everything:
            return set()
        methods = {
            q: frozenset().union(*(d.calls for d in ds))
            for q, ds in self.file.definitions.items()
            if q.partition(".")[0] in self.file.classes
        }
        found = {q for q, names in methods.items() if not names.isdisjoint(everything) and "self" in names}
        added = found
        while added:
            names_added = {q.rpartition(".")[2] for q in added}
            added = {
                q for q, names in methods.items() if q not in found and not names.isdisjoint(names_added)
            }
            found |= added
        return found

    def _matches(self, found: int, names: Iterable[str], kind: int) -> bool:
        if kind & stream_terms.STREAM:
            kind |= self._beside
        return bool(found & kind) or not self._words.isdisjoint(names)

    def _holding(self, kind: int) -> set[str]:
        return {
            qualname
            for qualname, definitions in self.file.definitions.items()
            if any(self._matches(d.stream_terms, d.calls, kind) for d in definitions)
        } - self.file.translated

    def _with_callers(self, found: set[str], levels: int) -> set[str]:
        """These functions and those that may call them: by a name that only they have, or within a class."""
        everything = set(found)
        for _ in range(levels):
            names: set[str] = set()
            inside: dict[str, set[str]] = {}
            common: dict[str, set[str]] = {}
            plain: set[str] = set()
            for qualname in found:
                owner, _, last = qualname.rpartition(".")
                if owner in self.file.classes and last in COMMON_METHODS:
                    common.setdefault(last, set()).update(self._heirs[owner])
                if not owner:
                    names |= self._tables.get(last, set())
                if not owner and last in COMMON_METHODS:
                    plain.add(last)
                if last == "forward" or (last.startswith("__") and last.endswith("__")):
                    names |= self._heirs.get(owner, {owner.rpartition(".")[2]})
                if owner in self.file.classes:
                    for kin in self._heirs[owner] | self._bases[owner]:
                        inside.setdefault(kin, set()).add(last)
                if last not in COMMON_METHODS and not last.startswith("__"):
                    names.add(last)
            found = {
                qualname
                for qualname, definitions in self.file.definitions.items()
                if qualname not in everything
                and any(
                    d.calls & (names | inside.get(qualname.partition(".")[0], set()))
                    or self._decorators(d.node) & names
                    or self._speaks_of(qualname, d, common)
                    or (d.calls & plain and _names(d.node) & plain)
                    for d in definitions
                )
            }
            found -= self.file.translated
            if not found:
                break
            everything |= found
        return everything

    @staticmethod
    def _decorators(node: ast.AST) -> set[str]:
        return {
            n.id
            for d in getattr(node, "decorator_list", ())
            for n in stream_terms.walk(d)
            if isinstance(n, ast.Name)
        }

    def _speaks_of(self, qualname: str, definition: Definition, common: dict[str, set[str]]) -> bool:
        """Whether a function calls a method of a common name, and it or its class names a class that has it."""
        owners = set().union(*(common[name] for name in definition.calls & common.keys()))
        own = qualname.partition(".")[0]
        others = owners - {own}
        others |= {name for owner in others for name in self._tables.get(owner, ())}
        if not others:
            return False
        text = self.file.segment(self.file.classes.get(own, definition.node))
        return re.search(rf"\b(?:{'|'.join(map(re.escape, others))})\b", text) is not None


def _heirs(file: SourceFile) -> dict[str, set[str]]:
    """Each class of a file with those that inherit from it: what it has, they have too."""
    found = {name: {name} for name in file.classes}
    for _ in range(len(found) if any(node.bases for node in file.classes.values()) else 0):
        before = sum(map(len, found.values()))
        for name, node in file.classes.items():
            for base in node.bases:
                if isinstance(base, ast.Name) and base.id in found:
                    found[base.id] |= found[name]
        if sum(map(len, found.values())) == before:
            break
    return found


def _class_level(file: SourceFile) -> Iterator[ast.stmt]:
    """The statements of classes that are no methods."""
    for node in (*file.classes.values(), *file.nested.values()):
        yield from (statement for statement in node.body if not isinstance(statement, DEFINITIONS))


def _names(node: ast.AST) -> set[str]:
    return {n.id for n in stream_terms.walk(node) if isinstance(n, ast.Name)}


def _is_own(node: ast.AST) -> bool:
    """Whether an expression is an attribute of ``self``."""
    return isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self"


def _moving(function: ast.AST) -> Iterator[ast.AST]:
    """The pieces of a function that copy without waiting, take pinned memory or read a clock, and what it assigns."""
    for node in stream_terms.walk(function):
        if isinstance(node, (ast.Attribute, ast.Subscript)) and not isinstance(node.ctx, ast.Load):
            yield node
        elif isinstance(node, (ast.Expr, ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Return, ast.withitem)):
            if stream_terms.of_tree(node) & (stream_terms.COPY | stream_terms.CLOCK | stream_terms.PINNED):
                yield node


DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
