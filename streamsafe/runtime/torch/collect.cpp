// torch's operators, streams and memory, brought to the core. extension.py says how this is built and what it offers.
#include <torch/csrc/utils/pybind.h>
#include <torch/library.h>
#include <pthread.h>
#include "abi.hpp"
#include "allocator.hpp"
#include "lists.hpp"
#include "gpu_trace.hpp"

namespace streamsafe {

TORCH_LIBRARY_IMPL(_, TESTING_ONLY_GenericMode, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&operate>());
}

TORCH_LIBRARY_IMPL(aten, TESTING_ONLY_GenericMode, library) { lists::install(library); }

Touched touched_of(const std::vector<std::tuple<Addr, Addr, bool, bool>>& uses, int space) {
  Touched touched;
  for (auto& [address, size, write, certain] : uses) {
    Use use;
    use.space = space;
    use.start = address;
    use.stop = address + size;
    use.mode = write ? Mode::writes : Mode::reads;
    use.certain = certain;
    touched.add(use, nullptr);
  }
  return touched;
}

void launch(const std::string& operation, const std::vector<std::tuple<Addr, Addr, bool, bool>>& uses, int device, Addr stream) {
  State& the = state();
  if (!the.on) return;
  const uint32_t id = the.intern(operation), site = the.sites.capture();
  const Touched touched = touched_of(uses, device);
  const Queue queue{device, stream};
  py::gil_scoped_release release;
  enqueue(&queue, touched, id, site);
}

void host_access(const std::string& operation, const std::vector<std::tuple<Addr, Addr, bool, bool>>& uses) {
  State& the = state();
  if (!the.on || !the.host || !the.host_blocks) return;
  const uint32_t id = the.intern(operation), site = the.sites.capture();
  Touched touched = touched_of(uses, HOST_SPACE);
  keep_known(touched);
  if (touched.uses.empty()) return;
  py::gil_scoped_release release;
  enqueue(nullptr, touched, id, site);
}

// A backward pass begins in this thread; its other threads hear of it too. `gradients`: addresses of what it was given.
void backward_begins(const std::vector<std::tuple<int, Addr>>& gradients) {
  State& the = state();
  auto info = std::make_shared<Backward>();
  info->site = the.sites.capture();
  info->thread = the.thread();
  c10::ThreadLocalDebugInfo::_push(backward_info(), info);
  Lock guard(the.core.mutex);
  for (auto& [device, address] : gradients)
    if (Block* block = the.core.block_at(device, address)) {
      block->flags |= INITIAL_GRADIENT;
      the.core.say(TapeEntry::gradient, device, block->start, block->stop);
    }
}

void backward_ends() { c10::ThreadLocalDebugInfo::_pop(backward_info()); }

void start(py::object judge, bool fresh, bool threads, bool host) {
  State& the = state();
  {
    Lock guard(the.core.mutex);
    if (fresh) {
      the.core.reset(threads);
      the.lines = Flat<Timeline*>(256);
      the.handles.clear();
      the.communicating.clear();
      the.recorded_before.clear();
      the.stashed.clear();
      the.host_blocks = 0;
      the.capturing = false;
    }
    the.threads = threads;
    the.host = host;
  }
  PyObject* before = the.judge;
  the.judge = judge.release().ptr();
  Py_XDECREF(before);
  listen();
  the.on = true;
}

void stop() {
  state().on = false;
  state().pending = false;
}

// A little program on numbers of its own: an access, a wait and a conflict.
std::string self_test() {
  if (!c10::impl::tls_is_dispatch_key_included(KEY)) return "operators of this thread are not seen";
  Core core;
  Timeline &a = core.stream(0, Kind::non_blocking), &b = core.stream(0, Kind::non_blocking);
  Use use;
  use.start = 4096;
  use.stop = 8192;
  use.mode = Mode::writes;
  if (!core.access(a, &use, 1, 0, 0)) return "the core finds a conflict where there is none";
  core.record(64, a);
  core.wait(b, 64);
  if (!core.access(b, &use, 1, 0, 0)) return "the core does not know a wait";
  if (core.access(a, &use, 1, 0, 0)) return "the core does not find a conflict";
  return "";
}

