"""SS900 syntax-error

## What it does
Reports a Python file or notebook that cannot be parsed or decoded. In a directory, only files that use streams, events,
graphs or asynchronous copies are parsed. A file that is named on the command line is always parsed.

## Why is this bad?
A file that cannot be read is not checked. No output would look like a clean result.

## Example
```python
with torch.cuda.stream(side:
    y = x * 2
```

Use instead:
```python
with torch.cuda.stream(side):
    y = x * 2
```

## References
- Python Language Reference, "Lexical analysis": Encoding declarations
"""

from __future__ import annotations

from streamsafe.order.hazard import Conflict
from streamsafe.rule import Rule


class SyntaxError(Rule):
    code = "SS900"
    name = "syntax-error"
    rank = 0
    sides = ("check",)
    bad = """\
import torch

side = torch.cuda.Stream()
with torch.cuda.stream(side:  # expect: SS900
    pass
"""
    good = """\
import torch

side = torch.cuda.Stream()
with torch.cuda.stream(side):
    pass
"""

    def message(self, conflict: Conflict) -> str:
        return conflict.second.operation
