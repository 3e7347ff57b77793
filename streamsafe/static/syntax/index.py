"""The index of a tree: modules, classes and functions by name, found and parsed when they are asked for.

Which files are known follows from where the checked files lie, never from which of them were named: a module of the
same package, one beside a script, or one of another package under the same directory. A library that has a model is
never looked for in the tree.
"""

from __future__ import annotations

import ast
import os
from collections.abc import Callable, Iterable

from streamsafe.static.syntax.builder import Builder
from streamsafe.static.syntax.expressions import function_scope
from streamsafe.static.syntax.ir import Function, Type
from streamsafe.static.syntax.lower import MODULE_BODY, lower_function, lower_module
from streamsafe.static.syntax.modules import (
    UNKNOWN,
    Binding,
    Class,
    Contents,
    Definition,
    Module,
    Symbol,
    class_contents,
    collect,
)
from streamsafe.static.syntax.packages import PROJECT_MARKS, packages
from streamsafe.static.syntax.scopes import Definition as DefinitionNode

LONGEST_CHAIN = 12
"""Steps that a name is followed through imports and aliases."""

_DATACLASSES = frozenset("dataclass define frozen attrs".split())
_TRANSPARENT = frozenset("Annotated Final ClassVar Required NotRequired ReadOnly InitVar".split())


