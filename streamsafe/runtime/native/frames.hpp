// Where a thread is in the program: (code object, instruction offset) pairs of its own Python frames, read without the
// GIL and without new objects, and kept once each under a small number.
//
// A thread's frames do not change while it is inside a C call, so plain loads are enough. A code object that is seen for
// the first time needs the GIL: it is kept alive, and asked once whether it is the user's. One that only this keeps alive
// never runs again: `retire` lets it go, and with it the places in it that nobody remembers.
#pragma once
#include <Python.h>
#if PY_VERSION_HEX < 0x030B0000
#include <frameobject.h>
#endif
#include <algorithm>
#include <atomic>
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
  // Who has asked may know the place by its number from now on: it stays.
  PyObject* pairs(uint32_t id) {
    Stack stack;
    {
      std::lock_guard<std::mutex> guard(mutex_);
      if (id && id <= stacks_.size() && stacks_[id - 1]) {
        stacks_[id - 1]->told = true;
        stack = *stacks_[id - 1];
      }
    }
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
    {
      std::lock_guard<std::mutex> guard(mutex_);
      for (int i = 0; i < stack.size; ++i) keep(stack.codes[i]);
    }
    return intern(local, hash, stack);
  }

  // -- what is gone ----------------------------------------------------------------------------------------------------

  // Whether there are so many new places that it pays to look for those whose code is gone.
  bool due() const { return due_.load(std::memory_order_relaxed); }

  // Another number each time that numbers were given back.
  uint32_t epoch() const { return epoch_.load(std::memory_order_acquire); }

  bool alive(uint32_t id) {
    std::lock_guard<std::mutex> guard(mutex_);
    return id && id <= stacks_.size() && stacks_[id - 1];
  }

  // Let go of code that only this keeps alive, and of the places in it. `unmark`: takes a list by number in which such places
  // are marked, and unmarks those that somebody remembers. With the GIL. Returns code objects whose references are the
  // caller's: to release one may run any Python. Where there were some, others may be gone after them.
  template <class Unmark>
  std::vector<PyObject*> retire(Unmark&& unmark) {
    std::lock_guard<std::mutex> guard(mutex_);
    std::vector<uint8_t> dying(stacks_.size() + 1, 0);
    bool any = false;
    for (size_t i = 0; i < stacks_.size(); ++i)
      if (stacks_[i] && !stacks_[i]->told && stacks_[i]->dead()) any = dying[i + 1] = 1;
    if (any) unmark(dying);
    // a number rests for one round: a thread may be about to name it
    free_.insert(free_.end(), resting_.begin(), resting_.end());
    resting_.clear();
    Flat<char> mentioned(1024);
    size_t live = 0;
    for (size_t i = 0; i < stacks_.size(); ++i) {
      if (!stacks_[i]) continue;
      if (dying[i + 1]) {
        stacks_[i].reset();
        resting_.push_back(uint32_t(i + 1));
        continue;
      }
      ++live;
      for (int j = 0; j < stacks_[i]->size; ++j) mentioned[reinterpret_cast<Addr>(stacks_[i]->codes[j])] = 1;
    }
    std::vector<PyObject*> released;
    kinds_.each([&](Addr code, uint8_t) {
      if (Py_REFCNT(reinterpret_cast<PyObject*>(code)) == 1 && !mentioned.find(code)) released.push_back(reinterpret_cast<PyObject*>(code));
    });
    for (PyObject* code : released) kinds_.erase(reinterpret_cast<Addr>(code));
    if (!resting_.empty()) index();
    if (!resting_.empty() || !released.empty()) epoch_.fetch_add(1, std::memory_order_release);
    postpone(live);
    return released;
  }

  // Not now.
  void postpone() {
    std::lock_guard<std::mutex> guard(mutex_);
    postpone(stacks_.size() - free_.size());
  }

  // A program begins that knows no place by its number.
  void begin() {
    std::lock_guard<std::mutex> guard(mutex_);
    for (auto& stack : stacks_)
      if (stack) stack->told = false;
  }

  // `internal(code)`: whether a code object is a library's; with the GIL.
  void ask(PyObject* internal) {
    Py_XINCREF(internal);
    internal_ = internal;
  }

  size_t size() {
    std::lock_guard<std::mutex> guard(mutex_);
    return size_t(std::count_if(stacks_.begin(), stacks_.end(), [](auto& stack) { return bool(stack); }));
  }

 private:
  static constexpr uint8_t UNKNOWN = 0, USER = 1, LIBRARY = 2;
  static constexpr size_t RETIRE_EVERY = 4096;  // new places, or as many as there are

  struct Stack {
    PyObject* codes[DEPTH];
    int32_t offsets[DEPTH];
    int size = 0;
    bool told = false;  // somebody may know it by its number

    bool dead() const {
      for (int i = 0; i < size; ++i)
        if (Py_REFCNT(codes[i]) == 1) return true;
      return false;
    }
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
  struct Local {  // a thread's own copies, of one epoch: then code objects may have gone, and others have their addresses
    uint32_t epoch;
    Flat<uint8_t> kinds{1024};
    Flat<Known> known{1024};
  };

  Local& local() {
    static thread_local std::unique_ptr<Local> mine;
    if (const uint32_t now = epoch(); !mine || mine->epoch != now) {
      mine = std::make_unique<Local>();
      mine->epoch = now;
    }
    return *mine;
  }

  // Under the lock: a code object stays alive.
  uint8_t& keep(PyObject* code) {
    const Addr key = reinterpret_cast<Addr>(code);
    if (uint8_t* kind = kinds_.find(key)) return *kind;
    Py_INCREF(code);
    return kinds_[key];
  }

  void postpone(size_t live) {
    due_ = false;
    fresh_ = 0;
    retire_at_ = std::max(RETIRE_EVERY, live);
  }

  // Under the lock: the places by their hash.
  void index() {
    interned_ = Flat<uint32_t>(1024);
    for (size_t i = 0; i < stacks_.size(); ++i) {
      next_[i] = 0;
      if (!stacks_[i]) continue;
      uint32_t& first = interned_[stacks_[i]->hash()];
      next_[i] = first;
      first = uint32_t(i + 1);
    }
  }

  uint8_t learn(Local& local, PyObject* code, Gil gil) {
    {
      std::lock_guard<std::mutex> guard(mutex_);
      uint8_t* kind = kinds_.find(reinterpret_cast<Addr>(code));
      if (kind && *kind != UNKNOWN) return local.kinds[reinterpret_cast<Addr>(code)] = *kind;
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
    {
      std::lock_guard<std::mutex> guard(mutex_);
      local.kinds[reinterpret_cast<Addr>(code)] = keep(code) = kind;
    }
    if (!held) PyGILState_Release(state);
    return kind;
  }

  uint32_t intern(Local& local, Addr hash, const Stack& stack) {
    std::lock_guard<std::mutex> guard(mutex_);
    uint32_t id = 0;
    if (uint32_t* first = interned_.find(hash)) {
      for (id = *first; id && !stacks_[id - 1]->same(stack); id = next_[id - 1]) {
      }
    }
    if (!id) {
      if (free_.empty()) {
        stacks_.emplace_back();
        next_.push_back(0);
        id = uint32_t(stacks_.size());
      } else {
        id = free_.back();
        free_.pop_back();
      }
      stacks_[id - 1] = std::make_unique<Stack>(stack);
      uint32_t& first = interned_[hash];
      next_[id - 1] = first;  // stacks of one hash
      first = id;
      if (++fresh_ >= retire_at_) due_ = true;
    }
    local.known[hash] = Known{stacks_[id - 1].get(), id};
    return id;
  }

  std::mutex mutex_;
  Flat<uint8_t> kinds_{1024};
  Flat<uint32_t> interned_{1024};
  std::vector<std::unique_ptr<Stack>> stacks_;
  std::vector<uint32_t> next_;
  std::vector<uint32_t> free_, resting_;  // numbers that stand for nothing
  std::atomic<uint32_t> epoch_{0};
  std::atomic<bool> due_{false};
  size_t fresh_ = 0, retire_at_ = RETIRE_EVERY;
  PyObject* internal_ = nullptr;
};

}  // namespace streamsafe
