// Memory: torch's caching allocator by its own rules (so that a program reuses the blocks that it would reuse on a GPU),
// and the hooks by which torch asks whether there is CUDA.
#include "device.h"
#include "pinned.hpp"
#include "statistics.hpp"

#include <ATen/core/Generator.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/Allocator.h>
#include <c10/core/StorageImpl.h>
#include <c10/core/impl/GPUTrace.h>
#include <c10/util/Exception.h>
#include <pthread.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>

namespace simulated {

at::Generator make_generator(DeviceIndex device);         // generators.cpp
at::Generator& default_generator(DeviceIndex device);     // generators.cpp

namespace {

// The rules of c10/cuda/CUDACachingAllocator: what is rounded to what, and when a block is split.
constexpr size_t ROUND = 512, SMALL = 1 << 20, SMALL_SEGMENT = 2 << 20, LARGE_SEGMENT = 20 << 20, OWN_SEGMENT = 10 << 20;

size_t round_up(size_t size, size_t unit) { return (size + unit - 1) / unit * unit; }

// Receives what happens to blocks; it may throw when one is handed out.
enum What { HandedOut = 0, GivenBack = 1, RecordedOn = 2, ToDriver = 3 };
using Observer = void (*)(uintptr_t address, size_t size, int device, uintptr_t stream, int what);
Observer observer = nullptr;

struct Pool;

struct Block {
  uintptr_t address;
  size_t size;
  Queue queue;
  Pool* pool;
  bool taken = false;
  size_t requested = 0;
  uint64_t made = 0;  // its entry of the history
  Block *before = nullptr, *after = nullptr;  // in its segment
  std::set<uintptr_t> used_on;
};

struct BySize {
  bool operator()(const Block* a, const Block* b) const {
    return std::tie(a->queue, a->size, a->address) < std::tie(b->queue, b->size, b->address);
  }
};

struct Pool {
  bool small;
  PoolId id{0, 0};
  std::set<Block*, BySize> free;
};

struct Pools {
  Pool small{true}, large{false};
  int users = 0;  // graphs and MemPool contexts; the default pools have none
};

auto& pools = forever<std::map<std::pair<DeviceIndex, PoolId>, Pools>>();
auto& taken = forever<std::unordered_map<uintptr_t, Block*>>();
auto& pending = forever<std::vector<Block*>>();  // freed, and recorded on other streams
auto& returned = forever<std::map<size_t, std::vector<uintptr_t>>>();   // segments given back to the driver: still mapped, for old graphs
auto& routed = forever<std::map<DeviceIndex, std::vector<std::pair<PoolId, uint64_t>>>>();  // use_mem_pool(): pool, thread (0: any)

void count(const Block& block, Kind kind, int64_t by) {
  for (int which : {0, block.pool->small ? 1 : 2}) counts[block.queue.first].stats[kind][which].add(by);
}
void count_split(const Block& block, int by) {
  if (block.before == nullptr && block.after == nullptr) return;
  count(block, Split, by), count(block, SplitBytes, by * int64_t(block.size));
}

int64_t note(Action action, const Block& block) {
  return note(action, block.queue.first, block.address, block.size, block.queue.second);
}

// A forked child of a process that has used CUDA cannot use it.
bool touched = false, forked = false;
[[maybe_unused]] const int watches_forks = pthread_atfork(nullptr, nullptr, [] { forked = touched; });

uint64_t this_thread() { return uint64_t(pthread_self()); }

PoolId pool_id(DeviceIndex device, Queue queue) {
  if (Capture* capture = capture_of(queue)) return capture->pool;
  for (auto entry = routed[device].rbegin(); entry != routed[device].rend(); ++entry)
    if (entry->second == 0 || entry->second == this_thread()) return entry->first;
  return {0, 0};
}

void tell(const Block& block, uintptr_t stream, What what) {
  if (observer != nullptr) observer(block.address, block.size, block.queue.first, stream, what);
}

Block* merged(Block* block) {
  for (Block* other : {block->before, block->after}) {
    if (other == nullptr || other->taken || other->pool == nullptr || !other->pool->free.erase(other)) continue;
    count_split(*other, -1);
    Block *first = other == block->before ? other : block, *second = other == block->before ? block : other;
    first->size += second->size;
    first->after = second->after;
    if (second->after != nullptr) second->after->before = first;
    delete second;
    block = first;
  }
  return block;
}

void make_free(Block* block) {
  count(*block, Active, -1);
  count(*block, ActiveBytes, -int64_t(block->size));
  count(*block, RequestedBytes, -int64_t(block->requested));
  note(FreeCompleted, *block);
  block->taken = false;
  block->used_on.clear();
  Pool* pool = block->pool;
  block = merged(block);
  count_split(*block, 1);
  pool->free.insert(block);
}

auto& segments = forever<std::map<uintptr_t, std::pair<size_t, DeviceIndex>>>();  // all that were ever mapped

uintptr_t segment(size_t size, DeviceIndex device) {
  auto& left = returned[size];
  if (!left.empty()) {
    uintptr_t address = left.back();
    left.pop_back();
    segments[address].second = device;
    return address;
  }
  constexpr size_t unit = 2 << 20;  // as cudaMalloc aligns segments
  void* mapped = mmap(nullptr, size + unit, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapped == MAP_FAILED) return 0;
  uintptr_t address = round_up(reinterpret_cast<uintptr_t>(mapped), unit);
  segments[address] = {size, device};
  return address;
}

void return_segments(DeviceIndex device);

bool fits(size_t whole, DeviceIndex device) {
  size_t reserved = size_t(counts[device].stats[ReservedBytes][0].current);
  return reserved + whole <= size_t(double(capacity) * counts[device].fraction);
}

// A block, or null where the device has no memory for it: nothing is asked of the host then.
Block* take(size_t wanted, DeviceIndex device) {
  for (Block* block : pending) make_free(block);  // their streams have done everything
  pending.clear();
  if (wanted > capacity) {
    ++counts[device].out_of_memory;
    return nullptr;
  }
  size_t size = std::max(round_up(wanted, ROUND), ROUND);
  Queue queue = current_queue(device);
  PoolId id = pool_id(device, queue);
  Pools& both = pools[{device, id}];
  both.small.id = both.large.id = id;
  Pool& pool = size <= SMALL ? both.small : both.large;
  Block least{0, size, queue, &pool};
  auto found = pool.free.lower_bound(&least);
  Block* block;
  if (found != pool.free.end() && (*found)->queue == queue) {
    block = *found;
    pool.free.erase(found);
    count_split(*block, -1);
  } else {
    size_t whole = size <= SMALL ? SMALL_SEGMENT : size < OWN_SEGMENT ? LARGE_SEGMENT : round_up(size, SMALL_SEGMENT);
    if (!fits(whole, device)) {
      ++counts[device].retries;
      return_segments(device);
    }
    uintptr_t address = fits(whole, device) ? segment(whole, device) : 0;
    if (address == 0) {
      ++counts[device].out_of_memory;
      note(OutOfMemory, device, capacity, wanted, queue.second);
      return nullptr;
    }
    block = new Block{address, whole, queue, &pool};
    ++counts[device].driver_allocations;
    count(*block, Segment, 1);
    count(*block, ReservedBytes, int64_t(whole));
    note(SegmentAllocated, *block);
  }
  size_t rest = block->size - size;
  if (pool.small ? rest >= ROUND : rest > SMALL) {
    auto* remainder = new Block{block->address + size, rest, queue, &pool};
    remainder->before = block;
    remainder->after = block->after;
    if (block->after != nullptr) block->after->before = remainder;
    block->after = remainder;
    block->size = size;
    pool.free.insert(remainder);
    count_split(*remainder, 1);
  }
  block->taken = true;
  block->requested = wanted;
  taken[block->address] = block;
  for (Kind kind : {Allocation, Active}) count(*block, kind, 1);
  for (Kind kind : {AllocatedBytes, ActiveBytes}) count(*block, kind, int64_t(block->size));
  count(*block, RequestedBytes, int64_t(wanted));
  block->made = uint64_t(note(Allocated, *block));
  if (Capture* capture = capture_of(queue)) capture->allocated[block->address] = block->size;
  return block;
}

void give_back(void* address) {
  if (address == nullptr || forked) return;
  Locked locked(lock());
  auto found = taken.find(reinterpret_cast<uintptr_t>(address));
  if (found == taken.end()) return;
  Block* block = found->second;
  taken.erase(found);
  count(*block, Allocation, -1);
  count(*block, AllocatedBytes, -int64_t(block->size));
  note(FreeRequested, *block);
  tell(*block, block->queue.second, GivenBack);
  if (block->used_on.empty())
    make_free(block);
  else
    pending.push_back(block);
}

// torch's GPU trace, as CUDA's allocator speaks to it: with no lock held, since a listener may want Python's.
void trace_memory(void* address, void (c10::impl::PyInterpreterVTable::*callback)(c10::DeviceType, uintptr_t) const) {
  const c10::impl::PyInterpreter* interpreter = c10::impl::GPUTrace::get_trace();
  if (interpreter != nullptr && address != nullptr) ((**interpreter).*callback)(c10::kCUDA, reinterpret_cast<uintptr_t>(address));
}

// Tells the listener of entries since a number; with no lock held, as above.
void tell_history(int64_t first) {
  if (history && listener != nullptr && next_entry > first) listener(first, next_entry - 1);
}

void release(void* address) {
  trace_memory(address, &c10::impl::PyInterpreterVTable::trace_gpu_memory_deallocation);
  give_back(address);  // without telling the listener: an exception may be on its way through Python
}

void return_free_segments(Pool& pool) {
  for (auto entry = pool.free.begin(); entry != pool.free.end();) {
    Block* block = *entry;
    if (block->before != nullptr || block->after != nullptr) {
      ++entry;
      continue;
    }
    entry = pool.free.erase(entry);
    tell(*block, block->queue.second, ToDriver);
    note(SegmentFreed, *block);
    ++counts[block->queue.first].driver_frees;
    count(*block, Segment, -1);
    count(*block, ReservedBytes, -int64_t(block->size));
    returned[block->size].push_back(block->address);
    madvise(reinterpret_cast<void*>(block->address), block->size, MADV_DONTNEED);  // the host has its memory back
    delete block;
  }
}

void return_segments(DeviceIndex device) {  // -1: of all devices
  for (auto& [key, both] : pools) {
    if ((device >= 0 && key.first != device) || (key.second != PoolId{0, 0} && both.users > 0)) continue;
    return_free_segments(both.small);
    return_free_segments(both.large);
  }
}

struct DeviceAllocator final : c10::Allocator {
  c10::DataPtr allocate(size_t size) override {
    int64_t first = next_entry;
    void* address = allocate_bytes(size, current_device());
    trace_memory(address, &c10::impl::PyInterpreterVTable::trace_gpu_memory_allocation);
    tell_history(first);
    return {address, address, &release, c10::Device(c10::kCUDA, current_device())};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* to, const void* from, size_t count) const override { std::memcpy(to, from, count); }
};
DeviceAllocator device_allocator;
REGISTER_ALLOCATOR(c10::kCUDA, &device_allocator)

}  // namespace

// -- no memory left -------------------------------------------------------------------------------------------------------

namespace {

using OutOfMemoryObserver = void (*)(int device, int64_t size, int64_t total, int64_t free);
auto& out_of_memory_observers = forever<std::vector<OutOfMemoryObserver>>();

std::string sized(double bytes) {
  const char* unit = "bytes";
  for (const char* larger : {"KiB", "MiB", "GiB"}) {
    if (bytes < 1024) break;
    bytes /= 1024;
    unit = larger;
  }
  char text[64];
  std::snprintf(text, sizeof text, *unit == 'b' ? "%.0f %s" : "%.2f %s", bytes, unit);
  return text;
}

[[noreturn]] void out_of_memory(size_t size, DeviceIndex device) {
  size_t reserved, allocated;
  std::vector<OutOfMemoryObserver> observers;
  {
    Locked locked(lock());
    reserved = size_t(counts[device].stats[ReservedBytes][0].current);
    allocated = size_t(counts[device].stats[AllocatedBytes][0].current);
    observers = out_of_memory_observers;
  }
  size_t free = capacity > reserved ? capacity - reserved : 0;
  for (auto observer : observers) observer(device, int64_t(size), int64_t(capacity), int64_t(free));
  double fraction = counts[device].fraction;
  std::string allowed = fraction < 1 ? sized(double(capacity) * fraction) + " allowed; " : "";
  TORCH_CHECK_WITH(OutOfMemoryError, false, "CUDA out of memory. Tried to allocate ", sized(double(size)), ". GPU ", int(device),
                   " has a total capacity of ", sized(double(capacity)), " of which ", sized(double(free)), " is free. ", allowed,
                   "Of the allocated memory ", sized(double(allocated)), " is allocated by PyTorch, and ", sized(double(reserved - allocated)),
                   " is reserved by PyTorch but unallocated. If reserved but unallocated memory is large try setting "
                   "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation.  See documentation for Memory Management  "
                   "(https://pytorch.org/docs/stable/notes/cuda.html#environment-variables)");
}

}  // namespace

void* allocate_bytes(size_t size, DeviceIndex device) {
  if (size == 0) return nullptr;
  TORCH_CHECK(!forked, "CUDA error: initialization error");
  touched = true;
  Block block{};
  {
    Locked locked(lock());
    Block* found = take(size, device);
    if (found) block = *found;
  }
  if (block.address == 0) out_of_memory(size, device);
  try {
    tell(block, block.queue.second, HandedOut);  // with no lock held, as above
  } catch (...) {
    Locked locked(lock());
    Block* found = taken.at(block.address);
    taken.erase(block.address);
    count(*found, Allocation, -1);
    count(*found, AllocatedBytes, -int64_t(found->size));
    make_free(found);
    throw;
  }
  return reinterpret_cast<void*>(block.address);
}

void record_on_queue(void* address, Queue queue) {
  Locked locked(lock());
  auto found = taken.find(reinterpret_cast<uintptr_t>(address));
  if (found == taken.end() || found->second->queue == queue) return;
  found->second->used_on.insert(queue.second);
  tell(*found->second, queue.second, RecordedOn);
}

bool is_pinned(const void* address) {
  Locked locked(lock());
  auto found = pinned.upper_bound(reinterpret_cast<uintptr_t>(address));
  if (found == pinned.begin()) return false;
  --found;
  return reinterpret_cast<uintptr_t>(address) < found->first + found->second;
}

void use_pinned(const c10::DataPtr& memory, const void* address, Queue queue) {
  Locked locked(lock());
  const void* block = memory.get_deleter() == &free_pinned_block ? memory.get_context() : address;
  auto found = pinned.find(reinterpret_cast<uintptr_t>(block));
  if (found != pinned.end()) pinned_uses[found->first].insert(queue);
}

// A capture executes nothing: what its operators computed on the way is taken back.
void zero_and_restore(Capture& capture) {
  for (auto& [address, size] : capture.allocated) std::memset(reinterpret_cast<void*>(address), 0, size);
  for (auto& [address, bytes] : capture.before) std::memcpy(address, bytes.data(), bytes.size());
  for (auto& [numbers, offset] : capture.offsets) numbers->offset = offset;
}

namespace {

// -- what torch asks of CUDA ----------------------------------------------------------------------------------------------

struct Hooks final : at::CUDAHooksInterface {
  void init() const override {}
  bool hasCUDA() const override { return true; }
  bool isBuilt() const { return true; }
  bool isAvailable() const { return true; }
  bool hasPrimaryContext(DeviceIndex) const override { return true; }
  DeviceIndex deviceCount() const override { return DeviceIndex(device_count()); }
  int getNumGPUs() const override { return device_count(); }
  DeviceIndex current_device() const override { return simulated::current_device(); }
  DeviceIndex getCurrentDevice() const override { return simulated::current_device(); }
  void setCurrentDevice(DeviceIndex device) const override { set_current_device(device); }
  DeviceIndex exchangeDevice(DeviceIndex device) const override {
    DeviceIndex before = simulated::current_device();
    set_current_device(device);
    return before;
  }
  DeviceIndex maybeExchangeDevice(DeviceIndex device) const override { return exchangeDevice(device); }
  bool isPinnedPtr(const void* address) const override { return is_pinned(address); }
  c10::Allocator* getPinnedMemoryAllocator() const override { return &pinned_allocator; }
  c10::Allocator* getCUDADeviceAllocator() const override { return &device_allocator; }
  c10::Device getDeviceFromPtr(void*) const override { return c10::Device(c10::kCUDA, simulated::current_device()); }
  const at::Generator& getDefaultGenerator(DeviceIndex device) const { return default_generator(device); }
  at::Generator getNewGenerator(DeviceIndex device) const { return make_generator(device); }
};

[[maybe_unused]] const bool registered = [] {
  at::CUDAHooksRegistry()->Register(
      "CUDAHooks", [](at::CUDAHooksArgs) -> std::unique_ptr<at::CUDAHooksInterface> { return std::make_unique<Hooks>(); });
  return true;
}();

}  // namespace

}  // namespace simulated

