// CUDA's functions on numbers that the C++ library does not have under these names.
#pragma once

// -- bits

template <class To, class From>
To streamsafe_bits(From value) {
  To result;
  static_assert(sizeof(To) == sizeof(From), "");
  std::memcpy(&result, &value, sizeof(To));
  return result;
}
inline float __int_as_float(int v) { return streamsafe_bits<float>(v); }
inline float __uint_as_float(unsigned int v) { return streamsafe_bits<float>(v); }
inline int __float_as_int(float v) { return streamsafe_bits<int>(v); }
inline unsigned int __float_as_uint(float v) { return streamsafe_bits<unsigned int>(v); }
inline double __longlong_as_double(long long v) { return streamsafe_bits<double>(v); }
inline long long __double_as_longlong(double v) { return streamsafe_bits<long long>(v); }
inline int __double2hiint(double v) { return static_cast<int>(__double_as_longlong(v) >> 32); }
inline int __double2loint(double v) { return static_cast<int>(__double_as_longlong(v)); }
inline double __hiloint2double(int high, int low) {
  return __longlong_as_double(static_cast<long long>(static_cast<unsigned long long>(high) << 32 |
                                                     static_cast<unsigned int>(low)));
}
inline int __popc(unsigned int v) { return __builtin_popcount(v); }
inline int __popcll(unsigned long long v) { return __builtin_popcountll(v); }
inline int __clz(int v) { return v ? __builtin_clz(v) : 32; }
inline int __clzll(long long v) { return v ? __builtin_clzll(v) : 64; }
inline int __ffs(int v) { return __builtin_ffs(v); }
inline int __ffsll(long long v) { return __builtin_ffsll(v); }
inline unsigned int __brev(unsigned int v) {
  unsigned int result = 0;
  for (int i = 0; i < 32; i++) result |= (v >> i & 1u) << (31 - i);
  return result;
}
inline unsigned long long __brevll(unsigned long long v) {
  return static_cast<unsigned long long>(__brev(static_cast<unsigned int>(v))) << 32 |
         __brev(static_cast<unsigned int>(v >> 32));
}
inline unsigned int __byte_perm(unsigned int x, unsigned int y, unsigned int select) {
  unsigned long long both = static_cast<unsigned long long>(y) << 32 | x;
  unsigned int result = 0;
  for (int i = 0; i < 4; i++) result |= static_cast<unsigned int>(both >> 8 * (select >> 4 * i & 7) & 0xff) << 8 * i;
  return result;
}
inline unsigned int __funnelshift_l(unsigned int low, unsigned int high, unsigned int shift) {
  unsigned long long both = static_cast<unsigned long long>(high) << 32 | low;
  return static_cast<unsigned int>(both << (shift & 31) >> 32);
}
inline unsigned int __funnelshift_r(unsigned int low, unsigned int high, unsigned int shift) {
  unsigned long long both = static_cast<unsigned long long>(high) << 32 | low;
  return static_cast<unsigned int>(both >> (shift & 31));
}

// -- integers

inline int __mul24(int a, int b) { return (a << 8 >> 8) * (b << 8 >> 8); }
inline unsigned int __umul24(unsigned int a, unsigned int b) { return (a & 0xffffff) * (b & 0xffffff); }
inline int __mulhi(int a, int b) { return static_cast<int>(static_cast<long long>(a) * b >> 32); }
inline unsigned int __umulhi(unsigned int a, unsigned int b) {
  return static_cast<unsigned int>(static_cast<unsigned long long>(a) * b >> 32);
}
inline long long __mul64hi(long long a, long long b) { return static_cast<long long>(static_cast<__int128>(a) * b >> 64); }
inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
  return static_cast<unsigned long long>(static_cast<unsigned __int128>(a) * b >> 64);
}
inline unsigned int __sad(int a, int b, unsigned int c) { return c + (a > b ? a - b : b - a); }
inline unsigned int __usad(unsigned int a, unsigned int b, unsigned int c) { return c + (a > b ? a - b : b - a); }
inline int __hadd(int a, int b) { return static_cast<int>((static_cast<long long>(a) + b) >> 1); }
inline int __rhadd(int a, int b) { return static_cast<int>((static_cast<long long>(a) + b + 1) >> 1); }
inline unsigned int __uhadd(unsigned int a, unsigned int b) {
  return static_cast<unsigned int>((static_cast<unsigned long long>(a) + b) >> 1);
}

