// Copies and fills through pointers, as streamsafe/runtime/cupy/memory.py says.
#pragma once
#include "edges.hpp"
#include "launches.hpp"

namespace streamsafe::cupy {

inline bool size_of(Call call, Addr& size) {
  PyObject* given = call.get(2, names().size);
  int64_t value;
  if (!given || !number(given, value)) return false;
  size = value > 0 ? Addr(value) : 0;
  return true;
}

// Where host memory lies: a number, or a ctypes pointer.
inline bool host_address(PyObject* memory, Addr& address) {
  if (!memory) return false;
  if (PyLong_Check(memory)) {
    address = PyLong_AsUnsignedLongLong(memory);
    if (address == Addr(-1) && PyErr_Occurred()) {
      forgive();
      return false;
    }
    return true;
  }
  return integer(memory, names().value, address);
}

inline bool traced(PyObject* pointer) { return reinterpret_cast<PyObject*>(Py_TYPE(pointer)) == state().traced_pointer; }

inline bool append(PyObject* list, Owned touch) { return touch && PyList_Append(list, touch.get()) == 0; }

// -- copy_from_host_async(self, mem, size, stream=None)
inline PyObject* from_host(Hook* hook, Call call) {
  const Ear ear = listening();
  if (ear == Ear::nobody) return call.to(hook->plain);
  State& s = state();
  instruction(s.copy_frame, s.copy_instruction);
  s.copy_recorded = false;
  Addr size, address;
  Line line;
  Use device, host;
  PyObject* pointer = call.self();
  if (ear == Ear::python || !traced(pointer) || !size_of(call, size)) return call.to(hook->python);
  if (!size) return call.to(hook->plain);
  if (!host_address(call.get(1, names().mem), address) || !pointer_use(pointer, size, device)) return call.to(hook->python);
  if (!(line = line_of(call.get(3, names().stream)))) return call.to(hook->python);
  const int pinned = s.host ? pinned_block(address) : 0;
  if (pinned < 0) return call.to(hook->python);
  Uses uses;
  host.space = HOST_SPACE;
  host.start = address;
  host.stop = address + size;
  if (pinned) uses.add(host, true, false);
  uses.add(device, false, true);
  const Id site = here();
  Held order;
  if (pinned && !order.take_order(line.key)) return nullptr;  // pageable memory may keep the caller waiting
  const bool done = enqueue(line, uses, hook->operation, site, true, [&](PyObject* reads, PyObject* writes) {
    return (!pinned || append(reads, Owned(PyObject_CallFunction(s.touch_hosted, "KK", (unsigned long long)address, (unsigned long long)size)))) &&
           append(writes, Owned(PyObject_CallFunction(s.touch_copied, "OK", pointer, (unsigned long long)size)));
  });
  if (!done) return nullptr;
  s.copy_recorded = true;
  s.copy_source = 0;
  if (pinned) {
    Lock lock(s.core.mutex);
    if (Timeline* timeline = s.core.line(line.id)) s.prints.watch(line.id, address, size, timeline->count, site);
    s.copy_line = line.id;
    s.copy_source = address;
  }
  return call.to(hook->plain);
}

constexpr Addr HEAP = 1 << 16;  // memory of up to so many bytes comes from the heap, which stays pageable

// Whether CUDA stages a copy to it; -1: nobody could say.
inline int is_pageable(Addr address, Addr size) {
  State& s = state();
  if (size <= HEAP && address > 1 && s.pageable.find(address)) return 1;
  Owned pinned(PyObject_CallFunction(s.is_pinned, "K", (unsigned long long)address));
  if (!pinned) {
    forgive();
    return -1;
  }
  if (PyObject_IsTrue(pinned.get())) return 0;
  if (size <= HEAP && address > 1) {
    if (s.pageable.size() >= 4096) s.pageable = Flat<char>(256);
    s.pageable[address] = 1;
  }
  return 1;
}

// -- copy_to_host_async(self, mem, size, stream=None)
inline PyObject* to_host(Hook* hook, Call call) {
  const Ear ear = listening();
  if (ear == Ear::nobody) return call.to(hook->plain);
  State& s = state();
  Addr size, address;
  Line line;
  Use device, host;
  PyObject* pointer = call.self();
  if (ear == Ear::python || !traced(pointer) || !size_of(call, size)) return call.to(hook->python);
  if (!size) return call.to(hook->plain);
  if (!host_address(call.get(1, names().mem), address) || !pointer_use(pointer, size, device)) return call.to(hook->python);
  if (!(line = line_of(call.get(3, names().stream)))) return call.to(hook->python);
  const int pinned = s.host ? pinned_block(address) : 0;
  const int pageable = pinned ? 0 : is_pageable(address, size);
  if (pinned < 0 || pageable < 0) return call.to(hook->python);
  Uses uses;
  host.space = HOST_SPACE;
  host.start = address;
  host.stop = address + size;
  uses.add(device, true, false);
  if (pinned) uses.add(host, false, true);
  const Id site = here();
  Held order;
  if (pinned && !order.take_order(line.key)) return nullptr;
  const bool done = enqueue(line, uses, hook->operation, site, true, [&](PyObject* reads, PyObject* writes) {
    return append(reads, Owned(PyObject_CallFunction(s.touch_copied, "OK", pointer, (unsigned long long)size))) &&
           (!pinned || append(writes, Owned(PyObject_CallFunction(s.touch_hosted, "KK", (unsigned long long)address, (unsigned long long)size))));
  });
  if (!done) return nullptr;
  if (pinned) {
    Lock lock(s.core.mutex);
    s.prints.forget(address, address + size);
  }
  const uint64_t session = s.session;
  Owned result(call.to(hook->plain));
  if (!result || !pageable || session != s.session) return result.release();
  if (!waited_for_stream(line, site)) return nullptr;
  return result.release();
}

// -- copy_from_device_async(self, src, size, stream=None); memset_async(self, value, size, stream=None)
template <bool COPY>
PyObject* on_device(Hook* hook, Call call) {
  const Ear ear = listening();
  if (ear == Ear::nobody) return call.to(hook->plain);
  State& s = state();
  Addr size;
  Line line;
  Use target, source;
  PyObject* pointer = call.self();
  PyObject* from = COPY ? call.get(1, names().src) : nullptr;
  if (ear == Ear::python || !traced(pointer) || !size_of(call, size)) return call.to(hook->python);
  if (COPY && (!from || !PyObject_TypeCheck(from, reinterpret_cast<PyTypeObject*>(s.plain_pointer)))) return call.to(hook->python);
  if (!size) return call.to(hook->plain);
  if (!pointer_use(pointer, size, target) || (COPY && !pointer_use(from, size, source))) return call.to(hook->python);
  if (COPY && source.space != target.space) return call.to(hook->python);
  if (!(line = line_of(call.get(3, names().stream)))) return call.to(hook->python);
  {
    Timeline* timeline = s.core.line(line.id);
    if (timeline->kind == Kind::legacy && timeline->device != target.space) return call.to(hook->python);
  }
  Uses uses;
  if (COPY) uses.add(source, true, false);
  uses.add(target, false, true);
  const Id site = here();
  Held order;
  if (!order.take_order(line.key)) return nullptr;
  const bool done = enqueue(line, uses, hook->operation, site, true, [&](PyObject* reads, PyObject* writes) {
    return (!COPY || append(reads, Owned(PyObject_CallFunction(s.touch_pointer, "OK", from, (unsigned long long)size)))) &&
           append(writes, Owned(PyObject_CallFunction(s.touch_pointer, "OK", pointer, (unsigned long long)size)));
  });
  return done ? call.to(hook->plain) : nullptr;
}

// A pointer of the kind that reports its copies, `offset` bytes into memory.
inline PyObject* traced_pointer(PyObject* memory, int64_t offset, PyObject* notifier) {
  State& s = state();
  Owned moved(PyLong_FromLongLong(offset));
  PyObject* given[] = {memory, moved.get()};
  PyObject* made = PyObject_Vectorcall(s.traced_pointer, given, 2, nullptr);
  if (made) {
    PyObject** place = reinterpret_cast<PyObject**>(reinterpret_cast<char*>(made) + s.notifier_offset);
    Py_XINCREF(notifier);
    Py_XSETREF(*place, notifier);
  }
  return made;
}

// -- MemoryPointer.__add__(self, offset)
inline PyObject* pointer_add(Hook* hook, Call call) {
  State& s = state();
  int64_t offset;
  Addr address, start;
  PyObject* self = call.self();
  if (call.given() != 2 || !traced(self) || !number(call.arguments[1], offset)) return call.to(hook->python);
  Owned memory(PyObject_GetAttr(self, names().mem));
  if (!memory || !integer(self, names().ptr, address) || !integer(memory.get(), names().ptr, start)) {
    forgive();
    return call.to(hook->python);
  }
  PyObject* notifier = *reinterpret_cast<PyObject**>(reinterpret_cast<char*>(self) + s.notifier_offset);
  return traced_pointer(memory.get(), int64_t(address - start) + offset, notifier);
}

// -- allocation ---------------------------------------------------------------------------------------------------------------

// Dies with an array of CuPy's pool: its block is free then.
struct Release {
  PyObject_HEAD
  PyObject* block;
  Addr start;
  int space;
  uint64_t session;
};

inline void release_dealloc(PyObject* self) {
  Release* release = reinterpret_cast<Release*>(self);
  PyObject *type, *value, *trace;
  PyErr_Fetch(&type, &value, &trace);
  if (PyObject_SetAttr(release->block, names().ended, Py_True) < 0) forgive();
  State& s = state();
  if (s.attached && release->session == s.session) {
    const Id site = here();
    Lock lock(s.core.mutex);
    s.core.free(release->space, release->start, site);
  }
  PyErr_Restore(type, value, trace);
  Py_DECREF(release->block);
  PyObject_Free(self);
}

inline PyTypeObject* release_type() {
  static PyTypeObject type = [] {
    PyTypeObject made = {PyVarObject_HEAD_INIT(nullptr, 0)};
    made.tp_name = "streamsafe.release";
    made.tp_basicsize = sizeof(Release);
    made.tp_flags = Py_TPFLAGS_DEFAULT;
    made.tp_dealloc = release_dealloc;
    return made;
  }();
  return &type;
}

// An allocator: plain(size) gives memory, which is tracked.
inline PyObject* allocate(Hook* hook, Call call) {
  State& s = state();
  Names& n = names();
  Owned pointer(call.to(hook->plain));
  if (!pointer || call.given() != 1) return pointer.release();
  Owned memory, fallback;
  Addr start, begin, size, device;
  Line line;
  auto python = [&] { return PyObject_CallFunctionObjArgs(s.track, pointer.get(), call.arguments[0], nullptr); };
  if (listening() != Ear::compiled) return python();
  if (reinterpret_cast<PyObject*>(Py_TYPE(pointer.get())) != s.plain_pointer || !integer(pointer.get(), n.ptr, start) || !start) return python();
  memory = Owned(PyObject_GetAttr(pointer.get(), n.mem));
  if (!memory || reinterpret_cast<PyObject*>(Py_TYPE(memory.get())) != s.pooled_memory) {
    forgive();
    return python();
  }
  if (!integer(memory.get(), n.ptr, begin) || begin != start || !integer(memory.get(), n.size, size) || !size) return python();
  if (!integer(memory.get(), n.device_id, device) || device >= 63) return python();
  Owned imported(PyObject_GetAttr(s.monitor, n.imported));
  if (!imported || PyObject_Size(imported.get())) {
    forgive();
    return python();
  }
  if (!(line = line_of(nullptr))) return python();
  Owned key(PyLong_FromUnsignedLongLong(start));
  Owned block = shared(PyDict_GetItemWithError(s.blocks, key.get()));
  Addr stop;
  if (block && integer(block.get(), n.stop, stop) && stop == start + size) {
    if (PyObject_SetAttr(block.get(), n.ended, Py_False) < 0 || PyObject_SetAttr(block.get(), n.lease, Py_None) < 0) forgive();
  } else {
    forgive();
    block = Owned(PyObject_CallFunction(s.new_block, "iKK", int(device), (unsigned long long)start, (unsigned long long)size));
    if (!block) {
      forgive();
      return python();
    }
  }
  Release* release = PyObject_New(Release, release_type());
  if (!release) return nullptr;
  release->block = block.release();
  release->start = start;
  release->space = int(device);
  release->session = s.session;
  Owned owner(reinterpret_cast<PyObject*>(release));
  const Id site = here();
  {
    Lock lock(s.core.mutex);
    if (Timeline* timeline = s.core.line(line.id)) s.core.allocate(int(device), start, size, timeline, Owner::cupy, site);
  }
  if (PyObject_SetAttr(memory.get(), n._streamsafe, owner.get()) < 0) return nullptr;
  return no_plain_pointer() ? pointer.release() : traced_pointer(memory.get(), 0, nullptr);
}

}  // namespace streamsafe::cupy
