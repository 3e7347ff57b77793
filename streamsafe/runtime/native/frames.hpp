// Where a thread is in the program: (code object, instruction offset) pairs of its own Python frames, read without the
// GIL and without new objects, and kept once each under a small number.
//
// A thread's frames do not change while it is inside a C call, so plain loads are enough. A code object that is seen for
// the first time needs the GIL: it is kept alive, and asked once whether it is the user's.
#pragma once
#include <Python.h>
#if PY_VERSION_HEX < 0x030B0000
#include <frameobject.h>
#endif
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>
#include "flat.hpp"

namespace streamsafe {
namespace frames {

// The beginnings of CPython's interpreter frames, as far as they are read.
#if PY_VERSION_HEX >= 0x030E0000
struct Raw {
  uintptr_t code;  // with tag bits
  Raw* previous;
  uintptr_t function;
  PyObject *globals, *builtins, *locals;
  PyObject* object;
  char* instruction;
};
inline PyObject* code_of(const Raw* frame) { return reinterpret_cast<PyObject*>(frame->code & ~uintptr_t(3)); }
inline Raw* top(PyThreadState* state) { return reinterpret_cast<Raw*>(state->current_frame); }
#elif PY_VERSION_HEX >= 0x030D0000
struct Raw {
  PyObject* code;
  Raw* previous;
  PyObject *function, *globals, *builtins, *locals, *object;
  char* instruction;
};
inline PyObject* code_of(const Raw* frame) { return frame->code; }
inline Raw* top(PyThreadState* state) { return reinterpret_cast<Raw*>(state->current_frame); }
#elif PY_VERSION_HEX >= 0x030C0000
struct Raw {
  PyObject* code;
  Raw* previous;
  PyObject *function, *globals, *builtins, *locals, *object;
  char* instruction;
};
inline PyObject* code_of(const Raw* frame) { return frame->code; }
inline Raw* top(PyThreadState* state) { return reinterpret_cast<Raw*>(state->cframe->current_frame); }
#elif PY_VERSION_HEX >= 0x030B0000
struct Raw {
  PyObject *function, *globals, *builtins, *locals;
  PyObject* code;
  PyObject* object;
  Raw* previous;
  char* instruction;
};
inline PyObject* code_of(const Raw* frame) { return frame->code; }
inline Raw* top(PyThreadState* state) { return reinterpret_cast<Raw*>(state->cframe->current_frame); }
#else
using Raw = PyFrameObject;
inline PyObject* code_of(const Raw* frame) { return reinterpret_cast<PyObject*>(frame->f_code); }
inline Raw* top(PyThreadState* state) { return state->frame; }
#endif

inline Raw* previous(const Raw* frame) {
#if PY_VERSION_HEX >= 0x030B0000
  return frame->previous;
#else
  return frame->f_back;
#endif
}

inline int32_t offset(const Raw* frame, PyObject* code) {
#if PY_VERSION_HEX >= 0x030B0000
  return int32_t(frame->instruction - reinterpret_cast<PyCodeObject*>(code)->co_code_adaptive);
#else
  (void)code;
  return int32_t(frame->f_lasti * 2);
#endif
}

}  // namespace frames

class Sites {
 public:
  static constexpr int DEPTH = 4, LIMIT = 96;

  enum class Gil { take, only_if_held };

  // A number for where the calling thread is; 0: in no line of the user's.
  uint32_t capture(Gil gil = Gil::take) {
    PyThreadState* state = PyGILState_GetThisThreadState();
    if (!state) return 0;
    Local& local = this->local();
    Stack stack;
    int seen = 0;
    for (frames::Raw* frame = frames::top(state); frame && stack.size < DEPTH && seen < LIMIT; frame = frames::previous(frame), ++seen) {
      PyObject* code = frames::code_of(frame);
      if (!code) continue;
      uint8_t* kind = local.kinds.find(reinterpret_cast<Addr>(code));
      const uint8_t found = kind ? *kind : learn(local, code, gil);
      if (found == UNKNOWN) return 0;
      if (found == USER) {
        stack.codes[stack.size] = code;
        stack.offsets[stack.size++] = frames::offset(frame, code);
      }
    }
    if (!stack.size) return 0;
    const Addr hash = stack.hash();
    Known* known = local.known.find(hash);
    if (known && known->stack->same(stack)) return known->id;
    return intern(local, hash, stack);
  }

  // Whether the calling thread runs Python code at all.
  static bool in_python() {
    PyThreadState* state = PyGILState_GetThisThreadState();
    return state && frames::top(state);
  }

  // In a forked child: a thread of the parent's may have held the lock.
  void forked() { new (&mutex_) std::mutex(); }

  // (code object, offset) pairs, innermost first; with the GIL.
  PyObject* pairs(uint32_t id) {
    std::lock_guard<std::mutex> guard(mutex_);
    if (!id || id > stacks_.size()) return PyTuple_New(0);
    const Stack& stack = *stacks_[id - 1];
    PyObject* found = PyTuple_New(2 * stack.size);
    for (int i = 0; i < stack.size; ++i) {
      Py_INCREF(stack.codes[i]);
      PyTuple_SET_ITEM(found, 2 * i, stack.codes[i]);
      PyTuple_SET_ITEM(found, 2 * i + 1, PyLong_FromLong(stack.offsets[i]));
    }
    return found;
  }

