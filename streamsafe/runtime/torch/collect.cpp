// torch's operators, streams and memory, brought to the core. extension.py says how this is built and what it offers.
//
// A boxed fallback on one dispatch key sees every operator before its kernel. Composite operators pass through, so that
// what they call is seen; of any other operator only the operator itself is. What it reads and writes is given to the core
// before it runs (a blocking copy synchronizes inside), its new results after it.
#include <torch/csrc/utils/pybind.h>
#include <ATen/SequenceNumber.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/autograd/function.h>
#include <torch/library.h>
#include <pthread.h>
#include "abi.hpp"
#include "allocator.hpp"
#include "state.hpp"
#include "trace.hpp"

namespace streamsafe {

using c10::DispatchKey;

// Above autograd and everything that wraps tensors, and nobody else's in a program.
constexpr DispatchKey KEY = DispatchKey::TESTING_ONLY_GenericMode;

// ------------------------------------------------------------------------------------------------ tensors to bytes

struct Seen {
  Touched device, cpu;
  bool wrapped = false;  // a tensor stands for others: the inner call has them
  std::vector<std::pair<at::Tensor, Role>> subclasses;  // tensors with a __torch_dispatch__
  bool several = false;  // tensors of several devices
  int index = -1;

  void clear() {
    device.clear();
    cpu.clear();
    subclasses.clear();
    wrapped = several = false;
    index = -1;
  }
};

bool is_dense(const c10::TensorImpl& tensor) {
  return tensor.is_contiguous() || tensor.is_non_overlapping_and_dense();
}

void see(Seen& seen, const at::Tensor& tensor, Role role) {
  if (!tensor.defined()) return;
  c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
  constexpr c10::DispatchKeySet WRAPPERS({DispatchKey::Python, DispatchKey::FuncTorchBatched, DispatchKey::FuncTorchGradWrapper,
                                          DispatchKey::Functionalize});
  if (impl->key_set().has_any(WRAPPERS)) {
    seen.wrapped = true;
    if (impl->key_set().has(DispatchKey::Python)) seen.subclasses.emplace_back(tensor, role);
    return;
  }
  if (role != Role::read && role != Role::write && role != Role::both) return;
  const c10::DeviceType type = impl->device_type();
  const bool device = type == c10::DeviceType::CUDA;
  if (!device && (type != c10::DeviceType::CPU || !state().host_blocks.load(std::memory_order_relaxed))) return;
  if (!impl->has_storage()) {
    if (tensor.layout() == c10::kSparse) {
      see(seen, tensor._indices(), role);
      see(seen, tensor._values(), role);
    } else if (tensor.layout() == c10::kSparseCsr) {
      see(seen, tensor.crow_indices(), role);
      see(seen, tensor.col_indices(), role);
      see(seen, tensor.values(), role);
    }
    return;
  }
  const int64_t numel = impl->numel();
  if (!numel) return;
  const Addr base = reinterpret_cast<Addr>(impl->unsafe_storage().unsafeGetStorageImpl()->_mutable_data_ptr_no_checks().get());
  if (!base) return;
  const size_t item = impl->itemsize();
  Use use;
  use.mode = role == Role::write ? Mode::writes : Mode::reads;
  use.start = base + Addr(impl->storage_offset()) * item;
  if (is_dense(*impl)) {
    use.stop = use.start + Addr(numel) * item;
  } else {
    const auto sizes = impl->sizes(), strides = impl->strides();
    int64_t last = 0;
    for (size_t i = 0; i < sizes.size(); ++i) last += (sizes[i] - 1) * strides[i];
    use.stop = use.start + Addr(last + 1) * item;
    use.dims = int(sizes.size());
    use.shape = sizes.data();
    use.strides = strides.data();
    use.itemsize = item;
    use.unit = int64_t(item);
  }
  if (!device) {
    use.space = HOST_SPACE;
    seen.cpu.add(use, impl);
    if (role == Role::both) {
      use.mode = Mode::writes;
      seen.cpu.add(use, impl);
    }
    return;
  }
  use.space = impl->device().index();
  if (seen.index < 0) seen.index = use.space;
  else if (seen.index != use.space) seen.several = true;
  seen.device.add(use, impl);
  if (role == Role::both) {
    use.mode = Mode::writes;
    seen.device.add(use, impl);
  }
}

void see(Seen& seen, const c10::IValue& value, Role role) {
  if (value.isTensor()) {
    see(seen, value.toTensor(), role);
  } else if (value.isList()) {
    for (const auto& each : value.toListRef()) see(seen, each, role);
  } else if (value.isTuple()) {
    for (const auto& each : value.toTupleRef().elements()) see(seen, each, role);
  } else if (value.isGenericDict()) {
    for (const auto& each : value.toGenericDict()) see(seen, each.value(), role);
  }
}

// The tensors that a wrapper subclass holds (DTensor, jagged and quantized tensors), as `__tensor_flatten__` names them.
// What its __torch_dispatch__ calls does not come here: torch excludes all keys above Python's meanwhile.
void see_held(Seen& seen, const std::vector<std::pair<at::Tensor, Role>>& wrappers) {
  if (wrappers.empty() || !Py_IsInitialized()) return;
  py::gil_scoped_acquire gil;
  PyObject *type, *value, *trace;
  PyErr_Fetch(&type, &value, &trace);
  std::vector<std::pair<py::object, Role>> left;
  for (auto& [tensor, role] : wrappers)
    if (role == Role::read || role == Role::write || role == Role::both) left.emplace_back(py::cast(tensor), role);
  while (!left.empty()) {
    auto [object, role] = std::move(left.back());
    left.pop_back();
    if (!PyObject_HasAttrString(reinterpret_cast<PyObject*>(Py_TYPE(object.ptr())), "__tensor_flatten__")) continue;
    try {
      const py::tuple flat = object.attr("__tensor_flatten__")();
      const py::list names = flat[0];
      for (const auto& name : names) {
        py::object held = object.attr(name);
        py::detail::make_caster<at::Tensor> as_tensor;
        if (!as_tensor.load(held, false)) continue;
        Seen its;
        see(its, py::detail::cast_op<at::Tensor&>(as_tensor), role);
        if (its.wrapped) left.emplace_back(std::move(held), role);
        for (size_t i = 0; i < its.device.uses.size(); ++i) {
          const Use& use = its.device.uses[i];
          if (seen.index < 0) seen.index = use.space;
          else if (seen.index != use.space) seen.several = true;
          seen.device.add(use, its.device.tensors[i]);
        }
      }
    } catch (const py::error_already_set&) {
      continue;  // one that is not complete yet
    }
  }
  PyErr_Restore(type, value, trace);
}

// ------------------------------------------------------------------------------------------------ host memory

// Of the CPU tensors an operator touches, those whose memory copies use; the others go.
void keep_known(Touched& cpu) {
  State& the = state();
  Lock guard(the.core.mutex);
  size_t kept = 0;
  for (size_t i = 0; i < cpu.uses.size(); ++i) {
    if (!the.core.any_block(HOST_SPACE, cpu.uses[i].start, cpu.uses[i].stop)) continue;
    cpu.uses[kept] = cpu.uses[i];
    cpu.tensors[kept++] = cpu.tensors[i];
  }
  cpu.uses.resize(kept);
  cpu.tensors.resize(kept);
}

// Pinned memory takes part from its first asynchronous copy on. `again`: it is new memory, whatever was there before.
void know(const at::Tensor& tensor, bool again, uint32_t site) {
  State& the = state();
  const auto& storage = tensor.storage();
  const Addr base = reinterpret_cast<Addr>(storage.data());
  const Addr size = storage.nbytes();
  if (!base || !size) return;
  Lock guard(the.core.mutex);
  const Block* block = the.core.block_at(HOST_SPACE, base);
  if (block && !again) return;
  if (again) the.core.release_block(HOST_SPACE, base, size);
  the.core.allocate(HOST_SPACE, base, size, nullptr, Owner::pinned, site, 0, false, 0);
  ++the.host_blocks;
}

bool is_known(const at::Tensor& tensor) {
  State& the = state();
  if (!the.host_blocks) return false;
  Lock guard(the.core.mutex);
  return the.core.block_at(HOST_SPACE, reinterpret_cast<Addr>(tensor.storage().data()));
}

// One tensor of a copy between host and device, and how the copy treats it.
enum class HostSide { unseen, by_stream, by_host };

HostSide side_of(const at::Tensor& tensor, bool non_blocking) {
  if (!tensor.defined() || !tensor.has_storage() || !tensor.numel() || !tensor.storage().data()) return HostSide::unseen;
  const bool known = is_known(tensor);
  if (!known && !(non_blocking && tensor.is_pinned())) return HostSide::unseen;  // pageable memory is staged (TM-03)
  if (!known) know(tensor, false, 0);
  // what is not contiguous goes through a temporary of the host's (TM-16, TM-17)
  return tensor.is_contiguous() ? HostSide::by_stream : HostSide::by_host;
}

// The CPU tensors of a copy operator; whatever else an operator does with them the host does.
void see_copy(const Operator& op, const torch::jit::Stack& stack, size_t base, Seen& seen, Touched& by_stream) {
  const bool non_blocking = op.non_blocking >= 0 && stack[base + size_t(op.non_blocking)].isBool() && stack[base + size_t(op.non_blocking)].toBool();
  const bool elsewhere = op.device >= 0 && stack[base + size_t(op.device)].isDevice() && stack[base + size_t(op.device)].toDevice().is_cuda();
  if (seen.device.uses.empty() && !elsewhere) return;  // between tensors of the host
  auto one = [&](const at::Tensor& tensor, Role role) {
    if (!tensor.defined() || !tensor.is_cpu()) return;
    const HostSide side = side_of(tensor, non_blocking);
    if (side == HostSide::unseen) return;
    Seen its;
    see(its, tensor, role);
    for (size_t i = 0; i < its.cpu.uses.size(); ++i) {
      if (side == HostSide::by_stream) by_stream.add(its.cpu.uses[i], its.cpu.tensors[i]);
      else seen.cpu.add(its.cpu.uses[i], its.cpu.tensors[i]);
    }
  };
  seen.cpu.clear();
  for (const auto& argument : op.arguments) {
    const auto& value = stack[base + argument.index];
    if (value.isTensor()) one(value.toTensor(), argument.role);
    else if (value.isTensorList())
      for (const auto& each : value.toListRef()) one(each.toTensor(), argument.role);
  }
}

// ------------------------------------------------------------------------------------------------ autograd

// Where the forward of a backward node was: by its sequence number, for the last ones.
constexpr size_t REMEMBERED = 1 << 16;
std::atomic<uint64_t> forward_sites[REMEMBERED];

void remember_forward(uint32_t site) {
  const uint64_t number = at::sequence_number::peek();
  forward_sites[number % REMEMBERED].store(number << 32 | site, std::memory_order_relaxed);
}

uint32_t forward_site(uint64_t number) {
  const uint64_t entry = forward_sites[number % REMEMBERED].load(std::memory_order_relaxed);
  return (entry >> 32) == (number & 0xffffffff) ? uint32_t(entry) : 0;
}

// The id and the place of an operation: the engine's work is done by backward(), at the line that calls it.
void name_operation(const Operator& op, uint32_t& operation, uint32_t& site) {
  State& the = state();
  operation = op.id;
  site = the.sites.capture();
  const Backward* backward = backward_now();
  if (!backward) return;
  const bool by_hook = site && site != backward->site;  // a line of a hook, or of a Function's own backward
  if (by_hook) {
    const auto node = torch::autograd::get_current_node();
    if (!node) return;
    const torch::autograd::Node& made = *node;
    if (!std::strstr(typeid(made).name(), "PyNode")) return;
  } else {
    site = backward->site;
  }
  std::string name;
  uint32_t forward = 0;
  static thread_local std::unordered_map<uint64_t, uint32_t> known;
  uint64_t key = op.id * 2 + by_hook + (by_hook ? uint64_t(backward->site) * 0x9E3779B97F4A7C15ull : 0);
  if (const auto node = torch::autograd::get_current_node()) {
    forward = forward_site(node->sequence_nr());
    key ^= typeid(*node).hash_code() * 31 + (uint64_t(forward) << 32);
    auto found = known.find(key);
    if (found != known.end()) {
      operation = found->second;
      return;
    }
    name = node->name();
  } else {
    key ^= 0x5bd1e995;
    auto found = known.find(key);
    if (found != known.end()) {
      operation = found->second;
      return;
    }
  }
  operation = known[key] = the.intern_backward(op.id, by_hook ? op.name : "backward()", name, forward, by_hook ? backward->site : 0);
}

// ------------------------------------------------------------------------------------------------ operators

c10::DispatchKeySet below(c10::DispatchKeySet keys) { return keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, KEY); }

