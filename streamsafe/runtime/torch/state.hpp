// What the hooks share: the core, the switch, names and sites, streams by handle, and the way to Python's verdict.
#pragma once
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/utils/pybind.h>
#include <ATen/core/Tensor.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/ThreadLocalDebugInfo.h>
#include <dlfcn.h>
#include <atomic>
#include <map>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>
#include "core.hpp"
#include "frames.hpp"
#include "operators.hpp"
#ifdef WITH_CUDA
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>
#endif

namespace streamsafe {
namespace py = pybind11;
using Lock = std::unique_lock<std::mutex>;

// A slot of the thread-local state that torch hands on to the threads of a backward pass; it is for tests, and free.
inline auto backward_info() { return c10::DebugInfoKind::TEST_INFO_2; }

// A call of backward(), for the threads that do its work.
struct Backward final : c10::DebugInfoBase {
  uint32_t site = 0;
  Key thread = 0;
};

inline const Backward* backward_now() { return dynamic_cast<const Backward*>(c10::ThreadLocalDebugInfo::get(backward_info())); }

// What an operation id stands for.
struct Operation {
  std::string name;
  bool backward = false;   // done by the autograd engine
  std::string node;        // the backward node, and where its forward was
  uint32_t forward = 0;
  uint32_t caller = 0;     // the line that called backward(), where the operation's own is another
  bool told = false;       // somebody may know it by its number
};

constexpr uint8_t INITIAL_GRADIENT = 1;  // a block's flag: a gradient that was given to a backward pass

struct Counters {
  std::atomic<uint64_t> operators{0}, uses{0}, records{0}, waits{0}, synchronizations{0}, allocations{0}, frees{0}, recorded_streams{0},
      conflicts{0}, late{0}, skipped_frames{0};
};

// One process has one, and it is never destroyed: torch calls the hooks until the very end.
struct State {
  Core core;
  Sites sites;
  roles::Table table;
  std::atomic<bool> on{false}, host{true}, threads{false}, pending{false}, capturing{false};
  std::atomic<size_t> host_blocks{0};
  std::atomic<Key> main_thread{0};
  Counters counters;
  PyObject* judge = nullptr;

  // under `core.mutex`
  std::vector<Operation> operations{1};
  std::unordered_map<std::string, uint32_t> operation_ids;
  std::vector<uint32_t> free_operations, resting_operations;  // numbers that stand for nothing
  Flat<Timeline*> lines{256};
  std::map<Id, std::pair<int, Addr>> handles;
  std::set<std::pair<int, Addr>> communicating;  // streams of process groups
  std::vector<std::pair<Addr, Report>> stashed;  // found where Python cannot be asked, and by which thread
  // of a capture: generators that the graph keeps, and what the host has written of pinned memory
  struct Written {
    Addr start, stop;
    uint32_t operation, site;
  };
  std::set<const void*> generators;
  std::vector<Written> written;
  std::set<Id> beside;  // streams that take no part in it, and are reported
  std::map<Addr, std::vector<Ref<Timeline>>> recorded_before;  // record_stream on memory from before the program

  uint32_t intern(const std::string& name) {
    Lock guard(core.mutex);
    return intern_locked(name);
  }
  uint32_t intern_locked(const std::string& name) {
    auto [it, added] = operation_ids.try_emplace(name, uint32_t(operations.size()));
    if (added) operations.push_back(Operation{name});
    return it->second;
  }
  uint32_t intern_backward(uint32_t operation, const std::string& called, const std::string& node, uint32_t forward, uint32_t caller) {
    Lock guard(core.mutex);
    if (!sites.alive(forward)) forward = 0;
    const std::string key = "\n" + std::to_string(operation) + " " + called + " " + node + " " + std::to_string(forward) + " " + std::to_string(caller);
    auto [it, added] = operation_ids.try_emplace(key, uint32_t(operations.size()));
    if (!added) return it->second;
    if (free_operations.empty()) {
      operations.emplace_back();
    } else {
      it->second = free_operations.back();
      free_operations.pop_back();
    }
    operations[it->second] = Operation{called, true, node, forward, caller};
    return it->second;
  }

