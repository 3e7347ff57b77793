// Collectives on device tensors: a group's CPU backend (gloo) runs them on the same bytes, and they are ordered as
// ProcessGroupNCCL orders them. A group has a stream for its collectives on each device, and one for each pair of ranks that
// send outside a batch; it waits for the current stream, and the work's `wait()` has the current stream wait for it. A
// blocking call of NCCL is work of the current stream (torch 2.8).
#include "device.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/reducer_timer.hpp>
#include <torch/library.h>
#include <torch/version.h>

#include <dlfcn.h>

#include <list>
#include <mutex>
#include <optional>
#include <vector>

namespace simulated {

// kernels.cpp
bool captured(Queue queue);
void keep_before(Queue queue, const at::Tensor& written);

namespace {

constexpr bool BLOCKING_ON_CURRENT = TORCH_VERSION_MAJOR > 2 || TORCH_VERSION_MINOR >= 8;

using c10d::ProcessGroup;
using c10d::Work;

// What runs below the program's own operator: nobody sees the CPU's.
struct Unseen {
  c10::impl::ExcludeDispatchKeyGuard modes{c10::DispatchKeySet(
      {c10::DispatchKey::TESTING_ONLY_GenericMode, c10::DispatchKey::Python, c10::DispatchKey::PythonTLSSnapshot})};
};

// A CPU tensor over a device tensor's bytes. Types that gloo lacks are bytes, in one dimension more. A flat one has one
// dimension: NCCL counts elements where gloo compares shapes.
at::Tensor on_cpu(const at::Tensor& tensor, bool flat = false) {
  c10::DataPtr bytes(tensor.storage().mutable_data(), c10::kCPU);
  c10::Storage storage(c10::Storage::use_byte_size_t(), tensor.storage().nbytes(), std::move(bytes), nullptr, false);
  const at::ScalarType type = tensor.scalar_type();
  const bool known = type == at::kFloat || type == at::kDouble || type == at::kHalf || type == at::kBFloat16 || type == at::kChar ||
                     type == at::kByte || type == at::kInt || type == at::kLong;
  auto made = at::detail::make_tensor<c10::TensorImpl>(std::move(storage), c10::DispatchKeySet(c10::DispatchKey::CPU),
                                                       known ? tensor.dtype() : c10::scalarTypeToTypeMeta(at::kByte));
  auto sizes = tensor.sizes().vec(), strides = tensor.strides().vec();
  int64_t offset = tensor.storage_offset();
  if (flat && tensor.is_contiguous()) {
    sizes = {tensor.numel()};
    strides = {1};
  }
  if (!known && tensor.itemsize() > 1) {
    const auto width = int64_t(tensor.itemsize());
    for (int64_t& stride : strides) stride *= width;
    sizes.push_back(width);
    strides.push_back(1);
    offset *= width;
  }
  made.unsafeGetTensorImpl()->set_storage_offset(offset);
  made.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides);
  return made;
}

// An event, recorded on a queue when it is made.
struct Recorded {
  void* event;
  DeviceIndex device;
  explicit Recorded(Queue queue) : event(record_event_on(queue)), device(queue.first) {}
  Recorded(const Recorded&) = delete;
  Recorded& operator=(const Recorded&) = delete;
  ~Recorded() { destroy_event(event, device); }
};

// Without Python's lock, if this thread has it: gloo's threads take it to release what a work has kept of Python, and only
// then go on. This library is built for every Python, so its functions are looked up.
class WithoutPython {
  template <class Function>
  static Function* named(const char* name) {
    return reinterpret_cast<Function*>(dlsym(RTLD_DEFAULT, name));
  }
  void* state = nullptr;

 public:
  WithoutPython() {
    static const auto held = named<int()>("PyGILState_Check");
    static const auto save = named<void*()>("PyEval_SaveThread");
    if (held && save && held()) state = save();
  }
  WithoutPython(const WithoutPython&) = delete;
  WithoutPython& operator=(const WithoutPython&) = delete;
  ~WithoutPython() noexcept(false) {  // a thread that comes back while Python ends is unwound
    static const auto restore = named<void(void*)>("PyEval_RestoreThread");
    if (state) restore(state);
  }
};

// -- what runs -----------------------------------------------------------------------------------------------------------

// One collective: gloo works in a thread of its own until `finish`, and what is left to do is done there.
struct Run {
  std::vector<std::pair<at::Tensor, at::Tensor>> pairs;  // device, CPU; gloo does not keep their bytes, the pairs do
  std::optional<c10::OperatorHandle> op;
  torch::jit::Stack arguments;  // with the CPU tensors
  double factor = 1;            // of the results, and a divisor: gloo has no mean
  int64_t divisor = 1;
  size_t results = 0;           // how many of the pairs are results of a reduction: they come first
  DeviceIndex device = 0;
  bool flat = false;            // the CPU tensors
  std::mutex mutex;
  bool done = false;
  c10::intrusive_ptr<Work> inner;

