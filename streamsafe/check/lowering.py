"""Python that the running interpreter cannot parse, as the syntax tree that it would have made.

The machine runs the trees of ``ast``, which parses 25 times faster than LibCST with places, but only the syntax of
the Python that runs it. Where it fails, LibCST parses the text, since it reads the syntax of every supported
Python, and its tree is lowered to nodes of ``ast``. So a file means the same on every Python, and nearly all files
cost no more. What the machine does not run has no node of its own: ``except*`` becomes ``except``, a template
string a formatted one; type parameters and type aliases are left out.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import libcst as cst
from libcst.metadata import CodeRange, MetadataWrapper, PositionProvider

_BINARY: Final[Mapping[str, type[ast.operator]]] = {
    "Add": ast.Add, "BitAnd": ast.BitAnd, "BitOr": ast.BitOr, "BitXor": ast.BitXor, "Divide": ast.Div,
    "FloorDivide": ast.FloorDiv, "LeftShift": ast.LShift, "MatrixMultiply": ast.MatMult, "Modulo": ast.Mod,
    "Multiply": ast.Mult, "Power": ast.Pow, "RightShift": ast.RShift, "Subtract": ast.Sub,
}  # fmt: skip
_UNARY: Final[Mapping[str, type[ast.unaryop]]] = {
    "BitInvert": ast.Invert, "Minus": ast.USub, "Not": ast.Not, "Plus": ast.UAdd,
}  # fmt: skip
_COMPARE: Final[Mapping[str, type[ast.cmpop]]] = {
    "Equal": ast.Eq, "GreaterThan": ast.Gt, "GreaterThanEqual": ast.GtE, "In": ast.In, "Is": ast.Is, "IsNot": ast.IsNot,
    "LessThan": ast.Lt, "LessThanEqual": ast.LtE, "NotEqual": ast.NotEq, "NotIn": ast.NotIn,
}  # fmt: skip
_SINGLETONS: Final[Mapping[str, bool | None]] = {"None": None, "True": True, "False": False}


def parsed(text: str) -> ast.Module:
    """The syntax tree of a text, by LibCST.

    Raises:
        libcst.ParserSyntaxError: it is no Python of any supported version.
    """
    wrapper = MetadataWrapper(cst.parse_module(text), unsafe_skip_copy=True)
    lowering = _Lowering(wrapper.resolve(PositionProvider), text.split("\n"))
    return ast.Module(body=lowering.statements(wrapper.module.body), type_ignores=[])


class _Lowering:
    """From the nodes of one file.

    Args:
        places: where they stand.
        lines: the rows of the file.
    """

    def __init__(self, places: Mapping[cst.CSTNode, Any], lines: list[str]) -> None:
        self.places, self.lines = places, lines

    # ------------------------------------------------------------------ places
    def _column(self, row: int, column: int) -> int:
        """The bytes before a character of a row, as ``ast`` counts."""
        line = self.lines[row - 1] if row <= len(self.lines) else ""
        return column if line.isascii() else len(line[:column].encode())

    def _at(self, made: Any, node: cst.CSTNode) -> Any:
        """Give a node the place of another."""
        place: CodeRange | None = self.places.get(node)
        if place is not None:
            made.lineno, made.end_lineno = place.start.line, place.end.line
            made.col_offset = self._column(place.start.line, place.start.column)
            made.end_col_offset = self._column(place.end.line, place.end.column)
            if isinstance(made, (ast.Tuple, ast.GeneratorExp)) and getattr(node, "lpar", None):
                made.col_offset = max(0, made.col_offset - 1)  # the parentheses are theirs
                made.end_col_offset += 1
        else:
            made.lineno = made.end_lineno = 1
            made.col_offset = made.end_col_offset = 0
        return made

    # ------------------------------------------------------------------ statements
    def statements(self, body: Iterable[cst.CSTNode]) -> list[ast.stmt]:
        """The statements of a block."""
        found: list[ast.stmt] = []
        for s in body:
            if isinstance(s, (cst.SimpleStatementLine, cst.SimpleStatementSuite)):
                found += self.statements(s.body)
                continue
            made = self._method(s)(s)
            found.append(self._at(made if made is not None else ast.Pass(), s))
        return found

    def _block(self, node: Any) -> list[ast.stmt]:
        """The statements of a suite, or of nothing."""
        return [] if node is None else self.statements(node.body)

    def _method(self, node: cst.CSTNode) -> Callable[[Any], Any]:
        name = type(node).__name__
        method: Callable[[Any], Any] | None = getattr(self, f"_{name}", None)
        if method is None:
            raise NotImplementedError(f"{name} has no counterpart")
        return method

    def _Pass(self, node: cst.Pass) -> ast.stmt:
        return ast.Pass()

    def _Break(self, node: cst.Break) -> ast.stmt:
        return ast.Break()

    def _Continue(self, node: cst.Continue) -> ast.stmt:
        return ast.Continue()

    def _TypeAlias(self, node: cst.TypeAlias) -> ast.stmt:
        return ast.Pass()

    def _Expr(self, node: cst.Expr) -> ast.stmt:
        return ast.Expr(self.expr(node.value))

    def _Return(self, node: cst.Return) -> ast.stmt:
        return ast.Return(self.maybe(node.value))

    def _Assert(self, node: cst.Assert) -> ast.stmt:
        return ast.Assert(self.expr(node.test), self.maybe(node.msg))

    def _Raise(self, node: cst.Raise) -> ast.stmt:
        return ast.Raise(self.maybe(node.exc), self.maybe(node.cause.item if node.cause else None))

    def _Global(self, node: cst.Global) -> ast.stmt:
        return ast.Global([n.name.value for n in node.names])

    def _Nonlocal(self, node: cst.Nonlocal) -> ast.stmt:
        return ast.Nonlocal([n.name.value for n in node.names])

    def _Del(self, node: cst.Del) -> ast.stmt:
        target = self.expr(node.target, ast.Del())
        bare = isinstance(target, ast.Tuple) and not getattr(node.target, "lpar", ())
        return ast.Delete(target.elts if isinstance(target, ast.Tuple) and bare else [target])

    def _Assign(self, node: cst.Assign) -> ast.stmt:
        return ast.Assign([self.expr(t.target, ast.Store()) for t in node.targets], self.expr(node.value))

    def _AugAssign(self, node: cst.AugAssign) -> ast.stmt:
        operator = _BINARY[type(node.operator).__name__.removesuffix("Assign")]()
        return ast.AugAssign(self.target(node.target), operator, self.expr(node.value))

    def _AnnAssign(self, node: cst.AnnAssign) -> ast.stmt:
        simple = isinstance(node.target, cst.Name) and not node.target.lpar
        annotation = self.expr(node.annotation.annotation)
        return ast.AnnAssign(self.target(node.target), annotation, self.maybe(node.value), int(simple))

    def _Import(self, node: Any) -> ast.stmt:
        return ast.Import([self._alias(a) for a in node.names])

    def _ImportFrom(self, node: Any) -> ast.stmt:
        names = (
            [self._alias(a) for a in node.names]
            if not isinstance(node.names, cst.ImportStar)
            else [ast.alias("*")]
        )
        module = _dotted(node.module) if node.module is not None else None
        return ast.ImportFrom(module, names, len(node.relative))

    _LazyImport = _Import
    _LazyImportFrom = _ImportFrom

    def _alias(self, node: cst.ImportAlias) -> ast.alias:
        name = node.asname.name if node.asname else None
        made: ast.alias = self._at(
            ast.alias(_dotted(node.name), name.value if isinstance(name, cst.Name) else None), node
        )
        return made

    def _If(self, node: cst.If) -> ast.stmt:
        other: list[ast.stmt]
        if isinstance(node.orelse, cst.If):
            other = self.statements([node.orelse])
        else:
            other = self._block(node.orelse.body) if node.orelse else []
        return ast.If(self.expr(node.test), self._block(node.body), other)

    def _orelse(self, node: cst.Else | None) -> list[ast.stmt]:
        return self._block(node.body) if node is not None else []

    def _While(self, node: cst.While) -> ast.stmt:
        return ast.While(self.expr(node.test), self._block(node.body), self._orelse(node.orelse))

    def _For(self, node: cst.For) -> ast.stmt:
        kind = ast.AsyncFor if node.asynchronous else ast.For
        target = self.expr(node.target, ast.Store())
        return kind(target, self.expr(node.iter), self._block(node.body), self._orelse(node.orelse), None)

    def _With(self, node: cst.With) -> ast.stmt:
        kind = ast.AsyncWith if node.asynchronous else ast.With
        items = [
            ast.withitem(self.expr(i.item), self.expr(i.asname.name, ast.Store()) if i.asname else None)
            for i in node.items
        ]
        return kind(items, self._block(node.body), None)

    def _Try(self, node: Any) -> ast.stmt:
        handlers = [
            self._at(
                ast.ExceptHandler(
                    self.maybe(h.type), h.name.name.value if h.name else None, self._block(h.body)
                ),
                h,
            )
            for h in node.handlers
        ]
        final = self._block(node.finalbody.body) if node.finalbody else []
        return ast.Try(self._block(node.body), handlers, self._orelse(node.orelse), final)

    _TryStar = _Try

    def _FunctionDef(self, node: cst.FunctionDef) -> ast.stmt:
        kind = ast.AsyncFunctionDef if node.asynchronous else ast.FunctionDef
        made = kind(
            name=node.name.value,
            args=self._parameters(node.params),
            body=self._block(node.body),
            decorator_list=[self.expr(d.decorator) for d in node.decorators],
            returns=self.expr(node.returns.annotation) if node.returns else None,
            type_comment=None,
        )
        return _without_type_parameters(made)

    def _ClassDef(self, node: cst.ClassDef) -> ast.stmt:
        bases = [
            ast.Starred(self.expr(a.value), ast.Load()) if a.star else self.expr(a.value) for a in node.bases
        ]
        made = ast.ClassDef(
            name=node.name.value,
            bases=[
                self._at(b, a) if isinstance(b, ast.Starred) else b
                for b, a in zip(bases, node.bases, strict=True)
            ],
            keywords=[self._keyword(a) for a in node.keywords],
            body=self._block(node.body),
            decorator_list=[self.expr(d.decorator) for d in node.decorators],
        )
        return _without_type_parameters(made)

    # ------------------------------------------------------------------ match
    def _Match(self, node: cst.Match) -> ast.stmt:
        cases = [
            ast.match_case(self.pattern(c.pattern), self.maybe(c.guard), self._block(c.body))
            for c in node.cases
        ]
        return ast.Match(self.expr(node.subject), cases)

    def pattern(self, node: cst.CSTNode) -> ast.pattern:
        """What a case matches."""
        made: ast.pattern = self._at(self._method(node)(node), node)
        return made

    def _MatchValue(self, node: cst.MatchValue) -> ast.pattern:
        return ast.MatchValue(self.expr(node.value))

    def _MatchSingleton(self, node: cst.MatchSingleton) -> ast.pattern:
        return ast.MatchSingleton(_SINGLETONS[node.value.value])

    def _MatchSequence(self, node: Any) -> ast.pattern:
        return ast.MatchSequence([self.pattern(p) for p in node.patterns])

    _MatchList = _MatchTuple = _MatchSequence

    def _MatchSequenceElement(self, node: cst.MatchSequenceElement) -> ast.pattern:
        return self.pattern(node.value)

    def _MatchStar(self, node: cst.MatchStar) -> ast.pattern:
        return ast.MatchStar(node.name.value if node.name else None)

    def _MatchMapping(self, node: cst.MatchMapping) -> ast.pattern:
        keys = [self.expr(e.key) for e in node.elements]
        rest = node.rest.value if node.rest else None
        return ast.MatchMapping(keys, [self.pattern(e.pattern) for e in node.elements], rest)

    def _MatchClass(self, node: cst.MatchClass) -> ast.pattern:
        names = [k.key.value for k in node.kwds]
        keyed = [self.pattern(k.pattern) for k in node.kwds]
        return ast.MatchClass(self.expr(node.cls), [self.pattern(p) for p in node.patterns], names, keyed)

    def _MatchAs(self, node: cst.MatchAs) -> ast.pattern:
        inner = self.pattern(node.pattern) if node.pattern is not None else None
        return ast.MatchAs(inner, node.name.value if node.name else None)

    def _MatchOr(self, node: cst.MatchOr) -> ast.pattern:
        return ast.MatchOr([self.pattern(p.pattern) for p in node.patterns])

    # ------------------------------------------------------------------ calls and parameters
    def _parameters(self, node: cst.Parameters) -> ast.arguments:
        positional = [*node.posonly_params, *node.params]
        return ast.arguments(
            posonlyargs=[self._parameter(p) for p in node.posonly_params],
            args=[self._parameter(p) for p in node.params],
            vararg=self._parameter(node.star_arg) if isinstance(node.star_arg, cst.Param) else None,
            kwonlyargs=[self._parameter(p) for p in node.kwonly_params],
            kw_defaults=[self.maybe(p.default) for p in node.kwonly_params],
            kwarg=self._parameter(node.star_kwarg) if node.star_kwarg else None,
            defaults=[self.expr(p.default) for p in positional if p.default is not None],
        )

    def _parameter(self, node: cst.Param) -> ast.arg:
        annotation = self.expr(node.annotation.annotation) if node.annotation else None
        made: ast.arg = self._at(ast.arg(node.name.value, annotation), node.name if node.star else node)
        return made

    def _keyword(self, node: cst.Arg) -> ast.keyword:
        made: ast.keyword = self._at(
            ast.keyword(node.keyword.value if node.keyword else None, self.expr(node.value)), node
        )
        return made

    def _Call(self, node: cst.Call) -> ast.expr:
        args: list[ast.expr] = []
        keywords: list[ast.keyword] = []
        for a in node.args:
            if a.keyword is not None or a.star == "**":
                keywords.append(self._keyword(a))
            elif a.star:
                args.append(self._at(ast.Starred(self.expr(a.value), ast.Load()), a))
            else:
                args.append(self.expr(a.value))
        return ast.Call(self.expr(node.func), args, keywords)

    def _Lambda(self, node: cst.Lambda) -> ast.expr:
        return ast.Lambda(self._parameters(node.params), self.expr(node.body))

    # ------------------------------------------------------------------ expressions
    def expr(self, node: cst.CSTNode, ctx: ast.expr_context | None = None) -> ast.expr:
        """An expression.

        Args:
            ctx: what is done with it: nothing is to read it.
        """
        made: ast.expr = self._at(self._method(node)(node), node)
        if ctx is not None:
            _set_context(made, ctx)
        return made

    def maybe(self, node: cst.CSTNode | None) -> ast.expr | None:
        """An expression that need not be there."""
        return self.expr(node) if node is not None else None

    def target(self, node: cst.CSTNode) -> Any:
        """A single target of an assignment."""
        return self.expr(node, ast.Store())

    def _Name(self, node: cst.Name) -> ast.expr:
        if node.value in _SINGLETONS:
            return ast.Constant(_SINGLETONS[node.value])
        return ast.Name(node.value, ast.Load())

    def _Attribute(self, node: cst.Attribute) -> ast.expr:
        return ast.Attribute(self.expr(node.value), node.attr.value, ast.Load())

    def _Number(self, node: Any) -> ast.expr:
        return ast.Constant(ast.literal_eval(node.value))

    _Integer = _Float = _Imaginary = _Number

    def _Ellipsis(self, node: cst.Ellipsis) -> ast.expr:
        return ast.Constant(...)

    def _SimpleString(self, node: cst.SimpleString) -> ast.expr:
        return ast.Constant(node.evaluated_value)

    def _ConcatenatedString(self, node: cst.ConcatenatedString) -> ast.expr:
        left, right = self.expr(node.left), self.expr(node.right)
        if isinstance(left, ast.Constant) and isinstance(right, ast.Constant):
            one: Any = left.value
            return ast.Constant(one + right.value)
        return ast.JoinedStr(
            [p for s in (left, right) for p in (s.values if isinstance(s, ast.JoinedStr) else [s])]
        )

    def _FormattedString(self, node: Any) -> ast.expr:
        return ast.JoinedStr([self.expr(p) for p in node.parts])

    def _FormattedStringText(self, node: Any) -> ast.expr:
        return ast.Constant(node.value)

    def _FormattedStringExpression(self, node: Any) -> ast.expr:
        spec = [self.expr(p) for p in node.format_spec or ()]
        conversion = ord(node.conversion) if node.conversion else -1
        return ast.FormattedValue(
            self.expr(node.expression), conversion, ast.JoinedStr(spec) if spec else None
        )

    _TemplatedString = _FormattedString
    _TemplatedStringText = _FormattedStringText
    _TemplatedStringExpression = _FormattedStringExpression

    def _elements(self, node: Any) -> list[ast.expr]:
        return [self.expr(e) for e in node.elements]

    def _Element(self, node: cst.Element) -> ast.expr:
        return self.expr(node.value)

    def _StarredElement(self, node: Any) -> ast.expr:
        return ast.Starred(self.expr(node.value), ast.Load())

    def _Tuple(self, node: cst.Tuple) -> ast.expr:
        return ast.Tuple(self._elements(node), ast.Load())

    def _List(self, node: cst.List) -> ast.expr:
        return ast.List(self._elements(node), ast.Load())

    def _Set(self, node: cst.Set) -> ast.expr:
        return ast.Set(self._elements(node))

    def _Dict(self, node: cst.Dict) -> ast.expr:
        keys = [self.expr(e.key) if isinstance(e, cst.DictElement) else None for e in node.elements]
        return ast.Dict(keys, [self.expr(e.value) for e in node.elements])

    def _UnaryOperation(self, node: cst.UnaryOperation) -> ast.expr:
        return ast.UnaryOp(_UNARY[type(node.operator).__name__](), self.expr(node.expression))

    def _BinaryOperation(self, node: cst.BinaryOperation) -> ast.expr:
        operator = _BINARY[type(node.operator).__name__]()
        return ast.BinOp(self.expr(node.left), operator, self.expr(node.right))

    def _BooleanOperation(self, node: cst.BooleanOperation) -> ast.expr:
        operator = ast.And() if isinstance(node.operator, cst.And) else ast.Or()
        left = self.expr(node.left)
        same = isinstance(left, ast.BoolOp) and isinstance(left.op, type(operator)) and not node.left.lpar
        values = left.values if isinstance(left, ast.BoolOp) and same else [left]
        return ast.BoolOp(operator, [*values, self.expr(node.right)])

    def _Comparison(self, node: cst.Comparison) -> ast.expr:
        operators = [_COMPARE[type(c.operator).__name__]() for c in node.comparisons]
        return ast.Compare(
            self.expr(node.left), operators, [self.expr(c.comparator) for c in node.comparisons]
        )

    def _IfExp(self, node: cst.IfExp) -> ast.expr:
        return ast.IfExp(self.expr(node.test), self.expr(node.body), self.expr(node.orelse))

    def _NamedExpr(self, node: cst.NamedExpr) -> ast.expr:
        return ast.NamedExpr(self.target(node.target), self.expr(node.value))

    def _Await(self, node: cst.Await) -> ast.expr:
        return ast.Await(self.expr(node.expression))

    def _Yield(self, node: cst.Yield) -> ast.expr:
        if isinstance(node.value, cst.From):
            return ast.YieldFrom(self.expr(node.value.item))
        return ast.Yield(self.maybe(node.value))

    def _Subscript(self, node: cst.Subscript) -> ast.expr:
        parts = [self._at(self._index(e.slice), e.slice) for e in node.slice]
        if (
            len(parts) == 1
            and not isinstance(node.slice[0].comma, cst.Comma)
            and not isinstance(parts[0], ast.Starred)
        ):
            return ast.Subscript(self.expr(node.value), parts[0], ast.Load())
        picked = self._at(ast.Tuple(parts, ast.Load()), node.slice[0])
        return ast.Subscript(self.expr(node.value), picked, ast.Load())

    def _index(self, node: cst.BaseSlice) -> ast.expr:
        if isinstance(node, cst.Slice):
            return ast.Slice(self.maybe(node.lower), self.maybe(node.upper), self.maybe(node.step))
        assert isinstance(node, cst.Index)
        return ast.Starred(self.expr(node.value), ast.Load()) if node.star else self.expr(node.value)

    # ------------------------------------------------------------------ comprehensions
    def _clauses(self, node: cst.CompFor | None) -> list[ast.comprehension]:
        found = []
        while node is not None:
            target = self.expr(node.target, ast.Store())
            conditions = [self.expr(c.test) for c in node.ifs]
            found.append(
                ast.comprehension(
                    target, self.expr(node.iter), conditions, int(node.asynchronous is not None)
                )
            )
            node = node.inner_for_in
        return found

    def _GeneratorExp(self, node: cst.GeneratorExp) -> ast.expr:
        return ast.GeneratorExp(self.expr(node.elt), self._clauses(node.for_in))

    def _ListComp(self, node: cst.ListComp) -> ast.expr:
        return ast.ListComp(self.expr(node.elt), self._clauses(node.for_in))

    def _SetComp(self, node: cst.SetComp) -> ast.expr:
        return ast.SetComp(self.expr(node.elt), self._clauses(node.for_in))

    def _DictComp(self, node: cst.DictComp) -> ast.expr:
        return ast.DictComp(self.expr(node.key), self.expr(node.value), self._clauses(node.for_in))

    def _StarredDictComp(self, node: Any) -> ast.expr:
        clauses = self._clauses(node.for_in)
        return ast.ListComp(self.expr(node.value), clauses)  # what the mappings hold is not known


def _dotted(node: Any) -> str:
    return f"{_dotted(node.value)}.{node.attr.value}" if isinstance(node, cst.Attribute) else str(node.value)


def _set_context(node: ast.expr, ctx: ast.expr_context) -> None:
    """Say what is done with a target and its parts."""
    if isinstance(node, (ast.Name, ast.Attribute, ast.Subscript, ast.Starred, ast.Tuple, ast.List)):
        node.ctx = ctx
    inner: Sequence[ast.expr] = ()
    if isinstance(node, (ast.Tuple, ast.List)):
        inner = node.elts
    elif isinstance(node, ast.Starred):
        inner = [node.value]
    for e in inner:
        _set_context(e, ctx)


def _without_type_parameters(made: ast.stmt) -> ast.stmt:
    if "type_params" in made._fields:
        vars(made)["type_params"] = []
    return made
