"""Repairs of graph captures: statements moved out of one, argument and context changed, streams forked and joined."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import libcst as cst

from streamsafe.repairs.place import (
    SIMPLE,
    Place,
    call_of,
    changed,
    keyword,
    made,
    name_of,
    receiver,
    stored,
    used,
    with_argument,
    without_argument,
)
from streamsafe.repairs.tree import Codemod, Line

_WAITS = ("wait", "wait_event", "wait_stream")


@dataclass(frozen=True, slots=True)
class Capture:
    """A capture around a statement of its own block.

    Attributes:
        first, last: the statement that begins it and the one that ends it: one `with`, or two calls.
        body: the statements between.
        graph: the graph, as code; empty where it has no name.
        replay: the call that runs it, as code; empty where the graph has no name.
    """

    first: Line
    last: Line
    body: Sequence[cst.BaseStatement]
    graph: str
    replay: str


def context_of(line: cst.CSTNode) -> cst.Call | None:
    """The call of a `with torch.cuda.graph(...)` that enters nothing else."""
    if not isinstance(line, cst.With) or len(line.items) != 1:
        return None
    entered = line.items[0].item
    return entered if isinstance(entered, cst.Call) and name_of(entered) == "graph" else None


def graph_of(entered: cst.Call) -> cst.BaseExpression | None:
    """The graph that `torch.cuda.graph(...)` captures into."""
    given = keyword(entered, "cuda_graph") or next((arg for arg in entered.args if arg.keyword is None), None)
    return given.value if given is not None and isinstance(given.value, SIMPLE) else None


def capture_of(place: Place) -> Capture | None:
    """The capture in whose own block a finding's statement stands."""
    line = place.line
    if line is None:
        return None
    siblings = place.tree.siblings(line)
    for around in place.tree.outward(line):
        entered = context_of(around)
        if entered is not None and isinstance(around, cst.With):
            graph = graph_of(entered)
            if around.body.body is not siblings or place.tree.line(around) is None:
                return None
            code = place.code(graph) if graph is not None else ""
            return Capture(around, around, siblings, code, f"{code}.replay()" if code else "")
    return _by_hand(place, line, siblings)


def _by_hand(place: Place, line: Line, siblings: Sequence[cst.BaseStatement]) -> Capture | None:
    """The capture between two calls of one block: `begin_capture` and `end_capture`, or PyTorch's."""
    here = list(siblings).index(line)
    begins = [n for n, each in enumerate(siblings[:here]) if _calls(each, ("begin_capture", "capture_begin"))]
    ends = [n for n, each in enumerate(siblings) if n > here and _calls(each, ("end_capture", "capture_end"))]
    if not begins or not ends:
        return None
    first, last = siblings[begins[-1]], siblings[ends[0]]
    call = call_of(last)
    assert call is not None and isinstance(first, cst.SimpleStatementLine)
    assert isinstance(last, cst.SimpleStatementLine)
    owner = receiver(call)
    code = place.code(owner) if owner is not None else ""
    statement = last.body[0]
    if name_of(call) == "end_capture":
        targets = statement.targets if isinstance(statement, cst.Assign) else ()
        graph = place.code(targets[0].target) if len(targets) == 1 else ""
        replay = f"{graph}.launch({code})" if graph else ""
    else:
        graph, replay = code, f"{code}.replay()"
    return Capture(first, last, siblings[begins[-1] + 1 : ends[0]], graph, replay)


def _calls(node: cst.CSTNode, names: Sequence[str]) -> bool:
    call = call_of(node)
    return call is not None and name_of(call) in names


def _movable(place: Place, capture: Capture, *, back: bool) -> bool:
    """Whether a statement of a capture means the same behind it (or before it): no other one there is concerned."""
    line = place.line
    if not isinstance(line, (cst.SimpleStatementLine, cst.With)) or len(capture.body) < 2:
        return False
    if any(
        isinstance(node, (cst.Return, cst.Yield, cst.Await, cst.Break, cst.Continue))
        for node in place.tree.walk(line)
    ):
        return False
    here = list(capture.body).index(line)
    others = capture.body[here + 1 :] if back else capture.body[:here]
    sets, reads = stored(line), used(line)
    return not any(sets & used(other) or reads & (stored(other) | changed(other)) for other in others)


