"""The fields that the analysis keeps of an object, beside the attributes and elements that the program gives it.

Each is declared once, here: what it says, what its value is, and how it joins where two paths meet.
"""

from __future__ import annotations

from typing import Any, Generic, TypeVar, final

from streamsafe.static.values import (
    NONE,
    UNKNOWN,
    Class,
    Const,
    Number,
    Object,
    Opaque,
    Stream,
    Tuple,
    Value,
)

T = TypeVar("T", covariant=True)


class Mark(Value):
    """The value of a field that is there or not, and says no more."""


@final
class Field(Generic[T]):
    """A key of an object's table that no attribute, name or index of the program can be.

    Where two paths meet, a field that one of them alone knows stays as it is there, and one that they know differently
    becomes the union of both, unless it is declared otherwise.

    Args:
        kind: what its values are.
        says: what it says of the object that has it.
        default: what its absence says, of an object that both paths know.
        where_known: it stays only if it is on each path that knows the object.
        everywhere: it stays only if it is on both paths, whether or not they know the object.
        agreed: it stays only if both paths say the same.
        holds: what it says refers to objects of the program, which live as long.
    """

    __slots__ = ("_ways", "agreed", "default", "everywhere", "holds", "kind", "name", "says", "where_known")

    def __init__(
        self,
        kind: type[T],
        says: str,
        *,
        default: Value | None = None,
        where_known: bool = False,
        everywhere: bool = False,
        agreed: bool = False,
        holds: bool = False,
    ) -> None:
        self.kind = kind
        self.says = says
        self.default = default
        self.where_known = where_known
        self.everywhere = everywhere
        self.agreed = agreed
        self.holds = holds
        self.name = ""
        self._ways: dict[str, Field[T]] = {}

    def of(self, word: str) -> Field[T]:
        """The same field of one of several, of a library or a kind of hook: each is a field of its own."""
        found = self._ways.get(word)
        if found is None:
            found = self._ways[word] = Field(self.kind, self.says)
            found.name = f"{self.name}.of({word!r})"
        return found

    def __repr__(self) -> str:
        return self.name

    def __reduce__(self) -> str | tuple[Any, ...]:
        family, _, word = self.name.partition(".of(")
        return (globals()[family].of, (word[1:-2],)) if word else family


# -- numbers and objects of unknown kind -------------------------------------------------------------------------------

NUMBER = Field(Value, "How a number is computed, as far as that is known.")
BOUNDS = Field(Const, "Between which numbers it lies.", everywhere=True, agreed=True)
NONZERO = Field(Mark, "A number is not 0.", everywhere=True)
NEVER_NONE = Field(Mark, "It is not None, whatever it is.")
QUERY = Field(
    Const, "The call, with its arguments, of which it is the answer: asked again it comes out alike."
)
ASSUMED_CLASS = Field(Class, "The class of the file that it is taken for an instance of.")
CLASS_NAME = Field(Const, "The qualified name of the unseen class that it was constructed of.")
CONSTRUCTED = Field(Mark, "A class that is not seen was called to make it.")
BUILTIN_TYPE = Field(Const, "The builtin type that it is of.")
COLLECTION = Field(Mark, "A test has found that it is a list, a tuple or a dict.")
REFERENT = Field(Value, "What a weak reference refers to.")
PART_OF = Field(Object, "The object one of whose attributes it became last.")
FIRST_ROUND = Field(Mark, "A round of a loop that no other has gone before.")
ROUND_NUMBER = Field(Const, "Which round this is of a loop whose rounds are followed one by one.")
INDEX_OF = Field(Value, "What a loop iterates over by this index or key.")

# -- lists, queues and dicts -------------------------------------------------------------------------------------------

LENGTH = Field(
    Const, "How many elements a list has whose elements are all known.", where_known=True, agreed=True
)
KEYS = Field(Const, "The keys of a dict, where all are known.", where_known=True, agreed=True)
HAS_ITEMS = Field(Const, "Whether a list holds something.", where_known=True)
FIRST_ITEM = Field(Value, "The element that was found at the head, however many there are.", default=UNKNOWN)
LAST_ITEM = Field(Value, "The element at the end, however many there are.", default=UNKNOWN)
LENGTH_UNCHANGED = Field(
    Mark, "Nothing was added or taken out since a list of unknown length was made.", where_known=True
)
PASSED_ON = Field(Value, "What one module of a row has made, which the next one is given.")
SYMBOLIC_LENGTH = Field(Number, "What stands for the length of a list until something is added or taken out.")
REPEATS = Field(Opaque, "The ``n`` of a list that ``[x] * n`` has made: if it has an element, that is not 0.")
MAXLEN = Field(Mark, "A deque holds so many at most: what joins it at one end may push one out at the other.")
ITEMS_REMOVED = Field(Mark, "Elements have been popped: where one was, another one may come to stand.")
DEFAULT_FACTORY = Field(Value, "What a ``defaultdict`` calls for a key that is missing.")
UNKNOWN_INDEX = Field(Number, "The number, not a known one, at which a list of handles was used last.")
STACK_DEPTH = Field(Const, "How many places of an ``ExitStack`` are taken.")
STREAM_BEFORE = Field(Value, "The stream that was current before this stream, or this stack, was entered.")

