#pragma once

#include "kernels/cpu/isa/rows.h"
#include "kernels/cpu/isa/simd.h"

// Loops over rows of any width and the way from a run-time dtype to a compile-time one. Include
// only from cpu/isa/*.cc.
// A function of a row program, local to the file that includes it.
#define WEFT_BODY [[maybe_unused]] static

namespace weft::kernels::WEFT_ISA_NAMESPACE {

// How many elements a step covers: a whole vector, or the `count` left at the end of a row. Bodies
// of loops take it as `auto n` and hand it to load and store, so that they are written once.
struct Full {};
struct Part {
  int64_t count;
};

// Called, not inlined: they run once per row, and inlined they were most of the code.
template <class T>
[[gnu::noinline]] VF load_tail(const T* p, int64_t n) {
  return load_part(p, n);
}
template <class T>
[[gnu::noinline]] void store_tail(T* p, VF v, int64_t n) {
  store_part(p, v, n);
}

template <class T>
WEFT_INLINE VF load(const T* p, Full) {
  return load(p);
}
template <class T>
WEFT_INLINE VF load(const T* p, Part n) {
  return load_tail(p, n.count);
}
template <class T>
WEFT_INLINE void store(T* p, VF v, Full) {
  store(p, v);
}
template <class T>
WEFT_INLINE void store(T* p, VF v, Part n) {
  store_tail(p, v, n.count);
}
// v with the lanes outside of the step replaced by zero.
WEFT_INLINE VF kept(VF v, Full) { return v; }
WEFT_INLINE VF kept(VF v, Part n) {
  float lane[kLanes];
  store(lane, v);
  return load_part(lane, n.count);
}

// body(i, n) for the steps of [0, width).
template <class Body>
WEFT_INLINE void each_vector(int64_t width, Body body) {
  int64_t i = 0;
  for (; i + kLanes <= width; i += kLanes) body(i, Full{});
  if (i < width) body(i, Part{width - i});
}

// Sum over [0, width) of the lanes of body(i, n), which are zero outside of the step. Four chains,
// so that one addition need not wait for the one before.
template <class Body>
WEFT_INLINE float sum_over(int64_t width, Body body) {
  VF a = {}, b = {}, c = {}, d = {};
  int64_t i = 0;
  for (; i + 4 * kLanes <= width; i += 4 * kLanes) {
    a += body(i, Full{});
    b += body(i + kLanes, Full{});
    c += body(i + 2 * kLanes, Full{});
    d += body(i + 3 * kLanes, Full{});
  }
  for (; i + kLanes <= width; i += kLanes) a += body(i, Full{});
  if (i < width) b += body(i, Part{width - i});
  return sum((a + b) + (c + d));
}

// Stores numbers that a row has one of. (Where lanes are threads, one of them does.)
template <class F>
WEFT_INLINE void once(F f) {
  f();
}

template <class T>
WEFT_INLINE const T* row(const ConstRows& rows, int64_t i) {
  return static_cast<const T*>(rows.data) + i * rows.stride;
}
template <class T>
WEFT_INLINE T* row(const Rows& rows, int64_t i) {
  return static_cast<T*>(rows.data) + i * rows.stride;
}

// f(T{}...) with the element types that the dtypes name.
template <class F>
WEFT_INLINE void with_types(DType a, F f) {
  if (a == DType::kBF16) {
    f(bf16{});
  } else {
    f(float{});
  }
}
template <class F>
WEFT_INLINE void with_types(DType a, DType b, F f) {
  with_types(a, [&](auto x) { with_types(b, [&](auto y) { f(x, y); }); });
}
template <class F>
WEFT_INLINE void with_types(DType a, DType b, DType c, F f) {
  with_types(a, b, [&](auto x, auto y) { with_types(c, [&](auto z) { f(x, y, z); }); });
}

// The same for a matrix that may be absent: then f(Absent{}).
struct Absent {};
template <class F>
WEFT_INLINE void with_optional(const void* data, DType dtype, F f) {
  if (data == nullptr) {
    f(Absent{});
  } else {
    with_types(dtype, f);
  }
}
template <class T>
inline constexpr bool kGiven = true;
template <>
inline constexpr bool kGiven<Absent> = false;

}  // namespace weft::kernels::WEFT_ISA_NAMESPACE
