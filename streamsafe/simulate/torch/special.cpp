// What torch calls for CUDA tensors only, written with operators that every device has: the gates of recurrent cells,
// dropout with the device's generator, the parts of a batch norm that several processes share, and matrix products
// of mixed types and of four-bit weights.
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/var_mean.h>
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

std::tuple<at::Tensor, at::Tensor> dropout(const at::Tensor& input, double p, std::optional<bool> train) {
  auto flags = input.options().dtype(at::kBool);
  if (!train.value_or(true)) return {input.clone(), at::ones_like(input, flags)};
  auto mask = at::empty_like(input, flags).bernoulli_(1 - p);
  return {input * mask * (p == 1 ? 0 : 1 / (1 - p)), mask};
}

// -- batch norm over the dimensions but the second; statistics are float or wider ------------------------------------------

std::vector<int64_t> others(const at::Tensor& input) {
  std::vector<int64_t> found{0};
  for (int64_t i = 2; i < input.dim(); ++i) found.push_back(i);
  return found;
}
at::Tensor wide(const at::Tensor& tensor) { return tensor.scalar_type() == at::kDouble ? tensor : tensor.to(at::kFloat); }
at::Tensor along(const at::Tensor& of_channels, const at::Tensor& input) {
  std::vector<int64_t> shape(size_t(input.dim()), 1);
  shape[1] = input.size(1);
  return wide(of_channels).reshape(shape);
}

std::tuple<at::Tensor, at::Tensor> norm_stats(const at::Tensor& input, double eps) {
  auto [variance, mean] = at::var_mean(wide(input), others(input), false);
  return {mean, (variance + eps).rsqrt()};
}

at::Tensor norm_elements(const at::Tensor& input, const std::optional<at::Tensor>& weight, const std::optional<at::Tensor>& bias,
                         const at::Tensor& mean, const at::Tensor& invstd, double) {
  auto made = (wide(input) - along(mean, input)) * along(invstd, input);
  if (weight && weight->defined()) made = made * along(*weight, input);
  if (bias && bias->defined()) made = made + along(*bias, input);
  return made.to(input.scalar_type());
}

std::tuple<at::Tensor, at::Tensor> norm_gather_counts(const at::Tensor& input, const at::Tensor& mean, const at::Tensor& invstd,
                                                      const std::optional<at::Tensor>& running_mean, const std::optional<at::Tensor>& running_var,
                                                      double momentum, double eps, const at::Tensor& counts) {
  auto weight = wide(counts).reshape({-1, 1});
  auto total = weight.sum();
  auto means = wide(mean).reshape({weight.size(0), -1});
  auto variances = wide(invstd).reshape({weight.size(0), -1}).pow(-2) - eps;
  auto all = (means * weight).sum(0) / total;
  auto variance = ((variances + (means - all).pow(2)) * weight).sum(0) / total;
  if (running_mean && running_mean->defined()) running_mean->mul_(1 - momentum).add_(all.to(running_mean->scalar_type()), momentum);
  if (running_var && running_var->defined())
    running_var->mul_(1 - momentum).add_((variance * total / (total - 1)).to(running_var->scalar_type()), momentum);
  return {all, (variance + eps).rsqrt()};
}

std::tuple<at::Tensor, at::Tensor> norm_gather(const at::Tensor& input, const at::Tensor& mean, const at::Tensor& invstd,
                                               const std::optional<at::Tensor>& running_mean, const std::optional<at::Tensor>& running_var,
                                               double momentum, double eps, int64_t count) {
  auto counts = at::ones_like(mean.reshape({mean.size(0), -1}).select(1, 0)) * double(count);
  return norm_gather_counts(input, mean, invstd, running_mean, running_var, momentum, eps, counts);
}

std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor> norm_backward_reduce(const at::Tensor& grad, const at::Tensor& input,
                                                                                const at::Tensor& mean, const at::Tensor& invstd,
                                                                                const std::optional<at::Tensor>&, bool, bool weight, bool bias) {
  auto sum = wide(grad).sum(others(input));
  auto product = (wide(grad) * (wide(input) - along(mean, input))).sum(others(input));
  return {sum, product, weight ? (product * wide(invstd)).to(input.scalar_type()) : at::Tensor(), bias ? sum.to(input.scalar_type()) : at::Tensor()};
}

at::Tensor norm_backward_elements(const at::Tensor& grad, const at::Tensor& input, const at::Tensor& mean, const at::Tensor& invstd,
                                  const std::optional<at::Tensor>& weight, const at::Tensor& sum, const at::Tensor& product, const at::Tensor& counts) {
  auto total = wide(counts).sum();
  auto made = wide(grad) - along(sum, input) / total -
              (wide(input) - along(mean, input)) * along(invstd, input).pow(2) * along(product, input) / total;
  made = made * along(invstd, input);
  if (weight && weight->defined()) made = made * along(*weight, input);
  return made.to(input.scalar_type());
}

