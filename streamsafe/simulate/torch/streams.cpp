// Devices, streams, events and captures. Work is done when it is called, but a queue may be busy for longer: a time that
// passes when the host waits for it. What is kept beside is what CUDA would check: which streams are capturing, what joins
// them, and which calls are illegal meanwhile.
// One unit, though long, as memory.cpp is.
#include "device.h"

#include <c10/core/Allocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <c10/core/impl/GPUTrace.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <memory>
#include <thread>

namespace simulated {

namespace {

constexpr int64_t STREAMS_A_POOL = 32;  // for each device and priority, given out in turn: the 33rd is the first
constexpr int64_t POOLS = 4;
constexpr uintptr_t POOL_HANDLES = 0x7e0000000000;
constexpr uintptr_t MADE_HANDLES = 0x7e8000000000;

int devices = 1;
thread_local DeviceIndex device_now = 0;
thread_local int64_t stream_now[MOST_DEVICES] = {};
int64_t given[MOST_DEVICES][POOLS] = {};
auto& made = forever<std::map<uintptr_t, unsigned>>();  // handles of cudaStreamCreate, with their flags
uintptr_t next_made = MADE_HANDLES;

// A stream's id is 0, a place in a pool, or the raw handle of a stream made elsewhere, as in the CUDA build.
uintptr_t handle_of(DeviceIndex device, int64_t id) {
  bool of_a_pool = id > 0 && id <= STREAMS_A_POOL * POOLS;
  return of_a_pool ? POOL_HANDLES + uintptr_t(device) * 0x100000 + uintptr_t(id) * 0x100 : uintptr_t(id);
}
int64_t stream_id_of(Queue queue) {
  uintptr_t first = POOL_HANDLES + uintptr_t(queue.first) * 0x100000;
  bool of_a_pool = queue.second > first && queue.second <= first + STREAMS_A_POOL * POOLS * 0x100;
  return of_a_pool ? int64_t((queue.second - first) / 0x100) : int64_t(queue.second);
}
Queue queue_of(const c10::Stream& stream) { return {stream.device_index(), handle_of(stream.device_index(), stream.id())}; }

struct Event {
  Queue queue{};
  int64_t at = 0;  // when its stream reaches it
  uint64_t capture = 0;  // of the record, when it was made in one
  Capture::Clock clock;
  bool external = false;
};

auto& captures = forever<std::map<uint64_t, std::unique_ptr<Capture>>>();  // under way
using Nodes = std::vector<std::function<void()>>;
auto& graphs = forever<std::map<uint64_t, std::shared_ptr<Nodes>>>();  // a launch keeps its own while it runs
auto& capturing = forever<std::map<Queue, uint64_t>>();
uint64_t next_capture = 1, next_pool = 1;

// Time of the devices in nanoseconds: the host's, and what the host has skipped by waiting. A queue is busy until then.
std::atomic<int64_t> skipped{0};
auto& busy = forever<std::map<Queue, int64_t>>();
int64_t now() { return std::chrono::steady_clock::now().time_since_epoch().count() + skipped; }
int64_t busy_until(Queue queue) {
  auto found = busy.find(queue);
  return found == busy.end() ? 0 : found->second;
}
void wait_until(int64_t time) {
  int64_t left = time - now();
  if (left > 0) skipped += left;
}

std::atomic<int> sync_debug{0};  // 1: a call that blocks the host warns, 2: it raises
thread_local bool external_event = false;

uint64_t this_thread() { return std::hash<std::thread::id>()(std::this_thread::get_id()); }

[[noreturn]] void refuse(Capture* capture, const char* why) {
  if (capture != nullptr) capture->lost = true;
  TORCH_CHECK(false, "CUDA error: ", why);
}

constexpr const char* NOT_PERMITTED = "operation not permitted when stream is capturing";

// A call that CUDA forbids while some capture is under way, by the capture's mode and thread.
void unsafe_call() {
  for (auto& [id, capture] : captures)
    if (capture->mode == Mode::Global || (capture->mode == Mode::ThreadLocal && capture->thread == this_thread()))
      refuse(capture.get(), NOT_PERMITTED);
}

Capture* of_event(const Event& event) {
  auto found = captures.find(event.capture);
  return found == captures.end() ? nullptr : found->second.get();
}

template <class... Arguments>
void trace(DeviceIndex device, void (c10::impl::PyInterpreterVTable::*callback)(c10::DeviceType, Arguments...) const,
           Arguments... arguments) {
  const c10::impl::PyInterpreter* interpreter = c10::impl::GPUTrace::get_trace();
  if (interpreter == nullptr) return;
  DeviceIndex before = device_now;
  device_now = device;
  ((**interpreter).*callback)(c10::kCUDA, arguments...);
  device_now = before;
}
#define TRACE(device, name, ...) trace(device, &c10::impl::PyInterpreterVTable::trace_gpu_##name __VA_OPT__(,) __VA_ARGS__)

void merge(Capture::Clock& into, const Capture::Clock& from) {
  for (auto& [queue, count] : from)
    if (into[queue] < count) into[queue] = count;
}

}  // namespace

std::recursive_mutex& lock() {
  static auto* mutex = new std::recursive_mutex;  // outlives every thread
  return *mutex;
}
using Locked = std::lock_guard<std::recursive_mutex>;

int device_count() { return devices; }
DeviceIndex current_device() { return device_now; }
void set_current_device(DeviceIndex device) {
  TORCH_CHECK(device < devices, "CUDA error: invalid device ordinal");
  if (device >= 0) device_now = device;
}
Queue current_queue(DeviceIndex device) { return {device, handle_of(device, stream_now[device])}; }

Capture* capture_of(Queue queue) {
  auto found = capturing.find(queue);
  return found == capturing.end() ? nullptr : captures.at(found->second).get();
}

void add_node(Queue queue, std::function<void()> node) {
  Locked locked(lock());
  if (Capture* capture = capture_of(queue)) {
    ++capture->queues[queue][queue];
    capture->nodes.push_back(std::move(node));
  }
}

void synchronizing() {
  if (sync_debug == 0) return;
  TORCH_CHECK(sync_debug == 1, "called a synchronizing CUDA operation");
  TORCH_WARN("called a synchronizing CUDA operation");
}

void host_waits(Queue queue) {
  synchronizing();
  TRACE(queue.first, stream_synchronization, queue.second);
  Locked locked(lock());
  if (Capture* capture = capture_of(queue)) refuse(capture, NOT_PERMITTED);
  unsafe_call();
  wait_until(busy_until(queue));
}

// -- what torch asks of a device type -----------------------------------------------------------------------------------

struct Guard final : c10::impl::DeviceGuardImplInterface {
  static DeviceIndex index(c10::Device device) { return device.index() < 0 ? device_now : device.index(); }
  static c10::Stream stream(DeviceIndex device, int64_t id) {
    return c10::Stream(c10::Stream::UNSAFE, c10::Device(c10::kCUDA, device), id);
  }