class Index:
    """What is known of the tree.

    Args:
        libraries: top-level names that are never resolved to files.
        known: whether a dotted name has a model, wherever its source lies.
        parse: the syntax tree of a file, and its text in UTF-8; it raises ``ValueError`` where there is none.
    """

    def __init__(
        self,
        libraries: Iterable[str] = (),
        parse: Callable[[str], tuple[ast.Module, bytes]] | None = None,
        known: Callable[[str], bool] | None = None,
    ) -> None:
        self.libraries = frozenset(libraries)
        self.modules: dict[str, Module] = {}
        self.definitions: dict[str, Definition] = {}
        self.classes: dict[str, Class] = {}
        self.broken: dict[str, str] = {}
        self._known = known or (lambda dotted: False)
        self._parse = parse or parse_file
        self._by_path: dict[str, Module | None] = {}
        self._lowered: dict[str, Function] = {}
        self._ids: dict[ast.AST, str] = {}
        self._orders: dict[str, list[str]] = {}
        self._folders: dict[tuple[str, str], bool] = {}
        self._resolved: dict[tuple[str, str], Symbol] = {}
        self._inside: dict[str, int] = {}

    # -- modules ---------------------------------------------------------------------------------------------------
    def add(self, path: str, parsed: tuple[ast.Module, bytes] | None = None) -> Module | None:
        """Index a file; None where it has no syntax tree (``broken`` says why)."""
        if path in self._by_path:
            return self._by_path[path]
        self._by_path[path] = None
        try:
            tree, data = parsed or self._parse(path)
        except (ValueError, OSError, RecursionError) as error:
            self.broken[path] = str(error)
            return None
        name, package = module_name(path)
        if name in self.modules:
            name = f"{name}@{sum(1 for m in self.modules if m.partition('@')[0] == name) + 1}"
        module = Module(name, path, package, tree, rebinds=b":=" in data or b"nonlocal" in data, source=data)
        self.modules[name] = self._by_path[path] = module
        self._take(collect(module))
        return module

    def add_data(self, path: str, data: bytes) -> Module | None:
        """Index a file whose bytes are given."""
        try:
            return self.add(path, parse_data(data, path))
        except (ValueError, RecursionError) as error:
            self.broken[path] = str(error)
            return None

    def dependencies(self) -> tuple[list[str], list[str]]:
        """The files that were parsed, and the places where an imported module was looked for and not found."""
        absent = [os.path.join(folder, top) for (folder, top), held in self._folders.items() if not held]
        return sorted(self._by_path), sorted(absent + [f"{path}.py" for path in absent])

    def _take(self, contents: Contents) -> None:
        self._ids.update(contents.ids)
        for definition in contents.functions:
            self.definitions[definition.fid] = definition
        for cls in contents.classes:
            self.classes[cls.cid] = cls

    def locate(self, dotted: str, importer: Module) -> Module | None:
        """The module of a dotted name, as a module imports it; None where it is not in the tree."""
        top = dotted.partition(".")[0]
        if not top or top in self.libraries:
            return None
        for folder in _folders(importer.path):
            if self._holds(folder, top):
                base = os.path.join(folder, *dotted.split("."))
                for path in (os.path.join(base, "__init__.py"), base + ".py"):
                    if os.path.isfile(path):
                        return self.add(path)
                return None
        return None

    def _holds(self, folder: str, top: str) -> bool:
        key = (folder, top)
        if key not in self._folders:
            base = os.path.join(folder, top)
            self._folders[key] = os.path.isfile(base + ".py") or os.path.isdir(base)
        return self._folders[key]

    # -- names -----------------------------------------------------------------------------------------------------
    def lookup(self, module: str, name: str) -> Symbol:
        """What a name of a module stands for; builtins are ``builtins.name``."""
        return self._lookup(self.modules[module], name, LONGEST_CHAIN) or Symbol(
            "library", f"builtins.{name}"
        )

    def resolve(self, module: str, dotted: str) -> Symbol:
        """What a dotted name stands for in a module: ``a.b.c`` by the module's own ``a``."""
        key = (module, dotted)
        found = self._resolved.get(key)
        if found is None:
            first, _, rest = dotted.partition(".")
            found = self.member(self.lookup(module, first), rest, LONGEST_CHAIN)
            self._resolved[key] = found
        return found

    def imported(self, module: str, dotted: str, name: str | None = None) -> Symbol:
        """What ``import dotted``, or ``from dotted import name``, in a module stands for."""
        return self._imported(self.modules[module], dotted, name or "", LONGEST_CHAIN)

    def member(self, symbol: Symbol, dotted: str, steps: int = LONGEST_CHAIN) -> Symbol:
        """What attributes of something stand for: ``member(torch.cuda, "Stream")``."""
        while dotted and symbol.kind != "unknown":
            if symbol.kind == "library":
                return Symbol("library", f"{symbol.name}.{dotted}")
            name, _, dotted = dotted.partition(".")
            if symbol.kind == "module":
                module = self.modules[symbol.name]
                symbol = self._lookup(module, name, steps) or self._submodule(module, name)
            elif symbol.kind == "class":
                symbol = self._class_member(symbol.name, name)
            else:
                return UNKNOWN
        return symbol

    def _lookup(self, module: Module, name: str, steps: int) -> Symbol | None:
        binding = module.names.get(name)
        if binding is not None:
            return self._follow(module, binding, steps)
        if steps > 0 and not name.startswith("_"):
            for star in reversed(module.stars):
                found = self._imported(module, star, "", steps - 1)
                if found.kind == "module":
                    other = self.modules[found.name]
                    if other.exported is not None and name not in other.exported:
                        continue
                    symbol = self._lookup(other, name, steps - 1) if other is not module else None
                    if symbol is not None:
                        return symbol
        return None

    def _follow(self, module: Module, binding: Binding, steps: int) -> Symbol:
        if binding.kind == "function" or binding.kind == "class":
            return Symbol(binding.kind, binding.target)
        if binding.kind == "variable":
            return Symbol("variable", binding.target)
        if steps <= 0:
            return UNKNOWN
        if binding.kind == "import":
            return self._imported(module, binding.target, binding.name, steps - 1)
        first, _, rest = binding.target.partition(".")
        symbol = self._lookup(module, first, steps - 1) or Symbol("library", f"builtins.{first}")
        return self.member(symbol, rest, steps - 1)

    def _imported(self, module: Module, dotted: str, name: str, steps: int) -> Symbol:
        whole = f"{dotted}.{name}" if name and dotted else dotted or name
        if dotted.partition(".")[0] in self.libraries or self._known(whole):
            return Symbol("library", whole)
        head, rest = dotted, name
        while head:
            found = self.locate(head, module)
            if found is not None:
                if found is module and rest and module.names.get(rest) == Binding("import", head, rest):
                    return self._submodule(module, rest)  # a package importing its own submodule
                return self.member(Symbol("module", found.name), rest, steps)
            head, _, last = head.rpartition(".")
            rest = f"{last}.{rest}" if rest else last
        return Symbol("library", whole)

    def _submodule(self, module: Module, name: str) -> Symbol:
        if os.path.basename(module.path) == "__init__.py":
            base = os.path.join(os.path.dirname(module.path), name)
            for path in (os.path.join(base, "__init__.py"), base + ".py"):
                if os.path.isfile(path):
                    found = self.add(path)
                    return Symbol("module", found.name) if found else UNKNOWN
        return UNKNOWN

    # -- classes ---------------------------------------------------------------------------------------------------
    def bases(self, cid: str) -> list[Symbol]:
        """The direct bases of a class."""
        cls = self.classes[cid]
        return [self.resolve(cls.module, base.name) for base in cls.bases if "?" not in base.name]

    def mro(self, cid: str) -> list[str]:
        """The class and its bases in the tree, in the order in which Python looks names up."""
        order = self._orders.get(cid)
        if order is None:
            self._orders[cid] = [cid]  # a class that is its own base
            parents = [s.name for s in self.bases(cid) if s.kind == "class" and s.name in self.classes]
            order = self._orders[cid] = [cid, *_merge([*(list(self.mro(p)) for p in parents), parents])]
        return order

    def library_bases(self, cid: str) -> list[str]:
        """Bases outside the tree, of the class or of its bases, by dotted name."""
        return [s.name for c in self.mro(cid) for s in self.bases(c) if s.kind == "library"]

    def method(self, cid: str, name: str) -> str | None:
        """The function that a method name of a class stands for, in the class or in its bases in the tree."""
        for c in self.mro(cid):
            fid = self.classes[c].methods.get(name)
            if fid is not None:
                return fid
        return None

    def overriding(self, cid: str, name: str) -> list[str]:
        """The methods of known subclasses that stand for one which the class leaves to them; empty of any other.

        A class leaves to its subclasses what is abstract, does nothing but raise, or has no statement at all.
        """
        fid = self.method(cid, name)
        definition = self.definitions.get(fid) if fid is not None else None
        if definition is None or not _left_open(definition):
            return []
        found = {
            own
            for other, cls in list(self.classes.items())  # asking for bases may index further files
            if (own := cls.methods.get(name)) is not None and own != fid and cid in self.mro(other)
        }
        return sorted(own for own in found if not _left_open(self.definitions[own]))

    def method_after(self, cid: str, owner: str, name: str) -> str | None:
        """What ``super().name`` stands for in a method of ``owner``, of an instance of ``cid``."""
        order = self.mro(cid)
        for c in order[order.index(owner) + 1 :] if owner in order else ():
            fid = self.classes[c].methods.get(name)
            if fid is not None:
                return fid
        return None

    def is_property(self, cid: str, name: str) -> bool:
        """Whether reading the attribute calls a method."""
        for c in self.mro(cid):
            if name in self.classes[c].methods:
                return name in self.classes[c].properties
        return False

    def setter(self, cid: str, name: str) -> str | None:
        """The function that storing to an attribute calls."""
        return next(
            (self.classes[c].setters[name] for c in self.mro(cid) if name in self.classes[c].setters), None
        )

    def fields(self, cid: str) -> dict[str, tuple[str, Type]]:
        """Annotated names of a class and its bases, in the order of a dataclass's fields: the module and the type."""
        out: dict[str, tuple[str, Type]] = {}
        for c in reversed(self.mro(cid)):
            cls = self.classes[c]
            out.update({name: (cls.module, annotation) for name, annotation in cls.annotated.items()})
        return out

    def tuple_fields(self, cid: str) -> list[str]:
        """The fields of a named tuple, in order; empty of any other class."""
        if not any(
            base.name.rpartition(".")[2] == "NamedTuple"
            for c in self.mro(cid)
            for base in self.classes[c].bases
        ):
            return []
        return list(self.fields(cid))

    def is_dataclass(self, cid: str) -> bool:
        """Whether ``__init__`` stores what it is given under the names of the annotated fields."""
        for c in self.mro(cid):
            if "__init__" in self.classes[c].methods:
                return False
            if any(
                d.rpartition(".")[2] in ("dataclass", "define", "frozen", "attrs")
                for d in self.classes[c].decorators
            ):
                return True
            names = {b.name.rpartition(".")[2] for b in self.classes[c].bases}
            if names & {"NamedTuple", "BaseModel", "Struct", "TypedDict"}:
                return True
        return False

    def _class_member(self, cid: str, name: str) -> Symbol:
        for c in self.mro(cid):
            cls = self.classes[c]
            if name in cls.methods:
                return Symbol("function", cls.methods[name])
            if name in cls.inner:
                return Symbol("class", cls.inner[name])
            if name in cls.assigned or name in cls.annotated:
                return Symbol("variable", f"{c}.{name}")
        return UNKNOWN

    # -- annotations -----------------------------------------------------------------------------------------------
    def alternatives(self, annotation: Type | None) -> tuple[list[Type], bool]:
        """The types that an annotation allows besides None, and whether it allows None."""
        if annotation is None:
            return [], False
        last = annotation.name.rpartition(".")[2]
        if annotation.name == "None":
            return [], True
        if last in _TRANSPARENT and annotation.args:
            return self.alternatives(annotation.args[0])
        if last == "Optional" or last == "Union" or annotation.name == "|":
            found: list[Type] = []
            optional = last == "Optional"
            for part in annotation.args:
                inner, none = self.alternatives(part)
                found += inner
                optional |= none
            return found, optional
        return [annotation], False

    def type_symbol(self, module: str, annotation: Type) -> Symbol:
        """What the name of an annotation stands for."""
        return (
            UNKNOWN
            if "?" in annotation.name or annotation.name == "[]"
            else self.resolve(module, annotation.name)
        )

    # -- functions -------------------------------------------------------------------------------------------------
    def function(self, fid: str) -> Function:
        """A function, lowered.

        Raises:
            KeyError: there is none of this id.
        """
        fn = self._lowered.get(fid)
        if fn is None:
            fn = self._lowered[fid] = self._lower(fid)
        return fn

    def _lower(self, fid: str) -> Function:
        name, _, local = fid.partition(":")
        if local == MODULE_BODY:
            module = self.modules[name]
            return lower_module(module.tree, module=name, package=module.package, definitions=self)
        definition = self.definitions[fid]
        module = self.modules[definition.module]
        return lower_function(
            definition.node,
            fid=fid,
            module=module.name,
            package=module.package,
            definitions=self,
            cls=definition.cls,
            class_names=definition.classes,
            around=definition.around,
            rebinds=module.rebinds,
        )

    def define_function(self, node: DefinitionNode, around: Builder) -> str:
        """Name a function inside the one that is being lowered."""
        found = self._ids.get(node)
        if found is not None:
            return found
        assert not isinstance(node, ast.ClassDef)
        name = "<lambda>" if isinstance(node, ast.Lambda) else node.name
        fid = self._local(around.fn.fid, name)
        self._ids[node] = fid
        scope = function_scope(around)
        at_top = around.fn.name == MODULE_BODY and not scope.registers
        self.definitions[fid] = Definition(
            fid, name, node, around.fn.module, None, None if at_top else scope, tuple(around.classes)
        )
        return fid

    def define_class(self, node: ast.ClassDef, around: Builder) -> str:
        """Name a class inside the function that is being lowered."""
        found = self._ids.get(node)
        if found is not None:
            return found
        cid = self._local(around.fn.fid, node.name)
        module = self.modules[around.fn.module]
        self._take(class_contents(node, cid, module, function_scope(around), tuple(around.classes)))
        return cid

    def _local(self, outer: str, name: str) -> str:
        base = f"{outer}.<locals>.{name}"
        n = self._inside[base] = self._inside.get(base, 0) + 1
        return base if n == 1 else f"{base}#{n}"


