"""CUDA graphs, and `torch.compile` with and without them."""
# mypy: disable-error-code="no-untyped-call, attr-defined, import-not-found, import-untyped, misc, no-any-return"
# mypy: disable-error-code="arg-type, var-annotated"

from __future__ import annotations

from typing import Any

from .kit import Values, mlp, program, squared, train, vectors


@program()
def graphed_step() -> Values:
    import torch

    model = mlp()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, capturable=True)
    static = torch.randn(32, 256, device="cuda")
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            optimizer.zero_grad(set_to_none=True)
            squared(model, static).backward()
            optimizer.step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    optimizer.zero_grad(set_to_none=True)
    with torch.cuda.graph(graph):
        loss = squared(model, static)
        loss.backward()
        optimizer.step()
    losses = []
    for batch in vectors(6):
        static.copy_(batch)
        graph.replay()
        losses.append(loss.clone())
    return [float(each) for each in losses]


@program()
def graphed_callables() -> Values:
    import torch

    first, second = mlp(2), mlp(2)
    sample = torch.randn(32, 256, device="cuda", requires_grad=True)
    first, second = torch.cuda.make_graphed_callables(
        (first, second), ((sample,), (sample.clone().detach(),))
    )
    model = torch.nn.Sequential(first, second)
    return train(model, vectors(6), squared)


def reduced(model: Any, batches: Any) -> Values:
    import torch

    compiled = torch.compile(model, mode="reduce-overhead")
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    losses = []
    for batch in batches:
        torch.compiler.cudagraph_mark_step_begin()
        optimizer.zero_grad()
        loss = squared(compiled, batch)
        loss.backward()
        optimizer.step()
        losses.append(float(loss))
    return losses


@program("triton")
def graph_trees_training() -> Values:
    return reduced(mlp(), vectors(8))


@program("triton")
def graph_trees_inference() -> Values:
    import torch

    compiled = torch.compile(mlp().eval(), mode="reduce-overhead")
    sums = []
    with torch.no_grad():
        for batch in vectors(8):
            torch.compiler.cudagraph_mark_step_begin()
            sums.append(float(compiled(batch).double().sum()))
    return sums


@program("triton")
def compiled_mlp() -> Values:
    import torch

    return train(torch.compile(mlp()), vectors(6), squared)