// On the device's current stream, for each device that takes part.
void enqueue_all(Seen& seen, uint32_t operation, uint32_t site, bool may_raise) {
  if (!seen.several) {
    const Queue queue = queue_now(seen.index);
    enqueue(&queue, seen.device, operation, site, may_raise);
    return;
  }
  std::map<int, Touched> parts;
  for (size_t i = 0; i < seen.device.uses.size(); ++i) parts[seen.device.uses[i].space].add(seen.device.uses[i], seen.device.tensors[i]);
  for (auto& [device, touched] : parts) {
    const Queue queue = queue_now(device);
    enqueue(&queue, touched, operation, site, may_raise);
  }
}

// A collective's work is on the stream that waited and recorded inside it; it comes before the event that was recorded.
// Of coalesced ones each only waits, and the event is recorded when they end.
void collective_done(const Touched& touched, uint32_t operation, uint32_t site, int device) {
  State& the = state();
  const Queue now = queue_now(device);
  const bool elsewhere = here.waited && (here.recorded == here.waited || here.coalescing);
  const Addr handle = elsewhere ? here.waited : now.handle;
  const Key thread = the.thread();
  std::vector<Report> reports;
  {
    Lock guard(the.core.mutex);
    Timeline& line = the.line(now.device, handle);
    const bool shown = line.shown;
    line.shown = false;
    if (!the.core.access(line, touched.uses.data(), touched.uses.size(), operation, site, thread)) {
      reports = take_reports(the.core);
      the.core.access(line, touched.uses.data(), touched.uses.size(), operation, site, thread, true);
    }
    line.shown = shown;
    // a trace has the record before this access, which comes before it: it gets the record again
    if (elsewhere && here.recorded == here.waited && !here.coalescing) the.core.say(Verb::record, here.event, line.id, thread, site, 0);
  }
  if (!reports.empty()) judge(reports, operation, &touched, true);
}

