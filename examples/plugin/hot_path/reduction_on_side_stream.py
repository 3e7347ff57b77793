"""HP001 early-reduction

## What it does
Reports a sum or a mean that is taken before the stream that writes its input has finished.

## Why is this bad?
It is SS101 under a name of our own, so that a team can give it another severity or find it by its own code.

## Example
```python
with torch.cuda.stream(side):
    x.fill_(2)
total = x.sum()
```

Use instead:
```python
with torch.cuda.stream(side):
    x.fill_(2)
torch.cuda.current_stream().wait_stream(side)
total = x.sum()
```
"""

from streamsafe.order.hazard import Conflict
from streamsafe.rule import Rule


class EarlyReduction(Rule):
    code = "HP001"
    name = "early-reduction"
    severity = "warning"
    rank = 105  # before SS101 (110)

    def matches(self, conflict: Conflict) -> bool:
        return conflict.first is not None and conflict.second.operation in ("sum()", "mean()")

    def message(self, conflict: Conflict) -> str:
        first, second = conflict.first, conflict.second
        assert first is not None
        return f"`{second.operation}` runs before `{first.operation}` on `{first.timeline}` has finished"
