"""GPTQModel, TorchLinear._forward_streaming(): two streams share two buffers, and only one of them waits."""

import math

import torch
from own import SIMULATED, show, take

SIZE, ROWS = (256, 8) if SIMULATED else (4096, 1 << 15)

names = ["_forward_streaming", "_stream_dequantize_tile", "_stream_decode_qzeros", "_stream_g_idx_long"]
names += ["_device_cache_key", "_stream_get_dequant_stream", "_stream_get_workspace"]
PATH = "GPTQModel/gptqmodel/nn_modules/qlinear/torch.py"
_, *methods = take(PATH, "_right_shift_unpack", *[f"TorchLinear.{name}" for name in names], math=math)


class Linear(type("Methods", (), dict(zip(names, methods, strict=True)))):
    """A layer of four bits, with the attributes that its constructor makes."""

    def __init__(self, size):
        torch.manual_seed(0)
        self.in_features = self.out_features = size
        self.bits, self.pack_factor, self.maxq, self.dequant_dtype = 4, 8, 15, torch.int8
        shifts = torch.arange(0, 32, 4, dtype=torch.int32, device="cuda")
        self.wf_unsqueeze_zero, self.wf_unsqueeze_neg_one = shifts.reshape(1, 1, -1), shifts.reshape(1, -1, 1)
        top = 2**31 - 1
        self.qweight = torch.randint(top, (size // 8, size), dtype=torch.int32, device="cuda")
        self.qzeros = torch.randint(top, (size // 128 or 1, size // 8), dtype=torch.int32, device="cuda")
        self.scales = torch.rand(size // 128 or 1, size, device="cuda") / size
        self.g_idx = (torch.arange(size, device="cuda") // 128).int()
        self.bias = self.adapter = None
        self._stream_tile_cols, self._stream_double_buffers = 64 if SIMULATED else 512, 2
        self._zeros_cache = self._zeros_cache_state = None
        self._g_idx_long_cache = self._g_idx_long_cache_state = None
        self._stream_dequant_streams, self._stream_workspace = {}, {}


def in_order(layer, x):
    """The same with one stream."""
    layer._stream_dequant_streams = {0: torch.cuda.current_stream()}
    return layer._forward_streaming(x, (len(x), SIZE))


def run():
    x = torch.ones(ROWS, SIZE, device="cuda")
    right = in_order(Linear(SIZE), x)
    layer = Linear(SIZE)
    torch.cuda.synchronize()
    return layer._forward_streaming(x, (ROWS, SIZE)), right


show(run)