#define STREAMSAFE_MIN_MAX(A, B, R)                                                        \
  inline R min(A a, B b) { return static_cast<R>(a) < static_cast<R>(b) ? static_cast<R>(a) : static_cast<R>(b); } \
  inline R max(A a, B b) { return static_cast<R>(a) > static_cast<R>(b) ? static_cast<R>(a) : static_cast<R>(b); }
STREAMSAFE_MIN_MAX(int, int, int)
STREAMSAFE_MIN_MAX(unsigned int, unsigned int, unsigned int)
STREAMSAFE_MIN_MAX(int, unsigned int, unsigned int)
STREAMSAFE_MIN_MAX(unsigned int, int, unsigned int)
STREAMSAFE_MIN_MAX(long, long, long)
STREAMSAFE_MIN_MAX(unsigned long, unsigned long, unsigned long)
STREAMSAFE_MIN_MAX(long, unsigned long, unsigned long)
STREAMSAFE_MIN_MAX(unsigned long, long, unsigned long)
STREAMSAFE_MIN_MAX(long long, long long, long long)
STREAMSAFE_MIN_MAX(unsigned long long, unsigned long long, unsigned long long)
STREAMSAFE_MIN_MAX(long long, unsigned long long, unsigned long long)
STREAMSAFE_MIN_MAX(unsigned long long, long long, unsigned long long)
#undef STREAMSAFE_MIN_MAX
inline float min(float a, float b) { return std::fmin(a, b); }
inline float max(float a, float b) { return std::fmax(a, b); }
inline double min(double a, double b) { return std::fmin(a, b); }
inline double max(double a, double b) { return std::fmax(a, b); }
inline double min(float a, double b) { return std::fmin(static_cast<double>(a), b); }
inline double max(float a, double b) { return std::fmax(static_cast<double>(a), b); }
inline double min(double a, float b) { return std::fmin(a, static_cast<double>(b)); }
inline double max(double a, float b) { return std::fmax(a, static_cast<double>(b)); }
inline unsigned int umin(unsigned int a, unsigned int b) { return a < b ? a : b; }
inline unsigned int umax(unsigned int a, unsigned int b) { return a > b ? a : b; }
inline long long llmin(long long a, long long b) { return a < b ? a : b; }
inline long long llmax(long long a, long long b) { return a > b ? a : b; }

// -- reals; the overloads of the C++ library, without std::

using std::abs;
using std::acos;
using std::acosh;
using std::asin;
using std::asinh;
using std::atan;
using std::atan2;
using std::atanh;
using std::cbrt;
using std::ceil;
using std::copysign;
using std::cos;
using std::cosh;
using std::erf;
using std::erfc;
using std::exp;
using std::exp2;
using std::expm1;
using std::fabs;
using std::fdim;
using std::floor;
using std::fma;
using std::fmax;
using std::fmin;
using std::fmod;
using std::frexp;
using std::hypot;
using std::ilogb;
using std::isfinite;
using std::isinf;
using std::isnan;
using std::ldexp;
using std::lgamma;
using std::llrint;
using std::llround;
using std::log;
using std::log10;
using std::log1p;
using std::log2;
using std::logb;
using std::lrint;
using std::lround;
using std::modf;
using std::nearbyint;
using std::nextafter;
using std::pow;
using std::remainder;
using std::remquo;
using std::rint;
using std::round;
using std::scalbln;
using std::scalbn;
using std::signbit;
using std::sin;
using std::sinh;
using std::sqrt;
using std::tan;
using std::tanh;
using std::tgamma;
using std::trunc;

