"""What a report calls the memory of a hazard, and in which module of a model it says that the access is."""

from __future__ import annotations

from inspect import stack
from typing import Any

import streamsafe
from streamsafe.order.hazard import Hazard
from streamsafe.report.run_time import as_dict, describe


class Loader:
    """Keeps what it has loaded."""

    def __init__(self, torch: Any) -> None:
        self.side = torch.cuda.Stream()
        self.batch: Any = None
        self.rounds: list[dict[str, Any]] = []

    def load(self, torch: Any) -> None:
        with torch.cuda.stream(self.side):
            self.batch = torch.ones(64, device="cuda")
            self.rounds.append({"kept": torch.ones(64, device="cuda")})


def found(session: Any) -> Hazard:
    (hazard,) = (each for each in session.hazards if not each.latent)
    assert isinstance(hazard, Hazard)
    return hazard


def test_an_attribute(torch: Any) -> None:
    with streamsafe.sanitize("collect") as session:
        loader = Loader(torch)
        loader.load(torch)
        loader.batch.add_(1)
    assert found(session).memory.name == "loader.batch"
    assert "the same memory" not in describe(found(session))


def test_an_element_of_an_attribute(torch: Any) -> None:
    with streamsafe.sanitize("collect") as session:
        loader = Loader(torch)
        loader.load(torch)
        loader.rounds[0]["kept"].add_(1)
    assert found(session).memory.name == "loader.rounds[0]['kept']"


def test_a_variable_of_a_caller_and_of_a_function(torch: Any) -> None:
    def use(value: Any) -> None:
        with torch.cuda.stream(side):
            value.mul_(2)

    with streamsafe.sanitize("collect") as session:
        side = torch.cuda.Stream()
        (lambda: use(torch.ones(64, device="cuda")))()
    assert found(session).memory.name == "value"


def test_what_has_no_name_is_the_same_memory(torch: Any) -> None:
    with streamsafe.sanitize("collect") as session:
        side = torch.cuda.Stream()
        with torch.cuda.stream(side):
            kept = iter([torch.ones(64, device="cuda")])
        torch.add(*kept, 1)
    assert found(session).memory.name == "" and "the same memory" in found(session).message


def test_a_parameter_and_the_module_that_runs(torch: Any) -> None:
    class Model(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.layers = torch.nn.ModuleList(
                [torch.nn.Linear(8, 8), torch.nn.Sequential(torch.nn.Linear(8, 8))]
            )

        def forward(self, x: Any) -> Any:
            for layer in self.layers:
                x = layer(x)
            return x

    model = Model().cuda()
    torch.cuda.synchronize()
    with streamsafe.sanitize("collect") as session:
        side = torch.cuda.Stream()
        x = torch.ones(4, 8, device="cuda")
        with torch.cuda.stream(side), torch.no_grad():
            model.layers[1][0].weight.mul_(2)
        model(x)
    hazard = found(session)
    assert hazard.memory.name == "self.layers[1][0].weight"
    assert hazard.second.module == "model.layers.1.0"
    assert "= module: `model.layers.1.0`" in describe(hazard)
    assert as_dict(hazard)["second"]["module"] == "model.layers.1.0"


def test_a_gradient(torch: Any) -> None:
    model = torch.nn.Linear(8, 8).cuda()
    with streamsafe.sanitize("collect") as session:
        side = torch.cuda.Stream()
        model(torch.ones(4, 8, device="cuda")).sum().backward()
        with torch.cuda.stream(side):
            model.weight.grad.mul_(2)
    assert found(session).code == "SS111" and found(session).memory.name == "model.weight.grad"


def test_the_name_of_an_allocation_stays_while_it_is_right(torch: Any) -> None:
    with streamsafe.sanitize("collect") as session:
        side = torch.cuda.Stream()
        first = torch.ones(64, device="cuda")
        again = first
        with torch.cuda.stream(side):
            again.add_(1)
    assert found(session).memory.name == "first"
    with streamsafe.sanitize("collect") as session:
        first = again = torch.ones(64, device="cuda")
        first = None
        with torch.cuda.stream(side):
            again.add_(1)
    assert first is None and found(session).memory.name == "again"


def test_a_stream_of_no_name_is_called_by_where_it_is_made(torch: Any) -> None:
    with streamsafe.sanitize("collect") as session:
        with torch.cuda.stream(torch.cuda.Stream()):
            batch = torch.ones(64, device="cuda")
        batch.add_(1)
    made = stack()[0].lineno - 3
    assert f"the stream made at test_names.py:{made}" in found(session).message
