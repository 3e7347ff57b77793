"""``STREAMSAFE=1``: a session for a whole program that imports streamsafe, opened by that import."""

from __future__ import annotations

import os
import sys

VARIABLE = "STREAMSAFE"


def open_session() -> None:
    """Opens the session, unless this process is ``streamsafe`` itself or pytest, which look at the variable themselves.

    Raises:
        ValueError: the variable holds something else than 1, raise, warn or collect.
    """
    program = os.path.basename(sys.argv[0]) if sys.argv else ""
    if "pytest" in sys.modules or program.startswith(("streamsafe", "pytest", "py.test")):
        return
    if program == "-m" and "streamsafe" in sys.orig_argv:
        return
    from streamsafe.runtime.program import from_environment

    from_environment(os.environ[VARIABLE])
