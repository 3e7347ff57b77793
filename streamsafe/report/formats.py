"""The output formats by name. Each machine-readable one is a module with ``render(records) -> str``.

Those of :data:`NOTED` have a place for what is no finding: ``render(records, notes) -> str``.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

MACHINE: dict[str, str] = {
    "json": "",
    "json-lines": "json_lines",
    "sarif": "sarif",
    "github": "github",
    "gitlab": "gitlab",
    "junit": "junit",
    "grouped": "grouped",
    "markdown": "markdown",
}
"""Format -> its module in this package; plain JSON needs none."""

NOTED = ("sarif", "github")
"""The formats that have a place for a note that belongs to no finding."""

FORMATS = ("full", "concise", *MACHINE)
"""All formats, in the order in which the help lists them."""


def render(name: str, objects: Iterable[Mapping[str, Any]], notes: Sequence[tuple[str, str]] = ()) -> str:
    """Findings in one of the formats of MACHINE, without the last line end.

    Args:
        name: the format.
        objects: the findings, as their JSON objects.
        notes: (file, what was not analysed there, and why).
    """
    if name == "json":
        import json

        return json.dumps(list(objects), indent=2)
    from streamsafe.report.record import records

    module = importlib.import_module(f"streamsafe.report.{MACHINE[name]}")
    given = (records(objects), notes) if name in NOTED else (records(objects),)
    text: str = module.render(*given)
    return text
