"""A kernel of a C++ extension, which no hook sees, and what is to be said of it.

    streamsafe run examples/annotate/cuda_extension.py            # no hazard
    streamsafe run examples/annotate/cuda_extension.py --no-wait  # SS101

Needs a GPU and CUDA's compiler (nvcc).
"""

import sys

import torch
from torch.utils.cpp_extension import load_inline

import streamsafe

CUDA = """
#include <ATen/cuda/CUDAContext.h>

__global__ void scale_kernel(float* out, const float* x, float by, int64_t n) {
  int64_t i = blockIdx.x * int64_t(blockDim.x) + threadIdx.x;
  if (i < n) out[i] = x[i] * by;
}

void scale(torch::Tensor out, torch::Tensor x, double by) {
  const int64_t n = x.numel();
  scale_kernel<<<(n + 255) / 256, 256, 0, at::cuda::getCurrentCUDAStream()>>>(out.data_ptr<float>(), x.data_ptr<float>(), float(by), n);
}
"""


def scale(extension, out, x, by):
    """``out = x * by``, by a kernel of our own on the current stream."""
    streamsafe.annotate.access("scale", reads=[x], writes=[out])  # before the launch, which the report then stops
    extension.scale(out, x, by)


def main(wait):
    extension = load_inline(
        "scale", ["void scale(torch::Tensor out, torch::Tensor x, double by);"], [CUDA], functions=["scale"]
    )
    side = torch.cuda.Stream()
    x = torch.arange(1 << 20, dtype=torch.float32, device="cuda")
    out = torch.empty_like(x)
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        scale(extension, out, x, 3.0)
    if wait:
        torch.cuda.current_stream().wait_stream(side)
    total = out.sum()
    print(total.item() == x.sum().item() * 3.0)


if __name__ == "__main__":
    main("--no-wait" not in sys.argv)
