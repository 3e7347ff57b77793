"""Whether the installed PyTorch can be watched, as far as a machine without a GPU can tell.

    python benchmarks/torch_release.py [--json FILE]

For a CUDA build of a release that no GPU machine has: the native code is built and loaded, its self-test run, every
hook put in place, and CPU programs run under it and without it. Their results have to be the
same. What a device does is not seen: `pytest --gpu tests/torch` runs that.
"""

from __future__ import annotations

import argparse
import importlib
import io
import json
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any


def training(torch: Any) -> Any:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4))
    optimizer = torch.optim.AdamW(model.parameters(), foreach=True)
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.ones(2, 8)).sum().backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    return [each.detach().clone() for each in model.parameters()]


def transforms(torch: Any) -> Any:
    x = torch.arange(6.0).reshape(2, 3)
    return torch.func.vmap(torch.func.grad(lambda row: (row * row).sum()))(x)


def compiled(torch: Any) -> Any:
    return torch.compile(lambda x: torch.relu(x @ x).sum(), backend="aot_eager")(torch.ones(3, 3))


def saved(torch: Any) -> Any:
    buffer = io.BytesIO()
    torch.save({"x": torch.arange(4)}, buffer)
    buffer.seek(0)
    return torch.load(buffer)["x"]


def thread(torch: Any) -> Any:
    results: list[Any] = []
    worker = threading.Thread(target=lambda: results.append(torch.ones(3).cumsum(0)))
    worker.start()
    worker.join()
    return results[0]


def views(torch: Any) -> Any:
    x = torch.zeros(4)
    x.numpy()[:] = 3
    return torch.from_dlpack(x)


def loader(torch: Any) -> Any:
    data = torch.utils.data.TensorDataset(torch.arange(6))
    return torch.cat([batch[0] for batch in torch.utils.data.DataLoader(data, batch_size=2, num_workers=1)])


def inference(torch: Any) -> Any:
    with torch.inference_mode(), torch.autocast("cpu", dtype=torch.bfloat16):
        return torch.nn.functional.linear(torch.ones(2, 3), torch.ones(4, 3))


def conditional(torch: Any) -> Any:
    x = torch.ones(3)
    return torch.cond(x.sum() > 0, lambda x: x + 1, lambda x: x - 1, (x,))


def hooked(torch: Any) -> Any:
    found = []
    w = torch.ones(3, requires_grad=True)
    w.register_post_accumulate_grad_hook(lambda each: found.append(each.grad.clone()))
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t.clone(), lambda t: t):
        (w * w).sum().backward()
    return found


PROGRAMS: tuple[Callable[[Any], Any], ...] = (
    training,
    transforms,
    compiled,
    saved,
    thread,
    views,
    loader,
    inference,
    conditional,
    hooked,
)


def same(torch: Any, one: Any, two: Any) -> bool:
    if isinstance(one, list):
        return len(one) == len(two) and all(same(torch, *pair) for pair in zip(one, two, strict=True))
    return bool(torch.equal(one, two))


def session(torch: Any, program: Callable[[Any], Any]) -> tuple[Any, Any]:
    import streamsafe

    with streamsafe.sanitize(mode="collect") as opened:
        result = program(torch)
    return result, opened


def watched() -> dict[str, Any]:
    """What the sanitizer reports for the programs, in this process, with torch taken to have a device."""
    torch: Any = importlib.import_module("torch")
    plain = {program.__name__: program(torch) for program in PROGRAMS}
    front: Any = importlib.import_module("streamsafe.runtime.torch")
    front._has_device = lambda: True
    found: dict[str, Any] = {"torch": torch.__version__}
    notes: set[str] = set()
    different, operators = [], {}
    for program in PROGRAMS:
        try:
            result, opened = session(torch, program)
        except Exception as error:
            different.append(f"{program.__name__}: {error!r}")
            continue
        notes |= set(opened.notes)
        operators[program.__name__] = opened.coverage.operations if opened.coverage else 0
        if opened.hazards or not same(torch, plain[program.__name__], result):
            different.append(program.__name__)
    watch = front._watch
    found["operators seen"] = watch._extension.counters()["operators"]
    found["self test"] = watch._extension.self_test() or "passed"
    found["different"] = different
    found["notes"] = sorted(notes)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", type=Path, help="write the results there")
    arguments = parser.parse_args()
    found = watched()
    print(json.dumps(found, indent=2))
    if arguments.json:
        arguments.json.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    sys.exit(bool(found["different"]))


if __name__ == "__main__":
    main()
