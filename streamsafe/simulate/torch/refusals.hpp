// What CUDA refuses of an operator that the CPU takes, and what it takes that the CPU refuses.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/util/Exception.h>

#include <cmath>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_set>

namespace simulated {
namespace {

// Operators that take tensors of several devices.
bool mixes_devices(const std::string& name) {
  static const char* const beginnings[] = {"aten::_foreach_", "aten::_fused_", "aten::_pack_padded_sequence", "aten::_ctc_loss", "aten::_use_",
                                           "aten::_nested", "aten::set_", "aten::_copy_from", "aten::_to_copy", "aten::resize_as_",
                                           "aten::pin_memory", "aten::_pin_memory", "aten::is_pinned", "aten::is_same_size", "aten::_cudnn_ctc"};
  if (name.rfind("aten::", 0) != 0) return true;
  for (const char* each : beginnings)
    if (name.rfind(each, 0) == 0) return true;
  return false;
}

// All tensors of an operator are on one device, but a CPU tensor without dimensions, and indices, which may be the CPU's.
void check_devices(const c10::FunctionSchema& schema, c10::ArrayRef<c10::IValue> arguments) {
  static const std::unordered_set<std::string_view> indexing{"aten::index", "aten::index_put", "aten::index_put_", "aten::_index_put_impl_",
                                                              "aten::_unsafe_index", "aten::_unsafe_index_put"};
  std::optional<c10::Device> first;
  auto check = [&](const at::Tensor& tensor, const c10::Argument& argument, bool is_index) {
    if (!tensor.defined() || !(tensor.is_cuda() || tensor.is_cpu())) return;
    bool written = argument.alias_info() != nullptr && argument.alias_info()->isWrite();
    if (tensor.is_cpu() && ((tensor.dim() == 0 && !written) || is_index)) return;
    if (!first) first = tensor.device();
    TORCH_CHECK(*first == tensor.device() || !is_index, "indices should be either on cpu or on the same device as the indexed tensor (", *first, ")");
    TORCH_CHECK(*first == tensor.device(), "Expected all tensors to be on the same device, but found at least two devices, ", *first,
                " and ", tensor.device(), "! (when checking argument for argument ", argument.name(), " in method wrapper_CUDA_",
                schema.name().substr(schema.name().find("::") + 2), ")");
  };
  bool indexes = indexing.count(schema.name());
  if (!indexes && mixes_devices(schema.name())) return;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const c10::Argument& argument = schema.arguments()[i];
    if (arguments[i].isTensor())
      check(arguments[i].toTensor(), argument, false);
    else if (arguments[i].isTensorList())
      for (const at::Tensor& each : arguments[i].toTensorVector()) check(each, argument, false);
    else if (arguments[i].isOptionalTensorList())
      for (const auto& each : arguments[i].toOptionalTensorVector())
        if (each) check(*each, argument, indexes);
  }
}

// Matrix products of integers: cuBLAS has none. It takes float8 matrices in multiples of 16.
void check_types(const std::string& name, c10::ArrayRef<c10::IValue> arguments) {
  static const std::unordered_set<std::string_view> products{"aten::mm", "aten::addmm", "aten::addmm_", "aten::bmm", "aten::baddbmm",
                                                              "aten::baddbmm_", "aten::addmv", "aten::addmv_", "aten::_addmm_activation"};
  if (name == "aten::_scaled_mm") {
    auto a = arguments[0].toTensor().sizes(), b = arguments[1].toTensor().sizes();
    if (a.size() != 2 || b.size() != 2) return;
    TORCH_CHECK(a[1] % 16 == 0, "Expected trailing dimension of mat1 to be divisible by 16 but got mat1 shape: (", a[0], "x", a[1], ").");
    TORCH_CHECK(b[0] % 16 == 0 && b[1] % 16 == 0, "mat2 shape (", b[0], "x", b[1], ") must be divisible by 16");
  }
  if (!products.count(name) || !arguments[0].isTensor()) return;
  auto type = arguments[0].toTensor().scalar_type();
  bool batched = name.find("bmm") != std::string::npos, vector = name.find("addmv") != std::string::npos;
  TORCH_CHECK_NOT_IMPLEMENTED(!c10::isIntegralType(type, true), '"', batched ? "baddbmm_cuda" : vector ? "addmv_impl_cuda" : "addmm_cuda",
                              "\" not implemented for '", c10::toString(type), "'");
}

// CUDA clamps half numbers by bounds of a wider type.
void widen_bounds(const std::string& name, c10::ArrayRef<c10::IValue> arguments, torch::jit::Stack* stack, size_t first) {
  if (name.rfind("aten::clamp", 0) != 0 || !arguments[0].isTensor() || arguments[0].toTensor().scalar_type() != at::kHalf) return;
  for (size_t i = 1; i < arguments.size(); ++i) {
    if (!arguments[i].isDouble() && !arguments[i].isInt()) continue;
    double bound = arguments[i].isDouble() ? arguments[i].toDouble() : double(arguments[i].toInt());
    if (std::abs(bound) > 65504) (*stack)[first + i] = c10::IValue(std::copysign(std::numeric_limits<double>::infinity(), bound));
  }
}

}  // namespace
}  // namespace simulated