inline double rsqrt(double x) { return 1.0 / std::sqrt(x); }
inline float rsqrtf(float x) { return 1.0f / std::sqrt(x); }
inline double rcbrt(double x) { return 1.0 / std::cbrt(x); }
inline double sinpi(double x) {
  double r = std::fmod(x, 2.0);
  return r == std::trunc(r) ? std::copysign(0.0, x) : std::sin(M_PI * r);
}
inline double cospi(double x) {
  double r = std::fabs(std::fmod(x, 2.0));
  return r == 0.5 || r == 1.5 ? 0.0 : std::cos(M_PI * r);
}
inline void sincospi(double x, double* s, double* c) { *s = sinpi(x), *c = cospi(x); }
inline void sincospif(float x, float* s, float* c) { *s = sinpi(x), *c = cospi(x); }
inline void sincospi(float x, float* s, float* c) { sincospif(x, s, c); }
inline void sincos(float x, float* s, float* c) { *s = std::sin(x), *c = std::cos(x); }
inline double rhypot(double x, double y) { return 1.0 / std::hypot(x, y); }
inline double norm3d(double x, double y, double z) { return std::hypot(x, y, z); }
inline double rnorm3d(double x, double y, double z) { return 1.0 / std::hypot(x, y, z); }
inline double norm4d(double x, double y, double z, double w) { return std::hypot(std::hypot(x, y), std::hypot(z, w)); }
inline double erfcx(double x) {
  if (x < 25) return std::exp(x * x) * std::erfc(x);
  double y = 1 / (2 * x * x);
  return (1 - y + 3 * y * y) / (x * std::sqrt(M_PI));
}
// Newton's steps from Winitzki's formula, on the side where nothing cancels.
inline double erfcinv(double y) {
  if (!(y > 0 && y < 2)) return y == 0 ? INFINITY : y == 2 ? -INFINITY : NAN;
  if (y > 1) return -erfcinv(2 - y);
  double l = std::log(y * (2 - y)), h = 2 / (M_PI * 0.147) + l / 2;
  double x = std::sqrt(std::fmax(std::sqrt(h * h - l / 0.147) - h, 0.0));
  for (int i = 0; i < 4; i++) {
    double slope = 2 / std::sqrt(M_PI) * std::exp(-x * x), error = (std::erfc(x) - y) / slope;
    x += error / (1 + x * error);
  }
  return x;
}
inline double erfinv(double y) {
  if (std::fabs(y) > 0.5) return y > 0 ? erfcinv(1 - y) : -erfcinv(1 + y);
  double x = y * std::sqrt(M_PI) / 2;
  for (int i = 0; i < 6; i++) x -= (std::erf(x) - y) / (2 / std::sqrt(M_PI) * std::exp(-x * x));
  return x;
}
inline double normcdf(double x) { return 0.5 * std::erfc(-x * M_SQRT1_2); }
inline double normcdfinv(double p) { return -M_SQRT2 * erfcinv(2 * p); }
inline double cyl_bessel_i0(double x) { return std::cyl_bessel_i(0.0, std::fabs(x)); }
inline double cyl_bessel_i1(double x) { return std::copysign(std::cyl_bessel_i(1.0, std::fabs(x)), x); }

#define STREAMSAFE_FLOAT1(NAME)                          \
  inline float NAME(float x) { return static_cast<float>(NAME(static_cast<double>(x))); }
#define STREAMSAFE_FLOAT(NAME)                           \
  STREAMSAFE_FLOAT1(NAME)                                \
  inline float NAME##f(float x) { return static_cast<float>(NAME(static_cast<double>(x))); }
STREAMSAFE_FLOAT1(rsqrt)
STREAMSAFE_FLOAT(rcbrt)
STREAMSAFE_FLOAT(sinpi)
STREAMSAFE_FLOAT(cospi)
STREAMSAFE_FLOAT(erfcx)
STREAMSAFE_FLOAT(erfinv)
STREAMSAFE_FLOAT(erfcinv)
STREAMSAFE_FLOAT(normcdf)
STREAMSAFE_FLOAT(normcdfinv)
STREAMSAFE_FLOAT(cyl_bessel_i0)
STREAMSAFE_FLOAT(cyl_bessel_i1)
// Of the C library for doubles only, or for floats under another name.
STREAMSAFE_FLOAT1(j0)
STREAMSAFE_FLOAT1(j1)
STREAMSAFE_FLOAT1(y0)
STREAMSAFE_FLOAT1(y1)
STREAMSAFE_FLOAT1(exp10)
inline float rhypotf(float x, float y) { return static_cast<float>(rhypot(x, y)); }
inline float norm3df(float x, float y, float z) { return static_cast<float>(norm3d(x, y, z)); }
inline float fdividef(float a, float b) { return a / b; }

