#pragma once

#include "kernels/cpu/by_isa.h"
#include "kernels/cpu/isa/rows.h"

namespace weft::kernels {

struct TokenShiftArgs {
  ConstRows x, dy;  // dy and d_logits in backward only
  Rows y;           // dx in backward
  const float* logits;
  float* d_logits;
  int64_t logits_stride, d_logits_stride;
  // For every token: the number of the document that begins (ends) with it, or -1.
  const int32_t* begins;
  const int32_t* ends;
  int64_t heads, width;
  ConstRows entering, d_leaving;  // a row per document, or absent
  Rows d_entering;
};

// Rows [begin, end).
struct TokenShiftTable {
  void (*forward)(const TokenShiftArgs&, int64_t begin, int64_t end);
  void (*backward)(const TokenShiftArgs&, int64_t begin, int64_t end);
  // d_entering of a document whose first token is `first`; -1: it has none.
  void (*history_backward)(const TokenShiftArgs&, int64_t document, int64_t first);
};
const TokenShiftTable& table(IsaTag<Isa::kPlain>, const TokenShiftTable*);
const TokenShiftTable& table(IsaTag<Isa::kAvx2>, const TokenShiftTable*);
const TokenShiftTable& table(IsaTag<Isa::kAvx512>, const TokenShiftTable*);

}  // namespace weft::kernels
