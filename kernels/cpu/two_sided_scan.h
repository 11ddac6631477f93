#pragma once

#include "kernels/cpu/diagonal_scan.h"

namespace weft::kernels {

// The same for tasks with value_log_decay; no bonus.
const DiagonalTable& two_sided_table(IsaTag<Isa::kPlain>);
const DiagonalTable& two_sided_table(IsaTag<Isa::kAvx2>);
const DiagonalTable& two_sided_table(IsaTag<Isa::kAvx512>);
const DiagonalTable& two_sided_table(IsaTag<Isa::kAvx512Bf16>);
const DiagonalTable& two_sided_table(IsaTag<Isa::kAmx>);

}  // namespace weft::kernels
