"""Files of fixtures with all their repairs made, also unsafe ones."""

from __future__ import annotations

from pathlib import Path

from streamsafe.findings.checking import Request, check
from streamsafe.project.files import discover
from streamsafe.project.settings import Configs
from streamsafe.repairs.repair import repair


def repaired(path: Path) -> str | None:
    """A file's text after ``--fix --unsafe-fixes``; None where nothing is repaired."""
    configs = Configs(isolated=True)
    request = Request(configs, confidence="likely", jobs=1)
    files = discover([str(path)], configs).files
    done = repair(
        check(request, files), files, lambda which, given: check(request, which, given), {}, unsafe=True
    )
    assert done.problems == []
    (data,) = done.changed.values() or (None,)
    return data.decode() if data is not None else None
