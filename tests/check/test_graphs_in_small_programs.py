"""What the check knows of modules, passes, optimizers and captured graphs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.check.small_programs import check_program

CASES = {
    "the host asks for a bound, a size or a number in a capture": """
def bad_bound(x):
    x = x.cuda()
    g = torch.cuda.CUDAGraph()
    with torch.cuda.graph(g):
        y = x[: x.argmax()]  # expect: SS401
        z = torch.zeros(x.amax(), device="cuda")  # expect: SS401
        for _ in range(x.sum()):  # expect: SS401
            x.mul_(2)
    return g, y, z

def good_bound(x, n):
    x = x.cuda()
    size = x.argmax().item()
    g = torch.cuda.CUDAGraph()
    with torch.cuda.graph(g):
        y = x[: x.shape[0] - n]
        z = torch.zeros(size, device="cuda")
        for _ in range(x.size(0)):
            x.mul_(2)
    return g, y, z
""",
    "an index by a mask asks for the number of its true elements": """
class Positive(nn.Module):
    def forward(self, x):
        return x[x > 0].sum()  # expect: SS401

def bad_mask(x):
    x = x.cuda()
    net = Positive()
    g = torch.cuda.CUDAGraph()
    with torch.cuda.graph(g):
        keep = x.ge(0) & torch.isfinite(x)
        y = x[keep]  # expect: SS401
        z = net(x)
    return g, y, z

def good_mask(x):
    x = x.cuda()
    g = torch.cuda.CUDAGraph()
    with torch.cuda.graph(g):
        keep = x.ge(0) & torch.isfinite(x)
        y = torch.where(keep, x, 0.0)
        z = x[x.argsort()]
    return g, y, z
""",
    "memory of the host is copied to the device in a capture": """
def bad_literal(x):
    g = torch.cuda.CUDAGraph()
    with torch.cuda.graph(g):
        w = torch.tensor([0.2, 0.8], device="cuda")  # expect: SS401
    return g, w

def good_literal(x):
    w = torch.tensor([0.2, 0.8], device="cuda")
    g = torch.cuda.CUDAGraph()
    with torch.cuda.graph(g):
        y = torch.full((2,), 0.5, device="cuda") * w
    return g, y
""",
    "another stream may be asked in the relaxed mode": """
def bad_asked(x):
    g, s = torch.cuda.CUDAGraph(), torch.cuda.Stream()
    with torch.cuda.graph(g):
        x.mul_(2)
        return g, s.query()  # expect: SS401

def good_asked(x):
    g, s = torch.cuda.CUDAGraph(), torch.cuda.Stream()
    with torch.cuda.graph(g, capture_error_mode="relaxed"):
        x.mul_(2)
        return g, s.query()
""",
    "what is expected to raise is no finding": """
def test_that_it_fails(x):
    g = torch.cuda.CUDAGraph()
    with torch.cuda.graph(g):
        x.mul_(2)
        with pytest.raises(RuntimeError):
            x.sum().item()
        x.sum().item()  # expect: SS401
""",
    "an attribute of a stream asks the device": """
def bad_asked(n):
    s = cp.cuda.Stream(non_blocking=True)
    with s:
        x = cp.ones(n)
    s.priority
    return x * 2  # expect: SS101

def good_asked(n):
    s = cp.cuda.Stream(non_blocking=True)
    with s:
        x = cp.ones(n)
    while not s.done:
        pass
    return x * 2
""",
    "a module that is called reads its parameters": """
class Group:
    def __init__(self, modules):
        self.modules = modules
        self.stream = torch.cuda.Stream()
        self.host = {p: p.data.cpu().pin_memory() for m in modules for p in m.parameters()}

    def onload(self):
        with torch.cuda.stream(self.stream):
            for m in self.modules:
                for name, p in m.named_parameters():
                    p.data = self.host[p].to("cuda", non_blocking=True)

def bad_onload(block: nn.Linear, x):
    group = Group([block])
    group.onload()
    return block(x)  # expect: SS101

def good_onload(block: nn.Linear, x):
    group = Group([block])
    group.onload()
    torch.cuda.current_stream().wait_stream(group.stream)
    return block(x)

def good_other_module(block: nn.Linear, other: nn.Linear, x):
    group = Group([block])
    group.onload()
    return other(x)

def bad_by_name(block: nn.Linear, x, host):
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for p, h in zip(block.parameters(), host):
            p.data.copy_(h, non_blocking=True)
    return nn.functional.linear(x, block.weight)  # expect: SS101