// -- what Python asks -----------------------------------------------------------------------------------------------------

using namespace simulated;

EXPORTED void streamsafe_simulated_observe(void* callback) {
  Locked locked(lock());
  observer = reinterpret_cast<Observer>(callback);
}

EXPORTED void streamsafe_simulated_set_capacity(size_t bytes) { capacity = bytes; }
EXPORTED void streamsafe_simulated_set_fraction(int device, double fraction) { counts[device].fraction = fraction; }
EXPORTED double streamsafe_simulated_fraction(int device) { return counts[device].fraction; }
EXPORTED int streamsafe_simulated_forked() { return forked; }
EXPORTED void streamsafe_simulated_touch() { touched = true; }

// KINDS * 3 * 4 numbers of stats, then four more.
EXPORTED void streamsafe_simulated_memory(int device, int64_t* numbers) {
  Locked locked(lock());
  Counts& of = counts[device];
  for (auto& kind : of.stats)
    for (Stat& stat : kind)
      for (int64_t each : {stat.current, stat.peak, stat.allocated, stat.freed}) *numbers++ = each;
  for (int64_t each : {of.retries, of.out_of_memory, of.driver_allocations, of.driver_frees}) *numbers++ = each;
}
EXPORTED void streamsafe_simulated_reset_peak(int device) {
  Locked locked(lock());
  for (auto& kind : counts[device].stats)
    for (Stat& stat : kind) stat.peak = stat.current;
}
EXPORTED void streamsafe_simulated_reset_accumulated(int device) {
  Locked locked(lock());
  Counts& of = counts[device];
  for (auto& kind : of.stats)
    for (Stat& stat : kind) stat.allocated = stat.freed = 0;
  of.retries = of.out_of_memory = of.driver_allocations = of.driver_frees = 0;
}
// Four numbers for each kind of pinned memory's.
EXPORTED void streamsafe_simulated_host_memory(int64_t* numbers) {
  Locked locked(lock());
  for (const Stat& stat : host_stats)
    for (int64_t each : {stat.current, stat.peak, stat.allocated, stat.freed}) *numbers++ = each;
}
EXPORTED void streamsafe_simulated_reset_host_peak() {
  Locked locked(lock());
  for (Stat& stat : host_stats) stat.peak = stat.current;
}
EXPORTED void streamsafe_simulated_reset_host_accumulated() {
  Locked locked(lock());
  for (Stat& stat : host_stats) stat.allocated = stat.freed = 0;
}
EXPORTED void streamsafe_simulated_empty_cache() {
  Locked locked(lock());
  for (Block* block : pending) make_free(block);
  pending.clear();
  return_segments(-1);
}
EXPORTED void streamsafe_simulated_observe_out_of_memory(void* callback) {
  Locked locked(lock());
  out_of_memory_observers.push_back(reinterpret_cast<OutOfMemoryObserver>(callback));
}

