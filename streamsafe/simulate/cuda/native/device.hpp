// CUDA C++ for the host's compiler: what a kernel may use without including anything. Included before every kernel.
#pragma once

#include <cassert>
#include <cfloat>
#include <climits>
#include <cmath>
#include <complex>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <initializer_list>
#include <limits>
#include <tuple>
#include <type_traits>
#include <utility>

#include "runtime.h"

namespace cuda {
namespace std {
using namespace ::std;
}
}  // namespace cuda

#define __CUDA_ARCH__ 800
#define __CUDACC_VER_MAJOR__ 12
#define __CUDACC_VER_MINOR__ 9

#define __global__
#define __device__
#define __host__
#define __constant__
#define __managed__
#define __grid_constant__
#define __forceinline__ __attribute__((always_inline))
#define __noinline__
#define __launch_bounds__(...)
#define __cluster_dims__(...)
#define __align__(n) __attribute__((aligned(n)))
#define __shared__ static

#undef assert
#define STREAMSAFE_TEXT(x) #x
#define assert(holds) ((holds) ? void() : streamsafe_fail("an assertion fails: " STREAMSAFE_TEXT(holds)))
inline void __trap() { streamsafe_fail("it calls __trap()"); }
inline void __brkpt() { __trap(); }

// -- vectors

#define STREAMSAFE_VECTOR(TYPE, NAME, SIZE)                                                    \
  struct __attribute__((aligned(SIZE))) NAME##1 { TYPE x; };                                   \
  struct __attribute__((aligned(2 * SIZE))) NAME##2 { TYPE x, y; };                            \
  struct __attribute__((aligned(4 * SIZE > 16 ? 16 : 4 * SIZE))) NAME##4 { TYPE x, y, z, w; }; \
  inline NAME##1 make_##NAME##1(TYPE x) { return {x}; }                                        \
  inline NAME##2 make_##NAME##2(TYPE x, TYPE y) { return {x, y}; }                             \
  inline NAME##3 make_##NAME##3(TYPE x, TYPE y, TYPE z) { return {x, y, z}; }                  \
  inline NAME##4 make_##NAME##4(TYPE x, TYPE y, TYPE z, TYPE w) { return {x, y, z, w}; }
#define STREAMSAFE_VECTORS(TYPE, NAME, SIZE) \
  struct NAME##3 { TYPE x, y, z; };          \
  STREAMSAFE_VECTOR(TYPE, NAME, SIZE)

STREAMSAFE_VECTOR(unsigned int, uint, 4)  // runtime.h has uint3
STREAMSAFE_VECTORS(signed char, char, 1)
STREAMSAFE_VECTORS(unsigned char, uchar, 1)
STREAMSAFE_VECTORS(short, short, 2)
STREAMSAFE_VECTORS(unsigned short, ushort, 2)
STREAMSAFE_VECTORS(int, int, 4)
STREAMSAFE_VECTORS(long, long, 8)
STREAMSAFE_VECTORS(unsigned long, ulong, 8)
STREAMSAFE_VECTORS(long long, longlong, 8)
STREAMSAFE_VECTORS(unsigned long long, ulonglong, 8)
STREAMSAFE_VECTORS(float, float, 4)
STREAMSAFE_VECTORS(double, double, 8)

struct dim3 {
  unsigned int x, y, z;
  dim3(unsigned int x = 1, unsigned int y = 1, unsigned int z = 1) : x(x), y(y), z(z) {}
  dim3(uint3 v) : x(v.x), y(v.y), z(v.z) {}
};

#define threadIdx streamsafe_thread
#define blockIdx streamsafe_block
#define blockDim streamsafe_block_dim
#define gridDim streamsafe_grid_dim
#define warpSize 32

// -- barriers, fences, clocks

