"""LibCST's nodes made of ``ast``'s: what the interpreter runs.

LibCST's own parser takes ten times as long, most of it for white space that nobody asks about. Where something is
reported it parses the text after all, and :func:`pairs` finds its nodes, which have positions, by those made here.

One file: it is one conversion, a method for each kind of node.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any, TypeVar

import libcst as cst

N = TypeVar("N", bound=cst.CSTNode)

FIELDS: dict[type[cst.CSTNode], tuple[str, ...]] = {
    kind: tuple(fields.split())
    for kind, fields in (
        (cst.Module, "body"),
        (cst.SimpleStatementLine, "body"),
        (cst.IndentedBlock, "body"),
        (cst.SimpleStatementSuite, "body"),
        (cst.FunctionDef, "name params body decorators returns"),
        (cst.Parameters, "params star_arg kwonly_params star_kwarg posonly_params"),
        (cst.ParamStar, ""),
        (cst.Param, "name annotation default"),
        (cst.Annotation, "annotation"),
        (cst.Decorator, "decorator"),
        (cst.ClassDef, "name body bases keywords decorators"),
        (cst.Return, "value"),
        (cst.Del, "target"),
        (cst.Assign, "targets value"),
        (cst.AssignTarget, "target"),
        (cst.AugAssign, "target operator value"),
        (cst.AnnAssign, "target annotation value"),
        (cst.For, "target iter body orelse"),
        (cst.While, "test body orelse"),
        (cst.If, "test body orelse"),
        (cst.Else, "body"),
        (cst.With, "items body"),
        (cst.WithItem, "item asname"),
        (cst.AsName, "name"),
        (cst.Match, "subject cases"),
        (cst.MatchCase, "pattern body guard"),
        (cst.MatchValue, "value"),
        (cst.MatchSingleton, "value"),
        (cst.MatchList, "patterns"),
        (cst.MatchSequenceElement, "value"),
        (cst.MatchMapping, "elements rest"),
        (cst.MatchMappingElement, "key pattern"),
        (cst.MatchClass, "cls patterns kwds"),
        (cst.MatchKeywordElement, "key pattern"),
        (cst.MatchStar, "name"),
        (cst.MatchAs, "pattern name"),
        (cst.MatchOr, "patterns"),
        (cst.MatchOrElement, "pattern"),
        (cst.Raise, "exc cause"),
        (cst.From, "item"),
        (cst.Try, "body handlers orelse finalbody"),
        (cst.TryStar, "body handlers orelse finalbody"),
        (cst.ExceptHandler, "body type name"),
        (cst.ExceptStarHandler, "body type name"),
        (cst.Finally, "body"),
        (cst.Assert, "test msg"),
        (cst.Import, "names"),
        (cst.ImportFrom, "module names"),
        (cst.ImportAlias, "name asname"),
        (cst.ImportStar, ""),
        (cst.Global, "names"),
        (cst.Nonlocal, "names"),
        (cst.NameItem, "name"),
        (cst.Expr, "value"),
        (cst.Pass, ""),
        (cst.Break, ""),
        (cst.Continue, ""),
        (cst.BooleanOperation, "left operator right"),
        (cst.NamedExpr, "target value"),
        (cst.BinaryOperation, "left operator right"),
        (cst.UnaryOperation, "operator expression"),
        (cst.Lambda, "params body"),
        (cst.IfExp, "test body orelse"),
        (cst.Dict, "elements"),
        (cst.DictElement, "key value"),
        (cst.StarredDictElement, "value"),
        (cst.Set, "elements"),
        (cst.List, "elements"),
        (cst.Tuple, "elements"),
        (cst.Element, "value"),
        (cst.StarredElement, "value"),
        (cst.ListComp, "elt for_in"),
        (cst.SetComp, "elt for_in"),
        (cst.GeneratorExp, "elt for_in"),
        (cst.DictComp, "key value for_in"),
        (cst.CompFor, "target iter ifs inner_for_in"),
        (cst.CompIf, "test"),
        (cst.Await, "expression"),
        (cst.Yield, "value"),
        (cst.Comparison, "left comparisons"),
        (cst.ComparisonTarget, "operator comparator"),
        (cst.Call, "func args"),
        (cst.Arg, "value keyword star"),
        (cst.FormattedString, "parts"),
        (cst.FormattedStringText, "value"),
        (cst.FormattedStringExpression, "expression conversion format_spec"),
        (cst.SimpleString, "value"),
        (cst.Integer, "value"),
        (cst.Float, "value"),
        (cst.Imaginary, "value"),
        (cst.Ellipsis, ""),
        (cst.Attribute, "value attr"),
        (cst.Subscript, "value slice"),
        (cst.SubscriptElement, "slice"),
        (cst.Index, "value"),
        (cst.Slice, "lower upper step"),
        (cst.Name, "value"),
    )
}
"""The fields that are set; others of a node that is made here are not to be read."""

_new = object.__new__
_SETTERS = {kind: tuple(getattr(kind, name).__set__ for name in fields) for kind, fields in FIELDS.items()}


def _node(kind: type[N], *values: object) -> N:
    """A node of its fields, without the layout that it would make up, and without a check."""
    node = _new(kind)
    for set_, value in zip(_SETTERS[kind], values, strict=True):
        set_(node, value)
    return node


_OPERATORS: dict[type[ast.AST], Any] = {
    ast.Add: cst.Add(),
    ast.Sub: cst.Subtract(),
    ast.Mult: cst.Multiply(),
    ast.MatMult: cst.MatrixMultiply(),
    ast.Div: cst.Divide(),
    ast.Mod: cst.Modulo(),
    ast.Pow: cst.Power(),
    ast.LShift: cst.LeftShift(),
    ast.RShift: cst.RightShift(),
    ast.BitOr: cst.BitOr(),
    ast.BitXor: cst.BitXor(),
    ast.BitAnd: cst.BitAnd(),
    ast.FloorDiv: cst.FloorDivide(),
    ast.Invert: cst.BitInvert(),
    ast.Not: cst.Not(),
    ast.UAdd: cst.Plus(),
    ast.USub: cst.Minus(),
    ast.And: cst.And(),
    ast.Or: cst.Or(),
    ast.Eq: cst.Equal(),
    ast.NotEq: cst.NotEqual(),
    ast.Lt: cst.LessThan(),
    ast.LtE: cst.LessThanEqual(),
    ast.Gt: cst.GreaterThan(),
    ast.GtE: cst.GreaterThanEqual(),
    ast.Is: cst.Is(),
    ast.IsNot: cst.IsNot(),
    ast.In: cst.In(),
    ast.NotIn: cst.NotIn(),
}
_AUGMENTED: dict[type[ast.AST], Any] = {
    ast.Add: cst.AddAssign(),
    ast.Sub: cst.SubtractAssign(),
    ast.Mult: cst.MultiplyAssign(),
    ast.MatMult: cst.MatrixMultiplyAssign(),
    ast.Div: cst.DivideAssign(),
    ast.Mod: cst.ModuloAssign(),
    ast.Pow: cst.PowerAssign(),
    ast.LShift: cst.LeftShiftAssign(),
    ast.RShift: cst.RightShiftAssign(),
    ast.BitOr: cst.BitOrAssign(),
    ast.BitXor: cst.BitXorAssign(),
    ast.BitAnd: cst.BitAndAssign(),
    ast.FloorDiv: cst.FloorDivideAssign(),
}


def _name(word: str) -> cst.Name:
    return _node(cst.Name, word)


# -- expressions -----------------------------------------------------------------------------------------------------


def expression(node: ast.expr) -> Any:
    """An expression."""
    made = _EXPRESSIONS.get(type(node))
    return made(node) if made is not None else _node(cst.Ellipsis)


def _optional(node: ast.expr | None) -> Any:
    return None if node is None else expression(node)


def _constant(node: ast.Constant) -> cst.BaseExpression:
    value = node.value
    if isinstance(value, (str, bytes)):
        return _node(cst.SimpleString, repr(value))
    if value is None or isinstance(value, bool):
        return _name(repr(value))
    if isinstance(value, int):
        return _node(cst.Integer, hex(value))  # however long it is
    if isinstance(value, float):
        return _node(cst.Float, repr(value))
    if isinstance(value, complex):
        return _node(cst.Imaginary, repr(value))
    return _node(cst.Ellipsis)


def _called(node: ast.Call) -> cst.Call:
    return _node(cst.Call, expression(node.func), _arguments(node.args, node.keywords))


def _arguments(args: Sequence[ast.expr], keywords: Sequence[ast.keyword]) -> list[cst.Arg]:
    """Arguments in the order in which they stand."""
    made = [
        _node(cst.Arg, expression(a.value), None, "*")
        if type(a) is ast.Starred
        else _node(cst.Arg, expression(a), None, "")
        for a in args
    ]
    if not keywords:
        return made
    made += [
        _node(cst.Arg, expression(k.value), _name(k.arg), "")
        if k.arg
        else _node(cst.Arg, expression(k.value), None, "**")
        for k in keywords
    ]
    if args and _place(args[-1]) > _place(keywords[0]):  # a starred one may stand behind a keyword
        places = [*map(_place, args), *map(_place, keywords)]
        made = [made[position] for position in sorted(range(len(made)), key=places.__getitem__)]
    return made


def _place(node: ast.expr | ast.keyword) -> tuple[int, int]:
    return node.lineno, node.col_offset


def _elements(nodes: Sequence[ast.expr]) -> list[cst.BaseElement]:
    return [
        _node(cst.StarredElement, expression(n.value))
        if type(n) is ast.Starred
        else _node(cst.Element, expression(n))
        for n in nodes
    ]


def _folded(node: ast.BoolOp) -> cst.BooleanOperation:
    """``a and b and c``: LibCST's operations have two sides."""
    operator = _OPERATORS[type(node.op)]
    made = expression(node.values[0])
    for value in node.values[1:]:
        made = _node(cst.BooleanOperation, made, operator, expression(value))
    return made  # type: ignore[no-any-return]