# -- tensors -----------------------------------------------------------------------------------------------------------

PLACE = Field(Const, "Where a tensor's memory lies: ``device``, ``pinned``, ``pageable``, or nothing.")
DEFAULT_DEVICE = Field(Mark, "A tensor was made without a device: it lies where the default device is.")
REQUESTED_DEVICE = Field(Value, "The device, of unknown kind, that a new tensor was made on.")
COPIED_TO = Field(Value, "The device, of unknown kind, to which a tensor was copied.")
STREAMS_DEVICE = Field(Value, "The device that a stream was made for, or that the program has made current.")
COPY_TARGET = Field(
    Mark, "A device to which something was copied asynchronously: to the host if it is the host."
)
COPIED_TO_HOST = Field(
    Mark, "A tensor of the host that was copied from a device, or computed from one that was."
)
COMPUTED_IN_CAPTURE = Field(Mark, "A call under a capture has computed it.")
ELEMENT_COUNT = Field(Value, "How many elements a tensor of one dimension was made with.")
BOOLEAN_MASK = Field(Mark, "A tensor of truth values: to index by it needs their number.")
MODULE_PARAMETER = Field(Mark, "A tensor that is a parameter of a module.")
MODULE_BUFFER = Field(Mark, "A tensor that is a buffer of a module.")
MOVES_WITH_MODULE = Field(Mark, "A tensor in pageable memory that goes where its module goes.")

# -- memory ------------------------------------------------------------------------------------------------------------

ALLOCATED_ON = Field(Stream, "The stream that memory was allocated on.")
PRESUMED_STREAM = Field(Mark, "On which stream memory was allocated is presumed.")
RECORD_STREAM = Field(Tuple, "The streams that ``record_stream`` was called with.")
UNOWNED_MEMORY = Field(Mark, "Memory that somebody else owns and frees.")
TAKEN_FROM = Field(
    Tuple,
    "The container from which one of the objects of a name was taken, and where all had been used by then.",
    default=NONE,
)
TAKEN_NEXT = Field(
    Tuple, "The same of another one, taken while somebody still held the one before.", default=NONE
)
KEPT_IN_CONTAINER = Field(
    Mark, "A tensor that a list keeps: one of replay outputs, or one that nobody reads."
)

# -- streams, events and threads ---------------------------------------------------------------------------------------

CREATED = Field(Mark, "A stream or an event that the code that is seen has created.")
RECORDED_ON = Field(Stream, "The stream that an event was recorded on last.")
EVER_RECORDED_ON = Field(Const, "The streams that an event was recorded on, now or before.")
RECORD_SITE = Field(Const, "Where an event was recorded last.")
MAYBE_RECORDED = Field(Mark, "Code that is not seen was given the event, and may have recorded it.")
FOREIGN_EVENT = Field(Mark, "Another process records the event.")
EXTERNAL_EVENT = Field(Mark, "An event that each replay records for whoever waits outside the graph.")
MAYBE_EXTERNAL = Field(Mark, "An event of which it is not known whether it is external.")
CAPTURED_IN = Field(Const, "The entry under which a capture has recorded an event that is not external.")
COALESCED_ON = Field(Stream, "The communication stream of collectives that are coalesced.")
LOOP_WAITS_TAKEN = Field(Mark, "A stream has waited for all that streams of loops before have waited for.")
THREAD = Field(Mark, "A thread.")
EXECUTOR = Field(Mark, "An executor of threads.")
WAITING_THREAD = Field(Object, "A thread that has started and waits for what others do first: itself.")
SIGNAL = Field(Mark, "A signal between threads, such as ``threading.Event``.")
SIGNAL_SET = Field(Mark, "A signal that was given.")
EMPTY_SEMAPHORE = Field(
    Mark, "A semaphore that began at 0: the first to acquire it waits for another thread."
)

# -- graphs ------------------------------------------------------------------------------------------------------------

