"""The interpreter: the transfer functions of one file's analysis, connected with each other."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamsafe.static.transfer.accesses import MemoryAccesses as MemoryAccesses
from streamsafe.static.transfer.advice import Advice as Advice
from streamsafe.static.transfer.arithmetic import Arithmetic as Arithmetic
from streamsafe.static.transfer.arrays import Arrays as Arrays
from streamsafe.static.transfer.assignments import Assignments as Assignments
from streamsafe.static.transfer.assumed_order import AssumedOrder as AssumedOrder
from streamsafe.static.transfer.attributes import Attributes as Attributes
from streamsafe.static.transfer.builtin_functions import BuiltinFunctions as BuiltinFunctions
from streamsafe.static.transfer.call_stack import CallStack as CallStack
from streamsafe.static.transfer.calls import Calls as Calls
from streamsafe.static.transfer.captures import Captures as Captures
from streamsafe.static.transfer.class_members import ClassMembers as ClassMembers
from streamsafe.static.transfer.clocks import Clocks as Clocks
from streamsafe.static.transfer.collectives import Collectives as Collectives
from streamsafe.static.transfer.comprehensions import Comprehensions as Comprehensions
from streamsafe.static.transfer.computed import Computed as Computed
from streamsafe.static.transfer.conditions import Conditions as Conditions
from streamsafe.static.transfer.container_methods import ContainerMethods as ContainerMethods
from streamsafe.static.transfer.containers import Containers as Containers
from streamsafe.static.transfer.contexts import Contexts as Contexts
from streamsafe.static.transfer.copies import Copies as Copies
from streamsafe.static.transfer.definitions import Definitions as Definitions
from streamsafe.static.transfer.devices import Devices as Devices
from streamsafe.static.transfer.effects import Effects as Effects
from streamsafe.static.transfer.elements import Elements as Elements
from streamsafe.static.transfer.events import Events as Events
from streamsafe.static.transfer.expressions import Expressions as Expressions
from streamsafe.static.transfer.functions import Functions as Functions
from streamsafe.static.transfer.gradients import Gradients as Gradients
from streamsafe.static.transfer.graph_calls import GraphCalls as GraphCalls
from streamsafe.static.transfer.graph_memory import GraphMemory as GraphMemory
from streamsafe.static.transfer.hooks import Hooks as Hooks
from streamsafe.static.transfer.instances import Instances as Instances
from streamsafe.static.transfer.interop import Interop as Interop
from streamsafe.static.transfer.iterables import Iterables as Iterables
from streamsafe.static.transfer.iteration import Iteration as Iteration
from streamsafe.static.transfer.kernel_launches import KernelLaunches as KernelLaunches
from streamsafe.static.transfer.library import Library as Library
from streamsafe.static.transfer.lifetimes import Lifetimes as Lifetimes
from streamsafe.static.transfer.loops import Loops as Loops
from streamsafe.static.transfer.memory import Memory as Memory
from streamsafe.static.transfer.methods import Methods as Methods
from streamsafe.static.transfer.narrowing import Narrowing as Narrowing
from streamsafe.static.transfer.objects import Objects as Objects
from streamsafe.static.transfer.part import Part, Parts
from streamsafe.static.transfer.paths import Paths as Paths
from streamsafe.static.transfer.placement import Placement as Placement
from streamsafe.static.transfer.predicates import Predicates as Predicates
from streamsafe.static.transfer.python_containers import PythonContainers as PythonContainers
from streamsafe.static.transfer.race_checks import RaceChecks as RaceChecks
from streamsafe.static.transfer.replays import Replays as Replays
from streamsafe.static.transfer.run_state import RunState
from streamsafe.static.transfer.statements import Statements as Statements
from streamsafe.static.transfer.stream_pools import StreamPools as StreamPools
from streamsafe.static.transfer.streams import Streams as Streams
from streamsafe.static.transfer.subscripts import Subscripts as Subscripts
from streamsafe.static.transfer.tensor_functions import TensorFunctions as TensorFunctions
from streamsafe.static.transfer.tensor_methods import TensorMethods as TensorMethods
from streamsafe.static.transfer.tensors import Tensors as Tensors
from streamsafe.static.transfer.threads import Threads as Threads
from streamsafe.static.transfer.torch_modules import TorchModules as TorchModules
from streamsafe.static.transfer.unknown_objects import UnknownObjects as UnknownObjects
from streamsafe.static.transfer.unpacking import Unpacking as Unpacking
from streamsafe.static.transfer.unseen import Unseen as Unseen

if TYPE_CHECKING:
    from streamsafe.project.settings import Models
    from streamsafe.static.source import SourceFile

PARTS: dict[str, type[Part]] = {
    part.__module__.rpartition(".")[2]: part
    for part in sorted(list[type](Part.__subclasses__()), key=lambda part: part.__module__)
}
"""The parts, by the names of their modules: under these others know them."""

VERBS = {
    method.removeprefix("do_"): (name, method)
    for name, part in PARTS.items()
    for method in vars(part)
    if method.startswith("do_")
}
"""The verbs of library calls: the part and the method that does what a row of the tables means."""


class Interpreter(Parts):
    """Interprets the functions of one file.

    Args:
        file: the source.
        models: the user's own wrappers.
    """

    def __init__(self, file: SourceFile, models: Models | None = None) -> None:
        self.run = RunState(file, models)
        self.parts = {name: part(self.run) for name, part in PARTS.items()}
        for user in (self, *self.parts.values()):
            for name, part in self.parts.items():
                setattr(user, name, part)
        self.run.verbs = {verb: getattr(self.parts[name], method) for verb, (name, method) in VERBS.items()}
        for part in self.parts.values():
            part.connected()

    def take_apart(self) -> None:
        """Undo the cycles between the parts: what is left of a file is then freed at once."""
        for part in (*self.parts.values(), self):
            getattr(part, "__dict__", {}).clear()  # one that is compiled has none