def _compare(node: ast.Compare) -> cst.Comparison:
    pairs_ = zip(node.ops, node.comparators, strict=True)
    return _node(
        cst.Comparison,
        expression(node.left),
        [_node(cst.ComparisonTarget, _OPERATORS[type(op)], expression(value)) for op, value in pairs_],
    )


def _subscripted(node: ast.Subscript) -> cst.Subscript:
    inner = node.slice
    parts = [inner]
    # a tuple without parentheses begins where its first element does
    if type(inner) is ast.Tuple and inner.elts:
        if _place(inner.elts[0]) == _place(inner) or any(type(e) is ast.Slice for e in inner.elts):
            parts = inner.elts
    return _node(
        cst.Subscript, expression(node.value), [_node(cst.SubscriptElement, _picked(part)) for part in parts]
    )


def _picked(node: ast.expr) -> cst.BaseSlice:
    if isinstance(node, ast.Slice):
        return _node(cst.Slice, _optional(node.lower), _optional(node.upper), _optional(node.step))
    return _node(cst.Index, expression(node.value if isinstance(node, ast.Starred) else node))


def _interpolated(node: ast.JoinedStr) -> cst.FormattedString:
    return _node(cst.FormattedString, _string_parts(node))


def _string_parts(node: ast.expr) -> list[cst.BaseFormattedStringContent]:
    made: list[cst.BaseFormattedStringContent] = []
    for part in node.values if isinstance(node, ast.JoinedStr) else ():
        if isinstance(part, ast.FormattedValue):
            conversion = chr(part.conversion) if part.conversion >= 0 else None
            shape = None if part.format_spec is None else _string_parts(part.format_spec)
            made.append(_node(cst.FormattedStringExpression, expression(part.value), conversion, shape))
        elif isinstance(part, ast.Constant):
            made.append(_node(cst.FormattedStringText, part.value))
    return made


