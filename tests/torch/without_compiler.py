"""Runs programs where there is no compiler, and says what was found, as JSON. Each task has a process of its own.

    python -m tests.torch.without_compiler TASK [--gpu]

``CXX`` and ``STREAMSAFE_CACHE`` are set so that nothing can be built, once the simulated device is loaded.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import tempfile
import threading
import warnings
from typing import Any


def without_compiler(gpu: bool) -> Any:
    """torch, on the simulated device unless ``gpu``."""
    if not gpu:
        from streamsafe.simulate import torch as simulate

        simulate.install(devices=2)
    os.environ["CXX"] = "/no/compiler"
    os.environ["STREAMSAFE_CACHE"] = tempfile.mkdtemp()
    return importlib.import_module("torch")


def table(torch: Any, gpu: bool) -> dict[str, Any]:
    """What is found in each program of fixtures/torch that is not what its decorator says."""
    import streamsafe
    from tests.torch import test_programs as programs

    sys.path.insert(0, str(programs.FOLDER))
    wrong: dict[str, Any] = {}
    ran = 0
    for program in programs.PROGRAMS:
        if "cupy" in program.needs or programs.missing(torch, program, gpu):
            continue
        torch.cuda.set_device(0)
        torch.cuda.set_stream(torch.cuda.default_stream())
        _, call = programs.run(torch, importlib.import_module, program)
        error = ""
        with streamsafe.sanitize(mode="collect") as session:
            try:
                call()
            except Exception as raised:
                error = repr(raised)
        programs.leave_group(torch, program)
        ran += 1
        expected = program.hazards()
        pairs = zip(session.hazards, expected, strict=False)
        fits = len(session.hazards) == len(expected) and all(
            programs.matches(hazard, one, program) for hazard, one in pairs
        )
        if error or not fits:
            wrong[str(program)] = [error, *(hazard.code for hazard in session.hazards)]
    return {"ran": ran, "wrong": wrong}


def exceptions(torch: Any, gpu: bool) -> dict[str, Any]:
    """What a program's own exceptions are while tensors go, and whether a refused operation is done."""
    import streamsafe

    def fails() -> Any:
        raise ValueError("of the program")

    caught, value, notes = [], 0.0, []
    side = torch.cuda.Stream()
    with streamsafe.sanitize() as session:
        x = torch.ones(4, device="cuda")
        for _ in range(3):
            try:
                (x + 1) + fails()
            except ValueError as error:
                caught.append(str(error))
        torch.cuda.synchronize()
        with torch.cuda.stream(side):
            x.add_(1)
        try:
            x.mul_(5)
        except streamsafe.StreamHazardError as error:
            caught.append(error.hazard.code)
        torch.cuda.synchronize()
        value = float(x[0])
        notes = session.notes
    return {"caught": caught, "value": value, "notes": notes}


def others(torch: Any, gpu: bool) -> dict[str, Any]:
    """Programs under other tools of torch, in threads, and after the session."""
    import streamsafe

    results: dict[str, Any] = {}
    a = torch.randn(8, 8, device="cuda", requires_grad=True)
    torch.cuda.synchronize()

    def race() -> None:
        side = torch.cuda.Stream()
        with torch.cuda.stream(side):
            a.detach().add_(1)
        a.detach().sum()
        torch.cuda.synchronize()

    def compiled() -> None:
        torch.compile(lambda x: torch.relu(x @ x).sum(), backend="aot_eager")(a).backward()

    def transformed() -> None:
        torch.func.vmap(lambda row: row.sum())(a)
        torch.func.grad(lambda x: (x * x).sum())(a)

    def faked() -> None:
        from torch._subclasses import FakeTensorMode

        with FakeTensorMode():
            torch.empty(3, device="cuda").add(1)

    def inference() -> None:
        with torch.inference_mode():
            torch.nn.functional.linear(a, a)

    def conditional() -> None:
        torch.cond(a.sum() > 0, lambda x: x + 1, lambda x: x - 1, (a.detach(),))

    def thread() -> None:
        worker = threading.Thread(target=race)
        worker.start()
        worker.join()

    for program in (compiled, transformed, faked, inference, conditional, race, thread):
        with streamsafe.sanitize(mode="collect") as session:
            program()
        results[program.__name__] = [hazard.code for hazard in session.hazards]
    with streamsafe.sanitize(mode="collect") as session:
        child = os.fork()
        if not child:  # a loader's worker
            host = torch.zeros(8).add_(1)
            os._exit(0 if float(host.sum()) == 8 and session.hazards == [] else 1)
        results["child"] = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    stack = importlib.import_module("torch.utils._python_dispatch")._get_current_dispatch_mode_stack()
    results["modes"] = len(stack)
    return results


def trace(torch: Any, gpu: bool) -> dict[str, Any]:
    """A session's hazards, and those of its trace."""
    import io

    import streamsafe
    from streamsafe.runtime.traces import replay

    side = torch.cuda.Stream()
    written = io.StringIO()
    with streamsafe.sanitize(mode="collect", trace=written) as session:
        w = torch.ones(4, device="cuda", requires_grad=True)
        torch.cuda.synchronize()
        with torch.cuda.stream(side):
            (w * 2).sum().backward()
        w.grad.sum()
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as file:
        file.write(written.getvalue())
        file.flush()
        again = replay(file.name)
    return {"run": [each.code for each in session.hazards], "trace": [each.code for each in again.hazards]}


def dtensors(torch: Any, gpu: bool) -> dict[str, Any]:
    """The codes of the hazards of DTensor's programs."""
    import streamsafe
    from tests.torch import test_programs as programs
    from tests.torch.dtensors import PROGRAMS, Ranks

    sys.path.insert(0, str(programs.FOLDER))
    importlib.import_module("stand_in").begin(ranks=2)
    ranks, found = Ranks(torch), {}
    for program, _ in PROGRAMS:
        with streamsafe.sanitize(mode="collect") as session:
            program(ranks)
        found[program.__name__] = [hazard.code for hazard in session.hazards]
        ranks.join()
    return found


def main() -> None:
    gpu = "--gpu" in sys.argv
    torch = without_compiler(gpu)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = globals()[sys.argv[1]](torch, gpu)
    print(f"\n{json.dumps(found)}")


if __name__ == "__main__":
    main()
