"""The simulated CUDA device: programs compute what they compute on a GPU, and its API answers as a GPU's does.

With ``--gpu`` the same tests run on a real one.
"""

from __future__ import annotations

import copy
import io
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
D = "cuda"


# -- streams and events ----------------------------------------------------------------------------------------------


def test_streams_of_a_pool_come_round(torch: Any) -> None:
    streams = [torch.cuda.Stream() for _ in range(33)]
    handles = [stream.cuda_stream for stream in streams]
    assert len(set(handles)) == 32
    assert handles[32] == handles[0]
    assert torch.cuda.default_stream().cuda_stream == 0
    assert torch.cuda.Stream(priority=-1).cuda_stream not in handles
    assert torch.cuda.Stream(priority=-1).priority == -1


def test_the_current_stream_is_of_the_thread(torch: Any) -> None:
    import threading

    seen: list[int] = []
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        thread = threading.Thread(target=lambda: seen.append(torch.cuda.current_stream().cuda_stream))
        thread.start()
        thread.join()
        seen.append(torch.cuda.current_stream().cuda_stream)
    seen.append(torch.cuda.current_stream().cuda_stream)
    assert seen == [0, side.cuda_stream, 0]


def test_generic_and_external_streams(torch: Any) -> None:
    side = torch.cuda.Stream()
    external = torch.cuda.ExternalStream(side.cuda_stream)
    assert external.cuda_stream == side.cuda_stream
    with torch.cuda.stream(external):
        assert torch.cuda.current_stream().cuda_stream == side.cuda_stream
    generic = torch.Stream("cuda")
    with generic:
        assert torch.accelerator.current_stream() == generic
    event = torch.Event("cuda")
    event.record()
    event.wait()
    event.synchronize()


def test_events(torch: Any) -> None:
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    assert start.cuda_event == 0
    assert start.query()
    start.record()
    end.record()
    torch.cuda.synchronize()
    assert start.query()
    assert start.elapsed_time(end) >= 0
    with pytest.raises((RuntimeError, ValueError), match=r"enable_timing|must be recorded"):
        start.elapsed_time(torch.cuda.Event())


def test_two_devices(torch: Any) -> None:
    if torch.cuda.device_count() < 2:
        pytest.skip("one GPU")
    x = torch.ones(3, device="cuda:0").to("cuda:1")
    x += 1
    assert x.device.index == 1
    assert x.to("cuda:0").tolist() == x.cpu().tolist() == [2.0] * 3
    with torch.cuda.device(1):
        assert torch.zeros(1, device=D).device.index == 1
    with torch.cuda.stream(torch.cuda.Stream(device=1)):
        assert torch.cuda.current_device() == 1
    assert torch.cuda.current_device() == 0
    handles = {torch.cuda.Stream(device=index).cuda_stream for index in (0, 1)}
    assert len(handles) == 2


# -- operators -------------------------------------------------------------------------------------------------------


def same(torch: Any, make: Callable[[Any], Any]) -> None:
    """A model and its input give the same outputs and gradients on both devices."""
    torch.manual_seed(0)
    model, inputs = make(torch)
    there = copy.deepcopy(model).to(D)
    outputs = [
        model(*inputs),
        there(*(each.detach().to(D).requires_grad_(each.requires_grad) for each in inputs)),
    ]
    outputs = [each[0] if isinstance(each, tuple) else each for each in outputs]
    for output in outputs:
        output.float().square().sum().backward()
    torch.testing.assert_close(outputs[1].cpu(), outputs[0], atol=1e-3, rtol=1e-2)  # a GPU rounds to TF32
    for ours, theirs in zip(there.parameters(), model.parameters(), strict=True):
        if theirs.grad is not None:
            torch.testing.assert_close(ours.grad.cpu(), theirs.grad, atol=5e-3, rtol=5e-2)


def attention(torch: Any) -> Any:
    class Attention(torch.nn.Module):  # type: ignore[misc]
        def forward(self, q: Any) -> Any:
            return torch.nn.functional.scaled_dot_product_attention(q, q, q, is_causal=True)

    return Attention(), (torch.randn(1, 2, 4, 8, requires_grad=True),)