  c10::DeviceType type() const override { return c10::kCUDA; }
  c10::Device getDevice() const override { return c10::Device(c10::kCUDA, device_now); }
  c10::Device exchangeDevice(c10::Device device) const override {
    c10::Device before = getDevice();
    setDevice(device);
    return before;
  }
  void setDevice(c10::Device device) const override { set_current_device(device.index()); }
  void uncheckedSetDevice(c10::Device device) const noexcept override {
    if (device.index() >= 0) device_now = device.index();
  }
  DeviceIndex deviceCount() const noexcept override { return DeviceIndex(devices); }

  c10::Stream getStream(c10::Device device) const noexcept override { return stream(index(device), stream_now[index(device)]); }
  c10::Stream getDefaultStream(c10::Device device) const override { return stream(index(device), 0); }
  c10::Stream getStreamFromGlobalPool(c10::Device device, bool high) const override { return getNewStream(device, high ? -1 : 0); }
  c10::Stream getNewStream(c10::Device device, int priority) const override {
    Locked locked(lock());
    int64_t pool = priority >= 0 ? 0 : std::min<int64_t>(-priority, POOLS - 1);
    int64_t id = pool * STREAMS_A_POOL + given[index(device)][pool]++ % STREAMS_A_POOL + 1;
    return stream(index(device), id);
  }
  c10::Stream exchangeStream(c10::Stream to) const noexcept override {
    c10::Stream before = getStream(to.device());
    stream_now[to.device_index()] = to.id();
    return before;
  }
  void* getStreamNativeHandle(const c10::Stream stream) const { return reinterpret_cast<void*>(queue_of(stream).second); }
  bool isStreamCapturing(const c10::Stream& stream) const {
    Locked locked(lock());
    return capture_of(queue_of(stream)) != nullptr;
  }
  bool queryStream(const c10::Stream& stream) const override {
    Locked locked(lock());
    if (Capture* capture = capture_of(queue_of(stream))) refuse(capture, NOT_PERMITTED);
    unsafe_call();
    return now() >= busy_until(queue_of(stream));
  }
  void synchronizeStream(const c10::Stream& stream) const override { host_waits(queue_of(stream)); }
  void synchronizeDevice(const DeviceIndex device) const override {
    synchronizing();
    finish_collectives();
    TRACE(device < 0 ? device_now : device, device_synchronization);
    Locked locked(lock());
    for (auto& [id, capture] : captures) refuse(capture.get(), NOT_PERMITTED);
    for (auto& [queue, time] : busy)
      if (queue.first == (device < 0 ? device_now : device)) wait_until(time);
  }