def _dict(node: ast.Dict) -> cst.Dict:
    return _node(
        cst.Dict,
        [
            _node(cst.StarredDictElement, expression(value))
            if key is None
            else _node(cst.DictElement, expression(key), expression(value))
            for key, value in zip(node.keys, node.values, strict=True)
        ],
    )


def _clauses(generators: Sequence[ast.comprehension]) -> cst.CompFor:
    """The ``for`` clauses of a comprehension, one inside another."""
    made = None
    for generator in reversed(generators):
        ifs = [_node(cst.CompIf, expression(test)) for test in generator.ifs]
        made = _node(cst.CompFor, expression(generator.target), expression(generator.iter), ifs, made)
    assert made is not None
    return made


def _lambda(node: ast.Lambda) -> cst.Lambda:
    return _node(cst.Lambda, _signature(node.args), expression(node.body))


def _signature(node: ast.arguments) -> cst.Parameters:
    positional = [*node.posonlyargs, *node.args]
    defaults = [*[None] * (len(positional) - len(node.defaults)), *node.defaults]
    made = [_parameter(a, d) for a, d in zip(positional, defaults, strict=True)]
    star: cst.Param | cst.ParamStar | None = None
    if node.vararg is not None:
        star = _parameter(node.vararg, None)
    elif node.kwonlyargs:
        star = _node(cst.ParamStar)
    return _node(
        cst.Parameters,
        made[len(node.posonlyargs) :],
        star,
        [_parameter(a, d) for a, d in zip(node.kwonlyargs, node.kw_defaults, strict=True)],
        None if node.kwarg is None else _parameter(node.kwarg, None),
        made[: len(node.posonlyargs)],
    )


