#pragma once

#include "kernels/cpu/by_isa.h"
#include "kernels/cpu/isa/rows.h"

namespace weft::kernels {

struct RebasedRows {
  ConstRows x, d_phi;  // d_phi, dx in backward only
  Rows phi, dx;
  const float* gamma;
  const float* beta;
  int64_t heads, width;
  float epsilon;
};

// Rows [begin, end). The sums are the block's own and overwritten.
struct RebasedTable {
  void (*forward)(const RebasedRows&, int64_t begin, int64_t end);
  void (*backward)(const RebasedRows&, int64_t begin, int64_t end, float* d_gamma, float* d_beta);
};
const RebasedTable& table(IsaTag<Isa::kPlain>, const RebasedTable*);
const RebasedTable& table(IsaTag<Isa::kAvx2>, const RebasedTable*);
const RebasedTable& table(IsaTag<Isa::kAvx512>, const RebasedTable*);

}  // namespace weft::kernels