  void record(void** handle, const c10::Stream& stream, const DeviceIndex, const c10::EventFlag) const override {
    Queue queue = queue_of(stream);
    {
      Locked locked(lock());
      if (*handle == nullptr) *handle = new Event;
      Event& event = *static_cast<Event*>(*handle);
      event.queue = queue;
      event.at = std::max(now(), busy_until(queue));
      event.external = external_event;
      Capture* capture = event.external ? nullptr : capture_of(queue);
      event.capture = capture != nullptr ? capture->id : 0;
      event.clock = capture != nullptr ? capture->queues[queue] : Capture::Clock{};
    }
    TRACE(queue.first, event_record, reinterpret_cast<uintptr_t>(*handle), queue.second);
  }
  void block(void* handle, const c10::Stream& stream) const override {
    if (handle == nullptr) return;
    Queue queue = queue_of(stream);
    {
      Locked locked(lock());
      join(*static_cast<Event*>(handle), queue);
      int64_t at = static_cast<Event*>(handle)->at;
      if (at > now()) busy[queue] = std::max(busy_until(queue), at);
    }
    TRACE(queue.first, event_wait, reinterpret_cast<uintptr_t>(handle), queue.second);
  }
  static void join(Event& event, Queue queue) {
    Capture* waiter = capture_of(queue);
    if (event.external) return;
    if (event.capture == 0) {
      if (waiter != nullptr) refuse(waiter, "dependency created on uncaptured work in another stream");
      return;
    }
    Capture* capture = of_event(event);
    if (capture == nullptr) refuse(waiter, "invalid argument");
    if (waiter != nullptr && waiter != capture) {
      waiter->lost = true;
      refuse(capture, "operation would result in a merge of separate capture sequences");
    }
    if (queue.second == 0) refuse(capture, "operation would make the legacy stream depend on a capturing blocking stream");
    merge(capture->queues[queue], event.clock);
    capturing[queue] = capture->id;
  }
  static void ask(const Event& event) {  // the host asks for an event, or waits for it
    if (event.capture != 0) {
      Capture* capture = of_event(event);
      refuse(capture, capture != nullptr ? "operation not permitted on an event last recorded in a capturing stream"
                                         : "invalid argument");
    }
    unsafe_call();
  }
  bool queryEvent(void* handle) const override {
    Locked locked(lock());
    if (handle == nullptr) return true;
    ask(*static_cast<Event*>(handle));
    return now() >= static_cast<Event*>(handle)->at;
  }
  void synchronizeEvent(void* handle) const override {
    if (handle == nullptr) return;
    TRACE(device_now, event_synchronization, reinterpret_cast<uintptr_t>(handle));
    Locked locked(lock());
    ask(*static_cast<Event*>(handle));
    wait_until(static_cast<Event*>(handle)->at);
  }
  void destroyEvent(void* handle, const DeviceIndex device) const noexcept override {
    if (handle == nullptr) return;
    TRACE(device < 0 ? device_now : device, event_deletion, reinterpret_cast<uintptr_t>(handle));
    Locked locked(lock());
    delete static_cast<Event*>(handle);
  }
  double elapsedTime(void* start, void* end, const DeviceIndex) const override {
    auto *first = static_cast<Event*>(start), *second = static_cast<Event*>(end);
    TORCH_CHECK(first->queue.first == second->queue.first, "CUDA error: invalid resource handle");
    TORCH_CHECK(now() >= std::max(first->at, second->at), "CUDA error: device not ready");
    return double(second->at - first->at) / 1e6;
  }
  void recordDataPtrOnStream(const c10::DataPtr& data, const c10::Stream& stream) const override;
};
C10_REGISTER_GUARD_IMPL(CUDA, Guard)

void Guard::recordDataPtrOnStream(const c10::DataPtr& data, const c10::Stream& stream) const {
  record_on_queue(data.get(), queue_of(stream));
}

c10::Stream stream_of(Queue queue) { return Guard::stream(queue.first, stream_id_of(queue)); }
Queue exchange_queue(Queue to) { return queue_of(Guard().exchangeStream(stream_of(to))); }
Queue new_queue(DeviceIndex device) { return queue_of(Guard().getNewStream(c10::Device(c10::kCUDA, device), 0)); }

void* record_event_on(Queue queue) {
  void* event = nullptr;
  Guard().record(&event, stream_of(queue), queue.first, c10::EventFlag::PYTORCH_DEFAULT);
  return event;
}
void wait_for_event(void* event, Queue queue) { Guard().block(event, stream_of(queue)); }
void destroy_event(void* event, DeviceIndex device) { Guard().destroyEvent(event, device); }

void zero_and_restore(Capture& capture);  // memory.cpp

}  // namespace simulated

