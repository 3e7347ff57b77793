"""The new static engine: from files to conflicts. `streamsafe check --engine next`."""

from __future__ import annotations

import gc
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from pkgutil import iter_modules

from streamsafe.config import Models
from streamsafe.order.hazard import Conflict
from streamsafe.static import prefilter, project, transfer
from streamsafe.static.cache import Cache
from streamsafe.static.domain.access import LEAVES, ON_SOME_PATH
from streamsafe.static.domain.places import MEMBERS, PARAMETER_NAMES
from streamsafe.static.explanation import Explanation
from streamsafe.static.findings import Findings
from streamsafe.static.models.load import load
from streamsafe.static.project import Checked, Task, syntax_error
from streamsafe.static.protocol import classes
from streamsafe.static.summary.model import Pair
from streamsafe.static.summary.solve import Engine, Given
from streamsafe.static.syntax.index import Index, parse_data, parse_file
from streamsafe.static.syntax.relevance import Relevance
from streamsafe.static.units import Outcome, Unit, group, importers
from streamsafe.static.workers import PARALLEL_FROM

RECURSION = 20_000

COLLECT_FROM = 4_000_000
"""Bytes of source analysed in a process before its memory is collected."""

_left = 0


def check(
    tasks: Sequence[Task],
    jobs: int = 0,
    *,
    unseen: str = "possible",
    looked: Mapping[str, bool] | None = None,
    cache: Cache | None = None,
) -> list[Checked]:
    """Check files, in the order given. Neither the order nor the number of processes changes what is found.

    Args:
        tasks: the files.
        jobs: at most so many processes; 0 for as many as there are processors.
        unseen: what a call that is not seen does with memory it is given.
        looked: files that were read already: whether they have stream code.
        cache: what earlier runs found.
    """
    results = {
        path: Checked(path) for path in dict.fromkeys([*(task.path for task in tasks), *(looked or ())])
    }
    models = next((task.models for task in tasks if task.models), {})
    names = tuple(models)
    known_files = dict(looked or {})
    known_files.update((task.path, True) for task in tasks if task.analyse)
    for task in tasks:
        if task.data is not None:
            known_files.pop(task.path, None)
    units = group(known_files, lambda data: prefilter.concerned(data, names))
    outcomes: list[Outcome] = []
    todo: list[Unit] = []
    for unit in units:
        known = cache.get(unit) if cache is not None else None
        if known is None:
            todo.append(unit)
        else:
            outcomes.append(known)
    for unit, outcome in zip(todo, _run(todo, jobs, models, unseen), strict=True):
        outcomes.append(outcome)
        if cache is not None:
            cache.put(unit, outcome)
    for task in tasks:
        if task.data is not None and task.analyse:
            unit = Unit(task.path, (task.path,), (), task.size)
            outcomes.append(analyse_unit(unit, models, unseen, {task.path: task.data}))
        elif not task.analyse:
            outcomes.append(_parses(task))
    _report(results, outcomes, {task.path for task in tasks if task.report_syntax})
    wanted = {task.path for task in tasks}
    return [found for path, found in results.items() if path in wanted or found.conflicts or found.crash]


def _report(results: dict[str, Checked], outcomes: Sequence[Outcome], syntax: set[str]) -> None:
    """Give each file what was found in it, by whichever unit, once."""
    seen: set[Conflict] = set()
    for outcome in outcomes:
        for conflict in outcome.conflicts:
            span = conflict.second.span
            use = conflict.first.span if conflict.facts.reuse and conflict.first else span
            at = use.filename if use is not None else ""
            if at in results and conflict not in seen:
                seen.add(conflict)
                results[at].conflicts.append(conflict)
        for path, problem in outcome.broken.items():
            if path in syntax and not results[path].conflicts:
                results[path].conflicts = [syntax_error(path, problem)]
        for path, text in outcome.notes:
            if path in results:
                results[path].notes.append(text)
        for path, problem in outcome.crashes:
            if path in results and not results[path].crash:
                results[path].crash = problem


