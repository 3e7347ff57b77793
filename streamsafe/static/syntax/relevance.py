"""Which functions are worth analysing, by the identifiers in them.

A function is a *seed* when it names something that orders, copies without waiting, captures or reads a clock (the words
come from the models). Seeds are analysed first. Where one turns out to matter to those that call it, the other methods
of its class and the functions that name it are worth analysing, too, and so on. All others are analysed where one of
these calls them.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import cached_property

from streamsafe.static.syntax.index import Index
from streamsafe.static.syntax.modules import Definition

COMMON = 20
"""A name that so many functions of the tree have says nothing about which of them is meant."""

_NOTHING: frozenset[bytes] = frozenset()
_NO_STATEMENTS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom)
_IDENTIFIER = re.compile(rb"[A-Za-z_]\w*")


class Relevance:
    """What is known of the functions of some modules.

    Args:
        index: the tree.
        words: identifiers that make a seed.
        flags: for methods whose non-blocking flag may be given by position: name -> that position.
        modules: names of the modules to look through.
        contexts: names of calls that make a context of a stream: what is kept of them orders where it is entered.
        methods: names of methods of libraries: of a method of the tree they say little.
    """

    def __init__(
        self,
        index: Index,
        words: Iterable[str],
        flags: dict[str, int],
        modules: Iterable[str],
        contexts: Iterable[str] = (),
        methods: Iterable[str] = (),
    ) -> None:
        self._index = index
        self._methods = frozenset(methods)
        self._contexts = frozenset(contexts)
        self._context_words = frozenset(word.encode() for word in self._contexts)
        self._seed_words = frozenset(word.encode() for word in words)
        self._flags = flags
        self._words: dict[str, frozenset[bytes]] = {}
        self._in_code: dict[str, frozenset[bytes]] = {}
        self._wanted = frozenset(modules)
        self._named = {name: self._variables(name) for name in self._wanted}
        self._definitions = [d for d in index.definitions.values() if d.module in self._wanted]
        self.seeds = frozenset(d.fid for d in self._definitions if self._is_seed(d))

    # -- words -----------------------------------------------------------------------------------------------------
    def words(self, definition: Definition) -> frozenset[bytes]:
        """The identifiers in a function's text, those of comments and strings included."""
        found = self._words.get(definition.fid)
        if found is None:
            module = self._index.modules[definition.module]
            node = definition.node
            text = module.lines(node.lineno, node.end_lineno or node.lineno)
            found = self._words[definition.fid] = frozenset(_IDENTIFIER.findall(text))
        return found

    def mentions(self, wanted: Iterable[str]) -> bool:
        """Whether a function that is a seed has one of some identifiers in its text."""
        words = frozenset(word.encode() for word in wanted)
        return any(not self.words(self._index.definitions[fid]).isdisjoint(words) for fid in self.seeds)

    def _names(self, definition: Definition, wanted: frozenset[bytes] | set[bytes]) -> bool:
        """Whether the code of a function names one of some identifiers."""
        if self.words(definition).isdisjoint(wanted):
            return False
        return not self._code_words(definition).isdisjoint(wanted)

    def _code_words(self, definition: Definition) -> frozenset[bytes]:
        """The names and attributes in a function's code, its decorators left out."""
        found = self._in_code.get(definition.fid)
        if found is None:
            found = self.words(definition) & _named_in(definition.node)
            self._in_code[definition.fid] = found
        return found

    def _variables(self, name: str) -> frozenset[bytes]:
        """The variables of a module whose values name what makes a seed: streams, options, partial functions."""
        module = self._index.modules.get(name)
        if module is None:
            return frozenset()
        found: set[bytes] = set()
        for node in module.tree.body:
            if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
                text = module.lines(node.lineno, node.end_lineno or node.lineno)
                if not self._seed_words.isdisjoint(_IDENTIFIER.findall(text)):
                    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                    found.update(each.id.encode() for each in targets if isinstance(each, ast.Name))
        return frozenset(found)

    def _is_seed(self, definition: Definition) -> bool:
        if self._names(definition, self._seed_words):
            return True
        if self._names(definition, self._named.get(definition.module, _NOTHING)):
            return True
        if b"True" not in self.words(definition):
            return False
        for node in ast.walk(definition.node):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                position = self._flags.get(node.func.attr)
                if position is not None and len(node.args) > position:
                    given = node.args[position]
                    if isinstance(given, ast.Constant) and given.value is True:
                        return True
        return False

    # -- closures --------------------------------------------------------------------------------------------------
    def _called(self, functions: Iterable[Definition]) -> tuple[set[bytes], dict[bytes, set[bytes]]]:
        """The names by which some functions are called; and class -> the methods whose name says little."""
        names: set[bytes] = set()
        methods: dict[bytes, set[bytes]] = {}
        for d in functions:
            cls = d.cls.rpartition(".")[2].rpartition(":")[2] if d.cls is not None else ""
            if cls and d.name.startswith("__"):
                names.add(cls.encode())
            elif self._counts[d.name] <= COMMON and (not cls or d.name not in self._methods):
                names.add(d.name.encode())
            elif cls:
                methods.setdefault(cls.encode(), set()).add(d.name.encode())
        return names, methods

    def _kept_contexts(self, functions: Iterable[Definition]) -> set[bytes]:
        """The attributes in which contexts of streams, or functions that make them, are kept."""
        found: set[bytes] = set()
        for definition in functions:
            if self.words(definition).isdisjoint(self._context_words):
                continue
            for node in ast.walk(definition.node):
                if isinstance(node, ast.Assign) and any(
                    isinstance(inner, ast.Attribute) and inner.attr in self._contexts
                    for inner in ast.walk(node.value)
                ):
                    found.update(t.attr.encode() for t in node.targets if isinstance(t, ast.Attribute))
        return found

    def beside(self, left: Mapping[str, Iterable[str]]) -> set[str]:
        """What may see what some functions leave: methods of their classes, functions and modules that name them.

        Args:
            left: each function -> the attributes through which methods of its class see that.
        """
        functions = []
        classes: dict[str, set[bytes]] = {}
        for fid in sorted(left):
            definition = self._index.definitions.get(fid)
            while definition is not None:  # who calls the function around gets what is defined inside
                functions.append(definition)
                if definition.cls is not None:
                    fields = {name.encode() for name in (*left[fid], definition.name)}
                    for cid in (definition.cls, *self._index.mro(definition.cls)):
                        classes.setdefault(cid, set()).update(fields)
                around = definition.around
                definition = self._index.definitions.get(around.owner) if around is not None else None
        names, methods = self._called(functions)
        names |= self._kept_contexts(functions)
        holders = self._holders(methods)
        inherited: dict[str, set[bytes]] = {}

        def fields_of(cid: str) -> set[bytes]:
            """What methods of a class, and of those that it inherits from, leave in the fields."""
            if cid not in inherited:
                found = [classes[each] for each in (cid, *self._index.mro(cid)) if each in classes]
                inherited[cid] = set().union(*found)
            return inherited[cid]

        found = {
            d.fid
            for d in self._definitions
            if (d.cls is not None and self._names(d, fields_of(d.cls)))
            or self._names(d, names)
            or self._names_method(d, methods, holders)
        }
        found.update(
            f"{name}:<module>" for name, words in self._bodies.items() if not words.isdisjoint(names)
        )
        return found

    def _names_method(
        self,
        definition: Definition,
        classes: Mapping[bytes, set[bytes]],
        holders: Mapping[str, set[bytes]],
    ) -> bool:
        """Whether the code of a function names one of some methods, and it, or a method beside it, their class."""
        held = holders.get(definition.cls, _NOTHING) if definition.cls is not None else _NOTHING
        named = held | self.words(definition).intersection(classes)
        return any(
            (cls in held or cls in self._code_words(definition)) and self._names(definition, classes[cls])
            for cls in sorted(named)
        )

    def _holders(self, classes: Mapping[bytes, set[bytes]]) -> dict[str, set[bytes]]:
        """Class -> those of some classes that its methods name: a field may hold an instance."""
        found: dict[str, set[bytes]] = {}
        wanted = frozenset(classes)
        for definition in self._definitions if wanted else ():
            if definition.cls is not None and not wanted.isdisjoint(self.words(definition)):
                named = self.words(definition) & wanted
                if code := named & self._code_words(definition):
                    found.setdefault(definition.cls, set()).update(code)
        return found

    @cached_property
    def bodies(self) -> set[str]:
        """The module bodies that are seeds."""
        return {
            f"{name}:<module>"
            for name, words in self._bodies.items()
            if not words.isdisjoint(self._seed_words)
        }

    @cached_property
    def _bodies(self) -> dict[str, frozenset[bytes]]:
        """The identifiers in the statements of each module, functions, classes and imports left out."""
        found: dict[str, frozenset[bytes]] = {}
        for name in sorted(self._wanted):
            module = self._index.modules.get(name)
            if module is not None:
                statements = [node for node in module.tree.body if not isinstance(node, _NO_STATEMENTS)]
                found[name] = _named_in(*statements)
        return found

    @cached_property
    def _counts(self) -> Counter[str]:
        """How many functions of the tree have a name."""
        return Counter(d.name for d in self._index.definitions.values())

    def exported(self) -> set[str]:
        """Names of the functions and classes that are seeds themselves."""
        names = set()
        for fid in self.seeds:
            definition = self._index.definitions[fid]
            names.add(
                definition.cls.rpartition(":")[2].rpartition(".")[2] if definition.cls else definition.name
            )
        return names


def _named_in(*nodes: ast.AST) -> frozenset[bytes]:
    """The names, attributes and keywords in some code, and the texts that are keys: of keywords given as a dict."""
    names: set[str] = set()
    for top in nodes:
        for node in ast.walk(top):
            if isinstance(node, ast.Attribute):
                names.add(node.attr)
            elif isinstance(node, ast.Name):
                names.add(node.id)
            elif isinstance(node, ast.keyword) and node.arg is not None:
                names.add(node.arg)
            elif isinstance(node, ast.Dict):
                names.update(
                    key.value
                    for key in node.keys
                    if isinstance(key, ast.Constant) and isinstance(key.value, str)
                )
    return frozenset(name.encode() for name in names)
