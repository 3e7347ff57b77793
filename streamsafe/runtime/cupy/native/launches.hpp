// Kernel launches, as streamsafe/runtime/cupy/kernels.py says: of kernels whose operands one knows by their places alone.
#pragma once
#include "hook.hpp"
#include "operands.hpp"

namespace streamsafe::cupy {

// What a kernel does with its arguments. A launch of one that has none is Python's.
struct Plan {
  struct Place {
    Py_ssize_t position;
    bool read, write, certain, value;
  };

  PyObject_HEAD
  long stamp;  // of the annotations that it was made under
  Py_ssize_t known;
  bool may_raise;
  Id operation;
  std::vector<Place>* places;
};

inline void plan_dealloc(PyObject* self) {
  delete reinterpret_cast<Plan*>(self)->places;
  PyObject_Free(self);
}

inline PyTypeObject* plan_type() {
  static PyTypeObject type = [] {
    PyTypeObject made = {PyVarObject_HEAD_INIT(nullptr, 0)};
    made.tp_name = "streamsafe.plan";
    made.tp_basicsize = sizeof(Plan);
    made.tp_flags = Py_TPFLAGS_DEFAULT;
    made.tp_dealloc = plan_dealloc;
    return made;
  }();
  return &type;
}

inline Id operation_id(PyObject* name) {
  State& s = state();
  static PyObject* known = PyDict_New();
  if (PyObject* found = PyDict_GetItemWithError(known, name)) return Id(PyLong_AsUnsignedLong(found));
  Owned id(PyLong_FromSize_t(s.operation_names.size()));
  if (PyDict_SetItem(known, name, id.get()) < 0) return 0;
  Py_INCREF(name);
  s.operation_names.push_back(name);
  return Id(s.operation_names.size() - 1);
}

// plan(places, known, stamp, may_raise, operation)
inline PyObject* make_plan(PyObject*, PyObject* arguments) {
  PyObject *places, *operation;
  Py_ssize_t known;
  long stamp;
  int may_raise;
  if (!PyArg_ParseTuple(arguments, "O!nlpU", &PyList_Type, &places, &known, &stamp, &may_raise, &operation)) return nullptr;
  auto found = std::make_unique<std::vector<Plan::Place>>();
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(places); ++i) {
    Plan::Place place;
    int read, write, certain, value;
    if (!PyArg_ParseTuple(PyList_GET_ITEM(places, i), "npppp", &place.position, &read, &write, &certain, &value)) return nullptr;
    place.read = read, place.write = write, place.certain = certain, place.value = value;
    found->push_back(place);
  }
  Plan* plan = PyObject_New(Plan, plan_type());
  if (!plan) return nullptr;
  plan->stamp = stamp;
  plan->known = known;
  plan->may_raise = may_raise;
  plan->operation = operation_id(operation);
  plan->places = found.release();
  return reinterpret_cast<PyObject*>(plan);
}

inline bool is_array(PyObject* given) { return PyObject_TypeCheck(given, reinterpret_cast<PyTypeObject*>(state().array_type)); }

// A pointer's memory from there to the end of its block. False: Python has to look.
inline bool rest_of_block(PyObject* pointer, Use& use) {
  if (!PyObject_TypeCheck(pointer, reinterpret_cast<PyTypeObject*>(state().plain_pointer))) return false;
  Owned memory(PyObject_GetAttr(pointer, names().mem));
  Addr address, start, size;
  if (!memory || !integer(pointer, names().ptr, address) || !integer(memory.get(), names().ptr, start) || !integer(memory.get(), names().size, size)) {
    forgive();
    return false;
  }
  return pointer_use(pointer, start + size > address ? start + size - address : 0, use);
}

// Whether the calling thread's next allocation is to be a plain pointer, which it is asked for once.
inline bool no_plain_pointer() {
  State& s = state();
  if (!PySet_GET_SIZE(s.plain_pointers)) return false;
  Owned thread(PyLong_FromUnsignedLong(PyThread_get_thread_ident()));
  const int found = thread ? PySet_Discard(s.plain_pointers, thread.get()) : 0;
  if (found < 0) forgive();
  return found > 0;
}

