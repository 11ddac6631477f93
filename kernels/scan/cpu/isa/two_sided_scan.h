#pragma once

#include "kernels/scan/cpu/isa/diagonal_scan.h"

namespace weft::kernels {

// Tasks with value_log_decay and without bonus.
struct TwoSidedTable {
  DiagonalTable scan;
};
const TwoSidedTable& table(IsaTag<Isa::kPlain>, const TwoSidedTable*);
const TwoSidedTable& table(IsaTag<Isa::kAvx2>, const TwoSidedTable*);
const TwoSidedTable& table(IsaTag<Isa::kAvx512>, const TwoSidedTable*);
const TwoSidedTable& table(IsaTag<Isa::kAvx512Bf16>, const TwoSidedTable*);
const TwoSidedTable& table(IsaTag<Isa::kAmx>, const TwoSidedTable*);

}  // namespace weft::kernels