""",
    "options that are given by name are as good as written": """
OPTIONS = {"non_blocking": True}

def bad_options(x):
    h = x.cuda().to("cpu", **OPTIONS)
    return h.tolist()  # expect: SS301

def good_options(x):
    h = x.cuda().to("cpu", **{"non_blocking": False})
    return h.tolist()
""",
    "a parameter of a module moves with it": """
class Scaled(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.kept = torch.ones(n)
        self.moved = nn.Parameter(torch.ones(n))

    def forward(self, x):
        return x * self.moved.to(x.device) * self.kept.to(x.device)  # expect: SS401

def captured(n, x):
    net = Scaled(n).cuda()
    g = torch.cuda.CUDAGraph()
    with torch.cuda.graph(g):
        y = net(x.cuda())
    return g, y
""",
    "an input of a graph is let go of in a method that does not capture it": """
class BadRunner:
    def __init__(self, net, weight):
        self.net, self.weight = net, weight
        self.graph = torch.cuda.CUDAGraph()

    def allocate(self, n):
        self.tokens = torch.zeros(n, device="cuda")

    def capture(self):
        with torch.cuda.graph(self.graph):
            self.out = self.net(self.tokens) * self.weight

    def __call__(self, tokens):
        self.tokens = tokens  # expect: SS403
        self.graph.replay()
        return self.out

class GoodRunner:
    def __init__(self, net):
        self.net = net
        self.graph = torch.cuda.CUDAGraph()

    def allocate(self, n):
        self.tokens = torch.zeros(n, device="cuda")

    def capture(self):
        with torch.cuda.graph(self.graph):
            self.out = self.net(self.tokens)

    def __call__(self, tokens):
        self.tokens.copy_(tokens)
        self.graph.replay()
        return self.out
""",
    "inputs of a graph in a container": """
class BadNamed:
    def __init__(self, net, ids, mask):
        self.net = net
        self.inputs = {"ids": ids.clone(), "mask": mask.clone()}
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.out = self.net(**self.inputs)

    def each(self, batch):
        for name in self.inputs:
            self.inputs[name] = batch[name].cuda()  # expect: SS403
        self.graph.replay()

    def all(self, batch):
        self.inputs.update({name: value.cuda() for name, value in batch.items()})  # expect: SS403
        self.graph.replay()

class GoodNamed:
    def __init__(self, net, ids, mask):
        self.net = net
        self.inputs = {"ids": ids.clone(), "mask": mask.clone()}
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.out = self.net(**self.inputs)

    def each(self, batch):
        for name in self.inputs:
            self.inputs[name].copy_(batch[name])
        self.graph.replay()

class GoodTable:
    def __init__(self, net):
        self.net, self.known = net, {}

    def __call__(self, x):
        if x.shape not in self.known:
            static = x.clone()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                out = self.net(static)
            self.known[x.shape] = (graph, static, out)
        graph, static, out = self.known[x.shape]
        static.copy_(x)
        graph.replay()
        return out.clone()
""",
    "parameters of a module that a graph calls": """
def bad_data(net, x, other):
    g = torch.cuda.CUDAGraph()
    with torch.cuda.graph(g):
        y = net(x)
    for p, q in zip(net.parameters(), other.parameters()):
        p.data = q.data.clone()  # expect: SS403
    g.replay()
    return y

def good_data(net, x, other):
    g = torch.cuda.CUDAGraph()
    with torch.cuda.graph(g):
        y = net(x)
    for p, q in zip(net.parameters(), other.parameters()):
        p.data.copy_(q.data)
    g.replay()
    return y

def good_back(net, x, average):
    g = torch.cuda.CUDAGraph()
    with torch.cuda.graph(g):
        y = net(x)
    own = net.weight.data
    net.weight.data = average
    net(x)
    net.weight.data = own
    g.replay()
    return y
""",
    "gradients that a captured step reads": """
def bad_step(net, opt, x, n):
    g = torch.cuda.CUDAGraph()
    net(x).sum().backward()
    torch.cuda.synchronize()
    with torch.cuda.graph(g):
        opt.step()
    for _ in range(n):
        opt.zero_grad()  # expect: SS403
        net(x).sum().backward()
        g.replay()

def good_step(net, opt, x, n):
    g = torch.cuda.CUDAGraph()
    net(x).sum().backward()
    torch.cuda.synchronize()
    with torch.cuda.graph(g):
        opt.step()
    for _ in range(n):
        opt.zero_grad(set_to_none=False)
        net(x).sum().backward()
        g.replay()
""",
    "a capture puts its output in the place of its input": """
def bad_state(net, x, n):
    state = torch.zeros(8, device="cuda")
    g = torch.cuda.CUDAGraph()
    with torch.cuda.graph(g):
        state = net(x, state)  # expect: SS403
    for _ in range(n):
        g.replay()
    return state

def good_state(net, x, n):
    state = torch.zeros(8, device="cuda")
    g = torch.cuda.CUDAGraph()
    with torch.cuda.graph(g):
        state.copy_(net(x, state))
    for _ in range(n):
        g.replay()
    return state
""",
    "optimizers that count on the host": """
class Trainer:
    def __init__(self, net):
        self.net = net
        self.bad = torch.optim.AdamW(net.parameters())
        self.good = torch.optim.AdamW(net.parameters(), capturable=True)
        self.plain = torch.optim.SGD(net.parameters(), lr=0.1)
        self.graph = torch.cuda.CUDAGraph()

    def capture(self, x):
        with torch.cuda.graph(self.graph):
            self.net(x).sum().backward()
            self.bad.step()  # expect: SS408
            self.good.step()
            self.plain.step()

def good_set_afterwards(net, x):
    opt = torch.optim.Adam(net.parameters())
    for group in opt.param_groups:
        group["capturable"] = True
    g = torch.cuda.CUDAGraph()
    with torch.cuda.graph(g):
        net(x).sum().backward()
        opt.step()
    return g
""",
    "random numbers of the host are drawn once, at the capture": """
def bad_drawn(net, x):
    g = torch.cuda.CUDAGraph()
    with torch.cuda.graph(g):
        y = net(x) * random.random()  # expect: SS410
        if np.random.rand() < 0.5:  # expect: SS410
            y.mul_(2)
    return g, y

def good_drawn(net, x, scale):
    g = torch.cuda.CUDAGraph()
    with torch.cuda.graph(g):
        y = net(x) * scale
    scale.fill_(random.random())
    g.replay()
    return y
""",
    "autograd runs the backward of a function of the tree": """
class Apart(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return x @ w

    @staticmethod
    def backward(ctx, grad):
        x, w = ctx.saved_tensors
        side = torch.cuda.Stream()
        with torch.cuda.stream(side):
            grad_w = x.t() @ grad  # expect: SS111
        return grad @ w.t(), grad_w  # expect: SS101

class Asking(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        return grad * grad.norm().item()  # expect: SS401

class Beside(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return x @ w

    @staticmethod
    def backward(ctx, grad):
        x, w = ctx.saved_tensors
        side, main = torch.cuda.Stream(), torch.cuda.current_stream()
        side.wait_stream(main)
        with torch.cuda.stream(side):
            grad_w = x.t() @ grad
        main.wait_stream(side)
        grad_w.record_stream(main)
        return grad @ w.t(), grad_w

def captured(x):
    g = torch.cuda.CUDAGraph()
    with torch.cuda.graph(g):
        Asking.apply(x).sum().backward()
    return g
""",
    "who runs a module's passes is no tensor": """
def bad_engine(engine, batch):
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        engine.backward(engine(batch))
    engine.step()  # expect: SS111

def good_engine(engine, batch):
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        loss = engine(batch)
    engine.backward(loss)
    engine.step()
""",
    "each of several optimizers reads the gradients of its own parameters": """
class Offloaded:
    def __init__(self, optimizers):
        self.optimizers = optimizers
        self.side = torch.cuda.Stream()
        self.copied = {}

    def gather(self):
        self.side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.side):
            for optimizer in self.optimizers:
                for group in optimizer.param_groups:
                    for param in group["params"]:
                        param.grad = torch.ones(8, device="cuda")
                self.copied[optimizer] = self.side.record_event()

class Good(Offloaded):
    def step(self):
        self.gather()
        for optimizer in self.optimizers:
            self.copied[optimizer].wait()
            optimizer.step()

class Bad(Offloaded):
    def step(self):
        self.gather()
        for optimizer in self.optimizers:
            optimizer.step()  # expect: SS101
""",
}


@pytest.mark.parametrize("name", CASES)
def test_what_is_shown(name: str, tmp_path: Path) -> None:
    check_program(tmp_path, CASES[name])
