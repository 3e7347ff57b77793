"""The vocabulary of the models: what a row of a TOML file may say of a call, typed.

Arguments are named by the row's own parameters. Four names stand for something else wherever an argument is expected:
``self`` is the receiver of a method, ``*`` every argument that the row names nowhere else, ``current`` the current
stream, and ``result`` what the call returns. Where a stream is expected, an argument that is None, or not given, means
the current stream.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

Arg: TypeAlias = str
Library: TypeAlias = Literal["torch", "cupy", "numpy", "python", "other"]
"""Whose memory, streams and current stream a call works with."""

Role: TypeAlias = Literal[
    "stream",
    "event",
    "graph",
    "tensor",  # memory: torch.Tensor, cupy.ndarray, numpy.ndarray
    "pointer",  # a raw address with its memory: cupy.cuda.MemoryPointer
    "work",  # collective work, a future of work on a device
    "module",  # torch.nn.Module and its like: called, it reads its arguments and makes new tensors
    "kernel",  # called or launched, it may read and write whatever memory it is given
    "optimizer",
    "scaler",
    "generator",  # of random numbers
    "device",
    "container",
    "thread",
    "executor",
    "future",
    "queue",
    "signal",  # threading.Event and its like: it orders threads of the host, not the device
    "pool",  # of memory
    "profiler",
    "failure",  # a context in which an exception is expected
    "other",
]


class TypeRow(NamedTuple):
    """A class of a library: the role its instances play.

    Attributes:
        name: its canonical dotted name.
        role: see :data:`Role`.
        library: whose it is.
        base: the class whose methods and attributes it has besides its own, or "".
        blocking: of a stream, whether the legacy default stream and it wait for each other.
        place: of a tensor, where its memory lies when nothing else says so, or "".
    """

    name: str
    role: Role
    library: Library
    base: str = ""
    blocking: bool = False
    place: str = ""


PlaceKind: TypeAlias = Literal[
    "device",
    "pinned",
    "pageable",
    "like",  # as the argument `arg`
    "named",  # as `device=` and `pin_memory=` say, else pageable (torch), or the device (CuPy)
    "target",  # as the argument `arg`, a device, says; the source's own place where it is none
    "unknown",
]


class Place(NamedTuple):
    """Where memory lies that a call makes."""

    kind: PlaceKind
    arg: Arg = ""


ResultKind: TypeAlias = Literal[
    "unknown",  # nothing is known of it
    "none",
    "host",  # a number, a text, metadata: no memory and no stream
    "true",
    "false",
    "fresh",  # new memory, at `place`; written by the call where it is on the device
    "view",  # the memory of `arg`, other bytes of it perhaps
    "same",  # `arg` itself
    "object",  # a new object of the type `type`
    "pair",  # a tuple: an error code, then a new object of the type `type`
    "element",  # an element of `arg`
    "elements",  # a container of the elements of `arg` (of every argument for "*")
    "list",  # a container that holds `arg` (every argument for "*")
    "views",  # a container of views of `arg`
    "zip",  # a container of tuples: one element of each argument
    "enumerate",  # a container of (number, element)
    "items",  # a container of (key, element)
    "called",  # what the function in `calls` returns
    "mapped",  # a container of what the function in `calls` returns
    "current_stream",  # of the library
    "default_stream",
    "stream_context",  # a context in which the stream `arg` is current; None: a context that does nothing
    "capture_context",  # a context in which the stream `arg` is captured into the graph given as `graph`
    "null_context",
    "device_context",
    "value_context",  # entering it gives `arg`, leaving it does nothing
    "library_module",  # the module `type`
    "device_value",  # a torch.device of what `arg` says
]


class Result(NamedTuple):
    """What a call returns."""

    kind: ResultKind
    arg: Arg = ""
    type: str = ""
    place: Place | None = None


UNKNOWN_RESULT = Result("unknown")


OrderKind: TypeAlias = Literal["record", "wait", "sync", "query", "start"]


class Order(NamedTuple):
    """An edge that the call makes.

    record: the event ``who`` is recorded on the stream ``whom`` (it forgets what it knew).
    wait:   the stream ``who`` waits for the stream, event or work ``whom``.
    sync:   the host (``who`` is "host") waits for ``whom``: a stream, an event, work, "current", or "device" (all).
    query:  the host asks about ``whom``; where the answer is true it has waited.
    start:  a thread of the host starts (``who``) knowing what this one knows.
    """

    kind: OrderKind
    who: Arg
    whom: Arg


CopyKind: TypeAlias = Literal["asynchronous", "blocking", "never_blocking"]


class Copy(NamedTuple):
    """A copy whose kind follows from the places of its ends.

    Attributes:
        source: the argument that is read.
        destination: the argument that is written, or ``result``.
        flag: the parameter that says whether the host goes on at once (``non_blocking``), or "" for ``default``.
        default: whether the host goes on at once when the flag is not given.
        inverted: whether the flag says the opposite (``blocking=False``).
    """

    source: Arg
    destination: Arg
    flag: str = ""
    default: bool = False
    inverted: bool = False


CaptureKind: TypeAlias = Literal["legal", "illegal", "thread"]
"""Whether the call is legal while its stream captures; ``thread``: illegal under the global and thread-local modes."""


class Capture(NamedTuple):
    """What the call means inside a capture: the code of the violation and what to call it."""

    kind: CaptureKind
    code: str = "SS401"
    why: str = ""


CallMode: TypeAlias = Literal[
    "now",  # called once, here, with `args`
    "each",  # called for each element of `args`
    "bound",  # the result is the function with `args` bound (functools.partial)
    "thread",  # called on another thread of the host: the default stream is current there
    "backward",  # called by autograd, on the stream of the node's forward (TA-06)
    "stream",  # called by the device in the order of the stream, on the host (launch_host_func)
    "later",  # called by someone at some time (callbacks, hooks of a module)
]


class Calls(NamedTuple):
    """The call calls one of its arguments."""

    mode: CallMode
    function: Arg
    args: tuple[Arg, ...] = ()


class Store(NamedTuple):
    """The call stores an argument: ``container.append(value)``; ``spread``: its elements; ``key``: under that key."""

    container: Arg
    value: Arg
    spread: bool = False
    key: Arg = ""


Special: TypeAlias = Literal[
    "",
    "aggregate",
    "arithmetic",
    "attrgetter",
    "available",
    "backward",
    "barrier",
    "capsule",
    "capture_begin",
    "capture_end",
    "capturing",
    "cast",
    "clear",
    "closing",
    "collective",
    "deepcopy",
    "defaultdict",
    "device_code",
    "dict_get",
    "elapsed_time",
    "exit_stack",
    "exit_stack_close",
    "external_stream",
    "field",
    "from_host",
    "from_numpy",
    "future_result",
    "future_set",
    "futures_wait",
    "generator_state",
    "getattr",
    "graph_pool",
    "graphed_callables",
    "hand_over",
    "handle",
    "hasattr",
    "interop",
    "isinstance",
    "iter",
    "itemgetter",
    "len",
    "load_file",
    "load_state",
    "loader",
    "make_dict",
    "make_optimizer",
    "members",
    "methodcaller",
    "move_module",
    "namedtuple",
    "names_device",
    "namespace",
    "next",
    "nullcontext",
    "numpy_view",
    "optimizer_step",
    "parameter",
    "p2p",
    "parameter",
    "part",
    "pin_memory",
    "pointed_array",
    "range",
    "record_event",
    "register_buffer",
    "register_generator",
    "release",
    "replace",
    "replay",
    "resize",
    "scaler_step",
    "set_device",
    "setattr",
    "signal",
    "same_each",
    "sized_by_data",
    "super",
    "take",
    "take_over",
    "thread",
    "thread_join",
    "thread_start",
    "to_numpy",
    "type",
    "vars",
    "where",
]
"""Calls whose meaning depends on more than their arguments' memory: the transfer functions know each by this name."""


