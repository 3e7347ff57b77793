// Operators over lists of tensors that return nothing: the steps of optimizers. The boxed fallback would make a value of
// each tensor of a list and a list of the values again, which costs more than all else that is done about the operator, and
// in sessions and outside them. So these have kernels of their own signatures.
#pragma once
#include <ATen/ops/_foreach_add_ops.h>
#include <ATen/ops/_foreach_addcdiv_ops.h>
#include <ATen/ops/_foreach_addcmul_ops.h>
#include <ATen/ops/_foreach_div_ops.h>
#include <ATen/ops/_foreach_lerp_ops.h>
#include <ATen/ops/_foreach_mul_ops.h>
#include <ATen/ops/_foreach_neg_ops.h>
#include <ATen/ops/_foreach_reciprocal_ops.h>
#include <ATen/ops/_foreach_sqrt_ops.h>
#include <ATen/ops/_foreach_sub_ops.h>
#include <ATen/ops/_foreach_zero_ops.h>
#include <ATen/ops/_fused_adam_ops.h>
#include <ATen/ops/_fused_adamw_ops.h>
#include <ATen/ops/_fused_sgd_ops.h>
#include <torch/library.h>
#include "operate.hpp"

namespace streamsafe {
namespace lists {

inline void see_argument(Seen& seen, at::TensorList tensors, Role role) {
  for (const at::Tensor& each : tensors) see(seen, each, role);
}
inline void see_argument(Seen& seen, const at::Tensor& tensor, Role role) { see(seen, tensor, role); }
inline void see_argument(Seen& seen, const std::optional<at::Tensor>& tensor, Role role) {
  if (tensor) see(seen, *tensor, role);
}
template <class T>
void see_argument(Seen&, const T&, Role) {}  // a number, or several

// Hands out the role of each argument in turn.
class Roles {
 public:
  explicit Roles(const Operator& op) : next_(op.arguments.begin()), end_(op.arguments.end()) {}
  Role take() {
    const size_t index = index_++;
    return next_ != end_ && next_->index == index ? (next_++)->role : Role::metadata;
  }

 private:
  decltype(Operator::arguments)::const_iterator next_, end_;
  size_t index_ = 0;
};

template <class Op, class Schema = typename Op::schema>
struct Kernel;

template <class Op, class... Arguments>
struct Kernel<Op, void(Arguments...)> {
  static const c10::OperatorHandle& handle() {
    static const c10::OperatorHandle found = c10::Dispatcher::singleton().findSchemaOrThrow(Op::name, Op::overload_name);
    return found;
  }

  static void call(c10::DispatchKeySet keys, Arguments... arguments) {
    State& state = shared_state();
    if (!state.on.load(std::memory_order_relaxed)) {
      c10::impl::ExcludeDispatchKeyGuard exclude(KEY);
      Op::redispatch(below(keys), arguments...);
      return;
    }
    const Operator& op = state.table.of(handle(), [&](const std::string& name) { return state.intern(name); });
    Borrowed borrowed;
    Seen& seen = *borrowed.seen;
    Roles roles(op);
    (see_argument(seen, arguments, roles.take()), ...);
    if (seen.wrapped || state.capturing.load(std::memory_order_relaxed) || c10::impl::dispatch_mode_enabled()) {  // seldom, and there is more to look at
      torch::jit::Stack stack;
      torch::jit::push(stack, arguments...);
      operate(handle(), keys, &stack);
      return;
    }
    if (state.pending.load(std::memory_order_relaxed)) raise_pending();
    if (state.sites.due()) retire_places();
    state.counters.operators.fetch_add(1, std::memory_order_relaxed);
    uint32_t operation = op.id, site = 0;
    if (!seen.device.uses.empty() || !seen.cpu.uses.empty()) name_operation(op, operation, site);
    do_by_host(seen, operation, site);
    if (!seen.device.uses.empty()) {
      state.counters.uses.fetch_add(seen.device.uses.size(), std::memory_order_relaxed);
      enqueue_all(seen, operation, site, true, borrowed.undo);
    }
    if (at::GradMode::is_enabled()) remember_forward(site);
    try {
      OperatorScope scope(op, operation, site, seen.index);
      c10::impl::ExcludeDispatchKeyGuard exclude(KEY);
      Op::redispatch(below(keys), arguments...);
    } catch (...) {
      revoke(*borrowed.undo);
      throw;
    }
  }
};

template <class... Ops>
void add(torch::Library& library) {
  auto one = [&](const char* name, const char* overload, auto&& kernel) {
    std::string full = std::string(name).substr(std::strlen("aten::"));
    if (*overload) full += "." + std::string(overload);
    library.impl(full.c_str(), std::forward<decltype(kernel)>(kernel));
  };
  (one(Ops::name, Ops::overload_name, TORCH_FN((Kernel<Ops>::call))), ...);
}

inline void install(torch::Library& library) {
  using namespace at::_ops;
  add<_foreach_add__List, _foreach_add__Scalar, _foreach_add__ScalarList, _foreach_add__Tensor>(library);
  add<_foreach_sub__List, _foreach_sub__Scalar, _foreach_sub__ScalarList>(library);
  add<_foreach_mul__List, _foreach_mul__Scalar, _foreach_mul__ScalarList, _foreach_mul__Tensor>(library);
  add<_foreach_div__List, _foreach_div__Scalar, _foreach_div__ScalarList, _foreach_div__Tensor>(library);
  add<_foreach_addcmul__Scalar, _foreach_addcmul__ScalarList, _foreach_addcmul__Tensor>(library);
  add<_foreach_addcdiv__Scalar, _foreach_addcdiv__ScalarList, _foreach_addcdiv__Tensor>(library);
  add<_foreach_lerp__List, _foreach_lerp__Scalar>(library);
  add<_foreach_zero_, _foreach_sqrt_, _foreach_neg_, _foreach_reciprocal_>(library);
  add<_fused_adam_, _fused_adam__tensor_lr, _fused_adamw_, _fused_adamw__tensor_lr, _fused_sgd_, _fused_sgd__tensor_lr>(library);
}

}  // namespace lists
}  // namespace streamsafe
