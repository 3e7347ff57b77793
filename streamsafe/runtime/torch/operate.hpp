// The boxed fallback that sees every operator before its kernel. Composite operators pass through, so that what they call
// is seen; of any other operator only the operator itself is. What it reads and writes is given to the core before it
// runs (a blocking copy synchronizes inside), its new results after it.
#pragma once
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <map>
#include "backward.hpp"
#include "captured.hpp"
#include "copies.hpp"
#include "modes.hpp"
#include "indexed_parts.hpp"
#include "retired_places.hpp"

namespace streamsafe {

inline c10::DispatchKeySet below(c10::DispatchKeySet keys) { return keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, KEY); }

// On the device's current stream, for each device that takes part.
inline void enqueue_all(Seen& seen, uint32_t operation, uint32_t site, bool may_raise, Undo* undo = nullptr) {
  if (!seen.several) {
    const Queue queue = queue_now(seen.index);
    enqueue(&queue, seen.device, operation, site, may_raise, undo);
    return;
  }
  std::map<int, Uses> parts;
  for (size_t i = 0; i < seen.device.uses.size(); ++i) parts[seen.device.uses[i].space].add(seen.device.uses[i], seen.device.tensors[i]);
  for (auto& [device, touched] : parts) {
    const Queue queue = queue_now(device);
    enqueue(&queue, touched, operation, site, may_raise, undo);
  }
}

struct OperatorScope {
  ThreadState before = thread_state;
  OperatorScope(const Operator& op, uint32_t operation, uint32_t site, int device, KernelScope* kernel = nullptr) {
    thread_state.inside = &op;
    thread_state.operation = operation;
    thread_state.site = site;
    thread_state.device = device;
    thread_state.kernel = kernel;
    thread_state.collective = nullptr;
    thread_state.waited = false;
  }
  ~OperatorScope() { thread_state = before; }
};

// Vectors that are used again and again; an operator may run inside another.
struct Scratch {
  static constexpr size_t DEEP = 8;
  Seen seen[DEEP];
  Undo undo[DEEP];
  size_t depth = 0;
};
inline thread_local Scratch scratch;

struct Borrowed {
  Seen own, *seen;
  Undo its, *undo;
  Borrowed() : seen(&own), undo(&its) {
    if (scratch.depth < Scratch::DEEP) {
      seen = &scratch.seen[scratch.depth];
      undo = &scratch.undo[scratch.depth];
    }
    ++scratch.depth;
    seen->clear();
    undo->clear();
  }
  ~Borrowed() { --scratch.depth; }
};

// What an operator touches of the host's memory, the host touches.
inline void do_by_host(Seen& seen, uint32_t operation, uint32_t site) {
  if (seen.cpu.uses.empty()) return;
  keep_known(seen.cpu);
  if (!seen.cpu.uses.empty() && shared_state().host) enqueue(nullptr, seen.cpu, operation, site);
}

// What the thread found where it could not raise; what other threads found is theirs.
inline void raise_pending() {
  State& state = shared_state();
  if (!state.pending.exchange(false)) return;
  struct Left {
    State& state;
    ~Left() {
      Lock guard(state.core.mutex);
      if (!state.stashed.empty()) state.pending = true;
    }
  } left{state};
  std::vector<Report> reports;
  {
    Lock guard(state.core.mutex);
    const Addr own = State::thread_number();
    auto others = std::stable_partition(state.stashed.begin(), state.stashed.end(), [&](auto& each) { return each.first == own; });
    for (auto it = state.stashed.begin(); it != others; ++it) reports.push_back(std::move(it->second));
    state.stashed.erase(state.stashed.begin(), others);
  }
  judge(reports, 0, nullptr, true);
}

// A result in an argument's memory is that argument, whatever the schema says.
inline void drop_given(Uses& results, const Uses& arguments) {
  if (results.uses.size() > 8 || arguments.uses.size() > 64) return;
  size_t kept = 0;
  for (size_t i = 0; i < results.uses.size(); ++i) {
    bool given = false;
    for (const Use& use : arguments.uses) given = given || (use.start == results.uses[i].start && use.stop == results.uses[i].stop);
    if (given) continue;
    results.uses[kept] = results.uses[i];
    results.tensors[kept++] = results.tensors[i];
  }
  results.uses.resize(kept);
  results.tensors.resize(kept);
}

