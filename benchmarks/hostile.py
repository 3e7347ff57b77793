"""Source that is hard on an analyzer: how long `streamsafe check` takes for it, and how much memory.

    python benchmarks/hostile.py [NAME ...]

Prints a table in Markdown. `tests/check/test_hostile.py` runs the same cases within limits.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

HEAD = "import torch\n\nside = torch.cuda.Stream()\n\n\n"


def racy(name: str, more: str = "") -> str:
    """A function with one hazard (SS101), and a statement of its own."""
    line = f"        {more}\n" if more else ""
    return f"def {name}(x):\n    with torch.cuda.stream(side):\n        x.fill_(2)\n{line}    return x.sum()\n\n\n"


def functions() -> str:
    """100,000 lines, all of them with stream code."""
    return HEAD + "".join(racy(f"f{n}") for n in range(16_700))


def plain_lines() -> str:
    """100,000 lines with one function that uses streams."""
    plain = "".join(f"def g{n}(x):\n    y = x + {n}\n    return y\n\n\n" for n in range(20_000))
    return HEAD + racy("f") + plain


def streams() -> str:
    """500 streams in a function, each used."""
    made = "".join(f"    s{n} = torch.cuda.Stream()\n" for n in range(500))
    used = "".join(f"    with torch.cuda.stream(s{n}):\n        x = x + 1\n" for n in range(500))
    return f"{HEAD}def f(x):\n{made}{used}    return x.sum()\n"


def loops() -> str:
    """60 nested loops."""
    heads = "".join(f"{' ' * (n + 1)}for i{n} in range(3):\n" for n in range(60))
    inner = f"{' ' * 61}with torch.cuda.stream(side):\n{' ' * 62}x.fill_(1)\n"
    return f"{HEAD}def f(x):\n{heads}{inner} return x.sum()\n"


def ifs() -> str:
    """200 ifs one after the other, each on a condition of its own."""
    body = "".join(
        f"    if c[{n}]:\n        with torch.cuda.stream(side):\n            x.fill_({n})\n"
        for n in range(200)
    )
    return f"{HEAD}def f(x, c):\n{body}    return x.sum()\n"


def methods() -> str:
    """A class of 500 methods that call each other in a ring."""
    body = "".join(
        f"    def m{n}(self):\n        with torch.cuda.stream(self.s):\n            self.x.add_({n})\n"
        f"        self.m{(n + 1) % 500}()\n"
        for n in range(500)
    )
    init = "    def __init__(self, x):\n        self.x = x\n        self.s = torch.cuda.Stream()\n"
    return f"{HEAD}class A:\n{init}{body}"


def long_sum() -> str:
    """A sum of 2,000 terms in a function that uses streams."""
    return HEAD + racy("f", "y = " + " + ".join(["x"] * 2000))


def long_chain() -> str:
    """2,000 calls of a method in a row."""
    return HEAD + racy("f", "y = x" + ".t()" * 2000)


def long_sum_elsewhere() -> str:
    """A sum of 2,000 terms in another function than the one that uses streams."""
    return f"{HEAD}def g(x):\n    return {' + '.join(['x'] * 2000)}\n\n\n{racy('f')}"


def brackets() -> str:
    """150 brackets around a name."""
    return HEAD + racy("f", f"y = {'(' * 150}x{')' * 150}")


def long_list() -> str:
    """A list of 100,000 numbers."""
    return HEAD + racy("f", f"y = [{', '.join(map(str, range(100_000)))}]")


def elifs() -> str:
    """500 branches of one `if`."""
    branches = "".join(f"    {'el' if n else ''}if c == {n}:\n        x.add_({n})\n" for n in range(500))
    return f"{HEAD}def f(x, c):\n    with torch.cuda.stream(side):\n        x.fill_(2)\n{branches}    return x.sum()\n"


CASES: dict[str, Callable[[], str]] = {
    case.__name__: case
    for case in (
        *(functions, plain_lines, streams, loops, ifs, methods),
        *(long_sum, long_chain, long_sum_elsewhere, brackets, long_list, elifs),
    )
}


def measure(path: Path) -> tuple[float, float, str]:
    """Processor seconds, megabytes and what was printed, of one check."""
    command = [sys.executable, "-m", "streamsafe", "check", "--isolated", "--no-cache", "-j", "1", "-q"]
    with subprocess.Popen(
        [*command, "--output-format", "concise", str(path)], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        text = process.stdout.read()
        _, _, used = os.wait4(process.pid, 0)
        process.returncode = 0
    return used.ru_utime + used.ru_stime, used.ru_maxrss / 1024, text


def main() -> None:
    print("| case | processor seconds | MB | findings |\n|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for name in sys.argv[1:] or CASES:
            path = Path(folder) / f"{name}.py"
            path.write_text(CASES[name](), encoding="utf-8")
            seconds, size, text = measure(path)
            lost = next((line.partition("SS900 ")[2] for line in text.splitlines() if " SS900 " in line), "")
            about = f"none: {lost}" if lost else text.count("\n")
            print(f"| {CASES[name].__doc__} | {seconds:.1f} | {size:.0f} | {about} |", flush=True)


if __name__ == "__main__":
    main()
