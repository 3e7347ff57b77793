// Copies of torch's: when the host waits for one, and what runs on which stream when it goes from one device to another.
#pragma once
#include "pinned.hpp"

namespace streamsafe {

inline bool non_blocking_of(const Operator& op, const torch::jit::Stack& stack, size_t base) {
  if (op.non_blocking < 0) return false;
  const auto& value = stack[base + size_t(op.non_blocking)];
  return value.isBool() && value.toBool();
}

// Whether a copy from the host to new device memory, and not a conversion on the device, is the last that an operator
// enqueues (Copy.cu: copy_requires_temporaries). Types are converted on the host.
inline bool ends_in_copy(const at::Tensor& source, const at::Tensor& result) {
  if (result.layout() != c10::kStrided || source.layout() != c10::kStrided || result.is_contiguous()) return true;
  return source.scalar_type() == result.scalar_type() && source.is_non_overlapping_and_dense() && source.strides() == result.strides();
}

// A blocking copy from the host ends in a wait for its stream: what it returns is complete (TM-02, TM-04, TM-10).
inline void know_complete(const Operator& op, const Seen& arguments, const Seen& results, const at::Tensor& source,
                          const at::Tensor& result, uint32_t site) {
  if (!op.makes_copy || !arguments.device.uses.empty() || results.device.uses.empty() || !ends_in_copy(source, result)) return;
  State& state = shared_state();
  const Queue queue = queue_now(results.index);
  const Key thread = state.thread();
  Lock guard(state.core.mutex);
  Timeline& line = state.line(queue.device, queue.handle);
  if (!line.capture) state.core.synchronize_stream(line, thread, site);
}

// A copy between two devices: on the source's stream, which first waits for the other device's, and then has it wait (TG-02).
struct Peers {
  Queue source{-1, 0}, target{-1, 0};

  explicit operator bool() const { return source.device >= 0; }

  // Of an operator whose arguments are on several devices.
  static Peers of(const Operator& op, const Seen& seen) {
    Peers found;
    if (!op.copy || !seen.several) return found;
    int from = -1, to = -1;
    for (const Use& use : seen.device.uses) {
      int& device = use.mode == Mode::writes ? to : from;
      if (device >= 0 && device != use.space) return found;
      device = use.space;
    }
    if (from < 0 || to < 0 || from == to) return found;
    return between(from, to);
  }
  static Peers between(int from, int to) {
    Peers found;
    found.source = queue_now(from);
    found.target = queue_now(to);
    return found;
  }

  void begin(uint32_t site) const { order(target, source, site); }
  void end(uint32_t site) const { order(source, target, site); }

 private:
  static void order(const Queue& first, const Queue& then, uint32_t site) {
    State& state = shared_state();
    const Key thread = state.thread();
    Lock guard(state.core.mutex);
    state.core.record(BETWEEN_STREAMS, state.line(first.device, first.handle), thread, site);
    state.core.wait(state.line(then.device, then.handle), BETWEEN_STREAMS, thread, site, false, true);
    state.stash();
  }
};

}  // namespace streamsafe
