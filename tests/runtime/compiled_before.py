"""Compiles every kind of kernel, opens the first session of the process, and prints which of them are not seen there.

``python -m tests.runtime.compiled_before [--simulate]``
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any


def kept(cp: Any) -> dict[str, Callable[[Any, Any], Any]]:
    """Kernels that a program keeps as objects."""
    from cupyx import jit

    from tests.runtime.test_interception import RAW, twice_and_one

    elementwise = cp.ElementwiseKernel("T a", "T b", "b = a", "kept")
    reduction = cp.ReductionKernel("T a", "T b", "a", "a + b", "b = a", "0", "kept_sum")
    module = cp.RawModule(code=RAW)
    function = module.get_function("k")
    templated = cp.RawModule(
        code="template<typename T> __global__ void t(const T* a, T* b) { b[threadIdx.x] = a[threadIdx.x]; }",
        options=("-std=c++17",),
        name_expressions=("t<float>",),
    )
    fused = cp.fuse()(twice_and_one)
    fused_newly = cp.fuse(kernel_name="newly")(lambda a: cp.sqrt(a) + 1)
    ufunc = cp.sqrt

    @jit.rawkernel()  # type: ignore[untyped-decorator]
    def jitted(a: Any, b: Any) -> None:
        i = jit.threadIdx.x
        b[i] = a[i]

    return {
        "kept elementwise": lambda cp, x: elementwise(x),
        "kept reduction": lambda cp, x: reduction(x),
        "kept function of a module": lambda cp, x: function((1,), (1,), (x, cp.empty_like(x))),
        "module again": lambda cp, x: module.get_function("k")((1,), (1,), (x, cp.empty_like(x))),
        "template": lambda cp, x: templated.get_function("t<float>")((1,), (1,), (x, cp.empty_like(x))),
        "kept fused": lambda cp, x: fused(x),
        "kept fused, another": lambda cp, x: fused_newly(x),
        "kept ufunc": lambda cp, x: ufunc(x),
        "kept jit": lambda cp, x: jitted((1,), (1,), (x, cp.empty_like(x))),
    }


def main() -> None:
    if "--simulate" in sys.argv:
        from streamsafe.simulate import cuda as simulate

        simulate.install()
    import cupy as cp

    import streamsafe
    from tests.runtime.helpers import Program, codes
    from tests.runtime.test_interception import READERS, unsupported

    program = Program(cp)
    readers = {**READERS, **kept(cp)}
    for name, read in list(readers.items()):
        try:
            read(cp, program.x)
        except Exception as error:
            if not unsupported(error) and not isinstance(error, (ImportError, NotImplementedError)):
                raise
            del readers[name]
    program.settle()
    for name, read in readers.items():
        with streamsafe.sanitize("collect") as session:
            program.write()
            read(cp, program.x)
            program.settle()
        if "SS101" not in codes(session) or session.hazards[0].confidence != "certain":
            print("not seen:", name, codes(session))
    print(len(readers) > 35)


if __name__ == "__main__":
    main()
