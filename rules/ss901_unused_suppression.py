"""SS901 unused-suppression

## What it does
Reports a `# noqa: SS101` or `# streamsafe: ignore[SS101]` on a line with no hazard of that code. Codes of
rules that are switched off are not reported, and neither is a bare `# noqa`.

## Why is this bad?
A suppression that is no longer needed hides the next bug on its line.

## Example
```python
y = x.sum()  # noqa: SS101
```

Use instead:
```python
y = x.sum()
```

## References
- [Suppressing hazards](../suppressions.md)
"""

from __future__ import annotations

from streamsafe.order.hazard import Conflict
from streamsafe.rule import Rule


class UnusedSuppression(Rule):
    code = "SS901"
    name = "unused-suppression"
    severity = "warning"
    fix = "safe"
    rank = 0
    sides = ("check",)
    bad = """\
import torch


def total(x):
    return x.sum()  # noqa: SS101  # expect: SS901
"""
    good = """\
import torch


def total(x):
    return x.sum()
"""

    def message(self, conflict: Conflict) -> str:
        return f"{conflict.second.operation} suppresses nothing here"

    def help(self, conflict: Conflict) -> str:
        return "remove it"