// The blocks of all segments, each in the order of its addresses: eleven numbers a block. The caller's until its next call.
EXPORTED int64_t streamsafe_simulated_blocks(const int64_t** rows) {
  thread_local std::vector<int64_t> found;
  found.clear();
  Locked locked(lock());
  std::set<Block*> heads;
  auto add = [&](Block* block) {
    while (block->before != nullptr) block = block->before;
    heads.insert(block);
  };
  for (auto& [address, block] : taken) add(block);
  for (Block* block : pending) add(block);
  for (auto& [key, both] : pools)
    for (Pool* pool : {&both.small, &both.large})
      for (Block* block : pool->free) add(block);
  for (Block* head : heads)
    for (Block* block = head; block != nullptr; block = block->after) {
      int64_t state = block->taken ? (taken.count(block->address) && taken[block->address] == block ? 1 : 2) : 0;
      for (int64_t each : {int64_t(head->address), int64_t(block->queue.first), int64_t(block->queue.second), int64_t(block->pool->id.first),
                           int64_t(block->pool->id.second), int64_t(block->pool->small), int64_t(block->address), int64_t(block->size),
                           int64_t(block->requested), state, int64_t(block->made)})
        found.push_back(each);
    }
  *rows = found.data();
  return int64_t(found.size() / 11);
}

