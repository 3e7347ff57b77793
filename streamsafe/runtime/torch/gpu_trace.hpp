// torch's GPU trace: what streams and events do, heard in C++ and without the GIL, and handed on to earlier listeners.
#pragma once
#include <c10/core/impl/GPUTrace.h>
#include <c10/core/impl/PyInterpreter.h>
#include <torch/version.h>
#include "state.hpp"

namespace streamsafe {

#define SS_TORCH_AT_LEAST(minor) (TORCH_VERSION_MAJOR > 2 || TORCH_VERSION_MINOR >= minor)

// Only the trace_* methods are ever called here: torch asks an interpreter for the others through a tensor, and no tensor
// has this one.
struct Trace final : c10::impl::PyInterpreterVTable {
  const c10::impl::PyInterpreter* next = nullptr;

  std::string name() const override { return "streamsafe"; }
  void incref(PyObject* object) const override { (*next)->incref(object); }
#if SS_TORCH_AT_LEAST(10)
  void decref(PyObject* object) const override { (*next)->decref(object); }
  bool try_incref(const c10::impl::PyObjectSlot&) const override { return false; }
  size_t refcnt(PyObject*) const override { return 0; }
#else
  void decref(PyObject* object, bool slot) const override { (*next)->decref(object, slot); }
#endif
  c10::intrusive_ptr<c10::TensorImpl> detach(const c10::TensorImpl*) const override { TORCH_CHECK(false); }
  void dispatch(const c10::OperatorHandle&, torch::jit::Stack*) const override { TORCH_CHECK(false); }
  void reportErrorCallback(PyObject*, c10::DispatchKey) const override {}
  void python_op_registration_trampoline(const c10::OperatorHandle&, c10::DispatchKey, c10::DispatchKeySet, torch::jit::Stack*, bool,
                                         bool) const override {}
  void throw_abstract_impl_not_imported_error(std::string, const char*, const char*) const override {}
  void python_dispatcher(const c10::OperatorHandle&, c10::DispatchKeySet, torch::jit::Stack*) const override {}
  bool is_contiguous(const c10::TensorImpl*, at::MemoryFormat) const override { return false; }
#if SS_TORCH_AT_LEAST(9)
  c10::SymBool sym_is_contiguous(const c10::TensorImpl*, at::MemoryFormat) const override { return false; }
#endif
  bool is_strides_like(const c10::TensorImpl*, at::MemoryFormat) const override { return false; }
  bool is_non_overlapping_and_dense(const c10::TensorImpl*) const override { return false; }
  c10::Device device(const c10::TensorImpl*) const override { return c10::Device(c10::kCPU); }
  int64_t dim(const c10::TensorImpl*) const override { return 0; }
  c10::IntArrayRef strides(const c10::TensorImpl*) const override { return {}; }
  c10::IntArrayRef sizes(const c10::TensorImpl*) const override { return {}; }
  c10::SymIntArrayRef sym_sizes(const c10::TensorImpl*) const override { return {}; }
  c10::Layout layout(const c10::TensorImpl*) const override { return c10::Layout::Strided; }
  int64_t numel(const c10::TensorImpl*) const override { return 0; }
  c10::SymInt sym_numel(const c10::TensorImpl*) const override { return 0; }
  c10::SymIntArrayRef sym_strides(const c10::TensorImpl*) const override { return {}; }
  c10::SymInt sym_storage_offset(const c10::TensorImpl*) const override { return 0; }
  void reset_backward_hooks(const c10::TensorImpl*) const override {}

