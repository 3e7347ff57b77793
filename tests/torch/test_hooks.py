"""The Python hooks: what each reports, and that programs see nothing of them."""

from __future__ import annotations

import _thread
import io
import pickle
import sys
import threading
import types
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

import streamsafe
from streamsafe.runtime.patches import Patches
from streamsafe.runtime.torch import hooks
from streamsafe.runtime.torch.hooks import Collector, Use, kernels


class Recorder:
    """Keeps the calls; the protocol's methods are its attributes."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, tuple[Any, ...]]] = []

    def __getattr__(self, name: str) -> Callable[..., None]:
        if name.startswith("_"):
            raise AttributeError(name)
        return lambda *args: self.calls.append((name, args))

    @contextmanager
    def synchronizing(self, what: Any) -> Iterator[None]:
        self.calls.append(("synchronizing", (what,)))
        yield

    def pack_begins(self, tensor: Any) -> bool:
        self.calls.append(("pack_begins", (tensor,)))
        return True

    @contextmanager
    def own_work(self) -> Iterator[None]:
        yield

    def named(self, name: str) -> list[tuple[Any, ...]]:
        return [args for each, args in self.calls if each == name]


def check_types(recorder: Recorder) -> Collector:
    return recorder  # mypy: the protocol is met


@pytest.fixture
def seen(torch: Any) -> Iterator[Recorder]:
    recorder, patches = Recorder(), Patches()
    hooks.install(patches, recorder)
    yield recorder
    patches.restore()
    torch.cuda.synchronize()


def test_everything_is_put_back(torch: Any) -> None:
    owners = [
        torch.cuda.Event,
        torch.cuda.Stream,
        torch.Event,
        torch.Stream,
        torch.cuda.CUDAGraph,
        torch.Tensor,
        torch.UntypedStorage,
        torch._C.PyTorchFileWriter,
        torch._C._autograd,
        threading.Thread,
        _thread,
    ]
    before = [dict(vars(owner)) for owner in owners]
    patches = Patches()
    hooks.install(patches, Recorder())
    assert [dict(vars(owner)) for owner in owners] != before
    patches.restore()
    assert [dict(vars(owner)) for owner in owners] == before


def test_threads(seen: Recorder) -> None:
    names: list[str] = []
    thread = threading.Thread(target=lambda: names.append(threading.current_thread().name), name="ours")
    thread.start()
    thread.join()
    assert [name for name, _ in seen.calls] == ["thread_begins", "thread_ends"]
    assert names == ["ours"]
    done = threading.Event()
    _thread.start_new_thread(lambda value, *, key: done.set(), (1,), {"key": 2})
    assert done.wait(10)
    assert len(seen.named("thread_begins")) == 2
    with pytest.raises(TypeError):
        _thread.start_new_thread(3, ())  # type: ignore[call-overload]


def test_queries(torch: Any, seen: Recorder) -> None:
    side, event = torch.cuda.Stream(), torch.cuda.Event()
    assert event.query()  # never recorded: no edge
    assert set(seen.named("event_done")) == {(0,)}
    event.record(side)
    torch.cuda.synchronize()
    assert event.query() and side.query()
    assert set(seen.named("event_done")) == {(0,), (event.cuda_event,)}
    assert set(seen.named("stream_done")) == {(0, side.cuda_stream)}


def test_queries_of_generic_objects(torch: Any, seen: Recorder) -> None:
    stream, event = torch.Stream("cuda"), torch.Event("cuda")
    event.record(stream)
    torch.cuda.synchronize()
    assert event.query() and stream.query()
    handle = torch.cuda.Stream(stream_id=stream.stream_id, device_index=0, device_type=1).cuda_stream
    assert seen.named("event_done") == [(event.event_id,)]
    assert seen.named("stream_done") == [(0, handle)]


def test_waits_for_an_event_never_recorded(torch: Any, seen: Recorder) -> None:
    side, event = torch.cuda.Stream(), torch.cuda.Event()
    side.wait_event(event)
    event.wait()
    event.synchronize()
    assert seen.named("waits_for_nothing") == [(0, side.cuda_stream), (0, 0)]
    assert len(seen.named("host_waits_for_nothing")) == 1
    event.record()
    side.wait_event(event)
    event.synchronize()
    assert len(seen.named("waits_for_nothing")) == 2
    assert seen.named("waits") == [(side, event)]
    assert len(seen.named("host_waits_for_nothing")) == 1
    assert seen.named("synchronizing") == [(event,), (event,)]


def test_elapsed_time(torch: Any, seen: Recorder) -> None:
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(True)
    start.record()
    end.record()
    torch.cuda.synchronize()
    assert start.elapsed_time(end) >= 0
    with pytest.raises((RuntimeError, ValueError)):
        start.elapsed_time(torch.cuda.Event())
    handles = (start.cuda_event, end.cuda_event)
    assert seen.named("elapsed_time") == [(*handles, (True, True)), (handles[0], 0, (True, False))]


def test_graphs(torch: Any, seen: Recorder) -> None:
    x = torch.zeros(3, device="cuda")
    graph = torch.cuda.CUDAGraph()
    side = torch.cuda.Stream()
    with torch.cuda.graph(graph, stream=side):
        x.add_(1)
    graph.replay()
    pool = graph.pool()
    graph.reset()
    (begun,), (ended,) = seen.named("capture_begins"), seen.named("capture_ends")
    assert begun[1:] == (None, "global", 0, side.cuda_stream)
    assert ended[1:] == (tuple(pool), False)
    assert seen.named("replay") == [(begun[0], 0, 0)]
    assert seen.named("graph_reset") == [(begun[0],)]
    assert ended[0] is begun[0]
    other = torch.cuda.CUDAGraph()
    with torch.cuda.graph(other, pool=torch.cuda.graph_pool_handle(), capture_error_mode="relaxed"):
        x.add_(1)
    begun = seen.named("capture_begins")[1]
    assert begun[1] is not None and begun[2] == "relaxed"
    assert begun[0] is not ended[0]


def test_graphs_of_torch_compile_are_managed(
    torch: Any, seen: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool, other = torch.cuda.graph_pool_handle(), torch.cuda.graph_pool_handle()
    trees: Any = types.ModuleType("cudagraph_trees")
    manager = types.SimpleNamespace(cuda_graphs_thread_pool=pool)
    trees.local = types.SimpleNamespace(
        tree_manager_containers={0: types.SimpleNamespace(tree_manager=manager)}
    )
    trees.get_obj = getattr
    monkeypatch.setitem(sys.modules, "torch._inductor.cudagraph_trees", trees)
    x = torch.zeros(3, device="cuda")
    graphs = []
    for each in (other, pool, None):
        graphs.append(torch.cuda.CUDAGraph())
        with torch.cuda.graph(graphs[-1], pool=each):
            x.add_(1)
    names = [name for name, _ in seen.calls if name in ("capture_begins", "capture_managed")]
    assert names == ["capture_begins", "capture_begins", "capture_managed", "capture_begins"]


def test_a_capture_that_fails(torch: Any, seen: Recorder) -> None:
    x = torch.zeros(3, device="cuda")
    torch.cuda.synchronize()
    with pytest.raises(RuntimeError), torch.cuda.graph(torch.cuda.CUDAGraph()):
        x.sum().item()
    torch.cuda.synchronize()
    assert [failed for _, _, failed, _ in seen.named("capture_ends")] == [True]
    assert seen.named("replay") == []


def test_a_refused_launch_is_not_made(torch: Any, seen: Recorder) -> None:
    x = torch.zeros(3, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        x.add_(1)

    def refuse(*_: Any) -> None:
        raise RuntimeError("a hazard")

    seen.replay = refuse  # type: ignore[attr-defined]
    with pytest.raises(RuntimeError, match="a hazard"):
        graph.replay()
    torch.cuda.synchronize()
    assert x.tolist() == [0.0] * 3


def test_host_reads(torch: Any, seen: Recorder) -> None:
    pytest.importorskip("numpy")
    host = torch.arange(12.0).reshape(3, 4)[:, :2]
    assert host.tolist() == [[0.0, 1.0], [4.0, 5.0], [8.0, 9.0]]
    assert seen.named("host_access") == [("tolist", [Use(host.data_ptr(), 40, False, host)])]
    host.numpy()
    assert [args[1:] for args in seen.named("exported")] == [("numpy", None)]
    seen.calls.clear()
    torch.ones(3, device="cuda").tolist()  # a copy, which is an operator
    torch.empty(0).tolist()
    assert seen.calls == []


def test_files_and_shared_memory(torch: Any, seen: Recorder) -> None:
    host = torch.arange(6.0)
    read = [Use(host.data_ptr(), 24, False)]
    for save in (
        lambda: torch.save({"x": host[2:]}, io.BytesIO()),
        lambda: torch.save(host, io.BytesIO(), _use_new_zipfile_serialization=False),
        lambda: pickle.dumps(host),
    ):
        seen.calls.clear()
        save()
        assert seen.named("host_access") == [("save", read)]
    seen.calls.clear()
    host.share_memory_()
    assert seen.named("host_access") == [("share_memory_", read)]
    seen.calls.clear()
    torch.save([torch.empty(0), torch.ones(3).to("meta"), 5], io.BytesIO())
    assert seen.named("host_access") == []


def test_exports(torch: Any, seen: Recorder) -> None:
    x = torch.ones(3, device="cuda")
    torch.from_dlpack(x)
    x.__dlpack__(stream=-1)
    assert x.__cuda_array_interface__["data"][0] == x.data_ptr()
    exports = [args[1:] for args in seen.named("exported")]
    assert exports[0][0] == "dlpack" and exports[0][1] is not None
    assert exports[1:] == [("dlpack", None), ("array_interface", None)]


def test_storages(torch: Any, seen: Recorder) -> None:
    x = torch.ones(1000, device="cuda")
    before = x.untyped_storage().data_ptr()
    x.untyped_storage().resize_(0)
    x.untyped_storage().resize_(8000)
    after = x.untyped_storage().data_ptr()
    assert seen.named("storage_resized") == [(before, 4000, 0, 0), (0, 0, after, 8000)]
    torch.ones(3).untyped_storage().resize_(0)
    assert len(seen.named("storage_resized")) == 2


def test_elements_of_storages(torch: Any, seen: Recorder) -> None:
    storage = torch.arange(4, dtype=torch.uint8).untyped_storage()
    assert storage[1] == 1 and storage[-1] == 3
    storage[2] = 9
    start = storage.data_ptr()
    uses = [Use(start + 1, 1, False), Use(start + 3, 1, False), Use(start + 2, 1, True)]
    assert seen.named("host_access") == [("index", [use]) for use in uses]
    assert list(storage) == [0, 1, 9, 3]
    assert len(seen.named("host_access")) == 7


# -- kernels: Triton comes with CUDA builds only; what is hooked is the shape of its classes -----------------------


@pytest.fixture
def triton(monkeypatch: pytest.MonkeyPatch) -> Any:
    module = types.ModuleType("triton.runtime.jit")

    class JITFunction:
        __name__ = "add_kernel"
        arg_names: Sequence[str] = ("x", "y", "out", "n")

        def run(self, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> str:
            return f"{len(args)} {sorted(kwargs)} {grid} {warmup}"

    module.JITFunction = JITFunction  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "triton.runtime.jit", module)
    return JITFunction


def analysis(monkeypatch: pytest.MonkeyPatch, answer: Callable[..., Any], name: str) -> None:
    import logging

    module = types.ModuleType("torch._higher_order_ops.triton_kernel_wrap")
    setattr(module, name, answer)
    module.log = logging.getLogger("streamsafe.tests")  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, module.__name__, module)


def accessed(kernel: Any, arguments: Any, descriptors: Any) -> Any:
    writes = [types.SimpleNamespace(name="out")]
    return types.SimpleNamespace(read_writes=types.SimpleNamespace(writes=writes))


ANALYSES: dict[str, tuple[str, Callable[..., Any]]] = {
    "2.6": ("identify_mutated_tensors", lambda kernel, arguments: ["out"]),
    "2.8": ("identify_mutated_tensors", lambda kernel, arguments, descriptors: ["out"]),
    "2.13": ("identify_accessed_tensors", accessed),
}


@pytest.mark.parametrize("release", ANALYSES)
def test_a_triton_kernel(torch: Any, triton: Any, monkeypatch: pytest.MonkeyPatch, release: str) -> None:
    name, answer = ANALYSES[release]
    analysis(monkeypatch, answer, name)
    recorder, patches = Recorder(), Patches()
    kernels.install(torch, patches, recorder)
    x, y = torch.ones(4, device="cuda"), torch.ones(8, device="cuda")[::2]
    out = torch.empty(4, device="cuda")
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        assert triton().run(x, y, out=out, n=4, grid=(1,), warmup=False) == "2 ['n', 'out'] (1,) False"
        triton().run(x, y, out, 4, grid=(1,), warmup=True)
    patches.restore()
    uses = [
        Use(x.data_ptr(), 16, False, x),
        Use(y.data_ptr(), 28, False, y),
        Use(out.data_ptr(), 16, True, out),
    ]
    assert recorder.calls == [("launch", ("add_kernel", uses, 0, side.cuda_stream))]


def test_a_kernel_is_not_another_of_the_same_address(
    torch: Any, triton: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []

    def answer(kernel: Any, arguments: Any, descriptors: Any) -> Any:
        asked.append(dict(arguments))
        return accessed(kernel, arguments, descriptors)

    analysis(monkeypatch, answer, "identify_accessed_tensors")
    written = kernels.Written(torch)
    for _ in range(20):  # each at the address of the one before
        assert written.by(triton(), {"n": 4}) == frozenset({"out"})
    assert len(asked) == 20
    kernel = triton()
    kernel.params = [types.SimpleNamespace(name=name, is_constexpr=name == "y") for name in triton.arg_names]
    asked.clear()
    for number in range(1000):
        written.by(kernel, {"n": number, "y": number % 2})
    assert len(asked) == 3  # of `n` only whether it is 1 is in the code: (0, 0), (1, 1), (3, 1)


def fails_aloud(*_: Any) -> Any:
    raise ValueError


def fails_in_the_log(kernel: Any, arguments: Any, descriptors: Any) -> list[str]:
    import logging

    logging.getLogger("streamsafe.tests").warning(
        "Encountered an exception in identify_mutated_tensors, assuming every input is mutated"
    )
    return list(arguments)


@pytest.mark.parametrize("answer", [fails_aloud, fails_in_the_log])
def test_a_kernel_whose_writes_are_unknown(
    torch: Any, triton: Any, monkeypatch: pytest.MonkeyPatch, answer: Callable[..., Any]
) -> None:
    analysis(monkeypatch, answer, "identify_mutated_tensors")
    recorder, patches = Recorder(), Patches()
    kernels.install(torch, patches, recorder)
    x = torch.ones(4, device="cuda")
    triton().run(x, 3, grid=(1,), warmup=False)
    patches.restore()
    assert recorder.calls == [
        ("note", ("triton", kernels.UNKNOWN)),
        ("launch", ("add_kernel", [Use(x.data_ptr(), 16, True, x, False)], 0, 0)),
    ]


def test_a_compiled_kernel(torch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    module = types.ModuleType("torch._inductor.runtime.triton_heuristics")

    class CachingAutotuner:
        def __init__(self) -> None:
            self.fn = types.SimpleNamespace(arg_names=("in_ptr0", "in_out_ptr0", "out_ptr1", "arg", "n"))
            self.mutated_arg_names = ["arg"]
            self.inductor_meta = {"kernel_name": "triton_poi_fused_add_0"}

        def run(self, *args: Any, stream: int, **kwargs: Any) -> int:
            return stream

    module.CachingAutotuner = CachingAutotuner  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, module.__name__, module)
    recorder, patches = Recorder(), Patches()
    kernels.install(torch, patches, recorder)
    tensors = [torch.ones(4, device="cuda") for _ in range(4)]
    assert CachingAutotuner().run(*tensors, 4, stream=7) == 7
    patches.restore()
    ((_, (name, uses, device, stream)),) = recorder.calls
    assert (name, device, stream) == ("triton_poi_fused_add_0", 0, 7)
    assert [use.write for use in uses] == [False, True, True, True]


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_scripted_functions(torch: Any, seen: Recorder) -> None:
    def scale(x: Any, w: Any) -> Any:
        return x * w, x

    scripted = torch.jit.trace(scale, (torch.ones(8), torch.ones(1)), check_trace=False)
    x, w = (torch.ones(8, device="cuda") for _ in range(2))
    y, same = scripted(x, w[2:3])
    (read, uses, device, stream), (written, results, *_) = seen.named("launch")
    assert (read, written, device, stream) == ("scale", "scale", 0, 0)
    assert [(use.address, use.size, use.write) for use in uses] == [
        (x.data_ptr(), 32, False),
        (w.data_ptr() + 8, 4, False),
    ]
    assert [(use.address, use.write) for use in results] == [(y.data_ptr(), True)]  # not what it was given
    assert same.data_ptr() == x.data_ptr()
    seen.calls.clear()
    scripted(torch.ones(2), torch.ones(2))
    assert not seen.calls  # it is about no device


def test_hooks_of_saved_tensors(torch: Any, seen: Recorder) -> None:
    x = torch.full((4,), 4.0, device="cuda", requires_grad=True)

    def pack(tensor: Any) -> Any:
        seen.calls.append(("packs", (tensor,)))
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda packed: packed):
        y = x.sqrt()
    assert [name for name, _ in seen.calls] == ["pack_begins", "packs", "pack_ends"]
    seen.calls.clear()
    y.sum().backward()
    assert not seen.named("pack_begins")
    assert x.grad.tolist() == [0.25] * 4


def test_a_hook_of_saved_tensors_that_raises(torch: Any, seen: Recorder) -> None:
    def pack(tensor: Any) -> Any:
        raise ValueError("full")

    x = torch.ones(4, device="cuda", requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(pack, pack), pytest.raises(ValueError, match="full"):
        x.sqrt()
    assert [name for name, _ in seen.calls] == ["pack_begins", "pack_ends"]


@pytest.mark.parametrize("first", ["reads", "writes"])
def test_an_operator_that_is_defined_again(torch: Any, first: str) -> None:
    """The description of one is not another's that has its address."""
    schemas = {"reads": "(Tensor x) -> ()", "writes": "(Tensor(a!) x) -> ()"}
    x = torch.zeros(64, device="cuda")
    torch.cuda.synchronize()
    for number in range(12):
        what = first if number % 2 == 0 else next(each for each in schemas if each != first)
        made = torch.library.Library(f"again_{first}", "DEF")
        made.define("touch" + schemas[what])
        made.impl("touch", lambda x: None, "CUDA")
        with streamsafe.sanitize(mode="collect") as session:
            for _ in range(2):
                with torch.cuda.stream(torch.cuda.Stream()):
                    getattr(torch.ops, f"again_{first}").touch(x)
        torch.cuda.synchronize()
        made._destroy()
        assert len(session.hazards) == (what == "writes"), number
