#pragma once

#include "kernels/by_isa.h"
#include "kernels/cpu/rows.h"

namespace weft::kernels {

struct HeadSoftmaxArgs {
  ConstRows x;   // y in backward
  ConstRows dy;  // backward only
  Rows out;      // y, or dx
  int64_t heads, width;
};

// Tokens [begin, end).
struct HeadSoftmaxTable {
  void (*forward)(const HeadSoftmaxArgs&, int64_t begin, int64_t end);
  void (*backward)(const HeadSoftmaxArgs&, int64_t begin, int64_t end);
};
const HeadSoftmaxTable& head_softmax_table(IsaTag<Isa::kPlain>);
const HeadSoftmaxTable& head_softmax_table(IsaTag<Isa::kAvx2>);
const HeadSoftmaxTable& head_softmax_table(IsaTag<Isa::kAvx512>);

}  // namespace weft::kernels
