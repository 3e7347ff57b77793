// Places in code that is gone, and operations of backward passes that only such a place tells apart: nothing of them is
// kept once nothing remembers them.
#pragma once
#include "backward.hpp"

namespace streamsafe {

// Unmarks the places that somebody remembers; under the core's lock.
inline void keep_remembered(std::vector<uint8_t>& dying) {
  State& state = shared_state();
  std::vector<uint8_t> used(state.operations.size(), 0);
  auto visit = [&](uint32_t operation, uint32_t site) {
    if (site < dying.size()) dying[site] = 0;
    if (operation < used.size()) used[operation] = 1;
  };
  state.core.remembered(visit);
  for (auto& [thread, report] : state.stashed)
    for (int64_t number : report)
      if (number > 0 && number < int64_t(~Id(0))) visit(uint32_t(number), uint32_t(number));
  for (auto& each : state.written) visit(each.operation, each.site);
  // a number rests for one round: a thread may be about to name it
  state.free_operations.insert(state.free_operations.end(), state.resting_operations.begin(), state.resting_operations.end());
  state.resting_operations.clear();
  for (auto it = state.operation_ids.begin(); it != state.operation_ids.end();) {
    const Operation& each = state.operations[it->second];
    if (each.backward && !each.told && !used[it->second] && (dying[each.forward] || dying[each.caller])) {
      state.resting_operations.push_back(it->second);
      it = state.operation_ids.erase(it);
    } else {
      ++it;
    }
  }
  for (auto& [name, id] : state.operation_ids) dying[state.operations[id].forward] = dying[state.operations[id].caller] = 0;
  if (!state.resting_operations.empty()) state.core.forget_operations();
  for (auto& entry : forward_sites) {  // the forward of a node keeps no place
    uint64_t value = entry.load(std::memory_order_relaxed);
    const uint32_t site = uint32_t(value);
    if (site < dying.size() && dying[site]) entry.compare_exchange_strong(value, 0, std::memory_order_relaxed);
  }
}

// No lock may be held.
inline void retire_places() {
  State& state = shared_state();
  if (!Py_IsInitialized() || !PyGILState_GetThisThreadState()) return;
  py::gil_scoped_acquire gil;
  PyObject *type, *value, *trace;  // an exception may be on its way
  PyErr_Fetch(&type, &value, &trace);
  for (bool more = true; more;) {
    std::vector<PyObject*> released;
    {
      Lock guard(state.core.mutex);
      if (state.core.taping) state.sites.postpone();  // the tape's reader asks for places later
      else released = state.sites.retire([](std::vector<uint8_t>& dying) { keep_remembered(dying); });
    }
    for (PyObject* code : released) Py_DECREF(code);
    more = !released.empty();
  }
  PyErr_Restore(type, value, trace);
}

}  // namespace streamsafe
