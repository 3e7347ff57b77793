"""Records traces: each ``streamsafe run --simulate`` in a fork of one process, which imports once what all need.

CuPy itself is not imported before: CUDA is unusable in the child of a process that has begun with it.

    python -m tests.cli.recorder

Reads a line of JSON for each run, ``[folder, argument, ...]``, and answers with its exit code.
"""

from __future__ import annotations

import importlib
import json
import os
import sys

from streamsafe.cli import main as streamsafe

IMPORTED = (
    "numpy",
    "pytest",  # by CuPy
    "streamsafe.runtime.pinned.arrays",
    "streamsafe.runtime.launch",
    "streamsafe.runtime.opening",
    "streamsafe.simulate.cuda.installing",
)


def run(folder: str, arguments: list[str]) -> int:
    """What the command exits with."""
    os.chdir(folder)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    try:
        streamsafe(["run", "--simulate", *arguments], prog_name="streamsafe")
    except SystemExit as end:
        sys.stderr.flush()
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    return 0


def main() -> None:
    for name in IMPORTED:
        importlib.import_module(name)
    for line in sys.stdin:
        folder, *arguments = json.loads(line)
        child = os.fork()
        if not child:
            try:
                os._exit(run(folder, arguments))
            finally:
                os._exit(70)  # an exception
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


if __name__ == "__main__":
    main()