  // The number of (code object, offset) pairs that Python has read; 0: they are none.
  uint32_t of(PyObject* pairs) {
    Stack stack;
    if (!PyTuple_Check(pairs) || PyTuple_GET_SIZE(pairs) > 2 * DEPTH) return 0;
    for (Py_ssize_t i = 0; i + 1 < PyTuple_GET_SIZE(pairs); i += 2) {
      PyObject* code = PyTuple_GET_ITEM(pairs, i);
      if (!PyCode_Check(code) || !PyLong_Check(PyTuple_GET_ITEM(pairs, i + 1))) return 0;
      stack.codes[stack.size] = code;
      stack.offsets[stack.size++] = int32_t(PyLong_AsLong(PyTuple_GET_ITEM(pairs, i + 1)));
    }
    if (!stack.size) return 0;
    Local& local = this->local();
    const Addr hash = stack.hash();
    Known* known = local.known.find(hash);
    if (known && known->stack->same(stack)) return known->id;
    for (int i = 0; i < stack.size; ++i) Py_INCREF(stack.codes[i]);  // for good, as those that `learn` has seen
    return intern(local, hash, stack);
  }

  // `internal(code)`: whether a code object is a library's; with the GIL.
  void ask(PyObject* internal) {
    Py_XINCREF(internal);
    internal_ = internal;
  }

  size_t size() {
    std::lock_guard<std::mutex> guard(mutex_);
    return stacks_.size();
  }

 private:
  static constexpr uint8_t UNKNOWN = 0, USER = 1, LIBRARY = 2;

  struct Stack {
    PyObject* codes[DEPTH];
    int32_t offsets[DEPTH];
    int size = 0;

    Addr hash() const {
      Addr value = 1469598103934665603ull;
      for (int i = 0; i < size; ++i) {
        value = (value ^ reinterpret_cast<Addr>(codes[i])) * 1099511628211ull;
        value = (value ^ Addr(uint32_t(offsets[i]))) * 1099511628211ull;
      }
      return value | 2;
    }
    bool same(const Stack& other) const {
      if (size != other.size) return false;
      for (int i = 0; i < size; ++i)
        if (codes[i] != other.codes[i] || offsets[i] != other.offsets[i]) return false;
      return true;
    }
  };
  struct Known {
    const Stack* stack = nullptr;
    uint32_t id = 0;
  };
  struct Local {  // a thread's own copies: no code object or stack is ever forgotten
    Flat<uint8_t> kinds{1024};
    Flat<Known> known{1024};
  };

  Local& local() {
    static thread_local std::unique_ptr<Local> mine;
    if (!mine) mine = std::make_unique<Local>();
    return *mine;
  }

  uint8_t learn(Local& local, PyObject* code, Gil gil) {
    {
      std::lock_guard<std::mutex> guard(mutex_);
      if (uint8_t* kind = kinds_.find(reinterpret_cast<Addr>(code))) return local.kinds[reinterpret_cast<Addr>(code)] = *kind;
    }
    const bool held = PyGILState_Check();
    if (!internal_) return UNKNOWN;  // before CUDA is initialized nobody can say
    if (!held && gil == Gil::only_if_held) return UNKNOWN;
    PyGILState_STATE state{};
    if (!held) state = PyGILState_Ensure();
    uint8_t kind = LIBRARY;
    if (PyCode_Check(code)) {
      PyObject *type, *value, *trace;  // an exception may be on its way
      PyErr_Fetch(&type, &value, &trace);
      PyObject* file = reinterpret_cast<PyCodeObject*>(code)->co_filename;  // "<shim>": where C enters the interpreter
      PyObject* answer = internal_ && PyUnicode_CompareWithASCIIString(file, "<shim>") ? PyObject_CallFunctionObjArgs(internal_, code, nullptr) : nullptr;
      kind = answer && !PyObject_IsTrue(answer) ? USER : LIBRARY;
      Py_XDECREF(answer);
      PyErr_Clear();
      PyErr_Restore(type, value, trace);
    }
    Py_INCREF(code);
    if (!held) PyGILState_Release(state);
    std::lock_guard<std::mutex> guard(mutex_);
    return local.kinds[reinterpret_cast<Addr>(code)] = kinds_[reinterpret_cast<Addr>(code)] = kind;
  }

  uint32_t intern(Local& local, Addr hash, const Stack& stack) {
    std::lock_guard<std::mutex> guard(mutex_);
    uint32_t id = 0;
    if (uint32_t* first = interned_.find(hash)) {
      for (id = *first; id && !stacks_[id - 1]->same(stack); id = next_[id - 1]) {
      }
    }
    if (!id) {
      stacks_.push_back(std::make_unique<Stack>(stack));
      uint32_t& first = interned_[hash];
      next_.push_back(first);  // stacks of one hash
      first = id = uint32_t(stacks_.size());
    }
    local.known[hash] = Known{stacks_[id - 1].get(), id};
    return id;
  }

  std::mutex mutex_;
  Flat<uint8_t> kinds_{1024};
  Flat<uint32_t> interned_{1024};
  std::vector<std::unique_ptr<Stack>> stacks_;
  std::vector<uint32_t> next_;
  PyObject* internal_ = nullptr;
};

}  // namespace streamsafe
