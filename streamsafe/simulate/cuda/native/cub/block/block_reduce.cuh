// What CuPy's reductions use of CUB: the first thread of a block combines the values of all.
#pragma once

namespace cub {

template <class T, int BLOCK>
struct BlockReduce {
  struct TempStorage {
    alignas(T) char values[sizeof(T) * BLOCK];
  };
  explicit BlockReduce(TempStorage& storage) : values(reinterpret_cast<T*>(storage.values)) {}

  template <class Combine>
  T Reduce(T value, Combine combine) {
    values[threadIdx.x] = value;
    __syncthreads();
    if (threadIdx.x == 0)
      for (int i = 1; i < BLOCK; i++) value = combine(value, values[i]);
    __syncthreads();
    return value;
  }
  template <int ITEMS, class Combine>
  T Reduce(T (&items)[ITEMS], Combine combine) {
    T total = items[0];
    for (int i = 1; i < ITEMS; i++) total = combine(total, items[i]);
    return Reduce(total, combine);
  }
  T Sum(T value) {
    return Reduce(value, [](const T& a, const T& b) { return a + b; });
  }

 private:
  T* values;
};

}  // namespace cub
