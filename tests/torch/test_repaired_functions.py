"""Functions and classes of the fixtures with their repairs made, run on data: each does what it did, and no more fails.

The fixtures are written to be read by the check: what their parameters are is known by their names only. What fails as
it stands is left out.
"""

from __future__ import annotations

import ast
import importlib.util
import inspect
import signal
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

import pytest

import streamsafe
from streamsafe.rule import all_rules
from tests.check.repaired import repaired
from tests.torch.conftest import restore_generators

FIXTURES = Path(__file__).parents[2] / "fixtures" / "static"
RULES = {rule.name: rule.bad for rule in all_rules().values() if rule.fix is not None}
SHAPE = (4, 4)
"""Of the tensors that are given."""
SHARE = 26
"""Of so many files one is run: to repair one takes seconds."""
FILES = {path.stem: path.read_text(encoding="utf-8") for path in sorted(FIXTURES.glob("*.py"))[::SHARE]}


def values(torch: Any) -> dict[str, Callable[[], Any]]:
    """What a parameter of a name is given."""
    nn, cuda = torch.nn, torch.cuda

    def tensor() -> Any:
        return torch.rand(SHAPE, device="cuda")

    def host() -> Any:
        return torch.rand(SHAPE)

    def layer() -> Any:
        return nn.Linear(*SHAPE).cuda()

    tensors = """
        x y z a b w h q k v weight out source target first second frame sample inputs given
        other value hidden example buffer flat logits rows data features scores total
        state src t grad tensor left right mask
    """
    several = "xs parts tensors chunks values frames batches loader inputs_list blocks"
    table: dict[str, Callable[[], Any]] = {
        **dict.fromkeys(tensors.split(), tensor),
        **dict.fromkeys(several.split(), lambda: [tensor() for _ in range(3)]),
        **dict.fromkeys("batch host raw tokens labels".split(), host),
        **dict.fromkeys(
            "model net layer module f fn function block encoder head criterion stage step".split(), layer
        ),
        **dict.fromkeys("layers models".split(), lambda: nn.ModuleList([layer() for _ in range(3)])),
        **dict.fromkeys("side stream s other_stream".split(), cuda.Stream),
        **dict.fromkeys("streams sides".split(), lambda: [cuda.Stream() for _ in range(2)]),
        **dict.fromkeys("n size count rounds steps limit number depth".split(), lambda: 4),
        **dict.fromkeys("flag overlap fast".split(), lambda: True),
        **dict.fromkeys("names".split(), lambda: ["a", "b"]),
        **dict.fromkeys("name kind mode".split(), lambda: "a"),
        **dict.fromkeys("device".split(), lambda: torch.device("cuda")),
        **dict.fromkeys("scale rate lr".split(), lambda: 0.5),
        "loss": lambda: layer()(tensor()).sum(),
        "outbox": list,
        "cache": dict,
        "log": list,
        "sink": list,
        "shape": lambda: SHAPE,
    }
    return table


@contextmanager
def seconds(limit: int) -> Iterator[None]:
    """End what waits for ever."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise TimeoutError(f"it ran for {limit} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(limit)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def load(path: Path, name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def plain(torch: Any, value: Any) -> Any:
    """A result as data that can be compared."""
    if isinstance(value, torch.Tensor):
        return value.detach().cpu().tolist()
    if isinstance(value, Mapping):
        return {str(key): plain(torch, each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(torch, each) for each in value]
    return value if isinstance(value, (bool, int, str, type(None))) else type(value).__name__


def drive(entry: Any, call: Callable[..., Any]) -> list[Any]:
    """Call a function; or make an object of a class, and call its public methods in turn, twice."""
    if not inspect.isclass(entry):
        return [call(entry)]
    made = call(entry)
    names = [name for name, each in vars(entry).items() if inspect.isfunction(each) and name[0] != "_"]
    return [call(getattr(made, name)) for name in names * 2]


def outcome(torch: Any, entry: Any) -> tuple[Any, Counter[str]]:
    """What an entry returns, or how it fails; and the codes of its hazards."""
    torch.cuda.set_device(0)
    torch.cuda.set_stream(torch.cuda.default_stream())
    torch.cuda.synchronize()
    restore_generators(torch)
    torch.manual_seed(0)
    table = values(torch)
    given: dict[str, Any] = {}

    def call(function: Callable[..., Any]) -> Any:
        for name, parameter in inspect.signature(function).parameters.items():
            if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
                continue
            if parameter.default is parameter.empty and name not in given:
                given[name] = table[name]()
                torch.cuda.synchronize()
        wanted = inspect.signature(function).parameters
        return function(**{name: given[name] for name in wanted if name in given})

    with streamsafe.sanitize(mode="collect") as session:
        try:
            with seconds(20):
                results = drive(entry, call)
                torch.cuda.synchronize()
                result = plain(torch, [results, given])
        except Exception as error:
            result = error
    return result, Counter(hazard.code for hazard in session.hazards if not hazard.latent)


def units(text: str) -> dict[str, str]:
    """The functions and classes of a module, as code."""
    return {
        node.name: ast.dump(node)
        for node in ast.parse(text).body
        if isinstance(node, (ast.FunctionDef, ast.ClassDef))
    }


@pytest.mark.exhaustive
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", [*RULES, *FILES])
def test_repaired_functions_do_the_same(torch: Any, name: str, tmp_path: Path) -> None:
    before = tmp_path / "before.py"
    before.write_text((RULES | FILES)[name], encoding="utf-8")
    text = repaired(before)
    if text is None:
        pytest.skip("nothing is repaired")
    after = tmp_path / "after.py"
    after.write_text(text, encoding="utf-8")
    try:
        old = load(before, "before")
    except Exception as error:
        pytest.skip(f"it fails as it stands: {error}")
    new = load(after, "after")
    codes = units(text)
    ran = 0
    for each, code in units(before.read_text(encoding="utf-8")).items():
        if codes[each] == code:
            continue
        expected, hazards = outcome(torch, getattr(old, each))
        if isinstance(expected, Exception):
            continue
        ran += 1
        result, left = outcome(torch, getattr(new, each))
        if isinstance(result, Exception):
            raise AssertionError(each) from result
        if not any(code.startswith("SS4") for code in hazards):  # such a capture computes what nobody means
            assert result == expected, each
        assert not left, f"{each}: {dict(hazards)} before, {dict(left)} left"
    if not ran:
        pytest.skip("nothing that is repaired runs on the data of this test")
