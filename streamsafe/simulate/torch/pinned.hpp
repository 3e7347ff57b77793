// Pinned memory: blocks of powers of two. One that a copy uses is freed behind an event of the copy's stream.
#pragma once

#include "device.h"
#include "statistics.hpp"

#include <c10/core/Allocator.h>
#include <c10/util/Exception.h>

#include <cstdlib>
#include <cstring>

namespace simulated {

using Locked = std::lock_guard<std::recursive_mutex>;

namespace {

// What torch.cuda.host_memory_stats() tells, in its order.
enum HostKind { ActiveRequests, ActiveHostBytes, HostBlocks, HostBytes, HOST_KINDS };
Stat host_stats[HOST_KINDS];

auto& pinned = forever<std::map<uintptr_t, size_t>>();  // live blocks, and what cudaHostRegister was asked for
auto& free_pinned = forever<std::map<size_t, std::vector<void*>>>();
auto& pinned_uses = forever<std::map<uintptr_t, std::set<Queue>>>();  // of live blocks
auto& pinned_events = forever<std::vector<std::pair<void*, DeviceIndex>>>();

void free_pinned_block(void* address) {
  std::set<Queue> queues;
  {
    Locked locked(lock());
    auto used = pinned_uses.find(reinterpret_cast<uintptr_t>(address));
    if (used != pinned_uses.end()) {
      queues = std::move(used->second);
      pinned_uses.erase(used);
    }
  }
  for (Queue queue : queues) {
    void* event = record_event_on(queue);
    Locked locked(lock());
    pinned_events.emplace_back(event, queue.first);
  }
  Locked locked(lock());
  auto found = pinned.find(reinterpret_cast<uintptr_t>(address));
  if (found == pinned.end()) return;
  free_pinned[found->second].push_back(address);
  host_stats[ActiveRequests].add(-1);
  host_stats[ActiveHostBytes].add(-int64_t(found->second));
  pinned.erase(found);
}

void process_pinned_events() {  // what they wait for is done
  std::vector<std::pair<void*, DeviceIndex>> events;
  {
    Locked locked(lock());
    events.swap(pinned_events);
  }
  for (auto& [event, device] : events) destroy_event(event, device);
}

struct PinnedAllocator final : c10::Allocator {
  c10::DataPtr allocate(size_t wanted) override {
    if (wanted == 0) return {nullptr, nullptr, &free_pinned_block, c10::kCPU};
    process_pinned_events();
    Locked locked(lock());
    size_t size = 512;
    while (size < wanted) size *= 2;
    auto& free = free_pinned[size];
    void* address;
    if (free.empty()) {
      address = std::aligned_alloc(4096, std::max(size, size_t(4096)));
      TORCH_CHECK(address != nullptr, "CUDA error: out of memory");
      host_stats[HostBlocks].add(1);
      host_stats[HostBytes].add(int64_t(size));
    } else {
      address = free.back();
      free.pop_back();
    }
    host_stats[ActiveRequests].add(1);
    host_stats[ActiveHostBytes].add(int64_t(size));
    pinned[reinterpret_cast<uintptr_t>(address)] = size;
    return {address, address, &free_pinned_block, c10::kCPU};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &free_pinned_block; }
  void copy_data(void* to, const void* from, size_t count) const override { std::memcpy(to, from, count); }
};
PinnedAllocator pinned_allocator;

}  // namespace
}  // namespace simulated
