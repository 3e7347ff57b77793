"""Short stream programs, all there are: as trees, as paths for the judge, and as source text in several spellings.

Stream A writes a tensor, stream B reads it, and the other steps order the two or seem to. A program is some steps with
blocks around them (``if`` with or without ``else``, loops, ``try`` with ``finally``) and exits among them
(``return``, ``break``, ``continue``, each on a condition). Its parameters are two conditions, ``flag`` and ``other``,
and two numbers of rounds, ``n`` and ``m``; nothing is known of them, so a program stands for all its paths.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import product
from random import Random
from typing import Any

from tests.order.judge import Step, walk

WRITE, READ = "A writes", "B reads"
RECORDS = ("A is recorded", "B is recorded")
EVENT_WAITS = ("B waits for the event", "A waits for the event", "host waits for the event")
STEPS: dict[str, list[Step]] = {
    WRITE: [("write", "A", "x")],
    READ: [("read", "B", "x")],
    "A is recorded": [("record", "e", "A")],
    "B is recorded": [("record", "e", "B")],
    "B waits for the event": [("wait", "B", "e")],
    "A waits for the event": [("wait", "A", "e")],
    "host waits for the event": [("sync", "event", "e")],
    "B waits for A": [("record", "hidden", "A"), ("wait", "B", "hidden")],
    "A waits for B": [("record", "hidden", "B"), ("wait", "A", "hidden")],
    "host waits for A": [("sync", "stream", "A")],
}
"""What each step is to the judge."""

EXITS = ("return", "break", "continue")
MOST_ROUNDS = 3


@dataclass(frozen=True)
class Block:
    """``if``, with or without ``else``, a loop, or ``try`` with ``finally``.

    ``by`` is the condition, or the number of rounds; nothing for ``try``.
    """

    verb: str
    by: str
    body: Program
    otherwise: Program = ()


@dataclass(frozen=True)
class Exit:
    """``if by: verb``, where the verb is ``return``, ``break`` or ``continue``."""

    verb: str
    by: str


Program = tuple["str | Block | Exit", ...]
Shape = tuple[Any, ...]


# -- all programs ---------------------------------------------------------------------------------------------


@cache
def shapes(steps: int, blocks: int) -> list[Shape]:
    """Every way to put so many blocks around so many steps, of which none is chosen yet."""
    if not steps:
        return [] if blocks else [()]
    found: list[Shape] = [(None, *rest) for rest in shapes(steps - 1, blocks)]
    for inside, deeper in product(range(1, steps + 1), range(blocks)):
        rests = shapes(steps - inside, blocks - 1 - deeper)
        for body, rest in product(shapes(inside, deeper), rests):
            found += [((verb, body), *rest) for verb in ("if", "loop")]
        for part, in_part in product(range(1, inside), range(deeper + 1)):
            otherwise = shapes(inside - part, deeper - in_part)
            for body, other, rest in product(shapes(part, in_part), otherwise, rests):
                found.append((("if", body, other), *rest))
    return found


def fillings(steps: int) -> Iterator[tuple[str, ...]]:
    """The steps in every order, but for programs whose verdict is plain."""
    return (chosen for chosen in product(STEPS, repeat=steps) if is_of_use(chosen))


def is_of_use(steps: Sequence[str]) -> bool:
    """Whether there is something to order, and no event that is only recorded or only waited for."""
    recorded, waited = any(s in steps for s in RECORDS), any(s in steps for s in EVENT_WAITS)
    return WRITE in steps and READ in steps and recorded == waited


def verbs(shape: Shape) -> Iterator[str]:
    """The blocks of a shape from the outside in and from left to right."""
    for part in shape:
        if part is not None:
            yield part[0]
            for inner in part[1:]:
                yield from verbs(inner)


def namings(shape: Shape) -> Iterator[list[str]]:
    """What its blocks may depend on: the first condition is ``flag``, the others that, its opposite or another."""
    first = {"if": ["flag"], "loop": ["n"]}
    later = {"if": ["flag", "not flag", "other"], "loop": ["n", "m"]}
    seen: set[str] = set()
    choices = []
    for verb in verbs(shape):
        choices.append(later[verb] if verb in seen else first[verb])
        seen.add(verb)
    yield from map(list, product(*choices))


def build(shape: Shape, steps: Iterator[str], names: Iterator[str]) -> Program:
    """A shape with its steps and names in their places."""
    found: list[str | Block | Exit] = []
    for part in shape:
        if part is None:
            found.append(next(steps))
        else:
            name = next(names)
            found.append(Block(part[0], name, *(build(inner, steps, names) for inner in part[1:])))
    return tuple(found)


def programs(steps: int, blocks: int) -> Iterator[Program]:
    """Every program of so many steps in so many blocks."""
    for shape in shapes(steps, blocks):
        for names in namings(shape):
            for chosen in fillings(steps):
                yield build(shape, iter(chosen), iter(names))


def with_exit(program: Program, *, in_loop: bool = False) -> Iterator[Program]:
    """The program with one exit more, in each place there is and on each condition."""
    for place in range(len(program) + 1):
        before, after = program[:place], program[place:]
        for verb, by in product(EXITS if in_loop else EXITS[:1], ("flag", "not flag", "other")):
            yield (*before, Exit(verb, by), *after)
        block = after[0] if after else None
        if isinstance(block, Block):
            inside = in_loop or block.verb == "loop"
            for body in with_exit(block.body, in_loop=inside):
                yield (*before, replace(block, body=body), *after[1:])
            if block.otherwise and block.verb != "try":
                for otherwise in with_exit(block.otherwise, in_loop=inside):
                    yield (*before, replace(block, otherwise=otherwise), *after[1:])


def exiting(steps: int, blocks: int) -> Iterator[Program]:
    """Every program of so many steps in so many blocks with one exit."""
    for program in programs(steps, blocks):
        yield from with_exit(program)


def longer(dice: Random, *, steps: int, blocks: int) -> Program:
    """Some program of so many steps in so many blocks, perhaps with exits and a ``finally``."""
    kinds = list(STEPS)
    while True:
        filling = tuple(dice.choices(kinds, k=steps))
        if is_of_use(filling):
            shape = dice.choice(shapes(steps, blocks))
            program = build(shape, iter(filling), iter(dice.choice(list(namings(shape)))))
            if len(program) > 1 and dice.random() < 0.3:
                program = (Block("try", "", program[:-1], program[-1:]),)
            for _ in range(dice.choice((0, 0, 1, 2))):
                program = dice.choice(list(with_exit(program)))
            return program


# -- paths ----------------------------------------------------------------------------------------------------


def holds(condition: str, values: dict[str, int]) -> bool:
    """Whether a condition, or its opposite, does."""
    name = condition.removeprefix("not ")
    return bool(values[name]) is (name == condition)


def path(program: Program, values: dict[str, int], taken: list[Step]) -> str:
    """Add the steps of the judge to ``taken``, in the order they happen when the conditions and numbers are these.

    Returns how the program is left: by the verb of an exit, or nothing.
    """
    for part in program:
        left = ""
        if isinstance(part, str):
            taken += STEPS[part]
        elif isinstance(part, Exit):
            left = part.verb if holds(part.by, values) else ""
        elif part.verb == "loop":
            for _ in range(values[part.by]):
                left = path(part.body, values, taken)
                if left in ("break", "return"):
                    break
            left = left if left == "return" else ""
        elif part.verb == "try":
            left = path(part.body, values, taken)
            path(part.otherwise, values, taken)
        else:
            left = path(part.body if holds(part.by, values) else part.otherwise, values, taken)
        if left:
            return left
    return ""


def mentioned(program: Program) -> set[str]:
    """The conditions and numbers that a program asks for."""
    blocks = [part for part in program if isinstance(part, Block)]
    inner = [mentioned(side) for block in blocks for side in (block.body, block.otherwise)]
    own = {part.by.removeprefix("not ") for part in program if not isinstance(part, str) and part.by}
    return own.union(*inner)


@cache
def is_racy_on(steps: tuple[Step, ...]) -> bool:
    """Whether two accesses of this path meet with no edge between them."""
    return bool(walk((verb, site, *rest) for site, (verb, *rest) in enumerate(steps)))


def is_racy(program: Program, *, calls: int = 1) -> bool:
    """Whether two accesses of some path do; ``calls``: how often the whole is run, with the same values."""
    names = sorted(mentioned(program))
    choices = [range(2) if name in ("flag", "other") else range(MOST_ROUNDS + 1) for name in names]
    for values in product(*choices):
        taken: list[Step] = []
        path(program, dict(zip(names, values, strict=True)), taken)
        if is_racy_on(tuple(taken) * calls):
            return True
    return False


# -- source text ----------------------------------------------------------------------------------------------


def statements(program: Program, steps: dict[str, str], owner: str = "") -> str:
    """The program as Python, each step as a spelling has it; ``owner``: whose the conditions and numbers are."""
    found = []
    for part in program:
        if isinstance(part, str):
            found.append(steps[part])
            continue
        name = part.by.replace("not ", f"not {owner}") if part.by.startswith("not ") else owner + part.by
        if isinstance(part, Exit):
            found.append(f"if {name}:\n    {part.verb}")
            continue
        found.append({"loop": f"for _ in range({name}):", "try": "try:"}.get(part.verb, f"if {name}:"))
        found.append(textwrap.indent(statements(part.body, steps, owner), "    "))
        if part.otherwise:
            found += [
                "finally:" if part.verb == "try" else "else:",
                textwrap.indent(statements(part.otherwise, steps, owner), "    "),
            ]
    return "\n".join(found)


TORCH = {
    WRITE: "with torch.cuda.stream(a):\n    x.fill_(1.0)",
    READ: "with torch.cuda.stream(b):\n    y = x.sum()",
    "A is recorded": "e.record(a)",
    "B is recorded": "e.record(b)",
    "B waits for the event": "b.wait_event(e)",
    "A waits for the event": "e.wait(a)",
    "host waits for the event": "e.synchronize()",
    "B waits for A": "b.wait_stream(a)",
    "A waits for B": "a.wait_stream(b)",
    "host waits for A": "a.synchronize()",
}
CUPY = {
    **TORCH,
    WRITE: "with a:\n    x[...] = 1.0",
    READ: "with b:\n    y = x.sum()",
    "A waits for the event": "a.wait_event(e)",
    "B waits for A": "b.wait_event(a.record())",
    "A waits for B": "a.wait_event(b.record())",
}
HELPERS = {
    WRITE: "write(a, x)",
    READ: "read(b, x)",
    "A is recorded": "mark(a, e)",
    "B is recorded": "mark(b, e)",
    "B waits for the event": "wait(b, e)",
    "A waits for the event": "wait(a, e)",
    "host waits for the event": "finish(e)",
    "B waits for A": "follow(b, a)",
    "A waits for B": "follow(a, b)",
    "host waits for A": "finish(a)",
}
ATTRIBUTES = {
    WRITE: "with torch.cuda.stream(self.a):\n    self.x.fill_(1.0)",
    READ: "with torch.cuda.stream(self.b):\n    y = self.x.sum()",
    "A is recorded": "self.e.record(self.a)",
    "B is recorded": "self.e.record(self.b)",
    "B waits for the event": "self.e.wait(self.b)",
    "A waits for the event": "self.a.wait_event(self.e)",
    "host waits for the event": "self.e.synchronize()",
    "B waits for A": "self.b.wait_stream(self.a)",
    "A waits for B": "self.a.wait_stream(self.b)",
    "host waits for A": "self.a.synchronize()",
}

HELPER_FUNCTIONS = """\
def write(stream, tensor):
    with torch.cuda.stream(stream):
        tensor.fill_(1.0)

