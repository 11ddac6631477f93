#pragma once

#include "kernels/cpu/by_isa.h"
#include "kernels/cpu/isa/rows.h"

namespace weft::kernels {

struct SlotsTable {
  void (*writes)(const ConstRows& g, const Rows& w, const Box&);
  void (*writes_back)(const ConstRows& g, const ConstRows& dw, const Rows& dg, const Box&);
};
const SlotsTable& table(IsaTag<Isa::kPlain>, const SlotsTable*);
const SlotsTable& table(IsaTag<Isa::kAvx2>, const SlotsTable*);
const SlotsTable& table(IsaTag<Isa::kAvx512>, const SlotsTable*);

}  // namespace weft::kernels
