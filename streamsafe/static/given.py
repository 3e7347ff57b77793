"""What the calls in a file give the parameters of a function: of which class, which flags, and which streams."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable, Iterator

from streamsafe.static import needles
from streamsafe.static.needles import last_name
from streamsafe.static.source import SourceFile

OTHER = ""
"""Stands for what is made by a library."""
DEPTH = 5
"""How many names, calls and attributes an argument is followed through."""
ITSELF = frozenset({"cuda", "cpu", "to", "half", "float", "bfloat16", "eval", "train", "requires_grad_"})
"""Methods of a module that give the module."""
_WRAPPERS = frozenset({"compile", "script", "jit"})
"""Functions that give their first argument in another form."""


class Given:
    """What the calls of a file give, asked by function.

    Args:
        file: the file.
        wanted: the qualified names of the functions that are asked about.
    """

    def __init__(self, file: SourceFile, wanted: Iterable[str]) -> None:
        self._file = file
        self._assigned: dict[str, dict[str, list[ast.expr]]] = {}
        self._known: dict[tuple[str, str, int], set[str]] = {}  # by name, function and depth: its classes
        self._arguments: dict[str, list[tuple[str, ast.expr, str]]] = defaultdict(list)
        self._calls: dict[str, int] = defaultdict(int)
        self._waited: dict[
            int, _Waits
        ] = {}  # by an argument's node: the waits that its caller has made before
        self._current: set[int] = set()  # arguments that are the stream which is current at their call
        targets = self._targets(wanted)
        for caller, tree, names in self._bodies():
            if not names.isdisjoint(targets):
                waits = dict(_waits_before([tree], frozenset())) if "wait_stream" in names else {}
                self._current.update(_current_arguments(tree, ""))
                for node in needles.walk(tree):
                    if isinstance(node, ast.Call):
                        name = last_name(node.func)
                        for function, method in targets.get(name, ()):
                            if method == isinstance(node.func, ast.Attribute):
                                self._place(function, node, caller)
                                given = (*node.args, *(k.value for k in node.keywords))
                                self._waited.update((id(a), waits.get(id(node), _NONE)) for a in given)

    def classes(self, qualname: str, parameter: str) -> set[str]:
        """The classes of what a parameter is given as far as it is known, ``OTHER`` among them."""
        found: set[str] = set()
        for name, value, caller in self._arguments.get(qualname, ()):
            if name == parameter:
                found |= self._of(value, caller, DEPTH)
        return found

    def passed_on(self) -> Iterator[tuple[tuple[str, str], tuple[str, str]]]:
        """The names of functions that are given as they are to parameters, with those parameters."""
        for function, arguments in self._arguments.items():
            for parameter, value, caller in arguments:
                word = itself(value)
                if word is None or word not in (p.arg for p in self._parameters(caller)):
                    continue
                # the name means what the caller was given up to the call: what comes of that may take its place
                assigned = self._assignments(caller).get(word, ())
                if all(itself(a) == word or any(n is value for n in ast.walk(a)) for a in assigned):
                    yield (caller, word), (function, parameter)

    def _everywhere(self, qualname: str, parameter: str) -> list[ast.expr]:
        """What each call gives a parameter; nothing where one leaves it out."""
        found = [value for name, value, _ in self._arguments.get(qualname, ()) if name == parameter]
        return found if len(found) == self._calls.get(qualname) else []

    def flag(self, qualname: str, parameter: str) -> bool | None:
        """The flag that all calls give a parameter."""
        given = self._everywhere(qualname, parameter)
        flags = {v.value if isinstance(v, ast.Constant) else None for v in given}
        flag = flags.pop() if len(flags) == 1 else None
        return flag if isinstance(flag, bool) else None

    def stream(self, qualname: str, parameter: str) -> str | None:
        """What all calls name the stream that they give a parameter."""
        names = {
            ast.unparse(v) for v in self._everywhere(qualname, parameter) if "stream" in last_name(v).lower()
        }
        return names.pop() if len(names) == 1 else None

    def is_current(self, qualname: str, parameter: str) -> bool:
        """Whether all calls give a parameter the stream that is current there."""
        given = self._everywhere(qualname, parameter)
        return bool(given) and all(id(value) in self._current for value in given)

    def waited_for(self, qualname: str, parameter: str) -> frozenset[str]:
        """What all calls name the streams for which they have made waited the one that they give a parameter."""
        found = [
            frozenset(other for waiting, other in self._waited.get(id(v), _NONE) if waiting == ast.unparse(v))
            for v in self._everywhere(qualname, parameter)
        ]
        return frozenset.intersection(*found) if found else frozenset()

    # -- calls ---------------------------------------------------------------------------------------------------

    def _targets(self, wanted: Iterable[str]) -> dict[str, list[tuple[str, bool]]]:
        """By the name that a call has: the functions that may be meant, and whether as methods."""
        found: dict[str, list[tuple[str, bool]]] = defaultdict(list)
        owners: dict[str, int] = defaultdict(int)
        for qualname in self._file.definitions:
            owners[qualname.rpartition(".")[2]] += 1
        for qualname in wanted:
            owner, _, name = qualname.rpartition(".")
            if name == "__init__":
                for heir in self._constructed_by(owner):
                    found[heir].append((qualname, False))
            elif not owner:
                found[name].append((qualname, False))
            elif owners[name] == 1:
                found[name].append((qualname, True))
        return found

    def _constructed_by(self, owner: str) -> Iterator[str]:
        """A class and those that inherit its ``__init__``."""
        for name, node in self._file.classes.items():
            own = f"{name}.__init__" in self._file.definitions
            if name == owner or (not own and any(last_name(base) == owner for base in node.bases)):
                yield name

    def _bodies(self) -> Iterator[tuple[str, ast.AST, frozenset[str]]]:
        """The functions of the file and the statements of the module, with the names in them."""
        for qualname, definitions in self._file.definitions.items():
            yield qualname, definitions[-1].node, definitions[-1].calls
        for statement in self._file.statements:
            if not isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                names = frozenset(n.id for n in needles.walk(statement) if isinstance(n, ast.Name))
                yield "", statement, names

    def _place(self, function: str, call: ast.Call, caller: str) -> None:
        parameters = self._file.definitions[function][-1].node.args
        names = [p.arg for p in (*parameters.posonlyargs, *parameters.args)]
        names = names["." in function :]
        self._calls[function] += 1
        for name, value in zip(names, call.args, strict=False):
            if isinstance(value, ast.Starred):
                break
            self._arguments[function].append((name, value, caller))
        for keyword in call.keywords:
            if keyword.arg is not None:
                self._arguments[function].append((keyword.arg, keyword.value, caller))

    # -- values --------------------------------------------------------------------------------------------------

    def _of(self, value: ast.expr, where: str, depth: int) -> set[str]:
        """The classes that an expression of a function may be of; none where that is not known."""
        if not depth:
            return set()
        if isinstance(value, ast.Call):
            return self._called(value, where, depth)
        if isinstance(value, ast.Name):
            return self._named(value.id, where, depth)
        owner = where.rpartition(".")[0]
        if (
            isinstance(value, ast.Attribute)
            and isinstance(value.value, ast.Name)
            and value.value.id == "self"
        ):
            found: set[str] = set()
            for qualname in self._file.definitions if owner in self._file.classes else ():
                if qualname.rpartition(".")[0] == owner:
                    for given in self._assignments(qualname).get(f"self.{value.attr}", ()):
                        found |= self._of(given, qualname, depth - 1)
            return found
        return set()

    def _called(self, call: ast.Call, where: str, depth: int) -> set[str]:
        name, function = last_name(call.func), call.func
        if isinstance(function, ast.Attribute) and name in ITSELF:
            return self._of(function.value, where, depth - 1)
        if name in _WRAPPERS and call.args:
            return self._of(call.args[0], where, depth - 1)
        if name in self._file.classes:
            return {name}
        if isinstance(function, ast.Name) and name in self._file.functions:
            returned = needles.walk(self._file.definitions[name][-1].node)
            found: set[str] = set()
            for node in returned:
                if isinstance(node, ast.Return) and node.value is not None:
                    found |= self._of(node.value, name, depth - 1)
            return found
        written = (
            name
            if isinstance(function, ast.Attribute)
            else self._file.imports.get(name, "").rpartition(".")[2]
        )
        return {OTHER} if written[:1].isupper() else set()

    def _named(self, name: str, where: str, depth: int) -> set[str]:
        key = (name, where, depth)
        if key not in self._known:  # names that are given on in a circle are asked for over and over
            self._known[key] = self._found(name, where, depth)
        return self._known[key]

    def _found(self, name: str, where: str, depth: int) -> set[str]:
        owner = where.rpartition(".")[0]
        if name == "self" and owner in self._file.classes:
            return {owner}
        found: set[str] = set()
        for value in self._assignments(where).get(name, ()):
            found |= self._of(value, where, depth - 1)
        for parameter, value, caller in self._arguments.get(where, ()):
            if parameter == name:
                found |= self._of(value, caller, depth - 1)
        annotation = next((p.annotation for p in self._parameters(where) if p.arg == name), None)
        if annotation is not None and written_type(annotation) in self._file.classes:
            found.add(written_type(annotation))
        return found

    def _parameters(self, where: str) -> list[ast.arg]:
        if where not in self._file.definitions:
            return []
        arguments = self._file.definitions[where][-1].node.args
        return [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]

    def _assignments(self, where: str) -> dict[str, list[ast.expr]]:
        """What a function assigns to its names and to attributes of ``self``."""
        known = self._assigned.get(where)
        if known is None:
            known = self._assigned[where] = defaultdict(list)
            trees: list[ast.AST] = [d.node for d in self._file.definitions.get(where, ())[-1:]]
            if not where:
                trees = [s for s in self._file.statements if not isinstance(s, _SCOPES)]
            for tree in trees:
                for node in needles.walk(tree):
                    if isinstance(node, ast.Assign):
                        for target in node.targets:
                            for name, value in _pairs(target, node.value):
                                known[name].append(value)
                    elif isinstance(node, ast.AnnAssign) and node.value is not None:
                        for name, value in _pairs(node.target, node.value):
                            known[name].append(value)
        return known


def written_type(annotation: ast.expr) -> str:
    """The last name of the type that an annotation writes, without what may be None."""
    if isinstance(annotation, ast.Subscript) and last_name(annotation) == "Optional":
        return written_type(annotation.slice)
    if isinstance(annotation, ast.BinOp):
        sides = [s for s in (annotation.left, annotation.right) if not isinstance(s, ast.Constant) or s.value]
        return written_type(sides[0]) if len(sides) == 1 else ""
    if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
        return annotation.value.rpartition(".")[2]
    return last_name(annotation)


def itself(value: ast.expr | None) -> str | None:
    """The name that an expression is, or of the module that its methods give."""
    while isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr in ITSELF:
        value = value.func.value
    return value.id if isinstance(value, ast.Name) else None


_Waits = frozenset[tuple[str, str]]
_NONE: _Waits = frozenset()


def _waits_before(suite: list[ast.AST], waits: _Waits) -> Iterator[tuple[int, _Waits]]:
    """The calls in some statements, each with the streams that others have been made to wait for by then."""
    for statement in suite:
        if isinstance(statement, _SCOPES) and len(suite) > 1:
            continue  # it runs some other time
        for _, field in ast.iter_fields(statement):
            inner = field if isinstance(field, list) else [field]
            if any(isinstance(part, (ast.stmt, ast.ExceptHandler)) for part in inner):
                yield from _waits_before(inner, waits)
            else:
                for part in inner:
                    for node in needles.walk(part) if isinstance(part, ast.AST) else ():
                        if isinstance(node, ast.Call):
                            yield id(node), waits
        call = statement.value if isinstance(statement, ast.Expr) else None
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.args:
            if call.func.attr == "wait_stream":
                waits |= {(ast.unparse(call.func.value), ast.unparse(call.args[0]))}


def _current_arguments(node: ast.AST, current: str) -> Iterator[int]:
    """The arguments of calls that are the current stream, as a block around the call has it, or as it is asked for.

    Args:
        node: where the calls are.
        current: how the stream is written that is current there; empty where that is not seen.
    """
    if isinstance(node, (*_SCOPES, ast.Lambda)):
        current = ""  # it runs some other time
    elif isinstance(node, ast.Call):
        for value in (*node.args, *(k.value for k in node.keywords)):
            asked = isinstance(value, ast.Call) and last_name(value.func) == "current_stream"
            if asked or (current and ast.unparse(value) == current):
                yield id(value)
    if isinstance(node, (ast.With, ast.AsyncWith)):
        for item in node.items:
            yield from _current_arguments(item, current)
            made = item.context_expr
            if isinstance(made, ast.Call) and last_name(made.func) in ("stream", "StreamContext"):
                current = ast.unparse(made.args[0]) if made.args else ""
        for statement in node.body:
            yield from _current_arguments(statement, current)
        return
    for inner in ast.iter_child_nodes(node):
        yield from _current_arguments(inner, current)


_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def _pairs(target: ast.expr, value: ast.expr) -> Iterator[tuple[str, ast.expr]]:
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
        for inner, part in zip(target.elts, value.elts, strict=True):
            yield from _pairs(inner, part)
    elif isinstance(target, ast.Name):
        yield target.id, value
    elif (
        isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name) and target.value.id == "self"
    ):
        yield f"self.{target.attr}", value