def _run(units: Sequence[Unit], jobs: int, models: Models, unseen: str) -> list[Outcome]:
    """Analyse units, in several processes where that pays."""
    jobs = min(jobs or project.processors(), len(units))
    if jobs <= 1 or sum(unit.size for unit in units) < PARALLEL_FROM:
        return [analyse_unit(unit, models, unseen) for unit in units]
    from concurrent.futures.process import BrokenProcessPool

    _prepare()
    found: dict[str, Outcome] = {}
    with project.pool(jobs) as workers:
        largest_first = sorted(units, key=lambda unit: (-unit.size, unit.name))
        futures = {unit.name: workers.submit(analyse_unit, unit, models, unseen) for unit in largest_first}
        for name, future in futures.items():
            try:
                found[name] = future.result()
            except BrokenProcessPool:
                break
    for unit in units:  # only after a process died: each unit that is left has one for itself
        if unit.name not in found:
            found[unit.name] = _alone(unit, models, unseen)
    return [found[unit.name] for unit in units]


def _alone(unit: Unit, models: Models, unseen: str) -> Outcome:
    from concurrent.futures.process import BrokenProcessPool

    with project.pool(1) as workers:
        try:
            return workers.submit(analyse_unit, unit, models, unseen).result()
        except BrokenProcessPool:
            return Outcome(crashes=[(path, "the process that analysed it died") for path in unit.files])


def _prepare() -> None:
    """Import what the analysis needs, once, before processes are started."""
    for module in iter_modules(transfer.__path__):  # each registers its transfer functions
        import_module(f"{transfer.__name__}.{module.name}")
    load()


def _parses(task: Task) -> Outcome:
    """A file without stream code, of which all that matters is whether it parses."""
    try:
        parse_file(task.path) if task.data is None else parse_data(task.data, task.path)
    except (ValueError, OSError, RecursionError, MemoryError) as error:
        return Outcome(broken={task.path: str(error)})
    return Outcome()


def explain(task: Task, row: int, *, unseen: str = "possible") -> Checked:
    """Check a file with the package it lies in, and say what is known at one of its lines.

    Args:
        task: the file.
        row: the line, from 1.
        unseen: what a call that is not seen does with memory it is given.
    """
    checked = Checked(task.path)
    explanation = Explanation(task.path, row)
    names = tuple(task.models)
    for unit in group({task.path: True}, lambda data: prefilter.concerned(data, names)):
        outcome = analyse_unit(unit, task.models, unseen, explanation=explanation)
        _report({task.path: checked}, [outcome], {task.path})
    checked.explanation = explanation.lines()
    return checked


def analyse_unit(
    unit: Unit,
    wrappers: Models,
    unseen: str,
    given: Mapping[str, bytes] | None = None,
    explanation: Explanation | None = None,
) -> Outcome:
    """Analyse the files of a unit.

    Args:
        unit: which.
        wrappers: the user's own models.
        unseen: what a call that is not seen does with memory it is given.
        given: the bytes of files that are not to be read from disk.
        explanation: who is told what is known at one line.
    """
    _prepare()
    models = load(wrappers)
    index = Index(models.libraries, known=models.knows)
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(max(limit, RECURSION))
    enabled = gc.isenabled()
    gc.disable()
    try:
        modules = []
        for path in unit.files:
            data = (given or {}).get(path)
            module = index.add(path) if data is None else index.add_data(path, data)
            if module is not None:
                modules.append(module.name)
        engine = Engine(index, models)
        engine.unseen = unseen
        engine.explanation = explanation
        relevance = _relevance(engine, modules)
        found = importers(unit.others, relevance.exported())
        if found:
            modules += [module.name for module in map(index.add, found) if module is not None]
            relevance = _relevance(engine, modules)
        conflicts = analyse(engine, modules, relevance)
        loaded, absent = index.dependencies()
        return Outcome(
            conflicts, dict(index.broken), list(engine.crashes), loaded, absent, _cut_short(engine)
        )
    finally:
        sys.setrecursionlimit(limit)
        if enabled:
            gc.enable()
            _collect(unit.size)


