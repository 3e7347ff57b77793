"""What a rule is, and all rules: those of `streamsafe.rules` and those of the entry-point group of the same name.

A rule is a predicate on a conflict's facts, its words, and two examples that are run as tests. No rule is imported
until the first question, so that a run without findings pays for none.
"""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from types import ModuleType
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


PACKAGE: Final = "streamsafe.rules"
CODE = re.compile(r"[A-Z]{2,}[0-9]{3}")


class RegistryError(Exception):
    """A rule that cannot be loaded, two rules with one code, or a selector that names no rule."""


@cache
def all_rules() -> Mapping[str, Rule]:
    """Every rule by its code, in the order of the codes.

    Raises:
        RegistryError: a third party's rule cannot be imported, is no rule, or takes a code that is taken.
    """
    rules: dict[str, Rule] = {}
    for kind in _rule_types():
        rule = kind()
        if not CODE.fullmatch(rule.code):
            raise RegistryError(f"{kind.__module__}: {rule.code!r} is no rule code (as in SS101)")
        other = rules.setdefault(rule.code, rule)
        if other is not rule:
            raise RegistryError(f"{kind.__module__}: code {rule.code} is taken by {type(other).__module__}")
    return dict(sorted(rules.items()))


def _rule_types() -> Iterator[type[Rule]]:
    package = importlib.import_module(PACKAGE)
    for info in pkgutil.iter_modules(package.__path__):
        yield from _rules_in(importlib.import_module(f"{PACKAGE}.{info.name}"))
    from importlib.metadata import entry_points

    for point in entry_points(group=PACKAGE):
        try:
            loaded = point.load()
        except Exception as error:
            raise RegistryError(f"cannot load the rule {point.name!r} ({point.value}): {error}") from error
        if isinstance(loaded, ModuleType):
            yield from _rules_in(loaded)
        elif isinstance(loaded, type) and issubclass(loaded, Rule):
            yield loaded
        else:
            raise RegistryError(
                f"the entry point {point.name!r} ({point.value}) is neither a rule nor a module"
            )


def _rules_in(module: ModuleType) -> Iterator[type[Rule]]:
    for value in vars(module).values():
        if isinstance(value, type) and issubclass(value, Rule) and value.__module__ == module.__name__:
            yield value


@cache
def _by_name() -> Mapping[str, Rule]:
    return {rule.name: rule for rule in all_rules().values()}


@cache
def _by_rank() -> tuple[Rule, ...]:
    return tuple(sorted(all_rules().values(), key=lambda rule: (rule.rank, rule.code)))


def find_rule(code_or_name: str) -> Rule | None:
    """The rule with this code (in any case) or name; None when there is none."""
    return all_rules().get(code_or_name.upper()) or _by_name().get(code_or_name.lower())


def code_for(conflict: Conflict) -> Hazard:
    """The conflict under the code of the first rule that matches, by rank.

    Raises:
        RegistryError: no rule matches.
    """
    for candidate in _by_rank():
        if candidate.matches(conflict):
            return candidate.hazard(conflict)
    raise RegistryError(f"no rule matches {conflict.facts}")


def select(layers: Iterable[tuple[Iterable[str] | None, Iterable[str], Iterable[str]]]) -> frozenset[str]:
    """The codes that are on after all layers of (select, extend-select, ignore), the weakest layer first.

    A selector is a code, the beginning of codes (``SS1``), a name, or ``ALL``. Within a layer the more specific
    selector wins; a layer with ``select`` starts anew. With no ``select`` at all the default rules are on.

    Raises:
        RegistryError: a selector names no rule.
    """
    chosen = {code for code, rule in all_rules().items() if rule.default}
    for selected, extended, ignored in layers:
        if selected is not None:
            chosen = set()
        verdicts = [(*_resolve(text), True) for text in (*(selected or ()), *extended)]
        verdicts += [(*_resolve(text), False) for text in ignored]
        for _, codes, on in sorted(verdicts, key=lambda verdict: verdict[0]):
            chosen = chosen | codes if on else chosen - codes
    return frozenset(chosen)


def _resolve(selector: str) -> tuple[int, frozenset[str]]:
    """How specific a selector is, and the codes that it means."""
    if selector == "ALL":
        return 0, frozenset(all_rules())
    exact = find_rule(selector)
    if exact is not None:
        return 100, frozenset({exact.code})
    codes = frozenset(code for code in all_rules() if code.startswith(selector.upper()))
    if not codes or not selector:
        raise RegistryError(
            f"no rule has the code, the prefix or the name {selector!r}; see `streamsafe rules`"
        )
    return len(selector), codes


def codes_of(selector: str) -> frozenset[str]:
    """The codes that a selector means.

    Raises:
        RegistryError: it names no rule.
    """
    return _resolve(selector)[1]
