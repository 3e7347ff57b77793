"""A custom all-reduce: a kernel on a stream of its own reads and writes the buffers of all devices (or of all parts of one).

    streamsafe run examples/annotate/all_reduce.py            # no hazard
    streamsafe run examples/annotate/all_reduce.py --no-wait  # SS101

Needs a GPU and CUDA's compiler (nvcc). With two GPUs that reach each other's memory the buffers lie on both.
"""

import sys

import torch
from torch.utils.cpp_extension import load_inline

import streamsafe

CUDA = """
#include <cuda_runtime.h>

__global__ void sum_kernel(float* a, float* b, int64_t n) {
  int64_t i = blockIdx.x * int64_t(blockDim.x) + threadIdx.x;
  if (i < n) a[i] = b[i] = a[i] + b[i];
}

void all_reduce(int64_t a, int64_t b, int64_t n, int64_t stream) {
  sum_kernel<<<(n + 255) / 256, 256, 0, reinterpret_cast<cudaStream_t>(stream)>>>(reinterpret_cast<float*>(a), reinterpret_cast<float*>(b), n);
}

bool reach(int64_t device, int64_t peer) {
  int can = 0;
  if (cudaDeviceCanAccessPeer(&can, int(device), int(peer)) != cudaSuccess || !can) return false;
  cudaSetDevice(int(device));
  const cudaError_t done = cudaDeviceEnablePeerAccess(int(peer), 0);
  cudaGetLastError();
  return done == cudaSuccess || done == cudaErrorPeerAccessAlreadyEnabled;
}
"""
CPP = "void all_reduce(int64_t a, int64_t b, int64_t n, int64_t stream); bool reach(int64_t device, int64_t peer);"


def all_reduce(library, buffers, stream):
    """The sum of the buffers, in each of them, by a kernel on ``stream``."""
    for buffer in buffers:  # the kernel begins after the work of each buffer's device
        stream.wait_stream(torch.cuda.current_stream(buffer.device))
    streamsafe.annotate.access("all_reduce", reads=buffers, writes=buffers, stream=stream)
    first, second = buffers
    library.all_reduce(first.data_ptr(), second.data_ptr(), first.numel(), stream.cuda_stream)


def main(wait):
    library = load_inline("all_reduce", [CPP], [CUDA], functions=["all_reduce", "reach"])
    two = torch.cuda.device_count() > 1 and library.reach(0, 1)
    devices = ["cuda:0", "cuda:1" if two else "cuda:0"]
    torch.cuda.set_device(0)
    stream = torch.cuda.Stream()
    buffers = [torch.full((1 << 20,), float(rank + 1), device=device) for rank, device in enumerate(devices)]
    all_reduce(library, buffers, stream)
    if wait:
        for device in set(devices):
            torch.cuda.current_stream(device).wait_stream(stream)
    sums = [buffer.sum() for buffer in buffers]
    print([total.item() == 3.0 * (1 << 20) for total in sums])


if __name__ == "__main__":
    main("--no-wait" not in sys.argv)