  at::Tensor down(const at::Tensor& tensor) {
    if (!tensor.defined() || !tensor.is_cuda()) return tensor;
    for (auto& [on_device, cpu] : pairs)
      if (on_device.is_same(tensor)) return cpu;
    if (pairs.empty()) device = DeviceIndex(tensor.get_device());
    pairs.emplace_back(tensor, on_cpu(tensor, flat));
    return pairs.back().second;
  }
  at::Tensor up(const at::Tensor& tensor) {
    for (auto& [on_device, cpu] : pairs)
      if (cpu.is_same(tensor)) return on_device;
    return tensor;
  }

  template <class Change>
  static c10::IValue changed(const c10::IValue& value, Change change) {
    if (value.isTensor()) return change(value.toTensor());
    if (value.isTensorList()) {
      std::vector<at::Tensor> made;
      for (const at::Tensor& each : value.toTensorVector()) made.push_back(change(each));
      return made;
    }
    if (!value.isList() || value.toListRef().empty() || !value.toListRef()[0].isTensorList()) return value;
    std::vector<std::vector<at::Tensor>> lists;
    for (const c10::IValue& list : value.toListRef()) {
      lists.emplace_back();
      for (const at::Tensor& each : list.toTensorVector()) lists.back().push_back(change(each));
    }
    return lists;
  }

  // The mean, and a sum with a factor, are sums whose results are multiplied.
  void reduce(c10::IValue& value, int ranks) {
    const auto reduction = value.toCustomClass<c10d::ReduceOp>();
    const bool truth = !pairs.empty() && pairs[0].first.scalar_type() == at::kBool;
    if (reduction->op_ == c10d::ReduceOp::AVG) {
      divisor = ranks;
    } else if (reduction->op_ == c10d::ReduceOp::PREMUL_SUM) {
      auto* given = static_cast<c10d::NCCLPreMulSumSupplement*>(reduction->supplement_.get());
      factor = given->tensor_factor.defined() ? on_cpu(given->tensor_factor).item<double>() : given->double_factor;
    } else if (truth && reduction->op_ == c10d::ReduceOp::SUM) {
      value = c10::make_intrusive<c10d::ReduceOp>(c10d::ReduceOp::MAX);
      return;
    } else {
      return;
    }
    value = c10::make_intrusive<c10d::ReduceOp>(c10d::ReduceOp::SUM);
  }

  torch::jit::Stack start() {
    Unseen unseen;
    torch::jit::Stack stack = arguments;
    op->callBoxed(&stack);
    if (!stack.empty() && stack.back().isObject()) inner = stack.back().toCustomClass<Work>();
    return stack;
  }

  bool over() {  // false while another thread finishes it
    std::unique_lock<std::mutex> locked(mutex, std::try_to_lock);
    return locked.owns_lock() && (done || !inner || inner->isCompleted());
  }

  void finish() {
    WithoutPython waiting;
    std::lock_guard<std::mutex> locked(mutex);
    if (done) return;
    done = true;
    if (inner) inner->wait();
    if (factor == 1 && divisor == 1) return;
    Unseen unseen;
    c10::impl::ExcludeDispatchKeyGuard autograd{c10::autograd_dispatch_keyset_with_ADInplaceOrView};
    for (size_t i = 0; i < results; ++i) {
      at::Tensor& result = pairs[i].second;
      if (!at::isFloatingType(result.scalar_type())) result.div_(divisor, "trunc");
      else if (divisor != 1) result.div_(divisor);
      if (factor != 1) result.mul_(factor);
    }
  }
};

// -- groups --------------------------------------------------------------------------------------------------------------

struct Group {
  c10::weak_intrusive_ptr<ProcessGroup> program;  // the program's group
  c10::intrusive_ptr<ProcessGroup> cpu;           // one that has its backend for CPU tensors
  bool nccl = false, streams = false;  // its backend is NCCL; it works on streams of its own, as NCCL and gloo do
  std::map<std::pair<DeviceIndex, int64_t>, Queue> queues;
  bool coalescing = false;
  std::vector<c10::intrusive_ptr<Work>> together;  // since the batch began

