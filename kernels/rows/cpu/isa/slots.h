#pragma once

#include "kernels/cpu/by_isa.h"
#include "kernels/cpu/isa/rows.h"

namespace weft::kernels {

struct SlotHeads {
  int64_t heads, slots;
};
struct SlotsTable {
  void (*writes)(const ConstRows& g, const Rows& w, const Box&);
  void (*writes_back)(const ConstRows& g, const ConstRows& dw, const Rows& dg, const Box&);
  void (*softmax)(const SlotHeads&, const ConstRows& s, const Rows& p, const Box&);
  void (*softmax_back)(const SlotHeads&, const ConstRows& p, const ConstRows& dp, const Rows& ds,
                       const Box&);
};
const SlotsTable& table(IsaTag<Isa::kPlain>, const SlotsTable*);
const SlotsTable& table(IsaTag<Isa::kAvx2>, const SlotsTable*);
const SlotsTable& table(IsaTag<Isa::kAvx512>, const SlotsTable*);

}  // namespace weft::kernels
