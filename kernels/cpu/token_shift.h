#pragma once

#include "kernels/by_isa.h"
#include "kernels/cpu/rows.h"

namespace weft::kernels {

struct TokenShiftArgs {
  ConstRows x, dy;  // dy and d_logits in backward only
  Rows y;           // dx in backward
  const float* logits;
  float* d_logits;
  int64_t logits_stride, d_logits_stride;
  const uint8_t* begins;  // of every token and of the end: 1 where a document begins
  int64_t heads, width;
};

// Rows [begin, end).
struct TokenShiftTable {
  void (*forward)(const TokenShiftArgs&, int64_t begin, int64_t end);
  void (*backward)(const TokenShiftArgs&, int64_t begin, int64_t end);
};
const TokenShiftTable& token_shift_table(IsaTag<Isa::kPlain>);
const TokenShiftTable& token_shift_table(IsaTag<Isa::kAvx2>);
const TokenShiftTable& token_shift_table(IsaTag<Isa::kAvx512>);

}  // namespace weft::kernels