EXPORTED void streamsafe_simulated_record_history(int on, size_t most, void* callback) {
  Locked locked(lock());
  history = on != 0;
  most_entries = most;
  listener = reinterpret_cast<void (*)(int64_t, int64_t)>(callback);
}
EXPORTED void streamsafe_simulated_clear_history() {
  Locked locked(lock());
  entries.clear();
}
// Seven numbers an entry, the oldest first. The caller's until its next call.
EXPORTED int64_t streamsafe_simulated_history(const int64_t** rows) {
  thread_local std::vector<int64_t> found;
  found.clear();
  Locked locked(lock());
  for (Entry& entry : entries)
    for (int64_t each : {entry.number, entry.action, entry.device, entry.address, entry.size, entry.stream, entry.microseconds})
      found.push_back(each);
  *rows = found.data();
  return int64_t(entries.size());
}
// The segment that holds an address: its device, or -1.
EXPORTED int streamsafe_simulated_segment(uintptr_t address, uintptr_t* start, size_t* size) {
  Locked locked(lock());
  auto found = segments.upper_bound(address);
  if (found == segments.begin()) return -1;
  --found;
  if (address >= found->first + found->second.first) return -1;
  *start = found->first;
  *size = found->second.first;
  return found->second.second;
}

EXPORTED const char* streamsafe_simulated_allocate(size_t size, int device, void** address) {
  return attempt([&] { *address = allocate_bytes(size, DeviceIndex(device)); });
}
EXPORTED void streamsafe_simulated_free(void* address) { give_back(address); }