def _parameter(node: ast.arg, default: ast.expr | None) -> cst.Param:
    return _node(cst.Param, _name(node.arg), _annotated(node.annotation), _optional(default))


def _annotated(node: ast.expr | None) -> cst.Annotation | None:
    return None if node is None else _node(cst.Annotation, expression(node))


def _comprehended(kind: type[cst.CSTNode]) -> Callable[[Any], cst.CSTNode]:
    return lambda node: _node(kind, expression(node.elt), _clauses(node.generators))


def _listed(kind: type[cst.CSTNode]) -> Callable[[Any], cst.CSTNode]:
    return lambda node: _node(kind, _elements(node.elts))


def _plainly(kind: type[cst.CSTNode], *fields: str) -> Callable[[Any], cst.CSTNode]:
    """Makes a node whose fields are expressions, or not there."""
    return lambda node: _node(kind, *[_optional(getattr(node, name)) for name in fields])


_EXPRESSIONS: dict[type[ast.expr], Callable[[Any], Any]] = {
    ast.Name: lambda node: _name(node.id),
    ast.Attribute: lambda node: _node(cst.Attribute, expression(node.value), _name(node.attr)),
    ast.Constant: _constant,
    ast.Call: _called,
    ast.Subscript: _subscripted,
    ast.BinOp: lambda node: _node(
        cst.BinaryOperation, expression(node.left), _OPERATORS[type(node.op)], expression(node.right)
    ),
    ast.UnaryOp: lambda node: _node(cst.UnaryOperation, _OPERATORS[type(node.op)], expression(node.operand)),
    ast.BoolOp: _folded,
    ast.Compare: _compare,
    ast.Tuple: _listed(cst.Tuple),
    ast.List: _listed(cst.List),
    ast.Set: _listed(cst.Set),
    ast.Dict: _dict,
    ast.JoinedStr: _interpolated,
    ast.IfExp: _plainly(cst.IfExp, "test", "body", "orelse"),
    ast.NamedExpr: _plainly(cst.NamedExpr, "target", "value"),
    ast.Lambda: _lambda,
    ast.ListComp: _comprehended(cst.ListComp),
    ast.SetComp: _comprehended(cst.SetComp),
    ast.GeneratorExp: _comprehended(cst.GeneratorExp),
    ast.DictComp: lambda node: _node(
        cst.DictComp, expression(node.key), expression(node.value), _clauses(node.generators)
    ),
    ast.Await: _plainly(cst.Await, "value"),
    ast.Yield: _plainly(cst.Yield, "value"),
    ast.YieldFrom: lambda node: _node(cst.Yield, _node(cst.From, expression(node.value))),
}


