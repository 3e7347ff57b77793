// torch's operators, streams and memory, brought to the core. streamsafe/toolchain/torch.py builds it.
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

Uses touched_of(const std::vector<std::tuple<Addr, Addr, bool, bool>>& uses, int space) {
  Uses touched;
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
  State& state = shared_state();
  if (!state.on) return;
  const uint32_t id = state.intern(operation), site = state.sites.capture();
  const Uses touched = touched_of(uses, device);
  const Queue queue{device, stream};
  py::gil_scoped_release release;
  enqueue(&queue, touched, id, site);
}

void host_access(const std::string& operation, const std::vector<std::tuple<Addr, Addr, bool, bool>>& uses) {
  State& state = shared_state();
  if (!state.on || !state.host || !state.host_blocks) return;
  const uint32_t id = state.intern(operation), site = state.sites.capture();
  Uses touched = touched_of(uses, HOST_SPACE);
  keep_known(touched);
  if (touched.uses.empty()) return;
  py::gil_scoped_release release;
  enqueue(nullptr, touched, id, site);
}

// A backward pass begins in this thread; its other threads hear of it too. `gradients`: addresses of what it was given.
void backward_begins(const std::vector<std::tuple<int, Addr>>& gradients) {
  State& state = shared_state();
  auto info = std::make_shared<Backward>();
  info->site = state.sites.capture();
  info->thread = state.thread();
  c10::ThreadLocalDebugInfo::_push(backward_info(), info);
  Lock guard(state.core.mutex);
  for (auto& [device, address] : gradients)
    if (Block* block = state.core.block_at(device, address)) {
      block->flags |= INITIAL_GRADIENT;
      state.core.say(TapeEntry::gradient, device, block->start, block->stop);
    }
}

void backward_ends() { c10::ThreadLocalDebugInfo::_pop(backward_info()); }

void start(py::object judge, bool fresh, bool threads, bool host) {
  State& state = shared_state();
  {
    Lock guard(state.core.mutex);
    if (fresh) {
      state.core.reset(threads);
      state.lines = Flat<Timeline*>(256);
      state.handles.clear();
      state.communicating.clear();
      state.recorded_before.clear();
      state.stashed.clear();
      state.sites.begin();
      for (auto& operation : state.operations) operation.told = false;
      state.host_blocks = 0;
      state.capturing = false;
    }
    state.threads = threads;
    state.host = host;
  }
  PyObject* before = state.judge;
  state.judge = judge.release().ptr();
  Py_XDECREF(before);
  listen();
  state.on = true;
}

void stop() {
  shared_state().on = false;
  shared_state().pending = false;
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
  const Counters& counted = shared_state().counters;
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
  found["late"] = counted.late.load();
  found["sites"] = shared_state().sites.size();
  Lock guard(shared_state().core.mutex);
  found["cells"] = shared_state().core.cells();
  found["blocks"] = shared_state().core.blocks();
  found["operations"] = shared_state().operation_ids.size();
  return found;
}

py::object operation_of(uint32_t id) {
  Lock guard(shared_state().core.mutex);
  if (id >= shared_state().operations.size()) return py::none();
  Operation& found = shared_state().operations[id];
  found.told = true;
  return py::make_tuple(found.name, found.backward, found.node, found.forward, found.caller);
}

py::object line_of(uint32_t id) {
  Lock guard(shared_state().core.mutex);
  auto found = shared_state().handles.find(id);
  if (found == shared_state().handles.end()) return py::none();
  return py::make_tuple(found->second.first, found->second.second);
}

// `host_edge(source, target)`: locks are taken often, and a plain function of Python costs a third of pybind11's.
PyObject* host_edge(PyObject*, PyObject* const* given, Py_ssize_t count) {
  if (count != 2) {
    PyErr_SetString(PyExc_TypeError, "host_edge(source, target)");
    return nullptr;
  }
  const Key source = PyLong_AsUnsignedLongLong(given[0]), target = PyLong_AsUnsignedLongLong(given[1]);
  if (PyErr_Occurred()) return nullptr;
  {
    Lock guard(shared_state().core.mutex);
    shared_state().core.host_edge(source, target);
  }
  Py_RETURN_NONE;
}
PyMethodDef host_edge_method{"host_edge", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(&host_edge)), METH_FASTCALL, nullptr};

}  // namespace streamsafe

