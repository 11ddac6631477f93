#pragma once

#include "kernels/cpu/by_isa.h"
#include "kernels/routing/mixture_rows.h"

namespace weft::kernels {

// Tokens [begin, end).
struct MixRowsTable {
  void (*forward)(const MixRowsArgs&, int64_t begin, int64_t end);
  void (*backward)(const MixRowsArgs&, int64_t begin, int64_t end);
};
const MixRowsTable& table(IsaTag<Isa::kPlain>, const MixRowsTable*);
const MixRowsTable& table(IsaTag<Isa::kAvx2>, const MixRowsTable*);
const MixRowsTable& table(IsaTag<Isa::kAvx512>, const MixRowsTable*);

}  // namespace weft::kernels