  Queue queue(DeviceIndex device, int64_t peer) {
    if (!nccl) return new_queue(device);  // gloo has one for each call
    auto found = queues.find({device, peer});
    if (found == queues.end()) found = queues.emplace(std::make_pair(device, peer), new_queue(device)).first;
    return found->second;
  }
};

// All under the lock.
auto& groups = forever<std::map<const ProcessGroup*, Group>>();
auto& running = forever<std::list<std::weak_ptr<Run>>>();
auto& dropped = forever<std::list<std::pair<std::shared_ptr<Run>, Queue>>>();  // works that nobody waited for

Group& group_of(const c10::intrusive_ptr<ProcessGroup>& program) {
  auto found = groups.find(program.get());
  if (found != groups.end() && !found->second.program.expired()) return found->second;
  for (auto it = groups.begin(); it != groups.end();) it = it->second.program.expired() ? groups.erase(it) : std::next(it);
  auto backend = program->getBackend(c10::kCUDA);
  auto cpu = c10::make_intrusive<ProcessGroup>(program->getRank(), program->getSize());
  cpu->setBackend(c10::kCPU, ProcessGroup::BackendType::GLOO, backend);
  const bool gloo = backend->getBackendName() == "gloo";
  Group made{c10::weak_intrusive_ptr<ProcessGroup>(program), cpu, false, gloo, {}, false, {}};
  return groups.insert_or_assign(program.get(), std::move(made)).first->second;
}

// Lets go of what works held that nobody waited for: the allocator hears which stream used it, as it does of NCCL's.
void let_go(bool of_all) {
  std::list<std::pair<std::shared_ptr<Run>, Queue>> over;
  {
    std::lock_guard<std::recursive_mutex> locked(lock());
    for (auto it = dropped.begin(); it != dropped.end();) {
      auto next = std::next(it);
      if (of_all || it->first->over()) over.splice(over.end(), dropped, it);
      it = next;
    }
  }
  for (auto& [run, queue] : over) {
    run->finish();
    for (auto& [on_device, cpu] : run->pairs) record_on_queue(on_device.storage().mutable_data(), queue);
  }
}

// What a call of NCCL returns: `wait()` has the current stream wait for the group's.
struct StreamWork final : Work {
  std::shared_ptr<Run> run;
  std::vector<c10::intrusive_ptr<Work>> parts;  // of a batch
  Queue queue;
  std::unique_ptr<Recorded> end;
  bool barrier = false;
  std::vector<at::Tensor> outputs;

  explicit StreamWork(Queue queue) : queue(queue) {}
  ~StreamWork() override {
    if (!run) return;
    std::lock_guard<std::recursive_mutex> locked(lock());
    dropped.emplace_back(std::move(run), queue);
  }

  void finish_parts() {
    for (auto& part : parts) static_cast<StreamWork&>(*part).finish_parts();
    if (run) run->finish();
  }
  bool isCompleted() override {
    for (auto& part : parts)
      if (!part->isCompleted()) return false;
    return !run || run->over();
  }
  bool isSuccess() const override { return true; }
  std::exception_ptr exception() const override { return nullptr; }
  int sourceRank() const override { return run && run->inner ? run->inner->sourceRank() : -1; }
  std::vector<at::Tensor> result() override { return outputs; }
  void synchronize() override {
    finish_parts();
    Queue current = current_queue(queue.first);
    if (end && current != queue) wait_for_event(end->event, current);
    if (barrier) host_waits(current);
    for (auto& part : parts) static_cast<StreamWork&>(*part).run.reset();
    run.reset();
  }
  bool wait(std::chrono::milliseconds) override {
    synchronize();
    return true;
  }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override {
    finish_parts();
    const c10::Device device(c10::kCUDA, queue.first);
    auto made = c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()), std::vector<c10::Device>{device});
    const c10::DeviceGuard on_device(device);
    const Queue before = exchange_queue(queue);  // the future records its event on the current stream
    made->markCompleted(c10::IValue(outputs));
    exchange_queue(before);
    return made;
  }
};

