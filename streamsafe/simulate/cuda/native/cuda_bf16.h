// bfloat16: the upper half of a float, computed in float and rounded after each operation.
#pragma once

#include "cuda_fp16.h"

struct __nv_bfloat16_raw {
  unsigned short x;
};

inline unsigned short streamsafe_to_bfloat(float value) {
  unsigned int bits = __float_as_uint(value);
  if (std::isnan(value)) return 0x7fffu;
  return (bits + 0x7fffu + (bits >> 16 & 1)) >> 16;
}

inline float streamsafe_from_bfloat(unsigned short half) { return __uint_as_float(unsigned(half) << 16); }

inline unsigned short streamsafe_double_to_bfloat(double value) {
  return streamsafe_to_bfloat(static_cast<float>(value));
}

STREAMSAFE_SMALL_FLOAT(__nv_bfloat16, __nv_bfloat16_raw, streamsafe_to_bfloat, streamsafe_double_to_bfloat,
                       streamsafe_from_bfloat)
using nv_bfloat16 = __nv_bfloat16;

inline __nv_bfloat16 __float2bfloat16(float value) { return __nv_bfloat16(value); }
inline __nv_bfloat16 __float2bfloat16_rn(float value) { return __nv_bfloat16(value); }
inline __nv_bfloat16 __double2bfloat16(double value) { return __nv_bfloat16(value); }
inline float __bfloat162float(__nv_bfloat16 value) { return float(value); }
inline unsigned short __bfloat16_as_ushort(__nv_bfloat16 value) { return value.bits_; }
inline __nv_bfloat16 __ushort_as_bfloat16(unsigned short bits) { return __nv_bfloat16(__nv_bfloat16_raw{bits}); }