def moved_out(place: Place) -> tuple[str, Codemod] | None:
    """SS401: what waits for the device goes behind the capture and a replay; what copies from the host, before it."""
    capture, line = capture_of(place), place.line
    if capture is None or line is None:
        return None
    if place.facts.cause == "pageable":
        return _moved_before(place, capture)
    if not _movable(place, capture, back=True):
        return None
    call = call_of(line)
    mod = Codemod()
    mod.remove(line)
    if call is not None and name_of(call) == "synchronize":
        owner = receiver(call)
        code = place.code(owner) if owner is not None else ""
        if any(f"{code}.record(" in place.code(each) for each in capture.body):  # an event of the capture
            return None
        mod.after(capture.last, line)
        return "wait after the capture", mod
    if not capture.replay:
        return None
    there = replayed(place, capture, mod, line)
    return f"read it after {'' if there else 'the capture and '}{capture.replay}", mod


def replayed(place: Place, capture: Capture, mod: Codemod, statement: str | Line) -> bool:
    """Put a statement behind the replay that follows a capture, or behind a new one; whether there is one already."""
    run = _next(place, capture.last)
    if run is not None and place.code(run).startswith(capture.replay.partition("(")[0] + "("):
        mod.after(run, statement)
        return True
    mod.after(capture.last, capture.replay, statement)
    return False


def moved_before(place: Place) -> tuple[str, Codemod] | None:
    """A statement of a capture goes before it."""
    capture = capture_of(place)
    return _moved_before(place, capture) if capture is not None else None


def _moved_before(place: Place, capture: Capture) -> tuple[str, Codemod] | None:
    line = place.line
    if line is None or not _movable(place, capture, back=False):
        return None
    mod = Codemod()
    mod.remove(line)
    mod.before(capture.first, line)
    return "do it before the capture", mod


def _next(place: Place, line: Line) -> Line | None:
    """The statement behind another one."""
    siblings = list(place.tree.siblings(line))
    behind = siblings[siblings.index(line) + 1 :]
    return behind[0] if behind and isinstance(behind[0], cst.SimpleStatementLine) else None


def joined_stream(place: Place) -> tuple[str, Codemod] | None:
    """SS402: the side stream waits for the capturing one before its block, and the capturing one for it behind it."""
    call = place.call
    if call is not None and name_of(call) in _WAITS:
        return None  # for work that the capture does not have
    for block in place.tree.around_node(place.node, cst.With):
        assert isinstance(block, cst.With)
        entered = block.items[0].item if len(block.items) == 1 else None
        if not isinstance(entered, cst.Call) or name_of(entered) != "stream" or len(entered.args) != 1:
            continue
        stream, owner, line = entered.args[0].value, receiver(entered), place.tree.line(block)
        if not isinstance(stream, SIMPLE) or owner is None or line is None:
            return None
        side, current = place.code(stream), f"{place.code(owner)}.current_stream()"
        fork, join = f"{side}.wait_stream({current})", f"{current}.wait_stream({side})"
        mod = Codemod()
        mod.before(line, fork)
        mod.after(line, join)
        return f"{fork}, and {join} at the end", mod
    return None


NO_TENSOR = (cst.Tuple, cst.List, cst.Dict, cst.Set, cst.BaseComp, cst.Await, cst.Yield)


def _bound_before(place: Place, line: Line, name: cst.Name) -> bool:
    """Whether a local name certainly holds something before a statement: there is a tensor to fill."""
    scope = place.tree.scope(line)
    parameters = scope.params if isinstance(scope, cst.FunctionDef) else cst.Parameters()
    if any(
        isinstance(each, cst.Param) and each.name.value == name.value for each in place.tree.walk(parameters)
    ):
        return True
    for each in place.tree.outward(line):
        if each is scope:
            return False
        if isinstance(each, (cst.SimpleStatementLine, cst.BaseCompoundStatement)):
            block = place.tree.siblings(each)
            before = block[: block.index(each)] if each in block else ()
            if any(isinstance(s, cst.SimpleStatementLine) and name.value in stored(s) for s in before):
                return True
    return False


