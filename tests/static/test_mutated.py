"""No mutated program makes the analysis crash: fixtures with statements and expressions dropped and swapped."""

from __future__ import annotations

import ast
import copy
import random
from pathlib import Path

import pytest

from streamsafe.project.text import SourceError
from streamsafe.static.analyze import analyze

FIXTURES = sorted(Path(__file__).parents[2].joinpath("fixtures", "static").rglob("*.py"))
FEW = 15
MANY = 1000
MUTATIONS = 4
"""Of each file."""


def mutate(tree: ast.Module, dice: random.Random) -> None:
    """Change a syntax tree in one place; what comes out may be nonsense, and need not even compile."""
    bodies = [
        body
        for node in ast.walk(tree)
        for name in ("body", "orelse", "finalbody")
        if isinstance(body := getattr(node, name, None), list) and body
    ]
    slots = [
        (node, name)
        for node in ast.walk(tree)
        for name, part in ast.iter_fields(node)
        if isinstance(part, ast.expr) and isinstance(getattr(part, "ctx", ast.Load()), ast.Load)
    ]
    kind = dice.randrange(6)
    body = dice.choice(bodies)
    at = dice.randrange(len(body))
    if kind == 0:
        body[at : at + 1] = [ast.Pass()]
    elif kind == 1:
        body.insert(at, copy.deepcopy(dice.choice(dice.choice(bodies))))
    elif kind == 2:
        dice.shuffle(body)
    elif kind == 3 and slots:
        node, name = dice.choice(slots)
        other, from_ = dice.choice(slots)
        setattr(node, name, copy.deepcopy(getattr(other, from_)))
    elif kind == 4:
        calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
        if calls:
            call = dice.choice(calls)
            dice.shuffle(call.args)
            if call.args and dice.random() < 0.5:
                call.args[0] = ast.Starred(call.args[0])
            elif call.keywords and dice.random() < 0.5:
                call.keywords.pop()
    else:
        loop = ast.For(ast.Name("again", ast.Store()), ast.Name("many", ast.Load()), body[at:], [])
        body[at:] = [
            dice.choice([loop, ast.Try(body[at:], [ast.ExceptHandler(None, None, [ast.Pass()])], [], [])])
        ]


def mutated(number: int) -> str:
    """The text of one mutated fixture, the same in every run."""
    dice = random.Random(number)
    while True:
        tree = ast.parse(dice.choice(FIXTURES).read_text(encoding="utf-8"))
        for _ in range(MUTATIONS):
            mutate(tree, dice)
        try:
            text = ast.unparse(ast.fix_missing_locations(tree))
            ast.parse(text)
        except (SyntaxError, ValueError, RecursionError):
            continue
        return text


def test_no_mutated_fixture_makes_the_analysis_crash(request: pytest.FixtureRequest) -> None:
    """``--all`` takes a thousand."""
    crashes = []
    for number in range(MANY if request.config.getoption("--all") else FEW):
        try:
            analyze(mutated(number), "mutated.py")
        except SourceError:
            pass  # only compiling shows that it is none
        except Exception as error:
            crashes.append((number, f"{type(error).__name__}: {error}"))
    assert not crashes
