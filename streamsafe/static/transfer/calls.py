"""Calls: of functions and classes of the tree, of library functions, of methods, and of what is not seen."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamsafe.static.domain import access as tag
from streamsafe.static.domain import values
from streamsafe.static.domain.atoms import (
    ANYTHING,
    CURRENT,
    HOST,
    NULL_CONTEXT,
    TRUE,
    UNKNOWN,
    Atom,
    Bound,
    Class,
    Const,
    Context,
    Function,
    Generator,
    Library,
    New,
    Partial,
    Path,
    Symbol,
    Tuple,
    Value,
    bound,
    function,
    ordered,
    path,
    value,
)
from streamsafe.static.domain.guards import IS_NONE, Literal
from streamsafe.static.domain.places import DEVICE, EACH, PAGEABLE, PINNED, is_element
from streamsafe.static.domain.state import State
from streamsafe.static.summary.facts import MODULE, OUTER
from streamsafe.static.summary.instantiate import closure_of, instantiate
from streamsafe.static.syntax import ir
from streamsafe.static.transfer import (
    callbacks,
    captures,
    contexts,
    dataclass,
    gradients,
    graphed,
    library,
    objects,
    outputs,
    python,
    replays,
    streams,
)
from streamsafe.static.transfer import memory as mem
from streamsafe.static.transfer.data import operands, registers
from streamsafe.static.transfer.registry import CallSite, special, transfer

if TYPE_CHECKING:
    from streamsafe.static.summary.analyse import Analysis

MOST_CALLEES = 3


@transfer(ir.Call)
def call(a: Analysis, s: State, i: ir.Call) -> list[State]:
    """dst = func(*args, **keywords)"""
    args = operands(a, s, i.args)
    keywords = {name: s.get(reg) for name, reg in i.keywords if name is not None}
    for name, reg in i.keywords:
        if name is None:
            keywords = {**_named(a, s, s.get(reg)), **keywords}
    outputs.combined(a, s, a.span(i.at), [i.func, *registers(i.args), *(reg for _, reg in i.keywords)])
    callee = _by_receiver(_known(s.get(i.func)))[:MOST_CALLEES]
    if not callee:
        site = CallSite(i.at, i.dst, args, keywords, operation="a call")
        s.env[i.dst] = unseen(a, s, site, tag.UNSEEN_CALL)
        return [s]
    out: list[State] = []
    for atom in callee:
        t = s if len(callee) == 1 else s.fork()
        site = CallSite(i.at, i.dst, list(args), dict(keywords))
        site.mappings = [s.get(reg) for name, reg in i.keywords if name is None]
        site.spread = bool(site.mappings)
        out += call_atom(a, t, site, atom)
    return out


def _named(a: Analysis, s: State, held: Value) -> dict[str, Value]:
    """The arguments that ``**held`` gives, as far as its keys are known."""
    if len(held) != 1:
        return {}
    (atom,) = held
    if isinstance(atom, Path):
        return {name: given for name, given in a.fact(atom).keys if (atom, f"[{name}]") not in s.heap}
    found = {}
    for field in mem.s_fields(s, atom):
        name = field[1:-1]
        if is_element(field) and name.isidentifier():
            found[name] = s.heap[atom, field]
    return found


def _by_receiver(callees: list[Atom]) -> list[Atom]:
    """One method of several receivers is one callee: what it does, it does to whichever it is given."""
    methods: dict[str, Value] = {}
    for atom in callees:
        if isinstance(atom, Bound):
            methods[atom.name] = methods.get(atom.name, UNKNOWN) | atom.owner
    if not methods:
        return callees
    out: list[Atom] = []
    for atom in callees:
        if isinstance(atom, Path) and atom.fields and atom.fields[-1] in methods:
            methods[atom.fields[-1]] |= value(path(atom.root, *atom.fields[:-1]))
        elif not isinstance(atom, Bound):
            out.append(atom)
    return out + [bound(owner, name) for name, owner in methods.items()]


def _known(held: Value) -> list[Atom]:
    """The atoms of a value, in order; that it may be unknown on some path adds nothing."""
    return [atom for atom in ordered(held) if atom is not ANYTHING]


def call_value(a: Analysis, s: State, c: CallSite, callee: Value) -> list[State]:
    """Call each of the functions that a value may be."""
    atoms = _known(callee)[:MOST_CALLEES]
    if not atoms:
        s.env[c.dst] = unseen(a, s, c, tag.UNSEEN_CALL)
        return [s]
    out: list[State] = []
    for atom in atoms:
        t = s if len(atoms) == 1 else s.fork()
        out += call_atom(a, t, CallSite(c.at, c.dst, list(c.args), dict(c.keywords)), atom)
    return out


def call_atom(a: Analysis, s: State, c: CallSite, atom: Atom) -> list[State]:
    """Call one function; the result is in ``c.dst`` of every state that follows."""
    if s.capturing.graphs:
        found = graphed.call(a, s, c, atom)
        if found is not None:
            return found
    if isinstance(atom, Function):
        keywords = _from_mappings(a, s, c, atom) if c.mappings else c.keywords
        out = instantiate(a, s, c.at, c.dst, atom.fid, c.args, keywords, closure_of(a, s, atom))
        return out if out is not None else _unseen(a, s, c, tag.UNSEEN_CALL)
    if isinstance(atom, Partial):
        c.args = [*atom.arguments, *c.args]
        c.keywords = {**dict(atom.keywords), **c.keywords}
        return call_value(a, s, c, atom.function)
    if isinstance(atom, Class):
        return construct(a, s, c, atom.cid)
    if isinstance(atom, Library):
        c.operation = atom.name.rpartition(".")[2]
        return library.call(a, s, c, atom.name)
    if isinstance(atom, Bound):
        return method(a, s, c, atom.owner, atom.name)
    if isinstance(atom, New):
        if (atom, mem.STRUCTURE) in s.heap:
            return library.unknown_method(a, s, c, atom, a.type_of(atom), c.operation)
        return _call_object(a, s, c, atom)
    if isinstance(atom, Path):
        return _call_path(a, s, c, atom)
    if atom is NULL_CONTEXT and len(c.args) == 1:
        s.env[c.dst] = c.args[0]  # a context manager as a decorator
        return [s]
    return _unseen(a, s, c, tag.UNSEEN_CALL)


def _from_mappings(a: Analysis, s: State, c: CallSite, called: Function) -> dict[str, Value]:
    """The keywords of ``f(**mapping)``: what ``f`` must be given and is given in no other way is in the mapping."""
    fn = a.engine.function(called.fid)
    found = dict(c.keywords)
    if any(isinstance(atom, Path) and atom.fields[-1:] == (EACH,) for held in c.args[-1:] for atom in held):
        return found  # `f(*elements, **mapping)`: the elements are all that f must be given
    for parameter in fn.params[len(c.args) :] if fn is not None else ():
        if (
            parameter.kind in ("normal", "keyword")
            and not parameter.has_default
            and parameter.name not in found
        ):
            held = values.union(objects.step_into(a, s, each, f"[{parameter.name}]") for each in c.mappings)
            if held:
                found[parameter.name] = held
    return found


def _unseen(a: Analysis, s: State, c: CallSite, tags: int) -> list[State]:
    s.env[c.dst] = unseen(a, s, c, tags)
    return [s]


def _call_object(a: Analysis, s: State, c: CallSite, atom: Atom) -> list[State]:
    """Calling an object: its ``forward`` or ``__call__``, or a module or a kernel that is not seen."""
    type = a.type_of(atom)
    if ":" in type:
        index = a.engine.index
        fid = index.method(type, "forward") or index.method(type, "__call__")
        if fid is not None:
            c.args = [value(atom), *c.args]
            given = [buffer for held in c.values()[1:] for buffer in mem.buffers(a, s, held)]
            out = instantiate(a, s, c.at, c.dst, fid, c.args, c.keywords)
            if out is not None:
                for t in out:
                    for made in ordered(values.reachable((t.get(c.dst),))):
                        mem.derive(t, value(made), [*given, made], atom)
                return out
    c.module = atom
    if a.role(atom) == "kernel":
        return library.launch_kernel(a, s, c)
    c.operation = c.operation or (atom.fields[-1] if isinstance(atom, Path) and atom.fields else "a module")
    return _unseen(a, s, c, tag.MODULE_CALL)


def _call_path(a: Analysis, s: State, c: CallSite, atom: Path) -> list[State]:
    fact = a.fact(atom)
    called_stream = fact.hinted and a.engine.role(fact.type) in ("stream", "event")  # the name of a method
    if not atom.fields or (fact.type and not called_stream):
        return _call_object(a, s, c, atom)
    name = atom.fields[-1]
    owner = path(atom.root, *atom.fields[:-1])
    if name.startswith("[") or _is_field(a, owner, name):
        return _call_object(a, s, c, atom)
    if atom.root.startswith(MODULE) and not owner.fields:
        return _call_object(a, s, c, atom)
    return method(a, s, c, value(owner), name)


def _is_field(a: Analysis, owner: Path, name: str) -> bool:
    """Whether the class of the owner is seen to keep something under the name: calling it calls an object."""
    type = a.fact(owner).type
    return ":" in type and name in a.engine.facts.fields(type)


# -- classes ----------------------------------------------------------------------------------------------------------


def construct(a: Analysis, s: State, c: CallSite, cid: str) -> list[State]:
    """A new object of a class of the tree: its ``__init__``, or the fields of a dataclass."""
    index = a.engine.index
    atom = mem.allocate(a, s, a.span(c.at), cid)
    fid = index.method(cid, "__init__")
    if fid is not None:
        out = instantiate(a, s, c.at, -1, fid, [value(atom), *c.args], c.keywords) or [s]
    elif objects.is_container(a, atom):
        _fill(s, atom, c)
        out = [s]
    else:
        out = dataclass.construct(a, s, c, cid, atom)
    for t in out:
        t.env[c.dst] = value(atom)
    return out


def _fill(s: State, container: New, c: CallSite) -> None:
    """``Batch(other, key=value)`` of a class that is a container: it holds the elements of the other one."""
    for other in ordered(values.union(c.args)):
        for step, held in s.heap.fields(other).items():
            if step.startswith("["):
                objects.put_element(s, container, held, None if step == objects.ANY else step)
    for name, held in c.keywords.items():
        objects.put_element(s, container, held, f"[{name}]")


@special("make_dict")
def make_dict(a: Analysis, s: State, c: CallSite) -> Value | list[State] | None:
    """``dict(other, key=value)``, ``dict(pairs)``: what these hold, under the keys that are known."""
    made = mem.allocate(a, s, a.span(c.at), "builtins.dict", discriminator=2)
    for other in ordered(values.union(c.args)):
        known = [step for step in mem.s_fields(s, other) if is_element(step)]
        if a.type_of(other) == "builtins.dict" and isinstance(other, New):
            for step in known:
                objects.put_element(s, made, s.heap[other, step], None if step == objects.ANY else step)
            continue
        each = objects.step_into(a, s, value(other), EACH)
        pairs = [atom for atom in each if isinstance(atom, Tuple) and len(atom.items) == 2]
        held = values.union(pair.items[1] for pair in pairs) if len(pairs) == len(each) else each
        objects.put_element(s, made, held)
    for name, held in c.keywords.items():
        objects.put_element(s, made, held, f"[{name}]")
    return value(made)


# -- methods ----------------------------------------------------------------------------------------------------------


def method(a: Analysis, s: State, c: CallSite, owner: Value, name: str) -> list[State]:
    """A method of each of the objects that a value may be, a state each."""
    c.operation = name
    if "generator" in c.keywords:
        captures.takes_generator(a, s, c)
    atoms = _known(owner)
    if len(atoms) == 1 and isinstance(atoms[0], Bound) and atoms[0].name == "super()":
        found = python.call_super(a, s, c, name)
        if found is not None:
            return found
        s.env[c.dst] = UNKNOWN
        return [s]
    if not atoms:
        return _of_unknown(a, s, c, UNKNOWN, name)
    out: list[State] = []
    groups = _alike(a, atoms)
    for group in groups:
        t = s if len(groups) == 1 else s.fork()
        site = CallSite(c.at, c.dst, list(c.args), dict(c.keywords), frozenset(group), operation=name)
        out += _method(a, t, site, group[0], name)
    return out


def _alike(a: Analysis, atoms: list[Atom]) -> list[list[Atom]]:
    """Receivers that one call may have at once: memory and containers of one type; others come one by one.

    A parameter without a type that may be a tensor by another path is taken to be one: ``if flag: x = x.clone()``.
    """
    found: dict[object, list[Atom]] = {}
    for atom in atoms:
        type = a.type_of(atom)
        together = a.engine.role(type) in ("tensor", "container") or (not type and isinstance(atom, Path))
        found.setdefault(type if together else atom, []).append(atom)
    tensors = [type for type in found if isinstance(type, str) and a.engine.role(type) == "tensor"]
    if len(tensors) == 1 and "" in found:
        found[tensors[0]] += found.pop("")
    return list(found.values())


def _method(a: Analysis, s: State, c: CallSite, atom: Atom, name: str) -> list[State]:
    if isinstance(atom, Library):
        c.operation = name
        return library.call(a, s, c, a.engine.canonical(f"{atom.name}.{name}"))
    if isinstance(atom, Class):
        fid = a.engine.index.method(atom.cid, name)
        if fid is not None:
            return instantiate(a, s, c.at, c.dst, fid, c.args, c.keywords) or [s]
        out = _apply(a, s, c, atom) if name == "apply" else None
        if out is not None:
            return out
    if isinstance(atom, Context | Generator):
        if name == "__enter__":
            step = ir.Enter(c.dst, ("held", c.at), False, c.at)  # type: ignore[arg-type]
            return contexts.enter_one(a, s, step, atom)
        s.env[c.dst] = UNKNOWN
        if name == "__exit__":
            s.current = CURRENT
        return [s]
    if isinstance(atom, Tuple | Const):
        s.env[c.dst] = UNKNOWN
        return [s]
    type = a.type_of(atom)
    if not type and isinstance(atom, Symbol) and a.role(atom) == "stream":
        type = a.engine.stream_type(name)
    if ":" in type:
        fid = a.engine.index.method(type, name)
        if fid is not None:
            return _of_class(a, s, c, atom, fid)
        for base in a.engine.index.library_bases(type) if type in a.engine.index.classes else ():
            row = a.engine.method(a.engine.canonical(base), name)
            if row is not None:
                return library.apply(a, s, c, row)
        return _unseen(a, s, c, tag.METHOD_CALL)
    if isinstance(atom, Path) and a.engine.role(type) in ("stream", "event"):
        literal = Literal(IS_NONE, atom, None, False)
        if literal.negated() not in s.guard:
            s.guard = s.guard | {literal}  # None has no such method
    if type:
        row = a.engine.method(type, name)
        if row is None and type == a.engine.tensor_type and isinstance(atom, New):
            row = a.engine.method("cupy.ndarray", name)  # of whose arrays it is has been assumed
        if row is not None:
            return library.apply(a, s, c, row)
        return library.unknown_method(a, s, c, atom, type, name)
    return _of_unknown(a, s, c, value(atom), name)


def _apply(a: Analysis, s: State, c: CallSite, cls: Class) -> list[State] | None:
    """``F.apply(x)`` of an ``autograd.Function``: its forward, which is given a context first."""
    index = a.engine.index
    bases = map(a.engine.canonical, index.library_bases(cls.cid)) if cls.cid in index.classes else ()
    fid = index.method(cls.cid, "forward")
    if fid is None or "torch.autograd.Function" not in bases:
        return None
    own_context = index.method(cls.cid, "setup_context") is None
    args = [*([UNKNOWN] if own_context else []), *c.args]
    out = instantiate(a, s, c.at, c.dst, fid, args, c.keywords)
    backward = index.method(cls.cid, "backward")
    for t in out or []:
        for atom in t.get(c.dst):
            if isinstance(atom, New) and backward is not None:
                t.heap[atom, mem.GRAD_FN] = value(function(backward))
    return out


def _of_class(a: Analysis, s: State, c: CallSite, atom: Atom, fid: str) -> list[State]:
    others = a.engine.index.overriding(a.type_of(atom), c.operation) if isinstance(atom, Path) else []
    if 0 < len(others) <= MOST_CALLEES:
        left: list[State] = []
        for other in others:
            t = s if len(others) == 1 else s.fork()
            own = a.engine.function(other)
            args = [value(atom), *c.args] if own is None or own.is_method else list(c.args)
            left += instantiate(a, t, c.at, c.dst, other, args, dict(c.keywords)) or [t]
        return left
    fn = a.engine.function(fid)
    static = fn is not None and not fn.is_method
    args = c.args if static else [value(atom), *c.args]
    out = instantiate(a, s, c.at, c.dst, fid, args, c.keywords)
    return out if out is not None else _unseen(a, s, c, tag.UNSEEN_CALL)


def _of_unknown(a: Analysis, s: State, c: CallSite, owner: Value, name: str) -> list[State]:
    """A method of an object whose type is not seen: what methods of that name do, where there is one such."""
    if streams.of_unknown(a, s, c, owner, name):
        return [s]
    row = a.engine.models.by_keywords(name, c.keywords) or a.engine.method("builtins.str", name)
    if row is not None:
        return library.apply(a, s, c, row)
    row = a.engine.models.by_method(name)
    if any((atom, gradients.TRAINS) in s.heap for atom in owner):
        row = a.engine.method("torch.optim.Optimizer", name) or row
    if row is not None:
        return library.apply(a, s, c, row, weak=True)
    return _unseen(a, s, c, tag.UNSEEN_CALL if not owner else tag.METHOD_CALL)


# -- what is not seen -------------------------------------------------------------------------------------------------


def unseen(a: Analysis, s: State, c: CallSite, tags: int) -> Value:
    """The angelic default: a call that is not seen does nothing, with these exceptions.

    Given a stream or an event, it orders. Given memory, it may read it on the current stream: a module that is called
    surely does, and makes new memory.
    """
    given = [*c.values(), *c.mappings]
    streams.handed_over(a, s, given)
    touched = [buffer for held in given for buffer in mem.buffers(a, s, held)]
    if a.engine.unseen == "nothing":
        return UNKNOWN
    span = a.span(c.at)
    reads = 0 if a.engine.unseen == "reads" else tags
    if s.current is not CURRENT and tags & (tag.UNSEEN_CALL | tag.METHOD_CALL):
        reads |= tag.PUT_THERE
    for buffer in mem.buffers(a, s, c.keywords.get("out", UNKNOWN)):
        if mem.place_of(a, s, buffer) == PINNED:
            mem.touch(a, s, span, buffer, True, HOST, c.operation, tag.ON_SOME_PATH)
    for buffer in touched:
        if mem.place_of(a, s, buffer) in (PINNED, PAGEABLE):
            continue
        mem.touch(a, s, span, buffer, False, s.current, c.operation, reads)
    if tags & tag.MODULE_CALL:
        replays.uses_module(a, s, span, c)
    if tags & tag.MODULE_CALL and touched:
        made = mem.result(a, s, span, c.operation, DEVICE, tags)
        for atom in made:
            s.heap[atom, mem.STRUCTURE] = value(TRUE)
        through = [buffer for buffer in touched if (buffer, mem.THROUGH) in s.heap]
        loss = len(touched) > 1 and through  # given an output and a target: it has no parameters
        mem.derive(s, made, touched, *([c.module] if c.module is not None and not loss else []))
        return made
    return UNKNOWN


__all__ = ["EACH", "OUTER", "callbacks", "objects"]
