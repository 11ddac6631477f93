#pragma once

#include "kernels/cpu/by_isa.h"
#include "kernels/cpu/isa/rows.h"

namespace weft::kernels {

struct ReductionTable {
  // sum[c] += the box's rows of column c, in order; sum starts at column 0 of the matrix.
  void (*add_rows)(const ConstRows& x, const Box&, float* sum);
  double (*sum_of_squares)(const ConstRows& x, const Box&);
};
const ReductionTable& table(IsaTag<Isa::kPlain>, const ReductionTable*);
const ReductionTable& table(IsaTag<Isa::kAvx2>, const ReductionTable*);
const ReductionTable& table(IsaTag<Isa::kAvx512>, const ReductionTable*);

}  // namespace weft::kernels
