// What torch calls for CUDA tensors only: the gates of recurrent cells, written
// with operators that every device has.
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/zeros_like.h>
#include <torch/library.h>

#include <optional>
#include <tuple>
#include <vector>

namespace {

at::Tensor biased(const at::Tensor& gates, const std::optional<at::Tensor>& bias) {
  return bias && bias->defined() ? gates + *bias : gates;
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> lstm_cell(const at::Tensor& input, const at::Tensor& hidden, const at::Tensor& cell,
                                                         const std::optional<at::Tensor>& b1, const std::optional<at::Tensor>& b2) {
  auto gates = biased(input, b1) + biased(hidden, b2);
  auto part = gates.chunk(4, 1);
  auto in = part[0].sigmoid(), forget = part[1].sigmoid(), update = part[2].tanh(), out = part[3].sigmoid();
  auto next = forget * cell + in * update;
  return {out * next.tanh(), next, at::cat(std::vector<at::Tensor>{in, forget, update, out}, 1)};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> lstm_cell_backward(const std::optional<at::Tensor>& grad_h,
                                                                  const std::optional<at::Tensor>& grad_c, const at::Tensor& cell,
                                                                  const at::Tensor& next, const at::Tensor& workspace, bool has_bias) {
  auto part = workspace.chunk(4, 1);
  auto &in = part[0], &forget = part[1], &update = part[2], &out = part[3];
  auto t = next.tanh();
  auto gh = grad_h && grad_h->defined() ? *grad_h : at::zeros_like(next);
  auto gc = (grad_c && grad_c->defined() ? *grad_c : at::zeros_like(next)) + gh * out * (1 - t * t);
  auto gates = at::cat(std::vector<at::Tensor>{gc * update * in * (1 - in), gc * cell * forget * (1 - forget), gc * in * (1 - update * update),
                        gh * t * out * (1 - out)}, 1);
  return {gates, gc * forget, has_bias ? gates.sum(0) : at::Tensor()};
}

std::tuple<at::Tensor, at::Tensor> gru_cell(const at::Tensor& input, const at::Tensor& hidden, const at::Tensor& state,
                                            const std::optional<at::Tensor>& b1, const std::optional<at::Tensor>& b2) {
  auto x = biased(input, b1).chunk(3, 1), h = biased(hidden, b2).chunk(3, 1);
  auto reset = (x[0] + h[0]).sigmoid(), update = (x[1] + h[1]).sigmoid(), next = (x[2] + reset * h[2]).tanh();
  return {next + update * (state - next), at::cat(std::vector<at::Tensor>{reset, update, next, state, h[2]}, 1)};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor> gru_cell_backward(const at::Tensor& grad, const at::Tensor& workspace,
                                                                                         bool has_bias) {
  auto part = workspace.chunk(5, 1);
  auto &reset = part[0], &update = part[1], &next = part[2], &state = part[3], &h = part[4];
  auto g_next = grad * (1 - update) * (1 - next * next), g_update = grad * (state - next) * update * (1 - update);
  auto g_reset = g_next * h * reset * (1 - reset);
  auto gx = at::cat(std::vector<at::Tensor>{g_reset, g_update, g_next}, 1), gh = at::cat(std::vector<at::Tensor>{g_reset, g_update, g_next * reset}, 1);
  return {gx, gh, grad * update, has_bias ? gx.sum(0) : at::Tensor(), has_bias ? gh.sum(0) : at::Tensor()};
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, CUDA, library) {
  library.impl("_thnn_fused_lstm_cell", lstm_cell);
  library.impl("_thnn_fused_lstm_cell_backward_impl", lstm_cell_backward);
  library.impl("_thnn_fused_gru_cell", gru_cell);
  library.impl("_thnn_fused_gru_cell_backward", gru_cell_backward);
}
