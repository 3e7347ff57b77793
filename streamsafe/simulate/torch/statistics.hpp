// What the allocator counts, and the history of what it did.
#pragma once

#include "device.h"

#include <algorithm>
#include <chrono>
#include <deque>

namespace simulated {
namespace {

// What torch.cuda.memory_stats() tells, in its order; each for all blocks, those of small pools, those of large ones.
enum Kind { Allocation, Segment, Active, Split, AllocatedBytes, ReservedBytes, ActiveBytes, SplitBytes, RequestedBytes, KINDS };
struct Stat {
  int64_t current = 0, peak = 0, allocated = 0, freed = 0;

  void add(int64_t by) {
    current += by;
    peak = std::max(peak, current);
    (by > 0 ? allocated : freed) += by > 0 ? by : -by;
  }
};
struct Counts {
  Stat stats[KINDS][3];
  int64_t retries = 0, out_of_memory = 0, driver_allocations = 0, driver_frees = 0;
  double fraction = 1;
} counts[MOST_DEVICES];
size_t capacity = size_t(8) << 30;

// The history of torch.cuda.memory._record_memory_history(): entries by number; frames are the listener's.
struct Entry {
  int64_t number, action, device, address, size, stream, microseconds;
};
enum Action { Allocated, FreeRequested, FreeCompleted, SegmentAllocated, SegmentFreed, OutOfMemory };
bool history = false;
size_t most_entries = 0;
int64_t next_entry = 1;
auto& entries = forever<std::deque<Entry>>();
void (*listener)(int64_t first, int64_t last) = nullptr;

int64_t note(Action action, DeviceIndex device, uintptr_t address, size_t size, uintptr_t stream) {
  if (!history) return 0;
  auto time = std::chrono::system_clock::now().time_since_epoch();
  entries.push_back({next_entry, action, device, int64_t(address), int64_t(size), int64_t(stream),
                     std::chrono::duration_cast<std::chrono::microseconds>(time).count()});
  while (entries.size() > most_entries) entries.pop_front();
  return next_entry++;
}

}  // namespace
}  // namespace simulated