struct Inside {
  Here before = here;
  Inside(const Operator& op, uint32_t operation, uint32_t site, int device) {
    here.inside = &op;
    here.operation = operation;
    here.site = site;
    here.device = device;
    if (op.collective) here.waited = here.recorded = here.event = 0;
  }
  ~Inside() { here = before; }
};

// Vectors that are used again and again; an operator may run inside another.
struct Scratch {
  static constexpr size_t DEEP = 8;
  Seen seen[DEEP];
  size_t depth = 0;
};
thread_local Scratch scratch;

struct Borrowed {
  Seen own, *seen;
  Borrowed() : seen(scratch.depth < Scratch::DEEP ? &scratch.seen[scratch.depth] : &own) {
    ++scratch.depth;
    seen->clear();
  }
  ~Borrowed() { --scratch.depth; }
};

void raise_pending() {
  State& the = state();
  if (!the.pending.exchange(false)) return;
  std::vector<Report> reports;
  {
    Lock guard(the.core.mutex);
    reports.swap(the.stashed);
  }
  judge(reports, 0, nullptr, true);
}

// A result in an argument's memory is that argument, whatever the schema says.
void drop_given(Touched& results, const Touched& arguments) {
  if (results.uses.size() > 8 || arguments.uses.size() > 64) return;
  size_t kept = 0;
  for (size_t i = 0; i < results.uses.size(); ++i) {
    bool given = false;
    for (const Use& use : arguments.uses) given = given || (use.start == results.uses[i].start && use.stop == results.uses[i].stop);
    if (given) continue;
    results.uses[kept] = results.uses[i];
    results.tensors[kept++] = results.tensors[i];
  }
  results.uses.resize(kept);
  results.tensors.resize(kept);
}

