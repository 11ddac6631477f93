#pragma once

#include "kernels/rows/row_words.h"

namespace weft::kernels {

struct CombineArgs {
  const int32_t* row;  // [tokens, active]; -1: nothing to add
  ConstRows rows;
  Rows y;
  int64_t active, width;
  bool accumulate;
};

#ifdef WEFT_ROW_BODIES
namespace WEFT_ISA_NAMESPACE {

template <class X, class Y>
WEFT_BODY void combine_rows(const CombineArgs& a, int64_t begin, int64_t end) {
  for (int64_t r = begin; r < end; ++r) {
    const int32_t* from = a.row + r * a.active;
    Y* y = row<Y>(a.y, r);
    each_vector(a.width, [&](int64_t i, auto n) {
      VF sum = a.accumulate ? load(y + i, n) : VF{};
      for (int64_t j = 0; j < a.active; ++j) {
        if (from[j] >= 0) sum += load(row<X>(a.rows, from[j]) + i, n);
      }
      store(y + i, sum, n);
    });
  }
}

}  // namespace WEFT_ISA_NAMESPACE
#endif

}  // namespace weft::kernels
