"""``match`` statements: which pattern fits, and what it binds."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from streamsafe.static.state import State
from streamsafe.static.transfer.part import Part
from streamsafe.static.transfer.tensors import Call
from streamsafe.static.values import NONE, UNKNOWN, Const, Opaque, Union, Value

if TYPE_CHECKING:
    from streamsafe.static.transfer.run_state import RunState


class Patterns(Part):
    """Runs ``match`` statements."""

    def __init__(self, run: RunState) -> None:
        super().__init__(run)
        self.equalities: dict[cst.MatchValue, cst.Comparison] = {}
        """By pattern, the comparison that it asks."""

    def match_statement(self, node: cst.Match, st: State) -> None:
        """``match subject:``."""
        subject = self.expressions.eval(node.subject, st)
        ends: list[State | None] = []
        for case in node.cases:
            if st.dead:
                break
            branch = st.copy()
            fits = self._fits(case.pattern, subject, branch)
            if fits is None and type(case.pattern) is cst.MatchValue:
                outcomes = self.predicates.test(self._equality(node.subject, case.pattern), branch)
                self.paths.enter_branch(node.subject, outcomes, True, branch)
                self.paths.enter_branch(node.subject, outcomes, False, st)
            if fits is False or branch.dead:
                continue
            self.capture_pattern(case.pattern, subject, branch)
            if case.guard is not None:
                outcomes = self.predicates.test(case.guard, branch)
                otherwise = branch.copy()
                self.paths.enter_branch(case.guard, outcomes, True, branch)
                self.paths.enter_branch(case.guard, outcomes, False, otherwise)
                if fits:
                    self.paths.settle(st, None if otherwise.dead else otherwise)
            elif fits:
                st.dead = True  # no other case is looked at
            if not branch.dead:
                self.statements.suite(case.body, branch)
            ends.append(branch)
        self.paths.settle(st, self.paths.joined([*ends, st.copy()]))

    def _equality(self, subject: cst.BaseExpression, pattern: cst.MatchValue) -> cst.Comparison:
        """The comparison that a pattern stands for: it is the same each time."""
        made = self.equalities.get(pattern)
        if made is None:
            target = cst.ComparisonTarget(cst.Equal(), pattern.value)
            made = self.equalities[pattern] = cst.Comparison(subject, [target])
        return made

    def _fits(self, pattern: cst.CSTNode, subject: Value, st: State) -> bool | None:
        """Whether a value fits a pattern; None where that is not known."""
        if isinstance(pattern, cst.MatchAs):
            return True if pattern.pattern is None else self._fits(pattern.pattern, subject, st)
        if isinstance(pattern, cst.MatchOr):
            fits = [self._fits(inner.pattern, subject, st) for inner in pattern.patterns]
            return True if True in fits else None if None in fits else False
        if isinstance(pattern, (cst.MatchValue, cst.MatchSingleton)):
            value = self.expressions.eval(pattern.value, st)
            if (
                isinstance(value, Const)
                and isinstance(subject, Const)
                and ... not in (value.value, subject.value)
            ):
                return type(value.value) is type(subject.value) and bool(value.value == subject.value)
            if subject != UNKNOWN and value == NONE and not isinstance(subject, (Const, Opaque, Union)):
                return False
            return None
        if isinstance(pattern, cst.MatchClass):
            kind = self.expressions.eval(pattern.cls, st)
            answer = self.builtin_functions.do_isinstance(
                Call(pattern, self.call_stack.site(pattern), [subject, kind]), st
            )
            known = isinstance(answer, Const) and type(answer.value) is bool
            if known and not answer.value:  # type: ignore[attr-defined]
                return False
            return True if known and not (pattern.patterns or pattern.kwds) else None
        items = self.iterables.known_items(subject, st) if isinstance(pattern, cst.MatchSequence) else None
        if items is None:
            return None
        starred = any(isinstance(p, cst.MatchStar) for p in pattern.patterns)  # type: ignore[attr-defined]
        if not starred and len(items) != len(pattern.patterns):  # type: ignore[attr-defined]
            return False
        if starred:
            return None
        fits = [self._fits(p.value, item, st) for p, item in zip(pattern.patterns, items, strict=True)]  # type: ignore[attr-defined]
        return False if False in fits else None if None in fits else True

    def capture_pattern(self, pattern: cst.CSTNode, subject: Value, st: State) -> None:
        """Names that a pattern binds."""
        if isinstance(pattern, cst.MatchAs):
            if pattern.name is not None:
                self.statements.bind(pattern.name.value, subject, st)
            if pattern.pattern is not None:
                self.capture_pattern(pattern.pattern, subject, st)
            return
        items = getattr(pattern, "patterns", None) or getattr(pattern, "elements", None) or ()
        for position, item in enumerate(items):
            inner = getattr(item, "value", None) or getattr(item, "pattern", None)
            if isinstance(inner, cst.CSTNode):
                self.capture_pattern(inner, self.elements.element(subject, Const(position), st), st)
        for item in getattr(pattern, "kwds", ()):
            self.capture_pattern(
                item.pattern, self.attributes.attribute(subject, item.key.value, st, item), st
            )