// Graphs and MemPool contexts hold a private pool: what they free stays in it while one of them is there.
EXPORTED void streamsafe_simulated_hold_pool(int device, uint64_t first, uint64_t second, int by) {
  Locked locked(lock());
  pools[{DeviceIndex(device), {first, second}}].users += by;
}
EXPORTED void streamsafe_simulated_route_to_pool(int device, uint64_t first, uint64_t second, int this_thread_only) {
  Locked locked(lock());
  routed[DeviceIndex(device)].push_back({{first, second}, this_thread_only ? this_thread() : 0});
}
EXPORTED void streamsafe_simulated_end_route(int device, uint64_t first, uint64_t second) {
  Locked locked(lock());
  auto& entries = routed[DeviceIndex(device)];
  for (auto entry = entries.end(); entry != entries.begin();)
    if ((--entry)->first == PoolId{first, second}) {
      entries.erase(entry);
      return;
    }
}

EXPORTED const char* streamsafe_simulated_resize_storage(void* storage, size_t size) {
  return attempt([&] {
    auto* impl = static_cast<c10::StorageImpl*>(storage);
    TORCH_CHECK(impl->resizable(), "Trying to resize storage that is not resizable");
    c10::Device device = impl->device();
    void* address = allocate_bytes(size, device.index());
    if (address != nullptr && impl->nbytes() != 0) std::memcpy(address, impl->data(), std::min(size, impl->nbytes()));
    impl->set_data_ptr_noswap({address, address, &release, device});
    impl->set_nbytes(size);
  });
}

EXPORTED void streamsafe_simulated_pin(uintptr_t address, size_t size) {
  Locked locked(lock());
  pinned[address] = size;
}
EXPORTED void streamsafe_simulated_unpin(uintptr_t address) {
  Locked locked(lock());
  pinned.erase(address);
}