// New host memory where copies once used some: torch's pinned pool waits for them before it gives it out again (TM-13).
void forget_host(const Seen& arguments, const c10::IValue& value) {
  if (value.isList()) {
    for (const auto& each : value.toListRef()) forget_host(arguments, each);
    return;
  }
  if (!value.isTensor()) return;
  const at::Tensor& tensor = value.toTensor();
  if (!tensor.defined() || !tensor.is_cpu() || !tensor.has_storage()) return;
  const Addr base = reinterpret_cast<Addr>(tensor.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl()->_mutable_data_ptr_no_checks().get());
  for (const Use& use : arguments.cpu.uses)
    if (use.start == base) return;  // an argument
  State& the = state();
  Lock guard(the.core.mutex);
  const Block* block = base ? the.core.block_at(HOST_SPACE, base) : nullptr;
  if (block) the.core.release_block(HOST_SPACE, block->start, block->stop - block->start);
}

// Inside a capture the host must not wait: said before CUDA loses the capture.
void refuse_wait(const Operator& op, const torch::jit::Stack& stack, size_t base, const Seen& seen, uint32_t operation, uint32_t site) {
  bool waits = op.synchronizes;
  if (op.copy && !waits) {
    const auto& flag = op.non_blocking >= 0 ? stack[base + size_t(op.non_blocking)] : stack[base];
    const bool non_blocking = flag.isBool() && flag.toBool();
    bool host = false;
    for (const auto& argument : op.arguments)
      if (stack[base + argument.index].isTensor()) {
        const at::Tensor& tensor = stack[base + argument.index].toTensor();
        host = host || (tensor.defined() && tensor.is_cpu() && tensor.dim());
      }
    if (op.device >= 0 && stack[base + size_t(op.device)].isDevice()) host = host || stack[base + size_t(op.device)].toDevice().is_cpu();
    waits = host && !non_blocking;
  }
  if (!waits) return;
  State& the = state();
  const Queue queue = queue_now(seen.index);
  std::vector<Report> reports;
  {
    Lock guard(the.core.mutex);
    if (the.core.synchronizes(the.line(queue.device, queue.handle), operation, site)) return;
    reports = take_reports(the.core);
  }
  judge(reports, operation, nullptr, true);
}

