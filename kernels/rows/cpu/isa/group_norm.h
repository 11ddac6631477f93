#pragma once

#include "kernels/cpu/by_isa.h"
#include "kernels/cpu/isa/rows.h"

namespace weft::kernels {

struct GroupNormArgs {
  ConstRows x, dy;  // dy in backward only
  const float *weight, *bias;
  float *mean, *inv_deviation;  // [rows, heads]: written in forward, read in backward
  Rows y;                       // dx in backward
  int64_t heads, width;
  float epsilon;
};

// Rows [begin, end).
struct GroupNormTable {
  void (*forward)(const GroupNormArgs&, int64_t begin, int64_t end);
  // d_weight, d_bias [heads * width] are overwritten by the sums over the rows.
  void (*backward)(const GroupNormArgs&, int64_t begin, int64_t end, float* d_weight,
                   float* d_bias);
};
const GroupNormTable& table(IsaTag<Isa::kPlain>, const GroupNormTable*);
const GroupNormTable& table(IsaTag<Isa::kAvx2>, const GroupNormTable*);
const GroupNormTable& table(IsaTag<Isa::kAvx512>, const GroupNormTable*);

}  // namespace weft::kernels
