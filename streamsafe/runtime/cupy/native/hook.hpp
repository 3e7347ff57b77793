// A hook: a callable in C that stands in for a method. It passes on to what was there before (`plain`), or to the hook that
// is written in Python (`python`) whenever something is not as usual. Everything else that one asks of it is Python's.
#pragma once
#include "state.hpp"

namespace streamsafe::cupy {

struct Hook;
struct Call;
using Behaviour = PyObject* (*)(Hook*, Call);

struct Hook {
  PyObject_HEAD
  vectorcallfunc vectorcall;
  Behaviour behaviour;
  PyObject *plain, *python;
  PyObject* name;  // of the operation, where hooks of one behaviour differ by it
  Id operation;
};

// The arguments of a call, as they came.
struct Call {
  PyObject* const* arguments;
  size_t flags;
  PyObject* keywords;

  Py_ssize_t given() const { return PyVectorcall_NARGS(flags); }
  PyObject* self() const { return given() ? arguments[0] : Py_None; }
  PyObject* get(Py_ssize_t position, PyObject* name) const { return argument(arguments, given(), keywords, position, name); }
  PyObject* to(PyObject* callable) const { return PyObject_Vectorcall(callable, arguments, flags, keywords); }
};

inline PyObject* call_hook(PyObject* self, PyObject* const* arguments, size_t flags, PyObject* keywords) {
  Hook* hook = reinterpret_cast<Hook*>(self);
  return hook->behaviour(hook, Call{arguments, flags, keywords});
}

inline PyObject* hook_get(PyObject* self, PyObject* instance, PyObject*) {
  if (!instance || instance == Py_None) {
    Py_INCREF(self);
    return self;
  }
  return PyMethod_New(self, instance);
}

inline PyObject* hook_attribute(PyObject* self, PyObject* name) {
  PyObject* found = PyObject_GenericGetAttr(self, name);
  if (found || !PyErr_ExceptionMatches(PyExc_AttributeError)) return found;
  PyErr_Clear();
  PyObject* python = reinterpret_cast<Hook*>(self)->python;
  if (PyUnicode_Check(name) && PyUnicode_CompareWithASCIIString(name, "__wrapped__") == 0) {  // for `inspect.signature`
    Py_INCREF(python);
    return python;
  }
  return PyObject_GetAttr(python, name);
}

inline int hook_set_attribute(PyObject* self, PyObject* name, PyObject* value) {
  return PyObject_SetAttr(reinterpret_cast<Hook*>(self)->python, name, value);
}

inline int hook_traverse(PyObject* self, visitproc visit, void* arg) {
  Hook* hook = reinterpret_cast<Hook*>(self);
  Py_VISIT(hook->plain);
  Py_VISIT(hook->python);
  return 0;
}

inline void hook_dealloc(PyObject* self) {
  Hook* hook = reinterpret_cast<Hook*>(self);
  PyObject_GC_UnTrack(self);
  Py_XDECREF(hook->plain);
  Py_XDECREF(hook->python);
  Py_XDECREF(hook->name);
  PyObject_GC_Del(self);
}

inline PyTypeObject* hook_type() {
  static PyTypeObject type = [] {
    PyTypeObject made = {PyVarObject_HEAD_INIT(nullptr, 0)};
    made.tp_name = "streamsafe.hook";
    made.tp_basicsize = sizeof(Hook);
    made.tp_vectorcall_offset = offsetof(Hook, vectorcall);
    made.tp_call = PyVectorcall_Call;
    made.tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_METHOD_DESCRIPTOR | Py_TPFLAGS_HAVE_GC;
    made.tp_descr_get = hook_get;
    made.tp_getattro = hook_attribute;
    made.tp_setattro = hook_set_attribute;
    made.tp_traverse = hook_traverse;
    made.tp_dealloc = hook_dealloc;
    return made;
  }();
  return &type;
}

}  // namespace streamsafe::cupy
