// What an operation is called and where it is: one of a backward pass is done by backward(), for a node of the forward.
#pragma once
#include <ATen/SequenceNumber.h>
#include <ATen/record_function.h>
#include <torch/csrc/autograd/function.h>
#include <cstring>
#include "state.hpp"

namespace streamsafe {

// Where the forward of a backward node was, for the last ones: by its thread and its sequence number, of which each thread
// has its own.
constexpr size_t REMEMBERED = 1 << 16;
inline std::atomic<uint64_t> forward_sites[REMEMBERED];

inline uint64_t forward_key(uint64_t thread, uint64_t number) { return number + thread * 0x9E3779B97F4A7C15ull; }

inline void remember_forward(uint32_t site) {
  const uint64_t key = forward_key(at::RecordFunction::currentThreadId(), at::sequence_number::peek());
  forward_sites[key % REMEMBERED].store(key << 32 | site, std::memory_order_relaxed);
}

inline uint32_t forward_site(const torch::autograd::Node& node) {
  const uint64_t key = forward_key(node.thread_id(), node.sequence_nr());
  const uint64_t entry = forward_sites[key % REMEMBERED].load(std::memory_order_relaxed);
  return (entry >> 32) == (key & 0xffffffff) ? uint32_t(entry) : 0;
}

// The id and the place of an operation: the engine's work is done by backward(), at the line that calls it.
inline void name_operation(const Operator& op, uint32_t& operation, uint32_t& site) {
  State& state = shared_state();
  operation = op.id;
  site = state.sites.capture();
  const Backward* backward = backward_now();
  if (!backward) return;
  const bool by_hook = site && site != backward->site;  // a line of a hook, or of a Function's own backward
  if (by_hook) {
    const auto node = torch::autograd::get_current_node();
    if (!node) return;
    const torch::autograd::Node& made = *node;
    if (!std::strstr(typeid(made).name(), "PyNode")) return;
  } else {
    site = backward->site;
  }
  std::string name;
  uint32_t forward = 0;
  static thread_local std::unordered_map<uint64_t, uint32_t> known;
  static thread_local uint32_t epoch = 0;
  if (epoch != state.sites.epoch()) {
    epoch = state.sites.epoch();
    known.clear();
  }
  uint64_t key = op.id * 2 + by_hook + (by_hook ? uint64_t(backward->site) * 0x9E3779B97F4A7C15ull : 0);
  if (const auto node = torch::autograd::get_current_node()) {
    forward = forward_site(*node);
    key ^= typeid(*node).hash_code() * 31 + (uint64_t(forward) << 32);
    auto found = known.find(key);
    if (found != known.end()) {
      operation = found->second;
      return;
    }
    name = node->name();
  } else {
    key ^= 0x5bd1e995;
    auto found = known.find(key);
    if (found != known.end()) {
      operation = found->second;
      return;
    }
  }
  operation = known[key] = state.intern_backward(op.id, by_hook ? op.name : "backward()", name, forward, by_hook ? backward->site : 0);
}

}  // namespace streamsafe
