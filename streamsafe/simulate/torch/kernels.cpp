// Operators: one boxed kernel runs any of them as the CPU's on the same bytes, in the calling thread, at once. A few have
// kernels of their own: those that allocate, copy, block the host, or exist for CUDA only.
// One unit, though long, as memory.cpp is.
#include "device.h"
#include "refusals.hpp"

#include <ATen/EmptyTensor.h>
#include <ATen/NestedTensorImpl.h>
#include <ATen/SparseCsrTensorImpl.h>
#include <ATen/SparseTensorImpl.h>
#include <ATen/core/Generator.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/_local_scalar_dense.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/_sparse_compressed_tensor_unsafe.h>
#include <ATen/ops/_sparse_coo_tensor_unsafe.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/nonzero.h>
#include <ATen/ops/view_native.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/util/Exception.h>
#include <torch/library.h>

#include <atomic>
#include <cstring>
#include <functional>
#include <optional>
#include <string_view>

namespace simulated {

at::Generator numbers_of(const at::Generator& generator, DeviceIndex device);  // memory.cpp

namespace {

// CPU kernels are called below everything that the CUDA operator has already passed.
struct Below {
  at::AutoDispatchBelowADInplaceOrView autograd;
  c10::impl::ExcludeDispatchKeyGuard autocast{c10::autocast_dispatch_keyset};
  c10::impl::ExcludeDispatchKeyGuard modes{c10::DispatchKeySet(
      {c10::DispatchKey::TESTING_ONLY_GenericMode, c10::DispatchKey::Python, c10::DispatchKey::PythonTLSSnapshot})};
};

c10::Allocator* device_memory() { return c10::GetAllocator(c10::kCUDA); }
const c10::DispatchKeySet CUDA_KEYS(c10::DispatchKey::CUDA);

void same_layout(const at::Tensor& made, const at::Tensor& of) {
  made.unsafeGetTensorImpl()->set_storage_offset(of.storage_offset());
  made.unsafeGetTensorImpl()->set_sizes_and_strides(of.sizes(), of.strides());
}

// A CPU tensor over a device tensor's bytes. The CPU's allocator takes over when an operator makes it larger.
at::Tensor on_cpu(const at::Tensor& tensor) {
  const c10::Storage& storage = tensor.storage();
  c10::DataPtr borrowed(const_cast<void*>(storage.data()), c10::kCPU);
  c10::Storage view(c10::Storage::use_byte_size_t(), storage.nbytes(), std::move(borrowed), c10::GetCPUAllocator(), true);
  auto made = at::detail::make_tensor<c10::TensorImpl>(std::move(view), c10::DispatchKeySet(c10::DispatchKey::CPU), tensor.dtype());
  same_layout(made, tensor);
  if (tensor.is_conj()) made._set_conj(true);
  if (tensor.is_neg()) made._set_neg(true);
  return made;
}

// -- sparse tensors: their parts are device tensors ----------------------------------------------------------------------

const c10::DispatchKeySet SPARSE_KEYS(c10::DispatchKey::SparseCUDA), COMPRESSED_KEYS(c10::DispatchKey::SparseCsrCUDA);

bool compressed(const at::Tensor& tensor) { return tensor.layout() != c10::kStrided && tensor.layout() != c10::kSparse; }
at::SparseCsrTensorImpl* parts_of(const at::Tensor& tensor) {
  return static_cast<at::SparseCsrTensorImpl*>(tensor.unsafeGetTensorImpl());
}
at::Tensor compressed_indices(const at::Tensor& tensor) { return parts_of(tensor)->compressed_indices().alias(); }
at::Tensor plain_indices(const at::Tensor& tensor) { return parts_of(tensor)->plain_indices().alias(); }
at::Tensor compressed_values(const at::Tensor& tensor) { return parts_of(tensor)->values().alias(); }

using Change = std::function<at::Tensor(const at::Tensor&)>;

at::Tensor sparse_on_cpu(const at::Tensor& tensor, const Change& part) {
  Below below;
  auto options = tensor.options().device(c10::kCPU);
  if (!compressed(tensor)) {
    auto* impl = static_cast<at::SparseTensorImpl*>(tensor.unsafeGetTensorImpl());
    return at::_sparse_coo_tensor_unsafe(part(impl->indices()), part(impl->values()), tensor.sizes(), options, impl->coalesced());
  }
  auto* impl = parts_of(tensor);
  return at::_sparse_compressed_tensor_unsafe(part(impl->compressed_indices()), part(impl->plain_indices()),
                                              part(impl->values()), tensor.sizes(), options);
}

// Fills a sparse device tensor with the parts of a CPU one.
void take_parts(const at::Tensor& into, const at::Tensor& from, const Change& part) {
  if (!compressed(from)) {
    auto* impl = static_cast<at::SparseTensorImpl*>(into.unsafeGetTensorImpl());
    impl->raw_resize_(from.sparse_dim(), from.dense_dim(), from.sizes());
    impl->set_indices_and_values_unsafe(part(from._indices()), part(from._values()));
    impl->set_coalesced(from.is_coalesced());
    return;
  }
  auto* source = parts_of(from);
  parts_of(into)->set_member_tensors(part(source->compressed_indices()), part(source->plain_indices()), part(source->values()),
                                     from.sizes());
}

at::Tensor empty_sparse_like(const at::Tensor& result, DeviceIndex device) {
  c10::DeviceGuard guard(c10::Device(c10::kCUDA, device));
  if (!compressed(result)) return at::detail::make_tensor<at::SparseTensorImpl>(SPARSE_KEYS, result.dtype());
  return at::detail::make_tensor<at::SparseCsrTensorImpl>(COMPRESSED_KEYS, c10::Device(c10::kCUDA, device), result.layout(), result.dtype());
}

// A nested tensor over other bytes, as long.
at::Tensor nested_over(const at::Tensor& bytes, const at::Tensor& of) {
  auto* impl = at::native::get_nested_tensor_impl(of);
  return at::detail::make_tensor<at::native::NestedTensorImpl>(bytes, impl->get_nested_sizes(), impl->get_nested_strides(),
                                                               impl->get_storage_offsets());
}
at::Tensor nested_bytes(const at::Tensor& nested) { return at::native::get_nested_tensor_impl(nested)->get_unsafe_storage_as_tensor(); }

// One call: the device tensors that it was given, each with its CPU tensor.
struct Call {
  struct Pair {
    at::Tensor device, cpu;
    const void* data;  // where the CPU tensor's bytes were
    bool written;
  };
  std::vector<Pair> pairs, sparse, nested;
  DeviceIndex device = current_device();
  bool writing = false;  // of the argument at hand