def filled_input(place: Place) -> tuple[str, Codemod] | None:
    """SS403: the captured tensor is filled, not replaced."""
    line = place.line
    if not isinstance(line, cst.SimpleStatementLine):
        return None
    statement = line.body[0]
    if not isinstance(statement, cst.Assign) or len(statement.targets) != 1:
        return None
    target, value = statement.targets[0].target, statement.value
    if not isinstance(target, SIMPLE) or isinstance(value, NO_TENSOR):
        return None
    if "\n" in place.code(value) or (isinstance(target, cst.Name) and not _bound_before(place, line, target)):
        return None
    name = place.code(target)

    def fill(node: cst.CSTNode) -> cst.CSTNode:
        assert isinstance(node, cst.Assign)
        arguments = [cst.Arg(node.value.with_changes(lpar=[], rpar=[]))]
        return cst.Expr(cst.Call(cst.Attribute(target, cst.Name("copy_")), arguments))

    mod = Codemod()
    mod.replace(statement, fill)
    return f"fill it in place: {name}.copy_(...)", mod


def registered_generator(place: Place) -> tuple[str, Codemod] | None:
    """SS404: the graph knows the generator before the capture begins; random state is read and set outside."""
    call = place.call
    given = keyword(call, "generator") if call is not None else None
    if given is None:
        return moved_before(place) if call is not None else None
    for block in place.tree.around_node(place.node, cst.With):
        entered, line = context_of(block), place.tree.line(block)
        graph = graph_of(entered) if entered is not None else None
        if graph is not None and line is not None and isinstance(given.value, SIMPLE):
            code = f"{place.code(graph)}.register_generator_state({place.code(given.value)})"
            mod = Codemod()
            mod.before(line, code)
            return code, mod
    return None


def on_a_side_stream(place: Place) -> tuple[str, Codemod] | None:
    """SS405: `capture_begin` and `capture_end` become `with torch.cuda.graph(...)`, which uses a stream of its own."""
    call, line = place.call, place.line
    owner = receiver(call) if call is not None else None
    if call is None or line is None or owner is None or name_of(call) != "capture_begin":
        return None
    if any(
        arg.keyword is None or arg.keyword.value not in ("pool", "capture_error_mode") for arg in call.args
    ):
        return None
    siblings, graph = list(place.tree.siblings(line)), place.code(owner)
    begin = siblings.index(line)
    ends = [n for n, each in enumerate(siblings) if n > begin and _calls(each, ("capture_end",))]
    maker = next(made(place, owner), None)
    module = receiver(maker) if maker is not None else None
    if not ends or ends[0] == begin + 1 or module is None or name_of(maker or call) != "CUDAGraph":
        return None
    end = call_of(siblings[ends[0]])
    if end is None or place.code(end) != f"{graph}.capture_end()":
        return None
    context = cst.Call(
        cst.Attribute(module, cst.Name("graph")),
        [cst.Arg(owner), *(arg.with_changes(comma=cst.MaybeSentinel.DEFAULT) for arg in call.args)],
    )
    last = siblings[ends[0]]
    if not isinstance(line, cst.SimpleStatementLine) or not isinstance(last, cst.SimpleStatementLine):
        return None
    behind = [*last.leading_lines, cst.EmptyLine(comment=last.trailing_whitespace.comment)]
    footer = [each for each in behind if each.comment is not None]  # no comment is lost
    body = cst.IndentedBlock(siblings[begin + 1 : ends[0]], header=line.trailing_whitespace, footer=footer)
    block = cst.With([cst.WithItem(context)], body, leading_lines=line.leading_lines)
    mod = Codemod()
    for each in siblings[begin : ends[0]]:
        assert isinstance(each, (cst.SimpleStatementLine, cst.BaseCompoundStatement))
        mod.remove(each)
    mod.replace(siblings[ends[0]], lambda _: block)
    return f"capture in a block: with {place.code(context)}", mod


