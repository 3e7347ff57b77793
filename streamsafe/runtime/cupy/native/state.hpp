// What the compiled hooks share: the core, the session that is open, and Python's side, which takes over whenever something
// is not as usual.
//
// The hooks run with the GIL, which they keep while they use the core. Where other threads run Python code too, they also
// take the Python side's locks, in its order.
#pragma once
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <structmember.h>
#include <string>
#include "abi.hpp"
#include "frames.hpp"
#include "prints.hpp"

namespace streamsafe::cupy {

// A reference that is given back.
class Owned {
 public:
  Owned() = default;
  explicit Owned(PyObject* object) : object_(object) {}
  Owned(Owned&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
  Owned& operator=(Owned&& other) noexcept {
    std::swap(object_, other.object_);
    return *this;
  }
  ~Owned() { Py_XDECREF(object_); }
  PyObject* get() const { return object_; }
  PyObject* release() { return std::exchange(object_, nullptr); }
  explicit operator bool() const { return object_ != nullptr; }

 private:
  PyObject* object_ = nullptr;
};

inline Owned shared(PyObject* object) {
  Py_XINCREF(object);
  return Owned(object);
}

#define STREAMSAFE_NAMES(X)                                                                                                       \
  X(monitor) X(checker) X(deferred) X(delay) X(imported) X(ptr) X(mem) X(value) X(device_id) X(data) X(shape) X(strides)        \
  X(itemsize) X(nbytes) X(size) X(ended) X(stop) X(_c_contiguous) X(_f_contiguous) X(acquire) X(release) X(drain) X(stream)     \
  X(event) X(args) X(src) X(out) X(view) X(base) X(lease) X(_streamsafe) X(callback) X(disable_timing) X(null_stream)

struct Names {
#define X(name) PyObject* name = PyUnicode_InternFromString(#name);
  STREAMSAFE_NAMES(X)
#undef X
};
inline Names& names() {
  static Names* all = new Names();
  return *all;
}

// What Python gives with `configure`, by the same names.
#define STREAMSAFE_GIVEN(X)                                                                                                      \
  X(current) X(timeline) X(order_lock) X(holding) X(pinned_sizes) X(array_type) X(traced_pointer) X(plain_pointer)              \
  X(pooled_memory) X(revision) X(internal_events) X(new_events) X(untimed_events) X(plain_pointers) X(blocks) X(new_block) X(settle) X(settle_edge) X(track)     \
  X(touch_array) X(touch_copied) X(touch_hosted) X(touch_pointer) X(overwritten) X(internal) X(is_pinned)         \
  X(pinned_array) X(numpy_array) X(watched) X(restored) X(local)

struct State {
  Core core;
  Sites sites;
  Prints prints;
  uint64_t session = 0;  // its number; they count up
  bool attached = false;
  bool host = false;        // whether host accesses are checked
  bool one_device = false;  // whether CUDA has said that there is but one device
  PyObject* zero = PyLong_FromLong(0);
  PyObject *monitor = nullptr, *checker = nullptr, *line_ids = nullptr, *by_handle = nullptr, *capturing = nullptr, *released = nullptr,
           *lock = nullptr;
#define X(name) PyObject* name = nullptr;
  STREAMSAFE_GIVEN(X)
#undef X
  intptr_t (*current_stream)() = nullptr;  // cupy_backends.cuda.stream.get_current_stream_ptr
  Py_ssize_t plan_offset = 0, notifier_offset = 0;
  PyTypeObject* traced_function = nullptr;

  std::vector<PyObject*> operation_names{nullptr};
  Flat<std::pair<Addr, Addr>> pinned_at{256};  // by address: the pinned block that holds it; (0, 0): none
  Flat<char> pageable{256};                    // addresses of heap memory that CUDA has called pageable

