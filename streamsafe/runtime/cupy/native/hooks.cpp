// The compiled hooks of CuPy's front end: a module that streamsafe/runtime/cupy/compiled.py builds, loads and fills.
#include "arrays.hpp"

namespace streamsafe::cupy {
namespace {

struct Kind_ {
  const char* name;
  Behaviour behaviour;
};
const Kind_ KINDS[] = {
    {"event_init", event_init},
    {"event_del", event_del},
    {"event_record", event_record},
    {"event_synchronize", event_wait<false>},
    {"event_done", event_wait<true>},
    {"stream_record", stream_record},
    {"stream_synchronize", stream_wait<false>},
    {"stream_done", stream_wait<true>},
    {"wait_event", wait_event},
    {"linear_launch", launch<2, 5>},
    {"call", launch<3, 5>},
    {"from_host", from_host},
    {"to_host", to_host},
    {"copy", on_device<true>},
    {"fill", on_device<false>},
    {"pointer_add", pointer_add},
    {"allocate", allocate},
    {"report_one", report_one},
    {"array_function", array_function},
    {"array_reads", array_method<false>},
    {"array_writes", array_method<true>},
    {"array_item", array_item},
    {"array_set_item", array_set_item},
    {"array_get", array_get},
    {"array_set", array_set},
};

// hook(kind, plain, python, operation)
PyObject* make_hook(PyObject*, PyObject* arguments) {
  const char* kind;
  PyObject *plain, *python, *operation;
  if (!PyArg_ParseTuple(arguments, "sOOU", &kind, &plain, &python, &operation)) return nullptr;
  for (auto& each : KINDS) {
    if (std::string(each.name) != kind) continue;
    Hook* hook = PyObject_GC_New(Hook, hook_type());
    if (!hook) return nullptr;
    Py_INCREF(plain);
    Py_INCREF(python);
    Py_INCREF(operation);
    hook->vectorcall = call_hook;
    hook->behaviour = each.behaviour;
    hook->plain = plain;
    hook->python = python;
    hook->name = operation;
    hook->operation = operation_id(operation);
    PyObject_GC_Track(reinterpret_cast<PyObject*>(hook));
    return reinterpret_cast<PyObject*>(hook);
  }
  return PyErr_Format(PyExc_ValueError, "there is no hook %s", kind);
}

// configure(objects, traced_function, plan, notifier, current_stream): what the hooks ask and call
PyObject* configure(PyObject*, PyObject* arguments) {
  State& s = state();
  PyObject *given, *traced_function, *plan, *notifier, *current_stream;
  if (!PyArg_ParseTuple(arguments, "O!OOOO", &PyDict_Type, &given, &traced_function, &plan, &notifier, &current_stream)) return nullptr;
#define X(name)                                                                        \
  {                                                                                    \
    PyObject* found = PyDict_GetItemString(given, #name);                              \
    if (!found) return PyErr_Format(PyExc_KeyError, "%s is not given", #name);         \
    Py_INCREF(found);                                                                  \
    Py_XSETREF(s.name, found);                                                         \
  }
  STREAMSAFE_GIVEN(X)
#undef X
  s.sites.ask(s.internal);
  Py_INCREF(traced_function);
  s.traced_function = reinterpret_cast<PyTypeObject*>(traced_function);
  for (auto [slot, place] : {std::pair{plan, &s.plan_offset}, std::pair{notifier, &s.notifier_offset}}) {
    if (Py_TYPE(slot) != &PyMemberDescr_Type) return PyErr_Format(PyExc_TypeError, "%R is no slot", slot);
    *place = reinterpret_cast<PyMemberDescrObject*>(slot)->d_member->offset;
  }
  if (PyCapsule_CheckExact(current_stream)) {
    const char* signature = PyCapsule_GetName(current_stream);
    if (signature && std::string(signature) == "intptr_t (void)")
      s.current_stream = reinterpret_cast<intptr_t (*)()>(PyCapsule_GetPointer(current_stream, signature));
  }
  Py_RETURN_NONE;
}

void leave() {
  State& s = state();
  s.attached = false;
  ++s.session;
  for (PyObject** each : {&s.monitor, &s.checker, &s.line_ids, &s.by_handle, &s.capturing, &s.released, &s.lock}) Py_CLEAR(*each);
}

// begin(): a program begins, of which the core knows nothing; returns the core's address
PyObject* begin(PyObject*, PyObject*) {
  State& s = state();
  leave();
  {
    Lock lock(s.core.mutex);
    s.core.reset(false);
    s.prints.clear();
    s.sites.begin();
  }
  s.pageable.clear();
  s.copy_frame = nullptr;
  s.copy_source = 0;
  return PyLong_FromVoidPtr(&s.core);
}

// attach(monitor, checker, line_ids, by_handle, capturing, released, lock, host, one_device): the hooks serve this monitor
PyObject* attach(PyObject*, PyObject* arguments) {
  State& s = state();
  PyObject *monitor, *checker, *line_ids, *by_handle, *capturing, *released, *lock;
  int host, one_device;
  if (!PyArg_ParseTuple(arguments, "OOO!O!O!OOpp", &monitor, &checker, &PyDict_Type, &line_ids, &PyDict_Type, &by_handle, &PyList_Type, &capturing,
                        &released, &lock, &host, &one_device))
    return nullptr;
  leave();
  for (auto [place, object] : {std::pair{&s.monitor, monitor}, {&s.checker, checker}, {&s.line_ids, line_ids}, {&s.by_handle, by_handle},
                               {&s.capturing, capturing}, {&s.released, released}, {&s.lock, lock}}) {
    Py_INCREF(object);
    *place = object;
  }
  s.host = host;
  s.one_device = one_device;
  s.attached = true;
  Py_RETURN_NONE;
}

PyObject* detach(PyObject*, PyObject*) {
  leave();
  Py_RETURN_NONE;
}

// stream(device, kind): the id of a new timeline; of the legacy stream the one it has
PyObject* stream(PyObject*, PyObject* const* given, Py_ssize_t count) {
  State& s = state();
  int64_t device, kind;
  if (count != 2 || !number(given[0], device) || !number(given[1], kind)) return PyErr_Format(PyExc_TypeError, "stream takes two numbers");
  Lock lock(s.core.mutex);
  return PyLong_FromUnsignedLong(s.core.stream(int(device), streamsafe::Kind(kind)).id);
}

// finish(): whether the program ends with no conflict
PyObject* finish(PyObject*, PyObject*) {
  State& s = state();
  Lock lock(s.core.mutex);
  s.core.finish();
  return PyBool_FromLong(s.core.reports.empty());
}

// forked(): in a child process, of whose parent's threads one may have used the core
PyObject* forked(PyObject*, PyObject*) {
  new (&state().core.mutex) std::mutex();
  leave();
  Py_RETURN_NONE;
}

PyObject* places(PyObject*, PyObject*) { return PyLong_FromSize_t(state().sites.size()); }
PyObject* site(PyObject*, PyObject* id) { return state().sites.pairs(uint32_t(PyLong_AsUnsignedLong(id))); }
PyObject* site_id(PyObject*, PyObject* pairs) { return PyLong_FromUnsignedLong(state().sites.of(pairs)); }
PyObject* operations(PyObject*, PyObject*) {
  State& s = state();
  Lock lock(s.core.mutex);
  return PyLong_FromUnsignedLongLong(s.core.operations());
}
PyObject* operation(PyObject*, PyObject* name) { return PyLong_FromUnsignedLong(operation_id(name)); }
PyObject* operation_name(PyObject*, PyObject* id) {
  auto& all = state().operation_names;
  const size_t number = PyLong_AsSize_t(id);
  PyObject* found = number < all.size() ? all[number] : nullptr;
  if (!found) return PyUnicode_FromString("");
  Py_INCREF(found);
  return found;
}

PyObject* pinned_changed(PyObject*, PyObject*) {
  State& s = state();
  s.pinned_at = Flat<std::pair<Addr, Addr>>(256);
  s.pageable = Flat<char>(256);
  Py_RETURN_NONE;
}

// A use as Python has it: ((space, start, stop, shape, strides, itemsize), name, dtype, certain). False: an exception is set,
// or it is one that only `access` through the core's C functions takes.
bool read_use(PyObject* given, Use& use, Uses& uses) {
  PyObject* region = PyTuple_Check(given) && PyTuple_GET_SIZE(given) == 4 ? PyTuple_GET_ITEM(given, 0) : nullptr;
  if (!region || !PyTuple_Check(region) || PyTuple_GET_SIZE(region) != 6) return false;
  int64_t space, start, stop, itemsize;
  PyObject* where = PyTuple_GET_ITEM(region, 0);
  if (PyLong_CheckExact(where)) {
    if (!number(where, space)) return false;
  } else {
    if (!PyUnicode_Check(where) || PyUnicode_CompareWithASCIIString(where, "host")) return false;
    space = HOST_SPACE;
  }
  if (!number(PyTuple_GET_ITEM(region, 1), start) || !number(PyTuple_GET_ITEM(region, 2), stop) || !number(PyTuple_GET_ITEM(region, 5), itemsize))
    return false;
  use.space = int(space);
  use.start = Addr(start);
  use.stop = Addr(stop);
  use.itemsize = Addr(itemsize);
  use.certain = PyTuple_GET_ITEM(given, 3) == Py_True;
  PyObject *shape = PyTuple_GET_ITEM(region, 3), *strides = PyTuple_GET_ITEM(region, 4);
  if (shape == Py_None || strides == Py_None) return true;
  const Py_ssize_t count = PyTuple_Check(shape) && PyTuple_Check(strides) ? PyTuple_GET_SIZE(shape) : -1;
  int64_t* kept = count >= 0 && count <= 16 && PyTuple_GET_SIZE(strides) == count ? uses.dims(int(count)) : nullptr;
  if (!kept || !numbers(shape, kept, int(count)) || !numbers(strides, kept + count, int(count))) return false;
  use.dims = int(count);
  use.shape = kept;
  use.strides = kept + count;
  return true;
}

// access(line, reads, writes, operation, site): whether an operation was done as usual; False: there are conflicts; None: only
// the core's C functions take it
PyObject* access(PyObject*, PyObject* const* given, Py_ssize_t count) {
  State& s = state();
  if (count != 5) return PyErr_Format(PyExc_TypeError, "access takes five arguments");
  const Id id = Id(PyLong_AsUnsignedLong(given[0]));
  Uses uses;
  for (int which = 1; which <= 2; ++which) {
    Owned all(PySequence_Fast(given[which], "uses are a sequence"));
    if (!all) return nullptr;
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(all.get()); ++i) {
      Use use;
      if (!read_use(PySequence_Fast_GET_ITEM(all.get(), i), use, uses) || !uses.add(use, which == 1, which == 2)) Py_RETURN_NONE;
    }
  }
  const Id operation = Id(PyLong_AsUnsignedLong(given[3])), site = Id(PyLong_AsUnsignedLong(given[4]));
  if (PyErr_Occurred()) return nullptr;
  Lock lock(s.core.mutex);
  if (!id) return PyBool_FromLong(s.core.host_access(uses.data(), uses.size(), operation, site));
  Timeline* line = s.core.line(id);
  if (!line || line->capture) Py_RETURN_NONE;
  return PyBool_FromLong(s.core.access(*line, uses.data(), uses.size(), operation, site));
}

// -- the prints, for hooks in Python: watch(line, address, size), look_again(), forget(start, stop)
PyObject* watch(PyObject*, PyObject* arguments) {
  State& s = state();
  unsigned int line;
  unsigned long long address, size;
  if (!PyArg_ParseTuple(arguments, "IKK", &line, &address, &size)) return nullptr;
  const Id site = here();
  Lock lock(s.core.mutex);
  if (Timeline* timeline = s.core.line(line)) s.prints.watch(line, address, size, timeline->count, site);
  Py_RETURN_NONE;
}
PyObject* look(PyObject*, PyObject*) {
  if (!state().attached || look_again()) Py_RETURN_NONE;
  return nullptr;
}
PyObject* forget(PyObject*, PyObject* arguments) {
  State& s = state();
  unsigned long long start, stop;
  if (!PyArg_ParseTuple(arguments, "KK", &start, &stop)) return nullptr;
  Lock lock(s.core.mutex);
  s.prints.forget(start, stop);
  Py_RETURN_NONE;
}

// layout(array): address, shape, strides and flags of a NumPy array, as they are read here
PyObject* layout(PyObject*, PyObject* array) {
  auto* fields = reinterpret_cast<Array*>(array);
  if (fields->nd != 2) Py_RETURN_NONE;
  return Py_BuildValue("K(nn)(nn)i", (unsigned long long)fields->data, fields->dimensions[0], fields->dimensions[1], fields->strides[0],
                       fields->strides[1], fields->flags & CONTIGUOUS);
}

PyMethodDef FUNCTIONS[] = {
    {"access", reinterpret_cast<PyCFunction>(access), METH_FASTCALL, nullptr},
    {"attach", attach, METH_VARARGS, nullptr},
    {"begin", begin, METH_NOARGS, nullptr},
    {"configure", configure, METH_VARARGS, nullptr},
    {"detach", detach, METH_NOARGS, nullptr},
    {"finish", finish, METH_NOARGS, nullptr},
    {"forget", forget, METH_VARARGS, nullptr},
    {"forked", forked, METH_NOARGS, nullptr},
    {"hook", make_hook, METH_VARARGS, nullptr},
    {"layout", layout, METH_O, nullptr},
    {"look_again", look, METH_NOARGS, nullptr},
    {"operation", operation, METH_O, nullptr},
    {"operation_name", operation_name, METH_O, nullptr},
    {"operations", operations, METH_NOARGS, nullptr},
    {"pinned_changed", pinned_changed, METH_NOARGS, nullptr},
    {"plan", make_plan, METH_VARARGS, nullptr},
    {"places", places, METH_NOARGS, nullptr},
    {"site", site, METH_O, nullptr},
    {"site_id", site_id, METH_O, nullptr},
    {"stream", reinterpret_cast<PyCFunction>(stream), METH_FASTCALL, nullptr},
    {"watch", watch, METH_VARARGS, nullptr},
    {nullptr, nullptr, 0, nullptr},
};

PyModuleDef MODULE = {PyModuleDef_HEAD_INIT, "hooks", nullptr, -1, FUNCTIONS, nullptr, nullptr, nullptr, nullptr};

}  // namespace
}  // namespace streamsafe::cupy

PyMODINIT_FUNC PyInit_hooks() {
  using namespace streamsafe::cupy;
  for (PyTypeObject* type : {hook_type(), plan_type(), release_type()})
    if (PyType_Ready(type) < 0) return nullptr;
  return PyModule_Create(&MODULE);
}