def read(stream, tensor):
    with torch.cuda.stream(stream):
        return tensor.sum()

def mark(stream, event):
    event.record(stream)

def wait(stream, event):
    stream.wait_event(event)

def follow(stream, other):
    stream.wait_stream(other)

def finish(what):
    what.synchronize()
"""
METHOD = """\
class {name}:
    def __init__(self, n: int, m: int, flag: bool, other: bool):
        self.n, self.m, self.flag, self.other = n, m, flag, other
        self.a, self.b = torch.cuda.Stream(), torch.cuda.Stream()
        self.e = torch.cuda.Event()
        self.x = torch.empty(64, device="cuda")

    def run(self):
{body}
"""


def function(parameters: str, *start: str) -> str:
    """A definition to format with a name and a body."""
    lines = [
        f"def {{name}}({parameters}n: int, m: int, flag: bool, other: bool):",
        *(f"    {line}" for line in start),
    ]
    return "\n".join([*lines, "{body}\n"])


@dataclass(frozen=True)
class Spelling:
    """How programs are written down.

    Attributes:
        head: what stands before the first.
        definition: one program, to format with its name and its body.
        steps: the statements of each step.
        owner: whose the conditions and numbers are.
        calls: how often it may be run on the same streams, event and memory.
        depth: how far its body is indented.
    """

    head: str
    definition: str
    steps: dict[str, str]
    owner: str = ""
    calls: int = 1
    depth: int = 1

    def text(self, name: str, program: Program) -> str:
        """One program."""
        body = textwrap.indent(statements(program, self.steps, self.owner), "    " * self.depth)
        return self.definition.format(name=name, body=body)

    def module(self, programs: Sequence[Program]) -> tuple[str, list[int]]:
        """A module of programs, and the rows in which they begin."""
        text, rows = self.head, []
        for number, program in enumerate(programs):
            text += "\n\n"
            rows.append(text.count("\n") + 1)
            text += self.text(f"P{number}", program)
        return text, rows

    def is_racy(self, program: Program) -> bool:
        """The judge's verdict."""
        return is_racy(program, calls=self.calls)


MADE = (
    "a, b, e = torch.cuda.Stream(), torch.cuda.Stream(), torch.cuda.Event()",
    'x = torch.empty(64, device="cuda")',
)
SPELLINGS = {
    "parameters": Spelling(
        "import torch\n",
        function("a: torch.cuda.Stream, b: torch.cuda.Stream, x: torch.Tensor, ", "e = torch.cuda.Event()"),
        TORCH,
    ),
    "made here": Spelling("import torch\n", function("", *MADE), TORCH),
    "CuPy": Spelling(
        "import cupy as cp\n",
        function(
            "",
            "a, b = cp.cuda.Stream(non_blocking=True), cp.cuda.Stream(non_blocking=True)",
            "e = cp.cuda.Event()",
            "x = cp.empty(64)",
        ),
        CUPY,
    ),
    "helpers": Spelling("import torch\n", function("", *MADE, *HELPER_FUNCTIONS.splitlines()), HELPERS),
    "a method": Spelling("import torch\n", METHOD, ATTRIBUTES, "self.", calls=MOST_ROUNDS, depth=2),
}
