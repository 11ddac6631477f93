#pragma once

#include "kernels/cpu/by_isa.h"
#include "kernels/cpu/isa/rows.h"

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
const HeadSoftmaxTable& table(IsaTag<Isa::kPlain>, const HeadSoftmaxTable*);
const HeadSoftmaxTable& table(IsaTag<Isa::kAvx2>, const HeadSoftmaxTable*);
const HeadSoftmaxTable& table(IsaTag<Isa::kAvx512>, const HeadSoftmaxTable*);

}  // namespace weft::kernels