py::dict counters() {
  const Counters& counted = state().counters;
  py::dict found;
  found["operators"] = counted.operators.load();
  found["uses"] = counted.uses.load();
  found["records"] = counted.records.load();
  found["waits"] = counted.waits.load();
  found["synchronizations"] = counted.synchronizations.load();
  found["allocations"] = counted.allocations.load();
  found["frees"] = counted.frees.load();
  found["recorded_streams"] = counted.recorded_streams.load();
  found["conflicts"] = counted.conflicts.load();
  found["sites"] = state().sites.size();
  Lock guard(state().core.mutex);
  found["cells"] = state().core.cells();
  found["blocks"] = state().core.blocks();
  return found;
}

py::object operation_of(uint32_t id) {
  Lock guard(state().core.mutex);
  if (id >= state().operations.size()) return py::none();
  const Operation& found = state().operations[id];
  return py::make_tuple(found.name, found.backward, found.node, found.forward, found.caller);
}

py::object line_of(uint32_t id) {
  Lock guard(state().core.mutex);
  auto found = state().handles.find(id);
  if (found == state().handles.end()) return py::none();
  return py::make_tuple(found->second.first, found->second.second);
}

}  // namespace streamsafe

PYBIND11_MODULE(TORCH_EXTENSION_NAME, module) {
  using namespace streamsafe;
  // No thread may be in the core while the process forks, for the child may open a session of its own. In the child nobody
  // listens; CUDA does not survive a fork either.
  pthread_atfork([]() { state().core.mutex.lock(); }, []() { state().core.mutex.unlock(); },
                 []() {
                   State& the = state();
                   the.on = false;
                   the.pending = false;
                   the.core.mutex.unlock();
                   the.sites.forked();
                   the.table.forked();
                 });
  module.def("attach", [](py::object internal) {
    state().sites.ask(internal.ptr());
    listen();
    return memory::attach();
  });
  module.def("listen", &listen);
  module.def("set_external", [](bool external) { here.external = external; });
  module.def("start", &start);
  module.def("stop", &stop);
  module.def("core", []() { return reinterpret_cast<uintptr_t>(&state().core); });
  module.def("key", []() { return int(KEY); });
  module.def("include_thread", [](bool on) { c10::impl::tls_set_dispatch_key_included(KEY, on); });
  module.def("set_thread", [](Key key, bool main) {
    State::thread_key = key;
    if (main) state().main_thread = key;
  });
  module.def("set_pending", [](bool pending) { state().pending = pending; });
  module.def("set_capturing", [](bool capturing, const std::vector<uintptr_t>& generators, bool here) {
    State& the = state();
    Lock guard(the.core.mutex);
    the.capturing = capturing;
    captures = here;
    the.generators.clear();
    for (uintptr_t each : generators) the.generators.insert(reinterpret_cast<const void*>(each));
    if (!capturing) the.written.clear();
    the.beside.clear();
  });
  module.def("set_refused", [](bool refused) { here.refused = refused; });
  module.def("take_stashed", []() {
    Lock guard(state().core.mutex);
    std::vector<Report> reports;
    for (auto& [thread, report] : state().stashed) reports.push_back(std::move(report));
    state().stashed.clear();
    return reports;
  });
  module.def("launch", &launch);
  module.def("host_access", &host_access);
  module.def("pack_begins", [](const at::Tensor& saved) {
    py::gil_scoped_release release;
    return pack_begins(saved);
  });
  module.def("pack_ends", &pack_ends);
  module.def("backward_begins", &backward_begins);
  module.def("backward_ends", &backward_ends);
  module.def("line", [](int device, Addr handle, int kind) {
    Lock guard(state().core.mutex);
    return state().line(device, handle, kind).id;
  });
  module.def("forget_line", [](int device, Addr handle) {
    Lock guard(state().core.mutex);
    state().forget_line(device, handle);
  });
  module.def("owns", [](int device, Addr address) {
    Lock guard(state().core.mutex);
    const Block* block = state().core.block_at(device, address);
    return block && block->start == address && !block->ended && block->owner == Owner::torch;
  });
  module.def("line_of", &line_of);
  module.def("communicates", [](int device, Addr handle) {
    Lock guard(state().core.mutex);
    return state().communicating.count({device, handle}) > 0;
  });
  module.def("operation_of", &operation_of);
  module.def("site", [](uint32_t id) { return py::reinterpret_steal<py::object>(state().sites.pairs(id)); });
  module.def("site_now", []() { return state().sites.capture(); });
  module.def("block_callback", []() { return reinterpret_cast<uintptr_t>(&memory::block_callback); });
  module.def("self_test", &self_test);
  module.def("counters", &counters);
  // for an audit: the operator in whose kernel the calling thread is; empty: in none
  module.def("inside", []() { return here.inside ? here.inside->name : std::string(); });
}
