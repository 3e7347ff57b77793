"""A CuPy pipeline on two streams; the second stage starts before the first has finished."""

import cupy

load = cupy.cuda.Stream(non_blocking=True)
work = cupy.cuda.Stream(non_blocking=True)


def main(rounds=3, n=1 << 16):
    total = cupy.zeros(n, dtype=cupy.float32)
    cupy.cuda.Device().synchronize()
    for _ in range(rounds):
        with load:
            chunk = cupy.arange(n, dtype=cupy.float32)
        with work:
            total += chunk * 2  # `work` never waits for `load`
    work.synchronize()
    return total


if __name__ == "__main__":
    print("total:", main().shape)