// An operator on wrapper subclasses is one on what they hold. It counts once it is done: in it there may be waits, and
// what the host has waited for in it is over.
inline void operate_on_subclasses(const Operator& op, const c10::OperatorHandle& handle, c10::DispatchKeySet keys, torch::jit::Stack* stack, Seen& seen) {
  State& state = shared_state();
  const std::vector<std::pair<at::Tensor, Role>> wrappers = std::move(seen.subclasses);
  see_held(seen, wrappers);
  uint32_t operation = op.id, site = 0;
  const uint64_t waits = state.counters.synchronizations;
  name_operation(op, operation, site);
  const at::Tensor source = op.makes_copy ? (*stack)[stack->size() - op.argument_count].toTensor() : at::Tensor();
  const bool waiting = op.makes_copy && !non_blocking_of(op, *stack, stack->size() - op.argument_count);
  KernelScope kernel{&seen.device, {}, true};
  {
    OperatorScope scope(op, operation, site, seen.index, &kernel);
    handle.redispatchBoxed(below(keys), stack);
  }
  Borrowed made;
  const size_t first = stack->size() - op.result_count;
  for (const auto& result : op.results) see(*made.seen, (*stack)[first + result.index], result.role);
  const std::vector<std::pair<at::Tensor, Role>> results = std::move(made.seen->subclasses);
  see_held(*made.seen, results);
  drop_given(made.seen->device, seen.device);
  kernel.drop_from(made.seen->device);
  kernel.drop_from(seen.device);
  state.counters.operators.fetch_add(1, std::memory_order_relaxed);
  for (Seen* each : {&seen, made.seen}) {
    if (each->device.uses.empty() || (each == &seen && state.counters.synchronizations != waits)) continue;
    state.counters.uses.fetch_add(each->device.uses.size(), std::memory_order_relaxed);
    enqueue_all(*each, operation, site, true);
  }
  if (waiting && (*stack)[first].isTensor()) know_complete(op, seen, *made.seen, source, (*stack)[first].toTensor(), site);
}

// The host has waited inside an operator, for an index or a size: what it writes is written after that.
inline void write_again(Seen& seen, uint32_t operation, uint32_t site) {
  State& state = shared_state();
  const Queue queue = queue_now(seen.index);
  const Key thread = state.thread();
  std::vector<Use> written;
  for (const Use& use : seen.device.uses)
    if (use.mode == Mode::writes) written.push_back(use);
  Lock guard(state.core.mutex);
  state.core.access(state.line(queue.device, queue.handle), written.data(), written.size(), operation, site, thread, true);
}

