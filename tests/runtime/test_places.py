"""Names of what a call makes, from the byte code of the line that calls."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from streamsafe.runtime.places import Site, assigned, capture, frames


@pytest.mark.parametrize(
    ("statement", "names"),
    [
        ("x = made()", ["x"]),
        ("x: int = made()", ["x"]),
        ("x = y = made()", ["x"]),
        ("x = y.a = made()", ["x"]),
        ("(x := made())", ["x"]),
        ("x = given(x := made())", ["x"]),
        ("self.x = made()", ["self.x"]),
        ("self.x, y = made(), made()", ["self.x", "y"]),
        ("x, y = made(), 1", ["x"]),
        ("x, y = 1, made()", ["y"]),
        ("x, y = y, made()", ["y"]),
        ("x, y = made(), y", ["x"]),
        ("x, y, z = 1, made(), 2", ["y"]),
        ("x, y, z = made(), made(), made()", ["x", "y", "z"]),
        ("x, y, z, w = made(), made(), made(), made()", ["x", "y", "z", "w"]),
        ("global G; G = made()", ["G"]),
        ("made()", [""]),
        ("return made()", [""]),
        ("x[0] = made()", [""]),
        ("x = [made()]", [""]),
        ("x = (made(), 2)", [""]),
        ("x = {'k': made()}", [""]),
        ("x = made().a", [""]),
        ("x = made() + 1", [""]),
        ("x = given(made())", [""]),
        ("x = given(1, made())", [""]),
        ("x = given(key=made())", [""]),
        ("x, (y, z) = 1, (made(), 2)", [""]),
    ],
)
def test_assigned(statement: str, names: list[str]) -> None:
    found = []

    def made() -> Any:
        caller = sys._getframe(1)
        found.append(assigned(caller.f_code, caller.f_lasti))
        return Made()

    variables: dict[str, Any] = {"made": made, "given": lambda *given, **named: None}
    exec(f"def run(self, x, y):\n    {statement}\n", variables)
    variables["run"](SimpleNamespace(), {}, SimpleNamespace())
    assert found == names


class Made:
    a = 0

    def __add__(self, other: int) -> int:
        return other


def test_a_place_is_a_line_and_three_callers() -> None:
    def one() -> Site:
        return capture(0)

    def two() -> Site:
        return one()

    def three() -> Site:
        return two()

    def four() -> Site:
        return three()

    assert [each.function.rpartition(".")[2] for each in frames(four())] == ["one", "two", "three", "four"]
