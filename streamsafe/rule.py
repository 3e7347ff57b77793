"""What a rule is: a predicate on a conflict's facts, its words, and two examples that are run as tests."""

from __future__ import annotations

from typing import ClassVar, Final, Literal

from streamsafe.order.hazard import SEVERITIES as SEVERITIES
from streamsafe.order.hazard import Conflict, Hazard
from streamsafe.order.hazard import Severity as Severity

DOCUMENTATION: Final = "https://streamsafe.readthedocs.io/en/latest/"
"""Where the site is published; `site_url` in mkdocs.yml is the same address."""


def rule_page(name: str) -> str:
    """The address of a rule's page, by the rule's name."""
    return f"{DOCUMENTATION}rules/{name}/"


class Rule:
    """Base of all rules, ours and third parties' (entry-point group ``streamsafe.rules``).

    A subclass lives in a module of its own whose docstring is the rule's documentation, under the headings
    ``## What it does``, ``## Why is this bad?``, ``## Example``, ``Use instead:`` and ``## References``.

    Attributes:
        code: ``SS`` and three digits, never reused.
        name: the pattern, in kebab case.
        severity: ``error``, ``warning`` or ``advice``.
        rank: place in the order in which rules are asked; of the rules that match, the lowest rank wins.
        default: whether the rule is on when nothing is selected.
        place: which of the two accesses the finding stands on.
        fix: whether `--fix` can repair it: ``safe`` (the program does the same), ``unsafe`` (it waits more) or not.
        sides: who can find it: ``check`` (from source), ``run`` (while the program runs).
        bad, good: complete modules; ``bad`` marks the finding's line with ``# expect: CODE``, ``good`` is silent.
    """

    code: ClassVar[str]
    name: ClassVar[str]
    severity: ClassVar[Severity] = "error"
    rank: ClassVar[int]
    default: ClassVar[bool] = True
    place: ClassVar[Literal["first", "second"]] = "second"
    fix: ClassVar[Literal["safe", "unsafe"] | None] = None
    sides: ClassVar[tuple[Literal["check", "run"], ...]] = ("check", "run")
    bad: ClassVar[str]
    good: ClassVar[str]

    @classmethod
    def documentation(cls) -> str:
        """The module's docstring, in Markdown."""
        import inspect

        module = inspect.getmodule(cls)
        return inspect.cleandoc((module and module.__doc__) or "")

    @property
    def url(self) -> str:
        """The address of its documentation; a third party's rule has none unless it says so."""
        return rule_page(self.name) if type(self).__module__.startswith("streamsafe.rules.") else ""

    def matches(self, conflict: Conflict) -> bool:
        """Whether a conflict with these facts is this rule's."""
        return conflict.facts.violation == self.name

    def message(self, conflict: Conflict) -> str:
        """One sentence that names both accesses and the edge that is missing."""
        raise AssertionError(f"{self.code} has no message")

    def help(self, conflict: Conflict) -> str:
        """How to add the missing edge, in one line."""
        return conflict.missing.fix if conflict.missing else ""

    def hazard(self, conflict: Conflict) -> Hazard:
        """The conflict under this rule's code."""
        return Hazard(
            code=self.code,
            name=self.name,
            message=self.message(conflict),
            first=conflict.first,
            second=conflict.second,
            memory=conflict.memory,
            missing=conflict.missing,
            edges=conflict.edges,
            notes=conflict.notes,
            confidence=conflict.confidence,
            latent=conflict.latent,
            help=self.help(conflict),
            witness=conflict.witness,
            assumptions=conflict.assumptions,
            further=conflict.further,
            facts=conflict.facts,
        )
