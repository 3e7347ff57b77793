// Generators of "cuda": a seed and an offset, which each operator that draws numbers moves on.
#include "device.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/EmptyTensor.h>
#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <c10/util/Exception.h>

#include <cstring>
#include <random>

namespace simulated {

using Locked = std::lock_guard<std::recursive_mutex>;

// A CUDA generator: a seed and an offset, which each operator moves on. The numbers come from a CPU generator made of both.
struct DeviceGenerator final : c10::GeneratorImpl {
  std::shared_ptr<Numbers> numbers = std::make_shared<Numbers>();

  explicit DeviceGenerator(DeviceIndex device)
      : GeneratorImpl(c10::Device(c10::kCUDA, device), c10::DispatchKeySet(c10::DispatchKey::CUDA)) {}
  void set_current_seed(uint64_t seed) override { *numbers = {seed, 0}; }
  void set_offset(uint64_t offset) override {
    TORCH_CHECK(offset % 4 == 0, "offset must be a multiple of 4");
    numbers->offset = offset;
  }
  uint64_t get_offset() const override { return numbers->offset; }
  uint64_t current_seed() const override { return numbers->seed; }
  uint64_t seed() override {
    std::random_device random;
    set_current_seed((uint64_t(random()) << 32 | random()) & 0x1FFFFFFFFFFFFF);
    return numbers->seed;
  }
  void set_state(const c10::TensorImpl& state) override {
    TORCH_CHECK_TYPE(state.dtype() == caffe2::TypeMeta::Make<uint8_t>() && state.device_type() == c10::kCPU, "RNG state must be a torch.ByteTensor");
    TORCH_CHECK(state.numel() == sizeof(Numbers) || state.numel() == sizeof(uint64_t), "RNG state is wrong size");
    Numbers read;
    std::memcpy(&read, state.data(), size_t(state.numel()));
    *numbers = read;
  }
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override {
    at::Tensor state = at::detail::empty_cpu({int64_t(sizeof(Numbers))}, at::kByte);
    std::memcpy(state.mutable_data_ptr(), numbers.get(), sizeof(Numbers));
    return state.getIntrusivePtr();
  }
  void graphsafe_set_state(const c10::intrusive_ptr<c10::GeneratorImpl>& state) override {
    auto* other = dynamic_cast<DeviceGenerator*>(state.get());
    TORCH_CHECK(other != nullptr, "Expected a CUDA generator");
    numbers = other->numbers;
  }
  c10::intrusive_ptr<c10::GeneratorImpl> graphsafe_get_state() const override {
    auto made = c10::make_intrusive<DeviceGenerator>(device().index());
    made->numbers = numbers;
    return made;
  }
  DeviceGenerator* clone_impl() const override {
    auto* made = new DeviceGenerator(device().index());
    *made->numbers = *numbers;
    return made;
  }
};

// A generator of "cuda" has no index, as in the CUDA build.
at::Generator make_generator(DeviceIndex device) {
  return at::make_generator<DeviceGenerator>(device);
}

at::Generator& default_generator(DeviceIndex device) {
  static auto* made = new std::map<DeviceIndex, at::Generator>;
  if (device < 0) device = current_device();
  Locked locked(lock());
  auto& found = (*made)[device];
  if (!found.defined()) found = make_generator(device);
  return found;
}

at::Generator numbers_of(const at::Generator& generator, DeviceIndex device) {
  const at::Generator& used = generator.defined() ? generator : default_generator(device);
  auto* ours = dynamic_cast<DeviceGenerator*>(used.unsafeGetGeneratorImpl());
  if (ours == nullptr) return used;
  Locked locked(lock());
  Capture* capture = capture_of(current_queue(device));
  bool known = capture == nullptr || !generator.defined() || capture->generators.count(ours) ||
               ours == default_generator(device).unsafeGetGeneratorImpl();
  TORCH_CHECK(known, "Attempt to increase offset for a CUDA generator not in capture mode.");
  Numbers& numbers = *ours->numbers;
  if (capture != nullptr) capture->offsets.emplace(ours->numbers, numbers.offset);
  uint64_t mixed = numbers.seed + numbers.offset * 0x9E3779B97F4A7C15;  // as SplitMix64
  mixed = (mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9;
  numbers.offset += 4;
  return at::detail::createCPUGenerator(mixed ^ (mixed >> 27));
}

}  // namespace simulated

EXPORTED void streamsafe_simulated_use_default_generator(int device, void* generator) {
  simulated::default_generator(simulated::DeviceIndex(device)) = at::Generator(
      c10::intrusive_ptr<c10::GeneratorImpl>::reclaim_copy(static_cast<c10::GeneratorImpl*>(generator)));
}