def warmed_up(place: Place) -> tuple[str, Codemod] | None:
    """SS406: the captured work runs a few times on a side stream before, and its gradients are set to None."""
    block = place.line
    entered = context_of(block) if block is not None else None
    module = receiver(entered) if entered is not None else None
    if (
        block is None
        or module is None
        or not isinstance(block, cst.With)
        or not isinstance(block.body, cst.IndentedBlock)
    ):
        return None
    body = list(block.body.body)
    if not all(isinstance(each, cst.SimpleStatementLine) for each in body):
        return None
    if any(
        isinstance(node, (cst.Return, cst.Yield, cst.Await))
        for each in body
        for node in place.tree.walk(each)
    ):
        return None
    cleared = [node for each in body for node in place.tree.walk(each) if _clears(node)]
    models = [] if cleared else sorted(_models(place, body))
    if len(models) > 1 or (not models and not cleared):
        return None
    cuda, side = place.code(module), place.free("side", "warmup_stream")
    times = 11 if place.facts.cause == "eleven" else 3
    loop = cst.parse_statement(f"with {cuda}.stream({side}):\n    for _ in range({times}):\n        pass\n")
    assert isinstance(loop, cst.With)
    inner = loop.body.body[0]
    assert isinstance(inner, cst.For)
    filled = inner.with_changes(body=cst.IndentedBlock([_plain(each) for each in body]))
    loop = loop.with_changes(body=loop.body.with_changes(body=[filled]))
    after = [f"{model}.zero_grad(set_to_none=True)" for model in models]
    mod = Codemod()
    mod.before(
        block,
        f"{side} = {cuda}.Stream()",
        f"{side}.wait_stream({cuda}.current_stream())",
        loop,
        f"{cuda}.current_stream().wait_stream({side})",
        *after,
    )
    return f"run it {times} times on a side stream before the capture", mod


def _plain(statement: cst.BaseStatement) -> cst.BaseStatement:
    """A copied statement, without the comments above and behind it."""
    assert isinstance(statement, cst.SimpleStatementLine)
    return statement.with_changes(leading_lines=(), trailing_whitespace=cst.TrailingWhitespace())


def _clears(node: cst.CSTNode) -> bool:
    return isinstance(node, cst.Call) and name_of(node) == "zero_grad"


def _models(place: Place, body: Sequence[cst.BaseStatement]) -> Iterator[str]:
    """The modules that statements call: names that a constructor's result, moved or wrapped, is bound to."""
    found = set()
    for each in body:
        for node in place.tree.walk(each):
            if isinstance(node, cst.Call) and isinstance(node.func, (cst.Name, cst.Attribute)):
                if any(_constructs(maker) for maker in made(place, node.func)):
                    found.add(place.code(node.func))
    yield from found


def _constructs(call: cst.Call) -> bool:
    if name_of(call)[:1].isupper():
        return True
    inner = receiver(call)
    return isinstance(inner, cst.Call) and _constructs(inner)


def own_pool(place: Place) -> tuple[str, Codemod] | None:
    """SS409: two replays that stand next to each other change places; else the graph gets a pool of its own."""
    line, call = place.line, place.call
    owner = receiver(call) if call is not None else None
    if line is None or owner is None:
        return None
    graph = place.code(owner)
    classes = (each for each in place.tree.outward(line) if isinstance(each, cst.ClassDef))
    around = place.tree.scope(line) if isinstance(owner, cst.Name) else next(classes, place.tree.module)
    sharers: list[tuple[str, cst.Call]] = []
    for node in place.tree.walk(around):
        if isinstance(node, cst.Call) and name_of(node) == "graph":
            captured = graph_of(node)
            if captured is not None:
                sharers.append((place.code(captured), node))
    mod = Codemod()
    siblings = list(place.tree.siblings(line))
    above = siblings[siblings.index(line) - 1] if siblings.index(line) else None
    before = call_of(above) if above is not None else None
    other = receiver(before) if before is not None and name_of(before) == "replay" else None
    order = [name for name, _ in sharers]
    if other is not None and above is not None:
        code = place.code(other)
        if order.count(code) == order.count(graph) == 1 and order.index(graph) < order.index(code):
            assert isinstance(above, cst.SimpleStatementLine)
            mod.remove(line)
            mod.before(above, line)
            return f"replay {graph} first, as it was captured", mod
    own = [node for name, node in sharers if name == graph and keyword(node, "pool") is not None]
    theirs = [node for name, node in sharers if name != graph and _pool_of(place, node, graph)]
    chosen = own or theirs
    if len(chosen) != 1:
        return None
    mod.replace(chosen[0], lambda node: without_argument(node, "pool"))  # type: ignore[arg-type]
    return "give each graph a memory pool of its own", mod