  at::Tensor down(const at::Tensor& tensor) {
    if (!tensor.defined() || !tensor.is_cuda()) return tensor;
    if (pairs.empty()) device = DeviceIndex(tensor.get_device());
    if (tensor.is_nested()) {
      auto cpu = nested_over(down(nested_bytes(tensor)), tensor);
      nested.push_back({tensor, cpu, nullptr, writing});
      return cpu;
    }
    if (tensor.layout() != c10::kStrided) {
      auto cpu = sparse_on_cpu(tensor, [this](const at::Tensor& part) { return down(part); });
      sparse.push_back({tensor, cpu, nullptr, writing});
      return cpu;
    }
    auto cpu = on_cpu(tensor);
    pairs.push_back({tensor, cpu, cpu.storage().data(), writing});
    return cpu;
  }

  c10::IValue down(const c10::IValue& value) {
    if (value.isTensor()) return down(value.toTensor());
    if (value.isTensorList()) {
      c10::List<at::Tensor> list;
      for (const at::Tensor& each : value.toTensorVector()) list.push_back(down(each));
      return list;
    }
    if (value.isOptionalTensorList()) {
      c10::List<std::optional<at::Tensor>> list;
      for (const std::optional<at::Tensor>& each : value.toOptionalTensorVector())
        list.push_back(each && each->defined() ? std::optional<at::Tensor>(down(*each)) : each);
      return list;
    }
    return value;
  }

