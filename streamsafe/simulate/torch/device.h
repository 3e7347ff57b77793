// A simulated "cuda" for CPU builds of torch: what its parts know of each other.
//
// streams.cpp: devices, streams, events, captures. They speak to torch's GPU trace where the CUDA build does.
// memory.cpp:  the caching allocator, pinned memory, and the hooks by which torch asks whether there is CUDA.
// generators.cpp: generators. special.cpp: operators that only CUDA has. collectives.cpp: torch.distributed.
// kernels.cpp: one boxed kernel that runs every operator on the same bytes as CPU tensors, and the few that need more.
#pragma once

#include <c10/core/Allocator.h>
#include <c10/core/Device.h>
#include <c10/core/Stream.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#define EXPORTED extern "C" __attribute__((visibility("default")))

namespace simulated {

using c10::DeviceIndex;

constexpr int MOST_DEVICES = 16;

// A stream is known by its device and raw handle, as in CUDA: 0 is the default stream of its device.
using Queue = std::pair<DeviceIndex, uintptr_t>;
using PoolId = std::pair<uint64_t, uint64_t>;

// State that outlives everything: torch's tensors are released while the process ends, in no known order.
template <class T>
T& forever() {
  return *new T;
}

// One lock for all state of this library; operators compute outside it.
std::recursive_mutex& lock();

int device_count();
DeviceIndex current_device();
void set_current_device(DeviceIndex device);
Queue current_queue(DeviceIndex device);
// Makes a queue the current one of its device; gives the one before.
Queue exchange_queue(Queue to);
// The next stream of its device's pool.
Queue new_queue(DeviceIndex device);

// Events: recorded when made.
void* record_event_on(Queue queue);
void wait_for_event(void* event, Queue queue);
void destroy_event(void* event, DeviceIndex device);

// Where a generator of "cuda" is: its numbers depend on these two alone, as Philox's do.
struct Numbers {
  uint64_t seed = 67280421310721, offset = 0;
};

// -- captures --------------------------------------------------------------------------------------------------------

enum class Mode { Global = 0, ThreadLocal = 1, Relaxed = 2 };

struct Capture {
  using Clock = std::map<Queue, uint64_t>;  // of each queue in the capture: how many of its nodes come before

  uint64_t id;
  Queue origin;
  Mode mode;
  uint64_t thread;
  PoolId pool;
  bool lost = false;
  std::map<Queue, Clock> queues;
  std::vector<std::function<void()>> nodes;
  std::map<void*, std::vector<char>> before;              // bytes that the capture's first run overwrote
  std::unordered_map<uintptr_t, size_t> allocated;        // from the private pool, while capturing
  std::set<const void*> generators;                       // registered: the default one, and what the program registers
  std::map<std::shared_ptr<Numbers>, uint64_t> offsets;   // where their numbers were before the capture
};

// The capture that a queue takes part in, or null.
Capture* capture_of(Queue queue);
// A node for the capture that the queue takes part in; nothing when it takes part in none.
void add_node(Queue queue, std::function<void()> node);

// -- what the host does ----------------------------------------------------------------------------------------------

// The host waits for a queue: fires the trace, is illegal in a capture, and warns or raises in the sync debug mode.
void host_waits(Queue queue);

// -- memory ----------------------------------------------------------------------------------------------------------

void* allocate_bytes(size_t size, DeviceIndex device);
bool is_pinned(const void* address);
// A copy on a queue uses pinned memory: torch's allocator records an event there when the memory is freed, if it knows
// the memory's context, or that a block begins at the address.
void use_pinned(const c10::DataPtr& memory, const void* address, Queue queue);
// record_stream() of a block.
void record_on_queue(void* address, Queue queue);

// -- collectives -------------------------------------------------------------------------------------------------------

// Waits until those that have been started are done.
void finish_collectives();

// -- errors ----------------------------------------------------------------------------------------------------------

// Runs something for Python: returns what went wrong, or null.
const char* attempt(const std::function<void()>& work);

}  // namespace simulated
