// What a capture forbids, or would not repeat when its graph is launched.
#pragma once
#include "pinned.hpp"

namespace streamsafe {

// Inside a capture the host must not wait: said before CUDA loses the capture.
inline void refuse_wait(const Operator& op, const torch::jit::Stack& stack, size_t base, const Seen& seen, uint32_t operation, uint32_t site) {
  bool waits = op.synchronizes && (op.unless < 0 || stack[base + size_t(op.unless)].isNone());
  if (op.copy && !waits) {
    const auto& flag = op.non_blocking >= 0 ? stack[base + size_t(op.non_blocking)] : stack[base];
    const bool non_blocking = flag.isBool() && flag.toBool();
    bool host = false;
    for (const auto& argument : op.arguments)
      if (stack[base + argument.index].isTensor()) {
        const at::Tensor& tensor = stack[base + argument.index].toTensor();
        host = host || (tensor.defined() && tensor.is_cpu() && tensor.dim());
      }
    if (op.device >= 0 && stack[base + size_t(op.device)].isDevice()) host = host || stack[base + size_t(op.device)].toDevice().is_cpu();
    waits = host && !non_blocking;
  }
  if (!waits) return;
  State& state = shared_state();
  const Queue queue = queue_now(seen.index);
  std::vector<Report> reports;
  {
    Lock guard(state.core.mutex);
    if (state.core.synchronizes(state.line(queue.device, queue.handle), operation, site)) return;
    reports = take_reports(state.core);
  }
  judge(reports, operation, nullptr, true);
}

// Of a capture: what would not be repeated when the graph is launched.
inline void refuse_unrepeated(Violation which, int device, uint32_t operation, uint32_t site) {
  State& state = shared_state();
  const Queue queue = queue_now(device);
  std::vector<Report> reports;
  {
    Lock guard(state.core.mutex);
    if (state.core.refuses(which, state.line(queue.device, queue.handle), operation, site)) return;
    reports = take_reports(state.core);
  }
  judge(reports, operation, nullptr, true);
}

// Work on a stream that was not forked from the capturing one, once for each stream (GM-side_launch).
inline void refuse_beside(const Seen& seen, uint32_t operation, uint32_t site) {
  State& state = shared_state();
  const Queue queue = queue_now(seen.index);
  std::vector<Report> reports;
  {
    Lock guard(state.core.mutex);
    Timeline& line = state.line(queue.device, queue.handle);
    if (state.beside.count(line.id) || state.core.enqueues_beside(line, operation, site)) return;
    state.beside.insert(line.id);
    reports = take_reports(state.core);
  }
  judge(reports, operation, nullptr, true);
}

// Numbers are drawn from a generator that the graph does not keep (GM-gen_unreg).
inline void refuse_generator(const Operator& op, const torch::jit::Stack& stack, size_t base, uint32_t operation, uint32_t site) {
  const auto& value = stack[base + size_t(op.generator)];
  if (!value.isGenerator()) return;
  const at::Generator generator = value.toGenerator();
  if (!generator.defined() || generator.device().type() != c10::DeviceType::CUDA) return;
  State& state = shared_state();
  {
    Lock guard(state.core.mutex);
    if (state.generators.count(generator.unsafeGetGeneratorImpl())) return;
  }
  refuse_unrepeated(Violation::generator, generator.device().index(), operation, site);
}

// The host writes pinned memory, once; a captured copy reads it at each launch (GC-03, GC-19).
inline void note_host_write(const Operator& op, const torch::jit::Stack& stack, size_t base, uint32_t operation, uint32_t site) {
  for (const auto& argument : op.arguments) {
    if (argument.role != Role::write || !stack[base + argument.index].isTensor()) continue;
    const at::Tensor& tensor = stack[base + argument.index].toTensor();
    if (!tensor.defined() || !tensor.is_cpu() || !tensor.has_storage() || !tensor.numel() || !tensor.is_pinned()) continue;
    const Addr start = reinterpret_cast<Addr>(tensor.const_data_ptr());
    Lock guard(shared_state().core.mutex);
    shared_state().written.push_back({start, start + Addr(tensor.storage().nbytes() - tensor.storage_offset() * tensor.itemsize()), operation, site});
  }
}
inline void refuse_host_work(const Uses& by_stream, int device) {
  State& state = shared_state();
  for (const Use& use : by_stream.uses) {
    if (use.mode != Mode::reads) continue;
    State::Written found{};
    {
      Lock guard(state.core.mutex);
      for (auto& each : state.written)
        if (each.start < use.stop && use.start < each.stop) found = each;
    }
    if (found.stop) refuse_unrepeated(Violation::host_work, device, found.operation, found.site);
  }
}

}  // namespace streamsafe
