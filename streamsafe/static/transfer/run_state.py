"""What the analysis of one file keeps beside the state of a path: its place in the code, and what it has found."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Set
from dataclasses import dataclass, field

import libcst as cst

from streamsafe.order.symbolic import Carriers, Guard, Made
from streamsafe.project.settings import Models
from streamsafe.static.facts import Finding, Site, StreamTable
from streamsafe.static.source import ClassUnit, FunctionUnit, SourceFile
from streamsafe.static.state import Key, State
from streamsafe.static.transfer.call_stack import MODULE, Activation
from streamsafe.static.transfer.tensors import Call
from streamsafe.static.values import Function, Generator, Name, Stream, Value


@dataclass(slots=True, eq=False)
class RunState:
    """What all parts of the interpreter share while they analyse one file.

    What only one part uses is an attribute of that part; what holds at one point of the program is in ``State``.
    """

    # -- the file ------------------------------------------------------------------------------------------------

    file: SourceFile
    """The source."""
    models: Models | None = None
    """The user's own wrappers."""
    relevant: set[str] = field(init=False)
    """The qualified names of the functions that matter for streams."""
    is_stream_code: Callable[[Set[str]], bool] = lambda _: True
    """Whether these names in a statement make it stream code."""
    one_stream: bool = False
    """The file mentions no stream but the current one."""
    units: dict[str, FunctionUnit | ClassUnit | None] = field(default_factory=dict)
    """By name, the functions and classes that were looked up."""
    nested: dict[cst.CSTNode, FunctionUnit | ClassUnit] = field(default_factory=dict)
    """By node, the functions and classes that are defined inside functions."""

    # -- what is interpreted -------------------------------------------------------------------------------------

    stack: list[Activation] = field(default_factory=list)
    """The calls under way, the innermost last."""
    paused: list[list[Activation]] = field(default_factory=list)
    """The calls of generators that wait for their consumers."""
    protocol_roots: list[Name] = field(default_factory=list)
    """The objects whose methods are entries: callers hold them."""
    closures: dict[Name, Name] = field(default_factory=dict)
    """By the scope of a function that is made in another one, the scope of that one."""
    captured_frames: dict[Name, set[str]] = field(default_factory=dict)
    """By scope, the names that functions made there mention."""
    entered: set[FunctionUnit] = field(default_factory=set)
    """The functions that were interpreted."""
    begun: dict[Generator, tuple[tuple[Hashable, ...], dict[str, Value]]] = field(default_factory=dict)
    """By generator, the call path and the arguments that it was begun with."""
    alone: cst.CSTNode | None = None
    """The expression that is a whole statement."""
    kept_under: tuple[Activation, Name] | None = None
    """The call that computes a value, and the name under which this value is kept."""
    constructed: Name | None = None
    """The object whose constructor is interpreted."""
    builds_module: bool = False
    """This object is a module that nothing in sight makes."""
    calling: Value | None = None
    """The stream whose host function is interpreted."""
    beside: bool = False
    """The entry is a thread's, which waits for what others hand over."""
    threads: int = 0
    """How many threads deep the interpretation is."""
    taking: bool = False
    """The loop of a thread that waits for work has something to take."""
    blocked: list[State] = field(default_factory=list)
    """The states in which the thread under way would wait for others."""
    waiting: dict[FunctionUnit, Value | None] = field(default_factory=dict)
    """The functions of threads that wait for what others do, and the object they belong to, if any."""
    rounds: list[set[Name]] = field(default_factory=list)
    """For each loop under way, the names of the objects that its round has made."""
    late_rounds: Set[Name] = frozenset()
    """Rounds that are known by number and stand for all that follow."""
    counting: int = 0
    """Loops under way whose count is unknown and of which a few rounds stand for all."""
    counting_down: int = 0
    """Loops under way that count down to a number which is known."""
    fixpoints: int = 0
    """Loops under way of which a round stands for any."""
    unrolling: int = 1
    """How many rounds of the loops under way are interpreted one by one."""
    branching: int = 0
    """Conditions that the branches under way have decided."""
    lazily: int = 0
    """Branches under way that make what is not there yet."""
    inside: int = 0
    """Contexts under way after which another stream is current again."""
    tracking: bool = True
    """A question may be remembered; a loop asks its own each round anew."""
    identified: cst.CSTNode | None = None
    """The expression of which a test asks only whether it is None."""
    masking: cst.CSTNode | None = None
    """The comparison of which a method is called: its result is an array."""
    naming: bool = True
    """What a name is given may be what a replay has computed."""
    default_devices: list[Value] = field(default_factory=list)
    """The devices of the blocks ``with torch.device(...)`` under way."""
    new_parameters: bool = False
    """Each call of a method is taken to be given other objects."""

    # -- effort and limits ---------------------------------------------------------------------------------------

    steps: int = 0
    """Statements of this entry so far."""
    total_steps: int = 0
    """Statements of all entries so far."""
    effort: int = 0
    """Accesses of this entry so far."""
    total_effort: int = 0
    """Accesses of all entries so far."""
    followed: int = 0
    """Calls that were followed so far."""
    crowded: int = 120
    """How many objects there may be before those that nothing leads to are forgotten."""
    cut_short: dict[str, str] = field(default_factory=dict)
    """By entry, the limit that its analysis has reached."""

    # -- order ---------------------------------------------------------------------------------------------------

    carriers: Carriers = field(default_factory=Carriers)
    """The streams, events and other carriers of order, each with its bit."""
    table: StreamTable = field(default_factory=StreamTable)
    """What is known of streams: which are unknown, which are default streams."""
    verbs: dict[str, Callable[[Call, State], Value]] = field(default_factory=dict)
    """The operations of library calls, by the names that the tables use."""
    handles: set[Name] = field(default_factory=set)
    """Events and works that are made in rounds of a loop or in calls."""
    members: dict[Name, set[Name]] = field(default_factory=dict)
    """By container, the streams and events that were put into it."""
    own_events: set[Name] = field(default_factory=set)
    """Events that the file makes."""
    foreign_waits: list[tuple[Name, list[tuple[Stream, Guard]]]] = field(default_factory=list)
    """Waits for events of code that is not seen, with the streams that wait."""
    before_signals: set[Hashable] = field(default_factory=set)
    """The places of accesses before a signal to another thread."""
    published: set[tuple[Name, Hashable]] = field(default_factory=set)
    """What threads that were started have assigned: attributes of objects; of containers that they fill, None."""
    cuda_devices: set[Name] = field(default_factory=set)
    """Objects of unknown kind that are used as CUDA devices somewhere."""

    # -- conditions ----------------------------------------------------------------------------------------------

    conditions: dict[Hashable, int] = field(default_factory=dict)
    """By question, the bit of its condition."""
    mentions: dict[int, tuple[Name, ...]] = field(default_factory=dict)
    """By bit, the objects that its condition is about."""
    lasts: dict[Name, dict[Hashable, bool]] = field(default_factory=dict)
    """By round, the questions that tell whether it is the last, and how they come out then."""
    exchanged: dict[Key, Value] = field(default_factory=dict)
    """Names that a loop exchanges: what the first held when a condition was made."""
    flags: dict[Key, int] = field(default_factory=dict)
    """Attributes whose truth keeps the calls of an object's methods apart."""
    sure_lookups: int = 0
    """How many subscripts found what they asked for."""

    # -- objects -------------------------------------------------------------------------------------------------

    texts: dict[Name, str] = field(default_factory=dict)
    """By object, how a user names it."""
    made_here: set[Name] = field(default_factory=set)
    """Objects that the code in sight makes."""
    closed: set[Name] = field(default_factory=set)
    """Scopes and objects that hold only what is seen put there."""
    late: dict[Name, set[str]] = field(default_factory=dict)
    """By object, attributes that are absent until some method assigns them."""
    candidates: list[Name] = field(default_factory=list)
    """Objects that may have lost their last name."""
    ended: set[Name] = field(default_factory=set)
    """Candidates that a call which ended had among its own names."""
    plain: set[Name] = field(default_factory=set)
    """Objects that are no tensors."""
    settings: set[Name] = field(default_factory=set)
    """Parsed command lines: nothing that they hold is a tensor."""
    lengths: dict[Name, Name] = field(default_factory=dict)
    """By the name of a number, the list that it was counted of."""
    sizes: set[tuple[Name, str]] = field(default_factory=set)
    """Numbers that say how many elements some tensor has."""
    pool_sizes: set[Name] = field(default_factory=set)
    """Numbers that are the size of a pool of streams, known from the first reading of the file."""
    found_pool_sizes: set[Name] = field(default_factory=set)
    """Numbers that this reading has shown to be the size of a pool of streams, and lists of as many."""

    # -- tensors and memory --------------------------------------------------------------------------------------

    tensorish: set[Name] = field(default_factory=set)
    """Objects of unknown kind that are used as tensors somewhere."""
    presumed: set[Name] = field(default_factory=set)
    """Tensorish objects of which only a call of unknown kind says so, which made them of one."""
    tensor_rows: set[Name] = field(default_factory=set)
    """What was unpacked from an object and is used as a tensor."""
    non_tensors: set[Name] = field(default_factory=set)
    """Objects that are asked for a method which no tensor has."""
    results: set[Name] = field(default_factory=set)
    """Tensors that an operation returns."""
    libraries: dict[Name, str] = field(default_factory=dict)
    """By tensor, event or graph, the library that it belongs to."""
    sites_of: dict[Name, Site] = field(default_factory=dict)
    """By tensor, where it is allocated."""
    returned_at: dict[Name, Site] = field(default_factory=dict)
    """By tensor, the last call that returned it."""
    from_caller: dict[Name, Site] = field(default_factory=dict)
    """By object, where a caller who is not seen gives it."""
    loaded: set[Name] = field(default_factory=set)
    """Tensors that were read from files into pageable memory."""
    numbers: set[Name] = field(default_factory=set)
    """Tensors of the host that may have no dimension."""
    unplaced: set[Name] = field(default_factory=set)
    """Memory that is taken for the host's and may be pinned, or elsewhere."""
    of_numpy: set[Name] = field(default_factory=set)
    """Arrays that are not seen made, of which torch has made tensors."""
    produced: set[Name] = field(default_factory=set)
    """Memory that rounds of threads have allocated."""
    recorded_siblings: set[tuple[Name, Name]] = field(default_factory=set)
    """Objects of which some part is recorded on a stream."""
    inherited: set[Made] = field(default_factory=set)
    """Accesses that calls of methods before this one have left."""

    # -- modules, passes and graphs ------------------------------------------------------------------------------

    modules: set[Name] = field(default_factory=set)
    """Modules that are called and have parameters."""
    moved_parameters: bool = False
    """Some loop runs over all parameters of a module."""
    leaf_tensors: set[Name] = field(default_factory=set)
    """Tensors that were made leaves, each of a pass of its own."""
    assigns_gradients: bool = False
    """Something is assigned to the gradient of a parameter."""
    hook_modules: frozenset[Name] = frozenset()
    """The modules whose gradients the hook under way is given."""
    hooks: list[tuple[Function, list[Value], State, str]] = field(default_factory=list)
    """The hooks, each with its arguments, the state, and what registered it."""
    hooks_run_streams: bool = False
    """There is stream code in what runs around the call of a module."""
    unpacked_by: dict[Value, Value] = field(default_factory=dict)
    """By function that packs saved tensors, the one that unpacks them."""
    unpacked: set[Value] = field(default_factory=set)
    """Functions by which a backward pass in sight has unpacked."""
    replays: int = 0
    """How many replays were seen."""
    renamed: bool = False
    """An output of a replay had a name when the next one came."""
    pooled: bool = False
    """Some graphs share a pool."""
    waits: int = 0
    """Operations that a capture of another thread would not survive (GM-thr_item)."""

    # -- what is found -------------------------------------------------------------------------------------------

    entry: str = ""
    """The function, or the part of the file, that is interpreted as somebody's entry."""
    findings: dict[tuple[Hashable, ...], Finding] = field(default_factory=dict)
    """The hazards."""
    advice: dict[tuple[Hashable, ...], Finding] = field(default_factory=dict)
    """The advice on speed: see ``advice.py``."""
    silent: int = 0
    """Above zero, hazards are not reported."""
    unreported: set[Hashable] = field(default_factory=set)
    """The memory of hazards that were found and not reported."""
    unordered_accesses: set[tuple[str, Hashable]] = field(default_factory=set)
    """By entry, the accesses that it found unordered."""
    explained: list[tuple[Site, str]] | None = None
    """What is known at each place, where somebody asks for it; else None."""

    def __post_init__(self) -> None:
        self.relevant = set(self.file.definitions)
        self.closed.add(MODULE)
