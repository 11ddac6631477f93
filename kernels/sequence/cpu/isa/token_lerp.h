#pragma once

#include "kernels/cpu/by_isa.h"
#include "kernels/cpu/isa/rows.h"

namespace weft::kernels {

struct TokenLerpArgs {
  ConstRows x, before, mix;  // mix: stride 0 where it is the same for every token
  ConstRows dy;              // in backward only, as all below but y
  Rows y;                    // in backward d_mix, where every token has a mix of its own
  float *dx, *d_before;      // added to
  int64_t dx_stride, d_before_stride;
  int64_t width;
};

// Rows [begin, end).
struct TokenLerpTable {
  void (*forward)(const TokenLerpArgs&, int64_t begin, int64_t end);
  // d_mix [width] is overwritten by the sum over the rows; null: each row's gradient goes to y.
  void (*backward)(const TokenLerpArgs&, int64_t begin, int64_t end, float* d_mix);
};
const TokenLerpTable& table(IsaTag<Isa::kPlain>, const TokenLerpTable*);
const TokenLerpTable& table(IsaTag<Isa::kAvx2>, const TokenLerpTable*);
const TokenLerpTable& table(IsaTag<Isa::kAvx512>, const TokenLerpTable*);

}  // namespace weft::kernels
