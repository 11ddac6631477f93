#pragma once

#include "kernels/cpu/by_isa.h"
#include "kernels/cpu/isa/rows.h"

namespace weft::kernels {

// Angles of a position p = coarse * kRopeFine + fine, as e^(i angle) in double: the product of a
// row of `coarse` and a row of `fine`, which exist for far fewer positions than there are tokens.
inline constexpr int64_t kRopeFine = 64;

struct RopeArgs {
  const int32_t* positions;
  Rows x;
  int64_t heads, head_width, half;  // half: pairs that turn in each head
  // [.., 2 * half] rows of (cos | sin); row 0 of `coarse` is number `first_coarse`. With no `fine`,
  // coarse holds one row for each token instead.
  const double* coarse;
  const double* fine;
  int64_t first_coarse;
  float sign;  // -1 turns back
};

struct RopeTable {
  // scratch: 2 * half floats
  void (*rotate)(const RopeArgs&, int64_t begin, int64_t end, float* scratch);
};
const RopeTable& table(IsaTag<Isa::kPlain>, const RopeTable*);
const RopeTable& table(IsaTag<Isa::kAvx2>, const RopeTable*);
const RopeTable& table(IsaTag<Isa::kAvx512>, const RopeTable*);

}  // namespace weft::kernels