// -- matrix products that give another type, and of four-bit weights ---------------------------------------------------------

at::Tensor mm_as(const at::Tensor& a, const at::Tensor& b, at::ScalarType type) { return a.to(type).mm(b.to(type)); }
at::Tensor bmm_as(const at::Tensor& a, const at::Tensor& b, at::ScalarType type) { return a.to(type).bmm(b.to(type)); }
at::Tensor addmm_as(const at::Tensor& self, const at::Tensor& a, const at::Tensor& b, at::ScalarType type, const at::Scalar& beta,
                    const at::Scalar& alpha) {
  return self.to(type).addmm(a.to(type), b.to(type), beta, alpha);
}
at::Tensor baddbmm_as(const at::Tensor& self, const at::Tensor& a, const at::Tensor& b, at::ScalarType type, const at::Scalar& beta,
                      const at::Scalar& alpha) {
  return self.to(type).baddbmm(a.to(type), b.to(type), beta, alpha);
}

// The order that tensor cores take (native/cuda/int4mm.cu): tiles of 8 rows and 16 columns, spread over 32 threads, of which
// each has 8 numbers of two tiles in 32 bits: the even columns of both in the low half, the odd ones in the high half.
at::Tensor pack_int4(const at::Tensor& self, int64_t inner) {
  TORCH_CHECK(self.dim() == 2 && self.scalar_type() == at::kByte, "_convert_weight_to_int4pack: self must be a 2-D uint8 tensor");
  TORCH_CHECK(inner == 2 || inner == 4 || inner == 8, "innerKTiles need to be 2, 4, or 8");
  int64_t n = self.size(0), k = self.size(1) * 2;
  TORCH_CHECK(n % 8 == 0 && k % (inner * 16) == 0, "_convert_weight_to_int4pack: expect ", n, " to be divisible by 8 and ", k, " by ", inner * 16);
  auto numbers = at::stack({self.bitwise_right_shift(4), self.bitwise_and(15)}, -1);
  auto ordered = numbers.reshape({n / 8, 8, k / (inner * 16), inner / 2, 2, 2, 4, 2}).permute({0, 2, 1, 6, 3, 7, 4, 5});
  ordered = ordered.reshape({n / 8, k / (inner * 16), 32, inner / 2, 4, 2});
  auto bytes = ordered.select(-1, 0).bitwise_or(ordered.select(-1, 1).bitwise_left_shift(4));
  return bytes.contiguous().view(at::kInt).squeeze(-1);
}

at::Tensor unpack_int4(const at::Tensor& packed) {
  int64_t tiles = packed.size(0), outer = packed.size(1), pairs = packed.size(3);
  auto bytes = packed.contiguous().unsqueeze(-1).view(at::kByte);
  auto ordered = at::stack({bytes.bitwise_and(15), bytes.bitwise_right_shift(4)}, -1).reshape({tiles, outer, 8, 4, pairs, 2, 2, 2});
  return ordered.permute({0, 2, 1, 4, 6, 7, 3, 5}).reshape({tiles * 8, outer * pairs * 32});
}

at::Tensor mm_int4(const at::Tensor& self, const at::Tensor& packed, int64_t group, const at::Tensor& scales_and_zeros) {
  auto spread = scales_and_zeros.transpose(0, 1).to(at::kFloat).repeat_interleave(group, 1);
  auto weight = (unpack_int4(packed).to(at::kFloat) - 8) * spread.select(2, 0) + spread.select(2, 1);
  return self.mm(weight.to(self.scalar_type()).t());
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, CUDA, library) {
  library.impl("_thnn_fused_lstm_cell", lstm_cell);
  library.impl("_thnn_fused_lstm_cell_backward_impl", lstm_cell_backward);
  library.impl("_thnn_fused_gru_cell", gru_cell);
  library.impl("_thnn_fused_gru_cell_backward", gru_cell_backward);
  library.impl("native_dropout", dropout);
  library.impl("batch_norm_stats", norm_stats);
  library.impl("batch_norm_elemt", norm_elements);
  library.impl("batch_norm_gather_stats", norm_gather);
  library.impl("batch_norm_gather_stats_with_counts", norm_gather_counts);
  library.impl("batch_norm_backward_reduce", norm_backward_reduce);
  library.impl("batch_norm_backward_elemt", norm_backward_elements);
  library.impl("mm.dtype", mm_as);
  library.impl("bmm.dtype", bmm_as);
  library.impl("addmm.dtype", addmm_as);
  library.impl("baddbmm.dtype", baddbmm_as);
  library.impl("_convert_weight_to_int4pack", pack_int4);
  library.impl("_weight_int4pack_mm", mm_int4);
}
