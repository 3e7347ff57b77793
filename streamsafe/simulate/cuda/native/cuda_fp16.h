// Half precision: stored in 16 bits, computed in float and rounded after each operation.
#pragma once

struct __half_raw {
  unsigned short x;
};

inline unsigned short streamsafe_to_half(float value) {
  unsigned int bits = __float_as_uint(value), sign = bits >> 16 & 0x8000u, rest = bits & 0x7fffffffu;
  if (rest > 0x7f800000u) return 0x7fffu;
  if (rest >= 0x477ff000u) return sign | 0x7c00u;
  if (rest < 0x38800000u) {  // a subnormal: the sum with 0.5 rounds it to a multiple of 2**-24
    float moved = __uint_as_float(rest) + 0.5f;
    return sign | (__float_as_uint(moved) - 0x3f000000u);
  }
  unsigned int odd = rest >> 13 & 1;
  return sign | ((rest - 0x38000000u + 0xfffu + odd) >> 13);
}

inline float streamsafe_from_half(unsigned short half) {
  unsigned int sign = (half & 0x8000u) << 16, exponent = half >> 10 & 31, fraction = half & 0x3ffu;
  if (exponent == 31) return __uint_as_float(sign | 0x7f800000u | fraction << 13);
  if (exponent == 0) return (sign ? -1.0f : 1.0f) * fraction * 0x1p-24f;
  return __uint_as_float(sign | (exponent + 112) << 23 | fraction << 13);
}

// Twice rounded is wrong: a double is first made a float that remembers what it lost in its last bit.
inline unsigned short streamsafe_double_to_half(double value) {
  float rounded = static_cast<float>(value);
  if (std::isfinite(rounded) && rounded != value) {
    unsigned int bits = __float_as_uint(rounded);
    if (std::fabs(rounded) > std::fabs(value)) bits--;
    rounded = __uint_as_float(bits | 1);
  }
  return streamsafe_to_half(rounded);
}

#define STREAMSAFE_SMALL_FLOAT(NAME, RAW, TO, FROM_DOUBLE, FROM)                                   \
  struct NAME {                                                                                    \
    unsigned short bits_;                                                                          \
    NAME() = default;                                                                              \
    NAME(const RAW& raw) : bits_(raw.x) {}                                                         \
    NAME(float value) : bits_(TO(value)) {}                                                        \
    NAME(double value) : bits_(FROM_DOUBLE(value)) {}                                              \
    NAME(int value) : bits_(TO(static_cast<float>(value))) {}                                      \
    NAME(unsigned int value) : bits_(TO(static_cast<float>(value))) {}                             \
    NAME(short value) : bits_(TO(static_cast<float>(value))) {}                                    \
    NAME(unsigned short value) : bits_(TO(static_cast<float>(value))) {}                           \
    NAME(long long value) : bits_(FROM_DOUBLE(static_cast<double>(value))) {}                      \
    NAME(unsigned long long value) : bits_(FROM_DOUBLE(static_cast<double>(value))) {}             \
    NAME(long value) : bits_(FROM_DOUBLE(static_cast<double>(value))) {}                           \
    NAME(unsigned long value) : bits_(FROM_DOUBLE(static_cast<double>(value))) {}                  \
    NAME(bool value) : bits_(TO(value ? 1.0f : 0.0f)) {}                                           \
    operator float() const { return FROM(bits_); }                                                 \
    operator RAW() const { return RAW{bits_}; }                                                    \
    NAME& operator+=(NAME other) { return *this = NAME(float(*this) + float(other)); }             \
    NAME& operator-=(NAME other) { return *this = NAME(float(*this) - float(other)); }             \
    NAME& operator*=(NAME other) { return *this = NAME(float(*this) * float(other)); }             \
    NAME& operator/=(NAME other) { return *this = NAME(float(*this) / float(other)); }             \
  };                                                                                               \
  inline NAME operator+(NAME a, NAME b) { return NAME(float(a) + float(b)); }                      \
  inline NAME operator-(NAME a, NAME b) { return NAME(float(a) - float(b)); }                      \
  inline NAME operator*(NAME a, NAME b) { return NAME(float(a) * float(b)); }                      \
  inline NAME operator/(NAME a, NAME b) { return NAME(float(a) / float(b)); }                      \
  inline NAME operator-(NAME a) { return NAME(-float(a)); }                                        \
  inline bool operator<(NAME a, NAME b) { return float(a) < float(b); }                            \
  inline bool operator>(NAME a, NAME b) { return float(a) > float(b); }                            \
  inline bool operator<=(NAME a, NAME b) { return float(a) <= float(b); }                          \
  inline bool operator>=(NAME a, NAME b) { return float(a) >= float(b); }                          \
  inline bool operator==(NAME a, NAME b) { return float(a) == float(b); }                          \
  inline bool operator!=(NAME a, NAME b) { return float(a) != float(b); }                          \
  inline NAME __hadd(NAME a, NAME b) { return a + b; }                                             \
  inline NAME __hsub(NAME a, NAME b) { return a - b; }                                             \
  inline NAME __hmul(NAME a, NAME b) { return a * b; }                                             \
  inline NAME __hdiv(NAME a, NAME b) { return a / b; }                                             \
  inline NAME __hneg(NAME a) { return -a; }                                                        \
  inline NAME __habs(NAME a) { return NAME(std::fabs(float(a))); }                                 \
  inline NAME __hfma(NAME a, NAME b, NAME c) { return NAME(std::fma(float(a), float(b), float(c))); } \
  inline NAME __hmax(NAME a, NAME b) { return NAME(std::fmax(float(a), float(b))); }               \
  inline NAME __hmin(NAME a, NAME b) { return NAME(std::fmin(float(a), float(b))); }               \
  inline bool __heq(NAME a, NAME b) { return a == b; }                                             \
  inline bool __hne(NAME a, NAME b) { return a != b; }                                             \
  inline bool __hlt(NAME a, NAME b) { return a < b; }                                              \
  inline bool __hle(NAME a, NAME b) { return a <= b; }                                             \
  inline bool __hgt(NAME a, NAME b) { return a > b; }                                              \
  inline bool __hge(NAME a, NAME b) { return a >= b; }                                             \
  inline bool __hisnan(NAME a) { return std::isnan(float(a)); }                                    \
  inline int __hisinf(NAME a) { return std::isinf(float(a)); }                                     \
  inline NAME hsqrt(NAME a) { return NAME(std::sqrt(float(a))); }                                  \
  inline NAME hexp(NAME a) { return NAME(std::exp(float(a))); }                                    \
  inline NAME hlog(NAME a) { return NAME(std::log(float(a))); }                                    \
  inline NAME hsin(NAME a) { return NAME(std::sin(float(a))); }                                    \
  inline NAME hcos(NAME a) { return NAME(std::cos(float(a))); }                                    \
  inline NAME hrsqrt(NAME a) { return NAME(1.0f / std::sqrt(float(a))); }                          \
  inline NAME hrcp(NAME a) { return NAME(1.0f / float(a)); }                                       \
  inline NAME hfloor(NAME a) { return NAME(std::floor(float(a))); }                                \
  inline NAME hceil(NAME a) { return NAME(std::ceil(float(a))); }                                  \
  inline NAME atomicAdd(NAME* at, NAME value) {                                                    \
    NAME old = *at;                                                                                \
    *at = old + value;                                                                             \
    return old;                                                                                    \
  }

