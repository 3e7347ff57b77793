// Host memory that copies use: pinned tensors take part from their first asynchronous copy on.
#pragma once
#include "tensors.hpp"

namespace streamsafe {

// Of the CPU tensors an operator touches, those whose memory copies use; the others go.
inline void keep_known(Uses& cpu) {
  State& state = shared_state();
  Lock guard(state.core.mutex);
  size_t kept = 0;
  for (size_t i = 0; i < cpu.uses.size(); ++i) {
    if (!state.core.any_block(HOST_SPACE, cpu.uses[i].start, cpu.uses[i].stop)) continue;
    cpu.uses[kept] = cpu.uses[i];
    cpu.tensors[kept++] = cpu.tensors[i];
  }
  cpu.uses.resize(kept);
  cpu.tensors.resize(kept);
}

// Pinned memory takes part from its first asynchronous copy on. `again`: it is new memory, whatever was there before.
inline void know(const at::Tensor& tensor, bool again, uint32_t site) {
  State& state = shared_state();
  const auto& storage = tensor.storage();
  const Addr base = reinterpret_cast<Addr>(storage.data());
  const Addr size = storage.nbytes();
  if (!base || !size) return;
  Lock guard(state.core.mutex);
  const Block* block = state.core.block_at(HOST_SPACE, base);
  if (block && !again) return;
  if (again) state.core.release_block(HOST_SPACE, base, size);
  state.core.allocate(HOST_SPACE, base, size, nullptr, Owner::pinned, site, 0, false, 0);
  ++state.host_blocks;
}

inline bool is_known(const at::Tensor& tensor) {
  State& state = shared_state();
  if (!state.host_blocks) return false;
  Lock guard(state.core.mutex);
  return state.core.block_at(HOST_SPACE, reinterpret_cast<Addr>(tensor.storage().data()));
}

// One tensor of a copy between host and device, and how the copy treats it.
enum class HostSide { unseen, by_stream, by_host };

inline HostSide side_of(const at::Tensor& tensor, bool non_blocking) {
  if (!tensor.defined() || !tensor.has_storage() || !tensor.numel() || !tensor.storage().data()) return HostSide::unseen;
  const bool known = is_known(tensor);
  if (!known && !(non_blocking && tensor.is_pinned())) return HostSide::unseen;  // pageable memory is staged (TM-03)
  if (!known) know(tensor, false, 0);
  // what is not contiguous goes through a temporary of the host's (TM-16, TM-17)
  return tensor.is_contiguous() ? HostSide::by_stream : HostSide::by_host;
}

// The CPU tensors of a copy operator; whatever else an operator does with them the host does.
inline void see_copy(const Operator& op, const torch::jit::Stack& stack, size_t base, Seen& seen, Uses& by_stream) {
  const bool non_blocking = op.non_blocking >= 0 && stack[base + size_t(op.non_blocking)].isBool() && stack[base + size_t(op.non_blocking)].toBool();
  const bool elsewhere = op.device >= 0 && stack[base + size_t(op.device)].isDevice() && stack[base + size_t(op.device)].toDevice().is_cuda();
  if (seen.device.uses.empty() && !elsewhere) return;  // between tensors of the host
  auto one = [&](const at::Tensor& tensor, Role role) {
    if (!tensor.defined() || !tensor.is_cpu()) return;
    const HostSide side = side_of(tensor, non_blocking);
    if (side == HostSide::unseen) return;
    Seen its;
    see(its, tensor, role);
    for (size_t i = 0; i < its.cpu.uses.size(); ++i) {
      if (side == HostSide::by_stream) by_stream.add(its.cpu.uses[i], its.cpu.tensors[i]);
      else seen.cpu.add(its.cpu.uses[i], its.cpu.tensors[i]);
    }
  };
  seen.cpu.clear();
  for (const auto& argument : op.arguments) {
    const auto& value = stack[base + argument.index];
    if (value.isTensor()) one(value.toTensor(), argument.role);
    else if (value.isTensorList())
      for (const auto& each : value.toListRef()) one(each.toTensor(), argument.role);
  }
}

// New host memory where copies once used some: torch's pinned pool waits for them before it gives it out again (TM-13).
inline void forget_host(const Seen& arguments, const c10::IValue& value) {
  if (value.isList()) {
    for (const auto& each : value.toListRef()) forget_host(arguments, each);
    return;
  }
  if (!value.isTensor()) return;
  const at::Tensor& tensor = value.toTensor();
  if (!tensor.defined() || !tensor.is_cpu() || !tensor.has_storage()) return;
  const Addr base = reinterpret_cast<Addr>(tensor.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl()->_mutable_data_ptr_no_checks().get());
  for (const Use& use : arguments.cpu.uses)
    if (use.start == base) return;  // an argument
  State& state = shared_state();
  Lock guard(state.core.mutex);
  const Block* block = base ? state.core.block_at(HOST_SPACE, base) : nullptr;
  if (block) state.core.release_block(HOST_SPACE, block->start, block->stop - block->start);
}

}  // namespace streamsafe