def _pool_of(place: Place, entered: cst.Call, graph: str) -> bool:
    """Whether a capture takes its memory from a graph's pool."""
    pool = keyword(entered, "pool")
    return pool is not None and place.code(pool.value) == f"{graph}.pool()"


def before_replays(place: Place) -> tuple[str, Codemod] | None:
    """SS410: the host's work is done before each replay in the same function, and not in the capture."""
    capture, line = capture_of(place), place.line
    if capture is None or not capture.graph or not isinstance(line, cst.SimpleStatementLine):
        return None
    statement = line.body[0]
    plain = isinstance(statement, (cst.Expr, cst.AugAssign, cst.Assign))
    bound = isinstance(statement, cst.Assign) and any(
        isinstance(t.target, cst.Name) for t in statement.targets
    )
    if not plain or bound or not _movable(place, capture, back=True):
        return None
    runs = [
        run
        for node in place.tree.walk(place.tree.scope(line))
        if isinstance(node, cst.Call) and place.code(node) == capture.replay
        if (run := place.tree.line(node)) is not None and isinstance(run, cst.SimpleStatementLine)
    ]
    if not runs:
        return None
    mod = Codemod()
    mod.remove(line)
    for run in runs:
        mod.before(run, line)
    return f"do it before {capture.replay}", mod


def apart(place: Place) -> tuple[str, Codemod] | None:
    """SS411: the second capture comes behind the first; beside another thread, only this thread's calls count."""
    mod = Codemod()
    line = place.line
    if place.facts.cause == "global":
        entered = context_of(line) if line is not None else None
        call = entered or place.call
        if call is None or name_of(call) not in ("graph", "capture_begin"):
            return None
        mod.replace(call, lambda node: with_argument(node, "capture_error_mode", '"thread_local"'))  # type: ignore[arg-type]
        return 'capture with capture_error_mode="thread_local"', mod
    if line is None or context_of(line) is None:
        return None
    siblings = place.tree.siblings(line)
    outer = next((each for each in place.tree.outward(line) if each is not line and context_of(each)), None)
    if not isinstance(outer, cst.With) or outer.body.body is not siblings or place.tree.line(outer) is None:
        return None
    capture = Capture(outer, outer, siblings, "", "")
    if not _movable(place, capture, back=True):
        return None
    mod.remove(line)
    mod.after(outer, line)
    return "begin it after the other capture ends", mod


def named_temporary(place: Place) -> tuple[str, Codemod] | None:
    """SS203: the temporaries of a capture get names, which keep their memory for as long as the function runs."""
    line, call = place.line, place.call
    if line is None or call is None or name_of(call) != "launch":
        return None
    graph, scope = place.code(receiver(call) or call), place.tree.scope(line)
    ends = [
        node
        for node in place.tree.walk(scope)
        if isinstance(node, cst.SimpleStatementLine)
        if isinstance(node.body[0], cst.Assign) and _calls(node, ("end_capture",))
        if place.code(node.body[0].targets[0].target) == graph
    ]
    if len(ends) != 1 or any(
        isinstance(node, cst.Return) and graph in used(node) for node in place.tree.walk(scope)
    ):
        return None
    siblings = list(place.tree.siblings(ends[0]))
    before = siblings[: siblings.index(ends[0])]
    begins = [n for n, each in enumerate(before) if _calls(each, ("begin_capture",))]
    mod, count = Codemod(), 0
    for each in before[begins[-1] + 1 :] if begins else ():
        if not isinstance(each, cst.SimpleStatementLine):
            return None
        outer = call_of(each)
        for arg in outer.args if outer is not None else ():
            if isinstance(arg.value, (cst.BinaryOperation, cst.Call)):
                count += 1
                names = ("temporary",) if count == 1 else (f"temporary_{count}",)
                name = place.free(*names)
                mod.before(each, f"{name} = {place.code(arg.value)}")
                mod.replace(arg.value, lambda _, name=name: cst.Name(name))  # type: ignore[misc]
    return ("keep the temporaries of the capture under names", mod) if count else None