  // The timeline of a raw handle, registered on first sight; under the lock.
  Timeline& line(int device, Addr handle, int kind = -1) {
    if (handle == 1) handle = 0;
    Timeline*& known = lines[(handle << 6 | Addr(device) << 1) + 3 + (handle == 2 ? thread_number() << 20 : 0)];
    if (!known) {
      known = &core.stream(device, handle > 2 && kind >= 0 ? Kind(kind) : kind_of(handle));
      handles[known->id] = {device, handle};
    }
    return *known;
  }
  // What the core just found is for the thread's next operation to raise; under the lock.
  void stash() {
    for (auto& report : core.reports) stashed.emplace_back(thread_number(), std::move(report));
    core.reports.clear();
    pending = pending || !stashed.empty();
  }

  void forget_line(int device, Addr handle) {
    const Addr key = (handle << 6 | Addr(device) << 1) + 3;
    if (Timeline** known = lines.find(key)) {
      handles.erase((*known)->id);
      core.destroy_stream(**known);
      lines.erase(key);
    }
  }

  static Kind kind_of(Addr handle) {
    if (!handle) return Kind::legacy;
    if (handle == 2) return Kind::per_thread;
#ifdef WITH_CUDA
    unsigned int flags = cudaStreamNonBlocking;
    if (cudaStreamGetFlags(reinterpret_cast<cudaStream_t>(handle), &flags) != cudaSuccess) (void)cudaGetLastError();
    return flags & cudaStreamNonBlocking ? Kind::non_blocking : Kind::blocking;
#else
    using Flags = int (*)(uintptr_t);  // of a simulated device (simulate/streams.cpp)
    static const Flags flags = reinterpret_cast<Flags>(dlsym(RTLD_DEFAULT, "streamsafe_simulated_stream_flags"));
    return flags && flags(uintptr_t(handle)) == 0 ? Kind::blocking : Kind::non_blocking;
#endif
  }

  static Addr thread_number() {
    static std::atomic<Addr> last{0};
    static thread_local const Addr mine = ++last;
    return mine;
  }

  // The calling thread as the core names it.
  Key thread() const {
    if (!threads.load(std::memory_order_relaxed)) return 0;
    if (thread_key) return thread_key;
    if (const Backward* backward = backward_now()) return backward->thread;
    return main_thread;
  }
  static thread_local Key thread_key;
};

inline thread_local Key State::thread_key = 0;

inline State& shared_state() {
  static State* state = [] {
    auto* made = new State();
    made->table.listen();
    return made;
  }();
  return *state;
}

struct KernelScope;
struct Uses;

constexpr Addr BETWEEN_STREAMS = 1;  // an event of nobody's, by which one stream of a collective comes after another

struct Queue {
  int device;
  Addr handle;
};

// A collective whose operator runs. Its work is on the stream that first waits in it, other than the current one, and
// comes right after that wait: NCCL's events are recorded after it, and gloo's work is done by a thread of its own, on
// one stream for what it reads and then on one for what it writes.
struct Collective {
  const Uses* touched;
  uint32_t operation, site;
  Queue queue;    // the current stream
  Addr on = 0;    // the stream of its work
  std::vector<Report> reports;  // what that found