// Of a capture: what would not be repeated when the graph is launched.
void refuse_unrepeated(Violation which, int device, uint32_t operation, uint32_t site) {
  State& the = state();
  const Queue queue = queue_now(device);
  std::vector<Report> reports;
  {
    Lock guard(the.core.mutex);
    if (the.core.refuses(which, the.line(queue.device, queue.handle), operation, site)) return;
    reports = take_reports(the.core);
  }
  judge(reports, operation, nullptr, true);
}

// Numbers are drawn from a generator that the graph does not keep (GM-gen_unreg).
void refuse_generator(const Operator& op, const torch::jit::Stack& stack, size_t base, uint32_t operation, uint32_t site) {
  const auto& value = stack[base + size_t(op.generator)];
  if (!value.isGenerator()) return;
  const at::Generator generator = value.toGenerator();
  if (!generator.defined() || generator.device().type() != c10::DeviceType::CUDA) return;
  State& the = state();
  {
    Lock guard(the.core.mutex);
    if (the.generators.count(generator.unsafeGetGeneratorImpl())) return;
  }
  refuse_unrepeated(Violation::generator, generator.device().index(), operation, site);
}

// The host writes pinned memory, once; a captured copy reads it at each launch (GC-03, GC-19).
void note_host_write(const Operator& op, const torch::jit::Stack& stack, size_t base, uint32_t operation, uint32_t site) {
  for (const auto& argument : op.arguments) {
    if (argument.role != Role::write || !stack[base + argument.index].isTensor()) continue;
    const at::Tensor& tensor = stack[base + argument.index].toTensor();
    if (!tensor.defined() || !tensor.is_cpu() || !tensor.has_storage() || !tensor.numel() || !tensor.is_pinned()) continue;
    const Addr start = reinterpret_cast<Addr>(tensor.const_data_ptr());
    Lock guard(state().core.mutex);
    state().written.push_back({start, start + Addr(tensor.storage().nbytes() - tensor.storage_offset() * tensor.itemsize()), operation, site});
  }
}
void refuse_host_work(const Touched& by_stream, int device) {
  State& the = state();
  for (const Use& use : by_stream.uses) {
    if (use.mode != Mode::reads) continue;
    State::Written found{};
    {
      Lock guard(the.core.mutex);
      for (auto& each : the.written)
        if (each.start < use.stop && use.start < each.stop) found = each;
    }
    if (found.stop) refuse_unrepeated(Violation::host_work, device, found.operation, found.site);
  }
}

