"""The new static engine: from files to conflicts. `streamsafe check --engine next`."""

from __future__ import annotations

import gc
import sys
from collections.abc import Sequence
from importlib import import_module

from streamsafe.static.findings import Findings
from streamsafe.static.models.load import load
from streamsafe.static.project import Checked, Task, syntax_error
from streamsafe.static.protocol import classes
from streamsafe.static.summary.solve import Engine, Given
from streamsafe.static.syntax.index import Index
from streamsafe.static.syntax.relevance import Relevance

TRANSFERS = "data objects contexts calls gradients captures python".split()
"""The modules that register transfer functions."""

RECURSION = 20_000


def check(tasks: Sequence[Task], jobs: int = 0, *, unseen: str = "possible") -> list[Checked]:
    """Check files, in the order given.

    Args:
        tasks: the files.
        jobs: at most so many processes.
        unseen: what a call that is not seen does with memory it is given.
    """
    for name in TRANSFERS:
        import_module(f"streamsafe.static.transfer.{name}")
    models = load()
    index = Index(models.libraries, known=models.knows)
    modules = []
    results = {task.path: Checked(task.path) for task in tasks}
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(max(limit, RECURSION))
    enabled = gc.isenabled()
    gc.disable()
    try:
        for task in tasks:
            module = index.add(task.path)
            if module is None:
                if task.report_syntax:
                    problem = index.broken.get(task.path, "does not parse")
                    results[task.path].conflicts = [syntax_error(task.path, problem)]
            elif task.analyse:
                modules.append(module.name)
        engine = Engine(index, models)
        engine.unseen = unseen
        for conflict in analyse(engine, modules):
            span = conflict.second.span
            use = conflict.first.span if conflict.facts.reuse and conflict.first else span
            at = use.filename if use is not None else ""
            if at in results:
                results[at].conflicts.append(conflict)
        for path, problem in engine.crashes:
            if path in results and not results[path].crash:
                results[path].crash = problem
    finally:
        sys.setrecursionlimit(limit)
        if enabled:
            gc.enable()
    return [results[task.path] for task in tasks]


def analyse(engine: Engine, modules: Sequence[str]) -> list:  # type: ignore[type-arg]
    """All conflicts of modules."""
    wanted = set(modules)
    models = engine.models
    relevance = Relevance(engine.index, models.order_words(), models.flag_positions(), wanted)
    engine.relevance = relevance
    fids = sorted(relevance.entries)
    for fid in [*fids, *(f"{module}:<module>" for module in sorted(wanted))]:
        engine.guarded(fid)
    for fid, part in list(engine.entries):
        if part:
            engine.guarded(fid, Given(part=part))
    findings = Findings(engine)
    for _, summary in engine.all_pairs():
        for pair in summary.pairs:
            findings.add(pair)
    for cid in classes.classes_of(engine, wanted):
        for pair in classes.of_class(engine, cid):
            findings.add(pair)
    for module in sorted(wanted):
        for pair in classes.of_module(engine, module):
            findings.add(pair)
    return findings.conflicts()
