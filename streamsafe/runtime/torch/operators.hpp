// What an operator does to its arguments and results: from its schema, and where schemas are silent or wrong from operators.h,
// which streamsafe/toolchain/torch_operators.py writes into the build folder from the rows of streamsafe/apis.
#pragma once
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/enum_tag.h>
#include <algorithm>
#include <atomic>
#include <cstring>
#include <mutex>
#include <string>
#include <vector>
#include "flat.hpp"

namespace streamsafe {

enum class Role : uint8_t { none, read, write, both, metadata };  // both: read, then written

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
  int16_t non_blocking = -1, device = -1, generator = -1;  // indexes of such arguments
  int16_t chosen = -1, index = -1, dim = -1;  // an argument of which another chooses parts (indexed_parts.hpp), along a dimension
  bool scattered = false;  // one number of the index for each element
  bool pass = false;       // not an operation of its own: what it calls is seen
  bool skip = false;       // touches no memory
  bool copy = false;       // may copy between host and device
  bool makes_copy = false; // its result is the copy
  bool only_reads = true;  // writes none of its arguments
  bool fresh = false;      // gives memory that it does not write
  bool collective = false;
  bool synchronizes = false;  // the host waits for the device inside,
  int16_t unless = -1;        // but not where this argument is given
  bool own = false;           // PyTorch's own: its kernel is no Python that calls operators
};

