"""Every program of fixtures/torch has the hazards its decorator says: the codes and both lines, and no others."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import re
import sys
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest

import streamsafe
from streamsafe.order.hazard import Access, Hazard
from tests.torch.conftest import restore_generators

FOLDER = Path(__file__).resolve().parents[2] / "fixtures" / "torch"
MARK = re.compile(r"# (FIRST|HAZARD)(?: (\d))?$")

NOT_SHOWN = {
    "gc05_an_output_kept_over_a_replay": "it may as well read the present result under a new name",
}
"""Programs whose hazard a run does not show, and why."""


@dataclass(frozen=True)
class Program:
    """One program as its source says, before anything is imported."""

    path: Path
    name: str
    case: str
    expect: tuple[str, ...]
    needs: tuple[str, ...]
    first: int
    last: int

    def __str__(self) -> str:
        return f"{self.path.stem}/{self.name}{'-' if self.case else ''}{self.case}"

    @cached_property
    def marks(self) -> dict[tuple[str, int], int]:
        """Line numbers of the marks in the program."""
        lines = self.path.read_text(encoding="utf-8").splitlines()[self.first - 1 : self.last]
        found = ((MARK.search(line), number) for number, line in enumerate(lines, self.first))
        return {(mark[1], int(mark[2] or 1)): number for mark, number in found if mark}

    def hazards(self) -> list[tuple[str, int | None, int | None]]:
        """Code, first line and second line of each hazard."""
        pairs = enumerate(self.expect, 1)
        return [(code, self.marks.get(("FIRST", i)), self.marks.get(("HAZARD", i))) for i, code in pairs]


def programs() -> Iterator[Program]:
    for path in sorted(FOLDER.glob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        tables = {
            node.targets[0].id: [ast.literal_eval(key) for key in node.value.keys if key is not None]
            for node in tree.body
            if isinstance(node, ast.Assign)
            and isinstance(node.targets[0], ast.Name)
            and isinstance(node.value, ast.Dict)
        }
        for node in tree.body:
            for call in node.decorator_list if isinstance(node, ast.FunctionDef) else ():
                if not isinstance(call, ast.Call) or getattr(call.func, "id", "") != "program":
                    continue
                assert isinstance(node, ast.FunctionDef) and node.end_lineno is not None
                named = {each.arg: each.value for each in call.keywords}
                needs = ast.literal_eval(named["needs"]).split() if "needs" in named else ()
                table = named.get("cases")
                for case in tables[table.id] if isinstance(table, ast.Name) else [""]:
                    expect = tuple(ast.literal_eval(argument) for argument in call.args)
                    yield Program(path, node.name, case, expect, tuple(needs), node.lineno, node.end_lineno)


# after a capture that CUDA has given up, torch's allocator gives no recorded block out again in this process
PROGRAMS = sorted(programs(), key=lambda program: any(code.startswith("SS4") for code in program.expect))


@pytest.fixture(scope="module")
def modules(backend: Any) -> Iterator[Any]:
    """Imports a fixture's module by its name."""
    sys.path.insert(0, str(FOLDER))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield importlib.import_module
    sys.path.remove(str(FOLDER))


def release(torch: Any) -> tuple[int, ...]:
    return tuple(int(part) for part in torch.__version__.split(".")[:2])


def missing(torch: Any, program: Program, gpu: bool) -> str:
    for need in program.needs:
        if need == "gpu" and not gpu:
            return "needs a GPU: run with --gpu"
        if need == "devices" and torch.cuda.device_count() < 2:
            return "needs two devices"
        if need == "nccl" and not has_collectives(torch):
            return "needs NCCL, or on the simulated device torch's process group for tests"
        if need == "recorded" and not importlib.import_module("kit").recorded_blocks_come_back():
            return "a capture was lost in this process"
        if need == "2.8" and release(torch) < (2, 8):
            return "needs torch 2.8"
        if need in ("numpy", "cupy", "triton"):
            pytest.importorskip(need)
    return ""


def has_collectives(torch: Any) -> bool:
    if not torch.distributed.is_available():
        return False
    if "simulated" not in torch.cuda.get_device_name():
        return bool(torch.distributed.is_nccl_available())
    return importlib.util.find_spec("torch.testing._internal.distributed.fake_pg") is not None