PYBIND11_MODULE(TORCH_EXTENSION_NAME, module) {
  using namespace streamsafe;
  // No thread may be in the core while the process forks, for the child may open a session of its own. In the child nobody
  // listens; CUDA does not survive a fork either.
  pthread_atfork([]() { shared_state().core.mutex.lock(); }, []() { shared_state().core.mutex.unlock(); },
                 []() {
                   State& state = shared_state();
                   state.on = false;
                   state.pending = false;
                   state.core.mutex.unlock();
                   state.sites.forked();
                   state.table.forked();
                 });
  module.def("attach", [](py::object internal) {
    shared_state().sites.ask(internal.ptr());
    listen();
    return memory::attach();
  });
  module.def("listen", &listen);
  module.def("set_external", [](bool external) { thread_state.external = external; });
  module.def("start", &start);
  module.def("stop", &stop);
  module.def("core", []() { return reinterpret_cast<uintptr_t>(&shared_state().core); });
  module.def("key", []() { return int(KEY); });
  module.def("include_thread", &include_thread);
  module.def("set_thread", [](Key key, bool main) {
    State::thread_key = key;
    if (main) shared_state().main_thread = key;
  });
  module.def("set_pending", [](bool pending) { shared_state().pending = pending; });
  module.def("set_capturing", [](bool capturing, const std::vector<uintptr_t>& generators, bool this_thread) {
    State& state = shared_state();
    Lock guard(state.core.mutex);
    state.capturing = capturing;
    captures = this_thread;
    state.generators.clear();
    for (uintptr_t each : generators) state.generators.insert(reinterpret_cast<const void*>(each));
    if (!capturing) state.written.clear();
    state.beside.clear();
  });
  module.def("set_refused", [](bool refused) { thread_state.refused = refused; });
  module.def("take_stashed", []() {
    Lock guard(shared_state().core.mutex);
    std::vector<Report> reports;
    for (auto& [thread, report] : shared_state().stashed) reports.push_back(std::move(report));
    shared_state().stashed.clear();
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
    Lock guard(shared_state().core.mutex);
    return shared_state().line(device, handle, kind).id;
  });
  module.def("forget_line", [](int device, Addr handle) {
    Lock guard(shared_state().core.mutex);
    shared_state().forget_line(device, handle);
  });
  module.attr("host_edge") = py::reinterpret_steal<py::object>(PyCFunction_New(&host_edge_method, nullptr));
  module.def("owns", [](int device, Addr address) {
    Lock guard(shared_state().core.mutex);
    const Block* block = shared_state().core.block_at(device, address);
    return block && block->start == address && !block->ended && block->owner == Owner::torch;
  });
  module.def("graph_of", [](Addr address) {  // in whose capture the memory was allocated
    Lock guard(shared_state().core.mutex);
    const Block* block = shared_state().core.device_block(address);
    return block ? block->graph : 0;
  });
  module.def("block_of", [](Addr address) -> py::object {
    std::tuple<int, Addr, Addr> found;
    {
      Lock guard(shared_state().core.mutex);
      const Block* block = shared_state().core.device_block(address);
      if (!block) return py::none();
      found = {block->space, block->start, block->stop};
    }
    return py::cast(found);
  });
  module.def("line_of", &line_of);
  module.def("communicates", [](int device, Addr handle) {
    Lock guard(shared_state().core.mutex);
    return shared_state().communicating.count({device, handle}) > 0;
  });
  module.def("operation_of", &operation_of);
  module.def("site", [](uint32_t id) { return py::reinterpret_steal<py::object>(shared_state().sites.pairs(id)); });
  module.def("site_id", [](py::object pairs) { return shared_state().sites.of(pairs.ptr()); });
  module.def("site_now", []() { return shared_state().sites.capture(); });
  module.def("block_callback", []() { return reinterpret_cast<uintptr_t>(&memory::block_callback); });
  module.def("self_test", &self_test);
  module.def("counters", &counters);
  // for an audit: the operator in whose kernel the calling thread is; empty: in none
  module.def("inside", []() { return thread_state.inside ? thread_state.inside->name : std::string(); });
}