inline void __syncthreads() { streamsafe_barrier(0, STREAMSAFE_COUNT); }
inline int __syncthreads_count(int holds) { return streamsafe_barrier(holds, STREAMSAFE_COUNT); }
inline int __syncthreads_and(int holds) { return streamsafe_barrier(holds, STREAMSAFE_AND); }
inline int __syncthreads_or(int holds) { return streamsafe_barrier(holds, STREAMSAFE_OR); }
inline void __syncwarp(unsigned int mask = 0xffffffffu) { streamsafe_warp_barrier(mask); }
struct streamsafe_in_step {
  streamsafe_in_step() { __syncwarp(); }
  ~streamsafe_in_step() { __syncwarp(); }
};
inline void __threadfence() {}
inline void __threadfence_block() {}
inline void __threadfence_system() {}
inline void __nanosleep(unsigned int) { streamsafe_yield(); }
inline long long clock64() {
  static long long ticks;
  return ticks += 100;
}
#define clock() static_cast<int>(clock64())

// -- warps

// A thread that never runs beside another one is converged with itself alone.
inline unsigned int streamsafe_lane() {
  return (threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z)) % 32;
}
inline unsigned int __activemask() { return 1u << streamsafe_lane(); }

template <class T>
T __shfl_sync(unsigned int mask, T value, int from, int width = 32) {
  int lane = streamsafe_lane();
  streamsafe_exchange(mask, &value, sizeof(T), (lane & ~(width - 1)) | (from & (width - 1)));
  return value;
}
template <class T>
T __shfl_up_sync(unsigned int mask, T value, unsigned int delta, int width = 32) {
  int lane = streamsafe_lane(), from = lane - static_cast<int>(delta);
  streamsafe_exchange(mask, &value, sizeof(T), from < (lane & ~(width - 1)) ? lane : from);
  return value;
}
template <class T>
T __shfl_down_sync(unsigned int mask, T value, unsigned int delta, int width = 32) {
  int lane = streamsafe_lane(), from = lane + static_cast<int>(delta);
  streamsafe_exchange(mask, &value, sizeof(T), from > (lane | (width - 1)) ? lane : from);
  return value;
}
template <class T>
T __shfl_xor_sync(unsigned int mask, T value, int bits, int width = 32) {
  int lane = streamsafe_lane(), from = lane ^ bits;
  streamsafe_exchange(mask, &value, sizeof(T), from > (lane | (width - 1)) ? lane : from);
  return value;
}
inline unsigned int __ballot_sync(unsigned int mask, int holds) { return streamsafe_ballot(mask, holds); }
inline int __any_sync(unsigned int mask, int holds) { return streamsafe_ballot(mask, holds) != 0; }
inline int __all_sync(unsigned int mask, int holds) { return streamsafe_ballot(mask, !holds) == 0; }
template <class T>
unsigned int __match_any_sync(unsigned int mask, T value) {
  unsigned int found = 0;
  for (int lane = 0; lane < 32; lane++) {
    T other = value;
    streamsafe_exchange(mask, &other, sizeof(T), lane);
    if ((mask >> lane & 1) && other == value) found |= 1u << lane;
  }
  return found;
}
template <class T, class F>
T streamsafe_reduce(unsigned int mask, T value, F combine) {
  T total = value;
  for (unsigned int lane = 0; lane < 32; lane++) {
    T other = value;
    streamsafe_exchange(mask, &other, sizeof(T), lane);
    if ((mask >> lane & 1) && lane != streamsafe_lane()) total = combine(total, other);
  }
  return total;
}
template <class T>
T __reduce_add_sync(unsigned int mask, T value) {
  return streamsafe_reduce(mask, value, [](T a, T b) { return a + b; });
}
template <class T>
T __reduce_min_sync(unsigned int mask, T value) {
  return streamsafe_reduce(mask, value, [](T a, T b) { return a < b ? a : b; });
}
template <class T>
T __reduce_max_sync(unsigned int mask, T value) {
  return streamsafe_reduce(mask, value, [](T a, T b) { return a < b ? b : a; });
}

// -- atomics: no thread runs beside another one

#define STREAMSAFE_ATOMIC(NAME, TYPE, RESULT)        \
  inline TYPE atomic##NAME(TYPE* at, TYPE value) {   \
    TYPE old = *at;                                  \
    *at = (RESULT);                                  \
    return old;                                      \
  }                                                  \
  inline TYPE atomic##NAME##_block(TYPE* at, TYPE value) { return atomic##NAME(at, value); } \
  inline TYPE atomic##NAME##_system(TYPE* at, TYPE value) { return atomic##NAME(at, value); }