def _collect(size: int) -> None:
    """Free what units left behind, once that is much: going through the whole memory takes long."""
    global _left
    _left += size
    if _left > COLLECT_FROM:
        _left = 0
        gc.collect()


def _cut_short(engine: Engine) -> list[tuple[str, str]]:
    """The budgets that were hit, by file and function."""
    notes = {
        (engine.filename(fid.partition(":")[0]), f"{fid.partition(':')[2]}: {note}")
        for (fid, _), summary in engine.summaries.items()
        for note in summary.notes
    }
    return sorted(notes)


def _leaves(pair: Pair) -> bool:
    """Whether a pair is that memory leaves its function while a copy is pending: callers in sight show who reads it."""
    return pair.kind == "pair" and pair.second is not None and bool(pair.second.tags & LEAVES)


def _relevance(engine: Engine, modules: Sequence[str]) -> Relevance:
    models = engine.models
    return Relevance(
        engine.index,
        models.order_words(),
        models.flag_positions(),
        modules,
        models.context_words(),
        models.method_words(),
    )


def _entries(engine: Engine, relevance: Relevance) -> set[str]:
    """Analyse the functions that are worth it, and say which of them concern others, or are beside such."""
    analysed: set[str] = set()
    found: set[str] = set()
    asked: dict[str, set[str]] = {}
    new = {*relevance.seeds, *relevance.bodies}
    while new:
        analysed |= new
        for fid in sorted(new):
            engine.guarded(fid)
        more = {fid: fields for fid, fields in engine.open.items() if asked.get(fid) != fields}
        asked.update((fid, set(fields)) for fid, fields in more.items())
        beside = relevance.beside(more)
        found.update(more, beside)
        new = beside - analysed
    for fid in sorted(analysed):  # again: what rested on facts that were not complete was forgotten
        engine.guarded(fid)
    return found


def analyse(engine: Engine, modules: Sequence[str], relevance: Relevance | None = None) -> list[Conflict]:
    """All conflicts of modules; ``relevance``: theirs, where that is known already."""
    wanted = set(modules)
    engine.relevance = relevance or _relevance(engine, modules)
    engine.timed = engine.relevance.mentions(engine.models.clock_words())
    engine.moves = engine.relevance.mentions((*PARAMETER_NAMES, *(name[:-2] for name in MEMBERS)))
    entries = _entries(engine, engine.relevance)
    for cid in classes.classes_of(engine, wanted):
        backward = classes.backward_of(engine, cid)
        if backward is not None and backward in entries:
            engine.entry(backward, "hook")
    for fid, part in list(engine.entries):
        if part:
            engine.guarded(fid, Given(part=part))
    findings = Findings(engine)
    for fid, summary in engine.all_pairs():
        for pair in summary.pairs:
            if not _leaves(pair) or not engine.callers.get(fid):
                findings.add(pair)
        if not engine.callers.get(fid):
            for span in sorted({span for exit in summary.exits for span in exit.begins}):
                what = "capture-on-default-stream"
                findings.add(
                    Pair(
                        "violation", None, None, span, tags=ON_SOME_PATH, violation=what, what="capture_begin"
                    )
                )
    for cid in classes.classes_of(engine, wanted):
        if entries.isdisjoint(engine.index.classes[cid].methods.values()):
            continue
        if not any(
            engine.mattering.intersection(engine.index.classes[each].methods.values())
            for each in engine.index.mro(cid)
        ):
            continue
        with engine.protect(cid):
            for pair in classes.of_class(engine, cid):
                findings.add(pair)
    for module in sorted(wanted):
        with engine.protect(module):
            for pair in classes.of_module(engine, module, entries):
                findings.add(pair)
    return findings.conflicts()
