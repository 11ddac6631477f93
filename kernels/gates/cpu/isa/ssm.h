#pragma once

#include "kernels/cpu/by_isa.h"
#include "kernels/cpu/isa/rows.h"

namespace weft::kernels {

struct TimeStepRows {
  ConstRows z;
  const float* bias;
  int64_t width;
};
struct HeadStepRows {
  ConstRows x, dt;
  const float* a_log;
  const float* skip;
  int64_t heads, width;
};
// The sums are the block's own and are overwritten.
struct HeadStepBackRows {
  ConstRows dv, dg, dy;
  Rows dx, d_dt;
  float* d_a_log;
  float* d_skip;
};

// Rows [begin, end).
struct SsmTable {
  void (*step_forward)(const TimeStepRows&, const Rows& dt, int64_t begin, int64_t end);
  // d_bias [width] is the block's own and overwritten.
  void (*step_backward)(const TimeStepRows&, const ConstRows& d_dt, const Rows& dz, Box rows,
                        float* d_bias);
  void (*heads_forward)(const HeadStepRows&, const Rows& v, const Rows& g, int64_t begin,
                        int64_t end);
  void (*add_skip)(const HeadStepRows&, const Rows& y, int64_t begin, int64_t end);
  void (*heads_backward)(const HeadStepRows&, const HeadStepBackRows&, int64_t begin, int64_t end);
};
const SsmTable& table(IsaTag<Isa::kPlain>, const SsmTable*);
const SsmTable& table(IsaTag<Isa::kAvx2>, const SsmTable*);
const SsmTable& table(IsaTag<Isa::kAvx512>, const SsmTable*);

}  // namespace weft::kernels
