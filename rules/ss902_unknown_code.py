"""SS902 unknown-code

## What it does
Reports a suppression that names a code or a rule that does not exist, or that names none where one is needed.

## Why is this bad?
A misspelt code suppresses nothing.

## Example
```python
y = x.sum()  # noqa: SS999
```

Use instead:
```python
y = x.sum()  # noqa: SS101
```

## References
- [Suppressing hazards](../suppressions.md)
"""

from __future__ import annotations

from streamsafe.order.hazard import Conflict
from streamsafe.rule import Rule


class UnknownCode(Rule):
    code = "SS902"
    name = "unknown-code"
    severity = "warning"
    rank = 0
    sides = ("check",)
    bad = """\
import torch


def total(x):
    return x.sum()  # streamsafe: ignore[SS999] no such code  # expect: SS902
"""
    good = """\
import torch


def total(x):
    return x.sum()
"""

    def message(self, conflict: Conflict) -> str:
        return conflict.second.operation

    def help(self, conflict: Conflict) -> str:
        return "see `streamsafe rules` for all codes"