// -- the operators -------------------------------------------------------------------------------------------------------

const c10::IValue* argument(const c10::FunctionSchema& schema, const torch::jit::Stack& stack, const char* name) {
  const std::optional<int> index = schema.argumentIndexWithName(name);
  return index ? &stack[stack.size() - schema.arguments().size() + size_t(*index)] : nullptr;
}

void collect(const c10::IValue& value, std::vector<at::Tensor>& into) {
  Run::changed(value, [&](const at::Tensor& tensor) {
    if (tensor.defined()) into.push_back(tensor);
    return tensor;
  });
}

// In a capture: a replay runs it again, on the CPU tensors alone, and what it writes meanwhile is undone.
void remember(Queue queue, Run& run) {
  if (!captured(queue)) return;
  run.finish();
  auto again = std::make_shared<Run>();
  again->op = run.op;
  again->arguments = run.arguments;
  again->factor = run.factor;
  again->divisor = run.divisor;
  again->results = run.results;
  for (auto& [on_device, cpu] : run.pairs) again->pairs.emplace_back(at::Tensor(), cpu);
  add_node(queue, [again] {
    again->done = false;
    again->start();
    again->finish();
  });
}

void collective(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  let_go(false);
  const c10::FunctionSchema& schema = op.schema();
  const size_t count = schema.arguments().size(), first = stack->size() - count;
  auto run = std::make_shared<Run>();
  run->op = op;
  for (const char* one_output : {"c10d::_allgather_base_", "c10d::_reduce_scatter_base_",
                                 "c10d::allgather_into_tensor_coalesced_", "c10d::reduce_scatter_tensor_coalesced_"})
    run->flat = run->flat || schema.name() == one_output;
  std::vector<at::Tensor> outputs;
  collect((*stack)[first], outputs);
  for (size_t i = first; i < stack->size(); ++i) {
    run->arguments.push_back(Run::changed((*stack)[i], [&](const at::Tensor& tensor) { return run->down(tensor); }));
    if (i == first) run->results = run->pairs.size();
  }
  const auto index = [&](const char* name) { return size_t(*schema.argumentIndexWithName(name)); };
  const auto program = (*stack)[first + index("process_group")].toCustomClass<ProcessGroup>();
  const c10::IValue* asynchronous = argument(schema, *stack, "async_op");
  int64_t peer = -1;
  bool together = false, streams = false;
  const Queue current = current_queue(run->device);
  Queue queue = current;
  {
    std::lock_guard<std::recursive_mutex> locked(lock());
    Group& group = group_of(program);
    run->arguments[index("process_group")] = group.cpu;
    together = group.coalescing;
    for (const char* name : {"dst", "src"})  // outside a batch, each pair of ranks has a stream
      if (const c10::IValue* given = argument(schema, *stack, name); given && !together) peer = given->toInt();
    const bool blocking = group.nccl && BLOCKING_ON_CURRENT && asynchronous && !asynchronous->toBool();
    streams = group.streams;
    if (streams && !blocking) queue = group.queue(run->device, peer);
    running.remove_if([](const std::weak_ptr<Run>& each) { return each.expired(); });
    running.push_back(run);
  }
  if (const std::optional<int> reduction = schema.argumentIndexWithName("reduce_op"))
    run->reduce(run->arguments[size_t(*reduction)], program->getSize());
  if (queue != current) wait_for_event(Recorded(current).event, queue);
  for (auto& [on_device, cpu] : run->pairs) keep_before(queue, on_device);
  torch::jit::Stack results = run->start();
  const bool barrier = schema.name() == "c10d::barrier";
  c10::intrusive_ptr<Work> work;
  remember(queue, *run);
  if (queue != current) {
    auto made = c10::make_intrusive<StreamWork>(queue);
    made->run = run;
    made->barrier = barrier;
    made->outputs = std::move(outputs);
    made->end = std::make_unique<Recorded>(queue);
    work = made;
    if (together) {
      std::lock_guard<std::recursive_mutex> locked(lock());
      group_of(program).together.push_back(work);
    }
  } else {
    run->finish();
    if (barrier) host_waits(current);
    if (!streams) work = run->inner;
  }
  for (c10::IValue& result : results)
    result = result.isObject() ? c10::IValue(work) : Run::changed(result, [&](const at::Tensor& tensor) { return run->up(tensor); });
  stack->erase(stack->begin() + long(first), stack->end());
  for (c10::IValue& result : results) stack->push_back(std::move(result));
}

