"""Which functions are worth analysing: those that order, the methods beside them, and those that name one of them."""

from __future__ import annotations

import ast

from streamsafe.static.models.load import library_models
from streamsafe.static.syntax.index import Index
from streamsafe.static.syntax.relevance import Relevance

SOURCE = """
import torch

class Feed:
    def __init__(self):
        self.side = torch.cuda.Stream()
    def fill(self, x):
        self.buffer = x + 1
    def to(self, where):
        return self.buffer
    def wait_for_it(self):
        torch.cuda.current_stream().wait_stream(self.side)

def unnamed_flag(x):
    return x.to("cpu", torch.float, True)

def caller(feed):
    feed.wait_for_it()

def callers_caller(feed):
    # a comment that says stream
    return caller(feed)

def arithmetic(x):
    return x * 2

def moves(feed: Feed):
    return feed.to("cpu")

def speaks_of_a_stream(x):
    "a stream"  # non_blocking
    return arithmetic(x)

seven = arithmetic(3.5)  # stream
"""


def relevance() -> Relevance:
    models = library_models()
    index = Index(models.libraries, known=models.knows)
    assert index.add("/m.py", (ast.parse(SOURCE), SOURCE.encode())) is not None
    return Relevance(
        index, models.order_words(), models.flag_positions(), ["m"], methods=models.method_words()
    )


def test_seeds_name_what_orders() -> None:
    assert relevance().seeds == {"m:Feed.__init__", "m:Feed.wait_for_it", "m:unnamed_flag"}


def test_what_a_function_leaves_concerns_the_methods_that_name_its_fields_and_those_that_name_it() -> None:
    by_name = {"m:caller"}
    assert relevance().beside({"m:Feed.wait_for_it": ()}) == by_name
    by_field = {"m:Feed.fill", "m:Feed.to"}
    assert relevance().beside({"m:Feed.wait_for_it": ("buffer",)}) == by_name | by_field
    assert relevance().beside({"m:caller": ()}) == {"m:callers_caller"}
    assert relevance().beside({"m:Feed.to": ()}) >= {"m:moves"}
    assert not relevance().beside({"m:arithmetic": ()}) & {"m:caller", "m:moves"}


def test_a_module_body_is_a_seed_when_its_statements_order() -> None:
    assert relevance().bodies == set()
    assert relevance().beside({"m:arithmetic": ()}) >= {"m:<module>"}
