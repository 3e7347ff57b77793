"""Python and NumPy, as far as order and memory go: what reads a device value waits for the current stream (TM-08)."""

from __future__ import annotations

from streamsafe.apis.effects import CLOCK, CURRENT, HOST, ONCE, VIEW, Call, each

READS: tuple[Call, ...] = (
    *each(
        "builtins",
        "print str repr format float bool int bytes bytearray sum max min any all",
        reads="*",
        result=HOST,
        waits=CURRENT,
        row="TM-08",
    ),
    *each("json pickle marshal", "dump dumps", reads="*", result=HOST, waits=CURRENT, row="TM-08"),
    *each("numpy", "asarray array save savez copyto", reads="*", result=HOST, waits=CURRENT, row="TM-08"),
    *each("os", "write writev pwrite pwritev", reads="*", row="TM-06"),
    *each("os", "readv preadv", writes="*", row="TM-01"),
    Call("builtins.memoryview", shape_of="*", result=VIEW),
)

THREADS: tuple[Call, ...] = (
    Call("threading.Thread.start", edge="thread <- HOST", row="TS-22"),
    Call("threading.Thread.join", edge="HOST <- self", row="TS-22"),
    *each("queue.Queue queue.SimpleQueue", "put put_nowait", edge="self <- HOST", row="TS-22"),
    *each("queue.Queue queue.SimpleQueue", "get get_nowait", edge="HOST <- self", row="TS-22"),
    Call("concurrent.futures.Executor.submit", edge="thread <- HOST", row="TS-22"),
    *each("concurrent.futures.Future", "result exception", edge="HOST <- self", row="TS-22"),
    *each("threading.Event", "set", edge="self <- HOST", row="TS-22"),
    *each("threading.Event", "wait", edge="HOST <- self", row="TS-22"),
)

CLOCKS: tuple[Call, ...] = (
    *each("time", "time time_ns perf_counter perf_counter_ns monotonic monotonic_ns", result=CLOCK),
    Call("timeit.default_timer", result=CLOCK),
    Call("datetime.datetime.now", result=CLOCK),
)

RANDOM = """random rand randn randint randrange random_sample uniform normal normalvariate gauss expovariate betavariate
    choice choices sample shuffle permutation standard_normal getrandbits triangular exponential poisson binomial"""

DRAWS: tuple[Call, ...] = (*each("random numpy.random", RANDOM, result=HOST, forbidden=ONCE, row="GC-03"),)
"""Draw on the host: a capture keeps one draw for every replay."""

ROWS: tuple[Call, ...] = (*READS, *THREADS, *CLOCKS, *DRAWS)
