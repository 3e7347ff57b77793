"""The one table of name hints: what a name says where nothing else in sight does.

A verdict does not hang on a name that a file is free to choose, except here. Each row says what it assumes. *Needed by*
counts the labelled places that change without it: *cases* are bugs of public projects and their mended twins,
*fixtures* are files in fixtures/static, a *public wheel* is one whose hazards were labelled by reading. Measured by
switching one row off at a time; a row that changes none of these does not stay.

What only a name says about an object is one assumption: a finding that leans on it is at most *likely* where the row
says so.
"""

from __future__ import annotations

import re

# -- names of parameters, variables and attributes ---------------------------------------------------------------------

SHARED = re.compile(
    r"_*(?:\w+_)?(?:configs?|configuration|cfg|args|opts?|options|settings|policy|flags|mode|groups?|mesh|device|dtype"
    r"|streams?|events?|comms?|communicators?|pools?|allocators?|managers?|contexts?|ctx|engine|runtime|parent|owner)"
)
"""A parameter of a constructor that is one object for all objects of the program. Needed by 1 case."""

OPTIMIZER = re.compile(r"(?!\w*scheduler)(?:\w*optim\w*|(?:\w+_)?opts?(?:_\w)?)")
"""An optimizer of torch's: its ``step()`` reads the gradients and writes the parameters. A finding that leans on the
name is at most *likely*; an object that some call also asks for ``zero_grad()`` or ``param_groups`` needs no name.
Needed by 16 fixtures.
"""

SCALERS = frozenset({"scaler", "scalers", "grad_scaler"})
"""A scaler of gradients. Needed by 3 fixtures, together with the optimizer that it steps."""

PARAMETER = re.compile(r"(?:\w+_)?(?:weights?|bias(?:es)?|kernel|embedding|gamma|beta)|w\d")
"""An attribute of a module that is not seen made, which is one of its parameters. Needed by 2 fixtures."""

HOST_MEMORY = re.compile(
    r"_*(?:\w+_)?(?:cpu|pinned)_(?:(?!to_|gpu|cuda|device|offload)[a-z]+_)?"
    r"(?:buf|buffer|tensor|view|staging|mem|memory|block|cache|pool|grad|param|weight|copy)s?"
    r"|\w+_cpu"
)
"""Memory of the host. Needed by 4 fixtures."""

DEVICE = re.compile(r"_*(?:\w+_)?device(?:_type|_kind|_name)?|accelerator")
"""A device, or what kind of device it is. Needed by 3 fixtures."""

DEVICE_FLAG = re.compile(r"_*(?:use|with|has|on|enable)?_?(?:cuda|gpu)(?:_available|_enabled)?")
"""A flag that is true where the program runs on a GPU. Needed by 2 fixtures."""

CPU_FLAG = re.compile(r"_*(?:use|on|force)?_?cpu(?:_only)?|no_(?:cuda|gpu)")
"""A flag that is true where it does not. Needed by 1 fixture."""

IDENTITY = re.compile(r"_*(?:\w+_)?(?:id|identity|uid|uuid|name|key|index|idx)")
"""An attribute that tells an object from all others of its kind. Needed by 2 fixtures."""

NUMBER = re.compile(
    r"_*(?:\w+_)?(?:rank|size|numel|count|len|length|nbytes|epoch|step|names?|paths?|dtype|config|cfg)|(?:num|n)_\w+"
)
"""An argument that is a number, or words, and no tensor. Needed by 3 fixtures."""

HANDLE = re.compile(r"_*(?:\w+_)?(?:event|stream)")
"""An attribute that is to hold an event or a stream, and holds None until then. Needed by 2 fixtures."""


def names_host(attribute: object) -> bool:
    """Whether an attribute is memory of the host."""
    return isinstance(attribute, str) and HOST_MEMORY.fullmatch(attribute) is not None


def identifies(attribute: object) -> bool:
    """Whether an attribute tells an object from all others of its kind."""
    return isinstance(attribute, str) and IDENTITY.fullmatch(attribute) is not None


def names_event(text: str) -> bool:
    """Whether an object is an event: ``wait()`` and ``record()`` have others, too. Needed by 1 fixture."""
    ends = ("_evt", "_done", "_ready")
    return "event" in text or text.endswith(ends) or text in ("evt", "ev", "done", "ready")


def names_loader(text: str) -> bool:
    """Whether something gives batches, at least one whenever it is iterated over. Needed by 1 fixture."""
    return "loader" in text.lower()


def names_device_module(text: str) -> bool:
    """Whether an object of unknown kind that is asked for ``Event`` and the like is a device module of torch's."""
    return any(word in text for word in ("device", "accelerator", "platform", "module", "backend", "cuda"))


# -- names of functions and modules of other files, whose code is not seen ---------------------------------------------

DEVICE_MODULE = re.compile(
    r"(?:\w+_)?(?:device|accelerator|platform)(?:_(?:fn|mod|module|api|lib|interface))?"
)
"""A device module of torch's that another file hands out. Needed by 1 fixture, for 3 hazards."""

CURRENT_STREAM = re.compile(r"_*(?:get_)?current_(?:\w+_)?stream(?:_\w+)?")
"""A function that gives the current stream. Needed by 2 files of a public wheel, with 13 places."""

RECORDING_HELPER = re.compile(r"(?:\w+_)?record_(?!event)(?:\w+_)?streams?")
"""A function that records what it is given on a stream: it touches no memory. Needed by 1 fixture."""

SYNCHRONIZES = re.compile(
    r"_*(?:(?:cuda|gpu|devices?|torch|accelerator)_)?sync(?:hronize)?"
    r"(?:_(?:all|cuda|gpus?|devices?|streams?|accelerator))?"
)
"""A function that makes the host wait for its devices. Needed by 1 fixture."""

MAY_WAIT = re.compile(
    r"_*(?:\w+_)?(?:(?:sync|synchronize|wait|block)(?:_(?:op|fn|func|call|handles?|works?))?|(?:wait|block)_\w+)"
)
"""What is not Python and may make the host wait. Needed by 1 fixture."""

KEEPS_OR_SETS = re.compile(
    r"_*(?:save|export|dump|reset|set|register|print|log|enable|disable)(?:_\w+)?|(?:pre)?compile"
    r"|(?:named_)?(?:parameters|buffers|modules|children)|(?:load_)?state_dict"
)
"""What keeps, sets, compiles or writes down something: what it is given is no work that is timed. Needed by 2
fixtures.
"""

SETTING = re.compile(
    r"_*(?:get_)?(?:\w+_)?(?:world_size|rank|degree|parallel_size|num_(?:gpus|nodes|devices|ranks|stages)|backend|device_count)"
)
"""A call that asks how many processes or devices there are, or which of them this is. Needed by 1 fixture."""

GROUP = re.compile(r"_*(?!new|make|create|build|init|next|split)(?:\w+_)?(?:process_)?group")
"""A call that gives a group of processes: there is one as long as the program runs. Needed by 1 fixture."""

CONFIGURATION = re.compile(r"_*get_(?:\w+_)?(?:args|config|cfg|options|settings|flags|hparams)")
"""A call that gives the settings of the program. Needed by 1 fixture."""