  void begin(Timeline& line, Key thread);  // under the lock
  void waited(Timeline& line, Addr handle, Key thread);  // likewise
};

// What the calling thread is doing.
struct ThreadState {
  const Operator* inside = nullptr;  // the operator whose kernel runs
  uint32_t site = 0, operation = 0;
  int device = -1;
  bool leftover = false;  // the block that was handed out last has an unordered use of its former owner
  bool external = false;    // the event at hand is one that a graph records or waits for at each launch (GC-21)
  bool waited = false;      // the host has waited for a stream inside the operator
  bool refused = false;     // what the host waits for is forbidden in a capture, and is reported already
  KernelScope* kernel = nullptr;
  Collective* collective = nullptr;
};
inline thread_local ThreadState thread_state;
inline thread_local bool captures = false;  // the calling thread has begun a capture

// Above autograd and everything that wraps tensors, and nobody else's in a program.
constexpr c10::DispatchKey KEY = c10::DispatchKey::TESTING_ONLY_GenericMode;

// Whether the calling thread's operators are seen; of a thread that is older than the hooks nobody has said it.
inline thread_local bool said = false;
inline void include_thread(bool on) {
  said = true;
  c10::impl::tls_set_dispatch_key_included(KEY, on);
}
// Such a thread is seen from its first allocation, record or wait on.
inline void see_older_thread() {
  if (said) return;
  said = true;
  if (backward_now() || !Py_IsInitialized() || !PyGILState_GetThisThreadState() || c10::impl::tls_is_dispatch_key_included(KEY)) return;
  include_thread(true);
  ++shared_state().counters.late;
}

inline int device_now() {
#ifdef WITH_CUDA
  return c10::cuda::current_device();
#else
  return c10::impl::VirtualGuardImpl(c10::DeviceType::CUDA).getDevice().index();
#endif
}

// The calling thread's current stream on a device (negative: the current one).
inline Queue queue_now(int device) {
#ifdef WITH_CUDA
  const auto stream = c10::cuda::getCurrentCUDAStream(c10::DeviceIndex(device));
  return {stream.device_index(), reinterpret_cast<Addr>(stream.stream())};
#else
  const int index = device < 0 ? device_now() : device;
  const auto stream = c10::impl::VirtualGuardImpl(c10::DeviceType::CUDA).getStream(c10::Device(c10::DeviceType::CUDA, c10::DeviceIndex(index)));
  return {index, reinterpret_cast<Addr>(c10::impl::VirtualGuardImpl(c10::DeviceType::CUDA).getStreamNativeHandle(stream))};
#endif
}

// A use, and the tensor it is of, for reports.
struct Uses {
  std::vector<Use> uses;
  std::vector<const c10::TensorImpl*> tensors;
  void clear() {
    uses.clear();
    tensors.clear();
  }
  void add(const Use& use, const c10::TensorImpl* tensor) {
    uses.push_back(use);
    tensors.push_back(tensor);
  }
};

// An operator whose kernel runs, and what is written inside it by work that is seen by itself: a kernel may be written in
// Python and call operators, and a kernel of autograd calls the hooks of saved tensors.
struct KernelScope {
  const Uses* arguments;
  std::vector<Use> written;
  bool late = false;  // what it does to its arguments counts once it is done

  void add(const Uses& touched) {
    for (const Use& use : touched.uses)
      if (use.mode == Mode::writes) written.push_back(use);
  }
  // Leaves out writes of what was written inside: they are on the stream that wrote it.
  void drop_from(Uses& uses) const {
    if (!written.empty()) drop(uses, written, [](const Use& use, const Use&) { return use.mode == Mode::writes; });
  }
  // Leaves out arguments: what is done to them counts before the operator runs, or, where it counts late, is a read.
  void drop_given_from(Uses& uses) const {
    drop(uses, arguments->uses, [&](const Use&, const Use& argument) { return !late || argument.mode == Mode::reads; });
  }

