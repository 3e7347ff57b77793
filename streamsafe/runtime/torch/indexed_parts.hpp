// Parts of a tensor that an index chooses. Which they are is known where the index can be read without a wait: it is the
// host's, or on the simulated device. Elsewhere the access is to some part.
#pragma once
#include "tensors.hpp"

namespace streamsafe {

constexpr size_t MANY_PARTS = 64;  // more are one access to some part
constexpr size_t MANY_ELEMENTS = 4096;  // of an index that has one number for each element

inline Use part_of(Use use) {
  if (use.certain == ALL) use.certain = PART;
  return use;
}

// The next place in a tensor, the last dimension first.
inline void step(std::vector<int64_t>& place, c10::IntArrayRef sizes) {
  for (size_t d = place.size(); d-- > 0;) {
    if (++place[d] < sizes[d]) return;
    place[d] = 0;
  }
}

// The numbers of an index, if the host can read them now.
inline bool numbers_of(const at::Tensor& index, std::vector<int64_t>& found) {
#ifdef WITH_CUDA
  if (!index.is_cpu()) return false;
#endif
  const c10::TensorImpl* impl = index.unsafeGetTensorImpl();
  if (!impl->has_storage()) return false;
  const auto* bytes = static_cast<const char*>(impl->unsafe_storage().data());
  if (!bytes) return index.numel() == 0;
  bytes += impl->storage_offset() * int64_t(impl->itemsize());
  const auto type = index.scalar_type();
  const bool mask = type == c10::kBool || type == c10::kByte;
  if (!mask && type != c10::kLong && type != c10::kInt) return false;
  std::vector<int64_t> place(size_t(index.dim()), 0);
  for (int64_t i = 0; i < index.numel(); ++i) {
    int64_t at = 0;
    for (size_t d = 0; d < place.size(); ++d) at += place[d] * impl->strides()[d];
    if (type == c10::kLong) found.push_back(reinterpret_cast<const int64_t*>(bytes)[at]);
    else if (type == c10::kInt) found.push_back(reinterpret_cast<const int32_t*>(bytes)[at]);
    else if (bytes[at]) found.push_back(i);
    step(place, index.sizes());
  }
  return true;
}

// Adds `use` for each run of rows, `size` bytes each, that begin at these numbers times `stride` bytes. False: too many.
inline bool add_rows(Uses& touched, const Use& use, const c10::TensorImpl* impl, std::vector<int64_t> rows, Addr stride, Addr size) {
  std::sort(rows.begin(), rows.end());
  rows.erase(std::unique(rows.begin(), rows.end()), rows.end());
  std::vector<std::pair<Addr, Addr>> runs;
  for (int64_t row : rows) {
    const Addr start = use.start + Addr(row) * stride;
    if (!runs.empty() && runs.back().second == start) runs.back().second = start + size;
    else if (runs.size() == MANY_PARTS) return false;
    else runs.emplace_back(start, start + size);
  }
  for (auto& [start, stop] : runs) {
    if (start < use.start || stop > use.stop) return false;  // the operator will say so itself
    Use run = use;
    run.start = start;
    run.stop = stop;
    run.dims = 0;  // its bytes lie together
    touched.add(run, impl);
  }
  return true;
}

// What is left of a tensor below its first `dims` dimensions, in bytes; 0: it does not lie together.
inline Addr together(const c10::TensorImpl& impl, int64_t dims) {
  int64_t size = 1;
  for (int64_t d = impl.dim() - 1; d >= dims; --d) {
    if (impl.sizes()[size_t(d)] != 1 && impl.strides()[size_t(d)] != size) return 0;
    size *= impl.sizes()[size_t(d)];
  }
  return Addr(size) * impl.itemsize();
}

// One index for a dimension: `index_select`, `index_copy_`.
inline bool add_along(Uses& touched, const Use& use, const c10::TensorImpl& impl, int64_t dim, const at::Tensor& index) {
  std::vector<int64_t> numbers;
  if (dim < 0) dim += impl.dim();
  if (dim != 0 || impl.dim() == 0 || !numbers_of(index, numbers)) return false;
  const Addr size = together(impl, 1);
  for (int64_t& number : numbers)
    if (number < 0) number += impl.sizes()[0];
  return size && add_rows(touched, use, &impl, std::move(numbers), Addr(impl.strides()[0]) * impl.itemsize(), size);
}

// Indexes for the first dimensions: `x[a]`, `x[a, b] = y`.
inline bool add_elements(Uses& touched, const Use& use, const c10::TensorImpl& impl, const c10::IValue& indices) {
  std::vector<int64_t> places;
  int64_t dims = 0;
  bool ended = false;
  for (const auto& each : indices.toListRef()) {
    if (!each.isTensor() || !each.toTensor().defined()) {
      ended = true;
      continue;
    }
    const at::Tensor& index = each.toTensor();
    const bool mask = index.scalar_type() == c10::kBool || index.scalar_type() == c10::kByte;
    if (ended || dims >= impl.dim() || (mask && (index.dim() != 1 || dims))) return false;
    std::vector<int64_t> numbers;
    if (!numbers_of(index, numbers)) return false;
    if (places.empty() && dims == 0) places.assign(numbers.size(), 0);
    if (numbers.size() == 1 && places.size() > 1) numbers.assign(places.size(), numbers[0]);
    if (places.size() == 1 && numbers.size() > 1) places.assign(numbers.size(), places[0]);
    if (numbers.size() != places.size()) return false;
    const int64_t size = impl.sizes()[size_t(dims)], stride = impl.strides()[size_t(dims)];
    for (size_t i = 0; i < places.size(); ++i) places[i] += (numbers[i] < 0 ? numbers[i] + size : numbers[i]) * stride;
    ++dims;
  }
  const Addr size = dims ? together(impl, dims) : 0;
  return size && add_rows(touched, use, &impl, std::move(places), impl.itemsize(), size);
}

// One number of an index for each element, along a dimension: `gather`, `scatter_`.
inline bool add_scattered(Uses& touched, const Use& use, const c10::TensorImpl& impl, int64_t dim, const at::Tensor& index) {
  if (dim < 0) dim += impl.dim();
  if (index.dim() != impl.dim() || !impl.dim() || index.numel() > int64_t(MANY_ELEMENTS)) return false;
  std::vector<int64_t> numbers;
  if (!numbers_of(index, numbers) || int64_t(numbers.size()) != index.numel()) return false;
  std::vector<int64_t> place(size_t(impl.dim()), 0);
  for (int64_t& number : numbers) {
    int64_t at = 0;
    for (size_t d = 0; d < place.size(); ++d) at += (int64_t(d) == dim ? number : place[d]) * impl.strides()[d];
    number = at;
    step(place, index.sizes());
  }
  return add_rows(touched, use, &impl, std::move(numbers), impl.itemsize(), impl.itemsize());
}

// The argument of an operator of which an index chooses parts.
inline void see_chosen(const Operator& op, const torch::jit::Stack& stack, size_t base, Seen& seen, Role role) {
  const auto& value = stack[base + size_t(op.chosen)];
  Seen its;
  see(its, value, role);
  if (its.wrapped) {
    see(seen, value, role);
    return;
  }
  seen.index = seen.index < 0 ? its.index : seen.index;
  seen.several = seen.several || (its.index >= 0 && its.index != seen.index);
  for (Uses* touched : {&its.device, &its.cpu}) {
    Uses& into = touched == &its.device ? seen.device : seen.cpu;
    for (size_t i = 0; i < touched->uses.size(); ++i) {
      const Use& use = touched->uses[i];
      const size_t before = into.uses.size();
      const c10::TensorImpl* impl = touched->tensors[i];
      const auto& index = stack[base + size_t(op.index)];
      bool exact = false;
      if (value.isTensor() && op.scattered && op.dim >= 0 && index.isTensor() && index.toTensor().defined()) {
        exact = add_scattered(into, use, *impl, stack[base + size_t(op.dim)].toInt(), index.toTensor());
      } else if (value.isTensor() && !op.scattered) {
        if (index.isList()) exact = add_elements(into, use, *impl, index);
        else if (index.isTensor() && index.toTensor().defined() && index.toTensor().dim() <= 1)
          exact = add_along(into, use, *impl, op.dim < 0 ? 0 : stack[base + size_t(op.dim)].toInt(), index.toTensor());
      }
      if (exact) continue;
      into.uses.resize(before);
      into.tensors.resize(before);
      into.add(part_of(use), impl);
    }
  }
}

// An operator of somebody's own that is given a tensor of integers may touch parts of the others only (a paged cache).
inline void doubt_parts(const torch::jit::Stack& stack, size_t base, const Operator& op, Seen& seen) {
  bool integers = false;
  for (const auto& argument : op.arguments) {
    const auto& value = stack[base + argument.index];
    if (argument.role != Role::read || !value.isTensor() || !value.toTensor().defined()) continue;
    const auto type = value.toTensor().scalar_type();
    integers = integers || type == c10::kLong || type == c10::kInt;
  }
  if (!integers) return;
  for (size_t i = 0; i < seen.device.uses.size(); ++i) {
    const auto type = seen.device.tensors[i] ? c10::typeMetaToScalarType(seen.device.tensors[i]->dtype()) : c10::kFloat;
    if (type != c10::kLong && type != c10::kInt) seen.device.uses[i] = part_of(seen.device.uses[i]);
  }
}

}  // namespace streamsafe
