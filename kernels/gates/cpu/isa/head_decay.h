#pragma once

#include "kernels/cpu/by_isa.h"
#include "kernels/cpu/isa/rows.h"

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
const DecayTable& table(IsaTag<Isa::kPlain>, const DecayTable*);
const DecayTable& table(IsaTag<Isa::kAvx2>, const DecayTable*);
const DecayTable& table(IsaTag<Isa::kAvx512>, const DecayTable*);

}  // namespace weft::kernels