// -- what Python asks -----------------------------------------------------------------------------------------------------
// A function that can fail returns what went wrong, or null.

using namespace simulated;

const char* simulated::attempt(const std::function<void()>& work) {
  thread_local std::string text;
  try {
    work();
    return nullptr;
  } catch (const c10::Error& error) {
    text = error.what_without_backtrace();
  } catch (const std::exception& error) {
    text = error.what();
  }
  return text.c_str();
}

EXPORTED void streamsafe_simulated_set_device_count(int count) { devices = count; }
EXPORTED int streamsafe_simulated_device_count() { return devices; }
EXPORTED uintptr_t streamsafe_simulated_handle(int device, int64_t stream) { return handle_of(DeviceIndex(device), stream); }
EXPORTED void streamsafe_simulated_external_event(int on) { external_event = on != 0; }

EXPORTED const char* streamsafe_simulated_elapsed_time(uintptr_t start, uintptr_t end, double* milliseconds) {
  return attempt([&] { *milliseconds = Guard().elapsedTime(reinterpret_cast<void*>(start), reinterpret_cast<void*>(end), 0); });
}

// torch.cuda._sleep(): the current stream is busy for so long.
EXPORTED void streamsafe_simulated_sleep(int device, int64_t nanoseconds) {
  Queue queue = current_queue(DeviceIndex(device));
  auto sleep = [queue, nanoseconds] {
    Locked locked(lock());
    busy[queue] = std::max(now(), busy_until(queue)) + nanoseconds;
  };
  Locked locked(lock());
  if (capture_of(queue) != nullptr)
    add_node(queue, sleep);
  else
    sleep();
}

EXPORTED void streamsafe_simulated_sync_debug(int mode) { sync_debug = mode; }

// cudaStreamCreateWithFlags: flags 0 make a blocking stream, 1 a non-blocking one.
EXPORTED uintptr_t streamsafe_simulated_create_stream(unsigned flags) {
  Locked locked(lock());
  uintptr_t handle = next_made;
  next_made += 0x100;
  made[handle] = flags;
  return handle;
}
EXPORTED void streamsafe_simulated_destroy_stream(uintptr_t handle) {
  Locked locked(lock());
  made.erase(handle);
}
// cudaStreamGetFlags: 0 blocking, 1 non-blocking, -1 not a stream of this device.
EXPORTED int streamsafe_simulated_stream_flags(uintptr_t handle) {
  Locked locked(lock());
  auto found = made.find(handle);
  if (found != made.end()) return int(found->second);
  if (handle >= POOL_HANDLES && handle < MADE_HANDLES) return 1;
  return handle == 0 ? 0 : -1;
}

