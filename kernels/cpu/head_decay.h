#pragma once

#include "kernels/by_isa.h"
#include "kernels/cpu/rows.h"

namespace weft::kernels {

struct DecayArgs {
  ConstRows a;
  const float* a_log;
  const float* dt_bias;
  int64_t heads;
};
// The sums are the block's own and are overwritten.
struct DecayBack {
  ConstRows dg;  // f32
  Rows da;
  float* d_a_log;
  float* d_dt_bias;
};

// Rows [begin, end).
struct DecayTable {
  void (*forward)(const DecayArgs&, const Rows& g, int64_t begin, int64_t end);
  void (*backward)(const DecayArgs&, const DecayBack&, int64_t begin, int64_t end);
};
const DecayTable& decay_table(IsaTag<Isa::kPlain>);
const DecayTable& decay_table(IsaTag<Isa::kAvx2>);
const DecayTable& decay_table(IsaTag<Isa::kAvx512>);

}  // namespace weft::kernels
