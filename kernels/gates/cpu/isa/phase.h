#pragma once

#include "kernels/cpu/by_isa.h"
#include "kernels/cpu/isa/rows.h"

namespace weft::kernels {

struct TurnArgs {
  ConstRows phase;  // f32; may be absent
  ConstRows x, dy;  // x: not read in backward without a phase; dy in backward only
  Rows to;          // y, or dx in backward
  Rows d_phase;     // f32, added to; in backward with a phase only
  int64_t heads, width;
};

struct PhaseTable {
  void (*running)(const ConstRows& theta, const Rows& phase, const Box& document);
  // d_last [all columns] of this document; may be absent.
  void (*running_back)(const ConstRows& d_phase, const float* d_last, const Rows& d_theta,
                       const Box& document);
  void (*turn)(const TurnArgs&, int64_t begin, int64_t end);
  void (*turn_back)(const TurnArgs&, int64_t begin, int64_t end);
};
const PhaseTable& table(IsaTag<Isa::kPlain>, const PhaseTable*);
const PhaseTable& table(IsaTag<Isa::kAvx2>, const PhaseTable*);
const PhaseTable& table(IsaTag<Isa::kAvx512>, const PhaseTable*);

}  // namespace weft::kernels
