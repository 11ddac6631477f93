#pragma once

#include "kernels/rows/row_words.h"

namespace weft::kernels {

struct MixRowsArgs {
  const int32_t* row;   // [tokens, active]: pair -> row
  const float* weight;  // [tokens, active]
  ConstRows rows;
  int64_t active, width;
  ConstRows dy = {};  // backward
  Rows y = {};        // d_rows in backward
  float* d_weight = nullptr;
};

#ifdef WEFT_ROW_BODIES
namespace WEFT_ISA_NAMESPACE {

template <class X, class Y>
WEFT_BODY void forward_rows(const MixRowsArgs& a, int64_t begin, int64_t end) {
  for (int64_t r = begin; r < end; ++r) {
    const int32_t* from = a.row + r * a.active;
    const float* weight = a.weight + r * a.active;
    Y* y = row<Y>(a.y, r);
    each_vector(a.width, [&](int64_t i, auto n) {
      VF sum = {};
      for (int64_t j = 0; j < a.active; ++j) {
        sum += weight[j] * load(row<X>(a.rows, from[j]) + i, n);
      }
      store(y + i, sum, n);
    });
  }
}

template <class X, class D, class Y>
WEFT_BODY void backward_rows(const MixRowsArgs& a, int64_t begin, int64_t end) {
  for (int64_t r = begin; r < end; ++r) {
    const D* dy = row<D>(a.dy, r);
    for (int64_t j = 0; j < a.active; ++j) {
      const int64_t pair = r * a.active + j;
      const X* x = row<X>(a.rows, a.row[pair]);
      Y* dx = row<Y>(a.y, a.row[pair]);
      const float weight = a.weight[pair];
      each_vector(a.width, [&](int64_t i, auto n) { store(dx + i, weight * load(dy + i, n), n); });
      a.d_weight[pair] =
          sum_over(a.width, [&](int64_t i, auto n) { return load(dy + i, n) * load(x + i, n); });
    }
  }
}

}  // namespace WEFT_ISA_NAMESPACE
#endif

}  // namespace weft::kernels