def _left_open(definition: Definition) -> bool:
    """Whether a method is there to be overridden."""
    node = definition.node
    if isinstance(node, ast.Lambda):
        return False
    return all(
        isinstance(s, ast.Pass | ast.Raise) or (isinstance(s, ast.Expr) and isinstance(s.value, ast.Constant))
        for s in node.body
    )


def parse_file(path: str) -> tuple[ast.Module, bytes]:
    """The syntax tree of a file, and the text that was parsed, in UTF-8.

    Raises:
        ValueError, OSError: it cannot be read, or is no Python source.
    """
    with open(path, "rb") as opened:
        return parse_data(opened.read(), path)


def parse_data(data: bytes, path: str) -> tuple[ast.Module, bytes]:
    """The same of bytes that were read already.

    Raises:
        ValueError: they are no Python source.
    """
    from streamsafe.static.reading import SourceError, parse, read

    try:
        text = read(data, path).text
        return parse(text), text.encode("utf-8", "surrogatepass")
    except SourceError as error:
        raise ValueError(error.message) from error


def module_name(path: str) -> tuple[str, str]:
    """A file's dotted name, by the packages it lies in, and the package that its relative imports start from."""
    folder, file = os.path.split(path)
    parts = [] if file == "__init__.py" else [os.path.splitext(file)[0]]
    _, inside = packages(folder)
    return ".".join([*inside, *parts]) or "__init__", ".".join(inside)


