"""Parts of one buffer: what touches different parts is no pair, and what may touch the same part is one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.check.evalfiles import EvalFile, check_tree, write_tree

HEAD = "import torch\n\n"

CASES = {
    "elements under two constants": """
def good_rows(x):
    s = torch.cuda.Stream()
    y = torch.zeros(2, 8, device="cuda")
    s.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(s):
        y[0].fill_(1.0)
    total = y[1].sum()
    torch.cuda.current_stream().wait_stream(s)
    return total

def bad_rows(x):
    s = torch.cuda.Stream()
    y = torch.zeros(2, 8, device="cuda")
    s.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(s):
        y[0].fill_(1.0)
    total = y[:1].sum()  # expect: SS101
    torch.cuda.current_stream().wait_stream(s)
    return total
""",
    "halves of the second dimension": """
def good_cols(x):
    s = torch.cuda.Stream()
    y = torch.zeros(8, 8, device="cuda")
    s.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(s):
        y[:, :4].fill_(1.0)
    t = y[:, 4:].sum()
    torch.cuda.current_stream().wait_stream(s)
    return t
""",
    "slices on both sides of a number that is not known": """
def good_locals(x: torch.Tensor, n: int):
    s = torch.cuda.Stream()
    a = x[:n]
    b = x[n:]
    s.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(s):
        a.fill_(1.0)
    t = b.sum()
    torch.cuda.current_stream().wait_stream(s)
    return t

def bad_locals(x: torch.Tensor, n: int):
    s = torch.cuda.Stream()
    a = x[:n]
    b = x[n - 1:]
    s.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(s):
        a.fill_(1.0)
    t = b.sum()  # expect: SS101
    torch.cuda.current_stream().wait_stream(s)
    return t
""",
    "an index of a view is none of the buffer": """
def bad_view(x: torch.Tensor):
    s = torch.cuda.Stream()
    v = x.view(4, -1)
    s.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(s):
        v[0].fill_(1.0)
    t = x[1].sum()  # expect: SS101
    torch.cuda.current_stream().wait_stream(s)
    return t

def bad_sub(x: torch.Tensor):
    s = torch.cuda.Stream()
    v = x[4:]
    s.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(s):
        v[0].fill_(1.0)
    t = x[4].sum()  # expect: SS101
    torch.cuda.current_stream().wait_stream(s)
    return t
""",
    "parts that calls name": """
def good_narrowed(x: torch.Tensor):
    s = torch.cuda.Stream()
    s.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(s):
        x.narrow(1, 0, 4).fill_(1.0)
    total = torch.narrow(x, 1, 4, 4).sum() + x.select(1, 6)
    torch.cuda.current_stream().wait_stream(s)
    return total

def bad_narrowed(x: torch.Tensor):
    s = torch.cuda.Stream()
    s.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(s):
        x.narrow(1, 0, 4).fill_(1.0)
    total = x.narrow(0, 4, 4).sum()  # expect: SS101
    torch.cuda.current_stream().wait_stream(s)
    return total

def bad_narrowed_part(x: torch.Tensor):
    s = torch.cuda.Stream()
    s.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(s):
        x[4:].narrow(0, 0, 2).fill_(1.0)
    total = x[4:6].sum()  # expect: SS101
    torch.cuda.current_stream().wait_stream(s)
    return total
""",
    "a part that is given to a function": """
def work(t):
    t.fill_(1.0)

def work0(t):
    t[0].fill_(1.0)

def good_helper(n):
    s = torch.cuda.Stream()
    x = torch.zeros(8, device="cuda")
    s.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(s):
        work(x[:4])
    t = x[4:].sum()
    torch.cuda.current_stream().wait_stream(s)
    return t

def bad_helper(n):
    s = torch.cuda.Stream()
    x = torch.zeros(8, device="cuda")
    s.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(s):
        work0(x[4:])
    t = x[4].sum()  # expect: SS101
    torch.cuda.current_stream().wait_stream(s)
    return t
""",
    "views that are kept in a container": """
def bad_list(n):
    s = torch.cuda.Stream()
    x = torch.zeros(8, device="cuda")
    vs = [x[4:], x[:4]]
    s.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(s):
        vs[0][0].fill_(1.)
    t = x[4].sum()  # expect: SS101
    torch.cuda.current_stream().wait_stream(s)
    return t
""",
    "the part of pinned memory that no copy writes": """
def good_host(d):
    h = torch.zeros(64, pin_memory=True)
    h[:32].copy_(d[:32].cuda(), non_blocking=True)
    n = h.numpy()
    n[32:] = 1
    torch.cuda.synchronize()
    return h
""",
}


@pytest.mark.parametrize("name", CASES)
def test_what_is_shown(name: str, tmp_path: Path) -> None:
    text = HEAD + CASES[name]
    write_tree(tmp_path, {"module.py": text})
    found = check_tree(tmp_path).get("module.py", [])
    assert not EvalFile(tmp_path / "module.py", text).disagreements(found)
