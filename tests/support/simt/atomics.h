#pragma once

#include <type_traits>

#include "tests/support/simt/grid.h"

// Fibers change places only where they wait, so plain reads and writes are atomic. The functions
// are not instrumented; they report an atomic access to the observer.
namespace simt {

template <class T, class F>
SIMT_UNCHECKED T exchange_by(T* at, F next) {
  observe(at, sizeof(T), Access::kAtomic);
  const T before = *at;
  *at = static_cast<T>(next(before));
  return before;
}

template <class T>
using Operand = std::type_identity_t<T>;  // the pointer alone decides the type

}  // namespace simt

template <class T>
T atomicAdd(T* at, simt::Operand<T> x) {
  return simt::exchange_by(at, [x](T t) { return t + x; });
}
template <class T>
T atomicSub(T* at, simt::Operand<T> x) {
  return simt::exchange_by(at, [x](T t) { return t - x; });
}
template <class T>
T atomicExch(T* at, simt::Operand<T> x) {
  return simt::exchange_by(at, [x](T) { return x; });
}
template <class T>
T atomicMin(T* at, simt::Operand<T> x) {
  return simt::exchange_by(at, [x](T t) { return x < t ? x : t; });
}
template <class T>
T atomicMax(T* at, simt::Operand<T> x) {
  return simt::exchange_by(at, [x](T t) { return t < x ? x : t; });
}
template <class T>
T atomicAnd(T* at, simt::Operand<T> x) {
  return simt::exchange_by(at, [x](T t) { return t & x; });
}
template <class T>
T atomicOr(T* at, simt::Operand<T> x) {
  return simt::exchange_by(at, [x](T t) { return t | x; });
}
template <class T>
T atomicXor(T* at, simt::Operand<T> x) {
  return simt::exchange_by(at, [x](T t) { return t ^ x; });
}
template <class T>
T atomicCAS(T* at, simt::Operand<T> expected, simt::Operand<T> x) {
  return simt::exchange_by(at, [expected, x](T t) { return t == expected ? x : t; });
}
