#pragma once

#include "kernels/rows/row_words.h"

namespace weft::kernels {

#ifdef WEFT_ROW_BODIES
namespace WEFT_ISA_NAMESPACE {

// sum[c] += the box's rows of column c, in order; sum starts at column 0 of the matrix.
template <class X>
WEFT_BODY void add_rows_box(const ConstRows& matrix, const Box& box, float* sum) {
  for (int64_t r = box.begin; r < box.end; ++r) {
    const X* x = row<X>(matrix, r) + box.left;
    float* s = sum + box.left;
    each_vector(box.right - box.left,
                [&](int64_t i, auto n) { store(s + i, load(s + i, n) + load(x + i, n), n); });
  }
}

}  // namespace WEFT_ISA_NAMESPACE
#endif

}  // namespace weft::kernels