namespace roles {

inline const char* const METADATA_[] = {
#define METADATA(operator_) operator_,
#include "operators.h"
};

inline const char* const FRESH_[] = {
#define FRESH(operator_) operator_,
#include "operators.h"
};

// Written though their schema says that they are read.
struct Written {
  const char* name;
  const char* argument;
};
inline const Written WRITTEN_[] = {
#define WRITTEN(operator_, more) {operator_, more},
#include "operators.h"
};

struct Synchronizing {
  const char* name;
  const char* unless;
};
inline const Synchronizing SYNCHRONIZING_[] = {
#define SYNCHRONIZING(operator_, unless) {operator_, unless},
#include "operators.h"
};

// What users call it.
struct Called {
  const char* name;
  const char* called;
};
inline const Called CALLED_[] = {
#define CALLED(operator_, more) {operator_, more},
#include "operators.h"
};

inline const char* const OWN_[] = {
#define OWN(library) library,
#include "operators.h"
};

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

// A collective's schema names no argument that it writes.
struct Collective {
  const char* name;
  const char* argument;
  Role role;
};
constexpr Role READ = Role::read, WRITE = Role::write, BOTH = Role::both;
inline const Collective COLLECTIVE_[] = {
#define COLLECTIVE(operator_, argument, role) {operator_, argument, role},
#include "operators.h"
};

// A collective that is not in the table is taken for one whose name begins its own; else it reads what is called an input, and
// writes the rest.
inline Role of_collective(const std::string& name, const std::string& argument) {
  for (const auto& each : COLLECTIVE_)
    if (starts(name, each.name) && argument == each.argument) return each.role;
  return argument.find("input") != std::string::npos ? Role::read : Role::write;
}

// An index chooses parts of the first tensor. What only reads it and has a twin that writes it reads all, to make the result.
inline void describe_index(const c10::OperatorHandle& handle, Operator& op) {
  const auto& schema = handle.schema();
  const auto& arguments = schema.arguments();
  if (!op.own || op.arguments.empty() || op.arguments[0].index != 0) return;
  for (size_t i = 1; i < arguments.size(); ++i) {
    const auto& argument = arguments[i];
    if (argument.name() == "dim") op.dim = int16_t(i);
    const bool many = argument.name() == "indices" && argument.type()->kind() == c10::TypeKind::ListType;
    const bool rows = argument.name() == "indices" && arguments[0].name() == "weight";
    if (!holds_tensor(argument.type()) || (argument.name() != "index" && !many && !rows)) continue;
    op.index = int16_t(i);
    op.scattered = !many && !rows && !starts(schema.name(), "aten::index");
    break;
  }
  const Role role = op.arguments[0].role;
  if (op.index < 0 || role == Role::metadata) return;
  if (role == Role::read)
    for (const auto& name : c10::Dispatcher::singleton().getAllOpNames())
      if (name.name == schema.name() + "_") return;
  op.chosen = 0;
}

inline Operator* describe(const c10::OperatorHandle& handle) {
  const auto& schema = handle.schema();
  auto* made = new Operator();
  const std::string& name = schema.name();
  const size_t colons = name.find("::");
  made->name = colons == std::string::npos ? name : starts(name, "aten::") ? name.substr(colons + 2) : name.substr(0, colons) + "." + name.substr(colons + 2);
  made->own = among(OWN_, name.substr(0, colons));
  const auto views = [](const c10::Argument& value) { return value.alias_info() && !value.alias_info()->isWrite(); };
  const auto writes = [](const c10::Argument& value) { return value.alias_info() && value.alias_info()->isWrite(); };
  const auto& given = schema.arguments();
  const auto& returned = schema.returns();
  // a view looks at shapes and strides, and what only changes them says so
  const bool metadata = among(METADATA_, name) || handle.hasTag(at::Tag::inplace_view) ||
                        (made->own && !returned.empty() && std::all_of(returned.begin(), returned.end(), views) &&
                         std::none_of(given.begin(), given.end(), writes));
  made->fresh = among(FRESH_, name);
  made->collective = starts(name, "c10d::");
  for (const auto& each : CALLED_)
    if (name == each.name) made->name = each.called;
  const char* unless = "";
  for (const auto& each : SYNCHRONIZING_)
    if (name == each.name) {
      made->synchronizes = true;
      unless = each.unless;
    }
  made->argument_count = uint16_t(schema.arguments().size());
  made->result_count = uint16_t(schema.returns().size());
  for (size_t i = 0; i < schema.arguments().size(); ++i) {
    const auto& argument = schema.arguments()[i];
    if (argument.name() == "non_blocking" || argument.name() == "async_op") made->non_blocking = int16_t(i);
    if (argument.name() == "non_blocking") made->copy = made->own;
    if (argument.name() == "device") made->device = int16_t(i);
    if (argument.name() == "generator") made->generator = int16_t(i);
    if (argument.name() == unless) made->unless = int16_t(i);
    if (!holds_tensor(argument.type())) continue;
    const auto* alias = argument.alias_info();
    Role role = metadata || made->fresh ? Role::metadata : !alias ? Role::read : alias->isWrite() ? Role::write : Role::metadata;
    for (const auto& written : WRITTEN_)
      if (name == written.name && argument.name() == written.argument) role = Role::write;
    if (made->collective) role = of_collective(name, argument.name());
    if (role == Role::write || role == Role::both) made->only_reads = false;
    made->arguments.push_back(Argument{uint16_t(i), role});
  }
  for (size_t i = 0; i < schema.returns().size(); ++i) {
    const auto& result = schema.returns()[i];
    if (!holds_tensor(result.type())) continue;
    // a result that aliases an argument is a view of it, or the written argument itself
    if (result.alias_info() || made->collective || name == "aten::_unsafe_view") continue;
    made->results.push_back(Argument{uint16_t(i), made->fresh ? Role::metadata : Role::write});
  }
  made->makes_copy = made->copy && !made->results.empty();
  using c10::DispatchKey;
  made->pass = starts(name, "_c10d_functional") || (handle.hasKernelForDispatchKey(DispatchKey::CompositeImplicitAutograd) &&
                                                     !handle.hasKernelForDispatchKey(DispatchKey::CUDA) &&
                                                     !handle.hasKernelForDispatchKey(DispatchKey::AutogradCUDA));
  describe_index(handle, *made);
  made->skip = starts(name, "profiler::") || starts(name, "prim::") || name == "aten::record_stream";
  return made;
}

// The description of an operator; each thread asks the common table once for each. A schema's address may be that of another
// operator once its own is gone.
class Table {
 public:
  // `intern`: gives a name its id.
  template <class Intern>
  const Operator& of(const c10::OperatorHandle& handle, Intern&& intern) {
    static thread_local Flat<const Operator*> mine(1024);
    static thread_local uint64_t seen = 0;
    const uint64_t now = generation_.load(std::memory_order_acquire);
    if (seen != now) {
      mine.clear();
      seen = now;
    }
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

  // Hears from now on of operators that are gone. Their descriptions stay: another thread may be in one.
  void listen() {
    static const auto registered = c10::Dispatcher::singleton().addRegistrationListener(std::make_unique<Listener>(*this));
  }

  // In a forked child: a thread of the parent's may have held the lock.
  void forked() { new (&mutex_) std::mutex(); }

 private:
  struct Listener final : c10::OpRegistrationListener {
    Table& table;
    explicit Listener(Table& table) : table(table) {}
    void onOperatorRegistered(const c10::OperatorHandle&) override {}
    void onOperatorDeregistered(const c10::OperatorHandle& handle) override { table.forget(reinterpret_cast<Addr>(&handle.schema())); }
  };

  void forget(Addr key) {
    std::lock_guard<std::mutex> guard(mutex_);
    all_.erase(key);
    generation_.fetch_add(1, std::memory_order_release);
  }

  std::mutex mutex_;
  std::atomic<uint64_t> generation_{0};
  Flat<Operator*> all_{1024};
};

}  // namespace roles
}  // namespace streamsafe
