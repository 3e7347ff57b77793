// The host's reads and writes of pinned NumPy arrays, as streamsafe/runtime/pinned/arrays.py says, and what CuPy's arrays take from
// and give to NumPy's.
#pragma once
#include "copies.hpp"

namespace streamsafe::cupy {

// The beginning of NumPy's array object, as far as it is read (PyArrayObject_fields). `configure` tries it.
struct Array {
  PyObject_HEAD
  char* data;
  int nd;
  Py_ssize_t *dimensions, *strides;
  PyObject *base, *descr;
  int flags;
};
constexpr int CONTIGUOUS = 1 | 2;  // in C's or Fortran's order

inline bool host_use(PyObject* array, bool write, Uses& uses) {
  auto* fields = reinterpret_cast<Array*>(array);
  Use use;
  use.space = HOST_SPACE;
  Addr itemsize;
  if (fields->nd > 16 || !integer(array, names().itemsize, itemsize)) return false;
  const Addr pointer = reinterpret_cast<Addr>(fields->data);
  if (fields->flags & CONTIGUOUS) {
    Addr size = itemsize;
    for (int i = 0; i < fields->nd; ++i) size *= Addr(fields->dimensions[i]);
    use.start = pointer;
    use.stop = pointer + size;
  } else {
    int64_t shape[16], strides[16];
    std::copy(fields->dimensions, fields->dimensions + fields->nd, shape);
    std::copy(fields->strides, fields->strides + fields->nd, strides);
    if (!strided(use, uses, pointer, shape, strides, fields->nd, int64_t(itemsize))) return false;
  }
  return uses.add(use, !write, write);
}

// Whether the host's access is as usual, and then recorded; else Python has to look.
inline bool in_order(const Uses& uses) {
  State& s = state();
  if (!s.host) return true;
  Held monitor;
  if (!alone()) {
    if (!is(s.local, names().callback, Py_None)) return false;  // a host function's
    if (!monitor.take(s.lock)) {
      forgive();
      return false;
    }
  }
  Lock lock(s.core.mutex);
  if (!s.core.host_in_order(uses.data(), uses.size())) return false;
  for (size_t i = 0; i < uses.size(); ++i)
    if (uses.data()[i].mode == Mode::writes) s.prints.forget(uses.data()[i].start, uses.data()[i].stop);
  return true;
}

inline bool host_in_order(PyObject* array, bool write) {
  Uses uses;
  return host_use(array, write, uses) && in_order(uses);
}

// -- _report_one(array, writes, operation)
inline PyObject* report_one(Hook* hook, Call call) {
  const Ear ear = listening();
  if (ear == Ear::nobody) Py_RETURN_NONE;
  if (ear == Ear::compiled && call.given() == 3 && PyObject_TypeCheck(call.arguments[0], reinterpret_cast<PyTypeObject*>(state().numpy_array)) &&
      host_in_order(call.arguments[0], call.arguments[1] == Py_True))
    Py_RETURN_NONE;
  return call.to(hook->python);
}

// Whether an argument holds no pinned array: what is passed on to NumPy as it is.
inline bool leaf(PyObject* value) {
  PyTypeObject* type = Py_TYPE(value);
  return type == &PyLong_Type || type == &PyFloat_Type || type == &PyBool_Type || type == &PyUnicode_Type || value == Py_None ||
         value == Py_Ellipsis || type == &PyComplex_Type || type == &PyBytes_Type || reinterpret_cast<PyObject*>(type) == state().numpy_array;
}

// -- a method of PinnedArray: `plain` is NumPy's, the hook's name "reads" or "writes"
template <bool WRITES>
PyObject* array_method(Hook* hook, Call call) {
  State& s = state();
  const Ear ear = listening();
  PyObject* self = call.self();
  if (ear == Ear::python || call.keywords || call.given() > 4 || reinterpret_cast<PyObject*>(Py_TYPE(self)) != s.pinned_array)
    return call.to(hook->python);
  for (Py_ssize_t i = 1; i < call.given(); ++i)
    if (!leaf(call.arguments[i])) return call.to(hook->python);
  if (ear == Ear::compiled && !host_in_order(self, WRITES)) return call.to(hook->python);
  Owned view(PyObject_CallMethodOneArg(self, names().view, s.numpy_array));
  if (!view) return nullptr;
  PyObject* given[4] = {view.get()};
  for (Py_ssize_t i = 1; i < call.given(); ++i) given[i] = call.arguments[i];
  Owned result(PyObject_Vectorcall(hook->plain, given, size_t(call.given()), nullptr));
  if (!result) return nullptr;
  if (result.get() == view.get()) {
    Py_INCREF(self);
    return self;
  }
  if (reinterpret_cast<PyObject*>(Py_TYPE(result.get())) == s.numpy_array) {
    if (reinterpret_cast<Array*>(result.get())->base == view.get()) return PyObject_CallOneArg(s.watched, result.get());
    return result.release();
  }
  if (PyTuple_CheckExact(result.get())) {
    Owned views(PyDict_New()), key(PyLong_FromVoidPtr(view.get())), pair(PyTuple_Pack(2, view.get(), self));
    if (!views || !key || !pair || PyDict_SetItem(views.get(), key.get(), pair.get()) < 0) return nullptr;
    return PyObject_CallFunctionObjArgs(s.restored, result.get(), views.get(), nullptr);
  }
  return result.release();
}

// One element or a part of an array: its use, and for a part the view that it is. False: Python has to look.
inline bool element(PyObject* self, PyObject* index, bool write, Uses& uses) {
  auto* fields = reinterpret_cast<Array*>(self);
  int64_t place;
  if (fields->nd == 1 && number(index, place)) {
    if (place < 0) place += fields->dimensions[0];
    Addr itemsize;
    if (place < 0 || place >= fields->dimensions[0] || !integer(self, names().itemsize, itemsize)) return false;
    Use use;
    use.space = HOST_SPACE;
    use.start = reinterpret_cast<Addr>(fields->data + place * fields->strides[0]);
    use.stop = use.start + itemsize;
    return uses.add(use, !write, write);
  }
  if (!PySlice_Check(index) && index != Py_Ellipsis && !PyLong_CheckExact(index)) return false;
  Owned view(PyObject_CallMethodOneArg(self, names().view, state().numpy_array));
  Owned part(view ? PyObject_GetItem(view.get(), index) : nullptr);
  if (!part || !PyObject_TypeCheck(part.get(), reinterpret_cast<PyTypeObject*>(state().numpy_array))) {
    forgive();
    return false;
  }
  return host_use(part.get(), write, uses);
}

// -- PinnedArray.__getitem__(self, index): a part is a view, an element is read
inline PyObject* array_item(Hook* hook, Call call) {
  State& s = state();
  const Ear ear = listening();
  if (ear == Ear::python || call.given() != 2 || call.keywords || reinterpret_cast<PyObject*>(Py_TYPE(call.self())) != s.pinned_array)
    return call.to(hook->python);
  PyObject* index = call.arguments[1];
  if (PySlice_Check(index) || index == Py_Ellipsis) return call.to(hook->plain);
  Uses uses;
  if (reinterpret_cast<Array*>(call.self())->nd != 1 || !PyLong_CheckExact(index)) return call.to(hook->python);
  if (ear == Ear::compiled && !(element(call.self(), index, false, uses) && in_order(uses))) return call.to(hook->python);
  return call.to(hook->plain);
}

// -- PinnedArray.__setitem__(self, index, value)
inline PyObject* array_set_item(Hook* hook, Call call) {
  State& s = state();
  const Ear ear = listening();
  if (ear == Ear::python || call.given() != 3 || call.keywords || reinterpret_cast<PyObject*>(Py_TYPE(call.self())) != s.pinned_array)
    return call.to(hook->python);
  if (!leaf(call.arguments[2])) return call.to(hook->python);
  Uses uses;
  if (ear == Ear::compiled && !(element(call.self(), call.arguments[1], true, uses) && in_order(uses))) return call.to(hook->python);
  return call.to(hook->plain);
}

// -- ndarray.get(self, stream=None, order="C", out=None, ...) and ndarray.set(self, arr, stream=None)
inline PyObject* array_get(Hook* hook, Call call) {
  PyObject* out = call.get(3, names().out);
  return call.to(out && out != Py_None ? hook->python : hook->plain);
}

inline PyObject* array_set(Hook* hook, Call call) {
  State& s = state();
  if (call.given() < 2 || call.given() > 3) return call.to(hook->python);
  PyObject* source = call.arguments[1];
  if (reinterpret_cast<PyObject*>(Py_TYPE(source)) != s.pinned_array)
    return call.to(reinterpret_cast<PyObject*>(Py_TYPE(source)) == s.numpy_array ? hook->python : hook->plain);
  Owned view(PyObject_CallMethodOneArg(source, names().view, s.numpy_array));
  if (!view) return nullptr;
  // CuPy asks NumPy for a contiguous array: of a plain one that takes less time
  PyObject* given[8] = {call.arguments[0], view.get()};
  const Py_ssize_t more = call.keywords ? PyTuple_GET_SIZE(call.keywords) : 0;
  if (call.given() + more > 8) return call.to(hook->python);
  for (Py_ssize_t i = 2; i < call.given() + more; ++i) given[i] = call.arguments[i];
  return PyObject_Vectorcall(hook->plain, given, size_t(call.given()), call.keywords);
}

}  // namespace streamsafe::cupy
