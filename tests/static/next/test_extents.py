"""Parts of one buffer: what touches different parts is no pair, and what may touch the same part is one."""

from __future__ import annotations

import pathlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamsafe.static.domain.atoms import Path
from streamsafe.static.domain.extents import Extent, Interval, apart, lasting
from tests.static.evalfiles import EvalFile, check_tree, write_tree

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
    "parts of a field, and another name of one of them": """
class K:
    def __init__(self):
        self.buf = torch.zeros(2, 8, device="cuda")
        self.s = torch.cuda.Stream()
        self.half = self.buf[1:]
    def good_a(self):
        with torch.cuda.stream(self.s):
            self.buf[0].fill_(1)
    def use(self):
        return self.buf[1].sum()

class B:
    def __init__(self):
        self.buf = torch.zeros(2, 8, device="cuda")
        self.s = torch.cuda.Stream()
        self.half = self.buf[1:]
    def a(self):
        with torch.cuda.stream(self.s):
            self.half[0].fill_(1)  # expect: SS102
    def use(self):
        return self.buf[1].sum()  # expect: SS101
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
    "rows of a loop, and rows that are unpacked": """
def bad_enum(n):
    s = torch.cuda.Stream()
    x = torch.zeros(8, 8, device="cuda")
    s.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(s):
        for i, r in enumerate(x):
            r[0].fill_(1.)
    t = x[4].sum()  # expect: SS101
    torch.cuda.current_stream().wait_stream(s)
    return t

def good_unpack(n):
    s = torch.cuda.Stream()
    x = torch.zeros(2, 8, device="cuda")
    a, b = x
    s.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(s):
        a.fill_(1.)
    t = b.sum()
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
    "a copy from pinned memory that goes through the host, since its elements do not lie together": """
def good_t():
    host = torch.zeros(8, 8, pin_memory=True)
    dev = host.t().to("cuda", non_blocking=True)
    host.fill_(1.0)
    return dev

def good_T(dev):
    host = torch.zeros(8, 8, pin_memory=True)
    v = host.T
    d = v.cuda(non_blocking=True)
    host.fill_(1.0)
    return d

def good_cols(dev):
    host = torch.zeros(8, 8, pin_memory=True)
    d = host[:, :4].cuda(non_blocking=True)
    host.fill_(1.0)
    return d

def good_permute(dev):
    host = torch.zeros(8, 8, pin_memory=True)
    d = torch.empty(8, 8, device="cuda")
    d.copy_(host.permute(1, 0), non_blocking=True)
    host.fill_(1.0)
    return d

def bad_rows(dev):
    host = torch.zeros(8, 8, pin_memory=True)
    d = host[:4].cuda(non_blocking=True)
    host.fill_(1.0)  # expect: SS302
    return d

def bad_view(dev):
    host = torch.zeros(8, 8, pin_memory=True)
    d = host.view(-1).cuda(non_blocking=True)
    host.fill_(1.0)  # expect: SS302
    return d

def bad_elem(dev):
    host = torch.zeros(8, 8, pin_memory=True)
    d = host[2, :4].cuda(non_blocking=True)
    host.fill_(1.0)  # expect: SS302
    return d
""",
}

ENDS = st.integers(0, 6)
INTERVALS = st.one_of(st.none(), st.tuples(ENDS, st.one_of(st.none(), ENDS)))
REGIONS = st.lists(INTERVALS, max_size=2).map(tuple)


@given(REGIONS, REGIONS)
def test_parts_that_are_apart_have_no_element_in_common(one: Extent, other: Extent) -> None:
    assert apart(one, other) is apart(other, one)
    if apart(one, other):
        assert not elements(one) & elements(other)


def elements(extent: Extent) -> set[tuple[int, int]]:
    """The elements of a extent of a buffer of 7 by 7."""
    rows, columns = (set(range(7)) if n >= len(extent) else along(extent[n]) for n in range(2))
    return {(row, column) for row in rows for column in columns}


def along(part: Interval | None) -> set[int]:
    if part is None:
        return set(range(7))
    begin, end = part
    assert isinstance(begin, int)
    assert not isinstance(end, Path)
    return set(range(begin, 7 if end is None else end))


@given(REGIONS)
def test_constant_parts_mean_the_same_in_every_call(extent: Extent) -> None:
    assert lasting(extent) == extent


@pytest.mark.parametrize("name", CASES)
def test_what_is_shown(name: str, tmp_path: pathlib.Path) -> None:
    text = HEAD + CASES[name]
    write_tree(tmp_path, {"module.py": text})
    found = check_tree(tmp_path, "--engine", "next", "--no-cache").get("module.py", [])
    assert not EvalFile(tmp_path / "module.py", text).disagreements(found)