struct Quiet final : c10::WarningHandler {
  void process(const c10::Warning&) override {}
};

// In place of what a CPU build has for CUDA: that calls the backend of CUDA tensors, which gloo's cannot read.
void run_on_cpu() {
  static auto* library = new torch::Library(torch::Library::IMPL, "c10d", c10::DispatchKey::CUDA, __FILE__, __LINE__);
  Quiet quiet;
  c10::WarningUtils::WarningHandlerGuard guard(&quiet);  // each replaces a kernel
  auto& dispatcher = c10::Dispatcher::singleton();
  for (const c10::OperatorName& name : dispatcher.getAllOpNames()) {
    auto op = name.name.rfind("c10d::", 0) == 0 ? dispatcher.findSchema(name) : std::nullopt;
    if (op && op->hasKernelForDispatchKey(c10::DispatchKey::CUDA) && op->schema().argumentIndexWithName("process_group"))
      library->impl(name.name.substr(6).c_str(), torch::CppFunction::makeFromBoxedFunction<&collective>());
  }
}

// -- what Python says of groups --------------------------------------------------------------------------------------------

void nccl_group(const c10::intrusive_ptr<ProcessGroup>& program) {
  std::lock_guard<std::recursive_mutex> locked(lock());
  Group& group = group_of(program);
  group.nccl = group.streams = true;
}

bool is_nccl(const c10::intrusive_ptr<ProcessGroup>& program) {
  std::lock_guard<std::recursive_mutex> locked(lock());
  return group_of(program).nccl;
}

void start_coalescing(const c10::intrusive_ptr<ProcessGroup>& program) {
  std::lock_guard<std::recursive_mutex> locked(lock());
  Group& group = group_of(program);
  group.coalescing = true;
  group.together.clear();
}

// The work of all that has been started since; none where all was work of the current stream.
std::optional<c10::intrusive_ptr<Work>> end_coalescing(const c10::intrusive_ptr<ProcessGroup>& program) {
  std::vector<c10::intrusive_ptr<Work>> parts;
  {
    std::lock_guard<std::recursive_mutex> locked(lock());
    Group& group = group_of(program);
    group.coalescing = false;
    parts.swap(group.together);
  }
  if (parts.empty()) return std::nullopt;
  auto made = c10::make_intrusive<StreamWork>(static_cast<StreamWork&>(*parts[0]).queue);
  for (auto& part : parts)
    for (const at::Tensor& output : part->result()) made->outputs.push_back(output);
  made->parts = std::move(parts);
  made->end = std::make_unique<Recorded>(made->queue);
  return made;
}

}  // namespace

void finish_collectives() {
  std::list<std::weak_ptr<Run>> all;
  {
    std::lock_guard<std::recursive_mutex> locked(lock());
    if (running.empty()) return;
    all.swap(running);
  }
  for (auto& each : all)
    if (auto run = each.lock()) run->finish();
  let_go(true);
}

TORCH_LIBRARY(streamsafe_simulated, library) {
  library.def("nccl_group", nccl_group);
  library.def("is_nccl", is_nccl);
  library.def("start_coalescing", start_coalescing);
  library.def("end_coalescing", end_coalescing);
}

}  // namespace simulated

namespace c10d {
namespace {

// What DistributedDataParallel measures its steps with: work takes no time here, so the host's clock does.
struct HostTimer final : Timer {
  explicit HostTimer(c10::Device) {}
  std::optional<int64_t> measureDifference(Event start, Event end) override {
    const std::optional<int64_t> first = getTimestamp(start), last = getTimestamp(end);
    return first && last && *last >= *first ? std::optional<int64_t>(*last - *first) : std::nullopt;
  }
};

C10_REGISTER_TYPED_CLASS(TimerRegistry, c10::kCUDA, HostTimer)

}  // namespace
}  // namespace c10d

// From now on; asked for when a process has its first group of gloo for the device.
EXPORTED void streamsafe_simulated_collectives_on_cpu() {
  [[maybe_unused]] static const bool once = (simulated::run_on_cpu(), true);
}