STREAMSAFE_SMALL_FLOAT(__half, __half_raw, streamsafe_to_half, streamsafe_double_to_half, streamsafe_from_half)
using half = __half;

inline __half __float2half(float value) { return __half(value); }
inline __half __float2half_rn(float value) { return __half(value); }
inline __half __double2half(double value) { return __half(value); }
inline __half __int2half_rn(int value) { return __half(value); }
inline float __half2float(__half value) { return float(value); }
inline int __half2int_rn(__half value) { return static_cast<int>(std::nearbyint(float(value))); }
inline int __half2int_rz(__half value) { return static_cast<int>(float(value)); }
inline unsigned short __half_as_ushort(__half value) { return value.bits_; }
inline short __half_as_short(__half value) { return static_cast<short>(value.bits_); }
inline __half __ushort_as_half(unsigned short bits) { return __half(__half_raw{bits}); }
inline __half __short_as_half(short bits) { return __ushort_as_half(static_cast<unsigned short>(bits)); }

struct __half2 {
  __half x, y;
};
using half2 = __half2;

inline __half2 __halves2half2(__half a, __half b) { return {a, b}; }
inline __half2 make_half2(__half a, __half b) { return {a, b}; }
inline __half2 __float2half2_rn(float a) { return {__half(a), __half(a)}; }
inline __half2 __floats2half2_rn(float a, float b) { return {__half(a), __half(b)}; }
inline __half2 __half2half2(__half a) { return {a, a}; }
inline __half __low2half(__half2 a) { return a.x; }
inline __half __high2half(__half2 a) { return a.y; }
inline float __low2float(__half2 a) { return float(a.x); }
inline float __high2float(__half2 a) { return float(a.y); }
inline float2 __half22float2(__half2 a) { return {float(a.x), float(a.y)}; }
inline __half2 __hadd2(__half2 a, __half2 b) { return {a.x + b.x, a.y + b.y}; }
inline __half2 __hsub2(__half2 a, __half2 b) { return {a.x - b.x, a.y - b.y}; }
inline __half2 __hmul2(__half2 a, __half2 b) { return {a.x * b.x, a.y * b.y}; }
inline __half2 __hfma2(__half2 a, __half2 b, __half2 c) { return {__hfma(a.x, b.x, c.x), __hfma(a.y, b.y, c.y)}; }