inline void operate(const c10::OperatorHandle& handle, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  State& state = shared_state();
  if (!state.on.load(std::memory_order_relaxed)) {
    c10::impl::ExcludeDispatchKeyGuard exclude(KEY);  // what it calls need not come here
    handle.redispatchBoxed(below(keys), stack);
    return;
  }
  const Operator& op = state.table.of(handle, [&](const std::string& name) { return state.intern(name); });
  if (op.skip || op.pass) {
    handle.redispatchBoxed(below(keys), stack);
    return;
  }
  Borrowed borrowed;
  Seen& seen = *borrowed.seen;
  Undo& undo = *borrowed.undo;
  const size_t base = stack->size() - op.argument_count;
  for (const auto& argument : op.arguments) {
    if (op.chosen == argument.index) see_chosen(op, *stack, base, seen, argument.role);
    else see(seen, (*stack)[base + argument.index], argument.role);
  }
  if (!op.own && !seen.device.uses.empty()) doubt_parts(*stack, base, op, seen);
  if (seen.wrapped) {  // functorch's call comes back with what its wrappers hold
    if (seen.subclasses.empty()) handle.redispatchBoxed(below(keys), stack);
    else operate_on_subclasses(op, handle, keys, stack, seen);
    return;
  }
  if (state.pending.load(std::memory_order_relaxed)) raise_pending();
  if (state.sites.due()) retire_places();
  state.counters.operators.fetch_add(1, std::memory_order_relaxed);
  uint32_t operation = op.id, site = 0;
  Uses by_stream;
  if (!seen.device.uses.empty() || !seen.cpu.uses.empty() || op.copy || !op.results.empty()) name_operation(op, operation, site);
  if (op.copy && state.host) see_copy(op, *stack, base, seen, by_stream);
  if (state.capturing.load(std::memory_order_relaxed)) {
    if (!site) name_operation(op, operation, site);
    if (captures && !seen.device.uses.empty()) refuse_beside(seen, operation, site);
    if (!seen.device.uses.empty()) refuse_wait(op, *stack, base, seen, operation, site);
    if (op.generator >= 0) refuse_generator(op, *stack, base, operation, site);
    if (!by_stream.uses.empty()) refuse_host_work(by_stream, seen.index);
    else if (seen.device.uses.empty()) note_host_write(op, *stack, base, operation, site);
  }
  do_by_host(seen, operation, site);
  for (size_t i = 0; i < by_stream.uses.size(); ++i) seen.device.add(by_stream.uses[i], by_stream.tensors[i]);
  const bool device = !seen.device.uses.empty();
  const bool peers_capture = state.capturing.load(std::memory_order_relaxed);
  Peers peers = peers_capture ? Peers() : Peers::of(op, seen);
  if (device) {
    state.counters.uses.fetch_add(seen.device.uses.size(), std::memory_order_relaxed);
    if (op.collective) {
      // before it is enqueued: what the current stream does not come after, the collective's does not either
      const Queue queue = queue_now(seen.index);
      const Key thread = state.thread();
      std::vector<Report> reports;
      {
        Lock guard(state.core.mutex);
        if (!state.core.check(state.line(queue.device, queue.handle), seen.device.uses.data(), seen.device.uses.size(), operation, site, thread))
          reports = take_reports(state.core);
      }
      if (!reports.empty()) judge(reports, operation, &seen.device, true);
    } else if (peers) {
      peers.begin(site);
      enqueue(&peers.source, seen.device, operation, site, true, &undo);
    } else {
      enqueue_all(seen, operation, site, true, &undo);
    }
  }
  if (at::GradMode::is_enabled()) remember_forward(site);
  const at::Tensor source = op.makes_copy && (*stack)[base].isTensor() ? (*stack)[base].toTensor() : at::Tensor();
  const bool from_host = source.defined() && source.is_cpu();
  const bool non_blocking = op.copy && non_blocking_of(op, *stack, base);
  if (op.collective && device) {
    Collective collective{&seen.device, operation, site, queue_now(seen.index)};
    {
      OperatorScope scope(op, operation, site, seen.index);
      thread_state.collective = &collective;
      c10::impl::ExcludeDispatchKeyGuard exclude(KEY);
      handle.redispatchBoxed(below(keys), stack);
    }
    if (!collective.on) {
      Lock guard(state.core.mutex);
      collective.begin(state.line(collective.queue.device, collective.queue.handle), state.thread());
    }
    if (!collective.reports.empty()) judge(collective.reports, operation, &seen.device, true);
    return;
  }
  KernelScope kernel{&seen.device, {}};
  try {
    Handled handled(handle, seen.device);
    OperatorScope scope(op, operation, site, seen.index, &kernel);
    if (op.own) {
      c10::impl::ExcludeDispatchKeyGuard exclude(KEY);
      handle.redispatchBoxed(below(keys), stack);
    } else {
      handle.redispatchBoxed(below(keys), stack);
    }
    if (handled.in_vain()) {
      revoke(undo);
      return;
    }
    if (thread_state.waited && device && op.own && !op.copy && !op.only_reads) write_again(seen, operation, site);
  } catch (...) {
    revoke(undo);
    throw;
  }
  if (peers) peers.end(site);
  if (thread_state.kernel) thread_state.kernel->written.insert(thread_state.kernel->written.end(), kernel.written.begin(), kernel.written.end());
  if (op.results.empty()) return;
  const size_t first = stack->size() - op.result_count;
  Borrowed made;
  for (const auto& result : op.results) see(*made.seen, (*stack)[first + result.index], result.role);
  if (made.seen->wrapped) return;
  const bool returns_memory = !made.seen->device.uses.empty();
  drop_given(made.seen->device, seen.device);
  if (op.own && op.only_reads && returns_memory && made.seen->device.uses.empty()) revoke(undo);  // a view, whatever the schema says
  kernel.drop_from(made.seen->device);
  if (!made.seen->device.uses.empty()) {
    if (!site) name_operation(op, operation, site);
    state.counters.uses.fetch_add(made.seen->device.uses.size(), std::memory_order_relaxed);
    if (op.makes_copy && seen.index >= 0 && made.seen->index != seen.index && !peers_capture) {
      peers = Peers::between(seen.index, made.seen->index);
      peers.begin(site);
      enqueue(&peers.source, made.seen->device, operation, site);
      peers.end(site);
    } else {
      enqueue_all(*made.seen, operation, site, true);
    }
    if (from_host && !non_blocking && (*stack)[first].isTensor())
      know_complete(op, seen, *made.seen, source, (*stack)[first].toTensor(), site);
  }
  if (!state.host) return;
  if (op.makes_copy && !from_host && (*stack)[first].isTensor()) {
    const at::Tensor& copy = (*stack)[first].toTensor();
    if (non_blocking && copy.is_cpu() && copy.numel() && copy.is_pinned()) {  // the copy of a device tensor (TM-05)
      know(copy, true, site);
      Seen its;
      see(its, copy, Role::write);
      const Queue queue = queue_now(seen.index);
      if (!its.cpu.uses.empty()) enqueue(&queue, its.cpu, operation, site);
    }
    return;
  }
  if (state.host_blocks.load(std::memory_order_relaxed))
    for (const auto& result : op.results) forget_host(seen, (*stack)[first + result.index]);
}

// A hook packs a tensor that an operator saves for the backward pass, inside the operator's kernel. What the hook calls is
// seen; the operator's result that it gets was written before it. Returns whether `pack_ends` is due.
inline bool pack_begins(const at::Tensor& saved) {
  State& state = shared_state();
  if (!state.on) return false;
  if (thread_state.kernel) {
    Seen its;
    see(its, saved, Role::write);
    const std::vector<std::pair<at::Tensor, Role>> wrappers = std::move(its.subclasses);
    see_held(its, wrappers);
    thread_state.kernel->drop_given_from(its.device);
    thread_state.kernel->drop_from(its.device);
    if (!its.device.uses.empty()) enqueue_all(its, thread_state.operation, thread_state.site, true);
  }
  if (!c10::impl::tls_is_dispatch_key_excluded(KEY)) return false;
  c10::impl::tls_set_dispatch_key_excluded(KEY, false);
  return true;
}

inline void pack_ends() { c10::impl::tls_set_dispatch_key_excluded(KEY, true); }

}  // namespace streamsafe
