// Device memory as torch hands it out: the caching allocator's trace, and an allocator in front of the allocator, which
// sees every record_stream and is where an operator can still be refused whose result takes a block that is in use.
#pragma once
#include "state.hpp"
#ifdef WITH_CUDA
#include <ATen/Context.h>
#include <c10/cuda/CUDACachingAllocator.h>
#endif
#include "gpu_trace.hpp"

namespace streamsafe {
namespace memory {

inline void handed_out(int device, Addr address, size_t size, Addr stream) {
  State& state = shared_state();
  see_older_thread();
  ++state.counters.allocations;
  const uint32_t site = Trace::place();
  const Key thread = state.thread();
  Lock guard(state.core.mutex);
  if (!state.recorded_before.empty()) state.recorded_before.erase(address);
  state.core.allocate(device, address, size, &state.line(device, stream), Owner::torch, site, 0, false, thread, &thread_state.leftover);
}

inline void given_back(int device, Addr address, size_t size, Addr stream) {
  State& state = shared_state();
  ++state.counters.frees;
  const uint32_t site = Trace::place();
  const Key thread = state.thread();
  Lock guard(state.core.mutex);
  Block* block = state.core.adopt(device, address, size, state.line(device, stream), Owner::torch);
  auto before = state.recorded_before.find(address);
  if (before != state.recorded_before.end()) {
    for (auto& line : before->second) block->recorded.push_back(line);
    state.recorded_before.erase(before);
  }
  state.core.free(device, address, site, thread);
}

inline void to_driver(int device, Addr address, size_t size) {
  State& state = shared_state();
  Lock guard(state.core.mutex);
  state.core.release_block(device, address, size);
}

inline void recorded(int device, Addr address, int stream_device, Addr stream) {
  State& state = shared_state();
  ++state.counters.recorded_streams;
  Lock guard(state.core.mutex);
  Timeline& line = state.line(stream_device, stream);
  if (state.core.block_at(device, address)) state.core.record_stream(device, address, line);
  else state.recorded_before[address].emplace_back(&line);
}

// The operator that runs will write a block that it was just given.
inline void will_write(int device, Addr address, size_t size) {
  thread_state.leftover = false;
  if (!thread_state.inside || thread_state.inside->fresh) return;
  Uses touched;
  Use use;
  use.space = device;
  use.start = address;
  use.stop = address + size;
  use.mode = Mode::writes;
  touched.add(use, nullptr);
  const Queue queue = queue_now(device);
  enqueue(&queue, touched, thread_state.operation, thread_state.site);
}

// For a simulated allocator; see extension.py.
inline void block_callback(uintptr_t address, size_t size, int device, uintptr_t stream, int what) {
  if (!shared_state().on.load(std::memory_order_relaxed)) return;
  switch (what) {
    case 0:
      handed_out(device, address, size, stream);
      if (thread_state.leftover) will_write(device, address, size);
      break;
    case 1:
      given_back(device, address, size, stream);
      break;
    case 2:
      recorded(device, address, device, stream);
      break;
    default:
      to_driver(device, address, size);
  }
}

}  // namespace memory
}  // namespace streamsafe

#ifdef WITH_CUDA
namespace c10::cuda::CUDACachingAllocator {

// Every method of the installed torch's interface passes on (forward.inc); two do more.
struct Front final : CUDAAllocator {
  CUDAAllocator* inner;
  explicit Front(CUDAAllocator* allocator) : inner(allocator) {}

  DataPtr allocate(size_t size) override {
    here_leftover() = false;
    DataPtr data = inner->allocate(size);
    if (here_leftover() && streamsafe::shared_state().on.load(std::memory_order_relaxed) && data.get())
      streamsafe::memory::will_write(data.device().index(), reinterpret_cast<streamsafe::Addr>(data.get()), size);
    return data;
  }
  using CUDAAllocator::recordStream;
  void recordStream(const DataPtr& data, CUDAStream stream) override {
    if (streamsafe::shared_state().on.load(std::memory_order_relaxed) && data.get())
      streamsafe::memory::recorded(data.device().index(), reinterpret_cast<streamsafe::Addr>(data.get()), stream.device_index(),
                                   reinterpret_cast<streamsafe::Addr>(stream.stream()));
    inner->recordStream(data, stream);
  }
#include "forward.inc"

 private:
  static bool& here_leftover() { return streamsafe::thread_state.leftover; }
};

}  // namespace c10::cuda::CUDACachingAllocator

namespace streamsafe {
namespace memory {

namespace caching = c10::cuda::CUDACachingAllocator;

inline void tracker(const caching::TraceEntry& entry) {
  if (!shared_state().on.load(std::memory_order_relaxed)) return;
  const Addr address = Addr(entry.addr_), stream = reinterpret_cast<Addr>(entry.stream_);
  switch (entry.action_) {
    case caching::TraceEntry::ALLOC:
      handed_out(entry.device_, address, entry.size_, stream);
      break;
    case caching::TraceEntry::FREE_REQUESTED:
      given_back(entry.device_, address, entry.size_, stream);
      break;
    case caching::TraceEntry::SEGMENT_FREE:
    case caching::TraceEntry::SEGMENT_UNMAP:
      to_driver(entry.device_, address, entry.size_);
      break;
    default:
      break;
  }
}

// Empty, or what is not seen of this allocator. CUDA must be initialized.
inline std::string attach() {
  static std::string problem;
  static bool done = false;
  if (done) return problem;
  done = true;
  at::globalContext().lazyInitDevice(c10::DeviceType::CUDA);  // before, there is no device allocator to attach to
  try {
    caching::attachAllocatorTraceTracker(tracker);
  } catch (const std::exception&) {
    problem = "PyTorch's allocator backend says nothing of frees: reused memory is found only when its address is given out again";
  }
  caching::allocator.store(new caching::Front(caching::get()));
  return problem;
}

}  // namespace memory
}  // namespace streamsafe
#else
namespace streamsafe::memory {
inline std::string attach() { return ""; }
}  // namespace streamsafe::memory
#endif