  // The last copy from the host: where it was called, and what it read.
  const void* copy_frame = nullptr;
  const void* copy_instruction = nullptr;
  bool copy_recorded = false;  // by a compiled hook
  Id copy_line = 0;
  Addr copy_source = 0;
};
inline State& state() {
  static State* all = new State();
  return *all;
}

using Lock = std::lock_guard<std::mutex>;

// Whatever failed, Python's hook is asked next. An interrupt that came meanwhile comes again.
inline void forgive() {
  const bool interrupted = PyErr_Occurred() && PyErr_ExceptionMatches(PyExc_KeyboardInterrupt);
  PyErr_Clear();
  if (interrupted) PyErr_SetInterrupt();
}

// -- asking objects -----------------------------------------------------------------------------------------------------------

inline bool integer(PyObject* object, PyObject* name, Addr& value) {
  Owned found(PyObject_GetAttr(object, name));
  if (!found || !PyLong_Check(found.get())) {
    forgive();
    return false;
  }
  value = PyLong_AsUnsignedLongLong(found.get());
  if (value == Addr(-1) && PyErr_Occurred()) {
    forgive();
    return false;
  }
  return true;
}

inline bool number(PyObject* object, int64_t& value) {
  if (!PyLong_CheckExact(object)) return false;
  int overflow = 0;
  value = PyLong_AsLongLongAndOverflow(object, &overflow);
  return !overflow;
}

inline bool is(PyObject* object, PyObject* name, PyObject* expected) {
  Owned found(PyObject_GetAttr(object, name));
  if (!found) forgive();
  return found.get() == expected;
}

// An argument that may be given by position or name; nullptr: it is not there.
inline PyObject* argument(PyObject* const* arguments, Py_ssize_t given, PyObject* keywords, Py_ssize_t position, PyObject* name) {
  if (position < given) return arguments[position];
  if (keywords)
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(keywords); ++i)
      if (PyTuple_GET_ITEM(keywords, i) == name || PyUnicode_Compare(PyTuple_GET_ITEM(keywords, i), name) == 0) return arguments[given + i];
  return nullptr;
}

// -- who listens --------------------------------------------------------------------------------------------------------------

enum class Ear { nobody, compiled, python };

inline Ear listening() {
  State& s = state();
  Names& n = names();
  Owned monitor(PyObject_GetAttr(s.current, n.monitor));
  if (!monitor) {
    forgive();
    return Ear::python;
  }
  if (monitor.get() == Py_None) return Ear::nobody;
  if (!s.attached || monitor.get() != s.monitor || PyList_GET_SIZE(s.capturing)) return Ear::python;
  if (!is(s.monitor, n.checker, s.checker) || !is(s.monitor, n.deferred, Py_False) || !is(s.monitor, n.delay, Py_None)) return Ear::python;
  const Py_ssize_t left = PyObject_Size(s.released);
  if (left > 0) {
    Owned drained(PyObject_CallMethodNoArgs(s.monitor, n.drain));
    if (!drained) {
      forgive();
      return Ear::python;
    }
  }
  return Ear::compiled;
}

// Whether this is the only thread that runs Python code.
inline bool alone() { return !PyThreadState_Next(PyInterpreterState_ThreadHead(PyInterpreterState_Get())); }

// A lock of Python's, taken where there are other threads.
class Held {
 public:
  Held() = default;
  Held(const Held&) = delete;
  ~Held() {
    if (!lock_) return;
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    Owned done(PyObject_CallMethodNoArgs(lock_, names().release));
    if (!done) forgive();
    Py_DECREF(lock_);
    PyErr_Restore(type, value, trace);
  }
  bool take(PyObject* lock) {  // false: an exception is set
    Owned taken(PyObject_CallMethodNoArgs(lock, names().acquire));
    if (!taken) return false;
    Py_INCREF(lock);
    lock_ = lock;
    return true;
  }
  // The lock of a timeline, for recording and enqueueing as one step.
  bool take_order(PyObject* key) {
    if (alone()) return true;
    Owned lock(PyObject_CallOneArg(state().order_lock, key));
    return lock && take(lock.get());
  }
  bool take_monitor() { return alone() || take(state().lock); }

 private:
  PyObject* lock_ = nullptr;
};

// -- timelines ----------------------------------------------------------------------------------------------------------------

struct Line {
  PyObject* key = nullptr;  // borrowed from the table of timelines
  Id id = 0;
  explicit operator bool() const { return id != 0; }
};

inline Line line_of_key(PyObject* key) {
  State& s = state();
  PyObject* id = PyDict_GetItemWithError(s.line_ids, key);
  if (!id) {
    forgive();
    return {};
  }
  const Id number = Id(PyLong_AsUnsignedLong(id));
  if (!s.core.line(number)) return {};
  return {key, number};
}

// The timeline of a stream object; of the current stream where there is none. Empty: Python has to look.
inline Line line_of(PyObject* stream) {
  State& s = state();
  const bool current = !stream || stream == Py_None;
  Owned handle;
  if (!current) {
    handle = Owned(PyObject_GetAttr(stream, names().ptr));
  } else if (s.current_stream) {
    const intptr_t found = s.current_stream();
    if (found != -1 || !PyErr_Occurred()) handle = Owned(PyLong_FromSsize_t(found));
  }
  if (handle) {
    PyObject* key = PyDict_GetItemWithError(s.by_handle, handle.get());
    if (key)
      if (Line line = line_of_key(key)) return line;
  }
  forgive();
  // by Python's rules, which also registers it; its table keeps the key
  if (current && s.one_device && handle && PyLong_AsLong(handle.get()) == 0)
    if (Owned key{PyObject_CallMethodOneArg(s.monitor, names().null_stream, s.zero)}) return line_of_key(key.get());
  forgive();
  Owned key(current ? PyObject_CallOneArg(s.timeline, s.monitor) : PyObject_CallFunctionObjArgs(s.timeline, s.monitor, stream, nullptr));
  if (!key) {
    forgive();
    return {};
  }
  return line_of_key(key.get());
}

// -- after the core was asked -------------------------------------------------------------------------------------------------

// Places in code that is gone are not kept once nothing remembers them.
inline void retire_places() {
  State& s = state();
  for (bool more = true; more;) {
    std::vector<PyObject*> released;
    {
      Lock lock(s.core.mutex);
      released = s.sites.retire([&](std::vector<uint8_t>& dying) {
        auto unmark = [&](Id, Id site) {
          if (site < dying.size()) dying[site] = 0;
        };
        s.core.remembered(unmark);
        s.prints.sites([&](Id site) { unmark(0, site); });
      });
    }
    for (PyObject* code : released) Py_DECREF(code);
    more = !released.empty();
  }
}

inline Id here() {
  if (state().sites.due()) retire_places();
  return state().sites.capture();
}

// What a record, wait or synchronize was refused for. False: an exception is set.
inline bool settle_edge(bool done) {
  if (done) return true;
  Owned settled(PyObject_CallOneArg(state().settle_edge, state().monitor));
  return bool(settled);
}

// The host has waited for something. False: an exception is set.
inline bool look_again() {
  State& s = state();
  if (!s.prints.count()) return true;
  std::vector<Prints::Changed> changed;
  {
    Lock lock(s.core.mutex);
    Timeline& host = s.core.host_of(0);
    changed = s.prints.check([&](Id line, Count epoch) { return host.clock.of(line) >= epoch; });
  }
  for (auto& each : changed) {
    Owned site(s.sites.pairs(each.site));
    Owned said(PyObject_CallFunction(s.overwritten, "OKKO", s.monitor, (unsigned long long)each.start, (unsigned long long)each.size, site.get()));
    if (!said) return false;
  }
  return true;
}

}  // namespace streamsafe::cupy