  // A CPU result as a device tensor: an argument, a view of one, or new memory.
  at::Tensor up(const at::Tensor& result, std::vector<std::pair<at::Tensor, at::Tensor>>* made) {
    if (!result.defined() || !result.is_cpu()) return result;
    if (result.is_nested()) {
      for (Pair& pair : nested)
        if (result.is_same(pair.cpu)) return pair.device;
      return nested_over(up(nested_bytes(result), made), result);
    }
    if (result.layout() != c10::kStrided) {
      for (Pair& pair : sparse)
        if (result.is_same(pair.cpu)) return pair.device;
      auto fresh = empty_sparse_like(result, device);
      Below below;
      take_parts(fresh, result, [&](const at::Tensor& part) { return up(part, nullptr); });
      return fresh;
    }
    const void* data = result.storage().data();
    for (Pair& pair : pairs) {
      if (result.is_same(pair.cpu)) return pair.device;
      if (data == nullptr || data != pair.data) continue;
      auto view = at::detail::make_tensor<c10::TensorImpl>(c10::Storage(pair.device.storage()), CUDA_KEYS, result.dtype());
      same_layout(view, result);
      return view;
    }
    c10::DeviceGuard guard(c10::Device(c10::kCUDA, device));
    at::Tensor fresh = at::detail::empty_strided_generic(result.sizes(), result.strides(), device_memory(), CUDA_KEYS, result.scalar_type());
    if (result.numel() != 0) {
      size_t bytes = std::min(fresh.storage().nbytes(), result.storage().nbytes() - result.storage_offset() * result.itemsize());
      std::memcpy(fresh.storage().mutable_data(), result.data_ptr(), bytes);
      if (made != nullptr) made->emplace_back(result, on_cpu(fresh));
    }
    return fresh;
  }

