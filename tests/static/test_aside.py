"""Which models run parts of themselves on another stream."""

from __future__ import annotations

import pytest

from streamsafe.static.source import SourceFile

MODEL = """
class Model(Module):
    def helper(self, part, x):
        {helper}

    def chosen(self, x):
        return x

    def forward(self, x):
        {forward}
"""
ENTERED = "with torch.cuda.stream(self.side): return "


@pytest.mark.parametrize(
    ("helper", "forward", "aside"),
    [
        ("pass", f"{ENTERED}self.part(x)", True),
        ("pass", f"{ENTERED}self.parts[0](x)", True),
        ("pass", f"part = self.part; {ENTERED}part(x)".replace("; with", "\n        with"), True),
        ("pass", f"for part in self.parts:\n            {ENTERED}part(x)", True),
        ("pass", f"for n, part in enumerate(self.parts):\n            {ENTERED}part(x)", True),
        (f"{ENTERED}part(x)", "return self.helper(self.part, x)", True),
        (f"{ENTERED}part(x)", "return self.helper(x=x, part=self.part)", True),
        (f"{ENTERED}part(x)", "return self.helper(make(), x)", False),
        (f"{ENTERED}part(x)", "return self.helper(self.chosen, x)", False),
        (f"{ENTERED}part(x)", "return self.part(x)", False),
        ("pass", f"{ENTERED}self.chosen(x)", False),
        ("pass", f"{ENTERED}x.sum()", False),
        ("pass", "with other(self.side): return self.part(x)", False),
    ],
)
def test_parts_aside(helper: str, forward: str, aside: bool) -> None:
    assert SourceFile(MODEL.format(helper=helper, forward=forward), "model.py").runs_parts_aside is aside