 private:
  template <class Condition>
  static void drop(Uses& uses, const std::vector<Use>& others, Condition condition) {
    size_t kept = 0;
    for (size_t i = 0; i < uses.uses.size(); ++i) {
      const Use& use = uses.uses[i];
      bool goes = false;
      for (const Use& other : others)
        goes = goes || (other.space == use.space && other.start < use.stop && use.start < other.stop && condition(use, other));
      if (goes) continue;
      uses.uses[kept] = use;
      uses.tensors[kept++] = uses.tensors[i];
    }
    uses.uses.resize(kept);
    uses.tensors.resize(kept);
  }
};

// Take the core's reports; under the lock.
inline std::vector<Report> take_reports(Core& core) {
  std::vector<Report> taken;
  taken.swap(core.reports);
  return taken;
}

inline void Collective::begin(Timeline& line, Key thread) {
  Core& core = shared_state().core;
  const Use* uses = touched->uses.data();
  const bool shown = line.shown;
  line.shown = false;  // an event that was recorded in the operator covers the work
  if (!core.access(line, uses, touched->uses.size(), operation, site, thread)) {
    reports = take_reports(core);
    core.access(line, uses, touched->uses.size(), operation, site, thread, true);
  }
  line.shown = shown;
}

inline void Collective::waited(Timeline& line, Addr handle, Key thread) {
  if (on == handle || handle == queue.handle) return;
  State& state = shared_state();
  state.communicating.insert({queue.device, handle});
  if (on) {
    state.core.record(BETWEEN_STREAMS, state.line(queue.device, on), thread, site);
    state.core.wait(line, BETWEEN_STREAMS, thread, site, false, true);
  } else {
    begin(line, thread);
  }
  on = handle;
}

// Ask Python what is to be done about conflicts; no lock may be held. Throws what is to be raised now.
inline void judge(const std::vector<Report>& reports, uint32_t operation, const Uses* touched, bool may_raise) {
  State& state = shared_state();
  state.counters.conflicts += reports.size();
  if (!Py_IsInitialized()) return;
  py::gil_scoped_acquire gil;
  if (!state.judge) return;
  PyObject *type, *value, *trace;  // an exception may be on its way
  PyErr_Fetch(&type, &value, &trace);
  py::list found, uses;
  for (auto& report : reports) found.append(py::cast(report));
  if (touched)
    for (size_t i = 0; i < touched->uses.size(); ++i) {
      const Use& use = touched->uses[i];
      py::object shape = py::none(), dtype = py::none();
      if (const c10::TensorImpl* tensor = touched->tensors[i]) {
        shape = py::tuple(py::cast(std::vector<int64_t>(tensor->sizes().begin(), tensor->sizes().end())));
        dtype = py::str(std::string(tensor->dtype().name()));
      }
      uses.append(py::make_tuple(use.space, use.start, use.stop, use.mode == Mode::writes, use.certain, shape, dtype));
    }
  PyObject* answer = PyObject_CallFunction(state.judge, "OIOO", found.ptr(), operation, uses.ptr(), may_raise ? Py_True : Py_False);
  if (!answer) PyErr_WriteUnraisable(state.judge);
  PyErr_Restore(type, value, trace);
  if (!answer) return;
  py::object error = py::reinterpret_steal<py::object>(answer);
  if (error.is_none() || !may_raise) return;
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(error.ptr())), error.ptr());
  throw py::error_already_set();
}

// An operation is about to be enqueued on a stream, or (nullptr) done by the host. Throws what is to be raised. `undo`: takes
// what `revoke` needs.
inline void enqueue(const Queue* queue, const Uses& touched, uint32_t operation, uint32_t site, bool may_raise = true, Undo* undo = nullptr) {
  State& state = shared_state();
  Core& core = state.core;
  const Key thread = state.thread();
  if (queue && thread_state.kernel) thread_state.kernel->add(touched);
  std::vector<Report> reports;
  {
    Lock guard(core.mutex);
    const Use* uses = touched.uses.data();
    const size_t n = touched.uses.size();
    const bool done = queue ? core.access(state.line(queue->device, queue->handle), uses, n, operation, site, thread, false, undo)
                            : core.host_access(uses, n, operation, site, thread);
    if (done) return;
    reports = take_reports(core);
  }
  judge(reports, operation, &touched, may_raise);
  Lock guard(core.mutex);
  if (queue) core.access(state.line(queue->device, queue->handle), touched.uses.data(), touched.uses.size(), operation, site, thread, true, undo);
  else core.host_access(touched.uses.data(), touched.uses.size(), operation, site, thread, true);
  core.reports.clear();
}

// The operation was not enqueued after all.
inline void revoke(Undo& undo) {
  if (!undo.program) return;
  Lock guard(shared_state().core.mutex);
  shared_state().core.revoke(undo);
}

}  // namespace streamsafe
