"""Child processes are watched as their parent is, and have its simulated device.

A process that starts Python starts ``python -m streamsafe.runtime.child`` instead, which opens a session and then runs
what was asked for, as Python would. So nothing is installed into the environment (no ``sitecustomize``, no ``.pth``
file). ``subprocess`` (and what is built on it: ``asyncio``, torchrun) and ``multiprocessing`` (spawn, forkserver, and
fork before the parent has used CUDA) are covered; a command that goes through a shell, ``os.exec*``, ``os.system`` and
``os.fork`` are not.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from multiprocessing import util
from typing import Any

CHILD = "streamsafe.runtime.child"
WITH_VALUE = "WX"
"""Options of Python that take a value; ``-c`` and ``-m`` end them."""
THEMSELVES = ("pytest", "py.test", "streamsafe")
"""Programs that read ``STREAMSAFE`` themselves."""

_variables: dict[str, str] | None = None
"""What a child finds in its environment; None while children are left alone."""


def begin(variables: Mapping[str, str]) -> None:
    """From now on, children are watched.

    Args:
        variables: what they find in their environment, also where the program gives them another one.
    """
    global _variables
    _patch()
    _variables = dict(variables)


def end() -> None:
    """From now on, children are left alone."""
    global _variables
    _variables = None


_patched = False


def _patch() -> None:
    global _patched
    if _patched:
        return
    _patched = True
    plain, spawn = subprocess.Popen.__init__, util.spawnv_passfds

    def start(self: Any, args: Any, *rest: Any, **named: Any) -> None:
        given = args
        if _variables is not None and not named.get("shell") and not named.get("executable"):
            if not (len(rest) > 1 and rest[1]) and not isinstance(args, (str, bytes, os.PathLike)):
                args = rewritten([os.fsdecode(each) for each in args])
        if _variables is not None and named.get("env") is not None:
            named["env"] = {**_variables, **named["env"]}
        plain(self, args, *rest, **named)
        self.args = given

    def spawned(path: Any, args: Sequence[Any], passfds: Any) -> int:
        if _variables is not None:
            args = rewritten([os.fsdecode(each) for each in args])
        return spawn(path, args, passfds)

    subprocess.Popen.__init__ = start  # type: ignore[method-assign]
    util.spawnv_passfds = spawned


def rewritten(command: list[str]) -> list[str]:
    """The command that gives the device to a Python program; any other one is as it was.

    Args:
        command: program and arguments.
    """
    if not command:
        return command
    if not _is_python(command[0]):
        interpreter = _interpreter_of(command[0])
        if interpreter is None or os.path.basename(command[0]) in THEMSELVES:
            return command
        return [interpreter, "-m", CHILD, shutil.which(command[0]) or command[0], *command[1:]]
    at = 1
    while at < len(command) and command[at].startswith("-") and command[at] != "-":
        option = command[at]
        if option.startswith("--"):
            return command  # python --version
        for place, letter in enumerate(option[1:], 1):
            value = option[place + 1 :]
            if letter in "cm":
                program = [value] if value else command[at + 1 : at + 2]
                rest = command[at + 1 :] if value else command[at + 2 :]
                if not program or _looks_itself(letter, program[0]):
                    return command
                before = [option[:place]] if place > 1 else []
                return [*command[:at], *before, "-m", CHILD, f"-{letter}", *program, *rest]
            if letter in WITH_VALUE:
                at += 0 if value else 1
                break
        at += 1
    if at >= len(command) or command[at] == "-":
        return command  # a program from standard input
    return [*command[:at], "-m", CHILD, *command[at:]]


def _looks_itself(letter: str, program: str) -> bool:
    """Whether a program puts the device in place itself: tests, and the workers of a test run."""
    if letter == "m":
        return program.split(".")[0] in (*THEMSELVES, "pip", "venv", "ensurepip")
    return program.startswith("from multiprocessing.resource_tracker")


def _is_python(program: str) -> bool:
    """Whether it is the interpreter of this environment."""
    found = shutil.which(program) if os.path.basename(program) == program else program
    if not found or not os.path.basename(found).startswith("python"):
        return False
    return os.path.dirname(os.path.abspath(found)) == os.path.dirname(os.path.abspath(sys.executable))


def _interpreter_of(program: str) -> str | None:
    """The interpreter of a script that begins with ``#!``, where it is that of this environment."""
    found = shutil.which(program)
    if found is None:
        return None
    try:
        with open(found, "rb") as file:
            first = file.readline(300)
    except OSError:
        return None
    words = first[2:].split() if first.startswith(b"#!") else []
    interpreter = os.fsdecode(words[0]) if words else ""
    return interpreter if len(words) == 1 and _is_python(interpreter) else None