CAPTURED_BY = Field(Const, "The entry that has captured a graph.")
REPLAYED_BY = Field(Const, "The entry that has replayed a graph last: its outputs are in use.")
GRAPH_USES = Field(Tuple, "What a replay reads and writes.")
CALLED_MODULES = Field(Tuple, "The modules that a capture has called without being seen inside.")
EXTERNAL_RECORDS = Field(Tuple, "The external events that a replay records.")
FREED_MEMORY = Field(
    Stream, "The streams of memory that a capture has allocated and freed: it may be used again."
)
REUSED_MEMORY = Field(Value, "What has taken memory that a graph still uses, and where.")
MEMORY_POOL = Field(Opaque, "The memory pool of a graph.")
CAPTURE_ORDER = Field(Tuple, "The graphs of a pool in the order of their captures.")
CAPTURED_IN_INIT = Field(
    Mark, "A constructor has captured the graph: it is there before any method is called."
)
PARTLY_SEEN = Field(Mark, "Not all of the entry that has captured the graph was followed.")
GRADIENTS_DROPPED = Field(Const, "Where gradients were dropped that a captured pass writes.")
ALLOCATED_IN_CAPTURE = Field(Const, "The capture in which a tensor was allocated.")
FILLED_IN_CAPTURE = Field(
    Const, "The capture in which the host has written a tensor from before it, and where."
)
INPUT_REPLACED = Field(Mark, "A static input of a graph in whose place another tensor was put.")
REPLAY_OUTPUT = Field(Mark, "A tensor that a replay has written.")
OUTPUT_NAMES = Field(Const, "The names of a graph's output since its last replay, and those from before it.")
OVERLAID_AT = Field(Const, "The replay of another graph that may have overwritten an output.")
OVERWRITTEN_BY_REPLAY = Field(
    Mark, "A tensor that was kept, and that another replay of its graph has overwritten."
)
GRAPHED_CALLABLE = Field(Tuple, "The graph that a call of it replays, and its outputs.")
REGISTERED_GENERATOR = Field(Mark, "A random generator that is registered with a graph.")

# -- modules, gradients and hooks --------------------------------------------------------------------------------------

TORCH_MODULE = Field(
    Const, "A module of torch's: the entry that has made it, or the class of a container of modules."
)
DISTRIBUTED = Field(Mark, "A ``DistributedDataParallel``.")
COMPUTES_AT_INPUT = Field(Mark, "A module that computes where its input lies.")
WARMUP_RUNS = Field(Const, "Where a module has run before a capture, and how often.")
PIN_MEMORY = Field(Const, "Where a loader was made that pins memory in a thread of its own.")
OPTIMIZER = Field(Mark, "An optimizer or a gradient scaler.")
GRAD_SCALER = Field(Mark, "A gradient scaler.")
FUSED = Field(Mark, "A fused optimizer.")
NOT_CAPTURABLE = Field(Const, "Where an optimizer was made without ``capturable=True``.")
STALE_GRADIENTS = Field(
    Const, "Where gradients were dropped, and the replay that has written the dropped ones."
)
BACKWARD_RUN = Field(
    Const, "The entry of a backward pass on the default stream, where and on which path; else None."
)
GRADIENT_HOOKS = Field(
    Value, "The hooks that a function has registered, which runs them at each backward pass."
)
PRE_FORWARD_HOOKS = Field(Value, "The functions that run before a module is called.")
FORWARD_HOOKS = Field(Value, "The functions that run after a module is called.")
SAVED_TENSORS_HOOKS = Field(
    Tuple, "What packs and unpacks the tensors that autograd saves; of an object, its pair."
)
PACKED_TENSORS = Field(
    Tuple, "What unpacks a saved tensor, what was packed, and the stream it was saved on.", holds=True
)
AUTOGRAD_FUNCTIONS = Field(Tuple, "The functions of the file's own that a captured forward pass has applied.")
AUTOGRAD_CONTEXT = Field(Opaque, "The context of a forward pass of the function.")

# -- kernels, pools and plans ------------------------------------------------------------------------------------------

KERNEL_KIND = Field(Const, "The class of a CUDA kernel or module.")
KERNEL_SOURCE = Field(Const, "The texts of the source of a CUDA kernel.")
FFT_PLAN = Field(Mark, "A plan of an FFT.")
PINNED_POOL = Field(Mark, "A pool of pinned memory.")
RANDOM_GENERATOR = Field(Const, "The library of a random generator.")

FIELDS: dict[str, Field[Any]] = {name: each for name, each in globals().items() if type(each) is Field}
"""All of them, by name."""

for _name, _field in FIELDS.items():
    _field.name = _name
