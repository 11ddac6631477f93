#pragma once

#include "kernels/cpu/by_isa.h"
#include "kernels/cpu/isa/rows.h"

namespace weft::kernels {

struct L2Forward {
  ConstRows x;
  Rows y;
  float* inv_norm;
  int64_t heads, width;
  float epsilon;
};
struct L2Backward {
  ConstRows dy, y;
  Rows dx;
  const float* inv_norm;
  int64_t heads, width;
};

// Rows [begin, end).
struct L2Table {
  void (*forward)(const L2Forward&, int64_t begin, int64_t end);
  void (*backward)(const L2Backward&, int64_t begin, int64_t end);
};
const L2Table& table(IsaTag<Isa::kPlain>, const L2Table*);
const L2Table& table(IsaTag<Isa::kAvx2>, const L2Table*);
const L2Table& table(IsaTag<Isa::kAvx512>, const L2Table*);

}  // namespace weft::kernels
