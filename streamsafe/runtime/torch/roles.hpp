// What an operator does to its arguments and results: from its schema, and from tables where schemas are silent or wrong.
#pragma once
#include <ATen/core/dispatch/Dispatcher.h>
#include <atomic>
#include <cstring>
#include <mutex>
#include <string>
#include <vector>
#include "flat.hpp"

namespace streamsafe {

enum class Role : uint8_t { none, read, write, metadata };

struct Argument {
  uint16_t index;
  Role role;
};

struct Operator {
  uint32_t id = 0;                  // its name's
  std::string name;                 // as users write it
  std::vector<Argument> arguments;  // those that can hold tensors
  std::vector<Argument> results;
  uint16_t argument_count = 0, result_count = 0;
  int16_t non_blocking = -1, device = -1;  // indexes of such arguments
  bool pass = false;       // not an operation of its own: what it calls is seen
  bool skip = false;       // touches no memory
  bool copy = false;       // may copy between host and device
  bool makes_copy = false; // its result is the copy
  bool fresh = false;      // gives memory that it does not write
  bool collective = false;
  bool synchronizes = false;  // the host waits for the device inside
};

namespace roles {

// Look at shape and type only.
inline const char* const METADATA[] = {
    "aten::empty_like", "aten::new_empty", "aten::new_empty_strided", "aten::new_zeros", "aten::new_ones", "aten::new_full",
    "aten::zeros_like", "aten::ones_like", "aten::full_like", "aten::rand_like", "aten::randn_like", "aten::randint_like",
    "aten::is_pinned", "aten::size", "aten::stride", "aten::detach", "aten::_version", "aten::is_same_size",
    "aten::_has_compatible_shallow_copy_type", "aten::set_", "aten::resize_", "aten::resize_as_", "aten::sym_size",
    "aten::sym_numel", "aten::sym_stride", "aten::sym_storage_offset", "aten::is_contiguous", "aten::sym_is_contiguous",
    "aten::_reshape_alias", "aten::requires_grad_", "aten::set_data", "aten::_fw_primal", "aten::is_complex",
    "aten::is_floating_point", "aten::is_signed", "aten::is_inference", "aten::is_leaf", "aten::output_nr", "aten::is_conj",
    "aten::is_neg", "aten::_is_zerotensor", "aten::result_type", "aten::can_cast", "aten::retain_grad", "aten::retains_grad",
    "aten::_nested_tensor_size", "aten::_nested_tensor_strides", "aten::_shape_as_tensor", "aten::dim", "aten::numel",
    "aten::_debug_has_internal_overlap", "aten::_backward", 
    "aten::lift_fresh", "aten::_unsafe_view", "aten::record_stream", "aten::is_set_to", "aten::storage_offset", "aten::data",
};

// Their results hold whatever was there.
inline const char* const FRESH[] = {
    "aten::empty", "aten::empty_strided", "aten::empty_like", "aten::new_empty", "aten::new_empty_strided", "aten::resize_",
    "aten::resize_as_", "aten::set_", "aten::empty_permuted", "aten::_empty_affine_quantized", "aten::empty_quantized",
    "aten::_resize_output_", "aten::_efficientzerotensor",
};

// Written though their schema says that they are read.
struct Written {
  const char* name;
  const char* argument;
};
inline const Written WRITTEN[] = {
    {"aten::native_batch_norm", "running_mean"},
    {"aten::native_batch_norm", "running_var"},
    {"aten::cudnn_batch_norm", "running_mean"},
    {"aten::cudnn_batch_norm", "running_var"},
    {"aten::miopen_batch_norm", "running_mean"},
    {"aten::miopen_batch_norm", "running_var"},
    {"aten::_batch_norm_impl_index", "running_mean"},
    {"aten::_batch_norm_impl_index", "running_var"},
    {"aten::batch_norm_gather_stats", "running_mean"},
    {"aten::batch_norm_gather_stats", "running_var"},
    {"aten::batch_norm_gather_stats_with_counts", "running_mean"},
    {"aten::batch_norm_gather_stats_with_counts", "running_var"},
};

// The host waits inside (TM-08, TM-10).
inline const char* const SYNCHRONIZING[] = {
    "aten::_local_scalar_dense", "aten::nonzero", "aten::masked_select", "aten::equal", "aten::_unique", "aten::_unique2",
    "aten::unique_dim", "aten::unique_consecutive", "aten::repeat_interleave",
};

// What users call it.
struct Called {
  const char* name;
  const char* called;
};
inline const Called CALLED[] = {
    {"aten::_to_copy", "to"}, {"aten::_local_scalar_dense", "item"}, {"aten::_pin_memory", "pin_memory"},
    {"aten::_index_put_impl_", "index_put_"}, {"aten::_softmax", "softmax"}, {"aten::_log_softmax", "log_softmax"},
};

inline const char* const COPIES[] = {"aten::copy_", "aten::_to_copy", "aten::_foreach_copy_", "aten::_copy_from"};

template <class List>
bool among(const List& list, const std::string& name) {
  for (const char* each : list)
    if (name == each) return true;
  return false;
}

inline bool starts(const std::string& text, const char* beginning) { return text.rfind(beginning, 0) == 0; }

// Whether a type can hold a tensor.
inline bool holds_tensor(const c10::TypePtr& type) {
  if (type->kind() == c10::TypeKind::TensorType) return true;
  if (type->kind() == c10::TypeKind::AnyType) return true;
  for (const auto& part : type->containedTypes())
    if (holds_tensor(part)) return true;
  return false;
}

// A collective's schema names no argument that it writes: inputs are read, everything else is written too.
inline Role of_collective(const std::string& name, const std::string& argument) {
  if (starts(name, "c10d::send")) return Role::read;
  return argument.find("input") != std::string::npos ? Role::read : Role::write;
}

inline Operator* describe(const c10::OperatorHandle& handle) {
  const auto& schema = handle.schema();
  auto* made = new Operator();
  const std::string& name = schema.name();
  const size_t colons = name.find("::");
  made->name = colons == std::string::npos ? name : starts(name, "aten::") ? name.substr(colons + 2) : name.substr(0, colons) + "." + name.substr(colons + 2);
  const bool metadata = among(METADATA, name);
  made->fresh = among(FRESH, name);
  made->collective = starts(name, "c10d::");
  made->copy = among(COPIES, name);
  made->makes_copy = name == "aten::_to_copy";
  for (const auto& each : CALLED)
    if (name == each.name) made->name = each.called;
  made->synchronizes = among(SYNCHRONIZING, name);
  made->argument_count = uint16_t(schema.arguments().size());
  made->result_count = uint16_t(schema.returns().size());
  for (size_t i = 0; i < schema.arguments().size(); ++i) {
    const auto& argument = schema.arguments()[i];
    if (argument.name() == "non_blocking" || argument.name() == "async_op") made->non_blocking = int16_t(i);
    if (argument.name() == "device") made->device = int16_t(i);
    if (!holds_tensor(argument.type())) continue;
    const auto* alias = argument.alias_info();
    Role role = alias && alias->isWrite() ? (made->fresh ? Role::metadata : Role::write) : metadata || alias ? Role::metadata : Role::read;
    for (const auto& written : WRITTEN)
      if (name == written.name && argument.name() == written.argument) role = Role::write;
    if (made->collective) role = of_collective(name, argument.name());
    made->arguments.push_back(Argument{uint16_t(i), role});
  }
  for (size_t i = 0; i < schema.returns().size(); ++i) {
    const auto& result = schema.returns()[i];
    if (!holds_tensor(result.type())) continue;
    // a result that aliases an argument is a view of it, or the written argument itself
    if (result.alias_info() || made->collective || name == "aten::_unsafe_view") continue;
    made->results.push_back(Argument{uint16_t(i), made->fresh ? Role::metadata : Role::write});
  }
  using c10::DispatchKey;
  made->pass = starts(name, "_c10d_functional") || (handle.hasKernelForDispatchKey(DispatchKey::CompositeImplicitAutograd) &&
                                                     !handle.hasKernelForDispatchKey(DispatchKey::CUDA) &&
                                                     !handle.hasKernelForDispatchKey(DispatchKey::AutogradCUDA));
  made->skip = starts(name, "profiler::") || starts(name, "prim::") || name == "aten::record_stream";
  return made;
}

// The description of an operator; each thread asks the common table once for each.
class Table {
 public:
  // `intern`: gives a name its id.
  template <class Intern>
  const Operator& of(const c10::OperatorHandle& handle, Intern&& intern) {
    static thread_local Flat<const Operator*> mine(1024);
    const Addr key = reinterpret_cast<Addr>(&handle.schema());
    if (const Operator** known = mine.find(key)) return **known;
    const Operator* found;
    {
      std::lock_guard<std::mutex> guard(mutex_);
      Operator*& entry = all_[key];
      if (!entry) {
        entry = describe(handle);
        entry->id = intern(entry->name);
      }
      found = entry;
    }
    mine[key] = found;
    return *found;
  }

 private:
  std::mutex mutex_;
  Flat<Operator*> all_{1024};
};

}  // namespace roles
}  // namespace streamsafe
