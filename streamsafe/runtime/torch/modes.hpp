// Python's dispatch modes: one may run an operator, something else in its place, or nothing.
#pragma once
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/record_function.h>
#include <c10/core/impl/TorchDispatchModeTLS.h>
#include <optional>
#include "tensors.hpp"

namespace streamsafe {

// Whether anything is done to the memory of an operator's arguments while a mode handles it. What a mode calls does not
// come to the hooks, but torch's own observers hear of it.
class Handled {
 public:
  Handled(const c10::OperatorHandle& handle, const Uses& arguments) : handle_(handle), arguments_(arguments), outer_(current_) {
    if (!c10::impl::dispatch_mode_enabled()) return;
    current_ = this;
    watching_ = at::addThreadLocalCallback(at::RecordFunctionCallback(&called).needsInputs(true).scopes({at::RecordScope::FUNCTION}));
  }
  ~Handled() {
    if (!watching_) return;
    at::removeCallback(*watching_);
    current_ = outer_;
  }
  Handled(const Handled&) = delete;

  // Whether a mode has run nothing.
  bool in_vain() const { return watching_ && !ran_; }

 private:
  static std::unique_ptr<at::ObserverContext> called(const at::RecordFunction& function) {
    if (current_ && !current_->ran_) current_->look(function);
    return nullptr;
  }

  void look(const at::RecordFunction& function) {
    const auto name = function.operator_name();
    if (!name) return;
    if (arguments_.uses.empty()) {
      ran_ = *name == handle_.operator_name();
      return;
    }
    const auto found = c10::Dispatcher::singleton().findSchema(*name);
    if (!found) return;
    State& state = shared_state();
    const Operator& op = state.table.of(*found, [&](const std::string& called) { return state.intern(called); });
    if (op.pass || op.skip) return;
    const auto inputs = function.inputs();
    Seen its;
    for (const auto& argument : op.arguments)
      if (argument.index < inputs.size()) see(its, inputs[argument.index], argument.role);
    for (const Use& use : its.device.uses)
      for (const Use& argument : arguments_.uses) ran_ = ran_ || (use.space == argument.space && use.start < argument.stop && argument.start < use.stop);
  }

  const c10::OperatorHandle& handle_;
  const Uses& arguments_;
  Handled* outer_;
  std::optional<at::CallbackHandle> watching_;
  bool ran_ = false;
  static thread_local Handled* current_;
};

inline thread_local Handled* Handled::current_ = nullptr;

}  // namespace streamsafe
