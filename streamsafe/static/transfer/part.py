"""What the parts of the interpreter have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from streamsafe.static import interpreter
    from streamsafe.static.transfer.run_state import RunState


class Parts:
    """The parts of the interpreter, by the names of their modules: each part knows all of them."""

    accesses: interpreter.MemoryAccesses
    advice: interpreter.Advice
    arithmetic: interpreter.Arithmetic
    arrays: interpreter.Arrays
    assignments: interpreter.Assignments
    assumed_order: interpreter.AssumedOrder
    attributes: interpreter.Attributes
    builtin_functions: interpreter.BuiltinFunctions
    call_stack: interpreter.CallStack
    calls: interpreter.Calls
    captures: interpreter.Captures
    class_members: interpreter.ClassMembers
    clocks: interpreter.Clocks
    collectives: interpreter.Collectives
    comprehensions: interpreter.Comprehensions
    computed: interpreter.Computed
    conditions: interpreter.Conditions
    container_methods: interpreter.ContainerMethods
    containers: interpreter.Containers
    contexts: interpreter.Contexts
    copies: interpreter.Copies
    definitions: interpreter.Definitions
    devices: interpreter.Devices
    effects: interpreter.Effects
    elements: interpreter.Elements
    events: interpreter.Events
    expressions: interpreter.Expressions
    functions: interpreter.Functions
    gradients: interpreter.Gradients
    graph_calls: interpreter.GraphCalls
    graph_memory: interpreter.GraphMemory
    hooks: interpreter.Hooks
    instances: interpreter.Instances
    interop: interpreter.Interop
    iterables: interpreter.Iterables
    iteration: interpreter.Iteration
    kernel_launches: interpreter.KernelLaunches
    library: interpreter.Library
    lifetimes: interpreter.Lifetimes
    loops: interpreter.Loops
    memory: interpreter.Memory
    methods: interpreter.Methods
    narrowing: interpreter.Narrowing
    objects: interpreter.Objects
    paths: interpreter.Paths
    placement: interpreter.Placement
    predicates: interpreter.Predicates
    python_containers: interpreter.PythonContainers
    race_checks: interpreter.RaceChecks
    replays: interpreter.Replays
    statements: interpreter.Statements
    stream_pools: interpreter.StreamPools
    streams: interpreter.Streams
    subscripts: interpreter.Subscripts
    tensor_functions: interpreter.TensorFunctions
    tensor_methods: interpreter.TensorMethods
    tensors: interpreter.Tensors
    threads: interpreter.Threads
    torch_modules: interpreter.TorchModules
    unknown_objects: interpreter.UnknownObjects
    unpacking: interpreter.Unpacking
    unseen: interpreter.Unseen


class Part(Parts):
    """A group of transfer functions.

    The interpreter sets the attributes that are other parts. What the parts share is in ``run``; a part inherits from
    no other part.

    Args:
        run: the state of the analysis of one file.
    """

    def __init__(self, run: RunState) -> None:
        self.run = run

    def connected(self) -> None:
        """Build what needs the other parts: the interpreter calls this once, when all of them are set."""