inline float __fdividef(float a, float b) { return a / b; }
inline float __expf(float x) { return std::exp(x); }
inline float __exp10f(float x) { return exp10f(x); }
inline float __logf(float x) { return std::log(x); }
inline float __log2f(float x) { return std::log2(x); }
inline float __log10f(float x) { return std::log10(x); }
inline float __powf(float x, float y) { return std::pow(x, y); }
inline float __sinf(float x) { return std::sin(x); }
inline float __cosf(float x) { return std::cos(x); }
inline float __tanf(float x) { return std::tan(x); }
inline void __sincosf(float x, float* s, float* c) { *s = std::sin(x), *c = std::cos(x); }
inline float __saturatef(float x) { return std::isnan(x) ? 0.0f : std::fmin(std::fmax(x, 0.0f), 1.0f); }
inline float __frsqrt_rn(float x) { return 1.0f / std::sqrt(x); }

// Rounded to nearest: the only rounding of operations that there is here.
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fsub_rn(float a, float b) { return a - b; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __frcp_rn(float a) { return 1.0f / a; }
inline float __fsqrt_rn(float a) { return std::sqrt(a); }
inline float __fmaf_rn(float a, float b, float c) { return std::fma(a, b, c); }
inline double __dadd_rn(double a, double b) { return a + b; }
inline double __dsub_rn(double a, double b) { return a - b; }
inline double __dmul_rn(double a, double b) { return a * b; }
inline double __ddiv_rn(double a, double b) { return a / b; }
inline double __drcp_rn(double a) { return 1.0 / a; }
inline double __dsqrt_rn(double a) { return std::sqrt(a); }
inline double __fma_rn(double a, double b, double c) { return std::fma(a, b, c); }

// A number that the integer cannot hold becomes the nearest one that it can.
template <class To, class From>
To streamsafe_to_integer(From x) {
  if (std::isnan(x)) return 0;
  if (x <= static_cast<From>(std::numeric_limits<To>::min())) return std::numeric_limits<To>::min();
  if (x >= static_cast<From>(std::numeric_limits<To>::max())) return std::numeric_limits<To>::max();
  return static_cast<To>(x);
}
#define STREAMSAFE_CONVERT(FROM, NAME, TO)                                                                    \
  inline TO __##FROM##2##NAME##_rn(FROM x) { return streamsafe_to_integer<TO>(std::nearbyint(x)); }           \
  inline TO __##FROM##2##NAME##_rz(FROM x) { return streamsafe_to_integer<TO>(std::trunc(x)); }               \
  inline TO __##FROM##2##NAME##_ru(FROM x) { return streamsafe_to_integer<TO>(std::ceil(x)); }                \
  inline TO __##FROM##2##NAME##_rd(FROM x) { return streamsafe_to_integer<TO>(std::floor(x)); }
STREAMSAFE_CONVERT(float, int, int)
STREAMSAFE_CONVERT(float, uint, unsigned int)
STREAMSAFE_CONVERT(float, ll, long long)
STREAMSAFE_CONVERT(float, ull, unsigned long long)
STREAMSAFE_CONVERT(double, int, int)
STREAMSAFE_CONVERT(double, uint, unsigned int)
STREAMSAFE_CONVERT(double, ll, long long)
STREAMSAFE_CONVERT(double, ull, unsigned long long)
inline float __int2float_rn(int x) { return static_cast<float>(x); }
inline float __uint2float_rn(unsigned int x) { return static_cast<float>(x); }
inline float __ll2float_rn(long long x) { return static_cast<float>(x); }
inline float __ull2float_rn(unsigned long long x) { return static_cast<float>(x); }
inline float __double2float_rn(double x) { return static_cast<float>(x); }
inline double __int2double_rn(int x) { return x; }
inline double __uint2double_rn(unsigned int x) { return x; }
inline double __ll2double_rn(long long x) { return static_cast<double>(x); }
inline double __ull2double_rn(unsigned long long x) { return static_cast<double>(x); }

// -- loads and stores with hints

template <class T>
T __ldg(const T* at) { return *at; }
template <class T>
T __ldcg(const T* at) { return *at; }
template <class T>
T __ldca(const T* at) { return *at; }
template <class T>
T __ldcs(const T* at) { return *at; }
template <class T>
T __ldcv(const T* at) { return *at; }
template <class T>
void __stcg(T* at, T value) { *at = value; }
template <class T>
void __stcs(T* at, T value) { *at = value; }
template <class T>
void __stwb(T* at, T value) { *at = value; }
template <class T>
void __stwt(T* at, T value) { *at = value; }