def _folders(path: str) -> list[str]:
    """Where the absolute imports of a file may lead, nearest first.

    Its own folder, where that is no package by an ``__init__.py``; the folder that holds its top package; then the
    folders around it and their ``src``, up to the project's root.
    """
    found = _FOLDERS.get(os.path.dirname(path))
    if found is None:
        folder = os.path.dirname(path)
        found = [] if os.path.isfile(os.path.join(folder, "__init__.py")) else [folder]
        folder, _ = packages(folder)
        if folder not in found:
            found.append(folder)
        near = len(found)
        for _step in range(4):
            if any(os.path.exists(os.path.join(folder, mark)) for mark in PROJECT_MARKS):
                break
            parent = os.path.dirname(folder)
            if parent == folder:
                break
            folder = parent
            found += [folder, os.path.join(folder, "src")]
        else:
            del found[near:]  # no project around: only what lies beside it
        if len(found) > near or os.path.exists(os.path.join(folder, "pyproject.toml")):
            found.append(os.path.join(folder, "src"))
        _FOLDERS[os.path.dirname(path)] = found
    return found


_FOLDERS: dict[str, list[str]] = {}


def _merge(sequences: list[list[str]]) -> list[str]:
    """C3 linearisation; where there is none, the first that is left comes next."""
    out: list[str] = []
    while True:
        sequences = [s for s in sequences if s]
        if not sequences:
            return out
        tails = {name for s in sequences for name in s[1:]}
        head = next((s[0] for s in sequences if s[0] not in tails), sequences[0][0])
        out.append(head)
        sequences = [[name for name in s if name != head] for s in sequences]
