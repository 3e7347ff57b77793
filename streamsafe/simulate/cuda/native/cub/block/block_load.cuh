// What CuPy's reductions use of CUB: each thread loads items that follow one another.
#pragma once

namespace cub {

enum BlockLoadAlgorithm { BLOCK_LOAD_DIRECT };

template <class T, int BLOCK, int ITEMS, BlockLoadAlgorithm ALGORITHM = BLOCK_LOAD_DIRECT>
struct BlockLoad {
  struct TempStorage {};
  explicit BlockLoad(TempStorage&) {}

  template <class From>
  void Load(From from, T (&items)[ITEMS]) {
    for (int i = 0; i < ITEMS; i++) items[i] = from[threadIdx.x * ITEMS + i];
  }
  template <class From>
  void Load(From from, T (&items)[ITEMS], int valid) {
    for (int i = 0; i < ITEMS; i++)
      if (static_cast<int>(threadIdx.x) * ITEMS + i < valid) items[i] = from[threadIdx.x * ITEMS + i];
  }
  template <class From, class Other>
  void Load(From from, T (&items)[ITEMS], int valid, Other other) {
    for (int i = 0; i < ITEMS; i++) items[i] = other;
    Load(from, items, valid);
  }
};

}  // namespace cub