MODELS: dict[str, Callable[[Any], Any]] = {
    "linear": lambda torch: (torch.nn.Linear(8, 8), (torch.randn(4, 8),)),
    "convolution": lambda torch: (
        torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.ReLU()),
        (torch.randn(2, 3, 8, 8),),
    ),
    "depthwise convolution": lambda torch: (torch.nn.Conv2d(4, 4, 3, groups=4), (torch.randn(2, 4, 8, 8),)),
    "depthwise convolution in 3-D": lambda torch: (
        torch.nn.Conv3d(4, 4, 3, groups=4),
        (torch.randn(1, 4, 5, 5, 5),),
    ),
    "encoder": lambda torch: (
        torch.nn.TransformerEncoderLayer(16, 2, batch_first=True, dropout=0.0),
        (torch.randn(2, 4, 16),),
    ),
    "lstm": lambda torch: (torch.nn.LSTM(4, 6, num_layers=2, bidirectional=True), (torch.randn(5, 2, 4),)),
    "gru": lambda torch: (torch.nn.GRU(4, 6), (torch.randn(5, 2, 4),)),
    "embedding": lambda torch: (torch.nn.Embedding(10, 4), (torch.tensor([1, 2]),)),
    "attention": attention,
}


@pytest.mark.filterwarnings("ignore:.*compiled without cuDNN")
@pytest.mark.filterwarnings("ignore:RNN module weights")
@pytest.mark.parametrize("model", MODELS)
def test_models_compute(torch: Any, model: str) -> None:
    same(torch, MODELS[model])


def index_and_write(torch: Any) -> Any:
    x = torch.arange(6.0, device=D) - 2
    x[x > 2] = 0
    x[torch.tensor([1], device=D)] = 7.0
    x[2] = 3.0
    return [x, x.nonzero(), x[x > 0], x.masked_select(x > 0), torch.where(x > 0)[0], torch.unique(x)]


def resized_outputs(torch: Any) -> Any:
    a, out = torch.ones(3, device=D), torch.empty(0, device=D)
    torch.add(a, a, out=out)
    product = torch.empty(0, device=D)
    torch.mm(torch.ones(2, 2, device=D), torch.ones(2, 2, device=D), out=product)
    return [
        out,
        product,
        torch.arange(5, device=D),
        torch.linspace(0, 1, 3, device=D),
        torch.eye(2, device=D),
    ]


def foreach_lists(torch: Any) -> Any:
    tensors = [torch.full((3,), float(i), device=D) for i in range(4)]
    torch._foreach_add_(tensors, 1.0)
    torch._foreach_mul_(tensors, tensors)
    return [*tensors, *torch._foreach_norm(tensors)]


def decompositions(torch: Any) -> Any:
    a = torch.tensor([[4.0, 1.0], [1.0, 3.0]], device=D)
    return [torch.linalg.cholesky(a), torch.linalg.inv(a), torch.linalg.solve(a, a), torch.linalg.eigvalsh(a)]


def sparse_products(torch: Any) -> Any:
    places = torch.tensor([[0, 1], [1, 0]], device=D)
    coo = torch.sparse_coo_tensor(places, torch.ones(2, device=D), (2, 2), check_invariants=True)
    csr = torch.eye(3, device=D).to_sparse_csr()
    return [coo @ torch.ones(2, 2, device=D), coo.to_dense(), csr @ torch.ones(3, device=D)]


def transforms(torch: Any) -> Any:
    f = torch.vmap(lambda x: x.sum())(torch.ones(3, 4, device=D))
    g = torch.func.grad(lambda x: (x**2).sum())(torch.ones(3, device=D))
    return [f, g, torch.fft.irfft(torch.fft.rfft(torch.arange(8.0, device=D)))]


def storages(torch: Any) -> Any:
    x = torch.ones(10, device=D)
    x.untyped_storage().resize_(0)
    assert x.untyped_storage().size() == 0
    x.untyped_storage().resize_(40)
    x.fill_(2)
    file = io.BytesIO()
    torch.save(x, file)
    file.seek(0)
    return [x, torch.load(file), copy.deepcopy(x), torch.from_dlpack(x)]


def complex_numbers(torch: Any) -> Any:
    x = torch.tensor([1 + 2j, 3 - 1j], device=D)
    return [x.conj() * 2, x.real, x.conj().cpu()]


def nested_tensors(torch: Any) -> Any:
    nested = torch.nested.nested_tensor([torch.ones(3, 4), 2 * torch.ones(2, 4)]).to(D)
    nested.mul_(3)
    padded = torch.tensor([[False, False], [False, True]], device=D)
    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(8, 2, batch_first=True)
    encoder = torch.nn.TransformerEncoder(layer, 1).eval().to(D)
    with torch.no_grad():
        encoded = encoder(torch.ones(2, 2, 8, device=D), src_key_padding_mask=padded)
    return [*(nested + nested).unbind(), nested.softmax(-1).to_padded_tensor(0.0), nested.cpu()[1], encoded]


