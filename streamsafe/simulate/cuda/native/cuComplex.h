// CUDA's complex numbers for C: pairs of floats or doubles.
#pragma once

#define STREAMSAFE_COMPLEX(PAIR, REAL, TYPE, MAKE, F)                                                          \
  using TYPE = PAIR;                                                                                           \
  inline TYPE MAKE(REAL x, REAL y) { return {x, y}; }                                                          \
  inline REAL cuCreal##F(TYPE a) { return a.x; }                                                               \
  inline REAL cuCimag##F(TYPE a) { return a.y; }                                                               \
  inline TYPE cuConj##F(TYPE a) { return {a.x, -a.y}; }                                                        \
  inline TYPE cuCadd##F(TYPE a, TYPE b) { return {a.x + b.x, a.y + b.y}; }                                     \
  inline TYPE cuCsub##F(TYPE a, TYPE b) { return {a.x - b.x, a.y - b.y}; }                                     \
  inline TYPE cuCmul##F(TYPE a, TYPE b) { return {a.x * b.x - a.y * b.y, a.x * b.y + a.y * b.x}; }             \
  inline TYPE cuCdiv##F(TYPE a, TYPE b) {                                                                      \
    std::complex<REAL> quotient = std::complex<REAL>(a.x, a.y) / std::complex<REAL>(b.x, b.y);                 \
    return {quotient.real(), quotient.imag()};                                                                 \
  }                                                                                                            \
  inline REAL cuCabs##F(TYPE a) { return std::hypot(a.x, a.y); }                                               \
  inline TYPE cuCfma##F(TYPE a, TYPE b, TYPE c) { return cuCadd##F(cuCmul##F(a, b), c); }

STREAMSAFE_COMPLEX(float2, float, cuFloatComplex, make_cuFloatComplex, f)
STREAMSAFE_COMPLEX(double2, double, cuDoubleComplex, make_cuDoubleComplex, )
using cuComplex = cuFloatComplex;
inline cuComplex make_cuComplex(float x, float y) { return {x, y}; }
inline cuDoubleComplex cuComplexFloatToDouble(cuFloatComplex a) { return {a.x, a.y}; }
inline cuFloatComplex cuComplexDoubleToFloat(cuDoubleComplex a) {
  return {static_cast<float>(a.x), static_cast<float>(a.y)};
}
