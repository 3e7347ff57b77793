"""Findings as a JUnit report: a suite for each file, a failed case for each finding; one passed case for none."""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import groupby
from xml.etree import ElementTree as xml

from streamsafe.report.record import Record

_NOT_IN_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def render(records: Iterable[Record]) -> str:
    """All findings, as an XML document."""
    found = list(records)
    root = xml.Element("testsuites", name="streamsafe", tests=str(len(found) or 1), failures=str(len(found)))
    if not found:
        suite = xml.SubElement(root, "testsuite", name="streamsafe", tests="1", failures="0", errors="0")
        xml.SubElement(suite, "testcase", name="no hazards found", classname="streamsafe")
    for path, group in groupby(found, key=lambda record: record.place.path if record.place else "streamsafe"):
        cases = list(group)
        suite = xml.SubElement(
            root, "testsuite", name=_clean(path), tests=str(len(cases)), failures=str(len(cases)), errors="0"
        )
        for record in cases:
            suite.append(_case(path, record))
    xml.indent(root)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + xml.tostring(root, encoding="unicode")


def _case(path: str, record: Record) -> xml.Element:
    place = record.place
    where = f" {place.row}:{place.column}" if place else ""
    case = xml.Element("testcase", name=f"{record.code} {record.name}{where}", classname=_clean(path))
    if place is not None:
        case.attrib |= {"file": _clean(path), "line": str(place.row)}
    lines = [str(place)] if place else []
    lines += [f"{other}: {other.message}" for other in record.related]
    lines += [f"help: {record.help}"] if record.help else []
    failure = xml.SubElement(case, "failure", message=_clean(record.sentence), type=record.code)
    failure.text = _clean("\n".join((record.sentence, *lines)))
    return case


def _clean(text: str) -> str:
    return _NOT_IN_XML.sub("\ufffd", text)