PROGRAMS = [
    index_and_write,
    resized_outputs,
    foreach_lists,
    decompositions,
    sparse_products,
    transforms,
    storages,
    complex_numbers,
    nested_tensors,
]


@pytest.mark.filterwarnings("ignore:Sparse")
@pytest.mark.filterwarnings("ignore:.*nested tensors")
@pytest.mark.filterwarnings("ignore:.*scatter_add_cuda_kernel")
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: str(program.__name__))
def test_operators_compute(
    torch: Any, program: Callable[[Any], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = program(torch)
    monkeypatch.setitem(globals(), "D", "cpu")
    for ours, theirs in zip(found, program(torch), strict=True):
        torch.testing.assert_close(ours.cpu(), theirs)


def test_matrix_products_that_only_cuda_has(torch: Any) -> None:
    a = torch.randn(16, 32, device=D, dtype=torch.bfloat16)
    wide = a.float() @ a.float().t()
    if hasattr(torch.ops.aten.mm, "dtype"):  # not before PyTorch 2.8
        found = torch.mm(a, a.t(), out_dtype=torch.float32)
        torch.testing.assert_close(found, wide, atol=1e-3, rtol=1e-2)
    numbers = torch.randint(0, 16, (8, 32), device=D, dtype=torch.uint8)
    packed = torch._convert_weight_to_int4pack(numbers[:, ::2] << 4 | numbers[:, 1::2], 2)
    assert packed.shape == (1, 1, 32, 1)
    assert packed.dtype == torch.int32
    scales = torch.stack([torch.full((1, 8), 0.5, device=D), torch.arange(8.0, device=D)[None]], -1)
    weights = (numbers.float() - 8) * 0.5 + torch.arange(8.0, device=D)[:, None]
    found = torch._weight_int4pack_mm(a, packed, 32, scales.bfloat16())
    torch.testing.assert_close(found.float(), a.float() @ weights.t(), atol=0.5, rtol=1e-2)


def test_training_steps(torch: Any) -> None:
    model = torch.nn.Linear(8, 8).to(D)
    for name in ("fused", "foreach"):
        optimizer = torch.optim.AdamW(model.parameters(), **{name: True})
        before = model.weight.detach().clone()
        optimizer.zero_grad()
        model(torch.randn(4, 8, device=D)).sum().backward()
        optimizer.step()
        assert not torch.equal(before, model.weight)


def test_autocast_and_scaler(torch: Any) -> None:
    model = torch.nn.Linear(8, 8).to(D)
    scaler, optimizer = torch.amp.GradScaler("cuda"), torch.optim.SGD(model.parameters(), 0.1)
    for dtype in (torch.float16, torch.bfloat16):
        with torch.autocast("cuda", dtype=dtype):
            output = model(torch.randn(2, 8, device=D))
        assert output.dtype == dtype
    scaler.scale(output.sum()).backward()
    scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()


def test_generators(torch: Any) -> None:
    generator = torch.Generator(device=D)
    drawn = [torch.randn(4, device=D, generator=generator.manual_seed(3)) for _ in range(2)]
    assert torch.equal(*drawn)
    torch.manual_seed(0)
    first = torch.rand(3, device=D)
    torch.rand(3)  # the CPU's numbers are others
    state = torch.cuda.get_rng_state()
    second = torch.rand(3, device=D)
    torch.cuda.set_rng_state(state)
    assert torch.equal(second, torch.rand(3, device=D))
    torch.cuda.manual_seed(0)
    assert torch.equal(first, torch.rand(3, device=D))


def test_custom_operators_and_functions(torch: Any) -> None:
    def add_one(x: Any) -> None:
        x.add_(1)

    increment = torch.library.custom_op(
        "streamsafe_tests::increment", add_one, mutates_args={"x"}, schema="(Tensor(a!) x) -> ()"
    )
    x = torch.zeros(2, device=D)
    increment(x)
    assert x.tolist() == [1.0, 1.0]

    class Twice(torch.autograd.Function):  # type: ignore[misc]
        @staticmethod
        def forward(context: Any, value: Any) -> Any:
            return value * 2

        @staticmethod
        def backward(context: Any, gradient: Any) -> Any:
            return gradient * 2

    y = torch.ones(2, device=D, requires_grad=True)
    Twice.apply(y).sum().backward()
    assert y.grad.tolist() == [2.0, 2.0]


# -- memory ----------------------------------------------------------------------------------------------------------


def test_a_freed_block_is_the_next_one_of_its_stream(torch: Any) -> None:
    side = torch.cuda.Stream()
    x = torch.ones(1 << 20, device=D)
    place = x.data_ptr()
    del x
    with torch.cuda.stream(side):
        assert torch.empty(1 << 20, device=D).data_ptr() != place
    assert torch.empty(1 << 20, device=D).data_ptr() == place


def test_small_blocks_share_a_segment(torch: Any) -> None:
    torch.cuda.empty_cache()
    with torch.cuda.stream(torch.cuda.Stream(priority=-1)):
        x, y = torch.empty(100, device=D), torch.empty(100, device=D)
    assert y.data_ptr() - x.data_ptr() == 512


def test_pinned_memory(torch: Any) -> None:
    source = torch.ones(4).pin_memory()
    assert source.is_pinned()
    x = source.to(D, non_blocking=True)
    result = x.to("cpu", non_blocking=True)
    assert result.is_pinned()
    torch.cuda.synchronize()
    assert result.tolist() == [1.0] * 4
    assert not torch.ones(4).is_pinned()
    turned = torch.empty(2, 3, pin_memory=True).t()
    turned.copy_(torch.arange(6.0, device=D).view(3, 2), non_blocking=True)
    torch.cuda.synchronize()
    assert turned.tolist() == [[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]]


def test_what_is_asked_about_memory(torch: Any) -> None:
    before = torch.cuda.memory_allocated()
    x = torch.ones(1 << 20, device=D)
    assert torch.cuda.memory_allocated() - before == x.nbytes
    assert torch.cuda.max_memory_reserved() >= x.nbytes
    assert torch.cuda.mem_get_info()[1] == torch.cuda.get_device_properties(0).total_memory
    torch.cuda.memory_summary()
    torch.cuda.empty_cache()


def test_a_pool_of_the_programs_own(torch: Any, request: pytest.FixtureRequest) -> None:
    if request.config.getoption("--gpu"):
        pytest.skip("PyTorch cannot end a pool in a process that has lost a capture")
    with torch.cuda.use_mem_pool(torch.cuda.MemPool()):
        torch.ones(4, device=D)


def test_a_loader_that_pins(torch: Any) -> None:
    batches = list(torch.utils.data.DataLoader(torch.arange(10.0), batch_size=5, pin_memory=True))
    assert [batch.is_pinned() for batch in batches] == [True, True]


# -- graphs ----------------------------------------------------------------------------------------------------------


def test_a_capture_computes_nothing_and_a_replay_does(torch: Any) -> None:
    x = torch.zeros(3, device=D)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = x * 2 + 1
        x.add_(1)
    assert x.tolist() == [0.0] * 3
    graph.replay()
    assert (y.tolist(), x.tolist()) == ([1.0] * 3, [1.0] * 3)
    x.fill_(5)
    graph.replay()
    assert y.tolist() == [11.0] * 3


def test_a_captured_training_step(torch: Any) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Dropout(0.1), torch.nn.Linear(8, 1)).to(D)
    optimizer = torch.optim.AdamW(model.parameters(), capturable=True)
    x = torch.randn(5, 4, device=D)

    def step() -> Any:
        optimizer.zero_grad(set_to_none=True)
        loss = model(x).sum()
        loss.backward()
        optimizer.step()
        return loss

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    before = model[0].weight.detach().clone()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    assert torch.equal(before, model[0].weight)
    graph.replay()
    assert not torch.equal(before, model[0].weight)


@pytest.mark.filterwarnings("ignore:The AccumulateGrad node's stream")
def test_graphed_callables(torch: Any) -> None:
    model = torch.nn.Linear(4, 4).to(D)
    x = torch.randn(2, 4, device=D, requires_grad=True)
    graphed = torch.cuda.make_graphed_callables(model, (x,))
    y = graphed(x)
    y.sum().backward()
    torch.testing.assert_close(y, torch.nn.functional.linear(x, model.weight, model.bias))


def forked(torch: Any, x: Any, side: Any) -> None:
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        x.add_(1)


def joined_from_outside(torch: Any, x: Any, side: Any) -> None:
    with torch.cuda.stream(side):
        x + 1
    torch.cuda.current_stream().wait_stream(side)


ILLEGAL: dict[str, tuple[Callable[[Any, Any, Any], Any], str]] = {
    "item": (lambda torch, x, side: x.sum().item(), "capturing|previous error"),
    "nonzero": (lambda torch, x, side: x.nonzero(), "capturing|previous error"),
    "pageable copy": (lambda torch, x, side: x.cpu(), "pinned"),
    "device synchronize": (lambda torch, x, side: torch.cuda.synchronize(), "capturing|previous error"),
    "a fork without a join": (forked, "unjoined"),
    "a wait for uncaptured work": (joined_from_outside, "uncaptured|previous error|isolation"),
    "the default stream joins": (
        lambda torch, x, side: torch.cuda.default_stream().wait_stream(torch.cuda.current_stream()),
        "legacy stream|previous error",
    ),
    "an unregistered generator": (
        lambda torch, x, side: torch.rand(2, device=D, generator=GENERATORS[0]),
        "generator",
    ),
}


GENERATORS: list[Any] = []


@pytest.mark.filterwarnings("ignore:The CUDA Graph is empty")
@pytest.mark.parametrize("what", ILLEGAL)
def test_illegal_calls_in_a_capture(torch: Any, what: str) -> None:
    GENERATORS[:] = [torch.Generator(device=D)]
    body, message = ILLEGAL[what]
    x, side = torch.zeros(3, device=D), torch.cuda.Stream()
    torch.cuda.synchronize()
    with pytest.raises(RuntimeError, match=message), torch.cuda.graph(torch.cuda.CUDAGraph()):
        body(torch, x, side)
    torch.cuda.synchronize()
    assert not torch.cuda.is_current_stream_capturing()


def test_a_capture_needs_a_stream_of_its_own(torch: Any) -> None:
    with pytest.raises(RuntimeError, match="non-default stream"):
        torch.cuda.CUDAGraph().capture_begin()


# -- the trace -------------------------------------------------------------------------------------------------------


def trace_of(torch: Any, work: Callable[[], Any]) -> list[str]:
    from torch.cuda import _gpu_trace

    torch._C._activate_gpu_trace()
    seen: list[str] = []
    registries: dict[str, Any] = {
        "record": _gpu_trace.EventRecordCallbacks,
        "wait": _gpu_trace.EventWaitCallbacks,
        "stream": _gpu_trace.StreamSynchronizationCallbacks,
        "device": _gpu_trace.DeviceSynchronizationCallbacks,
        "event": _gpu_trace.EventSynchronizationCallbacks,
    }
    for name, registry in registries.items():
        registry.add_callback(lambda *_, name=name: seen.append(name))
    try:
        work()
    finally:
        for registry in registries.values():
            registry.callback_list.clear()
    return seen


TRACES: dict[str, tuple[Callable[[Any, Any, Any], Any], list[str]]] = {
    "wait_stream": (
        lambda torch, x, side: side.wait_stream(torch.cuda.current_stream()),
        ["record", "wait"],
    ),
    "item": (lambda torch, x, side: x[0].item(), ["stream"]),
    "cpu": (lambda torch, x, side: x.cpu(), ["stream"]),
    "a copy from pinned memory": (
        lambda torch, x, side: x.copy_(torch.ones(3).pin_memory(), non_blocking=True),
        ["record"],  # when the pinned block is freed
    ),
    "nonzero": (lambda torch, x, side: x.nonzero(), ["stream"]),
    "a mask": (lambda torch, x, side: x[torch.tensor([True, False, True], device=D)], ["stream", "stream"]),
    "device synchronize": (lambda torch, x, side: torch.cuda.synchronize(), ["device"]),
    "stream synchronize": (lambda torch, x, side: side.synchronize(), ["stream"]),
    "arithmetic": (lambda torch, x, side: (x + 1).sum(), []),
}


@pytest.mark.parametrize("what", TRACES)
def test_the_gpu_trace(torch: Any, what: str) -> None:
    work, expected = TRACES[what]
    x, side = torch.ones(3, device=D), torch.cuda.Stream()
    x[0].item()
    assert trace_of(torch, lambda: work(torch, x, side)) == expected


# -- how it is installed ---------------------------------------------------------------------------------------------


def python(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=False)


def test_it_must_come_before_torch(torch: Any, request: pytest.FixtureRequest) -> None:
    if request.config.getoption("--gpu"):
        pytest.skip("a CUDA build has no simulated device")
    ended = python("import torch\nfrom streamsafe.simulate import torch as simulate\nsimulate.install()")
    assert "torch was imported before the simulated CUDA device" in ended.stderr
    ended = python(
        "from streamsafe.simulate import torch as simulate\nsimulate.install(1)\nimport torch\n"
        "print(torch.cuda.device_count())\nsimulate.install(2)"
    )
    assert ended.stdout == "1\n"
    assert "was installed with 1 device(s), not 2" in ended.stderr


def test_what_it_does_not_have_is_said(torch: Any, request: pytest.FixtureRequest) -> None:
    if request.config.getoption("--gpu"):
        pytest.skip("a GPU has it")
    from streamsafe.simulate.torch import NotSimulated

    with pytest.raises(NotSimulated, match="the cuBLAS handle is not simulated"):
        torch.cuda.current_blas_handle()