  void trace_gpu_event_creation(c10::DeviceType type, uintptr_t event) const override {
    if (next) (*next)->trace_gpu_event_creation(type, event);
  }
  void trace_gpu_event_deletion(c10::DeviceType type, uintptr_t event) const override {
    if (next) (*next)->trace_gpu_event_deletion(type, event);
    if (!ours()) return;
    Lock guard(shared_state().core.mutex);
    shared_state().core.destroy_event(event);
  }
  void trace_gpu_event_record(c10::DeviceType type, uintptr_t event, uintptr_t stream) const override {
    if (next) (*next)->trace_gpu_event_record(type, event, stream);
    if (!ours()) return;
    State& state = shared_state();
    ++state.counters.records;
    const int device = device_now();
    const uint32_t site = place();
    const Key thread = state.thread();
    Lock guard(state.core.mutex);
    state.core.record(event, state.line(device, stream), thread, site, thread_state.external);
  }
  void trace_gpu_event_wait(c10::DeviceType type, uintptr_t event, uintptr_t stream) const override {
    if (next) (*next)->trace_gpu_event_wait(type, event, stream);
    if (!ours()) return;
    State& state = shared_state();
    ++state.counters.waits;
    const int device = device_now();
    const uint32_t site = place();
    const Key thread = state.thread();
    Lock guard(state.core.mutex);
    // a wait by an operator or by the autograd engine is not the program's, which can have meant nothing by it
    const bool implicit = thread_state.inside || backward_now() || !shared_state().sites.in_python();
    Timeline& line = state.line(device, stream);
    state.core.wait(line, event, thread, site, thread_state.external, implicit);
    state.stash();
    if (thread_state.collective) thread_state.collective->waited(line, stream, thread);
  }
  void trace_gpu_memory_allocation(c10::DeviceType type, uintptr_t address) const override {
    if (next) (*next)->trace_gpu_memory_allocation(type, address);
  }
  void trace_gpu_memory_deallocation(c10::DeviceType type, uintptr_t address) const override {
    if (next) (*next)->trace_gpu_memory_deallocation(type, address);
  }
  void trace_gpu_stream_creation(c10::DeviceType type, uintptr_t stream) const override {
    if (next) (*next)->trace_gpu_stream_creation(type, stream);
  }
  void trace_gpu_device_synchronization(c10::DeviceType type) const override {
    if (next) (*next)->trace_gpu_device_synchronization(type);
    if (!ours() || thread_state.refused) return;
    State& state = shared_state();
    ++state.counters.synchronizations;
    const int device = device_now();
    const uint32_t site = place();
    const Key thread = state.thread();
    Lock guard(state.core.mutex);
    state.core.synchronize_device(device, thread, site);
    state.stash();
  }
  void trace_gpu_stream_synchronization(c10::DeviceType type, uintptr_t stream) const override {
    if (next) (*next)->trace_gpu_stream_synchronization(type, stream);
    if (!ours() || thread_state.refused) return;
    State& state = shared_state();
    const int device = device_now();
    const bool program = !Py_IsInitialized() || PyGILState_GetThisThreadState() || backward_now();
    if (!program) {  // a thread that does a process group's work: the program hears of it by an event
      Lock guard(state.core.mutex);
      if (state.communicating.count({device, stream})) return;
    }
    ++state.counters.synchronizations;
    thread_state.waited = true;
    const uint32_t site = place();
    const Key thread = state.thread();
    Lock guard(state.core.mutex);
    state.core.synchronize_stream(state.line(device, stream), thread, site);
    state.stash();
  }
  void trace_gpu_event_synchronization(c10::DeviceType type, uintptr_t event) const override {
    if (next) (*next)->trace_gpu_event_synchronization(type, event);
    if (!ours() || thread_state.refused) return;
    State& state = shared_state();
    ++state.counters.synchronizations;
    const uint32_t site = place();
    const Key thread = state.thread();
    Lock guard(state.core.mutex);
    state.core.synchronize_event(event, thread, site);
    state.stash();
  }

  static bool ours() {
    if (!shared_state().on.load(std::memory_order_relaxed)) return false;
    see_older_thread();
    return true;
  }
  // Other locks may be held here: nothing may wait for the GIL.
  static uint32_t place() {
    if (thread_state.site) return thread_state.site;
    if (const uint32_t site = shared_state().sites.capture(Sites::Gil::only_if_held)) return site;
    const Backward* backward = backward_now();
    return backward ? backward->site : 0;
  }
};

// Listen; earlier listeners are still called.
inline void listen() {
  static auto* trace = new Trace();
  static auto* interpreter = new c10::impl::PyInterpreter(trace);
  const auto* present = c10::impl::GPUTrace::gpuTraceState.load();
  if (present != interpreter) {
    trace->next = c10::impl::GPUTrace::haveState ? present : nullptr;
    c10::impl::GPUTrace::gpuTraceState.store(interpreter);
  }
  c10::impl::GPUTrace::haveState = true;
}

}  // namespace streamsafe
