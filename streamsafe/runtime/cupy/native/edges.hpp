// Records, waits and synchronizes, as streamsafe/runtime/cupy/streams.py says.
#pragma once
#include "hook.hpp"
#include "operands.hpp"

namespace streamsafe::cupy {

inline bool event_key(PyObject* event, Addr& key) { return integer(event, names().ptr, key) && key > 1; }

// The instruction of the program that the calling hook stands at: two hooks called from one instruction were called by CuPy.
inline void instruction(const void*& frame, const void*& at) {
  frames::Raw* top = frames::top(PyThreadState_Get());
  frame = top;
#if PY_VERSION_HEX >= 0x030B0000
  at = top ? top->instruction : nullptr;
#else
  at = top ? reinterpret_cast<const void*>(intptr_t(top->f_lasti)) : nullptr;
#endif
}

// -- Event.record(self, stream=None)
inline PyObject* event_record(Hook* hook, Call call) {
  const Ear ear = listening();
  if (ear == Ear::nobody) return call.to(hook->plain);
  Addr event;
  Line line;
  if (ear == Ear::python || !event_key(call.self(), event) || !(line = line_of(call.get(1, names().stream)))) return call.to(hook->python);
  State& s = state();
  Held order;
  if (!order.take_order(line.key)) return nullptr;
  const uint64_t session = s.session;
  Owned result(call.to(hook->plain));
  if (!result || session != s.session) return result.release();
  const Id site = here();
  if (PySet_GET_SIZE(s.internal_events)) {
    Owned key(PyLong_FromUnsignedLongLong(event));
    PySet_Discard(s.internal_events, key.get());
  }
  Lock lock(s.core.mutex);
  if (Timeline* timeline = s.core.line(line.id)) s.core.record(event, *timeline, 0, site);
  return result.release();
}

inline void discard(PyObject* set, PyObject* key) {
  if (PySet_GET_SIZE(set) && PySet_Discard(set, key) < 0) forgive();
}

// -- Event.__init__(self, block=False, disable_timing=False, interprocess=False)
inline PyObject* event_init(Hook* hook, Call call) {
  const Ear ear = listening();
  if (ear == Ear::nobody) return call.to(hook->plain);
  if (ear == Ear::python) return call.to(hook->python);
  State& s = state();
  const uint64_t session = s.session;
  Owned result(call.to(hook->plain));
  Addr event;
  if (!result || session != s.session || !event_key(call.self(), event)) return result.release();
  PyObject* untimed = call.get(2, names().disable_timing);
  const int timed = untimed ? !PyObject_IsTrue(untimed) : 1;
  Owned key(PyLong_FromUnsignedLongLong(event));
  discard(s.internal_events, key.get());
  if (timed) discard(s.untimed_events, key.get());
  if (PySet_Add(s.new_events, key.get()) < 0 || (!timed && PySet_Add(s.untimed_events, key.get()) < 0)) forgive();
  Lock lock(s.core.mutex);
  s.core.new_event(event);
  return result.release();
}

// -- Event.__del__(self): the core forgets the event before another thread's event may get its handle
inline PyObject* event_del(Hook* hook, Call call) {
  if (listening() != Ear::compiled) return call.to(hook->python);
  State& s = state();
  Addr event;
  if (!event_key(call.self(), event)) return call.to(hook->python);
  Owned key(PyLong_FromUnsignedLongLong(event));
  for (PyObject* each : {s.internal_events, s.untimed_events, s.new_events}) discard(each, key.get());
  {
    Lock lock(s.core.mutex);
    s.core.destroy_event(event);
  }
  return call.to(hook->plain);
}

// -- Stream.record(self, event=None): CuPy's own, for the list that keeps the sources of its copies alive, or the program's
inline PyObject* stream_record(Hook* hook, Call call) {
  const Ear ear = listening();
  if (ear == Ear::nobody) return call.to(hook->plain);
  State& s = state();
  PyObject* given = call.get(1, names().event);
  const void *frame, *at;
  instruction(frame, at);
  const bool copied = (!given || given == Py_None) && frame == s.copy_frame && at == s.copy_instruction;
  Line line;
  if (ear == Ear::python || (copied && !s.copy_recorded) || !(line = line_of(call.self()))) return call.to(hook->python);
  Held order;
  if (!order.take_order(line.key)) return nullptr;
  const uint64_t session = s.session;
  Owned result(call.to(hook->plain));
  Addr event;
  if (!result || session != s.session) return result.release();
  if (!event_key(result.get(), event)) return result.release();
  const Id site = here();
  if (copied || PySet_GET_SIZE(s.internal_events)) {
    Owned key(PyLong_FromUnsignedLongLong(event));
    if ((copied ? PySet_Add(s.internal_events, key.get()) : PySet_Discard(s.internal_events, key.get())) < 0) forgive();
  }
  Lock lock(s.core.mutex);
  Timeline* timeline = s.core.line(line.id);
  if (!timeline) return result.release();
  if (copied) {
    if (s.copy_source && s.copy_line == line.id) s.core.record_stream(HOST_SPACE, s.copy_source, *timeline);
    s.copy_frame = nullptr;
    s.copy_source = 0;
  }
  s.core.record(event, *timeline, 0, site);
  return result.release();
}

// -- Stream.wait_event(self, event)
inline PyObject* wait_event(Hook* hook, Call call) {
  const Ear ear = listening();
  if (ear == Ear::nobody) return call.to(hook->plain);
  PyObject* given = call.get(1, names().event);
  Addr event;
  Line line;
  if (ear == Ear::python || !given || !event_key(given, event) || !(line = line_of(call.self()))) return call.to(hook->python);
  State& s = state();
  Held order;
  if (!order.take_order(line.key)) return nullptr;
  const Id site = here();
  {
    Held monitor;
    if (!monitor.take_monitor()) return nullptr;
    bool done = true;
    {
      Lock lock(s.core.mutex);
      if (Timeline* timeline = s.core.line(line.id)) done = s.core.wait(*timeline, event, 0, site);
    }
    if (!settle_edge(done)) return nullptr;
  }
  return call.to(hook->plain);
}

inline bool waited_for_stream(Line line, Id site) {
  State& s = state();
  Held monitor;
  if (!monitor.take_monitor()) return false;
  bool done = true;
  {
    Lock lock(s.core.mutex);
    if (Timeline* timeline = s.core.line(line.id)) done = s.core.synchronize_stream(*timeline, 0, site);
  }
  return settle_edge(done);
}

inline bool waited_for_event(Addr event, Id site) {
  State& s = state();
  Held monitor;
  if (!monitor.take_monitor()) return false;
  bool done;
  {
    Lock lock(s.core.mutex);
    done = s.core.synchronize_event(event, 0, site);
  }
  return settle_edge(done);
}

// -- Stream.synchronize(self); Stream.done
template <bool QUERY>
PyObject* stream_wait(Hook* hook, Call call) {
  const Ear ear = listening();
  if (ear == Ear::nobody) return call.to(hook->plain);
  Line line;
  if (ear == Ear::python || !(line = line_of(call.self()))) return call.to(hook->python);
  const uint64_t session = state().session;
  Owned result(call.to(hook->plain));
  if (!result || session != state().session || (QUERY && result.get() != Py_True)) return result.release();
  if (!waited_for_stream(line, here()) || !look_again()) return nullptr;
  return result.release();
}

// -- Event.synchronize(self); Event.done
template <bool QUERY>
PyObject* event_wait(Hook* hook, Call call) {
  const Ear ear = listening();
  if (ear == Ear::nobody) return call.to(hook->plain);
  Addr event;
  if (ear == Ear::python || !event_key(call.self(), event)) return call.to(hook->python);
  State& s = state();
  if (QUERY) {
    if (PySet_GET_SIZE(s.internal_events)) return call.to(hook->python);
    bool captured;
    {
      Lock lock(s.core.mutex);
      captured = s.core.captured(event);
    }
    if (captured) return call.to(hook->python);
  }
  const uint64_t session = s.session;
  Owned result(call.to(hook->plain));
  if (!result || session != s.session || (QUERY && result.get() != Py_True)) return result.release();
  if (!waited_for_event(event, here()) || !look_again()) return nullptr;
  return result.release();
}

}  // namespace streamsafe::cupy
