#pragma once

#include "kernels/cpu/by_isa.h"
#include "kernels/routing/expert_order_rows.h"

namespace weft::kernels {

// Tokens [begin, end).
struct ExpertOrderTable {
  void (*combine)(const CombineArgs&, int64_t begin, int64_t end);
};
const ExpertOrderTable& table(IsaTag<Isa::kPlain>, const ExpertOrderTable*);
const ExpertOrderTable& table(IsaTag<Isa::kAvx2>, const ExpertOrderTable*);
const ExpertOrderTable& table(IsaTag<Isa::kAvx512>, const ExpertOrderTable*);

}  // namespace weft::kernels
