#pragma once

#include "kernels/cpu/by_isa.h"
#include "kernels/cpu/isa/rows.h"

namespace weft::kernels {

struct MixRowsArgs {
  const int32_t* row;   // [tokens, active]: pair -> row
  const float* weight;  // [tokens, active]
  ConstRows rows;
  int64_t active, width;
  ConstRows dy = {};  // backward
  Rows y = {};        // d_rows in backward
  float* d_weight = nullptr;
};

// Tokens [begin, end).
struct MixRowsTable {
  void (*forward)(const MixRowsArgs&, int64_t begin, int64_t end);
  void (*backward)(const MixRowsArgs&, int64_t begin, int64_t end);
};
const MixRowsTable& table(IsaTag<Isa::kPlain>, const MixRowsTable*);
const MixRowsTable& table(IsaTag<Isa::kAvx2>, const MixRowsTable*);
const MixRowsTable& table(IsaTag<Isa::kAvx512>, const MixRowsTable*);

}  // namespace weft::kernels
