"""Random programs that use every statement and expression whose meaning does not depend on when a generator runs.

``t(n)`` appends to a log and gives n; ``boom(n)`` raises now and then; ``Manager(n)`` logs its enter and exit and
swallows some exceptions. A program is run by CPython and from the intermediate representation: they must agree.
"""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable
from types import CodeType
from typing import TypeAlias

Text: TypeAlias = Callable[[], str]
Lines: TypeAlias = Callable[..., list[str]]


def compiled(source: str) -> CodeType:
    """A program for CPython; that it compares literals with ``is`` is no mistake of a random one."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return compile(source, "program", "exec")


class Programs:
    """Writes a program.

    Args:
        seed: of the choices.
    """

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.count = 0
        self.functions = 0

    def number(self) -> int:
        self.count += 1
        return self.count

    def pick(self, *choices: str) -> str:
        return self.random.choice(choices)

    # -- expressions -----------------------------------------------------------------------------------------------
    def expression(self, depth: int, names: list[str]) -> str:
        if depth <= 0:
            return self.pick(f"t({self.number()})", *(names or ["3"]), "2", "None", "'ab'", "True")
        e: Text = lambda: self.expression(depth - 1, names)  # noqa: E731
        k = self.random.randrange(24)
        simple: dict[int, Text] = {
            0: lambda: f"({e()} + {self.number()} if isinstance({e()}, int) else {e()})",
            1: lambda: f"({e()} and {e()})",
            2: lambda: f"({e()} or {e()} or {e()})",
            3: lambda: f"(not {e()})",
            4: lambda: f"[{e()}, *[{e()}, {e()}]]",
            5: lambda: f"({e()}, {e()})",
            6: lambda: f"{{'k': {e()}, **{{'m': {e()}}}}}",
            7: lambda: f"[{e()}, {e()}, {e()}][{self.pick('0', '-1', '1:', '::2', ':2')}]",
            8: lambda: f"show({e()}, *({e()},), key={e()}, **{{'z': {e()}}})",
            9: lambda: f"({e()} == {e()})",
            10: lambda: f"({e()} is None)",
            11: lambda: f"(t(1) < t({self.number()}) < t(3))",
            12: lambda: f"[({e()}, v) for v in range(3) if v != {self.random.randrange(3)}]",
            13: lambda: f"{{v: (z, {e()}) for v in (1, 2) for z in range(v)}}",
            14: lambda: f"(lambda p, q={e()}: (p, q, {e()}))({e()})",
            15: lambda: f"boom({self.number()})",
            16: lambda: f"(w := {e()})",
            17: lambda: f"f'{{t({self.number()})}}{{str(a)}}'",
            18: lambda: f"sorted({{t(1), {self.random.randrange(5)}}})",
            19: lambda: (
                f"list(str((u, {e()})) for u in (1, None, b) if u is not {self.pick('None', 'True', 'a')})"
            ),
            20: lambda: f"({e()} in [{e()}, {e()}])",
            21: lambda: f"box({e()}).value",
            22: lambda: f"[x for x in [[y for y in range(x)] for x in range(3)]]",  # noqa: F541
            23: lambda: "(-t(2) + ~t(1) * 3 % 2)",
        }
        return simple[k]()

    def condition(self, names: list[str]) -> str:
        return self.pick(
            self.expression(1, names),
            f"{self.expression(0, names)} is not None",
            f"{self.expression(0, names)} == 2",
            f"{self.expression(0, names)} in (1, 2, None)",
            f"not {self.expression(1, names)}",
            f"{self.expression(0, names)} and not isinstance({self.expression(0, names)}, int)",
            f"{self.expression(0, names)} or {self.expression(0, names)} is None",
            f"t({self.number()}) % 2",
        )

    # -- statements ------------------------------------------------------------------------------------------------
    def block(self, depth: int, names: list[str], loop: bool, function: bool) -> list[str]:
        lines: list[str] = []
        names = list(names)
        for _ in range(self.random.randrange(1, 4)):
            lines += self.statement(depth, names, loop, function)
        return lines

    def indented(self, depth: int, names: list[str], loop: bool, function: bool) -> list[str]:
        return ["    " + line for line in self.block(depth - 1, names, loop, function)]

    def statement(self, depth: int, names: list[str], loop: bool, function: bool) -> list[str]:
        inner: Lines = lambda inside=loop: self.indented(depth, names, inside, function)  # noqa: E731
        e: Text = lambda: self.expression(self.random.randrange(3), names)  # noqa: E731
        k = self.random.randrange(28) if depth > 0 else self.random.randrange(12)
        if k == 0:
            return [f"a = {e()}"]
        if k == 1:
            return [f"b, *c = {e()}, {e()}, {e()}"]
        if k == 2:
            return [f"box.shared = {e()}", "a = box.shared"]
        if k == 3:
            return ["items[1:2] = [t(9)]", f"items[0] = {e()}", "a = len(items)"]
        if k == 4:
            return ["n = t(4)", f"n += {self.number()}", "items += [n]"]
        if k == 5:
            return [f"t({self.number()})", f"assert {self.condition(names)}, {e()}"]
        if k == 6:
            return (
                [f"raise {self.pick('ValueError', 'KeyError', 'TypeError(1)')}"]
                if self.random.random() < 0.3
                else [f"x = {e()}"]
            )
        if k == 7 and function:
            return [f"return {e()}"]
        if k == 8 and loop:
            return [self.pick("break", "continue")]
        if k == 9:
            return [f"a = b = {e()}", "del b", "b = a"]
        if k <= 11:
            return [f"log.append(({e()}, a))"]
        if k <= 13:
            lines = [f"if {self.condition(names)}:", *inner()]
            if self.random.random() < 0.5:
                lines += [f"elif {self.condition(names)}:", *inner()]
            return [*lines, "else:", *inner()] if self.random.random() < 0.6 else lines
        if k <= 15:
            source = self.pick("range(3)", "(1, 2)", "[t(5)]", "()", "list(items)[:3]", "gen(2)")
            lines = [f"for {self.pick('i', 'a')} in {source}:", *inner(True)]
            return [*lines, "else:", *inner()] if self.random.random() < 0.4 else lines
        if k == 16:
            name = f"k{self.number()}"
            lines = [f"{name} = 0", f"while {name} < 3:", f"    {name} += 1", *inner(True)]
            return [*lines, "else:", *inner()] if self.random.random() < 0.4 else lines
        if k <= 19:
            lines = ["try:", *inner()]
            handlers = self.random.random() < 0.8
            if handlers:
                lines += [
                    f"except {self.pick('ValueError', '(KeyError, TypeError)', 'Exception')}"
                    + self.pick(":", " as err:"),
                    *inner(),
                ]
                if self.random.random() < 0.3:
                    lines += ["except IndexError:", "    raise"]
                if self.random.random() < 0.4:
                    lines += ["else:", *inner()]
            if not handlers or self.random.random() < 0.5:
                lines += ["finally:", *inner()]
            return lines
        if k <= 21:
            more = f", Manager({self.number()})" if self.random.random() < 0.3 else ""
            return [f"with Manager({self.number()}){self.pick('', ' as m')}{more}:", *inner()]
        if k == 22:
            return self.match(depth, names, loop, function)
        if k == 23:
            return self.nested(depth, names)
        if k == 24:
            return self.class_(depth, names)
        if k == 25:
            return ["if True:", *inner(), "if 0:", "    t(-1)"]
        if k == 26:
            return [f"a = {e()}", f"if (y := {e()}) is None:", *inner()]
        return [f"a, b = {e()}, {e()}", "a, b = b, a", "items.append(a)"]

    def match(self, depth: int, names: list[str], loop: bool, function: bool) -> list[str]:
        subject = self.pick(
            "(1, 2)", "{'k': t(1), 'z': 2}", "box(t(3))", "t(2)", "[1, [2, 3], 4]", self.expression(1, names)
        )
        patterns = [
            "1 | 2 as a",
            "[a, b]",
            "[a, *c]",
            "{'k': a, **rest}",
            "box(value=a)",
            "box(a)",
            "int(a)",
            "[a, [b, *_], c] if t(1)",
            "None",
            "(0 | None) | str()",
            "True",
        ]
        lines = [f"match {subject}:"]
        for pattern in self.random.sample(patterns, 4):
            lines += [f"    case {pattern}:"] + [
                "    " + line for line in self.indented(depth, names, loop, function)
            ]
        return [*lines, "    case _:", f"        t({self.number()})"]

    def nested(self, depth: int, names: list[str]) -> list[str]:
        self.functions += 1
        name = f"f{self.functions}"
        body = self.indented(depth, [*names, "p"], False, True)
        star = self.pick("", ", *rest", ", key=None, **more", ", *, key=t(6)")
        decorator = ["@keep"] if self.random.random() < 0.3 else []
        head = [
            f"def {name}(p, q={self.expression(1, names)}{star}):",
            "    a = b = i = m = y = w = None",
            "    c = []",
        ]
        if self.random.random() < 0.4:
            head += [
                "    nonlocal_probe = [p]",
                "    def bump():",
                "        nonlocal p",
                "        p = (p, 1)",
                "        return p",
                "    log.append((p, bump(), p))",
            ]
        if self.random.random() < 0.3:
            head += [
                "    yield p",
                f"    got = yield {self.expression(1, [*names, 'p'])}",
                "    yield from (got, q)",
            ]
            return [*decorator, *head, *body, f"items.extend(list({name}(t({self.number()})))[:4])"]
        return [*decorator, *head, *body, f"a = {name}(t({self.number()}))"]

    def class_(self, depth: int, names: list[str]) -> list[str]:
        self.functions += 1
        name = f"C{self.functions}"
        return [
            f"class {name}(box):",
            f"    first = {self.expression(1, names)}",
            "    second = [first, [x for x in range(2)]]",
            f"    if {self.condition(names)}:",
            "        third = first",
            "    __private = 5",
            "    def method(self, v):",
            f"        self.extra = ({self.expression(1, [*names, 'v'])}, self.__private)",
            "        return self.extra, self.second",
            "    @property",
            "    def both(self):",
            "        return [self.value, self.first]",
            f"a = {name}(t({self.number()})).method({self.expression(1, names)})",
            f"b = {name}(1).both",
            f"log.append(getattr({name}, 'third', None))",
        ]

    def program(self) -> str:
        """A module: a function ``main`` and its call, and statements at the top."""
        names = ["a", "b"]
        body = [line for _ in range(3) for line in self.block(3, names, False, True)]
        top = self.block(2, names, False, False)
        start = ["a = b = i = m = x = y = w = None", "c = []", "items = [1, 2]"]
        return "\n".join(
            [
                "def gen(n):",
                "    for j in range(n):",
                "        yield (yield j)",
                "def main():",
                *("    " + line for line in [*start, *body]),
                "    return a, b, c, items",
                *start,
                "def run():",
                "    log.append(main())",
                "try:",
                "    run()",
                "except Exception as problem:",
                "    log.append(type(problem).__name__)",
                *top,
            ]
        )
