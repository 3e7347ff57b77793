// Tensors, lists of them and wrapper subclasses as the bytes that they stand for.
#pragma once
#include "state.hpp"

namespace streamsafe {

using c10::DispatchKey;

struct Seen {
  Uses device, cpu;
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

inline bool is_dense(const c10::TensorImpl& tensor) {
  return tensor.is_contiguous() || tensor.is_non_overlapping_and_dense();
}

inline void see(Seen& seen, const at::Tensor& tensor, Role role) {
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
  if (!device && (type != c10::DeviceType::CPU || !shared_state().host_blocks.load(std::memory_order_relaxed))) return;
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

inline void see(Seen& seen, const c10::IValue& value, Role role) {
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
inline void see_held(Seen& seen, const std::vector<std::pair<at::Tensor, Role>>& wrappers) {
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

}  // namespace streamsafe
