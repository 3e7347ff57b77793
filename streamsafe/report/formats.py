"""The output formats by name. Each machine-readable one is a module with ``render(records) -> str``."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Mapping
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

FORMATS = ("full", "concise", *MACHINE)
"""All formats, in the order in which the help lists them."""


def render(name: str, objects: Iterable[Mapping[str, Any]]) -> str:
    """Findings, given as their JSON objects, in one of the formats of MACHINE; without the last line end."""
    if name == "json":
        import json

        return json.dumps(list(objects), indent=2)
    from streamsafe.report.record import records

    module = importlib.import_module(f"streamsafe.report.{MACHINE[name]}")
    text: str = module.render(records(objects))
    return text
