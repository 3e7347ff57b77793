"""The core, as it is built for CuPy's hooks, so that a run of the tests builds it once."""

from __future__ import annotations

import pytest

from streamsafe.order.native.library import Library
from streamsafe.runtime.cupy import compiled
from streamsafe.toolchain.compiler import BuildError


@pytest.fixture(scope="session")
def library() -> Library:
    """The core's functions; skips where there is no C++ compiler."""
    try:
        return Library(str(compiled.built()))
    except BuildError as error:
        pytest.skip(str(error))