# -- statements ------------------------------------------------------------------------------------------------------


class Builder:
    """Makes nodes of statements.

    Args:
        lines: of the file: a body may begin in the line of its head.
        hollow: functions whose bodies are left out.

    Attributes:
        rows: the first and the last row of each function that was made, without its decorators.
    """

    def __init__(self, lines: Sequence[str], hollow: Collection[ast.stmt] = ()) -> None:
        self._lines = lines
        self._hollow = hollow
        self.rows: dict[cst.CSTNode, tuple[int, int]] = {}

    def module(self, statements: Sequence[ast.stmt]) -> cst.Module:
        """Statements of a file."""
        return _node(cst.Module, self._block(statements))

    def _block(self, statements: Sequence[ast.stmt]) -> list[cst.BaseStatement]:
        made: list[Any] = []
        line: list[cst.CSTNode] | None = (
            None  # what simple statements stand together, and in which row it ends
        )
        row = 0
        for statement in statements:
            compound = _COMPOUND.get(type(statement))
            if compound is not None:
                made.append(compound(self, statement))
                line = None
                continue
            if line is None or statement.lineno != row:
                line = []
                made.append(_node(cst.SimpleStatementLine, line))
            line.append(_simple(statement))
            row = statement.end_lineno or 0
        return made

    def _body(self, statements: Sequence[ast.stmt]) -> cst.BaseSuite:
        first = statements[0]
        if type(first) not in _COMPOUND and self._lines[first.lineno - 1][: first.col_offset].strip():
            return _node(cst.SimpleStatementSuite, [_simple(statement) for statement in statements])
        return _node(cst.IndentedBlock, self._block(statements))

    def _otherwise(self, statements: Sequence[ast.stmt]) -> cst.Else | None:
        return _node(cst.Else, self._body(statements)) if statements else None

    def _if(self, node: ast.If) -> cst.If:
        orelse: cst.If | cst.Else | None
        inner = node.orelse
        if len(inner) == 1 and isinstance(inner[0], ast.If) and inner[0].col_offset == node.col_offset:
            orelse = self._if(inner[0])  # an elif
        else:
            orelse = self._otherwise(inner)
        return _node(cst.If, expression(node.test), self._body(node.body), orelse)

    def _while(self, node: ast.While) -> cst.While:
        return _node(cst.While, expression(node.test), self._body(node.body), self._otherwise(node.orelse))

    def _for(self, node: ast.For | ast.AsyncFor) -> cst.For:
        return _node(
            cst.For,
            expression(node.target),
            expression(node.iter),
            self._body(node.body),
            self._otherwise(node.orelse),
        )

    def _with(self, node: ast.With | ast.AsyncWith) -> cst.With:
        items = [
            _node(
                cst.WithItem,
                expression(i.context_expr),
                None if i.optional_vars is None else _node(cst.AsName, expression(i.optional_vars)),
            )
            for i in node.items
        ]
        return _node(cst.With, items, self._body(node.body))

    def _try(self, node: Any) -> cst.CSTNode:
        plain = type(node) is ast.Try
        handler = cst.ExceptHandler if plain else cst.ExceptStarHandler
        return _node(
            cst.Try if plain else cst.TryStar,
            self._body(node.body),
            [
                _node(
                    handler,
                    self._body(h.body),
                    _optional(h.type),
                    None if h.name is None else _node(cst.AsName, _name(h.name)),
                )
                for h in node.handlers
            ],
            self._otherwise(node.orelse),
            _node(cst.Finally, self._body(node.finalbody)) if node.finalbody else None,
        )

    def _match(self, node: ast.Match) -> cst.Match:
        cases = [
            _node(cst.MatchCase, _pattern(c.pattern), self._body(c.body), _optional(c.guard))
            for c in node.cases
        ]
        return _node(cst.Match, expression(node.subject), cases)

    def function(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> cst.FunctionDef:
        """A function."""
        made = _node(
            cst.FunctionDef,
            _name(node.name),
            _signature(node.args),
            _node(cst.IndentedBlock, []) if node in self._hollow else self._body(node.body),
            _decorators(node.decorator_list),
            _annotated(node.returns),
        )
        self.rows[made] = node.lineno, node.end_lineno or node.lineno
        return made

    def _class(self, node: ast.ClassDef) -> cst.ClassDef:
        arguments = _arguments(node.bases, node.keywords)
        return _node(
            cst.ClassDef,
            _name(node.name),
            self._body(node.body),
            [a for a in arguments if a.keyword is None and a.star != "**"],
            [a for a in arguments if a.keyword is not None or a.star == "**"],
            _decorators(node.decorator_list),
        )


_COMPOUND: dict[type[ast.stmt], Callable[[Builder, Any], cst.CSTNode]] = {
    ast.FunctionDef: Builder.function,
    ast.AsyncFunctionDef: Builder.function,
    ast.ClassDef: Builder._class,
    ast.If: Builder._if,
    ast.While: Builder._while,
    ast.For: Builder._for,
    ast.AsyncFor: Builder._for,
    ast.With: Builder._with,
    ast.AsyncWith: Builder._with,
    ast.Try: Builder._try,
    ast.Match: Builder._match,
}
if hasattr(ast, "TryStar"):  # Python 3.11
    _COMPOUND[ast.TryStar] = Builder._try


def _decorators(nodes: Sequence[ast.expr]) -> list[cst.Decorator]:
    return [_node(cst.Decorator, expression(node)) for node in nodes]


def _simple(node: ast.stmt) -> cst.CSTNode:
    """A statement that holds no others; what is not known does nothing."""
    made = _SIMPLE.get(type(node))
    return made(node) if made is not None else _node(cst.Pass)


def _deleted(node: ast.Delete) -> cst.Del:
    single = len(node.targets) == 1
    return _node(
        cst.Del, expression(node.targets[0]) if single else _node(cst.Tuple, _elements(node.targets))
    )


def _annotated_assignment(node: ast.AnnAssign) -> cst.AnnAssign:
    return _node(cst.AnnAssign, expression(node.target), _annotated(node.annotation), _optional(node.value))


def _raised(node: ast.Raise) -> cst.Raise:
    return _node(
        cst.Raise,
        _optional(node.exc),
        None if node.cause is None else _node(cst.From, expression(node.cause)),
    )


def _outer_names(kind: type[cst.CSTNode]) -> Callable[[Any], cst.CSTNode]:
    return lambda node: _node(kind, [_node(cst.NameItem, _name(name)) for name in node.names])


def _dotted(name: str) -> Any:
    made: Any = None
    for part in name.split("."):
        made = _name(part) if made is None else _node(cst.Attribute, made, _name(part))
    return made


def _aliases(nodes: Sequence[ast.alias]) -> list[cst.ImportAlias]:
    return [
        _node(
            cst.ImportAlias, _dotted(n.name), None if n.asname is None else _node(cst.AsName, _name(n.asname))
        )
        for n in nodes
    ]


def _imported_from(node: ast.ImportFrom) -> cst.ImportFrom:
    names = _node(cst.ImportStar) if node.names[0].name == "*" else _aliases(node.names)
    return _node(cst.ImportFrom, _dotted(node.module) if node.module else None, names)


_SIMPLE: dict[type[ast.stmt], Callable[[Any], cst.CSTNode]] = {
    ast.Expr: _plainly(cst.Expr, "value"),
    ast.Assign: lambda node: _node(
        cst.Assign,
        [_node(cst.AssignTarget, expression(target)) for target in node.targets],
        expression(node.value),
    ),
    ast.AugAssign: lambda node: _node(
        cst.AugAssign, expression(node.target), _AUGMENTED[type(node.op)], expression(node.value)
    ),
    ast.AnnAssign: _annotated_assignment,
    ast.Return: _plainly(cst.Return, "value"),
    ast.Raise: _raised,
    ast.Assert: _plainly(cst.Assert, "test", "msg"),
    ast.Delete: _deleted,
    ast.Global: _outer_names(cst.Global),
    ast.Nonlocal: _outer_names(cst.Nonlocal),
    ast.Import: lambda node: _node(cst.Import, _aliases(node.names)),
    ast.ImportFrom: _imported_from,
    ast.Pass: _plainly(cst.Pass),
    ast.Break: _plainly(cst.Break),
    ast.Continue: _plainly(cst.Continue),
}


# -- patterns --------------------------------------------------------------------------------------------------------


def _pattern(node: ast.pattern) -> Any:
    return _PATTERNS[type(node)](node)


def _sequence_pattern(nodes: Sequence[ast.pattern]) -> list[cst.CSTNode]:
    return [
        _pattern(n) if isinstance(n, ast.MatchStar) else _node(cst.MatchSequenceElement, _pattern(n))
        for n in nodes
    ]


def _mapping_pattern(node: ast.MatchMapping) -> cst.MatchMapping:
    elements = [
        _node(cst.MatchMappingElement, expression(k), _pattern(p))
        for k, p in zip(node.keys, node.patterns, strict=True)
    ]
    return _node(cst.MatchMapping, elements, None if node.rest is None else _name(node.rest))


def _class_pattern(node: ast.MatchClass) -> cst.MatchClass:
    named = zip(node.kwd_attrs, node.kwd_patterns, strict=True)
    return _node(
        cst.MatchClass,
        expression(node.cls),
        _sequence_pattern(node.patterns),
        [_node(cst.MatchKeywordElement, _name(k), _pattern(p)) for k, p in named],
    )


_PATTERNS: dict[type[ast.pattern], Callable[[Any], cst.CSTNode]] = {
    ast.MatchValue: _plainly(cst.MatchValue, "value"),
    ast.MatchSingleton: lambda node: _node(cst.MatchSingleton, _name(repr(node.value))),
    ast.MatchSequence: lambda node: _node(cst.MatchList, _sequence_pattern(node.patterns)),
    ast.MatchMapping: _mapping_pattern,
    ast.MatchClass: _class_pattern,
    ast.MatchStar: lambda node: _node(cst.MatchStar, None if node.name is None else _name(node.name)),
    ast.MatchAs: lambda node: _node(
        cst.MatchAs,
        None if node.pattern is None else _pattern(node.pattern),
        None if node.name is None else _name(node.name),
    ),
    ast.MatchOr: lambda node: _node(
        cst.MatchOr, [_node(cst.MatchOrElement, _pattern(p)) for p in node.patterns]
    ),
}


# -- LibCST's own ----------------------------------------------------------------------------------------------------


def pairs(made: cst.CSTNode, parsed: cst.CSTNode) -> Iterator[tuple[cst.CSTNode, cst.CSTNode]]:
    """Each node that was made here with the one that LibCST's parser gives for it."""
    stack: list[tuple[Any, Any]] = [(made, parsed)]
    while stack:
        one, other = stack.pop()
        if isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)):
            stack.extend(zip(one, other, strict=False))
        elif not isinstance(one, cst.CSTNode) or not isinstance(other, cst.CSTNode):
            continue
        elif isinstance(one, cst.FormattedString):  # for ast, strings that stand side by side are one
            yield one, other
            stack.append((list(_shown(one)), list(_shown(other))))
        elif type(one) is type(other):
            yield one, other
            stack.extend((getattr(one, name), getattr(other, name)) for name in FIELDS.get(type(one), ()))


def _shown(node: cst.CSTNode) -> Iterator[cst.CSTNode]:
    """The expressions of formatted strings that stand side by side."""
    if isinstance(node, cst.ConcatenatedString):
        yield from _shown(node.left)
        yield from _shown(node.right)
    elif isinstance(node, cst.FormattedString):
        yield from (part for part in node.parts if isinstance(part, cst.FormattedStringExpression))
