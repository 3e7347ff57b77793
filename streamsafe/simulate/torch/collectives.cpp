// Collectives on device tensors: the process group's CPU backend (gloo) runs them on the same bytes.
#include "device.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/util/Exception.h>
#include <torch/library.h>

#include <vector>

namespace simulated {
namespace {

// A CPU tensor over a device tensor's bytes, which it keeps: a collective may end after its caller has let go of them.
at::Tensor keeping(const at::Tensor& tensor) {
  void* bytes = tensor.storage().mutable_data();
  c10::DataPtr data(bytes, new at::Tensor(tensor), [](void* kept) { delete static_cast<at::Tensor*>(kept); }, c10::kCPU);
  c10::Storage storage(c10::Storage::use_byte_size_t(), tensor.storage().nbytes(), std::move(data), nullptr, false);
  auto made = at::detail::make_tensor<c10::TensorImpl>(std::move(storage), c10::DispatchKeySet(c10::DispatchKey::CPU), tensor.dtype());
  made.unsafeGetTensorImpl()->set_storage_offset(tensor.storage_offset());
  made.unsafeGetTensorImpl()->set_sizes_and_strides(tensor.sizes(), tensor.strides());
  return made;
}

struct Collective {
  std::vector<std::pair<at::Tensor, at::Tensor>> pairs;  // device, CPU

  at::Tensor down(const at::Tensor& tensor) {
    if (!tensor.defined() || !tensor.is_cuda()) return tensor;
    for (auto& [device, cpu] : pairs)
      if (device.is_same(tensor)) return cpu;
    pairs.emplace_back(tensor, keeping(tensor));
    return pairs.back().second;
  }
  at::Tensor up(const at::Tensor& tensor) {
    for (auto& [device, cpu] : pairs)
      if (cpu.is_same(tensor)) return device;
    return tensor;
  }

  template <class Change>
  static c10::IValue changed(const c10::IValue& value, Change change) {
    if (value.isTensor()) return change(value.toTensor());
    if (value.isTensorList()) {
      std::vector<at::Tensor> made;
      for (const at::Tensor& each : value.toTensorVector()) made.push_back(change(each));
      return made;
    }
    if (!value.isList() || value.toListRef().empty() || !value.toListRef()[0].isTensorList()) return value;
    std::vector<std::vector<at::Tensor>> lists;
    for (const c10::IValue& list : value.toListRef()) {
      lists.emplace_back();
      for (const at::Tensor& each : list.toTensorVector()) lists.back().push_back(change(each));
    }
    return lists;
  }
};

void collective(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  Collective call;
  size_t count = op.schema().arguments().size(), first = stack->size() - count;
  for (size_t i = first; i < stack->size(); ++i)
    (*stack)[i] = Collective::changed((*stack)[i], [&](const at::Tensor& tensor) { return call.down(tensor); });
  op.callBoxed(stack);
  size_t results = op.schema().returns().size();
  for (size_t i = stack->size() - results; i < stack->size(); ++i)
    (*stack)[i] = Collective::changed((*stack)[i], [&](const at::Tensor& tensor) { return call.up(tensor); });
}

struct Quiet final : c10::WarningHandler {
  void process(const c10::Warning&) override {}
};

// In place of what a CPU build has for CUDA: that calls the backend of CUDA tensors, which gloo's cannot read.
void run_on_cpu() {
  static auto* library = new torch::Library(torch::Library::IMPL, "c10d", c10::DispatchKey::CUDA, __FILE__, __LINE__);
  Quiet quiet;
  c10::WarningUtils::WarningHandlerGuard guard(&quiet);  // each replaces a kernel
  auto& dispatcher = c10::Dispatcher::singleton();
  for (const c10::OperatorName& name : dispatcher.getAllOpNames()) {
    auto op = name.name.rfind("c10d::", 0) == 0 ? dispatcher.findSchema(name) : std::nullopt;
    if (op && op->hasKernelForDispatchKey(c10::DispatchKey::CUDA))
      library->impl(name.name.substr(6).c_str(), torch::CppFunction::makeFromBoxedFunction<&collective>());
  }
}

}  // namespace
}  // namespace simulated

// From now on; asked for when a process has its first group of gloo for the device.
EXPORTED void streamsafe_simulated_collectives_on_cpu() {
  [[maybe_unused]] static const bool once = (simulated::run_on_cpu(), true);
}