// An operator on wrapper subclasses is one on what they hold. It counts once it is done: in it there may be waits, and
// what the host has waited for in it is over.
void operate_on_subclasses(const Operator& op, const c10::OperatorHandle& handle, c10::DispatchKeySet keys, torch::jit::Stack* stack, Seen& seen) {
  State& the = state();
  const std::vector<std::pair<at::Tensor, Role>> wrappers = std::move(seen.subclasses);
  see_held(seen, wrappers);
  uint32_t operation = op.id, site = 0;
  const uint64_t waits = the.counters.synchronizations;
  if (seen.device.uses.empty()) {
    handle.redispatchBoxed(below(keys), stack);
  } else {
    name_operation(op, operation, site);
    Inside inside(op, operation, site, seen.index);
    handle.redispatchBoxed(below(keys), stack);
  }
  Borrowed made;
  const size_t first = stack->size() - op.result_count;
  for (const auto& result : op.results) see(*made.seen, (*stack)[first + result.index], result.role);
  const std::vector<std::pair<at::Tensor, Role>> results = std::move(made.seen->subclasses);
  see_held(*made.seen, results);
  drop_given(made.seen->device, seen.device);
  the.counters.operators.fetch_add(1, std::memory_order_relaxed);
  for (Seen* each : {&seen, made.seen}) {
    if (each->device.uses.empty() || (each == &seen && the.counters.synchronizations != waits)) continue;
    if (!site) name_operation(op, operation, site);
    the.counters.uses.fetch_add(each->device.uses.size(), std::memory_order_relaxed);
    enqueue_all(*each, operation, site, true);
  }
}

void operate(const c10::OperatorHandle& handle, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  State& the = state();
  if (!the.on.load(std::memory_order_relaxed)) {
    c10::impl::ExcludeDispatchKeyGuard exclude(KEY);  // what it calls need not come here
    handle.redispatchBoxed(below(keys), stack);
    return;
  }
  const Operator& op = the.table.of(handle, [&](const std::string& name) { return the.intern(name); });
  if (op.skip || op.pass) {
    handle.redispatchBoxed(below(keys), stack);
    return;
  }
  Borrowed borrowed;
  Seen& seen = *borrowed.seen;
  const size_t base = stack->size() - op.argument_count;
  for (const auto& argument : op.arguments) see(seen, (*stack)[base + argument.index], argument.role);
  if (seen.wrapped) {  // functorch's call comes back with what its wrappers hold
    if (seen.subclasses.empty()) handle.redispatchBoxed(below(keys), stack);
    else operate_on_subclasses(op, handle, keys, stack, seen);
    return;
  }
  if (the.pending.load(std::memory_order_relaxed)) raise_pending();
  the.counters.operators.fetch_add(1, std::memory_order_relaxed);
  uint32_t operation = op.id, site = 0;
  Touched by_stream;
  if (!seen.device.uses.empty() || !seen.cpu.uses.empty() || op.copy || !op.results.empty()) name_operation(op, operation, site);
  if (op.copy && the.host) see_copy(op, *stack, base, seen, by_stream);
  if (the.capturing.load(std::memory_order_relaxed)) {
    if (!site) name_operation(op, operation, site);
    if (!seen.device.uses.empty()) refuse_wait(op, *stack, base, seen, operation, site);
    if (op.generator >= 0) refuse_generator(op, *stack, base, operation, site);
    if (!by_stream.uses.empty()) refuse_host_work(by_stream, seen.index);
    else if (seen.device.uses.empty()) note_host_write(op, *stack, base, operation, site);
  }
  if (!seen.cpu.uses.empty()) {
    keep_known(seen.cpu);
    if (!seen.cpu.uses.empty() && the.host) enqueue(nullptr, seen.cpu, operation, site);
  }
  for (size_t i = 0; i < by_stream.uses.size(); ++i) seen.device.add(by_stream.uses[i], by_stream.tensors[i]);
  const bool device = !seen.device.uses.empty();
  if (device) {
    the.counters.uses.fetch_add(seen.device.uses.size(), std::memory_order_relaxed);
    if (op.collective) {
      // before it is enqueued: what the current stream does not come after, the collective's does not either
      const Queue queue = queue_now(seen.index);
      const Key thread = the.thread();
      std::vector<Report> reports;
      {
        Lock guard(the.core.mutex);
        if (!the.core.check(the.line(queue.device, queue.handle), seen.device.uses.data(), seen.device.uses.size(), operation, site, thread))
          reports = take_reports(the.core);
      }
      if (!reports.empty()) judge(reports, operation, &seen.device, true);
    } else {
      enqueue_all(seen, operation, site, true);
    }
  }
  if (at::GradMode::is_enabled()) remember_forward(site);
  const bool from_host = op.copy && op.makes_copy && (*stack)[base].isTensor() && (*stack)[base].toTensor().is_cpu();
  const bool non_blocking = op.copy && op.non_blocking >= 0 && (*stack)[base + size_t(op.non_blocking)].isBool() &&
                            (*stack)[base + size_t(op.non_blocking)].toBool();
  if (op.collective && device) {
    Inside inside(op, operation, site, seen.index);
    {
      c10::impl::ExcludeDispatchKeyGuard exclude(KEY);
      handle.redispatchBoxed(below(keys), stack);
    }
    collective_done(seen.device, operation, site, seen.index);
    return;
  }
  {
    Inside inside(op, operation, site, seen.index);
    c10::impl::ExcludeDispatchKeyGuard exclude(KEY);
    handle.redispatchBoxed(below(keys), stack);
  }
  if (op.results.empty()) return;
  const size_t first = stack->size() - op.result_count;
  Borrowed made;
  for (const auto& result : op.results) see(*made.seen, (*stack)[first + result.index], result.role);
  if (made.seen->wrapped) return;
  drop_given(made.seen->device, seen.device);
  if (!made.seen->device.uses.empty()) {
    if (!site) name_operation(op, operation, site);
    the.counters.uses.fetch_add(made.seen->device.uses.size(), std::memory_order_relaxed);
    enqueue_all(*made.seen, operation, site, true);
  }
  if (!the.host) return;
  if (op.makes_copy && !from_host && (*stack)[first].isTensor()) {
    const at::Tensor& copy = (*stack)[first].toTensor();
    if (non_blocking && copy.is_cpu() && copy.numel() && copy.is_pinned()) {  // the copy of a device tensor (TM-05)
      know(copy, true, site);
      Seen its;
      see(its, copy, Role::write);
      const Queue queue = queue_now(seen.index);
      if (!its.cpu.uses.empty()) enqueue(&queue, its.cpu, operation, site);
    }
    return;
  }
  if (the.host_blocks.load(std::memory_order_relaxed))
    for (const auto& result : op.results) forget_host(seen, (*stack)[first + result.index]);
}