EXPORTED int streamsafe_simulated_is_capturing(int device) {
  Locked locked(lock());
  return capture_of(current_queue(DeviceIndex(device))) != nullptr;
}
EXPORTED uint64_t streamsafe_simulated_new_pool() {
  Locked locked(lock());
  return next_pool++;
}

EXPORTED const char* streamsafe_simulated_capture_begin(uint64_t pool_first, uint64_t pool_second, int mode, uint64_t* id) {
  return attempt([&] {
    Locked locked(lock());
    Queue queue = current_queue(device_now);
    TORCH_CHECK(queue.second != 0,
                "CUDA graphs must be captured on a non-default stream. (However, after capture, it's ok to replay them on "
                "the default stream.)");
    if (Capture* capture = capture_of(queue)) refuse(capture, NOT_PERMITTED);
    auto capture = std::make_unique<Capture>();
    capture->id = *id = next_capture++;
    capture->origin = queue;
    capture->mode = Mode(mode);
    capture->thread = this_thread();
    capture->pool = {pool_first, pool_second};
    capture->queues[queue] = {};
    capturing[queue] = capture->id;
    captures[capture->id] = std::move(capture);
  });
}

// Ends a capture whatever its state; the graph is kept unless it is lost.
EXPORTED const char* streamsafe_simulated_capture_end(uint64_t id) {
  return attempt([&] {
    Locked locked(lock());
    auto found = captures.find(id);
    TORCH_CHECK(found != captures.end(), "capture_end() without a capture_begin()");
    TORCH_CHECK(found->second->origin == current_queue(device_now), "Capture must end on the same stream it began on.");
    std::unique_ptr<Capture> capture = std::move(found->second);
    captures.erase(found);
    for (auto entry = capturing.begin(); entry != capturing.end();)
      entry = entry->second == id ? capturing.erase(entry) : std::next(entry);
    zero_and_restore(*capture);
    if (capture->lost) refuse(nullptr, "operation failed due to a previous error during capture");
    Capture::Clock& end = capture->queues[capture->origin];
    for (auto& [queue, clock] : capture->queues)
      if (end[queue] < clock[queue]) refuse(nullptr, "capturing stream has unjoined work");
    graphs[id] = std::make_shared<Nodes>(std::move(capture->nodes));
  });
}

EXPORTED const char* streamsafe_simulated_replay(uint64_t id) {
  return attempt([&] {
    std::shared_ptr<Nodes> nodes;
    Queue queue = current_queue(device_now);
    {
      Locked locked(lock());
      auto found = graphs.find(id);
      TORCH_CHECK(found != graphs.end(), "Called CUDAGraph::replay without a preceding successful capture.");
      nodes = found->second;
      if (Capture* capture = capture_of(queue)) {  // a graph in a graph
        ++capture->queues[queue][queue];
        for (auto& node : *nodes) capture->nodes.push_back(node);
        return;
      }
    }
    for (auto& node : *nodes) node();
  });
}

EXPORTED uint64_t streamsafe_simulated_graph_size(uint64_t id) {
  Locked locked(lock());
  auto found = graphs.find(id);
  return found == graphs.end() ? 0 : found->second->size();
}

EXPORTED void streamsafe_simulated_forget_graph(uint64_t id) {
  std::shared_ptr<Nodes> nodes;  // what they hold goes without the lock
  Locked locked(lock());
  auto found = graphs.find(id);
  if (found == graphs.end()) return;
  nodes = std::move(found->second);
  graphs.erase(found);
}

EXPORTED void streamsafe_simulated_register_generator(uint64_t id, const void* generator) {
  Locked locked(lock());
  auto found = captures.find(id);
  if (found != captures.end()) found->second->generators.insert(generator);
}
