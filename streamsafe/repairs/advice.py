"""The help of a finding: a line of code that can be written where it is shown, or says where else it goes."""

from __future__ import annotations

import ast
from dataclasses import replace
from typing import TYPE_CHECKING

from streamsafe.order.hazard import Facts, Span
from streamsafe.order.lines import line as line_of
from streamsafe.repairs.edges import event_of_another_device, handed_out, insertion, visible
from streamsafe.repairs.external_streams import for_torch
from streamsafe.repairs.names import File, inside, path

if TYPE_CHECKING:
    from streamsafe.findings.collect import Finding, Texts


def advised(finding: Finding, texts: Texts) -> Finding:
    """A finding whose help names only what exists where it stands, or says where else the line goes."""
    line, other = finding.hazard.help, finding.other
    edge = finding.hazard.missing.edge if finding.hazard.missing is not None else None
    text, at = texts[finding.span.filename], finding.ordered_at
    if finding.hazard.code == "SS312":
        line = timing(text.text, finding.hazard.facts, finding.span) or line
        return replace(finding, hazard=replace(finding.hazard, help=line))
    first = other.span if other is not None else None
    if finding.hazard.code == "SS501":
        from streamsafe.repairs.interop import taken_by  # imports LibCST

        line = taken_by(text.text, finding.hazard, finding.span, first) or line
        return replace(finding, hazard=replace(finding.hazard, help=line))
    edge = for_torch(text.text, edge)
    line = line_of(edge) if edge is not None else line
    if edge is None or first is None or first.filename != at.filename:
        return replace(finding, hazard=replace(finding.hazard, help=line))
    if text.place(1)[0] is None and finding.hazard.code != "SS202":
        taken = handed_out(text.text, edge, at, first)
        if taken is not None and insertion(text.text, edge, at, first) is None:
            line = f"{taken.line}  # in {inside(text.text, taken.row)}, before line {taken.row}"
            return replace(finding, hazard=replace(finding.hazard, help=line))
    line = visible(text.text, line, at, first)
    if event_of_another_device(text.text, edge, at, first):
        line += f"{', ' if '  # ' in line else '  # '}where the device of the first access is current"
    return (
        finding
        if line == finding.hazard.help
        else replace(finding, hazard=replace(finding.hazard, help=line))
    )


def timing(source: str, facts: Facts, place: Span) -> str:
    """The line of code that makes an elapsed time right, with the names of its two events, if they have some."""
    file = File.of(source)
    around = list(path(file.scope(place), place)) if file is not None else []
    for node in ast.walk(around[-1]) if around else ():
        if not isinstance(node, ast.Call) or node.lineno != place.row:
            continue
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if name not in ("elapsed_time", "get_elapsed_time"):
            continue
        events = list(node.args)
        if name == "elapsed_time" and isinstance(node.func, ast.Attribute):
            events.insert(0, node.func.value)
        if len(events) != 2 or not all(
            isinstance(each, (ast.Name, ast.Attribute, ast.Subscript)) for each in events
        ):
            return ""
        first, last = map(ast.unparse, events)
        if facts.timing == "untimed":
            torch = name == "elapsed_time"
            made = "torch.cuda.Event(enable_timing=True)" if torch else "cupy.cuda.Event()"
            return f"{first}, {last} = {made}, {made}"
        if facts.timing == "unrecorded":
            return f"{first}.record()  # before the work; {last}.record() after it, on the same stream"
        return f"{last}.synchronize()"
    return ""