TORCH_LIBRARY_IMPL(_, TESTING_ONLY_GenericMode, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&operate>());
}

// ------------------------------------------------------------------------------------------------ for Python

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
      the.core.say(Verb::gradient, device, block->start, block->stop);
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
  // a child may have been forked while another thread held a lock; CUDA does not survive a fork either
  pthread_atfork(nullptr, nullptr, []() {
    state().on = false;
    state().pending = false;
  });
  module.def("attach", [](py::object internal) {
    state().sites.ask(internal.ptr());
    listen();
    return memory::attach();
  });
  module.def("start", &start);
  module.def("stop", &stop);
  module.def("core", []() { return reinterpret_cast<uintptr_t>(&state().core); });
  module.def("include_thread", [](bool on) { c10::impl::tls_set_dispatch_key_included(KEY, on); });
  module.def("set_thread", [](Key key, bool main) {
    State::thread_key = key;
    if (main) state().main_thread = key;
  });
  module.def("set_pending", [](bool pending) { state().pending = pending; });
  module.def("set_capturing", [](bool capturing, const std::vector<uintptr_t>& generators) {
    State& the = state();
    Lock guard(the.core.mutex);
    the.capturing = capturing;
    the.generators.clear();
    for (uintptr_t each : generators) the.generators.insert(reinterpret_cast<const void*>(each));
    if (!capturing) the.written.clear();
  });
  module.def("set_refused", [](bool refused) { here.refused = refused; });
  module.def("set_coalescing", [](bool coalescing) { here.coalescing = coalescing; });
  module.def("take_stashed", []() {
    Lock guard(state().core.mutex);
    return std::exchange(state().stashed, {});
  });
  module.def("launch", &launch);
  module.def("host_access", &host_access);
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
  module.def("line_of", &line_of);
  module.def("operation_of", &operation_of);
  module.def("site", [](uint32_t id) { return py::reinterpret_steal<py::object>(state().sites.pairs(id)); });
  module.def("site_now", []() { return state().sites.capture(); });
  module.def("block_callback", []() { return reinterpret_cast<uintptr_t>(&memory::block_callback); });
  module.def("self_test", &self_test);
  module.def("counters", &counters);
  // for an audit: the operator in whose kernel the calling thread is; empty: in none
  module.def("inside", []() { return here.inside ? here.inside->name : std::string(); });
}