def begin_anew(torch: Any) -> None:
    """A program gets other streams than the one that captures use: torch gives out 32, again and again."""
    graph = torch.cuda.graph
    if graph.default_capture_stream is None:
        graph.default_capture_stream = torch.cuda.Stream()
    for _ in range(64):
        if torch.cuda.Stream().cuda_stream == graph.default_capture_stream.cuda_stream:
            break
    if torch.distributed.is_initialized():  # its communication stream was among the first
        for _ in range(16):
            torch.cuda.Stream()


def leave_group(torch: Any, program: Program) -> None:
    """The watchdog of a process group asks for events, which spoils the captures of programs after it."""
    if torch.distributed.is_initialized() and "nccl" in program.needs:
        torch.distributed.destroy_process_group()


def run(torch: Any, modules: Any, program: Program) -> Any:
    """The program's function and what it returns, with nothing left over from another."""
    torch.cuda.synchronize()
    restore_generators(torch)
    begin_anew(torch)
    function = getattr(modules(program.path.stem), program.name)
    arguments = [function.cases[program.case]] if program.case else []
    return function, lambda: function(lambda: None, *arguments)


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning", "ignore::FutureWarning")
@pytest.mark.parametrize("program", PROGRAMS, ids=str)
def test_it_computes(torch: Any, modules: Any, program: Program, request: pytest.FixtureRequest) -> None:
    """On the simulated device work is done in the order of the program: only what is wrong always is wrong."""
    if request.config.getoption("--gpu"):
        pytest.skip("prove.py looks at the data on a GPU")
    reason = missing(torch, program, False)
    if reason:
        pytest.skip(reason)
    function, call = run(torch, modules, program)
    overwritten = function.proof == "always" and program.expect[:1] in (("SS403",), ("SS409",), ("SS412",))
    assert (call() == function.equals) is not overwritten


def places(access: Access | None) -> list[int]:
    frames = access.stack if access is not None else ()
    return [frame.line for frame in frames if str(frame.filename).startswith(str(FOLDER))]


def matches(hazard: Hazard, expected: tuple[str, int | None, int | None], program: Program) -> bool:
    """Whether a hazard is the expected one; the operation of a table's case stands in the table."""
    code, *lines = expected
    found = hazard.code + (" latent" if hazard.latent else "")
    accesses = [hazard.first] if hazard.latent else [hazard.first, hazard.second]
    for access, line in zip(accesses, lines, strict=False):
        seen = places(access)
        if not program.case:
            seen = seen[:1]
        if (line in seen) if line is not None else seen:
            continue
        if line is None and not seen:
            continue
        return False
    return found == code


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning", "ignore::FutureWarning")
@pytest.mark.parametrize("program", PROGRAMS, ids=str)
def test_verdict(torch: Any, modules: Any, program: Program, request: pytest.FixtureRequest) -> None:
    reason = missing(torch, program, request.config.getoption("--gpu"))
    if reason:
        pytest.skip(reason)
    if str(program).partition("/")[2] in NOT_SHOWN:
        request.applymarker(pytest.mark.xfail(reason=NOT_SHOWN[str(program).partition("/")[2]], strict=False))
    _, call = run(torch, modules, program)
    try:
        with streamsafe.sanitize(mode="collect") as session:
            call()
    finally:
        leave_group(torch, program)
    expected = program.hazards()
    text = "\n".join(f"{each.code} {places(each.first)} {places(each.second)}" for each in session.hazards)
    assert len(session.hazards) == len(expected), f"{text or 'nothing'} instead of {expected}"
    for hazard, one in zip(session.hazards, expected, strict=True):
        assert matches(hazard, one, program), f"{text} instead of {expected}"


def test_every_racy_program_is_marked() -> None:
    assert len(PROGRAMS) > 200
    for program in PROGRAMS:
        numbers = {number for _, number in program.marks}
        assert numbers <= set(range(1, len(program.expect) + 1)), str(program)
        if program.expect and not program.expect[0].startswith("SS4"):
            assert ("FIRST", 1) in program.marks or ("HAZARD", 1) in program.marks, str(program)


def test_every_racy_program_has_a_silent_twin() -> None:
    """Each group of programs has ordered ones."""
    for path in {program.path for program in PROGRAMS}:
        of_file = [program for program in PROGRAMS if program.path == path]
        silent = sum(not program.expect for program in of_file)
        assert silent >= 0.3 * len(of_file), f"{path.name}: {silent} of {len(of_file)}"