GradientUse: TypeAlias = Literal["", "write", "read", "both", "release", "cut"]


@dataclass(frozen=True, slots=True)
class Row:
    """What one call does. Every list is of arguments; an empty one says that the call does none of it.

    Attributes:
        name: the canonical dotted name: ``torch.Tensor.copy_``, ``cupy.cuda.Event.record``, ``builtins.zip``.
        library: whose call it is.
        params: the parameters in order, without ``self``.
        stream: on what stream the call works: ``current``, or an argument.
        reads, writes: memory that the call reads and writes on that stream.
        host_reads, host_writes: memory that the host reads and writes; device memory is waited for first where the
            row's ``order`` says so.
        pickles: objects of which the host reads all memory that they hold.
        result: what it returns.
        order: the edges it makes, in order, before its own accesses for ``wait`` and after them for the rest.
        copy: a copy whose kind depends on places.
        capture: what it means inside a capture; None: legal.
        frees: memory that is given back (``resize_(0)``).
        records: memory and the stream it is recorded on (``record_stream``).
        sets_current: the stream that is current from here on.
        asks: arguments that may be numbers: of memory of the device among them the host asks for the value, which
            waits for the stream.
        truth: whether the result holds truth values: an index with it asks for their number.
        property: whether it is an attribute: reading it makes the call.
        calls: functions among the arguments that it calls.
        stores: arguments that it keeps in a container.
        gradient: whether it writes gradients, reads them, both, or gives them back; ``cut``: no pass goes on through
            the result.
        clock: whether it reads a clock of the host.
        weak: whether objects of other kinds have a method of this name, too: nothing shows that the receiver is memory.
        special: see :data:`Special`.
        semantics: rows of the semantics table that prove it.
    """

    name: str
    library: Library = "other"
    params: tuple[str, ...] = ()
    stream: Arg = "current"
    reads: tuple[Arg, ...] = ()
    writes: tuple[Arg, ...] = ()
    host_reads: tuple[Arg, ...] = ()
    host_writes: tuple[Arg, ...] = ()
    pickles: tuple[Arg, ...] = ()
    result: Result = UNKNOWN_RESULT
    order: tuple[Order, ...] = ()
    copy: Copy | None = None
    capture: Capture | None = None
    frees: tuple[Arg, ...] = ()
    records: tuple[tuple[Arg, Arg], ...] = ()
    sets_current: Arg = ""
    asks: tuple[Arg, ...] = ()
    truth: bool = False
    property: bool = False
    calls: tuple[Calls, ...] = ()
    stores: tuple[Store, ...] = ()
    gradient: GradientUse = ""
    clock: bool = False
    weak: bool = False
    special: Special = ""
    semantics: tuple[str, ...] = ()


class NameRow(NamedTuple):
    """A hint that only a name gives, of a value whose origin is not seen: it costs one step of confidence.

    Attributes:
        pattern: of the whole identifier, a regular expression.
        what: of what it is the name: an attribute, a parameter, a function, or a variable.
        role: what the value is then taken for.
        why: one line for the reader.
    """

    pattern: str
    what: Literal["attribute", "parameter", "function", "variable"]
    role: str
    why: str
