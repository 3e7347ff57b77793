// What an operation touches: arrays, pointers and pinned memory as the core's uses, as streamsafe/runtime/cupy/touches.py says.
#pragma once
#include "state.hpp"

namespace streamsafe::cupy {

constexpr int HOST_SPACE = -1;

// The pinned block that holds an address: 1 and where it is, 0: none, -1: Python could not say.
inline int pinned_block(Addr address, Addr* start = nullptr) {
  State& s = state();
  if (!PyDict_GET_SIZE(s.pinned_sizes) || address < 2) return 0;
  auto* known = s.pinned_at.find(address);
  if (!known) {
    Owned key(PyLong_FromUnsignedLongLong(address));
    Owned found(PyObject_CallOneArg(s.holding, key.get()));
    if (!found) {
      forgive();
      return -1;
    }
    if (s.pinned_at.size() >= 8192) s.pinned_at = Flat<std::pair<Addr, Addr>>(256);
    known = &s.pinned_at[address];
    *known = {found.get() == Py_None ? 0 : PyLong_AsUnsignedLongLong(found.get()), 0};
  }
  if (start) *start = known->first;
  return known->first != 0;
}

// Up to 16 uses, those read first, with the shapes and strides of what is not contiguous.
class Uses {
 public:
  static constexpr int ROOM = 16, DIMS = 128;

  // False: there is no room.
  bool add(const Use& use, bool read, bool write) {
    if (count_ + read + write > ROOM) return false;
    if (read) {
      for (int i = count_; i > reads_; --i) all_[i] = all_[i - 1];
      all_[reads_] = use;
      all_[reads_++].mode = Mode::reads;
      ++count_;
    }
    if (write) {
      all_[count_] = use;
      all_[count_++].mode = Mode::writes;
    }
    return true;
  }
  // Where the shape and then the strides of a view of so many dimensions go; nullptr: there is no room.
  int64_t* dims(int count) {
    if (taken_ + 2 * count > DIMS) return nullptr;
    int64_t* found = dims_ + taken_;
    taken_ += 2 * count;
    return found;
  }
  const Use* data() const { return all_; }
  size_t size() const { return size_t(count_); }

 private:
  Use all_[ROOM];
  int64_t dims_[DIMS];
  int count_ = 0, reads_ = 0, taken_ = 0;
};

// A view's lowest and highest byte, and its extents and strides where it leaves gaps. False: there is no room.
inline bool strided(Use& use, Uses& uses, Addr pointer, const int64_t* shape, const int64_t* strides, int count, int64_t itemsize) {
  int64_t low = 0, high = 0;
  int64_t* kept = uses.dims(count);
  if (!kept) return false;
  int64_t* steps = kept + count;
  int left = 0;
  use.itemsize = Addr(itemsize);
  for (int i = 0; i < count; ++i) {
    if (shape[i] == 0) {
      use.start = use.stop = pointer;
      return true;
    }
    if (shape[i] == 1 || strides[i] == 0) continue;
    const int64_t reach = (shape[i] - 1) * strides[i];
    (reach < 0 ? low : high) += reach;
    kept[left] = shape[i];
    steps[left++] = strides[i] < 0 ? -strides[i] : strides[i];
  }
  use.start = pointer + Addr(low);
  use.stop = pointer + Addr(high + itemsize);
  // whether it fills its range: by growing stride each step reaches to where the next begins
  int order[16];
  if (left > 16) return false;
  for (int i = 0; i < left; ++i) order[i] = i;
  std::sort(order, order + left, [&](int a, int b) { return steps[a] != steps[b] ? steps[a] < steps[b] : kept[a] < kept[b]; });
  int64_t expected = itemsize;
  bool fills = true;
  for (int i = 0; i < left && fills; ++i) {
    fills = steps[order[i]] <= expected;
    expected = std::max(expected, steps[order[i]] * kept[order[i]]);
  }
  if (fills || !left) return true;
  if (left != count) std::copy(steps, steps + left, kept + left);
  use.dims = left;
  use.shape = kept;
  use.strides = kept + left;
  return true;
}

inline bool numbers(PyObject* tuple, int64_t* out, int count) {
  for (int i = 0; i < count; ++i)
    if (!number(PyTuple_GET_ITEM(tuple, i), out[i])) return false;
  return true;
}

inline bool pointer_space(PyObject* pointer, Addr address, int& space) {
  const int pinned = pinned_block(address);
  if (pinned < 0) return false;
  if (pinned) {
    space = HOST_SPACE;
    return true;
  }
  Addr device;
  if (!integer(pointer, names().device_id, device) || device >= 63) return false;
  space = int(device);
  return true;
}

// The elements of a device array. False: Python has to look.
inline bool array_use(PyObject* array, Use& use, Uses& uses) {
  State& s = state();
  Names& n = names();
  Owned data(PyObject_GetAttr(array, n.data));
  if (!data) {
    forgive();
    return false;
  }
  if (reinterpret_cast<PyObject*>(Py_TYPE(data.get())) != s.traced_pointer) return false;
  Addr pointer;
  if (!integer(data.get(), n.ptr, pointer) || !pointer_space(data.get(), pointer, use.space)) return false;
  if (is(array, n._c_contiguous, Py_True) || is(array, n._f_contiguous, Py_True)) {
    Addr size;
    if (!integer(array, n.nbytes, size)) return false;
    use.start = pointer;
    use.stop = pointer + size;
    return true;
  }
  Owned shape(PyObject_GetAttr(array, n.shape)), strides(PyObject_GetAttr(array, n.strides));
  Addr itemsize;
  if (!shape || !strides || !integer(array, n.itemsize, itemsize)) {
    forgive();
    return false;
  }
  const int count = int(PyTuple_GET_SIZE(shape.get()));
  int64_t extents[16], steps[16];
  if (count > 16 || !numbers(shape.get(), extents, count) || !numbers(strides.get(), steps, count)) return false;
  return strided(use, uses, pointer, extents, steps, count, int64_t(itemsize));
}

// `size` bytes from a pointer. False: Python has to look.
inline bool pointer_use(PyObject* pointer, Addr size, Use& use) {
  Addr address;
  if (!integer(pointer, names().ptr, address) || !pointer_space(pointer, address, use.space)) return false;
  use.start = address;
  use.stop = address + size;
  return true;
}

// An operation is about to be enqueued. `touches`: gives what it reads and writes as Python's tuples, for a conflict.
// False: an exception is set, and it must not be enqueued.
template <class T>
bool enqueue(Line line, const Uses& uses, Id operation, Id site, bool may_raise, T&& touches) {
  State& s = state();
  Held monitor;
  if (!monitor.take_monitor()) return false;
  bool done;
  {
    Lock lock(s.core.mutex);
    Timeline* timeline = s.core.line(line.id);
    done = !timeline || s.core.access(*timeline, uses.data(), uses.size(), operation, site);
  }
  if (done) return true;
  Owned key = shared(line.key), reads(PyList_New(0)), writes(PyList_New(0));
  if (!touches(reads.get(), writes.get())) return false;
  PyObject* name = s.operation_names[operation];
  Owned settled(PyObject_CallFunction(s.settle, "OOOOOKO", s.monitor, key.get(), reads.get(), writes.get(), name, (unsigned long long)site,
                                      may_raise ? Py_True : Py_False));
  return bool(settled);
}

}  // namespace streamsafe::cupy