#define STREAMSAFE_ATOMICS(NAME, RESULT)             \
  STREAMSAFE_ATOMIC(NAME, int, RESULT)               \
  STREAMSAFE_ATOMIC(NAME, unsigned int, RESULT)      \
  STREAMSAFE_ATOMIC(NAME, unsigned long long, RESULT)
STREAMSAFE_ATOMICS(Add, old + value)
STREAMSAFE_ATOMIC(Add, float, old + value)
STREAMSAFE_ATOMIC(Add, double, old + value)
STREAMSAFE_ATOMIC(Sub, int, old - value)
STREAMSAFE_ATOMIC(Sub, unsigned int, old - value)
STREAMSAFE_ATOMICS(Exch, value)
STREAMSAFE_ATOMIC(Exch, float, value)
STREAMSAFE_ATOMICS(Min, value < old ? value : old)
STREAMSAFE_ATOMIC(Min, long long, value < old ? value : old)
STREAMSAFE_ATOMICS(Max, value > old ? value : old)
STREAMSAFE_ATOMIC(Max, long long, value > old ? value : old)
STREAMSAFE_ATOMICS(And, old & value)
STREAMSAFE_ATOMICS(Or, old | value)
STREAMSAFE_ATOMICS(Xor, old ^ value)
STREAMSAFE_ATOMIC(Inc, unsigned int, old >= value ? 0 : old + 1)
STREAMSAFE_ATOMIC(Dec, unsigned int, old == 0 || old > value ? value : old - 1)

// Threads run one after the other: one that waits for a lock has to let the others run.
inline bool streamsafe_spins(bool failed) {
  static unsigned int tries;
  tries = failed ? tries + 1 : 0;
  if (tries > 1000) {
    tries = 0;
    streamsafe_yield();
  }
  return failed;
}
#define STREAMSAFE_CAS(TYPE)                                          \
  inline TYPE atomicCAS(TYPE* at, TYPE compare, TYPE value) {         \
    TYPE old = *at;                                                   \
    if (!streamsafe_spins(old != compare)) *at = value;               \
    return old;                                                       \
  }                                                                   \
  inline TYPE atomicCAS_block(TYPE* at, TYPE compare, TYPE value) { return atomicCAS(at, compare, value); } \
  inline TYPE atomicCAS_system(TYPE* at, TYPE compare, TYPE value) { return atomicCAS(at, compare, value); }
STREAMSAFE_CAS(int)
STREAMSAFE_CAS(unsigned int)
STREAMSAFE_CAS(unsigned long long)
STREAMSAFE_CAS(unsigned short)

#include "device_math.hpp"

// -- how the runtime calls a kernel

template <class... P, std::size_t... I>
void streamsafe_call_with(void (*kernel)(P...), void** arguments, std::index_sequence<I...>) {
  kernel(*static_cast<std::remove_const_t<std::remove_reference_t<P>>*>(arguments[I])...);
}
template <class... P>
void streamsafe_call(void (*kernel)(P...), void** arguments) {
  streamsafe_call_with(kernel, arguments, std::index_sequence_for<P...>());
}
template <class... P>
std::size_t streamsafe_size(void (*)(P...), std::size_t index) {
  const std::size_t sizes[] = {sizeof(P)..., 0};
  return index < sizeof...(P) ? sizes[index] : 0;
}
#define STREAMSAFE_VISIBLE extern "C" __attribute__((visibility("default")))
#define STREAMSAFE_KERNEL(NUMBER, ...)                                                                             \
  STREAMSAFE_VISIBLE void streamsafe_kernel_##NUMBER(void** arguments) { streamsafe_call(&__VA_ARGS__, arguments); } \
  STREAMSAFE_VISIBLE std::size_t streamsafe_size_##NUMBER(std::size_t index) {                                     \
    return streamsafe_size(&__VA_ARGS__, index);                                                                   \
  }
#define STREAMSAFE_VARIABLE(NUMBER, NAME)                                              \
  STREAMSAFE_VISIBLE void* streamsafe_variable_##NUMBER() { return (void*)&NAME; }     \
  STREAMSAFE_VISIBLE std::size_t streamsafe_variable_size_##NUMBER() { return sizeof(NAME); }