// Function.linear_launch(self, size, args, shared_mem, block_max_size, stream, ...), with the places of two arguments; and
// Function.__call__(self, grid, block, args, shared_mem, stream, ...)
template <int ARGS, int STREAM>
PyObject* launch(Hook* hook, Call call) {
  const Ear ear = listening();
  State& s = state();
  if (ear == Ear::python) return call.to(hook->python);
  no_plain_pointer();
  if (ear == Ear::nobody) return call.to(hook->plain);
  PyObject* self = call.self();
  PyObject* args = call.get(ARGS, names().args);
  if (!PyObject_TypeCheck(self, s.traced_function) || !args) return call.to(hook->python);
  PyObject* held = *reinterpret_cast<PyObject**>(reinterpret_cast<char*>(self) + s.plan_offset);
  if (!held || Py_TYPE(held) != plan_type() || !(PyTuple_CheckExact(args) || PyList_CheckExact(args))) return call.to(hook->python);
  Owned kept = shared(held);
  Plan* plan = reinterpret_cast<Plan*>(held);
  if (PySequence_Fast_GET_SIZE(args) != plan->known || PyLong_AsLong(PyList_GET_ITEM(s.revision, 0)) != plan->stamp) return call.to(hook->python);
  Uses uses;
  for (auto& place : *plan->places) {
    PyObject* given = PySequence_Fast_GET_ITEM(args, place.position);
    Use use;
    use.certain = place.certain;
    if (!is_array(given)) {
      if (place.value) continue;
      if (!rest_of_block(given, use)) return call.to(hook->python);
    } else if (!array_use(given, use, uses)) {
      return call.to(hook->python);
    }
    if (!uses.add(use, place.read, place.write)) return call.to(hook->python);
  }
  Line line = line_of(call.get(STREAM, names().stream));
  if (!line) return call.to(hook->python);
  const Id site = here();
  Held order;
  if (!order.take_order(line.key)) return nullptr;
  const bool done = enqueue(line, uses, plan->operation, site, plan->may_raise, [&](PyObject* reads, PyObject* writes) {
    for (auto& place : *plan->places) {
      PyObject* given = PySequence_Fast_GET_ITEM(args, place.position);
      if (!is_array(given) && place.value) continue;
      PyObject* certain = place.certain ? Py_True : Py_False;
      Owned touch(is_array(given) ? PyObject_CallFunctionObjArgs(s.touch_array, given, certain, nullptr)
                                  : PyObject_CallFunctionObjArgs(s.touch_pointer, given, Py_None, certain, nullptr));
      if (!touch || (place.read && PyList_Append(reads, touch.get()) < 0) || (place.write && PyList_Append(writes, touch.get()) < 0)) return false;
    }
    return true;
  });
  return done ? call.to(hook->plain) : nullptr;
}

// Whether an argument of a library's function holds no array.
inline bool without_arrays(PyObject* value) {
  PyTypeObject* type = Py_TYPE(value);
  if (type == &PyTuple_Type) {
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(value); ++i)
      if (!PyLong_CheckExact(PyTuple_GET_ITEM(value, i))) return false;
    return true;
  }
  return value == Py_None || PyLong_Check(value) || type == &PyFloat_Type || type == &PyComplex_Type || type == &PyUnicode_Type;
}

// Arrays that an operation reads or writes, for a conflict.
inline bool touched(PyObject* list, PyObject* array) {
  Owned touch(PyObject_CallOneArg(state().touch_array, array));
  return touch && PyList_Append(list, touch.get()) == 0;
}

// A function that reads the arrays it is given and writes its result.
inline PyObject* array_function(Hook* hook, Call call) {
  const Ear ear = listening();
  if (ear == Ear::nobody) return call.to(hook->plain);
  if (ear == Ear::python || call.keywords || call.given() > 8) return call.to(hook->python);
  Uses read;
  PyObject* arrays[8];
  int count = 0;
  for (Py_ssize_t i = 0; i < call.given(); ++i) {
    PyObject* given = call.arguments[i];
    if (!is_array(given)) {
      if (!without_arrays(given)) return call.to(hook->python);
      continue;
    }
    Use use;
    if (!array_use(given, use, read) || !read.add(use, true, false)) return call.to(hook->python);
    arrays[count++] = given;
  }
  Line line = line_of(nullptr);
  if (!line) return call.to(hook->python);
  const Id site = here();
  const bool done = enqueue(line, read, hook->operation, site, true, [&](PyObject* reads, PyObject*) {
    for (int i = 0; i < count; ++i)
      if (!touched(reads, arrays[i])) return false;
    return true;
  });
  if (!done) return nullptr;
  const uint64_t session = state().session;
  Owned result(call.to(hook->plain));
  if (!result || session != state().session || !is_array(result.get())) return result.release();
  for (int i = 0; i < count; ++i)
    if (arrays[i] == result.get()) return result.release();
  Uses written;
  Use use;
  if (!array_use(result.get(), use, written)) return result.release();
  written.add(use, false, true);
  enqueue(line, written, hook->operation, site, false, [&](PyObject*, PyObject* writes) { return touched(writes, result.get()); });
  return PyErr_Occurred() ? nullptr : result.release();
}

}  // namespace streamsafe::cupy