  // What an operator resized (`out=`): the device tensor takes the new layout, and memory where it needs more.
  void take_over_resized() {
    for (Pair& pair : sparse) {
      if (!pair.written) continue;
      Below below;
      take_parts(pair.device, pair.cpu, [&](const at::Tensor& part) { return up(part, nullptr); });
    }
    for (Pair& pair : pairs) {
      bool moved = pair.cpu.storage().data() != pair.data;
      bool reshaped = pair.cpu.sizes() != pair.device.sizes() || pair.cpu.strides() != pair.device.strides();
      if (!moved && !reshaped) continue;
      if (moved) {
        size_t bytes = pair.cpu.storage().nbytes();
        c10::DeviceGuard guard(pair.device.device());
        c10::DataPtr memory = device_memory()->allocate(bytes);
        if (bytes != 0) std::memcpy(memory.get(), pair.cpu.storage().data(), bytes);
        auto* storage = pair.device.storage().unsafeGetStorageImpl();
        storage->set_data_ptr_noswap(std::move(memory));
        storage->set_nbytes(bytes);
      }
      same_layout(pair.device, pair.cpu);
      // a replay has the same CPU tensor: from now on it stands for the device tensor's new bytes
      if (moved) pair.cpu.unsafeGetTensorImpl()->set_storage_keep_dtype(on_cpu(pair.device).storage());
    }
  }
};

// -- captures -------------------------------------------------------------------------------------------------------------

// Keeps the bytes that a captured operator is about to overwrite, unless they are the capture's own.
void keep_bytes(Capture& capture, const at::Tensor& written) {
  void* start = written.storage().mutable_data();
  size_t bytes = written.storage().nbytes();
  if (start == nullptr || capture.allocated.count(reinterpret_cast<uintptr_t>(start)) || capture.before.count(start)) return;
  auto* first = static_cast<const char*>(start);
  capture.before[start] = std::vector<char>(first, first + bytes);
}

}  // namespace

bool captured(Queue queue) {
  std::lock_guard<std::recursive_mutex> locked(lock());
  return capture_of(queue) != nullptr;
}

void keep_before(Queue queue, const at::Tensor& written) {
  std::lock_guard<std::recursive_mutex> locked(lock());
  if (Capture* capture = capture_of(queue)) keep_bytes(*capture, written);
}

namespace {

// -- the kernel of everything ----------------------------------------------------------------------------------------------

struct Waiting {
  std::string_view name, unless;
};

// Operators of the CUDA build that block the host: they read a size or a value back, unless an argument gives it.
const Waiting WAITING[] = {
#define SYNCHRONIZING(operator_, unless) {operator_, unless},
#include "operators.h"
};

bool blocks_the_host(const c10::FunctionSchema& schema, c10::ArrayRef<c10::IValue> arguments) {
  const c10::OperatorName& name = schema.operator_name();
  for (const Waiting& each : WAITING) {
    if (each.name != name.name) continue;
    std::optional<int> given = schema.argumentIndexWithName(each.unless);
    return !given || arguments[size_t(*given)].isNone();
  }
  if (name.name != "aten::index_put_" && name.name != "aten::_index_put_impl_") return false;
  size_t masks = 0, others = 0;
  for (const auto& index : arguments[1].toOptionalTensorVector()) {  // index() itself calls nonzero() for a mask
    if (!index || !index->defined()) continue;
    const bool mask = index->scalar_type() == at::kBool || index->scalar_type() == at::kByte;
    ++(mask ? masks : others);
  }
  // one number for what a mask chooses is filled in, and nobody needs to know how much that is (canDispatchToMaskedFill)
  const bool filled = masks == 1 && !others && !arguments[3].toBool() && arguments[2].toTensor().numel() == 1 && arguments[2].toTensor().is_cpu();
  return masks && !filled;
}

std::atomic<uint64_t> operators{0};

void run(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  ++operators;
  Below below;
  op.callBoxed(stack);
}

void kernel(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const c10::FunctionSchema& schema = op.schema();
  if (schema.name().rfind("aten::_use_", 0) == 0) {  // whether to use cuDNN or MIOpen
    stack->resize(stack->size() - schema.arguments().size());
    stack->emplace_back(false);
    return;
  }
  bool on_host = false;
  for (auto key : {c10::DispatchKey::CPU, c10::DispatchKey::SparseCPU, c10::DispatchKey::SparseCsrCPU, c10::DispatchKey::NestedTensorCPU})
    on_host |= op.hasComputedKernelForDispatchKey(key);
  TORCH_CHECK_NOT_IMPLEMENTED(on_host, schema.name(), " has a kernel for CUDA only: it is not simulated");
  size_t count = schema.arguments().size(), first = stack->size() - count;
  {
    c10::ArrayRef<c10::IValue> arguments(stack->data() + first, count);
    check_devices(schema, arguments);
    check_types(schema.name(), arguments);
    widen_bounds(schema.name(), arguments, stack, first);
  }
  Call call;
  bool to_cpu = false, waits = blocks_the_host(schema, c10::ArrayRef<c10::IValue>(stack->data() + first, count));
  std::vector<size_t> generators;
  for (size_t i = 0; i < count; ++i) {
    c10::IValue& value = (*stack)[first + i];
    const c10::Argument& argument = schema.arguments()[i];
    call.writing = argument.alias_info() != nullptr && argument.alias_info()->isWrite();
    if (value.isDevice()) {
      to_cpu |= !value.toDevice().is_cuda();
      if (value.toDevice().is_cuda()) {
        if (call.pairs.empty() && value.toDevice().has_index()) call.device = value.toDevice().index();
        value = c10::IValue(c10::Device(c10::kCPU));
      }
    } else if (value.isGenerator() || argument.name() == "generator") {
      generators.push_back(first + i);
    } else {
      value = call.down(value);
    }
  }
  std::vector<std::pair<size_t, at::Generator>> numbers;  // a replay draws further ones
  for (size_t i : generators) {
    c10::IValue& value = (*stack)[i];
    at::Generator given = value.isGenerator() ? value.toGenerator() : at::Generator();
    if (!given.defined() || given.device().is_cuda()) numbers.emplace_back(i - first, given);
    value = numbers_of(given, call.device);
  }
  Queue queue = current_queue(call.device);
  if (waits) host_waits(queue);
  bool in_capture = captured(queue);
  torch::jit::Stack again;
  if (in_capture) {
    for (Call::Pair& pair : call.pairs)
      if (pair.written) keep_before(queue, pair.device);
    again.assign(stack->begin() + long(first), stack->end());
  }
  run(op, stack);
  call.take_over_resized();
  if (to_cpu) return;
  size_t results = schema.returns().size(), start = stack->size() - results;
  std::vector<std::pair<at::Tensor, at::Tensor>> made;
  std::vector<std::pair<size_t, at::Tensor>> where;  // of a new result: its place on the stack, and its memory
  for (size_t i = 0; i < results; ++i) {
    c10::IValue& value = (*stack)[start + i];
    made.clear();
    if (value.isTensor()) {
      value = call.up(value.toTensor(), &made);
      if (!made.empty()) where.emplace_back(i, made.back().second);
    } else if (value.isTensorList()) {
      c10::List<at::Tensor> list;
      for (const at::Tensor& each : value.toTensorVector()) {
        made.clear();
        list.push_back(call.up(each, &made));
        if (!made.empty()) where.emplace_back((i + 1) << 32 | (list.size() - 1), made.back().second);
      }
      value = list;
    }
  }
  if (!in_capture) return;
  add_node(queue, [op, again, where, results, numbers, device = call.device] {
    torch::jit::Stack replayed = again;
    for (auto& [place, generator] : numbers) replayed[place] = numbers_of(generator, device);
    run(op, &replayed);
    size_t start = replayed.size() - results;
    for (auto& [place, memory] : where) {
      const c10::IValue& value = replayed[start + (place >> 32 ? (place >> 32) - 1 : place)];
      at::Tensor result = value.isTensor() ? value.toTensor() : value.toTensorVector()[place & 0xffffffff];
      size_t bytes = std::min(memory.storage().nbytes(), result.storage().nbytes() - result.storage_offset() * result.itemsize());
      std::memcpy(memory.storage().mutable_data(), result.data_ptr(), bytes);
    }
  });
}

// -- memory -----------------------------------------------------------------------------------------------------------------

at::ScalarType type_or_default(std::optional<at::ScalarType> type) {
  return type.value_or(c10::get_default_dtype_as_scalartype());
}

at::Tensor empty(c10::SymIntArrayRef size, std::optional<at::ScalarType> type, std::optional<at::Layout>,
                 std::optional<c10::Device> device, std::optional<bool>, std::optional<at::MemoryFormat> format) {
  c10::OptionalDeviceGuard guard(device);
  return at::detail::empty_generic(C10_AS_INTARRAYREF_SLOW(size), device_memory(), CUDA_KEYS, type_or_default(type), format);
}

at::Tensor empty_strided(c10::SymIntArrayRef size, c10::SymIntArrayRef stride, std::optional<at::ScalarType> type,
                         std::optional<at::Layout>, std::optional<c10::Device> device, std::optional<bool>) {
  c10::OptionalDeviceGuard guard(device);
  return at::detail::empty_strided_generic(C10_AS_INTARRAYREF_SLOW(size), C10_AS_INTARRAYREF_SLOW(stride), device_memory(),
                                           CUDA_KEYS, type_or_default(type));
}

struct NoMemory final : c10::Allocator {
  c10::DataPtr allocate(size_t) override { return {nullptr, nullptr, &c10::detail::deleteNothing, c10::Device(c10::kCUDA, current_device())}; }
  c10::DeleterFnPtr raw_deleter() const override { return &c10::detail::deleteNothing; }
  void copy_data(void*, const void*, std::size_t) const override {}
};

// Zeros without memory: tangents of what is no dual number (forward-mode differentiation).
at::Tensor efficient_zeros(c10::SymIntArrayRef size, std::optional<at::ScalarType> type, std::optional<at::Layout>,
                           std::optional<c10::Device> device, std::optional<bool>) {
  c10::OptionalDeviceGuard guard(device);
  static NoMemory nothing;
  return at::detail::empty_generic(C10_AS_INTARRAYREF_SLOW(size), &nothing, CUDA_KEYS | c10::DispatchKeySet(c10::DispatchKey::ZeroTensor),
                                   type_or_default(type), std::nullopt);
}

const at::Tensor& resize(const at::Tensor& self, c10::SymIntArrayRef size, std::optional<at::MemoryFormat> format) {
  auto sizes = C10_AS_INTARRAYREF_SLOW(size);
  int64_t count = 1;
  for (int64_t each : sizes) count *= each;
  size_t bytes = (size_t(count) + size_t(self.storage_offset())) * self.itemsize();
  auto* storage = self.storage().unsafeGetStorageImpl();
  if (count != 0 && bytes > storage->nbytes()) {
    c10::DeviceGuard guard(self.device());
    c10::DataPtr memory = device_memory()->allocate(bytes);
    if (storage->nbytes() != 0) std::memcpy(memory.get(), storage->data(), storage->nbytes());
    storage->set_data_ptr_noswap(std::move(memory));
    storage->set_nbytes(bytes);
  }
  self.unsafeGetTensorImpl()->set_sizes_contiguous(sizes);
  if (format) self.unsafeGetTensorImpl()->empty_tensor_restride(*format);
  return self;
}

at::Tensor& set_storage(at::Tensor& self, at::Storage source, c10::SymInt offset, c10::SymIntArrayRef size, c10::SymIntArrayRef stride) {
  auto* impl = self.unsafeGetTensorImpl();
  impl->set_storage_keep_dtype(std::move(source));
  impl->set_storage_offset(offset.expect_int());
  auto sizes = C10_AS_INTARRAYREF_SLOW(size), strides = C10_AS_INTARRAYREF_SLOW(stride);
  if (strides.empty() && !sizes.empty())
    impl->set_sizes_contiguous(sizes);
  else
    impl->set_sizes_and_strides(sizes, strides);
  return self;
}

at::Tensor& set_whole_storage(at::Tensor& self, at::Storage source) {
  int64_t count = int64_t(source.nbytes() / self.itemsize());
  c10::SymInt size(count);
  return set_storage(self, std::move(source), 0, size, {});
}

at::Tensor& set_tensor(at::Tensor& self, const at::Tensor& source) {
  return set_storage(self, source.storage(), source.storage_offset(), source.sym_sizes(), source.sym_strides());
}

at::Tensor& set_empty(at::Tensor& self) {
  c10::Storage none(c10::Storage::use_byte_size_t(), 0, device_memory()->allocate(0), device_memory(), true);
  return set_whole_storage(self, none);
}

void record_stream(at::Tensor& self, c10::Stream stream) {
  c10::impl::VirtualGuardImpl(c10::kCUDA).recordDataPtrOnStream(self.storage().data_ptr(), stream);
}

// -- copies, as aten/src/ATen/native/cuda/Copy.cu orders them ------------------------------------------------------------------

bool dense_alike(const at::Tensor& to, const at::Tensor& from) {  // one memcpy does it
  bool dense = to.is_non_overlapping_and_dense() && from.is_non_overlapping_and_dense();
  return to.scalar_type() == from.scalar_type() && dense && to.strides() == from.strides() && to.sizes() == from.sizes() &&
         to.is_conj() == from.is_conj() && to.is_neg() == from.is_neg();
}

void move(const at::Tensor& to, const at::Tensor& from) {
  ++operators;
  Below below;
  at::Tensor target = to.is_cuda() ? on_cpu(to) : to, source = from.is_cuda() ? on_cpu(from) : from;
  target.copy_(source);
}

void enqueue_move(Queue queue, const at::Tensor& to, const at::Tensor& from) {
  keep_before(queue, to);
  move(to, from);
  if (captured(queue)) {
    at::Tensor target = to.is_cuda() ? on_cpu(to) : to, source = from.is_cuda() ? on_cpu(from) : from;
    add_node(queue, [target, source] { move(target, source); });
  }
}

struct DeviceEvent {  // an event of one stream that another waits for, as between two devices
  static void order(c10::Stream before, c10::Stream after) {
    c10::impl::VirtualGuardImpl guard(c10::kCUDA);
    void* event = nullptr;
    guard.record(&event, before, before.device_index(), c10::EventFlag::PYTORCH_DEFAULT);
    guard.block(event, after);
    guard.destroyEvent(event, before.device_index());
  }
};

at::Tensor& copy_(at::Tensor& self, const at::Tensor& source, bool non_blocking) {
  if (self.numel() == 0 || self.is_same(source)) return self;
  c10::impl::VirtualGuardImpl guard(c10::kCUDA);
  c10::Device device = source.is_cuda() ? source.device() : self.device();
  c10::DeviceGuard on_device(device);
  Queue queue = current_queue(device.index());
  if (self.is_cuda() && source.is_cuda()) {
    if (self.device() == source.device()) {
      enqueue_move(queue, self, source);
      return self;
    }
    c10::Stream here = guard.getStream(source.device()), there = guard.getStream(self.device());
    DeviceEvent::order(there, here);
    enqueue_move(queue, self, source);
    DeviceEvent::order(here, there);
    return self;
  }
  at::Tensor from = source.expand_as(self);
  if (!dense_alike(self, from) && !(self.is_contiguous() && from.is_contiguous() && self.scalar_type() == from.scalar_type())) {
    // a temporary on each side that needs one: the host's is pageable, and made or read by the host
    at::Tensor sent = from.is_cuda() ? at::empty_like(from, from.options().dtype(self.scalar_type()), at::MemoryFormat::Contiguous) : from;
    if (from.is_cuda()) {
      enqueue_move(queue, sent, from);
    } else if (!from.is_contiguous()) {
      sent = from.contiguous();
    }
    bool direct = self.is_contiguous() && self.scalar_type() == sent.scalar_type();
    at::Tensor received = direct ? self : at::empty(self.sizes(), self.options().dtype(sent.scalar_type()));
    copy_(received, sent, non_blocking);
    if (!direct) {
      if (self.is_cuda())
        enqueue_move(queue, self, received);
      else
        move(self, received);
    }
    return self;
  }
  const at::Tensor& host = self.is_cpu() ? self : source;
  bool asynchronous = non_blocking && is_pinned(host.storage().data());
  if (captured(queue))
    TORCH_CHECK(is_pinned(host.storage().data()),
                "Cannot copy between CPU and CUDA tensors during CUDA graph capture unless the CPU tensor is pinned. Please use "
                "tensor.pin_memory() or allocate the tensor with pin_memory=True.");
  if (!non_blocking) host_waits(queue);
  enqueue_move(queue, self, from);
  if (asynchronous && !captured(queue)) use_pinned(host.storage().data_ptr(), host.data_ptr(), queue);
  return self;
}

at::Scalar local_scalar(const at::Tensor& self) {
  host_waits(current_queue(DeviceIndex(self.get_device())));
  Below below;
  return at::_local_scalar_dense(on_cpu(self));
}

at::Tensor nonzero(const at::Tensor& self) {
  host_waits(current_queue(DeviceIndex(self.get_device())));
  Call call;
  at::Tensor cpu = call.down(self), found;
  {
    Below below;
    found = at::nonzero(cpu);
  }
  return call.up(found, nullptr);
}

}  // namespace

TORCH_LIBRARY_IMPL(_, CUDA, library) { library.fallback(torch::CppFunction::makeFromBoxedFunction<&kernel>()); }

// Registers the kernel of everything for operators that have a default, which would be taken instead of the fallback.
void instead_of_defaults(torch::Library& library, const std::function<bool(const c10::OperatorHandle&)>& wanted) {
  auto& dispatcher = c10::Dispatcher::singleton();
  for (const c10::OperatorName& name : dispatcher.getAllOpNames()) {
    if (name.name.rfind("aten::", 0) != 0) continue;
    auto op = dispatcher.findSchema(name);
    if (!op || !wanted(*op)) continue;
    std::string text = name.name.substr(6) + (name.overload_name.empty() ? "" : "." + name.overload_name);
    library.impl(text.c_str(), torch::CppFunction::makeFromBoxedFunction<&kernel>());
  }
}

// Structured operators: a default would allocate their results and call `out=`, where CUDA has one kernel, as the CPU.
// Convolutions: a default would choose a kernel that CUDA alone has, by their shape.
TORCH_LIBRARY_IMPL(aten, CUDA, library) {
  instead_of_defaults(library, [](const c10::OperatorHandle& op) {
    const std::string& name = op.operator_name().name;
    if (name == "aten::index") return false;  // its default calls nonzero(), which waits
    if (name == "aten::convolution" || name == "aten::convolution_backward") return true;
    return op.hasKernelForDispatchKey(c10::DispatchKey::CompositeExplicitAutogradNonFunctional) &&
           op.hasKernelForDispatchKey(c10::DispatchKey::CPU);
  });
}

TORCH_LIBRARY_IMPL(_, SparseCUDA, library) { library.fallback(torch::CppFunction::makeFromBoxedFunction<&kernel>()); }
TORCH_LIBRARY_IMPL(_, SparseCsrCUDA, library) { library.fallback(torch::CppFunction::makeFromBoxedFunction<&kernel>()); }
TORCH_LIBRARY_IMPL(_, NestedTensorCUDA, library) { library.fallback(torch::CppFunction::makeFromBoxedFunction<&kernel>()); }

TORCH_LIBRARY_IMPL(aten, SparseCUDA, library) {
  instead_of_defaults(library, [](const c10::OperatorHandle& op) { return op.hasKernelForDispatchKey(c10::DispatchKey::SparseCPU); });
}
TORCH_LIBRARY_IMPL(aten, NestedTensorCUDA, library) {
  instead_of_defaults(library, [](const c10::OperatorHandle& op) { return op.hasKernelForDispatchKey(c10::DispatchKey::NestedTensorCPU); });
}

TORCH_LIBRARY_IMPL(aten, SparseCsrCUDA, library) {
  library.impl("crow_indices", compressed_indices);
  library.impl("ccol_indices", compressed_indices);
  library.impl("col_indices", plain_indices);
  library.impl("row_indices", plain_indices);
  library.impl("values", compressed_values);
}

TORCH_LIBRARY_IMPL(aten, CUDA, library) {
  library.impl("empty.memory_format", empty);
  library.impl("empty_strided", empty_strided);
  library.impl("_efficientzerotensor", efficient_zeros);
  library.impl("as_strided", at::native::as_strided_tensorimpl);
  library.impl("view", at::native::view);
  library.impl("_reshape_alias", at::native::_reshape_alias);
  library.impl("resize_", resize);
  library.impl("set_.source_Storage_storage_offset", set_storage);
  library.impl("set_.source_Storage", set_whole_storage);
  library.impl("set_.source_Tensor", set_tensor);
  library.impl("set_", set_empty);
  library.impl("record_stream", record_stream);
  library.impl("copy_", copy_);
  library.impl("_local_scalar_dense", local_scalar);
  library.impl("nonzero", nonzero);
}

}  // namespace simulated

EXPORTED uint64_t streamsafe_simulated_operators() { return simulated::operators; }
