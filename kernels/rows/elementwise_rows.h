#pragma once

#include "kernels/rows/row_words.h"

namespace weft::kernels {

struct Elementwise {
  ConstRows a, b;  // b in add only
  Rows y;
  float factor;  // the value in fill
  float offset = 0.0f;
};
struct AddBias {
  const float* bias;
  Rows y;
};

#ifdef WEFT_ROW_BODIES
namespace WEFT_ISA_NAMESPACE {

template <class X, class Y>
WEFT_BODY void copy_box(const Elementwise& a, const Box& box) {
  for (int64_t r = box.begin; r < box.end; ++r) {
    const X* x = row<X>(a.a, r) + box.left;
    Y* y = row<Y>(a.y, r) + box.left;
    each_vector(box.right - box.left, [&](int64_t i, auto n) { store(y + i, load(x + i, n), n); });
  }
}

template <class A, class B, class Y>
WEFT_BODY void add_box(const Elementwise& a, const Box& box) {
  for (int64_t r = box.begin; r < box.end; ++r) {
    const A* left = row<A>(a.a, r) + box.left;
    const B* right = row<B>(a.b, r) + box.left;
    Y* y = row<Y>(a.y, r) + box.left;
    each_vector(box.right - box.left, [&](int64_t i, auto n) {
      store(y + i, load(left + i, n) + load(right + i, n), n);
    });
  }
}

template <class X, class Y>
WEFT_BODY void scale_box(const Elementwise& a, const Box& box) {
  for (int64_t r = box.begin; r < box.end; ++r) {
    const X* x = row<X>(a.a, r) + box.left;
    Y* y = row<Y>(a.y, r) + box.left;
    each_vector(box.right - box.left,
                [&](int64_t i, auto n) { store(y + i, load(x + i, n) * a.factor, n); });
  }
}

template <class X, class Y>
WEFT_BODY void shift_scale_box(const Elementwise& a, const Box& box) {
  for (int64_t r = box.begin; r < box.end; ++r) {
    const X* x = row<X>(a.a, r) + box.left;
    Y* y = row<Y>(a.y, r) + box.left;
    each_vector(box.right - box.left, [&](int64_t i, auto n) {
      store(y + i, a.factor * (a.offset + load(x + i, n)), n);
    });
  }
}

template <class Y>
WEFT_BODY void fill_box(const Elementwise& a, const Box& box) {
  const VF value = splat(a.factor);
  for (int64_t r = box.begin; r < box.end; ++r) {
    Y* y = row<Y>(a.y, r) + box.left;
    each_vector(box.right - box.left, [&](int64_t i, auto n) { store(y + i, value, n); });
  }
}

template <class Y>
WEFT_BODY void add_bias_box(const AddBias& a, const Box& box) {
  const float* bias = a.bias + box.left;
  for (int64_t r = box.begin; r < box.end; ++r) {
    Y* y = row<Y>(a.y, r) + box.left;
    each_vector(box.right - box.left,
                [&](int64_t i, auto n) { store(y + i, load(y + i, n) + load(bias + i, n), n); });
  }
}

}  // namespace WEFT_ISA_NAMESPACE
#endif

}  // namespace weft::kernels
